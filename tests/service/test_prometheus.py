"""The main job, end to end: a recorded board and real inference, scraped by a real Prometheus."""

import json
import shutil
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import pytest

from tegrascope.collectors.simulator import JumpClock, SimulatorSource

RECORDED = Path(__file__).parents[2] / "../shared/corpus/tegrastats/logs/agxorin64-r36-root.log"
TOTAL = ("VDD_GPU_SOC", "VDD_CPU_CV", "VIN_SYS_5V0")
MINUTE_SECONDS = 60
CONFIG = """
telemetry: {{source: replay, replay: {{path: "{log}", speed: 10}}}}
workloads:
- {{name: cpu, model: "builtin:mobilenet", device: cpu, threads: 1, warm_up: 100ms,
   baseline: 300ms, duration: 2s, every: 5s}}
"""

pytestmark = pytest.mark.skipif(
    not (shutil.which("prometheus") and shutil.which("promtool")),
    reason="prometheus is not installed: apt install prometheus",
)


class Prometheus:
    """A real server that scrapes one daemon each second."""

    def __init__(self, target: str, directory: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        config = directory / "prometheus.yml"
        config.write_text(
            "global: {scrape_interval: 1s}\n"
            "scrape_configs: [{job_name: tegrascope, static_configs: "
            f"[{{targets: ['{target}']}}]}}]\n"
        )
        self.log = (directory / "prometheus.log").open("w")
        self.process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={config}",
                f"--storage.tsdb.path={directory / 'tsdb'}",
                f"--web.listen-address=127.0.0.1:{self.port}",
                "--enable-feature=exemplar-storage",
            ],
            stderr=self.log,
        )

    def ask(self, path: str, **parameters: str) -> Any:
        """Return the data of an answer of the HTTP API; ``None`` while it does not answer."""
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                return json.load(answer)["data"]
        except OSError:
            return None

    def value(self, query: str, at: float) -> float:
        """Return the one number that a query gives."""
        (found,) = self.ask("query", query=query, time=str(at))["result"]
        return float(found["value"][1])

    def series(self, selector: str) -> list[tuple[float, float]]:
        """Return all scraped points of one series."""
        (found,) = self.ask("query", query=f"{selector}[5m]")["result"]
        return [(at, float(value)) for at, value in found["values"]]


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
def scraped(start, log, tmp_path) -> "Iterator[tuple[Any, Prometheus]]":
    """A daemon that replays the log ten times as fast, after a minute under Prometheus."""
    daemon = start(CONFIG.format(log=log))
    prometheus = Prometheus(daemon.url.removeprefix("http://").rstrip("/"), tmp_path)
    daemon.wait_for(
        lambda: (prometheus.ask("query", query="tegrascope_source_up") or {}).get("result")
    )
    until = time.time() + MINUTE_SECONDS
    daemon.wait_for(lambda: time.time() > until, MINUTE_SECONDS + 10)
    yield daemon, prometheus
    prometheus.process.terminate()
    prometheus.process.wait(20)
    prometheus.log.close()


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
    """Prometheus' rate of the energy counter is the mean power, and each run adds its energy."""
    daemon, prometheus = scraped
    samples = daemon.json("api/v1/samples?since=0&limit=36000")["samples"]
    known = recorded_watts(log)
    for one in samples:
        total = sum(one["values"][f"rails.{rail}.instant_watts"] for rail in TOTAL)
        assert min(abs(total - watts) for watts in known) < 1e-6

    end = prometheus.series("tegra_module_energy_joules_total")[-1][0]
    rate = prometheus.value("rate(tegra_module_energy_joules_total[30s])", end)
    assert rate == pytest.approx(mean_watts(samples, end - 30, end), rel=0.02)

    energy = prometheus.series('tegra_inference_energy_joules_total{kind="gross"}')
    steps = [b - a for (_, a), (_, b) in pairwise(energy) if b != a]
    runs = [run["energy"]["gross_joules"] for run in reversed(daemon.runs(outcome="ok"))]
    assert len(steps) >= 8
    assert all(step > 0 for step in steps)
    # The first run may have ended before the first scrape; after that, each is one step.
    seen = next(at for at, run in enumerate(runs) if run == pytest.approx(steps[0]))
    assert seen <= 2
    assert steps == pytest.approx(runs[seen : seen + len(steps)])

    now = time.time()
    exemplars = prometheus.ask(
        "query_exemplars",
        query="tegra_inference_latency_seconds_bucket",
        start=str(now - 120),
        end=str(now),
    )
    found = {one["labels"]["run_id"] for series in exemplars for one in series["exemplars"]}
    assert found & {run["run_id"] for run in daemon.runs()}

    told = subprocess.run(
        ["promtool", "check", "metrics"],
        input=daemon.get("metrics"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (told.returncode, told.stdout + told.stderr) == (0, "")
