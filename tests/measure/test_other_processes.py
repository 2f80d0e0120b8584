"""Who else used the board in a window, from counters that are read now and then."""

from array import array
from math import nan

import pytest

from tegrascope.daemon.measure.blocks import WindowSlice
from tegrascope.daemon.measure.processes import (
    foreign_gpu_load,
    least_available_bytes,
    other_processes,
    own_gpu_bytes,
)
from tegrascope.daemon.measure.report import Span

S = 1_000_000_000


def cut_of(columns: "dict[str, list[float]]") -> WindowSlice:
    """Return a sample each second from 0 on."""
    times = array("q", (i * S for i in range(len(next(iter(columns.values()))))))
    return WindowSlice(times, times, {name: array("d", one) for name, one in columns.items()})


def test_cpu_time_between_readings_is_shared_by_time():
    cut = cut_of({"process.cpu_seconds.stress": [5, nan, nan, nan, 9, nan, nan, nan, 9]})
    (found,) = other_processes(cut, Span(begin_ns=1 * S, end_ns=6 * S))
    assert (found.name, found.dla_seconds) == ("stress", {})
    assert found.cpu_seconds == pytest.approx(3.0)


def test_time_on_a_dla_names_the_process_and_comes_first():
    cut = cut_of(
        {
            "process.cpu_seconds.compile": [0.0, 1.0, 2.0, 3.0],
            "dla.1.process_seconds.trtexec": [0.0, 0.5, 1.0, 1.5],
            "dla.0.process_seconds.tegrascope": [0.0, 0.5, 1.0, 1.5],
        }
    )
    found = other_processes(cut, Span(begin_ns=0, end_ns=2 * S))
    assert [one.name for one in found] == ["trtexec", "compile"]
    assert found[0].dla_seconds == pytest.approx({"dla1": 1.0})
    assert found[0].cpu_seconds is None


def test_processes_that_hardly_worked_are_left_out():
    cut = cut_of({"process.cpu_seconds.init": [0.0, 0.001, 0.001, 0.002]})
    assert other_processes(cut, Span(begin_ns=0, end_ns=3 * S)) == ()


def test_load_of_the_gpu_is_a_mean_of_the_window():
    """A name that the list lacks at times did not compute then. A load is of the second before."""
    cut = cut_of(
        {
            "process.gpu_load_ratio.tegrascope": [0.9, 0.5, 0.5, 0.5, 0.5],
            "process.gpu_load_ratio.hog": [0.9, nan, nan, 0.4, 0.4],
            "process.gpu_memory_bytes.hog": [nan, nan, nan, 9, 9],
        }
    )
    window = Span(begin_ns=0, end_ns=4 * S)
    (hog,) = other_processes(cut, window)
    assert (hog.name, hog.gpu_memory_bytes) == ("hog", 9)
    assert hog.gpu_load_ratio == pytest.approx(0.2)
    assert foreign_gpu_load(cut, window) == pytest.approx(0.2)


@pytest.mark.parametrize("own", ["other", "robot"])
def test_without_ours_on_the_gpu_nothing_there_is_foreign(own):
    """The program that is measured may be one of the others, or names are hidden."""
    loads = {f"process.gpu_load_ratio.{name}": [0.5] * 5 for name in (own, "hog")}
    assert foreign_gpu_load(cut_of(loads), Span(begin_ns=0, end_ns=4 * S)) == 0.0


def test_memory_of_a_run_is_its_own_peak_and_what_was_left_to_all():
    """Of the samples inside the window only; a value that was not read leaves none."""
    cut = cut_of(
        {
            "process.gpu_memory_bytes.tegrascope": [99, 5, nan, 7, 99],
            "process.gpu_memory_bytes.hog": [nan, 50, 50, 50, 50],
            "ram.available_bytes": [1, 40, nan, 30, 1],
        }
    )
    window = Span(begin_ns=1 * S, end_ns=3 * S)
    assert own_gpu_bytes(cut, window) == 7
    assert least_available_bytes(cut, window) == 30
    nothing = cut_of({"process.cpu_seconds.x": [0.0] * 5})
    assert own_gpu_bytes(nothing, window) is None
    assert least_available_bytes(nothing, window) is None
