"""``advise --emit``: files for other programs, read back, and what is refused."""

import shlex
import subprocess
import sys
import warnings
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import onnx
import pytest

from tegrascope.parsers.inference.trtexec import options_in
from tegrascope.workbench.advise.emit import TARGETS
from tegrascope.workbench.cli import main

from .emit_readers import (
    GLIB,
    read_command,
    read_nvinfer,
    read_providers,
    read_triton,
    read_ultralytics,
    triton_package,
    triton_schema,
)
from .emit_tables import NETWORK_MODES, ORT_OPTIONS, TRITON_MESSAGES
from .made import lane, result, written
from .made import model as model_result

FAKE = Path(__file__).parents[1] / "fakes/trtexec_fake.py"
FLOAT, HALF, INT64 = onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.INT64
IMAGE = (1, 3, 64, 64)
CACHE = "TRT-8503-EntropyCalibration2\nimages: 3c010a14\n"
BOARD = {"module": "nvidia,p3701-0000", "versions": {"tensorrt": "8.6.2"}}
ULTRALYTICS = {
    "author": "Ultralytics",
    "description": "Ultralytics YOLOv8n model trained on /data/cones.yaml",
    "task": "detect",
}


def write_model(path, shape=IMAGE, kind=FLOAT, *, is_quantised=False, extra=(), metadata=None):
    """Write a convolution, a head without spatial dimensions, and outputs for other inputs."""
    make, info = onnx.helper.make_node, onnx.helper.make_tensor_value_info
    channels, batch = shape[1], shape[0]
    nodes, source = [], "images"
    weights = [onnx.helper.make_tensor("w", kind, [8, channels, 3, 3], [0.5] * 72 * channels)]
    if is_quantised:
        weights += [
            onnx.helper.make_tensor("scale", FLOAT, [], [0.02]),
            onnx.helper.make_tensor("zero", onnx.TensorProto.INT8, [], [0]),
        ]
        nodes.append(make("QuantizeLinear", ["images", "scale", "zero"], ["q"], name="q"))
        nodes.append(make("DequantizeLinear", ["q", "scale", "zero"], ["dq"], name="dq"))
        source = "dq"
    nodes += [
        make("Conv", [source, "w"], ["c"], name="/model.0/conv/Conv", pads=[1] * 4),
        make("Relu", ["c"], ["features"], name="/model.0/act/Relu"),
        make("GlobalAveragePool", ["features"], ["pooled"], name="/model.22/pool"),
        make("Flatten", ["pooled"], ["scores"], name="/model.22/Flatten"),
    ]
    inputs = [info("images", kind, list(shape))]
    outputs = [info("scores", kind, [batch, 8])]
    for name, length in extra:
        inputs.append(info(name, INT64, [length]))
        nodes.append(make("Neg", [name], [f"{name}_out"], name=f"neg_{name}"))
        outputs.append(info(f"{name}_out", INT64, [length]))
    graph = onnx.helper.make_graph(nodes, "made", inputs, outputs, weights)
    made = onnx.helper.make_model(
        graph, ir_version=9, opset_imports=[onnx.helper.make_opsetid("", 17)]
    )
    onnx.helper.set_model_props(made, metadata or {})
    path.write_bytes(made.SerializeToString())


@dataclass
class Case:
    """A model, how it was measured, and the targets that refuse it, each with a word of why."""

    device: str = "gpu"
    name: str = "net"
    model: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    calibrated: bool = False
    built: dict[str, Any] | None = None
    environment: dict[str, Any] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=lambda: {"images": IMAGE})
    precision: str = "fp16"

    @property
    def core(self):
        return {"dla0": 0, "dla1": 1}.get(self.device)


