"""``tegrascope engines``: list, build and prune."""

import json
import os
import time
from contextlib import suppress

import numpy
import pytest

from tegrascope.collectors.backends.calibration import text_for
from tegrascope.collectors.backends.cudla import load_cudla
from tegrascope.collectors.backends.engine_cache import BuiltEngine, EngineCache
from tegrascope.parsers.errors import BackendUnavailable
from tegrascope.parsers.inference.calibration import CalibrationCache, parse_calibration
from tegrascope.parsers.inference.placement import Built, Placement
from tegrascope.workbench.bench.precision_search import PrecisionSearch
from tegrascope.workbench.cli import main
from tests.fakes.models import labelled_data, write_chain, write_classifier
from tests.fakes.shims import write_shims


@pytest.fixture
def state(tmp_path):
    return tmp_path / "state"


@pytest.fixture
def engines(state):
    """Three engines, last used so many days ago."""
    cache = EngineCache(state / "engines")
    for key, days, verdict in (("a", 0, "gpu_only"), ("b", 3, "pure_dla"), ("c", 40, "mixed")):
        built = Built(layer_types={"fp16": 5}, placement=Placement(verdict=verdict))
        parts = {"device": "gpu", "batch": "1"}
        cache.write(key * 64, BuiltEngine(b"plan", built), model="m.onnx", parts=parts)
        then = time.time() - days * 86400
        os.utime(cache.plan_path(key * 64), (then, then))
    return cache


def engines_command(*arguments: str, state) -> int:
    action, *rest = arguments
    return main(["engines", action, *rest, "--state-dir", str(state)])


@pytest.mark.usefixtures("engines")
def test_engines_are_listed(state, capsys):
    assert engines_command("list", state=state) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == [
        "engine",
        "model",
        "device",
        "batch",
        "precision",
        "MB",
        "verdict",
        "used",
    ]
    assert [row.split()[0][0] for row in rows] == ["a", "b", "c"]
    assert " ".join(rows[1].split()[1:]) == "m.onnx gpu 1 fp16 0.0 pure_dla 3 d ago"


def test_absent_engines_are_not_a_failure(state, capsys):
    assert engines_command("list", state=state) == 0
    assert engines_command("prune", "--all", state=state) == 0
    assert not state.exists()
    assert "0 engine(s)" in capsys.readouterr().err


INSPECTOR = """{"Layers": [
{"Name": "conv1 + PWN(clip1)", "LayerType": "CaskConvolution",
 "Inputs": [{"Format/Datatype": "Row major linear FP32"}],
 "Outputs": [{"Format/Datatype": "Channel major FP16 format where channel % 8 == 0"}],
 "TacticName": "sm80_xmma_fprop_tensor16x8x16",
 "Metadata": "[ONNX Layer: conv1]\x1e[ONNX Layer: bn1]\x1e[ONNX Layer: clip1]"}], "Bindings": []}"""


def write_engine(state, key="d", inspector: str | None = INSPECTOR):
    parts = {"device": "gpu", "batch": "2", "model": "77"}
    built = Built(layer_types={"fp16": 1}, placement=Placement(verdict="gpu_only"))
    made = BuiltEngine(b"plan", built, inspector=inspector)
    EngineCache(state / "engines").write(key * 64, made, model="m.onnx", parts=parts)


def test_an_engine_shows_what_was_fused(state, capsys, monkeypatch):
    """Is convolution, normalisation and clip one layer? The answer is one row with three nodes."""
    monkeypatch.setenv("COLUMNS", "200")
    write_engine(state)
    assert engines_command("show", "ddd", state=state) == 0
    printed = capsys.readouterr().out
    assert "layers: 1, made of 3 ONNX nodes" in printed
    assert "batch: 2" in printed
    [row] = [line for line in printed.splitlines() if "conv1 + " in line]
    assert "3: conv1, bn1, clip1" in row
    assert "LINEAR fp32 → HWC8 fp16" in row
    assert "yes" in row


def test_an_engine_is_shown_as_json(state, capsys):
    write_engine(state)
    assert engines_command("show", "d" * 64, "--json", state=state) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["key"], document["built"]["layer_types"]) == ("d" * 64, {"fp16": 1})
    [layer] = document["layers"]
    assert layer["nodes"] == ["conv1", "bn1", "clip1"]
    assert layer["uses_tensor_cores"] is True
    assert not {"log", "inspector"} & set(document)


