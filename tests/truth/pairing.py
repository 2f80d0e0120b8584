"""The ground truth's windows through the product: the figures that it publishes, with intervals.

The only file of this folder, apart from ``live.py``, that knows the product.
"""

import inspect
import os
import tempfile
import threading
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pandas

from tegrascope.collectors.base import Stamped
from tegrascope.collectors.board.boards import find_rail_rule
from tegrascope.collectors.children.process import DescriptorReader
from tegrascope.collectors.lines.collector import TegrastatsCollector
from tegrascope.daemon.export.snapshot import LiveState, Snapshot
from tegrascope.daemon.measure.blocks import WindowSlice
from tegrascope.daemon.measure.correlate import correlate
from tegrascope.daemon.measure.report import Device, Environment, RunReport, Span
from tegrascope.daemon.measure.running_energy import EnergyCounters
from tegrascope.daemon.measure.timeline import Timeline
from tegrascope.daemon.measure.trace import RunTrace
from tegrascope.daemon.session.telemetry import TelemetryFeed
from tegrascope.parsers.inference.events import Inferences, Phase
from tegrascope.parsers.rails import RailRule
from tegrascope.workbench.tables import frames

from .board import Board
from .regimes import Window

ORIGIN_NS = 1_000_000_000_000
WALL_NS = 1_767_225_600_000_000_000
_ARGUMENTS = inspect.signature(correlate).parameters
_ACCEPTS_AVERAGING = "averaging_seconds" in _ARGUMENTS
_ACCEPTS_PHASES = "Sequence[" in str(_ARGUMENTS["others"].annotation)
"""Whether another run is given as all its working phases, and not as its steady window alone."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A published energy of a window in joules, with its 95 % interval; absent if withheld."""

    joules: float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def is_published(self) -> bool:
        """Whether there is a headline figure."""
        return self.joules is not None

    def holds(self, truth: float) -> bool:
        """Return whether the interval contains the truth; without an interval it does not."""
        return self.low is not None and self.high is not None and self.low <= truth <= self.high


@dataclass(frozen=True, slots=True)
class Paired:
    """The product's figures of one window, and the flags of the report."""

    gross: Figure
    net: Figure
    flags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LiveRun:
    """A window as the daemon pairs it: its report, and what that was made of."""

    report: RunReport
    samples: WindowSlice
    rule: RailRule | None
    environment: Environment


def pair_live(window: Window, run_id: str, second: tuple[Any, Any] | None = None) -> Paired:
    """Pair a window as the daemon does, and return its figures; arguments as of ``run_live``."""
    report = run_live(window, run_id, second).report
    energy = report.energy
    if energy is None:
        return Paired(Figure(), Figure(), report.quality)
    return Paired(
        _figure(energy.gross_joules_per_inference, energy.gross_joules, energy.gross_interval),
        _figure(energy.net_joules_per_inference, energy.net_joules, energy.net_interval),
        report.quality,
    )


def run_live(
    window: Window, run_id: str, second: tuple[Any, Any] | None = None, device: Device = "gpu"
) -> LiveRun:
    """Pair a window as the daemon does: starts, latencies and idle phases are known.

    ``second`` is that of the window, or ``None`` for a board where nothing else is read.
    """
    before, after = window.idle_phases
    trace = RunTrace(
        run_id=run_id,
        workload="truth",
        backend="command",
        device=device,
        started_ns=ns_of(before[0]),
        started_wall_ns=WALL_NS,
        ended_ns=ns_of(after[1]),
        outcome="ok",
    )
    spans = {
        "baseline_before": before,
        "steady": (window.begin, window.end),
        "baseline_after": after,
    }
    for name, (begin, end) in spans.items():
        for edge, at in (("begin", begin), ("end", end)):
            assert trace.add(Phase(run_id=run_id, phase=name, edge=edge, at_ns=ns_of(at)))
    load = window.setup.load
    starts = np.rint(load.starts * 1e9).astype(np.int64) + ORIGIN_NS
    seconds = np.rint(load.seconds * 1e9).astype(np.int64)
    assert trace.add(
        Inferences(run_id=run_id, start_ns=starts.tolist(), latency_ns=seconds.tolist())
    )
    others: dict[str, Any] = {}
    for number, other in enumerate(window.setup.others):
        span = Span(begin_ns=ns_of(other.begin), end_ns=ns_of(other.end))
        others[f"other{number}"] = (span,) if _ACCEPTS_PHASES else span
    samples = samples_of(window, before[0], after[1])
    averages = window.setup.sensor.stated_seconds
    more: dict[str, Any] = {"averaging_seconds": averages} if _ACCEPTS_AVERAGING else {}
    board = window.setup.board
    if second is not None and "second" in _ARGUMENTS:
        times, watts = second
        kept = (times > before[0]) & (times < after[1])
        more["second"] = _slice(times[kept], times[kept], _columns(board, watts[:, kept]))
    rule = find_rail_rule([*(rail.name for rail in board.rails), *board.contained])
    environment = Environment(rail_sensors=_rail_sensors(averages))
    report = correlate(trace, samples, rule=rule, others=others, environment=environment, **more)
    return LiveRun(report, samples, rule, environment)


