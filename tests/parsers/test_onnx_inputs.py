"""Inputs of an ONNX file are read without the onnx package."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tegrascope.parsers.errors import UnreadableError
from tegrascope.parsers.onnx import ModelInput, read_model, read_nodes


def varint(value: int) -> bytes:
    found = b""
    while value > 127:
        found += bytes([value & 127 | 128])
        value >>= 7
    return found + bytes([value])


def part(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


def onnx_bytes(
    inputs: "dict[str, list[int | str | None]]",
    weights: "tuple[str, ...]" = (),
    operations: "tuple[str, ...]" = ("Conv",),
) -> bytes:
    """Write a model in its wire format, without the onnx package."""
    graph = b"".join(part(1, part(4, name.encode())) for name in operations)
    graph += b"".join(part(5, part(8, name.encode()) + part(9, b"\0" * 9)) for name in weights)
    for name, shape in inputs.items():
        dims = b""
        for length in shape:
            if length is None:
                dims += part(1, b"")
            elif isinstance(length, int):
                dims += part(1, varint(1 << 3) + varint(length))
            else:
                dims += part(1, part(2, length.encode()))
        tensor = varint(1 << 3) + varint(1) + part(2, dims)
        graph += part(11, part(1, name.encode()) + part(2, part(1, tensor)))
    return varint(1 << 3) + varint(8) + part(7, graph)


def test_inputs_are_read_without_the_package():
    data = onnx_bytes({"a": ["batch", 3, 224], "b": [None], "w": [1]}, weights=("w",))
    found = read_model(data)
    assert found.inputs == (
        ModelInput(name="a", shape=("batch", 3, 224)),
        ModelInput(name="b", shape=(None,)),
    )
    assert not found.is_quantised
    assert found.inputs[0].is_open
    assert not ModelInput(name="c", shape=(1, 2)).is_open


def test_quantised_models_are_known():
    assert read_model(onnx_bytes({}, operations=("Conv", "QuantizeLinear"))).is_quantised


def test_it_agrees_with_the_package():
    onnx = pytest.importorskip("onnx")
    made = onnx.helper.make_model(
        onnx.helper.make_graph(
            [onnx.helper.make_node("Add", ["x", "w"], ["y"], name="add")],
            "g",
            [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT16, ["n", 7, None])],
            [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT16, None)],
            [onnx.helper.make_tensor("w", onnx.TensorProto.FLOAT16, [1], [1.0])],
        )
    )
    (found,) = read_model(made.SerializeToString()).inputs
    assert found == ModelInput(name="x", shape=("n", 7, None))


@pytest.mark.parametrize("data", [b"", b"\0", b"{}", b"\xff" * 20, part(7, b"\x08"), part(7, b"")])
def test_an_invalid_file_is_refused(data):
    if data == part(7, b""):
        assert read_model(data).inputs == ()
        return
    with pytest.raises(UnreadableError):
        read_model(data)


@given(st.binary(max_size=200), st.integers(0, 200))
def test_no_bytes_are_fatal(noise, at):
    whole = onnx_bytes({"a": [1, "n"]}, weights=("w",))
    for data in (noise, whole[:at], whole[:at] + noise + whole[at:]):
        with contextlib.suppress(UnreadableError):
            read_model(data)


def test_nodes_are_read_with_the_names_that_tensorrt_gives_them():
    onnx = pytest.importorskip("onnx")
    made = [
        onnx.helper.make_node("Relu", ["x"], ["a"], name="relu"),
        onnx.helper.make_node("Split", ["a"], ["b", "c"]),
    ]
    graph = onnx.helper.make_graph(made, "g", [], [])
    data = onnx.helper.make_model(graph).SerializeToString()
    assert list(read_nodes(data)) == [("relu", "Relu"), ("node_of_b", "Split")]
    with pytest.raises(UnreadableError):
        list(read_nodes(part(7, part(1, part(3, b"\xff")))))
