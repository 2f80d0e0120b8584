"""The energy part of a report: each rail, the module, and how sure they are."""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import hypot, isnan

from ..collectors.board import RailRule
from ..parsers.run_events import PhaseName
from .board_counter import counted
from .budget import Idle, around, drifted, gross_terms, largest, net_terms
from .cut import Cut
from .energy import (
    Curve,
    idle_watts,
    integrate,
    interpolate_idle,
    known,
    rail_columns,
    settled,
    total,
)
from .run_report import Energy, RailEnergy, Span
from .uncertainty import Spread, edge_joules, quantisation_watts, sampling_watts

_IDLE_PHASES: tuple[PhaseName, ...] = ("baseline_before", "baseline_after")


@dataclass(frozen=True, slots=True)
class MeasuredEnergy:
    """The energy of a run and what was noticed in measuring it.

    Attributes:
        energy: What is reported.
        baseline_drifted: Idle power before and after differ by more than is uncertain.
    """

    energy: Energy
    baseline_drifted: bool = False


def measure_energy(
    cut: Cut,
    phases: Mapping[PhaseName, Span],
    rule: RailRule | None,
    inferences: int | None,
    seed: str,
    clock_seconds: float | None = 0.0,
) -> MeasuredEnergy | None:
    """Return the energy of the steady phase.

    Args:
        cut: Samples of the steady phase and of the idle phases, with their neighbours.
        phases: Spans; ``steady`` is one of them.
        rule: How the rails add up; ``None`` where the board is not known, then without a total.
        inferences: By which energy is divided; ``None`` withholds the figures per inference.
        seed: Of the bootstrap.
        clock_seconds: By how much samples and phases may differ in time, beyond the lag of an
            arrival; ``None`` where that is not known, and then there is no interval.

    Returns:
        The energy; ``None`` where no rail is known over the window.
    """
    window = phases["steady"]
    columns = rail_columns(cut.columns)
    rails = {
        name: rail
        for name, column in columns.items()
        if (rail := _rail(cut, name, column, phases)) is not None
    }
    if not rails:
        return None
    if rule is None or not all(name in rails for name in rule.total):
        return MeasuredEnergy(Energy(rule=rule.name if rule else None, rails=rails))
    summed = {name: columns[name] for name in rule.total}
    curve = total(cut.times_ns, summed.values())
    gross = integrate(curve.times_ns, curve.watts, window.begin_ns, window.end_ns)
    named = Energy(
        rule=rule.name,
        total_rails=rule.total,
        rails=rails,
        counter_joules=_together([rails[name].counter_joules for name in rule.total]),
        counter_edge_joules=_together([rails[name].counter_edge_joules for name in rule.total]),
    )
    if gross is None:
        return MeasuredEnergy(named)
    work = _spread(curve, cut.times_ns, summed, rule, window, seed)
    before, after = (
        _idle(curve, cut.times_ns, summed, rule, phases.get(phase), seed + phase)
        for phase in _IDLE_PHASES
    )
    baseline = interpolate_idle(
        before.measured if before else None, after.measured if after else None, window
    )
    net = None if baseline is None else gross - baseline * window.seconds
    edges = edge_joules(curve, window.begin_ns, window.end_ns, clock_seconds or 0.0)
    terms = None if clock_seconds is None else gross_terms(work, window.seconds)
    net_of = net_terms(terms, before, after, window)
    named_terms = net_of or terms
    energy = named.model_copy(
        update={
            "gross_joules": gross,
            "net_joules": net,
            "gross_joules_per_inference": gross / inferences if inferences else None,
            "net_joules_per_inference": net / inferences
            if inferences and net is not None
            else None,
            "baseline_watts": baseline,
            "gross_interval": around(gross, terms, edges, floor=0.0),
            "net_interval": None if net is None else around(net, net_of, edges),
            "largest_uncertainty": largest(named_terms, edges),
        }
    )
    net_watts = None if net is None else net / window.seconds
    return MeasuredEnergy(energy, drifted(before, after, net_watts))


def _together(joules: Sequence[float | None]) -> float | None:
    known = [one for one in joules if one is not None]
    return sum(known) if known and len(known) == len(joules) else None


def _rail(
    cut: Cut, name: str, column: Sequence[float], phases: Mapping[PhaseName, Span]
) -> RailEnergy | None:
    window, times_ns = phases["steady"], cut.times_ns
    gross = integrate(times_ns, column, window.begin_ns, window.end_ns)
    if gross is None or window.seconds <= 0:
        return None
    curve = known(times_ns, column)
    before, after = (
        (phases[phase], watts)
        if (watts := idle_watts(curve, phases.get(phase))) is not None
        else None
        for phase in _IDLE_PHASES
    )
    baseline = interpolate_idle(before, after, window)
    counter = counted(cut, name, window)
    return RailEnergy(
        gross_joules=gross,
        mean_watts=gross / window.seconds,
        baseline_watts=baseline,
        net_joules=None if baseline is None else gross - baseline * window.seconds,
        counter_joules=counter and counter.joules,
        counter_edge_joules=counter and counter.edge_joules,
    )


def _spread(
    curve: Curve,
    times_ns: Sequence[int],
    rails: Mapping[str, Sequence[float]],
    rule: RailRule,
    span: Span,
    seed: str,
) -> Spread | None:
    inside = _inside(curve.times_ns, span)
    sampling = sampling_watts(Curve(curve.times_ns[inside], curve.watts[inside]), seed)
    if sampling is None:
        return None
    here = _inside(times_ns, span)
    rounding = (
        quantisation_watts([w for w in column[here] if not isnan(w)], rule.step_watts(name))
        for name, column in rails.items()
    )
    return Spread(sampling, hypot(*rounding))


def _idle(
    curve: Curve,
    times_ns: Sequence[int],
    rails: Mapping[str, Sequence[float]],
    rule: RailRule,
    phase: Span | None,
    seed: str,
) -> Idle | None:
    watts = idle_watts(curve, phase)
    if phase is None or watts is None:
        return None
    return Idle(phase, watts, _spread(curve, times_ns, rails, rule, settled(phase), seed))


def _inside(times_ns: Sequence[int], span: Span) -> slice:
    return slice(bisect_left(times_ns, span.begin_ns), bisect_right(times_ns, span.end_ns))
