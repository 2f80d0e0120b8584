"""Shared by all routes: the daemon's parts that they answer from, numbers in a query, long JSON."""

import asyncio
import contextlib
import json
import math
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ...collectors.base import Clock
from ...collectors.board.boards import RailRule
from ..export.state import Ledger
from ..measure.timeline import Timeline
from ..store.history import History

# The year 2255; SQLite's integers end a little later.
LATEST_SECONDS = 9e9


@dataclass(frozen=True)
class Serving:
    """The parts of the daemon that the routes answer from.

    Attributes:
        problem: Why the daemon is not ready, or None.
        start_run: Runs a configured workload and returns the run's id, or raises ``Mendable``.
        mark_window: Takes a mark of an application and returns the answer, or raises ``Refusal``.
        note: A restriction of a daemon that is ready, or None.
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
