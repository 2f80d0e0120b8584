"""Count what a model costs: arithmetic work, bytes moved, and work per byte.

Bytes are those of the precision that is judged for. Each node is counted as if it ran alone: it
reads every input and every weight once and writes every output once. Layers that TensorRT fuses
move less; the edges of a part are the least that it must move.

A multiply-add is two operations, as NVIDIA and most papers on hardware count; papers on networks
often count it as one and still write FLOPs. A bias is where the sum begins, so it costs nothing.
A function that hardware looks up in a table, for example a sigmoid, is one operation.

Source:
    Shapes by "Operators", ONNX documentation.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Literal

from ...parsers.onnx.graph import Graph, Node, Tensor
from .records import Costs, JudgedNode, NodeCost, Part, PartCost
from .rules import batch_of

CostPrecision = Literal["fp32", "fp16", "int8"]
_BITS = {"fp32": 32, "fp16": 16, "int8": 8}
_REAL = frozenset({"bfloat16", "float16", "float32", "float64"})

# How many inputs, from the first, are data; the others are parameters, such as a shape or axes.
_DATA_INPUTS = {
    **dict.fromkeys(("ConstantOfShape", "Shape", "Size"), 0),
    **dict.fromkeys(("Clip", "Dropout", "Expand", "Pad", "Resize", "Split", "Tile", "TopK"), 1),
    **dict.fromkeys(("ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum"), 1),
}
_NOTHING = dict.fromkeys(
    ("flops", "multiply_adds", "input_bytes", "weight_bytes", "output_bytes", "moved_bytes"), 0
)
# The same elements in the same order: nothing moves.
_VIEWS = frozenset(
    {"Constant", "Dropout", "Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"}
)
# Operators that read only those elements of their first input that they return.
_PICKS = frozenset({"Gather", "GatherElements", "GatherND", "Slice"})

# Operators that move or rename and compute nothing. A cast only changes the form of a number.
# fmt: off
_MOVES = frozenset({
    "Cast", "Concat", "Constant", "ConstantOfShape", "DepthToSpace", "Dropout", "Expand",
    "Flatten", "Gather", "GatherElements", "GatherND", "Identity", "Pad", "Reshape", "Shape",
    "Size", "Slice", "SpaceToDepth", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze",
})
# One operation per element of the output.
_ELEMENTWISE = frozenset({
    "Abs", "Add", "And", "Ceil", "Clip", "Cos", "Div", "Equal", "Erf", "Exp", "Floor", "Greater",
    "GreaterOrEqual", "Less", "LessOrEqual", "Log", "Max", "Min", "Mod", "Mul", "Neg", "Not",
    "Or", "Pow", "Reciprocal", "Relu", "Round", "Sigmoid", "Sign", "Sin", "Softplus", "Sqrt",
    "Sub", "Tan", "Tanh", "Where", "Xor",
})
# fmt: on
# Several operations per element of the output.
_PER_OUTPUT: Mapping[str, int] = {
    "BatchNormalization": 2,  # a multiplication and an addition; the rest is known at build time
    "DequantizeLinear": 2,
    "Elu": 3,
    "Gelu": 5,  # divided, looked up, one more, twice multiplied
    "GroupNormalization": 7,
    "HardSigmoid": 3,
    "HardSwish": 4,
    "InstanceNormalization": 7,
    "LayerNormalization": 7,  # mean 1, difference 1, its square summed 2, scale 1, gain and bias 2
    "LeakyRelu": 2,
    "LogSoftmax": 5,
    "Mish": 3,
    "PRelu": 2,
    "QuantizeLinear": 2,
    "RMSNormalization": 4,
    "Selu": 4,
    "Softmax": 5,  # largest, difference, power of e, sum, quotient
    "Softsign": 3,
    "Swish": 2,
    "ThresholdedRelu": 2,
}
# One operation per element of the input.
_PER_INPUT = frozenset(
    {"ArgMax", "ArgMin", "CumSum", "GlobalAveragePool", "GlobalMaxPool", "ReduceMax", "ReduceMean"}
    | {"ReduceMin", "ReduceProd", "ReduceSum"}
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
    runs = [node for node in graph.nodes if node.index not in constant]
    counted = {index: NodeCost(index=index, **_NOTHING) for index in constant}
    counted.update((node.index, node_cost(graph, node, precision)) for node in runs)
    indices = [node.index for node in runs]
    whole = _part(graph, counted, indices, precision, (graph.inputs, graph.outputs), None)
    kinds = [
        (_convolution_kind(graph, node), counted[node.index].flops)
        for node in runs
        if node.op == "Conv"
    ]

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
    """Count one node, with real numbers in the given precision."""
    work = flops(graph, node)
    tensors = [graph.tensor(name) for name in dict.fromkeys(_data(node)) if name]
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


def _data(node: Node) -> tuple[str, ...]:
    return node.inputs[: _DATA_INPUTS.get(node.op, len(node.inputs))]


def _weights(graph: Graph, indices: Collection[int]) -> list[Tensor]:
    """Return the constants that nodes read as data, each once; a view reads nothing."""
    found: dict[str, Tensor] = {}
    for node in graph.nodes:
        if node.index in indices and node.op not in _VIEWS:
            data = _data(node)
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
    if groups == 1:
        return "pointwise" if all(length == 1 for length in weight.shape[2:]) else ""
    shape = given.shape if given is not None else None
    return "depthwise" if shape and len(shape) > 1 and shape[1] == groups else ""


def _size(tensor: Tensor, precision: CostPrecision) -> int | None:
    """Return bytes: real numbers at the precision, others in their own type."""
    if tensor.dtype in _REAL:
        elements = tensor.elements
        return None if elements is None else elements * _BITS[precision] // 8
    return tensor.size_bytes


def _sum(parts: Iterable[int | None]) -> int | None:
    """Return the sum; None if a part is unknown."""
    known = list(parts)
    return None if None in known else sum(part or 0 for part in known)


def _known(parts: Sequence[int | None]) -> int | None:
    """Return the sum of known parts; None if some are unknown and the others are 0."""
    found = [part for part in parts if part is not None]
    return sum(found) if any(found) or len(found) == len(parts) else None


def _ratio(work: int | None, moved: int | None) -> float | None:
    return None if work is None or not moved else work / moved


def multiply_adds(graph: Graph, node: Node) -> int | None:
    """Return the multiply-adds of a node, 0 unless it is a convolution or a matrix product.

    They are those of one inference at the graph's batch; None if a shape is open.
    """
    if node.domain or node.op not in _PRODUCTS:
        return 0
    made, given = _elements(graph.output(node)), graph.input(node, 0)
    if node.op == "Gemm":
        # Outputs (m, n) by the inner length, of a first matrix (m, k) or, turned, (k, m).
        return _times(made, _length(given, 0 if node.integer("transA", 0) else 1))
    if node.op.startswith("MatMul"):
        # Outputs (…, m, n) by the inner length, the last of the first factor (…, m, k).
        return _times(made, _length(given, -1))
    # Outputs (n, m, …) by weights (m, c / groups, kernel…) of one output channel; transposed,
    # inputs (n, c, …) by weights (c, m / groups, kernel…) of one input channel.
    weight = graph.input(node, 1)
    if weight is None or not weight.lengths:
        return None
    each = math.prod(weight.lengths[1:])
    return _times(_elements(given) if node.op == "ConvTranspose" else made, each)


def flops(graph: Graph, node: Node) -> int | None:
    """Return the arithmetic operations of a node.

    They are those of one inference at the graph's batch; None if a shape is open or the operator
    is not in the tables above.
    """
    if node.domain or node.has_subgraph:
        return None
    if node.op in _PRODUCTS:
        pairs = multiply_adds(graph, node)
        return None if pairs is None else 2 * pairs
    if node.op in _MOVES:
        return 0
    made, given = _elements(graph.output(node)), _elements(graph.input(node, 0))
    if node.op in _PER_INPUT:
        return given
    if node.op == "Resize":
        each = _interpolations(graph, node)
    elif node.op in ("AveragePool", "MaxPool", "LpPool"):
        each = math.prod(node.integers("kernel_shape") or (1,))
    elif node.op in ("Sum", "Mean"):
        each = len(node.inputs) - (node.op == "Sum")
    else:
        each = 1 if node.op in _ELEMENTWISE else _PER_OUTPUT.get(node.op)
    return 0 if each == 0 else _times(made, each)


def _interpolations(graph: Graph, node: Node) -> int | None:
    """Return operations per element: 0 for nearest, 3 · (2^axes − 1) for linear."""
    mode = node.word("mode", "nearest")
    if mode == "nearest":
        return 0
    given, made = graph.input(node, 0), graph.output(node)
    if mode != "linear" or given is None or made is None or not (given.shape and made.shape):
        return None
    axes = sum(before != after for before, after in zip(given.shape, made.shape, strict=False))
    return _INTERPOLATION * ((1 << axes) - 1)


def _elements(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.elements


def _length(tensor: Tensor | None, axis: int) -> int | None:
    if tensor is None or not tensor.shape or not -len(tensor.shape) <= axis < len(tensor.shape):
        return None
    length = tensor.shape[axis]
    return length if isinstance(length, int) else None


def _times(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one * other


# Unknown nodes count as the GPU's: that cuts more loadables, and never promises too much.
_ON_GPU = ("gpu", "unknown")


def number_parts(
    graph: Graph, judged: Sequence[JudgedNode]
) -> tuple[tuple[JudgedNode, ...], tuple[Part, ...], tuple[Part, ...]]:
    """Return the nodes with the numbers of their parts, the loadables, and the GPU's islands."""
    needs = _needs(graph, judged)
    groups = _grouped(graph, judged, needs)
    loadables = [group for group in groups if judged[group[0]].placement == "dla"]
    islands = [group for group in groups if judged[group[0]].placement in _ON_GPU]
    in_loadable = {node: number for number, group in enumerate(loadables) for node in group}
    in_island = {node: number for number, group in enumerate(islands) for node in group}
    numbered = tuple(
        one.model_copy(update={"loadable": in_loadable.get(at), "island": in_island.get(at)})
        for at, one in enumerate(judged)
    )
    return numbered, _parts(graph, judged, loadables), _parts(graph, judged, islands)


