"""Every dashboard, and every metric that none of them shows, with the reason."""

from . import device, dla_or_gpu, fleet, workload
from .parts import Dashboard

DASHBOARDS: tuple[Dashboard, ...] = (
    device.DASHBOARD,
    dla_or_gpu.DASHBOARD,
    workload.DASHBOARD,
    fleet.DASHBOARD,
)

UNSHOWN = {
    "tegra_rail_power_watts": "a moment only; every panel of power has the mean between scrapes",
}
"""Exported metrics without a panel: name to reason."""
