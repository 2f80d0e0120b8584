"""The difference of accelerators by all rounds of a bench at once, from the readings themselves.

In a bench that alternates (A B B A …), what the rounds share cancels: the delay of the sensor, slow
drift, the idle level. Three things are fitted to the readings of each rail:

- one idle level, with a slow change, to all idle phases of the bench;
- for the work, a level for each accelerator above it, and a slow change in proportion to the level;
- the noise, which moves readings from step to step of the sensor and so tells where between two
  steps a level lies (dither).

Readings are known to half a step: the fit is that of a regression on grouped data, by expectation
and maximisation. If the noise is too small to tell, the levels are the means of the readings,
and the rounding counts in full.
"""

from collections import Counter
from collections.abc import Sequence
from math import erf, exp, fsum, hypot, inf, isnan, pi, sqrt
from statistics import fmean
from typing import NamedTuple

from ...daemon.measure.blocks import WindowSlice
from ...daemon.measure.energy import Curve, settled
from ...daemon.measure.energy_report import IDLE_PHASES, timing
from ...daemon.measure.figures import dot, inverse, student
from ...daemon.measure.quality import late_seconds, timed
from ...daemon.measure.report import Environment, Figure, RunReport, Span
from ...daemon.measure.uncertainty import FEWEST_POINTS, NORMAL_95, wander
from ...parsers.rails import RailRule
from ...parsers.signals import RAIL_POWER

# Weight of the noise within rounds, in degrees of freedom, against the spread between rounds.
_WITHIN = 12
_PASSES = 8
# Student's factor for 99 % over that for 95 %. Noise tells of rounding only in part: what is wide
# enough for 99 % without rounding is wide enough for 95 % with it.
_WIDER = 1.38


class RoundPower(NamedTuple):
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


class _Fit(NamedTuple):
    """Coefficients of a regression on the readings of a rail, and their errors.

    ``residuals`` has shape (groups, n), ``gains`` (coefficients, groups): a coefficient's error is
    the sum over groups of gain times mean residual. ``rounding`` is the standard deviation of an
    idle level and of one with work by the rounding that remains.
    """

    coefficients: list[float]
    residuals: list[list[float]]
    gains: list[list[float]]
    rounding: list[float]

    def series(self, contrast: Sequence[float]) -> list[list[float]]:
        """Return residuals whose means over the groups add up to the contrast's error."""
        shares = [dot(contrast, column) for column in zip(*self.gains, strict=True)]
        return [[s * e for e in one] for s, one in zip(shares, self.residuals, strict=True)]


def power_of(
    cut: WindowSlice, report: RunReport, rule: RailRule | None, environment: Environment
) -> RoundPower | None:
    """Return the readings of a run in its steady phase and its idle phases.

    ``None`` if the rails do not add up to the module, or without two settled idle phases.
    """
    cut = timed(cut)
    columns = RAIL_POWER.by_label(cut.columns)
    if rule is None or not all(name in columns for name in rule.total):
        return None
    reading = timing(environment, late_seconds=late_seconds(cut))
    rows = [
        (at, watts)
        for at, *watts in zip(cut.times_ns, *(columns[name] for name in rule.total), strict=True)
        if not any(map(isnan, watts))
    ]

    def within(span: Span) -> Readings:
        inside = [row for row in rows if span.begin_ns < row[0] < span.end_ns]
        return Readings([at for at, _ in inside], list(zip(*(w for _, w in inside), strict=True)))

    window = report.phases["steady"]
    late = window.begin_ns + round(reading.skipped * 1e9)
    work = within(Span(begin_ns=min(late, window.end_ns), end_ns=window.end_ns))
    idle = [
        within(settled(report.phases[phase], reading))
        for phase in IDLE_PHASES
        if phase in report.phases
    ]
    if min(len(one.times_ns) for one in (work, *idle)) < FEWEST_POINTS or len(idle) < 2:
        return None
    steps = [rule.step_watts(name) for name in rule.total]
    return RoundPower(window.seconds, report.inferences, steps, work, idle)


