"""``tegrascope doctor``."""

import argparse
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from ...collectors.board.machine import Machine
from ...parsers.errors import UserError
from ..doctor.examine import as_document, as_lines, examine, summary
from ..doctor.findings import Context, Finding
from ..settings.config import Config
from ..settings.file import ConfigError, load_config
from ..terminal.output import CHECK_SAYS_NO, GOOD
from . import Commands, add_command, default_state_dir

_INSTALLED_CONFIG = Path("/etc/tegrascope.yaml")
_INSTALLED_STATE = Path("/var/lib/tegrascope")


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "doctor",
        "tegrascope doctor\n  sudo tegrascope doctor -c /etc/tegrascope.yaml --json",
    )
    parser.add_argument("-c", "--config", type=Path, metavar="FILE", help="what is to run here")
    parser.add_argument(
        "--state-dir", type=Path, metavar="DIR", help="where runs are kept (default: as of run)"
    )
    parser.add_argument("--json", action="store_true", help="for programs; see docs/doctor.md")
    parser.set_defaults(command=doctor)


def doctor(arguments: argparse.Namespace) -> int:
    """Print the findings of all checks; return 3 if the main job is not possible."""
    found: list[Finding] = []
    findings = examine(make_context(Machine(), arguments.config, arguments.state_dir))
    if arguments.json:
        found.extend(findings)
        print(json.dumps(as_document(found), indent=2, ensure_ascii=False))
    else:
        colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        for line in as_lines(_kept(findings, found), colour):
            print(line, flush=True)
        print(summary(found))
    return CHECK_SAYS_NO if any(finding.blocking for finding in found) else GOOD


def _kept(findings: Iterator[Finding], found: list[Finding]) -> Iterator[Finding]:
    for finding in findings:
        found.append(finding)
        yield finding


def make_context(machine: Machine, config_path: Path | None, state_dir: Path | None) -> Context:
    """Return the context, with the configuration or its errors.

    Args:
        config_path: By default that of the installed service, if it exists.
        state_dir: By default that of the installed service, if it exists, else the user's own.
    """
    installed = machine.at(str(_INSTALLED_CONFIG))
    if config_path is None and installed.is_file():
        config_path = installed
    if state_dir is None:
        is_installed = machine.there(str(_INSTALLED_STATE)) != "absent"
        state_dir = _INSTALLED_STATE if is_installed else default_state_dir()
    config = Config()
    problems: tuple[str, ...] = ()
    if config_path is not None:
        try:
            config = load_config(config_path)
        except ConfigError as error:
            problems = error.problems
        except UserError as error:
            problems = (str(error),)
    return Context(machine, config, config_path, problems, state_dir)
