"""Stored runs and telemetry as one page of HTML: a stretch of time, or one run."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cache
from itertools import groupby, takewhile
from pathlib import Path

from ... import __version__
from ...collectors.catalog import SIMULATED_SOURCE
from ...parsers import signals
from ...parsers.errors import UserError
from ..measure.blocks import Block, CorruptBlockError, WindowSlice, decode, join
from ..measure.run_report import Distribution, Energy, RailEnergy, RunReport
from ..measure.utilization import mean_present
from ..store.history import History
from ..terminal.numbers import ABSENT, celsius, duration, joules, percent, rate, seconds, watts
from .bench_page import (
    FOOTER,
    SIMULATED_NOTICE,
    board_facts,
    shown,
    shown_with_half,
    total_rails,
    versions_line,
    with_half,
)
from .caveats import explain_flag
from .document import Block as Part
from .document import Drawing, Facts, Heading, Items, Table, Text, html_page
from .figure import band_of, draw
from .records import Figure
from .summary import Kind, energy_point, interval_half, mean_of_most, mean_of_rounds, mean_watts

_SHOWN = (
    *(signals.RAIL_POWER, signals.GPU_LOAD, signals.EMC_LOAD, signals.CPU_LOAD),
    *(signals.DLA_ON, signals.DLA_LOAD, signals.DLA_BUSY, signals.DLA_FIRMWARE_LOAD),
    signals.TEMPERATURE,
)
# Samples are averaged while they are read: a day of them would fill the memory.
_MOST_SAMPLES = 2000
_MARGIN_NS = 2_000_000_000


@dataclass(frozen=True)
class _Stored:
    """Runs, oldest first, and the samples of their time; wall time in nanoseconds throughout."""

    runs: Sequence[RunReport]
    cut: WindowSlice
    begin_wall_ns: int
    end_wall_ns: int
    is_simulated: bool
    damaged: int

    @property
    def drawn_from_ns(self) -> int:
        """Begin of the time axis: the first sample or run."""
        firsts = [*self.cut.wall_ns[:1], *(one.started_wall_ns for one in self.runs[:1])]
        return max(self.begin_wall_ns, min(firsts, default=self.begin_wall_ns))


def page_since(history: History, since_seconds: float, now_wall_ns: int) -> str:
    """Return the page of the runs that started in the last seconds."""
    begin_wall_ns = now_wall_ns - round(since_seconds * 1e9)
    recent = takewhile(lambda one: one["started_wall_ns"] >= begin_wall_ns, history.runs())
    runs = [RunReport.model_validate(document) for document in recent]
    stored = _read(history, runs[::-1], begin_wall_ns, now_wall_ns)
    title = f"Runs of the last {duration(since_seconds)}"
    blocks: list[Part] = [*_head(title, history, stored)]
    if not runs:
        latest = next(history.runs(1), None)
        words = "The run store has no finished runs."
        if latest is not None:
            at = _time(latest["started_wall_ns"])
            words = f"No run started in this time. The latest run started {at}."
        blocks.append(Text(words))
    blocks += _timeline(stored, lambda run: run.workload)
    if runs:
        blocks += [Heading("By workload"), _workloads(stored.runs)]
        blocks += [Heading("Runs"), _runs(stored.runs), *_flags(stored.runs)]
        blocks += [Heading("Where"), Facts(_environment(runs[0]))]
    return html_page(f"{title}: tegrascope report", blocks, FOOTER.format(__version__))


def page_of_run(history: History, run_id: str) -> str:
    """Return the page of one run, by its identifier or a unique part of it.

    Raises:
        UserError: No run matches, or several.
    """
    document = history.run(run_id)
    if document is None:
        raise UserError(f"no run {run_id}, or several match", "see tegrascope runs list")
    run = RunReport.model_validate(document)
    end_wall_ns = run.started_wall_ns + run.ended_ns - run.started_ns
    stored = _read(history, [run], run.started_wall_ns - _MARGIN_NS, end_wall_ns + _MARGIN_NS)
    title = f"{run.workload} on {run.device}"
    blocks: list[Part] = [*_head(title, history, stored), _runs([run]), *_flags([run])]
    blocks += _timeline(stored, lambda run: run.device)
    blocks += _details(run)
    blocks += [Heading("Where"), Facts(_environment(run))]
    return html_page(f"{title}: tegrascope report", blocks, FOOTER.format(__version__))


def _read(history: History, runs: Sequence[RunReport], begin_ns: int, end_ns: int) -> _Stored:
    """Read the samples between two wall times, averaged to about ``_MOST_SAMPLES``."""
    width = max((end_ns - begin_ns) // _MOST_SAMPLES, 1)
    blocks: list[Block] = []
    is_simulated, damaged, last_ns = any(run.environment.simulated for run in runs), 0, begin_ns - 1
    for data in history.blocks(begin_ns, end_ns):
        try:
            block = decode(data, _is_shown)
        except CorruptBlockError:
            damaged += 1
            continue
        is_simulated |= block.source == SIMULATED_SOURCE
        rows = []
        for row, at in enumerate(block.wall_ns):
            # If the wall clock was set back, the later samples of the same time are left out.
            if last_ns < at <= end_ns:
                rows.append(row)
                last_ns = at
        if rows:
            blocks.append(_averaged(block, rows, width))
    return _Stored(runs, join(blocks), begin_ns, end_ns, is_simulated, damaged)


def _averaged(block: Block, rows: Sequence[int], width: int) -> Block:
    groups = [list(group) for _, group in groupby(rows, lambda row: block.wall_ns[row] // width)]
    made = Block(block.source, block.times_ns[:0], block.wall_ns[:0], {})
    made.wall_ns.extend(sum(block.wall_ns[row] for row in group) // len(group) for group in groups)
    made.times_ns.extend(made.wall_ns)
    for name, column in block.columns.items():
        made.columns[name] = column[:0]
        made.columns[name].extend(mean_present(column[row] for row in group) for group in groups)
    return made


@cache
def _is_shown(column: str) -> bool:
    return any(signal.by_label({column: None}) for signal in _SHOWN)


def _head(title: str, history: History, stored: _Stored) -> Iterator[Part]:
    yield Heading(title, 1)
    begin, end = _time(stored.begin_wall_ns), _time(stored.end_wall_ns)
    yield Text(f"{begin} to {end}, from {Path(history.path).name}", "under")
    if stored.is_simulated:
        yield Text(SIMULATED_NOTICE, "notice")
    if stored.damaged:
        yield Text(f"Damaged blocks of samples left out: {stored.damaged}.", "notice")


def _timeline(stored: _Stored, name: Callable[[RunReport], str]) -> Iterator[Part]:
    begin_ns = stored.drawn_from_ns
    drawing = draw(
        "Power, load and temperature over time, with runs",
        stored.cut,
        begin_ns,
        total_rails(stored.runs),
        # Phases are monotonic times: on the axis they stand where the run started.
        [
            band_of(run, begin_ns - run.started_wall_ns + run.started_ns, name(run))
            for run in stored.runs
        ],
    )
    yield Heading("Over time")
    if drawing is None:
        yield Text("The store has no telemetry of this time.")
        return
    yield Text(
        f"The time axis begins {_time(begin_ns)}. Each band is a run: the darker part is the steady"
        " phase, the lighter ones are idle with the model loaded.",
        "under",
    )
    yield Drawing(drawing)


def _time(wall_ns: int) -> str:
    return f"{datetime.fromtimestamp(wall_ns / 1e9, timezone.utc):%Y-%m-%d %H:%M:%S} UTC"


# --- tables ---------------------------------------------------------------------------------------


def _energy(run: RunReport, kind: Kind) -> str:
    return shown(energy_point(run, kind), lambda point: with_half(Figure.around(*point), joules))


def _loads(run: RunReport, prefix: str) -> str:
    found = {} if run.telemetry is None else run.telemetry.utilization
    loads = {name: load for name, load in found.items() if name.startswith(prefix)}
    cells = (f"{name} {percent(load.mean_ratio)}" for name, load in loads.items())
    return "\n".join(cell.removeprefix(f"{prefix} ") for cell in cells) or ABSENT


def _hottest(run: RunReport) -> str:
    zones = {} if run.telemetry is None else run.telemetry.temperature
    hottest = max(((zone.max_celsius, name) for name, zone in zones.items()), default=None)
    return ABSENT if hottest is None else f"{celsius(hottest[0])} {hottest[1]}"


def _runs(runs: Sequence[RunReport]) -> Table:
    columns = (
        *("run", "started", "workload", "device", "outcome", "p50", "p99", "throughput"),
        *("gross per inference", "net per inference", "largest uncertainty", "module power"),
        *("GPU", "DLA", "EMC", "hottest", "flags"),
    )
    rows = [
        (
            run.run_id,
            _time(run.started_wall_ns),
            run.workload,
            run.device,
            run.outcome if run.reason is None else f"{run.outcome}: {run.reason}",
            shown(run.latency, lambda found: seconds(found.p50_seconds)),
            shown(run.latency, lambda found: seconds(found.p99_seconds)),
            shown(run.throughput_per_second, rate),
            _energy(run, "gross"),
            _energy(run, "net"),
            (run.energy and run.energy.largest_uncertainty) or ABSENT,
            shown(mean_watts(run), watts),
            _loads(run, "gpu"),
            _loads(run, "dla"),
            _loads(run, "emc"),
            _hottest(run),
            "\n".join(run.quality) or "none",
        )
        for run in runs
    ]
    return Table(columns, rows, left=5)


def _workloads(runs: Sequence[RunReport]) -> Table:
    """Return a row per workload and device: means of its successful runs."""
    names = list(dict.fromkeys((run.workload, run.device) for run in runs))
    rows = []
    for workload, device in names:
        every = [run for run in runs if (run.workload, run.device) == (workload, device)]
        good = [run for run in every if run.outcome == "ok"]
        latency = mean_of_rounds([run.latency.p50_seconds for run in good if run.latency])
        net = mean_of_most([point for one in good if (point := energy_point(one, "net"))])
        cells = shown_with_half(latency, seconds), shown_with_half(net, joules)
        flagged = sum(bool({*run.quality} - {"simulated"}) for run in every)
        rows.append((workload, device, str(len(every)), str(len(good)), *cells, str(flagged)))
    columns = ("workload", "device", "runs", "ok", "p50", "net per inference", "with flags")
    return Table(columns, rows, left=2)


def _flags(runs: Sequence[RunReport]) -> Iterator[Part]:
    flags = sorted({flag for run in runs for flag in run.quality})
    found = [(flag, words) for flag in flags if (words := explain_flag(flag))]
    if found:
        yield Heading("Flags", 3)
        yield Items(found)


def _details(run: RunReport) -> Iterator[Part]:
    steady = run.phases.get("steady")
    yield Heading("Run")
    yield Facts(
        {
            "run": run.run_id,
            "model": run.model,
            "model SHA-256": run.model_sha256,
            "back-end": run.backend,
            "precision asked for": None if run.built is None else run.built.requested_precision,
            "placement": None if run.built is None else run.built.placement.verdict,
            "inferences": f"{run.inferences}, batch {run.batch}",
            "steady phase": None if steady is None else f"{steady.seconds:.1f} s",
            "cold start": ", ".join(
                f"{part} {seconds(value)}" for part, value in run.cold_start_seconds.items()
            ),
            "overlapping runs": ", ".join(run.overlapping_runs),
        }
    )
    times: dict[str, Distribution | None] = {
        "latency": run.latency,
        "by the device's events": run.device_latency,
        **{str(stage): found for stage, found in run.stages.items()},
    }
    names = ("min", "mean", "p50", "p90", "p95", "p99", "p999", "max")
    rows = [
        (title, *(seconds(getattr(one, f"{name}_seconds")) for name in names), str(one.count))
        for title, one in times.items()
        if one is not None
    ]
    if rows:
        yield Heading("Latency", 3)
        yield Table(("", *names, "count"), rows)
    if run.energy is not None:
        energy = run.energy
        rows = [
            (name, joules(rail.gross_joules), watts(rail.mean_watts), *_others(rail))
            for name, rail in energy.rails.items()
        ]
        if energy.gross_joules is not None:
            half = interval_half(energy.gross_interval, 1)
            gross = with_half(Figure.around(energy.gross_joules, half), joules)
            rows.insert(0, ("module", gross, shown(mean_watts(run), watts), *_others(energy)))
        yield Heading("Energy", 3)
        if energy.largest_uncertainty is not None:
            yield Text(
                "± is half the 95 % interval. The largest term of uncertainty is"
                f" {energy.largest_uncertainty}.",
                "under",
            )
        yield Table(
            ("rail", "gross", "mean power", "idle power", "net", "by its own counter"), rows
        )
    if run.telemetry is not None:
        yield Heading("Telemetry", 3)
        loads = [
            (f"{name} load", percent(load.mean_ratio), percent(load.max_ratio))
            for name, load in run.telemetry.utilization.items()
        ]
        clocks = [
            (f"{name} clock", f"{one.mean_hertz / 1e6:.0f} MHz", f"least {one.min_hertz / 1e6:.0f}")
            for name, one in run.telemetry.frequency.items()
        ]
        zones = [
            (f"{name} temperature", f"start {celsius(one.start_celsius)}", celsius(one.max_celsius))
            for name, one in run.telemetry.temperature.items()
        ]
        yield Table(("", "mean", "highest"), [*loads, *clocks, *zones])


def _others(one: Energy | RailEnergy) -> tuple[str, str, str]:
    """Return idle power, net energy, and the energy by a counter."""
    half = interval_half(one.net_interval, 1) if isinstance(one, Energy) else None
    return (
        shown(one.baseline_watts, watts),
        shown(one.net_joules, lambda net: with_half(Figure.around(net, half), joules)),
        shown(one.counter_joules, joules),
    )


def _environment(run: RunReport) -> dict[str, str | None]:
    here = run.environment
    return {
        **board_facts(here),
        "telemetry": here.telemetry_source,
        "interval": shown(here.telemetry_interval_seconds, seconds),
        "versions": versions_line(here.versions),
    }
