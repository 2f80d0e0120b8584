"""Energy of a window by the counter that a rail has, and the possible error at the edges.

Only GPUs that are read by NVML have a counter of energy; the rails of a Jetson have none. A counter
integrates all power, also between two readings. So work that comes in bursts, which readings of
power may meet always at the same moment, is counted as it is.
"""

import statistics
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from math import fsum, hypot, isnan, sqrt
from typing import NamedTuple

from ...parsers.signals import RAIL_COUNTER, RAIL_COUNTER_AFTER, RAIL_COUNTER_READ, RAIL_POWER
from .blocks import WindowSlice, known_values
from .numerics import differences
from .report import CounterFault, Span

# docs/decisions/interval.md, "Energy counter"
TICK_SECONDS = 0.1
"""Time between two updates of an energy counter; measured on busy server GPUs."""
STILL_SECONDS = 1.0
"""A counter that does not grow for so long stands still: every board draws power all the time."""
JUMP_RATIO = 10.0
"""Growth that needs so many times the highest known power is no energy."""
WIDE_STEPS = 2.5
"""Readings so many median intervals apart have a gap between them, as in ``telemetry_gap``."""
UNEVEN_SHARE = 0.7
"""Part of a step that may be counted on the wrong side of the edges if power is uneven within it.

A step is from one reading of the counter to the next, or from one of its updates to the next. The
part is of a step at the scatter of the power, for both edges together. In 95 of 100 windows with
bursts of 0.5 to 60 Hz that follow neither edge, 0.6 is enough; the rest is margin."""


class CounterEnergy(NamedTuple):
    """Growth of an energy counter, and its possible error, either way, at the edges."""

    joules: float
    edge_joules: float


class _Readings(NamedTuple):
    """Readings of a counter, shape (n,) each: time, joules, and the seconds that a reading took."""

    times_ns: list[float]
    joules: list[float]
    read_seconds: list[float]

    def bracket(self, window: Span) -> slice | None:
        """Return the readings of a window with one on each side; ``None`` without these."""
        before = bisect_right(self.times_ns, window.begin_ns) - 1
        last = bisect_right(self.times_ns, window.end_ns) - 1
        if before < 0 or last + 1 >= len(self.times_ns):
            return None
        return slice(before, last + 2)


def counter_energy(
    samples: WindowSlice, rail: str, window: Span, clock_seconds: float = 0.0
) -> CounterEnergy | None:
    """Return the growth of a rail's energy counter in a window.

    Between two readings the counter is interpolated. Its errors at the edges add up:

    - Power that steps just at an edge bends the counter there, so its value at the edge is also
      extrapolated from the first reading inside, at the mean power of the window. Where readings
      are missing around an edge, any value between the two readings may be true.
    - The last update of the counter lies somewhere in the time before each edge: one update
      interval at mean power. A reading takes some milliseconds, of which half count at either edge.
    - Power that is uneven between two readings may lie on one side of the edge: a part of a step
      and of an update, at the scatter of the readings of power about the mean of the counter. This
      and the late update are independent.
    - The clocks of counter and window may differ by ``clock_seconds``, either way: as much time at
      the highest power that the counter shows.

    The result is ``None`` if the rail has no counter, if it was not read on both sides of both
    edges, or if it has a fault.
    """
    readings = _readings(samples, rail)
    near = readings.bracket(window)
    if near is None or window.seconds <= 0 or _fault(readings, near, samples, rail) is not None:
        return None
    times, counts = readings.times_ns[near], readings.joules[near]
    begin = _count_between(times[:2], counts[:2], window.begin_ns)
    end = _count_between(times[-2:], counts[-2:], window.end_ns)
    watts = (end - begin) / window.seconds
    step_ns = statistics.median(differences(times))
    bent = 0.0
    for count, outer, inner, edge_ns in (
        (begin, 0, 1, window.begin_ns),
        (end, -1, -2, window.end_ns),
    ):
        low, high = sorted((counts[outer], counts[inner]))
        if abs(times[outer] - times[inner]) > WIDE_STEPS * step_ns:
            bent += max(count - low, high - count)
        else:
            extrapolated = counts[inner] + watts * (edge_ns - times[inner]) / 1e9
            bent += abs(min(max(extrapolated, low), high) - count)
    read_seconds = readings.read_seconds[near]
    # Of the last reading before each edge, which shows the last update before it.
    before_begin, before_end = read_seconds[0], read_seconds[-2]
    tick_seconds = _tick_seconds(times, counts)
    late = watts * (tick_seconds + (before_begin + before_end) / 2)
    powers = _powers(samples, rail, times)
    uneven = max(_step_watts(times, counts))
    if powers:
        uneven = sqrt(fsum((power - watts) ** 2 for power in powers) / len(powers))
    hidden = uneven * hypot(step_ns / 1e9, tick_seconds) * UNEVEN_SHARE
    unsure = 2 * clock_seconds * max(watts, *_step_watts(times, counts))
    return CounterEnergy(end - begin, hypot(late, hidden) + bent + unsure)


