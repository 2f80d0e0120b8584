"""Records of an inspection, and NVIDIA's rules for the DLA from the two TOML files here."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import msgspec
from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt

from ...collectors.backends.tensorrt_probe import tensorrt_version
from ...parsers.errors import UsageError
from ...parsers.onnx.costs import NodeCost
from ...parsers.onnx.graph import Tensor
from ...parsers.records import Ratio, Record
from ...parsers.values import version_numbers

# Raised whenever a key changes its meaning or is removed; new keys may come at any time.
SCHEMA_VERSION: Literal[2] = 2

# ``dla``: no known rule is broken. ``gpu``: a rule is broken. ``constant``: computed once, while
# the engine is built. ``folded``: not a layer of its own; it merges into its neighbour or only
# changes names. ``unknown``: NVIDIA's pages do not say, or the model does not.
NodePlacement = Literal["dla", "gpu", "constant", "folded", "unknown"]
# ``documented`` on a page of NVIDIA's; ``observed`` in public build logs; ``inferred`` by us.
Certainty = Literal["documented", "observed", "inferred"]
# ``dla``: wholly on the DLA; ``mixed``: on both; ``gpu``: nothing on the DLA; ``unknown``: no rule
# is broken, but some could not be evaluated.
InspectVerdict = Literal["dla", "mixed", "gpu", "unknown"]
# ``ready``: as it is; ``flag``: a flag of the builder converts it; ``calibration``: it needs
# scales; ``convert``: the file has to be exported again.
TypeVerdict = Literal["ready", "flag", "calibration", "convert"]


class RuleFinding(Record):
    """A rule that a node breaks, or an open one, which cannot be evaluated for it."""

    rule: str
    requirement: str
    found: str
    hint: str | None = None
    page: str
    certainty: Certainty = "documented"
    is_open: bool = False


class JudgedNode(Record):
    """A node, its kind of TensorRT layer (``convolution``), its placement and its part, from 0.

    The operator has its domain in front unless that is ONNX's own.
    """

    index: NonNegativeInt
    name: str
    op: str
    layer: str | None = None
    placement: NodePlacement
    reason: str | None = None
    findings: tuple[RuleFinding, ...] = ()
    loadable: NonNegativeInt | None = None
    island: NonNegativeInt | None = None


class Part(Record):
    """Indices of nodes that run together: a loadable of the DLA, or an island of the GPU.

    Inputs and outputs are the tensors that enter and leave it, without weights.
    """

    number: NonNegativeInt
    first: str
    last: str
    nodes: tuple[NonNegativeInt, ...]
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()


class TypeReadiness(Record):
    """Requirements of a model's types at one precision."""

    precision: Literal["fp16", "int8"]
    verdict: TypeVerdict
    message: str


class AlignmentHint(Record):
    """A convolution whose channels are not a multiple of the hardware's pack.

    ``waste_ratio`` is the share of the padded channels that is empty.
    """

    index: NonNegativeInt
    name: str
    channels: Literal["input", "output"]
    count: PositiveInt
    multiple: PositiveInt
    unit: Literal["dla", "tensor_core"]
    waste_ratio: Ratio


class ConvolutionShare(Record):
    """Convolutions by kind, transposed ones included.

    A pointwise one has a kernel of 1 × 1 and one group, a depthwise one a group per input channel,
    a grouped one groups of more channels. Any of them may be dilated.
    """

    total: NonNegativeInt = 0
    pointwise: NonNegativeInt = 0
    depthwise: NonNegativeInt = 0
    grouped: NonNegativeInt = 0
    dilated: NonNegativeInt = 0


class PartCost(Record):
    """Work and bytes per inference of a loadable, an island, or the whole model.

    Attributes:
        uncounted: Nodes without figures; with any, the sums are lower bounds.
        moved_bytes: Sum over its nodes, as if each wrote its outputs to memory and the next read
            them again: the upper bound of the traffic.
        edge_bytes: Tensors that cross its edge, and its weights once: the lower bound.
    """

    nodes: NonNegativeInt
    uncounted: NonNegativeInt = 0
    flops: NonNegativeInt | None = None
    multiply_adds: NonNegativeInt | None = None
    moved_bytes: NonNegativeInt | None = None
    edge_bytes: NonNegativeInt | None = None
    flops_per_byte: NonNegativeFloat | None = None
    flops_ratio: Ratio | None = None


class Costs(Record):
    """Work and bytes of a model; real numbers are counted in the precision.

    The ratios are shares of ``flops`` in pointwise and in depthwise convolutions.
    """

    precision: Literal["fp32", "fp16", "int8"]
    total: PartCost
    nodes: tuple[NodeCost, ...] = ()
    loadables: tuple[PartCost, ...] = ()
    islands: tuple[PartCost, ...] = ()
    pointwise_ratio: Ratio | None = None
    depthwise_ratio: Ratio | None = None


