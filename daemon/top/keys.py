"""Single keys of a terminal, and the terminal as it was at the end."""

import contextlib
import os
import select
import sys
from collections.abc import Callable, Iterator

Wait = Callable[[float], str]


@contextlib.contextmanager
def single_keys() -> Iterator[Wait]:
    """Read keys as they are pressed, without showing them.

    Yields:
        What waits for so many seconds, and returns what was typed meanwhile: ``""`` for nothing.
        Where standard input is no terminal, nothing is ever typed.
    """
    try:
        import termios
        import tty

        number = sys.stdin.fileno()
        before = termios.tcgetattr(number)
    except (ImportError, OSError, ValueError, termios.error):
        yield lambda seconds: _sleep(seconds)
        return
    try:
        tty.setcbreak(number)
        modes = termios.tcgetattr(number)
        # A screen that is put to sleep would leave the shell on a page without a cursor.
        modes[6][termios.VSUSP] = b"\0"
        termios.tcsetattr(number, termios.TCSANOW, modes)
        yield lambda seconds: _read(number, seconds)
    finally:
        termios.tcsetattr(number, termios.TCSADRAIN, before)


def _read(number: int, seconds: float) -> str:
    ready, _, _ = select.select([number], [], [], seconds)
    if not ready:
        return ""
    typed = os.read(number, 64)
    # The end of input is that of the terminal: there is nobody to look at a screen any more.
    return typed.decode(errors="replace") if typed else "q"


def _sleep(seconds: float) -> str:
    select.select([], [], [], seconds)
    return ""
