"""Telemetry as the charts need it: a few named signals, in steps that fit a screen.

A quarter of an hour at ten samples a second is a million numbers; a screen has 450 points. So the
samples of a step become one row with the mean and the highest value of each signal. One block of
samples at a time is in memory, however long the window is.
"""

import json
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from math import fsum
from typing import NamedTuple, TypeAlias

from ...parsers import signals
from ..measure.blocks import Block
from ..measure.dla import by_core
from ..measure.energy import interval_ns
from ..measure.timeline import Timeline
from ..measure.utilization import gate_figures, load_figures, zone_figures
from ..store.history import History, blocks_between

# The signals of the charts.
_SHOWN = frozenset(
    {
        *(signals.RAIL_POWER, signals.GPU_LOAD, signals.EMC_LOAD, signals.CPU_LOAD),
        *(signals.DLA_ON, signals.DLA_LOAD, signals.DLA_BUSY, signals.DLA_FIRMWARE_LOAD),
        *(signals.DLA_POWERED, signals.TEMPERATURE),
    }
)
_LOADS = {"gpu": "GPU", "emc": "memory (EMC)", "cpu": "CPU"}
_DLA_LOADS = (
    (signals.DLA_LOAD, "tegrastats", "busy (tegrastats)"),
    (signals.DLA_FIRMWARE_LOAD, "firmware", "busy when asked (firmware)"),
    (signals.DLA_BUSY, "ftrace", "busy (ftrace)"),
    (signals.DLA_POWERED, "powered", "powered"),
)

_Tally: TypeAlias = tuple[float, int, float]


