"""One daemon for one store: a lock that the system takes back, however its holder ends."""

import contextlib
import errno
import fcntl
import os
from pathlib import Path

from ..parsers.errors import Mendable

# Some network file systems know no locks; the daemon serves there all the same.
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


class Owner:
    """Holds a database for this process until ``release``.

    A second daemon would take the first one's run in flight for one that a crash left behind.
    """

    def __init__(self, database: Path) -> None:
        """Take the lock, a file beside the database.

        Raises:
            Mendable: Another daemon has it, or the directory can't be written.
        """
        path = database.with_name(f"{database.name}.lock")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise Mendable(
                f"{path.parent}: {error.strerror}", "name a writable place with --state-dir"
            ) from None
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._fd, 20, 0).decode("ascii", "replace").strip()
            os.close(self._fd)
            raise Mendable(
                f"{path.parent}: in use by another tegrascope (process {holder or 'not known'})",
                "stop that one, or name another --state-dir",
            ) from None
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                os.close(self._fd)
                raise Mendable(f"{path}: {error.strerror}", "name another --state-dir") from None
        with contextlib.suppress(OSError):  # a full disk must not keep the daemon from starting
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Let another daemon have it; more than once is harmless."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
