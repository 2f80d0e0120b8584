"""Shared by all collectors: the clock, the stamp, atomic writes and the two protocols."""

import os
import secrets
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

T = TypeVar("T")
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

    def monotonic_ns(self) -> int:  # noqa: D102
        return time.monotonic_ns()

    def wall_ns(self) -> int:  # noqa: D102
        return time.time_ns()

    def boottime_ns(self) -> int:  # noqa: D102
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME)

    def wait(self, event: threading.Event, until_ns: int) -> bool:  # noqa: D102
        return event.wait(max(0.0, (until_ns - time.monotonic_ns()) / 1e9))


SYSTEM_CLOCK: Clock = SystemClock()


@dataclass(frozen=True, slots=True)
class Stamped(Generic[T_co]):
    """A value and the time at which it arrived: that of its newline, for a line."""

    monotonic_ns: int
    wall_ns: int
    value: T_co


def stamp(clock: Clock, value: T) -> Stamped[T]:
    """Stamp a value with the present time."""
    return Stamped(clock.monotonic_ns(), clock.wall_ns(), value)


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
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


class LineSource(Protocol):
    """A source of lines: a process, a recorded log, a pipe or the simulated board.

    Attributes:
        name: A label value: ``tegrastats``, ``replay``, ``stream`` or ``simulator``.
        is_live: False where the lines do not describe this machine now.
        interval_seconds: Nominal time between two lines; ``None`` where it is not known.
        problem: Why no lines come, with the remedy; ``None`` while no problem is known.
    """

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def is_live(self) -> bool: ...  # noqa: D102
    @property
    def interval_seconds(self) -> float | None: ...  # noqa: D102
    @property
    def restarts(self) -> int: ...  # noqa: D102
    @property
    def problem(self) -> str | None: ...  # noqa: D102

    def lines(self) -> Iterator[Stamped[str]]:
        """Yield lines without their newline as they arrive, until the end or until ``stop``."""

    def stop(self) -> None:
        """End ``lines`` soon; called from another thread, and more than once."""


class Companion(Protocol):
    """Reads further columns at the time of each line of telemetry.

    Time, energy and events are reported as counts until now, so that the share of a window is a
    difference, however the samples fall.

    Attributes:
        name: A label value: ``sysfs``, ``ftrace`` ….
        problem: Why it gives nothing, with the remedy; ``None`` while no problem is known.
    """

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def problem(self) -> str | None: ...  # noqa: D102

    def start(self) -> None:
        """Begin; slow work happens in a separate thread or child."""

    def columns(self) -> Mapping[str, float]:
        """Return the present values by column; in a few milliseconds, and without raising."""

    def stop(self) -> None:
        """End; called from another thread, and more than once."""
