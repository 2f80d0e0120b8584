"""Models with Q/DQ nodes as plain models with scales, for a DLA before TensorRT 11."""

import hashlib
import json
import sys
from pathlib import Path

import numpy
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_static

from tegrascope.collectors.backends.calibration import read_cache
from tegrascope.collectors.backends.tensorrt import TensorRt
from tegrascope.collectors.backends.tensorrt_probe import look
from tegrascope.collectors.backends.trtexec import Trtexec
from tegrascope.collectors.models.quantised import translate
from tegrascope.parsers.errors import UserError
from tegrascope.parsers.inference.calibration import CalibrationCache, parse_calibration
from tegrascope.parsers.inference.events import Order
from tests.fakes.fake_cuda import install_cuda
from tests.fakes.fake_device import FakeDevice
from tests.fakes.fake_tensorrt import install_tensorrt, make_tensorrt
from tests.fakes.models import labelled_data, simulated, write_classifier


class Batches(CalibrationDataReader):
    """What ONNX Runtime's tool reads its inputs from."""

    def __init__(self):
        self.rest = iter(numpy.split(labelled_data(256, seed=9)[0], 8))

    def get_next(self):
        batch = next(self.rest, None)
        return None if batch is None else {"given": batch}


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return write_classifier(tmp_path_factory.mktemp("quantised") / "c.onnx")


@pytest.fixture(scope="module")
def quantise(plain):
    """Return what quantises the classifier with ONNX Runtime's own tool."""

    def make(name, *, symmetric=True, per_channel=True):
        path = plain.parent / name
        quantize_static(
            plain,
            path,
            Batches(),
            per_channel=per_channel,
            activation_type=QuantType.QInt8 if symmetric else QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            extra_options={"ActivationSymmetric": symmetric, "WeightSymmetric": True},
        )
        return path

    return make


def scores(model):
    session = onnxruntime.InferenceSession(model if isinstance(model, bytes) else str(model))
    inputs, labels = labelled_data(2000, seed=21)
    found = session.run(None, {"given": inputs})[0]
    return found, float((found.argmax(axis=1) == labels).mean())


def operators(model):
    return [node.op_type for node in onnx.load_from_string(model).graph.node]


def test_scales_are_those_of_the_nodes_and_survive_a_cache_file(quantise, tmp_path):
    path = quantise("symmetric.onnx")
    graph = onnx.load(path).graph
    arrays = {one.name: numpy_helper.to_array(one) for one in graph.initializer}
    wanted = {
        node.input[0].removesuffix("_QuantizeLinear_Input"): float(arrays[node.input[1]])
        for node in graph.node
        if node.op_type == "QuantizeLinear"
    }
    found = translate(path)
    assert {name: found.scales[name] for name in wanted} == wanted
    assert operators(found.model) == ["MatMul", "Add", "Relu", "MatMul"]
    file = tmp_path / "c.cache"
    file.write_text(CalibrationCache(release=8601, scales=found.scales).render())
    assert read_cache(file).scales == found.scales
    assert parse_calibration(file.read_text()).render() == file.read_text()


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("per_channel", [True, False])
def test_plain_model_with_its_scales_answers_as_the_quantised_one(
    quantise, plain, symmetric, per_channel
):
    path = quantise(f"{symmetric}{per_channel}.onnx", symmetric=symmetric, per_channel=per_channel)
    found = translate(path)
    onnx.checker.check_model(onnx.load_from_string(found.model), full_check=True)
    near, _ = scores(found.model)
    quantised, _ = scores(path)
    _, whole = scores(plain)
    assert numpy.linalg.norm(near - quantised) < 0.05 * numpy.linalg.norm(quantised)
    assert scores(simulated(found.model, found.scales))[1] >= whole - 0.01
    notes = " ".join(found.notes[1:])
    assert ("another range below 0 than above" in notes) == (not symmetric)
    assert ("one scale for all channels" in notes) == (not per_channel)


