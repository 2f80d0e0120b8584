"""Lock-in: the energy of a piece of work that is far shorter than the sensor's interval.

The piece runs back to back in the on-steps of a pattern, and nothing runs in the off-steps. Each
step is longer than the sensor's interval. Its power is the mean of its clean readings: those that
certainly describe the inside of the step, given the delay and the averaging of the sensor. Both are
fitted at the edges of the pattern. The power of the work is the difference between each step and
the line through its two neighbours. So a level, a drift and heat of a long time constant cancel,
and idle power that wanders slowly cancels in part. Joules per piece are that power times the time
of one piece: the mean energy in saturated operation, not that of an isolated piece.

Length of the steps: a pattern with steps of h seconds sees the noise of the readings at 1/2h.
Wander of variance v and memory m has the density 2vm/(1 + (πm/h)²) there, which grows with h.
Readings of spacing i and variance q have the density qi·h/(h - s), where s, delay and averaging, is
lost at each edge. For a sensor of 0.103 s and 0.4 W and a wander of 0.15 W and 0.8 s, the sum is
least at h = s + 1.5i; with an averaging of 0.5 s at s + 2.75i, and of 1 s at s + 3.5i. It is flat:
steps of s + 2i to s + 6i give intervals that are wider than the least by 20, 4 and 1 %, and a power
that needs some milliseconds to rise has less weight in them. Heat of a time constant τ and a gain g
changes the difference by less than gh/4τ, which is below 0.1 %. Lengths are drawn, so that neither
the sampling nor a rhythm of the board follows the pattern.
"""

import statistics
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, pairwise
from math import fsum, hypot, isnan, pi, sin, sqrt
from operator import mul, sub
from random import Random
from typing import NamedTuple

from ...parsers.rails import RailRule
from ...parsers.signals import RAIL_POWER
from .blocks import WindowSlice, at_positions
from .energy import LAG_SECONDS, total
from .numerics import differences, dot, student_95
from .report import Figure, Flag, LockInProblem, LockInReport, Span
from .trace import OnStep, Pattern, RunTrace
from .uncertainty import quantisation_watts

SHORTEST_STEP, LONGEST_STEP = 2.0, 6.0
# The grid of the fit; a moment is a mean of one grid step, because lines are late by some.
GRID_NS = 25_000_000
LONGEST_LAG_SECONDS = 1.0
# Five minutes show the delay well enough. More would take memory and time from the daemon.
FITTED_READINGS = 4000
AVERAGINGS = tuple(0.05 * i for i in range(21))
# Two and a half times the 95 % point of chi-squared with two degrees of freedom (5.99), since
# differences of rounded readings are correlated.
LIKELY = 15.0
BLOCKS, STEPS_PER_BLOCK, FEWEST_BLOCKS = 12, 8, 5
MOST_TREND = 0.1
UNEVEN_SHARE = 0.05
# Flags of steady work, which an on/off pattern is not; and flags that leave a figure standing.
_NOT_OF_LOCK_IN = frozenset({"aliased", "not_steady", "insufficient_samples", "baseline_drift"})
_REMARKS = frozenset({"throttled", "dla_not_used", "fallback", "simulated"})


def pattern(seconds: float, interval: float, averaging: float, seed: int) -> tuple[float, ...]:
    """Return the lengths of off- and on-steps in turn, in seconds; the first and last are off.

    Args:
        seconds: Length of the measurement; the pattern fills it without the last incomplete pair.
        interval: Seconds between readings.
        averaging: Seconds over which the sensor averages.
        seed: Seed of the random lengths.
    """
    random = Random(seed)
    lost = averaging + LAG_SECONDS
    short, long = lost + SHORTEST_STEP * interval, lost + LONGEST_STEP * interval
    steps = [random.uniform(short, long)]
    total = steps[0]
    while True:
        pair = [random.uniform(short, long), random.uniform(short, long)]
        total += sum(pair)
        if total > seconds:
            return tuple(round(step, 4) for step in steps)
        steps += pair


