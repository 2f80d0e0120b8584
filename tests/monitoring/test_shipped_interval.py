"""Every panel at the scrape interval of every configuration that is shipped."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import yaml

from tests.monitoring.grafana import filled, panels
from tests.monitoring.prometheus import Monitoring, needs_prometheus
from tests.monitoring.rule_files import ROOT, SHIPPED, seconds
from tests.monitoring.shipped import Scraped, scraped

DEVICES = range(1, 4)
CONFIGS = ("prometheus.yml", "fleet-files.yml", "fleet-http.yml", "robot-agent.yml")
BOARDS = sorted((ROOT / "grafana/dashboards").glob("*.json"))
CHOSEN = {"job": ".*", "instance": ".*", "model": ".*", "workload": ".*", "site": ".*",
          "board": ".*", "alert": "Tegra.*"}  # fmt: skip
# Minutes that are looked at: those whose ranges of five minutes are full.
LOOKED_SECONDS = 150
STEP = 5

pytestmark = needs_prometheus


def interval_of(config: str) -> int:
    """Return the scrape interval of a configuration, in seconds."""
    document = yaml.safe_load((SHIPPED / config).read_text(encoding="utf-8"))
    return seconds(document["global"]["scrape_interval"])


@pytest.fixture(scope="module", params=sorted({interval_of(config) for config in CONFIGS}))
def seen(request, tmp_path_factory) -> Iterator[Scraped]:
    """Devices that were scraped at a shipped interval; the configurations have one or several."""
    monitoring = Monitoring(tmp_path_factory.mktemp("shipped"))
    yield scraped(monitoring, request.param, DEVICES)
    monitoring.stop()


def rate_interval() -> str:
    """Return Grafana's `$__rate_interval` of a graph that is zoomed in, with the data source."""
    path = ROOT / "grafana/provisioning/datasources/tegrascope.yaml"
    (source,) = yaml.safe_load(path.read_text(encoding="utf-8"))["datasources"]
    least = seconds(source["jsonData"]["timeInterval"])
    return f"{max(least + least, 4 * least)}s"


def answer(seen: Scraped, expr: str) -> dict[str, dict[float, float]]:
    """Return the points of each series of a query in the last minutes."""
    span = {"start": str(seen.now - LOOKED_SECONDS), "end": str(seen.now - 15), "step": str(STEP)}
    found = seen.prometheus.ask("query_range", query=expr, **span)["result"]
    return {
        json.dumps(one["metric"], sort_keys=True): {at: float(value) for at, value in one["values"]}
        for one in found
    }


def targets() -> Iterator[tuple[str, Mapping[str, Any]]]:
    for path in BOARDS:
        for panel in panels(json.loads(path.read_text(encoding="utf-8"))):
            for target in panel["targets"]:
                yield f"{path.stem}: {panel['title']}", target


def test_no_rate_has_a_gap(seen):
    """What a wide range answers is there at every moment in the range that Grafana uses."""
    asked = 0
    blank = {}
    for name, target in targets():
        if "$__rate_interval" not in target["expr"]:
            continue
        # A quantile or a mean of no inference is left out, and that is no gap.
        expr = target["expr"].removesuffix(" >= 0").replace(" > 0)", ")")
        wide = answer(seen, filled(expr.replace("$__rate_interval", "5m"), CHOSEN))
        drawn = expr.replace("$__rate_interval", rate_interval())
        narrow = answer(seen, filled(drawn, CHOSEN))
        moments = LOOKED_SECONDS // STEP
        for series, points in wide.items():
            if len(points) >= moments - 3 and len(narrow.get(series, ())) < len(points):
                blank[name, series] = len(narrow.get(series, ())), len(points)
        asked += bool(wide)
    assert asked >= 6
    assert blank == {}


def test_a_dla_is_never_busier_than_powered(seen):
    """On every board and at every moment the panels say so, and neither is always full."""
    values: dict[str, dict[tuple[str, float], float]] = {}
    rows = {"DLA busy": "busy", "DLA powered": "powered"}
    (fleet,) = (path for path in BOARDS if path.stem == "fleet")
    for panel in panels(json.loads(fleet.read_text(encoding="utf-8"))):
        name = rows.get(panel["title"].partition(":")[0])
        if name is not None and panel["type"] == "bargauge":
            (target,) = panel["targets"]
            values[name] = {
                (re.sub('"source": "[^"]+", |, "source": "[^"]+"', "", series), at): value
                for series, points in answer(seen, filled(target["expr"], CHOSEN)).items()
                for at, value in points.items()
            }
    assert set(values) == {"busy", "powered"}
    assert len({series for series, _ in values["busy"]}) >= 4
    for key, busy in values["busy"].items():
        # A core that works is looked at some twenty times in five minutes.
        assert busy <= values["powered"][key] + 0.15, key
    assert 0 < sum(values["busy"].values()) / len(values["busy"]) < 0.8


@pytest.mark.parametrize("title", ["Latency", "Gross energy per inference"])
def test_a_device_is_compared_with_the_median_of_the_fleet(seen, title):
    """The median of each workload is 1, whatever its seconds and joules are."""
    wanted = f"fleet: {title} against the fleet"
    (expr,) = {target["expr"] for name, target in targets() if name == wanted}
    ratios: dict[tuple[str, str], list[float]] = {}
    for series, points in answer(seen, filled(expr, CHOSEN)).items():
        labels = json.loads(series)
        ratios.setdefault((labels["workload"], labels["device"]), []).append(max(points.items())[1])
    assert ratios
    for key, found in ratios.items():
        assert min(found) <= 1 <= max(found), key


def test_devices_without_failures_and_throttling_are_not_listed(seen):
    for what in ("Failed runs", "Throttled time", "Throttle events"):
        title = f"{what} in the last hour"
        (expr,) = {target["expr"] for name, target in targets() if name == f"fleet: {title}"}
        found = answer(seen, filled(expr, CHOSEN))
        assert all(value > 0 for points in found.values() for value in points.values())


def test_the_newest_sample_is_fresh_at_any_scrape_interval(seen):
    """The age is that at the scrape: devices that work are not orange because they wait for one."""
    (expr,) = {
        target["expr"] for name, target in targets() if name == "device: Age of the newest sample"
    }
    found = answer(seen, filled(expr, CHOSEN))
    assert len(found) == len(DEVICES)
    assert all(0 <= value < 3 for points in found.values() for value in points.values())
