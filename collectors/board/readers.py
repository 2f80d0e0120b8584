"""Readers of sysfs: clocks, fans, memory, DLA power, temperatures and throttling by heat."""

import contextlib
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from ...parsers import signals
from ...parsers.signals import Column, Signal

_PAGE_BYTES = 4096
# A FIFO or a device must not hold the reader up, so it is opened without waiting and refused.
_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY


@dataclass(unsafe_hash=True)
class KernelFile:
    """A file that may not be there, may not be readable, and may go away.

    It stays open between readings, which costs a seventh of opening it each time: the kernel makes
    the text anew for every read from the start. A file of a disk does not stay open, since a writer
    may replace it. A file of ``/sys`` is at most a page.
    """

    path: Path
    stays_open: bool = field(default=True, compare=False, kw_only=True)
    most_bytes: int = field(default=_PAGE_BYTES, compare=False, kw_only=True)
    _opened: int | None = field(default=None, compare=False, init=False)

    def text(self) -> str | None:
        """Return the text of the file, without white space around it, or None if it is not read.

        The file is missing, not readable, not plain or not UTF-8, or its driver refuses at present.
        """
        try:
            if self._opened is None:
                self._opened = os.open(self.path, _FLAGS)
                if not stat.S_ISREG(os.fstat(self._opened).st_mode):
                    raise OSError(f"{self.path} is not a plain file")
            data = os.pread(self._opened, self.most_bytes, 0)
        except OSError:
            self.close()  # the driver may have gone and come back: it is looked for next time
            return None
        if not self.stays_open:
            self.close()
        try:
            # Texts of the device tree end in a NUL.
            return data.decode().strip("\0 \t\r\n")
        except UnicodeDecodeError:
            return None

    def close(self) -> None:
        """Close the file; the next reading opens it again."""
        opened, self._opened = self._opened, None
        if opened is not None:
            with contextlib.suppress(OSError):
                os.close(opened)


def to_number(text: str | None) -> float | None:
    """Read a whole number as the kernel prints it.

    >>> to_number("1300500000"), to_number("-5"), to_number("0x10"), to_number("")
    (1300500000.0, -5.0, None, None)
    """
    if text is None or len(text) > 20:
        return None
    digits = text.removeprefix("-")
    if not digits.isascii() or not digits.isdigit():
        return None
    return float(text)


def read_text(path: Path, most_bytes: int = _PAGE_BYTES) -> str | None:
    """Return the text of a small file, read once; ``None`` as of ``KernelFile.text``."""
    return KernelFile(path, stays_open=False, most_bytes=most_bytes).text()


def read_number(path: Path) -> float | None:
    """Return the number in a small file, read once."""
    return to_number(read_text(path))


def matching(root: Path, pattern: str) -> list[Path]:
    """Return the paths below a directory that fit a pattern, sorted; none if it is not readable.

    A driver that goes away takes its directory along, also while that is listed.
    """
    try:
        return sorted(root.glob(pattern))
    except OSError:
        return []


def is_label(text: str | None) -> bool:
    """Return whether a name that the kernel gives can be a label: it is text without controls."""
    return text is not None and text != "" and text.isprintable()


Value = tuple[Column, float]


class Reading(Protocol):
    """One file and the meaning of its text."""

    @property
    def file(self) -> KernelFile: ...  # noqa: D102

    def take(self, text: str, now_ns: int) -> Iterator[Value]:
        """Yield the values of a text that was read just now; none if it is not valid."""


@dataclass(frozen=True)
class Scaled:
    """A number, divided by ``per``; more than ``most`` or less than 0 means no value."""

    file: KernelFile
    signal: Signal
    label: str = ""
    per: float = 1.0
    most: float = 1e15

    def take(self, text: str, now_ns: int) -> Iterator[Value]:  # noqa: ARG002, D102
        number = to_number(text)
        if number is not None and 0 <= number / self.per <= self.most:
            yield (self.signal, self.label), number / self.per


@dataclass(frozen=True)
class Parsed:
    """The value of a signal without a label; ``parse`` returns None if the text is not valid."""

    file: KernelFile
    signal: Signal
    parse: Callable[[str], float | None]

    def take(self, text: str, now_ns: int) -> Iterator[Value]:  # noqa: ARG002, D102
        value = self.parse(text)
        if value is not None:
            yield (self.signal, ""), float(value)


