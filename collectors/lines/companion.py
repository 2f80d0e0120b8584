"""A companion that reads the lines of a source in a thread."""

import logging
import threading
from abc import ABC, abstractmethod

from ..base import Clock, LineSource, Stamped, pause
from ..outages import OutageLog, failure_text

_LOG = logging.getLogger(__name__)
# After a fault in the source of a companion.
_AGAIN_SECONDS = 10.0
# A reader of root prints a sign of life every second, however little happens.
SILENCE_SECONDS = 5.0


class LineCompanion(ABC):
    """Reads the lines of a source in a thread, for a companion."""

    name: str

    def __init__(self, source: LineSource, clock: Clock) -> None:
        self.source = source
        self._clock = clock
        self._outage = OutageLog(self.name, clock)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the source and the thread."""
        self._stopped.set()
        self.source.stop()
        if self._thread.is_alive():
            self._thread.join(timeout=2.0)

    @abstractmethod
    def take(self, line: str, at_ns: int) -> None:
        """Take a line that arrived at ``at_ns``."""

    def _run(self) -> None:
        """Take the lines until the end of the source or ``stop``."""
        while not self._stopped.is_set():
            try:
                for line in self.source.lines():
                    self._take(line)
            except Exception as error:  # a fault in the source must not end this for good
                _LOG.debug("%s", self.name, exc_info=True)
                self._outage.note(f"its source failed, and is begun again: {failure_text(error)}")
            else:
                return
            pause(self._clock, self._stopped, _AGAIN_SECONDS)

    def _take(self, line: Stamped[str]) -> None:
        """Take a line; one that cannot be taken costs itself only."""
        try:
            self.take(line.value, line.monotonic_ns)
        except Exception as error:
            _LOG.debug("%s: %r", self.name, line.value, exc_info=True)
            self._outage.note(f"a line is left out: {failure_text(error)}")
        else:
            self._outage.note(None)
