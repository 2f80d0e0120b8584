"""The difference of accelerators from the readings of all rounds, against truths that are known."""

import random
from array import array

import pytest

from tegrascope.daemon.measure.blocks import WindowSlice
from tegrascope.daemon.measure.report import Environment, Span
from tegrascope.parsers.rails import RailRule
from tegrascope.workbench.results.paired import (
    Readings,
    RoundReadings,
    difference_of_rounds,
    power_of,
)

from .bench_fakes import report

SECOND = 1_000_000_000
IDLE_WATTS = 5.0


def no_noise():
    return 0.0


def rounds(
    order,
    watts,
    *,
    counts=(1000, 1000),
    step=0.001,
    noise=no_noise,
    drift=0.0,
    idle_drift=0.0,
    heat=0.0,
    scatter=no_noise,
):
    """Return the rounds of A and of B; ``watts`` are what their work adds.

    Idle power and work change by ``idle_drift`` watts and by the share ``drift`` over the bench.
    """
    found = {"A": [], "B": []}
    for number, name in enumerate(order):
        begin, more = number * 30, scatter()

        def readings(first, last, work, late=0.0, more=more):
            times = [round((first + i * 0.1) * SECOND) for i in range(round((last - first) * 10))]
            share = [t / SECOND / (30 * len(order)) - 0.5 for t in times]
            power = [
                IDLE_WATTS + idle_drift * s + work * (1 + drift * s) + late + more * (work > 0)
                for s in share
            ]
            return Readings(times, [[round((p + noise()) / step) * step for p in power]])

        side = name == "B"
        found[name].append(
            RoundReadings(
                15.0,
                counts[side],
                [step],
                readings(begin + 7, begin + 22, watts[side]),
                [readings(begin, begin + 7, 0.0), readings(begin + 22, begin + 29, 0.0, heat)],
            )
        )
    return found["A"], found["B"]


def test_difference_is_that_of_the_net_energy():
    found = difference_of_rounds(*rounds("ABBA", (3.0, 3.0), counts=(1000, 500)))
    assert found.value == pytest.approx(3.0 * 15 * (1 / 500 - 1 / 1000), rel=0.001)


@pytest.mark.parametrize("changes", [{"drift": 0.2}, {"idle_drift": 1.0}], ids=str)
def test_slow_change_along_the_bench_does_no_harm(changes):
    found = difference_of_rounds(*rounds("ABAB", (2.0, 4.0), **changes))
    truth = 2.0 * 15 / 1000
    assert found.value == pytest.approx(truth, rel=0.005)
    assert found.half < 0.1 * truth


def test_noise_tells_of_the_place_between_two_steps():
    chance = random.Random(1)
    made = rounds("ABBAABBA", (2.10, 2.25), step=0.4, noise=lambda: chance.gauss(0, 0.11))
    found = difference_of_rounds(*made)
    # The means of the readings alone differ by 0.117 W.
    assert found.value == pytest.approx(0.15 * 15 / 1000, abs=0.025 * 15 / 1000)


def test_quiet_rails_round_in_full():
    found = difference_of_rounds(*rounds("ABBA", (2.39, 2.41), step=0.4))
    assert found.value == pytest.approx(0.4 * 15 / 1000)
    assert found.low < 0.02 * 15 / 1000 < found.high


@pytest.mark.parametrize("source", ["readings", "rounds"])
def test_interval_is_as_wide_as_the_noise(source):
    chance, halves, held = random.Random(2), [], 0
    spread = 0.5 if source == "readings" else 0.1
    for _ in range(40):
        gauss = {"noise" if source == "readings" else "scatter": lambda: chance.gauss(0, spread)}
        found = difference_of_rounds(*rounds("ABBA", (3.0, 3.0), **gauss))
        halves.append(found.half)
        held += found.low <= 0 <= found.high
    one = spread / (2 * 150 if source == "readings" else 2) ** 0.5
    ideal = 1.96 * 2**0.5 * one * 15 / 1000
    assert held >= 37
    assert ideal < sorted(halves)[20] < 8 * ideal
    # Rounds may agree by chance; the noise of their readings is there anyway.
    assert source == "rounds" or min(halves) > ideal


def test_heat_that_is_left_in_the_idle_level_counts():
    found = difference_of_rounds(*rounds("ABBA", (3.0, 3.0), counts=(1000, 500), heat=1.0))
    assert found.half >= 1.0 / 2 * 15 * (1 / 500 - 1 / 1000)


def test_two_rounds_of_equal_rails_are_needed():
    here, there = rounds("ABBA", (3.0, 4.0))
    assert difference_of_rounds(here, there) is not None
    assert difference_of_rounds(here[:1], there) is None
    assert difference_of_rounds(here, [one._replace(steps=[0.4]) for one in there]) is None
    assert difference_of_rounds(here, [one._replace(inferences=0) for one in there]) is None


def test_readings_are_of_the_window_and_of_settled_idle_phases():
    times = array("q", range(0, 40 * SECOND, SECOND // 10))
    watts = array("d", [5.0] * len(times))
    cut = WindowSlice(times, array("q", times), {"rails.IN.instant_watts": watts})
    rule = RailRule(name="x", rails=("IN",), total=("IN",), step={"default": 0.04})
    spans = {"baseline_before": (0, 8), "steady": (8, 23), "baseline_after": (23, 31)}
    phases = {name: Span(begin_ns=a * SECOND, end_ns=b * SECOND) for name, (a, b) in spans.items()}
    run = report().model_copy(update={"phases": phases})
    found = power_of(cut, run, rule, Environment())
    begins = [one.times_ns[0] / SECOND for one in (found.work, *found.idle)]
    assert begins == pytest.approx([8.1, 0.6, 23.6])
    ends = [one.times_ns[-1] / SECOND for one in (found.work, *found.idle)]
    assert ends == pytest.approx([22.9, 7.9, 30.9])
    averaging = Environment(rail_sensors={"1-0040.samples": 64, "1-0040.update_interval": 500.0})
    assert power_of(cut, run, rule, averaging).work.times_ns[0] / SECOND > 8.5
    without = run.model_copy(
        update={"phases": {k: v for k, v in phases.items() if k != "baseline_after"}}
    )
    assert power_of(cut, without, rule, Environment()) is None