def test_an_engine_without_detail_is_shown(state, capsys):
    write_engine(state, inspector=None)
    assert engines_command("show", "d", state=state) == 0
    assert "layers: not recorded" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("key", "words"), [("f", "no engine"), ("", "begins the keys of aaaaaaaaaaaa, bbbbbbbbbbbb")]
)
@pytest.mark.usefixtures("engines")
def test_a_key_names_one_engine(state, key, words, capsys):
    assert engines_command("show", key, state=state) == 1
    assert words in capsys.readouterr().err


def test_a_loadable_is_built_by_the_back_end_that_runs_it(state, tmp_path, capsys):
    """Without cuDLA here, it names what is missing."""
    with suppress(BackendUnavailable):
        load_cudla()
        pytest.skip("this machine has cuDLA")
    model = write_chain(tmp_path / "m.onnx", "Conv")
    arguments = ("build", str(model), "--on", "dla0", "--standalone")
    assert engines_command(*arguments, state=state) == 3
    assert "libcudla.so.1 cannot be opened" in capsys.readouterr().err


def test_without_engines_none_is_shown(state, capsys):
    assert engines_command("show", "a", state=state) == 1
    assert "there are no engines" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "left"),
    [
        (["--all"], ""),
        (["--keep", "1"], "a"),
        (["--older-than", "30d"], "ab"),
        (["--older-than", "12h"], "a"),
    ],
)
def test_engines_are_pruned(engines, state, arguments, left):
    assert engines_command("prune", *arguments, state=state) == 0
    assert "".join(entry.sidecar.key[0] for entry in engines.entries()) == left
    assert len(list(engines.directory.iterdir())) == 2 * len(left)


@pytest.mark.parametrize(
    "arguments", [[], ["--all", "--keep", "1"], ["--older-than", "3x"], ["--keep", "0"]]
)
def test_prune_needs_exactly_one_selection(state, arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        engines_command("prune", *arguments, state=state)
    assert caught.value.code == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_directory_that_others_may_write_is_refused(engines, state, capsys):
    engines.directory.chmod(0o777)
    assert engines_command("list", state=state) == 1
    assert "chmod go-w" in capsys.readouterr().err


def test_absent_tensorrt_names_the_package(state, tmp_path, monkeypatch, capsys):
    (tmp_path / "tensorrt.py").write_text("raise ModuleNotFoundError('no', name='tensorrt')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    model = write_chain(tmp_path / "m.onnx", "Relu")
    assert engines_command("build", str(model), "--on", "gpu,dla0", state=state) == 3
    lines = capsys.readouterr().err.splitlines()
    printed = [line for line in lines if line.startswith("tegrascope: ")]
    assert [line.split(":")[1] for line in printed] == [" gpu", " dla0"]
    assert "tensorrt is not installed: on a Jetson apt install python3-libnvinfer" in printed[0]


def test_an_engine_is_built_by_a_worker(state, tmp_path, monkeypatch, capsys):
    (tmp_path / "shims").mkdir()
    monkeypatch.setenv("PYTHONPATH", write_shims(tmp_path / "shims", dla_cores=1))
    model = write_chain(tmp_path / "m.onnx", "Conv", "Softmax", shape=("N", 4))
    build = ("build", str(model), "--on", "dla0", "--batch", "2")
    assert engines_command(*build, state=state) == 0
    printed = capsys.readouterr()
    first, note = printed.out.splitlines()
    assert "built in" in first
    assert "mixed" in first
    assert note == "  TensorRT finds 1 of 2 layers fit for the DLA"
    assert "dla0: builds the engine, which may take minutes …" in printed.err
    assert engines_command(*build, state=state) == 0
    printed = capsys.readouterr()
    assert "was there already" in printed.out
    assert "builds the engine" not in printed.err
    assert engines_command(*build, "--fallback", "require-pure", state=state) == 1
    assert "not pure on the DLA: 1 layers run on the GPU: softmax1" in capsys.readouterr().err
    assert engines_command("build", str(model), "--on", "dla1", state=state) == 3
    assert "sees 1 DLA core on Fake Orin, so there is no dla1" in capsys.readouterr().err


def test_probe_that_tensorrt_kills_is_reported_in_one_line(state, tmp_path, monkeypatch, capsys):
    (tmp_path / "shims").mkdir()
    shims = write_shims(tmp_path / "shims", dies="os.kill(os.getpid(), 11)")
    monkeypatch.setenv("PYTHONPATH", shims)
    model = write_chain(tmp_path / "m.onnx", "Relu")
    assert engines_command("build", str(model), state=state) == 3
    assert "by signal 11" in capsys.readouterr().err


def test_calibration_cache_is_made_and_used(state, tmp_path, monkeypatch, capsys):
    (tmp_path / "shims").mkdir()
    monkeypatch.setenv("PYTHONPATH", write_shims(tmp_path / "shims", dla_cores=1))
    model = write_classifier(tmp_path / "c.onnx")
    numpy.savez(tmp_path / "inputs.npz", labelled_data(40)[0])
    cache = tmp_path / "int8.cache"
    made = ("calibrate", str(model), "--data", str(tmp_path / "inputs.npz"), "-o", str(cache))
    assert engines_command(*made, "--batch", "4", "--method", "minmax", state=state) == 0
    printed = capsys.readouterr()
    assert printed.out == f"{cache}: 5 scales; use it as calibration: or --calibration\n"
    assert "gpu: calibrating with 40 inputs …" in printed.err
    found = parse_calibration(cache.read_text())
    assert found.algorithm == "MinMaxCalibration"
    assert not EngineCache(state / "engines").entries()

    text = cache.read_text()
    cache.unlink()
    assert engines_command(*made, "--method", "minmax", state=state) == 0
    assert "the scales of" in capsys.readouterr().err, "a finished calibration is not repeated"
    assert cache.read_text() == text

    build = (
        "build",
        str(model),
        "--on",
        "dla0",
        "--precision",
        "int8",
        "--calibration",
        str(cache),
    )
    assert engines_command(*build, state=state) == 0
    assert "placeholders" not in capsys.readouterr().out
    (entry,) = EngineCache(state / "engines").entries()
    assert entry.sidecar.built.int8_scales == "calibrated"


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"--data": "none"}, "there is no data at"),
        (
            {"-o": "no/such/place.cache"},
            "no/such/place.cache: No such file or directory: name a writable file",
        ),
    ],
)
def test_calibration_without_data_or_place_is_refused(
    state, tmp_path, monkeypatch, capsys, changes, problem
):
    (tmp_path / "shims").mkdir()
    monkeypatch.setenv("PYTHONPATH", write_shims(tmp_path / "shims"))
    model = write_chain(tmp_path / "m.onnx", "Conv")
    numpy.save(tmp_path / "x.npy", numpy.zeros((3, 4), "f4"))
    given = {"--data": str(tmp_path / "x.npy"), "-o": str(tmp_path / "c.cache"), **changes}
    words = [word for pair in given.items() for word in pair]
    assert engines_command("calibrate", str(model), *words, state=state) == 1
    assert problem in capsys.readouterr().err
    assert not (tmp_path / "c.cache").exists()


