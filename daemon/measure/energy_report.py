"""The energy part of a report: each rail, the module, and their uncertainty."""

from collections.abc import Mapping, Sequence
from math import fsum, hypot, inf, isnan
from typing import NamedTuple

from ...parsers.inference.events import PhaseName
from ...parsers.rails import RailRule, averaging_seconds
from ...parsers.signals import RAIL_POWER
from .blocks import WindowSlice
from .counter import CounterEnergy, counter_energy, counter_fault, counter_total
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
from .quality import DRIFT_RATIO, baseline_drift
from .report import Energy, EnergyMethod, Environment, Figure, Interval, RailEnergy, Span
from .rhythm import Beat
from .uncertainty import FEWEST_POINTS, Wander, quantisation_watts, sampling_watts, wander

IDLE_PHASES: tuple[PhaseName, ...] = ("baseline_before", "baseline_after")
IDLE_EDGE_RATIO = 0.01
"""An idle phase is long enough for a counter if the error at its edges is at most this part."""
_Terms = dict[str, float]
_Bounds = tuple[float, float]


class MeasuredEnergy(NamedTuple):
    """The energy of a run, and what its measurement shows.

    Attributes:
        baseline_drifted: Idle power changed by more than its uncertainty.
        baseline_disturbed: Idle power was certainly above the power of the work.
        readings_disagree: Readings of power and the energy counter differ by more than their
            intervals.
    """

    energy: Energy
    baseline_drifted: bool = False
    baseline_disturbed: bool = False
    readings_disagree: bool = False


class _Idle(NamedTuple):
    """A settled idle phase and its readings."""

    span: Span
    readings: Curve


class _Gross(NamedTuple):
    """Gross energy, and its errors.

    Attributes:
        terms: Independent terms, each half of a 95 % interval; ``None`` if there is no interval.
        bounds: Lowest and highest error at the edges of the window.
    """

    joules: float
    method: EnergyMethod
    terms: _Terms | None
    bounds: _Bounds = (0.0, 0.0)

    @property
    def interval(self) -> Interval | None:
        """The 95 % interval."""
        return _interval(self.joules, self.terms, self.bounds)


class _Level(NamedTuple):
    """Power of an idle phase, and its errors in watts.

    Attributes:
        rounding: Half of the 95 % interval by the step of the sensor.
        edges: Greatest error at the edges of the phase, either way, of a counter.
    """

    watts: float
    rounding: float = 0.0
    edges: float = 0.0


class _Net(NamedTuple):
    """Energy above idle; the interval is ``None`` where it is not known."""

    joules: float
    baseline_watts: float
    interval: Interval | None = None
    largest: str | None = None
    has_drifted: bool = False

    def is_below_zero(self, gross_joules: float) -> bool:
        """Return whether idle power was certainly above the power of the work.

        Without an interval, it was by more than a drift of the idle power explains.
        """
        if self.interval is not None:
            return self.interval.high < 0
        return self.joules < -DRIFT_RATIO * abs(gross_joules)


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
    bounds = [one.edges for one in found if one.edges is not None]
    if len(bounds) < len(found):
        return None
    used = {at for one in found for at in one.readings.times_ns}
    kept = samples.only([i for i, at in enumerate(samples.times_ns) if at in used]).columns
    rounded = (
        quantisation_watts(kept[RAIL_POWER.column(name)], rule.step_watts(name))
        for name in rule.total
    )
    terms = {"sampling": sampling * seconds, "quantisation": hypot(*rounded) * seconds}
    interval = _interval(joules, terms, *bounds)
    return Figure(value=joules, **({} if interval is None else interval.model_dump()))


