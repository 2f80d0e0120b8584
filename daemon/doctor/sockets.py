"""The sockets by which a daemon that is not root gets what only root may read."""

import os
from pathlib import Path
from typing import NamedTuple

from ...collectors.machine import Machine, There
from .finding import Finding


class RootSocket(NamedTuple):
    """A socket on which root's reader is to be had.

    Attributes:
        unit: Of systemd, that listens on it.
        path: Where that unit listens as it is installed.
    """

    unit: str
    path: str

    @property
    def enable(self) -> str:
        """The command that makes it be there, now and after each boot."""
        return f"sudo systemctl enable --now {self.unit}"


TEGRASTATS = RootSocket("tegrascope-tegrastats.socket", "/run/tegrascope/tegrastats.sock")
DLA_TRACE = RootSocket("tegrascope-dla-trace.socket", "/run/tegrascope/dla-trace.sock")


def look_at_socket(
    machine: Machine, socket: RootSocket, configured: Path | None, *, check: str
) -> Finding:
    """Look at a socket without connecting: that would start its unit.

    Args:
        machine: Where to look.
        socket: Which one.
        configured: Where the daemon looks for it; ``None`` for where it is installed.
        check: Name of the check.
    """
    path = str(configured or socket.path)
    return judge_socket(
        check,
        socket,
        path,
        machine.there(path),
        machine.may(path, os.W_OK),
        machine.listens(path),
    )


def judge_socket(
    check: str, socket: RootSocket, path: str, there: There, is_writable: bool, listens: bool
) -> Finding:
    """Say whether root's reader is to be had by a socket, and whether this user may have it.

    Args:
        check: Name of the check.
        socket: Which one.
        path: Where the daemon looks for it.
        there: Whether it is there.
        is_writable: Whether this user may connect.
        listens: Whether somebody listens on it.
    """
    facts = {"path": path, "there": there == "there", "listens": listens, "ours": is_writable}
    if there == "absent":
        is_moved = path != socket.path
        return Finding(
            check=check,
            level="note",
            said=f"no {path}, which gives what only root sees",
            mend=f"sudo systemctl edit {socket.unit}, with [Socket] ListenStream={path}"
            if is_moved
            else socket.enable,
            facts=facts,
        )
    if there == "there" and not listens:
        return Finding(
            check=check,
            level="broken",
            said=f"nobody listens on {path}",
            mend=f"sudo systemctl restart {socket.unit}",
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
