"""Sum up what a judged model and its parts cost, and number its parts.

The figures of each node are those of ``parsers/onnx/costs.py``.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence

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
from .rules import Costs, JudgedNode, Part, PartCost, batch_of

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
    constant = {node.index for node in judged if node.placement == "constant"}
    nodes = _NodeCosts(graph, precision, constant)
    total = nodes.sum_of(range(len(graph.nodes)), (*graph.inputs, *graph.outputs))
    flops_by_kind = nodes.convolution_flops()
    return Costs(
        precision=precision,
        total=total,
        nodes=tuple(nodes.costs),
        loadables=nodes.of_parts(loadables, total.flops),
        islands=nodes.of_parts(islands, total.flops),
        pointwise_ratio=ratio(flops_by_kind["pointwise"], total.flops),
        depthwise_ratio=ratio(flops_by_kind["depthwise"], total.flops),
    )


def layer_costs(
    graph: Graph, layers: Sequence[Sequence[int]], precision: CostPrecision
) -> tuple[PartCost, ...]:
    """Count the work of layers of an engine, each given by the indices of its nodes (at least one).

    Constant nodes cost nothing at an inference.
    """
    constant = {node.index for node in graph.nodes if is_constant(graph, node)}
    nodes = _NodeCosts(graph, precision, constant)
    return nodes.of_parts(_parts(graph, layers))


class _NodeCosts:
    """The cost of each node of a model, and sums over some of them."""

    def __init__(self, graph: Graph, precision: CostPrecision, constant: Collection[int]) -> None:
        self.costs: list[NodeCost] = []
        self._graph = graph
        self._precision = precision
        self._constant = constant
        for node in graph.nodes:
            if node.index in constant:
                self.costs.append(NodeCost(index=node.index, **_NOTHING))
            else:
                self.costs.append(node_cost(graph, node, precision))

    def of_parts(
        self, parts: Sequence[Part], model_flops: int | None = None
    ) -> tuple[PartCost, ...]:
        """Return the cost of each part, and its share of the model's work if that is given."""
        costs = []
        for part in parts:
            costs.append(self.sum_of(part.nodes, (*part.inputs, *part.outputs), model_flops))
        return tuple(costs)

    def sum_of(
        self, indices: Iterable[int], edge: Iterable[str], model_flops: int | None = None
    ) -> PartCost:
        """Return the cost of nodes that run together; ``edge`` are the tensors around them."""
        costs: list[NodeCost] = []
        inside: set[int] = set()
        uncounted = 0
        for index in indices:
            if index in self._constant:
                continue
            cost = self.costs[index]
            costs.append(cost)
            inside.add(index)
            if cost.flops is None or cost.moved_bytes is None:
                uncounted += 1
        work = _known([cost.flops for cost in costs])
        moved = _known([cost.moved_bytes for cost in costs])
        return PartCost(
            nodes=len(costs),
            uncounted=uncounted,
            flops=work,
            multiply_adds=_known([cost.multiply_adds for cost in costs]),
            moved_bytes=moved,
            edge_bytes=edge_bytes(self._graph, inside, edge, self._precision),
            flops_per_byte=ratio(work, moved),
            flops_ratio=ratio(work, work if model_flops is None else model_flops),
        )

    def convolution_flops(self) -> Mapping[str, int]:
        """Return the work of convolutions by kind; one without figures counts as nothing."""
        flops = {"pointwise": 0, "depthwise": 0, "grouped": 0, "": 0}
        for node in self._graph.nodes:
            if node.op == "Conv":
                flops[convolution_kind(self._graph, node)] += self.costs[node.index].flops or 0
        return flops


def _known(counts: Sequence[int | None]) -> int | None:
    """Return the sum of known counts; None if some are unknown and the others are 0."""
    known = [count for count in counts if count is not None]
    total = sum(known)
    if total == 0 and len(known) < len(counts):
        return None
    return total


# Unknown nodes count as the GPU's: that cuts more loadables, and never promises too much.
_ON_GPU = ("gpu", "unknown")


def number_parts(
    graph: Graph, judged: Sequence[JudgedNode]
) -> tuple[tuple[JudgedNode, ...], tuple[Part, ...], tuple[Part, ...]]:
    """Return the nodes with the numbers of their parts, the loadables, and the GPU's islands."""
    loadables: list[list[int]] = []
    islands: list[list[int]] = []
    for group in _grouped(graph, judged):
        parts = loadables if judged[group[0]].placement == "dla" else islands
        parts.append(group)
    in_loadable = _part_numbers(loadables)
    in_island = _part_numbers(islands)
    numbered = []
    for index, node in enumerate(judged):
        numbers = {"loadable": in_loadable.get(index), "island": in_island.get(index)}
        numbered.append(node.model_copy(update=numbers))
    return tuple(numbered), _parts(graph, loadables), _parts(graph, islands)


def _part_numbers(groups: Sequence[Sequence[int]]) -> dict[int, int]:
    """Return the number of the part that each node is in."""
    numbers: dict[int, int] = {}
    for number, group in enumerate(groups):
        numbers |= dict.fromkeys(group, number)
    return numbers