NOT_OWN = {"ultralytics": "no export of Ultralytics"}
RANGE = {"images": {"min": IMAGE, "opt": (2, *IMAGE[1:]), "max": (4, *IMAGE[1:])}}
CASES = {
    "detector in int8 on a DLA": Case(
        device="dla0",
        model={"metadata": ULTRALYTICS},
        settings={"precision": "int8"},
        calibrated=True,
        precision="int8",
    ),
    "as the back-end chooses": Case(refused=NOT_OWN),
    "batch of four on the second core": Case(
        device="dla1",
        model={"shape": ("N", 3, 224, 224)},
        settings={"precision": "fp16", "batch": 4},
        shapes={"images": (4, 3, 224, 224)},
        refused=NOT_OWN,
    ),
    "two inputs in fp32": Case(
        model={"extra": [("factors", 4)]},
        settings={"precision": "fp32"},
        shapes={"images": IMAGE, "factors": (4,)},
        precision="fp32",
        refused=NOT_OWN,
    ),
    "half types": Case(
        model={"kind": HALF, "shape": (1, 1, 32, 48)},
        shapes={"images": (1, 1, 32, 48)},
        refused=NOT_OWN,
    ),
    "layers held": Case(
        device="dla0",
        settings={
            "precision": "int8",
            "layer_precisions": {"/model.22/*": "fp16", "/model.0/act/Relu": "fp32"},
        },
        calibrated=True,
        precision="int8",
        refused={"ort": "no precision by layer", **NOT_OWN},
    ),
    "scales of its own": Case(
        model={"is_quantised": True},
        settings={"precision": "int8"},
        precision="int8",
        refused={"deepstream": "builds int8 as fp16", **NOT_OWN},
    ),
    "range of batches": Case(
        model={"shape": ("N", *IMAGE[1:])},
        settings={"batch": 2, "shapes": RANGE},
        shapes={"images": (2, *IMAGE[1:])},
        refused={"deepstream": "not a range", "ultralytics": "no export"},
    ),
    "detector with a long image": Case(
        model={"metadata": ULTRALYTICS, "shape": ("batch", 3, "height", "width")},
        settings={
            "precision": "fp16",
            "batch": 2,
            "shapes": {"images": (2, 3, 480, 640)},
            "optimization_level": 5,
        },
        shapes={"images": (2, 3, 480, 640)},
    ),
    "name in need of quotes": Case(
        device="dla0",
        name='mein "Netz" 50% ü\'s',
        model={"metadata": {**ULTRALYTICS, "description": "Ultralytics YOLO11 model "}},
        settings={"precision": "int8"},
        calibrated=True,
        precision="int8",
    ),
    "two streams": Case(
        settings={"precision": "fp16", "streams": 2, "fallback": "forbid"}, refused=NOT_OWN
    ),
    "strongly typed": Case(
        model={"kind": HALF},
        built={"is_strongly_typed": True, "layer_types": {"fp16": 3}},
        environment={"versions": {"tensorrt": "11.3.0"}},
        refused=NOT_OWN,
    ),
}


@dataclass
class Written:
    """What one run of the command wrote and said; ``folder`` has the model and the result."""

    case: Case
    folder: Path
    status: int
    err: str

    @property
    def output(self):
        return self.folder / "deploy"

    @property
    def model(self):
        return str(self.folder / f"{self.case.name}.onnx")

    @property
    def scales(self):
        return str(self.output / f"{self.case.name}.calibration")


@pytest.fixture
def emit(tmp_path, monkeypatch, capsys):
    """Bench a case on paper, advise on it, and emit for a target."""

    def run(case: Case, target: str, change=lambda found: found) -> Written:
        path = tmp_path / f"{case.name}.onnx"
        write_model(path, **case.model)
        monkeypatch.chdir(tmp_path)
        settings = dict(case.settings)
        if case.calibrated:
            Path("scales.cache").write_text(CACHE)
            settings["calibration"] = "scales.cache"
        settings.setdefault("precision", None)
        measured = model_result(
            "net", lane(case.device, 5.0, 0.1, 0.2, built=case.built)
        ).model_copy(
            update={"model": path.name, "model_sha256": sha256(path.read_bytes()).hexdigest()}
        )
        environment = {**BOARD, **case.environment}
        found = result(
            measured, settings=settings, environment=environment, at=1_796_000_000_000_000_000
        )
        where = written(tmp_path, "bench", change(found))
        status = main(
            ["advise", where, "--rates", f"{case.name}=10", "--emit", target, "-o", "deploy"]
        )
        return Written(case, tmp_path, status, capsys.readouterr().err)

    return run


def pytest_generate_tests(metafunc):
    if "wanted" in metafunc.fixturenames:
        target = metafunc.function.__name__.removeprefix("test_file_for_")
        cases = [name for name, case in CASES.items() if target not in case.refused]
        metafunc.parametrize("wanted", cases)


def comment_of(text):
    lines = [line for line in text.splitlines() if line.startswith("#")]
    return "\n".join(lines)


