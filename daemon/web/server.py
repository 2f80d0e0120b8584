"""The server: a bounded number of connections, each with uvicorn's HTTP/1.1 behind a deadline."""

import asyncio
import contextlib
import errno
import gc
import logging
import os
import resource
import socket
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from email.utils import formatdate
from typing import TYPE_CHECKING, Any

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from ...parsers.errors import UserError
from ..settings.config import split_listen
from ..settings.file import ConfigError

if TYPE_CHECKING:
    from .web_config import WebRules

_BACKLOG = 1024
# h11 checks the length of a header only while it is incomplete, so it gets slices: 16 KiB in all.
_HEADER_BYTES, _SLICE_BYTES = 12 * 1024, 4 * 1024
# The rest is for the store, sources and workers.
_SHARE_OF_FILES = 4
_NO_MORE_FILES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_RETRY_SECONDS = 0.05
_BIND_REMEDIES = {
    errno.EADDRINUSE: "stop what listens there, or give --listen HOST:PORT",
    errno.EACCES: "only root may use a port below 1024; give --listen with a higher one",
    errno.EADDRNOTAVAIL: "give --listen with an address of this machine",
}
_THREADS = 2
_KEY = "tegrascope.connection"
_TLS_HANDSHAKE = b"\x16"
_TLS_EXPECTED = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\n"
    b"Connection: close\r\n\r\nClient sent an HTTP request to an HTTPS server.\n"
)

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class ConnectionLimits:
    """Bounds of the cost of clients.

    Attributes:
        connections: At the limit, the client that has been silent longest is disconnected. A TLS
            connection takes about 350 KiB, of which 256 KiB are asyncio's.
        header_seconds: From the connection, or the first byte of a later request, to the end of
            the request's header; a TLS handshake counts.
        idle_seconds: Between two requests. Prometheus keeps a connection for as long.
        unread_seconds: An answer that the client does not read ends the connection.
        stop_seconds: Time for running requests when the server stops.
    """

    connections: int = 64
    header_seconds: float = 10.0
    idle_seconds: int = 300
    unread_seconds: float = 20.0
    stop_seconds: float = 0.5


def bind(listen: str) -> socket.socket:
    """Return a socket that listens on ``HOST:PORT``, or raise ``UserError``."""
    host, port = split_listen(listen)
    kind, flags = socket.SOCK_STREAM, socket.AI_PASSIVE
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=kind, flags=flags)[0]
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or "is not a host name"
        raise UserError(f"{listen}: {reason}", "give --listen HOST:PORT") from None
    is_dual = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
    try:
        return socket.create_server(
            address, family=family, backlog=_BACKLOG, dualstack_ipv6=is_dual
        )
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        remedy = _BIND_REMEDIES.get(error.errno or 0, "give --listen HOST:PORT")
        raise UserError(f"{listen}: {reason}", remedy) from None


def url_of(listener: socket.socket, *, tls: bool = False) -> str:
    """Return the address of the status page."""
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http{'s' * tls}://{f'[{host}]' if ':' in host else host}:{port}/"


