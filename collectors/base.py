"""Shared by all collectors: clock, stamp, files, the log of outages, and the two protocols."""

import errno
import logging
import os
import secrets
import stat
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from ..parsers.signals import Column

_LOG = logging.getLogger(__name__)
T_co = TypeVar("T_co", covariant=True)


class Clock(Protocol):
    """The machine's clocks; an argument everywhere, so that a test needs no sleep."""

    def monotonic_ns(self) -> int:
        """Return CLOCK_MONOTONIC in nanoseconds: the time of samples and runs."""

    def wall_ns(self) -> int:
        """Return nanoseconds since 1970: for people and for Prometheus, never for arithmetic."""

    def boottime_ns(self) -> int:
        """Return CLOCK_BOOTTIME in nanoseconds, which goes on in suspend."""

    def wait(self, event: threading.Event, until_ns: int) -> bool:
        """Sleep until a monotonic time or until the event is set; return whether it was set."""


class SystemClock:
    """The real clocks."""

    monotonic_ns = staticmethod(time.monotonic_ns)
    wall_ns = staticmethod(time.time_ns)

    def boottime_ns(self) -> int:  # noqa: D102
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME)

    def wait(self, event: threading.Event, until_ns: int) -> bool:  # noqa: D102
        return event.wait(max(0.0, (until_ns - time.monotonic_ns()) / 1e9))


SYSTEM_CLOCK: Clock = SystemClock()


def pause(clock: Clock, event: threading.Event, seconds: float) -> bool:
    """Sleep for some seconds or until the event is set; return whether it was set."""
    return clock.wait(event, clock.monotonic_ns() + round(seconds * 1e9))


def failure_text(error: BaseException) -> str:
    """Return an error of a program in one line: its kind, its text and the line that raised it.

    >>> failure_text(IndexError("list index out of range"))
    'IndexError: list index out of range'
    """
    text = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}".rstrip(": ")
    trace = error.__traceback__
    if trace is None:
        return text
    while trace.tb_next is not None:
        trace = trace.tb_next
    return f"{text} ({Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno})"


# The first and the longest pause between two log lines of an outage.
LOG_PAUSES_SECONDS = (60.0, 3600.0)
# Texts that are logged at once in an outage. A text may contain a number that is always another.
_TEXTS_AT_MOST = 4


class OutageLog:
    """Logs a problem that is reported again and again, in few lines.

    A new problem is logged at once. While it lasts, or returns within the first pause, it is logged
    again after pauses that double up to the longest. Its end is one line, after the first pause
    without it. Not for several threads at once.

    >>> outage = OutageLog("rails")
    >>> for _ in range(100):
    ...     outage.note("a driver hangs: see dmesg")  # one line
    >>> outage.note(None)
    """

    def __init__(
        self,
        name: str,
        clock: Clock = SYSTEM_CLOCK,
        pauses_seconds: tuple[float, float] = LOG_PAUSES_SECONDS,
        log: logging.Logger = _LOG,
    ) -> None:
        """Prepare; ``name`` begins each line."""
        self._name = name
        self._clock = clock
        self._log = log
        self._pauses_ns = tuple(round(seconds * 1e9) for seconds in pauses_seconds)
        self._texts: set[str] = set()  # logged in this outage
        self._began_ns: int | None = None
        self._seen_ns = self._logged_ns = 0
        self._pause_ns = self._pauses_ns[0]
        self._unlogged = 0

    def note(self, problem: str | None) -> None:
        """Take the present problem, or ``None`` without one; call it at each attempt."""
        now_ns = self._clock.monotonic_ns()
        if problem is not None:
            self._note_problem(problem, now_ns)
        elif self._began_ns is not None and now_ns - self._seen_ns >= self._pauses_ns[0]:
            seconds = (self._seen_ns - self._began_ns) / 1e9
            self._log.info("%s: works again, after %.1f s of failures", self._name, seconds)
            self._began_ns = None

    def _note_problem(self, problem: str, now_ns: int) -> None:
        if self._began_ns is None:
            self._began_ns = now_ns
            self._texts.clear()
            self._pause_ns = self._pauses_ns[0]
            self._unlogged = 0
        self._seen_ns = now_ns
        is_new = problem not in self._texts and len(self._texts) < _TEXTS_AT_MOST
        if not is_new and now_ns - self._logged_ns < self._pause_ns:
            self._unlogged += 1
            return
        if is_new:
            self._texts.add(problem)
        else:
            self._pause_ns = min(2 * self._pause_ns, self._pauses_ns[1])
        more = f" ({self._unlogged} more since the last line)" if self._unlogged else ""
        self._log.warning("%s: %s%s", self._name, problem, more)
        self._logged_ns, self._unlogged = now_ns, 0


@dataclass(frozen=True, slots=True)
class Stamped(Generic[T_co]):
    """A value and the time at which it arrived: that of its newline, for a line.

    Attributes:
        following: How many more values the same read brought: this one is not the newest.
        late_seconds: How much later than the printing of its line the time may be.
    """

    monotonic_ns: int
    wall_ns: int
    value: T_co
    following: int = 0
    late_seconds: float = 0.0


