"""``tegrascope top``."""

import argparse
import signal
import sys
import threading
import time
from types import FrameType
from typing import NoReturn

from rich.console import Console
from rich.live import Live
from rich.text import Text

from ...collectors.application.client import ApiClient
from ...parsers.errors import Mendable
from ..top.blocks import Marks, marks_of
from ..top.client import Asker
from ..top.keys import single_keys
from ..top.screen import Moment, draw
from .common import Commands, add_command, positive_seconds

_LOOK_SECONDS = 0.1
_SECOND_LOOK_SECONDS = 3.0
_FOOT = "q quits"


def top(arguments: argparse.Namespace) -> int:
    """Show one daemon until told to end, or once."""
    asker = Asker(ApiClient(arguments.url), arguments.interval)
    console = Console(highlight=False, emoji=False, markup=False)
    marks = marks_of(console.encoding)
    if not arguments.once and not sys.stdout.isatty():
        raise Mendable("standard output is no terminal", "give --once for one screen")
    first = asker.ask()
    if arguments.once:
        for text in draw(_with_power(asker, first), console.width, None, marks):
            console.print(text, soft_wrap=True)
        return 0
    _watch(asker, first, arguments.interval, console, marks)
    return 0


def _with_power(asker: Asker, moment: Moment) -> Moment:
    """Look until there are two samples, which make a mean power, or for a few seconds."""
    until = time.monotonic() + _SECOND_LOOK_SECONDS
    while moment.watts is None and moment.view.rails and time.monotonic() < until:
        time.sleep(_LOOK_SECONDS)
        moment = asker.ask()
    return moment


class _Looker(threading.Thread):
    """Asks again and again, so that a daemon that is slow to answer keeps no key waiting."""

    def __init__(self, asker: Asker, first: Moment, interval_seconds: float) -> None:
        super().__init__(name="looker", daemon=True)
        self.moment = first
        self.stopping = threading.Event()
        self._asker = asker
        self._interval_seconds = interval_seconds
        self._well_at = time.time()

    def run(self) -> None:
        while not self.stopping.wait(self._interval_seconds):
            try:
                self.moment = self._asker.ask()
                self._well_at = time.time()
            except Mendable as error:
                self._tell(error.what)
            except Exception as error:  # an answer of something that is no daemon
                self._tell(f"{self._asker.url} answers what is no answer ({error!r})")

    def _tell(self, problem: str) -> None:
        since = time.strftime("%H:%M:%S", time.localtime(self._well_at))
        self.moment = self._asker.again(self.moment, f"stale since {since}: {problem}")


def _watch(
    asker: Asker, first: Moment, interval_seconds: float, console: Console, marks: Marks
) -> None:
    looker = _Looker(asker, first, interval_seconds)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _end)
    shown: tuple[object, ...] = ()
    try:
        with single_keys() as wait, Live(console=console, screen=True, auto_refresh=False) as live:
            looker.start()
            typed = ""
            while "q" not in typed.lower():
                now = looker.moment, console.size
                if now != shown:
                    shown = now
                    lines = draw(looker.moment, console.width, console.height, marks, _FOOT)
                    live.update(Text("\n").join(lines), refresh=True)
                typed = wait(_LOOK_SECONDS)
    except KeyboardInterrupt:
        pass  # it is how a person ends what has no other end
    finally:
        looker.stopping.set()


def _end(_: int, __: FrameType | None) -> NoReturn:
    """End as by Ctrl-C: the terminal is given back on the way."""
    raise KeyboardInterrupt


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "top",
        "tegrascope top\n"
        "  tegrascope top --url http://robot-007:9754\n"
        "  tegrascope top --once | head -3",
    )
    parser.add_argument("--url", help="default: TEGRASCOPE_URL, else http://127.0.0.1:9754")
    parser.add_argument(
        "--interval",
        type=positive_seconds,
        default=1.0,
        metavar="SECONDS",
        help="between two looks (default: %(default)g)",
    )
    parser.add_argument("--once", action="store_true", help="print one screen and end")

    parser.set_defaults(command=top)
