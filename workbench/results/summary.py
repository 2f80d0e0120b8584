"""Rounds become figures with intervals, figures become winners: the result of one model."""

import statistics
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise
from math import isnan, sqrt
from typing import NamedTuple, cast

from ...collectors.worker.outputs import OutputCheck
from ...daemon.measure.blocks import WindowSlice
from ...daemon.measure.figures import (
    difference,
    energy_of,
    mean_energy,
    mean_of_most,
    mean_of_rounds,
    mean_watts,
    present,
    student,
    subtract,
)
from ...daemon.measure.latency import distribution
from ...daemon.measure.quality import SLOPE_CELSIUS_PER_SECOND, STEADY_RATIO
from ...daemon.measure.report import (
    Device,
    Figure,
    Flag,
    Interval,
    LockInReport,
    RunReport,
    RunTelemetry,
    Span,
)
from ...daemon.measure.run_text import joules, percent, points, rate, seconds
from ...daemon.measure.utilization import clock_figures
from ...daemon.measure.winner import judge
from ...parsers.inference.events import StageName
from .caveats import caveats_of
from .paired import RoundPower, difference_of_rounds
from .records import (
    AcceleratorResult,
    BenchFlag,
    ClockRange,
    GoalName,
    GoalResult,
    LayerRow,
    ModelResult,
    Status,
)

BLOCKS = 6
FEWEST_IN_BLOCK = 5
# Rounds that must agree.
AGREEING_ROUNDS = 3
# tegrastats prints whole percents.
LOAD_STEP = 0.01
# These flags only repeat that telemetry was not possible.
_WITHOUT_TELEMETRY: frozenset[Flag] = frozenset({"telemetry_gap", "insufficient_samples"})

# --- statistics -----------------------------------------------------------------------------------


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


# --- rounds of one accelerator --------------------------------------------------------------------


@dataclass(frozen=True)
class Round:
    """One measured run, with the durations of its inferences in the order of time.

    Those by the device's events and of the stages are empty if the back-end does not report them.
    ``clocks`` are lowest and highest of each clock once it had settled, in hertz, and ``power`` is
    absent without readings of the work and of two idle phases.
    """

    report: RunReport
    latency_ns: "array[int]" = field(default_factory=lambda: array("q"))
    device_ns: "array[int]" = field(default_factory=lambda: array("q"))
    stages_ns: "Mapping[StageName, array[int]]" = field(default_factory=dict)
    clocks: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    power: RoundPower | None = None


@dataclass
class Measured:
    """One model on one accelerator: its first run, and the rounds that count."""

    look: RunReport
    status: Status
    reason: str | None
    log: tuple[str, ...] = ()
    outputs: OutputCheck | None = None
    rounds: Sequence[Round] = ()
    nsys_report: str | None = None
    nsys_problem: str | None = None
    lock_in: LockInReport | None = None
    lock_in_stages: dict[StageName, LockInReport] = field(default_factory=dict)
    layers: tuple[LayerRow, ...] = ()
    profiled_seconds: float | None = None
    profiled_inferences: int | None = None


def agree(rounds: Sequence[RunReport]) -> bool:
    """Return whether the last rounds of an accelerator agree (rule 14, from round to round).

    The rate and the median latency of the last three rounds must lie within 5 %, and no zone may
    have changed by 0.1 °C/s from the last round but one. Two rounds suffice if there are only
    two; one agrees with nothing.
    """
    last = rounds[-AGREEING_ROUNDS:]
    rates = [one.throughput_per_second for one in last if one.throughput_per_second]
    medians = [one.latency.p50_seconds for one in last if one.latency is not None]
    for figures in (rates, medians):
        if len(figures) < max(2, len(last)) or max(figures) > STEADY_RATIO * min(figures):
            return False
    was, now = ({} if r.telemetry is None else r.telemetry.temperature for r in last[-2:])
    changes = (abs(now[zone].max_celsius - was[zone].max_celsius) for zone in was.keys() & now)
    apart = (last[-1].started_ns - last[-2].started_ns) / 1e9
    return apart <= 0 or max(changes, default=0.0) / apart < SLOPE_CELSIUS_PER_SECOND


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
    return {
        name: figure.within(0.0, 1.0)
        for name in (loads[0] if loads else ())
        if all(name in one for one in loads)
        and (figure := mean_of_rounds([one[name] for one in loads], floor=LOAD_STEP / 2))
    }


