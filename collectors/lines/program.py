"""tegrastats as root sees it, from a Unix socket; without the socket, as we see it ourselves."""

import logging
import socket
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from ...parsers.errors import UserError
from ..base import SYSTEM_CLOCK, Clock, Stamped
from ..children.process import DescriptorReader, LineChild, LineReader, Quiet

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
            except UserError as error:
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
        """Start the program, or raise ``UserError``; then it is tried again after a pause."""
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


# systemd accepts at once; a socket that does not is treated as missing.
CONNECT_SECONDS = 2.0
# How long a socket that gave nothing, or is missing, is left alone.
LOOK_AGAIN_SECONDS = 30.0


class LineSocket(DescriptorReader):
    """One connection to a Unix socket; nothing is ever sent."""

    def __init__(self, path: Path, *, clock: Clock = SYSTEM_CLOCK) -> None:
        """Connect.

        Raises:
            UserError: The socket is missing, not listening, or not for this user.
        """
        self._socket = _connect(path)
        super().__init__(self._socket.fileno(), clock=clock)

    def end(self) -> None:
        """Close the connection."""
        super().end()
        self._socket.close()


def _connect(path: Path) -> socket.socket:
    channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        channel.settimeout(CONNECT_SECONDS)
        channel.connect(str(path))
    except OSError as error:
        channel.close()
        unit = f"tegrascope-{path.stem}.socket"
        if isinstance(error, FileNotFoundError):
            problem = UserError(f"{path} is not there", f"systemctl enable --now {unit}")
        elif isinstance(error, PermissionError):
            what = f"{path} is not for this user"
            problem = UserError(what, "run as the user tegrascope, or as root")
        else:
            why = error.strerror or str(error)
            what = f"{path} takes no connection ({why})"
            problem = UserError(what, f"systemctl restart {unit}")
        raise problem from error
    channel.setblocking(False)
    return channel


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

    def _open(self) -> LineReader:
        return LineSocket(self._path, clock=self._clock)

    def _describe_end(self, why: Quiet, child: LineReader) -> str:  # noqa: ARG002
        found = _describe_quiet(why, self.silence_seconds)
        unit = f"journalctl -u 'tegrascope-{self._path.stem}@*' may say why"
        return f"{self._path} {found}: it is being connected again ({unit})"


def _describe_quiet(why: Quiet, silence_seconds: float) -> str:
    if why is Quiet.TIMEOUT:
        return f"gave nothing for {silence_seconds:g} s"
    return "was closed by the other end"


class _FallbackChild(LineChild):
    """Our own tegrastats, until the socket gives lines: then ``ready`` is its connection."""

    def __init__(self, argv: Sequence[str], path: Path, due_ns: int, clock: Clock) -> None:
        super().__init__(argv, clock=clock)
        self.ready: LineSocket | None = None
        self._path = path
        self._due_ns = due_ns
        self._candidate: LineSocket | None = None

    def read(self, timeout_seconds: float | None = None) -> Stamped[str] | Quiet:
        """Return the next line; the end, once the socket has one."""
        found = super().read(timeout_seconds)
        if isinstance(found, Stamped):
            self._look()
            if self.ready is not None:
                return Quiet.END
        return found

    def end(self, grace_seconds: float = 0.5) -> None:
        """End the program, and a connection that has given no line."""
        super().end(grace_seconds)
        self._drop()

    def _look(self) -> None:
        """Connect to the socket once each half minute; drop the connection if it is silent."""
        now_ns = self._clock.monotonic_ns()
        try:
            if self._candidate is not None and self._candidate.has_line():
                self.ready, self._candidate = self._candidate, None
            elif now_ns >= self._due_ns:
                self._drop()
                self._due_ns = now_ns + round(LOOK_AGAIN_SECONDS * 1e9)
                self._candidate = LineSocket(self._path, clock=self._clock)
        except (EOFError, UserError):
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
        silence_seconds: float | None = None,
    ) -> None:
        """Prepare; nothing is connected or started before ``lines``."""
        super().__init__(
            argv,
            interval_seconds=max(interval_seconds, socket_interval_seconds),
            clock=clock,
            silence_seconds=silence_seconds,
        )
        self.is_privileged = False
        self._path = path
        self._child_interval_seconds = interval_seconds
        self.socket_interval_seconds = socket_interval_seconds
        self._not_before_ns = clock.monotonic_ns()
        self._logged: str | None = None
        self._fallback: _FallbackChild | None = None

    def lines(self) -> Iterator[Stamped[str]]:
        """Yield lines as they arrive, from whichever of the two, until ``stop``."""
        try:
            yield from super().lines()
        finally:
            if self._fallback is not None and self._fallback.ready is not None:
                self._fallback.ready.end()

    def _open(self) -> LineReader:
        peer = None if self._fallback is None else self._fallback.ready
        self._fallback = None
        if peer is None and self._clock.monotonic_ns() >= self._not_before_ns:
            try:
                peer = LineSocket(self._path, clock=self._clock)
            except UserError as error:
                self._log_once(str(error))
                self._pause_socket()
        self.is_privileged = peer is not None
        if peer is not None:
            self._logged = None
            self.interval_seconds = self.socket_interval_seconds
            return peer
        self.interval_seconds = self._child_interval_seconds
        child = _FallbackChild(self._argv, self._path, self._not_before_ns, self._clock)
        self._fallback = child
        return child

    def _describe_end(self, why: Quiet, child: LineReader) -> str:
        if isinstance(child, _FallbackChild):
            if child.ready is not None:
                return f"{self._path} gives lines: they are used from now on"
            return super()._describe_end(why, child)
        found = _describe_quiet(why, self.silence_seconds)
        then = "it is being connected again"
        if not child.has_given:
            self._pause_socket()
            then = "tegrastats runs without root meanwhile, and shows less"
        return f"{self._path} {found}: {then} (journalctl -u 'tegrascope-tegrastats@*')"

    def _pause_socket(self) -> None:
        self._not_before_ns = self._clock.monotonic_ns() + round(LOOK_AGAIN_SECONDS * 1e9)

    def _log_once(self, problem: str) -> None:
        if problem != self._logged:
            _LOG.warning("%s: tegrastats runs without root, and shows less: %s", self.name, problem)
        self._logged = problem
