"""Time that is counted, cut by window: seconds until each sample become the share of a window."""

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import isnan

from .cut import Cut
from .run_report import Span, Utilization

_CORE = re.compile(r"dla\.([0-9]+)\.([a-z_]+)")

Step = tuple[int, int, float]


def counters(cut: Cut, field: str) -> Mapping[str, Sequence[float]]:
    """Return one counter of each DLA core: ``dla0``, ``dla1``.

    Args:
        cut: Samples.
        field: Last part of the column's name, for instance ``busy_seconds``.
    """
    found = ((_CORE.fullmatch(name), column) for name, column in cut.columns.items())
    return {f"dla{m[1]}": column for m, column in found if m is not None and m[2] == field}


def steps(cut: Cut, column: Sequence[float], window: Span) -> list[Step]:
    """Return begin, end and growth of each step of a counter that overlaps a window.

    Args:
        cut: Samples of the window with a neighbour on each side.
        column: shape (n,), the counter at each; NaN where it was not told.
        window: The window.
    """
    known = [
        (time, value) for time, value in zip(cut.times_ns, column, strict=True) if not isnan(value)
    ]
    return [
        (begin, end, after - before)
        for (begin, before), (end, after) in pairwise(known)
        if begin < window.end_ns and end > window.begin_ns
    ]


def covers(counted: Sequence[Step], window: Span) -> bool:
    """Say whether steps tell of the whole of a window."""
    reach = counted and counted[0][0] <= window.begin_ns and counted[-1][1] >= window.end_ns
    return bool(reach)


def share(counted: Sequence[Step], window: Span) -> Utilization | None:
    """Return the share of a window that was counted, taken to grow evenly within a step.

    Where steps do not reach an edge of the window, it is the share of the time between them.

    Args:
        counted: Steps of seconds.
        window: The window.

    Returns:
        ``None`` where there is no step, or where the counter began anew.
    """
    if window.seconds <= 0 or not counted or any(seconds < 0 for _, _, seconds in counted):
        return None
    inside = [min(end, window.end_ns) - max(begin, window.begin_ns) for begin, end, _ in counted]
    ratios = [seconds / (end - begin) * 1e9 for begin, end, seconds in counted]
    mean = sum(ratio * part for ratio, part in zip(ratios, inside, strict=True)) / sum(inside)
    highest = min(max(ratios), 1.0)
    # What ended just after one sample and just before the next may exceed the time between them.
    return Utilization(mean_ratio=min(mean, highest), max_ratio=highest)
