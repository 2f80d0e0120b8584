"""The client of the screen: asks a daemon for its metrics, and for its runs when one has ended."""

import contextlib
import io
import os
import select
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from rich.console import Console
from rich.live import Live
from rich.text import Text

from ...collectors.application.client import ApiClient
from ...collectors.board.boards import find_rail_rule
from ...parsers.errors import UserError
from ...parsers.signals import RAIL_POWER
from .screen import Glyphs, ScreenState, draw
from .view import Series, View, make_view

_HISTORY = 240
_PAST_SECONDS = 120.0
_RUNS = 50


class DaemonClient:
    """Asks one daemon and remembers its earlier answers."""

    def __init__(self, client: ApiClient, interval_seconds: float = 1.0) -> None:
        """Take the client of the daemon.

        Args:
            interval_seconds: Time between two requests, and length of a column of the history.
        """
        self.url = client.url
        self._interval_seconds = interval_seconds
        self._client = client
        self._history: deque[float | None] = deque(maxlen=_HISTORY)
        self._runs: Sequence[Mapping[str, Any]] = ()
        self._run_count = -1
        self._joules: tuple[float, float] | None = None
        self._watts: float | None = None
        self._sample_seconds: float | None = None
        self._asked_at = 0.0

    def ask(self) -> ScreenState:
        """Ask once.

        Raises:
            UserError: No daemon answers.
        """
        page = self._client.get("/metrics", lambda body: Series(body.decode()))
        self._asked_at = time.monotonic()
        finished = int(sum(value for _, value in page.all("tegra_inference_runs_total")))
        if finished != self._run_count:
            self._runs = self._client.get(f"/api/v1/runs?limit={_RUNS}")["runs"]
            self._run_count = finished
        view = make_view(page, self._runs)
        if self._joules is None and view.module_joules is not None:
            self._read_past(view)
        if view.sample_seconds != self._sample_seconds:
            self._update_power(view)
            self._sample_seconds = view.sample_seconds
        # The daemon's time while it has samples: its clock and ours can differ.
        now = view.sample_seconds if any(view.sources.values()) else None
        return ScreenState(view, self.url, self._watts, tuple(self._history), now or time.time())

    def repeat(self, state: ScreenState, problem: str) -> ScreenState:
        """Return the last answer with the reason for its age."""
        now = state.now_seconds + time.monotonic() - self._asked_at
        return replace(state, now_seconds=now, problem=problem)

    def _update_power(self, view: View) -> None:
        """Calculate the mean power since the sample before from the energy counter."""
        if view.module_joules is None or view.sample_seconds is None:
            self._joules = self._watts = None
            return
        seconds, joules = view.sample_seconds, view.module_joules
        if self._joules is not None and seconds > self._joules[0] and joules >= self._joules[1]:
            self._watts = (joules - self._joules[1]) / (seconds - self._joules[0])
            self._history.append(self._watts)
        self._joules = seconds, joules

    def _read_past(self, view: View) -> None:
        """Fill the history with the module's power in the daemon's recent samples."""
        rule = find_rail_rule(view.rails)
        if rule is None or view.sample_seconds is None:
            return
        since = view.sample_seconds - _PAST_SECONDS
        names = [RAIL_POWER.column(rail) for rail in rule.total]
        columns: dict[int, list[float]] = {}
        for sample in self._client.get(f"/api/v1/samples?since={since:.3f}")["samples"]:
            values = sample["values"]
            if all(name in values for name in names):
                column = int(sample["time"] // self._interval_seconds)
                columns.setdefault(column, []).append(sum(values[name] for name in names))
        for watts in columns.values():
            self._watts = sum(watts) / len(watts)
            self._history.append(self._watts)


class Poller(threading.Thread):
    """Asks again and again in a thread, so that a slow daemon does not delay a key.

    Attributes:
        state: The last answer.
        stopping: Ends the thread.
    """

    def __init__(self, client: DaemonClient, first: ScreenState, interval_seconds: float) -> None:
        """Begin with a first answer."""
        super().__init__(name="poller", daemon=True)
        self.state = first
        self.stopping = threading.Event()
        self._client = client
        self._interval_seconds = interval_seconds
        self._answered_at = time.time()

    def run(self) -> None:
        """Ask until stopped."""
        while not self.stopping.wait(self._interval_seconds):
            try:
                self.state = self._client.ask()
                self._answered_at = time.time()
                continue
            except UserError as error:
                problem = error.message
            except Exception as error:  # an answer of another program
                problem = f"{self._client.url} does not answer as a daemon does ({error!r})"
            since = time.strftime("%H:%M:%S", time.localtime(self._answered_at))
            self.state = self._client.repeat(self.state, f"stale since {since}: {problem}")


def save_picture(path: Path, url: str | None = None, *, width: int = 80, height: int = 24) -> None:
    """Write the screen of a daemon as SVG.

    Args:
        url: As of ``ApiClient``.
        width: In cells.
        height: In lines.

    Raises:
        UserError: No daemon answers.
    """
    console = Console(
        record=True, width=width, height=height, file=io.StringIO(), force_terminal=True,
        color_system="truecolor", highlight=False, emoji=False, markup=False,
    )  # fmt: skip
    for text in draw(DaemonClient(ApiClient(url)).ask(), width, height, Glyphs(), "q quits"):
        console.print(text)
    console.save_svg(str(path), title="tegrascope top")


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
