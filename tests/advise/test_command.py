"""``tegrascope advise`` as a person runs it, on results whose answer is known."""

import json
import re
from pathlib import Path

import pytest

from tegrascope.workbench.advise.compose import Advice
from tegrascope.workbench.cli import main
from tegrascope.workbench.results.records import Figure

from .made import lane, model, result, together, written

# In a second of work: on the GPU 20 W and 24 W, on the DLA 5 W and 2.5 W.
YOLO = model("yolo", lane("gpu", 5.0, 0.1, 0.9), lane("dla0", 12.0, 0.06, 0.02))
SEG = model("seg", lane("gpu", 10.0, 0.24, 0.95), lane("dla0", 40.0, 0.1, 0.03))
RATES = "yolo=30,seg=10"


@pytest.fixture
def advise(tmp_path, capsys):
    """Run the command on results; return its status, its words, and what it said of trouble."""

    def run(*found, options=("--json",), rates=RATES):
        paths = [
            one if isinstance(one, str) else written(tmp_path, f"r{number}", one)
            for number, one in enumerate(found)
        ]
        status = main(["advise", *paths, "--rates", rates, *options])
        told = capsys.readouterr()
        return status, told.out, told.err

    return run


def document(told):
    return Advice.model_validate_json(told)


def where(placement):
    return {one.name: one.device for one in placement.models}


def test_least_energy_within_deadlines(advise):
    status, out, err = advise(result(YOLO, SEG))
    advice = document(out)
    assert (status, err) == (0, "")
    assert advice.schema_version == 2
    assert where(advice.chosen) == {"yolo": "gpu", "seg": "dla0"}
    assert advice.chosen.watts.value == pytest.approx(30 * 0.1 + 10 * 0.1)
    # Two figures, of two per cent each.
    half = (advice.chosen.watts.high - advice.chosen.watts.low) / 2
    assert half == pytest.approx(((30 * 0.002) ** 2 + (10 * 0.002) ** 2) ** 0.5)
    assert advice.chosen.duty["gpu"] == pytest.approx(30 * 0.005 + 10 * 0.04 * 0.03)
    assert advice.chosen.models[0].latency_seconds == pytest.approx(0.0055)
    assert where(advice.runner_up) == {"yolo": "dla0", "seg": "gpu"}
    assert advice.runner_up_gap.value == pytest.approx(0.2)
    assert advice.all_on_gpu.watts.value == pytest.approx(5.4)
    assert advice.board == "AGX Orin"
    assert "yolo on gpu and seg on dla0 do not slow each other: not measured" in advice.assumed


def test_least_gpu_is_another_goal(advise):
    status, out, _ = advise(result(YOLO, SEG), options=("--json", "--minimise", "gpu"))
    advice = document(out)
    assert status == 0
    assert where(advice.chosen) == {"yolo": "dla0", "seg": "gpu"}
    assert advice.chosen.watts is None


def test_measured_contention_is_used_and_named(advise):
    late = together(("yolo", "gpu", 7.0), ("seg", "dla0", 1.2), excess=1.0)
    fine = together(("yolo", "dla0", 1.1), ("seg", "gpu", 1.1), excess=0.5)
    status, out, _ = advise(result(YOLO, SEG, contention=(late, fine)))
    advice = document(out)
    assert status == 0
    assert where(advice.chosen) == {"yolo": "dla0", "seg": "gpu"}
    assert advice.chosen.models[0].latency_seconds == pytest.approx(0.012 * 1.1 * 1.1)
    assert advice.measured == (
        "together: yolo on dla0 1.10× + seg on gpu 1.10×, +0.50 W while all work",
    )
    assert not [line for line in advice.assumed if "slow each other" in line]
    shares = (30 * 0.012 * (1 + 0.1 * 0.1)) * (10 * 0.01 * (1 + 0.1 * 0.36))
    assert advice.chosen.watts.value == pytest.approx(1.8 + 2.4 + 0.5 * shares)


