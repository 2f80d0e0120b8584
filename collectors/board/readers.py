"""Clocks of GPU, memory and DLA, where the line of tegrastats does not print them."""

import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ...parsers import signals
from ...parsers.signals import Signal
from ..base import SYSTEM_CLOCK, Clock
from .kernel_file import Column, KernelFile, Reading, Scaled, read_number, read_text, to_number

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
                yield Scaled(KernelFile(path), signals.FAN_SPEED.column(fan), _FULL, most=1.0)


_FIELD = "MemAvailable:"


@dataclass(frozen=True)
class MemoryAvailable:
    """The kernel's own estimate of what can be had without swapping.

    Attributes:
        file: ``/proc/meminfo``.
    """

    file: KernelFile

    def take(self, text: str, now_ns: int) -> Iterator[Column]:  # noqa: ARG002
        """Yield the bytes; the kernel prints kibibytes and calls them kB."""
        for line in text.splitlines():
            if line.startswith(_FIELD):
                kibibytes = to_number(line.removeprefix(_FIELD).removesuffix("kB").strip())
                if kibibytes is not None and kibibytes >= 0:
                    yield signals.RAM_AVAILABLE.column(), kibibytes * 1024
                return


def find_memory(root: Path) -> Iterator[Reading]:
    """Yield it, where there is a ``/proc`` that tells it."""
    path = root / "proc/meminfo"
    if path.exists():
        yield MemoryAvailable(KernelFile(path))


# Of the numbers of the first line of /proc/stat: user nice system idle iowait irq softirq steal.
_IDLE, _WAITING, _COUNTED = 3, 4, 8


def cpu_busy_ratio(
    seconds: float,
    stopping: threading.Event,
    *,
    root: Path = Path("/proc"),
    clock: Clock = SYSTEM_CLOCK,
) -> float | None:
    """Watch the CPU for a while.

    Args:
        seconds: For how long.
        stopping: Ends it early.
        root: Where the kernel tells.
        clock: The time.

    Returns:
        Share of all cores that worked, 0…1; ``None`` where the kernel does not tell.
    """
    before = _ticks(root)
    clock.wait(stopping, clock.monotonic_ns() + round(seconds * 1e9))
    after = _ticks(root)
    if before is None or after is None:
        return None
    busy, total = (late - early for early, late in zip(before, after, strict=True))
    return min(max(busy / total, 0.0), 1.0) if total > 0 else None


def _ticks(root: Path) -> tuple[int, int] | None:
    """Return busy and all ticks since boot, of all cores together."""
    try:
        with (root / "stat").open(encoding="ascii") as file:
            name, *words = file.readline().split()
        numbers = [int(word) for word in words[:_COUNTED]]
    except (OSError, ValueError):
        return None
    if name != "cpu" or len(numbers) <= _WAITING:
        return None
    return sum(numbers) - numbers[_IDLE] - numbers[_WAITING], sum(numbers)


# The number in a device's name, else the last of each row, is the label.
_CLOCKS = (
    # 17000000.ga10b, 17000000.gv11b, 17000000.gp10b and 57000000.gpu; gpu-gpc-0 on Thor.
    (re.compile(r"[0-9a-f]+\.(?:gpu|g[a-z]\d+b)"), signals.GPU_FREQUENCY, "0"),
    (re.compile(r"gpu-gpc-([0-9])"), signals.GPU_FREQUENCY, ""),
    (re.compile(r"(?:[0-9a-f]+\.)?emc"), signals.EMC_FREQUENCY, ""),
    (re.compile(r"[0-9a-f]+\.nvdla([0-9])"), signals.DLA_FREQUENCY, ""),
)


def clock_of(device: str) -> tuple[Signal, str] | None:
    """Return the signal and the label of a device's clock; None if it is none of those.

    >>> [clock_of(name)[0].column(clock_of(name)[1]) for name in ("17000000.gpu", "1.nvdla1")]
    ['gpu.frequency_hertz.0', 'dla.1.frequency_hertz']
    """
    for pattern, signal, label in _CLOCKS:
        found = pattern.fullmatch(device)
        if found is not None:
            return signal, "".join(found.groups()) or label
    return None


def find_clocks(root: Path) -> Iterator[Reading]:
    """Yield the clocks that a frequency governor of the kernel knows, in hertz."""
    for device in sorted(root.glob("sys/class/devfreq/*")):
        clock = clock_of(device.name)
        if clock is not None:
            signal, label = clock
            yield Scaled(KernelFile(device / "cur_freq"), signal.column(label), most=1e11)


def clocks_locked(root: Path) -> bool | None:
    """Tell whether the clocks of CPU and GPU are held at one value, as ``jetson_clocks`` does.

    Returns:
        True where the lowest clock allowed is the highest for each of them; ``None`` where
        nothing tells.
    """
    limits = [
        (read_number(policy / "scaling_min_freq"), read_number(policy / "scaling_max_freq"))
        for policy in root.glob("sys/devices/system/cpu/cpufreq/policy*")
    ]
    limits += [
        (read_number(device / "min_freq"), read_number(device / "max_freq"))
        for device in root.glob("sys/class/devfreq/*")
        if (clock_of(device.name) or (None,))[0] is signals.GPU_FREQUENCY
    ]
    known = [(low, high) for low, high in limits if low is not None and high is not None]
    return all(low == high for low, high in known) if known else None


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
        yield signals.DLA_POWERED_SECONDS.column(self.core), seconds
        before, self._latest = self._latest, (now_ns, seconds)
        if before is not None and now_ns > before[0] and seconds >= before[1]:
            share = (seconds - before[1]) / (now_ns - before[0]) * 1e9
            yield signals.DLA_POWERED.column(self.core), min(share, 1.0)


def find_powered(root: Path) -> Iterator[Reading]:
    """Yield the powered time of each DLA core that the kernel knows."""
    for device in sorted(root.glob("sys/bus/platform/devices/*.nvdla*")):
        found = _DEVICE.fullmatch(device.name)
        if found is not None:
            yield PoweredTime(KernelFile(device / "power/runtime_active_time"), int(found[1]))
