"""How long a DLA core was powered in a window; powered is not busy, and never stands for it."""

from .counted_time import counters, covers, share, steps
from .cut import Cut
from .run_report import Span, Utilization

POWERED = "powered"
"""What stands behind the core in the name of the signal, where a load has its source."""


def powered(cut: Cut, window: Span) -> dict[str, Utilization]:
    """Return the share of a window in which each DLA core was powered, by counter.

    The counter is read with each sample, and taken to grow evenly between two of them. Where
    samples do not reach an edge of the window, the share is that of the time between them.

    Args:
        cut: Samples of the window with a neighbour on each side.
        window: The steady window.

    Returns:
        By signal, ``dla0:powered``; a core without a counter is not there, nor is one whose
        counter began anew in the window.
    """
    return {
        f"{core}:{POWERED}": told
        for core, column in counters(cut, "powered_seconds").items()
        if (told := share(steps(cut, column, window), window)) is not None
    }


def was_powered(cut: Cut, window: Span, device: str) -> bool | None:
    """Tell whether a DLA core was powered at any time in a window; not even a burst is missed.

    Args:
        cut: Samples of the window with a neighbour on each side.
        window: The steady window.
        device: ``dla0`` or ``dla1``.

    Returns:
        ``None`` where no counter tells of all of the window.
    """
    column = counters(cut, "powered_seconds").get(device)
    counted = [] if column is None else steps(cut, column, window)
    if any(seconds != 0 for _, _, seconds in counted):
        return True
    return False if covers(counted, window) else None
