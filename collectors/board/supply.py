"""Readers of the supply: volts, amperes, limits and power of rails, and over-current alarms."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import NamedTuple

from ...parsers import signals
from ...parsers.signals import Column
from ..base import SYSTEM_CLOCK, Clock
from .boards import compatible
from .readers import (
    KernelFile,
    Reading,
    Scaled,
    Value,
    matching,
    read_number,
    read_text,
    to_number,
)

# Channels of each chip. Voltages behind them are those of shunts (Documentation/hwmon/ina3221.rst,
# ina238.rst).
_CHANNELS = {"ina3221": (1, 2, 3), "ina238": (1,)}
# The driver of the INA238 has no labels; the one on the carrier of Thor measures the input
# (jetson_stats, pull request 900).
_UNLABELLED = {"ina238": "VIN"}
_RAIL = re.compile(r"[A-Za-z][A-Za-z0-9_]*", re.ASCII)
_MOST_VOLTS = 100.0
# The register of a limit ends at 163.8 mV over the shunt, and begins there: it limits nothing.
_MOST_SHUNT_MICROVOLTS = 163_000.0


@dataclass(unsafe_hash=True)
class RailVolts:
    """The voltage of a rail, and the lowest one that this object has read."""

    file: KernelFile
    rail: str
    _lowest: float = field(default=inf, compare=False)

    def take(self, text: str, now_ns: int) -> Iterator[Value]:  # noqa: ARG002, D102
        millivolts = to_number(text)
        if millivolts is not None and 0 <= millivolts / 1000 <= _MOST_VOLTS:
            volts = millivolts / 1000
            self._lowest = min(self._lowest, volts)
            yield (signals.RAIL_VOLTS, self.rail), volts
            yield (signals.RAIL_LOWEST_VOLTS, self.rail), self._lowest


class _Channel(NamedTuple):
    """A channel of a sensor, and the rail that it measures."""

    chip: Path
    number: int
    rail: str


def _connected_channels(root: Path) -> Iterator[_Channel]:
    """Yield each channel that measures a rail."""
    for chip in matching(root, "sys/class/hwmon/hwmon*"):
        kind = read_text(chip / "name") or ""
        for number in _CHANNELS.get(kind, ()):
            rail = read_text(chip / f"in{number}_label") or _UNLABELLED.get(kind, "")
            if _RAIL.fullmatch(rail) and rail != "NC":  # not connected
                yield _Channel(chip, number, rail)


def find_rails(root: Path) -> Iterator[Reading]:
    """Yield voltage, current and current limits of each rail that a sensor measures.

    A reading of voltage or current waits for the sensor's next conversion: 6.6 ms by the driver's
    defaults, and hundreds of milliseconds if the sensor averages many samples.
    """
    for chip, channel, rail in _connected_channels(root):
        yield RailVolts(KernelFile(chip / f"in{channel}_input"), rail)
        current = KernelFile(chip / f"curr{channel}_input")
        yield Scaled(current, signals.RAIL_AMPERES, rail, per=1000)
        microohms = read_number(chip / f"shunt{channel}_resistor")
        most = _MOST_SHUNT_MICROVOLTS / microohms if microohms else inf
        for name, signal in (
            ("max", signals.RAIL_LIMIT_WARNING),
            ("crit", signals.RAIL_LIMIT_CRITICAL),
        ):
            path = chip / f"curr{channel}_{name}"
            if os.access(path, os.F_OK):
                yield Scaled(KernelFile(path), signal, rail, per=1000, most=most)


# No rail of a Jetson draws as much; more is a reading that a driver garbled.
_MOST_WATTS = 1000.0


class _RailFiles(NamedTuple):
    """The files of a rail's power: millivolts and milliamperes, or microwatts alone."""

    rail: str
    files: tuple[KernelFile, ...]

    def watts(self) -> float | None:
        """Read the files; ``None`` if one of them has no valid number."""
        product = 1.0
        for file in self.files:
            number = to_number(file.text())
            if number is None:
                return None
            product *= number
        watts = product / 1e6
        return watts if abs(watts) <= _MOST_WATTS else None


