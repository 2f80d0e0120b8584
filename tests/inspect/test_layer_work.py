"""The work of an engine's layers: that of the ONNX nodes that became them."""

import onnx
import pytest

from tegrascope.collectors.models.onnx_graph import read_graph
from tegrascope.workbench.inspect.layers import layers_with_work, with_work
from tegrascope.workbench.results.records import LayerRow
from tests.inspect.made import model, node


@pytest.fixture
def path(tmp_path):
    """A convolution of 8 to 16 channels on 4 × 4, a rectifier, and a convolution of 1 × 1."""
    made = model(
        [
            node("Conv", "x w0", "a", "first", pads=[1, 1, 1, 1]),
            node("Relu", "a", "b", "act"),
            node("Conv", "b w1", "c", "second"),
        ],
        {"x": ("n", 8, 4, 4)},
        {"w0": (16, 8, 3, 3), "w1": (4, 16, 1, 1)},
    )
    onnx.save(made, tmp_path / "net.onnx")
    return tmp_path / "net.onnx"


@pytest.fixture
def graph(path):
    return read_graph(path, {"x": (1, 8, 4, 4)})


def row(name: str, *nodes: str, kind: str = "", precision: str | None = "fp16") -> LayerRow:
    return LayerRow(name=name, kind=kind, precision=precision, nodes=nodes, seconds=1.0, share=0.5)


FIRST = 2 * 16 * 8 * 9 * 16  # two operations for each product
SECOND = 2 * 4 * 16 * 16


def test_a_fused_layer_has_the_work_of_all_its_nodes(graph):
    fused, last = with_work(graph, [row("first + act", "first", "act"), row("second", "second")])
    assert (fused.flops, last.flops) == (FIRST + 16 * 16, SECOND)
    # Inputs, weights and outputs of half precision; what is fused stays inside.
    assert fused.edge_bytes == 2 * (8 * 16 + 16 * 8 * 9 + 16 * 16)
    assert fused.moved_bytes == fused.edge_bytes + 2 * 2 * 16 * 16


def test_bytes_are_those_of_the_layers_precision(graph):
    half, whole = (
        with_work(graph, [row("second", "second", precision=p)]) for p in ("fp16", "fp32")
    )
    assert whole[0].edge_bytes == 2 * half[0].edge_bytes
    assert with_work(graph, [row("second", "second", precision=None)])[0].edge_bytes == (
        whole[0].edge_bytes
    )


def test_a_subgraph_gets_the_nodes_between_its_ends(graph):
    """Nodes of other layers are not in it."""
    name = "{ForeignNode[first...second]}"
    [whole] = with_work(graph, [row(name, kind="DLA")])
    assert whole.nodes == ("first", "act", "second")
    assert whole.flops == FIRST + 16 * 16 + SECOND
    without, _ = with_work(graph, [row(name, kind="DLA"), row("act", "act")])
    assert without.nodes == ("first", "second")


def test_a_reformat_has_no_work(graph):
    """A reshape behind a layer is marked with its node, whose work it does not do."""
    gemm, reshape = with_work(
        graph, [row("second", "second"), row("reshape_after_second", "second", kind="NoOp")]
    )
    assert (gemm.flops, reshape.flops) == (SECOND, None)


def test_a_constant_has_no_work(graph):
    """It may be marked with the node that reads it."""
    gemm, weight = with_work(graph, [row("second", "second"), row("w", "second", kind="Constant")])
    assert (gemm.flops, weight.flops) == (SECOND, None)


def test_nodes_of_several_layers_have_no_figures(graph):
    """The engine does not tell which part of a node is in which kernel."""
    found = with_work(graph, [row("k1", "first"), row("k2", "first", "act"), row("k3", "second")])
    assert [one.flops for one in found] == [None, None, SECOND]


def test_an_open_batch_is_filled_in(path):
    [found] = layers_with_work(str(path), path.parent, 3, [row("second", "second")])
    assert found.flops == 3 * SECOND
