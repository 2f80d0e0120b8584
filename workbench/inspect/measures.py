"""Turn a node into a layer of TensorRT, and measure what the rules ask of that layer."""

import math
from collections.abc import Callable, Mapping

from ...parsers.onnx.graph import Graph, Node, Number, Shape, Tensor
from .rules import ELEMENT_BYTES, Measures, Operator, Precision, Value, batch_of

_Measure = tuple[Value, ...] | None

PRODUCTS = frozenset({"Gemm", "MatMul"})
CONVOLUTIONS = ("Conv", "ConvTranspose")
# Operators that do nothing if they keep the shape.
_SHAPED = frozenset({"Expand", "Flatten", "Pad", "Reshape", "Resize", "Tile", "Upsample"})
_COMPARISONS = frozenset({"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"})
IMAGE_RANK = 4
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
    reason = _why_folded(graph, node, operator)
    if reason is not None:
        return reason
    is_linear = operator.layer == "elementwise" and operator.operation in ("sum", "sub", "prod")
    if is_linear and _constant_inputs(graph, node):
        # TensorRT converts a sum or a product with a constant to a Scale layer.
        return operator.model_copy(update={"layer": "scale"})
    return operator


def _constant_inputs(graph: Graph, node: Node) -> list[Tensor]:
    return [tensor for tensor in map(graph.tensor, node.inputs) if tensor.is_constant]


def _why_folded(graph: Graph, node: Node, operator: Operator) -> str | None:
    """Return why a node is not a layer itself, or None if it is one."""
    before, after = graph.input(node, 0), graph.output(node)
    if operator.layer == "identity":
        return "it changes nothing"
    if not before.name or not after.name or operator.layer == "quantization":
        return None
    if _changes_nothing(node, before, after):
        return "it changes nothing"
    if node.op == "BatchNormalization":
        convolution = _convolution_before(graph, node)
        if convolution is not None:
            return f"it is merged into {convolution.name}"
    if operator.layer == "shuffle" and _is_flattened_pixel(graph, node, before, after):
        return "the matrix product after it accepts [N, C, 1, 1]"
    if operator.operation == "sum" and _is_bias_of_product(graph, node):
        return "it is the bias of the matrix product before it"
    return None


def _changes_nothing(node: Node, before: Tensor, after: Tensor) -> bool:
    """Return whether a node of an operator that can change a tensor does not."""
    if node.op == "Cast":
        return before.dtype is not None and before.dtype == after.dtype
    if node.op == "Transpose":
        order = node.attribute("perm", tuple)
        return before.rank is not None and order == tuple(range(before.rank))
    if node.op == "Concat":
        return len(node.inputs) == 1
    return node.op in _SHAPED and before.is_fixed and before.shape == after.shape


def _convolution_before(graph: Graph, node: Node) -> Node | None:
    """Return the convolution whose weights take up a factor per channel after it, or None."""
    data = graph.varying_inputs(node)
    if not data:
        return None
    source = graph.maker(data[0].name)
    if source is None or graph.sole_reader(source) is not node:
        return None
    if source.op == "BatchNormalization":
        return _convolution_before(graph, source)
    if source.op in CONVOLUTIONS:
        return source
    return None


def _is_flattened_pixel(graph: Graph, node: Node, before: Tensor, after: Tensor) -> bool:
    """Whether it is ``[N, C, 1, 1]`` to ``[N, C]`` for a product; public builds do not cut it."""
    reader, shape = graph.sole_reader(node), before.shape
    if reader is None or reader.op not in PRODUCTS or node.op == "Transpose" or shape is None:
        return False
    is_pixel = shape[2:] == (1, 1) and after.shape == shape[:2]
    return is_pixel and reader.inputs[0] == node.outputs[0]