def samples_of(window: Window, begin: float, end: float) -> WindowSlice:
    """Return the samples that the daemon keeps of a window's lines.

    Lines that arrive late or in blocks go through the product's own reader, collector and feed,
    which may give a line another time than its arrival. Other lines have their arrival as time.
    """
    printing = window.setup.printing
    if printing.block > 1 or printing.late_seconds:
        return _collected(window).cut(ns_of(begin), ns_of(end))
    lines, board = window.lines, window.setup.board
    columns = _columns(board, lines.watts)
    columns |= dict(zip(board.contained, window.contained, strict=True))
    whole = _slice(lines.arrived, window.wall(lines.arrived), columns)
    return whole.around(ns_of(begin), ns_of(end))


def _columns(board: Board, watts: Any) -> dict[str, Any]:
    return {rail.name: watts[i] for i, rail in enumerate(board.rails)}


def _slice(arrived: Any, walls: Any, columns: dict[str, Any]) -> WindowSlice:
    times = np.rint(arrived * 1e9).astype(np.int64) + ORIGIN_NS
    wall_ns = np.rint(walls * 1e9).astype(np.int64) + WALL_NS
    return WindowSlice(
        array("q", times.tobytes()),
        array("q", wall_ns.tobytes()),
        {
            f"rails.{name}.instant_watts": array("d", values.tobytes())
            for name, values in columns.items()
        },
    )


class _SetClock:
    """A clock that stands at the arrival of the present block."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def monotonic_ns(self) -> int:
        return ns_of(self.seconds)

    def wall_ns(self) -> int:
        return ns_of(self.seconds) - ORIGIN_NS + WALL_NS

    def boottime_ns(self) -> int:
        return self.monotonic_ns()

    def wait(self, _event: threading.Event, _until_ns: int) -> bool:
        return False


class _WorldSource:
    """The lines of a window from a pipe: each block is one write, and is read when it arrives."""

    name = "stream"
    is_live = True
    restarts = 0
    problem = None

    def __init__(self, window: Window) -> None:
        self.interval_seconds = window.setup.printing.interval
        self._window = window

    def lines(self) -> Iterator[Stamped[str]]:
        lines, clock = self._window.lines, _SetClock()
        texts = list(log_lines(self._window))
        ours, theirs = os.pipe()
        reader = DescriptorReader(ours, clock=clock)
        try:
            for at in np.unique(lines.arrived):
                clock.seconds = float(at)
                block = np.flatnonzero(lines.arrived == at)
                os.write(theirs, "".join(texts[i] + "\n" for i in block).encode())
                while reader.has_line():
                    line = reader.read()
                    assert isinstance(line, Stamped)
                    yield line
        finally:
            reader.end()
            os.close(ours)
            os.close(theirs)

    def stop(self) -> None:
        """Nothing waits."""


def _collected(window: Window) -> Timeline:
    """Return the timeline that the daemon's feed fills from the lines of a window."""
    timeline = Timeline()
    collector = TegrastatsCollector(_WorldSource(window))
    feed = TelemetryFeed(
        collector,
        timeline=timeline,
        energy=EnergyCounters(),
        live=LiveState(Snapshot()),
        occupancy=lambda _begin_ns, _end_ns: {},
    )
    for sample in collector.collect():
        feed.take(sample)
    return timeline


