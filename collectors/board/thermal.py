"""What holds clocks down on a board: over-current events, and zones beyond a throttle trip."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ...parsers.signals import COOLING_STATE, THROTTLE_ACTIVE, THROTTLE_EVENTS
from .kernel_file import Column, KernelFile, Reading, Scaled, read_number, read_text, to_number

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
        column = COOLING_STATE.column(name)
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


_COUNTER = re.compile(r"(oc[0-9])_event_cnt")
_ALERT = re.compile(r"([a-z][a-z0-9]*)-throttle-alert")


@dataclass(unsafe_hash=True)
class ThrottleAlert:
    """A cooling device that stands for clocks held down for heat; its state is 0 while none is.

    The kernel counts nothing here, so what began between two looks and ended before the second is
    not seen.

    Attributes:
        file: ``cur_state``.
        kind: What it is called.
    """

    file: KernelFile
    kind: str
    _events: int = field(default=0, compare=False)
    _was_active: bool = field(default=False, compare=False)

    def take(self, text: str, now_ns: int) -> Iterator[Column]:  # noqa: ARG002
        """Yield whether it goes on, and how often it began since the first look."""
        state = to_number(text)
        if state is None or state < 0:
            return
        is_active = state > 0
        self._events += is_active and not self._was_active
        self._was_active = is_active
        yield THROTTLE_ACTIVE.column(self.kind), float(is_active)
        yield THROTTLE_EVENTS.column(self.kind), float(self._events)


def find_over_current(root: Path) -> Iterator[Reading]:
    """Yield the counter of each over-current alarm that throttles.

    They are named as the files are (``oc1`` …), for what each stands for differs by chip. One
    that is set to hold nothing down (``oc1_throt_en`` is 0) is no throttling.
    """
    for chip in sorted(root.glob("sys/class/hwmon/hwmon*")):
        if read_text(chip / "name") != "soctherm_oc":
            continue
        for path in sorted(chip.glob("oc*_event_cnt")):
            found = _COUNTER.fullmatch(path.name)
            if found is not None and read_number(chip / f"{found[1]}_throt_en") != 0:
                yield Scaled(KernelFile(path), THROTTLE_EVENTS.column(found[1]))


def find_alerts(root: Path) -> Iterator[Reading]:
    """Yield the state of each throttle alert: kinds ``cpu_thermal``, ``gpu_thermal`` and so on.

    The file ``thermal_trip_event_block`` beside it is never touched: reading it waits for the
    next event.
    """
    for device in sorted(root.glob("sys/class/thermal/cooling_device*")):
        found = _ALERT.fullmatch(read_text(device / "type") or "")
        if found is not None:
            yield ThrottleAlert(KernelFile(device / "cur_state"), f"{found[1]}_thermal")
