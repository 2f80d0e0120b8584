"""Costs of a model and its parts, compared with numbers computed by hand and published ones."""

import pytest

from tegrascope.parsers.onnx.graph import Graph, Node, Tensor
from tegrascope.workbench.inspect.costs import costs_of
from tegrascope.workbench.inspect.rules import JudgedNode, Part


def judged(graph, **placements):
    return tuple(
        JudgedNode(
            index=node.index,
            name=node.name,
            op=node.op,
            placement=placements.get(node.name, "dla"),
        )
        for node in graph.nodes
    )


def chain():
    """A convolution and a rectifier after it, of 2 x 4 x 4, with 2 x 2 weights."""
    names = {"x": (1, 2, 4, 4), "mid": (1, 2, 4, 4), "y": (1, 2, 4, 4)}
    tensors = {name: Tensor(name=name, dtype="float32", shape=s) for name, s in names.items()}
    tensors["w"] = Tensor(name="w", dtype="float32", shape=(2, 2, 1, 1), is_constant=True)
    nodes = (
        Node(index=0, name="conv", op="Conv", inputs=("x", "w"), outputs=("mid",)),
        Node(index=1, name="relu", op="Relu", inputs=("mid",), outputs=("y",)),
    )
    return Graph(inputs=("x",), outputs=("y",), nodes=nodes, tensors=tensors)


def test_a_part_has_a_lower_and_an_upper_bound():
    graph = chain()
    whole = Part(number=0, first="conv", last="relu", nodes=(0, 1), inputs=("x",), outputs=("y",))
    first = Part(number=0, first="conv", last="conv", nodes=(0,), inputs=("x",), outputs=("mid",))
    last = Part(number=0, first="relu", last="relu", nodes=(1,), inputs=("mid",), outputs=("y",))
    costs = costs_of(graph, judged(graph), (whole,), (), "fp16")
    (loadable,) = costs.loadables
    assert loadable.flops == 2 * 32 * 2 + 32
    assert loadable.moved_bytes == 4 * 32 * 2 + 4 * 2
    assert loadable.edge_bytes == 2 * 32 * 2 + 4 * 2
    assert loadable.flops_ratio == 1.0
    assert costs.pointwise_ratio == pytest.approx(128 / 160)
    costs = costs_of(graph, judged(graph), (first,), (last,), "fp16")
    assert costs.loadables[0].flops_ratio == pytest.approx(128 / 160)
    assert costs.islands[0].flops_ratio == pytest.approx(32 / 160)
    assert costs.total.edge_bytes == loadable.edge_bytes


@pytest.mark.parametrize(
    ("tensor", "known"),
    [
        ("x", {"shape": ("batch", 2, 4, 4)}),
        # Its shape is known, but nobody knows the size of its elements.
        ("x", {"dtype": None}),
    ],
)
def test_a_node_without_figures_is_counted_as_such(tensor, known):
    graph = chain()
    changed = graph.tensors[tensor].model_copy(update=known)
    graph = graph.model_copy(update={"tensors": graph.tensors | {tensor: changed}})
    whole = costs_of(graph, judged(graph), (), (), "fp16").total
    assert (whole.nodes, whole.uncounted, whole.edge_bytes) == (2, 1, None)
    assert whole.moved_bytes == 2 * 32 * 2  # the rectifier's


def test_constants_cost_nothing_at_an_inference():
    graph = chain()
    costs = costs_of(graph, judged(graph, conv="constant"), (), (), "fp16")
    assert (costs.total.nodes, costs.total.flops) == (1, 32)
    assert (costs.nodes[0].flops, costs.nodes[0].moved_bytes) == (0, 0)
    assert costs.pointwise_ratio == 0.0


# Multiply-adds of one image as published, and to how many digits.
PUBLISHED = {
    # "GFLOPS 4.09" and "0.30" of the weights' pages of torchvision, which counts pairs.
    "resnet50": (4.09e9, 0.002),
    "mobilenetv2": (0.30e9, 0.01),
    # 8.7 "FLOPs (B)" of Ultralytics' table of YOLOv8n at 640, which counts each.
    "yololike": (8.7e9 / 2, 0.01),
    # 12 blocks of 197 tokens by hand: qkv, two products of attention, projection, two layers.
    "vit-tiny": (
        12 * (197 * 192 * (576 + 192 + 2 * 768) + 2 * 197 * 197 * 192) + 196 * 768 * 192 + 192_000,
        0,
    ),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_totals_are_the_published_ones(graphs, name):
    pairs, tolerance = PUBLISHED[name]
    graph = graphs[name]
    costs = costs_of(graph, judged(graph), (), (), "fp16")
    assert costs.total.uncounted == 0
    assert costs.total.multiply_adds == pytest.approx(pairs, rel=tolerance)
    others = costs.total.flops - 2 * costs.total.multiply_adds
    assert 0 < others < 0.03 * costs.total.flops


def test_shares_of_convolutions_follow_their_work(graphs):
    graph = graphs["mobilenetv2"]
    costs = costs_of(graph, judged(graph), (), (), "int8")
    assert costs.pointwise_ratio == pytest.approx(0.88, abs=0.005)
    assert costs.depthwise_ratio == pytest.approx(0.068, abs=0.0005)
    intensity = {node.index: node.flops_per_byte for node in costs.nodes}
    of = {node.name: intensity[node.index] for node in graph.nodes}
    assert of["stage2.block2.spatial"] < 10 < of["stage7.block1.expand"]
