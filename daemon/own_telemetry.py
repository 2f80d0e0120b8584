"""Telemetry for one command, without a daemon: read for as long as the command runs."""

import time

from ..collectors.base import Clock
from .config import Config
from .environment import environment_of
from .flight import await_telemetry, pair
from .lanes import Verdict
from .own_feed import OwnFeed
from .run_report import RunReport
from .run_trace import RunTrace

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