def test_layers_are_held_by_options(state, tmp_path, monkeypatch, capsys):
    (tmp_path / "shims").mkdir()
    monkeypatch.setenv("PYTHONPATH", write_shims(tmp_path / "shims"))
    model = write_chain(tmp_path / "m.onnx", "Conv", "Relu", "Conv", shape=("N", 4))
    build = ("build", str(model), "--precision", "fp16", "--layer-precision", "conv*:fp32")
    assert engines_command(*build, "--precision-constraints", "prefer", state=state) == 0
    assert "layer_precisions: 2 of 2 layers compute as asked" in capsys.readouterr().out
    [entry] = EngineCache(state / "engines").entries()
    assert entry.sidecar.parts["layer_precisions"] == '[["conv*", "fp32"]]'
    assert entry.sidecar.parts["precision_constraints"] == "prefer"
    with pytest.raises(SystemExit) as caught:
        engines_command(*build[:-1], "conv0:fp8", state=state)
    assert caught.value.code == 2
    assert "'conv0:fp8' is not a layer with fp32, fp16 or int8" in capsys.readouterr().err


BAD = ("relu3", "relu9")


@pytest.fixture
def clipped(tmp_path, monkeypatch):
    """A chain of which two tensors have an int8 scale that is far too small, and the options."""
    (tmp_path / "shims").mkdir()
    monkeypatch.setenv("PYTHONPATH", write_shims(tmp_path / "shims", computes=True))
    model = write_chain(tmp_path / "m.onnx", *["Relu"] * 12, shape=("N", 4))
    numpy.save(tmp_path / "x.npy", numpy.linspace(-3, 3, 32, dtype="f4").reshape(8, 4))
    scales = dict.fromkeys(("given", *(f"t{at}" for at in range(1, 12)), "made"), 3 / 127)
    scales |= {"t4": 1e-5, "t10": 1e-5}  # the outputs of relu3 and relu9
    cache = CalibrationCache(release=8601, scales=scales)
    (tmp_path / "int8.cache").write_text(text_for(cache, 8601))
    return (
        *(str(model), "--precision", "int8", "--inputs", str(tmp_path / "x.npy")),
        *("--calibration", str(tmp_path / "int8.cache")),
    )


