"""The time of a worker that infers by plan, on a machine of any speed."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from ..base import SYSTEM_CLOCK, Clock

# The plan is announced so long before its time: a busy machine may be so late with it, and the
# simulated board still knows each load from the nanosecond for which it was planned.
LEAD_SECONDS = 1.0
# Work is announced later, so that it can still follow what others announce.
_WORK_LEAD_NS = 400_000_000
_NAP_NS = 20_000_000


class PlannedClock:
    """A clock that shows the time of a plan; it goes on when the plan does.

    The plan may be ahead of the machine's clock by the lead, at most. If the machine was too slow
    for it, the plan stays behind until it has caught up, and skips nothing.
    """

    def __init__(self, clock: Clock = SYSTEM_CLOCK, lead_seconds: float = LEAD_SECONDS) -> None:
        self._clock = clock
        self._lead_ns = round(lead_seconds * 1e9)
        self._now_ns = 0
        self._nobody = threading.Event()

    def monotonic_ns(self) -> int:
        """Return CLOCK_MONOTONIC as planned."""
        return self._now_ns

    def wall_ns(self) -> int:
        """Return the wall time that belongs to it."""
        return self._clock.wall_ns() + self._now_ns - self._clock.monotonic_ns()

    def boottime_ns(self) -> int:
        """Return CLOCK_BOOTTIME as planned."""
        return self._clock.boottime_ns() + self._now_ns - self._clock.monotonic_ns()

    def wait(self, event: threading.Event, until_ns: int) -> bool:
        """Plan to wait until a time, and keep to the lead; return whether the event was set."""
        self._now_ns = max(self._now_ns, until_ns)
        return self._clock.wait(event, self._now_ns - self._lead_ns)

    def spend(self, duration_ns: float) -> None:
        """Plan work of so long, and keep to the lead of work."""
        # A sleep for each inference would cost more than the plan is worth.
        if self._now_ns - _WORK_LEAD_NS > self._clock.monotonic_ns() + _NAP_NS:
            self._clock.wait(self._nobody, self._now_ns - _WORK_LEAD_NS)
        self._now_ns += round(duration_ns)

    @contextmanager
    def begun(self, stop: threading.Event) -> Iterator[None]:
        """Begin a plan now; at its end wait until its time has come."""
        self._now_ns = max(self._now_ns, self._clock.monotonic_ns())
        yield
        self._clock.wait(stop, self._now_ns)
