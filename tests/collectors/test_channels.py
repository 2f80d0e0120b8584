"""Outputs by channel: planted corruptions are caught, and good copies are not accused."""

import random
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy
import onnx
import pytest

from tegrascope.collectors.backends.base import make_varied
from tegrascope.collectors.models.rounded import write_rounded
from tegrascope.collectors.worker.channels import as_channels, channel_axes, channel_errors
from tegrascope.collectors.worker.outputs import compare
from tests.fakes.structures import SIDE, STRUCTURES, build, lowered, run

ROUNDS = 5
# Seeds are drawn at run time, and printed with each failure.
SEED = random.SystemRandom().randrange(1 << 30)
DETECTORS = ("yolov5", "yolov8", "yolo11")
BLANK = numpy.zeros((8, 3, SIDE, SIDE), "f4")


class Case(NamedTuple):
    """Outputs of one network, of its copies, and which of its channels are judged."""

    name: str
    model: onnx.ModelProto
    images: Any
    expected: list[Any]
    rounded: list[Any]
    copies: dict[str, list[Any]]


def outputs_of(model: onnx.ModelProto, images: Any) -> list[Any]:
    found = run(model, images)
    return [found[name] for name in sorted(found)]


@cache
def case(name: str, number: int, folder: Path) -> Case:
    seed = SEED % 1_000_000 + 100 * number
    model = build(name, seed, make_varied(BLANK, seed + 50))
    images = make_varied(BLANK, seed)
    (folder / "whole.onnx").write_bytes(model.SerializeToString())
    assert write_rounded(folder / "whole.onnx", folder / "rounded.onnx")
    rounded = outputs_of(onnx.load(folder / "rounded.onnx"), images)
    copies = {kind: outputs_of(lowered(model, kind), images) for kind in ("fp16", "bf16")}
    return Case(name, model, images, outputs_of(model, images), rounded, copies)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("channels")


def test_good_copies_are_not_accused(folder):
    accused, shares = [], {}
    for name in STRUCTURES:
        judged, total = {"fp16": 0, "bf16": 0}, 0
        for number in range(ROUNDS):
            known = case(name, number, folder)
            for kind, given in known.copies.items():
                found = compare(known.expected, given, kind, known.rounded)
                if found.verdict == "wrong":
                    accused.append((name, number, kind, found.reason))
                judged[kind] += found.channels.judged
            total += found.channels.channels
        shares[name] = (judged["fp16"] / total, judged["bf16"] / total)
        print(f"{name}: judged in fp16 {shares[name][0]:.1%}, in bf16 {shares[name][1]:.1%}")
    assert len(accused) <= 1, (SEED, accused)
    assert min(half for half, _ in shares.values()) >= 0.9, (SEED, shares)


# --- corruptions ----------------------------------------------------------------------------------


def judged_channels(known: Case, kind: str) -> list[tuple[int, int]]:
    """Return the judged channels as output and number."""
    found: list[tuple[int, int]] = []
    for at, (want, given, rounded) in enumerate(
        zip(known.expected, known.copies[kind], known.rounded, strict=True)
    ):
        del given
        errors = channel_errors(want, want, rounded)
        step = 3 * (errors.rounding * {"fp16": 0.125, "bf16": 1.0}[kind] + 2.0**-24)
        found += [(at, int(one)) for one in numpy.flatnonzero(errors.spread >= 3 * step)]
    return found


def channel(output: Any, number: int) -> tuple[Any, ...]:
    """Return the index of a channel of an output; this test has outputs with one axis of them."""
    (axis,) = channel_axes(output.shape)
    return (*[slice(None)] * axis, number)


