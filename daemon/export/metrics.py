"""The snapshot becomes metric families, made anew at each scrape.

What is not known has no series. Telemetry that is no longer fresh has none either, so that a
stale value never passes for a live one; ``tegrascope_source_up`` says so.
"""

import platform
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from prometheus_client.core import Metric
from prometheus_client.samples import Exemplar

from ... import __version__
from ...parsers.records import Engine, Sample
from ..beside_points import Point, beside_points
from ..measure.dla import POWERED
from ..measure.run_report import RunReport
from .snapshot import Histogram, Snapshot, SourceState, WorkloadState

Kind = Literal["counter", "gauge", "histogram", "info", "summary"]


@dataclass(frozen=True)
class Family:
    """One row of the table.

    Attributes:
        name: As it is queried; counters with ``_total``, infos with ``_info``.
        kind: Its type.
        help: One sentence.
    """

    name: str
    kind: Kind
    help: str


TABLE = (
    Family("tegra_info", "info", "The board and its releases; simulated is true where the telemetry is not of this machine."),
    Family("tegra_ram_used_bytes", "gauge", "Memory in use."),
    Family("tegra_ram_total_bytes", "gauge", "Memory available to Linux."),
    Family("tegra_ram_available_bytes", "gauge", "Memory that programs could still get without swapping, by the kernel's own estimate."),
    Family("tegra_ram_largest_free_block_bytes", "gauge", "Size of the largest free block of the buddy allocator."),
    Family("tegra_swap_used_bytes", "gauge", "Swap in use."),
    Family("tegra_swap_total_bytes", "gauge", "Swap configured."),
    Family("tegra_swap_cached_bytes", "gauge", "Swap that is in memory too."),
    Family("tegra_cpu_utilization_ratio", "gauge", "Busy share of a core since the line before."),
    Family("tegra_cpu_frequency_hertz", "gauge", "Clock of a core."),
    Family("tegra_cpu_online", "gauge", "1 where a core is plugged in."),
    Family("tegra_emc_utilization_ratio", "gauge", "Share of the memory bandwidth at the present clock."),
    Family("tegra_emc_frequency_hertz", "gauge", "Clock of the memory controller."),
    Family("tegra_gpu_utilization_ratio", "gauge", "GPU load (GR3D), all clusters together."),
    Family("tegra_gpu_frequency_hertz", "gauge", "Clock of a GPU cluster; 0 is gated."),
    Family("tegra_gpu_memory_used_bytes", "gauge", "Memory of the GPU in use, where it has its own."),
    Family("tegra_gpu_memory_total_bytes", "gauge", "Memory of the GPU, where it has its own."),
    Family("tegra_gpu_memory_active_ratio", "gauge", "Share of time in which memory of the GPU was read or written; no share of its bandwidth."),
    Family("tegra_engine_active", "gauge", "1 where an engine is powered, 0 where it is gated."),
    Family("tegra_engine_utilization_ratio", "gauge", "Load of an engine."),
    Family("tegra_engine_frequency_hertz", "gauge", "Clock of an engine."),
    Family("tegra_dla_active", "gauge", "1 where tegrastats calls a DLA core on, 0 where it calls it off: a gate, not a load."),
    Family("tegra_dla_frequency_hertz", "gauge", "Clock of a DLA core."),
    Family("tegra_dla_busy_ratio", "gauge", "Busy share of a DLA core, by the source that says so."),
    Family("tegra_dla_busy_seconds_total", "counter", "Time in which a DLA core had a task, since the daemon began to count, by source."),
    Family("tegra_dla_tasks_total", "counter", "Tasks of a DLA core that have ended, of all programs."),
    Family("tegra_dla_powered_ratio", "gauge", "Share of the last interval in which a DLA core was powered: at least what it was busy."),
    Family("tegra_dla_powered_seconds_total", "counter", "Time for which a DLA core was powered since the boot, by runtime power management."),
    Family("tegra_dla_lane_occupancy_ratio", "gauge", "Share of the last interval in which our own runs were in flight on a DLA core."),
    Family("tegra_temperature_celsius", "gauge", "Temperature of a thermal zone."),
    Family("tegra_temperature_trip_celsius", "gauge", "Lowest temperature of a zone at which something happens, by kind."),
    Family("tegra_cooling_state_ratio", "gauge", "How much a cooling device cools or holds back, as a share of its most."),
    Family("tegra_rail_power_watts", "gauge", "Power on a supply rail at the moment of the line."),
    Family("tegra_rail_energy_joules_total", "counter", "Energy of a supply rail, integrated from every sample."),
    Family("tegra_module_energy_joules_total", "counter", "Energy of the module, by the board's rail rule, integrated from every sample."),
    Family("tegra_throttle_events_total", "counter", "Times that a clock began to be held down, by kind, as far as samples show it."),
    Family("tegra_fan_speed_ratio", "gauge", "Speed of a fan as a share of its full speed."),
    Family("tegra_inference_workload_info", "info", "What a workload is configured to run: model (the file's name), back-end, precision, batch."),
    Family("tegra_inference_runs_total", "counter", "Runs that ended, by outcome."),
    Family("tegra_inference_consecutive_failures", "gauge", "Runs that failed or timed out since the last good one."),
    Family("tegra_inferences_total", "counter", "Inferences completed in steady phases."),
    Family("tegra_inference_latency_seconds", "histogram", "Latency of each inference of a steady phase, by the host clock."),
    Family("tegra_inference_energy_joules_total", "counter", "Module energy of steady phases: gross, and net of the idle baseline; runs that overlap each count all of it."),
    Family("tegra_inference_run_active", "gauge", "1 while a run is in flight."),
    Family("tegra_inference_last_run_throughput_per_second", "gauge", "Inputs a second of the last good run."),
    Family("tegra_inference_last_run_energy_joules_per_inference", "gauge", "Module energy of one inference in the last good run; withheld where its window is insufficient."),
    Family("tegra_inference_last_run_latency_seconds", "summary", "Latency quantiles of the last good run."),
    Family("tegra_inference_last_run_gpu_utilization_ratio", "gauge", "Mean GPU load over the last good run."),
    Family("tegra_inference_last_run_dla_busy_ratio", "gauge", "Mean busy share of a DLA core over the last good run, by source."),
    Family("tegra_inference_last_run_emc_utilization_ratio", "gauge", "Mean use of the memory bandwidth over the last good run."),
    Family("tegra_inference_last_run_temperature_max_celsius", "gauge", "Highest temperature of any zone in the last good run."),
    Family("tegra_inference_layers", "gauge", "Layers of the engine of the last good run, by where they run; a subgraph of the DLA is one."),
    Family("tegra_inference_last_run_timestamp_seconds", "gauge", "When the last good run started."),
    Family("tegra_inference_cold_start_seconds", "gauge", "Parts of the last cold start."),
    Family("tegra_inference_quality_flag", "gauge", "1 for each quality flag of the last good run."),
    Family("tegrascope_build_info", "info", "Versions of the daemon."),
    Family("tegrascope_source_up", "gauge", "1 while a telemetry source gives fresh samples."),
    Family("tegrascope_source_restarts_total", "counter", "Times a source was started again."),
    Family("tegrascope_samples_total", "counter", "Samples of a source."),
    Family("tegrascope_sample_timestamp_seconds", "gauge", "When the newest sample of a source arrived."),
    Family("tegrascope_root_fields_missing", "gauge", "1 where tegrastats shows nothing of what only root may see (DLA, EMC, engines); their series are absent then."),
    Family("tegrascope_dla_trace_troubles_total", "counter", "What did not go by the book in the trace of the DLA, by reason."),
    Family("tegrascope_lines_unparsed_total", "counter", "Lines that were no record, by reason."),
    Family("tegrascope_tokens_unparsed_total", "counter", "Words of records that were not understood."),
    Family("tegrascope_schedule_lateness_seconds", "histogram", "Start of a scheduled run less the time it was due."),
    Family("tegrascope_runs_skipped_total", "counter", "Scheduled runs that did not start, by reason."),
    Family("tegrascope_module_power_budget_watts", "gauge", "Power that the module should draw at most, as the configuration has it."),
    Family("tegrascope_dla_expected_busy_ratio", "gauge", "What a DLA core should be busy at least, as the configuration has it."),
    Family("tegrascope_store_write_errors_total", "counter", "Writes to the run store that failed."),
    Family("tegrascope_store_free_bytes", "gauge", "Room that is left where the run store is."),
)  # fmt: skip


