"""Judge each node of a model by the rules of one TensorRT, and compare that with evidence."""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import ValidationError

from ...collectors.models.files import read_graph_apart
from ...collectors.paths import is_directory, is_file
from ...parsers.errors import UsageError, UserError
from ...parsers.inference.layers import ends_of_subgraph
from ...parsers.inference.placement import LayerAnswers, Placement, placement_of
from ...parsers.onnx.costs import FLOATS, channels, convolution_kind, is_constant
from ...parsers.onnx.graph import Graph, Node, Tensor
from ...parsers.values import DLAS, decode_text
from .costs import costs_of, number_parts
from .layers import Names
from .measures import CONVOLUTIONS, IMAGE_RANK, PRODUCTS, layer_of, measures_of
from .rules import (
    ELEMENT_BYTES,
    AlignmentHint,
    ConvolutionShare,
    Disagreement,
    EvidenceCheck,
    Inspection,
    InspectVerdict,
    JudgedNode,
    Measures,
    Operator,
    Part,
    Precision,
    Rule,
    RuleFinding,
    RuleSet,
    TypeReadiness,
    TypeVerdict,
    Value,
    lengths_in_words,
    operators,
    shape_option,
)

_QUANTIZERS = ("DequantizeLinear", "QuantizeLinear")
# The DLA keeps channels in packs of 32 bytes; tensor cores take packs of 16 bytes.
_Unit = Literal["dla", "tensor_core"]
_PACKS: dict[_Unit, int] = {"dla": 32, "tensor_core": 16}
# Images with these numbers of channels have formats of their own.
_OF_IMAGES = (1, 3, 4)
_NO_LAYER = "none"
_LONGEST_WORDS = 6
_MOST_NAMES = 3
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
    is_strict: bool = False,
    assumed_shapes: Mapping[str, tuple[int, ...]] | None = None,
) -> Inspection:
    """Judge a model for the DLA by the rules of the TensorRT that would build it.

    The result contains its name and the reason for these rules. FP32 counts as converted to a
    given precision. The default is INT8 for a quantised model, else FP16, with types as they are.
    An INT8 build of a TensorRT that chooses types also allows FP16, unless it ``is_strict``. The
    ``assumed_shapes``, with which the graph was read, are only passed on.

    Raises:
        UsageError: ``is_strict`` is set for another build than INT8 by choice of the builder.
    """
    is_quantised = any(node.op in _QUANTIZERS for node in graph.nodes)
    built: Precision = precision or ("int8" if is_quantised else "fp16")
    if is_strict and (built != "int8" or rules.line.is_strongly_typed):
        raise UsageError(
            f"a build of {built} by TensorRT {rules.line.name} cannot be strictly INT8",
            "leave --strict-int8 out, or give --precision int8 and a --tensorrt before 11",
        )
    is_fixed = built == "fp16" or is_strict
    goes_by_model = rules.line.is_strongly_typed and is_quantised
    is_converted = precision is not None
    judged = []
    for node in graph.nodes:
        precisions: tuple[Precision, ...] = (built,)
        if not is_fixed:
            precisions = _precisions_of(graph, node, goes_by_model=goes_by_model)
        judged.append(_judge(graph, node, rules, precisions, is_converted))
    nodes, loadables, islands = number_parts(graph, judged)
    verdict = _verdict(nodes)
    return Inspection(
        model=model,
        tensorrt=rules.line.name,
        tensorrt_reason=reason,
        precision=built,
        allows_fp16=built == "fp16" or not (is_strict or rules.line.is_strongly_typed),
        verdict=verdict,
        is_ready=verdict == "dla",
        loadable_limit=rules.loadable_limit,
        nodes=nodes,
        loadables=loadables,
        islands=islands,
        types=_type_readiness(graph, rules, is_quantised),
        alignment=_alignment(graph, nodes, built),
        convolutions=_convolutions(graph),
        costs=costs_of(graph, nodes, loadables, islands, built),
        notes=(*graph.notes, *_notes(graph, nodes, loadables, rules, built)),
        assumed_shapes=dict(assumed_shapes or {}),
        remedy=_shape_remedy(graph),
    )


