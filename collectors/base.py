"""Shared by all collectors: clock, stamp, facts about the machine, and the two protocols."""

import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from ..parsers.signals import Column

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


class PowerReader(Protocol):
    """Reads the power of some rails at other times than a line is printed."""

    problem: str | None  # why there is no reading, with the remedy

    def read(self, planned_ns: int) -> tuple[int, Mapping[Column, float]] | None:
        """Read now, as planned for that time; return the time of the reading and its columns.

        The result is ``None``, with a ``problem``, if one of the rails has no valid reading.
        """

    def close(self) -> None:
        """Close what is open; the next reading opens it again."""
