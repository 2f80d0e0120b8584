"""What a model costs: work and bytes, by node, by part and in all."""

from typing import Literal

from pydantic import NonNegativeFloat, NonNegativeInt

from ..records import Ratio, Record


class NodeCost(Record):
    """What one inference makes a node do.

    Attributes:
        index: Of the node in the model.
        flops: Operations on numbers; a multiplication with its addition is two. ``None`` where a
            shape is open, or nobody has counted for its operator.
        multiply_adds: Of ``flops``, the pairs that make a convolution or a product of matrices;
            0 where there are none.
        input_bytes: What it reads of the inputs and of other nodes, each tensor once.
        weight_bytes: What it reads of constants.
        output_bytes: What it writes.
        moved_bytes: The three together.
        flops_per_byte: Arithmetic intensity; ``None`` where nothing is moved or it is not known.
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
    """What one inference makes a part of the model do: a loadable, an island, or all of it.

    Attributes:
        nodes: How many it has that run at each inference.
        uncounted: Of these, how many have no figure of their own; sums are then a lower bound.
        flops: Sum over its nodes; ``None`` where no node has a figure.
        multiply_adds: The same.
        moved_bytes: Sum over its nodes, as if each wrote its outputs to memory and the next read
            them again: the most that may be moved.
        edge_bytes: What crosses its edge, and its weights once: the least that must be moved.
            ``None`` where a tensor at the edge has no size.
        flops_per_byte: ``flops`` by ``moved_bytes``.
        flops_ratio: Its share of the model's ``flops``.
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
    """What a model costs.

    Attributes:
        precision: In which real numbers are counted; whole numbers keep their own type.
        total: Of all nodes that are not constant.
        nodes: One for each node of the model, in its order.
        loadables: One for each predicted loadable, in their order.
        islands: One for each part of the GPU, in their order.
        pointwise_ratio: Share of the model's ``flops`` in convolutions of 1 × 1 and one group.
        depthwise_ratio: Share in convolutions with a group for each input channel.
    """

    precision: Literal["fp32", "fp16", "int8"]
    total: PartCost
    nodes: tuple[NodeCost, ...] = ()
    loadables: tuple[PartCost, ...] = ()
    islands: tuple[PartCost, ...] = ()
    pointwise_ratio: Ratio | None = None
    depthwise_ratio: Ratio | None = None
