"""The built-in models: what they are made of, that they are the same anywhere, and their cache."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tegrascope.collectors import models
from tegrascope.collectors.backends.base import EngineUnavailable
from tegrascope.parsers.errors import Mendable

numpy = pytest.importorskip("numpy")
onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
builtin_models = pytest.importorskip("tegrascope.collectors.engines.builtin_models")

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


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module", params=models.BUILTIN_MODELS)
def builtin(request, cache) -> tuple[str, Path]:
    return request.param, models.find_model(f"builtin:{request.param}", cache)


def test_a_checker_has_no_complaint(builtin):
    """The file is valid ONNX of a version that old readers know, with every shape inferred."""
    name, path = builtin
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    assert model.ir_version == 8
    opset = ("", OPSETS.get(name, 13))
    assert [(one.domain, one.version) for one in model.opset_import] == [opset]


# Layers that tell a network, and its weights as published, less the half that folding takes from
# each normalisation, plus the few numbers that the graph holds beside them.
PUBLISHED = {
    "mobilenet": ({"Conv": 52, "Clip": 35, "Add": 10, "Gemm": 1}, 1_959_408, 2),
    "mobilenetv2": ({"Conv": 52, "Clip": 35, "Add": 10, "Gemm": 1}, 3_504_872 - 17_056, 2),
    "resnet50": ({"Conv": 53, "Relu": 49, "Add": 16, "Gemm": 1}, 25_557_032 - 26_560, 0),
    "resnet50-fp16": ({"Conv": 53, "Relu": 49, "Add": 16, "Gemm": 1}, 25_557_032 - 26_560, 0),
    "vit-tiny": ({"MatMul": 72, "Softmax": 12, "LayerNormalization": 25}, 5_717_416, 199),
    "yololike": ({"Conv": 64, "Resize": 2, "MaxPool": 3, "Sigmoid": 58}, 3_151_904, 25_242),
}


def test_layers_are_those_of_the_original(builtin):
    """Convolutions, joins and weights count as in the published networks."""
    name, path = builtin
    layers, published, others = PUBLISHED[name]
    graph = onnx.load(path).graph
    operations = Counter(node.op_type for node in graph.node)
    assert {operation: operations[operation] for operation in layers} == layers
    weights = sum(int(numpy.prod(weight.dims)) for weight in graph.initializer)
    assert weights == published + others
    names = [node.name for node in graph.node]
    assert len(set(names)) == len(names)


def test_scores_are_finite_and_follow_the_image(builtin):
    """Activations keep their size through the depth, and the image decides the scores."""
    name, path = builtin
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


def test_half_precision_is_the_same_network(cache):
    """All of it is half precision; the weights are the others, rounded, and so are the scores."""
    single, half = (
        onnx.load(models.find_model(f"builtin:{name}", cache))
        for name in ("resnet50", "resnet50-fp16")
    )
    assert {weight.data_type for weight in half.graph.initializer} == {onnx.TensorProto.FLOAT16}
    given = (*half.graph.input, *half.graph.output)
    assert {one.type.tensor_type.elem_type for one in given} == {onnx.TensorProto.FLOAT16}
    assert list(half.graph.node) == list(single.graph.node)
    for one, other in zip(single.graph.initializer, half.graph.initializer, strict=True):
        rounded = onnx.numpy_helper.to_array(one).astype("float16")
        assert (onnx.numpy_helper.to_array(other) == rounded).all()
    images = numpy.random.RandomState(1).uniform(-1, 1, (1, 3, 224, 224)).astype("float16")
    scores = []
    for model, dtype in ((single, "float32"), (half, "float16")):
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), providers=["CPUExecutionProvider"]
        )
        scores.append(session.run(None, {"image": images.astype(dtype)})[0].astype("float64"))
    error = numpy.linalg.norm(scores[1] - scores[0]) / numpy.linalg.norm(scores[0])
    assert 0 < error < 0.05


def test_the_bytes_are_known(builtin):
    """The file is the same on every machine; who changes it raises GENERATOR_VERSION."""
    name, path = builtin
    assert models.sha256_of(path) == DIGESTS[name]


def test_the_seed_decides_the_weights(tmp_path):
    """One seed gives one file, another seed another, side by side in the cache."""
    paths = [builtin_models.ensure_model("mobilenet", tmp_path / at, 7) for at in ("a", "b")]
    paths.append(builtin_models.ensure_model("mobilenet", tmp_path / "a", 8))
    digests = [models.sha256_of(path) for path in paths]
    assert digests[0] == digests[1] != digests[2]
    assert paths[0].parent == paths[2].parent


def test_two_lanes_may_generate_at_once(tmp_path):
    """Both get the one whole file, and nothing half-made is left behind."""
    command = [sys.executable, "-m", builtin_models.__name__, "mobilenet", str(tmp_path / "new")]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = [child.communicate(timeout=30)[0].strip() for child in started]
    assert said[0] == said[1]
    assert models.sha256_of(Path(said[0])) == DIGESTS["mobilenet"]
    assert not list((tmp_path / "new").glob("*.part"))


def test_a_cached_model_is_not_made_again(builtin, monkeypatch):
    """What is in the cache needs no generator, and not its packages."""
    name, path = builtin
    monkeypatch.setattr(models, "find_spec", lambda _: None)
    assert models.find_model(f"builtin:{name}", path.parent) == path


def test_without_onnx_no_model_is_made(tmp_path, monkeypatch):
    """The reason is the command that installs it."""
    monkeypatch.setattr(models, "find_spec", lambda _: None)
    with pytest.raises(EngineUnavailable, match=r"pip install 'tegrascope\[onnx\]'"):
        models.find_model("builtin:mobilenet", tmp_path)


def test_a_cache_that_cannot_be_written_is_named(tmp_path):
    """The reason names the directory and what the system said."""
    occupied = tmp_path / "file"
    occupied.touch()
    with pytest.raises(Mendable, match=f"could not be generated in {occupied}: .*exists"):
        models.find_model("builtin:mobilenet", occupied)


def test_an_unknown_built_in_model_is_named(tmp_path):
    """A misspelt model is shown with those that there are."""
    with pytest.raises(Mendable, match=r"'resnet18': use mobilenet, mobilenetv2, resnet50,"):
        models.find_model("builtin:resnet18", tmp_path)


def test_a_missing_file_is_named(tmp_path):
    """The path is shown as it was written."""
    with pytest.raises(Mendable, match=r"no model file /nowhere/m\.onnx"):
        models.find_model("/nowhere/m.onnx", tmp_path)


def test_a_changed_file_has_a_new_digest(tmp_path):
    """A digest is cached only as long as the file is the same."""
    path = tmp_path / "m.onnx"
    path.write_bytes(b"one")
    first = models.sha256_of(path)
    path.write_bytes(b"other")
    assert models.sha256_of(path) != first
