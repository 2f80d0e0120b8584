"""All rounds of an accelerator become one result, and all accelerators one model's."""

from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from ..measure.run_report import Device, RunReport
from ..measure.run_trace import distribution
from ..settings.config import BackendName
from .checks import check_all
from .goals import GOALS, decide
from .measured import BenchFlag, Figure, Status
from .result import AcceleratorResult, ModelResult, OutputCheck
from .rounds import (
    Round,
    clocks_of,
    gates_of,
    joules_by_counter,
    joules_of,
    latency_of,
    loads_of,
    present,
    stages_of,
    told_flags,
    watts_of,
)
from .statistics import difference, mean_of_rounds, variation


@dataclass(frozen=True)
class Entry:
    """All that is known of one model on one accelerator.

    Attributes:
        device: The accelerator.
        backend: Its engine.
        status: How it ended.
        reason: Why, for every status but ``ok``.
        look: The run in which it was built and looked at.
        outputs: Whether its answers are right.
        rounds: Those that count.
        is_steady: Whether they agree.
        nsys_report: Name of the report of Nsight Systems.
        nsys_problem: Why there is none.
    """

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


def summarise(
    model: str,
    entries: Sequence[Entry],
    rounds: Sequence[RunReport],
) -> ModelResult:
    """Return what was found of a model.

    Args:
        model: As given.
        entries: One an accelerator, in the order asked for.
        rounds: Every measured run, in the order of time.
    """
    alone = [summarise_accelerator(entry) for entry in entries]
    gpu = next((one for one in alone if one.device == "gpu" and one.may_win), None)
    results = tuple(with_gpu_freed(one, gpu) for one in alone)
    counted = {one.report.run_id for entry in entries for one in entry.rounds}
    return ModelResult(
        model=model,
        model_sha256=next((e.look.model_sha256 for e in entries if e.look.model_sha256), None),
        order=tuple(one.device for one in rounds),
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
        reason=entry.reason,
        nsys_report=entry.nsys_report,
        nsys_problem=entry.nsys_problem,
        outputs=entry.outputs,
        # Some back-ends know only after a run how they launched it.
        built=next((one.built for one in reversed(reports) if one.built), entry.look.built),
        cold_start_seconds=entry.look.cold_start_seconds,
        process_peak_bytes=max(present(r.process_peak_bytes for r in reports), default=None),
        device_peak_bytes=max(present(r.device_peak_bytes for r in reports), default=None),
        latency=distribution(latencies),
        device_latency=distribution(on_device),
        stages=stages_of(entry.rounds),
        latency_seconds=latency_of(entry.rounds),
        throughput_per_second=mean_of_rounds(present(r.throughput_per_second for r in reports)),
        gross_joules_per_inference=joules_of(reports, "gross"),
        net_joules_per_inference=joules_of(reports, "net"),
        counter_joules_per_inference=joules_by_counter(reports),
        mean_watts=mean_of_rounds(present(map(watts_of, reports))),
        utilization=loads_of(reports),
        clocks=clocks_of(entry.rounds),
        dla_active=gates_of(reports),
        hottest_zone=hottest[1] if hottest else None,
        hottest_celsius=hottest[0] if hottest else None,
        variation=max(present(variations), default=None),
        rounds=len(reports),
        is_steady=entry.is_steady if len(reports) > 1 else None,
        unsettled_rounds=sum("not_steady" in report.quality for report in reports),
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


def _flags(entry: Entry, reports: Sequence[RunReport]) -> dict[BenchFlag, int]:
    told: Counter[BenchFlag] = Counter()
    for report in reports:
        told.update(flag for flag in told_flags(report) if flag != "not_steady")
    if len(reports) > 1 and not entry.is_steady:
        told["not_steady"] = len(reports)
    if entry.outputs is not None and entry.status == "ok":
        if entry.outputs.verdict == "wrong":
            told["wrong_outputs"] = max(1, len(reports))
        elif entry.outputs.verdict == "unchecked":
            told["unchecked_outputs"] = max(1, len(reports))
    return dict(told)
