"""Which layers a setting names, and what the inspector of an engine shows of them."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tegrascope.parsers.errors import UserError
from tegrascope.parsers.inference.layer_precisions import (
    check_allowed,
    expand,
    fits,
    notes_of,
    pattern_for,
    read_back,
    recorded,
)
from tegrascope.parsers.inference.placement import HeldLayer


@given(st.lists(st.text("ab.", max_size=3), min_size=1, max_size=4), st.data())
def test_a_star_stands_for_any_text(parts, data):
    pattern = "*".join(parts)
    filled = [part + data.draw(st.text("abc*.", max_size=3)) for part in parts[:-1]]
    assert fits(pattern, "".join([*filled, parts[-1]]))


@pytest.mark.parametrize(
    ("pattern", "name", "is_named"),
    [
        ("model.22*", "model.22/cv2/Conv", True),
        ("model.22*", "model.2/cv2/Conv", False),
        ("Split_36", "Split_36", True),
        ("Split_3*6", "Split_36", True),
        ("Split_36", "Split_361", False),
        ("ab*ba", "aba", False),  # the two ends do not share text
        ("*a*a*", "banana", True),
        ("*a*a*", "bana", True),
        ("*a*a*", "bna", False),
        ("(Unnamed Layer* 3) [Shuffle]", "(Unnamed Layer* 3) [Shuffle]", True),
        ("Conv.1", "Conv_1", False),
    ],
)
def test_names_and_patterns(pattern, name, is_named):
    assert fits(pattern, name) is is_named


def test_a_whole_name_goes_before_patterns_and_the_last_pattern_before_others():
    precisions = {"head/conv": "fp32", "*": "int8", "head*": "fp16"}
    assert pattern_for(precisions, ["head/conv"]) == "head/conv"
    assert pattern_for(precisions, ["head/relu"]) == "head*"
    assert pattern_for(precisions, ["body"]) == "*"
    assert pattern_for({"head*": "fp16"}, ["body"]) is None


def test_patterns_become_nodes_and_whole_names_stay():
    """Trtexec of 8.x takes no pattern, and layers of TensorRT's own making are no nodes."""
    asked = expand({"head*": "fp16", "ONNXTRT_Broadcast_3": "fp32"}, ["body", "head1", "head2"])
    assert asked == {"head1": "fp16", "head2": "fp16", "ONNXTRT_Broadcast_3": "fp32"}
    assert expand({"h*": "fp32", "*": "fp16"}, ["h"]) == {"h": "fp16"}
    with pytest.raises(UserError, match=r"names haed\*, and no layer .* did you mean head1"):
        expand({"haed*": "fp16"}, ["body", "head1"])


@pytest.mark.parametrize(
    ("build", "allowed"), [("fp32", {"fp32"}), ("fp16", {"fp16", "fp32"}), ("int8", None)]
)
def test_a_build_has_its_own_precision_and_higher_ones(build, allowed):
    for precision in ("fp32", "fp16", "int8"):
        if allowed is None or precision in allowed:
            check_allowed({"a": precision}, build)
        else:
            with pytest.raises(UserError, match=f"set precision: {precision}"):
                check_allowed({"a": precision}, build)


def layer(name, kind, printed, *nodes, weights=None):
    found = {
        "Name": name,
        "LayerType": kind,
        "Inputs": [{"Format/Datatype": f"Row major linear {printed}"}],
        "Metadata": "".join(f"[ONNX Layer: {node}]" for node in nodes),
    }
    if weights is not None:
        found["Weights"] = {"Type": weights, "Count": 9}
    return found


INSPECTOR = json.dumps(
    {
        "Layers": [
            layer("Reformatting CopyNode for Input Tensor 0 to conv", "Reformat", "Int8 format"),
            layer("conv + PWN(relu)", "CaskConvolution", "FP32 format", "conv", weights="Half"),
            layer("Split_36", "Shuffle", "Int8 format", "Split_36"),
            layer("Split_36_1", "CaskPooling", "FP16 format", "Split_36"),
            layer("{ForeignNode[a...b]}", "Myelin", "FP16 format", "a", "b"),
            layer("pool", "CaskPooling", "Int8 format", "pool"),
        ]
    }
)


def test_the_inspector_shows_the_type_in_which_each_layer_computes():
    asked = dict.fromkeys(("conv", "relu", "Split_36", "a", "gone", "pool"), "fp16")
    assert {held.name: held.found for held in read_back(INSPECTOR, asked)} == {
        "conv": "fp16",  # by its weights, whatever a reformat feeds it
        "relu": "fp16",  # fused into conv, and only in its name
        "Split_36": "fp16",
        "a": None,  # inside a subgraph
        "gone": None,
        "pool": "int8",
    }


def test_a_note_counts_the_layers_and_names_one_that_differs():
    asked = dict.fromkeys(("conv", "a", "pool"), "fp16")
    [note] = notes_of(read_back(INSPECTOR, asked))
    assert note == (
        "layer_precisions: 1 of 3 layers compute as asked, 1 are not shown (merged, or inside a"
        " subgraph); pool computes in int8, not in fp16"
    )
    assert notes_of(()) == ()


def test_a_record_has_the_layers_that_differ_before_others():
    kept = [HeldLayer(name=f"k{at}", asked="fp16", found="fp16") for at in range(100)]
    hidden = HeldLayer(name="hidden", asked="fp16")
    wrong = HeldLayer(name="wrong", asked="fp16", found="int8")
    found = recorded([hidden, *kept, wrong])
    assert (len(found), found[0], hidden in found) == (64, wrong, False)