def _needs(graph: Graph, judged: Sequence[JudgedNode]) -> list[tuple[int, ...]]:
    """Return for each node those whose results it reads, with folded nodes skipped."""
    results: list[tuple[int, ...]] = []
    needs: list[tuple[int, ...]] = []
    for node, one in zip(graph.nodes, judged, strict=True):
        found: dict[int, None] = {}
        for name in node.inputs:
            source = graph.producers.get(name)
            # A record may list its nodes out of order; a later node is not needed before.
            if source is not None and source < node.index:
                found.update(dict.fromkeys(results[source]))
        needs.append(tuple(found))
        own = {"folded": tuple(found), "constant": ()}.get(one.placement, (node.index,))
        results.append(own)
    return needs


def _grouped(
    graph: Graph, judged: Sequence[JudgedNode], needs: Sequence[tuple[int, ...]]
) -> list[list[int]]:
    """Join neighbours of one placement unless a path leads out of them and back in."""
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


def _alike(graph: Graph, judged: Sequence[JudgedNode], one: int, other: int) -> bool:
    places = {judged[one].placement, judged[other].placement}
    if places <= set(_ON_GPU):
        return True
    return places == {"dla"} and _batch(graph, one) == _batch(graph, other)


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


def _batch(graph: Graph, index: int) -> int | None:
    """Return the number of images in a node's output; None if it is not an image."""
    out = graph.output(graph.nodes[index])
    if out is None or out.lengths is None or len(out.lengths) < 2:
        return None
    return math.prod(batch_of(out.lengths))


def _parts(
    graph: Graph, judged: Sequence[JudgedNode], groups: Iterable[Sequence[int]]
) -> tuple[Part, ...]:
    return tuple(
        Part(
            number=number,
            first=judged[group[0]].name,
            last=judged[group[-1]].name,
            nodes=tuple(group),
            inputs=_enter(graph, group),
            outputs=_leave(graph, group),
        )
        for number, group in enumerate(groups)
    )


def _enter(graph: Graph, group: Sequence[int]) -> tuple[str, ...]:
    made = {name for index in group for name in graph.nodes[index].outputs}
    read = (name for index in group for name in graph.nodes[index].inputs if name)
    entering = (one for one in read if one not in made and not graph.tensor(one).is_constant)
    return tuple(dict.fromkeys(entering))


def _leave(graph: Graph, group: Sequence[int]) -> tuple[str, ...]:
    inside = set(group)
    made = (name for index in group for name in graph.nodes[index].outputs if name)
    return tuple(
        name
        for name in made
        if name in graph.outputs
        or any(reader not in inside for reader in graph.consumers.get(name, ()))
    )
