"""The present state of a daemon: the board now, its troubles, sources, workloads and store."""

from collections.abc import Mapping
from typing import Any

from ... import __version__
from ...collectors.board.boards import identify
from ...parsers import signals
from ...parsers.rails import RailRule
from ..export.snapshot import Snapshot, WorkloadState
from ..measure.processes import DLA_SECONDS, dla_seconds
from ..measure.report import Environment, Span
from ..measure.timeline import Timeline
from ..measure.utilization import clock_figures
from .troubles import find_troubles

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

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline

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
        troubles = find_troubles(snapshot, is_fresh=is_fresh)
        values = snapshot.values if is_fresh else {}
        clocks = clock_figures({name: [value] for name, value in values.items()})
        wall = wall_ns / 1e9
        return {
            "time": wall,
            "version": __version__,
            "simulated": environment.simulated,
            "board": {"name": environment.board, "dla_cores": _dla_cores(environment)}
            | _fields(environment, "module l4t jetpack power_mode clocks_locked"),
            "total_rails": [] if rule is None else list(rule.total),
            "troubles": [trouble._asdict() for trouble in troubles],
            "now": {name: signal.by_label(values) for name, signal in _NOW.items()}
            | {
                "clocks": {name: column[0] for name, (_, column) in clocks.items() if column[0] > 0}
            },
            "processes": self._processes(snapshot, values, now_ns),
            "limits": {"power_watts": snapshot.limits.power_watts},
            "trips": {
                zone: celsius
                for (zone, kind), celsius in snapshot.trips_celsius.items()
                if kind == "critical"
            },
            "sources": [
                _fields(source, "name interval_seconds samples restarts tokens_unparsed lacks_root")
                | {
                    "up": source.is_fresh(now_ns),
                    "age_seconds": source.latest and (now_ns - source.latest.monotonic_ns) / 1e9,
                    "lines_unparsed": sum(source.lines_unparsed.values()),
                }
                for source in snapshot.sources
            ],
            # They are read at a line of the source: without one nothing is known of them.
            "companions": {
                name: up if is_fresh else None for name, up in snapshot.companions_up.items()
            },
            "signal_sources": dict(snapshot.signal_sources) if is_fresh else {},
            "store": {
                "problem": snapshot.store_problem,
                "write_errors": snapshot.store_write_errors,
                "free_bytes": snapshot.store_free_bytes,
            },
            "workloads": [
                _workload(state)
                | {"due": wall + (due_ns[name] - now_ns) / 1e9 if name in due_ns else None}
                for name, state in snapshot.workloads.items()
            ],
            "skipped": dict(snapshot.skipped),
        }

    def _processes(
        self, snapshot: Snapshot, values: Mapping[str, float], now_ns: int
    ) -> list[dict[str, Any]]:
        """Return users of CPU and memory, busiest first, with their share of each DLA core."""
        found: dict[str, dict[str, Any]] = {
            one.name: {
                "name": one.name,
                "cores": one.cpu_cores,
                "memory_bytes": one.memory_bytes,
                "processes": one.processes,
            }
            for one in snapshot.processes
        }
        if any(map(_is_of_a_process, values)):
            cut = self._timeline.cut(now_ns - _DLA_PROCESS_NS, now_ns, _is_of_a_process)
            if len(cut.times_ns) > 1:
                window = Span(begin_ns=cut.times_ns[0], end_ns=cut.times_ns[-1])
                for name, busy in dla_seconds(cut, window).items():
                    shares = {core: seconds / window.seconds for core, seconds in busy.items()}
                    found.setdefault(name, {"name": name})["dla"] = shares
        return [*found.values()]


def _is_of_a_process(column: str) -> bool:
    return any(signal.owns(column) for signal in DLA_SECONDS.values())


def _dla_cores(environment: Environment) -> int | None:
    """Return how many DLA cores a module of this kind has; ``None`` if it is not known."""
    if environment.gpu_uuid is not None:  # of NVML as the source: not a board
        return 0
    return identify(environment.module or "", environment.board or "")[1]


def _workload(state: WorkloadState) -> dict[str, Any]:
    good = state.last_good
    latency, energy = (None, None) if good is None else (good.latency, good.energy)
    return _fields(state, "workload device active_run inferences failures deadline_seconds") | {
        "misses": state.misses.count,
        "runs": dict(state.runs),
        "last_good": good
        and {
            "run_id": good.run_id,
            "ended": (good.started_wall_ns + good.ended_ns - good.started_ns) / 1e9,
            "p50_seconds": latency and latency.p50_seconds,
            "p99_seconds": latency and latency.p99_seconds,
            "throughput_per_second": good.throughput_per_second,
            "gross_joules_per_inference": energy and energy.gross_joules_per_inference,
            "net_joules_per_inference": energy and energy.net_joules_per_inference,
            "unit": good.unit,
            "joules_per_unit": energy and energy.joules_per_unit,
            "quality": [flag for flag in good.quality if flag != "simulated"],
        },
    }


def _fields(record: object, names: str) -> dict[str, Any]:
    return {name: getattr(record, name) for name in names.split()}
