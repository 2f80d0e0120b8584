"""Energy under a power curve, and the idle power that is subtracted."""

import statistics
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import fsum, isnan
from typing import NamedTuple

from .numerics import differences
from .report import Span

# docs/decisions/interval.md, "Edges"
BRIDGED_GAP_INTERVALS = 5
GAP_SECONDS = 2.0
SETTLE_SECONDS = 0.55
# Times the seconds at an edge that no reading shows. With once, a spike lies among the readings
# beside the edge or not by chance, and more doubt gave a narrower interval twice as often.
_AROUND_EDGE = 3
LAG_SECONDS = 0.05
"""A line arrives up to so long after the moment that it describes."""
FORGOTTEN = 5
"""Time constants after which 0.7 % of a step are left."""


class Timing(NamedTuple):
    """How the times of readings relate to those of a window, in seconds.

    Attributes:
        clock: Their clocks may differ by so much, either way; ``None`` if that is unknown.
        averaging: A reading is the mean of that long.
        delay: It arrives up to so long after the time that it describes.
        forgetting: A reading moves towards the power with this time constant, as that of an INA3221
            does: each conversion adds the difference divided by the number of averages.
        length: Their clock may have been set within a window by so much in all, so that the window
            is longer or shorter than it shows.
    """

    clock: float | None = 0.0
    averaging: float = 0.0
    delay: float = LAG_SECONDS
    forgetting: float = 0.0
    length: float = 0.0

    @property
    def settling(self) -> float:
        """Seconds after a step until a reading shows no more of the power before it."""
        return self.averaging + FORGOTTEN * self.forgetting

    @property
    def age(self) -> float:
        """Mean age of the power that a reading shows."""
        return self.averaging / 2 + self.forgetting

    @property
    def width(self) -> float:
        """Length of a plain mean with that age."""
        return 2 * self.age

    @property
    def certain_after_seconds(self) -> float:
        """Seconds after the start of a window in which a reading may describe the time before."""
        return (self.clock or 0.0) + self.settling + self.delay


@dataclass(frozen=True, slots=True)
class Curve:
    """Power over time, shape (n,) each, without absent points."""

    times_ns: Sequence[int]
    watts: Sequence[float]


def inside(times_ns: Sequence[int], span: Span) -> slice:
    """Return the positions of the samples of a span, its edges included."""
    return slice(bisect_left(times_ns, span.begin_ns), bisect_right(times_ns, span.end_ns))


def known(times_ns: Sequence[int], watts: Sequence[float]) -> Curve:
    """Return a curve without the points at which a rail was absent (NaN)."""
    if not any(map(isnan, watts)):
        return Curve(times_ns, watts)
    known_times: list[int] = []
    known_watts: list[float] = []
    for time, power in zip(times_ns, watts, strict=True):
        if not isnan(power):
            known_times.append(time)
            known_watts.append(power)
    return Curve(known_times, known_watts)


def total(times_ns: Sequence[int], rails: Iterable[Sequence[float]]) -> Curve:
    """Return the sum of rails, at the samples in which all of them are present."""
    return known(times_ns, array("d", [fsum(at) for at in zip(*rails, strict=True)]))


def interval_ns(times_ns: Sequence[int]) -> float | None:
    """Return the median time between samples; ``None`` for fewer than two."""
    steps = differences(times_ns)
    if not steps:
        return None
    return statistics.median(steps)


def widest_gap_ns(interval: float) -> float:
    """Return the longest time between two readings across which power may be interpolated.

    Five intervals, and at least two seconds: a line may be late on a busy machine, but the power
    during a longer silence is unknown.
    """
    return max(BRIDGED_GAP_INTERVALS * interval, GAP_SECONDS * 1e9)


