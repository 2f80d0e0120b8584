"""Right outputs and wrong ones: by a reference, by labels, and by the first run of an engine."""

import os

import numpy
import pytest

from tegrascope.collectors.worker.outputs import (
    KEPT_VALUES,
    check_outputs,
    compare,
    compare_with_kept,
    count_right,
    precision_of,
    read_labels,
)
from tegrascope.parsers.errors import UserError
from tegrascope.parsers.inference.placement import Built

REFERENCE = numpy.random.RandomState(7).uniform(-1, 1, (4, 1000)).astype("f4")


def test_equal_outputs_are_good():
    found = compare([REFERENCE], [REFERENCE])
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
    off = error * numpy.roll(REFERENCE, 1, axis=0)
    numpy.savez(tmp_path / "a.npz", REFERENCE)
    numpy.savez(tmp_path / "b.npz", REFERENCE + off)
    built = Built(requested_precision="int8", layer_types=layers, int8_scales=scales)
    found = check_outputs(tmp_path / "a.npz", tmp_path / "b.npz", built)
    assert (found.verdict, found.limit) == (verdict, limit)


@pytest.mark.parametrize("broken", [numpy.nan, numpy.inf])
def test_numbers_that_are_not_finite_are_wrong(broken):
    given = REFERENCE.copy()
    given[2, 5] = broken
    found = compare([REFERENCE], [given], "fp16")
    assert found.verdict == "wrong"
    assert found.reason == "1 of 4000 numbers are NaN or infinite"


def test_worst_output_decides():
    zeros = numpy.zeros((1, 3), "f4")
    assert compare([REFERENCE, zeros], [REFERENCE, zeros], "fp16").verdict == "good"
    found = compare([REFERENCE, zeros], [REFERENCE, zeros + 1], "fp16")
    assert (found.verdict, found.relative_error, found.largest_error) == ("wrong", 1.0, 1.0)


def test_other_shapes_are_wrong():
    assert compare([REFERENCE], [REFERENCE[:2]], "fp16").verdict == "wrong"
    assert compare([REFERENCE, REFERENCE], [REFERENCE], "fp16").verdict == "wrong"


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
    assert precision_of(built, [REFERENCE]) == precision


def test_a_model_in_half_precision_is_not_judged_as_single():
    half = [REFERENCE, REFERENCE.astype("f2")]
    assert precision_of(None, half) == "fp16"
    assert precision_of(Built(requested_precision="int8"), half) == "int8"


LABELS = numpy.arange(200) % 10
SCORES = numpy.eye(10, dtype="f4")[LABELS]


def archives(folder, lost):
    """Write the outputs of a reference that is always right, and others with so many wrong."""
    given = SCORES.copy()
    given[:lost] = numpy.roll(given[:lost], 1, axis=1)
    numpy.savez(folder / "a.npz", SCORES)
    numpy.savez(folder / "b.npz", given)
    return folder / "a.npz", folder / "b.npz"


@pytest.mark.parametrize(
    ("lost", "tolerance", "scales", "verdict"),
    [
        (0, None, "calibrated", "good"),
        (2, None, "calibrated", "good"),
        (3, None, "calibrated", "wrong"),
        (3, 0.015, "calibrated", "good"),
        (1, 0.0, "explicit", "wrong"),
        (0, None, "dummy", "meaningless"),
        (150, None, "dummy", "meaningless"),
    ],
)
def test_loss_of_right_classes_decides_within_the_tolerance(
    tmp_path, lost, tolerance, scales, verdict
):
    built = Built(requested_precision="int8", layer_types={"int8": 9}, int8_scales=scales)
    found = check_outputs(*archives(tmp_path, lost), built, LABELS, tolerance)
    assert (found.verdict, found.limit) == (verdict, None)
    accuracy = found.accuracy
    assert (accuracy.inputs, accuracy.reference_top1) == (200, 1.0)
    assert accuracy.top1 == pytest.approx(1 - lost / 200)
    assert accuracy.tolerance == (0.01 if tolerance is None else tolerance)
    if verdict == "wrong":
        assert f"its top-1 is {100 - lost / 2:.1f} %, that of the reference 100.0 %" in found.reason


def test_tolerance_without_labels_is_of_the_error(tmp_path):
    built = Built(requested_precision="int8", layer_types={"int8": 9}, int8_scales="calibrated")
    files = archives(tmp_path, 8)  # an error of 28 %
    assert check_outputs(*files, built).verdict == "wrong"
    found = check_outputs(*files, built, None, 1.0)
    assert (found.verdict, found.limit, found.accuracy) == ("good", 1.0, None)


