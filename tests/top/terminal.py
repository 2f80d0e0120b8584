"""A program in a real pseudo-terminal, and the contents of its window."""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

import pyte

_COLOUR = re.compile(rb"\x1b\[[0-9;]*(?:3[0-7]|4[0-7]|9[0-7]|38|48)[0-9;]*m")

# A session whose terminal this is, so that Ctrl-C and a closed window reach the program.
_OWN_TERMINAL = (
    "import fcntl, os, sys, termios; os.setsid(); fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    "os.execv(sys.argv[1], sys.argv[1:])"
)


class Terminal:
    """One window.

    Attributes:
        printed: All bytes that came.
        lines: What it shows now, without blanks at the right.
    """

    def __init__(self, arguments: Sequence[str], width: int, height: int, **variables: str) -> None:
        """Start ``tegrascope`` in it."""
        self.printed = b""
        self._screen = pyte.Screen(width, height)
        self._stream = pyte.ByteStream(self._screen)
        self._master, self._slave = pty.openpty()
        self.resize(width, height)
        self._before = termios.tcgetattr(self._slave)
        environment = {"TERM": "xterm-256color", "PYTHONWARNINGS": "error", **variables}
        dropped = {"NO_COLOR", "COLUMNS", "LINES", "FORCE_COLOR"}
        kept = {name: value for name, value in os.environ.items() if name not in dropped}
        self.process = subprocess.Popen(
            [sys.executable, "-c", _OWN_TERMINAL, sys.executable, "-m", "tegrascope", *arguments],
            stdin=self._slave,
            stdout=self._slave,
            stderr=self._slave,
            env={**kept, **environment},
        )

    def resize(self, width: int, height: int) -> None:
        """Give the window another size."""
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
        self._screen.resize(height, width)

    @property
    def lines(self) -> list[str]:
        """What it shows."""
        return [text.rstrip() for text in self._screen.display]

    @property
    def text(self) -> str:
        """The same as one text."""
        return "\n".join(self.lines)

    @property
    def has_colour(self) -> bool:
        """Whether anything was printed in colour."""
        return _COLOUR.search(self.printed) is not None

    def read(self, seconds: float) -> bool:
        """Show the output that comes within some time; return whether any came."""
        ready, _, _ = select.select([self._master], [], [], seconds)
        if ready:
            came = os.read(self._master, 65536)
            self.printed += came
            self._stream.feed(came)
        return bool(ready)

    def wait_for(self, find: Callable[[], Any], seconds: float = 180.0) -> Any:
        """Return the first true value that a function of the window returns."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            found = find()
            if found:
                return found
            self.read(0.1)
        raise AssertionError(f"waited {seconds} s in vain; the window:\n{self.text}")

    def press(self, keys: bytes) -> None:
        """Press keys."""
        os.write(self._master, keys)

    def end(self, keys: bytes) -> int:
        """Press keys that end it; return its status."""
        self.press(keys)
        self.wait_for(lambda: self.process.poll() is not None)
        while self.read(0.0):  # a terminal gives a few kilobytes at a time
            pass
        return int(self.process.returncode)

    def is_restored(self) -> bool:
        """Return whether the terminal is as it was: its modes, the screen before, a cursor."""
        last = {code: self.printed.rfind(code) for code in (b"\x1b[?1049h", b"\x1b[?1049l")}
        left = last[b"\x1b[?1049l"] > last[b"\x1b[?1049h"]
        shown = self.printed.rfind(b"\x1b[?25h") > self.printed.rfind(b"\x1b[?25l")
        return left and shown and termios.tcgetattr(self._slave) == self._before

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._master)
        os.close(self._slave)
