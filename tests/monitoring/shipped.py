"""Simulated devices as a Prometheus has them that scrapes as the shipped configurations do.

Their pages are made in simulated time, so minutes of scrapes take a second. promtool makes blocks
of them, and a Prometheus serves these.
"""

import subprocess
import time
from collections.abc import Iterator
from typing import NamedTuple

from tegrascope.daemon.export.metrics import families
from tests.monitoring.prometheus import Monitoring, Prometheus
from tools.fleet.devices import SimulatedDevice
from tools.fleet.plan import plan_device

SPAN_SECONDS = 500
JOB = "tegrascope"


class Scraped(NamedTuple):
    """A Prometheus with the scrapes of some minutes, and the time of the last ones."""

    prometheus: Prometheus
    now: float


Point = tuple[float, str, dict[str, str], float]


def scrapes(number: int, interval_seconds: float, now_ns: int) -> Iterator[Point]:
    """Yield what scrapes of a device give: seconds before now, name, labels and value.

    Each device is scraped at an offset of its own, as Prometheus does it.
    """
    plan = plan_device(number, 0, 1.009)
    # Its past may not lie before the boot of this machine, so its clock is ahead instead.
    begin_ns, ahead_ns = now_ns, SPAN_SECONDS * 10**9
    device = SimulatedDevice(plan, begin_ns=begin_ns, interval_seconds=1.009, ahead_ns=ahead_ns)
    target = {"job": JOB, "instance": plan.name, "site": plan.site}
    at = (number * 0.37) % 1 * interval_seconds
    while at < SPAN_SECONDS:
        at_ns = begin_ns + round(at * 1e9)
        while device.due_ns <= at_ns:
            device.step()
        is_up = not device.is_gone()
        yield at - SPAN_SECONDS, "up", target, float(is_up)
        for family in families(device.live.snapshot, at_ns) if is_up else ():
            for one in family.samples:
                yield at - SPAN_SECONDS, one.name, {**one.labels, **target}, float(one.value)
        at += interval_seconds


def text_of(numbers: range, interval_seconds: float, now: float) -> str:
    """Return all scrapes of devices in the OpenMetrics format, series by series."""
    lines: dict[str, list[str]] = {}
    now_ns = time.monotonic_ns()
    for number in numbers:
        for at, name, labels, value in scrapes(number, interval_seconds, now_ns):
            named = ",".join(f'{key}="{text}"' for key, text in sorted(labels.items()))
            series = f"{name}{{{named}}}"
            lines.setdefault(series, []).append(f"{series} {value} {now + at:.3f}\n")
    return "".join(line for series in lines.values() for line in series) + "# EOF\n"


def scraped(monitoring: Monitoring, interval_seconds: float, numbers: range) -> Scraped:
    """Return a Prometheus with the scrapes of devices."""
    server = monitoring.prometheus({"global": {"scrape_interval": "1h"}})
    server.stop()
    now = time.time()
    page = server.config.with_name("page.txt")
    page.write_text(text_of(numbers, interval_seconds, now))
    command = (
        "promtool",
        "tsdb",
        "create-blocks-from",
        "openmetrics",
        page,
        page.with_name("data"),
    )
    subprocess.run(command, check=True, capture_output=True)
    server.restart()
    return Scraped(server, now)
