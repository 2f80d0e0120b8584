"""Records of an inspection: placement of each node, the rules behind it, costs, checks."""

from typing import Literal

from pydantic import NonNegativeFloat, NonNegativeInt, PositiveInt

from ...parsers.records import Ratio, Record

# Raised whenever a key changes its meaning or is removed; new keys may come at any time.
SCHEMA_VERSION: Literal[2] = 2

# ``dla``: no known rule is broken. ``gpu``: a rule is broken. ``constant``: computed once, while
# the engine is built. ``folded``: not a layer of its own; it merges into its neighbour or only
# changes names. ``unknown``: NVIDIA's pages do not say, or the model does not.
NodePlacement = Literal["dla", "gpu", "constant", "folded", "unknown"]
# ``documented`` on a page of NVIDIA's; ``observed`` in public build logs; ``inferred`` by us.
Certainty = Literal["documented", "observed", "inferred"]
InspectVerdict = Literal["dla", "mixed", "gpu", "unknown"]
TypeVerdict = Literal["ready", "flag", "calibration", "convert"]


class RuleFinding(Record):
    """A rule that a node breaks, or that cannot be evaluated for it.

    Attributes:
        page: Title of NVIDIA's page with the rule.
        is_open: True if the rule could not be evaluated; otherwise it is broken.
    """

    rule: str
    requirement: str
    found: str
    hint: str | None = None
    page: str
    certainty: Certainty = "documented"
    is_open: bool = False


class JudgedNode(Record):
    """A node and its placement.

    Attributes:
        op: Operator, with its domain unless that is ONNX's own.
        layer: Kind of TensorRT layer, for example ``convolution``; None if unknown.
        loadable: Number of its DLA subgraph, from 0; None off the DLA.
        island: Number of its GPU part, from 0; None off the GPU.
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
    """Requirements of a model's types at one precision.

    Attributes:
        verdict: ``ready``: as it is; ``flag``: a flag of the builder converts it;
            ``calibration``: it needs scales; ``convert``: the file has to be exported again.
    """

    precision: Literal["fp16", "int8"]
    verdict: TypeVerdict
    message: str


class AlignmentHint(Record):
    """A convolution whose channels leave part of the hardware idle.

    Attributes:
        multiple: The hardware's pack size, of which the count should be a multiple.
        unit: The DLA's memory format or the GPU's tensor cores.
        waste_ratio: Share of the padded channels that is empty.
    """

    index: NonNegativeInt
    name: str
    channels: Literal["input", "output"]
    count: PositiveInt
    multiple: PositiveInt
    unit: Literal["dla", "tensor_core"]
    waste_ratio: Ratio


class ConvolutionShare(Record):
    """Convolutions by kind, transposed ones included; one may be of several kinds.

    Attributes:
        pointwise: With a kernel of 1 × 1 and one group.
        depthwise: With one group per input channel.
        grouped: With groups of more than one channel.
        dilated: With a dilation above 1.
    """

    total: NonNegativeInt = 0
    pointwise: NonNegativeInt = 0
    depthwise: NonNegativeInt = 0
    grouped: NonNegativeInt = 0
    dilated: NonNegativeInt = 0


class NodeCost(Record):
    """Work and bytes of a node per inference.

    Attributes:
        flops: Arithmetic operations; a multiply-add is two. None if a shape is open or the
            operator is not in the table.
        multiply_adds: Multiply-adds of convolutions and matrix products, included in ``flops``.
        input_bytes: Bytes read of inputs and of other nodes' outputs, each tensor once.
        moved_bytes: Sum of input, weight and output bytes.
        flops_per_byte: Arithmetic intensity; None if nothing moves or it is unknown.
    """

    index: NonNegativeInt
    flops: NonNegativeInt | None = None
    multiply_adds: NonNegativeInt | None = None
    input_bytes: NonNegativeInt | None = None
    weight_bytes: NonNegativeInt | None = None
    output_bytes: NonNegativeInt | None = None
    moved_bytes: NonNegativeInt | None = None
    flops_per_byte: NonNegativeFloat | None = None


class PartCost(Record):
    """Work and bytes per inference of a loadable, an island, or the whole model.

    Attributes:
        uncounted: Nodes without figures; with any, the sums are lower bounds.
        flops: Sum over its nodes; None if no node has a figure.
        moved_bytes: Sum over its nodes, as if each wrote its outputs to memory and the next read
            them again: the upper bound of the traffic.
        edge_bytes: Tensors that cross its edge, and its weights once: the lower bound. None if a
            tensor at the edge has no size.
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
    """Work and bytes of a model.

    Attributes:
        precision: Precision in which real numbers are counted; integers keep their own type.
        pointwise_ratio: Share of ``flops`` in convolutions of 1 × 1 and one group.
        depthwise_ratio: Share of ``flops`` in convolutions with one group per input channel.
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
        kind: ``builder``: TensorRT's answers before it builds; ``engine``: a built engine.
        compared: Nodes that both the prediction and the evidence place.
        agreed: How many of these have the predicted placement.
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
        return any(one.found == "gpu" for one in self.differences)


class Inspection(Record):
    """The result for one model.

    Attributes:
        tensorrt: The release line whose rules were used, for example ``8.6``.
        verdict: ``dla``: wholly on the DLA; ``mixed``: on both; ``gpu``: nothing on the DLA;
            ``unknown``: no rule is broken, but some could not be evaluated.
        alignment: Convolutions with uneven channels, most wasteful first.
    """

    schema_version: Literal[2] = SCHEMA_VERSION
    model: str
    device: str = "dla"
    tensorrt: str
    tensorrt_reason: str
    precision: Literal["fp16", "int8"]
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