class RailReadings(NamedTuple):
    """Power of one rail at each arrival, and the step to which its sensor rounds."""

    watts: Sequence[float]
    step_watts: float


class _Lag(NamedTuple):
    """Delay and averaging, and the time before an arrival that a reading may describe, in ns."""

    lag_ns: int
    averaging_ns: int
    oldest_ns: int
    newest_ns: int


class _Contrast(NamedTuple):
    """A quantity in on-steps less that in off-steps, half its 95 % interval, and their number."""

    watts: float
    half: float
    steps: int


class _Step(NamedTuple):
    """A step and its clean readings."""

    is_on: bool
    middle_ns: float
    watts: Sequence[float]


def lock_in(
    times_ns: Sequence[int],
    rails: Sequence[RailReadings],
    on_steps: Sequence[OnStep],
    averaging_seconds: float | None = None,
) -> LockInReport | None:
    """Return the energy of a piece; ``None`` without readings on both sides of the edges.

    Its problems are reasons not to use the figure: too few steps; pieces longer than the sensor's
    interval; a pattern that follows time; delay and averaging for which the steps are too short; a
    delay at the limit of the fit; power that changes within the steps.

    Args:
        times_ns: Arrivals of the readings, increasing.
        rails: The rails that add up to the power.
        on_steps: In order of time, apart from each other by off-steps.
        averaging_seconds: Known averaging of the sensor, or ``None`` to fit it.
    """
    watts = total(times_ns, [rail.watts for rail in rails]).watts
    if len(watts) < 3 or len(on_steps) < 3:
        return None
    some = times_ns[:FITTED_READINGS]
    lag, is_possible = _fit(some, watts[: len(some)], _fitted(on_steps, some), averaging_seconds)
    clean = _clean_readings(times_ns, on_steps, lag)
    steps = []
    for number, positions in enumerate(clean):
        middle_ns = _mean(times_ns[positions]) or 0.0
        steps.append(_Step(_is_on(number), middle_ns, watts[positions]))
    added = _contrast(steps, _mean)
    if added is None:
        return None
    half = hypot(added.half, *_rounding_half_widths(rails, clean))
    work_ns = pieces = 0
    for on_step in on_steps:
        work_ns += on_step.end_ns - on_step.begin_ns
        pieces += on_step.pieces
    piece = work_ns / 1e9 / pieces
    interval = (times_ns[-1] - times_ns[0]) / (len(times_ns) - 1) / 1e9
    problems: dict[LockInProblem, bool] = {
        "few_steps": added.steps < FEWEST_BLOCKS * STEPS_PER_BLOCK,
        "long_pieces": piece > interval,
        "trend": abs(_trend(on_steps)) > MOST_TREND,
        "not_fitted": not is_possible,
        "lag_at_limit": lag.lag_ns >= LONGEST_LAG_SECONDS * 1e9 and added.watts > half,
        "uneven_power": _is_uneven(steps, added.watts),
    }
    on_watts: list[float] = []
    for step in steps[::2]:
        on_watts += step.watts
    return LockInReport(
        seconds=(on_steps[-1].end_ns - on_steps[0].begin_ns) / 1e9,
        joules_per_piece=Figure.around(added.watts * piece, half * piece),
        added_watts=Figure.around(added.watts, half),
        on_watts=statistics.fmean(on_watts),
        piece_seconds=piece,
        contrasts=added.steps,
        lag_seconds=lag.lag_ns / 1e9,
        averaging_seconds=lag.averaging_ns / 1e9,
        problems=tuple(name for name, is_true in problems.items() if is_true),
    )


def _is_on(number: int) -> bool:
    """Return whether a span between two edges is an on-step: they begin with one."""
    return number % 2 == 0


def _edges(on_steps: Sequence[OnStep]) -> list[int]:
    """Return begin and end of each on-step; between two on-steps is an off-step."""
    edges = []
    for step in on_steps:
        edges += [step.begin_ns, step.end_ns]
    return edges