def integrate(
    times_ns: Sequence[int], watts: Sequence[float], begin_ns: int, end_ns: int
) -> float | None:
    """Return the joules of a window under a power curve, by trapezoids clipped to it.

    Power at an edge of the window is interpolated between the readings around it. If there are
    readings on one side only, the nearest one holds for up to one median interval.

    Args:
        times_ns: shape (n,), increasing arrival times, with neighbours of the window.
        watts: shape (n,), power at each; NaN is absent and is bridged if the gap is small.

    Returns:
        The energy; ``None`` if readings do not cover the window: there are fewer than two, a gap is
            wider than ``widest_gap_ns``, or an edge is too far from the nearest reading.

    >>> integrate([0, 10**9, 2 * 10**9], [1.0, 3.0, 5.0], 500_000_000, 1_500_000_000)
    3.0
    """
    interval = interval_ns(times_ns)
    curve = known(times_ns, watts)
    times, power = curve.times_ns, curve.watts
    if interval is None or len(times) < 2 or end_ns < begin_ns:
        return None
    if times[0] - begin_ns > interval or end_ns - times[-1] > interval:
        return None
    first = max(bisect_right(times, begin_ns) - 1, 0)
    last = min(bisect_left(times, end_ns), len(times) - 1)
    widest = widest_gap_ns(interval)
    pieces = [
        power[0] * max(min(times[0], end_ns) - begin_ns, 0),
        power[-1] * max(end_ns - max(times[-1], begin_ns), 0),
    ]
    for i in range(first, last):
        a, b = times[i], times[i + 1]
        if b - a > widest:
            return None
        low, high = max(a, begin_ns), min(b, end_ns)
        if low < high:
            slope = (power[i + 1] - power[i]) / (b - a)
            middle = power[i] + slope * ((low - a) + (high - a)) / 2
            pieces.append(middle * (high - low))
    return fsum(pieces) / 1e9


class WindowEnergy(NamedTuple):
    """Joules of a window, its readings, and the lowest and highest energy hidden at its edges.

    ``bounds`` is ``None`` where no limit is known.
    """

    joules: float
    readings: Curve
    bounds: tuple[float, float] | None


def window_energy(curve: Curve, window: Span, timing: Timing = Timing()) -> WindowEnergy | None:  # noqa: B008 - immutable
    """Return the energy of a window in which the same work goes on from edge to edge.

    Only readings count that certainly describe a time inside. They are joined by trapezoids, and
    the outermost are held to the edges: a slope towards a reading outside would mix in another
    power. Without two such readings it is ``integrate``, with all readings around the window, and
    there are no limits.

    The truth may differ at the edges, and four bounds of that are added up:

    - Motion at an edge: between it and its reading the power may be any that was read in three
      times as long after that reading (at the end: before it).
    - Clock: if the clock of the readings is unsure, they may belong to as much more of what is
      outside, and the power there may be any that was read there; without a reading there, that
      has no limit.
    - Lag: readings arrive late, and show power of some age (``Timing.age``). So the true window is
      later than what was integrated: it has that time at a power of the end more, and that time at
      a power of the start less.
    - Length: the window may be longer or shorter, by as much time at the highest power.

    The result is ``None`` if the readings do not cover the window; see ``integrate``.
    """
    times, watts = curve.times_ns, curve.watts
    # A reading exactly at an edge may describe the time outside.
    first = bisect_right(times, window.begin_ns + round(timing.certain_after_seconds * 1e9))
    last = bisect_left(times, window.end_ns - round((timing.clock or 0.0) * 1e9)) - 1
    whole = integrate(times, watts, window.begin_ns, window.end_ns)
    if whole is None:
        return None
    if last <= first:
        around = inside(times, window)
        return WindowEnergy(whole, Curve(times[around], watts[around]), None)
    readings = Curve(times[first : last + 1], watts[first : last + 1])
    middle = integrate(readings.times_ns, readings.watts, times[first], times[last])
    if middle is None:
        return None
    before = (times[first] - window.begin_ns) / 1e9
    after = (window.end_ns - times[last]) / 1e9
    joules = middle + watts[first] * before + watts[last] * after
    lag = timing.age + timing.delay
    backwards = Curve([-time for time in reversed(readings.times_ns)], readings.watts[::-1])
    begins = _range_of_first(readings, _AROUND_EDGE * before)
    ends = _range_of_first(backwards, _AROUND_EDGE * max(after, lag))
    edge_motion = before * begins.width + after * ends.width
    clock_bound = 0.0
    if timing.clock:
        if times[0] > window.begin_ns or times[-1] < window.end_ns:
            return WindowEnergy(joules, readings, None)
        reach = round(timing.clock * 1e9)
        outside = watts[max(bisect_left(times, window.begin_ns - reach) - 1, 0) : first]
        beyond = watts[last + 1 : bisect_right(times, window.end_ns + reach) + 1]
        apart = max(ends.high - begins.low, begins.high - ends.low)
        apart += begins.with_all(outside).width + ends.with_all(beyond).width
        clock_bound = timing.clock * apart
    # All are possible either way, but for the lag, which is on the side of the change only.
    either_way = edge_motion + clock_bound + timing.length * max(map(abs, readings.watts))
    lag_low, lag_high = lag * (ends.low - begins.high), lag * (ends.high - begins.low)
    bounds = (min(lag_low, 0.0) - either_way, max(lag_high, 0.0) + either_way)
    return WindowEnergy(joules, readings, bounds)


