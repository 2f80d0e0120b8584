"""What a desktop or server GPU says beyond what a Sample has room for."""

from pydantic import NonNegativeFloat, NonNegativeInt

from .records import Ratio, Record, Sample


class GpuFacts(Record):
    """What does not change while a GPU is read.

    Attributes:
        name: Product name.
        uuid: By which it is told from its likes.
        part_number: Of its board.
        power_limit_watts: In force when the reader started.
        memory_total_bytes: Its memory.
        power_reading: ``instant``; or ``usage``, which lags: a mean over one second on Ampere and
            later; ``None`` where it tells no power.
        versions: Driver, NVML and CUDA driver.
        refused: What it does not say, with the reason that NVML gives.
    """

    name: str | None = None
    uuid: str | None = None
    part_number: str | None = None
    power_limit_watts: NonNegativeFloat | None = None
    memory_total_bytes: NonNegativeInt | None = None
    power_reading: str | None = None
    versions: dict[str, str] = {}
    refused: dict[str, str] = {}


class GpuMemory(Record):
    """Memory of a GPU that has its own.

    Attributes:
        used_bytes: In use, what the driver keeps for itself included.
        total_bytes: There is.
        active_ratio: Share of time in which it was read or written. No share of its bandwidth:
            a slow trickle that never pauses is 1.
    """

    used_bytes: NonNegativeInt | None = None
    total_bytes: NonNegativeInt | None = None
    active_ratio: Ratio | None = None


class EnergyCounter(Record):
    """The energy counter of a board, and when it was read.

    Attributes:
        joules: Since the driver was loaded; it ticks about every 100 ms.
        begin_ns: CLOCK_MONOTONIC before the read.
        end_ns: After it.
    """

    joules: NonNegativeFloat
    begin_ns: NonNegativeInt
    end_ns: NonNegativeInt


class GpuSample(Sample):
    """One reading of NVML.

    Attributes:
        at_ns: CLOCK_MONOTONIC at which power was read.
        memory: Of the GPU.
        energy: Its energy counter.
        fan_speed_ratio: Of the first fan, as a share of its full speed; may exceed 1.
        power_limit_watts: In force.
        performance_state: 0 (fastest) to 15.
        throttling: By kind, whether the clock is held down for that reason just now.
        throttle_events: By kind, how often that began since the source did.
    """

    at_ns: NonNegativeInt
    memory: GpuMemory | None = None
    energy: EnergyCounter | None = None
    fan_speed_ratio: NonNegativeFloat | None = None
    power_limit_watts: NonNegativeFloat | None = None
    performance_state: NonNegativeInt | None = None
    throttling: dict[str, bool] = {}
    throttle_events: dict[str, NonNegativeInt] = {}

    def beside(self) -> dict[str, float]:
        """Name the numbers for which a Sample has no place."""
        named: dict[str, float | None] = {
            f"gpu_memory.{field}": value for field, value in self.memory or ()
        }
        named["gpu.power_limit_watts"] = self.power_limit_watts
        named["gpu.performance_state"] = self.performance_state
        named["fans.gpu.speed_ratio"] = self.fan_speed_ratio
        if self.energy is not None:
            middle_ns = (self.energy.begin_ns + self.energy.end_ns) / 2
            named["rails.GPU.counter_joules"] = self.energy.joules
            named["rails.GPU.counter_after_seconds"] = (middle_ns - self.at_ns) / 1e9
            read_ns = self.energy.end_ns - self.energy.begin_ns
            named["rails.GPU.counter_read_seconds"] = read_ns / 1e9
        for kind, is_active in self.throttling.items():
            named[f"throttle.{kind}.active"] = int(is_active)
        for kind, events in self.throttle_events.items():
            named[f"throttle.{kind}.events"] = events
        return {name: value for name, value in named.items() if value is not None}
