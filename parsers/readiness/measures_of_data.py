"""Measures of layers that compute element by element, reduce, join, or normalize."""

from ..onnx.graph import Graph, Node, Shape, Tensor
from .layers import Layer, data_inputs, producer, sole_consumer
from .rules import Value

Measures = dict[str, tuple[Value, ...] | None]

_COMPARISONS = frozenset({"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"})
_HALVES = ("float16", "int8")
_IMAGE_RANK = 4
_NAMES = {-3: "channel", -2: "height", -1: "width"}


def activation(graph: Graph, node: Node, layer: Layer) -> Measures:
    """Measure an activation; what it is clipped to is an attribute, or a constant."""
    found: Measures = {"rank": _rank(graph.input(node, 0))}
    if layer.operation == "clip":
        found["clip_minimum"] = _limit(graph, node, "min", 1, float("-inf"))
        found["clip_maximum"] = _limit(graph, node, "max", 2, float("inf"))
    return found


def _limit(
    graph: Graph, node: Node, name: str, position: int, default: float
) -> tuple[Value, ...] | None:
    given = node.number(name)
    if given is not None:
        return (given,)
    tensor = graph.input(node, position)
    if tensor is None:
        return (default,)
    return None if tensor.values is None else tensor.values[:1]


def parametric_relu(graph: Graph, node: Node, _: Layer) -> Measures:
    """Measure a parametric ReLU."""
    data, slope = graph.input(node, 0), graph.input(node, 1)
    found: Measures = {"rank": _rank(data), "rank_difference": None}
    found["has_constant_slope"] = (slope is not None and slope.is_constant,)
    if data is not None and slope is not None and None not in (data.shape, slope.shape):
        found["rank_difference"] = (len(data.shape or ()) - len(slope.shape or ()),)
    return found


def elementwise(graph: Graph, node: Node, _: Layer) -> Measures:
    """Measure an operation of two operands."""
    operands = [graph.tensor(name) for name in node.inputs if name]
    out = graph.output(node)
    found: Measures = {
        "rank": _rank(out),
        "constant_operands": (sum(one.is_constant for one in operands),),
    }
    # Of fewer dimensions the rule of the rank says that nothing is said.
    if out is None or out.shape is None or len(out.shape) >= _IMAGE_RANK:
        shape = None if out is None else out.shape
        found["broadcast"] = _broadcast([one.shape for one in operands], shape)
    return found


def _broadcast(shapes: list[Shape | None], out: Shape | None) -> tuple[Value, ...] | None:
    """Name the shape of each operand against the result's: ``NCHW`` ``NC11`` ``N111`` ``other``."""
    if out is None or any(one is None for one in shapes):
        return None
    names: list[Value] = []
    for shape in shapes:
        given = shape or ()
        full = (1,) * (len(out) - len(given)) + given
        image = out[-3:]
        if full == out:
            names.append("NCHW")
        elif full[:-3] != out[:-3]:
            # A batch of one spreads by no one's count.
            names.append("other")
        elif full[-3:] == (image[0], 1, 1):
            names.append("NC11")
        elif full[-3:] == (1, 1, 1):
            names.append("N111")
        else:
            names.append("other")
    return tuple(names)


def scale(graph: Graph, node: Node, _: Layer) -> Measures:
    """Measure a sum or a product with a constant, or a batch normalization."""
    data = graph.input(node, 0)
    found: Measures = {"rank": _rank(graph.output(node))}
    if node.op in ("BatchNormalization", "ImageScaler"):
        return found
    changing = data_inputs(graph, node)
    data = changing[0] if changing else data
    constants = [one for name in node.inputs if name and (one := graph.tensor(name)).is_constant]
    shape = None if data is None else data.shape
    if shape is None or len(shape) >= _IMAGE_RANK:
        found["mode"] = None
    if shape is not None and len(shape) >= _IMAGE_RANK and constants[0].shape is not None:
        found["mode"] = (_mode(constants[0].shape, shape),)
    source = producer(graph, data.name) if data is not None else None
    found["folds_into_convolution"] = (
        source is not None
        and source.op in ("Conv", "BatchNormalization")
        and sole_consumer(graph, source) is node
        and found.get("mode") in (("uniform",), ("channel",)),
    )
    return found