def find_fans(root: Path) -> Iterator[Reading]:
    """Yield the duty of each fan as a share of the full one.

    Fans are named by their chip, ``pwmfan`` on most boards; a second one of it is ``pwmfan2``.
    """
    for chip in matching(root, "sys/class/hwmon/hwmon*"):
        name = read_text(chip / "name")
        if not is_label(name):
            continue
        for path in matching(chip, "pwm[0-9]"):
            fan = f"{name}{path.name[3:]}".removesuffix("1")
            yield Scaled(KernelFile(path), signals.FAN_SPEED, fan, per=255, most=1.0)


def find_batteries(root: Path) -> Iterator[Reading]:
    """Yield the charge of each battery as a share of its full charge."""
    for supply in matching(root, "sys/class/power_supply/*"):
        if is_label(supply.name) and read_text(supply / "type") == "Battery":
            file = KernelFile(supply / "capacity")
            yield Scaled(file, signals.BATTERY_CHARGE, supply.name, per=100, most=1.0)


# The kernel prints kibibytes and calls them kB.
_MEMORY = re.compile(r"^(\w+):\s*([0-9]{1,18})(?:\s*kB)?\s*$", re.ASCII | re.MULTILINE)


def memory_bytes(meminfo: str) -> dict[str, int]:
    r"""Return the fields of ``/proc/meminfo`` that are sizes, in bytes.

    >>> memory_bytes("MemAvailable:   2048 kB\nNvMapMemUsed:      1 kB\n")
    {'MemAvailable': 2097152, 'NvMapMemUsed': 1024}
    """
    return {name: int(kibibytes) * 1024 for name, kibibytes in _MEMORY.findall(meminfo)}


def free_memory(root: Path = Path("/")) -> int | None:
    """Return the bytes that are available on a machine without swapping, if it says so."""
    return memory_bytes(read_text(root / "proc/meminfo") or "").get("MemAvailable")


# Each page counts once. A file or shared memory that a process maps is also in ``Cached``, and a
# buffer of the GPU that it maps is in ``Mapped`` and its resident size: neither is anonymous. So
# the processes have their anonymous and shared memory here, whoever maps what else.
_OWNERS = {
    "processes": ("AnonPages", "Shmem", "Hugetlb"),
    "kernel": ("SUnreclaim", "PageTables", "SecPageTables", "Percpu"),
    "cache": ("Buffers", "Cached", "SReclaimable", "NvMapMemFree"),
    "free": ("MemFree",),
}


def memory_owners(sizes: Mapping[str, int], swapped_bytes: float) -> dict[str, float]:
    """Return the bytes of memory by owner, and the rest of it as not attributed.

    Args:
        sizes: Fields of ``/proc/meminfo`` in bytes.
        swapped_bytes: Memory in which zram keeps what was swapped out.

    Source:
        "The /proc Filesystem", kernel documentation; NVIDIA's driver NvMap, whose pool of free
        pages (``NvMapMemFree``) the kernel may shrink as it does caches.
    """
    owners: dict[str, float] = {}
    for owner, names in _OWNERS.items():
        owners[owner] = sum(sizes.get(name, 0) for name in names)
    # tmpfs and shared memory are in ``Cached``, and nothing can free them.
    owners["cache"] = max(owners["cache"] - sizes.get("Shmem", 0), 0)
    # Stacks lie in the vmalloc area from 4.14 on. Kernels that print a chunk print addresses there.
    vmalloc = 0 if sizes.get("VmallocChunk") else sizes.get("VmallocUsed", 0)
    owners["kernel"] += max(sizes.get("KernelStack", 0), vmalloc)
    owners["zram"] = swapped_bytes
    rest = sizes["MemTotal"] - sum(owners.values())
    return {**owners, signals.NOT_ATTRIBUTED: max(rest, 0)}


