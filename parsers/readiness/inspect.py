"""A model and the rules of one TensorRT become an inspection."""

from collections.abc import Iterator, Sequence

from ..onnx.graph import Graph
from .channels import alignment, convolutions
from .costs import costs_of
from .judge import judge
from .measures import Built
from .parts import number_parts
from .records import Inspection, InspectVerdict, Judged, Part
from .rules import Precision, RuleSet
from .types import is_quantised, type_readiness

# At INT8 the scales of what goes into these and of what comes out have to be the same.
_ONE_SCALE = ("concatenation", "pooling")
# At INT8 TensorRT makes these FP16.
_UPGRADED = ("LRN", "Sigmoid", "Tanh")
_MANY_UNKNOWN = "could not be told; loadables are counted as if these ran on the GPU"


def inspect_graph(
    graph: Graph,
    rules: RuleSet,
    *,
    model: str,
    reason: str,
    precision: Precision | None = None,
) -> Inspection:
    """Judge a model for the DLA.

    Args:
        graph: The model.
        rules: Of the TensorRT that would build it.
        model: The file as given.
        reason: Why this TensorRT.
        precision: What it would be built for, FP32 taken as converted to it; by default INT8 for a
            model that is quantised, else FP16, and the types as they are.

    Returns:
        Where each node would run and why, what runs together, and what to do about types.
    """
    built = Built(
        precision=precision or ("int8" if is_quantised(graph) else "fp16"),
        is_converted=precision is not None,
    )
    nodes, loadables, islands = number_parts(graph, judge(graph, rules, built))
    verdict = _verdict(nodes)
    return Inspection(
        model=model,
        tensorrt=rules.line.name,
        tensorrt_reason=reason,
        precision=built.precision,
        verdict=verdict,
        is_ready=verdict == "dla",
        loadable_limit=rules.loadable_limit,
        nodes=nodes,
        loadables=loadables,
        islands=islands,
        types=type_readiness(graph, rules.line),
        alignment=alignment(graph, nodes, built.precision),
        convolutions=convolutions(graph),
        costs=costs_of(graph, nodes, loadables, islands, built.precision),
        notes=(*graph.notes, *_notes(graph, nodes, loadables, rules, built)),
    )


def _verdict(nodes: Sequence[Judged]) -> InspectVerdict:
    places = {one.placement for one in nodes}
    if "gpu" in places:
        return "mixed" if "dla" in places else "gpu"
    if "unknown" in places:
        return "unknown"
    return "dla" if "dla" in places else "gpu"


def _int8_notes(nodes: Sequence[Judged]) -> Iterator[str]:
    on_dla = [one for one in nodes if one.placement == "dla"]
    alike = sum(one.layer in _ONE_SCALE for one in on_dla)
    if alike:
        yield f"INT8: {alike} pooling or concatenation layers: one scale for all tensors of each"
    half = sum(one.op in _UPGRADED for one in on_dla)
    if half:
        yield f"INT8: {half} sigmoid, tanh or LRN layers: computed in FP16"


def _notes(
    graph: Graph,
    nodes: Sequence[Judged],
    loadables: Sequence[Part],
    rules: RuleSet,
    built: Built,
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
        yield f"{unknown} node(s) {_MANY_UNKNOWN}"
    if len(loadables) > rules.loadable_limit:
        yield (
            f"{len(loadables)} loadables: a core takes {rules.loadable_limit} at once, "
            "those of all models on it together"
        )
    if built.precision == "int8":
        yield from _int8_notes(nodes)
    reshaped = [
        one.name for one in nodes if one.placement == "dla" and one.layer == "fully_connected"
    ]
    if reshaped:
        yield (
            f"behind {', '.join(reshaped[:3])}{' …' if len(reshaped) > 3 else ''} TensorRT puts a "
            "reshape on the GPU, which computes nothing; a convolution of 1 × 1 needs none"
        )
