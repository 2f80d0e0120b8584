"""How a bench goes on, on standard error: a bar where somebody watches, plain lines elsewhere."""

import sys
from statistics import median
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, TextIO

from ...collectors.base import SYSTEM_CLOCK, Clock
from ...parsers.inference.events import Phase, RunEvent
from ..measure.run_report import Device, RunReport
from .joint import Joint
from .rounds import told_flags
from .words import duration, seconds

if TYPE_CHECKING:
    from rich.progress import TaskID

_DOING = {
    "load": "loads",
    "build": "builds",
    "warm_up": "warms up",
    "baseline_before": "idles",
    "steady": "infers",
    "baseline_after": "idles",
}


class Teller(Protocol):
    """Who is told how a bench goes on."""

    def say(self, words: str) -> None:
        """Take a line."""

    def heard(self, event: RunEvent) -> None:
        """Take an event of the run in flight."""

    def begin_round(self, device: Device, number: int, planned: int, seconds_left: float) -> None:
        """Take note of a round that begins, and of the time that it and all others take."""

    def end_round(self, report: RunReport) -> None:
        """Take note of its end."""

    def begin_together(self, who: str, number: int, planned: int, seconds_left: float) -> None:
        """Take note of models that are switched on together, or of one of them alone."""

    def end_together(self, joint: Joint) -> None:
        """Take note of what came of it."""


class Lines:
    """One line for each thing that happens."""

    def __init__(self, stream: TextIO | None = None) -> None:
        """Write to standard error, or elsewhere."""
        self._stream = sys.stderr if stream is None else stream

    def say(self, words: str) -> None:
        """Print a line."""
        print(words, file=self._stream, flush=True)

    def heard(self, event: RunEvent) -> None:
        """Say when an engine is built: that may take minutes."""
        if isinstance(event, Phase) and event.phase == "build" and event.edge == "begin":
            self.say("  building the engine; this may take minutes")

    def begin_round(self, device: Device, number: int, planned: int, seconds_left: float) -> None:
        """Say which, and how long there is to wait."""
        left = duration(seconds_left)
        self.say(f"round {number} of {planned} on {device}; about {left} left")

    def end_round(self, report: RunReport) -> None:
        """Say what came of it."""
        self.say(f"  {outcome(report)}")

    def begin_together(self, who: str, number: int, planned: int, seconds_left: float) -> None:
        """Say who, and how long there is to wait."""
        self.say(f"turn {number} of {planned}: {who}; about {duration(seconds_left)} left")

    def end_together(self, joint: Joint) -> None:
        """Say what came of it."""
        self.say(f"  {outcome_together(joint)}")


class Bar(Lines):
    """A line that moves, under those that stay; a context manager.

    It moves once a second: whoever draws takes time from what is being measured.
    """

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        """Prepare the bar."""
        super().__init__()
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[left]}"),
            TimeElapsedColumn(),
            console=Console(stderr=True, highlight=False),
            refresh_per_second=1,
            transient=True,
        )
        self._task: TaskID = self._progress.add_task("begins", total=None, left="")
        self._clock = clock
        self._what = ""
        self._whole = 0.0
        self._end_ns: int | None = None

    def __enter__(self) -> "Bar":
        """Show it."""
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave the terminal as it was found."""
        self._progress.stop()

    def say(self, words: str) -> None:
        """Print a line above the bar."""
        self._what = words
        self._progress.console.print(words, markup=False)

    def heard(self, event: RunEvent) -> None:
        """Show what the worker does, and how long there is to wait."""
        if isinstance(event, Phase) and event.edge == "begin":
            doing = f"{self._what} · {_DOING[event.phase]}"
            self._progress.update(self._task, description=doing)
        if self._end_ns is not None:
            self._show_left(max(0.0, (self._end_ns - self._clock.monotonic_ns()) / 1e9))

    def begin_round(self, device: Device, number: int, planned: int, seconds_left: float) -> None:
        """Show which, and how far the bench is."""
        self._begin(f"round {number} of {planned} on {device}", seconds_left)

    def end_round(self, report: RunReport) -> None:
        """Print what came of it above the bar."""
        self._progress.console.print(f"{self._what}: {outcome(report)}", markup=False)

    def begin_together(self, who: str, number: int, planned: int, seconds_left: float) -> None:
        """Show who, and how far the bench is."""
        self._begin(f"turn {number} of {planned}: {who}", seconds_left)

    def end_together(self, joint: Joint) -> None:
        """Print what came of it above the bar."""
        self._progress.console.print(f"{self._what}: {outcome_together(joint)}", markup=False)

    def _begin(self, what: str, seconds_left: float) -> None:
        self._end_ns = self._clock.monotonic_ns() + round(seconds_left * 1e9)
        self._whole = max(self._whole, seconds_left)
        self._what = what
        self._progress.update(self._task, description=what)
        self._show_left(seconds_left)

    def _show_left(self, seconds_left: float) -> None:
        self._progress.update(
            self._task,
            total=self._whole,
            completed=self._whole - seconds_left,
            left=f"about {duration(seconds_left)} left",
        )


def outcome(report: RunReport) -> str:
    """Say in a few words what a round found."""
    if report.latency is None or report.outcome != "ok":
        return f"{report.outcome}: {report.reason}"
    words = [f"{report.inferences} inferences", f"p50 {seconds(report.latency.p50_seconds)}"]
    flags = told_flags(report)
    if flags:
        words.append(" ".join(flags))
    return ", ".join(words)


def outcome_together(joint: Joint) -> str:
    """Say in a few words what a round of several models found."""
    if joint.record.window is None:
        return "they were never all at work at once"
    medians = " + ".join(
        seconds(median(each) / 1e9) if each else "none" for each in joint.latency_ns
    )
    words = [f"p50 {medians}"]
    if joint.energy is not None and joint.energy.gross_joules is not None:
        words.append(f"{joint.energy.gross_joules / joint.seconds:.2f} W")
    words.append(" ".join(joint.flags))
    return ", ".join(filter(None, words))