def log_lines(window: Window, base: float = 0.0) -> Iterator[str]:
    """Yield the lines as tegrastats prints them, ``base`` seconds after the first of January.

    The second number of a rail, the mean since the start, is that of this window.
    """
    lines, board = window.lines, window.setup.board
    watts = np.concatenate([lines.watts, window.contained])
    means = np.cumsum(watts, axis=1) / np.arange(1, len(lines.printed) + 1)
    names = [*(rail.name for rail in board.rails), *board.contained]
    for i, at in enumerate(window.wall(lines.printed)):
        stamp = datetime.fromtimestamp(WALL_NS // 10**9 + base + at, timezone.utc)
        rails = " ".join(
            f"{name} {watts[r, i] * 1e3:.0f}mW/{means[r, i] * 1e3:.0f}mW"
            for r, name in enumerate(names)
        )
        load = 50 * bool(window.begin <= lines.printed[i] <= window.end)
        yield (
            f"{stamp:%m-%d-%Y %H:%M:%S} RAM 1000/7607MB (lfb 1x4MB)"
            f" CPU [5%@1728] GR3D_FREQ {load}% {rails}"
        )


def pair_recorded(windows: Sequence[Window]) -> list[Paired]:
    """Pair windows offline: they follow each other in one recorded log with times of arrival.

    Only begin, end and number of inferences of each run are known.
    """
    rows: list[dict[str, Any]] = []
    texts, base = [], 0.0
    for number, window in enumerate(windows):
        start = WALL_NS // 10**9 + base
        arrived = window.wall(window.lines.arrived)
        for at, line in zip(arrived, log_lines(window, base), strict=True):
            texts.append(f"{start + at:.6f}::{line}\n")
        others = enumerate(window.setup.others)
        begin, end = window.wall(np.array([window.begin, window.end])).tolist()
        spans = [(f"run{number}", begin, end, len(window.setup.load.starts))]
        spans += [(f"run{number}-other{i}", one.begin, one.end, 1) for i, one in others]
        rows += [
            {"name": name, "start": start + begin, "end": start + end, "inferences": count}
            for name, begin, end, count in spans
        ]
        base += window.power.seconds
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "truth.log"
        log.write_text("".join(texts))
        telemetry = frames.read_log(log, cores=1)
    reports = frames.correlate(telemetry, pandas.DataFrame(rows)).set_index("name")
    return [_recorded(reports.loc[f"run{number}"]) for number in range(len(windows))]


def _recorded(report: Any) -> Paired:
    def cell(name: str) -> float | None:
        value = report.get(f"energy.{name}")
        return None if value is None or pandas.isna(value) else float(value)

    flags = tuple(report["quality"].split())
    if cell("gross_joules_per_inference") is None:
        return Paired(Figure(), Figure(), flags)
    gross = Figure(cell("gross_joules"), cell("gross_interval.low"), cell("gross_interval.high"))
    return Paired(gross, Figure(), flags)


def _figure(per_inference: float | None, joules: float | None, interval: Any) -> Figure:
    if per_inference is None:
        return Figure()
    if interval is None:
        return Figure(joules)
    return Figure(joules, interval.low, interval.high)


def _rail_sensors(averages_seconds: float) -> dict[str, float]:
    """Return a sensor's settings as the kernel gives them: the update interval covers all samples.

    For an ina3221 it is channels × samples × conversion times, in milliseconds.
    """
    if not averages_seconds:
        return {}
    samples = max(min(64, int(averages_seconds * 1e3 / 6.6)), 1)
    return {"1-0040.samples": samples, "1-0040.update_interval": averages_seconds * 1e3}


def ns_of(seconds: float) -> int:
    return ORIGIN_NS + round(seconds * 1e9)
