"""The rules: each judges right within and beyond its limits, and the pages list them all."""

import re
from pathlib import Path

import onnx
import pytest

from tegrascope.parsers.errors import UserError
from tegrascope.workbench.inspect.measures import buffer_banks
from tegrascope.workbench.inspect.rules import Rule, line_of, operators, rule_file, rules_of

from .cases import (
    CASES,
    Case,
    clip,
    compared,
    conv,
    deconv,
    gemm,
    pool,
    reshaped_after,
    resize,
    scaled,
    two,
)
from .made import array, inspected, model, node, one, rules_broken, target_of

RULES = {rule.id: rule for rule in rule_file().rules}


def oldest(rule: str) -> str:
    """Return the oldest TensorRT that has a rule."""
    return next(
        line.name
        for line in rule_file().lines
        if rule in {one.id for one in rules_of(line.name).rules}
    )


def test_each_rule_has_a_case_and_no_case_is_left_over():
    assert len(RULES) == len(rule_file().rules)
    assert set(CASES) == set(RULES)


@pytest.mark.parametrize("rule", sorted(CASES))
def test_the_breaking_model_is_refused_by_its_rule(rule, tmp_path):
    case: Case = CASES[rule]
    line = case.line or oldest(rule)
    given = {"line": line, "precision": case.precision, "is_strict": case.is_strict}
    found = target_of(inspected(case.breaks, tmp_path, **given))
    assert rule in rules_broken(found)
    others = {RULES[one].outcome for one in rules_broken(found)}
    assert found.placement == ("gpu" if "gpu" in others else "unknown")
    (finding,) = [one for one in found.findings if one.rule == rule]
    assert finding.is_open == (RULES[rule].outcome == "unknown")
    assert finding.page and finding.requirement and finding.found


@pytest.mark.parametrize("rule", sorted(CASES))
def test_the_keeping_model_runs_on_the_dla(rule, tmp_path):
    case: Case = CASES[rule]
    line = case.keeps_line or case.line or oldest(rule)
    precision = case.keeps_precision or case.precision
    found = target_of(inspected(case.keeps, tmp_path, line=line, precision=precision))
    assert rules_broken(found) == set()
    assert found.placement == "dla"


@pytest.mark.parametrize("line", [one.name for one in rule_file().lines])
def test_the_data_is_consistent(line):
    rules = rules_of(line)
    kinds = {one.layer for one in operators().values()} | {"scale", "*"}
    for rule in rules.rules:
        assert rule.page in rules.pages
        given = [rule.within, rule.outside, rule.one_of, rule.none_of]
        assert sum(one is not None for one in given) == 1, rule.id
        assert set(rule.layers) <= kinds, rule.id
        # The hint is in the rule, or else in the operator.
        assert rule.hint or rule.measure in ("is_supported", "operation"), rule.id
    assert rules.supported <= kinds


def test_releases_find_their_line():
    assert line_of("8.5.2.2-1+cuda11.4").name == "8.5"
    assert [line_of(one).name for one in ("8.6.2", "10.0.1", "10.7.0.23", "11.4.1.2")] == [
        "8.6",
        "10.3",
        "10.3",
        "11.4",
    ]
    for gone in ("8.0", "10.8.0", "10.16.2", "11.0", "11.4.0", "12.1", "newest"):
        assert line_of(gone) is None, gone
        with pytest.raises(UserError, match="name one of 8"):
            rules_of(gone)


IMAGE = (1, 8, 4, 4)


def normalized(first: str, factors: str) -> onnx.ModelProto:
    """A node, and factors per channel behind it: ``b`` a BatchNormalization, ``m`` a product."""
    weights = {"w": (16, 16, 1, 1), "s": (16,), "c": (1, 16, 1, 1)}
    nodes = [node(first, "x" if first == "Relu" else "x w", "h0")]
    for at, kind in enumerate(factors, 1):
        name = "target" if at == len(factors) else ""
        op, given = ("BatchNormalization", "s s s s") if kind == "b" else ("Mul", "c")
        nodes.append(node(op, f"h{at - 1} {given}", f"h{at}", name))
    return model(nodes, {"x": (1, 16, 8, 8)}, weights)


