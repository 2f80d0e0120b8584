"""One measuring session: telemetry, its counters, and the completion of runs.

The service, ``bench``, ``exec`` and the simulated fleet use the same session, so that a figure is
made in one way everywhere.
"""

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from secrets import randbits
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from ...collectors.base import SYSTEM_CLOCK, Clock, Companion, LineSource
from ...collectors.catalog import find_backend
from ...collectors.dla.tasks import BusyTime
from ...collectors.lines.collector import LineCollector
from ...collectors.simulator.physics import LoadBoard
from ...parsers.errors import UserError
from ...parsers.inference.events import (
    Counted,
    Inferences,
    InputShape,
    Order,
    Phase,
    PhaseName,
    Progress,
    RunEvent,
    Surroundings,
)
from ...parsers.rails import RailRule
from ...parsers.values import DLAS
from ..export.snapshot import LiveState, Snapshot
from ..measure.correlate import correlate, report_without_window
from ..measure.energy_report import timing_of
from ..measure.possible import limits_of
from ..measure.report import Environment, RunReport, Span
from ..measure.run_text import run_line
from ..measure.running_energy import EnergyCounters
from ..measure.timeline import Timeline
from ..measure.trace import Pattern, RunTrace
from ..settings.config import Limits, Telemetry, Workload, new_run_id
from ..store.store import Store
from .second_series import SecondSeries
from .telemetry import (
    TelemetryFeed,
    open_companions,
    open_processes,
    open_telemetry,
    power_opener,
)

if TYPE_CHECKING:
    from ...collectors.processes.watch import ProcessWatch
    from ...parsers.onnx.costs import ModelWork

FAR_OFF_NS = 1 << 62
_WAIT_SECONDS = 0.2
_LONGEST_WAIT_SECONDS = 5.0
_RUNS_AT_MOST = 1024

_LOG = logging.getLogger(__name__)


class _DeviceTime(NamedTuple):
    device: str
    span: Span


class RunTimes:
    """Times of recent runs, in flight and at work; one that goes on ends far in the future.

    ``on_edge`` is called where a steady phase begins or ends.
    """

    def __init__(self, on_edge: Callable[[], object] = lambda: None) -> None:
        self._on_edge = on_edge
        self._lock = threading.Lock()
        self._work: dict[str, dict[PhaseName, Span]] = {}
        self._in_flight: dict[str, _DeviceTime] = {}

    def set_work(
        self, run_id: str, phase: PhaseName, begin_ns: int, end_ns: int = FAR_OFF_NS
    ) -> None:
        """Set the time of one working phase of a run: of any phase that is not idle."""
        with self._lock:
            phases = self._work.setdefault(run_id, {})
            phases[phase] = Span(begin_ns=begin_ns, end_ns=max(begin_ns, end_ns))
            _limit(self._work, _is_at_work)
        if phase == "steady":
            self._on_edge()

    def end_work(self, run_id: str, ended_ns: int) -> None:
        """End the phases of a run that have not ended."""
        with self._lock:
            phases = dict(self._work.get(run_id, {}))
        for name, span in phases.items():
            if span.end_ns == FAR_OFF_NS:
                self.set_work(run_id, name, span.begin_ns, ended_ns)

    def set_in_flight(
        self,
        run_id: str,
        device: str,
        begin_ns: int,
        end_ns: int = FAR_OFF_NS,
    ) -> None:
        """Set when a run is in flight, from its order to its end."""
        span = Span(begin_ns=begin_ns, end_ns=end_ns)
        with self._lock:
            self._in_flight[run_id] = _DeviceTime(device, span)
            _limit(self._in_flight, lambda run: run.span.end_ns == FAR_OFF_NS)

    def in_flight_seconds(self, device: str, begin_ns: int, end_ns: int) -> float:
        """Return the seconds of a range in which any run was in flight on a device."""
        busy = BusyTime()
        with self._lock:
            for on, span in self._in_flight.values():
                if on == device:
                    busy.add(max(span.begin_ns, begin_ns), min(span.end_ns, end_ns))
        return busy.total / 1e9

    def others(self, run_id: str) -> dict[str, tuple[Span, ...]]:
        """Return the working phases of all other runs."""
        others: dict[str, tuple[Span, ...]] = {}
        with self._lock:
            for other_id, spans in self._work.items():
                if other_id != run_id:
                    others[other_id] = tuple(spans.values())
        return others