def _is_bias_of_product(graph: Graph, node: Node) -> bool:
    data, constants = graph.varying_inputs(node), _constant_inputs(graph, node)
    if len(data) != 1 or len(constants) != 1 or len(node.inputs) != 2:
        return False
    source = graph.maker(data[0].name)
    if source is None or source.op != "MatMul" or graph.sole_reader(source) is not node:
        return False
    [bias] = constants
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
    made = graph.output(node)
    if made.name:
        tensors.append(made)
    types = _types(graph, node, kind)
    found: Measures = {"is_fixed": _are_fixed(graph, tensors), "types": types}
    if not is_converted:
        found["types_as_written"] = types
    # A matrix product has a rank of its own, and no rule on its batch and sizes.
    if kind != "fully_connected":
        ranked = made if kind in _RANKED_BY_OUTPUT else graph.input(node, 0)
        found["rank"] = _known(ranked.rank)
        found |= _batch_and_sizes(tensors)
    if kind == "convolution":
        found |= _convolution(graph, node, ELEMENT_BYTES[precision])
    elif kind in _OF_LAYER:
        found |= _OF_LAYER[kind](graph, node)
    if layer.operation is not None:
        found["operation"] = (layer.operation,)
    return found


def _are_fixed(graph: Graph, tensors: list[Tensor]) -> _Measure:
    if all(tensor.is_fixed for tensor in tensors):
        return (True,)
    # With fixed inputs, a missing length is one that the inference of shapes could not find. Its
    # name, if it has one, is invented by that inference or is from before the inputs were fixed.
    if all(graph.tensor(name).is_fixed for name in graph.inputs):
        return None
    return (False,)


def _batch_and_sizes(tensors: list[Tensor]) -> Measures:
    """Return the batch of each tensor with a fixed shape, and the lengths behind the batch."""
    batches: list[int] = []
    sizes: list[int] = []
    for tensor in tensors:
        if tensor.lengths is not None:
            outer = batch_of(tensor.lengths)
            batches.append(math.prod(outer))
            sizes += tensor.lengths[len(outer) :]
    if not batches:
        return {}
    return {"batch": tuple(batches), "sizes": tuple(sizes)}


def _types(graph: Graph, node: Node, kind: str) -> _Measure:
    """Return the types of computation; None if one is unknown."""
    types: list[str | None] = []
    if kind != "cast":
        types += [_type_read(graph, tensor) for tensor in graph.varying_inputs(node)]
    if kind != "comparison" and node.outputs:
        types.append(_type_made(graph, node.outputs[0]))
    known = tuple(each for each in types if each is not None)
    if len(known) < len(types):
        return None
    return known


def _type_read(graph: Graph, tensor: Tensor) -> str | None:
    """Return the type of an input; behind a quantizer it is INT8."""
    source = graph.maker(tensor.name)
    if source is not None and source.op == "DequantizeLinear":
        return "int8"
    return tensor.dtype


def _type_made(graph: Graph, name: str) -> str | None:
    """Return the type of an output; if only quantizers read it, it is INT8."""
    readers = {graph.nodes[index].op for index in graph.consumers.get(name, ())}
    if readers == {"QuantizeLinear"}:
        return "int8"
    return graph.tensor(name).dtype


def _known(value: Value | None) -> _Measure:
    return None if value is None else (value,)


def _channels(weight: Tensor, axis: int, times: int = 1) -> _Measure:
    length = weight.length(axis)
    if length is None:
        return None
    return (length * times,)


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
    kernel, dilation, padding = found["kernel"], found["dilation"], found["padding"]
    if kernel and dilation and padding is not None:
        covered = _covered(kernel, dilation)
        found["padding_beyond_kernel"] = _beyond(padding, covered)
        if covered != kernel:
            found["padding_beyond_undilated_kernel"] = _beyond(padding, kernel)
    if found["spatial_dimensions"] == (2,):
        inputs, width, banks = found["input_channels"], graph.input(node, 0).length(-1), None
        if kernel and dilation and inputs and width is not None:
            sides = (int(kernel[0]), int(kernel[1]))
            banks = buffer_banks(int(inputs[0]), sides, int(dilation[0]), width, bytes_each)
        found["buffer_banks"] = _known(banks)
    return found


