"""The built-in models: well-known shapes with seeded weights. Nothing is downloaded.

They cost what the real ones cost, layer by layer, and recognise nothing. ``python -m
tegrascope.collectors.engines.builtin_models NAME DIRECTORY`` prints the path of the file.
"""

import argparse
import fcntl
import math
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

from ..models import BUILTIN_MODELS, GENERATOR_VERSION, SEED, builtin_path

# The oldest pair that has everything needed, and that TensorRT 8.6 and ONNX Runtime 1.17 read.
_OPSET = 13
_IR_VERSION = 8
_CLASSES = 1000


class _Graph:
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

    def constant(self, name: str, value: float) -> str:
        """Add a number."""
        self.weights.append(numpy_helper.from_array(numpy.array(value, dtype=self._dtype), name))
        return name

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
        """Add a convolution with its batch normalisation folded in.

        Args:
            name: Of the node.
            source: Its input.
            shape: Channels in, channels out, and the side of the kernel.
            stride: Both ways.
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
            pads=[side // 2] * 4,
            group=groups,
        )

    def classifier(self, source: str, channels: int) -> None:
        """Add the pooled, fully connected end that gives ``scores``."""
        pooled = self.add("GlobalAveragePool", "pool", [source])
        flat = self.add("Flatten", "flatten", [pooled], axis=1)
        weights = self._scaled("classifier", (_CLASSES, channels), 1.0)
        self.nodes.append(
            helper.make_node("Gemm", [flat, *weights], ["scores"], name="classifier", transB=1)
        )


def _resnet50(graph: _Graph) -> None:
    """Add ResNet-50: bottlenecks of 3, 4, 6 and 3, the stride in the 3x3 convolution."""

    def convolve(name: str, source: str, shape: tuple[int, int, int], stride: int = 1) -> str:
        found = graph.convolution(name, source, shape, stride=stride)
        return graph.add("Relu", f"{name}.relu", [found])

    last = convolve("stem", "image", (3, 64, 7), 2)
    last = graph.add(
        "MaxPool", "stem.pool", [last], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]
    )
    channels = 64
    for stage, blocks in enumerate((3, 4, 6, 3)):
        width = 64 << stage
        for block in range(blocks):
            at = f"stage{stage + 1}.block{block + 1}"
            stride = 2 if stage > 0 and block == 0 else 1
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


def _mobilenet(graph: _Graph) -> None:
    """Add MobileNetV2 at half width: inverted residuals round depthwise convolutions."""
    limits = [graph.constant("zero", 0.0), graph.constant("six", 6.0)]

    def convolve(
        name: str, source: str, shape: tuple[int, int, int], stride: int = 1, *, deep: bool = False
    ) -> str:
        found = graph.convolution(name, source, shape, stride=stride, depthwise=deep)
        return graph.add("Clip", f"{name}.relu6", [found, *limits])

    last = convolve("stem", "image", (3, 16, 3), 2)
    channels = 16
    stages = (
        # expansion, channels out, blocks, stride of the first
        (1, 8, 1, 1),
        (6, 16, 2, 2),
        (6, 16, 3, 2),
        (6, 32, 4, 2),
        (6, 48, 3, 1),
        (6, 80, 3, 2),
        (6, 160, 1, 1),
    )
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
            last = graph.add("Add", f"{at}.add", [branch, last]) if joins else branch
            channels = channels_out
    last = convolve("head", last, (channels, 1280, 1))
    graph.classifier(last, 1280)


# Name to the side of the square image, the type of every tensor, and what adds the layers. In half
# precision a model is what a strongly typed TensorRT and a DLA ask for.
_SHAPES: Mapping[str, tuple[int, str, Callable[[_Graph], None]]] = MappingProxyType(
    {
        "mobilenet": (160, "<f4", _mobilenet),
        "resnet50": (224, "<f4", _resnet50),
        "resnet50-fp16": (224, "<f2", _resnet50),
    }
)
_TYPES: Mapping[str, int] = MappingProxyType({"<f2": TensorProto.FLOAT16, "<f4": TensorProto.FLOAT})


def make_model(name: str, seed: int = SEED) -> onnx.ModelProto:
    """Return a built-in model with a dynamic batch, from ``image`` to ``scores``.

    Args:
        name: One of ``BUILTIN_MODELS``.
        seed: Of the weights; one seed gives one file, wherever it is made.
    """
    side, dtype, add_layers = _SHAPES[name]
    graph = _Graph(seed, dtype)
    add_layers(graph)
    image = helper.make_tensor_value_info("image", _TYPES[dtype], ["batch", 3, side, side])
    scores = helper.make_tensor_value_info("scores", _TYPES[dtype], ["batch", _CLASSES])
    return helper.make_model(
        helper.make_graph(graph.nodes, name, [image], [scores], graph.weights),
        producer_name="tegrascope",
        producer_version=str(GENERATOR_VERSION),
        ir_version=_IR_VERSION,
        opset_imports=[helper.make_opsetid("", _OPSET)],
    )


def ensure_model(name: str, directory: Path, seed: int = SEED) -> Path:
    """Return the cached file of a built-in model, after generating it where there is none.

    Whoever comes second waits for the first, and nobody ever sees half a file.

    Args:
        name: One of ``BUILTIN_MODELS``.
        directory: The cache; made where it does not exist.
        seed: Of the weights.
    """
    path = builtin_path(name, directory, seed)
    directory.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.is_file():
            part = path.with_suffix(".part")
            with part.open("wb") as file:
                file.write(make_model(name, seed).SerializeToString(deterministic=True))
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
    return path


def main(argv: list[str] | None = None) -> int:
    """Generate a built-in model and print the path of its file.

    Example: python -m tegrascope.collectors.engines.builtin_models resnet50 .
    """
    parser = argparse.ArgumentParser(
        description=main.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
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
