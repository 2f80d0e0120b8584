"""What a fleet costs: pages, scrapes, Prometheus, disk, and an agent's uplink.

    .venv/bin/python -m tools.benchmarks.fleet --devices 200 --minutes 5

Runs the simulated fleet and the real Prometheus of this machine with the configurations
of ``grafana/prometheus``, at their own scrape interval, and prints one line per figure of the table
in ``docs/fleet.md``. Bytes on disk are those of blocks of two hours, made by promtool of the pages
of devices whose time runs faster.
"""

import argparse
import gzip
import json
import os
import re
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tegrascope.daemon.export.metrics import families
from tests.monitoring.fleets import OPENMETRICS, SimulatedFleet
from tests.monitoring.prometheus import Monitoring, Prometheus
from tests.monitoring.servers import wait_for
from tools.fleet.devices import SimulatedDevice
from tools.fleet.plan import plan_device

SHIPPED = Path(__file__).parents[2] / "grafana/prometheus"
_TICKS = os.sysconf("SC_CLK_TCK")
_IDLE_SECONDS = 20
_BLOCK_SECONDS, _SCRAPE_SECONDS = 7200, 15


def main() -> None:
    """Measure, and print as it comes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--devices", type=int, default=200)
    parser.add_argument("--minutes", type=float, default=5.0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        monitoring = Monitoring(directory)
        fleet = SimulatedFleet(asked.devices, directory / "fleet.log", seconds=600)
        try:
            series = pages(fleet, asked.devices)
            scrapes(fleet, asked.devices, asked.minutes * 60, monitoring)
        finally:
            monitoring.stop()
            fleet.stop()
        disk(directory, series, asked.devices)


def pages(fleet: SimulatedFleet, devices: int) -> float:
    """Tell how large the pages are, and return the mean number of series."""
    found = [fleet.get(f"device/{n}/metrics", Accept=OPENMETRICS) for n in range(1, devices + 1, 5)]
    plain = [len(page.encode()) for page in found]
    small = [len(gzip.compress(page.encode(), 1)) for page in found]
    series = [sum(not line.startswith("#") for line in page.splitlines()) for page in found]
    tell("series a device", span(series))
    tell("page, plain", span(plain), "B")
    tell("page, gzip as served", span(small), "B")
    return statistics.mean(series)


def scrapes(fleet: SimulatedFleet, devices: int, seconds: float, monitoring: Monitoring) -> None:
    """Tell what being scraped costs the devices, Prometheus and an agent."""
    begin, used = time.monotonic(), cpu_seconds(fleet.process.pid)
    tell("simulated fleet, start", f"{used / devices:.2f}", "CPU s a device")
    time.sleep(_IDLE_SECONDS)
    idle = (cpu_seconds(fleet.process.pid) - used) / (time.monotonic() - begin)
    tell(
        "simulated fleet, not scraped", f"{idle / devices * 1e3:.2f}", "CPU ms a second and device"
    )
    central = monitoring.prometheus(
        config("fleet-http.yml", {"http://127.0.0.1:9760/": fleet.url}),
        "--web.enable-remote-write-receiver",
    )
    os.environ |= {"ROBOT": "robot-001", "SITE": "bench"}
    agent = monitoring.prometheus(
        config("robot-agent.yml", agent_words(fleet, central)),
        "--enable-feature=expand-external-labels",
        agent=True,
    )
    central.wait_for_scrape(devices * 9 // 10, seconds=180)
    wait_for(lambda: metric(agent, "prometheus_remote_storage_bytes_total"))
    begin = time.monotonic()
    before = cpu_seconds(fleet.process.pid), cpu_seconds(central.process.pid)
    pushed = metric(agent, "prometheus_remote_storage_bytes_total")
    samples = metric(agent, "prometheus_remote_storage_samples_total")
    kept = log_bytes(agent)
    time.sleep(seconds)
    elapsed = time.monotonic() - begin
    after = cpu_seconds(fleet.process.pid), cpu_seconds(central.process.pid)
    served = sum(central.values(f'count_over_time(up{{robot=~"sim.*"}}[{round(elapsed)}s])'))
    tell("scrapes", f"{served:.0f}", f"in {elapsed:.0f} s")
    page = ((after[0] - before[0]) - idle * elapsed) / served
    tell("a scrape costs the scraped process", f"{page * 1e3:.1f}", "CPU ms")
    cost = (after[1] - before[1]) / served
    tell("a scrape costs Prometheus", f"{cost * 1e3:.2f}", "CPU ms")
    tell(
        f"Prometheus with {devices} devices", f"{cost * devices / _SCRAPE_SECONDS:.1%}", "of a core"
    )
    tell("a scrape takes", quantiles(central), "s")
    tell("Prometheus, series in memory", f"{metric(central, 'prometheus_tsdb_head_series'):.0f}")
    tell("Prometheus, resident", f"{resident(central.process.pid) / 2**20:.0f}", "MiB")
    wire = metric(agent, "prometheus_remote_storage_bytes_total") - pushed
    samples = metric(agent, "prometheus_remote_storage_samples_total") - samples
    tell("pushed by an agent", f"{wire / samples:.1f}", "B a sample")
    tell("pushed by an agent", f"{wire / elapsed * 86400 / 2**20:.0f}", "MiB a day")
    tell("agent, resident", f"{resident(agent.process.pid) / 2**20:.0f}", "MiB")
    written = log_bytes(agent) - kept
    tell("agent, log on disk", f"{written / samples:.1f}", "B a sample")
    tell("agent, log on disk", f"{written / elapsed * 86400 / 2**20:.0f}", "MiB a day")


def disk(directory: Path, series: float, devices: int) -> None:
    """Tell how many bytes a sample takes in a block of two hours, and a fleet in a month."""
    path = directory / "pages.om"
    with path.open("w") as text:
        text.writelines(past_pages(range(1, 4)))
    blocks = directory / "blocks"
    command = ("promtool", "tsdb", "create-blocks-from", "openmetrics", path, blocks)
    subprocess.run(command, check=True, capture_output=True)
    made = [json.loads(one.read_text())["stats"] for one in blocks.glob("*/meta.json")]
    samples = sum(stats["numSamples"] for stats in made)
    size = sum(one.stat().st_size for one in blocks.rglob("*") if one.is_file())
    tell("on disk", f"{size / samples:.2f}", f"B a sample ({samples} in {len(made)} blocks)")
    day = size / samples * series * 86400 / _SCRAPE_SECONDS
    tell("on disk", f"{day / 1e6:.1f}", "MB a day and device")
    tell(f"on disk, {devices} devices, 30 days", f"{day * devices * 30 / 1e9:.0f}", "GB")


def past_pages(numbers: range) -> Iterator[str]:
    """Yield what a Prometheus would have scraped of some devices in the last two hours."""
    lines: dict[str, list[str]] = {}
    begin = (int(time.time()) // _BLOCK_SECONDS - 1) * _BLOCK_SECONDS  # where a block begins
    for number in numbers:
        plan = plan_device(number, 0, 1.009)
        device = SimulatedDevice(plan, begin_ns=0, interval_seconds=1.009)
        for scrape in range(_BLOCK_SECONDS // _SCRAPE_SECONDS):
            at_ns = scrape * _SCRAPE_SECONDS * 1_000_000_000
            while device.due_ns < at_ns:
                device.step()
            for family in families(device.live.snapshot, device.clock.monotonic_ns()):
                kept = lines.setdefault(family.name, [f"# TYPE {family.name} {family.type}\n"])
                for one in family.samples:
                    labels = {**one.labels, "instance": plan.name}
                    inside = ",".join(f'{key}="{value}"' for key, value in labels.items())
                    stamp = begin + scrape * _SCRAPE_SECONDS
                    kept.append(f"{one.name}{{{inside}}} {float(one.value)} {stamp}\n")
    for kept in lines.values():
        yield from kept
    yield "# EOF\n"


def config(name: str, words: dict[str, str]) -> str:
    """Return a shipped configuration with words replaced."""
    text = (SHIPPED / name).read_text(encoding="utf-8")
    text = text.replace("rules/*.yml", f"{SHIPPED}/rules/*.yml")
    for old, new in words.items():
        assert old in text, old
        text = text.replace(old, new)
    return text


def agent_words(fleet: SimulatedFleet, central: Prometheus) -> dict[str, str]:
    """Return what the agent's configuration says otherwise here: one device, no TLS."""
    return {
        "https://prometheus.example/": central.url,
        "      password_file: /etc/prometheus/push-password": "      password: none",
        "    tls_config:\n      ca_file: /etc/prometheus/receiver-ca.pem\n": "",
        '- targets: ["127.0.0.1:9754"]': (
            f'- targets: ["{fleet.address}"]\n'
            "        labels: {__metrics_path__: /device/001/metrics}"
        ),
    }


