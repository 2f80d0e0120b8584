"""DLA activity in a window, from counters of the trace and of runtime power management."""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from math import isnan
from typing import TypeVar

from ...parsers import signals
from ...parsers.signals import Signal
from .blocks import WindowSlice
from .report import Span, Utilization

TRACED = "ftrace"
"""The source of busy time that is counted task by task."""

SOURCES = (TRACED, "tegrastats", "firmware")
"""Sources of a DLA load, the most accurate first; the firmware reports busy moments only."""

POWERED = "powered"
"""Follows the core in the name of the powered share, where a load has its source."""

InFlight = Callable[[str, int, int], float]
"""Seconds between two times in which our own runs were in flight on a device."""

Step = tuple[int, int, float]
V = TypeVar("V")

# A task is counted when it has ended and its event has arrived, so it ran before the sample.
LAG_NS = 200_000_000
_TOLERANCE_SECONDS, _TOLERANCE_RATIO = 0.02, 0.01
# Errors that may hide busy time. An ambiguity between two cores hides none.
_MISSING = frozenset({"lost", "gap", "unmatched", "unparsed", "odd", "late"})


def by_core(signal: Signal, columns: Mapping[str, V]) -> dict[str, V]:
    """Return the columns of a signal by DLA core: ``dla0``, ``dla1``."""
    return {f"dla{core}": column for core, column in signal.by_label(columns).items()}


def _steps(samples: WindowSlice, signal: Signal, window: Span) -> dict[str, list[Step]]:
    """Return, by core, begin, end and growth of each step of a counter that overlaps a window."""
    return {
        core: [
            (begin, end, after - before)
            for begin, before, end, after in samples.steps(column)
            if begin < window.end_ns and end > window.begin_ns
        ]
        for core, column in by_core(signal, samples.columns).items()
    }


def _covers(counted: Sequence[Step], window: Span) -> bool:
    """Return whether steps reach from edge to edge of a window."""
    return bool(counted and counted[0][0] <= window.begin_ns and counted[-1][1] >= window.end_ns)


def _share(counted: Sequence[Step], window: Span) -> Utilization | None:
    """Return the share of a window that was counted; ``None`` if the counter was reset."""
    if window.seconds <= 0 or not counted or any(seconds < 0 for _, _, seconds in counted):
        return None
    inside = [min(end, window.end_ns) - max(begin, window.begin_ns) for begin, end, _ in counted]
    ratios = [seconds / (end - begin) * 1e9 for begin, end, seconds in counted]
    mean = sum(ratio * part for ratio, part in zip(ratios, inside, strict=True)) / sum(inside)
    highest = min(max(ratios), 1.0)
    # A task that ends just after a sample counts for the next step, and may exceed its time.
    return Utilization(mean_ratio=min(mean, highest), max_ratio=highest)


def _grew(samples: WindowSlice, signal: Signal, window: Span, device: str) -> bool | None:
    """Return whether a counter grew; ``None`` if no growth was seen and samples are missing."""
    counted = _steps(samples, signal, window).get(device, [])
    if any(growth != 0 for _, _, growth in counted):
        return True
    return False if _covers(counted, window) else None


def counted_shares(samples: WindowSlice, window: Span) -> dict[str, Utilization]:
    """Return the busy (``dla0:ftrace``) and powered (``dla0:powered``) share of each DLA core.

    They are of all programs. A counter is taken to grow evenly between two samples. If samples do
    not reach an edge of the window, the share is that of the time between them. A core without a
    counter is absent, and so is a counter that was reset in the window.
    """
    sources = ((TRACED, signals.DLA_BUSY_SECONDS), (POWERED, signals.DLA_POWERED_SECONDS))
    return {
        f"{core}:{source}": found
        for source, signal in sources
        for core, counted in _steps(samples, signal, window).items()
        if (found := _share(counted, window)) is not None
    }


def dla_was_on(samples: WindowSlice, window: Span, device: str) -> bool | None:
    """Return whether a DLA core was busy in a window or, without a trace, powered.

    The trace of its tasks is the best evidence, because a core may be powered for other reasons. A
    sample shows the gate at its own time only. The kernel's count of powered time misses nothing
    between two samples and needs no root. The absence of tasks is evidence only if the trace covers
    the window and lost no events. Without evidence the result is ``None``.
    """
    worked = _grew(samples, signals.DLA_TASKS, window, device)
    if worked or (worked is False and not _MISSING & trace_errors(samples, window).keys()):
        return worked
    inside = samples.inside(window.begin_ns, window.end_ns)
    known = [
        value
        for signal in (signals.DLA_ON, signals.DLA_LOAD)
        for value in by_core(signal, samples.columns).get(device, ())[inside]
        if not isnan(value)
    ]
    if any(value > 0 for value in known):
        return True
    was_powered = _grew(samples, signals.DLA_POWERED_SECONDS, window, device)
    return False if was_powered is None and known else was_powered


def trace_errors(samples: WindowSlice, window: Span) -> dict[str, int]:
    """Return the irregular events in the DLA trace, by reason.

    They occurred between the last sample before the window and the first after it. A reason has no
    column until it first happens: until then its count is 0.
    """
    around = samples.around(window.begin_ns, window.end_ns)
    found: dict[str, int] = {}
    for reason, column in signals.DLA_TRACE_ERRORS.by_label(around.columns).items():
        counts = [0.0 if isnan(count) else count for count in column]
        grown = int(sum(b - a for a, b in pairwise(counts) if b > a))
        if grown:
            found[reason] = grown
    return found


def foreign_dla_activity(
    samples: WindowSlice, window: Span, device: str, idle: Sequence[Span], in_flight: InFlight
) -> set[str]:
    """Return the DLA cores that worked at a time when none of our runs used them.

    On the run's own core this is known only in its baselines, while its model is loaded and idle.
    On the others it is known whenever no run of ours is in flight. The window is that of the run
    with its baselines, which are ``idle``.
    """
    found = set()
    for core, counted in _steps(samples, signals.DLA_BUSY_SECONDS, window).items():
        beyond = 0.0
        for begin, end, seconds in counted:
            since = begin - LAG_NS
            if core == device:
                quiet = any(one.begin_ns <= since and end <= one.end_ns for one in idle)
                ours = 0.0 if quiet else (end - since) / 1e9
            else:
                ours = in_flight(core, since, end)
            beyond += max(0.0, seconds - ours)
        if beyond > _tolerance(window):
            found.add(core)
    return found


def beyond_powered(samples: WindowSlice, window: Span) -> dict[str, float]:
    """Return, by core, the busy seconds beyond the powered time.

    This is impossible, so trace and power management contradict each other. Differences within the
    tolerance of the counters are left out.
    """
    powered = _steps(samples, signals.DLA_POWERED_SECONDS, window)
    found = {}
    for core, busy in _steps(samples, signals.DLA_BUSY_SECONDS, window).items():
        counted = powered.get(core, [])
        if not _covers(counted, window):
            continue
        worked, on = (sum(seconds for _, _, seconds in each) for each in (busy, counted))
        beyond = worked - on - LAG_NS / 1e9
        if beyond > _tolerance(window):
            found[core] = beyond
    return found


def _tolerance(window: Span) -> float:
    return max(_TOLERANCE_SECONDS, _TOLERANCE_RATIO * window.seconds)