def read_with_metadata(
    path: Path, shapes: Mapping[str, tuple[int, ...]]
) -> tuple[Graph, dict[str, tuple[int, ...]]]:
    """Read a model, and again with a shape from its metadata if there is one.

    The result contains the graph and that shape. Errors are those of ``read_graph_apart``.
    """
    graph = read_graph_apart(path, shapes)
    assumed_shapes = _shapes_in_metadata(graph)
    if assumed_shapes:
        graph = read_graph_apart(path, {**shapes, **assumed_shapes})
    return graph, assumed_shapes


def _shapes_in_metadata(graph: Graph) -> dict[str, tuple[int, ...]]:
    """Return the shape of the one open input that the size of images in the metadata fits.

    The batch is 1. The result is empty if there is no size, or more than one open input, or if the
    input is not of images whose fixed dimensions agree: channels, height, width.
    """
    open_inputs = [graph.tensor(name) for name in graph.inputs if not graph.tensor(name).is_fixed]
    if graph.image_size is None or len(open_inputs) != 1:
        return {}
    [tensor] = open_inputs
    channels_of_image = tensor.length(1)
    if tensor.rank != IMAGE_RANK or channels_of_image is None:
        return {}
    shape = (tensor.length(0) or 1, channels_of_image, *graph.image_size)
    for own_length, length in zip(tensor.shape or (), shape, strict=True):
        if isinstance(own_length, int) and own_length != length:
            return {}
    return {tensor.name: shape}


def _precisions_of(graph: Graph, node: Node, *, goes_by_model: bool) -> tuple[Precision, ...]:
    """Return the precisions in which an INT8 build may compute a node, the first one before others.

    Unless it goes by the model's types, the builder chooses for each layer, or whoever still has to
    quantise the model.
    """
    if not goes_by_model:
        return ("int8", "fp16")
    return ("int8",) if _is_int8(graph, node) else ("fp16",)


def _is_int8(graph: Graph, node: Node) -> bool:
    """Return whether a quantised model's own types let a node compute in INT8.

    Its inputs are dequantised. A convolution or a product may return FP16, any other layer has to
    be quantised again behind it.
    """
    for tensor in graph.varying_inputs(node):
        source = graph.maker(tensor.name)
        if source is None or source.op != "DequantizeLinear":
            return False
    if node.op in (*CONVOLUTIONS, *PRODUCTS):
        return True
    reader = graph.sole_reader(node)
    return reader is not None and reader.op == "QuantizeLinear"


def _judge(
    graph: Graph,
    node: Node,
    rules: RuleSet,
    precisions: Sequence[Precision],
    is_converted: bool,
) -> JudgedNode:
    """Return the placement of a node, and the rules that it breaks or leaves open.

    Of several precisions the one counts in which it fits best, the first one before others.
    """
    judged = [_judge_at(graph, node, rules, one, is_converted) for one in precisions]
    return min(judged, key=lambda found: (found.placement == "gpu", len(found.findings)))


def _judge_at(
    graph: Graph, node: Node, rules: RuleSet, precision: Precision, is_converted: bool
) -> JudgedNode:
    """Return the placement of a node that computes in one precision."""
    op = f"{node.domain}.{node.op}" if node.domain else node.op
    judged = partial(JudgedNode, index=node.index, name=node.name, op=op)
    if is_constant(graph, node):
        return judged(placement="constant", reason="it is computed once, when the engine is built")
    known = None if node.domain else operators().get(node.op)
    operator = known or Operator()
    layer = layer_of(graph, node, operator)
    if isinstance(layer, str):
        return judged(placement="folded", reason=layer)
    kind = layer.layer
    find = partial(_findings, rules, op, operator, kind or _NO_LAYER, precision)
    findings = find(_support(known, kind, rules))
    if not findings and kind == "quantization":
        return judged(placement="folded", reason="it defines where to quantise")
    if not findings and kind is not None:
        findings = find(measures_of(graph, node, layer, precision, is_converted))
    broken = tuple(finding for finding in findings if not finding.is_open)
    if broken:
        return judged(placement="gpu", layer=kind, findings=broken)
    if findings:
        return judged(placement="unknown", layer=kind, findings=findings)
    return judged(placement="dla", layer=kind)


