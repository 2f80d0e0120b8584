"""A source that a command reads in a thread of its own process, and what is paired with it."""

from collections.abc import Sequence
from pathlib import Path

from ..collectors.base import Clock, LineSource
from ..collectors.board import RailRule
from ..collectors.load_board import LoadBoard
from .config import Telemetry
from .energy_counters import EnergyCounters
from .flight import Surroundings, Windows
from .ledger import Ledger
from .run_report import Environment
from .snapshot import Snapshot
from .sources import lane_occupancy, open_companions, open_telemetry
from .telemetry import TelemetryFeed
from .timeline import Timeline


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