# Each operation that the pages list, at the oldest TensorRT that has it.
LISTED = [
    *[(op, one(op), "8.5", "fp16") for op in ("Relu", "Sigmoid", "Tanh", "LeakyRelu", "Abs")],
    *[(op, two(op, IMAGE), "8.5", "fp16") for op in ("Add", "Sub", "Mul", "Max", "Sum")],
    ("Min", two("Min", IMAGE), "10.3", "fp16"),
    *[(op, compared(op), "10.3", "int8") for op in ("Equal", "Greater", "Less")],
    ("Clip", clip(0, 1), "8.5", "fp16"),
    ("MaxPool", pool("MaxPool"), "8.5", "fp16"),
    ("AveragePool", pool("AveragePool"), "8.5", "fp16"),
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
    "deconvolution to its own size": deconv(x=(1, 16, 7, 7), output_shape=[14, 14]),
    "deconvolution of an odd image": deconv(x=(1, 16, 7, 7), auto_pad="SAME_UPPER"),
    "product behind a convolution's batch normalization": normalized("Conv", "bm"),
    "product behind a deconvolution": normalized("ConvTranspose", "m"),
}


@pytest.mark.parametrize("name", SMALLEST)
def test_the_smallest_runs(name, tmp_path):
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
    "reshape next to a slice": (
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
    "reshape next to a concatenation before 8.6": (
        reshaped_after("Concat"),
        "8.5",
        "fp16",
        "shuffle.neighbour",
    ),
    "padding beyond a dilated kernel": (
        conv(pads=[9] * 4, dilations=[4, 4]),
        "8.5",
        "fp16",
        "convolution.padding-in-kernel",
    ),
    **{
        f"output of {size} of a deconvolution": (
            deconv(weight=(16, 8, 3, 3), x=(1, 16, 8, 8), output_shape=[size, size]),
            "8.5",
            "fp16",
            "deconvolution.padding",
        )
        for size in (15, 16)
    },
    "deconvolution that doubles the size": (
        deconv(weight=(16, 8, 3, 3), auto_pad="SAME_UPPER"),
        "8.5",
        "fp16",
        "deconvolution.padding",
    ),
    "operator that the matrix lists as missing": (
        one("Shrink"),
        "8.6",
        "fp16",
        "general.operator",
    ),
    "plug-in without a domain": (
        one("EfficientNMS_TRT"),
        "10.3",
        "fp16",
        "general.known-operator",
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
def test_a_model_outside_the_limits_is_refused(name, tmp_path):
    made, line, precision, rule = REFUSED[name]
    found = target_of(inspected(made, tmp_path, line=line, precision=precision))
    assert rule in rules_broken(found)
    assert found.placement == "gpu"


# The pages contradict each other here, or say nothing: no rule of NVIDIA's is claimed.
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
    "batch normalization": (normalized("Relu", "b"), "10.3", "fp16", "scale.constant"),
    "equal product": (normalized("Relu", "m"), "10.3", "fp16", "scale.constant"),
    "product after a lone batch normalization": (
        normalized("Relu", "bm"),
        "10.3",
        "fp16",
        "scale.constant",
    ),
    "padding between a kernel's sides and its reach": (
        conv(pads=[8] * 4, dilations=[4, 4]),
        "10.3",
        "fp16",
        "convolution.padding-in-undilated-kernel",
    ),
    "output beyond a deconvolution's": (
        deconv(x=(1, 16, 8, 8), output_shape=[17, 17]),
        "10.3",
        "fp16",
        "deconvolution.output-padding",
    ),
    "reshaped batch": (
        one("Reshape", (2, 8, 4, 4), {"s": array(1, 16, 4, 4, kind="int64")}),
        "10.3",
        "fp16",
        "shuffle.batch",
    ),
}


@pytest.mark.parametrize("name", OPEN)
def test_a_contradiction_between_pages_is_unknown(name, tmp_path):
    made, line, precision, rule = OPEN[name]
    found = target_of(inspected(made, tmp_path, line=line, precision=precision))
    assert (found.placement, rules_broken(found)) == ("unknown", {rule})


# These are documented only at FP16.
ONLY_FP16 = {
    "softmax": (one("Softmax", IMAGE, axis=1), "softmax.precision"),
    "split": (one("Split", IMAGE, axis=1), "slice.precision"),
}


@pytest.mark.parametrize("name", ONLY_FP16)
@pytest.mark.parametrize("line", ["8.5", "8.6", "10.3"])
def test_an_int8_build_computes_in_fp16_what_has_no_int8_form_unless_it_is_strict(
    name, line, tmp_path
):
    made, rule = ONLY_FP16[name]
    found = inspected(made, tmp_path, line=line, precision="int8")
    assert (target_of(found).placement, found.allows_fp16) == ("dla", True)
    found = inspected(made, tmp_path, line=line, precision="int8", is_strict=True)
    assert (target_of(found).placement, found.allows_fp16) == ("unknown", False)
    assert rules_broken(target_of(found)) == {rule}


def test_a_node_that_breaks_a_rule_in_both_precisions_has_the_rules_that_no_choice_avoids(tmp_path):
    """At INT8 alone the softmax is too long and is not documented; at FP16 it is only too long."""
    made = one("Softmax", (1, 8192 + 1, 1, 1), axis=1)
    found = inspected(made, tmp_path, precision="int8")
    assert rules_broken(target_of(found)) == {"softmax.length", "general.dimension"}
    found = inspected(compared(right=(1, 1, 4, 4)), tmp_path, precision="int8")
    assert rules_broken(target_of(found)) == {"comparison.broadcast"}


def test_comparisons_stay_at_int8_in_a_build_that_allows_fp16(tmp_path):
    found = inspected(compared("Greater"), tmp_path, precision="int8")
    assert target_of(found).placement == "dla"


@pytest.mark.parametrize(("width", "is_ready"), [(60, True), (64, True), (65, False), (80, False)])
def test_the_buffer_ends_at_sixteen_banks(width, is_ready, tmp_path):
    made = conv(x=(1, 512, 16, width), weight=(8, 512, 7, 7))
    banks = buffer_banks(512, (7, 7), 1, width, 2)
    assert (banks <= 16) == is_ready
    found = target_of(inspected(made, tmp_path))
    assert ("convolution.buffer" not in rules_broken(found)) == is_ready
    # INT8 takes half of it.
    assert target_of(inspected(made, tmp_path, precision="int8")).placement == "dla"


DOCS = Path(__file__).parents[2] / "docs/dla"
PAIR = re.compile(
    r"^Before, breaks `(?P<rule>[^`]+)`:\n\n```onnx\n(?P<before>.*?)^```\n\n"
    r"After, on the DLA:\n\n```onnx\n(?P<after>.*?)^```",
    re.DOTALL | re.MULTILINE,
)
HEADER = '<ir_version: 9, opset_import: ["" : 17]>\n'
EXAMPLES = [
    pytest.param(found["rule"], found["before"], found["after"], id=f"{page.stem}-{found['rule']}")
    for page in sorted(DOCS.glob("*.md"))
    for found in PAIR.finditer(page.read_text(encoding="utf-8"))
]


def row(rule: Rule) -> str:
    """Return the line that a page has of a rule."""
    span = "all"
    if rule.since:
        span = f"from {rule.since}"
    if rule.until:
        span = f"before {rule.until}" if span == "all" else f"{rule.since} to before {rule.until}"
    says = rule.requirement + (f" ({', '.join(rule.precisions)})" if rule.precisions else "")
    sure = rule.certainty if rule.outcome == "gpu" else f"{rule.certainty}, open"
    page = rules_of("10.3").pages[rule.page]
    return f"| `{rule.id}` | {says} | {span} | {page} | {sure} |"


def test_pages_have_the_rules_of_the_data():
    found_lines = [
        line
        for page in DOCS.glob("*.md")
        for line in page.read_text(encoding="utf-8").splitlines()
        if re.match(r"\| `[\w-]+\.[\w-]+` \|", line)
    ]
    assert sorted(found_lines) == sorted(row(rule) for rule in rule_file().rules)


def test_the_index_has_every_page():
    index = (DOCS / "README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"\]\((\w+\.md)\)", index)) == {
        page.name for page in DOCS.glob("*.md") if page.name != "README.md"
    }


def test_every_family_has_an_example():
    for page in DOCS.glob("*.md"):
        if page.name != "README.md":
            assert PAIR.search(page.read_text(encoding="utf-8")), page.name


@pytest.mark.parametrize(("rule", "before", "after"), EXAMPLES)
def test_examples_are_judged_as_the_page_says(rule, before, after, tmp_path):
    line = next(
        one.name
        for one in reversed(rule_file().lines[:-1])
        if rule in {known.id for known in rules_of(one.name).rules}
    )
    found = inspected(onnx.parser.parse_model(HEADER + before), tmp_path, line=line)
    assert rule in {finding.rule for node in found.nodes for finding in node.findings}
    assert not found.is_ready
    found = inspected(onnx.parser.parse_model(HEADER + after), tmp_path, line=line)
    assert {finding.rule for node in found.nodes for finding in node.findings} == set()
    assert found.is_ready
