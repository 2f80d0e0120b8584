"""DLA or GPU: figures of the last good runs, and what their intervals allow to say."""

import pytest

from tegrascope.daemon.measure.report import RunReport
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
            ends = {"low": net - 0.0005, "high": net + 0.0005}
            energy = {"net_joules_per_inference": net, "net_joules_per_inference_interval": ends}
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


@pytest.mark.parametrize(
    ("offsets", "gross", "words"),
    [
        ((0.0, 0.0), "gpu", "39 % less net energy but 4.9 % more gross energy"),
        ((0.005, 0.005), "gpu", "39 % less net energy but 4.9 % more gross energy"),
        ((0.005, 0.030), None, "39 % less net energy but no sure difference in gross energy"),
    ],
)
def test_gross_energy_that_names_another_device_is_in_the_conclusion(runs, offsets, gross, words):
    """A slow device holds the board awake for longer: less is added, and more is used.

    The offset of the sensors adds to that too, and may be all of it.
    """
    shared = dict(zip(("gpu", "dla0"), offsets, strict=True))
    for wobble in (0.0, 0.001, -0.001):
        for device, net, whole in (("gpu", 0.27, 0.365), ("dla0", 0.166, 0.383)):
            energy = {"offset_joules": 100 * shared[device]}
            for kind, value in (("net", net + wobble), ("gross", whole + wobble)):
                energy[f"{kind}_joules_per_inference"] = value
                ends = {"low": value - 0.001, "high": value + 0.001}
                energy[f"{kind}_joules_per_inference_interval"] = ends
            runs.add(device, 2.0, energy=energy)
    (model,) = runs.compare()
    better = {one["goal"]: one["better"] for one in model["verdicts"]}
    assert (better["energy"], better["gross_energy"]) == ("dla0", gross)
    assert words in model["conclusion"]
    dla, _ = model["entries"]
    assert dla["gross_joules"]["value"] == pytest.approx(0.383)


def test_models_with_an_answer_come_first(runs):
    for device in ("gpu", "dla0"):
        for _ in range(3):
            runs.add(device, 2.0, model="z.onnx")
    runs.add("gpu", 2.0, model="a.onnx")
    runs.add("gpu", 2.0, model="b.onnx")
    assert [one["model"] for one in runs.compare()] == ["z.onnx", "a.onnx", "b.onnx"]


def test_difference_inside_the_interval_has_no_winner(runs):
    for wobble in (0.0, 0.5, -0.5):
        runs.add("gpu", 5.0 + wobble)
        runs.add("dla0", 5.1 - wobble)
    ((verdict,),) = (model["verdicts"] for model in runs.compare())
    assert (verdict["goal"], verdict["better"]) == ("latency", None)
    assert verdict["less_on_dla"]["low"] < 0 < verdict["less_on_dla"]["high"]


@pytest.mark.parametrize("count", [1, 2])
def test_two_runs_are_too_few_for_every_goal(runs, count):
    """Time, energy and GPU freed follow one rule, whatever intervals the runs have."""
    for number in range(count):
        runs.add("gpu", 2.0 + number / 100, 30 + number, gpu=0.9)
        runs.add("dla0", 5.0 + number / 100, 20 + number, gpu=0.1, dla=0.8)
    (model,) = runs.compare()
    assert [verdict["goal"] for verdict in model["verdicts"]] == ["latency", "energy", "gpu"]
    for verdict in model["verdicts"]:
        assert (verdict["answer"], verdict["better"]) == ("too_few_runs", None)
        assert (verdict["runs"], verdict["runs_needed"]) == (count, 3)
        assert verdict["less_on_dla"]["low"] is None


def test_run_without_energy_is_no_run_of_the_energy(runs):
    for number in range(3):
        runs.add("gpu", 2.0, 30)
        runs.add("dla0", 5.0, 20 if number else None)
    (model,) = runs.compare()
    answers = {verdict["goal"]: verdict["answer"] for verdict in model["verdicts"]}
    assert answers == {"latency": "first", "energy": "too_few_runs"}


def test_no_interval_is_wider_than_its_figure(runs):
    for milliseconds in (1.0, 40.0):
        runs.add("gpu", milliseconds, milliseconds)
    ((entry,),) = (model["entries"] for model in runs.compare())
    assert entry["latency_seconds"]["low"] is None
    assert entry["joules"]["low"] is None


def test_workload_with_enough_runs_speaks_for_its_device(runs):
    """A single run of a second workload of the device, however good, hides nothing."""
    for wobble in (0.0, 0.1, -0.1):
        runs.add("gpu", 2.0 + wobble)
        runs.add("dla0", 5.0 + wobble)
    runs.add("dla0", 1.0, workload="lucky")
    ((verdict,),) = (model["verdicts"] for model in runs.compare())
    assert (verdict["better"], verdict["dla"]) == ("gpu", "net-dla0")


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


def test_a_run_that_says_nothing_hides_no_answer(runs):
    """Its interval is wider than its energy; the others still tell which device takes less."""
    for wobble in (0.0, 0.1, -0.1):
        runs.add("gpu", 2.0, 30 + wobble)
        runs.add("dla0", 5.0, 20 + wobble)
    energy = {"net_joules_per_inference": 0.025}
    energy["net_joules_per_inference_interval"] = {"low": -0.2, "high": 0.25}
    runs.add("dla0", 5.0, energy=energy)
    (model,) = runs.compare()
    assert {one["goal"]: one["better"] for one in model["verdicts"]}["energy"] == "dla0"
    assert model["entries"][0]["joules"]["value"] == pytest.approx(0.020)
    for _ in range(3):
        runs.add("dla0", 5.0, energy=energy)
    (model,) = runs.compare()
    assert {one["goal"]: one["better"] for one in model["verdicts"]}["energy"] is None


def test_uneven_interval_of_a_run_is_covered(runs):
    energy = {"net_joules_per_inference": 0.020}
    energy["net_joules_per_inference_interval"] = {"low": 0.019, "high": 0.027}
    for _ in range(3):
        runs.add("gpu", 2.0, energy=energy)
    (model,) = runs.compare()
    joules = model["entries"][0]["joules"]
    assert joules["high"] == pytest.approx(0.027)
    assert joules["low"] == pytest.approx(0.013)
