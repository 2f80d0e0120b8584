"""A program that is kept alive, as a source of lines."""

import logging
import threading
from collections.abc import Iterator, Sequence

from ...parsers.errors import Mendable
from ..base import SYSTEM_CLOCK, Clock, Stamped
from ..children.process import LineChild, LineReader, Quiet

# First and longest pause before a start.
BACKOFF_SECONDS = (0.5, 30.0)

_LOG = logging.getLogger(__name__)


class ProcessSource:
    """A program that prints for ever, kept alive: the lines of tegrastats.

    It is started again when it ends, and when it has been silent for five intervals (two seconds
    at least, since the first line takes its time). Between two starts is a pause that doubles
    from half a second to thirty, and is short again after the program has been printing for
    thirty seconds. A program that is not there is tried for ever, since telemetry can be
    installed later. One line is logged for each event, never for each line read.
    """

    is_live = True

    def __init__(
        self,
        argv: Sequence[str],
        *,
        interval_seconds: float,
        name: str = "tegrastats",
        clock: Clock = SYSTEM_CLOCK,
        backoff_seconds: tuple[float, float] = BACKOFF_SECONDS,
        steady_seconds: float = 30.0,
        silence_seconds: float | None = None,
    ) -> None:
        """Prepare; nothing is started before ``lines``.

        Args:
            backoff_seconds: First and longest pause before a start.
            steady_seconds: How long the program prints until the pause is short again.
            silence_seconds: How long it may print nothing; ``None`` is the rule above.
        """
        self.name = name
        self.interval_seconds: float | None = interval_seconds
        self.restarts = 0
        self.problem: str | None = None
        self._argv = tuple(argv)
        self._clock = clock
        self._backoff_seconds = backoff_seconds
        self._steady_ns = round(steady_seconds * 1e9)
        self.silence_seconds = silence_seconds or max(5 * interval_seconds, 2.0)
        self._stopping = threading.Event()
        self._peer: LineReader | None = None
        self._peer_lock = threading.Lock()

    def lines(self) -> Iterator[Stamped[str]]:
        """Yield lines as they arrive, whatever happens to the program, until ``stop``."""
        shortest, longest = self._backoff_seconds
        pause = shortest
        started_before = False
        while not self._stopping.is_set():
            try:
                peer = self._open()
            except Mendable as error:
                self._report(str(error))
            else:
                self.restarts += started_before
                started_before = True
                begin_ns = last_ns = self._clock.monotonic_ns()
                with self._peer_lock:
                    self._peer = peer
                    if self._stopping.is_set():
                        peer.wake()
                try:
                    while isinstance(line := peer.read(self.silence_seconds), Stamped):
                        last_ns = line.monotonic_ns
                        self.problem = None
                        yield line
                finally:
                    with self._peer_lock:
                        self._peer = None
                    peer.end()
                if self._stopping.is_set():
                    break
                self._report(self._describe_end(line, peer), again=True)
                if last_ns - begin_ns >= self._steady_ns:
                    pause = shortest
            until_ns = self._clock.monotonic_ns() + round(pause * 1e9)
            self._clock.wait(self._stopping, until_ns)
            pause = min(2 * pause, longest)

    def stop(self) -> None:
        """End ``lines`` and the program; from another thread, and more than once."""
        self._stopping.set()
        with self._peer_lock:
            if self._peer is not None:
                self._peer.wake()

    def _open(self) -> LineReader:
        """Start the program, or raise ``Mendable``; then it is tried again after a pause."""
        return LineChild(self._argv, clock=self._clock)

    def _describe_end(self, why: Quiet, child: LineReader) -> str:
        assert isinstance(child, LineChild)
        if why is Quiet.TIMEOUT:
            found = f"printed nothing for {self.silence_seconds:g} s"
        elif child.returncode is not None and child.returncode < 0:
            found = f"was ended by signal {-child.returncode}"
        else:
            found = f"ended with status {child.returncode}"
        words = f" ({' | '.join(child.last_words)})" if child.last_words else ""
        return f"{self._argv[0]} {found}{words}: it is being started again"

    def _report(self, problem: str, *, again: bool = False) -> None:
        """Keep a problem and log it; the same one is logged again only where asked."""
        if again or problem != self.problem:
            _LOG.warning("%s: %s", self.name, problem)
        self.problem = problem
