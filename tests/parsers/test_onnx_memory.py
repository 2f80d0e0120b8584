"""The memory of ONNX Runtime by the graph: small graphs of which it is known by hand."""

import pytest

from tegrascope.parsers.onnx.graph import Graph, Node, Tensor
from tegrascope.parsers.onnx.memory import session_bytes

MIB = 1 << 20


def tensor(name: str, mebibytes: float, *, is_constant: bool = False) -> Tensor:
    """Return an image of four channels, or a weight, of a size."""
    rows = int(mebibytes * MIB / 4 / 4 / 256)
    return Tensor(name=name, dtype="float32", shape=(1, 4, rows, 256), is_constant=is_constant)


def chain(*operators: str, weight: float = 0.0) -> Graph:
    """Return operators behind each other on images of 1 MiB; the first may read a weight."""
    nodes, tensors = [], {"t0": tensor("t0", 1)}
    for index, op in enumerate(operators):
        made = f"t{index + 1}"
        reads: tuple[str, ...] = (f"t{index}",)
        if weight and index == 0:
            reads = (*reads, "w")
            tensors["w"] = tensor("w", weight, is_constant=True)
        tensors[made] = tensor(made, 1)
        nodes.append(Node(index=index, name=made, op=op, inputs=reads, outputs=(made,)))
    outputs = (f"t{len(operators)}",)
    return Graph(inputs=("t0",), outputs=outputs, nodes=tuple(nodes), tensors=tensors)


def arena(graph: Graph, block: int = 1) -> float:
    """Return in MiB what a graph takes beside its input."""
    found = session_bytes(graph, block)
    assert found is not None
    return found / MIB - 1


def table(*regions: int) -> float:
    return sum(regions) / 32


def test_first_inference_stays_beside_the_piece_of_the_later_ones():
    """Regions of 1, 2 and 4 MiB: t1; t2 and the output; the piece for t1 and t2.

    The second output is where t2 was.
    """
    assert arena(chain("Exp", "Exp", "Exp")) == 1 + 2 + 2 + table(1, 2, 4)


@pytest.mark.parametrize("op", ["Reshape", "Relu"])
def test_what_needs_no_memory_of_its_own_takes_none(op):
    assert arena(chain("Exp", op, "Exp", "Exp")) == arena(chain("Exp", "Exp", "Exp"))


def test_tensor_that_is_read_again_is_not_written_over():
    plain = chain("Exp", "Relu", "Exp", "Add")
    last = plain.nodes[-1].model_copy(update={"inputs": ("t3", "t1")})
    again = plain.model_copy(update={"nodes": (*plain.nodes[:-1], last)})
    assert arena(again) > arena(plain)


@pytest.mark.parametrize(
    ("op", "weight", "block", "copies"),
    [
        ("MatMul", 1, 1, 2),
        ("MatMul", 64, 1, 2),  # one to keep, and one while it is converted
        ("Conv", 64, 1, 2),
        ("Conv", 64, 4, 4),
    ],
)
def test_copies_of_weights(op, weight, block, copies):
    more = arena(chain(op, weight=weight), block)
    rest = arena(chain(op), block)
    hidden = rest if weight == 64 else 0  # activations are smaller than the largest weight
    assert more == copies * weight + rest - hidden


def test_blocks_are_copied_for_others_and_filled_up_to_whole_ones():
    graph = chain("Conv", "Exp")
    assert arena(graph, block=4) > arena(graph, block=1) + 2
    assert arena(graph, block=16) > arena(graph, block=4) + 4


def test_unknown_shape_counts_as_nothing():
    graph = chain("Exp", "NonMaxSuppression", "Exp")
    tensors = graph.tensors | {"t2": Tensor(name="t2", dtype="int64", shape=("boxes", 3))}
    assert 0 < arena(graph.model_copy(update={"tensors": tensors})) < arena(graph)


def test_too_many_nodes_give_no_estimate():
    assert session_bytes(chain(*["Relu"] * 20_001), 1) is None
