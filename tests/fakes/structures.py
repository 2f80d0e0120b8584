"""Small networks with the structures that people run: detectors, segmenters, classifiers.

Weights are random. Each convolution is normalised by the statistics of its own results on some
inputs, as batch normalisation of a trained network is: without that, a deep random network gives
nearly the same answer to everything.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

SIDE, CLASSES = 96, 6
_OPSET = 17
_BINS = 8


class Net:
    """A graph under construction.

    ``stats`` are mean and deviation of each normalised layer; without them they become outputs.
    """

    def __init__(self, seed: int, stats: Mapping[str, Any] | None) -> None:
        self.random = numpy.random.RandomState(seed)
        self.stats, self.wanted = stats, list[str]()
        self.nodes: list[Any] = []
        self.weights: list[Any] = []

    def constant(self, value: Any, dtype: str = "f4") -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(numpy.asarray(value, dtype), name))
        return name

    def add(self, operation: str, *inputs: str, outputs: int = 0, **attributes: Any) -> Any:
        name = f"{operation.lower()}{len(self.nodes)}"
        names = [f"{name}.{at}" for at in range(max(1, outputs))]
        self.nodes.append(helper.make_node(operation, list(inputs), names, name, **attributes))
        return names if outputs else names[0]

    def conv(
        self,
        source: str,
        channels_in: int,
        channels_out: int,
        side: int = 1,
        stride: int = 1,
        *,
        groups: int = 1,
        dilation: int = 1,
        act: str = "silu",
        gain: float = 1.0,
        bias: float = 0.0,
    ) -> str:
        """Add a convolution with results of mean ``bias`` and deviation ``gain``."""
        shape = (channels_out, channels_in // groups, side, side)
        weight = self.random.normal(size=shape) / math.sqrt(math.prod(shape[1:]))
        attributes = {
            "strides": [stride] * 2,
            "pads": [dilation * (side // 2)] * 4,
            "group": groups,
            "dilations": [dilation] * 2,
        }
        name = f"norm{len(self.nodes)}"
        if self.stats is not None:
            mean, deviation = self.stats[name]
            factor = gain / deviation
            kernel = self.constant(weight * factor[:, None, None, None])
            made = self.add(
                "Conv", source, kernel, self.constant(bias - mean * factor), **attributes
            )
        else:
            made = self.add("Conv", source, self.constant(weight), **attributes)
            mean = self.add("ReduceMean", made, axes=[0, 2, 3])
            centred = self.add("Sub", made, mean)
            square = self.add("ReduceMean", self.add("Mul", centred, centred), axes=[0, 2, 3])
            deviation = self.add("Sqrt", self.add("Add", square, self.constant(1e-6)))
            scaled = self.add("Div", centred, deviation)
            made = self.add(
                "Add", self.add("Mul", scaled, self.constant(gain)), self.constant(bias)
            )
            self.wanted += [mean, deviation]
            self.stats_names.append(name)
        return self.act(made, act)

    stats_names: list[str]

    def mix(self, source: str, channels_in: int, channels_out: int) -> str:
        """Add a convolution of 1 × 1 without normalisation: means over an image hardly vary."""
        weight = self.random.normal(size=(channels_out, channels_in, 1, 1))
        return str(self.add("Conv", source, self.constant(weight / math.sqrt(channels_in))))

    def act(self, source: str, act: str) -> str:
        if act == "silu":
            return str(self.add("Mul", source, self.add("Sigmoid", source)))
        if act == "hswish":
            return str(self.add("HardSwish", source))
        if act == "relu6":
            return str(self.add("Clip", source, self.constant(0.0), self.constant(6.0)))
        return str(self.add("Relu", source)) if act == "relu" else source

    def reshape(self, source: str, *shape: int) -> str:
        return str(self.add("Reshape", source, self.constant(shape, "i8")))

    def cat(self, *sources: str, axis: int = 1) -> str:
        return str(self.add("Concat", *sources, axis=axis))

    def up(self, source: str) -> str:
        scales = self.constant([1, 1, 2, 2])
        how = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        return str(self.add("Resize", source, "", scales, mode="nearest", **how))

    def split(self, source: str, *sizes: int, axis: int = 1) -> list[str]:
        parts: list[str] = self.add(
            "Split", source, self.constant(sizes, "i8"), outputs=len(sizes), axis=axis
        )
        return parts

    def linear(self, source: str, wide: int, out: int) -> str:
        """Add a fully connected layer over the last axis."""
        weight = self.random.normal(size=(wide, out)) / math.sqrt(wide)
        product = self.add("MatMul", source, self.constant(weight))
        return str(self.add("Add", product, self.constant(self.random.normal(size=out) * 0.1)))

    def normal(self, source: str, wide: int) -> str:
        one, zero = self.constant(numpy.ones(wide)), self.constant(numpy.zeros(wide))
        return str(self.add("LayerNormalization", source, one, zero, axis=-1))

    def attend(self, tokens: str, wide: int) -> str:
        """Add attention of one head, and a feed-forward part."""
        normal = self.normal(tokens, wide)
        query, key, value = (self.linear(normal, wide, wide) for _ in range(3))
        scores = self.add("MatMul", query, self.add("Transpose", key, perm=[0, 2, 1]))
        scores = self.add("Mul", scores, self.constant(2 / math.sqrt(wide)))
        mixed = self.add("MatMul", self.add("Softmax", scores, axis=-1), value)
        tokens = self.add("Add", tokens, self.linear(mixed, wide, wide))
        inner = self.act(self.linear(self.normal(tokens, wide), wide, 2 * wide), "silu")
        return str(self.add("Add", tokens, self.linear(inner, 2 * wide, wide)))

    def residual(self, source: str, wide: int, stride: int = 1, act: str = "relu") -> str:
        """Add a block of two convolutions with a shortcut; with a stride it doubles the width."""
        out = wide * stride
        inner = self.conv(self.conv(source, wide, out, 3, stride, act=act), out, out, 3, act="")
        if stride > 1:
            source = self.conv(source, wide, out, 1, stride, act="")
        return self.act(str(self.add("Add", inner, source)), act)

    def csp(self, source: str, wide: int, out: int, *, is_split: bool) -> str:
        """Add a stage of YOLO: two branches (v5), or halves that are split off (v8, v11)."""
        half = out // 2
        if is_split:
            first, second = self.split(self.conv(source, wide, out), half, half)
        else:
            first, second = (self.conv(source, wide, half) for _ in range(2))
        inner = self.conv(self.conv(second, half, half, 3), half, half, 3)
        inner = str(self.add("Add", inner, second))
        joined = self.cat(first, second, inner) if is_split else self.cat(first, inner)
        return self.conv(joined, (3 if is_split else 2) * half, out)


def _pyramid(net: Net, *, is_split: bool, has_attention: bool = False) -> list[tuple[str, int]]:
    """Add backbone and neck of a YOLO; return its three maps with strides of 8, 16 and 32."""
    last = net.conv("image", 3, 8, 3, 2)
    last = net.csp(net.conv(last, 8, 16, 3, 2), 16, 16, is_split=is_split)
    fine = net.csp(net.conv(last, 16, 32, 3, 2), 32, 32, is_split=is_split)
    middle = net.csp(net.conv(fine, 32, 48, 3, 2), 48, 48, is_split=is_split)
    coarse = net.conv(net.conv(middle, 48, 64, 3, 2), 64, 32)
    pools = [coarse]
    for _ in range(3):
        pool = net.add("MaxPool", pools[-1], kernel_shape=[5, 5], strides=[1, 1], pads=[2] * 4)
        pools.append(pool)
    coarse = net.conv(net.cat(*pools), 128, 64)
    if has_attention:
        places = (SIDE // 32) ** 2
        tokens = net.add("Transpose", net.reshape(coarse, 0, 64, places), perm=[0, 2, 1])
        tokens = net.add("Transpose", net.attend(tokens, 64), perm=[0, 2, 1])
        coarse = net.reshape(tokens, 0, 64, SIDE // 32, SIDE // 32)
    middle = net.csp(net.cat(net.up(coarse), middle), 112, 48, is_split=is_split)
    fine = net.csp(net.cat(net.up(middle), fine), 80, 32, is_split=is_split)
    middle = net.csp(net.cat(net.conv(fine, 32, 32, 3, 2), middle), 80, 48, is_split=is_split)
    coarse = net.csp(net.cat(net.conv(middle, 48, 48, 3, 2), coarse), 112, 64, is_split=is_split)
    return [(fine, 32), (middle, 48), (coarse, 64)]


def _grid(stride: int) -> numpy.ndarray[Any, Any]:
    """Return x and y of each cell, shape (2, rows, columns)."""
    return numpy.stack(numpy.meshgrid(*[numpy.arange(SIDE // stride)] * 2))


def yolov5(net: Net) -> dict[str, str]:
    """Three anchors per cell; boxes and scores of a place in one row."""
    rows = []
    for (source, wide), stride in zip(_pyramid(net, is_split=False), (8, 16, 32), strict=True):
        cells, parts = SIDE // stride, 5 + CLASSES
        head = net.conv(source, wide, 3 * parts, act="", gain=1.5, bias=-0.5)
        head = net.reshape(head, 0, 3, parts, cells, cells)
        head = net.add("Sigmoid", net.add("Transpose", head, perm=[0, 1, 3, 4, 2]))
        centre, size, sure = net.split(head, 2, 2, 1 + CLASSES, axis=4)
        grid = _grid(stride).transpose(1, 2, 0)[None, None] - 0.5
        centre = net.add("Mul", centre, net.constant(2.0))
        centre = net.add("Mul", net.add("Add", centre, net.constant(grid)), net.constant(stride))
        size = net.add("Pow", net.add("Mul", size, net.constant(2.0)), net.constant(2.0))
        anchors = numpy.array([[1, 2], [2, 2], [3, 1]]).reshape(1, 3, 1, 1, 2) * stride
        size = net.add("Mul", size, net.constant(anchors))
        row = net.cat(centre, size, sure, axis=4)
        rows.append(net.reshape(row, 0, 3 * cells * cells, parts))
    return {"output": net.cat(*rows, axis=1)}


def yolov8(net: Net, *, has_attention: bool = False) -> dict[str, str]:
    """No anchors; each side of a box is the mean of a distribution."""
    boxes, scores, anchors, strides = [], [], [], []
    levels = _pyramid(net, is_split=True, has_attention=has_attention)
    for (source, wide), stride in zip(levels, (8, 16, 32), strict=True):
        places = (SIDE // stride) ** 2
        inner = net.conv(source, wide, 32, 3)
        box = net.conv(inner, 32, 4 * _BINS, act="", gain=2.0)
        inner = net.conv(source, wide, wide, 3, groups=wide if has_attention else 1)
        score = net.conv(net.conv(inner, wide, 32), 32, CLASSES, act="", gain=2.0, bias=-2.0)
        boxes.append(net.reshape(box, 0, 4 * _BINS, places))
        scores.append(net.reshape(score, 0, CLASSES, places))
        anchors.append(_grid(stride).reshape(2, -1) + 0.5)
        strides += [stride] * places
    total = len(strides)
    bins = net.reshape(net.cat(*boxes, axis=2), 0, 4, _BINS, total)
    bins = net.add("Softmax", net.add("Transpose", bins, perm=[0, 2, 1, 3]), axis=1)
    ramp = net.constant(numpy.arange(_BINS).reshape(1, _BINS, 1, 1))
    sides = net.reshape(net.add("Conv", bins, ramp), 0, 4, total)
    low, high = net.split(sides, 2, 2)
    at = net.constant(numpy.concatenate(anchors, axis=1)[None])
    low, high = net.add("Sub", at, low), net.add("Add", at, high)
    centre = net.add("Mul", net.add("Add", low, high), net.constant(0.5))
    box = net.add("Mul", net.cat(centre, net.add("Sub", high, low)), net.constant([[strides]]))
    return {"output": net.cat(box, net.add("Sigmoid", net.cat(*scores, axis=2)))}


def yolo11(net: Net) -> dict[str, str]:
    """As v8, with attention on the coarsest map and depthwise heads."""
    return yolov8(net, has_attention=True)


def _heads(net: Net, levels: list[tuple[str, int]], anchors: int, depth: int) -> tuple[str, str]:
    """Add box offsets and class scores of each anchor on each level, shape (batch, n, …)."""
    boxes, scores = [], []
    for source, wide in levels:
        for found, parts, gain in ((boxes, 4, 1.0), (scores, CLASSES, 2.0)):
            inner = source
            for _ in range(depth):
                inner = net.conv(inner, wide, wide, 3, act="relu")
            made = net.conv(inner, wide, anchors * parts, 3, act="", gain=gain)
            made = net.add("Transpose", made, perm=[0, 2, 3, 1])
            found.append(net.reshape(made, 0, -1, parts))
    return net.cat(*boxes, axis=1), net.cat(*scores, axis=1)


def ssd(net: Net) -> dict[str, str]:
    """Heads on maps of a plain backbone; scores by softmax over classes."""
    last = net.conv(net.conv("image", 3, 16, 3, 2, act="relu"), 16, 32, 3, 2, act="relu")
    levels = []
    for wide, out in ((32, 48), (48, 64), (64, 64)):
        last = net.conv(net.conv(last, wide, out, 3, 2, act="relu"), out, out, act="relu")
        levels.append((last, out))
    boxes, scores = _heads(net, levels, 4, 0)
    return {"boxes": boxes, "scores": net.add("Softmax", scores, axis=-1)}


def retinanet(net: Net) -> dict[str, str]:
    """A pyramid of residual maps under heads of several layers."""
    last = net.conv("image", 3, 16, 3, 2, act="relu")
    maps = []
    for wide in (16, 32, 64):
        last = net.residual(net.residual(last, wide, 2), 2 * wide)
        maps.append(last)
    coarse = net.conv(maps[2], 128, 32, act="")
    middle = net.add("Add", net.conv(maps[1], 64, 32, act=""), net.up(coarse))
    fine = net.add("Add", net.conv(maps[0], 32, 32, act=""), net.up(middle))
    boxes, scores = _heads(net, [(fine, 32), (middle, 32), (coarse, 32)], 3, 2)
    return {"boxes": boxes, "scores": net.add("Sigmoid", scores)}


def unet(net: Net) -> dict[str, str]:
    """Down and up again, with the maps of the way down joined in."""
    kept, last, wide = [], "image", 3
    for out in (12, 24, 48):
        last = net.conv(net.conv(last, wide, out, 3, act="relu"), out, out, 3, act="relu")
        kept.append((last, out))
        last, wide = net.add("MaxPool", last, kernel_shape=[2, 2], strides=[2, 2]), out
    last, wide = net.conv(last, 48, 64, 3, act="relu"), 64
    for skipped, out in reversed(kept):
        kernel = net.random.normal(size=(wide, out, 2, 2)) / math.sqrt(wide)
        last = net.add("ConvTranspose", last, net.constant(kernel), strides=[2, 2])
        last, wide = net.conv(net.cat(last, skipped), 2 * out, out, 3, act="relu"), out
    return {"masks": net.add("Sigmoid", net.conv(last, wide, CLASSES, act="", gain=2.0))}


def deeplab(net: Net) -> dict[str, str]:
    """Dilated branches, enlarged; the channels of its map come last, as in TensorFlow."""
    last = net.residual(net.conv("image", 3, 16, 3, 2, act="relu"), 16, 2)
    last = net.residual(last, 32, 2)
    branches = [net.conv(last, 64, 16, 3, dilation=rate, act="relu") for rate in (1, 2, 4)]
    last = net.conv(net.cat(*branches), 48, 32, act="relu")
    last = net.up(net.up(net.conv(last, 32, 21, act="", gain=2.0)))
    return {"masks": net.add("Transpose", last, perm=[0, 2, 3, 1])}


def _classify(net: Net, source: str, wide: int) -> dict[str, str]:
    """Add pooling over places and one score per class."""
    pooled = net.add("GlobalAveragePool", source)
    scores = net.conv(pooled, wide, 40, act="", gain=2.0)
    return {"scores": net.add("Flatten", scores)}


def resnet(net: Net) -> dict[str, str]:
    """Residual stages of two blocks."""
    last = net.conv("image", 3, 16, 7, 2, act="relu")
    for wide in (16, 32, 64):
        last = net.residual(net.residual(last, wide, 2), 2 * wide)
    return _classify(net, last, 128)


def mobilenet(net: Net) -> dict[str, str]:
    """Inverted residuals around depthwise convolutions."""
    last, wide = net.conv("image", 3, 16, 3, 2, act="relu6"), 16
    for out, stride in ((16, 1), (24, 2), (24, 1), (40, 2), (40, 1), (64, 2), (64, 1)):
        inner = net.conv(last, wide, 4 * wide, act="relu6")
        inner = net.conv(inner, 4 * wide, 4 * wide, 3, stride, groups=4 * wide, act="relu6")
        inner = net.conv(inner, 4 * wide, out, act="")
        last = net.add("Add", inner, last) if stride == 1 and wide == out else inner
        wide = out
    return _classify(net, net.conv(last, wide, 128, act="relu6"), 128)


def mobilenetv3(net: Net) -> dict[str, str]:
    """Inverted residuals with hard swish, and gates from means over the image."""
    last, wide = net.conv("image", 3, 16, 3, 2, act="hswish"), 16
    for out, stride in ((24, 2), (40, 2), (40, 1)):
        inner, count = net.conv(last, wide, 4 * wide, act="hswish"), 4 * wide
        inner = net.conv(inner, count, count, 3, stride, groups=count, act="hswish")
        gate = net.add("Relu", net.mix(net.add("GlobalAveragePool", inner), count, 16))
        gate = net.add("HardSigmoid", net.mix(gate, 16, count), alpha=1 / 6, beta=0.5)
        inner = net.conv(net.add("Mul", inner, gate), count, out, act="")
        last = net.add("Add", inner, last) if wide == out else inner
        wide = out
    pooled = net.add("GlobalAveragePool", net.conv(last, wide, 128, act="hswish"))
    return {"scores": net.add("Flatten", net.mix(pooled, 128, 40))}


def vit(net: Net) -> dict[str, str]:
    """Patches of 16 under six blocks of attention."""
    wide, count = 48, (SIDE // 16) ** 2
    patches = net.random.normal(size=(wide, 3, 16, 16)) / 16
    tokens = net.add("Conv", "image", net.constant(patches), strides=[16, 16])
    tokens = net.add("Transpose", net.reshape(tokens, 0, wide, count), perm=[0, 2, 1])
    places = net.constant(net.random.normal(size=(1, count, wide)) * 0.3)
    tokens = net.add("Add", tokens, places)
    for _ in range(6):
        tokens = net.attend(tokens, wide)
    pooled = net.add("ReduceMean", net.normal(tokens, wide), axes=[1], keepdims=0)
    return {"scores": net.linear(net.normal(pooled, wide), wide, 40)}


STRUCTURES: Mapping[str, Callable[[Net], dict[str, str]]] = {
    made.__name__: made
    for made in (
        *(yolov5, yolov8, yolo11, ssd, retinanet),
        *(unet, deeplab, resnet, mobilenet, vit),
    )
}


# The last one is for cuts: it has operators that the DLA refuses.
NETWORKS = {**STRUCTURES, "mobilenetv3": mobilenetv3}


def _model(net: Net, outputs: Mapping[str, str]) -> onnx.ModelProto:
    nodes = list(net.nodes)
    for name, source in outputs.items():
        nodes.append(helper.make_node("Identity", [source], [name]))
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "net",
        [info("image", TensorProto.FLOAT, ["N", 3, SIDE, SIDE])],
        [info(name, TensorProto.FLOAT, None) for name in outputs],
        net.weights,
    )
    opsets = [helper.make_opsetid("", _OPSET)]
    model = helper.make_model(graph, ir_version=8, opset_imports=opsets)
    return onnx.shape_inference.infer_shapes(model)


def run(model: onnx.ModelProto, images: "numpy.ndarray[Any, Any]") -> dict[str, Any]:
    """Return the outputs of a model, node by node as it stands."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    names = [made.name for made in session.get_outputs()]
    return dict(zip(names, session.run(None, {"image": images}), strict=True))


