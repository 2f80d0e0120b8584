"""Due workloads: periods on the monotonic clock, cron on the wall clock.

The scheduler has neither a thread nor a clock. The caller passes the time.
"""

import logging
import random
import threading
from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from cronsim import CronSim

from ..session.executor import Executor, Verdict
from ..session.session import InFlightRun, Job, Session, begin_trace, make_order
from ..settings.config import Workload

# If the wall clock moved by more than this against the monotonic one, it was set, not slewed.
_STEP_NS = 1_000_000_000
# Missed cron times are counted one by one; a week of minutes is enough.
_MISSED_AT_MOST = 10_000


def _local(wall_ns: int) -> datetime:
    return datetime.fromtimestamp(wall_ns / 1e9)


@dataclass(frozen=True)
class Now:
    """The time on both clocks: CLOCK_MONOTONIC, and nanoseconds since 1970."""

    monotonic_ns: int
    wall_ns: int


@dataclass(frozen=True)
class Due:
    """A workload to start; ``due_ns`` is its CLOCK_MONOTONIC time including jitter."""

    workload: Workload
    due_ns: int


@dataclass
class _Entry:
    workload: Workload
    random: random.Random
    grid_ns: int = 0
    due_ns: int = 0
    wall_ns: int = 0

    @property
    def times(self) -> tuple[object, ...]:
        workload = self.workload
        return workload.every, workload.offset, workload.cron, workload.jitter

    def start(self, now: Now) -> None:
        self.grid_ns = now.monotonic_ns + int(self.workload.offset * 1e9)
        self.due_ns = self.grid_ns + self.jitter_ns()
        if self.workload.cron is not None:
            self.next_cron(now)

    def jitter_ns(self) -> int:
        return int(self.random.random() * self.workload.jitter * 1e9)

    def next_cron(self, now: Now) -> None:
        # Naive local times: timestamp() then handles summer time, a fixed offset would not.
        moment = next(CronSim(str(self.workload.cron), _local(now.wall_ns)))
        self.wall_ns = int(moment.timestamp() * 1e9)
        self.due_ns = now.monotonic_ns + self.wall_ns - now.wall_ns + self.jitter_ns()

    def next_period(self, now: Now) -> int:
        """Advance to the first period after now, and return the number of skipped periods."""
        period_ns = int(float(self.workload.every or 0) * 1e9)
        periods = max(1, (now.monotonic_ns - self.grid_ns) // period_ns + 1)
        self.grid_ns += periods * period_ns
        self.due_ns = self.grid_ns + self.jitter_ns()
        return periods - 1


class Scheduler:
    """The plan of all workloads with a period or cron; others run on demand."""

    def __init__(self, workloads: Iterable[Workload], now: Now, seed: int | None = None) -> None:
        """Plan every workload; periods count from now. ``seed`` is that of the jitter."""
        self.missed: dict[str, int] = {}
        self._seed = seed
        self._offset_ns = now.wall_ns - now.monotonic_ns
        self._entries: list[_Entry] = []
        self.replan(workloads, now)

    def replan(self, workloads: Iterable[Workload], now: Now) -> None:
        """Plan other workloads; a workload with unchanged times keeps its next run."""
        known = {(entry.workload.name, entry.times): entry for entry in self._entries}
        self._entries = []
        for workload in workloads:
            if workload.every is None and workload.cron is None:
                continue
            seed = None if self._seed is None else f"{self._seed}:{workload.name}"
            entry = _Entry(workload, random.Random(seed))
            earlier = known.get((workload.name, entry.times))
            if earlier is None:
                entry.start(now)
            else:
                entry = replace(earlier, workload=workload)
            self._entries.append(entry)

    def planned(self) -> list[Due]:
        """Return the next run of each workload, soonest first."""
        plan = (Due(entry.workload, entry.due_ns) for entry in self._entries)
        return sorted(plan, key=lambda due: due.due_ns)

    def next_ns(self) -> int | None:
        """Return when the next run is due; ``None`` if no workload has a schedule."""
        return min((entry.due_ns for entry in self._entries), default=None)

    def due(self, now: Now) -> list[Due]:
        """Return the workloads to start now, and advance each to its next time.

        A time that passed while the machine slept or the daemon was delayed is missed: it is
        counted in ``missed``, and run once more only with ``missed: run_once``. After a step of the
        wall clock, cron workloads get their next time after the step.
        """
        offset_ns = now.wall_ns - now.monotonic_ns
        if abs(offset_ns - self._offset_ns) > _STEP_NS:
            self._offset_ns = offset_ns
            for entry in self._entries:
                if entry.workload.cron is not None:
                    entry.next_cron(now)
        found = []
        for entry in self._entries:
            if entry.due_ns > now.monotonic_ns:
                continue
            due = Due(entry.workload, entry.due_ns)
            if entry.workload.cron is not None:
                missed = self._missed_cron(entry, now)
            else:
                missed = entry.next_period(now)
            if missed:
                name = entry.workload.name
                self.missed[name] = self.missed.get(name, 0) + missed
            if not missed or entry.workload.missed == "run_once":
                found.append(due)
        return sorted(found, key=lambda due: due.due_ns)

    def _missed_cron(self, entry: _Entry, now: Now) -> int:
        passed = 0
        for moment in CronSim(str(entry.workload.cron), _local(entry.wall_ns)):
            if moment.timestamp() * 1e9 > now.wall_ns or passed == _MISSED_AT_MOST:
                break
            passed += 1
        entry.next_cron(now)
        return passed


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
        self._session.live.skipped(reason)
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
        session.live.run_began(
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
            session.live.skipped("unavailable")

    def _refuse(self, job: Job, verdict: Verdict) -> None:
        """Record a run that did not take place."""
        self._session.complete(begin_trace(job, self._session), verdict)