def test_power_of_three_is_counted_beyond_that_of_their_pairs(advise):
    names = ("a", "b", "c")
    models = [model(name, lane("gpu", 10.0, 0.1, 0.9)) for name in names]
    pairs = [
        together((one, "gpu", 2.0), (other, "gpu", 2.0), excess=1.0)
        for one, other in (("a", "b"), ("a", "c"), ("b", "c"))
    ]
    whole = together(*((name, "gpu", 3.0) for name in names), excess=4.0)
    _, out, _ = advise(result(*models, contention=(*pairs, whole)), rates="a=10,b=10,c=10")
    # Each is at it for a tenth of the time alone, a fifth longer beside two that slow it by half.
    at_it = 0.1 * (1 + 2 * 0.1)
    foreseen = 30 * 0.1 + 3 * at_it**2 * 1.0 + at_it**3 * (4.0 - 3.0)
    assert document(out).chosen.watts.value == pytest.approx(foreseen)


def test_results_of_several_files_are_put_together(advise):
    older = model("yolo", lane("gpu", 6.0, 0.2, 0.9))
    status, out, _ = advise(result(older), result(YOLO, at=2), result(SEG, at=3))
    advice = document(out)
    assert status == 0
    assert advice.chosen.models[0].latency_seconds == pytest.approx(0.0055)


def test_missed_deadline_is_named_with_its_excess(advise):
    options = ("--deadlines", "yolo=5ms", "--json")
    status, out, err = advise(result(YOLO, SEG), options=options)
    advice = document(out)
    assert status == 3
    assert advice.chosen is None
    (short,) = [one for one in advice.violations if one.is_alone]
    assert (short.kind, short.models, short.device) == ("latency", ("yolo",), "gpu")
    assert short.over_ratio == pytest.approx(5.5 * 1.1 / 5 - 1)
    assert "yolo takes 6.05 ms on gpu, even alone" in err
    assert "21.0 % too long" in err


def test_rates_beyond_the_board_name_the_accelerator(advise):
    both = "yolo=150,seg=60"
    slow = "yolo=1s,seg=1s"
    status, out, err = advise(
        result(YOLO, SEG), rates=both, options=("--json", "--deadlines", slow)
    )
    advice = document(out)
    assert status == 3
    assert all(one.kind == "duty" for one in advice.violations)
    least = min(
        max(150 * 0.005 + 60 * 0.01, 0),
        max(150 * 0.005 + 60 * 0.04 * 0.03, 60 * 0.04),
        max(60 * 0.01 + 150 * 0.012 * 0.02, 150 * 0.012),
    )
    assert advice.closest_infeasible.used == pytest.approx(1.1 * least)
    assert "would fit" in err


def test_equal_placements_are_told_as_a_tie(advise):
    same = model("seg", lane("gpu", 10.0, 0.121, 0.95), lane("dla0", 20.0, 0.12, 0.03))
    status, out, _ = advise(result(YOLO, same), rates="seg=10")
    advice = document(out)
    assert status == 0
    assert where(advice.chosen) == {"seg": "gpu"}
    assert [where(one) for one in advice.ties] == [{"seg": "dla0"}]
    assert advice.runner_up is None
    assert any("can't be told from the best" in one.sentence for one in advice.measure_next)


def test_error_of_common_parts_of_placements_cancels(advise):
    unsure = Figure(value=0.1, low=0.0, high=0.2)
    vague = model("yolo", lane("gpu", 5.0, gpu=0.9, net_joules_per_inference=unsure))
    _, out, _ = advise(result(vague, SEG))
    advice = document(out)
    assert advice.chosen.watts.high - advice.chosen.watts.low > 5
    assert advice.ties == ()
    assert advice.runner_up_gap.low > 0


def test_wrong_answers_are_never_chosen(advise):
    wrong = model(
        "seg",
        lane("gpu", 10.0, 0.24, 0.95, flags={"throttled": 1}),
        lane("dla0", 20.0, 0.01, 0.0, flags={"wrong_outputs": 4}),
    )
    status, out, _ = advise(result(wrong), rates="seg=10")
    advice = document(out)
    assert status == 0
    assert where(advice.chosen) == {"seg": "gpu"}
    assert advice.ruled_out == ("seg on dla0: its outputs are wrong, so its speed means nothing",)
    assert "seg on gpu is used, though flagged throttled" in advice.notes


