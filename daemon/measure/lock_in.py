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
from functools import cache
from itertools import accumulate, chain, pairwise
from math import fsum, hypot, isnan, pi, sin, sqrt
from operator import mul, sub
from random import Random
from typing import NamedTuple

from ...parsers.rails import RailRule
from ...parsers.signals import RAIL_POWER
from .blocks import WindowSlice
from .energy import LAG_SECONDS
from .numerics import student_95
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
# Twice the 95 % point of chi-squared with two degrees of freedom, since differences of rounded
# readings are correlated.
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
    short, long = (lost + count * interval for count in (SHORTEST_STEP, LONGEST_STEP))
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
    edges = [*pairwise(chain.from_iterable((one.begin_ns, one.end_ns) for one in on_steps))]
    watts = [fsum(each) for each in zip(*(rail.watts for rail in rails), strict=True)]
    if len(watts) < 3 or len(on_steps) < 3:
        return None
    some = times_ns[:FITTED_READINGS]
    within = [one for one in on_steps if one.end_ns <= some[-1]]
    fitted = within if len(within) >= FEWEST_BLOCKS * STEPS_PER_BLOCK else on_steps
    lag, is_possible = _fit(some, watts[: len(some)], fitted, averaging_seconds)
    clean = [
        _clean(times_ns, each, lag, 0 if i % 2 else on_steps[i // 2].pieces)
        for i, each in enumerate(edges)
    ]
    steps = [
        _Step(number % 2 == 0, _mean(times_ns[one]) or 0.0, watts[one])
        for number, one in enumerate(clean)
    ]
    found = _contrast(steps, _mean)
    if found is None:
        return None
    added, spread, count = found
    rounding = [
        quantisation_watts(readings, rail.step_watts)
        for rail in rails
        for first in (0, 1)
        if (readings := [*chain.from_iterable(rail.watts[s] for s in clean[first::2])])
    ]
    half = hypot(spread, *rounding)
    seconds = fsum(one.end_ns - one.begin_ns for one in on_steps) / 1e9
    piece = seconds / sum(one.pieces for one in on_steps)
    problems: list[LockInProblem] = []
    if count < FEWEST_BLOCKS * STEPS_PER_BLOCK:
        problems.append("few_steps")
    if piece > (times_ns[-1] - times_ns[0]) / (len(times_ns) - 1) / 1e9:
        problems.append("long_pieces")
    if abs(_trend(on_steps)) > MOST_TREND:
        problems.append("trend")
    if not is_possible:
        problems.append("not_fitted")
    if lag.lag_ns >= LONGEST_LAG_SECONDS * 1e9 and added > half:
        problems.append("lag_at_limit")
    rise = _contrast(steps, _rise)
    if rise is not None and abs(rise[0]) > 1.3 * rise[1] + UNEVEN_SHARE * added:
        problems.append("uneven_power")
    on = [*chain.from_iterable(step.watts for step in steps if step.is_on)]
    return LockInReport(
        seconds=(on_steps[-1].end_ns - on_steps[0].begin_ns) / 1e9,
        joules_per_piece=Figure.around(added * piece, half * piece),
        added_watts=Figure.around(added, half),
        on_watts=statistics.fmean(on),
        piece_seconds=piece,
        contrasts=count,
        lag_seconds=lag.lag_ns / 1e9,
        averaging_seconds=lag.averaging_ns / 1e9,
        problems=tuple(problems),
    )


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
    rails = [(columns.get(name, ()), rule.step_watts(name)) for name in rule.total]
    whole = [
        i
        for i in range(len(samples.times_ns))
        if all(len(watts) > i and not isnan(watts[i]) for watts, _ in rails)
    ]
    shortest_off_ns = min(plan.steps_seconds[::2], default=0.0) * 1e9
    steps = trace.on_steps or on_steps(*trace.completed(window), shortest_off_ns)
    found = lock_in(
        [samples.times_ns[i] for i in whole],
        [RailReadings([watts[i] for i in whole], step) for watts, step in rails],
        [one._replace(pieces=one.pieces * plan.repeats) for one in steps],
        averaging_seconds or None,
    )
    if found is None:
        return result.model_copy(update={"reason": "no readings within its steps"})
    problems = (*found.problems, *(flag for flag in flags if flag not in _NOT_OF_LOCK_IN))
    changes: dict[str, object] = {"seconds": plan.seconds, "seed": plan.seed, "problems": problems}
    if set(problems) - _REMARKS:
        changes["joules_per_piece"] = None
    return found.model_copy(update=changes)


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
    edges = [*chain.from_iterable((one.begin_ns, one.end_ns) for one in on_steps)]
    lengths = [(b - a) * (i % 2 == 0) for i, (a, b) in enumerate(pairwise(edges))]
    until = [0, *accumulate(lengths, initial=0)]

    @cache
    def on_time(shift_ns: int) -> list[int]:
        """Return the on-time until so long before each arrival."""
        result = []
        for time in times_ns:
            i = bisect_right(edges, time - shift_ns)
            result.append(until[i] + (time - shift_ns - edges[i - 1]) * (i % 2))
        return result

    known = averaging_seconds is not None
    averagings = (averaging_seconds,) if averaging_seconds is not None else AVERAGINGS
    widths = [max(round(each * 1e9), GRID_NS) for each in averagings]
    moves = [*map(sub, watts[1:], watts)]
    explained: dict[tuple[int, int], float] = {}
    for lag in range(0, round(LONGEST_LAG_SECONDS * 1e9) + 1, GRID_NS):
        for width in widths:
            shares = [*map(sub, on_time(lag), on_time(lag + width))]
            steps = [*map(sub, shares[1:], shares)]
            common = max(fsum(map(mul, steps, moves)), 0.0)
            explained[lag, width] = common * common / max(sum(map(mul, steps, steps)), 1)
    best = max(explained, key=explained.__getitem__)
    noise = (fsum(map(mul, moves, moves)) - explained[best]) / len(moves)
    likely = [one for one in explained if explained[one] >= explained[best] - LIKELY * noise]
    usual = [one for one in likely if one[0] <= LAG_SECONDS * 1e9]
    oldest, newest = max(map(sum, likely)) + GRID_NS, min(likely)[0] - GRID_NS
    if usual:
        width = max(width for _, width in usual)
        oldest = round(LAG_SECONDS * 1e9) + (0 if width == GRID_NS else width)
        oldest, newest = max(oldest, max(map(sum, usual)) + GRID_NS * (not known)), 0
    instant = best[1] == GRID_NS
    found = _Lag(
        best[0] + GRID_NS // 2 * instant, 0 if instant else best[1], oldest, max(newest, 0)
    )
    clean = [_clean(times_ns, edge, found) for edge in pairwise(edges)]
    if sum(one.stop > one.start for one in clean) >= len(clean) / 2:
        return found, True
    # The readings do not show it well enough: the sensor is as it was assumed.
    assumed = 0 if widths[0] == GRID_NS else widths[0]
    found = _Lag(0, assumed, round(LAG_SECONDS * 1e9) + assumed, 0)
    return found, any(width == widths[0] for _, width in usual)


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
) -> tuple[float, float, int] | None:
    """Return a quantity in on-steps less that in off-steps, half its 95 % interval, and the count.

    Each step is compared with the line through its neighbours, and counts by its readings. Sums
    of successive comparisons, which overlap, give the variance.
    """
    found = [(of(one.watts), one) for one in steps]
    rows: list[tuple[float, int]] = []
    for (a, before), (b, step), (c, after) in zip(found, found[1:], found[2:], strict=False):
        if a is None or b is None or c is None:
            continue
        share = (step.middle_ns - before.middle_ns) / (after.middle_ns - before.middle_ns)
        value = b - a - (c - a) * share
        rows.append((value if step.is_on else -value, len(step.watts)))
    blocks = min(BLOCKS, len(rows) // STEPS_PER_BLOCK)
    if blocks < 2:
        return None
    total = sum(weight for _, weight in rows)
    mean = fsum(value * weight for value, weight in rows) / total
    size = len(rows) // blocks
    # The taper keeps the ends of a block out of its sum: what differs there cancels in the whole.
    taper = [sin(pi * (i + 0.5) / size) ** 2 for i in range(size)]
    moved = [(value - mean) * weight for value, weight in rows]
    sums = [
        fsum(map(mul, taper, moved[i : i + size]))
        for i in range(0, len(moved) - size + 1, max(size // 4, 1))
    ]
    # A block has a part of the mean in it, and the tapered sum a part of the block's variance.
    kept = fsum(map(mul, taper, taper)) * (1 - 2 / (3 * blocks))
    variance = fsum(map(mul, sums, sums)) / len(sums) * len(rows) / kept
    half = sqrt(variance) / total * student_95(1.4 * blocks)
    return mean, half, len(rows)


def _mean(watts: Sequence[float]) -> float | None:
    return statistics.fmean(watts) if watts else None


def _rise(watts: Sequence[float]) -> float | None:
    """Return the mean of the second half of the readings less that of the first half."""
    half = len(watts) // 2
    return statistics.fmean(watts[-half:]) - statistics.fmean(watts[:half]) if half else None


def _trend(on_steps: Sequence[OnStep]) -> float:
    """Return the correlation of the pattern with time."""
    begin, end = on_steps[0].begin_ns, on_steps[-1].end_ns
    length = end - begin
    spans = [((one.begin_ns - begin) / length, (one.end_ns - begin) / length) for one in on_steps]
    duty = fsum(b - a for a, b in spans)
    moment = fsum((b - a) * ((a + b) / 2 - 0.5) for a, b in spans)
    return moment / sqrt(max(duty * (1 - duty), 1e-12) / 12)
