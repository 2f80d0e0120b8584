"""Where a bench has its telemetry from, and what it does without."""

import argparse
from pathlib import Path

import pytest

from tegrascope.daemon.settings.config import Telemetry
from tegrascope.parsers.errors import UsageError, UserError
from tegrascope.workbench.bench.settings import (
    INTERVALS,
    Asked,
    absolute,
    read_settings,
    reference_of,
    workload_of,
)
from tegrascope.workbench.bench.workers import Setup
from tegrascope.workbench.cli import make_parser
from tegrascope.workbench.results.records import variant_of
from tests.fakes.processes import until

from .bench_fakes import settings


def asked(*arguments: str) -> argparse.Namespace:
    return bench_arguments("builtin:mobilenet", *arguments)


def bench_arguments(*arguments: str) -> argparse.Namespace:
    return make_parser(["bench"]).parse_args(["bench", *arguments])


def test_telemetry_is_the_source_of_the_machine(monkeypatch, tmp_path):
    program = tmp_path / "tegrastats"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    found = read_settings(asked())
    assert (found.telemetry.source, found.settings.telemetry) == ("tegrastats", "tegrastats")
    assert found.why_no_telemetry is None
    assert found.settings.baseline_seconds == 2.5
    assert read_settings(asked("--rounds", "4")).settings.baseline_seconds == 8.0


def test_without_telemetry_there_is_no_baseline():
    found = read_settings(asked("--telemetry", "none"))
    assert found.telemetry is None
    assert found.why_no_telemetry is not None
    assert found.settings.baseline_seconds == 0.0


def test_source_that_needs_settings_is_refused_with_the_remedy():
    with pytest.raises(UserError, match=r"replay\.path must name the log.*-c FILE"):
        read_settings(asked("--telemetry", "replay"))


def test_configuration_names_telemetry_and_board(tmp_path):
    path = tmp_path / "t.yaml"
    path.write_text(
        "telemetry: {source: simulator, interval: 500ms}\n"
        "board: {name: mine, rails: [A], total: [A], step: {default: 0.1}}\n"
    )
    found = read_settings(asked("-c", str(path)))
    assert (found.telemetry.source, found.telemetry.interval) == ("simulator", 0.5)
    assert found.rule.name == "mine"
    assert found.settings.duration_seconds == 65.0


def test_two_files_of_one_name_are_refused(tmp_path):
    files = [tmp_path / folder / "net.onnx" for folder in ("first", "second")]
    for path in files:
        path.parent.mkdir()
        path.touch()
    with pytest.raises(UsageError, match=r"net\.onnx and .*net\.onnx have the same name.*rename"):
        read_settings(bench_arguments(*map(str, files)))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--stages"], "--stages belongs to --lock-in"),
        (
            ["--lock-in", "--stages", "--on", "cpu", "--backend", "onnxruntime"],
            "onnxruntime cannot repeat a stage of an inference alone: leave --stages out",
        ),
    ],
)
def test_stages_that_cannot_be_measured_are_refused(given, words):
    with pytest.raises(UsageError, match=words):
        read_settings(asked(*given))


@pytest.mark.parametrize(
    ("given", "interval"), [((), 0.079), (("--rounds", "4"), 0.107), (("--simulate",), 0.083)]
)
def test_default_round_has_enough_samples(given, interval, monkeypatch):
    monkeypatch.setattr("tegrascope.workbench.bench.settings.available_source", lambda: "stream")
    asked_for = read_settings(bench_arguments("builtin:resnet50", *given))
    longest_reading = 0.014 if "--simulate" in given else 0.022
    assert asked_for.settings.duration_seconds / (interval + longest_reading) > 100
    assert "--simulate" in given or max(asked_for.intervals) == interval


@pytest.mark.parametrize(
    ("given", "rounds", "until"),
    [
        ((), 6, 0.03),
        (("--until", "5%"), 6, 0.05),
        (("--until", "400"), 6, 1.0),
        (("--rounds", "2"), 2, None),
        (("--sweep", "batch=1,2"), 4, None),
    ],
)
def test_bench_may_stop_early_unless_its_rounds_are_stated(given, rounds, until):
    found = read_settings(asked(*given)).settings
    assert (found.rounds, found.until_ratio) == (rounds, until)


@pytest.mark.parametrize("other", [("--rounds", "4"), ("--sweep", "batch=1,2"), ("--contention",)])
def test_until_is_refused_beside_a_plan_of_its_own(other):
    with pytest.raises(UsageError, match=f"--until does not go with {other[0]}"):
        read_settings(asked("--until", "3%", *other))


def test_advice_counts_with_the_interval_of_the_unit_of_root(monkeypatch):
    monkeypatch.setattr("tegrascope.workbench.bench.settings.available_source", lambda: "stream")
    found = read_settings(asked())
    assert found.advice() is None
    assert "it needs 10.9 s" in found.advice(unit_interval=0.103)