def _support(known: Operator | None, kind: str | None, rules: RuleSet) -> Measures:
    """Return the measures that need no shape: whether the DLA has this kind of layer at all."""
    if known is None:
        return {"is_known": (False,)}
    is_quantization = kind == "quantization"
    return {
        "is_known": (True,),
        "is_explicit_quantization": (is_quantization,),
        # Explicit quantisation is judged by a rule of its own, not as a layer that is missing.
        "is_supported": (is_quantization or kind in rules.supported,),
    }


def _findings(
    rules: RuleSet,
    op: str,
    operator: Operator,
    kind: str,
    precision: Precision,
    measures: Measures,
) -> tuple[RuleFinding, ...]:
    """Return the rules that are broken or open."""
    findings = []
    for rule in rules.rules:
        values = measures.get(rule.measure)
        is_kept = values is not None and rule.accepts(values)
        if is_kept or not rule.applies_to(kind, measures, precision):
            continue
        findings.append(
            RuleFinding(
                rule=rule.id,
                requirement=rule.requirement,
                found=_describe(rule, values, op),
                hint=_hint(rule, values, operator),
                page=rules.pages[rule.page],
                certainty=rule.certainty,
                is_open=values is None or rule.outcome == "unknown",
            )
        )
    return tuple(findings)


def _hint(rule: Rule, values: tuple[Value, ...] | None, operator: Operator) -> str | None:
    """Return the operator's hint for an operation that the DLA lacks, else that of the rule."""
    if values is None:
        return None  # It is only unknown whether the rule is broken.
    if operator.hint and (rule.hint is None or rule.measure == "operation"):
        return operator.hint
    return rule.hint


def _describe(rule: Rule, values: tuple[Value, ...] | None, op: str) -> str:
    """Return the values that break the rule, each once, in words."""
    if values is None:
        return "the model does not determine it"
    if rule.measure in ("is_known", "is_supported", "is_explicit_quantization"):
        return op
    wrong = list(dict.fromkeys(value for value in values if not rule.accepts((value,))))
    words = list(map(_word, wrong or values))
    return f"{rule.measure.replace('_', ' ')}: {_first(words, _LONGEST_WORDS, ' ')}"


def _first(words: Sequence[str], most: int, joint: str) -> str:
    """Join the first words, with a mark if there are more."""
    text = joint.join(words[:most])
    if len(words) > most:
        text += " …"
    return text


def _word(value: Value) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)


def _verdict(nodes: Sequence[JudgedNode]) -> InspectVerdict:
    places = {node.placement for node in nodes}
    if places >= {"dla", "gpu"}:
        return "mixed"
    if "gpu" in places:
        return "gpu"
    if "unknown" in places:
        return "unknown"
    # A model of constants and folded nodes only has nothing that the DLA could run.
    return "dla" if "dla" in places else "gpu"


def _type_readiness(
    graph: Graph, rules: RuleSet, is_quantised: bool
) -> tuple[TypeReadiness, TypeReadiness]:
    """Return what the model needs for FP16 and for INT8."""
    computed = set()
    for node in graph.nodes:
        for name in node.outputs:
            computed.add(graph.tensor(name).dtype)
    floats = [name for name in FLOATS if name in computed]
    fp16: TypeVerdict = "convert"
    int8: TypeVerdict = "convert"
    if rules.line.is_strongly_typed:
        if floats == ["float16"]:
            fp16 = "ready"
        if is_quantised:
            int8 = "ready"
    else:
        fp16 = _weak_fp16(floats)
        if not is_quantised:
            int8 = "calibration"
    message = rules.types[f"fp16-{fp16}"].format(types=" and ".join(floats) or "no")
    return (
        TypeReadiness(precision="fp16", verdict=fp16, message=message),
        TypeReadiness(precision="int8", verdict=int8, message=rules.types[f"int8-{int8}"]),
    )


def _weak_fp16(floats: Sequence[str]) -> TypeVerdict:
    """Return what a model of these types needs for FP16 where the builder chooses types."""
    if "bfloat16" in floats:
        return "convert"
    if "float16" in floats and "float32" not in floats:
        return "ready"
    return "flag"


