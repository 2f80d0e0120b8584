"""Gross energy of each phase of an application's own work, such as prefill and decode.

A phase of which each occurrence has enough readings is cut out at its edges, as a window is. For
shorter ones, the readings of the whole window are explained by the phases in which they were taken:
least squares give the power of each phase, with an interval. Otherwise the energy is absent.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate, pairwise
from math import dist, fsum, hypot, isnan, sqrt
from typing import NamedTuple

from ...parsers.rails import RailRule
from ...parsers.signals import RAIL_POWER
from .blocks import WindowSlice
from .energy import Curve, Timing, inside, interval_ns, known, total, window_energy
from .energy_report import per_unit
from .numerics import dot, inverse, student
from .report import Figure, Interval, PhaseEnergy, Span, WorkPhase
from .uncertainty import FEWEST_POINTS, quantisation_watts, sampling_watts

DELAYS, FINER = 5, 4
"""Delays that are tried, from none to the longest, and parts of the time between two near the
best."""
LIKELY, FITTED_READINGS = 15.0, 4000
MOST_BLOCKS, READINGS_PER_BLOCK, FEWEST_READINGS = 20, 8, 10
MOMENT_NS = 1_000_000


class _Phase:
    """All occurrences of a phase in order of time."""

    def __init__(self, spans: list[WorkPhase]) -> None:
        self.spans = spans
        self.seconds = fsum(one.seconds for one in spans)
        self._begins_ns = [one.begin_ns for one in spans]
        self._before_ns = [0, *accumulate(one.end_ns - one.begin_ns for one in spans)]

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


class _Found(NamedTuple):
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
    reading: Timing,
    withheld: str | None = None,
) -> tuple[PhaseEnergy, ...]:
    """Return the energy of each phase of a window, in the order of their first occurrence.

    Args:
        samples: Samples of the window, with their neighbours and all rails of the total.
        rule: How the rails add up.
        window: The window.
        phases: Its phases in order of time, apart from each other.
        reading: How readings and phases relate in time.
        withheld: Why there is no energy, if there may be none.
    """
    times, columns = samples.times_ns, RAIL_POWER.by_label(samples.columns)
    rails = [columns[name] for name in rule.total]
    curve = total(times, rails)
    named = {
        name: _Phase([span for span in phases if span.name == name])
        for name in dict.fromkeys(one.name for one in phases)
    }
    fitted = {} if withheld else _by_regression(times, rails, window, named, reading)
    result = []
    for name, phase in named.items():
        units = [one.units for one in phase.spans if one.units is not None]
        bare = PhaseEnergy(
            name=name,
            count=len(phase.spans),
            seconds=phase.seconds,
            units=fsum(units) if units else None,
        )
        cut = None if withheld else _cut(curve, phase.spans, reading)
        found = cut or fitted.get(name)
        if found is None:
            reason = withheld or "it is too short or too rare for the readings"
            result.append(bare.model_copy(update={"reason": reason}))
            continue
        here = [inside(times, one) for one in phase.spans]
        rounding: list[float] = []
        for rail, watts in zip(rule.total, rails, strict=True):
            seen = [w for part in here for w in watts[part] if not isnan(w)]
            if seen:
                rounding.append(quantisation_watts(seen, rule.step_watts(rail)))
        interval: Interval | None = None
        # A rail without a reading in the phase is rounded by an unknown amount.
        if len(rounding) == len(rails):
            half = hypot(found.half, hypot(*rounding) * phase.seconds)
            interval = Interval(low=found.low - half, high=found.high + half)
        energy: dict[str, object] = {
            "method": "cut" if cut else "regression",
            "gross_joules": found.joules,
            "gross_interval": interval,
        }
        count = bare.units and Figure(value=bare.units)
        energy |= per_unit("", found.joules, interval, count or None)
        result.append(bare.model_copy(update=energy))
    return tuple(result)


def _cut(curve: Curve, spans: Sequence[WorkPhase], reading: Timing) -> _Found | None:
    """Return the energy of spans if each has enough readings that are certainly inside."""
    joules: list[float] = []
    lows: list[float] = []
    highs: list[float] = []
    halves: list[float] = []
    for span in spans:
        first = bisect_right(curve.times_ns, span.begin_ns + round(reading.skipped * 1e9))
        last = bisect_left(curve.times_ns, span.end_ns - round((reading.clock or 0.0) * 1e9))
        if last - first < FEWEST_POINTS or reading.clock is None:
            return None
        near = inside(curve.times_ns, span)
        near = slice(max(near.start - 2, 0), near.stop + 2)
        around = Curve(curve.times_ns[near], curve.watts[near])
        energy = window_energy(around, span, reading)
        sampling = None if energy is None else sampling_watts(energy.readings)
        if energy is None or energy.edges is None or sampling is None:
            return None
        joules.append(energy.joules)
        lows.append(energy.edges[0])
        highs.append(energy.edges[1])
        halves.append(sampling * span.seconds)
    total_joules = fsum(joules)
    low, high = total_joules + fsum(lows), total_joules + fsum(highs)
    return _Found(total_joules, low, high, hypot(*halves))


def _by_regression(
    times_ns: Sequence[int],
    rails: Sequence[Sequence[float]],
    window: Span,
    named: dict[str, _Phase],
    reading: Timing,
) -> dict[str, _Found]:
    """Return the energy of each phase that is long and frequent enough for the readings.

    The others count as unmarked time. Each rail has a delay of its own.
    """
    fewest = FEWEST_READINGS * (interval_ns(times_ns) or 0.0) / 1e9
    told = {
        name: phase
        for name, phase in named.items()
        if phase.seconds > max(fewest, reading.delay * len(phase.spans))
    }
    if reading.clock is None or not told:
        return {}
    phases = [*told.values()]
    found = [_regressed(known(times_ns, watts), window, phases, reading) for watts in rails]
    if not all(found):
        return {}
    sums = ([*map(fsum, zip(*parts, strict=True))] for parts in zip(*found, strict=True))
    return {name: _Found(*each) for name, each in zip(told, sums, strict=True)}


def _regressed(
    curve: Curve, window: Span, phases: Sequence[_Phase], reading: Timing
) -> list[_Found]:
    """Return the energy of a rail in each phase; nothing if the readings are too few.

    A reading is the mean power of ``averaging`` seconds that ended up to ``delay`` before its
    arrival. Delays are tried, first few and then more near the best, and some that differ from
    reading to reading. Those that explain the readings nearly as well as the best are likely, and
    so are its neighbours. Their intervals are joined.
    """
    clock_ns, delay_ns = (reading.clock or 0.0) * 1e9, reading.delay * 1e9
    width_ns = max(reading.averaging * 1e9, MOMENT_NS)
    first = bisect_right(curve.times_ns, window.begin_ns + clock_ns + delay_ns + width_ns)
    here = slice(first, bisect_left(curve.times_ns, window.end_ns - clock_ns))
    readings = Curve(curve.times_ns[here], curve.watts[here])
    some = Curve(readings.times_ns[:FITTED_READINGS], readings.watts[:FITTED_READINGS])
    step_ns = (delay_ns + 2 * clock_ns) / (DELAYS - 1)
    fixed = [(step_ns * i - clock_ns, width_ns) for i in range(DELAYS)]
    varying = [(-clock_ns, width_ns + step_ns * i) for i in range(1, DELAYS)]
    fits = {lag: fit for lag in fixed if (fit := _fit(some, window, phases, lag))}
    if not fits:
        return []
    middle_ns, _ = min(fits, key=lambda lag: fits[lag].left)
    fixed = [(middle_ns + step_ns * i / FINER, width_ns) for i in range(1 - FINER, FINER)]
    fits |= {lag: fit for lag in fixed + varying if (fit := _fit(some, window, phases, lag))}
    best = min(fits, key=lambda lag: fits[lag].left)
    most = fits[best].left * (1 + LIKELY / len(some.watts))
    kind, beside = (varying, step_ns) if best in varying else (fixed, step_ns / FINER)
    likely = [
        lag
        for lag, fit in fits.items()
        if fit.left <= most or (lag in kind and dist(lag, best) < 1.01 * beside)
    ]
    if len(readings.watts) > len(some.watts):
        fits = {lag: fit for lag in likely if (fit := _fit(readings, window, phases, lag))}
    every = [[*zip(fits[lag].joules, fits[lag].halves, strict=True)] for lag in likely]
    return [
        _Found(joules, min(j - half for j, half in one), max(j + half for j, half in one))
        for joules, one in zip(fits[best].joules, zip(*every, strict=True), strict=True)
    ]


def _fit(
    readings: Curve, window: Span, phases: Sequence[_Phase], lag: tuple[float, float]
) -> _Fit | None:
    """Explain readings by the shares of the phases in their time, and by a slow change.

    The interval is by the sums of errors over blocks of neighbouring readings, which are alike.
    ``lag`` is the time from the end of what a reading describes to its arrival, and the length of
    that, in nanoseconds.
    """
    ago, width = lag
    middle, length = (window.begin_ns + window.end_ns) / 2, window.end_ns - window.begin_ns
    rows = []
    for at in readings.times_ns:
        shares = [(one.until(at - ago) - one.until(at - ago - width)) / width for one in phases]
        rows.append([*shares, (at - middle) / length])
    unmarked = [1.0 - fsum(row[:-1]) for row in rows]
    if fsum(unmarked) >= 1.0:
        rows = [[*row, rest] for row, rest in zip(rows, unmarked, strict=True)]
    columns = [*zip(*rows, strict=True)]
    blocks = min(MOST_BLOCKS, len(rows) // READINGS_PER_BLOCK)
    freedom = blocks - len(columns)
    if freedom < 1 or min(map(fsum, columns[: len(phases)])) < FEWEST_READINGS / 2:
        return None
    try:
        solved = inverse([[dot(a, b) for b in columns] for a in columns])
    except ZeroDivisionError:
        return None
    moments = [dot(column, readings.watts) for column in columns]
    factors = [dot(row, moments) for row in solved]
    errors = [w - dot(row, factors) for row, w in zip(rows, readings.watts, strict=True)]
    edges = [*pairwise(len(rows) * i // blocks for i in range(blocks + 1))]
    joules, halves = [], []
    for number, one in enumerate(phases):
        slow = fsum((s.begin_ns + s.end_ns - 2 * middle) * s.seconds for s in one.spans)
        weights = [0.0] * len(columns)
        weights[number], weights[len(phases)] = one.seconds, slow / 2 / length
        gains = [dot(row, weights) for row in solved]
        parts = [dot(row, gains) * error for row, error in zip(rows, errors, strict=True)]
        sums = [fsum(parts[a:b]) for a, b in edges]
        joules.append(dot(weights, factors))
        halves.append(sqrt(dot(sums, sums) * blocks / freedom) * student(freedom))
    return _Fit(joules, halves, dot(errors, errors))
