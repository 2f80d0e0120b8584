"""The order of rounds: balanced, mirrored and limited."""

from collections import Counter
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tegrascope.workbench.bench.run import RoundPlan, in_turn
from tegrascope.workbench.results.summary import agree

from .bench_fakes import report

DEVICES = st.lists(st.sampled_from(("gpu", "dla0", "dla1", "cpu")), unique=True, min_size=1)


@given(DEVICES, st.integers(1, 9), st.integers(0, 40))
def test_every_accelerator_has_as_many_rounds_and_no_better_place(devices, rounds, settles_after):
    plan, done, places = RoundPlan.of(rounds), 0, []
    for number in count():
        if not plan.goes_on(number, number >= settles_after):
            break
        places += in_turn(devices, number)
        done += 1
    counts = Counter(places)
    assert set(counts.values()) == {done}
    assert rounds <= plan.least <= done <= plan.most
    assert done % 2 == 0
    mean = {
        device: sum(i for i, one in enumerate(places) if one == device) / done for device in devices
    }
    assert len({round(place, 9) for place in mean.values()}) == 1


def test_two_accelerators_go_abba():
    turns = (in_turn(("gpu", "dla0"), number) for number in range(4))
    assert [device for turn in turns for device in turn] == [
        *("gpu", "dla0", "dla0", "gpu"),
        *("gpu", "dla0", "dla0", "gpu"),
    ]


@pytest.mark.parametrize(
    ("rounds", "steady"),
    [
        ([report(ms=3.0, at=0), report(ms=3.1, at=30)], True),
        ([report(ms=3.0, at=0), report(ms=3.2, at=30)], False),
        ([report(ms=9.0, at=0), *(report(ms=3.0, at=30 * n) for n in (1, 2, 3))], True),
        ([report(at=0, celsius=50), report(at=30, celsius=54)], False),
        ([report(at=0, celsius=50), report(at=30, celsius=52)], True),
        ([report()], False),
        ([], False),
    ],
    ids=["alike", "apart", "first-was-cold", "warming", "warm", "one", "none"],
)
def test_rounds_agree_in_rate_latency_and_temperature(rounds, steady):
    assert agree(rounds) is steady