def _alignment(
    graph: Graph, judged: Sequence[JudgedNode], precision: Precision
) -> tuple[AlignmentHint, ...]:
    """Find convolutions whose channels do not fill the hardware's packs; most wasteful first."""
    hints: list[AlignmentHint] = []
    for judged_node in judged:
        node = graph.nodes[judged_node.index]
        ends = channels(graph, node)
        # A depthwise convolution computes each channel alone.
        if judged_node.op not in CONVOLUTIONS or ends is None or node.groups > 1:
            continue
        inputs, outputs = ends
        unit: _Unit = "tensor_core" if judged_node.placement == "gpu" else "dla"
        is_image = node.inputs[0] in graph.inputs and inputs in _OF_IMAGES
        if not is_image:
            hints += _uneven(node, "input", inputs, unit, precision)
        hints += _uneven(node, "output", outputs, unit, precision)
    return tuple(sorted(hints, key=lambda hint: (-hint.waste_ratio, hint.index, hint.channels)))


def _uneven(
    node: Node, side: Literal["input", "output"], count: int, unit: _Unit, precision: Precision
) -> Iterator[AlignmentHint]:
    """Yield a hint if channels do not fill the packs of the unit that computes them."""
    multiple = _PACKS[unit] // ELEMENT_BYTES[precision]
    spare = -count % multiple
    if spare:
        yield AlignmentHint(
            index=node.index,
            name=node.name,
            channels=side,
            count=count,
            multiple=multiple,
            unit=unit,
            waste_ratio=spare / (count + spare),
        )


def _convolutions(graph: Graph) -> ConvolutionShare:
    """Count convolutions by kind."""
    kinds = Counter[str]()
    for node in graph.nodes:
        if node.op in CONVOLUTIONS:
            kinds["total"] += 1
            kinds[convolution_kind(graph, node)] += 1
            kinds["dilated"] += max(node.attribute("dilations", tuple) or (1,)) > 1
    del kinds[""]  # neither pointwise nor in groups
    return ConvolutionShare(**kinds)


def _notes(
    graph: Graph,
    nodes: Sequence[JudgedNode],
    loadables: Sequence[Part],
    rules: RuleSet,
    precision: Precision,
) -> Iterator[str]:
    for name in graph.inputs:
        if not graph.tensor(name).is_fixed:
            yield _open_input(graph.tensor(name))
    placements = Counter(node.placement for node in nodes)
    if placements["unknown"]:
        yield (
            f"{placements['unknown']} node(s) are unknown; loadables are counted as if these ran"
            " on the GPU"
        )
    if len(loadables) > rules.loadable_limit:
        yield (
            f"{len(loadables)} loadables: a core holds {rules.loadable_limit} at once, "
            "those of all its models together"
        )
    on_dla = [node for node in nodes if node.placement == "dla"]
    if precision == "int8":
        yield from _int8_notes(on_dla)
    reshaped = [node.name for node in on_dla if node.layer == "fully_connected"]
    if reshaped:
        yield (
            f"after {_first(reshaped, _MOST_NAMES, ', ')} TensorRT adds a reshape on the GPU, which"
            " computes nothing; a convolution of 1 × 1 needs none"
        )


def _open_input(tensor: Tensor) -> str:
    """Return the note on an input whose shape is open, with the option that fixes it."""
    lengths = ", ".join(lengths_in_words(tensor))
    return f"input {tensor.name} is open: [{lengths}]; fix it: {proposed_shape(tensor)}"


def proposed_shape(tensor: Tensor) -> str:
    """Return the option that fixes an open input, with ``?`` for lengths only the user knows."""
    lengths: list[int | str] = []
    for axis in range(tensor.rank or 0):
        usual = 1 if axis == 0 else "?"  # the batch
        lengths.append(tensor.length(axis) or usual)
    return shape_option(tensor.name, lengths or ["?"])


def _shape_remedy(graph: Graph) -> str | None:
    """Return the options that fix all open inputs; None if every input is fixed."""
    tensors = [graph.tensor(name) for name in graph.inputs]
    return " ".join([proposed_shape(tensor) for tensor in tensors if not tensor.is_fixed]) or None


def _int8_notes(on_dla: Sequence[JudgedNode]) -> Iterator[str]:
    """Yield what INT8 changes for layers on the DLA."""
    one_scale = upgraded = 0
    for node in on_dla:
        one_scale += node.layer in _ONE_SCALE
        upgraded += node.op in _UPGRADED
    if one_scale:
        yield (
            f"INT8: {one_scale} pooling or concatenation layers: one scale for all tensors of each"
        )
    if upgraded:
        yield f"INT8: {upgraded} sigmoid, tanh or LRN layers: computed in FP16"


