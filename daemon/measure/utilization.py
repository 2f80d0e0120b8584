"""Loads, clocks and temperatures of a window, each sample weighted by its share of it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from math import fsum, isnan, nan
from typing import NamedTuple

from ...parsers import signals
from ...parsers.signals import Signal
from .dla import beyond_powered, busy, by_core, powered, troubles, was_busy, was_powered
from .energy import interval_ns
from .run_report import Frequency, Span, Telemetry, Temperature, Utilization
from .slices import Cut

Column = Sequence[float]


class SignalColumn(NamedTuple):
    """One figure over time, with the signal that says how its samples are weighted."""

    signal: Signal
    column: Column


def overlap_ns(times_ns: Sequence[int], window: Span) -> list[float]:
    """Return how much of a window each sample describes.

    tegrastats prints what was since the line before, so sample i describes the time from
    sample i - 1 to itself. Before the first sample one median interval is taken.

    Args:
        times_ns: shape (n,), rising; those of a cut, whose last one may follow the window.
        window: The window.

    Returns:
        shape (n,), nanoseconds; they add up to the window where samples cover it.

    >>> overlap_ns([10, 20, 30], Span(begin_ns=12, end_ns=25))
    [0, 8, 5]
    """
    if not times_ns:
        return []
    starts = [times_ns[0] - (interval_ns(times_ns) or 0), *times_ns[:-1]]
    return [
        max(min(end, window.end_ns) - max(start, window.begin_ns), 0)
        for start, end in zip(starts, times_ns, strict=True)
    ]


def weighted(column: Column, weights: Sequence[float]) -> list[tuple[float, float]]:
    """Pair values with their weights, leaving out what is absent or of no weight."""
    pairs = zip(column, weights, strict=True)
    return [(value, weight) for value, weight in pairs if weight > 0 and not isnan(value)]


def weighted_mean(pairs: Sequence[tuple[float, float]]) -> float:
    """Return the mean of values with weights, never beyond the lowest and highest value."""
    values = [value for value, _ in pairs]
    mean = fsum(v * w for v, w in pairs) / fsum(w for _, w in pairs)
    return min(max(mean, min(values)), max(values))


def telemetry(
    cut: Cut,
    window: Span,
    throttle_events: int | None = None,
    throttle: Mapping[str, int] | None = None,
) -> Telemetry:
    """Describe what the machine did in a window.

    Args:
        cut: Samples of the window with their neighbours.
        window: The steady window.
        throttle_events: How many were counted in it; ``None`` where nothing counts them.
        throttle: The same by kind.
    """
    inside = cut.inside(window.begin_ns, window.end_ns)
    weights = {
        signals.OVER_INTERVAL: overlap_ns(cut.times_ns, window),
        signals.AT_MOMENT: [
            float(inside.start <= at < inside.stop) for at in range(len(cut.times_ns))
        ],
    }
    loads, clocks, gates, zones = (
        {n: weighted(one.column, weights[one.signal.weight]) for n, one in figures.items()}
        for figures in (
            load_figures(cut.columns),
            clock_figures(cut.columns),
            gate_figures(cut.columns),
            zone_figures(cut.columns),
        )
    )
    return Telemetry(
        samples=inside.stop - inside.start,
        utilization={
            name: Utilization(mean_ratio=weighted_mean(pairs), max_ratio=max(pairs)[0])
            for name, pairs in loads.items()
            if pairs
        }
        | busy(cut, window)
        | powered(cut, window),
        frequency={
            name: Frequency(min_hertz=min(pairs)[0], mean_hertz=weighted_mean(pairs))
            for name, pairs in clocks.items()
            if pairs
        },
        temperature={
            name: Temperature(
                start_celsius=t[0][0], max_celsius=max(t)[0], delta_celsius=t[-1][0] - t[0][0]
            )
            for name, t in zones.items()
            if t
        },
        dla_active={name: weighted_mean(pairs) for name, pairs in gates.items() if pairs},
        throttle_events=throttle_events,
        throttle=dict(throttle or {}),
        dla_trace_troubles=troubles(cut, window),
        dla_beyond_powered_seconds=beyond_powered(cut, window),
        power_mode_changes=power_mode_changes(cut, window),
    )


def load_figures(columns: Mapping[str, Column]) -> dict[str, SignalColumn]:
    """Return the loads: ``gpu``, ``emc``, ``cpu``, and each DLA load with its source.

    ``cpu`` is the mean of the cores that were online; an offline core has no load to count.
    """
    return {
        **_joined("gpu", signals.GPU_LOAD, columns),
        **_joined("emc", signals.EMC_LOAD, columns),
        **_joined("cpu", signals.CPU_LOAD, columns),
        **{
            f"{core}:{signal.fixed['source']}": SignalColumn(signal, column)
            for signal in (signals.DLA_LOAD, signals.DLA_FIRMWARE_LOAD)
            for core, column in by_core(signal, columns).items()
        },
    }


def clock_figures(columns: Mapping[str, Column]) -> dict[str, SignalColumn]:
    """Return the clocks: ``gpu``, ``emc``, ``cpu``, ``dla0`` and so on.

    A clock of 0 is a gate, no clock, and is absent here. ``gpu`` is the fastest of its clusters,
    since they share one clock unless they are gated or on their way down; ``cpu`` is the mean of
    the online cores.
    """
    figures = {
        **_joined("gpu", signals.GPU_FREQUENCY, columns, _fastest),
        **_joined("emc", signals.EMC_FREQUENCY, columns),
        **_joined("cpu", signals.CPU_FREQUENCY, columns),
        **{
            n: SignalColumn(signals.DLA_FREQUENCY, c)
            for n, c in by_core(signals.DLA_FREQUENCY, columns).items()
        },
    }
    return {
        name: SignalColumn(signal, [hertz if hertz > 0 else nan for hertz in column])
        for name, (signal, column) in figures.items()
    }


def gate_figures(columns: Mapping[str, Column]) -> dict[str, SignalColumn]:
    """Return 1 and 0 for on and off of each DLA core: ``dla0``, ``dla1``."""
    return {
        core: SignalColumn(signals.DLA_ON, column)
        for core, column in by_core(signals.DLA_ON, columns).items()
    }


def zone_figures(columns: Mapping[str, Column]) -> dict[str, SignalColumn]:
    """Return the temperature of each thermal zone."""
    zones = signals.TEMPERATURE.by_label(columns)
    return {zone: SignalColumn(signals.TEMPERATURE, column) for zone, column in zones.items()}


def dla_was_on(cut: Cut, window: Span, device: str) -> bool | None:
    """Tell whether a DLA core was busy in a window or, where no trace tells, powered.

    A trace of its tasks knows best, for whatever reason the core may have been powered. A sample
    sees the gate at its own time only; the kernel's count of powered time misses nothing between
    two, and needs no root.

    Args:
        cut: Samples of the window with their neighbours.
        window: The steady window.
        device: ``dla0`` or ``dla1``.

    Returns:
        ``None`` where nothing in the window tells of the core.
    """
    traced = was_busy(cut, window, device)
    if traced is not None:
        return traced
    inside = cut.inside(window.begin_ns, window.end_ns)
    columns = (
        by_core(signal, cut.columns).get(device) for signal in (signals.DLA_ON, signals.DLA_LOAD)
    )
    told = [
        value
        for column in columns
        if column is not None
        for value in column[inside]
        if not isnan(value)
    ]
    if any(value > 0 for value in told):
        return True
    counted = was_powered(cut, window, device)
    return counted if counted is not None or not told else False


def power_mode_changes(cut: Cut, window: Span) -> int | None:
    """Count how often the board's power mode changed in a window.

    Args:
        cut: Samples of the window with a neighbour on each side.
        window: The steady window.

    Returns:
        From the last sample at or before the window to the first at or after it; ``None`` where
        nothing tells the mode.
    """
    column = cut.around(window.begin_ns, window.end_ns).columns.get(signals.POWER_MODE.column(), ())
    known = [number for number in column if not isnan(number)]
    return sum(a != b for a, b in pairwise(known)) if known else None


def mean_present(values: Iterable[float]) -> float:
    """Return the mean of what is not NaN; NaN where all is.

    >>> mean_present([0.25, float("nan"), 0.75])
    0.5
    """
    present = [value for value in values if not isnan(value)]
    return fsum(present) / len(present) if present else nan


def _fastest(hertz: Iterable[float]) -> float:
    return max((clock for clock in hertz if clock > 0), default=nan)


def _joined(
    name: str,
    signal: Signal,
    columns: Mapping[str, Column],
    join: Callable[[Iterable[float]], float] = mean_present,
) -> dict[str, SignalColumn]:
    """Return one figure, by its name, for all columns of a signal; none without a column."""
    found = list(signal.by_label(columns).values())
    if not found:
        return {}
    if signal.label is None:
        return {name: SignalColumn(signal, found[0])}
    return {name: SignalColumn(signal, [join(at) for at in zip(*found, strict=True)])}
