"""One measuring session: telemetry, its counters, and the completion of runs.

The service, ``bench``, ``exec`` and the simulated fleet use the same session, so that a figure is
made in one way everywhere.
"""

import logging
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...collectors.base import SYSTEM_CLOCK, Clock, Companion, LineSource
from ...collectors.board.boards import RailRule
from ...collectors.dla.tasks import BusyTime
from ...collectors.lines.collector import LineCollector
from ...collectors.simulator.load import LoadBoard
from ...parsers.inference.events import Counted, Inferences, Order, Phase, RunEvent
from ..export.snapshot import LiveState, Snapshot
from ..measure.correlate import correlate
from ..measure.energy import EnergyCounters
from ..measure.run_report import Environment, RunReport, RunTrace, Span
from ..measure.timeline import Timeline
from ..settings.config import Limits, Telemetry, Workload
from ..store.store import Store
from .executor import Verdict
from .telemetry import TelemetryFeed, open_companions, open_telemetry

FAR_OFF_NS = 1 << 62
_WAIT_SECONDS = 0.2
_LONGEST_WAIT_SECONDS = 5.0
_RUNS_AT_MOST = 1024

_LOG = logging.getLogger(__name__)


class RunTimes:
    """Steady windows and times in flight of recent runs; an open one ends far in the future."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._windows: dict[str, tuple[str, Span]] = {}
        self._in_flight: dict[str, tuple[str, Span]] = {}

    def set_window(self, run_id: str, begin_ns: int, end_ns: int = FAR_OFF_NS) -> None:
        """Set the steady window of a run."""
        self._set(self._windows, run_id, "", begin_ns, end_ns)

    def drop_window(self, run_id: str) -> None:
        """Remove a run without a steady phase."""
        with self._lock:
            self._windows.pop(run_id, None)

    def set_in_flight(
        self, run_id: str, device: str, begin_ns: int, end_ns: int = FAR_OFF_NS
    ) -> None:
        """Set when a run is in flight, from its order to its end."""
        self._set(self._in_flight, run_id, device, begin_ns, end_ns)

    def in_flight_seconds(self, device: str, begin_ns: int, end_ns: int) -> float:
        """Return the seconds of a range in which any run was in flight on a device."""
        busy = BusyTime()
        with self._lock:
            for on, span in self._in_flight.values():
                if on == device:
                    busy.add(max(span.begin_ns, begin_ns), min(span.end_ns, end_ns))
        return busy.total / 1e9

    def others(self, run_id: str) -> dict[str, Span]:
        """Return the windows of all other runs."""
        with self._lock:
            return {other: span for other, (_, span) in self._windows.items() if other != run_id}

    def _set(
        self,
        spans: dict[str, tuple[str, Span]],
        run_id: str,
        device: str,
        begin_ns: int,
        end_ns: int,
    ) -> None:
        with self._lock:
            spans[run_id] = device, Span(begin_ns=begin_ns, end_ns=end_ns)
            if len(spans) > _RUNS_AT_MOST:
                ended = (one for one, (_, span) in spans.items() if span.end_ns != FAR_OFF_NS)
                del spans[next(ended, next(iter(spans)))]


class Session:
    """Telemetry of one source at a time, and the runs that are paired with it.

    Attributes:
        load: Our own runs, as a simulated board sees them.
        times: When runs are in flight and steady.
    """

    def __init__(
        self,
        *,
        clock: Clock = SYSTEM_CLOCK,
        environment: Environment | None = None,
        timeline: Timeline | None = None,
        store: Store | None = None,
        model_directory: Path = Path(),
        engine_directory: Path = Path(),
        limits: Limits | None = None,
    ) -> None:
        """Create the parts; no source is open yet.

        Args:
            environment: Where runs take place, as far as it is known.
            timeline: Where samples are kept; it must hold the longest run. Default: one hour.
            store: Where completed runs are committed, if anywhere.
            model_directory: Cache of built-in models.
            engine_directory: Cache of built engines.
            limits: The limits that alerts compare with.
        """
        self.clock = clock
        self.live = LiveState(
            Snapshot(environment=environment or Environment(), limits=limits or Limits())
        )
        self.timeline = Timeline() if timeline is None else timeline
        self.energy = EnergyCounters()
        self.load = LoadBoard()
        self.times = RunTimes()
        self.model_directory = model_directory
        self.engine_directory = engine_directory
        self._store = store
        self._feed: TelemetryFeed | None = None

    @property
    def environment(self) -> Environment:
        """The place of runs, as far as it is known now."""
        return self.live.snapshot.environment

    def suspended_ns(self) -> int:
        """Return how long the machine has been suspended since boot."""
        return self.clock.boottime_ns() - self.clock.monotonic_ns()

    @property
    def store(self) -> Store:
        """The store; only for a session that has one."""
        assert self._store is not None
        return self._store

    def open(
        self,
        telemetry: Telemetry,
        rule: RailRule | None = None,
        devices: Collection[str] = ("dla0", "dla1"),
        collector: LineCollector | None = None,
    ) -> LineSource:
        """Open the configured source in place of the present one; ``start`` begins to read it.

        Args:
            telemetry: The source and its companions.
            rule: The board's rail rule; by default, found by the rails of the first sample.
            devices: Devices on which our own runs may be; a collection that may grow.
            collector: The source, if it is open already.

        Raises:
            UserError: The source can't be opened.
        """
        if collector is None:
            collector = open_telemetry(telemetry, self.load, self.clock)
        if not (collector.source.is_live or self.environment.simulated):
            self.live.describe(simulated=True)
        companions = open_companions(telemetry, self.clock)
        self.attach(collector, rule=rule, devices=devices, companions=companions)
        return collector.source

    def attach(
        self,
        collector: LineCollector,
        *,
        rule: RailRule | None = None,
        devices: Collection[str] = (),
        companions: Sequence[Companion] = (),
    ) -> TelemetryFeed:
        """Take samples from a collector in place of the present source."""
        self.stop()
        self.timeline.seal()
        self.timeline.source = collector.source.name
        self._feed = TelemetryFeed(
            collector,
            timeline=self.timeline,
            energy=self.energy,
            live=self.live,
            occupancy=lambda begin_ns, end_ns: {
                int(device.removeprefix("dla")): self.load.busy_ratio(device, begin_ns, end_ns)
                for device in devices
                if device.startswith("dla")
            },
            rule=rule,
            companions=companions,
        )
        return self._feed

    def start(self) -> None:
        """Begin to read the source."""
        assert self._feed is not None
        self._feed.start()

    def stop(self) -> None:
        """End the source."""
        if self._feed is not None:
            self._feed.stop()

    def refresh(self) -> None:
        """Show the counters of a source that gives no samples at present."""
        if self._feed is not None:
            self._feed.refresh()

    def why(self) -> str | None:
        """Return why no samples come, if it is known."""
        return None if self._feed is None else self._feed.why()

    def await_first_sample(
        self, seconds: float, stopped: Callable[[], bool] = lambda: False
    ) -> bool:
        """Wait for the first sample, the end of the source or ``stopped``, which is polled.

        Returns:
            Whether there is a sample.
        """
        until = time.monotonic() + seconds
        while not self.timeline.wait_past(0, _WAIT_SECONDS):
            has_ended = self._feed is not None and self._feed.problem is not None
            if has_ended or stopped() or time.monotonic() > until:
                return False
        return True

    def await_telemetry(self, trace: RunTrace, stopped: Callable[[], bool] = lambda: False) -> None:
        """Wait for the sample after a run's window; without it the end is a guess."""
        window = trace.telemetry_window()
        if window is None:
            return
        left = min(_LONGEST_WAIT_SECONDS, 3 * (self.timeline.interval_seconds or 0.0))
        while left > 0 and not stopped():
            if self.timeline.wait_past(window.end_ns, _WAIT_SECONDS):
                return
            left -= _WAIT_SECONDS

    def pair(self, trace: RunTrace, verdict: Verdict) -> RunReport:
        """Return the report of a run, paired with the telemetry of its window."""
        trace.outcome, trace.reason = verdict.outcome, verdict.reason
        window = trace.telemetry_window()
        return correlate(
            trace,
            None if window is None else self.timeline.cut(window.begin_ns, window.end_ns),
            rule=self.energy.rule,
            others=self.times.others(trace.run_id),
            environment=self.environment,
            in_flight=self.times.in_flight_seconds,
        )

    def complete(
        self, trace: RunTrace, verdict: Verdict, stopped: Callable[[], bool] = lambda: False
    ) -> RunReport:
        """Pair a run that has ended, commit it, count it and log it.

        ``stopped`` is polled while the last sample is awaited; True ends the wait.
        """
        self.await_telemetry(trace, stopped)
        report = self.pair(trace, verdict)
        self.store.finish(report)
        self.live.run_ended(report)
        level = logging.INFO if report.outcome == "ok" else logging.WARNING
        _LOG.log(level, "%s", describe(report))
        return report


