"""``tegrascope simulate --fleet``."""

import argparse
import asyncio
import logging
import socket
import sys

from ...parsers.errors import Mendable
from ..server import bind, serve, url_of
from ..session.process_signals import END, Signals
from ..settings.config import split_listen
from .app import make_app
from .fleet import Fleet


def simulate_fleet(arguments: argparse.Namespace) -> int:
    """Serve the metric pages of many simulated devices until told to end."""
    listen = arguments.listen or "127.0.0.1:9760"
    try:
        split_listen(listen)
    except ValueError:
        raise Mendable(f"--listen {listen}", "give HOST:PORT") from None
    signals = Signals()
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    with bind(listen) as listener:
        fleet = Fleet(
            arguments.fleet,
            seed=arguments.seed,
            interval_seconds=arguments.interval / 1000,
            privileged=not arguments.unprivileged,
        )
        url = url_of(listener)
        print(f"{fleet.count} simulated devices", file=sys.stderr)
        print(f"page     {url}device/001/metrics", file=sys.stderr)
        print(f"targets  {url}sd", file=sys.stderr, flush=True)
        fleet.start()
        try:
            asyncio.run(_serve(fleet, listener, signals))
        finally:
            signals.ignore()
            fleet.stop()
    return 0


async def _serve(fleet: Fleet, listener: socket.socket, signals: Signals) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    signals.call(END, lambda: loop.call_soon_threadsafe(stopped.set))

    async def until_stopped() -> None:
        await stopped.wait()

    try:
        await serve(make_app(fleet), listener, until_stopped)
    finally:
        signals.ignore()  # while there is a loop to which the end could still be told
