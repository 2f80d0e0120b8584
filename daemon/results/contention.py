"""Runs that overlap become joint rounds, and those slowdown, power and marginal energy."""

from array import array
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import hypot
from statistics import median
from typing import Literal, TypeAlias

from ...collectors.board.boards import RailRule
from ...parsers.inference.events import PhaseName
from ..measure.blocks import WindowSlice
from ..measure.energy_report import measure_energy
from ..measure.quality import in_order, insufficient_samples
from ..measure.run_report import (
    Distribution,
    Energy,
    Environment,
    Flag,
    RunReport,
    Span,
    distribution,
)
from ..measure.uncertainty import unsure_seconds
from ..measure.utilization import telemetry
from .records import (
    BenchFlag,
    Contention,
    Figure,
    JointRound,
    LaneTogether,
    Placed,
    Status,
    Together,
)
from .summary import (
    Point,
    agree,
    interval_half,
    joined,
    mean_loads,
    mean_of_most,
    mean_of_rounds,
    median_half_width,
    reported_flags,
)

# Models that run at once, each on its accelerator.
On: TypeAlias = tuple[Placed, ...]
_PHASES: tuple[PhaseName, ...] = ("steady", "baseline_before", "baseline_after")
# The runs overlap on purpose, the inferences of the joint window are counted anew, and whether
# they are steady is judged over all rounds.
_NOT_OF_JOINT: frozenset[Flag] = frozenset({"overlapped", "insufficient_samples", "not_steady"})
_WITHHOLDING: frozenset[Flag] = frozenset({"aliased", "insufficient_samples"})


@dataclass(frozen=True)
class Joint:
    """A round of models that ran at once.

    For each model: the latencies of its inferences in the joint window, in the order of time, and
    its throughput in inputs per second.
    """

    record: JointRound
    on: On
    latency_ns: "tuple[array[int], ...]" = ()
    throughput: tuple[float, ...] = ()
    flags: tuple[Flag, ...] = ()

    @property
    def energy(self) -> Energy | None:
        """Energy of the joint window; ``None`` if it is withheld."""
        return None if _WITHHOLDING & set(self.flags) else self.record.energy

    @property
    def seconds(self) -> float:
        """Length of the joint window; 0 if there is none."""
        return 0.0 if self.record.window is None else self.record.window.seconds

    def joules(self, kind: Literal["gross", "net"], divisor: float = 1.0) -> Point | None:
        """Return the energy over a divisor; ``None`` if it is withheld or not known."""
        value: float | None = getattr(self.energy, f"{kind}_joules", None)
        if value is None:
            return None
        return value / divisor, interval_half(getattr(self.energy, f"{kind}_interval"), divisor)

    @property
    def net_watts(self) -> Point | None:
        """Mean net power."""
        return self.joules("net", self.seconds)


@dataclass(frozen=True)
class NotRun:
    """Why a group of models has no figures, in one line."""

    status: Status
    reason: str


def joint_span(spans: Sequence[Span]) -> Span | None:
    """Return the time that spans have in common.

    >>> joint_span([Span(begin_ns=0, end_ns=9), Span(begin_ns=2, end_ns=12)])
    Span(begin_ns=2, end_ns=9)
    """
    begin_ns = max((span.begin_ns for span in spans), default=0)
    end_ns = min((span.end_ns for span in spans), default=0)
    return Span(begin_ns=begin_ns, end_ns=end_ns) if begin_ns < end_ns else None


