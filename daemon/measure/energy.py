"""Energy under a power curve, and the idle power that is subtracted."""

import statistics
from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import fsum, isnan

from ...collectors.board.boards import RailRule
from ...parsers.signals import RAIL_POWER
from .run_report import Span

GAP_INTERVALS = 5
GAP_SECONDS = 2.0
LAG_SECONDS = 0.05
SETTLE_SECONDS = 0.55


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
    pairs = [(t, w) for t, w in zip(times_ns, watts, strict=True) if not isnan(w)]
    return Curve([t for t, _ in pairs], [w for _, w in pairs])


def total(times_ns: Sequence[int], rails: Iterable[Sequence[float]]) -> Curve:
    """Return the sum of rails, at the samples in which all of them are present."""
    return known(times_ns, array("d", [fsum(at) for at in zip(*rails, strict=True)]))


def interval_ns(times_ns: Sequence[int]) -> float | None:
    """Return the median time between samples; ``None`` for fewer than two."""
    steps = [b - a for a, b in pairwise(times_ns)]
    return statistics.median(steps) if steps else None


def widest_gap_ns(interval: float) -> float:
    """Return the longest time between two readings across which power may be interpolated.

    Five intervals, and at least two seconds: a line may be late on a busy machine, but the power
    during a longer silence is unknown.
    """
    return max(GAP_INTERVALS * interval, GAP_SECONDS * 1e9)


def integrate(
    times_ns: Sequence[int], watts: Sequence[float], begin_ns: int, end_ns: int
) -> float | None:
    """Return the joules of a window under a power curve, by trapezoids clipped to it.

    Power at an edge of the window is interpolated between the readings around it. If there are
    readings on one side only, the nearest one holds for up to one median interval.

    Args:
        times_ns: shape (n,), increasing arrival times, with neighbours of the window.
        watts: shape (n,), power at each; NaN is absent and is bridged if the gap is small.
        begin_ns: Start of the window.
        end_ns: End of the window.

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


def settled(span: Span) -> Span:
    """Return the part of an idle phase in which idle power is measured.

    Its start is left out: readings arrive up to 50 ms late, so the first may belong to the work
    before, and a DLA stays powered for half a second after its last task. That is 0.55 s, or a
    quarter of a short phase, but never less than 50 ms.
    """
    skipped = max(min(SETTLE_SECONDS, span.seconds / 4), LAG_SECONDS)
    return Span(begin_ns=min(span.begin_ns + round(skipped * 1e9), span.end_ns), end_ns=span.end_ns)


def idle_watts(curve: Curve, phase: Span | None) -> float | None:
    """Return the mean power of an idle phase.

    Only readings within its settled part count. They are joined by trapezoids, and the outermost
    are held to the edges, because interpolation towards a reading of the work would not be idle
    power. With fewer than two readings, or with a gap among them, it is ``None``.
    """
    if phase is None:
        return None
    span = settled(phase)
    here = inside(curve.times_ns, span)
    times, watts = curve.times_ns[here], curve.watts[here]
    if len(times) < 2 or span.seconds <= 0:
        return None
    middle = integrate(times, watts, times[0], times[-1])
    if middle is None:
        return None
    edges = watts[0] * (times[0] - span.begin_ns) + watts[-1] * (span.end_ns - times[-1])
    return middle / span.seconds + edges / 1e9 / span.seconds


def interpolate_idle(
    before: tuple[Span, float] | None, after: tuple[Span, float] | None, window: Span
) -> float | None:
    """Return the idle power that belongs to a window.

    It is the line between the middles of both idle phases, at the middle of the window, which is
    the mean of that line over the window. With one idle phase, it is the power of that phase; with
    none, ``None``.
    """
    if before is None or after is None:
        measured = before or after
        return None if measured is None else measured[1]
    share = idle_share(before[0], after[0], window)
    return before[1] + (after[1] - before[1]) * share


def idle_share(before: Span, after: Span, window: Span) -> float:
    """Return the position of a window's middle between the idle phases before (0) and after (1).

    It is a half if the phases do not follow each other.
    """
    start, end, middle = ((span.begin_ns + span.end_ns) / 2 for span in (before, after, window))
    return min(max((middle - start) / (end - start), 0.0), 1.0) if end > start else 0.5


_RECENT = 15
# Boards have less than half as many. A garbled line has wrong names, and each would be a series.
_RAILS_AT_MOST = 64


class EnergyCounters:
    """Joules of each rail and of the module since the start; they never decrease.

    Between two readings of a rail there is a trapezoid. A gap wider than ``widest_gap_ns`` adds
    nothing, because its power is unknown. The module's power is the sum of the total rails of its
    rule, at samples that have all of them. Without a rule the module total is absent.
    """

    def __init__(self, rule: RailRule | None = None) -> None:
        """Begin at zero."""
        self.rule = rule
        self._rails: dict[str, _Counter] = {}
        self._module: _Counter | None = None
        self._latest_ns: int | None = None
        self._steps: deque[int] = deque(maxlen=_RECENT)

    @property
    def rails(self) -> dict[str, float]:
        """Joules by rail, of every rail that was ever read."""
        return {rail: counter.joules for rail, counter in self._rails.items()}

    @property
    def module_joules(self) -> float | None:
        """Joules of the module; ``None`` until a sample had all rails of the total."""
        return None if self._module is None else self._module.joules

    def feed(self, monotonic_ns: int, values: Mapping[str, float]) -> None:
        """Add one sample, with values as ``flatten`` names them; ignore one that is not later."""
        if self._latest_ns is not None:
            if monotonic_ns <= self._latest_ns:
                return
            self._steps.append(monotonic_ns - self._latest_ns)
        self._latest_ns = monotonic_ns
        widest = widest_gap_ns(statistics.median(self._steps)) if self._steps else 0.0
        power = RAIL_POWER.by_label(values)
        for rail, watts in power.items():
            if rail in self._rails:
                self._rails[rail].add(monotonic_ns, watts, widest)
            elif len(self._rails) < _RAILS_AT_MOST:
                self._rails[rail] = _Counter(monotonic_ns, watts)
        if self.rule is not None and all(rail in power for rail in self.rule.total):
            watts = sum(power[rail] for rail in self.rule.total)
            if self._module is None:
                self._module = _Counter(monotonic_ns, watts)
            else:
                self._module.add(monotonic_ns, watts, widest)


@dataclass(slots=True)
class _Counter:
    """Joules up to the latest reading."""

    at_ns: int
    watts: float
    joules: float = 0.0

    def add(self, at_ns: int, watts: float, widest: float) -> None:
        if at_ns - self.at_ns <= widest:
            self.joules += (self.watts + watts) / 2 * (at_ns - self.at_ns) / 1e9
        self.at_ns, self.watts = at_ns, watts
