"""Arguments of ``tegrascope service``."""

import argparse
from collections.abc import Callable
from pathlib import Path

from .common import Commands, add_command


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "service",
        "put the systemd units in place, or take them away",
        "tegrascope service install --dry-run\n  sudo tegrascope service install",
    )
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    installing = add_command(
        actions,
        "install",
        "write units, user and settings; nothing is started or enabled",
        "tegrascope service install --dry-run\n"
        "  sudo tegrascope service install && sudo systemctl enable --now tegrascope",
    )
    installing.add_argument(
        "--program", metavar="COMMAND", help="what the unit runs (default: this installation)"
    )
    removing = add_command(
        actions,
        "remove",
        "stop the service and take its units away; runs and settings stay",
        "tegrascope service remove --dry-run\n  sudo tegrascope service remove --purge",
    )
    removing.add_argument(
        "--purge", action="store_true", help="delete settings, runs and the user as well"
    )
    for name, action in (("install", installing), ("remove", removing)):
        action.add_argument(
            "--root", type=Path, default=Path("/"), metavar="DIR", help="of an image (default: /)"
        )
        action.add_argument(
            "--dry-run", action="store_true", help="say what would be done, and do nothing"
        )
        action.set_defaults(command=_service_action(name), action=name)


def _service_action(name: str) -> Callable[[argparse.Namespace], int]:
    def command(arguments: argparse.Namespace) -> int:
        from .. import service_command

        return int(getattr(service_command, name)(arguments))

    return command