def join_runs(
    turn: int,
    on: On,
    reports: Sequence[RunReport],
    latencies_in: Callable[[Span], Sequence["array[int]"]],
    cut_of: Callable[[int, int], WindowSlice],
    rule: RailRule | None,
    environment: Environment,
) -> Joint:
    """Return the joint round of runs that went on at once.

    ``latencies_in`` returns the latencies of each run in a window, in nanoseconds, and ``cut_of``
    the samples between two times.
    """
    phases: dict[PhaseName, Span] = {}
    for phase in _PHASES:
        spans = [one.phases[phase] for one in reports if phase in one.phases]
        common = joint_span(spans) if len(spans) == len(reports) else None
        if common is not None:
            phases[phase] = common
    window = phases.get("steady")
    if window is None:
        return Joint(JointRound(turn=turn, lanes=on, runs=tuple(reports)), on)
    done = latencies_in(window)
    cut = cut_of(
        min(span.begin_ns for span in phases.values()), max(s.end_ns for s in phases.values())
    )
    board = telemetry(cut, window) if cut.times_ns else None
    raised: set[Flag] = {flag for one in reports for flag in reported_flags(one)} - _NOT_OF_JOINT
    if board is not None and insufficient_samples(
        window.seconds, board.samples, min(map(len, done))
    ):
        raised.add("insufficient_samples")
    unsure = unsure_seconds(0.0, environment.power_reading)
    seed = " ".join(one.run_id for one in reports)
    measured = measure_energy(cut, phases, rule, None, seed, unsure)
    if measured is not None and measured.baseline_drifted:
        raised.add("baseline_drift")
    loads = {} if board is None else board.utilization
    record = JointRound(
        turn=turn,
        lanes=on,
        window=window,
        inferences=tuple(map(len, done)),
        energy=measured and measured.energy,
        load={name: load.mean_ratio for name, load in loads.items()},
        runs=tuple(reports),
    )
    rates = [
        len(each) * one.batch / window.seconds for each, one in zip(done, reports, strict=True)
    ]
    return Joint(record, on, tuple(done), tuple(rates), in_order(raised))


# A group of models to its joint rounds by turn.
_Rounds: TypeAlias = Mapping[On, Mapping[int, Joint]]


def summarise_contention(
    groups: Sequence[On],
    rounds: Sequence[Joint],
    not_run: Mapping[On, NotRun],
    turns: int,
    planned_seconds: float = 0.0,
) -> Contention:
    """Return the figures of all rounds, which are in the order of time.

    ``groups`` are in the order of a pass, ``turns`` is the number of planned passes.
    """
    by_group: dict[On, dict[int, Joint]] = {on: {} for on in groups}
    for one in rounds:
        by_group[one.on][one.record.turn] = one
    return Contention(
        planned_seconds=planned_seconds,
        together=tuple(_together(on, by_group, not_run.get(on), turns) for on in groups),
        rounds=tuple(one.record for one in rounds),
    )


def _together(on: On, rounds: _Rounds, not_run: NotRun | None, turns: int) -> Together:
    joints = _with_window(rounds[on])
    if not_run is None and not joints:
        not_run = NotRun("cancelled", "the benchmark was interrupted")
    lanes = tuple(_lane(on, place, rounds) for place in range(len(on)))
    if not_run is not None and len(joints) < turns:
        return Together(lanes=lanes, status=not_run.status, reason=not_run.reason)
    flags: Counter[BenchFlag] = Counter(flag for one in joints for flag in one.flags)
    is_steady = None
    if len(joints) > 1:
        reports = ([one.record.runs[place] for one in joints] for place in range(len(on)))
        is_steady = all(map(agree, reports))
        if not is_steady:
            flags["not_steady"] = len(joints)
    return Together(
        lanes=lanes,
        status="ok",
        rounds=len(joints),
        seconds=sum(one.seconds for one in joints) / len(joints),
        gross_joules=_mean(joints, lambda one: one.joules("gross")),
        net_joules=_mean(joints, lambda one: one.joules("net")),
        gross_watts=_mean(joints, lambda one: one.joules("gross", one.seconds)),
        net_watts=_mean(joints, lambda one: one.net_watts),
        excess_watts=None if len(on) == 1 else _mean(joints, lambda one: _excess(one, rounds)),
        utilization=mean_loads([one.record.load for one in joints]),
        is_steady=is_steady,
        flags=dict(flags),
    )


