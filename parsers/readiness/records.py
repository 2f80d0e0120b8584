"""What an inspection finds: where each node would run, by which rule, and what would mend it."""

from typing import Literal

from pydantic import NonNegativeInt, PositiveInt

from ..records import Ratio, Record
from .cost_records import Costs

# Raised whenever a key changes its meaning or goes; new keys may come at any time.
SCHEMA_VERSION: Literal[1] = 1

# ``dla``: every rule that is known is kept. ``gpu``: a rule is broken. ``constant``: computed once,
# while the engine is built. ``folded``: no layer of its own; it goes into its neighbour, or is a
# change of names only. ``unknown``: NVIDIA's pages do not say, or the model does not.
NodePlacement = Literal["dla", "gpu", "constant", "folded", "unknown"]
# ``documented`` on a page of NVIDIA's; ``observed`` in public build logs; ``inferred`` by us.
Certainty = Literal["documented", "observed", "inferred"]
InspectVerdict = Literal["dla", "mixed", "gpu", "unknown"]
TypeVerdict = Literal["ready", "flag", "calibration", "convert"]


class Finding(Record):
    """A rule that a node breaks, or of which it cannot be told.

    Attributes:
        rule: Its identifier, ``convolution.kernel``.
        says: The rule in words.
        found: What the node has instead.
        hint: What is known to help; ``None`` where nothing is.
        page: Title of NVIDIA's page that the rule is from.
        certainty: How sure the rule is.
        is_open: Whether it could not be told; otherwise it is broken.
    """

    rule: str
    says: str
    found: str
    hint: str | None = None
    page: str
    certainty: Certainty = "documented"
    is_open: bool = False


class Judged(Record):
    """A node, and where it would run.

    Attributes:
        index: Of the node in the model.
        name: Of the node.
        op: Of the node, with its domain where it has one.
        layer: What TensorRT makes of it, ``convolution``; ``None`` where that is not known.
        placement: Where it would run.
        reason: Why it is constant or folded, in a few words.
        findings: Rules broken or open; empty on the DLA.
        loadable: Number of the DLA subgraph it is in, from 0; ``None`` off the DLA.
        island: Number of the GPU's part it is in, from 0; ``None`` off the GPU.
    """

    index: NonNegativeInt
    name: str
    op: str
    layer: str | None = None
    placement: NodePlacement
    reason: str | None = None
    findings: tuple[Finding, ...] = ()
    loadable: NonNegativeInt | None = None
    island: NonNegativeInt | None = None


class Part(Record):
    """Nodes that run together: a loadable of the DLA, or an island of the GPU.

    Attributes:
        number: From 0.
        first: Name of its first node in the order of the model.
        last: Name of its last.
        nodes: Their indices.
        inputs: Tensors that come from outside, weights left out.
        outputs: Tensors that leave it.
    """

    number: NonNegativeInt
    first: str
    last: str
    nodes: tuple[NonNegativeInt, ...]
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()


class TypeReadiness(Record):
    """What the model's types ask for at one precision.

    Attributes:
        precision: ``fp16`` or ``int8``.
        verdict: ``ready`` as it is; ``flag``: the builder makes it so, by a flag; ``calibration``:
            scales have to be given; ``convert``: the file has to be made anew.
        words: Why, and what to do.
    """

    precision: Literal["fp16", "int8"]
    verdict: TypeVerdict
    words: str


class AlignmentHint(Record):
    """A convolution whose channels leave part of the hardware idle.

    Attributes:
        index: Of the node.
        name: Of the node.
        channels: Which are uneven: ``input`` or ``output``.
        count: How many there are, of a group.
        multiple: Of what they should be a multiple.
        unit: Whose: the DLA's memory format, or the GPU's tensor cores.
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
    """Convolutions by kind.

    Attributes:
        total: All of them, transposed ones too.
        pointwise: With a kernel of 1 × 1 and one group.
        depthwise: With a group for each input channel.
        grouped: With groups of more than one channel.
        dilated: With a dilation above 1.
    """

    total: NonNegativeInt = 0
    pointwise: NonNegativeInt = 0
    depthwise: NonNegativeInt = 0
    grouped: NonNegativeInt = 0
    dilated: NonNegativeInt = 0


class Disagreement(Record):
    """A node of which something else was found than is predicted.

    Attributes:
        index: Of the node in the model.
        name: Of the node.
        op: Of the node.
        predicted: Where the rules place it; of what they cannot tell, ``unknown``.
        found: Where it is.
        layers: Names that say so, as TensorRT prints them.
        rules: Rules that it breaks, or that could not be told.
    """

    index: NonNegativeInt
    name: str
    op: str
    predicted: NodePlacement
    found: Literal["dla", "gpu"]
    layers: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()


class Check(Record):
    """A prediction held against evidence.

    Attributes:
        kind: ``builder``: what TensorRT answers before it builds; ``engine``: what it built.
        source: What was asked or looked at, in words.
        problem: Why there is nothing to hold it against; ``None`` where there is.
        mend: What to do about that.
        compared: Nodes of which both say something.
        agreed: Of these, how many are as predicted.
        answered: Nodes that the rules leave unknown and the evidence tells.
        loadables: How many the engine has; ``None`` where that is not told.
        differences: Nodes that are not as predicted, those left unknown too.
    """

    kind: Literal["builder", "engine"]
    source: str
    problem: str | None = None
    mend: str | None = None
    compared: NonNegativeInt = 0
    agreed: NonNegativeInt = 0
    answered: NonNegativeInt = 0
    loadables: NonNegativeInt | None = None
    differences: tuple[Disagreement, ...] = ()


class Inspection(Record):
    """What was found of one model.

    Attributes:
        schema_version: Of this record.
        model: The file as given.
        device: What it was judged for.
        tensorrt: The line whose rules were used, ``8.6``.
        tensorrt_reason: Why this one.
        precision: It was judged at.
        verdict: ``dla``: wholly on the DLA; ``mixed``: on both; ``gpu``: nothing on the DLA;
            ``unknown``: no rule is broken, but not all could be told.
        is_ready: Whether it would run wholly on the DLA as it is.
        loadable_limit: How many loadables a core takes at once.
        nodes: One for each node of the model, in its order.
        loadables: Predicted subgraphs of the DLA.
        islands: What runs on the GPU between them.
        types: What the types of the model ask for, at each precision.
        alignment: Convolutions with uneven channels, most wasteful first.
        convolutions: By kind.
        costs: Work and bytes of one inference, by node and by part.
        checks: What it was held against, where that was asked for.
        notes: What else a person should know, a line each.
    """

    schema_version: Literal[1] = SCHEMA_VERSION
    model: str
    device: str = "dla"
    tensorrt: str
    tensorrt_reason: str
    precision: Literal["fp16", "int8"]
    verdict: InspectVerdict
    is_ready: bool
    loadable_limit: PositiveInt
    nodes: tuple[Judged, ...]
    loadables: tuple[Part, ...] = ()
    islands: tuple[Part, ...] = ()
    types: tuple[TypeReadiness, ...] = ()
    alignment: tuple[AlignmentHint, ...] = ()
    convolutions: ConvolutionShare = ConvolutionShare()
    costs: Costs | None = None
    checks: tuple[Check, ...] = ()
    notes: tuple[str, ...] = ()
