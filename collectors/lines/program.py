"""Lines of running programs: of a child of ours, from a Unix socket, or from a pipe."""

import logging
import os
import socket
import stat
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ...parsers.errors import UserError
from ..base import SYSTEM_CLOCK, Clock, Stamped, pause
from ..children.process import DescriptorReader, LineChild, LineReader, Quiet

# First and longest time from one start to the next; a start each 5 s takes 0.4 % of a core.
BACKOFF_SECONDS = (0.5, 5.0)
# systemd accepts at once; a socket that does not is treated as missing.
_CONNECT_SECONDS = 2.0
# Between two tries of a socket that is missing, or refuses this user.
MISSING_SOCKET_SECONDS = 60.0
# First and longest time between two tries of a socket that gives no line. The first is short: a
# helper may only be slow while the board boots. But systemd starts a unit for each connection, and
# one without tegrastats writes a line to the journal.
MUTE_SOCKET_SECONDS = (60.0, 600.0)

_LOG = logging.getLogger(__name__)
_WITHOUT_ROOT = "tegrastats runs without root, and shows less"


class _LiveSource:
    """A source with one peer at a time, which ``stop`` wakes."""

    is_live = True

    def __init__(self, name: str, interval_seconds: float | None, clock: Clock) -> None:
        self.name = name
        self.interval_seconds = interval_seconds
        self.restarts = 0
        self.problem: str | None = None
        self._clock = clock
        self._stopping = threading.Event()
        self._peer: LineReader | None = None
        self._peer_lock = threading.Lock()

    def stop(self) -> None:
        """End ``lines`` and the peer; from another thread, and more than once."""
        self._stopping.set()
        self._wake()

    def _wake(self) -> None:
        """End the present peer's ``read``."""
        with self._peer_lock:
            if self._peer is not None:
                self._peer.wake()

    @contextmanager
    def _reading(self, peer: LineReader) -> Iterator[None]:
        """Let ``stop`` wake a peer, and end it after the block."""
        with self._peer_lock:
            self._peer = peer
            if self._stopping.is_set():
                peer.wake()
        try:
            yield
        finally:
            with self._peer_lock:
                self._peer = None
            peer.end()


class ProcessSource(_LiveSource):
    """A program that prints for ever, kept alive: the lines of tegrastats.

    It is started again when it ends, and when it has been silent for ``silence_seconds``: by
    default five intervals, and two seconds at least, since the first line takes its time. The time
    between two starts is half a second at least. It doubles up to five seconds, and is short again
    after the program has been printing for ``steady_seconds``. A program that is not there is tried
    for ever, since telemetry can be installed later. An outage is one line of log, and so is its
    end: lines came for as long as the longest pause.
    """

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
        """Prepare; nothing is started before ``lines``."""
        super().__init__(name, interval_seconds, clock)
        self._argv = tuple(argv)
        self._backoff_seconds = backoff_seconds
        self._steady_ns = round(steady_seconds * 1e9)
        self._silent_since_ns: int | None = None  # the last line before an outage
        self.silence_seconds = silence_seconds or max(5 * interval_seconds, 2.0)

    def lines(self) -> Iterator[Stamped[str]]:
        """Yield lines as they arrive, whatever happens to the program, until ``stop``."""
        shortest, longest = self._backoff_seconds
        backoff = shortest
        started_before = False
        while not self._stopping.is_set():
            begin_ns = last_ns = self._clock.monotonic_ns()
            try:
                peer = self._open()
            except UserError as error:
                self._lose(str(error), last_ns)
            except OSError as error:  # no descriptor or no memory is left at present
                self._lose(f"{self._argv[0]} does not start ({error}): it is tried again", last_ns)
            else:
                self.restarts += started_before
                started_before = True
                with self._reading(peer):
                    first_ns: int | None = None
                    while isinstance(line := peer.read(self.silence_seconds), Stamped):
                        last_ns = line.monotonic_ns
                        if first_ns is None:
                            first_ns = last_ns
                        self.problem = None
                        if self._silent_since_ns is not None:
                            self._note_recovery(first_ns, last_ns)
                        yield line
                if self._stopping.is_set():
                    break
                problem = self._describe_end(line, peer)
                if problem is not None:
                    self._lose(problem, last_ns)
                if last_ns - begin_ns >= self._steady_ns:
                    backoff = shortest
            spent = (self._clock.monotonic_ns() - begin_ns) / 1e9
            pause(self._clock, self._stopping, max(backoff - spent, shortest))
            backoff = min(2 * backoff, longest)

    def _lose(self, problem: str, last_ns: int) -> None:
        """Keep a problem, and log it if an outage begins with it."""
        self.problem = problem
        if self._silent_since_ns is None:
            self._silent_since_ns = last_ns
            _LOG.warning("%s: %s", self.name, problem)

    def _note_recovery(self, first_ns: int, last_ns: int) -> None:
        """Log the end of an outage, once lines have come for as long as the longest pause."""
        assert self._silent_since_ns is not None
        if last_ns - first_ns >= self._backoff_seconds[1] * 1e9:
            seconds = (first_ns - self._silent_since_ns) / 1e9
            _LOG.info("%s: lines come again, after %.1f s without", self.name, seconds)
            self._silent_since_ns = None

    def _open(self) -> LineReader:
        """Start the program, or raise ``UserError``; then it is tried again after a pause."""
        return LineChild(self._argv, clock=self._clock)

    def _describe_end(self, why: Quiet, child: LineReader) -> str | None:
        """Return why the lines of a peer ended; None if the next peer has lines already."""
        assert isinstance(child, LineChild)
        if why is Quiet.TIMEOUT:
            how = f"printed nothing for {self.silence_seconds:g} s"
        elif child.returncode is not None and child.returncode < 0:
            how = f"was ended by signal {-child.returncode}"
        else:
            how = f"ended with status {child.returncode}"
        words = ""
        if child.last_words:
            words = f" ({' | '.join(child.last_words)})"
        return f"{self._argv[0]} {how}{words}: it is being started again"


