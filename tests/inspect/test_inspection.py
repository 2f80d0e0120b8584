"""Whole models: parts, verdicts, and comparisons with public builds."""

import itertools

import numpy
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from tegrascope.parsers.errors import UsageError
from tegrascope.parsers.onnx.graph import Graph, Node
from tegrascope.workbench.inspect.costs import number_parts
from tegrascope.workbench.inspect.rules import JudgedNode

from .made import HALF, axes, inspected, model, node, one, rules_broken, target_of

X = {"x": (1, 16, 8, 8)}


def ends(parts):
    return [(part.first, part.last) for part in parts]


def chain(*operators):
    """A model of nodes that follow each other, named by their place."""
    nodes = [
        node(op, f"t{at}" if at else "x", f"t{at + 1}", f"{op}_{at}")
        for at, op in enumerate(operators)
    ]
    return model(nodes, X)


def classifier(*normalize, pool, batch=32):
    """NVIDIA's tutorial model: four convolutions, each normalized, a mean, and a product.

    Args:
        normalize: Operators behind each convolution, of those that GroupNorm is exported as.
        pool: What takes the mean.
        batch: Of the input.
    """
    nodes, weights, source, channels, at = [], {}, "x", 3, 0

    def add(op, extra="", **attributes):
        nonlocal source, at
        nodes.append(node(op, f"{source} {extra}".strip(), f"h{at}", f"{op}_{at}", **attributes))
        source = f"h{at}"
        at += 1

    for layer, width in enumerate((64, 128, 256, 512)):
        side = 16 >> layer
        weights[f"w{layer}"] = (width, channels, 3, 3)
        add("Conv", f"w{layer}", strides=[2, 2], pads=[1, 1, 1, 1])
        for op in normalize:
            if op == "Reshape":
                name = f"s{at}"
                is_first = nodes[-1].op_type == "Conv"
                weights[name] = axes(batch, 8, -1) if is_first else axes(batch, width, side, side)
                add(op, name)
            elif op == "InstanceNormalization":
                weights |= {f"g{layer}": (8,), f"b{layer}": (8,)}
                add(op, f"g{layer} b{layer}")
            else:
                name = f"c{at}"
                weights[name] = (width, 1, 1)
                add(op, name)
        add("Relu")
        channels = width
    add(pool, **({"kernel_shape": [2, 2]} if pool == "AveragePool" else {}))
    add("Flatten")
    weights |= {"linear": (10, 512), "bias": (10,)}
    add("Gemm", "linear bias", transB=1)
    return model(nodes, {"x": (batch, 3, 32, 32)}, weights)


def test_group_norm_cuts_as_the_tutorial_shows(tmp_path):
    group_norm = ("Reshape", "InstanceNormalization", "Reshape", "Mul", "Add")
    found = inspected(classifier(*group_norm, pool="GlobalAveragePool"), tmp_path, line="8.5")
    assert ends(found.loadables)[:5] == [
        ("Conv_0", "Conv_0"),
        ("Relu_6", "Conv_7"),
        ("Relu_13", "Conv_14"),
        ("Relu_20", "Conv_21"),
        ("Relu_27", "Relu_27"),
    ]


@pytest.mark.parametrize("line", ["8.5", "8.6", "10.3"])
def test_a_global_mean_cuts_and_a_pooling_does_not(line, tmp_path):
    found = inspected(classifier(pool="GlobalAveragePool"), tmp_path, line=line)
    assert ends(found.loadables) == [("Conv_0", "Relu_7"), ("Gemm_10", "Gemm_10")]
    assert ends(found.islands) == [("GlobalAveragePool_8", "GlobalAveragePool_8")]
    assert (found.verdict, found.is_ready) == ("mixed", False)
    found = inspected(classifier(pool="AveragePool"), tmp_path, line=line)
    assert ends(found.loadables) == [("Conv_0", "Gemm_10")]
    assert (found.islands, found.verdict, found.is_ready) == ((), "dla", True)
    assert any("reshape on the GPU" in note for note in found.notes)


