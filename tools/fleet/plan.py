"""The plan of each simulated device: board, site, workloads and trouble."""

import random
from dataclasses import dataclass
from typing import Literal

from tegrascope.collectors.simulator.physics import board_model
from tegrascope.daemon.measure.report import Device
from tegrascope.daemon.settings.config import Workload

Fault = Literal["bypassed", "dark", "flaky", "gone", "hot", "slow"]

# Of every twenty devices, one has each trouble, for rules and dashboards to show.
SCORE = 20
FAULTS: dict[int, Fault] = {
    3: "hot",
    6: "flaky",
    9: "slow",
    12: "dark",
    15: "gone",
    18: "bypassed",
}
_BOARDS = {"agx-orin-64gb": 3, "orin-nx-16gb": 4, "orin-nano-8gb": 3}
_SITES = ("hall-1", "hall-2", "yard", "road")
# Air that takes a working board just beyond its throttle trip.
_HOT_AIR_CELSIUS = {"agx-orin-64gb": 65.0, "orin-nx-16gb": 59.0, "orin-nano-8gb": 60.0}


@dataclass(frozen=True)
class Task:
    """One workload of a device; the latency is the median of an inference."""

    workload: Workload
    latency_seconds: float
    layers: int


@dataclass(frozen=True)
class DevicePlan:
    """One device; other load than its runs comes in waves of ``host_period_seconds``."""

    number: int
    seed: str
    board: str
    site: str
    ambient_celsius: float
    fault: Fault | None
    tasks: tuple[Task, ...]
    pause_seconds: float
    host_period_seconds: float
    host_ratio: float

    @property
    def name(self) -> str:
        """Its name, for example ``sim-007``."""
        return f"sim-{self.number:03}"


def plan_device(number: int, seed: int, interval_seconds: float) -> DevicePlan:
    """Draw a device; the same number, seed and interval give the same one.

    A run lasts long enough for 100 samples at the interval.

    >>> plan_device(3, 0, 1.009).fault
    'hot'
    """
    key = f"fleet {seed} device {number}"
    chance = random.Random(key)
    fault = FAULTS.get(number % SCORE)
    board = chance.choices(tuple(_BOARDS), tuple(_BOARDS.values()))[0]
    if fault == "bypassed":
        board = "agx-orin-64gb"  # this trouble needs a DLA
    ambient = board_model(board).ambient_celsius + chance.uniform(-6, 6)
    if fault == "hot":
        ambient = _HOT_AIR_CELSIUS[board]
    return DevicePlan(
        number=number,
        seed=key,
        board=board,
        site=chance.choice(_SITES),
        ambient_celsius=ambient,
        fault=fault,
        tasks=_tasks(board, interval_seconds, chance),
        pause_seconds=chance.uniform(5, 60),
        host_period_seconds=chance.uniform(30, 300),
        host_ratio=chance.uniform(0.05, 0.4),
    )


def _tasks(board: str, interval_seconds: float, chance: random.Random) -> tuple[Task, ...]:
    dlas = board_model(board).dla_cores
    wanted: list[tuple[str, Device, float, int]] = [("detector", "gpu", 0.018, 62)]
    if dlas:
        wanted.append(("detector", "dla0", 0.031, 58))
    if dlas > 1 and chance.random() < 0.6:
        wanted.append(("pose", "dla1", 0.044, 81))
    elif chance.random() < 0.5:
        wanted.append(("segmenter", "gpu", 0.052, 120))
    chance.shuffle(wanted)
    speed = chance.uniform(0.9, 1.25) * (1.0 if board.startswith("agx") else 1.7)
    return tuple(
        Task(
            Workload(
                name=f"{name}-{device}",
                model=f"/opt/models/{name}.onnx",
                device=device,
                warm_up=2.0,
                duration=max(12.0, 112 * (interval_seconds + 0.02)),
            ),
            latency_seconds=seconds * speed,
            layers=layers,
        )
        for name, device, seconds, layers in wanted
    )
