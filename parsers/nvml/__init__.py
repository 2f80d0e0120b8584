"""A line of the NVML reader to the facts of a GPU, to its processes, or to a sample of it."""

from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    TypeAdapter,
    ValidationError,
)

from ..errors import ParseError
from ..records import Emc, EnergyCounter, Engine, Gpu, GpuMemory, GpuSample, Rail, Record


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
    memory_total_bytes: NonNegativeInt | None = None
    power_reading: Literal["instant", "usage"] | None = Field(None, alias="power_from")
    versions: dict[str, str] = {}
    refused: dict[str, str] = {}


class GpuProcesses(Record):
    """Memory by process, by the number of the process.

    Attributes:
        at_ns: CLOCK_MONOTONIC of the reading.
    """

    event: Literal["processes"]
    at_ns: NonNegativeInt
    used_bytes: dict[NonNegativeInt, NonNegativeInt]


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


class _Reading(Record):
    event: Literal["sample"]
    at_ns: NonNegativeInt
    power_mw: NonNegativeInt | None = None
    power_from: Literal["instant", "usage"] | None = None
    average_mw: NonNegativeInt | None = None
    gpu_percent: NonNegativeInt | None = None
    memory_percent: NonNegativeInt | None = None
    memory_used_bytes: NonNegativeInt | None = None
    memory_total_bytes: NonNegativeInt | None = None
    sm_mhz: NonNegativeInt | None = None
    memory_mhz: NonNegativeInt | None = None
    gpu_celsius: int | None = None
    memory_celsius: int | None = None
    fan_percent: NonNegativeInt | None = None
    nvenc_percent: NonNegativeInt | None = None
    nvdec_percent: NonNegativeInt | None = None
    nvjpg_percent: NonNegativeInt | None = None
    ofa_percent: NonNegativeInt | None = None
    performance_state: NonNegativeInt | None = None
    power_limit_mw: NonNegativeInt | None = None
    clock_events: NonNegativeInt | None = None
    energy_mj: NonNegativeInt | None = None
    energy_begin_ns: NonNegativeInt | None = None
    energy_end_ns: NonNegativeInt | None = None


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
    return _sample(found)


def _sample(found: _Reading) -> GpuSample:
    strange: list[str] = []

    def share(field: str) -> float | None:
        percent: int | None = getattr(found, field)
        if percent is None or percent <= 100:
            return None if percent is None else percent / 100
        strange.append(f"{field}={percent}")
        return None

    celsius = {"gpu": found.gpu_celsius, "memory": found.memory_celsius}
    memory = GpuMemory(
        used_bytes=found.memory_used_bytes,
        total_bytes=found.memory_total_bytes,
        active_ratio=share("memory_percent"),
    )
    clocks = () if found.sm_mhz is None else (found.sm_mhz * 1_000_000,)
    gpu = Gpu(utilization_ratio=share("gpu_percent"), frequency_hertz=clocks)
    engines = {
        name: Engine(utilization_ratio=ratio)
        for name in ("NVENC", "NVDEC", "NVJPG", "OFA")
        if (ratio := share(f"{name.lower()}_percent")) is not None
    }
    rails = {}
    if found.power_mw is not None:
        average = None if found.power_from == "usage" else _thousandth(found.average_mw)
        rails["GPU"] = Rail(instant_watts=found.power_mw / 1000, average_watts=average)
    events = found.clock_events
    unknown = (events or 0) & ~(_NO_THROTTLES | sum(THROTTLES))
    if unknown:
        strange.append(f"clock_events={unknown:#x}")
    return GpuSample(
        at_ns=found.at_ns,
        gpu=None if gpu == Gpu() else gpu,
        # The load of the memory controller is unknown: NVML's figure is a share of time.
        emc=None if found.memory_mhz is None else Emc(frequency_hertz=found.memory_mhz * 1_000_000),
        engines=engines,
        temperatures_celsius={n: float(c) for n, c in celsius.items() if c is not None},
        rails=rails,
        memory=None if memory == GpuMemory() else memory,
        energy=_energy(found),
        fan_speed_ratio=None if found.fan_percent is None else found.fan_percent / 100,
        power_limit_watts=_thousandth(found.power_limit_mw),
        performance_state=found.performance_state,
        throttling={} if events is None else throttles(events),
        unparsed=tuple(strange),
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


def _energy(found: _Reading) -> EnergyCounter | None:
    if found.energy_mj is None or found.energy_begin_ns is None or found.energy_end_ns is None:
        return None
    return EnergyCounter(
        joules=found.energy_mj / 1000, begin_ns=found.energy_begin_ns, end_ns=found.energy_end_ns
    )
