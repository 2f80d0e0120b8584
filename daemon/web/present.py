"""The present state of a daemon: the board now, its troubles, sources, workloads and store."""

from collections.abc import Mapping
from typing import Any

from ... import __version__
from ...collectors.board.boards import identify
from ...parsers import signals
from ...parsers.rails import RailRule
from ..export.snapshot import Snapshot, SourceState, WorkloadState
from ..measure.dla import by_core
from ..measure.processes import DLA_SECONDS, dla_seconds
from ..measure.report import Environment, RunReport, Span
from ..measure.timeline import Timeline
from ..measure.utilization import clock_figures, gate_figures, load_figures, zone_figures
from .troubles import TroubleWatch

_NOW = {
    "ram_used": signals.RAM_USED,
    "ram_total": signals.RAM_TOTAL,
    "ram_available": signals.RAM_AVAILABLE,
    "largest_free_block": signals.RAM_FREE_BLOCK,
    "swap_used": signals.SWAP_USED,
    "swap_total": signals.SWAP_TOTAL,
    "gpu_memory_used": signals.GPU_MEMORY_USED,
    "gpu_memory_total": signals.GPU_MEMORY_TOTAL,
    "volts": signals.RAIL_VOLTS,
    "lowest_volts": signals.RAIL_LOWEST_VOLTS,
    "amperes": signals.RAIL_AMPERES,
    "cores": signals.CPU_LOAD,
    "online": signals.CPU_ONLINE,
    "fans": signals.FAN_SPEED,
    "engines": signals.ENGINE_ON,
    "gpu_power": signals.GPU_POWER,
    "gpu_memory": signals.PROCESS_GPU_MEMORY,
}
_DLA_PROCESS_NS = 10_000_000_000


class Present:
    """Makes the answer, from a snapshot and from the latest samples."""

    def __init__(self, timeline: Timeline, troubles: TroubleWatch) -> None:
        self._timeline = timeline
        self._troubles = troubles

    def document(
        self,
        snapshot: Snapshot,
        now_ns: int,
        wall_ns: int,
        rule: RailRule | None,
        due_ns: Mapping[str, int],
    ) -> dict[str, Any]:
        """Return the document of a moment; unknown values are null or absent."""
        environment = snapshot.environment
        is_fresh = any(source.is_fresh(now_ns) for source in snapshot.sources)
        values = snapshot.values if is_fresh else {}
        companions: dict[str, bool | None] = dict(snapshot.companions_up)
        if not is_fresh:
            # They are read at a line of the source: without one nothing is known of them.
            companions = dict.fromkeys(companions)
        troubles = self._troubles.look(snapshot, now_ns, wall_ns)
        return {
            "time": wall_ns / 1e9,
            "version": __version__,
            "simulated": environment.simulated,
            "board": {"name": environment.board, "dla_cores": _dla_cores(environment)}
            | _fields(environment, "module l4t jetpack power_mode clocks_locked"),
            "total_rails": [] if rule is None else list(rule.total),
            "troubles": [trouble._asdict() for trouble in troubles],
            "vital": _vital(values, rule, _shutdown_temperatures(snapshot)),
            "now": _values_now(values),
            "processes": self._processes(snapshot, values, now_ns),
            "limits": {"power_watts": snapshot.limits.power_watts},
            "trips": _shutdown_temperatures(snapshot),
            "sources": [_source(source, now_ns) for source in snapshot.sources],
            "companions": companions,
            "signal_sources": dict(snapshot.signal_sources) if is_fresh else {},
            "store": {
                "problem": snapshot.store_problem,
                "write_errors": snapshot.store_write_errors,
                "free_bytes": snapshot.store_free_bytes,
            },
            "workloads": _workloads(snapshot, due_ns, wall_ns - now_ns),
            "skipped": dict(snapshot.skipped),
        }

    def _processes(
        self, snapshot: Snapshot, values: Mapping[str, float], now_ns: int
    ) -> list[dict[str, Any]]:
        """Return users of CPU and memory, busiest first, with their share of each DLA core."""
        processes: dict[str, dict[str, Any]] = {}
        for use in snapshot.processes:
            processes[use.name] = {
                "name": use.name,
                "cores": use.cpu_cores,
                "memory_bytes": use.memory_bytes,
                "processes": use.processes,
            }
        if any(map(_is_of_a_process, values)):
            samples = self._timeline.cut(now_ns - _DLA_PROCESS_NS, now_ns, _is_of_a_process)
            if len(samples.times_ns) > 1:
                window = Span(begin_ns=samples.times_ns[0], end_ns=samples.times_ns[-1])
                for name, busy in dla_seconds(samples, window).items():
                    shares = {core: seconds / window.seconds for core, seconds in busy.items()}
                    processes.setdefault(name, {"name": name})["dla"] = shares
        return [*processes.values()]


