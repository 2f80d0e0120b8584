"""Rounds become figures with intervals, figures become winners: the result of one model."""

import statistics
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise
from math import hypot, isnan, sqrt
from typing import Literal, TypeVar

from ...parsers.inference.events import StageName
from ..measure.blocks import WindowSlice
from ..measure.quality import SLOPE_CELSIUS_PER_SECOND, STEADY_RATIO
from ..measure.run_report import (
    Device,
    Distribution,
    Flag,
    Interval,
    RunReport,
    RunTelemetry,
    Span,
    distribution,
)
from ..measure.uncertainty import student_95
from ..measure.utilization import clock_figures
from ..settings.config import BackendName
from ..terminal.numbers import joules, percent, points, rate, seconds
from .caveats import caveats_of
from .records import (
    AcceleratorResult,
    BenchFlag,
    ClockRange,
    Figure,
    GoalName,
    GoalResult,
    ModelResult,
    OutputCheck,
    Status,
)

# Where the series of ``student_95`` is too short.
_FEW = {1: 12.7062, 2: 4.3027, 3: 3.1824, 4: 2.7764}
BLOCKS = 6
FEWEST_IN_BLOCK = 5
# Rounds that must agree.
AGREEING_ROUNDS = 3
# tegrastats prints whole percents.
LOAD_STEP = 0.01
# These flags only repeat that telemetry was not possible.
_WITHOUT_TELEMETRY: frozenset[Flag] = frozenset({"telemetry_gap", "insufficient_samples"})

# A value of one round and half its 95 % interval, if the round can tell.
Point = tuple[float, float | None]
T = TypeVar("T")
Kind = Literal["gross", "net"]


# --- statistics -----------------------------------------------------------------------------------


def student(freedom: int) -> float:
    """Return the two-sided 95 % factor of Student's distribution.

    >>> student(3), round(student(10), 2)
    (3.1824, 2.23)
    """
    return _FEW.get(freedom) or student_95(freedom)


def mean_of_rounds(
    values: Sequence[float], halves: Sequence[float | None] = (), floor: float = 0.0
) -> Figure | None:
    """Return the mean of an accelerator's rounds with its 95 % interval.

    Half of the interval is the larger of two: that of one round, on average, and that of the mean
    by the spread of the rounds and Student's distribution. Repetition does not narrow the first:
    the rounding and the delay of a sensor are the same in every round. The second covers what
    differs between rounds, and a single round cannot tell it.
    ``floor``, the resolution of the instrument, is the least that it can be.

    >>> mean_of_rounds([10.0, 10.0], [0.2, 0.2])
    Figure(value=10.0, low=9.8, high=10.2)
    """
    if not values:
        return None
    mean, count = statistics.fmean(values), len(values)
    known = [half for half in halves if half is not None]
    own = statistics.fmean(known) if len(known) == count else None
    spread = student(count - 1) * statistics.stdev(values) / sqrt(count) if count > 1 else None
    candidates = [half for half in (own, spread) if half is not None]
    return Figure.around(mean, max(*candidates, floor) if candidates else None)


def mean_of_most(points: Sequence[Point], rounds: int = 0) -> Figure | None:
    """Return the mean of the rounds that have a value, if those are more than half.

    One round in a hundred keeps step with its samples by chance, and its energy is withheld. If
    half of them are withheld, something is wrong.
    """
    if 2 * len(points) <= rounds:
        return None
    return mean_of_rounds([value for value, _ in points], [half for _, half in points])


def difference(smaller: Figure, larger: Figure) -> Interval | None:
    """Return the 95 % interval of a difference; ``None`` if a figure has no interval.

    Rounds of two accelerators are separate measurements, so their halves add in quadrature.
    """
    if smaller.half is None or larger.half is None:
        return None
    middle, half = larger.value - smaller.value, hypot(smaller.half, larger.half)
    return Interval(low=middle - half, high=middle + half)


