"""The regimes of the coverage campaign: what a board and its work may do in a window."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from .board import (
    AGX_ORIN,
    ORIN_NX,
    READ_SECONDS,
    Array,
    Board,
    Heat,
    Idle,
    Lines,
    Load,
    Power,
    Printing,
    Random,
    Sensor,
    print_lines,
    read_beside,
)

LEAD_SECONDS = 2.0
IDLE_SECONDS = 8.0
MINIMUM_SECONDS, MINIMUM_SAMPLES, MINIMUM_INFERENCES = 10.0, 100, 200
TYPICAL_READ_SECONDS = 0.0145

Pairing = Literal["live", "correlate"]


QUIET, COLD, SENSOR, PRINTING = Idle(), Heat(), Sensor(), Printing()


@dataclass(frozen=True, slots=True)
class Setup:
    """One window of a regime before its world is made.

    Attributes:
        load: The work of the window.
        stages: Power beside the marked work: stages of its inferences that draw more, or a job that
            nobody marked.
        others: Loads of other runs on the same board.
        idle_seconds: Length of each idle phase, 8 s or a quarter of the window.
    """

    load: Load
    board: Board = ORIN_NX
    idle: Idle = QUIET
    heat: Heat = COLD
    sensor: Sensor = SENSOR
    printing: Printing = PRINTING
    stages: tuple[Load, ...] = ()
    others: tuple[Load, ...] = ()
    idle_seconds: float = IDLE_SECONDS


Make = Callable[[Random, float, float, float], Setup]
"""Arguments: random numbers, interval, begin and end of the window."""


@dataclass(frozen=True, slots=True)
class Regime:
    """A named way of making windows.

    Attributes:
        family: ``constant``, ``ramp`` and ``wander`` have a formula for the best possible width,
            and their figures must be published. What is ``rare`` has no best width.
        cells: Intervals in milliseconds and windows in seconds for the live pairing.
        offline: The same for recorded logs.
    """

    name: str
    family: Literal["constant", "ramp", "wander", "other", "rare"]
    make: Make
    cells: tuple[tuple[int, int], ...]
    offline: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Cell:
    """One regime at one interval, length of window and kind of pairing."""

    regime: Regime
    interval_ms: int
    seconds: int
    pairing: Pairing

    @property
    def name(self) -> str:
        """As ``--cells`` selects it."""
        return f"{self.regime.name} {self.interval_ms}ms {self.seconds}s {self.pairing}"

    @property
    def is_withheld(self) -> bool:
        """Whether no window of the cell may be published: too few lines, or another run."""
        lines = self.seconds * 1000 / (self.interval_ms + 1000 * READ_SECONDS[0])
        return lines < MINIMUM_SAMPLES or self.regime.name == "overlap"

    @property
    def must_be_published(self) -> bool:
        """Whether withholding has a limit here."""
        return self.interval_ms == 103 and self.regime.family != "other"


@dataclass(frozen=True, slots=True)
class Window:
    """A world with the window in it; times are seconds since its beginning.

    ``second`` are times, shape (n,), and watts, (rails, n), of readings at another interval.
    """

    setup: Setup
    power: Power
    lines: Lines
    second: tuple[Array, Array]
    begin: float
    end: float

    @property
    def idle_phases(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """The idle phases before and after the window."""
        seconds = self.setup.idle_seconds
        return (self.begin - seconds, self.begin), (self.end, self.end + seconds)

    @property
    def contained(self) -> Array:
        """Power of the rails that are part of another one, shape (rails, n)."""
        return np.repeat(self.lines.watts[:1], len(self.setup.board.contained), axis=0)

    def wall(self, times: Array) -> Array:
        """Return what the wall clock shows, less its start, at moments."""
        return times

    @property
    def is_overlapped(self) -> bool:
        """Whether another run works in the window."""
        others = self.setup.others
        return any(other.begin < self.end and self.begin < other.end for other in others)

    @property
    def may_be_published(self) -> bool:
        """Rules 10 and 13: long enough, enough lines and inferences, and no other run."""
        inside = (self.lines.printed > self.begin) & (self.lines.printed < self.end)
        return (
            self.end - self.begin >= MINIMUM_SECONDS
            # A line at an edge may fall on either side of it.
            and np.count_nonzero(inside) + 2 >= MINIMUM_SAMPLES
            and len(self.setup.load.starts) >= MINIMUM_INFERENCES
            and not self.is_overlapped
        )


def make_window(cell: Cell, random: Random) -> Window:
    """Return a window of a cell, and the lines that were printed around it."""
    interval = cell.interval_ms / 1000
    begin = LEAD_SECONDS + max(IDLE_SECONDS, cell.seconds / 4) + random.uniform(0, 0.2)
    end = begin + cell.seconds
    setup = cell.regime.make(random, interval, begin, end)
    setup = replace(setup, printing=replace(setup.printing, interval=interval))
    hold = setup.printing.late_seconds + setup.printing.block * (interval + 0.022)
    power = Power(
        setup.board,
        end + setup.idle_seconds + LEAD_SECONDS + hold,
        [setup.load, *setup.stages, *setup.others],
        setup.idle,
        setup.heat,
        random,
    )
    lines = print_lines(power, setup.sensor, setup.printing, random, setup.load)
    second = read_beside(power, setup.sensor, second_interval(interval), random)
    return Window(setup, power, lines, second, begin, end)


def second_interval(interval: float) -> float:
    """Return the interval of readings beside lines that come each 103 or 1009 ms."""
    return 0.083 if interval < 0.4 else 0.211


def back_to_back(
    random: Random, begin: float, end: float, watts: tuple[float, float] | None = None
) -> Load:
    """Return inferences of 21.3 ms ± 2 % without a pause; ``watts`` at begin and end."""
    if watts is None:
        watts = (random.uniform(4.5, 5.5),) * 2
    seconds = 0.0213 * (1 + 0.02 * random.standard_normal(round((end - begin) / 0.0213) + 50))
    starts = begin + np.concatenate([[0.0], np.cumsum(seconds)[:-1]])
    kept = starts + seconds <= end
    return Load(begin, end, watts, starts[kept], seconds[kept])


def timed(
    random: Random,
    begin: float,
    end: float,
    period: float,
    busy: float,
    *,
    pieces: int = 1,
    spread: float = 0.02,
) -> Load:
    """Return ``pieces`` inferences of ``busy`` seconds each, back to back, every ``period``."""
    ticks = begin + np.arange(0, end - begin, period)
    seconds = busy * (1 + spread * random.uniform(-1, 1, (len(ticks), pieces)))
    starts = ticks[:, None] + np.cumsum(seconds, axis=1) - seconds
    kept = starts + seconds <= end
    watts = (random.uniform(4.5, 5.5),) * 2
    return Load(begin, end, watts, starts[kept], seconds[kept], is_gated=True)


def _constant(**changes: object) -> Make:
    def make(random: Random, _interval: float, begin: float, end: float) -> Setup:
        return replace(Setup(back_to_back(random, begin, end)), **changes)  # type: ignore[arg-type]

    return make


def _ramp(first: float, last: float) -> Make:
    def make(random: Random, _interval: float, begin: float, end: float) -> Setup:
        return Setup(back_to_back(random, begin, end, (first, last)))

    return make


def _duty(periods: float, share: float = 0.4) -> Make:
    """Return work whose period is so many of the sampling's own."""

    def make(random: Random, interval: float, begin: float, end: float) -> Setup:
        period = (interval + TYPICAL_READ_SECONDS) * periods
        return Setup(timed(random, begin, end, period, share * period))

    return make


