"""Rounds become figures with intervals, figures become winners: the result of one model."""

import statistics
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import isnan, sqrt
from typing import Any, NamedTuple, TypeVar, cast

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
    subtract,
)
from ...daemon.measure.latency import distribution
from ...daemon.measure.numerics import student
from ...daemon.measure.quality import SLOPE_CELSIUS_PER_SECOND, STEADY_RATIO
from ...daemon.measure.report import (
    Accelerator,
    Figure,
    Flag,
    Interval,
    LockInReport,
    Possible,
    RunReport,
    RunTelemetry,
    Span,
)
from ...daemon.measure.run_text import ABOVE, ends_of, joules, percent, points, rate, seconds
from ...daemon.measure.utilization import clock_figures
from ...daemon.measure.winner import judge
from ...parsers.inference.events import StageName
from .caveats import caveats_of
from .paired import RoundReadings, difference_of_rounds
from .records import (
    AcceleratorResult,
    BenchFlag,
    ClockRange,
    GoalName,
    GoalResult,
    LayerRow,
    ModelResult,
    Status,
    Sustained,
)
from .stopping import DOUBT, widened, widening

BLOCKS = 6
FEWEST_IN_BLOCK = 5
# Rounds that must agree.
AGREEING_ROUNDS = 3
# tegrastats prints whole percents.
LOAD_STEP = 0.01
# These flags only repeat that telemetry was not possible.
_WITHOUT_TELEMETRY: frozenset[Flag] = frozenset({"telemetry_gap", "insufficient_samples"})

N = TypeVar("N", int, float)


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
    absent without readings of the work and of two idle phases. A round that ``is_short`` tells of
    latency and throughput only.
    """

    report: RunReport
    latency_ns: "array[int]" = field(default_factory=lambda: array("q"))
    device_ns: "array[int]" = field(default_factory=lambda: array("q"))
    stages_ns: "Mapping[StageName, array[int]]" = field(default_factory=dict)
    clocks: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    power: RoundReadings | None = None
    is_short: bool = False


@dataclass
class Measured:
    """One model on one accelerator: its first run, and the rounds that count."""

    look: RunReport
    status: Status
    reason: str | None
    log: tuple[str, ...] = ()
    outputs: OutputCheck | None = None
    rounds: Sequence[Round] = ()
    lock_in: LockInReport | None = None
    lock_in_stages: dict[StageName, LockInReport] = field(default_factory=dict)
    sustained: Sustained | None = None
    layers: tuple[LayerRow, ...] = ()
    profiled_seconds: float | None = None
    profiled_inferences: int | None = None


def agree(rounds: Sequence[RunReport]) -> bool:
    """Return whether the last rounds of an accelerator agree from round to round.

    The rate and the median latency of the last three rounds must lie within 5 %, and no zone may
    have changed by 0.1 °C/s from the last round but one. Two rounds suffice if there are only
    two; one agrees with nothing.
    """
    last = rounds[-AGREEING_ROUNDS:]
    if len(last) < 2:
        return False
    rates, medians = [], []
    for report in last:
        if not report.throughput_per_second or report.latency is None:
            return False
        rates.append(report.throughput_per_second)
        medians.append(report.latency.p50_seconds)
    if max(rates) > STEADY_RATIO * min(rates) or max(medians) > STEADY_RATIO * min(medians):
        return False
    return _keeps_temperature(last[-2], last[-1])


def _keeps_temperature(before: RunReport, after: RunReport) -> bool:
    """Return whether no zone changes fast from one round to the next."""
    apart = (after.started_ns - before.started_ns) / 1e9
    if apart <= 0 or before.telemetry is None or after.telemetry is None:
        return True
    for name, zone in after.telemetry.temperature.items():
        earlier = before.telemetry.temperature.get(name)
        if earlier is None:
            continue
        change = abs(zone.max_celsius - earlier.max_celsius)
        if change / apart >= SLOPE_CELSIUS_PER_SECOND:
            return False
    return True


def clock_ranges(cut: WindowSlice, window: Span) -> dict[str, tuple[float, float]]:
    """Return lowest and highest of each clock in the second half of a steady phase.

    The first half is left out: clocks rise from idle when work begins.
    """
    inside = cut.inside((window.begin_ns + window.end_ns) // 2, window.end_ns)
    ranges = {}
    for name, (_, column) in clock_figures(cut.columns).items():
        known = [hertz for hertz in column[inside] if not isnan(hertz)]
        if known:
            ranges[name] = (min(known), max(known))
    return ranges


def reported_flags(report: RunReport) -> list[Flag]:
    """Return a round's flags, less those that only repeat that telemetry is missing."""
    seen = report.telemetry is not None
    return [flag for flag in report.quality if seen or flag not in _WITHOUT_TELEMETRY]