class LineSocket(DescriptorReader):
    """One connection to a Unix socket; nothing is ever sent."""

    def __init__(self, path: Path, *, clock: Clock = SYSTEM_CLOCK) -> None:
        """Connect; raise ``UserError`` if the socket is not there, or not for this user."""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.settimeout(_CONNECT_SECONDS)
            self._socket.connect(str(path))
        except OSError as error:
            self._socket.close()
            raise _cannot_connect(path, error) from error
        self._socket.setblocking(False)
        super().__init__(self._socket.fileno(), clock=clock)

    def end(self) -> None:
        """Close the connection."""
        super().end()
        self._socket.close()


def _cannot_connect(path: Path, error: OSError) -> UserError:
    unit = f"tegrascope-{path.stem}.socket"
    if isinstance(error, FileNotFoundError):
        return UserError(f"{path} is not there", f"systemctl enable --now {unit}")
    if isinstance(error, PermissionError):
        return UserError(f"{path} is not for this user", "run as the user tegrascope, or as root")
    what = f"{path} takes no connection ({error.strerror or error})"
    return UserError(what, f"systemctl restart {unit}")


def _describe_quiet(why: Quiet, silence_seconds: float) -> str:
    """Return why a connection gives no line."""
    if why is Quiet.TIMEOUT:
        return f"gave nothing for {silence_seconds:g} s"
    return "was closed by the other end"


class SocketLines(ProcessSource):
    """Lines that a privileged unit prints per connection, with the pauses of ``ProcessSource``.

    The path of the socket takes the place of the command. Unlike ``SocketSource`` it has no
    fallback.
    """

    def _open(self) -> LineReader:
        return LineSocket(Path(self._argv[0]), clock=self._clock)

    def _describe_end(self, why: Quiet, child: LineReader) -> str | None:  # noqa: ARG002
        unit = f"journalctl -u 'tegrascope-{Path(self._argv[0]).stem}@*' may say why"
        how = _describe_quiet(why, self.silence_seconds)
        return f"{self._argv[0]} {how}: it is being connected again ({unit})"


