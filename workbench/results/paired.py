"""The difference of accelerators by all rounds of a bench at once, from the readings themselves.

In a bench that alternates (A B B A …), what the rounds share cancels: the delay of the sensor, slow
drift, the idle level. Three things are fitted to the readings of each rail:

- one idle level, with a slow change, to all idle phases of the bench;
- for the work, a level for each accelerator above it, and a slow change in proportion to the level;
- the noise, which moves readings from step to step of the sensor and so tells where between two
  steps a level lies (dither).

Readings are known to half a step: the fit is that of a regression on grouped data, by expectation
and maximisation. The power x before it was rounded to a reading r, in steps of s, lies in r ± s/2.
A group is the readings of a phase. It has a level L, and a noise σ in common with the other idle
phases or with the other steady phases. One pass does two things:

    expectation    e = E[x - L] and v = E[(x - L)²], for x normal about L with σ and in r ± s/2
    maximisation   levels += regression of the mean e of each group on the design; σ² = mean of v

If the noise is too small to tell, the levels are the means of the readings, and the rounding counts
in full.

The interval of the difference is made of three parts:

- within: the variance by what happens inside the rounds, which is noise of the readings and the
  rounding that remains (``_variance_within``);
- between: the variance by the spread of the rounds about the fit, for work that differs from round
  to round (``_variance_between``). Few rounds tell it badly, so it is pooled with the first;
- heat: a bound for idle power that the work itself raised (``_heat``).

``python -m tests.truth.bench`` judges benches whose truth is known, and docs/validation.md has the
result: of 2,000 intervals, 1,974 held it.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import erf, exp, fsum, hypot, inf, isnan, pi, sqrt
from operator import add
from statistics import fmean
from typing import NamedTuple, TypeAlias

from ...daemon.measure.blocks import WindowSlice
from ...daemon.measure.energy import Curve, settled
from ...daemon.measure.energy_report import IDLE_PHASES, timing_of
from ...daemon.measure.numerics import NORMAL_95, dot, inverse, less, product, student
from ...daemon.measure.quality import late_seconds, timed
from ...daemon.measure.report import Environment, Figure, RunReport, Span
from ...daemon.measure.uncertainty import FEWEST_POINTS, wander
from ...parsers.rails import RailRule
from ...parsers.signals import RAIL_POWER
from .stopping import DOUBT, widening

# Weight of the noise within rounds, in degrees of freedom, against the spread between rounds. It is
# chosen, not derived. Four rounds of each have 5 degrees (8 rounds less 3 coefficients), so the
# spread between them counts for less than a third.
_WITHIN = 12
# Passes of the fit, chosen. After n passes the share (1 - k)^n of the rounding is left, where k is
# the share of the variance that the readings still show: 1 % for k = 0.44.
_PASSES = 8
# Student's factor for 99 % over that for 95 %: 2.92 over 2.12 with 16 degrees of freedom, and 1.37
# to 1.39 for two to four rounds of each, which have 13 to 17. Noise tells of rounding only in part:
# what is wide enough for 99 % without rounding is wide enough for 95 % with it.
_WIDER = 1.38


class RoundReadings(NamedTuple):
    """The readings of a round by the rails of the module, shape (rails, n).

    ``idle`` are the settled idle phases, each with its times; ``steps`` are those of the rails.
    """

    seconds: float
    inferences: int
    steps: Sequence[float]
    work: "Readings"
    idle: "Sequence[Readings]"


class Readings(NamedTuple):
    """Times and readings of the rails at them, shape (n,) and (rails, n)."""

    times_ns: Sequence[int]
    rails: Sequence[Sequence[float]]

    @property
    def middle(self) -> float:
        """The middle of the readings, in seconds."""
        return (self.times_ns[0] + self.times_ns[-1]) / 2e9


def power_of(
    cut: WindowSlice, report: RunReport, rule: RailRule | None, environment: Environment
) -> RoundReadings | None:
    """Return the readings of a run in its steady phase and its idle phases.

    ``None`` if the rails do not add up to the module, or without two settled idle phases.
    """
    cut = timed(cut)
    columns = RAIL_POWER.by_label(cut.columns)
    if rule is None or not columns.keys() >= set(rule.total):
        return None
    rails = [columns[name] for name in rule.total]
    rows = []
    for at, *watts in zip(cut.times_ns, *rails, strict=True):
        if not any(map(isnan, watts)):
            rows.append((at, watts))
    timing = timing_of(environment, late_seconds=late_seconds(cut))
    window = report.phases["steady"]
    certain_ns = window.begin_ns + round(timing.certain_after_seconds * 1e9)
    work = _within(rows, Span(begin_ns=min(certain_ns, window.end_ns), end_ns=window.end_ns))
    idle = []
    for phase in IDLE_PHASES:
        if phase in report.phases:
            idle.append(_within(rows, settled(report.phases[phase], timing)))
    fewest = min(len(readings.times_ns) for readings in (work, *idle))
    if fewest < FEWEST_POINTS or len(idle) < 2:
        return None
    steps = [rule.step_watts(name) for name in rule.total]
    return RoundReadings(window.seconds, report.inferences, steps, work, idle)


def _within(rows: Sequence[tuple[int, Sequence[float]]], span: Span) -> Readings:
    """Return the readings of all rails inside a span, its edges left out."""
    times, watts = [], []
    for at, of_rails in rows:
        if span.begin_ns < at < span.end_ns:
            times.append(at)
            watts.append(of_rails)
    return Readings(times, list(zip(*watts, strict=True)))


def _watts(readings: Readings) -> float:
    """Return the mean power of all rails together."""
    return fsum(map(fmean, readings.rails))


# --- arithmetic of rows ---------------------------------------------------------------------------

Rows: TypeAlias = Sequence[Sequence[float]]


def _products(first: Sequence[float], second: Sequence[float]) -> list[float]:
    return [a * b for a, b in zip(first, second, strict=True)]


def _squared_distance(first: Sequence[float], second: Sequence[float]) -> float:
    apart = less(first, second)
    return dot(apart, apart)


def _gains(design: Rows, weights: Sequence[float], counts: Sequence[float]) -> list[list[float]]:
    """Return what the mean of each group adds to each coefficient, groups weighted."""
    columns = list(zip(*design, strict=True))
    normal = [product(columns, _products(weights, column)) for column in columns]
    return [_products(counts, product(design, row)) for row in inverse(normal)]


# --- readings that were rounded -------------------------------------------------------------------


class _Rounded:
    """The readings of a rail in one phase, and what they were before they were rounded.

    That is expected for a level and a spread: ``expect`` takes both, and the answers follow. Equal
    readings are counted, so shapes are (values,).
    """

    def __init__(self, readings: Sequence[float], step: float) -> None:
        self.count = len(readings)
        self._readings = readings
        self._half_step = step / 2
        counts = Counter(readings)
        self._values, self._counts = list(counts), list(counts.values())
        self._spread = 0.0
        # Of each value before it was rounded, in spreads from the level.
        self._means: list[float] = []
        self._variances: list[float] = []
        self._squares: list[float] = []

    @property
    def is_constant(self) -> bool:
        """Whether all readings are equal."""
        return len(self._values) == 1

    def squares_about(self, level: float) -> float:
        """Return the sum of squared distances of the readings, as they are, from a level."""
        return dot(self._counts, [(value - level) ** 2 for value in self._values])

    def expect(self, level: float, spread: float) -> None:
        """Take a level and a standard deviation for true."""
        self._spread = spread
        self._means, self._variances, self._squares = [], [], []
        for value in self._values:
            low = (value - self._half_step - level) / spread
            high = (value + self._half_step - level) / spread
            mean, variance = _cell(low, high)
            self._means.append(mean)
            self._variances.append(variance)
            self._squares.append(mean**2 + variance)

    @property
    def error(self) -> float:
        """The mean distance from the level before rounding."""
        return self._spread * dot(self._counts, self._means) / self.count

    @property
    def squares(self) -> float:
        """The sum of squared distances from the level before rounding."""
        return self._spread * self._spread * dot(self._counts, self._squares)

    @property
    def known_share(self) -> float:
        """The share of the variance that rounding left visible."""
        return max(1 - dot(self._counts, self._variances) / self.count, 1e-6)

    @property
    def residuals(self) -> list[float]:
        """The distance of each reading from the level before rounding."""
        means = dict(zip(self._values, self._means, strict=True))
        return [self._spread * means[value] for value in self._readings]


def _cell(low: float, high: float) -> tuple[float, float]:
    """Return mean and variance of a standard normal number between two limits."""
    share = (erf(high / sqrt(2)) - erf(low / sqrt(2))) / 2
    if share < 1e-12:
        nearest = min(max(0.0, low), high)
        return nearest, 0.0
    at_low, at_high = _density(low), _density(high)
    mean = (at_low - at_high) / share
    return mean, max(1 + (low * at_low - high * at_high) / share - mean * mean, 0.0)


def _density(z: float) -> float:
    """Return the density of the standard normal distribution."""
    return exp(-z * z / 2) / sqrt(2 * pi)


def _first_variance(groups: Sequence[_Rounded], levels: Sequence[float], step: float) -> float:
    """Return the variance of readings before they were rounded, by that of the readings.

    Rounding adds step²/12, which may be more than all that they show. So the start is at least
    (step/8)². The later passes may go down to (step/12)², because from above they narrow it by
    themselves. Neither may be 0, by which ``expect`` would divide.
    """
    count, squares = 0, []
    for group, level in zip(groups, levels, strict=True):
        count += group.count
        squares.append(group.squares_about(level))
    return max(fsum(squares) / count - step * step / 12, (step / 8) ** 2)


def _next_variance(groups: Sequence[_Rounded], step: float) -> float:
    """Return the variance of readings before they were rounded, by what is expected of them."""
    count, squares = 0, []
    for group in groups:
        count += group.count
        squares.append(group.squares)
    return max(fsum(squares) / count, (step / 12) ** 2)


def _rounding_deviation(groups: Sequence[_Rounded], variance: float, step: float) -> float:
    """Return the standard deviation of the mean of rounded readings with noise of a variance.

    Readings that never differ show no noise.
    """
    if all(group.is_constant for group in groups):
        variance = 0.0
    # The Fourier series of the error by rounding: noise damps its higher terms first.
    terms = []
    for k in range(1, 8):
        amplitude = step / (pi * k)
        terms.append((amplitude * exp(-2 * (pi * k / step) ** 2 * variance)) ** 2 / 2)
    return sqrt(fsum(terms))


# --- the fit of one rail --------------------------------------------------------------------------


class _Fit(NamedTuple):
    """Coefficients of a regression on the readings of a rail, and their errors.

    ``residuals`` has shape (groups, n), ``gains`` (coefficients, groups): a coefficient's error is
    the sum over groups of gain times mean residual. ``rounding`` is the standard deviation of an
    idle level and of one with work by the rounding that remains.
    """

    coefficients: list[float]
    residuals: list[list[float]]
    gains: list[list[float]]
    rounding: tuple[float, float]

    def series(self, contrast: Sequence[float]) -> list[list[float]]:
        """Return residuals whose means over the groups add up to the contrast's error."""
        shares = product(list(zip(*self.gains, strict=True)), contrast)
        series = []
        for row, share in zip(self.residuals, shares, strict=True):
            series.append([share * value for value in row])
        return series


