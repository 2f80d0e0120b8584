"""What is served: the metric page, health, and the run and sample API.

Nothing here waits for a source: every answer is made of the snapshot, the timeline and the store.
"""

import asyncio
import json
import logging
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ..collectors.base import Clock
from ..collectors.board.boards import RailRule
from ..parsers.errors import Mendable
from .export.page import Page
from .export.state import Ledger
from .measure.timeline import Timeline
from .query import number
from .secret import carries_token
from .session.windows import BODY_AT_MOST, Refusal
from .status_page.routes import page_routes
from .store.history import History, samples_since
from .streamed import Streamed, json_list

_RUNS_AT_MOST = 1000
_SAMPLES_AT_MOST = 36_000
_BODY_AT_MOST = 16 * 1024
_BODY_SECONDS = 10.0
_STREAMS_AT_MOST = 8
# Each may be a mebibyte, and several of that as numbers.
_MARKS_AT_MOST = 4
# The year 2255; SQLite's integers end a little later.
_LATEST_SECONDS = 9e9

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Serving:
    """What the routes answer from.

    Attributes:
        ledger: The snapshot.
        timeline: The last hour.
        history: The store.
        clock: The time.
        problem: Why the daemon is not ready; ``None`` where it is.
        start_run: Runs a configured workload now; returns the run's id, or raises ``Mendable``.
        mark_window: Takes what an application says of its own inference; returns the answer, or
            raises ``Refusal``.
        token: Secret for calls that change state.
        note: What is less than it could be though the daemon is ready; ``None`` for nothing.
        rule: The board's rail rule, by which rails make the module's total.
    """

    ledger: Ledger
    timeline: Timeline
    history: History
    clock: Clock
    problem: Callable[[], str | None]
    start_run: Callable[[str], str]
    mark_window: Callable[[bytes], dict[str, object]]
    token: str
    note: Callable[[], str | None] = lambda: None
    rule: Callable[[], RailRule | None] = lambda: None


def make_app(serving: Serving) -> Starlette:
    """Return the ASGI application."""
    page = Page(lambda: serving.ledger.snapshot, serving.clock.monotonic_ns)
    streams = asyncio.Semaphore(_STREAMS_AT_MOST)
    marks = asyncio.Semaphore(_MARKS_AT_MOST)

    async def metrics(request: Request) -> Response:
        body, content_type = page.render(request.headers.get("accept", ""))
        return Response(body, headers={"content-type": content_type})

    async def healthz(_: Request) -> Response:
        return Response("ok\n", media_type="text/plain")

    async def readyz(_: Request) -> Response:
        problem = serving.problem()
        said = (problem or "ready", serving.note())
        text = "".join(f"{line}\n" for line in said if line)
        return Response(text, 200 if problem is None else 503, media_type="text/plain")

    async def runs(request: Request) -> Response:
        limit = number(request, "limit", 100, 1, _RUNS_AT_MOST)
        before = number(request, "before", None, 0, _LATEST_SECONDS)
        found = await asyncio.to_thread(
            lambda: list(
                serving.history.runs(
                    int(limit or 1),
                    request.query_params.get("workload"),
                    None if before is None else int(before * 1e9),
                )
            )
        )
        states = serving.ledger.snapshot.workloads.values()
        active = {state.workload: state.active_run for state in states if state.active_run}
        return JSONResponse({"runs": found, "active": active})

    async def run(request: Request) -> Response:
        run_id = request.path_params["run_id"]
        document = await asyncio.to_thread(serving.history.run, run_id)
        if document is None:
            raise HTTPException(404, f"no finished run {run_id}")
        return JSONResponse(document)

    async def start_run(request: Request) -> Response:
        _check_token(request, serving.token)
        document = await _json_body(request)
        workload = document.get("workload")
        if not isinstance(workload, str):
            raise HTTPException(400, 'the body is {"workload": NAME}')
        try:
            run_id = await asyncio.to_thread(serving.start_run, workload)
        except Mendable as error:
            raise HTTPException(409, str(error)) from None
        return JSONResponse({"run_id": run_id}, 202)

    async def mark_window(request: Request) -> Response:
        _check_token(request, serving.token)
        if marks.locked():
            raise HTTPException(503, "enough others mark windows now", {"retry-after": "1"})
        try:
            async with marks:
                body = await _body(request, BODY_AT_MOST)
                answer = await asyncio.to_thread(serving.mark_window, body)
        except Refusal as error:
            later = {"retry-after": "1"} if error.status == 503 else None
            raise HTTPException(error.status, str(error), later) from None
        return JSONResponse(answer, 202)

    async def samples(request: Request) -> Response:
        now = serving.clock.wall_ns() / 1e9
        since = number(request, "since", now - 60.0, 0, _LATEST_SECONDS)
        limit = number(request, "limit", 3600, 1, _SAMPLES_AT_MOST)
        if streams.locked():
            raise HTTPException(503, "enough others read samples now", {"retry-after": "1"})
        found = samples_since(serving.history, serving.timeline, since or 0.0, int(limit or 1))
        return Streamed(json_list("samples", found), streams)

    async def refused(_: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return JSONResponse({"error": error.detail}, error.status_code, headers=error.headers)

    async def abandoned(_: Request, __: Exception) -> Response:
        return Response(status_code=400)  # to nobody: the client went away during its question

    async def unreadable(_: Request, error: Exception) -> Response:
        return JSONResponse({"error": f"the store can't be read: {error}"}, 503)

    async def failed(request: Request, error: Exception) -> Response:
        _LOG.error("%s %s failed", request.method, request.url.path, exc_info=error)
        return JSONResponse({"error": "tegrascope failed on it; see its log"}, 500)

    app = Starlette(
        routes=[
            Route("/metrics", metrics),
            Route("/healthz", healthz),
            Route("/readyz", readyz),
            Route("/api/v1/runs", runs, methods=["GET"]),
            Route("/api/v1/runs", start_run, methods=["POST"]),
            Route("/api/v1/runs/{run_id}", run),
            Route("/api/v1/samples", samples),
            Route("/api/v1/windows", mark_window, methods=["POST"]),
            *page_routes(serving),
        ],
        exception_handlers={
            HTTPException: refused,
            ClientDisconnect: abandoned,
            sqlite3.Error: unreadable,
            Exception: failed,
        },
        # Prometheus asks for it: a tenth of the bytes, where a fleet is scraped over the air.
        middleware=[Middleware(GZipMiddleware, minimum_size=1000, compresslevel=1)],
    )
    app.router.redirect_slashes = False  # it would send a client to the Host that it names itself
    return app


def _check_token(request: Request, token: str) -> None:
    if not carries_token(request.headers, token):
        said = "send Authorization: Bearer TOKEN, or X-Tegrascope-Token: TOKEN"
        raise HTTPException(401, said, {"www-authenticate": "Bearer"})


async def _json_body(request: Request) -> dict[str, Any]:
    try:
        document = json.loads(await _body(request, _BODY_AT_MOST))
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise HTTPException(400, "the body is a JSON object")
    return document


async def _body(request: Request, at_most: int) -> bytes:
    try:
        return await asyncio.wait_for(_read_body(request, at_most), _BODY_SECONDS)
    except asyncio.TimeoutError:
        raise HTTPException(408, f"the body took over {_BODY_SECONDS:g} s") from None


async def _read_body(request: Request, at_most: int) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > at_most:
            raise HTTPException(413, f"the body is at most {at_most} bytes")
    return bytes(body)
