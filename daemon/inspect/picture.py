"""Draw an inspection as SVG: the model's graph, coloured by the placement of its nodes.

The file is plain SVG without scripts, for light and dark pages. Every colour has a word in the
legend and in the box, and the tooltip of a node lists the rules that it breaks.
"""

from collections import Counter
from collections.abc import Iterator
from xml.etree import ElementTree

from ...parsers.onnx.graph import Graph, Tensor
from .layout import Edge, Layout, Point, Spacing, lay_out
from .records import Inspection, JudgedNode, NodeCost
from .report import amount, heading, intensity

# Fill and line by day, fill and line by night. Cool colours for the loadables in turn.
_DLA = (
    ("#cfe8d8", "#2e8555", "#1d4a33", "#5cb385"),
    ("#cfe2f7", "#2f6fb3", "#1c3d61", "#6ca6de"),
    ("#e2d9f5", "#7353b8", "#3d2d66", "#a78be0"),
    ("#cdebec", "#22818a", "#15464b", "#58b8c0"),
    ("#e3ebc6", "#6e8420", "#3b4714", "#a3bb4d"),
    ("#d6daf8", "#4c56bd", "#2a3070", "#8c95e8"),
)
_COLOURS = {f"dla{at}": colours for at, colours in enumerate(_DLA)} | {
    "gpu": ("#fbdcc0", "#c35a10", "#63300c", "#ee8c45"),
    "folded": ("#eef0f2", "#9aa3ad", "#262b31", "#6d7782"),
    "constant": ("#ffffff", "#b9c0c8", "#15181c", "#4a525b"),
    "unknown": ("#fbf0b8", "#a08206", "#4f430b", "#d6b931"),
    "edge": ("#e4e7ea", "#59636e", "#32383f", "#a3adb8"),
}
_BOXES_BY_DAY = "\n".join(
    f".{name} {{ fill: {fill}; stroke: {line} }}" for name, (fill, line, _, _) in _COLOURS.items()
)
_BOXES_BY_NIGHT = "\n".join(
    f".{name} {{ fill: {fill}; stroke: {line} }}" for name, (_, _, fill, line) in _COLOURS.items()
)
# Without variables, which not every renderer supports.
_STYLE = f"""
text {{ font: 11px system-ui, sans-serif; fill: #1b1f24 }}
.head {{ font-size: 15px; font-weight: 600 }}
.legend {{ font-size: 12px }}
.op {{ font-weight: 600 }}
.badge {{ font-size: 10px }}
.name, .badge {{ fill: #4a525b }}
.page {{ fill: #ffffff }}
.line {{ fill: none; stroke: #8a939d; stroke-width: 1.2 }}
.folded, .constant {{ stroke-dasharray: 4 3 }}
{_BOXES_BY_DAY}
@media (prefers-color-scheme: dark) {{
text {{ fill: #e6e9ec }}
.name, .badge {{ fill: #b7c0c9 }}
.page {{ fill: #15181c }}
.line {{ stroke: #69737e }}
{_BOXES_BY_NIGHT}
}}
"""
_SPACING = Spacing(box=236.0)
_BOX_HEIGHT, _MARGIN, _LINE = 26.0, 24.0, 20.0
_SWATCH, _MOST_SWATCHES = 150.0, 8
_LONGEST = 29  # letters that fit into a box
_LETTER, _HEAD_LETTER = 6.8, 10.0  # widths at the sizes of the headline and of the model's name
_WORDS = {
    "constant": "computed once, while the engine is built",
    "folded": "not a layer of its own",
    "unknown": "placement unknown",
}
_Parent = ElementTree.Element


