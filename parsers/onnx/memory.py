"""Estimate the memory that ONNX Runtime takes on a CPU for a model, before it is loaded.

Its allocations are replayed, because the sum of live tensors is half of what it takes: the first
inference allocates tensor by tensor, and what it frees stays in the arena; later ones take one
piece for all tensors.

Source:
    ``bfc_arena.cc``, ``mem_pattern_planner.h`` and ``nchwc_transformer.cc`` of ONNX Runtime. The
    copies of weights, and what is written in place, are those of 110 random networks in version
    1.32 on an x86-64 with AVX-512, with and without blocks of channels.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from .costs import is_constant
from .graph import Graph, Tensor

# As read, in blocks, and as a constant of the session.
_COPIES_IN_BLOCKS = 3
# Of smaller weights the first copy stays in the heap, which does not shrink.
_LARGE_WEIGHT_BYTES = 2 << 20
_FIRST_REGION_BYTES, _ENDLESS = 1 << 20, 1 << 62
# The largest exported models have some ten thousand; for more, a replay would take minutes.
_MOST_NODES = 20_000

_VIEWS = frozenset({"Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"})
_IN_PLACE = frozenset({"Clip", "HardSwish", "LeakyRelu", "Mul", "Relu", "Sigmoid"})
# What keeps the blocks of the convolution before it.
_KEEP_BLOCKS = _IN_PLACE | {"Add", "AveragePool", "GlobalAveragePool", "MaxPool"}


class _Step(NamedTuple):
    """An operation: the tensors that it reads, the one that it makes, and the bytes of that."""

    reads: Sequence[str]
    makes: str
    size: int
    op: str = "Copy"


class _Region:
    """A piece of memory: its allocations by name, and how much of it was ever written."""

    def __init__(self, size: int) -> None:
        self.size, self.touched = size, 0
        self.taken: dict[str, tuple[int, int]] = {}

    def gaps(self, size: int) -> Iterator[tuple[int, int]]:
        """Yield length and offset of each gap of such a size or more."""
        begin = 0
        for offset, length in (*sorted(self.taken.values()), (self.size, 0)):
            if offset - begin >= size:
                yield offset - begin, begin
            begin = offset + length

    def take(self, name: str, begin: int, size: int, length: int) -> None:
        """Write ``size`` bytes into a piece of ``length``."""
        self.taken[name] = begin, length
        self.touched = max(self.touched, begin + size)


class _Arena:
    """Regions, each twice the one before, of which none is given back."""

    def __init__(self) -> None:
        self._next = _FIRST_REGION_BYTES
        self.regions: list[_Region] = []

    def allocate(self, name: str, size: int) -> None:
        """Allocate the smallest gap, of which the rest is lost unless it is as large again."""
        # Of equal gaps the lowest address counts, and the kernel maps new regions below old ones.
        newest_first = self.regions[::-1]
        gaps = [(*gap, region) for region in newest_first for gap in region.gaps(size)]
        if not gaps:
            gaps.append((*self._grow(size), self.regions[-1]))
        length, begin, region = min(gaps, key=lambda gap: gap[0])
        if length >= 2 * size:
            length = size
        region.take(name, begin, size, length)

    def _grow(self, size: int) -> tuple[int, int]:
        """Add a region, and return its only gap."""
        grown = self._next
        while grown < size:
            grown *= 2
        self._next = max(grown, 2 * self._next)
        self.regions.append(_Region(grown))
        return grown, 0


def session_bytes(graph: Graph, block: int) -> int | None:
    """Return the bytes that a model takes in a session, or None if it has too many nodes.

    A tensor of unknown size counts as nothing.

    Args:
        block: Channels in a block of ONNX Runtime's convolutions; 1 if it makes no blocks.
    """
    if len(graph.nodes) > _MOST_NODES:
        return None
    weights: dict[str, int] = {}
    largest = 0
    for node in graph.nodes:
        for tensor in map(graph.tensor, node.inputs):
            if not tensor.is_constant:
                continue
            size = tensor.size_bytes or 0
            largest = max(largest, size)
            copies = 1
            if node.op == "Conv" and block > 1:
                copies = _COPIES_IN_BLOCKS
            elif node.op != "Conv" and size < _LARGE_WEIGHT_BYTES:
                copies = 2
            weights[tensor.name] = copies * size
    inputs = sum(graph.tensor(name).size_bytes or 0 for name in graph.inputs)
    # The largest weight is there once more while it is converted, before the first inference.
    return sum(weights.values()) + inputs + max(largest, _arena_bytes(graph, block))


def _arena_bytes(graph: Graph, block: int) -> int:
    """Return what the arena holds after two inferences: activations and outputs."""
    steps = [*_steps(graph, block)]
    read = {name for step in steps for name in step.reads}
    outputs = {step.makes: step.size for step in steps if step.makes not in read}
    arena, pattern = _Arena(), _Region(_ENDLESS)
    for name, size in _lifetimes(steps):
        if size is None:
            for region in (pattern, *arena.regions):
                region.taken.pop(name, None)
            continue
        arena.allocate(name, size)
        if name not in outputs:
            pattern.take(name, min(pattern.gaps(size))[1], size, size)
    # The outputs of the first inference are held until the second has made its own.
    arena.allocate("pattern", pattern.touched)
    for name, size in outputs.items():
        arena.allocate(f"second {name}", size)
    # The arena has a table of its regions, of 8 bytes for each 256.
    return sum(region.touched + region.size // 32 for region in arena.regions)


def _lifetimes(steps: Sequence[_Step]) -> Iterator[tuple[str, int | None]]:
    """Yield each buffer with its size when it is made, and with None after its last reader."""
    readers = Counter(name for step in steps for name in step.reads)
    sizes: dict[str, int] = {}
    buffers: dict[str, str] = {}
    for step in steps:
        reads = [buffers[name] for name in step.reads if name in buffers]
        buffer = step.makes
        for name in reads:
            is_last = readers[name] == 1 and sizes[name] == step.size
            if step.op in _VIEWS or (is_last and step.op in _IN_PLACE):
                buffer = name
        buffers[step.makes] = buffer
        if buffer == step.makes:
            sizes[buffer] = step.size
            yield buffer, step.size
        else:
            # What nobody reads is an output, which stays.
            readers[buffer] += readers[step.makes] or len(steps)
        for name in reads:
            readers[name] -= 1
            if readers[name] == 0:
                yield name, None


def _steps(graph: Graph, block: int) -> Iterator[_Step]:
    """Yield the operations of a graph, and the copies between blocked and plain tensors."""
    blocked: set[str] = set()
    copies: set[str] = set()
    for node in graph.nodes:
        if is_constant(graph, node):
            continue
        tensors = graph.varying_inputs(node)
        names = [tensor.name for tensor in tensors]
        is_blocked = node.op in _KEEP_BLOCKS and blocked.issuperset(names)
        if node.op == "Conv":
            is_blocked = block > 1
        width = block if is_blocked else 1
        reads = []
        for tensor in tensors:
            name = tensor.name
            # Images, of three channels, are read as they are.
            if (name in blocked) != is_blocked and name not in graph.inputs:
                name = f"{name} {is_blocked}"
                if name not in copies:
                    copies.add(name)
                    yield _Step((tensor.name,), name, _size(tensor, width))
            reads.append(name)
        for tensor in map(graph.tensor, filter(None, node.outputs)):
            size = _size(tensor, width)
            op = node.op
            if is_blocked:
                blocked.add(tensor.name)
            elif op == "HardSwish":
                # Outside of a convolution it is a HardSigmoid and a product.
                yield _Step(reads, f"{tensor.name} factor", size)
                reads, op = [*reads, f"{tensor.name} factor"], "Product"
            yield _Step(reads, tensor.name, size, op)
    for name in blocked.intersection(graph.outputs):
        yield _Step((name,), f"{name} False", _size(graph.tensor(name), 1))


def _size(tensor: Tensor, block: int) -> int:
    """Return the bytes of a tensor with its channels filled up to whole blocks; 0 if unknown."""
    size, channels = tensor.size_bytes or 0, tensor.length(1)
    if tensor.rank != 4 or not channels:
        return size
    return size // channels * -(-channels // block) * block
