"""The energy part of a report: each rail, the module, and their uncertainty."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import hypot, isnan
from typing import NamedTuple

from ...collectors.board.boards import RailRule
from ...parsers.inference.events import PhaseName
from ...parsers.signals import RAIL_COUNTER, RAIL_COUNTER_AFTER, RAIL_COUNTER_READ, RAIL_POWER
from .blocks import WindowSlice
from .energy import (
    Curve,
    idle_share,
    idle_watts,
    inside,
    integrate,
    interpolate_idle,
    known,
    settled,
    total,
)
from .quality import baseline_drift
from .run_report import Energy, Interval, RailEnergy, Span
from .uncertainty import Spread, edge_joules, quantisation_watts, sampling_watts

TICK_SECONDS = 0.1
"""Time between two updates of an energy counter; measured on busy server GPUs."""

_IDLE_PHASES: tuple[PhaseName, ...] = ("baseline_before", "baseline_after")
_Idle = tuple[Span, float]
_Terms = Mapping[str, float]


class MeasuredEnergy(NamedTuple):
    """The energy of a run, and whether idle power changed by more than its uncertainty."""

    energy: Energy
    baseline_drifted: bool = False


def measure_energy(
    samples: WindowSlice,
    phases: Mapping[PhaseName, Span],
    rule: RailRule | None,
    inferences: int | None,
    seed: str,
    clock_seconds: float | None = 0.0,
) -> MeasuredEnergy | None:
    """Return the energy of the steady phase.

    Args:
        samples: Samples of the steady phase and of the idle phases, with their neighbours.
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
    columns = RAIL_POWER.by_label(samples.columns)
    rails = {
        name: rail
        for name, column in columns.items()
        if (rail := _rail(samples, name, column, phases)) is not None
    }
    if not rails:
        return None
    if rule is None or not all(name in rails for name in rule.total):
        return MeasuredEnergy(Energy(rule=rule.name if rule else None, rails=rails))
    summed = {name: columns[name] for name in rule.total}
    curve = total(samples.times_ns, summed.values())
    gross = integrate(curve.times_ns, curve.watts, window.begin_ns, window.end_ns)
    energy = Energy(
        rule=rule.name,
        total_rails=rule.total,
        rails=rails,
        counter_joules=_sum([rails[name].counter_joules for name in rule.total]),
        counter_edge_joules=_sum([rails[name].counter_edge_joules for name in rule.total]),
    )
    if gross is None:
        return MeasuredEnergy(energy)

    def spread(span: Span, seed: str) -> Spread | None:
        here = inside(curve.times_ns, span)
        sampling = sampling_watts(Curve(curve.times_ns[here], curve.watts[here]), seed)
        if sampling is None:
            return None
        here = inside(samples.times_ns, span)
        rounding = (
            quantisation_watts([w for w in column[here] if not isnan(w)], rule.step_watts(name))
            for name, column in summed.items()
        )
        return Spread(sampling, hypot(*rounding))

    idle = _idle(curve, phases)
    baseline = interpolate_idle(*idle, window)
    net = None if baseline is None else gross - baseline * window.seconds
    edges = edge_joules(curve, window.begin_ns, window.end_ns, clock_seconds or 0.0)
    work = spread(window, seed)
    idle_spreads = [
        None if one is None else spread(settled(one[0]), seed + phase)
        for phase, one in zip(_IDLE_PHASES, idle, strict=True)
    ]
    terms = None
    if work is not None and clock_seconds is not None:
        terms = {
            "sampling": work.sampling * window.seconds,
            "quantisation": work.quantisation * window.seconds,
        }
    net_terms, has_drifted = _compare_idle(idle, idle_spreads, terms, window, net)
    return MeasuredEnergy(
        energy.model_copy(
            update={
                "gross_joules": gross,
                "net_joules": net,
                "gross_joules_per_inference": gross / inferences if inferences else None,
                "net_joules_per_inference": net / inferences
                if inferences and net is not None
                else None,
                "baseline_watts": baseline,
                "gross_interval": _interval(gross, terms, edges, floor=0.0),
                "net_interval": None if net is None else _interval(net, net_terms, edges),
                "largest_uncertainty": _largest(net_terms or terms, edges),
            }
        ),
        has_drifted,
    )


