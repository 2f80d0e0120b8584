"""What a check found, and what all checks are asked about."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal

from ...collectors.machine import Machine
from ...collectors.tensorrt_probe import Capabilities, probe
from ...parsers.records import Record
from ..config import Config
from .bounded import finishes
from .modules import Board, read_board

Level = Literal["good", "note", "missing", "broken"]
Fact = str | int | float | bool | None | list[str]

TENSORRT_SECONDS = 60.0
_BOARD_SECONDS = 5.0


class Finding(Record):
    """What one check found.

    Attributes:
        check: Its name, which does not change between releases.
        level: ``good``; ``note``, nothing to do unless you care; ``missing``, something less can
            be seen or done; ``broken``, there and not working.
        said: One line.
        mend: The command or key that ends it.
        stops: Whether the main job cannot be done for it.
        facts: What was found, for programs.
    """

    check: str
    level: Level
    said: str
    mend: str | None = None
    stops: bool = False
    facts: dict[str, Fact] = {}


@dataclass
class Patient:
    """The machine and its task, with what several checks need, found out once.

    Attributes:
        machine: What is asked.
        config: The configuration in force, or the defaults.
        config_path: Its file; ``None`` where there is none.
        config_problems: What is wrong with that file, line by line.
        state_dir: Where runs are kept.
        probe: Finds out what TensorRT can do, in a child.
    """

    machine: Machine
    config: Config = field(default_factory=Config)
    config_path: Path | None = None
    config_problems: tuple[str, ...] = ()
    state_dir: Path = Path("/var/lib/tegrascope")
    probe: Callable[[], Capabilities] = lambda: probe(seconds=TENSORRT_SECONDS)

    @cached_property
    def board(self) -> Board:
        """Which board this is, by its device tree and release file; unknown if they do not answer.

        Every group asks, so one that waited for ever would have all of them wait.
        """
        found: list[Board] = []
        finishes(lambda: found.append(read_board(self.machine)), _BOARD_SECONDS, "board")
        return found[0] if found else Board(is_jetson=False)

    @cached_property
    def tensorrt(self) -> Capabilities:
        """What TensorRT can do here."""
        return self.probe()

    @property
    def wants_tensorrt(self) -> bool:
        """Whether a configured workload runs on TensorRT."""
        return any(one.engine in ("tensorrt", "trtexec") for one in self.config.workloads)

    @property
    def wants_dla(self) -> bool:
        """Whether a configured workload runs on a DLA."""
        return any(one.device.startswith("dla") for one in self.config.workloads)
