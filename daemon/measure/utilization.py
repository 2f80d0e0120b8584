"""Loads, clocks, temperatures and throttling of a window.

Each sample is weighted by its share of the window, as its row in ``parsers/signals.py`` says.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from math import fsum, isnan, nan
from typing import NamedTuple

from ...parsers import signals
from ...parsers.signals import Signal
from .blocks import WindowSlice
from .dla import beyond_powered, by_core, counted_shares, trace_errors
from .energy import interval_ns
from .report import Frequency, RunTelemetry, Span, Temperature, Utilization

Series = Sequence[float]
Pairs = list[tuple[float, float]]

NORMAL_CAPS = frozenset({"board_limit", "reliability", "sw_power_cap"})
"""Kinds of throttling that are normal: the clock is as high as a power or voltage budget allows. A
server GPU at full load always runs so. They are counted and shown, and raise no flag. If they make
the clock vary, the run is not steady for that reason."""


class WeightedSeries(NamedTuple):
    """A time series, shape (n,), and the signal that says how its samples are weighted."""

    signal: Signal
    column: Series


def overlap_ns(times_ns: Sequence[int], window: Span) -> list[float]:
    """Return how much of a window each sample describes.

    tegrastats prints means since the previous line, so sample i describes the time from sample
    i - 1 to itself. The first sample describes one median interval.

    Args:
        times_ns: shape (n,), increasing; the last one may follow the window.

    Returns:
        shape (n,), nanoseconds; the sum is the window where samples cover it.

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


def _weighted_mean(pairs: Pairs) -> float:
    """Return the mean of values with weights, never beyond the lowest and highest value."""
    values = [value for value, _ in pairs]
    mean = fsum(v * w for v, w in pairs) / fsum(w for _, w in pairs)
    return min(max(mean, min(values)), max(values))


def telemetry(
    samples: WindowSlice,
    window: Span,
    throttle_events: int | None = None,
    line_source: str | None = None,
) -> RunTelemetry:
    """Return the telemetry of a window.

    ``throttle_events`` were counted elsewhere; ``None`` takes those of the samples. ``line_source``
    is the source of the lines, if it is known.
    """
    inside = samples.inside(window.begin_ns, window.end_ns)
    moments = (float(inside.start <= at < inside.stop) for at in range(len(samples.times_ns)))
    weights = {
        signals.OVER_INTERVAL: overlap_ns(samples.times_ns, window),
        signals.AT_MOMENT: [*moments],
    }

    def present(figures: Mapping[str, WeightedSeries]) -> dict[str, Pairs]:
        """Return values with weights, without absent values, values of no weight and empty rows."""
        found = {}
        for name, (signal, column) in figures.items():
            pairs = zip(column, weights[signal.weight], strict=True)
            found[name] = [(v, weight) for v, weight in pairs if weight > 0 and not isnan(v)]
        return {name: pairs for name, pairs in found.items() if pairs}

    columns = samples.columns
    loads = present(load_figures(columns))
    power = present(_joined("gpu_power", signals.GPU_POWER, columns)).get("gpu_power")
    throttle = throttle_counts(samples, window)
    if throttle_events is None:
        throttle_events = abnormal_events(throttle)
    return RunTelemetry(
        samples=inside.stop - inside.start,
        utilization={
            name: Utilization(mean_ratio=_weighted_mean(pairs), max_ratio=max(pairs)[0])
            for name, pairs in loads.items()
        }
        | counted_shares(samples, window),
        frequency={
            name: Frequency(min_hertz=min(pairs)[0], mean_hertz=_weighted_mean(pairs))
            for name, pairs in present(clock_figures(columns)).items()
        },
        temperature={
            name: Temperature(
                start_celsius=t[0][0], max_celsius=max(t)[0], delta_celsius=t[-1][0] - t[0][0]
            )
            for name, t in present(zone_figures(columns)).items()
        },
        dla_active={
            core: _weighted_mean(pairs) for core, pairs in present(gate_figures(columns)).items()
        },
        throttle_events=throttle_events,
        throttle=throttle or {},
        dla_trace_troubles=trace_errors(samples, window),
        dla_beyond_powered_seconds=beyond_powered(samples, window),
        power_mode_changes=_power_mode_changes(samples, window),
        gpu_power_watts=None if power is None else _weighted_mean(power),
        sources=_sources(columns, "gpu" in loads, power is not None, line_source),
    )


def _sources(
    columns: Mapping[str, Series], has_load: bool, has_power: bool, line_source: str | None
) -> dict[str, str]:
    """Return the source of each figure that several sources can give, as far as it is known."""
    nvml = signals.GPU_LOAD_NVML.fixed["source"]
    load = nvml if 1.0 in columns.get(signals.GPU_LOAD_NVML.column(), ()) else line_source
    found = {"gpu": load if has_load else None, "gpu_power": nvml if has_power else None}
    return {name: source for name, source in found.items() if source is not None}


