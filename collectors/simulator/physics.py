"""The data of the simulated boards, and their physics: loads become power and temperature."""

import math
import random
import sys
from array import array
from bisect import bisect_right
from functools import cache
from pathlib import Path
from typing import Literal

from pydantic import Field

from ...parsers.errors import UserError
from ...parsers.records import Record
from ..board.boards import find_rail_rule
from .load import Segment

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


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
    """All data of one simulated board; see ``simulated.toml``."""

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
        """The lanes that this board has."""
        return ("gpu", *(f"dla{core}" for core in range(self.dla_cores)), "cpu", "emc")


@cache
def board_models() -> dict[str, BoardModel]:
    """Return all simulated boards by name."""
    text = Path(__file__).with_name("simulated.toml").read_text(encoding="utf-8")
    models = map(BoardModel.model_validate, tomllib.loads(text)["simulated"])
    return {model.name: model for model in models}


def board_model(name: str) -> BoardModel:
    """Return one simulated board, or raise ``UserError`` if the name is unknown."""
    try:
        return board_models()[name]
    except KeyError:
        known = ", ".join(board_models())
        raise UserError(f"no simulated board is called {name!r}", f"use one of {known}") from None


def lane_kind(lane: str) -> str:
    """Return the lane's name in ``simulated.toml``: both DLA cores are alike."""
    return lane.rstrip("01")


SLOT_NS = 100_000_000  # noise and leakage are constant for so long
DLA_AUTOSUSPEND_NS = 500_000_000
_CLOCK_SECONDS = 0.2  # a governor follows its load so fast
_SPOT_SECONDS = 3.0  # heat at the spot follows its power so fast
_NOISE_SECONDS = 0.8  # how long the noise of a rail remembers


class Physics:
    """Power, heat and clocks of the board between two readings.

    Everything is constant for one piece of time: a piece ends where a load changes, where a DLA
    core is suspended, and with each slot of 100 ms, so the integrals are exact.
    """

    def __init__(
        self, model: BoardModel, begin_ns: int, chance: random.Random, most_pieces: int
    ) -> None:
        self._most_pieces = most_pieces
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
        """Simulate a stretch of constant load."""
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
        # For the sensors from here on: a core may just have been suspended.
        self._set_watts()

    def dla_powered(self, core: int) -> bool:
        """Return whether a DLA core has power: it works, or did in the last 500 ms."""
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
        loads = [(lane_kind(lane), ratio) for lane, ratio in self.ratios.items() if ratio]
        for number, rail in enumerate(self._model.rails):
            watts = rail.idle_watts + self._noise[number]
            watts += rail.leak_watts_per_celsius * warmer + rail.dla_powered_watts * powered
            for kind, ratio in loads:
                watts += rail.load.get(kind, 0.0) * ratio
            self.watts[number] = max(0.0, watts)

    def _run_piece(self, end_ns: int) -> None:
        """Add up a piece of constant power; clocks and heat follow it."""
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
        if len(self._ends) > self._most_pieces:
            half = self._most_pieces // 2
            del self._ends[:half]
            for sums in self._sums:
                del sums[:half]

    def _module_watts(self) -> float:
        pairs = zip(self.watts, self._in_total, strict=True)
        return sum(watts for watts, counts in pairs if counts)
