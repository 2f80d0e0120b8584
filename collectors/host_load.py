"""How busy the CPU of this machine is, by the kernel's own count."""

import threading
from pathlib import Path

from .base import SYSTEM_CLOCK, Clock

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
