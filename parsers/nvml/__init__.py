"""A line of the NVML reader to the facts of a GPU, to its processes, or to a sample of it."""

from typing import Annotated, Literal, NamedTuple

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    NonNegativeFloat,
    TypeAdapter,
    ValidationError,
)

from .. import signals
from ..errors import ParseError
from ..records import GpuSample, Rail, Record
from ..signals import Column, Signal, by_name

# NVML has no wider number. A greater one would be no float.
_HIGHEST = 2**64 - 1
_Count = Annotated[int, Field(ge=0, le=_HIGHEST)]
_SHOWN_CHARACTERS = 64


def _thousandth(number: float | None) -> float | None:
    return None if number is None else number / 1000


class GpuFacts(Record):
    """Constant facts of a GPU, which the reader prints first.

    Attributes:
        power_limit_watts: The reader prints milliwatts.
        power_reading: ``instant``; or ``usage``, a mean over one second on Ampere and later;
            ``None`` without power.
        versions: Driver, NVML and CUDA driver.
        refused: Values that it does not support, with NVML's reason.
    """

    event: Literal["hello"]
    name: str | None = None
    uuid: str | None = None
    part_number: str | None = None
    power_limit_watts: Annotated[NonNegativeFloat | None, AfterValidator(_thousandth)] = Field(
        None, alias="power_limit_mw"
    )
    power_reading: Literal["instant", "usage"] | None = Field(None, alias="power_from")
    versions: dict[str, str] = {}
    refused: dict[str, str] = {}


class GpuProcesses(Record):
    """Memory and load by process, by the number of the process.

    Attributes:
        at_ns: CLOCK_MONOTONIC of the reading.
        busy_percent: Of those that computed since the reading before; ``None`` if NVML does not
            have it.
        proportional_bytes: What a process maps, each page divided by the number of processes that
            map it. Only root's memory reader has it, and ``names``; ``None`` is a nameless process.
        unavailable: Why root's memory reader has nothing, with the remedy; the rest is empty.
    """

    event: Literal["processes"]
    at_ns: _Count
    used_bytes: dict[_Count, _Count]
    proportional_bytes: dict[_Count, _Count] = {}
    names: dict[_Count, str | None] = {}
    unavailable: str | None = None
    busy_percent: dict[_Count, Annotated[float, Field(ge=0, le=100)]] | None = None


# Clock event reasons that hold the clock down.
THROTTLES = {
    0x004: "sw_power_cap",
    0x008: "hw_slowdown",
    0x020: "sw_thermal",
    0x040: "hw_thermal",
    0x080: "hw_power_brake",
    0x200: "board_limit",
    0x400: "reliability",
}

# Idle, clocks set by a user, a synchronised group, a display: these are normal.
_NO_THROTTLES = 0x001 | 0x002 | 0x010 | 0x100
_HW_CAUSES = 0x040 | 0x080


class _Value(NamedTuple):
    """A number of a reading: its signal and label, and what makes it a base unit.

    ``least`` and ``most`` bound the number as it is printed.
    """

    signal: Signal
    label: str = ""
    factor: int = 1
    divisor: int = 1
    least: int = 0
    most: int = _HIGHEST

    def in_base_units(self, printed: int) -> float:
        """Return the number in base units; a whole number stays one unless it is divided."""
        scaled = printed * self.factor
        if self.divisor == 1:
            return scaled
        return scaled / self.divisor


def _load(signal: Signal, label: str = "") -> _Value:
    return _Value(signal, label, divisor=100, most=100)


# By the key of the number. The load of the memory controller is unknown, because NVML's figure is a
# share of time. A fan may be faster than its full speed.
_VALUES = {
    "gpu_percent": _load(signals.GPU_LOAD),
    "memory_percent": _load(signals.GPU_MEMORY_ACTIVE),
    "nvenc_percent": _load(signals.ENGINE_LOAD, "NVENC"),
    "nvdec_percent": _load(signals.ENGINE_LOAD, "NVDEC"),
    "nvjpg_percent": _load(signals.ENGINE_LOAD, "NVJPG"),
    "ofa_percent": _load(signals.ENGINE_LOAD, "OFA"),
    "fan_percent": _Value(signals.FAN_SPEED, "gpu", divisor=100),
    "memory_used_bytes": _Value(signals.GPU_MEMORY_USED),
    "memory_total_bytes": _Value(signals.GPU_MEMORY_TOTAL),
    "sm_mhz": _Value(signals.GPU_FREQUENCY, "0", factor=1_000_000),
    "memory_mhz": _Value(signals.EMC_FREQUENCY, factor=1_000_000),
    "gpu_celsius": _Value(signals.TEMPERATURE, "gpu", least=-273),
    "memory_celsius": _Value(signals.TEMPERATURE, "memory", least=-273),
    "performance_state": _Value(signals.GPU_PERFORMANCE_STATE),
    "power_limit_mw": _Value(signals.GPU_POWER_LIMIT, divisor=1000),
}


