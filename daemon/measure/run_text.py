"""The text of a run: its figures as rows of label, value and unit, and as one line.

The log, the commands and the pages all print these rows, so a figure has one name and one rounding
wherever it is read. Here too are the functions that print a number in the unit that fits it.
"""

from collections.abc import Callable, Iterator
from math import floor, isfinite, log10
from typing import NamedTuple, TypeVar

from ...parsers.inference.events import plural
from ...parsers.inference.placement import PlacementVerdict
from .figures import energy_of, joules_of, mean_watts
from .quality import BUSY_RATIO
from .report import Energy, Figure, Interval, Possible, RunReport

T = TypeVar("T")

ABSENT = "–"
_SMALL = ((1.0, ""), (1e-3, "m"), (1e-6, "µ"))


def digits(value: float, significant: int = 3, *, most: int = 300) -> str:
    """Format a number with three digits, of which at most so many are decimals, and no exponent.

    >>> digits(0.0123456), digits(12.3456), digits(12345.6), digits(0.0)
    ('0.0123', '12.3', '12346', '0')
    >>> digits(float("inf"))
    'inf'
    """
    if value == 0:
        return "0"
    if not isfinite(value):
        return str(value)
    decimals = significant - 1 - floor(log10(abs(value)))
    return f"{value:.{min(max(decimals, 0), most)}f}"


def seconds(value: float) -> str:
    """Format a latency.

    >>> seconds(0.0031415), seconds(0.00031415), seconds(-0.02)
    ('3.14 ms', '314 µs', '-20.0 ms')
    """
    return _scaled(value, "s")


def joules(value: float) -> str:
    """Format an energy: ``22.2 mJ``."""
    return _scaled(value, "J")


def _scaled(value: float, unit: str) -> str:
    if value == 0:
        return f"0 {unit}"
    size, prefix = next((row for row in _SMALL if abs(value) >= row[0]), _SMALL[-1])
    return f"{digits(value / size)} {prefix}{unit}"


def watts(value: float) -> str:
    """Format a power: ``4.00 W``."""
    return f"{value:.2f} W"


def rate(value: float) -> str:
    """Format inputs per second: ``2989/s``."""
    return f"{digits(value)}/s"


def percent(ratio: float) -> str:
    """Format a ratio in percent: ``97.3 %``."""
    return f"{100 * ratio:.1f} %"


def points(difference: float) -> str:
    """Format a difference of two ratios: ``89.3 points``."""
    return f"{100 * difference:.1f} points"


def celsius(value: float) -> str:
    """Format a temperature: ``51.0 °C``."""
    return f"{value:.1f} °C"


def mebibytes(size: int) -> str:
    """Format a size in memory: ``3 MiB``."""
    return f"{size / (1 << 20):.0f} MiB"


def shown(value: T | None, show: Callable[[T], str]) -> str:
    """Format a value, or return a dash for ``None``."""
    return ABSENT if value is None else show(value)


def with_half(figure: Figure | None, show: Callable[[float], str]) -> str:
    """Format a figure and the longer half of its interval, or return a dash for ``None``.

    >>> with_half(Figure(value=0.0222, low=0.0212, high=0.0232), joules)
    '22.2 mJ ± 4.5 %'
    >>> with_half(Figure(value=10.0, low=9.0, high=17.0), joules)
    '10.0 J ± 70 %'
    """
    if figure is None:
        return ABSENT
    return f"{show(figure.value)} {half_of(figure)}".rstrip()


def half_of(figure: Figure) -> str:
    """Return the longer half of a figure's interval in percent, or nothing if it is not known."""
    if figure.half is None or figure.value == 0:
        return ""
    half = 100 * figure.half / abs(figure.value)
    # More digits would promise more than a clock or a sensor keeps.
    return "± < 0.1 %" if half < 0.1 else f"± {digits(half, 2)} %"


