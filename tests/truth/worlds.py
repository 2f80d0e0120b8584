"""Random worlds: signal, sensor, printing, idle power, clock and jobs beside, drawn together.

Independent of the product: numpy only, no formula of ``daemon.measure``, nothing of the simulator.
Nothing in here was chosen to resonate or not to resonate. The distribution, fixed:

- Lines: each 103 ms (0.45), 1009 ms (0.35), else one of 97, 100, 107, 211, 500 and 1000 ms; a line
  takes 6 to 22 ms more, one value per board ± 0.5 ms (a half), or drawn anew by line. One world in
  ten loses 1 to 5 % of its lines.
- Window: 110 to 600 lines, log-uniform, 12 to 240 s. Idle phases of 8 s (a half) or a quarter of
  the window.
- Marked work of 2 to 10 W: back to back (0.45), one or more pieces each period (0.4), or at
  random times (0.15). Its level is flat (0.6), a ramp (0.1), warms up (0.1), or jumps between 2 to
  4 levels (0.2).
- A rhythm within it that no start shows (0.45), such as a key frame; a job beside that runs all the
  time (0.25), or once in the window (0.05).
- Every rhythm: period log-uniform 20 ms to 30 s, a fifth of them round numbers; duty 5 to 95 %;
  swing 5 to 200 % of the work, log-uniform; strict (a half), or ± 0.1 to 3 % by cycle.
- Sensor: clean (0.4), one that forgets exponentially as an INA3221 does (0.25, memory log-uniform
  5 ms to 1 s), a mean (0.12, as long), one that is updated each 0.05 to 1.2 s (0.2), or faulty
  (0.03: stuck, frozen for 1 to 4 s, or clipped). Two boards in three have one rail in steps of
  0.04 W; the others three, in steps of 0.4, 0.4 and 0.1 W.
- Idle power: an exponential memory of 0.05 to 20 s (0.75), 1/f noise (0.13), both of 0.01 to 0.2 W,
  or two levels 0.1 to 1 W apart (0.12). In a fifth of the worlds, heat of the work adds up to 0.1 W
  per watt.
- Wall clock: steps of 1 ms to 10 s, either way, one to five times, in a fifth of the worlds.

A world is *indistinguishable* if another one gives the same readings and an energy that is more
than 2 % away. That is decided from its parameters alone (``World.hidden``).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import pi

import numpy as np

from .board import (
    AGX_ORIN,
    GRID_SECONDS,
    MOST_LAG_SECONDS,
    ORIN_NX,
    READ_SECONDS,
    Array,
    Board,
    Lines,
    Load,
    Random,
    forgetting,
    wander,
)
from .board import Printing as _Printing
from .board import Sensor as _Sensor
from .regimes import Setup, Window, back_to_back, second_interval

LEAD_SECONDS = 4.0
ROUND_SECONDS = (0.02, 0.025, 0.04, 0.05, 0.1, 0.2, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0)
HIDDEN_SHARE = 0.02
SLOWEST_CYCLES = 1.5
HARMONICS = 5


@dataclass(frozen=True, slots=True)
class Rhythm:
    """Power that comes in a pulse each cycle: the beginning of each, its duty, and its watts."""

    ticks: Array
    duty: float
    watts: float

    def cells(self, edges: Array) -> Array:
        """Return the mean power of each cell between edges."""
        long = np.diff(self.ticks) * self.duty
        marks = np.stack([self.ticks[:-1], self.ticks[:-1] + long], axis=1).ravel()
        busy = np.stack([np.zeros(len(long)), long], axis=1).ravel().cumsum()
        return np.diff(np.interp(edges, marks, busy)) / GRID_SECONDS * self.watts

    def phases(self, times: Array) -> Array:
        """Return the position of moments in their cycle, counted in cycles from the first one."""
        return np.interp(times, self.ticks, np.arange(len(self.ticks)))

    def amplitude(self, harmonic: int) -> float:
        """Return the amplitude of a harmonic in watts."""
        return abs(2 * self.watts * np.sin(pi * harmonic * self.duty) / (pi * harmonic))


@dataclass(frozen=True, slots=True)
class Register:
    """How the sensor's register follows the power.

    ``kind`` is ``clean``, ``forgets`` (exponentially, with ``seconds``), ``mean`` (of ``seconds``),
    ``slow`` (updated each so many seconds), ``stuck``, ``frozen`` or ``clipped`` at ``limit`` watts
    of the first rail.
    """

    kind: str = "clean"
    seconds: float = 0.0
    offset: float = 0.0
    limit: float = 0.0

    def passes(self, hertz: float) -> float:
        """Return the share of a wave's amplitude that the readings have."""
        if self.kind == "forgets":
            return 1 / float(np.hypot(1, 2 * pi * hertz * self.seconds))
        if self.kind == "mean":
            return abs(float(np.sinc(hertz * self.seconds)))
        return 1.0