def median_half_width(durations_ns: Sequence[int]) -> float | None:
    """Return half the 95 % interval of a round's median, in seconds.

    The round is cut into six blocks in the order of time, and the spread of their medians is
    taken: neighbouring inferences resemble each other, so their number alone promises too much.
    """
    count = len(durations_ns)
    if count < BLOCKS * FEWEST_IN_BLOCK:
        return None
    edges = [count * i // BLOCKS for i in range(BLOCKS + 1)]
    medians = [statistics.median(durations_ns[a:b]) for a, b in pairwise(edges)]
    return student(BLOCKS - 1) * statistics.stdev(medians) / sqrt(BLOCKS) / 1e9


def variation(durations_ns: Sequence[int]) -> float | None:
    """Return the standard deviation of durations over their mean; ``None`` for fewer than two."""
    if len(durations_ns) < 2:
        return None
    mean = statistics.fmean(durations_ns)
    spread = statistics.fmean((duration - mean) ** 2 for duration in durations_ns)
    return sqrt(spread) / mean if mean > 0 else None


def interval_half(interval: Interval | None, divisor: float) -> float | None:
    """Return half of an interval, divided by inferences or seconds.

    >>> interval_half(Interval(low=90.0, high=110.0), 100)
    0.1
    """
    if interval is None or not divisor:
        return None
    return (interval.high - interval.low) / 2 / divisor


# --- rounds of one accelerator --------------------------------------------------------------------


@dataclass(frozen=True)
class Round:
    """One measured run, with the durations of its inferences in the order of time.

    Those by the device's events and of the stages are empty if the back-end does not report them.
    ``clocks`` are lowest and highest of each clock once it had settled, in hertz.
    """

    report: RunReport
    latency_ns: "array[int]" = field(default_factory=lambda: array("q"))
    device_ns: "array[int]" = field(default_factory=lambda: array("q"))
    stages_ns: "Mapping[StageName, array[int]]" = field(default_factory=dict)
    clocks: Mapping[str, tuple[float, float]] = field(default_factory=dict)


@dataclass(frozen=True)
class Measured:
    """One model on one accelerator: the run that built it, and the rounds that count."""

    device: Device
    backend: BackendName
    status: Status
    reason: str | None
    look: RunReport
    outputs: OutputCheck | None
    rounds: Sequence[Round]
    is_steady: bool
    nsys_report: str | None = None
    nsys_problem: str | None = None


def agree(rounds: Sequence[RunReport]) -> bool:
    """Return whether the last rounds of an accelerator agree (rule 14, from round to round).

    The rate and the median latency of the last three rounds must lie within 5 %, and no zone may
    have changed by 0.1 °C/s from the last round but one. Two rounds suffice if there are only
    two; one agrees with nothing.
    """
    last = rounds[-AGREEING_ROUNDS:]
    if len(last) < 2:
        return False
    rates = [one.throughput_per_second for one in last if one.throughput_per_second]
    medians = [one.latency.p50_seconds for one in last if one.latency is not None]
    for figures in (rates, medians):
        if len(figures) < len(last) or max(figures) > STEADY_RATIO * min(figures):
            return False
    return _warming(last[-2], last[-1]) < SLOPE_CELSIUS_PER_SECOND


def _warming(before: RunReport, after: RunReport) -> float:
    """Return the steepest change of any zone's maximum between two rounds, in °C/s."""
    if before.telemetry is None or after.telemetry is None:
        return 0.0
    apart = (after.started_ns - before.started_ns) / 1e9
    was, now = before.telemetry.temperature, after.telemetry.temperature
    changes = (abs(now[zone].max_celsius - was[zone].max_celsius) for zone in was.keys() & now)
    return max(changes, default=0.0) / apart if apart > 0 else 0.0


def clock_ranges(cut: WindowSlice, window: Span) -> dict[str, tuple[float, float]]:
    """Return lowest and highest of each clock in the second half of a steady phase.

    The first half is left out: clocks rise from idle when work begins.
    """
    inside = cut.inside((window.begin_ns + window.end_ns) // 2, window.end_ns)
    known = {
        name: [hertz for hertz in column[inside] if not isnan(hertz)]
        for name, (_, column) in clock_figures(cut.columns).items()
    }
    return {name: (min(hertz), max(hertz)) for name, hertz in known.items() if hertz}


def reported_flags(report: RunReport) -> list[Flag]:
    """Return a round's flags, less those that only repeat that telemetry is missing."""
    seen = report.telemetry is not None
    return [flag for flag in report.quality if seen or flag not in _WITHOUT_TELEMETRY]


def mean_loads(loads: Sequence[Mapping[str, float]]) -> dict[str, Figure]:
    """Return the mean of each named ratio that every round has."""
    names = [name for name in (loads[0] if loads else ()) if all(name in one for one in loads)]
    means = {
        name: mean_of_rounds([one[name] for one in loads], floor=LOAD_STEP / 2) for name in names
    }
    return {name: figure for name, figure in means.items() if figure is not None}


def summarise(model: str, measured: Sequence[Measured], rounds: Sequence[RunReport]) -> ModelResult:
    """Return the result of a model; ``rounds`` is every measured run, in the order of time."""
    alone = [summarise_accelerator(one) for one in measured]
    gpu = next((one for one in alone if one.device == "gpu" and one.may_win), None)
    results = tuple(_with_gpu_freed(one, gpu) for one in alone)
    counted = {one.report.run_id for each in measured for one in each.rounds}
    digests = (one.look.model_sha256 for one in measured)
    return ModelResult(
        model=model,
        model_sha256=next(filter(None, digests), None),
        order=tuple(one.device for one in rounds),
        accelerators=results,
        goals=tuple(decide(goal, results) for goal in GOALS),
        checks=caveats_of(results),
        counted=tuple(one.run_id for one in rounds if one.run_id in counted),
        rounds=tuple(rounds),
    )


def summarise_accelerator(one: Measured) -> AcceleratorResult:
    """Return the result of all rounds of one accelerator."""
    rounds, reports = one.rounds, [each.report for each in one.rounds]
    telemetry = [report.telemetry or RunTelemetry(samples=0) for report in reports]
    hottest = max(
        ((zone.max_celsius, name) for each in telemetry for name, zone in each.temperature.items()),
        default=None,
    )
    timed = [each for each in rounds if each.report.latency is not None]
    medians = [r.latency.p50_seconds for r in reports if r.latency is not None]
    gates = mean_loads([each.dla_active for each in telemetry])
    return AcceleratorResult(
        device=one.device,
        backend=one.backend,
        status=one.status,
        reason=one.reason,
        nsys_report=one.nsys_report,
        nsys_problem=one.nsys_problem,
        outputs=one.outputs,
        # Some back-ends know only after a run how they launched it.
        built=next((r.built for r in reversed(reports) if r.built), one.look.built),
        cold_start_seconds=one.look.cold_start_seconds,
        process_peak_bytes=max(_present(r.process_peak_bytes for r in reports), default=None),
        device_peak_bytes=max(_present(r.device_peak_bytes for r in reports), default=None),
        latency=distribution(joined(each.latency_ns for each in rounds)),
        device_latency=distribution(joined(each.device_ns for each in rounds)),
        stages=_stages(rounds),
        latency_seconds=mean_of_rounds(
            medians, [median_half_width(each.latency_ns) for each in timed]
        ),
        throughput_per_second=mean_of_rounds(_present(r.throughput_per_second for r in reports)),
        gross_joules_per_inference=_joules(reports, "gross"),
        net_joules_per_inference=_joules(reports, "net"),
        counter_joules_per_inference=_joules_by_counter(reports),
        mean_watts=mean_of_rounds(_present(map(mean_watts, reports))),
        utilization=mean_loads(
            [{n: load.mean_ratio for n, load in each.utilization.items()} for each in telemetry]
        ),
        clocks=_clocks(rounds),
        dla_active={core: min(max(gate.value, 0.0), 1.0) for core, gate in gates.items()},
        hottest_zone=hottest[1] if hottest else None,
        hottest_celsius=hottest[0] if hottest else None,
        variation=max(
            _present(variation(each.device_ns or each.latency_ns) for each in rounds), default=None
        ),
        rounds=len(reports),
        is_steady=one.is_steady if len(reports) > 1 else None,
        unsettled_rounds=sum("not_steady" in report.quality for report in reports),
        flags=_flags(one, reports),
    )


def joined(durations_ns: Iterable[Iterable[int]]) -> "array[int]":
    """Return the durations of all rounds in one array."""
    return array("q", chain.from_iterable(durations_ns))


def _present(values: Iterable[T | None]) -> list[T]:
    return [value for value in values if value is not None]


def _stages(rounds: Sequence[Round]) -> dict[StageName, Distribution]:
    described = {
        stage: distribution(joined(one.stages_ns.get(stage, ()) for one in rounds))
        for stage in (rounds[0].stages_ns if rounds else ())
    }
    return {stage: one for stage, one in described.items() if one is not None}


def _clocks(rounds: Sequence[Round]) -> dict[str, ClockRange]:
    ends: dict[str, list[float]] = {}
    for one in rounds:
        for name, pair in one.clocks.items():
            ends.setdefault(name, []).extend(pair)
    return {
        name: ClockRange(lowest_hertz=min(hertz), highest_hertz=max(hertz))
        for name, hertz in ends.items()
    }


def energy_point(report: RunReport, kind: Kind) -> Point | None:
    """Return a run's energy per inference; ``None`` if it is withheld or not known."""
    value: float | None = getattr(report.energy, f"{kind}_joules_per_inference", None)
    if value is None:
        return None
    return value, interval_half(getattr(report.energy, f"{kind}_interval"), report.inferences)


def _joules(reports: Sequence[RunReport], kind: Kind) -> Figure | None:
    return mean_of_most(_present(energy_point(one, kind) for one in reports), len(reports))


def _joules_by_counter(reports: Sequence[RunReport]) -> Figure | None:
    """Return the same by the rails' own counters, if they have them."""

    def point(report: RunReport) -> Point | None:
        energy, count = report.energy, report.inferences
        if energy is None or energy.gross_joules_per_inference is None:
            return None
        edge = None if energy.counter_edge_joules is None else energy.counter_edge_joules / count
        return None if energy.counter_joules is None else (energy.counter_joules / count, edge)

    return mean_of_most(_present(map(point, reports)), len(reports))


def mean_watts(report: RunReport) -> float | None:
    """Return the mean power of the module in the steady phase of a run."""
    window = report.phases.get("steady")
    gross = None if report.energy is None else report.energy.gross_joules
    return gross / window.seconds if gross is not None and window and window.seconds else None


def _with_gpu_freed(result: AcceleratorResult, gpu: AcceleratorResult | None) -> AcceleratorResult:
    if gpu is None or result.device == "gpu":
        return result
    on_gpu, here = gpu.utilization.get("gpu"), result.utilization.get("gpu")
    if on_gpu is None or here is None:
        return result
    ends = {} if (interval := difference(here, on_gpu)) is None else dict(interval)
    freed = Figure(value=on_gpu.value - here.value, **ends)
    return result.model_copy(update={"gpu_freed": freed})


def _flags(one: Measured, reports: Sequence[RunReport]) -> dict[BenchFlag, int]:
    found: Counter[BenchFlag] = Counter()
    for report in reports:
        found.update(flag for flag in reported_flags(report) if flag != "not_steady")
    if len(reports) > 1 and not one.is_steady:
        found["not_steady"] = len(reports)
    verdict = one.outputs.verdict if one.outputs is not None and one.status == "ok" else None
    if verdict == "wrong":
        found["wrong_outputs"] = max(1, len(reports))
    elif verdict == "unchecked":
        found["unchecked_outputs"] = max(1, len(reports))
    return dict(found)


# --- goals ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Goal:
    """A reason to choose an accelerator; ``figure`` names the deciding figure."""

    name: GoalName
    title: str
    figure: str
    read: Callable[[AcceleratorResult], Figure | None]
    show: Callable[[float], str]
    show_difference: Callable[[float], str]

    @property
    def more_is_better(self) -> bool:
        """Whether the largest figure wins."""
        return self.name == "throughput"


_ENERGY = "net energy per inference"
GOALS = (
    Goal("latency", "Latency", "median latency", lambda r: r.latency_seconds, seconds, seconds),
    Goal("energy", "Energy", _ENERGY, lambda r: r.net_joules_per_inference, joules, joules),
    Goal("gpu_freed", "GPU freed", "GPU load", lambda r: r.utilization.get("gpu"), percent, points),
    Goal("throughput", "Throughput", "inputs", lambda r: r.throughput_per_second, rate, rate),
)


def decide(goal: Goal, results: Sequence[AcceleratorResult]) -> GoalResult:
    """Name the winner of a goal, if the interval of the difference to the next excludes 0.

    Accelerators that failed or have wrong outputs do not take part.
    """
    found = [
        (figure, one.device)
        for one in results
        if one.may_win and (figure := goal.read(one)) is not None
    ]
    found.sort(key=lambda pair: pair[0].value, reverse=goal.more_is_better)
    if not found:
        return GoalResult(goal=goal.name, sentence=f"{goal.title}: not known")
    best, device = found[0]
    if len(found) == 1:
        words = f"nothing to compare with; {goal.figure} {goal.show(best.value)} on {device}"
        return GoalResult(goal=goal.name, sentence=f"{goal.title}: {words}")
    second, other = found[1]
    interval = difference(second, best) if goal.more_is_better else difference(best, second)
    wins = interval is not None and interval.low > 0
    verdict = f"{device} wins" if wins else "no difference that this measurement can tell"
    if interval is None:
        width = "one round has no interval"
    else:
        low, high = (goal.show_difference(end) for end in (interval.low, interval.high))
        width = f"95 % interval of the difference {low} to {high}"
    return GoalResult(
        goal=goal.name,
        winner=device if wins else None,
        runner_up=other if wins else None,
        difference=abs(second.value - best.value),
        interval=interval,
        sentence=(
            f"{goal.title}: {verdict}; {goal.figure} {goal.show(best.value)} on {device},"
            f" {goal.show(second.value)} on {other}; {width}"
        ),
    )
