"""One simulated device: board, samples and runs go the way they go in a daemon, step by step."""

import math
import threading
import time
from pathlib import Path
from platform import python_version

from tegrascope import __version__
from tegrascope.collectors.lines.collector import TegrastatsCollector
from tegrascope.collectors.simulator.board import SimulatedBoard
from tegrascope.collectors.simulator.load import LoadBoard
from tegrascope.collectors.simulator.models import board_model
from tegrascope.collectors.simulator.source import READ_SECONDS, SimulatorSource
from tegrascope.daemon.export.page import Page
from tegrascope.daemon.export.snapshot import Snapshot
from tegrascope.daemon.export.state import Ledger
from tegrascope.daemon.measure.energy import EnergyCounters
from tegrascope.daemon.measure.run_report import Environment
from tegrascope.daemon.measure.timeline import Timeline
from tegrascope.daemon.session.pairing import Surroundings, Windows
from tegrascope.daemon.session.sources import lane_occupancy
from tegrascope.daemon.session.telemetry import TelemetryFeed

from .clock import DeviceClock
from .kernel import SimulatedKernel, trips
from .plan import SCORE, DevicePlan
from .work import Work

# How much of the past a run can be paired with; no device runs for longer.
_SPAN_INTERVALS = 300
# Of each so long, a device in trouble is dark, or gone, for the share.
_TROUBLE_SECONDS, _TROUBLE_RATIO = 600.0, 0.2


class SimulatedDevice:
    """A board whose lines are parsed, counted and paired with runs as by a daemon of its own.

    Only the board and what a worker would say are made up. It belongs to one thread; its page
    can be asked for from any.

    Attributes:
        plan: What it is.
        clock: Up to when it has lived.
        ledger: What its page shows.
        page: The page.
        timeline: Its samples of the last minutes.
        work: Its runs.
        due_ns: Monotonic time from which on ``step`` may be called again.
    """

    def __init__(
        self, plan: DevicePlan, *, begin_ns: int, interval_seconds: float, privileged: bool = True
    ) -> None:
        """Switch it on.

        Args:
            plan: What it is.
            begin_ns: Monotonic time at which its life begins; may be past.
            interval_seconds: Between two lines.
            privileged: Whether its tegrastats runs as root.
        """
        self.plan = plan
        self.clock = DeviceClock(begin_ns)
        self._idle = threading.Event()  # never set: waiting is how a device's time goes on
        self._interval_ns = round(interval_seconds * 1e9)
        self._begin_ns = begin_ns
        self._load = LoadBoard()
        self._kernel = SimulatedKernel()
        model = board_model(plan.board)
        source = SimulatorSource(
            plan.board, interval_seconds=interval_seconds, seed=0, clock=self.clock
        )
        source.board = SimulatedBoard(
            model.model_copy(update={"ambient_celsius": plan.ambient_celsius}),
            self._load,
            begin_ns=begin_ns,
            privileged=privileged,
            seed=plan.number,
            most_pieces=2,
        )
        collector = TegrastatsCollector(source)
        self._samples = collector.collect()
        self.ledger = Ledger(
            Snapshot(
                environment=Environment(
                    board=plan.board,
                    power_mode="MAXN",
                    telemetry_source=source.name,
                    simulated=True,
                    versions={"tegrascope": __version__, "python": python_version()},
                ),
                trips_celsius=trips(),
            )
        )
        self.ledger.set_workloads({one.workload.name: one.workload.device for one in plan.tasks})
        energy = EnergyCounters()
        self.timeline = Timeline(
            span_seconds=_SPAN_INTERVALS * interval_seconds, source=source.name
        )
        lanes = [lane for lane in model.lanes if lane.startswith("dla")]
        self._feed = TelemetryFeed(
            collector,
            timeline=self.timeline,
            energy=energy,
            ledger=self.ledger,
            occupancy=lambda begin, end: lane_occupancy(self._load, lanes, begin, end),
            companions=(self._kernel,),
        )
        around = Surroundings(
            ledger=self.ledger,
            timeline=self.timeline,
            load=self._load,
            windows=Windows(),
            rule=lambda: energy.rule,
            clock=self.clock,
            model_directory=Path(),
            engine_directory=Path(),
        )
        self.work = Work(plan, around, begin_ns + self._interval_ns)
        self.page = Page(lambda: self.ledger.snapshot, time.monotonic_ns)
        self.due_ns = 0
        self._set_due()

    def step(self) -> None:
        """Live up to the next sample, with all that runs in between."""
        until_ns = self.clock.monotonic_ns() + self._interval_ns
        self._set_host_load(until_ns)
        self.work.go_on(until_ns)
        if self.plan.fault == "dark" and self._is_troubled(until_ns):
            self.clock.wait(self._idle, until_ns)
        else:
            sample = next(self._samples)
            self._kernel.see(sample.monotonic_ns, sample.value)
            self._feed.take(sample)
            self.work.report()
        self._set_due()

    def is_gone(self) -> bool:
        """Say whether nobody can reach it just now."""
        return self.plan.fault == "gone" and self._is_troubled(self.clock.monotonic_ns())

    def _is_troubled(self, at_ns: int) -> bool:
        seconds = (at_ns - self._begin_ns) / 1e9 + 30 * (self.plan.number // SCORE)
        return seconds % _TROUBLE_SECONDS > _TROUBLE_SECONDS * (1 - _TROUBLE_RATIO)

    def _set_due(self) -> None:
        reading_ns = round(READ_SECONDS[1] * 1e9)
        self.due_ns = self.clock.monotonic_ns() + self._interval_ns + reading_ns

    def _set_host_load(self, at_ns: int) -> None:
        """Have the rest of the machine work in waves."""
        turn = (at_ns - self._begin_ns) / 1e9 / self.plan.host_period_seconds
        ratio = self.plan.host_ratio * (0.5 - 0.5 * math.cos(math.tau * turn))
        self._load.set("cpu", ratio, at_ns)
        self._load.set("emc", ratio / 2, at_ns)
