"""Group nodes that run together: loadables of the DLA, and islands of the GPU between them.

A loadable is a stretch of the model that the DLA runs in one go. Two neighbours form one, unless a
path between them runs elsewhere, or their batches differ.
"""

import math
from collections.abc import Iterable, Sequence

from ...parsers.onnx.graph import Graph
from .layers import batch_of
from .records import JudgedNode, Part

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