def mean_loads(loads: Sequence[Mapping[str, float]]) -> dict[str, Figure]:
    """Return the mean of each named ratio that every round has."""
    means: dict[str, Figure] = {}
    for name in loads[0] if loads else ():
        known = [ratios[name] for ratios in loads if name in ratios]
        mean = mean_of_rounds(known, floor=LOAD_STEP / 2)
        if mean is not None and len(known) == len(loads):
            means[name] = mean.within(0.0, 1.0)
    return means


def summarise(
    model: str,
    measured: Sequence[Measured],
    rounds: Sequence[RunReport],
    doubt: float = DOUBT,
) -> ModelResult:
    """Return the result of a model; ``rounds`` is every measured run, in the order of time.

    ``doubt`` is the chance of an error of each interval: at a look it is a share of the usual 5 %.
    """
    results, powers = [], {}
    digest: str | None = None
    of_counted: set[str] = set()
    for one in measured:
        results.append(summarise_accelerator(one, doubt))
        powers[one.look.accelerator] = _powers(one.rounds)
        digest = digest or one.look.model_sha256
        of_counted.update(each.report.run_id for each in one.rounds)
    on_gpu = _gpu_load(results)
    for place, result in enumerate(results):
        if result.device != "gpu":
            freed = difference(on_gpu, result.utilization.get("gpu"))
            freed = freed and freed.within(-1.0, 1.0)
            results[place] = result.model_copy(update={"gpu_freed": freed})
    return ModelResult(
        model=model,
        model_sha256=digest,
        order=tuple(report.accelerator for report in rounds),
        accelerators=tuple(results),
        goals=tuple(decide(goal, results, powers, doubt) for goal in GOALS),
        checks=caveats_of(results, rounds[-1].environment if rounds else None),
        counted=tuple(report.run_id for report in rounds if report.run_id in of_counted),
        rounds=tuple(rounds),
    )


def _gpu_load(results: Sequence[AcceleratorResult]) -> Figure | None:
    """Return the load of the GPU where it does the work itself."""
    for result in results:
        if result.device == "gpu" and result.may_win:
            return result.utilization.get("gpu")
    return None


def summarise_accelerator(one: Measured, doubt: float = DOUBT) -> AcceleratorResult:
    """Return the result of all rounds of one accelerator; ``doubt`` is that of its intervals."""
    whole = [each for each in one.rounds if not each.is_short] or one.rounds
    reports = [each.report for each in whole]
    is_steady = agree(reports) if len(reports) > 1 else None
    built = one.look.built
    for report in reports:
        # Some back-ends know only after a run how they launched it.
        built = report.built or built
    return AcceleratorResult(
        device=one.look.accelerator,
        backend=one.look.backend,
        status=one.status,
        reason=one.reason,
        log=one.log,
        outputs=one.outputs,
        lock_in=one.lock_in,
        lock_in_stages=one.lock_in_stages,
        sustained=one.sustained,
        layers=one.layers,
        profiled_seconds=one.profiled_seconds,
        profiled_inferences=one.profiled_inferences,
        built=built,
        possible=mean_possible(reports),
        cold_start_seconds=one.look.cold_start_seconds,
        process_peak_bytes=_largest(report.process_peak_bytes for report in reports),
        device_peak_bytes=_largest(report.device_peak_bytes for report in reports),
        **_wider(_times(one.rounds), len(one.rounds), doubt),
        **_wider(_energies(reports) | _state(whole), len(whole), doubt),
        rounds=len(whole),
        short_rounds=len(one.rounds) - len(whole),
        is_steady=is_steady,
        unsettled_rounds=sum("not_steady" in report.quality for report in reports),
        flags=_flags(one, reports, is_steady),
        foreign_dla_processes=foreign_processes(reports),
    )


