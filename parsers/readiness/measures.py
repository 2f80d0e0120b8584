"""What the rules ask of a layer: its sizes, its ranges, how it stands to its neighbours.

A measure is a tuple of values. ``None`` in its place: the model does not tell. A measure that a
layer does not have is not in the mapping.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..onnx.graph import Graph, Node, Tensor
from .layers import Layer, data_inputs, producer
from .measures_of_data import (
    activation,
    cast,
    comparison,
    concatenation,
    elementwise,
    parametric_relu,
    reduce,
    scale,
    softmax,
    unary,
)
from .measures_of_shape import resize, shuffle, slices
from .measures_of_windows import convolution, deconvolution, fully_connected, lrn, pooling
from .rules import Precision, Value

Measure = tuple[Value, ...] | None
Measures = dict[str, Measure]

_OF_LAYER: Mapping[str, Callable[[Graph, Node, Layer], Measures]] = {
    "activation": activation,
    "cast": cast,
    "comparison": comparison,
    "concatenation": concatenation,
    "deconvolution": deconvolution,
    "elementwise": elementwise,
    "fully_connected": fully_connected,
    "lrn": lrn,
    "parametric_relu": parametric_relu,
    "pooling": pooling,
    "reduce": reduce,
    "resize": resize,
    "scale": scale,
    "shuffle": shuffle,
    "slice": slices,
    "softmax": softmax,
    "unary": unary,
}


@dataclass(frozen=True)
class Built:
    """What a model is built for.

    Attributes:
        precision: Of the layers.
        is_converted: Whether FP32 in the model is taken as converted to it.
    """

    precision: Precision
    is_converted: bool = False


# The DLA counts what is in front of the last three dimensions as batch.
_IMAGE_DIMENSIONS = 3


def measures_of(graph: Graph, node: Node, layer: Layer, built: Built) -> Measures:
    """Measure a layer.

    Args:
        graph: The model.
        node: The node that becomes the layer.
        layer: The layer.
        built: What it is built for.

    Returns:
        Name to values; ``None`` for values where the model does not tell.
    """
    tensors = [*data_inputs(graph, node), *filter(None, (graph.output(node),))]
    found: Measures = {
        "is_fixed": _is_fixed(graph, tensors),
        "types": _types(graph, node, layer.kind),
    }
    if not built.is_converted:
        found["types_as_written"] = found["types"]
    fixed = [
        tuple(length for length in one.shape or () if isinstance(length, int))
        for one in tensors
        if one.is_fixed
    ]
    if layer.kind != "fully_connected" and fixed:
        found["batch"] = tuple(math.prod(_batch(shape)) for shape in fixed)
        found["sizes"] = tuple(size for shape in fixed for size in shape[len(_batch(shape)) :])
    if layer.kind == "convolution":
        found |= convolution(graph, node, layer, bytes_each=1 if built.precision == "int8" else 2)
    elif layer.kind in _OF_LAYER:
        found |= _OF_LAYER[layer.kind](graph, node, layer)
    if layer.operation is not None:
        found["operation"] = (layer.operation,)
    return found


def _batch(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the dimensions that are batch; of a tensor without an image, the first.

    >>> _batch((2, 3, 16, 32, 32)), _batch((2, 10)), _batch((10,))
    ((2, 3), (2,), ())
    """
    if len(shape) > _IMAGE_DIMENSIONS:
        return shape[:-_IMAGE_DIMENSIONS]
    return shape[:1] if len(shape) > 1 else ()


def _is_fixed(graph: Graph, tensors: list[Tensor]) -> Measure:
    if all(one.is_fixed for one in tensors):
        return (True,)
    is_open = any(not graph.tensor(name).is_fixed for name in graph.inputs)
    told = any(isinstance(length, str) for one in tensors for length in one.shape or ())
    # With fixed inputs, what is missing is what the inference of shapes could not find.
    return (False,) if is_open or told else None


def _types(graph: Graph, node: Node, kind: str) -> Measure:
    """Name the types that are computed in; one that is dequantised on the way in is INT8."""
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