def check_origin(done, path):
    text = path.read_text()
    comment = comment_of(text)
    assert text.startswith(comment), "the comment comes first"
    for words in (
        f"result: {done.folder}/bench, 2026-11-30",
        "AGX Orin, MAXN, TensorRT",
        "latency 5.00 ms ± 2.0 %",
        "99th percentile 5.50 ms",
        "200/s ± 2.0 %",
        "net energy per inference 100 mJ ± 2.0 %",
    ):
        assert words in comment, words


@pytest.mark.skipif(GLIB is None, reason="apt install libglib2.0-0")
def test_file_for_deepstream(emit, wanted):
    done = emit(CASES[wanted], "deepstream")
    assert done.status == 0, done.err
    case = done.case
    path = done.output / f"config_infer_{case.name}.txt"
    check_origin(done, path)
    keys = read_nvinfer(path)
    batch = case.settings.get("batch", 1)
    assert keys["onnx-file"] == done.model
    assert (keys["batch-size"], NETWORK_MODES[keys["network-mode"]]) == (batch, case.precision)
    unit = "gpu0" if case.core is None else case.device
    assert keys["model-engine-file"] == f"{done.model}_b{batch}_{unit}_{case.precision}.engine"
    assert keys.get("enable-dla", 0) == (case.core is not None)
    assert keys.get("use-dla-core") == case.core
    assert keys.get("int8-calib-file") == (done.scales if case.calibrated else None)
    is_open = "shape" in case.model and not all(isinstance(x, int) for x in case.model["shape"])
    dims = [str(length) for length in case.shapes["images"][1:]]
    assert keys.get("infer-dims") == (dims if is_open else None)
    held = None
    if "layer_precisions" in case.settings:
        # A DLA has no fp32; a pattern is written out, because nvinfer compares whole names.
        held = ["/model.0/act/Relu:fp32:gpu"]
        held += [f"/model.22/{name}:fp16:dla" for name in ("pool", "Flatten")]
    assert keys.get("layer-device-precision") == held


def test_file_for_triton(emit, wanted):
    done = emit(CASES[wanted], "triton")
    assert done.status == 0, done.err
    case = done.case
    folder = done.output / case.name
    check_origin(done, folder / "config.pbtxt")
    schema = triton_schema()
    config = read_triton(folder / "config.pbtxt", schema)
    package = triton_package()
    if package is not None:
        whole = read_triton(folder / "config.pbtxt", package.ModelConfig)
        assert whole.SerializeToString() == config.SerializeToString()
    assert (config.name, config.platform) == (folder.name, "tensorrt_plan")
    assert config.max_batch_size == 0
    shapes = {name: list(shape) for name, shape in case.shapes.items()}
    if wanted == "range of batches":
        shapes["images"][0] = -1
    types = {"images": "TYPE_FP16" if case.model.get("kind") == HALF else "TYPE_FP32"}
    # TensorRT 8 narrows it.
    types["factors"] = "TYPE_INT32"
    kinds = schema.DESCRIPTOR.fields_by_name["input"].message_type.fields_by_name["data_type"]
    names = {value.number: value.name for value in kinds.enum_type.values}
    assert {one.name: list(one.dims) for one in config.input} == shapes
    assert {one.name: names[one.data_type] for one in config.input}.items() <= types.items()
    outputs = {"scores": [shapes["images"][0], 8]}
    if "factors" in shapes:
        outputs["factors_out"] = [4]
    assert {one.name: list(one.dims) for one in config.output} == outputs
    (group,) = config.instance_group
    assert (group.kind, group.count) == (1, case.settings.get("streams", 1))
    devices = [(one.kind, one.device_id) for one in group.secondary_devices]
    assert devices == ([] if case.core is None else [(0, case.core)])
    # The plan is built where Triton looks for it.
    make_folder, build = read_command(done.output / f"{case.name}.trtexec.sh")
    assert make_folder == ["mkdir", "-p", str(folder / "1")]
    assert f"--saveEngine={folder / '1/model.plan'}" in build


def test_triton_gets_long_integers_where_tensorrt_has_them(emit):
    done = emit(
        Case(model={"extra": [("factors", 4)]}, environment={"versions": {"tensorrt": "10.3.0"}}),
        "triton",
    )
    config = read_triton(done.output / "net/config.pbtxt", triton_schema())
    assert [one.data_type for one in config.input] == [11, 9]


