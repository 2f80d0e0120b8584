"""A desktop GPU as telemetry of the whole daemon: real processes over a stand-in for NVML."""

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tegrascope.parsers.tegrastats import parse_line

FAKES = Path(__file__).parents[1] / "fakes"
CONFIG = """
telemetry: {source: nvml, interval: 103ms}
workloads:
- {name: cpu, model: "builtin:mobilenet", device: cpu, threads: 1, warm_up: 100ms,
   baseline: 500ms, duration: 4s, every: 8s}
"""


@pytest.fixture
def asked(monkeypatch):
    """Say what NVML is to do in the daemon's children."""
    monkeypatch.setenv("PYTHONPATH", str(FAKES))

    def ask(**what: object) -> None:
        monkeypatch.setenv("FAKE_NVML", json.dumps(what))

    ask()
    return ask


def truth_joules(begin_ns: int, end_ns: int) -> float:
    spec = importlib.util.spec_from_file_location("fake_nvml", FAKES / "pynvml.py")
    assert spec is not None
    assert spec.loader is not None
    fake = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(fake)
    return float(fake.joules(end_ns / 1e9) - fake.joules(begin_ns / 1e9))


def test_gpu_is_shown_and_a_run_is_paired_with_it(start, asked):
    """Metrics of the GPU, energy by integral and by its counter, throttling and its name."""
    asked(events=([0] * 7 + [0x48] * 3) * 200)
    daemon = start(CONFIG)

    def measured() -> "list[dict[str, Any]]":
        """Return runs with energy; a busy machine may lose their samples, and says so."""
        runs = daemon.runs(outcome="ok")
        found = [run for run in runs if "gross_joules" in run.get("energy", {})]
        assert all("telemetry_gap" in run["quality"] for run in runs if run not in found)
        return found

    (run, *_) = daemon.wait_for(measured)
    steady = run["phases"]["steady"]
    truth = truth_joules(steady["begin_ns"], steady["end_ns"])
    energy = run["energy"]
    assert energy["rule"] == "NVIDIA GPU"
    assert abs(energy["counter_joules"] - truth) <= energy["counter_edge_joules"]
    assert energy["gross_interval"]["low"] <= truth <= energy["gross_interval"]["high"]
    assert energy["rails"]["GPU"]["counter_joules"] == energy["counter_joules"]
    environment = run["environment"]
    assert environment["board"] == "Fake GPU 0"
    assert environment["module"] == "900-00000"
    assert environment["power_mode"] == "350 W"
    assert environment["gpu_uuid"] == "GPU-0"
    assert environment["power_reading"] == "instant"
    assert environment["versions"]["nvidia_driver"] == "580.1"
    assert not environment["simulated"]
    assert "throttled" in run["quality"]
    assert run["telemetry"]["throttle"]["hw_thermal"] >= 3
    assert run["telemetry"]["throttle"]["sw_power_cap"] == 0
    assert run["telemetry"]["throttle_events"] == run["telemetry"]["throttle"]["hw_thermal"]
    assert run["telemetry"]["utilization"]["gpu"]["mean_ratio"] == 0.4
    assert daemon.metric('tegra_info{board="Fake GPU 0"') == 1
    for series, value in {
        'tegrascope_source_up{source="nvml"}': 1,
        "tegra_gpu_utilization_ratio": 0.4,
        'tegra_gpu_frequency_hertz{gpc="0"}': 1.98e9,
        "tegra_gpu_memory_used_bytes": 1 << 30,
        "tegra_gpu_memory_total_bytes": 8 << 30,
        "tegra_gpu_memory_active_ratio": 0.12,
        'tegra_engine_utilization_ratio{engine="NVENC"}': 0.07,
        'tegra_temperature_celsius{zone="memory"}': 61,
        'tegra_fan_speed_ratio{fan="gpu"}': 0.33,
        'tegra_throttle_events_total{kind="hw_slowdown"}': 0,
        "tegrascope_tokens_unparsed_total": 0,
    }.items():
        daemon.wait_for(lambda s=series, v=value: daemon.metric(s) == v)
    assert daemon.metric("tegra_emc_utilization_ratio") is None
    assert daemon.metric("tegra_ram_used_bytes") is None
    assert (daemon.metric('tegra_rail_energy_joules_total{rail="GPU"}') or 0) > truth
    assert daemon.metric('tegra_throttle_events_total{kind="hw_thermal"}') >= 3
    daemon.wait_for(lambda: daemon.get("readyz") == "ready\n")
    if shutil.which("promtool"):
        told = subprocess.run(
            ["promtool", "check", "metrics"],
            input=daemon.get("metrics"),
            capture_output=True,
            text=True,
            check=False,
        )
        assert (told.returncode, told.stdout, told.stderr) == (0, "", "")
    assert daemon.stop() < 3