class Course:
    """The power of a world in cells of ``GRID_SECONDS``; its integral is exact."""

    def __init__(
        self, board: Board, seconds: float, idle: Sequence[Array], added: Array, foreign: Array
    ):
        self.board = board
        self.seconds = seconds
        self.edges = np.arange(len(added) + 1) * GRID_SECONDS
        self.rails = []
        for rail, quiet in zip(board.rails, idle, strict=True):
            self.rails.append(quiet + (added + foreign) * rail.work_share)
        whole = np.sum(self.rails, axis=0)
        self._gross = np.concatenate([[0.0], np.cumsum(whole) * GRID_SECONDS])
        self._net = np.concatenate([[0.0], np.cumsum(added) * GRID_SECONDS])

    def gross(self, begin: float, end: float) -> float:
        """Return the energy of all rails."""
        return float(np.diff(np.interp([begin, end], self.edges, self._gross))[0])

    def net(self, begin: float, end: float) -> float:
        """Return the energy less that of the board whose idle power goes on without the work."""
        return float(np.diff(np.interp([begin, end], self.edges, self._net))[0])

    def register(self, rail: int, register: Register) -> Callable[[Array], Array]:
        """Return the register of a rail as a function of time."""
        watts = self.rails[rail]
        if register.kind == "forgets":
            after = forgetting(watts, register.seconds)
            return lambda times: np.interp(times, self.edges[1:], after)
        if register.kind == "mean":
            until = np.concatenate([[0.0], np.cumsum(watts) * GRID_SECONDS])

            def mean(times: Array) -> Array:
                begins = np.maximum(times - register.seconds, 0.0)
                ends = np.interp(times, self.edges, until)
                return (ends - np.interp(begins, self.edges, until)) / np.maximum(
                    times - begins, GRID_SECONDS
                )

            return mean

        def moment(times: Array) -> Array:
            cells = np.clip((times / GRID_SECONDS).astype(int), 0, len(watts) - 1)
            return watts[cells]

        if register.kind == "slow":
            return lambda times: moment(np.maximum(updated(times, register), 0.0))
        if register.kind == "stuck":
            return lambda times: moment(np.minimum(times, register.offset))
        if register.kind == "frozen":

            def frozen(times: Array) -> Array:
                begins = register.offset
                held = (times > begins) & (times < begins + register.seconds)
                return moment(np.where(held, begins, times))

            return frozen
        if register.kind == "clipped" and rail == 0:
            return lambda times: np.minimum(moment(times), register.limit)
        return moment


def updated(times: Array, register: Register) -> Array:
    """Return the last update of a slow register before each moment."""
    return (
        np.floor((times - register.offset) / register.seconds) * register.seconds + register.offset
    )


@dataclass(frozen=True, slots=True)
class World(Window):
    """A random world with its window.

    Attributes:
        register: That of the sensor.
        steps: Times at which the wall clock was set, and by how many seconds.
        rhythms: Everything periodic in it, marked or not.
        parts: Readings of the rails that are part of another one, shape (rails, n).
        is_hidden: Whether it is indistinguishable in one series of readings.
        is_hidden_in_both: The same with the second series.
        is_net_hidden: Whether its idle power is: a job in the window and in neither phase.
    """

    register: Register
    steps: tuple[tuple[float, float], ...]
    rhythms: tuple[Rhythm, ...]
    parts: Array
    about: str
    is_hidden: bool
    is_hidden_in_both: bool
    is_net_hidden: bool

    @property
    def contained(self) -> Array:
        """Power of the rails that are part of another one; another chip reads them."""
        return self.parts

    def wall(self, times: Array) -> Array:
        """Return what the wall clock shows, less its start, at moments."""
        shown = np.array(times, float)
        for at, step in self.steps:
            shown = shown + np.where(times >= at, step, 0.0)
        return shown


def log_uniform(random: Random, low: float, high: float) -> float:
    return float(np.exp(random.uniform(np.log(low), np.log(high))))


def draw_rhythm(random: Random, watts: float, begin: float, end: float) -> Rhythm:
    period = log_uniform(random, 0.02, 30.0)
    if random.random() < 0.2:
        period = float(random.choice(ROUND_SECONDS))
    swing = watts * log_uniform(random, 0.05, 2.0)
    return Rhythm(_ticks(random, period, begin, end), random.uniform(0.05, 0.95), swing)


