"""The back-ends: how one is found, and what ONNX Runtime accepts and refuses."""

import sys
import time
from pathlib import Path

import pytest

from tegrascope.collectors.backends.base import Inferring, SelfTimed, input_shapes, make_input
from tegrascope.collectors.backends.onnxruntime import OnnxRuntime
from tegrascope.collectors.catalog import BACKENDS, find_backend
from tegrascope.collectors.models.files import find_model
from tegrascope.parsers.errors import PIP_INSTALL, BackendUnavailable, UserError
from tegrascope.parsers.inference.events import Order
from tests.fakes.fake_cuda import install_cuda
from tests.fakes.fake_device import FakeDevice
from tests.fakes.fake_tensorrt import install_tensorrt, make_tensorrt

onnx = pytest.importorskip("onnx")
numpy = pytest.importorskip("numpy")
pytest.importorskip("onnxruntime")


def make_order(model: Path, **changes: object) -> Order:
    asked = {
        "run_id": "r",
        "backend": "onnxruntime",
        "device": "cpu",
        "model": str(model),
        "model_directory": str(model.parent),
        "count": 1,
    }
    return Order.model_validate({**asked, **changes})


def write_model(path: Path, shape: list[int | str | None], kind: int | None = None) -> Path:
    """Write a model that copies its input."""
    kind = onnx.TensorProto.FLOAT if kind is None else kind
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Identity", ["given"], ["made"])],
        "copy",
        [onnx.helper.make_tensor_value_info("given", kind, shape)],
        [onnx.helper.make_tensor_value_info("made", kind, shape)],
    )
    opset = [onnx.helper.make_opsetid("", 13)]
    path.write_bytes(
        onnx.helper.make_model(graph, ir_version=8, opset_imports=opset).SerializeToString()
    )
    return path


@pytest.fixture
def engine():
    engine = OnnxRuntime()
    yield engine
    engine.close()


@pytest.mark.parametrize("name", sorted(BACKENDS))
def test_every_engine_of_the_catalog_can_be_made(name, monkeypatch):
    device = FakeDevice()
    install_tensorrt(monkeypatch, make_tensorrt("8.6.1", device))
    install_cuda(monkeypatch, device)
    monkeypatch.setattr("tegrascope.collectors.backends.cudla.load_cudla", object)
    engine = find_backend(name)()
    assert engine.builds in (False, True)
    assert isinstance(engine, Inferring) != isinstance(engine, SelfTimed)


def test_an_unknown_engine_is_named():
    """A misspelt back-end is shown as it was written."""
    with pytest.raises(BackendUnavailable, match=r"'onnxrntime'.*use .*onnxruntime"):
        find_backend("onnxrntime")


def test_a_missing_library_says_how_to_install_it(monkeypatch):
    """Without onnxruntime the engine is unavailable, and the reason is a command."""
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(BackendUnavailable) as caught:
        find_backend("onnxruntime")()
    assert caught.value.message == "onnxruntime is not installed"
    assert caught.value.remedy == f"{PIP_INSTALL} onnxruntime"


@pytest.mark.parametrize("device", ["gpu", "dla0", "npu"])
def test_another_device_is_unavailable(engine, tmp_path, device):
    """It is refused before anything is read."""
    with pytest.raises(BackendUnavailable, match=f"no device '{device}': use one of cpu"):
        engine.load(tmp_path / "none.onnx", make_order(tmp_path / "none.onnx", device=device))


@pytest.mark.parametrize("batch", [1, 3])
def test_the_first_dimension_is_the_batch(engine, tmp_path, batch):
    """A dynamic first dimension takes the batch of the order."""
    model = write_model(tmp_path / "m.onnx", ["N", 2])
    engine.load(model, make_order(model, batch=batch, threads=1))
    engine.infer()
    (made,) = engine.outputs().values()
    assert made.shape == (batch, 2)


@pytest.mark.parametrize("kind", ["FLOAT", "FLOAT16", "DOUBLE", "UINT8", "INT32", "INT64", "BOOL"])
def test_inputs_of_every_numeric_type_are_made(engine, tmp_path, kind):
    """Inputs follow the types that the model declares."""
    model = write_model(tmp_path / "m.onnx", [1, 4], getattr(onnx.TensorProto, kind))
    engine.load(model, make_order(model))
    engine.infer()


