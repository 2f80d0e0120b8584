"""A run of a back-end in this process, with the events that its worker would print."""

import threading

from tegrascope.collectors.catalog import find_backend
from tegrascope.collectors.worker.run_loop import Runner
from tegrascope.parsers.inference.events import Finished, Order


def run(asked: Order, stop: "threading.Event | None" = None) -> "list[object]":
    events: list[object] = []
    runner = Runner(lambda name: find_backend(name)(), events.append, stop or threading.Event())
    runner.run(asked)
    runner.close()
    return events


def finished(events: "list[object]") -> Finished:
    assert isinstance(events[-1], Finished)
    return events[-1]
