"""Progress of a benchmark on standard error: a bar on a terminal, plain lines elsewhere."""

import sys
from statistics import median
from typing import TYPE_CHECKING, TextIO

from ...collectors.base import SYSTEM_CLOCK, Clock
from ...parsers.inference.events import Phase, RunEvent
from ..measure.run_report import RunReport
from ..results.contention import Joint
from ..results.summary import reported_flags
from ..terminal.numbers import duration, seconds, watts

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


class LineDisplay:
    """Prints one line per step."""

    def __init__(self, stream: TextIO | None = None) -> None:
        """Write to standard error, or to another stream."""
        self._stream = sys.stderr if stream is None else stream

    def say(self, words: str) -> None:
        """Print a line."""
        print(words, file=self._stream, flush=True)

    def heard(self, event: RunEvent) -> None:
        """Report that an engine is built: that may take minutes."""
        if isinstance(event, Phase) and event.phase == "build" and event.edge == "begin":
            self.say("  building the engine; this may take minutes")

    def begin(self, title: str, seconds_left: float) -> None:
        """Print which round begins, and how long there is to wait."""
        self.say(f"{title}; about {duration(seconds_left)} left")

    def end(self, outcome: str) -> None:
        """Print the outcome."""
        self.say(f"  {outcome}")


class BarDisplay(LineDisplay):
    """A bar below the lines; ``progress`` is a context manager that shows it.

    It moves once per second: drawing takes time from the measurement.
    """

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        """Prepare the bar."""
        super().__init__()
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[left]}"),
            TimeElapsedColumn(),
            console=Console(stderr=True, highlight=False),
            refresh_per_second=1,
            transient=True,
        )
        self._task: TaskID = self.progress.add_task("begins", total=None, left="")
        self._clock = clock
        self._title = ""
        self._whole = 0.0
        self._end_ns: int | None = None

    def say(self, words: str) -> None:
        """Print a line above the bar."""
        self._title = words
        self.progress.console.print(words, markup=False)

    def heard(self, event: RunEvent) -> None:
        """Show the worker's phase, and how long there is to wait."""
        if isinstance(event, Phase) and event.edge == "begin":
            doing = f"{self._title} · {_DOING[event.phase]}"
            self.progress.update(self._task, description=doing)
        if self._end_ns is not None:
            self._show_left(max(0.0, (self._end_ns - self._clock.monotonic_ns()) / 1e9))

    def begin(self, title: str, seconds_left: float) -> None:
        """Show which round begins, and how far the benchmark is."""
        self._end_ns = self._clock.monotonic_ns() + round(seconds_left * 1e9)
        # Models together may take longer than all that was before.
        self._whole = max(self._whole, seconds_left)
        self._title = title
        self.progress.update(self._task, description=title)
        self._show_left(seconds_left)

    def end(self, outcome: str) -> None:
        """Print the outcome above the bar."""
        self.progress.console.print(f"{self._title}: {outcome}", markup=False)

    def _show_left(self, seconds_left: float) -> None:
        self.progress.update(
            self._task,
            total=self._whole,
            completed=self._whole - seconds_left,
            left=f"about {duration(seconds_left)} left",
        )


def outcome_of(report: RunReport) -> str:
    """Return the outcome of a round in a few words."""
    if report.latency is None or report.outcome != "ok":
        return f"{report.outcome}: {report.reason}"
    words = f"{report.inferences} inferences, p50 {seconds(report.latency.p50_seconds)}"
    return ", ".join(filter(None, (words, " ".join(reported_flags(report)))))


def outcome_of_joint(joint: Joint) -> str:
    """Return the outcome of a round of several models in a few words."""
    if joint.record.window is None:
        return "they were never in their steady phase at the same time"
    medians = (seconds(median(each) / 1e9) if each else "none" for each in joint.latency_ns)
    gross = joint.joules("gross", joint.seconds)
    words = (f"p50 {' + '.join(medians)}", gross and watts(gross[0]), " ".join(joint.flags))
    return ", ".join(filter(None, words))
