"""Telemetry for one command, without a daemon: read for as long as the command runs."""

import time
from pathlib import Path

from ..collectors.base import Clock
from ..collectors.load_board import LoadBoard
from .config import Config
from .energy_counters import EnergyCounters
from .environment import environment_of
from .flight import Surroundings, Windows, await_telemetry, pair
from .lanes import Verdict
from .ledger import Ledger
from .run_report import RunReport
from .run_trace import RunTrace
from .snapshot import Snapshot
from .sources import open_companions, open_telemetry
from .telemetry import TelemetryFeed
from .timeline import Timeline

# Longer than any command: of what is measured nothing may be dropped before its end.
_SPAN_SECONDS = 365 * 86_400.0
_FIRST_SECONDS = 3.0


class OwnTelemetry:
    """A source that is read in a thread of this process.

    Attributes:
        load: What the simulated board is told of the work.
    """

    def __init__(self, config: Config, clock: Clock) -> None:
        """Open the source.

        Raises:
            Mendable: The recorded log or the pipe can't be read.
        """
        self.load = LoadBoard()
        collector = open_telemetry(config.telemetry, self.load, clock)
        self._source = collector.source
        self._timeline = Timeline(_SPAN_SECONDS, source=self._source.name)
        energy = EnergyCounters()
        environment = environment_of(config, self._source.is_live)
        self._surroundings = Surroundings(
            ledger=Ledger(Snapshot(environment=environment)),
            timeline=self._timeline,
            load=self.load,
            windows=Windows(),
            rule=lambda: energy.rule,
            clock=clock,
            model_directory=Path(),
            engine_directory=Path(),
        )
        self._feed = TelemetryFeed(
            collector,
            timeline=self._timeline,
            energy=energy,
            ledger=self._surroundings.ledger,
            occupancy=lambda _begin_ns, _end_ns: {},
            rule=config.board,
            companions=open_companions(config.telemetry, clock),
        )

    def start(self) -> None:
        """Begin to read, and wait for the first sample, for a while and where one may come."""
        self._feed.start()
        until = time.monotonic() + max(_FIRST_SECONDS, 2 * (self._source.interval_seconds or 0))
        while self._timeline.latest_ns is None and time.monotonic() < until:
            if self.why() is not None:
                return
            self._timeline.wait_past(0, 0.05)

    def why(self) -> str | None:
        """Say why no samples come, where that is known."""
        return self._feed.why()

    def stop(self) -> None:
        """End the source."""
        self._feed.stop()

    def pair(self, trace: RunTrace, verdict: Verdict) -> RunReport:
        """Pair a run with what was read in its window, after the sample that follows it."""
        if self._timeline.latest_ns is not None:
            await_telemetry(self._surroundings, trace)
        return pair(self._surroundings, trace, verdict)
