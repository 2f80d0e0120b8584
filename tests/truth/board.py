"""A board whose power is an exact function of time, and the lines that a sensor's reader prints.

Independent of the product: numpy only, no formula of ``daemon.measure``, nothing of the simulator.

Power is constant in each cell of ``GRID_SECONDS``, so the energy of any time is exact. It is the
sum of idle power (a level, possibly a step, and a wander like the recorded one), of the work, and
of the heat of the work (leakage that follows the work's power with a time constant).

Two net energies of a window are known:

- ``net``: the energy with the work, less that of the same board (same seed) without it. It includes
  the heat that the work causes within the window, because that power is drawn for the work. The
  product's net interval is compared with this one.
- ``work``: the same without that heat: what the work itself draws. An idle power measured after the
  window contains part of the heat, so a figure of the product may lie between the two.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Random = np.random.Generator

GRID_SECONDS = 0.0005
WANDER_SECONDS = 0.005
MOST_LAG_SECONDS = 0.045
UPDATE_SECONDS = 0.0066
READ_SECONDS = (0.006, 0.022)
"""Time that tegrastats adds to its interval, by public logs."""


@dataclass(frozen=True, slots=True)
class Rail:
    """One supply; the shares are those of the board's work and of the variance of its wander."""

    name: str
    step_watts: float
    idle_watts: float
    work_share: float
    wander_share: float


@dataclass(frozen=True, slots=True)
class Board:
    """The rails that add up to the module."""

    name: str
    rails: tuple[Rail, ...]
    contained: tuple[str, ...] = ()
    """Rails that are printed and are part of the first one."""


ORIN_NX = Board("Orin NX", (Rail("VDD_IN", 0.04, 6.0, 1.0, 1.0),), ("VDD_CPU_GPU_CV", "VDD_SOC"))
AGX_ORIN = Board(
    "AGX Orin",
    (
        Rail("VDD_GPU_SOC", 0.4, 4.4, 0.6, 0.4),
        Rail("VDD_CPU_CV", 0.4, 2.0, 0.25, 0.2),
        Rail("VIN_SYS_5V0", 0.1, 4.6, 0.15, 0.4),
    ),
)


@dataclass(frozen=True, slots=True)
class Load:
    """Work between two times; ``pieces`` are the inferences, and a gated load draws only in them.

    Power goes in a straight line from ``watts[0]`` to ``watts[1]``.
    """

    begin: float
    end: float
    watts: tuple[float, float]
    starts: Array = field(default_factory=lambda: np.empty(0))
    seconds: Array = field(default_factory=lambda: np.empty(0))
    is_gated: bool = False

    def cells(self, edges: Array) -> Array:
        """Return the mean power of each cell between ``edges``."""
        if self.is_gated:
            marks = np.stack([self.starts, self.starts + self.seconds], axis=1).ravel()
            busy = np.stack([np.zeros(len(self.starts)), self.seconds], axis=1).ravel().cumsum()
            share = np.diff(np.interp(edges, marks, busy)) / GRID_SECONDS
        else:
            inside = np.clip(edges, self.begin, self.end)
            share = (inside[1:] - inside[:-1]) / GRID_SECONDS
        if self.watts[0] == self.watts[1]:
            return share * self.watts[0]
        middles = (edges[1:] + edges[:-1]) / 2
        return share * np.interp(middles, [self.begin, self.end], self.watts)


@dataclass(frozen=True, slots=True)
class Idle:
    """Idle power apart from its level: wander (standard deviation, memory), and steps of it."""

    wander_watts: float = 0.071
    memory_seconds: float = 0.7
    steps: tuple[tuple[float, float], ...] = ()
    """Pairs of a time and the watts that are added from then on."""


@dataclass(frozen=True, slots=True)
class Heat:
    """Leakage that follows the power of the work by ``gain`` watts per watt, with a delay."""

    gain: float = 0.0
    seconds: float = 15.0


def wander(count: int, step: float, memory: float, random: Random) -> Array:
    """Return a stationary Gaussian course of variance 1 and correlation exp(-time/memory)."""
    size = 1 << (2 * count - 1).bit_length()
    noise = np.fft.rfft(random.standard_normal(size))
    return np.fft.irfft(noise * _amplitudes(size, step, memory), size)[:count]


@lru_cache(maxsize=32)
def _amplitudes(size: int, step: float, memory: float) -> Array:
    away = np.minimum(np.arange(size), size - np.arange(size)) * step
    return np.sqrt(np.fft.rfft(np.exp(-away / memory)).real.clip(min=0))


