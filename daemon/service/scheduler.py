"""The plan of the workloads, and the guards that keep a run from it."""

import random
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from operator import attrgetter, itemgetter
from typing import NamedTuple, TypeAlias

from cronsim import CronSim

from ...parsers import signals
from ..export.snapshot import Snapshot
from ..measure.report import SkipReason
from ..session.session import Job
from ..settings.config import Guards, Workload

# If the wall clock moved by more than this against the time since boot, it was set. Clocks are read
# one after another, so a little is nothing.
_STEP_NS = 1_000_000_000
# Missed cron times are counted one by one; a week of minutes is enough.
_MISSED_AT_MOST = 10_000
# Over so long a time the share of a guard of duty is judged.
_DUTY_SECONDS = 3600.0
_RUNS_AT_MOST = 4096

Refusal: TypeAlias = tuple[SkipReason, str]
"""Why a run is skipped: the kind of reason, and a sentence."""


@dataclass(frozen=True)
class Now:
    """The time on both clocks: CLOCK_MONOTONIC, and nanoseconds since 1970.

    Attributes:
        suspended_ns: How long the machine has been suspended since boot. The wall clock goes on
            meanwhile, and CLOCK_MONOTONIC does not.
    """

    monotonic_ns: int
    wall_ns: int
    suspended_ns: int = 0

    @property
    def wall_offset_ns(self) -> int:
        """How far the wall clock is ahead of the time since boot: it changes if it is set."""
        return self.wall_ns - self.monotonic_ns - self.suspended_ns


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
            moment_ns = int(moment.timestamp() * 1e9)
            # In the hour that the end of summer time repeats, a local time means the first one.
            if moment_ns > wall_ns:
                yield moment_ns

    def next_cron(self, now: Now, past_ns: int = 0) -> None:
        """Plan the first cron time after now, and after ``past_ns`` of the wall clock."""
        self.wall_ns = next(self._moments_ns(max(now.wall_ns, past_ns)))
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
        # The wall clock may still be a moment before the time that is due, and would give it again.
        self.next_cron(now, self.wall_ns)
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
        self._offset_ns = now.wall_offset_ns
        self._suspended_ns = now.suspended_ns
        self._has_slept = False  # since the last ``due``
        self._entries: list[_Entry] = []
        self.replan(workloads, now)

    def replan(self, workloads: Iterable[Workload], now: Now) -> None:
        """Plan other workloads; a workload with unchanged times keeps its next run."""
        self._follow_wall_clock(now)  # so that a suspend before now does not move a new entry
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
        delayed, or the machine slept over a cron time, none of them is run; with ``missed:
        run_once`` one run, late since the first of them, stands for all. Every due time without a
        run is counted in ``missed``, and has no record. After a step of the wall clock, cron
        workloads get their next time after the step. Periods do not go on while the machine sleeps.
        """
        self._follow_wall_clock(now)
        has_slept, self._has_slept = self._has_slept, False
        jobs = []
        for entry in sorted(self._entries, key=attrgetter("due_ns")):
            if entry.due_ns > now.monotonic_ns:
                break
            job = Job(entry.workload, entry.due_ns)
            is_late = now.monotonic_ns - entry.due_ns > _STEP_NS
            missed = entry.advance(now)
            was_slept_over = has_slept and is_late and entry.workload.cron is not None
            is_on_time = missed == 1 and not was_slept_over
            if is_on_time or entry.workload.missed == "run_once":
                jobs.append(job)
                missed -= 1
            if missed:
                name = entry.workload.name
                self.missed[name] = self.missed.get(name, 0) + missed
        return jobs

    def _follow_wall_clock(self, now: Now) -> None:
        """Bring cron times forward by a suspend; plan them again if the wall clock was set.

        A time that is due by then stays, so that it is run or counted: the clock is often set right
        after a suspend.
        """
        slept_ns = now.suspended_ns - self._suspended_ns
        has_slept = slept_ns > _STEP_NS  # less may be the time between two readings
        if has_slept:
            self._suspended_ns = now.suspended_ns
            self._has_slept = True
        is_set = abs(now.wall_offset_ns - self._offset_ns) > _STEP_NS
        if is_set:
            self._offset_ns = now.wall_offset_ns
        for entry in self._entries:
            if entry.workload.cron is None:
                continue
            if has_slept:
                entry.due_ns -= slept_ns
            if is_set and entry.due_ns > now.monotonic_ns:
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
