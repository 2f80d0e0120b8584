"""The 100 worlds: which signal, sensor, printing and clock each of them has, and its exact energy.

The list is drawn from one seed. To change a number here makes other worlds, and the manifest then
refuses to score them.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from .sensors import Sensor, SensorKind
from .signals import (
    NANOSECONDS_PER_CELL,
    SIGNALS,
    Array,
    Moments,
    Random,
    Work,
    idle_watts,
    log_uniform,
)

SEED = 20261128
Kind = Literal["log", "sysfs", "nvml"]
ClockKind = Literal["steady", "one-step", "many-steps", "slewed"]
LossKind = Literal["none", "single", "bursts", "by-load"]

LEAD_SECONDS, TAIL_SECONDS = 4.0, 3.0
LIVE_WINDOW_SECONDS = 15.0
_LOG_INTERVALS_MS = (100, 103, 1000, 1009)
# Lines per window: at least the hundred that published figures of this field ask for.
_SHORT_WINDOW, _LONG_WINDOW = (30.0, 60.0), (120.0, 150.0)
_INFERENCE_SECONDS = 0.0213
_LEAST_INFERENCES = 200


@dataclass(frozen=True, slots=True)
class Rail:
    """One supply: its step, and its shares of the idle power and of the work."""

    name: str
    step_watts: float
    idle_share: float
    work_share: float
    is_counted: bool = True
    """Whether it is part of the sum; the others are behind one that is."""


@dataclass(frozen=True, slots=True)
class Board:
    """A module with its rails, as a tegrastats prints them."""

    name: str
    idle_watts: float
    rails: tuple[Rail, ...]
    line: str
    """Everything of a line between the time and the rails."""


_ORIN_LINE = (
    "RAM 3056/15523MB (lfb 2x4MB) SWAP 0/7761MB (cached 0MB) CPU [5%@1728,3%@1728,0%@1728,1%@1728]"
    " GR3D_FREQ 50% cpu@48.5C soc2@46.2C soc0@45.9C gpu@47.1C tj@48.5C soc1@46.8C"
)
BOARDS = {
    "orin-nx": Board(
        "orin-nx",
        6.0,
        (
            Rail("VDD_IN", 0.04, 1.0, 1.0),
            Rail("VDD_CPU_GPU_CV", 0.04, 0.2, 0.7, is_counted=False),
            Rail("VDD_SOC", 0.04, 0.3, 0.15, is_counted=False),
        ),
        _ORIN_LINE,
    ),
    "agx-orin": Board(
        "agx-orin",
        11.0,
        (
            Rail("VDD_GPU_SOC", 0.4, 0.4, 0.6),
            Rail("VDD_CPU_CV", 0.4, 0.18, 0.25),
            Rail("VIN_SYS_5V0", 0.1, 0.42, 0.15),
            Rail("VDDQ_VDD2_1V8AO", 0.1, 0.08, 0.04, is_counted=False),
        ),
        _ORIN_LINE,
    ),
    "agx-xavier": Board(
        "agx-xavier",
        9.0,
        (
            Rail("GPU", 0.15, 0.05, 0.45),
            Rail("CPU", 0.15, 0.1, 0.15),
            Rail("SOC", 0.15, 0.3, 0.1),
            Rail("CV", 0.15, 0.05, 0.1),
            Rail("VDDRQ", 0.15, 0.15, 0.1),
            Rail("SYS5V", 0.15, 0.35, 0.1),
        ),
        "RAM 4181/31919MB (lfb 5979x4MB) SWAP 0/15959MB (cached 0MB) CPU [4%@1190,2%@1190]"
        " EMC_FREQ 0% GR3D_FREQ 50% AO@37C GPU@38C Tboard@38C Tdiode@40C AUX@37C CPU@39C",
    ),
}


@dataclass(frozen=True, slots=True)
class Gpu:
    """What NVML answers on a GPU.

    The update times are those that "Part-time Power Measurements: nvidia-smi's Lack of Attention"
    (Yang, Adamek, Armour, SC24) measured on such GPUs.

    Attributes:
        architecture: As ``nvmlDeviceGetArchitecture`` numbers them.
        update_seconds: Time between two values of the sensor.
        box_seconds: Of this much time before an update a value is the mean.
        usage_seconds: ``nvmlDeviceGetPowerUsage`` is a mean of this much time.
        counter_seconds: Time between two values of the energy counter; ``None`` without one.
    """

    name: str
    architecture: int
    idle_watts: float
    update_seconds: float
    box_seconds: float
    usage_seconds: float
    has_instant: bool
    has_average: bool
    counter_seconds: float | None


GPUS = {
    "pascal": Gpu("Tesla P100-PCIE-16GB", 4, 30.0, 0.02, 0.01, 0.01, True, False, None),
    "ampere": Gpu("NVIDIA A100-SXM4-40GB", 7, 55.0, 0.1, 0.025, 0.025, True, False, 0.1),
    "hopper": Gpu("NVIDIA H100 80GB HBM3", 9, 75.0, 0.1, 0.025, 1.0, True, True, 0.1),
    "thor": Gpu("NVIDIA Thor", 10, 15.0, 0.1, 0.1, 0.1, False, False, None),
}
CounterFault = Literal["none", "stands", "restarts", "runs-ahead"]


@dataclass(frozen=True, slots=True)
class Spec:
    """All that is drawn for a world before its power is made."""

    name: str
    kind: Kind
    number: int
    """From 1 on, among the worlds of its kind."""
    seed: int
    signal: str
    swing: float
    """Swing of the work's power in idle powers."""
    window_seconds: float
    board: str = "orin-nx"
    interval_ms: int = 0
    sensor_kind: SensorKind = "clean"
    reads_vary: bool = False
    loss: LossKind = "none"
    clock: ClockKind = "steady"
    gpu: str = ""
    counter_fault: CounterFault = "none"


