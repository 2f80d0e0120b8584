"""What holds: the steady state of a long run, its limits, and what became of its forecast."""

import re
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean

from ...daemon.measure.blocks import WindowSlice, known_values
from ...daemon.measure.figures import mean_of_rounds, mean_watts, present
from ...daemon.measure.report import RunReport
from ...daemon.measure.run_text import ABSENT, celsius, rate, run_rows, with_half
from ...daemon.terminal import duration
from ...parsers import signals
from .document import Block, Heading, Items, Table
from .records import Figure, Forecast, Margin, ModelResult, Sustained

Trips = Mapping[tuple[str, str], float]

LEAST_SECONDS = 120.0
# The last parts of a long run are its steady state.
COUNTED_PARTS = 4
_SETTLED_RATIO, _SETTLED_CELSIUS = 0.01, 1.0
# MODE_15W, 30W, MAXN_40W: NVIDIA names most modes by their budget.
_BUDGET = re.compile(r"(?:^|_)(\d{1,3})W(?:$|_)")
_TRIPS = ("passive", "hot", "critical")
_NO_TRIP = 1000.0
_CURRENT_LIMITS = {
    "warning": signals.RAIL_LIMIT_WARNING,
    "critical": signals.RAIL_LIMIT_CRITICAL,
}


def lowest_trip(trips: Trips, zone: str) -> float:
    """Return the lowest trip point of a zone that does more than to start a fan, or 1000 °C."""
    return min(trips.get((zone, kind), _NO_TRIP) for kind in _TRIPS)


def nearest_zone(cut: WindowSlice, trips: Trips) -> str | None:
    """Return the zone that is nearest to its trip point; without trip points the hottest."""
    left: dict[str, float] = {}
    for zone, column in signals.TEMPERATURE.by_label(cut.columns).items():
        known = known_values(column)
        if known:
            left[zone] = lowest_trip(trips, zone) - known[-1]
    return min(left, key=lambda zone: left[zone], default=None)


def throttled_ns(cut: WindowSlice) -> dict[str, int]:
    """Return when each kind of throttling was first seen to begin."""
    first: dict[str, int] = {}
    for signal in (signals.THROTTLE_EVENTS, signals.THROTTLE_ACTIVE):
        for kind, column in signal.by_label(cut.columns).items():
            for _, before, at_ns, after in cut.steps(column):
                if after > before:
                    first[kind] = min(at_ns, first.get(kind, at_ns))
    return first


def sustained_of(
    reports: Sequence[RunReport], samples: WindowSlice, trips: Trips, forecast: Forecast | None
) -> Sustained:
    """Return what is known of a long run by its parts, in the order of time, and its samples."""
    last, zone = reports[-COUNTED_PARTS:], nearest_zone(samples, trips)
    if forecast is not None and forecast.zone is not None:
        zone = forecast.zone
    throttled: dict[str, float] = {}
    for kind, at_ns in throttled_ns(samples).items():
        throttled[kind] = max(at_ns - reports[0].started_ns, 0) / 1e9
    rates, warmth = _rates_and_warmth(last, samples, zone)
    before = reports[-2 * COUNTED_PARTS : -COUNTED_PARTS]
    earlier_rates, earlier_warmth = _rates_and_warmth(before, samples, zone)
    # By means, because the rate of a part deviates by chance.
    is_settled = len(earlier_rates) == len(rates) == COUNTED_PARTS
    if is_settled and abs(fmean(rates) / fmean(earlier_rates) - 1) > _SETTLED_RATIO:
        is_settled = False
    if warmth and earlier_warmth and abs(fmean(warmth) - fmean(earlier_warmth)) > _SETTLED_CELSIUS:
        is_settled = False
    found = Sustained(
        seconds=(reports[-1].ended_ns - reports[0].started_ns) / 1e9,
        zone=zone,
        rate_per_second=mean_of_rounds(rates),
        celsius=mean_of_rounds(warmth),
        is_settled=is_settled,
        throttled_seconds=throttled,
        margins=tuple(_margins(last, samples, trips, zone)),
        forecast=forecast,
        sentence="",
    )
    return found.model_copy(update={"sentence": _sentence(found)})


def _rates_and_warmth(
    parts: Sequence[RunReport], samples: WindowSlice, zone: str | None
) -> tuple[list[float], list[float]]:
    """Return the rate of each part and its mean temperature, as far as they are known."""
    rates = present([report.throughput_per_second for report in parts])
    column = signals.TEMPERATURE.by_label(samples.columns).get(zone or "", ())
    warmth = []
    for report in parts:
        steady = report.phases["steady"]
        known = known_values(column[samples.inside(steady.begin_ns, steady.end_ns)])
        if known:
            warmth.append(fmean(known))
    return rates, warmth


