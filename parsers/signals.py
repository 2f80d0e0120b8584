"""Every telemetry signal: one row per column of a sample, from which everything else is derived.

A row owns its column's name. Flattening, companions, metrics, types of tables, charts, weights in
a window and ``docs/metrics.md`` use the rows. The order of the rows is the order of the metric
page; the first part of a column's name orders the columns of a table.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from itertools import groupby
from typing import Final, Literal, TypeVar

V = TypeVar("V")

Kind = Literal["counter", "gauge", "histogram", "info", "summary"]
Dtype = Literal["float64", "Int64", "boolean"]


class Weight(Enum):
    """The time that a value describes."""

    OVER_INTERVAL = "describes the time since the previous sample"
    AT_MOMENT = "describes the moment of the sample"
    COUNTED = "is a count until the sample; a window's share is a difference"


OVER_INTERVAL, AT_MOMENT, COUNTED = Weight


@dataclass(frozen=True)
class Family:
    """One metric of the page.

    Attributes:
        chart: Title of the panel that draws it; ``""`` if its panels are written by hand; None if
            it is deliberately not shown.
        legend: Text of its line in that panel, with ``{{label}}``; default: its labels.
        after: Name of the metric that it follows on the page; default: the row before it.
    """

    name: str
    kind: Kind
    help: str
    chart: str | None = ""
    legend: str = ""
    after: str | None = None


@dataclass(frozen=True, eq=False)
class Signal:
    """One column of a sample, or one per core, rail, zone and so on.

    Attributes:
        template: Name of the column; ``{label}`` is its variable part, at most one.
        family: Metric that exports it; None if none does. Several rows may share one: they differ
            in ``fixed``, and the first of them has the help.
        fixed: Labels of the metric besides the variable part.
        chart: As of a ``Family``, and so are ``legend`` and ``after``.
        kept: Whether the metric stays on the page while the source is silent.
    """

    template: str
    family: str | None = None
    help: str = ""
    fixed: Mapping[str, str] = field(default_factory=dict)
    weight: Weight = OVER_INTERVAL
    dtype: Dtype = "float64"
    chart: str | None = None
    legend: str = ""
    kept: bool = False
    after: str | None = None
    head: str = field(init=False)
    tail: str = field(init=False)
    label: str | None = field(init=False)

    def __post_init__(self) -> None:
        """Split the template once."""
        head, _, rest = self.template.partition("{")
        label, _, tail = rest.partition("}")
        object.__setattr__(self, "head", head)
        object.__setattr__(self, "tail", tail)
        object.__setattr__(self, "label", label or None)

    @property
    def metric(self) -> Family | None:
        """The metric of this row; None without one, or if another row describes it."""
        if self.family is None or not self.help:
            return None
        kind: Kind = "counter" if self.weight is COUNTED else "gauge"
        legend = self.legend or " ".join(f"{{{{{label}}}}}" for label in self.labels_of(""))
        return Family(self.family, kind, self.help, self.chart, legend, self.after)

    def column(self, of: object = "") -> str:
        """Return the name of the column of one core, rail, zone …, or of the only one.

        >>> DLA_BUSY.column(0), EMC_FREQUENCY.column()
        ('dla.0.busy_ratio', 'emc.frequency_hertz')
        """
        return f"{self.head}{of}{self.tail}"

    def label_of(self, column: str) -> str | None:
        """Return the variable part of a column, or ``""``; None if another row owns the column."""
        if self.label is None:
            return "" if column == self.head else None
        if not (column.startswith(self.head) and column.endswith(self.tail)):
            return None
        text = column[len(self.head) : len(column) - len(self.tail)]
        is_index = text.isascii() and text.isdigit()
        if not text or (self.label in ("core", "gpc") and not is_index):
            return None
        return text

    def owns(self, column: str) -> bool:
        """Return whether a column is of this signal."""
        return self.label_of(column) is not None

    def by_label(self, columns: Mapping[str, V]) -> dict[str, V]:
        """Return the columns of this signal, by their variable part.

        >>> DLA_BUSY.by_label({"dla.0.busy_ratio": 0.4, "dla.0.on": 1.0})
        {'0': 0.4}
        """
        found: dict[str, V] = {}
        for column, value in columns.items():
            label = self.label_of(column)
            if label is not None:
                found[label] = value
        return found

    def labels_of(self, label: str) -> dict[str, str]:
        """Return the labels of the metric for a variable part."""
        if self.label is None:
            return dict(self.fixed)
        return {self.label: label, **self.fixed}


Column = tuple[Signal, str]
"""A row, and the variable part of the column's name, or ``""``.

