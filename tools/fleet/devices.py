"""Simulated devices: samples and runs take the path that they take in a daemon."""

import heapq
import logging
import math
import threading
import time
from collections import deque
from platform import python_version

from msgspec.structs import replace

from tegrascope import __version__
from tegrascope.collectors.simulator.board import (
    READ_SECONDS,
    SimulatedBoard,
    SimulatorSource,
    simulated_collector,
)
from tegrascope.collectors.simulator.physics import board_model
from tegrascope.daemon.export.metrics import Page
from tegrascope.daemon.measure.report import Environment
from tegrascope.daemon.measure.timeline import Timeline
from tegrascope.daemon.session.session import Session

from .plan import SCORE, DevicePlan, plan_device
from .work import Work


class DeviceClock:
    """The clock of one device: waiting for a time sets it to that time.

    It is ahead of the machine's by ``ahead_ns``: so the device has a past, though the machine may
    have just booted.
    """

    def __init__(self, monotonic_ns: int, ahead_ns: int = 0) -> None:
        self._now_ns = monotonic_ns
        self._ahead_ns = ahead_ns

    def monotonic_ns(self) -> int:
        """Return the time up to which the device is simulated."""
        return self._now_ns

    def wall_ns(self) -> int:
        """Return the wall time of that moment, by the machine's present wall clock."""
        machine_ns = self._now_ns - self._ahead_ns
        return machine_ns + time.time_ns() - time.monotonic_ns()

    def boottime_ns(self) -> int:
        """Return the same as ``monotonic_ns``: no device is ever suspended."""
        return self._now_ns

    def wait(self, event: threading.Event, until_ns: int) -> bool:
        """Set the time."""
        self._now_ns = max(self._now_ns, until_ns)
        return event.is_set()


# Samples that are kept for pairing; every run is shorter.
_SPAN_INTERVALS = 300
# A device in trouble is dark, or gone, for this share of each period.
_TROUBLE_SECONDS, _TROUBLE_RATIO = 600.0, 0.2


