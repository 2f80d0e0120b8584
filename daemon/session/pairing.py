"""One run in flight: its events, its effect on the simulated board, and its pairing at the end."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ...collectors.base import Clock
from ...collectors.board.boards import RailRule
from ...collectors.dla.tasks import BusyTime
from ...collectors.simulator.load import LoadBoard
from ...parsers.inference.events import Counted, Inferences, Order, Phase, RunEvent
from ..export.state import Ledger
from ..measure.correlate import correlate
from ..measure.run_report import RunReport, Span
from ..measure.run_trace import RunTrace
from ..measure.timeline import Timeline
from ..settings.config import Workload
from ..store.store import Store
from .executor import Verdict

_WORKING = ("warm_up", "steady")
FAR_OFF_NS = 1 << 62
_LOOK_SECONDS = 0.2
_WINDOWS_AT_MOST = 1024


@dataclass(frozen=True)
class Job:
    """One run to start; ``due_ns`` is ``None`` on demand."""

    run_id: str
    workload: Workload
    due_ns: int | None


class Windows:
    """Steady windows of the recent runs of all devices, to detect overlaps.

    It also holds when each run was in flight on its device, from its order to its end.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spans: dict[str, Span] = {}
        self._flights: dict[str, tuple[str, Span]] = {}

    def put(self, run_id: str, begin_ns: int, end_ns: int) -> None:
        """Add a window; an open window ends far in the future."""
        with self._lock:
            self._spans[run_id] = Span(begin_ns=begin_ns, end_ns=end_ns)
            if len(self._spans) > _WINDOWS_AT_MOST:
                ended = (one for one, span in self._spans.items() if span.end_ns != FAR_OFF_NS)
                del self._spans[next(ended, next(iter(self._spans)))]

    def drop(self, run_id: str) -> None:
        """Remove a run without a steady phase."""
        with self._lock:
            self._spans.pop(run_id, None)

    def fly(self, run_id: str, device: str, begin_ns: int, end_ns: int = FAR_OFF_NS) -> None:
        """Set when a run is in flight; a run without an end ends far in the future."""
        with self._lock:
            self._flights[run_id] = device, Span(begin_ns=begin_ns, end_ns=end_ns)
            if len(self._flights) > _WINDOWS_AT_MOST:
                ended = (one for one, (_, s) in self._flights.items() if s.end_ns != FAR_OFF_NS)
                del self._flights[next(ended, next(iter(self._flights)))]

    def in_flight_seconds(self, device: str, begin_ns: int, end_ns: int) -> float:
        """Return the seconds of a range in which any run was in flight on a device."""
        busy = BusyTime()
        with self._lock:
            for on, span in self._flights.values():
                if on == device:
                    busy.add(max(span.begin_ns, begin_ns), min(span.end_ns, end_ns))
        return busy.total / 1e9

    def others(self, run_id: str) -> dict[str, Span]:
        """Return the windows of all other runs."""
        with self._lock:
            return {other: span for other, span in self._spans.items() if other != run_id}


@dataclass(frozen=True)
class Surroundings:
    """Shared parts that a run in flight needs.

    Attributes:
        ledger: Counts of runs.
        timeline: The telemetry.
        load: The runs as the simulated board sees them.
        windows: The runs of other devices.
        rule: The board's rail rule, once it is known.
    """

    ledger: Ledger
    timeline: Timeline
    load: LoadBoard
    windows: Windows
    rule: Callable[[], RailRule | None]
    clock: Clock
    model_directory: Path
    engine_directory: Path


@dataclass(frozen=True)
class Pairing(Surroundings):
    """Shared parts of all devices of the daemon, with the store for their runs."""

    store: Store


