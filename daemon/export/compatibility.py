"""Pages under the metric names of other tools: of dcgm-exporter and of Triton's server.

Names, units and labels: https://github.com/NVIDIA/dcgm-exporter, etc/default-counters.csv and
internal/pkg/rendermetrics (``Hostname`` became ``hostname`` in its #655, so both are there);
https://github.com/triton-inference-server/core, src/metrics.cc.
"""

import platform
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Final, NamedTuple, TypeAlias

from ...collectors.board.boards import RailRule
from ...parsers import signals
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
        of: Our signals, the first that has a value counts; or a function for a value that is not one.
        factor: From our unit to that of the metric.
        part: Beginning of the variable part of the signal's columns, in lower case.
        over: Makes one value of several columns.
        labelled: Whether the metric has the labels of a GPU.
    """

    of: tuple[Signal, ...] | _Read
    factor: float = 1.0
    part: str = ""
    over: Callable[[Iterable[float]], float] = max
    labelled: bool = True

    def value(self, moment: _Moment) -> float | None:
        """Return the value in the tool's unit; None if the board does not give it."""
        if callable(self.of):
            found = self.of(moment)
            return None if found is None else found * self.factor
        for signal in self.of:
            columns = signal.by_label(moment.values).items()
            values = [value for name, value in columns if name.lower().startswith(self.part)]
            if values:
                return self.over(values) * self.factor
        return None


def _watts(moment: _Moment) -> float | None:
    rule, power = moment.rule, signals.RAIL_POWER.by_label(moment.values)
    return None if rule is None else rule.watts(power)


def _free(moment: _Moment) -> float | None:
    used, total = (row.value(moment) for row in (_USED, _TOTAL))
    return None if used is None or total is None else total - used


_MIB, _PERCENT = 2**-20, 100.0
# The memory of a Jetson is one; a GPU with its own has two more signals.
_MEMORY_USED = (signals.GPU_MEMORY_USED, signals.RAM_USED)
_MEMORY_TOTAL = (signals.GPU_MEMORY_TOTAL, signals.RAM_TOTAL)
_TRAFFIC = (signals.GPU_MEMORY_ACTIVE, signals.EMC_LOAD)
# fmt: off
_USED = ToolRow("nv_gpu_memory_used_bytes", "gauge", "Memory in use; CPU and GPU share it on a Jetson.", of=_MEMORY_USED)
_TOTAL = ToolRow("nv_gpu_memory_total_bytes", "gauge", "Memory available to Linux; CPU and GPU share it on a Jetson.", of=_MEMORY_TOTAL)
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
        ToolRow("DCGM_FI_DEV_FB_USED", "gauge", "Memory in use in MiB; CPU and GPU share it on a Jetson.", of=_MEMORY_USED, factor=_MIB),
        ToolRow("DCGM_FI_DEV_FB_FREE", "gauge", "Memory that is not in use in MiB; CPU and GPU share it on a Jetson.", of=_free, factor=_MIB),
        ToolRow("DCGM_FI_DEV_FB_TOTAL", "gauge", "Memory available to Linux in MiB; CPU and GPU share it on a Jetson.", of=_MEMORY_TOTAL, factor=_MIB),
        ToolRow("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "gauge", "GPU load as a ratio.", of=(signals.GPU_LOAD,)),
        ToolRow("DCGM_FI_PROF_DRAM_ACTIVE", "gauge", "Use of the memory bandwidth as a ratio.", of=_TRAFFIC),
    ),
    "triton": (
        ToolRow("nv_gpu_utilization", "gauge", "GPU load as a ratio.", of=(signals.GPU_LOAD,)),
        _TOTAL,
        _USED,
        ToolRow("nv_gpu_power_usage", "gauge", "Power of the module at the newest sample in watts.", of=_watts),
        ToolRow("nv_gpu_power_limit", "gauge", "Power limit of a GPU by NVML in watts.", of=(signals.GPU_POWER_LIMIT,)),
        ToolRow("nv_energy_consumption", "counter", "Energy of the module since the daemon's start in joules.", of=lambda moment: moment.snapshot.module_joules),
        ToolRow("nv_cpu_utilization", "gauge", "CPU load, mean of all cores, as a ratio.", of=(signals.CPU_LOAD,), over=fmean, labelled=False),
        ToolRow("nv_cpu_memory_total_bytes", "gauge", "Memory available to Linux.", of=(signals.RAM_TOTAL,), labelled=False),
        ToolRow("nv_cpu_memory_used_bytes", "gauge", "Memory in use.", of=(signals.RAM_USED,), labelled=False),
    ),
}
# fmt: on


def render(tool: Tool, snapshot: Snapshot, now_ns: int, rule: RailRule | None) -> str:
    """Return the page of a tool in Prometheus' text format.

    A value that the board does not give has no series. While no source is fresh, only the energy
    stays. ``modelName`` and the UUID say that power and energy are those of the module.

    The text is not made by prometheus-client: it writes a million as ``1e+06``, of which the
    pattern in perf_analyzer's triton_client_backend.h reads 1, and it adds ``_total`` to the name
    of a counter. That pattern also takes a series with the label ``gpu_uuid`` alone.
    """
    is_fresh = any(source.is_fresh(now_ns) for source in snapshot.sources)
    moment = _Moment(snapshot, snapshot.values if is_fresh else {}, rule)
    labels = _labels(tool, snapshot)
    lines: list[str] = []
    for row in TOOLS[tool]:
        value = row.value(moment)
        if value is not None:
            lines += (f"# HELP {row.name} {row.help}", f"# TYPE {row.name} {row.kind}")
            lines.append(f"{row.name}{labels if row.labelled else ''} {value:.6f}")
    return "".join(f"{line}\n" for line in lines)


def _labels(tool: Tool, snapshot: Snapshot) -> str:
    environment, host = snapshot.environment, platform.node()
    model = environment.module or environment.board or "unknown board"
    uuid = environment.gpu_uuid
    if uuid is None:  # a GPU that NVML reads has no rails
        model, uuid = f"{model} (module rails)", f"module-rails-{host}"
    if environment.simulated:
        model, uuid = f"{model} (simulated)", f"simulated-{uuid}"
    labels = {"gpu_uuid": uuid}
    if tool == "dcgm":
        labels = {"gpu": "0", "UUID": uuid, "device": "module", "modelName": model}
        labels |= {"Hostname": host, "hostname": host}
    escape = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
    pairs = [f'{name}="{text.translate(escape)}"' for name, text in labels.items()]
    return f"{{{','.join(pairs)}}}"
