"""Right classes of a labelled data set, beside time and energy of each accelerator."""

import json
import subprocess
import sys

import numpy
import pytest

from tegrascope.parsers.errors import UserError
from tegrascope.parsers.inference.placement import Built
from tegrascope.workbench.bench.workers import check_outputs, count_right, read_labels
from tests.fakes.models import labelled_data, write_classifier
from tests.fakes.shims import write_shims

TINY = ("--duration", "0.4", "--warm-up", "0.05", "--rounds", "2")
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
    found = check_outputs(*files, built, None, 0.3)
    assert (found.verdict, found.limit, found.accuracy) == ("good", 0.3, None)


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
    for name, problem in (
        ("bad.txt", "has no labels"),
        ("bad.npy", "no list of classes"),
        ("low.txt", "no list of classes"),
        ("none.txt", "No such file"),
    ):
        with pytest.raises(UserError, match=problem):
            read_labels(tmp_path / name)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A model, its data, and TensorRT and CUDA that compute in int8."""
    folder = tmp_path_factory.mktemp("accuracy")
    write_classifier(folder / "c.onnx")
    numpy.savez(folder / "calibration.npz", labelled_data(120, seed=9)[0])
    inputs, labels = labelled_data(1003, seed=21)
    numpy.savez(folder / "inputs.npz", inputs)
    (folder / "labels.txt").write_text("\n".join(map(str, labels)))
    (folder / "shims").mkdir()
    return folder, write_shims(folder / "shims", dla_cores=1, computes=True)


def bench(place, *arguments):
    folder, path = place
    fixed = ("--on", "gpu,dla0,cpu", "--batch", "8", "--telemetry", "none", "--state-dir", "state")
    return subprocess.run(
        [sys.executable, "-m", "tegrascope", "bench", "c.onnx", *fixed, *TINY, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        cwd=folder,
        env={"PYTHONPATH": path, "HOME": str(folder)},
    )


LABELLED = ("--precision", "int8", "--inputs", "inputs.npz", "--labels", "labels.txt")


def test_calibrated_int8_is_right_and_made_up_scales_are_not_meaningful(place):
    done = bench(place, *LABELLED, "--calibration", "calibration.npz", "-o", "good")
    assert done.returncode == 0, done.stderr
    result = json.loads((place[0] / "good/result.json").read_text())
    on_gpu, on_dla, on_cpu = (one["outputs"] for one in result["models"][0]["accelerators"])
    assert [one["verdict"] for one in (on_gpu, on_dla, on_cpu)] == ["good", "good", "reference"]
    exact = on_cpu["accuracy"]["top1"]
    assert 0.85 < exact == on_gpu["accuracy"]["reference_top1"]
    assert on_gpu["accuracy"]["inputs"] == 1003
    assert on_gpu["accuracy"]["top1"] >= exact - 0.01
    assert 0.001 < on_gpu["relative_error"] == on_dla["relative_error"]
    assert "top-1 of the labels" in done.stdout
    rows = {row.strip().partition("  ")[0]: row.split()[-2:] for row in done.stdout.splitlines()}
    assert rows["of the reference"] == [f"{100 * exact:.1f}", "%"]
    assert rows["largest loss that is right"] == ["1.0", "points"]
    assert "calibrating with 120 inputs" in done.stderr
    assert "top-5 of the labels" in (place[0] / "good/report.html").read_text()

    done = bench(place, *LABELLED, "--on", "gpu", "-o", "made-up")
    result = json.loads((place[0] / "made-up/result.json").read_text())
    found = result["models"][0]["accelerators"][0]["outputs"]
    assert found["verdict"] == "meaningless"
    assert found["accuracy"]["top1"] < exact - 0.1
    assert "meaningless_outputs" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "status", "problem"),
    [
        (("--labels", "labels.txt"), 2, "--labels belongs to --inputs: give both"),
        (("--inputs", "none.npz"), 1, "there is no none.npz for --inputs"),
        (("--inputs", "calibration.npz", "--labels", "labels.txt"), 1, "1003 labels up to 11 do"),
        (("--inputs", "inputs.npz", "--labels", "c.onnx"), 1, "c.onnx has no labels"),
    ],
)
def test_data_that_does_not_fit_is_refused_before_a_build(place, arguments, status, problem):
    done = bench(place, *arguments, "-o", "refused")
    assert done.returncode == status
    assert problem in done.stderr
    assert "builds it" not in done.stderr
