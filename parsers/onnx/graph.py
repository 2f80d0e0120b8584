"""A model as a graph: nodes, tensors with types and shapes, and what small constants hold."""

from collections import defaultdict
from collections.abc import Mapping
from functools import cached_property

from pydantic import NonNegativeInt

from ..records import Record

# Length of a dimension: a number, the name that the model gives it, or nothing known.
Dimension = int | str | None
Shape = tuple[Dimension, ...]
Number = int | float | bool
# What is longer than this is no shape and no limit: its values are not read.
LONGEST_VALUES = 256

# A subgraph (of ``If``, ``Loop`` …) is only told by this word.
SUBGRAPH = "<subgraph>"
Attribute = int | float | str | tuple[int, ...] | tuple[float, ...] | tuple[str, ...]

_BITS: Mapping[str, int] = {
    "bfloat16": 16,
    "bool": 8,
    "complex128": 128,
    "complex64": 64,
    "float16": 16,
    "float32": 32,
    "float4e2m1": 4,
    "float64": 64,
    "float8e4m3fn": 8,
    "float8e4m3fnuz": 8,
    "float8e5m2": 8,
    "float8e5m2fnuz": 8,
    "float8e8m0": 8,
    "int16": 16,
    "int32": 32,
    "int4": 4,
    "int64": 64,
    "int8": 8,
    "uint16": 16,
    "uint32": 32,
    "uint4": 4,
    "uint64": 64,
    "uint8": 8,
}


class Tensor(Record):
    """A tensor of a graph.

    Attributes:
        name: Unique in the graph.
        dtype: Element type, ``float32`` ``float16`` ``int8`` …; ``None`` where nothing tells it.
        shape: Length of each dimension; ``None`` where not even their number is known.
        is_constant: Whether it is the same at each inference: a weight, or made of such alone.
        is_initializer: Whether the file holds it as a weight.
        values: Its elements in order, of a small constant; ``None`` where they are not known.
    """

    name: str
    dtype: str | None = None
    shape: Shape | None = None
    is_constant: bool = False
    is_initializer: bool = False
    values: tuple[Number, ...] | None = None

    @property
    def is_fixed(self) -> bool:
        """Whether the length of each dimension is a number."""
        return self.shape is not None and all(isinstance(one, int) for one in self.shape)

    @property
    def elements(self) -> int | None:
        """How many elements it has; ``None`` where a dimension is open."""
        if self.shape is None:
            return None
        count = 1
        for length in self.shape:
            if not isinstance(length, int):
                return None
            count *= length
        return count

    @property
    def size_bytes(self) -> int | None:
        """What it takes in its own type, packed; ``None`` where that is not known."""
        elements, bits = self.elements, _BITS.get(self.dtype or "")
        return None if elements is None or bits is None else (elements * bits + 7) // 8


class Node(Record):
    """An operation.

    Attributes:
        index: Its place in the model's list.
        name: As the model calls it; made of its operator and index where it has none.
        op: ``Conv`` …
        domain: Empty for ONNX's own operators.
        inputs: Names of tensors; an empty one is left out.
        outputs: The same.
        attributes: Numbers, words and tuples of such; a subgraph is only told by a word, and a
            tensor is left out.
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
        name: Of the graph.
        producer: What exported it, with its version.
        ir_version: Of the file.
        opsets: Domain to version; ONNX's own domain is empty.
        inputs: Names of the tensors it is given, weights left out.
        outputs: Names of the tensors it returns.
        nodes: In an order in which each comes after those it needs.
        tensors: Name to tensor.
        notes: What could not be found out, a line each.
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
        """Return a tensor; one of which nothing is known for a name that nothing tells of."""
        return self.tensors.get(name) or Tensor(name=name)

    def input(self, node: Node, position: int) -> Tensor | None:
        """Return an input of a node; ``None`` where it is left out."""
        if position < len(node.inputs) and node.inputs[position]:
            return self.tensor(node.inputs[position])
        return None

    def output(self, node: Node, position: int = 0) -> Tensor | None:
        """Return an output of a node; ``None`` where it is left out."""
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