@dataclass(frozen=True)
class World:
    """A world: its power in cells, and what its readers see of it."""

    spec: Spec
    moments: Moments
    work: Work
    rails: tuple[Array, ...]
    """Power of each rail in microwatts, shape (cells,); of a GPU the only one."""
    sensor: Sensor

    @property
    def begin(self) -> float:
        """The begin of the window in seconds of the world."""
        return self.moments.begin

    @property
    def end(self) -> float:
        """Its end."""
        return self.moments.end

    @property
    def inferences(self) -> int:
        """How many inferences the run marks claim."""
        seconds = _INFERENCE_SECONDS
        if self.spec.signal == "bursts":
            seconds = self.work.periods[0]
        return max(_LEAST_INFERENCES, round((self.end - self.begin) / seconds))

    @cached_property
    def counted(self) -> Array:
        """Power of the whole board in microwatts, shape (cells,)."""
        board = BOARDS[self.spec.board]
        if self.spec.kind == "nvml":
            return self.rails[0]
        counted = [p for p, rail in zip(self.rails, board.rails, strict=True) if rail.is_counted]
        total: Array = np.sum(counted, axis=0)
        return total

    @cached_property
    def _until(self) -> Array:
        return np.concatenate([[0], np.cumsum(self.counted)])

    def joules(self, begin: float, end: float) -> float:
        """Return the exact energy of a time; power before the world is that of its first cell."""
        return self._joules_until(end) - self._joules_until(begin)

    def _joules_until(self, seconds: float) -> float:
        if seconds <= 0:
            return float(self.counted[0]) * seconds / 1e6
        nanoseconds = min(round(seconds * 1e9), self.moments.cells * NANOSECONDS_PER_CELL)
        cell, rest = divmod(nanoseconds, NANOSECONDS_PER_CELL)
        # Integers: microwatts times nanoseconds, which are femtojoules.
        femtojoules = int(self._until[cell]) * NANOSECONDS_PER_CELL
        if rest:
            femtojoules += int(self.counted[cell]) * rest
        return femtojoules / 1e15

    @property
    def truth_joules(self) -> float:
        """The energy of the window as the world plans it."""
        return self.joules(self.begin, self.end)


def specs() -> tuple[Spec, ...]:
    """Return the 100 worlds: 64 recorded logs, 12 trees of sysfs and 24 GPUs."""
    random = Random(SEED)
    return (*_log_specs(random), *_sysfs_specs(random), *_nvml_specs(random))


def _shuffled(random: Random, **counts: int) -> list[str]:
    names = [name.replace("_", "-") for name, count in counts.items() for _ in range(count)]
    return [names[i] for i in random.permutation(len(names))]


