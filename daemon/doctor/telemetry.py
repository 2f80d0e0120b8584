"""Telemetry: whether the configured source gives samples, and how much of them this user sees."""

import os
from collections.abc import Iterator, Sequence

from ...collectors.board.boards import RailRule, find_rail_rule
from ...collectors.board.machine import Machine
from ...collectors.gpu.nvml import NvmlSettings, nvml_command
from ...collectors.lines.collector import TegrastatsSettings, tegrastats_command
from ...parsers.errors import ParseError
from ...parsers.records import Sample
from ...parsers.tegrastats import parse_line
from .findings import Finding, Patient
from .service import TEGRASTATS, look_at_socket

_LINES, _SECONDS, _INTERVAL_SECONDS = 3, 5.0, 0.1
_NVML_SECONDS = 15.0


def check_telemetry(patient: Patient) -> Iterator[Finding]:
    """Look at what ``telemetry.source`` names; tegrastats is run for a moment."""
    telemetry = patient.config.telemetry
    settings = telemetry.settings
    if isinstance(settings, TegrastatsSettings):
        yield from _check_tegrastats(patient, settings)
    elif isinstance(settings, NvmlSettings):
        yield _check_nvml(patient, str(settings.gpu))
    elif settings.is_simulated:
        yield Finding(
            check="telemetry", level="note", message="telemetry is simulated, as configured"
        )
    elif settings.file is not None:
        yield _check_file(patient.machine, str(settings.file), telemetry.source)
    else:
        yield Finding(check="telemetry", level="note", message=f"telemetry is {settings.summary()}")


def _check_tegrastats(patient: Patient, settings: TegrastatsSettings) -> Iterator[Finding]:
    machine, board = patient.machine, patient.board
    program = settings.command
    path = machine.which(program[0])
    socket = look_at_socket(machine, TEGRASTATS, settings.socket, check="socket")
    if path is None and socket.level == "good" and settings.asks_socket:
        yield Finding(
            check="tegrastats",
            level="note",
            message=f"{program[0]} is not there; lines come from the service's socket",
        )
        yield socket
        return
    if path is None:
        yield Finding(
            check="tegrastats",
            level="missing",
            message=f"{program[0]} is not there: no telemetry",
            remedy=_remedy_absent(board.is_jetson, board.container is not None),
            blocking=True,
        )
        return
    lines, problem = machine.lines(tegrastats_command(_INTERVAL_SECONDS, program), _LINES, _SECONDS)
    samples, unread = read_samples(lines)
    told = judge_lines(path, lines, samples, unread, problem)
    yield told
    if told.blocking:
        return
    has_socket = bool(socket.facts["listens"]) and settings.asks_socket
    yield judge_fields(samples[-1], machine.uid, has_socket, board.dla_cores)
    yield socket
    yield judge_rails(samples[-1], patient.config.board)


def _remedy_absent(is_jetson: bool, is_container: bool) -> str:
    if is_jetson and is_container:
        return "docker run … -v /usr/bin/tegrastats:/usr/bin/tegrastats:ro (of the host)"
    if is_jetson:
        return "sudo apt install nvidia-l4t-tools"
    return "tegrascope run --demo, or telemetry: {source: nvml} for a desktop GPU"


def read_samples(lines: Sequence[str]) -> tuple[list[Sample], int]:
    """Read lines; returns what is a sample, and how many words of them were not understood."""
    samples = []
    for line in lines:
        try:
            samples.append(parse_line(line))
        except ParseError:
            continue
    return samples, sum(len(sample.unparsed) for sample in samples)


