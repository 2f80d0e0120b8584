"""The application: metric page, health, the run and sample API, and the status page.

No answer waits for a source: all are made of the snapshot, the timeline and the store. A handler
declares its path, parameters and answer; router, checks of parameters, OpenAPI document, the paths
in a 404 and the test of ``docs/http.md`` use that.
"""

import asyncio
import contextlib
import json
import math
import sqlite3
import zlib
from collections.abc import Awaitable, Callable, Collection, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from functools import wraps
from itertools import islice
from typing import Any, TypeAlias, get_args

from pydantic import BaseModel, ValidationError
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from ...collectors.base import Clock
from ...parsers.errors import UserError
from ...parsers.rails import RailRule
from ..export.metrics import Page
from ..export.snapshot import LiveState
from ..measure.report import RunReport
from ..measure.run_text import run_rows
from ..measure.timeline import Timeline
from ..session.windows import BODY_AT_MOST, RefusedMarkError
from ..settings.config import Tool
from ..store.history import History, samples_since
from .authentication import carries_token
from .present import Present
from .status_page import STATIC, bands, compare, page_response, series, summaries
from .troubles import TroubleWatch

_STEPS_AT_MOST = 2000
_RUN_BODY_AT_MOST = 16 * 1024
# Clients that read samples, or the status page, at a time.
_SAMPLES_STREAMS, _PAGE_STREAMS = 8, 4
# Each may be a mebibyte, and several of that as numbers.
_MARKS_AT_MOST = 4
# Samples in one part of an answer; more cost memory for each client.
_PIECES = 4
_CHART_SECONDS = 900.0
_LATER = {"retry-after": "1"}
# The rest of the body is not waited for.
_CLOSE = {"connection": "close"}
_UNCACHED = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
# The year 2255; SQLite's integers end a little later.
_LATEST_SECONDS = 9e9


@dataclass(frozen=True)
class Parameter:
    """A number in the query, or a text without limits.

    Attributes:
        high: Greatest number; None for a text.
        default: Value if it is omitted; None leaves it to the handler, as ``help`` says.
    """

    name: str
    help: str
    low: float = 0
    high: float | None = _LATEST_SECONDS
    default: float | None = None
    is_integer: bool = False

    def read(self, text: str | None) -> float | str | None:
        """Return the value of a query, or raise ``HTTPException`` beyond the limits."""
        if text is None:
            return self.default
        if self.high is None:
            return text
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not self.low <= value <= self.high:
            limits = f"from {self.low:g} to {self.high:g}"
            raise HTTPException(400, f"{self.name} is a number {limits}, not {text[:100]!a}")
        if self.is_integer:
            return math.floor(value)
        return value


@dataclass(frozen=True)
class Endpoint:
    """One path with one method.

    Attributes:
        handler: Name of the method that answers; the summary is its docstring.
        media: Type of the answer.
        keys: JSON types of the keys of the answer; ``reports`` is a list of ``RunReport``.
        body: JSON types of the keys of the request; a request with a body needs the token.
        statuses: Those of an answer besides 200.
    """

    path: str
    handler: str
    summary: str
    parameters: tuple[Parameter, ...] = ()
    media: str = "application/json"
    keys: Mapping[str, str | tuple[str, ...]] | None = None
    body: Mapping[str, str] | None = None
    statuses: tuple[int, ...] = ()

    @property
    def method(self) -> str:
        """The method of HTTP."""
        return "GET" if self.body is None else "POST"


_Answer: TypeAlias = Callable[..., Awaitable[Response]]
ENDPOINTS: list[Endpoint] = []


def _answers(path: str, *parameters: Parameter, **described: Any) -> Callable[[_Answer], _Answer]:
    """Declare a handler; it is called with the values of the query, and if the token is right."""

    def declare(handler: _Answer) -> _Answer:
        summary = " ".join((handler.__doc__ or "").split()).rstrip(".")
        endpoint = Endpoint(path, handler.__name__, summary, parameters, **described)
        ENDPOINTS.append(endpoint)

        @wraps(handler)
        async def answer(routes: "_Routes", request: Request) -> Response:
            needs_token = endpoint.body is not None
            if needs_token and not carries_token(request.headers, routes.serving.token):
                text = "send Authorization: Bearer TOKEN, or X-Tegrascope-Token: TOKEN"
                raise HTTPException(401, text, {"www-authenticate": "Bearer"})
            query = request.query_params
            asked = {}
            for parameter in parameters:
                asked[parameter.name] = parameter.read(query.get(parameter.name))
            return await handler(routes, request, **asked)

        return answer

    return declare


