"""The work of a whole model whose element-wise nodes run in the kernel before them, by hand."""

import pytest

from tegrascope.parsers.onnx.costs import model_work
from tegrascope.parsers.onnx.graph import Graph, Node, Tensor


def graph_of(nodes, shapes, weights=(), inputs=("x",), outputs=("y",)):
    """Return a graph of (operator, inputs, outputs) with the shapes of its tensors."""
    made = tuple(
        Node(index=at, name=f"n{at}", op=op, inputs=tuple(read), outputs=tuple(written))
        for at, (op, read, written) in enumerate(nodes)
    )
    tensors = {
        name: Tensor(name=name, dtype="float32", shape=shape, is_constant=name in weights)
        for name, shape in shapes.items()
    }
    return Graph(inputs=inputs, outputs=outputs, nodes=made, tensors=tensors)


MAP = (1, 8, 4, 4)  # 128 elements
FILTER = (8, 8, 1, 1)  # 64
PRODUCTS = 2 * 128 * 8


def test_element_wise_node_runs_in_the_kernel_before_it():
    graph = graph_of(
        [("Conv", "xw", "c"), ("Relu", "c", "y")],
        {"x": MAP, "w": FILTER, "c": MAP, "y": MAP},
        weights="w",
    )
    work = model_work(graph, "fp32")
    assert work.flops == PRODUCTS + 128
    assert work.moved_bytes == 4 * (128 + 64 + 128)
    # The input and the output stay float32.
    assert model_work(graph, "int8").moved_bytes == 4 * 128 + 64 + 4 * 128


def test_sum_of_two_branches_runs_in_the_later_one():
    """The earlier branch is written and read again."""
    graph = graph_of(
        [("Conv", "xw", "a"), ("Conv", "xv", "b"), ("Add", "ab", "s"), ("Relu", "s", "y")],
        {"x": MAP, "w": FILTER, "v": FILTER, "a": MAP, "b": MAP, "s": MAP, "y": MAP},
        weights="wv",
    )
    first, second = 128 + 64 + 128, 128 + 64 + 128 + 128
    assert model_work(graph, "fp32").moved_bytes == 4 * (first + second)


def test_tensor_with_two_readers_is_written():
    graph = graph_of(
        [("Conv", "xw", "c"), ("Relu", "c", "y"), ("Sigmoid", "c", "z")],
        {"x": MAP, "w": FILTER, "c": MAP, "y": MAP, "z": MAP},
        weights="w",
        outputs=("y", "z"),
    )
    assert model_work(graph, "fp32").moved_bytes == 4 * (128 + 64 + 128 + 2 * 256)


def test_output_of_the_model_is_written():
    graph = graph_of(
        [("Conv", "xw", "c"), ("Relu", "c", "y")],
        {"x": MAP, "w": FILTER, "c": MAP, "y": MAP},
        weights="w",
        outputs=("c", "y"),
    )
    assert model_work(graph, "fp32").moved_bytes == 4 * (128 + 64 + 128 + 256)


def test_parts_of_a_concat_are_written_in_place():
    """The node after it reads the whole, which is not written again."""
    graph = graph_of(
        [("Conv", "xw", "a"), ("Conv", "xv", "b"), ("Concat", "ab", "c"), ("Conv", "cu", "y")],
        {
            **dict.fromkeys("xaby", MAP),
            "c": (1, 16, 4, 4),
            "w": FILTER,
            "v": FILTER,
            "u": (8, 16, 1, 1),
        },
        weights="wvu",
    )
    branch = 128 + 64 + 128
    assert model_work(graph, "fp32").moved_bytes == 4 * (2 * branch + 256 + 128 + 128)


@pytest.mark.parametrize(
    ("kernel", "given", "made", "read"),
    [(1, 8, 4, 16), (1, 7, 4, 16), (2, 8, 4, 64), (3, 8, 4, 64), (3, 8, 8, 64), (1, 8, 10, 64)],
)
def test_elements_between_the_strides_are_not_read(kernel, given, made, read):
    graph = graph_of(
        [("Conv", "xw", "y")],
        {"x": (1, 1, given, given), "w": (1, 1, kernel, kernel), "y": (1, 1, made, made)},
        weights="w",
    )
    assert model_work(graph, "fp32").moved_bytes == 4 * (read + kernel**2 + made**2)


def test_enlarged_part_of_a_concat_is_copied():
    """TensorRT writes it by itself, then reads it and writes it into the whole."""
    graph = graph_of(
        [("Resize", "x", "a"), ("Conv", "xw", "b"), ("Concat", "ab", "y")],
        {**dict.fromkeys("xab", MAP), "y": (1, 16, 4, 4), "w": FILTER},
        weights="w",
    )
    resize, convolution, copy = 128 + 128, 128 + 64 + 128, 128 + 128
    assert model_work(graph, "fp32").moved_bytes == 4 * (resize + convolution + copy)


def test_open_shape_leaves_the_bytes_unknown():
    graph = graph_of(
        [("Conv", "xw", "c"), ("Relu", "c", "y")],
        {"x": ("n", 8, 4, 4), "w": FILTER, "c": ("n", 8, 4, 4), "y": MAP},
        weights="w",
    )
    assert model_work(graph, "fp32").moved_bytes is None
