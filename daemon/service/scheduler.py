"""Due workloads: periods on the monotonic clock, cron on the wall clock.

The scheduler has neither a thread nor a clock. The caller passes the time.
"""

import random
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from cronsim import CronSim

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
