"""The workers of a benchmark, and one run on one of them, as the daemon carries it out."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from ...collectors.base import SYSTEM_CLOCK, LineSource
from ...collectors.board.machine import cpu_busy_ratio
from ...collectors.lines.program import ProcessSource, SocketSource
from ...parsers.errors import UserError
from ...parsers.inference.events import RunEvent
from ..measure.run_report import Pattern, RunReport, RunTrace, Span
from ..measure.timeline import Timeline
from ..measure.utilization import telemetry as describe
from ..results.records import Status
from ..session.executor import Executor, Verdict
from ..session.session import InFlightRun, Job, Session, make_order
from ..session.telemetry import environment_of
from ..settings.config import Telemetry, Workload, new_run_id
from .settings import INTERVALS, Asked

_FIRST_SAMPLE_SECONDS = 20.0
# A benchmark may take hours, and its figure shows all of it.
_SPAN_SECONDS = 48 * 3600.0


class Setup:
    """The telemetry of a benchmark, by the same parts as the daemon's; ``stopping`` ends a wait."""

    def __init__(
        self,
        asked: Asked,
        state_dir: Path,
        *,
        first_sample_seconds: float = _FIRST_SAMPLE_SECONDS,
    ) -> None:
        """Prepare; ``problem`` becomes the reason for missing telemetry.

        After ``first_sample_seconds`` without a sample the benchmark continues without telemetry.
        """
        self.problem = asked.why_no_telemetry
        self.stopping = threading.Event()
        self._asked = asked
        self._first_sample_seconds = first_sample_seconds
        self._source: LineSource | None = None
        self.session = Session(
            clock=SYSTEM_CLOCK,
            environment=environment_of(
                asked.telemetry,
                board=None if asked.rule is None else asked.rule.name,
                simulated=asked.settings.is_simulated,
            ),
            timeline=Timeline(span_seconds=_SPAN_SECONDS),
            model_directory=state_dir / "models",
            engine_directory=state_dir / "engines",
        )

    def start(self) -> None:
        """Open the source and wait for its first sample; without one, set ``problem``."""
        if self._asked.telemetry is None:
            return
        self._open(self._asked.telemetry)

    def begin_pass(self, number: int) -> None:
        """Sample a pass of rounds with an interval of its own, so that no lock to it lasts.

        Only a program that we start can have one, and only if nobody chose the interval.
        """
        telemetry, source = self._asked.telemetry, self._source
        if telemetry is None or not self._asked.varies_interval or self.problem is not None:
            return
        if isinstance(source, SocketSource) and source.is_privileged:
            return  # its unit sets the interval
        interval = INTERVALS[number % len(INTERVALS)]
        if isinstance(source, ProcessSource) and source.interval_seconds != interval:
            self._open(telemetry.model_copy(update={"interval": interval}))

    def _open(self, telemetry: Telemetry) -> None:
        session, seconds = self.session, self._first_sample_seconds
        try:
            self._source = session.open(telemetry, self._asked.rule)
        except UserError as error:
            self.problem = str(error)
            return
        opened_ns = SYSTEM_CLOCK.monotonic_ns()
        session.start()
        if not session.await_first_sample(seconds, self.stopping.is_set, opened_ns):
            self.problem = session.why() or f"{self._source.name}: no sample in {seconds:g} s"
            session.stop()

    def background(self, seconds: float) -> dict[str, float]:
        """Return the load of ``cpu``, by the kernel, and of ``gpu``, by telemetry, if known."""
        begin_ns = SYSTEM_CLOCK.monotonic_ns()
        loads = {"cpu": cpu_busy_ratio(seconds, self.stopping)}
        end_ns = SYSTEM_CLOCK.monotonic_ns()
        cut = self.session.timeline.cut(begin_ns, end_ns)
        if cut.times_ns and end_ns > begin_ns:
            seen = describe(cut, Span(begin_ns=begin_ns, end_ns=end_ns)).utilization.get("gpu")
            loads["gpu"] = None if seen is None else seen.mean_ratio
        return {name: ratio for name, ratio in loads.items() if ratio is not None}


