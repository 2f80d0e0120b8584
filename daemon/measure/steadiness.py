"""Whether a run was steady at its end: rate, latency, clocks, temperature and throttling."""

import statistics
from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise
from math import isnan

from .run_report import Span
from .slices import WindowSlice
from .utilization import clock_figures, zone_figures

STEADY_WINDOWS = 6
STEADY_INFERENCES = 5
STEADY_RATIO = 1.05
CLOCK_RATIO = 1.01
SLOPE_CELSIUS_PER_SECOND = 0.1
SLOPE_SAMPLES = 5


def last_windows(window: Span) -> list[Span]:
    """Return the last three of six equal windows of the steady phase."""
    edges = [
        window.begin_ns + (window.end_ns - window.begin_ns) * i // STEADY_WINDOWS
        for i in range(STEADY_WINDOWS // 2, STEADY_WINDOWS + 1)
    ]
    return [Span(begin_ns=a, end_ns=b) for a, b in pairwise(edges)]


def not_steady(
    window: Span,
    starts_ns: Sequence[int],
    latency_ns: Sequence[int],
    samples: WindowSlice,
    throttle_events: int | None,
) -> bool:
    """Rule 14: the run was not steady at its end.

    The steady phase is divided into six windows. In the last three, the rate and the median latency
    lie within 5 % of each other, the clocks of GPU, DLA and memory within 1 % (a gate does not
    count as a clock), and no zone warms or cools by 0.1 °C/s. Nothing throttled. Each has five
    inferences or more. Values that the board does not report are ignored, and so is the rate of a
    program that counts no inferences.
    """
    windows = last_windows(window)
    end = Span(begin_ns=windows[0].begin_ns, end_ns=windows[-1].end_ns)
    return (
        (len(starts_ns) > 0 and _uneven(windows, starts_ns, latency_ns))
        or clocks_changed(samples, end)
        or steepest_slope(samples, end) >= SLOPE_CELSIUS_PER_SECOND
        or bool(throttle_events)
    )


def _uneven(windows: list[Span], starts_ns: Sequence[int], latency_ns: Sequence[int]) -> bool:
    cycles, medians = [], []
    for span in windows:
        low, high = bisect_left(starts_ns, span.begin_ns), bisect_left(starts_ns, span.end_ns)
        if high - low < STEADY_INFERENCES:
            return True
        cycles.append((starts_ns[high - 1] - starts_ns[low]) / (high - 1 - low))
        medians.append(statistics.median(latency_ns[low:high]))
    return any(max(figures) > STEADY_RATIO * min(figures) for figures in (cycles, medians))


def clocks_changed(samples: WindowSlice, window: Span) -> bool:
    """Return whether a clock of GPU, DLA or memory changed by more than 1 % in a window."""
    inside = samples.inside(window.begin_ns, window.end_ns)
    for name, (_, column) in clock_figures(samples.columns).items():
        hertz = [clock for clock in column[inside] if not isnan(clock)]
        if name != "cpu" and hertz and max(hertz) > CLOCK_RATIO * min(hertz):
            return True
    return False


def steepest_slope(samples: WindowSlice, window: Span) -> float:
    """Return the steepest change of any zone in a window, in °C/s, by a straight line.

    A zone with fewer than five readings is ignored.
    """
    inside = samples.inside(window.begin_ns, window.end_ns)
    times = [(time - window.begin_ns) / 1e9 for time in samples.times_ns[inside]]
    steepest = 0.0
    for _, column in zone_figures(samples.columns).values():
        points = [(t, c) for t, c in zip(times, column[inside], strict=True) if not isnan(c)]
        if len(points) >= SLOPE_SAMPLES:
            line = statistics.linear_regression(*zip(*points, strict=True))
            steepest = max(steepest, abs(line.slope))
    return steepest
