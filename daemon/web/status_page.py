"""The status page: its documents, and its answers, made for a phone on a radio link.

A page is one file, which ``make docs`` joins from those in the folder ``page``. Its answers have a
few numbers per second instead of whole samples, a line per run instead of whole reports, and per
model which device is better.
"""

import base64
import hashlib
import json
import re
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import groupby
from math import fsum
from operator import itemgetter
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple, TypeAlias

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from ...parsers import signals
from ...parsers.values import DLAS
from ..measure.blocks import Block
from ..measure.dla import POWERED, SOURCES, by_core
from ..measure.energy import interval_ns
from ..measure.figures import difference, mean_energy, mean_of_rounds, present, telling
from ..measure.report import Figure
from ..measure.timeline import Timeline
from ..measure.utilization import clock_figures, gate_figures, load_figures, zone_figures
from ..measure.verdict_text import (
    EnergyKind,
    GoalOfRuns,
    Verdict,
    conclusion_of,
    lower_device,
    sentence_of,
)
from ..measure.winner import RUNS_NEEDED, MeanOfRuns, judge_runs, without_vague_ends
from ..store.history import History, blocks_between

_MEMORY = {
    "ram": (signals.RAM_USED, "RAM used"),
    "available": (signals.RAM_AVAILABLE, "RAM available"),
    "block": (signals.RAM_FREE_BLOCK, "largest free block"),
    "swap": (signals.SWAP_USED, "swap used"),
    "gpu": (signals.GPU_MEMORY_USED, "GPU"),
}
_LOADS = {"gpu": "GPU", "emc": "memory (EMC)", "cpu": "CPU"}
_DLA_LOADS = (
    (signals.DLA_LOAD, "tegrastats", "busy (tegrastats)"),
    (signals.DLA_FIRMWARE_LOAD, "firmware", "busy when asked (firmware)"),
    (signals.DLA_BUSY, "ftrace", "busy (ftrace)"),
    (signals.DLA_POWERED, "powered", "powered"),
)


class ChartLine(NamedTuple):
    """One line of a chart.

    Charts: ``power``, ``load``, ``dla``, ``temperature``, ``memory``, ``owners``, ``clock``. A gate
    is 0 or 1. A line of ``throttle`` is a count, of which no chart is drawn.
    """

    chart: str
    label: str
    column: Sequence[float]
    is_gate: bool = False


@dataclass
class _Step:
    """The lines of one step, each with the sum and number of its values and the highest one."""

    figures: dict[str, tuple[ChartLine, float, int, float]] = field(default_factory=dict)

    def add(self, lines: Mapping[str, ChartLine], rows: slice) -> None:
        for name, line in lines.items():
            values = [value for value in line.column[rows] if value == value]
            if values:
                _, total, count, highest = self.figures.get(name, (line, 0.0, 0, values[0]))
                total, count = total + fsum(values), count + len(values)
                self.figures[name] = (line, total, count, max(highest, *values))

    def head(self) -> str:
        """Return the begin of a part of the document."""
        lines = []
        for line, *_ in self.figures.values():
            lines.append({"chart": line.chart, "label": line.label, "gate": line.is_gate})
        return f'{{"columns":{json.dumps([*self.figures])},"lines":{json.dumps(lines)},"rows":['

    def row(self, begin_ns: int) -> str:
        """Return begin, means and highest values."""
        means, peaks = [], []
        for _, total, count, highest in self.figures.values():
            means.append(_short(total / count))
            peaks.append(_short(highest))
        return json.dumps((round(begin_ns / 1e9, 3), means, peaks), separators=(",", ":"))


def _short(value: float) -> float:
    """Return a value with three decimals, or five digits of a large one such as bytes."""
    if abs(value) < 1e6:
        return round(value, 3)
    return int(float(f"{value:.5g}"))


