"""What the screen asks of a daemon: its page at each look, and its runs where one has ended."""

import io
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from ...collectors.application.client import ApiClient
from ...collectors.board.boards import find_rail_rule
from ...parsers.signals import RAIL_POWER
from .blocks import Marks
from .screen import Moment, draw
from .view import Series, View, make_view

_HISTORY = 240
_PAST_SECONDS = 120.0
_RUNS = 50


class Asker:
    """Asks one daemon, and knows what it said before.

    Attributes:
        url: Where it is.
    """

    def __init__(self, client: ApiClient, interval_seconds: float = 1.0) -> None:
        """Name the daemon.

        Args:
            client: Who speaks to it.
            interval_seconds: How often it will be asked: a column of the history is so long.
        """
        self.url = client.url
        self._interval_seconds = interval_seconds
        self._client = client
        self._history: deque[float | None] = deque(maxlen=_HISTORY)
        self._runs: Sequence[Mapping[str, Any]] = ()
        self._runs_known = -1
        self._joules: tuple[float, float] | None = None
        self._watts: float | None = None
        self._seconds = 0.0
        self._sample_seconds: float | None = None
        self._asked_at = 0.0

    def ask(self) -> Moment:
        """Ask once.

        Raises:
            Mendable: Nobody answers, or not as a daemon does.
        """
        page = self._client.get("/metrics", lambda body: Series(body.decode()))
        self._asked_at = time.monotonic()
        finished = int(sum(value for _, value in page.all("tegra_inference_runs_total")))
        if finished != self._runs_known:
            self._runs = self._client.get(f"/api/v1/runs?limit={_RUNS}")["runs"]
            self._runs_known = finished
        view = make_view(page, self._runs)
        is_first = self._joules is None
        if is_first and view.sample_seconds is not None and view.module_joules is not None:
            self._look_back(view)
        if view.sample_seconds != self._sample_seconds:
            self._count(view)
            self._sample_seconds = view.sample_seconds
        # The daemon's own time, as far as it tells: its clock and ours need not agree.
        self._seconds = view.sample_seconds or time.time()
        if not any(view.sources.values()):
            self._seconds = time.time()
        return self._moment(view)

    def again(self, moment: Moment, problem: str) -> Moment:
        """Return what was told last, and why nothing newer is."""
        now = moment.now_seconds + time.monotonic() - self._asked_at
        return Moment(moment.view, moment.url, moment.watts, moment.history, now, problem)

    def _moment(self, view: View) -> Moment:
        return Moment(view, self.url, self._watts, tuple(self._history), self._seconds)

    def _count(self, view: View) -> None:
        """Make the mean power since the sample before of the energy counter."""
        if view.module_joules is None or view.sample_seconds is None:
            self._joules = self._watts = None
            return
        now = view.sample_seconds, view.module_joules
        if self._joules is not None and now[0] > self._joules[0] and now[1] >= self._joules[1]:
            self._watts = (now[1] - self._joules[1]) / (now[0] - self._joules[0])
            self._history.append(self._watts)
        self._joules = now

    def _look_back(self, view: View) -> None:
        """Take the module's power of the last minutes from the samples, so that there is a past."""
        rule = find_rail_rule(view.rails)
        if rule is None or view.sample_seconds is None:
            return
        since = view.sample_seconds - _PAST_SECONDS
        names = [RAIL_POWER.column(rail) for rail in rule.total]
        looks: dict[int, list[float]] = {}
        for sample in self._client.get(f"/api/v1/samples?since={since:.3f}")["samples"]:
            values = sample["values"]
            if all(name in values for name in names):
                look = int(sample["time"] // self._interval_seconds)
                looks.setdefault(look, []).append(sum(values[name] for name in names))
        for watts in looks.values():
            self._watts = sum(watts) / len(watts)
            self._history.append(self._watts)


def save_picture(path: Path, url: str | None = None, *, width: int = 80, height: int = 24) -> None:
    """Write the screen of a daemon as it is now, as SVG.

    Args:
        path: Where to.
        url: Where the daemon is, as for ``ApiClient``.
        width: Of the window, in cells.
        height: Of it, in lines.

    Raises:
        Mendable: Nobody answers.
    """
    asker = Asker(ApiClient(url))
    console = Console(
        record=True, width=width, height=height, file=io.StringIO(), force_terminal=True,
        color_system="truecolor", highlight=False, emoji=False, markup=False,
    )  # fmt: skip
    for text in draw(asker.ask(), width, height, Marks(), "q quits"):
        console.print(text)
    console.save_svg(str(path), title="tegrascope top")
