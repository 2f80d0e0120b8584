"""What the trace of the DLA says of a window, and whether it agrees with what else is known."""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from math import isnan
from typing import TypeVar

from ...parsers import signals
from ...parsers.signals import Signal
from .run_report import Span, Utilization
from .slices import Cut

Step = tuple[int, int, float]


def steps(cut: Cut, column: Sequence[float], window: Span) -> list[Step]:
    """Return begin, end and growth of each step of a counter that overlaps a window.

    Args:
        cut: Samples of the window with a neighbour on each side.
        column: shape (n,), the counter at each; NaN where it was not told.
        window: The window.
    """
    known = [
        (time, value) for time, value in zip(cut.times_ns, column, strict=True) if not isnan(value)
    ]
    return [
        (begin, end, after - before)
        for (begin, before), (end, after) in pairwise(known)
        if begin < window.end_ns and end > window.begin_ns
    ]


def covers(counted: Sequence[Step], window: Span) -> bool:
    """Say whether steps tell of the whole of a window."""
    reach = counted and counted[0][0] <= window.begin_ns and counted[-1][1] >= window.end_ns
    return bool(reach)


def share(counted: Sequence[Step], window: Span) -> Utilization | None:
    """Return the share of a window that was counted, taken to grow evenly within a step.

    Where steps do not reach an edge of the window, it is the share of the time between them.

    Args:
        counted: Steps of seconds.
        window: The window.

    Returns:
        ``None`` where there is no step, or where the counter began anew.
    """
    if window.seconds <= 0 or not counted or any(seconds < 0 for _, _, seconds in counted):
        return None
    inside = [min(end, window.end_ns) - max(begin, window.begin_ns) for begin, end, _ in counted]
    ratios = [seconds / (end - begin) * 1e9 for begin, end, seconds in counted]
    mean = sum(ratio * part for ratio, part in zip(ratios, inside, strict=True)) / sum(inside)
    highest = min(max(ratios), 1.0)
    # What ended just after one sample and just before the next may exceed the time between them.
    return Utilization(mean_ratio=min(mean, highest), max_ratio=highest)


TRACED = "ftrace"
"""The source of busy time that is counted task by task."""

SOURCES = (TRACED, "tegrastats", "firmware")
"""Sources of a DLA load, the truest first; the firmware tells of busy moments alone."""

POWERED = "powered"
"""What stands behind the core in the name of the signal, where a load has its source."""

InFlight = Callable[[str, int, int], float]
"""Seconds of a stretch in which our own runs were in flight on a device."""

V = TypeVar("V")

# A task counts when it has ended and its event has come along; then it was before the sample.
_LAG_NS = 200_000_000
_TOLERANCE_SECONDS, _TOLERANCE_RATIO = 0.02, 0.01
# Time that the trace may have missed; a doubt between two cores is none.
_MISSING = frozenset({"lost", "gap", "unmatched", "unparsed", "odd", "late"})


def by_core(signal: Signal, columns: Mapping[str, V]) -> dict[str, V]:
    """Return the columns of a signal by DLA core: ``dla0``, ``dla1``."""
    return {f"dla{core}": column for core, column in signal.by_label(columns).items()}


def busy(cut: Cut, window: Span) -> dict[str, Utilization]:
    """Return the share of a window in which each DLA core was busy, whoever used it.

    Args:
        cut: Samples of the window with a neighbour on each side.
        window: The steady window.

    Returns:
        By signal, ``dla0:ftrace``; a core of which the trace does not tell is not there.
    """
    return {
        f"{core}:{TRACED}": told
        for core, column in by_core(signals.DLA_BUSY_SECONDS, cut.columns).items()
        if (told := share(steps(cut, column, window), window)) is not None
    }


def was_busy(cut: Cut, window: Span, device: str) -> bool | None:
    """Tell whether a DLA core had a task that ended in a window.

    Args:
        cut: Samples of the window with a neighbour on each side.
        window: The steady window.
        device: ``dla0`` or ``dla1``.

    Returns:
        ``None`` where the trace does not tell of all of the window, or where events are missing.
    """
    column = by_core(signals.DLA_TASKS, cut.columns).get(device)
    counted = [] if column is None else steps(cut, column, window)
    if any(tasks != 0 for _, _, tasks in counted):
        return True
    is_whole = covers(counted, window) and not _MISSING & troubles(cut, window).keys()
    return False if is_whole else None


def troubles(cut: Cut, window: Span) -> dict[str, int]:
    """Count what did not go by the book in the trace of a window, by reason.

    A reason has no column until it first happens: until then it is 0.

    Args:
        cut: Samples of the window with a neighbour on each side.
        window: The steady window.

    Returns:
        Reasons that occurred between the last sample before the window and the first after it.
    """
    around = cut.around(window.begin_ns, window.end_ns)
    found: dict[str, int] = {}
    for reason, column in signals.DLA_TRACE_ERRORS.by_label(around.columns).items():
        counts = [0.0 if isnan(count) else count for count in column]
        grown = int(sum(b - a for a, b in pairwise(counts) if b > a))
        if grown:
            found[reason] = grown
    return found


def foreign_dla_activity(
    cut: Cut, window: Span, device: str, idle: Sequence[Span], in_flight: InFlight
) -> bool:
    """Tell whether a DLA core worked when none of our runs could have been its cause.

    On the run's own core that is so in its baselines alone: there its model is loaded and idle.
    On the others it is so wherever no run of ours is in flight.

    Args:
        cut: Samples.
        window: What is looked at: the run with its baselines.
        device: The run's own.
        idle: Its baselines.
        in_flight: What our runs account for on the others.
    """
    tolerance = max(_TOLERANCE_SECONDS, _TOLERANCE_RATIO * window.seconds)
    for core, column in by_core(signals.DLA_BUSY_SECONDS, cut.columns).items():
        beyond = 0.0
        for begin, end, seconds in steps(cut, column, window):
            since = begin - _LAG_NS
            if core == device:
                quiet = any(one.begin_ns <= since and end <= one.end_ns for one in idle)
                ours = 0.0 if quiet else (end - since) / 1e9
            else:
                ours = in_flight(core, since, end)
            beyond += max(0.0, seconds - ours)
        if beyond > tolerance:
            return True
    return False


def beyond_powered(cut: Cut, window: Span) -> dict[str, float]:
    """Return by how many seconds a core was busy beyond the time for which it was powered.

    That can't be: trace and power management contradict each other then.

    Args:
        cut: Samples of the window with a neighbour on each side.
        window: The steady window.

    Returns:
        By core; those alone where it is more than the counters may differ by.
    """
    powered = by_core(signals.DLA_POWERED_SECONDS, cut.columns)
    found = {}
    for core, column in by_core(signals.DLA_BUSY_SECONDS, cut.columns).items():
        counted = steps(cut, powered[core], window) if core in powered else []
        if not covers(counted, window):
            continue
        worked = sum(seconds for _, _, seconds in steps(cut, column, window))
        beyond = worked - sum(seconds for _, _, seconds in counted) - _LAG_NS / 1e9
        if beyond > max(_TOLERANCE_SECONDS, _TOLERANCE_RATIO * window.seconds):
            found[core] = beyond
    return found


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
        for core, column in by_core(signals.DLA_POWERED_SECONDS, cut.columns).items()
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
    column = by_core(signals.DLA_POWERED_SECONDS, cut.columns).get(device)
    counted = [] if column is None else steps(cut, column, window)
    if any(seconds != 0 for _, _, seconds in counted):
        return True
    return False if covers(counted, window) else None
