"""An inspection as a picture: the model's graph, coloured by where each node would run.

The file is plain SVG without scripts: it can be shown on a page, in a browser, in a review. What a
colour says a word says too, and a node's title tells the rule that it breaks.
"""

from collections.abc import Iterable, Sequence
from typing import Final
from xml.etree import ElementTree

from ...parsers.onnx.graph import Graph, Tensor
from ...parsers.readiness.cost_records import NodeCost
from ...parsers.readiness.records import Inspection, Judged
from .amounts import amount, intensity
from .layout import Layout, Point, Spacing, lay_out
from .palette import DLA_COLOURS, STYLE
from .svg import label, rectangle, set_text, shortened

_SPACING: Final = Spacing(box=236.0)
_BOX_HEIGHT = 26.0
_MARGIN = 24.0
_LINE = 20.0
_SWATCH = 150.0
_MOST_SWATCHES = 8
_LONGEST = 29  # letters that fit into a box
_LETTER, _HEAD_LETTER = 6.8, 10.0  # widths at the sizes of the headline and of the model's name
_WORDS = {
    "constant": "computed once, while the engine is built",
    "folded": "no layer of its own",
    "unknown": "not known where",
}


def picture(graph: Graph, inspection: Inspection) -> str:
    """Draw a model.

    Args:
        graph: The model.
        inspection: What was found of it.

    Returns:
        The text of an SVG file.
    """
    boxes = _Boxes(graph, inspection)
    ends, tensors = [edge[:2] for edge in boxes.edges], [edge[2] for edge in boxes.edges]
    layout = lay_out(len(boxes.names), ends, _SPACING, tensors)
    legend = _legend(inspection)
    headline = _headline(inspection)
    words_width = max(len(headline) * _LETTER, len(inspection.model) * _HEAD_LETTER)
    width = max(layout.width, words_width, min(len(legend), 4) * _SWATCH) + 2 * _MARGIN
    rows = -(-len(legend) // max(1, int((width - 2 * _MARGIN) // _SWATCH)))
    top = _MARGIN + _LINE * (2.5 + rows) + _BOX_HEIGHT
    height = top + layout.height + _BOX_HEIGHT + _MARGIN

    words = f"{inspection.model}: {headline}"
    root = ElementTree.Element(
        "svg",
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {width:g} {height:g}",
        width=f"{width:g}",
        height=f"{height:g}",
        role="img",
    )
    set_text(ElementTree.SubElement(root, "title"), words)
    ElementTree.SubElement(root, "style").text = STYLE
    rectangle(root, "page", (0.0, 0.0), (width, height), 0.0)
    label(root, "head", (_MARGIN, _MARGIN + 12), inspection.model)
    label(root, "said", (_MARGIN, _MARGIN + 12 + _LINE), headline)
    _draw_legend(root, legend, width)
    drawing = ElementTree.SubElement(root, "g", transform=f"translate({_MARGIN:g} {top:g})")
    _draw_edges(drawing, graph, boxes.edges, layout)
    costs = inspection.costs
    priced = {cost.index: cost for cost in costs.nodes} if costs else {}
    _draw_boxes(drawing, boxes, layout, priced)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode") + "\n"


class _Boxes:
    """What is drawn, from inputs to outputs, and the tensors between.

    Attributes:
        names: Of each box.
        nodes: The judged node of each box; ``None`` for an input or output of the model.
        edges: From box to box, and the name of the tensor.
    """

    def __init__(self, graph: Graph, inspection: Inspection) -> None:
        self.names = list(graph.inputs)
        self.nodes: list[Judged | None] = [None] * len(graph.inputs)
        self.edges: list[tuple[int, int, str]] = []
        judged = {one.index: one for one in inspection.nodes}
        made = {name: box for box, name in enumerate(graph.inputs)}
        for node in graph.nodes:
            box = len(self.names)
            for name in dict.fromkeys(node.inputs):
                if name in made:
                    self.edges.append((made[name], box, name))
            made.update((name, box) for name in node.outputs if name)
            self.names.append(node.name)
            self.nodes.append(judged.get(node.index))
        for name in graph.outputs:
            if name in made:
                self.edges.append((made[name], len(self.names), name))
            self.names.append(name)
            self.nodes.append(None)


def _draw_boxes(
    parent: ElementTree.Element, boxes: _Boxes, layout: Layout, priced: dict[int, NodeCost]
) -> None:
    for name, node, (across, down) in zip(boxes.names, boxes.nodes, layout.centres, strict=True):
        group = ElementTree.SubElement(
            parent, "g", transform=f"translate({across - _SPACING.box / 2:g} {down:g})"
        )
        title = ElementTree.SubElement(group, "title")
        round_by = _BOX_HEIGHT / 2 if node is None else 4.0
        corner, size = (0.0, -_BOX_HEIGHT / 2), (_SPACING.box, _BOX_HEIGHT)
        rectangle(group, "edge" if node is None else _colour(node), corner, size, round_by)
        if node is None:
            set_text(title, name)
            label(group, "name", (12.0, 4.0), shortened(name, _LONGEST))
            continue
        set_text(title, _title(node, priced.get(node.index)))
        line = ElementTree.SubElement(group, "text", x="8", y="4")
        operation = ElementTree.SubElement(line, "tspan", {"class": "op"})
        badge = _badge(node)
        set_text(operation, shortened(node.op, 18))
        rest = ElementTree.SubElement(line, "tspan", {"class": "name", "dx": "5"})
        set_text(rest, shortened(name, _LONGEST - len(node.op[:18]) - len(badge)))
        if badge:
            label(group, "badge", (_SPACING.box - 7, 4.0), badge, anchor="end")


def _title(node: Judged, cost: NodeCost | None) -> str:
    lines = [f"{node.op} {node.name}", _where(node)]
    for finding in node.findings:
        is_open = "cannot be told" if finding.is_open else "breaks"
        lines.append(f"{is_open}: {finding.says} ({finding.rule}); found {finding.found}")
        if finding.hint:
            lines.append(f"what helps: {finding.hint}")
    if cost is not None:
        parts = [amount(cost.flops, "FLOP"), amount(cost.moved_bytes, "B")]
        if cost.flops_per_byte is not None:
            parts.append(f"{intensity(cost.flops_per_byte)} FLOP/B")
        lines.append(", ".join(part for part in parts if part))
    return "\n".join(line for line in lines if line)


def _where(node: Judged) -> str:
    if node.placement == "dla":
        return "DLA" if node.loadable is None else f"DLA, loadable {node.loadable}"
    if node.placement == "gpu":
        return "GPU" if node.island is None else f"GPU, island {node.island}"
    return node.reason or _WORDS[node.placement]


def _badge(node: Judged) -> str:
    if node.placement == "dla":
        return "DLA" if node.loadable is None else f"DLA {node.loadable}"
    if node.placement == "gpu":
        return "GPU" if node.island is None else f"GPU {node.island}"
    return "?" if node.placement == "unknown" else ""


def _colour(node: Judged) -> str:
    if node.placement == "dla":
        return f"dla{(node.loadable or 0) % DLA_COLOURS}"
    return str(node.placement)


def _headline(inspection: Inspection) -> str:
    words = {
        "dla": "wholly on the DLA",
        "mixed": "on the DLA and the GPU",
        "gpu": "nothing on the DLA",
        "unknown": "no rule is broken, but not all could be told",
    }
    loadables, islands = len(inspection.loadables), len(inspection.islands)
    return (
        f"{words[inspection.verdict]}; {loadables} loadable{'s' * (loadables != 1)}, "
        f"{islands} GPU island{'s' * (islands != 1)}; {inspection.precision}, rules of "
        f"TensorRT {inspection.tensorrt}"
    )


def _legend(inspection: Inspection) -> list[tuple[str, str]]:
    """Return the class and the words of each swatch, of what there is."""
    loadables = [
        (f"dla{part.number % DLA_COLOURS}", f"DLA {part.number} · {_nodes(part.nodes)}")
        for part in inspection.loadables[:_MOST_SWATCHES]
    ]
    more = len(inspection.loadables) - len(loadables)
    if more > 0:
        loadables.append(("edge", f"and {more} loadables more"))
    counts = {
        placement: sum(node.placement == placement for node in inspection.nodes)
        for placement in ("gpu", "folded", "constant", "unknown")
    }
    words = {"gpu": "GPU", "folded": "folded away", "constant": "constant", "unknown": "unknown"}
    return loadables + [
        (placement, f"{words[placement]} · {_nodes(range(count))}")
        for placement, count in counts.items()
        if count
    ]


def _nodes(nodes: Sequence[object]) -> str:
    return f"{len(nodes)} node{'s' * (len(nodes) != 1)}"


def _draw_legend(
    parent: ElementTree.Element, legend: Iterable[tuple[str, str]], width: float
) -> None:
    across, down = _MARGIN, _MARGIN + 2 * _LINE
    for colour, words in legend:
        if across + _SWATCH > width - _MARGIN + 1:
            across, down = _MARGIN, down + _LINE
        rectangle(parent, colour, (across, down), (14.0, 14.0), 3.0)
        label(parent, "said", (across + 20, down + 11), words)
        across += _SWATCH


def _draw_edges(
    parent: ElementTree.Element,
    graph: Graph,
    edges: Sequence[tuple[int, int, str]],
    layout: Layout,
) -> None:
    for (_, _, name), route in zip(edges, layout.routes, strict=True):
        path = ElementTree.SubElement(parent, "path", {"class": "line", "d": _path(route)})
        set_text(ElementTree.SubElement(path, "title"), _tensor(graph.tensor(name)))


def _path(route: Sequence[Point]) -> str:
    """Return a curve that leaves and enters each row upright."""
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


def _tensor(tensor: Tensor) -> str:
    shape = "shape not known"
    if tensor.shape is not None:
        lengths = ("?" if length is None else str(length) for length in tensor.shape)
        shape = "×".join(lengths) or "a number"
    return f"{tensor.name}\n{tensor.dtype or 'type not known'}, {shape}"
