"""Which workload is due: periods on the monotonic clock, cron on the wall clock.

It holds no thread and reads no clock; whoever drives it hands in the time, so a test does too.
"""

import random
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime

from cronsim import CronSim

from ..settings.config import Workload

# A wall clock that moved by more than this against the monotonic one was set, not slewed.
_STEP_NS = 1_000_000_000
# Missed cron times are walked one by one; a week of minutes would be enough to know.
_MISSED_AT_MOST = 10_000


def _local(wall_ns: int) -> datetime:
    return datetime.fromtimestamp(wall_ns / 1e9)


@dataclass(frozen=True)
class Now:
    """The time, on both clocks.

    Attributes:
        monotonic_ns: CLOCK_MONOTONIC.
        wall_ns: Nanoseconds since 1970.
    """

    monotonic_ns: int
    wall_ns: int


@dataclass(frozen=True)
class Due:
    """A workload whose time has come.

    Attributes:
        workload: Which.
        due_ns: When it should start, on CLOCK_MONOTONIC, jitter and all.
    """

    workload: Workload
    due_ns: int


@dataclass
class _Entry:
    workload: Workload
    random: random.Random
    grid_ns: int = 0
    due_ns: int = 0
    wall_ns: int = field(default=0)

    @property
    def times(self) -> tuple[object, ...]:
        """What the plan of this workload is made of."""
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
        # Naive local times: timestamp() then knows of summer time, a fixed offset would not.
        moment = next(CronSim(str(self.workload.cron), _local(now.wall_ns)))
        self.wall_ns = int(moment.timestamp() * 1e9)
        self.due_ns = now.monotonic_ns + self.wall_ns - now.wall_ns + self.jitter_ns()

    def next_period(self, now: Now) -> int:
        """Move on to the first period after now; return how many were passed over."""
        period_ns = int(float(self.workload.every or 0) * 1e9)
        periods = max(1, (now.monotonic_ns - self.grid_ns) // period_ns + 1)
        self.grid_ns += periods * period_ns
        self.due_ns = self.grid_ns + self.jitter_ns()
        return periods - 1


class Scheduler:
    """The plan of all workloads that run by the clock; the others run on demand."""

    def __init__(self, workloads: Iterable[Workload], now: Now, seed: int | None = None) -> None:
        """Plan every workload.

        Args:
            workloads: From the config; periods count from now, so the first run is at once.
            now: The time.
            seed: Of the jitter; random where it is not given.
        """
        self.missed: dict[str, int] = {}
        self._seed = seed
        self._offset_ns = now.wall_ns - now.monotonic_ns
        self._entries: list[_Entry] = []
        self.replan(workloads, now)

    def replan(self, workloads: Iterable[Workload], now: Now) -> None:
        """Plan other workloads; one that is to run at the times that it had keeps them."""
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
        return sorted(
            (Due(entry.workload, entry.due_ns) for entry in self._entries),
            key=lambda due: due.due_ns,
        )

    def next_ns(self) -> int | None:
        """Return when the next run is due; ``None`` where nothing runs by the clock."""
        return min((entry.due_ns for entry in self._entries), default=None)

    def due(self, now: Now) -> list[Due]:
        """Return the workloads to start now and move each on to its next time.

        A time that went by unused, because the machine was asleep or the daemon held up, is
        missed: it is counted in ``missed``, and run once more only where ``missed: run_once``.
        A wall clock that was set moves the cron workloads to their next time after the step.
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
