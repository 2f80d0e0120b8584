"""Costs of single nodes, compared with numbers computed by hand."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tegrascope.parsers.onnx.costs import flops, multiply_adds, node_cost, operator_costs
from tegrascope.parsers.onnx.graph import SUBGRAPH, Graph, Node, Tensor


def graph_of(op, inputs, outputs, *, dtype="float32", domain="", **attributes):
    """Return a graph of one node; a shape in a list is a weight's, and so is a tensor."""
    tensors, names = {}, []
    for at, given_ in enumerate(inputs):
        if given_ is None:
            names.append("")
            continue
        is_weight = isinstance(given_, list)
        name = f"{'w' if is_weight else 'x'}{at}"
        tensors[name] = Tensor(name=name, dtype=dtype, shape=tuple(given_), is_constant=is_weight)
        names.append(name)
    made = [f"y{at}" for at in range(len(outputs))]
    for name, shape in zip(made, outputs, strict=True):
        tensors[name] = Tensor(name=name, dtype=dtype, shape=shape)
    node = Node(
        index=0,
        name="node",
        op=op,
        domain=domain,
        inputs=tuple(names),
        outputs=tuple(made),
        attributes=attributes,
    )
    feeds = tuple(name for name in names if name.startswith("x"))
    return Graph(inputs=feeds, outputs=tuple(made), nodes=(node,), tensors=tensors)


# Operator, inputs (a list is a weight), outputs, attributes; operations worked out by hand.
BY_HAND = [
    # 64 x 112 x 112 outputs of 3 x 7 x 7 products each: the stem of ResNet-50.
    ("Conv", [(1, 3, 224, 224), [64, 3, 7, 7], [64]], [(1, 64, 112, 112)], {}, 236_027_904),
    # One channel, one filter: 32 x 112 x 112 outputs of 9.
    ("Conv", [(1, 32, 112, 112), [32, 1, 3, 3]], [(1, 32, 112, 112)], {"group": 32}, 7_225_344),
    # In one dimension: 2 x 8 x 10 outputs of 4 x 3.
    ("Conv", [(2, 4, 10), [8, 4, 3]], [(2, 8, 10)], {}, 3_840),
    # Each of 1 x 4 x 5 x 5 inputs goes into 2 channels by 3 x 3.
    ("ConvTranspose", [(1, 4, 5, 5), [4, 2, 3, 3]], [(1, 2, 7, 7)], {}, 3_600),
    ("Gemm", [(1, 2048), [1000, 2048], [1000]], [(1, 1000)], {"transB": 1}, 4_096_000),
    ("Gemm", [(7, 3), [7, 5]], [(3, 5)], {"transA": 1}, 210),
    ("MatMul", [(1, 3, 197, 64), (1, 3, 64, 197)], [(1, 3, 197, 197)], {}, 14_902_656),
    # A vector: 5 outputs of 4 products.
    ("MatMul", [(4,), [4, 5]], [(5,)], {}, 40),
    ("Relu", [(1, 8, 4, 4)], [(1, 8, 4, 4)], {}, 128),
    ("Add", [(1, 8, 4, 4), [8, 1, 1]], [(1, 8, 4, 4)], {}, 128),
    ("Sum", [(2, 3), (2, 3), (2, 3)], [(2, 3)], {}, 12),
    ("Softmax", [(2, 10)], [(2, 10)], {"axis": -1}, 100),
    ("LayerNormalization", [(1, 197, 192), [192], [192]], [(1, 197, 192)], {}, 264_768),
    ("MaxPool", [(1, 2, 8, 8)], [(1, 2, 4, 4)], {"kernel_shape": (3, 3)}, 288),
    ("GlobalAveragePool", [(1, 2, 7, 7)], [(1, 2, 1, 1)], {}, 98),
    ("ReduceMean", [(2, 9)], [(2, 1)], {}, 18),
    ("Resize", [(1, 2, 4, 4)], [(1, 2, 8, 8)], {"mode": "nearest"}, 0),
    # Two axes: two interpolations along one, one along the other, of 3 operations.
    ("Resize", [(1, 2, 4, 4)], [(1, 2, 8, 8)], {"mode": "linear"}, 1_152),
    ("Transpose", [(2, 3)], [(3, 2)], {"perm": (1, 0)}, 0),
    ("Concat", [(1, 2), (1, 3)], [(1, 5)], {"axis": 1}, 0),
]