def build(name: str, seed: int, images: "numpy.ndarray[Any, Any]") -> onnx.ModelProto:
    """Return a network whose layers are normalised on some images, shape (n, 3, 96, 96)."""
    first = Net(seed, None)
    first.stats_names = []
    NETWORKS[name](first)
    stats: dict[str, Any] = {}
    if first.wanted:
        found = run(
            _model(first, {f"stat{at}": name for at, name in enumerate(first.wanted)}), images
        )
        values = [found[f"stat{at}"].reshape(-1) for at in range(len(first.wanted))]
        stats = dict(enumerate(zip(values[::2], values[1::2], strict=True)))
    net = Net(seed, _ByOrder(stats))
    return _model(net, NETWORKS[name](net))


def fixed(name: str, seed: int, images: "numpy.ndarray[Any, Any]") -> onnx.ModelProto:
    """Return such a network for one image at a time, with the shapes of all its tensors."""
    model = build(name, seed, images)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1
    del model.graph.value_info[:]
    for made in model.graph.output:
        made.type.tensor_type.ClearField("shape")
    return onnx.shape_inference.infer_shapes(model)


class _ByOrder(dict[Any, Any]):
    """Statistics in the order in which layers ask for them."""

    def __getitem__(self, _name: Any) -> Any:
        return self.pop(next(iter(self)))