@dataclass(frozen=True)
class MemoryInfo:
    """Memory that is available, memory by owner, and what the GPU holds of it.

    NVIDIA's kernel calls the last ``NvMapMemUsed``. Thor has no such field; NVML counts there.
    """

    file: KernelFile
    zram: tuple[KernelFile, ...] = ()

    def take(self, text: str, now_ns: int) -> Iterator[Value]:  # noqa: ARG002, D102
        sizes = memory_bytes(text)
        if "MemAvailable" in sizes:
            yield (signals.RAM_AVAILABLE, ""), float(sizes["MemAvailable"])
        if sizes.get("NvMapMemUsed"):
            yield (signals.GPU_MEMORY_USED, ""), float(sizes["NvMapMemUsed"])
        if not {"MemTotal", "AnonPages", "Cached"} <= sizes.keys():
            return
        swapped_bytes = 0.0
        for file in self.zram:
            # The third number of ``mm_stat`` is all memory that the device holds.
            for number in (file.text() or "").split()[2:3]:
                swapped_bytes += max(to_number(number) or 0.0, 0.0)
        for owner, owned_bytes in memory_owners(sizes, swapped_bytes).items():
            yield (signals.MEMORY, owner), owned_bytes


def find_memory(root: Path) -> Iterator[Reading]:
    """Yield the memory that is available, by owner, and on a Jetson that of the GPU."""
    path = root / "proc/meminfo"
    if os.access(path, os.F_OK):
        zram = []
        for device in matching(root, "sys/block/zram*/mm_stat"):
            # Devices come and go, and only the first file of a reading is closed then.
            zram.append(KernelFile(device, stays_open=False))
        yield MemoryInfo(KernelFile(path), tuple(zram))


# The number in a device's name, else the last of each row, is the label.
_CLOCKS = (
    # 17000000.ga10b, 17000000.gv11b, 17000000.gp10b and 57000000.gpu; gpu-gpc-0 on Thor.
    (re.compile(r"[0-9a-f]+\.(?:gpu|g[a-z]\d+b)"), signals.GPU_FREQUENCY, "0"),
    (re.compile(r"gpu-gpc-([0-9])"), signals.GPU_FREQUENCY, ""),
    (re.compile(r"(?:[0-9a-f]+\.)?emc"), signals.EMC_FREQUENCY, ""),
    (re.compile(r"[0-9a-f]+\.nvdla([0-9])"), signals.DLA_FREQUENCY, ""),
)


def clock_of(device: str) -> Column | None:
    """Return the signal and the label of a device's clock; None if it is none of those.

    >>> signal, label = clock_of("15880000.nvdla1")
    >>> signal is signals.DLA_FREQUENCY, label
    (True, '1')
    """
    for pattern, signal, label in _CLOCKS:
        found = pattern.fullmatch(device)
        if found is not None:
            return signal, "".join(found.groups()) or label
    return None


def find_clocks(root: Path) -> Iterator[Reading]:
    """Yield the clocks that a frequency governor of the kernel knows, in hertz."""
    for device in matching(root, "sys/class/devfreq/*"):
        clock = clock_of(device.name)
        if clock is not None:
            yield Scaled(KernelFile(device / "cur_freq"), *clock, most=1e11)


def clocks_locked(root: Path) -> bool | None:
    """Return whether ``jetson_clocks`` holds the clocks of CPU and GPU at one value.

    That is so if the lowest allowed clock is the highest for each; ``None`` if unknown.
    """
    files = []
    for policy in matching(root, "sys/devices/system/cpu/cpufreq/policy*"):
        files.append((policy / "scaling_min_freq", policy / "scaling_max_freq"))
    for device in matching(root, "sys/class/devfreq/*"):
        clock = clock_of(device.name)
        if clock is not None and clock[0] is signals.GPU_FREQUENCY:
            files.append((device / "min_freq", device / "max_freq"))
    are_locked = None
    for lowest, highest in files:
        low, high = read_number(lowest), read_number(highest)
        if low is not None and high is not None:
            if low != high:
                return False
            are_locked = True
    return are_locked