class SimulatedDevice:
    """A board whose lines are parsed, counted and paired with runs as in a daemon.

    Only the board and the worker's events are made up. One thread calls ``step``; any thread may
    render the page. ``due_ns`` is the device's time from which ``step`` may be called again.
    """

    def __init__(
        self,
        plan: DevicePlan,
        *,
        begin_ns: int,
        interval_seconds: float,
        ahead_ns: int = 0,
        privileged: bool = True,
    ) -> None:
        """Begin at a time of the device's clock, which is ahead of CLOCK_MONOTONIC."""
        self.plan = plan
        self.clock = DeviceClock(begin_ns, ahead_ns)
        self._idle = threading.Event()  # never set: a wait only moves the device's clock
        self._interval_ns = round(interval_seconds * 1e9)
        self._begin_ns = begin_ns
        model = board_model(plan.board)
        source = SimulatorSource(
            plan.board, interval_seconds=interval_seconds, seed=0, clock=self.clock
        )
        session = self.session = Session(
            clock=self.clock,
            environment=Environment(
                board=plan.board,
                telemetry_source=source.name,
                simulated=True,
                versions={"tegrascope": __version__, "python": python_version()},
            ),
            timeline=Timeline(span_seconds=_SPAN_INTERVALS * interval_seconds),
        )
        source.board = SimulatedBoard(
            replace(model, ambient_celsius=plan.ambient_celsius),
            session.load,
            begin_ns=begin_ns,
            privileged=privileged,
            seed=plan.number,
            most_pieces=2,
        )
        self.live = session.live
        workloads = [one.workload for one in plan.tasks]
        self.live.set_workloads(
            {one.name: one.device for one in workloads},
            {one.name: one.labels for one in workloads},
            {one.name: one.deadline for one in workloads},
        )
        self.timeline = session.timeline
        collector = simulated_collector(source)
        self._samples = collector.collect()
        self._feed = session.attach(
            collector,
            devices=[lane for lane in model.lanes if lane.startswith("dla")],
            companions=collector.companions,
        )
        self.work = Work(plan, session, begin_ns + self._interval_ns)
        self.page = Page(lambda: self.live.snapshot, lambda: time.monotonic_ns() + ahead_ns)
        self.due_ns = 0
        self._set_due()

    def step(self) -> None:
        """Simulate up to the next sample, runs included."""
        until_ns = self.clock.monotonic_ns() + self._interval_ns
        self._set_host_load(until_ns)
        self.work.go_on(until_ns)
        if self.plan.fault == "dark" and self._is_troubled(until_ns):
            self.clock.wait(self._idle, until_ns)
        else:
            sample = next(self._samples)
            self._feed.take(sample)
            self.work.report()
        self._set_due()

    def is_gone(self) -> bool:
        """Return whether the device cannot be reached now."""
        return self.plan.fault == "gone" and self._is_troubled(self.clock.monotonic_ns())

    def _is_troubled(self, at_ns: int) -> bool:
        seconds = (at_ns - self._begin_ns) / 1e9 + 30 * (self.plan.number // SCORE)
        return seconds % _TROUBLE_SECONDS > _TROUBLE_SECONDS * (1 - _TROUBLE_RATIO)

    def _set_due(self) -> None:
        reading_ns = round(READ_SECONDS[1] * 1e9)
        self.due_ns = self.clock.monotonic_ns() + self._interval_ns + reading_ns

    def _set_host_load(self, at_ns: int) -> None:
        """Set the load of everything else, which comes in waves."""
        turn = (at_ns - self._begin_ns) / 1e9 / self.plan.host_period_seconds
        ratio = self.plan.host_ratio * (0.5 - 0.5 * math.cos(math.tau * turn))
        self.session.load.set("cpu", ratio, at_ns)
        self.session.load.set("emc", ratio / 2, at_ns)


_LOG = logging.getLogger(__name__)
# Samples before a device appears: enough for a finished run.
_PAST_SAMPLES = 150
_LATE_NS = 10_000_000_000


class Fleet:
    """Devices by number, from 1; each appears once its past is simulated."""

    def __init__(
        self, count: int, *, seed: int = 0, interval_seconds: float = 1.009, privileged: bool = True
    ) -> None:
        """Prepare; the same seed gives the same boards, loads, runs and troubles."""
        self.count = count
        self.seed = seed
        self._interval_seconds = interval_seconds
        self._ahead_ns = round(_PAST_SAMPLES * interval_seconds * 1e9)
        self._privileged = privileged
        self._devices: dict[int, SimulatedDevice] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fleet", daemon=True)

    @property
    def devices(self) -> list[SimulatedDevice]:
        """Devices that have appeared so far, by number."""
        return list(self._devices.values())

    def device(self, number: int) -> SimulatedDevice | None:
        """Return a device that has appeared."""
        return self._devices.get(number)

    def start(self) -> None:
        """Start the simulation."""
        self._thread.start()

    def stop(self) -> None:
        """End the simulation."""
        self._stopping.set()
        self._thread.join(5.0)

    def _now_ns(self) -> int:
        """Return the present time on the clocks of the devices."""
        return time.monotonic_ns() + self._ahead_ns

    def _run(self) -> None:
        missing = deque(range(1, self.count + 1))
        due: list[tuple[int, int, SimulatedDevice]] = []
        warned = False
        while not self._stopping.is_set():
            now_ns = self._now_ns()
            if due and due[0][0] <= now_ns:
                _, number, device = due[0]
                device.step()
                heapq.heapreplace(due, (device.due_ns, number, device))
                if now_ns - due[0][0] > _LATE_NS and not warned:
                    warned = True
                    _LOG.warning(
                        "this machine is too slow for so many devices: they lag behind. "
                        "Give fewer, or a longer --interval"
                    )
            elif missing:
                device = self._begin(missing.popleft())
                if self._stopping.is_set():
                    return
                heapq.heappush(due, (device.due_ns, device.plan.number, device))
                self._devices[device.plan.number] = device
                if not missing:
                    _LOG.info("all %d devices are there", self.count)
            else:
                self._stopping.wait((due[0][0] - now_ns) / 1e9)

    def _begin(self, number: int) -> SimulatedDevice:
        """Begin a device in the past and simulate it up to now."""
        device = SimulatedDevice(
            plan_device(number, self.seed, self._interval_seconds),
            begin_ns=self._now_ns() - self._ahead_ns,
            interval_seconds=self._interval_seconds,
            ahead_ns=self._ahead_ns,
            privileged=self._privileged,
        )
        while device.due_ns <= self._now_ns() and not self._stopping.is_set():
            device.step()
        return device
