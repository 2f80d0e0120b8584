"""The 95 % interval of an energy.

Its terms, each as half the width of its own 95 % interval:

- ``sampling``: readings are moments, and the power between two of them is unknown
  (``sampling_watts``); with work that keeps step with the readings it is larger.
- ``quantisation``: the sensor rounds. If the power moves, the errors cancel; if it is quiet, all
  samples have the same error (``quantisation_watts``).
- ``idle_wander``, of the net energy: idle power during the window is inferred from two phases
  before and after it, and idle power wanders (``wander``).
- ``window_edges``: readings arrive late, and some are means of the time before; the power between
  an edge and the nearest reading that certainly lies inside is unknown (``energy.window_energy``).
- ``baseline_drift``: idle power in the window is anywhere between the idle phases.

Coverage: the first three are independent and add in quadrature. The last two are bounds with a
sign. They do not average out, so each is added to the side on which the truth may lie. Errors that
are equal in every run of a board are not included: the tolerance of its shunts, which cancels in a
ratio, and the offset of its sensor, which cancels in a difference only.

docs/decisions/interval.md derives each term, and has the reason of each constant.
"""

import math
import statistics
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate, pairwise
from operator import mul
from typing import NamedTuple

from .energy import Curve
from .numerics import NORMAL_95, about_mean, differences, dot, student_95
from .rhythm import Beat, fitted, waves_apart

# docs/decisions/interval.md, "Sampling"
# More would only take time: the blocks are longer than the parts.
MOST_POINTS = 600
FEWEST_POINTS = 6
# docs/decisions/interval.md, "Limit of smoothness"
# Most that the variance may be above that of the shortest blocks.
SMOOTHEST, SMOOTHEST_WITHOUT_BEAT = 10.0, 1.5
# Times the variance of idle power, above which the board does not move so by itself.
_BEYOND_IDLE = 6.0
# Standard deviation of the blocks over the mean power, that may be the board's own.
_QUIET_SHARE = 0.01
# docs/decisions/interval.md, "Beats"
# A share or line below this is noise of the Fourier sums.
NO_BEAT = 0.05
# docs/decisions/interval.md, "Idle wander"
# Of ``wander``: limits of the part of the variance that the means of the phases hide, and of the
# correlation of neighbours. Beyond them a phase is too short to show either.
MOST_HIDDEN, MOST_ALIKE = 0.6, 0.97


