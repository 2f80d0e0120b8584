"""Lines that another program pipes in: standard input, or a named pipe."""

import logging
import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

from pydantic import Field

from ...parsers.errors import UserError
from ..base import SYSTEM_CLOCK, Clock, Stamped
from ..children.process import DescriptorReader
from .collector import Opening, SourceSettings, TegrastatsCollector

REOPEN_SECONDS = 1.0

_LOG = logging.getLogger(__name__)


class StreamSource:
    """Lines from standard input until its end, or from a named pipe for ever.

    A named pipe waits for its next writer when one goes away, and a line that the last writer
    left unfinished is dropped. The last line of standard input needs no newline.
    """

    name = "stream"
    is_live = True

    def __init__(
        self,
        path: Path | None = None,
        *,
        stdin_fd: int = 0,
        interval_seconds: float | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Check that a named pipe can be read; without a path standard input is.

        Raises:
            UserError: The path is not a named pipe, or may not be read.
        """
        self.path = path
        self.interval_seconds = interval_seconds
        self.restarts = 0
        self.problem: str | None = None
        self._stdin_fd = stdin_fd
        self._clock = clock
        self._stopping = threading.Event()
        self._reading = threading.Lock()
        self._reader: DescriptorReader | None = None
        if path is not None:
            os.close(_open_pipe(path))

    def lines(self) -> Iterator[Stamped[str]]:
        """Return lines as they arrive, until standard input ends or until ``stop``."""
        if self.path is None:
            return self._read(self._stdin_fd, keeps_rest=True)
        return self._read_pipe(self.path)

    def stop(self) -> None:
        """End ``lines``; from another thread, and more than once."""
        self._stopping.set()
        with self._reading:
            if self._reader is not None:
                self._reader.wake()

    def _read_pipe(self, path: Path) -> Iterator[Stamped[str]]:
        fd = _open_pipe(path)
        try:
            while not self._stopping.is_set():
                yield from self._read(fd)
                if self._stopping.is_set():
                    return
                self.restarts += 1
                # The next end is opened first: a writer in between must find a reader.
                following = self._open_again(path)
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
                if self.problem is None:
                    _LOG.warning("%s: %s", self.name, error)
                self.problem = str(error)
            else:
                self.problem = None
                return fd
            until_ns = self._clock.monotonic_ns() + round(REOPEN_SECONDS * 1e9)
            self._clock.wait(self._stopping, until_ns)
        return -1

    def _read(self, fd: int, *, keeps_rest: bool = False) -> Iterator[Stamped[str]]:
        with DescriptorReader(fd, keeps_rest=keeps_rest, clock=self._clock) as reader:
            with self._reading:
                self._reader = reader
            try:
                while not self._stopping.is_set() and isinstance(line := reader.read(), Stamped):
                    yield line
            finally:
                with self._reading:
                    self._reader = None


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
        raise UserError(
            f"{path} is not a named pipe", "make one with mkfifo, or replay it as a log"
        )
    return fd


class StreamSettings(SourceSettings):
    """Lines from standard input or a FIFO."""

    describes_this_board = True

    path: str = Field("-", description="- for standard input, else the path of a FIFO")

    @property
    def file(self) -> Path | None:
        """The FIFO; ``None`` for standard input."""
        return None if self.path == "-" else Path(self.path)

    def summary(self) -> str:
        """Return where the lines come from."""
        return "standard input" if self.path == "-" else f"lines from {self.path}"

    def open(self, opening: Opening) -> TegrastatsCollector:
        """Return the samples of the lines."""
        interval, clock = opening.interval_seconds, opening.clock
        return TegrastatsCollector(StreamSource(self.file, interval_seconds=interval, clock=clock))
