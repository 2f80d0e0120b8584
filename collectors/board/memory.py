"""The memory that this process can still take: of the machine, and of its control groups."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from .boards import keeps_freed_pages
from .readers import free_memory, read_number, read_text, to_number

# Controller, directory, and files of the limit and of the use, of control groups v2 and v1.
_HIERARCHIES = (
    ("", "sys/fs/cgroup", "memory.max", "memory.current"),
    ("memory", "sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
)


class MemoryNeed(NamedTuple):
    """Memory that is about to be taken, in bytes; ``bound`` is ``about`` or ``at least``."""

    size: int
    bound: str = "about"

    def compare(self, free: int) -> str:
        """Return in words whether it can be had, and by how much.

        Nothing is refused: the estimate may be wrong, other programs may end, the kernel may swap.
        """
        rest = free - self.size
        end = f"{rest >> 20} MiB remain"
        if rest < 0:
            end = f"{-(rest >> 20)} MiB are missing"
        need = f"takes {self.bound} {self.size >> 20} MiB of memory"
        return f"{need}; {free >> 20} MiB are free: {end}"


def obtainable_memory(root: Path = Path("/")) -> int | None:
    """Return the bytes that this process can take without swapping, or None if they are unknown.

    The least counts of what the machine has and what the limits of a service or a container leave,
    with the cache of files, which the kernel drops. The figure of the machine does not count if its
    driver keeps freed pages.

    Source:
        "Control Group v2" and "Memory Resource Controller" (v1), Linux kernel documentation.
    """
    bounds = [*_left_in_groups(root)]
    free = free_memory(root)
    if free is not None and not keeps_freed_pages(root):
        bounds.append(free)
    return min(bounds, default=None)


def _left_in_groups(root: Path) -> Iterator[int]:
    """Yield what each limited group leaves, from the one of this process to the outermost."""
    for line in (read_text(root / "proc/self/cgroup") or "").splitlines():
        controllers, _, path = line.partition(":")[2].partition(":")
        for controller, directory, limit_file, used_file in _HIERARCHIES:
            if controller not in controllers.split(","):
                continue
            top = root / directory
            group = top / path.lstrip("/")
            for place in (group, *group.parents):
                limit, used = read_number(place / limit_file), read_number(place / used_file)
                if limit is not None and used is not None:
                    yield max(0, int(limit - used) + _cache_bytes(place))
                if place == top:
                    break


def _cache_bytes(group: Path) -> int:
    """Return how much of a group's memory is the cache of files."""
    sizes: dict[str, int] = {}
    for line in (read_text(group / "memory.stat") or "").splitlines():
        name, _, size = line.partition(" ")
        sizes[name] = int(to_number(size) or 0)
    # Version 1 counts its own alone, and with "total" also those of the groups below.
    own = sizes.get("inactive_file", 0) + sizes.get("active_file", 0)
    return sizes.get("total_inactive_file", 0) + sizes.get("total_active_file", 0) or own