def made(nodes, weights, *, outputs=("y",), kind=onnx.TensorProto.FLOAT):
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "made",
        [info("x", kind, [1, 4])],
        [info(name, onnx.TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(numpy.asarray(value), name) for name, value in weights.items()],
    )
    opset = [helper.make_opsetid("", 21)]
    return helper.make_model(graph, ir_version=10, opset_imports=opset)


def node(operation, given, result, **attributes):
    return helper.make_node(operation, given.split(), [result], name=f"{result}_", **attributes)


def translated(tmp_path, nodes, weights, **changes):
    path = tmp_path / "m.onnx"
    path.write_bytes(made(nodes, weights, **changes).SerializeToString())
    return translate(path)


STEP = {"s": numpy.float32(0.5), "z": numpy.int8(0)}


def test_layers_that_move_or_cut_values_share_a_scale(tmp_path):
    found = translated(
        tmp_path,
        [
            node("QuantizeLinear", "x s z", "xq"),
            node("DequantizeLinear", "xq s z", "xd"),
            node("Flatten", "xd", "flat"),
            node("MatMul", "flat w", "summed"),
            node("Relu", "summed", "cut"),
            node("QuantizeLinear", "cut s2 z", "cq"),
            node("DequantizeLinear", "cq s2 z", "y"),
        ],
        {**STEP, "s2": numpy.float32(0.25), "w": numpy.eye(4, dtype="f4")},
    )
    assert found.scales == {"x": 0.5, "flat": 0.5, "summed": 0.25, "y": 0.25}
    session = onnxruntime.InferenceSession(found.model)
    given = numpy.array([[1, -2, 3, -4]], "f4")
    assert (session.run(["y"], {"x": given})[0] == numpy.maximum(given, 0)).all()


def test_tensor_that_others_read_too_does_not_take_the_scale_behind_a_relu(tmp_path):
    found = translated(
        tmp_path,
        [
            node("MatMul", "x w", "summed"),
            node("Relu", "summed", "cut"),
            node("QuantizeLinear", "cut s z", "cq"),
            node("DequantizeLinear", "cq s z", "cd"),
            node("Add", "cd summed", "y"),
        ],
        {**STEP, "w": numpy.eye(4, dtype="f4")},
    )
    assert found.scales == {"cut": 0.5}


def test_relu_is_added_only_where_values_may_be_below_0(tmp_path):
    byte = {"s": numpy.float32(0.5), "z": numpy.uint8(0), "s2": numpy.float32(0.75)}
    found = translated(
        tmp_path,
        [
            node("Relu", "x", "cut"),
            node("Identity", "cut", "same"),
            node("QuantizeLinear", "same s z", "q1"),
            node("DequantizeLinear", "q1 s z", "d1"),
            node("QuantizeLinear", "same s2 z", "q2"),
            node("DequantizeLinear", "q2 s2 z", "d2"),
            node("Add", "d1 d2", "y"),
        ],
        byte,
    )
    assert operators(found.model) == ["Relu", "Identity", "Add"]
    assert found.scales["same"] == found.scales["cut"] == numpy.float32(0.75 * 255 / 127)
    assert "1 tensors have two scales; the larger is taken: same" in found.notes


def test_weights_in_int8_become_real_and_odd_scales_are_listed(tmp_path):
    whole = numpy.array([[127, 12], [-127, 3], [1, 1], [0, 2]], "i1")
    scale = numpy.array([0.1, 0.2], "f4")
    found = translated(
        tmp_path,
        [
            node("QuantizeLinear", "x s", "xq"),
            node("DequantizeLinear", "xq s", "xd"),
            node("DequantizeLinear", "wq sw", "w", axis=1),
            node("MatMul", "xd w", "y"),
        ],
        {"s": numpy.float32(0.5), "wq": whole, "sw": scale},
    )
    (weight,) = onnx.load_from_string(found.model).graph.initializer
    assert (numpy_helper.to_array(weight) == whole * scale).all()
    assert found.scales == dict.fromkeys(("x", "x_cut_at_0"), numpy.float32(0.5 * 255 / 127))
    assert found.notes[1:] == (
        "1 tensors have another range below 0 than above; it is made the same: x",
        "1 weights have scales per channel that do not follow from their largest value, by which"
        " TensorRT quantises them: w",
    )