def summarise(model: str, measured: Sequence[Measured], rounds: Sequence[RunReport]) -> ModelResult:
    """Return the result of a model; ``rounds`` is every measured run, in the order of time."""
    results = [summarise_accelerator(one) for one in measured]
    gpus = (one.utilization.get("gpu") for one in results if one.device == "gpu" and one.may_win)
    on_gpu = next(gpus, None)
    for place, one in enumerate(results):
        if one.device != "gpu":
            freed = difference(on_gpu, one.utilization.get("gpu"))
            freed = freed and freed.within(-1.0, 1.0)
            results[place] = one.model_copy(update={"gpu_freed": freed})
    counted = {one.report.run_id for each in measured for one in each.rounds}
    powers = {each.look.device: _powers(each.rounds) for each in measured}
    digests = (one.look.model_sha256 for one in measured)
    return ModelResult(
        model=model,
        model_sha256=next(filter(None, digests), None),
        order=tuple(one.device for one in rounds),
        accelerators=tuple(results),
        goals=tuple(decide(goal, results, powers) for goal in GOALS),
        checks=caveats_of(results, rounds[-1].environment if rounds else None),
        counted=tuple(one.run_id for one in rounds if one.run_id in counted),
        rounds=tuple(rounds),
    )


def summarise_accelerator(one: Measured) -> AcceleratorResult:
    """Return the result of all rounds of one accelerator."""
    rounds, reports = one.rounds, [each.report for each in one.rounds]
    telemetry = [report.telemetry or RunTelemetry(samples=0) for report in reports]
    zones = [(z.max_celsius, name) for each in telemetry for name, z in each.temperature.items()]
    medians = [
        Figure.around(r.report.latency.p50_seconds, median_half_width(r.latency_ns))
        for r in rounds
        if r.report.latency is not None
    ]
    gates = mean_loads([each.dla_active for each in telemetry])
    clocks: dict[str, list[float]] = {}
    for name, ends in (pair for each in rounds for pair in each.clocks.items()):
        clocks.setdefault(name, []).extend(ends)
    taken_over = {name: own for name, own in vars(one).items() if name not in ("look", "rounds")}
    return AcceleratorResult(
        **taken_over,
        device=one.look.device,
        backend=one.look.backend,
        # Some back-ends know only after a run how they launched it.
        built=next((r.built for r in reversed(reports) if r.built), one.look.built),
        cold_start_seconds=one.look.cold_start_seconds,
        process_peak_bytes=max(present(r.process_peak_bytes for r in reports), default=None),
        device_peak_bytes=max(present(r.device_peak_bytes for r in reports), default=None),
        latency=distribution(joined(each.latency_ns for each in rounds)),
        device_latency=distribution(joined(each.device_ns for each in rounds)),
        stages={
            stage: found
            for stage in (rounds[0].stages_ns if rounds else ())
            if (found := distribution(joined(r.stages_ns.get(stage, ()) for r in rounds)))
        },
        latency_seconds=mean_of_most(medians),
        throughput_per_second=mean_of_rounds(present(r.throughput_per_second for r in reports)),
        gross_joules_per_inference=mean_energy([energy_of(r, "gross") for r in reports]),
        net_joules_per_inference=mean_energy([energy_of(r, "net") for r in reports]),
        counter_joules_per_inference=mean_energy(list(map(_counter_energy, reports))),
        mean_watts=mean_of_rounds(present(map(mean_watts, reports))),
        utilization=mean_loads(
            [{n: load.mean_ratio for n, load in each.utilization.items()} for each in telemetry]
        ),
        clocks={
            name: ClockRange(lowest_hertz=min(ends), highest_hertz=max(ends))
            for name, ends in clocks.items()
        },
        dla_active={core: min(max(gate.value, 0.0), 1.0) for core, gate in gates.items()},
        hottest_zone=max(zones)[1] if zones else None,
        hottest_celsius=max(zones)[0] if zones else None,
        variation=max(
            present(variation(each.device_ns or each.latency_ns) for each in rounds), default=None
        ),
        rounds=len(reports),
        is_steady=agree(reports) if len(reports) > 1 else None,
        unsettled_rounds=sum("not_steady" in report.quality for report in reports),
        flags=_flags(one, reports),
        foreign_dla_processes=foreign_processes(reports),
    )


def joined(durations_ns: Iterable[Iterable[int]]) -> "array[int]":
    """Return the durations of all rounds in one array."""
    return array("q", chain.from_iterable(durations_ns))


def _powers(rounds: Sequence[Round]) -> list[RoundPower]:
    """Return the readings of the rounds whose energy is published; none if one lacks them.

    None either if a counter gave the energy.
    """
    reports = [one.report for one in rounds if energy_of(one.report, "net") is not None]
    # A rhythm may escape the readings of power, but not the counter: its figures are compared.
    if any(one.energy is not None and one.energy.gross_method == "counter" for one in reports):
        return []
    published = [one.power for one in rounds if energy_of(one.report, "net") is not None]
    powers = present(published)
    return powers if len(powers) == len(published) else []


def _counter_energy(report: RunReport) -> Figure | None:
    """Return the same by the rails' own counters, if they have them."""
    energy, count = report.energy, report.inferences
    if energy is None or energy.gross_joules_per_inference is None or energy.counter_joules is None:
        return None
    edge = energy.counter_edge_joules
    return Figure.around(energy.counter_joules / count, None if edge is None else edge / count)


