"""``tegrascope top``."""

import argparse
import sys

from rich.console import Console

from ...collectors.application.client import ODD_ANSWER, ApiClient
from ...daemon.commands import Options
from ...daemon.outputs import standard_output
from ...parsers.errors import UserError
from ...parsers.records import Record
from ..top.client import DaemonClient, Gauge, ScreenState, gauges_of
from ..top.screen import draw, glyphs_of, watch

EXAMPLE = (
    "tegrascope top\n"
    "  tegrascope top --url http://robot-007:9754\n"
    "  tegrascope top --once | head -3"
)


class Screen(Record):
    """One screen for programs, in base units.

    Attributes:
        now_seconds: Wall time of the newest sample.
        module_watts: Mean power of the module over the last seconds; ``None`` if it is not known.
        rails: Watts by rail.
        zones: Celsius by zone.
        sources: Whether each source works.
        processes: CPU cores in use, by name of the process.
    """

    url: str
    is_simulated: bool
    now_seconds: float
    module_watts: float | None = None
    units: tuple[Gauge, ...]
    rails: dict[str, float]
    zones: dict[str, float]
    sources: dict[str, bool]
    processes: dict[str, float]

    @classmethod
    def of(cls, state: ScreenState) -> "Screen":
        """Return the values that the screen shows of a daemon."""
        return cls(
            url=state.url,
            is_simulated=state.status["simulated"],
            now_seconds=state.now_seconds,
            module_watts=state.watts,
            units=gauges_of(state.values),
            rails=state.rails,
            zones=state.zones,
            sources=state.sources,
            processes=state.processes,
        )


def add(option: Options) -> None:
    """Add the options."""
    option("--url URL", "default: TEGRASCOPE_URL, else http://127.0.0.1:9754")
    option("--interval SECONDS", "between two requests (default: %(default)g)", default=1.0)
    option("--once", "print one screen and end")
    option("--json", "print the values of one screen as one JSON object and end")


def run(arguments: argparse.Namespace) -> int:
    """Show one daemon until a key ends it, or once."""
    api = ApiClient(arguments.url)
    try:
        return _show(DaemonClient(api, arguments.interval), arguments)
    except ODD_ANSWER as error:  # the screen shows many values of the answer, as they are
        raise api.odd_answer(error) from None


def _show(client: DaemonClient, arguments: argparse.Namespace) -> int:
    console = Console(highlight=False, emoji=False, markup=False)
    glyphs = glyphs_of(console.encoding)
    is_once = arguments.once or arguments.json
    if not is_once and not sys.stdout.isatty():
        raise UserError("standard output is not a terminal", "give --once for one screen")
    state = client.ask()
    if not is_once:
        watch(client, state, arguments.interval, console, glyphs)
        return 0
    if arguments.json:
        print(Screen.of(state).model_dump_json(exclude_none=True), file=standard_output())
        return 0
    for text in draw(state, console.width, None, glyphs):
        console.print(text, soft_wrap=True)
    return 0