class SocketSource(ProcessSource):
    """Lines of a tegrastats that a privileged unit runs for each connection, kept alive.

    It is connected again as ``ProcessSource`` starts a program again. Without a socket, without
    the right to connect, or if a connection brought no line, tegrastats is run here instead, and
    the log says what is lost by it. The socket is tried again later, and our own program is read
    until the socket gives its first line, so that a mute socket makes no gap.
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
        self._own_interval_seconds = interval_seconds
        self.socket_interval_seconds = socket_interval_seconds
        self._next_try_ns = clock.monotonic_ns()
        self._mute_seconds = self._pause_seconds = MUTE_SOCKET_SECONDS[0]
        # A connection beside our own program, which has given no line yet.
        self._candidate: LineSocket | None = None
        # Why the socket, and our own program, give no line, until they give one.
        self._socket_problem: str | None = None
        self._own_problem: str | None = None
        self._logged_problem: str | None = None

    def lines(self) -> Iterator[Stamped[str]]:
        """Yield lines as they arrive, from whichever of the two, until ``stop``."""
        try:
            for line in super().lines():
                if not self.is_privileged and self._has_candidate_line():
                    self._wake()
                    continue
                self._own_problem = None
                if self.is_privileged:
                    self._socket_problem = None
                elif self._socket_problem != self._logged_problem:
                    _LOG.warning("%s: %s: %s", self.name, _WITHOUT_ROOT, self._socket_problem)
                self._logged_problem = self._socket_problem
                yield line
        finally:
            self._drop_candidate()

    def _has_candidate_line(self) -> bool:
        """Return whether the socket has a line; connect beside our own program when it is due."""
        if self._candidate is not None:
            try:
                if self._candidate.has_line():
                    return True
            except EOFError:
                self._drop_candidate()
        if self._is_due():
            self._drop_candidate()
            self._candidate = self._connect()
        return False

    def _drop_candidate(self) -> None:
        if self._candidate is not None:
            self._candidate.end()
            self._candidate = None

    def _is_due(self) -> bool:
        return self._clock.monotonic_ns() >= self._next_try_ns

    def _try_in(self, seconds: float) -> None:
        self._next_try_ns = self._clock.monotonic_ns() + round(seconds * 1e9)

    def _connect(self) -> LineSocket | None:
        """Return a new connection, or None with the problem of the socket."""
        try:
            connection = LineSocket(self._path, clock=self._clock)
        except UserError as error:
            self._socket_problem = str(error)
            self._try_in(MISSING_SOCKET_SECONDS)
            return None
        self._pause_seconds = self._mute_seconds
        self._try_in(self._pause_seconds)
        self._mute_seconds = min(2 * self._mute_seconds, MUTE_SOCKET_SECONDS[1])
        return connection

    def _open(self) -> LineReader:
        """Return the candidate, or a connection if one is due, or else start our own program."""
        connection, self._candidate = self._candidate, None
        if connection is None and self._is_due():
            connection = self._connect()
        self.is_privileged = connection is not None
        if connection is not None:
            self.interval_seconds = self.socket_interval_seconds
            return connection
        self.interval_seconds = self._own_interval_seconds
        try:
            return super()._open()
        except UserError as error:
            self._keep_own_problem(str(error))
            raise UserError(error.message, self._with_socket_problem(error.remedy)) from error

    def _keep_own_problem(self, problem: str) -> None:
        """Keep why our own tegrastats fails, and log it if the outage began with the socket."""
        if self._own_problem is None and self._silent_since_ns is not None:
            _LOG.warning("%s: %s", self.name, problem)
        self._own_problem = problem

    def _with_socket_problem(self, problem: str | None) -> str:
        return "; ".join(filter(None, (problem, self._socket_problem)))

    def _describe_end(self, why: Quiet, child: LineReader) -> str | None:
        if isinstance(child, LineChild):
            return self._describe_own_end(why, child)
        problem = f"{self._path} {_describe_quiet(why, self.silence_seconds)}"
        journal = "(journalctl -u 'tegrascope-tegrastats@*')"
        if child.has_given:
            self._try_in(0.0)
            self._mute_seconds = MUTE_SOCKET_SECONDS[0]
            return f"{problem}: it is being connected again {journal}"
        # From the end of its silence: at an interval of 12 s that is as long as the first pause.
        self._try_in(self._pause_seconds)
        self._socket_problem = f"{problem} {journal}"
        return self._with_socket_problem(self._own_problem)

    def _describe_own_end(self, why: Quiet, child: LineChild) -> str | None:
        if why is Quiet.WOKEN:
            _LOG.info("%s: %s gives lines: they are used from now on", self.name, self._path)
            return None
        self._drop_candidate()
        problem = super()._describe_end(why, child)
        if child.has_given or problem is None:
            return problem
        self._keep_own_problem(problem)
        return self._with_socket_problem(problem)


class StreamSource(_LiveSource):
    """Lines from standard input until its end, or from a named pipe for ever.

    A named pipe waits for its next writer when one goes away, and a line that the last writer
    left unfinished is dropped. The last line of standard input needs no newline.
    """

    def __init__(
        self,
        path: Path | None = None,
        *,
        stdin_fd: int = 0,
        interval_seconds: float | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Check that a named pipe can be read, or raise ``UserError``; default: standard input."""
        super().__init__("stream", interval_seconds, clock)
        self.path = path
        self._stdin_fd = stdin_fd
        if path is not None:
            os.close(_open_pipe(path))

    def lines(self) -> Iterator[Stamped[str]]:
        """Yield lines as they arrive, until standard input ends or until ``stop``."""
        if self.path is None:
            yield from self._read(self._stdin_fd, keeps_rest=True)
            return
        fd = _open_pipe(self.path)
        try:
            while not self._stopping.is_set():
                yield from self._read(fd)
                if self._stopping.is_set():
                    return
                self.restarts += 1
                # The next end is opened first: a writer in between must find a reader.
                following = self._open_again(self.path)
                os.close(fd)
                fd = following
        finally:
            if fd >= 0:
                os.close(fd)

    def _open_again(self, path: Path) -> int:
        while not self._stopping.is_set():
            try:
                fd = _open_pipe(path)
            except UserError as error:
                if str(error) != self.problem:
                    self.problem = str(error)
                    _LOG.warning("%s: %s", self.name, self.problem)
            else:
                self.problem = None
                return fd
            pause(self._clock, self._stopping, 1.0)
        return -1

    def _read(self, fd: int, *, keeps_rest: bool = False) -> Iterator[Stamped[str]]:
        reader = DescriptorReader(fd, keeps_rest=keeps_rest, clock=self._clock)
        with self._reading(reader):
            while not self._stopping.is_set() and isinstance(line := reader.read(), Stamped):
                yield line


def _open_pipe(path: Path) -> int:
    """Open a named pipe for reading, without waiting for a writer."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except FileNotFoundError as error:
        raise UserError(f"{path} is not there", f"mkfifo {path}") from error
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror})", f"ls -l {path}") from error
    if not stat.S_ISFIFO(os.fstat(fd).st_mode):
        os.close(fd)
        remedy = "make one with mkfifo, or replay it as a log"
        raise UserError(f"{path} is not a named pipe", remedy)
    return fd