def _every(period: float, busy: float, pieces: int = 1, spread: float = 0.02) -> Make:
    def make(random: Random, _interval: float, begin: float, end: float) -> Setup:
        return Setup(timed(random, begin, end, period, busy, pieces=pieces, spread=spread))

    return make


def _step(random: Random, _interval: float, begin: float, end: float) -> Setup:
    """Return constant work while idle power steps once, anywhere between the idle phases."""
    step = (random.uniform(begin, end), random.choice([-0.8, 0.8]) * random.uniform(0.3, 1))
    return Setup(back_to_back(random, begin, end), idle=Idle(steps=(step,)))


def _stages(random: Random, _interval: float, begin: float, end: float) -> Setup:
    """Return inferences with a stage that draws more, by about one step of a rail, without wander.

    Readings show one or two levels of each rail, as those of noise about a threshold do.
    """
    load = back_to_back(random, begin, end)
    long = load.seconds * random.uniform(0.3, 0.7)
    watts = (random.uniform(0.4, 0.8),) * 2
    stage = Load(begin, end, watts, load.starts, long, is_gated=True)
    return Setup(load, board=AGX_ORIN, idle=Idle(wander_watts=0.001), stages=(stage,))


def _unmarked(period: float, busy: float, watts: float, *, work: Make) -> Make:
    """Return work beside a job of the same program that nobody marked, at any phase."""

    def make(random: Random, interval: float, begin: float, end: float) -> Setup:
        first = begin + random.uniform(0, period)
        job = timed(random, first, end, period, busy, spread=0.0)
        setup = work(random, interval, begin, end)
        return replace(setup, stages=(replace(job, begin=begin, watts=(watts, watts)),))

    return make


