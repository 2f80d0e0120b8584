"""The thread of one lane: a job becomes a RunReport, announced, run, paired and committed."""

import logging
import threading
from collections import deque

from .flight import Flight, Job, Pairing, describe, make_order
from .lanes import Lane, Verdict

_LOG = logging.getLogger(__name__)


class LaneRunner:
    """The thread of one lane: one run at a time, each workload waiting at most once."""

    def __init__(self, lane: Lane, pairing: Pairing) -> None:
        """Prepare.

        Args:
            lane: The accelerator's worker.
            pairing: What the lanes share.
        """
        self.lane = lane
        self._pairing = pairing
        self._waiting: deque[Job] = deque()
        self._current: Job | None = None
        self._changed = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._loop, name=f"lane-{lane.device}", daemon=True)

    def start(self) -> None:
        """Begin to take jobs."""
        self._thread.start()

    def submit(self, job: Job) -> bool:
        """Take a job, or record it as skipped where its overlap policy says so.

        Returns:
            Whether it will run.
        """
        with self._changed:
            busy = self._current is not None or bool(self._waiting)
            waits = any(job.workload.name == other.workload.name for other in self._waiting)
            reason = None
            if self._stopping:
                reason = "stopping"
            elif waits or (busy and job.workload.overlap == "skip"):
                reason = "overlap"
            else:
                self._waiting.append(job)
                self._changed.notify_all()
        if reason is not None:
            ahead = "an earlier run of its own waits" if waits else "its lane is busy"
            self._skip(job, reason, ahead if reason == "overlap" else "the daemon is stopping")
        return reason is None

    def cancel(self) -> None:
        """End the run in flight as cancelled, and drop those that wait."""
        with self._changed:
            self._stopping = True
            self._waiting.clear()
            self._changed.notify_all()
        self.lane.cancel()

    def join(self, timeout_seconds: float) -> None:
        """Wait for the thread's end."""
        self._thread.join(timeout_seconds)

    def _loop(self) -> None:
        while True:
            with self._changed:
                self._current = None
                self._changed.wait_for(lambda: self._waiting or self._stopping)
                if self._stopping:
                    break
                job = self._current = self._waiting.popleft()
            try:
                self._run(job)
            except Exception:
                _LOG.exception("%s: run %s is lost", job.workload.name, job.run_id)
        self.lane.close()

    def _run(self, job: Job) -> None:
        shared, workload = self._pairing, job.workload
        flight = Flight(shared, job)
        shared.store.begin(flight.report(Verdict("failed", "the daemon ended during the run")))
        shared.ledger.run_began(
            workload.name, job.run_id, flight.trace.lateness_seconds, shared.clock.wall_ns() / 1e9
        )
        _LOG.info("%s: run %s begins on %s", workload.name, job.run_id, workload.device)
        verdict = self.lane.run(
            make_order(job, shared.model_directory), workload.timeout_seconds, flight.take
        )
        flight.land()
        if verdict.outcome != "cancelled":
            flight.await_telemetry()
        report = flight.report(verdict)
        shared.store.finish(report)
        shared.ledger.run_ended(report)
        if verdict.unavailable:
            shared.ledger.skipped("unavailable")
        level = logging.INFO if report.outcome == "ok" else logging.WARNING
        _LOG.log(level, "%s", describe(report))

    def _skip(self, job: Job, reason: str, sentence: str) -> None:
        flight = Flight(self._pairing, job)
        report = flight.report(Verdict("skipped", f"{reason}: {sentence}"))
        self._pairing.store.finish(report)
        self._pairing.ledger.run_ended(report)
        self._pairing.ledger.skipped(reason)
        _LOG.warning("%s", describe(report))
