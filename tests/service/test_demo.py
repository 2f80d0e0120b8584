"""The demo answers DLA or GPU as the exact energy of its board does."""

import sys
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from tests.daemons import start

__all__ = ["start"]

ROOT = Path(__file__).parents[2]
DEMO = (ROOT / "daemon/commands/demo.yaml").read_text(encoding="utf-8")
SIMULATOR = ROOT / "collectors/simulator"
# The rails that feed the module of an AGX Orin: NVIDIA's documents, docs/metrics.md.
MODULE = ("VDD_GPU_SOC", "VDD_CPU_CV", "VIN_SYS_5V0")
MODELS = {"resnet50": "fp16", "retinanet-resnext50": "int8"}

pytestmark = pytest.mark.system


def exact_joules(model: str, device: str) -> "tuple[float, float]":
    """Return net and gross energy of an inference, from the data alone, without heat."""
    boards = tomllib.loads((SIMULATOR / "simulated.toml").read_text())["simulated"]
    [board] = [one for one in boards if one["name"] == "agx-orin-64gb"]
    paces = tomllib.loads((SIMULATOR / "paces.toml").read_text())["pace"]
    [pace] = [
        one
        for one in paces
        if (one["model"], one["device"], one["precision"]) == (model, device, MODELS[model])
    ]
    seconds = pace["milliseconds"] / 1e3
    if pace["statistic"] == "p90":  # the mean is a little below it
        seconds /= 1 + 0.6 * (pace["tail"] - 1)
    idle = net = 0.0
    for rail in board["rails"]:
        if rail["name"] in MODULE:
            idle += rail["idle_watts"]
            net += sum(rail["load"].get(lane, 0) * ratio for lane, ratio in pace["loads"].items())
            net += rail.get("dla_powered_watts", 0) * ("dla" in pace["loads"])
    return seconds * net, seconds * (net + idle)


def test_each_card_has_the_conclusion_of_the_exact_energy(start):
    daemon = start(DEMO)

    def answers():
        found = {one["model"]: one for one in daemon.json("api/v1/models")["models"]}
        verdicts = {}
        for model in MODELS:
            for verdict in found.get(model, {"verdicts": ()})["verdicts"]:
                verdicts[model, verdict["goal"]] = verdict
        decided = all(one["answer"] != "too_few_runs" for one in verdicts.values())
        return verdicts if decided and len(verdicts) == 4 * len(MODELS) else None

    verdicts = daemon.wait_for(answers, 400)
    for model in MODELS:
        by_device = {device: exact_joules(model, device) for device in ("gpu", "dla")}
        energy = verdicts[model, "energy"]
        best = min(by_device, key=lambda device: by_device[device][0])
        assert energy["better"].rstrip("0") == best
        assert energy["gpu_value"] == pytest.approx(by_device["gpu"][0], rel=0.05)
        assert energy["dla_value"] == pytest.approx(by_device["dla"][0], rel=0.05)
        gross = verdicts[model, "gross_energy"]
        assert gross["dla_value"] == pytest.approx(by_device["dla"][1], rel=0.05)
        assert verdicts[model, "latency"]["better"] == "gpu"
        assert verdicts[model, "gpu"]["better"] == "dla0"
    for run in daemon.runs(outcome="ok"):
        if run["backend"] != "simulated":
            continue
        device = run["device"].rstrip("0")
        assert "aliased" not in run["quality"]
        if run["model"] in MODELS:
            gross = exact_joules(run["model"], device)[1]
            assert run["energy"]["gross_joules_per_inference"] == pytest.approx(gross, rel=0.05)
