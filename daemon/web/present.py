"""The present state of a daemon: the board now, its troubles, sources, workloads and store."""

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from math import fsum, isnan
from operator import itemgetter
from typing import Any

from ... import __version__
from ...collectors.board.boards import RailRule
from ...parsers import signals
from ..export.snapshot import Snapshot, WorkloadState
from ..measure.timeline import Timeline
from ..measure.utilization import clock_figures, mean_present

# The conditions of the alerts in grafana/prometheus/rules.
NEAR_TRIP_CELSIUS = 3.0
LOW_ROOM_BYTES = 100 * 1024 * 1024
FAILURES, UNSUCCESSFUL = 2, 4
LOW_MEMORY_RATIO, FULL_SWAP_RATIO = 0.05, 0.9
BUDGET_MINUTES = 5
BYPASSED_DAYS = 2
# Kinds of throttling, the minutes that count, and the events that are no trouble yet.
THROTTLING = ((".*thermal|hw_slowdown", 10, 0), ("oc[0-9]+|hw_power_brake", 15, 15))

_AGAIN_NS = 10_000_000_000
_BYPASSED_NS = BYPASSED_DAYS * 86_400 * 10**9
_NOW = {
    "ram_used": signals.RAM_USED,
    "ram_total": signals.RAM_TOTAL,
    "ram_available": signals.RAM_AVAILABLE,
    "largest_free_block": signals.RAM_FREE_BLOCK,
    "swap_used": signals.SWAP_USED,
    "swap_total": signals.SWAP_TOTAL,
    "cores": signals.CPU_LOAD,
    "online": signals.CPU_ONLINE,
    "fans": signals.FAN_SPEED,
    "engines": signals.ENGINE_ON,
}