def _in_turn(period: float) -> Make:
    """Return heavy and light inferences in turn, each pair in so many seconds."""

    def make(random: Random, _interval: float, begin: float, end: float) -> Setup:
        load = timed(random, begin, end, period, 0.4 * period, pieces=2, spread=0.0)
        heavy = replace(load, starts=load.starts[::2], seconds=load.seconds[::2])
        return Setup(load, stages=(heavy,))

    return make


def _with(make: Make, **changes: object) -> Make:
    """Return other windows of a regime: with another sensor, printing or idle power."""

    def changed(random: Random, interval: float, begin: float, end: float) -> Setup:
        return replace(make(random, interval, begin, end), **changes)  # type: ignore[arg-type]

    return changed


def _quarter(make: Make) -> Make:
    """Return the windows of a regime with idle phases of a quarter of their length."""

    def quarter(random: Random, interval: float, begin: float, end: float) -> Setup:
        return replace(make(random, interval, begin, end), idle_seconds=(end - begin) / 4)

    return quarter


def _poisson(mean: float, busy: float) -> Make:
    """Return inferences that begin at random, each when the one before has ended."""

    def make(random: Random, _interval: float, begin: float, end: float) -> Setup:
        gaps = np.maximum(random.exponential(mean, round(3 * (end - begin) / mean)), busy)
        starts = begin + np.cumsum(gaps) - busy
        starts = starts[starts + busy < end]
        watts = (random.uniform(4.5, 5.5),) * 2
        load = Load(begin, end, watts, starts, np.full(len(starts), 0.99 * busy), is_gated=True)
        return Setup(load)

    return make


def _idle_job(random: Random, _interval: float, begin: float, end: float) -> Setup:
    """Return constant work beside a job of 4 s each minute, which idle phases may never meet."""
    first = random.uniform(begin - 60.0, begin)
    job = timed(random, first, end + 20.0, 60.0, 4.0, spread=0.0)
    return Setup(back_to_back(random, begin, end), stages=(replace(job, watts=(5.0, 5.0)),))


def _overlap(random: Random, _interval: float, begin: float, end: float) -> Setup:
    other = back_to_back(random, (begin + end) / 2, end + 1.0, (3.0, 3.0))
    return Setup(back_to_back(random, begin, end), others=(other,))


def _disturbed(random: Random, _interval: float, begin: float, end: float) -> Setup:
    """Return constant work after which another run works in the idle phase."""
    other = back_to_back(random, end + 1.0, end + 6.0, (3.0, 3.0))
    return Setup(back_to_back(random, begin, end), others=(other,))


_OWN_PACE = Printing(own_pace=True)
_JOB_EACH_SECOND = _unmarked(1.0, 0.25, 10.0, work=_every(1 / 60, 0.010))
_ALL = tuple((ms, seconds) for ms in (103, 1009) for seconds in (15, 60, 120))
_FAST, _SLOW = ((103, 15), (103, 60)), ((1009, 120),)
_SHORT, _LONG = ((103, 15),), ((103, 60),)

