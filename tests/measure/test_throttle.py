"""Throttling of a run: events that began or were active in its window."""

from array import array
from math import nan

import pytest

from tegrascope.daemon.measure.blocks import WindowSlice
from tegrascope.daemon.measure.report import Span
from tegrascope.daemon.measure.utilization import abnormal_events, throttle_counts

S = 1_000_000_000
WINDOW = Span(begin_ns=3 * S, end_ns=7 * S)


def cut_of(events: "list[float]", active: "list[float] | None" = None) -> WindowSlice:
    columns = {"throttle.oc1.events": array("d", events), "gpu.utilization_ratio": array("d")}
    columns["gpu.utilization_ratio"].extend([0.5] * len(events))
    if active is not None:
        columns["throttle.oc1.active"] = array("d", active)
    times = array("q", [round((i + 0.5) * S) for i in range(len(events))])
    return WindowSlice(times, array("q", [0] * len(events)), columns)


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([5] * 10, 0),
        ([0, 9, 9, 9, 9, 9, 9, 9, 9, 9], 0),
        ([0, 0, 0, 0, 0, 2, 2, 3, 3, 3], 3),
        # Between the samples at 2.5 s and 3.5 s, of which the window begins at 3 s.
        ([0, 0, 0, 1, 1, 1, 1, 1, 1, 1], 1),
        ([0, 0, 0, 0, 0, 0, 0, 1, 9, 9], 1),
        ([4, 4, 4, 5, 5, 0, 0, 2, 2, 2], 3),
        ([0, 0, nan, nan, 1, nan, 2, 2, 2, 2], 1),
    ],
)
def test_events_around_the_window_are_counted(events, expected):
    assert throttle_counts(cut_of(events), WINDOW) == {"oc1": expected}


def test_throttling_that_is_active_at_the_start_is_one_event():
    assert throttle_counts(cut_of([3] * 10, [1] * 10), WINDOW) == {"oc1": 1}
    assert throttle_counts(cut_of([3] * 10, [1, 1] + [0] * 8), WINDOW) == {"oc1": 0}
    on, off = [0, 0, 0, 0, 1, 1, 1, 1, 1, 1], [0, 0, 0, 0, 1, 1, 0, 0, 0, 0]
    assert throttle_counts(cut_of(on, off), WINDOW) == {"oc1": 1}


def test_events_that_are_not_counted_are_absent():
    assert throttle_counts(WindowSlice(), WINDOW) is None
    assert throttle_counts(cut_of([nan] * 10), WINDOW) is None
    assert abnormal_events(None) is None
    assert abnormal_events({}) == 0


def test_running_within_a_power_budget_is_normal():
    assert abnormal_events({"sw_power_cap": 9, "reliability": 1, "board_limit": 1}) == 0
    assert abnormal_events({"sw_power_cap": 9, "hw_thermal": 1, "sw_thermal": 2, "oc1": 4}) == 7

    """Any source counts by writing columns of that form."""