def _fit(design: Rows, readings: Rows, idle_count: int, step: float) -> _Fit:
    """Fit levels, design times coefficients, to groups of rounded readings, the first ones idle.

    Each pass moves the levels by the mean error of the readings before they were rounded, given
    level and noise. So it resolves the share of the rounding that the readings tell of. A few
    passes are enough; more would follow the rare reading that differs from all others.
    """
    groups = [_Rounded(of_group, step) for of_group in readings]
    idle, work = groups[:idle_count], groups[idle_count:]
    counts = list(map(len, readings))
    plain = _gains(design, counts, counts)
    coefficients = product(plain, list(map(fmean, readings)))
    levels = product(design, coefficients)
    idle_variance = _first_variance(idle, levels[:idle_count], step)
    work_variance = _first_variance(work, levels[idle_count:], step)
    for _ in range(_PASSES):
        errors = []
        for number, group in enumerate(groups):
            variance = idle_variance
            if number >= idle_count:
                # Work has at least the noise of the idle board, where its own does not show
                # between two steps.
                variance = max(idle_variance, work_variance)
            group.expect(levels[number], sqrt(variance))
            errors.append(group.error)
        coefficients = list(map(add, coefficients, product(plain, errors)))
        levels = product(design, coefficients)
        idle_variance, work_variance = _next_variance(idle, step), _next_variance(work, step)
    # The share of the rounding that the passes have not resolved, and the worth of a group's mean.
    unresolved, weights, residuals = [], [], []
    for group in groups:
        rest = (1 - group.known_share) ** _PASSES
        unresolved.append(rest)
        weights.append(group.count * group.known_share / (1 - rest))
        residuals.append(group.residuals)
    rounding = (
        _rounding_deviation(idle, idle_variance, step) * fmean(unresolved[:idle_count]),
        _rounding_deviation(work, max(idle_variance, work_variance), step)
        * fmean(unresolved[idle_count:]),
    )
    return _Fit(coefficients, residuals, _gains(design, weights, counts), rounding)


