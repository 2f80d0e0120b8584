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

from ...daemon.outputs import open_output
from ...daemon.terminal import amount
from ...parsers.onnx.costs import NodeCost
from ...parsers.onnx.graph import Graph, Tensor
from ...parsers.values import BIDIRECTIONAL
from .report import VERDICTS, intensity
from .rules import Inspection, JudgedNode, lengths_in_words


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
    last_rows: list[int] = []  # of the latest tensor in each lane
    lanes = {}
    for tensor, (first, last) in sorted(spans.items(), key=lambda span: span[1]):
        lane = 0
        while lane < len(last_rows) and last_rows[lane] >= first:
            lane += 1
        last_rows[lane : lane + 1] = [last]
        lanes[tensor] = lane
    return lanes


# A browser and a document show a picture of this height; a model of 1,500 nodes is 15 times taller.
TALLEST = 4000.0
_DLA_COLOURS = 6
_BOX, _BOX_HEIGHT, _ROW = 380.0, 26.0, 36.0
_BOX_SIZE = {"y": -_BOX_HEIGHT / 2, "width": _BOX, "height": _BOX_HEIGHT}
_MARGIN, _LINE, _BEND = 24.0, 20.0, 6.0
# Width of a lane, and most of all lanes together.
_LANE, _LANES = 14.0, 1200.0
_SWATCH, _MOST_SWATCHES = 180.0, 8
_STRIP, _MOST_SLICES = 18.0, 300
# The longest sequence of rows that is searched for repeats: more than a block of a transformer.
_LONGEST_PERIOD = 64
_LONGEST = 46  # letters that fit into a box
_MOST_NAMES = 12  # in the tooltip of a box of several nodes
_LETTER, _HEAD_LETTER = 6.8, 10.0  # widths at the sizes of the headline and of the model's name
# Characters that XML cannot hold, control characters, and those that turn the direction of text.
_NOT_XML = re.compile(
    f"[^\t\n\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]|[{BIDIRECTIONAL}]"
)
_OTHERS = {"gpu": "GPU", "folded": "folded", "constant": "constant", "unknown": "unknown"}
# They run nowhere, so they do not end the part around them.
_WITHOUT_PLACE = ("folded", "constant")


class _Item(NamedTuple):
    """An input, a node or an output of the model, with the tensors that it reads and makes.

    ``node`` is ``None`` for an input, an output, and a node without a placement.
    """

    name: str
    kind: str
    node: JudgedNode | None
    reads: tuple[str, ...] = ()
    makes: tuple[str, ...] = ()

    @property
    def operator(self) -> str:
        """Return the operator of a node, else the kind."""
        return self.kind if self.node is None else self.node.op

    @property
    def placement(self) -> str:
        """Return the placement of a node, else the kind."""
        return self.kind if self.node is None else self.node.placement

    @property
    def part(self) -> str:
        """Return the words for the part that it belongs to."""
        if self.node is not None and self.node.placement == "dla":
            return f"loadable {self.node.loadable}"
        if self.node is not None and self.node.placement == "gpu":
            return f"GPU island {self.node.island}"
        return self.placement

    @property
    def colour(self) -> str:
        """Return its class in the style sheet."""
        if self.node is None:
            return "edge"
        if self.node.placement == "dla":
            return f"dla{(self.node.loadable or 0) % _DLA_COLOURS}"
        return self.node.placement


class _Row(NamedTuple):
    """A box: one item, or several that run together.

    Attributes:
        items: Those that the box shows.
        copies: How often the box stands in the model, one after the other.
        hidden: The items of the other copies.
        step: Its place in the sequence that is repeated.
    """

    items: tuple[_Item, ...]
    copies: int = 1
    hidden: tuple[_Item, ...] = ()
    step: int = 0

    @property
    def first(self) -> _Item:
        """Return the item that gives the box its colour: the first one that runs somewhere."""
        for item in self.items:
            if item.placement not in _WITHOUT_PLACE:
                return item
        return self.items[0]

    @property
    def all_items(self) -> tuple[_Item, ...]:
        """Return the items of all copies."""
        return (*self.items, *self.hidden)

    @property
    def signature(self) -> tuple[str, ...]:
        """Return what equal boxes share: placement and operators, but neither names nor numbers."""
        return (self.first.placement, *[item.operator for item in self.items])


