"""Throttling in the timeline: how often it began, and what of that belongs to a run.

Whatever counts throttling writes two columns a kind: ``throttle.KIND.events``, how often it began
until then, and, where a sample can tell, ``throttle.KIND.active``, whether it goes on.
"""

from collections.abc import Mapping
from itertools import pairwise
from math import isnan

from ...parsers.signals import THROTTLE_ACTIVE, THROTTLE_EVENTS
from .run_report import Span
from .slices import Cut

CAPS = frozenset({"board_limit", "reliability", "sw_power_cap"})
"""Kinds that are no trouble: a clock that is as high as a power or voltage budget lets it be. A
server GPU at full load runs so by design. They are counted and shown, and raise no flag; where
they make the clock wander, the run is not steady for that."""


def counts(values: Mapping[str, float]) -> dict[str, int]:
    """Return the events until now, by kind, of one sample.

    >>> counts({"throttle.hw_thermal.events": 2.0, "gpu.utilization_ratio": 0.5})
    {'hw_thermal': 2}
    """
    return {kind: int(value) for kind, value in THROTTLE_EVENTS.by_label(values).items()}


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
    for kind, column in THROTTLE_EVENTS.by_label(cut.columns).items():
        known = [i for i in around if not isnan(column[i])]
        if not known:
            continue
        active = cut.columns.get(THROTTLE_ACTIVE.column(kind))
        going_on = active is not None and active[known[0]] == 1
        steps = (
            column[b] - column[a] if column[b] >= column[a] else column[b]
            for a, b in pairwise(known)
        )
        found[kind] = int(sum(steps)) + going_on
    return found or None


def trouble(events: Mapping[str, int] | None) -> int | None:
    """Return how many events are trouble; ``None`` where nothing counts them."""
    if events is None:
        return None
    return sum(count for kind, count in events.items() if kind not in CAPS)
