"""Facts about a board from its files, without root."""

import os
import re
from collections.abc import Collection, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from ...parsers.nvpmodel import PowerMode, find_mode, mode_of, parse_modes
from ...parsers.rails import RailRule
from ...parsers.signals import POWER_MODE
from ..base import MachineFacts
from .readers import KernelFile, Parsed, Reading, clocks_locked, matching, read_number, read_text


@cache
def _data(name: str) -> Any:
    return msgspec.toml.decode(Path(__file__).with_name(name).read_bytes())


@cache
def rail_rules() -> tuple[RailRule, ...]:
    """Return the rules of all known boards, in the order in which they are tried."""
    return tuple(map(RailRule.model_validate, _data("boards.toml")["board"]))


def find_rail_rule(rails: Collection[str]) -> RailRule | None:
    """Return the first rule whose rails are all there; ``None`` for an unknown board.

    An unknown board has rails but no total.

    >>> find_rail_rule(["VDD_IN", "VDD_CPU_GPU_CV", "VDD_SOC"]).total
    ('VDD_IN',)
    """
    found = set(rails)
    for rule in rail_rules():
        known = set(rule.rails)
        if known == found or (known < found and not rule.exact):
            return rule
    return None


_STATUS = "var/lib/nvpmodel/status"


def read_power_modes(root: Path) -> list[PowerMode]:
    """Return the modes of the board's own file; an empty list on a machine without one."""
    return parse_modes(read_text(root / "etc/nvpmodel.conf", 1 << 18) or "")


def read_power_mode(root: Path) -> str | None:
    """Return nvpmodel's name of the power mode; ``mode 2`` if the file of names lacks it."""
    number = mode_of(read_text(root / _STATUS))
    if number is None:
        return None
    mode = find_mode(read_power_modes(root), str(number))
    if mode is None:
        return f"mode {number}"
    return mode.name


def find_power_mode(root: Path) -> Iterator[Reading]:
    """Yield the number of the power mode if nvpmodel has noted one."""
    if os.access(root / _STATUS, os.F_OK):
        file = KernelFile(root / _STATUS, stays_open=False)
        yield Parsed(file, POWER_MODE, mode_of)


# # R36 (release), REVISION: 4.3, GCID: 38968081, BOARD: generic, EABI: aarch64, …
_RELEASE = re.compile(r"#\s*R(\d+)\s+\(release\),\s*REVISION:\s*(\d+(?:\.\d+)?)", re.ASCII)
# nvidia,p3737-0000+p3701-0005: a carrier and its module, or the module alone
_MODULE = re.compile(r"nvidia,(?:p\d{4}-[0-9a-z]{4}\+)*(p\d{4}-\d{4})", re.ASCII)
# The link in /proc is not there in a sandbox that hides all but processes.
_TREES = ("proc/device-tree", "sys/firmware/devicetree/base")


def is_tegra(root: Path = Path("/")) -> bool:
    """Return whether the device tree names a Tegra chip."""
    return any(name.startswith("nvidia,tegra") for name in compatible(root))


# Part number in the device tree's `compatible` or words of its `model`, name of the module, and DLA
# cores of a module with no core fused off. The first row that matches applies.
_MODULES: tuple[tuple[str, str, int | None], ...] = (
    ("p3701|AGX Orin", "AGX Orin", 2),
    ("p3767-0000", "Orin NX 16GB", 2),
    ("p3767-0001", "Orin NX 8GB", 1),
    ("p3767-000[345]|Orin Nano", "Orin Nano", 0),
    ("Orin NX", "Orin NX", None),
    ("p2888|AGX Xavier", "AGX Xavier", 2),
    ("p3668|Xavier NX", "Xavier NX", 2),
    ("p3310|p3489|p3636|TX2", "TX2", 0),
    ("p3448|Jetson Nano", "Nano", 0),
    ("p2180|TX1", "TX1", 0),
    ("p3834|tegra264|Thor", "Thor", 0),
)


