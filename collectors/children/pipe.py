"""The two small parts that every source on a file descriptor shares: whole lines, and waking."""

import contextlib
import os
import threading

LONGEST_LINE = 64 * 1024
READ_SIZE = 64 * 1024


class LineBuffer:
    r"""Bytes become whole lines; what follows the last newline waits for its own.

    A line of more than ``longest`` bytes is cut there and the rest of it dropped, so a peer that
    never sends a newline costs no memory. Bytes that are no UTF-8 are kept as ``\xNN``.

    >>> buffer = LineBuffer()
    >>> buffer.feed(b"one\ntw"), buffer.feed(b"o\n")
    (['one'], ['two'])
    """

    def __init__(self, longest: int = LONGEST_LINE) -> None:
        self._longest = longest
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[str]:
        """Take what was read and return the lines that it completes, without their newline."""
        *whole, rest = data.split(b"\n")
        lines = []
        for part in whole:
            self._keep(part)
            lines.append(self.take_rest())
        self._keep(rest)
        return lines

    def take_rest(self) -> str:
        """Return what has no newline yet, and start afresh; empty where there is nothing."""
        text = self._rest.decode("utf-8", "backslashreplace")
        self._rest.clear()
        return text

    def _keep(self, part: bytes) -> None:
        self._rest += part[: self._longest - len(self._rest)]


class Waker:
    """A file descriptor that another thread makes readable, to end a ``poll``.

    Waking is remembered: a ``wake`` before the poll ends it at once.
    """

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)
        self._lock = threading.Lock()
        self._open = True

    def fileno(self) -> int:
        """Return the descriptor to poll for reading."""
        return self._reader

    def wake(self) -> None:
        """Make the descriptor readable; from any thread, and harmless after ``close``."""
        with self._lock:
            if self._open:
                with contextlib.suppress(BlockingIOError):  # a full pipe wakes as well
                    os.write(self._writer, b"!")

    def clear(self) -> None:
        """Forget every ``wake`` so far."""
        with contextlib.suppress(BlockingIOError):
            while os.read(self._reader, 512):
                pass

    def close(self) -> None:
        """Close both ends; more than once is harmless."""
        with self._lock:
            if self._open:
                self._open = False
                os.close(self._reader)
                os.close(self._writer)
