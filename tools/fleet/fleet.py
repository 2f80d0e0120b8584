"""All devices of a simulated fleet, which one thread keeps living."""

import heapq
import logging
import threading
import time
from collections import deque

from .device import SimulatedDevice
from .plan import plan_device

_LOG = logging.getLogger(__name__)
# A device has lived so many samples when its page is shown first: it has a finished run by then.
_PAST_SAMPLES = 150
_LATE_NS = 10_000_000_000


class Fleet:
    """Devices by number, from 1 on; each appears when its past has been lived through.

    Attributes:
        count: How many there are to be.
    """

    def __init__(
        self, count: int, *, seed: int = 0, interval_seconds: float = 1.009, privileged: bool = True
    ) -> None:
        """Plan them; they live from ``start`` on.

        Args:
            count: How many.
            seed: The same seed gives the same boards, loads, runs and troubles.
            interval_seconds: Between two samples of a device.
            privileged: Whether their tegrastats runs as root.
        """
        self.count = count
        self.seed = seed
        self._interval_seconds = interval_seconds
        self._privileged = privileged
        self._devices: dict[int, SimulatedDevice] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._live, name="fleet", daemon=True)

    @property
    def devices(self) -> list[SimulatedDevice]:
        """Those that have appeared so far, by number."""
        return list(self._devices.values())

    def device(self, number: int) -> SimulatedDevice | None:
        """Return one that has appeared."""
        return self._devices.get(number)

    def start(self) -> None:
        """Let them live."""
        self._thread.start()

    def stop(self) -> None:
        """End them all."""
        self._stopping.set()
        self._thread.join(5.0)

    def _live(self) -> None:
        unborn = deque(range(1, self.count + 1))
        due: list[tuple[int, int, SimulatedDevice]] = []
        told_late = False
        while not self._stopping.is_set():
            now_ns = time.monotonic_ns()
            if due and due[0][0] <= now_ns:
                _, number, device = due[0]
                device.step()
                heapq.heapreplace(due, (device.due_ns, number, device))
                if now_ns - due[0][0] > _LATE_NS and not told_late:
                    told_late = True
                    _LOG.warning(
                        "this machine is too slow for so many devices: they lag behind. "
                        "Give fewer, or a longer --interval"
                    )
            elif unborn:
                device = self._make(unborn.popleft())
                if self._stopping.is_set():
                    return
                heapq.heappush(due, (device.due_ns, device.plan.number, device))
                self._devices[device.plan.number] = device
                if not unborn:
                    _LOG.info("all %d devices are there", self.count)
            else:
                self._stopping.wait((due[0][0] - now_ns) / 1e9)

    def _make(self, number: int) -> SimulatedDevice:
        """Switch a device on in the past, and live up to now."""
        past_ns = round(_PAST_SAMPLES * self._interval_seconds * 1e9)
        device = SimulatedDevice(
            plan_device(number, self.seed, self._interval_seconds),
            begin_ns=max(0, time.monotonic_ns() - past_ns),
            interval_seconds=self._interval_seconds,
            privileged=self._privileged,
        )
        while device.due_ns <= time.monotonic_ns() and not self._stopping.is_set():
            device.step()
        return device