class Flight:
    """One run, from its order to its report; belongs to the thread of its device."""

    def __init__(self, shared: Surroundings, job: Job, lane_name: str | None = None) -> None:
        """Start to follow a run.

        Args:
            shared: Shared parts.
            job: The run.
            lane_name: Name of its worker; ``None`` if the device has only one.
        """
        self._shared = shared
        self._holder = lane_name or ""
        self._device = job.workload.device
        self._suspended_ns = self._suspended()
        started_ns = shared.clock.monotonic_ns()
        late = None if job.due_ns is None else max(0.0, (started_ns - job.due_ns) / 1e9)
        self.trace = RunTrace(
            run_id=job.run_id,
            workload=job.workload.name,
            backend=job.workload.backend_in_force,
            device=job.workload.device,
            started_ns=started_ns,
            started_wall_ns=shared.clock.wall_ns(),
            model=job.workload.model,
            batch=job.workload.batch,
            process=job.workload.process,
            lateness_seconds=late,
        )
        shared.windows.fly(job.run_id, self._device, started_ns)

    def take(self, event: RunEvent) -> None:
        """Add one event of the worker."""
        if not self.trace.add(event):
            return
        if isinstance(event, Phase):
            if event.phase in _WORKING:
                load = float(event.edge == "begin")
                self._shared.load.set(self._device, load, event.at_ns, self._holder)
            if event.phase == "steady" and event.edge == "begin":
                self._shared.windows.put(self.trace.run_id, event.at_ns, FAR_OFF_NS)
        elif isinstance(event, Inferences):
            wall_seconds = self._shared.clock.wall_ns() / 1e9
            self._shared.ledger.inferred(self.trace.workload, event, wall_seconds)
        elif isinstance(event, Counted) and event.inferences:
            wall_seconds = self._shared.clock.wall_ns() / 1e9
            self._shared.ledger.counted(
                self.trace.workload, event.run_id, event.inferences, (), wall_seconds
            )

    def land(self) -> None:
        """Record the end of the run: from now on it draws no power."""
        self.trace.ended_ns = self._shared.clock.monotonic_ns()
        self.trace.suspended_ns = self._suspended() - self._suspended_ns
        self._shared.load.set(self._device, 0.0, self.trace.ended_ns, self._holder)
        self._shared.windows.fly(
            self.trace.run_id, self._device, self.trace.started_ns, self.trace.ended_ns
        )
        steady = self.trace.phases.get("steady")
        if steady is not None:
            self._shared.windows.put(self.trace.run_id, steady.begin_ns, steady.end_ns)
        else:
            self._shared.windows.drop(self.trace.run_id)

    def await_telemetry(self) -> None:
        """Wait for the sample after the run's window, because its edge needs it."""
        await_telemetry(self._shared, self.trace)

    def report(self, verdict: Verdict) -> RunReport:
        """Pair the run with the telemetry of its window."""
        return pair(self._shared, self.trace, verdict)

    def _suspended(self) -> int:
        return self._shared.clock.boottime_ns() - self._shared.clock.monotonic_ns()


def await_telemetry(
    shared: Surroundings, trace: RunTrace, stopped: Callable[[], bool] = lambda: False
) -> None:
    """Wait for the sample after a run's window, which its edge needs, or until ``stopped()``."""
    window = trace.telemetry_window()
    if window is None:
        return
    left = min(5.0, 3 * (shared.timeline.interval_seconds or 0.0))
    while (
        left > 0 and not stopped() and not shared.timeline.wait_past(window.end_ns, _LOOK_SECONDS)
    ):
        left -= _LOOK_SECONDS


def pair(shared: Surroundings, trace: RunTrace, verdict: Verdict) -> RunReport:
    """Pair a run with the telemetry of its window."""
    trace.outcome, trace.reason = verdict.outcome, verdict.reason
    window = trace.telemetry_window()
    cut = None if window is None else shared.timeline.cut(window.begin_ns, window.end_ns)
    return correlate(
        trace,
        cut,
        rule=shared.rule(),
        others=shared.windows.others(trace.run_id),
        environment=shared.ledger.snapshot.environment,
        in_flight=shared.windows.in_flight_seconds,
    )


def make_order(job: Job, model_directory: Path, engine_directory: Path) -> Order:
    """Return the worker's order for a job."""
    workload = job.workload
    return Order(
        run_id=job.run_id,
        backend=workload.backend_in_force,
        device=workload.device,
        model=workload.model or "",
        model_directory=str(model_directory.absolute()),
        batch=workload.batch,
        threads=workload.threads,
        precision=workload.precision,
        optimization_level=workload.optimization_level,
        fallback=workload.fallback,
        streams=workload.streams,
        cuda_graph=workload.cuda_graph,
        transfers=workload.transfers,
        process=workload.process,
        engine_directory=str(engine_directory.absolute()),
        program=workload.command or (() if workload.trtexec is None else (workload.trtexec,)),
        warm_up_seconds=workload.warm_up,
        baseline_seconds=workload.baseline,
        duration_seconds=workload.steady_seconds,
        count=workload.count,
    )


def describe(report: RunReport) -> str:
    """Return one log line about a run: how it ended and its main figures, except withheld ones."""
    parts = [f"{report.workload} on {report.device}: {report.outcome}"]
    if report.reason:
        parts.append(report.reason)
    if report.inferences:
        parts.append(f"{report.inferences} inferences")
    if report.latency is not None:
        parts.append(f"p50 {report.latency.p50_seconds * 1e3:.3g} ms")
    if report.built is not None and report.built.placement.verdict != "unknown":
        parts.append(f"placement {report.built.placement.verdict}")
    energy = report.energy
    if energy is not None and energy.gross_joules_per_inference is not None:
        parts.append(f"{energy.gross_joules_per_inference:.3g} J each")
    if report.quality:
        parts.append(f"flags: {' '.join(report.quality)}")
    parts.append(f"run {report.run_id}")
    return " · ".join(parts)