def test_benchmark_continues_without_a_source_that_fails(tmp_path):
    telemetry = Telemetry.model_validate({"tegrastats": {"command": "/no/such/tegrastats"}})
    setup = Setup(Asked(settings("a"), telemetry), tmp_path, first_sample_seconds=0.5)
    setup.start()
    assert "/no/such/tegrastats" in setup.problem
    assert not setup.session.environment.simulated
    setup.session.stop()


@pytest.mark.parametrize("varies", [True, False])
def test_each_pass_has_an_interval_of_its_own_unless_one_was_chosen(tmp_path, varies):
    program, given = tmp_path / "tegrastats", tmp_path / "given"
    line = "RAM 1/2MB (lfb 1x4MB) CPU [5%@1728]"
    program.write_text(
        f'#!/bin/sh\necho "$2" >> {given}\nwhile echo "{line}"; do sleep 0.05; done\n'
    )
    program.chmod(0o755)
    telemetry = Telemetry.model_validate(
        {"interval": INTERVALS[0], "tegrastats": {"command": str(program)}}
    )
    setup = Setup(Asked(settings("a"), telemetry, varies_interval=varies), tmp_path)
    setup.start()
    try:
        for number in range(5):
            setup.begin_pass(number)
    finally:
        setup.session.stop()
    assert setup.problem is None
    assert given.read_text().split() == (["103", "97", "107", "101", "103"] if varies else ["103"])


def test_interval_of_a_configuration_is_kept(tmp_path):
    path = tmp_path / "t.yaml"
    path.write_text("telemetry: {source: simulator, interval: 103ms}\n")
    assert not read_settings(asked("-c", str(path))).varies_interval
    assert not read_settings(bench_arguments("resnet50", "--simulate")).varies_interval


def test_load_before_the_benchmark_is_measured(tmp_path):
    telemetry = Telemetry.model_validate({"source": "simulator", "interval": 0.05})
    setup = Setup(Asked(settings("a"), telemetry), tmp_path)
    setup.start()
    try:
        assert setup.problem is None
        # A busy machine may have no line in so short a time.
        background = {}
        assert until(lambda: background.update(setup.background(0.5)) or "gpu" in background)
        assert background["gpu"] < 0.1
        assert 0 <= background["cpu"] <= 1
        assert setup.session.environment.simulated
        assert setup.session.environment.board is not None
    finally:
        setup.session.stop()


def test_paths_of_models_are_those_of_the_caller(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert absolute("nets/a.onnx") == str(Path.cwd() / "nets/a.onnx")
    assert absolute("builtin:resnet50") == "builtin:resnet50"


def test_shapes_and_plug_ins_come_into_every_workload_that_takes_them(tmp_path):
    model = tmp_path / "m.onnx"
    model.touch()
    given = ("--shape", "a:0:1x8:1x4:1x8:2x8", "--shape", "b:1x2", "--plugin", "own.so")
    found = read_settings(bench_arguments(str(model), *given)).settings
    assert {name: one.text for name, one in found.shapes.items()} == {
        "a:0": "1x8 of 1x4 to 2x8",
        "b": "1x2",
    }
    on_gpu, on_cpu = (workload_of(found, str(model), device) for device in ("gpu", "cpu"))
    assert on_gpu.plugins == (str(Path("own.so").absolute()),)
    assert on_cpu.plugins == ()
    assert on_gpu.shapes == on_cpu.shapes == reference_of(found, str(model)).shapes == found.shapes


def test_layers_are_held_on_accelerators_and_named_in_the_variant(tmp_path):
    model = tmp_path / "m.onnx"
    model.touch()
    held = ("--layer-precision", "Split_36:fp16", "--layer-precision", "model.22*:fp32")
    given = ("--precision", "int8", *held, "--precision-constraints", "prefer")
    found = read_settings(bench_arguments(str(model), *given)).settings
    on_gpu, on_cpu = (workload_of(found, str(model), device) for device in ("gpu", "cpu"))
    assert on_gpu.layer_precisions == {"Split_36": "fp16", "model.22*": "fp32"}
    assert on_gpu.precision_constraints == "prefer"
    assert on_cpu.layer_precisions == reference_of(found, str(model)).layer_precisions == {}
    assert variant_of(found) == "int8 Split_36 fp16, model.22* fp32"
    many = dict.fromkeys("abcde", "fp16")
    changed = found.model_copy(update={"layer_precisions": many})
    assert variant_of(changed) == "int8 a fp16, b fp16, c fp16, 2 more"


@pytest.mark.parametrize(
    ("text", "says"),
    [("x", "is not a shape"), ("x:1x0", "is not a shape"), ("x:9:1:2:3", "not between")],
)
def test_shape_that_cannot_be_read_is_refused(text, says, capsys):
    with pytest.raises(SystemExit):
        asked("--shape", text)
    assert says in capsys.readouterr().err


def test_shapes_belong_to_one_model():
    with pytest.raises(UsageError, match="inputs of one model"):
        read_settings(asked("builtin:resnet50", "--shape", "x:1x2"))
