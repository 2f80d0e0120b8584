"""``tegrascope doctor``."""

import argparse
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from ...collectors.board.machine import Machine
from ...parsers.errors import Mendable
from ..doctor.examine import Told, as_document, as_lines, examine, summary
from ..doctor.findings import Patient
from ..settings.config import Config
from ..settings.file import ConfigError, load_config
from ..terminal.output import CHECK_SAYS_NO, GOOD
from .common import Commands, add_command

_INSTALLED_CONFIG = Path("/etc/tegrascope.yaml")
_INSTALLED_STATE = Path("/var/lib/tegrascope")


def doctor(arguments: argparse.Namespace) -> int:
    """Examine this machine, say what is found, and whether the main job can be done."""
    patient = make_patient(Machine(), arguments.config, arguments.state_dir)
    found: list[Told] = []

    def noted() -> Iterator[Told]:
        for told in examine(patient):
            found.append(told)
            yield told

    if arguments.json:
        print(json.dumps(as_document(list(noted())), indent=2, ensure_ascii=False))
    else:
        colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        for line in as_lines(noted(), colour):
            print(line, flush=True)
        print(summary(found))
    return CHECK_SAYS_NO if any(told.finding.blocking for told in found) else GOOD


def make_patient(machine: Machine, config_path: Path | None, state_dir: Path | None) -> Patient:
    """Read the configuration, or note what is wrong with it.

    Args:
        machine: What is examined.
        config_path: As asked for; without it, the one of the installed service if there is one.
        state_dir: As asked for; without it, the one of the installed service, or the user's own.
    """
    from .common import default_state_dir

    installed = machine.at(str(_INSTALLED_CONFIG))
    if config_path is None and installed.is_file():
        config_path = installed
    if state_dir is None:
        state_dir = default_state_dir()
        if machine.there(str(_INSTALLED_STATE)) != "absent":
            state_dir = _INSTALLED_STATE
    config = Config()
    problems: tuple[str, ...] = ()
    if config_path is not None:
        try:
            config = load_config(config_path)
        except ConfigError as error:
            problems = error.problems
        except Mendable as error:
            problems = (str(error),)
    return Patient(
        machine=machine,
        config=config,
        config_path=config_path,
        config_problems=problems,
        state_dir=state_dir,
    )


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
