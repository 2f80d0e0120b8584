"""The quality flags of a run, each a pure function."""

import statistics
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from math import isnan
from typing import get_args

from ...parsers.inference.events import Outputs
from ...parsers.inference.placement import Built, Placement
from ...parsers.signals import GPU_LOAD, LATE_SECONDS
from ...parsers.values import DLAS
from .blocks import WindowSlice, known_values
from .energy import interval_ns, widest_gap_ns
from .numerics import differences
from .report import EnergyMethod, Flag, Span
from .utilization import clock_figures, zone_figures

# docs/decisions/interval.md, "Limits of the flags"
# docs/measurement.md has them for users.
MINIMUM_SECONDS, MINIMUM_SAMPLES, MINIMUM_INFERENCES = 10.0, 100, 200
FLAGGED_GAP_INTERVALS = 2.5
WALL_STEP_NS = 50_000_000
WALL_SLEW_RATIO = 0.001
SUSPEND_NS = 50_000_000
LATE_AT_MOST_SECONDS = 0.05
MEASURING_SHARE = 0.05
FP32_DIFFERENCE, OTHER_DIFFERENCE = 0.001, 0.01
BUSY_RATIO = 0.05
# docs/decisions/interval.md, "Drift"
DRIFT_RATIO = 0.05
WITHHOLDING: frozenset[Flag] = frozenset(
    {"insufficient_samples", "aliased", "overlapped", "sensor_suspect"}
)
OF_SAMPLING: frozenset[Flag] = frozenset({"aliased", "sensor_suspect"})
"""Of these, the flags of the readings of power, which an energy counter does without."""
# docs/decisions/interval.md, "Limits of the flags"
LOAD_LAG_NS = 1_000_000_000
"""A load is a mean of the time before its sample, with NVML of up to one second."""
FEWEST_LOADS = 2


def withholding(raised: Iterable[Flag], method: EnergyMethod | None) -> tuple[Flag, ...]:
    """Return the flags that withhold energy per inference and per unit, measured by a method."""
    relevant = WITHHOLDING
    if method == "counter":
        relevant = WITHHOLDING - OF_SAMPLING
    return in_order(relevant.intersection(raised))


def late_seconds(samples: WindowSlice) -> float:
    """Return by how much the time of any sample may be too late."""
    late = known_values(samples.columns.get(LATE_SECONDS.column(), ()))
    return max(late, default=0.0)


def timed(samples: WindowSlice) -> WindowSlice:
    """Return the samples whose time is known.

    A sample that may be late by a gap across which power is unknown counts as lost.
    """
    late = samples.columns.get(LATE_SECONDS.column(), ())
    longest = widest_gap_ns(interval_ns(samples.times_ns) or 0.0) / 1e9
    # An unknown lateness, NaN, is not greater than the limit.
    usable = [position for position, seconds in enumerate(late) if not seconds > longest]
    if len(usable) == len(late):
        return samples
    return samples.only(usable)


def insufficient_samples(
    seconds: float, samples: int | None, inferences: int | None, units: float | None = None
) -> bool:
    """Return whether the steady window is too short, or has too few samples or too little work.

    That is less than 10 s, fewer than 100 samples, or neither 200 inferences nor 200 units of work.
    Units count because an answer of a language model is one inference and many tokens.

    ``inferences`` and ``units`` are ``None`` for a program that does not count them. If it counts
    neither, the amount of work is not judged. ``samples`` is ``None`` where the energy is that of a
    counter, not of samples.
    """
    if seconds < MINIMUM_SECONDS:
        return True
    if samples is not None and samples < MINIMUM_SAMPLES:
        return True
    if inferences is None and units is None:
        return False
    return max(inferences or 0, units or 0) < MINIMUM_INFERENCES


def overlapping(window: Span, others: Mapping[str, Iterable[Span]]) -> tuple[str, ...]:
    """Return the runs of which a working phase overlaps a window, in the given order.

    Phases that only touch it do not overlap.
    """
    overlapping_runs: list[str] = []
    for run_id, phases in others.items():
        for phase in phases:
            if phase.begin_ns < window.end_ns and window.begin_ns < phase.end_ns:
                overlapping_runs.append(run_id)
                break
    return tuple(overlapping_runs)


