"""Replace nodes that the DLA refuses by nodes that compute the same.

``cut`` keeps a replacement only where the rules accept all of it, and compares its results with
those of the original.

Source:
    "Conv", "AveragePool" and the other operators named here, ONNX Operators.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from ...parsers.onnx.graph import Graph, Node, Number

# The DLA's limits of the side of a pooling window and of the stride of a convolution.
_WIDEST = 8
# The DLA's limit of channels.
_MOST_CHANNELS = 8192
# Wider windows would become a long chain of narrow ones.
_WIDEST_MAXIMUM = 64
_IMAGE_RANK = 4
# The first opset in which all operators that are written here have their present form.
_OLDEST_OPSET = 11
# numpy, which computes weights, has these types.
_FLOATS = ("float32", "float16")
# These compute each element alone, so they can be computed for some of the channels.
_POINTWISE = frozenset({"Add", "Clip", "LeakyRelu", "Mul", "Relu", "Sigmoid", "Sub", "Tanh"})


class Rewrite:
    """Nodes and weights (of ONNX) that make the tensors of a node, in the order in which they run.

    Example:
        new = Rewrite(graph, weights, node)
        new.add("Relu", new.data.name)
    """

    def __init__(self, graph: Graph, weights: Mapping[str, Any], node: Node) -> None:
        self.graph = graph
        self.node = node
        [self.data] = graph.varying_inputs(node)
        self.image = self.data.lengths or ()
        self.nodes: list[Any] = []
        self.weights: list[Any] = []
        # Tensors of which only some channels are made, by name and first channel.
        self.parts: dict[tuple[str, int], str] = {}
        self._given = weights

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        """Add a node, and return the name of its output."""
        from onnx import helper

        output = f"{self.node.outputs[0]}/{op}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [output], output, **attributes))
        return output

    def constant(self, values: Any) -> str:
        """Add a weight of the type of the image, and return its name."""
        import numpy
        from onnx import numpy_helper

        name = f"{self.node.outputs[0]}/weight_{len(self.weights)}"
        array = numpy.asarray(values, self.data.dtype)
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def arrays(self, names: Sequence[str]) -> list[Any] | None:
        """Return weights in double precision; None if one of them is not an initializer."""
        from onnx import numpy_helper

        if not self._given.keys() >= set(names):
            return None
        return [numpy_helper.to_array(self._given[name]).astype("f8") for name in names]

    def number(self, attribute: str, usual: float) -> float:
        """Return an attribute, or its default."""
        value = self.node.attribute(attribute, float)
        return usual if value is None else value

    def numbers(self, position: int, attribute: str) -> Sequence[Number]:
        """Return numbers that are an input of the node or, in old opsets, an attribute."""
        values = self.graph.input(self.node, position).values
        return values or self.node.attribute(attribute, tuple) or ()

    def convolve(self, data: str, *weights: Any, **attributes: Any) -> str:
        """Add a convolution with a kernel and perhaps a bias."""
        return self.add("Conv", data, *map(self.constant, weights), **attributes)


def rewrite_of(graph: Graph, weights: Mapping[str, Any], node: Node) -> Rewrite | None:
    """Return the replacement of a node that computes on an image; None if none is known.

    Args:
        weights: The initializers of the model, by name.
    """
    make = _BY_OPERATOR.get(node.op)
    data = graph.varying_inputs(node)
    if make is None or node.domain or graph.opsets.get("", 0) < _OLDEST_OPSET or len(data) != 1:
        return None
    if data[0].rank != _IMAGE_RANK or not data[0].is_fixed or data[0].dtype not in _FLOATS:
        return None
    if (data[0].length(1) or 0) > _MOST_CHANNELS:
        return None
    new = Rewrite(graph, weights, node)
    make(new)
    if not new.nodes:
        return None
    if len(node.outputs) == 1:
        new.nodes[-1].output[0] = node.outputs[0]
    return new


# --- slices ---------------------------------------------------------------------------------------


def _split(new: Rewrite) -> None:
    counts = [new.graph.tensor(name).length(1) for name in new.node.outputs]
    if (new.node.attribute("axis", int) or 0) % _IMAGE_RANK != 1 or None in counts:
        return
    start = 0
    for name, count in zip(new.node.outputs, counts, strict=True):
        _some_channels(new, new.data.name, start, start + (count or 0))
        new.nodes[-1].output[0] = name
        start += count or 0


def _slice(new: Rewrite) -> None:
    """Cut channels with weights, and rows or columns in steps with a stride."""
    import numpy

    starts, axes = new.numbers(1, "starts"), new.numbers(3, "axes")
    steps = new.numbers(4, "steps")
    if len(starts) != 1 or len(axes) != 1 or bool(steps) != (len(new.node.inputs) > 4):
        return
    axis, step = int(axes[0]) % _IMAGE_RANK, int(steps[0]) if steps else 1
    length, count = new.image[axis], new.graph.output(new.node).length(axis) or 0
    start = int(starts[0]) + (length if starts[0] < 0 else 0)
    if axis == 1 and step == 1 and start >= 0 and count:
        _some_channels(new, new.data.name, start, start + count)
    elif axis > 1 and 0 <= start < step <= _WIDEST and count * step == length:
        window = [1, 1]
        window[axis - 2] = step
        kernel = numpy.zeros((new.image[1], 1, step))
        kernel[:, :, start] = 1
        kernel = kernel.reshape(-1, 1, *window)
        new.convolve(new.data.name, kernel, group=len(kernel), strides=window)


def _some_channels(new: Rewrite, name: str, start: int, end: int) -> str:
    """Return the channels of a tensor from a start to an end, made by convolutions.

    The convolution that makes the tensor is divided, also if activations follow it. If something
    else makes it, a convolution of 1 × 1 with weights of 0 and 1 selects the channels.
    """
    import numpy

    if (name, start) in new.parts:  # SiLU reads a convolution twice.
        return new.parts[name, start]
    maker = new.graph.maker(name)
    weights = None
    if maker is not None and maker.op == "Conv" and maker.groups == 1:
        weights = new.arrays(maker.inputs[1:])
    if maker is not None and weights is not None:
        parts = [weight[start:end] for weight in weights]
        made = new.convolve(maker.inputs[0], *parts, **maker.attributes)
    elif maker is not None and _is_pointwise(new.graph, maker):
        inputs = []
        for source in maker.inputs:
            is_whole = not source or new.graph.tensor(source).is_constant
            inputs.append(source if is_whole else _some_channels(new, source, start, end))
        made = new.add(maker.op, *inputs, **maker.attributes)
    else:
        channels = new.graph.tensor(name).length(1) or 0
        made = new.convolve(name, numpy.eye(end - start, channels, start)[:, :, None, None])
    new.parts[name, start] = made
    return made


def _is_pointwise(graph: Graph, node: Node) -> bool:
    """Whether a node computes each element from the same one of its inputs, and from numbers."""
    shape = graph.output(node).shape
    for tensor in map(graph.tensor, filter(None, node.inputs)):
        is_same = tensor.elements == 1 if tensor.is_constant else tensor.shape == shape
        if not is_same:
            return False
    return node.op in _POINTWISE and not node.domain


# --- poolings -------------------------------------------------------------------------------------


def _mean(new: Rewrite) -> None:
    """Pool rows and columns, in several steps if they are more than a window may have."""
    axes = {int(axis) % _IMAGE_RANK for axis in new.numbers(1, "axes")}
    rows, columns = map(_windows, new.image[2:])
    if (new.node.op == "ReduceMean" and axes != {2, 3}) or not rows or not columns:
        return
    last = new.data.name
    for window in zip_longest(rows, columns, fillvalue=1):
        last = new.add("AveragePool", last, kernel_shape=window, strides=window)
    if new.node.attribute("keepdims", int) == 0:
        new.add("Flatten", last)


def _windows(length: int) -> list[int]:
    """Return sides of windows whose product is a length; none if it has a large prime factor.

    >>> _windows(7), _windows(112), _windows(1), _windows(13)
    ([7], [8, 7, 2], [1], [])
    """
    sides: list[int] = []
    while length > 1 or not sides:
        sides.append(max(side for side in range(1, _WIDEST + 1) if length % side == 0))
        if sides[-1] == 1 < length:
            return []
        length //= sides[-1]
    return sides


def _maximum(new: Rewrite) -> None:
    """Take the maximum over a wide window as that of maxima over narrow ones."""
    side, *others = new.node.attribute("kernel_shape", tuple) or (0,)
    is_odd_square = side % 2 == 1 and others == [side]
    is_centred = set(new.node.attribute("pads", tuple) or ()) == {side // 2}
    # A stride or a dilation would make the image smaller.
    is_same = new.graph.output(new.node).shape == new.data.shape and len(new.node.outputs) == 1
    if not (is_odd_square and is_centred and is_same) or side > _WIDEST_MAXIMUM:
        return
    last, missing = new.data.name, side - 1
    while missing:
        part = min(missing, _WIDEST - 2)
        window = {"kernel_shape": [part + 1] * 2, "pads": [part // 2] * 4}
        last = new.add("MaxPool", last, **window)
        missing -= part


# --- activations, factors -------------------------------------------------------------------------


def _hard_sigmoid(new: Rewrite) -> None:
    """Write the definition out, in its order: each step rounds as the original does."""
    is_swish = new.node.op == "HardSwish"
    slope = 1 / 6 if is_swish else new.number("alpha", 0.2)
    last = new.add("Mul", new.data.name, new.constant(slope))
    last = new.add("Add", last, new.constant(new.number("beta", 0.5)))
    last = new.add("Clip", last, new.constant(0.0), new.constant(1.0))
    if is_swish:
        new.add("Mul", new.data.name, last)


def _line(new: Rewrite) -> None:
    """Rewrite an operation with constants as a factor and a shift of each channel."""
    import numpy
    from onnx import helper
    from onnx.reference import ReferenceEvaluator

    node, data = new.node, new.data.name
    constants = [name for name in node.inputs if name != data]
    arrays = new.arrays(constants)
    # A normalisation with more outputs is in training.
    if not arrays or len(node.outputs) != 1:
        return
    if node.op == "Div" and node.inputs[0] == data and arrays[0].size == 1 and arrays[0].all():
        new.add("Mul", data, new.constant(1 / arrays[0]))
        return
    attributes: Mapping[str, Any] = node.attributes
    same = helper.make_node(node.op, node.inputs, node.outputs, **attributes)
    evaluator: Any = ReferenceEvaluator(same, opsets=new.graph.opsets)
    given = dict(zip(constants, arrays, strict=True))
    shape = (1, new.image[1], 1, 1)
    try:
        with numpy.errstate(all="ignore"):  # what divides by the image is infinite at 0
            [shift] = evaluator.run(None, {**given, data: numpy.zeros(shape)})
            [end] = evaluator.run(None, {**given, data: numpy.ones(shape)})
    except (TypeError, ValueError):
        return  # too few weights, or not one for each channel
    factor = end - shift
    if factor.shape == shape and numpy.isfinite(factor).all():
        new.convolve(data, factor.reshape(-1, 1, 1, 1), shift.ravel(), group=shape[1])


# --- convolutions ---------------------------------------------------------------------------------


def _patches(new: Rewrite) -> None:
    """Divide a convolution of whole patches: the first one only moves pixels into channels."""
    import numpy

    arrays = new.arrays(new.node.inputs[1:])
    if not arrays or new.node.groups > 1 or any(new.numbers(9, "pads")):
        return
    kernel, *bias = arrays
    if kernel.ndim != _IMAGE_RANK or kernel.shape[2] != kernel.shape[3]:
        return
    sides = _windows(kernel.shape[2])
    if tuple(new.numbers(9, "strides")) != kernel.shape[2:] or len(sides) != 2:
        return
    fine, coarse = sides
    outputs, channels = kernel.shape[:2]
    packed = channels * fine * fine
    if packed > _MOST_CHANNELS:
        return
    pixels = numpy.eye(packed).reshape(packed, channels, fine, fine)
    last = new.convolve(new.data.name, pixels, strides=[fine, fine])
    kernel = kernel.reshape(outputs, channels, coarse, fine, coarse, fine)
    kernel = kernel.transpose(0, 1, 3, 5, 2, 4).reshape(outputs, packed, coarse, coarse)
    new.convolve(last, kernel, *bias, strides=[coarse, coarse])


_BY_OPERATOR: Mapping[str, Callable[[Rewrite], None]] = {
    "Add": _line,
    "BatchNormalization": _line,
    "Conv": _patches,
    "Div": _line,
    "GlobalAveragePool": _mean,
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": _hard_sigmoid,
    "MaxPool": _maximum,
    "Mul": _line,
    "ReduceMean": _mean,
    "Slice": _slice,
    "Split": _split,
    "Sub": _line,
}
