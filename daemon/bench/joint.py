"""Runs that went on at once become one round: what they did while all of them ran."""

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...collectors.board.boards import RailRule
from ...parsers.inference.events import PhaseName
from ..measure.energy_report import measure_energy
from ..measure.quality import in_order, insufficient_samples
from ..measure.run_report import Energy, Environment, Flag, Span
from ..measure.slices import Cut
from ..measure.uncertainty import unsure_seconds
from ..measure.utilization import telemetry
from .contention_result import JointRound
from .lanes import Flown
from .placements import On
from .rounds import told_flags

_PHASES: tuple[PhaseName, ...] = ("steady", "baseline_before", "baseline_after")
# Of a run in company: that it overlaps is the point, how many inferences the joint window holds
# is counted anew, and whether it is steady the rounds tell together.
_NOT_OF_JOINT: frozenset[Flag] = frozenset({"overlapped", "insufficient_samples", "not_steady"})
_WITHHOLDING: frozenset[Flag] = frozenset({"aliased", "insufficient_samples"})


@dataclass(frozen=True)
class Joint:
    """A round of models that ran at once.

    Attributes:
        record: As it is written.
        on: Who ran.
        latency_ns: Of each lane shape (n,), of its inferences in the joint window, in the order
            of time.
        throughput: Of each lane, inputs a second.
        flags: Of any of its runs, and its own.
    """

    record: JointRound
    on: On
    latency_ns: "tuple[array[int], ...]" = ()
    throughput: tuple[float, ...] = ()
    flags: tuple[Flag, ...] = ()

    @property
    def energy(self) -> Energy | None:
        """What the joint window took; ``None`` where that is withheld."""
        return None if _WITHHOLDING & set(self.flags) else self.record.energy

    @property
    def seconds(self) -> float:
        """Length of the joint window; 0 where there is none."""
        return 0.0 if self.record.window is None else self.record.window.seconds


def joint_span(spans: Sequence[Span]) -> Span | None:
    """Return the time that spans have in common.

    >>> joint_span([Span(begin_ns=0, end_ns=9), Span(begin_ns=2, end_ns=12)])
    Span(begin_ns=2, end_ns=9)
    """
    begin_ns = max((span.begin_ns for span in spans), default=0)
    end_ns = min((span.end_ns for span in spans), default=0)
    return Span(begin_ns=begin_ns, end_ns=end_ns) if begin_ns < end_ns else None


def join_up(
    turn: int,
    on: On,
    flown: Sequence[Flown],
    cut_of: Callable[[int, int], Cut],
    rule: RailRule | None,
    environment: Environment,
) -> Joint:
    """Return what runs that went on at once say together.

    Args:
        turn: Of which pass.
        on: Who ran, in the order of ``flown``.
        flown: Their runs.
        cut_of: Begin and end in nanoseconds to the samples between.
        rule: How the rails add up.
        environment: Where.
    """
    reports = [one.report for one in flown]
    phases: dict[PhaseName, Span] = {}
    for phase in _PHASES:
        spans = [one.phases[phase] for one in reports if phase in one.phases]
        common = joint_span(spans) if len(spans) == len(reports) else None
        if common is not None:
            phases[phase] = common
    window = phases.get("steady")
    record = JointRound(turn=turn, lanes=on, runs=tuple(reports))
    if window is None:
        return Joint(record, on)
    done = [one.trace.completed(window)[1] for one in flown]
    cut = cut_of(
        min(span.begin_ns for span in phases.values()), max(s.end_ns for s in phases.values())
    )
    board = telemetry(cut, window) if cut.times_ns else None
    raised: set[Flag] = {flag for one in reports for flag in told_flags(one)} - _NOT_OF_JOINT
    fewest = min(map(len, done))
    if board is not None and insufficient_samples(window.seconds, board.samples, fewest):
        raised.add("insufficient_samples")
    unsure = unsure_seconds(0.0, environment.power_reading)
    seed = " ".join(one.run_id for one in reports)
    measured = measure_energy(cut, phases, rule, None, seed, unsure)
    if measured is not None and measured.baseline_drifted:
        raised.add("baseline_drift")
    record = record.model_copy(
        update={
            "window": window,
            "inferences": tuple(map(len, done)),
            "energy": measured and measured.energy,
            "load": {
                name: load.mean_ratio for name, load in (board.utilization if board else {}).items()
            },
        }
    )
    return Joint(
        record,
        on,
        tuple(done),
        tuple(
            len(latencies) * report.batch / window.seconds
            for latencies, report in zip(done, reports, strict=True)
        ),
        in_order(raised),
    )
