"""Where the status page is served, and what it asks of the daemon.

Beside the run API the page has answers of its own, made for a phone: a few numbers a second
instead of whole samples, a line a run instead of whole reports.
"""

import asyncio
from collections.abc import Generator
from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ..query import number
from ..streamed import Streamed

if TYPE_CHECKING:
    from ..http import Serving

_STREAMS_AT_MOST = 4
_BUCKETS_AT_MOST = 2000
_RUNS_AT_MOST = 100
_WINDOW_SECONDS = 900.0
_STEP_SECONDS = 2.0
# The year 2255, as for samples.
_LATEST_SECONDS = 9e9


def page_routes(serving: "Serving") -> list[Route]:
    """Return the routes of the page: its documents and its answers."""
    streams = asyncio.Semaphore(_STREAMS_AT_MOST)

    async def index(request: Request) -> Response:
        return _page(request, "index.html")

    async def run(request: Request) -> Response:
        return _page(request, "run.html")

    async def status(_: Request) -> Response:
        from .status import status_of

        return _fresh(JSONResponse(status_of(serving)))

    async def series(request: Request) -> Response:
        from .series import Window, series

        now = serving.clock.wall_ns() / 1e9
        until = number(request, "until", now, 0, _LATEST_SECONDS) or 0.0
        since = number(request, "since", until - _WINDOW_SECONDS, 0, _LATEST_SECONDS) or 0.0
        step = number(request, "step", _STEP_SECONDS, 0.1, 3600) or _STEP_SECONDS
        if (until - since) / step > _BUCKETS_AT_MOST:
            raise HTTPException(400, f"that is over {_BUCKETS_AT_MOST} steps: ask for a longer one")
        if streams.locked():
            raise HTTPException(503, "enough others read the page now", {"retry-after": "1"})
        window = Window(round(since * 1e9), round(until * 1e9), round(step * 1e9))
        made = series(serving.history, serving.timeline, window)
        return _fresh(await _json(request, made, streams))

    async def summaries(request: Request) -> Response:
        from .summaries import summaries

        limit = number(request, "limit", 50, 1, _RUNS_AT_MOST)
        before = number(request, "before", None, 0, _LATEST_SECONDS)
        made = summaries(serving.history, int(limit or 1), before)
        return _fresh(await _json(request, made, streams))

    return [
        Route("/", index),
        Route("/runs/{run_id}", run),
        Route("/api/v1/status", status),
        Route("/api/v1/series", series),
        Route("/api/v1/summaries", summaries),
    ]


def _page(request: Request, name: str) -> Response:
    from .files import answer

    return answer(name, request)


async def _json(
    request: Request, pieces: Generator[str, None, None], streams: asyncio.Semaphore
) -> Response:
    from .packed import pack, packed, takes_gzip

    if not takes_gzip(request):
        return Streamed(pieces, streams)
    async with streams:
        made = await asyncio.to_thread(pack, map(str.encode, pieces))
    return packed(made, "application/json")


def _fresh(response: Response) -> Response:
    response.headers["cache-control"] = "no-store"
    response.headers["x-content-type-options"] = "nosniff"
    return response
