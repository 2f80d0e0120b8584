"""For each rule of the DLA, a model that breaks it and a similar one that keeps it."""

from dataclasses import dataclass
from typing import Any

import numpy
import onnx

from .made import FLOAT, HALF, INT64, TARGET, Weights, array, axes, model, node, one


@dataclass(frozen=True)
class Case:
    """Two models that differ in one thing.

    Attributes:
        breaks: Its node ``target`` breaks the rule.
        keeps: Its node ``target`` keeps it, and runs on the DLA.
        precision: What both are built for; ``None`` leaves types as they are.
        keeps_precision: What the second is built for, where that is what differs.
        line: The TensorRT, where the oldest that has the rule will not do.
        keeps_line: That of the second, where that is what differs.
        is_strict: Whether the first is built for INT8 without FP16.
    """

    breaks: onnx.ModelProto
    keeps: onnx.ModelProto
    precision: str | None = None
    keeps_precision: str | None = None
    line: str | None = None
    keeps_line: str | None = None
    is_strict: bool = False


def conv(
    *,
    x: tuple[Any, ...] = (1, 16, 32, 32),
    weight: tuple[int, ...] = (32, 16, 3, 3),
    op: str = "Conv",
    kind: int = FLOAT,
    **attributes: Any,
) -> onnx.ModelProto:
    return one(op, x, {"w": weight}, kind=kind, **attributes)


def deconv(**given: Any) -> onnx.ModelProto:
    """A deconvolution that fits: its kernel is as large as its stride."""
    return conv(**{"op": "ConvTranspose", "weight": (16, 8, 2, 2), "strides": [2, 2], **given})


def gemm(inputs: int = 64, outputs: int = 10, **attributes: Any) -> onnx.ModelProto:
    weights = {"w": (outputs, inputs), "b": (outputs,)}
    return one("Gemm", (1, inputs), weights, **{"transB": 1, **attributes})


def pool(op: str = "MaxPool", **given: Any) -> onnx.ModelProto:
    return one(op, **{"kernel_shape": [2, 2], "strides": [2, 2], **given})


def two(
    op: str, left: tuple[int, ...], right: tuple[int, ...] | None = None, **attributes: Any
) -> onnx.ModelProto:
    """An operation of two tensors that both change."""
    return model([node(op, "a b", "y", TARGET, **attributes)], {"a": left, "b": right or left})


def clip(low: float, high: float) -> onnx.ModelProto:
    return one("Clip", weights={"low": scalar(low), "high": scalar(high)})


def scalar(value: float) -> numpy.ndarray:
    return numpy.array(value, numpy.float32)


def compared(
    op: str = "Equal", to: int = HALF, right: tuple[int, ...] = (1, 8, 4, 4)
) -> onnx.ModelProto:
    """A comparison, and the Cast that it needs."""
    nodes = [node(op, "a b", "m", TARGET), node("Cast", "m", "y", to=to)]
    return model(nodes, {"a": (1, 8, 4, 4), "b": right})


def scaled(constant: tuple[int, ...], after: str = "Conv") -> onnx.ModelProto:
    """A product with a constant, after a convolution or after a ReLU."""
    first = node("Conv", "x w", "h") if after == "Conv" else node("Relu", "x", "h")
    weights = {"w": (16, 16, 1, 1), "c": constant} if after == "Conv" else {"c": constant}
    return model([first, node("Mul", "h c", "y", TARGET)], {"x": (1, 16, 8, 8)}, weights)


def resize(
    *scales: float,
    mode: str = "nearest",
    place: str = "asymmetric",
    rounding: str = "floor",
    x: tuple[int, ...] = (1, 16, 8, 8),
) -> onnx.ModelProto:
    how = {"mode": mode, "coordinate_transformation_mode": place, "nearest_mode": rounding}
    made = node("Resize", "x - s", "y", TARGET, **how)
    return model([made], {"x": x}, {"s": array(*scales)})


def reshape(x: tuple[int, ...], to: tuple[int, ...]) -> onnx.ModelProto:
    return one("Reshape", x, {"s": axes(*to)})


