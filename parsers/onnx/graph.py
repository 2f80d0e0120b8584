"""A model as a graph: nodes, tensors with types and shapes, and values of small constants."""

import math
from collections import defaultdict
from collections.abc import Mapping
from functools import cached_property

from pydantic import NonNegativeInt

from ..records import Record

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
    """A tensor of a graph.

    Attributes:
        dtype: Element type, ``float32`` ``float16`` ``int8`` …; None if unknown.
        shape: Length of each dimension; None if even their number is unknown.
        is_constant: Whether it is the same at each inference: a weight, or computed from weights.
        is_initializer: Whether the file stores it as a weight.
        values: Elements of a small constant, in order; None if unknown.
    """

    name: str
    dtype: str | None = None
    shape: Shape | None = None
    is_constant: bool = False
    is_initializer: bool = False
    values: tuple[Number, ...] | None = None

    @property
    def lengths(self) -> tuple[int, ...] | None:
        """The shape if every dimension has a number, or None."""
        known = tuple(one for one in self.shape or () if isinstance(one, int))
        return None if self.shape is None or len(known) < len(self.shape) else known

    @property
    def is_fixed(self) -> bool:
        """Whether every dimension has a number."""
        return self.lengths is not None

    @property
    def elements(self) -> int | None:
        """Number of elements; None if a dimension is open."""
        return None if self.lengths is None else math.prod(self.lengths)

    @property
    def size_bytes(self) -> int | None:
        """Size in its own type, packed; None if unknown."""
        elements, bits = self.elements, _BITS.get(self.dtype or "")
        return None if elements is None or bits is None else (elements * bits + 7) // 8


class Node(Record):
    """An operation.

    Attributes:
        name: Its name in the model, or one of operator and index.
        domain: Empty for ONNX's own operators.
        inputs: Names of tensors; an empty name is an omitted input.
        outputs: Names of tensors; an empty name is an omitted output.
        attributes: Numbers, text and tuples of both; tensors are omitted.
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

    def integers(self, name: str, default: tuple[int, ...] | None = None) -> tuple[int, ...] | None:
        """Return an attribute that is a list of integers."""
        found = self.attributes.get(name)
        if isinstance(found, tuple):
            return tuple(int(one) for one in found)
        return default

    def integer(self, name: str, default: int | None = None) -> int | None:
        """Return an attribute that is an integer."""
        found = self.attributes.get(name)
        return found if isinstance(found, int) else default

    def number(self, name: str, default: float | None = None) -> float | None:
        """Return an attribute that is a number."""
        found = self.attributes.get(name)
        return float(found) if isinstance(found, int | float) else default

    def word(self, name: str, default: str = "") -> str:
        """Return an attribute that is text."""
        found = self.attributes.get(name)
        return found if isinstance(found, str) else default


class Graph(Record):
    """A model.

    Attributes:
        opsets: Domain to version; ONNX's own domain is empty.
        nodes: In an order in which each follows those it reads from.
        notes: Remarks on the reading; each is one line.
    """

    name: str = ""
    producer: str = ""
    ir_version: int | None = None
    opsets: dict[str, int] = {}
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    nodes: tuple[Node, ...] = ()
    tensors: dict[str, Tensor] = {}
    notes: tuple[str, ...] = ()

    def tensor(self, name: str) -> Tensor:
        """Return a tensor; an unknown name gives a tensor without facts."""
        return self.tensors.get(name) or Tensor(name=name)

    def input(self, node: Node, position: int) -> Tensor | None:
        """Return an input of a node, or None if it is omitted."""
        if position < len(node.inputs) and node.inputs[position]:
            return self.tensor(node.inputs[position])
        return None

    def output(self, node: Node, position: int = 0) -> Tensor | None:
        """Return an output of a node, or None if it is omitted."""
        if position < len(node.outputs) and node.outputs[position]:
            return self.tensor(node.outputs[position])
        return None

    @cached_property
    def producers(self) -> dict[str, int]:
        """Name of a tensor to the index of the node that makes it."""
        return {name: node.index for node in self.nodes for name in node.outputs if name}

    @cached_property
    def consumers(self) -> dict[str, tuple[int, ...]]:
        """Name of a tensor to the indices of the nodes that read it, in order."""
        found: defaultdict[str, list[int]] = defaultdict(list)
        for node in self.nodes:
            for name in dict.fromkeys(node.inputs):
                if name:
                    found[name].append(node.index)
        return {name: tuple(indices) for name, indices in found.items()}
