"""How long each DLA core was powered, by the kernel's runtime power management; no root needed.

Powered is not busy: the driver keeps a core on for half a second after its last task.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from .kernel_file import KernelFile, to_number
from .readings import Column, Reading

# 15880000.nvdla0 and 158c0000.nvdla1 on Xavier and Orin, wherever they stand in the tree.
_DEVICE = re.compile(r"[0-9a-f]+\.nvdla([0-9])")


@dataclass(unsafe_hash=True)
class PoweredTime:
    """The time for which a core was powered since the boot, and its share since the last look.

    Attributes:
        file: ``runtime_active_time``, in milliseconds.
        core: Its number.
    """

    file: KernelFile
    core: int
    _latest: tuple[int, float] | None = field(default=None, compare=False)

    def take(self, text: str, now_ns: int) -> Iterator[Column]:
        """Yield the seconds, and from the second look on the share of the time between."""
        number = to_number(text)
        if number is None or number < 0:
            return
        seconds = number / 1000
        yield f"dla.{self.core}.powered_seconds", seconds
        before, self._latest = self._latest, (now_ns, seconds)
        if before is not None and now_ns > before[0] and seconds >= before[1]:
            share = (seconds - before[1]) / (now_ns - before[0]) * 1e9
            yield f"dla.{self.core}.powered_ratio", min(share, 1.0)


def find_powered(root: Path) -> Iterator[Reading]:
    """Yield the powered time of each DLA core that the kernel knows."""
    for device in sorted(root.glob("sys/bus/platform/devices/*.nvdla*")):
        found = _DEVICE.fullmatch(device.name)
        if found is not None:
            yield PoweredTime(KernelFile(device / "power/runtime_active_time"), int(found[1]))
