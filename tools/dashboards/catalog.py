"""Every dashboard, and every metric that none of them shows."""

from tegrascope.daemon.export.metrics import METRICS

from . import device, dla_or_gpu, fleet, like, workload
from .parts import Dashboard

DASHBOARDS: tuple[Dashboard, ...] = (
    device.DASHBOARD,
    dla_or_gpu.DASHBOARD,
    workload.DASHBOARD,
    fleet.DASHBOARD,
    like.DASHBOARD,
)

UNSHOWN = frozenset(row.name for row in METRICS if row.chart is None)
"""Exported metrics without a panel; each row says why."""