def _ticks(random: Random, period: float, begin: float, end: float) -> Array:
    count = int((end - begin) / period) + 3
    steps = np.full(count, period)
    if random.random() < 0.5:
        spread = log_uniform(random, 0.001, 0.03)
        steps = period * (1 + spread * random.standard_normal(count)).clip(0.5, 1.5)
    first = begin - random.uniform(0, period)
    return first + np.concatenate([[0.0], np.cumsum(steps)])


def draw_inferences(
    random: Random, watts: float, begin: float, end: float
) -> tuple[Load, Rhythm | None]:
    """Return the marked work and, where it has one, its rhythm."""
    kind, long = random.random(), end - begin
    if kind < 0.45:
        return back_to_back(random, begin, end, (watts, watts)), None
    if kind < 0.85:
        period = log_uniform(random, 0.02, 1.0)
        if random.random() < 0.2:
            period = float(random.choice([1 / 60, 1 / 30, 1 / 15, 0.1, 0.5, 1.0]))
        ticks = _ticks(random, period, begin, end)
        ticks = ticks[(ticks >= begin) & (ticks <= end - period)]
        pieces = max(int(np.ceil(230 * period / long)), 1)
        duty = random.uniform(0.05, 0.95)
        each = np.diff(ticks, append=ticks[-1] + period) * duty / pieces
        starts = ticks[:, None] + each[:, None] * np.arange(pieces)
        seconds = np.repeat(each, pieces).reshape(starts.shape)
        load = Load(begin, end, (watts, watts), starts.ravel(), seconds.ravel(), is_gated=True)
        return load, Rhythm(ticks, duty, watts)
    mean = long / random.uniform(230, 2000)
    gaps = random.exponential(mean, int(3 * long / mean))
    busy = mean * random.uniform(0.05, 0.9) * np.ones(len(gaps))
    starts = begin + np.cumsum(np.maximum(gaps, busy)) - busy
    kept = starts + busy < end
    load = Load(begin, end, (watts, watts), starts[kept], busy[kept] * 0.999, is_gated=True)
    return load, None


def draw_level(random: Random, middles: Array, begin: float, end: float) -> tuple[str, Array]:
    """Return by how much the power of the work is above or below its usual level, at moments."""
    kind, long = random.random(), end - begin
    position = np.clip((middles - begin) / long, 0, 1)
    if kind < 0.6:
        return "flat", np.ones(len(middles))
    if kind < 0.7:
        return "ramp", 1 + random.uniform(-0.5, 0.8) * position
    if kind < 0.8:
        slowness = random.uniform(0.05, 1.0)
        return "warms", 1 + random.uniform(-0.3, 0.3) * (1 - np.exp(-position / slowness))
    levels = random.uniform(0.4, 1.6, random.integers(2, 5))
    dwell = log_uniform(random, 0.1, 20.0)
    changes = begin + np.cumsum(random.exponential(dwell, int(3 * long / dwell) + 5))
    sequence = levels[random.integers(0, len(levels), len(changes) + 1)]
    return "levels", sequence[np.searchsorted(changes, middles)]