def test_five_best_classes_count_where_there_are_more():
    scores = numpy.tile(numpy.arange(10.0), (4, 1))
    assert count_right([numpy.zeros(3), scores], numpy.array([9, 8, 5, 4])) == (0.25, 0.75)
    assert count_right([scores[:, :3, None, None]], numpy.array([2, 2, 1, 0])) == (0.5, None)


@pytest.mark.parametrize(
    ("labels", "outputs"), [(numpy.arange(3), numpy.zeros((4, 9))), (LABELS[:4], numpy.zeros(4))]
)
def test_labels_that_do_not_fit_are_refused(labels, outputs):
    with pytest.raises(
        UserError, match=r"do not fit outputs of shape .*: give one class per input"
    ):
        count_right([outputs], labels)


def test_labels_are_read_from_text_and_arrays(tmp_path):
    (tmp_path / "l.txt").write_text("3\n0\n7\n")
    numpy.savez(tmp_path / "l.npz", numpy.array([3, 0, 7]))
    numpy.save(tmp_path / "l.npy", numpy.array([3, 0, 7]))
    for name in ("l.txt", "l.npz", "l.npy"):
        assert read_labels(tmp_path / name).tolist() == [3, 0, 7]
    (tmp_path / "bad.txt").write_text("cat\n")
    numpy.save(tmp_path / "bad.npy", numpy.array([0.5]))
    (tmp_path / "low.txt").write_text("-1\n")
    for name in ("large.txt", "large.npy"):
        (tmp_path / name).touch()
        os.truncate(tmp_path / name, (1 << 26) + 1)
    for name, problem in (
        ("bad.txt", "has no labels"),
        ("bad.npy", "no list of classes"),
        ("low.txt", "no list of classes"),
        ("none.txt", "No such file"),
        ("large.txt", "is larger than"),
        ("large.npy", "is larger than"),
    ):
        with pytest.raises(UserError, match=problem):
            read_labels(tmp_path / name)


def outputs(**changes: float) -> dict[str, numpy.ndarray]:
    """Return two outputs, one of them larger than what is kept of it."""
    made = {
        "small": numpy.arange(1.0, 5.0, dtype="f4"),
        "large": numpy.ones((2, KEPT_VALUES), "f2"),
    }
    for place, value in changes.items():
        name, _, at = place.rpartition("_")
        made[name].reshape(-1)[int(at)] = value
    return made


@pytest.mark.parametrize(
    ("changes", "difference"),
    [
        ({}, 0.0),
        ({"small_0": 1.5}, 0.5 / 30**0.5),
        ({"large_1": 9.0}, 1e-12),
        ({"small_0": numpy.nan}, 1.0),
        ({"small_0": 1e9}, 1.0),
    ],
    ids=["equal", "off", "between what is kept", "nan", "far off"],
)
def test_outputs_are_compared_with_the_first(tmp_path, changes, difference):
    first = compare_with_kept(tmp_path / "first.npz", outputs())
    found = compare_with_kept(tmp_path / "first.npz", outputs(**changes))
    assert first.difference is None
    assert found.difference == pytest.approx(difference, rel=1e-6)
    assert (found.sha256 == first.sha256) is (not changes)


def test_first_outputs_that_cannot_be_read_are_taken_anew(tmp_path):
    file = tmp_path / "first.npz"
    compare_with_kept(file, outputs())
    file.write_bytes(b"PK broken")
    assert compare_with_kept(file, outputs()).difference is None
    assert compare_with_kept(file, outputs()).difference == 0.0


def test_channel_of_small_values_counts_as_much_as_a_large_one(tmp_path):
    values = numpy.random.RandomState(4).uniform(1, 640, (1, 84, 2100)).astype("f4")
    values[:, 4:] /= 640
    compare_with_kept(tmp_path / "first.npz", {"boxes": values})
    off = values.copy()
    off[:, 4:] = 0
    assert compare_with_kept(tmp_path / "first.npz", {"boxes": off}).difference == 1.0


def test_first_outputs_in_the_form_of_an_older_release_are_taken_anew(tmp_path):
    file = tmp_path / "first.npz"
    numpy.savez(file, numpy.array("abc"), numpy.zeros(4, "f4"), numpy.zeros(1000, "f4"))
    assert compare_with_kept(file, outputs()).difference is None
    assert compare_with_kept(file, outputs()).difference == 0.0