def mean_possible(reports: Sequence[RunReport]) -> Possible | None:
    """Return the share of the possible of all rounds; a figure that one round lacks is ``None``."""
    shares = present(report.possible for report in reports)
    if not shares or len(shares) < len(reports):
        return None
    means: dict[str, float | None] = {}
    for name in Possible.model_fields:
        values = [getattr(share, name) for share in shares]
        if name not in ("precision", "bound"):
            means[name] = None if None in values else statistics.fmean(values)
    return shares[-1].model_copy(update=means)


def _wider(figures: dict[str, Any], rounds: int, doubt: float) -> dict[str, Any]:
    """Return the figures of so many rounds with the intervals of a look.

    All of an interval is widened as its part by the spread of the rounds has to be. For the part
    that one round has by itself, less would do. A single round has the freedom of its blocks.
    """
    freedom = BLOCKS - 1
    if rounds > 1:
        freedom = rounds - 1
    factor = widening(freedom, doubt)
    wider = dict(figures)
    for name, value in figures.items():
        if isinstance(value, Figure):
            wider[name] = widened(value, factor)
        elif name == "utilization":
            loads = {signal: widened(load, factor) for signal, load in value.items()}
            wider[name] = {signal: load.within(0.0, 1.0) for signal, load in loads.items()}
    return wider


def _largest(values: Iterable[N | None]) -> N | None:
    return max(present(values), default=None)


def _times(rounds: Sequence[Round]) -> dict[str, Any]:
    """Return latency, its spread, and throughput, over the inferences of all rounds."""
    latencies, device_times = array("q"), array("q")
    stages = {stage: array("q") for stage in (rounds[0].stages_ns if rounds else ())}
    medians, rates, variations = [], [], []
    for each in rounds:
        latencies.extend(each.latency_ns)
        device_times.extend(each.device_ns)
        for stage, durations in stages.items():
            durations.extend(each.stages_ns.get(stage, ()))
        if each.report.latency is not None:
            half = median_half_width(each.latency_ns)
            medians.append(Figure.around(each.report.latency.p50_seconds, half))
        rates.append(each.report.throughput_per_second)
        variations.append(variation(each.device_ns or each.latency_ns))
    timed = {stage: durations for stage, durations in stages.items() if durations}
    return {
        "latency": distribution(latencies),
        "device_latency": distribution(device_times),
        "stages": {stage: distribution(durations) for stage, durations in timed.items()},
        "latency_seconds": mean_of_most(medians),
        "throughput_per_second": mean_of_rounds(present(rates)),
        "variation": _largest(variations),
    }


def _energies(reports: Sequence[RunReport]) -> dict[str, Any]:
    """Return energy per inference and power: means of the counted rounds that publish them."""
    gross, net, counted, powers, offsets = [], [], [], [], []
    for report in reports:
        gross.append(energy_of(report, "gross"))
        net.append(energy_of(report, "net"))
        counted.append(_counter_energy(report))
        powers.append(mean_watts(report))
        if report.energy is not None and report.energy.offset_joules is not None:
            offsets.append(report.energy.offset_joules / max(report.inferences, 1))
    return {
        "gross_joules_per_inference": mean_energy(gross),
        "net_joules_per_inference": mean_energy(net),
        "counter_joules_per_inference": mean_energy(counted),
        "offset_joules_per_inference": statistics.fmean(offsets) if offsets else None,
        "mean_watts": mean_of_rounds(present(powers)),
    }


