"""``bench --cut``: the body and the head of a model as one inference, beside the whole model."""

import json
import subprocess
import sys

import numpy
import onnx
import pytest

from tegrascope.collectors.backends.base import make_varied
from tegrascope.daemon.measure.report import RunReport
from tests.fakes.shims import write_shims
from tests.fakes.structures import SIDE, fixed

pytest.importorskip("onnxruntime")
TINY = ("--duration", "0.4", "--warm-up", "0.05", "--rounds", "2", "--telemetry", "none")


def tegrascope(folder, path, *arguments):
    return subprocess.run(
        [sys.executable, "-m", "tegrascope", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        cwd=folder,
        env={"PYTHONPATH": path, "HOME": str(folder)},
    )


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A detector, its parts, those of one with other weights, and a TensorRT that computes."""
    folder = tmp_path_factory.mktemp("pair")
    (folder / "shims").mkdir()
    path = write_shims(folder / "shims", dla_cores=1, computes=True)
    images = make_varied(numpy.zeros((8, 3, SIDE, SIDE), "f4"), 50)
    for name, seed in (("net", 3), ("other", 4)):
        onnx.save(fixed("ssd", seed, images), folder / f"{name}.onnx")
        done = tegrascope(folder, path, "inspect", f"{name}.onnx", "--cut", "-o", f"{name}-parts")
        assert done.returncode == 0, done.stderr
    return folder, path


def bench(place, *arguments):
    folder, path = place
    given = ("bench", "net.onnx", *TINY, "--state-dir", "state", "-o", "out", *arguments)
    done = tegrascope(folder, path, *given)
    assert done.returncode == 0, done.stderr
    result = json.loads((folder / "out/result.json").read_text())
    return done, result["models"][0]


def test_a_pair_is_measured_beside_the_whole_model(place):
    done, model = bench(place, "--on", "gpu,dla0", "--cut", "net-parts")
    found = {one["device"]: one for one in model["accelerators"]}
    assert [*found] == ["gpu", "dla0", "dla0+gpu"]
    assert {one["outputs"]["verdict"] for one in found.values()} == {"good"}
    pair = found["dla0+gpu"]
    assert [*pair["stages"]] == ["h2d", "body", "head", "d2h"]
    assert [*found["dla0"]["stages"]] == ["h2d", "compute", "d2h"]
    spans = [times["p50_seconds"] for times in pair["stages"].values()]
    assert pair["device_latency"]["p50_seconds"] == pytest.approx(sum(spans), rel=0.01)
    assert pair["built"]["placement"]["verdict"] == "pure_dla"
    assert found["dla0"]["built"]["placement"]["verdict"] == "mixed", "its head has a Softmax"
    assert model["order"][:6] == [*found, *reversed(found)]
    assert pair["rounds"] == 2
    runs = [RunReport.model_validate(run) for run in model["rounds"]]
    assert [run.accelerator for run in runs] == model["order"]
    assert {run.device for run in runs if run.head} == {"dla0"}
    rows = {row.strip().partition("  ")[0]: row.split() for row in done.stdout.splitlines()}
    assert rows["body p50"][:4] == ["body", "p50", "–", "–"]
    assert "head p50" in rows


def test_a_pair_of_another_model_is_wrong_and_wins_nothing(place):
    done, model = bench(place, "--on", "cpu", "--cut", "other-parts")
    whole, pair = model["accelerators"]
    assert (whole["device"], whole["outputs"]["verdict"]) == ("cpu", "reference")
    assert (pair["device"], pair["outputs"]["verdict"]) == ("cpu+cpu", "wrong")
    assert "wrong_outputs" in pair["flags"]
    assert {goal.get("winner") for goal in model["goals"]} == {None}
    assert "cpu+cpu: its outputs are wrong, so its speed means nothing" in done.stdout


def test_each_point_of_a_sweep_has_a_pair(place):
    done, model = bench(place, "--on", "cpu", "--cut", "net-parts", "--sweep", "streams=1,2")
    points = model["sweep"]["points"]
    assert [one["result"]["device"] for one in points] == ["cpu", "cpu", "cpu+cpu", "cpu+cpu"]
    assert [one["result"]["outputs"]["verdict"] for one in points[2:]] == ["good", "good"], (
        done.stderr
    )