def test_a_type_that_cannot_be_made_is_named(engine, tmp_path):
    """A string input is refused by its name."""
    model = write_model(tmp_path / "m.onnx", [1], onnx.TensorProto.STRING)
    with pytest.raises(UserError, match=r"'given' is a tensor\(string\)"):
        engine.load(model, make_order(model))


def test_another_fixed_batch_is_refused(engine, tmp_path):
    """A model exported for one batch does not quietly run at another."""
    model = write_model(tmp_path / "m.onnx", [1, 2])
    with pytest.raises(UserError, match=r"batch of 1 for input 'given', not 4: set batch: 1"):
        engine.load(model, make_order(model, batch=4))


def test_another_dynamic_dimension_is_refused(engine, tmp_path):
    model = write_model(tmp_path / "m.onnx", ["N", 3, "height"])
    with pytest.raises(UserError, match=r"'given' leaves dimension 2 open \(height\)"):
        engine.load(model, make_order(model))


def test_open_dimensions_are_measured_at_the_given_shape(engine, tmp_path):
    model = write_model(tmp_path / "m.onnx", ["N", 3, "height"])
    wide = {"shape": [2, 3, 7], "min": [1, 3, 4], "opt": [2, 3, 8], "max": [4, 3, 8]}
    for shape in ([2, 3, 7], wide):
        engine.load(model, make_order(model, batch=2, shapes={"given": shape}))
        engine.infer()
        (made,) = engine.outputs().values()
        assert made.shape == engine.input_shapes["given"] == (2, 3, 7)


@pytest.mark.parametrize(
    ("shapes", "says"),
    [
        ({"gven": [1, 3, 7]}, "no input 'gven': its inputs are given"),
        ({"given": [1, 4, 7]}, r"'given' has the shape \?x3x\?, not 1x4x7"),
        ({"given": [1, 3]}, r"'given' has the shape \?x3x\?, not 1x3"),
        ({"given": [2, 3, 7]}, "no shape begins with the batch of 1: set batch: 2"),
        (
            {"given": {"min": [1, 2, 7], "opt": [1, 3, 7], "max": [1, 3, 7]}},
            r"'given' has the shape \?x3x\?, not 1x2x7",
        ),
    ],
)
def test_shape_that_the_model_does_not_take_is_refused(engine, tmp_path, shapes, says):
    model = write_model(tmp_path / "m.onnx", ["N", 3, "height"])
    with pytest.raises(UserError, match=says):
        engine.load(model, make_order(model, shapes=shapes))


def test_a_scalar_has_no_batch():
    """An input without dimensions stays as it is."""
    assert input_shapes({"scale": []}, make_order(Path("m.onnx"), batch=8)) == {"scale": ()}


@pytest.mark.parametrize("batch", [1, 8])
def test_a_fixed_vector_beside_an_image_has_no_batch(batch):
    """It holds lengths or factors; alone it may be a batch of numbers."""
    order = make_order(Path("m.onnx"), batch=batch)
    shapes = input_shapes({"image": [None, 3, 8, 8], "to": [2]}, order)
    assert shapes == {"image": (batch, 3, 8, 8), "to": (2,)}
    with pytest.raises(UserError, match="the model fixes a batch of 2 for input 'numbers'"):
        input_shapes({"numbers": [2]}, order)
    assert input_shapes({"numbers": ["n"]}, order) == {"numbers": (batch,)}


def test_inputs_are_the_same_every_time():
    """Two processes measure the same work."""
    first, second = (make_input("x", "tensor(float)", (2, 3)) for _ in range(2))
    assert (first == second).all()
    assert set(make_input("ids", "tensor(int64)", (50,)).tolist()) == {0, 1}


def test_an_idle_engine_takes_no_time(engine, tmp_path):
    """Between inferences its threads sleep: an idle baseline is idle."""
    model = find_model("builtin:mobilenet", tmp_path)
    engine.load(model, make_order(model, threads=2))
    for _ in range(5):
        engine.infer()
    before = time.process_time()
    time.sleep(0.2)
    assert time.process_time() - before < 0.01