Whoever reads a value names its column so: a column without a row cannot be written.
"""


def by_name(values: Mapping[Column, V]) -> dict[str, V]:
    """Return values by the names of their columns.

    >>> by_name({(DLA_BUSY, "0"): 0.4, (RAM_AVAILABLE, ""): 1024})
    {'dla.0.busy_ratio': 0.4, 'ram.available_bytes': 1024}
    """
    return {signal.column(label): value for (signal, label), value in values.items()}


@lru_cache(4096)
def split(column: str) -> Column | None:
    """Return the row of a column and the variable part of its name; None if it has no row.

    >>> signal, rail = split("rails.VDD_IN.instant_watts")
    >>> signal is RAIL_POWER, rail
    (True, 'VDD_IN')
    """
    for signal in _BY_PART.get(column.partition(".")[0], ()):
        label = signal.label_of(column)
        if label is not None:
            return signal, label
    return None


OWN_PROCESS: Final = "tegrascope"
"""The name of the daemon and of all its children among the processes."""
UNKNOWN_PROCESS: Final = "other"
"""The name of processes that are not known, or one too many."""

NOT_ATTRIBUTED: Final = "not_attributed"
"""The owner of memory that no source attributes."""

# Clocks and gates belong to a moment; windows weight them like percentages.
# fmt: off
RAM_USED = Signal("ram.used_bytes", "tegra_ram_used_bytes", "Memory in use.", weight=AT_MOMENT, dtype="Int64", chart="Memory", legend="used")
RAM_TOTAL = Signal("ram.total_bytes", "tegra_ram_total_bytes", "Memory available to Linux.", weight=AT_MOMENT, dtype="Int64", chart="Memory", legend="total")
RAM_AVAILABLE = Signal("ram.available_bytes", "tegra_ram_available_bytes", "Memory that programs can get without swapping, by the kernel's estimate.", weight=AT_MOMENT, dtype="Int64", chart="Memory", legend="available")
RAM_FREE_BLOCK = Signal("ram.largest_free_block_bytes", "tegra_ram_largest_free_block_bytes", "Size of the largest free block of the buddy allocator.", weight=AT_MOMENT, dtype="Int64", chart="Memory", legend="largest free block")
RAM_FREE_BLOCKS = Signal("ram.largest_free_block_count", weight=AT_MOMENT, dtype="Int64")
SWAP_USED = Signal("swap.used_bytes", "tegra_swap_used_bytes", "Swap in use.", weight=AT_MOMENT, dtype="Int64", chart="Swap", legend="swap used")
SWAP_TOTAL = Signal("swap.total_bytes", "tegra_swap_total_bytes", "Swap configured.", weight=AT_MOMENT, dtype="Int64", chart="Swap", legend="swap total")
SWAP_CACHED = Signal("swap.cached_bytes", "tegra_swap_cached_bytes", "Swap that is also in memory.", weight=AT_MOMENT, dtype="Int64", chart="Swap", legend="swap cached")
IRAM_USED = Signal("iram.used_bytes", weight=AT_MOMENT, dtype="Int64")
IRAM_TOTAL = Signal("iram.total_bytes", weight=AT_MOMENT, dtype="Int64")
IRAM_FREE_BLOCK = Signal("iram.largest_free_block_bytes", weight=AT_MOMENT, dtype="Int64")
CPU_LOAD = Signal("cpu.{core}.utilization_ratio", "tegra_cpu_utilization_ratio", "Busy share of a core since the previous line.", chart="CPU cores", legend="core {{core}}")
CPU_FREQUENCY = Signal("cpu.{core}.frequency_hertz", "tegra_cpu_frequency_hertz", "Clock of a core.", dtype="Int64", chart="Clocks")
CPU_ONLINE = Signal("cpu.{core}.online", "tegra_cpu_online", "1 if a core is online.", weight=AT_MOMENT, dtype="boolean", chart="Cores online")
EDP_LIMIT = Signal("edp_limit_hertz", weight=AT_MOMENT, dtype="Int64")
EMC_LOAD = Signal("emc.utilization_ratio", "tegra_emc_utilization_ratio", "Share of the memory bandwidth at the present clock.", chart="GPU, memory and CPU", legend="EMC")
EMC_FREQUENCY = Signal("emc.frequency_hertz", "tegra_emc_frequency_hertz", "Clock of the memory controller.", dtype="Int64", chart="Clocks", legend="EMC")
GPU_LOAD = Signal("gpu.utilization_ratio", "tegra_gpu_utilization_ratio", "GPU load, all clusters together: of tegrastats (GR3D), or of NVML where that has none.", chart="GPU, memory and CPU", legend="GPU")
# 1 where another source than the line gives the load: daemon/session says when.
GPU_LOAD_NVML = Signal("gpu.utilization_by_nvml", fixed={"source": "nvml"}, weight=AT_MOMENT, dtype="boolean")
GPU_FREQUENCY = Signal("gpu.frequency_hertz.{gpc}", "tegra_gpu_frequency_hertz", "Clock of a GPU cluster; 0 is gated.", dtype="Int64", chart="Clocks", legend="GPU {{gpc}}")
GPU_POWER = Signal("gpu.power_watts", "tegra_gpu_power_watts", "Power of a board's GPU by NVML, next to the rails and part of none.", weight=AT_MOMENT, chart="")
GPU_CLUSTER_LOAD = Signal("gpu.cluster_utilization_ratio.{gpc}")
GPU_POWER_LIMIT = Signal("gpu.power_limit_watts", weight=AT_MOMENT)
GPU_PERFORMANCE_STATE = Signal("gpu.performance_state", weight=AT_MOMENT, dtype="Int64")
GPU_MEMORY_USED = Signal("gpu_memory.used_bytes", "tegra_gpu_memory_used_bytes", "Memory that the GPU holds: of its own, or of the one that it shares with the CPU (NvMap).", weight=AT_MOMENT, dtype="Int64", chart="Memory", legend="GPU")
GPU_MEMORY_TOTAL = Signal("gpu_memory.total_bytes", "tegra_gpu_memory_total_bytes", "Memory of a GPU that has its own.", weight=AT_MOMENT, dtype="Int64", chart="Memory", legend="GPU's own, total")
MEMORY = Signal("memory.{owner}_bytes", "tegra_memory_bytes", "Memory of a Jetson by owner, each page once: processes (anonymous and shared memory), gpu (NvMap; NVML on Thor), kernel, zram, cache, free, and not_attributed for the rest. All add up to the memory that Linux has.", weight=AT_MOMENT, dtype="Int64", chart="Memory by owner", legend="{{owner}}")
GPU_MEMORY_ACTIVE = Signal("gpu_memory.active_ratio", "tegra_gpu_memory_active_ratio", "Share of time in which memory of the GPU was read or written; not a share of its bandwidth.", chart="GPU, memory and CPU", legend="GPU memory active")
ENGINE_ON = Signal("engines.{engine}.on", "tegra_engine_active", "1 if an engine is powered, 0 if it is gated.", dtype="boolean", chart="Video and other engines", legend="{{engine}} powered")
ENGINE_LOAD = Signal("engines.{engine}.utilization_ratio", "tegra_engine_utilization_ratio", "Load of an engine.", chart="Video and other engines", legend="{{engine}}")
ENGINE_FREQUENCY = Signal("engines.{engine}.frequency_hertz", "tegra_engine_frequency_hertz", "Clock of an engine.", dtype="Int64", chart="Clocks", legend="{{engine}}")
DLA_ON = Signal("dla.{core}.on", "tegra_dla_active", "1 if tegrastats reports a DLA core as on, 0 if off: a gate, not a load.", dtype="boolean", chart="DLA", legend="core {{core}} switched on")
DLA_FREQUENCY = Signal("dla.{core}.frequency_hertz", "tegra_dla_frequency_hertz", "Clock of a DLA core.", dtype="Int64", chart="Clocks", legend="DLA {{core}}")
DLA_LOAD = Signal("dla.{core}.utilization_ratio", "tegra_dla_busy_ratio", "Busy share of a DLA core, by source.", {"source": "tegrastats"}, chart="DLA", legend="core {{core}} busy ({{source}})")
DLA_BUSY = Signal("dla.{core}.busy_ratio", "tegra_dla_busy_ratio", fixed={"source": "ftrace"})
DLA_FIRMWARE_LOAD = Signal("dla.{core}.firmware_ratio", "tegra_dla_busy_ratio", fixed={"source": "firmware"})
DLA_BUSY_SECONDS = Signal("dla.{core}.busy_seconds", "tegra_dla_busy_seconds_total", "Time in which a DLA core had a task since the start of the count, by source.", {"source": "ftrace"}, COUNTED, chart="")
# One row per core, since a row has one variable part.
DLA0_PROCESS_SECONDS = Signal("dla.0.process_seconds.{process}", "tegra_process_dla_busy_seconds_total", "Busy time of a DLA core by the process that submitted the tasks, from the trace; other: unknown, or one too many.", {"core": "0"}, COUNTED, after="tegra_dla_tasks_total", chart="DLA by process", legend="{{process}} on core {{core}}")
DLA1_PROCESS_SECONDS = Signal("dla.1.process_seconds.{process}", "tegra_process_dla_busy_seconds_total", fixed={"core": "1"}, weight=COUNTED)
DLA_TASKS = Signal("dla.{core}.tasks", "tegra_dla_tasks_total", "Tasks of a DLA core that have ended, of all programs.", weight=COUNTED, dtype="Int64", chart="DLA tasks")
DLA_POWERED = Signal("dla.{core}.powered_ratio", "tegra_dla_powered_ratio", "Share of the last interval in which a DLA core was powered. A core that works is powered.", chart="DLA", legend="core {{core}} powered")
DLA_POWERED_SECONDS = Signal("dla.{core}.powered_seconds", "tegra_dla_powered_seconds_total", "Time for which a DLA core was powered since the boot, by runtime power management.", weight=COUNTED, chart="")
TEMPERATURE = Signal("temperatures_celsius.{zone}", "tegra_temperature_celsius", "Temperature of a thermal zone.", weight=AT_MOMENT, chart="Temperatures", legend="{{zone}}")
TEMPERATURE_MAX = Signal("temperatures_max_celsius.{zone}", weight=AT_MOMENT)
COOLING_STATE = Signal("cooling.{device}.state_ratio", "tegra_cooling_state_ratio", "State of a cooling device as a share of its maximum.", weight=AT_MOMENT, chart="Fans and cooling", legend="{{device}}")
# A moment only: every panel of power has the mean between scrapes.
RAIL_POWER = Signal("rails.{rail}.instant_watts", "tegra_rail_power_watts", "Power on a supply rail at the moment of the line.", weight=AT_MOMENT)
RAIL_AVERAGE = Signal("rails.{rail}.average_watts", weight=AT_MOMENT)
RAIL_MAXIMUM = Signal("rails.{rail}.maximum_watts", weight=AT_MOMENT)
# Read every ten seconds, or less often: tegrastats prints none of them.
RAIL_VOLTS = Signal("rails.{rail}.volts", "tegra_rail_volts", "Voltage of a supply rail, read every ten seconds or less often.", weight=AT_MOMENT, chart="Supply voltages")
RAIL_LOWEST_VOLTS = Signal("rails.{rail}.lowest_volts", "tegra_rail_lowest_volts", "Lowest voltage of a rail in the readings of tegra_rail_volts since the daemon's start; a shorter dip is not seen.", weight=AT_MOMENT, chart="Supply voltages", legend="lowest {{rail}}")
RAIL_AMPERES = Signal("rails.{rail}.amperes", "tegra_rail_amperes", "Current of a supply rail, read every ten seconds or less often.", weight=AT_MOMENT, chart="Supply currents")
RAIL_LIMIT_WARNING = Signal("rails.{rail}.limit_warning_amperes", "tegra_rail_limit_amperes", "Current at which the sensor of a rail raises an alarm: warning, by its averaged current (curr*_max), or critical, by each conversion (curr*_crit); absent where none is set.", {"kind": "warning"}, weight=AT_MOMENT, chart="Supply currents", legend="{{rail}}, limit ({{kind}})")
RAIL_LIMIT_CRITICAL = Signal("rails.{rail}.limit_critical_amperes", "tegra_rail_limit_amperes", fixed={"kind": "critical"}, weight=AT_MOMENT)
RAIL_COUNTER = Signal("rails.{rail}.counter_joules", weight=COUNTED)
RAIL_COUNTER_AFTER = Signal("rails.{rail}.counter_after_seconds", weight=AT_MOMENT)
RAIL_COUNTER_READ = Signal("rails.{rail}.counter_read_seconds", weight=AT_MOMENT)
THROTTLE_EVENTS = Signal("throttle.{kind}.events", "tegra_throttle_events_total", "Times that a clock was lowered, by kind, as far as samples show it.", weight=COUNTED, dtype="Int64", kept=True, chart="Throttling")
THROTTLE_ACTIVE = Signal("throttle.{kind}.active", "tegra_throttle_active", "1 while a clock is held low, by kind.", weight=AT_MOMENT, dtype="boolean", chart="Clocks held low", legend="{{kind}}")
THROTTLE_UNDER_VOLTAGE = Signal("throttle.{kind}.is_under_voltage", "tegra_throttle_under_voltage_flag", "1 if an over-current alarm means that the supply voltage is too low, 0 if it means too high a current; absent where the meaning is not known.", weight=AT_MOMENT, dtype="boolean", kept=True, chart=None)
POWER_MODE = Signal("power_mode.number", weight=AT_MOMENT, dtype="Int64")
BATTERY_CHARGE = Signal("battery.{battery}.charge_ratio", "tegra_battery_charge_ratio", "Charge of a battery as a share of its full charge.", weight=AT_MOMENT, chart="Battery", legend="{{battery}}")
FAN_SPEED = Signal("fans.{fan}.speed_ratio", "tegra_fan_speed_ratio", "Speed of a fan as a share of its full speed.", weight=AT_MOMENT, chart="Fans and cooling", legend="fan {{fan}}")
# Read every ten seconds only; the page has the latest reading, by rows of daemon/export.
PROCESS_CPU = Signal("process.cpu_seconds.{process}", weight=COUNTED)
PROCESS_MEMORY = Signal("process.memory_bytes.{process}", weight=AT_MOMENT, dtype="Int64")
PROCESS_GPU_MEMORY = Signal("process.gpu_memory_bytes.{process}", "tegra_process_gpu_memory_bytes", "GPU memory of the processes of a name: by NVML, or of NvMap by root's memory reader on Orin and older boards; kernel: its drivers, other: unknown, or one too many.", weight=AT_MOMENT, dtype="Int64", after="tegra_cpu_online", chart="GPU memory by process", legend="{{process}}")
PROCESS_PROPORTIONAL = Signal("process.proportional_bytes.{process}", "tegra_process_proportional_memory_bytes", "Proportional set size of the processes of a name, by root's memory reader: a page that several processes map counts in equal parts; other: unknown, or one too many.", weight=AT_MOMENT, dtype="Int64", after="tegra_process_gpu_memory_bytes", chart="Memory by process", legend="{{process}}, proportional")
PROCESS_GPU_LOAD = Signal("process.gpu_load_ratio.{process}", "tegra_process_gpu_utilization_ratio", "Share of time in which the processes of a name computed on the GPU, by NVML, over about a second.", chart="GPU load by process", legend="{{process}}")
DLA_TRACE_ERRORS = Signal("dla.trace.{reason}", "tegrascope_dla_trace_errors_total", "Irregular events in the DLA trace, by reason.", weight=COUNTED, dtype="Int64", after="tegrascope_root_fields_missing", chart="")
# No board has confirmed these two, so no page and no dashboard draws them.
PROCESS_GPU_CONTEXT = Signal("gpu.context_seconds.{process}", "tegra_process_gpu_context_seconds_total", "Time in which a context of the processes of a name was on the GPU, at work or not, by the driver's ring of context switches; other: unknown, or one too many. No board has confirmed it.", weight=COUNTED, after="tegra_process_gpu_utilization_ratio")
GPU_TRACE_ERRORS = Signal("gpu.trace.{reason}", "tegrascope_gpu_trace_errors_total", "Entries of the ring of context switches that do not fit together, by reason. No board has confirmed it.", weight=COUNTED, dtype="Int64", after="tegrascope_dla_trace_errors_total")
LATE_SECONDS = Signal("telemetry.late_seconds", "tegrascope_sample_late_seconds", "How much later than its line was printed the time of the newest sample may be; absent for a line that came alone and on time.", weight=AT_MOMENT, after="tegrascope_sample_timestamp_seconds")
# fmt: on

SIGNALS: Final[tuple[Signal, ...]] = tuple(
    row for row in list(globals().values()) if isinstance(row, Signal)
)
SHARED: Final = (
    EMC_FREQUENCY,
    GPU_LOAD,
    GPU_FREQUENCY,
    GPU_POWER,
    DLA_FREQUENCY,
    PROCESS_GPU_MEMORY,
    PROCESS_GPU_LOAD,
)
"""Signals that another source than the line can give; their source has a metric."""
_BY_PART: Final[dict[str, list[Signal]]] = {}
for _row in SIGNALS:
    _BY_PART.setdefault(_row.template.partition(".")[0], []).append(_row)


def dtype_of(column: str) -> Dtype:
    """Return the pandas type of a column; each has a mark for what is missing.

    >>> dtype_of("dla.0.on"), dtype_of("gpu.frequency_hertz.1")
    ('boolean', 'Int64')
    """
    found = split(column)
    if found is None:
        return "float64"
    return found[0].dtype


def column_order(column: str) -> tuple[int, list[str | int]]:
    """Return the sort key of a column: parts as in the record, cores by number.

    >>> sorted(["rails.VDD_IN.instant_watts", "cpu.10.online", "cpu.9.online"], key=column_order)
    ['cpu.9.online', 'cpu.10.online', 'rails.VDD_IN.instant_watts']
    """
    part = column.partition(".")[0]
    place = list(_BY_PART).index(part) if part in _BY_PART else len(_BY_PART)
    pieces = (("".join(group), is_number) for is_number, group in groupby(column, str.isdecimal))
    # Python refuses to read numbers of thousands of digits, which a name may have.
    return place, [int(text[:18]) if is_number else text for text, is_number in pieces]
