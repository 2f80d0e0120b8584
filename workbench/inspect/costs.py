"""Count what a model costs: arithmetic work, bytes moved, and work per byte; number its parts.

Bytes are those of the precision that is judged for. Each node is counted as if it ran alone: it
reads every input and every weight once and writes every output once. Layers that TensorRT fuses
move less; the edges of a part are the least that it must move.

A multiply-add is two operations, as NVIDIA and most papers on hardware count; papers on networks
often count it as one and still write FLOPs. A bias is where the sum begins, so it costs nothing.

Source:
    Shapes by "Operators", ONNX documentation.
"""

import math
from collections.abc import Collection, Iterable, Sequence
from typing import Literal

from ...parsers.onnx.graph import Graph, Node, Tensor
from .rules import (
    Costs,
    JudgedNode,
    NodeCost,
    NodePlacement,
    Operator,
    Part,
    PartCost,
    batch_of,
    operators,
)

CostPrecision = Literal["fp32", "fp16", "int8"]
_BITS = {"fp32": 32, "fp16": 16, "int8": 8}
FLOATS = ("bfloat16", "float16", "float32", "float64")
_NOTHING = dict.fromkeys(
    ("flops", "multiply_adds", "input_bytes", "weight_bytes", "output_bytes", "moved_bytes"), 0
)
_PRODUCTS = frozenset({"Conv", "ConvInteger", "ConvTranspose", "Gemm", "MatMul", "MatMulInteger"})
# One interpolation between two numbers: a difference, a product, a sum.
_INTERPOLATION = 3


def costs_of(
    graph: Graph,
    judged: Sequence[JudgedNode],
    loadables: Sequence[Part],
    islands: Sequence[Part],
    precision: CostPrecision,
) -> Costs:
    """Count a judged model, per inference at the batch of the graph's shapes.

    Nodes with open shapes have no figures. Constant nodes cost nothing at an inference.
    """
    constant = {one.index for one in judged if one.placement == "constant"}
    counted = [
        NodeCost(index=node.index, **_NOTHING)
        if node.index in constant
        else node_cost(graph, node, precision)
        for node in graph.nodes
    ]

    def part(
        indices: Iterable[int], edge: Iterable[str], model_flops: int | None = None
    ) -> PartCost:
        nodes = [counted[index] for index in indices if index not in constant]
        work = _known([node.flops for node in nodes])
        moved = _known([node.moved_bytes for node in nodes])
        ends = (*_weights(graph, {node.index for node in nodes}), *dict.fromkeys(edge))
        whole = work if model_flops is None else model_flops
        return PartCost(
            nodes=len(nodes),
            uncounted=sum(node.flops is None or node.moved_bytes is None for node in nodes),
            flops=work,
            multiply_adds=_known([node.multiply_adds for node in nodes]),
            moved_bytes=moved,
            edge_bytes=_sum(_size(graph.tensor(name), precision) for name in ends),
            flops_per_byte=_ratio(work, moved),
            flops_ratio=_ratio(work, whole),
        )

    total = part(range(len(counted)), (*graph.inputs, *graph.outputs))

    def share(kind: str) -> float | None:
        works = (
            counted[node.index].flops or 0
            for node in graph.nodes
            if node.op == "Conv" and convolution_kind(graph, node) == kind
        )
        return _ratio(sum(works), total.flops)

    def parts(ones: Sequence[Part]) -> tuple[PartCost, ...]:
        return tuple(part(one.nodes, (*one.inputs, *one.outputs), total.flops) for one in ones)

    return Costs(
        precision=precision,
        total=total,
        nodes=tuple(counted),
        loadables=parts(loadables),
        islands=parts(islands),
        pointwise_ratio=share("pointwise"),
        depthwise_ratio=share("depthwise"),
    )


def layer_costs(
    graph: Graph, layers: Sequence[Sequence[int]], precision: CostPrecision
) -> tuple[PartCost, ...]:
    """Count the work of layers of an engine, each given by the indices of its nodes (at least one).

    Constant nodes cost nothing at an inference.
    """
    judged = []
    for node in graph.nodes:
        place: NodePlacement = "constant" if is_constant(graph, node) else "unknown"
        judged.append(JudgedNode(index=node.index, name=node.name, op=node.op, placement=place))
    return costs_of(graph, judged, _parts(graph, layers), (), precision).loadables


def is_constant(graph: Graph, node: Node) -> bool:
    """Return whether TensorRT computes a node once, when it builds the engine."""
    made = [graph.tensor(name) for name in node.outputs if name]
    return bool(made) and all(one.is_constant for one in made)