def measure_energy(
    samples: WindowSlice,
    phases: Mapping[PhaseName, Span],
    rule: RailRule | None,
    inferences: Figure | None = None,
    reading: Timing = Timing(),  # noqa: B008 - immutable
    beats: Sequence[Beat] = (),
    units: Figure | None = None,
) -> MeasuredEnergy | None:
    """Return the energy of the steady phase; ``None`` if no rail is known over the window.

    Args:
        samples: Samples of the steady phase and of the idle phases, with their neighbours.
        phases: Spans by phase, including ``steady``.
        rule: How the rails add up; ``None`` for an unknown board, then without a total.
        inferences: Divisor of the energy, maybe with its limits; ``None`` withholds the figures per
            inference.
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
    rails: dict[str, RailEnergy] = {}
    for name, column in columns.items():
        rail = _rail(samples, name, column, phases, reading, memory)
        if rail is not None:
            rails[name] = rail
    if not rails:
        return None
    if rule is None or curve is None or not all(name in rails for name in rule.total):
        return MeasuredEnergy(Energy(rule=rule.name if rule else None, rails=rails))
    counted = counter_total(samples, rule.total, window, reading.clock or 0.0)
    energy = Energy(
        rule=rule.name,
        total_rails=rule.total,
        rails=rails,
        counter_joules=counted and counted.joules,
        counter_edge_joules=counted and counted.edge_joules,
    )
    integral = _by_integral(samples, curve, rule, window, reading, beats)
    gross = integral if counted is None else _by_counter(counted, reading)
    if gross is None:
        return MeasuredEnergy(energy)
    update: dict[str, object] = {
        "gross_joules": gross.joules,
        "gross_method": gross.method,
        "gross_interval": gross.interval,
        "largest_uncertainty": _largest(gross.terms, gross.bounds),
        "offset_joules": rule.offset_watts and rule.offset_watts * window.seconds,
    }
    update |= _each("gross_joules_per_inference", gross.joules, gross.interval, inferences)
    update |= per_unit("", gross.joules, gross.interval, units)
    readings_disagree = False
    if counted is not None and integral is not None:
        update |= {"integral_joules": integral.joules, "integral_interval": integral.interval}
        readings_disagree = _are_apart(gross.interval, integral.interval)
    net = None
    if idle and quiet is not None:
        levels = _idle_levels(samples, rule, idle, memory, by_counter=counted is not None)
        net = _net(gross, idle, levels, quiet, window)
    is_below_zero = net is not None and net.is_below_zero(gross.joules)
    if net is not None and is_below_zero:
        work, quiet_watts = gross.joules / window.seconds, net.baseline_watts
        update["net_reason"] = (
            f"idle power ({quiet_watts:.4g} W) was above the power of the work ({work:.4g} W)"
        )
        bare = {"baseline_watts": None, "net_joules": None}
        update["rails"] = {name: rail.model_copy(update=bare) for name, rail in rails.items()}
    elif net is not None:
        update |= {"net_joules": net.joules, "baseline_watts": net.baseline_watts}
        if net.interval is not None:
            update |= {"net_interval": net.interval, "largest_uncertainty": net.largest}
        # Without an interval the gross figure may stand: its rule is the number of samples. Net
        # energy may be wrong by any drift or wander of the idle power.
        if not net.has_drifted and (gross.terms is None or net.interval is not None):
            update |= _each("net_joules_per_inference", net.joules, net.interval, inferences)
            update |= per_unit("net_", net.joules, net.interval, units)
    return MeasuredEnergy(
        energy.model_copy(update=update),
        baseline_drifted=net is not None and not is_below_zero and net.has_drifted,
        baseline_disturbed=is_below_zero,
        readings_disagree=readings_disagree,
    )


def _by_counter(counted: CounterEnergy, reading: Timing) -> _Gross:
    """Return the energy by the counters of the total rails."""
    edge = counted.edge_joules
    # Counters are neither sampled nor rounded: the edges are their only error.
    terms: _Terms | None = None if reading.clock is None else {}
    return _Gross(counted.joules, "counter", terms, (-edge, edge))


def _by_integral(
    samples: WindowSlice,
    curve: Curve,
    rule: RailRule,
    window: Span,
    reading: Timing,
    beats: Sequence[Beat],
) -> _Gross | None:
    """Return the energy by the readings of power; ``None`` if they do not cover the window."""
    found = window_energy(curve, window, reading)
    if found is None:
        return None
    sampling = sampling_watts(found.readings, beats)
    if sampling is None or reading.clock is None or found.edges is None:
        return _Gross(found.joules, "integral", None)
    terms = {
        "sampling": sampling * window.seconds,
        "quantisation": _rounding(samples, rule, found.readings) * window.seconds,
    }
    return _Gross(found.joules, "integral", terms, found.edges)


def _rounding(
    samples: WindowSlice, rule: RailRule, readings: Curve, *, is_idle: bool = False
) -> float:
    """Return half the 95 % interval of the mean of some readings of the total by rounding."""
    columns = RAIL_POWER.by_label(samples.columns)
    here = inside(
        samples.times_ns, Span(begin_ns=readings.times_ns[0], end_ns=readings.times_ns[-1])
    )
    parts = []
    for name in rule.total:
        seen = [watts for watts in columns[name][here] if not isnan(watts)]
        parts.append(quantisation_watts(seen, rule.step_watts(name), is_idle=is_idle))
    return hypot(*parts)


def _are_apart(one: Interval | None, other: Interval | None) -> bool:
    """Return whether two intervals have nothing in common."""
    if one is None or other is None:
        return False
    return one.high < other.low or other.high < one.low


def _idle_levels(
    samples: WindowSlice, rule: RailRule, idle: Sequence[_Idle], memory: float, *, by_counter: bool
) -> list[_Level]:
    """Return the power of each idle phase, by the counter where all of them are long enough."""
    if by_counter:
        levels = _counted_levels(samples, rule.total, idle)
        if levels:
            return levels
    return [
        _Level(
            idle_watts(phase.readings, phase.span, memory),
            _rounding(samples, rule, phase.readings, is_idle=True),
        )
        for phase in idle
    ]


def _counted_levels(
    samples: WindowSlice, rails: Sequence[str], idle: Sequence[_Idle]
) -> list[_Level]:
    """Return the power of each phase by counters; nothing if one is short against their edges."""
    levels = []
    for phase in idle:
        counted = counter_total(samples, rails, phase.span)
        if counted is None or counted.edge_joules > IDLE_EDGE_RATIO * counted.joules:
            return []
        seconds = phase.span.seconds
        levels.append(_Level(counted.joules / seconds, edges=counted.edge_joules / seconds))
    return levels


def _net(
    gross: _Gross, idle: Sequence[_Idle], levels: Sequence[_Level], quiet: Wander, window: Span
) -> _Net:
    """Return the energy above idle; it has an interval if both idle phases are known."""
    share = idle_share(idle[0].span, idle[-1].span, window)
    difference = levels[-1].watts - levels[0].watts
    baseline = _interpolated(idle, levels, window)
    net = _Net(gross.joules - baseline * window.seconds, baseline)
    if len(idle) != len(IDLE_PHASES):
        return net
    same = quiet.watts((1.0, 1.0), inf, quiet.memory)
    roundings = [level.rounding for level in levels]
    edges = fsum(level.edges for level in levels)
    unsure = hypot(same, *roundings) + edges
    net = net._replace(has_drifted=baseline_drift(difference, unsure, net.joules / window.seconds))
    if gross.terms is None or min(len(phase.readings.watts) for phase in idle) < FEWEST_POINTS:
        return net
    # Less one standard deviation, which is in ``idle_wander`` already. The nearer a
    # difference is to certain, the less of it can be that noise.
    doubt = min(1.0, 2 * max(0.0, 1 - abs(difference) / unsure)) if unsure else 0.0
    moved = max(0.0, abs(difference) - doubt * unsure / 2.5) * window.seconds
    drift = (-moved * (1 - share), moved * share)
    if difference < 0:
        drift = (-moved * share, moved * (1 - share))
    at_edges = (levels[0].edges * (1 - share) + levels[-1].edges * share) * window.seconds
    bounds = (gross.bounds[0] - at_edges, gross.bounds[1] + at_edges)
    rounding = hypot(gross.terms.get("quantisation", 0.0), max(roundings) * window.seconds)
    wandering = quiet.watts((1 - share, share), window.seconds, quiet.memory)
    terms = {
        **gross.terms,
        "quantisation": rounding,
        "idle_wander": wandering * window.seconds,
    }
    return net._replace(
        interval=_interval(net.joules, terms, bounds, drift),
        largest=_largest(terms, bounds, drift),
    )


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


def _interpolated(idle: Sequence[_Idle], levels: Sequence[_Level], window: Span) -> float:
    """Return the idle power that belongs to a window.

    It is the line between the middles of both idle phases, at the middle of the window, which is
    the mean of that line over the window. With one idle phase, it is the power of that phase.
    """
    share = idle_share(idle[0].span, idle[-1].span, window)
    return levels[0].watts + (levels[-1].watts - levels[0].watts) * share


def _interval(joules: float, terms: _Terms | None, *bounds: _Bounds) -> Interval | None:
    """Return the 95 % interval around an energy.

    The terms are independent and add in quadrature; each bound is added to its side.
    """
    if terms is None:
        return None
    half = hypot(*terms.values())
    low = joules + fsum(below for below, _ in bounds) - half
    high = joules + fsum(above for _, above in bounds) + half
    return Interval(low=low, high=high)


def per_unit(
    kind: str, joules: float, interval: Interval | None, units: Figure | None
) -> dict[str, object]:
    """Return an energy per unit, and its interval; nothing without units."""
    return _each(f"{kind}joules_per_unit", joules, interval, units)


def _each(
    name: str, joules: float, interval: Interval | None, count: Figure | None
) -> dict[str, object]:
    """Return an energy per piece of work by its name, and its interval; nothing without a count.

    Errors of energy and count may have one cause, a wrong edge, so the limits of both are combined.
    """
    if count is None:
        return {}
    low = count.value if count.low is None else count.low
    high = count.value if count.high is None else count.high
    if low <= 0:
        return {}
    each: Interval | None = None
    if interval is not None:
        ends = [limit / pieces for limit in (interval.low, interval.high) for pieces in (low, high)]
        each = Interval(low=min(ends), high=max(ends))
    return {name: joules / count.value, f"{name}_interval": each}


def _largest(terms: _Terms | None, edges: _Bounds, drift: _Bounds = (0.0, 0.0)) -> str | None:
    if terms is None:
        return None
    widths = {
        **terms,
        "window_edges": max(-edges[0], edges[1]),
        "baseline_drift": max(-drift[0], drift[1]),
    }
    return max(widths, key=widths.__getitem__)


def _rail(
    samples: WindowSlice,
    name: str,
    column: Sequence[float],
    phases: Mapping[PhaseName, Span],
    reading: Timing,
    memory: float,
) -> RailEnergy | None:
    window, curve = phases["steady"], known(samples.times_ns, column)
    if window.seconds <= 0:
        return None
    counted = counter_energy(samples, name, window, reading.clock or 0.0)
    if counted is None:
        integral = window_energy(curve, window, reading)
        if integral is None:
            return None
        joules = integral.joules
    else:
        joules = counted.joules
    idle = _idle_phases(curve, phases, reading)
    levels = [] if counted is None else _counted_levels(samples, (name,), idle)
    if not levels:
        levels = [_Level(idle_watts(one.readings, one.span, memory)) for one in idle]
    baseline = _interpolated(idle, levels, window) if idle else None
    return RailEnergy(
        gross_joules=joules,
        mean_watts=joules / window.seconds,
        baseline_watts=baseline,
        net_joules=None if baseline is None else joules - baseline * window.seconds,
        counter_joules=counted and counted.joules,
        counter_edge_joules=counted and counted.edge_joules,
        counter_fault=counter_fault(samples, name, window),
    )