def ends_of(figure: Figure, show: Callable[[float], str]) -> str:
    """Return the ends of an interval, or half of it in percent where both print the same.

    >>> ends_of(Figure(value=14.0, low=13.0, high=15.0), joules)
    '13.0 J to 15.0 J'
    >>> ends_of(Figure(value=14.0, low=13.999, high=14.001), joules)
    '± < 0.1 %'
    """
    if figure.low is None or figure.high is None:
        return ABSENT
    low, high = show(figure.low), show(figure.high)
    return half_of(figure) if low == high else f"{low} to {high}"


# --- one run --------------------------------------------------------------------------------------

NO_INTERVAL = "(no interval)"
# Beside each kind of energy: the two may name different winners.
WHOLE, ABOVE = "(whole module)", "(above idle)"
_PLACES: dict[PlacementVerdict, str] = {
    "pure_dla": "all layers on the DLA",
    "dla_plus_reformat": "on the DLA, the GPU only reformats tensors",
    "mixed": "layers on both, DLA and GPU",
    "gpu_only": "all layers on the GPU",
    "unknown": "not known",
}
_TERMS = {
    "sampling": "power between two readings is not seen",
    "quantisation": "the sensor rounds",
    "idle_wander": "idle power is not constant",
    "window_edges": "power changes at the ends of the window",
    "baseline_drift": "idle power differs before and after",
    "second_series": "two series of readings disagree",
}


def placement_words(verdict: PlacementVerdict) -> str:
    """Return where the layers run, with the word of the record: ``… (gpu_only)``."""
    return f"{_PLACES[verdict]} ({verdict})"


SHARE_OF_POSSIBLE = "share of the possible"


def possible_words(possible: Possible) -> str:
    """Return the shares of peak and bandwidth, and which of them bounds the counted work.

    >>> possible_words(Possible(bandwidth_ratio=0.12, flops_per_byte=83.4, bound="compute"))
    'by count: 12.0 % of the memory bandwidth, 83.4 FLOP/B, bound by compute'
    """
    parts = []
    if possible.peak_ratio is not None:
        parts.append(f"{percent(possible.peak_ratio)} of the {possible.precision} peak")
    if possible.bandwidth_ratio is not None:
        parts.append(f"{percent(possible.bandwidth_ratio)} of the memory bandwidth")
    if possible.flops_per_byte is not None:
        parts.append(f"{digits(possible.flops_per_byte)} FLOP/B")
    if possible.bound is not None:
        parts.append(f"bound by {possible.bound}")
    if not parts:
        return ""
    return f"by count: {', '.join(parts)}"


class Row(NamedTuple):
    """One fact of a run.

    Attributes:
        value: The number as text, or words.
        unit: Empty for words and plain counts.
        interval: Half the 95 % interval, or that there is none; empty for what never has one.
    """

    label: str
    value: str
    unit: str = ""
    interval: str = ""

    @property
    def text(self) -> str:
        """Value, unit and interval: ``22.2 mJ ± 4.5 %``."""
        return " ".join(part for part in (self.value, self.unit, self.interval) if part)


def headline(report: RunReport) -> str:
    """Return what ran where, and how it ended."""
    words = f"{report.workload} on {report.accelerator}: {report.outcome}"
    return words if report.reason is None else f"{words} · {report.reason}"


def run_rows(report: RunReport) -> list[Row]:
    """Return all that is known of a run in the order of reading; the unknown has no row."""
    return [
        *_work_rows(report),
        *_energy_rows(report),
        *_energy_of_one_rows(report),
        *_board_rows(report),
        *_memory_rows(report),
        *_remark_rows(report),
        Row("run", report.run_id),
    ]


# What a reader of the log looks for; the rest is in the record that the last word names.
_LOGGED = frozenset(
    {
        *("inferences", "units of work", "p50", "placement"),
        *("gross energy per inference", "gross energy per unit"),
        *("energy per piece, saturated", "work in step with", "flags", "others on a DLA"),
        *("others on the GPU", "run"),
    }
)


