"""The application: metric page, health, the run and sample API, and the status page.

No answer waits for a source: all are made of the snapshot, the timeline and the store.
"""

import asyncio
import json
import sqlite3

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ...parsers.errors import UserError
from ..session.windows import BODY_AT_MOST, RefusedMarkError
from ..store.history import samples_since
from .answers import LATEST_SECONDS, Page, Serving, Streamed, json_list, number
from .authentication import carries_token
from .status_page import page_routes

_RUNS_AT_MOST = 1000
_SAMPLES_AT_MOST = 36_000
_BODY_AT_MOST = 16 * 1024
_STREAMS_AT_MOST = 8
# Each may be a mebibyte, and several of that as numbers.
_MARKS_AT_MOST = 4
# The rest of the body is not waited for.
_CLOSE = {"connection": "close"}


def make_app(serving: Serving) -> Starlette:
    """Return the ASGI application."""
    page = Page(lambda: serving.live.snapshot, serving.clock.monotonic_ns)
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
        limit = int(number(request, "limit", 100, 1, _RUNS_AT_MOST) or 1)
        before = number(request, "before", None, 0, LATEST_SECONDS)
        workload = request.query_params.get("workload")
        before_ns = None if before is None else int(before * 1e9)
        found = await asyncio.to_thread(
            lambda: list(serving.history.runs(limit, workload, before_ns))
        )
        states = serving.live.snapshot.workloads.values()
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
        try:
            document = json.loads(await _body(request, _BODY_AT_MOST, serving.body_seconds))
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, dict):
            raise HTTPException(400, "the body is a JSON object")
        workload = document.get("workload")
        if not isinstance(workload, str):
            raise HTTPException(400, 'the body is {"workload": NAME}')
        try:
            run_id = await asyncio.to_thread(serving.start_run, workload)
        except UserError as error:
            raise HTTPException(409, str(error)) from None
        return JSONResponse({"run_id": run_id}, 202)

    async def mark_window(request: Request) -> Response:
        _check_token(request, serving.token)
        if marks.locked():
            raise HTTPException(503, "too many others mark windows now", {"retry-after": "1"})
        try:
            async with marks:
                body = await _body(request, BODY_AT_MOST, serving.body_seconds)
                answer = await asyncio.to_thread(serving.mark_window, body)
        except RefusedMarkError as error:
            later = {"retry-after": "1"} if error.status == 503 else None
            raise HTTPException(error.status, str(error), later) from None
        return JSONResponse(answer, 202)

    async def samples(request: Request) -> Response:
        now = serving.clock.wall_ns() / 1e9
        since = number(request, "since", now - 60.0, 0, LATEST_SECONDS)
        limit = number(request, "limit", 3600, 1, _SAMPLES_AT_MOST)
        if streams.locked():
            raise HTTPException(503, "too many others read samples now", {"retry-after": "1"})
        found = samples_since(serving.history, serving.timeline, since or 0.0, int(limit or 1))
        return Streamed(json_list("samples", found), streams)

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
            HTTPException: _refused,
            ClientDisconnect: _abandoned,
            sqlite3.Error: _unreadable,
            Exception: _failed,
        },
        # Prometheus asks for it: a tenth of the bytes, for fleets that are scraped by radio.
        middleware=[Middleware(GZipMiddleware, minimum_size=1000, compresslevel=1)],
    )
    app.router.redirect_slashes = False  # the target would be the Host that the client sent
    return app


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, error.status_code, headers=error.headers)


async def _abandoned(_: Request, __: Exception) -> Response:
    return Response(status_code=400)  # the client has left during its request


async def _unreadable(_: Request, error: Exception) -> Response:
    return JSONResponse({"error": f"the store can't be read: {error}"}, 503)


async def _failed(_: Request, __: Exception) -> Response:
    return JSONResponse({"error": "tegrascope failed on it; see its log"}, 500)  # the server logs


def _check_token(request: Request, token: str) -> None:
    if not carries_token(request.headers, token):
        said = "send Authorization: Bearer TOKEN, or X-Tegrascope-Token: TOKEN"
        raise HTTPException(401, said, {"www-authenticate": "Bearer"})


async def _body(request: Request, at_most: int, seconds: float) -> bytes:
    async def read() -> bytes:
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > at_most:
                raise HTTPException(413, f"the body is at most {at_most} bytes", _CLOSE)
        return bytes(body)

    try:
        return await asyncio.wait_for(read(), seconds)
    except asyncio.TimeoutError:
        raise HTTPException(408, f"the body took over {seconds:g} s", _CLOSE) from None