# --- evidence: the builder of this machine, and engines that were built ---------------------------

_Found = Literal["dla", "gpu"]

# Layers that hold a number or a shape do no work, wherever they are.
_HELPERS = frozenset({"CAST", "CONSTANT", "IDENTITY", "SHAPE"})
# Kinds of layer that only reformat, and operators without a kind.
_REFORMATS = ("cast", "shuffle", None)
_FORMS = (
    "give a run (tegrascope runs list), an engine (tegrascope engines list), a result.json of"
    " bench, or a build log"
)
_SHORTEST_KEY = 6
_LIST_OF_7 = re.compile(r"(?<!-)-{5,} *Layers running on (?:DLA|GPU): *$", re.MULTILINE)


def check_builder(graph: Graph, inspection: Inspection, answers: LayerAnswers) -> EvidenceCheck:
    """Compare a prediction with the builder's answers, layer by layer.

    A node fits the DLA if each of its layers does. Layers that hold a number or a shape do not
    count, and neither do nodes that are predicted to be folded or constant.
    """
    source = "TensorRT"
    if answers.tensorrt:
        source = f"the builder of TensorRT {answers.tensorrt}"
    check = partial(EvidenceCheck, kind="builder", source=source)
    if answers.problem is not None:
        return check(problem=answers.problem, remedy=answers.remedy)
    if not answers.dla_cores:
        count = f"it parses the model ({len(answers.layers)} layers)"
        return check(
            problem=f"{count}, but finds no DLA here, so its answers on the DLA have no meaning",
            remedy="run inspect --verify on a board that has a DLA",
        )
    names = Names(graph)
    accepted: defaultdict[int, list[str]] = defaultdict(list)
    refused: defaultdict[int, list[str]] = defaultdict(list)
    for layer in answers.layers:
        if layer.kind in _HELPERS or layer.on_dla is None:
            continue
        layers = accepted if layer.on_dla else refused
        for index in names.of_layer(layer):
            layers[index].append(layer.name)
    found: dict[int, _Found] = dict.fromkeys(accepted, "dla")
    found |= dict.fromkeys(refused, "gpu")
    return _compare(check, inspection, found, accepted | refused)


def check_engine(
    graph: Graph, inspection: Inspection, placement: Placement, source: str
) -> EvidenceCheck:
    """Compare a prediction with the placement of an engine's layers.

    A layer named after several nodes stands for each of them. A subgraph stands for the nodes
    between its first and its last, except those that another layer names. Nodes between the ends
    of two subgraphs that contradict each other are not compared. A reformat on the GPU stands for
    a node only if that node does the same work: a reshape, not a product with a reshape behind it.
    """
    check = partial(EvidenceCheck, kind="engine", source=source)
    if placement.verdict == "unknown":
        return check(
            problem="the placement of its layers is unknown",
            remedy="build it again with tegrascope engines build, which keeps the build log",
        )
    names = Names(graph)
    named: defaultdict[int, set[_Found]] = defaultdict(set)
    between: defaultdict[int, set[_Found]] = defaultdict(set)
    shown_by: defaultdict[int, list[str]] = defaultdict(list)
    sides: dict[_Found, tuple[str, ...]] = {
        "dla": placement.dla_layers,
        "gpu": placement.gpu_layers,
    }
    for side, layers in sides.items():
        for layer in layers:
            ends = ends_of_subgraph(layer)
            if ends is None:
                indices: Sequence[int] = names.in_text(layer)
                places = named
            else:
                indices = names.between(*ends)
                places = between
            for index in indices:
                places[index].add(side)
                shown_by[index].append(layer)
    for layer in placement.reformat_layers:
        for index in names.in_text(layer, whole=True):
            if inspection.nodes[index].layer in _REFORMATS:
                named[index].add("gpu")
                shown_by[index].append(layer)
    found: dict[int, _Found] = {}
    for index, at in (between | named).items():
        if len(at) == 1:  # otherwise its layers contradict each other
            found[index] = min(at)
    return _compare(partial(check, loadables=placement.loadables), inspection, found, shown_by)


