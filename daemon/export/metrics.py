"""Every metric of the page: those of telemetry signals, and those of runs and the daemon."""

import platform
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, chain
from typing import Any, Final, TypeAlias

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from ... import __version__
from ...parsers.signals import SIGNALS, Family, split
from ..measure.dla import POWERED
from ..measure.report import Distribution, RunReport
from .snapshot import Histogram, MissCount, Snapshot, SourceState, WorkloadState

Number: TypeAlias = float | None
Value: TypeAlias = Number | Histogram | MissCount | Mapping[Any, Number | str]


@dataclass(frozen=True)
class Scrape:
    """A snapshot at a time of CLOCK_MONOTONIC, and whether a source gives samples then."""

    snapshot: Snapshot
    now_ns: int
    is_fresh: bool


@dataclass(frozen=True, kw_only=True)
class MetricRow(Family):
    """A metric of runs or of the daemon.

    Attributes:
        read: Returns its value at a ``Scrape``: a number, a histogram, or numbers by value of its
            labels; the labels themselves of an info without them. None has no series.
        labels: Names of those labels.
    """

    read: Callable[[Any], Value]
    labels: tuple[str, ...] = ()


class SourceRow(MetricRow):
    """A metric of each telemetry source: ``read`` gets a ``SourceState``."""


class NamedSourceRow(MetricRow):
    """The same, with the name of the source as the label ``source``."""


class WorkloadRow(MetricRow):
    """A metric of each workload: ``read`` gets a ``WorkloadState``."""


class LastRunRow(MetricRow):
    """A metric of the last good run of each workload: ``read`` gets its ``RunReport``."""


def _info(page: Scrape) -> Mapping[str, str]:
    environment = page.snapshot.environment
    return {
        "board": environment.board or "",
        "module": environment.module or "",
        "l4t": environment.l4t or "",
        "jetpack": environment.jetpack or "",
        "power_mode": environment.power_mode or "",
        "simulated": str(environment.simulated).lower(),
    }


def _sources_up(page: Scrape) -> Mapping[str, Number]:
    up: dict[str, Number] = {}
    for source in page.snapshot.sources:
        up[source.name] = int(source.is_fresh(page.now_ns))
    # Companions are read at a line of the source: without one nothing is known of them.
    if page.is_fresh:
        for name, is_up in page.snapshot.companions_up.items():
            up[name] = int(is_up)
    return up


def _sample_time(source: SourceState) -> Number:
    if source.latest is None:
        return None
    return source.latest.wall_ns / 1e9


def _lacks_root(page: Scrape) -> Mapping[str, Number]:
    lacks_root: dict[str, Number] = {}
    for source in page.snapshot.sources:
        if source.lacks_root is not None and source.is_fresh(page.now_ns):
            lacks_root[source.name] = int(source.lacks_root)
    return lacks_root


def _workload_info(workload: WorkloadState) -> Mapping[str, str] | None:
    run = workload.last_good
    if run is None or run.built is None or run.built.engine_key is None:
        return workload.settings or None
    # As `engines list` prints it. Boards with the same one run the same engine.
    return {**workload.settings, "engine_key": run.built.engine_key[:12]}


def _runs(workload: WorkloadState) -> Mapping[str, Number]:
    # Counters begin at 0, so that the first run is an increase too.
    return {"ok": 0, "failed": 0, "timeout": 0, **workload.runs}


def _units(workload: WorkloadState) -> Mapping[str, Number]:
    unit = workload.settings.get("unit")
    if unit is None:
        return {}
    return {unit: workload.units}


def _energy(page: Scrape) -> Mapping[tuple[str, str, str], Number]:
    joules: dict[tuple[str, str, str], Number] = {}
    for state in page.snapshot.workloads.values():
        gross = state.gross_joules
        # Where the module's total is known, gross energy is a counter from the start.
        if gross is None and page.snapshot.module_joules is not None:
            gross = 0.0
        joules[state.workload, state.device, "gross"] = gross
        joules[state.workload, state.device, "net"] = state.net_joules
    return joules


