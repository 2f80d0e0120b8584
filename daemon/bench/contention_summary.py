"""Joint rounds become figures: how much slower, at which power, and what each model adds."""

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import hypot
from statistics import median

from ..measure.run_report import Distribution, Interval
from ..measure.run_trace import distribution
from .contention_result import Contention, LaneTogether, Together
from .joint import Joint
from .measured import BenchFlag, Figure, Status
from .placements import On
from .plan import agree
from .rounds import LOAD_STEP
from .statistics import mean_of_rounds, median_half_width

# A figure of one round and half its 95 % interval, where the round can tell.
_Point = tuple[float, float | None]
_ByTurn = Mapping[int, Joint]


@dataclass(frozen=True)
class NotRun:
    """Why something has no figures.

    Attributes:
        status: How it ended.
        reason: One line.
    """

    status: Status
    reason: str


def summarise_contention(
    ways: Sequence[On], rounds: Sequence[Joint], not_run: Mapping[On, NotRun], turns: int
) -> Contention:
    """Return what all rounds say.

    Args:
        ways: All that was to be measured, in the order of a pass.
        rounds: All that was, in the order of time.
        not_run: What failed.
        turns: Passes that were planned.
    """
    by_way: dict[On, dict[int, Joint]] = {on: {} for on in ways}
    for one in rounds:
        by_way[one.on][one.record.turn] = one
    return Contention(
        planned_seconds=0.0,
        together=tuple(_together(on, by_way, not_run.get(on), turns) for on in ways),
        rounds=tuple(one.record for one in rounds),
    )


def _together(on: On, by_way: Mapping[On, _ByTurn], not_run: NotRun | None, turns: int) -> Together:
    found = by_way[on]
    joints = [one for one in found.values() if one.record.window is not None]
    if not_run is None and not joints:
        not_run = NotRun("cancelled", "the bench was interrupted")
    lanes = tuple(_lane(on, place, by_way) for place in range(len(on)))
    if not_run is not None and len(joints) < turns:
        return Together(lanes=lanes, status=not_run.status, reason=not_run.reason)
    loads = [one.record.load for one in joints]
    reports = [[one.record.runs[place] for one in joints] for place in range(len(on))]
    is_steady = all(agree(runs) for runs in reports) if len(joints) > 1 else None
    flags: Counter[BenchFlag] = Counter(chain.from_iterable(one.flags for one in joints))
    if is_steady is False:
        flags["not_steady"] = len(joints)
    return Together(
        lanes=lanes,
        status="ok",
        rounds=len(joints),
        seconds=sum(one.seconds for one in joints) / len(joints),
        gross_joules=_mean(joints, lambda one: _gross(one, 1.0)),
        net_joules=_mean(joints, lambda one: _net(one, 1.0)),
        gross_watts=_mean(joints, lambda one: _gross(one, one.seconds)),
        net_watts=_mean(joints, lambda one: _net(one, one.seconds)),
        excess_watts=None if len(on) == 1 else _mean(joints, lambda one: _excess(one, by_way)),
        utilization={
            name: figure
            for name in (loads[0] if loads else {})
            if all(name in load for load in loads)
            and (figure := mean_of_rounds([load[name] for load in loads], floor=LOAD_STEP / 2))
        },
        is_steady=is_steady,
        flags=dict(flags),
    )


def _lane(on: On, place: int, by_way: Mapping[On, _ByTurn]) -> LaneTogether:
    joints = [one for one in by_way[on].values() if one.record.window is not None]
    alone = by_way.get((on[place],), {})
    latency = distribution(_all_latencies(joints, place))
    medians = [one for one in joints if one.latency_ns[place]]
    identity = {"model": on[place].model, "device": on[place].device}
    measured = LaneTogether(
        **identity,
        latency=latency,
        latency_seconds=mean_of_rounds(
            [median(one.latency_ns[place]) / 1e9 for one in medians],
            [median_half_width(one.latency_ns[place]) for one in medians],
        ),
        throughput_per_second=mean_of_rounds([one.throughput[place] for one in joints]),
    )
    if len(on) == 1:
        return measured
    rest = by_way.get(on[:place] + on[place + 1 :], {})
    marginal = [
        (difference, one.throughput[place] / one.record.runs[place].batch)
        for one in joints
        if (difference := _marginal(one, rest.get(one.record.turn))) is not None
    ]
    by_inference = [
        (watts / rate, None if half is None else half / rate)
        for (watts, half), rate in marginal
        if rate > 0
    ]
    return measured.model_copy(
        update={
            "slowdown": _mean(joints, lambda one: _slowdown(one, place, alone)),
            "tail_slowdown": _tail(latency, distribution(_all_latencies(alone.values(), 0))),
            "throughput_ratio": _mean(joints, lambda one: _throughput_ratio(one, place, alone)),
            "marginal_watts": _of_points([watts for watts, _ in marginal], len(joints)),
            "marginal_joules_per_inference": _of_points(by_inference, len(joints)),
        }
    )


