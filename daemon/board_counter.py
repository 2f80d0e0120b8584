"""A board's own energy counter over a window, beside the integral of its power."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isnan

from .cut import Cut
from .run_report import Span

TICK_SECONDS = 0.1
"""How often a counter ticks; measured on server GPUs while they were busy."""


@dataclass(frozen=True, slots=True)
class Counted:
    """What a counter says of a window.

    Attributes:
        joules: Its growth.
        edge_joules: By how much that may be off either way, because the counter stands still
            between two ticks and was not read exactly at the edges.
    """

    joules: float
    edge_joules: float


def counted(cut: Cut, rail: str, window: Span) -> Counted | None:
    """Return what the counter of a rail says of a window.

    Between two readings the counter is interpolated. Power that steps just at an edge bends it
    there: so the same edge is also told from inside, going back from the first reading within at
    the mean power of the window, and the difference is part of the error. To that come one tick
    at mean power, since the last tick lies somewhere in the time before each edge, and half of
    the milliseconds that a reading takes, at either edge.

    Args:
        cut: Samples of the window with a neighbour on each side.
        rail: Its name.
        window: The steady window.

    Returns:
        The energy; ``None`` where the rail has no counter, it was not read on both sides of
        both edges, or it began anew meanwhile.
    """
    columns = [cut.columns.get(f"rails.{rail}.counter_{of}") for of in _FIELDS]
    joules, after, read = columns
    if joules is None or after is None or read is None:
        return None
    known = [i for i, value in enumerate(joules) if not isnan(value)]
    times = [cut.times_ns[i] + after[i] * 1e9 for i in known]
    counts = [joules[i] for i in known]
    before, last = (bisect_right(times, edge) - 1 for edge in (window.begin_ns, window.end_ns))
    if before < 0 or last + 1 >= len(times) or window.seconds <= 0:
        return None
    if any(b < a for a, b in pairwise(counts[before : last + 2])):
        return None
    begin = _at(times, counts, before, window.begin_ns)
    end = _at(times, counts, last, window.end_ns)
    watts = (end - begin) / window.seconds
    bent = 0.0
    for value, outer, inner, edge_ns in (
        (begin, before, before + 1, window.begin_ns),
        (end, last + 1, last, window.end_ns),
    ):
        inside = counts[inner] + watts * (edge_ns - times[inner]) / 1e9
        low, high = sorted((counts[outer], counts[inner]))
        bent += abs(min(max(inside, low), high) - value)
    reading = (read[known[before]] + read[known[last]]) / 2
    return Counted(end - begin, watts * (TICK_SECONDS + reading) + bent)


_FIELDS = ("joules", "after_seconds", "read_seconds")


def _at(times: Sequence[float], counts: Sequence[float], before: int, at_ns: int) -> float:
    share = (at_ns - times[before]) / (times[before + 1] - times[before])
    return counts[before] + share * (counts[before + 1] - counts[before])
