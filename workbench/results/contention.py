"""Runs that overlap become joint rounds, and those slowdown, power and marginal energy."""

from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import hypot
from statistics import median
from typing import NamedTuple, TypeAlias, get_args

from ...daemon.measure.blocks import WindowSlice
from ...daemon.measure.energy_report import IDLE_PHASES, MeasuredEnergy, measure_energy, timing_of
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
from ...daemon.measure.report import Distribution, Environment, Figure, Flag, RunReport, Span
from ...daemon.measure.trace import RunTrace
from ...daemon.measure.utilization import telemetry
from ...parsers.inference.events import PhaseName
from ...parsers.rails import RailRule
from .records import BenchFlag, Contention, JointRound, LaneTogether, Placed, Status, Together
from .summary import agree, foreign_processes, mean_loads, median_half_width, reported_flags

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
    if not spans:
        return None
    begin_ns = max(span.begin_ns for span in spans)
    end_ns = min(span.end_ns for span in spans)
    return Span(begin_ns=begin_ns, end_ns=end_ns) if begin_ns < end_ns else None


def whole_span(spans: Collection[Span]) -> Span:
    """Return the time from the begin of the first span to the end of the last."""
    begin_ns = min(span.begin_ns for span in spans)
    return Span(begin_ns=begin_ns, end_ns=max(span.end_ns for span in spans))


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
    phases = _joint_phases(reports)
    window = phases.get("steady")
    record = JointRound(turn=turn, lanes=on, window=window, runs=tuple(reports))
    if window is None:
        return Joint(record)
    whole = whole_span(phases.values())
    cut = timed(cut_of(whole.begin_ns, whole.end_ns))
    idle = [phases[name] for name in IDLE_PHASES if name in phases]
    is_disturbed = (busiest_gpu_ratio(cut, idle) or 0.0) > BUSY_RATIO
    if is_disturbed:
        phases = {"steady": window}
    timing = timing_of(environment, late_seconds=late_seconds(cut))
    measured = measure_energy(cut, phases, rule, None, timing)
    latencies, counts, rates = [], [], []
    for report, trace in runs:
        of_run = trace.completed(window)[1]
        latencies.append(of_run)
        counts.append(len(of_run))
        rates.append(len(of_run) * report.batch / window.seconds)
    raised = _flags_of_parts(reports) | _energy_flags(measured, is_disturbed=is_disturbed)
    load: dict[str, float] = {}
    if cut.times_ns:
        board = telemetry(cut, window)
        for name, utilization in board.utilization.items():
            load[name] = utilization.mean_ratio
        # A counter does not need samples.
        is_counted = measured is not None and measured.energy.gross_method == "counter"
        samples = None if is_counted else board.samples
        if insufficient_samples(window.seconds, samples, min(counts)):
            raised.add("insufficient_samples")
    changes = {
        "inferences": tuple(counts),
        "energy": measured and measured.energy,
        "load": load,
    }
    record = record.model_copy(update=changes)
    return Joint(record, tuple(latencies), tuple(rates), in_order(raised))


def _joint_phases(reports: Sequence[RunReport]) -> dict[PhaseName, Span]:
    """Return the time that all runs spent in a phase together, of each phase that has one."""
    phases: dict[PhaseName, Span] = {}
    for phase in _PHASES:
        spans = [report.phases[phase] for report in reports if phase in report.phases]
        common = joint_span(spans)
        if common is not None and len(spans) == len(reports):
            phases[phase] = common
    return phases


def _flags_of_parts(reports: Sequence[RunReport]) -> set[Flag]:
    """Return the flags of the runs that hold for their joint window too."""
    raised: set[Flag] = set()
    for report in reports:
        raised.update(reported_flags(report))
    return raised - _NOT_OF_JOINT


def _energy_flags(measured: MeasuredEnergy | None, *, is_disturbed: bool) -> set[Flag]:
    """Return the flags that the energy of the joint window raises."""
    raised: set[Flag] = set()
    if is_disturbed or (measured is not None and measured.baseline_disturbed):
        raised.add("baseline_disturbed")
    if measured is not None and measured.baseline_drifted:
        raised.add("baseline_drift")
    if measured is not None and measured.readings_disagree:
        raised.add("sensor_suspect")
    return raised


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
    """Return the figures of one group of models, or why it has none."""
    joints = [one for one in rounds[on].values() if one.record.window is not None]
    if not_run is None and not joints:
        not_run = NotRun("cancelled", "the benchmark was interrupted")
    lanes = tuple(_lane(on, place, joints, rounds) for place in range(len(on)))
    if not_run is not None and len(joints) < turns:
        return Together(lanes=lanes, status=not_run.status, reason=not_run.reason)
    is_steady = _is_steady(joints, len(on))
    flags: Counter[BenchFlag] = Counter()
    runs: list[RunReport] = []
    loads, excess = [], []
    seconds = 0.0
    for joint in joints:
        assert joint.record.window is not None
        flags.update(joint.flags)
        runs += joint.record.runs
        loads.append(joint.record.load)
        seconds += joint.record.window.seconds
        if len(on) > 1:
            excess.append(_excess(joint, rounds))
    if is_steady is False:
        flags["not_steady"] = len(joints)
    return Together(
        lanes=lanes,
        status="ok",
        rounds=len(joints),
        seconds=seconds / len(joints),
        **_energies(joints),
        excess_watts=mean_energy(excess),
        utilization=mean_loads(loads),
        is_steady=is_steady,
        flags=dict(flags),
        foreign_dla_processes=foreign_processes(runs),
    )


