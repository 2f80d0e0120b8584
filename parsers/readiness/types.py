"""What the types of a model ask for before the DLA takes it: it has no FP32."""

from ..onnx.graph import Graph
from .records import TypeReadiness
from .rules import Line

_QUANTIZERS = ("DequantizeLinear", "QuantizeLinear")
_AUTOCAST = "python3 -m modelopt.onnx.autocast --target_dla --low_precision_type fp16"
_FLOATS = ("bfloat16", "float16", "float32", "float64")


def is_quantised(graph: Graph) -> bool:
    """Whether the model says itself where to quantise."""
    return any(node.op in _QUANTIZERS for node in graph.nodes)


def type_readiness(graph: Graph, line: Line) -> tuple[TypeReadiness, ...]:
    """Say what has to be done for FP16 and for INT8.

    Args:
        graph: The model.
        line: The TensorRT that would build it.
    """
    computed = {graph.tensor(name).dtype for node in graph.nodes for name in node.outputs if name}
    floats = [name for name in _FLOATS if name in computed]
    if line.is_strongly_typed:
        return _strongly_typed(floats, is_quantised(graph))
    fp16 = TypeReadiness(
        precision="fp16",
        verdict="flag",
        words="the builder makes it FP16 by its FP16 flag; FP32 is not on the DLA",
    )
    if "float32" not in floats and "float16" in floats:
        fp16 = TypeReadiness(
            precision="fp16", verdict="ready", words="the model is FP16; set the FP16 flag"
        )
    if "bfloat16" in floats:
        fp16 = TypeReadiness(
            precision="fp16",
            verdict="convert",
            words="the model has BF16 tensors, which no flag makes FP16: export it in FP16 or FP32",
        )
    if is_quantised(graph):
        return (
            fp16,
            TypeReadiness(
                precision="int8",
                verdict="convert",
                words="the DLA takes no QuantizeLinear and DequantizeLinear before TensorRT 11: "
                "take them out, and give the scales in a calibration cache",
            ),
        )
    return (
        fp16,
        TypeReadiness(
            precision="int8",
            verdict="calibration",
            words="it needs a scale for each tensor: calibrate on real inputs, or give a cache; "
            "without, the speed means something and the answers do not",
        ),
    )


def _strongly_typed(floats: list[str], quantised: bool) -> tuple[TypeReadiness, ...]:
    is_half = "float16" in floats and not {"float32", "float64", "bfloat16"}.intersection(floats)
    fp16 = TypeReadiness(
        precision="fp16",
        verdict="convert",
        words=f"networks are strongly typed, and this one has {' and '.join(floats) or 'no'} "
        f"tensors: convert it with {_AUTOCAST}",
    )
    if is_half:
        fp16 = TypeReadiness(precision="fp16", verdict="ready", words="the model is FP16")
    int8 = TypeReadiness(
        precision="int8",
        verdict="convert",
        words="calibration is gone: quantise the model with QuantizeLinear and DequantizeLinear",
    )
    if quantised:
        int8 = TypeReadiness(
            precision="int8", verdict="ready", words="the model says where it is quantised"
        )
    return fp16, int8