def judge_lines(
    path: str, lines: Sequence[str], samples: Sequence[Sample], unread: int, problem: str
) -> Finding:
    """Say whether tegrastats prints what can be read.

    Args:
        path: The program.
        lines: What it printed.
        samples: What could be read of that.
        unread: Words in them that were not understood.
        problem: Why there are no more lines; empty where there are enough.
    """
    facts = {"path": path, "lines": len(lines), "samples": len(samples), "unread_words": unread}
    if not samples:
        message = f"{path} printed nothing that is a sample: {lines[0][:60]!r}" if lines else ""
        return Finding(
            check="tegrastats",
            level="broken",
            message=message or f"{path} {problem}",
            remedy=f"{path} --interval 1000, and see what it says",
            blocking=True,
            facts=facts,
        )
    if problem:
        return Finding(
            check="tegrastats",
            level="note",
            message=f"{path} {problem}",
            remedy=f"{path} --interval 100, and see why it does not go on",
            facts=facts,
        )
    if unread:
        return Finding(
            check="tegrastats",
            level="note",
            message=f"{path} runs; {unread} word(s) of it are not understood",
            remedy=f"timeout 5 {path} | tegrascope parse -, and send us what is in unparsed",
            facts=facts,
        )
    return Finding(
        check="tegrastats", level="good", message=f"{path} runs, all of it read", facts=facts
    )


def judge_fields(sample: Sample, uid: int, has_socket: bool, dla_cores: int | None) -> Finding:
    """Tell root's output from that of others: EMC, engines, DLA and rails.

    Args:
        sample: The latest.
        uid: Who ran tegrastats; 0 is root.
        has_socket: Whether the service gets from a socket what root sees.
        dla_cores: Of the module; ``None`` where not known.
    """
    seen = {"EMC": sample.emc is not None, "engines": bool(sample.engines)}
    if dla_cores != 0:
        seen["DLA"] = bool(sample.dla)
    seen["rails"] = bool(sample.rails)
    lacks = [name for name, is_there in seen.items() if not is_there]
    facts = {"root": uid == 0, "lacks": lacks}
    if not lacks:
        return Finding(
            check="root_fields",
            level="good",
            message="it prints all that root sees: " + ", ".join(seen),
            facts=facts,
        )
    message = "without root it does not print " + ", ".join(lacks)
    if uid == 0:
        return Finding(
            check="root_fields",
            level="note",
            message=f"even as root it does not print {', '.join(lacks)}: absent, not 0",
            facts=facts,
        )
    if has_socket:
        return Finding(
            check="root_fields",
            level="good",
            message=f"{message}; the service gets the rest from its socket",
            facts=facts,
        )
    return Finding(
        check="root_fields",
        level="missing",
        message=f"{message}: absent, not 0",
        remedy=TEGRASTATS.enable,
        facts=facts,
    )


def judge_rails(sample: Sample, configured: RailRule | None) -> Finding:
    """Say whether the rails add up to a module by a rule that is known."""
    names = sorted(sample.rails)
    if not names:
        return Finding(
            check="rails",
            level="missing",
            message="no rail is printed: no power, no energy",
            remedy="as root, or by the socket; some carrier boards have no sensor",
        )
    rule = configured or find_rail_rule(names)
    if rule is None:
        return Finding(
            check="rails",
            level="missing",
            message=f"rails of no known board ({', '.join(names)}): no module total",
            remedy="name the board's rails under board: in the configuration",
            facts={"rails": names},
        )
    return Finding(
        check="rails",
        level="good",
        message=f"rails of {rule.name}; the module is {' + '.join(rule.total)}",
        facts={"rails": names, "rule": rule.name},
    )


def _check_nvml(patient: Patient, gpu: str) -> Finding:
    command = (*nvml_command(0.1, gpu), "--samples", "1")
    told = patient.machine.run(command, _NVML_SECONDS)
    if told.status == 0 and told.out.strip():
        return Finding(check="telemetry", level="good", message=f"NVML tells of GPU {gpu}")
    return Finding(
        check="telemetry",
        level="missing",
        message=f"NVML tells nothing of GPU {gpu}: {told.said or 'no sample'}",
        remedy="pip install 'tegrascope[nvml]', and see that nvidia-smi works",
        blocking=True,
    )


def _check_file(machine: Machine, path: str, source: str) -> Finding:
    if not _may_read(machine, path):
        return Finding(
            check="telemetry",
            level="missing",
            message=f"{path} cannot be read",
            remedy=f"ls -l {path}, or name another under telemetry.{source}.path",
            blocking=True,
        )
    return Finding(check="telemetry", level="good", message=f"telemetry is {path}")


def _may_read(machine: Machine, path: str) -> bool:
    return machine.there(path) == "there" and machine.may(path, os.R_OK)