def metric(server: Prometheus, name: str) -> float:
    """Return the sum of a metric of a server's own page."""
    found = re.findall(rf"^{name}(?:{{.*}})? (\S+)$", server.get("metrics"), re.MULTILINE)
    return sum(map(float, found))


def log_bytes(agent: Prometheus) -> int:
    """Return the size of an agent's write-ahead log."""
    return sum(one.stat().st_size for one in agent.log.parent.glob("data/wal/0*"))


def quantiles(server: Prometheus) -> str:
    """Return median and 99th percentile of how long a scrape took."""
    return " / ".join(
        f"{server.value(f'quantile({share}, scrape_duration_seconds)'):.3f}"
        for share in (0.5, 0.99)
    )


def cpu_seconds(pid: int) -> float:
    """Return the processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def resident(pid: int) -> int:
    """Return the resident bytes of a process."""
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) * 1024 if found else 0


def span(numbers: list[int]) -> str:
    """Return the mean of numbers and their range."""
    return f"{statistics.mean(numbers):.0f} ({min(numbers)} to {max(numbers)})"


def tell(what: str, figure: str, unit: str = "") -> None:
    """Print one figure."""
    print(f"{what:36} {figure} {unit}".rstrip(), flush=True)


if __name__ == "__main__":
    main()
