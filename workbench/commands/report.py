"""``tegrascope report``."""

import argparse

from ...collectors.base import SYSTEM_CLOCK
from ...daemon.commands import DATABASE, Options, duration, open_history
from ...daemon.outputs import check_output, open_output
from ...daemon.terminal import GOOD
from ..results.runs_page import page_of_run, page_since

EXAMPLE = "tegrascope report --since 24h -o day.html\n  tegrascope report --run 0193a1 -o run.html"


def add(option: Options) -> None:
    """Add the options."""
    selection = option.one_of()
    selection(
        "--since DURATION",
        "runs and telemetry of so long ago until now, like 90m or 7d (default: 24h)",
        type=duration,
        default=86_400.0,
    )
    selection("--run ID", "one run; a unique beginning or end of its id")
    option("-o, --output FILE", "the page to write", required=True)
    option.state_dir("where runs are kept, or the database itself", DATABASE)


def run(arguments: argparse.Namespace) -> int:
    """Write the page; it needs no other file and no network."""
    check_output(arguments.output)
    with open_history(arguments) as history:
        if arguments.run is not None:
            page = page_of_run(history, arguments.run)
        else:
            page = page_since(history, arguments.since, SYSTEM_CLOCK.wall_ns())
    with open_output(arguments.output) as output:
        output.write(page)
    return GOOD
