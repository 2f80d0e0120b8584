"""The real parser, builder and refusals of TensorRT's relative for PCs, which needs no GPU.

``pip install tensorrt-rtx-cu13`` brings it. It is no back-end of ours: it is here because its
builder answers as that of TensorRT 11 does, on any x86-64 machine.
"""

import json
import shutil
import subprocess
from pathlib import Path

import numpy
import onnx
import pytest

from tegrascope.collectors.backends.tensorrt_build import (
    Builder,
    has,
    load_plugins,
    logger_of,
    reason_in,
)
from tegrascope.collectors.backends.tensorrt_probe import probe
from tegrascope.collectors.models.files import find_model
from tegrascope.collectors.models.quantised import translate
from tegrascope.parsers.errors import BackendUnavailable, UserError
from tegrascope.parsers.inference.events import Order
from tests.fakes.models import HALF, write_chain

FAKES = Path(__file__).parents[1] / "fakes"

trt = pytest.importorskip("tensorrt_rtx", reason="pip install tensorrt-rtx-cu13")


def builder(model, device="gpu", **changes):
    names = {"run_id": "r", "backend": "tensorrt", "model_directory": "", "device": device}
    return Builder(trt, model, Order.model_validate({**names, **changes}))


@pytest.fixture
def network(tmp_path):
    """A network and its builder, as our own code makes them."""
    model = write_chain(tmp_path / "r.onnx", "Relu", "Relu", shape=(1, 8, 4, 4))
    made = builder(model).prepare()
    yield made.builder, made.network, logger_of(trt)[1]
    del made


def test_its_surface_is_that_of_a_strongly_typed_release():
    assert all(has(trt, f"BuilderFlag.{name}") for name in ("GPU_FALLBACK", "DIRECT_IO"))
    assert not has(trt, "BuilderFlag.FP16")
    assert not has(trt, "NetworkDefinitionCreationFlag.EXPLICIT_BATCH")


@pytest.mark.parametrize("batch", [1, 2])
def test_a_built_in_model_is_built(tmp_path, batch):
    """The real parser takes it, and the real builder makes an engine of it, at any batch."""
    model = find_model("builtin:mobilenet", tmp_path)
    made = builder(model, batch=batch, optimization_level=0).build()
    assert len(made.plan) > 1_000_000
    assert made.built.is_strongly_typed
    assert made.built.int8_scales is None


@pytest.mark.filterwarnings("ignore:.*Timing cache:DeprecationWarning")
def test_a_timing_cache_is_written_and_read(tmp_path):
    """A second build reads what the first one wrote, and is built whatever it holds."""
    model = write_chain(tmp_path / "r.onnx", "Relu", shape=(1, 8))
    cache = tmp_path / "timing.cache"
    for content in (None, b"no timing cache"):
        if content is not None:
            cache.write_bytes(content)
        assert builder(model).build(cache).plan
        assert len(cache.read_bytes()) > len(content or b"")


def test_types_are_read_from_the_real_network(tmp_path):
    """Half precision and Q/DQ nodes are seen, and a request against them is refused."""
    half = write_chain(tmp_path / "h.onnx", "Relu", shape=(1, 8), kind=HALF)
    assert builder(half, precision="fp16").build().plan
    with pytest.raises(UserError, match="typed in half precision"):
        builder(half, precision="int8").build()
    quantised = write_quantised(tmp_path / "q.onnx")
    assert builder(quantised).build().built.int8_scales == "explicit"
    with pytest.raises(UserError, match="quantised by Q/DQ nodes"):
        builder(quantised, precision="fp16").build()
    single = write_chain(tmp_path / "f.onnx", "Relu", shape=(1, 8))
    with pytest.raises(UserError, match="typed fp32"):
        builder(single, precision="fp16").build()


def test_what_its_parser_refuses_is_told(tmp_path):
    """In its own words, and in one line."""
    with pytest.raises(UserError, match=r"cannot read x\.onnx \(node 0 \[") as caught:
        builder(write_chain(tmp_path / "x.onnx", "Multinomial")).build()
    assert "Multinomial" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("fallback", ["allow", "forbid", "require-pure"])
def test_a_dla_is_refused(tmp_path, fallback):
    """The real builder counts no core, and that is enough."""
    model = write_chain(tmp_path / "h.onnx", "Relu", kind=HALF)
    with pytest.raises(BackendUnavailable, match="sees no DLA"):
        builder(model, "dla0", fallback=fallback).build()


