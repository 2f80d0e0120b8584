"""Whether a path is there, where a denied path is not the same as a missing one.

Up to Python 3.13, ``exists``, ``is_file`` and ``is_dir`` of ``pathlib`` raise ``PermissionError``.
From 3.14 on they return False, as they do for a disk that fails. Then a file that this user may not
see would be reported as missing, or made again. These functions raise on every Python.

Here too is the directory of a user's own state, for the daemon and for its clients.
"""

import errno
import os
import stat
from pathlib import Path

# The path, or a part of it, is not there; a name that is too long cannot be.
_ABSENT = {errno.ENOENT, errno.ENOTDIR, errno.EBADF, errno.ELOOP, errno.ENAMETOOLONG}


def exists(path: Path) -> bool:
    """Return whether something is at a path, or raise ``OSError`` if that cannot be known."""
    return _mode(path) is not None


def is_file(path: Path) -> bool:
    """Return whether a regular file is at a path, or raise ``OSError`` as ``exists`` does."""
    mode = _mode(path)
    return mode is not None and stat.S_ISREG(mode)


def is_directory(path: Path) -> bool:
    """Return whether a directory is at a path, or raise ``OSError`` as ``exists`` does."""
    mode = _mode(path)
    return mode is not None and stat.S_ISDIR(mode)


def is_pipe(path: Path) -> bool:
    """Return whether a named pipe is at a path, or raise ``OSError`` as ``exists`` does."""
    mode = _mode(path)
    return mode is not None and stat.S_ISFIFO(mode)


def own_state_dir() -> Path:
    """Return where a program of this user keeps its state; the service's place without a home."""
    try:
        home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state"
    except RuntimeError:  # a user without a home, as in a container
        home = "/var/lib"
    return Path(home) / "tegrascope"


def _mode(path: Path) -> int | None:
    try:
        return path.stat().st_mode
    except ValueError:  # a null byte, which no path has
        return None
    except OSError as error:
        if error.errno in _ABSENT:
            return None
        raise