def _limit(high: int, default: int) -> Parameter:
    return Parameter("limit", "most entries", 1, high, default, is_integer=True)


_BEFORE = Parameter("before", "only runs that started before this time")
_PAGE, _TEXT = "text/html", "text/plain"
_ASKED = "seconds since 1970"


@dataclass(frozen=True)
class Serving:
    """The parts of the daemon that the routes answer from.

    Attributes:
        problem: Why the daemon is not ready, or None.
        start_run: Runs a configured workload and returns the run's id, or raises ``UserError``.
        mark_window: Takes an application's mark and returns the answer, or raises
            ``RefusedMarkError``.
        note: A restriction of a daemon that is ready, or None.
        next_due: Returns the monotonic time of the next run of each scheduled workload.
        not_stored: Returns the finished runs that are in memory only.
        compatibility: Tools whose pages are served.
    """

    live: LiveState
    timeline: Timeline
    history: History
    clock: Clock
    problem: Callable[[], str | None]
    start_run: Callable[[str], str]
    mark_window: Callable[[bytes], dict[str, object]]
    token: str
    note: Callable[[], str | None] = lambda: None
    rule: Callable[[], RailRule | None] = lambda: None
    next_due: Callable[[], Mapping[str, int]] = dict
    not_stored: Callable[[], list[dict[str, Any]]] = list
    compatibility: Collection[Tool] = ()
    troubles: TroubleWatch = field(default_factory=TroubleWatch)
    body_seconds: float = 10.0


class _RunAsked(BaseModel):
    workload: str


def make_app(serving: Serving) -> Starlette:
    """Return the ASGI application."""
    routes = _Routes(serving)
    errors = (HTTPException, ClientDisconnect, sqlite3.Error, Exception)
    paths = []
    for endpoint in ENDPOINTS:
        handler = getattr(routes, endpoint.handler)
        paths.append(Route(endpoint.path, handler, methods=[endpoint.method]))
    app = Starlette(
        routes=paths,
        exception_handlers=dict.fromkeys(errors, _answer_error),
        # Prometheus asks for it: a tenth of the bytes, for fleets that are scraped by radio.
        middleware=[Middleware(GZipMiddleware, minimum_size=1000, compresslevel=1)],
    )
    app.router.redirect_slashes = False  # the target would be the Host that the client sent
    return app


async def _answer_error(_: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException):
        document: dict[str, Any] = {"error": error.detail}
        if error.status_code == 404:
            document["paths"] = list(dict.fromkeys(endpoint.path for endpoint in ENDPOINTS))
            if error.detail == "Not Found":  # the router's own
                document["error"] = "there is no such path"
        return JSONResponse(document, error.status_code, headers=error.headers)
    if isinstance(error, ClientDisconnect):  # it has left during its request
        return Response(status_code=400)
    if isinstance(error, sqlite3.Error):
        return JSONResponse({"error": f"the store can't be read: {error}"}, 503)
    return JSONResponse({"error": "tegrascope failed on it; see its log"}, 500)  # the server logs


