"""A board that is not there: its power, heat, clocks and sensors; data in ``simulated.toml``."""

import math
import random
import sys
import threading
from array import array
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Literal

from pydantic import Field

from ..parsers.errors import Mendable
from ..parsers.records import Core, Dla, Emc, Engine, Gpu, Rail, Ram, Record, Sample, Swap
from .board import find_rail_rule
from .load_board import LoadBoard, Segment

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SLOT_NS = 100_000_000  # noise and leakage are constant for so long
DLA_AUTOSUSPEND_NS = 500_000_000
MOST_PIECES = 65_536
_MEBI, _MEGA = 1024**2, 1_000_000
_BUS_MILLIVOLTS = 8  # step of the INA3221's voltage
_CLOCK_SECONDS = 0.2  # a governor follows its load so fast
_SPOT_SECONDS = 3.0  # heat at the spot follows its power so fast
_NOISE_SECONDS = 0.8  # how long the noise of a rail remembers
_HOST_LOAD = 0.14  # of one core, for each accelerator that works
_LOUDEST_GPU = 0.99  # the highest load in any public log


class SimulatedRail(Record):
    """One rail; see ``simulated.toml``."""

    name: str
    volts: float
    step_milliamperes: int
    idle_watts: float
    noise_watts: float
    leak_watts_per_celsius: float = 0.0
    dla_powered_watts: float = 0.0
    load: dict[str, float]


class SimulatedZone(Record):
    """One thermal zone; see ``simulated.toml``."""

    above: float = 0.0
    watts: dict[str, float] = {}
    step: float = 0.03125
    hottest: bool = False
    gated: bool = False


class SimulatedEmc(Record):
    """The memory controller; see ``simulated.toml``."""

    megahertz: tuple[int, int]
    load: dict[str, float]


class SimulatedRam(Record):
    """Memory; see ``simulated.toml``."""

    total: int
    used: int
    free_blocks: int
    swap: int
    load: dict[str, float]


class BoardModel(Record):
    """All that is known of one simulated board; see ``simulated.toml``."""

    name: str
    average: Literal["truncated", "rounded"]
    ambient_celsius: float
    celsius_per_watt: float
    heat_seconds: float
    cores: tuple[int, ...]
    cpu_megahertz: tuple[int, ...]
    gpu_megahertz: tuple[int, ...]
    gpu_clusters: int
    dla_cores: int
    dla_megahertz: int | None = None
    ape_megahertz: int
    engines: tuple[str, ...]
    emc: SimulatedEmc
    ram: SimulatedRam
    rails: tuple[SimulatedRail, ...] = Field(min_length=1)
    zones: dict[str, SimulatedZone]

    @property
    def lanes(self) -> tuple[str, ...]:
        """The lanes whose load this board feels."""
        return ("gpu", *(f"dla{core}" for core in range(self.dla_cores)), "cpu", "emc")


@cache
def board_models() -> dict[str, BoardModel]:
    """Return all simulated boards by name."""
    text = Path(__file__).with_name("simulated.toml").read_text(encoding="utf-8")
    models = map(BoardModel.model_validate, tomllib.loads(text)["simulated"])
    return {model.name: model for model in models}


def board_model(name: str) -> BoardModel:
    """Return one simulated board.

    Raises:
        Mendable: There is none of that name.
    """
    try:
        return board_models()[name]
    except KeyError:
        known = ", ".join(board_models())
        raise Mendable(f"no simulated board is called {name!r}", f"use one of {known}") from None


@dataclass(frozen=True)
class TrueEnergy:
    """What a stretch of time really took, which no sensor tells.

    Attributes:
        rail_joules: By rail.
        module_joules: Of the rails that make the module's total.
    """

    rail_joules: Mapping[str, float]
    module_joules: float