_ROWS = {family.name: family for family in TABLE}

# Numbers for which a Sample has no place, as ``beside`` names them: the metric and its labels.
_BESIDE = {
    "gpu_memory.used_bytes": ("tegra_gpu_memory_used_bytes", {}),
    "gpu_memory.total_bytes": ("tegra_gpu_memory_total_bytes", {}),
    "gpu_memory.active_ratio": ("tegra_gpu_memory_active_ratio", {}),
    "fans.gpu.speed_ratio": ("tegra_fan_speed_ratio", {"fan": "gpu"}),
}


def points(snapshot: Snapshot, now_ns: int) -> Iterator[Point]:
    """Yield every gauge, counter and info of a snapshot: its name, labels and value.

    Args:
        snapshot: What is known.
        now_ns: CLOCK_MONOTONIC, which decides what is still fresh.
    """
    environment = snapshot.environment
    yield (
        "tegra_info",
        {
            "board": environment.board or "",
            "module": environment.module or "",
            "l4t": environment.l4t or "",
            "jetpack": environment.jetpack or "",
            "power_mode": environment.power_mode or "",
            "simulated": str(environment.simulated).lower(),
        },
        1,
    )
    for source in snapshot.sources:
        if source.latest is not None and source.is_fresh(now_ns):
            yield from _sample_points(source.latest.value)
            for core, ratio in snapshot.dla_occupancy.items():
                yield "tegra_dla_lane_occupancy_ratio", {"core": str(core)}, ratio
            yield from beside_points(snapshot.beside)
    for (zone, kind), celsius in snapshot.trips_celsius.items():
        yield "tegra_temperature_trip_celsius", {"zone": zone, "kind": kind}, celsius
    for rail, joules in snapshot.rail_joules.items():
        yield "tegra_rail_energy_joules_total", {"rail": rail}, joules
    if snapshot.module_joules is not None:
        yield "tegra_module_energy_joules_total", {}, snapshot.module_joules
    for kind, count in snapshot.throttle_events.items():
        yield "tegra_throttle_events_total", {"kind": kind}, count
    for state in snapshot.workloads.values():
        yield from _workload_points(state, snapshot.module_joules is not None)
    yield (
        "tegrascope_build_info",
        {"version": __version__, "python": platform.python_version()},
        1,
    )
    for source in snapshot.sources:
        yield from _source_points(source, now_ns)
    is_fresh = any(source.is_fresh(now_ns) for source in snapshot.sources)
    for name, up in snapshot.companions_up.items():
        yield "tegrascope_source_up", {"source": name}, int(up and is_fresh)
    for reason, count in snapshot.skipped.items():
        yield "tegrascope_runs_skipped_total", {"reason": reason}, count
    if snapshot.limits.power_watts is not None:
        yield "tegrascope_module_power_budget_watts", {}, snapshot.limits.power_watts
    for device, ratio in snapshot.limits.dla_busy_ratio.items():
        yield "tegrascope_dla_expected_busy_ratio", {"core": device.removeprefix("dla")}, ratio
    yield "tegrascope_store_write_errors_total", {}, snapshot.store_write_errors
    if snapshot.store_free_bytes is not None:
        yield "tegrascope_store_free_bytes", {}, snapshot.store_free_bytes


