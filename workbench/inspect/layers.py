"""Which nodes of a model became which layer of an engine, and the work of each layer."""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from ...collectors.backends.work import graph_at
from ...collectors.models.files import find_model
from ...parsers.inference.events import InputShape
from ...parsers.inference.layers import computes, ends_of_subgraph, names_in, names_marked
from ...parsers.inference.placement import LayerAnswer
from ...parsers.onnx.costs import CostPrecision, is_constant
from ...parsers.onnx.graph import Graph, Node
from ..results.records import LayerRow
from .costs import layer_costs

_NUMBERED = re.compile(r"(.+)_\d+")
_COUNTED: Mapping[str | None, CostPrecision] = {
    "fp32": "fp32",
    "fp16": "fp16",
    "bf16": "fp16",
    "int8": "int8",
}


class Names:
    """Maps the names that TensorRT uses to the nodes of a model."""

    def __init__(self, graph: Graph) -> None:
        self._nodes: defaultdict[str, list[int]] = defaultdict(list)
        for node in graph.nodes:
            for name in dict.fromkeys((node.name, _by_output(node))):
                self._nodes[name].append(node.index)

    def of_layer(self, layer: LayerAnswer) -> list[int]:
        """Return the nodes that a layer of the network was made of."""
        return self.all_of(names_marked(layer.marks) or [layer.name])

    def all_of(self, names: Sequence[str]) -> list[int]:
        """Return the nodes of names, in their order."""
        indices: dict[int, None] = {}
        for name in names:
            indices |= dict.fromkeys(self._of(name))
        return list(indices)

    def in_text(self, layer: str, *, whole: bool = False) -> list[int]:
        """Return the nodes in the name of a layer of an engine: ``conv1 + relu1``, ``PWN(…)``.

        With ``whole``, every part of the name must be a node: ``conv1 + relu1 copy`` is none.
        """
        indices = list(self._of(layer))
        if indices:
            return indices
        for part in names_in(layer):
            of_part = self._of(part)
            if whole and not of_part:
                return []
            indices += of_part
        return indices

    def between(self, first: str, last: str) -> Sequence[int]:
        """Return the nodes from one to another, in the order of the model."""
        starts, ends = self.in_text(first), self.in_text(last)
        if not starts or not ends:
            return ()
        both = starts + ends
        return range(min(both), max(both) + 1)

    def _of(self, name: str) -> list[int]:
        """Return the nodes of a name; a second layer of the same node has a number appended."""
        numbered = _NUMBERED.fullmatch(name)
        if name not in self._nodes and numbered is not None:
            name = numbered[1]
        return self._nodes.get(name, [])


def layers_with_work(
    model: str,
    directory: Path,
    batch: int,
    rows: Sequence[LayerRow],
    shapes: Mapping[str, InputShape] = MappingProxyType({}),
) -> tuple[LayerRow, ...]:
    """Read a model, and return the layers of its engine with their work at a batch.

    ``directory`` has the built-in models, and ``shapes`` are those of inputs with open dimensions.
    It raises ``UserError`` if the model cannot be read.
    """
    graph = graph_at(find_model(model, directory), batch, tuple(sorted(shapes.items())))
    return with_work(graph, rows)


def with_work(graph: Graph, rows: Sequence[LayerRow]) -> tuple[LayerRow, ...]:
    """Return the layers of an engine with the work of the nodes that became them.

    Real numbers count in the precision of the layer. A subgraph without detail gets the nodes
    between its ends, except those of other layers and constants. A reformat has no work of its
    own. Nodes that several layers share have no figures: the engine does not tell their parts.
    """
    groups = _nodes_of(graph, rows)
    users = Counter[int]()
    for group in groups:
        users.update(group)
    usual = _usual_precision(rows)
    filled = list(rows)
    counted: defaultdict[CostPrecision, list[int]] = defaultdict(list)
    for at, (row, group) in enumerate(zip(rows, groups, strict=True)):
        if not row.nodes:
            nodes = [graph.nodes[index] for index in group]
            names = tuple(node.name or _by_output(node) for node in nodes)
            filled[at] = row.model_copy(update={"nodes": names})
        if group and all(users[index] == 1 for index in group):
            counted[_COUNTED.get(row.precision, usual)].append(at)
    for precision, places in counted.items():
        costs = layer_costs(graph, [groups[at] for at in places], precision)
        for at, cost in zip(places, costs, strict=True):
            changes = cost.model_dump(include={"flops", "moved_bytes", "edge_bytes"})
            filled[at] = filled[at].model_copy(update=changes)
    return tuple(filled)


def _nodes_of(graph: Graph, rows: Sequence[LayerRow]) -> list[list[int]]:
    """Return the nodes that became each layer; none for a reformat."""
    names = Names(graph)
    groups: list[list[int]] = []
    named: set[int] = set()
    for row in rows:
        groups.append(names.all_of(row.nodes) if computes(row.name, row.kind) else [])
        named.update(groups[-1])
    for row, group in zip(rows, groups, strict=True):
        ends = ends_of_subgraph(row.name)
        if ends is None or row.nodes or not computes(row.name, row.kind):
            continue
        for index in names.between(*ends):
            if index not in named and not is_constant(graph, graph.nodes[index]):
                group.append(index)
    return groups


def _usual_precision(rows: Sequence[LayerRow]) -> CostPrecision:
    """Return the precision of most layers, for those that have none of their own."""
    known = Counter(row.precision for row in rows if row.precision in _COUNTED)
    if not known:
        return "fp32"
    [(precision, _)] = known.most_common(1)
    return _COUNTED[precision]


def _by_output(node: Node) -> str:
    """Return the name that a parser gives to an unnamed node."""
    for name in node.outputs:
        if name:
            return f"node_of_{name}"
    return ""
