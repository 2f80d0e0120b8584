"""Turn a node into a layer of TensorRT, and measure what the rules ask of that layer."""

import math
from collections.abc import Callable, Mapping

from ...parsers.onnx.graph import Graph, Node, Number, Shape, Tensor
from .rules import Measures, Operator, Precision, Value, batch_of

_Measure = tuple[Value, ...] | None

_PRODUCTS = frozenset({"Gemm", "MatMul"})
CONVOLUTIONS = ("Conv", "ConvTranspose")
# Operators that do nothing if they keep the shape.
_SHAPED = frozenset({"Expand", "Flatten", "Pad", "Reshape", "Resize", "Tile", "Upsample"})
_COMPARISONS = frozenset({"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"})
_IMAGE_RANK = 4
_HALVES = ("float16", "int8")
_AXES = {-3: "channel", -2: "height", -1: "width"}
_NEIGHBOURS = {"Slice": "slice", "Split": "slice", "Concat": "concatenation"}
_RANKED_BY_OUTPUT = ("comparison", "elementwise", "scale")
_SAME = ("SAME_UPPER", "SAME_LOWER")
# The convolution buffer: bytes of a bank, entries of a bank, bytes of an atom, atoms of an entry.
_BANK_BYTES, _BANK_ENTRIES, _ATOM_BYTES, _ENTRY_ATOMS = 32768.0, 256.0, 32.0, 4.0
_ROUNDED_BYTES = 128


def layer_of(graph: Graph, node: Node, operator: Operator) -> Operator | str:
    """Return the layer of a node that is not constant, or why it is folded: not a layer itself."""
    # TensorRT converts a sum or a product with a constant to a Scale layer.
    has_constant = any(graph.tensor(name).is_constant for name in node.inputs)
    is_linear = operator.operation in ("sum", "sub", "prod")
    is_scale = operator.layer == "elementwise" and is_linear and has_constant
    layer = operator.model_copy(update={"layer": "scale"}) if is_scale else operator
    return _vanishes(graph, node, operator) or layer


def _vanishes(graph: Graph, node: Node, operator: Operator) -> str | None:
    before, after = graph.input(node, 0), graph.output(node)
    if operator.layer == "identity":
        return "it changes nothing"
    if not before.name or not after.name or operator.layer == "quantization":
        return None
    perm = node.attribute("perm", tuple)
    if (
        (node.op == "Cast" and before.dtype is not None and before.dtype == after.dtype)
        or (node.op == "Transpose" and before.rank is not None and perm == (*range(before.rank),))
        or (node.op in _SHAPED and before.is_fixed and before.shape == after.shape)
        or (node.op == "Concat" and len(node.inputs) == 1)
    ):
        return "it changes nothing"
    source = _convolution_before(graph, node) if node.op == "BatchNormalization" else None
    if source is not None:
        return f"it is merged into {source.name}"
    if operator.layer == "shuffle" and _is_flattened_pixel(graph, node, before, after):
        return "the matrix product after it accepts [N, C, 1, 1]"
    if operator.operation == "sum" and _is_bias_of_product(graph, node):
        return "it is the bias of the matrix product before it"
    return None


def _convolution_before(graph: Graph, node: Node) -> Node | None:
    """Return the convolution whose weights take up a factor per channel after it, or None."""
    data = graph.varying_inputs(node)
    source = graph.maker(data[0].name) if data else None
    if source is None or graph.sole_reader(source) is not node:
        return None
    if source.op == "BatchNormalization":
        return _convolution_before(graph, source)
    return source if source.op in CONVOLUTIONS else None


def _is_flattened_pixel(graph: Graph, node: Node, before: Tensor, after: Tensor) -> bool:
    """Whether it is ``[N, C, 1, 1]`` to ``[N, C]`` for a product; public builds do not cut it."""
    reader, shape = graph.sole_reader(node), before.shape
    if reader is None or reader.op not in _PRODUCTS or node.op == "Transpose" or shape is None:
        return False
    is_pixel = shape[2:] == (1, 1) and after.shape == shape[:2]
    return is_pixel and reader.inputs[0] == node.outputs[0]


def _is_bias_of_product(graph: Graph, node: Node) -> bool:
    data = graph.varying_inputs(node)
    if len(data) != 1 or len(node.inputs) != 2:
        return False
    source = graph.maker(data[0].name)
    if source is None or source.op != "MatMul" or graph.sole_reader(source) is not node:
        return False
    bias = next(graph.tensor(name) for name in node.inputs if name != data[0].name)
    made = graph.output(source).shape
    # The product of two vectors has no dimension that a bias could belong to.
    if len(graph.varying_inputs(source)) != 1 or not made or bias.rank != 1:
        return False
    return bias.length(0) in (1, made[-1])


