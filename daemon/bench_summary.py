"""All rounds of an accelerator become one result, and all accelerators one model's."""

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from math import isnan

from ..parsers.run_events import StageName
from .bench_checks import check_all
from .bench_goals import GOALS, decide
from .bench_result import (
    AcceleratorResult,
    BenchFlag,
    ClockRange,
    Figure,
    ModelResult,
    OutputCheck,
    Status,
)
from .bench_statistics import (
    difference,
    interval_half,
    mean_of_rounds,
    median_half_width,
    variation,
)
from .config import Backend
from .cut import Cut
from .latency import distribution
from .run_report import Device, Distribution, Flag, Interval, RunReport, Span
from .utilization import clock_columns

# Flags that only say that there was no telemetry, where there was none to be had.
_WITHOUT_TELEMETRY: frozenset[Flag] = frozenset({"telemetry_gap", "insufficient_samples"})
# tegrastats prints whole percents.
LOAD_STEP = 0.01


def _integers() -> "array[int]":
    return array("q")


@dataclass(frozen=True)
class Round:
    """One measured run.

    Attributes:
        report: As the daemon would have made it.
        latency_ns: shape (n,), of its inferences, in the order of time.
        device_ns: shape (n,), the same by the device's events; empty where it has none.
        stages_ns: Stage to shape (n,), where the engine tells.
        clocks: Lowest and highest of each clock once it had settled, in hertz.
    """

    report: RunReport
    latency_ns: "array[int]" = field(default_factory=_integers)
    device_ns: "array[int]" = field(default_factory=_integers)
    stages_ns: "Mapping[StageName, array[int]]" = field(default_factory=dict)
    clocks: Mapping[str, tuple[float, float]] = field(default_factory=dict)


@dataclass(frozen=True)
class Entry:
    """All that is known of one model on one accelerator.

    Attributes:
        device: The accelerator.
        backend: Its engine.
        status: How it ended.
        look: The run in which it was built and looked at.
        outputs: Whether its answers are right.
        rounds: Those that count.
        is_steady: Whether they agree.
    """

    device: Device
    backend: Backend
    status: Status
    look: RunReport
    outputs: OutputCheck | None
    rounds: Sequence[Round]
    is_steady: bool


def summarise(
    model: str,
    entries: Sequence[Entry],
    rounds: Sequence[RunReport],
    order: tuple[Device, ...],
) -> ModelResult:
    """Return what was found of a model.

    Args:
        model: As given.
        entries: One an accelerator, in the order asked for.
        rounds: Every measured run.
        order: Accelerators in the order in which they were measured.
    """
    alone = [summarise_accelerator(entry) for entry in entries]
    gpu = next((one for one in alone if one.device == "gpu" and one.may_win), None)
    results = tuple(with_gpu_freed(one, gpu) for one in alone)
    counted = {one.report.run_id for entry in entries for one in entry.rounds}
    return ModelResult(
        model=model,
        model_sha256=next((e.look.model_sha256 for e in entries if e.look.model_sha256), None),
        order=order,
        accelerators=results,
        goals=tuple(decide(goal, results) for goal in GOALS),
        checks=check_all(results),
        counted=tuple(one.run_id for one in rounds if one.run_id in counted),
        rounds=tuple(rounds),
    )


def summarise_accelerator(entry: Entry) -> AcceleratorResult:
    """Return what the rounds of one accelerator say together."""
    reports = [one.report for one in entry.rounds]
    latencies = array("q", chain.from_iterable(one.latency_ns for one in entry.rounds))
    on_device = array("q", chain.from_iterable(one.device_ns for one in entry.rounds))
    hottest = max(
        (
            (zone.max_celsius, name)
            for report in reports
            if report.telemetry is not None
            for name, zone in report.telemetry.temperature.items()
        ),
        default=None,
    )
    variations = [variation(one.device_ns or one.latency_ns) for one in entry.rounds]
    return AcceleratorResult(
        device=entry.device,
        backend=entry.backend,
        status=entry.status,
        reason=None if entry.status == "ok" else entry.look.reason,
        outputs=entry.outputs,
        built=entry.look.built,
        cold_start_seconds=entry.look.cold_start_seconds,
        latency=distribution(latencies),
        device_latency=distribution(on_device),
        stages=_stages(entry.rounds),
        latency_seconds=_latency(entry.rounds),
        throughput_per_second=mean_of_rounds(_present(r.throughput_per_second for r in reports)),
        gross_joules_per_inference=_joules(reports, "gross"),
        net_joules_per_inference=_joules(reports, "net"),
        mean_watts=mean_of_rounds(_present(map(_watts, reports))),
        utilization=_by_signal(reports),
        clocks=_clocks(entry.rounds),
        dla_active=_gates(reports),
        hottest_zone=hottest[1] if hottest else None,
        hottest_celsius=hottest[0] if hottest else None,
        variation=max(_present(variations), default=None),
        rounds=len(reports),
        is_steady=entry.is_steady if len(reports) > 1 else None,
        flags=_flags(entry, reports),
    )


