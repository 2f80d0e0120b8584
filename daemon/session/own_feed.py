"""A source that a command reads in a thread of its own process, and what is paired with it."""

import time
from collections.abc import Sequence
from pathlib import Path

from ...collectors.base import Clock, LineSource
from ...collectors.board.boards import RailRule
from ...collectors.simulator.load import LoadBoard
from ..export.snapshot import Snapshot
from ..export.state import Ledger
from ..measure.energy import EnergyCounters
from ..measure.run_report import Environment, RunReport
from ..measure.run_trace import RunTrace
from ..measure.timeline import Timeline
from ..settings.config import Config, Telemetry
from .executor import Verdict
from .pairing import Surroundings, Windows, await_telemetry, pair
from .sources import environment_of, lane_occupancy, open_companions, open_telemetry
from .telemetry import TelemetryFeed


class OwnFeed:
    """Telemetry for one command, by the same parts as the daemon's.

    Attributes:
        surroundings: What runs are paired with; there before any source is open.
    """

    def __init__(
        self,
        environment: Environment,
        clock: Clock,
        *,
        span_seconds: float,
        model_directory: Path = Path(),
        engine_directory: Path = Path(),
    ) -> None:
        """Prepare; nothing is read yet.

        Args:
            environment: Where the command runs, as far as is known.
            clock: The time.
            span_seconds: Longer than the command: nothing may be dropped before its end.
            model_directory: Where built-in models are cached.
            engine_directory: Where built engines are cached.
        """
        self._energy = EnergyCounters()
        self._feed: TelemetryFeed | None = None
        self.surroundings = Surroundings(
            ledger=Ledger(Snapshot(environment=environment)),
            timeline=Timeline(span_seconds=span_seconds),
            load=LoadBoard(),
            windows=Windows(),
            rule=lambda: self._energy.rule,
            clock=clock,
            model_directory=model_directory,
            engine_directory=engine_directory,
        )

    @property
    def environment(self) -> Environment:
        """Where the command runs, as far as is known by now."""
        return self.surroundings.ledger.snapshot.environment

    def open(
        self, telemetry: Telemetry, rule: RailRule | None, lanes: Sequence[str] = ()
    ) -> LineSource:
        """Open a source.

        Args:
            telemetry: Which.
            rule: How the board's rails add up; ``None`` has the rails tell.
            lanes: DLA cores on which our own runs may be.

        Returns:
            The source, which nobody reads before ``start``.

        Raises:
            Mendable: The recorded log or the pipe can't be read.
        """
        around = self.surroundings
        collector = open_telemetry(telemetry, around.load, around.clock)
        source = collector.source
        around.timeline.source = source.name
        simulated = self.environment.simulated or not source.is_live
        around.ledger.update(
            environment=self.environment.model_copy(update={"simulated": simulated})
        )
        self._feed = TelemetryFeed(
            collector,
            timeline=around.timeline,
            energy=self._energy,
            ledger=around.ledger,
            occupancy=lambda begin_ns, end_ns: lane_occupancy(around.load, lanes, begin_ns, end_ns),
            rule=rule,
            companions=open_companions(telemetry, around.clock),
        )
        return source

    def start(self) -> None:
        """Begin to read."""
        if self._feed is not None:
            self._feed.start()

    @property
    def has_ended(self) -> bool:
        """Whether no sample comes any more."""
        return self._feed is not None and self._feed.problem is not None

    def why(self) -> str | None:
        """Say why no samples come, where that is known."""
        return None if self._feed is None else self._feed.why()

    def stop(self) -> None:
        """End the source."""
        if self._feed is not None:
            self._feed.stop()


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
        self._own = OwnFeed(environment_of(config, True), clock, span_seconds=_SPAN_SECONDS)
        self._source = self._own.open(config.telemetry, config.board)
        self._timeline = self._own.surroundings.timeline
        self.load = self._own.surroundings.load

    def start(self) -> None:
        """Begin to read, and wait for the first sample, for a while and where one may come."""
        self._own.start()
        until = time.monotonic() + max(_FIRST_SECONDS, 2 * (self._source.interval_seconds or 0))
        while self._timeline.latest_ns is None and time.monotonic() < until:
            if self.why() is not None:
                return
            self._timeline.wait_past(0, 0.05)

    def why(self) -> str | None:
        """Say why no samples come, where that is known."""
        return self._own.why()

    def stop(self) -> None:
        """End the source."""
        self._own.stop()

    def pair(self, trace: RunTrace, verdict: Verdict) -> RunReport:
        """Pair a run with what was read in its window, after the sample that follows it."""
        if self._timeline.latest_ns is not None:
            await_telemetry(self._own.surroundings, trace)
        return pair(self._own.surroundings, trace, verdict)
