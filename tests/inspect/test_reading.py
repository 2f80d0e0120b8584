"""A model is read without its weights; an error in a damaged one is one line."""

import contextlib
import os
import subprocess
import sys

import numpy
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import numpy_helper

from tegrascope.collectors.models.files import external_files, read_graph_apart
from tegrascope.collectors.models.onnx_graph import read_graph
from tegrascope.parsers.errors import PIP_INSTALL, UnreadableError, UserError
from tegrascope.parsers.onnx import KEPT_BYTES, slim, write_varint

from .made import FLOAT, axes, model, node, one

WEIGHT = numpy.zeros((64, 64, 3, 3), numpy.float32)
GOOD = one("Conv", (1, 64, 8, 8), {"w": WEIGHT}).SerializeToString()


def saved(made, directory, **how):
    path = directory / "made.onnx"
    onnx.save(made, path, **how)
    return path


def test_types_shapes_and_small_constants_are_read(tmp_path):
    nodes = [node("Conv", "x w", "a", "conv", pads=[1, 1, 1, 1]), node("Reshape", "a s", "y")]
    made = model(nodes, {"x": (1, 3, 8, 8)}, {"w": (4, 3, 3, 3), "s": axes(1, 4, 64)})
    graph = read_graph(saved(made, tmp_path))
    assert (graph.inputs, graph.outputs, graph.opsets) == (("x",), ("y",), {"": 17})
    conv, reshape = graph.nodes
    assert conv.attributes == {"pads": (1, 1, 1, 1)}
    assert (conv.name, reshape.name) == ("conv", "Reshape_1")
    weight = graph.input(conv, 1)
    assert (weight.shape, weight.dtype) == ((4, 3, 3, 3), "float32")
    assert weight.is_constant
    assert weight.size_bytes == 432
    assert graph.input(reshape, 1).values == (1, 4, 64)
    assert graph.output(reshape).shape == (1, 4, 64)
    assert not graph.output(reshape).is_constant
    assert (graph.producers["a"], graph.consumers["a"]) == (0, (1,))
    assert graph.input(conv, 2).name == ""


def test_weights_are_skipped():
    big = slim(GOOD)
    assert len(big) < KEPT_BYTES < len(GOOD)
    (weight,) = onnx.load_model_from_string(big).graph.initializer
    assert (list(weight.dims), weight.raw_data) == ([64, 64, 3, 3], b"")
    small = one("Conv", (1, 4, 8, 8), {"w": WEIGHT[:4, :4]}).SerializeToString()
    assert onnx.load_model_from_string(slim(small)) == onnx.load_model_from_string(small)


def test_contents_of_any_kind_and_place_are_skipped():
    made = one("Relu")
    weight = onnx.helper.make_tensor("f", FLOAT, [8192], [1.5] * 8192)
    made.graph.node.append(onnx.helper.make_node("Constant", [], ["c"], value=weight))
    made.graph.initializer.append(weight)
    assert len(made.SerializeToString()) > 65536
    assert len(slim(made.SerializeToString())) < 1024


def test_weights_in_other_files_are_not_read(tmp_path):
    made = one("Conv", (1, 64, 8, 8), {"w": WEIGHT})
    how = {"save_as_external_data": True, "location": "w.bin", "size_threshold": 0}
    path = saved(made, tmp_path, **how)
    (tmp_path / "w.bin").write_bytes(b"")
    graph = read_graph(path)
    assert graph.tensor("w").shape == (64, 64, 3, 3)
    assert graph.output(graph.nodes[0]).shape == (1, 64, 6, 6)
    (tmp_path / "w.bin").unlink()
    with pytest.raises(UserError, match=r"w\.bin, which is missing"):
        read_graph(path)


@pytest.mark.parametrize("content", [b"", b"no model\n", bytes(100), GOOD[:-500], b"\x08\x07"])
def test_an_invalid_file_is_one_line(content, tmp_path):
    path = tmp_path / "bad.onnx"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"bad\.onnx"):
        read_graph(path)


@settings(deadline=None)
@given(st.binary(max_size=300))
def test_no_bytes_are_fatal(data):
    with contextlib.suppress(UnreadableError):
        slim(data)


@settings(deadline=None, max_examples=50)
@given(st.integers(0, len(GOOD) - 1) | st.integers(0, 200), st.integers(0, 255))
def test_one_changed_byte_makes_no_traceback(tmp_path_factory, at, value):
    path = tmp_path_factory.mktemp("byte") / "made.onnx"
    path.write_bytes(GOOD[:at] + bytes([value]) + GOOD[at + 1 :])
    try:
        read_graph(path)
    except UserError as error:
        assert "\n" not in str(error)


