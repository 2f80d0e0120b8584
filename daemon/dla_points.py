"""What the trace of the DLA told beside the newest line: columns become points of the page."""

import re
from collections.abc import Iterator, Mapping

from .dla_truth import TRACED

_CORE = re.compile(r"dla\.([0-9]+)\.([a-z_]+)")
_TROUBLE = re.compile(r"dla\.trace\.([a-z]+)")
_OF_CORE = {
    "busy_seconds": ("tegra_dla_busy_seconds_total", {"source": TRACED}),
    "busy_ratio": ("tegra_dla_busy_ratio", {"source": TRACED}),
    "firmware_ratio": ("tegra_dla_busy_ratio", {"source": "firmware"}),
    "tasks": ("tegra_dla_tasks_total", {}),
}


def dla_points(beside: Mapping[str, float]) -> Iterator[tuple[str, dict[str, str], float]]:
    """Yield the points of the trace.

    Args:
        beside: By column.

    >>> list(dla_points({"dla.0.tasks": 7.0, "fans.pwm.speed_ratio": 0.5, "dla.trace.lost": 2.0}))
    [('tegra_dla_tasks_total', {'core': '0'}, 7.0), \
('tegrascope_dla_trace_troubles_total', {'reason': 'lost'}, 2.0)]
    """
    for name, value in beside.items():
        core, trouble = _CORE.fullmatch(name), _TROUBLE.fullmatch(name)
        if core is not None and core[2] in _OF_CORE:
            metric, labels = _OF_CORE[core[2]]
            yield metric, {"core": core[1], **labels}, value
        elif trouble is not None:
            yield "tegrascope_dla_trace_troubles_total", {"reason": trouble[1]}, value