def node_cost(graph: Graph, node: Node, precision: CostPrecision) -> NodeCost:
    """Count one node, with real numbers in the given precision."""
    work, moves = flops(graph, node), _operator(node).moves
    tensors = [graph.tensor(name) for name in dict.fromkeys(_data(node)) if name]
    read: int | None = 0
    weights: int | None = 0
    written: int | None = 0
    if node.domain or node.has_subgraph:
        read = weights = written = None
    elif moves != "nothing":
        written = _sum(_size(graph.tensor(name), precision) for name in node.outputs if name)
        if moves == "picked":
            indices = tensors[1:] if node.op != "Slice" else []
            tensors = [tensor for tensor in indices if not tensor.is_constant]
        read = _sum(_size(tensor, precision) for tensor in tensors if not tensor.is_constant)
        weights = _sum(_size(tensor, precision) for tensor in tensors if tensor.is_constant)
        if moves == "picked" and graph.input(node, 0).is_constant:
            weights = _sum((weights, written))
        elif moves == "picked":
            read = _sum((read, written))
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


def multiply_adds(graph: Graph, node: Node) -> int | None:
    """Return the multiply-adds of a node, 0 unless it is a convolution or a matrix product.

    They are those of one inference at the graph's batch; None if a shape is open.
    """
    if node.domain or node.op not in _PRODUCTS:
        return 0
    made, given = graph.output(node).elements, graph.input(node, 0)
    if node.op == "Gemm":
        # Outputs (m, n) by the inner length, of a first matrix (m, k) or, turned, (k, m).
        return _times(made, given.length(0 if node.attribute("transA", int) else 1))
    if node.op.startswith("MatMul"):
        # Outputs (…, m, n) by the inner length, the last of the first factor (…, m, k).
        return _times(made, given.length(-1))
    # Outputs (n, m, …) by weights (m, c / groups, kernel…) of one output channel; transposed,
    # inputs (n, c, …) by weights (c, m / groups, kernel…) of one input channel.
    lengths = graph.input(node, 1).lengths
    each = math.prod(lengths[1:]) if lengths else None
    return _times(given.elements if node.op == "ConvTranspose" else made, each)


def flops(graph: Graph, node: Node) -> int | None:
    """Return the arithmetic operations of a node.

    They are those of one inference at the graph's batch; None if a shape is open or the operator
    has no figure in ``operators.toml``.
    """
    if node.domain or node.has_subgraph:
        return None
    if node.op in _PRODUCTS:
        return _times(2, multiply_adds(graph, node))
    operator = _operator(node)
    if operator.input_flops is not None:
        return _times(graph.input(node, 0).elements, operator.input_flops)
    each = operator.flops
    if node.op == "Resize":
        each = _interpolations(graph, node)
    elif node.op in ("AveragePool", "MaxPool", "LpPool"):
        each = math.prod(node.attribute("kernel_shape", tuple) or (1,))
    elif node.op in ("Sum", "Mean"):
        each = len(node.inputs) - (node.op == "Sum")
    return 0 if each == 0 else _times(graph.output(node).elements, each)


def channels(graph: Graph, node: Node) -> tuple[int, int] | None:
    """Return the channels of input and output of a convolution; None if unknown."""
    weight = graph.input(node, 1)
    first, second = weight.length(0), weight.length(1)
    if first is None or second is None or min(first, second, node.groups) < 1:
        return None
    ends = first, second * node.groups
    return ends[::-1] if node.op == "Conv" else ends


def convolution_kind(graph: Graph, node: Node) -> Literal["pointwise", "depthwise", "grouped", ""]:
    """Return whether a convolution has a kernel of 1 × 1, or groups, of one channel or more."""
    if node.groups > 1:
        ends = channels(graph, node)
        return "depthwise" if ends is not None and ends[0] == node.groups else "grouped"
    kernel = (graph.input(node, 1).shape or ())[2:]
    return "pointwise" if kernel and all(side == 1 for side in kernel) else ""


def _operator(node: Node) -> Operator:
    return operators().get(node.op, Operator())


def _data(node: Node) -> tuple[str, ...]:
    return node.inputs[: _operator(node).data_inputs]


def _weights(graph: Graph, indices: Collection[int]) -> dict[str, None]:
    """Return the constants that nodes read as data, each once; a view reads nothing."""
    found: dict[str, None] = {}
    for node in graph.nodes:
        moves = _operator(node).moves
        if node.index in indices and moves != "nothing":
            names = _data(node)[: 1 if moves == "picked" else None]
            found |= dict.fromkeys(name for name in names if graph.tensor(name).is_constant)
    return found


def _size(tensor: Tensor, precision: CostPrecision) -> int | None:
    """Return bytes: real numbers at the precision, others in their own type."""
    if tensor.dtype in FLOATS:
        elements = tensor.elements
        return None if elements is None else elements * _BITS[precision] // 8
    return tensor.size_bytes


def _interpolations(graph: Graph, node: Node) -> int | None:
    """Return operations per element: 0 for nearest, 3 · (2^axes − 1) for linear."""
    mode = node.attribute("mode", str) or "nearest"
    if mode == "nearest":
        return 0
    given, made = graph.input(node, 0).shape, graph.output(node).shape
    if mode != "linear" or not given or not made:
        return None
    axes = sum(before != after for before, after in zip(given, made, strict=False))
    return _INTERPOLATION * ((1 << axes) - 1)


def _sum(parts: Iterable[int | None]) -> int | None:
    """Return the sum; None if a part is unknown."""
    known = list(parts)
    return None if None in known else sum(part or 0 for part in known)


