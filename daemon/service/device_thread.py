"""The queues of waiting runs, and the thread of each device that takes runs from them."""

import logging
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from ..measure.report import Outcome, SkipReason
from ..session.executor import Executor
from ..session.session import InFlightRun, Job, Session, begin_trace, make_order
from ..settings.config import Workload
from .scheduler import Refusal

_LOG = logging.getLogger(__name__)


@dataclass
class RunQueues:
    """Runs of all devices, waiting and in flight; every use holds the lock of ``changed``.

    Waiting runs of one device begin in order. An exclusive run that is the first of its device
    holds up all that came later, and begins when no run is in flight. So each run waits for earlier
    ones only, and none waits in a circle.
    """

    changed: threading.Condition = field(default_factory=threading.Condition)
    waiting: list[Job] = field(default_factory=list)
    in_flight: list[Job] = field(default_factory=list)

    def next_of(self, device: str) -> Job | None:
        """Return the waiting run that may begin now on a device without a run."""
        if any(job.workload.exclusive for job in self.in_flight):
            return None
        devices_seen = set()
        for job in self.waiting:
            if job.workload.device in devices_seen:
                continue
            devices_seen.add(job.workload.device)
            is_of_device = job.workload.device == device
            if job.workload.exclusive and (self.in_flight or not is_of_device):
                return None
            if is_of_device:
                return job
        return None

    def why_busy(self, workload: Workload) -> str | None:
        """Return why a run could not begin at once, or ``None``."""
        others = [job.workload for job in (*self.in_flight, *self.waiting)]
        if any(other.device == workload.device for other in others):
            return "its device is busy"
        if workload.exclusive and others:
            return "it is exclusive, and other runs are in flight"
        if any(other.exclusive for other in others):
            return "an exclusive run is in flight or waits"
        return None


