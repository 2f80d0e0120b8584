"""Telemetry: whether the configured source gives samples, and which values this user sees."""

from collections.abc import Iterator, Sequence

from ...collectors.board.boards import RailRule, find_rail_rule
from ...collectors.gpu.nvml import NvmlSettings, nvml_command
from ...collectors.lines.collector import TegrastatsSettings, tegrastats_command
from ...parsers.errors import ParseError
from ...parsers.records import Sample
from ...parsers.tegrastats import parse_line
from .findings import Check, Context, Finding
from .service import TEGRASTATS, check_socket

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
