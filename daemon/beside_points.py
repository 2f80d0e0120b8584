"""What companions told beside the line: columns become points of the metric page."""

import re
from collections.abc import Iterator, Mapping

from .measure.dla import TRACED

Point = tuple[str, dict[str, str], float]

# Column, metric, the label that the column's variable part is the value of, and fixed labels.
_ROWS: tuple[tuple[str, str, str | None, dict[str, str]], ...] = (
    (r"dla\.(\d+)\.busy_ratio", "tegra_dla_busy_ratio", "core", {"source": TRACED}),
    (r"dla\.(\d+)\.firmware_ratio", "tegra_dla_busy_ratio", "core", {"source": "firmware"}),
    (r"dla\.(\d+)\.busy_seconds", "tegra_dla_busy_seconds_total", "core", {"source": TRACED}),
    (r"dla\.(\d+)\.tasks", "tegra_dla_tasks_total", "core", {}),
    (r"dla\.trace\.(.+)", "tegrascope_dla_trace_troubles_total", "reason", {}),
    (r"dla\.(\d+)\.powered_ratio", "tegra_dla_powered_ratio", "core", {}),
    (r"dla\.(\d+)\.powered_seconds", "tegra_dla_powered_seconds_total", "core", {}),
    (r"dla\.(\d+)\.frequency_hertz", "tegra_dla_frequency_hertz", "core", {}),
    (r"gpu\.frequency_hertz\.(\d+)", "tegra_gpu_frequency_hertz", "gpc", {}),
    (r"emc\.frequency_hertz", "tegra_emc_frequency_hertz", None, {}),
    (r"fans\.(.+)\.speed_ratio", "tegra_fan_speed_ratio", "fan", {}),
    (r"cooling\.(.+)\.state_ratio", "tegra_cooling_state_ratio", "device", {}),
    (r"ram\.available_bytes", "tegra_ram_available_bytes", None, {}),
)
_PATTERNS = tuple((re.compile(row[0]), *row[1:]) for row in _ROWS)


def beside_points(beside: Mapping[str, float]) -> Iterator[Point]:
    """Yield the points of what was read beside the newest line.

    Args:
        beside: By column, without what the line itself told.

    >>> list(beside_points({"fans.pwmfan.speed_ratio": 0.5, "throttle.oc1.events": 3.0}))
    [('tegra_fan_speed_ratio', {'fan': 'pwmfan'}, 0.5)]
    """
    for name, value in beside.items():
        for pattern, metric, label, fixed in _PATTERNS:
            found = pattern.fullmatch(name)
            if found is not None:
                yield metric, {**({} if label is None else {label: found[1]}), **fixed}, value