class ExecutorThread(threading.Thread):
    """The thread of one device: one run at a time, and each workload waits at most once."""

    def __init__(
        self,
        executor: Executor,
        session: Session,
        queues: RunQueues | None = None,
        refusal: Callable[[Workload], Refusal | None] = lambda _: None,
        ran: Callable[[str, int, int], object] = lambda *_: None,
    ) -> None:
        """Prepare; the threads of all devices share ``queues``.

        Args:
            refusal: Returns why a guard keeps a workload from running now. It is called when a job
                is submitted and again when it begins, since it may have waited for long.
            ran: Called with the workload and the begin and end of each run.
        """
        super().__init__(name=f"executor-{executor.device}", daemon=True)
        self.executor = executor
        self._session = session
        self._queues = queues or RunQueues()
        self._changed = self._queues.changed
        self._refusal = refusal
        self._ran = ran
        self._stopping = False
        self._unused = False
        self._configured: Collection[Workload] | None = None

    def submit(self, job: Job) -> str | None:
        """Accept a job, or record it as skipped and return the reason.

        A planned exclusive run with ``missed: skip`` takes the place of an earlier one that still
        waits. The earlier one is missed and, unlike those that ``Scheduler.due`` counts, recorded:
        it had a run id.
        """
        waiting, skipped = self._queues.waiting, job
        with self._changed:
            busy = self._queues.why_busy(job.workload)
            own = self._waiting_of(job.workload.name)
            guard = self._refusal(job.workload)
            reason: SkipReason
            if self._stopping:
                reason, sentence = "stopping", "the daemon is stopping"
            elif guard is not None:
                reason, sentence = guard
            elif own is not None and _replaces_waiting(job, own):
                reason, sentence = "missed", "its next run was due while it waited"
                waiting[waiting.index(own)] = job
                skipped = own
            elif own is not None:
                reason, sentence = "overlap", "an earlier run of its own waits"
            elif busy and job.workload.overlap == "skip":
                reason, sentence = "overlap", busy
            else:
                waiting.append(job)
                self._changed.notify_all()
                return None
        self._skip(skipped, reason, sentence)
        if skipped is not job:
            return None
        return sentence

    def _waiting_of(self, workload: str) -> Job | None:
        """Return the job of a workload that waits, if there is one."""
        for job in self._queues.waiting:
            if job.workload.name == workload:
                return job
        return None

    def keep(self, workloads: Collection[Workload]) -> None:
        """Drop waiting jobs of other workloads, and end a worker without work."""
        with self._changed:
            self._configured = workloads
            dropped = self._drop(lambda job: job.workload not in workloads)
            devices = {workload.device for workload in workloads}
            self._unused = self.executor.device not in devices
            self._changed.notify_all()
        for job in dropped:
            self._record_without_run(job, "cancelled", "the configuration was changed")

    def _drop(self, is_dropped: Callable[[Job], bool]) -> list[Job]:
        """Take waiting jobs of this device out of the queues, and return them."""
        dropped, staying = [], []
        for job in self._queues.waiting:
            if job.workload.device == self.executor.device and is_dropped(job):
                dropped.append(job)
            else:
                staying.append(job)
        self._queues.waiting[:] = staying
        return dropped

    def cancel(self) -> None:
        """Cancel the run in flight and drop the waiting ones."""
        with self._changed:
            self._stopping = True
            dropped = self._drop(lambda _: True)
            self._changed.notify_all()
        self.executor.cancel()
        for job in dropped:
            self._record_without_run(job, "cancelled", "the daemon is stopping")

    def run(self) -> None:
        """Take jobs until ``cancel``."""
        queues, device = self._queues, self.executor.device
        while True:
            with self._changed:
                self._changed.wait_for(
                    lambda: self._stopping or self._unused or queues.next_of(device)
                )
                if self._stopping:
                    break
                self._unused = False
                job = queues.next_of(device)
                if job is not None:
                    queues.waiting.remove(job)
                    queues.in_flight.append(job)
            if job is None:
                self.executor.close()
            else:
                self._run_series(job)
                with self._changed:
                    queues.in_flight.remove(job)
                    self._changed.notify_all()
        self.executor.close()

    def _run_series(self, job: Job) -> None:
        """Run a job as often as each start of its workload asks for.

        It ends early if the daemon stops, or if the workload was taken out of the configuration.
        """
        self._run_safely(job)
        for _ in range(1, job.workload.runs_per_start):
            with self._changed:
                is_configured = self._configured is None or job.workload in self._configured
                if self._stopping or not is_configured:
                    return
            self._run_safely(Job(job.workload))

    def _run_safely(self, job: Job) -> None:
        """Run a job; an error of our own code ends this run only."""
        name = job.workload.name
        run: InFlightRun | None = None
        try:
            refusal = self._refusal(job.workload)
            if refusal is not None:
                self._skip(job, *refusal)
                return
            run = InFlightRun(self._session, job, tell=self.executor.tell)
            self._run(job, run)
        except Exception:
            _LOG.exception("%s: run %s failed in the daemon", name, job.run_id)
            try:
                self.executor.close()  # its worker may still be at work
                self._record_own_failure(job, run)
            except Exception:
                _LOG.exception("%s: run %s is lost", name, job.run_id)

    def _run(self, job: Job, run: InFlightRun) -> None:
        """Carry out a job, and store its report."""
        # The way of a run, in this thread: session.begin stores a provisional record; executor.run
        # sends the order to the worker and calls run.take with each event, until the end or the
        # timeout; run.end notes the time; session.complete pairs the trace with the telemetry of
        # its window, and stores, counts and logs the report.
        session, workload = self._session, job.workload
        try:
            session.begin(run.trace, "the daemon ended during the run")
            session.live.run_began(
                workload.name, job.run_id, run.trace.lateness_seconds, session.clock.wall_ns() / 1e9
            )
            _LOG.info("%s: run %s begins on %s", workload.name, job.run_id, workload.device)
            finished = self.executor.run(
                make_order(job, session), workload.timeout_seconds, run.take
            )
        finally:
            run.end()
            ended_ns = run.trace.ended_ns or session.clock.monotonic_ns()
            self._ran(workload.name, run.trace.started_ns, ended_ns)
        was_cancelled = finished.outcome == "cancelled"
        session.complete(run.trace, lambda: was_cancelled)
        if finished.skip_reason is not None:
            session.live.skipped(finished.skip_reason)

    def _record_own_failure(self, job: Job, run: InFlightRun | None) -> None:
        """Record a run on which the daemon failed, with what its trace has up to then."""
        reason = "the daemon itself failed on it; see its log"
        if run is None:
            self._record_without_run(job, "failed", reason)
            return
        trace = run.trace
        trace.finish("failed", reason)
        try:
            self._session.complete(trace)
        except Exception:
            # Its events may be what the report fails on.
            _LOG.exception("%s: run %s has no report", job.workload.name, job.run_id)
            self._session.complete(trace.without_events())

    def _skip(self, job: Job, reason: SkipReason, sentence: str) -> None:
        """Record and count a run that is skipped."""
        self._record_without_run(job, "skipped", sentence, reason)
        self._session.live.skipped(reason)

    def _record_without_run(
        self, job: Job, outcome: Outcome, reason: str, skip_reason: SkipReason | None = None
    ) -> None:
        """Record a run that did not take place."""
        trace = begin_trace(job, self._session)
        trace.finish(outcome, reason, skip_reason)
        self._session.complete(trace)


def _replaces_waiting(new: Job, waiting: Job) -> bool:
    """Return whether a planned run takes the place of an earlier one that waits to be alone."""
    are_planned = new.due_ns is not None and waiting.due_ns is not None
    return are_planned and new.workload.exclusive and new.workload.missed == "skip"
