"""Serve a simulated fleet: ``make fleet FLEET='--size 200'``."""

import argparse
import asyncio
import logging
import socket
import sys

from tegrascope.daemon.commands import positive
from tegrascope.daemon.session.process_signals import END, Signals
from tegrascope.daemon.settings.config import split_listen
from tegrascope.daemon.web.server import bind, serve, url_of
from tegrascope.parsers.errors import UserError

from .app import make_app
from .devices import Fleet


def main() -> int:
    """Serve the metric pages of many simulated devices until a signal ends it."""
    parser = argparse.ArgumentParser(prog="python -m tools.fleet", description=__doc__)
    parser.add_argument("--size", type=positive, default=20, metavar="N", help="devices (20)")
    parser.add_argument("--listen", default="127.0.0.1:9760", metavar="HOST:PORT")
    parser.add_argument("--interval", type=positive, default=1000, metavar="MS", help="of samples")
    parser.add_argument("--seed", type=int, default=0, metavar="N")
    parser.add_argument("--unprivileged", action="store_true", help="lines of an ordinary user")
    arguments = parser.parse_args()
    try:
        split_listen(arguments.listen)
    except ValueError:
        parser.error(f"--listen {arguments.listen}: give HOST:PORT")
    signals = Signals()
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    try:
        listener = bind(arguments.listen)
    except UserError as error:
        parser.error(str(error))
    with listener:
        fleet = Fleet(
            arguments.size,
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


if __name__ == "__main__":
    sys.exit(main())
