"""The status page: its documents, and answers made for a phone on a radio link.

A page of several files is one document, so that a browser needs one request: over TLS and a radio
link each further file is a wait. Its answers have a few numbers per second instead of whole
samples, and a line per run instead of whole reports.
"""

import asyncio
import base64
import hashlib
import re
from collections.abc import Generator
from pathlib import Path
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ... import __version__
from ...parsers.signals import THROTTLE_EVENTS
from ..export.snapshot import SourceState, WorkloadState
from ..store.history import History
from .answers import LATEST_SECONDS, Serving, Streamed, number
from .series import ChartWindow, series

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
    snapshot = serving.ledger.snapshot
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