def _is_at_work(spans: Mapping[PhaseName, Span]) -> bool:
    return any(span.end_ns == FAR_OFF_NS for span in spans.values())


_T = TypeVar("_T")


def _limit(runs: dict[str, _T], goes_on: Callable[[_T], bool]) -> None:
    """Remove the oldest run, and rather one that has ended, if there are too many."""
    if len(runs) <= _RUNS_AT_MOST:
        return
    oldest = next(iter(runs))
    for run_id, value in runs.items():
        if not goes_on(value):
            oldest = run_id
            break
    del runs[oldest]


class Session:
    """Telemetry of one source at a time, and the runs that are paired with it.

    Example::

        session = Session(store=store)
        session.open(config.telemetry)
        session.start()
        job = Job(workload)
        run = InFlightRun(session, job)
        session.begin(run.trace, "the daemon ended during the run")  # the record until then
        executor.run(make_order(job, session), timeout_seconds, run.take)
        run.end()
        report = session.complete(run.trace)
        session.stop()

    Attributes:
        load: Our own runs, as a simulated board sees them.
        times: When runs are in flight and at work.
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
        on_crash: Callable[[Exception], object] = lambda _: None,
        on_report: Callable[[RunReport], object] = lambda _: None,
        companions: Sequence[Companion] = (),
    ) -> None:
        """Create the parts; no source is open yet.

        Args:
            timeline: Keeps the samples; it must hold the longest run. Default: one hour.
            store: Receives completed runs, if given.
            model_directory: Cache of built-in models.
            limits: The limits that alerts compare with.
            on_crash: Called by the telemetry thread if it ends by an error of ours.
            on_report: Called with each completed run.
            companions: Read besides those of each source.
        """
        self._on_crash, self._on_report = on_crash, on_report
        self._companions = companions
        self.clock = clock
        self.live = LiveState(
            Snapshot(environment=environment or Environment(), limits=limits or Limits())
        )
        self.timeline = Timeline() if timeline is None else timeline
        # For the exported counters only: the energy of a run is ``measure_energy``.
        self.energy = EnergyCounters()
        self.load = LoadBoard()
        self.times = RunTimes(self._look_at_processes)
        self.model_directory = model_directory
        self.engine_directory = engine_directory
        self._store = store
        self._feed: TelemetryFeed | None = None
        self._processes: ProcessWatch | None = None
        self._second: SecondSeries | None = None

    @property
    def environment(self) -> Environment:
        """The place of runs, as far as it is known now."""
        return self.live.snapshot.environment

    def _look_at_processes(self) -> None:
        if self._processes is not None:
            self._processes.look_soon()

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
        devices: Collection[str] = DLAS,
        collector: LineCollector | None = None,
    ) -> LineSource:
        """Open the configured source in place of the present one; ``start`` begins to read it.

        Args:
            rule: The board's rail rule; by default, found by the rails of the first sample.
            devices: Devices on which our own runs may be; a collection that may grow.
            collector: The source, if it is open already; else one that can't be opened raises
                ``UserError``.
        """
        if collector is None:
            collector = open_telemetry(telemetry, self.load, self.clock)
        if not (collector.source.is_live or self.environment.simulated):
            self.live.describe(simulated=True)
        companions = [*open_companions(telemetry, self.clock), *collector.companions]
        companions += self._companions
        self._processes = open_processes(telemetry, self.clock, self.live)
        if self._processes is not None:
            companions.append(self._processes)
        self.attach(collector, rule=rule, devices=devices, companions=companions)
        open_power = power_opener(telemetry, collector, self.clock)
        if open_power is not None:
            self._second = SecondSeries(open_power, clock=self.clock)
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
        self._second = None
        self.timeline.seal()
        self.timeline.source = collector.source.name
        self._feed = TelemetryFeed(
            collector,
            timeline=self.timeline,
            energy=self.energy,
            live=self.live,
            occupancy=partial(self._occupancy, devices),
            rule=rule,
            companions=companions,
            on_crash=self._on_crash,
            clock=self.clock,
        )
        return self._feed

    def _occupancy(self, devices: Collection[str], begin_ns: int, end_ns: int) -> dict[int, float]:
        """Return the share of a range in which a run was in flight, by number of DLA core."""
        shares: dict[int, float] = {}
        for device in devices:
            if device in DLAS:
                core = int(device.removeprefix("dla"))
                shares[core] = self.load.busy_ratio(device, begin_ns, end_ns)
        return shares

    def start(self) -> None:
        """Begin to read the source."""
        assert self._feed is not None
        self._feed.start()

    def stop(self) -> None:
        """End the source."""
        if self._feed is not None:
            self._feed.stop()
        if self._second is not None:
            self._second.stop()

    def begin_window(self, run_id: str) -> None:
        """Begin a part of the time in which a run is measured: now, or a little later.

        In these parts the power of the module is read beside the lines, where that is possible.
        """
        rule, interval = self.energy.rule, self.timeline.interval_seconds
        if self._second is not None and rule is not None and rule.total and interval is not None:
            self._second.begin(run_id, rule.total, interval)

    def end_window(self, run_id: str, at_ns: int) -> None:
        """End it; ignore one that was not begun."""
        if self._second is not None:
            self._second.end(run_id, at_ns)

    def refresh(self) -> None:
        """Show the counters of a source that gives no samples at present."""
        if self._feed is not None:
            self._feed.refresh()

    def why(self) -> str | None:
        """Return why no samples come, if it is known."""
        if self._feed is None:
            return None
        return self._feed.why()

    def await_first_sample(
        self, seconds: float, stopped: Callable[[], bool] = lambda: False, after_ns: int = 0
    ) -> bool:
        """Wait for a sample ``after_ns``, and return whether it came.

        The end of the source and ``stopped``, which is polled, end the wait.
        """
        until = time.monotonic() + seconds
        while not self.timeline.wait_past(after_ns, _WAIT_SECONDS):
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

    def plan_lock_in(self, seconds: float) -> Pattern:
        """Return a new random pattern, or raise ``UserError`` if no figure could come of it."""
        interval, rule = self.timeline.interval_seconds, self.energy.rule
        if self.environment.simulated:
            what = "a simulated board does not follow on- and off-steps"
            raise UserError(what, "measure on a real board")
        if interval is None:
            raise UserError("there is no telemetry", "see tegrascope doctor")
        if rule is None or not rule.total:
            what = "the rails that add up to the module are not known"
            raise UserError(what, "name them under board: in the configuration")
        from ..measure.lock_in import pattern

        width, seed = timing_of(self.environment).width, randbits(32)
        return Pattern(seconds, seed, pattern(seconds, interval, width, seed))

    def begin(self, trace: RunTrace, reason: str) -> None:
        """Store a provisional record with the outcome ``failed``.

        It is replaced when the run ends, and stays with its ``reason`` if the daemon ends before.
        """
        failed: dict[str, object] = {"outcome": "failed", "reason": reason}
        if self.environment.simulated:
            failed["quality"] = ("simulated",)
        self.store.begin(report_without_window(trace, self.environment).model_copy(update=failed))

    def pair(self, trace: RunTrace) -> RunReport:
        """Return the report of a run, paired with the telemetry of its window."""
        window = trace.telemetry_window()
        samples = second = None
        if window is not None:
            samples = self.timeline.cut(window.begin_ns, window.end_ns)
            if self._second is not None:
                second = self._second.cut(window.begin_ns, window.end_ns)
        return correlate(
            trace,
            samples,
            second=second,
            rule=self.energy.rule,
            others=self.times.others(trace.run_id),
            environment=self.environment,
            in_flight=self.times.in_flight_seconds,
            model_work=self._work_of(trace),
        )

    def _work_of(self, trace: RunTrace) -> "ModelWork | None":
        """Return the work of an inference, where the board has a peak to compare it with."""
        limits = limits_of(trace, self.environment)
        if limits is None or limits.precision is None:
            return None
        if trace.model is None or trace.model_sha256 is None:
            return None
        # Only some boards need it; the daemon's memory is spared until then.
        from ...collectors.backends.work import work_of

        shapes = {name: InputShape(shape=shape) for name, shape in trace.input_shapes.items()}
        return work_of(
            trace.model,
            trace.model_sha256,
            self.model_directory,
            trace.batch,
            tuple(sorted(shapes.items())),
            limits.precision,
        )

    def complete(self, trace: RunTrace, stopped: Callable[[], bool] = lambda: False) -> RunReport:
        """Pair a run that has ended, commit it, count it and log it.

        ``stopped`` is polled while the last sample is awaited; True ends the wait.
        """
        self.await_telemetry(trace, stopped)
        report = self.pair(trace)
        stored = self.store.finish(report)
        self.live.run_ended(report)
        try:
            self._on_report(report)
        except Exception:  # the run itself is over, and stored as it was
            _LOG.exception("%s: what follows run %s failed", report.workload, report.run_id)
        if not stored:
            _LOG.warning("%s · not stored yet", run_line(report))
        elif report.outcome != "ok":
            _LOG.warning("%s", run_line(report))
        else:
            _LOG.info("%s", run_line(report))
        return report


_INFERRING = ("warm_up", "steady")
_IDLE = ("baseline_before", "baseline_after")
_MEASURED = ("steady", *_IDLE)


@dataclass(frozen=True)
class Job:
    """One run to start.

    Attributes:
        due_ns: Its CLOCK_MONOTONIC time by the plan, including jitter; ``None`` on demand.
    """

    workload: Workload
    due_ns: int | None = None
    run_id: str = field(default_factory=new_run_id)


def begin_trace(job: Job, session: Session) -> RunTrace:
    """Return the trace of a run that starts now."""
    started_ns = session.clock.monotonic_ns()
    workload = job.workload
    lateness_seconds: float | None = None
    if job.due_ns is not None:
        lateness_seconds = max(0, started_ns - job.due_ns) / 1e9
    return RunTrace(
        run_id=job.run_id,
        workload=workload.name,
        backend=workload.backend_in_force,
        device=workload.device,
        started_ns=started_ns,
        started_wall_ns=session.clock.wall_ns(),
        model=workload.model_name,
        head=workload.head,
        has_device_clock=workload.device != "cpu",
        weight_bytes=None if workload.server is None else workload.server.weight_bytes,
        batch=workload.batch,
        unit=workload.unit,
        process=workload.process,
        deadline_seconds=workload.deadline,
        lateness_seconds=lateness_seconds,
    )


class InFlightRun:
    """One run, from its order to its end; belongs to the thread of its device."""

    def __init__(
        self,
        session: Session,
        job: Job,
        worker_name: str = "",
        tell: Callable[[Surroundings], object] | None = None,
    ) -> None:
        """Record the begin.

        Args:
            worker_name: For a device that has several workers.
            tell: Tells the worker how others slow it, if it simulates an accelerator.
        """
        workload = job.workload
        self._session = session
        self._holder = worker_name or workload.device
        self._suspended_ns = session.suspended_ns()
        backend = find_backend(workload.backend_in_force)
        self._loads = backend.loads(workload.model or "", workload.device, workload)
        self.trace = begin_trace(job, session)
        self._set_in_flight(self.trace.started_ns)
        if backend.is_simulated and tell is not None:

            def hear(at_ns: int, slowdown: float) -> None:
                tell(Surroundings(at_ns=at_ns, slowdown=slowdown))

            session.load.follow(workload.device, self._holder, hear)

    def take(self, event: RunEvent) -> None:
        """Add one event of the worker."""
        trace, session = self.trace, self._session
        if not trace.add(event):
            return
        if isinstance(event, Phase):
            if event.phase in _INFERRING:
                for lane, ratio in self._loads.items():
                    load = ratio if event.edge == "begin" else 0.0
                    session.load.set(lane, load, event.at_ns, self._holder)
            if event.phase not in _IDLE:
                self._set_work(event)
            if event.phase in _MEASURED and event.edge == "begin":
                session.begin_window(trace.run_id)
            elif event.phase in _MEASURED:
                session.end_window(trace.run_id, event.at_ns)
        elif isinstance(event, Progress):
            _LOG.info("%s on %s %s", trace.workload, trace.device, event.doing)
        elif isinstance(event, Inferences):
            self._count(len(event.latency_ns), event.latency_ns)
        elif isinstance(event, Counted):
            self._count(event.inferences or 0, units=event.units or 0.0)

    def _set_work(self, event: Phase) -> None:
        """Note that a working phase begins or ends."""
        times, run_id = self._session.times, self.trace.run_id
        if event.edge == "begin":
            times.set_work(run_id, event.phase, event.at_ns)
        else:
            begin_ns = self.trace.begins[event.phase]  # the trace takes no end without its begin
            times.set_work(run_id, event.phase, begin_ns, event.at_ns)

    def _count(self, count: int, latency_ns: Sequence[int] = (), units: float = 0.0) -> None:
        """Count completed inferences, and units of work, of the run so far."""
        wall_seconds = self._session.clock.wall_ns() / 1e9
        self._session.live.counted(
            self.trace.workload, self.trace.run_id, count, latency_ns, wall_seconds, units=units
        )

    def end(self) -> None:
        """Record the end of the run: from now on it draws no power."""
        trace, session = self.trace, self._session
        trace.ended_ns = session.clock.monotonic_ns()
        trace.suspended_ns = session.suspended_ns() - self._suspended_ns
        session.load.end(self._holder, trace.ended_ns)
        session.end_window(trace.run_id, trace.ended_ns)
        self._set_in_flight(trace.started_ns, trace.ended_ns)
        session.times.end_work(trace.run_id, trace.ended_ns)

    def _set_in_flight(self, begin_ns: int, end_ns: int = FAR_OFF_NS) -> None:
        trace, times = self.trace, self._session.times
        times.set_in_flight(trace.run_id, trace.device, begin_ns, end_ns)

    def pair(self) -> RunReport:
        """Return the report of the run, paired with the telemetry of its window."""
        return self._session.pair(self.trace)


def make_order(job: Job, session: Session) -> Order:
    """Return the worker's order for a job."""
    workload = job.workload
    # A setting of a workload that is called as one of an order is the same.
    settings: dict[str, object] = {}
    for name in Order.model_fields.keys() & Workload.model_fields.keys():
        settings[name] = getattr(workload, name)
    program: Sequence[str] = ()
    if workload.command is not None:
        program = workload.command
    elif workload.trtexec is not None:
        program = (workload.trtexec,)
    settings |= {
        "run_id": job.run_id,
        "backend": workload.backend_in_force,
        "model": workload.model or "",
        "model_directory": str(session.model_directory.absolute()),
        "engine_directory": str(session.engine_directory.absolute()),
        "program": program,
        "warm_up_seconds": workload.warm_up,
        "baseline_seconds": workload.baseline,
        "duration_seconds": workload.steady_seconds,
    }
    return Order.model_validate(settings)
