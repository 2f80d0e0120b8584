"""The built-in models: their layers, their bytes on every machine, and their cache."""

import os
import subprocess
import sys
from collections import Counter

import pytest

from tegrascope.collectors.models import onnx_writer
from tegrascope.collectors.models.files import BUILTIN_MODELS, builtin_path, find_model, sha256_of
from tegrascope.parsers.errors import BackendUnavailable, UserError

numpy = pytest.importorskip("numpy")
onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
builtin_models = pytest.importorskip("tegrascope.collectors.models.builtin")
fakes = pytest.importorskip("tests.fakes.generated_models")

MODELS = (*BUILTIN_MODELS, "vit-tiny", "yololike")
SIDES = {"mobilenet": 160, "yololike": 640}
OPSETS = {"vit-tiny": 17}
DIGESTS = {
    "mobilenet": "d01f7e6d0c270606146bc266605dc44db5255bc9b99c9c91f83d3ec4dbeeadcd",
    "mobilenetv2": "c151fecf640cd1a6109a8f10ec240f0ab69b24d388032c82f4cc16246462d6b0",
    "resnet50": "f3565f2cda64806ecc24fdb27c9e021d871800217d2ac5a7e8264134fffb62b0",
    "resnet50-fp16": "8811db94202eed2bb414cf7810129060b3f06fe4e9ccc8cbd8156518c15f4070",
    "vit-tiny": "54c6de3a976c23e3edcd8b633f018ae13a51fd50c64f1741072efb37670f75be",
    "yololike": "6c7fedf0fe2f5563252ea37cff3cd1af03aa7db960293c1a7b044f09f4b4100f",
}
# Counts of layers that characterise a network, and its weights as published, less the half that
# folding removes from each normalisation, plus the few constants in the graph.
PUBLISHED = {
    "mobilenet": ({"Conv": 52, "Clip": 35, "Add": 10, "Gemm": 1}, 1_959_408, 2),
    "mobilenetv2": ({"Conv": 52, "Clip": 35, "Add": 10, "Gemm": 1}, 3_504_872 - 17_056, 2),
    "resnet50": ({"Conv": 53, "Relu": 49, "Add": 16, "Gemm": 1}, 25_557_032 - 26_560, 0),
    "resnet50-fp16": ({"Conv": 53, "Relu": 49, "Add": 16, "Gemm": 1}, 25_557_032 - 26_560, 0),
    "vit-tiny": ({"MatMul": 72, "Softmax": 12, "LayerNormalization": 25}, 5_717_416, 199),
    "yololike": ({"Conv": 64, "Resize": 2, "MaxPool": 3, "Sigmoid": 58}, 3_151_904, 25_242),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_valid_onnx_with_the_published_layers(name, model_cache):
    path = fakes.ensure(name, model_cache)
    assert sha256_of(path) == DIGESTS[name]  # who changes the bytes raises GENERATOR_VERSION
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    assert model.ir_version == 8
    opset = ("", OPSETS.get(name, 13))
    assert [(one.domain, one.version) for one in model.opset_import] == [opset]
    layers, published, others = PUBLISHED[name]
    operations = Counter(node.op_type for node in model.graph.node)
    assert {operation: operations[operation] for operation in layers} == layers
    weights = sum(int(numpy.prod(weight.dims)) for weight in model.graph.initializer)
    assert weights == published + others
    names = [node.name for node in model.graph.node]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("name", MODELS)
def test_scores_are_finite_and_depend_on_the_image(name, model_cache):
    path = fakes.ensure(name, model_cache)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    side = SIDES.get(name, 224)
    dtype = "float16" if name.endswith("fp16") else "float32"
    images = numpy.random.RandomState(1).uniform(-1, 1, (2, 3, side, side)).astype(dtype)
    (scores,) = session.run(None, {"image": images})
    assert scores.dtype == dtype
    assert numpy.isfinite(scores).all()
    if name == "yololike":
        assert scores.shape == (2, 84, 8400)
        scores = 8 * scores[:, 4:]  # probabilities; the boxes before them are in pixels
    else:
        assert scores.shape == (2, 1000)
    assert 0.1 < scores.std() < 10
    assert numpy.abs(scores[0] - scores[1]).max() > 0.05


def test_half_precision_is_the_same_network(model_cache):
    single, half = (
        onnx.load(fakes.ensure(name, model_cache)) for name in ("resnet50", "resnet50-fp16")
    )
    assert {weight.data_type for weight in half.graph.initializer} == {onnx.TensorProto.FLOAT16}
    given = (*half.graph.input, *half.graph.output)
    assert {one.type.tensor_type.elem_type for one in given} == {onnx.TensorProto.FLOAT16}
    assert list(half.graph.node) == list(single.graph.node)
    for one, other in zip(single.graph.initializer, half.graph.initializer, strict=True):
        rounded = onnx.numpy_helper.to_array(one).astype("float16")
        assert (onnx.numpy_helper.to_array(other) == rounded).all()


def test_one_seed_gives_one_file(tmp_path):
    paths = [builtin_models.ensure_model("mobilenet", tmp_path / at, 7) for at in ("a", "b")]
    paths.append(builtin_models.ensure_model("mobilenet", tmp_path / "a", 8))
    digests = [sha256_of(path) for path in paths]
    assert digests[0] == digests[1] != digests[2]
    assert paths[0].parent == paths[2].parent


def test_two_processes_may_generate_at_once(tmp_path):
    command = [sys.executable, "-m", builtin_models.__name__, "mobilenet", str(tmp_path / "new")]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    printed = [child.communicate(timeout=60)[0].strip() for child in started]
    assert printed[0] == printed[1]
    path = find_model("builtin:mobilenet", tmp_path / "new")
    assert str(path) == printed[0]
    assert sha256_of(path) == DIGESTS["mobilenet"]
    assert not list((tmp_path / "new").glob("*.part"))


@pytest.fixture
def hide_package(tmp_path, monkeypatch):
    """Return a function by which children find that a package is not installed."""
    path = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))
    monkeypatch.setenv("PYTHONPATH", path)

    def hide(name):
        (tmp_path / f"{name}.py").write_text(f"raise ModuleNotFoundError(name={name!r})")

    return hide


