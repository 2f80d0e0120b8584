"""Recorded logs, plain or gzip, line by line."""

import gzip
import io
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

from ..parsers.errors import Mendable
from .pipe import LONGEST_LINE


def read_lines(path: Path | None) -> Iterator[str]:
    """Yield the lines of a log without their newline.

    Args:
        path: Plain or gzip, told by its first bytes; ``None`` is standard input, plain.

    Raises:
        Mendable: The log cannot be read, or not to its end; what came before has been yielded.
    """
    try:
        with open_log(path) if path is not None else sys.stdin.buffer as log:
            while line := log.readline(LONGEST_LINE):
                yield line.removesuffix(b"\n").decode("utf-8", "backslashreplace")
    except (OSError, EOFError, zlib.error) as error:
        raise unreadable(path or Path("standard input"), error) from error


def open_log(path: Path) -> io.BufferedIOBase:
    """Open a log for reading bytes.

    Raises:
        OSError: It is not there, or may not be read.
    """
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


def unreadable(path: Path, error: Exception) -> Mendable:
    """Say what is wrong with a log, and what mends it."""
    if isinstance(error, FileNotFoundError):
        return Mendable(f"{path} is not there", "name a log that tegrastats wrote")
    if isinstance(error, PermissionError):
        return Mendable(f"{path} may not be read", f"chmod a+r {path}")
    if isinstance(error, IsADirectoryError):
        return Mendable(f"{path} is a directory", "name one log in it")
    return Mendable(f"{path} cannot be read ({error})", "copy it again; it may be cut off")
