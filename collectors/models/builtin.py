"""Generate the built-in models: the layers of ResNet-50 and MobileNetV2 with seeded weights.

They cost what the published networks cost, layer by layer, and recognise nothing. ``python -m
tegrascope.collectors.models.builtin NAME DIRECTORY`` prints the path of the file.

Source:
    He et al., "Deep Residual Learning for Image Recognition", 2015, with the stride where
    torchvision has it; Sandler et al., "MobileNetV2", 2018, table 2.
"""

import argparse
import fcntl
import math
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..files import open_regular, write_atomic
from ..paths import is_file
from . import onnx_writer
from .files import BUILTIN_MODELS, GENERATOR_VERSION, MISSING_PACKAGE, SEED, builtin_path

try:
    import numpy
except ModuleNotFoundError as error:
    if __name__ != "__main__":
        raise
    print(f"{error.name} is not installed", file=sys.stderr)
    sys.exit(MISSING_PACKAGE)

# The oldest pair that has everything needed, and that TensorRT 8.6 and ONNX Runtime 1.17 read.
_OPSET, _IR_VERSION = 13, 8
CLASSES = 1000


class GraphBuilder:
    """Collects nodes and weights; every method adds to the graph and returns its output's name.

    Weights are uniform and scaled by He's rule, so that activations keep their size through the
    depth and fit half precision. Only operations that every IEEE 754 machine rounds alike go into
    them: the file is the same, to the bit, on a workstation and on a Jetson. Weights in half
    precision are those in single precision, rounded.
    """

    def __init__(self, seed: int, dtype: str = "<f4") -> None:
        self._nodes: list[onnx_writer.Pieces] = []
        self._weights: list[onnx_writer.Pieces] = []
        self._dtype = dtype
        self._random = numpy.random.RandomState(seed)  # its stream never changes

    def uniform(self, name: str, shape: tuple[int, ...], bound: float) -> str:
        """Add a weight drawn between ``-bound`` and ``bound``."""
        drawn = (self._random.random_sample(shape) * 2.0 - 1.0) * bound
        return self.constant(name, drawn.astype("<f4"))

    def constant(self, name: str, value: Any, dtype: str | None = None) -> str:
        """Add a number, or an array of numbers, in the type of the weights or in another one."""
        array = numpy.array(value).astype(dtype or self._dtype)
        self._weights.append(onnx_writer.tensor(name, array))
        return name

    def weight_and_bias(self, name: str, shape: tuple[int, ...], gain: float) -> list[str]:
        """Add a weight with the outputs in its first dimension, and a small bias."""
        bound = gain * math.sqrt(3.0 / math.prod(shape[1:]))
        return [
            self.uniform(f"{name}.weight", shape, bound),
            self.uniform(f"{name}.bias", shape[:1], 0.05),
        ]

    def add(
        self, operation: str, name: str, inputs: list[str], **attributes: onnx_writer.Attribute
    ) -> str:
        """Add any node with one output, which has the node's name."""
        self.add_node(operation, name, inputs, [name], **attributes)
        return name

    def add_node(
        self,
        operation: str,
        name: str,
        inputs: list[str],
        outputs: list[str],
        **attributes: onnx_writer.Attribute,
    ) -> None:
        """Add any node."""
        self._nodes.append(onnx_writer.node(operation, inputs, outputs, name, attributes))

    def convolution(
        self,
        name: str,
        source: str,
        shape: tuple[int, int, int],
        *,
        stride: int = 1,
        depthwise: bool = False,
        gain: float = math.sqrt(2.0),
    ) -> str:
        """Add a convolution with its batch normalisation folded in, padded to keep the size.

        Args:
            shape: Channels in, channels out, and the side of the kernel.
            gain: Size of its output relative to its input; √2 before a rectifier.
        """
        channels_in, channels_out, side = shape
        groups = channels_in if depthwise else 1
        weight = (channels_out, channels_in // groups, side, side)
        return self.add(
            "Conv",
            name,
            [source, *self.weight_and_bias(name, weight, gain)],
            kernel_shape=[side, side],
            strides=[stride, stride],
            pads=[side // 2] * 4,
            group=groups,
        )

    def classifier(self, source: str, channels: int) -> None:
        """Add the pooled, fully connected end that returns ``scores``."""
        pooled = self.add("GlobalAveragePool", "pool", [source])
        self.scores("classifier", self.add("Flatten", "flatten", [pooled], axis=1), channels)

    def scores(self, name: str, source: str, channels: int) -> None:
        """Add the fully connected layer that returns ``scores``."""
        weights = self.weight_and_bias(name, (CLASSES, channels), 1.0)
        self.add_node("Gemm", name, [source, *weights], ["scores"], transB=1)

    def model(
        self,
        name: str,
        image_sides: tuple[int | str, int | str],
        output: str,
        output_shape: tuple[int, ...],
        *,
        opset: int = _OPSET,
    ) -> bytes:
        """Return the file of a model with a dynamic batch, from ``image`` to one output.

        Args:
            output_shape: Without the batch.
        """
        image = onnx_writer.value_info("image", self._dtype, ["batch", 3, *image_sides])
        result = onnx_writer.value_info(output, self._dtype, ["batch", *output_shape])
        return onnx_writer.model(
            onnx_writer.graph(name, self._nodes, self._weights, [image], [result]),
            ir_version=_IR_VERSION,
            opset=opset,
            producer=("tegrascope", str(GENERATOR_VERSION)),
        )


def _add_resnet50(graph: GraphBuilder) -> None:
    """Add bottlenecks of 3, 4, 6 and 3, with the stride in the 3x3 convolution."""

    def convolve(name: str, source: str, shape: tuple[int, int, int], stride: int = 1) -> str:
        convolved = graph.convolution(name, source, shape, stride=stride)
        return graph.add("Relu", f"{name}.relu", [convolved])

    last = convolve("stem", "image", (3, 64, 7), 2)
    last = graph.add(
        "MaxPool", "stem.pool", [last], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]
    )
    channels = 64
    for stage, blocks in enumerate((3, 4, 6, 3)):
        width = 64 << stage
        for block in range(blocks):
            at = f"stage{stage + 1}.block{block + 1}"
            stride = 1
            if stage > 0 and block == 0:
                stride = 2
            branch = convolve(f"{at}.reduce", last, (channels, width, 1))
            branch = convolve(f"{at}.spatial", branch, (width, width, 3), stride)
            branch = graph.convolution(f"{at}.expand", branch, (width, 4 * width, 1), gain=0.5)
            if block == 0:
                shape = (channels, 4 * width, 1)
                last = graph.convolution(f"{at}.shortcut", last, shape, stride=stride, gain=1.0)
            last = graph.add("Add", f"{at}.add", [branch, last])
            last = graph.add("Relu", f"{at}.relu", [last])
            channels = 4 * width
    graph.classifier(last, channels)


# MobileNetV2: expansion, channels out, blocks, stride of the first block.
_FULL_WIDTH = (
    *((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2)),
    *((6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)),
)
# Half as wide, in multiples of 8 as published.
_HALF_WIDTH = tuple(
    (expansion, max(8, -(-channels // 16) * 8), blocks, stride)
    for expansion, channels, blocks, stride in _FULL_WIDTH
)


def _add_mobilenet(graph: GraphBuilder, stages: tuple[tuple[int, int, int, int], ...]) -> None:
    """Add inverted residuals around depthwise convolutions."""
    limits = [graph.constant("zero", 0.0), graph.constant("six", 6.0)]

    def convolve(
        name: str, source: str, shape: tuple[int, int, int], stride: int = 1, *, deep: bool = False
    ) -> str:
        convolved = graph.convolution(name, source, shape, stride=stride, depthwise=deep)
        return graph.add("Clip", f"{name}.relu6", [convolved, *limits])

    channels = 2 * stages[0][1]
    last = convolve("stem", "image", (3, channels, 3), 2)
    for stage, (expansion, channels_out, blocks, first_stride) in enumerate(stages, start=1):
        for block in range(blocks):
            at = f"stage{stage}.block{block + 1}"
            stride = first_stride if block == 0 else 1
            width = channels * expansion
            branch = last
            if expansion > 1:
                branch = convolve(f"{at}.expand", branch, (channels, width, 1))
            branch = convolve(f"{at}.spatial", branch, (width, width, 3), stride, deep=True)
            joins = stride == 1 and channels == channels_out
            gain = 0.5 if joins else 1.0
            branch = graph.convolution(f"{at}.project", branch, (width, channels_out, 1), gain=gain)
            if joins:
                branch = graph.add("Add", f"{at}.add", [branch, last])
            last, channels = branch, channels_out
    last = convolve("head", last, (channels, 1280, 1))
    graph.classifier(last, 1280)


# Side of the image, layers, and type of the weights.
_MODELS: Mapping[str, tuple[int, Callable[[GraphBuilder], None], str]] = {
    "mobilenet": (160, lambda graph: _add_mobilenet(graph, _HALF_WIDTH), "<f4"),
    "mobilenetv2": (224, lambda graph: _add_mobilenet(graph, _FULL_WIDTH), "<f4"),
    "resnet50": (224, _add_resnet50, "<f4"),
    # A strongly typed TensorRT and a DLA want every tensor in half precision.
    "resnet50-fp16": (224, _add_resnet50, "<f2"),
}


def make_model(name: str, seed: int = SEED) -> bytes:
    """Return the file of a built-in model."""
    side, add_layers, dtype = _MODELS[name]
    graph = GraphBuilder(seed, dtype)
    add_layers(graph)
    return graph.model(name, (side, side), "scores", (CLASSES,))


def ensure_model(name: str, directory: Path, seed: int = SEED) -> Path:
    """Return the cached file of a built-in model; generate it if it is missing.

    A concurrent caller waits for the first. An incomplete file is never visible. One seed gives
    one file on every machine.
    """
    path = builtin_path(name, directory, seed)
    directory.mkdir(parents=True, exist_ok=True)
    # Another user may make links in the directory: none of them is followed.
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
    with os.fdopen(open_regular(path.with_suffix(".lock"), flags), "rb+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not is_file(path):
            write_atomic(path, make_model(name, seed))
    return path


def main(argv: list[str] | None = None) -> int:
    """Generate a built-in model and print the path of its file."""
    parser = argparse.ArgumentParser(
        description=main.__doc__,
        epilog="Example: python -m tegrascope.collectors.models.builtin resnet50 .",
    )
    parser.add_argument("name", choices=BUILTIN_MODELS)
    parser.add_argument("directory", type=Path)
    args = parser.parse_args(argv)
    try:
        path = ensure_model(args.name, args.directory)
    except OSError as error:
        print(error, file=sys.stderr)
        return 1
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
