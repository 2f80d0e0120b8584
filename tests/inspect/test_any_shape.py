"""Every operator is judged, whatever the ranks of its tensors: no shape ends inspect."""

from itertools import product

import pytest

from tegrascope.parsers.onnx.graph import Graph, Node, Tensor
from tegrascope.workbench.inspect.judge import inspect_graph
from tegrascope.workbench.inspect.rules import operators, rules_of

RANKS = range(6)
# Operators in front of another, of which layers merge with what follows.
FIRST = ("Conv", "ConvTranspose", "MatMul", "Gemm", "BatchNormalization", "Reshape", "Concat")
# Weights, vectors and images; the other ranks are met by graphs of one node.
SECOND_RANKS = (0, 1, 2, 4)


def tensor(name, rank, *, is_constant=False):
    """A tensor whose lengths all differ from each other and from 1."""
    lengths = tuple(range(2, 2 + rank)) if rank is not None else None
    values = (1, 2) if is_constant and rank == 1 else None
    return Tensor(name=name, dtype="float32", shape=lengths, is_constant=is_constant, values=values)


def graph_of(nodes, tensors):
    return Graph(
        opsets={"": 17},
        inputs=("x",),
        outputs=(nodes[-1].outputs[0],),
        nodes=tuple(nodes),
        tensors={one.name: one for one in tensors},
    )


def judge(nodes, tensors):
    return inspect_graph(graph_of(nodes, tensors), rules_of("10.3"), model="made", reason="")


def node(index, op, inputs, output):
    return Node(index=index, name=f"{op}_{index}", op=op, inputs=inputs, outputs=(output,))


@pytest.mark.parametrize("op", sorted(operators()))
def test_one_node_of_any_rank(op):
    """Beside a constant, beside a second input, and alone; the result has any rank too."""
    for rank, other, made in product((*RANKS, None), RANKS, (0, 1, 2, 4, None)):
        x, y = tensor("x", rank), tensor("y", made)
        for is_constant in (True, False):
            w = tensor("w", other, is_constant=is_constant)
            judge([node(0, op, ("x", "w"), "y")], [x, w, y])
        if other == 0:
            judge([node(0, op, ("x",), "y")], [x, y])


def test_a_window_with_too_few_strides_has_no_known_padding():
    """The model is invalid; its padding to the same size cannot be computed."""
    attributes = {"strides": (2,), "auto_pad": "SAME_UPPER"}
    conv = node(0, "Conv", ("x", "w"), "y").model_copy(update={"attributes": attributes})
    tensors = [tensor("x", 4), tensor("w", 4, is_constant=True), tensor("y", 4)]
    [judged] = judge([conv], tensors).nodes
    assert "convolution.padding" in {finding.rule for finding in judged.findings}


@pytest.mark.parametrize("op", sorted(operators()))
def test_two_nodes_of_any_rank(op):
    """The second node may merge with the first one, so the shapes of both are asked for."""
    for first, rank, other in product(FIRST, RANKS, SECOND_RANKS):
        nodes = [node(0, first, ("x", "v"), "t"), node(1, op, ("t", "w"), "y")]
        tensors = [
            *(tensor("x", rank), tensor("v", 2, is_constant=True), tensor("t", rank)),
            *(tensor("w", other, is_constant=True), tensor("y", max(rank, other))),
        ]
        judge(nodes, tensors)
