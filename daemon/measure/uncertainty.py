"""The 95 % interval of an energy.

Four terms, each as half the width of its own 95 % interval:

- ``sampling``: readings are moments, and the power between two of them is unknown. From a block
  bootstrap of the residuals of the trapezoids (``sampling_watts``).
- ``quantisation``: the sensor rounds. If the power moves, the errors cancel; if it is quiet, all
  samples have the same error (``quantisation_watts``).
- ``window_edges``: readings arrive up to 50 ms late, and power may step exactly at the edges of
  the window while a trapezoid slopes across them. In a recorded log, whose times are coarser,
  either edge may lie elsewhere among the readings (``edge_joules``).
- ``baseline_drift``: idle power between the two idle phases is anywhere between their values.

Coverage: the first, second and fourth are independent and add in quadrature. The third is bounded
and has a sign, known from the samples at the edges. It does not average out, so it is added to the
side on which the truth may lie. The interval contains the true energy in at least 95 of 100 runs
for any delay, and in more of them if the delay is small. Errors that are equal in every run of a
board, such as the tolerance of the shunts, are not included.
"""

import math
import random
import statistics
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from operator import mul

from .energy import LAG_SECONDS, Curve
from .run_report import Span

NORMAL_95 = 1.959964
RESAMPLES = 400
MOST_POINTS = 600
FEWEST_POINTS = 6
SMOOTHEST = 10
MOVES = 8


@dataclass(frozen=True, slots=True)
class Spread:
    """Half the width of the 95 % intervals of a mean power, in watts, by term."""

    sampling: float
    quantisation: float

    @property
    def watts(self) -> float:
        """Both together."""
        return math.hypot(self.sampling, self.quantisation)


def student_95(freedom: float) -> float:
    """Return the two-sided 95 % factor of Student's distribution (three terms of its series).

    >>> round(student_95(10), 2), round(student_95(1e9), 2)
    (2.23, 1.96)
    """
    z = NORMAL_95
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    return z + first / freedom + second / freedom**2