def _margins(
    last: Sequence[RunReport], samples: WindowSlice, trips: Trips, zone: str | None
) -> Iterator[Margin]:
    """Yield the limits that are known, each beside the highest reading of the steady state."""
    highest: dict[str, float] = {}
    inside = samples.inside(last[0].started_ns, last[-1].ended_ns)
    for name, column in samples.columns.items():
        highest[name] = max(known_values(column[inside]), default=0.0)
    for kind in _TRIPS:
        trip = trips.get((zone or "", kind))
        if trip is not None:
            warmest = highest[signals.TEMPERATURE.column(zone or "")]
            yield Margin(name=f"{zone}, {kind} trip point", value=warmest, limit=trip, unit="°C")
    mode = last[-1].environment.power_mode or ""
    budget, powers = _BUDGET.search(mode), present([mean_watts(report) for report in last])
    if budget is not None and powers:
        name, limit = f"module power, power mode {mode}", float(budget[1])
        yield Margin(name=name, value=fmean(powers), limit=limit, unit="W")
    for kind, signal in _CURRENT_LIMITS.items():
        for rail in signal.by_label(highest):
            amperes = highest.get(signals.RAIL_AMPERES.column(rail))
            if amperes is not None:
                name, limit = f"{rail} current, {kind} limit", highest[signal.column(rail)]
                yield Margin(name=name, value=amperes, limit=limit, unit="A")


# --- words ----------------------------------------------------------------------------------------


def forecast_words(forecast: Forecast) -> str:
    """Return a forecast, or why there is none, in a few words."""
    after = duration(forecast.after_seconds)
    if forecast.celsius is None:
        return f"no forecast after {after}: {forecast.reason}"
    warmth = f"{celsius(forecast.celsius.value)} ± {forecast.celsius.half:.1f} °C"
    return f"forecast after {after}: {with_half(forecast.rate_per_second, rate)}, {warmth}"


def _sentence(found: Sustained) -> str:
    forecast, became = found.forecast, with_half(found.rate_per_second, rate)
    words = "interrupted before the forecast"
    if forecast is not None:
        words = forecast_words(forecast)
    if found.celsius is not None:
        became += f", {celsius(found.celsius.value)}"
    if not found.is_settled:
        return f"{words}; not settled after {duration(found.seconds)}: {became}"
    words += f"; it became {became}"
    if forecast is None or forecast.celsius is None:
        return words
    agrees = _agree(forecast.rate_per_second, found.rate_per_second)
    agrees = agrees and _agree(forecast.celsius, found.celsius)
    return f"{words}: {'held' if agrees else 'MISSED'}"


def _agree(forecast: Figure | None, became: Figure | None) -> bool:
    """Return whether a figure lies within a forecast, as far as its own interval tells."""
    if forecast is None or became is None:
        return False
    return abs(became.value - forecast.value) <= (forecast.half or 0.0) + (became.half or 0.0)


_OVER_TIME = ("throughput", "gross energy per inference", "module power", "hottest")


def sustained_blocks(model: ModelResult) -> Iterator[Block]:
    """Yield what holds on each accelerator: the forecast, the limits, and the run over time."""
    for result in model.accelerators:
        found = result.sustained
        if found is None:
            continue
        items = [("steady state", found.sentence)]
        for kind, after in found.throttled_seconds.items():
            items.append((kind, f"held a clock low, first after {duration(after)}"))
        for margin in found.margins:
            left = margin.limit - margin.value
            words = f"{margin.value:.1f} of {margin.limit:.1f} {margin.unit}, {left:.1f} left"
            items.append((margin.name, words))
        rows = []
        reports = [run for run in model.rounds if run.accelerator == result.device]
        for report in reports:
            until = duration((report.ended_ns - reports[0].started_ns) / 1e9)
            # Without the offset of the sensors, which is one for all.
            texts = {row.label: row.text.partition(",")[0] for row in run_rows(report)}
            clock = ABSENT
            if report.telemetry is not None and report.device in report.telemetry.frequency:
                clock = f"{report.telemetry.frequency[report.device].mean_hertz / 1e6:.0f} MHz"
            rows.append((until, *(texts.get(label, ABSENT) for label in _OVER_TIME), clock))
        yield Heading(f"What holds on {result.device}", 3)
        yield Items(items)
        yield Table(("until", *_OVER_TIME, "clock"), rows)