def lowered(model: onnx.ModelProto, kind: str, clipped: float | None = None) -> onnx.ModelProto:
    """Return a copy whose weights and results are rounded to ``fp16`` or ``bf16``, as builds do.

    Args:
        clipped: Largest value of each convolution's results, as made-up int8 scales have it.
    """
    made = onnx.ModelProto()
    made.CopyFrom(model)
    small = {"fp16": TensorProto.FLOAT16, "bf16": TensorProto.BFLOAT16}[kind]
    rounded = {one.name: one for one in made.graph.initializer if one.data_type == 1}
    nodes = []
    for name, one in rounded.items():
        one.name = f"{name}.full"
        nodes += _rounding(one.name, name, small)
    for node in made.graph.node:
        nodes.append(node)
        whole = [f"{output}.full" for output in node.output]
        for output, full in zip(node.output, whole, strict=True):
            source = full
            if clipped is not None and node.op_type == "Conv":
                nodes.append(
                    helper.make_node("Clip", [full, "clip.low", "clip.high"], [f"{full}.clip"])
                )
                source = f"{full}.clip"
            nodes += _rounding(source, output, small)
        node.output[:] = whole
    if clipped is not None:
        for name, limit in (("clip.low", -clipped), ("clip.high", clipped)):
            made.graph.initializer.append(numpy_helper.from_array(numpy.array(limit, "f4"), name))
    ordered = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del made.graph.node[:]
    made.graph.node.extend(ordered)
    return made


def _rounding(source: str, result: str, kind: int) -> list[Any]:
    return [
        helper.make_node("Cast", [source], [f"{source}.small"], to=kind),
        helper.make_node("Cast", [f"{source}.small"], [result], to=TensorProto.FLOAT),
    ]