def test_shapes_that_do_not_fit_are_reported(tmp_path):
    path = saved(one("Relu", ("n", 8, 4, 4)), tmp_path)
    for shapes, message in (
        ({"image": (1,)}, "no input is named 'image'"),
        ({"x": (1, 8)}, "has 4 dimensions, not 2"),
        ({"x": (1, 9, 4, 4)}, "fixed to 8 where 9"),
    ):
        with pytest.raises(UserError, match=message):
            read_graph(path, shapes)
    assert read_graph(path, {"x": (2, 8, 4, 4)}).output(read_graph(path).nodes[0]) is not None
    assert read_graph(path, {"x": (2, 8, 4, 4)}).tensor("y").shape == (2, 8, 4, 4)


def test_an_open_dimension_written_as_a_number_is_open(tmp_path):
    made = one("Relu", (1, 8, 4, 4))
    for dimension in made.graph.input[0].type.tensor_type.shape.dim[:1]:
        dimension.dim_value = -1
    graph = read_graph(saved(made, tmp_path))
    assert graph.tensor("x").shape == (None, 8, 4, 4)
    assert read_graph(saved(made, tmp_path), {"x": (3, 8, 4, 4)}).tensor("y").shape == (3, 8, 4, 4)


def test_a_shape_that_cannot_be_inferred_is_noted(tmp_path):
    nodes = [node("Conv", "x w", "a"), node("Relu", "a", "y")]
    made = model(nodes, {"x": (1, 3, 8, 8)}, {"w": (4, 5, 3, 3, 3)})
    graph = read_graph(saved(made, tmp_path))
    assert len(graph.nodes) == 2
    assert graph.tensor("y").shape is None
    (note,) = graph.notes
    assert note.startswith("the shapes of 2 tensors are unknown; the first is a, of the node Conv ")


@pytest.mark.parametrize("batch", [1, "n"])
def test_the_node_where_shapes_end_is_named(tmp_path, batch):
    """An operator that the model's opset lacks ends them, also behind an open batch."""
    nodes = [
        node("Relu", "x", "a", "before"),
        node("Gelu", "a", "b", "act"),
        node("Relu", "b", "y", "after"),
    ]
    graph = read_graph(saved(model(nodes, {"x": (batch, 8, 4, 4)}), tmp_path))
    (note,) = graph.notes
    assert note.startswith("the shapes of 2 tensors are unknown; the first is b, of the node Gelu ")
    assert f"'act' (the model has opset {graph.opsets['']})" in note


def test_constants_are_folded_through_what_exporters_write(tmp_path):
    nodes = [
        node("Constant", "", "two", value=numpy_helper.from_array(numpy.array(2.0, "f4"))),
        node("Constant", "", "ints", value_ints=[4, 6]),
        node("Cast", "ints", "f", to=FLOAT),
        node("Div", "f two", "half"),
        node("Floor", "half", "whole"),
        node("RandomNormalLike", "whole", "noise"),
        node("Mul", "x whole", "y"),
    ]
    graph = read_graph(saved(model(nodes, {"x": (1, 2)}), tmp_path))
    assert graph.tensor("whole").values == (2.0, 3.0)
    assert graph.tensor("whole").is_constant
    assert not graph.tensor("noise").is_constant


def test_nothing_large_is_computed(tmp_path):
    huge = axes(1 << 20, 1 << 20)
    nodes = [
        node("ConstantOfShape", "huge", "a"),
        node("Expand", "f huge", "b"),
        node("Tile", "pair huge", "c"),
        node("Range", "zero far unit", "d"),
        node("Range", "zero four unit", "e"),
        node("Relu", "x", "y"),
    ]
    numbers = {"zero": 0, "far": 1 << 40, "unit": 1, "four": 4}
    weights = {name: numpy.array(value, numpy.int64) for name, value in numbers.items()}
    weights |= {"huge": huge, "f": numpy.array(1.0, "f4"), "pair": numpy.zeros((2, 2), "f4")}
    graph = read_graph(saved(model(nodes, {"x": (1, 8)}, weights), tmp_path))
    assert all(graph.tensor(name).is_constant for name in "abcd")
    assert [graph.tensor(name).values for name in "abcde"] == [None] * 4 + [(0, 1, 2, 3)]


def test_no_runtime_is_imported(tmp_path):
    for name in ("onnxruntime", "tensorrt", "torch"):
        text = f"open({str(tmp_path / 'imported')!r}, 'a').write({name!r})\nraise ImportError"
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    path = saved(one("Relu"), tmp_path)
    command = [sys.executable, "-m", "tegrascope", "inspect", str(path), "--state-dir", "."]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert not (tmp_path / "imported").exists()


