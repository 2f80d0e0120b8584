"""Rounds become results, results become winners and checks: on made reports with known truths."""

import re
from array import array
from pathlib import Path

import pytest

from tegrascope.collectors.worker.outputs import OutputCheck
from tegrascope.daemon.measure.latency import distribution
from tegrascope.daemon.measure.report import Environment
from tegrascope.parsers.inference.placement import Built, Placement
from tegrascope.parsers.nvpmodel import PowerMode
from tegrascope.workbench.results.accelerator_rows import accelerator_cells, rows_of
from tegrascope.workbench.results.caveats import (
    CAVEATS,
    DEVICE_VARIATION,
    HOST_VARIATION,
    caveats_of,
    caveats_of_machine,
    int8_slower,
)
from tegrascope.workbench.results.paired import Readings, RoundReadings
from tegrascope.workbench.results.records import AcceleratorResult, ClockRange, Figure
from tegrascope.workbench.results.summary import Measured, Round, summarise

from .bench_fakes import report

GPU = {"gross": 80.0, "net": 40.0, "half": 1.0, "gpu": 0.92, "emc": 0.4, "celsius": 55.0}
DLA = {"gross": 30.0, "net": 3.0, "half": 0.2, "gpu": 0.02, "emc": 0.1, "celsius": 48.0}


def entry(reports, **changes):
    rounds = [
        Round(one, array("q", [round(one.latency.p50_seconds * 1e9)] * one.latency.count))
        for one in reports
    ]
    facts = {
        "look": reports[0],
        "status": "ok",
        "reason": None,
        "outputs": OutputCheck(verdict="good"),
        "rounds": rounds,
        **changes,
    }
    return Measured(**facts)


def model_of(*entries):
    reports = [one.report for found in entries for one in found.rounds]
    return summarise("net", entries, reports)


@pytest.fixture
def orin():
    """A GPU that is fast, and a DLA that is frugal and leaves the GPU alone."""
    gpu = [report("gpu", 3.0, at, **GPU) for at in (0, 90, 120, 210)]
    dla = [report("dla0", 17.0, at, **DLA) for at in (30, 60, 150, 180)]
    return model_of(entry(gpu), entry(dla))


def test_figures_are_those_of_the_rounds(orin):
    gpu, dla = orin.accelerators
    assert gpu.gross_joules_per_inference.value == pytest.approx(80 / 4000)
    assert dla.net_joules_per_inference.value == pytest.approx(3 / 706)
    assert dla.gpu_freed.value == pytest.approx(0.90)
    assert gpu.gpu_freed is None
    assert (dla.hottest_zone, dla.hottest_celsius) == ("tj", 48.0)
    assert gpu.mean_watts.value == pytest.approx(80 / 12)
    assert (gpu.rounds, gpu.latency.count) == (4, 16000)


def test_each_goal_has_its_own_winner(orin):
    goals = {goal.goal: goal for goal in orin.goals}
    assert goals["latency"].winner == goals["throughput"].winner == "gpu"
    assert (goals["energy"].winner, goals["energy"].runner_up) == ("dla0", "gpu")
    assert goals["energy"].difference == pytest.approx(40 / 4000 - 3 / 706)
    assert goals["gpu_freed"].winner == "dla0"
    assert "3.00 ms on gpu, 17.0 ms on dla0" in goals["latency"].sentence


def test_energies_within_their_interval_have_no_winner():
    gpu = [report("gpu", 3.0, at, **{**GPU, "half": 20.0}) for at in (0, 90)]
    dla = [report("dla0", 3.0, at, **{**GPU, "net": 37.0, "half": 20.0}) for at in (30, 60)]
    energy = model_of(entry(gpu), entry(dla)).goals[1]
    assert (energy.goal, energy.winner) == ("energy", None)
    assert energy.interval.low < 0 < energy.interval.high


@pytest.mark.parametrize(("withheld", "joules"), [(1, 0.01), (2, None), (4, None)])
def test_energy_is_that_of_most_rounds_or_of_none(withheld, joules):
    reports = [
        report("gpu", 3.0, 30.0 * n, **(GPU if n >= withheld else {"gpu": 0.9})) for n in range(4)
    ]
    (found,) = model_of(entry(reports)).accelerators
    net = found.net_joules_per_inference
    assert (net and net.value) == pytest.approx(joules)
    assert found.utilization["gpu"].value == pytest.approx(0.92 - withheld * 0.005)


def energy_goal(found):
    return next(goal for goal in found.goals if goal.goal == "energy")