def draw_idle(random: Random, board: Board, count: int) -> tuple[str, list[Array]]:
    """Return the idle power of each rail, in cells."""
    kind, per = random.random(), 10
    holds = -(-count // per)
    watts = log_uniform(random, 0.01, 0.2)
    courses = []
    for rail in board.rails:
        step = per * GRID_SECONDS
        if kind < 0.75:
            course = watts * wander(holds, step, log_uniform(random, 0.05, 20.0), random)
        elif kind < 0.88:
            course = watts * _one_over_f(holds, random)
        else:
            dwell = log_uniform(random, 2.0, 20.0)
            jumps = np.cumsum(random.exponential(dwell, int(3 * holds * step / dwell) + 5))
            parity = np.searchsorted(jumps, np.arange(holds) * step) % 2
            course = random.uniform(0.1, 1.0) * parity
        course = course * np.sqrt(rail.wander_share)
        level = rail.idle_watts + random.uniform(-0.5, 0.5) * min(1.0, rail.idle_watts / 4)
        courses.append(np.repeat(level + course, per)[:count])
    name = "memory" if kind < 0.75 else "1/f" if kind < 0.88 else "two levels"
    return name, courses


def _one_over_f(count: int, random: Random) -> Array:
    """Return a course of variance 1 whose density falls as the frequency grows."""
    size = 1 << (2 * count - 1).bit_length()
    noise = np.fft.rfft(random.standard_normal(size))
    noise[0] = 0
    noise[1:] /= np.sqrt(np.arange(1, len(noise)))
    course = np.fft.irfft(noise, size)[:count]
    return course / course.std()


def draw_register(random: Random, watts: float, begin: float, end: float) -> Register:
    kind = random.random()
    if kind < 0.4:
        return Register()
    if kind < 0.65:
        return Register("forgets", log_uniform(random, 0.005, 1.0))
    if kind < 0.77:
        return Register("mean", log_uniform(random, 0.005, 1.0))
    if kind < 0.97:
        seconds = random.uniform(0.05, 1.2)
        return Register("slow", seconds, random.uniform(0, seconds))
    if kind < 0.98:
        return Register("stuck", offset=random.uniform(0, end))
    if kind < 0.99:
        return Register("frozen", random.uniform(1, 4), random.uniform(begin, end - 4))
    return Register("clipped", limit=watts)


def make_world(random: Random, given: Board | None = None) -> World:
    """Return one world of the distribution, maybe of a given board."""
    interval = float(
        random.choice(
            [0.103, 1.009, float(random.choice([97, 100, 107, 211, 500, 1000])) / 1e3],
            p=[0.45, 0.35, 0.2],
        )
    )
    lines = log_uniform(random, 110, 600)
    long = float(np.clip(lines * (interval + 0.014), max(12.0, 106 * (interval + 0.023)), 240.0))
    idle_seconds = 8.0 if random.random() < 0.5 else long / 4
    begin = LEAD_SECONDS + idle_seconds + random.uniform(0, 0.2)
    end = begin + long
    whole = end + idle_seconds + LEAD_SECONDS
    board = given or (ORIN_NX if random.random() < 2 / 3 else AGX_ORIN)
    count = int(whole / GRID_SECONDS)
    edges = np.arange(count + 1) * GRID_SECONDS
    middles = (edges[1:] + edges[:-1]) / 2
    inside = np.clip((np.minimum(edges[1:], end) - np.maximum(edges[:-1], begin)), 0, None)
    inside = inside / GRID_SECONDS

    watts = random.uniform(2, 10)
    load, marked = draw_inferences(random, watts, begin, end)
    level_name, level = draw_level(random, middles, begin, end)
    if marked is None and not load.is_gated:
        added = inside * watts * level
    else:
        added = load_cells(load, edges) * level
    mean_work = float(added.sum() * GRID_SECONDS / long)
    rhythms = [] if marked is None else [marked]
    about = [f"{interval * 1e3:.0f}ms", f"{long:.0f}s", "marked" if marked else "", level_name]
    if random.random() < 0.45:
        within = draw_rhythm(random, mean_work, begin, end)
        added = added + within.cells(edges) * inside
        rhythms.append(within)
        about.append(f"within({np.diff(within.ticks).mean():.4f}s)")
    foreign, is_net_hidden = np.zeros(count), False
    kind = random.random()
    if kind < 0.25:
        beside = draw_rhythm(random, mean_work, 0.0, whole)
        job = beside.cells(edges)
        rhythms.append(beside)
        about.append(f"beside({np.diff(beside.ticks).mean():.4f}s)")
        # A job that the idle phases never met counts as work.
        met = (middles > begin - idle_seconds) & (middles < end + idle_seconds)
        met &= (middles < begin) | (middles > end)
        if job[met].any():
            foreign = job
            per_phase = [
                job[(middles > low) & (middles < high)].any()
                for low, high in ((begin - idle_seconds, begin), (end, end + idle_seconds))
            ]
            is_net_hidden = not all(per_phase)
        else:
            added = added + job
            is_net_hidden = True
    elif kind < 0.30:
        at = random.uniform(begin, end)
        ends = at + random.uniform(0.2, 4)
        pulse = np.clip(np.minimum(edges[1:], ends) - np.maximum(edges[:-1], at), 0, None)
        added = added + pulse / GRID_SECONDS * random.uniform(0.5, 10) * inside
        about.append("once")
        is_net_hidden = True
    if random.random() < 0.2:
        heat = forgetting(added, random.uniform(5, 30))
        added = added + random.uniform(0, 0.1) * (heat - heat[0])
        about.append("heat")
    idle_name, idle = draw_idle(random, board, count)
    course = Course(board, whole, idle, added, foreign)
    peak = float(np.max(course.rails[0][(middles > begin) & (middles < end)]))
    low = float(np.mean(course.rails[0][middles < begin]))
    register = draw_register(random, low + random.uniform(0.5, 0.95) * (peak - low), begin, end)
    about += [idle_name, register.kind + (f"({register.seconds:.3f}s)" if register.seconds else "")]

    printing = _Printing(interval=interval)
    printed = _printed(random, whole, interval)
    lag = random.uniform(0, MOST_LAG_SECONDS)
    lines_of = read_register(course, register, printed - lag)
    readings = Lines(printed, printed, lines_of)
    part = read_register(course, Register(), printed - lag)[0]
    every = second_interval(interval)
    second_times = np.arange(random.uniform(0, every), whole, every)
    second_times = second_times + random.uniform(0, 0.002, len(second_times))
    second = (second_times, read_register(course, register, second_times))
    steps: list[tuple[float, float]] = []
    if random.random() < 0.2:
        for _ in range(random.integers(1, 6)):
            size = log_uniform(random, 0.001, 10.0) * random.choice([-1, 1])
            steps.append((random.uniform(1, whole), float(size)))
        about.append("clock")
    gross = course.gross(begin, end)

    def hides(times: Array) -> float:
        within = times[(times > begin) & (times < end)]
        if register.kind == "slow":
            within = np.unique(updated(within, register))
        return sum(_hidden_watts(one, register, within) for one in rhythms) * long

    is_faulty = register.kind in ("stuck", "clipped")
    ours, theirs = hides(printed - lag), hides(second_times)
    is_hidden = is_faulty or ours > HIDDEN_SHARE * gross
    averages = register.seconds if register.kind in ("forgets", "mean") else 0.0
    return World(
        setup=Setup(
            load,
            idle_seconds=idle_seconds,
            board=board,
            sensor=_Sensor(averages_seconds=averages, states_averaging=register.kind != "slow"),
            printing=printing,
        ),
        power=course,  # type: ignore[arg-type]
        lines=readings,
        begin=begin,
        end=end,
        register=register,
        second=second,
        steps=tuple(sorted(steps)),
        rhythms=tuple(rhythms),
        parts=np.stack([part * share for share in (0.6, 0.3)[: len(board.contained)]])
        if board.contained
        else np.empty((0, len(printed))),
        about=" ".join(filter(None, about)),
        is_hidden=is_hidden,
        is_hidden_in_both=is_hidden and (is_faulty or theirs > HIDDEN_SHARE * gross),
        is_net_hidden=is_net_hidden,
    )


def load_cells(load: Load, edges: Array) -> Array:
    """Return the mean power of each cell by a gated load."""
    marks = np.stack([load.starts, load.starts + load.seconds], axis=1).ravel()
    busy = np.stack([np.zeros(len(load.starts)), load.seconds], axis=1).ravel().cumsum()
    return np.diff(np.interp(edges, marks, busy)) / GRID_SECONDS * load.watts[0]


def _printed(random: Random, whole: float, interval: float) -> Array:
    count = int(whole / interval) + 2
    own = random.uniform(*READ_SECONDS)
    reading = own + random.uniform(-0.0005, 0.0005, count)
    if random.random() < 0.5:
        reading = random.uniform(*READ_SECONDS, count)
    steps = interval + reading
    steps[0] = random.uniform(0, steps[0])
    printed = np.cumsum(steps)
    printed = printed[printed < whole - 0.001]
    if random.random() < 0.1:
        printed = printed[random.random(len(printed)) >= random.uniform(0.01, 0.05)]
    return printed


def read_register(course: Course, register: Register, times: Array) -> Array:
    watts = []
    for number, rail in enumerate(course.board.rails):
        exact = course.register(number, register)(np.maximum(times, 0.0))
        watts.append(np.round(np.round(exact / rail.step_watts) * rail.step_watts, 3))
    return np.array(watts)


def _hidden_watts(rhythm: Rhythm, register: Register, times: Array) -> float:
    """Return the power that waves of a rhythm may hide in samples which show them as no cycle.

    A harmonic of which the samples see fewer than 1.5 cycles looks like slow change; its part of
    their mean is its amplitude times how alike the moments are at which they met it.
    """
    turns = rhythm.phases(times)
    period = float(np.diff(rhythm.ticks).mean())
    interval = (times[-1] - times[0]) / (len(times) - 1)
    hidden = 0.0
    for harmonic in range(1, HARMONICS + 1):
        per_sample = harmonic * interval / period
        if per_sample < 0.5:
            continue  # The samples follow it.
        if abs(per_sample - round(per_sample)) * (len(times) - 1) >= SLOWEST_CYCLES:
            continue
        alike = abs(np.mean(np.exp(2j * pi * harmonic * turns)))
        hidden += rhythm.amplitude(harmonic) * register.passes(harmonic / period) * float(alike)
    return hidden
