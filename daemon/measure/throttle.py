"""Throttling in the timeline: how often it began, and what of that belongs to a run.

Whatever counts throttling writes two columns a kind: ``throttle.KIND.events``, how often it began
until then, and, where a sample can tell, ``throttle.KIND.active``, whether it goes on.
"""

import re
from collections.abc import Mapping
from itertools import pairwise
from math import isnan

from .run_report import Span
from .slices import Cut

CAPS = frozenset({"board_limit", "reliability", "sw_power_cap"})
"""Kinds that are no trouble: a clock that is as high as a power or voltage budget lets it be. A
server GPU at full load runs so by design. They are counted and shown, and raise no flag; where
they make the clock wander, the run is not steady for that."""

_EVENTS = re.compile(r"throttle\.(\w+)\.events")


def counts(values: Mapping[str, float]) -> dict[str, int]:
    """Return the events until now, by kind, of one sample.

    >>> counts({"throttle.hw_thermal.events": 2.0, "gpu.utilization_ratio": 0.5})
    {'hw_thermal': 2}
    """
    found = ((_EVENTS.fullmatch(name), value) for name, value in values.items())
    return {match[1]: int(value) for match, value in found if match is not None}


def in_window(cut: Cut, window: Span) -> dict[str, int] | None:
    """Return the throttle events of a window, by kind.

    From the last sample at or before its start to the first at or after its end: what began
    between two samples may have been in the window, so it counts. So does what was going on
    already. A counter that fell began anew.

    Args:
        cut: Samples of the window with a neighbour on each side.
        window: The steady window.

    Returns:
        Events by kind; ``None`` where nothing counts them.
    """
    inside = cut.inside(window.begin_ns, window.end_ns)
    around = range(max(inside.start - 1, 0), min(inside.stop + 1, len(cut.times_ns)))
    found: dict[str, int] = {}
    for name, column in cut.columns.items():
        match = _EVENTS.fullmatch(name)
        known = [] if match is None else [i for i in around if not isnan(column[i])]
        if match is None or not known:
            continue
        active = cut.columns.get(f"throttle.{match[1]}.active")
        going_on = active is not None and active[known[0]] == 1
        steps = (
            column[b] - column[a] if column[b] >= column[a] else column[b]
            for a, b in pairwise(known)
        )
        found[match[1]] = int(sum(steps)) + going_on
    return found or None


def trouble(events: Mapping[str, int] | None) -> int | None:
    """Return how many events are trouble; ``None`` where nothing counts them."""
    if events is None:
        return None
    return sum(count for kind, count in events.items() if kind not in CAPS)
