"""The inference worker: a child that reads orders and prints run events, one JSON object a line.

Everything that touches an accelerator happens in here, so that a driver that hangs or crashes
takes down a child and never the telemetry. The protocol has descriptors of its own: a library
prints to standard error, and its standard input is empty.
"""

import argparse
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from threading import Event, Lock, Thread
from typing import BinaryIO

from ...parsers.errors import ParseError, UserError
from ...parsers.inference.events import (
    Declined,
    Finished,
    Hello,
    Order,
    Process,
    Surroundings,
    parse_order,
    render_event,
)
from ...parsers.records import Record
from ..catalog import BACKENDS, find_backend
from .run_loop import STOPPED, Runner

# After SIGTERM, a library has this time to return before the process ends anyway.
_GRACE_SECONDS = 2.0


def settle(process: Process) -> None:
    """Apply settings to this process before any library is loaded, or raise ``UserError``."""
    os.nice(process.nice)
    if process.cpus:
        try:
            os.sched_setaffinity(0, process.cpus)
        except (OSError, ValueError, OverflowError):
            there = ",".join(map(str, sorted(os.sched_getaffinity(0))))
            raise UserError(
                f"the worker cannot run on CPUs {','.join(map(str, process.cpus))}",
                f"process.cpus: those that it may use here are {there}",
            ) from None


class Outbox:
    """Prints events whole, and keeps the orders that are not finished yet."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._lock = Lock()
        self._open: dict[str, None] = {}
        self._closed = False

    def expect(self, run_id: str) -> None:
        """Note that an order was received."""
        with self._lock:
            self._open[run_id] = None

    def print(self, event: Record) -> None:
        """Print an event; end the process if the reader has ended."""
        with self._lock:
            if isinstance(event, (Finished, Declined)):
                self._open.pop(event.run_id, None)
            if not self._closed:
                self._print(event)

    def cancel_all(self) -> None:
        """Finish every open order as cancelled, for the executor that waits for its end.

        The main thread may be in a library that never returns: nothing of it is printed after this.
        """
        with self._lock:
            self._closed = True
            for run_id in self._open:
                self._print(Finished(run_id=run_id, outcome="cancelled", reason=STOPPED))
            self._open.clear()

    def _print(self, event: Record) -> None:
        try:
            self._stream.write(render_event(event).encode() + b"\n")
            self._stream.flush()
        except BrokenPipeError:
            os._exit(0)


class Inbox(Thread):
    """Reads orders and SIGTERM while the main thread is inside a library.

    It can, if the library releases the interpreter lock.
    """

    def __init__(self, orders_fd: int, signals_fd: int, outbox: Outbox) -> None:
        super().__init__(name="inbox", daemon=True)
        self.take: Callable[[Surroundings], object] = lambda _: None
        self.orders: SimpleQueue[Order | None] = SimpleQueue()
        self.stop = Event()
        self._orders_fd, self._signals_fd, self._outbox = orders_fd, signals_fd, outbox

    def run(self) -> None:
        """Read until the end of standard input or of the time that SIGTERM leaves."""
        rest = b""
        deadline: float | None = None
        while True:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            ready, _, _ = select.select([self._orders_fd, self._signals_fd], [], [], left)
            if self._orders_fd in ready:
                read = os.read(self._orders_fd, 65536)
                if not read:
                    # End of input: the daemon ended, or closes the worker.
                    os._exit(0)
                *lines, rest = (rest + read).split(b"\n")
                for line in lines:
                    self._accept(line.decode(errors="replace"))
            if self._signals_fd in ready and signal.SIGTERM in os.read(self._signals_fd, 64):
                self.stop.set()
                self.orders.put(None)
                deadline = deadline or time.monotonic() + _GRACE_SECONDS
            if deadline is not None and time.monotonic() >= deadline:
                self._outbox.cancel_all()
                os._exit(0)

    def _accept(self, line: str) -> None:
        if not line.strip():
            return
        try:
            order = parse_order(line)
        except ParseError as error:
            print(f"tegrascope worker: this is not an order: {error}", file=sys.stderr)
            reason = "the worker does not understand this order"
            # If it names its run, the run is finished.
            with suppress(ValueError, TypeError, LookupError):
                run_id = json.loads(line)["run_id"]
                self._outbox.print(Finished(run_id=run_id, outcome="failed", reason=reason))
            return
        if isinstance(order, Surroundings):
            self.take(order)
            return
        self._outbox.expect(order.run_id)
        self.orders.put(order)


def _claim_streams() -> tuple[int, BinaryIO]:
    """Take standard input and output for the protocol; leave nothing and standard error there."""
    orders_fd, events_fd = os.dup(0), os.dup(1)
    nothing_fd = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing_fd, 0)
    os.close(nothing_fd)
    sys.stdout.flush()
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return orders_fd, os.fdopen(events_fd, "wb")


def _watch_signals() -> int:
    """Return a descriptor of signal numbers: SIGTERM is read from it even while a library runs.

    Ctrl-C in a terminal reaches the whole foreground group, but only the daemon decides on it.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signals_fd, wake_fd = os.pipe()
    os.set_blocking(wake_fd, False)
    signal.set_wakeup_fd(wake_fd, warn_on_full_buffer=False)
    signal.signal(signal.SIGTERM, lambda *_: None)
    return signals_fd


def main(argv: list[str] | None = None, backends: Mapping[str, str] = BACKENDS) -> int:
    """Read orders on standard input and print run events; end with standard input."""
    parser = argparse.ArgumentParser(
        prog="python -m tegrascope.collectors.worker.child", description=main.__doc__
    )
    parser.add_argument(
        "--lane", required=True, help="device of the worker; it names the process in ps and top"
    )
    parser.add_argument("--process", type=Process.model_validate_json, default=Process())
    arguments = parser.parse_args(argv)
    try:
        settle(arguments.process)
    except UserError as error:
        print(error, file=sys.stderr)
        return 1
    signals_fd = _watch_signals()
    orders_fd, events = _claim_streams()
    with suppress(OSError):
        # If memory runs out, Linux is to end this process and not the telemetry.
        Path("/proc/self/oom_score_adj").write_text("500")
    outbox = Outbox(events)
    inbox = Inbox(orders_fd, signals_fd, outbox)
    runner = Runner(
        lambda name: find_backend(name, backends)(),
        outbox.print,
        inbox.stop,
        plan_of=lambda name: find_backend(name, backends).clock,
    )
    inbox.take = runner.take
    inbox.start()
    outbox.print(Hello(pid=os.getpid(), python=sys.version.split()[0]))
    while (order := inbox.orders.get()) is not None and not inbox.stop.is_set():
        runner.run(order)
        if runner.has_lost_device:
            # The libraries of a lost device may hang in their own clean-up.
            outbox.cancel_all()
            os._exit(1)
    outbox.cancel_all()
    runner.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
