"""The workers of a benchmark, and one run on one of them, as the daemon carries it out."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from ...collectors.base import SYSTEM_CLOCK, Clock
from ...collectors.board.boards import RailRule
from ...collectors.board.machine import cpu_busy_ratio
from ...parsers.errors import UserError
from ...parsers.inference.events import RunEvent
from ..measure.blocks import WindowSlice
from ..measure.run_report import RunReport, RunTrace, Span
from ..measure.timeline import Timeline
from ..measure.utilization import telemetry as describe
from ..results.records import Status
from ..session.executor import Executor, Verdict
from ..session.session import InFlightRun, Job, Session, make_order
from ..session.telemetry import environment_of
from ..settings.config import Telemetry, Workload, new_run_id

_FIRST_SAMPLE_SECONDS = 20.0
# A benchmark may take hours, and its figure shows all of it.
_SPAN_SECONDS = 48 * 3600.0


class Setup:
    """The telemetry of a benchmark, by the same parts as the daemon's.

    ``problem`` is the reason for missing telemetry. ``stopping`` ends every wait.
    """

    def __init__(
        self,
        telemetry: Telemetry | None,
        state_dir: Path,
        *,
        rule: RailRule | None = None,
        problem: str | None = None,
        is_simulated: bool = False,
        clock: Clock = SYSTEM_CLOCK,
        first_sample_seconds: float = _FIRST_SAMPLE_SECONDS,
    ) -> None:
        """Prepare; ``problem`` is the reason if ``telemetry`` is ``None``.

        Without ``rule`` the rule for the board's rails is found by their names. After
        ``first_sample_seconds`` without a sample the benchmark continues without telemetry.
        """
        self.problem = problem
        self.stopping = threading.Event()
        self._settings = telemetry
        self._rule = rule
        self._clock = clock
        self._first_sample_seconds = first_sample_seconds
        self.session = Session(
            clock=clock,
            environment=environment_of(
                telemetry, board=None if rule is None else rule.name, simulated=is_simulated
            ),
            timeline=Timeline(span_seconds=_SPAN_SECONDS),
            model_directory=state_dir / "models",
            engine_directory=state_dir / "engines",
        )

    def start(self) -> None:
        """Open the source and wait for its first sample; without one, set ``problem``."""
        if self._settings is None:
            return
        session, seconds = self.session, self._first_sample_seconds
        try:
            source = session.open(self._settings, self._rule)
        except UserError as error:
            self.problem = str(error)
            return
        session.start()
        if not session.await_first_sample(seconds, self.stopping.is_set):
            self.problem = session.why() or f"{source.name}: no sample in {seconds:g} s"
            session.stop()

    def stop(self) -> None:
        """End the source."""
        self.session.stop()

    def background(self, seconds: float) -> dict[str, float]:
        """Return the load of ``cpu``, by the kernel, and of ``gpu``, by telemetry, if known."""
        begin_ns = self._clock.monotonic_ns()
        loads = {"cpu": cpu_busy_ratio(seconds, self.stopping, clock=self._clock)}
        end_ns = self._clock.monotonic_ns()
        cut = self.cut(begin_ns, end_ns)
        if cut.times_ns and end_ns > begin_ns:
            seen = describe(cut, Span(begin_ns=begin_ns, end_ns=end_ns)).utilization.get("gpu")
            loads["gpu"] = None if seen is None else seen.mean_ratio
        return {name: ratio for name, ratio in loads.items() if ratio is not None}

    def cut(self, begin_ns: int, end_ns: int) -> WindowSlice:
        """Return the samples between two times."""
        return self.session.timeline.cut(begin_ns, end_ns)


_INTERRUPTED = Verdict("cancelled", "the benchmark was interrupted")


@dataclass(frozen=True)
class FinishedRun:
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
        make_lane: Callable[..., Executor] = Executor,
    ) -> None:
        """Prepare; no worker runs yet. ``heard`` is called with each event of a run."""
        self._session = session
        self._heard = heard
        self._cwd = cwd
        self._make_lane = make_lane
        self._lanes: dict[str, Executor] = {}
        self._lock = threading.Lock()
        self._cancelled = False

    @property
    def was_cancelled(self) -> bool:
        """Whether no further run will be carried out."""
        return self._cancelled

    def cancel(self) -> None:
        """End the runs in flight, and start no other."""
        with self._lock:
            self._cancelled = True
            lanes = list(self._lanes.values())
        for lane in lanes:
            lane.cancel()

    def end(self, name: str, patience_seconds: float = 0.0) -> None:
        """End one worker, if it exists; 0 seconds of patience end it at once."""
        with self._lock:
            lane = self._lanes.get(name)
        if lane is None:
            return
        if patience_seconds > 0:
            lane.finish(patience_seconds)
        lane.close()
        with self._lock:
            self._lanes.pop(name, None)

    def close(self) -> None:
        """End all workers."""
        for name in list(self._lanes):
            self.end(name)

    def run(
        self,
        workload: Workload,
        name: str,
        deadline_seconds: float,
        outputs: Path | None = None,
        *,
        program: tuple[str, ...] | None = None,
    ) -> FinishedRun:
        """Carry out one run on the worker of this name, from its order to its report.

        After the deadline the worker is killed. A run that writes ``outputs`` does not wait for
        its last sample. ``program`` replaces the command of a worker that has to be started.
        """
        session = self._session
        job = Job(new_run_id(), workload, None)
        in_flight = InFlightRun(session, job, name)
        order = make_order(job, session)
        if outputs is not None:
            order = order.model_copy(update={"outputs_file": str(outputs)})

        def take(event: RunEvent) -> None:
            in_flight.take(event)
            self._heard(event)

        lane = self._lane(name, program)
        verdict = _INTERRUPTED if lane is None else lane.run(order, deadline_seconds, take)
        in_flight.end()
        if verdict.outcome == "cancelled":
            verdict = _INTERRUPTED
        elif outputs is None:
            session.await_telemetry(in_flight.trace)
        return FinishedRun(in_flight.pair(verdict), in_flight.trace, _status(verdict))

    def run_together(
        self, runs: Sequence[tuple[Workload, str]], deadline_seconds: float
    ) -> list[FinishedRun]:
        """Carry out runs at once, each on a worker and in a thread of its own."""
        start = threading.Barrier(len(runs))

        def run(workload: Workload, name: str) -> FinishedRun:
            start.wait()
            return self.run(workload, name, deadline_seconds)

        with ThreadPoolExecutor(len(runs), "worker") as threads:
            under_way = [threads.submit(run, *one) for one in runs]
            return [one.result() for one in under_way]

    def _lane(self, name: str, program: tuple[str, ...] | None) -> Executor | None:
        with self._lock:
            if self._cancelled:
                return None
            if name not in self._lanes:
                usual = {"cwd": self._cwd, "clock": self._session.clock}
                given = usual if program is None else {**usual, "argv": program}
                self._lanes[name] = self._make_lane(name, **given)
            return self._lanes[name]


def _status(verdict: Verdict) -> Status:
    if verdict.outcome == "ok" or verdict.outcome == "cancelled":
        return verdict.outcome
    return "unavailable" if verdict.unavailable else "failed"
