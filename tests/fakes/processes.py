"""Other processes: whether one runs, and waiting for what one does."""

import threading
import time
from collections.abc import Callable
from pathlib import Path


def is_running(pid: int | str) -> bool:
    """Return whether a process exists and is not a zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def until(condition: Callable[[], object], seconds: float = 10.0) -> bool:
    """Return True once a condition holds, or False after so long."""
    never = threading.Event()
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        never.wait(0.005)
    return True
