"""What happens, noted from any thread: each change makes a new snapshot."""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from ...parsers.inference.events import Inferences
from ..measure.run_report import RunReport
from .snapshot import Snapshot, WorkloadState


class Ledger:
    """Takes note of what happens, from any thread; ``snapshot`` is always whole."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self._lock = threading.Lock()

    def update(self, **changes: object) -> None:
        """Replace parts of the snapshot."""
        with self._lock:
            self.snapshot = replace(
                self.snapshot,
                version=self.snapshot.version + 1,
                **changes,  # type: ignore[arg-type]
            )

    def describe(self, **changes: object) -> None:
        """Replace parts of the environment, where they are other than what is known."""
        with self._lock:
            known = self.snapshot.environment
            if any(getattr(known, name) != value for name, value in changes.items()):
                self.snapshot = replace(
                    self.snapshot,
                    version=self.snapshot.version + 1,
                    environment=known.model_copy(update=changes),
                )

    def _update_workload(self, name: str, state: WorkloadState, **changes: object) -> None:
        self.snapshot = replace(
            self.snapshot,
            version=self.snapshot.version + 1,
            workloads=MappingProxyType({**self.snapshot.workloads, name: state}),
            **changes,  # type: ignore[arg-type]
        )

    def set_workloads(
        self,
        devices: Mapping[str, str],
        settings: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
    ) -> None:
        """Know exactly these workloads; those known before keep their counts.

        Args:
            devices: By name.
            settings: What each runs, by name and label.
        """
        with self._lock:
            known = self.snapshot.workloads
            kept = {
                name: replace(
                    known[name]
                    if name in known and known[name].device == device
                    else WorkloadState(name, device),
                    settings=settings.get(name, {}),
                )
                for name, device in devices.items()
            }
            self.snapshot = replace(
                self.snapshot,
                version=self.snapshot.version + 1,
                workloads=MappingProxyType(kept),
            )

    def run_began(
        self, workload: str, run_id: str, lateness_seconds: float | None, wall_seconds: float
    ) -> None:
        """Note that a run is in flight."""
        with self._lock:
            state = self.snapshot.workloads.get(workload)
            if state is None:
                return
            lateness = self.snapshot.lateness
            if lateness_seconds is not None:
                lateness = lateness.observed([lateness_seconds], run_id, wall_seconds)
            self._update_workload(workload, replace(state, active_run=run_id), lateness=lateness)

    def inferred(self, workload: str, event: Inferences, wall_seconds: float) -> None:
        """Note completed inferences of the run in flight."""
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
        """Note completed inferences, of which some were timed, or none."""
        with self._lock:
            state = self.snapshot.workloads.get(workload)
            if state is None:
                return
            seconds = [latency / 1e9 for latency in latency_ns]
            self._update_workload(
                workload,
                replace(
                    state,
                    inferences=state.inferences + count,
                    latency=state.latency.observed(seconds, run_id, wall_seconds),
                ),
            )

    def run_ended(self, report: RunReport) -> None:
        """Note how a run ended and what it cost."""
        with self._lock:
            state = self.snapshot.workloads.get(report.workload)
            if state is None:
                return
            runs = {**state.runs, report.outcome: state.runs.get(report.outcome, 0) + 1}
            energy = report.energy
            failures = state.failures + (report.outcome in ("failed", "timeout"))
            gross = None if energy is None else energy.gross_joules
            net = None if energy is None else energy.net_joules
            self._update_workload(
                report.workload,
                replace(
                    state,
                    runs=MappingProxyType(runs),
                    failures=0 if report.outcome == "ok" else failures,
                    active_run=None if state.active_run == report.run_id else state.active_run,
                    gross_joules=_sum(state.gross_joules, gross),
                    # A counter must not fall: a net energy below zero is within its uncertainty.
                    net_joules=_sum(state.net_joules, None if net is None else max(0.0, net)),
                    last_good=report if report.outcome == "ok" else state.last_good,
                    cold_start=report.cold_start_seconds or state.cold_start,
                ),
            )

    def skipped(self, reason: str, count: int = 1) -> None:
        """Note scheduled runs that did not start."""
        with self._lock:
            skipped = {**self.snapshot.skipped}
            skipped[reason] = skipped.get(reason, 0) + count
            self.snapshot = replace(
                self.snapshot,
                version=self.snapshot.version + 1,
                skipped=MappingProxyType(skipped),
            )


def _sum(so_far: float | None, more: float | None) -> float | None:
    return so_far if more is None else (so_far or 0.0) + more
