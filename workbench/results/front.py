"""Many candidates, few rounds: which to drop early, and which make the Pareto front.

A candidate is a model on an accelerator with settings. Nothing here measures: rounds come in as
readings, and the race returns who goes on. Energies are per input, loads are ratios.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import hypot, sqrt
from statistics import fmean
from typing import NamedTuple, TypeAlias

from ...daemon.measure.figures import joules_of
from ...daemon.measure.numerics import student
from ...daemon.measure.quality import withholding
from ...daemon.measure.report import Figure, RunReport
from ...daemon.measure.winner import judge
from .caveats import FEW_INFERENCES
from .records import GoalName
from .summary import LOAD_STEP


class Known(NamedTuple):
    """A figure and half of its 95 % interval."""

    value: float
    half: float = 0.0


# Figures of a round, or of all rounds, by goal; ``p99`` is the 99th percentile of latency.
Reading: TypeAlias = Mapping[str, Known]
P99 = "p99"


class Scale(NamedTuple):
    """How figures of a goal are compared.

    ``spread`` is the standard deviation from round to round that is taken for usual, and ``margin``
    what makes no difference in practice. Both are shares of the figure, or ratios of load.
    """

    spread: float
    margin: float
    more_is_better: bool = False
    is_absolute: bool = False

    def of(self, value: float) -> float:
        """Return what shares of a figure relate to."""
        return 1.0 if self.is_absolute else abs(value)

    def margin_at(self, value: float) -> float:
        """Return what makes no difference to a figure."""
        return self.margin * self.of(value)


SCALES: Mapping[str, Scale] = {
    "latency": Scale(0.01, 0.01),
    "throughput": Scale(0.01, 0.01, more_is_better=True),
    "energy": Scale(0.02, 0.0125),
    # Readings of the load of a GPU that works back to back differ by more than this between rounds.
    "gpu_freed": Scale(0.01, 0.02, is_absolute=True),
    P99: Scale(0.03, 0.0),
}
# Many pairs are compared, so an interval of a difference is wider than that of one pair.
SURE = 1.15
# With fewer rounds none is settled: from two, an interval would be three times as wide.
LEAST_ROUNDS = 3
# The usual spread weighs as much as so many rounds beyond the first of each candidate.
_USUAL = 8


def goals_of(latency_below: float | None, *, has_energy: bool) -> tuple[GoalName, ...]:
    """Return the goals that make the front.

    Below a limit of latency, throughput replaces latency; without energy it replaces energy.
    """
    goals: list[GoalName] = ["latency", "energy", "gpu_freed"]
    if latency_below is not None:
        goals[0] = "throughput"
    if not has_energy:
        goals[1] = "throughput"
    return tuple(dict.fromkeys(goals))


def reading_of(report: RunReport, median_half: float | None) -> Reading:
    """Return the figures of a round, those of a short one too; none if it did not end well.

    ``median_half`` is half the interval of its median latency, in seconds.
    """
    latency, rate = report.latency, report.throughput_per_second
    if report.outcome != "ok" or latency is None or not rate:
        return {}
    p99, unsure = latency.p99_seconds, 0.0
    if latency.count < FEW_INFERENCES:
        # Few inferences are above it, so its neighbours may be the true one.
        unsure = max(p99 - latency.p95_seconds, latency.max_seconds - p99)
    reading = {
        "latency": Known(latency.p50_seconds, median_half or 0.0),
        P99: Known(p99, unsure),
        "throughput": Known(rate),
    }
    energy = joules_of(report.energy, "net", report.inferences * report.batch)
    method = None if report.energy is None else report.energy.gross_method
    is_aliased = "aliased" in withholding(report.quality, method)
    if energy is not None and energy.half is not None and not is_aliased:
        reading["energy"] = Known(energy.value, energy.half)
    if report.telemetry is not None and "gpu" in report.telemetry.utilization:
        load = report.telemetry.utilization["gpu"]
        reading["gpu_freed"] = Known(load.mean_ratio, LOAD_STEP / 2)
    return reading


def estimate(
    rounds: Sequence[Sequence[Reading]], looks: Sequence[Sequence[Reading]] = ()
) -> list[dict[str, Known]]:
    """Return the mean of each candidate's rounds with its 95 % interval.

    Two rounds of one candidate say little about their spread. So the spread is that of all
    candidates together, ``looks`` included, with the usual one. As elsewhere, repetition does not
    narrow the interval of a single round. A figure that is missing in half of the rounds is not
    known.
    """
    estimates: list[dict[str, Known]] = [{} for _ in rounds]
    for name, scale in SCALES.items():
        spread = _spread(name, scale, (*rounds, *looks))
        for estimated, of_candidate in zip(estimates, rounds, strict=True):
            known = [reading[name] for reading in of_candidate if name in reading]
            if 2 * len(known) <= len(of_candidate):
                continue
            mean = fmean(one.value for one in known)
            half = spread * scale.of(mean) / sqrt(len(known))
            estimated[name] = Known(mean, max(half, fmean(one.half for one in known)))
    return estimates


def _spread(name: str, scale: Scale, candidates: Sequence[Sequence[Reading]]) -> float:
    """Return half the 95 % interval of a round by the spread of rounds, as a share of a figure."""
    squares, freedom = _USUAL * scale.spread**2, _USUAL
    for readings in candidates:
        values = [reading[name].value for reading in readings if name in reading]
        if len(values) < 2:
            continue
        mean = fmean(values)
        unit = scale.of(mean)
        if unit:
            squares += sum((value - mean) ** 2 for value in values) / unit**2
            freedom += len(values) - 1
    return student(freedom) * sqrt(squares / freedom)


def _loss(one: Known, other: Known, scale: Scale, widening: float = 1.0) -> Figure:
    """Return by how much one candidate is worse than another at a goal."""
    loss = other.value - one.value if scale.more_is_better else one.value - other.value
    return Figure.around(loss, widening * hypot(one.half, other.half))


def beats(better: Reading, worse: Reading, goals: Collection[str]) -> bool:
    """Return whether one candidate is surely better at a goal, and surely not worse at any.

    Not worse means: by less than the margin of the goal, at the end of the interval of the
    difference. A goal that neither has does not count.
    """
    is_better = False
    for name in goals:
        one, other = better.get(name), worse.get(name)
        if one is None and other is None:
            continue
        if one is None or other is None:
            return False
        scale = SCALES[name]
        loss = _loss(one, other, scale, SURE)
        if judge(loss, scale.margin_at(one.value)) != "first":
            return False
        is_better = is_better or judge(loss) == "first"
    return is_better


def is_safe(candidate: Reading, rival: Reading, goals: Collection[str]) -> bool:
    """Return whether a rival surely cannot beat it: at one goal it is worse beyond the margin."""
    for name in goals:
        one, other = rival.get(name), candidate.get(name)
        if one is None or other is None:
            continue
        scale = SCALES[name]
        if judge(_loss(one, other, scale, SURE), scale.margin_at(one.value)) == "second":
            return True
    return False


class Drop(NamedTuple):
    """Why a candidate is out: surely above the limit of latency, or worse than another one."""

    candidate: int
    by: int | None = None


@dataclass
class Race:
    """The rounds of all candidates by number, and who is left.

    First each gets one or two short looks, whose readings count until its first round. ``close``
    ends a pass of looks or rounds, and drops who is surely out. A candidate that is surely on the
    front is settled, and needs no more rounds.
    """

    candidates: int
    goals: Collection[str]
    latency_below: float | None = None
    left: list[int] = field(init=False)
    settled: set[int] = field(init=False, default_factory=set)

    def __post_init__(self) -> None:
        self.left = list(range(self.candidates))
        self._looks: list[list[Reading]] = [[] for _ in self.left]
        self._rounds: list[list[Reading]] = [[] for _ in self.left]

    @property
    def running(self) -> list[int]:
        """Candidates that need another round."""
        return [candidate for candidate in self.left if candidate not in self.settled]

    def add(self, candidate: int, reading: Reading, *, is_look: bool = False) -> None:
        """Take the figures of a round."""
        (self._looks if is_look else self._rounds)[candidate].append(reading)

    def remove(self, candidate: int) -> None:
        """Take out a candidate that failed."""
        self.left.remove(candidate)

    def estimates(self) -> list[dict[str, Known]]:
        """Return the figures of each candidate: of its rounds, or else of its looks."""
        readings, looks = [], []
        for of_rounds, of_looks in zip(self._rounds, self._looks, strict=True):
            readings.append(of_rounds or of_looks)
            if of_rounds:
                looks.append(of_looks)
        return estimate(readings, looks)

    def meets(self, estimated: Reading) -> bool | None:
        """Return whether a 99th percentile is below the limit; ``None`` if that is not certain."""
        limit, p99 = self.latency_below, estimated.get(P99)
        if limit is None:
            return True
        if p99 is None or abs(p99.value - limit) < p99.half:
            return None
        return p99.value <= limit

    def close(self) -> list[Drop]:
        """Drop candidates that are surely out, one after the other, and return them.

        One that was dropped does not drop another, so of two that beat each other by less than the
        margins one stays.
        """
        estimates, dropped = self.estimates(), []
        is_met = {candidate: self.meets(estimates[candidate]) for candidate in self.left}
        for candidate in list(self.left):
            drop = self._drop(candidate, estimates, is_met)
            if drop is not None:
                self.left.remove(candidate)
                dropped.append(drop)
        for candidate in self.running:
            if self._is_settled(candidate, estimates, is_met):
                self.settled.add(candidate)
        return dropped

    def _drop(
        self, candidate: int, estimates: Sequence[Reading], is_met: Mapping[int, bool | None]
    ) -> Drop | None:
        """Return why a candidate is surely out, or ``None``."""
        if is_met[candidate] is False:
            return Drop(candidate)
        for rival in self.left:
            if rival == candidate or not is_met[rival]:
                continue
            if beats(estimates[rival], estimates[candidate], self.goals):
                return Drop(candidate, rival)
        return None

    def _is_settled(
        self, candidate: int, estimates: Sequence[Reading], is_met: Mapping[int, bool | None]
    ) -> bool:
        """Return whether no candidate that is left can beat it. It may still beat others."""
        if len(self._rounds[candidate]) < LEAST_ROUNDS or not is_met[candidate]:
            return False
        for rival in self.left:
            if rival == candidate:
                continue
            if not is_safe(estimates[candidate], estimates[rival], self.goals):
                return False
        return True


def tied(readings: Sequence[Reading], among: Collection[int], name: str) -> list[int]:
    """Return the best candidate at a goal, and then all that may be as good."""
    scale = SCALES[name]
    sign = -1.0 if scale.more_is_better else 1.0
    known = [candidate for candidate in among if name in readings[candidate]]
    known.sort(key=lambda candidate: (sign * readings[candidate][name].value, candidate))
    as_good = []
    for candidate in known:
        best, other = readings[known[0]][name], readings[candidate][name]
        if judge(_loss(best, other, scale)) != "first":
            as_good.append(candidate)
    return as_good
