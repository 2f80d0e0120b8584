"""The status page: its documents, and answers made for a phone on a radio link.

A page of several files is one document, so that a browser needs one request: over TLS and a radio
link each further file is a wait. Its answers have a few numbers per second instead of whole
samples, and a line per run instead of whole reports.
"""

import asyncio
import base64
import hashlib
import json
import re
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from math import fsum
from pathlib import Path
from typing import Any, NamedTuple

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ... import __version__
from ...parsers import signals
from ...parsers.signals import THROTTLE_EVENTS
from ..export.snapshot import SourceState, WorkloadState
from ..measure.blocks import Block
from ..measure.dla import by_core
from ..measure.energy import interval_ns
from ..measure.timeline import Timeline
from ..measure.utilization import gate_figures, load_figures, zone_figures
from ..store.history import History, blocks_between
from .answers import LATEST_SECONDS, Serving, Streamed, number

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
        for at, group in groupby(block.wall_ns, lambda wall: wall // step_ns):
            begin, end = end, end + sum(1 for _ in group)
            if not window.begin_ns <= at * step_ns <= window.end_ns:
                continue
            if step is not None and step.number != at:
                yield step, interval
                step = None
            step = step or _Step(at)
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


STATIC = Path(__file__).with_name("static")
_STREAMS_AT_MOST = 4
_BUCKETS_AT_MOST = 2000
_RUNS_AT_MOST = 100
_WINDOW_SECONDS = 900.0
_STEP_SECONDS = 2.0
# The files use this subset of the module syntax: a line each, nothing imported under another name.
_IMPORT = re.compile(rb'^import (.+) from "\./([\w.]+)"(?: with \{ type: "json" \})?;\n', re.M)
_EXPORT = re.compile(rb"^export (?=(?:async )?(?:function|class|const) (\w+))", re.M)
_ICON = re.compile(rb'(<link rel="icon" href=")(\w+\.svg)(" type="image/svg\+xml">)')
_STYLE = re.compile(rb'<link rel="stylesheet" href="(\w+\.css)">')
_SCRIPT = re.compile(rb'<script type="module" src="(\w+\.js)"></script>')


def page_routes(serving: Serving) -> list[Route]:
    """Return the routes of the page: its documents and its answers."""
    streams = asyncio.Semaphore(_STREAMS_AT_MOST)

    async def index(request: Request) -> Response:
        return page_response("index.html", request)

    async def run(request: Request) -> Response:
        return page_response("run.html", request)

    async def status(_: Request) -> Response:
        return _fresh(JSONResponse(_status(serving)))

    async def charts(request: Request) -> Response:
        now = serving.clock.wall_ns() / 1e9
        until = number(request, "until", now, 0, LATEST_SECONDS) or 0.0
        since = number(request, "since", until - _WINDOW_SECONDS, 0, LATEST_SECONDS) or 0.0
        step = number(request, "step", _STEP_SECONDS, 0.1, 3600) or _STEP_SECONDS
        if (until - since) / step > _BUCKETS_AT_MOST:
            raise HTTPException(400, f"that is over {_BUCKETS_AT_MOST} steps: ask for a longer one")
        if streams.locked():
            raise HTTPException(503, "too many others read the page now", {"retry-after": "1"})
        window = ChartWindow(round(since * 1e9), round(until * 1e9), round(step * 1e9))
        return _fresh(Streamed(series(serving.history, serving.timeline, window), streams))

    async def table(request: Request) -> Response:
        limit = number(request, "limit", 50, 1, _RUNS_AT_MOST)
        before = number(request, "before", None, 0, LATEST_SECONDS)
        return _fresh(Streamed(summaries(serving.history, int(limit or 1), before), streams))

    return [
        Route("/", index),
        Route("/runs/{run_id}", run),
        Route("/api/v1/status", status),
        Route("/api/v1/series", charts),
        Route("/api/v1/summaries", table),
    ]


def page_response(name: str, request: Request) -> Response:
    """Return a page of the folder ``STATIC``, or 304 if the browser already has it."""
    content, policy = make_document(STATIC / name)
    # Weak, since it may be compressed on its way.
    tag = f'W/"{hashlib.sha256(content).hexdigest()[:32]}"'
    headers = {
        "cache-control": "no-cache",
        "content-security-policy": policy,
        "etag": tag,
        "referrer-policy": "no-referrer",
        "x-content-type-options": "nosniff",
    }
    known = request.headers.get("if-none-match", "").split(",")
    if tag in (one.strip() for one in known):
        return Response(status_code=304, headers=headers)
    return Response(content, headers=headers, media_type="text/html")


def make_document(page: Path) -> tuple[bytes, str]:
    """Join a page with the icon, the style and the scripts that it names, in the same folder.

    Returns:
        HTML in UTF-8, and its ``Content-Security-Policy``.
    """
    folder = page.parent
    text = page.read_bytes()
    style = b"".join(_read(folder, name) for name in _STYLE.findall(text))
    script = b"".join(_join(folder, name) for name in _SCRIPT.findall(text))
    text = _ICON.sub(lambda found: found[1] + _as_url(_read(folder, found[2])) + found[3], text)
    text = _STYLE.sub(lambda _: b"<style>%b</style>" % style, text)
    text = _SCRIPT.sub(lambda _: b'<script type="module">%b</script>' % script, text)
    return text, _policy(script, style)


def _read(folder: Path, name: bytes) -> bytes:
    return (folder / name.decode()).read_bytes()


def _policy(script: bytes, style: bytes) -> str:
    # Nothing from anywhere else, nothing written into the page later, and no page around it.
    return (
        f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(style)}'; "
        "img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )


def _digest(content: bytes) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(content).digest()).decode()


