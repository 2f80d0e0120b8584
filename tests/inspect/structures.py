"""Networks with the structures of well-known models, small, as torch's exporter writes them."""

import math
from typing import Any

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper


class Net:
    """A network under construction: each call adds nodes, and returns the name of a tensor.

    Channels of each tensor are kept, so that a convolution only needs those that it makes.
    """

    def __init__(self, size: int, seed: int) -> None:
        self.random = numpy.random.default_rng(seed)
        self.size = size
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.channels = {"image": 3}

    def add(
        self, op: str, *inputs: str, channels: int = 0, parts: int = 1, **attributes: Any
    ) -> Any:
        """Add a node; with several ``parts``, return a list of names."""
        name = f"/{op}_{len(self.nodes)}"
        outputs = [f"{name}_output_{part}" for part in range(parts)]
        self.nodes.append(helper.make_node(op, inputs, outputs, name, **attributes))
        for output in outputs:
            self.channels[output] = channels or self.channels.get(inputs[0], 0)
        return outputs[0] if parts == 1 else outputs

    def weight(self, values: Any, dtype: str = "f4") -> str:
        name = f"weight_{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(numpy.asarray(values, dtype), name))
        return name

    def integers(self, *values: int) -> str:
        return self.weight(values, "i8")

    def random_weight(self, *shape: int, scale: float = 1.0) -> str:
        return self.weight(self.random.normal(0, scale, shape))

    def conv(self, x: str, channels: int, side: int = 3, stride: int = 1, groups: int = 1) -> str:
        """Add a convolution that keeps the size of values as well as of the image."""
        inputs = self.channels[x] // groups
        scale = 1.4 / math.sqrt(inputs * side * side)
        kernel = self.random_weight(channels, inputs, side, side, scale=scale)
        bias = self.random_weight(channels, scale=0.1)
        window = {"kernel_shape": [side, side], "strides": [stride, stride]}
        pads = [side // 2] * 4
        return self.add(
            "Conv", x, kernel, bias, channels=channels, pads=pads, group=groups, **window
        )

    def silu(self, x: str, channels: int, side: int = 1, stride: int = 1) -> str:
        made = self.conv(x, channels, side, stride)
        return self.add("Mul", made, self.add("Sigmoid", made))

    def relu(self, x: str, channels: int, side: int = 3, stride: int = 1) -> str:
        return self.add("Relu", self.conv(x, channels, side, stride))

    def concat(self, *sources: str, axis: int = 1) -> str:
        channels = sum(self.channels[source] for source in sources) if axis == 1 else 0
        return self.add("Concat", *sources, axis=axis, channels=channels)

    def up(self, x: str) -> str:
        how = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        return self.add("Resize", x, "", self.weight([1, 1, 2, 2]), mode="nearest", **how)

    def pools(self, x: str) -> str:
        """Add the pyramid of poolings of YOLO."""
        half = self.silu(x, self.channels[x] // 2)
        kept = [half]
        for _ in range(3):
            window = {"kernel_shape": [5, 5], "strides": [1, 1], "pads": [2] * 4}
            kept.append(self.add("MaxPool", kept[-1], **window))
        return self.silu(self.concat(*kept), self.channels[x])

    def halves(self, x: str, channels: int) -> str:
        """Add the block of YOLOv8: half of the channels passes by a bottleneck."""
        made = self.silu(x, channels)
        sizes = self.integers(channels // 2, channels // 2)
        first, second = self.add("Split", made, sizes, parts=2, axis=1, channels=channels // 2)
        last = self.silu(self.silu(second, channels // 2, 3), channels // 2, 3)
        return self.silu(self.concat(first, second, self.add("Add", second, last)), channels)

    def bottlenecks(self, x: str, channels: int) -> str:
        """Add the block of YOLOv5: two convolutions beside each other, one with a bottleneck."""
        left, right = self.silu(x, channels // 2), self.silu(x, channels // 2)
        last = self.silu(self.silu(left, channels // 2), channels // 2, 3)
        return self.silu(self.concat(self.add("Add", left, last), right), channels)

    def reshape(self, x: str, *lengths: int) -> str:
        return self.add("Reshape", x, self.integers(*lengths))

    def cut(self, x: str, start: int, end: int, axis: int) -> str:
        return self.add("Slice", x, self.integers(start), self.integers(end), self.integers(axis))

    def model(self, *outputs: str) -> onnx.ModelProto:
        shape = [1, 3, self.size, self.size]
        image = helper.make_tensor_value_info("image", TensorProto.FLOAT, shape)
        ends = [helper.make_empty_tensor_value_info(name) for name in outputs]
        graph = helper.make_graph(self.nodes, "net", [image], ends, self.weights)
        opsets = [helper.make_opsetid("", 17)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def yolov5(seed: int) -> onnx.ModelProto:
    """Boxes relative to anchors, decoded with five dimensions, for each of two maps."""
    net, classes = Net(128, seed), 5
    fine = net.bottlenecks(net.silu(net.silu("image", 16, 3, 2), 32, 3, 2), 32)
    coarse = net.pools(net.bottlenecks(net.silu(fine, 64, 3, 2), 64))
    fine = net.bottlenecks(net.concat(net.up(net.silu(coarse, 32)), fine), 32)
    coarse = net.bottlenecks(net.concat(net.silu(fine, 32, 3, 2), coarse), 64)
    rows = []
    for source, side in ((fine, 32), (coarse, 16)):
        made = net.conv(source, 3 * (5 + classes), 1)
        made = net.reshape(made, 1, 3, 5 + classes, side, side)
        made = net.add("Sigmoid", net.add("Transpose", made, perm=[0, 1, 3, 4, 2]))
        sizes = net.integers(2, 2, classes + 1)
        place, size, scores = net.add("Split", made, sizes, parts=3, axis=4)
        grid = net.weight(numpy.stack(numpy.mgrid[:side, :side], -1)[None, None])
        place = net.add("Add", net.add("Mul", place, net.weight(2.0)), grid)
        place = net.add("Mul", place, net.weight(float(128 // side)))
        size = net.add("Pow", net.add("Mul", size, net.weight(2.0)), net.weight(2.0))
        anchors = net.weight(net.random.uniform(5, 50, (1, 3, 1, 1, 2)))
        size = net.add("Mul", size, anchors)
        made = net.add("Concat", place, size, scores, axis=4)
        rows.append(net.reshape(made, 1, -1, 5 + classes))
    return net.model(net.add("Concat", *rows, axis=1))


def _yolo(seed: int, *, has_attention: bool) -> onnx.ModelProto:
    net, classes, bins = Net(128, seed), 6, 8
    fine = net.halves(net.silu(net.silu("image", 16, 3, 2), 32, 3, 2), 32)
    coarse = net.pools(net.halves(net.silu(fine, 64, 3, 2), 64))
    if has_attention:
        coarse = _attend(net, coarse, 16)
    fine = net.halves(net.concat(net.up(coarse), fine), 32)
    coarse = net.halves(net.concat(net.silu(fine, 32, 3, 2), coarse), 64)
    flat = []
    for source in (fine, coarse):
        boxes = net.conv(net.silu(source, 32, 3), 4 * bins, 1)
        scores = net.conv(net.silu(source, 32, 3), classes, 1)
        flat.append(net.reshape(net.concat(boxes, scores), 1, 4 * bins + classes, -1))
    joined = net.add("Concat", *flat, axis=2)
    places = 32 * 32 + 16 * 16
    boxes, scores = net.add("Split", joined, net.integers(4 * bins, classes), parts=2, axis=1)
    boxes = net.add("Transpose", net.reshape(boxes, 1, 4, bins, places), perm=[0, 2, 1, 3])
    boxes = net.add("Softmax", boxes, axis=1)
    ramp = net.weight(numpy.arange(bins).reshape(1, bins, 1, 1))
    boxes = net.reshape(net.add("Conv", boxes, ramp, kernel_shape=[1, 1]), 1, 4, places)
    anchors = net.weight(net.random.uniform(0, 32, (1, 2, places)))
    low = net.add("Sub", anchors, net.cut(boxes, 0, 2, 1))
    high = net.add("Add", anchors, net.cut(boxes, 2, 4, 1))
    centre = net.add("Div", net.add("Add", low, high), net.weight(2.0))
    boxes = net.add("Concat", centre, net.add("Sub", high, low), axis=1)
    boxes = net.add("Mul", boxes, net.weight(4.0))
    return net.model(net.add("Concat", boxes, net.add("Sigmoid", scores), axis=1))


def _attend(net: Net, x: str, side: int) -> str:
    """Add the attention of YOLOv11: products of queries, keys and values of one head."""
    channels, places = net.channels[x], side * side
    made = net.reshape(net.conv(x, 2 * channels, 1), 1, 1, 2 * channels, places)
    sizes = net.integers(channels // 2, channels // 2, channels)
    query, key, value = net.add("Split", made, sizes, parts=3, axis=2)
    scores = net.add("MatMul", net.add("Transpose", query, perm=[0, 1, 3, 2]), key)
    scores = net.add("Softmax", net.add("Mul", scores, net.weight(0.1)), axis=-1)
    mixed = net.add("MatMul", value, net.add("Transpose", scores, perm=[0, 1, 3, 2]))
    mixed = net.reshape(mixed, 1, channels, side, side)
    net.channels[mixed] = channels
    return net.add("Add", x, net.conv(mixed, channels, 1))


def yolov8(seed: int) -> onnx.ModelProto:
    """Boxes as distributions, joined of two maps."""
    return _yolo(seed, has_attention=False)


def yolov11(seed: int) -> onnx.ModelProto:
    """The same with attention at the end of the backbone."""
    return _yolo(seed, has_attention=True)


def ssd(seed: int) -> onnx.ModelProto:
    """Boxes and scores of three maps, transposed, joined and decoded."""
    net, classes = Net(96, seed), 7
    maps = [net.relu(net.relu(net.relu("image", 16, 3, 2), 32, 3, 2), 48, 3)]
    maps.append(net.relu(net.relu(maps[-1], 32, 1), 64, 3, 2))
    maps.append(net.relu(net.relu(maps[-1], 32, 1), 64, 3, 2))
    ends: dict[int, list[str]] = {4: [], classes: []}
    for source in maps:
        for values, rows in ends.items():
            made = net.add("Transpose", net.conv(source, 4 * values, 3), perm=[0, 2, 3, 1])
            rows.append(net.reshape(made, 1, -1, values))
    boxes = net.add("Concat", *ends[4], axis=1)
    scores = net.add("Softmax", net.add("Concat", *ends[classes], axis=1), axis=2)
    count = 4 * (24 * 24 + 12 * 12 + 6 * 6)
    priors = net.weight(net.random.uniform(0.1, 1, (1, count, 2)))
    place, size = net.add("Split", boxes, net.integers(2, 2), parts=2, axis=2)
    place = net.add("Add", net.add("Mul", place, priors), priors)
    size = net.add("Mul", net.add("Exp", net.add("Mul", size, net.weight(0.2))), priors)
    return net.model(net.add("Concat", place, size, axis=2), scores)


def retinanet(seed: int) -> onnx.ModelProto:
    """A pyramid of maps that meet on the way up, and heads with scores by sigmoid."""
    net, classes = Net(128, seed), 5
    maps = [_residual(net, net.relu("image", 16, 3, 2), 32)]
    maps += [_residual(net, maps[-1], 64)]
    maps += [_residual(net, maps[-1], 96)]
    sides = [net.conv(source, 32, 1) for source in maps]
    middle = net.add("Add", sides[1], net.up(sides[2]))
    fine = net.add("Add", sides[0], net.up(middle))
    boxes, scores = [], []
    for source in (fine, middle, sides[2]):
        smooth = net.conv(source, 32, 3)
        last = net.conv(net.relu(net.relu(smooth, 32), 32), 4 * 3, 3)
        boxes.append(_rows(net, last, 4))
        last = net.conv(net.relu(net.relu(smooth, 32), 32), classes * 3, 3)
        scores.append(_rows(net, last, classes))
    scored = net.add("Sigmoid", net.add("Concat", *scores, axis=1))
    return net.model(net.add("Concat", *boxes, axis=1), scored)


def _rows(net: Net, x: str, values: int) -> str:
    """Turn a map of anchors into rows, over five dimensions."""
    side = {12: 3, 15: 3}[net.channels[x]]
    made = net.add("Reshape", x, net.integers(1, side, values, -1))
    return net.reshape(net.add("Transpose", made, perm=[0, 3, 1, 2]), 1, -1, values)


def _residual(net: Net, x: str, channels: int) -> str:
    made = net.conv(net.relu(x, channels, 3, 2), channels, 3)
    return net.add("Relu", net.add("Add", made, net.conv(x, channels, 1, 2)))


def unet(seed: int) -> onnx.ModelProto:
    """Down by pools, up by deconvolutions, and joined with what was on the way down."""
    net = Net(64, seed)
    kept, last = [], "image"
    for channels in (16, 32, 64):
        last = net.relu(net.relu(last, channels), channels)
        kept.append(last)
        last = net.add("MaxPool", last, kernel_shape=[2, 2], strides=[2, 2])
    last = net.relu(last, 64)
    for source in reversed(kept):
        channels = net.channels[source]
        kernel = net.random_weight(net.channels[last], channels, 2, 2, scale=0.1)
        window = {"kernel_shape": [2, 2], "strides": [2, 2]}
        last = net.add("ConvTranspose", last, kernel, channels=channels, **window)
        last = net.relu(net.relu(net.concat(last, source), channels), channels)
    masks = net.conv(last, 4, 1)
    return net.model(net.add("ArgMax", masks, axis=1), net.add("Sigmoid", masks))


def resnet(seed: int) -> onnx.ModelProto:
    """Residual blocks, a mean over the image, and a classifier."""
    net = Net(112, seed)
    last = net.relu("image", 32, 7, 2)
    last = net.add("MaxPool", last, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    for channels in (32, 64):
        last = _residual(net, last, channels)
    return net.model(_classified(net, last))


def _classified(net: Net, x: str, classes: int = 20) -> str:
    last = net.add("Flatten", net.add("GlobalAveragePool", x))
    kernel = net.random_weight(classes, net.channels[x], scale=0.5)
    return net.add("Gemm", last, kernel, net.random_weight(classes), transB=1)


def mobilenet(seed: int) -> onnx.ModelProto:
    """MobileNetV3: depthwise convolutions, hard swish, and gates from means over the image."""
    net = Net(112, seed)
    last = net.add("HardSwish", net.conv("image", 16, 3, 2))
    for channels, stride in ((24, 2), (40, 2), (40, 1)):
        wide = net.add("HardSwish", net.conv(last, 3 * net.channels[last], 1))
        count = net.channels[wide]
        wide = net.add("HardSwish", net.conv(wide, count, 3, stride, groups=count))
        gate = net.relu(net.add("GlobalAveragePool", wide), 16, 1)
        gate = net.add("HardSigmoid", net.conv(gate, count, 1), alpha=1 / 6, beta=0.5)
        made = net.conv(net.add("Mul", wide, gate), channels, 1)
        last = net.add("Add", last, made) if channels == net.channels[last] else made
    return net.model(_classified(net, last))


CUT = (yolov5, yolov8, ssd, retinanet, unet, resnet, mobilenet)