def busiest_gpu_ratio(samples: WindowSlice, idle: Iterable[Span]) -> float | None:
    """Return the mean GPU load of the busiest idle phase, in which nothing of ours works.

    The first second of a phase does not count, because a load describes the time before its sample.
    The result is ``None`` if no phase has two later samples with a load.
    """
    column = samples.columns.get(GPU_LOAD.column())
    if column is None:
        return None
    means = []
    for phase in idle:
        inside = samples.inside(phase.begin_ns + LOAD_LAG_NS, phase.end_ns)
        loads = known_values(column[inside])
        if len(loads) >= FEWEST_LOADS:
            means.append(statistics.fmean(loads))
    return max(means, default=None)


def baseline_drift(difference_watts: float, uncertainty_watts: float, net_watts: float) -> bool:
    """Return whether idle power before and after the work differs too much for a net figure.

    The limits are the uncertainty of both and a twentieth of the net power. Any run warms the board
    a little, and leakage follows. A smaller difference widens the interval of the net energy and
    needs no flag.

    ``uncertainty_watts`` is half the 95 % interval of that difference, and ``net_watts`` the mean
    power of the window minus the idle power.
    """
    return abs(difference_watts) > max(uncertainty_watts, DRIFT_RATIO * abs(net_watts))


def clock_step(times_ns: Sequence[int], wall_ns: Sequence[int]) -> bool:
    """Return whether the wall clock was set in the window, forwards or back, by more than 50 ms.

    Between neighbouring samples it may also run faster or slower by a thousandth, because time
    daemons do that. Figures use the monotonic clock, so only wall times are affected.

    Both times have shape (n,): samples of the window and its neighbours.
    """
    for wall, time in zip(differences(wall_ns), differences(times_ns), strict=True):
        if abs(wall - time) > WALL_STEP_NS + WALL_SLEW_RATIO * time:
            return True
    return False


def suspended(suspended_ns: int) -> bool:
    """Return whether the machine slept in the window.

    ``suspended_ns`` is the growth of CLOCK_BOOTTIME minus CLOCK_MONOTONIC. Two reads are never
    simultaneous, so up to 50 ms does not count as sleep.
    """
    return suspended_ns > SUSPEND_NS


def telemetry_gap(times_ns: Sequence[int], window: Span) -> bool:
    """Return whether samples are missing in the window or at an edge of it.

    Two neighbours with at least one in the window are more than 2.5 median intervals apart (two
    lines in a row were lost), or an edge has no sample on or beyond it.

    ``times_ns`` has shape (n,) and includes the neighbours of the window.
    """
    interval = interval_ns(times_ns)
    if interval is None or times_ns[0] > window.begin_ns or times_ns[-1] < window.end_ns:
        return True
    for before, after in pairwise(times_ns):
        is_in_window = after > window.begin_ns and before < window.end_ns
        if is_in_window and after - before > FLAGGED_GAP_INTERVALS * interval:
            return True
    return False


def fallback(device: str, placement: Placement | None) -> bool:
    """Return whether computing layers ran on the GPU although a DLA was requested.

    A placement of ``None`` or ``unknown`` raises no flag.
    """
    if placement is None or device not in DLAS:
        return False
    return placement.verdict in ("mixed", "gpu_only") or bool(placement.gpu_layers)


def dla_not_used(device: str, placement: Placement | None, was_on: bool | None) -> bool:
    """Return whether a run that should have used the DLA left it idle.

    Either the engine contains nothing for it, or the telemetry shows the core off all the time: the
    driver keeps a core powered for half a second after each task, so a working core is on in some
    sample, and its powered time grows.

    A placement of ``None`` or ``unknown`` raises no flag. ``was_on`` is the result of
    ``dla_was_on``.
    """
    if device not in DLAS:
        return False
    return was_on is False or (placement is not None and placement.verdict == "gpu_only")


def outputs_changed(outputs: Outputs | None, built: Built | None) -> bool:
    """Return whether the last inference of a run differs from the engine's first run.

    Equal bits are equal. Some kernels add in an order that is not fixed, so other bits may differ
    by 1 % (norm of the difference over that of the worst channel), in an engine of fp32 alone by
    0.1 %.
    """
    if outputs is None or outputs.difference is None:
        return False
    if built is not None and set(built.layer_types) == {"fp32"}:
        return outputs.difference > FP32_DIFFERENCE
    return outputs.difference > OTHER_DIFFERENCE


def raised(found: Mapping[Flag, bool]) -> set[Flag]:
    """Return the flags that were found to be true."""
    return {flag for flag, is_true in found.items() if is_true}


