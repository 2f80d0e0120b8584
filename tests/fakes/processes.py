"""Other processes: whether one runs, waiting for what one does, and how long that took."""

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

# Longer than a starved process needs for anything; a wait ends as soon as its condition holds.
PATIENCE_SECONDS = 120.0


def is_running(pid: int | str) -> bool:
    """Return whether a process exists and is not a zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def children() -> set[str]:
    """Return the process ids of the children of all our threads, unreaped ones too."""
    found: set[str] = set()
    for listed in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):  # the thread has ended
            found.update(listed.read_text().split())
    return found


def until(condition: Callable[[], object], seconds: float = PATIENCE_SECONDS) -> bool:
    """Return True once a condition holds, or False after so long."""
    never = threading.Event()
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        never.wait(0.02)
    return True


def withheld_seconds(root: Path = Path("/proc")) -> float:
    """Return the seconds since boot in which programs of this machine waited for a core or a disk.

    Linux counts them as pressure, and the time that a hypervisor gave to others as stolen. A kernel
    without pressure counts only the latter.
    """
    first, *_ = (root / "stat").read_text().splitlines()
    stolen = int(first.split()[8]) / os.sysconf("SC_CLK_TCK")
    waited = 0
    for resource in ("cpu", "io"):
        path = root / "pressure" / resource
        if path.exists():
            waited += int(path.read_text().split("total=")[1].split()[0])
    return stolen + waited / 1e6


class Stopwatch:
    """Seconds since it was made, without those that the machine withheld from programs.

    So a limit of seconds is exact on a quiet machine, and does not fail on a busy one.
    """

    def __init__(self) -> None:
        self._begin, self._withheld = time.monotonic(), withheld_seconds()

    @property
    def seconds(self) -> float:
        """Read it.

        Raises:
            AssertionError: No starved program takes so long.
        """
        took = time.monotonic() - self._begin
        assert took < PATIENCE_SECONDS / 2, took
        return took - (withheld_seconds() - self._withheld)