class _Range(NamedTuple):
    """The lowest and the highest power of some readings."""

    low: float
    high: float

    @property
    def width(self) -> float:
        """The difference between both."""
        return self.high - self.low

    def with_all(self, watts: Sequence[float]) -> "_Range":
        """Return the range of these and more readings."""
        return _Range(min(self.low, *watts), max(self.high, *watts))


def _range_of_first(curve: Curve, seconds: float) -> _Range:
    """Return the range of the readings in the first seconds, of two or more of them."""
    count = bisect_right(curve.times_ns, curve.times_ns[0] + seconds * 1e9)
    watts = curve.watts[: max(count, 2)]
    return _Range(min(watts), max(watts))


def settled(span: Span, timing: Timing = Timing()) -> Span:  # noqa: B008 - immutable
    """Return the part of an idle phase in which idle power is measured.

    Its start is left out: readings arrive up to 50 ms late, so the first may belong to the work
    before, and a DLA stays powered for half a second after its last task. That is 0.55 s, or a
    quarter of a short phase, but never less than the delay and settling of the readings. If the
    clock of the readings is unsure, as much is left out at both ends.
    """
    skipped = max(
        min(SETTLE_SECONDS, span.seconds / 4) + timing.settling,
        timing.delay + timing.settling,
    )
    clock_ns = round((timing.clock or 0.0) * 1e9)
    end_ns = max(span.end_ns - clock_ns, span.begin_ns)
    begin_ns = span.begin_ns + round(skipped * 1e9) + clock_ns
    return Span(begin_ns=min(begin_ns, end_ns), end_ns=end_ns)


def idle_readings(curve: Curve, phase: Span) -> Curve | None:
    """Return the readings of a settled idle phase; ``None`` for fewer than two, or with a gap."""
    positions = inside(curve.times_ns, phase)
    readings = Curve(curve.times_ns[positions], curve.watts[positions])
    times = readings.times_ns
    if len(times) < 2 or integrate(times, readings.watts, times[0], times[-1]) is None:
        return None
    return readings


def idle_watts(readings: Curve, phase: Span, memory: float = 0.0) -> float:
    """Return the mean power of a settled idle phase.

    Its readings are joined by trapezoids, and the outermost are held to the edges, because
    interpolation towards a reading of the work would not be idle power. If the power wanders with a
    memory of so many seconds, they are held for that much longer: the phase shows less of what is
    beyond its ends, and this is the best estimate of the level of such a process.
    """
    times, watts = readings.times_ns, readings.watts
    middle = integrate(times, watts, times[0], times[-1]) or 0.0
    edges = watts[0] * (times[0] - phase.begin_ns) + watts[-1] * (phase.end_ns - times[-1])
    held = memory * (watts[0] + watts[-1])
    return (middle + edges / 1e9 + held) / (phase.seconds + 2 * memory)


def idle_share(before: Span, after: Span, window: Span) -> float:
    """Return the position of a window's middle between the idle phases before (0) and after (1).

    It is a half if the phases do not follow each other.
    """
    start, end, middle = before.middle_ns, after.middle_ns, window.middle_ns
    if end <= start:
        return 0.5
    return min(max((middle - start) / (end - start), 0.0), 1.0)
