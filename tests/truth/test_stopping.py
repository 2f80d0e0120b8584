"""Some benches that may stop early, with seeds drawn at run time."""

import secrets

import numpy as np

from tegrascope.daemon.measure.numerics import student
from tegrascope.workbench.bench.run import RoundPlan
from tegrascope.workbench.bench.settings import BRIEF_ROUNDS
from tegrascope.workbench.results.stopping import DOUBT, SPENDING, widening

from .stopping import judge_bench

PLAN = RoundPlan.of(BRIEF_ROUNDS, may_stop=True)
BENCHES = 20_000


def misses(random, doubts):
    """Return the share of figures whose interval misses the truth at one look or another."""
    rounds = random.standard_normal((BENCHES, PLAN.most))
    has_missed = np.zeros(BENCHES, bool)
    for look, doubt in zip(PLAN.looks, doubts, strict=True):
        seen = rounds[:, :look]
        factor = student(look - 1) * widening(look - 1, doubt)
        half = factor * seen.std(axis=1, ddof=1) / np.sqrt(look)
        has_missed |= np.abs(seen.mean(axis=1)) > half
    return has_missed.mean()


def test_all_looks_together_keep_95_percent():
    """The standard error of a share of 20,000 is 0.15 %; without correction it would be 10 %."""
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    random = np.random.default_rng(seed)
    assert [PLAN.doubt_after(look) for look in PLAN.looks] == [*SPENDING]
    assert misses(random, SPENDING) <= DOUBT
    assert misses(random, [DOUBT] * len(PLAN.looks)) > 1.5 * DOUBT


def test_random_worlds_have_their_winner_early_and_no_false_one():
    """Four benches are equal and four are 20 % apart; docs/validation.md has 2,000."""
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    equal = [judge_bench((seed, number, True)) for number in (0, 4, 8, 12)]
    apart = [judge_bench((seed, number, True)) for number in (3, 7, 11, 15)]
    assert {one.difference for one in equal} == {0.0}
    assert {one.difference for one in apart} == {0.2}
    assert sum(bool(one.false) for one in equal + apart) <= 1
    early = [one for one in apart if one.seconds.get("latency", 999.0) <= 45.0]
    assert len(early) >= 3