def with_power(reports, watts):
    """Return the rounds of reports with readings of power, in which the work adds some watts."""
    rounds = []
    for number, one in enumerate(reports):
        begin = number * 60

        def readings(first, seconds, power, begin=begin):
            times = [round((begin + first + i * 0.1) * 1e9) for i in range(seconds * 10)]
            return Readings(times, [[power + 0.001 * (i % 3) for i in range(len(times))]])

        idle = [readings(0, 7, 5.0), readings(22, 7, 5.0)]
        power = RoundReadings(15.0, one.inferences, [0.001], readings(7, 15, 5.0 + watts), idle)
        rounds.append(Round(one, power=power))
    return rounds


def test_winner_by_the_rounds_against_the_means_is_named_as_such():
    """A sentence must not contradict its own numbers without a word about it."""
    gpu = [report("gpu", 3.0, at, **{**DLA, "net": 3.0}) for at in (0, 90)]
    dla = [report("dla0", 3.0, at, **{**DLA, "net": 3.1}) for at in (30, 60)]
    remark = "although the means of the rounds are the other way round"
    goals = {}
    for watts in (2.0, 4.0):
        entries = [
            entry(gpu, rounds=with_power(gpu, 3.0)),
            entry(dla, rounds=with_power(dla, watts)),
        ]
        goals[watts] = energy_goal(model_of(*entries))
    assert (goals[2.0].winner, goals[4.0].winner) == ("dla0", "gpu")
    assert goals[2.0].sentence.endswith(remark)
    assert remark not in goals[4.0].sentence


@pytest.mark.parametrize(
    ("count", "words"), [(1, "one round has no interval"), (4, "the interval is not known")]
)
def test_missing_interval_is_not_always_that_of_one_round(count, words):
    """The times of the readings may be unknown, in any number of rounds."""
    gpu = []
    for number in range(count):
        run = report("gpu", 3.0, 60 * number, **GPU)
        energy = run.energy.model_copy(update={"net_interval": None})
        gpu.append(run.model_copy(update={"energy": energy}))
    dla = [report("dla0", 3.0, 60 * number + 30, **DLA) for number in range(count)]
    goal = energy_goal(model_of(entry(gpu), entry(dla)))
    assert goal.winner is None
    assert goal.sentence.endswith(words)


def test_rounds_that_do_not_agree_are_flagged():
    reports = [report("gpu", ms, at) for ms, at in ((3.0, 0), (4.0, 30))]
    (found,) = model_of(entry(reports)).accelerators
    assert found.flags == {"not_steady": 2}
    assert found.is_steady is False


def test_meaningless_outputs_are_flagged_with_their_reason_and_may_win():
    outputs = OutputCheck(verdict="meaningless", reason="its scales are made up")
    reports = [report("gpu", 3.0, at) for at in (0, 30)]
    (found,) = model_of(entry(reports, outputs=outputs)).accelerators
    assert (found.flags, found.may_win) == ({"meaningless_outputs": 2}, True)
    (caveat,) = (one for one in caveats_of([found]) if one.name == "meaningless_outputs")
    assert "its scales are made up" in caveat.sentence
    assert rows_of([found])["outputs"] == ("not meaningful",)


def test_caveat_about_work_of_others_on_the_dla_names_them():
    seen = {"quality": ("foreign_dla_activity",), "foreign_dla_processes": ("trtexec", "python3 a")}
    reports = [report("dla0", 3.0, at).model_copy(update=seen) for at in (0, 30)]
    (found,) = model_of(entry(reports)).accelerators
    (caveat,) = (one for one in caveats_of([found]) if one.name == "foreign_dla_activity")
    meaning = "in every round: something else used a DLA during the run"
    assert caveat.sentence == f"{meaning} (trtexec, python3 a)"
    unknown = found.model_copy(update={"foreign_dla_processes": ()})
    (caveat,) = (one for one in caveats_of([unknown]) if one.name == "foreign_dla_activity")
    assert caveat.sentence == meaning


def test_rounds_that_warm_alike_are_steady():
    reports = [
        report("gpu", 3.0, at).model_copy(update={"quality": ("not_steady",)}) for at in (0, 30)
    ]
    (found,) = model_of(entry(reports)).accelerators
    assert (found.is_steady, found.unsettled_rounds, found.flags) == (True, 2, {})


def result(**changes):
    whole = distribution([1_000_000] * 2000)
    return AcceleratorResult.model_validate(
        {
            "device": "gpu",
            "backend": "tensorrt",
            "status": "ok",
            "rounds": 2,
            "latency": whole,
            "device_latency": whole,
            "variation": 0.001,
            "clocks": {"gpu": ClockRange(lowest_hertz=1.3e9, highest_hertz=1.3e9)},
            **changes,
        }
    )


def spans(**milliseconds):
    return {name: distribution([round(ms * 1e6)] * 9) for name, ms in milliseconds.items()}


def test_sound_result_has_nothing_to_be_said():
    assert caveats_of([result(stages=spans(h2d=0.1, compute=0.8, d2h=0.1))]) == ()