def reshaped_after(op: str) -> onnx.ModelProto:
    """A reshape after another node."""
    first = {
        "Relu": node("Relu", "x", "h"),
        "Concat": node("Concat", "x x", "h", axis=1),
    }[op]
    channels = 32 if op == "Concat" else 16
    nodes = [first, node("Reshape", "h s", "y", TARGET)]
    return model(nodes, {"x": (1, 16, 8, 8)}, {"s": axes(1, channels, 4, 16)})


def padded() -> onnx.ModelProto:
    return one("Pad", weights={"p": axes(0, 0, 1, 1, 0, 0, 1, 1)})


def cut(
    x: tuple[int, ...] = (1, 16, 8, 8), axis: int = 1, dynamic: bool = False, step: int = 0
) -> onnx.ModelProto:
    bounds: Weights = {"b": axes(0), "e": axes(4 if step else 1), "a": axes(axis)}
    if step:
        weights = {**bounds, "s": axes(step)}
        return model([node("Slice", "x b e a s", "y", TARGET)], {"x": x}, weights)
    if dynamic:
        weights = {name: value for name, value in bounds.items() if name != "b"}
        made = model([node("Slice", "x b e a", "y", TARGET)], {"x": x}, weights)
        made.graph.input.append(onnx.helper.make_tensor_value_info("b", INT64, [1]))
        return made
    return model([node("Slice", "x b e a", "y", TARGET)], {"x": x}, bounds)


def reduced(*over: int, x: tuple[int, ...] = (1, 16, 8, 8), op: str = "ReduceMax") -> Any:
    return one(op, x, opset=13, axes=list(over))


def quantised(*, around: str) -> onnx.ModelProto:
    """A convolution between quantisers, or one that is quantised by the builder."""
    if around == "plain":
        return conv()
    nodes = [
        node("QuantizeLinear", "x s z", "q", TARGET),
        node("DequantizeLinear", "q s z", "d"),
        node("Conv", "d w", "y"),
    ]
    zero = numpy.array(0, numpy.int8)
    weights: Weights = {"s": scalar(0.1), "z": zero, "w": (32, 16, 3, 3)}
    return model(nodes, {"x": (1, 16, 32, 32)}, weights)


def typed(kind: int) -> onnx.ModelProto:
    return one("Relu", (1, 8, 4, 4), kind=kind)


