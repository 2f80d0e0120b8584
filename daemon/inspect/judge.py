"""Judge a model: compare each node with the rules of one TensorRT, and collect the results."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Literal

from ...parsers.onnx.graph import Graph, Node
from .costs import costs_of, number_parts
from .measures import BuildTarget, measures_of
from .records import (
    AlignmentHint,
    ConvolutionShare,
    Inspection,
    InspectVerdict,
    JudgedNode,
    Part,
    RuleFinding,
    TypeReadiness,
    TypeVerdict,
)
from .rules import (
    Measures,
    Operator,
    Precision,
    ReleaseLine,
    Rule,
    RuleSet,
    Value,
    layer_of,
    operators,
)

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


_NO_LAYER = "none"
_NOT_LISTED = Operator()
_LONGEST_WORDS = 6
# At INT8 the inputs and outputs of these must have the same scale.
_ONE_SCALE = ("concatenation", "pooling")
# At INT8 TensorRT computes these in FP16.
_UPGRADED = ("LRN", "Sigmoid", "Tanh")


def inspect_graph(
    graph: Graph,
    rules: RuleSet,
    *,
    model: str,
    reason: str,
    precision: Precision | None = None,
) -> Inspection:
    """Judge a model for the DLA by the rules of the TensorRT that would build it.

    Args:
        model: Its name in the result.
        reason: Why these rules.
        precision: The precision to build for, FP32 counted as converted to it. By default INT8 for
            a quantised model, else FP16, with the types as they are.
    """
    target = BuildTarget(
        precision=precision or ("int8" if is_quantised(graph) else "fp16"),
        is_converted=precision is not None,
    )
    judged = tuple(_judge(graph, node, rules, target) for node in graph.nodes)
    nodes, loadables, islands = number_parts(graph, judged)
    verdict = _verdict(nodes)
    return Inspection(
        model=model,
        tensorrt=rules.line.name,
        tensorrt_reason=reason,
        precision=target.precision,
        verdict=verdict,
        is_ready=verdict == "dla",
        loadable_limit=rules.loadable_limit,
        nodes=nodes,
        loadables=loadables,
        islands=islands,
        types=type_readiness(graph, rules.line),
        alignment=alignment(graph, nodes, target.precision),
        convolutions=convolutions(graph),
        costs=costs_of(graph, nodes, loadables, islands, target.precision),
        notes=(*graph.notes, *_notes(graph, nodes, loadables, rules, target)),
    )


def _judge(graph: Graph, node: Node, rules: RuleSet, target: BuildTarget) -> JudgedNode:
    op = f"{node.domain}.{node.op}" if node.domain else node.op
    judged = partial(JudgedNode, index=node.index, name=node.name, op=op)

    def findings(kind: str, measures: Measures) -> list[RuleFinding]:
        return [
            _finding(rule, values, op, operator, rules)
            for rule, values in _broken(kind, measures, rules, target.precision)
        ]

    outputs = [graph.tensor(name) for name in node.outputs if name]
    if outputs and all(one.is_constant for one in outputs):
        return judged(placement="constant", reason="it is computed once, when the engine is built")
    listed = None if node.domain else operators().get(node.op)
    operator = listed or _NOT_LISTED
    layer = layer_of(graph, node, operator)
    if isinstance(layer, str):
        return judged(placement="folded", reason=layer)
    kind = None if layer is None else layer.kind
    is_quantization = kind == "quantization"
    measures: Measures = {"is_known": (listed is not None,)}
    if listed is not None:
        measures["is_explicit_quantization"] = (is_quantization,)
        measures["is_supported"] = (is_quantization or kind in rules.supported,)
    found = findings(kind or _NO_LAYER, measures)
    if not found and is_quantization:
        return judged(placement="folded", reason="it defines where to quantise")
    if not found and layer is not None:
        found = findings(layer.kind, measures_of(graph, node, layer, target))
    broken = tuple(one for one in found if not one.is_open)
    if broken:
        return judged(placement="gpu", layer=kind, findings=broken)
    return judged(placement="unknown" if found else "dla", layer=kind, findings=tuple(found))


def _broken(
    kind: str, measures: Measures, rules: RuleSet, precision: Precision
) -> Iterator[tuple[Rule, tuple[Value, ...] | None]]:
    """Yield the rules that are broken or open, with the values of their measures."""
    for rule in rules.rules:
        if not rule.applies_to(kind, precision) or rule.measure not in measures:
            continue
        if any(measures.get(name) != (value,) for name, value in rule.when.items()):
            continue
        values = measures[rule.measure]
        if values is None or not rule.accepts(values):
            yield rule, values


def _finding(
    rule: Rule, values: tuple[Value, ...] | None, op: str, operator: Operator, rules: RuleSet
) -> RuleFinding:
    # The table of operators has the best hint on operators and operations that the DLA lacks. A
    # hint on a broken rule does not help if it is only unknown whether the rule is broken.
    prefers_operator = rule.hint is None or rule.measure == "operation"
    hint = (operator.hint if prefers_operator else None) or rule.hint
    return RuleFinding(
        rule=rule.id,
        requirement=rule.requirement,
        found=_describe(rule, values, op),
        hint=None if values is None else hint,
        page=rules.pages[rule.page],
        certainty=rule.certainty,
        is_open=values is None or rule.outcome == "unknown",
    )


def _describe(rule: Rule, values: tuple[Value, ...] | None, op: str) -> str:
    """Return the values that break the rule, each once, in words."""
    if values is None:
        return "the model does not determine it"
    if rule.measure in ("is_known", "is_supported", "is_explicit_quantization"):
        return op
    wrong = list(dict.fromkeys(value for value in values if not rule.accepts((value,))))
    shown = wrong or list(values)
    words = " ".join(map(_word, shown[:_LONGEST_WORDS]))
    more = " …" if len(shown) > _LONGEST_WORDS else ""
    return f"{rule.measure.replace('_', ' ')} {words}{more}"


def _word(value: Value) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _verdict(nodes: Sequence[JudgedNode]) -> InspectVerdict:
    places = {one.placement for one in nodes}
    if "gpu" in places:
        return "mixed" if "dla" in places else "gpu"
    if "unknown" in places:
        return "unknown"
    return "dla" if "dla" in places else "gpu"


def _notes(
    graph: Graph,
    nodes: Sequence[JudgedNode],
    loadables: Sequence[Part],
    rules: RuleSet,
    target: BuildTarget,
) -> Iterator[str]:
    for tensor in map(graph.tensor, graph.inputs):
        if not tensor.is_fixed:
            lengths = ", ".join("?" if one is None else str(one) for one in tensor.shape or ())
            fixed = tuple(one for one in (tensor.shape or ())[1:] if isinstance(one, int))
            is_batch = tensor.shape is not None and len(fixed) == len(tensor.shape) - 1
            shape = "x".join(map(str, (1, *fixed))) if is_batch else "…"
            yield f"input {tensor.name} is open: [{lengths}]; fix it: --shape {tensor.name}:{shape}"
    unknown = sum(one.placement == "unknown" for one in nodes)
    if unknown:
        yield f"{unknown} node(s) are unknown; loadables are counted as if these ran on the GPU"
    if len(loadables) > rules.loadable_limit:
        yield (
            f"{len(loadables)} loadables: a core holds {rules.loadable_limit} at once, "
            "those of all its models together"
        )
    on_dla = [one for one in nodes if one.placement == "dla"]
    if target.precision == "int8":
        yield from _int8_notes(on_dla)
    reshaped = [one.name for one in on_dla if one.layer == "fully_connected"]
    if reshaped:
        yield (
            f"after {', '.join(reshaped[:3])}{' …' if len(reshaped) > 3 else ''} TensorRT adds a "
            "reshape on the GPU, which computes nothing; a convolution of 1 × 1 needs none"
        )


def _int8_notes(on_dla: Sequence[JudgedNode]) -> Iterator[str]:
    alike = sum(one.layer in _ONE_SCALE for one in on_dla)
    if alike:
        yield f"INT8: {alike} pooling or concatenation layers: one scale for all tensors of each"
    half = sum(one.op in _UPGRADED for one in on_dla)
    if half:
        yield f"INT8: {half} sigmoid, tanh or LRN layers: computed in FP16"
