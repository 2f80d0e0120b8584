"""The energy part of a report: each rail, the module, and their uncertainty."""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import hypot, isnan

from ...collectors.board.boards import RailRule
from ...parsers.inference.events import PhaseName
from ...parsers.signals import RAIL_COUNTER, RAIL_COUNTER_AFTER, RAIL_COUNTER_READ, RAIL_POWER
from .energy import (
    Curve,
    idle_share,
    idle_watts,
    integrate,
    interpolate_idle,
    known,
    settled,
    total,
)
from .quality import baseline_drift
from .run_report import Energy, Interval, RailEnergy, Span
from .slices import WindowSlice
from .uncertainty import Spread, edge_joules, quantisation_watts, sampling_watts

Terms = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Idle:
    """Power of one idle phase; ``spread`` is ``None`` if there were too few samples."""

    span: Span
    watts: float
    spread: Spread | None

    @property
    def measured(self) -> tuple[Span, float]:
        """Phase and mean power, as ``interpolate_idle`` needs them."""
        return self.span, self.watts


def gross_terms(work: Spread | None, seconds: float) -> Terms | None:
    """Return half widths in joules of the gross energy, by term; ``None`` if unknown."""
    if work is None:
        return None
    return {"sampling": work.sampling * seconds, "quantisation": work.quantisation * seconds}


def net_terms(
    gross: Terms | None, before: Idle | None, after: Idle | None, window: Span
) -> Terms | None:
    """Return half widths in joules of the net energy, by term.

    The idle power adds its own sampling, weighted like the power in ``interpolate_idle``. It also
    adds its rounding, the larger of the two, since a quiet board rounds alike before and after.
    Between the two idle phases the idle power may have had either value all the time: that is
    ``baseline_drift``.

    Returns:
        The terms; ``None`` with only one idle phase, because its drift is unknown.
    """
    if gross is None or before is None or after is None:
        return None
    if before.spread is None or after.spread is None:
        return None
    share = idle_share(before.span, after.span, window)
    drift = max(share, 1 - share) * abs(after.watts - before.watts)
    sampling = hypot((1 - share) * before.spread.sampling, share * after.spread.sampling)
    rounding = max(before.spread.quantisation, after.spread.quantisation)
    return {
        "sampling": hypot(gross["sampling"], sampling * window.seconds),
        "quantisation": hypot(gross["quantisation"], rounding * window.seconds),
        "baseline_drift": drift * window.seconds,
    }


def around(
    joules: float, terms: Terms | None, edges: tuple[float, float], floor: float | None = None
) -> Interval | None:
    """Return the 95 % interval around an energy.

    Args:
        joules: The energy.
        terms: Half widths of the independent terms, which add in quadrature.
        edges: Least and greatest energy hidden at the edges of the window, which adds directly.
        floor: Lower limit of the true energy.
    """
    if terms is None:
        return None
    half = hypot(*terms.values())
    low = joules + edges[0] - half
    return Interval(low=low if floor is None else max(low, floor), high=joules + edges[1] + half)


def largest(terms: Terms | None, edges: tuple[float, float]) -> str | None:
    """Return the name of the largest term, ``window_edges`` included."""
    if terms is None:
        return None
    widths = {**terms, "window_edges": max(-edges[0], edges[1])}
    return max(widths, key=widths.__getitem__)


def drifted(before: Idle | None, after: Idle | None, net_watts: float | None) -> bool:
    """Return whether idle power changed enough to matter; False if unknown."""
    if before is None or after is None or before.spread is None or after.spread is None:
        return False
    uncertain = hypot(before.spread.watts, after.spread.watts)
    return baseline_drift(after.watts - before.watts, uncertain, net_watts or 0.0)


TICK_SECONDS = 0.1
"""How often a counter ticks; measured on server GPUs while they were busy."""