def _fitted(on_steps: Sequence[OnStep], times_ns: Sequence[int]) -> Sequence[OnStep]:
    """Return the on-steps by which the delay is fitted: those of some readings, if many enough."""
    within = [step for step in on_steps if step.end_ns <= times_ns[-1]]
    if len(within) < FEWEST_BLOCKS * STEPS_PER_BLOCK:
        return on_steps
    return within


def _clean_readings(times_ns: Sequence[int], on_steps: Sequence[OnStep], lag: _Lag) -> list[slice]:
    """Return the positions of the clean readings of each step, on- and off-steps in turn."""
    clean = []
    for number, edges in enumerate(pairwise(_edges(on_steps))):
        pieces = 0
        if _is_on(number):
            pieces = on_steps[number // 2].pieces
        clean.append(_clean(times_ns, edges, lag, pieces))
    return clean


def _rounding_half_widths(rails: Sequence[RailReadings], clean: Sequence[slice]) -> list[float]:
    """Return half the 95 % interval by rounding, of each rail in the on- and in the off-steps."""
    halves = []
    for rail in rails:
        for positions in (clean[::2], clean[1::2]):
            watts: list[float] = []
            for position in positions:
                watts += rail.watts[position]
            if watts:
                halves.append(quantisation_watts(watts, rail.step_watts))
    return halves


def _is_uneven(steps: Sequence[_Step], added_watts: float) -> bool:
    """Return whether power changes within the steps, by more than its error and a small share."""
    rise = _contrast(steps, _rise)
    if rise is None:
        return False
    return abs(rise.watts) > 1.3 * rise.half + UNEVEN_SHARE * added_watts


def lock_in_report(
    plan: Pattern,
    trace: RunTrace,
    window: Span,
    samples: WindowSlice,
    rule: RailRule | None,
    averaging_seconds: float,
    flags: Iterable[Flag],
) -> LockInReport:
    """Return the energy of a piece of a run that followed a pattern, or why it is withheld."""
    result = LockInReport(seconds=plan.seconds, seed=plan.seed)
    if rule is None or not rule.total:
        reason = "the rails that add up to the module are not known"
        return result.model_copy(update={"reason": reason})
    columns = RAIL_POWER.by_label(samples.columns)
    powers = [columns.get(name, ()) for name in rule.total]
    whole = _whole_readings(powers)
    rails = []
    for name, watts in zip(rule.total, powers, strict=True):
        rails.append(RailReadings(at_positions(watts, whole), rule.step_watts(name)))
    shortest_off_ns = min(plan.steps_seconds[::2], default=0.0) * 1e9
    steps = []
    for step in trace.on_steps or on_steps(*trace.completed(window), shortest_off_ns):
        steps.append(step._replace(pieces=step.pieces * plan.repeats))
    times_ns = at_positions(samples.times_ns, whole)
    measured = lock_in(times_ns, rails, steps, averaging_seconds or None)
    if measured is None:
        return result.model_copy(update={"reason": "no readings within its steps"})
    problems: list[LockInProblem | Flag] = [*measured.problems]
    for flag in flags:
        if flag not in _NOT_OF_LOCK_IN:
            problems.append(flag)
    changes: dict[str, object] = {
        "seconds": plan.seconds,
        "seed": plan.seed,
        "problems": tuple(problems),
    }
    if set(problems) - _REMARKS:
        changes["joules_per_piece"] = None
    return measured.model_copy(update=changes)


def _whole_readings(rails: Sequence[Sequence[float]]) -> list[int]:
    """Return the positions at which each rail has a reading; none if a rail has no column."""
    positions = []
    for position, watts in enumerate(zip(*rails, strict=False)):
        if not any(map(isnan, watts)):
            positions.append(position)
    return positions


def on_steps(
    start_ns: Sequence[int], latency_ns: Sequence[int], shortest_off_ns: float
) -> list[OnStep]:
    """Return the on-steps of pieces, which are apart by at least half the shortest off-step."""
    steps: list[OnStep] = []
    for start, latency in zip(start_ns, latency_ns, strict=True):
        end = start + latency
        if steps and start - steps[-1].end_ns < shortest_off_ns / 2:
            last = steps[-1]
            steps[-1] = OnStep(last.begin_ns, max(last.end_ns, end), last.pieces + 1)
        else:
            steps.append(OnStep(start, end, 1))
    return steps


def _fit(
    times_ns: Sequence[int],
    watts: Sequence[float],
    on_steps: Sequence[OnStep],
    averaging_seconds: float | None,
) -> tuple[_Lag, bool]:
    """Return delay and averaging, and whether the readings allow them.

    The differences of neighbouring readings are compared with those of the on-time that a reading
    would describe. All delays and averagings that explain nearly as much as the best are likely.
    """
    on_time = _OnTime(times_ns, on_steps)
    averagings = AVERAGINGS
    if averaging_seconds is not None:
        averagings = (averaging_seconds,)
    widths = [max(round(averaging * 1e9), GRID_NS) for averaging in averagings]
    explained = _explained(watts, on_time, widths)
    best = max(explained, key=explained.__getitem__)
    moves = differences(watts)
    noise = (dot(moves, moves) - explained[best]) / len(moves)
    likely = [lag for lag in explained if explained[lag] >= explained[best] - LIKELY * noise]
    usual = [lag for lag in likely if lag[0] <= LAG_SECONDS * 1e9]
    lag = _lag(best, likely, usual, is_known=averaging_seconds is not None)
    clean = []
    for edges in pairwise(_edges(on_steps)):
        positions = _clean(times_ns, edges, lag)
        if positions.stop > positions.start:
            clean.append(positions)
    if len(clean) >= (2 * len(on_steps) - 1) / 2:
        return lag, True
    # The readings do not show it well enough: the sensor is as it was assumed.
    assumed = widths[0]
    if assumed == GRID_NS:
        assumed = 0
    lag = _Lag(0, assumed, round(LAG_SECONDS * 1e9) + assumed, 0)
    return lag, any(width == widths[0] for _, width in usual)


class _OnTime:
    """The on-time of a pattern until the arrival of each reading, less a shift."""

    def __init__(self, times_ns: Sequence[int], on_steps: Sequence[OnStep]) -> None:
        self._times_ns = times_ns
        self._edges = _edges(on_steps)
        lengths = differences(self._edges)
        lengths[1::2] = [0] * (len(lengths) // 2)
        self._until = [0, *accumulate(lengths, initial=0)]
        # Each averaging is tried with each delay, so the same shifts come again.
        self._known: dict[int, list[int]] = {}

    def before(self, shift_ns: int) -> list[int]:
        """Return the on-time until so long before each arrival."""
        if shift_ns not in self._known:
            on_time = []
            for time in self._times_ns:
                i = bisect_right(self._edges, time - shift_ns)
                in_step = (time - shift_ns - self._edges[i - 1]) * (i % 2)
                on_time.append(self._until[i] + in_step)
            self._known[shift_ns] = on_time
        return self._known[shift_ns]


def _explained(
    watts: Sequence[float], on_time: _OnTime, widths: Sequence[int]
) -> dict[tuple[int, int], float]:
    """Return by delay and averaging how much of the readings' squared differences they explain."""
    moves = differences(watts)
    explained: dict[tuple[int, int], float] = {}
    for lag in range(0, round(LONGEST_LAG_SECONDS * 1e9) + 1, GRID_NS):
        for width in widths:
            shares = [*map(sub, on_time.before(lag), on_time.before(lag + width))]
            steps = [*map(sub, shares[1:], shares)]
            common = max(fsum(map(mul, steps, moves)), 0.0)
            explained[lag, width] = common * common / max(sum(map(mul, steps, steps)), 1)
    return explained


def _lag(
    best: tuple[int, int],
    likely: Sequence[tuple[int, int]],
    usual: Sequence[tuple[int, int]],
    *,
    is_known: bool,
) -> _Lag:
    """Return the best delay and averaging, and what a reading may describe by all likely ones.

    If a delay as boards have it is likely, longer ones do not count.
    """
    lag, averaging = best
    oldest, newest = max(map(sum, likely)) + GRID_NS, min(likely)[0] - GRID_NS
    if usual:
        width = max(width for _, width in usual)
        oldest = round(LAG_SECONDS * 1e9)
        if width != GRID_NS:
            oldest += width
        longest = max(map(sum, usual))
        if not is_known:
            longest += GRID_NS
        oldest, newest = max(oldest, longest), 0
    if averaging == GRID_NS:
        # The reading is a moment, in the middle of the grid's step.
        lag, averaging = lag + GRID_NS // 2, 0
    return _Lag(lag, averaging, oldest, max(newest, 0))


def _clean(times_ns: Sequence[int], edges: tuple[int, int], lag: _Lag, pieces: int = 0) -> slice:
    """Return the positions of the readings that describe the inside of a step only.

    Power may follow a rhythm within each piece. So they are of a whole number of pieces.
    """
    begin, end = edges[0] + lag.oldest_ns, edges[1] + lag.newest_ns
    if pieces and end - begin > (piece := (edges[1] - edges[0]) / pieces):
        begin += round((end - begin) % piece)
    first = bisect_left(times_ns, begin)
    return slice(first, max(bisect_right(times_ns, end), first))


def _contrast(
    steps: Sequence[_Step], of: Callable[[Sequence[float]], float | None]
) -> _Contrast | None:
    """Return a quantity in on-steps less that in off-steps; ``None`` for too few steps.

    Each step is compared with the line through its neighbours, and counts by its readings. Sums
    of successive comparisons, which overlap, give the variance.
    """
    values: list[float] = []
    weights: list[int] = []
    for before, step, after in zip(steps, steps[1:], steps[2:], strict=False):
        a, b, c = of(before.watts), of(step.watts), of(after.watts)
        if a is None or b is None or c is None:
            continue
        share = (step.middle_ns - before.middle_ns) / (after.middle_ns - before.middle_ns)
        value = b - a - (c - a) * share
        values.append(value if step.is_on else -value)
        weights.append(len(step.watts))
    blocks = min(BLOCKS, len(values) // STEPS_PER_BLOCK)
    if blocks < 2:
        return None
    total = sum(weights)
    mean = dot(values, weights) / total
    moved = [(value - mean) * weight for value, weight in zip(values, weights, strict=True)]
    half = sqrt(_tapered_variance(moved, blocks)) / total * student_95(1.4 * blocks)
    return _Contrast(mean, half, len(values))


def _tapered_variance(moved: Sequence[float], blocks: int) -> float:
    """Return the variance of a sum, by the sums of overlapping blocks of its parts."""
    size = len(moved) // blocks
    # The taper keeps the ends of a block out of its sum: what differs there cancels in the whole.
    taper = [sin(pi * (i + 0.5) / size) ** 2 for i in range(size)]
    sums = []
    for begin in range(0, len(moved) - size + 1, max(size // 4, 1)):
        sums.append(dot(taper, moved[begin : begin + size]))
    # A block has a part of the mean in it, and the tapered sum a part of the block's variance.
    shown = dot(taper, taper) * (1 - 2 / (3 * blocks))
    return dot(sums, sums) / len(sums) * len(moved) / shown


def _mean(values: Sequence[float]) -> float | None:
    """Return the mean; ``None`` without a value."""
    if not values:
        return None
    return statistics.fmean(values)


def _rise(watts: Sequence[float]) -> float | None:
    """Return the mean of the second half of the readings less that of the first half."""
    half = len(watts) // 2
    if half == 0:
        return None
    return statistics.fmean(watts[-half:]) - statistics.fmean(watts[:half])


def _trend(on_steps: Sequence[OnStep]) -> float:
    """Return the correlation of the pattern with time."""
    begin, end = on_steps[0].begin_ns, on_steps[-1].end_ns
    length = end - begin
    lengths, middles = [], []
    for step in on_steps:
        first, last = (step.begin_ns - begin) / length, (step.end_ns - begin) / length
        lengths.append(last - first)
        middles.append((first + last) / 2 - 0.5)
    duty = fsum(lengths)
    moment = dot(lengths, middles)
    return moment / sqrt(max(duty * (1 - duty), 1e-12) / 12)
