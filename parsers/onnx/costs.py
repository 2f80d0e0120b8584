"""Count what the nodes of a model cost: arithmetic operations, bytes moved, and work per byte.

Bytes are those of a given precision. Each node is counted as if it ran alone: it reads every input
and every weight once and writes every output once. Layers that TensorRT fuses move less; the edges
of a part are the least that it must move.

A multiply-add is two operations, as NVIDIA and most papers on hardware count; papers on networks
often count it as one and still write FLOPs. A bias is where the sum begins, so it costs nothing.

Source:
    Shapes by "Operators", ONNX documentation.
"""

import math
from collections.abc import Collection, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Literal

import msgspec
from pydantic import NonNegativeFloat, NonNegativeInt

from ..records import Record
from .graph import Graph, Node, Tensor

CostPrecision = Literal["fp32", "fp16", "int8"]
_BITS = {"fp32": 32, "fp16": 16, "int8": 8}
FLOATS = ("bfloat16", "float16", "float32", "float64")
_PRODUCTS = frozenset({"Conv", "ConvInteger", "ConvTranspose", "Gemm", "MatMul", "MatMulInteger"})
# One interpolation between two numbers: a difference, a product, a sum.
_INTERPOLATION = 3


class OperatorCost(Record):
    """Operations and bytes of an ONNX operator; see ``operators.toml``."""

    flops: int | None = None
    input_flops: int | None = None
    data_inputs: int | None = None
    fuses: bool = False
    moves: Literal["nothing", "picked"] | None = None


class NodeCost(Record):
    """Work and bytes of a node per inference.

    Attributes:
        flops: Arithmetic operations; a multiply-add is two. None if a shape is open or the
            operator has no figure.
        multiply_adds: Those of convolutions and matrix products, included in ``flops``.
        moved_bytes: Sum of input, weight and output bytes; each tensor is read once.
    """

    index: NonNegativeInt
    flops: NonNegativeInt | None = None
    multiply_adds: NonNegativeInt | None = None
    input_bytes: NonNegativeInt | None = None
    weight_bytes: NonNegativeInt | None = None
    output_bytes: NonNegativeInt | None = None
    moved_bytes: NonNegativeInt | None = None
    flops_per_byte: NonNegativeFloat | None = None


class ModelWork(Record):
    """Work of a model per inference, as an engine does it.

    Attributes:
        flops: Sum over the nodes that have a figure.
        moved_bytes: What the kernels of an engine move at least: each reads the elements that it
            needs and its weights once, and writes its outputs once. None if a size is unknown.
    """

    flops: NonNegativeInt
    moved_bytes: NonNegativeInt | None = None


def model_work(graph: Graph, precision: CostPrecision) -> ModelWork:
    """Count a model whose element-wise nodes run in the kernel of the node before them.

    So TensorRT fuses them, on the GPU and on the DLA. The parts of a ``Concat`` are written where
    the whole belongs, so it moves nothing but what a ``Resize`` made: TensorRT copies that. Inputs
    and outputs of the model are in the types of its file.
    """
    work = 0
    moved: list[int | None] = []
    for node in graph.nodes:
        if is_constant(graph, node):
            continue
        work += flops(graph, node) or 0
        if node.op == "Conv":
            moved.append(-_skipped(graph, node, precision))
        if node.op != "Concat":
            moved += _moved(graph, node, precision)
            continue
        for part in graph.varying_inputs(node):
            maker = graph.maker(part.name)
            if maker is not None and maker.op == "Resize":
                moved += 2 * [_size(part, precision)]
    total = _sum(moved)
    fused = _size_of_all(map(graph.tensor, _fused_away(graph)), precision)
    edge = _tensors(graph, (*graph.inputs, *graph.outputs))
    in_file = _sum(tensor.size_bytes for tensor in edge)
    at_precision = _size_of_all(edge, precision)
    if total is None or fused is None or in_file is None or at_precision is None:
        return ModelWork(flops=work)
    return ModelWork(flops=work, moved_bytes=total - 2 * fused + in_file - at_precision)


def _fused_away(graph: Graph) -> list[str]:
    """Return the tensors that only pass from a node to an element-wise one in the same kernel."""
    names = []
    for node in graph.nodes:
        if not _operator(node).fuses:
            continue
        latest: Node | None = None
        for tensor in graph.varying_inputs(node):
            maker = graph.maker(tensor.name)
            if maker is None or maker.op == "Concat" or graph.sole_reader(maker) is not node:
                continue
            # A sum of two branches runs in the kernel of the later one.
            if latest is None or maker.index > latest.index:
                latest = maker
        if latest is not None:
            names += [name for name in latest.outputs if name in node.inputs]
    return names