def _lane(on: On, place: int, rounds: _Rounds) -> LaneTogether:
    joints = _with_window(rounds[on])
    alone = rounds.get((on[place],), {})
    latency = distribution(joined(one.latency_ns[place] for one in joints if one.latency_ns))
    timed = [one.latency_ns[place] for one in joints if one.latency_ns[place]]
    measured = LaneTogether(
        **dict(on[place]),
        latency=latency,
        latency_seconds=mean_of_rounds(
            [median(each) / 1e9 for each in timed], [median_half_width(each) for each in timed]
        ),
        throughput_per_second=mean_of_rounds([one.throughput[place] for one in joints]),
    )
    if len(on) == 1:
        return measured
    rest = rounds.get(on[:place] + on[place + 1 :], {})

    def marginal(one: Joint) -> Point | None:
        without = rest.get(one.record.turn)
        return None if without is None else _less(one.net_watts, without.net_watts)

    def per_inference(one: Joint) -> Point | None:
        added, rate = marginal(one), one.throughput[place] / one.record.runs[place].batch
        if added is None or rate <= 0:
            return None
        return added[0] / rate, None if added[1] is None else added[1] / rate

    singles = (one.latency_ns[0] for one in alone.values() if one.latency_ns)
    return measured.model_copy(
        update={
            "slowdown": _mean(joints, lambda one: _slowdown(one, place, alone)),
            "tail_slowdown": _tail(latency, distribution(joined(singles))),
            "throughput_ratio": _mean(joints, lambda one: _throughput_ratio(one, place, alone)),
            "marginal_watts": _mean(joints, marginal),
            "marginal_joules_per_inference": _mean(joints, per_inference),
        }
    )


def _with_window(by_turn: Mapping[int, Joint]) -> list[Joint]:
    return [one for one in by_turn.values() if one.record.window is not None]


def _mean(joints: Sequence[Joint], read: Callable[[Joint], Point | None]) -> Figure | None:
    return mean_of_most([point for one in joints if (point := read(one)) is not None], len(joints))


def _less(one: Point | None, other: Point | None, share: float = 1.0) -> Point | None:
    if one is None or other is None:
        return None
    half = None if one[1] is None or other[1] is None else hypot(one[1], share * other[1])
    return one[0] - share * other[0], half


def _excess(one: Joint, rounds: _Rounds) -> Point | None:
    """Return net power less the power of the same inferences alone, in the same turn."""
    excess = one.net_watts
    for place, placed in enumerate(one.on):
        alone = rounds.get((placed,), {}).get(one.record.turn)
        if alone is None or not alone.throughput or not alone.throughput[0]:
            return None
        excess = _less(excess, alone.net_watts, one.throughput[place] / alone.throughput[0])
    return excess


def _slowdown(one: Joint, place: int, alone: Mapping[int, Joint]) -> Point | None:
    before = alone.get(one.record.turn)
    here = one.latency_ns[place]
    there = before.latency_ns[0] if before is not None and before.latency_ns else ()
    if not here or not there or not median(there):
        return None
    ratio = median(here) / median(there)
    halves = median_half_width(here), median_half_width(there)
    if halves[0] is None or halves[1] is None:
        return ratio, None
    relative = hypot(halves[0] / median(here), halves[1] / median(there)) * 1e9
    return ratio, ratio * relative


def _throughput_ratio(one: Joint, place: int, alone: Mapping[int, Joint]) -> Point | None:
    before = alone.get(one.record.turn)
    if before is None or not before.throughput or not before.throughput[0]:
        return None
    return one.throughput[place] / before.throughput[0], None


def _tail(here: Distribution | None, alone: Distribution | None) -> float | None:
    if here is None or alone is None or alone.p99_seconds <= 0:
        return None
    return here.p99_seconds / alone.p99_seconds
