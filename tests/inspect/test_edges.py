"""What is just within the rules runs on the DLA, and what is just outside does not."""

import pytest

from tegrascope.daemon.inspect.windows import buffer_banks

from .cases import clip, compared, conv, deconv, gemm, pool, resize, scaled, two
from .made import array, inspected, model, node, one, rules_broken, target_of

IMAGE = (1, 8, 4, 4)
BATCH_NORM = dict.fromkeys("sbmv", (16,))

# Each operation that the pages list, at the oldest TensorRT that has it.
LISTED = [
    *[(op, one(op), "8.5", "fp16") for op in ("Relu", "Sigmoid", "Tanh", "LeakyRelu", "Abs")],
    *[(op, two(op, IMAGE), "8.5", "fp16") for op in ("Add", "Sub", "Mul", "Max", "Sum")],
    ("Min", two("Min", IMAGE), "10.3", "fp16"),
    *[(op, compared(op), "10.3", "int8") for op in ("Equal", "Greater", "Less")],
    ("Clip", clip(0, 1), "8.5", "fp16"),
    ("MaxPool", pool("MaxPool"), "8.5", "fp16"),
    ("AveragePool", pool("AveragePool"), "8.5", "fp16"),
    ("BatchNormalization", one("BatchNormalization", weights=BATCH_NORM), "8.5", "fp16"),
    ("GlobalMaxPool", one("GlobalMaxPool"), "10.3", "fp16"),
    *[(f"LRN {size}", one("LRN", size=size), "8.5", "fp16") for size in (3, 5, 7, 9)],
    *[(f"Softmax {at}", one("Softmax", axis=at), "8.5", "fp16") for at in (1, 2, 3, -1)],
    *[
        (f"Resize {place} {how}", resize(1, 1, 2, 2, place=place, rounding=how), "8.5", "fp16")
        for place, how in (
            ("asymmetric", "floor"),
            ("half_pixel", "round_prefer_floor"),
            ("half_pixel", "round_prefer_ceil"),
        )
    ],
    *[
        (f"Resize {place}", resize(1, 1, 2, 2, mode="linear", place=place), "8.5", "fp16")
        for place in ("half_pixel", "pytorch_half_pixel")
    ],
    ("Mul uniform", scaled((1,), after="Relu"), "8.5", "fp16"),
    ("Mul by element", scaled((1, 16, 8, 8), after="Relu"), "8.5", "fp16"),
    ("Mul by image", two("Mul", IMAGE, (1, 1, 1, 1)), "8.5", "fp16"),
    ("Mul by channel", two("Mul", IMAGE, (1, 8, 1, 1)), "8.5", "fp16"),
]


@pytest.mark.parametrize(
    ("made", "line", "precision"), [pytest.param(*rest, id=name) for name, *rest in LISTED]
)
def test_each_listed_operation_runs(made, line, precision, tmp_path):
    """What the pages name is on the DLA."""
    found = target_of(inspected(made, tmp_path, line=line, precision=precision))
    assert (found.placement, rules_broken(found)) == ("dla", set())


SMALLEST = {
    "convolution": conv(x=(1, 1, 4, 4), weight=(1, 1, 1, 1)),
    "depthwise": conv(x=(1, 8, 4, 4), weight=(8, 1, 3, 3), group=8),
    "deconvolution": deconv(x=(1, 1, 4, 4), weight=(1, 1, 1, 1), strides=[1, 1]),
    "deconvolution of 32": deconv(weight=(16, 8, 1, 32), strides=[1, 32]),
    "pooling": pool(kernel_shape=[1, 1], strides=[1, 1]),
    "product": gemm(inputs=1, outputs=1),
    "five dimensions": one("Relu", (2, 1, 8, 4, 4)),
    "one softmax of many": one("Softmax", (1, 1, 2, 2), axis=1),
    "nearest by 5": resize(1, 1, 5, 5),
    "unit resize of one axis": resize(1, 1, 1, 2),
}


@pytest.mark.parametrize("name", SMALLEST)
def test_the_smallest_runs(name, tmp_path):
    """Ones are within every range."""
    found = target_of(inspected(SMALLEST[name], tmp_path, line="8.5"))
    assert (found.placement, rules_broken(found)) == ("dla", set())