def _as_url(icon: bytes) -> bytes:
    return b"data:image/svg+xml;base64," + base64.b64encode(icon)


def _join(folder: Path, entry: bytes) -> bytes:
    """Return a module and its imports as one script, imported modules first."""
    made: dict[bytes, bytes] = {}

    def take(name: bytes) -> None:
        if name not in made:
            content = _read(folder, name)
            for _, other in _IMPORT.findall(content):
                take(other)
            made[name] = content.rstrip() if name.endswith(b".json") else _scope(content)

    take(entry)
    return b"".join(b"const %b = %b;\n" % (_known_as(name), it) for name, it in made.items())


def _scope(module: bytes) -> bytes:
    """Return a module as an expression with its exports; its other names stay private."""
    exported = b", ".join(_EXPORT.findall(module))
    body = _IMPORT.sub(lambda found: b"const %b = %b;\n" % (found[1], _known_as(found[2])), module)
    return b"(() => {\n%breturn { %b };\n})()" % (_EXPORT.sub(b"", body), exported)


def _known_as(name: bytes) -> bytes:
    return b"$" + name.removesuffix(b".js").replace(b".", b"_")


def _fresh(response: Response) -> Response:
    response.headers["cache-control"] = "no-store"
    response.headers["x-content-type-options"] = "nosniff"
    return response


def _status(serving: Serving) -> dict[str, Any]:
    """Return the head of the page: sources, workloads, store and board; unknown is None."""
    snapshot = serving.live.snapshot
    environment = snapshot.environment
    now_ns, now_wall_ns = serving.clock.monotonic_ns(), serving.clock.wall_ns()
    sources = [_source(source, now_ns) for source in snapshot.sources]
    is_fresh = any(source["up"] for source in sources)
    rule = serving.rule()
    return {
        "time": now_wall_ns / 1e9,
        "version": __version__,
        "simulated": environment.simulated,
        "board": {
            "name": environment.board,
            "module": environment.module,
            "l4t": environment.l4t,
            "jetpack": environment.jetpack,
            "power_mode": environment.power_mode,
            "clocks_locked": environment.clocks_locked,
        },
        "total_rails": [] if rule is None else list(rule.total),
        "problem": serving.problem(),
        "note": serving.note(),
        "sources": sources,
        "companions": {name: up and is_fresh for name, up in snapshot.companions_up.items()},
        "store": {
            "problem": snapshot.store_problem,
            "write_errors": snapshot.store_write_errors,
            "free_bytes": snapshot.store_free_bytes,
        },
        "throttle_events": {
            kind: int(events) for kind, events in THROTTLE_EVENTS.by_label(snapshot.values).items()
        },
        "workloads": [_workload(state) for state in snapshot.workloads.values()],
        "skipped": dict(snapshot.skipped),
    }


def _source(source: SourceState, now_ns: int) -> dict[str, Any]:
    latest = source.latest
    return {
        "name": source.name,
        "up": source.is_fresh(now_ns),
        "interval_seconds": source.interval_seconds,
        "age_seconds": None if latest is None else (now_ns - latest.monotonic_ns) / 1e9,
        "samples": source.samples,
        "restarts": source.restarts,
        "lines_unparsed": sum(source.lines_unparsed.values()),
        "tokens_unparsed": source.tokens_unparsed,
        "lacks_root": source.lacks_root,
    }


def _workload(state: WorkloadState) -> dict[str, Any]:
    return {
        "workload": state.workload,
        "device": state.device,
        "active_run": state.active_run,
        "runs": dict(state.runs),
        "inferences": state.inferences,
    }


_LATENCIES = ("p50_seconds", "p99_seconds")
_ENERGIES = (
    "gross_joules",
    "gross_joules_per_inference",
    "net_joules_per_inference",
    "largest_uncertainty",
)


def _field(name: str, path: str) -> str:
    return f"'{name}', json_extract(report, '$.{path}')"


def _of_the_end(name: str) -> str:
    # A run in flight has the values that hold if the daemon dies.
    return f"'{name}', CASE WHEN in_flight THEN NULL ELSE json_extract(report, '$.{name}') END"


_SUMMARY = "json_object({})".format(
    ", ".join(
        (
            "'run_id', run_id, 'workload', workload, 'device', device",
            "'started_seconds', started_wall_ns / 1e9",
            *(_of_the_end(name) for name in ("outcome", "reason", "ended_ns", "inferences")),
            *(_field(name, name) for name in ("started_ns", "batch")),
            _field("throughput_per_second", "throughput_per_second"),
            *(_field(name, name) for name in ("quality", "overlapping_runs")),
            _field("steady", "phases.steady"),
            *(_field(name, f"latency.{name}") for name in _LATENCIES),
            *(_field(name, f"energy.{name}") for name in _ENERGIES),
            _field("simulated", "environment.simulated"),
            _field("placement", "built.placement.verdict"),
        )
    )
)


def summaries(
    history: History, limit: int, before_seconds: float | None
) -> Generator[str, None, None]:
    """Yield the pieces of ``{"in_flight", "runs"}``: newest first, each with the table's columns.

    SQLite extracts them from the reports, which are long. Outcome, reason, end and number of
    inferences of a run in flight are null.
    """
    before_ns = None if before_seconds is None else int(before_seconds * 1e9)
    in_flight = ",".join(history.pick_runs(_SUMMARY, limit, in_flight=True))
    finished = ",".join(history.pick_runs(_SUMMARY, limit, before_ns))
    yield f'{{"in_flight":[{in_flight}],"runs":[{finished}]}}'
