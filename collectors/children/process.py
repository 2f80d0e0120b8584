"""A child process as stamped lines: started, read, written to, ended."""

import contextlib
import enum
import errno
import logging
import math
import os
import select
import signal
import subprocess
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from ...parsers.errors import UserError
from ..base import SYSTEM_CLOCK, Clock, Stamped
from ..paths import is_directory

LONGEST_LINE = 64 * 1024
# More than a pipe or a Unix socket holds, so that a backlog is one read.
READ_SIZE = 256 * 1024
LAST_WORDS_BYTES = 8192
LAST_WORDS_LINES = 40
NO_PIDFD_SECONDS = 0.25

_LOG = logging.getLogger(__name__)
_Reader = TypeVar("_Reader", bound="LineReader")


class LineBuffer:
    r"""Bytes become whole lines; the rest after the last newline waits for its own.

    A line of more than ``longest`` bytes is cut there and the rest of it dropped, so a peer that
    never sends a newline costs no memory. Bytes that are not UTF-8 are kept as ``\xNN``.

    >>> buffer = LineBuffer()
    >>> buffer.feed(b"one\ntw"), buffer.feed(b"o\n")
    (['one'], ['two'])
    """

    def __init__(self, longest: int = LONGEST_LINE) -> None:
        self._longest = longest
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[str]:
        """Take data and return the lines that it completes, without their newline."""
        *whole, rest = data.split(b"\n")
        lines = []
        for part in whole:
            self._keep(part)
            lines.append(self.take_rest())
        self._keep(rest)
        return lines

    def take_rest(self) -> str:
        """Return the text that has no newline yet, and forget it."""
        text = self._rest.decode("utf-8", "backslashreplace")
        self._rest.clear()
        return text

    def _keep(self, part: bytes) -> None:
        self._rest += part[: self._longest - len(self._rest)]


class Quiet(enum.Enum):
    """Why a read brought no line."""

    TIMEOUT = "timeout"
    WOKEN = "woken"  # another thread called ``wake``
    END = "end"  # the other side is gone, and all that it printed has been read


class LineReader(ABC):
    """Stamped lines of a peer, read by one thread. Use it as a context manager, or call ``end``.

    A line bears the time at which the read that brought its newline returned. Lines of one read
    share it, and each bears the number of those that follow. Text without a newline is not
    returned.
    """

    def __init__(self, clock: Clock) -> None:
        self.has_given = False
        self._clock = clock
        self._buffer = LineBuffer()
        self._lines: deque[Stamped[str]] = deque()
        self._wake_lock = threading.Lock()
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poll = select.poll()
        self._poll.register(self._wake_fd, select.POLLIN)

    def __enter__(self: _Reader) -> _Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def read(self, timeout_seconds: float | None = None) -> Stamped[str] | Quiet:
        """Return the next line, or why there is none; without a timeout it waits for either."""
        until = math.inf
        if timeout_seconds is not None:
            until = time.monotonic() + timeout_seconds
        while not self._lines:
            left = until - time.monotonic()
            quiet = self._await(left)
            if quiet is not None:
                return quiet
            if not self._lines and left <= 0:
                return Quiet.TIMEOUT
        return self._lines.popleft()

    def wake(self) -> None:
        """End the present ``read``, or the next one, with ``Quiet.WOKEN``; from any thread."""
        with self._wake_lock:
            if self._wake_fd >= 0:
                os.eventfd_write(self._wake_fd, 1)

    def end(self) -> None:
        """Close our descriptors, and end the peer if it is a child; more than once is harmless."""
        with self._wake_lock:
            if self._wake_fd >= 0:
                os.close(self._wake_fd)
                self._wake_fd = -1

    def _ready(self, seconds: float) -> set[int]:
        """Wait for any event, and return the descriptors that are ready."""
        # poll(2) has 32 bits for it; a caller with a later deadline waits again.
        milliseconds = min(max(0.0, seconds * 1000), 86_400_000.0)
        return {fd for fd, _ in self._poll.poll(milliseconds)}

    def _is_woken(self, ready: Collection[int]) -> bool:
        """Return whether ``wake`` was called, and forget it."""
        if self._wake_fd not in ready:
            return False
        os.eventfd_read(self._wake_fd)
        return True

    @abstractmethod
    def _await(self, seconds: float) -> Quiet | None:
        """Wait for data and take it; return a reason if no line will come of it."""

    def _take_lines(self, data: bytes, *, with_rest: bool = False) -> None:
        now_ns, wall_ns = self._clock.monotonic_ns(), self._clock.wall_ns()
        lines = self._buffer.feed(data)
        if with_rest:
            rest = self._buffer.take_rest()
            if rest:
                lines.append(rest)
        for following, line in zip(reversed(range(len(lines))), lines, strict=True):
            self._lines.append(Stamped(now_ns, wall_ns, line, following))
            self.has_given = True


