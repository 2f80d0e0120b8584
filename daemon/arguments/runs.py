"""Arguments of ``tegrascope runs``."""

import argparse
from collections.abc import Callable
from pathlib import Path

from ...parsers.errors import Mendable
from .common import Commands, add_command, add_state_dir, positive


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands, "runs", "look at the run store", "tegrascope runs list --workload resnet50-dla0"
    )
    actions = parser.add_subparsers(required=True, metavar="ACTION")

    listing = add_command(
        actions, "list", "list finished runs, newest first", "tegrascope runs list -n 5"
    )
    listing.add_argument(
        "-n", "--number", type=positive, default=20, metavar="N", help="at most so many"
    )
    listing.add_argument("--workload", metavar="NAME")
    showing = add_command(actions, "show", "show all of one run", "tegrascope runs show 0193a1")
    showing.add_argument("run_id", metavar="ID", help="or an unmistakable beginning or end of it")
    exporting = add_command(
        actions, "export", "write all runs", "tegrascope runs export -f parquet -o runs.parquet"
    )
    exporting.add_argument("-f", "--format", choices=("csv", "parquet", "jsonl"), default="jsonl")
    exporting.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="default: standard output"
    )
    exporting.add_argument("--workload", metavar="NAME")
    for name, action in (("list", listing), ("show", showing), ("export", exporting)):
        add_state_dir(action, "where runs are kept, or the database itself")
        action.set_defaults(command=_runs_action(name))


def _runs_action(name: str) -> Callable[[argparse.Namespace], int]:
    def command(arguments: argparse.Namespace) -> int:
        import sqlite3

        from .. import runs_command

        try:
            return int(getattr(runs_command, f"{name}_runs")(arguments))
        except sqlite3.Error as error:
            raise Mendable(
                f"the run store in {arguments.state_dir} cannot be read ({error})",
                "name the daemon's directory with --state-dir",
            ) from None

    return command
