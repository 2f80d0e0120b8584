"""The kernel's table of processes: one small file per process, read on its own.

Any user can give a process any name, and a process can end at any moment. So each method reads one
process, and its error concerns that process only.
"""

import os
from pathlib import Path
from typing import NamedTuple

# The kernel prints a line of ``stat`` within a page.
_PAGE_BYTES = 4096
# A command line may have two megabytes. A name needs the program and its script.
_COMMAND_BYTES = 4096

UNREADABLE = (OSError, ValueError)
"""The errors of a process that has ended, that is hidden, or whose files have another form."""


class ProcessEntry(NamedTuple):
    """A process at the time of a look.

    Attributes:
        name: The kernel's own name, at most 15 characters; the process chooses it.
        started_ns: CLOCK_BOOTTIME of its start, to a hundredth of a second. With the pid it
            identifies a process.
    """

    pid: int
    name: str
    parent_pid: int
    cpu_seconds: float
    started_ns: int


class ProcessTable:
    """Reads ``/proc`` below a root.

    >>> table = ProcessTable()
    >>> table.entry(os.getpid()).parent_pid == os.getppid()
    True
    """

    def __init__(self, root: Path = Path("/")) -> None:
        self._proc = os.fspath(root / "proc")
        self._page_bytes = os.sysconf("SC_PAGE_SIZE")
        self._ticks_per_second = os.sysconf("SC_CLK_TCK")

    def pids(self) -> list[int]:
        """Return the processes that this user may see, or raise ``OSError`` if there are none."""
        names = os.listdir(self._proc)  # noqa: PTH208 - a path per process costs more than a look
        found = [int(name) for name in names if name.isascii() and name.isdigit()]
        if not found:  # a container may put an empty directory in place of /proc
            raise FileNotFoundError(0, "lists no process", self._proc)
        return found

    def entry(self, pid: int) -> ProcessEntry:
        """Return a process, or raise one of ``UNREADABLE``."""
        line = self._read(pid, "stat", _PAGE_BYTES)
        # The name stands in brackets and may contain brackets, spaces and newlines itself.
        head, bracket, rest = line.rpartition(b")")
        fields = rest.split()
        if not bracket or len(fields) < 20:
            raise ValueError(f"{self._proc}/{pid}/stat has another form")
        ticks = int(fields[11]) + int(fields[12])
        return ProcessEntry(
            pid=pid,
            name=_decoded(head.partition(b"(")[2]),
            parent_pid=int(fields[1]),
            cpu_seconds=ticks / self._ticks_per_second,
            started_ns=int(fields[19]) * 1_000_000_000 // self._ticks_per_second,
        )

    def command(self, pid: int) -> list[str]:
        """Return the arguments of a process; none for a thread of the kernel.

        A process may write anything over them. Bytes that are not UTF-8 are surrogates.
        """
        data = self._read(pid, "cmdline", _COMMAND_BYTES)
        arguments = _decoded(data.rstrip(b"\0")).split("\0")
        if len(arguments) == 1:  # it has written one text in place of its arguments
            arguments = arguments[0].split(" ")
        if not any(arguments):
            return []
        return arguments

    def cgroup(self, pid: int) -> str:
        """Return the control groups of a process, or an empty text."""
        try:
            return _decoded(self._read(pid, "cgroup", _PAGE_BYTES))
        except OSError:  # the sandbox of a service may hide it
            return ""

    def memory_bytes(self, pid: int) -> int:
        """Return the resident memory of a process, or raise one of ``UNREADABLE``."""
        fields = self._read(pid, "statm", _PAGE_BYTES).split()
        if len(fields) < 2:
            raise ValueError(f"{self._proc}/{pid}/statm has another form")
        return int(fields[1]) * self._page_bytes

    def _read(self, pid: int, name: str, most_bytes: int) -> bytes:
        opened = os.open(f"{self._proc}/{pid}/{name}", os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            return os.read(opened, most_bytes)
        finally:
            os.close(opened)


def _decoded(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")