def test_only_generating_needs_numpy(tmp_path, hide_package):
    hide_package("numpy")
    with pytest.raises(BackendUnavailable, match=r"^numpy is not installed: .*pip install numpy$"):
        find_model("builtin:mobilenet", tmp_path)
    cached = builtin_path("mobilenet", tmp_path)
    cached.touch()
    assert find_model("builtin:mobilenet", tmp_path) == cached


def test_generating_needs_no_onnx(tmp_path, hide_package):
    hide_package("onnx")
    path = find_model("builtin:mobilenet", tmp_path)
    assert sha256_of(path) == DIGESTS["mobilenet"]


def test_a_file_has_the_bytes_that_the_package_onnx_writes():
    attributes = {"ints": [0, -1, 300], "number": -(1 << 40), "word": "größer", "ratio": 1e-6}
    weights = {
        "single": numpy.array([[1.5, -2.0]], "<f4"),
        "half": numpy.array(0.1, "<f2"),
        "long": numpy.array([1, -1], "<i8"),
        "short": numpy.array([-128, 127], "|i1"),
    }
    helper = onnx.helper
    graph = helper.make_graph(
        [helper.make_node("Op", ["image", ""], ["a", "b"], name="first", **attributes)],
        "small",
        [helper.make_tensor_value_info("image", onnx.TensorProto.FLOAT, ["batch", 3, 200])],
        [helper.make_tensor_value_info("scores", onnx.TensorProto.FLOAT16, [])],
        [onnx.numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    expected = helper.make_model(
        graph,
        producer_name="a program",
        producer_version="12",
        ir_version=8,
        opset_imports=[helper.make_opsetid("", 13)],
    )
    graph_content = onnx_writer.graph(
        "small",
        [onnx_writer.node("Op", ["image", ""], ["a", "b"], "first", attributes)],
        [onnx_writer.tensor(name, array) for name, array in weights.items()],
        [onnx_writer.value_info("image", "<f4", ["batch", 3, 200])],
        [onnx_writer.value_info("scores", "<f2", [])],
    )
    written = onnx_writer.model(graph_content, ir_version=8, opset=13, producer=("a program", "12"))
    assert written == expected.SerializeToString(deterministic=True)


def test_a_cache_that_cannot_be_written_is_reported(tmp_path):
    occupied = tmp_path / "file"
    occupied.touch()
    with pytest.raises(UserError, match=f"could not be generated in {occupied}: .*exists"):
        find_model("builtin:mobilenet", occupied)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("builtin:resnet18", r"'resnet18': use mobilenet, mobilenetv2, resnet50, resnet50-fp16"),
        ("/nowhere/m.onnx", r"no model file /nowhere/m\.onnx"),
        ("/", "is a directory"),
    ],
)
def test_a_missing_model_is_reported(model, message, tmp_path):
    with pytest.raises(UserError, match=message):
        find_model(model, tmp_path)


def test_a_changed_file_has_a_new_digest(tmp_path):
    path = tmp_path / "m.onnx"
    path.write_bytes(b"one")
    first = sha256_of(path)
    path.write_bytes(b"other")
    assert sha256_of(path) != first
