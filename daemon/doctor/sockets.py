"""The sockets by which a daemon that is not root gets what only root may read."""

import os

from ...collectors.machine import Machine, There
from .finding import Finding

TEGRASTATS = "/run/tegrascope/tegrastats.sock"
DLA_TRACE = "/run/tegrascope/dla-trace.sock"
_UNITS = {
    TEGRASTATS: "tegrascope-tegrastats.socket",
    DLA_TRACE: "tegrascope-dla-trace.socket",
}


def enable(path: str) -> str:
    """Return the command that makes a socket be there, now and after each boot."""
    return f"sudo systemctl enable --now {_UNITS[path]}"


def look_at_socket(machine: Machine, path: str, *, check: str) -> Finding:
    """Look at a socket without connecting: that would start its unit."""
    return judge_socket(
        check,
        path,
        machine.there(path),
        machine.may(path, os.W_OK),
        machine.listens(path),
    )


def judge_socket(check: str, path: str, there: There, is_writable: bool, listens: bool) -> Finding:
    """Say whether root's reader is to be had by a socket, and whether this user may have it.

    Args:
        check: Name of the check.
        path: Of the socket.
        there: Whether it is.
        is_writable: Whether this user may connect.
        listens: Whether somebody listens on it.
    """
    facts = {"path": path, "there": there == "there", "listens": listens, "ours": is_writable}
    if there == "absent":
        return Finding(
            check=check,
            level="note",
            said=f"no {path}, which gives what only root sees",
            mend=enable(path),
            facts=facts,
        )
    if there == "there" and not listens:
        return Finding(
            check=check,
            level="broken",
            said=f"nobody listens on {path}",
            mend=f"sudo systemctl restart {_UNITS[path]}",
            facts=facts,
        )
    if there == "hidden" or not is_writable:
        return Finding(
            check=check,
            level="note",
            said=f"{path} is for the service, not for this user",
            mend='sudo usermod -aG tegrascope "$USER", and log in again',
            facts=facts,
        )
    return Finding(check=check, level="good", said=f"{path} is open to us", facts=facts)