def in_order(flags: Iterable[Flag]) -> tuple[Flag, ...]:
    """Return flags once each, in the order of ``Flag``."""
    wanted = set(flags)
    return tuple(flag for flag in get_args(Flag) if flag in wanted)


# docs/decisions/interval.md, "Limits of the flags"
STEADY_WINDOWS = 6
STEADY_INFERENCES = 5
STEADY_RATIO = 1.05
CLOCK_RATIO = 1.01
SLOPE_CELSIUS_PER_SECOND = 0.1
SLOPE_SAMPLES = 5


def last_windows(window: Span) -> list[Span]:
    """Return the last three of six equal windows of the steady phase."""
    length = window.end_ns - window.begin_ns
    windows: list[Span] = []
    for number in range(STEADY_WINDOWS // 2, STEADY_WINDOWS):
        begin_ns = window.begin_ns + length * number // STEADY_WINDOWS
        end_ns = window.begin_ns + length * (number + 1) // STEADY_WINDOWS
        windows.append(Span(begin_ns=begin_ns, end_ns=end_ns))
    return windows


def not_steady(
    window: Span,
    starts_ns: Sequence[int],
    latency_ns: Sequence[int],
    samples: WindowSlice,
    throttle_events: int | None,
) -> bool:
    """Return whether the run was not steady at its end.

    The steady phase is divided into six windows. In the last three, the rate and the median latency
    lie within 5 % of each other, the clocks of GPU, DLA and memory within 1 % (a gate does not
    count as a clock), and no zone warms or cools by 0.1 °C/s. Nothing throttled. Each has five
    inferences or more. Values that the board does not report are ignored, and so is the rate of a
    program that counts no inferences.
    """
    windows = last_windows(window)
    end = Span(begin_ns=windows[0].begin_ns, end_ns=windows[-1].end_ns)
    if throttle_events:
        return True
    if len(starts_ns) > 0 and _uneven(windows, starts_ns, latency_ns):
        return True
    if clocks_changed(samples, end):
        return True
    return steepest_slope(samples, end) >= SLOPE_CELSIUS_PER_SECOND


def _uneven(windows: list[Span], starts_ns: Sequence[int], latency_ns: Sequence[int]) -> bool:
    """Return whether rate or median latency differ between windows, or one is nearly empty."""
    cycles, medians = [], []
    for span in windows:
        low, high = bisect_left(starts_ns, span.begin_ns), bisect_left(starts_ns, span.end_ns)
        if high - low < STEADY_INFERENCES:
            return True
        cycles.append((starts_ns[high - 1] - starts_ns[low]) / (high - 1 - low))
        medians.append(statistics.median(latency_ns[low:high]))
    is_rate_uneven = max(cycles) > STEADY_RATIO * min(cycles)
    return is_rate_uneven or max(medians) > STEADY_RATIO * min(medians)


def clocks_changed(samples: WindowSlice, window: Span) -> bool:
    """Return whether a clock of GPU, DLA or memory changed by more than 1 % in a window."""
    inside = samples.inside(window.begin_ns, window.end_ns)
    for name, (_, column) in clock_figures(samples.columns).items():
        hertz = known_values(column[inside])
        if name != "cpu" and hertz and max(hertz) > CLOCK_RATIO * min(hertz):
            return True
    return False


def steepest_slope(samples: WindowSlice, window: Span) -> float:
    """Return the steepest change of any zone in a window, in °C/s, by a straight line.

    A zone with fewer than five readings is ignored, and so is one that changes by no more than the
    step of its thermometer, which is the smallest difference between two of its readings.
    """
    inside = samples.inside(window.begin_ns, window.end_ns)
    steepest = 0.0
    for _, column in zone_figures(samples.columns).values():
        times, celsius = [], []
        for time_ns, degrees in zip(samples.times_ns[inside], column[inside], strict=True):
            if not isnan(degrees):
                times.append((time_ns - window.begin_ns) / 1e9)
                celsius.append(degrees)
        if len(times) < SLOPE_SAMPLES:
            continue
        slope = abs(statistics.linear_regression(times, celsius).slope)
        levels = sorted(set(known_values(column)))
        step = min(differences(levels), default=0.0)
        if slope * (times[-1] - times[0]) > 1.5 * step:
            steepest = max(steepest, slope)
    return steepest