class Disagreement(Record):
    """A node whose placement differs from the prediction, and the TensorRT layers that show it."""

    index: NonNegativeInt
    name: str
    op: str
    predicted: NodePlacement
    found: Literal["dla", "gpu"]
    layers: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()


class EvidenceCheck(Record):
    """A prediction compared with evidence.

    Attributes:
        compared: Nodes that both the prediction and the evidence place.
        answered: Nodes that the rules leave unknown and the evidence places.
        differences: Nodes whose placement differs, including those left unknown.
    """

    kind: Literal["builder", "engine"]
    source: str
    problem: str | None = None
    remedy: str | None = None
    compared: NonNegativeInt = 0
    agreed: NonNegativeInt = 0
    answered: NonNegativeInt = 0
    loadables: NonNegativeInt | None = None
    differences: tuple[Disagreement, ...] = ()

    @property
    def is_refuted(self) -> bool:
        """Whether a node is on the GPU that was not predicted there."""
        return any(difference.found == "gpu" for difference in self.differences)


class Inspection(Record):
    """The result for one model by the rules of one release of TensorRT.

    Attributes:
        allows_fp16: Whether the builder may compute a layer in FP16 of its own accord: false for a
            strict INT8 build, and for INT8 by the model's own types.
        assumed_shapes: Shapes of open inputs, from the size of images in the file's metadata.
        remedy: The options that fix the inputs which are still open: the DLA has no open dimension.
    """

    schema_version: Literal[2] = SCHEMA_VERSION
    model: str
    device: str = "dla"
    tensorrt: str
    tensorrt_reason: str
    precision: Literal["fp16", "int8"]
    allows_fp16: bool = True
    verdict: InspectVerdict
    is_ready: bool
    loadable_limit: PositiveInt
    nodes: tuple[JudgedNode, ...]
    loadables: tuple[Part, ...] = ()
    islands: tuple[Part, ...] = ()
    types: tuple[TypeReadiness, ...] = ()
    alignment: tuple[AlignmentHint, ...] = ()
    convolutions: ConvolutionShare = ConvolutionShare()
    costs: Costs | None = None
    checks: tuple[EvidenceCheck, ...] = ()
    notes: tuple[str, ...] = ()
    assumed_shapes: dict[str, tuple[PositiveInt, ...]] = {}
    remedy: str | None = None

    @property
    def cost_by_node(self) -> dict[int, NodeCost]:
        """Figures by index of the node; empty if the model was not counted."""
        if self.costs is None:
            return {}
        return {cost.index: cost for cost in self.costs.nodes}


Value = bool | int | float | str
Precision = Literal["fp16", "int8"]
# Name of a measure to its values; None if the model does not determine them. A measure that a kind
# of layer does not have is absent.
Measures = dict[str, tuple[Value, ...] | None]

# Bytes of an element at a precision.
ELEMENT_BYTES: Mapping[Precision, int] = {"fp16": 2, "int8": 1}

# The release of JetPack 6.1 and 6.2, which most boards with a DLA run.
_USUAL = "10.3"
_ANY_LAYER = "*"
# The DLA counts all dimensions before the last three as batch.
_IMAGE_DIMENSIONS = 3


class _Ranged(Record):
    """Valid for some releases of TensorRT: from ``since`` on, up to before ``until``."""

    since: str | None = None
    until: str | None = None

    def holds_for(self, version: tuple[int, ...]) -> bool:
        after = self.since is None or version >= version_numbers(self.since)
        return after and (self.until is None or version < version_numbers(self.until))


class ReleaseLine(_Ranged):
    """Releases of TensorRT with the same rules; a strongly typed one keeps the model's types."""

    name: str
    jetpack: str
    is_strongly_typed: bool = False


class Supported(_Ranged):
    """Kinds of layer that the DLA has, and NVIDIA's page with the list."""

    layers: tuple[str, ...]
    page: str


class Rule(_Ranged):
    """One condition on one measure of a layer; ``rules.toml`` describes the fields."""

    id: str
    layers: tuple[str, ...]
    measure: str
    within: tuple[float, float] | None = None
    outside: tuple[float, float] | None = None
    one_of: tuple[Value, ...] | None = None
    none_of: tuple[Value, ...] | None = None
    pairs: tuple[tuple[int, int], ...] = ()
    when: dict[str, Value] = {}
    precisions: tuple[Precision, ...] = ()
    outcome: Literal["gpu", "unknown"] = "gpu"
    requirement: str
    hint: str | None = None
    page: str
    certainty: Certainty = "documented"

    def applies_to(self, layer: str, measures: Measures, precision: Precision) -> bool:
        """Whether the rule concerns a layer of this kind with these measures."""
        return (
            self.measure in measures
            and not {layer, _ANY_LAYER}.isdisjoint(self.layers)
            and (not self.precisions or precision in self.precisions)
            and all(measures.get(name) == (value,) for name, value in self.when.items())
        )

    def accepts(self, values: tuple[Value, ...]) -> bool:
        """Whether the values of its measure satisfy the rule."""
        return values in self.pairs or all(map(self._accepts, values))

    def _accepts(self, value: Value) -> bool:
        if self.one_of is not None:
            return value in self.one_of
        if self.none_of is not None:
            return value not in self.none_of
        if isinstance(value, str):
            return False
        if self.within is not None:
            return self.within[0] <= value <= self.within[1]
        return self.outside is None or not self.outside[0] <= value <= self.outside[1]


