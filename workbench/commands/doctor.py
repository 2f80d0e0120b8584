"""``tegrascope doctor``: runs all checks within time limits, and prints the findings."""

import argparse
import os
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import tee
from pathlib import Path
from typing import Literal

from ... import __version__
from ...collectors.board.machine import Machine
from ...collectors.paths import is_file
from ...daemon.commands import INSTALLED_STATE, Options, default_state_dir
from ...daemon.outputs import standard_output
from ...daemon.settings.config import Config
from ...daemon.settings.file import ConfigError, load_config
from ...daemon.terminal import CHECK_SAYS_NO, GOOD
from ...parsers.errors import UserError
from ...parsers.records import Record
from ...parsers.values import printable
from ..doctor.board import check_board, check_clocks, check_dla, check_room
from ..doctor.findings import TENSORRT_SECONDS, Check, Context, Finding, Level, ends_within
from ..doctor.software import check_inference, check_service, check_telemetry, check_workloads

EXAMPLE = "tegrascope doctor\n  sudo tegrascope doctor -c /etc/tegrascope.yaml --json"


def add(option: Options) -> None:
    """Add the options."""
    option("-c, --config FILE", "what is to run here")
    option("--state-dir DIR", "where runs are kept (default: as of run)")
    option("--json", "for programs; see docs/doctor.md")


def run(arguments: argparse.Namespace) -> int:
    """Print the findings of all checks; return 3 if the main job is not possible."""
    findings = examine(make_context(Machine(), arguments.config, arguments.state_dir))
    if arguments.json:
        found = list(findings)
        print(as_document(found).model_dump_json(indent=2), file=standard_output())
    else:
        # Each finding is printed when its check ends, and all of them are in the summary.
        to_print, to_judge = tee(findings)
        colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        for line in as_lines(to_print, colour):
            print(line, flush=True)
        found = list(to_judge)
        print(summary(found))
    return CHECK_SAYS_NO if _blocking(found) else GOOD


def _blocking(found: Iterable[Finding]) -> list[str]:
    """Return the names of the checks that make the main job impossible, each once."""
    names = [finding.check for finding in found if finding.blocking]
    return list(dict.fromkeys(names))


def make_context(machine: Machine, config_path: Path | None, state_dir: Path | None) -> Context:
    """Return the context, with the configuration or its errors.

    By default both paths are those of the installed service, if they exist.
    """
    installed = machine.at("/etc/tegrascope.yaml")
    if config_path is None and is_file(installed):
        config_path = installed
    if state_dir is None:
        is_installed = machine.there(str(INSTALLED_STATE)) != "absent"
        state_dir = INSTALLED_STATE if is_installed else default_state_dir()
    config = Config()
    problems: tuple[str, ...] = ()
    try:
        if config_path is not None:
            config = load_config(config_path)
    except ConfigError as error:
        problems = error.problems
    except UserError as error:
        problems = (str(error),)
    return Context(machine, config, config_path, problems, state_dir)


# Name, function, and limit in seconds.
Group = tuple[str, Callable[[Context], Iterator[Finding]], float]
# In the order of the report. The limit of a group is longer than those of its programs, so only
# a read that blocks in the kernel reaches it.
GROUPS: tuple[Group, ...] = (
    ("board", check_board, 10.0),
    ("telemetry", check_telemetry, 30.0),
    ("dla", check_dla, 15.0),
    ("inference", check_inference, TENSORRT_SECONDS + 40.0),
    ("workloads", check_workloads, TENSORRT_SECONDS + 10.0),
    ("clock", check_clocks, 10.0),
    ("room", check_room, 10.0),
    ("service", check_service, 20.0),
)


def examine(context: Context, groups: Sequence[Group] = GROUPS) -> Iterator[Finding]:
    """Yield the findings of each group as soon as the group ends."""
    for name, check, seconds in groups:
        for finding in _run(context, name, check, seconds):
            yield finding.model_copy(update={"group": name})


def _run(
    context: Context, name: str, check: Callable[[Context], Iterator[Finding]], seconds: float
) -> list[Finding]:
    findings: list[Finding] = []
    problems: list[str] = []

    def work() -> None:
        try:
            # One by one: what is found before a check hangs is reported.
            for finding in check(context):
                findings.append(finding)
        except Exception as error:
            problems.append(f"the check itself failed ({type(error).__name__}: {error})")

    is_in_time = ends_within(seconds, name, work)
    found = list(findings)  # a copy: a thread that is late goes on
    if not is_in_time:
        problems = [f"no answer within {seconds:g} s after {len(found)} finding(s)"]
    for problem in problems:
        remedy = "see dmesg; if it persists, report this line"
        found.append(Check(name).broken(problem, remedy))
    return found


_WIDTH = 80
_INDENT = " " * 11
_PIECES = re.compile(r"(?<=&&) |(?<=[;,]) ")
_COLOURS: dict[Level, str] = {"good": "32", "note": "36", "missing": "33", "broken": "31"}


def as_lines(found: Iterable[Finding], colour: bool) -> Iterator[str]:
    """Yield text for people: a heading per group, a line per finding, the remedy below it."""

    def painted(text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if colour else text

    group = None
    for finding in found:
        if finding.group != group:
            group = finding.group
            yield painted(group, "1")
        lines = textwrap.wrap(
            printable(finding.message), _WIDTH - len(_INDENT), break_on_hyphens=False
        )
        first, *rest = lines or [""]
        yield f"  {painted(f'{finding.level:<7}', _COLOURS[finding.level])}  {first}"
        if finding.remedy is not None:
            rest += _remedy_lines(printable(finding.remedy))
        for line in rest:
            yield _INDENT + line


def _remedy_lines(remedy: str) -> list[str]:
    """Break a remedy only where a shell accepts the pieces as well: people copy it."""
    lines = ["→"]
    for piece in _PIECES.split(remedy):
        if lines[-1].strip() != "→" and len(_INDENT) + len(lines[-1]) + len(piece) >= _WIDTH:
            lines.append(" ")
        lines[-1] += f" {piece}"
    return lines


def summary(found: Sequence[Finding]) -> str:
    """Return the last lines: whether the main job is possible, and if not, what to do.

    A reason that one line of configuration removes is followed by that line.
    """
    blocking = _blocking(found)
    if not blocking:
        return "The main job can be done: telemetry, and every configured workload."
    lines = [f"The main job can't be done; it is stopped by: {', '.join(blocking)}."]
    for finding in found:
        if "write" in finding.facts:
            line = finding.facts["write"]
            lines.append(f"Write this line into a file, and name it with -c: {line}")
    return "\n".join(lines)


class Examination(Record):
    """The findings for programs; ``ok`` is whether the main job is possible."""

    format: Literal[1] = 1
    version: str
    ok: bool
    counts: dict[Level, int]
    findings: tuple[Finding, ...]


def as_document(found: Sequence[Finding]) -> Examination:
    """Return the report for programs; docs/doctor.md describes it."""
    counts = dict.fromkeys(_COLOURS, 0)
    for finding in found:
        counts[finding.level] += 1
    return Examination(
        version=__version__,
        ok=not _blocking(found),
        counts=counts,
        findings=tuple(found),
    )
