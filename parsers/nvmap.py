"""The list of clients of NvMap, NVIDIA's memory manager of Tegra. Root's reader uses it."""

import re

_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
# Read from the right, since a process may have any name. Some kernels have a PSS before the size.
_CLIENT = re.compile(
    r" {1,8}(?P<pid>[0-9]{1,10})(?: {1,11}[0-9]{1,15}K)?"
    r" {1,11}(?P<size>[0-9]{1,15}(?:\.[0-9]{1,6})?)(?P<unit>[KMG])$",
    re.ASCII,
)
# Both columns have a fixed width. A name of 15 characters with newlines may look like a row, and is
# shorter.
_SHORTEST = 21

KERNEL_PID = 0
"""The number that the list has in place of a process for drivers of the kernel."""


def parse_nvmap_clients(text: str) -> dict[int, int]:
    """Return the bytes that each process holds of NvMap, by its number; nothing for 0 bytes.

    A buffer that several clients hold counts in equal parts, so all add up to the total. Rows that
    have another form are left out, as the header and the total are.

    Source:
        NVIDIA's driver NvMap, ``nvmap/iovmm/clients`` in debugfs: R32 to R39.

    >>> parse_nvmap_clients("user                     detect.py     4711       2048K")
    {4711: 2097152}
    """
    held: dict[int, int] = {}
    for line in text.splitlines():
        found = _CLIENT.search(line)
        if found is None or len(found[0]) < _SHORTEST:
            continue
        size = int(float(found["size"]) * _UNITS[found["unit"]])
        if size:
            pid = int(found["pid"])
            held[pid] = held.get(pid, 0) + size
    return held
