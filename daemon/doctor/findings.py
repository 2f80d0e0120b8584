"""Which Jetson this is, and how many DLA cores a module of its kind has."""

import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal

from ...collectors.backends.tensorrt_probe import Capabilities, probe
from ...collectors.board.machine import Machine
from ...collectors.catalog import find_backend
from ...parsers.records import Record
from ..settings.config import Config, Workload

# By the part number in the device tree's `compatible`: the name, and the DLA cores of a module
# with no core fused off. The first pattern that is found applies.
_PARTS: tuple[tuple[str, str, int], ...] = (
    ("p3701", "AGX Orin", 2),
    ("p3767-0000", "Orin NX 16GB", 2),
    ("p3767-0001", "Orin NX 8GB", 1),
    ("p3767-000[345]", "Orin Nano", 0),
    ("p2888", "AGX Xavier", 2),
    ("p3668", "Xavier NX", 2),
    ("p3310|p3489|p3636", "TX2", 0),
    ("p3448", "Nano", 0),
    ("p2180", "TX1", 0),
    ("p3834|tegra264", "Thor", 0),
)
# Where no part number is known, the model's own words.
_WORDS: tuple[tuple[str, str, int | None], ...] = (
    ("Orin Nano", "Orin Nano", 0),
    ("Orin NX", "Orin NX", None),
    ("AGX Orin", "AGX Orin", 2),
    ("AGX Xavier", "AGX Xavier", 2),
    ("Xavier NX", "Xavier NX", 2),
    ("Thor", "Thor", 0),
    ("TX2", "TX2", 0),
    ("TX1", "TX1", 0),
    ("Jetson Nano", "Nano", 0),
)
_JETPACKS = (
    ("39", "7.2 or later"),
    ("38", "7.0 or 7.1"),
    ("36.4", "6.1 or 6.2"),
    ("36", "6.0"),
    ("35", "5"),
    ("32", "4"),
)
_RELEASE = re.compile(r"#\s*R(\d+).*?REVISION:\s*([\d.]+)", re.DOTALL)
# The link in /proc is missing where only processes are shown there.
_TREES = ("/proc/device-tree", "/sys/firmware/devicetree/base")


@dataclass(frozen=True)
class Board:
    """A board as it tells of itself.

    Attributes:
        is_jetson: Whether it is one.
        model: Its own words; ``None`` where it has no device tree.
        module: The module, in short; ``None`` where not known.
        dla_cores: Of a module of this kind; ``None`` where not known.
        l4t: Release of Jetson Linux, as ``36.4.3``.
        jetpack: The JetPack that has this release.
        container: What says that this is a container; ``None`` outside of one.
    """

    is_jetson: bool
    model: str | None = None
    module: str | None = None
    dla_cores: int | None = None
    l4t: str | None = None
    jetpack: str | None = None
    container: str | None = None


def read_board(machine: Machine) -> Board:
    """Find out which board this is."""
    model = _first_text(machine, "model")
    compatible = _first_text(machine, "compatible") or ""
    l4t = read_release(machine.text("/etc/nv_tegra_release") or "")
    module, cores = identify(compatible, model or "")
    return Board(
        is_jetson=module is not None or l4t is not None or "nvidia,tegra" in compatible,
        model=model,
        module=module,
        dla_cores=cores,
        l4t=l4t,
        jetpack=jetpack_of(l4t),
        container=_container(machine),
    )


def identify(compatible: str, model: str) -> tuple[str | None, int | None]:
    """Return the module and its DLA cores, each ``None`` where not known.

    >>> identify("nvidia,p3768-0000+p3767-0005", "")
    ('Orin Nano', 0)
    """
    for pattern, name, cores in _PARTS:
        if re.search(pattern, compatible):
            return name, cores
    for words, name, known in _WORDS:
        if words in model:
            return name, known
    return None, None


def read_release(text: str) -> str | None:
    """Read ``/etc/nv_tegra_release``.

    >>> read_release("# R36 (release), REVISION: 4.3, GCID: 38968081, BOARD: generic")
    '36.4.3'
    """
    found = _RELEASE.search(text)
    return None if found is None else f"{found[1]}.{found[2].strip('.')}"


def jetpack_of(l4t: str | None) -> str | None:
    """Return the JetPack of a release of Jetson Linux, as near as it is known."""
    if l4t is None:
        return None
    return next((name for begin, name in _JETPACKS if f"{l4t}.".startswith(f"{begin}.")), None)


def _first_text(machine: Machine, name: str) -> str | None:
    return next(filter(None, (machine.text(f"{tree}/{name}") for tree in _TREES)), None)


def _container(machine: Machine) -> str | None:
    for path in ("/.dockerenv", "/run/.containerenv"):
        if machine.there(path) == "there":
            return path
    return machine.environ.get("container")


def finishes(work: Callable[[], None], seconds: float, name: str) -> bool:
    """Do some work in a thread of its own; say whether it was done in time.

    Args:
        work: Must not raise.
        seconds: How long it is waited for.
        name: Of the thread.
    """
    # A daemon thread: what the kernel never gives back must not keep us from ending.
    thread = threading.Thread(target=work, name=f"doctor-{name}", daemon=True)
    thread.start()
    thread.join(seconds)
    return not thread.is_alive()


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
        message: One line.
        remedy: The command or key that ends it.
        blocking: Whether the main job cannot be done for it.
        facts: What was found, for programs.
    """

    check: str
    level: Level
    message: str
    remedy: str | None = None
    blocking: bool = False
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
        return any(map(uses_tensorrt, self.config.workloads))

    @property
    def wants_dla(self) -> bool:
        """Whether a configured workload runs on a DLA."""
        return any(one.device.startswith("dla") for one in self.config.workloads)


def uses_tensorrt(workload: Workload) -> bool:
    """Return whether a workload runs on TensorRT."""
    return not workload.is_window and find_backend(workload.backend_in_force).uses_tensorrt
