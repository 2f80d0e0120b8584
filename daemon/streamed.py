"""A long JSON document, sent piece by piece."""

import asyncio
import contextlib
import json
from collections.abc import Generator, Iterator
from itertools import islice
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send


class Streamed(Response):
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
        """Send it, as far as somebody takes it."""
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


def json_list(name: str, items: Iterator[dict[str, Any]]) -> Generator[str, None, None]:
    """Write an object with one list in it, a piece for each item."""
    comma = f'{{"{name}":['
    for item in items:
        yield comma + json.dumps(item, separators=(",", ":"))
        comma = ","
    yield ("]}" if comma == "," else comma + "]}")
