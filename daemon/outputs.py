"""The outputs of all commands: a file that appears whole, or standard output."""

import errno
import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from ..collectors.paths import exists, is_directory, is_file
from ..parsers.errors import UserError


@contextmanager
def open_output(path: Path | None, option: str = "-o") -> Iterator[TextIO]:
    """Open a file to write text, or standard output without a path; errors are as of ``flush``.

    A file appears whole when the block ends. If the block raises, or the disk is full, the old file
    stays. A pipe, a device, and a file in a directory that cannot be written are written in place.
    """
    try:
        if path is None:
            yield standard_output()
        elif _is_replaced(path):
            with _replacing(path) as output:
                yield output
        else:
            with path.open("w", encoding="utf-8", newline="\n") as output:
                yield output
    except BrokenPipeError:
        raise
    except OSError as error:
        raise unwritable(path, error, option) from None


def check_output(path: Path | None, option: str = "-o") -> None:
    """Raise UserError if a file cannot be written, before the work whose result it gets."""
    if path is None:
        return
    try:
        if is_directory(path):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if _is_replaced(path):
            part = _part_of(path.resolve())
            part.touch(exist_ok=False)
            part.unlink()
        # It is not opened, because a pipe would wait for its reader.
        elif not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise unwritable(path, error, option) from None


def _is_replaced(path: Path) -> bool:
    """Return whether a new file takes the place of a path."""
    target = path.resolve()
    # /dev/stdout and /dev/fd/3 are files that somebody else has opened, and goes on writing to.
    is_of_kernel = path.parent.resolve().parts[1:2] in (("dev",), ("proc",))
    if is_of_kernel and path.is_symlink():
        return False
    if not exists(target):
        return True
    return is_file(target) and os.access(target, os.W_OK) and os.access(target.parent, os.W_OK)


def _part_of(target: Path) -> Path:
    # A name of its own length: with more letters, the longest names would be too long.
    return target.with_name(f".tegrascope-{secrets.token_hex(4)}.part")


@contextmanager
def _replacing(path: Path) -> Iterator[TextIO]:
    """Open a file beside a path; it takes the place of the path if the block does not raise."""
    target = path.resolve()  # of a link, the file is replaced
    part = _part_of(target)
    try:
        with part.open("x", encoding="utf-8", newline="\n") as output:
            if exists(target):
                _copy_owner(target, output.fileno())
            yield output
            output.flush()
            os.fsync(output.fileno())
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def _copy_owner(target: Path, descriptor: int) -> None:
    """Give a new file the mode, and if possible the owner, of the file that it replaces."""
    old = target.stat()
    with suppress(OSError):  # Only root may give a file away.
        os.fchown(descriptor, old.st_uid, old.st_gid)
    with suppress(OSError):  # Some file systems have no modes.
        os.fchmod(descriptor, old.st_mode & 0o777)


def standard_output() -> TextIO:
    """Return standard output; raise UserError if the parent process closed it."""
    if sys.stdout is None:
        raise UserError("standard output is closed", "name a writable file with -o")
    return sys.stdout


def unwritable(path: Path | str | None, error: Exception, option: str = "-o") -> UserError:
    """Return the error of an output, with its remedy."""
    where = "standard output" if path is None else path
    reason = getattr(error, "strerror", None) or error
    return UserError(f"{where}: {reason}", f"name a writable file with {option}")
