"""Random networks of seven families, from few weights and large activations to the contrary."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from numpy.random import Generator
from onnx import TensorProto, helper, numpy_helper


class Network:
    """A network under construction; ``value`` names the last tensor, ``shape`` is its shape."""

    def __init__(self, random: Generator, shape: tuple[int, ...]) -> None:
        self._random, self._given = random, shape
        self._nodes: list[onnx.NodeProto] = []
        self._weights: list[onnx.TensorProto] = []
        self.value, self.shape, self.batch = "input", shape, shape[0]

    def add(self, op: str, *inputs: str, **attributes: object) -> str:
        """Add a node behind the last one, or behind ``inputs``; return the name of its output."""
        name = f"t{len(self._nodes)}"
        given = inputs or (self.value,)
        self._nodes.append(helper.make_node(op, list(given), [name], **attributes))
        self.value = name
        return name

    def weight(self, *shape: int) -> str:
        """Add a weight; return its name."""
        name = f"w{len(self._weights)}"
        values = self._random.standard_normal(shape, dtype=np.float32) * 0.02
        self._weights.append(numpy_helper.from_array(values, name))
        return name

    def constant(self, values: list[float], kind: type[np.generic]) -> str:
        """Add a constant of given values; return its name."""
        name = f"w{len(self._weights)}"
        self._weights.append(numpy_helper.from_array(np.array(values, dtype=kind), name))
        return name

    def convolve(
        self, channels: int, kernel: int = 3, stride: int = 1, *, groups: int = 1, act: str = "Relu"
    ) -> str:
        """Add a convolution and its activation; ``act`` may be empty."""
        batch, given, height, width = self.shape
        weight = self.weight(channels, given // groups, kernel, kernel)
        self.add(
            "Conv",
            *(self.value, weight, self.weight(channels)),
            strides=[stride, stride],
            pads=[kernel // 2] * 4,
            group=groups,
        )
        self.shape = (batch, channels, -(-height // stride), -(-width // stride))
        if act == "Silu":
            before = self.value
            self.add("Mul", before, self.add("Sigmoid"))
        elif act:
            self.add(act)
        return self.value

    def dense(self, length: int, act: str = "") -> str:
        """Add a matrix product over the last axis, its bias and its activation."""
        weight, bias = self.weight(self.shape[-1], length), self.weight(length)
        if len(self.shape) == 2:
            self.add("Gemm", self.value, weight, bias)
        else:
            self.add("Add", self.add("MatMul", self.value, weight), bias)
        self.shape = (*self.shape[:-1], length)
        if act:
            self.add(act)
        return self.value

    def classify(self, classes: int) -> None:
        """Add a mean over the image and a dense layer."""
        self.add("GlobalAveragePool")
        self.add("Flatten")
        self.shape = self.shape[:2]
        self.dense(classes)

    def save(self, path: Path) -> None:
        """Write the model; its only output is the last tensor."""
        kind = TensorProto.FLOAT
        graph = helper.make_graph(
            self._nodes,
            "random",
            [helper.make_tensor_value_info("input", kind, self._given)],
            [helper.make_tensor_value_info(self.value, kind, None)],
            self._weights,
        )
        opsets = [helper.make_opsetid("", 17)]
        onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), path)


def _residual(random: Generator) -> Network:
    size, width = 32 * int(random.integers(3, 15)), 16 * int(random.integers(1, 7))
    net = Network(random, (int(random.integers(1, 9)), 3, size, size))
    net.convolve(width, 7, 2)
    net.add("MaxPool", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    net.shape = (*net.shape[:2], -(-net.shape[2] // 2), -(-net.shape[3] // 2))
    for stage in range(int(random.integers(2, 5))):
        channels = width << stage
        net.convolve(channels, 1, 1 + (stage > 0))
        for _ in range(int(random.integers(1, 5))):
            before = net.value
            net.convolve(channels)
            net.convolve(channels, act="")
            net.add("Add", net.value, before)
            net.add("Relu")
    net.classify(1000)
    return net


def _inverted(random: Generator) -> Network:
    size, width = 32 * int(random.integers(4, 17)), 8 * int(random.integers(1, 5))
    act = str(random.choice(["Relu", "HardSwish", "Silu"]))
    net = Network(random, (int(random.integers(1, 9)), 3, size, size))
    net.convolve(width, 3, 2, act=act)
    for stage in range(4):
        channels = width * (stage + 1)
        for place in range(int(random.integers(1, 4))):
            before, given = net.value, net.shape
            wide = 6 * given[1]
            net.convolve(wide, 1, act=act)
            net.convolve(wide, 3, 2 if place == 0 else 1, groups=wide, act=act)
            net.convolve(channels, 1, act="")
            if net.shape == given:
                net.add("Add", net.value, before)
    net.classify(int(random.integers(10, 5000)))
    return net


def _hourglass(random: Generator) -> Network:
    size, width = 32 * int(random.integers(3, 13)), 8 * int(random.integers(1, 7))
    net = Network(random, (int(random.integers(1, 5)), 3, size, size))
    skips = []
    depth = int(random.integers(2, 5))
    for level in range(depth):
        net.convolve(width << level)
        skips.append((net.convolve(width << level), net.shape))
        net.add("MaxPool", kernel_shape=[2, 2], strides=[2, 2])
        net.shape = (*net.shape[:2], net.shape[2] // 2, net.shape[3] // 2)
    net.convolve(width << depth)
    for level in reversed(range(depth)):
        skip, shape = skips[level]
        scales = net.constant([1, 1, 2, 2], np.float32)
        net.add("Resize", net.value, "", scales, mode="nearest")
        net.add("Concat", net.value, skip, axis=1)
        net.shape = (shape[0], net.shape[1] + shape[1], *shape[2:])
        net.convolve(width << level)
    net.convolve(int(random.integers(1, 21)), 1, act="")
    return net


def _dense(random: Generator) -> Network:
    net = Network(random, (int(2 ** random.uniform(0, 8)), int(2 ** random.uniform(8, 12))))
    for _ in range(int(random.integers(2, 9))):
        net.dense(int(2 ** random.uniform(9, 12.3)), "Relu")
    net.dense(100)
    return net


def _attention(random: Generator) -> Network:
    tokens, width = int(2 ** random.uniform(5, 9)), 64 * int(random.integers(2, 13))
    batch = int(random.integers(1, 9))
    net = Network(random, (batch, tokens, width))
    for _ in range(int(random.integers(1, 9))):
        before = net.value
        net.add("LayerNormalization", before, net.weight(width), net.weight(width), axis=-1)
        normal, parts = net.value, []
        for turned in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]):
            net.value = normal
            net.dense(width)
            shape = net.constant([batch, tokens, width // 64, 64], np.int64)
            net.add("Reshape", net.value, shape)
            parts.append(net.add("Transpose", perm=turned))
        net.add("MatMul", parts[0], parts[1])
        net.add("Softmax", axis=-1)
        net.add("MatMul", net.value, parts[2])
        net.add("Transpose", perm=[0, 2, 1, 3])
        net.add("Reshape", net.value, net.constant([batch, tokens, width], np.int64))
        net.dense(width)
        middle = net.add("Add", net.value, before)
        net.add("LayerNormalization", middle, net.weight(width), net.weight(width), axis=-1)
        net.dense(4 * width, "Relu")
        net.dense(width)
        net.add("Add", net.value, middle)
    return net


def _upscaler(random: Generator) -> Network:
    size, width = 32 * int(random.integers(2, 17)), 8 * int(random.integers(2, 9))
    net = Network(random, (int(random.integers(1, 5)), 3, size, size))
    first = net.convolve(width)
    for _ in range(int(random.integers(1, 9))):
        net.convolve(width)
    net.add("Add", net.value, first)
    net.convolve(12, act="")
    net.add("DepthToSpace", blocksize=2)
    return net


def _plain(random: Generator) -> Network:
    size, width = 32 * int(random.integers(1, 8)), 16 * int(random.integers(1, 5))
    net = Network(random, (int(random.integers(1, 9)), 3, size, size))
    for stage in range(int(random.integers(2, 5))):
        for _ in range(int(random.integers(1, 4))):
            net.convolve(width << stage)
        net.add("MaxPool", kernel_shape=[2, 2], strides=[2, 2])
        net.shape = (*net.shape[:2], net.shape[2] // 2, net.shape[3] // 2)
    net.add("Flatten")
    net.shape = (net.shape[0], int(np.prod(net.shape[1:])))
    net.dense(min(int(2 ** random.uniform(5, 12)), 64_000_000 // net.shape[1]), "Relu")
    net.dense(1000)
    return net


FAMILIES: dict[str, Callable[[Generator], Network]] = {
    "residual": _residual,
    "inverted": _inverted,
    "hourglass": _hourglass,
    "dense": _dense,
    "attention": _attention,
    "upscaler": _upscaler,
    "plain": _plain,
}


def make_network(seed: tuple[int, ...], path: Path, family: str | None = None) -> tuple[str, int]:
    """Write a random model; return its family, random unless it is given, and its batch."""
    random = np.random.default_rng(seed)
    drawn = str(random.choice([*FAMILIES]))
    net = FAMILIES[family or drawn](random)
    net.save(path)
    return family or drawn, net.batch