def _energies(joints: Sequence[Joint]) -> dict[str, Figure | None]:
    """Return energy and power of the joint windows, as means of all rounds."""
    means = {}
    for kind in get_args(Kind):
        means[f"{kind}_joules"] = mean_energy([joint.joules(kind) for joint in joints])
        means[f"{kind}_watts"] = mean_energy([joint.watts(kind) for joint in joints])
    return means


def _is_steady(joints: Sequence[Joint], models: int) -> bool | None:
    """Return whether the rounds of every model agree; ``None`` for a single round."""
    if len(joints) < 2:
        return None
    for place in range(models):
        runs = [joint.record.runs[place] for joint in joints]
        if not agree(runs):
            return False
    return True


def _lane(on: On, place: int, joints: Sequence[Joint], rounds: _Rounds) -> LaneTogether:
    """Return the figures of a model in its group, and what the others change for it."""
    latencies, medians, rates = array("q"), [], []
    for joint in joints:
        rates.append(joint.throughput[place])
        of_round = joint.latency_ns[place]
        if of_round:
            latencies.extend(of_round)
            medians.append(Figure.around(median(of_round) / 1e9, median_half_width(of_round)))
    latency = distribution(latencies)
    measured = LaneTogether(
        **dict(on[place]),
        latency=latency,
        latency_seconds=mean_of_most(medians),
        throughput_per_second=mean_of_rounds(rates),
    )
    if len(on) == 1:
        return measured
    changes = {
        **_slowdowns(place, joints, rounds),
        **_marginal_energy(on, place, joints, rounds),
        "tail_slowdown": _tail_slowdown(latency, rounds.get((on[place],), {}).values()),
    }
    return measured.model_copy(update=changes)


def _slowdowns(place: int, joints: Sequence[Joint], rounds: _Rounds) -> dict[str, Figure | None]:
    """Return latency and throughput over those of the same turn alone."""
    slowdowns: list[Figure | None] = []
    ratios: list[Figure | None] = []
    for joint in joints:
        alone = _alone(joint, place, rounds)
        if alone is None:
            slowdowns.append(None)
            ratios.append(None)
        else:
            slowdowns.append(_slowdown(joint.latency_ns[place], alone))
            ratios.append(Figure(value=joint.throughput[place] / alone.throughput[0]))
    return {"slowdown": mean_of_most(slowdowns), "throughput_ratio": mean_of_most(ratios)}


def _tail_slowdown(latency: Distribution | None, alone: Iterable[Joint]) -> float | None:
    """Return the 99th percentile over that of all rounds alone."""
    latencies = array("q")
    for joint in alone:
        if joint.latency_ns:
            latencies.extend(joint.latency_ns[0])
    usual = distribution(latencies)
    if latency is None or usual is None or usual.p99_seconds <= 0:
        return None
    return latency.p99_seconds / usual.p99_seconds


def _marginal_energy(
    on: On, place: int, joints: Sequence[Joint], rounds: _Rounds
) -> dict[str, Figure | None]:
    """Return what a model adds to the power of the others, and per inference of its own."""
    others = rounds.get(on[:place] + on[place + 1 :], {})
    added: list[Figure | None] = []
    per_inference: list[Figure | None] = []
    for joint in joints:
        without = others.get(joint.record.turn)
        watts, of_inference = None, None
        if without is not None:
            watts = difference(joint.watts("net"), without.watts("net"))
        per_second = joint.throughput[place] / joint.record.runs[place].batch
        if watts is not None and per_second > 0:
            of_inference = watts.times(1 / per_second)
        added.append(watts)
        per_inference.append(of_inference)
    return {
        "marginal_watts": mean_energy(added),
        "marginal_joules_per_inference": mean_energy(per_inference),
    }


def _alone(one: Joint, place: int, rounds: _Rounds) -> Joint | None:
    """Return the round of the same turn in which one of the models ran alone and inferred."""
    alone = rounds.get((one.record.lanes[place],), {}).get(one.record.turn)
    return alone if alone is not None and any(alone.throughput) else None


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
    """Return the ratio of two medians; ``None`` if one of them is not known."""
    usual = alone.latency_ns[0]
    if not here or not median(usual):
        return None
    ratio = median(here) / median(usual)
    half, usual_half = median_half_width(here), median_half_width(usual)
    if half is None or usual_half is None:
        return Figure(value=ratio)
    relative = hypot(half / median(here), usual_half / median(usual)) * 1e9
    return Figure.around(ratio, ratio * relative)
