"""Which of two figures is lower, and when that is not known."""

import random
import statistics

import pytest

from tegrascope.daemon.measure.figures import mean_of_rounds
from tegrascope.daemon.measure.report import Figure
from tegrascope.daemon.measure.winner import (
    RUNS_NEEDED,
    MeanOfRuns,
    judge,
    judge_runs,
    without_vague_ends,
)


def side(*values, half=None):
    """Return a side whose runs have these values, each with the same own interval."""
    halves = [] if half is None else [half] * len(values)
    return MeanOfRuns(mean_of_rounds(values, halves), len(values), statistics.stdev(values))


def test_two_runs_are_too_few_however_far_apart_the_figures_are():
    judgement = judge_runs(side(1.0, 1.0, half=0.01), side(9.0, 9.0, 9.0, half=0.01))
    assert (judgement.answer, judgement.runs) == ("too_few_runs", 2)
    assert (judgement.gap.value, judgement.gap.half) == (-8.0, None)


def test_lower_figure_beyond_the_interval_is_the_answer():
    low, high = side(1.0, 1.1, 0.9), side(3.0, 3.1, 2.9)
    assert judge_runs(low, high).answer == "first"
    assert judge_runs(high, low).answer == "second"


def test_interval_around_zero_shows_no_difference_and_its_limits():
    judgement = judge_runs(side(5.0, 5.5, 4.5), side(5.1, 4.6, 5.6))
    assert judgement.answer == "no_difference"
    assert judgement.gap.low < 0 < judgement.gap.high


def test_own_interval_of_a_run_counts_where_it_is_larger_than_the_spread():
    """Three equal readings of a coarse sensor are no proof."""
    assert judge_runs(side(1.0, 1.0, 1.0), side(1.2, 1.2, 1.2)).answer == "first"
    judgement = judge_runs(side(1.0, 1.0, 1.0, half=0.3), side(1.2, 1.2, 1.2, half=0.3))
    assert judgement.answer == "no_difference"


def test_offset_counts_by_how_much_longer_an_inference_takes():
    """An error of the sensors that all runs share is larger, the longer an inference takes."""
    short, long = side(0.365, 0.366, 0.364), side(0.382, 0.383, 0.381)
    assert judge_runs(short, long).answer == "first"
    for shared in (0.02, 0.03):
        same = judge_runs(short._replace(offset=shared), long._replace(offset=shared))
        assert same == judge_runs(short, long)
    doubtful = judge_runs(short._replace(offset=0.02), long._replace(offset=0.045))
    assert doubtful.answer == "no_difference"
    assert doubtful.gap.low < -0.04 < 0 < doubtful.gap.high


def test_spread_counts_where_it_is_larger_than_the_own_interval():
    judgement = judge_runs(side(1.0, 2.0, 3.0, half=0.01), side(2.1, 3.1, 4.1, half=0.01))
    assert judgement.answer in ("no_difference", "not_known")


def test_limits_beyond_the_whole_figure_are_not_known_and_not_shown():
    judgement = judge_runs(side(0.1, 0.9, 0.2), side(0.8, 0.1, 0.7))
    assert (judgement.answer, judgement.gap.half) == ("not_known", None)


def test_answer_has_no_limit_beyond_the_whole_figure():
    judgement = judge_runs(side(1.0, 1.05, 0.95), side(0.01, 0.02, 0.0))
    assert judgement.answer == "second"
    assert judgement.gap.high <= 1.0


@pytest.mark.parametrize(
    ("low", "high", "answer"),
    [(-3.0, -1.0, "first"), (1.0, 3.0, "second"), (-1.0, 2.0, "no_difference"),
     (0.0, 2.0, "no_difference"), (None, None, "not_known")],
)  # fmt: skip
def test_interval_of_the_difference_decides(low, high, answer):
    assert judge(Figure(value=1.0, low=low, high=high)) == answer


def test_first_within_the_margin_still_counts_as_lower():
    gap = Figure.around(0.5, 0.2)
    assert judge(gap) == "second"
    assert judge(gap, margin=0.6) == "no_difference"
    assert judge(gap, margin=0.8) == "first"


def test_figures_without_an_interval_are_not_known():
    bare = MeanOfRuns(Figure(value=1.0), RUNS_NEEDED)
    assert judge_runs(bare, MeanOfRuns(Figure(value=2.0), RUNS_NEEDED)).answer == "not_known"


def test_equal_accelerators_rarely_have_a_winner():
    """Of 2,000 pairs whose truth is equal, about 5 % may be decided, and no more than 7 %."""
    chance = random.Random(20261127)
    decided = 0
    for _ in range(2000):
        runs = chance.choice((3, 4, 6, 10))
        first, second = (
            side(*(chance.gauss(10.0, 1.0) for _ in range(runs)), half=0.0) for _ in "ab"
        )
        decided += judge_runs(first, second).answer in ("first", "second")
    assert decided <= 140


@pytest.mark.parametrize(("half", "is_kept"), [(0.0, True), (1.0, True), (1.01, False)])
def test_interval_wider_than_the_figure_is_not_shown(half, is_kept):
    assert (without_vague_ends(Figure.around(1.0, half)).half is not None) == is_kept


def test_figure_without_an_interval_stays():
    assert without_vague_ends(Figure(value=1.0)) == Figure(value=1.0)


def test_answer_is_sure_only_if_one_more_unlucky_run_keeps_it():
    """The interval of the difference excludes zero in both; in one of them by little."""
    low = side(1.0, 1.1, 0.9)
    for values, answer in (((2.0, 2.1, 1.9), "first"), ((1.36, 1.46, 1.26), "not_sure")):
        judgement = judge_runs(low, side(*values))
        assert judgement.gap.high < 0
        assert judgement.answer == answer
    again = judge_runs(side(1.0, 1.1, 0.9, 1.0), side(1.36, 1.46, 1.26, 1.36))
    assert again.answer == "first"  # each answer is made of all runs anew


def test_sure_answers_are_rarely_wrong_or_taken_back():
    """Two devices whose runs spread alike, over runs 3 to 10; the seed is of the test."""
    rng = random.Random(7)

    def answers(gap):
        first = [rng.gauss(0.0, 1.0) for _ in range(10)]
        second = [rng.gauss(gap, 1.0) for _ in range(10)]
        return [judge_runs(side(*first[:n]), side(*second[:n])).answer for n in range(3, 11)]

    equal = [answers(0.0) for _ in range(300)]
    assert sum("first" in one or "second" in one for one in equal) <= 300 * 0.08
    apart = [answers(6.0) for _ in range(100)]
    assert sum("first" in one for one in apart) == 100
    assert (
        sum(
            "first" in one[: one.index("first") + 1] and {*one[one.index("first") :]} != {"first"}
            for one in apart
        )
        <= 5
    )