def test_missing_module_is_reported_and_waited_for(start, asked):
    """Without nvidia-ml-py the daemon serves all the same and says what to install."""
    asked(absent=True)
    daemon = start("telemetry: {source: nvml}")
    ready = daemon.wait_for(lambda: "nvidia-ml-py" in (told := daemon.get("readyz")) and told)
    assert "no fresh sample from nvml" in ready
    assert daemon.metric('tegrascope_source_up{source="nvml"}') == 0
    assert daemon.get("healthz") == "ok\n"


def test_lost_gpu_is_reported_and_comes_back(start, asked):
    """A GPU that falls off the bus ends a child and never the daemon."""
    asked(lost_after=5)
    daemon = start("telemetry: {source: nvml, interval: 200ms}")
    restarts = 'tegrascope_source_restarts_total{source="nvml"}'
    daemon.wait_for(lambda: (daemon.metric(restarts) or 0) >= 2)
    daemon.wait_for(lambda: any("fallen off the bus" in line for line in daemon.log))
    daemon.wait_for(lambda: daemon.metric('tegra_info{board="Fake GPU 0"') == 1)


def test_parent_never_loads_nvml(asked):
    """What the daemon imports to read a GPU is not what touches it."""
    asked()
    code = (
        "import sys, tegrascope.daemon.service.service, tegrascope.collectors.gpu.nvml;"
        "sys.exit('pynvml' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


CAPTURES = Path(__file__).parents[1] / "captures"
BESIDE = """
telemetry:
  source: replay
  interval: 103ms
  replay: {{path: {log}}}
  nvml: {{beside: {beside}}}
  processes: {{top: 2}}
workloads:
- {{name: ours, command: sleep 3, device: gpu, baseline: 500ms, warm_up: 0s, every: 5s}}
"""


def recorded(board: str, directory: Path, minutes: int = 20) -> Path:
    """Return a log of a board's recorded lines, over and over, ten per second."""
    lines = (CAPTURES / f"{board}.txt").read_text(encoding="utf-8").splitlines()
    log = directory / "board.log"
    log.write_text(
        "".join(f"{i / 10:.1f}::{lines[i % len(lines)][20:]}\n" for i in range(600 * minutes)),
        encoding="utf-8",
    )
    return log


def test_thor_has_load_power_and_memory_by_process_of_nvml(start, asked, tmp_path):
    """The lines lack the load; NVML gives it, is named as its source, and survives its child."""
    asked(processes={str(os.getpid()): 3 << 30, "4194305": 1 << 20})
    log = recorded("agx-thor__r39.2.0", tmp_path)
    daemon = start(BESIDE.format(log=log, beside="true"))
    (run, *_) = daemon.wait_for(lambda: daemon.runs(outcome="ok"))
    told = run["telemetry"]
    assert told["utilization"]["gpu"] == {"mean_ratio": 0.4, "max_ratio": 0.4}
    assert told["sources"] == {"gpu": "nvml", "gpu_power": "nvml"}
    assert 30 <= told["gpu_power_watts"] <= 90
    memory = {one["name"]: one["gpu_memory_bytes"] for one in run["other_processes"]}
    assert memory.pop("other") == 1 << 20
    assert list(memory.values()) == [3 << 30]
    # It is no rail: the energy is that of the lines alone.
    assert set(run["energy"]["rails"]) == {"VDD_GPU", "VDD_CPU_SOC_MSS", "VIN_SYS_5V0"}
    page = daemon.get("metrics")
    assert daemon.metric("tegra_gpu_utilization_ratio", page) == 0.4
    assert daemon.metric("tegra_gpu_power_watts", page) >= 30
    source = 'tegrascope_signal_source_info{{signal="{}",source="{}"'.format
    assert daemon.metric(source("tegra_gpu_utilization_ratio", "nvml"), page) == 1
    assert daemon.metric(source("tegra_gpu_frequency_hertz", "replay"), page) == 1
    assert daemon.metric('tegra_process_gpu_memory_bytes{process="other"', page) == 1 << 20
    os.kill(daemon.wait_for(lambda: daemon.child("gpu.reader")), signal.SIGKILL)
    daemon.wait_for(lambda: daemon.metric('tegrascope_source_up{source="nvml"') == 0)
    daemon.wait_for(lambda: daemon.metric('tegrascope_source_up{source="nvml"') == 1)
    daemon.wait_for(lambda: daemon.metric("tegra_gpu_utilization_ratio") == 0.4)
    assert daemon.stop() < 3


ORIN = "agx-orin-64gb__r36.4.4"


@pytest.mark.parametrize("nvml", ["answers", "refuses", "absent"])
def test_orin_keeps_the_load_of_its_lines(start, asked, tmp_path, nvml):
    """Whatever NVML does, each value of the lines stays; its refusal is one line of log."""
    calls = ("UtilizationRates", "PowerUsage", "FieldValues", "ComputeRunningProcesses")
    refusals = dict.fromkeys((*calls, "GraphicsRunningProcesses"), 3)
    asked(refuse=refusals if nvml == "refuses" else {}, absent=nvml == "absent")
    log = recorded(ORIN, tmp_path)
    alone = parse_line(log.read_text(encoding="utf-8").splitlines()[0].partition("::")[2])
    daemon = start(BESIDE.format(log=log, beside="true"))
    (run, *_) = daemon.wait_for(lambda: daemon.runs(outcome="ok"))
    told = run["telemetry"]
    assert told["sources"]["gpu"] == "replay"
    assert told["utilization"]["gpu"]["max_ratio"] == 0
    page = daemon.get("metrics")
    assert daemon.metric("tegra_gpu_utilization_ratio", page) == alone.gpu.utilization_ratio == 0
    assert daemon.metric("tegra_emc_utilization_ratio", page) is not None
    assert daemon.metric('tegrascope_source_up{source="replay"', page) == 1
    assert (daemon.metric("tegra_gpu_power_watts", page) is not None) == (nvml == "answers")
    # The time stands before each; the child's end and its problem are the same words.
    said = {line.partition(" ")[2] for line in daemon.log if "nvml" in line.lower()}
    assert len(said) == (0 if nvml == "answers" else 1), said
    assert daemon.stop() < 3


LIVE = """
telemetry:
  interval: 103ms
  sysfs: {root}
  tegrastats: {{command: [{program}]}}
"""


@pytest.mark.parametrize("chip", ["tegra264", "tegra234"])
def test_thor_reads_nvml_by_itself_and_orin_does_not(start, asked, tmp_path, chip):
    """The lines are the same; the device tree decides whether a child is started."""
    asked()
    root, program = tmp_path / "root", tmp_path / "tegrastats"
    for file in ("proc/driver/nvidia/version", "proc/device-tree/compatible"):
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_text(f"nvidia,{chip}\0", encoding="ascii")
    line = (CAPTURES / "agx-thor__r38.4.0.txt").read_text(encoding="utf-8").splitlines()[0]
    program.write_text(f"#!/bin/sh\nwhile echo '{line}'; do sleep 0.1; done\n", encoding="utf-8")
    program.chmod(0o755)
    daemon = start(LIVE.format(root=root, program=program))
    samples = 'tegrascope_samples_total{source="tegrastats"}'
    daemon.wait_for(lambda: (daemon.metric(samples) or 0) >= 30)
    is_thor = chip == "tegra264"
    if is_thor:
        daemon.wait_for(lambda: daemon.metric("tegra_gpu_utilization_ratio") == 0.4)
    page = daemon.get("metrics")
    assert (daemon.metric("tegra_gpu_utilization_ratio", page) is not None) == is_thor
    assert (daemon.metric("tegra_gpu_power_watts", page) is not None) == is_thor
    assert ('source="nvml"' in page) == is_thor
    assert (daemon.child("gpu.reader") is not None) == is_thor
    # Without telemetry.processes nothing is read of them.
    assert "tegra_process_" not in page
