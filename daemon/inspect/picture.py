"""Draw an inspection as SVG: the model's graph, coloured by the placement of its nodes.

The file is plain SVG without scripts, for light and dark pages. Every colour has a word in the
legend and in the box, and the tooltip of a node lists the rules that it breaks.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from ...parsers.errors import UserError
from ...parsers.onnx.graph import Graph, Tensor
from ..terminal import amount
from .report import heading, intensity
from .rules import Inspection, JudgedNode, NodeCost


class Edge(NamedTuple):
    """A tensor that leads from a box to a later one, by their rows."""

    source: int
    target: int
    tensor: str


def lanes_of(edges: Sequence[Edge]) -> Mapping[str, int]:
    """Return the lane of each tensor that passes a box; 0 is next to the boxes.

    A tensor has one lane, from its source to its last reader, where no other tensor has it.

    >>> lanes_of([Edge(0, 2, "a"), Edge(0, 1, "a"), Edge(2, 4, "b"), Edge(3, 5, "c")])
    {'a': 0, 'b': 1, 'c': 0}
    """
    spans: dict[str, tuple[int, int]] = {}
    for source, target, tensor in edges:
        if target > source + 1:
            spans[tensor] = source, max(target, spans.get(tensor, (0, 0))[1])
    free_from: list[int] = []
    found = {}
    for tensor, (first, last) in sorted(spans.items(), key=lambda span: span[1]):
        free = (lane for lane, row in enumerate(free_from) if row < first)
        lane = next(free, len(free_from))
        free_from[lane : lane + 1] = [last]
        found[tensor] = lane
    return found


_DLA_COLOURS = 6
_BOX, _BOX_HEIGHT, _ROW = 380.0, 26.0, 36.0
_MARGIN, _LINE, _BEND = 24.0, 20.0, 6.0
# Width of a lane, and most of all lanes together.
_LANE, _LANES = 14.0, 1200.0
_SWATCH, _MOST_SWATCHES = 150.0, 8
_LONGEST = 46  # letters that fit into a box
_LETTER, _HEAD_LETTER = 6.8, 10.0  # widths at the sizes of the headline and of the model's name
# Characters that XML cannot hold, and control characters.
_NOT_XML = re.compile("[^\t\n\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_OTHERS = {"gpu": "GPU", "folded": "folded", "constant": "constant", "unknown": "unknown"}


def write_picture(path: Path, graph: Graph, inspection: Inspection) -> None:
    """Write the picture of a model.

    Raises:
        UserError: The file cannot be written.
    """
    try:
        path.write_text(picture(graph, inspection), encoding="utf-8")
    except OSError as error:
        what = f"{path}: {error.strerror or error}"
        raise UserError(what, "name a writable file with --svg") from None


def picture(graph: Graph, inspection: Inspection) -> str:
    """Return the text of an SVG file."""
    costs = {cost.index: cost for cost in inspection.costs.nodes} if inspection.costs else {}
    boxes, edges = _boxes(graph, inspection)
    lanes = lanes_of(edges)
    count = max(lanes.values(), default=-1) + 1
    lane = min(_LANE, _LANES / max(1, count))
    left = count * lane
    legend, headline = list(_legend(inspection)), _headline(inspection)
    words_width = max(len(headline) * _LETTER, len(inspection.model) * _HEAD_LETTER)
    width = max(left + _BOX, words_width, min(len(legend), 4) * _SWATCH) + 2 * _MARGIN
    columns = max(1, int((width - 2 * _MARGIN) // _SWATCH))
    top = _MARGIN + _LINE * (2.5 - (-len(legend) // columns)) + _BOX_HEIGHT
    height = top + len(boxes) * _ROW + _MARGIN

    root = Element("svg", xmlns="http://www.w3.org/2000/svg", role="img")
    root.attrib.update(
        viewBox=f"0 0 {width:g} {height:g}", width=f"{width:g}", height=f"{height:g}"
    )
    _add(root, "title", f"{inspection.model}: {headline}")
    # The style has no variables, which some renderers do not support.
    style = Path(__file__).with_name("picture.css").read_text(encoding="utf-8")
    _add(root, "style", f"\n{style}")
    _add(root, "rect", "", "page", width=width, height=height)
    _add(root, "text", inspection.model, "head", x=_MARGIN, y=_MARGIN + 12)
    _add(root, "text", headline, "legend", x=_MARGIN, y=_MARGIN + 12 + _LINE)
    for at, (colour, words) in enumerate(legend):
        x, y = _MARGIN + at % columns * _SWATCH, _MARGIN + (2 + at // columns) * _LINE
        _add(root, "rect", "", colour, x=x, y=y, rx=3, width=14, height=14)
        _add(root, "text", words, "legend", x=x + 20, y=y + 11)
    drawing = _add(root, "g", transform=f"translate({_MARGIN + left:g} {top:g})")
    for edge in edges:
        is_long = edge.target > edge.source + 1
        path = _path(edge, -lane * (lanes[edge.tensor] + 1) if is_long else None)
        line = _add(drawing, "path", "", "line", d=path)
        _add(line, "title", _describe(graph.tensor(edge.tensor)))
    for row, (name, node) in enumerate(boxes):
        group = _add(drawing, "g", transform=f"translate(0 {row * _ROW:g})")
        _draw_box(group, name, node, costs)
    indent(root)
    return tostring(root, encoding="unicode") + "\n"


def _boxes(
    graph: Graph, inspection: Inspection
) -> tuple[list[tuple[str, JudgedNode | None]], list[Edge]]:
    """Return name and node of each box, no node for the model's inputs and outputs, and edges."""
    boxes: list[tuple[str, JudgedNode | None]] = [(name, None) for name in graph.inputs]
    edges: list[Edge] = []
    judged = {one.index: one for one in inspection.nodes}
    made = {name: box for box, name in enumerate(graph.inputs)}
    for node in graph.nodes:
        read = dict.fromkeys(name for name in node.inputs if name in made)
        edges += [Edge(made[name], len(boxes), name) for name in read]
        made.update((name, len(boxes)) for name in node.outputs if name)
        boxes.append((node.name, judged.get(node.index)))
    for name in graph.outputs:
        if name in made:
            edges.append(Edge(made[name], len(boxes), name))
        boxes.append((name, None))
    return boxes, edges


