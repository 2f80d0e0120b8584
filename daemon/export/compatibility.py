"""Pages under the metric names of other tools: of dcgm-exporter.

Names, units and labels: https://github.com/NVIDIA/dcgm-exporter, etc/default-counters.csv and
internal/pkg/rendermetrics (``Hostname`` became ``hostname`` in its #655, so both are there).
"""

import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from ...parsers import signals
from ...parsers.rails import RailRule
from ...parsers.signals import Family, Signal
from ..settings.config import Tool
from .snapshot import Snapshot

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class _Moment(NamedTuple):
    """A snapshot, its values if they are fresh, and the rail rule."""

    snapshot: Snapshot
    values: Mapping[str, float]
    rule: RailRule | None


_Read: TypeAlias = Callable[[_Moment], float | None]


@dataclass(frozen=True, kw_only=True)
class ToolRow(Family):
    """A metric of another tool.

    Attributes:
        of: Our signals, the first that has a value counts, at its largest; or a function for a value that no signal has.
        factor: From our unit to that of the metric.
        part: Beginning of the variable part of the signal's columns, in lower case.
    """

    of: tuple[Signal, ...] | _Read
    factor: float = 1.0
    part: str = ""

    def value(self, moment: _Moment) -> float | None:
        """Return the value in the tool's unit; None if the board does not give it."""
        if callable(self.of):
            value = self.of(moment)
            return None if value is None else value * self.factor
        for signal in self.of:
            columns = signal.by_label(moment.values).items()
            values = [value for name, value in columns if name.lower().startswith(self.part)]
            if values:
                return max(values) * self.factor
        return None


def _watts(moment: _Moment) -> float | None:
    if moment.rule is None:
        return None
    return moment.rule.watts(signals.RAIL_POWER.by_label(moment.values))


def _memory_used(moment: _Moment) -> float | None:
    """Return the memory in use of a GPU that has its own, else of the one that CPU and GPU share."""
    has_own = signals.GPU_MEMORY_TOTAL.column() in moment.values
    used = signals.GPU_MEMORY_USED if has_own else signals.RAM_USED
    return moment.values.get(used.column())


def _free(moment: _Moment) -> float | None:
    used, total = _USED.value(moment), _TOTAL.value(moment)
    if used is None or total is None:
        return None
    return total - used


_MIB, _PERCENT = 2**-20, 100.0
_MEMORY_TOTAL = (signals.GPU_MEMORY_TOTAL, signals.RAM_TOTAL)
_TRAFFIC = (signals.GPU_MEMORY_ACTIVE, signals.EMC_LOAD)
# fmt: off
_USED = ToolRow("DCGM_FI_DEV_FB_USED", "gauge", "Memory in use in MiB; CPU and GPU share it on a Jetson.", of=_memory_used, factor=_MIB)
_TOTAL = ToolRow("DCGM_FI_DEV_FB_TOTAL", "gauge", "Memory available to Linux in MiB; CPU and GPU share it on a Jetson.", of=_MEMORY_TOTAL, factor=_MIB)
TOOLS: Final[Mapping[Tool, tuple[ToolRow, ...]]] = {
    "dcgm": (
        ToolRow("DCGM_FI_DEV_SM_CLOCK", "gauge", "Clock of the GPU, of the fastest cluster, in MHz.", of=(signals.GPU_FREQUENCY,), factor=1e-6),
        ToolRow("DCGM_FI_DEV_MEM_CLOCK", "gauge", "Clock of the memory controller in MHz.", of=(signals.EMC_FREQUENCY,), factor=1e-6),
        ToolRow("DCGM_FI_DEV_GPU_TEMP", "gauge", "Temperature of the GPU's thermal zone in degrees Celsius.", of=(signals.TEMPERATURE,), part="gpu"),
        ToolRow("DCGM_FI_DEV_POWER_USAGE", "gauge", "Power of the module at the newest sample in watts.", of=_watts),
        ToolRow("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "counter", "Energy of the module since the daemon's start in millijoules.", of=lambda moment: moment.snapshot.module_joules, factor=1e3),
        ToolRow("DCGM_FI_DEV_GPU_UTIL", "gauge", "GPU load in percent.", of=(signals.GPU_LOAD,), factor=_PERCENT),
        ToolRow("DCGM_FI_DEV_MEM_COPY_UTIL", "gauge", "Use of the memory bandwidth in percent.", of=_TRAFFIC, factor=_PERCENT),
        ToolRow("DCGM_FI_DEV_ENC_UTIL", "gauge", "Load of the video encoder in percent.", of=(signals.ENGINE_LOAD,), part="nvenc", factor=_PERCENT),
        ToolRow("DCGM_FI_DEV_DEC_UTIL", "gauge", "Load of the video decoder in percent.", of=(signals.ENGINE_LOAD,), part="nvdec", factor=_PERCENT),
        _USED,
        ToolRow("DCGM_FI_DEV_FB_FREE", "gauge", "Memory that is not in use in MiB; CPU and GPU share it on a Jetson.", of=_free),
        _TOTAL,
        ToolRow("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "gauge", "GPU load as a ratio.", of=(signals.GPU_LOAD,)),
        ToolRow("DCGM_FI_PROF_DRAM_ACTIVE", "gauge", "Use of the memory bandwidth as a ratio.", of=_TRAFFIC),
    ),
}
# fmt: on


def render(tool: Tool, snapshot: Snapshot, now_ns: int, rule: RailRule | None) -> str:
    """Return the page of a tool in Prometheus' text format.

    A value that the board does not give has no series. While no source is fresh, only the energy
    stays. ``modelName`` and the UUID say that power and energy are those of the module.

    The text is not made by prometheus-client, which adds ``_total`` to the name of a counter.
    """
    is_fresh = any(source.is_fresh(now_ns) for source in snapshot.sources)
    moment = _Moment(snapshot, snapshot.values if is_fresh else {}, rule)
    labels = _labels(snapshot)
    lines: list[str] = []
    for row in TOOLS[tool]:
        value = row.value(moment)
        if value is not None:
            lines += (f"# HELP {row.name} {row.help}", f"# TYPE {row.name} {row.kind}")
            lines.append(f"{row.name}{labels} {value:.6f}")
    return "".join(f"{line}\n" for line in lines)


def _labels(snapshot: Snapshot) -> str:
    environment, host = snapshot.environment, platform.node()
    model = environment.module or environment.board or "unknown board"
    uuid = environment.gpu_uuid
    if uuid is None:  # a GPU that NVML reads has no rails
        model, uuid = f"{model} (module rails)", f"module-rails-{host}"
    if environment.simulated:
        model, uuid = f"{model} (simulated)", f"simulated-{uuid}"
    labels = {"gpu": "0", "UUID": uuid, "device": "module", "modelName": model}
    labels |= {"Hostname": host, "hostname": host}
    escape = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
    pairs = [f'{name}="{text.translate(escape)}"' for name, text in labels.items()]
    return f"{{{','.join(pairs)}}}"
