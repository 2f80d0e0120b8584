"""Some benches of the ground truth, with seeds drawn at run time.

Fixed tolerances: with the shares of ``python -m tests.truth.bench``, a test fails by chance in less
than one of 10,000.
"""

import secrets
from itertools import pairwise

import numpy as np
import pytest

from tegrascope.daemon.measure.report import Figure
from tegrascope.workbench.bench.settings import INTERVALS
from tegrascope.workbench.results.summary import mean_of_most

from .bench import answers_of, verdict_of
from .pairing import pair_live
from .random_bench import judge_pair
from .regimes import Cell, Regime, Setup, make_window, timed


def winners(benches, **world):
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    found = [verdict_of(seed + number, **world) for number in range(benches)]
    # A round whose idle power moved has no energy, and then figures are compared.
    assert sum(one.goal.compared == "rounds" for one in found) >= benches - 4
    return [one.winner for one in found], sum(one.holds for one in found)


@pytest.mark.parametrize("drift", [0.0, 0.2])
def test_a_difference_of_five_percent_is_found(drift):
    named, held = winners(12, difference=0.05, drift=drift)
    assert "B" not in named
    assert named.count("A") >= 7
    assert held >= 7


@pytest.mark.parametrize("drift", [0.0, 0.2])
def test_equal_accelerators_have_no_winner(drift):
    named, held = winners(15, difference=0.0, drift=drift)
    assert named.count(None) >= 12
    assert held >= 11


def test_equal_candidates_in_random_worlds_have_no_winner():
    """Of 2,000 pairs, 3 have a false winner of net and 6 one of gross energy."""
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    found = [judge_pair((seed, number)) for number in range(15)]
    known = [pair for pair in found if "net energy" in pair.winners]
    assert len(known) >= 7
    assert sum(pair.held["net energy"] for pair in known) >= len(known) - 3
    named = [(goal, pair.about) for pair in found for goal, name in pair.winners.items() if name]
    assert len(named) <= 2, named
    assert not {"latency", "throughput"} & {goal for goal, _ in named}


def energy_of_rounds(intervals, random):
    """Return the mean power of a bench with one round per interval, by its figures and in truth.

    Two inferences fit between two lines of a tegrastats at 103 ms.
    """

    def make(random, _interval, begin, end):
        return Setup(timed(random, begin, end, 0.05875, 0.0235))

    regime, found, true = Regime("lock", "other", make, ()), [], []
    for interval in intervals:
        window = make_window(Cell(regime, round(interval * 1000), 15, "live"), random)
        gross = pair_live(window, "round").gross
        half = gross.high and (gross.high - gross.low) / 2
        found.append(Figure.around(gross.joules, half) if gross.is_published else None)
        true.append(window.power.gross(window.begin, window.end))
    return mean_of_most(found), sum(true) / len(true)


def test_work_that_keeps_step_at_one_interval_has_its_energy():
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    random = np.random.default_rng(seed)
    fixed = [energy_of_rounds([INTERVALS[0]] * 4, random)[0] for _ in range(12)]
    varied = [energy_of_rounds(INTERVALS, random) for _ in range(12)]
    shown = [(mean, truth) for mean, truth in varied if mean is not None]
    # Of 120 benches each, none and 87 had an energy, and all 87 were right.
    assert fixed.count(None) >= 10
    assert len(shown) >= 3
    assert sum(abs(mean.value - truth) <= mean.half for mean, truth in shown) >= len(shown) - 2


@pytest.mark.parametrize("difference", [0.39, -0.39, 0.25, 0.2, 0.025, 0.0])
def test_status_page_is_never_sure_and_wrong(difference):
    """Twenty times the eight runs of each that ten minutes of the demo have, with the exact energy.

    The demo's models differ by 39 % and 79 %. At 20 % three of four are sure, at 25 % all:
    docs/validation.md.
    """
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    wrong = sure = taken_back = 0
    for number in range(20):
        answers, truth = answers_of(seed + number, difference=difference)
        right, other = ("first", "second") if truth > 0 else ("second", "first")
        wrong += other in answers or (difference == 0 and right in answers)
        sure += answers[-1] == right
        taken_back += any(before == right != after for before, after in pairwise(answers))
    assert wrong == 0
    if abs(difference) <= 0.025:
        assert sure == 0
    if abs(difference) >= 0.25:
        assert sure >= 18
    if abs(difference) > 0.3:
        assert taken_back <= 1