def _energy_per_unit(run: RunReport) -> Mapping[tuple[str, str], Number]:
    if run.energy is None or run.unit is None:
        return {}
    return {
        (run.unit, "gross"): run.energy.joules_per_unit,
        (run.unit, "net"): run.energy.net_joules_per_unit,
    }


def _energy_per_inference(run: RunReport) -> Mapping[str, Number]:
    if run.energy is None:
        return {}
    return {
        "gross": run.energy.gross_joules_per_inference,
        "net": run.energy.net_joules_per_inference,
    }


def _quantiles(latency: Distribution | None) -> Mapping[str, Number]:
    if latency is None:
        return {}
    return {
        "0.5": latency.p50_seconds,
        "0.9": latency.p90_seconds,
        "0.95": latency.p95_seconds,
        "0.99": latency.p99_seconds,
        "0.999": latency.p999_seconds,
    }


def _stages(run: RunReport) -> Mapping[tuple[str, str], Number]:
    quantiles: dict[tuple[str, str], Number] = {}
    for stage, durations in run.stages.items():
        for share, seconds in _quantiles(durations).items():
            quantiles[stage, share] = seconds
    return quantiles


def _load(run: RunReport, device: str) -> Number:
    if run.telemetry is None or device not in run.telemetry.utilization:
        return None
    return run.telemetry.utilization[device].mean_ratio


def _dla_loads(run: RunReport) -> Mapping[tuple[str, str], Number]:
    loads: dict[tuple[str, str], Number] = {}
    if run.telemetry is None:
        return loads
    for name, load in run.telemetry.utilization.items():
        core, _, source = name.removeprefix("dla").partition(":")
        if name.startswith("dla") and source != POWERED:
            loads[core, source] = load.mean_ratio
    return loads


def _hottest(run: RunReport) -> Number:
    if run.telemetry is None:
        return None
    return max((zone.max_celsius for zone in run.telemetry.temperature.values()), default=None)


def _layers(run: RunReport) -> Mapping[str, Number]:
    if run.built is None or run.built.placement.verdict == "unknown":
        return {}
    placement = run.built.placement
    return {
        "dla": len(placement.dla_layers),
        "gpu": len(placement.gpu_layers),
        "reformat": len(placement.reformat_layers),
    }