def _draw_box(
    group: Element, name: str, node: JudgedNode | None, costs: dict[int, NodeCost]
) -> None:
    size = {"y": -_BOX_HEIGHT / 2, "width": _BOX, "height": _BOX_HEIGHT}
    if node is None:
        _add(group, "title", name)
        _add(group, "rect", "", "edge", rx=_BOX_HEIGHT / 2, **size)
        _add(group, "text", _shortened(name, _LONGEST), "name", x=12, y=4)
        return
    colour, badge = str(node.placement), "?" if node.placement == "unknown" else ""
    if node.placement == "dla":
        colour, badge = f"dla{(node.loadable or 0) % _DLA_COLOURS}", f"DLA {node.loadable}"
    elif node.placement == "gpu":
        badge = f"GPU {node.island}"
    _add(group, "title", _title(node, costs.get(node.index)))
    _add(group, "rect", "", colour, rx=4, **size)
    text, operator = _add(group, "text", x=8, y=4), _shortened(node.op, 18)
    _add(text, "tspan", operator, "op")
    _add(text, "tspan", _shortened(name, _LONGEST - len(operator) - len(badge)), "name", dx=5)
    _add(group, "text", badge, "badge", x=_BOX - 7, y=4)


def _title(node: JudgedNode, cost: NodeCost | None) -> str:
    places = {"dla": f"DLA, loadable {node.loadable}", "gpu": f"GPU, island {node.island}"}
    lines = [f"{node.op} {node.name}", places.get(node.placement, node.placement)]
    lines += [node.reason] if node.reason else []
    for finding in node.findings:
        state = "not evaluated" if finding.is_open else "breaks"
        lines.append(f"{state}: {finding.requirement} ({finding.rule}); found {finding.found}")
        lines += [f"remedy: {finding.hint}"] if finding.hint else []
    if cost is not None:
        ratio = intensity(cost.flops_per_byte)
        parts = (amount(cost.flops, "FLOP"), amount(cost.moved_bytes, "B"))
        lines.append(", ".join(filter(None, (*parts, ratio and f"{ratio} FLOP/B"))))
    return "\n".join(filter(None, lines))


def _headline(inspection: Inspection) -> str:
    verdict = heading(inspection).rpartition(" · ")[2]
    loadables, islands = len(inspection.loadables), len(inspection.islands)
    return (
        f"{verdict}; {_count(loadables, 'loadable')}, {_count(islands, 'GPU island')}; "
        f"{inspection.precision}, rules of TensorRT {inspection.tensorrt}"
    )


def _legend(inspection: Inspection) -> Iterator[tuple[str, str]]:
    """Yield the class and the words of each swatch."""
    for part in inspection.loadables[:_MOST_SWATCHES]:
        words = f"DLA {part.number} · {_count(len(part.nodes), 'node')}"
        yield f"dla{part.number % _DLA_COLOURS}", words
    if len(inspection.loadables) > _MOST_SWATCHES:
        yield "edge", f"and {len(inspection.loadables) - _MOST_SWATCHES} more loadables"
    counts: Counter[str] = Counter(node.placement for node in inspection.nodes)
    for placement, name in _OTHERS.items():
        if counts[placement]:
            yield placement, f"{name} · {_count(counts[placement], 'node')}"


def _count(number: int, name: str) -> str:
    return f"{number} {name}{'s' * (number != 1)}"


def _describe(tensor: Tensor) -> str:
    shape = "unknown shape"
    if tensor.shape is not None:
        lengths = ("?" if length is None else str(length) for length in tensor.shape)
        shape = "×".join(lengths) or "scalar"
    return f"{tensor.name}\n{tensor.dtype or 'unknown type'}, {shape}"


def _path(edge: Edge, lane: float | None) -> str:
    """Return a line to the next box, or along a lane on the left at so many pixels."""
    begin, end = edge.source * _ROW, edge.target * _ROW
    if lane is None:
        return f"M{_BOX / 2:g} {begin + _BOX_HEIGHT / 2:g}V{end - _BOX_HEIGHT / 2:g}"
    return (
        f"M0 {begin:g}H{lane + _BEND:g}Q{lane:g} {begin:g} {lane:g} {begin + _BEND:g}"
        f"V{end - _BEND:g}Q{lane:g} {end:g} {lane + _BEND:g} {end:g}H0"
    )


def _add(
    parent: Element, tag: str, text: str = "", kind: str = "", **given: str | float
) -> Element:
    """Add an element; characters that XML cannot hold are replaced, whatever a name contains."""
    attributes = {
        key: f"{one:g}" if not isinstance(one, str) else one for key, one in given.items()
    }
    element = SubElement(parent, tag, {"class": kind} | attributes if kind else attributes)
    element.text = _NOT_XML.sub("\ufffd", text) or None
    return element


def _shortened(name: str, length: int) -> str:
    """Keep the end, which distinguishes nodes.

    >>> _shortened("/model.22/cv3.2/conv/Conv", 12)
    '…2/conv/Conv'
    """
    return name if len(name) <= length else f"…{name[len(name) - max(1, length - 1) :]}"
