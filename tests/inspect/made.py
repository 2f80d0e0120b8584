"""Small ONNX models for the rules of the DLA, and their inspection."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

from tegrascope.collectors.models.onnx_graph import read_graph
from tegrascope.workbench.inspect.judge import inspect_graph
from tegrascope.workbench.inspect.rules import Inspection, JudgedNode, rules_of

FLOAT, HALF, INT64 = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.INT64
TARGET = "target"
Shape = Sequence[int | str]
Weights = Mapping[str, tuple[int, ...] | numpy.ndarray]


def node(op: str, inputs: str, outputs: str, name: str = "", **attributes: Any) -> onnx.NodeProto:
    """Make a node; inputs and outputs are given as words, ``-`` for one left out."""
    given = ["" if one == "-" else one for one in inputs.split()]
    return helper.make_node(op, given, outputs.split(), name=name, **attributes)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Shape],
    weights: Weights | None = None,
    *,
    opset: int = 17,
    kind: int = FLOAT,
    domains: Sequence[str] = (),
) -> onnx.ModelProto:
    """Make a model that returns what its last node makes.

    Args:
        weights: Name to a shape, without contents, or to the contents.
        kind: Type of inputs and of weights that are given by shape.
        domains: Further domains of its nodes.
    """
    graph = helper.make_graph(
        list(nodes),
        "made",
        [helper.make_tensor_value_info(name, kind, shape) for name, shape in inputs.items()],
        [helper.make_empty_tensor_value_info(name) for name in nodes[-1].output if name],
        [_weight(name, given, kind) for name, given in (weights or {}).items()],
    )
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(one, 1) for one in domains)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def _weight(name: str, given: tuple[int, ...] | numpy.ndarray, kind: int) -> onnx.TensorProto:
    if isinstance(given, tuple):
        return onnx.TensorProto(name=name, dims=given, data_type=kind)
    return numpy_helper.from_array(given, name)


def one(
    op: str,
    x: Shape = (1, 16, 32, 32),
    weights: Weights | None = None,
    *,
    opset: int = 17,
    kind: int = FLOAT,
    outputs: str = "y",
    **attributes: Any,
) -> onnx.ModelProto:
    """Make a model of one node, named ``target``; its weights follow its input in order."""
    names = " ".join(["x", *(weights or {})])
    made = node(op, names, outputs, TARGET, **attributes)
    return model([made], {"x": x}, weights, opset=opset, kind=kind)


def inspected(
    made: onnx.ModelProto,
    directory: Path,
    *,
    line: str = "10.3",
    precision: Any = None,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    is_strict: bool = False,
) -> Inspection:
    """Write a model, read it as the command does, and judge it."""
    path = directory / "made.onnx"
    onnx.save(made, path)
    graph = read_graph(path, shapes)
    return inspect_graph(
        graph,
        rules_of(line),
        model="made",
        reason="",
        precision=precision,
        is_strict=is_strict,
    )


def target_of(inspection: Inspection) -> JudgedNode:
    """Return the judgement of the node named ``target``."""
    (found,) = [one for one in inspection.nodes if one.name == TARGET]
    return found


def rules_broken(judged: JudgedNode) -> set[str]:
    """Return the names of the rules that a node breaks or leaves open."""
    return {finding.rule for finding in judged.findings}


def array(*values: float, kind: Any = numpy.float32) -> numpy.ndarray:
    """Return the contents of a constant of one dimension."""
    return numpy.array(values, kind)


def axes(*values: int) -> numpy.ndarray:
    """Return a constant of integers."""
    return numpy.array(values, numpy.int64)
