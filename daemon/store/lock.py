"""The lock of a store: one daemon at a time, and no file that another user planted."""

import contextlib
import errno
import fcntl
import os
import stat
from io import FileIO
from pathlib import Path

from ...collectors.files import open_regular
from ...parsers.errors import UserError

REMEDY = "name a writable place with --state-dir"
# Some network file systems have no locks; the daemon works there too.
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


class InUseError(UserError):
    """Another daemon has the store."""


class PlantedLinkError(UserError):
    """A file of the store is a symbolic link that another user made."""


def _refuse_planted(path: Path) -> None:
    """Raise an error for a file that SQLite must not open.

    SQLite follows links, and it may wait for a FIFO. Another user who can write into the directory
    of a daemon of root could make it write anywhere. A link of this user is an arrangement.

    Raises:
        PlantedLinkError: It is a link of another user.
        OSError: It is a FIFO, a socket or a device.
    """
    try:
        status = path.lstat()
    except OSError:  # it is not there, or the opening reports the reason
        return
    kind = status.st_mode
    if stat.S_ISLNK(kind) and status.st_uid not in (0, os.geteuid()):
        what = f"{path}: is a symbolic link of the user {status.st_uid}"
        raise PlantedLinkError(what, f"remove it, or {REMEDY}")
    if not (stat.S_ISLNK(kind) or stat.S_ISREG(kind) or stat.S_ISDIR(kind)):
        raise OSError(errno.EINVAL, "is not a regular file", str(path))


def take_lock(database: Path) -> FileIO:
    """Return a file next to the database that is locked until it is closed."""
    path = database.with_name(f"{database.name}.lock")
    for suffix in ("", "-wal", "-shm", "-journal"):
        _refuse_planted(database.with_name(f"{database.name}{suffix}"))
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
    file = FileIO(open_regular(path, flags), "a+b")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(file.fileno(), 20, 0).decode("ascii", "replace").strip()
        file.close()
        raise InUseError(
            f"{path.parent}: in use by another tegrascope (process {holder or 'not known'})",
            "stop that one, or name another --state-dir",
        ) from None
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            file.close()
            raise
    with contextlib.suppress(OSError):  # a full disk must not keep the daemon from starting
        file.truncate(0)
        file.write(f"{os.getpid()}\n".encode())
    return file
