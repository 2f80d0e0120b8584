"""Many candidates, few rounds: which to drop early, and which make the Pareto front.

A candidate is a model on an accelerator with settings. Nothing here measures: rounds come in as
readings, and the race returns who goes on. Energies are per input, loads are ratios.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import hypot, sqrt
from statistics import fmean
from typing import NamedTuple, TypeAlias

from ...daemon.measure.figures import joules_of, student
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
    first: GoalName = "latency" if latency_below is None else "throughput"
    second: GoalName = "energy" if has_energy else "throughput"
    return (first, second, "gpu_freed") if first != second else (first, "gpu_freed")


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
    found = {
        "latency": Known(latency.p50_seconds, median_half or 0.0),
        P99: Known(p99, unsure),
        "throughput": Known(rate),
    }
    energy = joules_of(report.energy, "net", report.inferences * report.batch)
    method = None if report.energy is None else report.energy.gross_method
    is_aliased = "aliased" in withholding(report.quality, method)
    if energy is not None and energy.half is not None and not is_aliased:
        found["energy"] = Known(energy.value, energy.half)
    load = None if report.telemetry is None else report.telemetry.utilization.get("gpu")
    if load is not None:
        found["gpu_freed"] = Known(load.mean_ratio, LOAD_STEP / 2)
    return found


def estimate(
    rounds: Sequence[Sequence[Reading]], looks: Sequence[Sequence[Reading]] = ()
) -> list[dict[str, Known]]:
    """Return the mean of each candidate's rounds with its 95 % interval.

    Two rounds of one candidate say little about their spread. So the spread is that of all
    candidates together, ``looks`` included, with the usual one. As elsewhere, repetition does not
    narrow the interval of a single round. A figure that is missing in half of the rounds is not
    known.
    """
    found: list[dict[str, Known]] = [{} for _ in rounds]
    for name, scale in SCALES.items():
        squares, freedom = _USUAL * scale.spread**2, _USUAL
        for mine in (*rounds, *looks):
            values = [one[name].value for one in mine if name in one]
            if len(values) > 1 and (unit := scale.of(mean := fmean(values))):
                squares += sum((value - mean) ** 2 for value in values) / unit**2
                freedom += len(values) - 1
        spread = student(freedom) * sqrt(squares / freedom)
        for place, mine in enumerate(rounds):
            known = [one[name] for one in mine if name in one]
            if 2 * len(known) > len(mine):
                mean = fmean(one.value for one in known)
                half = spread * scale.of(mean) / sqrt(len(known))
                found[place][name] = Known(mean, max(half, fmean(one.half for one in known)))
    return found


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
        return [one for one in self.left if one not in self.settled]

    def add(self, candidate: int, reading: Reading, *, is_look: bool = False) -> None:
        """Take the figures of a round."""
        (self._looks if is_look else self._rounds)[candidate].append(reading)

    def remove(self, candidate: int) -> None:
        """Take out a candidate that failed."""
        self.left.remove(candidate)

    def estimates(self) -> list[dict[str, Known]]:
        """Return the figures of each candidate: of its rounds, or else of its looks."""
        pairs = list(zip(self._rounds, self._looks, strict=True))
        looks = [look for rounds, look in pairs if rounds]
        return estimate([rounds or look for rounds, look in pairs], looks)

    def meets(self, found: Reading) -> bool | None:
        """Return whether a 99th percentile is below the limit; ``None`` if that is not certain."""
        limit, p99 = self.latency_below, found.get(P99)
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
        found, dropped = self.estimates(), []
        is_met = {n: self.meets(found[n]) for n in self.left}
        for one in list(self.left):
            rivals = (n for n in self.left if n != one and is_met[n])
            by = next((n for n in rivals if beats(found[n], found[one], self.goals)), None)
            if is_met[one] is False or by is not None:
                self.left.remove(one)
                dropped.append(Drop(one, None if is_met[one] is False else by))
        self.settled.update(one for one in self.running if self._is_settled(one, found, is_met))
        return dropped

    def _is_settled(
        self, one: int, found: Sequence[Reading], is_met: Mapping[int, bool | None]
    ) -> bool:
        """Return whether no candidate that is left can beat it. It may still beat others."""
        if len(self._rounds[one]) < LEAST_ROUNDS or not is_met[one]:
            return False
        return all(
            is_safe(found[one], found[rival], self.goals) for rival in self.left if rival != one
        )


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
