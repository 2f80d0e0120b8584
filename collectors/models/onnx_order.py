"""Check that the nodes of an ONNX model form a graph, and sort them."""

from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx


class OrderError(ValueError):
    """The nodes do not form a graph; the message says why."""


def put_in_order(graph: "onnx.GraphProto") -> bool:
    """Sort the nodes of a main graph in place, each after those it reads from.

    ONNX requires that order, but not all tools keep it, and TensorRT sorts too. Nodes that are in
    order already stay in their order.

    Returns:
        Whether nodes were moved.

    Raises:
        OrderError: An input has no name, or a tensor is made twice, read but never made, or
            depends on itself.
    """
    if not all(one.name for one in graph.input):
        raise OrderError("an input has no name")
    makers = _makers(graph)
    given = set(_given(graph))
    waits: list[set[int]] = []
    readers: dict[int, list[int]] = {}
    for index, node in enumerate(graph.node):
        sources = set()
        for name in _read_by(node):
            if name not in given and name not in makers:
                raise OrderError(f"{_word(node)} reads {name!r}, which no node makes")
            if name in makers:
                sources.add(makers[name])
        waits.append(sources)
        for source in sources:
            readers.setdefault(source, []).append(index)
    order = _sorted(waits, readers)
    if len(order) < len(waits):
        stuck = min(set(range(len(waits))) - set(order))
        raise OrderError(f"{_word(graph.node[stuck])} can never run: nodes wait for each other")
    if order == list(range(len(order))):
        return False
    nodes = [graph.node[index] for index in order]
    kept = type(graph)(node=nodes)
    del graph.node[:]
    graph.node.extend(kept.node)
    return True


def _makers(graph: "onnx.GraphProto") -> dict[str, int]:
    makers: dict[str, int] = {}
    given = set(_given(graph))
    for index, node in enumerate(graph.node):
        for name in filter(None, node.output):
            if name in makers:
                one, other = graph.node[makers[name]], node
                raise OrderError(f"{_word(one)} and {_word(other)} both make {name!r}")
            if name in given:
                raise OrderError(f"{_word(node)} makes {name!r}, which is an input or a weight")
            makers[name] = index
    return makers


def _sorted(waits: list[set[int]], readers: dict[int, list[int]]) -> list[int]:
    """Return indices in an order in which nodes can run, without those that never can."""
    ready = [index for index, sources in enumerate(waits) if not sources]
    left = list(map(len, waits))
    heapify(ready)
    order = []
    while ready:
        index = heappop(ready)
        order.append(index)
        for reader in readers.get(index, ()):
            left[reader] -= 1
            if not left[reader]:
                heappush(ready, reader)
    return order


def _read_by(node: "onnx.NodeProto") -> Iterator[str]:
    """Yield the tensors that a node and its subgraphs read from the main graph."""
    yield from filter(None, node.input)
    for attribute in node.attribute:
        yield from _free((attribute.g,) if attribute.HasField("g") else attribute.graphs)


def _free(graphs: "Iterable[onnx.GraphProto]") -> Iterator[str]:
    for graph in graphs:
        inside = {name for node in graph.node for name in node.output}.union(_given(graph))
        # An output may be a tensor of the outer graph.
        names = [one.name for one in graph.output]
        names += [name for node in graph.node for name in _read_by(node)]
        yield from (name for name in names if name and name not in inside)


def _given(graph: "onnx.GraphProto") -> Iterator[str]:
    yield from (one.name for one in graph.input)
    yield from (one.name for one in graph.initializer)
    yield from (one.values.name for one in graph.sparse_initializer)


def _word(node: "onnx.NodeProto") -> str:
    return f"{node.op_type} {node.name!r}" if node.name else f"a {node.op_type}"