# --- the difference -------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Bench:
    """The rounds of two accelerators."""

    first: Sequence[RoundReadings]
    second: Sequence[RoundReadings]

    @cached_property
    def runs(self) -> list[RoundReadings]:
        """All rounds: first those of the first accelerator, then those of the second."""
        return [*self.first, *self.second]

    @cached_property
    def works(self) -> list[Readings]:
        """The readings of each round in its steady phase."""
        return [run.work for run in self.runs]

    @cached_property
    def idle(self) -> list[Readings]:
        """All idle phases."""
        phases: list[Readings] = []
        for run in self.runs:
            phases += run.idle
        return phases

    @cached_property
    def seconds_per_inference(self) -> tuple[float, float]:
        """Seconds per inference of either side, over all of its rounds."""
        return _seconds_per_inference(self.first), _seconds_per_inference(self.second)

    @cached_property
    def _span(self) -> tuple[float, float]:
        """The middle of the bench, and the distance of the outermost rounds from it."""
        middles = [work.middle for work in self.works]
        centre = fmean(middles)
        return centre, max(max(middles) - centre, centre - min(middles))

    def place(self, readings: Readings) -> float:
        """Return the place of readings along the bench, from -1 to 1 for the rounds."""
        centre, reach = self._span
        return (readings.middle - centre) / reach

    def work_design(self, values: Sequence[float]) -> list[list[float]]:
        """Return a row per round: a level for either side, and a slow change in proportion to it.

        ``values`` of the rounds give that proportion.
        """
        count = len(self.first)
        first_level, second_level = fmean(values[:count]), fmean(values[count:])
        first_share, second_share = 1.0, 1.0
        if min(first_level, second_level) > 0:
            highest = max(first_level, second_level)
            first_share, second_share = first_level / highest, second_level / highest
        rows = []
        for number, work in enumerate(self.works):
            if number < count:
                rows.append([1.0, 0.0, first_share * self.place(work)])
            else:
                rows.append([0.0, 1.0, second_share * self.place(work)])
        return rows

    def design(self) -> list[list[float]]:
        """Return a row per group: idle power and its slow change are in all, work in its own."""
        quiet = fmean(map(_watts, self.idle))
        added = [_watts(work) - quiet for work in self.works]
        rows = []
        for phase in self.idle:
            rows.append([1.0, self.place(phase), 0.0, 0.0, 0.0])
        for work, row in zip(self.works, self.work_design(added), strict=True):
            rows.append([1.0, self.place(work), *row])
        return rows

    def fits(self) -> list[_Fit]:
        """Return the fit of each rail."""
        design, groups = self.design(), (*self.idle, *self.works)
        fits = []
        for rail, step in enumerate(self.runs[0].steps):
            readings = [group.rails[rail] for group in groups]
            fits.append(_fit(design, readings, len(self.idle), step))
        return fits


