"""The service: its unit, its address, its sockets, and the daemon behind them."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ...collectors.board.machine import Answer, Machine, There
from ..settings.config import split_listen
from .findings import Check, Context, Finding

UNIT = "tegrascope.service"
_PROPERTIES = "LoadState,ActiveState,SubState,UnitFileState,NRestarts,Result"
_MANY_RESTARTS = 3
# The answers of an exporter that has a web configuration file.
_GUARDS = {
    (400, "Client sent an HTTP request to an HTTPS server.\n"): "TLS",
    (401, "Unauthorized\n"): "a password",
}


def check_service(context: Context) -> Iterator[Finding]:
    """Check the unit in systemd, and the daemon on the configured address."""
    machine = context.machine
    answer = None
    if machine.there("/run/systemd/system") == "there" and machine.which("systemctl"):
        command = ("systemctl", "show", UNIT, f"--property={_PROPERTIES}", "--no-pager")
        answer = machine.run(command)
    yield judge_unit(answer)
    host, port = split_listen(context.config.http.listen)
    if port:
        local = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
        health = machine.get(local, port, "/healthz")
        ready = machine.get(local, port, "/readyz") if health.status == 200 else health
        yield judge_daemon(context.config.http.listen, health, ready)


def judge_unit(answer: Answer | None) -> Finding:
    """Report the state of the unit, by the answer of systemctl; ``None`` without systemd."""
    if answer is None or answer.status != 0:
        message = "no systemd here"
        if answer is not None:
            message = f"systemd does not answer: {answer.message}"
        return Check("service").finding("note", message)
    unit = dict(line.split("=", 1) for line in answer.out.splitlines() if "=" in line)
    state, enabled = unit.get("ActiveState", "unknown"), unit.get("UnitFileState", "")
    count = unit.get("NRestarts", "")
    restarts = int(count) if count.isdecimal() else 0
    check = Check("service", state=state, enabled=enabled, restarts=restarts)
    if unit.get("LoadState") == "not-found":
        return check.finding(
            "note", "the service is not installed", "sudo tegrascope service install"
        )
    if state == "failed" or restarts >= _MANY_RESTARTS:
        why = f"{state} ({unit.get('Result', 'unknown')}), restarted {restarts} time(s)"
        return check.finding("broken", f"the service is {why}", f"journalctl -u {UNIT} -n 50")
    if state != "active":
        remedy = f"sudo systemctl enable --now {UNIT}"
        return check.finding("note", f"the service is {state}", remedy)
    if enabled not in ("enabled", "enabled-runtime", "alias", "static"):
        message = "the service runs, but does not start after a reboot"
        return check.finding("note", message, f"sudo systemctl enable {UNIT}")
    return check.finding("good", f"the service runs, {restarts} restart(s)")


def judge_daemon(listen: str, health: Answer, ready: Answer) -> Finding:
    """Report whether a daemon answers on the configured address, and whether it is ready.

    Args:
        health: Answer of ``/healthz``.
        ready: Answer of ``/readyz``.
    """
    check = Check("daemon", listen=listen, answers=health.status is not None)
    if health.status is None and health.message == "refused":
        return check.finding("note", f"no daemon on {listen}; the port is free")
    guard = _GUARDS.get((health.status or 0, health.out))
    if guard is not None:
        return check.finding(
            "note",
            f"the server on {listen} asks for {guard}, so its readiness is unknown here",
            "systemctl status tegrascope, or ask /readyz with curl: docs/http.md",
        )
    if health.status != 200 or health.out != "ok\n":
        return check.finding(
            "broken",
            f"{listen} is taken by another program ({health.message or health.status})",
            "name another port under http.listen, or --listen",
            blocking=True,
        )
    if ready.status != 200:
        message = (ready.out.strip() or ready.message).splitlines()[0][:200]
        return check.finding(
            "broken",
            f"the daemon on {listen} is not ready: {message}",
            f"curl http://{listen}/readyz, and the findings above",
        )
    return check.finding("good", f"a daemon serves {listen} and is ready")


class RootSocket(NamedTuple):
    """A socket that gives this user the lines of a reader that runs as root.

    Attributes:
        check: Name of its check.
        unit: The systemd unit that listens.
        path: Its path as installed.
    """

    check: str
    unit: str
    path: str

    @property
    def enable(self) -> str:
        """The command that starts it now and at each boot."""
        return f"sudo systemctl enable --now {self.unit}"


TEGRASTATS = RootSocket("socket", "tegrascope-tegrastats.socket", "/run/tegrascope/tegrastats.sock")
DLA_TRACE = RootSocket("dla_trace", "tegrascope-dla-trace.socket", "/run/tegrascope/dla-trace.sock")


def check_socket(machine: Machine, socket: RootSocket, configured: Path | None) -> Finding:
    """Check a socket without connecting, which would start its unit."""
    path = str(configured or socket.path)
    can_write = machine.may(path, os.W_OK)
    return judge_socket(socket, path, machine.there(path), can_write, machine.listens(path))


def judge_socket(
    socket: RootSocket, path: str, there: There, can_write: bool, listens: bool
) -> Finding:
    """Report whether the socket is served, and whether this user may connect."""
    check = Check(socket.check, path=path, there=there == "there", listens=listens, ours=can_write)
    if there == "absent":
        remedy = socket.enable
        if path != socket.path:
            remedy = f"sudo systemctl edit {socket.unit}, with [Socket] ListenStream={path}"
        message = f"no {path}, which gives the values that only root sees"
        return check.finding("note", message, remedy)
    if there == "there" and not listens:
        remedy = f"sudo systemctl restart {socket.unit}"
        return check.finding("broken", f"no process listens on {path}", remedy)
    if there == "hidden" or not can_write:
        return check.finding(
            "note",
            f"{path} is for the service, not for this user",
            'sudo usermod -aG tegrascope "$USER", and log in again',
        )
    return check.finding("good", f"this user can connect to {path}")