def forgetting(watts: Array, seconds: float) -> Array:
    """Return a register after each cell that moves by cell / seconds of the difference."""
    keep = float(np.exp(-GRID_SECONDS / seconds))
    size = max(min(int(20 * seconds / GRID_SECONDS), 4096), 1)
    count = -(-len(watts) // size)
    padded = np.concatenate([watts, np.full(count * size - len(watts), watts[-1])])
    powers = keep ** np.arange(1, size + 1)
    inner = np.cumsum(padded.reshape(count, size) / powers, axis=1) * powers * (1 - keep)
    carried, last = np.empty(count), float(watts[0])
    for k in range(count):
        carried[k] = last
        last = last * powers[-1] + inner[k, -1]
    return (inner + carried[:, None] * powers).ravel()[: len(watts)]


class Power:
    """Energy of each rail, of the idle board, and of the work until each moment; exact."""

    def __init__(
        self,
        board: Board,
        seconds: float,
        loads: list[Load],
        idle: Idle,
        heat: Heat,
        random: Random,
    ) -> None:
        self.board = board
        self.seconds = seconds
        per_hold = round(WANDER_SECONDS / GRID_SECONDS)
        holds = -(-round(seconds / GRID_SECONDS) // per_hold)
        self._edges = np.arange(holds * per_hold + 1) * GRID_SECONDS
        work = np.zeros(len(self._edges) - 1)
        for load in loads:
            first, last = (round(t / GRID_SECONDS) for t in (load.begin - 0.1, load.end + 0.1))
            first, last = max(first, 0), min(last, len(work))
            work[first:last] += load.cells(self._edges[first : last + 1])
        added = work
        if heat.gain:
            coarse = work.reshape(holds, per_hold).mean(axis=1)
            grown = np.exp(np.arange(holds) * WANDER_SECONDS / heat.seconds)
            leak = heat.gain * np.cumsum(coarse * grown) / grown * WANDER_SECONDS / heat.seconds
            added = work + np.repeat(leak, per_hold)
        common = np.zeros(holds)
        for at, watts in idle.steps:
            common[round(at / WANDER_SECONDS) :] += watts
        self._work, self._added = work, added
        self._watts: list[Array] = []
        self._until: dict[int, Array] = {}
        self.levels: list[float] = []
        for rail in board.rails:
            course = wander(holds, WANDER_SECONDS, idle.memory_seconds, random)
            course *= idle.wander_watts * np.sqrt(rail.wander_share)
            # The rounding of a level depends on where it lies between two steps.
            level = rail.idle_watts + random.uniform(-0.5, 0.5) * min(1.0, rail.idle_watts / 4)
            self.levels.append(level)
            course += level
            quiet = np.repeat(course + common * rail.work_share, per_hold)
            self._watts.append(quiet + added * rail.work_share)

    def _joules(self, watts: Array, begin: float, end: float) -> float:
        first, last = int(begin / GRID_SECONDS), int(end / GRID_SECONDS)
        whole = float(watts[first:last].sum()) * GRID_SECONDS
        before = (begin - self._edges[first]) * watts[first]
        return whole - float(before) + float((end - self._edges[last]) * watts[last])

    def gross(self, begin: float, end: float) -> float:
        """Return the energy of the module."""
        return sum(self._joules(watts, begin, end) for watts in self._watts)

    def net(self, begin: float, end: float) -> float:
        """Return the energy that the work caused, its heat included."""
        return self._joules(self._added, begin, end)

    def work(self, begin: float, end: float) -> float:
        """Return the energy of the work without its heat."""
        return self._joules(self._work, begin, end)

    def at(self, rail: int, times: Array) -> Array:
        """Return the power of a rail at moments."""
        cells = np.clip((times / GRID_SECONDS).astype(np.int64), 0, len(self._edges) - 2)
        return self._watts[rail][cells]

    def forgotten(self, rail: int, times: Array, seconds: float) -> Array:
        """Return a register that moves towards the power of a rail, at moments."""
        return np.interp(times, self._edges[1:], forgetting(self._watts[rail], seconds))

    def mean(self, rail: int, ends: Array, seconds: float) -> Array:
        """Return the mean power of a rail over the time before moments."""
        if rail not in self._until:
            joules = np.cumsum(self._watts[rail]) * GRID_SECONDS
            self._until[rail] = np.concatenate([[0.0], joules])
        begins = np.maximum(ends - seconds, 0.0)
        until = [np.interp(t, self._edges, self._until[rail]) for t in (begins, ends)]
        return (until[1] - until[0]) / np.maximum(ends - begins, GRID_SECONDS)


@dataclass(frozen=True, slots=True)
class Sensor:
    """How rails are read.

    The reading is of a moment up to ``most_lag`` before the line is printed: each rail has its own
    fixed lag in a run, or each line has another one. It is a mean of the time before that moment,
    or moves towards the power with a time constant, as an INA3221's does, or is that of the last
    update, and of a moment otherwise.
    """

    most_lag: float = MOST_LAG_SECONDS
    lag_varies: bool = False
    averages_seconds: float = 0.0
    forgets_seconds: float = 0.0
    updates_seconds: float = 0.0
    noise_watts: float = 0.0
    states_averaging: bool = True

    @property
    def stated_seconds(self) -> float:
        """The averaging that the kernel's files give; 0 without files.

        It is 6.6 ms for an INA3221 that takes one sample of each of its channels.
        """
        known = self.averages_seconds or self.forgets_seconds or UPDATE_SECONDS
        return known * (self.states_averaging and not self.updates_seconds)


@dataclass(frozen=True, slots=True)
class Printing:
    """When lines are printed, which are lost, and when a reader gets them.

    A reading takes as long for each line of a board if ``own_pace`` (± 0.5 ms), else it varies by
    line; and it waits up to ``waits_seconds`` for a piece of the work to end. Loss: ``lost`` is the
    share of single lines, ``burst`` the probability per line that three to ten lines from there on
    are lost. Arrival: ``late_seconds`` after printing, and ``block`` lines at once, with the
    arrival time of the last one.
    """

    interval: float = 0.103
    lost: float = 0.0
    burst: float = 0.0
    late_seconds: float = 0.0
    block: int = 1
    own_pace: bool = False
    waits_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines as a reader gets them, shape (n,) each.

    ``printed`` is the moment at which the program wrote a line and ``arrived`` that of the read
    that returned it. Lines of one block share their arrival. ``watts`` has shape (rails, n).
    """

    printed: Array
    arrived: Array
    watts: Array


def print_lines(
    power: Power, sensor: Sensor, printing: Printing, random: Random, work: Load | None = None
) -> Lines:
    """Return the lines that a program prints from the beginning to the end of a world.

    ``work`` is that for which the program waits.
    """
    count = int(power.seconds / printing.interval) + 2
    if printing.own_pace:
        reading = random.uniform(*READ_SECONDS) + random.uniform(-0.0005, 0.0005, count)
    else:
        reading = random.uniform(*READ_SECONDS, count)
    steps = printing.interval + reading
    steps[0] = random.uniform(0, printing.interval + READ_SECONDS[1])
    printed = np.cumsum(steps)
    if printing.waits_seconds and work is not None:
        printed = _waiting(steps, work, printing.waits_seconds)
    # A line that a reader gets after the end of the world does not count.
    printed = printed[printed < power.seconds - printing.late_seconds - 0.001]
    lags = []
    for _ in power.board.rails:
        lags.append(random.uniform(0, sensor.most_lag, len(printed) if sensor.lag_varies else 1))
    watts = read(power, sensor, [printed - lag for lag in lags], random)
    kept = np.ones(len(printed), bool)
    if printing.lost:
        kept &= random.random(len(printed)) >= printing.lost
    if printing.burst:
        for first in np.flatnonzero(random.random(len(printed)) < printing.burst):
            kept[first : first + random.integers(3, 11)] = False
    printed, readings = printed[kept], watts[:, kept]
    last = np.arange(len(printed)) // printing.block * printing.block + printing.block - 1
    arrived = printed[np.minimum(last, len(printed) - 1)] + printing.late_seconds
    return Lines(printed, arrived, readings)


def read(power: Power, sensor: Sensor, moments: Sequence[Array], random: Random) -> Array:
    """Return what the sensor shows of each rail at its moments, shape (rails, n)."""
    watts = []
    for number, (rail, at) in enumerate(zip(power.board.rails, moments, strict=True)):
        taken = np.maximum(at, 0.0)
        if sensor.forgets_seconds:
            exact = power.forgotten(number, taken, sensor.forgets_seconds)
        elif sensor.updates_seconds:
            # Boards begin at any phase of the world, so the updates need none of their own.
            updates = np.floor(taken / sensor.updates_seconds)
            exact = power.at(number, updates * sensor.updates_seconds)
        elif sensor.averages_seconds:
            exact = power.mean(number, taken, sensor.averages_seconds)
        else:
            exact = power.at(number, taken)
        if sensor.noise_watts:
            noise = sensor.noise_watts * rail.wander_share**0.5
            exact = exact + random.normal(0, noise, len(exact))
        watts.append(np.round(np.round(exact / rail.step_watts) * rail.step_watts, 3))
    return np.array(watts)


def read_beside(power: Power, sensor: Sensor, every: float, random: Random) -> tuple[Array, Array]:
    """Return times, shape (n,), and watts, (rails, n), of readings each so many seconds."""
    times = np.arange(random.uniform(0, every), power.seconds, every)
    times = times + random.uniform(0, 0.002, len(times))
    return times, read(power, sensor, [times] * len(power.board.rails), random)


def _waiting(steps: Array, work: Load, longest: float) -> Array:
    """Return when lines are printed that wait for a piece of the work to end, up to some seconds.

    The next line follows the one before after its step.
    """
    ends, printed, now = work.starts + work.seconds, [], 0.0
    for step in steps:
        now += step
        piece = int(np.searchsorted(work.starts, now, "right")) - 1
        if piece >= 0 and now < ends[piece]:
            now = min(float(ends[piece]) + 0.0005, now + longest)
        printed.append(now)
    return np.array(printed)
