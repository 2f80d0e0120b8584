"""Write an inspection as a graph for Graphviz, its nodes coloured by placement.

``dot -Tsvg`` draws it. Every box has the word of its placement, so that nothing depends on colours.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ...parsers.onnx.graph import Graph, Tensor
from ...parsers.values import printable
from .rules import Inspection, JudgedNode, lengths_in_words

# With more boxes a drawing cannot be read, and dot needs minutes.
MOST_NODES = 150
_MOST_LETTERS = 200  # of a line: names come from the model
_COLOURS = {
    "dla": "#cfe8d8",
    "gpu": "#fbdcc0",
    "folded": "#eef0f2",
    "constant": "#ffffff",
    "unknown": "#fbf0b8",
    "end": "#e4e7ea",  # an input or an output of the model
}
_MOST_OPERATORS = 4


class _Box(NamedTuple):
    """A box of the drawing: some nodes of one part, or an input or output of the model.

    Attributes:
        placement: Placement of its nodes, or ``end``.
        lines: Text of the box.
        tooltip: Text under the pointer.
        reads: Names of the tensors that it reads; ``makes`` are those that it makes.
    """

    placement: str
    lines: tuple[str, ...]
    tooltip: str
    reads: tuple[str, ...] = ()
    makes: tuple[str, ...] = ()


def drawing(graph: Graph, inspection: Inspection, most: int = MOST_NODES) -> str:
    """Return the model as a text for Graphviz.

    A model of more than ``most`` nodes has one box for each stretch of nodes in one part. If these
    are more, too, the rest is one box without lines.
    """
    boxes = _ends("input", graph.inputs)
    is_joined = len(inspection.nodes) > most
    if is_joined:
        boxes += _joined_boxes(graph, inspection)
    else:
        boxes += _single_boxes(graph, inspection)
    boxes += _ends("output", graph.outputs)
    if is_joined and len(boxes) > most:
        rest = (f"{len(boxes) - most} more boxes",)
        boxes = [*boxes[:most], _Box("end", rest, "too many to draw")]
    lines = [
        f"digraph {_quoted(inspection.model)} {{",
        '  node [shape=box, style=filled, fontname="sans-serif"]',
    ]
    for number, box in enumerate(boxes):
        label, colour = _quoted("\n".join(box.lines)), _quoted(_COLOURS[box.placement])
        lines.append(
            f"  b{number} [label={label}, fillcolor={colour}, tooltip={_quoted(box.tooltip)}]"
        )
    drawn: set[tuple[int, int]] = set()
    for source, target, tensor in _edges(boxes):
        if is_joined and (source, target) in drawn:
            continue  # two stretches have one line, not one for each tensor
        drawn.add((source, target))
        about = _quoted(_describe(graph.tensor(tensor)))
        lines.append(f"  b{source} -> b{target} [tooltip={about}]")
    return "\n".join([*lines, "}", ""])


def _ends(kind: str, names: Sequence[str]) -> list[_Box]:
    """Return the boxes of the inputs or the outputs of a model."""
    boxes = []
    for name in names:
        if kind == "input":
            boxes.append(_Box("end", (kind, name), name, makes=(name,)))
        else:
            boxes.append(_Box("end", (kind, name), name, reads=(name,)))
    return boxes


def _single_boxes(graph: Graph, inspection: Inspection) -> list[_Box]:
    """Return a box for each node."""
    boxes = []
    for node in inspection.nodes:
        tensors = graph.nodes[node.index]
        lines = (node.op, node.name, _part(node))
        boxes.append(_Box(node.placement, lines, _rules(node), tensors.inputs, tensors.outputs))
    return boxes


def _joined_boxes(graph: Graph, inspection: Inspection) -> list[_Box]:
    """Return a box for each stretch of nodes in one part."""
    stretches: list[list[JudgedNode]] = []
    for node in inspection.nodes:
        if not stretches or _part(stretches[-1][-1]) != _part(node):
            stretches.append([])
        stretches[-1].append(node)
    boxes = []
    for stretch in stretches:
        reads: list[str] = []
        makes: list[str] = []
        for node in stretch:
            reads += graph.nodes[node.index].inputs
            makes += graph.nodes[node.index].outputs
        operators = Counter(node.op for node in stretch).most_common(_MOST_OPERATORS)
        words = ", ".join(f"{operator} ×{count}" for operator, count in operators)
        lines = (f"{len(stretch)} nodes: {words}", _part(stretch[0]))
        names = f"{stretch[0].name} to {stretch[-1].name}"
        boxes.append(_Box(stretch[0].placement, lines, names, tuple(reads), tuple(makes)))
    return boxes


def _edges(boxes: Sequence[_Box]) -> Iterator[tuple[int, int, str]]:
    """Yield the tensors that lead from one box to another, by the numbers of the boxes."""
    maker = {}
    for number, box in enumerate(boxes):
        maker.update(dict.fromkeys(box.makes, number))
    for target, box in enumerate(boxes):
        for tensor in dict.fromkeys(filter(None, box.reads)):  # an omitted input has no name
            source = maker.get(tensor, target)
            if source != target:
                yield source, target, tensor


def _part(node: JudgedNode) -> str:
    """Return the words for the part that a node belongs to."""
    if node.loadable is not None:
        return f"DLA loadable {node.loadable}"
    if node.island is not None:
        return f"GPU island {node.island}"
    return node.placement


def _rules(node: JudgedNode) -> str:
    """Return the rules that a node breaks, with remedies."""
    lines = [f"{node.op} {node.name}", node.reason or ""]
    for finding in node.findings:
        state = "not evaluated" if finding.is_open else "breaks"
        lines.append(f"{state}: {finding.requirement} ({finding.rule}); found {finding.found}")
        lines.append(finding.hint or "")
    return "\n".join(filter(None, lines))


def _describe(tensor: Tensor) -> str:
    """Return name, type and shape of a tensor."""
    shape = "unknown shape"
    if tensor.shape is not None:
        shape = "×".join(lengths_in_words(tensor)) or "scalar"
    return f"{tensor.name}\n{tensor.dtype or 'unknown type'}, {shape}"


def _quoted(text: str) -> str:
    r"""Return a string of the DOT language; only its own line ends are escapes.

    >>> print(_quoted('a "b"\nc\\d'))
    "a \"b\"\nc\\d"
    """
    lines = []
    for line in text.split("\n"):
        lines.append(re.sub(r'([\\"])', r"\\\1", printable(line, _MOST_LETTERS)))
    return '"' + r"\n".join(lines) + '"'
