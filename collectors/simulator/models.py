"""What is known of each simulated board: the data of ``simulated.toml``."""

import sys
from functools import cache
from pathlib import Path
from typing import Literal

from pydantic import Field

from ...parsers.errors import Mendable
from ...parsers.records import Record

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


def lane_kind(lane: str) -> str:
    """Return the lane's name in ``simulated.toml``: both DLA cores are alike."""
    return lane.rstrip("01")
