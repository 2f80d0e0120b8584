"""Hints that make a model fit the DLA: its types, and the channels of convolutions."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from ...parsers.onnx.graph import Graph, Node
from .records import AlignmentHint, ConvolutionShare, JudgedNode, TypeReadiness, TypeVerdict
from .rules import Precision, ReleaseLine

_CONVOLUTIONS = ("Conv", "ConvTranspose")
_QUANTIZERS = ("DequantizeLinear", "QuantizeLinear")
_AUTOCAST = "python3 -m modelopt.onnx.autocast --target_dla --low_precision_type fp16"
_FLOATS = ("bfloat16", "float16", "float32", "float64")
_Unit = Literal["dla", "tensor_core"]
_Answer = tuple[TypeVerdict, str]

# The DLA keeps channels in packs of 32 bytes; tensor cores take packs of 16 bytes.
_MULTIPLES: Mapping[tuple[_Unit, Precision], int] = {
    ("dla", "fp16"): 16,
    ("dla", "int8"): 32,
    ("tensor_core", "fp16"): 8,
    ("tensor_core", "int8"): 16,
}
# Images with these numbers of channels have formats of their own.
_OF_IMAGES = (1, 3, 4)


def is_quantised(graph: Graph) -> bool:
    """Whether the model itself defines where to quantise."""
    return any(node.op in _QUANTIZERS for node in graph.nodes)


def type_readiness(graph: Graph, line: ReleaseLine) -> tuple[TypeReadiness, ...]:
    """Return what the model needs for FP16 and for INT8: the DLA has no FP32."""
    computed = {graph.tensor(name).dtype for node in graph.nodes for name in node.outputs if name}
    floats = [name for name in _FLOATS if name in computed]
    find = _strongly_typed if line.is_strongly_typed else _weakly_typed
    names: tuple[Precision, ...] = ("fp16", "int8")
    return tuple(
        TypeReadiness(precision=name, verdict=verdict, message=message)
        for name, (verdict, message) in zip(names, find(floats, is_quantised(graph)), strict=True)
    )


def _weakly_typed(floats: list[str], quantised: bool) -> tuple[_Answer, _Answer]:
    fp16: _Answer = ("flag", "the FP16 flag of the builder converts it; the DLA has no FP32")
    if "bfloat16" in floats:
        message = "the model has BF16 tensors, which no flag converts: export it in FP16 or FP32"
        fp16 = ("convert", message)
    elif "float32" not in floats and "float16" in floats:
        fp16 = ("ready", "the model is FP16; set the FP16 flag")
    if quantised:
        return fp16, (
            "convert",
            "the DLA rejects QuantizeLinear and DequantizeLinear before TensorRT 11: remove them, "
            "and give the scales in a calibration cache",
        )
    return fp16, (
        "calibration",
        "each tensor needs a scale: calibrate on real inputs, or give a calibration cache; "
        "without, the speed is valid and the results are not",
    )


def _strongly_typed(floats: list[str], quantised: bool) -> tuple[_Answer, _Answer]:
    fp16: _Answer = ("ready", "the model is FP16")
    if "float16" not in floats or len(floats) > 1:
        names = " and ".join(floats) or "no"
        fp16 = (
            "convert",
            f"networks are strongly typed, and this one has {names} tensors: convert it with "
            f"{_AUTOCAST}",
        )
    if quantised:
        return fp16, ("ready", "the model defines where it is quantised")
    return fp16, (
        "convert",
        "this TensorRT has no calibration: quantise the model with QuantizeLinear and "
        "DequantizeLinear",
    )


def alignment(
    graph: Graph, judged: Sequence[JudgedNode], precision: Precision
) -> tuple[AlignmentHint, ...]:
    """Find convolutions whose channels do not fill the hardware's packs; most wasteful first."""
    found = [
        hint
        for one in judged
        if one.op in _CONVOLUTIONS
        for hint in _uneven(graph, graph.nodes[one.index], one, precision)
    ]
    return tuple(sorted(found, key=lambda hint: (-hint.waste_ratio, hint.index, hint.channels)))


def _uneven(
    graph: Graph, node: Node, judged: JudgedNode, precision: Precision
) -> Iterator[AlignmentHint]:
    unit: _Unit = "tensor_core" if judged.placement == "gpu" else "dla"
    multiple = _MULTIPLES[unit, precision]
    sides = _channels(graph, node)
    # A depthwise convolution computes each channel alone.
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
    """Count convolutions by kind."""
    counts: Counter[str] = Counter()
    for node in graph.nodes:
        if node.op not in _CONVOLUTIONS:
            continue
        sides = _channels(graph, node)
        weight, groups = graph.input(node, 1), node.integer("group", 1) or 1
        kernel = (weight.shape or ())[2:] if weight is not None else ()
        is_depthwise = groups > 1 and sides is not None and sides[0] == groups
        counts["total"] += 1
        counts["pointwise"] += bool(kernel) and groups == 1 and all(side == 1 for side in kernel)
        counts["depthwise"] += is_depthwise
        counts["grouped"] += groups > 1 and not is_depthwise
        counts["dilated"] += any(gap > 1 for gap in node.integers("dilations") or ())
    return ConvolutionShare(**counts)


def _channels(graph: Graph, node: Node) -> tuple[int, int] | None:
    """Return the channels of input and output."""
    weight = graph.input(node, 1)
    if weight is None or weight.shape is None or len(weight.shape) < 2:
        return None
    first, second = weight.shape[:2]
    groups = node.integer("group", 1) or 1
    if not isinstance(first, int) or not isinstance(second, int) or min(first, second, groups) < 1:
        return None
    return (second * groups, first) if node.op == "Conv" else (first, second * groups)
