"""The search for the layers that have to be held at a higher precision."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tegrascope.parsers.errors import UserError
from tegrascope.workbench.bench.precision_search import candidates_of, search
from tests.fakes.models import write_chain

NAMES = [f"layer{at}" for at in range(200)]


@settings(deadline=None, max_examples=200)
@given(st.sets(st.integers(0, 199), min_size=1, max_size=6))
def test_planted_layers_are_found_with_few_engines(places):
    planted = {NAMES[at] for at in places}
    tried = []

    def is_right(held):
        tried.append(frozenset(held))
        return planted <= set(held)

    verdict, layers = search(NAMES, is_right, 1000)
    assert (verdict, layers) == ("found", tuple(NAMES[at] for at in sorted(places)))
    assert len(tried) == len(set(tried)), "no engine is built twice"
    each = 2 * (math.log2(200 / len(places)) + 2)
    assert len(tried) <= 2 + each * len(places)


@settings(deadline=None, max_examples=200)
@given(st.lists(st.sets(st.integers(0, 15), min_size=1, max_size=3), min_size=1, max_size=4))
def test_no_layer_of_the_result_can_be_left_out(cures):
    """Any one of several sets makes the outputs right; which is found is open."""
    names = NAMES[:16]

    def is_right(held):
        return any({names[at] for at in cure} <= set(held) for cure in cures)

    verdict, layers = search(names, is_right, 1000)
    assert verdict == "found" and is_right(layers)
    for left_out in layers:
        assert not is_right([name for name in layers if name != left_out])


def test_what_needs_no_layer_or_more_than_all_of_them_is_said():
    assert search(NAMES, lambda _: True, 9) == ("none_needed", ())
    assert search(NAMES, lambda _: False, 9) == ("not_enough", ())
    assert search([], lambda _: False, 9) == ("not_enough", ())


@settings(deadline=None, max_examples=200)
@given(st.data())
def test_the_result_is_right_even_if_more_layers_may_spoil_it(data):
    names = NAMES[:8]
    answers = {frozenset(): False, frozenset(names): True}

    def is_right(held):
        key = frozenset(held)
        if key not in answers:
            answers[key] = data.draw(st.booleans())
        return answers[key]

    verdict, layers = search(names, is_right, 1000)
    assert (verdict, answers[frozenset(layers)]) == ("found", True)


def test_the_smallest_right_set_is_kept_when_the_engines_run_out():
    planted = {"layer3", "layer150"}
    verdict, layers = search(NAMES, lambda held: planted <= set(held), 5)
    assert verdict == "stopped"
    assert planted <= set(layers) and len(layers) <= 200
    assert search(NAMES, lambda held: planted <= set(held), 1) == ("stopped", ())


def test_candidates_are_nodes_that_may_become_layers(tmp_path):
    model = write_chain(tmp_path / "m.onnx", "Relu", "Identity", "Relu", "Sigmoid")
    assert candidates_of(model, ()) == ["relu0", "relu2", "sigmoid3"]
    assert candidates_of(model, ["relu*", "sigmoid3"]) == ["relu0", "relu2", "sigmoid3"]
    assert candidates_of(model, ["*2"]) == ["relu2"]
    with pytest.raises(UserError, match=r"no node of .* is named so"):
        candidates_of(model, ["conv*"])
    large = write_chain(tmp_path / "l.onnx", *["Relu"] * 1025)
    with pytest.raises(UserError, match="has 1025 nodes, and at most 1024"):
        candidates_of(large, ())
