"""The arithmetic of a score: what a tool published against what is true."""

import statistics
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

SHARES = (0.01, 0.02, 0.05)


@dataclass(frozen=True, slots=True)
class Answer:
    """What one tool published for one world.

    Attributes:
        truth: The exact energy in joules between the marks of this tool's own run.
        joules: The published figure; ``None`` if it was withheld or the tool failed.
        low: Lower end of the interval that the tool states, if it states one.
        high: Its upper end.
        reason: Why there is no figure, or the flags of the tool beside it.
    """

    truth: float
    joules: float | None = None
    low: float | None = None
    high: float | None = None
    reason: str = ""

    @property
    def error(self) -> float | None:
        """The relative error, or ``None`` without a figure."""
        return None if self.joules is None else self.joules / self.truth - 1

    @property
    def has_interval(self) -> bool:
        """Whether a figure and both ends of an interval were published."""
        return self.joules is not None and self.low is not None and self.high is not None

    @property
    def holds(self) -> bool:
        """Whether the interval contains the truth; without one it does not."""
        if self.joules is None or self.low is None or self.high is None:
            return False
        return self.low <= self.truth <= self.high

    def to_json(self) -> dict[str, Any]:
        """Return the values that are there, rounded to a tenth of a millijoule."""
        values = {name: value for name, value in asdict(self).items() if value not in (None, "")}
        return {
            name: round(value, 4) if isinstance(value, float) else value
            for name, value in values.items()
        }


@dataclass(frozen=True, slots=True)
class Score:
    """The score of one tool over some worlds; shares are 0 to 1, ``None`` of nothing.

    Attributes:
        worlds: How many worlds it was run on.
        published: For how many of them it has a figure.
        withheld: The share without a figure.
        coverage: Of the figures with an interval, the share whose interval holds the truth.
        within: Of all figures, the share within each of ``SHARES`` of the truth.
        bias: Median relative error.
        worst: The relative error that is furthest from 0.
        half_width: Median half width of the intervals, relative to the figure.
    """

    worlds: int
    published: int
    withheld: float | None
    coverage: float | None
    within: tuple[float | None, ...]
    bias: float | None
    worst: float | None
    half_width: float | None


def score(answers: Iterable[Answer]) -> Score:
    """Score the answers of one tool."""
    all_answers = list(answers)
    errors = [answer.error for answer in all_answers if answer.error is not None]
    stated = [answer for answer in all_answers if answer.has_interval]
    half_widths = [
        (answer.high - answer.low) / 2 / answer.joules
        for answer in stated
        if answer.joules and answer.low is not None and answer.high is not None
    ]
    return Score(
        worlds=len(all_answers),
        published=len(errors),
        withheld=_share(len(all_answers) - len(errors), len(all_answers)),
        coverage=_share(sum(answer.holds for answer in stated), len(stated)),
        within=tuple(
            _share(sum(abs(error) <= limit for error in errors), len(errors)) for limit in SHARES
        ),
        bias=statistics.median(errors) if errors else None,
        worst=max(errors, key=abs) if errors else None,
        half_width=statistics.median(half_widths) if half_widths else None,
    )


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def is_wrong(answer: Answer) -> bool:
    """Return whether a figure misleads: outside its own interval, or 5 % off without one."""
    if answer.error is None:
        return False
    if answer.has_interval:
        return not answer.holds
    return abs(answer.error) > SHARES[-1]
