"""Measure what the rules ask of a layer: sizes, ranges, types, neighbours."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ...parsers.onnx.graph import Graph, Node, Number, Shape, Tensor
from .rules import Layer, Measures, Precision, Value, batch_of, data_inputs, producer, sole_consumer

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


_Measure = tuple[Value, ...] | None

_IMAGE_RANK = 4
_COMPARISONS = frozenset({"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"})
_HALVES = ("float16", "int8")
_AXES = {-3: "channel", -2: "height", -1: "width"}
_NEIGHBOURS = {"Slice": "slice", "Split": "slice", "Concat": "concatenation"}


@dataclass(frozen=True)
class BuildTarget:
    """Precision of the layers, and whether FP32 in the model counts as converted to it."""

    precision: Precision
    is_converted: bool = False


def measures_of(graph: Graph, node: Node, layer: Layer, built: BuildTarget) -> Measures:
    """Return every measure of a layer."""
    tensors = [*data_inputs(graph, node), *filter(None, (graph.output(node),))]
    found: Measures = {
        "is_fixed": _is_fixed(graph, tensors),
        "types": _types(graph, node, layer.kind),
    }
    if not built.is_converted:
        found["types_as_written"] = found["types"]
    fixed = [one.lengths for one in tensors if one.lengths is not None]
    if layer.kind != "fully_connected" and fixed:
        found["batch"] = tuple(math.prod(batch_of(shape)) for shape in fixed)
        found["sizes"] = tuple(size for shape in fixed for size in shape[len(batch_of(shape)) :])
    if layer.kind == "convolution":
        found |= convolution(graph, node, layer, bytes_each=1 if built.precision == "int8" else 2)
    elif layer.kind in _OF_LAYER:
        found |= _OF_LAYER[layer.kind](graph, node, layer)
    if layer.operation is not None:
        found["operation"] = (layer.operation,)
    return found


def _is_fixed(graph: Graph, tensors: list[Tensor]) -> _Measure:
    if all(one.is_fixed for one in tensors):
        return (True,)
    is_open = any(not graph.tensor(name).is_fixed for name in graph.inputs)
    has_names = any(isinstance(length, str) for one in tensors for length in one.shape or ())
    # With fixed inputs, a missing length is one that the inference of shapes could not find.
    return (False,) if is_open or has_names else None


def _types(graph: Graph, node: Node, kind: str) -> _Measure:
    """Return the types of computation; an input from DequantizeLinear is INT8."""
    types: list[str | None] = []
    if kind != "cast":
        types += [_type_from(graph, tensor) for tensor in data_inputs(graph, node)]
    if kind != "comparison":
        types += [_type_to(graph, graph.tensor(name)) for name in node.outputs[:1]]
    known = tuple(one for one in types if one is not None)
    return known if len(known) == len(types) else None


def _type_from(graph: Graph, tensor: Tensor) -> str | None:
    source = producer(graph, tensor.name)
    return "int8" if source is not None and source.op == "DequantizeLinear" else tensor.dtype


def _type_to(graph: Graph, tensor: Tensor) -> str | None:
    readers = [graph.nodes[at] for at in graph.consumers.get(tensor.name, ())]
    is_quantised = bool(readers) and all(one.op == "QuantizeLinear" for one in readers)
    return "int8" if is_quantised else tensor.dtype


def _activation(graph: Graph, node: Node, layer: Layer) -> Measures:
    """Measure an activation; the limits of Clip are attributes or constants."""
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


def _parametric_relu(graph: Graph, node: Node, _: Layer) -> Measures:
    data, slope = graph.input(node, 0), graph.input(node, 1)
    found: Measures = {"rank": _rank(data), "rank_difference": None}
    found["has_constant_slope"] = (slope is not None and slope.is_constant,)
    if data is not None and slope is not None and None not in (data.shape, slope.shape):
        found["rank_difference"] = (len(data.shape or ()) - len(slope.shape or ()),)
    return found


def _elementwise(graph: Graph, node: Node, _: Layer) -> Measures:
    operands = [graph.tensor(name) for name in node.inputs if name]
    out = graph.output(node)
    found: Measures = {
        "rank": _rank(out),
        "constant_operands": (sum(one.is_constant for one in operands),),
    }
    # With fewer dimensions the rule on the rank applies instead.
    if out is None or out.shape is None or len(out.shape) >= _IMAGE_RANK:
        shape = None if out is None else out.shape
        found["broadcast"] = _broadcast([one.shape for one in operands], shape)
    return found


def _broadcast(shapes: list[Shape | None], out: Shape | None) -> tuple[Value, ...] | None:
    """Return the shape of each operand relative to the result: NCHW, NC11, N111 or other."""
    if out is None or any(one is None for one in shapes):
        return None
    # The batch has to be the same: no page documents that a batch of one is broadcast.
    known = {(*out[:-3], 1, 1, 1): "N111", (*out[:-2], 1, 1): "NC11", out: "NCHW"}
    full = ((1,) * (len(out) - len(shape or ())) + (shape or ()) for shape in shapes)
    return tuple(known.get(shape, "other") for shape in full)


def _scale(graph: Graph, node: Node, _: Layer) -> Measures:
    """Measure a sum or a product with a constant, or a batch normalization."""
    found: Measures = {"rank": _rank(graph.output(node))}
    if node.op in ("BatchNormalization", "ImageScaler"):
        return found
    data = next(iter(data_inputs(graph, node)), graph.input(node, 0))
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


def _comparison(graph: Graph, node: Node, layer: Layer) -> Measures:
    reader, out = sole_consumer(graph, node), None
    if reader is not None and reader.op == "Cast":
        out = graph.output(reader)
    found = _elementwise(graph, node, layer)
    return found | {"is_followed_by_cast": (out is not None and out.dtype in _HALVES,)}


def _cast(graph: Graph, node: Node, _: Layer) -> Measures:
    source = producer(graph, node.inputs[0])
    return {"follows_comparison": (source is not None and source.op in _COMPARISONS,)}


def _softmax(graph: Graph, node: Node, _: Layer) -> Measures:
    """Measure a softmax; up to opset 12 it normalises all dimensions from the axis on together."""
    data = graph.input(node, 0)
    found: Measures = {"rank": _rank(data), "axis": None, "axis_length": None, "is_single": None}
    if data is None or data.shape is None or not data.shape:
        return found
    is_joint = graph.opsets.get("", 13) < 13
    at = node.integer("axis", 1 if is_joint else -1) or 0
    at = at if at < 0 else at - len(data.shape)
    if not -len(data.shape) <= at:
        return found
    found["axis"] = (_AXES.get(at, "batch"),)
    shape = data.lengths
    if shape is None:
        return found
    length = math.prod(shape[at:] if is_joint else [shape[at]])
    is_single = math.prod(shape[-3:]) <= length
    return found | {"axis_length": (length,), "is_single": (is_single,)}


def _concatenation(graph: Graph, node: Node, _: Layer) -> Measures:
    axis, out = node.integer("axis"), graph.output(node)
    found: Measures = {"inputs": (sum(1 for name in node.inputs if name),), "axis_from_end": None}
    if axis is not None and axis < 0:
        found["axis_from_end"] = (-axis,)
    elif axis is not None and out is not None and out.shape is not None:
        found["axis_from_end"] = (len(out.shape) - axis,)
    return found


def _lrn(_: Graph, node: Node, __: Layer) -> Measures:
    size = node.integer("size")
    return {"window": None if size is None else (size,)}


def _reduce(graph: Graph, node: Node, _: Layer) -> Measures:
    """Measure a reduction; without axes it reduces all of them."""
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


def _rank(tensor: Tensor | None) -> tuple[Value, ...] | None:
    return None if tensor is None or tensor.shape is None else (len(tensor.shape),)


def _shuffle(graph: Graph, node: Node, layer: Layer) -> Measures:
    before, after = graph.input(node, 0), graph.output(node)
    found: Measures = {"ranks": None, "keeps_batch": None}
    if before is None or after is None or before.shape is None:
        return found
    if after.shape is not None:
        found["ranks"] = (len(before.shape), len(after.shape))
    if layer.operation == "transpose":
        order = node.integers("perm", tuple(reversed(range(len(before.shape))))) or (0,)
        return found | {"keeps_batch": (order[0] == 0,)}
    found["reshape_neighbours"] = tuple(sorted(_neighbours(graph, node)))
    if before.shape and after.shape and before.shape[0] is not None:
        found["keeps_batch"] = (before.shape[0] == after.shape[0],)
    return found


def _neighbours(graph: Graph, node: Node) -> set[str]:
    source = producer(graph, node.inputs[0])
    around = [] if source is None else [source]
    around += [graph.nodes[at] for name in node.outputs for at in graph.consumers.get(name, ())]
    return {_NEIGHBOURS[one.op] for one in around if one.op in _NEIGHBOURS}


def _slices(graph: Graph, node: Node, layer: Layer) -> Measures:
    """Measure a slice, split, padding or repetition: TensorRT converts all to slices."""
    data = graph.input(node, 0)
    rank = None if data is None or data.shape is None else len(data.shape)
    found: Measures = {"rank": None if rank is None else (rank,)}
    if layer.operation != "cut":
        return found
    found["axes"] = None
    if node.op == "Split":
        axes: tuple[int, ...] | None = (node.integer("axis", 0) or 0,)
        bounds, steps = [graph.input(node, 1)], None
    else:
        axes = node.integers("axes")
        bounds = [graph.input(node, at) for at in (1, 2, 3, 4)]
        given, steps = bounds[2:]
        if given is not None:
            axes = None if given.values is None else tuple(int(one) for one in given.values)
        elif axes is None:
            starts = bounds[0]
            count = starts.elements if starts is not None else len(node.integers("starts") or ())
            axes = None if count is None else tuple(range(count))
    found["is_static"] = (all(one is None or one.is_constant for one in bounds),)
    found["steps"] = (1,) if steps is None else steps.values
    if axes is not None and rank:
        found["axes"] = tuple(axis % rank for axis in axes)
    return found


def _resize(graph: Graph, node: Node, _: Layer) -> Measures:
    """Measure a resize; its scales are given, or follow from the sizes before and after."""
    mode = {"bilinear": "linear"}.get(node.word("mode", "nearest"), node.word("mode", "nearest"))
    found: Measures = {"mode": (mode,)}
    is_old = node.op == "Upsample" or graph.opsets.get("", 13) < 11
    place = "asymmetric" if is_old else node.word("coordinate_transformation_mode", "half_pixel")
    rounding = "floor" if is_old else node.word("nearest_mode", "round_prefer_floor")
    found["coordinates"] = (f"{place} {rounding}" if mode == "nearest" else place,)
    scales = _scales(graph, node)
    if scales is None:
        return found | dict.fromkeys(("scales", "outer_scales", "inner_scales_are_whole"))
    inner = tuple(scales[2:])
    return found | {
        "scales": (len(scales),),
        "outer_scales": tuple(scales[:2]),
        "inner_scales": inner,
        "inner_scales_are_whole": (all(float(one).is_integer() for one in inner),),
    }


def _scales(graph: Graph, node: Node) -> tuple[Number, ...] | None:
    ends = (graph.input(node, 0), graph.output(node))
    sizes = [one.lengths for one in ends if one is not None and one.lengths is not None]
    if len(sizes) == 2:
        return tuple(end / max(1, begin) for begin, end in zip(*sizes, strict=False))
    at = 1 if node.op == "Upsample" or graph.opsets.get("", 13) < 11 else 2
    given = graph.input(node, at)
    if given is not None and given.values:
        return given.values
    written = node.attributes.get("scales")
    return tuple(map(float, written)) if isinstance(written, tuple) else None


_OF_LAYER: Mapping[str, Callable[[Graph, Node, Layer], Measures]] = {
    "activation": _activation,
    "cast": _cast,
    "comparison": _comparison,
    "concatenation": _concatenation,
    "deconvolution": deconvolution,
    "elementwise": _elementwise,
    "fully_connected": fully_connected,
    "lrn": _lrn,
    "parametric_relu": _parametric_relu,
    "pooling": lambda graph, node, _: window(graph, node),
    "reduce": _reduce,
    "resize": _resize,
    "scale": _scale,
    "shuffle": _shuffle,
    "slice": _slices,
    "softmax": _softmax,
}