def measures_of(
    graph: Graph, node: Node, layer: Operator, precision: Precision, is_converted: bool
) -> Measures:
    """Return every measure of a layer; whether FP32 counts as converted to the precision."""
    kind, tensors = layer.layer or "", graph.varying_inputs(node)
    tensors += [graph.tensor(name) for name in node.outputs[:1] if name]
    types = _types(graph, node, kind)
    found: Measures = {"is_fixed": _is_fixed(graph, tensors), "types": types}
    if not is_converted:
        found["types_as_written"] = types
    if kind != "fully_connected":
        ranked = graph.output(node) if kind in _RANKED_BY_OUTPUT else graph.input(node, 0)
        found["rank"] = _known(ranked.rank)
        fixed = [one.lengths for one in tensors if one.lengths is not None]
        if fixed:
            sizes = (size for shape in fixed for size in shape[len(batch_of(shape)) :])
            found["batch"] = tuple(math.prod(batch_of(shape)) for shape in fixed)
            found["sizes"] = tuple(sizes)
    if kind == "convolution":
        found |= _convolution(graph, node, bytes_each=1 if precision == "int8" else 2)
    elif kind in _OF_LAYER:
        found |= _OF_LAYER[kind](graph, node)
    if layer.operation is not None:
        found["operation"] = (layer.operation,)
    return found


def _is_fixed(graph: Graph, tensors: list[Tensor]) -> _Measure:
    if all(one.is_fixed for one in tensors):
        return (True,)
    # With fixed inputs, a missing length is one that the inference of shapes could not find. Its
    # name, if it has one, is invented by that inference or is from before the inputs were fixed.
    return None if all(graph.tensor(name).is_fixed for name in graph.inputs) else (False,)


def _types(graph: Graph, node: Node, kind: str) -> _Measure:
    """Return the types of computation; a tensor next to a quantizer is INT8."""
    types: list[str | None] = []
    if kind != "cast":
        for tensor in graph.varying_inputs(node):
            source = graph.maker(tensor.name)
            is_int8 = source is not None and source.op == "DequantizeLinear"
            types.append("int8" if is_int8 else tensor.dtype)
    if kind != "comparison":
        for name in node.outputs[:1]:
            readers = {graph.nodes[at].op for at in graph.consumers.get(name, ())}
            types.append("int8" if readers == {"QuantizeLinear"} else graph.tensor(name).dtype)
    known = tuple(one for one in types if one is not None)
    return known if len(known) == len(types) else None


def _known(value: Value | None) -> _Measure:
    return None if value is None else (value,)


def _channels(weight: Tensor, axis: int, times: int = 1) -> _Measure:
    length = weight.length(axis)
    return None if length is None else (length * times,)


def _convolution(graph: Graph, node: Node, bytes_each: int) -> Measures:
    """Measure a convolution; its weights are ``[outputs, inputs of a group, height, width]``."""
    found, weight = _window(graph, node), graph.input(node, 1)
    found |= {
        "groups": (node.groups,),
        "output_channels": _channels(weight, 0),
        "input_channels": _channels(weight, 1, times=node.groups),
        "has_constant_weights": (weight.is_constant,),
        "padding_beyond_kernel": None,
    }
    kernel, dilation, inputs = found["kernel"], found["dilation"], found["input_channels"]
    if kernel and dilation and found["padding"] is not None:
        pairs = zip(kernel, dilation, strict=False)
        covered = tuple((int(side) - 1) * int(gap) + 1 for side, gap in pairs)
        found["padding_beyond_kernel"] = _beyond(found["padding"], covered)
        if covered != kernel:
            found["padding_beyond_undilated_kernel"] = _beyond(found["padding"], kernel)
    if found["spatial_dimensions"] == (2,):
        width, banks = graph.input(node, 0).length(-1), None
        if kernel and dilation and inputs and width is not None:
            sides = (int(kernel[0]), int(kernel[1]))
            banks = buffer_banks(int(inputs[0]), sides, int(dilation[0]), width, bytes_each)
        found["buffer_banks"] = _known(banks)
    return found


def _beyond(padding: tuple[Value, ...], sides: tuple[Value, ...]) -> tuple[int, ...]:
    return tuple(int(pad) - int(side) for pad, side in zip(padding, sides * 2, strict=False))


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