def test_a_missing_package_is_reported(tmp_path, monkeypatch):
    path = saved(one("Relu"), tmp_path)
    (tmp_path / "onnx.py").write_text("raise ModuleNotFoundError(name='onnx')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(UserError, match="onnx is not installed") as raised:
        read_graph_apart(path)
    assert raised.value.remedy == f"{PIP_INSTALL} onnx"


def test_a_child_reads_as_this_process_does(tmp_path):
    path = saved(one("Relu", ("n", 8, 4, 4)), tmp_path)
    assert read_graph_apart(path) == read_graph(path)
    assert read_graph_apart(path, {"x": (1, 8, 4, 4)}).tensor("y").shape == (1, 8, 4, 4)
    with pytest.raises(UserError, match="no input is named 'z'") as raised:
        read_graph_apart(path, {"z": (1,)})
    assert raised.value.remedy == "give --shape x:?x8x4x4, a number for each ?"


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("kill -9 $$", "onnx ended the process .* by signal 9"),
        ("exit 3", "by status 3"),
        ("exec sleep 60", r"gave no answer in 0\.5 s"),
    ],
)
def test_a_model_that_kills_its_reader_is_reported(script, message, tmp_path):
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    program.chmod(0o755)
    seconds = 0.5 if "sleep" in script else 60
    with pytest.raises(UserError, match=message):
        read_graph_apart(tmp_path / "made.onnx", seconds=seconds, reader=[str(program)])


def doubling_functions(count: int) -> list[onnx.FunctionProto]:
    """Return functions that each call the next one twice; the last has two nodes of its own."""
    opsets = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("own", 1)]
    functions = []
    for number in range(count):
        is_last = number == count - 1
        called, domain = ("Relu", "") if is_last else (f"f{number + 1}", "own")
        body = [node(called, "a", "t", domain=domain), node(called, "t", "b", domain=domain)]
        functions.append(onnx.helper.make_function("own", f"f{number}", ["a"], ["b"], body, opsets))
    return functions


def with_functions(nodes, functions, **given):
    made = model(nodes, {"x": (1, 4)}, domains=["own"], **given)
    made.functions.extend(functions)
    return made


def branch(*nodes):
    outputs = [onnx.helper.make_empty_tensor_value_info(name) for name in nodes[-1].output]
    return onnx.helper.make_graph(nodes, "branch", [], outputs)


CALL = node("f0", "x", "y", domain="own")
LARGE = onnx.helper.make_node("Constant", [], ["c"], value_ints=list(range(50_000)))
EXPANSIONS = {
    "functions": with_functions([CALL], doubling_functions(31)),
    "functions in a branch": with_functions(
        [node("If", "c", "y", then_branch=branch(CALL), else_branch=branch(CALL))],
        doubling_functions(31),
        weights={"c": numpy.array(True)},
    ),
    "bytes of a function": with_functions(
        [node("f0", "x", f"y{number}", domain="own") for number in range(4000)],
        [
            onnx.helper.make_function(
                *("own", "f0", ["a"], ["b"]),
                [LARGE, node("Relu", "a", "b")],
                [onnx.helper.make_opsetid("", 17)],
            )
        ],
    ),
}


@pytest.mark.parametrize("kind", EXPANSIONS)
def test_functions_are_counted_before_they_are_inlined(kind, tmp_path):
    """2 KB of functions can stand for 2^30 nodes."""
    path = saved(EXPANSIONS[kind], tmp_path)
    assert path.stat().st_size < 500_000
    with pytest.raises(
        UserError, match="over 1000000 nodes, or 256 MiB of them with its functions"
    ):
        read_graph(path)


def test_functions_that_call_each_other_often_are_inlined(tmp_path):
    graph = read_graph(saved(with_functions([CALL], doubling_functions(8)), tmp_path))
    assert [one.op for one in graph.nodes] == ["Relu"] * 256


def ones_along(axis: int) -> numpy.ndarray:
    shape = [1, 1, 1, 1]
    shape[axis] = 256
    return numpy.ones(shape, numpy.int64)