def run_line(report: RunReport) -> str:
    """Return one line for the log: the outcome of a run and its headline figures."""
    parts = [headline(report)]
    # Where each inference is one unit, the figures of a unit only repeat those of an inference.
    repeated = (
        {"units of work", "gross energy per unit"} if report.units == report.inferences else set()
    )
    for row in run_rows(report):
        if row.label in _LOGGED and row.label not in repeated:
            parts.append(f"{row.label} {row.text}")
    return " · ".join(parts)


def _interval_of(figure: Figure) -> str:
    """Return the half of a figure's interval, or the words that it has none."""
    if figure.half is None:
        return NO_INTERVAL
    return half_of(figure)


def offset_words(energy: Energy, gross: float) -> str:
    """Return what the sensors' offset may add to a gross energy of the window or of a part of it.

    It is not in the interval, because it is the same in every run on a board. The result is empty
    where the offset is not known.
    """
    if energy.offset_joules is None or not energy.gross_joules:
        return ""
    offset = energy.offset_joules * gross / energy.gross_joules
    return f"sensor offset ± {joules(offset)}"


def _gross_interval(energy: Energy | None, gross: Figure) -> str:
    """Return the interval of a gross energy, and the offset that is not in it."""
    interval = _interval_of(gross)
    if energy is None:
        return interval
    return ", ".join(filter(None, (interval, offset_words(energy, gross.value))))


def _figure_row(label: str, text: str, interval: str = "") -> Row:
    """Return the row of a number that was printed with its unit."""
    value, _, unit = text.partition(" ")
    return Row(label, value, unit, interval)


def _work_rows(report: RunReport) -> Iterator[Row]:
    """Yield how much was done, and how fast."""
    steady = report.phases.get("steady")
    if steady is not None:
        yield _figure_row("steady phase", seconds(steady.seconds))
    if report.inferences:
        yield Row("inferences", str(report.inferences))
    if report.units is not None and report.unit is not None:
        yield Row("units of work", f"{report.units:.12g}", plural(report.unit))
        if report.units_per_second is not None:
            pace = digits(report.units_per_second)
            yield Row("units per second", pace, f"{plural(report.unit)}/s")
    if report.throughput_per_second is not None:
        yield Row("throughput", digits(report.throughput_per_second), "inputs/s")
    if "measuring_overhead" in report.quality and report.measuring_share is not None:
        yield _figure_row("time for measuring", percent(report.measuring_share))
    if report.latency is not None:
        yield _figure_row("p50", seconds(report.latency.p50_seconds))
        yield _figure_row("p99", seconds(report.latency.p99_seconds))
    if report.deadline is not None:
        limit = seconds(report.deadline.deadline_seconds)
        yield Row("missed deadlines", str(report.deadline.misses), f"over {limit}")
    if report.possible is not None:
        yield Row(SHARE_OF_POSSIBLE, possible_words(report.possible))
    if report.built is not None and report.built.placement.verdict != "unknown":
        yield Row("placement", placement_words(report.built.placement.verdict))


def _energy_rows(report: RunReport) -> Iterator[Row]:
    """Yield energy and power of the steady phase."""
    energy, power = report.energy, mean_watts(report)
    if energy is None:
        return
    gross, net = joules_of(energy, "gross"), joules_of(energy, "net")
    if gross is not None:
        yield _figure_row(
            f"gross energy {WHOLE}", joules(gross.value), _gross_interval(energy, gross)
        )
    elif energy.rails:
        rails = (f"{name} {watts(rail.mean_watts)}" for name, rail in energy.rails.items())
        yield Row("rails, no module total", ", ".join(rails))
    if net is not None:
        yield _figure_row(f"net energy {ABOVE}", joules(net.value), _interval_of(net))
    elif energy.net_reason is not None:
        yield Row(f"net energy {ABOVE}", f"withheld: {energy.net_reason}")
    if energy.sensor_reason is not None:
        yield Row("sensor", energy.sensor_reason)
    if power is not None:
        yield _figure_row("module power", watts(power))
    if energy.baseline_watts is not None:
        yield _figure_row("idle power", watts(energy.baseline_watts))
    if energy.largest_uncertainty is not None:
        term = energy.largest_uncertainty
        yield Row("largest uncertainty", _TERMS.get(term, term))