# The first row begins the page. Another one follows the row before it, or the metric that it names;
# those of signals come after the first one.
_ROWS = (
    MetricRow("tegra_info", "info", "The board and its releases; simulated is true if the telemetry is not from this machine.", read=_info),
    MetricRow("tegra_dla_lane_occupancy_ratio", "gauge", "Share of the last interval with a tegrascope run in flight on a DLA core.", chart="DLA", legend="core {{core}} tegrascope runs", after="tegra_dla_powered_seconds_total", labels=("core",), read=lambda page: page.snapshot.dla_occupancy if page.is_fresh else {}),
    MetricRow("tegra_temperature_trip_celsius", "gauge", "Lowest temperature of a zone that triggers an action, by kind.", after="tegra_temperature_celsius", labels=("zone", "kind"), read=lambda page: page.snapshot.trips_celsius),
    MetricRow("tegra_rail_energy_joules_total", "counter", "Energy of a supply rail, integrated from every sample.", after="tegra_rail_power_watts", labels=("rail",), read=lambda page: page.snapshot.rail_joules),
    MetricRow("tegra_rail_energy_observed_seconds_total", "counter", "Time over which the energy of a rail was integrated; a gap in telemetry adds to neither.", after="tegra_rail_energy_joules_total", labels=("rail",), read=lambda page: page.snapshot.rail_seconds),
    MetricRow("tegra_module_energy_joules_total", "counter", "Energy of the module, by the board's rail rule, integrated from every sample.", after="tegra_rail_energy_observed_seconds_total", read=lambda page: page.snapshot.module_joules),
    MetricRow("tegra_module_energy_observed_seconds_total", "counter", "Time over which the energy of the module was integrated; a gap in telemetry adds to neither.", after="tegra_module_energy_joules_total", read=lambda page: page.snapshot.module_seconds),
    MetricRow("tegra_process_cpu_seconds_total", "counter", "CPU time of the processes of a name since the daemon's start; the busiest, and those that are configured.", chart="CPU by process", legend="{{process}}", after="tegra_cpu_online", labels=("process",), read=lambda page: {use.name: use.cpu_seconds for use in page.snapshot.processes}),
    MetricRow("tegra_process_resident_memory_bytes", "gauge", "Resident memory of the processes of a name; memory that they share counts for each.", chart="Memory by process", legend="{{process}}, resident", after="tegra_process_cpu_seconds_total", labels=("process",), read=lambda page: {use.name: use.memory_bytes for use in page.snapshot.processes}),
    MetricRow("tegra_process_start_time_seconds", "gauge", "When the oldest process of a name started, in seconds since 1970.", chart=None, after="tegra_process_resident_memory_bytes", labels=("process",), read=lambda page: {use.name: use.started_seconds for use in page.snapshot.processes}),
    WorkloadRow("tegra_inference_workload_info", "info", "What a workload is configured to run: model (the file's name), back-end, precision, memory, batch; and engine_key, the engine of its last good run.", read=_workload_info),
    WorkloadRow("tegra_inference_runs_total", "counter", "Runs that ended, by outcome.", labels=("outcome",), read=_runs),
    WorkloadRow("tegra_inference_consecutive_failures", "gauge", "Failed and timed-out runs since the last good one.", read=lambda workload: workload.failures),
    WorkloadRow("tegra_inference_consecutive_unsuccessful_runs", "gauge", "Failed, timed-out and skipped runs since the last good one, without those that the guard duty skipped.", read=lambda workload: workload.unsuccessful),
    WorkloadRow("tegra_inferences_total", "counter", "Inferences completed in steady phases.", read=lambda workload: workload.inferences),
    WorkloadRow("tegra_inference_units_total", "counter", "Units of work of steady phases, in the unit that the workload names: token, frame, request.", labels=("unit",), read=_units),
    WorkloadRow("tegra_inference_latency_seconds", "histogram", "Latency of each inference of a steady phase, by the host clock.", read=lambda workload: workload.latency),
    WorkloadRow("tegra_inference_deadline_seconds", "gauge", "Longest latency that an inference may have, by configuration; absent without a deadline.", read=lambda workload: workload.deadline_seconds),
    WorkloadRow("tegra_inference_deadline_misses_total", "counter", "Inferences of steady phases with a latency beyond the deadline.", read=lambda workload: None if workload.deadline_seconds is None else workload.misses),
    MetricRow("tegra_inference_energy_joules_total", "counter", "Module energy of steady phases: gross, and net of the idle baseline; overlapping runs each count all of it.", labels=("workload", "device", "kind"), read=_energy),
    WorkloadRow("tegra_inference_run_active", "gauge", "1 while a run is in flight.", read=lambda workload: workload.active_run is not None),
    LastRunRow("tegra_inference_last_run_throughput_per_second", "gauge", "Inputs per second of the last good run.", read=lambda run: run.throughput_per_second),
    LastRunRow("tegra_inference_last_run_energy_joules_per_inference", "gauge", "Module energy per inference in the last good run; absent if it was withheld.", labels=("kind",), read=_energy_per_inference),
    LastRunRow("tegra_inference_last_run_energy_joules_per_unit", "gauge", "Module energy per unit of work in the last good run; absent if it was withheld.", labels=("unit", "kind"), read=_energy_per_unit),
    LastRunRow("tegra_inference_last_run_latency_seconds", "summary", "Latency quantiles of the last good run.", labels=("quantile",), read=lambda run: _quantiles(run.latency)),
    LastRunRow("tegra_inference_last_run_duration_seconds", "summary", "Quantiles of the stages of the last good run; of a server: first_token, the time to the first output, and output_token, the time per further one.", labels=("stage", "quantile"), read=_stages),
    LastRunRow("tegra_inference_last_run_units_per_second", "gauge", "Units of work per second of the last good run.", labels=("unit",), read=lambda run: {run.unit: run.units_per_second} if run.unit else {}),
    LastRunRow("tegra_inference_last_run_deadline_worst_lateness_seconds", "gauge", "Longest latency of the last good run, less the deadline; 0 without a miss.", read=lambda run: run.deadline and run.deadline.worst_lateness_seconds),
    LastRunRow("tegra_inference_last_run_gpu_utilization_ratio", "gauge", "Mean GPU load over the last good run.", read=lambda run: _load(run, "gpu")),
    LastRunRow("tegra_inference_last_run_dla_busy_ratio", "gauge", "Mean busy share of a DLA core over the last good run, by source.", labels=("core", "source"), read=_dla_loads),
    LastRunRow("tegra_inference_last_run_emc_utilization_ratio", "gauge", "Mean use of the memory bandwidth over the last good run.", read=lambda run: _load(run, "emc")),
    LastRunRow("tegra_inference_last_run_temperature_max_celsius", "gauge", "Highest temperature of any zone in the last good run.", read=_hottest),
    LastRunRow("tegra_inference_layers", "gauge", "Layers of the engine of the last good run, by placement; a subgraph of the DLA counts as one.", labels=("placement",), read=_layers),
    LastRunRow("tegra_inference_last_run_timestamp_seconds", "gauge", "Start time of the last good run.", read=lambda run: run.started_wall_ns / 1e9),
    WorkloadRow("tegra_inference_cold_start_seconds", "gauge", "Parts of the last cold start.", labels=("part",), read=lambda workload: workload.cold_start),
    LastRunRow("tegra_inference_quality_flag", "gauge", "1 for each quality flag of the last good run.", labels=("flag",), read=lambda run: dict.fromkeys(run.quality, 1)),
    MetricRow("tegrascope_build_info", "info", "Versions of the daemon.", read=lambda _: {"version": __version__, "python": platform.python_version()}),
    MetricRow("tegrascope_source_up", "gauge", "1 while a telemetry source returns new samples.", labels=("source",), read=_sources_up),
    MetricRow("tegrascope_signal_source_info", "info", "The source in force of each metric that several sources can give.", labels=("signal", "source"), read=lambda page: dict.fromkeys(page.snapshot.signal_sources.items(), 1) if page.is_fresh else {}),
    NamedSourceRow("tegrascope_source_restarts_total", "counter", "Restarts of a source.", read=lambda source: source.restarts),
    NamedSourceRow("tegrascope_samples_total", "counter", "Samples of a source.", read=lambda source: source.samples),
    NamedSourceRow("tegrascope_samples_backlog_total", "counter", "Samples of lines that arrived several at once; their times are estimated.", read=lambda source: source.backlog),
    NamedSourceRow("tegrascope_samples_refused_total", "counter", "Samples that were dropped because they were not later than the one before.", read=lambda source: source.refused),
    NamedSourceRow("tegrascope_sample_timestamp_seconds", "gauge", "Arrival time of the newest sample of a source.", read=_sample_time),
    MetricRow("tegrascope_root_fields_missing", "gauge", "1 if tegrastats runs without root and prints no DLA, EMC or engines; their series are then absent.", labels=("source",), read=_lacks_root),
    SourceRow("tegrascope_lines_unparsed_total", "counter", "Lines that are not a record, by reason.", labels=("reason",), read=lambda source: source.lines_unparsed),
    SourceRow("tegrascope_tokens_unparsed_total", "counter", "Unknown tokens in records.", read=lambda source: source.tokens_unparsed),
    SourceRow("tegrascope_columns_unknown_total", "counter", "Values of columns that no signal describes; they have no metric.", read=lambda source: source.columns_unknown),
    MetricRow("tegrascope_schedule_lateness_seconds", "histogram", "Start time of a scheduled run minus its due time.", read=lambda page: page.snapshot.lateness),
    MetricRow("tegrascope_runs_skipped_total", "counter", "Scheduled runs that did not start, by reason.", labels=("reason",), read=lambda page: page.snapshot.skipped),
    MetricRow("tegrascope_module_power_budget_watts", "gauge", "Power budget of the module in the configuration.", read=lambda page: page.snapshot.limits.power_watts),
    MetricRow("tegrascope_dla_expected_busy_ratio", "gauge", "Least busy share of a DLA core in the configuration.", labels=("core",), read=lambda page: {device.removeprefix("dla"): ratio for device, ratio in page.snapshot.limits.dla_busy_ratio.items()}),
    MetricRow("tegrascope_store_write_errors_total", "counter", "Failed writes to the run store.", read=lambda page: page.snapshot.store_write_errors),
    MetricRow("tegrascope_store_damages_total", "counter", "Times that the file of the run store was found damaged, or was removed.", chart=None, read=lambda page: page.snapshot.store_damages),
    MetricRow("tegrascope_store_runs_lost_total", "counter", "Runs that a damaged file had and that could not be read, or that waited too long for the disk.", chart=None, read=lambda page: page.snapshot.store_runs_lost),
    MetricRow("tegrascope_store_runs_unreadable", "gauge", "Stored runs that cannot be read; queries skip them.", chart=None, read=lambda page: page.snapshot.store_runs_unreadable),
    MetricRow("tegrascope_store_free_bytes", "gauge", "Free space on the disk of the run store.", read=lambda page: page.snapshot.store_free_bytes),
    MetricRow("tegrascope_otlp_sent_total", "counter", "Pages of metrics and runs that the OTLP receiver accepted.", chart=None, labels=("kind",), read=lambda page: {kind: n for (kind, end), n in page.snapshot.otlp.items() if end == "sent"}),
    MetricRow("tegrascope_otlp_dropped_total", "counter", "Pages of metrics and runs that never reach the OTLP receiver, by reason.", chart=None, labels=("kind", "reason"), read=lambda page: {key: n for key, n in page.snapshot.otlp.items() if key[0] and key[1] != "sent"}),
    MetricRow("tegrascope_otlp_refused_points_total", "counter", "Points of metrics that the OTLP receiver refused from pages that it otherwise accepted.", chart=None, read=lambda page: page.snapshot.otlp.get(("", "refused_points"))),
    MetricRow("tegrascope_otlp_queue_length", "gauge", "Pages of metrics and runs that wait for the OTLP receiver.", chart=None, read=lambda page: page.snapshot.otlp.get(("", "queued"))),
)  # fmt: skip