@pytest.mark.parametrize(("op", "inputs", "outputs", "attributes", "wanted"), BY_HAND)
def test_operations_are_those_worked_out_by_hand(op, inputs, outputs, attributes, wanted):
    graph = graph_of(op, inputs, outputs, **attributes)
    assert flops(graph, graph.nodes[0]) == wanted
    is_product = op in ("Conv", "ConvTranspose", "Gemm", "MatMul")
    assert multiply_adds(graph, graph.nodes[0]) == (wanted // 2 if is_product else 0)


@pytest.mark.parametrize(
    ("op", "inputs", "outputs", "attributes", "wanted"),
    [case for case in BY_HAND if case[1][0] != (4,) and "transA" not in case[3]],
)
def test_an_open_shape_has_no_figure(op, inputs, outputs, attributes, wanted):
    opened = [shape if isinstance(shape, list) else ("batch", *shape[1:]) for shape in inputs]
    results = [("batch", *shape[1:]) for shape in outputs]
    graph = graph_of(op, opened, results, **attributes)
    cost = node_cost(graph, graph.nodes[0], "fp16")
    assert cost.flops == (None if wanted else 0)
    assert cost.moved_bytes is None
    assert cost.flops_per_byte is None


@pytest.mark.parametrize(
    "graph",
    [
        graph_of("LSTM", [(1, 2, 3), [1, 8, 3], [1, 8, 2]], [(1, 1, 2, 2)]),
        graph_of("Relu", [(2, 3)], [(2, 3)], domain="my.own"),
        graph_of("If", [(1,)], [(2, 3)], then_branch=SUBGRAPH),
        graph_of("Resize", [(1, 2, 4, 4)], [(1, 2, 8, 8)], mode="cubic"),
    ],
    ids=lambda graph: graph.nodes[0].op,
)
def test_an_operator_outside_the_table_has_no_figure(graph):
    assert flops(graph, graph.nodes[0]) is None


def test_bytes_are_those_of_the_precision():
    graph = graph_of("Conv", [(1, 3, 8, 8), [4, 3, 3, 3], [4]], [(1, 4, 8, 8)])
    for precision, size in (("fp32", 4), ("fp16", 2), ("int8", 1)):
        cost = node_cost(graph, graph.nodes[0], precision)
        found = (cost.input_bytes, cost.weight_bytes, cost.output_bytes)
        assert found == (192 * size, 112 * size, 256 * size)
        assert cost.moved_bytes == 560 * size
        assert cost.flops_per_byte == pytest.approx(2 * 256 * 27 / (560 * size))


def test_integers_keep_their_own_size():
    graph = graph_of("Add", [(10,), (10,)], [(10,)], dtype="int64")
    assert node_cost(graph, graph.nodes[0], "int8").moved_bytes == 240


def test_a_tensor_that_is_read_twice_is_read_once():
    graph = graph_of("Mul", [(4, 4)], [(4, 4)])
    node = graph.nodes[0].model_copy(update={"inputs": ("x0", "x0")})
    assert node_cost(graph, node, "fp32").input_bytes == 64


@pytest.mark.parametrize("op", ["Reshape", "Flatten", "Squeeze", "Identity"])
def test_a_view_moves_nothing(op):
    graph = graph_of(op, [(2, 8)], [(16,)])
    cost = node_cost(graph, graph.nodes[0], "fp16")
    assert (cost.flops, cost.moved_bytes, cost.flops_per_byte) == (0, 0, None)


def test_a_pick_reads_what_it_returns():
    graph = graph_of("Gather", [[1000, 8], (3,)], [(3, 8)], dtype="float32")
    cost = node_cost(graph, graph.nodes[0], "fp32")
    assert (cost.weight_bytes, cost.output_bytes, cost.input_bytes) == (96, 96, 12)
    graph = graph_of("Slice", [(4, 1000), [1], [1], [1]], [(4, 10)])
    assert node_cost(graph, graph.nodes[0], "fp32").moved_bytes == 320


@settings(derandomize=True, deadline=None, database=None)
@given(
    batch=st.integers(1, 9),
    channels=st.integers(1, 5),
    filters=st.integers(1, 5),
    groups=st.integers(1, 4),
    kernel=st.integers(1, 5),
    side=st.integers(1, 9),
)
def test_work_grows_with_the_batch_and_shrinks_with_the_groups(
    batch, channels, filters, groups, kernel, side
):
    wide, many = channels * groups, filters * groups

    def work(count, group):
        graph = graph_of(
            "Conv",
            [(count, wide, side, side), [many, wide // group, kernel, kernel]],
            [(count, many, side, side)],
            group=group,
        )
        return flops(graph, graph.nodes[0])

    assert work(batch, 1) == batch * work(1, 1)
    assert work(1, 1) == groups * work(1, groups)


def test_an_operator_counts_its_outputs_or_its_inputs():
    for name, cost in operator_costs().items():
        assert None in (cost.flops, cost.input_flops), name
