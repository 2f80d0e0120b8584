"""Fans: how fast they are told to turn."""

import re
from collections.abc import Iterator
from pathlib import Path

from .kernel_file import KernelFile, read_text
from .readings import Reading, Scaled

_FULL = 255
_PWM = re.compile(r"pwm([0-9])")


def find_fans(root: Path) -> Iterator[Reading]:
    """Yield the duty of each fan as a share of the full one.

    Fans are named by their chip, ``pwmfan`` on most boards; a second one of it is ``pwmfan2``.
    """
    for chip in sorted(root.glob("sys/class/hwmon/hwmon*")):
        name = read_text(chip / "name")
        for path in sorted(chip.glob("pwm?")):
            found = _PWM.fullmatch(path.name)
            if name and name.isprintable() and found is not None:
                fan = name if found[1] == "1" else f"{name}{found[1]}"
                yield Scaled(KernelFile(path), f"fans.{fan}.speed_ratio", _FULL, most=1.0)
