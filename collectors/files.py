"""Open regular files only, and write them completely or not at all."""

import errno
import os
import secrets
import stat
from pathlib import Path


def open_regular(path: Path, flags: int = os.O_RDONLY, mode: int = 0o666) -> int:
    """Open a regular file and return its descriptor; raise ``OSError`` for anything else.

    A FIFO would wait for its other end, beyond the reach of SIGTERM, and a device may never end.

    Args:
        flags: Those of ``os.open``. With ``O_NOFOLLOW`` a symbolic link is an error, as it must be
            for a file of ours in a directory where another user can make links.
    """
    try:
        opened = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY, mode)
    except OSError as error:
        if error.errno == errno.ELOOP and flags & os.O_NOFOLLOW:
            raise OSError(errno.ELOOP, "is a symbolic link", str(path)) from None
        if error.errno == errno.ENXIO:  # a socket, or a FIFO without a reader
            raise OSError(errno.ENXIO, "is not a regular file", str(path)) from None
        raise
    if not stat.S_ISREG(os.fstat(opened).st_mode):
        os.close(opened)
        raise OSError(errno.EINVAL, "is not a regular file", str(path))
    return opened


def read_regular(path: Path, most_bytes: int, flags: int = os.O_RDONLY) -> bytes:
    """Return the content of a regular file, or raise ``OSError``, also if it is larger."""
    with os.fdopen(open_regular(path, flags), "rb") as file:
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise OSError(errno.EFBIG, f"is larger than {most_bytes} bytes", str(path))
    return content


def write_atomic(path: Path, content: bytes | memoryview, mode: int = 0o666) -> None:
    """Write a file completely or not at all, even if the power fails."""
    part = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")
    try:
        with open(part, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Write to the disk which files a directory has."""
    opened = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
