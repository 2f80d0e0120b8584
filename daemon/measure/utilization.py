"""Loads, clocks, temperatures and throttling of a window.

Each sample is weighted by its share of the window, as its row in ``parsers/signals.py`` says.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from math import fsum, isnan, nan
from typing import NamedTuple

from ...parsers import signals
from ...parsers.signals import Signal
from .blocks import WindowSlice, known_values
from .dla import beyond_powered, by_core, counted_shares, trace_errors
from .energy import interval_ns
from .numerics import dot
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


def mean_present(values: Iterable[float]) -> float:
    """Return the mean of the values that are not NaN; NaN without one."""
    present = known_values(values)
    if not present:
        return nan
    return fsum(present) / len(present)


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
    start = times_ns[0] - (interval_ns(times_ns) or 0)
    overlaps: list[float] = []
    for end in times_ns:
        overlaps.append(max(min(end, window.end_ns) - max(start, window.begin_ns), 0))
        start = end
    return overlaps


def _weighted_mean(pairs: Pairs) -> float:
    """Return the mean of values with weights, never beyond the lowest and highest value."""
    values = [value for value, _ in pairs]
    weights = [weight for _, weight in pairs]
    mean = dot(values, weights) / fsum(weights)
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
    weighted = _Weighted(samples, window)
    columns = samples.columns
    utilization: dict[str, Utilization] = {}
    for name, pairs in weighted.present(load_figures(columns)):
        utilization[name] = Utilization(mean_ratio=_weighted_mean(pairs), max_ratio=max(pairs)[0])
    has_load = "gpu" in utilization
    frequency: dict[str, Frequency] = {}
    for name, pairs in weighted.present(clock_figures(columns)):
        frequency[name] = Frequency(min_hertz=min(pairs)[0], mean_hertz=_weighted_mean(pairs))
    temperature: dict[str, Temperature] = {}
    for name, pairs in weighted.present(zone_figures(columns)):
        first, last = pairs[0][0], pairs[-1][0]
        temperature[name] = Temperature(
            start_celsius=first, max_celsius=max(pairs)[0], delta_celsius=last - first
        )
    dla_active = {}
    for core, pairs in weighted.present(gate_figures(columns)):
        dla_active[core] = _weighted_mean(pairs)
    gpu_watts: float | None = None
    for _, pairs in weighted.present(_joined("gpu_power", signals.GPU_POWER, columns)):
        gpu_watts = _weighted_mean(pairs)
    throttle = throttle_counts(samples, window)
    if throttle_events is None:
        throttle_events = abnormal_events(throttle)
    return RunTelemetry(
        samples=weighted.inside.stop - weighted.inside.start,
        utilization=utilization | counted_shares(samples, window),
        frequency=frequency,
        temperature=temperature,
        dla_active=dla_active,
        throttle_events=throttle_events,
        throttle=throttle or {},
        dla_trace_troubles=trace_errors(samples, window),
        dla_beyond_powered_seconds=beyond_powered(samples, window),
        power_mode_changes=_power_mode_changes(samples, window),
        gpu_power_watts=gpu_watts,
        sources=_sources(columns, has_load, gpu_watts is not None, line_source),
    )


class _Weighted:
    """The samples around a window, each with its weight in it; ``inside`` are those within."""

    def __init__(self, samples: WindowSlice, window: Span) -> None:
        self.inside = samples.inside(window.begin_ns, window.end_ns)
        moments = [0.0] * len(samples.times_ns)
        moments[self.inside] = [1.0] * (self.inside.stop - self.inside.start)
        self._weights = {
            signals.OVER_INTERVAL: overlap_ns(samples.times_ns, window),
            signals.AT_MOMENT: moments,
        }

    def present(self, figures: Mapping[str, WeightedSeries]) -> Iterator[tuple[str, Pairs]]:
        """Yield each series that has values in the window, as values with their weights."""
        for name, (signal, column) in figures.items():
            pairs = []
            for value, weight in zip(column, self._weights[signal.weight], strict=True):
                if weight > 0 and not isnan(value):
                    pairs.append((value, weight))
            if pairs:
                yield name, pairs


def _sources(
    columns: Mapping[str, Series], has_load: bool, has_power: bool, line_source: str | None
) -> dict[str, str]:
    """Return the source of each figure that several sources can give, as far as it is known."""
    nvml = signals.GPU_LOAD_NVML.fixed["source"]
    load_source = line_source
    if 1.0 in columns.get(signals.GPU_LOAD_NVML.column(), ()):
        load_source = nvml
    sources: dict[str, str] = {}
    if has_load and load_source is not None:
        sources["gpu"] = load_source
    if has_power:
        sources["gpu_power"] = nvml
    return sources


def load_figures(columns: Mapping[str, Series]) -> dict[str, WeightedSeries]:
    """Return the loads: ``gpu``, ``emc``, ``cpu``, and each DLA load with its source.

    ``cpu`` is the mean of the cores that were online; an offline core has no load.
    """
    loads = {
        **_joined("gpu", signals.GPU_LOAD, _of_one_source(columns)),
        **_joined("emc", signals.EMC_LOAD, columns),
        **_joined("cpu", signals.CPU_LOAD, columns),
    }
    for signal in (signals.DLA_LOAD, signals.DLA_FIRMWARE_LOAD):
        for core, column in by_core(signal, columns).items():
            loads[f"{core}:{signal.fixed['source']}"] = WeightedSeries(signal, column)
    return loads


def _of_one_source(columns: Mapping[str, Series]) -> Mapping[str, Series]:
    """Return columns in which NVML gives every GPU load that is there, or none of them.

    NVML begins at most once in a session. A slice around that has the loads from then on only.
    """
    load = columns.get(signals.GPU_LOAD.column())
    by_nvml = columns.get(signals.GPU_LOAD_NVML.column())
    if load is None or by_nvml is None or 1.0 not in by_nvml:
        return columns
    of_nvml = []
    for ratio, mark in zip(load, by_nvml, strict=True):
        of_nvml.append(ratio if mark == 1.0 else nan)
    return {**columns, signals.GPU_LOAD.column(): of_nvml}


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
    clocks: dict[str, WeightedSeries] = {}
    for name, (signal, column) in figures.items():
        running = [hertz if hertz > 0 else nan for hertz in column]
        clocks[name] = WeightedSeries(signal, running)
    return clocks


def gate_figures(columns: Mapping[str, Series]) -> dict[str, WeightedSeries]:
    """Return 1 and 0 for on and off of each DLA core: ``dla0``, ``dla1``."""
    return _weighted(signals.DLA_ON, by_core(signals.DLA_ON, columns))


def zone_figures(columns: Mapping[str, Series]) -> dict[str, WeightedSeries]:
    """Return the temperature of each thermal zone."""
    return _weighted(signals.TEMPERATURE, signals.TEMPERATURE.by_label(columns))


def _weighted(signal: Signal, columns: Mapping[str, Series]) -> dict[str, WeightedSeries]:
    """Return columns by name with the signal that says how their samples are weighted."""
    return {name: WeightedSeries(signal, column) for name, column in columns.items()}


def _joined(
    name: str,
    signal: Signal,
    columns: Mapping[str, Series],
    join: Callable[[Iterable[float]], float] = mean_present,
) -> dict[str, WeightedSeries]:
    """Return one series for all columns of a signal, their mean by default; none without one."""
    series = list(signal.by_label(columns).values())
    if not series:
        return {}
    if signal.label is None:
        return {name: WeightedSeries(signal, series[0])}
    joined = [join(at_one_time) for at_one_time in zip(*series, strict=True)]
    return {name: WeightedSeries(signal, joined)}


def _fastest(hertz: Iterable[float]) -> float:
    """Return the fastest clock; NaN if all of them are gated, 0, or absent."""
    fastest = max(known_values(hertz), default=0.0)
    return fastest if fastest > 0 else nan


def throttle_counts(samples: WindowSlice, window: Span) -> dict[str, int] | None:
    """Return the throttle events of a window, by kind; ``None`` if they are not counted.

    They are counted from the last sample at or before its start to the first at or after its end:
    an event between two samples may have been in the window. Throttling that was active already
    counts as one event. A counter that fell was reset.
    """
    around = samples.around(window.begin_ns, window.end_ns)
    counts: dict[str, int] = {}
    for kind, column in signals.THROTTLE_EVENTS.by_label(around.columns).items():
        events = 0.0
        for _, before, _, after in around.steps(column):
            events += after - before if after >= before else after
        first = _first_known(column)
        if first is not None:
            active = around.columns.get(signals.THROTTLE_ACTIVE.column(kind))
            was_active = active is not None and active[first] == 1
            counts[kind] = int(events) + was_active
    return counts or None


def _first_known(column: Sequence[float]) -> int | None:
    """Return the position of the first value that is not absent."""
    for position, value in enumerate(column):
        if not isnan(value):
            return position
    return None


def abnormal_events(throttle: Mapping[str, int] | None) -> int | None:
    """Return the number of throttle events that are not normal; ``None`` if not counted."""
    if throttle is None:
        return None
    return sum(count for kind, count in throttle.items() if kind not in NORMAL_CAPS)


def _power_mode_changes(samples: WindowSlice, window: Span) -> int | None:
    """Return how often the board's power mode changed; ``None`` if it is unknown."""
    around = samples.around(window.begin_ns, window.end_ns).columns
    modes = known_values(around.get(signals.POWER_MODE.column(), ()))
    if not modes:
        return None
    return sum(before != after for before, after in pairwise(modes))
