"""Clocks of GPU, memory and DLA, where the line of tegrastats does not print them."""

import re
from collections.abc import Iterator
from pathlib import Path

from .kernel_file import KernelFile, read_number
from .readings import Reading, Scaled

_NAMES = (
    # 17000000.ga10b, 17000000.gv11b, 17000000.gp10b and 57000000.gpu; gpu-gpc-0 on Thor.
    (re.compile(r"[0-9a-f]+\.(?:gpu|g[a-z]\d+b)"), "gpu.frequency_hertz.0"),
    (re.compile(r"gpu-gpc-([0-9])"), "gpu.frequency_hertz.{}"),
    (re.compile(r"(?:[0-9a-f]+\.)?emc"), "emc.frequency_hertz"),
    (re.compile(r"[0-9a-f]+\.nvdla([0-9])"), "dla.{}.frequency_hertz"),
)


def column_of(device: str) -> str | None:
    """Return the column of a device's clock; ``None`` where it is none of those.

    >>> column_of("17000000.gpu"), column_of("158c0000.nvdla1"), column_of("15340000.vic")
    ('gpu.frequency_hertz.0', 'dla.1.frequency_hertz', None)
    """
    for pattern, column in _NAMES:
        found = pattern.fullmatch(device)
        if found is not None:
            return column.format(*found.groups())
    return None


def find_clocks(root: Path) -> Iterator[Reading]:
    """Yield the clocks that a frequency governor of the kernel knows, in hertz."""
    for device in sorted(root.glob("sys/class/devfreq/*")):
        column = column_of(device.name)
        if column is not None:
            yield Scaled(KernelFile(device / "cur_freq"), column, most=1e11)


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
        if (column_of(device.name) or "").startswith("gpu.")
    ]
    known = [(low, high) for low, high in limits if low is not None and high is not None]
    return all(low == high for low, high in known) if known else None