def describe(report: RunReport) -> str:
    """Return one line for the log: the outcome of a run and its headline figures."""
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


_WORKING = ("warm_up", "steady")


@dataclass(frozen=True)
class Job:
    """One run to start; ``due_ns`` is ``None`` on demand."""

    run_id: str
    workload: Workload
    due_ns: int | None


def begin_trace(job: Job, session: Session) -> RunTrace:
    """Return the trace of a run that starts now."""
    started_ns = session.clock.monotonic_ns()
    workload = job.workload
    return RunTrace(
        run_id=job.run_id,
        workload=workload.name,
        backend=workload.backend_in_force,
        device=workload.device,
        started_ns=started_ns,
        started_wall_ns=session.clock.wall_ns(),
        model=workload.model,
        batch=workload.batch,
        process=workload.process,
        lateness_seconds=None if job.due_ns is None else max(0, started_ns - job.due_ns) / 1e9,
    )


class InFlightRun:
    """One run, from its order to its end; belongs to the thread of its device."""

    def __init__(self, session: Session, job: Job, worker_name: str = "") -> None:
        """Record the begin; ``worker_name`` is for a device that has several workers."""
        self._session = session
        self._worker_name = worker_name
        self._suspended_ns = session.suspended_ns()
        self.trace = begin_trace(job, session)
        session.times.set_in_flight(job.run_id, self.trace.device, self.trace.started_ns)

    def take(self, event: RunEvent) -> None:
        """Add one event of the worker."""
        trace, session = self.trace, self._session
        if not trace.add(event):
            return
        if isinstance(event, Phase):
            if event.phase in _WORKING:
                load = float(event.edge == "begin")
                session.load.set(trace.device, load, event.at_ns, self._worker_name)
            if event.phase == "steady" and event.edge == "begin":
                session.times.set_window(trace.run_id, event.at_ns)
        elif isinstance(event, Inferences):
            session.live.inferred(trace.workload, event, session.clock.wall_ns() / 1e9)
        elif isinstance(event, Counted) and event.inferences:
            wall_seconds = session.clock.wall_ns() / 1e9
            session.live.counted(trace.workload, event.run_id, event.inferences, (), wall_seconds)

    def end(self) -> None:
        """Record the end of the run: from now on it draws no power."""
        trace, session = self.trace, self._session
        trace.ended_ns = session.clock.monotonic_ns()
        trace.suspended_ns = session.suspended_ns() - self._suspended_ns
        session.load.set(trace.device, 0.0, trace.ended_ns, self._worker_name)
        session.times.set_in_flight(trace.run_id, trace.device, trace.started_ns, trace.ended_ns)
        steady = trace.phases.get("steady")
        if steady is not None:
            session.times.set_window(trace.run_id, steady.begin_ns, steady.end_ns)
        else:
            session.times.drop_window(trace.run_id)

    def pair(self, verdict: Verdict) -> RunReport:
        """Return the report of the run, paired with the telemetry of its window."""
        return self._session.pair(self.trace, verdict)


def make_order(job: Job, session: Session) -> Order:
    """Return the worker's order for a job."""
    workload = job.workload
    return Order(
        run_id=job.run_id,
        backend=workload.backend_in_force,
        device=workload.device,
        model=workload.model or "",
        model_directory=str(session.model_directory.absolute()),
        batch=workload.batch,
        threads=workload.threads,
        precision=workload.precision,
        optimization_level=workload.optimization_level,
        fallback=workload.fallback,
        streams=workload.streams,
        cuda_graph=workload.cuda_graph,
        transfers=workload.transfers,
        process=workload.process,
        engine_directory=str(session.engine_directory.absolute()),
        program=workload.command or (() if workload.trtexec is None else (workload.trtexec,)),
        warm_up_seconds=workload.warm_up,
        baseline_seconds=workload.baseline,
        duration_seconds=workload.steady_seconds,
        count=workload.count,
    )