def thin(curve: Curve, most: int = MOST_POINTS) -> tuple[list[float], list[float]]:
    """Return the parts, at most ``most``, of a curve with at least two points.

    They are the seconds that each part represents, half way to its neighbours, and its mean power.
    """
    times = curve.times_ns
    edges: list[float] = [times[0], *((a + b) / 2 for a, b in pairwise(times)), times[-1]]
    weights = [(end - begin) / 1e9 for begin, end in pairwise(edges)]
    size = -(-len(times) // most)
    if size == 1:
        return weights, list(curve.watts)
    spans, watts = [], []
    for begin in range(0, len(times), size):
        part = slice(begin, begin + size)
        span = math.fsum(weights[part])
        spans.append(span)
        watts.append(dot(weights[part], curve.watts[part]) / span)
    return spans, watts


def sampling_watts(
    curve: Curve, beats: Sequence[Beat] = (), idle_density: float | None = None
) -> float | None:
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

    That knowledge is of the marked work only. A job without marks has a beat too, which looks like
    power that moves smoothly. Idle power shows how much the board moves by itself, as
    ``idle_density`` (``Wander.density``). Where the blocks vary by more than six times that, the
    limit is ten times, whatever the starts say. Without an idle phase it is so where their standard
    deviation is above 1 % of the mean power.

    ``beats`` are those of the work with the samples (``rhythm.folded_rhythm``), none if its rhythm
    is unknown. If a beat is visible, the variance is not limited by smoothness, and the error of
    the beats is added in quadrature (``_beats_watts``).

    Fewer than six readings show no spread: ``None``.
    """
    if len(curve.times_ns) < FEWEST_POINTS:
        return None
    weights, watts = thin(curve)
    half = _scatter_watts(weights, watts, beats, idle_density)
    return math.hypot(half, _beats_watts(curve, beats))


def _scatter_watts(
    weights: Sequence[float],
    watts: Sequence[float],
    beats: Sequence[Beat],
    idle_density: float | None,
) -> float:
    """Return the part of the interval that the scatter about a slow change gives."""
    # Lengths of blocks, and degrees of freedom: docs/decisions/interval.md, "Sampling"
    n = len(watts)
    runs = _run_count(watts)
    short = max(min(2 * n // runs - 1, n // 12), 1)
    size = max(min(max(2 * short, round(n ** (1 / 3))), n // 8), 1)
    spans = [0.0, *accumulate(weights)]
    joules = [0.0, *accumulate(map(mul, weights, watts))]
    variance = _variance(_residues(spans, joules, size))
    limit = _smoothness_limit(beats)
    if limit is not None:
        if idle_density is None:
            quiet = (_QUIET_SHARE * joules[-1] / spans[-1]) ** 2
        else:
            quiet = _BEYOND_IDLE * idle_density / (spans[-1] * size / n)
        # An idle phase whose readings are all equal tells nothing: the step of the sensor hides it.
        if quiet and variance > quiet:
            limit = SMOOTHEST
    if limit is not None:
        shortest = _variance(_residues(spans, joules, short)) * short / size
        variance = min(variance, limit * shortest)
    blocks = [spans[min(i + size, n)] - spans[i] for i in range(0, n, size)]
    # Neighbouring residues share readings, so they count half.
    freedom = max((len(blocks) - 2) / 2, 1.5)
    return math.sqrt(variance * dot(blocks, blocks)) / spans[-1] * student_95(freedom)


def _smoothness_limit(beats: Sequence[Beat]) -> float | None:
    """Return how far the variance may be above that of the shortest blocks; ``None`` for any."""
    if not beats:
        return SMOOTHEST
    if max(beat.share for beat in beats) < NO_BEAT:
        return SMOOTHEST_WITHOUT_BEAT
    return None


def _beats_watts(curve: Curve, beats: Sequence[Beat]) -> float:
    """Return the error of the mean by the beats of the work with the samples.

    With the standard deviation σ of the readings, the error of a beat is

        error = sampled * min(swing, line * max(swing, pulses)), where swing = √2 σ and
        pulses = min(2 (mean - lowest) / (1 - 2 * line * sampled), swing / strongest line),
        without pulses for a line that is noise (``NO_BEAT``)

    No rhythm swings by more than all readings do: √2 σ is the amplitude of a wave with their
    standard deviation. Power that comes in a pulse at each start swings about its mean by up to
    twice its line times its height above the lowest reading. The beat itself may hide part of that
    height, so it is divided by the part that is seen, which is taken for 0.1 at least. The
    strongest line swings by no more than all readings do.

    Where the frequency of a beat is known, its error is at most ``beat_watts``. Those of several
    harmonics add up, the largest of each. Of the beats without a frequency, the largest counts.
    """
    # docs/decisions/interval.md, "Beats"
    swing = math.sqrt(2) * statistics.pstdev(curve.watts)
    height = 2 * (statistics.fmean(curve.watts) - min(curve.watts))
    # A beat with a number of cycles shows how strong the rhythm of the starts is.
    lines = [beat.line for beat in beats if beat.cycles < math.inf]
    strongest = max(lines, default=1.0)
    unknown = 0.0
    by_harmonic: dict[float, float] = {}
    for beat in beats:
        pulses = 0.0
        if beat.line > NO_BEAT:
            pulses = min(height / max(1 - 2 * beat.share, 0.1), swing / strongest)
        error = beat.sampled * min(swing, beat.line * max(swing, pulses))
        if beat.hertz is None:
            unknown = max(unknown, error)
        else:
            by_harmonic[beat.hertz] = max(by_harmonic.get(beat.hertz, 0.0), error)
    strict = []
    for hertz, error in by_harmonic.items():
        strict.append(min(error, beat_watts(curve, hertz)))
    return max(unknown, math.fsum(strict))


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
    return abs(dot(shares, curve.watts)) + NORMAL_95 * noise


def _run_count(watts: Sequence[float], most_apart: float = 0.0) -> int:
    """Return the number of runs of repeated readings: a repeated value is not a reading."""
    return 1 + sum(abs(step) > most_apart for step in differences(watts))


def _residues(spans: Sequence[float], joules: Sequence[float], size: int) -> list[float]:
    """Return how far each block of ``size`` readings is from the line through its neighbours."""
    means = []
    for i in range(len(spans) - size):
        means.append((joules[i + size] - joules[i]) / (spans[i + size] - spans[i]))
    residues = []
    for i in range(len(means) - 2 * size):
        second_difference = means[i] - 2 * means[i + size] + means[i + 2 * size]
        residues.append(second_difference / math.sqrt(6))
    return residues


def _variance(errors: Sequence[float]) -> float:
    """Return the mean square of errors whose mean is known to be 0."""
    return dot(errors, errors) / len(errors)


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
    # docs/decisions/interval.md, "Quantisation"
    single = step * step / 12
    rising = sorted(watts)
    groups: list[list[float]] = [[rising[0]]]
    for a, b in pairwise(rising):
        if b - a > 1.5 * step:
            groups.append([])
        groups[-1].append(b)
    variance = 0.0
    for group in groups:
        share = len(group) / len(watts)
        variance += share * share * _rounding_variance(group, step, is_idle=is_idle)
    runs = _run_count(watts, step / 4)
    return NORMAL_95 * math.sqrt(max(variance, single / runs))


def _rounding_variance(group: Sequence[float], step: float, *, is_idle: bool) -> float:
    """Return the variance of the rounding error of the mean of one group of levels."""
    single = step * step / 12
    width = group[-1] - group[0]
    if width < step / 2:
        return single
    if width < 1.5 * step:
        upper = (len(group) - bisect_left(group, group[0] + width / 2)) / len(group)
        if is_idle:
            return (step * (upper - 0.5)) ** 2 / 3
        return single * (upper * upper + (1 - upper) ** 2)
    moving = max(statistics.pvariance(group) - single, 0.0)
    # Fourier series of the rounding error of a normal distribution; later terms are negligible.
    variance = 0.0
    for k in range(1, 8):
        amplitude = (step / (math.pi * k)) ** 2 / 2
        variance += amplitude * math.exp(-((2 * math.pi * k / step) ** 2) * moving)
    return variance


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
        inferred = 0.0
        for share, seconds in zip(shares, self.seconds, strict=True):
            inferred += share * share / (seconds + 2 * held)
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
    # docs/decisions/interval.md, "Idle wander"
    lengths, count = [], 0
    for phase in phases:
        lengths.append((phase.times_ns[-1] - phase.times_ns[0]) / 1e9)
        count += len(phase.watts)
    step = math.fsum(lengths) / (count - len(phases))
    seconds = tuple(max(length, step) for length in lengths)
    sums = _positive_autocovariance(phases, count)
    if not sums:
        return Wander(0.0, 0.0, math.inf, seconds)
    lag = len(sums)
    # Lags in the sum, with those of the other sign: readings that are alike.
    within = 2 * lag - 1
    # The mean of each phase is taken off. It hides so much of the variance as ``within`` is of the
    # readings of a phase.
    shown = 1 - min(within * len(phases) / count, MOST_HIDDEN)
    alike = 2 * math.fsum(sums) / sums[0] - 1
    density, memory = sums[0] * step * alike / shown, alike
    if lag > 1 and averaging < step:
        density, memory = max((density, memory), _first_order(sums, step, count / len(phases)))
    # Readings that are alike count as one, and a fifth more of them as a margin. At least two
    # degrees are left: with one, Student's factor is 12.7. The regimes ``wander`` of
    # docs/validation.md have the coverage.
    freedom = max(count / (1.2 * within), 2.0)
    # ``memory`` is 1 + 2 Σρ, in readings: the sum Σρ alone is the time over which power forgets.
    memory_seconds = min((memory - 1) / 2 * step, min(seconds) / 4)
    return Wander(density, memory_seconds, freedom, seconds)


def _positive_autocovariance(phases: Sequence[Curve], count: int) -> list[float]:
    """Return the autocovariance of phases, each about its own mean, while it is positive."""
    moved = [about_mean(phase.watts) for phase in phases]
    longest = max(min(map(len, moved)) // 3, 1)
    sums: list[float] = []
    for lag in range(longest + 1):
        covariance = math.fsum(dot(phase, phase[lag:]) for phase in moved) / count
        if covariance <= 0:
            break
        sums.append(covariance)
    return sums


def _first_order(sums: Sequence[float], step: float, readings: float) -> tuple[float, float]:
    """Return density and memory, in steps, of a process of first order.

    It has the covariance of neighbours that phases of so many readings show.
    """
    alike = sums[1] / sums[0]
    # About its own mean, a series of n readings shows a correlation of neighbours ρ that is too
    # small, by (1 + 3ρ)/n at least.
    alike = min(alike + (1 + 3 * alike) / readings, MOST_ALIKE)
    memory = (1 + alike) / (1 - alike)
    # The mean of a phase hides ``memory / readings`` of the variance, but no more than 0.7 of it is
    # taken as hidden.
    density = sums[0] / max(1 - memory / readings, 0.3) * step * memory
    return density, memory
