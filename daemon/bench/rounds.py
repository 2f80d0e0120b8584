"""Rounds of one accelerator, and what they say together: one function a figure."""

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from math import isnan
from typing import Literal, TypeVar

from ...parsers.inference.events import StageName
from ..measure.run_report import Distribution, Flag, Interval, RunReport, Span
from ..measure.run_trace import distribution
from ..measure.slices import Cut
from ..measure.utilization import clock_figures
from .measured import Figure
from .result import ClockRange
from .statistics import interval_half, mean_of_rounds, median_half_width

# Flags that only say that there was no telemetry, where there was none to be had.
_WITHOUT_TELEMETRY: frozenset[Flag] = frozenset({"telemetry_gap", "insufficient_samples"})
# tegrastats prints whole percents.
LOAD_STEP = 0.01

T = TypeVar("T", int, float)


def _integers() -> "array[int]":
    return array("q")


@dataclass(frozen=True)
class Round:
    """One measured run.

    Attributes:
        report: As the daemon would have made it.
        latency_ns: shape (n,), of its inferences, in the order of time.
        device_ns: shape (n,), the same by the device's events; empty where it has none.
        stages_ns: Stage to shape (n,), where the engine tells.
        clocks: Lowest and highest of each clock once it had settled, in hertz.
    """

    report: RunReport
    latency_ns: "array[int]" = field(default_factory=_integers)
    device_ns: "array[int]" = field(default_factory=_integers)
    stages_ns: "Mapping[StageName, array[int]]" = field(default_factory=dict)
    clocks: Mapping[str, tuple[float, float]] = field(default_factory=dict)


def latency_of(rounds: Sequence[Round]) -> Figure | None:
    """Return the mean of the rounds' median latencies."""
    known = [one for one in rounds if one.report.latency is not None]
    medians = present(
        one.report.latency.p50_seconds if one.report.latency else None for one in known
    )
    return mean_of_rounds(medians, [median_half_width(one.latency_ns) for one in known])


def stages_of(rounds: Sequence[Round]) -> dict[StageName, Distribution]:
    """Describe each stage of the inferences of all rounds."""
    names = rounds[0].stages_ns if rounds else {}
    joined = {
        stage: array("q", chain.from_iterable(one.stages_ns.get(stage, ()) for one in rounds))
        for stage in names
    }
    described = {stage: distribution(durations) for stage, durations in joined.items()}
    return {stage: one for stage, one in described.items() if one is not None}


def clock_ranges(cut: Cut, window: Span) -> dict[str, tuple[float, float]]:
    """Return lowest and highest of each clock in the second half of a steady phase.

    The first half is left out: clocks rise from idle when work begins.
    """
    inside = cut.inside((window.begin_ns + window.end_ns) // 2, window.end_ns)
    told = {
        name: [hertz for hertz in column[inside] if not isnan(hertz)]
        for name, (_, column) in clock_figures(cut.columns).items()
    }
    return {name: (min(hertz), max(hertz)) for name, hertz in told.items() if hertz}


def clocks_of(rounds: Sequence[Round]) -> dict[str, ClockRange]:
    """Return the range of each clock over all rounds."""
    told: dict[str, list[float]] = {}
    for one in rounds:
        for name, ends in one.clocks.items():
            told.setdefault(name, []).extend(ends)
    return {
        name: ClockRange(lowest_hertz=min(ends), highest_hertz=max(ends))
        for name, ends in told.items()
    }


def joules_of(reports: Sequence[RunReport], kind: Literal["gross", "net"]) -> Figure | None:
    """Return the energy of an inference, of the rounds in which it is not withheld.

    One round in a hundred keeps step with its samples by chance, and is withheld for it; so more
    than half of the rounds are enough, and fewer show that something is the matter.
    """
    known = []
    for report in reports:
        energy = report.energy
        value = None if energy is None else getattr(energy, f"{kind}_joules_per_inference")
        if energy is not None and value is not None:
            interval: Interval | None = getattr(energy, f"{kind}_interval")
            known.append((value, interval_half(interval, report.inferences)))
    return _of_most(known, reports)


def joules_by_counter(reports: Sequence[RunReport]) -> Figure | None:
    """Return the same by the rails' own counters, where they have them."""
    known = [
        (
            energy.counter_joules / report.inferences,
            None
            if energy.counter_edge_joules is None
            else energy.counter_edge_joules / report.inferences,
        )
        for report in reports
        if (energy := report.energy) is not None
        and energy.gross_joules_per_inference is not None
        and energy.counter_joules is not None
    ]
    return _of_most(known, reports)


def _of_most(
    known: Sequence[tuple[float, float | None]], reports: Sequence[RunReport]
) -> Figure | None:
    if 2 * len(known) <= len(reports):
        return None
    return mean_of_rounds([value for value, _ in known], [half for _, half in known])


def watts_of(report: RunReport) -> float | None:
    """Return the mean power of the module in a round; ``None`` where it is not known."""
    window = report.phases.get("steady")
    if report.energy is None or report.energy.gross_joules is None or window is None:
        return None
    return report.energy.gross_joules / window.seconds


def loads_of(reports: Sequence[RunReport]) -> dict[str, Figure]:
    """Return the mean load by signal."""
    return _means(
        reports,
        lambda report: {
            name: load.mean_ratio
            for name, load in (report.telemetry.utilization if report.telemetry else {}).items()
        },
    )


def gates_of(reports: Sequence[RunReport]) -> dict[str, float]:
    """Return for how much of the time each DLA core was powered."""
    gates = _means(reports, lambda report: report.telemetry.dla_active if report.telemetry else {})
    return {name: min(max(figure.value, 0.0), 1.0) for name, figure in gates.items()}


def _means(
    reports: Sequence[RunReport], read: Callable[[RunReport], dict[str, float]]
) -> dict[str, Figure]:
    """Return the mean of each named ratio that every round has."""
    columns = [read(report) for report in reports]
    names = [name for name in (columns[0] if columns else {}) if all(name in c for c in columns)]
    means = {
        name: mean_of_rounds([column[name] for column in columns], floor=LOAD_STEP / 2)
        for name in names
    }
    return {name: figure for name, figure in means.items() if figure is not None}


def told_flags(report: RunReport) -> list[Flag]:
    """Return a round's flags, less those that only say that there was no telemetry."""
    seen = report.telemetry is not None
    return [flag for flag in report.quality if seen or flag not in _WITHOUT_TELEMETRY]


def present(values: Iterable[T | None]) -> list[T]:
    """Leave out what is not known."""
    return [value for value in values if value is not None]
