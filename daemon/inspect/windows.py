"""Measure layers that slide a window over an image, and products with a weight."""

import math

from ...parsers.onnx.graph import Graph, Node, Shape
from .layers import Layer
from .rules import Measures

# The convolution buffer: bytes of a bank, entries of a bank, bytes of an atom, atoms of an entry.
_BANK_BYTES, _BANK_ENTRIES, _ATOM_BYTES, _ENTRY_ATOMS = 32768.0, 256.0, 32.0, 4.0
_ROUNDED_BYTES = 128
_SAME = ("SAME_UPPER", "SAME_LOWER")


def convolution(graph: Graph, node: Node, _: Layer, *, bytes_each: int = 2) -> Measures:
    """Measure a convolution; its weights are ``[outputs, inputs of a group, height, width]``."""
    found, weight, data = window(graph, node), graph.input(node, 1), graph.input(node, 0)
    shape = None if weight is None else weight.shape
    groups = node.integer("group", 1) or 1
    outputs, inputs = _channels(shape, 0), _channels(shape, 1, times=groups)
    found |= {
        "groups": (groups,),
        "output_channels": outputs,
        "input_channels": inputs,
        "has_constant_weights": (weight is not None and weight.is_constant,),
    }
    if found["spatial_dimensions"] == (2,):
        found["buffer_banks"] = None
    kernel, dilation, padding = found["kernel"], found["dilation"], found["padding"]
    found["padding_beyond_kernel"] = None
    if kernel is not None and padding is not None:
        found["padding_beyond_kernel"] = tuple(
            max(-64, int(pad) - int(side)) for pad, side in zip(padding, kernel * 2, strict=False)
        )
    wide = None if data is None or not data.shape else data.shape[-1]
    if kernel is None or dilation is None or inputs is None or not isinstance(wide, int):
        return found
    if len(kernel) == 2:
        sides = (int(kernel[0]), int(kernel[1]))
        banks = buffer_banks(int(inputs[0]), sides, int(dilation[0]), wide, bytes_each)
        found["buffer_banks"] = (banks,)
    return found


def buffer_banks(
    channels: int, kernel: tuple[int, int], dilation: int, width: int, bytes_each: int
) -> int:
    """Return the least number of banks of the convolution buffer that a convolution needs.

    It needs banks for the weights of one kernel and for the rows that the kernel covers. Channels
    are those of all groups, the dilation is the vertical one, and an element has ``bytes_each``.

    Source:
        "DLA Supported Layers and Restrictions": the pseudo code of the buffer's size.

    >>> buffer_banks(64, (3, 3), 1, 56, 2), buffer_banks(512, (32, 32), 1, 224, 2)
    (2, 256)
    """
    weights = channels * kernel[0] * kernel[1] * bytes_each
    rounded = math.ceil(weights / _ROUNDED_BYTES) * _ROUNDED_BYTES
    entries = math.ceil(math.ceil(channels * bytes_each / _ATOM_BYTES) * width / _ENTRY_ATOMS)
    rows = (kernel[0] - 1) * dilation + 1
    return math.ceil(rounded / _BANK_BYTES) + math.ceil(entries * rows / _BANK_ENTRIES)


def deconvolution(graph: Graph, node: Node, _: Layer) -> Measures:
    """Measure a deconvolution; its weights are ``[inputs, outputs of a group, height, width]``."""
    found, weight = window(graph, node), graph.input(node, 1)
    shape = None if weight is None else weight.shape
    groups = node.integer("group", 1) or 1
    found |= {
        "groups": (groups,),
        "input_channels": _channels(shape, 0),
        "output_channels": _channels(shape, 1, times=groups),
        "output_padding": node.integers("output_padding", (0,)),
    }
    squares = [
        int(sides[0])
        for sides in (found["kernel"], found["stride"])
        if sides is not None and len(sides) == 2 and sides[0] == sides[1]
    ]
    if squares:
        found["square_side"] = tuple(squares)
    return found


def fully_connected(graph: Graph, node: Node, _: Layer) -> Measures:
    """Measure a matrix product; the DLA needs one constant factor."""
    left, right = graph.input(node, 0), graph.input(node, 1)
    if left is None or right is None:
        return {"has_constant_weights": None}
    found: Measures = {"has_constant_weights": (right.is_constant or left.is_constant,)}
    if not (right.is_constant or left.is_constant):
        return found
    weight, data = (right, left) if right.is_constant else (left, right)
    is_turned = bool(node.integer("transB", 0))
    outputs, inputs = _channels(weight.shape, -1), _channels(weight.shape, -2)
    factors = (node.number("alpha", 1.0), node.number("beta", 1.0))
    return found | {
        "rank": None if data.shape is None else (len(data.shape),),
        "is_plain": (
            factors == (1.0, 1.0) and not node.integer("transA", 0) and right.is_constant,
        ),
        "input_channels": outputs if is_turned else inputs,
        "output_channels": inputs if is_turned else outputs,
    }


def window(graph: Graph, node: Node) -> Measures:
    """Measure the window; paddings are those before each dimension, then those after."""
    weight, data = graph.input(node, 1), graph.input(node, 0)
    kernel = node.integers("kernel_shape")
    if kernel is None and weight is not None and weight.lengths is not None:
        kernel = weight.lengths[2:]
    count = len(kernel) if kernel is not None else len((data and data.shape) or (0,) * 4) - 2
    ones, zeros = (1,) * count, (0,) * count
    stride = node.integers("strides", ones) or ones
    dilation = node.integers("dilations", ones) or ones
    padding = node.integers("pads", zeros * 2)
    if node.word("auto_pad", "NOTSET") in _SAME:
        padding = _same(data.shape if data else None, kernel, stride, dilation)
    return {
        "spatial_dimensions": (count,),
        "kernel": kernel,
        "stride": stride,
        "dilation": dilation,
        "padding": padding,
    }


def _same(
    shape: Shape | None,
    kernel: tuple[int, ...] | None,
    stride: tuple[int, ...],
    dilation: tuple[int, ...],
) -> tuple[int, ...] | None:
    """Return the padding that keeps the size of an image, the larger half at the end."""
    if shape is None or kernel is None or len(shape) != len(kernel) + 2:
        return None
    before, after = [], []
    for length, side, step, gap in zip(shape[2:], kernel, stride, dilation, strict=True):
        if not isinstance(length, int) or step < 1:
            return None
        total = max(0, (math.ceil(length / step) - 1) * step + (side - 1) * gap + 1 - length)
        before.append(total // 2)
        after.append(total - total // 2)
    return (*before, *after)


def _channels(shape: Shape | None, at: int, times: int = 1) -> tuple[int, ...] | None:
    if shape is None or not -len(shape) <= at < len(shape):
        return None
    length = shape[at]
    return (length * times,) if isinstance(length, int) else None
