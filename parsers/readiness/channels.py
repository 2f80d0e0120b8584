"""How well the channels of convolutions fit the hardware, and of what kind convolutions are."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from ..onnx.graph import Graph, Node
from .records import AlignmentHint, ConvolutionShare, Judged
from .rules import Precision

_CONVOLUTIONS = ("Conv", "ConvTranspose")
_Unit = Literal["dla", "tensor_core"]

# The DLA keeps channels in packs of 32 bytes; tensor cores take packs of 16 bytes.
_MULTIPLES: Mapping[tuple[_Unit, Precision], int] = {
    ("dla", "fp16"): 16,
    ("dla", "int8"): 32,
    ("tensor_core", "fp16"): 8,
    ("tensor_core", "int8"): 16,
}
# An image of so many channels has formats of its own.
_OF_IMAGES = (1, 3, 4)


def alignment(
    graph: Graph, judged: Sequence[Judged], precision: Precision
) -> tuple[AlignmentHint, ...]:
    """Find convolutions whose channels are no multiple of a pack; most wasteful first."""
    found = [
        hint
        for one in judged
        if one.op in _CONVOLUTIONS
        for hint in _uneven(graph, graph.nodes[one.index], one, precision)
    ]
    return tuple(sorted(found, key=lambda hint: (-hint.waste_ratio, hint.index, hint.channels)))


def _uneven(
    graph: Graph, node: Node, judged: Judged, precision: Precision
) -> Iterator[AlignmentHint]:
    unit: _Unit = "tensor_core" if judged.placement == "gpu" else "dla"
    multiple = _MULTIPLES[unit, precision]
    sides = _sides(graph, node)
    # In a depthwise convolution each channel is by itself.
    if sides is None or (node.integer("group", 1) or 1) > 1:
        return
    is_first = node.inputs[0] in graph.inputs and sides[0] in _OF_IMAGES
    names: tuple[Literal["input", "output"], ...] = ("input", "output")
    for name, count in zip(names, sides, strict=True):
        spare = -count % multiple
        if spare and not (name == "input" and is_first):
            yield AlignmentHint(
                index=node.index,
                name=node.name,
                channels=name,
                count=count,
                multiple=multiple,
                unit=unit,
                waste_ratio=spare / (count + spare),
            )


def convolutions(graph: Graph) -> ConvolutionShare:
    """Count convolutions by kind; one may be of several kinds."""
    total = pointwise = depthwise = grouped = dilated = 0
    for node in graph.nodes:
        sides = _sides(graph, node) if node.op in _CONVOLUTIONS else None
        if node.op not in _CONVOLUTIONS:
            continue
        total += 1
        weight, groups = graph.input(node, 1), node.integer("group", 1) or 1
        kernel = (weight.shape or ())[2:] if weight is not None else ()
        pointwise += bool(kernel) and groups == 1 and all(side == 1 for side in kernel)
        is_depthwise = groups > 1 and sides is not None and sides[0] == groups
        depthwise += is_depthwise
        grouped += groups > 1 and not is_depthwise
        dilated += any(gap > 1 for gap in node.integers("dilations") or ())
    return ConvolutionShare(
        total=total, pointwise=pointwise, depthwise=depthwise, grouped=grouped, dilated=dilated
    )


def _sides(graph: Graph, node: Node) -> tuple[int, int] | None:
    """Return the channels that go in and come out."""
    weight = graph.input(node, 1)
    if weight is None or weight.shape is None or len(weight.shape) < 2:
        return None
    first, second = weight.shape[:2]
    groups = node.integer("group", 1) or 1
    if not isinstance(first, int) or not isinstance(second, int) or min(first, second, groups) < 1:
        return None
    return (second * groups, first) if node.op == "Conv" else (first, second * groups)