_INTERRUPTED = Verdict("cancelled", "the benchmark was interrupted")


class FinishedRun(NamedTuple):
    """One run that is over: its report paired with telemetry, and the events of its worker."""

    report: RunReport
    trace: RunTrace
    status: Status


class Workers:
    """A worker for each name, started when it is first needed.

    ``run_together``, ``end`` and ``close`` belong to one thread, ``cancel`` to any other; ``run``
    may be called by several threads at once, each with a worker of its own.
    """

    def __init__(
        self,
        session: Session,
        heard: Callable[[RunEvent], None],
        *,
        cwd: Path | None = None,
        make_executor: Callable[..., Executor] = Executor,
    ) -> None:
        """Prepare; ``heard`` is called with each event of a run."""
        self.session = session
        self._heard = heard
        self._cwd = cwd
        self._make_executor = make_executor
        self._executors: dict[str, Executor] = {}
        self._lock = threading.Lock()
        self.was_cancelled = False

    def cancel(self) -> None:
        """End the runs in flight, and start no other."""
        with self._lock:
            self.was_cancelled = True
            executors = list(self._executors.values())
        for executor in executors:
            executor.cancel()

    def end(self, name: str, patience_seconds: float = 0.0) -> None:
        """End one worker, if it exists; 0 seconds of patience end it at once."""
        executor = self._executors.get(name)
        if executor is not None:
            if patience_seconds > 0:
                executor.finish(patience_seconds)
            executor.close()
            with self._lock:
                del self._executors[name]

    def close(self) -> None:
        """End all workers."""
        for name in list(self._executors):
            self.end(name)

    def run(
        self,
        workload: Workload,
        name: str,
        deadline_seconds: float,
        outputs: Path | None = None,
        *,
        program: tuple[str, ...] | None = None,
        pattern: Pattern | None = None,
    ) -> FinishedRun:
        """Carry out one run on the worker of this name, from its order to its report.

        After the deadline the worker is killed. A run that writes ``outputs`` does not wait for
        its last sample. ``program`` replaces the command of a worker that has to be started, and
        ``pattern`` has the off- and on-steps of a lock-in measurement.
        """
        job = Job(new_run_id(), workload, None)
        in_flight = InFlightRun(self.session, job, name)
        order = make_order(job, self.session)
        if pattern is not None:
            in_flight.trace.pattern = pattern
            steps, stage, repeats = pattern.steps_seconds, pattern.stage, pattern.repeats
            changes = {"steps_seconds": steps, "stage": stage, "repeats": repeats}
            order = order.model_copy(update=changes)
        if outputs is not None:
            order = order.model_copy(update={"outputs_file": str(outputs)})

        def take(event: RunEvent) -> None:
            in_flight.take(event)
            self._heard(event)

        executor = self._executor(name, program)
        verdict = _INTERRUPTED if executor is None else executor.run(order, deadline_seconds, take)
        in_flight.end()
        if verdict.outcome == "cancelled":
            verdict = _INTERRUPTED
        elif outputs is None:
            self.session.await_telemetry(in_flight.trace)
        status: Status = "unavailable" if verdict.unavailable else "failed"
        if verdict.outcome == "ok" or verdict.outcome == "cancelled":
            status = verdict.outcome
        return FinishedRun(in_flight.pair(verdict), in_flight.trace, status)

    def run_together(
        self, runs: Sequence[tuple[Workload, str]], deadline_seconds: float
    ) -> list[FinishedRun]:
        """Carry out runs at once, each on a worker and in a thread of its own."""
        start = threading.Barrier(len(runs))

        def run(one: tuple[Workload, str]) -> FinishedRun:
            start.wait()
            return self.run(*one, deadline_seconds)

        with ThreadPoolExecutor(len(runs), "worker") as threads:
            return list(threads.map(run, runs))

    def _executor(self, name: str, program: tuple[str, ...] | None) -> Executor | None:
        with self._lock:
            if self.was_cancelled:
                return None
            if name not in self._executors:
                command = {} if program is None else {"argv": program}
                self._executors[name] = self._make_executor(
                    name, cwd=self._cwd, clock=self.session.clock, **command
                )
            return self._executors[name]