def _compare(
    check: Callable[..., EvidenceCheck],
    inspection: Inspection,
    found: Mapping[int, _Found],
    shown_by: Mapping[int, Sequence[str]],
) -> EvidenceCheck:
    if not found:
        return check(
            loadables=None,
            problem="no layer has the name of a node of this model",
            remedy="check that it belongs to this model",
        )
    compared = answered = 0
    differences = []
    for node in inspection.nodes:
        place = found.get(node.index)
        if place is None or node.placement in ("constant", "folded"):
            continue
        if node.placement == "unknown":
            answered += 1
        else:
            compared += 1
        if node.placement != place:
            differences.append(
                Disagreement(
                    index=node.index,
                    name=node.name,
                    op=node.op,
                    predicted=node.placement,
                    found=place,
                    layers=tuple(shown_by.get(node.index, ())),
                    rules=tuple(finding.rule for finding in node.findings),
                )
            )
    return check(
        compared=compared,
        agreed=compared + answered - len(differences),
        answered=answered,
        differences=tuple(differences),
    )


class BuiltPlacement(NamedTuple):
    """The placement of an engine, the engine in words, and its model's digest if known."""

    placement: Placement
    source: str
    model_sha256: str | None = None


def find_evidence(name: str, state_dir: Path) -> BuiltPlacement:
    """Find a placement by a file, the beginning of an engine's key, or a part of a run's id.

    Raises:
        UserError: It does not exist, is ambiguous, or contains no placement on a DLA.
    """
    if is_file(Path(name)):
        return _in_file(Path(name))
    found = _in_cache(name, state_dir / "engines") or _in_store(name, state_dir / "tegrascope.db")
    if found is None:
        raise UserError(f"there is no file, engine or run {name}", _FORMS)
    return found


def _in_file(path: Path) -> BuiltPlacement:
    try:
        text = decode_text(path.read_bytes(), "replace")
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}", "name a readable file") from None
    try:
        document: Any = json.loads(text, strict=False)
    except ValueError:
        placement = placement_of(text.splitlines(), None, "dla0")
    else:
        built = next(_built_in(document), None)
        if built is not None:
            return BuiltPlacement(built, str(path), _digest(document))
        placement = Placement()
        if isinstance(document, dict) and "Layers" in document:  # of the engine inspector
            placement = placement_of((), text, "dla0")
    if placement.verdict == "unknown" and not placement.dla_layers and not placement.gpu_layers:
        if _LIST_OF_7.search(text):
            raise UserError(
                f"{path} has the list of layers that TensorRT 7 prints, in braces: it is not read",
                "build the model with TensorRT 8.4 or newer, and give that log",
            )
        raise UserError(f"{path} contains no placement of layers on a DLA", _FORMS)
    return BuiltPlacement(placement, str(path))


def _in_cache(name: str, directory: Path) -> BuiltPlacement | None:
    if len(name) < _SHORTEST_KEY or not is_directory(directory):
        return None
    from ...collectors.backends.engine_cache import EngineCache

    for entry in EngineCache(directory).entries():
        sidecar = entry.sidecar
        if sidecar.key.startswith(name):
            source = f"engine {sidecar.key[:12]} of {sidecar.model}"
            return BuiltPlacement(sidecar.built.placement, source)
    return None


def _in_store(name: str, path: Path) -> BuiltPlacement | None:
    from ...daemon.store.history import History

    if not is_file(path):
        return None
    document = History(path).run(name)
    if document is None:
        return None
    placement = next(_built_in(document), None)
    if placement is None:
        raise UserError(f"run {name} was not on a DLA, or has no record of its layers", _FORMS)
    source = f"run {document.get('run_id', name)} on {document.get('device')}"
    return BuiltPlacement(placement, source, _digest(document))


def _built_in(document: object) -> Iterator[Placement]:
    """Yield the placements of runs on a DLA, in a run's record or a comparison's result."""
    if isinstance(document, list):
        for element in document:
            yield from _built_in(element)
    elif isinstance(document, dict):
        built = document.get("built")
        if document.get("device") in DLAS and isinstance(built, Mapping):
            try:
                yield Placement.model_validate(built.get("placement"))
            except ValidationError:
                return
        for value in document.values():
            yield from _built_in(value)


def _digest(document: object) -> str | None:
    digest = document.get("model_sha256") if isinstance(document, dict) else None
    return digest if isinstance(digest, str) else None