def _covered(kernel: tuple[Value, ...], dilation: tuple[Value, ...]) -> tuple[Value, ...]:
    """Return how many elements a kernel with gaps spans in each dimension."""
    pairs = zip(kernel, dilation, strict=False)
    return tuple((int(side) - 1) * int(gap) + 1 for side, gap in pairs)


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
    squares = []
    for sides in (found["kernel"], found["stride"]):
        if sides is not None and len(sides) == 2 and sides[0] == sides[1]:
            squares.append(sides[0])
    if squares:
        found["square_side"] = tuple(squares)
    extra = node.attribute("output_padding", tuple) or (0,) * len(found["kernel"] or ())
    if node.attribute("output_shape", tuple) or node.attribute("auto_pad", str) in _SAME:
        found["padding"], extra = _implied_paddings(graph, node, found, extra)
    return found | {
        "groups": (node.groups,),
        "input_channels": _channels(weight, 0),
        "output_channels": _channels(weight, 1, times=node.groups),
        "output_padding": extra or (0,),
    }


def _implied_paddings(
    graph: Graph, node: Node, window: Measures, extra: tuple[int, ...]
) -> tuple[_Measure, tuple[int, ...]]:
    """Return the paddings of input and output that follow from the size of the output."""
    given, made = graph.input(node, 0).lengths or (), graph.output(node).lengths or ()
    stride, kernel, dilation = window["stride"] or (), window["kernel"] or (), window["dilation"]
    covered = _covered(kernel, dilation or ())
    padding: list[int] = []
    output_padding: list[int] = []
    for size, end, step, span, more in zip(
        given[2:], made[2:], stride, covered, extra, strict=False
    ):
        # Both sides of the input together; below 0, the output is padded instead.
        implied = (size - 1) * int(step) + int(span) + more - end
        padding.append(max(0, implied))
        output_padding.append(more - min(0, implied))
    return tuple(padding) or None, tuple(output_padding)


