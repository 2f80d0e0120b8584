"""The socket and the server: an address that is taken at once, and an end that waits for nobody."""

import asyncio
import errno
import socket
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from hypercorn.config import Config as HypercornConfig
from hypercorn.utils import wrap_app
from starlette.types import ASGIApp

from ..collectors.base import Clock
from ..parsers.errors import Mendable
from .connection import Serving, serve_connection
from .http1 import speak_http1_only
from .places import Places
from .settings.config import split_listen

if TYPE_CHECKING:
    from .web_rules import WebRules

# What is sent and not taken for so long ends the connection: a slow reader holds memory.
_UNREAD_MS = 20_000
_STOP_SECONDS = 0.5
# Who finds no room here is heard a second later, when it knocks again.
_BACKLOG = 1024
_NO_MORE_FILES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_RETRY_SECONDS = 0.05


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
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise Mendable(
            f"{listen}: {error.strerror}", "stop what listens there, or give --listen HOST:PORT"
        ) from None
    return listener


def url_of(listener: socket.socket, *, tls: bool = False) -> str:
    """Return the address at which a person reaches the page."""
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    scheme = "https" if tls else "http"
    return f"{scheme}://[{host}]:{port}/" if ":" in host else f"{scheme}://{host}:{port}/"


def guarded(app: ASGIApp, rules: "WebRules | None", token: str, clock: Clock) -> ASGIApp:
    """Return the application behind what the web configuration file asks for, if there is one."""
    if rules is None:
        return app
    from .web_gate import WebGate

    return WebGate(app, rules, token, clock)


async def serve(
    app: ASGIApp,
    listener: socket.socket,
    stopped: Callable[[], Awaitable[None]],
    rules: "WebRules | None" = None,
) -> None:
    """Serve until ``stopped`` returns; peers that dawdle are cut off.

    Args:
        app: What answers.
        listener: Where; closed at the end.
        stopped: Returns when it is to end.
        rules: The web configuration file, for TLS; ``None`` without one.
    """
    speak_http1_only()
    serving = Serving(wrap_app(app, 0, "asgi"), _settings(), rules, Places())  # type: ignore[arg-type]
    peers: set[asyncio.Task[None]] = set()
    accepting = asyncio.ensure_future(_accept(listener, serving, peers))
    ended = asyncio.ensure_future(stopped())
    try:
        await asyncio.wait({accepting, ended}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        accepting.cancel()
        listener.close()
    if not ended.done():
        ended.cancel()
        accepting.result()
    await serving.context.terminated.set()
    if peers:
        await asyncio.wait(peers, timeout=_STOP_SECONDS)
    await _end_all()


async def _accept(
    listener: socket.socket, serving: Serving, peers: set[asyncio.Task[None]]
) -> None:
    """Take peers in, one after another, and let each be served in turn."""
    loop = asyncio.get_running_loop()
    listener.setblocking(False)
    while True:
        try:
            peer, _ = await loop.sock_accept(listener)
        except OSError as error:
            if error.errno in _NO_MORE_FILES:
                serving.places.free_one()
                await asyncio.sleep(_RETRY_SECONDS)
            continue  # else it left before it was taken in
        task = loop.create_task(serve_connection(peer, serving))
        peers.add(task)
        task.add_done_callback(peers.discard)
        await asyncio.sleep(0)  # a flood of newcomers must not hold up who is in


def _settings() -> HypercornConfig:
    config = HypercornConfig()
    config.errorlog = None
    config.h11_max_incomplete_size = 16 * 1024
    config.include_server_header = False
    return config


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
