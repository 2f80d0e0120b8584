"""Layers of a built TensorRT engine, from its inspector, and their times, from its profiler.

The inspector prints JSON of two depths. Without detail, a layer is its name. With detail it has a
kind, tensors with formats and types, a tactic and, from 8.6 on, the ONNX nodes that became it. Up
to TensorRT 10, format and type of a tensor are one text; from 11 on they are two.

Source:
    "Engine Inspector" and "Data Format Descriptions", TensorRT documentation of 8.5 to 11; an
        inspector's JSON of 8.6; names of kernels in public build logs.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from pydantic import NonNegativeInt, PositiveInt

from ..records import Record


class EngineLayer(Record):
    """A layer of a built engine.

    Attributes:
        kind: As TensorRT prints it, for example ``CaskConvolution``; empty if unknown.
        precision: Type in which it computes: that of its weights, else of its first input.
        input_format: Format of the first input, by TensorRT's short name: ``HWC8``, ``CHW32``.
        output_type: Type of the first output.
        tactic: Name of the kernel.
        uses_tensor_cores: ``None`` if the name of the kernel does not show it.
        nodes: ONNX nodes that were fused into it; empty for a reformat or a constant, and for a
            subgraph without detail.
    """

    name: str
    kind: str = ""
    precision: str | None = None
    input_format: str | None = None
    input_type: str | None = None
    output_format: str | None = None
    output_type: str | None = None
    tactic: str | None = None
    uses_tensor_cores: bool | None = None
    nodes: tuple[str, ...] = ()


class LayerProfile(Record):
    """Mean times of the layers of an engine, from profiled inferences that count nowhere else.

    Attributes:
        total_ns: All time that the profiler reported, per inference, before anything was grouped.
        layers_ns: Row to time; a subgraph of a DLA has its copies with it.
        layers: The layers of the engine by its inspector.
    """

    inferences: PositiveInt
    total_ns: NonNegativeInt
    layers_ns: dict[str, NonNegativeInt]
    layers: tuple[EngineLayer, ...] = ()


# Kinds that compute nothing: they move a tensor, or change its form or its type.
_REFORMAT_KINDS = frozenset(
    {"cast", "copy", "identity", "noop", "reformat", "shuffle", "signal", "wait"}
)
# A weight that no other layer holds, as in an engine with open shapes. It has no work at run time:
# the profiler reports 0 for it, so it is neither a layer of a device nor one that reformats.
_CONSTANT_KIND, _CONSTANT_END = "constant", "[constant]"
_REFORMAT_STARTS = ("reformatting copynode", "reshape_after_", "reshape_before_")
_REFORMAT_ENDS = (" copy", " copy finish", " from nvm", " to nvm", "[shuffle]", "_copy_output")
_SUBGRAPH_BEGIN, _SUBGRAPH_END = "{ForeignNode[", "]}"
_POINTWISE = re.compile(r"(?:PWN\()+")
_JOINTS = re.compile(r" \+ |, ")
# Nodes of one group are joined by one control character, groups by another; some texts have none.
_MARK = "[ONNX Layer: "
_MARK_END = re.compile(r"\](?=[\x1e\x1f\[]|$)")

_TYPES: Mapping[str, str] = {
    **dict.fromkeys(("bf16", "bfloat16"), "bf16"),
    **dict.fromkeys(("fp16", "half"), "fp16"),
    **dict.fromkeys(("fp32", "float"), "fp32"),
    "fp4": "fp4",
    "fp8": "fp8",
    "int4": "int4",
    "int8": "int8",
    "int32": "int32",
    "int64": "int64",
    "uint8": "uint8",
    "bool": "bool",
}
_WIDE = {"two": 2, "four": 4, "eight": 8, "sixteen": 16, "thirty-two": 32}
_NAMED_FORMAT = re.compile(r"\(k([A-Z][A-Z0-9_]*)\)")
_CHANNELS = re.compile(r"channel (?:%|==) (\d+)")

# Shapes of the instructions (``tensor16x8x16``, ``h1688``, ``i8816``) and their families.
_WITH_TENSOR_CORES = re.compile(
    r"tensor\d+x\d+|tensorop|warpgroup|(?<!x)[hiqw]g?mma"
    r"|(?:^|_)[his](?:884|1688|8816|16816|16832|161616)(?!\d)"
)
# The first GPUs with tensor cores are sm_70: kernels for older ones use none.
_WITHOUT_TENSOR_CORES = re.compile(
    r"^(?:trt_)?(?:sm[56]\d|maxwell|pascal)_|ffma|simt|gemv|dp4a|(?:^|_)(?:sgemm|[si]cudnn)"
)


def read_layers(inspector: str | None) -> tuple[EngineLayer, ...]:
    """Parse the JSON of an inspector into layers in their order; unreadable text has none.

    >>> [layer] = read_layers('{"Layers": [{"Name": "c + r", "Outputs": [{"Format/Datatype":'
    ...                       ' "Channel major FP16 format where channel % 8 == 0"}]}]}')
    >>> layer.precision, layer.output_format, layer.nodes
    ('fp16', 'HWC8', ('c', 'r'))
    """
    try:
        # Names of ONNX layers are joined by a raw control character, at least in 8.6.
        engine = json.loads(inspector or "", strict=False)
    except (ValueError, RecursionError):
        return ()
    if not isinstance(engine, dict):
        return ()
    layers = []
    for detail in _list(engine.get("Layers")):
        if not isinstance(detail, dict):
            detail = {"Name": detail}
        if _text(detail, "Name"):
            layers.append(_layer(detail))
    return tuple(layers)


def is_reformat(name: str, kind: str) -> bool:
    """Return whether a layer only moves or converts tensors, by its kind, else by its name."""
    if kind:
        return kind.lower() in _REFORMAT_KINDS
    lower = name.lower()
    is_fused = " + " in name
    return lower.startswith(_REFORMAT_STARTS) or (not is_fused and lower.endswith(_REFORMAT_ENDS))


def is_constant(name: str, kind: str) -> bool:
    """Return whether a layer only holds a constant, by its kind, else by its name.

    >>> is_constant("onnx::Conv_193", "Constant"), is_constant("(Unnamed Layer* 3) [Constant]", "")
    (True, True)
    """
    if kind:
        return kind.lower() == _CONSTANT_KIND
    is_fused = " + " in name
    return not is_fused and name.lower().endswith(_CONSTANT_END)


def computes(name: str, kind: str) -> bool:
    """Return whether a layer has work of the model: constants and mere reformats have none."""
    return not is_constant(name, kind) and not is_reformat(name, kind)


def names_in(layer: str) -> tuple[str, ...]:
    """Return the parts of a fused layer's name, which are usually names of nodes.

    >>> names_in("conv1 + relu1"), names_in("PWN(PWN(sigmoid), mul)")
    (('conv1', 'relu1'), ('sigmoid', 'mul'))
    """
    return tuple(_without_pointwise(part) for part in _JOINTS.split(layer))


def _without_pointwise(name: str) -> str:
    mark = _POINTWISE.match(name)
    if mark is not None:
        name = name[mark.end() :]
    return name.rstrip(")")


def ends_of_subgraph(layer: str) -> tuple[str, str] | None:
    """Return the first and the last node of a layer that is a whole subgraph, else None.

    >>> ends_of_subgraph("{ForeignNode[conv1...prob]}"), ends_of_subgraph("conv1")
    (('conv1', 'prob'), None)
    """
    begin, end = layer.find(_SUBGRAPH_BEGIN), layer.rfind(_SUBGRAPH_END)
    if begin < 0 or end < 0:
        return None
    # Names may contain dots, so the last place that fits is taken.
    first, dots, last = layer[begin + len(_SUBGRAPH_BEGIN) : end].rpartition("...")
    if not dots:
        return None
    return first, last


def names_marked(metadata: str) -> tuple[str, ...]:
    r"""Return the ONNX nodes in a layer's metadata, each once.

    >>> names_marked("[ONNX Layer: conv1]\x1e[ONNX Layer: relu[1]]")
    ('conv1', 'relu[1]')
    """
    names: dict[str, None] = {}
    for part in metadata.split(_MARK)[1:]:
        end = _MARK_END.search(part)
        if end is not None:
            names.setdefault(part[: end.start()])
    return tuple(names)


def uses_tensor_cores(kernel: str) -> bool | None:
    """Return whether a kernel computes on tensor cores; ``None`` if its name does not show it.

    >>> names = "sm80_xmma_gemm_f16f16_tensor16x8x16", "maxwell_scudnn_128x64_relu", "__myl_Add"
    >>> [uses_tensor_cores(name) for name in names]
    [True, False, None]
    """
    name = kernel.lower()
    if _WITH_TENSOR_CORES.search(name):
        return True
    if _WITHOUT_TENSOR_CORES.search(name):
        return False
    return None


def short_format(text: str) -> str:
    """Return TensorRT's short name of a format that its inspector describes in words.

    An unknown description is returned unchanged.

    >>> short_format("Thirty-two wide channel vectorized row major Int8 format")
    'CHW32'
    >>> short_format("Channel major FP16 format where channel == 4 and column stride % 32 == 0")
    'HWC4'
    >>> short_format("Row major linear FP32 format (kLINEAR)"), short_format("secret")
    ('LINEAR', 'secret')
    """
    named = _NAMED_FORMAT.search(text)
    if named is not None:
        return named[1]
    words = text.lower()
    depth = "D" if "3 spatial dimensions" in words else ""
    width, is_wide, _ = words.partition(" wide channel vectorized")
    if is_wide and width in _WIDE:
        return f"C{depth}HW{_WIDE[width]}"
    if words.startswith("channel major"):
        channels = _CHANNELS.search(words)
        if channels is None:
            return f"{depth}HWC"
        return f"{depth}HWC{channels[1]}"
    if words.startswith(("row major", "linear")):
        return "LINEAR"
    return text.strip()


def _layer(detail: Mapping[str, Any]) -> EngineLayer:
    name, kind = _text(detail, "Name"), _text(detail, "LayerType")
    tactic = _text(detail, "TacticName")
    input_format, input_type = _first_tensor(detail.get("Inputs"))
    output_format, output_type = _first_tensor(detail.get("Outputs"))
    precision = input_type or output_type
    weights = detail.get("Weights")
    if isinstance(weights, dict):
        precision = _type_in(_text(weights, "Type")) or precision
    nodes = names_marked(_text(detail, "Metadata"))
    if not nodes and ends_of_subgraph(name) is None and computes(name, kind):
        nodes = names_in(name)
    return EngineLayer(
        name=name,
        kind=kind,
        precision=precision,
        input_format=input_format,
        input_type=input_type,
        output_format=output_format,
        output_type=output_type,
        tactic=tactic or None,
        uses_tensor_cores=uses_tensor_cores(tactic),
        nodes=nodes,
    )


def _first_tensor(tensors: object) -> tuple[str | None, str | None]:
    """Return format and type of the first tensor, as far as they are told."""
    first = next(iter(_list(tensors)), None)
    if not isinstance(first, dict):
        return None, None
    format_text = _text(first, "Format") or _text(first, "Format/Datatype")
    keys = ("DataType", "Datatype", "Format", "Format/Datatype")
    tensor_type = _type_in(" ".join(_text(first, key) for key in keys))
    if not format_text:
        return None, tensor_type
    return short_format(format_text), tensor_type


def _type_in(text: str) -> str | None:
    """Return the first type in a text, in our own words."""
    for word in text.lower().split():
        if word in _TYPES:
            return _TYPES[word]
    return None


def _text(detail: Mapping[str, Any], key: str) -> str:
    value = detail.get(key)
    if not isinstance(value, str):
        return ""
    return value.strip()


def _list(value: object) -> list[Any]:
    if not isinstance(value, list):
        return []
    return value
