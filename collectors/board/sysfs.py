"""Files of the kernel about a board, read at each line of tegrastats: one companion."""

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path

from ...parsers.signals import MEMORY, RAM_AVAILABLE, Column
from ..base import SYSTEM_CLOCK, Clock
from ..outages import OutageLog, failure_text
from .boards import find_power_mode
from .readers import (
    Reading,
    find_alerts,
    find_batteries,
    find_clocks,
    find_cooling,
    find_fans,
    find_memory,
    find_powered,
)
from .supply import find_over_current, find_rails

# A file that is read for so long hangs: under load a healthy one is late by far less. Looking for
# files opens some hundred of them.
_STUCK_NS = 1_000_000_000
_STUCK_LOOKING_NS = 10 * _STUCK_NS
_GRACE_NS = 1_000_000_000
_STUCK_AT_MOST = 4
# A reading of a rail waits for all samples that its sensor averages: 6.7 s for 1024 of them.
_STUCK_RAIL_NS = 15 * _STUCK_NS
# Rails are read every ten seconds, and for at most this share of the time.
_RAILS_NS, _RAILS_SHARE = 10 * 1_000_000_000, 0.01
# A driver that is loaded late, or anew, is there after so long.
_LOOK_AGAIN_NS = 60 * 1_000_000_000


class DeadlineReader:
    """A thread that reads all files once per request, and looks for them again at times."""

    def __init__(
        self,
        root: Path,
        find: Callable[[], Iterable[Reading]],
        known: Iterable[Reading],
        clock: Clock,
        stuck_ns: int = _STUCK_NS,
        outage: OutageLog | None = None,
    ) -> None:
        self.readings: tuple[Reading, ...] = tuple(known)
        self.columns: dict[Column, float] = {}
        self.took_ns = 0
        self._stuck_ns = stuck_ns
        self._outage = OutageLog("sysfs", clock) if outage is None else outage
        self._root = root
        self._find = find
        self._clock = clock
        self._looked_ns: int | None = None
        self._asked, self._answered = threading.Event(), threading.Event()
        self._answered.set()
        self._stopping = self._is_left = False
        self._late_at: tuple[Path, int] | None = None
        threading.Thread(target=self._run, name="sysfs", daemon=True).start()

    @property
    def is_reading(self) -> bool:
        """Whether the last request is not done yet; else ``columns`` is its result."""
        return not self._answered.is_set()

    @property
    def late_at(self) -> tuple[Path, int] | None:
        """The file that should have answered by now, and when; ``None`` where none is late."""
        at = self._late_at
        return at if at is not None and self._clock.monotonic_ns() > at[1] else None

    def stop(self, *, leave: bool = False) -> None:
        """End the thread as soon as the present read returns; ``leave`` the files to another."""
        self._is_left = leave
        self._stopping = True
        self._asked.set()

    def ask(self, timeout_seconds: float) -> dict[Column, float] | None:
        """Return the columns as they are now, or None if this or the last reading is not done."""
        if self.is_reading:
            return None
        self._answered.clear()
        self._asked.set()
        return self.columns if self._answered.wait(timeout_seconds) else None

    def _run(self) -> None:
        while True:
            self._asked.wait()
            self._asked.clear()
            if self._stopping:
                break
            begin_ns = self._clock.monotonic_ns()
            self.columns = self._read()
            self.took_ns = self._clock.monotonic_ns() - begin_ns
            self._answered.set()
        if not self._is_left:
            for reading in self.readings:
                reading.file.close()

    def _read(self) -> dict[Column, float]:
        now_ns = self._clock.monotonic_ns()
        if self._looked_ns is None or now_ns - self._looked_ns >= _LOOK_AGAIN_NS:
            self._looked_ns = now_ns
            self._late_at = (self._root, now_ns + _STUCK_LOOKING_NS)
            self._look()
        columns: dict[Column, float] = {}
        spoiled: str | None = None
        for reading in self.readings:
            now_ns = self._clock.monotonic_ns()
            self._late_at = (reading.file.path, now_ns + self._stuck_ns)
            text = reading.file.text()
            if self._is_left:
                break
            if text is None:
                continue
            try:
                columns.update(reading.take(text, now_ns))
            except Exception as error:  # a text that we did not think of costs its own values
                spoiled = f"{reading.file.path} is left out: {failure_text(error)}"
        self._outage.note(spoiled)
        self._late_at = None
        return columns

    def _look(self) -> None:
        known = {reading: reading for reading in self.readings}
        found = tuple(known.get(reading, reading) for reading in self._find())
        if self._is_left:
            return
        for gone in set(known) - set(found):
            gone.file.close()
        self.readings = found


Find = Callable[[Path], Iterator[Reading]]

