"""The service: its unit, its port, and the daemon behind it."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ...collectors.board.machine import Answer, Machine, There
from ..settings.config import split_listen
from .findings import Finding, Patient

UNIT = "tegrascope.service"
_PROPERTIES = ("LoadState", "ActiveState", "SubState", "UnitFileState", "NRestarts", "Result")
_MANY_RESTARTS = 3
# What an exporter answers that has a web configuration file.
_GUARDS = {
    (400, "Client sent an HTTP request to an HTTPS server.\n"): "TLS",
    (401, "Unauthorized\n"): "a password",
}


def check_service(patient: Patient) -> Iterator[Finding]:
    """Ask systemd about the unit, and the configured address for the daemon."""
    machine = patient.machine
    told = None
    if machine.there("/run/systemd/system") == "there" and machine.which("systemctl"):
        asked = ",".join(_PROPERTIES)
        told = machine.run(("systemctl", "show", UNIT, f"--property={asked}", "--no-pager"))
    unit = None if told is None or told.status != 0 else read_properties(told.out)
    yield judge_unit(unit, told)
    host, port = split_listen(patient.config.http.listen)
    if port:
        local = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
        health = machine.get(local, port, "/healthz")
        ready = machine.get(local, port, "/readyz") if health.status == 200 else health
        yield judge_daemon(patient.config.http.listen, health, ready)


def read_properties(text: str) -> dict[str, str]:
    """Read what ``systemctl show`` prints: a name, an equals sign and a value on each line."""
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


def judge_unit(unit: dict[str, str] | None, told: Answer | None) -> Finding:
    """Say how the unit is.

    Args:
        unit: Its properties; ``None`` where systemd did not tell.
        told: What systemctl answered; ``None`` where there is no systemd.
    """
    if unit is None:
        message = "no systemd here" if told is None else f"systemd does not answer: {told.said}"
        return Finding(check="service", level="note", message=message)
    state, enabled = unit.get("ActiveState", "unknown"), unit.get("UnitFileState", "")
    try:
        restarts = int(unit.get("NRestarts", "0"))
    except ValueError:
        restarts = 0
    facts = {"state": state, "enabled": enabled, "restarts": restarts}
    if unit.get("LoadState") == "not-found":
        return Finding(
            check="service",
            level="note",
            message="the service is not installed",
            remedy="sudo tegrascope service install",
            facts=facts,
        )
    if state == "failed" or restarts >= _MANY_RESTARTS:
        why = f"{state} ({unit.get('Result', 'unknown')}), restarted {restarts} time(s)"
        return Finding(
            check="service",
            level="broken",
            message=f"the service is {why}",
            remedy=f"journalctl -u {UNIT} -n 50",
            facts=facts,
        )
    if state != "active":
        return Finding(
            check="service",
            level="note",
            message=f"the service is {state}",
            remedy=f"sudo systemctl enable --now {UNIT}",
            facts=facts,
        )
    if enabled not in ("enabled", "enabled-runtime", "alias", "static"):
        return Finding(
            check="service",
            level="note",
            message="the service runs, and will not after a reboot",
            remedy=f"sudo systemctl enable {UNIT}",
            facts=facts,
        )
    return Finding(
        check="service",
        level="good",
        message=f"the service runs, {restarts} restart(s)",
        facts=facts,
    )


def judge_daemon(listen: str, health: Answer, ready: Answer) -> Finding:
    """Say whether a daemon answers on the configured address, and whether it is ready.

    Args:
        listen: The address.
        health: What ``/healthz`` answered.
        ready: What ``/readyz`` answered.
    """
    facts = {"listen": listen, "answers": health.status is not None}
    if health.status is None and health.said == "refused":
        return Finding(
            check="daemon",
            level="note",
            message=f"no daemon on {listen}; the port is free",
            facts=facts,
        )
    guard = _GUARDS.get((health.status or 0, health.out))
    if guard is not None:
        return Finding(
            check="daemon",
            level="note",
            message=f"what serves {listen} asks for {guard}, so its readiness is unknown here",
            remedy="systemctl status tegrascope, or ask /readyz with curl: docs/http.md",
            facts=facts,
        )
    if health.status != 200 or health.out != "ok\n":
        return Finding(
            check="daemon",
            level="broken",
            message=f"{listen} is taken by something else ({health.said or health.status})",
            remedy="name another port under http.listen, or --listen",
            blocking=True,
            facts=facts,
        )
    if ready.status != 200:
        message = (ready.out.strip() or ready.said).splitlines()[0][:200]
        return Finding(
            check="daemon",
            level="broken",
            message=f"the daemon on {listen} is not ready: {message}",
            remedy=f"curl http://{listen}/readyz, and the findings above",
            facts=facts,
        )
    return Finding(
        check="daemon", level="good", message=f"a daemon serves {listen} and is ready", facts=facts
    )


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
            message=f"no {path}, which gives what only root sees",
            remedy=f"sudo systemctl edit {socket.unit}, with [Socket] ListenStream={path}"
            if is_moved
            else socket.enable,
            facts=facts,
        )
    if there == "there" and not listens:
        return Finding(
            check=check,
            level="broken",
            message=f"nobody listens on {path}",
            remedy=f"sudo systemctl restart {socket.unit}",
            facts=facts,
        )
    if there == "hidden" or not is_writable:
        return Finding(
            check=check,
            level="note",
            message=f"{path} is for the service, not for this user",
            remedy='sudo usermod -aG tegrascope "$USER", and log in again',
            facts=facts,
        )
    return Finding(check=check, level="good", message=f"{path} is open to us", facts=facts)
