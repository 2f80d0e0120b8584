"""The yardstick for recorded logs: the trapezoid rule over the lines, as many people write it."""

import csv
import re
from itertools import pairwise
from pathlib import Path

from .files import LOG, RUNS

_RAIL = re.compile(r" (\w+) (\d+)mW/\d+mW")
_TOTALS = (
    ("VDD_IN",),
    ("VDD_GPU_SOC", "VDD_CPU_CV", "VIN_SYS_5V0"),
    ("GPU", "CPU", "SOC", "CV", "VDDRQ", "SYS5V"),
)


def joules_of(folder: Path) -> float:
    """Return the energy of the run of a world: power between two lines is a straight line."""
    seconds, watts = [], []
    for line in (folder / LOG).read_text(encoding="ascii").splitlines():
        stamp, text = line.split("::", 1)
        rails = {name: int(milliwatts) / 1000 for name, milliwatts in _RAIL.findall(text)}
        total = next(names for names in _TOTALS if all(name in rails for name in names))
        seconds.append(float(stamp))
        watts.append(sum(rails[name] for name in total))
    with (folder / RUNS).open(encoding="ascii") as table:
        (run,) = csv.DictReader(table)
    return trapezoid(seconds, watts, float(run["start"]), float(run["end"]))


def trapezoid(seconds: list[float], watts: list[float], begin: float, end: float) -> float:
    """Return the integral between two times, in joules.

    >>> trapezoid([0.0, 1.0, 2.0], [10.0, 20.0, 20.0], 0.5, 2.0)
    28.75
    """
    joules = 0.0
    points = zip(seconds, watts, strict=True)
    for (first, first_watts), (second, second_watts) in pairwise(points):
        low, high = max(first, begin), min(second, end)
        if low >= high:
            continue
        slope = (second_watts - first_watts) / (second - first)
        middle = first_watts + slope * ((low + high) / 2 - first)
        joules += middle * (high - low)
    return joules