def _grouped(graph: Graph, judged: Sequence[JudgedNode]) -> list[list[int]]:
    """Join neighbours of one placement unless a path leads out of them and back in."""
    needs = _needs(graph, judged)
    groups = _Groups()
    for node in judged:
        if node.placement in ("dla", *_ON_GPU):
            groups.add(node.index, needs[node.index])
    for index in list(groups.members):
        for need in needs[index]:
            if _alike(graph, judged, need, index):
                groups.join(need, index)
    return sorted(map(sorted, groups.members.values()))


class _Groups:
    """Nodes that run together, at first each alone. The number of a group is one of its nodes."""

    def __init__(self) -> None:
        self.members: dict[int, list[int]] = {}
        self._group_of: dict[int, int] = {}
        # The groups that read from a group, and those that it reads from.
        self._readers: dict[int, set[int]] = {}
        self._sources: dict[int, set[int]] = {}

    def add(self, node: int, sources: Sequence[int]) -> None:
        """Add a node as a group of its own, after those that it reads from."""
        self.members[node] = [node]
        self._group_of[node] = node
        self._readers[node] = set()
        self._sources[node] = set(sources)
        for source in sources:
            self._readers[source].add(node)

    def join(self, source: int, node: int) -> None:
        """Join the groups of two nodes, unless a path leads out of them and back in.

        Nodes are joined in their order, so ``node`` is the last one that is in a group.
        """
        first, second = self._group_of[source], self._group_of[node]
        if first == second:
            return
        if self._has_detour(first, second, node) or self._has_detour(second, first, node):
            return
        for member in self.members[second]:
            self._group_of[member] = first
        self.members[first] += self.members.pop(second)
        _merge(self._readers, self._sources, first, second)
        _merge(self._sources, self._readers, first, second)

    def _has_detour(self, start: int, end: int, last: int) -> bool:
        """Return whether a path leads from one group to another over a third.

        Groups behind the last node are still single nodes, and no path leads back from these.
        """
        waiting = self._readers[start] - {end}
        seen: set[int] = set()
        while waiting:
            group = waiting.pop()
            if group == end:
                return True
            if group <= last and group not in seen:
                seen.add(group)
                waiting |= self._readers[group]
        return False


def _merge(onward: dict[int, set[int]], back: dict[int, set[int]], first: int, second: int) -> None:
    """Give the edges of the second group, in one direction, to the first."""
    for other in onward.pop(second):
        back[other].discard(second)
        if other != first:
            back[other].add(first)
            onward[first].add(other)


def _needs(graph: Graph, judged: Sequence[JudgedNode]) -> list[tuple[int, ...]]:
    """Return for each node those whose results it reads, with folded nodes skipped."""
    results: list[tuple[int, ...]] = []
    needs: list[tuple[int, ...]] = []
    for node, judged_node in zip(graph.nodes, judged, strict=True):
        sources: dict[int, None] = {}
        for name in node.inputs:
            producer = graph.producers.get(name, node.index)
            if producer < node.index:  # A record may list its nodes out of order.
                sources |= dict.fromkeys(results[producer])
        needs.append(tuple(sources))
        if judged_node.placement == "folded":
            results.append(needs[-1])
        elif judged_node.placement == "constant":
            results.append(())
        else:
            results.append((node.index,))
    return needs


def _alike(graph: Graph, judged: Sequence[JudgedNode], source: int, node: int) -> bool:
    """Return whether two nodes can be in one part."""
    places = {judged[source].placement, judged[node].placement}
    if places == {"dla"}:
        # A loadable has one batch.
        return _batch(graph, source) == _batch(graph, node)
    return places <= set(_ON_GPU)


def _batch(graph: Graph, index: int) -> int | None:
    """Return the number of images in a node's output; None if it is not an image."""
    lengths = graph.output(graph.nodes[index]).lengths
    if lengths is None or len(lengths) < 2:
        return None
    return math.prod(batch_of(lengths))


def _parts(graph: Graph, groups: Iterable[Sequence[int]]) -> tuple[Part, ...]:
    parts = []
    for number, group in enumerate(groups):
        nodes = [graph.nodes[index] for index in group]
        read: dict[str, None] = {}
        written: dict[str, None] = {}
        for node in nodes:
            read |= dict.fromkeys(node.inputs)
            written |= dict.fromkeys(node.outputs)
        part = Part(
            number=number,
            first=nodes[0].name,
            last=nodes[-1].name,
            nodes=tuple(group),
            inputs=tuple(name for name in read if name not in written and _enters(graph, name)),
            outputs=tuple(name for name in written if _leaves(graph, name, group)),
        )
        parts.append(part)
    return tuple(parts)


def _enters(graph: Graph, name: str) -> bool:
    """Return whether an input of a part is a tensor that changes with each inference."""
    return bool(name) and not graph.tensor(name).is_constant


def _leaves(graph: Graph, name: str, group: Collection[int]) -> bool:
    """Return whether a tensor of a part is read outside it; an omitted output has no name."""
    readers = set(graph.consumers.get(name, ()))
    return bool(name) and (name in graph.outputs or not readers <= set(group))
