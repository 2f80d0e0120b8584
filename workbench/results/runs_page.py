"""Stored runs and telemetry as one page of HTML: a stretch of time, or one run."""

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timezone
from functools import cache
from itertools import groupby, takewhile
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from ... import __version__
from ...collectors.catalog import SIMULATED_SOURCE
from ...daemon.measure.blocks import Block, CorruptBlockError, WindowSlice, decode, join
from ...daemon.measure.figures import (
    energy_of,
    joules_of,
    mean_energy,
    mean_of_rounds,
    mean_watts,
    present,
)
from ...daemon.measure.report import Energy, Figure, Interval, RailEnergy, RunReport
from ...daemon.measure.run_text import (
    ABSENT,
    celsius,
    joules,
    percent,
    rate,
    seconds,
    shown,
    watts,
    with_half,
)
from ...daemon.measure.utilization import mean_present
from ...daemon.store.history import History
from ...daemon.terminal import duration
from ...parsers import signals
from ...parsers.errors import UserError
from ...parsers.inference.events import plural
from .bench_page import FOOTER, SIMULATED_NOTICE, board_facts, versions_line
from .caveats import explain_flag
from .document import Block as Part
from .document import Facts, Heading, Items, Table, Text, draw, html_page
from .summary import foreign_processes

_SHOWN = (
    *(signals.RAIL_POWER, signals.GPU_LOAD, signals.EMC_LOAD, signals.CPU_LOAD),
    *(signals.DLA_ON, signals.DLA_LOAD, signals.DLA_BUSY, signals.DLA_FIRMWARE_LOAD),
    signals.TEMPERATURE,
)
# Samples are averaged while they are read: a day of them would fill the memory.
_MOST_SAMPLES = 2000
_MARGIN_NS = 2_000_000_000


class _Stored(NamedTuple):
    """Runs, oldest first, and the samples of their time; wall time in nanoseconds throughout."""

    runs: Sequence[RunReport]
    cut: WindowSlice
    begin_wall_ns: int
    end_wall_ns: int
    is_simulated: bool
    damaged: int