class _Reading(Record):
    """A sample as the reader prints it; its other keys are those of ``_VALUES``."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, int]

    event: Literal["sample"]
    at_ns: _Count
    power_mw: _Count | None = None
    power_from: Literal["instant", "usage"] | None = None
    average_mw: _Count | None = None
    clock_events: _Count | None = None
    energy_mj: _Count | None = None
    energy_begin_ns: _Count | None = None
    energy_end_ns: _Count | None = None


_LINE: TypeAdapter[GpuFacts | GpuProcesses | _Reading] = TypeAdapter(
    Annotated[GpuFacts | GpuProcesses | _Reading, Field(discriminator="event")]
)


def parse_nvml_line(line: str) -> GpuFacts | GpuProcesses | GpuSample:
    """Parse one line of the reader: a JSON object in NVML's own units, which its keys name.

    A sample has no ``throttle_events``, because these need several lines.

    Raises:
        ParseError: The line is not from the reader (``noise``), or the GPU returned no value
            (``empty``).

    Source:
        "NVML API Reference": power in milliwatts, energy in millijoules, clocks in megahertz.

    >>> line = '{"event": "sample", "at_ns": 5, "power_mw": 126300, "power_from": "instant"}'
    >>> parse_nvml_line(line).rails
    {'GPU': Rail(instant_watts=126.3, average_watts=None, maximum_watts=None)}
    """
    try:
        found = _LINE.validate_json(line)
    except ValidationError:
        raise ParseError("noise", line) from None
    if not isinstance(found, _Reading):
        return found
    if found.model_fields_set <= {"event", "at_ns"}:
        raise ParseError("empty", line)
    if (found.model_extra or {}).keys() - _VALUES:
        raise ParseError("noise", line)
    return _sample(found)


def _sample(found: _Reading) -> GpuSample:
    strange: list[str] = []
    columns: dict[Column, float] = {}
    for key, value in (found.model_extra or {}).items():
        row = _VALUES[key]
        if not row.least <= value <= row.most:
            strange.append(f"{key}={value}"[:_SHOWN_CHARACTERS])
        else:
            columns[row.signal, row.label] = row.in_base_units(value)
    begin_ns, end_ns = found.energy_begin_ns, found.energy_end_ns
    if found.energy_mj is not None and begin_ns is not None and end_ns is not None:
        after_ns = (begin_ns + end_ns) / 2 - found.at_ns
        columns[signals.RAIL_COUNTER, "GPU"] = found.energy_mj / 1000
        columns[signals.RAIL_COUNTER_AFTER, "GPU"] = after_ns / 1e9
        columns[signals.RAIL_COUNTER_READ, "GPU"] = (end_ns - begin_ns) / 1e9
    rails = {}
    if found.power_mw is not None:
        average = None if found.power_from == "usage" else _thousandth(found.average_mw)
        rails["GPU"] = Rail(instant_watts=found.power_mw / 1000, average_watts=average)
    if (events := found.clock_events) is not None:
        for kind, is_active in throttles(events).items():
            columns[signals.THROTTLE_ACTIVE, kind] = int(is_active)
        if unknown := events & ~(_NO_THROTTLES | sum(THROTTLES)):
            strange.append(f"clock_events={unknown:#x}")
    return GpuSample(
        at_ns=found.at_ns, columns=by_name(columns), rails=rails, unparsed=tuple(strange)
    )


def throttles(events: int) -> dict[str, bool]:
    """Return whether each kind of throttling is active in a mask of clock event reasons.

    ``hw_slowdown`` is active only without its known causes, so that one event is not counted twice.

    >>> [kind for kind, is_active in throttles(0x49).items() if is_active]
    ['hw_thermal']
    """
    if events & _HW_CAUSES:
        events &= ~0x008
    return {kind: bool(events & bit) for bit, kind in THROTTLES.items()}
