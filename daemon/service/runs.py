"""The thread of one device: it announces, runs, pairs and commits jobs."""

import logging
import threading
from collections import deque
from collections.abc import Collection

from ..session.executor import Executor, Verdict
from ..session.in_flight import InFlightRun, Job, begin_trace, make_order
from ..session.session import Session
from ..settings.config import Workload

_LOG = logging.getLogger(__name__)


class ExecutorThread:
    """The thread of one device: one run at a time, and each workload waits at most once."""

    def __init__(self, executor: Executor, session: Session) -> None:
        self.executor = executor
        self._session = session
        self._waiting: deque[Job] = deque()
        self._current: Job | None = None
        self._changed = threading.Condition()
        self._stopping = False
        self._unused = False
        self._thread = threading.Thread(
            target=self._loop, name=f"executor-{executor.device}", daemon=True
        )

    def start(self) -> None:
        """Begin to take jobs."""
        self._thread.start()

    def submit(self, job: Job) -> str | None:
        """Accept a job, or record it as skipped and return the reason."""
        with self._changed:
            busy = self._current is not None or bool(self._waiting)
            waits = any(job.workload.name == other.workload.name for other in self._waiting)
            if self._stopping:
                reason, sentence = "stopping", "the daemon is stopping"
            elif waits:
                reason, sentence = "overlap", "an earlier run of its own waits"
            elif busy and job.workload.overlap == "skip":
                reason, sentence = "overlap", "its lane is busy"
            else:
                self._waiting.append(job)
                self._changed.notify_all()
                return None
        self._refuse(job, Verdict("skipped", f"{reason}: {sentence}"))
        self._session.ledger.skipped(reason)
        return sentence

    def keep(self, workloads: Collection[Workload]) -> None:
        """Drop waiting jobs of other workloads, and end a worker without work."""
        with self._changed:
            dropped = [job for job in self._waiting if job.workload not in workloads]
            self._waiting = deque(job for job in self._waiting if job.workload in workloads)
            self._unused = not any(one.device == self.executor.device for one in workloads)
            self._changed.notify_all()
        for job in dropped:
            self._refuse(job, Verdict("cancelled", "the configuration was changed"))

    def cancel(self) -> None:
        """Cancel the run in flight and drop the waiting ones."""
        with self._changed:
            self._stopping = True
            dropped = list(self._waiting)
            self._waiting.clear()
            self._changed.notify_all()
        self.executor.cancel()
        for job in dropped:
            self._refuse(job, Verdict("cancelled", "the daemon is stopping"))

    def join(self, timeout_seconds: float) -> None:
        """Wait for the thread's end."""
        self._thread.join(timeout_seconds)

    def _loop(self) -> None:
        while True:
            with self._changed:
                self._current = None
                self._changed.wait_for(lambda: self._waiting or self._stopping or self._unused)
                if self._stopping:
                    break
                self._unused = False
                job = self._current = self._waiting.popleft() if self._waiting else None
            if job is None:
                self.executor.close()
            else:
                self._run_safely(job)
        self.executor.close()

    def _run_safely(self, job: Job) -> None:
        try:
            self._run(job)
        except Exception:
            _LOG.exception("%s: run %s failed in the daemon", job.workload.name, job.run_id)
            try:
                self._give_up(job)
            except Exception:
                _LOG.exception("%s: run %s is lost", job.workload.name, job.run_id)

    def _give_up(self, job: Job) -> None:
        self.executor.close()  # its worker may still be at work
        self._session.load.set(job.workload.device, 0.0, self._session.clock.monotonic_ns())
        self._session.times.drop_window(job.run_id)
        self._refuse(job, Verdict("failed", "the daemon itself failed on it; see its log"))

    def _run(self, job: Job) -> None:
        session, workload = self._session, job.workload
        run = InFlightRun(session, job)
        session.store.begin(run.pair(Verdict("failed", "the daemon ended during the run")))
        session.ledger.run_began(
            workload.name, job.run_id, run.trace.lateness_seconds, session.clock.wall_ns() / 1e9
        )
        _LOG.info("%s: run %s begins on %s", workload.name, job.run_id, workload.device)
        try:
            verdict = self.executor.run(
                make_order(job, session), workload.timeout_seconds, run.take
            )
        finally:
            run.end()
        session.complete(run.trace, verdict, lambda: verdict.outcome == "cancelled")
        if verdict.unavailable:
            session.ledger.skipped("unavailable")

    def _refuse(self, job: Job, verdict: Verdict) -> None:
        """Record a run that did not take place."""
        self._session.complete(begin_trace(job, self._session), verdict)