def _seconds_per_inference(rounds: Sequence[RoundReadings]) -> float:
    seconds, inferences = 0.0, 0
    for run in rounds:
        seconds += run.seconds
        inferences += run.inferences
    return seconds / inferences


def difference_of_rounds(
    first: Sequence[RoundReadings], second: Sequence[RoundReadings], doubt: float = DOUBT
) -> Figure | None:
    """Return the net energy per inference of ``second`` less that of ``first``, in joules.

    ``doubt`` is the chance of an error of the interval. ``None`` for fewer than two rounds of
    either, for rails of different steps, and for a round without inferences.
    """
    if min(len(first), len(second)) < 2:
        return None
    if any(run.steps != first[0].steps or not run.inferences for run in (*first, *second)):
        return None
    bench = _Bench(first, second)
    fits = bench.fits()
    first_seconds, second_seconds = bench.seconds_per_inference
    contrast = [0.0, 0.0, -first_seconds, second_seconds, 0.0]
    value = fsum(product([fit.coefficients for fit in fits], contrast))
    within = _variance_within(bench, fits, contrast)
    between, freedom = _variance_between(bench, fits)
    pooled = (_WITHIN * within + freedom * between) / (_WITHIN + freedom)
    pooled_factor = student(_WITHIN + freedom) * widening(_WITHIN + freedom, doubt)
    between_factor = student(freedom) * widening(freedom, doubt)
    half = _WIDER * pooled_factor * sqrt(max(within, pooled))
    return Figure.around(value, max(half, between_factor * sqrt(between)) + _heat(bench))