def test_second_core_is_taken_as_the_first_only_where_there_is_one(advise):
    _, out, _ = advise(result(YOLO, SEG))
    assert "dla1" not in out
    on_both = YOLO.model_copy(
        update={"accelerators": (*YOLO.accelerators, lane("dla1", 12.0, 0.06, 0.02))}
    )
    _, out, _ = advise(result(on_both, at=2), result(SEG, at=3))
    advice = document(out)
    devices = where(advice.chosen)
    assert set(devices.values()) == {"dla0", "dla1"}
    if devices["seg"] == "dla1":
        assert "seg on dla1 is taken to be as on dla0" in advice.assumed
    assert any(
        one.sentence == "seg was not measured on dla1, other models were"
        for one in advice.measure_next
    )


def test_missing_measurement_is_named_with_its_threshold(advise):
    _, out, _ = advise(result(YOLO, SEG), options=("--json", "--deadlines", "seg=60ms"))
    advice = document(out)
    (pair,) = [one for one in advice.measure_next if "another placement" in one.sentence]
    # p99 of seg is 44 ms; with a tenth of margin 60 ms leave a factor of 1.24.
    assert pair.could_change
    assert "or slow seg on dla0 by more than 1.24×" in pair.sentence
    assert pair.command == (
        "tegrascope bench nets/yolo.onnx nets/seg.onnx --contention --on gpu,dla0"
    )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"environment": {"power_mode": "15W"}}, "power mode is MAXN in"),
        ({"environment": {"board": "Orin NX"}}, "board is AGX Orin in"),
        ({"environment": {"simulated": True}}, "is simulated, and "),
    ],
)
def test_results_of_different_machines_are_refused(advise, changes, said):
    status, out, err = advise(result(YOLO), result(SEG, at=2, **changes))
    assert (status, out) == (1, "")
    assert said in err
    assert err.count("\n") == 1


def test_different_versions_are_told(advise):
    status, out, _ = advise(
        result(YOLO, environment={"l4t": "36.3"}), result(SEG, at=2, environment={"l4t": "36.4"})
    )
    assert status == 0
    assert any(note.startswith("l4t is 36.3 in") for note in document(out).notes)


def test_one_name_of_two_files_is_refused(advise):
    status, _, err = advise(
        result(YOLO), result(YOLO.model_copy(update={"model_sha256": "cd"}), SEG)
    )
    assert status == 1
    assert "yolo is not the same file in" in err


def test_simulated_figures_are_never_taken_for_real(advise):
    simulated = result(YOLO, SEG, is_simulated=True)
    _, out, _ = advise(simulated)
    assert document(out).is_simulated


def test_table_says_all_of_it(advise):
    status, out, err = advise(result(YOLO, SEG, is_simulated=True), options=())
    assert (status, err) == (0, "")
    for words in (
        "SIMULATED",
        "net power 4.00 W ± 1.6 %",
        "all on the GPU: net power 5.40 W",
        "assumed:",
        "do not slow each other: not measured",
        "measure next: yolo on gpu and seg on dla0 were not measured together",
        "tegrascope bench nets/yolo.onnx nets/seg.onnx --contention --on gpu,dla0",
    ):
        assert words in out, words


@pytest.mark.parametrize(
    ("options", "rates", "said"),
    [
        ((), "yolo=30,sge=10", "there is no result of 'sge': did you mean seg?"),
        ((), "yolo", "--rates 'yolo' is not NAME=VALUE"),
        ((), "yolo=0", "--rates yolo=0 is not a number above 0"),
        ((), "yolo=inf", "is not a number above 0"),
        ((), "yolo=1,yolo=2", "--rates names yolo twice"),
        ((), ",", "--rates names no model"),
        (("--deadlines", "yolo=soon"), "yolo=1", "--deadlines yolo=soon"),
        (("--deadlines", "seg=1s"), "yolo=1", "--rates does not name 'seg'"),
    ],
)
def test_bad_requests_are_one_line(advise, options, rates, said):
    status, out, err = advise(result(YOLO, SEG), options=options, rates=rates)
    assert (status, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "No such file"),
        ("not json", "is not JSON"),
        ('{"records": []}', "is not a result of a benchmark"),
        ('{"schema_version": 1, "models": []}', "has schema_version 1, this version reads 2 and 3"),
        (
            '{"schema_version": 2, "models": [], "tegrascope": "9.9"}',
            "it was written by tegrascope 9.9",
        ),
    ],
)
def test_files_that_are_no_results_are_one_line(advise, tmp_path, text, said):
    path = tmp_path / "result.json"
    if text is not None:
        path.write_text(text)
    status, out, err = advise(str(path))
    assert (status, out) == (1, "")
    assert said in err
    assert err.count("\n") == 1