class RailPower:
    """Reads the power of some rails from the files of their sensors.

    That is voltage times current, or the power that the sensor itself computes. The files are
    looked for at the first reading, and again after ``close``.
    """

    def __init__(self, root: Path, rails: Sequence[str], *, clock: Clock = SYSTEM_CLOCK) -> None:
        self.problem: str | None = None
        self._root = root
        self._rails = rails
        self._clock = clock
        self._found: list[_RailFiles] = []

    def read(self, planned_ns: int) -> tuple[int, Mapping[Column, float]] | None:  # noqa: ARG002
        """Read all files now, whatever was planned; the time is half-way through them."""
        self.problem = None
        if not self._found:
            self._find()
        begin_ns = self._clock.monotonic_ns()
        columns: dict[Column, float] = {}
        for rail in self._found:
            watts = rail.watts()
            if watts is None:
                self.problem = (
                    f"{rail.files[0].path.parent} gives no power of {rail.rail}: see dmesg"
                )
                return None
            columns[signals.RAIL_POWER, rail.rail] = watts
        missing = [name for name in self._rails if (signals.RAIL_POWER, name) not in columns]
        if missing:
            self.problem = f"no sensor under {self._root} measures {', '.join(missing)}"
            return None
        return (begin_ns + self._clock.monotonic_ns()) // 2, columns

    def close(self) -> None:
        """Close the files."""
        for rail in self._found:
            for file in rail.files:
                file.close()
        self._found = []

    def _find(self) -> None:
        for chip, channel, rail in _connected_channels(self._root):
            if rail not in self._rails:
                continue
            power = chip / f"power{channel}_input"
            if os.access(power, os.F_OK):
                self._found.append(_RailFiles(rail, (KernelFile(power),)))
            else:
                volts = KernelFile(chip / f"in{channel}_input")
                amperes = KernelFile(chip / f"curr{channel}_input")
                self._found.append(_RailFiles(rail, (volts, amperes)))


# "Electrical management" of Jetson Orin, Jetson Linux Developer Guide R36: OC1 is under-voltage,
# OC2 average and OC3 instantaneous over-current. On Xavier NX it was OC2 (answer of NVIDIA in its
# forum), but Xavier has no counters; of Thor nothing is published.
_UNDER_VOLTAGE = {"nvidia,tegra234": "oc1"}


@dataclass(frozen=True)
class Alarm:
    """The counter of an alarm, and whether it stands for a voltage that is too low, if known."""

    file: KernelFile
    kind: str
    is_under_voltage: bool | None

    def take(self, text: str, now_ns: int) -> Iterator[Value]:  # noqa: ARG002, D102
        count = to_number(text)
        if count is None or count < 0:
            return
        yield (signals.THROTTLE_EVENTS, self.kind), count
        if self.is_under_voltage is not None:
            yield (signals.THROTTLE_UNDER_VOLTAGE, self.kind), float(self.is_under_voltage)


def find_over_current(root: Path) -> Iterator[Reading]:
    """Yield the counter of each over-current alarm that throttles.

    They have the names of the files (``oc1`` …), because the meaning of each differs by chip. An
    alarm without an effect (``oc1_throt_en`` is 0) is not throttling.
    """
    chips = compatible(root)
    under = next((kind for chip, kind in _UNDER_VOLTAGE.items() if chip in chips), None)
    for chip in matching(root, "sys/class/hwmon/hwmon*"):
        if read_text(chip / "name") != "soctherm_oc":
            continue
        for path in matching(chip, "oc[0-9]_event_cnt"):
            kind = path.name[:3]
            if read_number(chip / f"{kind}_throt_en") != 0:
                yield Alarm(KernelFile(path), kind, None if under is None else kind == under)