def _variance_within(bench: _Bench, fits: Sequence[_Fit], contrast: Sequence[float]) -> float:
    """Return the variance of the difference by noise of the readings and the rounding that remains.

    It is what would be left if the work were the same in each round.
    """
    series = [fit.series(contrast) for fit in fits]
    errors = []
    for number, group in enumerate((*bench.idle, *bench.works)):
        # Rails may move together, so their errors are added up before their spread is taken.
        rails = [of_rail[number] for of_rail in series]
        errors.append(Curve(group.times_ns, list(map(fsum, zip(*rails, strict=True)))))
    idle, work = errors[: len(bench.idle)], errors[len(bench.idle) :]
    idle_half = wander(idle).watts([1.0] * len(idle), inf)
    work_half = wander(work).watts([1.0] * len(work), inf)
    first_seconds, second_seconds = bench.seconds_per_inference
    rounding = []
    for fit in fits:
        idle_rounding, work_rounding = fit.rounding
        # Work is measured above the idle level, so an error of that level is in both figures, by
        # the seconds of an inference, and only the difference of these is left. The rounding of the
        # two levels of work is independent.
        rounding.append((first_seconds - second_seconds) * idle_rounding)
        rounding.append(hypot(first_seconds, second_seconds) * work_rounding)
    return (hypot(idle_half, work_half) / NORMAL_95) ** 2 + hypot(*rounding) ** 2


def _variance_between(bench: _Bench, fits: Sequence[_Fit]) -> tuple[float, int]:
    """Return the variance of the difference by the spread between rounds, and its freedom.

    It shows what readings do not: work that differs from round to round.
    """
    joules = []
    for run in bench.runs:
        place = bench.place(run.work)
        idle = fsum(fit.coefficients[0] + fit.coefficients[1] * place for fit in fits)
        joules.append((_watts(run.work) - idle) * run.seconds / run.inferences)
    design, once = bench.work_design(joules), [1.0] * len(joules)
    gains = _gains(design, once, once)
    coefficients = product(gains, joules)
    freedom = len(joules) - len(coefficients)
    left = _squared_distance(joules, product(design, coefficients))
    return left / freedom * _squared_distance(gains[1], gains[0]), freedom


def _heat(bench: _Bench) -> float:
    """Return the joules per inference by which heat of the work may move the difference.

    Heat that is left after the work is in the idle level, which is the same for both. Where an
    inference of one takes longer, it has more of that level.
    """
    before, after = [], []
    for run in bench.runs:
        before.append(_watts(run.idle[0]))
        after.append(_watts(run.idle[1]))
    first_seconds, second_seconds = bench.seconds_per_inference
    return abs(fmean(after) - fmean(before)) / 2 * abs(first_seconds - second_seconds)
