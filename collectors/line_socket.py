"""A Unix socket as stamped lines: connected, read, closed."""

import os
import select
import socket
import time
from collections import deque
from pathlib import Path

from ..parsers.errors import Mendable
from .base import SYSTEM_CLOCK, Clock, Stamped
from .pipe import READ_SIZE, LineBuffer, Waker
from .process import Quiet

# systemd accepts at once; who does not within this is as good as not there.
CONNECT_SECONDS = 2.0


class LineSocket:
    """One connection, whose bytes arrive as stamped lines; nothing is ever sent.

    A line bears the time at which the read that brought its newline returned. ``read`` and
    ``end`` belong to one thread; ``wake`` may be called from any.

    Attributes:
        lines: How many lines were read.
    """

    def __init__(self, path: Path, *, clock: Clock = SYSTEM_CLOCK) -> None:
        """Connect.

        Args:
            path: The socket.
            clock: Where the stamps come from.

        Raises:
            Mendable: There is no such socket, nobody listens, or this user may not connect.
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
