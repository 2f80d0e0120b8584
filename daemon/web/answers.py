"""Shared by all routes: the daemon's parts that they answer from, numbers in a query, long JSON."""

import asyncio
import contextlib
import json
import math
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ...collectors.base import Clock
from ...collectors.board.boards import RailRule
from ..export.metrics import families
from ..export.snapshot import LiveState, Snapshot
from ..measure.timeline import Timeline
from ..store.history import History

# The year 2255; SQLite's integers end a little later.
LATEST_SECONDS = 9e9


@dataclass(frozen=True)
class Serving:
    """The parts of the daemon that the routes answer from.

    Attributes:
        problem: Why the daemon is not ready, or None.
        start_run: Runs a configured workload and returns the run's id, or raises ``UserError``.
        mark_window: Takes an application's mark and returns the answer, or raises
            ``RefusedMarkError``.
        note: A restriction of a daemon that is ready, or None.
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
    body_seconds: float = 10.0


def number(
    request: Request, name: str, default: float | None, low: float, high: float
) -> float | None:
    """Return a number of the query, or the default.

    Raises:
        HTTPException: It is not a number from ``low`` to ``high``.
    """
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


class Streamed(Response):
    """A long JSON document, made piece by piece in another thread; never whole in memory.

    An error before the first piece has an answer of its own; a later one ends the connection.
    """

    media_type = "application/json"

    def __init__(self, pieces: Generator[str, None, None], streams: asyncio.Semaphore) -> None:
        super().__init__()
        del self.headers["content-length"]
        self.pieces = pieces
        self.streams = streams

    async def __call__(self, _: Scope, receive: Receive, send: Send) -> None:
        """Send the document as long as the client is there."""
        gone = asyncio.ensure_future(_until_gone(receive))
        try:
            async with self.streams:
                body = await asyncio.to_thread(_take, self.pieces)
                start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
                await send(start)
                while body and not gone.done():
                    await send({"type": "http.response.body", "body": body, "more_body": True})
                    body = await asyncio.to_thread(_take, self.pieces)
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            gone.cancel()
            with contextlib.suppress(ValueError):  # a thread runs it, and closes it when it ends
                self.pieces.close()


def _take(pieces: Iterator[str]) -> bytes:
    return "".join(islice(pieces, 16)).encode()


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def json_list(name: str, items: Iterator[dict[str, Any]]) -> Generator[str, None, None]:
    """Yield the pieces of an object with one list in it."""
    comma = f'{{"{name}":['
    for item in items:
        yield comma + json.dumps(item, separators=(",", ":"))
        comma = ","
    yield ("]}" if comma == "," else comma + "]}")


# A scraper may ask for any version and escaping; pages are kept for so many of them.
_FORMATS_AT_MOST = 8


class Page:
    """The metric page, rendered once for each snapshot and format."""

    def __init__(self, read: Callable[[], Snapshot], monotonic_ns: Callable[[], int]) -> None:
        self._read = read
        self._monotonic_ns = monotonic_ns
        self._rendered: dict[str, tuple[object, bytes]] = {}
        self._process = CollectorRegistry()
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self._process)

    def render(self, accept: str) -> tuple[bytes, str]:
        """Return the page and its content type, in the format that ``Accept`` asks for."""
        encode, content_type = choose_encoder(accept)
        snapshot, now_ns = self._read(), self._monotonic_ns()
        # Freshness is part of the key, so that a hanging source shows within the second.
        fresh = tuple(source.is_fresh(now_ns) for source in snapshot.sources)
        key = (snapshot.version, fresh, now_ns // 1_000_000_000)
        if self._rendered.get(content_type, (None,))[0] != key:
            registry = CollectorRegistry()
            registry.register(_Families(families(snapshot, now_ns)))
            registry.register(self._process)
            if len(self._rendered) >= _FORMATS_AT_MOST:
                self._rendered.clear()
            self._rendered[content_type] = (key, encode(registry))
        return self._rendered[content_type][1], content_type


class _Families(Collector):
    def __init__(self, made: list[Metric]) -> None:
        self._made = made

    def collect(self) -> list[Metric]:
        return self._made