def counter_fault(samples: WindowSlice, rail: str, window: Span) -> CounterFault | None:
    """Return why a counter that was read around a window gives no energy of it."""
    readings = _readings(samples, rail)
    near = readings.bracket(window)
    if near is None:
        return None
    return _fault(readings, near, samples, rail)


def counter_total(
    samples: WindowSlice, rails: Iterable[str], window: Span, clock_seconds: float = 0.0
) -> CounterEnergy | None:
    """Return the growth of the counters of several rails; ``None`` if one has none."""
    parts = []
    for rail in rails:
        part = counter_energy(samples, rail, window, clock_seconds)
        if part is None:
            return None
        parts.append(part)
    if not parts:
        return None
    joules, edge_joules = map(fsum, zip(*parts, strict=True))
    return CounterEnergy(joules, edge_joules)


def _readings(samples: WindowSlice, rail: str) -> _Readings:
    """Return the readings of a rail's counter, each at its own time."""
    readings = _Readings([], [], [])
    counts = samples.columns.get(RAIL_COUNTER.column(rail))
    after = samples.columns.get(RAIL_COUNTER_AFTER.column(rail))
    read = samples.columns.get(RAIL_COUNTER_READ.column(rail))
    if counts is None or after is None or read is None:
        return readings
    for at_ns, joules, later, took in zip(samples.times_ns, counts, after, read, strict=True):
        if isnan(joules) or isnan(later) or isnan(took):
            continue
        own_ns = at_ns + later * 1e9
        if readings.times_ns and own_ns <= readings.times_ns[-1]:
            continue
        readings.times_ns.append(own_ns)
        readings.joules.append(joules)
        readings.read_seconds.append(took)
    return readings


def _fault(
    readings: _Readings, near: slice, samples: WindowSlice, rail: str
) -> CounterFault | None:
    """Return why the readings around a window give no energy of it; ``None`` if they do."""
    times, counts = readings.times_ns[near], readings.joules[near]
    if min(differences(counts)) < 0:
        return "runs_back"
    if max(_still_seconds(times, counts)) > STILL_SECONDS:
        return "stands_still"
    steps = _step_watts(times, counts)
    # The highest known power is that of the readings of power or of the usual step, whichever is
    # higher. Bursts may escape every reading of power, and the usual step may be idle. Both are too
    # low only for bursts that are rare and shorter than a reading, which are too little energy to
    # look like a jump.
    powers = _powers(samples, rail, times)
    if max(steps) > JUMP_RATIO * max(statistics.median(steps), *powers, 0.0):
        return "jumps"
    return None


def _powers(samples: WindowSlice, rail: str, times_ns: Sequence[float]) -> list[float]:
    """Return the readings of power between the first and the last reading of the counter."""
    watts = samples.columns.get(RAIL_POWER.column(rail), ())
    return known_values(watts[samples.inside(int(times_ns[0]), int(times_ns[-1]))])


def _step_watts(times_ns: Sequence[float], counts: Sequence[float]) -> list[float]:
    """Return the least power of each step: its energy may be that of one update more."""
    watts = []
    for time_ns, joules in zip(differences(times_ns), differences(counts), strict=True):
        watts.append(joules / (time_ns / 1e9 + TICK_SECONDS))
    return watts


def _still_seconds(times_ns: Sequence[float], counts: Sequence[float]) -> list[float]:
    """Return for each reading how long the counter has not grown until then."""
    since_ns, still_seconds = times_ns[0], [0.0]
    for i in range(1, len(times_ns)):
        if counts[i] > counts[i - 1]:
            since_ns = times_ns[i]
        still_seconds.append((times_ns[i] - since_ns) / 1e9)
    return still_seconds


def _tick_seconds(times_ns: Sequence[float], counts: Sequence[float]) -> float:
    """Return the time between two updates: the usual one, or longer where the readings show it.

    Two equal readings may lie within one usual update. Three or more show a slower counter.
    """
    longest = TICK_SECONDS
    first = 0
    for i in range(1, len(times_ns)):
        if counts[i] > counts[i - 1]:
            if i - first > 2:
                longest = max(longest, (times_ns[i] - times_ns[first]) / 1e9)
            first = i
    return longest


def _count_between(times_ns: Sequence[float], counts: Sequence[float], at_ns: float) -> float:
    """Return a counter between two readings of it."""
    (begin, end), (before, after) = times_ns, counts
    return before + (at_ns - begin) / (end - begin) * (after - before)
