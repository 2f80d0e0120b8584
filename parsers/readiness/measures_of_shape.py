"""Measures of layers that reshape, cut or resize."""

from ..onnx.graph import Graph, Node, Number
from .layers import Layer, producer
from .rules import Value

Measures = dict[str, tuple[Value, ...] | None]

_NEIGHBOURS = {"Slice": "slice", "Split": "slice", "Concat": "concatenation"}


def shuffle(graph: Graph, node: Node, layer: Layer) -> Measures:
    """Measure a reshape or a transpose."""
    before, after = graph.input(node, 0), graph.output(node)
    found: Measures = {"ranks": None, "keeps_batch": None}
    if before is None or after is None or before.shape is None:
        return found
    if after.shape is not None:
        found["ranks"] = (len(before.shape), len(after.shape))
    if layer.operation == "transpose":
        order = node.integers("perm", tuple(reversed(range(len(before.shape))))) or (0,)
        return found | {"keeps_batch": (order[0] == 0,)}
    found["reshape_neighbours"] = tuple(sorted(_neighbours(graph, node)))
    if before.shape and after.shape and before.shape[0] is not None:
        found["keeps_batch"] = (before.shape[0] == after.shape[0],)
    return found


def _neighbours(graph: Graph, node: Node) -> set[str]:
    source = producer(graph, node.inputs[0])
    around = [] if source is None else [source]
    around += [graph.nodes[at] for name in node.outputs for at in graph.consumers.get(name, ())]
    return {_NEIGHBOURS[one.op] for one in around if one.op in _NEIGHBOURS}


def slices(graph: Graph, node: Node, layer: Layer) -> Measures:
    """Measure a slice, or what else TensorRT makes slices of: splits, padding, repetition."""
    data = graph.input(node, 0)
    rank = None if data is None or data.shape is None else len(data.shape)
    found: Measures = {"rank": None if rank is None else (rank,)}
    if layer.operation != "cut":
        return found
    found["axes"] = None
    if node.op == "Split":
        axes: tuple[int, ...] | None = (node.integer("axis", 0) or 0,)
        bounds, steps = [graph.input(node, 1)], None
    else:
        axes = node.integers("axes")
        bounds = [graph.input(node, at) for at in (1, 2, 3, 4)]
        given, steps = bounds[2:]
        if given is not None:
            axes = None if given.values is None else tuple(int(one) for one in given.values)
        elif axes is None:
            starts = bounds[0]
            count = starts.elements if starts is not None else len(node.integers("starts") or ())
            axes = None if count is None else tuple(range(count))
    found["is_static"] = (all(one is None or one.is_constant for one in bounds),)
    found["steps"] = (1,) if steps is None else steps.values
    if axes is not None and rank:
        found["axes"] = tuple(axis % rank for axis in axes)
    return found


def resize(graph: Graph, node: Node, _: Layer) -> Measures:
    """Measure a resize; its scales are given, or told by the sizes before and after."""
    mode = {"bilinear": "linear"}.get(node.word("mode", "nearest"), node.word("mode", "nearest"))
    found: Measures = {"mode": (mode,)}
    is_old = node.op == "Upsample" or graph.opsets.get("", 13) < 11
    place = "asymmetric" if is_old else node.word("coordinate_transformation_mode", "half_pixel")
    rounding = "floor" if is_old else node.word("nearest_mode", "round_prefer_floor")
    found["coordinates"] = (f"{place} {rounding}" if mode == "nearest" else place,)
    scales = _scales(graph, node)
    if scales is None:
        return found | dict.fromkeys(("scales", "outer_scales", "inner_scales_are_whole"))
    inner = tuple(scales[2:])
    return found | {
        "scales": (len(scales),),
        "outer_scales": tuple(scales[:2]),
        "inner_scales": inner,
        "inner_scales_are_whole": (all(float(one).is_integer() for one in inner),),
    }


def _scales(graph: Graph, node: Node) -> tuple[Number, ...] | None:
    before, after = graph.input(node, 0), graph.output(node)
    if before is not None and after is not None and before.is_fixed and after.is_fixed:
        pairs = zip(before.shape or (), after.shape or (), strict=False)
        return tuple(int(end or 0) / max(1, int(begin or 0)) for begin, end in pairs)
    at = 1 if node.op == "Upsample" or graph.opsets.get("", 13) < 11 else 2
    given = graph.input(node, at)
    if given is not None and given.values:
        return given.values
    written = node.attributes.get("scales")
    return tuple(map(float, written)) if isinstance(written, tuple) else None