def _skipped(graph: Graph, convolution: Node, precision: CostPrecision) -> int:
    """Return the bytes of the input that a stride beyond the kernel skips."""
    given = graph.input(convolution, 0)
    whole = _size(given, precision) or 0
    read = whole
    kernel = (graph.input(convolution, 1).lengths or ())[2:]
    made = (graph.output(convolution).lengths or ())[2:]
    for width, before, after in zip(kernel, (given.lengths or ())[2:], made, strict=False):
        if width * after < before:
            read = read * width * after // before
    return whole - read


def is_constant(graph: Graph, node: Node) -> bool:
    """Return whether TensorRT computes a node once, when it builds the engine."""
    outputs = _tensors(graph, node.outputs)
    return bool(outputs) and all(tensor.is_constant for tensor in outputs)


def node_cost(graph: Graph, node: Node, precision: CostPrecision) -> NodeCost:
    """Count one node, with real numbers in the given precision."""
    work = flops(graph, node)
    pairs = None
    if work is not None:
        pairs = multiply_adds(graph, node)
    input_bytes, weight_bytes, output_bytes = _moved(graph, node, precision)
    moved_bytes = _sum((input_bytes, weight_bytes, output_bytes))
    return NodeCost(
        index=node.index,
        flops=work,
        multiply_adds=pairs,
        input_bytes=input_bytes,
        weight_bytes=weight_bytes,
        output_bytes=output_bytes,
        moved_bytes=moved_bytes,
        flops_per_byte=ratio(work, moved_bytes),
    )


def _moved(
    graph: Graph, node: Node, precision: CostPrecision
) -> tuple[int | None, int | None, int | None]:
    """Return the bytes of inputs, weights and outputs of a node; None where a size is unknown."""
    if node.domain or node.has_subgraph:
        return None, None, None
    moves = _operator(node).moves
    if moves == "nothing":
        return 0, 0, 0
    written = _size_of_all(_tensors(graph, node.outputs), precision)
    data = _tensors(graph, dict.fromkeys(_data(node)))
    varying = [tensor for tensor in data if not tensor.is_constant]
    if moves != "picked":
        weights = [tensor for tensor in data if tensor.is_constant]
        return _size_of_all(varying, precision), _size_of_all(weights, precision), written
    # Only the elements that it returns are read of its first input, and the indices of others.
    first = graph.input(node, 0)
    indices = [tensor for tensor in varying if tensor.name != first.name]
    if node.op == "Slice":
        indices = []
    read = _size_of_all(indices, precision)
    if first.is_constant:
        return read, written, written
    return _sum((read, written)), 0, written


def multiply_adds(graph: Graph, node: Node) -> int | None:
    """Return the multiply-adds of a node, 0 unless it is a convolution or a matrix product.

    They are those of one inference at the graph's batch; None if a shape is open.
    """
    if node.domain or node.op not in _PRODUCTS:
        return 0
    outputs, given = graph.output(node).elements, graph.input(node, 0)
    if node.op == "Gemm":
        # Outputs (m, n) by the inner length, of a first matrix (m, k) or, turned, (k, m).
        inner_axis = 0 if node.attribute("transA", int) else 1
        return _times(outputs, given.length(inner_axis))
    if node.op.startswith("MatMul"):
        # Outputs (…, m, n) by the inner length, the last of the first factor (…, m, k).
        return _times(outputs, given.length(-1))
    weight_lengths = graph.input(node, 1).lengths
    if not weight_lengths:
        return None
    channel_weights = math.prod(weight_lengths[1:])
    if node.op == "ConvTranspose":
        # Inputs (n, c, …) by weights (c, m / groups, kernel…) of one input channel.
        return _times(given.elements, channel_weights)
    # Outputs (n, m, …) by weights (m, c / groups, kernel…) of one output channel.
    return _times(outputs, channel_weights)


def flops(graph: Graph, node: Node) -> int | None:
    """Return the arithmetic operations of a node.

    They are those of one inference at the graph's batch; None if a shape is open or the operator
    has no figure in ``operators.toml``.
    """
    if node.domain or node.has_subgraph:
        return None
    if node.op in _PRODUCTS:
        return _times(2, multiply_adds(graph, node))
    operator = _operator(node)
    if operator.input_flops is not None:
        return _times(graph.input(node, 0).elements, operator.input_flops)
    each = operator.flops
    if node.op == "Resize":
        each = _interpolations(graph, node)
    elif node.op in ("AveragePool", "MaxPool", "LpPool"):
        each = math.prod(node.attribute("kernel_shape", tuple) or (1,))
    elif node.op in ("Sum", "Mean"):
        each = len(node.inputs) - (node.op == "Sum")
    if each == 0:
        return 0
    return _times(graph.output(node).elements, each)