def _in_order() -> tuple[Family, ...]:
    rows: list[Family] = [_ROWS[0]]
    for signal in SIGNALS:
        if signal.metric is not None:
            rows.append(signal.metric)
    rows.extend(_ROWS[1:])
    page = [row for row in rows if row.after is None]
    for row in rows:
        if row.after is not None:
            names = [placed.name for placed in page]
            page.insert(names.index(row.after) + 1, row)
    return tuple(page)


METRICS: Final = _in_order()
"""Every metric, in the order of the page."""

_ROWS_BY_NAME = {row.name: row for row in METRICS}


def families(snapshot: Snapshot, now_ns: int) -> list[Metric]:
    """Return the metric families of a snapshot, in the order of the rows.

    Those under ``tegra_`` have the label ``simulated="true"`` if the telemetry is not from this
    machine. ``now_ns`` is CLOCK_MONOTONIC, which decides what is fresh.
    """
    is_fresh = any(source.is_fresh(now_ns) for source in snapshot.sources)
    made = _telemetry_families(snapshot, is_fresh=is_fresh)
    scrape = Scrape(snapshot, now_ns, is_fresh)
    for row in METRICS:
        if isinstance(row, MetricRow):
            metric = made[row.name] = _metric(row)
            marks = _marks(snapshot, row.name)
            for subject, labels in _subjects(row, scrape):
                _add(metric, row, labels | marks, row.read(subject))
    return [made[row.name] for row in METRICS if row.name in made and made[row.name].samples]


