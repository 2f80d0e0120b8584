"""A board that was throttled before the first scrape, and has been since, on the dashboards."""

import json
import time
from pathlib import Path

from tests.monitoring.grafana import filled, panels
from tests.monitoring.prometheus import needs_prometheus, scrape_config, wait_for

pytestmark = needs_prometheus

DASHBOARDS = Path(__file__).parents[2] / "grafana/dashboards"
# Its zones are above their trips from the first sample on.
HOT = """
telemetry:
  {source: simulator, interval: 103ms,
   simulator: {board: agx-orin-64gb, seed: 1, ambient_celsius: 100}}
"""
ACTIVE = 'tegra_throttle_active{kind="tj_thermal",simulated="true"}'


def largest(prometheus, board, expr):
    """Return the largest value that a query has now, with all devices chosen; 0 without one."""
    chosen = {variable["name"]: ".*" for variable in board["templating"]["list"]}
    series = prometheus.query(filled(expr, chosen), time.time())
    return max((float(each["value"][1]) for each in series), default=0.0)


def test_throttling_without_pause_is_on_every_dashboard_that_shows_throttling(start, monitoring):
    """The counter of its events was 1 before the first scrape, so it never grows."""
    daemon = start(HOT)
    daemon.wait_for(lambda: daemon.metric(ACTIVE) == 1)
    prometheus = monitoring.prometheus(scrape_config(daemon.address))
    wait_for(lambda: prometheus.query(f"count_over_time({ACTIVE}[1m]) >= 5"))
    assert prometheus.query("sum(increase(tegra_throttle_events_total[1m])) == 0")
    shown = set()
    for path in DASHBOARDS.glob("*.json"):
        board = json.loads(path.read_text(encoding="utf-8"))
        drawn = [
            (panel["title"], target["expr"])
            for panel in panels(board)
            for target in panel["targets"]
        ]
        for band in board["annotations"].get("list", []):
            drawn.append((f"band {band['name']}", band["expr"]))
        for title, expr in drawn:
            if "tegra_throttle_active" in expr and largest(prometheus, board, expr) > 0:
                shown.add((path.stem, title))
    assert shown == {
        ("device", "Clocks held low"),
        ("device", "band Throttling"),
        ("device", "Throttled, of the time shown"),
        ("fleet", "Throttled time in the last hour"),
    }