def foreign_processes(reports: Iterable[RunReport]) -> tuple[str, ...]:
    """Return the names of the processes that raised ``foreign_dla_activity``, without repeats."""
    return tuple(dict.fromkeys(name for one in reports for name in one.foreign_dla_processes))


def _flags(one: Measured, reports: Sequence[RunReport]) -> dict[BenchFlag, int]:
    found: Counter[BenchFlag] = Counter()
    for report in reports:
        found.update(flag for flag in reported_flags(report) if flag != "not_steady")
    if len(reports) > 1 and not agree(reports):
        found["not_steady"] = len(reports)
    verdict = one.outputs.verdict if one.outputs is not None and one.status == "ok" else None
    if verdict in ("wrong", "unchecked", "meaningless"):
        found[cast(BenchFlag, f"{verdict}_outputs")] = max(1, len(reports))
    return dict(found)


# --- goals ----------------------------------------------------------------------------------------


class Goal(NamedTuple):
    """A reason to choose an accelerator; ``figure`` names the deciding figure."""

    name: GoalName
    title: str
    figure: str
    read: Callable[[AcceleratorResult], Figure | None]
    show: Callable[[float], str]
    show_difference: Callable[[float], str]
    more_is_better: bool = False


_ENERGY = "net energy per inference"
GOALS = (
    Goal("latency", "Latency", "median latency", lambda r: r.latency_seconds, seconds, seconds),
    Goal("energy", "Energy", _ENERGY, lambda r: r.net_joules_per_inference, joules, joules),
    Goal("gpu_freed", "GPU freed", "GPU load", lambda r: r.utilization.get("gpu"), percent, points),
    Goal("throughput", "Throughput", "inputs", lambda r: r.throughput_per_second, rate, rate, True),
)


class _Candidate(NamedTuple):
    """An accelerator that may win, and its figure of a goal."""

    device: Device
    figure: Figure


def _candidates(goal: Goal, results: Sequence[AcceleratorResult]) -> list[_Candidate]:
    """Return the accelerators whose figure of a goal is known, the best first.

    Accelerators that failed or have wrong outputs do not take part.
    """
    candidates = []
    for result in results:
        figure = goal.read(result)
        if figure is not None and result.may_win:
            candidates.append(_Candidate(result.device, figure))
    candidates.sort(key=lambda one: one.figure.value, reverse=goal.more_is_better)
    return candidates


def decide(
    goal: Goal,
    results: Sequence[AcceleratorResult],
    powers: Mapping[Device, Sequence[RoundPower]],
) -> GoalResult:
    """Name the winner of a goal, if it is known to be better than the next.

    Energies are compared by the readings of all rounds, if those are known (``powers``), and else,
    like other figures, by the two intervals.
    """
    candidates = _candidates(goal, results)
    if not candidates:
        return GoalResult(goal=goal.name, sentence=f"{goal.title}: not known")
    best = candidates[0]
    if len(candidates) == 1:
        words = f"{goal.figure} {goal.show(best.figure.value)} on {best.device}"
        sentence = f"{goal.title}: nothing to compare with; {words}"
        return GoalResult(goal=goal.name, sentence=sentence)
    other = candidates[1]
    paired = None
    if goal.name == "energy":
        rounds, rounds_of_other = powers.get(best.device, ()), powers.get(other.device, ())
        paired = difference_of_rounds(rounds, rounds_of_other)
    if paired is None:
        gap = _shortfall(goal, other, best)
    elif paired.value >= 0:
        gap = paired
    else:
        # The rounds show the opposite of the two means, in which errors of both remain.
        gap, best, other = paired.times(-1), other, best
    has_won = judge(gap) == "second"
    verdict = "no difference that this measurement can tell"
    if has_won:
        verdict = f"{best.device} wins"
    interval, width = None, "one round has no interval"
    if gap.low is not None and gap.high is not None:
        interval = Interval(low=gap.low, high=gap.high)
        what = "the difference" if paired is None else "the difference within rounds"
        ends = f"{goal.show_difference(gap.low)} to {goal.show_difference(gap.high)}"
        width = f"95 % interval of {what} {ends}"
    return GoalResult(
        goal=goal.name,
        winner=best.device if has_won else None,
        runner_up=other.device if has_won else None,
        difference=gap.value,
        compared="figures" if paired is None else "rounds",
        interval=interval,
        sentence=(
            f"{goal.title}: {verdict}; {goal.figure} {goal.show(best.figure.value)} on"
            f" {best.device}, {goal.show(other.figure.value)} on {other.device}; {width}"
        ),
    )


def _shortfall(goal: Goal, one: _Candidate, best: _Candidate) -> Figure:
    """Return by how much a figure is worse than the best, by the intervals of both."""
    if goal.more_is_better:
        return subtract(best.figure, one.figure)
    gap = subtract(one.figure, best.figure)
    if goal.name == "gpu_freed":
        return gap.within(-1.0, 1.0)
    return gap