@pytest.mark.parametrize(
    "large",
    [
        node("Max", "w0 w1 w2 w3", "large"),
        onnx.helper.make_node("Concat", ["w0"] * 200_000, ["large"], axis=0),
        node("Where", "b w1 w2", "large"),
    ],
    ids=["broadcast", "concat", "where"],
)
def test_large_constants_are_not_computed(large, tmp_path):
    """Each input is small, and the result would be up to 32 GB."""
    weights = {f"w{axis}": ones_along(axis) for axis in range(4)}
    weights["b"] = ones_along(0).astype(bool)
    nodes = [large, node("Relu", "x", "y")]
    graph = read_graph_apart(
        saved(model(nodes, {"x": (1, 4)}, weights), tmp_path), most_bytes=400 << 20
    )
    assert graph.tensor("large").values is None
    assert graph.output(graph.nodes[1]).shape == (1, 4)


def test_reader_that_takes_too_much_memory_is_one_line(tmp_path):
    nodes = [node("Relu", "x" if at == 0 else f"t{at}", f"t{at + 1}") for at in range(20_000)]
    path = saved(model(nodes, {"x": (1, 4)}), tmp_path)
    with pytest.raises(UserError) as caught:
        read_graph_apart(path, most_bytes=1 << 20)
    assert "\n" not in str(caught.value)


def field(number: int, content: bytes) -> bytes:
    return write_varint(number << 3 | 2) + write_varint(len(content)) + content


def test_subgraphs_nested_too_deeply_are_one_line(tmp_path):
    graph = b""
    for _ in range(3000):
        graph = field(1, field(5, field(6, graph)))
    path = tmp_path / "deep.onnx"
    path.write_bytes(field(7, graph))
    for read in (read_graph, external_files):
        with pytest.raises(UserError, match=r"deep\.onnx cannot be read as ONNX"):
            read(path)


@pytest.mark.parametrize("name", [b"x", b"y", b"WORD", b"OPERATOR"])
def test_name_that_is_not_text_is_one_line(name, tmp_path):
    made = model([node("OPERATOR", "x", "y", "WORD", domain="own")], {"x": (1, 4)}, domains=["own"])
    data = made.SerializeToString()
    path = tmp_path / "made.onnx"
    tagged = bytes([len(name)]) + name
    path.write_bytes(data.replace(tagged, bytes([len(name)]) + b"\xff" * len(name)))
    # Some versions of the library refuse the file themselves.
    with pytest.raises(UserError, match=r"a name that is not UTF-8 text|cannot be read as ONNX"):
        read_graph(path)


def test_recursive_functions_are_one_line(tmp_path):
    opsets = [onnx.helper.make_opsetid("own", 1)]
    body = [node("Again", "a", "b", domain="own")]
    made = model([node("Again", "x", "y", domain="own")], {"x": (1, 4)}, domains=["own"])
    made.functions.append(onnx.helper.make_function("own", "Again", ["a"], ["b"], body, opsets))
    with pytest.raises(UserError, match="its functions cannot be inlined"):
        read_graph(saved(made, tmp_path))


def test_nodes_out_of_order_are_put_in_order(tmp_path):
    nodes = [node("Conv", "x w", "a", "conv"), node("Relu", "a", "b", "relu")]
    made = model(nodes, {"x": (1, 4, 8, 8)}, {"w": (4, 4, 1, 1)})
    made.graph.output[0].name = "b"
    made.graph.node.reverse()
    graph = read_graph(saved(made, tmp_path))
    assert [(one.index, one.name) for one in graph.nodes] == [(0, "conv"), (1, "relu")]
    assert graph.tensor("b").shape == (1, 4, 8, 8)
    assert any("not in an order" in note for note in graph.notes)


def test_a_tensor_that_a_subgraph_reads_comes_before_it(tmp_path):
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
def test_an_invalid_graph_is_refused(nodes, words, tmp_path):
    with pytest.raises(UserError, match=words):
        read_graph(saved(model(nodes, {"x": (1, 4, 8, 8)}), tmp_path))


def test_a_missing_opset_is_refused_and_a_newer_one_noted(tmp_path):
    made = one("Relu", (1, 4, 8, 8))
    made.opset_import[0].version = 999
    (note,) = read_graph(saved(made, tmp_path)).notes
    assert "opset 999; it is read as" in note
    del made.opset_import[:]
    with pytest.raises(UserError, match="does not name the opset"):
        read_graph(saved(made, tmp_path))


def test_a_size_that_no_integer_holds_is_unknown(tmp_path):
    huge = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2**40, 2**40])
    size = onnx.helper.make_tensor_value_info("n", onnx.TensorProto.INT64, [])
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Size", ["x"], ["n"])], "g", [huge], [size]
    )
    onnx.save(onnx.helper.make_model(graph), tmp_path / "huge.onnx")
    assert [node.op for node in read_graph(tmp_path / "huge.onnx").nodes] == ["Size"]
