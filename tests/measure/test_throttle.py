"""Throttling of a run: what began or went on in its window, and what of that is trouble."""

from array import array
from math import nan

import pytest

from tegrascope.daemon.measure.run_report import Span
from tegrascope.daemon.measure.slices import Cut
from tegrascope.daemon.measure.throttle import counts, in_window, trouble

S = 1_000_000_000
WINDOW = Span(begin_ns=3 * S, end_ns=7 * S)


def cut_of(events: "list[float]", active: "list[float] | None" = None) -> Cut:
    columns = {"throttle.oc1.events": array("d", events), "gpu.utilization_ratio": array("d")}
    columns["gpu.utilization_ratio"].extend([0.5] * len(events))
    if active is not None:
        columns["throttle.oc1.active"] = array("d", active)
    times = array("q", [round((i + 0.5) * S) for i in range(len(events))])
    return Cut(times, array("q", [0] * len(events)), columns)


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
def test_share_of_a_run_is_what_its_window_can_hold(events, expected):
    """Counts since boot become those of the window; in doubt at an edge, it is the run's."""
    assert in_window(cut_of(events), WINDOW) == {"oc1": expected}


def test_what_goes_on_all_along_counts():
    """A run that is throttled from its first moment to its last has an event, though none began."""
    assert in_window(cut_of([3] * 10, [1] * 10), WINDOW) == {"oc1": 1}
    assert in_window(cut_of([3] * 10, [1, 1] + [0] * 8), WINDOW) == {"oc1": 0}
    on, off = [0, 0, 0, 0, 1, 1, 1, 1, 1, 1], [0, 0, 0, 0, 1, 1, 0, 0, 0, 0]
    assert in_window(cut_of(on, off), WINDOW) == {"oc1": 1}


def test_not_counted_is_not_none_at_all():
    """A board that counts nothing has an unknown number of events, not zero."""
    assert in_window(Cut(), WINDOW) is None
    assert in_window(cut_of([nan] * 10), WINDOW) is None
    assert trouble(None) is None
    assert trouble({}) == 0


def test_running_within_a_budget_is_no_trouble():
    """A power cap is how a server GPU runs at full load; heat and brakes are another matter."""
    assert trouble({"sw_power_cap": 9, "reliability": 1, "board_limit": 1}) == 0
    assert trouble({"sw_power_cap": 9, "hw_thermal": 1, "sw_thermal": 2, "oc1": 4}) == 7


def test_counts_are_found_by_name():
    """Any source counts by writing columns of that form."""
    values = {"throttle.oc1.events": 3.0, "throttle.oc1.active": 1.0, "rails.A.instant_watts": 2}
    assert counts(values) == {"oc1": 3}
