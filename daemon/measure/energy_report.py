"""The energy part of a report: each rail, the module, and their uncertainty."""

from collections.abc import Mapping, Sequence
from math import fsum, hypot, inf, isnan
from typing import NamedTuple

from ...parsers.inference.events import PhaseName
from ...parsers.rails import RailRule, averaging_seconds
from ...parsers.signals import RAIL_POWER
from .blocks import WindowSlice, known_values
from .counter import CounterEnergy, counter_energy, counter_fault, counter_total
from .energy import (
    LAG_SECONDS,
    Curve,
    Timing,
    idle_readings,
    idle_share,
    idle_watts,
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
# docs/decisions/interval.md, "Energy counter"
IDLE_EDGE_RATIO = 0.01
"""An idle phase is long enough for a counter if the error at its edges is at most this part."""
# docs/decisions/interval.md, "Second series"
MOST_APART = 0.1
"""Half an interval by two series that disagree, over the energy, above which none is given."""
# docs/decisions/interval.md, "Edges"
NVML_SENSOR_SECONDS = 0.1
"""How often the sensor behind NVML's instant power is read."""
_NVML_MEAN_SECONDS = 1.0
_Terms = dict[str, float]
_Bounds = tuple[float, float]


class MeasuredEnergy(NamedTuple):
    """The energy of a run, and what its measurement shows.

    Attributes:
        baseline_drifted: Idle power changed by more than its uncertainty.
        baseline_disturbed: Idle power was certainly above the power of the work.
        readings_disagree: Readings of power and the energy counter differ by more than their
            intervals.
        series_disagree: Two series of readings differ by more than their intervals, and by so much
            that no energy per piece is given.
    """

    energy: Energy
    baseline_drifted: bool = False
    baseline_disturbed: bool = False
    readings_disagree: bool = False
    series_disagree: bool = False


class _Idle(NamedTuple):
    """A settled idle phase and its readings."""

    span: Span
    readings: Curve


class _IdlePower(NamedTuple):
    """The idle phases in order of time, and how power wanders in them; both may be missing."""

    phases: list[_Idle]
    wander: Wander | None

    @property
    def memory(self) -> float:
        """Seconds over which idle power forgets; 0 without a phase."""
        return self.wander.memory if self.wander else 0.0

    @property
    def density(self) -> float | None:
        """Variance of idle power at low frequencies, in W²s; ``None`` without a phase."""
        return self.wander.density if self.wander else None


class _Gross(NamedTuple):
    """Gross energy, and its errors.

    Attributes:
        terms: Independent terms, each half of a 95 % interval; ``None`` if there is no interval.
        bounds: Lowest and highest error at the edges of the window.
        apart: How much lower and higher the energy of a second series may be, where they disagree.
    """

    joules: float
    method: EnergyMethod
    terms: _Terms | None
    bounds: _Bounds = (0.0, 0.0)
    apart: _Bounds = (0.0, 0.0)

    @property
    def interval(self) -> Interval | None:
        """The 95 % interval."""
        return interval_of(self.joules, self.terms, self.bounds, self.apart)

    @property
    def half(self) -> float:
        """Half of the 95 % interval, 0 without one."""
        interval = self.interval
        return 0.0 if interval is None else (interval.high - interval.low) / 2

    @property
    def is_far_apart(self) -> bool:
        """Whether a second series is so far away that no energy per piece is given."""
        return self.apart != (0.0, 0.0) and self.half > MOST_APART * self.joules


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


def timing_of(
    environment: Environment, clock_seconds: float | None = 0.0, late_seconds: float = 0.0
) -> Timing:
    """Return how the readings of a run relate to its window in time.

    NVML's instant power is read from its sensor every 100 ms, so it may be 50 ms older than the lag
    of any reading; its mean is one over a second. A board's sensors average as they are set: they
    forget with that time.

    ``clock_seconds`` is the difference between their clocks, ``None`` if unknown. Samples may have
    arrived ``late_seconds`` later than usual.
    """
    delay = LAG_SECONDS + late_seconds
    if environment.power_reading == "instant":
        # Half of the time between two readings of the sensor, on average.
        return Timing(clock_seconds, delay=delay + NVML_SENSOR_SECONDS / 2)
    if environment.power_reading == "usage":
        return Timing(clock_seconds, _NVML_MEAN_SECONDS, delay)
    forgetting = averaging_seconds(environment.rail_sensors)
    return Timing(clock_seconds, delay=delay, forgetting=forgetting)


def module_curve(samples: WindowSlice, rule: RailRule | None) -> Curve | None:
    """Return the power of the module; ``None`` for an unknown board, or without all its rails."""
    if rule is None:
        return None
    columns = RAIL_POWER.by_label(samples.columns)
    rails = []
    for name in rule.total:
        if name not in columns:
            return None
        rails.append(columns[name])
    return total(samples.times_ns, rails)


def measure_energy(
    samples: WindowSlice,
    phases: Mapping[PhaseName, Span],
    rule: RailRule | None,
    inferences: Figure | None = None,
    timing: Timing = Timing(),  # noqa: B008 - immutable
    beats: Sequence[Beat] = (),
    units: Figure | None = None,
    second: WindowSlice | None = None,
) -> MeasuredEnergy | None:
    """Return the energy of the steady phase; ``None`` if no rail is known over the window.

    Args:
        samples: Samples of the steady phase and of the idle phases, with their neighbours.
        phases: Spans by phase, including ``steady``.
        rule: How the rails add up; ``None`` for an unknown board, then without a total.
        inferences: Divisor of the energy, maybe with its limits; ``None`` withholds the figures per
            inference.
        timing: How readings and phases relate in time; without a known ``clock``, intervals are
            absent.
        beats: Those between work and sampling (``rhythm.folded_rhythm``); none if unknown.
        units: Number of units of work, maybe with its limits; ``None`` withholds energy per unit.
        second: Readings of the total rails at another interval, with few missing, if there are any.
    """
    window = phases["steady"]
    curve = module_curve(samples, rule)
    idle = _idle_power(curve, phases, timing)
    # The total is measured from the sum of the readings, and not from these figures: its interval
    # follows from how the power of the whole module moves.
    rails = _energy_by_rail(samples, phases, timing, idle.memory)
    if not rails:
        return None
    if rule is None:
        # An unknown board: which of its rails contains another one is not known.
        return MeasuredEnergy(Energy(rails=rails))
    if curve is None or not set(rule.total) <= rails.keys():
        return MeasuredEnergy(Energy(rule=rule.name, rails=rails))

    energy = Energy(rule=rule.name, total_rails=rule.total, rails=rails)
    counted = counter_total(samples, rule.total, window, timing.clock or 0.0)
    integral = _by_integral(samples, curve, rule, window, timing, beats, idle.density)
    if counted is not None:
        # A counter misses nothing between two readings, so it is better than their integral.
        gross = _by_counter(counted, timing)
        joules = {"counter_joules": counted.joules, "counter_edge_joules": counted.edge_joules}
        energy = energy.model_copy(update=joules)
    elif integral is not None:
        gross = _with_second_series(integral, second, rule, window, timing, idle.density)
    else:
        return MeasuredEnergy(energy)
    if gross.is_far_apart:
        inferences = units = None
    figures = _gross_figures(gross, rule, window, inferences, units)
    readings_disagree = False
    if counted is not None and integral is not None:
        figures |= {"integral_joules": integral.joules, "integral_interval": integral.interval}
        readings_disagree = _are_apart(gross.interval, integral.interval)
    measured = MeasuredEnergy(
        energy.model_copy(update=figures),
        readings_disagree=readings_disagree,
        series_disagree=gross.is_far_apart,
    )
    net = _net_of(samples, rule, gross, idle, window)
    if net is None:
        return measured
    is_disturbed = net.is_below_zero(gross.joules)
    if is_disturbed:
        figures = _without_net(gross, net, rails, window)
    else:
        figures = _net_figures(gross, net, inferences, units)
    return measured._replace(
        energy=measured.energy.model_copy(update=figures),
        baseline_drifted=net.has_drifted and not is_disturbed,
        baseline_disturbed=is_disturbed,
    )


def _idle_power(
    curve: Curve | None, phases: Mapping[PhaseName, Span], timing: Timing
) -> _IdlePower:
    """Return the module's power in the idle phases; no phase for an unknown board."""
    if curve is None:
        return _IdlePower([], None)
    idle = _idle_phases(curve, phases, timing)
    if not idle:
        return _IdlePower([], None)
    readings = [phase.readings for phase in idle]
    return _IdlePower(idle, wander(readings, timing.width))


def _energy_by_rail(
    samples: WindowSlice, phases: Mapping[PhaseName, Span], timing: Timing, memory: float
) -> dict[str, RailEnergy]:
    """Return the energy of each rail that is known over the window."""
    rails: dict[str, RailEnergy] = {}
    for name, column in RAIL_POWER.by_label(samples.columns).items():
        rail = _rail(samples, name, column, phases, timing, memory)
        if rail is not None:
            rails[name] = rail
    return rails


def _gross_figures(
    gross: _Gross, rule: RailRule, window: Span, inferences: Figure | None, units: Figure | None
) -> dict[str, object]:
    """Return the fields of ``Energy`` that the gross energy gives."""
    return {
        "gross_joules": gross.joules,
        "gross_method": gross.method,
        "gross_interval": gross.interval,
        "largest_uncertainty": _largest(
            gross.terms, window_edges=gross.bounds, second_series=gross.apart
        ),
        "offset_joules": rule.offset_watts and rule.offset_watts * window.seconds,
        **_per_piece("gross_joules_per_inference", gross.joules, gross.interval, inferences),
        **per_unit("", gross.joules, gross.interval, units),
    }


def _net_figures(
    gross: _Gross, net: _Net, inferences: Figure | None, units: Figure | None
) -> dict[str, object]:
    """Return the fields of ``Energy`` that the energy above idle gives."""
    figures: dict[str, object] = {
        "net_joules": net.joules,
        "baseline_watts": net.baseline_watts,
    }
    if net.interval is not None:
        figures |= {"net_interval": net.interval, "largest_uncertainty": net.largest}
    # Where the gross energy has an interval and the net energy has none, the idle phases are to
    # blame: idle power may have drifted or wandered by any amount. Where neither has one, for
    # example because the clock of the readings is unknown, nothing is held against the idle phases:
    # both figures are given without an interval.
    is_idle_unknown = net.interval is None and gross.terms is not None
    if not net.has_drifted and not is_idle_unknown:
        figures |= _per_piece("net_joules_per_inference", net.joules, net.interval, inferences)
        figures |= per_unit("net_", net.joules, net.interval, units)
    return figures


def _without_net(
    gross: _Gross, net: _Net, rails: Mapping[str, RailEnergy], window: Span
) -> dict[str, object]:
    """Return the fields of ``Energy`` that say why no energy is above idle.

    Work that draws less than the idle board is not measured work: something else ran in the idle
    phases, and no rail has idle power either.
    """
    work_watts = gross.joules / window.seconds
    reason = (
        f"idle power ({net.baseline_watts:.4g} W) was above the power of the work"
        f" ({work_watts:.4g} W)"
    )
    bare = {}
    for name, rail in rails.items():
        bare[name] = rail.model_copy(update={"baseline_watts": None, "net_joules": None})
    return {"net_reason": reason, "rails": bare}


def _by_counter(counted: CounterEnergy, timing: Timing) -> _Gross:
    """Return the energy by the counters of the total rails."""
    edge = counted.edge_joules
    # Counters are neither sampled nor rounded: the edges are their only error.
    terms: _Terms | None = None if timing.clock is None else {}
    return _Gross(counted.joules, "counter", terms, (-edge, edge))


def _by_integral(
    samples: WindowSlice,
    curve: Curve,
    rule: RailRule,
    window: Span,
    timing: Timing,
    beats: Sequence[Beat],
    idle_density: float | None,
) -> _Gross | None:
    """Return the energy by the readings of power; ``None`` if they do not cover the window."""
    if lacks_a_total_rail(samples, rule, window):
        return None
    energy = window_energy(curve, window, timing)
    if energy is None:
        return None
    sampling = sampling_watts(energy.readings, beats, idle_density)
    if sampling is None or timing.clock is None or energy.bounds is None:
        return _Gross(energy.joules, "integral", None)
    terms = {
        "sampling": sampling * window.seconds,
        "quantisation": _rounding_half_width(samples, rule, energy.readings) * window.seconds,
    }
    return _Gross(energy.joules, "integral", terms, energy.bounds)


def _with_second_series(
    gross: _Gross,
    samples: WindowSlice | None,
    rule: RailRule,
    window: Span,
    timing: Timing,
    idle_density: float | None,
) -> _Gross:
    """Return an energy with an interval that holds what a second series of readings allows.

    Work that keeps step with one series is met at all its moments by the other. So where they
    differ by more than their errors, either may be right.
    """
    if samples is None:
        return gross
    curve = module_curve(samples, rule)
    if curve is None:
        return gross
    # Its readings are of the moment, or of the last update of a slower sensor.
    at_once = timing._replace(delay=max(timing.delay - LAG_SECONDS, 0.0))
    second = _by_integral(samples, curve, rule, window, at_once, (), idle_density)
    ours, theirs = gross.interval, second.interval if second else None
    if second is None or ours is None or theirs is None:
        return gross
    if abs(gross.joules - second.joules) <= hypot(gross.half, second.half):
        return gross
    return gross._replace(
        apart=(min(theirs.low - ours.low, 0.0), max(theirs.high - ours.high, 0.0))
    )


def lacks_a_total_rail(samples: WindowSlice, rule: RailRule, window: Span) -> bool:
    """Return whether a line of the window has rails, but not all that add up to the module.

    Lines without any rail are lost lines, which a few trapezoids bridge. But a rail that is printed
    at some times only is not printed for a reason, and what it drew meanwhile would be a guess.
    """
    positions = samples.inside(window.begin_ns, window.end_ns)
    totals, rails = [], []
    for name, column in RAIL_POWER.by_label(samples.columns).items():
        rails.append(column[positions])
        if name in rule.total:
            totals.append(column[positions])
    for number in range(positions.stop - positions.start):
        lacks_total = any(isnan(column[number]) for column in totals)
        if lacks_total and not all(isnan(column[number]) for column in rails):
            return True
    return False


def _rounding_half_width(
    samples: WindowSlice, rule: RailRule, readings: Curve, *, is_idle: bool = False
) -> float:
    """Return half the 95 % interval of the mean of some readings of the total by rounding."""
    columns = RAIL_POWER.by_label(samples.columns)
    positions = samples.inside(readings.times_ns[0], readings.times_ns[-1])
    rounding = []
    for name in rule.total:
        watts = known_values(columns[name][positions])
        rounding.append(quantisation_watts(watts, rule.step_watts(name), is_idle=is_idle))
    return hypot(*rounding)


def _are_apart(first: Interval | None, second: Interval | None) -> bool:
    """Return whether two intervals have nothing in common."""
    if first is None or second is None:
        return False
    return first.high < second.low or second.high < first.low


def _idle_levels(
    samples: WindowSlice, rule: RailRule, idle: Sequence[_Idle], memory: float, *, by_counter: bool
) -> list[_Level]:
    """Return the power of each idle phase, by the counter where all of them are long enough."""
    if by_counter:
        levels = _counted_levels(samples, rule.total, idle)
        if levels:
            return levels
    levels = []
    for phase in idle:
        watts = idle_watts(phase.readings, phase.span, memory)
        rounding = _rounding_half_width(samples, rule, phase.readings, is_idle=True)
        levels.append(_Level(watts, rounding))
    return levels


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


def _net_of(
    samples: WindowSlice, rule: RailRule, gross: _Gross, idle: _IdlePower, window: Span
) -> _Net | None:
    """Return the energy above idle; ``None`` without an idle phase.

    It has an interval if both idle phases are known: one of them does not show how idle power
    changed over the window.
    """
    if idle.wander is None:
        return None
    levels = _idle_levels(
        samples, rule, idle.phases, idle.memory, by_counter=gross.method == "counter"
    )
    baseline = _interpolated(idle.phases, levels, window)
    net = _Net(gross.joules - baseline * window.seconds, baseline)
    if len(idle.phases) != len(IDLE_PHASES):
        return net
    difference = levels[-1].watts - levels[0].watts
    unsure = _unsure_watts(idle.wander, levels)
    has_drifted = baseline_drift(difference, unsure, net.joules / window.seconds)
    net = net._replace(has_drifted=has_drifted)
    if gross.terms is None:
        return net
    for phase in idle.phases:
        if len(phase.readings.watts) < FEWEST_POINTS:
            return net

    share = idle_share(idle.phases[0].span, idle.phases[-1].span, window)
    drift = _drift_bounds(difference, unsure, share, window)
    # The idle power of the window is ``1 - share`` of the level before and ``share`` of that after,
    # so it has as much of the errors of both. Their sign is not known: net energy may be wrong by
    # them either way.
    edge_watts = levels[0].edges * (1 - share) + levels[-1].edges * share
    at_edges = edge_watts * window.seconds
    bounds = (gross.bounds[0] - at_edges, gross.bounds[1] + at_edges)
    rounding = max(level.rounding for level in levels)
    wandering = idle.wander.watts((1 - share, share), window.seconds, idle.memory)
    terms = {
        **gross.terms,
        "quantisation": hypot(gross.terms.get("quantisation", 0.0), rounding * window.seconds),
        "idle_wander": wandering * window.seconds,
    }
    return net._replace(
        interval=interval_of(net.joules, terms, bounds, drift, gross.apart),
        largest=_largest(
            terms, window_edges=bounds, baseline_drift=drift, second_series=gross.apart
        ),
    )


def _unsure_watts(wander: Wander, levels: Sequence[_Level]) -> float:
    """Return half the 95 % interval of the difference between both levels of idle power."""
    wandering = wander.watts((1.0, 1.0), inf, wander.memory)
    rounding, edges = [], 0.0
    for level in levels:
        rounding.append(level.rounding)
        edges += level.edges
    return hypot(wandering, *rounding) + edges


def _drift_bounds(difference: float, unsure: float, share: float, window: Span) -> _Bounds:
    """Return the lowest and highest error of net energy by a change of idle power.

    When the power changed between the idle phases is not known: at the begin of the window, at its
    end, or at any time between. The baseline has ``share`` of the difference. If all of the window
    had the idle power from after it, the baseline lacks ``1 - share`` of the difference; if all had
    that from before it, the baseline has ``share`` too much. So these are the ends.

    Args:
        difference: Idle power after less before, in watts.
        unsure: Half the 95 % interval of that.
        share: Position of the window between the idle phases, from 0 to 1.
        window: The steady phase.
    """
    # One standard deviation of the difference is left out, since it is in ``idle_wander`` already:
    # in full up to half of ``unsure``, and in proportion to none at ``unsure``, because the nearer
    # a difference is to certain, the less of it can be noise.
    noise_share = 0.0
    if unsure:
        noise_share = min(1.0, 2 * max(0.0, 1 - abs(difference) / unsure))
    # Half a 95 % interval is two standard deviations, with Student's factor two and a half:
    # docs/decisions/interval.md, "Drift"
    certain_watts = max(0.0, abs(difference) - noise_share * unsure / 2.5)
    moved = certain_watts * window.seconds
    if difference < 0:
        return (-moved * share, moved * (1 - share))
    return (-moved * (1 - share), moved * share)


def _idle_phases(curve: Curve, phases: Mapping[PhaseName, Span], timing: Timing) -> list[_Idle]:
    """Return the idle phases with readings, in order of time."""
    idle = []
    for name in IDLE_PHASES:
        if name not in phases:
            continue
        span = settled(phases[name], timing)
        readings = idle_readings(curve, span)
        if readings is not None and span.seconds > 0:
            idle.append(_Idle(span, readings))
    return idle


def _interpolated(idle: Sequence[_Idle], levels: Sequence[_Level], window: Span) -> float:
    """Return the idle power that belongs to a window.

    It is the line between the middles of both idle phases, at the middle of the window, which is
    the mean of that line over the window. With one idle phase, it is the power of that phase.
    """
    share = idle_share(idle[0].span, idle[-1].span, window)
    return levels[0].watts + (levels[-1].watts - levels[0].watts) * share


def interval_of(joules: float, terms: _Terms | None, *bounds: _Bounds) -> Interval | None:
    """Return the 95 % interval around an energy.

    The terms are independent and add in quadrature; each bound is added to its side.
    """
    if terms is None:
        return None
    half = hypot(*terms.values())
    below, above = zip(*bounds, strict=True)
    return Interval(low=joules + fsum(below) - half, high=joules + fsum(above) + half)


def per_unit(
    kind: str, joules: float, interval: Interval | None, units: Figure | None
) -> dict[str, object]:
    """Return an energy per unit, and its interval; nothing without units."""
    return _per_piece(f"{kind}joules_per_unit", joules, interval, units)


def _per_piece(
    name: str, joules: float, interval: Interval | None, count: Figure | None
) -> dict[str, object]:
    """Return an energy per piece of work by its name, and its interval; nothing without a count.

    Errors of energy and count may have one cause, a wrong edge, so the limits of both are combined.
    """
    if count is None:
        return {}
    fewest, most = count.value, count.value
    if count.low is not None and count.high is not None:
        fewest, most = count.low, count.high
    if fewest <= 0:
        return {}
    each: Interval | None = None
    if interval is not None:
        low = min(interval.low / fewest, interval.low / most)
        high = max(interval.high / fewest, interval.high / most)
        each = Interval(low=low, high=high)
    return {name: joules / count.value, f"{name}_interval": each}


def _largest(terms: _Terms | None, **bounds: _Bounds) -> str | None:
    """Return the name of the largest error; ``None`` without an interval."""
    if terms is None:
        return None
    widths = dict(terms)
    for name, (below, above) in bounds.items():
        widths[name] = max(-below, above)
    return max(widths, key=widths.__getitem__)


def _rail(
    samples: WindowSlice,
    name: str,
    column: Sequence[float],
    phases: Mapping[PhaseName, Span],
    timing: Timing,
    memory: float,
) -> RailEnergy | None:
    """Return the energy of one rail; ``None`` if it is not known over the window."""
    window, curve = phases["steady"], known(samples.times_ns, column)
    if window.seconds <= 0:
        return None
    counted = counter_energy(samples, name, window, timing.clock or 0.0)
    idle = _idle_phases(curve, phases, timing)
    levels: list[_Level] = []
    if counted is not None:
        joules = counted.joules
        levels = _counted_levels(samples, (name,), idle)
    else:
        integral = window_energy(curve, window, timing)
        if integral is None:
            return None
        joules = integral.joules
    if not levels:
        levels = [_Level(idle_watts(phase.readings, phase.span, memory)) for phase in idle]
    baseline: float | None = None
    net: float | None = None
    if levels:
        baseline = _interpolated(idle, levels, window)
        net = joules - baseline * window.seconds
    return RailEnergy(
        gross_joules=joules,
        mean_watts=joules / window.seconds,
        baseline_watts=baseline,
        net_joules=net,
        counter_joules=counted and counted.joules,
        counter_edge_joules=counted and counted.edge_joules,
        counter_fault=counter_fault(samples, name, window),
    )
