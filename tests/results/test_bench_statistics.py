"""Figures of several rounds, against truths that are known."""

import random
import statistics

import pytest

from tegrascope.daemon.measure.figures import (
    difference,
    energy_of,
    joules_of,
    mean_energy,
    mean_of_rounds,
)
from tegrascope.daemon.measure.numerics import student
from tegrascope.daemon.measure.report import Energy, Figure, Interval
from tegrascope.daemon.measure.run_text import joules, with_half
from tegrascope.workbench.results.summary import median_half_width, variation

from .bench_fakes import report

SEEDS, ENOUGH = 300, 279


@pytest.mark.parametrize(("freedom", "factor"), [(1, 12.706), (3, 3.182), (5, 2.571), (9, 2.262)])
def test_student_is_that_of_the_tables(freedom, factor):
    assert student(freedom) == pytest.approx(factor, rel=0.01)


@pytest.mark.parametrize("between", [0.0, 1.0])
def test_interval_holds_the_truth(between):
    held = 0
    for seed in range(SEEDS):
        chance = random.Random(f"{between} {seed}")
        values = [100 + chance.gauss(0, between) + chance.gauss(0, 0.5) for _ in range(4)]
        figure = mean_of_rounds(values, [0.5 * 1.96] * 4)
        held += figure.low <= 100 <= figure.high
    assert held >= ENOUGH


def test_difference_is_told_where_there_is_one_only():
    wrong = 0
    for seed in range(SEEDS):
        chance = random.Random(seed)

        def bench(mean, chance=chance):
            return mean_of_rounds([chance.gauss(mean, 1.0) for _ in range(4)])

        same = difference(bench(100), bench(100))
        wrong += same.low > 0 or same.high < 0
        assert difference(bench(200), bench(100)).low > 0
    assert wrong <= SEEDS - ENOUGH


def test_one_round_alone_has_no_interval():
    figure = mean_of_rounds([3.0])
    assert (figure.value, figure.low, figure.high) == (3.0, None, None)
    assert difference(figure, mean_of_rounds([4.0, 4.1])).half is None
    assert mean_of_rounds([3.0], [0.5]).high == 3.5
    assert mean_of_rounds([]) is None


def test_rounds_that_agree_by_chance_are_no_surer_than_each_is():
    assert mean_of_rounds([50.0, 50.0], [10.0, 10.0]).high == 60.0
    assert mean_of_rounds([0.5, 0.5], floor=0.005).high == 0.505


def test_median_width_sees_drift():
    chance = random.Random(1)
    scatter = [round(chance.gauss(3e6, 1e5)) for _ in range(3000)]
    half = median_half_width(scatter)
    assert half == pytest.approx(2.57 * 1.25e-4 / 3000**0.5, rel=0.8)
    assert median_half_width(sorted(scatter)) > 10 * half
    assert median_half_width(scatter[:29]) is None


def test_variation_is_the_textbook_one():
    durations = [100, 110, 90, 105]
    assert variation(durations) == pytest.approx(statistics.pstdev(durations) / 101.25)
    assert variation([100]) is None


def test_interval_of_an_energy_becomes_one_of_an_inference():
    energy = Energy(net_joules=100.0, net_interval=Interval(low=90, high=110))
    net = joules_of(energy, "net", 1000)
    assert (net.value, net.half) == pytest.approx((0.1, 0.01))
    assert joules_of(Energy(net_joules=100.0), "net", 1000) == Figure(value=0.1)
    assert joules_of(energy, "gross") is None


@pytest.mark.parametrize("kind", ["gross", "net"])
def test_interval_of_an_energy_keeps_each_side(kind):
    """A late reading may hide energy on one side only: 17 J are likely, and 6 J are not."""
    uneven = Interval(low=9.0, high=17.0)
    energy = Energy.model_validate({f"{kind}_joules": 10.0, f"{kind}_interval": uneven})
    assert joules_of(energy, kind) == Figure(value=10.0, low=9.0, high=17.0)
    assert joules_of(energy, kind, 2) == Figure(value=5.0, low=4.5, high=8.5)

    per_inference = {
        f"{kind}_joules_per_inference": 10.0,
        f"{kind}_joules_per_inference_interval": uneven,
    }
    run = report().model_copy(update={"energy": Energy.model_validate(per_inference)})
    assert energy_of(run, kind) == Figure(value=10.0, low=9.0, high=17.0)


def test_one_half_of_an_uneven_interval_is_its_longer_side():
    """The mean of rounds and a printed ± cover all that the records cover."""
    uneven = Figure(value=10.0, low=9.0, high=17.0)
    assert uneven.half == 7.0
    assert mean_energy([uneven, uneven]) == Figure.around(10.0, 7.0)
    assert with_half(uneven, joules) == "10.0 J ± 70 %"