def page_since(history: History, since_seconds: float, now_wall_ns: int) -> str:
    """Return the page of the runs that started in the last seconds."""
    begin_wall_ns = now_wall_ns - round(since_seconds * 1e9)
    recent = takewhile(lambda one: one["started_wall_ns"] >= begin_wall_ns, history.runs())
    runs: list[RunReport] = []
    unreadable = 0
    for document in recent:
        try:
            runs.append(RunReport.model_validate(document))
        except ValidationError:  # one damaged row must not cost the page
            unreadable += 1
    stored = _read(history, runs[::-1], begin_wall_ns, now_wall_ns)
    title = f"Runs of the last {duration(since_seconds)}"
    blocks: list[Part] = [*_head(title, history, stored)]
    if unreadable := unreadable + history.unreadable:
        blocks.append(Text(f"Runs left out, since they cannot be read: {unreadable}.", "notice"))
    if not runs:
        words = "The run store has no finished runs."
        for latest in history.runs(1):
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
    try:
        run = RunReport.model_validate(document)
    except ValidationError as error:
        reason = error.errors(include_url=False, include_input=False)[0]["msg"]
        raise UserError(
            f"the record of run {run_id} cannot be read: {reason}",
            "it is damaged, or of another release; see tegrascope runs show",
        ) from None
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
    made = Block(block.source)
    made.wall_ns.extend(sum(block.wall_ns[row] for row in group) // len(group) for group in groups)
    made.times_ns.extend(made.wall_ns)
    for name, column in block.columns.items():
        made.columns[name] = column[:0]
        made.columns[name].extend(mean_present(column[row] for row in group) for group in groups)
    return made


@cache
def _is_shown(column: str) -> bool:
    return any(signal.owns(column) for signal in _SHOWN)


def _head(title: str, history: History, stored: _Stored) -> Iterator[Part]:
    yield Heading(title, 1)
    begin, end = _time(stored.begin_wall_ns), _time(stored.end_wall_ns)
    yield Text(f"{begin} to {end}, from {Path(history.path).name}", "under")
    if stored.is_simulated:
        yield Text(SIMULATED_NOTICE, "notice")
    if stored.damaged:
        yield Text(f"Damaged blocks of samples left out: {stored.damaged}.", "notice")


def _timeline(stored: _Stored, name: Callable[[RunReport], str]) -> Iterator[Part]:
    # The time axis begins at the first sample or run.
    firsts = [*stored.cut.wall_ns[:1], *(run.started_wall_ns for run in stored.runs[:1])]
    begin_ns = max(stored.begin_wall_ns, min(firsts, default=stored.begin_wall_ns))
    title = "Power, load and temperature over time, with runs"
    drawing = draw(title, stored.cut, begin_ns, stored.runs, name, by_wall_time=True)
    yield Heading("Over time")
    if drawing is None:
        yield Text("The store has no telemetry of this time.")
        return
    yield Text(
        f"The time axis begins {_time(begin_ns)}. Each band is a run: the darker part is the steady"
        " phase, the lighter ones are idle with the model loaded.",
        "under",
    )
    yield drawing


def _time(wall_ns: int) -> str:
    return f"{datetime.fromtimestamp(wall_ns / 1e9, timezone.utc):%Y-%m-%d %H:%M:%S} UTC"


# --- tables ---------------------------------------------------------------------------------------


def _loads(run: RunReport, prefix: str) -> str:
    found = {} if run.telemetry is None else run.telemetry.utilization
    cells = (f"{name} {percent(load.mean_ratio)}" for name, load in found.items())
    return "\n".join(c.removeprefix(f"{prefix} ") for c in cells if c.startswith(prefix)) or ABSENT


def _runs(runs: Sequence[RunReport]) -> Table:
    rows = []
    for run in runs:
        zones = {} if run.telemetry is None else run.telemetry.temperature
        hottest = max(((zone.max_celsius, name) for name, zone in zones.items()), default=None)
        row = {
            "run": run.run_id,
            "started": _time(run.started_wall_ns),
            "workload": run.workload,
            "device": run.device,
            "outcome": run.outcome if run.reason is None else f"{run.outcome}: {run.reason}",
            "p50": shown(run.latency, lambda found: seconds(found.p50_seconds)),
            "p99": shown(run.latency, lambda found: seconds(found.p99_seconds)),
            "throughput": shown(run.throughput_per_second, rate),
            "gross per inference": with_half(energy_of(run, "gross"), joules),
            "net per inference": with_half(energy_of(run, "net"), joules),
            "largest uncertainty": (run.energy and run.energy.largest_uncertainty) or ABSENT,
            "module power": shown(mean_watts(run), watts),
            "GPU": _loads(run, "gpu"),
            "DLA": _loads(run, "dla"),
            "EMC": _loads(run, "emc"),
            "hottest": shown(hottest, lambda pair: f"{celsius(pair[0])} {pair[1]}"),
            "flags": "\n".join(run.quality) or "none",
        }
        rows.append(tuple(row.values()))
    return Table(tuple(row), rows, left=5)


def _workloads(runs: Sequence[RunReport]) -> Table:
    """Return a row per workload and device: means of its successful runs."""
    rows = []
    for workload, device in dict.fromkeys((run.workload, run.device) for run in runs):
        every = [run for run in runs if (run.workload, run.device) == (workload, device)]
        good = [run for run in every if run.outcome == "ok"]
        latency = mean_of_rounds([run.latency.p50_seconds for run in good if run.latency])
        net = mean_energy(present(energy_of(one, "net") for one in good))
        cells = with_half(latency, seconds), with_half(net, joules)
        flagged = sum(bool({*run.quality} - {"simulated"}) for run in every)
        rows.append((workload, device, str(len(every)), str(len(good)), *cells, str(flagged)))
    columns = ("workload", "device", "runs", "ok", "p50", "net per inference", "with flags")
    return Table(columns, rows, left=2)


def _flags(runs: Sequence[RunReport]) -> Iterator[Part]:
    flags = sorted({flag for run in runs for flag in run.quality})
    names = foreign_processes(runs)
    if flags:
        yield Heading("Flags", 3)
        yield Items([(flag, explain_flag(flag, names)) for flag in flags])


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
            "inputs": ", ".join(
                f"{name} {'x'.join(map(str, shape))}" for name, shape in run.input_shapes.items()
            ),
            "inferences": f"{run.inferences}, batch {run.batch}",
            "units": _units(run),
            "steady phase": None if steady is None else f"{steady.seconds:.1f} s",
            "cold start": ", ".join(
                f"{part} {seconds(value)}" for part, value in run.cold_start_seconds.items()
            ),
            "overlapping runs": ", ".join(run.overlapping_runs),
        }
    )
    times = (
        ("latency", run.latency),
        ("by the device's events", run.device_latency),
        *((stage.replace("_", " "), found) for stage, found in run.stages.items()),
    )
    names = ("min", "mean", "p50", "p90", "p95", "p99", "p999", "max")
    rows = [
        (title, *(seconds(getattr(one, f"{name}_seconds")) for name in names), str(one.count))
        for title, one in times
        if one is not None
    ]
    if rows:
        yield Heading("Latency", 3)
        yield Table(("", *names, "count"), rows)
    if run.deadline is not None:
        found = run.deadline
        during = ""
        if found.flags_at_misses:
            during = f" Flags during misses: {', '.join(found.flags_at_misses)}."
        yield Heading("Deadline", 3)
        yield Text(
            f"{found.misses} of {run.inferences} inferences took longer than"
            f" {seconds(found.deadline_seconds)}, the longest by"
            f" {seconds(found.worst_lateness_seconds)}.{during}",
            "under",
        )
    if run.energy is not None:
        energy = run.energy
        rows = [
            (name, joules(rail.gross_joules), watts(rail.mean_watts), *_others(rail))
            for name, rail in energy.rails.items()
        ]
        if energy.gross_joules is not None:
            gross = with_half(joules_of(energy, "gross"), joules)
            rows.insert(0, ("module", gross, shown(mean_watts(run), watts), *_others(energy)))
        yield Heading("Energy", 3)
        if energy.largest_uncertainty is not None:
            yield Text(
                "± is half the 95 % interval. The largest term of uncertainty is"
                f" {energy.largest_uncertainty}.",
                "under",
            )
        if energy.offset_joules is not None:
            yield Text(
                f"Not in ±: an offset of the sensors of up to {joules(energy.offset_joules)}, the"
                " same in every run on this board. It cancels in net energy.",
                "under",
            )
        if energy.gross_method == "counter":
            yield Text("Gross energy is that of the board's own energy counter.", "under")
        if energy.net_reason is not None:
            yield Text(f"There is no net energy: {energy.net_reason}.", "under")
        yield Table(
            ("rail", "gross", "mean power", "idle power", "net", "by its own counter"), rows
        )
        if energy.phases:
            rows = []
            for phase in energy.phases:
                gross = _figure(phase.gross_joules, phase.gross_interval)
                by = phase.method or phase.reason or ""
                rows.append((phase.name, str(phase.count), seconds(phase.seconds), gross, by))
            yield Table(("phase", "times", "time", "gross", "by"), rows)
    if run.worker_log:
        yield Heading("Last lines of the worker", 3)
        yield Items([("", line) for line in run.worker_log])
    if run.telemetry is not None:
        yield Heading("Telemetry", 3)
        if run.telemetry.utilization:
            yield Text(
                "A load has no interval: each sample shows an unknown short time before it.",
                "under",
            )
        rows = []
        for name, load in run.telemetry.utilization.items():
            rows.append((f"{name} load", percent(load.mean_ratio), percent(load.max_ratio)))
        for name, clock in run.telemetry.frequency.items():
            mean, least = clock.mean_hertz / 1e6, clock.min_hertz / 1e6
            rows.append((f"{name} clock", f"{mean:.0f} MHz", f"least {least:.0f}"))
        for name, zone in run.telemetry.temperature.items():
            start = f"start {celsius(zone.start_celsius)}"
            rows.append((f"{name} temperature", start, celsius(zone.max_celsius)))
        yield Table(("", "mean", "highest"), rows)
    if run.other_processes:
        yield Heading("Other processes meanwhile", 3)
        rows = []
        for one in run.other_processes:
            dla = (f"{core} {seconds(busy)}" for core, busy in one.dla_seconds.items())
            rows.append((one.name, shown(one.cpu_seconds, seconds), "\n".join(dla) or ABSENT))
        yield Table(("process", "CPU time", "DLA time"), rows)


def _units(run: RunReport) -> str | None:
    """Return the units of a run and their energy; ``None`` without units."""
    if run.units is None or run.unit is None:
        return None
    rate = "" if run.units_per_second is None else f", {run.units_per_second:.4g} per second"
    counted, energy = f"{run.units:.12g} {plural(run.unit)}{rate}", run.energy
    if energy is None or energy.joules_per_unit is None:
        return counted
    each = _figure(energy.joules_per_unit, energy.joules_per_unit_interval)
    return f"{counted}, {each} per {run.unit}"


def _figure(value: float | None, interval: Interval | None) -> str:
    ends = {} if interval is None else interval.model_dump()
    return ABSENT if value is None else with_half(Figure(value=value, **ends), joules)


def _others(one: Energy | RailEnergy) -> tuple[str, str, str]:
    """Return idle power, net energy, and the energy by a counter."""
    return (
        shown(one.baseline_watts, watts),
        with_half(joules_of(one, "net"), joules),
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
