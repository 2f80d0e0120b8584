"""The plan of the workloads, what keeps a run from it, and the thread of each device."""

import logging
import random
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import islice
from operator import attrgetter, itemgetter
from typing import NamedTuple, TypeAlias

from cronsim import CronSim

from ...parsers import signals
from ..export.snapshot import Snapshot
from ..measure.report import Outcome, SkipReason
from ..session.executor import Executor
from ..session.session import InFlightRun, Job, Session, begin_trace, make_order
from ..settings.config import Guards, Workload

# If the wall clock moved by more than this against the monotonic one, it was set, not slewed.
_STEP_NS = 1_000_000_000
# Missed cron times are counted one by one; a week of minutes is enough.
_MISSED_AT_MOST = 10_000
# Over so long a time the share of a guard of duty is judged.
_DUTY_SECONDS = 3600.0
_RUNS_AT_MOST = 4096

Refusal: TypeAlias = tuple[SkipReason, str]
"""Why a run is skipped: the kind of reason, and a sentence."""

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Now:
    """The time on both clocks: CLOCK_MONOTONIC, and nanoseconds since 1970."""

    monotonic_ns: int
    wall_ns: int


@dataclass
class _Entry:
    workload: Workload
    random: random.Random
    grid_ns: int = 0
    due_ns: int = 0
    wall_ns: int = 0

    @property
    def key(self) -> tuple[object, ...]:
        workload = self.workload
        return workload.name, workload.every, workload.offset, workload.cron, workload.jitter

    def start(self, now: Now) -> None:
        self.grid_ns = now.monotonic_ns + int(self.workload.offset * 1e9)
        self.due_ns = self.grid_ns + self._jitter_ns()
        if self.workload.cron is not None:
            self.next_cron(now)

    def _jitter_ns(self) -> int:
        return int(self.random.random() * self.workload.jitter * 1e9)

    def _moments_ns(self, wall_ns: int) -> Iterator[int]:
        # Naive local times: timestamp() then handles summer time, a fixed offset would not.
        local = datetime.fromtimestamp(wall_ns / 1e9)
        for moment in CronSim(str(self.workload.cron), local):
            yield int(moment.timestamp() * 1e9)

    def next_cron(self, now: Now) -> None:
        self.wall_ns = next(self._moments_ns(now.wall_ns))
        self.due_ns = now.monotonic_ns + self.wall_ns - now.wall_ns + self._jitter_ns()

    def advance(self, now: Now) -> int:
        """Plan the first time after now, and return how many due times passed: at least one."""
        if self.workload.cron is not None:
            return self._advance_cron(now)
        return self._advance_periods(now)

    def _advance_cron(self, now: Now) -> int:
        passed = 1
        for moment_ns in islice(self._moments_ns(self.wall_ns), _MISSED_AT_MOST):
            if moment_ns > now.wall_ns:
                break
            passed += 1
        self.next_cron(now)
        return passed

    def _advance_periods(self, now: Now) -> int:
        period_ns = int(float(self.workload.every or 0) * 1e9)
        passed = max(1, (now.monotonic_ns - self.grid_ns) // period_ns + 1)
        self.grid_ns += passed * period_ns
        self.due_ns = self.grid_ns + self._jitter_ns()
        return passed


class Scheduler:
    """The plan of all workloads with a period (monotonic clock) or cron (wall clock).

    It has neither a thread nor a clock. The caller passes the time.

    >>> workload = Workload(name="net", command=("infer",), device="cpu", every=60, offset=5)
    >>> scheduler = Scheduler([workload], Now(monotonic_ns=0, wall_ns=0))
    >>> scheduler.next_ns()
    5000000000
    >>> [job.workload.name for job in scheduler.due(Now(5_000_000_000, 5_000_000_000))]
    ['net']
    >>> scheduler.next_ns()
    65000000000
    """

    def __init__(self, workloads: Iterable[Workload], now: Now, seed: int | None = None) -> None:
        """Plan every workload; periods count from now. ``seed`` is that of the jitter."""
        self.missed: dict[str, int] = {}
        self._seed = seed
        self._offset_ns = now.wall_ns - now.monotonic_ns
        self._entries: list[_Entry] = []
        self.replan(workloads, now)

    def replan(self, workloads: Iterable[Workload], now: Now) -> None:
        """Plan other workloads; a workload with unchanged times keeps its next run."""
        known = {entry.key: entry for entry in self._entries}
        self._entries = []
        for workload in workloads:
            if workload.every is None and workload.cron is None:
                continue
            seed = None if self._seed is None else f"{self._seed}:{workload.name}"
            entry = _Entry(workload, random.Random(seed))
            if entry.key in known:
                entry = replace(known[entry.key], workload=workload)
            else:
                entry.start(now)
            self._entries.append(entry)

    def planned(self) -> list[tuple[Workload, int]]:
        """Return each workload with the time of its next run, soonest first."""
        plan = [(entry.workload, entry.due_ns) for entry in self._entries]
        return sorted(plan, key=itemgetter(1))

    def next_ns(self) -> int | None:
        """Return when the next run is due; ``None`` if no workload has a schedule."""
        return min((entry.due_ns for entry in self._entries), default=None)

    def due(self, now: Now) -> list[Job]:
        """Return the runs to start now in the order of their times, and plan the next ones.

        If several due times of a workload passed since the last look, because the daemon was
        delayed, none of them is run; with ``missed: run_once`` one run, late since the first of
        them, stands for all. Every due time without a run is counted in ``missed``, and has no
        record. After a step of the wall clock, cron workloads get their next time after the step.
        """
        self._look_at_wall_clock(now)
        jobs = []
        for entry in sorted(self._entries, key=attrgetter("due_ns")):
            if entry.due_ns > now.monotonic_ns:
                break
            job = Job(entry.workload, entry.due_ns)
            missed = entry.advance(now)
            if missed == 1 or entry.workload.missed == "run_once":
                jobs.append(job)
                missed -= 1
            if missed:
                name = entry.workload.name
                self.missed[name] = self.missed.get(name, 0) + missed
        return jobs

    def _look_at_wall_clock(self, now: Now) -> None:
        """Plan the cron workloads again if the wall clock was set."""
        offset_ns = now.wall_ns - now.monotonic_ns
        if abs(offset_ns - self._offset_ns) <= _STEP_NS:
            return
        self._offset_ns = offset_ns
        for entry in self._entries:
            if entry.workload.cron is not None:
                entry.next_cron(now)


class _Run(NamedTuple):
    workload: str
    begin_ns: int
    end_ns: int


class Guard:
    """Judges whether a run may be queued, and may begin.

    It goes by the newest telemetry and the runs of the last hour. A zone or battery that the
    telemetry does not have at present guards nothing.
    """

    def __init__(self, snapshot: Callable[[], Snapshot], now_ns: Callable[[], int]) -> None:
        """Prepare; ``now_ns`` is CLOCK_MONOTONIC."""
        self._snapshot = snapshot
        self._now_ns = now_ns
        self._began_ns = now_ns()
        self._runs: deque[_Run] = deque(maxlen=_RUNS_AT_MOST)
        self._lock = threading.Lock()

    def ran(self, workload: str, begin_ns: int, end_ns: int) -> None:
        """Count the time of a run that has ended."""
        with self._lock:
            self._runs.append(_Run(workload, begin_ns, end_ns))

    def refusal(self, workload: Workload, everywhere: Guards) -> Refusal | None:
        """Return why a run of a workload may not be queued or begin now; ``None`` if it may.

        Args:
            everywhere: Guards of all workloads together.
        """
        return next(self._refusals(workload, everywhere), None)

    def _refusals(self, workload: Workload, everywhere: Guards) -> Iterator[Refusal]:
        snapshot, now_ns = self._snapshot(), self._now_ns()
        is_fresh = any(source.is_fresh(now_ns) for source in snapshot.sources)
        values = snapshot.values if is_fresh else {}
        own_share = self._share(workload.name, now_ns)
        yield from _refusals_of(workload.guards, values, own_share, "its guard", "its runs")
        share = self._share(None, now_ns)
        yield from _refusals_of(everywhere, values, share, "the guard of all workloads", "all runs")

    def _share(self, workload: str | None, now_ns: int) -> float:
        """Return the share of the last hour, or of the time since the start, that runs took."""
        since_ns = max(self._began_ns, now_ns - round(_DUTY_SECONDS * 1e9))
        took_ns = 0
        with self._lock:
            for run in self._runs:
                if run.end_ns > since_ns and workload in (None, run.workload):
                    took_ns += run.end_ns - max(run.begin_ns, since_ns)
        return took_ns / max(now_ns - since_ns, 1)


def _refusals_of(
    guards: Guards, values: Mapping[str, float], share: float, guard: str, runs: str
) -> Iterator[Refusal]:
    """Yield each reason of some guards why a run may not begin.

    Args:
        values: The newest telemetry; empty if it is old.
        share: Share of the last hour that the runs of the guard took.
        guard: The guard as a sentence names it, and ``runs`` its runs.
    """
    for zone, limit in guards.skip_above_celsius.items():
        celsius = values.get(signals.TEMPERATURE.column(zone))
        if celsius is not None and celsius > limit:
            words = f"{zone} has {celsius:.1f} °C, and {guard} is {limit:g} °C"
            yield "guard_temperature", words
    least_charge = guards.skip_below_battery
    charges = signals.BATTERY_CHARGE.by_label(values).values()
    if least_charge is not None and charges and min(charges) < least_charge:
        words = f"the battery has {min(charges):.0%}, and {guard} is {least_charge:.0%}"
        yield "guard_battery", words
    if guards.duty is not None and share > guards.duty:
        words = f"{runs} took {share:.1%} of the last hour, and {guard} is {guards.duty:.1%}"
        yield "guard_duty", words


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
            return "its lane is busy"
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
            elif own is not None and _is_missed(own, job):
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
            dropped = self._drop(lambda job: job.workload not in workloads)
            devices = {workload.device for workload in workloads}
            self._unused = self.executor.device not in devices
            self._changed.notify_all()
        for job in dropped:
            self._refuse(job, "cancelled", "the configuration was changed")

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
            self._refuse(job, "cancelled", "the daemon is stopping")

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
                self._run_safely(job)
                with self._changed:
                    queues.in_flight.remove(job)
                    self._changed.notify_all()
        self.executor.close()

    def _run_safely(self, job: Job) -> None:
        """Run a job; an error of our own code ends this run only."""
        name = job.workload.name
        run: InFlightRun | None = None
        try:
            refusal = self._refusal(job.workload)
            if refusal is not None:
                self._skip(job, *refusal)
                return
            run = InFlightRun(self._session, job)
            self._run(job, run)
        except Exception:
            _LOG.exception("%s: run %s failed in the daemon", name, job.run_id)
            try:
                self.executor.close()  # its worker may still be at work
                self._record_own_failure(job, run)
            except Exception:
                _LOG.exception("%s: run %s is lost", name, job.run_id)

    def _run(self, job: Job, run: InFlightRun) -> None:
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
        session.complete(run.trace, lambda: finished.outcome == "cancelled")
        if finished.skip_reason is not None:
            session.live.skipped(finished.skip_reason)

    def _record_own_failure(self, job: Job, run: InFlightRun | None) -> None:
        """Record a run on which the daemon failed, with what its trace has up to then."""
        reason = "the daemon itself failed on it; see its log"
        if run is None:
            self._refuse(job, "failed", reason)
            return
        trace = run.trace
        trace.finish("failed", reason)
        try:
            self._session.complete(trace)
        except Exception:
            # Its events may be what no report can be made of: the times of the run need none.
            _LOG.exception("%s: run %s has no report", job.workload.name, job.run_id)
            bare = replace(
                begin_trace(job, self._session),
                started_ns=trace.started_ns,
                started_wall_ns=trace.started_wall_ns,
                lateness_seconds=trace.lateness_seconds,
                ended_ns=trace.ended_ns,
            )
            bare.finish("failed", reason)
            self._session.complete(bare)

    def _skip(self, job: Job, reason: SkipReason, sentence: str) -> None:
        """Record and count a run that is skipped."""
        self._refuse(job, "skipped", sentence, reason)
        self._session.live.skipped(reason)

    def _refuse(
        self, job: Job, outcome: Outcome, reason: str, skip_reason: SkipReason | None = None
    ) -> None:
        """Record a run that did not take place."""
        trace = begin_trace(job, self._session)
        trace.finish(outcome, reason, skip_reason)
        self._session.complete(trace)


def _is_missed(waiting: Job, job: Job) -> bool:
    """Return whether a planned run takes the place of an earlier one that waits to be alone."""
    are_planned = job.due_ns is not None and waiting.due_ns is not None
    return are_planned and job.workload.exclusive and job.workload.missed == "skip"
