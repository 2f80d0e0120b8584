"""Reads small files in a thread, so that a caller waits no longer than its deadline."""

import threading
from collections.abc import Callable, Iterable
from pathlib import Path

from ..base import Clock
from .kernel_file import Reading

# A file that is read for so long hangs: under load a healthy one is late by far less. Looking for
# files opens some hundred of them.
_STUCK_NS = 1_000_000_000
_STUCK_LOOKING_NS = 10 * _STUCK_NS


class DeadlineReader:
    """A thread that reads all files once each time it is asked."""

    def __init__(
        self,
        root: Path,
        find: Callable[[], Iterable[Reading]],
        known: Iterable[Reading],
        clock: Clock,
        look_again_ns: int,
    ) -> None:
        """Prepare.

        Args:
            look_again_ns: How long ``find`` is good for.
        """
        self.readings: tuple[Reading, ...] = tuple(known)
        self._root = root
        self._find = find
        self._clock = clock
        self._look_again_ns = look_again_ns
        self._looked_ns: int | None = None
        self._asked = threading.Event()
        self._answered = threading.Event()
        self._answered.set()
        self._stopping = self._is_left = False
        self._columns: dict[str, float] = {}
        self._late_at: tuple[Path, int] | None = None
        self._thread = threading.Thread(target=self._run, name="sysfs", daemon=True)

    @property
    def late_at(self) -> tuple[Path, int] | None:
        """The file that should have answered by now, and when; ``None`` where none is late."""
        at = self._late_at
        return at if at is not None and self._clock.monotonic_ns() > at[1] else None

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End, as soon as the file that is being read lets it."""
        self._stopping = True
        self._asked.set()

    def leave(self) -> None:
        """End likewise, and touch no file any more: another reader goes on with them."""
        self._is_left = True
        self.stop()

    def ask(self, timeout_seconds: float) -> dict[str, float] | None:
        """Have everything read now.

        Returns:
            The columns; ``None`` where the reading is not done, or that of the last time is not.
        """
        if not self._answered.is_set():
            return None
        self._answered.clear()
        self._asked.set()
        return self._columns if self._answered.wait(timeout_seconds) else None

    def _run(self) -> None:
        while True:
            self._asked.wait()
            self._asked.clear()
            if self._stopping:
                break
            self._columns = self._read()
            self._answered.set()
        if not self._is_left:
            for reading in self.readings:
                reading.file.close()

    def _read(self) -> dict[str, float]:
        now_ns = self._clock.monotonic_ns()
        if self._looked_ns is None or now_ns - self._looked_ns >= self._look_again_ns:
            self._looked_ns = now_ns
            self._late_at = (self._root, now_ns + _STUCK_LOOKING_NS)
            self._look()
        columns: dict[str, float] = {}
        for reading in self.readings:
            now_ns = self._clock.monotonic_ns()
            self._late_at = (reading.file.path, now_ns + _STUCK_NS)
            text = reading.file.text()
            if self._is_left:
                break
            if text is not None:
                columns.update(reading.take(text, now_ns))
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