def _cell(low: float, high: float) -> tuple[float, float]:
    """Return mean and variance of a standard normal number between two limits."""
    share = (erf(high / sqrt(2)) - erf(low / sqrt(2))) / 2
    if share < 1e-12:
        nearest = min(max(0.0, low), high)
        return nearest, 0.0
    at_low, at_high = (exp(-z * z / 2) / sqrt(2 * pi) for z in (low, high))
    mean = (at_low - at_high) / share
    return mean, max(1 + (low * at_low - high * at_high) / share - mean * mean, 0.0)


def _gains(
    design: Sequence[Sequence[float]], weights: Sequence[float], counts: Sequence[float]
) -> list[list[float]]:
    """Return what the mean of each group adds to each coefficient, groups weighted."""
    columns = list(zip(*design, strict=True))
    normal = [
        [fsum(w * x * y for w, x, y in zip(weights, a, b, strict=True)) for b in columns]
        for a in columns
    ]
    return [
        [n * dot(row, x) for n, x in zip(counts, design, strict=True)] for row in inverse(normal)
    ]


def _watts(readings: Readings) -> float:
    return fsum(map(fmean, readings.rails))


def _noise(cells: Sequence["Counter[float]"], levels: Sequence[float], step: float) -> float:
    """Return the variance of readings before they were rounded, by that of the readings."""
    count = fsum(fsum(cell.values()) for cell in cells)
    moved = fsum(
        n * (w - level) ** 2
        for cell, level in zip(cells, levels, strict=True)
        for w, n in cell.items()
    )
    return max(moved / count - step * step / 12, (step / 8) ** 2)


def _rounding(cells: Sequence["Counter[float]"], variance: float, step: float) -> float:
    """Return the standard deviation of the mean of rounded readings with noise of a variance.

    Readings that never differ show no noise.
    """
    if all(len(cell) == 1 for cell in cells):
        variance = 0.0
    terms = ((step / (pi * k), exp(-2 * (pi * k / step) ** 2 * variance)) for k in range(1, 8))
    return sqrt(fsum((size * left) ** 2 / 2 for size, left in terms))


def _fit(
    design: Sequence[Sequence[float]], groups: Sequence[Sequence[float]], idle: int, step: float
) -> _Fit:
    """Fit levels, design times coefficients, to groups of rounded readings, the first ones idle.

    Each pass moves the levels by the mean error of the readings before they were rounded, given
    level and noise. So it resolves the share of the rounding that the readings tell of. A few
    passes are enough; more would follow the rare reading that differs from all others. Work has at
    least the noise of the idle board, where its own does not show between two steps.
    """
    counts = [len(group) for group in groups]
    cells = [Counter(group) for group in groups]
    kinds = (slice(0, idle), slice(idle, None))
    plain = _gains(design, counts, counts)
    beta = [dot(row, [fmean(group) for group in groups]) for row in plain]
    levels = [dot(x, beta) for x in design]
    variances = [_noise(cells[kind], levels[kind], step) for kind in kinds]
    for _ in range(_PASSES):
        spreads = [sqrt(max(variances[: 1 + (i >= idle)])) for i in range(len(groups))]
        found = [
            {w: _cell((w - step / 2 - level) / s, (w + step / 2 - level) / s) for w in cell}
            for cell, level, s in zip(cells, levels, spreads, strict=True)
        ]
        errors = [
            s * fsum(n * at[w][0] for w, n in cell.items()) / count
            for cell, at, count, s in zip(cells, found, counts, spreads, strict=True)
        ]
        beta = [b + dot(row, errors) for b, row in zip(beta, plain, strict=True)]
        levels = [dot(x, beta) for x in design]
        moved = [
            s * s * fsum(n * (at[w][0] ** 2 + at[w][1]) for w, n in cell.items())
            for cell, at, s in zip(cells, found, spreads, strict=True)
        ]
        variances = [max(fsum(moved[kind]) / sum(counts[kind]), (step / 12) ** 2) for kind in kinds]
    known = [
        max(1 - fsum(n * at[w][1] for w, n in cell.items()) / count, 1e-6)
        for cell, at, count in zip(cells, found, counts, strict=True)
    ]
    left = [(1 - share) ** _PASSES for share in known]
    weights = [n * share / (1 - rest) for n, share, rest in zip(counts, known, left, strict=True)]
    rounding = [
        _rounding(cells[kind], max(variances[: number + 1]), step) * fmean(left[kind])
        for number, kind in enumerate(kinds)
    ]
    residuals = [
        [s * at[w][0] for w in group] for group, at, s in zip(groups, found, spreads, strict=True)
    ]
    return _Fit(beta, residuals, _gains(design, weights, counts), rounding)


