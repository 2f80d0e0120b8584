"""Sum up what a judged model and its parts cost, and number its parts.

The figures of each node are those of ``parsers/onnx/costs.py``.
"""

import math
from collections.abc import Iterable, Sequence

from ...parsers.onnx.costs import (
    CostPrecision,
    NodeCost,
    convolution_kind,
    edge_bytes,
    is_constant,
    node_cost,
    ratio,
)
from ...parsers.onnx.graph import Graph
from .rules import Costs, JudgedNode, NodePlacement, Part, PartCost, batch_of

_NOTHING = dict.fromkeys(
    ("flops", "multiply_adds", "input_bytes", "weight_bytes", "output_bytes", "moved_bytes"), 0
)


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
        inside = {node.index for node in nodes}
        whole = work if model_flops is None else model_flops
        return PartCost(
            nodes=len(nodes),
            uncounted=sum(node.flops is None or node.moved_bytes is None for node in nodes),
            flops=work,
            multiply_adds=_known([node.multiply_adds for node in nodes]),
            moved_bytes=moved,
            edge_bytes=edge_bytes(graph, inside, edge, precision),
            flops_per_byte=ratio(work, moved),
            flops_ratio=ratio(work, whole),
        )

    total = part(range(len(counted)), (*graph.inputs, *graph.outputs))

    def share(kind: str) -> float | None:
        works = (
            counted[node.index].flops or 0
            for node in graph.nodes
            if node.op == "Conv" and convolution_kind(graph, node) == kind
        )
        return ratio(sum(works), total.flops)

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


def _known(parts: Sequence[int | None]) -> int | None:
    """Return the sum of known parts; None if some are unknown and the others are 0."""
    found = [part for part in parts if part is not None]
    return sum(found) if any(found) or len(found) == len(parts) else None


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
