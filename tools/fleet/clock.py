"""The time of one simulated device."""

import threading
import time


class DeviceClock:
    """A clock that stands where its device is; waiting until a time makes it that time."""

    def __init__(self, monotonic_ns: int) -> None:
        self._now_ns = monotonic_ns

    def monotonic_ns(self) -> int:
        """Return the time up to which the device has lived."""
        return self._now_ns

    def wall_ns(self) -> int:
        """Return the wall time of that moment, by the machine's present wall clock."""
        return self._now_ns + time.time_ns() - time.monotonic_ns()

    def boottime_ns(self) -> int:
        """Return the same as ``monotonic_ns``: no device is ever suspended."""
        return self._now_ns

    def wait(self, event: threading.Event, until_ns: int) -> bool:
        """Make it that time."""
        self._now_ns = max(self._now_ns, until_ns)
        return event.is_set()