def thin(curve: Curve, most: int = MOST_POINTS) -> tuple[list[float], list[float]]:
    """Return the parts, at most ``most``, of a curve with at least two points.

    They are the seconds that each part represents, half way to its neighbours, and its mean power.
    """
    times = curve.times_ns
    middles = [(a + b) / 2 for a, b in pairwise(times)]
    edges = [times[0], *middles, times[-1]]
    weights = [(b - a) / 1e9 for a, b in pairwise(edges)]
    size = -(-len(times) // most)
    if size == 1:
        return weights, list(curve.watts)
    groups = [slice(i, i + size) for i in range(0, len(times), size)]
    spans = [math.fsum(weights[g]) for g in groups]
    joules = [math.fsum(map(mul, weights[g], curve.watts[g])) for g in groups]
    return spans, [j / s for j, s in zip(joules, spans, strict=True)]


def sampling_watts(curve: Curve, seed: str) -> float | None:
    """Return half the 95 % interval of a mean power due to sampling.

    Slow change is not an error, because trapezoids follow it. The rest shows in the difference
    between a block of readings and the line through its neighbouring blocks. So the second
    difference of each block to its neighbours is divided by √6. For noise this is as wide as the
    block itself, and for a straight line it is zero. These residues, at every possible offset, are
    drawn with either sign for every block of the window, 400 times; their spread is the error. Few
    blocks widen it by Student's factor, at half as many degrees of freedom, because neighbouring
    residues share readings.

    Blocks are n^(1/3) readings long, and longer if readings repeat, so that correlation of
    neighbours counts: a repeated reading adds no information, and neither do samples that keep step
    with the work for a while. But power that moves smoothly through many readings is correlated
    too, and there trapezoids are right. Smoothness limits this: the variance is at most ten times
    that of the shortest blocks, which are single readings if none repeats.

    The same ``seed`` returns the same figure. Fewer than six readings show no spread: ``None``.
    """
    if len(curve.times_ns) < FEWEST_POINTS:
        return None
    weights, watts = thin(curve)
    n = len(watts)
    runs = 1 + sum(a != b for a, b in pairwise(watts))
    short = max(min(2 * n // runs - 1, n // 12), 1)
    size = max(min(max(2 * short, round(n ** (1 / 3))), n // 8), 1)
    spans = [0.0, *accumulate(weights)]
    joules = [0.0, *accumulate(map(mul, weights, watts))]
    residues = _residues(spans, joules, size)
    most = SMOOTHEST * _variance(_residues(spans, joules, short)) * short
    found = _variance(residues) * size
    smooth = math.sqrt(min(1.0, most / found)) if found > 0 else 1.0
    residues += [-residue for residue in residues]
    blocks = [spans[min(i + size, n)] - spans[i] for i in range(0, n, size)]
    draw = random.Random(seed).choices
    errors = [sum(map(mul, blocks, draw(residues, k=len(blocks)))) for _ in range(RESAMPLES)]
    freedom = max((len(blocks) - 2) / 2, 1.5)
    return smooth * math.sqrt(_variance(errors)) / spans[-1] * student_95(freedom)


def _residues(spans: Sequence[float], joules: Sequence[float], size: int) -> list[float]:
    """Return how far each block of ``size`` readings is from the line through its neighbours."""
    means = [
        (joules[i + size] - joules[i]) / (spans[i + size] - spans[i])
        for i in range(len(spans) - size)
    ]
    return [
        (means[i] - 2 * means[i + size] + means[i + 2 * size]) / math.sqrt(6)
        for i in range(len(means) - 2 * size)
    ]


def _variance(errors: Sequence[float]) -> float:
    return statistics.fmean(error * error for error in errors)


def quantisation_watts(watts: Sequence[float], step: float) -> float:
    """Return half the 95 % interval of a mean power due to rounding.

    One rounded reading is off by step/√12. How far the errors of many cancel depends on how far the
    power moves. Readings are sorted into groups of neighbouring levels. A group of three levels or
    more is power that moves by its standard deviation σ (without that of the rounding) and so
    dithers itself: its error falls as exp(-2π²σ²/step²). One or two levels show no such movement:
    each level has its own error, the same every time. Groups add in quadrature by their share of
    the samples. Equal readings in a row count once at most.

    ``watts`` has shape (n,): readings of one rail. ``step`` is the smallest step of its sensor.
    """
    single = step * step / 12
    rising = sorted(watts)
    groups: list[list[float]] = [[rising[0]]]
    for a, b in pairwise(rising):
        if b - a > 1.5 * step:
            groups.append([])
        groups[-1].append(b)
    shares = [len(group) / len(watts) for group in groups]
    variance = sum(s * s * _rounding(g, step) for s, g in zip(shares, groups, strict=True))
    runs = 1 + sum(abs(a - b) > step / 4 for a, b in pairwise(watts))
    return NORMAL_95 * math.sqrt(max(variance, single / runs))


def _rounding(group: Sequence[float], step: float) -> float:
    """Return the variance of the rounding error of the mean of one group of levels."""
    single = step * step / 12
    width = group[-1] - group[0]
    if width < 1.5 * step:
        upper = (len(group) - bisect_left(group, group[0] + width / 2)) / len(group)
        if width < step / 2:
            return single
        return single * (upper * upper + (1 - upper) ** 2)
    moving = max(statistics.pvariance(group) - single, 0.0)
    return sum(
        (step / (math.pi * k)) ** 2 / 2 * math.exp(-((2 * math.pi * k / step) ** 2) * moving)
        for k in range(1, 8)
    )


def edge_joules(
    curve: Curve, begin_ns: int, end_ns: int, clock_seconds: float = 0.0
) -> tuple[float, float]:
    """Return the lowest and highest energy that the edges may hide: truth minus trapezoids.

    There are two effects. A reading that arrives at t was taken up to 50 ms before, so the
    integrated window lies up to 50 ms early. The error is that time at the power just before its
    end minus that just before its start. And if power steps exactly at an edge, as it does when
    work begins and ends there, the trapezoid slopes from the reading outside to the one inside. The
    error is the triangle between that slope and the reading inside held to the edge.

    If the clocks of readings and window may differ by ``clock_seconds``, beyond that lag, each edge
    may lie that much earlier or later among the readings, independently of the other. The error is
    the power there minus the mean, because the part between the edges is stretched to the same
    length. The curve has a neighbour on each side of the window.
    """
    times, watts = curve.times_ns, curve.watts
    last = len(times) - 1
    # A reading exactly at an edge may describe the time outside, so it counts as the outer one.
    inner_begin = min(bisect_right(times, begin_ns), last)
    inner_end = max(bisect_left(times, end_ns) - 1, 0)
    outer_begin, outer_end = max(inner_begin - 1, 0), min(inner_end + 1, last)
    slopes = [
        _triangle(curve, outer_begin, inner_begin, begin_ns),
        _triangle(curve, outer_end, inner_end, end_ns),
    ]
    late = LAG_SECONDS * (watts[inner_end] - watts[outer_begin])
    low = min(0.0, late) + sum(min(slope, 0.0) for slope in slopes)
    high = max(0.0, late) + sum(max(slope, 0.0) for slope in slopes)
    if clock_seconds > 0:
        mean = _joules(curve, begin_ns, end_ns) / (end_ns - begin_ns) * 1e9
        moves = [
            round(1e9 * (-clock_seconds + (2 * clock_seconds + LAG_SECONDS) * i / MOVES))
            for i in range(MOVES + 1)
        ]
        begins = [_moved(curve, begin_ns, move, -1, mean) for move in moves]
        ends = [_moved(curve, end_ns, move, 1, mean) for move in moves]
        low = min(low, min(0.0, *begins) + min(0.0, *ends))
        high = max(high, max(0.0, *begins) + max(0.0, *ends))
    return low, high


def _moved(curve: Curve, edge_ns: int, move_ns: int, side: int, mean: float) -> float:
    """Return the error of an edge that moves by ``move_ns``; ``side`` is -1 for the first edge."""
    at_ns = edge_ns + move_ns
    last = len(curve.times_ns) - 1
    after = min(bisect_right(curve.times_ns, at_ns), last)
    before = max(bisect_left(curve.times_ns, at_ns) - 1, 0)
    if side < 0:
        slope = _triangle(curve, max(after - 1, 0), after, at_ns)
    else:
        slope = _triangle(curve, min(before + 1, last), before, at_ns)
    return side * (_joules(curve, edge_ns, at_ns) - mean * move_ns / 1e9) + slope


def _joules(curve: Curve, begin_ns: int, end_ns: int) -> float:
    """Return the signed energy between two times; the outermost readings hold beyond the curve."""
    if end_ns < begin_ns:
        return -_joules(curve, end_ns, begin_ns)
    times, watts = curve.times_ns, curve.watts
    inside = range(bisect_right(times, begin_ns), bisect_left(times, end_ns))
    points = [(begin_ns, _watts(curve, begin_ns))]
    points += [(times[i], watts[i]) for i in inside]
    points.append((end_ns, _watts(curve, end_ns)))
    return math.fsum((b - a) * (v + w) / 2 for (a, v), (b, w) in pairwise(points)) / 1e9


def _watts(curve: Curve, at_ns: int) -> float:
    times, watts = curve.times_ns, curve.watts
    after = bisect_right(times, at_ns)
    if after in (0, len(times)):
        return watts[0] if after == 0 else watts[-1]
    share = (at_ns - times[after - 1]) / (times[after] - times[after - 1])
    return watts[after - 1] + share * (watts[after] - watts[after - 1])


def _triangle(curve: Curve, outer: int, inner: int, edge_ns: int) -> float:
    spacing = abs(curve.times_ns[inner] - curve.times_ns[outer])
    reach = abs(curve.times_ns[inner] - edge_ns)
    if outer == inner or reach > spacing:
        return 0.0
    jump = curve.watts[inner] - curve.watts[outer]
    return jump * reach * reach / (2 * spacing) / 1e9


READING_SECONDS = {"instant": 0.05, "usage": 1.0}
"""Uncertainty in time by NVML's kind of reading. The sensor is read every 100 ms, of which 50 ms
are allowed for already; a mean over a second does not show when in that second power changed."""

_SENSOR_PERIOD_NS = 100_000_000


def sensor_times(window: Span, power_reading: str | None) -> list[int]:
    """Return when the sensor behind instant power was read in a window, except for its phase.

    The phase is unknown, but work that keeps step with the sensor is detected. ``power_reading`` is
    that of an ``Environment``; a board has none.

    >>> sensor_times(Span(begin_ns=0, end_ns=250_000_000), "instant")
    [0, 100000000, 200000000]
    """
    if power_reading != "instant":
        return []
    return list(range(window.begin_ns, window.end_ns, _SENSOR_PERIOD_NS))


def unsure_seconds(clock_seconds: float | None, power_reading: str | None) -> float | None:
    """Return the possible difference between the times of samples and run, readings included.

    ``clock_seconds`` is that of their clocks; ``None`` if unknown.

    >>> unsure_seconds(0.0, "instant"), unsure_seconds(0.0, None), unsure_seconds(None, "usage")
    (0.05, 0.0, None)
    """
    if clock_seconds is None:
        return None
    return clock_seconds + READING_SECONDS.get(power_reading or "", 0.0)
