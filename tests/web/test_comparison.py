"""DLA or GPU: figures of the last good runs, and what their intervals allow to say."""

import pytest

from tegrascope.daemon.measure.run_report import RunReport
from tegrascope.daemon.store.history import History
from tegrascope.daemon.store.store import Store
from tegrascope.daemon.web.status_page import compare

S = 1_000_000_000
NOW = 1_767_225_600 * S
TIMES = ("min", "mean", "p50", "p90", "p95", "p99", "p999", "max")


class Runs:
    """A store with runs of one model."""

    def __init__(self, path):
        self.store = Store(path / "runs.db")
        self.count = 0

    def add(self, device, milliseconds, millijoules=None, gpu=None, dla=None, **fields):
        self.count += 1
        energy = telemetry = None
        if millijoules is not None:
            net = millijoules * 1e-3
            ends = {"low": net * 100 - 0.05, "high": net * 100 + 0.05}
            energy = {"net_joules_per_inference": net, "net_interval": ends}
        if gpu is not None:
            loads = {"gpu": gpu} | ({} if dla is None else {f"{device}:ftrace": dla})
            telemetry = {
                "samples": 9,
                "utilization": {n: {"mean_ratio": v, "max_ratio": v} for n, v in loads.items()},
            }
        plain = {
            "run_id": f"r{self.count}",
            "workload": f"net-{device}",
            "model": "net.onnx",
            "backend": "tensorrt",
            "device": device,
            "outcome": "ok",
            "started_wall_ns": NOW - (1000 - self.count) * S,
            "started_ns": 1,
            "ended_ns": 2,
            "inferences": 100,
            "latency": {f"{name}_seconds": milliseconds * 1e-3 for name in TIMES} | {"count": 100},
            "energy": energy,
            "telemetry": telemetry,
        }
        self.store.finish(RunReport.model_validate(plain | fields))

    def compare(self):
        return compare(History(self.store.path), NOW)["models"]


@pytest.fixture
def runs(tmp_path):
    made = Runs(tmp_path)
    yield made
    made.store.close()


def test_difference_beyond_the_interval_has_a_winner(runs):
    """The GPU is faster, the DLA takes less energy and frees the GPU."""
    for wobble in (0.0, 0.01, -0.01):
        runs.add("gpu", 2.0 + wobble, 30 + wobble, gpu=0.9)
        runs.add("dla0", 5.0 + wobble, 20 + wobble, gpu=0.1 + wobble, dla=0.8)
    (model,) = runs.compare()
    assert (model["model"], model["energy"], model["left_out"]) == ("net.onnx", "net", 0)
    dla, gpu = model["entries"]
    assert (dla["device"], dla["runs"], gpu["device"], gpu["runs"]) == ("dla0", 3, "gpu", 3)
    assert dla["latency_seconds"]["value"] == pytest.approx(5e-3)
    assert dla["gpu_freed"]["value"] == pytest.approx(0.8)
    assert dla["gpu_freed"]["low"] > 0.7
    assert dla["dla"] == ("ftrace", pytest.approx(0.8))
    assert gpu["gpu_freed"] is None
    better = {one["goal"]: one["better"] for one in model["verdicts"]}
    assert better == {"latency": "gpu", "energy": "dla0", "gpu": "dla0"}


def test_difference_inside_the_interval_has_no_winner(runs):
    for wobble in (0.0, 0.5, -0.5):
        runs.add("gpu", 5.0 + wobble)
        runs.add("dla0", 5.1 - wobble)
    ((verdict,),) = (model["verdicts"] for model in runs.compare())
    assert (verdict["goal"], verdict["better"]) == ("latency", None)
    assert verdict["less_on_dla"]["low"] < 0 < verdict["less_on_dla"]["high"]


def test_one_run_each_has_a_difference_without_an_interval(runs):
    runs.add("gpu", 2.0)
    runs.add("dla0", 5.0)
    ((verdict,),) = (model["verdicts"] for model in runs.compare())
    assert verdict["better"] is None
    assert verdict["less_on_dla"] == {"value": pytest.approx(-3e-3), "low": None, "high": None}


def test_runs_under_other_conditions_and_bad_runs_do_not_count(runs):
    """Other power modes, failed runs, old runs and cores that did not work decide nothing."""
    for _ in range(2):
        runs.add("gpu", 9.0, environment={"power_mode": "15W"})
        runs.add("gpu", 2.0, environment={"power_mode": "MAXN"})
        runs.add("gpu", 99.0, outcome="failed", reason="x")
        runs.add("gpu", 99.0, started_wall_ns=NOW - 8 * 86_400 * S)
        runs.add("dla0", 1.0, quality=("dla_not_used",), environment={"power_mode": "MAXN"})
    (model,) = runs.compare()
    dla, gpu = model["entries"]
    assert gpu["latency_seconds"]["value"] == pytest.approx(2e-3)
    assert (gpu["runs"], model["left_out"]) == (2, 2)
    assert dla["flags"] == {"dla_not_used": 2}
    assert model["verdicts"] == []


def test_last_ten_runs_of_a_workload_count(runs):
    for number in range(30):
        runs.add("gpu", 1.0 + number)
    ((entry,),) = (model["entries"] for model in runs.compare())
    assert entry["runs"] == 10
    assert entry["latency_seconds"]["value"] == pytest.approx(25.5e-3)


def test_withheld_energy_is_absent(runs):
    runs.add("gpu", 2.0)
    ((entry,),) = (model["entries"] for model in runs.compare())
    assert (entry["joules"], entry["gpu_ratio"], entry["dla"]) == (None, None, None)
