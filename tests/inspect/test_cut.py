"""``inspect --cut``: a body for the DLA and a head that together equal the model."""

import json
import random
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy
import onnx
import pytest
from google.protobuf.message import EncodeError
from onnx import TensorProto, helper, numpy_helper

from tegrascope.collectors.backends.base import make_varied
from tegrascope.collectors.models.files import read_graph_apart
from tegrascope.parsers.errors import UserError
from tegrascope.parsers.onnx.graph import Graph, Node, Tensor
from tegrascope.workbench.cli import main
from tegrascope.workbench.inspect import cut as cutting
from tegrascope.workbench.inspect.cut import Cut, cut_model
from tegrascope.workbench.inspect.equality import differences
from tegrascope.workbench.inspect.judge import inspect_graph
from tegrascope.workbench.inspect.rewrites import rewrite_of
from tegrascope.workbench.inspect.rules import rules_of
from tests.fakes.structures import SIDE, build

from .made import axes, model, node, one

onnxruntime = pytest.importorskip("onnxruntime")
IMAGE = (1, 16, 16, 16)
PHOTOGRAPH = {"image": (1, 3, SIDE, SIDE)}


def network(name: str, seed: int = 1) -> onnx.ModelProto:
    """Return a network as a test of outputs has it; its batch is open."""
    return build(name, seed, make_varied(numpy.zeros((8, 3, SIDE, SIDE), "f4"), 50))


def judged(path: Path, shapes: Any = None, has_slices: bool = True) -> Any:
    """Return the graph of a file, and what judges it; perhaps for a DLA without slices."""
    rules = rules_of("10.3")
    if not has_slices:
        rules = replace(rules, supported=rules.supported - {"slice"})
    judge = partial(inspect_graph, rules=rules, model="m", reason="", precision="fp16")
    return read_graph_apart(path, shapes), judge


def cut(made: onnx.ModelProto, directory: Path, **how: Any) -> Cut:
    """Save a model, and cut it into ``directory/parts``."""
    path = directory / "model.onnx"
    onnx.save(made, path)
    return cut_model(path, *judged(path, **how), directory / "parts")