def load_figures(columns: Mapping[str, Series]) -> dict[str, WeightedSeries]:
    """Return the loads: ``gpu``, ``emc``, ``cpu``, and each DLA load with its source.

    ``cpu`` is the mean of the cores that were online; an offline core has no load.
    """
    return {
        **_joined("gpu", signals.GPU_LOAD, _of_one_source(columns)),
        **_joined("emc", signals.EMC_LOAD, columns),
        **_joined("cpu", signals.CPU_LOAD, columns),
        **{
            f"{core}:{signal.fixed['source']}": WeightedSeries(signal, column)
            for signal in (signals.DLA_LOAD, signals.DLA_FIRMWARE_LOAD)
            for core, column in by_core(signal, columns).items()
        },
    }


def _of_one_source(columns: Mapping[str, Series]) -> Mapping[str, Series]:
    """Return columns in which NVML gives every GPU load that is there, or none of them.

    NVML begins at most once in a session. A slice around that has the loads from then on only.
    """
    load, by_nvml = (columns.get(row.column()) for row in (signals.GPU_LOAD, signals.GPU_LOAD_NVML))
    if load is None or by_nvml is None or 1.0 not in by_nvml:
        return columns
    own = [one if mark == 1.0 else nan for one, mark in zip(load, by_nvml, strict=True)]
    return {**columns, signals.GPU_LOAD.column(): own}


def clock_figures(columns: Mapping[str, Series]) -> dict[str, WeightedSeries]:
    """Return the clocks: ``gpu``, ``emc``, ``cpu``, ``dla0`` and so on.

    A clock of 0 means gated, and is absent here. ``gpu`` is the fastest of its clusters, since they
    share one clock unless they are gated or about to be; ``cpu`` is the mean of the online cores.
    """
    figures = {
        **_joined("gpu", signals.GPU_FREQUENCY, columns, _fastest),
        **_joined("emc", signals.EMC_FREQUENCY, columns),
        **_joined("cpu", signals.CPU_FREQUENCY, columns),
        **_weighted(signals.DLA_FREQUENCY, by_core(signals.DLA_FREQUENCY, columns)),
    }
    return {
        name: WeightedSeries(signal, [hertz if hertz > 0 else nan for hertz in column])
        for name, (signal, column) in figures.items()
    }


def gate_figures(columns: Mapping[str, Series]) -> dict[str, WeightedSeries]:
    """Return 1 and 0 for on and off of each DLA core: ``dla0``, ``dla1``."""
    return _weighted(signals.DLA_ON, by_core(signals.DLA_ON, columns))


def zone_figures(columns: Mapping[str, Series]) -> dict[str, WeightedSeries]:
    """Return the temperature of each thermal zone."""
    return _weighted(signals.TEMPERATURE, signals.TEMPERATURE.by_label(columns))


def _weighted(signal: Signal, columns: Mapping[str, Series]) -> dict[str, WeightedSeries]:
    return {name: WeightedSeries(signal, column) for name, column in columns.items()}


def _joined(
    name: str,
    signal: Signal,
    columns: Mapping[str, Series],
    join: Callable[[Iterable[float]], float] | None = None,
) -> dict[str, WeightedSeries]:
    """Return one series for all columns of a signal, their mean by default; none without one."""
    found = list(signal.by_label(columns).values())
    if not found:
        return {}
    if signal.label is None:
        return {name: WeightedSeries(signal, found[0])}
    joined = [(join or mean_present)(at) for at in zip(*found, strict=True)]
    return {name: WeightedSeries(signal, joined)}


def mean_present(values: Iterable[float]) -> float:
    """Return the mean of the values that are not NaN; NaN without one."""
    present = [value for value in values if not isnan(value)]
    return fsum(present) / len(present) if present else nan


def _fastest(hertz: Iterable[float]) -> float:
    return max((clock for clock in hertz if clock > 0), default=nan)


def throttle_counts(samples: WindowSlice, window: Span) -> dict[str, int] | None:
    """Return the throttle events of a window, by kind; ``None`` if they are not counted.

    They are counted from the last sample at or before its start to the first at or after its end:
    an event between two samples may have been in the window. Throttling that was active already
    counts as one event. A counter that fell was reset.
    """
    around = samples.around(window.begin_ns, window.end_ns).columns
    found: dict[str, int] = {}
    for kind, column in signals.THROTTLE_EVENTS.by_label(around).items():
        known = [i for i, count in enumerate(column) if not isnan(count)]
        if not known:
            continue
        active = around.get(signals.THROTTLE_ACTIVE.column(kind))
        was_active = active is not None and active[known[0]] == 1
        counts = [column[i] for i in known]
        found[kind] = int(sum(b - a if b >= a else b for a, b in pairwise(counts))) + was_active
    return found or None


def abnormal_events(throttle: Mapping[str, int] | None) -> int | None:
    """Return the number of throttle events that are not normal; ``None`` if not counted."""
    if throttle is None:
        return None
    return sum(count for kind, count in throttle.items() if kind not in NORMAL_CAPS)


def _power_mode_changes(samples: WindowSlice, window: Span) -> int | None:
    """Return how often the board's power mode changed; ``None`` if it is unknown."""
    around = samples.around(window.begin_ns, window.end_ns).columns
    known = [mode for mode in around.get(signals.POWER_MODE.column(), ()) if not isnan(mode)]
    return sum(a != b for a, b in pairwise(known)) if known else None
