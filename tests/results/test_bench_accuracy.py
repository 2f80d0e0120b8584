"""Right classes of a labelled data set, beside time and energy of each accelerator."""

import json
import subprocess
import sys

import numpy
import pytest

from tests.fakes.models import labelled_data, write_classifier
from tests.fakes.shims import write_shims

TINY = ("--duration", "0.4", "--warm-up", "0.05", "--rounds", "2")


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
