"""Memory that programs could still get: what a build of an engine may use."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .kernel_file import KernelFile, to_number
from .readings import Column, Reading

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
                    yield "ram.available_bytes", kibibytes * 1024
                return


def find_memory(root: Path) -> Iterator[Reading]:
    """Yield it, where there is a ``/proc`` that tells it."""
    path = root / "proc/meminfo"
    if path.exists():
        yield MemoryAvailable(KernelFile(path))