def _values_now(values: Mapping[str, float]) -> dict[str, Mapping[str, float]]:
    now: dict[str, Mapping[str, float]] = {}
    for name, signal in _NOW.items():
        now[name] = signal.by_label(values)
    columns = {column: [value] for column, value in values.items()}
    clocks: dict[str, float] = {}
    for name, (_, column) in clock_figures(columns).items():
        if column[0] > 0:
            clocks[name] = column[0]
    now["clocks"] = clocks
    return now


# The source of a core's load by how much it sees, with the words for it.
_DLA_LOADS = (
    (signals.DLA_BUSY, "busy"),
    (signals.DLA_LOAD, "busy"),
    (signals.DLA_FIRMWARE_LOAD, "busy when asked"),
    (signals.DLA_POWERED, "powered"),
)


def _vital(
    values: Mapping[str, float], rule: RailRule | None, trips: Mapping[str, float]
) -> dict[str, Any]:
    """Return the figures that a reader in a hurry needs; null where a value is not known.

    They are the power of the module, the loads of the GPU and of each DLA core (share and what it
    is), and the hottest zone with the temperature at which the board shuts down.
    """
    columns = {column: [value] for column, value in values.items()}
    rails = signals.RAIL_POWER.by_label(values)
    module = None
    if rule is not None and all(rail in rails for rail in rule.total):
        module = sum(rails[rail] for rail in rule.total)
    dla: dict[str, tuple[float, str]] = {}
    for core, (_, gate) in gate_figures(columns).items():
        dla[core] = (gate[0], "on")
    for signal, word in reversed(_DLA_LOADS):
        for core, load in by_core(signal, columns).items():
            dla[core] = (load[0], word)
    gpu = load_figures(columns).get("gpu")
    zones = {zone: column[0] for zone, (_, column) in zone_figures(columns).items()}
    hottest = None
    if zones:
        zone = max(zones, key=lambda name: zones[name])
        limit = trips.get(zone, min(trips.values(), default=None))
        hottest = {"zone": zone, "celsius": zones[zone], "shutdown_celsius": limit}
    return {
        "module_watts": module,
        "gpu_ratio": None if gpu is None else gpu.column[0],
        "dla": dict(sorted(dla.items())),
        "hottest": hottest,
    }


def _shutdown_temperatures(snapshot: Snapshot) -> dict[str, float]:
    trips: dict[str, float] = {}
    for (zone, kind), celsius in snapshot.trips_celsius.items():
        if kind == "critical":
            trips[zone] = celsius
    return trips


def _source(source: SourceState, now_ns: int) -> dict[str, Any]:
    age_seconds: float | None = None
    if source.latest is not None:
        age_seconds = (now_ns - source.latest.monotonic_ns) / 1e9
    return _fields(source, "name interval_seconds samples restarts tokens_unparsed lacks_root") | {
        "up": source.is_fresh(now_ns),
        "age_seconds": age_seconds,
        "lines_unparsed": sum(source.lines_unparsed.values()),
    }


def _is_of_a_process(column: str) -> bool:
    return any(signal.owns(column) for signal in DLA_SECONDS.values())


def _dla_cores(environment: Environment) -> int | None:
    """Return how many DLA cores a module of this kind has; ``None`` if it is not known."""
    if environment.gpu_uuid is not None:  # of NVML as the source: not a board
        return 0
    return identify(environment.module or "", environment.board or "")[1]


def _workloads(
    snapshot: Snapshot, due_ns: Mapping[str, int], offset_ns: int
) -> list[dict[str, Any]]:
    """Return the workloads; ``offset_ns`` is wall time minus CLOCK_MONOTONIC."""
    workloads = []
    for name, state in snapshot.workloads.items():
        document = _workload(state)
        document["due"] = (due_ns[name] + offset_ns) / 1e9 if name in due_ns else None
        workloads.append(document)
    return workloads


def _workload(state: WorkloadState) -> dict[str, Any]:
    return _fields(state, "workload device active_run inferences failures deadline_seconds") | {
        "misses": state.misses.count,
        "model": state.settings.get("model"),
        "batch": int(state.settings.get("batch", 1)),
        "runs": dict(state.runs),
        "last_good": None if state.last_good is None else _last_good(state.last_good),
    }


def _last_good(run: RunReport) -> dict[str, Any]:
    latency, energy = run.latency, run.energy
    return {
        "run_id": run.run_id,
        "ended": (run.started_wall_ns + run.ended_ns - run.started_ns) / 1e9,
        "p50_seconds": latency and latency.p50_seconds,
        "p99_seconds": latency and latency.p99_seconds,
        "throughput_per_second": run.throughput_per_second,
        "gross_joules_per_inference": energy and energy.gross_joules_per_inference,
        "net_joules_per_inference": energy and energy.net_joules_per_inference,
        "unit": run.unit,
        "joules_per_unit": energy and energy.joules_per_unit,
        "quality": [flag for flag in run.quality if flag != "simulated"],
    }


def _fields(record: object, names: str) -> dict[str, Any]:
    return {name: getattr(record, name) for name in names.split()}
