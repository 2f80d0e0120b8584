"""How many operations a node takes, by its operator and its shapes.

A multiplication with its addition is two operations, as NVIDIA and most papers on hardware count;
papers on networks often count it as one and still write FLOPs. A bias is where the sum begins, so
it costs nothing. An operation that hardware looks up in a table, as a sigmoid, is one.

Source:
    Shapes by "Operators", ONNX documentation.
"""

import math
from collections.abc import Callable, Mapping

from ..onnx.graph import Graph, Node, Tensor

# What changes places and names, and computes nothing. A cast changes the form of a number alone.
# fmt: off
MOVES = frozenset({
    "Cast", "Concat", "Constant", "ConstantOfShape", "DepthToSpace", "Dropout", "Expand",
    "Flatten", "Gather", "GatherElements", "GatherND", "Identity", "Pad", "Reshape", "Shape",
    "Size", "Slice", "SpaceToDepth", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze",
})
# One operation an element of the output.
_ELEMENTWISE = frozenset({
    "Abs", "Add", "And", "Ceil", "Clip", "Cos", "Div", "Equal", "Erf", "Exp", "Floor", "Greater",
    "GreaterOrEqual", "Less", "LessOrEqual", "Log", "Max", "Min", "Mod", "Mul", "Neg", "Not",
    "Or", "Pow", "Reciprocal", "Relu", "Round", "Sigmoid", "Sign", "Sin", "Softplus", "Sqrt",
    "Sub", "Tan", "Tanh", "Where", "Xor",
})
# fmt: on
# The same, more than one.
_PER_OUTPUT: Mapping[str, int] = {
    "BatchNormalization": 2,  # a multiplication and an addition: the rest is known beforehand
    "DequantizeLinear": 2,
    "Elu": 3,
    "Gelu": 5,  # divided, looked up, one more, twice multiplied
    "GroupNormalization": 7,
    "HardSigmoid": 3,
    "HardSwish": 4,
    "InstanceNormalization": 7,
    "LayerNormalization": 7,  # mean 1, difference 1, its square summed 2, scale 1, gain and bias 2
    "LeakyRelu": 2,
    "LogSoftmax": 5,
    "Mish": 3,
    "PRelu": 2,
    "QuantizeLinear": 2,
    "RMSNormalization": 4,
    "Selu": 4,
    "Softmax": 5,  # largest, difference, power of e, sum, quotient
    "Softsign": 3,
    "Swish": 2,
    "ThresholdedRelu": 2,
}
# One operation an element of the input.
_PER_INPUT = frozenset(
    {"ArgMax", "ArgMin", "CumSum", "GlobalAveragePool", "GlobalMaxPool", "ReduceMax", "ReduceMean"}
    | {"ReduceMin", "ReduceProd", "ReduceSum"}
)
# The least that one interpolation between two numbers takes: a difference, a product, a sum.
_INTERPOLATION = 3


def multiply_adds(graph: Graph, node: Node) -> int | None:
    """Return the pairs of a multiplication and an addition that a node takes.

    Args:
        graph: With its shapes.
        node: Any; one that is no convolution and no product of matrices takes 0.

    Returns:
        The pairs of one inference at the graph's batch; ``None`` where a shape is open.
    """
    counter = None if node.domain else _PRODUCTS.get(node.op)
    return 0 if counter is None else counter(graph, node)


def flops(graph: Graph, node: Node) -> int | None:
    """Return the operations that a node takes.

    Args:
        graph: With its shapes.
        node: Any.

    Returns:
        The operations of one inference at the graph's batch; ``None`` where a shape is open or
        nobody has counted for the operator.
    """
    if node.domain or node.has_subgraph:
        return None
    if node.op in _PRODUCTS:
        pairs = multiply_adds(graph, node)
        return None if pairs is None else 2 * pairs
    if node.op in MOVES:
        return 0
    made, given = _elements(graph.output(node)), _elements(graph.input(node, 0))
    if node.op in _PER_INPUT:
        return given
    if node.op == "Resize":
        each = _interpolations(graph, node)
    elif node.op in ("AveragePool", "MaxPool", "LpPool"):
        each = math.prod(node.integers("kernel_shape") or (1,))
    elif node.op in ("Sum", "Mean"):
        each = len(node.inputs) - (node.op == "Sum")
    else:
        each = 1 if node.op in _ELEMENTWISE else _PER_OUTPUT.get(node.op)
    return 0 if each == 0 else _times(made, each)


def _convolution(graph: Graph, node: Node) -> int | None:
    """Multiply outputs (n, m, …) by weights (m, c / groups, kernel…) of one output channel."""
    weight, made = graph.input(node, 1), graph.output(node)
    return _times(_elements(made), _elements_after_first(weight))


def _transposed(graph: Graph, node: Node) -> int | None:
    """Multiply inputs (n, c, …) by weights (c, m / groups, kernel…) of one input channel."""
    weight, given = graph.input(node, 1), graph.input(node, 0)
    return _times(_elements(given), _elements_after_first(weight))


def _gemm(graph: Graph, node: Node) -> int | None:
    """Multiply outputs (m, n) by the inner length, of a first matrix (m, k) or, turned, (k, m)."""
    inner = _length(graph.input(node, 0), 0 if node.integer("transA", 0) else 1)
    return _times(_elements(graph.output(node)), inner)


def _matrices(graph: Graph, node: Node) -> int | None:
    """Multiply outputs (…, m, n) by the inner length, the last of the first factor (…, m, k)."""
    return _times(_elements(graph.output(node)), _length(graph.input(node, 0), -1))


_PRODUCTS: Mapping[str, Callable[[Graph, Node], int | None]] = {
    "Conv": _convolution,
    "ConvInteger": _convolution,
    "ConvTranspose": _transposed,
    "Gemm": _gemm,
    "MatMul": _matrices,
    "MatMulInteger": _matrices,
}


def _interpolations(graph: Graph, node: Node) -> int | None:
    """Return what an element takes: nothing at the nearest, 3 · (2^axes − 1) between neighbours."""
    mode = node.word("mode", "nearest")
    if mode == "nearest":
        return 0
    given, made = graph.input(node, 0), graph.output(node)
    if mode != "linear" or given is None or made is None or not (given.shape and made.shape):
        return None
    axes = sum(before != after for before, after in zip(given.shape, made.shape, strict=False))
    return _INTERPOLATION * ((1 << axes) - 1)


def _elements(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.elements


def _elements_after_first(tensor: Tensor | None) -> int | None:
    if tensor is None or not tensor.shape or not tensor.is_fixed:
        return None
    return math.prod(length for length in tensor.shape[1:] if isinstance(length, int))


def _length(tensor: Tensor | None, axis: int) -> int | None:
    if tensor is None or not tensor.shape or not -len(tensor.shape) <= axis < len(tensor.shape):
        return None
    length = tensor.shape[axis]
    return length if isinstance(length, int) else None


def _times(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one * other
