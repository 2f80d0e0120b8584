"""Rounds become one figure with its interval, and two figures a difference."""

import statistics
from collections.abc import Sequence
from itertools import pairwise
from math import hypot, sqrt

from ..measure.run_report import Interval
from ..measure.uncertainty import student_95
from .measured import Figure

# Where the series of ``student_95`` is too short.
_FEW = {1: 12.7062, 2: 4.3027, 3: 3.1824, 4: 2.7764}
BLOCKS = 6
FEWEST_IN_BLOCK = 5


def student(freedom: int) -> float:
    """Return the two-sided 95 % factor of Student's distribution.

    >>> student(3), round(student(10), 2)
    (3.1824, 2.23)
    """
    return _FEW.get(freedom) or student_95(freedom)


def mean_of_rounds(
    values: Sequence[float], halves: Sequence[float | None] = (), floor: float = 0.0
) -> Figure | None:
    """Return the mean of an accelerator's rounds with its 95 % interval.

    Half of the interval is the larger of two: that of a round, on average, and what the spread
    of the rounds says of their mean, by Student's distribution. Repeating does not narrow the
    first: a sensor that rounds and readings that come late do so alike in every round. The
    second sees what differs from round to round, of which a single one knows nothing.

    Args:
        values: One a round.
        halves: Half the 95 % interval of each; ``None`` where a round can't tell its own.
        floor: Half the interval is never below this: the resolution of the instrument.

    Returns:
        The figure; ``None`` without a round; without an interval where one round is alone and
        does not tell its own.

    >>> mean_of_rounds([10.0, 10.0], [0.2, 0.2])
    Figure(value=10.0, low=9.8, high=10.2)
    """
    if not values:
        return None
    mean, count = statistics.fmean(values), len(values)
    known = [half for half in halves if half is not None]
    own = statistics.fmean(known) if len(known) == count else None
    spread = student(count - 1) * statistics.stdev(values) / sqrt(count) if count > 1 else None
    candidates = [half for half in (own, spread) if half is not None]
    if not candidates:
        return Figure(value=mean)
    half = max(*candidates, floor)
    return Figure(value=mean, low=mean - half, high=mean + half)


def difference(smaller: Figure, larger: Figure) -> Interval | None:
    """Return the 95 % interval of a difference; ``None`` where a figure has no interval.

    Rounds of two accelerators are separate measurements, so their halves add in quadrature.
    """
    halves = [_half(figure) for figure in (smaller, larger)]
    if halves[0] is None or halves[1] is None:
        return None
    middle, half = larger.value - smaller.value, hypot(halves[0], halves[1])
    return Interval(low=middle - half, high=middle + half)


def _half(figure: Figure) -> float | None:
    if figure.low is None or figure.high is None:
        return None
    return (figure.high - figure.low) / 2


def median_half_width(durations_ns: Sequence[int]) -> float | None:
    """Return half the 95 % interval of a round's median, in seconds.

    The round is cut into six blocks in the order of time, and the spread of their medians is
    taken: neighbouring inferences resemble each other, so their number alone says too much.

    Args:
        durations_ns: shape (n,), in the order of time.

    Returns:
        Seconds; ``None`` for fewer than five inferences a block.
    """
    count = len(durations_ns)
    if count < BLOCKS * FEWEST_IN_BLOCK:
        return None
    edges = [count * i // BLOCKS for i in range(BLOCKS + 1)]
    medians = [statistics.median(durations_ns[a:b]) for a, b in pairwise(edges)]
    return student(BLOCKS - 1) * statistics.stdev(medians) / sqrt(BLOCKS) / 1e9


def variation(durations_ns: Sequence[int]) -> float | None:
    """Return the standard deviation of durations over their mean; ``None`` for fewer than two."""
    if len(durations_ns) < 2:
        return None
    mean = statistics.fmean(durations_ns)
    spread = statistics.fmean((duration - mean) ** 2 for duration in durations_ns)
    return sqrt(spread) / mean if mean > 0 else None


def interval_half(interval: Interval | None, inferences: int) -> float | None:
    """Return half of an interval, by inference; ``None`` where there is none.

    >>> interval_half(Interval(low=90.0, high=110.0), 100)
    0.1
    """
    if interval is None or not inferences:
        return None
    return (interval.high - interval.low) / 2 / inferences
