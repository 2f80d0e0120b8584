"""Power over time: what a board and its work draw, constant in cells of 0.5 ms.

Powers are whole microwatts, so an energy is a sum of integers and exact. Random numbers come from
``numpy.random.RandomState``, whose streams are frozen for all versions of numpy.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Random = np.random.RandomState

CELL_SECONDS = 0.0005
NANOSECONDS_PER_CELL = 500_000


@dataclass(frozen=True, slots=True)
class Work:
    """The power of a piece of work as a multiple of its swing, one number per cell.

    Attributes:
        shape: Shape (cells,), usually 0 to 1.
        periods: Periods in seconds with which the power repeats; none if it does not repeat.
        note: What was drawn, for the table of worlds.
    """

    shape: Array
    periods: tuple[float, ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True)
class Moments:
    """The time of a world: the middle of each cell, and where its window lies, in seconds."""

    begin: float
    end: float
    cells: int
    middles: Array = field(repr=False)

    @staticmethod
    def of(seconds: float, begin: float, end: float) -> "Moments":
        """Return the moments of a world of so many seconds."""
        cells = round(seconds / CELL_SECONDS)
        return Moments(begin, end, cells, (np.arange(cells) + 0.5) * CELL_SECONDS)

    def inside(self) -> Array:
        """Return 1 for cells in the window and 0 elsewhere."""
        return ((self.middles > self.begin) & (self.middles < self.end)).astype(float)


def log_uniform(random: Random, low: float, high: float) -> float:
    """Return a number between two limits; each factor is equally likely."""
    return float(np.exp(random.uniform(np.log(low), np.log(high))))


def _square(moments: Moments, period: float, duty: float, phase: float) -> Array:
    return ((moments.middles / period + phase) % 1.0 < duty).astype(float)


def _constant(_random: Random, moments: Moments) -> Work:
    return Work(np.ones(moments.cells), note="constant")


def _ramp(random: Random, moments: Moments) -> Work:
    share = (moments.middles - moments.begin) / (moments.end - moments.begin)
    first, last = random.uniform(0.3, 1.0), random.uniform(0.3, 1.0)
    return Work(first + (last - first) * share.clip(0, 1), note=f"from {first:.2f} to {last:.2f}")


def _thermal(random: Random, moments: Moments) -> Work:
    seconds = random.uniform(5, 20)
    grown = 1 - np.exp(-(moments.middles - moments.begin).clip(0) / seconds)
    return Work(0.8 + 0.2 * grown, note=f"leakage grows with {seconds:.1f} s")


def _dvfs(random: Random, moments: Moments) -> Work:
    shape = np.empty(moments.cells)
    cell = 0
    while cell < moments.cells:
        held = round(log_uniform(random, 0.3, 5.0) / CELL_SECONDS)
        shape[cell : cell + held] = random.uniform(0.2, 1.0)
        cell += held
    return Work(shape, note="levels held for 0.3 to 5 s")


def _bursts(random: Random, moments: Moments) -> Work:
    hertz, duty = log_uniform(random, 7, 60), random.uniform(0.2, 0.8)
    if random.uniform() < 0.5:
        hertz = float((10, 15, 20, 30, 60)[random.randint(5)])
    shape = _square(moments, 1 / hertz, duty, random.uniform())
    return Work(shape, (1 / hertz,), f"{hertz:.2f} Hz, {duty:.0%} busy")


def _batches(random: Random, moments: Moments) -> Work:
    duty = random.uniform(0.1, 0.9)
    shape = _square(moments, 1.0, duty, random.uniform())
    return Work(shape, (1.0,), f"each 1.000 s, {duty:.0%} busy")


def _beside(period: float) -> "Make":
    def make(random: Random, moments: Moments) -> Work:
        duty, share = random.uniform(0.05, 0.6), random.uniform(0.3, 1.0)
        job = _square(moments, period, duty, random.uniform())
        note = f"unmarked job each {period:.4f} s, {duty:.0%} busy, {share:.2f} of the work"
        return Work(0.6 + share * job, (period,), note)

    return make


def _key_frame(random: Random, moments: Moments) -> Work:
    frame = int(30 * (moments.middles[-1] + 1))
    weights = np.where(np.arange(frame) % 30 == random.randint(30), 1.0, 0.3)
    number = (moments.middles * 30).astype(int)
    busy = moments.middles * 30 % 1.0 < 0.2 + 0.6 * weights[number]
    return Work(busy * (0.5 + 0.5 * weights[number]), (1.0, 1 / 30), "30 Hz, each 30th frame heavy")


def _alternate(random: Random, moments: Moments) -> Work:
    heavy, light = log_uniform(random, 0.01, 0.5), log_uniform(random, 0.01, 0.5)
    low = random.uniform(0.1, 0.6)
    is_heavy = _square(moments, heavy + light, heavy / (heavy + light), random.uniform())
    note = f"heavy {heavy * 1e3:.1f} ms and light {light * 1e3:.1f} ms in turn"
    return Work(low + (1 - low) * is_heavy, (heavy + light,), note)


def _poisson(random: Random, moments: Moments) -> Work:
    rate, busy = log_uniform(random, 2, 30), log_uniform(random, 0.01, 0.1)
    count = int(rate * moments.cells * CELL_SECONDS * 2) + 50
    starts = np.cumsum(random.exponential(1 / rate, count))
    queue = np.zeros(moments.cells + 1)
    first = np.searchsorted(moments.middles, starts)
    last = np.searchsorted(moments.middles, starts + busy)
    np.add.at(queue, first, 1)
    np.add.at(queue, last, -1)
    shape = np.minimum(np.cumsum(queue)[:-1], 2) / 2
    return Work(shape, note=f"{rate:.1f} requests per second of {busy * 1e3:.0f} ms")


def _on_off(random: Random, moments: Moments) -> Work:
    period, duty = log_uniform(random, 0.3, 30), random.uniform(0.05, 0.95)
    shape = _square(moments, period, duty, random.uniform())
    return Work(shape, (period,), f"each {period:.3f} s, {duty:.0%} busy")


def _llm(random: Random, moments: Moments) -> Work:
    shape = np.zeros(moments.cells)
    at = 0.0
    while at < moments.cells * CELL_SECONDS:
        prefill, decode = random.uniform(0.1, 0.8), log_uniform(random, 0.5, 6)
        pause = random.exponential(0.4)
        edges = np.rint(np.cumsum([at, prefill, decode, pause]) / CELL_SECONDS).astype(int)
        shape[edges[0] : edges[1]] = 1.0
        shape[edges[1] : edges[2]] = 0.55
        at += prefill + decode + pause
    return Work(shape, note="prefill, decode and pause")


def _two_jobs(random: Random, moments: Moments) -> Work:
    first, second = log_uniform(random, 0.02, 0.5), log_uniform(random, 0.5, 10)
    shape = 0.5 * _square(moments, first, random.uniform(0.2, 0.8), random.uniform())
    shape += 0.5 * _square(moments, second, random.uniform(0.2, 0.8), random.uniform())
    return Work(shape, (first, second), f"each {first:.4f} s and each {second:.3f} s")


def _spikes(random: Random, moments: Moments) -> Work:
    period, long = log_uniform(random, 0.2, 2), log_uniform(random, 0.005, 0.03)
    spikes = _square(moments, period, long / period, random.uniform())
    return Work(
        0.3 + 2 * spikes, (period,), f"{long * 1e3:.0f} ms of high power each {period:.3f} s"
    )


def _wander(random: Random, moments: Moments) -> Work:
    return Work(0.5 + 0.15 * wander(random, moments.cells, 5.0), note="slow wander of 5 s memory")


Make = Callable[[Random, Moments], Work]

SIGNALS: dict[str, Make] = {
    "constant": _constant,
    "ramp": _ramp,
    "thermal": _thermal,
    "dvfs": _dvfs,
    "bursts": _bursts,
    "batches": _batches,
    "beside-1.000s": _beside(1.0),
    "beside-1.0235s": _beside(1.0235),
    "key-frame": _key_frame,
    "alternate": _alternate,
    "poisson": _poisson,
    "on-off": _on_off,
    "llm": _llm,
    "two-jobs": _two_jobs,
    "spikes": _spikes,
    "wander": _wander,
}


def wander(random: Random, cells: int, memory_seconds: float) -> Array:
    """Return noise of variance 1 whose correlation falls with a memory, held for 10 ms each."""
    held = 20
    count = -(-cells // held)
    keep = float(np.exp(-held * CELL_SECONDS / memory_seconds))
    fresh = random.standard_normal(count) * (1 - keep * keep) ** 0.5
    course = np.empty(count)
    course[0] = random.standard_normal()
    for number in range(1, count):
        course[number] = keep * course[number - 1] + fresh[number]
    return np.repeat(course, held)[:cells]


def idle_watts(random: Random, moments: Moments, level_watts: float) -> Array:
    """Return idle power, shape (cells,); it wanders like a recorded one: 1.2 %, memory 0.7 s."""
    return (level_watts * (1 + 0.012 * wander(random, moments.cells, 0.7))).clip(0.2)