def write_picture(path: Path, graph: Graph, inspection: Inspection) -> None:
    """Write the picture of a model.

    Raises:
        UserError: The file cannot be written.
    """
    with open_output(path, "--svg") as output:
        output.write(picture(graph, inspection))


def picture(graph: Graph, inspection: Inspection, tallest: float = TALLEST) -> str:
    """Return the text of an SVG file of at most ``tallest`` pixels.

    A model that needs more is folded: what repeats is drawn once with its count, then each part is
    one box, and at last the middle is left out. A strip above the boxes shows the whole model.
    """
    items = _items(graph, inspection)
    legend, headline = list(_legend(inspection)), _headline(inspection)
    # Its head has a line for each swatch at most, and the strip with its words.
    head_height = 2 * _MARGIN + _LINE * (3.5 + len(legend)) + _BOX_HEIGHT + _STRIP + _LINE
    rows = _rows(items, max(3, int((tallest - head_height) / _ROW)))
    is_folded = len(rows) < len(items)
    edges = _edges(rows, is_folded=is_folded)
    lanes = lanes_of(edges)
    count = max(lanes.values(), default=-1) + 1
    lane = min(_LANE, _LANES / max(1, count))
    left = count * lane
    words_width = max(len(headline) * _LETTER, len(inspection.model) * _HEAD_LETTER)
    width = max(left + _BOX, words_width, min(len(legend), 4) * _SWATCH) + 2 * _MARGIN
    columns = max(1, int((width - 2 * _MARGIN) // _SWATCH))
    strip_top = _MARGIN + _LINE * (2.5 - (-len(legend) // columns))
    top = strip_top + _BOX_HEIGHT
    if is_folded:
        top += _STRIP + 1.5 * _LINE
    height = top + len(rows) * _ROW + _MARGIN

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
    if is_folded:
        nodes = [item for item in items if item.kind == "node"]
        strip = _add(root, "g", transform=f"translate({_MARGIN:g} {strip_top:g})")
        _draw_strip(strip, nodes, width - 2 * _MARGIN)
        words = f"{len(nodes)} nodes in order; below {len(rows)} boxes, ×N: N times in a row"
        _add(strip, "text", words, "legend", x=0, y=_STRIP + _LINE * 0.8)
    drawing = _add(root, "g", transform=f"translate({_MARGIN + left:g} {top:g})")
    for edge in edges:
        path = _straight(edge)
        if edge.target > edge.source + 1:
            path = _around(edge, -lane * (lanes[edge.tensor] + 1))
        line = _add(drawing, "path", "", "line", d=path)
        _add(line, "title", _describe(graph.tensor(edge.tensor)))
    costs = inspection.cost_by_node
    for at, row in enumerate(rows):
        group = _add(drawing, "g", transform=f"translate(0 {at * _ROW:g})")
        _draw_box(group, row, costs)
        if row.copies > 1 and row.step == 0:
            _add(drawing, "path", "", "line", d=_bracket(rows, at))
    indent(root)
    return tostring(root, encoding="unicode") + "\n"


def _bracket(rows: Sequence[_Row], at: int) -> str:
    """Return the bracket beside the boxes that are repeated together, from the first one on."""
    steps = 1
    while at + steps < len(rows) and rows[at + steps].step == steps:
        steps += 1
    begin, end = at * _ROW - _BOX_HEIGHT / 2, (at + steps - 1) * _ROW + _BOX_HEIGHT / 2
    return f"M{_BOX + 3:g} {begin:g}h{_BEND:g}V{end:g}h{-_BEND:g}"


def _items(graph: Graph, inspection: Inspection) -> list[_Item]:
    """Return inputs, nodes and outputs, in the order of the model."""
    judged = {node.index: node for node in inspection.nodes}
    items = []
    for name in graph.inputs:
        items.append(_Item(name, "input", None, makes=(name,)))
    for node in graph.nodes:
        reads = tuple(dict.fromkeys(node.inputs))
        makes = tuple(filter(None, node.outputs))
        items.append(_Item(node.name, "node", judged.get(node.index), reads, makes))
    for name in graph.outputs:
        items.append(_Item(name, "output", None, reads=(name,)))
    return items


def _rows(items: Sequence[_Item], most: int) -> list[_Row]:
    """Return at most so many boxes, with as much detail as fits."""
    single = [_Row((item,)) for item in items]
    if len(single) <= most:
        return single
    repeated = _folded(single)
    if len(repeated) <= most:
        return repeated
    parts = _folded(_parts(items))
    if len(parts) <= most:
        return parts
    begin, end = parts[: most // 2], parts[len(parts) - (most - most // 2 - 1) :]
    middle = parts[len(begin) : len(parts) - len(end)]
    left_out: list[_Item] = []
    for row in middle:
        left_out += row.all_items
    words = f"… {len(middle)} more boxes, {_count(len(left_out), 'node')}"
    gap = _Row((_Item(words, "gap", None),), hidden=tuple(left_out))
    return [*begin, gap, *end]


def _parts(items: Sequence[_Item]) -> list[_Row]:
    """Return a row for each stretch of the model in one part."""
    stretches: list[list[_Item]] = []
    part: str | None = None
    for item in items:
        has_place = item.placement not in _WITHOUT_PLACE
        is_node = item.kind == "node"
        begins = not stretches or is_node != (stretches[-1][-1].kind == "node")
        begins |= has_place and part is not None and item.part != part
        if begins:
            stretches.append([])
            part = None
        stretches[-1].append(item)
        if has_place:
            part = item.part
    return [_Row(tuple(stretch)) for stretch in stretches]


def _folded(rows: Sequence[_Row]) -> list[_Row]:
    """Return the rows with each sequence that repeats at once kept once, with its count."""
    numbers: dict[tuple[str, ...], int] = {}
    kinds = [numbers.setdefault(row.signature, len(numbers)) for row in rows]
    folded: list[_Row] = []
    at = 0
    while at < len(rows):
        period, copies = _repetition(kinds, at)
        end = at + period * copies
        for offset in range(period):
            hidden: list[_Item] = []
            for other in rows[at + offset + period : end : period]:
                hidden += other.items
            row = rows[at + offset]
            folded.append(row._replace(copies=copies, hidden=tuple(hidden), step=offset))
        at = end
    return folded


def _repetition(kinds: Sequence[int], at: int) -> tuple[int, int]:
    """Return length and number of the repeats from a place on that cover most.

    >>> _repetition([7, 1, 2, 1, 2, 1, 2, 9], 1), _repetition([7, 1, 2], 0)
    ((2, 3), (1, 1))
    """
    best = 1, 1
    for period in range(1, min(_LONGEST_PERIOD, (len(kinds) - at) // 2) + 1):
        if kinds[at] != kinds[at + period]:
            continue
        pattern = kinds[at : at + period]
        copies = 1
        while kinds[at + copies * period : at + (copies + 1) * period] == pattern:
            copies += 1
        if copies > 1 and copies * period > best[0] * best[1]:
            best = period, copies
    return best


def _edges(rows: Sequence[_Row], *, is_folded: bool) -> list[Edge]:
    """Return the tensors that lead from a box to a later one.

    In a folded picture two boxes have one line, and the way back to the next copy has none.
    """
    made: dict[str, int] = {}
    for at, row in enumerate(rows):
        for item in row.all_items:
            made.update(dict.fromkeys(item.makes, at))
    edges: list[Edge] = []
    joined: set[tuple[int, int]] = set()
    for target, row in enumerate(rows):
        for item in row.all_items:
            for name in item.reads:
                source = made.get(name)
                if source is None or source >= target:
                    continue
                if is_folded and (source, target) in joined:
                    continue
                joined.add((source, target))
                edges.append(Edge(source, target, name))
    return edges


def _draw_strip(group: Element, nodes: Sequence[_Item], width: float) -> None:
    """Draw all nodes side by side, in slices with the colour of most of their nodes."""
    slices = min(len(nodes), _MOST_SLICES)
    parts: list[tuple[_Item, int, int]] = []
    for at in range(slices):
        first, last = at * len(nodes) // slices, (at + 1) * len(nodes) // slices
        item = _usual_item(nodes[first:last])
        if parts and parts[-1][0].part == item.part:
            item, first, _ = parts.pop()
        parts.append((item, first, last))
    for item, first, last in parts:
        x, length = width * first / len(nodes), width * (last - first) / len(nodes)
        slice_ = _add(group, "rect", "", item.colour, x=x, y=0, width=length, height=_STRIP)
        _add(slice_, "title", f"{item.part}, about node {first + 1} to {last}")


def _usual_item(nodes: Sequence[_Item]) -> _Item:
    """Return the first of the nodes that are in the part of most of them."""
    by_part: dict[str, list[_Item]] = {}
    for item in nodes:
        by_part.setdefault(item.part, []).append(item)
    return max(by_part.values(), key=len)[0]


def _draw_box(group: Element, row: _Row, costs: Mapping[int, NodeCost]) -> None:
    times = f"×{row.copies}" if row.copies > 1 else ""
    node = row.first.node
    if node is None:
        _draw_edge_box(group, row, times)
        return
    operator, name, title = node.op, row.first.name, _title(node, costs.get(node.index))
    if len(row.items) > 1:
        operator, name, title = f"{len(row.items)} nodes", _operators(row), _names(row)
    if times:
        title = f"{row.copies} equal ones, of which this is the first\n{title}"
    _add(group, "title", title)
    _add(group, "rect", "", row.first.colour, rx=4, **_BOX_SIZE)
    text = _add(group, "text", x=8, y=4)
    operator = _shortened(operator, 18)
    badge = _badge(row, node, times)
    _add(text, "tspan", operator, "op")
    _add(text, "tspan", _shortened(name, _LONGEST - len(operator) - len(badge)), "name", dx=5)
    _add(group, "text", badge, "badge", x=_BOX - 7, y=4)


def _draw_edge_box(group: Element, row: _Row, times: str) -> None:
    """Draw inputs or outputs of the model, or the boxes that are left out."""
    words = row.first.name
    title = words
    if len(row.items) > 1:
        words = f"{words} and {len(row.items) - 1} more {row.first.kind}s"
        title = _names(row)
    _add(group, "title", title)
    _add(group, "rect", "", "edge", rx=_BOX_HEIGHT / 2, **_BOX_SIZE)
    _add(group, "text", _shortened(words, _LONGEST - len(times)), "name", x=12, y=4)
    if times:
        _add(group, "text", times, "badge", x=_BOX - 7, y=4)


def _badge(row: _Row, node: JudgedNode, times: str) -> str:
    """Return the words at the right end of a box: its part, unless its copies are in others."""
    if node.placement == "unknown":
        return f"? {times}".strip()
    if node.placement in _WITHOUT_PLACE:
        return times
    others = {item.part for item in row.hidden if item.node is not None}
    if others <= {*_WITHOUT_PLACE, row.first.part}:
        return f"{row.first.part} {times}".strip()
    if node.placement == "dla":
        return f"DLA {times}"
    return f"GPU {times}"


def _operators(row: _Row) -> str:
    counts = Counter(item.operator for item in row.items)
    words = []
    for operator, count in counts.most_common(4):
        words.append(f"{operator} ×{count}" if count > 1 else operator)
    return ", ".join(words)


def _names(row: _Row) -> str:
    """Return the lines of the tooltip of several items."""
    lines = [f"{row.first.part}, {_count(len(row.items), row.first.kind)}"]
    for item in row.items[:_MOST_NAMES]:
        lines.append(item.name if item.node is None else f"{item.operator} {item.name}")
    if len(row.items) > _MOST_NAMES:
        lines.append(f"and {len(row.items) - _MOST_NAMES} more")
    return "\n".join(lines)


def _title(node: JudgedNode, cost: NodeCost | None) -> str:
    places = {"dla": f"DLA, loadable {node.loadable}", "gpu": f"GPU, island {node.island}"}
    lines = [f"{node.op} {node.name}", places.get(node.placement, node.placement)]
    if node.reason:
        lines.append(node.reason)
    for finding in node.findings:
        state = "not evaluated" if finding.is_open else "breaks"
        lines.append(f"{state}: {finding.requirement} ({finding.rule}); found {finding.found}")
        if finding.hint:
            lines.append(f"remedy: {finding.hint}")
    if cost is not None:
        figures = [amount(cost.flops, "FLOP"), amount(cost.moved_bytes, "B")]
        if cost.flops_per_byte is not None:
            figures.append(f"{intensity(cost.flops_per_byte)} FLOP/B")
        lines.append(", ".join(filter(None, figures)))
    return "\n".join(filter(None, lines))


def _headline(inspection: Inspection) -> str:
    loadables = _count(len(inspection.loadables), "loadable")
    islands = _count(len(inspection.islands), "GPU island")
    return (
        f"{VERDICTS[inspection.verdict]}; {loadables}, {islands}; "
        f"{inspection.precision}, rules of TensorRT {inspection.tensorrt}"
    )


def _legend(inspection: Inspection) -> Iterator[tuple[str, str]]:
    """Yield the class and the words of each swatch."""
    for part in inspection.loadables[:_MOST_SWATCHES]:
        words = f"loadable {part.number} · {_count(len(part.nodes), 'node')}"
        yield f"dla{part.number % _DLA_COLOURS}", words
    if len(inspection.loadables) > _MOST_SWATCHES:
        yield "edge", f"and {len(inspection.loadables) - _MOST_SWATCHES} more loadables"
    counts = inspection.node_counts
    for placement, name in _OTHERS.items():
        if counts[placement]:
            yield placement, f"{name} · {_count(counts[placement], 'node')}"


def _count(number: int, name: str) -> str:
    return f"{number} {name}{'s' * (number != 1)}"


def _describe(tensor: Tensor) -> str:
    shape = "unknown shape"
    if tensor.shape is not None:
        shape = "×".join(lengths_in_words(tensor)) or "scalar"
    return f"{tensor.name}\n{tensor.dtype or 'unknown type'}, {shape}"


def _straight(edge: Edge) -> str:
    """Return a line to the next box."""
    begin, end = edge.source * _ROW + _BOX_HEIGHT / 2, edge.target * _ROW - _BOX_HEIGHT / 2
    return f"M{_BOX / 2:g} {begin:g}V{end:g}"


def _around(edge: Edge, lane: float) -> str:
    """Return a line along a lane, on the left at so many pixels."""
    begin, end = edge.source * _ROW, edge.target * _ROW
    return (
        f"M0 {begin:g}H{lane + _BEND:g}Q{lane:g} {begin:g} {lane:g} {begin + _BEND:g}"
        f"V{end - _BEND:g}Q{lane:g} {end:g} {lane + _BEND:g} {end:g}H0"
    )


def _add(
    parent: Element, tag: str, text: str = "", kind: str = "", **given: str | float
) -> Element:
    """Add an element; characters that XML cannot hold are replaced, whatever a name contains."""
    attributes = {"class": kind} if kind else {}
    for key, value in given.items():
        attributes[key] = value if isinstance(value, str) else f"{value:g}"
    element = SubElement(parent, tag, attributes)
    element.text = _NOT_XML.sub("\ufffd", text) or None
    return element


def _shortened(name: str, length: int) -> str:
    """Keep the end, which distinguishes nodes.

    >>> _shortened("/model.22/cv3.2/conv/Conv", 12)
    '…2/conv/Conv'
    """
    if len(name) <= length:
        return name
    return f"…{name[len(name) - max(1, length - 1) :]}"