class SimulatedBoard:
    """One board, whose time goes on when somebody looks at it; from any thread.

    The power of a rail is its idle power, what each load adds, what a powered DLA core adds,
    leakage that grows with the heat sink's temperature, and noise. Loads count from the
    nanosecond at which they changed. How often the board is looked at changes nothing in it.

    A sensor reading is a sample of that moment: voltage in steps of 8 mV times current in steps
    of the sensor. The integral of the true power is kept beside it.

    Attributes:
        model: Its data.
        load: Where its loads come from.
        privileged: Whether tegrastats runs as root on it.
        has_swap: Whether swap is enabled.
    """

    def __init__(
        self,
        model: BoardModel,
        load: LoadBoard,
        *,
        begin_ns: int,
        privileged: bool = True,
        seed: int = 0,
        has_swap: bool = True,
    ) -> None:
        """Switch the board on, idle and as warm as it is when idle.

        Args:
            model: Which board.
            load: Where its loads come from.
            begin_ns: Monotonic time of the beginning.
            privileged: Whether tegrastats runs as root on it.
            seed: The same seed, loads and times give the same readings.
            has_swap: Whether swap is enabled.
        """
        self.model = model
        self.load = load
        self.privileged = privileged
        self.has_swap = has_swap
        self._lock = threading.RLock()
        self._physics = _Physics(model, begin_ns, random.Random(f"{model.name} {seed} physics"))
        self._chance = random.Random(f"{model.name} {seed} readings")
        self._read_ns = begin_ns
        self._busy_before = dict(self._physics.busy_ns)
        self._sums = [0] * len(model.rails)
        self._readings = 0

    def advance(self, to_ns: int) -> None:
        """Let the board live up to a monotonic time; loads until then are settled."""
        with self._lock:
            for segment in self.load.take(self._physics.now_ns, to_ns):
                self._physics.run(segment)

    def read(self, at_ns: int, wall_ns: int) -> Sample:
        """Read all sensors, as tegrastats does for one line.

        Args:
            at_ns: Monotonic time, not before the last reading.
            wall_ns: Wall time to print, as local time.
        """
        with self._lock:
            self.advance(at_ns)
            at_ns = self._physics.now_ns
            busy = self._busy_ratios(at_ns)
            self._read_ns = at_ns
            self._readings += 1
            return self._sample(busy, wall_ns)

    def true_energy(self, begin_ns: int, end_ns: int) -> TrueEnergy:
        """Return the exact energy of a stretch of time that has passed.

        Args:
            begin_ns: Monotonic begin, at most some minutes ago: 65 536 changes are kept.
            end_ns: Monotonic end.

        Raises:
            LookupError: The begin is before the memory, or before the board was switched on.
        """
        self.advance(end_ns)
        with self._lock:
            joules = self._physics.joules(begin_ns, end_ns)
        by_rail = dict(zip((rail.name for rail in self.model.rails), joules, strict=True))
        rule = find_rail_rule(by_rail)
        return TrueEnergy(by_rail, sum(by_rail[name] for name in rule.total) if rule else math.nan)

    def _busy_ratios(self, at_ns: int) -> dict[str, float]:
        """Return each lane's mean load since the reading before."""
        busy_ns, before = dict(self._physics.busy_ns), self._busy_before
        self._busy_before = busy_ns
        span = at_ns - self._read_ns
        if span <= 0:
            return dict(self._physics.ratios)
        return {lane: (busy_ns[lane] - before[lane]) / span for lane in busy_ns}

    def _sample(self, busy: Mapping[str, float], wall_ns: int) -> Sample:
        model, physics = self.model, self._physics
        powered = [physics.dla_powered(core) for core in range(model.dla_cores)]
        gpu_load = min(round(busy["gpu"], 2), _LOUDEST_GPU)
        clusters = (self._gpu_hertz(),) * model.gpu_clusters if self.privileged else ()
        return Sample(
            time=datetime.fromtimestamp(wall_ns // 1_000_000_000),
            ram=self._ram(),
            swap=self._swap(),
            cpu=self._cores(busy),
            emc=self._emc(busy) if self.privileged else None,
            gpu=Gpu(utilization_ratio=gpu_load, frequency_hertz=clusters),
            engines=self._engines() if self.privileged else {},
            dla=self._dla(busy, powered) if self.privileged else (),
            temperatures_celsius=self._temperatures(any(powered)),
            rails={rail.name: self._rail(n) for n, rail in enumerate(model.rails)},
        )

    def _ram(self) -> Ram:
        ram, follow = self.model.ram, self._physics.followed
        added = sum(
            ram.load.get(_kind(lane), 0) * min(1.0, 4 * ratio) for lane, ratio in follow.items()
        )
        used = min(ram.total, ram.used + round(added) + self._chance.randrange(-3, 4))
        return Ram(
            used_bytes=used * _MEBI,
            total_bytes=ram.total * _MEBI,
            largest_free_block_bytes=4 * _MEBI,
            largest_free_block_count=max(1, ram.free_blocks - round(added / 8)),
        )

    def _swap(self) -> Swap | None:
        if not self.has_swap:
            return None
        return Swap(used_bytes=0, total_bytes=self.model.ram.swap * _MEBI, cached_bytes=0)

    def _cores(self, busy: Mapping[str, float]) -> tuple[Core, ...]:
        hosts = [ratio for lane, ratio in busy.items() if lane == "gpu" or _kind(lane) == "dla"]
        cores: list[Core] = []
        follow = self._physics.followed
        for size in self.model.cores:
            demand = max(follow["cpu"], 0.4 * max(follow.values()))
            clock = _step_hertz(self.model.cpu_megahertz, demand)
            for _ in range(size):
                host = _HOST_LOAD * hosts[len(cores)] if len(cores) < len(hosts) else 0.0
                load = busy["cpu"] * self._chance.uniform(0.97, 1.0) + host
                load += self._chance.uniform(0, 0.06)
                ratio = round(min(load, 1.0), 2)
                cores.append(
                    Core(
                        core=len(cores),
                        online=True,
                        utilization_ratio=ratio,
                        frequency_hertz=clock,
                    )
                )
        return tuple(cores)

    def _gpu_hertz(self) -> int:
        return _step_hertz(self.model.gpu_megahertz, self._physics.followed["gpu"])

    def _emc(self, busy: Mapping[str, float]) -> Emc:
        emc = self.model.emc
        load = sum(emc.load.get(_kind(lane), 0.0) * ratio for lane, ratio in busy.items())
        loud = max(self._physics.followed.values()) > 0.05
        return Emc(
            utilization_ratio=round(min(load, 0.83), 2),
            frequency_hertz=emc.megahertz[loud] * _MEGA,
        )

    def _engines(self) -> dict[str, Engine]:
        off = {name: Engine(state="off") for name in self.model.engines}
        return {**off, "APE": Engine(state="on", frequency_hertz=self.model.ape_megahertz * _MEGA)}

    def _dla(self, busy: Mapping[str, float], powered: list[bool]) -> tuple[Dla, ...]:
        hertz = (self.model.dla_megahertz or 0) * _MEGA
        return tuple(
            Dla(
                core=core,
                state="on",
                utilization_ratio=round(min(busy[f"dla{core}"], 1.0), 2),
                frequency_hertz=hertz,
            )
            if on
            else Dla(core=core, state="off")
            for core, on in enumerate(powered)
        )

    def _temperatures(self, dla_powered: bool) -> dict[str, float | None]:
        readings: dict[str, float | None] = {}
        highest = -math.inf
        for name, zone in self.model.zones.items():
            if zone.hottest:
                readings[name] = None  # keeps its place; its value is known at the end
            elif dla_powered or not zone.gated:
                celsius = self._physics.celsius(name) + self._chance.gauss(0, zone.step)
                celsius = math.floor(celsius / zone.step) * zone.step
                readings[name] = math.floor(celsius * 1000) / 1000
                highest = max(highest, math.floor(celsius * 1000) / 1000)
        return {
            name: highest if self.model.zones[name].hottest else celsius
            for name, celsius in readings.items()
        }

    def _rail(self, number: int) -> Rail:
        rail = self.model.rails[number]
        volts = self._chance.gauss(rail.volts, 0.008)
        millivolts = _BUS_MILLIVOLTS * round(volts * 1000 / _BUS_MILLIVOLTS)
        amperes = self._physics.watts[number] / volts
        milliamperes = rail.step_milliamperes * round(amperes * 1000 / rail.step_milliamperes)
        milliwatts = millivolts * milliamperes // 1000
        self._sums[number] += milliwatts
        mean, rest = divmod(self._sums[number], self._readings)
        if self.model.average == "rounded" and 2 * rest >= self._readings:
            mean += 1
        return Rail(instant_watts=milliwatts / 1000, average_watts=mean / 1000)


class _Physics:
    """What happens on the board between two looks: power, heat and what follows the load.

    Everything is constant for one piece of time: a piece ends where a load changes, where a DLA
    core is suspended, and with each slot of 100 ms, so the integrals are exact.
    """

    def __init__(self, model: BoardModel, begin_ns: int, chance: random.Random) -> None:
        self.now_ns = begin_ns
        self.ratios = dict.fromkeys(model.lanes, 0.0)
        self.busy_ns = dict.fromkeys(model.lanes, 0.0)
        self.followed = dict.fromkeys(model.lanes, 0.0)
        self.watts = [rail.idle_watts for rail in model.rails]
        self._model = model
        self._chance = chance
        self._slot_ns = begin_ns
        self._noise = [chance.gauss(0, rail.noise_watts) for rail in model.rails]
        self._suspend_ns = [begin_ns] * model.dla_cores
        rule = find_rail_rule([rail.name for rail in model.rails])
        total = () if rule is None else rule.total
        self._in_total = [rail.name in total for rail in model.rails]
        self._idle_sink = model.ambient_celsius + model.celsius_per_watt * self._module_watts()
        self._sink = self._leak_celsius = self._idle_sink
        self._spots = {name: 0.0 for name, zone in model.zones.items() if not zone.hottest}
        self._place = {rail.name: number for number, rail in enumerate(model.rails)}
        self._ends = array("q", [begin_ns])
        self._sums = [array("d", [0.0]) for _ in model.rails]
        self._set_watts()

    def run(self, segment: Segment) -> None:
        """Live through a stretch of constant load."""
        self.ratios = {lane: segment.ratios.get(lane, 0.0) for lane in self.ratios}
        while self.now_ns < segment.end_ns:
            if self.now_ns >= self._slot_ns + SLOT_NS:
                self._begin_slot()
            end_ns = min(segment.end_ns, self._slot_ns + SLOT_NS)
            for core, suspend_ns in enumerate(self._suspend_ns):
                if not self.ratios[f"dla{core}"] and self.now_ns < suspend_ns:
                    end_ns = min(end_ns, suspend_ns)
            self._set_watts()
            self._run_piece(end_ns)
        # What a sensor sees from here on: a core may just have been suspended.
        self._set_watts()

    def dla_powered(self, core: int) -> bool:
        """Say whether a DLA core has power: it works, or did in the last 500 ms."""
        return self.ratios[f"dla{core}"] > 0 or self.now_ns < self._suspend_ns[core]

    def celsius(self, zone_name: str) -> float:
        """Return the true temperature of a zone."""
        return self._sink + self._model.zones[zone_name].above + self._spots[zone_name]

    def joules(self, begin_ns: int, end_ns: int) -> list[float]:
        """Return the energy of each rail between two times."""
        if begin_ns < self._ends[0] or end_ns > self._ends[-1]:
            raise LookupError(f"the board remembers {self._ends[0]} to {self._ends[-1]} ns")
        return [self._sum_at(sums, end_ns) - self._sum_at(sums, begin_ns) for sums in self._sums]

    def _sum_at(self, sums: "array[float]", at_ns: int) -> float:
        place = bisect_right(self._ends, at_ns)
        if place == len(self._ends):
            return sums[-1]
        before, after = self._ends[place - 1], self._ends[place]
        share = (at_ns - before) / (after - before)
        return sums[place - 1] + share * (sums[place] - sums[place - 1])

    def _begin_slot(self) -> None:
        """Draw the noise of the next 100 ms; leakage follows the heat as it is now."""
        self._slot_ns += SLOT_NS
        self._leak_celsius = self._sink
        keep = math.exp(-SLOT_NS / 1e9 / _NOISE_SECONDS)
        fresh = math.sqrt(1 - keep * keep)
        for number, rail in enumerate(self._model.rails):
            drawn = self._chance.gauss(0, rail.noise_watts)
            self._noise[number] = keep * self._noise[number] + fresh * drawn

    def _set_watts(self) -> None:
        powered = sum(map(self.dla_powered, range(self._model.dla_cores)))
        warmer = self._leak_celsius - self._idle_sink
        loads = [(_kind(lane), ratio) for lane, ratio in self.ratios.items() if ratio]
        for number, rail in enumerate(self._model.rails):
            watts = rail.idle_watts + self._noise[number]
            watts += rail.leak_watts_per_celsius * warmer + rail.dla_powered_watts * powered
            for kind, ratio in loads:
                watts += rail.load.get(kind, 0.0) * ratio
            self.watts[number] = max(0.0, watts)

    def _run_piece(self, end_ns: int) -> None:
        """Add up a piece of constant power, and let what is slow follow it."""
        span_ns = end_ns - self.now_ns
        seconds = span_ns / 1e9
        clock = -math.expm1(-seconds / _CLOCK_SECONDS)
        for lane, ratio in self.ratios.items():
            self.busy_ns[lane] += ratio * span_ns
            self.followed[lane] += clock * (ratio - self.followed[lane])
        for core in range(self._model.dla_cores):
            if self.ratios[f"dla{core}"]:
                self._suspend_ns[core] = end_ns + DLA_AUTOSUSPEND_NS
        target = self._model.ambient_celsius + self._model.celsius_per_watt * self._module_watts()
        sink = -math.expm1(-seconds / self._model.heat_seconds)
        self._sink += sink * (target - self._sink)
        spot = -math.expm1(-seconds / _SPOT_SECONDS)
        for name, warmth in self._spots.items():
            above = 0.0
            for rail, celsius_per_watt in self._model.zones[name].watts.items():
                number = self._place[rail]
                idle = self._model.rails[number].idle_watts
                above += celsius_per_watt * (self.watts[number] - idle)
            self._spots[name] = warmth + spot * (above - warmth)
        self._remember(end_ns, seconds)
        self.now_ns = end_ns

    def _remember(self, end_ns: int, seconds: float) -> None:
        self._ends.append(end_ns)
        for sums, watts in zip(self._sums, self.watts, strict=True):
            sums.append(sums[-1] + watts * seconds)
        if len(self._ends) > MOST_PIECES:
            half = MOST_PIECES // 2
            del self._ends[:half]
            for sums in self._sums:
                del sums[:half]

    def _module_watts(self) -> float:
        return sum(
            watts for watts, counts in zip(self.watts, self._in_total, strict=True) if counts
        )


def _kind(lane: str) -> str:
    """Return the lane's name in ``simulated.toml``: both DLA cores are alike."""
    return lane.rstrip("01")


def _step_hertz(steps: tuple[int, ...], demand: float) -> int:
    """Return the lowest clock that is enough for a demand of 0…1 of the highest."""
    enough = steps[0] + (demand - 0.02) * 1.1 * (steps[-1] - steps[0])
    return next((step for step in steps if step >= enough), steps[-1]) * _MEGA