REGIMES = (
    Regime("constant", "constant", _constant(), (*_FAST, (1009, 15), *_SLOW), (*_SHORT, *_SLOW)),
    Regime("constant-varying-lag", "constant", _constant(sensor=Sensor(lag_varies=True)), _SHORT),
    Regime("constant-agx", "constant", _constant(board=AGX_ORIN), (*_FAST, *_SLOW), _SHORT),
    Regime("ramp-up", "ramp", _ramp(3, 7), (*_FAST, *_SLOW), (*_SHORT, *_SLOW)),
    Regime("ramp-down", "ramp", _ramp(7, 3), ((103, 15), (103, 120), *_SLOW)),
    Regime("wander-0.15W", "wander", _constant(idle=Idle(0.15, 0.8)), (*_FAST, *_SLOW), _SHORT),
    Regime("wander-0.19W", "wander", _constant(idle=Idle(0.19, 1.3)), (*_FAST, *_SLOW)),
    Regime(
        "wander-agx",
        "wander",
        _constant(board=AGX_ORIN, idle=Idle(0.15, 0.8)),
        (*_FAST, *_SLOW),
    ),
    Regime("stages-agx", "other", _stages, _FAST),
    Regime("white", "other", _constant(sensor=Sensor(noise_watts=0.15)), (*_SHORT, *_SLOW)),
    Regime("heat-weak", "other", _constant(heat=Heat(0.03, 20.0)), (*_FAST, *_SLOW)),
    Regime("heat-strong", "other", _constant(heat=Heat(0.3, 12.0)), (*_FAST, *_SLOW)),
    Regime("idle-step", "other", _step, _SHORT),
    Regime("duty-one", "other", _duty(1), (*_LONG, *_SLOW), _LONG),
    Regime("duty-half", "other", _duty(1 / 2), (*_FAST, *_SLOW), _SHORT),
    Regime("duty-third", "other", _duty(1 / 3), (*_SHORT, *_SLOW)),
    Regime("duty-one-and-half", "other", _duty(1.5), _LONG, _LONG),
    Regime("8fps", "other", _every(1 / 8, 0.035), _LONG, _LONG),
    Regime("20fps", "other", _every(1 / 20, 0.030), _FAST),
    Regime("30fps", "other", _every(1 / 30, 0.020), (*_FAST, *_SLOW)),
    Regime("60fps", "other", _every(1 / 60, 0.010), _SHORT),
    Regime("115ms", "other", _every(0.115, 0.040), _LONG, _LONG),
    Regime("57.5ms", "other", _every(0.0575, 0.025), _FAST),
    Regime("batches-1.0235s", "other", _every(1.0235, 0.035, 10, 0.15), _SLOW, _SLOW),
    Regime("batches-1.0s", "other", _every(1.0, 0.035, 10, 0.15), _SLOW),
    Regime("batches-0.7s", "other", _every(0.7, 0.035, 10, 0.15), _SLOW),
    Regime("batches-115ms", "other", _every(0.115, 0.018, 3, 0.15), _FAST, _LONG),
    Regime(
        "unmarked-1s",
        "other",
        _JOB_EACH_SECOND,
        _SLOW,
    ),
    Regime("in-turn-56ms", "other", _in_turn(0.0563), ((103, 30),)),
    Regime("in-turn-59ms", "other", _in_turn(0.0587), ((103, 30),)),
    Regime("unmarked-1s-own-pace", "other", _with(_JOB_EACH_SECOND, printing=_OWN_PACE), _SLOW),
    Regime(
        "unmarked-117ms-own-pace",
        "other",
        _with(_unmarked(0.1175, 0.047, 10.0, work=_every(1 / 60, 0.010)), printing=_OWN_PACE),
        ((103, 30),),
    ),
    Regime(
        "key-frame-own-pace",
        "other",
        _with(_unmarked(30 / 29.35, 0.1, 10.0, work=_every(1 / 29.35, 0.015)), printing=_OWN_PACE),
        _SLOW,
    ),
    Regime("in-turn-own-pace", "other", _with(_in_turn(0.0563), printing=_OWN_PACE), ((103, 30),)),
    Regime(
        "updates-1s-batches",
        "other",
        _with(_every(1.0, 0.035, 10, 0.15), sensor=Sensor(updates_seconds=1.0)),
        ((103, 120),),
    ),
    Regime(
        "updates-0.2s-20fps",
        "other",
        _with(_every(1 / 20, 0.030), sensor=Sensor(updates_seconds=0.2)),
        _LONG,
        _LONG,
    ),
    Regime("updates-1s", "other", _constant(sensor=Sensor(updates_seconds=1.0)), ((103, 120),)),
    Regime(
        "updates-0.3s-ramp",
        "other",
        _with(_ramp(3, 7), sensor=Sensor(updates_seconds=0.3)),
        _LONG,
    ),
    Regime(
        "forgets-0.13s", "other", _constant(sensor=Sensor(forgets_seconds=0.13)), _SHORT, _SHORT
    ),
    Regime("forgets-0.5s", "other", _constant(sensor=Sensor(forgets_seconds=0.5)), _FAST, _SHORT),
    Regime(
        "forgets-0.5s-unsaid",
        "other",
        _constant(sensor=Sensor(forgets_seconds=0.5, states_averaging=False)),
        _FAST,
    ),
    Regime("forgets-1s", "other", _constant(sensor=Sensor(forgets_seconds=1.0)), _LONG, _LONG),
    Regime(
        "averaged-0.5s-unsaid",
        "other",
        _constant(sensor=Sensor(averages_seconds=0.5, states_averaging=False)),
        _FAST,
        _SHORT,
    ),
    Regime(
        "lines-wait-for-bursts",
        "other",
        _with(_poisson(0.25, 0.12), printing=Printing(waits_seconds=0.2)),
        _LONG,
        _LONG,
    ),
    Regime("idle-job", "rare", _idle_job, _LONG),
    Regime("idle-memory-10s", "other", _quarter(_constant(idle=Idle(0.3, 10.0))), ((103, 120),)),
    Regime(
        "lost-lines", "other", _constant(printing=Printing(lost=0.05)), (*_FAST, *_SLOW), _SHORT
    ),
    Regime("lost-bursts", "other", _constant(printing=Printing(burst=0.01)), _FAST, _SHORT),
    Regime(
        "late-0.4s",
        "other",
        _constant(printing=Printing(late_seconds=0.4)),
        (*_FAST, *_SLOW),
        _SHORT,
    ),
    Regime("blocks-10", "other", _constant(printing=Printing(block=10)), _FAST, _SHORT),
    Regime("blocks-3", "other", _constant(printing=Printing(block=3)), _SHORT),
    Regime("averaged-0.13s", "other", _constant(sensor=Sensor(averages_seconds=0.13)), _SHORT),
    Regime(
        "averaged-0.5s", "other", _constant(sensor=Sensor(averages_seconds=0.5)), (*_FAST, *_SLOW)
    ),
    Regime("idle-disturbed", "other", _disturbed, _SHORT),
    Regime("overlap", "other", _overlap, _SHORT, _SHORT),
)


def cells(*, every: bool = False) -> list[Cell]:
    """Return the cells of the campaign; ``every``: all intervals and lengths of every regime."""
    chosen = []
    for regime in REGIMES:
        chosen += [Cell(regime, *one, "live") for one in (_ALL if every else regime.cells)]
        chosen += [Cell(regime, *one, "correlate") for one in (_ALL if every else regime.offline)]
    return chosen


def cell_of(name: str) -> Cell:
    """Return the cell of a name."""
    regime_name, interval, seconds, pairing = name.split(" ")
    regime = next(one for one in REGIMES if one.name == regime_name)
    kind: Pairing = "live" if pairing == "live" else "correlate"
    return Cell(regime, int(interval.removesuffix("ms")), int(seconds.removesuffix("s")), kind)
