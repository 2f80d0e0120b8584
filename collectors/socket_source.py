"""tegrastats as root sees it, from a Unix socket; without the socket, as we see it ourselves."""

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path

from ..parsers.errors import Mendable
from .base import SYSTEM_CLOCK, Clock, Stamped
from .line_socket import LineSocket
from .process import LineChild, Quiet
from .process_source import Peer, ProcessSource

# How long a socket that gave nothing, or is not there, is left alone.
LOOK_AGAIN_SECONDS = 30.0

_LOG = logging.getLogger(__name__)


class _Stopgap(LineChild):
    """Our own tegrastats, until the socket gives lines.

    Attributes:
        relief: The connection that has a line; none of its lines has been read.
    """

    def __init__(self, argv: Sequence[str], path: Path, due_ns: int, clock: Clock) -> None:
        super().__init__(argv, clock=clock)
        self.relief: LineSocket | None = None
        self._path = path
        self._look_clock = clock
        self._due_ns = due_ns
        self._candidate: LineSocket | None = None

    def read(self, timeout_seconds: float | None = None) -> Stamped[str] | Quiet:
        """Return the next line; the end, once the socket has one."""
        found = super().read(timeout_seconds)
        if isinstance(found, Stamped):
            self._look()
            if self.relief is not None:
                return Quiet.END
        return found

    def end(self, grace_seconds: float = 0.5) -> None:
        """End the program, and the connection if it is not wanted."""
        super().end(grace_seconds)
        self._drop()

    def _look(self) -> None:
        """Look after the socket: connected once each half minute, and dropped if it is mute."""
        now_ns = self._look_clock.monotonic_ns()
        try:
            if self._candidate is not None and self._candidate.has_line():
                self.relief, self._candidate = self._candidate, None
            elif now_ns >= self._due_ns:
                self._drop()
                self._due_ns = now_ns + round(LOOK_AGAIN_SECONDS * 1e9)
                self._candidate = LineSocket(self._path, clock=self._look_clock)
        except (EOFError, Mendable):
            self._drop()

    def _drop(self) -> None:
        if self._candidate is not None:
            self._candidate.end()
            self._candidate = None


class SocketSource(ProcessSource):
    """Lines of a tegrastats that a privileged unit runs for each connection, kept alive.

    It is connected again when the other end closes, and when it has been silent, with the pauses
    of ``ProcessSource``. Where there is no socket, where this user may not connect, or where a
    connection brought no line, tegrastats is run here instead, and the log says what is lost by
    it; every half minute the socket is looked for again.

    Attributes:
        is_privileged: Whether the present lines come from the socket.
    """

    def __init__(
        self,
        path: Path,
        argv: Sequence[str],
        *,
        socket_interval_seconds: float,
        interval_seconds: float,
        clock: Clock = SYSTEM_CLOCK,
        backoff_seconds: tuple[float, float] = (0.5, 30.0),
        steady_seconds: float = 30.0,
        silence_seconds: float | None = None,
    ) -> None:
        """Prepare; nothing is connected or started before ``lines``.

        Args:
            path: The socket.
            argv: What to run without it.
            socket_interval_seconds: Nominal time between two lines of the socket.
            interval_seconds: The same of our own program.
            clock: Where stamps come from and pauses go to.
            backoff_seconds: First and longest pause before a start.
            steady_seconds: How long lines come until the pause is short again.
            silence_seconds: How long there may be no line; ``None`` is five intervals, and two
                seconds at least.
        """
        super().__init__(
            argv,
            interval_seconds=max(interval_seconds, socket_interval_seconds),
            clock=clock,
            backoff_seconds=backoff_seconds,
            steady_seconds=steady_seconds,
            silence_seconds=silence_seconds,
        )
        self.is_privileged = False
        self._path = path
        self._intervals = (interval_seconds, socket_interval_seconds)
        self._not_before_ns = clock.monotonic_ns()
        self._said: str | None = None
        self._relief: LineSocket | None = None

    def lines(self) -> Iterator[Stamped[str]]:
        """Yield lines as they arrive, from whichever of the two, until ``stop``."""
        try:
            yield from super().lines()
        finally:
            if self._relief is not None:
                self._relief.end()

    def _open(self) -> Peer:
        if self._relief is not None:
            peer, self._relief = self._relief, None
            return self._take_over(peer)
        if self._clock.monotonic_ns() >= self._not_before_ns:
            try:
                peer = LineSocket(self._path, clock=self._clock)
            except Mendable as error:
                self._say(str(error))
                self._leave_alone()
            else:
                return self._take_over(peer)
        self.is_privileged = False
        self.interval_seconds = self._intervals[0]
        return _Stopgap(self._argv, self._path, self._not_before_ns, self._clock)

    def _take_over(self, peer: LineSocket) -> LineSocket:
        self.is_privileged, self._said = True, None
        self.interval_seconds = self._intervals[1]
        return peer

    def _obituary(self, why: Quiet, child: Peer) -> str:
        if isinstance(child, _Stopgap):
            if child.relief is not None:
                self._relief = child.relief
                return f"{self._path} gives lines: they are used from now on"
            return super()._obituary(why, child)
        assert isinstance(child, LineSocket)
        if child.lines == 0:
            self._leave_alone()
        silent = f"gave nothing for {self._silence_seconds:g} s"
        found = silent if why is Quiet.TIMEOUT else "was closed by the other end"
        unit = "journalctl -u 'tegrascope-tegrastats@*' may say why"
        return f"{self._path} {found}: it is being connected again ({unit})"

    def _leave_alone(self) -> None:
        self._not_before_ns = self._clock.monotonic_ns() + round(LOOK_AGAIN_SECONDS * 1e9)

    def _say(self, problem: str) -> None:
        if problem != self._said:
            _LOG.warning("%s: tegrastats runs without root, and shows less: %s", self.name, problem)
        self._said = problem
