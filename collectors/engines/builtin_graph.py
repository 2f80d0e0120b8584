"""What the built-in models are made with: a graph that grows by a layer a call."""

import math
from typing import Any

import numpy
import onnx
from onnx import helper, numpy_helper

_CLASSES = 1000


class Graph:
    """Collects nodes and weights; every method adds to the graph and returns its output's name.

    Weights are uniform and scaled by He's rule, so that activations keep their size through the
    depth and fit half precision. Only operations that every IEEE 754 machine rounds alike go into
    them: the file is the same, to the bit, on a workstation and on a Jetson. Weights in half
    precision are those in single precision, rounded.
    """

    def __init__(self, seed: int, dtype: str = "<f4") -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self._dtype = dtype
        self._random = numpy.random.RandomState(seed)  # its stream is frozen for good

    def _uniform(self, name: str, shape: tuple[int, ...], bound: float) -> str:
        drawn = (self._random.random_sample(shape) * 2.0 - 1.0) * bound
        rounded = drawn.astype("<f4").astype(self._dtype)
        self.weights.append(numpy_helper.from_array(rounded, name))
        return name

    def _scaled(self, name: str, shape: tuple[int, ...], gain: float) -> list[str]:
        """Add a weight with outputs in its first dimension, and a small bias."""
        fan_in = math.prod(shape[1:])
        return [
            self._uniform(f"{name}.weight", shape, gain * math.sqrt(3.0 / fan_in)),
            self._uniform(f"{name}.bias", shape[:1], 0.05),
        ]

    def add(self, operation: str, name: str, inputs: list[str], **attributes: Any) -> str:
        """Add any node; its output bears its name."""
        self.nodes.append(helper.make_node(operation, inputs, [name], name=name, **attributes))
        return name

    def divide(self, operation: str, name: str, inputs: list[str], **attributes: Any) -> list[str]:
        """Add a node with as many outputs as ``parts`` says; they bear its name and a number."""
        outputs = [f"{name}.{part}" for part in range(attributes.pop("parts"))]
        self.nodes.append(helper.make_node(operation, inputs, outputs, name=name, **attributes))
        return outputs

    def constant(self, name: str, value: Any) -> str:
        """Add a number, or an array of them, in the type of the weights."""
        self.weights.append(numpy_helper.from_array(numpy.array(value, dtype=self._dtype), name))
        return name

    def index(self, name: str, value: int) -> str:
        """Add a whole number, as a place along an axis."""
        self.weights.append(numpy_helper.from_array(numpy.array(value, dtype="<i8"), name))
        return name

    def integers(self, name: str, *values: int) -> str:
        """Add a vector of whole numbers: a shape, the sizes of a split."""
        self.weights.append(numpy_helper.from_array(numpy.array(values, dtype="<i8"), name))
        return name

    def matrix(self, name: str, channels_in: int, channels_out: int) -> str:
        """Add the weights of a multiplication of matrices, inputs in the first dimension."""
        bound = math.sqrt(3.0 / channels_in)
        return self._uniform(name, (channels_in, channels_out), bound)

    def offsets(self, name: str, *shape: int) -> str:
        """Add small weights: biases, positions."""
        return self._uniform(name, shape, 0.05)

    def convolution(
        self,
        name: str,
        source: str,
        shape: tuple[int, int, int],
        *,
        stride: int = 1,
        padding: int | None = None,
        depthwise: bool = False,
        gain: float = math.sqrt(2.0),
    ) -> str:
        """Add a convolution with its batch normalisation folded in.

        Args:
            name: Of the node.
            source: Its input.
            shape: Channels in, channels out, and the side of the kernel.
            stride: Both ways.
            padding: On each side; as much as keeps the size where it is not given.
            depthwise: One filter a channel.
            gain: Size of its output against its input; √2 where a rectifier follows.
        """
        channels_in, channels_out, side = shape
        groups = channels_in if depthwise else 1
        weight = (channels_out, channels_in // groups, side, side)
        return self.add(
            "Conv",
            name,
            [source, *self._scaled(name, weight, gain)],
            kernel_shape=[side, side],
            strides=[stride, stride],
            pads=[side // 2 if padding is None else padding] * 4,
            group=groups,
        )

    def classifier(self, source: str, channels: int) -> None:
        """Add the pooled, fully connected end that gives ``scores``."""
        pooled = self.add("GlobalAveragePool", "pool", [source])
        flat = self.add("Flatten", "flatten", [pooled], axis=1)
        self.scores("classifier", flat, channels)

    def scores(self, name: str, source: str, channels: int) -> None:
        """Add the fully connected layer that gives ``scores``, of an image in a row."""
        weights = self._scaled(name, (_CLASSES, channels), 1.0)
        self.nodes.append(
            helper.make_node("Gemm", [source, *weights], ["scores"], name=name, transB=1)
        )
