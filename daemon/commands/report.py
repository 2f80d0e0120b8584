"""``tegrascope report``."""

import argparse
from pathlib import Path

from ...collectors.base import SYSTEM_CLOCK
from ...parsers.values import read_duration
from ..results.runs_page import page_of_run, page_since
from ..terminal.output import GOOD, open_output
from . import Commands, add_command, add_state_dir, open_history


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "report",
        "tegrascope report --since 24h -o day.html\n  tegrascope report --run 0193a1 -o run.html",
    )
    selection = parser.add_mutually_exclusive_group()
    selection.add_argument(
        "--since",
        type=_seconds,
        default=86_400.0,
        metavar="DURATION",
        help="runs and telemetry of so long ago until now, like 90m or 7d (default: 24h)",
    )
    selection.add_argument("--run", metavar="ID", help="one run; a unique part of its id is enough")
    parser.add_argument(
        "-o", "--output", type=Path, required=True, metavar="FILE", help="the page to write"
    )
    add_state_dir(parser, "where runs are kept, or the database itself")
    parser.set_defaults(command=report)


def report(arguments: argparse.Namespace) -> int:
    """Write the page; it needs no other file and no network."""
    with open_history(arguments) as history:
        if arguments.run is not None:
            page = page_of_run(history, arguments.run)
        else:
            page = page_since(history, arguments.since, SYSTEM_CLOCK.wall_ns())
    with open_output(arguments.output) as output:
        output.write(page)
    return GOOD


def _seconds(text: str) -> float:
    try:
        value = float(str(read_duration(text)))
    except ValueError:
        value = 0.0
    if not 0 < value < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration, like 90m, 24h or 7d")
    return value
