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
    """What an ONNX operator computes and moves; see ``operators.toml``."""

    flops: int | None = None
    input_flops: int | None = None
    data_inputs: int | None = None
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


def is_constant(graph: Graph, node: Node) -> bool:
    """Return whether TensorRT computes a node once, when it builds the engine."""
    made = [graph.tensor(name) for name in node.outputs if name]
    return bool(made) and all(one.is_constant for one in made)


def node_cost(graph: Graph, node: Node, precision: CostPrecision) -> NodeCost:
    """Count one node, with real numbers in the given precision."""
    work, moves = flops(graph, node), _operator(node).moves
    tensors = [graph.tensor(name) for name in dict.fromkeys(_data(node)) if name]
    read: int | None = 0
    weights: int | None = 0
    written: int | None = 0
    if node.domain or node.has_subgraph:
        read = weights = written = None
    elif moves != "nothing":
        written = _sum(_size(graph.tensor(name), precision) for name in node.outputs if name)
        if moves == "picked":
            indices = tensors[1:] if node.op != "Slice" else []
            tensors = [tensor for tensor in indices if not tensor.is_constant]
        read = _sum(_size(tensor, precision) for tensor in tensors if not tensor.is_constant)
        weights = _sum(_size(tensor, precision) for tensor in tensors if tensor.is_constant)
        if moves == "picked" and graph.input(node, 0).is_constant:
            weights = _sum((weights, written))
        elif moves == "picked":
            read = _sum((read, written))
    moved = _sum((read, weights, written))
    return NodeCost(
        index=node.index,
        flops=work,
        multiply_adds=None if work is None else multiply_adds(graph, node),
        input_bytes=read,
        weight_bytes=weights,
        output_bytes=written,
        moved_bytes=moved,
        flops_per_byte=ratio(work, moved),
    )


def multiply_adds(graph: Graph, node: Node) -> int | None:
    """Return the multiply-adds of a node, 0 unless it is a convolution or a matrix product.

    They are those of one inference at the graph's batch; None if a shape is open.
    """
    if node.domain or node.op not in _PRODUCTS:
        return 0
    made, given = graph.output(node).elements, graph.input(node, 0)
    if node.op == "Gemm":
        # Outputs (m, n) by the inner length, of a first matrix (m, k) or, turned, (k, m).
        return _times(made, given.length(0 if node.attribute("transA", int) else 1))
    if node.op.startswith("MatMul"):
        # Outputs (…, m, n) by the inner length, the last of the first factor (…, m, k).
        return _times(made, given.length(-1))
    # Outputs (n, m, …) by weights (m, c / groups, kernel…) of one output channel; transposed,
    # inputs (n, c, …) by weights (c, m / groups, kernel…) of one input channel.
    lengths = graph.input(node, 1).lengths
    each = math.prod(lengths[1:]) if lengths else None
    return _times(given.elements if node.op == "ConvTranspose" else made, each)


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
    return 0 if each == 0 else _times(graph.output(node).elements, each)


def channels(graph: Graph, node: Node) -> tuple[int, int] | None:
    """Return the channels of input and output of a convolution; None if unknown."""
    weight = graph.input(node, 1)
    first, second = weight.length(0), weight.length(1)
    if first is None or second is None or min(first, second, node.groups) < 1:
        return None
    ends = first, second * node.groups
    return ends[::-1] if node.op == "Conv" else ends


def convolution_kind(graph: Graph, node: Node) -> Literal["pointwise", "depthwise", "grouped", ""]:
    """Return whether a convolution has a kernel of 1 × 1, or groups, of one channel or more."""
    if node.groups > 1:
        ends = channels(graph, node)
        return "depthwise" if ends is not None and ends[0] == node.groups else "grouped"
    kernel = (graph.input(node, 1).shape or ())[2:]
    return "pointwise" if kernel and all(side == 1 for side in kernel) else ""


def edge_bytes(
    graph: Graph, indices: Collection[int], edge: Iterable[str], precision: CostPrecision
) -> int | None:
    """Return the bytes of the tensors on the edge of some nodes, and of their weights, each once.

    It is None if a size is unknown.
    """
    names = (*_weights(graph, indices), *dict.fromkeys(edge))
    return _sum(_size(graph.tensor(name), precision) for name in names)


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
    found: dict[str, None] = {}
    for node in graph.nodes:
        moves = _operator(node).moves
        if node.index in indices and moves != "nothing":
            names = _data(node)[: 1 if moves == "picked" else None]
            found |= dict.fromkeys(name for name in names if graph.tensor(name).is_constant)
    return found


def _size(tensor: Tensor, precision: CostPrecision) -> int | None:
    """Return bytes: real numbers at the precision, others in their own type."""
    if tensor.dtype in FLOATS:
        elements = tensor.elements
        return None if elements is None else elements * _BITS[precision] // 8
    return tensor.size_bytes


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
    known = list(parts)
    return None if None in known else sum(part or 0 for part in known)


def _times(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one * other


def ratio(one: int | None, other: int | None) -> float | None:
    """Return the quotient of two counts; None if one is unknown or the second is 0."""
    return None if one is None or not other else one / other