async def serve(
    app: ASGIApp,
    listener: socket.socket,
    stopped: Callable[[], Awaitable[object]],
    rules: "WebRules | None" = None,
    limits: ConnectionLimits = ConnectionLimits(),
) -> None:
    """Serve until ``stopped`` returns, then close the listener; slow clients are not waited for."""
    # Each thread that makes answers keeps some freed memory.
    threads = ThreadPoolExecutor(_THREADS, "answers")
    asyncio.get_running_loop().set_default_executor(threads)
    server = _Server(app, rules, limits)
    accepting = asyncio.ensure_future(server.accept(listener))
    ended = asyncio.ensure_future(stopped())
    try:
        await asyncio.wait({accepting, ended}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        accepting.cancel()
        ended.cancel()
        listener.close()
        await server.stop()
    if accepting.done() and not accepting.cancelled():
        accepting.result()


class _Server:
    """The connections and what they share."""

    def __init__(self, app: ASGIApp, rules: "WebRules | None", limits: ConnectionLimits) -> None:
        self.rules, self.limits = rules, limits
        self._app = app
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        files = limits.connections if soft == resource.RLIM_INFINITY else soft // _SHARE_OF_FILES
        self._at_most = max(1, min(limits.connections, files))
        # A connection whose state changes goes to the end: the first has been silent longest.
        self.connections: dict[_Connection, None] = {}
        self._dropped = 0
        self.config = uvicorn.Config(
            self._answer,
            http="h11",
            ws="none",
            interface="asgi3",
            lifespan="off",
            log_config=None,
            log_level="critical",
            access_log=False,
            proxy_headers=False,
            timeout_keep_alive=limits.idle_seconds,
            h11_max_incomplete_event_size=_HEADER_BYTES,
        )
        self.config.load()
        self.state = uvicorn.Server(self.config).server_state

    async def accept(self, listener: socket.socket) -> None:
        """Accept connections until cancelled, or raise ``OSError`` if the listener is gone."""
        loop = asyncio.get_running_loop()
        listener.setblocking(False)
        unread_ms = round(self.limits.unread_seconds * 1000)
        while True:
            try:
                peer, _ = await loop.sock_accept(listener)
                peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, unread_ms)
                # A small answer must not wait for the client's delayed acknowledgement.
                peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            except OSError as error:
                is_open = listener.fileno() >= 0
                if not (is_open and listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)):
                    raise
                if error.errno in _NO_MORE_FILES:
                    self._drop_slowest()
                    await asyncio.sleep(_RETRY_SECONDS)
                continue  # any other error is of a client that has left already
            while len(self.connections) >= self._at_most:
                self._drop_slowest()
            self.connections[_Connection(self, peer)] = None
            await asyncio.sleep(0)  # many new clients must not delay the others

    def _drop_slowest(self) -> None:
        if self.connections:
            min(self.connections, key=lambda one: one.answering > 0).drop()
            self._dropped += 1
            if self._dropped % self._at_most == 0:
                gc.collect()  # what asyncio's TLS leaves behind is in cycles, 256 KiB in each

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        connection: _Connection = scope["state"][_KEY]
        connection.clear_deadline()  # a whole header has arrived
        connection.change(+1)
        try:
            await self._app(scope, receive, send)
        except Exception:
            _LOG.exception("%s %s failed", scope["method"], scope["path"])
        finally:
            connection.change(-1)  # uvicorn limits the time to the next request

    async def stop(self) -> None:
        """End idle connections at once and the others soon."""
        for connection in list(self.connections):
            connection.finish()
        if self.state.tasks:
            await asyncio.wait(self.state.tasks, timeout=self.limits.stop_seconds)
        for connection in list(self.connections):
            connection.drop()


class _Connection(asyncio.Protocol):
    """One client: TLS if configured, a deadline for each header, and uvicorn's protocol."""

    def __init__(self, server: _Server, peer: socket.socket) -> None:
        self.answering = 0
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        make: Any = server.config.http_protocol_class
        # Requests carry the connection in their state.
        self._http = make(config=server.config, server_state=server.state, app_state={_KEY: self})
        self._deadline: asyncio.TimerHandle | None = None
        self._set_deadline()
        self._opening = self._loop.create_task(self._open(peer))

    async def _open(self, peer: socket.socket) -> None:
        rules = self._server.rules
        try:
            context = None
            if rules is not None and rules.has_tls:
                if not await _speaks_tls(peer):
                    return
                context = rules.context()
            await self._loop.connect_accepted_socket(lambda: self, peer, ssl=context)
        except (OSError, ConfigError):
            pass  # the client left or has no good certificate; a bad file is logged already
        finally:
            if self._transport is None:
                peer.close()
                self._end()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._http.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if not self.answering and self._deadline is None:
            self._set_deadline()
        self._server.state.default_headers = [(b"date", formatdate(usegmt=True).encode())]
        for begin in range(0, len(data), _SLICE_BYTES):
            if self._transport is None or self._transport.is_closing():
                return
            self._http.data_received(data[begin : begin + _SLICE_BYTES])

    def eof_received(self) -> None:
        self._http.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()
        self._http.connection_lost(exc)

    def pause_writing(self) -> None:
        self._http.pause_writing()

    def resume_writing(self) -> None:
        self._http.resume_writing()

    def change(self, answers: int) -> None:
        """Count the answers that are being made; the client is not the most silent one now."""
        self.answering += answers
        connections = self._server.connections
        if self in connections:  # not dropped meanwhile
            connections[self] = connections.pop(self)

    def finish(self) -> None:
        """Close the connection after the answer that is being made."""
        if self.answering:
            self._http.shutdown()
        else:
            self.drop()

    def drop(self) -> None:
        """Close the connection now."""
        self._end()
        if self._transport is None:
            self._opening.cancel()
        else:
            self._transport.abort()

    def _end(self) -> None:
        self.clear_deadline()
        self._server.connections.pop(self, None)

    def _set_deadline(self) -> None:
        self._deadline = self._loop.call_later(self._server.limits.header_seconds, self.drop)

    def clear_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


async def _speaks_tls(peer: socket.socket) -> bool:
    """Wait for the first byte; a client that speaks HTTP gets the answer of Go's server."""
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(peer, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(peer)
    first = peer.recv(1, socket.MSG_PEEK)
    if first.isalpha():
        with contextlib.suppress(OSError):
            peer.send(_TLS_EXPECTED)
            peer.shutdown(socket.SHUT_WR)
            peer.recv(65536)  # closing with unread data would discard the answer
    return first == _TLS_HANDSHAKE
