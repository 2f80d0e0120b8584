"""Gross energy of each phase of an application's own work, such as prefill and decode.

A phase of which each occurrence has enough readings is cut out at its edges, as a window is. For
shorter ones, the readings of the whole window are explained by the phases in which they were taken:
least squares give the power of each phase, with an interval. Otherwise the energy is absent.

``energy_of_parts`` is the energy of several parts together, such as the time with a request in
flight, without what lies between them.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import pairwise
from math import dist, fsum, hypot, sqrt
from typing import NamedTuple

from ...parsers.rails import RailRule
from ...parsers.signals import RAIL_POWER
from .blocks import WindowSlice, known_values
from .energy import (
    Curve,
    Timing,
    WindowEnergy,
    inside,
    interval_ns,
    known,
    total,
    window_energy,
)
from .energy_report import interval_of, module_curve, per_unit
from .numerics import dot, inverse, less, product, student
from .report import Figure, Interval, PhaseEnergy, Span, WorkPhase
from .uncertainty import FEWEST_POINTS, quantisation_watts, sampling_watts

DELAYS, FINER = 5, 4
"""Delays that are tried, from none to the longest, and parts of the time between two near the
best."""
# A delay is likely if it leaves at most so much more squared error than the best one, in squared
# errors of one reading. Two and a half times the 95 % point of chi-squared with two degrees of
# freedom (5.99), since errors of neighbouring readings are correlated.
LIKELY = 15.0
# Enough to find the delay. The daemon's time is limited.
FITTED_READINGS = 4000
# Readings of one block are alike, so the interval is by the sums of blocks.
MOST_BLOCKS, READINGS_PER_BLOCK, FEWEST_READINGS = 20, 8, 10
MOMENT_NS = 1_000_000
"""Length of what a reading describes if it is not a mean."""
_Lag = tuple[float, float]
"""Time from the end of what a reading describes to its arrival, and the length of that, in ns."""


class _Phase:
    """All occurrences of a phase in order of time, and its length in seconds."""

    def __init__(self, spans: list[WorkPhase]) -> None:
        self.spans = spans
        self.seconds = fsum(span.seconds for span in spans)
        self._begins_ns: list[int] = []
        self._before_ns = [0]
        for span in spans:
            self._begins_ns.append(span.begin_ns)
            self._before_ns.append(self._before_ns[-1] + span.end_ns - span.begin_ns)

    def until(self, at_ns: float) -> float:
        """Return the time in this phase until a moment, in nanoseconds."""
        i = bisect_right(self._begins_ns, at_ns) - 1
        if i < 0:
            return 0.0
        return self._before_ns[i] + min(at_ns, self.spans[i].end_ns) - self._begins_ns[i]


class _Fit(NamedTuple):
    """Joules and half of the interval by phase, and the sum of the squared errors that remain."""

    joules: list[float]
    halves: list[float]
    left: float


class _PhaseJoules(NamedTuple):
    """Joules, the lowest and highest that they may be, and half of the interval about these."""

    joules: float
    low: float
    high: float
    half: float = 0.0


def phase_energy(
    samples: WindowSlice,
    rule: RailRule,
    window: Span,
    phases: Sequence[WorkPhase],
    timing: Timing,
    withheld: str | None = None,
) -> tuple[PhaseEnergy, ...]:
    """Return the energy of each phase of a window, in the order of their first occurrence.

    Args:
        samples: Samples of the window, with their neighbours and all rails of the total.
        rule: How the rails add up.
        window: The window.
        phases: Its phases in order of time, apart from each other.
        timing: How readings and phases relate in time.
        withheld: Why there is no energy, if there may be none.
    """
    columns = RAIL_POWER.by_label(samples.columns)
    rails = [columns[name] for name in rule.total]
    named = _by_name(phases)
    if withheld is not None:
        return tuple(_without_energy(name, phase, withheld) for name, phase in named.items())
    curve = total(samples.times_ns, rails)
    fitted = _by_regression(samples.times_ns, rails, window, named, timing)
    energies = []
    for name, phase in named.items():
        joules = _cut(curve, phase.spans, timing)
        is_cut = joules is not None
        if joules is None:
            # Too short to be cut out: the readings of the whole window may still explain it.
            joules = fitted.get(name)
        if joules is None:
            reason = "it is too short or too rare for the readings"
            energies.append(_without_energy(name, phase, reason))
            continue
        interval = _interval(joules, phase, samples, rule, rails)
        bare = _without_energy(name, phase, None)
        energy: dict[str, object] = {
            "method": "cut" if is_cut else "regression",
            "gross_joules": joules.joules,
            "gross_interval": interval,
        }
        if bare.units:
            energy |= per_unit("", joules.joules, interval, Figure(value=bare.units))
        energies.append(bare.model_copy(update=energy))
    return tuple(energies)


def _by_name(phases: Sequence[WorkPhase]) -> dict[str, _Phase]:
    """Return the phases by name, in the order of their first occurrence."""
    spans: dict[str, list[WorkPhase]] = {}
    for phase in phases:
        spans.setdefault(phase.name, []).append(phase)
    return {name: _Phase(occurrences) for name, occurrences in spans.items()}


def _without_energy(name: str, phase: _Phase, reason: str | None) -> PhaseEnergy:
    """Return what is known of a phase without its energy."""
    units: list[float] = []
    for span in phase.spans:
        if span.units is not None:
            units.append(span.units)
    return PhaseEnergy(
        name=name,
        count=len(phase.spans),
        seconds=phase.seconds,
        units=fsum(units) if units else None,
        reason=reason,
    )


def _interval(
    joules: _PhaseJoules,
    phase: _Phase,
    samples: WindowSlice,
    rule: RailRule,
    rails: Sequence[Sequence[float]],
) -> Interval | None:
    """Return the 95 % interval of a phase, with the rounding of the sensors.

    A rail without a reading in the phase is rounded by an unknown amount: ``None``.
    """
    rounding: list[float] = []
    for name, watts in zip(rule.total, rails, strict=True):
        in_phase: list[float] = []
        for span in phase.spans:
            in_phase += known_values(watts[inside(samples.times_ns, span)])
        if not in_phase:
            return None
        rounding.append(quantisation_watts(in_phase, rule.step_watts(name)))
    half = hypot(joules.half, hypot(*rounding) * phase.seconds)
    return Interval(low=joules.low - half, high=joules.high + half)


def _cut(curve: Curve, spans: Sequence[WorkPhase], timing: Timing) -> _PhaseJoules | None:
    """Return the energy of spans if each has enough readings that are certainly inside."""
    joules: list[float] = []
    lows: list[float] = []
    highs: list[float] = []
    halves: list[float] = []
    for span in spans:
        first = bisect_right(
            curve.times_ns, span.begin_ns + round(timing.certain_after_seconds * 1e9)
        )
        last = bisect_left(curve.times_ns, span.end_ns - round((timing.clock or 0.0) * 1e9))
        if last - first < FEWEST_POINTS or timing.clock is None:
            return None
        near = inside(curve.times_ns, span)
        near = slice(max(near.start - 2, 0), near.stop + 2)
        around = Curve(curve.times_ns[near], curve.watts[near])
        energy = window_energy(around, span, timing)
        if energy is None or energy.bounds is None:
            return None
        sampling = sampling_watts(energy.readings)
        if sampling is None:
            return None
        joules.append(energy.joules)
        lows.append(energy.bounds[0])
        highs.append(energy.bounds[1])
        halves.append(sampling * span.seconds)
    total_joules = fsum(joules)
    low, high = total_joules + fsum(lows), total_joules + fsum(highs)
    return _PhaseJoules(total_joules, low, high, hypot(*halves))


def _by_regression(
    times_ns: Sequence[int],
    rails: Sequence[Sequence[float]],
    window: Span,
    named: dict[str, _Phase],
    timing: Timing,
) -> dict[str, _PhaseJoules]:
    """Return the energy of each phase that is long and frequent enough for the readings.

    The others count as unmarked time. Each rail has a delay of its own.
    """
    if timing.clock is None:
        return {}
    fewest_seconds = FEWEST_READINGS * (interval_ns(times_ns) or 0.0) / 1e9
    fitted: dict[str, _Phase] = {}
    for name, phase in named.items():
        if phase.seconds > max(fewest_seconds, timing.delay * len(phase.spans)):
            fitted[name] = phase
    if not fitted:
        return {}
    by_rail = []
    for watts in rails:
        rail = _regressed(known(times_ns, watts), window, [*fitted.values()], timing)
        if not rail:
            return {}
        by_rail.append(rail)
    energies = {}
    for name, parts in zip(fitted, zip(*by_rail, strict=True), strict=True):
        joules, lows, highs, _ = map(fsum, zip(*parts, strict=True))
        energies[name] = _PhaseJoules(joules, lows, highs)
    return energies


def _regressed(
    curve: Curve, window: Span, phases: Sequence[_Phase], timing: Timing
) -> list[_PhaseJoules]:
    """Return the energy of a rail in each phase; nothing if the readings are too few.

    A reading is taken for the mean power of ``width`` seconds that ended up to ``delay`` before its
    arrival. Delays are tried, first few and then more near the best, and some that differ from
    reading to reading. Those that explain the readings nearly as well as the best are likely, and
    so are its neighbours. Their intervals are joined.
    """
    clock_ns, delay_ns = (timing.clock or 0.0) * 1e9, timing.delay * 1e9
    width_ns = max(timing.width * 1e9, MOMENT_NS)
    first = bisect_right(curve.times_ns, window.begin_ns + clock_ns + delay_ns + width_ns)
    whole = slice(first, bisect_left(curve.times_ns, window.end_ns - clock_ns))
    readings = Curve(curve.times_ns[whole], curve.watts[whole])
    some = Curve(readings.times_ns[:FITTED_READINGS], readings.watts[:FITTED_READINGS])

    step_ns = (delay_ns + 2 * clock_ns) / (DELAYS - 1)
    coarse = [(step_ns * i - clock_ns, width_ns) for i in range(DELAYS)]
    fits = _fits(some, window, phases, coarse)
    if not fits:
        return []
    middle_ns, _ = _best(fits)
    fine = [(middle_ns + step_ns * i / FINER, width_ns) for i in range(1 - FINER, FINER)]
    # A delay that differs from reading to reading is a wider mean.
    varying = [(-clock_ns, width_ns + step_ns * i) for i in range(1, DELAYS)]
    fits |= _fits(some, window, phases, fine + varying)

    best = _best(fits)
    neighbours, apart_ns = fine, step_ns / FINER
    if best in varying:
        neighbours, apart_ns = varying, step_ns
    most_left = fits[best].left * (1 + LIKELY / len(some.watts))
    likely = []
    for lag, fit in fits.items():
        is_neighbour = lag in neighbours and dist(lag, best) < 1.01 * apart_ns
        if fit.left <= most_left or is_neighbour:
            likely.append(lag)
    if len(readings.watts) > len(some.watts):
        fits = _fits(readings, window, phases, likely)
    energies = []
    for number, joules in enumerate(fits[best].joules):
        lows, highs = [], []
        for lag in likely:
            fit = fits[lag]
            lows.append(fit.joules[number] - fit.halves[number])
            highs.append(fit.joules[number] + fit.halves[number])
        energies.append(_PhaseJoules(joules, min(lows), max(highs)))
    return energies


def _fits(
    readings: Curve, window: Span, phases: Sequence[_Phase], lags: Sequence[_Lag]
) -> dict[_Lag, _Fit]:
    """Return the fit of each lag at which the readings allow one."""
    fits = {}
    for lag in lags:
        fit = _fit(readings, window, phases, lag)
        if fit is not None:
            fits[lag] = fit
    return fits


def _best(fits: dict[_Lag, _Fit]) -> _Lag:
    """Return the lag that leaves the least error."""
    return min(fits, key=lambda lag: fits[lag].left)


def _fit(readings: Curve, window: Span, phases: Sequence[_Phase], lag: _Lag) -> _Fit | None:
    """Explain readings by the shares of the phases in their time, and by a slow change.

    The interval is by the sums of errors over blocks of neighbouring readings, which are alike. The
    result is ``None`` if there are too few blocks, or too few readings of a phase.
    """
    middle, length = (window.begin_ns + window.end_ns) / 2, window.end_ns - window.begin_ns
    rows = _explanations(readings, window, phases, lag)
    columns = [*zip(*rows, strict=True)]
    blocks = min(MOST_BLOCKS, len(rows) // READINGS_PER_BLOCK)
    freedom = blocks - len(columns)
    if freedom < 1 or min(map(fsum, columns[: len(phases)])) < FEWEST_READINGS / 2:
        return None
    try:
        solved = inverse([product(columns, column) for column in columns])
    except ZeroDivisionError:
        return None
    factors = product(solved, product(columns, readings.watts))
    errors = less(readings.watts, product(rows, factors))
    edges = [len(rows) * i // blocks for i in range(blocks + 1)]
    joules, halves = [], []
    for number, phase in enumerate(phases):
        # Energy is the power of the phase times its length, and what the slow change adds in it.
        slow = fsum((s.begin_ns + s.end_ns - 2 * middle) * s.seconds for s in phase.spans)
        weights = [0.0] * len(columns)
        weights[number], weights[len(phases)] = phase.seconds, slow / 2 / length
        gains = product(rows, product(solved, weights))
        parts = [gain * error for gain, error in zip(gains, errors, strict=True)]
        sums = [fsum(parts[begin:end]) for begin, end in pairwise(edges)]
        joules.append(dot(weights, factors))
        halves.append(sqrt(dot(sums, sums) * blocks / freedom) * student(freedom))
    return _Fit(joules, halves, dot(errors, errors))


def _explanations(
    readings: Curve, window: Span, phases: Sequence[_Phase], lag: _Lag
) -> list[list[float]]:
    """Return one row per reading: the share of each phase in its time, a slow change, and the rest.

    The rest is time that is not marked. It is left out if all readings together have less than one
    reading of it.
    """
    ago, width = lag
    middle, length = (window.begin_ns + window.end_ns) / 2, window.end_ns - window.begin_ns
    rows: list[list[float]] = []
    unmarked: list[float] = []
    for at in readings.times_ns:
        row = []
        for phase in phases:
            row.append((phase.until(at - ago) - phase.until(at - ago - width)) / width)
        unmarked.append(1.0 - fsum(row))
        row.append((at - middle) / length)
        rows.append(row)
    if fsum(unmarked) >= 1.0:
        for row, rest in zip(rows, unmarked, strict=True):
            row.append(rest)
    return rows


# --- several parts together -----------------------------------------------------------------------


def energy_of_parts(
    samples: WindowSlice,
    parts: Sequence[Span],
    rule: RailRule,
    timing: Timing = Timing(),  # noqa: B008 - immutable
) -> Figure | None:
    """Return the joules of several parts of a window together, without what lies between them.

    Each part is measured as a window of its own, and its bounds at the edges add up. Sampling and
    rounding are those of the readings of all parts. The result is ``None`` if the module's power is
    not known, if a part has less than two readings that certainly lie in it, or if there is no
    interval: all parts have too few readings, or their times are not known.
    """
    curve = module_curve(samples, rule)
    if curve is None:
        return None
    measured = _energy_by_part(curve, parts, timing)
    if measured is None:
        return None
    sampling = sampling_watts(_joined(measured, parts))
    if sampling is None or timing.clock is None:
        return None
    bounds = []
    for part in measured:
        if part.bounds is None:
            return None
        bounds.append(part.bounds)
    joules = fsum(part.joules for part in measured)
    seconds = sum(part.seconds for part in parts)
    rounding = _rounding_of_parts(samples, rule, measured)
    terms = {"sampling": sampling * seconds, "quantisation": rounding * seconds}
    return Figure.limited(joules, interval_of(joules, terms, *bounds))


def _energy_by_part(
    curve: Curve, parts: Sequence[Span], timing: Timing
) -> list[WindowEnergy] | None:
    """Return the energy of each part; ``None`` if too few readings certainly lie in one of them."""
    measured = []
    for part in parts:
        energy = window_energy(curve, part, timing)
        if energy is None or len(energy.readings.times_ns) < 2:
            return None
        if energy.readings.times_ns[0] <= part.begin_ns + timing.certain_after_seconds * 1e9:
            return None
        measured.append(energy)
    return measured


def _joined(measured: Sequence[WindowEnergy], parts: Sequence[Span]) -> Curve:
    """Return the readings of all parts as if the parts followed each other without a pause."""
    times: list[int] = []
    watts: list[float] = []
    seconds = 0.0
    for part, energy in zip(parts, measured, strict=True):
        since_begin_ns = round(seconds * 1e9) - part.begin_ns
        times += [at + since_begin_ns for at in energy.readings.times_ns]
        watts += energy.readings.watts
        seconds += part.seconds
    return Curve(times, watts)


def _rounding_of_parts(
    samples: WindowSlice, rule: RailRule, measured: Sequence[WindowEnergy]
) -> float:
    """Return half the 95 % interval, by rounding, of the mean power of all parts together."""
    used: set[int] = set()
    for part in measured:
        used.update(part.readings.times_ns)
    positions = [i for i, at in enumerate(samples.times_ns) if at in used]
    columns = RAIL_POWER.by_label(samples.only(positions).columns)
    rounding = []
    for name in rule.total:
        rounding.append(quantisation_watts(columns[name], rule.step_watts(name)))
    return hypot(*rounding)