def _fully_connected(graph: Graph, node: Node) -> Measures:
    """Measure a matrix product; the DLA needs one constant factor."""
    left, right = graph.input(node, 0), graph.input(node, 1)
    if not left.name or not right.name:
        return {"has_constant_weights": None}
    if right.is_constant:
        weight, data = right, left
    elif left.is_constant:
        weight, data = left, right
    else:
        return {"has_constant_weights": (False,)}
    inputs, outputs = -2, -1
    if node.attribute("transB", int):
        inputs, outputs = outputs, inputs
    factors = {node.attribute("alpha", float), node.attribute("beta", float)} - {None, 1.0}
    is_plain = not factors and not node.attribute("transA", int) and right.is_constant
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
    count = len(data.shape or (0,) * IMAGE_RANK) - 2
    if kernel is not None:
        count = len(kernel)
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
    if shape is None or kernel is None:
        return None
    # An invalid model may have fewer strides than dimensions.
    if not len(shape) - 2 == len(kernel) == len(stride) == len(dilation):
        return None
    before: list[int] = []
    after: list[int] = []
    for length, side, step, gap in zip(shape[2:], kernel, stride, dilation, strict=True):
        if not isinstance(length, int) or step < 1:
            return None
        total = max(0, (math.ceil(length / step) - 1) * step + (side - 1) * gap + 1 - length)
        before.append(total // 2)
        after.append(total - total // 2)
    return (*before, *after)


def _activation(graph: Graph, node: Node) -> Measures:
    """Measure an activation; the limits of Clip are attributes or constants."""
    if node.op != "Clip":
        return {}
    return {
        "clip_minimum": _limit(graph, node, "min", 1, float("-inf")),
        "clip_maximum": _limit(graph, node, "max", 2, float("inf")),
    }


def _limit(graph: Graph, node: Node, name: str, position: int, default: float) -> _Measure:
    written, tensor = node.attribute(name, float), graph.input(node, position)
    if written is not None:
        return (written,)
    if not tensor.name:
        return (default,)
    if tensor.values is None:
        return None
    return tensor.values[:1]


def _local_response(_: Graph, node: Node) -> Measures:
    return {"window": _known(node.attribute("size", int))}


def _parametric_relu(graph: Graph, node: Node) -> Measures:
    rank, slope = graph.input(node, 0).rank, graph.input(node, 1)
    difference: _Measure = None
    if rank is not None and slope.rank is not None:
        difference = (rank - slope.rank,)
    return {"has_constant_slope": (slope.is_constant,), "rank_difference": difference}


def _elementwise(graph: Graph, node: Node) -> Measures:
    """Measure an operation on elements of several tensors."""
    found: Measures = {"constant_operands": (len(_constant_inputs(graph, node)),)}
    out = graph.output(node).shape
    # With fewer dimensions the rule on the rank applies instead.
    if out is None or len(out) >= IMAGE_RANK:
        found["broadcast"] = _broadcast(graph, node, out)
    return found


def _broadcast(graph: Graph, node: Node, out: Shape | None) -> _Measure:
    """Return the shape of each operand relative to the result: NCHW, NC11, N111 or other."""
    if out is None:
        return None
    # The batch has to be the same: no page documents that a batch of one is broadcast.
    known = {(*out[:-3], 1, 1, 1): "N111", (*out[:-2], 1, 1): "NC11", out: "NCHW"}
    forms = []
    for name in filter(None, node.inputs):
        shape = graph.tensor(name).shape
        if shape is None:
            return None
        full = (1,) * (len(out) - len(shape)) + shape
        forms.append(known.get(full, "other"))
    return tuple(forms)


def _scale(graph: Graph, node: Node) -> Measures:
    """Measure a sum or a product with a constant, or a batch normalization: one per channel."""
    if node.op == "ImageScaler":
        return {}
    data = [*graph.varying_inputs(node), graph.input(node, 0)][0]
    if data.rank is not None and data.rank < IMAGE_RANK:
        return {"folds_into_convolution": (False,)}
    mode: _Measure = ("channel",)
    if node.op != "BatchNormalization":
        mode = _mode(_constant_inputs(graph, node)[0].shape, data.shape)
    is_factor = mode in (("uniform",), ("channel",))
    folds = is_factor and _convolution_before(graph, node) is not None
    return {"folds_into_convolution": (folds,), "mode": mode}


def _mode(shape: Shape | None, data: Shape | None) -> _Measure:
    """Return which elements of the data share a constant of this shape; None if unknown."""
    if shape is None or data is None:
        return None
    full = (1,) * (len(data) - len(shape)) + shape
    if set(full) <= {1}:
        return ("uniform",)
    if len(full) != len(data):
        return ("other",)
    # A tensor of one or two dimensions has no channels.
    if len(data) >= 3 and full == (*(1,) * (len(data) - 3), data[-3], 1, 1):
        return ("channel",)
    is_whole_image = full[-3:] == data[-3:] and set(full[:-3]) <= {1}
    if is_whole_image or full == data:
        return ("element",)
    return ("other",)


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
    rank, axis = data.rank or 0, node.attribute("axis", int)
    if axis is None:
        axis = 1 if is_joint else -1
    if axis >= 0:
        axis -= rank
    if not rank or axis < -rank:
        return found
    found["axis"] = (_AXES.get(axis, "batch"),)
    if data.lengths is not None:
        length = data.lengths[axis]
        if is_joint:
            length = math.prod(data.lengths[axis:])
        found["axis_length"] = (length,)
        found["is_single"] = (math.prod(data.lengths[-3:]) <= length,)
    return found


def _concatenation(graph: Graph, node: Node) -> Measures:
    axis, rank = node.attribute("axis", int), graph.output(node).rank
    if axis is None or (axis >= 0 and rank is None):
        return {"axis_from_end": None}
    if axis >= 0:
        axis -= rank or 0
    return {"axis_from_end": (-axis,)}


def _reduce(graph: Graph, node: Node) -> Measures:
    """Measure a reduction; without axes it reduces all of them."""
    rank = graph.input(node, 0).rank
    if rank is not None and node.op.startswith("Global"):
        return {"axes": tuple(range(2, rank))}
    return {"axes": _axes(node, graph.input(node, 1), rank, rank)}


def _axes(node: Node, given: Tensor, rank: int | None, count: int | None) -> _Measure:
    """Return the axes of a tensor or an attribute; by default the first ``count``."""
    axes: tuple[Number, ...] | None = node.attribute("axes", tuple)
    if given.name:
        axes = given.values
    elif axes is None and count is not None:
        axes = tuple(range(count))
    if axes is None or rank is None:
        return None
    if rank == 0:
        return tuple(map(int, axes))
    return tuple(int(axis) % rank for axis in axes)


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
    found["reshape_neighbours"] = _neighbours(graph, node)
    if before.shape and after.shape and before.shape[0] is not None:
        found["keeps_batch"] = (before.shape[0] == after.shape[0],)
    return found


def _neighbours(graph: Graph, node: Node) -> tuple[str, ...]:
    """Return the kinds of layer next to a node that TensorRT may merge it with."""
    operators = set()
    source = graph.maker(node.inputs[0])
    if source is not None:
        operators.add(source.op)
    for name in node.outputs:
        operators |= {graph.nodes[index].op for index in graph.consumers.get(name, ())}
    return tuple(sorted({_NEIGHBOURS[op] for op in operators & _NEIGHBOURS.keys()}))


def _slices(graph: Graph, node: Node) -> Measures:
    """Measure a slice, split, padding or repetition: TensorRT converts all to slices."""
    rank = graph.input(node, 0).rank or None
    if node.op == "Split":
        bounds = [graph.input(node, 1)]
        axis = node.attribute("axis", int) or 0
        found: Measures = {"axes": _known(rank and axis % rank), "steps": (1,)}
    elif node.op == "Slice":
        bounds = [graph.input(node, position) for position in (1, 2, 3, 4)]
        starts, _, axes, steps = bounds
        count = starts.elements
        if not starts.name:
            count = len(node.attribute("starts", tuple) or ())
        found = {"axes": _axes(node, axes, rank, count), "steps": (1,)}
        if steps.name:
            found["steps"] = steps.values
    else:
        return {}
    are_static = all(bound.is_constant or not bound.name for bound in bounds)
    return found | {"is_static": (are_static,)}


def _resize(graph: Graph, node: Node) -> Measures:
    """Measure a resize; its scales are given, or follow from the sizes before and after."""
    mode = node.attribute("mode", str) or "nearest"
    if mode == "bilinear":
        mode = "linear"
    is_old = node.op == "Upsample" or graph.opsets.get("", 13) < 11
    place, rounding = "asymmetric", "floor"
    if not is_old:
        place = node.attribute("coordinate_transformation_mode", str) or "half_pixel"
        rounding = node.attribute("nearest_mode", str) or "round_prefer_floor"
    if mode == "nearest":
        place = f"{place} {rounding}"
    found: Measures = {"mode": (mode,), "coordinates": (place,)}
    scales = _scales(graph, node, graph.input(node, 1 if is_old else 2))
    if scales is None:
        return found | dict.fromkeys(("scales", "outer_scales", "inner_scales_are_whole"))
    return found | {
        "scales": (len(scales),),
        "outer_scales": scales[:2],
        "inner_scales": scales[2:],
        "inner_scales_are_whole": (all(float(scale).is_integer() for scale in scales[2:]),),
    }


def _scales(graph: Graph, node: Node, given: Tensor) -> tuple[Number, ...] | None:
    before, after = graph.input(node, 0).lengths, graph.output(node).lengths
    if before is not None and after is not None:
        return tuple(end / max(1, begin) for begin, end in zip(before, after, strict=False))
    if given.values:
        return given.values
    written = node.attributes.get("scales")
    if isinstance(written, tuple):
        return tuple(map(float, written))
    return None


_OF_LAYER: Mapping[str, Callable[[Graph, Node], Measures]] = {
    "activation": _activation,
    "cast": _cast,
    "comparison": _comparison,
    "concatenation": _concatenation,
    "deconvolution": _deconvolution,
    "elementwise": _elementwise,
    "fully_connected": _fully_connected,
    "lrn": _local_response,
    "parametric_relu": _parametric_relu,
    "pooling": _window,
    "reduce": _reduce,
    "resize": _resize,
    "scale": _scale,
    "shuffle": _shuffle,
    "slice": _slices,
    "softmax": _softmax,
}