def _telemetry_families(snapshot: Snapshot, *, is_fresh: bool) -> dict[str, Metric]:
    """Return the families of the newest sample by name."""
    made: dict[str, Metric] = {}
    for column, value in snapshot.values.items():
        series = _series(column)
        if series is None:
            continue
        name, labels, stays_without_samples = series
        if not (is_fresh or stays_without_samples):
            continue
        if name not in made:
            made[name] = _metric(_ROWS_BY_NAME[name])
        made[name].add_sample(name, labels | _marks(snapshot, name), value)
    return made


def _marks(snapshot: Snapshot, name: str) -> dict[str, str]:
    """Return the labels that mark a family of a simulated board."""
    if snapshot.environment.simulated and name.startswith("tegra_"):
        return {"simulated": "true"}
    return {}


@lru_cache(4096)
def _series(column: str) -> tuple[str, dict[str, str], bool] | None:
    """Return name and labels of a column's series, and whether it stays without fresh samples."""
    parts = split(column)
    if parts is None:
        return None
    signal, label = parts
    if signal.family is None:
        return None
    return signal.family, signal.labels_of(label), signal.kept


def _subjects(row: MetricRow, scrape: Scrape) -> Iterator[tuple[Any, dict[str, str]]]:
    """Yield each object that a row reads, with the labels of its series."""
    if isinstance(row, SourceRow):
        for source in scrape.snapshot.sources:
            yield source, {}
    elif isinstance(row, NamedSourceRow):
        for source in scrape.snapshot.sources:
            yield source, {"source": source.name}
    elif isinstance(row, WorkloadRow):
        for state in scrape.snapshot.workloads.values():
            yield state, {"workload": state.workload, "device": state.device}
    elif isinstance(row, LastRunRow):
        for state in scrape.snapshot.workloads.values():
            if state.last_good is not None:
                yield state.last_good, {"workload": state.workload, "device": state.device}
    else:
        yield scrape, {}


