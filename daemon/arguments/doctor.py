"""Arguments of ``tegrascope doctor``."""

import argparse
from pathlib import Path

from .common import Commands, add_command


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "doctor",
        "say what this machine has, what is missing, and what mends it",
        "tegrascope doctor\n  sudo tegrascope doctor -c /etc/tegrascope.yaml --json",
    )
    parser.add_argument("-c", "--config", type=Path, metavar="FILE", help="what is to run here")
    parser.add_argument(
        "--state-dir", type=Path, metavar="DIR", help="where runs are kept (default: as of run)"
    )
    parser.add_argument("--json", action="store_true", help="for programs; see docs/doctor.md")

    def command(arguments: argparse.Namespace) -> int:
        from ..doctor.command import doctor

        return doctor(arguments)

    parser.set_defaults(command=command)