def test_the_layers_to_hold_are_found(clipped, state, capsys):
    assert engines_command("debug-precision", *clipped, state=state) == 0
    printed = capsys.readouterr()
    head, setting = printed.out.splitlines()
    assert head.startswith("2 of 12 nodes have to be held at fp16 (")
    assert json.loads(setting.removeprefix("layer_precisions: ")) == dict.fromkeys(BAD, "fp16")
    told = [line for line in printed.err.splitlines() if "engine " in line and " nodes" in line]
    assert told[0].startswith("gpu: engine 1: 0 nodes at fp16: wrong, off by ")
    assert told[1].startswith("gpu: engine 2: 12 nodes at fp16: right, off by ")
    assert "(" not in "".join(told), "the error is said once"
    assert len(told) <= 14
    assert not (state / "engines").exists(), "trials leave no engines behind"


def test_layers_are_sought_among_named_ones_beside_held_ones(clipped, state, capsys):
    among = ("--among", "relu3*", "--layer-precision", "relu9:fp16", "--json")
    assert engines_command("debug-precision", *clipped, *among, state=state) == 0
    found = PrecisionSearch.model_validate_json(capsys.readouterr().out)
    assert (found.verdict, found.layers, found.candidates) == ("found", ("relu3",), 1)
    assert engines_command("debug-precision", *clipped, "--among", "relu3", state=state) == 3
    assert "all 1 nodes at fp16 are not enough" in capsys.readouterr().out
    held = ("--layer-precision", "relu3:fp16", "--layer-precision", "relu9:fp16")
    assert engines_command("debug-precision", *clipped, *held, state=state) == 0
    assert "no layer has to be held" in capsys.readouterr().out


def test_a_search_that_runs_out_of_builds_gives_the_smallest_set(clipped, state, capsys):
    assert engines_command("debug-precision", *clipped, "--most-builds", "4", state=state) == 3
    out = capsys.readouterr().out
    assert "nodes at fp16 are enough (4 engines, which did not show the fewest)" in out
    assert {*BAD} <= {*json.loads(out.splitlines()[1].removeprefix("layer_precisions: "))}
    assert engines_command("debug-precision", *clipped, "--most-builds", "1", state=state) == 3
    assert "no set of layers was found with 1 engines" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["--precision", "fp32"], 2, "no layer of an fp32 engine can be held higher"),
        (["--precision", "fp16", "--hold", "fp16"], 2, "the engine is fp16 already"),
        (["--among", "conv*"], 1, "no node of"),
        (["--precision", "int8"], 1, "int8 without calibration has made-up scales"),
    ],
)
def test_a_search_without_sense_is_refused(
    arguments, status, words, state, tmp_path, monkeypatch, capsys
):
    (tmp_path / "shims").mkdir()
    monkeypatch.setenv("PYTHONPATH", write_shims(tmp_path / "shims", computes=True))
    model = write_chain(tmp_path / "m.onnx", "Relu", shape=("N", 4))
    assert engines_command("debug-precision", str(model), *arguments, state=state) == status
    assert words in capsys.readouterr().err


def test_a_search_on_inputs_that_tell_nothing_is_refused(clipped, state, tmp_path, capsys):
    numpy.save(tmp_path / "x.npy", numpy.zeros((8, 4), "f4"))
    assert engines_command("debug-precision", *clipped, state=state) == 1
    printed = capsys.readouterr()
    assert "outputs cannot be judged: the reference gives nearly the same answer" in printed.err
    assert "give --inputs DATA" in printed.err


@pytest.mark.parametrize(
    ("option", "text", "kind"),
    [
        ("--tolerance", "nan", "a ratio from 0 to 1"),
        ("--tolerance", "-1", "a ratio from 0 to 1"),
        ("--most-builds", "-1", "a number from 1 on"),
    ],
)
def test_limits_of_a_search_have_a_range(option, text, kind, state, capsys):
    with pytest.raises(SystemExit):
        engines_command("debug-precision", "m.onnx", option, text, state=state)
    assert f"argument {option}: '{text}' is not {kind}" in capsys.readouterr().err
