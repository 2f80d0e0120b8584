"""Draw an inspection as SVG: the model's graph, coloured by the placement of its nodes.

The file is plain SVG without scripts, for light and dark pages. Every colour has a word in the
legend and in the box, and the tooltip of a node lists the rules that it breaks.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from ...parsers.errors import UserError
from ...parsers.onnx.graph import Graph, Tensor
from ..terminal import amount
from .report import heading, intensity
from .rules import Inspection, JudgedNode, NodeCost

Point = tuple[float, float]
Edge = tuple[int, int, Hashable]

_ORDER_SWEEPS, _PLACE_SWEEPS = 12, 24
# More long edges to one box than this share a lane.
_BUNDLED = 6
# How hard an edge pulls its ends under each other: between two boxes, at one box, and along a lane,
# where a bend is ugliest.
_STRAIGHTNESS = (4.0, 1.0, 8.0)


@dataclass(frozen=True)
class Spacing:
    """Width of a box, least gap next to it, greatest width of an edge that passes a row.

    A row has this height and at most so many boxes.
    """

    box: float = 236.0
    gap: float = 24.0
    lane: float = 14.0
    row: float = 44.0
    boxes: int = 10


@dataclass(frozen=True)
class Layout:
    """Centres of the boxes, points that each edge passes, and the size between rows' centres."""

    centres: tuple[Point, ...]
    routes: tuple[tuple[Point, ...], ...]
    width: float
    height: float


def lay_out(count: int, edges: Sequence[Edge], spacing: Spacing = Spacing()) -> Layout:
    """Place boxes; an edge leads from a box to a later one and carries a tensor.

    >>> lay_out(2, [(0, 1, "t")], Spacing(10.0, 1.0, 1.0, 5.0)).centres
    ((5.0, 0.0), (5.0, 5.0))
    """
    rows = _rows(count, edges, spacing.boxes)
    chains = _chains(rows, edges)
    near: list[list[int]] = [[] for _ in rows]
    for one, other in dict.fromkeys(step for chain in chains for step in pairwise(chain)):
        near[one].append(other)
        near[other].append(one)
    levels: list[list[int]] = [[] for _ in range(max(rows, default=-1) + 1)]
    for one, row in enumerate(rows):
        levels[row].append(one)
    _put_in_order(levels, rows, near)
    places, widths = _places(levels, near, count, spacing)
    sides = [(at - width / 2, at + width / 2) for at, width in zip(places, widths, strict=True)]
    left = min((begin for begin, _ in sides), default=0)
    right = max((end for _, end in sides), default=0)
    points = [
        (round(at - left, 1), row * spacing.row) for at, row in zip(places, rows, strict=True)
    ]
    return Layout(
        centres=tuple(points[:count]),
        routes=tuple(tuple(points[at] for at in chain) for chain in chains),
        width=round(right - left, 1),
        height=max(rows, default=0) * spacing.row,
    )


def _rows(count: int, edges: Sequence[Edge], most: int) -> list[int]:
    """Return the row of each box: the first with room below the boxes that it depends on."""
    before: defaultdict[int, list[int]] = defaultdict(list)
    for source, target, _ in edges:
        before[target].append(source)
    rows, taken = [0] * count, Counter[int]()
    for box in range(count):
        row = max((rows[one] + 1 for one in before[box]), default=0)
        while taken[row] >= most:
            row += 1
        rows[box] = row
        taken[row] += 1
    return rows


def _chains(rows: list[int], edges: Sequence[Edge]) -> list[list[int]]:
    """Cut each edge at every row that it passes; the pieces get numbers after the boxes."""
    arriving = Counter(target for source, target, _ in edges if rows[target] > rows[source] + 1)
    lanes: defaultdict[Hashable, dict[int, int]] = defaultdict(dict)
    chains = []
    for source, target, tensor in edges:
        lane = lanes[target if arriving[target] > _BUNDLED else (source, tensor)]
        passed = range(rows[source] + 1, rows[target])
        for row in passed:
            if row not in lane:
                lane[row] = len(rows)
                rows.append(row)
        chains.append([source, *(lane[row] for row in passed), target])
    return chains


def _put_in_order(levels: list[list[int]], rows: list[int], near: list[list[int]]) -> None:
    """Sort each row by the mean place of its neighbours, downwards and upwards in turn."""
    at = [0] * len(rows)
    for sweep in range(_ORDER_SWEEPS):
        step = 1 if sweep % 2 == 0 else -1
        for level in levels[::step]:
            for place, one in enumerate(level):
                at[one] = place
            means = {}
            for one in level:
                ends = [at[other] for other in near[one] if (rows[one] - rows[other]) * step > 0]
                means[one] = sum(ends) / len(ends) if ends else at[one]
            level.sort(key=means.__getitem__)
            for place, one in enumerate(level):
                at[one] = place