# Rails are not among them: each reading of an INA3221 waits for a conversion.
FINDERS: tuple[Find, ...] = (
    find_powered,
    find_over_current,
    find_alerts,
    find_cooling,
    find_clocks,
    find_fans,
    find_power_mode,
    find_memory,
    find_batteries,
)


class SysfsCompanion:
    """Columns of some tens of small files, each of which may be absent, refuse, or never answer.

    They are read in a separate thread, because a read of a broken driver cannot be interrupted: a
    file that does not answer is left behind with its thread, and a new one reads the others.
    """

    name = "sysfs"
    source = None
    _stuck_ns = _STUCK_NS

    def __init__(
        self,
        root: Path = Path("/"),
        *,
        clock: Clock = SYSTEM_CLOCK,
        finders: Collection[Find] = FINDERS,
        timeout_seconds: float = 0.05,
    ) -> None:
        """Prepare; ``columns`` waits for ``timeout_seconds`` at most."""
        self._root = root
        self._clock = clock
        self._finders = finders
        self._timeout_seconds = timeout_seconds
        self._reader: DeadlineReader | None = None
        self._stuck: set[Path] = set()
        self._late: tuple[Path, int] | None = None
        self._late_since_ns = 0
        self._stopped = False
        self._found_any: bool | None = None
        self._outage, self._looked = OutageLog(self.name, clock), OutageLog(self.name, clock)

    @property
    def problem(self) -> str | None:
        """Why it gives nothing or not everything, with the remedy."""
        if self._stuck:
            named = ", ".join(sorted(map(str, self._stuck)))
            return f"no answer from {named}: its driver hangs, see dmesg; it is left out"
        if self._found_any is False:
            return f"nothing of a Jetson under {self._root}: telemetry.sysfs: false does without"
        return None

    def start(self) -> None:
        """Start to look for files."""
        self._begin()

    def columns(self) -> Mapping[Column, float]:
        """Return the present values; none while a file keeps the reader waiting."""
        reader = self._reader
        if reader is None or self._stopped:
            return {}
        columns = reader.ask(self._timeout_seconds)
        if columns is None:
            self._judge(reader)
            return {}
        self._found_any = any(signal not in (RAM_AVAILABLE, MEMORY) for signal, _ in columns)
        return columns

    def stop(self) -> None:
        """End the thread; a file that hangs keeps its own."""
        self._stopped = True
        if self._reader is not None:
            self._reader.stop()

    def _judge(self, reader: DeadlineReader) -> None:
        """Leave a reader behind whose file is late in two looks; after one, we may have slept."""
        late, now_ns = reader.late_at, self._clock.monotonic_ns()
        if late is None or late != self._late:
            self._late, self._late_since_ns = late, now_ns
        elif now_ns - self._late_since_ns >= _GRACE_NS and len(self._stuck) < _STUCK_AT_MOST:
            self._stuck.add(late[0])
            self._begin(reader)

    def _begin(self, left: DeadlineReader | None = None) -> None:
        """Read in a new thread, with the readings of the one that is left behind."""
        known: tuple[Reading, ...] = ()
        if left is not None:
            left.stop(leave=True)
            known = left.readings
        self._reader = DeadlineReader(
            self._root, self._find, known, self._clock, self._stuck_ns, self._outage
        )

    def _find(self) -> Iterator[Reading]:
        spoiled: str | None = None
        for find in self._finders:
            try:
                for reading in find(self._root):
                    if reading.file.path not in self._stuck:
                        yield reading
            except Exception as error:  # the files of one kind must not cost the others
                kind = getattr(find, "__name__", "find").removeprefix("find_")
                spoiled = f"{kind} cannot be listed: {failure_text(error)}"
        self._looked.note(spoiled)


class RailCompanion(SysfsCompanion):
    """Volts, amperes and limits of the rails, read rarely, and without any line waiting for them.

    Sensors share a bus and a lock with tegrastats. A reading begins with a line: tegrastats has
    just finished its own, and sleeps.
    """

    name = "rails"
    _stuck_ns = _STUCK_RAIL_NS

    def __init__(self, root: Path = Path("/"), *, clock: Clock = SYSTEM_CLOCK) -> None:
        super().__init__(root, clock=clock, finders=(find_rails,))
        self._asked_ns: int | None = None

    def columns(self) -> Mapping[Column, float]:
        """Return the last values; none after a file was late, until all others are read."""
        reader, now_ns = self._reader, self._clock.monotonic_ns()
        if reader is None or self._stopped:
            return {}
        if reader.is_reading:
            self._judge(reader)
        elif self._asked_ns is None or now_ns - self._asked_ns >= max(
            _RAILS_NS, reader.took_ns / _RAILS_SHARE
        ):
            self._asked_ns = now_ns
            reader.ask(0.0)
        return reader.columns if reader.late_at is None else {}