@pytest.mark.parametrize(
    ("nodes", "weights", "changes", "problem"),
    [
        ([node("QuantizeLinear", "x s z", "y")], STEP, {}, "an output of m.onnx is 'y' in int8"),
        (
            [node("DequantizeLinear", "x s z", "y")],
            STEP,
            {"kind": onnx.TensorProto.INT8},
            "an input of m.onnx is 'x' in int8",
        ),
        (
            [node("QuantizeLinear", "x s z", "q"), node("Identity", "q", "y")],
            STEP,
            {},
            "y_ of m.onnx is 'q' in int8",
        ),
        (
            [node("QuantizeLinear", "x s z", "q"), node("DequantizeLinear", "q s z", "y")],
            {"s": numpy.float32(0.5), "z": numpy.int16(0)},
            {},
            "quantises 'x' to int16",
        ),
        (
            [node("QuantizeLinear", "x s z", "q"), node("DequantizeLinear", "q s z", "y")],
            {"s": numpy.full(4, 0.5, "f4"), "z": numpy.zeros(4, "i1")},
            {},
            "has a scale per channel for 'x'",
        ),
        (
            [node("ReduceMax", "x", "s"), node("QuantizeLinear", "x s z", "q")],
            {"z": numpy.int8(0)},
            {},
            "computes the scale 's': make it a constant",
        ),
    ],
)
def test_quantisation_that_no_cache_expresses_is_refused(
    tmp_path, nodes, weights, changes, problem
):
    with pytest.raises(UserError, match=problem):
        translated(tmp_path, nodes, weights, **changes)


def test_trtexec_gets_a_plain_model_and_a_cache_for_a_dla(quantise, tmp_path):
    path = quantise("trtexec.onnx")
    fake = Path(__file__).parents[1] / "fakes" / "trtexec_fake.py"
    found = []
    for device in ("dla0", "gpu"):
        backend = Trtexec()
        order = Order(
            run_id="r",
            backend="trtexec",
            device=device,
            model=str(path),
            model_directory=str(tmp_path),
            precision="int8",
            program=(sys.executable, str(fake), "8.6"),
            count=1,
        )
        backend.load(path, order)
        backend.build()
        plan = (tmp_path / "engines" / f"{backend.built.engine_key}.plan").read_text()
        found.append((backend.built.int8_scales, "int8" in backend.built.layer_types, plan))
    plain = hashlib.sha256(translate(path).model).hexdigest()
    whole = hashlib.sha256(path.read_bytes()).hexdigest()
    assert found == [
        ("explicit", True, f"plan of {plain}"),
        ("explicit", False, f"plan of {whole}"),
    ]


@pytest.mark.parametrize(
    ("version", "device", "quantised"),
    [("8.6.1", "dla0", 0), ("10.3.0", "dla0", 0), ("8.6.1", "gpu", 4), ("11.4.1", "dla0", 4)],
)
def test_dla_gets_a_plain_model_before_11_and_others_keep_the_nodes(
    monkeypatch, quantise, tmp_path, version, device, quantised
):
    path = quantise("dla.onnx")
    fake = FakeDevice(dla_cores=1)
    install_tensorrt(monkeypatch, make_tensorrt(version, fake))
    install_cuda(monkeypatch, fake)
    backend = TensorRt(machine=tmp_path, ask=look)
    backend.load(
        path,
        Order(
            run_id="r",
            backend="tensorrt",
            device=device,
            model=str(path),
            model_directory=str(tmp_path),
            engine_directory=str(tmp_path / "engines"),
            fallback="forbid",
            count=1,
        ),
    )
    backend.build()
    built = backend.built
    plan = json.loads((tmp_path / "engines" / f"{built.engine_key}.plan").read_bytes())
    backend.close()
    assert built.int8_scales == "explicit"
    found = [name for name, _, _ in plan["layers"] if "QuantizeLinear" in name]
    assert (len(found) >= quantised) if device == "gpu" else not found
    if quantised:
        assert plan["scales"] is None
    else:
        assert plan["scales"] == translate(path).scales
        assert any("Q/DQ nodes were removed" in note for note in built.notes)
