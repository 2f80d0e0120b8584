"""The live screen: redraws on each answer, and ends by a key."""

import contextlib
import os
import select
import signal
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import NoReturn

from rich.console import Console
from rich.live import Live
from rich.text import Text

from .blocks import Glyphs
from .client import DaemonClient, Poller
from .screen import ScreenState, draw

_KEY_SECONDS = 0.1


def watch(
    client: DaemonClient,
    first: ScreenState,
    interval_seconds: float,
    console: Console,
    glyphs: Glyphs,
) -> None:
    """Show the screen until ``q``, Ctrl-C or the end of the terminal."""
    poller = Poller(client, first, interval_seconds)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    shown: tuple[object, ...] = ()
    try:
        with single_keys() as wait, Live(console=console, screen=True, auto_refresh=False) as live:
            poller.start()
            typed = ""
            while "q" not in typed.lower():
                state = poller.state
                if shown != (state, console.size):
                    shown = state, console.size
                    lines = draw(state, console.width, console.height, glyphs, "q quits")
                    live.update(Text("\n").join(lines), refresh=True)
                typed = wait(_KEY_SECONDS)
    except KeyboardInterrupt:
        pass
    finally:
        poller.stopping.set()


def _interrupt(_: int, __: FrameType | None) -> NoReturn:
    """End as by Ctrl-C, which restores the terminal."""
    raise KeyboardInterrupt


@contextlib.contextmanager
def single_keys() -> Iterator[Callable[[float], str]]:
    """Read keys as they are pressed, without an echo, and restore the terminal at the end.

    Yields:
        A function that waits for some seconds and returns the keys typed meanwhile. If standard
        input is not a terminal, it returns none.
    """
    try:
        import termios
        import tty

        number = sys.stdin.fileno()
        before = termios.tcgetattr(number)
    except (ImportError, OSError, ValueError, termios.error):
        yield lambda seconds: _read([], seconds)
        return
    try:
        tty.setcbreak(number)
        modes = termios.tcgetattr(number)
        # A suspended screen would leave the shell on a page without a cursor.
        modes[6][termios.VSUSP] = b"\0"
        termios.tcsetattr(number, termios.TCSANOW, modes)
        yield lambda seconds: _read([number], seconds)
    finally:
        termios.tcsetattr(number, termios.TCSADRAIN, before)


def _read(numbers: list[int], seconds: float) -> str:
    ready, _, _ = select.select(numbers, [], [], seconds)
    if not ready:
        return ""
    typed = os.read(ready[0], 64)
    # The end of input is the end of the terminal.
    return typed.decode(errors="replace") if typed else "q"
