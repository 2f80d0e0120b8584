"""A real Prometheus scrapes the page of DCGM, and a dashboard for DCGM asks it."""

import pytest

from tests.monitoring.prometheus import scrape_config
from tests.monitoring.servers import needs_prometheus, wait_for

pytestmark = needs_prometheus
CONFIG = """
telemetry: {source: simulator, interval: 103ms}
http: {compatibility: [dcgm]}
"""
CHOSEN = '{instance=~"$instance", gpu=~"$gpu"}'
# Queries of the panels of https://grafana.com/grafana/dashboards/12239, which is
# grafana/dcgm-exporter-dashboard.json in https://github.com/NVIDIA/dcgm-exporter; low and high.
PANELS = {
    "DCGM_FI_DEV_GPU_TEMP" + CHOSEN: (20, 100),
    "avg(DCGM_FI_DEV_GPU_TEMP" + CHOSEN + ")": (20, 100),
    "DCGM_FI_DEV_POWER_USAGE" + CHOSEN: (3, 60),
    "sum(DCGM_FI_DEV_POWER_USAGE" + CHOSEN + ")": (3, 60),
    "DCGM_FI_DEV_SM_CLOCK" + CHOSEN + " * 1000000": (1e8, 2e9),
    "DCGM_FI_DEV_GPU_UTIL" + CHOSEN: (0, 100),
    "DCGM_FI_DEV_FB_USED" + CHOSEN: (100, 65536),
}
# Nothing on a Jetson gives this one.
EMPTY_PANEL = "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE" + CHOSEN


@pytest.fixture
def prometheus(start, monitoring):
    daemon = start(CONFIG)
    config = scrape_config(daemon.address)
    config["scrape_configs"][0]["metrics_path"] = "/metrics/dcgm"
    found = monitoring.prometheus(config)
    wait_for(lambda: found.query("DCGM_FI_DEV_POWER_USAGE"))
    return found


def test_the_queries_of_a_dcgm_dashboard_answer(prometheus):
    names = {"instance": "DCGM_FI_DEV_GPU_TEMP", "gpu": "DCGM_FI_DEV_GPU_TEMP"}
    values = {
        label: prometheus.ask(f"label/{label}/values", **{"match[]": of})
        for label, of in names.items()
    }
    assert values["gpu"] == ["0"]
    for panel, (low, high) in {**PANELS, EMPTY_PANEL: (0, 0)}.items():
        query = panel.replace("$instance", "|".join(values["instance"])).replace("$gpu", "0")
        found = prometheus.values(query)
        if panel == EMPTY_PANEL:
            assert found == []
        else:
            (value,) = found
            assert low <= value <= high, panel


def test_energy_is_a_counter_in_millijoules(prometheus):
    name = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
    wait_for(lambda: prometheus.value(f"count_over_time({name}[1m])") >= 4)
    series = prometheus.series(name)
    (begin, first), (end, last) = series[0], series[-1]
    assert 3 < (last - first) * 1e-3 / (end - begin) < 60
