"""``tegrascope doctor``."""

import argparse
import json
import os
import sys
from itertools import tee
from pathlib import Path

from ...collectors.board.machine import Machine
from ...parsers.errors import UserError
from ..doctor.examine import as_document, as_lines, examine, summary
from ..doctor.findings import Context
from ..settings.config import Config
from ..settings.file import ConfigError, load_config
from ..terminal import CHECK_SAYS_NO, GOOD
from . import INSTALLED_STATE, Commands, add_command, default_state_dir

_INSTALLED_CONFIG = Path("/etc/tegrascope.yaml")


def add(commands: Commands) -> None:
    """Add the command."""
    option = add_command(
        commands,
        "doctor",
        doctor,
        "tegrascope doctor\n  sudo tegrascope doctor -c /etc/tegrascope.yaml --json",
    )
    option("-c, --config FILE", "what is to run here")
    option("--state-dir DIR", "where runs are kept (default: as of run)")
    option("--json", "for programs; see docs/doctor.md")


def doctor(arguments: argparse.Namespace) -> int:
    """Print the findings of all checks; return 3 if the main job is not possible."""
    findings = examine(make_context(Machine(), arguments.config, arguments.state_dir))
    if arguments.json:
        found = list(findings)
        print(json.dumps(as_document(found), indent=2, ensure_ascii=False))
    else:
        shown, kept = tee(findings)
        colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        for line in as_lines(shown, colour):
            print(line, flush=True)
        found = list(kept)
        print(summary(found))
    return CHECK_SAYS_NO if any(finding.blocking for finding in found) else GOOD


def make_context(machine: Machine, config_path: Path | None, state_dir: Path | None) -> Context:
    """Return the context, with the configuration or its errors.

    By default both paths are those of the installed service, if they exist.
    """
    installed = machine.at(str(_INSTALLED_CONFIG))
    if config_path is None and installed.is_file():
        config_path = installed
    if state_dir is None:
        is_installed = machine.there(str(INSTALLED_STATE)) != "absent"
        state_dir = INSTALLED_STATE if is_installed else default_state_dir()
    config = Config()
    problems: tuple[str, ...] = ()
    try:
        config = config if config_path is None else load_config(config_path)
    except ConfigError as error:
        problems = error.problems
    except UserError as error:
        problems = (str(error),)
    return Context(machine, config, config_path, problems, state_dir)