BIG = 8193
CASES: dict[str, Case] = {
    "general.known-operator": Case(
        model(
            [node("Fancy", "x", "y", TARGET, domain="mine")], {"x": (1, 8, 4, 4)}, domains=["mine"]
        ),
        typed(FLOAT),
    ),
    "general.operator": Case(
        one("InstanceNormalization", weights={"s": (16,), "b": (16,)}),
        one("LRN", size=5),
    ),
    "general.explicit-quantization": Case(
        quantised(around="convolution"), quantised(around="plain"), line="10.3"
    ),
    "general.cast": Case(
        one("Cast", (1, 8, 4, 4), to=HALF),
        model(
            [node("Equal", "a b", "m"), node("Cast", "m", "y", TARGET, to=HALF)],
            {"a": (1, 8, 4, 4), "b": (1, 8, 4, 4)},
        ),
        precision="int8",
    ),
    "general.dynamic-shape": Case(one("Relu", ("batch", 8, 4, 4)), one("Relu", (1, 8, 4, 4))),
    "general.batch": Case(one("Relu", (4097, 1, 1, 1)), one("Relu", (4096, 1, 1, 1))),
    "general.dimension": Case(one("Relu", (1, 1, 1, 8193)), one("Relu", (1, 1, 1, 8192))),
    "general.type": Case(typed(INT64), typed(FLOAT)),
    "general.type-as-written": Case(typed(FLOAT), typed(HALF)),
    "convolution.spatial": Case(conv(x=(1, 16, 8, 8, 8), weight=(32, 16, 3, 3, 3)), conv()),
    "convolution.one-dimension": Case(
        conv(x=(1, 16, 32), weight=(32, 16, 3)), conv(x=(1, 16, 1, 32), weight=(32, 16, 1, 3))
    ),
    "convolution.kernel": Case(
        conv(x=(1, 4, 40, 40), weight=(8, 4, 33, 1)), conv(x=(1, 4, 40, 40), weight=(8, 4, 32, 1))
    ),
    "convolution.stride": Case(conv(strides=[9, 9]), conv(strides=[8, 8])),
    "convolution.padding": Case(
        conv(weight=(8, 16, 40, 1), pads=[32, 0, 32, 0]),
        conv(weight=(8, 16, 32, 1), pads=[31, 0, 31, 0]),
    ),
    "convolution.padding-in-kernel": Case(conv(pads=[3, 3, 3, 3]), conv(pads=[2, 2, 2, 2])),
    "convolution.padding-in-undilated-kernel": Case(
        conv(pads=[4] * 4, dilations=[4, 4]), conv(pads=[2] * 4, dilations=[4, 4])
    ),
    "convolution.dilation": Case(
        conv(x=(1, 16, 99, 99), dilations=[1, 33]), conv(x=(1, 16, 99, 99), dilations=[1, 32])
    ),
    "convolution.groups": Case(
        conv(x=(1, BIG, 4, 4), weight=(BIG, 1, 1, 1), group=BIG),
        conv(x=(1, 8192, 4, 4), weight=(8192, 1, 1, 1), group=8192),
    ),
    "convolution.input-channels": Case(
        conv(x=(1, BIG, 1, 1), weight=(8, BIG, 1, 1)),
        conv(x=(1, 8192, 1, 1), weight=(8, 8192, 1, 1)),
    ),
    "convolution.output-maps": Case(conv(weight=(BIG, 16, 1, 1)), conv(weight=(8192, 16, 1, 1))),
    "convolution.buffer": Case(
        conv(x=(1, 512, 64, 256), weight=(8, 512, 7, 7)),
        conv(x=(1, 512, 64, 64), weight=(8, 512, 3, 3)),
    ),
    "convolution.constant-weights": Case(
        model(
            [node("Conv", "x w", "y", TARGET, kernel_shape=[3, 3])],
            {"x": (1, 16, 8, 8), "w": (8, 16, 3, 3)},
        ),
        conv(),
    ),
    "fully-connected.constant-weights": Case(
        two("MatMul", (4, 8), (8, 4)), one("MatMul", (4, 8), {"w": (8, 4)})
    ),
    "fully-connected.input-channels": Case(gemm(inputs=BIG), gemm(inputs=8192)),
    "fully-connected.output-maps": Case(gemm(outputs=BIG), gemm(outputs=8192)),
    "fully-connected.rank": Case(
        one("MatMul", (1, 4, 8), {"w": (8, 4)}), one("MatMul", (4, 8), {"w": (8, 4)})
    ),
    "fully-connected.plain": Case(gemm(alpha=0.5), gemm()),
    "deconvolution.spatial": Case(
        deconv(x=(1, 16, 8, 8, 8), weight=(16, 8, 2, 2, 2), strides=[2, 2, 2]), deconv()
    ),
    "deconvolution.kernel": Case(
        deconv(weight=(16, 8, 1, 33), strides=[1, 4]),
        deconv(weight=(16, 8, 1, 64), strides=[1, 4]),
    ),
    "deconvolution.stride": Case(
        deconv(weight=(16, 8, 1, 2), strides=[1, 33]),
        deconv(weight=(16, 8, 1, 2), strides=[1, 64]),
    ),
    "deconvolution.square": Case(
        deconv(weight=(16, 8, 23, 23), strides=[22, 22]),
        deconv(weight=(16, 8, 22, 22), strides=[22, 22]),
    ),
    "deconvolution.padding": Case(
        deconv(weight=(16, 8, 4, 4), pads=[1, 1, 1, 1]), deconv(weight=(16, 8, 4, 4))
    ),
    "deconvolution.output-padding": Case(deconv(output_padding=[1, 1]), deconv()),
    "deconvolution.groups": Case(deconv(group=2), deconv()),
    "deconvolution.dilation": Case(deconv(dilations=[2, 2]), deconv()),
    "deconvolution.input-channels": Case(
        deconv(x=(1, BIG, 2, 2), weight=(BIG, 8, 2, 2)),
        deconv(x=(1, 8192, 2, 2), weight=(8192, 8, 2, 2)),
    ),
    "deconvolution.output-channels": Case(
        deconv(weight=(16, BIG, 2, 2)), deconv(weight=(16, 8192, 2, 2))
    ),
    "pooling.spatial": Case(
        pool(x=(1, 16, 8, 8, 8), kernel_shape=[2] * 3, strides=[2] * 3), pool()
    ),
    "pooling.operation": Case(pool("LpPool"), pool("AveragePool")),
    "pooling.window": Case(pool(kernel_shape=[9, 9]), pool(kernel_shape=[8, 8])),
    "pooling.padding": Case(
        pool(kernel_shape=[8, 8], pads=[8, 8, 8, 8]), pool(kernel_shape=[8, 8], pads=[7, 7, 7, 7])
    ),
    "pooling.stride": Case(pool(strides=[17, 17]), pool(strides=[16, 16])),
    "pooling.dilation": Case(pool(dilations=[2, 2]), pool(dilations=[1, 1])),
    "activation.function": Case(one("Elu"), one("LeakyRelu")),
    "activation.rank": Case(one("Relu", (1, 8)), one("Relu", (1, 8, 1, 1))),
    "activation.clip-minimum": Case(clip(-1, 6), clip(0, 6)),
    "activation.clip-maximum": Case(clip(0, 128), clip(0, 127)),
    "parametric-relu.constant-slope": Case(
        two("PRelu", (1, 16, 8, 8)), one("PRelu", weights={"s": (1, 16, 1, 1)})
    ),
    "parametric-relu.slope-rank": Case(
        one("PRelu", weights={"s": (16, 1, 1)}), one("PRelu", weights={"s": (1, 16, 1, 1)})
    ),
    "elementwise.operation": Case(two("Div", (1, 8, 4, 4)), two("Max", (1, 8, 4, 4))),
    "elementwise.early-minimum": Case(two("Min", (1, 8, 4, 4)), two("Max", (1, 8, 4, 4))),
    "elementwise.operation-10": Case(two("Mod", (1, 8, 4, 4), fmod=1), two("Min", (1, 8, 4, 4))),
    "elementwise.quotient": Case(two("Div", (1, 8, 4, 4)), two("Mul", (1, 8, 4, 4))),
    "elementwise.power-constant": Case(two("Pow", (1, 8, 4, 4)), two("Mul", (1, 8, 4, 4)), "int8"),
    "elementwise.rank": Case(two("Add", (4, 8)), two("Add", (4, 8, 1, 1))),
    "elementwise.broadcast": Case(
        two("Mul", (1, 8, 4, 4), (1, 1, 4, 4)), two("Mul", (1, 8, 4, 4), (1, 8, 1, 1))
    ),
    "scale.constant": Case(scaled((1, 16, 1, 1), after="Relu"), scaled((1, 16, 1, 1))),
    "scale.mode": Case(scaled((1, 1, 8, 1)), scaled((1, 16, 1, 1))),
    "scale.rank": Case(one("Mul", (1, 16), {"c": (1,)}), one("Mul", (1, 16, 1, 1), {"c": (1,)})),
    "comparison.operation": Case(
        compared("Greater"), compared("Greater"), "int8", keeps_line="10.3"
    ),
    "comparison.early": Case(compared(), compared(), "int8", keeps_line="10.3"),
    "comparison.precision": Case(compared(), compared(), "fp16", "int8"),
    "comparison.broadcast": Case(
        compared(right=(1, 1, 4, 4)), compared(right=(1, 8, 1, 1)), "int8"
    ),
    "comparison.cast": Case(compared(to=INT64), compared(), "int8"),
    "softmax.rank": Case(one("Softmax", (1, 10)), one("Softmax", (1, 10, 1, 1), axis=1)),
    "softmax.precision": Case(
        one("Softmax", (1, 10, 1, 1), axis=1),
        one("Softmax", (1, 10, 1, 1), axis=1),
        "int8",
        is_strict=True,
    ),
    "softmax.axis": Case(
        one("Softmax", (4, 8, 1, 1), axis=0), one("Softmax", (4, 8, 1, 1), axis=1)
    ),
    "softmax.length": Case(
        one("Softmax", (1, BIG, 1, 1), axis=1), one("Softmax", (1, 8192, 1, 1), axis=1)
    ),
    "softmax.length-of-many": Case(
        one("Softmax", (1, 1025, 2, 2), axis=1), one("Softmax", (1, 1024, 2, 2), axis=1)
    ),
    "concatenation.axis": Case(
        model([node("Concat", "a b", "y", TARGET, axis=2)], {"a": (1, 8, 4, 4), "b": (1, 8, 4, 4)}),
        model([node("Concat", "a b", "y", TARGET, axis=1)], {"a": (1, 8, 4, 4), "b": (1, 8, 4, 4)}),
    ),
    "resize.mode": Case(resize(1, 1, 2, 2, mode="cubic"), resize(1, 1, 2, 2)),
    "resize.scales": Case(resize(1, 1, 2, x=(1, 16, 8)), resize(1, 1, 2, 2)),
    "resize.outer-scales": Case(resize(1, 2, 2, 2), resize(1, 1, 2, 2)),
    "resize.whole": Case(resize(1, 1, 1.5, 1.5), resize(1, 1, 2, 2)),
    "resize.nearest-scale": Case(resize(1, 1, 33, 33), resize(1, 1, 32, 32)),
    "resize.linear-scale": Case(
        resize(1, 1, 5, 5, mode="linear", place="half_pixel"),
        resize(1, 1, 4, 4, mode="linear", place="half_pixel"),
    ),
    "resize.nearest-coordinates": Case(
        resize(1, 1, 2, 2, place="align_corners"),
        resize(1, 1, 2, 2, place="half_pixel", rounding="round_prefer_ceil"),
    ),
    "resize.linear-coordinates": Case(
        resize(1, 1, 2, 2, mode="linear", place="align_corners"),
        resize(1, 1, 2, 2, mode="linear", place="pytorch_half_pixel"),
    ),
    "shuffle.rank": Case(
        reshape((1, 16, 8, 8), (1, 1024)), reshape((1, 16, 8, 8), (1, 1024, 1, 1))
    ),
    "shuffle.operation": Case(
        one("Unsqueeze", weights={"a": axes(0)}), reshape((1, 16, 8, 8), (1, 1024, 1, 1))
    ),
    "shuffle.many-dimensions": Case(
        one("Transpose", (1, 2, 8, 8, 8), perm=[0, 2, 1, 3, 4]),
        one("Transpose", (1, 2, 8, 8), perm=[0, 2, 1, 3]),
    ),
    "shuffle.batch": Case(
        one("Transpose", (2, 16, 8, 8), perm=[1, 0, 2, 3]),
        one("Transpose", (2, 16, 8, 8), perm=[0, 2, 3, 1]),
    ),
    "shuffle.neighbour": Case(reshaped_after("Concat"), reshaped_after("Relu")),
    "slice.operation": Case(padded(), cut()),
    "slice.operation-10": Case(padded(), cut()),
    "slice.steps": Case(cut(step=2), cut(step=1)),
    "slice.early-steps": Case(cut(step=2), cut(step=1)),
    "slice.precision": Case(cut(), cut(), "int8", is_strict=True),
    "slice.rank": Case(cut((1, 16, 8)), cut()),
    "slice.axes": Case(cut((4, 16, 8, 8), axis=0), cut((4, 16, 8, 8), axis=-1)),
    "slice.static": Case(cut(dynamic=True), cut()),
    "lrn.window": Case(one("LRN", size=11), one("LRN", size=5)),
    "reduce.operation": Case(reduced(2, 3, op="ReduceMean"), reduced(2, 3), line="10.3"),
    "reduce.rank": Case(reduced(2, x=(1, 16, 8)), reduced(2), line="10.3"),
    "reduce.axes": Case(reduced(0, 2, x=(4, 16, 8, 8)), reduced(1, 2), line="10.3"),
    "unary.operation": Case(one("Erf"), one("Abs")),
    "unary.operation-10": Case(one("Erf"), one("Abs")),
    "unary.trigonometry": Case(one("Cos"), one("Abs")),
}
