"""The TensorRT layer of an ONNX node, as far as it depends on more than the operator."""

from typing import NamedTuple

from ...parsers.onnx.graph import Graph, Node, Tensor
from .rules import Operator

_PRODUCTS = frozenset({"Gemm", "MatMul"})
_CONVOLUTIONS = frozenset({"Conv", "ConvTranspose"})
# Operators that do nothing if they keep the shape.
_SHAPED = frozenset({"Expand", "Flatten", "Pad", "Reshape", "Resize", "Tile", "Upsample"})


class Layer(NamedTuple):
    """A node as a layer: kind (``convolution``) and, for some kinds, operation (``max``)."""

    kind: str
    operation: str | None = None


def layer_of(graph: Graph, node: Node, operator: Operator) -> Layer | str | None:
    """Return the layer of a node that is not constant, or None if the DLA never has such a layer.

    For a folded node, which is not a layer of its own, return the reason.
    """
    why = _vanishes(graph, node, operator)
    if why is not None or operator.layer is None:
        return why
    # TensorRT converts a sum or a product with a constant to a Scale layer.
    has_constant = len(data_inputs(graph, node)) < sum(1 for name in node.inputs if name)
    is_linear = operator.operation in ("sum", "sub", "prod")
    if operator.layer == "elementwise" and is_linear and has_constant:
        return Layer("scale", operator.operation)
    return Layer(operator.layer, operator.operation)


# The DLA counts all dimensions before the last three as batch.
_IMAGE_DIMENSIONS = 3


def batch_of(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the dimensions that are batch; the first one if the tensor is not an image.

    >>> batch_of((2, 3, 16, 32, 32)), batch_of((2, 10)), batch_of((10,))
    ((2, 3), (2,), ())
    """
    if len(shape) > _IMAGE_DIMENSIONS:
        return shape[:-_IMAGE_DIMENSIONS]
    return shape[:1] if len(shape) > 1 else ()


def data_inputs(graph: Graph, node: Node) -> list[Tensor]:
    """Return the inputs of a node that change with each inference."""
    found = [graph.tensor(name) for name in node.inputs if name]
    return [tensor for tensor in found if not tensor.is_constant]


def sole_consumer(graph: Graph, node: Node) -> Node | None:
    """Return the only reader of a node; None if there are several or it makes a model output."""
    readers = {reader for name in node.outputs for reader in graph.consumers.get(name, ())}
    if len(readers) != 1 or any(name in graph.outputs for name in node.outputs):
        return None
    return graph.nodes[readers.pop()]


def producer(graph: Graph, name: str) -> Node | None:
    """Return the node that makes a tensor; None for inputs and weights."""
    index = graph.producers.get(name)
    return None if index is None else graph.nodes[index]


def _vanishes(graph: Graph, node: Node, operator: Operator) -> str | None:
    if operator.layer == "identity":
        return "it changes nothing"
    before, after = graph.input(node, 0), graph.output(node)
    if before is None or after is None or operator.layer == "quantization":
        return None
    if node.op == "Cast" and before.dtype is not None and before.dtype == after.dtype:
        return "it changes nothing"
    if node.op == "Transpose" and node.integers("perm") == tuple(range(len(before.shape or ()))):
        return "it changes nothing" if before.shape is not None else None
    if node.op in _SHAPED and before.is_fixed and before.shape == after.shape:
        return "it changes nothing"
    source = producer(graph, before.name)
    if node.op == "BatchNormalization" and source is not None and source.op in _CONVOLUTIONS:
        return f"it is merged into {source.name}" if sole_consumer(graph, source) is node else None
    if operator.layer == "shuffle" and _is_flattened_pixel(graph, node, before, after):
        return "the matrix product after it accepts [N, C, 1, 1]"
    if operator.operation == "sum" and _is_bias_of_product(graph, node):
        return "it is the bias of the matrix product before it"
    return None


def _is_flattened_pixel(graph: Graph, node: Node, before: Tensor, after: Tensor) -> bool:
    """Whether it is ``[N, C, 1, 1]`` to ``[N, C]`` for a product; public builds do not cut it."""
    reader = sole_consumer(graph, node)
    if reader is None or reader.op not in _PRODUCTS or node.op == "Transpose":
        return False
    if before.shape is None or len(before.shape) != 4 or before.shape[2:] != (1, 1):
        return False
    return after.shape == before.shape[:2] and reader.inputs[0] == node.outputs[0]


def _is_bias_of_product(graph: Graph, node: Node) -> bool:
    data = data_inputs(graph, node)
    if len(data) != 1 or len(node.inputs) != 2:
        return False
    source = producer(graph, data[0].name)
    if source is None or source.op != "MatMul" or sole_consumer(graph, source) is not node:
        return False
    constants = [graph.tensor(name) for name in node.inputs if name != data[0].name]
    made, shape = graph.output(source), constants[0].shape if constants else None
    if len(data_inputs(graph, source)) != 1 or made is None or made.shape is None:
        return False
    return shape is not None and len(shape) == 1 and shape[0] in (1, made.shape[-1])