def _compare_idle(
    idle: tuple[_Idle | None, _Idle | None],
    spreads: Sequence[Spread | None],
    gross: _Terms | None,
    window: Span,
    net: float | None,
) -> tuple[_Terms | None, bool]:
    """Return half widths in joules of the net energy by term, and whether idle power drifted.

    The idle power adds its own sampling, weighted like the power in ``interpolate_idle``. It also
    adds its rounding, the larger of the two, since a quiet board rounds alike before and after.
    Between the two idle phases the idle power may have had either value all the time: that is
    ``baseline_drift``. With only one idle phase, or too few samples in one, the drift is unknown,
    and the terms are ``None``.
    """
    first, last = idle
    before, after = spreads
    if first is None or last is None or before is None or after is None:
        return None, False
    difference = last[1] - first[1]
    net_watts = 0.0 if net is None else net / window.seconds
    has_drifted = baseline_drift(difference, hypot(before.watts, after.watts), net_watts)
    if gross is None:
        return None, has_drifted
    share = idle_share(first[0], last[0], window)
    sampling = hypot((1 - share) * before.sampling, share * after.sampling)
    rounding = max(before.quantisation, after.quantisation)
    terms = {
        "sampling": hypot(gross["sampling"], sampling * window.seconds),
        "quantisation": hypot(gross["quantisation"], rounding * window.seconds),
        "baseline_drift": max(share, 1 - share) * abs(difference) * window.seconds,
    }
    return terms, has_drifted


def _interval(
    joules: float, terms: _Terms | None, edges: tuple[float, float], floor: float | None = None
) -> Interval | None:
    """Return the 95 % interval around an energy whose true value is at least ``floor``.

    The terms are independent and add in quadrature. The energy hidden at the edges of the window
    has a sign and adds directly.
    """
    if terms is None:
        return None
    half = hypot(*terms.values())
    low = joules + edges[0] - half
    return Interval(low=low if floor is None else max(low, floor), high=joules + edges[1] + half)


def _largest(terms: _Terms | None, edges: tuple[float, float]) -> str | None:
    if terms is None:
        return None
    widths = {**terms, "window_edges": max(-edges[0], edges[1])}
    return max(widths, key=widths.__getitem__)


def _sum(joules: Sequence[float | None]) -> float | None:
    """Return the sum; ``None`` if a part is unknown."""
    known = [one for one in joules if one is not None]
    return sum(known) if known and len(known) == len(joules) else None


def _idle(curve: Curve, phases: Mapping[PhaseName, Span]) -> tuple[_Idle | None, _Idle | None]:
    before, after = (
        (phases[phase], watts)
        if (watts := idle_watts(curve, phases.get(phase))) is not None
        else None
        for phase in _IDLE_PHASES
    )
    return before, after


def _rail(
    samples: WindowSlice, name: str, column: Sequence[float], phases: Mapping[PhaseName, Span]
) -> RailEnergy | None:
    window = phases["steady"]
    gross = integrate(samples.times_ns, column, window.begin_ns, window.end_ns)
    if gross is None or window.seconds <= 0:
        return None
    baseline = interpolate_idle(*_idle(known(samples.times_ns, column), phases), window)
    counter = counter_energy(samples, name, window)
    return RailEnergy(
        gross_joules=gross,
        mean_watts=gross / window.seconds,
        baseline_watts=baseline,
        net_joules=None if baseline is None else gross - baseline * window.seconds,
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

    Args:
        samples: Samples of the window with a neighbour on each side.
        rail: Name of the rail.
        window: The steady window.

    Returns:
        The energy; ``None`` if the rail has no counter, if it was not read on both sides of both
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