def with_gpu_freed(result: AcceleratorResult, gpu: AcceleratorResult | None) -> AcceleratorResult:
    """Add how much of the GPU a model leaves to others here that it takes on the GPU."""
    if gpu is None or result.device == "gpu":
        return result
    on_gpu, here = gpu.utilization.get("gpu"), result.utilization.get("gpu")
    if on_gpu is None or here is None:
        return result
    interval = difference(here, on_gpu)
    freed = Figure(
        value=on_gpu.value - here.value,
        low=None if interval is None else interval.low,
        high=None if interval is None else interval.high,
    )
    return result.model_copy(update={"gpu_freed": freed})


def _latency(rounds: Sequence[Round]) -> Figure | None:
    known = [one for one in rounds if one.report.latency is not None]
    medians = _present(
        one.report.latency.p50_seconds if one.report.latency else None for one in known
    )
    return mean_of_rounds(medians, [median_half_width(one.latency_ns) for one in known])


def _stages(rounds: Sequence[Round]) -> dict[StageName, Distribution]:
    """Describe each stage of the inferences of all rounds."""
    names = rounds[0].stages_ns if rounds else {}
    joined = {
        stage: array("q", chain.from_iterable(one.stages_ns.get(stage, ()) for one in rounds))
        for stage in names
    }
    described = {stage: distribution(durations) for stage, durations in joined.items()}
    return {stage: one for stage, one in described.items() if one is not None}


def clock_ranges(cut: Cut, window: Span) -> dict[str, tuple[float, float]]:
    """Return lowest and highest of each clock in the second half of a steady phase.

    The first half is left out: clocks rise from idle when work begins.
    """
    inside = cut.inside((window.begin_ns + window.end_ns) // 2, window.end_ns)
    told = {
        name: [hertz for hertz in column[inside] if not isnan(hertz)]
        for name, column in clock_columns(cut.columns).items()
    }
    return {name: (min(hertz), max(hertz)) for name, hertz in told.items() if hertz}


def _clocks(rounds: Sequence[Round]) -> dict[str, ClockRange]:
    told: dict[str, list[float]] = {}
    for one in rounds:
        for name, ends in one.clocks.items():
            told.setdefault(name, []).extend(ends)
    return {
        name: ClockRange(lowest_hertz=min(ends), highest_hertz=max(ends))
        for name, ends in told.items()
    }


def _joules(reports: Sequence[RunReport], kind: str) -> Figure | None:
    """Return the energy of an inference; ``None`` unless every round that counts has one."""
    values: list[float] = []
    halves: list[float | None] = []
    for report in reports:
        energy = report.energy
        value = None if energy is None else getattr(energy, f"{kind}_joules_per_inference")
        if energy is None or value is None:
            return None
        interval: Interval | None = getattr(energy, f"{kind}_interval")
        values.append(value)
        halves.append(interval_half(interval, report.inferences))
    return mean_of_rounds(values, halves)


def _watts(report: RunReport) -> float | None:
    window = report.phases.get("steady")
    if report.energy is None or report.energy.gross_joules is None or window is None:
        return None
    return report.energy.gross_joules / window.seconds


def _by_signal(reports: Sequence[RunReport]) -> dict[str, Figure]:
    return _means(
        reports,
        lambda report: {
            name: load.mean_ratio
            for name, load in (report.telemetry.utilization if report.telemetry else {}).items()
        },
    )


def _gates(reports: Sequence[RunReport]) -> dict[str, float]:
    gates = _means(reports, lambda report: report.telemetry.dla_active if report.telemetry else {})
    return {name: min(max(figure.value, 0.0), 1.0) for name, figure in gates.items()}


def _means(
    reports: Sequence[RunReport], read: Callable[[RunReport], dict[str, float]]
) -> dict[str, Figure]:
    """Return the mean of each named ratio that every round has."""
    columns = [read(report) for report in reports]
    names = [name for name in (columns[0] if columns else {}) if all(name in c for c in columns)]
    means = {
        name: mean_of_rounds([column[name] for column in columns], floor=LOAD_STEP / 2)
        for name in names
    }
    return {name: figure for name, figure in means.items() if figure is not None}


def told_flags(report: RunReport) -> list[Flag]:
    """Return a round's flags, less those that only say that there was no telemetry."""
    seen = report.telemetry is not None
    return [flag for flag in report.quality if seen or flag not in _WITHOUT_TELEMETRY]


def _flags(entry: Entry, reports: Sequence[RunReport]) -> dict[BenchFlag, int]:
    told: Counter[BenchFlag] = Counter()
    for report in reports:
        told.update(told_flags(report))
    if len(reports) > 1 and not entry.is_steady:
        told["not_steady"] = len(reports)
    if entry.outputs is not None and entry.status == "ok":
        if entry.outputs.verdict == "wrong":
            told["wrong_outputs"] = max(1, len(reports))
        elif entry.outputs.verdict == "unchecked":
            told["unchecked_outputs"] = max(1, len(reports))
    return dict(told)


def _present(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]