def open_regular(path: Path, flags: int = os.O_RDONLY, mode: int = 0o666) -> int:
    """Open a regular file and return its descriptor; raise ``OSError`` for anything else.

    A FIFO would wait for its other end, beyond the reach of SIGTERM, and a device may never end.

    Args:
        flags: Those of ``os.open``. With ``O_NOFOLLOW`` a symbolic link is an error, as it must be
            for a file of ours in a directory where another user can make links.
    """
    try:
        opened = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY, mode)
    except OSError as error:
        if error.errno == errno.ELOOP and flags & os.O_NOFOLLOW:
            raise OSError(errno.ELOOP, "is a symbolic link", str(path)) from None
        if error.errno == errno.ENXIO:  # a socket, or a FIFO without a reader
            raise OSError(errno.ENXIO, "is not a regular file", str(path)) from None
        raise
    if not stat.S_ISREG(os.fstat(opened).st_mode):
        os.close(opened)
        raise OSError(errno.EINVAL, "is not a regular file", str(path))
    return opened


def read_regular(path: Path, most_bytes: int, flags: int = os.O_RDONLY) -> bytes:
    """Return the content of a regular file, or raise ``OSError``, also if it is larger."""
    with os.fdopen(open_regular(path, flags), "rb") as file:
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise OSError(errno.EFBIG, f"is larger than {most_bytes} bytes", str(path))
    return content


def write_atomic(path: Path, content: bytes | memoryview, mode: int = 0o666) -> None:
    """Write a file completely or not at all, even if the power fails."""
    part = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")
    try:
        with open(part, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Write to the disk which files a directory has."""
    opened = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


@dataclass(frozen=True)
class MachineFacts:
    """Facts about the machine whose lines are read; each may be missing."""

    board: str | None = None
    module: str | None = None  # part number, as p3701-0005
    l4t: str | None = None
    jetpack: str | None = None
    power_mode: str | None = None
    clocks_locked: bool | None = None
    # Settings of the rails' sensors, by file: over how long a time each reading is averaged.
    rail_sensors: Mapping[str, float] = field(default_factory=dict)
    gpu_uuid: str | None = None
    power_reading: str | None = None  # ``instant``, or ``usage`` for NVML's own mean
    versions: Mapping[str, str] = field(default_factory=dict)
    trips_celsius: Mapping[tuple[str, str], float] = field(default_factory=dict)


class LineSource(Protocol):
    """A source of lines: a process, a recorded log, a pipe or the simulated board."""

    name: str  # a label value: ``tegrastats``, ``replay``, ``stream`` or ``simulator``
    is_live: bool  # False where the lines do not describe this machine now
    restarts: int
    problem: str | None  # why no lines come, with the remedy

    @property
    def interval_seconds(self) -> float | None:
        """Nominal time between two lines; ``None`` where it is not known."""

    def lines(self) -> Iterator[Stamped[str]]:
        """Yield lines without their newline as they arrive, until the end or until ``stop``."""

    def stop(self) -> None:
        """End ``lines`` soon; called from another thread, and more than once."""


class Companion(Protocol):
    """Reads further columns at the time of each line of telemetry.

    Time, energy and events are reported as counts until now, so that the share of a window is a
    difference, however the samples fall.
    """

    name: str  # a label value: ``sysfs``, ``ftrace`` …

    @property
    def source(self) -> LineSource | None:
        """The lines that it reads, if any; a source logs its outages itself."""

    @property
    def problem(self) -> str | None:
        """Why it gives nothing, with the remedy; ``None`` while no problem is known."""

    def start(self) -> None:
        """Begin; slow work happens in a separate thread or child."""

    def columns(self) -> Mapping[Column, float]:
        """Return the present values by column; in a few milliseconds, and without raising."""

    def stop(self) -> None:
        """End; called from another thread, and more than once."""


# After a fault in the source of a companion.
_AGAIN_SECONDS = 10.0


class LineCompanion(ABC):
    """Reads the lines of a source in a thread, for a companion."""

    name: str

    def __init__(self, source: LineSource, clock: Clock) -> None:
        self.source = source
        self._clock = clock
        self._outage = OutageLog(self.name, clock)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the source and the thread."""
        self._stopped.set()
        self.source.stop()
        if self._thread.is_alive():
            self._thread.join(timeout=2.0)

    @abstractmethod
    def take(self, line: str, at_ns: int) -> None:
        """Take a line that arrived at ``at_ns``."""

    def _run(self) -> None:
        """Take the lines until the end of the source or ``stop``."""
        while not self._stopped.is_set():
            try:
                for line in self.source.lines():
                    self._take(line)
            except Exception as error:  # a fault in the source must not end this for good
                _LOG.debug("%s", self.name, exc_info=True)
                self._outage.note(f"its source failed, and is begun again: {failure_text(error)}")
            else:
                return
            pause(self._clock, self._stopped, _AGAIN_SECONDS)

    def _take(self, line: Stamped[str]) -> None:
        """Take a line; one that cannot be taken costs itself only."""
        try:
            self.take(line.value, line.monotonic_ns)
        except Exception as error:
            _LOG.debug("%s: %r", self.name, line.value, exc_info=True)
            self._outage.note(f"a line is left out: {failure_text(error)}")
        else:
            self._outage.note(None)
