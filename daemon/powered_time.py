"""How long a DLA core was powered in a window; powered is not busy, and never stands for it."""

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import isnan

from .cut import Cut
from .run_report import Span, Utilization

POWERED = "powered"
"""What stands behind the core in the name of the signal, where a load has its source."""

_COUNTER = re.compile(r"dla\.(\d+)\.powered_seconds")

Step = tuple[int, int, float]


def powered(cut: Cut, window: Span) -> dict[str, Utilization]:
    """Return the share of a window in which each DLA core was powered, by counter.

    The counter is read with each sample, and taken to grow evenly between two of them. Where
    samples do not reach an edge of the window, the share is that of the time between them.

    Args:
        cut: Samples of the window with a neighbour on each side.
        window: The steady window.

    Returns:
        By signal, ``dla0:powered``; a core without a counter is not there, nor is one whose
        counter began anew in the window.
    """
    return {
        f"{core}:{POWERED}": told
        for core, column in _counters(cut).items()
        if (told := _share(_steps(cut, column, window), window)) is not None
    }


def was_powered(cut: Cut, window: Span, device: str) -> bool | None:
    """Tell whether a DLA core was powered at any time in a window; not even a burst is missed.

    Args:
        cut: Samples of the window with a neighbour on each side.
        window: The steady window.
        device: ``dla0`` or ``dla1``.

    Returns:
        ``None`` where no counter tells of all of the window.
    """
    column = _counters(cut).get(device)
    steps = [] if column is None else _steps(cut, column, window)
    if any(seconds != 0 for _, _, seconds in steps):
        return True
    whole = steps and steps[0][0] <= window.begin_ns and steps[-1][1] >= window.end_ns
    return False if whole else None


def _counters(cut: Cut) -> Mapping[str, Sequence[float]]:
    found = ((_COUNTER.fullmatch(name), column) for name, column in cut.columns.items())
    return {f"dla{match[1]}": column for match, column in found if match is not None}


def _steps(cut: Cut, column: Sequence[float], window: Span) -> list[Step]:
    """Return begin, end and growth of each step of a counter that overlaps the window."""
    known = [
        (time, value) for time, value in zip(cut.times_ns, column, strict=True) if not isnan(value)
    ]
    return [
        (begin, end, after - before)
        for (begin, before), (end, after) in pairwise(known)
        if begin < window.end_ns and end > window.begin_ns
    ]


def _share(steps: Sequence[Step], window: Span) -> Utilization | None:
    if window.seconds <= 0 or not steps or any(seconds < 0 for _, _, seconds in steps):
        return None
    ratios = [min(seconds / (end - begin) * 1e9, 1.0) for begin, end, seconds in steps]
    parts = [min(end, window.end_ns) - max(begin, window.begin_ns) for begin, end, _ in steps]
    mean = sum(ratio * part for ratio, part in zip(ratios, parts, strict=True)) / sum(parts)
    return Utilization(mean_ratio=min(mean, max(ratios)), max_ratio=max(ratios))