@dataclass(frozen=True)
class ChartWindow:
    """Time range of a chart in wall time, widened to whole steps.

    Steps begin at multiples of ``step_ns``.
    """

    since_ns: int
    until_ns: int
    step_ns: int

    @property
    def begin_ns(self) -> int:
        """Begin of the first step."""
        return self.since_ns // self.step_ns * self.step_ns

    @property
    def end_ns(self) -> int:
        """Last nanosecond of the last step."""
        return (self.until_ns // self.step_ns + 1) * self.step_ns - 1


class Line(NamedTuple):
    """One line of a chart.

    Attributes:
        chart: ``power``, ``load``, ``dla`` or ``temperature``.
        label: Text of its legend.
        column: Its values.
        is_gate: Whether it is 1 or 0, for on and off.
    """

    chart: str
    label: str
    column: Sequence[float]
    is_gate: bool = False

    def described(self) -> dict[str, object]:
        """Return what the page needs to draw it, values apart."""
        return {"chart": self.chart, "label": self.label, "gate": self.is_gate}


@dataclass
class _Row:
    """The samples of one step: sum, count and highest of each line."""

    number: int
    tallies: dict[str, _Tally] = field(default_factory=dict)
    lines: dict[str, Line] = field(default_factory=dict)

    def add(self, lines: Mapping[str, Line], rows: slice) -> None:
        for name, line in lines.items():
            values = [value for value in line.column[rows] if value == value]
            if values:
                total, count, highest = self.tallies.get(name, (0.0, 0, values[0]))
                self.tallies[name] = (
                    total + fsum(values),
                    count + len(values),
                    max(highest, *values),
                )
                self.lines[name] = line

    def head(self) -> str:
        """Return the begin of a part of the document."""
        described = [self.lines[name].described() for name in self.tallies]
        return f'{{"columns":{json.dumps([*self.tallies])},"lines":{json.dumps(described)},"rows":['


def series(history: History, timeline: Timeline, window: ChartWindow) -> Generator[str, None, None]:
    """Yield the pieces of a JSON document with the signals of a window.

    It is ``{"step", "parts", "interval"}``, in seconds. A part has the names of its ``columns``,
    their ``lines`` (chart, label and whether it is a gate) and ``rows``: each the begin of a step,
    the means and the highest values. A step without samples has no row, and another part begins
    where other signals are there. ``interval`` is the median time between the latest samples.

    Args:
        history: The store.
        timeline: The last hour.
        window: Its steps are what the rows are of.
    """
    yield f'{{"step":{window.step_ns / 1e9:.10g},"parts":['
    columns: tuple[str, ...] | None = None
    interval: float | None = None
    # The store is left alone where memory has it all, as it does each second of an open page.
    blocks = (
        timeline.blocks_since(window.begin_ns - 1, window.end_ns, _wanted)
        if timeline.covers(window.begin_ns)
        else blocks_between(history, timeline, window.begin_ns - 1, window.end_ns, _wanted)
    )
    for row, told in _rows(blocks, window):
        names = tuple(row.tallies)
        if names != columns:
            before = "" if columns is None else "]},"
            yield before + row.head()
        yield ("" if names != columns else ",") + _text(row, window.step_ns)
        columns, interval = names, told
    seconds = None if interval is None else interval / 1e9
    yield f'{"" if columns is None else "]}"}],"interval":{json.dumps(seconds)}}}'


def _rows(blocks: Iterator[Block], window: ChartWindow) -> Iterator[tuple[_Row, float | None]]:
    """Yield rows with the interval of the samples; a clock that was set back begins anew."""
    row: _Row | None = None
    interval: float | None = None
    for block in blocks:
        lines = lines_of(block.columns)
        interval = interval_ns(block.times_ns[-65:]) or interval
        for number, rows in _steps(block.wall_ns, window):
            if row is not None and row.number != number:
                yield row, interval
                row = None
            row = row or _Row(number)
            row.add(lines, rows)
    if row is not None:
        yield row, interval


def _steps(wall_ns: Sequence[int], window: ChartWindow) -> Iterator[tuple[int, slice]]:
    """Yield the number of each step, and where its samples stand."""
    begin_ns, end_ns, step_ns = window.begin_ns, window.end_ns, window.step_ns
    at = 0
    for number, group in groupby(wall_ns, lambda wall: wall // step_ns):
        first, at = at, at + sum(1 for _ in group)
        if begin_ns <= number * step_ns <= end_ns:
            yield number, slice(first, at)


def _text(row: _Row, step_ns: int) -> str:
    tallies = row.tallies.values()
    told = (
        round(row.number * step_ns / 1e9, 3),
        [round(total / count, 3) for total, count, _ in tallies],
        [round(highest, 3) for _, _, highest in tallies],
    )
    return json.dumps(told, separators=(",", ":"))


def _wanted(column: str) -> bool:
    """Tell whether a column is of any chart."""
    found = signals.split(column)
    return found is not None and found[0] in _SHOWN


def lines_of(columns: Mapping[str, Sequence[float]]) -> dict[str, Line]:
    """Return the lines of the charts by name; the unit stands before the slash.

    ``watts/RAIL``, ``celsius/ZONE``, ``ratio/gpu``, ``ratio/emc``, ``ratio/cpu`` (mean of the
    online cores), and of each DLA core ``on/dla0``, the gate, and its loads by source, never
    mixed: ``ratio/dla0:ftrace``, ``ratio/dla0:tegrastats``, ``ratio/dla0:firmware``,
    ``ratio/dla0:powered``.

    >>> list(lines_of({"rails.VDD_IN.instant_watts": [5.0], "dla.0.on": [1.0]}))
    ['watts/VDD_IN', 'on/dla0']
    """
    rails = signals.RAIL_POWER.by_label(columns)
    loads = load_figures(columns)
    return {
        **{f"watts/{rail}": Line("power", rail, column) for rail, column in rails.items()},
        **{
            f"ratio/{name}": Line("load", label, loads[name].column)
            for name, label in _LOADS.items()
            if name in loads
        },
        **{
            f"ratio/{core}:{source}": Line("dla", f"{core.upper()} {label}", column)
            for signal, source, label in _DLA_LOADS
            for core, column in by_core(signal, columns).items()
        },
        **{
            f"on/{core}": Line("dla", f"{core.upper()} on (gate)", column, is_gate=True)
            for core, (_, column) in gate_figures(columns).items()
        },
        **{
            f"celsius/{zone}": Line("temperature", zone, column)
            for zone, (_, column) in zone_figures(columns).items()
        },
    }
