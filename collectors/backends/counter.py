"""The counter of a running server as a back-end: others send the work, this reads its growth."""

import random
import statistics
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import sqrt
from pathlib import Path
from threading import Event
from typing import NamedTuple

from ...parsers.errors import UserError
from ...parsers.inference.events import Counted, Inferences, Order, Phase
from ...parsers.inference.servers import HIGHEST_COUNT, CounterReading, read_counter
from .base import SelfTimed
from .server import Connection

_FEWEST_READINGS = 8
# Readings at even times would never show steps of the counter that come at the same times.
_JITTER = 0.4


class TimedReading(NamedTuple):
    """A reading; its value is of a moment within ``half_ns`` of ``at_ns``."""

    at_ns: int
    half_ns: float
    reading: CounterReading
    total: float = 0.0


class Counter(SelfTimed):
    """Reads a growing counter at both ends of a run, and in between to see how it grows."""

    devices = ("gpu", "dla0", "dla1", "cpu", "external")
    runs = "scrape"

    def load(self, model: Path, order: Order) -> None:  # noqa: ARG002
        """Read the counter once: it is there."""
        assert order.scrape is not None and order.unit is not None
        self._scrape, self._unit = order.scrape, order.unit
        self._connection = Connection(order.scrape)
        self._read()

    def measure(self, order: Order, stop: Event) -> Iterator[Phase | Inferences | Counted]:
        """Read the counter until the duration is over; a failed reading fails the run."""
        seconds = order.duration_seconds
        if not seconds:
            raise UserError("a counter is read for a time, and none is given", "set a duration")
        first = self._read()
        yield Phase(run_id=order.run_id, phase="steady", edge="begin", at_ns=first.at_ns)
        readings = [first]
        steps = max(_FEWEST_READINGS, round(seconds / self._scrape.interval))
        for step in range(1, steps + 1):
            jitter = 0.0 if step == steps else random.uniform(-_JITTER, _JITTER)
            due_ns = first.at_ns + (step + jitter) * seconds * 1e9 / steps
            if stop.wait(max(0.0, (due_ns - time.monotonic_ns()) / 1e9)):
                return
            readings.append(self._read(readings[-1]))
        units, off = readings[-1].total, count_error(readings)
        limits = (max(0.0, units - off), units + off)
        if limits[1] > HIGHEST_COUNT:
            what = f"counted {units:.6g} {self._unit}s, more than any server does"
            raise self._connection.problem(what, "look at its page with curl")
        yield Counted(run_id=order.run_id, units=units, units_interval=limits)
        yield Phase(run_id=order.run_id, phase="steady", edge="end", at_ns=readings[-1].at_ns)

    def _read(self, last: TimedReading | None = None) -> TimedReading:
        body, sent_ns, came_ns = self._connection.get()
        try:
            reading = read_counter(body, self._scrape, self._unit)
            grown = 0.0 if last is None else last.total + last.reading.growth_until(reading)
        except UserError as error:
            raise self._connection.problem(error.message, error.remedy) from None
        half_ns = (came_ns - sent_ns) / 2
        return TimedReading(round(sent_ns + half_ns), half_ns, reading, grown)


def count_error(readings: Sequence[TimedReading]) -> float:
    """Return the 95 % error either way of the growth between the first and the last reading.

    Each of these two is of a moment that is known to half the time of its request. Work that is
    under way at that moment is not counted yet, at both ends. A counter that grows with each step
    lacks less than it grows by between two readings, beyond its mean rate. If it grows as
    requests end, the work under way is seen in how far it departs from a straight line: that has
    the spread of the work under way at one end, and the error is the difference of two ends.
    """
    first, last = readings[0], readings[-1]
    mean_rate = last.total / ((last.at_ns - first.at_ns) / 1e9)
    error = highest_rate = 0.0
    for before, after in pairwise(readings):
        growth, seconds = after.total - before.total, (after.at_ns - before.at_ns) / 1e9
        error = max(error, growth - mean_rate * seconds)
        highest_rate = max(highest_rate, growth / seconds)
    if last.reading.counts == "requests":
        error = max(error, 2 * sqrt(2) * _scatter(readings))
    return error + highest_rate * (first.half_ns + last.half_ns) / 1e9


def _scatter(readings: Sequence[TimedReading]) -> float:
    """Return the root mean square of what readings depart from a straight line."""
    times = [reading.at_ns - readings[0].at_ns for reading in readings]
    totals = [reading.total for reading in readings]
    line = statistics.linear_regression(times, totals)
    squares = []
    for time_ns, total in zip(times, totals, strict=True):
        squares.append((total - line.intercept - line.slope * time_ns) ** 2)
    return sqrt(statistics.fmean(squares))
