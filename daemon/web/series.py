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
from typing import NamedTuple

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


@dataclass(frozen=True)
class ChartWindow:
    """Time range of a chart in wall time; its steps begin at multiples of ``step_ns``."""

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


class ChartLine(NamedTuple):
    """One line of a chart: ``power``, ``load``, ``dla`` or ``temperature``; a gate is 0 or 1."""

    chart: str
    label: str
    column: Sequence[float]
    is_gate: bool = False


class _Figure(NamedTuple):
    """The values of a line in one step."""

    line: ChartLine
    total: float
    samples: int
    highest: float


@dataclass
class _Step:
    number: int
    figures: dict[str, _Figure] = field(default_factory=dict)

    def add(self, lines: Mapping[str, ChartLine], rows: slice) -> None:
        for name, line in lines.items():
            values = [value for value in line.column[rows] if value == value]
            if values:
                _, total, count, highest = self.figures.get(name, (line, 0.0, 0, values[0]))
                self.figures[name] = _Figure(
                    line, total + fsum(values), count + len(values), max(highest, *values)
                )

    def head(self) -> str:
        """Return the begin of a part of the document."""
        lines = [
            {"chart": line.chart, "label": line.label, "gate": line.is_gate}
            for line, *_ in self.figures.values()
        ]
        names = json.dumps([*self.figures])
        return f'{{"columns":{names},"lines":{json.dumps(lines)},"rows":['

    def row(self, step_ns: int) -> str:
        """Return begin, means and highest values."""
        figures = self.figures.values()
        row = (
            round(self.number * step_ns / 1e9, 3),
            [round(one.total / one.samples, 3) for one in figures],
            [round(one.highest, 3) for one in figures],
        )
        return json.dumps(row, separators=(",", ":"))


def series(history: History, timeline: Timeline, window: ChartWindow) -> Generator[str, None, None]:
    """Yield the pieces of a JSON document with the signals of a window.

    It is ``{"step", "parts", "interval"}``, in seconds. A part has the names of its ``columns``,
    their ``lines`` (chart, label and whether it is a gate) and ``rows``: each the begin of a step,
    the means and the highest values. A step without samples has no row, and another part begins
    where other signals are there. ``interval`` is the median time between the latest samples.
    """
    yield f'{{"step":{window.step_ns / 1e9:.10g},"parts":['
    columns: tuple[str, ...] | None = None
    interval: float | None = None
    # Each second of an open page asks for what memory has; the store is not read for it.
    blocks = (
        timeline.blocks_since(window.begin_ns - 1, window.end_ns, _wanted)
        if timeline.covers(window.begin_ns)
        else blocks_between(history, timeline, window.begin_ns - 1, window.end_ns, _wanted)
    )
    for step, latest in _steps(blocks, window):
        names = tuple(step.figures)
        if names != columns:
            yield ("" if columns is None else "]},") + step.head()
        else:
            yield ","
        yield step.row(window.step_ns)
        columns, interval = names, latest
    seconds = None if interval is None else interval / 1e9
    yield f'{"" if columns is None else "]}"}],"interval":{json.dumps(seconds)}}}'


def _steps(blocks: Iterator[Block], window: ChartWindow) -> Iterator[tuple[_Step, float | None]]:
    """Yield steps with the interval of the samples; a clock that was set back begins anew."""
    step: _Step | None = None
    interval: float | None = None
    step_ns = window.step_ns
    for block in blocks:
        lines = lines_of(block.columns)
        interval = interval_ns(block.times_ns[-65:]) or interval
        end = 0
        for number, group in groupby(block.wall_ns, lambda wall: wall // step_ns):
            begin, end = end, end + sum(1 for _ in group)
            if not window.begin_ns <= number * step_ns <= window.end_ns:
                continue
            if step is not None and step.number != number:
                yield step, interval
                step = None
            step = step or _Step(number)
            step.add(lines, slice(begin, end))
    if step is not None:
        yield step, interval


def _wanted(column: str) -> bool:
    """Return whether a column is of a chart."""
    found = signals.split(column)
    return found is not None and found[0] in _SHOWN


def lines_of(columns: Mapping[str, Sequence[float]]) -> dict[str, ChartLine]:
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
        **{f"watts/{rail}": ChartLine("power", rail, column) for rail, column in rails.items()},
        **{
            f"ratio/{name}": ChartLine("load", label, loads[name].column)
            for name, label in _LOADS.items()
            if name in loads
        },
        **{
            f"ratio/{core}:{source}": ChartLine("dla", f"{core.upper()} {label}", column)
            for signal, source, label in _DLA_LOADS
            for core, column in by_core(signal, columns).items()
        },
        **{
            f"on/{core}": ChartLine("dla", f"{core.upper()} on (gate)", column, is_gate=True)
            for core, (_, column) in gate_figures(columns).items()
        },
        **{
            f"celsius/{zone}": ChartLine("temperature", zone, column)
            for zone, (_, column) in zone_figures(columns).items()
        },
    }