def corrupt(known: Case, kind: str, how: str, drawn: random.Random) -> list[Any] | None:
    """Return a good copy with one fault, or None if this network has no place for it."""
    given = [one.copy() for one in known.copies[kind]]
    judged = judged_channels(known, kind)
    if not judged:
        return None
    at, number = drawn.choice(judged)
    index = channel(given[at], number)
    values = given[at][index]
    if how == "clipped":
        return outputs_of(lowered(known.model, kind, clipped=0.25), known.images)
    if how == "dead":
        given[at][index] = 0
    elif how == "constant":
        given[at][index] = values.mean()
    elif how == "random":
        source = numpy.random.RandomState(drawn.randrange(1 << 30))
        given[at][index] = source.permutation(values.reshape(-1)).reshape(values.shape)
    elif how == "scaled":
        given[at][index] = values * drawn.choice([0.5, 0.7, 1.4, 2.0])
    elif how == "nan":
        values[tuple(drawn.randrange(length) for length in values.shape)] = numpy.nan
        given[at][index] = values
    elif how == "swapped":
        others = [one for output, one in judged if output == at and one != number]
        if not others:
            return None
        other = channel(given[at], drawn.choice(others))
        given[at][index], given[at][other] = given[at][other].copy(), values.copy()
    elif how == "shifted":
        # Boxes, by 5 % of the image or of the range of their offsets.
        if known.name in DETECTORS and number < 4:
            by = SIDE * 0.05
        elif known.name in ("ssd", "retinanet") and at == 0:
            by = 0.05 * float(numpy.ptp(values))
        else:
            return None
        given[at][index] = values + numpy.float32(by)
    elif how == "last input":
        # As of a batch whose inputs were mixed up.
        given[at][index] = numpy.roll(values, 1, axis=0)
    return given


KINDS = (
    "dead",
    "constant",
    "random",
    "scaled",
    "nan",
    "swapped",
    "shifted",
    "clipped",
    "last input",
)


def is_planted(known: Case, kind: str, given: list[Any]) -> bool:
    """Return whether a fault is three times as large as the error of the good copy."""
    if any(numpy.isnan(one).any() for one in given):
        return True
    judged = set(judged_channels(known, kind))
    for at, (want, bad, good) in enumerate(
        zip(known.expected, given, known.copies[kind], strict=True)
    ):
        large = channel_errors(want, bad, None).error
        small = channel_errors(want, good, None).error
        for number in numpy.flatnonzero(large >= 3 * small):
            if (at, int(number)) in judged and large[number] > 0:
                return True
    return False


def test_planted_corruptions_are_caught(folder):
    drawn = random.Random(SEED)
    missed, planted = [], 0
    for name in STRUCTURES:
        for number in range(10):
            known = case(name, number % ROUNDS, folder)
            while True:
                kind, how = drawn.choice(("fp16", "bf16")), drawn.choice(KINDS)
                given = corrupt(known, kind, how, drawn)
                if given is not None and is_planted(known, kind, given):
                    break
            planted += 1
            found = compare(known.expected, given, kind, known.rounded)
            if found.verdict != "wrong":
                missed.append((name, number, kind, how, found.channels))
    assert planted == 100
    assert len(missed) <= 1, (SEED, missed)


def test_blind_detector_is_wrong_at_every_precision(folder):
    known = case("yolov8", 0, folder)
    blind = [one.copy() for one in known.expected]
    # Boxes drown the scores in a norm over the whole output.
    blind[0][:, 4:] = 0
    for precision in ("fp32", "fp16", "bf16", "int8"):
        found = compare(known.expected, blind, precision, known.rounded)
        assert found.relative_error < 0.05
        if precision in ("bf16", "int8") and found.channels.judged == 0:
            # No score moves by three steps of so coarse a precision. That is never called good.
            assert found.verdict == "unjudged"
            continue
        assert found.verdict == "wrong"
        if precision in ("fp32", "fp16"):  # coarser ones may leave a score unjudged
            assert found.channels.wrong_channels == ("output 1: 4-9",)
        assert found.channels.wrong >= 4
        assert "judged channels are off, by up to 1" in found.reason


def test_lost_channels_are_wrong_in_int8(folder):
    drawn = random.Random(SEED)
    missed, planted = [], 0
    for name in STRUCTURES:
        known = case(name, 0, folder)
        for how in ("dead", "constant", "random", "swapped"):
            given = corrupt(known, "bf16", how, drawn)
            if given is None:
                continue
            planted += 1
            found = compare(known.expected, given, "int8", known.rounded)
            if found.verdict != "wrong":
                missed.append((name, how, found.channels))
    assert planted >= 30
    assert len(missed) <= 3, (SEED, missed)


