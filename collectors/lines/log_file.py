"""Recorded logs, plain or gzip, line by line or as bytes."""

import gzip
import io
import os
import stat
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

from ...parsers.errors import Mendable
from ..children.process import LONGEST_LINE


def read_lines(path: Path | None) -> Iterator[str]:
    """Yield the lines of a log as ``LogFile`` does."""
    with LogFile(path) as log:
        yield from log.lines()


class LogFile:
    """A log, as lines or as bytes, and how far it has been read; a context manager.

    Attributes:
        size_bytes: Size on the disk; ``None`` for a pipe.
        problem: Why ``read1`` could not read it to its end, if so.
    """

    def __init__(self, path: Path | None) -> None:
        """Open a log.

        Args:
            path: Plain or gzip, by its first bytes; ``None`` is standard input, plain.

        Raises:
            Mendable: It is missing, or may not be read.
        """
        self._path = path or Path("standard input")
        self._owned = path is not None
        self.problem: Mendable | None = None
        self.size_bytes: int | None = None
        try:
            self._log = _standard_input() if path is None else open_log(path)
            on_disk = os.fstat(self._log.fileno())
        except (OSError, EOFError) as error:
            raise unreadable(self._path, error) from error
        if stat.S_ISREG(on_disk.st_mode):
            self.size_bytes = on_disk.st_size

    def __enter__(self) -> "LogFile":
        return self

    def __exit__(self, *_: object) -> None:
        if self._owned:
            self._log.close()

    @property
    def position_bytes(self) -> int:
        """How much of the file has been read; 0 where it has no size."""
        return 0 if self.size_bytes is None else os.lseek(self._log.fileno(), 0, os.SEEK_CUR)

    def lines(self) -> Iterator[str]:
        """Yield its lines without their newline; one that is too long is several.

        Raises:
            Mendable: It cannot be read to its end; what came before has been yielded.
        """
        try:
            while line := self._log.readline(LONGEST_LINE):
                yield line.removesuffix(b"\n").decode("utf-8", "backslashreplace")
        except (OSError, EOFError, zlib.error) as error:
            raise unreadable(self._path, error) from error

    def read1(self, size: int = -1, /) -> bytes:
        """Return some of the next bytes; none at the end, and none after a problem."""
        try:
            return self._log.read1(size)
        except (OSError, EOFError, zlib.error) as error:
            self.problem = unreadable(self._path, error)
            return b""


def open_log(path: Path) -> io.BufferedIOBase:
    """Open a log for reading bytes."""
    log = path.open("rb")
    try:
        zipped = log.peek(2)[:2] == b"\x1f\x8b"
    except OSError:
        log.close()
        raise
    if not zipped:
        return log
    log.close()
    return gzip.open(path, "rb")


def _standard_input() -> io.BufferedIOBase:
    log = sys.stdin.buffer
    assert isinstance(log, io.BufferedIOBase)
    return log


def unreadable(path: Path, error: Exception) -> Mendable:
    """Return the error for a log that cannot be read."""
    if isinstance(error, FileNotFoundError):
        return Mendable(f"{path} is not there", "name a log that tegrastats wrote")
    if isinstance(error, PermissionError):
        return Mendable(f"{path} may not be read", f"chmod a+r {path}")
    if isinstance(error, IsADirectoryError):
        return Mendable(f"{path} is a directory", "name one log in it")
    return Mendable(f"{path} cannot be read ({error})", "copy it again; it may be cut off")
