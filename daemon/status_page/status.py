"""How things are now: sources, workloads, store and board, as one small document."""

from typing import TYPE_CHECKING, Any

from ... import __version__
from ..export.snapshot import SourceState, WorkloadState
from ..measure.throttle import counts

if TYPE_CHECKING:
    from ..http import Serving


def status_of(serving: "Serving") -> dict[str, Any]:
    """Return what the head of the page shows.

    Returns:
        Times are seconds since 1970; what is not known is ``None`` or not there.
    """
    snapshot = serving.ledger.snapshot
    environment = snapshot.environment
    now_ns, now_wall_ns = serving.clock.monotonic_ns(), serving.clock.wall_ns()
    sources = [_source(source, now_ns) for source in snapshot.sources]
    is_fresh = any(source["up"] for source in sources)
    rule = serving.rule()
    return {
        "time": now_wall_ns / 1e9,
        "version": __version__,
        "simulated": environment.simulated,
        "board": {
            "name": environment.board,
            "module": environment.module,
            "l4t": environment.l4t,
            "jetpack": environment.jetpack,
            "power_mode": environment.power_mode,
            "clocks_locked": environment.clocks_locked,
        },
        "total_rails": [] if rule is None else list(rule.total),
        "problem": serving.problem(),
        "note": serving.note(),
        "sources": sources,
        "companions": {name: up and is_fresh for name, up in snapshot.companions_up.items()},
        "store": {
            "problem": snapshot.store_problem,
            "write_errors": snapshot.store_write_errors,
            "free_bytes": snapshot.store_free_bytes,
        },
        "throttle_events": counts(snapshot.values),
        "workloads": [_workload(state) for state in snapshot.workloads.values()],
        "skipped": dict(snapshot.skipped),
    }


def _source(source: SourceState, now_ns: int) -> dict[str, Any]:
    latest = source.latest
    return {
        "name": source.name,
        "up": source.is_fresh(now_ns),
        "interval_seconds": source.interval_seconds,
        "age_seconds": None if latest is None else (now_ns - latest.monotonic_ns) / 1e9,
        "samples": source.samples,
        "restarts": source.restarts,
        "lines_unparsed": sum(source.lines_unparsed.values()),
        "tokens_unparsed": source.tokens_unparsed,
        "lacks_root": source.lacks_root,
    }


def _workload(state: WorkloadState) -> dict[str, Any]:
    return {
        "workload": state.workload,
        "device": state.device,
        "active_run": state.active_run,
        "runs": dict(state.runs),
        "inferences": state.inferences,
    }
