"""What is no graph, and what is one in another order."""

import numpy
import onnx
import pytest

from tegrascope.collectors.onnx_graph import read_graph
from tegrascope.parsers.errors import Mendable

from .made import FLOAT, model, node, one


def saved(made, directory):
    path = directory / "made.onnx"
    onnx.save(made, path)
    return path


def test_nodes_out_of_order_are_put_in_order(tmp_path):
    """TensorRT sorts, and so does this: shapes are known all the same, and a note says it."""
    nodes = [node("Conv", "x w", "a", "conv"), node("Relu", "a", "b", "relu")]
    made = model(nodes, {"x": (1, 4, 8, 8)}, {"w": (4, 4, 1, 1)})
    made.graph.output[0].name = "b"
    made.graph.node.reverse()
    graph = read_graph(saved(made, tmp_path))
    assert [(one.index, one.name) for one in graph.nodes] == [(0, "conv"), (1, "relu")]
    assert graph.tensor("b").shape == (1, 4, 8, 8)
    assert any("not in the order" in note for note in graph.notes)


def test_what_a_subgraph_takes_from_around_it_comes_before_it(tmp_path):
    """A branch reads a tensor of the main graph without naming it as an input of its node."""
    out = onnx.helper.make_tensor_value_info("o", FLOAT, None)
    branch = onnx.helper.make_graph([node("Neg", "a", "o")], "branch", [], [out])
    twice = {"then_branch": branch, "else_branch": branch}
    nodes = [node("If", "c", "y", "if", **twice), node("Relu", "x", "a", "relu")]
    made = model(nodes, {"x": (1, 4, 8, 8)}, {"c": numpy.array(True)})
    made.graph.output[0].name = "y"
    assert [one.name for one in read_graph(saved(made, tmp_path)).nodes] == ["relu", "if"]


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        (
            [node("Relu", "x", "a", "one"), node("Neg", "gone", "y", "two")],
            "Neg 'two' reads 'gone'",
        ),
        ([node("Relu", "x", "y", "one"), node("Neg", "x", "y")], "Relu 'one' and a Neg both make"),
        ([node("Relu", "x", "x", "one")], "makes 'x', which is an input"),
        ([node("Add", "x b", "a", "one"), node("Neg", "a", "b", "two")], "wait for each other"),
    ],
    ids=["never made", "made twice", "an input made", "a circle"],
)
def test_what_is_no_graph_is_refused(nodes, words, tmp_path):
    """A verdict of nodes that can't run would be one of nothing: the tensor at fault is named."""
    with pytest.raises(Mendable, match=words):
        read_graph(saved(model(nodes, {"x": (1, 4, 8, 8)}), tmp_path))


def test_operators_of_no_opset_are_refused_and_newer_ones_told(tmp_path):
    """What an operator means depends on the opset: without one nothing can be judged."""
    made = one("Relu", (1, 4, 8, 8))
    made.opset_import[0].version = 999
    (note,) = read_graph(saved(made, tmp_path)).notes
    assert "opset 999, and read as" in note
    del made.opset_import[:]
    with pytest.raises(Mendable, match="of which opset"):
        read_graph(saved(made, tmp_path))
