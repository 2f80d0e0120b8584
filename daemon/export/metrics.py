"""The snapshot becomes metric families, made anew at each scrape.

What is not known has no series. Telemetry that is no longer fresh has none either, so that a
stale value never passes for a live one; ``tegrascope_source_up`` says so.
"""

import platform
from collections.abc import Iterator

from prometheus_client.core import Metric
from prometheus_client.samples import Exemplar

from ... import __version__
from ...parsers.signals import split
from ..measure.dla import POWERED
from ..measure.run_report import RunReport
from .rows import METRICS
from .snapshot import Histogram, Snapshot, SourceState, WorkloadState

_ROWS = {row.name: row for row in METRICS}

Point = tuple[str, dict[str, str], float]


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
    is_fresh = any(source.is_fresh(now_ns) for source in snapshot.sources)
    for column, value in snapshot.values.items():
        signal, label = split(column) or (None, "")
        if signal is not None and signal.family is not None and (is_fresh or signal.kept):
            yield signal.family, signal.labels_of(label), value
    if is_fresh:
        for core, ratio in snapshot.dla_occupancy.items():
            yield "tegra_dla_lane_occupancy_ratio", {"core": str(core)}, ratio
    for (zone, kind), celsius in snapshot.trips_celsius.items():
        yield "tegra_temperature_trip_celsius", {"zone": zone, "kind": kind}, celsius
    for rail, joules in snapshot.rail_joules.items():
        yield "tegra_rail_energy_joules_total", {"rail": rail}, joules
    if snapshot.module_joules is not None:
        yield "tegra_module_energy_joules_total", {}, snapshot.module_joules
    for state in snapshot.workloads.values():
        yield from _workload_points(state, snapshot.module_joules is not None)
    yield (
        "tegrascope_build_info",
        {"version": __version__, "python": platform.python_version()},
        1,
    )
    for source in snapshot.sources:
        yield from _source_points(source, now_ns)
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
    yield "tegrascope_columns_unknown_total", {}, source.columns_unknown


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
    return [made[family.name] for family in METRICS if family.name in made]


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
