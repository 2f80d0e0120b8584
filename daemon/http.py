"""What is served: the metric page, health, and the run and sample API.

Nothing here waits for a source: every answer is made of the snapshot, the timeline and the store.
"""

import asyncio
import contextlib
import hmac
import html
import json
import logging
import math
import socket
import sqlite3
from collections.abc import Awaitable, Callable, Generator, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from hypercorn.asyncio import serve as hypercorn_serve
from hypercorn.config import Config as HypercornConfig
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from ..collectors.base import Clock
from ..parsers.errors import Mendable
from .config import split_listen
from .history import History
from .http1 import speak_http1_only
from .ledger import Ledger
from .page import Page
from .samples import samples_since
from .timeline import Timeline

_RUNS_AT_MOST = 1000
_SAMPLES_AT_MOST = 36_000
_BODY_AT_MOST = 16 * 1024
_BODY_SECONDS = 10.0
_STREAMS_AT_MOST = 8
# The year 2255; SQLite's integers end a little later.
_LATEST_SECONDS = 9e9
# What is sent and not taken for so long ends the connection: a slow reader holds memory.
_UNREAD_MS = 20_000
_STOP_SECONDS = 1.0

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
        token: Secret for calls that change state.
    """

    ledger: Ledger
    timeline: Timeline
    history: History
    clock: Clock
    problem: Callable[[], str | None]
    start_run: Callable[[str], str]
    token: str


def make_app(serving: Serving) -> Starlette:
    """Return the ASGI application."""
    page = Page(lambda: serving.ledger.snapshot, serving.clock.monotonic_ns)
    streams = asyncio.Semaphore(_STREAMS_AT_MOST)

    async def metrics(request: Request) -> Response:
        body, content_type = page.render(request.headers.get("accept", ""))
        return Response(body, headers={"content-type": content_type})

    async def healthz(_: Request) -> Response:
        return Response("ok\n", media_type="text/plain")

    async def readyz(_: Request) -> Response:
        problem = serving.problem()
        text = "ready\n" if problem is None else f"{problem}\n"
        return Response(text, 200 if problem is None else 503, media_type="text/plain")

    async def index(_: Request) -> Response:
        return HTMLResponse(_index(serving))

    async def runs(request: Request) -> Response:
        limit = _number(request, "limit", 100, 1, _RUNS_AT_MOST)
        before = _number(request, "before", None, 0, _LATEST_SECONDS)
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

    async def samples(request: Request) -> Response:
        now = serving.clock.wall_ns() / 1e9
        since = _number(request, "since", now - 60.0, 0, _LATEST_SECONDS)
        limit = _number(request, "limit", 3600, 1, _SAMPLES_AT_MOST)
        if streams.locked():
            raise HTTPException(503, "enough others read samples now", {"retry-after": "1"})
        found = samples_since(serving.history, serving.timeline, since or 0.0, int(limit or 1))
        return _Streamed(_json_list("samples", found), streams)

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
            Route("/", index),
            Route("/metrics", metrics),
            Route("/healthz", healthz),
            Route("/readyz", readyz),
            Route("/api/v1/runs", runs, methods=["GET"]),
            Route("/api/v1/runs", start_run, methods=["POST"]),
            Route("/api/v1/runs/{run_id}", run),
            Route("/api/v1/samples", samples),
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


def _number(
    request: Request, name: str, default: float | None, low: float, high: float
) -> float | None:
    text = request.query_params.get(name)
    if text is None:
        return default
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not low <= value <= high:
        raise HTTPException(400, f"{name} is a number from {low:g} to {high:g}, not {text!r}")
    return value


def _check_token(request: Request, token: str) -> None:
    given = request.headers.get("authorization", "").removeprefix("Bearer ")
    if not hmac.compare_digest(given.encode(), token.encode()):
        raise HTTPException(401, "send Authorization: Bearer TOKEN", {"www-authenticate": "Bearer"})


async def _json_body(request: Request) -> dict[str, Any]:
    try:
        body = await asyncio.wait_for(_body(request), _BODY_SECONDS)
    except asyncio.TimeoutError:
        raise HTTPException(408, f"the body took over {_BODY_SECONDS:g} s") from None
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise HTTPException(400, "the body is a JSON object")
    return document


async def _body(request: Request) -> bytes:
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > _BODY_AT_MOST:
            raise HTTPException(413, f"the body is at most {_BODY_AT_MOST} bytes")
    return body


class _Streamed(Response):
    """A long JSON document, made piece by piece in another thread; never whole in memory.

    What goes wrong before the first piece is an answer of its own; later it ends the connection.
    """

    media_type = "application/json"

    def __init__(self, pieces: Generator[str, None, None], streams: asyncio.Semaphore) -> None:
        super().__init__()
        del self.headers["content-length"]
        self._pieces = pieces
        self._streams = streams

    async def __call__(self, _: Scope, receive: Receive, send: Send) -> None:
        gone = asyncio.ensure_future(_until_gone(receive))
        try:
            async with self._streams:
                await self._send(send, gone)
        finally:
            gone.cancel()
            with contextlib.suppress(ValueError):  # another thread is at it; it ends with that one
                self._pieces.close()

    async def _send(self, send: Send, gone: "asyncio.Future[None]") -> None:
        piece = await self._piece()
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(start)
        while piece and not gone.done():
            await send({"type": "http.response.body", "body": piece, "more_body": True})
            piece = await self._piece()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _piece(self) -> bytes:
        return await asyncio.to_thread(lambda: "".join(islice(self._pieces, 64)).encode())


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _json_list(name: str, items: Iterator[dict[str, Any]]) -> Generator[str, None, None]:
    comma = f'{{"{name}":['
    for item in items:
        yield comma + json.dumps(item, separators=(",", ":"))
        comma = ","
    yield ("]}" if comma == "," else comma + "]}")


def _index(serving: Serving) -> str:
    snapshot, now_ns = serving.ledger.snapshot, serving.clock.monotonic_ns()
    rows = "".join(
        f"<tr><td>{html.escape(state.workload)}<td>{state.device}"
        f"<td>{'running' if state.active_run else ''}"
        f"<td>{state.runs.get('ok', 0)}<td>{sum(state.runs.values())}"
        for state in snapshot.workloads.values()
    )
    sources = ", ".join(
        f"{source.name} {'up' if source.is_fresh(now_ns) else 'down'}"
        for source in snapshot.sources
    )
    simulated = "<p><strong>Simulated: these figures are of no real board.</strong>"
    return (
        "<!doctype html><html lang=en><meta charset=utf-8><title>tegrascope</title>"
        "<meta name=viewport content='width=device-width'>"
        "<style>body{font:1rem/1.5 system-ui;margin:2rem}td,th{padding:0 1rem 0 0;"
        "text-align:left}</style><h1>tegrascope</h1>"
        f"{simulated if snapshot.environment.simulated else ''}"
        f"<p>Board: {html.escape(snapshot.environment.board or 'not known yet')}."
        f" Telemetry: {html.escape(sources) or 'none yet'}."
        f"<table><tr><th>workload<th>device<th><th>good runs<th>runs{rows}</table>"
        "<p><a href=metrics>metrics</a> <a href=api/v1/runs>runs</a>"
        " <a href=api/v1/samples>samples</a> <a href=readyz>ready?</a>"
    )


def bind(listen: str) -> socket.socket:
    """Take the address, so that a taken one is told at once.

    Raises:
        Mendable: It is in use, or not an address of this machine.
    """
    host, port = split_listen(listen)
    try:
        # As bytes, since a str would load the tables of international domain names.
        family, kind, protocol, _, address = socket.getaddrinfo(
            host.encode(), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise Mendable(f"{listen}: {error.strerror}", "give --listen HOST:PORT") from None
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNREAD_MS)
        listener.bind(address)
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise Mendable(
            f"{listen}: {error.strerror}", "stop what listens there, or give --listen HOST:PORT"
        ) from None
    return listener


def url_of(listener: socket.socket) -> str:
    """Return the address at which a person reaches the page."""
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


async def serve(
    app: Starlette, listener: socket.socket, stopped: Callable[[], Awaitable[None]]
) -> None:
    """Serve until ``stopped`` returns; peers that dawdle are cut off."""
    speak_http1_only()
    config = HypercornConfig()
    config.bind = [f"fd://{listener.detach()}"]
    config.errorlog = None
    config.alpn_protocols = ["http/1.1"]
    config.graceful_timeout = 0.5
    config.shutdown_timeout = 1.0
    config.h11_max_incomplete_size = 16 * 1024
    config.include_server_header = False
    over = asyncio.Event()

    async def stop() -> None:
        await stopped()
        over.set()

    serving = asyncio.ensure_future(
        hypercorn_serve(app, config, shutdown_trigger=stop)  # type: ignore[arg-type]
    )
    ended = asyncio.ensure_future(over.wait())
    await asyncio.wait({serving, ended}, return_when=asyncio.FIRST_COMPLETED)
    await asyncio.wait({serving}, timeout=_STOP_SECONDS)
    if serving.done():
        ended.cancel()
        serving.result()
    else:
        await _end_all()


async def _end_all() -> None:
    """End every task, however often it has to be told.

    From Python 3.12 on, closing a server waits for its last client; and a connection that is
    cancelled waits again, to be rid of what its client does not take.
    """
    for _ in range(10):
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        if not tasks:
            return
        for task in tasks:
            task.cancel()
        done, _ = await asyncio.wait(tasks, timeout=0.1)
        for task in done:
            if not task.cancelled():
                task.exception()  # of no interest now, and told if nobody asks for it