def resnet50():
    """ResNet-50 as torchvision exports it, without contents of its weights."""
    nodes, weights = [], {}

    def add(op, source, name, weight=(), **attributes):
        if weight:
            weights[f"{name}.w"] = weight
        given = f"{source} {name}.w" if weight else source
        nodes.append(node(op, given, name, name, **attributes))
        return name

    at = add("Conv", "x", "conv1", (64, 3, 7, 7), strides=[2, 2], pads=[3, 3, 3, 3])
    at = add("Relu", at, "relu")
    at = add("MaxPool", at, "maxpool", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    inputs = 64
    for stage, (blocks, width) in enumerate(((3, 64), (4, 128), (6, 256), (3, 512)), 1):
        for block in range(blocks):
            name, step = f"layer{stage}.{block}", [1 + (stage > 1 and block == 0)] * 2
            past = at
            at = add("Conv", at, f"{name}.conv1", (width, inputs, 1, 1))
            at = add("Relu", at, f"{name}.relu")
            spatial = {"strides": step, "pads": [1, 1, 1, 1]}
            at = add("Conv", at, f"{name}.conv2", (width, width, 3, 3), **spatial)
            at = add("Relu", at, f"{name}.relu_1")
            at = add("Conv", at, f"{name}.conv3", (4 * width, width, 1, 1))
            if block == 0:
                shortcut = (4 * width, inputs, 1, 1)
                past = add("Conv", past, f"{name}.downsample", shortcut, strides=step)
            at = add("Add", f"{at} {past}", f"{name}.add")
            at = add("Relu", at, f"{name}.relu_2")
            inputs = 4 * width
    at = add("GlobalAveragePool", at, "avgpool")
    at = add("Flatten", at, "flatten")
    add("Gemm", at, "fc", (1000, 2048), transB=1)
    return model(nodes, {"x": (1, 3, 224, 224)}, weights)


def test_resnet50_is_as_a_public_build_of_10_3_placed_it(tmp_path):
    found = inspected(resnet50(), tmp_path, line="10.3")
    assert ends(found.loadables) == [("conv1", "layer4.2.relu_2"), ("fc", "fc")]
    assert ends(found.islands) == [("avgpool", "avgpool")]
    assert [one.name for one in found.nodes if one.placement == "folded"] == ["flatten"]
    assert sum(one.placement == "dla" for one in found.nodes) == 120
    assert (found.convolutions.total, found.convolutions.pointwise) == (53, 36)


def test_a_path_over_the_gpu_separates_two_loadables(tmp_path):
    nodes = [
        node("Relu", "x", "a", "first"),
        node("Erf", "a", "b", "away"),
        node("Add", "a b", "y", "last"),
    ]
    found = inspected(model(nodes, X), tmp_path)
    assert ends(found.loadables) == [("first", "first"), ("last", "last")]
    assert found.loadables[1].inputs == ("a", "b")
    assert found.loadables[0].outputs == ("a",)


def test_branches_that_meet_are_one_loadable(tmp_path):
    nodes = [
        node("Relu", "x", "a", "first"),
        node("Sigmoid", "a", "b"),
        node("Mul", "a b", "c"),
        node("Erf", "c", "aside", "away"),
        node("Add", "c a", "y", "last"),
    ]
    found = inspected(model(nodes, X), tmp_path)
    assert ends(found.loadables) == [("first", "last")]
    assert [one.loadable for one in found.nodes] == [0, 0, 0, None, 0]
    assert [one.island for one in found.nodes] == [None, None, None, 0, None]


def test_a_loadable_is_joined_late_where_two_meet(tmp_path):
    nodes = [
        node("Relu", "x", "a"),
        node("Relu", "z", "b"),
        node("Erf", "a", "e"),
        node("Sigmoid", "e", "f", "behind"),
        node("Add", "a b", "c", "meet"),
        node("Add", "c f", "y", "last"),
    ]
    found = inspected(model(nodes, {**X, "z": (1, 16, 8, 8)}), tmp_path)
    numbers = {one.name: one.loadable for one in found.nodes}
    assert numbers["meet"] == numbers["Relu_0"] == numbers["Relu_1"]
    assert numbers["behind"] == numbers["last"] != numbers["meet"]


def test_another_batch_is_another_loadable(tmp_path):
    nodes = [
        node("Relu", "x", "a"),
        node("Reshape", "a s", "b"),
        node("Relu", "b", "y", "behind"),
    ]
    found = inspected(model(nodes, {"x": (2, 16, 8, 8)}, {"s": axes(1, 32, 8, 8)}), tmp_path)
    assert len(found.loadables) == 2


def test_more_loadables_than_a_core_holds_are_noted(tmp_path):
    found = inspected(chain(*["Relu", "Erf"] * 17), tmp_path)
    assert len(found.loadables) == 17
    assert found.loadable_limit == 16
    assert any(note.startswith("17 loadables: a core holds 16") for note in found.notes)
    found = inspected(chain(*["Relu", "Erf"] * 16), tmp_path)
    assert not any("loadables" in note for note in found.notes)


def test_a_model_without_dla_nodes_is_gpu_or_unknown(tmp_path):
    assert inspected(chain("Erf", "Exp"), tmp_path).verdict == "gpu"
    fancy = model([node("Fancy", "x", "y", "target", domain="mine")], X, domains=["mine"])
    found = inspected(fancy, tmp_path)
    assert (found.verdict, found.is_ready) == ("gpu", False)
    assert target_of(found).op == "mine.Fancy"
    assert inspected(chain("Cast"), tmp_path).verdict == "unknown"


def test_nodes_that_vanish_are_folded_or_constant(tmp_path):
    nodes = [
        node("Transpose", "w0", "w", perm=[0, 2, 1, 3]),
        node("Conv", "x w", "a"),
        node("BatchNormalization", "a s s s s", "b"),
        node("Dropout", "b", "c"),
        node("Reshape", "c r", "d"),
        node("Cast", "d", "e", to=1),
        node("Relu", "e", "y"),
    ]
    weights = {"w0": (8, 1, 16, 1), "s": (8,), "r": axes(1, 8, 8, 8)}
    found = inspected(model(nodes, X, weights), tmp_path)
    assert [one.placement for one in found.nodes] == [
        "constant",
        "dla",
        "folded",
        "folded",
        "folded",
        "folded",
        "dla",
    ]
    assert found.verdict == "dla"
    assert len(found.loadables) == 1


def test_batch_norm_that_another_reads_past_is_a_layer(tmp_path):
    nodes = [
        node("Conv", "x w", "a"),
        node("BatchNormalization", "a s s s s", "b", "target"),
        node("Add", "a b", "y"),
    ]
    found = inspected(model(nodes, X, {"w": (8, 16, 1, 1), "s": (8,)}), tmp_path)
    assert (target_of(found).layer, target_of(found).placement) == ("scale", "unknown")
    assert rules_broken(target_of(found)) == {"scale.constant"}


def test_a_concat_of_one_input_does_not_cut(tmp_path):
    nodes = [node("Relu", "x", "a"), node("Concat", "a", "b", "target", axis=2)]
    found = inspected(model([*nodes, node("Relu", "b", "y")], X), tmp_path)
    assert target_of(found).placement == "folded"
    assert (found.verdict, found.islands, len(found.loadables)) == ("dla", (), 1)


def exported_reshape():
    """A reshape to a shape that is computed from the input's, as exporters write it."""
    nodes = [
        node("Conv", "x w", "a"),
        node("Shape", "a", "s"),
        node("Gather", "s nought", "batch"),
        node("Unsqueeze", "batch nought1", "batch1"),
        node("Concat", "batch1 rest", "to", axis=0),
        node("Reshape", "a to", "y", "target"),
    ]
    weights = {
        "w": (8, 16, 1, 1),
        "nought": numpy.array(0, numpy.int64),
        "nought1": axes(0),
        "rest": axes(8, 4, 16),
    }
    return model(nodes, {"x": ("batch", 16, 8, 8)}, weights)


def test_open_dimensions_break_a_rule_until_they_are_fixed(tmp_path):
    found = inspected(exported_reshape(), tmp_path)
    assert found.verdict == "gpu"
    assert "general.dynamic-shape" in rules_broken(target_of(found))
    assert "input x is open: [batch, 16, 8, 8]; fix it: --shape x:1x16x8x8" in found.notes
    found = inspected(exported_reshape(), tmp_path, shapes={"x": (2, 16, 8, 8)})
    assert [one.placement for one in found.nodes] == ["dla", *["constant"] * 4, "dla"]
    assert found.verdict == "dla"


def windows(blocks):
    """Blocks that cut an image into windows of 7 × 7, by lengths computed from the shape."""
    weights = {"seven": axes(7), "hw": axes(1, 2)} | {f"at{at}": axes(at) for at in range(4)}
    nodes, source = [], "x"
    for block in range(blocks):

        def add(op, given, made, block=block, **attributes):
            names = " ".join(f"{one}.{block}" if one[0] == "_" else one for one in given.split())
            nodes.append(node(op, names, f"{made}.{block}", **attributes))

        add("Shape", source, "_shape")
        for at in range(4):
            add("Gather", f"_shape at{at}", f"_{at}")
        for at in (1, 2):
            add("Div", f"_{at} seven", f"_whole{at}")
            add("Cast", f"_whole{at}", f"_float{at}", to=1)
            add("Cast", f"_float{at}", f"_count{at}", to=7)
        add("Concat", "_0 _count1 seven _count2 seven _3", "_to", axis=0)
        add("Reshape", f"{source} _to", "_cut")
        add("Transpose", "_cut", "_turned", perm=[0, 1, 3, 2, 4, 5])
        add("Reshape", "_turned _shape", "_joined")
        add("Relu", "_joined", "relu")
        source = f"relu.{block}"
    return model(nodes, {"x": (1, 56, 56, 32)}, weights)


def test_shapes_that_each_block_computes_from_the_one_before_are_folded(tmp_path):
    found = inspected(windows(24), tmp_path)
    assert not any("unknown" in note and "shapes" in note for note in found.notes)
    assert not any("general.dynamic-shape" in rules_broken(one) for one in found.nodes)
    assert sum(one.op == "Relu" and one.placement == "dla" for one in found.nodes) == 24


def test_a_shape_that_is_not_inferred_is_open_and_not_broken(tmp_path):
    nodes = [
        node("NonZero", "x", "n"),
        node("Cast", "n", "f", to=1),
        node("Relu", "f", "y", "target"),
    ]
    found = inspected(model(nodes, X), tmp_path)
    (finding,) = [one for one in target_of(found).findings if one.rule == "general.dynamic-shape"]
    assert (finding.is_open, finding.hint) == (True, None)
    assert any("simplify the model first" in note for note in found.notes)


def test_an_input_with_more_open_dimensions_is_noted(tmp_path):
    found = inspected(one("Relu", ("n", 3, "h", "w")), tmp_path)
    assert "input x is open: [n, 3, h, w]; fix it: --shape x:1x3x?x?" in found.notes
    assert found.remedy == "--shape x:1x3x?x?"


def test_a_shape_fixes_dimensions_of_the_same_name(tmp_path):
    nodes = [node("Add", "a b", "y", "target")]
    made = model(nodes, {"a": ("n", 8, 4, 4), "b": ("n", 8, 4, 4)})
    assert inspected(made, tmp_path, shapes={"a": (2, 8, 4, 4)}).verdict == "dla"


def test_types_of_a_strongly_typed_tensorrt(tmp_path):
    found = inspected(one("Relu"), tmp_path, line="11.4")
    assert found.verdict == "gpu"
    assert {kind.precision: kind.verdict for kind in found.types} == {
        "fp16": "convert",
        "int8": "convert",
    }
    assert "autocast --target_dla" in found.types[0].message
    assert inspected(one("Relu"), tmp_path, line="11.4", precision="fp16").verdict == "dla"
    found = inspected(one("Relu", kind=HALF), tmp_path, line="11.4")
    assert (found.verdict, found.types[0].verdict) == ("dla", "ready")


def quantised(kind=1):
    nodes = [
        node("QuantizeLinear", "x s z", "q0"),
        node("DequantizeLinear", "q0 s z", "d0"),
        node("QuantizeLinear", "w s z", "q1"),
        node("DequantizeLinear", "q1 s z", "d1"),
        node("Conv", "d0 d1", "a", "target"),
        node("QuantizeLinear", "a s z", "q2"),
        node("DequantizeLinear", "q2 s z", "y"),
    ]
    weights = {
        "s": numpy.array(0.1, numpy.float32),
        "z": numpy.array(0, numpy.int8),
        "w": (32, 16, 3, 3),
    }
    return model(nodes, X, weights, kind=kind)


def test_quantised_models(tmp_path):
    found = inspected(quantised(), tmp_path, line="11.4")
    assert (found.precision, found.verdict) == ("int8", "dla")
    assert [one.placement for one in found.nodes][2:5] == ["constant", "constant", "dla"]
    assert found.types[1].verdict == "ready"
    found = inspected(quantised(), tmp_path, line="10.3")
    assert found.verdict == "mixed"
    assert found.types[1].verdict == "convert"
    assert rules_broken(found.nodes[0]) == {"general.explicit-quantization"}
    assert inspected(one("Relu"), tmp_path, line="10.3").types[1].verdict == "calibration"


def in_int8(*, requantised):
    """A softmax behind dequantised data; its result is quantised again, or stays as it is."""
    nodes = [
        node("QuantizeLinear", "x s z", "q0"),
        node("DequantizeLinear", "q0 s z", "d0"),
        node("Softmax", "d0", "y" if not requantised else "a", "target", axis=1),
    ]
    if requantised:
        nodes += [node("QuantizeLinear", "a s z", "q1"), node("DequantizeLinear", "q1 s z", "y")]
    weights = {"s": numpy.array(0.1, numpy.float16), "z": numpy.array(0, numpy.int8)}
    return model(nodes, X, weights, opset=19, kind=HALF)


def test_a_strongly_typed_build_is_judged_by_the_types_of_the_model(tmp_path):
    found = inspected(in_int8(requantised=True), tmp_path, line="11.4")
    assert (found.precision, found.allows_fp16) == ("int8", False)
    assert rules_broken(target_of(found)) == {"softmax.precision"}
    found = inspected(in_int8(requantised=False), tmp_path, line="11.4")
    assert target_of(found).placement == "dla"


def test_a_build_of_fp16_or_by_the_model_s_types_cannot_be_strict(tmp_path):
    for build in ({"precision": "fp16"}, {"precision": "int8", "line": "11.4"}, {}):
        with pytest.raises(UsageError, match="cannot be strictly INT8"):
            inspected(one("Relu"), tmp_path, is_strict=True, **build)


def test_requirements_of_int8_on_scales_are_noted(tmp_path):
    nodes = [
        node("MaxPool", "x", "a", kernel_shape=[2, 2]),
        node("Sigmoid", "a", "y"),
    ]
    found = inspected(model(nodes, X), tmp_path, precision="int8")
    assert [note.split(":")[0] for note in found.notes] == ["INT8", "INT8"]
    assert "1 pooling or concatenation" in found.notes[0]
    assert inspected(model(nodes, X), tmp_path, precision="fp16").notes == ()


def test_channels_that_leave_the_hardware_idle(tmp_path):
    nodes = [
        node("Conv", "x w0", "a", "stem"),
        node("Conv", "a w1", "b", "depthwise", group=24),
        node("Conv", "b w2", "y", "point"),
    ]
    weights = {"w0": (24, 3, 3, 3), "w1": (24, 1, 3, 3), "w2": (33, 24, 1, 1)}
    made = model(nodes, {"x": (1, 3, 32, 32)}, weights)
    found = inspected(made, tmp_path)
    hints = [(hint.name, hint.channels, hint.count, hint.multiple) for hint in found.alignment]
    assert hints == [
        ("point", "output", 33, 16),
        ("stem", "output", 24, 16),
        ("point", "input", 24, 16),
    ]
    assert found.alignment[0].waste_ratio == pytest.approx(15 / 48)
    assert {hint.multiple for hint in inspected(made, tmp_path, precision="int8").alignment} == {32}
    share = found.convolutions
    assert (share.total, share.pointwise, share.depthwise, share.grouped) == (3, 1, 1, 0)


def test_softmax_of_old_opsets_takes_all_from_its_axis_on(tmp_path):
    old = one("Softmax", (1, 4, 50, 50), opset=12, axis=1)
    assert rules_broken(target_of(inspected(old, tmp_path))) == {"softmax.length"}
    new = one("Softmax", (1, 4, 50, 50), opset=13, axis=1)
    assert target_of(inspected(new, tmp_path)).placement == "dla"


def test_a_detector_of_8400_boxes_is_too_wide_for_one_dimension(tmp_path):
    found = target_of(inspected(one("Softmax", (1, 16, 4, 8400), axis=1), tmp_path))
    assert "general.dimension" in rules_broken(found)


def test_hard_swish_as_its_hint_writes_it_is_ready(tmp_path):
    assert not inspected(one("HardSwish"), tmp_path).is_ready
    nodes = [
        node("Add", "x three", "a"),
        node("Clip", "a nought six", "b"),
        node("Mul", "x b", "c"),
        node("Mul", "c sixth", "y"),
    ]
    numbers = {"three": 3, "nought": 0, "six": 6, "sixth": 1 / 6}
    weights = {name: numpy.array(value, numpy.float32) for name, value in numbers.items()}
    assert inspected(model(nodes, X, weights), tmp_path).verdict == "dla"


def test_same_padding_is_computed(tmp_path):
    made = one(
        "Conv", (1, 4, 80, 80), {"w": (4, 4, 65, 1)}, auto_pad="SAME_UPPER", dilations=[1, 1]
    )
    assert "convolution.padding" in rules_broken(target_of(inspected(made, tmp_path)))
    made = one("Conv", (1, 4, 80, 80), {"w": (4, 4, 3, 3)}, auto_pad="SAME_UPPER", strides=[2, 2])
    assert target_of(inspected(made, tmp_path)).placement == "dla"


def test_functions_of_the_model_are_inlined(tmp_path):
    made = model([node("Swish2", "x", "y", "call", domain="mine")], X, domains=["mine"])
    body = [node("Sigmoid", "v", "s"), node("Mul", "v s", "r")]
    opsets = [helper.make_opsetid("", 17)]
    made.functions.append(helper.make_function("mine", "Swish2", ["v"], ["r"], body, opsets))
    found = inspected(made, tmp_path)
    assert [one.op for one in found.nodes] == ["Sigmoid", "Mul"]
    assert found.verdict == "dla"


def test_an_open_rule_has_no_hint(tmp_path):
    nodes = [node("Mine", "x", "a", "mine", domain="acme"), node("Relu", "a", "y", "target")]
    found = target_of(inspected(model(nodes, X, domains=["acme"]), tmp_path))
    assert found.placement == "unknown"
    assert "the model does not determine it" in {one.found for one in found.findings}
    assert {
        one.hint for one in found.findings if one.found == "the model does not determine it"
    } == {None}


def test_no_flag_makes_bfloat16_half(tmp_path):
    made = model([node("Relu", "x", "y", "target")], X, kind=onnx.TensorProto.BFLOAT16)
    fp16 = inspected(made, tmp_path).types[0]
    assert (fp16.precision, fp16.verdict) == ("fp16", "convert")


def test_branches_and_loops_are_off_the_dla(tmp_path):
    branch = helper.make_graph(
        [node("Relu", "x", "r")], "branch", [], [helper.make_empty_tensor_value_info("r")]
    )
    made = model(
        [node("If", "c", "y", "target", then_branch=branch, else_branch=branch)],
        X,
    )
    made.graph.input.append(helper.make_tensor_value_info("c", onnx.TensorProto.BOOL, []))
    found = target_of(inspected(made, tmp_path))
    assert found.placement == "gpu"
    assert found.findings[0].hint == "export one of its branches"


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.tuples(st.sampled_from(["dla", "dla", "gpu", "folded"]), st.data()), max_size=14)
)
def test_loadables_are_whole_and_as_large_as_can_be(drawn):
    nodes, judged, needs = [], [], []
    for at, (placement, data) in enumerate(drawn):
        given = data.draw(st.lists(st.integers(0, at - 1), max_size=2)) if at else []
        names = tuple(f"t{one}" for one in given) or ("x",)
        nodes.append(Node(index=at, name=f"n{at}", op="Relu", inputs=names, outputs=(f"t{at}",)))
        judged.append(JudgedNode(index=at, name=f"n{at}", op="Relu", placement=placement))
        own = {one for need in given for one in needs[need]}
        needs.append(own if placement == "folded" else {at})
    graph = Graph(inputs=("x",), nodes=tuple(nodes))
    numbered, loadables, islands = number_parts(graph, judged)
    parts = [set(part.nodes) for part in (*loadables, *islands)]
    assert sorted(one for part in parts for one in part) == [
        one.index for one in judged if one.placement != "folded"
    ]
    edges = {
        (source, node.index)
        for node in nodes
        if judged[node.index].placement != "folded"
        for name in node.inputs
        if name != "x"
        for source in needs[int(name[1:])]
    }

    def can_run(groups):
        """Whether the groups can be run one after the other, each in one go."""
        group_of = {one: number for number, group in enumerate(groups) for one in group}
        waits = {(group_of[start], group_of[end]) for start, end in edges}
        waits = {(start, end) for start, end in waits if start != end}
        left = set(range(len(groups)))
        while left:
            ready = left - {end for start, end in waits if start in left}
            if not ready:
                return False
            left -= ready
        return True

    assert can_run(parts)
    for part in parts:
        assert len({judged[one].placement for one in part}) == 1
    for first, second in itertools.permutations(parts, 2):
        alike = judged[min(first)].placement == judged[min(second)].placement
        if alike and any(start in first and end in second for start, end in edges):
            others = [part for part in parts if part not in (first, second)]
            assert not can_run([*others, first | second])
    assert [one.loadable is not None for one in numbered] == [
        one.placement == "dla" for one in judged
    ]
