"""Cooling devices, and the temperatures at which something happens.

The zones' own temperatures are not read: tegrastats prints them, and on some boards the zone of a
gated engine never answers.
"""

from collections.abc import Iterator
from pathlib import Path

from .kernel_file import KernelFile, read_number, read_text
from .readings import Reading, Scaled

_KINDS = ("passive", "active", "hot", "critical")
_TRIPS_AT_MOST = 16


def find_cooling(root: Path) -> Iterator[Reading]:
    """Yield the state of each cooling device, as a share of its highest.

    They are named by their type: ``cpufreq-cpu0``, ``devfreq-17000000.gpu``, ``pwm-fan``,
    ``hot-surface-alert`` …; the second of the same type has ``-2`` behind it.
    """
    named: dict[str, int] = {}
    for device in sorted(root.glob("sys/class/thermal/cooling_device*"), key=_number):
        kind, highest = read_text(device / "type"), read_number(device / "max_state")
        if not kind or not kind.isprintable() or highest is None or highest <= 0:
            continue
        named[kind] = named.get(kind, 0) + 1
        name = kind if named[kind] == 1 else f"{kind}-{named[kind]}"
        column = f"cooling.{name}.state_ratio"
        yield Scaled(KernelFile(device / "cur_state"), column, highest, most=1.0)


def read_trips(root: Path) -> dict[tuple[str, str], float]:
    """Return the lowest trip point of each zone and kind, in celsius; they do not change.

    Returns:
        By zone, named as tegrastats names it, and by kind: ``passive`` (clocks are held down),
        ``active`` (a fan turns faster), ``hot`` (somebody is told), ``critical`` (it shuts down).
    """
    lowest: dict[tuple[str, str], float] = {}
    for zone in sorted(root.glob("sys/class/thermal/thermal_zone*"), key=_number):
        name = (read_text(zone / "type") or "").partition("-")[0]
        for trip in range(_TRIPS_AT_MOST if name else 0):
            kind = read_text(zone / f"trip_point_{trip}_type")
            if kind is None:
                break
            millidegrees = read_number(zone / f"trip_point_{trip}_temp")
            if kind in _KINDS and millidegrees is not None and 0 < millidegrees < 200_000:
                celsius = millidegrees / 1000
                lowest[name, kind] = min(celsius, lowest.get((name, kind), celsius))
    return lowest


def _number(path: Path) -> tuple[int, str]:
    """Sort ``thermal_zone10`` behind ``thermal_zone9``."""
    digits = path.name.lstrip("abcdefghijklmnopqrstuvwxyz_")
    return (int(digits) if digits.isascii() and digits.isdigit() else 0, path.name)