@pytest.mark.parametrize(
    ("changes", "name", "said"),
    [
        ({"device_latency": distribution([700_000] * 9)}, "host_bound", "30.0 % are the host's"),
        (
            {"stages": spans(h2d=0.6, compute=0.3)},
            "transfer_bound",
            "inputs takes 600 µs, computing 300 µs",
        ),
        (
            {"stages": spans(d2h=0.6, compute=0.3)},
            "transfer_bound",
            "outputs takes 600 µs, computing 300 µs",
        ),
        ({"variation": 0.013}, "unstable", "by 1.3 % of its mean"),
        ({"built": Built(streams=2)}, "several_streams", "2 inferences"),
        (
            {"clocks": {"gpu": ClockRange(lowest_hertz=6e8, highest_hertz=1.3e9)}},
            "clocks_moved",
            "from 600 to 1300 MHz",
        ),
        (
            {
                "built": Built(
                    wide_layers=("pool", "prob"), placement=Placement(gpu_layers=("a",) * 9)
                )
            },
            "int8_partial",
            "2 of 9 layers stay in floating point, not in int8: pool, prob",
        ),
        ({"latency": distribution([1_000_000] * 300)}, "few_inferences", "300 inferences"),
        ({"flags": {"throttled": 1}}, "throttled", "in 1 of 2 rounds: a clock was held down"),
        ({"flags": {"not_steady": 2}}, "not_steady", "the last rounds differ"),
        ({"unsettled_rounds": 1}, "unsettled", "at the end of 1 of 2 rounds"),
        ({"flags": {"aliased": 2}}, "aliased", "kept step"),
        ({"flags": {"telemetry_gap": 2}}, "telemetry_gap", "in every round: samples are missing"),
        ({"flags": {"insufficient_samples": 2}}, "insufficient_samples", "shorter than 10 s"),
        ({"flags": {"fallback": 2}}, "fallback", "layers that compute ran on the GPU"),
        ({"flags": {"dla_not_used": 2}}, "dla_not_used", "nothing shows that it did"),
    ],
)
def test_each_check_speaks_with_its_number(changes, name, said):
    (check,) = caveats_of([result(**changes)])
    assert (check.name, check.device) == (name, "gpu")
    assert said in check.sentence
    assert check.remedy


def test_costly_copies_lead_to_a_sweep_of_memory():
    (check,) = caveats_of([result(stages=spans(h2d=0.6, compute=0.3))])
    assert "--sweep memory=copy,mapped" in check.remedy


def test_a_copy_that_costs_only_its_call_is_no_caveat():
    """Smaller types do not make the copy of a few bytes faster."""
    assert caveats_of([result(stages=spans(h2d=0.005, compute=0.004, d2h=0.005))]) == ()


@pytest.mark.parametrize("device", [None, distribution([1_000_000] * 2000)])
def test_a_variation_is_not_more_than_the_limit_that_is_printed_equally(device):
    limit = HOST_VARIATION if device is None else DEVICE_VARIATION
    assert caveats_of([result(device_latency=device, variation=limit + 0.0004)]) == ()
    (check,) = caveats_of([result(device_latency=device, variation=limit + 0.0006)])
    assert check.name == "unstable"


@pytest.mark.parametrize(
    ("environment", "words", "others"),
    [
        (None, {"jetson_clocks", "nvidia-smi"}, set()),
        (Environment(), {"jetson_clocks", "nvidia-smi"}, set()),
        (Environment(gpu_uuid="GPU-1", power_reading="instant"), {"nvidia-smi"}, {"jetson_clocks"}),
        (Environment(module="AGX Orin", l4t="36.4.3"), {"jetson_clocks"}, {"nvidia-smi"}),
        (
            Environment(module="Thor", l4t="39.2.0", telemetry_source="tegrastats"),
            {"jetson_clocks"},
            {"nvidia-smi"},
        ),
    ],
)
def test_clocks_are_locked_by_the_program_of_the_machine(environment, words, others):
    moved = {"gpu": ClockRange(lowest_hertz=6e8, highest_hertz=1.3e9)}
    for changes in ({"variation": 0.013}, {"clocks": moved}, {"flags": {"not_steady": 2}}):
        (check,) = caveats_of([result(**changes)], environment)
        assert all(word in check.remedy for word in words)
        assert not any(word in check.remedy for word in others)


def test_few_layers_in_floating_point_are_no_caveat():
    built = Built(wide_layers=("prob",), placement=Placement(gpu_layers=("a",) * 10))
    assert caveats_of([result(built=built)]) == ()