def _deconvolution(graph: Graph, node: Node) -> Measures:
    """Measure a deconvolution; its weights are ``[inputs, outputs of a group, height, width]``."""
    found, weight = _window(graph, node), graph.input(node, 1)
    pairs = [one for one in (found["kernel"], found["stride"]) if one is not None and len(one) == 2]
    squares = tuple(first for first, second in pairs if first == second)
    if squares:
        found["square_side"] = squares
    kernel, stride, gaps = found["kernel"] or (), found["stride"] or (), found["dilation"] or ()
    extra = node.attribute("output_padding", tuple) or (0,) * len(kernel)
    if node.attribute("output_shape", tuple) or node.attribute("auto_pad", str) in _SAME:
        given, made = graph.input(node, 0).lengths or (), graph.output(node).lengths or ()
        # What both sides are padded by; below 0, the output is padded instead.
        implied = [
            (size - 1) * int(step) + (int(side) - 1) * int(gap) + 1 + more - end
            for size, end, step, side, gap, more in zip(
                given[2:], made[2:], stride, kernel, gaps, extra, strict=False
            )
        ]
        found["padding"] = tuple(max(0, one) for one in implied) or None
        extra = tuple(more - min(0, one) for more, one in zip(extra, implied, strict=False))
    return found | {
        "groups": (node.groups,),
        "input_channels": _channels(weight, 0),
        "output_channels": _channels(weight, 1, times=node.groups),
        "output_padding": extra or (0,),
    }


def _fully_connected(graph: Graph, node: Node) -> Measures:
    """Measure a matrix product; the DLA needs one constant factor."""
    left, right = graph.input(node, 0), graph.input(node, 1)
    if not left.name or not right.name:
        return {"has_constant_weights": None}
    if not (right.is_constant or left.is_constant):
        return {"has_constant_weights": (False,)}
    weight, data = (right, left) if right.is_constant else (left, right)
    inputs, outputs = (-1, -2) if node.attribute("transB", int) else (-2, -1)
    has_factors = {node.attribute("alpha", float), node.attribute("beta", float)} - {None, 1.0}
    is_plain = not has_factors and not node.attribute("transA", int) and right.is_constant
    return {
        "has_constant_weights": (True,),
        "rank": _known(data.rank),
        "is_plain": (is_plain,),
        "input_channels": _channels(weight, inputs),
        "output_channels": _channels(weight, outputs),
    }