def _all_latencies(joints: Iterable[Joint], place: int) -> "array[int]":
    return array(
        "q", chain.from_iterable(one.latency_ns[place] for one in joints if one.latency_ns)
    )


def _mean(joints: Sequence[Joint], read: Callable[[Joint], _Point | None]) -> Figure | None:
    return _of_points([point for one in joints if (point := read(one)) is not None], len(joints))


def _of_points(points: Sequence[_Point], rounds: int) -> Figure | None:
    """Return the mean of rounds that know a figure, if those are more than half."""
    if 2 * len(points) <= rounds:
        return None
    return mean_of_rounds([value for value, _ in points], [half for _, half in points])


def _gross(one: Joint, seconds: float) -> _Point | None:
    energy = one.energy
    if energy is None or energy.gross_joules is None:
        return None
    return energy.gross_joules / seconds, _half(energy.gross_interval, seconds)


def _net(one: Joint, seconds: float) -> _Point | None:
    energy = one.energy
    if energy is None or energy.net_joules is None:
        return None
    return energy.net_joules / seconds, _half(energy.net_interval, seconds)


def _half(interval: Interval | None, seconds: float) -> float | None:
    return None if interval is None else (interval.high - interval.low) / 2 / seconds


def _excess(one: Joint, by_way: Mapping[On, _ByTurn]) -> _Point | None:
    """Return net power less what the same inferences cost alone, in the same pass."""
    here = _net(one, one.seconds)
    if here is None:
        return None
    watts, half = here
    for place, placed in enumerate(one.on):
        alone = by_way.get((placed,), {}).get(one.record.turn)
        cost = None if alone is None else _net(alone, alone.seconds)
        if alone is None or cost is None or not alone.throughput[0]:
            return None
        share = one.throughput[place] / alone.throughput[0]
        watts -= share * cost[0]
        half = None if half is None or cost[1] is None else hypot(half, share * cost[1])
    return watts, half


def _marginal(one: Joint, without: Joint | None) -> _Point | None:
    """Return net power with a model on less that with it off, in the same pass."""
    on = _net(one, one.seconds)
    off = None if without is None else _net(without, without.seconds)
    if on is None or off is None:
        return None
    half = None if on[1] is None or off[1] is None else hypot(on[1], off[1])
    return on[0] - off[0], half


def _slowdown(one: Joint, place: int, alone: _ByTurn) -> _Point | None:
    before = alone.get(one.record.turn)
    if before is None or not before.latency_ns or not before.latency_ns[0]:
        return None
    here, there = one.latency_ns[place], before.latency_ns[0]
    if not here or not median(there):
        return None
    ratio = median(here) / median(there)
    halves = median_half_width(here), median_half_width(there)
    if halves[0] is None or halves[1] is None:
        return ratio, None
    relative = hypot(halves[0] / median(here), halves[1] / median(there)) * 1e9
    return ratio, ratio * relative


def _throughput_ratio(one: Joint, place: int, alone: _ByTurn) -> _Point | None:
    before = alone.get(one.record.turn)
    if before is None or not before.throughput or not before.throughput[0]:
        return None
    return one.throughput[place] / before.throughput[0], None


def _tail(here: Distribution | None, alone: Distribution | None) -> float | None:
    if here is None or alone is None or alone.p99_seconds <= 0:
        return None
    return here.p99_seconds / alone.p99_seconds
