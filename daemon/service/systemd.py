"""Notifications to systemd, and the files of ``tegrascope service install``."""

import os
import re
import shutil
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from ...parsers.errors import UserError


def notify_systemd(*assignments: str) -> bool:
    """Send assignments such as ``READY=1``, and return whether systemd receives them."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return False
    if address.startswith("@"):
        address = "\0" + address[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        try:
            channel.sendto("\n".join(assignments).encode(), address)
        except OSError:
            return False
    return True


def watchdog_seconds() -> float | None:
    """Return systemd's watchdog limit for this process, or ``None``."""
    limit, pid = os.environ.get("WATCHDOG_USEC", ""), os.environ.get("WATCHDOG_PID")
    if pid not in (None, str(os.getpid())) or not limit.isdecimal() or int(limit) == 0:
        return None
    return int(limit) / 1e6


class Watchdog:
    """Reset by the housekeeping thread, so that a hang of that thread is detected."""

    def __init__(self, seconds: float | None, send: Callable[..., object] = notify_systemd) -> None:
        """Set systemd's limit, if it has one."""
        self._period_ns = None if seconds is None else round(seconds / 2 * 1e9)
        self._send = send
        self._fed_ns: int | None = None
        self._status = ""
        self._had_telemetry = False

    def look(self, now_ns: int, *, telemetry: str | None, status: str) -> None:
        """Reset the watchdog if it is time and all is well; send the status if it changed.

        Args:
            now_ns: CLOCK_MONOTONIC.
            telemetry: Why new samples of this machine are missing; ``None`` if they are not, or
                if the source may end by itself.
            status: For ``systemctl status``.
        """
        if telemetry is None:
            self._had_telemetry = True
        if status != self._status:
            self._status = status
            self._send(f"STATUS={status}")
        if self._period_ns is None or (telemetry and self._had_telemetry):
            return
        if self._fed_ns is None or now_ns - self._fed_ns >= self._period_ns:
            self._fed_ns = now_ns
            self._send("WATCHDOG=1")


MARK = "# Written by `tegrascope service install`; `systemctl edit` adds to it and survives.\n"
STATE = ("/var/lib/tegrascope", "/var/cache/tegrascope")
SETTINGS = ("/etc/tegrascope.yaml", "/etc/default/tegrascope")
_UNITS = "/etc/systemd/system"
_SYSUSERS = "/etc/sysusers.d/tegrascope.conf"
# The sandbox hides these directories from the service, for any mode.
_HIDDEN = ("/home", "/root", "/run/user")


@dataclass(frozen=True)
class File:
    """One file to write; a setting belongs to the user and is never overwritten."""

    path: str
    text: str
    is_setting: bool = False


def own_program() -> str:
    """Return the path of the installed tegrascope command."""
    program = Path(sys.executable).with_name("tegrascope")
    return str(program) if program.is_file() else f"{sys.executable} -m tegrascope"


def check_visible(program: str | None) -> None:
    """Raise if the sandbox or a mode hides a program (default: ours) from the service's user."""
    remedy = (
        "install it for all, in a checkout:"
        " sudo python3 -m venv --system-site-packages /opt/tegrascope && "
        "sudo /opt/tegrascope/bin/pip install . && "
        "sudo /opt/tegrascope/bin/tegrascope service install"
    )
    path = Path((program or sys.executable).split()[0])
    for place in sorted({path.absolute(), path.resolve()}):
        hidden = next((one for one in _HIDDEN if place.is_relative_to(one)), None)
        if hidden is not None:
            raise UserError(f"{place}: the service may not look into {hidden}", remedy)
        for parent in place.parents:
            if parent.exists() and not parent.stat().st_mode & 0o001:
                raise UserError(f"{place}: only some users may enter {parent}", remedy)


def installed_files(program: str, tegrastats: str | None = None) -> list[File]:
    """Return all files of the service; tegrastats is searched if its path is ``None``."""
    source = files(__package__.partition(".")[0]) / "systemd"
    tegrastats = tegrastats or shutil.which("tegrastats") or "/usr/bin/tegrastats"
    # In a checkout the reader is a module.
    reader = (
        f"{program}.collectors.dla.reader"
        if program.endswith(" -m tegrascope")
        else str(Path(program).with_name("tegrascope-dla-trace"))
    )
    programs = {"tegrascope-dla-trace": reader, "tegrascope": program, "tegrastats": tegrastats}
    found = []
    for entry in sorted(source.iterdir(), key=lambda one: one.name):
        if entry.name.endswith((".service", ".socket")):
            text = entry.read_text(encoding="utf-8")
            # The page is part of the Debian package only.
            text = re.sub(r"^Documentation=.*\n", "", text, flags=re.M)
            for name, path in programs.items():
                pattern = rf"^((?:Exec|Condition)\w+=.*?)/usr/bin/{name}(?![\w-])"
                text = re.sub(pattern, rf"\1{path}", text, flags=re.M)
            found.append(File(f"{_UNITS}/{entry.name}", MARK + text))
    found.append(File(_SYSUSERS, MARK + (source / "tegrascope.sysusers").read_text("utf-8")))
    for path, name in zip(SETTINGS, ("tegrascope.yaml", "tegrascope.default"), strict=True):
        found.append(File(path, (source / name).read_text("utf-8"), is_setting=True))
    return found


def units_present(root: Path) -> list[Path]:
    """Return the installed unit files, of any version."""
    return sorted(
        path
        for path in (root / _UNITS.lstrip("/")).glob("tegrascope*")
        if path.is_file() and path.read_text("utf-8").startswith(MARK)
    )


def drop_ins(root: Path) -> list[Path]:
    """Return the directories of local additions to the units."""
    return sorted((root / _UNITS.lstrip("/")).glob("tegrascope*.d"))


def sysusers_file(root: Path) -> Path:
    """Return the path of the sysusers file."""
    return root / _SYSUSERS.lstrip("/")
