"""What a model costs: work, bytes moved, and how much work there is for a byte.

Bytes are those of the precision that is asked for, and each node is counted as if it ran alone:
it reads every input and every weight once and writes every output once. What TensorRT fuses moves
less; the edges of a part are the least that it must move.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Literal

from ..onnx.graph import Graph, Node, Tensor
from .cost_records import Costs, NodeCost, PartCost
from .records import Judged, Part
from .work import flops, multiply_adds

CostPrecision = Literal["fp32", "fp16", "int8"]
_BITS = {"fp32": 32, "fp16": 16, "int8": 8}
_REAL = frozenset({"bfloat16", "float16", "float32", "float64"})

# How many inputs, from the first, are data; the others say how, as a shape or axes do.
_DATA_INPUTS = {
    "Clip": 1,
    "ConstantOfShape": 0,
    "Dropout": 1,
    "Expand": 1,
    "Pad": 1,
    "ReduceMax": 1,
    "ReduceMean": 1,
    "ReduceMin": 1,
    "ReduceSum": 1,
    "Resize": 1,
    "Shape": 0,
    "Size": 0,
    "Split": 1,
    "Tile": 1,
    "TopK": 1,
}
# The same elements in the same order: nothing has to move.
_VIEWS = frozenset(
    {"Constant", "Dropout", "Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"}
)
# They read of their first input what they return, and no more.
_PICKS = frozenset({"Gather", "GatherElements", "GatherND", "Slice"})


def costs_of(
    graph: Graph,
    judged: Sequence[Judged],
    loadables: Sequence[Part],
    islands: Sequence[Part],
    precision: CostPrecision,
) -> Costs:
    """Count what a judged model costs.

    Args:
        graph: The model, with shapes; what is open is not counted.
        judged: Its nodes, in its order; what is constant costs nothing at an inference.
        loadables: Parts on the DLA.
        islands: Parts on the GPU.
        precision: In which real numbers are counted.

    Returns:
        Work in operations (a multiply-add is two) and bytes of one inference, at the batch that
        the graph's shapes say.
    """
    constant = {one.index for one in judged if one.placement == "constant"}
    counted = {
        node.index: NodeCost(
            index=node.index,
            flops=0,
            multiply_adds=0,
            input_bytes=0,
            weight_bytes=0,
            output_bytes=0,
            moved_bytes=0,
        )
        if node.index in constant
        else node_cost(graph, node, precision)
        for node in graph.nodes
    }
    runs = [node.index for node in graph.nodes if node.index not in constant]
    whole = _part(graph, counted, runs, precision, (graph.inputs, graph.outputs), None)
    convolutions = [
        node for node in graph.nodes if node.op == "Conv" and node.index not in constant
    ]
    kinds = [(_convolution_kind(graph, node), counted[node.index].flops) for node in convolutions]

    def share(kind: str) -> float | None:
        if not whole.flops:
            return None
        return sum(work or 0 for found, work in kinds if found == kind) / whole.flops

    def part(one: Part) -> PartCost:
        inside = [index for index in one.nodes if index not in constant]
        return _part(graph, counted, inside, precision, (one.inputs, one.outputs), whole.flops)

    return Costs(
        precision=precision,
        total=whole,
        nodes=tuple(counted[node.index] for node in graph.nodes),
        loadables=tuple(part(one) for one in loadables),
        islands=tuple(part(one) for one in islands),
        pointwise_ratio=share("pointwise"),
        depthwise_ratio=share("depthwise"),
    )


def node_cost(graph: Graph, node: Node, precision: CostPrecision) -> NodeCost:
    """Count one node.

    Args:
        graph: Its model.
        node: Any.
        precision: In which real numbers are counted.
    """
    work = flops(graph, node)
    data = node.inputs[: _DATA_INPUTS.get(node.op, len(node.inputs))]
    tensors = [graph.tensor(name) for name in dict.fromkeys(data) if name]
    if node.domain or node.has_subgraph:
        read = weights = written = None
    elif node.op in _VIEWS:
        read = weights = written = 0
    else:
        written = _sum(_size(graph.tensor(name), precision) for name in node.outputs if name)
        if node.op in _PICKS:
            indices = tensors[1:] if node.op != "Slice" else []
            tensors = [tensor for tensor in indices if not tensor.is_constant]
        read = _sum(_size(tensor, precision) for tensor in tensors if not tensor.is_constant)
        weights = _sum(_size(tensor, precision) for tensor in tensors if tensor.is_constant)
        if node.op in _PICKS and node.inputs:
            is_weight = graph.tensor(node.inputs[0]).is_constant
            read = _sum((read, 0 if is_weight else written))
            weights = _sum((weights, written if is_weight else 0))
    moved = _sum((read, weights, written))
    return NodeCost(
        index=node.index,
        flops=work,
        multiply_adds=None if work is None else multiply_adds(graph, node),
        input_bytes=read,
        weight_bytes=weights,
        output_bytes=written,
        moved_bytes=moved,
        flops_per_byte=_ratio(work, moved),
    )


def _part(
    graph: Graph,
    counted: dict[int, NodeCost],
    indices: Collection[int],
    precision: CostPrecision,
    edge: tuple[Iterable[str], Iterable[str]],
    model_flops: int | None,
) -> PartCost:
    nodes = [counted[index] for index in indices]
    work = _known([node.flops for node in nodes])
    moved = _known([node.moved_bytes for node in nodes])
    weights = _sum(_size(tensor, precision) for tensor in _weights(graph, indices))
    names = dict.fromkeys(name for side in edge for name in side)
    share = model_flops if model_flops is not None else work
    return PartCost(
        nodes=len(nodes),
        uncounted=sum(node.flops is None or node.moved_bytes is None for node in nodes),
        flops=work,
        multiply_adds=_known([node.multiply_adds for node in nodes]),
        moved_bytes=moved,
        edge_bytes=_sum((weights, *(_size(graph.tensor(name), precision) for name in names))),
        flops_per_byte=_ratio(work, moved),
        flops_ratio=None if work is None or not share else work / share,
    )


def _weights(graph: Graph, indices: Collection[int]) -> list[Tensor]:
    """Return the constants that nodes read as data, each once; a view reads nothing."""
    found: dict[str, Tensor] = {}
    for node in graph.nodes:
        if node.index in indices and node.op not in _VIEWS:
            data = node.inputs[: _DATA_INPUTS.get(node.op, len(node.inputs))]
            for name in data[:1] if node.op in _PICKS else data:
                tensor = graph.tensor(name)
                if name and tensor.is_constant:
                    found[name] = tensor
    return list(found.values())


def _convolution_kind(graph: Graph, node: Node) -> str:
    weight, given = graph.input(node, 1), graph.input(node, 0)
    groups = node.integer("group", 1)
    if weight is None or weight.shape is None:
        return ""
    channels = (
        given.shape[1] if given is not None and given.shape and len(given.shape) > 1 else None
    )
    if groups == 1:
        return "pointwise" if all(length == 1 for length in weight.shape[2:]) else ""
    return "depthwise" if groups == channels else ""


def _size(tensor: Tensor, precision: CostPrecision) -> int | None:
    """Return bytes: real numbers at the precision, others in their own type."""
    if tensor.dtype in _REAL:
        elements = tensor.elements
        return None if elements is None else elements * _BITS[precision] // 8
    return tensor.size_bytes


def _sum(parts: Iterable[int | None]) -> int | None:
    """Add; one that is not known makes the sum not known."""
    total = 0
    for part in parts:
        if part is None:
            return None
        total += part
    return total


def _known(parts: Sequence[int | None]) -> int | None:
    """Add what is known; ``None`` where that is nothing, or only what costs nothing anyway."""
    found = [part for part in parts if part is not None]
    return sum(found) if any(found) or len(found) == len(parts) else None


def _ratio(work: int | None, moved: int | None) -> float | None:
    return None if work is None or not moved else work / moved
