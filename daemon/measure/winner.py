"""The one judge of two figures: which of two is lower, and whether that is known."""

from math import sqrt
from typing import Literal, NamedTuple

from ...parsers.records import Record
from .figures import is_vague, subtract
from .numerics import student
from .report import Figure

# With two runs each, Student's factor is 12.7: an interval of hundreds of percent, that says
# nothing. From three on, the spread of the runs says something about the next run.
RUNS_NEEDED = 3
# Nineteen of twenty runs differ less from their mean, in standard deviations.
_UNLUCKY = 2.0

Lower = Literal["not_known", "no_difference", "first", "second"]


def judge(gap: Figure, margin: float = 0.0) -> Lower:
    """Return which of two figures is lower beyond the 95 % interval of their difference.

    Args:
        gap: The first less the second. Its caller knows how the two were measured, and so how wide
            the interval is: separate means (``figures.subtract``), rounds in pairs, or sums with
            parts in common. Without an interval nothing is known.
        margin: How much higher the first may be and still be called lower: a difference that
            makes no practical difference.

    >>> judge(Figure.around(-3.0, 1.0)), judge(Figure.around(0.5, 1.0)), judge(Figure(value=3.0))
    ('first', 'no_difference', 'not_known')
    >>> judge(Figure.around(0.5, 1.0), margin=2.0)
    'first'
    """
    if gap.low is None or gap.high is None:
        return "not_known"
    if gap.high < margin:
        return "first"
    if gap.low > margin:
        return "second"
    return "no_difference"


Kept = Literal["holds", "does_not_hold", "undecided"]


def judge_promise(gap: Figure, margin: float) -> Kept:
    """Return whether a figure is as promised, within ± ``margin``: a test of equivalence.

    It holds if the whole interval of the difference lies within the limits, and does not hold if
    the whole interval lies outside. A difference that merely includes 0 proves nothing.

    Source:
        Two one-sided tests: D. J. Schuirmann, J. Pharmacokinet. Biopharm. 15 (1987) 657-680.

    >>> judge_promise(Figure.around(1.0, 2.0), 5.0), judge_promise(Figure.around(9.0, 2.0), 5.0)
    ('holds', 'does_not_hold')
    >>> judge_promise(Figure.around(-4.0, 2.0), 5.0), judge_promise(Figure(value=0.0), 5.0)
    ('undecided', 'undecided')
    """
    # Each side alone: "first" is surely below its limit, "second" surely above.
    sides = {judge(gap, margin), judge(gap.times(-1), margin)}
    if "second" in sides:
        return "does_not_hold"
    return "holds" if sides == {"first"} else "undecided"


# --- means of scheduled runs ----------------------------------------------------------------------


class MeanOfRuns(NamedTuple):
    """The figure of one accelerator: the mean of its runs, their number and standard deviation.

    ``offset`` is an error of unknown sign that both have and no run shows: more of it, where an
    inference takes longer. Their difference has the difference of both.
    """

    mean: Figure
    runs: int
    deviation: float = 0.0
    offset: float = 0.0

    def less(self, other: "MeanOfRuns") -> Figure:
        """Return this mean less another one, with what the offset may change."""
        gap, doubt = subtract(self.mean, other.mean), abs(self.offset - other.offset)
        if gap.low is None or gap.high is None:
            return gap
        return Figure(value=gap.value, low=gap.low - doubt, high=gap.high + doubt)

    def after_unlucky_run(self, sign: int) -> "MeanOfRuns":
        """Return the mean after one more run, two standard deviations above or below it.

        >>> MeanOfRuns(Figure.around(1.0, 0.2), 3, 0.1).after_unlucky_run(+1).mean.value
        1.05
        """
        if self.mean.half is None:
            return self
        runs = self.runs + 1
        distance = _UNLUCKY * self.deviation
        squares = (self.runs - 1) * self.deviation**2 + distance**2 * self.runs / runs
        spread = student(runs - 1) * sqrt(squares / (runs - 1) / runs)
        value = self.mean.value + sign * distance / runs
        return self._replace(mean=Figure.around(value, max(self.mean.half, spread)))


class Judgement(Record):
    """The answer to the question which of two means of scheduled runs is lower.

    Attributes:
        answer: As ``judge`` gives it; ``too_few_runs`` before it is asked; ``not_known`` also if
            the interval has 0 and reaches beyond 100 % of the larger figure; ``not_sure`` where
            one of the two is lower, and one more run could change this.
        runs: Runs of the side that has fewer, of which ``RUNS_NEEDED`` are needed.
        gap: First less second. It has no ends where they would say nothing.
    """

    answer: Literal[Lower, "too_few_runs", "not_sure"]
    runs: int
    gap: Figure


def judge_runs(first: MeanOfRuns, second: MeanOfRuns) -> Judgement:
    """Return which of two accelerators has the lower mean of its scheduled runs.

    A benchmark plans its rounds. A service has the runs that its schedule gave so far, perhaps one:
    so their number is judged first, and an interval that is wider than the figures is not shown.

    Args:
        first: Its interval is the larger of a run's own and of the spread of its runs, as
            ``figures.mean_of_rounds`` makes it.
        second: The other one, measured likewise.

    >>> three, two = MeanOfRuns(Figure.around(2.0, 0.1), 3), MeanOfRuns(Figure.around(5.0, 0.1), 2)
    >>> judge_runs(three, three._replace(mean=two.mean)).answer, judge_runs(three, two).answer
    ('first', 'too_few_runs')
    """
    runs = min(first.runs, second.runs)
    gap = first.less(second)
    if runs < RUNS_NEEDED:
        return Judgement(answer="too_few_runs", runs=runs, gap=Figure(value=gap.value))
    answer = judge(gap)
    largest = max(abs(first.mean.value), abs(second.mean.value))
    # One figure cannot be lower than the other by more than all of it.
    bounded = gap.within(-largest, largest)
    if answer == "no_difference" and bounded != gap:
        return Judgement(answer="not_known", runs=runs, gap=Figure(value=gap.value))
    if answer in ("first", "second"):
        # A reader acts on an answer. The next run must not take it back.
        sign = 1 if answer == "first" else -1
        gaps = (
            first.after_unlucky_run(sign).less(second),
            first.less(second.after_unlucky_run(-sign)),
        )
        if any(judge(later) != answer for later in gaps):
            return Judgement(answer="not_sure", runs=runs, gap=bounded)
    return Judgement(answer=answer, runs=runs, gap=bounded)


def without_vague_ends(figure: Figure) -> Figure:
    """Return the figure without its interval if it is vague.

    >>> without_vague_ends(Figure.around(0.2, 1.6))
    Figure(value=0.2, low=None, high=None)
    """
    if is_vague(figure):
        return Figure(value=figure.value)
    return figure
