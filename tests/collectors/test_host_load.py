"""The load of the CPU."""

import threading

import pytest

from tegrascope.collectors.board.machine import cpu_busy_ratio

BEFORE = (100.0, 0.0, 0.0, 1000.0, 0.0, 0.0, 0.0, 0.0, 7.0)


@pytest.mark.parametrize(
    ("after", "ratio"),
    [
        ((150.0, 0.0, 50.0, 1100.0, 0.0, 0.0, 0.0, 0.0, 9.0), 0.5),
        ((100.0, 0.0, 0.0, 1000.0, 900.0, 0.0, 0.0, 0.0, 7.0), 0.0),
        (BEFORE, None),
        ((), None),
    ],
    ids=["half", "waiting-for-disks", "no-time", "empty"],
)
def test_share_is_of_the_time_between(after, ratio):
    times = iter([BEFORE, after])
    found = cpu_busy_ratio(0.0, threading.Event(), read_times=lambda: next(times))
    assert found == ratio


def test_machine_without_proc_has_no_figure():
    def fail():
        raise FileNotFoundError

    assert cpu_busy_ratio(0.0, threading.Event(), read_times=fail) is None


def test_this_machine_has_a_share():
    found = cpu_busy_ratio(0.05, threading.Event())
    assert found is None or 0 <= found <= 1
