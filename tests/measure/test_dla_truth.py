"""Busy time of the DLA by window: interpolated, never more than time, and checked for sense."""

from array import array
from itertools import pairwise
from math import nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tegrascope.daemon.measure.blocks import WindowSlice
from tegrascope.daemon.measure.dla import (
    beyond_powered,
    counted_shares,
    dla_was_on,
    foreign_dla_activity,
    trace_errors,
)
from tegrascope.daemon.measure.report import Span

S = 1_000_000_000


def cut_of(**columns: "list[float]") -> WindowSlice:
    """Return a sample each second from 0 on; ``__`` in a name is a dot."""
    count = len(next(iter(columns.values())))
    times = array("q", (i * S for i in range(count)))
    named = {name.replace("__", "."): array("d", column) for name, column in columns.items()}
    return WindowSlice(times, times, named)


def span(begin: float, end: float) -> Span:
    return Span(begin_ns=round(begin * S), end_ns=round(end * S))


def rising(*grown: float) -> "list[float]":
    """Return a counter that has grown by so much in each second."""
    counted = [7.0]
    for seconds in grown:
        counted.append(counted[-1] + seconds)
    return counted


def test_share_is_the_difference_between_the_edges():
    cut = cut_of(dla__0__busy_seconds=rising(0, 0.4, 0.8, 0.2), dla__1__busy_seconds=[0.0] * 5)
    found = counted_shares(cut, span(1.5, 3.5))
    assert found["dla0:ftrace"].mean_ratio == pytest.approx((0.2 + 0.8 + 0.1) / 2)
    assert found["dla0:ftrace"].max_ratio == pytest.approx(0.8)
    assert found["dla1:ftrace"].mean_ratio == 0


@given(st.lists(st.floats(0, 1), min_size=3, max_size=20), st.lists(st.floats(0, 1), max_size=6))
def test_shares_of_parts_add_up_to_the_whole(grown, cuts):
    cut = cut_of(dla__0__busy_seconds=rising(*grown))
    edges = sorted({0, len(grown) * S, *(round(one * len(grown) * S) for one in cuts)})
    whole = counted_shares(cut, span(0, len(grown)))["dla0:ftrace"].mean_ratio * len(grown)
    parts = 0.0
    for begin, end in pairwise(edges):
        found = counted_shares(cut, Span(begin_ns=begin, end_ns=end))["dla0:ftrace"]
        assert found.mean_ratio <= found.max_ratio <= 1
        parts += found.mean_ratio * (end - begin) / S
    assert parts == pytest.approx(whole, abs=1e-6)


def test_task_that_ends_late_does_not_exceed_the_time():
    found = counted_shares(cut_of(dla__0__busy_seconds=rising(0, 1.5, 0.5)), span(0, 3))[
        "dla0:ftrace"
    ]
    assert (found.mean_ratio, found.max_ratio) == (pytest.approx(2 / 3), 1.0)


def test_counter_without_values_is_absent():
    assert counted_shares(cut_of(dla__0__on=[1.0] * 4), span(0, 3)) == {}
    assert counted_shares(cut_of(dla__0__busy_seconds=[nan] * 4), span(0, 3)) == {}
    found = counted_shares(cut_of(dla__0__busy_seconds=[0, nan, nan, 1.5]), span(0, 3))
    assert found["dla0:ftrace"].mean_ratio == 0.5


def test_absence_of_tasks_is_evidence_only_in_a_complete_trace():
    window = span(1, 3)
    assert dla_was_on(cut_of(dla__0__tasks=[5, 5, 6, 6]), window, "dla0") is True
    assert dla_was_on(cut_of(dla__0__tasks=[5, 5, 5, 5]), window, "dla0") is False
    assert dla_was_on(cut_of(dla__0__tasks=[5, 5, 5, 5]), window, "dla1") is None
    assert dla_was_on(cut_of(dla__0__tasks=[nan, nan, 5, 5]), window, "dla0") is None
    lost = cut_of(dla__0__tasks=[5.0] * 4, dla__trace__lost=[nan, nan, 3, 3])
    assert dla_was_on(lost, window, "dla0") is None
    before = cut_of(dla__0__tasks=[5.0] * 6, dla__trace__lost=[nan, 3, 3, 3, 3, 3])
    assert dla_was_on(before, span(2.5, 4), "dla0") is False


def test_trace_errors_are_those_of_the_window():
    cut = cut_of(
        dla__trace__lost=[nan, 2, 2, 9, 9, 9],
        dla__trace__ambiguous=[4.0] * 6,
        dla__0__busy_seconds=[0.0] * 6,
    )
    assert trace_errors(cut, span(1.5, 3.5)) == {"lost": 7}
    assert trace_errors(cut, span(3.5, 4.5)) == {}


def nothing(*_: object) -> float:
    return 0.0


def everything(_device: str, begin_ns: int, end_ns: int) -> float:
    return (end_ns - begin_ns) / S


@pytest.mark.parametrize("device", ["gpu", "dla1"])
def test_busy_core_that_no_run_uses_is_foreign(device):
    cut = cut_of(dla__0__busy_seconds=rising(*[0.3] * 10))
    assert foreign_dla_activity(cut, span(0, 10), device, (), nothing)
    assert not foreign_dla_activity(cut, span(0, 10), device, (), everything)
    idle = cut_of(dla__0__busy_seconds=rising(*[0.001] * 10))
    assert not foreign_dla_activity(idle, span(0, 10), device, (), nothing)


def test_own_core_is_checked_in_the_baselines_only():
    idle = (span(0, 4), span(8, 12))
    ours = cut_of(dla__0__busy_seconds=rising(0, 0, 0, 0, 0.9, 0.9, 0.9, 0.9, 0.1, 0, 0, 0))
    assert not foreign_dla_activity(ours, span(0, 12), "dla0", idle, nothing)
    theirs = cut_of(dla__0__busy_seconds=rising(*[0.2] * 12))
    assert foreign_dla_activity(theirs, span(0, 12), "dla0", idle, nothing)
    assert not foreign_dla_activity(theirs, span(0, 12), "dla0", (), nothing)


def test_run_that_ended_just_before_is_not_foreign():
    cut = cut_of(dla__0__busy_seconds=rising(0.9, 0.15, 0, 0))

    def until_one_second(_device: str, begin_ns: int, end_ns: int) -> float:
        return max(0, min(end_ns, S) - begin_ns) / S

    assert not foreign_dla_activity(cut, span(0, 4), "gpu", (), until_one_second)


def test_busy_time_beyond_powered_time_is_reported():
    window = span(0, 4)
    busy_seconds = rising(0.5, 0.5, 0.5, 0.5)
    sound = cut_of(dla__0__busy_seconds=busy_seconds, dla__0__powered_seconds=rising(1, 1, 1, 0.7))
    assert beyond_powered(sound, window) == {}
    wrong = cut_of(dla__0__busy_seconds=busy_seconds, dla__0__powered_seconds=[3.0] * 5)
    assert beyond_powered(wrong, window) == {"dla0": pytest.approx(1.8)}
    assert beyond_powered(cut_of(dla__0__busy_seconds=busy_seconds), window) == {}