def _sample_points(sample: Sample) -> Iterator[Point]:
    if sample.ram is not None:
        yield "tegra_ram_used_bytes", {}, sample.ram.used_bytes
        yield "tegra_ram_total_bytes", {}, sample.ram.total_bytes
        if sample.ram.largest_free_block_bytes is not None:
            yield "tegra_ram_largest_free_block_bytes", {}, sample.ram.largest_free_block_bytes
    if sample.swap is not None:
        yield "tegra_swap_used_bytes", {}, sample.swap.used_bytes
        yield "tegra_swap_total_bytes", {}, sample.swap.total_bytes
        if sample.swap.cached_bytes is not None:
            yield "tegra_swap_cached_bytes", {}, sample.swap.cached_bytes
    for core in sample.cpu:
        labels = {"core": str(core.core)}
        yield "tegra_cpu_online", labels, int(core.online)
        if core.utilization_ratio is not None:
            yield "tegra_cpu_utilization_ratio", labels, core.utilization_ratio
        if core.frequency_hertz is not None:
            yield "tegra_cpu_frequency_hertz", labels, core.frequency_hertz
    if sample.emc is not None:
        if sample.emc.utilization_ratio is not None:
            yield "tegra_emc_utilization_ratio", {}, sample.emc.utilization_ratio
        if sample.emc.frequency_hertz is not None:
            yield "tegra_emc_frequency_hertz", {}, sample.emc.frequency_hertz
    if sample.gpu is not None:
        if sample.gpu.utilization_ratio is not None:
            yield "tegra_gpu_utilization_ratio", {}, sample.gpu.utilization_ratio
        for cluster, hertz in enumerate(sample.gpu.frequency_hertz):
            yield "tegra_gpu_frequency_hertz", {"gpc": str(cluster)}, hertz
    for name, engine in sample.engines.items():
        yield from _engine_points("tegra_engine", {"engine": name}, engine)
    for dla in sample.dla:
        labels = {"core": str(dla.core)}
        for name, labelled, value in _engine_points("tegra_dla", labels, dla):
            if name == "tegra_dla_utilization_ratio":
                yield "tegra_dla_busy_ratio", {**labels, "source": "tegrastats"}, value
            else:
                yield name, labelled, value
    for zone, celsius in sample.temperatures_celsius.items():
        if celsius is not None:
            yield "tegra_temperature_celsius", {"zone": zone}, celsius
    for name, rail in sample.rails.items():
        yield "tegra_rail_power_watts", {"rail": name}, rail.instant_watts
    for name, value in sample.beside().items():
        if name in _BESIDE:
            yield *_BESIDE[name], value