def test_documented_fields_are_those_of_the_whole_schema():
    package = triton_package()
    if package is None:
        pytest.skip("pip install tritonclient")
    for name, fields in TRITON_MESSAGES.items():
        whole = getattr(package, name, None) or package.ModelInstanceGroup.SecondaryDevice
        for key, (number, _) in fields.items():
            assert whole.DESCRIPTOR.fields_by_name[key].number == number, (name, key)


def test_file_for_ultralytics(emit, wanted):
    done = emit(CASES[wanted], "ultralytics")
    assert done.status == 0, done.err
    case = done.case
    path = done.output / f"{case.name}.export.sh"
    check_origin(done, path)
    found = read_ultralytics(path)
    batch, *_, height, width = case.shapes["images"]
    assert found == {
        "model": done.model.replace(".onnx", ".pt"),
        "format": "engine",
        "device": "0" if case.core is None else f"dla:{case.core}",
        "batch": batch,
        "imgsz": (height, width),
        **({"half": True} if case.precision == "fp16" else {}),
        **({"int8": True} if case.precision == "int8" else {}),
    }
    assert ("calibrates anew" in path.read_text()) == case.calibrated
    assert not Path(done.scales).exists()


def test_file_for_ort(emit, wanted, capsys):
    onnxruntime = pytest.importorskip("onnxruntime")
    done = emit(CASES[wanted], "ort")
    assert done.status == 0, done.err
    case = done.case
    path = done.output / f"{case.name}_ort.py"
    check_origin(done, path)
    model, providers = read_providers(path)
    # Without TensorRT, its class checks the form of the list, and says so if it is wrong.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        onnxruntime.InferenceSession(model, providers=providers)
    assert "EP Error" not in capsys.readouterr().out
    (name, options), *others = providers
    assert (model, name) == (done.model, "TensorrtExecutionProvider")
    assert others == ["CUDAExecutionProvider"]
    for key, value in options.items():
        assert type(value) is ORT_OPTIONS[key], key
    assert options["trt_int8_enable"] == (case.precision == "int8")
    assert options["trt_fp16_enable"] == (case.precision != "fp32")
    assert options.get("trt_dla_enable", False) == (case.core is not None)
    assert options.get("trt_dla_core") == case.core
    assert options.get("trt_builder_optimization_level") == case.settings.get("optimization_level")
    if case.calibrated:
        table = Path(options["trt_engine_cache_path"], options["trt_int8_calibration_table_name"])
        assert str(table) == done.scales
        assert options["trt_int8_use_native_calibration_table"]
    profile = [options.get(f"trt_profile_{end}_shapes") for end in ("min", "opt", "max")]
    shape = "x".join(map(str, case.shapes["images"]))
    if wanted == "range of batches":
        assert profile == ["images:1x3x64x64", "images:2x3x64x64", "images:4x3x64x64"]
    elif all(isinstance(length, int) for length in case.model.get("shape", IMAGE)):
        assert profile == [None] * 3
    else:
        assert profile == [f"images:{shape}"] * 3
    # Only there does it matter that some releases ignore the core.
    assert ("onnxruntime/issues/26680" in path.read_text()) == (case.core == 1)


@pytest.mark.parametrize("release", ["8.6", "10.3"])
def test_file_for_trtexec(emit, wanted, release):
    done = emit(CASES[wanted], "trtexec")
    assert done.status == 0, done.err
    case = done.case
    path = done.output / f"{case.name}.trtexec.sh"
    check_origin(done, path)
    (_, (program, *words)) = read_command(path)
    assert program == "/usr/src/tensorrt/bin/trtexec"
    help_text = subprocess.run(
        [sys.executable, FAKE, release, "--help"], check=True, capture_output=True, text=True
    ).stdout
    given = dict(word.partition("=")[::2] for word in words)
    # The stand-in does not offer the level, which 8.6 has.
    assert given.keys() <= options_in(help_text) | {"--builderOptimizationLevel"}
    assert (given["--onnx"], given["--saveEngine"]) == (
        done.model,
        str(done.output / f"{case.name}.engine"),
    )
    core = None if case.core is None else str(case.core)
    assert given.get("--useDLACore") == core
    fallback = case.settings.get("fallback", "allow")
    assert ("--allowGPUFallback" in given) == (core is not None and fallback != "forbid")
    flags = {"fp32": set(), "fp16": {"--fp16"}, "int8": {"--int8", "--fp16"}}[case.precision]
    if case.built is not None:
        flags = set()
    assert given.keys() & {"--int8", "--fp16"} == flags
    assert given.get("--calib") == (done.scales if case.calibrated else None)
    shapes = [given.get(f"--{end}hapes") for end in ("s", "minS", "optS", "maxS")]
    shape = "x".join(map(str, case.shapes["images"]))
    if wanted == "range of batches":
        assert shapes == [None, "images:1x3x64x64", "images:2x3x64x64", "images:4x3x64x64"]
    elif all(isinstance(length, int) for length in case.model.get("shape", IMAGE)):
        assert shapes == [None] * 4
    else:
        assert shapes == [f"images:{shape}", None, None, None]
    held = None
    if "layer_precisions" in case.settings:
        assert given["--precisionConstraints"] == "obey"
        held = "/model.0/act/Relu:fp32,/model.22/pool:fp16,/model.22/Flatten:fp16"
    assert given.get("--layerPrecisions") == held


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", CASES)
def test_refusal_is_one_line_with_its_reason(emit, name, target):
    case = CASES[name]
    if target not in case.refused:
        return
    done = emit(case, target)
    assert done.status == 1
    assert case.refused[target] in done.err
    assert done.err.count("\n") == 1
    assert not done.output.exists()


