"""The energy part of a report: each rail, the module, and their uncertainty."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from math import fsum, hypot, inf, isnan
from typing import NamedTuple

from ...collectors.board.boards import RailRule, averaging_seconds
from ...parsers.inference.events import PhaseName
from ...parsers.signals import RAIL_COUNTER, RAIL_COUNTER_AFTER, RAIL_COUNTER_READ, RAIL_POWER
from .blocks import WindowSlice
from .energy import (
    LAG_SECONDS,
    Curve,
    Timing,
    idle_readings,
    idle_share,
    idle_watts,
    inside,
    known,
    settled,
    total,
    window_energy,
)
from .quality import baseline_drift
from .rhythm import Beat
from .run_report import Energy, Environment, Figure, Interval, RailEnergy, Span
from .uncertainty import FEWEST_POINTS, quantisation_watts, sampling_watts, wander

TICK_SECONDS = 0.1
"""Time between two updates of an energy counter; measured on busy server GPUs."""

IDLE_PHASES: tuple[PhaseName, ...] = ("baseline_before", "baseline_after")
_Terms = dict[str, float]


class MeasuredEnergy(NamedTuple):
    """The energy of a run, and whether idle power changed by more than its uncertainty."""

    energy: Energy
    baseline_drifted: bool = False


class _Idle(NamedTuple):
    """A settled idle phase and its readings."""

    span: Span
    readings: Curve


def timing(
    environment: Environment, clock_seconds: float | None = 0.0, late_seconds: float = 0.0
) -> Timing:
    """Return how the readings of a run relate to its window in time.

    NVML's instant power is read from its sensor every 100 ms, so it may be 50 ms older than the lag
    of any reading; its mean is one over a second. A board's sensors average as they are set.

    ``clock_seconds`` is the difference between their clocks, ``None`` if unknown. Samples may have
    arrived ``late_seconds`` later than usual.
    """
    averaging = averaging_seconds(environment.rail_sensors)
    if environment.power_reading == "usage":
        averaging = 1.0
    is_instant = environment.power_reading == "instant"
    delay = LAG_SECONDS + late_seconds + (0.05 if is_instant else 0.0)
    return Timing(clock_seconds, averaging, delay)


def module_curve(samples: WindowSlice, rule: RailRule | None) -> Curve | None:
    """Return the power of the module; ``None`` for an unknown board, or without all its rails."""
    columns = RAIL_POWER.by_label(samples.columns)
    if rule is None or not all(name in columns for name in rule.total):
        return None
    return total(samples.times_ns, [columns[name] for name in rule.total])


def energy_of_parts(
    samples: WindowSlice,
    parts: Sequence[Span],
    rule: RailRule,
    reading: Timing = Timing(),  # noqa: B008 - immutable
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
    times: list[int] = []
    watts: list[float] = []
    seconds, found = 0.0, []
    for part in parts:
        one = window_energy(curve, part, reading)
        if one is None or len(one.readings.times_ns) < 2:
            return None
        if one.readings.times_ns[0] <= part.begin_ns + reading.skipped * 1e9:
            return None
        # The parts follow each other without a pause.
        times += [at - part.begin_ns + round(seconds * 1e9) for at in one.readings.times_ns]
        watts += one.readings.watts
        seconds += part.seconds
        found.append(one)
    joules = fsum(one.joules for one in found)
    sampling = sampling_watts(Curve(times, watts))
    if sampling is None or reading.clock is None:
        return None
    used = {at for one in found for at in one.readings.times_ns}
    kept = samples.only([i for i, at in enumerate(samples.times_ns) if at in used]).columns
    rounded = (
        quantisation_watts(kept[RAIL_POWER.column(name)], rule.step_watts(name))
        for name in rule.total
    )
    terms = {"sampling": sampling * seconds, "quantisation": hypot(*rounded) * seconds}
    interval = _interval(joules, terms, *(one.edges for one in found), floor=0.0)
    return Figure(value=joules, **({} if interval is None else interval.model_dump()))


def measure_energy(
    samples: WindowSlice,
    phases: Mapping[PhaseName, Span],
    rule: RailRule | None,
    inferences: int | None = None,
    reading: Timing = Timing(),  # noqa: B008 - immutable
    beats: Sequence[Beat] = (),
    units: Figure | None = None,
) -> MeasuredEnergy | None:
    """Return the energy of the steady phase; ``None`` if no rail is known over the window.

    Args:
        samples: Samples of the steady phase and of the idle phases, with their neighbours.
        phases: Spans by phase, including ``steady``.
        rule: How the rails add up; ``None`` for an unknown board, then without a total.
        inferences: Divisor of the energy; ``None`` withholds the figures per inference.
        reading: How readings and phases relate in time; without a known ``clock``, intervals are
            absent.
        beats: Those between work and sampling (``rhythm.folded_rhythm``); none if unknown.
        units: Number of units of work, maybe with its limits; ``None`` withholds energy per unit.
    """
    window = phases["steady"]
    columns = RAIL_POWER.by_label(samples.columns)
    curve = module_curve(samples, rule)
    idle = [] if curve is None else _idle_phases(curve, phases, reading)
    quiet = wander([one.readings for one in idle], reading.averaging) if idle else None
    memory = quiet.memory if quiet else 0.0
    rails = {
        name: rail
        for name, column in columns.items()
        if (rail := _rail(samples, name, column, phases, reading, memory)) is not None
    }
    if not rails:
        return None
    if rule is None or curve is None or not all(name in rails for name in rule.total):
        return MeasuredEnergy(Energy(rule=rule.name if rule else None, rails=rails))
    summed = {name: columns[name] for name in rule.total}
    gross = window_energy(curve, window, reading)
    energy = Energy(
        rule=rule.name,
        total_rails=rule.total,
        rails=rails,
        counter_joules=_sum([rails[name].counter_joules for name in rule.total]),
        counter_edge_joules=_sum([rails[name].counter_edge_joules for name in rule.total]),
    )
    if gross is None:
        return MeasuredEnergy(energy)

    def rounding(readings: Curve, *, is_idle: bool = False) -> float:
        span = Span(begin_ns=readings.times_ns[0], end_ns=readings.times_ns[-1])
        here = inside(samples.times_ns, span)
        seen = {name: [w for w in column[here] if not isnan(w)] for name, column in summed.items()}
        steps = ((watts, rule.step_watts(name)) for name, watts in seen.items())
        return hypot(*(quantisation_watts(*one, is_idle=is_idle) for one in steps))

    sampling = sampling_watts(gross.readings, beats)
    terms: _Terms | None = None
    if sampling is not None and reading.clock is not None:
        quantisation = rounding(gross.readings)
        terms = {
            "sampling": sampling * window.seconds,
            "quantisation": quantisation * window.seconds,
        }
    baseline = _interpolated(idle, window, memory)
    interval = _interval(gross.joules, terms, gross.edges, floor=0.0)
    update: dict[str, object] = {
        "gross_joules": gross.joules,
        "gross_interval": interval,
        "gross_joules_per_inference": gross.joules / inferences if inferences else None,
        "largest_uncertainty": _largest(terms, gross.edges),
        "offset_joules": rule.offset_watts and rule.offset_watts * window.seconds,
    }
    has_drifted = False
    if baseline is not None:
        net = gross.joules - baseline * window.seconds
        update |= {"net_joules": net, "baseline_watts": baseline}
        net_interval: Interval | None = None
        if quiet is not None and len(idle) == len(IDLE_PHASES):
            before, after = idle
            share = idle_share(before.span, after.span, window)
            first, last = (idle_watts(one.readings, one.span, memory) for one in idle)
            difference = last - first
            same = quiet.watts((1.0, 1.0), inf, memory)
            levels = [rounding(one.readings, is_idle=True) for one in idle]
            unsure = hypot(same, *levels)
            has_drifted = baseline_drift(difference, unsure, net / window.seconds)
            if terms is not None and min(len(one.readings.watts) for one in idle) >= FEWEST_POINTS:
                # Less one standard deviation, which is in ``idle_wander`` already. The nearer a
                # difference is to certain, the less of it can be that noise.
                doubt = min(1.0, 2 * max(0.0, 1 - abs(difference) / unsure)) if unsure else 0.0
                moved = max(0.0, abs(difference) - doubt * unsure / 2.5) * window.seconds
                drift = (-moved * (1 - share), moved * share)
                if difference < 0:
                    drift = (-moved * share, moved * (1 - share))
                terms = {
                    "sampling": terms["sampling"],
                    "quantisation": hypot(terms["quantisation"], max(levels) * window.seconds),
                    "idle_wander": window.seconds
                    * quiet.watts((1 - share, share), window.seconds, memory),
                }
                net_interval = _interval(net, terms, gross.edges, drift)
                update["net_interval"] = net_interval
                update["largest_uncertainty"] = _largest(terms, gross.edges, drift)
        # Without an interval the gross figure may stand: its rule is the number of samples. Net
        # energy may be wrong by any drift or wander of the idle power.
        if not has_drifted and (terms is None or net_interval is not None):
            update["net_joules_per_inference"] = net / inferences if inferences else None
            update |= per_unit("net_", net, net_interval, units)
    update |= per_unit("", gross.joules, interval, units)
    return MeasuredEnergy(energy.model_copy(update=update), has_drifted)


def _idle_phases(curve: Curve, phases: Mapping[PhaseName, Span], reading: Timing) -> list[_Idle]:
    """Return the idle phases with readings, in order of time."""
    found = []
    for phase in IDLE_PHASES:
        if phase in phases:
            span = settled(phases[phase], reading)
            readings = idle_readings(curve, span)
            if readings is not None and span.seconds > 0:
                found.append(_Idle(span, readings))
    return found


def _interpolated(idle: Sequence[_Idle], window: Span, memory: float) -> float | None:
    """Return the idle power that belongs to a window.

    It is the line between the middles of both idle phases, at the middle of the window, which is
    the mean of that line over the window. With one idle phase, it is the power of that phase; with
    none, ``None``.
    """
    if not idle:
        return None
    share = idle_share(idle[0].span, idle[-1].span, window)
    first, last = (idle_watts(one.readings, one.span, memory) for one in (idle[0], idle[-1]))
    return first + (last - first) * share


def _interval(
    joules: float, terms: _Terms | None, *bounds: tuple[float, float], floor: float | None = None
) -> Interval | None:
    """Return the 95 % interval around an energy whose true value is at least ``floor``.

    The terms are independent and add in quadrature; each bound is added to its side.
    """
    if terms is None:
        return None
    half = hypot(*terms.values())
    low = joules + sum(one for one, _ in bounds) - half
    high = joules + sum(one for _, one in bounds) + half
    return Interval(low=low if floor is None else max(low, floor), high=high)


def per_unit(
    kind: str, joules: float, interval: Interval | None, units: Figure | None
) -> dict[str, object]:
    """Return an energy per unit, and its interval; nothing without units.

    Errors of energy and count may have one cause, a wrong edge, so the limits of both are combined.
    """
    if units is None or (low := units.value if units.low is None else units.low) <= 0:
        return {}
    high = units.value if units.high is None else units.high
    limits = () if interval is None else (interval.low, interval.high)
    ends = [limit / count for limit in limits for count in (low, high)]
    return {
        f"{kind}joules_per_unit": joules / units.value,
        f"{kind}joules_per_unit_interval": Interval(low=min(ends), high=max(ends))
        if ends
        else None,
    }


def _largest(
    terms: _Terms | None, edges: tuple[float, float], drift: tuple[float, float] = (0.0, 0.0)
) -> str | None:
    if terms is None:
        return None
    widths = {
        **terms,
        "window_edges": max(-edges[0], edges[1]),
        "baseline_drift": max(-drift[0], drift[1]),
    }
    return max(widths, key=widths.__getitem__)


def _sum(joules: Iterable[float | None]) -> float | None:
    """Return the sum; ``None`` if a part is unknown."""
    parts = [*joules]
    known = [one for one in parts if one is not None]
    return sum(known) if known and len(known) == len(parts) else None


def _rail(
    samples: WindowSlice,
    name: str,
    column: Sequence[float],
    phases: Mapping[PhaseName, Span],
    reading: Timing,
    memory: float,
) -> RailEnergy | None:
    window, curve = phases["steady"], known(samples.times_ns, column)
    gross = window_energy(curve, window, reading)
    if gross is None or window.seconds <= 0:
        return None
    baseline = _interpolated(_idle_phases(curve, phases, reading), window, memory)
    counter = counter_energy(samples, name, window)
    return RailEnergy(
        gross_joules=gross.joules,
        mean_watts=gross.joules / window.seconds,
        baseline_watts=baseline,
        net_joules=None if baseline is None else gross.joules - baseline * window.seconds,
        counter_joules=counter and counter.joules,
        counter_edge_joules=counter and counter.edge_joules,
    )


class CounterEnergy(NamedTuple):
    """Growth of an energy counter, and its possible error, either way, at the edges."""

    joules: float
    edge_joules: float


def counter_energy(samples: WindowSlice, rail: str, window: Span) -> CounterEnergy | None:
    """Return the growth of a rail's energy counter in a window.

    Between two readings the counter is interpolated. Three errors add up. Power that steps just at
    an edge bends the counter there, so its value at the edge is also extrapolated from the first
    reading inside, at the mean power of the window; the difference is one error. The last update of
    the counter lies somewhere in the time before each edge: one update interval at mean power. And
    a reading takes some milliseconds, of which half count at either edge.

    The result is ``None`` if the rail has no counter, if it was not read on both sides of both
    edges, or if it was reset.
    """
    joules, after, read = (
        samples.columns.get(signal.column(rail))
        for signal in (RAIL_COUNTER, RAIL_COUNTER_AFTER, RAIL_COUNTER_READ)
    )
    if joules is None or after is None or read is None:
        return None
    known = [i for i, value in enumerate(joules) if not isnan(value)]
    times = [samples.times_ns[i] + after[i] * 1e9 for i in known]
    counts = [joules[i] for i in known]
    before, last = (bisect_right(times, edge) - 1 for edge in (window.begin_ns, window.end_ns))
    if before < 0 or last + 1 >= len(times) or window.seconds <= 0:
        return None
    if any(b < a for a, b in pairwise(counts[before : last + 2])):
        return None

    def count_at(before: int, at_ns: int) -> float:
        share = (at_ns - times[before]) / (times[before + 1] - times[before])
        return counts[before] + share * (counts[before + 1] - counts[before])

    begin, end = count_at(before, window.begin_ns), count_at(last, window.end_ns)
    watts = (end - begin) / window.seconds
    bent = 0.0
    for value, outer, inner, edge_ns in (
        (begin, before, before + 1, window.begin_ns),
        (end, last + 1, last, window.end_ns),
    ):
        extrapolated = counts[inner] + watts * (edge_ns - times[inner]) / 1e9
        low, high = sorted((counts[outer], counts[inner]))
        bent += abs(min(max(extrapolated, low), high) - value)
    reading = (read[known[before]] + read[known[last]]) / 2
    return CounterEnergy(end - begin, watts * (TICK_SECONDS + reading) + bent)
