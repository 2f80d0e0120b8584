"""The main job, end to end: a recorded board and real inference, scraped by a real Prometheus."""

import subprocess
import time
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import pytest

from tegrascope.collectors.simulator.board import JumpClock, SimulatorSource
from tests.monitoring.prometheus import Prometheus, needs_prometheus

RECORDED = Path(__file__).parents[2] / "../shared/corpus/tegrastats/logs/agxorin64-r36-root.log"
TOTAL = ("VDD_GPU_SOC", "VDD_CPU_CV", "VIN_SYS_5V0")
MINUTE_SECONDS = 60
CONFIG = """
telemetry: {{source: replay, replay: {{path: "{log}", speed: 10}}}}
workloads:
- {{name: cpu, model: "builtin:mobilenet", device: cpu, threads: 1, warm_up: 100ms,
   baseline: 300ms, duration: 2s, every: 5s}}
"""

pytestmark = needs_prometheus


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """The recorded log of an AGX Orin, or a simulated one where it is not at hand."""
    if RECORDED.exists():
        return RECORDED.resolve()
    path = tmp_path / "simulated.log"
    source = SimulatorSource(clock=JumpClock(), interval_seconds=0.5, seed=11)
    path.write_text("".join(f"{line.value}\n" for line in islice(source.lines(), 2400)))
    return path


@pytest.fixture
def scraped(start, log, monitoring) -> tuple[Any, Prometheus]:
    """A daemon that replays the log ten times as fast, after a minute under Prometheus."""
    daemon = start(CONFIG.format(log=log))
    prometheus = monitoring.scraping(daemon.address)
    prometheus.wait_for_scrape()
    until = time.time() + MINUTE_SECONDS
    daemon.wait_for(lambda: time.time() > until, MINUTE_SECONDS + 10)
    return daemon, prometheus


def mean_watts(samples: list[dict[str, Any]], begin: float, end: float) -> float:
    """Return the time-weighted mean of the total rails' sum, made of the samples alone."""
    points = [
        (one["time"], sum(one["values"][f"rails.{rail}.instant_watts"] for rail in TOTAL))
        for one in samples
        if begin <= one["time"] <= end
    ]
    joules = sum((b[0] - a[0]) * (a[1] + b[1]) / 2 for a, b in pairwise(points))
    return joules / (points[-1][0] - points[0][0])


def recorded_watts(log: Path) -> set[float]:
    """Return every sum of the total rails that the log holds, read without our parser."""
    sums = set()
    for line in log.read_text().splitlines():
        words = line.split()
        milliwatts = [int(words[words.index(rail) + 1].split("mW")[0]) for rail in TOTAL]
        sums.add(sum(milliwatts) / 1000)
    return sums


def test_a_minute_under_prometheus(scraped, log):
    """Joules per observed second are the mean power, and each run adds its energy."""
    daemon, prometheus = scraped
    samples = daemon.json("api/v1/samples?since=0&limit=36000")["samples"]
    known = recorded_watts(log)
    for one in samples:
        total = sum(one["values"][f"rails.{rail}.instant_watts"] for rail in TOTAL)
        assert min(abs(total - watts) for watts in known) < 1e-6

    end = prometheus.series("tegra_module_energy_joules_total")[-1][0]
    watts = prometheus.value(
        "rate(tegra_module_energy_joules_total[30s])"
        " / rate(tegra_module_energy_observed_seconds_total[30s])",
        end,
    )
    assert watts == pytest.approx(mean_watts(samples, end - 30, end), rel=0.02)

    energy = prometheus.series('tegra_inference_energy_joules_total{kind="gross"}')
    steps = [b - a for (_, a), (_, b) in pairwise(energy) if b != a]
    runs = [run["energy"]["gross_joules"] for run in reversed(daemon.runs(outcome="ok"))]
    assert len(steps) >= 8
    assert all(step > 0 for step in steps)
    # The first run may have ended before the first scrape; after that, each is one step.
    seen = next(at for at, run in enumerate(runs) if run == pytest.approx(steps[0]))
    assert seen <= 2
    assert steps == pytest.approx(runs[seen : seen + len(steps)])

    exemplars = prometheus.exemplars("tegra_inference_latency_seconds_bucket")
    found = {one["labels"]["run_id"] for one in exemplars}
    assert found & {run["run_id"] for run in daemon.runs()}

    told = subprocess.run(
        ["promtool", "check", "metrics"],
        input=daemon.get("metrics"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (told.returncode, told.stdout + told.stderr) == (0, "")