def test_calibration_cache_has_the_header_of_the_measured_release(emit):
    done = emit(CASES["detector in int8 on a DLA"], "deepstream")
    assert Path(done.scales).read_text() == CACHE.replace("8503", "8602")


def with_settings(**changes):
    def change(found):
        return found.model_copy(update={"settings": found.settings.model_copy(update=changes)})

    return change


def with_lane(**changes):
    def change(found):
        (one,) = found.models
        lanes = tuple(each.model_copy(update=changes) for each in one.accelerators)
        return found.model_copy(
            update={"models": (one.model_copy(update={"accelerators": lanes}),)}
        )

    return change


def of_another_file(found):
    (one,) = found.models
    return found.model_copy(update={"models": (one.model_copy(update={"model_sha256": "0" * 64}),)})


INT8 = {"precision": "int8"}
QUANTISED = {"is_quantised": True}
ON_DLA = Case(device="dla1")


@pytest.mark.parametrize(
    ("case", "target", "change", "said"),
    [
        (
            ON_DLA,
            "trtexec",
            with_settings(precision="fp32"),
            "a DLA computes in fp16 and int8 only",
        ),
        (
            Case(device="dla1", environment={"module": "nvidia,p3767-0001"}),
            "triton",
            None,
            "has 1 DLA cores",
        ),
        (
            Case(
                device="dla0",
                model={"shape": ("N", *IMAGE[1:])},
                settings={"batch": 2, "shapes": RANGE},
            ),
            "trtexec",
            None,
            "a DLA takes one shape, not a range",
        ),
        (
            Case(settings=INT8, calibrated=True, built={"is_strongly_typed": True}),
            "ort",
            None,
            "no effect where TensorRT builds the model's own types",
        ),
        (Case(device="dla0", settings=INT8, model=QUANTISED), "trtexec", None, "Q/DQ nodes"),
        # Without a request, the back-end builds the types of the Q/DQ nodes.
        (Case(device="dla0", model=QUANTISED), "trtexec", None, "Q/DQ nodes"),
        (Case(settings=INT8), "trtexec", None, "scales are made up"),
        (
            Case(settings=INT8, calibrated=True),
            "deepstream",
            with_settings(calibration="."),
            "takes a calibration cache, not inputs",
        ),
        (
            Case(settings=INT8, calibrated=True),
            "deepstream",
            with_settings(calibration="gone.cache"),
            "gone.cache",
        ),
        (
            Case(settings={"layer_precisions": {"a:b": "fp32"}}),
            "deepstream",
            None,
            "no layer with a colon",
        ),
        (
            Case(settings={"layer_precisions": {"a,b": "fp32"}}),
            "triton",
            None,
            "no layer with a comma",
        ),
        (
            Case(settings={"layer_precisions": {"no/*": "fp32"}}),
            "trtexec",
            None,
            "no layer is named so",
        ),
        (Case(settings={"plugins": ("lib.so",)}), "trtexec", None, "it needs plug-ins"),
        (ON_DLA, "trtexec", with_lane(backend="cudla"), "cudla runs no engine of TensorRT"),
        (Case(), "trtexec", of_another_file, "is not the file that was measured"),
    ],
)
def test_wrong_combination_is_refused(emit, case, target, change, said):
    done = emit(case, target, change or (lambda found: found))
    assert done.status == 1
    assert said in done.err
    assert done.err.count("\n") == 1
    assert not done.output.exists()