class _Routes:
    def __init__(self, serving: Serving) -> None:
        self.serving = serving
        self._present = Present(serving.timeline, serving.troubles)
        self._page = Page(lambda: serving.live.snapshot, serving.clock.monotonic_ns)
        self._samples = asyncio.Semaphore(_SAMPLES_STREAMS)
        self._charts = asyncio.Semaphore(_PAGE_STREAMS)
        self._marks = asyncio.Semaphore(_MARKS_AT_MOST)

    @_answers("/metrics", media=_TEXT)
    async def metrics(self, request: Request) -> Response:
        """Return the page for Prometheus, or OpenMetrics on request."""
        body, content_type = self._page.render(request.headers.get("accept", ""))
        return Response(body, headers={"content-type": content_type})

    @_answers("/metrics/{tool}", media=_TEXT, statuses=(404,))
    async def tool_metrics(self, request: Request) -> Response:
        """Return the page with the metric names of another tool, if it is configured."""
        tool, serving = request.path_params["tool"], self.serving
        if tool not in serving.compatibility:
            known = " and ".join(get_args(Tool))
            text = f"no page for {tool[:100]!a}; http.compatibility in the configuration"
            raise HTTPException(404, f"{text} turns on those for {known}")
        snapshot, now_ns = serving.live.snapshot, serving.clock.monotonic_ns()
        from ..export import compatibility

        page = compatibility.render(tool, snapshot, now_ns, serving.rule())
        return Response(page, headers={"content-type": compatibility.CONTENT_TYPE})

    @_answers("/metrics/{tool}/metrics", media=_TEXT, statuses=(404,))
    async def tool_metrics_below(self, request: Request) -> Response:
        """Return the same page: AIPerf adds `/metrics` to an address that ends otherwise."""
        return await self.tool_metrics(request)

    @_answers("/healthz", media=_TEXT)
    async def healthz(self, _: Request) -> Response:
        """Return `ok` while the process lives."""
        return Response("ok\n", media_type="text/plain")

    @_answers("/readyz", media=_TEXT, statuses=(503,))
    async def readyz(self, _: Request) -> Response:
        """Return ready or the reason why not, and a note."""
        problem = self.serving.problem()
        lines = (problem or "ready", self.serving.note())
        text = "".join(f"{line}\n" for line in lines if line)
        return Response(text, 200 if problem is None else 503, media_type="text/plain")

    @_answers(
        "/api/v1/runs",
        *(_limit(1000, 100), _BEFORE),
        Parameter("workload", "only runs of this workload", high=None),
        keys={"runs": "reports", "not_stored": "reports", "active": "object"},
        statuses=(400, 503),
    )
    async def runs(
        self, _: Request, limit: int, before: float | None, workload: str | None
    ) -> Response:
        """Return finished runs, newest first, as whole reports.

        `not_stored` has those that are in memory only, and `active` the run in flight by workload.
        """
        picked = self.serving.history.pick_runs("report", limit, _ns(before), workload=workload)
        waiting = await asyncio.to_thread(self.serving.not_stored)
        waiting = [run for run in waiting if workload in (None, run["workload"])][:limit]
        try:
            reports = await asyncio.to_thread(list, picked)
        except sqlite3.Error:
            if not waiting:
                raise
            reports = []
        states = self.serving.live.snapshot.workloads.values()
        active = {state.workload: state.active_run for state in states if state.active_run}
        # The stored text of each report is JSON already: many as objects would cost tens of MiB.
        others = json.dumps({"not_stored": waiting, "active": active})
        text = f'{{"runs":[{",".join(reports)}],{others[1:]}'
        return Response(text, media_type="application/json")

    @_answers("/api/v1/runs/{run_id}", keys={}, statuses=(404, 503))
    async def run(self, request: Request) -> Response:
        """Return one finished run, by its id or a unique beginning or end of it."""
        document = await self._finished_run(request.path_params["run_id"])
        return JSONResponse(document)

    @_answers("/api/v1/runs/{run_id}/text", keys={"rows": "array"}, statuses=(404, 503))
    async def run_text(self, request: Request) -> Response:
        """Return a finished run as rows of label, value, unit and interval, as commands print it.

        A run of an older release whose record has another form has no rows.
        """
        document = await self._finished_run(request.path_params["run_id"])
        document.pop("stored", None)
        try:
            rows = run_rows(RunReport.model_validate(document))
        except ValidationError:
            rows = []
        return JSONResponse({"rows": [row._asdict() for row in rows]})

    async def _finished_run(self, run_id: str) -> dict[str, Any]:
        """Return a run by its id or a unique part of it; ``stored`` is false while it waits."""
        for document in await asyncio.to_thread(self.serving.not_stored):
            if document["run_id"] == run_id:
                return document | {"stored": False}
        stored = await asyncio.to_thread(self.serving.history.run, run_id)
        if stored is None:
            raise HTTPException(
                404, f"no finished run {run_id[:100]!a}; GET /api/v1/runs lists them"
            )
        return stored

    @_answers(
        "/api/v1/runs",
        keys={"run_id": "string"},
        body={"workload": "string"},
        statuses=(400, 401, 404, 408, 409, 413),
    )
    async def start_run(self, request: Request) -> Response:
        """Start a configured workload now."""
        body = await self._body(request, _RUN_BODY_AT_MOST)
        try:
            workload = _RunAsked.model_validate_json(body).workload
        except ValidationError as error:
            reason = error.errors(include_url=False, include_input=False)[0]["msg"]
            raise HTTPException(400, f'the body is {{"workload": NAME}}; {reason}') from None
        known = self.serving.live.snapshot.workloads
        if workload not in known:
            names = ", ".join(known) or "none"
            raise HTTPException(404, f"no workload {workload[:100]!a}; configured are: {names}")
        try:
            run_id = await asyncio.to_thread(self.serving.start_run, workload)
        except UserError as error:
            raise HTTPException(409, str(error)) from None
        return JSONResponse({"run_id": run_id}, 202)

    @_answers(
        "/api/v1/windows",
        keys={"run_id": "string"},
        body={"event": "string"},
        statuses=(400, 401, 408, 409, 413, 503),
    )
    async def mark_window(self, request: Request) -> Response:
        """Mark the begin or the end of an application's window, or a past window."""
        _check_free(self._marks, "mark windows")
        try:
            async with self._marks:
                body = await self._body(request, BODY_AT_MOST)
                answer = await asyncio.to_thread(self.serving.mark_window, body)
        except RefusedMarkError as error:
            later = _LATER if error.status == 503 else None
            raise HTTPException(error.status, str(error), later) from None
        return JSONResponse(answer, 202)

    async def _body(self, request: Request, at_most: int) -> bytes:
        async def read() -> bytes:
            body = bytearray()
            async for chunk in request.stream():
                body += chunk
                if len(body) > at_most:
                    raise HTTPException(413, f"the body is at most {at_most} bytes", _CLOSE)
            return bytes(body)

        seconds = self.serving.body_seconds
        try:
            body = await asyncio.wait_for(read(), seconds)
        except asyncio.TimeoutError:
            raise HTTPException(408, f"the body took over {seconds:g} s", _CLOSE) from None
        _check_unicode(body)
        return body

    @_answers(
        "/api/v1/samples",
        Parameter("since", f"{_ASKED}; default: a minute ago"),
        _limit(36_000, 3600),
        keys={"samples": "array"},
        statuses=(400, 503),
    )
    async def samples(self, _: Request, since: float | None, limit: int) -> Response:
        """Return samples, oldest first, with `time`, `source` and `values` by column."""
        serving = self.serving
        if since is None:
            since = serving.clock.wall_ns() / 1e9 - 60.0
        _check_free(self._samples, "read samples")
        samples = samples_since(serving.history, serving.timeline, since, limit)
        return _Streamed(_list_of_samples(samples), self._samples)

    @_answers("/", media=_PAGE, statuses=(304,))
    async def index(self, request: Request) -> Response:
        """Return the status page."""
        return page_response("index.html", request)

    @_answers("/runs/{run_id}", media=_PAGE, statuses=(304,))
    async def run_page(self, request: Request) -> Response:
        """Return the page of a run."""
        return page_response("run.html", request)

    @_answers(
        "/api/v1/series",
        Parameter("since", f"{_ASKED}; default: 15 minutes before `until`"),
        Parameter("until", f"{_ASKED}; default: now"),
        Parameter("step", "seconds per step", 0.1, 3600, 2.0),
        keys={"step": "number", "parts": "array", "interval": ("number", "null")},
        statuses=(400, 503),
    )
    async def series(
        self, _: Request, since: float | None, until: float | None, step: float
    ) -> Response:
        """Return telemetry in steps."""
        serving = self.serving
        if until is None:
            until = serving.clock.wall_ns() / 1e9
        if since is None:
            since = until - _CHART_SECONDS
        if (until - since) / step > _STEPS_AT_MOST:
            raise HTTPException(400, f"that is over {_STEPS_AT_MOST} steps: ask for a longer one")
        _check_free(self._charts, "read the page")
        since_ns, until_ns, step_ns = round(since * 1e9), round(until * 1e9), round(step * 1e9)
        pieces = series(serving.history, serving.timeline, since_ns, until_ns, step_ns)
        return _Streamed(pieces, self._charts, _UNCACHED)

    @_answers(
        "/api/v1/summaries",
        *(_limit(100, 50), _BEFORE),
        keys={"in_flight": "array", "runs": "array"},
        statuses=(400, 503),
    )
    async def summaries(self, _: Request, limit: int, before: float | None) -> Response:
        """Return runs in flight and finished runs, newest first, with a few fields each."""
        pieces = summaries(self.serving.history, limit, _ns(before))
        return _Streamed(pieces, self._charts, _UNCACHED)

    @_answers(
        "/api/v1/bands",
        Parameter("since", f"only runs that ended after this time; {_ASKED}", default=0.0),
        *(_limit(2000, 2000), _BEFORE),
        keys={"since": "number", "bands": "array"},
        statuses=(400, 503),
    )
    async def bands(self, _: Request, since: float, limit: int, before: float | None) -> Response:
        """Return when runs took place, newest first, without those that did not start."""
        return await self._read(bands, self.serving.history, since, limit, _ns(before))

    @_answers("/api/v1/models", keys={"models": "array"}, statuses=(503,))
    async def models(self, _: Request) -> Response:
        """Return each model with its figures by device, and which device is better."""
        now_ns = self.serving.clock.wall_ns()
        return await self._read(compare, self.serving.history, now_ns)

    async def _read(self, read: Callable[..., Any], *arguments: object) -> Response:
        """Answer with what a function reads from the store."""
        _check_free(self._charts, "read the page")
        async with self._charts:
            return JSONResponse(await asyncio.to_thread(read, *arguments), headers=_UNCACHED)

    @_answers("/api/v1/openapi.json", keys={})
    async def openapi(self, _: Request) -> Response:
        """Return this table as OpenAPI 3.1."""
        # Made by ``make docs``: to make it here would cost the daemon memory.
        return Response((STATIC / "openapi.json").read_bytes(), media_type="application/json")

    @_answers(
        "/api/v1/status",
        keys={
            "time": "number",
            "version": "string",
            "simulated": "boolean",
            **dict.fromkeys(
                ("board", "vital", "now", "limits", "trips", "companions", "store"), "object"
            ),
            **dict.fromkeys(
                ("total_rails", "troubles", "processes", "sources", "workloads", "compatibility"),
                "array",
            ),
            **dict.fromkeys(("skipped", "signal_sources"), "object"),
            **dict.fromkeys(("problem", "note"), ("string", "null")),
        },
    )
    async def status(self, _: Request) -> Response:
        """Return the present state: board, troubles, processes, sources, workloads, store."""
        serving = self.serving
        document = await asyncio.to_thread(
            self._present.document,
            serving.live.snapshot,
            serving.clock.monotonic_ns(),
            serving.clock.wall_ns(),
            serving.rule(),
            serving.next_due(),
        )
        document |= {"problem": serving.problem(), "note": serving.note()}
        document["compatibility"] = list(serving.compatibility)
        return JSONResponse(document, headers=_UNCACHED)