class Operator(Record):
    """The TensorRT layer of an ONNX operator; see ``operators.toml``."""

    layer: str | None = None
    operation: str | None = None
    hint: str | None = None


class RuleFile(Record):
    """The contents of ``rules.toml``: titles of pages, releases from the oldest on, and rules."""

    pages: dict[str, str]
    lines: tuple[ReleaseLine, ...] = Field(alias="line")
    limits: dict[str, PositiveInt]
    types: dict[Literal["weak", "strong"], dict[str, str]]
    supported: tuple[Supported, ...]
    rules: tuple[Rule, ...] = Field(alias="rule")


@dataclass(frozen=True)
class RuleSet:
    """The rules of one line of TensorRT, the kinds of layer that the DLA has, and texts."""

    line: ReleaseLine
    types: Mapping[str, str]
    rules: tuple[Rule, ...]
    supported: frozenset[str]
    pages: Mapping[str, str]
    loadable_limit: int


def line_of(version: str) -> ReleaseLine | None:
    """Return the line of a release or of its own name; None if that release has no DLA.

    >>> line_of("10.7.0").name, line_of("11.4").name, line_of("10.13"), line_of("11.4.0")
    ('10.3', '11.4', None, None)
    """
    lines = rule_file().lines
    for line in lines:
        if line.name == version:
            return line
    numbers = version_numbers(version)
    for line in lines:
        if numbers and line.holds_for(numbers):
            return line
    return None


@cache
def rules_of(name: str) -> RuleSet:
    """Return the rules of a release or a line; raise ``UsageError`` if it has no DLA."""
    line, file = line_of(name), rule_file()
    if line is None:
        known = ", ".join(known_line.name for known_line in file.lines)
        raise UsageError(f"there is no TensorRT {name} with a DLA", f"name one of {known}")
    version = version_numbers(line.since or line.name)
    supported: set[str] = set()
    for group in file.supported:
        if group.holds_for(version):
            supported.update(group.layers)
    return RuleSet(
        line=line,
        types=file.types["strong" if line.is_strongly_typed else "weak"],
        rules=tuple(rule for rule in file.rules if rule.holds_for(version)),
        supported=frozenset(supported),
        pages=file.pages,
        loadable_limit=file.limits["loadables"],
    )


def choose_rules(asked: str | None, installed: str | None = None) -> tuple[RuleSet, str]:
    """Return the rules to judge by, and the reason for the choice.

    By default ``installed`` is the machine's TensorRT. If the release asked for has no DLA,
    ``UsageError`` is raised.
    """
    if asked is not None:
        return rules_of(asked), "asked for"
    installed = installed or tensorrt_version()
    if installed is not None and line_of(installed) is not None:
        return rules_of(installed), f"TensorRT {installed} is installed here"
    why = "TensorRT is not installed here"
    if installed is not None:
        why = f"TensorRT {installed}, which is installed here, has no DLA"
    rules = rules_of(_USUAL)
    return rules, f"{why}; {rules.line.jetpack} have this one, --tensorrt names another"


@cache
def operators() -> Mapping[str, Operator]:
    """Return the layer of each known operator."""
    tables = _toml("operators.toml")
    return {name: Operator.model_validate(table) for name, table in tables.items()}


@cache
def rule_file() -> RuleFile:
    """Return every rule of all releases."""
    return RuleFile.model_validate(_toml("rules.toml"))


def _toml(name: str) -> dict[str, Any]:
    data: dict[str, Any] = msgspec.toml.decode(Path(__file__).with_name(name).read_bytes())
    return data


def batch_of(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the dimensions that are batch; the first one if the tensor is not an image.

    >>> batch_of((2, 3, 16, 32, 32)), batch_of((2, 10)), batch_of((10,))
    ((2, 3), (2,), ())
    """
    if len(shape) > _IMAGE_DIMENSIONS:
        return shape[:-_IMAGE_DIMENSIONS]
    return shape[:1] if len(shape) > 1 else ()


def shape_option(name: str, lengths: Sequence[int | str]) -> str:
    """Return the option of the command line that gives an input a shape.

    >>> shape_option("images", (1, 3, 320, 320))
    '--shape images:1x3x320x320'
    """
    return f"--shape {name}:{'x'.join(map(str, lengths))}"


def lengths_in_words(tensor: Tensor) -> list[str]:
    """Return the length of each dimension; an open one has its name, or ``?`` without one."""
    words = []
    for length in tensor.shape or ():
        words.append("?" if length is None else str(length))
    return words
