"""The application: metric page, health, the run and sample API, and the status page.

No answer waits for a source: all are made of the snapshot, the timeline and the store.
"""

import asyncio
import contextlib
import json
import sqlite3
import zlib
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

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
from ...collectors.board.boards import RailRule
from ...parsers.errors import UserError
from ..export.metrics import Page
from ..export.snapshot import LiveState
from ..measure.timeline import Timeline
from ..session.windows import BODY_AT_MOST, RefusedMarkError
from ..store.history import History, samples_since
from .authentication import carries_token
from .comparison import compare
from .endpoints import BY_HANDLER, ENDPOINTS, PATHS
from .present import Present
from .status_page import STATIC, ChartWindow, bands, page_response, series, summaries

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
    body_seconds: float = 10.0


def make_app(serving: Serving) -> Starlette:
    """Return the ASGI application."""
    routes = _Routes(serving)
    errors = (HTTPException, ClientDisconnect, sqlite3.Error, Exception)
    app = Starlette(
        routes=[
            Route(one.path, getattr(routes, one.handler), methods=[one.method]) for one in ENDPOINTS
        ],
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
            document["paths"] = PATHS
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
        self._serving = serving
        self._present = Present(serving.timeline)
        self._page = Page(lambda: serving.live.snapshot, serving.clock.monotonic_ns)
        self._samples = asyncio.Semaphore(_SAMPLES_STREAMS)
        self._charts = asyncio.Semaphore(_PAGE_STREAMS)
        self._marks = asyncio.Semaphore(_MARKS_AT_MOST)

    async def metrics(self, request: Request) -> Response:
        body, content_type = self._page.render(request.headers.get("accept", ""))
        return Response(body, headers={"content-type": content_type})

    async def healthz(self, _: Request) -> Response:
        return Response("ok\n", media_type="text/plain")

    async def readyz(self, _: Request) -> Response:
        problem = self._serving.problem()
        lines = (problem or "ready", self._serving.note())
        text = "".join(f"{line}\n" for line in lines if line)
        return Response(text, 200 if problem is None else 503, media_type="text/plain")

    async def runs(self, request: Request) -> Response:
        asked = _asked("runs", request)
        workload = request.query_params.get("workload")
        before_ns = _ns(asked["before"])
        picked = self._serving.history.pick_runs(
            "report", asked["limit"], before_ns, workload=workload
        )
        waiting = await asyncio.to_thread(self._serving.not_stored)
        waiting = [run for run in waiting if workload in (None, run["workload"])][: asked["limit"]]
        try:
            found = await asyncio.to_thread(list, picked)
        except sqlite3.Error:
            if not waiting:
                raise
            found = []
        states = self._serving.live.snapshot.workloads.values()
        active = {state.workload: state.active_run for state in states if state.active_run}
        # The stored text of each report is JSON already: many as objects would cost tens of MiB.
        others = json.dumps({"not_stored": waiting, "active": active})
        text = f'{{"runs":[{",".join(found)}],{others[1:]}'
        return Response(text, media_type="application/json")

    async def run(self, request: Request) -> Response:
        run_id = request.path_params["run_id"]
        waiting = await asyncio.to_thread(self._serving.not_stored)
        document = next((run for run in waiting if run["run_id"] == run_id), None)
        if document is not None:
            return JSONResponse(document | {"stored": False})
        document = await asyncio.to_thread(self._serving.history.run, run_id)
        if document is None:
            raise HTTPException(
                404, f"no finished run {run_id[:100]!a}; GET /api/v1/runs lists them"
            )
        return JSONResponse(document)

    async def start_run(self, request: Request) -> Response:
        self._check_token(request)
        workload = _workload_in(await self._body(request, _RUN_BODY_AT_MOST))
        known = self._serving.live.snapshot.workloads
        if workload not in known:
            names = ", ".join(known) or "none"
            raise HTTPException(404, f"no workload {workload[:100]!a}; configured are: {names}")
        try:
            run_id = await asyncio.to_thread(self._serving.start_run, workload)
        except UserError as error:
            raise HTTPException(409, str(error)) from None
        return JSONResponse({"run_id": run_id}, 202)

    async def mark_window(self, request: Request) -> Response:
        self._check_token(request)
        _check_free(self._marks, "mark windows")
        try:
            async with self._marks:
                body = await self._body(request, BODY_AT_MOST)
                answer = await asyncio.to_thread(self._serving.mark_window, body)
        except RefusedMarkError as error:
            later = _LATER if error.status == 503 else None
            raise HTTPException(error.status, str(error), later) from None
        return JSONResponse(answer, 202)

    def _check_token(self, request: Request) -> None:
        if not carries_token(request.headers, self._serving.token):
            text = "send Authorization: Bearer TOKEN, or X-Tegrascope-Token: TOKEN"
            raise HTTPException(401, text, {"www-authenticate": "Bearer"})

    async def _body(self, request: Request, at_most: int) -> bytes:
        async def read() -> bytes:
            body = bytearray()
            async for chunk in request.stream():
                body += chunk
                if len(body) > at_most:
                    raise HTTPException(413, f"the body is at most {at_most} bytes", _CLOSE)
            return bytes(body)

        seconds = self._serving.body_seconds
        try:
            return await asyncio.wait_for(read(), seconds)
        except asyncio.TimeoutError:
            raise HTTPException(408, f"the body took over {seconds:g} s", _CLOSE) from None

    async def samples(self, request: Request) -> Response:
        serving, now = self._serving, self._serving.clock.wall_ns() / 1e9
        asked = _asked("samples", request)
        since = now - 60.0 if asked["since"] is None else asked["since"]
        _check_free(self._samples, "read samples")
        found = samples_since(serving.history, serving.timeline, since, asked["limit"])
        return _Streamed(_json_list("samples", found), self._samples)

    async def index(self, request: Request) -> Response:
        return page_response("index.html", request)

    async def run_page(self, request: Request) -> Response:
        return page_response("run.html", request)

    async def series(self, request: Request) -> Response:
        serving, now = self._serving, self._serving.clock.wall_ns() / 1e9
        asked = _asked("series", request)
        until = now if asked["until"] is None else asked["until"]
        since = until - _CHART_SECONDS if asked["since"] is None else asked["since"]
        step = asked["step"]
        if (until - since) / step > _STEPS_AT_MOST:
            raise HTTPException(400, f"that is over {_STEPS_AT_MOST} steps: ask for a longer one")
        _check_free(self._charts, "read the page")
        window = ChartWindow(round(since * 1e9), round(until * 1e9), round(step * 1e9))
        pieces = series(serving.history, serving.timeline, window)
        return _uncached(_Streamed(pieces, self._charts))

    async def summaries(self, request: Request) -> Response:
        asked = _asked("summaries", request)
        pieces = summaries(self._serving.history, asked["limit"], _ns(asked["before"]))
        return _uncached(_Streamed(pieces, self._charts))

    async def bands(self, request: Request) -> Response:
        asked = _asked("bands", request)
        return await self._read(
            bands, self._serving.history, asked["since"], asked["limit"], _ns(asked["before"])
        )

    async def models(self, _: Request) -> Response:
        now_ns = self._serving.clock.wall_ns()
        return await self._read(compare, self._serving.history, now_ns)

    async def _read(self, read: Callable[..., Any], *arguments: object) -> Response:
        """Answer with what a function reads from the store."""
        _check_free(self._charts, "read the page")
        async with self._charts:
            return _uncached(JSONResponse(await asyncio.to_thread(read, *arguments)))

    async def openapi(self, _: Request) -> Response:
        # Made by ``make docs``: to make it here would cost the daemon memory.
        return Response((STATIC / "openapi.json").read_bytes(), media_type="application/json")

    async def status(self, _: Request) -> Response:
        """Return the head of the page: troubles, sources, workloads, store and board."""
        serving = self._serving
        document = await asyncio.to_thread(
            self._present.document,
            serving.live.snapshot,
            serving.clock.monotonic_ns(),
            serving.clock.wall_ns(),
            serving.rule(),
            serving.next_due(),
        )
        document |= {"problem": serving.problem(), "note": serving.note()}
        return _uncached(JSONResponse(document))


def _uncached(response: Response) -> Response:
    response.headers["cache-control"] = "no-store"
    response.headers["x-content-type-options"] = "nosniff"
    return response


def _check_free(places: asyncio.Semaphore, action: str) -> None:
    if places.locked():
        raise HTTPException(503, f"too many others {action} now", _LATER)


def _asked(handler: str, request: Request) -> dict[str, Any]:
    """Return the numbers of a query, as the table of endpoints describes them."""
    return BY_HANDLER[handler].read(request.query_params)


def _ns(seconds: float | None) -> int | None:
    return None if seconds is None else int(seconds * 1e9)


def _workload_in(body: bytes) -> str:
    """Return the workload that a body names."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise HTTPException(400, f"the body cannot be read as JSON: {reason}") from None
    workload = document.get("workload") if isinstance(document, dict) else None
    if not isinstance(workload, str):
        raise HTTPException(400, 'the body is {"workload": NAME}')
    if not workload.isprintable():  # as a lone surrogate, which no UTF-8 has
        raise HTTPException(400, "the name of the workload has characters that cannot be printed")
    return workload


class _Streamed(Response):
    """A long JSON document, made and compressed in parts in another thread; never whole in memory.

    An error before the first part has an answer of its own; a later one ends the connection.
    """

    media_type = "application/json"

    def __init__(self, pieces: Generator[str, None, None], streams: asyncio.Semaphore) -> None:
        super().__init__(headers={"vary": "Accept-Encoding"})
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


def _json_list(name: str, items: Iterator[dict[str, Any]]) -> Generator[str, None, None]:
    """Yield the pieces of an object with one list in it."""
    comma = f'{{"{name}":['
    for item in items:
        yield comma + json.dumps(item, separators=(",", ":"))
        comma = ","
    yield ("]}" if comma == "," else comma + "]}")
