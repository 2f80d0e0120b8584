"""The power mode that ``nvpmodel`` set: its number and its name, without root."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .kernel_file import KernelFile, read_text
from .readings import Column, Reading

# pmode:0002 fmode:quiet
_MODE = re.compile(r"pmode:([0-9]{1,8})")
# < POWER_MODEL ID=2 NAME=MODE_30W >
_NAMED = re.compile(r"<\s*POWER_MODEL\s+ID=([0-9]+)\s+NAME=(\S+)\s*>", re.ASCII)
_STATUS = "var/lib/nvpmodel/status"
_MOST_BYTES = 1 << 18


def mode_of(status: str | None) -> int | None:
    """Read the number of the mode.

    >>> mode_of("pmode:0002 fmode:quiet"), mode_of("nonsense")
    (2, None)
    """
    found = _MODE.match(status or "")
    return None if found is None else int(found[1])


def read_power_mode(root: Path) -> str | None:
    """Return the power mode as nvpmodel calls it.

    Returns:
        Its name; ``mode 2`` where the file of names does not tell; ``None`` where there is none.
    """
    mode = mode_of(read_text(root / _STATUS))
    if mode is None:
        return None
    for line in (read_text(root / "etc/nvpmodel.conf", _MOST_BYTES) or "").splitlines():
        found = _NAMED.match(line.strip())
        if found is not None and int(found[1]) == mode:
            return found[2]
    return f"mode {mode}"


@dataclass(frozen=True)
class PowerModeNumber:
    """The number of the mode, by which a window tells that it changed.

    Attributes:
        file: nvpmodel's own note.
    """

    file: KernelFile

    def take(self, text: str, now_ns: int) -> Iterator[Column]:  # noqa: ARG002
        """Yield it."""
        mode = mode_of(text)
        if mode is not None:
            yield "power_mode.number", float(mode)


def find_power_mode(root: Path) -> Iterator[Reading]:
    """Yield it where nvpmodel has noted one."""
    if (root / _STATUS).exists():
        yield PowerModeNumber(KernelFile(root / _STATUS, stays_open=False))