@dataclass(frozen=True, slots=True)
class Counted:
    """What a counter says of a window.

    Attributes:
        joules: Its growth.
        edge_joules: By how much that may be off either way, because the counter stands still
            between two ticks and was not read exactly at the edges.
    """

    joules: float
    edge_joules: float


def counted(cut: WindowSlice, rail: str, window: Span) -> Counted | None:
    """Return what the counter of a rail says of a window.

    Between two readings the counter is interpolated. Power that steps just at an edge bends it
    there: so the same edge is also told from inside, going back from the first reading within at
    the mean power of the window, and the difference is part of the error. To that come one tick
    at mean power, since the last tick lies somewhere in the time before each edge, and half of
    the milliseconds that a reading takes, at either edge.

    Args:
        cut: Samples of the window with a neighbour on each side.
        rail: Its name.
        window: The steady window.

    Returns:
        The energy; ``None`` where the rail has no counter, it was not read on both sides of
        both edges, or it began anew meanwhile.
    """
    joules, after, read = (
        cut.columns.get(signal.column(rail))
        for signal in (RAIL_COUNTER, RAIL_COUNTER_AFTER, RAIL_COUNTER_READ)
    )
    if joules is None or after is None or read is None:
        return None
    known = [i for i, value in enumerate(joules) if not isnan(value)]
    times = [cut.times_ns[i] + after[i] * 1e9 for i in known]
    counts = [joules[i] for i in known]
    before, last = (bisect_right(times, edge) - 1 for edge in (window.begin_ns, window.end_ns))
    if before < 0 or last + 1 >= len(times) or window.seconds <= 0:
        return None
    if any(b < a for a, b in pairwise(counts[before : last + 2])):
        return None
    begin = _at(times, counts, before, window.begin_ns)
    end = _at(times, counts, last, window.end_ns)
    watts = (end - begin) / window.seconds
    bent = 0.0
    for value, outer, inner, edge_ns in (
        (begin, before, before + 1, window.begin_ns),
        (end, last + 1, last, window.end_ns),
    ):
        inside = counts[inner] + watts * (edge_ns - times[inner]) / 1e9
        low, high = sorted((counts[outer], counts[inner]))
        bent += abs(min(max(inside, low), high) - value)
    reading = (read[known[before]] + read[known[last]]) / 2
    return Counted(end - begin, watts * (TICK_SECONDS + reading) + bent)


def _at(times: Sequence[float], counts: Sequence[float], before: int, at_ns: int) -> float:
    share = (at_ns - times[before]) / (times[before + 1] - times[before])
    return counts[before] + share * (counts[before + 1] - counts[before])


_IDLE_PHASES: tuple[PhaseName, ...] = ("baseline_before", "baseline_after")


@dataclass(frozen=True, slots=True)
class MeasuredEnergy:
    """The energy of a run, and whether idle power changed by more than its uncertainty."""

    energy: Energy
    baseline_drifted: bool = False


def measure_energy(
    cut: WindowSlice,
    phases: Mapping[PhaseName, Span],
    rule: RailRule | None,
    inferences: int | None,
    seed: str,
    clock_seconds: float | None = 0.0,
) -> MeasuredEnergy | None:
    """Return the energy of the steady phase.

    Args:
        cut: Samples of the steady phase and of the idle phases, with their neighbours.
        phases: Spans by phase, including ``steady``.
        rule: How the rails add up; ``None`` for an unknown board, then without a total.
        inferences: Divisor of the energy; ``None`` withholds the figures per inference.
        seed: Seed of the bootstrap.
        clock_seconds: Possible difference between samples and phases in time, beyond the lag of an
            arrival; if ``None``, it is unknown, and intervals are absent.

    Returns:
        The energy; ``None`` if no rail is known over the window.
    """
    window = phases["steady"]
    columns = RAIL_POWER.by_label(cut.columns)
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
    cut: WindowSlice, name: str, column: Sequence[float], phases: Mapping[PhaseName, Span]
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
