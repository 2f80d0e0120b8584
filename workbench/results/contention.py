"""Runs that overlap become joint rounds, and those slowdown, power and marginal energy."""

from array import array
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import hypot
from statistics import median
from typing import NamedTuple, TypeAlias

from ...daemon.measure.blocks import WindowSlice
from ...daemon.measure.energy_report import IDLE_PHASES, measure_energy, timing
from ...daemon.measure.figures import (
    Kind,
    difference,
    joules_of,
    mean_energy,
    mean_of_most,
    mean_of_rounds,
)
from ...daemon.measure.latency import distribution
from ...daemon.measure.quality import (
    BUSY_RATIO,
    busiest_gpu_ratio,
    in_order,
    insufficient_samples,
    late_seconds,
    timed,
    withholding,
)
from ...daemon.measure.report import Environment, Figure, Flag, RunReport, Span
from ...daemon.measure.trace import RunTrace
from ...daemon.measure.utilization import telemetry
from ...parsers.inference.events import PhaseName
from ...parsers.rails import RailRule
from .records import BenchFlag, Contention, JointRound, LaneTogether, Placed, Status, Together
from .summary import agree, foreign_processes, joined, mean_loads, median_half_width, reported_flags

# Models that run at once, each on its accelerator.
On: TypeAlias = tuple[Placed, ...]
_PHASES: tuple[PhaseName, ...] = ("steady", "baseline_before", "baseline_after")
# The runs overlap on purpose, the inferences of the joint window are counted anew, and whether
# they are steady is judged over all rounds.
_NOT_OF_JOINT: frozenset[Flag] = frozenset(
    {"overlapped", "baseline_disturbed", "insufficient_samples", "not_steady"}
)
_WITHHOLDING: frozenset[Flag] = frozenset({"aliased", "insufficient_samples"})


@dataclass(frozen=True)
class Joint:
    """A round of models that ran at once.

    For each model: the latencies of its inferences in the joint window, in the order of time, and
    its throughput in inputs per second.
    """

    record: JointRound
    latency_ns: "tuple[array[int], ...]" = ()
    throughput: tuple[float, ...] = ()
    flags: tuple[Flag, ...] = ()

    def joules(self, kind: Kind, divisor: float = 1.0) -> Figure | None:
        """Return the energy of the joint window; ``None`` if it is withheld or not known."""
        energy = self.record.energy
        method = None if energy is None else energy.gross_method
        is_withheld = _WITHHOLDING & set(withholding(self.flags, method))
        return None if is_withheld else joules_of(self.record.energy, kind, divisor)

    def watts(self, kind: Kind) -> Figure | None:
        """Return the mean power in the joint window; ``None`` if it is withheld or not known."""
        window = self.record.window
        return None if window is None else self.joules(kind, window.seconds)


class NotRun(NamedTuple):
    """Why a group of models has no figures, in one line."""

    status: Status
    reason: str


def joint_span(spans: Sequence[Span]) -> Span | None:
    """Return the time that spans have in common, if any."""
    begin_ns = max((span.begin_ns for span in spans), default=0)
    end_ns = min((span.end_ns for span in spans), default=0)
    return Span(begin_ns=begin_ns, end_ns=end_ns) if begin_ns < end_ns else None


def join_runs(
    turn: int,
    on: On,
    runs: Sequence[tuple[RunReport, RunTrace]],
    cut_of: Callable[[int, int], WindowSlice],
    rule: RailRule | None,
    environment: Environment,
) -> Joint:
    """Return the joint round of runs; ``cut_of`` returns the samples between two times."""
    reports = [report for report, _ in runs]
    phases: dict[PhaseName, Span] = {}
    for phase in _PHASES:
        spans = [one.phases[phase] for one in reports if phase in one.phases]
        if len(spans) == len(reports) and (common := joint_span(spans)) is not None:
            phases[phase] = common
    record = JointRound(turn=turn, lanes=on, window=phases.get("steady"), runs=tuple(reports))
    window = record.window
    if window is None:
        return Joint(record)
    done = [trace.completed(window)[1] for _, trace in runs]
    edges = [edge for span in phases.values() for edge in (span.begin_ns, span.end_ns)]
    cut = timed(cut_of(min(edges), max(edges)))
    board = telemetry(cut, window) if cut.times_ns else None
    raised: set[Flag] = {flag for one in reports for flag in reported_flags(one)} - _NOT_OF_JOINT
    idle = [phases[name] for name in IDLE_PHASES if name in phases]
    is_disturbed = (busiest_gpu_ratio(cut, idle) or 0.0) > BUSY_RATIO
    if is_disturbed:
        phases = {"steady": window}
    measured = measure_energy(
        cut, phases, rule, None, timing(environment, late_seconds=late_seconds(cut))
    )
    method = None if measured is None else measured.energy.gross_method
    if board is not None and insufficient_samples(
        window.seconds, None if method == "counter" else board.samples, min(map(len, done))
    ):
        raised.add("insufficient_samples")
    if measured is not None and measured.baseline_drifted:
        raised.add("baseline_drift")
    if measured is not None and measured.readings_disagree:
        raised.add("sensor_suspect")
    if is_disturbed or (measured is not None and measured.baseline_disturbed):
        raised.add("baseline_disturbed")
    loads = {} if board is None else board.utilization
    changes = {
        "inferences": tuple(map(len, done)),
        "energy": measured and measured.energy,
        "load": {name: load.mean_ratio for name, load in loads.items()},
    }
    rates = [
        len(each) * one.batch / window.seconds for each, one in zip(done, reports, strict=True)
    ]
    return Joint(record.model_copy(update=changes), tuple(done), tuple(rates), in_order(raised))


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
        by_group[one.record.lanes][one.record.turn] = one
    return Contention(
        planned_seconds=planned_seconds,
        together=tuple(_together(on, by_group, not_run.get(on), turns) for on in groups),
        rounds=tuple(one.record for one in rounds),
    )