REFUSED = {
    **{
        f"{op} before 10": (one(op), "8.6", "int8", "unary.operation")
        for op in ("Sin", "Cos", "Atan")
    },
    "two unknown exponents": (two("Pow", IMAGE), "10.3", "int8", "elementwise.power-constant"),
    "greater at FP16": (compared("Greater"), "10.3", "fp16", "comparison.precision"),
    "less at FP16": (compared("Less"), "10.3", "fp16", "comparison.precision"),
    **{
        f"{op} at FP16": (compared(op), "10.3", "fp16", "comparison.precision")
        for op in ("GreaterOrEqual", "LessOrEqual")
    },
    "repetition": (
        one("Tile", IMAGE, {"r": array(1, 2, 1, 1, kind="int64")}),
        "10.3",
        "fp16",
        "slice.operation-10",
    ),
    "square of 32": (
        deconv(weight=(16, 8, 32, 32), strides=[22, 22]),
        "8.5",
        "fp16",
        "deconvolution.square",
    ),
    "line of 65": (
        deconv(weight=(16, 8, 1, 65), strides=[1, 4]),
        "8.5",
        "fp16",
        "deconvolution.kernel",
    ),
    "square line": (
        deconv(weight=(16, 8, 64, 64), strides=[4, 4]),
        "8.5",
        "fp16",
        "deconvolution.kernel",
    ),
    "slice beside": (
        model(
            [
                node("Split", "x", "a b", axis=1),
                node("Reshape", "a s", "c", "target"),
                node("Reshape", "b s", "y"),
            ],
            {"x": (1, 16, 8, 8)},
            {"s": array(1, 8, 4, 16, kind="int64")},
        ),
        "10.3",
        "fp16",
        "shuffle.neighbour",
    ),
    "flattened": (
        one("Flatten", (1, 8, 4, 4)),
        "10.3",
        "fp16",
        "shuffle.rank",
    ),
    **{
        f"reduction on {line}": (one("GlobalMaxPool"), line, "fp16", "general.operator")
        for line in ("8.5", "8.6")
    },
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_outside_is_refused(name, tmp_path):
    """By the rule that says so."""
    made, line, precision, rule = REFUSED[name]
    found = target_of(inspected(made, tmp_path, line=line, precision=precision))
    assert rule in rules_broken(found)
    assert found.placement == "gpu"


# What the pages contradict each other on, or do not tell: no rule of NVIDIA's is claimed.
OPEN = {
    **{
        f"{op} at {precision}": (one(op), "10.3", precision, "unary.trigonometry")
        for op in ("Sin", "Cos", "Atan")
        for precision in ("fp16", "int8")
    },
    "quotient": (two("Div", IMAGE), "10.3", "int8", "elementwise.quotient"),
    "power": (one("Pow", IMAGE, {"e": array(2)}), "10.3", "int8", "elementwise.quotient"),
    "minimum": (two("Min", IMAGE), "8.6", "fp16", "elementwise.early-minimum"),
    "mask": (two("Mul", IMAGE, (1, 1, 4, 4)), "10.3", "fp16", "elementwise.broadcast"),
    "equality": (compared(), "8.6", "int8", "comparison.early"),
    "softmax at INT8": (one("Softmax", IMAGE, axis=1), "10.3", "int8", "softmax.precision"),
    "split at INT8": (one("Split", IMAGE, axis=1), "10.3", "int8", "slice.precision"),
    "reshaped batch": (
        one("Reshape", (2, 8, 4, 4), {"s": array(1, 16, 4, 4, kind="int64")}),
        "10.3",
        "fp16",
        "shuffle.batch",
    ),
}


@pytest.mark.parametrize("name", OPEN)
def test_what_is_not_told_is_unknown(name, tmp_path):
    """Neither on the DLA nor off it, by the rule that says why."""
    made, line, precision, rule = OPEN[name]
    found = target_of(inspected(made, tmp_path, line=line, precision=precision))
    assert (found.placement, rules_broken(found)) == ("unknown", {rule})


@pytest.mark.parametrize(("width", "is_ready"), [(60, True), (64, True), (65, False), (80, False)])
def test_the_buffer_ends_at_sixteen_banks(width, is_ready, tmp_path):
    """The last width that fits, and the first that does not."""
    made = conv(x=(1, 512, 16, width), weight=(8, 512, 7, 7))
    banks = buffer_banks(512, (7, 7), 1, width, 2)
    assert (banks <= 16) == is_ready
    found = target_of(inspected(made, tmp_path))
    assert ("convolution.buffer" not in rules_broken(found)) == is_ready
    # INT8 takes half of it.
    assert target_of(inspected(made, tmp_path, precision="int8")).placement == "dla"
