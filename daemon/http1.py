"""HTTP/1.1 and nothing else, whatever protocol a peer would rather speak.

An ``Upgrade:`` is a wish that a server may leave unheard (RFC 9110, 7.8): ``curl --http2`` and
Java's client then get their answer in HTTP/1.1. HTTP/2 without asking is cut off.
"""

import asyncio
from http import HTTPStatus
from ssl import SSLError
from typing import Any

from h11 import Request, Response
from hypercorn import protocol
from hypercorn.events import Closed
from hypercorn.protocol.h11 import H11Protocol
from hypercorn.typing import H11SendableEvent

from .lean import NotServedError

_REASONS = {status.value: status.phrase.encode() for status in HTTPStatus}


class Http1Only(H11Protocol):
    """Hypercorn's HTTP/1.1, without the ways out of it."""

    async def _check_protocol(self, event: Request) -> None:
        if event.method == b"PRI":
            raise NotServedError
        # H11 looks at the limit only while it waits for the rest of a head.
        if _length(event) > self.config.h11_max_incomplete_size:
            await self._send_error_response(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
            await self.send(Closed())
            raise NotServedError

    async def _create_stream(self, request: Request) -> None:
        plain = [pair for pair in request.headers.raw_items() if pair[0].lower() != b"upgrade"]
        await super()._create_stream(
            Request(
                method=request.method,
                target=request.target,
                headers=plain,
                http_version=request.http_version,
            )
        )

    async def _send_h11_event(self, event: H11SendableEvent) -> None:
        if isinstance(event, Response):
            # Prometheus shows the words of the status line to who wonders why a target is down.
            event = Response(
                status_code=event.status_code,
                headers=event.headers.raw_items(),
                reason=_REASONS.get(event.status_code, b""),
            )
        await super()._send_h11_event(event)


def _length(head: Request) -> int:
    """Return how many bytes a request's head has, without its line ends."""
    pairs = sum(len(name) + len(value) + 2 for name, value in head.headers.raw_items())
    return len(head.method) + len(head.target) + pairs


def speak_http1_only() -> None:
    """Have hypercorn use it for every connection; in its event loop, before it serves."""
    vars(protocol)["H11Protocol"] = Http1Only
    asyncio.get_running_loop().set_exception_handler(_tell)


def _tell(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log what goes wrong in the event loop, but for peers that were cut off."""
    if not is_cut_off(context.get("exception")):
        loop.default_exception_handler(context)


def is_cut_off(error: BaseException | None) -> bool:
    """Say whether an error is only a peer that left, was cut off, or can't do the handshake."""
    # An ExceptionGroup, by the name that Python 3.10 and its backport share with later ones.
    group = getattr(error, "exceptions", None)
    if group is not None:
        return all(is_cut_off(one) for one in group)
    return isinstance(
        error,
        (
            *(ConnectionError, TimeoutError, asyncio.TimeoutError, SSLError),
            *(NotServedError, asyncio.CancelledError),
        ),
    )