def _together(on: On, rounds: _Rounds, not_run: NotRun | None, turns: int) -> Together:
    joints = [one for one in rounds[on].values() if one.record.window is not None]
    if not_run is None and not joints:
        not_run = NotRun("cancelled", "the benchmark was interrupted")
    lanes = tuple(_lane(on, place, joints, rounds) for place in range(len(on)))
    if not_run is not None and len(joints) < turns:
        return Together(lanes=lanes, status=not_run.status, reason=not_run.reason)
    flags: Counter[BenchFlag] = Counter(flag for one in joints for flag in one.flags)
    is_steady = None
    if len(joints) > 1:
        is_steady = all(agree([one.record.runs[n] for one in joints]) for n in range(len(on)))
        if not is_steady:
            flags["not_steady"] = len(joints)
    windows = [one.record.window.seconds for one in joints if one.record.window is not None]
    excess = [_excess(one, rounds) for one in joints] if len(on) > 1 else []
    return Together(
        lanes=lanes,
        status="ok",
        rounds=len(joints),
        seconds=sum(windows) / len(joints),
        gross_joules=mean_energy([one.joules("gross") for one in joints]),
        net_joules=mean_energy([one.joules("net") for one in joints]),
        gross_watts=mean_energy([one.watts("gross") for one in joints]),
        net_watts=mean_energy([one.watts("net") for one in joints]),
        excess_watts=mean_energy(excess),
        utilization=mean_loads([one.record.load for one in joints]),
        is_steady=is_steady,
        flags=dict(flags),
        foreign_dla_processes=foreign_processes(run for one in joints for run in one.record.runs),
    )


def _lane(on: On, place: int, joints: Sequence[Joint], rounds: _Rounds) -> LaneTogether:
    timed = [one.latency_ns[place] for one in joints if one.latency_ns[place]]
    latency = distribution(joined(timed))
    measured = LaneTogether(
        **dict(on[place]),
        latency=latency,
        latency_seconds=mean_of_most(
            [Figure.around(median(each) / 1e9, median_half_width(each)) for each in timed]
        ),
        throughput_per_second=mean_of_rounds([one.throughput[place] for one in joints]),
    )
    if len(on) == 1:
        return measured
    singles = rounds.get((on[place],), {})
    tail = distribution(joined(one.latency_ns[0] for one in singles.values() if one.latency_ns))
    others = rounds.get(on[:place] + on[place + 1 :], {})
    ratios, slowdowns, added, per_inference = [], [], [], []
    for one in joints:
        single, without = _alone(one, place, rounds), others.get(one.record.turn)
        rate = one.throughput[place]
        ratios.append(None if single is None else Figure(value=rate / single.throughput[0]))
        slowdowns.append(None if single is None else _slowdown(one.latency_ns[place], single))
        watts = difference(one.watts("net"), None if without is None else without.watts("net"))
        added.append(watts)
        per_second = rate / one.record.runs[place].batch
        per_inference.append(watts.times(1 / per_second) if watts and per_second > 0 else None)
    return measured.model_copy(
        update={
            "slowdown": mean_of_most(slowdowns),
            "tail_slowdown": (
                latency.p99_seconds / tail.p99_seconds
                if latency is not None and tail is not None and tail.p99_seconds > 0
                else None
            ),
            "throughput_ratio": mean_of_most(ratios),
            "marginal_watts": mean_energy(added),
            "marginal_joules_per_inference": mean_energy(per_inference),
        }
    )


def _alone(one: Joint, place: int, rounds: _Rounds) -> Joint | None:
    """Return the round of the same turn in which one of the models ran alone and inferred."""
    found = rounds.get((one.record.lanes[place],), {}).get(one.record.turn)
    return found if found is not None and any(found.throughput) else None


def _excess(one: Joint, rounds: _Rounds) -> Figure | None:
    """Return net power less the power of the same inferences alone, in the same turn."""
    excess = one.watts("net")
    for place, throughput in enumerate(one.throughput):
        alone = _alone(one, place, rounds)
        watts = None if alone is None else alone.watts("net")
        if alone is None or watts is None:
            return None
        excess = difference(excess, watts.times(throughput / alone.throughput[0]))
    return excess


def _slowdown(here: Sequence[int], alone: Joint) -> Figure | None:
    there = alone.latency_ns[0]
    if not here or not median(there):
        return None
    ratio = median(here) / median(there)
    halves = median_half_width(here), median_half_width(there)
    if halves[0] is None or halves[1] is None:
        return Figure(value=ratio)
    relative = hypot(halves[0] / median(here), halves[1] / median(there)) * 1e9
    return Figure.around(ratio, ratio * relative)
