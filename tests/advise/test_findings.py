"""What costs time or energy is noticed, with the numbers behind it; and what does not is not."""

import pytest

from tegrascope.workbench.advise.choices import BenchSource
from tegrascope.workbench.advise.compose import advise_on
from tegrascope.workbench.advise.problem import Demand

from .made import lane, model, result, spread

DEMAND = Demand(name="net", rate_per_second=5, deadline_seconds=0.2)
HELD = {"lowest_hertz": 1.3e9, "highest_hertz": 1.3e9}
SANK = {"lowest_hertz": 0.9e9, "highest_hertz": 1.3e9}


def found_in(*results):
    sources = [BenchSource(f"r{n}", one) for n, one in enumerate(results)]
    return advise_on(sources, [DEMAND]).findings


def of(*lanes, **changes):
    return result(model("net", *lanes), **changes)


@pytest.mark.parametrize(
    ("one", "name", "numbers"),
    [
        (
            lane("gpu", 10.0, 0.1, 0.5, device_latency=spread(4.0)),
            "enqueue_bound",
            ("4.00 ms", "10.0 ms", "60.0 %"),
        ),
        (
            lane("gpu", 10.0, 0.1, stages={"compute": spread(3.0), "h2d": spread(5.0)}),
            "copy_bound",
            ("inputs takes 5.00 ms", "computing 3.00 ms"),
        ),
        (
            lane("dla0", 10.0, 0.1, 0.35, flags={"fallback": 4}),
            "fallback_heavy",
            ("in every round: layers that compute ran on the GPU",),
        ),
        (lane("dla0", 10.0, 0.1, 0.3), "fallback_heavy", ("GPU is 30.0 % busy",)),
        (
            lane("gpu", 10.0, 0.1, flags={"throttled": 3}, hottest_celsius=97.0, hottest_zone="tj"),
            "thermally_limited",
            ("in 3 of 4 rounds: a clock was held down for heat",),
        ),
        (
            lane("gpu", 10.0, 0.1, clocks={"gpu": SANK}, hottest_celsius=91.0, hottest_zone="tj"),
            "thermally_limited",
            ("ranged from 900 to 1300 MHz", "tj at 91.0 °C"),
        ),
    ],
)
def test_each_is_noticed_with_its_numbers(one, name, numbers):
    (finding,) = found_in(of(one))
    assert (finding.name, finding.model, finding.device) == (name, "net", one.device)
    assert all(number in finding.sentence for number in numbers), finding.sentence
    assert finding.remedy


@pytest.mark.parametrize(
    "one",
    [
        lane("gpu", 10.0, 0.1, 0.95, device_latency=spread(9.0), clocks={"gpu": HELD}),
        lane("gpu", 10.0, 0.1, stages={"compute": spread(8.0), "h2d": spread(1.0)}),
        lane("dla0", 10.0, 0.1, 0.05),
        lane("gpu", 10.0, 0.1, clocks={"gpu": SANK}, hottest_celsius=60.0, hottest_zone="tj"),
        lane("gpu", 10.0, 0.1, clocks={"gpu": HELD}, hottest_celsius=91.0, hottest_zone="tj"),
    ],
)
def test_normal_results_have_no_finding(one):
    assert found_in(of(one)) == ()


def test_int8_slower_than_fp16_is_noticed():
    def built(verdict, reformats, wide):
        placed = {"verdict": verdict, "reformat_layers": reformats}
        return {"built": {"placement": placed, "wide_layers": wide, "layer_types": {"int8": 9}}}

    fp16 = of(
        lane("dla0", 10.0, 0.05, **built("dla_plus_reformat", ["in"], [])),
        settings={"precision": "fp16"},
    )
    int8 = of(
        lane("dla0", 12.0, 0.06, **built("dla_plus_reformat", ["in", "a to int8"], ["pool", "fc"])),
        settings={"precision": "int8"},
    )
    (finding,) = found_in(fp16, int8)
    assert finding.name == "int8_slower"
    assert "int8 takes 12.0 ms, fp16 10.0 ms: 20.0 % more" in finding.sentence
    assert "2 layers stay in floating point (pool, fc)" in finding.sentence
    assert "1 layers that only reformat are added (a to int8)" in finding.sentence
    advice = advise_on([BenchSource("a", fp16), BenchSource("b", int8)], [DEMAND])
    assert advice.placements == 2
    assert advice.chosen.models[0].variant == "fp16"


def test_int8_faster_than_fp16_is_no_finding():
    fp16 = of(lane("dla0", 10.0, 0.05), settings={"precision": "fp16"})
    int8 = of(lane("dla0", 6.0, 0.03), settings={"precision": "int8"})
    assert found_in(fp16, int8) == ()


def test_energy_of_a_batch_is_by_input():
    batch = of(
        lane("gpu", 8.0, 0.4, 0.9, throughput_per_second={"value": 500.0}), settings={"batch": 4}
    )
    advice = advise_on([BenchSource("a", batch)], [DEMAND])
    assert advice.chosen.watts.value == pytest.approx(5 * 0.1)
    assert advice.chosen.duty["gpu"] == pytest.approx(5 / 500)
    assert advice.chosen.models[0].variant == "batch 4"