class Present:
    """Makes the answer; what it needs of the past is read from the timeline now and then."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._read_ns = -_AGAIN_NS
        self._watts: float | None = None
        self._throttled: Mapping[str, tuple[int, int]] = {}

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
        if now_ns - self._read_ns >= _AGAIN_NS:
            self._read_ns = now_ns
            self._look_back(wall_ns, rule)
        values = snapshot.values if is_fresh else {}
        clocks = clock_figures({name: [value] for name, value in values.items()})
        wall = wall_ns / 1e9
        return {
            "time": wall,
            "version": __version__,
            "simulated": environment.simulated,
            "board": {"name": environment.board}
            | _fields(environment, "module l4t jetpack power_mode clocks_locked"),
            "total_rails": [] if rule is None else list(rule.total),
            "troubles": [
                {"severity": severity, "text": text}
                for severity, text in sorted(
                    self._troubles(snapshot, wall_ns, is_fresh), key=itemgetter(0)
                )
            ],
            "now": {name: signal.by_label(values) for name, signal in _NOW.items()}
            | {
                "clocks": {name: column[0] for name, (_, column) in clocks.items() if column[0] > 0}
            },
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

    def _look_back(self, wall_ns: int, rule: RailRule | None) -> None:
        """Read the module's mean power and the throttle events of the last minutes."""
        rails = () if rule is None else tuple(map(signals.RAIL_POWER.column, rule.total))

        def is_wanted(column: str) -> bool:
            return column in rails or signals.THROTTLE_EVENTS.label_of(column) is not None

        def since_ns(minutes: int) -> int:
            return wall_ns - minutes * 60 * 10**9

        watts: list[float] = []
        counts: dict[str, list[tuple[int, float]]] = {}
        longest_ns = since_ns(max(minutes for _, minutes, _ in THROTTLING))
        for block in self._timeline.blocks_since(longest_ns, wanted=is_wanted):
            for kind, column in signals.THROTTLE_EVENTS.by_label(block.columns).items():
                known = zip(block.wall_ns, column, strict=True)
                counts.setdefault(kind, []).extend(pair for pair in known if not isnan(pair[1]))
            if rails and block.columns.keys() >= set(rails):
                columns = (block.columns[rail] for rail in rails)
                rows = zip(block.wall_ns, *columns, strict=True)
                watts += [fsum(at) for wall, *at in rows if wall >= since_ns(BUDGET_MINUTES)]
        mean = mean_present(watts)
        self._watts = None if isnan(mean) else mean
        throttled: dict[str, tuple[int, int]] = {}
        for kinds, minutes, normal in THROTTLING:
            for kind in filter(re.compile(kinds).fullmatch, counts):
                # A counter that fell was reset.
                recent = [count for wall, count in counts[kind] if wall >= since_ns(minutes)]
                events = int(sum(max(b - a, 0.0) for a, b in pairwise(recent)))
                if events > normal:
                    throttled[kind] = events, minutes
        self._throttled = throttled

    def _troubles(
        self, snapshot: Snapshot, wall_ns: int, is_fresh: bool
    ) -> Iterator[tuple[str, str]]:
        """Yield severity and sentence of what alerts would be about, without their waiting times.

        What makes the daemon not ready is told by ``Serving.problem``.
        """
        if is_fresh:
            for zone, celsius in signals.TEMPERATURE.by_label(snapshot.values).items():
                trip = snapshot.trips_celsius.get((zone, "critical"))
                if trip is not None and celsius > trip - NEAR_TRIP_CELSIUS:
                    text = f"{zone} is at {celsius:.1f} °C; the board shuts down at {trip:.1f} °C"
                    yield "critical", text
            yield from _memory_troubles(snapshot.values)
        for kind, (events, minutes) in self._throttled.items():
            times = "once" if events == 1 else f"{events} times"
            yield "warning", f"throttled by {kind} {times} in the last {minutes} minutes"
        budget = snapshot.limits.power_watts
        if budget is not None and self._watts is not None and self._watts > budget:
            text = f"the module draws {self._watts:.1f} W on average; the budget is {budget:g} W"
            yield "warning", text
        room = snapshot.store_free_bytes
        if room is not None and room < LOW_ROOM_BYTES:
            words = "no space is" if room == 0 else f"{room / 2**20:.0f} MiB are"
            yield "critical" if room == 0 else "warning", f"{words} left for the run store"
        for name, up in snapshot.companions_up.items():
            if is_fresh and not up:
                yield "warning", f"{name} returns no data"
        for state in snapshot.workloads.values():
            if state.failures >= FAILURES:
                yield "warning", f"the last {state.failures} runs of {state.workload} failed"
            elif state.unsuccessful >= UNSUCCESSFUL:
                words = f"the last {state.unsuccessful} runs of {state.workload}"
                yield "warning", f"{words} failed or were skipped"
            good, bypassed_ns = state.last_good, state.bypassed_wall_ns
            is_bypassed = good is not None and "dla_not_used" in good.quality
            if is_bypassed and bypassed_ns is not None and bypassed_ns > wall_ns - _BYPASSED_NS:
                words = f"{state.workload} did not use {state.device}"
                yield "warning", f"{words} in its last good run and one before it"


def _memory_troubles(values: Mapping[str, float]) -> Iterator[tuple[str, str]]:
    names = (signals.RAM_TOTAL, signals.RAM_USED, signals.RAM_AVAILABLE)
    total, used, available = (values.get(signal.column()) for signal in names)
    if available is None and total is not None and used is not None:
        available = total - used
    if total and available is not None and available / total < LOW_MEMORY_RATIO:
        yield "warning", f"{100 * available / total:.1f} % of the memory is available"
    swap, used = (values.get(one.column()) for one in (signals.SWAP_TOTAL, signals.SWAP_USED))
    if swap and used is not None and used / swap > FULL_SWAP_RATIO:
        yield "warning", f"{100 * used / swap:.0f} % of the swap is in use"


def _workload(state: WorkloadState) -> dict[str, Any]:
    good = state.last_good
    latency, energy = (None, None) if good is None else (good.latency, good.energy)
    return _fields(state, "workload device active_run inferences failures") | {
        "runs": dict(state.runs),
        "last_good": good
        and {
            "run_id": good.run_id,
            "ended": (good.started_wall_ns + good.ended_ns - good.started_ns) / 1e9,
            "p50_seconds": latency and latency.p50_seconds,
            "gross_joules_per_inference": energy and energy.gross_joules_per_inference,
            "net_joules_per_inference": energy and energy.net_joules_per_inference,
            "quality": [flag for flag in good.quality if flag != "simulated"],
        },
    }


def _fields(record: object, names: str) -> dict[str, Any]:
    return {name: getattr(record, name) for name in names.split()}