class DescriptorReader(LineReader):
    """The lines of a descriptor that belongs to the caller and stays open."""

    def __init__(self, fd: int, *, keeps_rest: bool = False, clock: Clock = SYSTEM_CLOCK) -> None:
        """Prepare; ``keeps_rest``: the last line needs no newline."""
        super().__init__(clock)
        self._fd = fd
        self._keeps_rest = keeps_rest
        self._poll.register(fd, select.POLLIN)

    def has_line(self) -> bool:
        """Return, without waiting, whether a line can be read; ``EOFError`` if none will come."""
        if not self._lines and self._await(0) is Quiet.END:
            raise EOFError
        return bool(self._lines)

    def _await(self, seconds: float) -> Quiet | None:
        ready = self._ready(seconds)
        if self._is_woken(ready):
            return Quiet.WOKEN
        if self._fd not in ready:
            return None
        try:
            data = os.read(self._fd, READ_SIZE)
        except BlockingIOError:
            return None
        except ConnectionError:  # reset by the other end, which is an end as well
            return Quiet.END
        self._take_lines(data, with_rest=self._keeps_rest and not data)
        if data or self._lines:
            return None
        return Quiet.END


class LineChild(LineReader):
    """One child process, whose output arrives as stamped lines.

    The child leads a process group of its own, and ``end`` ends the whole group, reaps the child
    and closes its pipes. Standard output is read straight from the descriptor, so that not one
    byte is lost to a thread or a stdio buffer. The tail of standard error is kept.

    ``read`` and ``end`` belong to one thread; ``send`` and ``wake`` may be called from any.
    ``returncode`` is that of ``subprocess``, once ``end`` has returned.

    >>> with LineChild(["cat"], stdin=True) as child:
    ...     sent = child.send("hello")
    ...     line = child.read()
    >>> line.value, child.returncode
    ('hello', -15)
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        stdin: bool = False,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Start the child, or raise ``UserError``.

        Args:
            env: The whole environment; ``None`` passes on our own.
            stdin: Whether ``send`` is wanted; otherwise the child reads ``/dev/null``.
        """
        super().__init__(clock)
        self._stderr_tail = b""
        self._ending = False
        self._stdin_lock = threading.Lock()
        self.returncode: int | None = None
        try:
            self._process = subprocess.Popen(
                list(argv),
                bufsize=0,
                stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                env=env,
                cwd=cwd,
            )
        except OSError as error:
            super().end()
            if cwd is not None and not is_directory(cwd):
                what = f"{cwd} is not a directory"
                raise UserError(what, "create it, or name another one") from error
            raise cannot_start(argv[0], error) from error
        self.pid = self._process.pid
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._stdout = self._process.stdout.fileno()
        self._stderr = self._process.stderr.fileno()
        self._open_fds = {self._stdout, self._stderr}
        for fd in self._open_fds:
            os.set_blocking(fd, False)
            self._poll.register(fd, select.POLLIN)
        self._pidfd: int | None = None
        with contextlib.suppress(AttributeError, OSError):  # kernels before 5.3 have none
            self._pidfd = os.pidfd_open(self.pid)  # it becomes readable at the exit
            self._poll.register(self._pidfd, select.POLLIN)
        if self._process.stdin is not None:
            os.set_blocking(self._process.stdin.fileno(), False)

    @property
    def exited(self) -> bool:
        """Whether the child itself is gone; its own children may not be."""
        if self.returncode is not None:
            return True
        try:  # leaves the child unreaped, so that its pid and group stay ours until ``end``
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            return True

    @property
    def last_words(self) -> tuple[str, ...]:
        """The last lines of standard error: at most 40 of them, and 8 KiB."""
        text = self._stderr_tail.decode("utf-8", "backslashreplace")
        return tuple(text.splitlines()[-LAST_WORDS_LINES:])

    def _await(self, seconds: float) -> Quiet | None:
        if self._ending or self._stdout not in self._open_fds:
            return Quiet.END
        gone = self.exited  # asked before the pipe is looked at, or a last line would be missed
        if gone:
            seconds = 0.0
        ready = self._wait(seconds)
        if self._is_woken(ready):
            return Quiet.WOKEN
        if gone and self._stdout not in ready:
            # Another process may hold the pipe open; all that the child itself wrote has been read.
            return Quiet.END
        return None

    def send(self, line: str, timeout_seconds: float = 5.0) -> bool:
        """Write one line to the child's standard input; from any thread.

        False means that the child takes no more lines: call ``end``. True means that the pipe has
        the line, not that the child has read it.
        """
        if "\n" in line:
            raise ValueError(f"one line has no newline in it: {line!r}")
        rest = memoryview(f"{line}\n".encode())
        until = time.monotonic() + timeout_seconds
        with self._stdin_lock:
            stdin = self._process.stdin
            if stdin is None or stdin.closed:
                return False
            writable = select.poll()
            writable.register(stdin.fileno(), select.POLLOUT)
            while rest:
                try:
                    rest = rest[os.write(stdin.fileno(), rest) :]
                except BlockingIOError:
                    left = until - time.monotonic()
                    if left <= 0 or self._ending:
                        return False
                    writable.poll(min(left, 0.1) * 1000)
                except BrokenPipeError:
                    return False
        return True

    def close_input(self) -> None:
        """Close the child's standard input, which asks many programs to end."""
        with self._stdin_lock:
            if self._process.stdin is not None:
                self._process.stdin.close()

    def end(self, grace_seconds: float = 0.5) -> None:
        """End the whole process group, reap the child and close every descriptor.

        A child that has closed its output is about to exit, and is given the grace to do so, since
        its own exit status tells more than our signal. Then SIGTERM goes to the group; once the
        child is gone and its pipes are at their end, or when the grace is over, SIGKILL goes to
        the rest of the group. Output meanwhile is dropped, except the last words.
        """
        if self._ending:
            return
        self._ending = True
        if self._stdout not in self._open_fds:
            self._wait_until(lambda: self.exited, grace_seconds)
        self._signal_group(signal.SIGTERM)
        self.close_input()
        self._wait_until(lambda: self.exited and not self._open_fds, grace_seconds)
        self._signal_group(signal.SIGKILL)  # the child is not reaped yet, so the group is ours
        # The rest of standard error, without waiting and without trusting its end.
        with contextlib.suppress(OSError):
            for _ in range(16):
                if self._stderr in self._open_fds:
                    self._take(self._stderr)
        try:
            self.returncode = self._process.wait(timeout=5.0)
        except subprocess.TimeoutExpired:
            _LOG.error("process %d does not end, even when killed", self.pid)
        super().end()
        if self._pidfd is not None:
            os.close(self._pidfd)
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()
        self._open_fds.clear()

    def _wait_until(self, is_over: Callable[[], bool], seconds: float) -> None:
        until = time.monotonic() + seconds
        while not is_over():
            left = until - time.monotonic()
            if left <= 0:
                return
            self._is_woken(self._wait(left))

    def _wait(self, seconds: float) -> set[int]:
        """Wait as ``_ready`` does, and take the data."""
        if self._pidfd is None:
            seconds = min(seconds, NO_PIDFD_SECONDS)
        elif self.exited:  # it stays readable for ever; only the pipes still have news
            self._unregister(self._pidfd)
        ready = self._ready(seconds)
        for fd in ready & self._open_fds:
            self._take(fd)
        return ready

    def _take(self, fd: int) -> None:
        try:
            data = os.read(fd, READ_SIZE)
        except BlockingIOError:
            return
        if not data:
            self._open_fds.discard(fd)
            self._unregister(fd)
        elif fd == self._stderr:
            self._stderr_tail = (self._stderr_tail + data)[-LAST_WORDS_BYTES:]
        elif not self._ending:
            self._take_lines(data)

    def _unregister(self, fd: int) -> None:
        with contextlib.suppress(KeyError):
            self._poll.unregister(fd)

    def _signal_group(self, number: signal.Signals) -> None:
        # PermissionError: the child runs as somebody else (sudo); closing its pipe must do.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)


class CannotStartError(UserError):
    """The program does not start; 127 if it was not found, 126 if it cannot be executed."""

    def __init__(self, status: int, what: str, remedy: str) -> None:
        super().__init__(what, remedy)
        self.status = status


def cannot_start(program: str, error: Exception) -> CannotStartError:
    """Return the error of a program that was not started."""
    if isinstance(error, FileNotFoundError):
        what = f"{program} was not found"
        return CannotStartError(127, what, "install it, or give its full path")
    if isinstance(error, PermissionError):
        return CannotStartError(126, f"{program} may not be executed", f"chmod +x {program}")
    if isinstance(error, OSError) and error.errno == errno.ENOEXEC:
        remedy = "begin it with #! and its interpreter, or put that before it"
        return CannotStartError(126, f"{program} is not a program", remedy)
    return CannotStartError(126, f"{program!r} does not start ({error})", "try it by hand")
