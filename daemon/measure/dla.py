"""DLA activity in a window, from counters of the trace and of runtime power management."""

from collections.abc import Callable, Mapping, Sequence
from math import isnan
from typing import TypeVar

from ...parsers import signals
from ...parsers.signals import Signal
from .blocks import WindowSlice, known_values
from .numerics import differences
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
    by_name: dict[str, list[Step]] = {}
    for core, column in by_core(signal, samples.columns).items():
        steps = by_name[core] = []
        for begin, before, end, after in samples.steps(column):
            if begin < window.end_ns and end > window.begin_ns:
                steps.append((begin, end, after - before))
    return by_name


def _covers(counted: Sequence[Step], window: Span) -> bool:
    """Return whether steps reach from edge to edge of a window."""
    return bool(counted and counted[0][0] <= window.begin_ns and counted[-1][1] >= window.end_ns)


def _share(counted: Sequence[Step], window: Span) -> Utilization | None:
    """Return the share of a window that was counted; ``None`` if the counter was reset."""
    if window.seconds <= 0 or not counted:
        return None
    busy_ns, inside_ns, highest = 0.0, 0, 0.0
    for begin, end, seconds in counted:
        if seconds < 0:
            return None
        ratio = seconds / (end - begin) * 1e9
        part_ns = min(end, window.end_ns) - max(begin, window.begin_ns)
        busy_ns += ratio * part_ns
        inside_ns += part_ns
        highest = max(highest, ratio)
    mean = busy_ns / inside_ns
    highest = min(highest, 1.0)
    # A task that ends just after a sample counts for the next step, and may exceed its time.
    return Utilization(mean_ratio=min(mean, highest), max_ratio=highest)


def _grew(samples: WindowSlice, signal: Signal, window: Span, device: str) -> bool | None:
    """Return whether a counter grew; ``None`` if no growth was seen and samples are missing."""
    counted = _steps(samples, signal, window).get(device, [])
    for _, _, growth in counted:
        if growth != 0:
            return True
    if _covers(counted, window):
        return False
    return None


def counted_shares(samples: WindowSlice, window: Span) -> dict[str, Utilization]:
    """Return the busy (``dla0:ftrace``) and powered (``dla0:powered``) share of each DLA core.

    They are of all programs. A counter is taken to grow evenly between two samples. If samples do
    not reach an edge of the window, the share is that of the time between them. A core without a
    counter is absent, and so is a counter that was reset in the window.
    """
    sources = ((TRACED, signals.DLA_BUSY_SECONDS), (POWERED, signals.DLA_POWERED_SECONDS))
    shares: dict[str, Utilization] = {}
    for source, signal in sources:
        for core, counted in _steps(samples, signal, window).items():
            share = _share(counted, window)
            if share is not None:
                shares[f"{core}:{source}"] = share
    return shares


def dla_was_on(samples: WindowSlice, window: Span, device: str) -> bool | None:
    """Return whether a DLA core was busy in a window or, without a trace, powered.

    The trace of its tasks is the best evidence, because a core may be powered for other reasons. A
    sample shows the gate at its own time only. The kernel's count of powered time misses nothing
    between two samples and needs no root. The absence of tasks is evidence only if the trace covers
    the window and lost no events. Without evidence the result is ``None``.
    """
    worked = _grew(samples, signals.DLA_TASKS, window, device)
    if worked:
        return True
    if worked is False and not _MISSING & trace_errors(samples, window).keys():
        return False
    inside = samples.inside(window.begin_ns, window.end_ns)
    moments: list[float] = []
    for signal in (signals.DLA_ON, signals.DLA_LOAD):
        column = by_core(signal, samples.columns).get(device, ())
        moments += known_values(column[inside])
    if max(moments, default=0.0) > 0:
        return True
    was_powered = _grew(samples, signals.DLA_POWERED_SECONDS, window, device)
    if was_powered is None and moments:
        return False
    return was_powered


def trace_errors(samples: WindowSlice, window: Span) -> dict[str, int]:
    """Return the irregular events in the DLA trace, by reason.

    They occurred between the last sample before the window and the first after it. A reason has no
    column until it first happens: until then its count is 0.
    """
    around = samples.around(window.begin_ns, window.end_ns)
    errors: dict[str, int] = {}
    for reason, column in signals.DLA_TRACE_ERRORS.by_label(around.columns).items():
        counts = [0.0 if isnan(count) else count for count in column]
        grown = 0.0
        for step in differences(counts):
            grown += max(step, 0.0)
        if grown >= 1:
            errors[reason] = int(grown)
    return errors


def foreign_dla_activity(
    samples: WindowSlice, window: Span, device: str, idle: Sequence[Span], in_flight: InFlight
) -> set[str]:
    """Return the DLA cores that worked at a time when none of our runs used them.

    On the run's own core this is known only in its baselines, while its model is loaded and idle.
    On the others it is known whenever no run of ours is in flight. The window is that of the run
    with its baselines, which are ``idle``.
    """
    foreign: set[str] = set()
    for core, counted in _steps(samples, signals.DLA_BUSY_SECONDS, window).items():
        beyond = 0.0
        for begin, end, seconds in counted:
            since = begin - LAG_NS
            if core != device:
                ours = in_flight(core, since, end)
            elif _is_within(idle, since, end):
                ours = 0.0
            else:
                # Our own run may have used the core all the time.
                ours = (end - since) / 1e9
            beyond += max(0.0, seconds - ours)
        if beyond > _tolerance(window):
            foreign.add(core)
    return foreign


def _is_within(spans: Sequence[Span], begin_ns: int, end_ns: int) -> bool:
    """Return whether one of several spans holds all of a time."""
    return any(span.begin_ns <= begin_ns and end_ns <= span.end_ns for span in spans)


def beyond_powered(samples: WindowSlice, window: Span) -> dict[str, float]:
    """Return, by core, the busy seconds beyond the powered time.

    This is impossible, so trace and power management contradict each other. Differences within the
    tolerance of the counters are left out.
    """
    powered = _steps(samples, signals.DLA_POWERED_SECONDS, window)
    beyond_by_core: dict[str, float] = {}
    for core, busy in _steps(samples, signals.DLA_BUSY_SECONDS, window).items():
        on = powered.get(core, [])
        if not _covers(on, window):
            continue
        beyond = _growth(busy) - _growth(on) - LAG_NS / 1e9
        if beyond > _tolerance(window):
            beyond_by_core[core] = beyond
    return beyond_by_core


def _growth(counted: Sequence[Step]) -> float:
    """Return the growth of a counter over all its steps."""
    return sum(seconds for _, _, seconds in counted)


def _tolerance(window: Span) -> float:
    """Return the seconds by which two counters may differ without an error of either."""
    return max(_TOLERANCE_SECONDS, _TOLERANCE_RATIO * window.seconds)