def identify(compatible: str, model: str) -> tuple[str | None, int | None]:
    """Return the module and its DLA cores, each ``None`` if unknown.

    >>> identify("nvidia,p3768-0000+p3767-0005", "")
    ('Orin Nano', 0)
    """
    for text in (compatible, model):
        for pattern, name, cores in _MODULES:
            if re.search(pattern, text):
                return name, cores
    return None, None


def is_thor(root: Path = Path("/")) -> bool:
    """Return whether the device tree names a Thor.

    Its tegrastats prints no GPU load: recorded lines of R38 and R39.
    """
    return identify(" ".join(compatible(root)), "")[0] == "Thor"


def keeps_freed_pages(root: Path = Path("/")) -> bool:
    """Return whether the driver keeps pages that programs freed, so that too few look free.

    So does that of Thor before JetPack 7.2, which is L4T R38, by NVIDIA's skill
    ``jetson-memory-audit`` (github.com/NVIDIA/skills). No other board has that release.
    """
    l4t = l4t_of(read_text(root / "etc/nv_tegra_release"))
    return l4t is not None and l4t.startswith("38.")


def read_board_facts(root: Path = Path("/")) -> MachineFacts:
    """Return the facts of the board below ``root``; on a PC all of them are absent."""
    if not is_tegra(root):
        return MachineFacts()
    l4t = l4t_of(read_text(root / "etc/nv_tegra_release"))
    kernel = read_text(root / "proc/sys/kernel/osrelease")
    return MachineFacts(
        board=read_device_tree(root, "model") or None,
        module=next((m[1] for name in compatible(root) if (m := _MODULE.fullmatch(name))), None),
        l4t=l4t,
        jetpack=jetpack_of(l4t),
        power_mode=read_power_mode(root),
        clocks_locked=clocks_locked(root),
        rail_sensors=_rail_sensors(root),
        versions={"kernel": kernel} if kernel else {},
    )


def l4t_of(release: str | None) -> str | None:
    """Read the first line of ``/etc/nv_tegra_release``.

    >>> l4t_of("# R36 (release), REVISION: 4.3, GCID: 38968081, BOARD: generic")
    '36.4.3'
    >>> l4t_of("# R39 (release), REVISION: 2, GCID: 1"), l4t_of(None)
    ('39.2', None)
    """
    found = _RELEASE.match(release or "")
    if found is None:
        return None
    return f"{found[1]}.{found[2]}"


def jetpack_of(l4t: str | None) -> str | None:
    """Return the JetPack of a release; ``None`` for one that the table does not have.

    >>> jetpack_of("36.4.3"), jetpack_of("39.2"), jetpack_of("99.1.0")
    ('6.2', '7.2', None)
    """
    if l4t is None:
        return None
    known: dict[str, str] = _data("releases.toml")["jetpack"]
    return known.get(l4t) or known.get(f"{l4t}.0")


def read_device_tree(root: Path, name: str) -> str:
    """Return a text property of the root of the device tree, or an empty string."""
    found = (read_text(root / tree / name) for tree in _TREES)
    return next(filter(None, found), "")


def compatible(root: Path) -> list[str]:
    """Return the names of board, module and chip in the device tree, the most special first."""
    return read_device_tree(root, "compatible").split("\0")


def _rail_sensors(root: Path) -> dict[str, float]:
    names = ("samples", "update_interval", *(f"shunt{n}_resistor" for n in (1, 2, 3)))
    found: dict[str, float] = {}
    for chip in matching(root, "sys/class/hwmon/hwmon*"):
        if not (read_text(chip / "name") or "").startswith("ina"):
            continue
        # Path.resolve raises for a link that leads to itself.
        device = Path(os.path.realpath(chip / "device")).name
        for name in names:
            number = read_number(chip / name)
            if number is not None:
                found[f"{device}.{name}"] = number
    return found
