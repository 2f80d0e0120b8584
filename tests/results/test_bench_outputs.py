"""Right answers and wrong ones."""

import numpy
import pytest

from tegrascope.parsers.inference.placement import Built
from tegrascope.workbench.bench.workers import check_outputs, compare, precision_of

REFERENCE = numpy.random.RandomState(7).uniform(-1, 1, (4, 1000)).astype("f4")


def test_equal_answers_are_good():
    found = compare([REFERENCE], [REFERENCE], 0.01)
    assert (found.verdict, found.relative_error, found.top1_agreement) == ("good", 0.0, 1.0)


@pytest.mark.parametrize(
    ("error", "precision", "verdict"),
    [
        (0.02, "fp16", "good"),
        (0.02, "fp32", "wrong"),
        (0.08, "fp16", "wrong"),
        (0.08, "int8", "good"),
        (0.9, "int8", "wrong"),
    ],
)
def test_limit_is_that_of_the_precision(tmp_path, error, precision, verdict):
    off = numpy.random.RandomState(8).normal(size=REFERENCE.shape)
    off *= error * numpy.linalg.norm(REFERENCE) / numpy.linalg.norm(off)
    numpy.savez(tmp_path / "a.npz", REFERENCE)
    numpy.savez(tmp_path / "b.npz", (REFERENCE + off).astype("f4"))
    built = Built(requested_precision=precision)
    found = check_outputs(tmp_path / "a.npz", tmp_path / "b.npz", built)
    assert found.verdict == verdict
    assert found.relative_error == pytest.approx(error, rel=0.001)


@pytest.mark.parametrize(
    ("error", "layers", "scales", "verdict", "limit"),
    [
        (0.17, {"int8": 48, "fp16": 5}, "dummy", "meaningless", None),
        (0.9, {"int8": 48}, "dummy", "meaningless", None),
        (0.0, {"int8": 48}, "dummy", "meaningless", None),
        (0.17, {"int8": 48}, "explicit", "good", 0.2),
        (0.9, {"int8": 48}, "explicit", "wrong", 0.2),
        (0.02, {"fp16": 53}, "dummy", "good", 0.05),
        (numpy.nan, {"int8": 48}, "dummy", "wrong", 0.2),
    ],
)
def test_made_up_scales_are_never_right(tmp_path, error, layers, scales, verdict, limit):
    off = numpy.zeros_like(REFERENCE)
    off[0, 0] = error * numpy.linalg.norm(REFERENCE)
    numpy.savez(tmp_path / "a.npz", REFERENCE)
    numpy.savez(tmp_path / "b.npz", REFERENCE + off)
    built = Built(requested_precision="int8", layer_types=layers, int8_scales=scales)
    found = check_outputs(tmp_path / "a.npz", tmp_path / "b.npz", built)
    assert (found.verdict, found.limit) == (verdict, limit)


@pytest.mark.parametrize("broken", [numpy.nan, numpy.inf])
def test_numbers_that_are_none_are_wrong(broken):
    given = REFERENCE.copy()
    given[2, 5] = broken
    found = compare([REFERENCE], [given], 0.05)
    assert found.verdict == "wrong"
    assert found.reason == "1 of 4000 numbers are NaN or infinite"


def test_worst_output_decides():
    zeros = numpy.zeros((1, 3), "f4")
    assert compare([REFERENCE, zeros], [REFERENCE, zeros], 0.05).verdict == "good"
    found = compare([REFERENCE, zeros], [REFERENCE, zeros + 1], 0.05)
    assert (found.verdict, found.relative_error, found.largest_error) == ("wrong", 1.0, 1.0)


def test_other_shapes_are_wrong():
    assert compare([REFERENCE], [REFERENCE[:2]], 0.05).verdict == "wrong"
    assert compare([REFERENCE, REFERENCE], [REFERENCE], 0.05).verdict == "wrong"


def test_unreadable_outputs_are_unchecked(tmp_path):
    numpy.savez(tmp_path / "a.npz", REFERENCE)
    found = check_outputs(tmp_path / "a.npz", tmp_path / "none.npz", None)
    assert (found.verdict, found.reason) == (
        "unchecked",
        "the back-end does not return its outputs",
    )
    (tmp_path / "b.npz").write_bytes((tmp_path / "a.npz").read_bytes()[:500])
    found = check_outputs(tmp_path / "a.npz", tmp_path / "b.npz", None)
    assert found.verdict == "unchecked"
    assert found.reason.startswith("the outputs cannot be read")


def test_model_of_half_precision_is_given_its_room(tmp_path):
    half = REFERENCE.astype("f2")
    numpy.savez(tmp_path / "a.npz", half)
    numpy.savez(tmp_path / "b.npz", half * numpy.float16(1.02))
    assert check_outputs(tmp_path / "a.npz", tmp_path / "b.npz", None).verdict == "good"


@pytest.mark.parametrize(
    ("built", "precision"),
    [
        (None, "fp32"),
        (Built(requested_precision="fp16", layer_types={"fp32": 9}), "fp32"),
        (Built(requested_precision="fp32", layer_types={"fp32": 9, "fp16": 1}), "fp16"),
        (Built(requested_precision="int8", layer_types={"int8": 4, "fp16": 1}), "int8"),
        (Built(requested_precision="fp16"), "fp16"),
    ],
)
def test_lowest_built_precision_decides(built, precision):
    assert precision_of(built) == precision
