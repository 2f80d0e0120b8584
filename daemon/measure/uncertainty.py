"""The 95 % interval of an energy.

Its terms, each as half the width of its own 95 % interval:

- ``sampling``: readings are moments, and the power between two of them is unknown
  (``sampling_watts``); with work that keeps step with the readings it is larger.
- ``quantisation``: the sensor rounds. If the power moves, the errors cancel; if it is quiet, all
  samples have the same error (``quantisation_watts``).
- ``idle_wander``, of the net energy: idle power during the window is inferred from two phases
  before and after it, and idle power wanders (``wander``).
- ``window_edges``: readings arrive late, and some are means of the time before; the power between
  an edge and the nearest reading that certainly lies inside is unknown (``energy.edge_joules``).
- ``baseline_drift``: idle power in the window is anywhere between the idle phases.

Coverage: the first three are independent and add in quadrature. The last two are bounds with a
sign. They do not average out, so each is added to the side on which the truth may lie. Errors that
are equal in every run of a board are not included: the tolerance of its shunts, which cancels in a
ratio, and the offset of its sensor, which cancels in a difference only.
"""

import math
import statistics
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate, pairwise
from operator import mul
from typing import NamedTuple

from .energy import Curve
from .rhythm import Beat, fitted, waves_apart

NORMAL_95 = 1.959964
MOST_POINTS = 600
FEWEST_POINTS = 6
SMOOTHEST, SMOOTHEST_WITHOUT_BEAT = 10.0, 1.5
NO_BEAT = 0.05
MOST_HIDDEN, MOST_ALIKE = 0.6, 0.97


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


def sampling_watts(curve: Curve, beats: Sequence[Beat] = ()) -> float | None:
    """Return half the 95 % interval of a mean power due to sampling.

    Slow change is not an error, because trapezoids follow it. The rest shows in the difference
    between a block of readings and the line through its neighbouring blocks. So the second
    difference of each block to its neighbours is divided by √6. For noise this is as wide as the
    block itself, and for a straight line it is zero. Each block of the window may have any of these
    residues with either sign, as in a block bootstrap, whose variance is known without drawing. Few
    blocks widen it by Student's factor, at half as many degrees of freedom, because neighbouring
    residues share readings.

    Blocks are n^(1/3) readings long, and longer if readings repeat, so that correlation of
    neighbours counts: a repeated reading adds no information. But power that moves smoothly through
    many readings is correlated too, and there trapezoids are right. Smoothness limits this: the
    variance is at most ten times that of the shortest blocks, which are single readings if none
    repeats, and one and a half times where the work is known to have no beat with the sampling.

    ``beats`` are those of the work with the samples (``rhythm.folded_rhythm``), none if its rhythm
    is unknown. If one has a share, slow change of the readings may be that beat: there is no limit
    by smoothness, and its amplitude is an error too. Power that follows the starts swings about its
    mean by up to twice the line of the starts, times its height above the lowest reading; and the
    beat may hide part of that height. But the strongest rhythm swings by no more than all
    readings do, which is √2 times their standard deviation. Where the frequency of a beat is known,
    its error is at most ``beat_watts``, and those of several harmonics add up.

    Fewer than six readings show no spread: ``None``.
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
    found = _variance(_residues(spans, joules, size))
    beat = max((one.share for one in beats), default=None)
    if beat is None or beat < NO_BEAT:
        limit = SMOOTHEST if beat is None else SMOOTHEST_WITHOUT_BEAT
        found = min(found, limit * _variance(_residues(spans, joules, short)) * short / size)
    blocks = [spans[min(i + size, n)] - spans[i] for i in range(0, n, size)]
    freedom = max((len(blocks) - 2) / 2, 1.5)
    half = math.sqrt(found * math.fsum(b * b for b in blocks)) / spans[-1] * student_95(freedom)
    swing = math.sqrt(2) * statistics.pstdev(curve.watts)
    height = 2 * (statistics.fmean(curve.watts) - min(curve.watts))
    strongest = max((one.line for one in beats if one.cycles < math.inf), default=1.0)
    errors: dict[float | None, float] = {None: 0.0}
    for one in beats:
        pulses = 0.0
        if one.line > NO_BEAT:
            pulses = min(height / max(1 - 2 * one.share, 0.1), swing / strongest)
        error = one.sampled * min(swing, one.line * max(swing, pulses))
        errors[one.hertz] = max(errors.get(one.hertz, 0.0), error)
    strict = [min(error, beat_watts(curve, hz)) for hz, error in errors.items() if hz is not None]
    return math.hypot(half, max(errors[None], math.fsum(strict)))


def beat_watts(curve: Curve, hertz: float) -> float:
    """Return the most by which a rhythm of a known frequency moves the mean of readings.

    A wave of that frequency is fitted to the readings. Its share in their mean is an error, which
    is 0 where they met all moments of the rhythm alike. Scatter of the readings about the
    wave makes the fit unsure, and the more so, the less they tell the wave from a constant.
    """
    waves, mean = waves_apart(curve.times_ns, hertz / 1e9)
    factors = fitted(waves, mean)
    if factors == 0:
        return math.inf
    shares = [(wave.conjugate() * factors).real for wave in waves]
    noise = statistics.pstdev(curve.watts) * math.hypot(*shares)
    return abs(math.fsum(map(mul, shares, curve.watts))) + NORMAL_95 * noise


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


def quantisation_watts(watts: Sequence[float], step: float, *, is_idle: bool = False) -> float:
    """Return half the 95 % interval of a mean power due to rounding.

    One rounded reading is off by step/√12. How far the errors of many cancel depends on how far the
    power moves. Readings are sorted into groups of neighbouring levels. A group of three levels or
    more is power that moves by its standard deviation σ (without that of the rounding) and so
    dithers itself: its error falls as exp(-2π²σ²/step²). One level has its own error, the same
    every time. Two levels are either noise about the threshold between them, and then the truth
    lies between their mean and that threshold; or they are two powers, each with its own error. An
    idle phase has noise only; work may have two powers. Groups add in quadrature by their share of
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
    variance = sum(
        s * s * _rounding(g, step, is_idle=is_idle) for s, g in zip(shares, groups, strict=True)
    )
    runs = 1 + sum(abs(a - b) > step / 4 for a, b in pairwise(watts))
    return NORMAL_95 * math.sqrt(max(variance, single / runs))