def series(
    history: History, timeline: Timeline, since_ns: int, until_ns: int, step_ns: int
) -> Generator[str, None, None]:
    """Yield the pieces of a JSON document with the signals of a range of wall time.

    It is ``{"step", "parts", "interval"}``, in seconds. A part has the names of its ``columns``,
    their ``lines`` (chart, label and whether it is a gate) and ``rows``: each the begin of a step,
    the means and the highest values. A step without samples has no row, and another part begins
    where other signals are there. ``interval`` is the median time between the latest samples.
    Steps begin at multiples of ``step_ns``; the first and the last one are whole.
    """
    begin_ns = since_ns // step_ns * step_ns
    end_ns = (until_ns // step_ns + 1) * step_ns - 1
    # Each second of an open page asks for what memory has; the store is not read for it.
    if timeline.covers(begin_ns):
        blocks = timeline.blocks_since(begin_ns - 1, end_ns, is_shown)
    else:
        blocks = blocks_between(history, timeline, begin_ns - 1, end_ns, is_shown)
    yield from series_of(blocks, since_ns, until_ns, step_ns)


def series_of(
    blocks: Iterator[Block], since_ns: int, until_ns: int, step_ns: int
) -> Generator[str, None, None]:
    """Yield the document of ``series`` from blocks of samples, oldest first."""
    numbers = range(since_ns // step_ns, until_ns // step_ns + 1)
    yield f'{{"step":{step_ns / 1e9:.10g},"parts":['
    columns: tuple[str, ...] | None = None
    interval: float | None = None
    # A clock that was set back begins a step again.
    for number, parts in groupby(_slices(blocks, step_ns), itemgetter(0)):
        if number not in numbers:
            continue
        step = _Step()
        for _, lines, rows, latest in parts:
            step.add(lines, rows)
            interval = latest
        if columns == tuple(step.figures):
            yield ","
        else:
            yield ("" if columns is None else "]},") + step.head()
        yield step.row(number * step_ns)
        columns = tuple(step.figures)
    if columns is not None:
        yield "]}"
    seconds = None if interval is None else interval / 1e9
    yield f'],"interval":{json.dumps(seconds)}}}'


def _slices(
    blocks: Iterator[Block], step_ns: int
) -> Iterator[tuple[int, Mapping[str, ChartLine], slice, float | None]]:
    """Yield the part of each block in one step: its number, lines, rows and sample interval."""
    interval: float | None = None
    for block in blocks:
        lines = _lines_of(block.columns)
        interval = interval_ns(block.times_ns[-65:]) or interval
        end = 0
        for number, group in groupby(block.wall_ns, lambda wall: wall // step_ns):
            begin, end = end, end + sum(1 for _ in group)
            yield number, lines, slice(begin, end), interval


@lru_cache(4096)
def is_shown(column: str) -> bool:
    """Return whether a column is a line of a chart."""
    return bool(_lines_of({column: (0.0,)}))


def _lines_of(columns: Mapping[str, Sequence[float]]) -> dict[str, ChartLine]:
    """Return the lines of the charts by name; the unit stands before the slash.

    The loads of a DLA core are separate lines by source, never mixed: ``ratio/dla0:ftrace``.
    """
    lines = {}
    for rail, column in signals.RAIL_POWER.by_label(columns).items():
        lines[f"watts/{rail}"] = ChartLine("power", rail, column)
    loads = load_figures(columns)
    for name, label in _LOADS.items():
        if name in loads:
            lines[f"ratio/{name}"] = ChartLine("load", label, loads[name].column)
    for signal, source, label in _DLA_LOADS:
        for core, column in by_core(signal, columns).items():
            lines[f"ratio/{core}:{source}"] = ChartLine("dla", f"{core.upper()} {label}", column)
    for core, (_, column) in gate_figures(columns).items():
        lines[f"on/{core}"] = ChartLine("dla", f"{core.upper()} switched on", column, is_gate=True)
    for zone, (_, column) in zone_figures(columns).items():
        lines[f"celsius/{zone}"] = ChartLine("temperature", zone, column)
    for name, (signal, label) in _MEMORY.items():
        for column in signal.by_label(columns).values():
            lines[f"bytes/{name}"] = ChartLine("memory", label, column)
    for owner, column in signals.MEMORY.by_label(columns).items():
        lines[f"bytes/owner/{owner}"] = ChartLine("owners", owner.replace("_", " "), column)
    for name, (_, column) in clock_figures(columns).items():
        lines[f"hertz/{name}"] = ChartLine("clock", _LOADS.get(name, name.upper()), column)
    for kind, column in signals.THROTTLE_EVENTS.by_label(columns).items():
        lines[f"events/{kind}"] = ChartLine("throttle", kind, column)
    return lines


STATIC = Path(__file__).with_name("static")
_STYLE = re.compile(rb"<style>(.*?)</style>", re.S)
_SCRIPT = re.compile(rb'<script type="module">(.*?)</script>', re.S)


def page_response(name: str, request: Request) -> Response:
    """Return a page of the folder ``STATIC``, or 304 if the browser already has it."""
    content = (STATIC / name).read_bytes()
    # Weak, since it may be compressed on its way.
    tag = f'W/"{hashlib.sha256(content).hexdigest()[:32]}"'
    headers = {
        "cache-control": "no-cache",
        "content-security-policy": _policy(content),
        "etag": tag,
        "referrer-policy": "no-referrer",
        "x-content-type-options": "nosniff",
    }
    tags_of_browser = request.headers.get("if-none-match", "").replace(" ", "").split(",")
    if tag in tags_of_browser:
        return Response(status_code=304, headers=headers)
    return Response(content, headers=headers, media_type="text/html")


def _policy(page: bytes) -> str:
    """Return the ``Content-Security-Policy`` of a page.

    It allows nothing from anywhere else, nothing that is written into the page later, and no page
    around it.
    """
    style, script = _digests(_STYLE.findall(page)), _digests(_SCRIPT.findall(page))
    return (
        f"default-src 'none'; script-src {script}; style-src {style}; "
        "img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )


def _digests(parts: Sequence[bytes]) -> str:
    digests = []
    for part in parts:
        digest = base64.b64encode(hashlib.sha256(part).digest()).decode()
        digests.append(f"'sha256-{digest}'")
    return " ".join(digests)


def _place(path: str) -> str:
    """Return the SQL of a value in a report."""
    return f"json_extract(report, '$.{path}')"


def _object(fields: Mapping[str, str], *paths: str) -> str:
    """Return the SQL of a JSON object; the last part of a path in a report is a name."""
    sql_by_name = dict(fields)
    for path in paths:
        sql_by_name[path.split(".")[-1]] = _place(path)
    pairs = ", ".join(f"'{name}', {sql}" for name, sql in sql_by_name.items())
    return f"json_object({pairs})"


def _unless_in_flight(path: str) -> str:
    """Return the SQL of a value; a run in flight has the one that holds if the daemon dies."""
    return f"CASE WHEN in_flight THEN NULL ELSE {_place(path)} END"


def _wall_seconds(path: str) -> str:
    """Return the SQL of a time of CLOCK_MONOTONIC in a report, as wall time in seconds."""
    return f"(started_wall_ns + {_place(path)} - {_place('started_ns')}) / 1e9"


_SUMMARY = _object(
    {
        "run_id": "run_id",
        "workload": "workload",
        "device": "device",
        "started_seconds": "started_wall_ns / 1e9",
        "placement": _place("built.placement.verdict"),
        "outcome": _unless_in_flight("outcome"),
        "reason": _unless_in_flight("reason"),
        "ended_ns": _unless_in_flight("ended_ns"),
        "inferences": _unless_in_flight("inferences"),
    },
    *("started_ns", "batch", "throughput_per_second", "quality", "overlapping_runs"),
    "foreign_dla_processes",
    *("phases.steady", "latency.p50_seconds", "latency.p99_seconds", "energy.gross_joules"),
    *("energy.gross_joules_per_inference", "energy.net_joules_per_inference"),
    *("unit", "energy.joules_per_unit"),
    *("energy.largest_uncertainty", "environment.simulated"),
)


def summaries(history: History, limit: int, before_ns: int | None) -> Generator[str, None, None]:
    """Yield the pieces of ``{"in_flight", "runs"}``: newest first, each with the table's columns.

    SQLite extracts them from the reports, which are long. Outcome, reason, end and number of
    inferences of a run in flight are null. ``before_ns`` is a start in wall time.
    """
    in_flight = ",".join(history.pick_runs(_SUMMARY, limit, in_flight=True))
    finished = ",".join(history.pick_runs(_SUMMARY, limit, before_ns))
    yield f'{{"in_flight":[{in_flight}],"runs":[{finished}]}}'


_BAND = (
    "json_array(run_id, workload, device, outcome, started_wall_ns / 1e9, "
    f"{_wall_seconds('ended_ns')}, {_wall_seconds('phases.steady.begin_ns')}, "
    f"{_wall_seconds('phases.steady.end_ns')})"
)
# A run that began earlier than this before a time is not looked for.
_LONGEST_SECONDS = 3600.0


def bands(
    history: History, since: float, limit: int, before_ns: int | None = None
) -> dict[str, object]:
    """Return the finished runs that ended after a time, newest first, as ``limit`` rows at most.

    ``before_ns`` is a start in wall time. A row is id, workload, device, outcome, begin, end, and
    begin and end of the steady phase.
    Skipped runs took no time. ``since`` of the answer is the time from which on it is complete.
    """
    complete_since = since
    shown = []
    for number, text in enumerate(history.pick_runs(_BAND, limit, before_ns), start=1):
        row = json.loads(text)
        _, _, _, outcome, began, ended, *_ = row
        if began < since - _LONGEST_SECONDS:
            break
        if number == limit:
            complete_since = max(since, began)
        if ended > since and outcome != "skipped":
            shown.append(row)
    return {"since": complete_since, "bands": shown}


_RUNS_PER_WORKLOAD = 10
_SPAN_NS = 7 * 86_400 * 1_000_000_000
# tegrastats prints whole percents.
_LOAD_STEP = 0.01
# Flags that every run has, or that say nothing of a figure's worth.
_QUIET = frozenset({"simulated", "late_samples"})
_GOALS: dict[GoalOfRuns, str] = {
    "latency": "latency_seconds", "energy": "joules", "gross_energy": "gross_joules",
    "gpu": "gpu_ratio",
}  # fmt: skip
_Run: TypeAlias = Mapping[str, Any]

_COMPARED = _object(
    {
        "workload": "workload",
        "device": "device",
        "started": "started_wall_ns / 1e9",
        "conditions": f"json_array({_place('environment.power_mode')},"
        f" {_place('environment.clocks_locked')}, {_place('environment.simulated')})",
    },
    *("model", "batch", "built.requested_precision", "latency.p50_seconds"),
    *("energy.net_joules_per_inference", "energy.net_joules_per_inference_interval"),
    *("energy.gross_joules_per_inference", "energy.gross_joules_per_inference_interval"),
    *("energy.offset_joules", "inferences", "telemetry.utilization", "telemetry.dla_active"),
    "quality",
)


class _Entry(BaseModel):
    """One workload of a model on one device, with the means of its runs.

    ``known`` has the values in each mean, by goal: energy may be withheld in some runs.
    ``gross_joules`` stands beside a net energy only. ``offset_joules`` is what the offset of the
    sensors may add to the gross energy of an inference, either way and in each run alike.
    """

    workload: str
    device: str
    runs: int
    latest: float
    precision: str | None
    flags: Mapping[str, int]
    latency_seconds: Figure | None
    joules: Figure | None
    gross_joules: Figure | None
    offset_joules: float | None
    gpu_ratio: Figure | None
    dla: tuple[str, float] | None
    known: Mapping[str, Sequence[float]]
    gpu_freed: Figure | None = None

    def side(self, goal: GoalOfRuns) -> MeanOfRuns | None:
        """Return its figure for a goal with the number of runs in it; None if it is unknown."""
        mean: Figure | None = getattr(self, _GOALS[goal])
        if mean is None:
            return None
        values = self.known[goal]
        is_gross = goal == "gross_energy" or (goal == "energy" and self.gross_joules is None)
        return MeanOfRuns(
            mean,
            len(values),
            deviation=stdev(values) if len(values) > 1 else 0.0,
            offset=(self.offset_joules or 0.0) if is_gross else 0.0,
        )

    def shown(self) -> dict[str, Any]:
        """Return it for a reader, without intervals that say nothing."""
        figures = {}
        for name in (*_GOALS.values(), "gpu_freed"):
            figure: Figure | None = getattr(self, name)
            figures[name] = figure and without_vague_ends(figure)
        return self.model_copy(update=figures).model_dump(exclude={"known"})


def compare(history: History, now_wall_ns: int) -> dict[str, Any]:
    """Return, as ``models``, each model and batch with an entry per workload, and verdicts.

    The figures are means of the last ten good runs of a workload in seven days, of those that have
    the power mode and clock locks of the model's newest run.
    """
    runs = []
    for text in history.last_good(_COMPARED, now_wall_ns - _SPAN_NS, _RUNS_PER_WORKLOAD):
        run = json.loads(text)
        if run["model"] is not None:
            runs.append(run)
    runs.sort(key=itemgetter("model", "batch", "device", "workload"))
    models = []
    for (model, batch), group in groupby(runs, itemgetter("model", "batch")):
        models.append(_compared(model, batch, [*group]))
    # Those that have an answer come first: a phone shows two.
    models.sort(key=lambda compared: not compared["verdicts"])
    return {"models": models}


def _compared(model: str, batch: int, runs: Sequence[_Run]) -> dict[str, Any]:
    """Return the part of the answer about one model and batch; its runs are sorted."""
    conditions = max(runs, key=itemgetter("started"))["conditions"]
    equal = [run for run in runs if run["conditions"] == conditions]
    has_net = any(run["net_joules_per_inference"] is not None for run in equal)
    kind: EnergyKind = "net" if has_net else "gross"
    entries = []
    for _, group in groupby(equal, itemgetter("workload", "device")):
        entries.append(_entry([*group], kind))
    on_gpu = _best(entries, "gpu", "gpu")
    for entry in entries:
        if on_gpu and entry.device != "gpu":
            entry.gpu_freed = difference(on_gpu[1].mean, entry.gpu_ratio)
    verdicts = []
    for goal in _GOALS:
        verdict = _verdict(goal, entries, kind)
        if verdict is not None:
            verdicts.append(verdict)
    return {
        "model": model,
        "batch": batch,
        "energy": kind,
        "simulated": bool(conditions[2]),
        "left_out": len(runs) - len(equal),
        "entries": [entry.shown() for entry in entries],
        "conclusion": conclusion_of(verdicts),
        "verdicts": [
            verdict.model_dump() | {"sentence": sentence_of(verdict)} for verdict in verdicts
        ],
    }


def _entry(runs: Sequence[_Run], kind: str) -> _Entry:
    newest = max(runs, key=itemgetter("started"))
    latency = present(run["p50_seconds"] for run in runs)
    joules = telling([_joules(run, kind) for run in runs])
    gross = telling([_joules(run, "gross") for run in runs]) if kind == "net" else []
    gpu = present(_mean_load(run, "gpu") for run in runs)
    offsets = present(_offset_joules(run) for run in runs)
    flags: Counter[str] = Counter()
    for run in runs:
        flags.update(flag for flag in run["quality"] or () if flag not in _QUIET)
    return _Entry(
        workload=newest["workload"],
        device=newest["device"],
        runs=len(runs),
        latest=newest["started"],
        precision=newest["requested_precision"],
        flags=flags,
        latency_seconds=mean_of_rounds(latency),
        joules=mean_energy(joules),
        gross_joules=mean_energy(gross),
        offset_joules=fmean(offsets) if offsets else None,
        gpu_ratio=mean_of_rounds(gpu, floor=_LOAD_STEP / 2),
        dla=_dla_use(newest["device"], runs),
        known={
            "latency": latency,
            "energy": [figure.value for figure in present(joules)],
            "gross_energy": [figure.value for figure in present(gross)],
            "gpu": gpu,
        },
    )


def _joules(run: _Run, kind: str) -> Figure | None:
    """Return the energy per inference of a run; None if it is withheld."""
    value = run[f"{kind}_joules_per_inference"]
    if value is None:
        return None
    interval = run[f"{kind}_joules_per_inference_interval"]
    if interval is None:
        return Figure(value=value)
    return Figure(value=value, low=interval["low"], high=interval["high"])


def _offset_joules(run: _Run) -> float | None:
    """Return what the offset of the sensors may add to an inference of a run, if it is known."""
    if run["offset_joules"] is None or not run["inferences"]:
        return None
    joules: float = run["offset_joules"] / run["inferences"]
    return joules


def _dla_use(device: str, runs: Sequence[_Run]) -> tuple[str, float] | None:
    """Return the mean use of a run's own core by the best source that all runs have."""
    if device not in DLAS:
        return None
    for source in (*SOURCES, POWERED):
        loads = present(_mean_load(run, f"{device}:{source}") for run in runs)
        if len(loads) == len(runs):
            return source, fmean(loads)
    gates = present((run["dla_active"] or {}).get(device) for run in runs)
    if not gates:
        return None
    return "gate", fmean(gates)


def _mean_load(run: _Run, name: str) -> float | None:
    load = (run["utilization"] or {}).get(name, {})
    mean: float | None = load.get("mean_ratio")
    return mean


def _best(
    entries: Sequence[_Entry], device: str, goal: GoalOfRuns
) -> tuple[_Entry, MeanOfRuns] | None:
    """Return the entry of ``gpu`` or ``dla`` with the least figure.

    An entry that mostly did not use its DLA is not a choice. One with enough runs comes before
    one without: else a single lucky run would hide what is known.
    """
    sides: list[tuple[_Entry, MeanOfRuns]] = []
    for entry in entries:
        side = entry.side(goal)
        if not entry.device.startswith(device) or side is None:
            continue
        if 2 * entry.flags.get("dla_not_used", 0) < entry.runs:
            sides.append((entry, side))
    return min(
        sides, key=lambda pair: (pair[1].runs < RUNS_NEEDED, pair[1].mean.value), default=None
    )


def _verdict(goal: GoalOfRuns, entries: Sequence[_Entry], energy: EnergyKind) -> Verdict | None:
    """Return the best DLA against the best GPU entry, as ``measure.winner`` judges them."""
    best_gpu, best_dla = _best(entries, "gpu", goal), _best(entries, "dla", goal)
    if best_gpu is None or best_dla is None:
        return None
    (gpu, gpu_side), (dla, dla_side) = best_gpu, best_dla
    judgement = judge_runs(gpu_side, dla_side)
    return Verdict(
        goal=goal,
        answer=judgement.answer,
        better=lower_device(judgement, "gpu", dla.device),
        runs=judgement.runs,
        runs_needed=RUNS_NEEDED,
        dla=dla.workload,
        gpu=gpu.workload,
        dla_value=dla_side.mean.value,
        gpu_value=gpu_side.mean.value,
        less_on_dla=judgement.gap,
        energy=energy,
    )