def _mode(shape: Shape, data: Shape) -> str:
    full = (1,) * (len(data) - len(shape)) + shape
    if all(length == 1 for length in full):
        return "uniform"
    if len(full) != len(data):
        return "other"
    if full == (*(1,) * (len(data) - 3), data[-3], 1, 1):
        return "channel"
    is_whole = full[-3:] == data[-3:] and all(length == 1 for length in full[:-3])
    return "element" if is_whole or full == data else "other"


def comparison(graph: Graph, node: Node, layer: Layer) -> Measures:
    """Measure a comparison; its result is for a Cast alone."""
    reader, out = sole_consumer(graph, node), None
    if reader is not None and reader.op == "Cast":
        out = graph.output(reader)
    found = elementwise(graph, node, layer)
    return found | {"is_followed_by_cast": (out is not None and out.dtype in _HALVES,)}


def cast(graph: Graph, node: Node, _: Layer) -> Measures:
    """Measure a change of type."""
    source = producer(graph, node.inputs[0])
    return {"follows_comparison": (source is not None and source.op in _COMPARISONS,)}


def softmax(graph: Graph, node: Node, _: Layer) -> Measures:
    """Measure a softmax; up to opset 12 it takes all dimensions from the axis on together."""
    data = graph.input(node, 0)
    found: Measures = {"rank": _rank(data), "axis": None, "axis_length": None, "is_single": None}
    if data is None or data.shape is None or not data.shape:
        return found
    is_joint = graph.opsets.get("", 13) < 13
    at = node.integer("axis", 1 if is_joint else -1) or 0
    at = at if at < 0 else at - len(data.shape)
    if not -len(data.shape) <= at:
        return found
    found["axis"] = (_NAMES.get(at, "batch"),)
    if not data.is_fixed:
        return found
    shape = [int(length) for length in data.shape if isinstance(length, int)]
    taken = shape[at:] if is_joint else [shape[at]]
    length = 1
    for one in taken:
        length *= one
    image = 1
    for one in shape[-3:]:
        image *= one
    return found | {"axis_length": (length,), "is_single": (image <= length,)}


def concatenation(graph: Graph, node: Node, _: Layer) -> Measures:
    """Measure a concatenation."""
    axis, out = node.integer("axis"), graph.output(node)
    found: Measures = {"inputs": (sum(1 for name in node.inputs if name),), "axis_from_end": None}
    if axis is not None and axis < 0:
        found["axis_from_end"] = (-axis,)
    elif axis is not None and out is not None and out.shape is not None:
        found["axis_from_end"] = (len(out.shape) - axis,)
    return found


def reduce(graph: Graph, node: Node, _: Layer) -> Measures:
    """Measure a reduction; without axes it takes all of them."""
    data, given = graph.input(node, 0), graph.input(node, 1)
    found: Measures = {"rank": _rank(data), "axes": None}
    if data is None or data.shape is None:
        return found
    rank = len(data.shape)
    if node.op.startswith("Global"):
        axes: tuple[int, ...] | None = tuple(range(2, rank))
    elif given is not None:
        values = given.values
        axes = None if values is None else tuple(int(value) for value in values)
    else:
        axes = node.integers("axes", tuple(range(rank)))
    if axes is not None:
        found["axes"] = tuple(axis % rank for axis in axes) if rank else axes
    return found


def unary(_: Graph, __: Node, ___: Layer) -> Measures:
    """Measure a function of one operand: its operation says all."""
    return {}


def _rank(tensor: Tensor | None) -> tuple[Value, ...] | None:
    return None if tensor is None or tensor.shape is None else (len(tensor.shape),)