def _energy_of_one_rows(report: RunReport) -> Iterator[Row]:
    """Yield the energy of one inference, one unit and one piece of work."""
    gross, net = energy_of(report, "gross"), energy_of(report, "net")
    if gross is not None:
        interval = _gross_interval(report.energy, gross)
        yield _figure_row("gross energy per inference", joules(gross.value), interval)
    if net is not None:
        yield _figure_row("net energy per inference", joules(net.value), _interval_of(net))
    if report.energy is not None and report.unit is not None:
        yield from _unit_rows(report.energy, report.unit)
    if report.lock_in is not None and report.lock_in.joules_per_piece is not None:
        piece = report.lock_in.joules_per_piece
        yield _figure_row("energy per piece, saturated", joules(piece.value), half_of(piece))


def _unit_rows(energy: Energy, unit: str) -> Iterator[Row]:
    """Yield the energy of a unit, such as a token."""
    figures: tuple[tuple[str, float | None, Interval | None], ...] = (
        ("gross energy per unit", energy.joules_per_unit, energy.joules_per_unit_interval),
        ("net energy per unit", energy.net_joules_per_unit, energy.net_joules_per_unit_interval),
    )
    for label, value, limits in figures:
        if value is None:
            continue
        figure = Figure(value=value)
        if limits is not None:
            figure = Figure(value=value, low=limits.low, high=limits.high)
        interval = _interval_of(figure)
        if label == "gross energy per unit":
            interval = _gross_interval(energy, figure)
        number, _, size = joules(value).partition(" ")
        yield Row(label, number, f"{size} per {unit}", interval)


def _board_rows(report: RunReport) -> Iterator[Row]:
    """Yield the load of the board and its hottest zone in the steady phase."""
    if report.telemetry is None:
        return
    loads = []
    for signal, load in report.telemetry.utilization.items():
        loads.append(f"{signal} {percent(load.mean_ratio)} (up to {percent(load.max_ratio)})")
    if loads:
        yield Row("load", ", ".join(loads))
    zones = report.telemetry.temperature
    if zones:
        name = max(zones, key=lambda zone: zones[zone].max_celsius)
        value, _, unit = celsius(zones[name].max_celsius).partition(" ")
        yield Row("hottest", value, f"{unit} {name}", f"({zones[name].delta_celsius:+.1f})")


def _memory_rows(report: RunReport) -> Iterator[Row]:
    """Yield the peaks of the worker's memory, and what was left to all."""
    sizes = {
        "peak memory of the worker": report.process_peak_bytes,
        "peak memory on the device": report.device_peak_bytes,
        "peak GPU memory by process": report.gpu_peak_bytes,
        "least memory available": report.least_available_bytes,
    }
    for label, size in sizes.items():
        if size is not None:
            yield _figure_row(label, mebibytes(size))


def _remark_rows(report: RunReport) -> Iterator[Row]:
    """Yield what to know before the figures are believed."""
    interval = report.environment.telemetry_interval_seconds
    if report.energy is not None and interval is not None and _is_by_one_series(report.energy):
        yield Row("work in step with", f"{1000 * interval:.0f} ms cannot be seen")
    if report.quality:
        yield Row("flags", " ".join(report.quality))
    users = list(report.foreign_dla_processes)
    for process in report.other_processes:
        if process.dla_seconds and process.name not in users:
            users.append(process.name)
    if users:
        yield Row("others on a DLA", ", ".join(users))
    on_gpu = []
    for process in report.other_processes:
        if process.gpu_load_ratio is not None and process.gpu_load_ratio > BUSY_RATIO:
            on_gpu.append(f"{process.name} {percent(process.gpu_load_ratio)}")
    if on_gpu:
        yield Row("others on the GPU", ", ".join(on_gpu))
    if report.overlapping_runs:
        yield Row("overlaps", " ".join(report.overlapping_runs))


def _is_by_one_series(energy: Energy) -> bool:
    """Return whether one series of readings gives the energy; a counter misses nothing between."""
    return energy.gross_method == "integral" and energy.sampling_series == 1
