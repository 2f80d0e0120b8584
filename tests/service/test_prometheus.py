"""The main job, end to end: a recorded board and real inference, scraped by a real Prometheus."""

import subprocess
from itertools import accumulate, groupby, islice, pairwise
from pathlib import Path
from typing import Any

import pytest

from tegrascope.collectors.simulator.board import JumpClock, SimulatorSource
from tests.monitoring.prometheus import Prometheus, needs_prometheus

RECORDED = Path(__file__).parents[2] / "../shared/corpus/tegrastats/logs/agxorin64-r36-root.log"
TOTAL = ("VDD_GPU_SOC", "VDD_CPU_CV", "VIN_SYS_5V0")
WINDOW_SECONDS = 25
RUNS = 8
CONFIG = """
telemetry: {{source: replay, replay: {{path: "{log}", speed: 10}}}}
workloads:
- {{name: cpu, model: "builtin:mobilenet", device: cpu, threads: 1, warm_up: 100ms,
   baseline: 200ms, duration: 1s, every: 2500ms}}
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
    """A daemon that replays the log ten times as fast, after some runs under Prometheus."""
    daemon = start(CONFIG.format(log=log))
    prometheus = monitoring.scraping(daemon.address)
    prometheus.wait_for_scrape()

    def has_seen_enough() -> bool:
        times = [at for at, _ in prometheus.series("tegra_module_energy_joules_total")]
        return times[-1] - times[0] > WINDOW_SECONDS + 2 and len(energies(prometheus)) > RUNS

    daemon.wait_for(has_seen_enough)
    return daemon, prometheus


def energies(prometheus: Prometheus) -> list[float]:
    """Return the values that the energy of runs had, each once."""
    try:
        points = prometheus.series('tegra_inference_energy_joules_total{kind="gross"}')
    except ValueError:  # there is none yet
        return []
    return [value for value, _ in groupby(value for _, value in points)]


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


def test_energy_is_that_of_the_samples_under_prometheus(scraped, log):
    """Joules per observed second are the mean power, and each run adds its energy."""
    daemon, prometheus = scraped
    samples = daemon.json("api/v1/samples?since=0&limit=36000")["samples"]
    known = recorded_watts(log)
    for one in samples:
        total = sum(one["values"][f"rails.{rail}.instant_watts"] for rail in TOTAL)
        assert min(abs(total - watts) for watts in known) < 1e-6

    times = [at for at, _ in prometheus.series("tegra_module_energy_joules_total")]
    end = times[-1]
    begin = next(at for at in times if at > end - WINDOW_SECONDS)
    watts = prometheus.value(
        f"rate(tegra_module_energy_joules_total[{WINDOW_SECONDS}s])"
        f" / rate(tegra_module_energy_observed_seconds_total[{WINDOW_SECONDS}s])",
        end,
    )
    # A page tells of the time before its scrape, and comes late on a busy machine.
    late = (-0.5, 0.0, 0.5, 1.0)
    means = [mean_watts(samples, begin + one, end + other) for one in late for other in late]
    assert min(means) * 0.98 < watts < max(means) * 1.02

    # A run whose samples a busy machine lost has no energy, and says so.
    runs = daemon.runs(outcome="ok")[::-1]
    measured = [run for run in runs if "gross_joules" in run.get("energy", {})]
    assert all("telemetry_gap" in run["quality"] for run in runs if run not in measured)
    totals = [0.0, *accumulate(run["energy"]["gross_joules"] for run in measured)]
    seen = energies(prometheus)
    assert len(seen) > RUNS
    assert seen == sorted(seen)
    # Between two scrapes there may be two runs; each value is the energy of all until then.
    assert [min(totals, key=lambda one: abs(one - value)) for value in seen] == pytest.approx(seen)

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
