"""``tegrascope top``."""

import argparse
import sys
import time

from rich.console import Console

from ...collectors.application.client import ApiClient
from ...parsers.errors import UserError
from ..top.client import DaemonClient
from ..top.screen import draw, glyphs_of, watch
from . import Options

EXAMPLE = (
    "tegrascope top\n"
    "  tegrascope top --url http://robot-007:9754\n"
    "  tegrascope top --once | head -3"
)


def add(option: Options) -> None:
    """Add the options."""
    option("--url URL", "default: TEGRASCOPE_URL, else http://127.0.0.1:9754")
    option("--interval SECONDS", "between two requests (default: %(default)g)", default=1.0)
    option("--once", "print one screen and end")


def run(arguments: argparse.Namespace) -> int:
    """Show one daemon until a key ends it, or once."""
    client = DaemonClient(ApiClient(arguments.url), arguments.interval)
    console = Console(highlight=False, emoji=False, markup=False)
    glyphs = glyphs_of(console.encoding)
    if not arguments.once and not sys.stdout.isatty():
        raise UserError("standard output is not a terminal", "give --once for one screen")
    state = client.ask()
    if not arguments.once:
        watch(client, state, arguments.interval, console, glyphs)
        return 0
    # A mean power needs two samples.
    until = time.monotonic() + 3.0
    while state.watts is None and state.page.rails and time.monotonic() < until:
        time.sleep(0.1)
        state = client.ask()
    for text in draw(state, console.width, None, glyphs):
        console.print(text, soft_wrap=True)
    return 0