def session(path: str | Path) -> Any:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def results(paths: list[str | Path], inputs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Run models after each other on each input."""
    known = [dict(given) for given in inputs]
    for path in paths:
        ready = session(path)
        for tensors in known:
            fed = {value.name: tensors[value.name] for value in ready.get_inputs()}
            made = ready.run(None, fed)
            tensors |= zip([value.name for value in ready.get_outputs()], made, strict=True)
    return known


def worst_difference(path: Path, parts: Cut, count: int) -> float:
    """Return the largest difference in spreads of a channel, for inputs drawn at run time."""
    seed = random.SystemRandom().randrange(1 << 32)
    generator = numpy.random.default_rng(seed)
    ready = session(path)
    inputs = []
    for _ in range(count):
        given = {}
        for value in ready.get_inputs():
            _, channels, *lengths = value.shape
            # Blocks of 4 with another contrast for each input: averages over noise hardly vary.
            sides = [-(-length // 4) for length in lengths]
            coarse = generator.uniform(-1, 1, [1, channels, *sides])
            coarse *= generator.uniform(0.2, 3)
            fine = numpy.repeat(numpy.repeat(coarse, 4, 2), 4, 3)
            given[value.name] = fine[:, :, : lengths[0], : lengths[1]].astype("f4")
        inputs.append(given)
    names = [value.name for value in ready.get_outputs()]
    expected = results([path], inputs)
    got = results([name for name in (parts.body, parts.head) if name], inputs)
    worst = 0.0
    for name in names:
        want = numpy.concatenate([tensors[name] for tensors in expected]).astype("f8")
        have = numpy.concatenate([tensors[name] for tensors in got]).astype("f8")
        # The axis of channels is the second, or the last one of rows.
        axis = want.ndim - 1 if want.ndim == 3 and want.shape[1] > want.shape[2] else 1
        others = tuple(other for other in range(want.ndim) if other != axis)
        off, spread = abs(want - have).max(axis=others), numpy.ptp(want, axis=others)
        worst = max(worst, float((off / numpy.maximum(spread, 1e-30)).max()))
    print(f"seed {seed}: {worst:.2g}")
    return worst


NAMES = ("yolov5", "yolov8", "ssd", "retinanet", "unet", "resnet", "mobilenet", "mobilenetv3")


@pytest.mark.parametrize(
    ("name", "has_slices"), [*((name, True) for name in NAMES), ("yolov8", False)]
)
def test_a_network_becomes_one_body_with_its_work_and_an_equal_head(name, has_slices, tmp_path):
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"weights of seed {seed}")
    made = cut(network(name, seed), tmp_path, shapes=PHOTOGRAPH, has_slices=has_slices)
    assert made.flops_ratio >= 0.99
    assert made.largest_error <= 1e-5
    # Without a replaced node it is the same, whatever ONNX Runtime does for a whole model.
    assert name == "mobilenetv3" or made.largest_error == 0
    assert worst_difference(tmp_path / "model.onnx", made, 20) <= 1e-5
    # The same rules accept the body as a whole.
    graph, judge = judged(Path(made.body), has_slices=has_slices)
    inspection = judge(graph)
    assert inspection.verdict == "dla"
    assert len(inspection.loadables) == made.loadables <= 2


def test_attention_ends_the_body_and_is_the_reason(tmp_path):
    made = cut(network("yolo11"), tmp_path, shapes=PHOTOGRAPH)
    assert 0.3 < made.flops_ratio < 0.6
    assert worst_difference(tmp_path / "model.onnx", made, 3) <= 1e-5
    assert [stop.op for stop in made.stops] == ["Reshape"]
    assert len(made.attention) == 2
    assert all("matmul" in name for name in made.attention)


def test_a_transformer_keeps_its_patches_on_the_dla(families, tmp_path):
    path = families["vit-tiny"]
    graph, judge = judged(path, shapes={"image": (1, 3, 224, 224)})
    made = cut_model(path, graph, judge, tmp_path)
    assert 0 < made.flops_ratio < 0.05
    assert [rewritten.instead for rewritten in made.rewritten] == [("Conv", "Conv")]
    assert len(made.attention) == 24


def test_decoding_is_left_to_the_head(tmp_path):
    """In INT8 a concatenation of boxes and scores would have one scale."""
    made = cut(network("yolov8"), tmp_path, shapes=PHOTOGRAPH)
    body, head = onnx.load(made.body), onnx.load(made.head)
    assert all(output.startswith("conv") for output in made.borders)
    assert len(made.borders) == 6
    assert [value.name for value in head.graph.input] == list(made.borders)
    assert "Softmax" not in {node.op_type for node in body.graph.node}
    assert made.rewritten == ()  # FP16 has slices.


def test_a_division_of_convolutions_costs_no_work(tmp_path):
    made = network("yolov8")
    before = cut(made, tmp_path, shapes=PHOTOGRAPH)
    graph, judge = judged(Path(before.body))
    as_slices = judge(graph).costs.total.flops
    made = cut(made, tmp_path, shapes=PHOTOGRAPH, has_slices=False)
    assert {(node.op, node.rule) for node in made.rewritten} == {("Split", "general.operator")}
    assert made.rewritten[0].instead == ("Conv", "Sigmoid", "Mul", "Conv", "Sigmoid", "Mul")
    graph, judge = judged(Path(made.body))
    assert judge(graph).costs.total.flops == as_slices


def between(*middle: onnx.NodeProto, x: Any = IMAGE, weights: Any = None, **how: Any) -> Any:
    """Return a model with nodes, from ``a`` to ``b``, between two convolutions."""
    kernel = numpy.random.default_rng(1).normal(0, 0.2, (x[1], x[1], 3, 3)).astype("f4")
    channels = how.pop("channels", x[1])
    end = numpy.random.default_rng(2).normal(0, 0.2, (8, channels, 1, 1)).astype("f4")
    first = node("Conv", "x first.w", "a", pads=[1] * 4)
    last = node("Conv", "b last.w", "y", name="last")
    return model(
        [first, *middle, last],
        {"x": x},
        {"first.w": kernel, "last.w": end, **(weights or {})},
        **how,
    )


def ramp(*shape: int) -> numpy.ndarray:
    return numpy.linspace(0.5, 2, int(numpy.prod(shape)), dtype="f4").reshape(shape)


POOL = {"kernel_shape": [13, 13], "pads": [6] * 4, "strides": [1, 1]}
HALF = numpy.array(2, "f4")
EXACT = {
    "HardSwish": (between(node("HardSwish", "a", "b")), "Mul Add Clip Mul"),
    "HardSigmoid": (between(node("HardSigmoid", "a", "b", alpha=0.25)), "Mul Add Clip"),
    "GlobalAveragePool": (
        between(node("GlobalAveragePool", "a", "m"), node("Mul", "a m", "b")),
        "AveragePool AveragePool",
    ),
    "ReduceMean": (
        between(node("ReduceMean", "a", "m", axes=[2, 3]), node("Mul", "a m", "b")),
        "AveragePool AveragePool",
    ),
    "MaxPool": (between(node("MaxPool", "a", "b", **POOL)), "MaxPool MaxPool"),
    "Div": (between(node("Div", "a h", "b"), weights={"h": HALF}), "Mul"),
    "Mul": (
        between(node("Relu", "a", "r"), node("Mul", "r h", "b"), weights={"h": ramp(16, 1, 1)}),
        "Conv",
    ),
    "Sub": (
        between(node("Relu", "a", "r"), node("Sub", "h r", "b"), weights={"h": ramp(16, 1, 1)}),
        "Conv",
    ),
    "BatchNormalization": (
        between(
            node("Relu", "a", "r"),
            node("BatchNormalization", "r g h m v", "b"),
            weights={name: ramp(16) for name in "ghmv"},
        ),
        "Conv",
    ),
    "Slice": (
        between(
            node("Slice", "a s e t p", "b"),
            weights={"s": axes(1), "e": axes(99), "t": axes(3), "p": axes(2)},
        ),
        "Conv",
    ),
    "Conv": (
        between(
            node("Conv", "a h", "b", strides=[16, 16], kernel_shape=[16, 16]),
            x=(1, 16, 32, 32),
            weights={"h": numpy.random.default_rng(3).normal(0, 0.02, (16,) * 4).astype("f4")},
        ),
        "Conv Conv",
    ),
}


@pytest.mark.parametrize("op", EXACT)
def test_a_node_is_replaced_by_an_exact_equal(op, tmp_path):
    made, instead = EXACT[op]
    parts = cut(made, tmp_path)
    assert [(node.op, node.instead) for node in parts.rewritten] == [(op, tuple(instead.split()))]
    assert parts.head is None
    assert worst_difference(tmp_path / "model.onnx", parts, 5) <= 1e-5


def test_channels_of_a_concatenation_are_selected(tmp_path):
    sizes = {"s": axes(10, 22)}
    nodes = [
        node("Concat", "a a", "c", axis=1),
        node("Split", "c s", "p q", axis=1),
        node("Conv", "p u", "r"),
        node("Concat", "q r", "b", axis=1),
    ]
    weights = {**sizes, "u": ramp(10, 10, 1, 1)}
    parts = cut(between(*nodes, weights=weights, channels=32), tmp_path, has_slices=False)
    assert [node.instead for node in parts.rewritten] == [("Conv", "Conv")]
    assert parts.head is None
    assert worst_difference(tmp_path / "model.onnx", parts, 3) == 0


def test_a_replacement_that_is_not_equal_names_its_node_and_writes_nothing(tmp_path):
    """Each step of the replacement rounds to FP16."""
    made = between(
        node("HardSwish", "a", "h", "swish"), node("Relu", "h", "b"), kind=TensorProto.FLOAT16
    )
    for weight in made.graph.initializer:
        half = numpy_helper.to_array(weight).astype("f2")
        weight.CopyFrom(numpy_helper.from_array(half, weight.name))
    with pytest.raises(UserError, match=r"cannot be cut: at swish \(HardSwish\) .* differ by"):
        cut(made, tmp_path)
    assert not (tmp_path / "parts").exists()


def test_outputs_that_amplify_a_rounding_too_much_are_refused(tmp_path):
    """Each replaced node is equal, but a step of FP32 is a tenth of a turn of the sine."""
    nodes = [
        node("GlobalAveragePool", "a", "m"),
        node("Mul", "a m", "p"),
        node("Mul", "p million", "q"),
        node("Sin", "q", "b"),
    ]
    with pytest.raises(UserError, match=r"at its outputs the parts differ by .* more than 1e-05"):
        cut(between(*nodes, weights={"million": numpy.array(1e6, "f4")}), tmp_path)
    assert not (tmp_path / "parts").exists()


def test_nodes_behind_the_end_of_the_body_stay_as_they_are(tmp_path):
    nodes = [
        node("InstanceNormalization", "a g h", "n", "norm"),
        node("HardSwish", "n", "b"),
    ]
    weights = {"g": ramp(16), "h": ramp(16)}
    parts = cut(between(*nodes, weights=weights), tmp_path)
    assert parts.rewritten == ()
    assert [stop.name for stop in parts.stops] == ["norm"]
    assert "HardSwish" in {node.op_type for node in onnx.load(parts.head).graph.node}


def test_the_head_gets_shapes_and_constants_without_the_body(tmp_path):
    """An exporter computes the shape for a reshape from a tensor that the body makes."""
    nodes = [
        node("Shape", "a", "s"),
        node("Gather", "s zero", "n"),
        node("Concat", "n rest", "t", axis=0),
        node("Reshape", "a t", "r"),
        node("Softmax", "r", "q", axis=1),
        node("Reshape", "q back", "b"),
    ]
    weights = {"zero": axes(0), "rest": axes(16, -1), "back": axes(*IMAGE)}
    parts = cut(between(*nodes, weights=weights), tmp_path)
    head = onnx.load(parts.head)
    assert [value.name for value in head.graph.input] == ["a"]
    assert "Shape" not in {node.op_type for node in head.graph.node}


def test_work_that_is_not_counted_makes_the_share_an_upper_bound(tmp_path, capsys):
    nodes = [node("Elu", "a", "e"), node("GridSample", "e g", "b")]
    path = tmp_path / "model.onnx"
    onnx.save(between(*nodes, weights={"g": ramp(1, 16, 16, 2)}), path)
    assert main(["inspect", str(path), "--cut", "-o", str(tmp_path / "parts")]) == 0
    assert "in the body, at most: 1 node(s) are not counted" in capsys.readouterr().out


def as_old(made: onnx.ModelProto) -> None:
    """Make weights inputs too, as the format demanded before its version 4."""
    made.ir_version = 3
    for weight in made.graph.initializer:
        shape = list(weight.dims)
        made.graph.input.append(helper.make_tensor_value_info(weight.name, weight.data_type, shape))


def as_function(made: onnx.ModelProto) -> None:
    """Compute the activation in a function of the model."""
    opset = helper.make_opsetid("", 17)
    body = [node("HardSwish", "p", "q")]
    made.functions.append(helper.make_function("own", "Act", ["p"], ["q"], body, [opset]))
    made.opset_import.append(helper.make_opsetid("own", 1))
    made.graph.node[1].op_type, made.graph.node[1].domain = "Act", "own"


def as_unnamed_and_unsorted(made: onnx.ModelProto) -> None:
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in made.graph.node]
    del made.graph.node[:]
    for copy in reversed(copies):
        copy.name = ""
        made.graph.node.append(copy)


def as_output(made: onnx.ModelProto) -> None:
    """Return what the replaced node makes as well."""
    made.graph.output.append(helper.make_empty_tensor_value_info("b"))


@pytest.mark.parametrize("form", [as_old, as_function, as_unnamed_and_unsorted, as_output])
def test_forms_of_a_file_make_no_difference(form, tmp_path):
    made = between(node("HardSwish", "a", "b"))
    form(made)
    parts = cut(made, tmp_path)
    assert parts.head is None
    assert [rewritten.op for rewritten in parts.rewritten] == ["HardSwish"]


def test_weights_in_another_file_are_taken_along(tmp_path):
    path = tmp_path / "model.onnx"
    onnx.save(network("resnet"), path, save_as_external_data=True, location="weights")
    parts = cut_model(path, *judged(path, PHOTOGRAPH), tmp_path / "parts")
    (tmp_path / "weights").unlink()
    onnx.checker.check_model(parts.body, full_check=True)
    assert session(parts.body).get_outputs()[0].name == parts.borders[0]


def test_metadata_goes_along(tmp_path):
    made = network("yolov8")
    helper.set_model_props(made, {"task": "detect", "stride": "32"})
    parts = cut(made, tmp_path, shapes=PHOTOGRAPH)
    for path in (parts.body, parts.head):
        assert {entry.key: entry.value for entry in onnx.load(path).metadata_props} == {
            "task": "detect",
            "stride": "32",
        }


def test_outputs_without_elements_are_equal(tmp_path):
    """As of a detector that finds nothing."""
    nodes = [node("Conv", "x w", "a"), node("Compress", "a none", "y", axis=2)]
    weights = {"w": ramp(8, 16, 3, 3), "none": numpy.zeros(4, bool)}
    parts = cut(model(nodes, {"x": IMAGE}, weights), tmp_path)
    assert (parts.borders, parts.largest_error) == (("a",), 0)


# --- models that cannot be cut --------------------------------------------------------------------

KERNEL = {"w": ramp(8, 16, 3, 3)}


def after(*first: onnx.NodeProto, x: Any = IMAGE, weights: Any = None, **how: Any) -> Any:
    """Return a model with nodes, from ``x`` to ``a``, before a convolution."""
    nodes = [*first, node("Conv", "a w", "y")]
    return model(nodes, {"x": x}, {**KERNEL, **(weights or {})}, **how)


def looped() -> onnx.ModelProto:
    branch = helper.make_graph(
        [node("Identity", "x", "z")], "branch", [], [helper.make_empty_tensor_value_info("z")]
    )
    choice = node("If", "c", "a", "choice", then_branch=branch, else_branch=branch)
    return after(choice, weights={"c": numpy.array(True)})


def sparse() -> onnx.ModelProto:
    made = between(node("Mul", "a dense", "b"))
    values = numpy_helper.from_array(ramp(1), "dense")
    places = helper.make_tensor("places", TensorProto.INT64, [1], [0])
    made.graph.sparse_initializer.append(helper.make_sparse_tensor(values, places, [1]))
    return made


UNCUT = {
    "cast": (
        after(
            node("Cast", "x", "a", "first", to=TensorProto.FLOAT),
            kind=TensorProto.UINT8,
            weights={"w": ramp(8, 16, 3, 3)},
        ),
        "first",
    ),
    "normalisation": (
        after(node("InstanceNormalization", "x g g", "a", "first"), weights={"g": ramp(16)}),
        "first",
    ),
    "layer norm": (
        after(node("LayerNormalization", "x g", "a", "first"), weights={"g": ramp(16)}),
        "first",
    ),
    "einsum": (one("Einsum", (8, 8), equation="ij->ji"), "target"),
    "embedding": (
        model(
            [node("Gather", "g x", "y", "first")],
            {"x": (1, 8)},
            {"g": ramp(32, 8)},
            kind=TensorProto.INT64,
        ),
        "first",
    ),
    "attention": (model([node("MatMul", "x x", "y", "first")], {"x": (1, 4, 8, 8)}), "first"),
    "product of three dimensions": (one("MatMul", (1, 4, 8), {"w": ramp(8, 8)}), "target"),
    "recurrent": (
        one("GRU", (4, 1, 8), {"w": ramp(1, 24, 8), "r": ramp(1, 24, 8)}, hidden_size=8),
        "target",
    ),
    "plug-in": (
        model([node("Mine", "x", "y", "first", domain="own")], {"x": IMAGE}, domains=["own"]),
        "first",
    ),
    "one dimension": (one("Conv", (1, 16, 32), {"w": ramp(8, 16, 3)}), "target"),
    "three dimensions": (one("Conv", (1, 4, 8, 8, 8), {"w": ramp(8, 4, 3, 3, 3)}), "target"),
    "branch": (looped(), "choice"),
    "wide kernel": (one("Conv", (1, 4, 64, 64), {"w": ramp(4, 4, 33, 33)}), "target"),
    "wide stride": (one("Conv", (1, 4, 64, 64), {"w": ramp(4, 4, 3, 3)}, strides=[9, 9]), "target"),
    "long image": (one("Relu", (1, 1, 1, 8193)), "target"),
    "integers": (
        model([node("Add", "x x", "y", "first")], {"x": IMAGE}, kind=TensorProto.INT64),
        "first",
    ),
    "double": (
        model([node("Relu", "x", "y", "first")], {"x": IMAGE}, kind=TensorProto.DOUBLE),
        "first",
    ),
    "cubic": (
        model(
            [node("Resize", "x - s", "y", "first", mode="cubic")],
            {"x": IMAGE},
            {"s": ramp(4) * 0 + numpy.array([1, 1, 2, 2], "f4")},
        ),
        "first",
    ),
    "best": (model([node("TopK", "x k", "y i", "first")], {"x": IMAGE}, {"k": axes(3)}), "first"),
    "quantised": (
        model(
            [
                node("QuantizeLinear", "x s", "q", "first"),
                node("DequantizeLinear", "q s", "a"),
                node("Conv", "a w", "y"),
            ],
            {"x": IMAGE},
            {"s": numpy.array(0.1, "f4"), **KERNEL},
        ),
        "first",
    ),
    "open shape": (one("Relu", (1, 16, "height", 16)), "--shape x:1x16x?x16"),
    "no work": (one("Reshape", IMAGE, {"s": axes(1, 1, 64, 64)}), "no work"),
    "sparse weights": (sparse(), "sparse weights"),
    "wide input": (one("Relu", (1, 16, 8192, 1024)), "larger than 256 MiB: give a smaller --shape"),
    "invalid behind the body": (
        between(node("Elu", "a", "e"), node("Mine", "e", "b", domain="own"), domains=["own"]),
        "onnxruntime cannot run",
    ),
}


@pytest.mark.parametrize("name", UNCUT)
def test_a_model_that_cannot_be_cut_says_why_in_one_line(name, tmp_path, capsys):
    made, words = UNCUT[name]
    path = tmp_path / "model.onnx"
    onnx.save(made, path)
    status = main(["inspect", str(path), "--cut", "-o", str(tmp_path / "parts")])
    printed = capsys.readouterr()
    assert (status, printed.out) == (1, "")
    assert len(printed.err.splitlines()) == 1
    assert words in printed.err
    assert "cannot" in printed.err
    assert not (tmp_path / "parts").exists()


@pytest.mark.parametrize(
    ("length", "seconds", "words"), [(1, 0.0, "no answer in 0 s"), (1 << 40, 60.0, "memory")]
)
def test_a_comparison_that_takes_too_much_is_an_error(length, seconds, words, tmp_path):
    nodes = [node("ConstantOfShape", "s", "a"), node("Add", "x a", "y")]
    path = tmp_path / "model.onnx"
    onnx.save(model(nodes, {"x": (1,)}, {"s": axes(length)}), path)
    inputs = [Tensor(name="x", dtype="float32", shape=(1,))]
    with pytest.raises(UserError, match=f"no parts can be compared: .*{words}"):
        differences(path, [path], inputs, seconds=seconds)


def rewritten(
    op: str, image: tuple[int, ...], *weights: numpy.ndarray, outputs: int = 1, **attributes: Any
) -> list[str] | None:
    """Return the operators that replace a node which reads an image and weights."""
    names = [f"w{number}" for number in range(len(weights))]
    made = tuple(f"y{number}" for number in range(outputs))
    one = Node(index=0, name="n", op=op, inputs=("x", *names), outputs=made, attributes=attributes)
    tensors = [Tensor(name=name, dtype="float32", shape=image) for name in ("x", *made)]
    for name, array in zip(names, weights, strict=True):
        tensors.append(Tensor(name=name, dtype="float32", shape=array.shape, is_constant=True))
    graph = Graph(
        opsets={"": 17},
        inputs=("x",),
        outputs=made,
        nodes=(one,),
        tensors={tensor.name: tensor for tensor in tensors},
    )
    given = {name: numpy_helper.from_array(w, name) for name, w in zip(names, weights, strict=True)}
    rewrite = rewrite_of(graph, given, one)
    return None if rewrite is None else [new.op_type for new in rewrite.nodes]


def maximum(side: int) -> Any:
    image = (1, 16, 99, 99)
    return rewritten("MaxPool", image, kernel_shape=(side, side), pads=(side // 2,) * 4)


def patches(rows: int, columns: int, channels: int = 3) -> Any:
    kernel = ramp(1, channels, rows, columns)
    return rewritten("Conv", (1, channels, 224, 224), kernel, strides=(rows, columns))


def test_sizes_beyond_a_limit_are_not_replaced():
    assert rewritten("HardSigmoid", (1, 8192, 1, 1)) == ["Mul", "Add", "Clip"]
    assert rewritten("HardSigmoid", (1, 8193, 1, 1)) is None
    assert maximum(63) == ["MaxPool"] * 11
    assert maximum(65) is None
    assert patches(16, 16) == ["Conv", "Conv"]
    assert patches(16, 14) is None
    assert patches(16, 16, channels=129) is None


def test_a_normalisation_needs_four_weights_of_a_number_per_channel():
    image, weight = (1, 16, 8, 8), ramp(16)
    assert rewritten("BatchNormalization", image, *[weight] * 4) == ["Conv"]
    assert rewritten("BatchNormalization", image, *[weight] * 3) is None
    assert rewritten("BatchNormalization", image, *[weight] * 3, ramp(8)) is None
    assert rewritten("BatchNormalization", image, *[weight] * 4, outputs=3) is None


def test_a_divisor_of_one_channel_is_one_product():
    assert rewritten("Div", (1, 1, 8, 8), ramp(1, 1, 1)) == ["Mul"]


class TooLarge:
    """A model of more than 2 GiB."""

    def SerializeToString(self) -> bytes:  # noqa: N802 - the name is protobuf's
        raise EncodeError("Failed to serialize proto")


def test_a_part_that_is_too_large_for_a_file_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"body\.onnx cannot be cut: it is larger than 2 GiB"):
        cutting._save(TooLarge(), tmp_path / "body.onnx")


# --- the command ----------------------------------------------------------------------------------


def test_the_command_writes_both_parts_and_prints_what_it_changed(tmp_path, capsys):
    path, parts = tmp_path / "net.onnx", tmp_path / "parts"
    weights = {"s": axes(1, 16, -1), "t": axes(*IMAGE)}
    nodes = [node("HardSwish", "a", "h", "swish"), node("Reshape", "h s", "r", "decode")]
    onnx.save(between(*nodes, node("Reshape", "r t", "b"), weights=weights), path)
    assert main(["inspect", str(path), "--cut", "-o", str(parts)]) == 0
    words = " ".join(capsys.readouterr().out.split())
    assert "94.81% of the work in the body" in words
    assert "the body makes h" in words
    assert "equal to the original for 8 random inputs" in words
    assert "swish HardSwish activation.function Mul, Add, Clip, Mul" in words
    assert "the body ends before" in words
    assert "decode Reshape shuffle.rank: a reshape" in words
    assert {file.name for file in parts.iterdir()} == {"body.onnx", "head.onnx"}


def test_a_whole_body_has_no_head_and_an_old_one_is_removed(tmp_path, capsys):
    path, parts = tmp_path / "net.onnx", tmp_path / "parts"
    parts.mkdir()
    (parts / "head.onnx").write_bytes(b"old")
    onnx.save(between(node("HardSwish", "a", "b")), path)
    assert main(["inspect", str(path), "--cut", "-o", str(parts), "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert Cut.model_validate(record).head is None
    assert {file.name for file in parts.iterdir()} == {"body.onnx"}
    shown = main(["inspect", str(path), "--cut", "-o", str(parts)])
    assert shown == 0
    assert "no head" in capsys.readouterr().out


@pytest.mark.parametrize("given", [["--cut"], ["-o", "parts"]])
def test_cut_and_its_directory_need_each_other(given, capsys):
    assert main(["inspect", "builtin:mobilenet", *given]) == 2
    assert "--cut -o DIR" in capsys.readouterr().err


@pytest.mark.parametrize(
    "given", [["--verify"], ["--against", "run"], ["--dot", "net.dot"], ["--all"]]
)
def test_what_changes_the_report_is_not_for_a_cut(given, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["inspect", "builtin:mobilenet", "--cut", "-o", "parts", *given]) == 2
    assert f"--cut writes no report, so {given[0]} says nothing" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_every_key_of_a_cut_is_documented():
    page = (Path(__file__).parents[2] / "docs/inspect.md").read_text(encoding="utf-8")
    for name in Cut.model_json_schema()["properties"]:
        assert f"`{name}`" in page, name
