"""CPU time and memory of the busiest processes, by name, read every ten seconds."""

import contextlib
import logging
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from ...parsers import signals
from ...parsers.signals import Column
from ..base import SYSTEM_CLOCK, Clock, pause
from ..outages import OutageLog, failure_text
from .names import ProcessNames
from .shown import ShownNames
from .table import UNREADABLE

PERIOD_SECONDS = 10.0
_COUNTED_AT_MOST = 512
# The most time of a core that looks may take: in the usual period, and at the edges of runs, which
# may follow each other closely. A look takes about 20 us per process.
_SHARE, _SHARE_AT_EDGES = 0.01, 0.05

_LOG = logging.getLogger(__name__)


class ProcessUse(NamedTuple):
    """Processes of one name.

    Attributes:
        cpu_seconds: CPU time since the watch began, of those that have ended too.
        cpu_cores: Mean number of cores that they kept busy between the last two looks.
        memory_bytes: Resident memory of those that live.
        started_seconds: Wall time at which the oldest of them started, since 1970.

    The command line is not here: it may contain secrets, and the name has its program and script.
    """

    name: str
    cpu_seconds: float
    cpu_cores: float
    memory_bytes: int
    processes: int
    started_seconds: float


class ProcessWatch:
    """The processes that used most CPU time since the last look, and those that are configured.

    A thread looks every ten seconds, and soon after ``look_soon``; more rarely if a look takes
    long, as with thousands of processes. ``columns`` returns the result of a look once, with the
    next line of telemetry: in a window, CPU time is a difference.
    """

    name = "processes"
    source = None

    def __init__(
        self,
        *,
        top: int = 10,
        names: Collection[str] = (),
        known: ProcessNames | None = None,
        on_look: Callable[[tuple[ProcessUse, ...]], object] = lambda _: None,
        clock: Clock = SYSTEM_CLOCK,
        period_seconds: float = PERIOD_SECONDS,
    ) -> None:
        """Prepare; nothing is read before ``start``.

        Args:
            top: How many names are shown besides the configured ``names``.
            on_look: Called with the processes that are shown, after each look.
        """
        self.problem: str | None = None
        self._names = ShownNames(top, names, clock)
        self._known = ProcessNames() if known is None else known
        self._table = self._known.table
        self._on_look = on_look
        self._clock = clock
        self._period_seconds = period_seconds
        self._began_ns = clock.boottime_ns()
        self._spoiled = OutageLog(self.name, clock)
        self._looked_ns = clock.monotonic_ns()
        # When each living process started, and its CPU time at the last look.
        self._living: dict[int, tuple[int, float]] = {}
        self._total: dict[str, float] = {}
        self._fresh: tuple[ProcessUse, ...] = ()
        self._wake = threading.Event()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="processes", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def look_soon(self) -> None:
        """Look now, at an edge of a run, and not only when the period is over."""
        self._wake.set()

    def columns(self) -> Mapping[Column, float]:
        """Return CPU time and memory by name, once after each look."""
        fresh, self._fresh = self._fresh, ()
        columns: dict[Column, float] = {}
        for use in fresh:
            columns[signals.PROCESS_CPU, use.name] = use.cpu_seconds
            columns[signals.PROCESS_MEMORY, use.name] = use.memory_bytes
        return columns

    def stop(self) -> None:
        """End the thread."""
        self._stopped.set()
        self._wake.set()

    def look(self) -> tuple[ProcessUse, ...]:
        """Look at all processes, and return those to show, the busiest first.

        Raises:
            OSError: The table of processes cannot be read.
        """
        now_ns = self._clock.monotonic_ns()
        elapsed, self._looked_ns = max(now_ns - self._looked_ns, 1) / 1e9, now_ns
        grown: dict[str, float] = {}
        found: dict[str, list[tuple[int, int]]] = {}
        living: dict[int, tuple[int, float]] = {}
        spoiled: str | None = None
        for pid in self._table.pids():
            try:
                process = self._table.entry(pid)
                name = self._known.name_of(process)
            except UNREADABLE:  # it has just ended, or may not be read
                continue
            except Exception as error:  # anybody may start a process that we did not think of
                _LOG.debug("process %d", pid, exc_info=True)
                spoiled = f"process {pid} is left out: {failure_text(error)}"
                continue
            seconds, started_ns = process.cpu_seconds, process.started_ns
            known_start, since = self._living.get(pid, (None, 0.0))
            if known_start != started_ns:
                # CPU time before the watch began is not counted.
                since = seconds if started_ns < self._began_ns else 0.0
            grown[name] = grown.get(name, 0.0) + max(0.0, seconds - since)
            found.setdefault(name, []).append((started_ns, pid))
            living[pid] = started_ns, seconds
        self._spoiled.note(spoiled)
        if not living:  # this process is one of them
            raise OSError(0, spoiled or "shows no process that can be read")
        self._living = living
        self._known.keep(living)
        for name, seconds in grown.items():
            self._total[name] = self._total.get(name, 0.0) + seconds
        self._forget(found)
        shown, beyond = self._names.choose(grown)
        if beyond:
            name = signals.UNKNOWN_PROCESS
            grown[name] = sum(grown[hidden] for hidden in beyond)
            processes: list[tuple[int, int]] = []
            for hidden in beyond:  # one of them may have this very name
                processes += found[hidden]
            found[name] = processes
            self._total[name] = self._total.get(name, 0.0) + grown[name]
            shown.append(name)
        uses = []
        for name in shown:
            use = self._use_of(name, grown[name] / elapsed, found[name])
            if use is not None:
                uses.append(use)
        return tuple(uses)

    def _use_of(
        self, name: str, cores: float, processes: Sequence[tuple[int, int]]
    ) -> ProcessUse | None:
        memory, started_ns = 0, []
        for at_ns, pid in processes:
            with contextlib.suppress(*UNREADABLE):
                memory += self._table.memory_bytes(pid)
                started_ns.append(at_ns)
        if not started_ns:
            return None
        # Whole seconds: the two clocks are not read at the same moment, and a start does not move.
        since_boot_ns = self._clock.boottime_ns() - min(started_ns)
        started_seconds = float(round((self._clock.wall_ns() - since_boot_ns) / 1e9))
        total = self._total[name]
        return ProcessUse(name, total, cores, memory, len(started_ns), started_seconds)

    def _forget(self, living: Collection[str]) -> None:
        """Forget names that are gone, those with the least CPU time first, if there are many."""
        gone = sorted(self._total.keys() - living, key=self._total.__getitem__)
        for name in gone[: max(0, len(self._total) - _COUNTED_AT_MOST)]:
            del self._total[name]

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._wake.clear()
            begin_ns = self._clock.monotonic_ns()
            try:
                self._fresh = found = self.look()
                self.problem = None
            except Exception as error:
                _LOG.debug("processes cannot be read", exc_info=True)
                found = ()
                why = error.strerror if isinstance(error, OSError) else failure_text(error)
                self.problem = f"/proc {why}: telemetry goes on without processes; mount /proc"
            self._on_look(found)
            took_seconds = (self._clock.monotonic_ns() - begin_ns) / 1e9
            # No edge of a run ends the first pause.
            rest_seconds = took_seconds / _SHARE_AT_EDGES
            pause(self._clock, self._stopped, rest_seconds)
            usual_seconds = max(self._period_seconds, took_seconds / _SHARE)
            pause(self._clock, self._wake, usual_seconds - rest_seconds)
