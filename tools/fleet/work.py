"""The runs of one simulated device, one after the other, each paired as a daemon pairs it."""

import random
import threading
from collections import deque
from collections.abc import Iterator

from tegrascope.daemon.measure.run_report import RunReport
from tegrascope.daemon.session.executor import Verdict
from tegrascope.daemon.session.pairing import Flight, Job, Surroundings
from tegrascope.daemon.settings.identity import new_run_id
from tegrascope.parsers.inference.events import Phase, RunEvent

from .plan import DevicePlan
from .worker import Conduct, events

_SLOWER_A_RUN, _SLOWEST = 0.02, 1.6
_KEPT = 20
_WORKING = ("warm_up", "steady")


class Work:
    """What a lane's thread does, without a thread: it goes on when it is told the time.

    Attributes:
        reports: The last runs, newest first.
    """

    def __init__(self, plan: DevicePlan, around: Surroundings, begin_ns: int) -> None:
        """Prepare.

        Args:
            plan: What the device runs, and its trouble.
            around: What its runs need around them; its clock is moved on.
            begin_ns: Monotonic time of the first run.
        """
        self.reports: deque[RunReport] = deque(maxlen=_KEPT)
        self._plan = plan
        self._around = around
        self._chance = random.Random(f"{plan.seed} runs")
        self._idle = threading.Event()  # never set: waiting is how a device's time goes on
        self._start_ns = begin_ns
        self._runs = 0
        self._flight: Flight | None = None
        self._landed: Flight | None = None
        self._said: Iterator[tuple[int, RunEvent]] = iter(())
        self._next: tuple[int, RunEvent] | None = None

    def go_on(self, until_ns: int) -> None:
        """Let the worker say what it has to say until then; begin a run that is due."""
        if self._flight is None and self._landed is None and self._start_ns <= until_ns:
            self._around.clock.wait(self._idle, self._start_ns)
            self._begin()
        while self._flight is not None and self._next is not None and self._next[0] <= until_ns:
            at_ns, event = self._next
            self._around.clock.wait(self._idle, at_ns)
            self._flight.take(event)
            if isinstance(event, Phase):
                self._divert(event)
            self._next = next(self._said, None)
            if self._next is None:
                self._flight.land()
                self._landed, self._flight = self._flight, None

    def report(self) -> None:
        """Pair a run that has ended, once there is a sample from behind its end."""
        flight = self._landed
        if flight is None:
            return
        window = flight.trace.telemetry_window()
        if window is not None and not self._around.timeline.wait_past(window.end_ns, 0):
            return
        outcome = flight.trace.outcome or "failed"
        report = flight.report(Verdict(outcome, flight.trace.reason))
        self._around.ledger.run_ended(report)
        self.reports.appendleft(report)
        self._landed = None
        pause_ns = round(self._plan.pause_seconds * 1e9)
        self._start_ns = self._around.clock.monotonic_ns() + pause_ns

    def _begin(self) -> None:
        plan, clock = self._plan, self._around.clock
        task = plan.tasks[self._runs % len(plan.tasks)]
        slower = 1 + _SLOWER_A_RUN * self._runs if plan.fault == "slow" else 1.0
        conduct = Conduct(
            slower=min(slower, _SLOWEST),
            fails=plan.fault == "flaky" and self._runs % 3 == 1,
            bypasses=plan.fault == "bypassed" and task.workload.device.startswith("dla"),
        )
        run_id = new_run_id()
        self._flight = Flight(self._around, Job(run_id, task.workload, self._start_ns))
        self._around.ledger.run_began(
            task.workload.name,
            run_id,
            self._flight.trace.lateness_seconds,
            clock.wall_ns() / 1e9,
        )
        self._said = events(run_id, task, conduct, clock.monotonic_ns(), self._chance)
        self._next = next(self._said)
        self._runs += 1

    def _divert(self, event: Phase) -> None:
        """Have the GPU do what fell back from the DLA."""
        assert self._flight is not None
        device = self._flight.trace.device
        bypasses = self._plan.fault == "bypassed" and device.startswith("dla")
        if bypasses and event.phase in _WORKING:
            works = event.edge == "begin"
            self._around.load.set(device, 0.1 * works, event.at_ns)
            self._around.load.set("gpu", 0.8 * works, event.at_ns)
