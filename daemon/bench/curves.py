"""What the figure of a bench shows: named curves in three panels, thinned to what an eye sees."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import floor, isnan, log10, nan
from typing import TypeAlias

from ...parsers.signals import RAIL_POWER
from ..measure.energy import total
from ..measure.slices import Cut
from ..measure.utilization import gate_figures, load_figures, zone_figures
from .result import ModelResult

MOST_POINTS = 480
MOST_ZONES = 4
_NAMES = {"gpu": "GPU", "emc": "memory (EMC)", "cpu": "CPU"}


Piece: TypeAlias = tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Curve:
    """One line of a panel.

    Attributes:
        name: As its label says.
        pieces: Stretches without a gap; of each point seconds since the beginning, and value.
    """

    name: str
    pieces: tuple[Piece, ...]

    @property
    def values(self) -> list[float]:
        """All values, in the order of time."""
        return [value for piece in self.pieces for _, value in piece]


@dataclass(frozen=True)
class Panel:
    """Curves of one unit.

    Attributes:
        title: What they are, with the unit.
        curves: At least one.
        top: Upper end of the axis.
        bottom: Lower end.
        step: Between two ticks.
    """

    title: str
    curves: tuple[Curve, ...]
    top: float
    bottom: float
    step: float


@dataclass(frozen=True)
class Band:
    """One run on the axis of time.

    Attributes:
        device: Where it ran.
        begin: Of its idle phase before, in seconds since the beginning.
        steady_begin: Of the steady phase.
        steady_end: Of the same.
        end: Of its idle phase after.
    """

    device: str
    begin: float
    steady_begin: float
    steady_end: float
    end: float


def bands_of(model: ModelResult, begin_ns: int) -> list[Band]:
    """Return the runs of a model that had a steady phase."""
    found = []
    for report in model.rounds:
        steady = report.phases.get("steady")
        if steady is None:
            continue
        before, after = (report.phases.get(p) for p in ("baseline_before", "baseline_after"))
        edges = (
            (before or steady).begin_ns,
            steady.begin_ns,
            steady.end_ns,
            (after or steady).end_ns,
        )
        found.append(Band(report.device, *((edge - begin_ns) / 1e9 for edge in edges)))
    return found


def panels_of(cut: Cut, model: ModelResult, begin_ns: int) -> list[Panel]:
    """Return power, load and temperature over time; what no sample told has no panel."""
    times = [(time - begin_ns) / 1e9 for time in cut.times_ns]
    loads = {_load_name(name): column for name, (_, column) in load_figures(cut.columns).items()}
    told = {name.partition(" ")[0] for name in loads}
    loads |= {
        f"{core.upper()} on": column
        for core, (_, column) in gate_figures(cut.columns).items()
        if core.upper() not in told and any(on > 0 for on in column)
    }
    percents = {name: [100 * ratio for ratio in column] for name, column in loads.items()}
    zones = {zone: column for zone, (_, column) in zone_figures(cut.columns).items()}
    hottest = sorted(zones, key=lambda zone: -_highest(zones[zone]))[:MOST_ZONES]
    made = (
        _panel("Power, W", times, _watts(cut, model), from_zero=True),
        _panel("Load, %", times, percents, from_zero=True, least_top=100.0),
        _panel("Temperature, °C", times, {zone: zones[zone] for zone in hottest}),
    )
    return [panel for panel in made if panel is not None]


def _load_name(signal: str) -> str:
    """Name a load; one of a DLA with its source.

    >>> _load_name("emc"), _load_name("dla0:tegrastats")
    ('memory (EMC)', 'DLA0 (tegrastats)')
    """
    core, _, source = signal.partition(":")
    return f"{core.upper()} ({source})" if source else _NAMES.get(signal, signal)


def _watts(cut: Cut, model: ModelResult) -> dict[str, Sequence[float]]:
    """Return the power of each rail, and of the module where its rule is known."""
    rails = RAIL_POWER.by_label(cut.columns)
    summed = next((r.energy.total_rails for r in model.rounds if r.energy is not None), ())
    if len(summed) < 2 or not all(name in rails for name in summed):
        return dict(rails)
    curve = total(cut.times_ns, [rails[name] for name in summed])
    by_time = dict(zip(curve.times_ns, curve.watts, strict=True))
    return {"module": [by_time.get(time, nan) for time in cut.times_ns], **rails}


def _panel(
    title: str,
    times: Sequence[float],
    columns: Mapping[str, Sequence[float]],
    *,
    from_zero: bool = False,
    least_top: float = 0.0,
) -> Panel | None:
    curves = [Curve(name, thin(times, column)) for name, column in columns.items()]
    curves = [curve for curve in curves if curve.pieces]
    if not curves:
        return None
    values = [value for curve in curves for value in curve.values]
    low, high = 0.0 if from_zero else min(values), max(*values, least_top)
    step = nice_step(high - low)
    bottom = step * floor(low / step)
    top = bottom + step
    while top < high:
        top += step
    return Panel(title, tuple(curves), top, bottom, step)


def thin(
    times: Sequence[float], column: Sequence[float], most: int = MOST_POINTS
) -> tuple[Piece, ...]:
    """Return at most so many points, neighbours averaged; where all are absent, a gap.

    >>> thin([0.0, 1.0, 2.0, 3.0], [1.0, 3.0, float("nan"), 5.0], most=2)
    (((0.5, 2.0), (3.0, 5.0)),)
    >>> thin([0.0, 1.0, 2.0], [1.0, float("nan"), 5.0])
    (((0.0, 1.0),), ((2.0, 5.0),))
    """
    size = -(-len(times) // most) if times else 1
    pieces: list[list[tuple[float, float]]] = [[]]
    for start in range(0, len(times), size):
        near = slice(start, start + size)
        pairs = zip(times[near], column[near], strict=True)
        group = [(time, value) for time, value in pairs if not isnan(value)]
        if group:
            sums = (sum(numbers) for numbers in zip(*group, strict=True))
            time, value = (number / len(group) for number in sums)
            pieces[-1].append((time, value))
        elif pieces[-1]:
            pieces.append([])
    return tuple(tuple(piece) for piece in pieces if piece)


def nice_step(span: float, ticks: int = 4) -> float:
    """Return a round distance between about so many ticks.

    >>> nice_step(37.0), nice_step(100.0), nice_step(0.0)
    (10.0, 20.0, 1.0)
    """
    if span <= 0:
        return 1.0
    rough = span / ticks
    size: float = 10.0 ** floor(log10(rough))
    return size * next(factor for factor in (1, 2, 5, 10) if factor * size >= 0.75 * rough)


def _highest(column: Sequence[float]) -> float:
    return max((value for value in column if not isnan(value)), default=-1e9)