def _rounding(group: Sequence[float], step: float, *, is_idle: bool) -> float:
    """Return the variance of the rounding error of the mean of one group of levels."""
    single = step * step / 12
    width = group[-1] - group[0]
    if width < step / 2:
        return single
    if width < 1.5 * step:
        upper = (len(group) - bisect_left(group, group[0] + width / 2)) / len(group)
        noise = (step * (upper - 0.5)) ** 2 / 3
        powers = single * (upper * upper + (1 - upper) ** 2)
        return min(noise, powers) if is_idle else powers
    moving = max(statistics.pvariance(group) - single, 0.0)
    return sum(
        (step / (math.pi * k)) ** 2 / 2 * math.exp(-((2 * math.pi * k / step) ** 2) * moving)
        for k in range(1, 8)
    )


class Wander(NamedTuple):
    """How idle power wanders, as its phases show it.

    ``density`` is its variance at low frequencies in W²s, known with so many degrees of
    ``freedom``; ``memory`` the seconds over which it forgets, at most a quarter of a phase, 0 for
    noise; ``seconds`` the length of each phase, at least the time between two readings.
    """

    density: float
    memory: float
    freedom: float
    seconds: tuple[float, ...]

    def watts(self, shares: Sequence[float], window: float, held: float = 0.0) -> float:
        """Return half the 95 % interval of idle power in a window of so many seconds.

        It is inferred from the phases by their shares. The mean of t seconds varies by density/t,
        and a phase is longer by the time for which its ends were held (``energy.idle_watts``).
        """
        inferred = sum(s * s / (t + 2 * held) for s, t in zip(shares, self.seconds, strict=True))
        return math.sqrt(self.density * (1 / window + inferred)) * student_95(self.freedom)


def wander(phases: Sequence[Curve], averaging: float = 0.0) -> Wander:
    """Return how idle power wanders, from the settled readings of phases, two or more in each.

    Idle power wanders more slowly than the readings follow each other. Its variance at low
    frequencies, S in W²s, is the sum of the autocovariance of the idle phases up to the first lag
    at which it is no longer positive, each phase about its own mean. Those means hide a part of S,
    which is put back. A short phase may not show how long the memory is, so S is at least that of a
    process of first order with the covariance of neighbours, unless the sensor itself makes
    neighbours alike: its readings are means of ``averaging`` seconds. Readings within the memory
    count as one, and few of them widen the interval by Student's factor.
    """
    lengths = [(one.times_ns[-1] - one.times_ns[0]) / 1e9 for one in phases]
    count = sum(len(one.watts) for one in phases)
    step = math.fsum(lengths) / (count - len(phases))
    seconds = tuple(max(t, step) for t in lengths)
    means = [statistics.fmean(one.watts) for one in phases]
    moved = [[w - mean for w in one.watts] for one, mean in zip(phases, means, strict=True)]
    sums, lag = [], 0
    while lag <= max(min(map(len, moved)) // 3, 1):
        sums.append(math.fsum(math.fsum(map(mul, one, one[lag:])) for one in moved) / count)
        if sums[-1] <= 0:
            break
        lag += 1
    if lag == 0:
        return Wander(0.0, 0.0, math.inf, seconds)
    within = 2 * lag - 1
    kept = 1 - min(within * len(phases) / count, MOST_HIDDEN)
    alike = 2 * math.fsum(sums[:lag]) / sums[0] - 1
    density, memory = sums[0] * step * alike / kept, alike
    if lag > 1 and averaging < step:
        each = count / len(phases)
        alike = sums[1] / sums[0]
        alike = min(alike + (1 + 3 * alike) / each, MOST_ALIKE)
        first = (1 + alike) / (1 - alike)
        least = sums[0] / max(1 - first / each, 0.3) * step * first
        density, memory = max((density, memory), (least, first))
    return Wander(
        density,
        min((memory - 1) / 2 * step, min(seconds) / 4),
        max(count / (1.2 * within), 2.0),
        seconds,
    )