def test_dla_of_a_strongly_typed_tensorrt_takes_the_nodes_themselves(emit):
    case = Case(device="dla0", settings=INT8, model=QUANTISED, built={"is_strongly_typed": True})
    done = emit(case, "trtexec")
    assert done.status == 0, done.err
    (_, (_, *words)) = read_command(done.output / "net.trtexec.sh")
    assert words[2:] == ["--useDLACore=0", "--allowGPUFallback"]


def test_model_of_which_the_file_is_gone_is_refused(emit, tmp_path, capsys):
    emit(Case(), "trtexec")
    (tmp_path / "net.onnx").unlink()
    arguments = ["advise", str(tmp_path / "bench"), "--rates", "net=10"]
    assert main([*arguments, "--emit", "ort", "-o", "again"]) == 1
    assert "there is no model file net.onnx" in capsys.readouterr().err


def test_a_target_needs_a_directory(tmp_path, capsys):
    where = written(tmp_path, "bench", result(model_result("net", lane("gpu", 5.0, 0.1, 0.2))))
    assert main(["advise", where, "--rates", "net=10", "--emit", "ort"]) == 2
    assert "--emit needs a directory" in capsys.readouterr().err


def test_each_file_is_named(emit):
    done = emit(CASES["detector in int8 on a DLA"], "triton")
    files = sorted(path for path in done.output.rglob("*") if path.is_file())
    names = ["config.pbtxt", "net.calibration", "net.trtexec.sh"]
    assert [path.name for path in files] == [*names, "promise.json"]
    for path in files[:-1]:
        assert f"wrote {path}\n" in done.err


def test_directory_may_have_any_name(emit, tmp_path):
    emit(CASES["detector in int8 on a DLA"], "trtexec")
    name = "an;\\s \n'\x1b$(x)"
    where = tmp_path / name
    scales = str(where / "net.calibration")
    for target in TARGETS:
        assert main(["advise", "bench", "--rates", "net=10", "--emit", target, "-o", name]) == 0
    assert read_nvinfer(where / "config_infer_net.txt")["int8-calib-file"] == scales
    assert read_providers(where / "net_ort.py")[1][0][1]["trt_engine_cache_path"] == str(where)
    # A quoted argument goes on over the end of its line.
    text = (where / "net.trtexec.sh").read_text()
    assert f"--calib={scales}" in shlex.split(text, comments=True)
    # The file may be read elsewhere than the result was.
    assert f"# result: {tmp_path}/bench, " in text


def test_nothing_is_written_if_no_placement_is_feasible(emit):
    done = emit(Case(), "ort", with_lane(throughput_per_second=None))
    assert done.status == 1
    assert not done.output.exists()


def test_file_tells_that_the_figures_are_without_copies(emit):
    def mapped(found):
        settings = found.settings.model_copy(update={"memory": "mapped"})
        return found.model_copy(update={"settings": settings})

    words = "# measured with mapped memory for inputs and outputs: a program that copies them"
    for change, is_told in ((mapped, True), (lambda found: found, False)):
        done = emit(CASES["as the back-end chooses"], "trtexec", change)
        assert done.status == 0
        [path] = done.output.glob("*.trtexec.sh")
        assert (words in path.read_text()) is is_told


def test_core_that_was_not_measured_is_told_in_the_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    models = []
    for name in ("one", "two"):
        write_model(tmp_path / f"{name}.onnx")
        lanes = [lane("dla0", 12.0, 0.06, 0.02)]
        if name == "one":
            lanes.append(lane("dla1", 12.0, 0.061, 0.02))
        found = model_result(name, *lanes)
        models.append(found.model_copy(update={"model": f"{name}.onnx", "model_sha256": None}))
    where = written(tmp_path, "bench", result(*models, environment=BOARD, is_simulated=True))
    arguments = ["--rates", "one=60,two=40", "--deadlines", "one=20ms,two=20ms"]
    assert main(["advise", where, *arguments, "--emit", "trtexec", "-o", "deploy"]) == 0
    text = (tmp_path / "deploy/two.trtexec.sh").read_text()
    assert "--useDLACore=1" in text
    assert "# not measured on dla1: the figures are of dla0\n" in text
    assert "# SIMULATED: the figures are not of a board\n" in text