def picture(graph: Graph, inspection: Inspection) -> str:
    """Return the text of an SVG file."""
    costs = {cost.index: cost for cost in inspection.costs.nodes} if inspection.costs else {}
    names, nodes, edges = _boxes(graph, inspection)
    layout = lay_out(len(names), edges, _SPACING)
    legend = list(_legend(inspection))
    headline = _headline(inspection)
    words_width = max(len(headline) * _LETTER, len(inspection.model) * _HEAD_LETTER)
    width = max(layout.width, words_width, min(len(legend), 4) * _SWATCH) + 2 * _MARGIN
    columns = max(1, int((width - 2 * _MARGIN) // _SWATCH))
    top = _MARGIN + _LINE * (2.5 - (-len(legend) // columns)) + _BOX_HEIGHT
    height = top + layout.height + _BOX_HEIGHT + _MARGIN

    root = ElementTree.Element("svg", xmlns="http://www.w3.org/2000/svg", role="img")
    root.attrib |= {"viewBox": f"0 0 {width:g} {height:g}", "width": f"{width:g}"}
    root.set("height", f"{height:g}")
    _add(root, "title", f"{inspection.model}: {headline}")
    _add(root, "style", _STYLE)
    _rectangle(root, "page", (0.0, 0.0), (width, height), 0.0)
    _label(root, "head", (_MARGIN, _MARGIN + 12), inspection.model)
    _label(root, "legend", (_MARGIN, _MARGIN + 12 + _LINE), headline)
    for at, (colour, words) in enumerate(legend):
        down, across = divmod(at, columns)
        corner = (_MARGIN + across * _SWATCH, _MARGIN + (2 + down) * _LINE)
        _rectangle(root, colour, corner, (14.0, 14.0), 3.0)
        _label(root, "legend", (corner[0] + 20, corner[1] + 11), words)
    drawing = _add(root, "g", transform=f"translate({_MARGIN:g} {top:g})")
    for (_, _, tensor), route in zip(edges, layout.routes, strict=True):
        line = _add(drawing, "path", d=_path(route), **{"class": "line"})
        _add(line, "title", _describe(graph.tensor(str(tensor))))
    _draw_boxes(drawing, names, nodes, layout, costs)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode") + "\n"


def _boxes(
    graph: Graph, inspection: Inspection
) -> tuple[list[str], list[JudgedNode | None], list[Edge]]:
    """Return names and nodes of the boxes, None for the model's inputs and outputs, and edges."""
    names = list(graph.inputs)
    nodes: list[JudgedNode | None] = [None] * len(names)
    edges: list[Edge] = []
    judged = {one.index: one for one in inspection.nodes}
    made = {name: box for box, name in enumerate(graph.inputs)}
    for node in graph.nodes:
        read = dict.fromkeys(name for name in node.inputs if name in made)
        edges += [(made[name], len(names), name) for name in read]
        made.update((name, len(names)) for name in node.outputs if name)
        names.append(node.name)
        nodes.append(judged.get(node.index))
    for name in graph.outputs:
        if name in made:
            edges.append((made[name], len(names), name))
        names.append(name)
        nodes.append(None)
    return names, nodes, edges


def _draw_boxes(
    parent: _Parent,
    names: list[str],
    nodes: list[JudgedNode | None],
    layout: Layout,
    costs: dict[int, NodeCost],
) -> None:
    for name, node, (across, down) in zip(names, nodes, layout.centres, strict=True):
        group = _add(parent, "g", transform=f"translate({across - _SPACING.box / 2:g} {down:g})")
        colour = "edge" if node is None else _colour(node)
        _add(group, "title", name if node is None else _title(node, costs.get(node.index)))
        corner, size = (0.0, -_BOX_HEIGHT / 2), (_SPACING.box, _BOX_HEIGHT)
        _rectangle(group, colour, corner, size, _BOX_HEIGHT / 2 if node is None else 4.0)
        if node is None:
            _label(group, "name", (12.0, 4.0), _shortened(name, _LONGEST))
            continue
        badge, operator = _badge(node), _shortened(node.op, 18)
        line = _add(group, "text", x="8", y="4")
        _add(line, "tspan", operator, **{"class": "op"})
        rest = _shortened(name, _LONGEST - len(operator) - len(badge))
        _add(line, "tspan", rest, **{"class": "name"}, dx="5")
        if badge:
            _label(group, "badge", (_SPACING.box - 7, 4.0), badge, anchor="end")


def _title(node: JudgedNode, cost: NodeCost | None) -> str:
    places = {"dla": f"DLA, loadable {node.loadable}", "gpu": f"GPU, island {node.island}"}
    where = places.get(node.placement) or node.reason or _WORDS[node.placement]
    lines = [f"{node.op} {node.name}", where]
    for finding in node.findings:
        state = "not evaluated" if finding.is_open else "breaks"
        lines.append(f"{state}: {finding.requirement} ({finding.rule}); found {finding.found}")
        if finding.hint:
            lines.append(f"remedy: {finding.hint}")
    if cost is not None:
        ratio = intensity(cost.flops_per_byte)
        parts = (amount(cost.flops, "FLOP"), amount(cost.moved_bytes, "B"))
        lines.append(", ".join(filter(None, (*parts, ratio and f"{ratio} FLOP/B"))))
    return "\n".join(filter(None, lines))


def _badge(node: JudgedNode) -> str:
    badges = {"dla": f"DLA {node.loadable}", "gpu": f"GPU {node.island}", "unknown": "?"}
    return badges.get(node.placement, "")


def _colour(node: JudgedNode) -> str:
    return f"dla{(node.loadable or 0) % len(_DLA)}" if node.placement == "dla" else node.placement


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
        yield f"dla{part.number % len(_DLA)}", words
    if len(inspection.loadables) > _MOST_SWATCHES:
        yield "edge", f"and {len(inspection.loadables) - _MOST_SWATCHES} more loadables"
    counts: Counter[str] = Counter(node.placement for node in inspection.nodes)
    names = {"gpu": "GPU", "folded": "folded", "constant": "constant", "unknown": "unknown"}
    for placement, name in names.items():
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
    (x, y), last = route[0], len(route) - 1
    y += half
    parts = [f"M{x:g} {y:g}"]
    for at, (across, down) in enumerate(route[1:], start=1):
        entry = down - half
        if abs(across - x) < 0.5:
            parts.append(f"V{entry:g}")
        else:
            middle = (y + entry) / 2
            parts.append(f"C{x:g} {middle:g} {across:g} {middle:g} {across:g} {entry:g}")
        x, y = across, entry
        if at < last:
            y = down + half
            parts.append(f"V{y:g}")
    return "".join(parts)


def _add(parent: _Parent, tag: str, text: str = "", **attributes: str) -> _Parent:
    """Add an element; characters that XML cannot hold are replaced, whatever a name contains."""
    element = ElementTree.SubElement(parent, tag, attributes)
    if text:
        element.text = "".join(one if _is_xml(one) else "\N{REPLACEMENT CHARACTER}" for one in text)
    return element


def _is_xml(letter: str) -> bool:
    code = ord(letter)
    return (
        letter in "\t\n"
        or 0x20 <= code < 0x7F
        or 0xA0 <= code <= 0xD7FF
        or 0xE000 <= code <= 0xFFFD
        or code >= 0x10000
    )


def _rectangle(parent: _Parent, colour: str, corner: Point, size: Point, radius: float) -> None:
    (x, y), (width, height) = corner, size
    where = {"x": f"{x:g}", "y": f"{y:g}", "rx": f"{radius:g}"}
    _add(parent, "rect", **{"class": colour}, **where, width=f"{width:g}", height=f"{height:g}")


def _label(parent: _Parent, kind: str, at: Point, text: str, anchor: str = "start") -> None:
    where = {"x": f"{at[0]:g}", "y": f"{at[1]:g}", "text-anchor": anchor}
    _add(parent, "text", text, **{"class": kind}, **where)


def _shortened(name: str, length: int) -> str:
    """Keep the end, which distinguishes nodes.

    >>> _shortened("/model.22/cv3.2/conv/Conv", 12)
    '…2/conv/Conv'
    """
    return name if len(name) <= length else f"…{name[len(name) - max(1, length - 1) :]}"
