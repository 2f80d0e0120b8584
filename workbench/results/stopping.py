"""Looks at a bench that may stop early, and by how much they widen its intervals.

A bench that stops as soon as a 95 % interval excludes 0 has looked several times, and so it is
wrong more often than in 5 %. Here the looks are planned before the first round, and each of them
spends a planned part of the 5 % (``SPENDING``): at a look that spends 3 %, each interval is one of
97 %. That is alpha spending (Lan and DeMets, "Discrete sequential boundaries for clinical trials",
Biometrika 70, 1983). Their boundaries come from the joint distribution of all looks. The sum of the
parts (Bonferroni) is wider than those, and needs no such distribution. So it also holds for
Student's t with few rounds, and for rounds that drift or are pooled. At each look the interval is a
repeated confidence interval (Jennison and Turnbull, "Interim analyses: the repeated confidence
interval approach", Journal of the Royal Statistical Society B 51, 1989): all looks together hold
the truth in 95 %, whatever made the bench stop.

``python -m tests.truth.stopping`` judges benches whose truth is known; docs/validation.md has the
result.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from math import cos, pi, sin, sqrt, tan

from ...daemon.measure.report import Figure
from ...daemon.measure.run_text import half_of
from ...daemon.terminal import duration
from .records import GoalName, GoalResult, Looks

DOUBT = 0.05
"""The chance of an error that all looks share, and that of an interval without looks."""
SPENDING = (0.01, 0.03, 0.01)
"""What each look spends of it: most at the second, the first one that can know the energy."""
# Halvings of a right angle, after which no digit changes.
_HALVINGS = 60


def _share_within(angle: float, freedom: int) -> float:
    """Return the chance that Student's t is not farther from 0 than tan(angle) * sqrt(freedom).

    Source: Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.3 and 26.7.4.
    """
    is_odd = freedom % 2 == 1
    term, total = 1.0, 0.0
    if is_odd:
        term = cos(angle)
    for number in range(1 + is_odd, freedom, 2):
        total += term
        term *= cos(angle) ** 2 * number / (number + 1)
    if is_odd:
        return 2 / pi * (angle + sin(angle) * total)
    return sin(angle) * total


def _quantile(freedom: int, doubt: float) -> float:
    """Return the two-sided factor of Student's distribution for any chance of an error.

    >>> round(_quantile(1, 0.05), 2), round(_quantile(5, 0.01), 3)
    (12.71, 4.032)
    """
    low, high = 0.0, pi / 2
    for _ in range(_HALVINGS):
        angle = (low + high) / 2
        if _share_within(angle, freedom) < 1 - doubt:
            low = angle
        else:
            high = angle
    return tan(low) * sqrt(freedom)


@cache
def widening(freedom: int, doubt: float) -> float:
    """Return by how much an interval of Student's t is wider at a look than one of 95 %.

    Args:
        freedom: Degrees of freedom.
        doubt: The part of the 5 % that the look spends.

    >>> widening(3, DOUBT), round(widening(3, 0.03), 2)
    (1.0, 1.22)
    """
    if doubt == DOUBT:
        return 1.0
    return _quantile(freedom, doubt) / _quantile(freedom, DOUBT)


def widened(figure: Figure, factor: float) -> Figure:
    """Return a figure with an interval that is wider by a factor."""
    if figure.low is None or figure.high is None:
        return figure
    low = figure.value - factor * (figure.value - figure.low)
    high = figure.value + factor * (figure.high - figure.value)
    return Figure(value=figure.value, low=low, high=high)


# --- whether to go on -----------------------------------------------------------------------------


def is_answered(goal: GoalResult, until_ratio: float) -> bool:
    """Return whether one accelerator is known to be better, or the interval is narrow enough."""
    if goal.winner is not None:
        return True
    return goal.precision_ratio is not None and goal.precision_ratio <= until_ratio


def state_of(goal: GoalResult) -> str:
    """Return what is known of a goal between two looks, in a few words."""
    if goal.winner is not None:
        return f"{goal.goal}: {goal.winner} is ahead"
    if goal.precision_ratio is None or goal.precision_ratio > 1:
        return f"{goal.goal} not known yet"
    return f"{goal.goal} {half_of(Figure.around(1.0, goal.precision_ratio))}"


@dataclass
class Watch:
    """The looks of a bench so far.

    >>> watch = Watch(until_ratio=0.03)
    >>> latency = GoalResult(goal="latency", precision_ratio=0.02, sentence="…")
    >>> energy = GoalResult(goal="energy", precision_ratio=0.06, sentence="…")
    >>> watch.look([latency, energy], 18.0)
    False
    >>> watch.look([latency, energy.model_copy(update={"winner": "gpu"})], 118.0)
    True
    >>> watch.record(0.03, was_cancelled=False).sentence
    'stopped after 2 of 3 looks at the rounds; latency answered after 18 s, energy after 1 min \
58 s; each interval is one of 97 %, so that all looks together keep 95 %'
    """

    until_ratio: float
    taken: int = 0
    answered_seconds: dict[GoalName, float] = field(default_factory=dict)
    is_over: bool = False

    def look(self, goals: Sequence[GoalResult], seconds: float) -> bool:
        """Return whether all goals are answered, so many seconds after the first round began."""
        self.taken += 1
        for goal in goals:
            if is_answered(goal, self.until_ratio):
                self.answered_seconds.setdefault(goal.goal, seconds)
            else:
                # A later look may be wider than an earlier one.
                self.answered_seconds.pop(goal.goal, None)
        self.is_over = len(self.answered_seconds) == len(goals)
        return self.is_over

    def record(self, doubt: float, *, was_cancelled: bool) -> Looks:
        """Return what the result says of the looks; ``doubt`` is that of its intervals."""
        planned = len(SPENDING)
        is_early = self.is_over and self.taken < planned
        words = [f"all {planned} looks at the rounds were taken"]
        if was_cancelled:
            words = [f"interrupted after {self.taken} of {planned} looks at the rounds"]
        elif is_early:
            words = [f"stopped after {self.taken} of {planned} looks at the rounds"]
        answered: list[str] = []
        for name, after in self.answered_seconds.items():
            verb = "" if answered else "answered "
            answered.append(f"{name} {verb}after {duration(after)}")
        if answered:
            words.append(", ".join(answered))
        words.append(
            f"each interval is one of {100 * (1 - doubt):.0f} %, so that all looks together keep"
            f" {100 * (1 - DOUBT):.0f} %"
        )
        return Looks(
            planned=planned,
            taken=self.taken,
            confidence_ratio=1 - doubt,
            until_ratio=self.until_ratio,
            is_early=is_early,
            answered_seconds=self.answered_seconds,
            sentence="; ".join(words),
        )