def difference_of_rounds(here: Sequence[RoundPower], there: Sequence[RoundPower]) -> Figure | None:
    """Return the net energy per inference of ``there`` less that of ``here``, in joules.

    ``None`` for fewer than two rounds of either.
    """
    runs = [*here, *there]
    idle = [one for run in runs for one in run.idle]
    works = [run.work for run in runs]
    if min(len(here), len(there)) < 2:
        return None
    if any(run.steps != runs[0].steps or not run.inferences for run in runs):
        return None
    steps = runs[0].steps
    sides = (slice(0, len(here)), slice(len(here), None))
    each = [
        sum(run.seconds for run in runs[side]) / sum(run.inferences for run in runs[side])
        for side in sides
    ]
    centre = fmean(one.middle for one in works)
    reach = max(abs(one.middle - centre) for one in works)

    def late(one: Readings) -> float:
        return (one.middle - centre) / reach

    def design(values: Sequence[float]) -> list[list[float]]:
        """Return a level for each side, and a slow change in proportion to it."""
        means = [fmean(values[side]) for side in sides]
        shares = [m / max(means) for m in means] if min(means) > 0 else [1.0, 1.0]
        return [
            [float(i < len(here)), float(i >= len(here)), shares[i >= len(here)] * late(one)]
            for i, one in enumerate(works)
        ]

    # Idle power and its slow change are in every row, work in its own rows.
    quiet, gross = fmean(map(_watts, idle)), list(map(_watts, works))
    rows = [[1.0, late(one), 0.0, 0.0, 0.0] for one in idle]
    rows += [
        [1.0, late(one), *row]
        for one, row in zip(works, design([watts - quiet for watts in gross]), strict=True)
    ]
    contrast = [0.0, 0.0, -each[0], each[1], 0.0]
    groups = [*idle, *works]
    fits = [
        _fit(rows, [group.rails[rail] for group in groups], len(idle), step)
        for rail, step in enumerate(steps)
    ]
    value = fsum(dot(contrast, fit.coefficients) for fit in fits)
    # Rails may move together, so their errors are added up before their spread is taken.
    series = zip(*(fit.series(contrast) for fit in fits), strict=True)
    errors = [
        Curve(group.times_ns, [fsum(at) for at in zip(*rail, strict=True)])
        for group, rail in zip(groups, series, strict=True)
    ]
    halves = [
        wander(part).watts([1.0] * len(part), inf)
        for part in (errors[: len(idle)], errors[len(idle) :])
    ]
    shares = (each[0] - each[1], hypot(*each))
    rounding = hypot(*(s * r for fit in fits for s, r in zip(shares, fit.rounding, strict=True)))
    within = (hypot(*halves) / NORMAL_95) ** 2 + rounding**2
    # Heat of the work that is left after it is in the idle level, which is the same for both. Where
    # an inference of one takes longer, it has more of that level.
    before, after = (fmean(_watts(run.idle[n]) for run in runs) for n in (0, 1))
    heat = abs(after - before) / 2 * abs(each[0] - each[1])
    # The spread between rounds shows what readings do not: work that differs from round to round.
    base = [fit.coefficients[:2] for fit in fits]
    joules = [
        (watts - fsum(a + b * late(run.work) for a, b in base)) * run.seconds / run.inferences
        for watts, run in zip(gross, runs, strict=True)
    ]
    table, once = design(joules), [1.0] * len(runs)
    gains = _gains(table, once, once)
    means = [dot(row, joules) for row in gains]
    left = fsum((e - dot(row, means)) ** 2 for e, row in zip(joules, table, strict=True))
    freedom = len(runs) - len(means)
    between = left / freedom * fsum((b - a) ** 2 for a, b in zip(*gains[:2], strict=True))
    pooled = (_WITHIN * within + freedom * between) / (_WITHIN + freedom)
    half = _WIDER * student(_WITHIN + freedom) * sqrt(max(within, pooled))
    return Figure.around(value, max(half, student(freedom) * sqrt(between)) + heat)
