"""tegrastats as root sees it, from a Unix socket; without the socket, as we see it ourselves."""

import logging
import os
import select
import socket
import time
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path

from ...parsers.errors import Mendable
from ..base import SYSTEM_CLOCK, Clock, Stamped
from ..children.process import READ_SIZE, LineBuffer, LineChild, Quiet, Waker
from .program import BACKOFF_SECONDS, Peer, ProcessSource

# systemd accepts at once; who does not within this is as good as not there.
CONNECT_SECONDS = 2.0


class LineSocket:
    """One connection, whose bytes arrive as stamped lines; nothing is ever sent.

    A line bears the time at which the read that brought its newline returned. ``read`` and
    ``end`` belong to one thread; ``wake`` may be called from any.
    """

    def __init__(self, path: Path, *, clock: Clock = SYSTEM_CLOCK) -> None:
        """Connect.

        Raises:
            Mendable: The socket is missing, not listening, or not for this user.
        """
        self.lines = 0
        self._clock = clock
        self._buffer = LineBuffer()
        self._waiting: deque[Stamped[str]] = deque()
        self._socket = _connect(path)
        self._waker = Waker()
        self._poll = select.poll()
        self._poll.register(self._socket.fileno(), select.POLLIN)
        self._poll.register(self._waker.fileno(), select.POLLIN)

    def read(self, timeout_seconds: float | None = None) -> Stamped[str] | Quiet:
        """Return the next line, or why there is none.

        Args:
            timeout_seconds: How long to wait; ``None`` waits until something happens.
        """
        until = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        while not self._waiting:
            left = None if until is None else max(0.0, until - time.monotonic())
            ready = {fd for fd, _ in self._poll.poll(None if left is None else left * 1000)}
            if self._waker.fileno() in ready:
                self._waker.clear()
                return Quiet.WOKEN
            if self._socket.fileno() in ready and not self._take():
                return Quiet.END
            if not self._waiting and left == 0:
                return Quiet.TIMEOUT
        self.lines += 1
        return self._waiting.popleft()

    def has_line(self) -> bool:
        """Say, without waiting, whether a line is there to be read.

        Raises:
            EOFError: There is none, and none will come.
        """
        if not self._waiting and any(
            fd == self._socket.fileno() and not self._take() for fd, _ in self._poll.poll(0)
        ):
            raise EOFError
        return bool(self._waiting)

    def wake(self) -> None:
        """End the present ``read``, or the next one, with ``Quiet.WOKEN``; from any thread."""
        self._waker.wake()

    def end(self) -> None:
        """Close the connection; more than once is harmless."""
        self._socket.close()
        self._waker.close()

    def _take(self) -> bool:
        """Take what has arrived; say whether there may be more."""
        try:
            data = os.read(self._socket.fileno(), READ_SIZE)
        except BlockingIOError:
            return True
        except OSError:  # reset by the other end, which is an end as well
            return False
        now_ns, wall_ns = self._clock.monotonic_ns(), self._clock.wall_ns()
        self._waiting.extend(Stamped(now_ns, wall_ns, line) for line in self._buffer.feed(data))
        return bool(data)


def _connect(path: Path) -> socket.socket:
    channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        channel.settimeout(CONNECT_SECONDS)
        channel.connect(str(path))
    except OSError as error:
        channel.close()
        raise Mendable(*_trouble(path, error)) from error
    channel.setblocking(False)
    return channel


def _trouble(path: Path, error: OSError) -> tuple[str, str]:
    unit = f"tegrascope-{path.stem}.socket"
    if isinstance(error, FileNotFoundError):
        return f"{path} is not there", f"systemctl enable --now {unit}"
    if isinstance(error, PermissionError):
        return f"{path} is not for this user", "run as the user tegrascope, or as root"
    why = error.strerror or str(error)
    return f"{path} takes no connection ({why})", f"systemctl restart {unit}"


