"""Every error type of the package, and the command that installs what is missing."""

import os
import shlex
import sys
from pathlib import Path

_PACKAGED = "/usr/lib/tegrascope"
"""Where the Debian package has its environment, in which only root can install."""


def pip_install(
    python: str = sys.executable or "python3",
    prefix: str = sys.prefix,
    *,
    is_environment: bool = sys.prefix != sys.base_prefix,
    library: str = str(Path(os.__file__).parent),
) -> str:
    """Return the command that installs packages for an interpreter, by default for this one.

    A bare ``pip`` may belong to another interpreter, and the one of Debian refuses to install.

    Args:
        library: Directory in which a system marks that its pip refuses (PEP 668).

    >>> pip_install("/usr/lib/tegrascope/venv/bin/python", "/usr/lib/tegrascope/venv")
    'sudo /usr/lib/tegrascope/venv/bin/pip install'
    """
    if prefix.startswith(f"{_PACKAGED}/"):
        return f"sudo {_PACKAGED}/venv/bin/pip install"
    # os.access never raises: this runs when the package is imported.
    if not is_environment and os.access(Path(library, "EXTERNALLY-MANAGED"), os.R_OK):
        return "python3 -m venv ENV, install tegrascope with ENV/bin/pip, and ENV/bin/pip install"
    pip = Path(python).with_name("pip")
    command = shlex.quote(str(pip))
    if not os.access(pip, os.X_OK):
        command = f"{shlex.quote(python)} -m pip"
    if not os.access(prefix, os.W_OK):
        command = f"sudo {command}"
    return f"{command} install"


PIP_INSTALL = pip_install()
"""Begin of each remedy that installs a package."""


class UserError(Exception):
    """A failure that a person can fix; the command line prints it as one line.

    Attributes:
        message: The problem, with the value that was found.
        remedy: The fix: a command, a key, a path.
    """

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message, remedy)  # as pickle gives them back
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message}: {self.remedy}"

    @property
    def lines(self) -> tuple[str, ...]:
        """The text for a person, one problem per line."""
        return (str(self),)


def file_error(error: OSError, path: object = None) -> UserError:
    """Return the error of a file that cannot be used, with a remedy that fits the reason.

    >>> print(file_error(PermissionError(13, "Permission denied", "/etc/shadow")))
    /etc/shadow: Permission denied: use sudo, or name another (namei -l /etc/shadow shows the owner)
    """
    where, reason = path or error.filename, error.strerror or str(error)
    remedy = "name another"
    if isinstance(error, PermissionError):
        remedy = f"use sudo, or name another (namei -l {where} shows the owner)"
    elif isinstance(error, FileNotFoundError):
        remedy = "check the name"
    return UserError(f"{where}: {reason}" if where else reason, remedy)


class UsageError(UserError):
    """The command line contradicts itself or has no meaning; exit status 2."""


class BackendUnavailable(UserError):  # noqa: N818 - it is a state, not a fault
    """A back-end, its library or its device is not on this machine; the remedy installs it."""


class DeviceLostError(RuntimeError):
    """This process cannot use its device any more; another process can."""


class UnreadableError(ValueError):
    """A token that is not what its place asks for; the caller keeps it and reads on."""


class ParseError(ValueError):
    """A whole line that is not a record of its kind.

    Attributes:
        reason: One of a few words, fit for a metric label: ``empty``, ``noise`` …
        line: The line, verbatim.
    """

    def __init__(self, reason: str, line: str) -> None:
        super().__init__(f"{reason}: {line[:120]!r}")
        self.reason = reason
        self.line = line
