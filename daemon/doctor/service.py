"""Telemetry: whether the configured source gives samples, and which values this user sees."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ...collectors.board.boards import RailRule, find_rail_rule
from ...collectors.board.machine import Answer, Machine, There
from ...collectors.gpu.nvml import NvmlSettings, nvml_command
from ...collectors.lines.collector import TegrastatsSettings, tegrastats_command
from ...parsers.errors import ParseError
from ...parsers.records import Sample
from ...parsers.tegrastats import parse_line
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


_LINES, _INTERVAL_SECONDS = 3, 0.1
_NVML_SECONDS = 15.0


def check_telemetry(context: Context) -> Iterator[Finding]:
    """Check the source that ``telemetry.source`` names; tegrastats runs for a moment."""
    telemetry = context.config.telemetry
    settings = telemetry.settings
    check = Check("telemetry")
    if isinstance(settings, TegrastatsSettings):
        yield from _check_tegrastats(context, settings)
    elif isinstance(settings, NvmlSettings):
        command = (*nvml_command(0.1, str(settings.gpu)), "--samples", "1")
        answer = context.machine.run(command, _NVML_SECONDS)
        if answer.status == 0 and answer.out.strip():
            yield check.finding("good", f"NVML reports GPU {settings.gpu}")
        else:
            yield check.finding(
                "missing",
                f"NVML does not report GPU {settings.gpu}: {answer.message or 'no sample'}",
                "pip install 'tegrascope[nvml]', and check that nvidia-smi works",
                blocking=True,
            )
    elif settings.is_simulated:
        yield check.finding("note", "telemetry is simulated, as configured")
    elif settings.file is None:
        yield check.finding("note", f"telemetry is {settings.summary()}")
    elif context.machine.can_read(str(settings.file)):
        yield check.finding("good", f"telemetry is {settings.file}")
    else:
        yield check.finding(
            "missing",
            f"{settings.file} cannot be read",
            f"ls -l {settings.file}, or name another under telemetry.{telemetry.source}.path",
            blocking=True,
        )


def _check_tegrastats(context: Context, settings: TegrastatsSettings) -> Iterator[Finding]:
    machine, board = context.machine, context.board
    program = settings.command
    path = machine.which(program[0])
    socket = check_socket(machine, TEGRASTATS, settings.socket)
    if path is None and socket.level == "good" and settings.asks_socket:
        message = f"{program[0]} does not exist; lines come from the service's socket"
        yield Check("tegrastats").finding("note", message)
        yield socket
        return
    if path is None:
        remedy = "tegrascope run --demo, or telemetry: {source: nvml} for a desktop GPU"
        if board.is_jetson:
            remedy = "sudo apt install nvidia-l4t-tools"
            if board.container is not None:
                remedy = "docker run … -v /usr/bin/tegrastats:/usr/bin/tegrastats:ro (of the host)"
        message = f"{program[0]} does not exist: no telemetry"
        yield Check("tegrastats").finding("missing", message, remedy, blocking=True)
        return
    command = tegrastats_command(_INTERVAL_SECONDS, program)
    lines, problem = machine.lines(command, _LINES, context.telemetry_seconds)
    samples = []
    for line in lines:
        try:
            samples.append(parse_line(line))
        except ParseError:
            continue
    yield judge_lines(path, lines, samples, problem)
    if samples:
        has_socket = bool(socket.facts["listens"]) and settings.asks_socket
        yield judge_fields(samples[-1], machine.uid, has_socket, board.dla_cores)
        yield socket
        yield judge_rails(samples[-1], context.config.board)


def judge_lines(
    path: str, lines: Sequence[str], samples: Sequence[Sample], problem: str
) -> Finding:
    """Report whether tegrastats prints lines that can be parsed.

    Args:
        problem: Reason for missing lines; empty if there are enough.
    """
    unread = sum(len(sample.unparsed) for sample in samples)
    check = Check(
        "tegrastats", path=path, lines=len(lines), samples=len(samples), unread_words=unread
    )
    if not samples:
        message = f"{path} {problem}"
        if lines:
            message = f"{path} printed no line that is a sample: {lines[0][:60]!r}"
        remedy = f"{path} --interval 1000, and check its output"
        return check.finding("broken", message, remedy, blocking=True)
    if problem:
        remedy = f"{path} --interval 100, and check why it does not continue"
        return check.finding("note", f"{path} {problem}", remedy)
    if unread:
        return check.finding(
            "note",
            f"{path} runs; {unread} word(s) of its output are unknown",
            f"timeout 5 {path} | tegrascope parse -, and send us the values of unparsed",
        )
    return check.finding("good", f"{path} runs, and all of its output is understood")


def judge_fields(sample: Sample, uid: int, has_socket: bool, dla_cores: int | None) -> Finding:
    """Report the fields that only root's tegrastats prints: EMC, engines, DLA; and rails.

    Args:
        uid: User that ran tegrastats; 0 is root.
        has_socket: Whether the service gets root's lines from a socket.
        dla_cores: Cores of the module; ``None`` if unknown.
    """
    fields = {"EMC": sample.emc is not None, "engines": bool(sample.engines)}
    if dla_cores != 0:
        fields["DLA"] = bool(sample.dla)
    fields["rails"] = bool(sample.rails)
    lacks = [name for name, is_there in fields.items() if not is_there]
    check = Check("root_fields", root=uid == 0, lacks=lacks)
    if not lacks:
        return check.finding("good", f"it prints all fields that root sees: {', '.join(fields)}")
    if uid == 0:
        message = f"even as root it does not print {', '.join(lacks)}: absent, not 0"
        return check.finding("note", message)
    message = f"without root it does not print {', '.join(lacks)}"
    if has_socket:
        return check.finding("good", f"{message}; the service gets the rest from its socket")
    return check.finding("missing", f"{message}: absent, not 0", TEGRASTATS.enable)


def judge_rails(sample: Sample, configured: RailRule | None) -> Finding:
    """Report whether a rule is known by which the rails add up to the module."""
    names = sorted(sample.rails)
    if not names:
        return Check("rails").finding(
            "missing",
            "no rail is printed: no power, no energy",
            "as root, or by the socket; some carrier boards have no sensor",
        )
    rule = configured or find_rail_rule(names)
    if rule is None:
        return Check("rails", rails=names).finding(
            "missing",
            f"rails of an unknown board ({', '.join(names)}): no module total",
            "name the board's rails under board: in the configuration",
        )
    message = f"rails of {rule.name}; the module is {' + '.join(rule.total)}"
    return Check("rails", rails=names, rule=rule.name).finding("good", message)