def _engine_points(prefix: str, labels: dict[str, str], engine: Engine) -> Iterator[Point]:
    if engine.state is not None:
        yield f"{prefix}_active", labels, int(engine.state == "on")
    if engine.utilization_ratio is not None:
        yield f"{prefix}_utilization_ratio", labels, engine.utilization_ratio
    if engine.frequency_hertz is not None:
        yield f"{prefix}_frequency_hertz", labels, engine.frequency_hertz


def _workload_points(state: WorkloadState, has_total: bool) -> Iterator[Point]:
    labels = {"workload": state.workload, "device": state.device}
    if state.settings:
        yield "tegra_inference_workload_info", {**labels, **state.settings}, 1
    # Counters begin at 0, so that the first run is an increase too.
    for outcome, count in {"ok": 0, "failed": 0, "timeout": 0, **state.runs}.items():
        yield "tegra_inference_runs_total", {**labels, "outcome": outcome}, count
    yield "tegra_inference_consecutive_failures", labels, state.failures
    yield "tegra_inferences_total", labels, state.inferences
    if has_total or state.gross_joules is not None:
        kind = {**labels, "kind": "gross"}
        yield "tegra_inference_energy_joules_total", kind, state.gross_joules or 0.0
    if state.net_joules is not None:
        kind = {**labels, "kind": "net"}
        yield "tegra_inference_energy_joules_total", kind, state.net_joules
    yield "tegra_inference_run_active", labels, int(state.active_run is not None)
    for part, seconds in state.cold_start.items():
        yield "tegra_inference_cold_start_seconds", {**labels, "part": part}, seconds
    if state.last_good is not None:
        yield from _last_run_points(labels, state.last_good)


