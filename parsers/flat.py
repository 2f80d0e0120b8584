"""Conversion of a Sample to numbers by column, the form in which samples are kept and stored."""

from functools import lru_cache
from typing import Any, Final

from . import signals
from .records import GpuSample, Sample
from .signals import SIGNALS, Signal

_STATES: Final = {"on": 1, "off": 0, True: 1, False: 0, None: None}


def _rows() -> dict[str, dict[str, Signal]]:
    """Return the rows of each field of a sample, by attribute of the record ("" is itself)."""
    found: dict[str, dict[str, Signal]] = {}
    # States come first, as in the records.
    for row in sorted(SIGNALS, key=lambda row: row.dtype != "boolean"):
        part, *field = (word for word in row.template.split(".") if not word.startswith("{"))
        found.setdefault(part, {})["state" if field == ["on"] else ".".join(field)] = row
    return {part: found[part] for part in Sample.__annotations__ if part in found}


_ROWS: Final = _rows()


def flatten(sample: Sample) -> dict[str, float]:
    """Return every number of a sample by the name of its column.

    A value that the line does not contain has no name here. States become 1 and 0.

    >>> from .tegrastats import parse_line
    >>> flatten(parse_line("RAM 1/2MB CPU [5%@729,off] NVDLA0 off tj@40C VDD_IN 5139mW/4890mW"))
    {'ram.used_bytes': 1048576, 'ram.total_bytes': 2097152, 'cpu.0.online': 1, \
'cpu.0.utilization_ratio': 0.05, 'cpu.0.frequency_hertz': 729000000, 'cpu.1.online': 0, \
'dla.0.on': 0, 'temperatures_celsius.tj': 40.0, 'rails.VDD_IN.instant_watts': 5.139, \
'rails.VDD_IN.average_watts': 4.89}
    """
    named: dict[str, Any] = {}
    for part in _ROWS:
        value = getattr(sample, part)
        if isinstance(value, dict):
            for label, record in value.items():
                _flatten(part, label, record, named)
        elif isinstance(value, tuple):
            for record in value:
                _flatten(part, record.core, record, named)
        elif value is not None:
            _flatten(part, "", value, named)
    if isinstance(sample, GpuSample):
        _flatten_gpu(sample, named)
    return {column: value for column, value in named.items() if value is not None}


def _flatten(part: str, label: str | int, record: Any, named: dict[str, Any]) -> None:
    for field, row, column in _columns(part, label, record.__class__):
        value = getattr(record, field) if field else record
        if row.dtype == "boolean":
            value = _STATES[value]
        elif isinstance(value, tuple):
            named.update((row.column(cluster), one) for cluster, one in enumerate(value))
            continue
        named[column] = value


@lru_cache(1024)
def _columns(part: str, label: str | int, kind: type) -> tuple[tuple[str, Signal, str], ...]:
    """Return attribute, row and column of each number of a kind of record."""
    known = {"", *(name for base in kind.__mro__ for name in getattr(base, "__annotations__", ()))}
    rows = _ROWS[part].items()
    return tuple((field, row, row.column(label)) for field, row in rows if field in known)


def _flatten_gpu(sample: GpuSample, named: dict[str, Any]) -> None:
    """Add the numbers of a GPU that a board does not have."""
    memory, energy = sample.memory, sample.energy
    named[signals.GPU_POWER_LIMIT.column()] = sample.power_limit_watts
    named[signals.GPU_PERFORMANCE_STATE.column()] = sample.performance_state
    named[signals.FAN_SPEED.column("gpu")] = sample.fan_speed_ratio
    if memory is not None:
        named[signals.GPU_MEMORY_USED.column()] = memory.used_bytes
        named[signals.GPU_MEMORY_TOTAL.column()] = memory.total_bytes
        named[signals.GPU_MEMORY_ACTIVE.column()] = memory.active_ratio
    if energy is not None:
        middle_ns = (energy.begin_ns + energy.end_ns) / 2
        named[signals.RAIL_COUNTER.column("GPU")] = energy.joules
        named[signals.RAIL_COUNTER_AFTER.column("GPU")] = (middle_ns - sample.at_ns) / 1e9
        named[signals.RAIL_COUNTER_READ.column("GPU")] = (energy.end_ns - energy.begin_ns) / 1e9
    for kind, is_active in sample.throttling.items():
        named[signals.THROTTLE_ACTIVE.column(kind)] = int(is_active)
    for kind, events in sample.throttle_events.items():
        named[signals.THROTTLE_EVENTS.column(kind)] = events