def _window(graph: Graph, node: Node) -> Measures:
    """Measure the window; paddings are those before each dimension, then those after."""
    data, kernel = graph.input(node, 0), node.attribute("kernel_shape", tuple)
    weights = graph.input(node, 1).lengths
    if kernel is None and weights is not None:
        kernel = weights[2:]
    count = len(kernel) if kernel is not None else len(data.shape or (0,) * 4) - 2
    stride = node.attribute("strides", tuple) or (1,) * count
    dilation = node.attribute("dilations", tuple) or (1,) * count
    padding: _Measure = node.attribute("pads", tuple) or (0,) * count * 2
    if node.attribute("auto_pad", str) in _SAME:
        padding = _same(data.shape, kernel, stride, dilation)
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
    totals = []
    for length, side, step, gap in zip(shape[2:], kernel, stride, dilation, strict=True):
        if not isinstance(length, int) or step < 1:
            return None
        totals.append(max(0, (math.ceil(length / step) - 1) * step + (side - 1) * gap + 1 - length))
    return (*(total // 2 for total in totals), *(total - total // 2 for total in totals))


def _activation(graph: Graph, node: Node) -> Measures:
    """Measure an activation; the limits of Clip are attributes or constants."""
    if node.op != "Clip":
        return {}
    return {
        "clip_minimum": _limit(graph, node, "min", 1, float("-inf")),
        "clip_maximum": _limit(graph, node, "max", 2, float("inf")),
    }


def _limit(graph: Graph, node: Node, name: str, position: int, default: float) -> _Measure:
    given, tensor = node.attribute(name, float), graph.input(node, position)
    if given is not None or not tensor.name:
        return (default if given is None else given,)
    return None if tensor.values is None else tensor.values[:1]


def _parametric_relu(graph: Graph, node: Node) -> Measures:
    rank, slope = graph.input(node, 0).rank, graph.input(node, 1)
    is_known = rank is not None and slope.rank is not None
    return {
        "has_constant_slope": (slope.is_constant,),
        "rank_difference": ((rank or 0) - (slope.rank or 0),) if is_known else None,
    }


def _elementwise(graph: Graph, node: Node) -> Measures:
    """Measure the shape of each operand relative to the result: NCHW, NC11, N111 or other."""
    operands = [graph.tensor(name) for name in node.inputs if name]
    found: Measures = {"constant_operands": (sum(one.is_constant for one in operands),)}
    out, shapes = graph.output(node).shape, [one.shape for one in operands]
    # With fewer dimensions the rule on the rank applies instead.
    if out is not None and len(out) < _IMAGE_RANK:
        return found
    if out is None or None in shapes:
        return found | {"broadcast": None}
    # The batch has to be the same: no page documents that a batch of one is broadcast.
    known = {(*out[:-3], 1, 1, 1): "N111", (*out[:-2], 1, 1): "NC11", out: "NCHW"}
    full = ((1,) * (len(out) - len(shape or ())) + (shape or ()) for shape in shapes)
    return found | {"broadcast": tuple(known.get(shape, "other") for shape in full)}


def _scale(graph: Graph, node: Node) -> Measures:
    """Measure a sum or a product with a constant, or a batch normalization: one per channel."""
    data = next(iter(graph.varying_inputs(node)), graph.input(node, 0))
    if node.op == "ImageScaler":
        return {}
    mode: _Measure = ("channel",)
    if node.op != "BatchNormalization":
        constant = next(one for name in node.inputs if (one := graph.tensor(name)).is_constant)
        is_known = data.shape is not None and constant.shape is not None
        mode = (_mode(constant.shape or (), data.shape or ()),) if is_known else None
    is_image = data.rank is None or data.rank >= _IMAGE_RANK
    is_factor = is_image and mode in (("uniform",), ("channel",))
    folds = is_factor and _convolution_before(graph, node) is not None
    return {"folds_into_convolution": (folds,)} | ({"mode": mode} if is_image else {})


def _mode(shape: Shape, data: Shape) -> str:
    full = (1,) * (len(data) - len(shape)) + shape
    if all(length == 1 for length in full):
        return "uniform"
    if len(full) != len(data):
        return "other"
    # A tensor of one or two dimensions has no channels.
    if len(data) >= 3 and full == (*(1,) * (len(data) - 3), data[-3], 1, 1):
        return "channel"
    is_whole = full[-3:] == data[-3:] and all(length == 1 for length in full[:-3])
    return "element" if is_whole or full == data else "other"


def _comparison(graph: Graph, node: Node) -> Measures:
    reader = graph.sole_reader(node)
    is_cast = reader is not None and reader.op == "Cast" and graph.output(reader).dtype in _HALVES
    return _elementwise(graph, node) | {"is_followed_by_cast": (is_cast,)}


def _cast(graph: Graph, node: Node) -> Measures:
    source = graph.maker(node.inputs[0])
    return {"follows_comparison": (source is not None and source.op in _COMPARISONS,)}


def _softmax(graph: Graph, node: Node) -> Measures:
    """Measure a softmax; up to opset 12 it normalises all dimensions from the axis on together."""
    data = graph.input(node, 0)
    found: Measures = dict.fromkeys(("axis", "axis_length", "is_single"))
    is_joint = graph.opsets.get("", 13) < 13
    axis, rank = node.attribute("axis", int), data.rank or 0
    at = (1 if is_joint else -1) if axis is None else axis
    at = at if at < 0 else at - rank
    if not rank or at < -rank:
        return found
    found["axis"] = (_AXES.get(at, "batch"),)
    if data.lengths is not None:
        length = math.prod(data.lengths[at:] if is_joint else [data.lengths[at]])
        found["axis_length"] = (length,)
        found["is_single"] = (math.prod(data.lengths[-3:]) <= length,)
    return found


def _concatenation(graph: Graph, node: Node) -> Measures:
    axis, rank = node.attribute("axis", int), graph.output(node).rank
    if axis is not None and axis >= 0:
        axis = None if rank is None else axis - rank
    return {"axis_from_end": None if axis is None else (-axis,)}


def _reduce(graph: Graph, node: Node) -> Measures:
    """Measure a reduction; without axes it reduces all of them."""
    rank = graph.input(node, 0).rank
    if rank is not None and node.op.startswith("Global"):
        return {"axes": tuple(range(2, rank))}
    return {"axes": _axes(node, graph.input(node, 1), rank, rank)}


def _axes(node: Node, given: Tensor, rank: int | None, count: int | None) -> _Measure:
    """Return the axes of a tensor or an attribute; by default the first ``count``."""
    axes = node.attribute("axes", tuple)
    if given.name:
        axes = None if given.values is None else tuple(map(int, given.values))
    elif axes is None and count is not None:
        axes = tuple(range(count))
    if axes is None or rank is None:
        return None
    return tuple(axis % rank for axis in axes) if rank else axes


def _shuffle(graph: Graph, node: Node) -> Measures:
    before, after = graph.input(node, 0), graph.output(node)
    found: Measures = {"ranks": None, "keeps_batch": None}
    if before.shape is None or not after.name:
        return found
    if after.shape is not None:
        found["ranks"] = (len(before.shape), len(after.shape))
    if node.op == "Transpose":
        order = node.attribute("perm", tuple) or (*reversed(range(len(before.shape))), 0)
        return found | {"keeps_batch": (order[0] == 0,)}
    source = graph.maker(before.name)
    around = [] if source is None else [source]
    around += [graph.nodes[at] for name in node.outputs for at in graph.consumers.get(name, ())]
    neighbours = {_NEIGHBOURS[one.op] for one in around if one.op in _NEIGHBOURS}
    found["reshape_neighbours"] = tuple(sorted(neighbours))
    if before.shape and after.shape and before.shape[0] is not None:
        found["keeps_batch"] = (before.shape[0] == after.shape[0],)
    return found


def _slices(graph: Graph, node: Node) -> Measures:
    """Measure a slice, split, padding or repetition: TensorRT converts all to slices."""
    rank, found = graph.input(node, 0).rank or None, Measures()
    if node.op == "Split":
        axis, bounds = node.attribute("axis", int) or 0, [graph.input(node, 1)]
        found |= {"axes": (axis % rank,) if rank else None, "steps": (1,)}
    elif node.op == "Slice":
        bounds = [graph.input(node, at) for at in (1, 2, 3, 4)]
        starts, _, axes, steps = bounds
        count = starts.elements if starts.name else len(node.attribute("starts", tuple) or ())
        found["axes"] = _axes(node, axes, rank, count)
        found["steps"] = steps.values if steps.name else (1,)
    else:
        return found
    return found | {"is_static": (all(one.is_constant or not one.name for one in bounds),)}


def _resize(graph: Graph, node: Node) -> Measures:
    """Measure a resize; its scales are given, or follow from the sizes before and after."""
    word = node.attribute("mode", str) or "nearest"
    mode = "linear" if word == "bilinear" else word
    is_old = node.op == "Upsample" or graph.opsets.get("", 13) < 11
    place, rounding = "asymmetric", "floor"
    if not is_old:
        place = node.attribute("coordinate_transformation_mode", str) or "half_pixel"
        rounding = node.attribute("nearest_mode", str) or "round_prefer_floor"
    coordinates = f"{place} {rounding}" if mode == "nearest" else place
    found: Measures = {"mode": (mode,), "coordinates": (coordinates,)}
    scales = _scales(graph, node, graph.input(node, 1 if is_old else 2))
    if scales is None:
        return found | dict.fromkeys(("scales", "outer_scales", "inner_scales_are_whole"))
    return found | {
        "scales": (len(scales),),
        "outer_scales": scales[:2],
        "inner_scales": scales[2:],
        "inner_scales_are_whole": (all(float(one).is_integer() for one in scales[2:]),),
    }


def _scales(graph: Graph, node: Node, given: Tensor) -> tuple[Number, ...] | None:
    before, after = graph.input(node, 0).lengths, graph.output(node).lengths
    if before is not None and after is not None:
        return tuple(end / max(1, begin) for begin, end in zip(before, after, strict=False))
    if given.values:
        return given.values
    written = node.attributes.get("scales")
    return tuple(map(float, written)) if isinstance(written, tuple) else None


_OF_LAYER: Mapping[str, Callable[[Graph, Node], Measures]] = {
    "activation": _activation,
    "cast": _cast,
    "comparison": _comparison,
    "concatenation": _concatenation,
    "deconvolution": _deconvolution,
    "elementwise": _elementwise,
    "fully_connected": _fully_connected,
    "lrn": lambda _, node: {"window": _known(node.attribute("size", int))},
    "parametric_relu": _parametric_relu,
    "pooling": _window,
    "reduce": _reduce,
    "resize": _resize,
    "scale": _scale,
    "shuffle": _shuffle,
    "slice": _slices,
    "softmax": _softmax,
}