def _last_run_points(labels: dict[str, str], report: RunReport) -> Iterator[Point]:
    prefix = "tegra_inference_last_run"
    if report.throughput_per_second is not None:
        yield f"{prefix}_throughput_per_second", labels, report.throughput_per_second
    if report.energy is not None:
        name = f"{prefix}_energy_joules_per_inference"
        if report.energy.gross_joules_per_inference is not None:
            kind = {**labels, "kind": "gross"}
            yield name, kind, report.energy.gross_joules_per_inference
        if report.energy.net_joules_per_inference is not None:
            yield name, {**labels, "kind": "net"}, report.energy.net_joules_per_inference
    if report.latency is not None:
        for quantile, seconds in (
            ("0.5", report.latency.p50_seconds),
            ("0.9", report.latency.p90_seconds),
            ("0.95", report.latency.p95_seconds),
            ("0.99", report.latency.p99_seconds),
            ("0.999", report.latency.p999_seconds),
        ):
            yield f"{prefix}_latency_seconds", {**labels, "quantile": quantile}, seconds
    if report.telemetry is not None:
        for signal, utilization in report.telemetry.utilization.items():
            if signal in ("gpu", "emc"):
                yield f"{prefix}_{signal}_utilization_ratio", labels, utilization.mean_ratio
            elif signal.startswith("dla"):
                core, _, source = signal.removeprefix("dla").partition(":")
                where = {**labels, "core": core, "source": source}
                if source != POWERED:
                    yield f"{prefix}_dla_busy_ratio", where, utilization.mean_ratio
        if report.telemetry.temperature:
            hottest = max(zone.max_celsius for zone in report.telemetry.temperature.values())
            yield f"{prefix}_temperature_max_celsius", labels, hottest
    if report.built is not None and report.built.placement.verdict != "unknown":
        placement = report.built.placement
        for place, layers in (
            ("dla", placement.dla_layers),
            ("gpu", placement.gpu_layers),
            ("reformat", placement.reformat_layers),
        ):
            yield "tegra_inference_layers", {**labels, "placement": place}, len(layers)
    yield f"{prefix}_timestamp_seconds", labels, report.started_wall_ns / 1e9
    for flag in report.quality:
        yield "tegra_inference_quality_flag", {**labels, "flag": flag}, 1


def _source_points(source: SourceState, now_ns: int) -> Iterator[Point]:
    labels = {"source": source.name}
    yield "tegrascope_source_up", labels, int(source.is_fresh(now_ns))
    yield "tegrascope_source_restarts_total", labels, source.restarts
    yield "tegrascope_samples_total", labels, source.samples
    if source.latest is not None:
        seconds = source.latest.wall_ns / 1e9
        yield "tegrascope_sample_timestamp_seconds", labels, seconds
    if source.lacks_root is not None and source.is_fresh(now_ns):
        yield "tegrascope_root_fields_missing", labels, int(source.lacks_root)
    for reason, count in source.lines_unparsed.items():
        yield "tegrascope_lines_unparsed_total", {"reason": reason}, count
    yield "tegrascope_tokens_unparsed_total", {}, source.tokens_unparsed


def families(snapshot: Snapshot, now_ns: int) -> list[Metric]:
    """Gather the points and histograms of a snapshot into families, in the table's order.

    Figures under ``tegra_`` carry ``simulated="true"`` where the telemetry is not of this machine.
    """
    marked = {"simulated": "true"} if snapshot.environment.simulated else {}
    made: dict[str, Metric] = {}
    for name, labels, value in points(snapshot, now_ns):
        if name.startswith("tegra_"):
            labels = {**labels, **marked}
        _family(made, name).add_sample(name, labels, value)
    for state in snapshot.workloads.values():
        labels = {"workload": state.workload, "device": state.device, **marked}
        name = "tegra_inference_latency_seconds"
        _add_histogram(_family(made, name), labels, state.latency)
    lateness = _family(made, "tegrascope_schedule_lateness_seconds")
    _add_histogram(lateness, {}, snapshot.lateness)
    return [made[family.name] for family in TABLE if family.name in made]


def _family(made: dict[str, Metric], name: str) -> Metric:
    if name not in made:
        row = _ROWS[name]
        bare = name.removesuffix("_total" if row.kind == "counter" else "_info")
        made[name] = Metric(bare if row.kind in ("counter", "info") else name, row.help, row.kind)
    return made[name]


def _add_histogram(family: Metric, labels: dict[str, str], histogram: Histogram) -> None:
    count = 0
    bounds = [str(bound) for bound in histogram.bounds] + ["+Inf"]
    for bound, more, latest in zip(bounds, histogram.counts, histogram.exemplars, strict=True):
        count += more
        exemplar = (
            Exemplar({"run_id": latest.run_id}, latest.value, latest.wall_seconds)
            if latest
            else None
        )
        name = f"{family.name}_bucket"
        family.add_sample(name, {**labels, "le": bound}, count, exemplar=exemplar)
    family.add_sample(f"{family.name}_count", labels, count)
    family.add_sample(f"{family.name}_sum", labels, histogram.total)
