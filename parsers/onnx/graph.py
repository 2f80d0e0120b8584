"""A model as a graph: nodes, tensors with types and shapes, and values of small constants."""

import math
from collections import defaultdict
from collections.abc import Mapping
from functools import cached_property
from typing import Any, TypeVar

from pydantic import NonNegativeInt, PositiveInt

from ..records import Record

T = TypeVar("T", int, float, str, tuple[Any, ...])
# Length of a dimension: a number, the model's name for it, or None if unknown.
Dimension = int | str | None
Shape = tuple[Dimension, ...]
Number = int | float | bool
# A longer tensor is neither a shape nor a limit: its values are not read.
LONGEST_VALUES = 256

# Stands for a subgraph (of ``If``, ``Loop`` …), which is not read.
SUBGRAPH = "<subgraph>"
Attribute = int | float | str | tuple[int, ...] | tuple[float, ...] | tuple[str, ...]

_BITS: Mapping[str, int] = {
    **dict.fromkeys(("float4e2m1", "int4", "uint4"), 4),
    **dict.fromkeys(("bool", "int8", "uint8", "float8e4m3fn", "float8e4m3fnuz"), 8),
    **dict.fromkeys(("float8e5m2", "float8e5m2fnuz", "float8e8m0"), 8),
    **dict.fromkeys(("bfloat16", "float16", "int16", "uint16"), 16),
    **dict.fromkeys(("float32", "int32", "uint32"), 32),
    **dict.fromkeys(("complex64", "float64", "int64", "uint64"), 64),
    "complex128": 128,
}


class Tensor(Record):
    """A tensor of a graph: element type (``float32``), shape, and values of a small constant.

    Attributes:
        shape: None if even the number of dimensions is unknown.
        is_constant: Whether it is the same at each inference: a weight, or computed from weights.
    """

    name: str
    dtype: str | None = None
    shape: Shape | None = None
    is_constant: bool = False
    values: tuple[Number, ...] | None = None

    @property
    def rank(self) -> int | None:
        """Number of dimensions; None if unknown."""
        if self.shape is None:
            return None
        return len(self.shape)

    @property
    def lengths(self) -> tuple[int, ...] | None:
        """The shape if every dimension has a number, or None."""
        if self.shape is None:
            return None
        known = tuple(length for length in self.shape if isinstance(length, int))
        if len(known) < len(self.shape):
            return None
        return known

    @property
    def is_fixed(self) -> bool:
        """Whether every dimension has a number."""
        return self.lengths is not None

    @property
    def elements(self) -> int | None:
        """Number of elements; None if a dimension is open."""
        if self.lengths is None:
            return None
        return math.prod(self.lengths)

    @property
    def size_bytes(self) -> int | None:
        """Size in its own type, packed; None if unknown."""
        elements, bits = self.elements, _BITS.get(self.dtype or "")
        if elements is None or bits is None:
            return None
        return (elements * bits + 7) // 8

    def length(self, axis: int) -> int | None:
        """Return the length of a dimension; None if it is open, unknown or not there."""
        shape = self.shape or ()
        if not -len(shape) <= axis < len(shape):
            return None
        length = shape[axis]
        if not isinstance(length, int):
            return None
        return length


class Node(Record):
    """An operation; the domain is empty for ONNX's own, and an omitted tensor has an empty name.

    Attributes are numbers, text and tuples of both; tensors among them are omitted.
    """

    index: NonNegativeInt
    name: str
    op: str
    domain: str = ""
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    attributes: dict[str, Attribute] = {}

    @property
    def has_subgraph(self) -> bool:
        """Whether it runs a graph of its own."""
        return SUBGRAPH in self.attributes.values()

    @property
    def groups(self) -> int:
        """Number of groups of a convolution."""
        return self.attribute("group", int) or 1

    def attribute(self, name: str, kind: type[T]) -> T | None:
        """Return an attribute if it is of a kind: a number, text, or a tuple of them."""
        value = self.attributes.get(name)
        if not isinstance(value, kind):
            return None
        return value


class Graph(Record):
    """A model: ``opsets`` by domain, nodes each after those it reads from, notes on the reading.

    Attributes:
        image_size: Height and width that the file's metadata gives as the size of its images.
    """

    opsets: dict[str, int] = {}
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    nodes: tuple[Node, ...] = ()
    tensors: dict[str, Tensor] = {}
    notes: tuple[str, ...] = ()
    image_size: tuple[PositiveInt, PositiveInt] | None = None

    def tensor(self, name: str) -> Tensor:
        """Return a tensor; an unknown name gives a tensor without facts."""
        return self.tensors.get(name) or Tensor(name=name)

    def input(self, node: Node, position: int) -> Tensor:
        """Return an input of a node; an omitted one has neither name nor facts."""
        if position >= len(node.inputs):
            return self.tensor("")
        return self.tensor(node.inputs[position])

    def output(self, node: Node) -> Tensor:
        """Return the first output of a node; an omitted one has neither name nor facts."""
        return self.tensor(node.outputs[0] if node.outputs else "")

    def varying_inputs(self, node: Node) -> list[Tensor]:
        """Return the inputs of a node that change with each inference."""
        tensors = [self.tensor(name) for name in node.inputs if name]
        return [tensor for tensor in tensors if not tensor.is_constant]

    def maker(self, name: str) -> Node | None:
        """Return the node that makes a tensor; None for inputs and weights."""
        if name not in self.producers:
            return None
        return self.nodes[self.producers[name]]

    def sole_reader(self, node: Node) -> Node | None:
        """Return the only reader of a node; None if there are several or it makes an output."""
        readers: set[int] = set()
        for name in node.outputs:
            if name in self.outputs:
                return None
            readers.update(self.consumers.get(name, ()))
        if len(readers) != 1:
            return None
        return self.nodes[readers.pop()]

    @cached_property
    def producers(self) -> dict[str, int]:
        """Name of a tensor to the index of the node that makes it."""
        producers = {}
        for node in self.nodes:
            for name in node.outputs:
                if name:
                    producers[name] = node.index
        return producers

    @cached_property
    def consumers(self) -> dict[str, tuple[int, ...]]:
        """Name of a tensor to the indices of the nodes that read it, in order."""
        readers: defaultdict[str, list[int]] = defaultdict(list)
        for node in self.nodes:
            for name in filter(None, dict.fromkeys(node.inputs)):
                readers[name].append(node.index)
        return {name: tuple(indices) for name, indices in readers.items()}
