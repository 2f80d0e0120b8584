"""The one judge of two figures: which of two accelerators is better, and whether that is known."""

from typing import Literal, NamedTuple

from ...parsers.records import Record
from .figures import subtract
from .report import Figure

# With two runs each, Student's factor is 12.7: an interval of hundreds of percent, that says
# nothing. From three on, the spread of the runs says something about the next run.
RUNS_NEEDED = 3

Answer = Literal["too_few_runs", "not_known", "no_difference", "first", "second"]


class MeanOfRuns(NamedTuple):
    """The figure of one accelerator, as the mean of its runs, and the number of those runs."""

    mean: Figure
    runs: int


class Judgement(Record):
    """The answer to the question which of two figures is lower.

    Attributes:
        answer: ``first`` or ``second`` is lower beyond the 95 % interval of the difference;
            ``no_difference`` if the interval has 0; ``not_known`` if it has 0 and reaches beyond
            100 % of the larger figure, so that nothing is known yet.
        runs: Runs of the side that has fewer, of which ``RUNS_NEEDED`` are needed.
        gap: First less second. It has no ends where they would say nothing.
    """

    answer: Answer
    runs: int
    gap: Figure


def judge(first: MeanOfRuns, second: MeanOfRuns, paired: Figure | None = None) -> Judgement:
    """Return which of two accelerators has the lower figure.

    Args:
        first: Its interval is the larger of a run's own and of the spread of its runs, as
            ``figures.mean_of_rounds`` makes it.
        second: The other one, measured likewise.
        paired: First less second, from the paired rounds of one benchmark. Shared errors cancel
            in it, so it replaces the difference of the two means and the number of runs.

    >>> judge(MeanOfRuns(Figure.around(2.0, 0.1), 3), MeanOfRuns(Figure.around(5.0, 0.1), 3)).answer
    'first'
    >>> judge(MeanOfRuns(Figure.around(2.0, 0.1), 3), MeanOfRuns(Figure.around(5.0, 0.1), 2)).answer
    'too_few_runs'
    """
    runs = min(first.runs, second.runs)
    gap = subtract(first.mean, second.mean) if paired is None else paired
    if paired is None and runs < RUNS_NEEDED:
        return Judgement(answer="too_few_runs", runs=runs, gap=Figure(value=gap.value))
    if gap.low is None or gap.high is None:
        return Judgement(answer="not_known", runs=runs, gap=gap)
    largest = max(abs(first.mean.value), abs(second.mean.value))
    if gap.low <= 0 <= gap.high:
        if max(-gap.low, gap.high) > largest:
            return Judgement(answer="not_known", runs=runs, gap=Figure(value=gap.value))
        return Judgement(answer="no_difference", runs=runs, gap=gap)
    # One figure cannot be lower than the other by more than all of it.
    bounded = gap.within(-largest, largest)
    return Judgement(answer="first" if gap.high < 0 else "second", runs=runs, gap=bounded)


def without_vague_ends(figure: Figure) -> Figure:
    """Return the figure without its interval if that is wider than the figure itself.

    >>> without_vague_ends(Figure.around(0.2, 1.6))
    Figure(value=0.2, low=None, high=None)
    """
    if figure.half is None or figure.half <= abs(figure.value):
        return figure
    return Figure(value=figure.value)