def test_channels_that_do_not_vary_are_named_and_not_judged():
    random_values = numpy.random.RandomState(1).normal(size=(8, 5, 400)).astype("f4")
    random_values[:, 3] = 0.25
    found = compare([random_values], [random_values], "fp16")
    assert (found.verdict, found.unjudged) == ("good", 1)
    assert found.channels.unjudged_channels == ("output 1: 3",)
    constant = numpy.repeat(random_values[:1], 8, axis=0)
    found = compare([constant], [constant], "fp16")
    assert (found.verdict, found.channels.judged) == ("unjudged", 0)
    assert found.reason == "the reference gives nearly the same answer to all inputs"
    # One input alone has no spread.
    assert compare([random_values[:1]], [random_values[:1]]).verdict == "unjudged"


def test_error_is_that_over_the_inputs_and_not_over_the_places():
    places = numpy.linspace(0, 640, 500, dtype="f4")
    random_state = numpy.random.RandomState(2)
    want = (places + random_state.normal(scale=2.0, size=(8, 2, 500))).astype("f4")
    found = channel_errors(want, want + 1, None)
    assert found.spread == pytest.approx([2.0, 2.0], rel=0.05)
    assert found.error == pytest.approx([1.0, 1.0], rel=1e-4)


@pytest.mark.parametrize("shape", [(8,), (8, 10), (8, 4, 9), (8, 9, 4), (8, 2, 3, 3, 5), (2, 0, 6)])
def test_each_number_belongs_to_one_channel(shape):
    values = numpy.arange(numpy.prod(shape)).reshape(shape)
    by_channel = as_channels(values)
    assert len(by_channel) == shape[0]
    assert sorted(by_channel.reshape(-1)) == sorted(values.reshape(-1))


@pytest.mark.parametrize(("dtype", "bits"), [("f4", 16), ("f2", 3)])
def test_weights_are_rounded_and_vectors_are_not(tmp_path, dtype, bits):
    values = numpy.random.RandomState(3).normal(size=(40, 30)).astype(dtype)
    graph = onnx.helper.make_graph(
        [
            onnx.helper.make_node("Identity", ["w"], ["out"]),
            onnx.helper.make_node(
                "Constant", [], ["own"], value=onnx.numpy_helper.from_array(values, "of a node")
            ),
        ],
        "weights",
        [],
        [onnx.helper.make_tensor_value_info("out", onnx.TensorProto.FLOAT, [40, 30])],
        [
            onnx.numpy_helper.from_array(values, "w"),
            onnx.numpy_helper.from_array(values[0].copy(), "vector"),
            onnx.numpy_helper.from_array(numpy.arange(6).reshape(2, 3), "whole numbers"),
        ],
    )
    onnx.save(onnx.helper.make_model(graph), tmp_path / "a.onnx")
    assert write_rounded(tmp_path / "a.onnx", tmp_path / "b.onnx")
    graph = onnx.load(tmp_path / "b.onnx").graph
    of_node = onnx.numpy_helper.to_array(graph.node[1].attribute[0].t)
    made = [
        onnx.numpy_helper.to_array(one) for one in onnx.load(tmp_path / "b.onnx").graph.initializer
    ]
    assert not (made[0].view(f"u{values.itemsize}") & ((1 << bits) - 1)).any()
    off = numpy.abs(made[0].astype("f8") - values) / numpy.abs(values.astype("f8"))
    assert 2**-9 < off.max() <= 2**-8
    assert (of_node == made[0]).all()
    assert (made[1] == values[0]).all()
    assert made[2].tolist() == [[0, 1, 2], [3, 4, 5]]


def test_varied_inputs_are_the_same_everywhere_and_differ_from_each_other():
    usual = numpy.zeros((4, 3, 64, 64), "f2")
    first, second = make_varied(usual, 0), make_varied(usual, 4)
    assert first.dtype == usual.dtype
    assert (make_varied(usual[:1], 5) == second[1:2]).all()
    items = numpy.concatenate([first, second]).reshape(8, -1).astype("f8")
    assert numpy.abs(numpy.corrcoef(items) - numpy.eye(8)).max() < 0.5
    tokens = make_varied(numpy.zeros((2, 40), "i8"), 0)
    assert set(tokens.reshape(-1)) == {0, 1}
    assert (tokens[0] != tokens[1]).any()
