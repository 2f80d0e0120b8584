"""The socket and the server: an address that is taken at once, and an end that waits for nobody."""

import asyncio
import socket
from collections.abc import Awaitable, Callable

from hypercorn.asyncio import serve as hypercorn_serve
from hypercorn.config import Config as HypercornConfig
from starlette.applications import Starlette

from ..parsers.errors import Mendable
from .config import split_listen
from .http1 import speak_http1_only

# What is sent and not taken for so long ends the connection: a slow reader holds memory.
_UNREAD_MS = 20_000
_STOP_SECONDS = 1.0


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
