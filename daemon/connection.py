"""One connection: who knocks, TLS where it is asked for, then hypercorn's HTTP."""

import asyncio
import contextlib
import logging
import socket
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hypercorn.asyncio.tcp_server import TCPServer
from hypercorn.asyncio.worker_context import WorkerContext
from hypercorn.config import Config as HypercornConfig
from hypercorn.events import Event, Updated
from hypercorn.typing import AppWrapper

from .http1 import is_cut_off
from .places import Place, Places, State
from .settings.file import ConfigError

if TYPE_CHECKING:
    from ssl import SSLContext

    from .web_config import TlsServer
    from .web_rules import WebRules

_HANDSHAKE_SECONDS = 5.0
_HEAD_SECONDS = 5.0
# Prometheus gives a connection up after as long; a handshake for each scrape would cost more.
_IDLE_SECONDS = 300.0
_HANDSHAKE, _HEADER_BYTES, _RECORD_BYTES = b"\x16", 5, 16 * 1024
_TLS_PLEASE = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\n"
    b"Connection: close\r\n\r\nClient sent an HTTP request to an HTTPS server.\n"
)

_LOG = logging.getLogger(__name__)


@dataclass
class Serving:
    """What all connections share.

    Attributes:
        app: What answers.
        config: Of hypercorn.
        rules: The web configuration file; ``None`` without one.
        places: How many there may be.
        context: Of hypercorn; it knows of the end.
    """

    app: AppWrapper
    config: HypercornConfig
    rules: "WebRules | None"
    places: Places
    context: WorkerContext = field(default_factory=lambda: WorkerContext(None))


class _Connection(TCPServer):
    """Hypercorn's, which tells its place what it does."""

    def __init__(self, serving: Serving, place: Place, *streams: Any) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(serving.app, loop, serving.config, serving.context, {}, *streams)
        self._places, self._place = serving.places, place
        self._is_over = False

    async def protocol_send(self, event: Event) -> None:
        if isinstance(event, Updated):
            if self._is_over:
                return
            self._places.change(self._place, State.IDLE if event.idle else State.ANSWERED)
        await super().protocol_send(event)

    async def _read_data(self) -> None:
        """Read until the peer leaves; then nobody is waited for, as hypercorn would."""
        await super()._read_data()
        self._is_over = True
        await self.idle_task.stop()

    async def _idle_timeout(self) -> None:
        """Leave a peer time, more if it has asked before: the next scrape may be minutes away."""
        asked = self._place.state is not State.SILENT
        with contextlib.suppress(asyncio.TimeoutError):
            seconds = _IDLE_SECONDS if asked else _HEAD_SECONDS
            await asyncio.wait_for(self.context.terminated.wait(), seconds)
        await asyncio.shield(self._initiate_server_close())


async def serve_connection(peer: socket.socket, serving: Serving) -> None:
    """Serve a peer until it leaves or is cut off; never an exception but for cancellation."""
    task = asyncio.current_task()
    assert task is not None
    place = serving.places.take(task.cancel)
    try:
        admitted = await _admit(peer, serving.rules)
        if admitted is not None:
            reader, writer = await _open(peer, admitted)
            place.leave = writer.transport.abort
            if admitted.lets_in(writer):
                await _Connection(serving, place, reader, writer)
            writer.transport.abort()
    except Exception as error:
        if not is_cut_off(error):
            _LOG.exception("a connection failed")
    finally:
        serving.places.give_back(place)


@dataclass(frozen=True)
class _Admitted:
    """How a peer is served that was let in: with TLS, if there is a context for it."""

    context: "SSLContext | None" = None
    section: "TlsServer | None" = None

    def lets_in(self, writer: asyncio.StreamWriter) -> bool:
        """Say whether a client's certificate has a name that is wanted."""
        if self.section is None or self.section.client_allowed_sans is None:
            return True
        from .tls import allows

        return allows(self.section, writer.get_extra_info("peercert"))


async def _admit(peer: socket.socket, rules: "WebRules | None") -> _Admitted | None:
    """Say how a peer is served; one that is not is told so as far as can be, and closed."""
    if rules is None or not rules.has_tls:
        return _Admitted()
    admitted = None
    try:
        if await _speaks_tls(peer):
            context, config = await rules.context()
            admitted = _Admitted(context, config.tls_server_config)
    except ConfigError:
        pass  # was logged
    finally:
        if admitted is None:
            peer.close()
    return admitted


async def _open(
    peer: socket.socket, admitted: _Admitted
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Return the streams of a peer, after the handshake; its socket belongs to them."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(loop=loop)
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    seconds = None if admitted.context is None else _HANDSHAKE_SECONDS
    transport, _ = await loop.connect_accepted_socket(
        lambda: protocol, peer, ssl=admitted.context, ssl_handshake_timeout=seconds
    )
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


async def _speaks_tls(peer: socket.socket) -> bool:
    """Wait for the whole first record, since half of one is not worth what TLS holds for it.

    Who speaks HTTP is told what is spoken here, as Go's server does.
    """
    until = asyncio.get_running_loop().time() + _HANDSHAKE_SECONDS
    try:
        await _readable(peer, 1, until)
        first = peer.recv(1, socket.MSG_PEEK)
        if first[:1] == _HANDSHAKE:
            await _readable(peer, _HEADER_BYTES, until)
            length = int.from_bytes(peer.recv(_HEADER_BYTES, socket.MSG_PEEK)[3:], "big")
            if length > _RECORD_BYTES:
                return False
            await _readable(peer, _HEADER_BYTES + length, until)
            return True
    except (OSError, asyncio.TimeoutError):
        return False
    with contextlib.suppress(OSError):
        if first.isalpha():
            peer.send(_TLS_PLEASE)
        peer.shutdown(socket.SHUT_WR)
        peer.recv(65536)  # what is left unread at the end would take the answer with it
    return False


async def _readable(peer: socket.socket, count: int, until: float) -> None:
    """Wait until so many bytes can be read, or there will be no more.

    Raises:
        TimeoutError: That takes longer than to ``until``, by the loop's clock.
    """
    loop = asyncio.get_running_loop()
    ready = loop.create_future()

    def tell(error: Exception | None = None) -> None:
        loop.remove_reader(peer)
        if not ready.done():
            ready.set_exception(error) if error else ready.set_result(None)

    peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, count)
    loop.add_reader(peer, tell)
    timer = loop.call_at(until, tell, asyncio.TimeoutError())
    try:
        await ready
    finally:
        timer.cancel()
        loop.remove_reader(peer)
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