def _state(rounds: Sequence[Round]) -> dict[str, Any]:
    """Return loads, clocks and the highest temperature of the board in all rounds."""
    loads, gates, zones = [], [], []
    clocks: dict[str, list[float]] = {}
    for each in rounds:
        telemetry = each.report.telemetry or RunTelemetry(samples=0)
        gates.append(telemetry.dla_active)
        loads.append({name: load.mean_ratio for name, load in telemetry.utilization.items()})
        for name, zone in telemetry.temperature.items():
            zones.append((zone.max_celsius, name))
        for name, ends in each.clocks.items():
            clocks.setdefault(name, []).extend(ends)
    ranges = {}
    for name, known in clocks.items():
        ranges[name] = ClockRange(lowest_hertz=min(known), highest_hertz=max(known))
    active = {}
    for core, ratio in mean_loads(gates).items():
        active[core] = min(max(ratio.value, 0.0), 1.0)
    celsius, hottest_zone = max(zones, default=(None, None))
    return {
        "utilization": mean_loads(loads),
        "clocks": ranges,
        "dla_active": active,
        "hottest_zone": hottest_zone,
        "hottest_celsius": celsius,
    }


def _powers(rounds: Sequence[Round]) -> list[RoundReadings]:
    """Return the readings of the rounds whose energy is published.

    Return an empty list if one of them has no readings, or if a counter gave its energy: a rhythm
    may escape the readings of power, but not the counter, so its figures are compared.
    """
    powers = []
    for one in rounds:
        if energy_of(one.report, "net") is None:
            continue
        energy = one.report.energy
        is_counted = energy is not None and energy.gross_method == "counter"
        if is_counted or one.power is None:
            return []
        powers.append(one.power)
    return powers


def _counter_energy(report: RunReport) -> Figure | None:
    """Return gross energy per inference by the rails' hardware counters, if they have them."""
    energy, count = report.energy, report.inferences
    if energy is None or energy.gross_joules_per_inference is None or energy.counter_joules is None:
        return None
    edge = energy.counter_edge_joules
    return Figure.around(energy.counter_joules / count, None if edge is None else edge / count)


def foreign_processes(reports: Iterable[RunReport]) -> tuple[str, ...]:
    """Return the names of the processes that raised ``foreign_dla_activity``, without repeats."""
    names: dict[str, None] = {}
    for report in reports:
        names.update(dict.fromkeys(report.foreign_dla_processes))
    return tuple(names)


def _flags(
    one: Measured, reports: Sequence[RunReport], is_steady: bool | None
) -> dict[BenchFlag, int]:
    """Return in how many rounds each flag was raised; what holds for all rounds counts for all.

    ``not_steady`` has two meanings. A run has it if it had not settled at its end, a bench if its
    rounds do not agree. This is the result of a bench, so the flag of the runs is replaced.
    """
    counts: Counter[BenchFlag] = Counter()
    for report in reports:
        counts.update(reported_flags(report))
    counts.pop("not_steady", None)
    if is_steady is False:
        counts["not_steady"] = len(reports)
    if one.outputs is not None and one.status == "ok":
        verdict = one.outputs.verdict
        if verdict in ("wrong", "unchecked", "meaningless"):
            counts[cast(BenchFlag, f"{verdict}_outputs")] = max(1, len(reports))
        elif one.outputs.unjudged:
            counts["unjudged_outputs"] = max(1, len(reports))
    return dict(counts)


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


_ENERGY = f"net energy {ABOVE} per inference"
GOALS = (
    Goal("latency", "Latency", "median latency", lambda r: r.latency_seconds, seconds, seconds),
    Goal("energy", "Energy", _ENERGY, lambda r: r.net_joules_per_inference, joules, joules),
    Goal("gpu_freed", "GPU freed", "GPU load", lambda r: r.utilization.get("gpu"), percent, points),
    Goal("throughput", "Throughput", "inputs", lambda r: r.throughput_per_second, rate, rate, True),
)