def _known(parts: Sequence[int | None]) -> int | None:
    """Return the sum of known parts; None if some are unknown and the others are 0."""
    found = [part for part in parts if part is not None]
    return sum(found) if any(found) or len(found) == len(parts) else None


def _times(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one * other


def _ratio(one: int | None, other: int | None) -> float | None:
    return None if one is None or not other else one / other


# Unknown nodes count as the GPU's: that cuts more loadables, and never promises too much.
_ON_GPU = ("gpu", "unknown")


def number_parts(
    graph: Graph, judged: Sequence[JudgedNode]
) -> tuple[tuple[JudgedNode, ...], tuple[Part, ...], tuple[Part, ...]]:
    """Return the nodes with the numbers of their parts, the loadables, and the GPU's islands."""
    groups = _grouped(graph, judged)
    loadables = [group for group in groups if judged[group[0]].placement == "dla"]
    islands = [group for group in groups if judged[group[0]].placement in _ON_GPU]
    in_loadable = {node: number for number, group in enumerate(loadables) for node in group}
    in_island = {node: number for number, group in enumerate(islands) for node in group}
    numbered = tuple(
        one.model_copy(update={"loadable": in_loadable.get(at), "island": in_island.get(at)})
        for at, one in enumerate(judged)
    )
    return numbered, _parts(graph, loadables), _parts(graph, islands)


def _grouped(graph: Graph, judged: Sequence[JudgedNode]) -> list[list[int]]:
    """Join neighbours of one placement unless a path leads out of them and back in."""
    needs = _needs(graph, judged)
    group_of = list(range(len(judged)))
    groups = {one.index: [one.index] for one in judged if one.placement in ("dla", *_ON_GPU)}
    follows: dict[int, set[int]] = {number: set() for number in groups}
    precedes: dict[int, set[int]] = {number: set(needs[number]) for number in groups}
    for number in groups:
        for need in needs[number]:
            follows[need].add(number)
    for number in sorted(groups):
        for need in needs[number]:
            before, after = group_of[need], group_of[number]
            ways = ((before, after), (after, before))
            if before == after or not _alike(graph, judged, need, number):
                continue
            if any(_leads_around(follows, *way, number) for way in ways):
                continue
            for node in groups[after]:
                group_of[node] = before
            groups[before] += groups.pop(after)
            for onward, back in ((follows, precedes), (precedes, follows)):
                for other in onward.pop(after):
                    back[other].discard(after)
                    if other != before:
                        back[other].add(before)
                        onward[before].add(other)
    return sorted(sorted(group) for group in groups.values())


def _needs(graph: Graph, judged: Sequence[JudgedNode]) -> list[tuple[int, ...]]:
    """Return for each node those whose results it reads, with folded nodes skipped."""
    results: list[tuple[int, ...]] = []
    needs: list[tuple[int, ...]] = []
    for node, one in zip(graph.nodes, judged, strict=True):
        sources = (graph.producers.get(name, node.index) for name in node.inputs)
        # A record may list its nodes out of order; a later node is not needed before.
        earlier = (index for at in sources if at < node.index for index in results[at])
        needs.append(tuple(dict.fromkeys(earlier)))
        results.append({"folded": needs[-1], "constant": ()}.get(one.placement, (node.index,)))
    return needs


def _alike(graph: Graph, judged: Sequence[JudgedNode], one: int, other: int) -> bool:
    places = {judged[one].placement, judged[other].placement}
    return places <= set(_ON_GPU) or (
        places == {"dla"} and _batch(graph, one) == _batch(graph, other)
    )


def _batch(graph: Graph, index: int) -> int | None:
    """Return the number of images in a node's output; None if it is not an image."""
    lengths = graph.output(graph.nodes[index]).lengths
    return None if lengths is None or len(lengths) < 2 else math.prod(batch_of(lengths))


def _leads_around(follows: dict[int, set[int]], start: int, end: int, last: int) -> bool:
    """Whether a path leads from one group to another over a third; none leads back from later."""
    waiting, seen = [one for one in follows[start] if one != end], set[int]()
    while waiting:
        one = waiting.pop()
        if one == end:
            return True
        if one <= last and one not in seen:
            seen.add(one)
            waiting.extend(follows[one])
    return False


def _parts(graph: Graph, groups: Iterable[Sequence[int]]) -> tuple[Part, ...]:
    found = []
    for number, group in enumerate(groups):
        nodes = [graph.nodes[index] for index in group]
        made = dict.fromkeys(name for node in nodes for name in node.outputs if name)
        read = dict.fromkeys(name for node in nodes for name in node.inputs if name)
        inputs = (one for one in read if one not in made and not graph.tensor(one).is_constant)
        outputs = (
            one
            for one in made
            if one in graph.outputs or not set(graph.consumers.get(one, ())) <= set(group)
        )
        found.append(
            Part(
                number=number,
                first=nodes[0].name,
                last=nodes[-1].name,
                nodes=tuple(group),
                inputs=tuple(inputs),
                outputs=tuple(outputs),
            )
        )
    return tuple(found)