def channels(graph: Graph, node: Node) -> tuple[int, int] | None:
    """Return the channels of input and output of a convolution; None if unknown."""
    weight = graph.input(node, 1)
    first, second = weight.length(0), weight.length(1)
    if first is None or second is None or min(first, second, node.groups) < 1:
        return None
    if node.op == "Conv":
        return second * node.groups, first
    return first, second * node.groups


def convolution_kind(graph: Graph, node: Node) -> Literal["pointwise", "depthwise", "grouped", ""]:
    """Return whether a convolution has a kernel of 1 × 1, or groups, of one channel or more."""
    if node.groups > 1:
        ends = channels(graph, node)
        if ends is not None and ends[0] == node.groups:
            return "depthwise"
        return "grouped"
    kernel = (graph.input(node, 1).shape or ())[2:]
    if kernel and set(kernel) == {1}:
        return "pointwise"
    return ""


def edge_bytes(
    graph: Graph, indices: Collection[int], edge: Iterable[str], precision: CostPrecision
) -> int | None:
    """Return the bytes of the tensors on the edge of some nodes, and of their weights, each once.

    It is None if a size is unknown.
    """
    names = (*_weights(graph, indices), *dict.fromkeys(edge))
    return _size_of_all([graph.tensor(name) for name in names], precision)


@cache
def operator_costs() -> Mapping[str, OperatorCost]:
    """Return the cost of each operator that has a figure."""
    data = Path(__file__).with_name("operators.toml").read_bytes()
    tables: dict[str, object] = msgspec.toml.decode(data)
    return {name: OperatorCost.model_validate(table) for name, table in tables.items()}


def _operator(node: Node) -> OperatorCost:
    return operator_costs().get(node.op, OperatorCost())


def _data(node: Node) -> tuple[str, ...]:
    return node.inputs[: _operator(node).data_inputs]


def _weights(graph: Graph, indices: Collection[int]) -> dict[str, None]:
    """Return the constants that nodes read as data, each once; a view reads nothing."""
    weights: dict[str, None] = {}
    for node in graph.nodes:
        moves = _operator(node).moves
        if node.index not in indices or moves == "nothing":
            continue
        names = _data(node)
        if moves == "picked":
            names = names[:1]
        for name in names:
            if graph.tensor(name).is_constant:
                weights[name] = None
    return weights


def _tensors(graph: Graph, names: Iterable[str]) -> list[Tensor]:
    """Return tensors by their names; an omitted one has none."""
    return [graph.tensor(name) for name in names if name]


def _size_of_all(tensors: Iterable[Tensor], precision: CostPrecision) -> int | None:
    """Return the bytes of tensors; None if one is unknown."""
    return _sum(_size(tensor, precision) for tensor in tensors)


def _size(tensor: Tensor, precision: CostPrecision) -> int | None:
    """Return bytes: real numbers at the precision, others in their own type."""
    if tensor.dtype not in FLOATS:
        return tensor.size_bytes
    if tensor.elements is None:
        return None
    return tensor.elements * _BITS[precision] // 8


def _interpolations(graph: Graph, node: Node) -> int | None:
    """Return operations per element: 0 for nearest, 3 · (2^axes − 1) for linear."""
    mode = node.attribute("mode", str) or "nearest"
    if mode == "nearest":
        return 0
    given, made = graph.input(node, 0).shape, graph.output(node).shape
    if mode != "linear" or not given or not made:
        return None
    axes = sum(before != after for before, after in zip(given, made, strict=False))
    return _INTERPOLATION * ((1 << axes) - 1)


def _sum(parts: Iterable[int | None]) -> int | None:
    """Return the sum; None if a part is unknown."""
    total = 0
    for part in parts:
        if part is None:
            return None
        total += part
    return total


def _times(factor: int | None, other: int | None) -> int | None:
    """Return the product; None if a factor is unknown."""
    if factor is None or other is None:
        return None
    return factor * other


def ratio(count: int | None, per: int | None) -> float | None:
    """Return the quotient of two counts; None if one is unknown or the second is 0."""
    if count is None or not per:
        return None
    return count / per