def _add(metric: Metric, row: MetricRow, labels: dict[str, str], value: Any) -> None:
    if isinstance(value, Histogram):
        counts = [*accumulate(value.counts)]
        bounds = (*map(str, value.bounds), "+Inf")
        for bound, count, latest in zip(bounds, counts, value.exemplars, strict=True):
            labels_of_bucket = {**labels, "le": bound}
            metric.add_sample(f"{row.name}_bucket", labels_of_bucket, count, exemplar=latest)
        metric.add_sample(f"{row.name}_count", labels, counts[-1])
        metric.add_sample(f"{row.name}_sum", labels, value.total)
    elif isinstance(value, MissCount):
        metric.add_sample(row.name, labels, value.count, exemplar=value.exemplar)
    elif row.kind == "info" and not row.labels:
        if value is not None:
            metric.add_sample(row.name, {**labels, **value}, 1)
    elif isinstance(value, Mapping):
        for label, number in value.items():
            if number is not None:
                names = label if isinstance(label, tuple) else (label,)
                named = zip(row.labels, map(str, names), strict=True)
                metric.add_sample(row.name, {**labels, **dict(named)}, number)
    elif value is not None:
        metric.add_sample(row.name, labels, value)


def _metric(row: Family) -> Metric:
    # The library adds these endings itself.
    name = row.name
    if row.kind == "counter":
        name = name.removesuffix("_total")
    elif row.kind == "info":
        name = name.removesuffix("_info")
    return Metric(name, row.help, row.kind)


class Page(Collector):
    """The metric page, rendered once for each snapshot and format."""

    def __init__(self, read: Callable[[], Snapshot], monotonic_ns: Callable[[], int]) -> None:
        self._read = read
        self._monotonic_ns = monotonic_ns
        self._rendered: dict[str, tuple[object, bytes]] = {}
        self._process = CollectorRegistry()
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self._process)

    def collect(self) -> Iterable[Metric]:
        """Return all families: those of the snapshot, and of this process."""
        return chain(families(self._read(), self._monotonic_ns()), self._process.collect())

    def render(self, accept: str) -> tuple[bytes, str]:
        """Return the page and its content type, in the format that ``Accept`` asks for."""
        encode, content_type = choose_encoder(accept)
        snapshot, now_ns = self._read(), self._monotonic_ns()
        # Freshness is part of the key, so that a hanging source shows within the second.
        fresh = tuple(source.is_fresh(now_ns) for source in snapshot.sources)
        key = (snapshot.version, fresh, now_ns // 1_000_000_000)
        if self._rendered.get(content_type, (None,))[0] != key:
            if len(self._rendered) >= 8:  # a scraper may ask for any version and escaping
                self._rendered.clear()
            self._rendered[content_type] = (key, encode(self))
        return self._rendered[content_type][1], content_type