def test_model_without_energy_is_refused_with_the_remedy(advise):
    bare = model("yolo", lane("gpu", 5.0, gpu=0.9))
    status, _, err = advise(result(bare), rates="yolo=30")
    assert status == 1
    assert "its net energy is not known" in err
    assert "--minimise gpu" in err


def test_result_without_energy_is_to_be_measured_next(advise):
    half = model("seg", lane("gpu", 10.0, 0.24, 0.95), lane("dla0", 20.0, flags={"aliased": 3}))
    status, out, _ = advise(result(half), rates="seg=10")
    advice = document(out)
    assert status == 0
    assert where(advice.chosen) == {"seg": "gpu"}
    (missing,) = advice.measure_next
    assert missing.could_change
    assert missing.sentence == (
        "seg on dla0 could not be chosen: its net energy is not known (aliased)"
    )
    assert missing.command.startswith("tegrascope bench nets/seg.onnx --on dla0 ")


def test_power_that_was_withheld_is_said_to_be_assumed(advise):
    pair = together(("yolo", "gpu", 1.2), ("seg", "dla0", 1.1))
    _, out, _ = advise(result(YOLO, SEG, contention=(pair,)))
    advice = document(out)
    assert advice.chosen.watts.value == pytest.approx(4.0)
    assert (
        "yolo on gpu and seg on dla0 draw no more together than alone: their power was withheld"
        in advice.assumed
    )


def test_more_models_than_can_be_searched_are_refused(advise):
    many = [model(f"m{n}", lane("gpu", 1.0, 0.01, 0.9)) for n in range(11)]
    status, _, err = advise(result(*many), rates=",".join(f"m{n}=1" for n in range(11)))
    assert status == 2
    assert "--rates names 11 models: ask for at most 10 at once" in err


def test_document_is_json_with_its_version(advise):
    _, out, _ = advise(result(YOLO, SEG))
    assert json.loads(out)["schema_version"] == 2


@pytest.mark.parametrize("text", ["NaN", "1e999", "-Infinity"])
def test_infinite_numbers_are_refused(tmp_path, capsys, text):
    place = Path(written(tmp_path, "odd", result(YOLO)))
    file = place / "result.json"
    file.write_text(re.sub(r'"p99_seconds":[^,]*', f'"p99_seconds":{text}', file.read_text()))
    assert main(["advise", str(place), "--rates", "yolo=3"]) == 1
    told = capsys.readouterr()
    assert (told.out, told.err.count("\n")) == ("", 1)
    assert f"contains {text}, which is not a valid measurement" in told.err


def test_flags_of_models_that_are_not_asked_for_are_not_told(advise):
    pair = together(("yolo", "gpu", 1.2), ("seg", "dla0", 1.1))
    pair = pair.model_copy(update={"flags": {"not_steady": 1}})
    told = [
        any("together is used, though flagged" in note for note in document(out).notes)
        for rates in ("yolo=30", "yolo=30,seg=10")
        for _, out, _ in [advise(result(YOLO, SEG, contention=(pair,)), rates=rates)]
    ]
    assert told == [False, True]


def test_only_withholding_flags_explain_missing_energy(advise):
    flags = {"simulated": 4, "not_steady": 4, "insufficient_samples": 4}
    bare = model("yolo", lane("gpu", 10.0, None, 0.9, flags=flags))
    assert (
        "its net energy is not known (insufficient_samples)"
        in advise(result(bare), rates="yolo=3")[2]
    )


def test_a_narrow_terminal_loses_no_digit(advise, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    _, out, _ = advise(result(YOLO, SEG), options=("--minimise", "gpu"))
    table = out[: out.index("GPU use")]
    assert "…" not in table
    assert {"yolo", "seg", "dla0", "gpu"} <= set(table.split())


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_names_with_escapes_do_not_reach_the_terminal(advise, options):
    """A hostile result.json colours no terminal, whether it is feasible or not."""
    name = "yo\x1b[31mlo"
    hostile = model(name, lane("gpu", 5.0, 0.1, 0.9), lane("dla0", 12.0, 0.06, 0.02))
    for rates in (f"{name}=30", f"{name}=9000", "other=30"):
        _, out, err = advise(result(hostile), options=options, rates=rates)
        assert "\x1b" not in out + err