class _Candidate(NamedTuple):
    """An accelerator that may win, and its figure of a goal, the mean of so many rounds."""

    device: Accelerator
    figure: Figure
    rounds: int


def _candidates(goal: Goal, results: Sequence[AcceleratorResult]) -> list[_Candidate]:
    """Return the accelerators whose figure of a goal is known, the best first.

    Accelerators that failed or have wrong outputs do not take part.
    """
    candidates = []
    for result in results:
        figure = goal.read(result)
        if figure is not None and result.may_win:
            candidates.append(_Candidate(result.device, figure, result.rounds))
    candidates.sort(key=lambda one: one.figure.value, reverse=goal.more_is_better)
    return candidates


def decide(
    goal: Goal,
    results: Sequence[AcceleratorResult],
    powers: Mapping[Accelerator, Sequence[RoundReadings]],
    doubt: float = DOUBT,
) -> GoalResult:
    """Name the winner of a goal, if it is known to be better than the next.

    Energies are compared by the readings of all rounds, if those are known (``powers``), and else,
    like other figures, by the two intervals. ``doubt`` is the chance of an error of an interval.
    """
    candidates = _candidates(goal, results)
    if not candidates:
        return GoalResult(goal=goal.name, sentence=f"{goal.title}: not known")
    best = candidates[0]
    if len(candidates) == 1:
        words = f"{goal.figure} {goal.show(best.figure.value)} on {best.device}"
        sentence = f"{goal.title}: nothing to compare with; {words}"
        alone = _precision(best.figure, best.figure)
        return GoalResult(goal=goal.name, sentence=sentence, precision_ratio=alone)
    other = candidates[1]
    paired = None
    if goal.name == "energy":
        rounds, rounds_of_other = powers.get(best.device, ()), powers.get(other.device, ())
        paired = difference_of_rounds(rounds, rounds_of_other, doubt)
    remark = ""
    if paired is None:
        gap = _shortfall(goal, other, best)
    elif paired.value >= 0:
        gap = paired
    else:
        # The rounds show the opposite of the two means, in which errors of both remain.
        gap, best, other = paired.times(-1), other, best
        remark = ", although the means of the rounds are the other way round"
    winner, runner_up = None, None
    verdict = "no difference that this measurement can tell"
    if judge(gap) == "second":
        winner, runner_up = best.device, other.device
        verdict = f"{best.device} wins"
    interval, width = None, "the interval is not known"
    if gap.low is not None and gap.high is not None:
        interval = Interval(low=gap.low, high=gap.high)
        width = f"95 % interval of the difference {ends_of(gap, goal.show_difference)}"
        if paired is not None:
            width += ", narrower than the two ±: errors that a round's runs share cancel"
    elif min(best.rounds, other.rounds) == 1:
        width = "one round has no interval"
    verdict = f"{goal.title}: {verdict}"
    grounds = (
        f"{goal.figure} {goal.show(best.figure.value)} on {best.device},"
        f" {goal.show(other.figure.value)} on {other.device}; {width}{remark}"
    )
    return GoalResult(
        goal=goal.name,
        winner=winner,
        runner_up=runner_up,
        difference=gap.value,
        precision_ratio=_precision(gap, best.figure),
        compared="figures" if paired is None else "rounds",
        interval=interval,
        sentence=f"{verdict}; {grounds}",
        verdict=verdict,
        grounds=grounds,
    )


def _precision(figure: Figure, of: Figure) -> float | None:
    """Return half of a figure's interval as a share of another figure."""
    if figure.half is None or of.value <= 0:
        return None
    return figure.half / of.value


def _shortfall(goal: Goal, one: _Candidate, best: _Candidate) -> Figure:
    """Return by how much a figure is worse than the best, by the intervals of both."""
    if goal.more_is_better:
        return subtract(best.figure, one.figure)
    gap = subtract(one.figure, best.figure)
    if goal.name == "gpu_freed":
        return gap.within(-1.0, 1.0)
    return gap