def _check_unicode(body: bytes) -> None:
    """Refuse a body with a text that no answer, store or log could hold, whatever its key is.

    Any other body passes: a body that is not JSON is an error of its route.
    """
    try:
        text = body.decode()
        if b"\\ud" in body or b"\\uD" in body:  # it may be half of a pair, or a whole one
            json.dumps(json.loads(text), ensure_ascii=False).encode()
    except UnicodeDecodeError:
        raise HTTPException(400, "the body is not UTF-8") from None
    except UnicodeEncodeError:
        what = "the body has a lone surrogate, such as \\ud800, which is half a character"
        raise HTTPException(400, what) from None
    except (ValueError, RecursionError):
        pass


def _check_free(places: asyncio.Semaphore, action: str) -> None:
    if places.locked():
        raise HTTPException(503, f"too many others {action} now", _LATER)


def _ns(seconds: float | None) -> int | None:
    return None if seconds is None else int(seconds * 1e9)


class _Streamed(Response):
    """A long JSON document, made and compressed in parts in another thread; never whole in memory.

    An error before the first part has an answer of its own; a later one ends the connection.
    """

    media_type = "application/json"

    def __init__(
        self,
        pieces: Generator[str, None, None],
        streams: asyncio.Semaphore,
        headers: Mapping[str, str] = {},
    ) -> None:
        super().__init__(headers={**headers, "vary": "Accept-Encoding"})
        del self.headers["content-length"]
        self._pieces = pieces
        self._streams = streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_packed = "gzip" in Headers(scope=scope).get("accept-encoding", "")
        if is_packed:
            self.headers["content-encoding"] = "gzip"
        parts = _parts(self._pieces, is_packed=is_packed)
        gone = asyncio.ensure_future(_until_gone(receive))
        try:
            async with self._streams:
                body = await asyncio.to_thread(next, parts, b"")
                start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
                await send(start)
                while body and not gone.done():
                    await send({"type": "http.response.body", "body": body, "more_body": True})
                    body = await asyncio.to_thread(next, parts, b"")
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            gone.cancel()
            with contextlib.suppress(ValueError):  # a thread runs it, and closes it when it ends
                parts.close()


def _parts(pieces: Generator[str, None, None], *, is_packed: bool) -> Generator[bytes, None, None]:
    # A window of 8 KiB: a compressor needs 64 KiB of memory per client then, and not 256.
    packer = zlib.compressobj(1, wbits=16 + 13, memLevel=6) if is_packed else None
    with contextlib.closing(pieces):
        while text := "".join(islice(pieces, _PIECES)):
            part = text.encode() if packer is None else packer.compress(text.encode())
            if part:
                yield part
    if packer is not None:
        yield packer.flush()


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _list_of_samples(samples: Iterator[dict[str, Any]]) -> Generator[str, None, None]:
    yield '{"samples":['
    for number, sample in enumerate(samples):
        yield ("," if number else "") + json.dumps(sample, separators=(",", ":"))
    yield "]}"