@dataclass(unsafe_hash=True)
class PoweredTime:
    """The time for which a core was powered since the boot, and its share since the last look."""

    file: KernelFile
    core: str
    _latest: tuple[int, float] | None = field(default=None, compare=False)

    def take(self, text: str, now_ns: int) -> Iterator[Value]:  # noqa: D102
        number = to_number(text)
        if number is None or number < 0:
            return
        seconds = number / 1000  # runtime_active_time is in milliseconds
        yield (signals.DLA_POWERED_SECONDS, self.core), seconds
        before, self._latest = self._latest, (now_ns, seconds)
        if before is not None and now_ns > before[0] and seconds >= before[1]:
            share = (seconds - before[1]) / (now_ns - before[0]) * 1e9
            yield (signals.DLA_POWERED, self.core), min(share, 1.0)


def find_powered(root: Path) -> Iterator[Reading]:
    """Yield the powered time of each DLA core that the kernel knows."""
    # 15880000.nvdla0 and 158c0000.nvdla1 on Xavier and Orin, wherever they stand in the tree.
    for device in matching(root, "sys/bus/platform/devices/*.nvdla[0-9]"):
        file = KernelFile(device / "power/runtime_active_time")
        yield PoweredTime(file, core=device.name[-1])


_KINDS = ("passive", "active", "hot", "critical")
_TRIPS_AT_MOST = 16


def find_cooling(root: Path) -> Iterator[Reading]:
    """Yield the state of each cooling device, as a share of its highest.

    They are named by their type: ``cpufreq-cpu0``, ``devfreq-17000000.gpu``, ``pwm-fan``,
    ``hot-surface-alert`` …; the second of the same type has ``-2`` behind it.
    """
    named: dict[str, int] = {}
    for device in sorted(matching(root, "sys/class/thermal/cooling_device*"), key=_number):
        kind, highest = read_text(device / "type"), read_number(device / "max_state")
        if kind is None or not is_label(kind) or highest is None or highest <= 0:
            continue
        named[kind] = named.get(kind, 0) + 1
        name = kind
        if named[kind] > 1:
            name = f"{kind}-{named[kind]}"
        file = KernelFile(device / "cur_state")
        yield Scaled(file, signals.COOLING_STATE, name, per=highest, most=1.0)


def read_trips(root: Path) -> dict[tuple[str, str], float]:
    """Return the lowest trip point of each zone and kind, in celsius; they do not change.

    Zones have tegrastats' names. Kinds: ``passive`` (clocks are reduced), ``active`` (a fan turns
    faster), ``hot`` (user space is notified), ``critical`` (the board shuts down).
    """
    lowest: dict[tuple[str, str], float] = {}
    for zone in sorted(matching(root, "sys/class/thermal/thermal_zone*"), key=_number):
        name = (read_text(zone / "type") or "").partition("-")[0]
        if not is_label(name):
            continue
        for trip in range(_TRIPS_AT_MOST):
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
    return int(to_number(path.name.lstrip("abcdefghijklmnopqrstuvwxyz_")) or 0), path.name


_ALERT = re.compile(r"([a-z][a-z0-9]*)-throttle-alert")


@dataclass(unsafe_hash=True)
class ThrottleAlert:
    """A cooling device that stands for clocks held down for heat; its state is 0 while none is.

    The kernel counts nothing here, so an event that begins and ends between two looks is missed.
    """

    file: KernelFile
    kind: str
    _events: int = field(default=0, compare=False)
    _was_active: bool = field(default=False, compare=False)

    def take(self, text: str, now_ns: int) -> Iterator[Value]:  # noqa: ARG002, D102
        state = to_number(text)
        if state is None or state < 0:
            return
        is_active = state > 0
        self._events += is_active and not self._was_active
        self._was_active = is_active
        yield (signals.THROTTLE_ACTIVE, self.kind), float(is_active)
        yield (signals.THROTTLE_EVENTS, self.kind), float(self._events)


def find_alerts(root: Path) -> Iterator[Reading]:
    """Yield the state of each throttle alert: kinds ``cpu_thermal``, ``gpu_thermal`` and so on.

    The file ``thermal_trip_event_block`` next to it is never touched: reading it waits for the
    next event.
    """
    for device in matching(root, "sys/class/thermal/cooling_device*"):
        found = _ALERT.fullmatch(read_text(device / "type") or "")
        if found is not None:
            yield ThrottleAlert(KernelFile(device / "cur_state"), f"{found[1]}_thermal")