def _log_specs(random: Random) -> list[Spec]:
    sensors = _shuffled(random, clean=24, ina3221=16, box=6, slow=9, stuck=3, clipped=3, offset=3)
    losses = _shuffled(random, none=48, single=8, bursts=5, by_load=3)
    clocks = _shuffled(random, steady=52, one_step=6, many_steps=4, slewed=2)
    boards = _shuffled(random, orin_nx=34, agx_orin=20, agx_xavier=10)
    found = []
    for number in range(64):
        signal = tuple(SIGNALS)[number // 4]
        interval = _LOG_INTERVALS_MS[number % 4]
        window = _SHORT_WINDOW if interval < 500 else _LONG_WINDOW
        traits = [signal, sensors[number], f"{interval}ms"]
        traits += [word for word in (losses[number], clocks[number]) if word not in _USUAL]
        found.append(
            Spec(
                name=f"log-{number + 1:02d}-{'-'.join(traits)}",
                kind="log",
                number=number + 1,
                seed=int(random.randint(2**31 - 1)),
                signal=signal,
                swing=log_uniform(random, 0.05, 2.0),
                window_seconds=round(random.uniform(*window), 3),
                board=boards[number],
                interval_ms=interval,
                sensor_kind=sensors[number],  # type: ignore[arg-type]
                reads_vary=bool(random.randint(2)),
                loss=losses[number],  # type: ignore[arg-type]
                clock=clocks[number],  # type: ignore[arg-type]
            )
        )
    return found


_USUAL = ("none", "steady")


_SYSFS_SIGNALS = (
    *("constant", "ramp", "bursts", "bursts", "batches", "key-frame"),
    *("beside-1.0235s", "on-off", "poisson", "dvfs", "llm", "spikes"),
)
# In the last three worlds of the Hopper its counter is wrong.
_NVML_SIGNALS: tuple[tuple[str, str, CounterFault], ...] = (
    ("pascal", "constant", "none"),
    ("pascal", "bursts", "none"),
    ("pascal", "batches", "none"),
    ("pascal", "poisson", "none"),
    ("pascal", "on-off", "none"),
    ("pascal", "dvfs", "none"),
    ("ampere", "constant", "none"),
    ("ampere", "bursts", "none"),
    ("ampere", "bursts", "none"),
    ("ampere", "batches", "none"),
    ("ampere", "spikes", "none"),
    ("ampere", "llm", "none"),
    ("hopper", "constant", "none"),
    ("hopper", "ramp", "none"),
    ("hopper", "bursts", "none"),
    ("hopper", "batches", "none"),
    ("hopper", "alternate", "none"),
    ("hopper", "constant", "stands"),
    ("hopper", "bursts", "restarts"),
    ("hopper", "dvfs", "runs-ahead"),
    ("thor", "constant", "none"),
    ("thor", "bursts", "none"),
    ("thor", "batches", "none"),
    ("thor", "poisson", "none"),
)


def _sysfs_specs(random: Random) -> list[Spec]:
    found = []
    for number, signal in enumerate(_SYSFS_SIGNALS):
        found.append(
            Spec(
                name=f"sysfs-{number + 1:02d}-{signal}",
                kind="sysfs",
                number=number + 1,
                seed=int(random.randint(2**31 - 1)),
                signal=signal,
                swing=log_uniform(random, 0.2, 2.0),
                window_seconds=LIVE_WINDOW_SECONDS,
                sensor_kind="ina3221",
            )
        )
    return found


def _nvml_specs(random: Random) -> list[Spec]:
    found = []
    for number, (gpu, signal, fault) in enumerate(_NVML_SIGNALS):
        name = f"nvml-{number + 1:02d}-{gpu}-{signal}"
        found.append(
            Spec(
                name=name if fault == "none" else f"{name}-counter-{fault}",
                kind="nvml",
                number=number + 1,
                seed=int(random.randint(2**31 - 1)),
                signal=signal,
                swing=random.uniform(1.0, 6.0),
                window_seconds=LIVE_WINDOW_SECONDS,
                gpu=gpu,
                counter_fault=fault,
            )
        )
    return found


def make_world(spec: Spec) -> World:
    """Return a world; the same spec gives the same world on every machine."""
    random = Random(spec.seed)
    begin = LEAD_SECONDS + random.uniform(0, 0.5)
    end = begin + spec.window_seconds
    moments = Moments.of(end + TAIL_SECONDS, begin, end)
    work = SIGNALS[spec.signal](random, moments)
    if spec.kind == "nvml":
        level = GPUS[spec.gpu].idle_watts
        shares = [(1.0, 1.0)]
    else:
        board = BOARDS[spec.board]
        level = board.idle_watts * random.uniform(0.8, 1.3)
        shares = [(rail.idle_share, rail.work_share) for rail in board.rails]
    idle = idle_watts(random, moments, level)
    swing = level * spec.swing * work.shape * moments.inside()
    rails = tuple(
        np.rint((idle * of_idle + swing * of_work) * 1e6).astype(np.int64)
        for of_idle, of_work in shares
    )
    sensor = _sensor(spec, random, moments, rails)
    return World(spec, moments, work, rails, sensor)


def _sensor(spec: Spec, random: Random, moments: Moments, rails: tuple[Array, ...]) -> Sensor:
    kind = spec.sensor_kind
    match kind:
        case "ina3221":
            return Sensor(kind, seconds=(0.128, 0.512, 1.024)[random.randint(3)])
        case "box":
            return Sensor(kind, seconds=(0.1, 0.5)[random.randint(2)])
        case "slow":
            return Sensor(kind, seconds=round(log_uniform(random, 0.2, 2.2), 4))
        case "stuck":
            # A third of them are stuck before the window begins.
            share = random.uniform(0.1, 0.6) if random.uniform() < 2 / 3 else -0.05
            return Sensor(kind, seconds=moments.begin + share * spec.window_seconds)
        case "clipped":
            powers = np.sum(rails, axis=0)[moments.inside() > 0] / 1e6
            share = random.uniform(0.5, 0.9)
            low, high = float(powers.min()), float(powers.max())
            return Sensor(kind, watts=low + share * (high - low))
        case "offset":
            steps = random.uniform(-2, 2)
            counted = [rail for rail in BOARDS[spec.board].rails if rail.is_counted]
            return Sensor(kind, watts=steps * sum(rail.step_watts for rail in counted))
        case "clean":
            return Sensor(kind)