class SocketLines(ProcessSource):
    """Lines that a privileged unit prints per connection, with the pauses of ``ProcessSource``.

    Unlike ``SocketSource`` it has no fallback: without a socket it gives nothing, and
    ``problem`` says so.
    """

    def __init__(
        self,
        path: Path,
        *,
        name: str,
        silence_seconds: float,
        clock: Clock = SYSTEM_CLOCK,
        backoff_seconds: tuple[float, float] = BACKOFF_SECONDS,
    ) -> None:
        """Prepare; nothing is connected before ``lines``.

        Args:
            path: The socket; its unit is called ``tegrascope-`` and its name.
            backoff_seconds: First and longest pause before a connection.
        """
        super().__init__(
            (str(path),),
            interval_seconds=silence_seconds / 5,
            name=name,
            clock=clock,
            backoff_seconds=backoff_seconds,
            silence_seconds=silence_seconds,
        )
        self._path = path

    def _open(self) -> Peer:
        return LineSocket(self._path, clock=self._clock)

    def _describe_end(self, why: Quiet, child: Peer) -> str:  # noqa: ARG002
        silent = f"gave nothing for {self.silence_seconds:g} s"
        found = silent if why is Quiet.TIMEOUT else "was closed by the other end"
        unit = f"journalctl -u 'tegrascope-{self._path.stem}@*' may say why"
        return f"{self._path} {found}: it is being connected again ({unit})"


# How long a socket that gave nothing, or is not there, is left alone.
LOOK_AGAIN_SECONDS = 30.0

_LOG = logging.getLogger(__name__)


class _FallbackChild(LineChild):
    """Our own tegrastats, until the socket gives lines.

    ``ready`` is where it puts the connection that has a line, of which none has been read.
    """

    def __init__(
        self,
        argv: Sequence[str],
        path: Path,
        due_ns: int,
        ready: list[LineSocket],
        clock: Clock,
    ) -> None:
        super().__init__(argv, clock=clock)
        self._path = path
        self._look_clock = clock
        self._due_ns = due_ns
        self._ready = ready
        self._candidate: LineSocket | None = None

    def read(self, timeout_seconds: float | None = None) -> Stamped[str] | Quiet:
        """Return the next line; the end, once the socket has one."""
        found = super().read(timeout_seconds)
        if isinstance(found, Stamped):
            self._look()
            if self._ready:
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
                self._ready.append(self._candidate)
                self._candidate = None
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
    of ``ProcessSource``. Without a socket, without the right to connect, or if a
    connection brought no line, tegrastats is run here instead, and the log says what is lost by
    it; every half minute the socket is looked for again.
    """

    def __init__(
        self,
        path: Path,
        argv: Sequence[str],
        *,
        socket_interval_seconds: float,
        interval_seconds: float,
        clock: Clock = SYSTEM_CLOCK,
        backoff_seconds: tuple[float, float] = BACKOFF_SECONDS,
        steady_seconds: float = 30.0,
        silence_seconds: float | None = None,
    ) -> None:
        """Prepare; nothing is connected or started before ``lines``.

        Args:
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
        self._child_interval_seconds = interval_seconds
        self.socket_interval_seconds = socket_interval_seconds
        self._not_before_ns = clock.monotonic_ns()
        self._said: str | None = None
        self._ready: list[LineSocket] = []

    def lines(self) -> Iterator[Stamped[str]]:
        """Yield lines as they arrive, from whichever of the two, until ``stop``."""
        try:
            yield from super().lines()
        finally:
            for peer in self._ready:
                peer.end()

    def _open(self) -> Peer:
        if self._ready:
            return self._take_over(self._ready.pop())
        if self._clock.monotonic_ns() >= self._not_before_ns:
            try:
                peer = LineSocket(self._path, clock=self._clock)
            except Mendable as error:
                self._say(str(error))
                self._pause_socket()
            else:
                return self._take_over(peer)
        self.is_privileged = False
        self.interval_seconds = self._child_interval_seconds
        return _FallbackChild(self._argv, self._path, self._not_before_ns, self._ready, self._clock)

    def _take_over(self, peer: LineSocket) -> LineSocket:
        self.is_privileged, self._said = True, None
        self.interval_seconds = self.socket_interval_seconds
        return peer

    def _describe_end(self, why: Quiet, child: Peer) -> str:
        if isinstance(child, _FallbackChild):
            if self._ready:
                return f"{self._path} gives lines: they are used from now on"
            return super()._describe_end(why, child)
        assert isinstance(child, LineSocket)
        silent = f"gave nothing for {self.silence_seconds:g} s"
        found = silent if why is Quiet.TIMEOUT else "was closed by the other end"
        then = "it is being connected again"
        if child.lines == 0:
            self._pause_socket()
            then = "tegrastats runs without root meanwhile, and shows less"
        return f"{self._path} {found}: {then} (journalctl -u 'tegrascope-tegrastats@*')"

    def _pause_socket(self) -> None:
        self._not_before_ns = self._clock.monotonic_ns() + round(LOOK_AGAIN_SECONDS * 1e9)

    def _say(self, problem: str) -> None:
        if problem != self._said:
            _LOG.warning("%s: tegrastats runs without root, and shows less: %s", self.name, problem)
        self._said = problem