def test_left_to_itself_it_builds_for_the_gpu(network):
    library, made, _ = network
    assert library.num_DLA_cores == 0
    config = library.create_builder_config()
    config.default_device_type = trt.DeviceType.DLA
    config.DLA_core = 0
    assert config.default_device_type == trt.DeviceType.DLA
    assert config.DLA_core == -1
    assert not config.can_run_on_DLA(made.get_layer(0))
    assert library.build_serialized_network(made, config) is not None


def test_a_refused_build_is_none_and_a_line(network):
    """No exception: the reason is in the log that we collect."""
    library, made, lines = network
    config = library.create_builder_config()
    config.default_device_type = trt.DeviceType.DLA
    config.engine_capability = trt.EngineCapability.DLA_STANDALONE
    assert library.build_serialized_network(made, config) is None
    assert "without DLA backend" in reason_in(lines)


def test_a_machine_without_a_driver_is_told(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    found = probe("tensorrt_rtx")
    assert found.problem is not None
    assert json.loads(found.model_dump_json())["module"] == "tensorrt_rtx"


def write_quantised(path):
    """Write a model that quantises its input and makes it real again."""
    scale = onnx.numpy_helper.from_array(numpy.array(0.1, dtype="f4"), "scale")
    zero = onnx.numpy_helper.from_array(numpy.array(0, dtype="i1"), "zero")
    graph = onnx.helper.make_graph(
        [
            onnx.helper.make_node("QuantizeLinear", ["given", "scale", "zero"], ["whole"]),
            onnx.helper.make_node("DequantizeLinear", ["whole", "scale", "zero"], ["made"]),
        ],
        "quantised",
        [onnx.helper.make_tensor_value_info("given", onnx.TensorProto.FLOAT, [1, 8])],
        [onnx.helper.make_tensor_value_info("made", onnx.TensorProto.FLOAT, [1, 8])],
        [scale, zero],
    )
    opset = [onnx.helper.make_opsetid("", 13)]
    model = onnx.helper.make_model(graph, ir_version=8, opset_imports=opset)
    path.write_bytes(model.SerializeToString())
    return path


def test_a_quantised_model_without_its_nodes_is_a_model_for_the_real_parser(tmp_path):
    plain = tmp_path / "plain.onnx"
    plain.write_bytes(translate(write_quantised(tmp_path / "q.onnx")).model)
    built = builder(plain).build().built
    assert built.int8_scales is None


def test_a_calibration_is_refused_where_there_is_none(tmp_path):
    model = write_chain(tmp_path / "r.onnx", "Relu", shape=(1, 8))
    cache = tmp_path / "c.cache"
    cache.write_text("TRT-8601-EntropyCalibration2\ngiven: 3c010a14\n")
    with pytest.raises(UserError, match=r"TensorRT \S+ has no calibration.*Q/DQ nodes"):
        builder(model, precision="int8", calibration=str(cache)).build()


@pytest.mark.parametrize("name", ["own:Detector", "EfficientNMS_TRT"])
def test_operator_without_a_plug_in_is_named(tmp_path, name):
    """It has the call that registers plug-ins, and none of its own."""
    load_plugins(trt, ())
    model = write_chain(tmp_path / "p.onnx", "Relu", name, shape=(1, 8, 4, 4))
    with pytest.raises(
        UserError, match=rf"p\.onnx needs the operator {name.split(':')[-1]}, which"
    ):
        builder(model).build()


def test_engine_for_a_range_of_shapes_is_built(tmp_path):
    model = write_chain(tmp_path / "f.onnx", "Relu", "Relu", shape=("N", 3, "H", "W"))
    with pytest.raises(UserError, match="leaves dimension 2 open"):
        builder(model).build()
    wide = {"min": [1, 3, 4, 4], "opt": [1, 3, 8, 8], "max": [2, 3, 16, 16]}
    assert builder(model, shapes={"given": wide}).build().plan


@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ to compile a plug-in library")
def test_compiled_library_is_loaded_and_its_plug_in_found(tmp_path):
    model = write_chain(tmp_path / "p.onnx", "Relu", "own:OwnDetector", shape=(1, 8, 4, 4))
    with pytest.raises(UserError, match="needs the operator OwnDetector"):
        builder(model).build()
    library, source = str(tmp_path / "own.so"), str(FAKES / "plugin.cc")
    subprocess.run(["g++", "-shared", "-fPIC", "-o", library, source], check=True, timeout=120)
    load_plugins(trt, [library])
    with pytest.raises(UserError, match="Could not create the plugin"):
        builder(model).build()
