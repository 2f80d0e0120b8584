"""Events of runs and telemetry, from any thread: each one makes a new snapshot."""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from ...parsers.inference.events import Inferences
from ..measure.run_report import RunReport
from .snapshot import Snapshot, WorkloadState


class Ledger:
    """Records events from any thread; ``snapshot`` is always consistent."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self._lock = threading.Lock()

    def update(self, **changes: object) -> None:
        """Replace parts of the snapshot."""
        with self._lock:
            self._replace(**changes)

    def _replace(self, **changes: object) -> None:
        version = self.snapshot.version + 1
        self.snapshot = replace(self.snapshot, version=version, **changes)  # type: ignore[arg-type]

    def _replace_workload(self, state: WorkloadState, **changes: object) -> None:
        workloads = {**self.snapshot.workloads, state.workload: state}
        self._replace(workloads=MappingProxyType(workloads), **changes)

    def describe(self, **changes: object) -> None:
        """Replace parts of the environment that differ."""
        with self._lock:
            known = self.snapshot.environment
            if any(getattr(known, name) != value for name, value in changes.items()):
                self._replace(environment=known.model_copy(update=changes))

    def set_workloads(
        self,
        devices: Mapping[str, str],
        settings: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
    ) -> None:
        """Set all workloads; known ones keep their counts unless their device changed.

        Args:
            devices: Device by workload.
            settings: Labels of each workload's configuration.
        """
        with self._lock:
            kept = {}
            for name, device in devices.items():
                state = self.snapshot.workloads.get(name)
                if state is None or state.device != device:
                    state = WorkloadState(name, device)
                kept[name] = replace(state, settings=settings.get(name, {}))
            self._replace(workloads=MappingProxyType(kept))

    def run_began(
        self, workload: str, run_id: str, lateness_seconds: float | None, wall_seconds: float
    ) -> None:
        """Record that a run is in flight."""
        with self._lock:
            state = self.snapshot.workloads.get(workload)
            if state is None:
                return
            lateness = self.snapshot.lateness
            if lateness_seconds is not None:
                lateness = lateness.observed([lateness_seconds], run_id, wall_seconds)
            self._replace_workload(replace(state, active_run=run_id), lateness=lateness)

    def inferred(self, workload: str, event: Inferences, wall_seconds: float) -> None:
        """Record completed inferences of the run in flight."""
        count = len(event.latency_ns)
        self.counted(workload, event.run_id, count, event.latency_ns, wall_seconds)

    def counted(
        self,
        workload: str,
        run_id: str,
        count: int,
        latency_ns: Sequence[int],
        wall_seconds: float,
    ) -> None:
        """Record completed inferences, all, some or none of which were timed."""
        with self._lock:
            state = self.snapshot.workloads.get(workload)
            if state is None:
                return
            seconds = [latency / 1e9 for latency in latency_ns]
            latency = state.latency.observed(seconds, run_id, wall_seconds)
            inferences = state.inferences + count
            self._replace_workload(replace(state, inferences=inferences, latency=latency))

    def run_ended(self, report: RunReport) -> None:
        """Record outcome and energy of a run."""
        with self._lock:
            state = self.snapshot.workloads.get(report.workload)
            if state is None:
                return
            is_ok = report.outcome == "ok"
            runs = {**state.runs, report.outcome: state.runs.get(report.outcome, 0) + 1}
            failures = state.failures + (report.outcome in ("failed", "timeout"))
            gross = None if report.energy is None else report.energy.gross_joules
            net = None if report.energy is None else report.energy.net_joules
            self._replace_workload(
                replace(
                    state,
                    runs=MappingProxyType(runs),
                    failures=0 if is_ok else failures,
                    active_run=None if state.active_run == report.run_id else state.active_run,
                    gross_joules=_sum(state.gross_joules, gross),
                    # A counter must not fall: a net energy below zero is within its uncertainty.
                    net_joules=_sum(state.net_joules, None if net is None else max(0.0, net)),
                    last_good=report if is_ok else state.last_good,
                    cold_start=report.cold_start_seconds or state.cold_start,
                )
            )

    def skipped(self, reason: str, count: int = 1) -> None:
        """Record scheduled runs that did not start."""
        with self._lock:
            before = self.snapshot.skipped
            skipped = {**before, reason: before.get(reason, 0) + count}
            self._replace(skipped=MappingProxyType(skipped))


def _sum(so_far: float | None, more: float | None) -> float | None:
    return so_far if more is None else (so_far or 0.0) + more