def _places(
    levels: list[list[int]], near: list[list[int]], count: int, spacing: Spacing
) -> tuple[list[float], list[float]]:
    """Return the centre and the width of each member of the rows."""
    lanes = max((sum(one >= count for one in level) for level in levels), default=0)
    # The greatest width is one and a half full rows. A full row with a gap on both sides of each
    # box, and all lanes, fits it.
    widest = 1.5 * spacing.boxes * (spacing.box + spacing.gap)
    room = widest - spacing.boxes * (spacing.box + 2 * spacing.gap)
    lane = min(spacing.lane, room / max(1, lanes))
    widths = [spacing.box if one < count else lane for one in range(len(near))]
    places = [0.0] * len(near)
    rows = []
    for level in levels:
        offsets = [0.0]
        for one, other in pairwise(level):
            gap = spacing.gap if min(one, other) < count else 0.0
            offsets.append(offsets[-1] + (widths[one] + widths[other]) / 2 + gap)
        rows.append((level, offsets))
        for one, offset in zip(level, offsets, strict=False):
            places[one] = offset
    # Rows keep together: a picture is at most half a full row wider than its longest row.
    limit = max((offsets[-1] for _, offsets in rows), default=0.0)
    limit = max(limit, min(2 * limit, spacing.boxes * spacing.box / 2))
    for sweep in range(_PLACE_SWEEPS):
        for level, offsets in rows if sweep % 2 == 0 else reversed(rows):
            wanted = []
            for one in level:
                pulls = [
                    (_STRAIGHTNESS[(one >= count) + (other >= count)], places[other])
                    for other in near[one]
                ] or [(1.0, places[one])]
                weight = sum(pull for pull, _ in pulls)
                wanted.append((sum(pull * place for pull, place in pulls) / weight, weight))
            most = limit - offsets[-1]
            for one, place in zip(level, _kept_apart(wanted, offsets, most), strict=True):
                places[one] = place
    return places, widths


def _kept_apart(
    wanted: list[tuple[float, float]], offsets: list[float], most: float
) -> list[float]:
    """Return the places nearest to the wanted ones, by weight, in least squares, in order, apart.

    Without the distances to keep it is isotonic regression: neighbours that want to pass each
    other are pooled at their mean. No row starts before 0 or after ``most``.
    """
    pools: list[tuple[float, float, int]] = []
    for (want, weight), offset in zip(wanted, offsets, strict=False):
        mean, mass, size = want - offset, weight, 1
        while pools and pools[-1][0] >= mean:
            earlier, heft, many = pools.pop()
            mean = (earlier * heft + mean * mass) / (heft + mass)
            mass, size = mass + heft, size + many
        pools.append((mean, mass, size))
    means = (min(max(mean, 0.0), most) for mean, _, size in pools for _ in range(size))
    return [mean + offset for mean, offset in zip(means, offsets, strict=False)]


_DLA_COLOURS = 6
_SPACING = Spacing()
_BOX_HEIGHT, _MARGIN, _LINE = 26.0, 24.0, 20.0
_SWATCH, _MOST_SWATCHES = 150.0, 8
_LONGEST = 29  # letters that fit into a box
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
    layout = lay_out(len(boxes), edges, _SPACING)
    legend, headline = list(_legend(inspection)), _headline(inspection)
    words_width = max(len(headline) * _LETTER, len(inspection.model) * _HEAD_LETTER)
    width = max(layout.width, words_width, min(len(legend), 4) * _SWATCH) + 2 * _MARGIN
    columns = max(1, int((width - 2 * _MARGIN) // _SWATCH))
    top = _MARGIN + _LINE * (2.5 - (-len(legend) // columns)) + _BOX_HEIGHT
    height = top + layout.height + _BOX_HEIGHT + _MARGIN

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
    drawing = _add(root, "g", transform=f"translate({_MARGIN:g} {top:g})")
    for (_, _, tensor), route in zip(edges, layout.routes, strict=True):
        line = _add(drawing, "path", "", "line", d=_path(route))
        _add(line, "title", _describe(graph.tensor(str(tensor))))
    for (name, node), (x, y) in zip(boxes, layout.centres, strict=True):
        group = _add(drawing, "g", transform=f"translate({x - _SPACING.box / 2:g} {y:g})")
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
        edges += [(made[name], len(boxes), name) for name in read]
        made.update((name, len(boxes)) for name in node.outputs if name)
        boxes.append((node.name, judged.get(node.index)))
    for name in graph.outputs:
        if name in made:
            edges.append((made[name], len(boxes), name))
        boxes.append((name, None))
    return boxes, edges


def _draw_box(
    group: Element, name: str, node: JudgedNode | None, costs: dict[int, NodeCost]
) -> None:
    size = {"y": -_BOX_HEIGHT / 2, "width": _SPACING.box, "height": _BOX_HEIGHT}
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
    _add(group, "text", badge, "badge", x=_SPACING.box - 7, y=4)


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


def _path(route: tuple[Point, ...]) -> str:
    """Return a curve that leaves and enters each row vertically."""
    half = _BOX_HEIGHT / 2
    x, y = route[0][0], route[0][1] + half
    parts = [f"M{x:g} {y:g}"]
    for across, down in route[1:]:
        entry = down - half
        if across != x:
            middle = (y + entry) / 2
            parts.append(f"C{x:g} {middle:g} {across:g} {middle:g} {across:g} {entry:g}")
        x, y = across, down + half
        parts.append(f"V{entry if down == route[-1][1] else y:g}")
    return "".join(parts)


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