def test_slower_int8_is_explained_by_the_layers_of_both_engines():
    def of(milliseconds, *, wide=(), reformats=()):
        placement = Placement(verdict="gpu_only", gpu_layers=("a",) * 9, reformat_layers=reformats)
        built = Built(layer_types={"int8": 9}, wide_layers=wide, placement=placement)
        return result(built=built, latency_seconds=Figure(value=milliseconds / 1e3))

    fp16 = of(2.0, reformats=("in",))
    assert int8_slower(of(1.9, wide=("b",)), fp16) is None
    names = tuple("stuvwxyz")
    sentence, remedy = int8_slower(of(3.0, wide=names, reformats=("in", "to b", "from b")), fp16)
    assert sentence == (
        "int8 takes 3.00 ms, fp16 2.00 ms: 50.0 % more; 8 layers stay in floating point"
        " (s, t, u, v, w and 3 more); 2 layers that only reformat are added (to b, from b)"
    )
    assert "fp16" in remedy
    sentence, _ = int8_slower(of(3.0, reformats=("in",)), fp16)
    assert sentence.endswith("no layer stays in floating point and no reformat is added")


def test_host_clock_is_given_more_room():
    assert caveats_of([result(device_latency=None, variation=0.09)]) == ()
    assert [c.name for c in caveats_of([result(device_latency=None, variation=0.11)])] == [
        "unstable"
    ]


def test_machine_that_was_busy_or_slowed_is_told():
    largest = PowerMode(2, "MAXN_SUPER")
    slowed = Environment(power_mode="MODE_30W")
    found = caveats_of_machine({"cpu": 0.4, "gpu": 0.2}, slowed, largest)
    assert [check.name for check in found] == ["background_load", "background_load", "power_mode"]
    assert "40.0 % busy" in found[0].sentence
    assert "nvpmodel -m 2 selects MAXN_SUPER" in found[2].remedy
    whole = Environment(power_mode="MAXN_SUPER")
    assert caveats_of_machine({"cpu": 0.02, "gpu": 0.0}, whole, largest) == ()
    assert caveats_of_machine({}, slowed) == ()
    assert caveats_of_machine({}, Environment()) == ()


def test_table_shows_unknown_values_as_a_dash_or_not_at_all(orin):
    rows = rows_of(orin.accelerators)
    assert rows["GPU freed"] == ("–", "90.0 points")
    assert rows["energy per inference, net (above idle)"][0].startswith("10.0 mJ ± ")
    assert "placement" not in rows
    assert "device span p50" not in rows
    assert "status" not in rows


def test_table_shows_placement_and_precision():
    placement = Placement(verdict="mixed", dla_layers=("a", "b"), gpu_layers=("c",))
    built = Built(
        requested_precision="int8", layer_types={"fp16": 2, "int8": 9}, placement=placement
    )
    rows = rows_of([result(built=built)])
    assert rows["placement"] == ("layers on both, DLA and GPU (mixed)",)
    assert rows["  layers by place"] == ("DLA 2, GPU 1",)
    assert rows["built as"] == ("int8 9, fp16 2 (int8 asked)",)


def test_load_of_a_dla_is_that_of_the_truest_source():

    def cell(device, **loads):
        told = {name.replace("_", ":"): {"value": value} for name, value in loads.items()}
        return rows_of([result(device=device, utilization=told)])["DLA load"]

    assert cell("dla0", dla0_firmware=0.9, dla0_ftrace=0.5, dla0_tegrastats=0.7) == ("dla0 50.0 %",)
    assert cell("dla0", dla0_firmware=0.9, dla0_tegrastats=0.7) == ("dla0 70.0 %",)
    assert cell("gpu", dla1_ftrace=0.2, dla0_firmware=0.9) == ("dla0 90.0 %, dla1 20.0 %",)


def test_page_explains_every_row_and_check():
    page = (Path(__file__).parents[2] / "docs/bench.md").read_text(encoding="utf-8")
    told = " ".join(re.findall(r"^\| (.*?) \|", page, re.MULTILINE))
    for label in accelerator_cells(result()):
        assert label.strip() in told, label
    for name in CAVEATS:
        assert f"`{name}`" in page, name


def test_second_instrument_stands_beside_the_first():
    reports = [
        one.model_copy(
            update={
                "energy": one.energy.model_copy(
                    update={"counter_joules": 82.0, "counter_edge_joules": 2.0}
                )
            }
        )
        for one in (report("gpu", 3.0, 0, **GPU), report("gpu", 3.0, 30, **GPU))
    ]
    (found,) = model_of(entry(reports)).accelerators
    assert found.counter_joules_per_inference.value == pytest.approx(82 / 4000)
    assert found.counter_joules_per_inference.high == pytest.approx(84 / 4000)
    rows = rows_of([found])
    assert rows["  the same by its own counter"] == ("20.5 mJ ± 2.4 %",)
