"""The sensor behind the readings of power, as the readings show it.

How long a sensor remembers, how often it is updated, and whether it is stuck: none of it is said by
tegrastats, and each makes an energy wrong that looks exact.
"""

import cmath
import math
import statistics
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise
from operator import mul

from ...parsers.rails import RailRule
from ...parsers.signals import GPU_LOAD, RAIL_POWER
from .blocks import WindowSlice, known_values
from .energy import FORGOTTEN, LAG_SECONDS, Curve, Timing, integrate, interval_ns
from .numerics import differences
from .report import Environment, Span

# docs/decisions/interval.md, "Sensor"
EDGE_SECONDS = 5.0
"""Readings so long before and after an edge show how the sensor follows a step."""
# Of those: the fewest, and the height of a step in standard deviations of the readings after it.
_EDGE_READINGS, _CLEAR = 4, 4.0
# Chance below which readings are not what a sensor that works would give.
_BY_CHANCE = 1e-6
# The same where a slower sensor is inferred, which withholds nothing.
_UNLIKELY = 1e-4
# Of ``update_seconds``: fewest runs of repeated readings, and repeats where most readings are new;
# the most lines in which a pace is looked for, which takes time, and steps of a cycle in all lines.
_FEWEST_RUNS, _FEWEST_REPEATS, _PACED_LINES, _FINER = 8, 10, 300, 16
# Lines per update, below which repeats are too few to tell a pace.
_FEWEST_LINES = 1.25
# Part of the changes that lies in a line's part of the cycle, with a tenth for lines that vary.
_CONFINED, _WIDER = 0.97, 1.1
# A rail that does not change for so long, in seconds and lines, may be frozen.
_FROZEN_SECONDS, _FROZEN_LINES = 2.0, 20
# A witness of the work is higher in it by this part at least.
_HIGHER = 0.1
# Of a clip: part of the readings that have the highest value, and part of the commonest idle level
# that the levels beside it have at least.
_CLIPPED_SHARE, _SCATTERED_SHARE = 0.1, 0.2
# Correlation of intervals and readings, in standard deviations of chance, fewest intervals, and the
# standard deviation of uneven ones over their mean; the reading time of tegrastats gives 0.04.
_TOGETHER, _FEWEST_INTERVALS, _UNEVEN = 5.0, 30, 0.08


def as_shown(
    timing: Timing,
    environment: Environment,
    curve: Curve | None,
    window: Span,
    update: float | None,
) -> Timing:
    """Return how readings relate to a window, with what they show of their sensor.

    A reading may be older by the seconds from one ``update`` to the next. The time constant is that
    of the readings (``shown_forgetting``) where neither the kernel's files nor a user state it.
    """
    if update is not None:
        timing = timing._replace(delay=timing.delay + update)
    if curve is None or environment.rail_sensors or environment.power_reading:
        return timing
    return timing._replace(forgetting=shown_forgetting(curve, window))


def shown_forgetting(curve: Curve, window: Span) -> float:
    """Return the time constant of a sensor, as a step at an edge of a window shows it.

    In the five seconds after an edge the readings go from the level before it to a new one. The
    area that is left of the step on this way, over its height, is the time constant. The end of the
    work is asked first, because power is quieter after it; its begin only if no step stands clear
    of the scatter there. A fifth of an interval is the least, because readings show no less.
    """
    interval = (interval_ns(curve.times_ns) or 0.0) / 1e9
    least = interval / FORGOTTEN
    for edge_ns in (window.end_ns, window.begin_ns):
        area = _area_after_step(curve, edge_ns)
        if area is not None:
            # A sharp step has a quarter of an interval on average, and half of the usual delay.
            return max(area - interval / 4 - LAG_SECONDS / 2, least)
    return least


def _area_after_step(curve: Curve, edge_ns: int) -> float | None:
    """Return the seconds that are left of a step at an edge, by trapezoids; ``None`` if unclear."""
    reach = round(EDGE_SECONDS * 1e9)
    edge = bisect_right(curve.times_ns, edge_ns)
    before = curve.watts[bisect_left(curve.times_ns, edge_ns - reach) : edge]
    stop = bisect_right(curve.times_ns, edge_ns + reach)
    times, watts = curve.times_ns[edge:stop], curve.watts[edge:stop]
    if min(len(before), len(watts)) < _EDGE_READINGS:
        return None
    # The last quarter has the new level.
    new = len(watts) - max(len(watts) // 4, 2)
    level = statistics.fmean(watts[new:])
    height = statistics.fmean(before) - level
    scatter = max(_CLEAR * statistics.pstdev(watts[new:]), statistics.pstdev(before))
    joules = integrate([edge_ns, *times], [before[-1], *watts], edge_ns, times[new])
    if joules is None or abs(height) <= scatter:
        return None
    area = (joules - level * (times[new] - edge_ns) / 1e9) / height
    # The level that counts as new would not be reached yet.
    return area if area < EDGE_SECONDS / FORGOTTEN else None


def update_seconds(times_ns: Sequence[int], rails: Sequence[Sequence[float]]) -> float | None:
    """Return how often a sensor that is slower than the lines is updated; ``None`` if it is not.

    Such a sensor changes all rails in the same lines, and repeats them in runs of nearly equal
    length. Readings of a quiet board repeat too, but at random: some of their runs are short, and
    the changes do not come evenly. Work that is switched on and off at a pace changes evenly, but
    to the same two levels again and again.

    Args:
        times_ns: shape (n,), increasing, lines of a window.
        rails: shape (rails, n), power in each line; an absent value (NaN) says nothing.
    """
    if any(math.isnan(watts) for rail in rails for watts in rail):
        return None
    changes = [i for i in range(1, len(times_ns)) if any(rail[i] != rail[i - 1] for rail in rails)]
    runs = differences(changes)
    values = [math.fsum(rail[i] for rail in rails) for i in changes]
    if len(runs) < _FEWEST_RUNS or _alternates(values):
        return None
    mean = statistics.fmean(runs)
    # One run in fifty may be cut short by a line that came late.
    shortest = sorted(runs)[len(runs) // 50]
    if shortest >= 2:
        # Random repeats of this mean length have a run of one line in one case of ``mean``.
        if len(runs) * (shortest - 1) * math.log1p(-1 / mean) > math.log(_UNLIKELY):
            return None
        # Two updates of equal value make a run of twice the length.
        single = [run for run in runs if run < 1.5 * shortest + 1]
        return statistics.fmean(single) * (interval_ns(times_ns) or 0.0) / 1e9
    repeats = changes[-1] - changes[0] - len(runs)
    if repeats < _FEWEST_REPEATS:
        return None
    return _pace(times_ns, changes)


def _alternates(values: Sequence[float]) -> bool:
    """Return whether values come back after two changes, nearer than they were apart."""
    apart = [abs(step) for step in differences(values)]
    back = [abs(later - value) for value, later in zip(values, values[2:], strict=False)]
    return statistics.median(back) < statistics.median(apart) / 2


def _pace(times_ns: Sequence[int], changes: Sequence[int]) -> float | None:
    """Return the seconds between updates of which some give the value before, if they keep a pace.

    A change shows in the first line after an update, so all changes lie in one part of its cycle,
    as long as a line. Paces of 1.25 to 2 lines are tried, as far apart as the first lines of a
    window tell them; all lines then tell the best of them better.
    """
    few = changes[: bisect_right(changes, changes[0] + _PACED_LINES)]
    lines = few[-1] - few[0]
    # Where each of the first lines has a new value, they show no pace.
    if len(few) < _FEWEST_RUNS or lines < len(few):
        return None
    quarters = [count / 4 for count in range(2 * lines, int(4 * lines / _FEWEST_LINES))]
    alike, cycles = _most_alike(times_ns, few, quarters)
    # So many were tried.
    if alike < -math.log(_UNLIKELY / len(quarters)):
        return None
    longer = (times_ns[changes[-1]] - times_ns[changes[0]]) / (times_ns[few[-1]] - times_ns[few[0]])
    near = [longer * (cycles + step / _FINER) for step in range(-_FINER, _FINER + 1)]
    _, cycles = _most_alike(times_ns, changes, near)
    update_ns = (times_ns[changes[-1]] - times_ns[changes[0]]) / cycles
    line = (interval_ns(times_ns) or 0.0) / update_ns
    phases = sorted((times_ns[i] - times_ns[changes[0]]) / update_ns % 1.0 for i in changes)
    if _most_within(phases, _WIDER * line) < _CONFINED * len(phases):
        return None
    return update_ns / 1e9


def _most_within(phases: Sequence[float], arc: float) -> int:
    """Return the most of some rising phases, in turns, that lie within an arc of the circle."""
    around = [*phases, *(phase + 1 for phase in phases)]
    return max(bisect_right(around, phase + arc) - i for i, phase in enumerate(phases))


def _most_alike(
    times_ns: Sequence[int], changes: Sequence[int], cycles: Iterable[float]
) -> tuple[float, float]:
    """Return how alike the phases of changes are in the best of some numbers of cycles, and that.

    It is n·R² of their sum less the share of all lines in it: lines may be regular in themselves.
    Random changes exceed x in one case of exp(x).
    """
    first, last = times_ns[changes[0]], times_ns[changes[-1]]
    share = len(changes) / (changes[-1] - changes[0] + 1)
    weights = [-share] * (changes[-1] - changes[0] + 1)
    for change in changes:
        weights[change - changes[0]] += 1
    parts = [(time - first) / (last - first) for time in times_ns[changes[0] : changes[-1] + 1]]
    best = (0.0, 0.0)
    for count in cycles:
        turn = 2j * math.pi * count
        waves = [cmath.exp(turn * part) for part in parts]
        alike = abs(sum(map(mul, weights, waves))) ** 2 / len(changes) / (1 - share)
        best = max(best, (alike, count))
    return best


def updates(samples: WindowSlice, rule: RailRule, seconds: float) -> WindowSlice:
    """Return the samples at which a sensor was updated that is updated each so many seconds.

    They are the lines in which a rail changed; an update with the value of the one before is the
    first line that is certainly later than it.
    """
    columns = RAIL_POWER.by_label(samples.columns)
    rails = [columns[name] for name in rule.total if name in columns]
    longest = seconds * 1e9 + (interval_ns(samples.times_ns) or 0.0) / 2
    positions: list[int] = []
    for i, time_ns in enumerate(samples.times_ns):
        is_late = not positions or time_ns - samples.times_ns[positions[-1]] > longest
        # NaN differs from itself, so a line without a rail stays.
        if is_late or any(rail[i] != rail[i - 1] for rail in rails):
            positions.append(i)
    return samples.only(positions)


def suspect_rail(
    samples: WindowSlice, rule: RailRule, window: Span, idle: Iterable[Span]
) -> str | None:
    """Return what is wrong with the readings of a rail of the total; ``None`` if nothing is seen.

    - All rails of the total have one value in the work and outside it, although a rail outside the
      total or the GPU load is higher in the work: they are stuck.
    - One rail does not change for two seconds and twenty lines or more, much longer than its other
      readings make likely, while a rail outside the total or the GPU load goes on: it is frozen.
    - A tenth of the readings of a rail are its highest value and few are just below, although the
      idle rail scatters over neighbouring levels: it is clipped.
    """
    columns = RAIL_POWER.by_label(samples.columns)
    inside = samples.inside(window.begin_ns, window.end_ns)
    outside = [samples.inside(phase.begin_ns, phase.end_ns) for phase in idle]
    if not outside:
        outside = [slice(0, inside.start), slice(inside.stop, None)]
    rails = {name: columns[name] for name in rule.total if name in columns}
    witnesses = [column for name, column in columns.items() if name not in rule.total]
    load = samples.columns.get(GPU_LOAD.column())
    if load is not None:
        witnesses.append(load)
    is_at_work = any(_is_higher(column, inside, outside) for column in witnesses)
    if is_at_work and all(_is_stuck(rail, inside, outside) for rail in rails.values()):
        return "its rails have one value with and without work"
    for name, rail in rails.items():
        others = witnesses + [other for label, other in rails.items() if label != name]
        if _is_frozen(samples.times_ns, rail, inside, others, rule.step_watts(name)):
            return f"{name} stood still while others moved"
        quiet = [known_values(rail[part]) for part in outside]
        if _is_clipped(known_values(rail[inside]), quiet, rule.step_watts(name)):
            return f"{name} never exceeds {max(known_values(rail[inside])):.4g} W, as if cut off"
    return None


def _is_stuck(rail: Sequence[float], inside: slice, outside: Sequence[slice]) -> bool:
    """Return whether a rail has the same single value in the window and outside it."""
    work, rest = set(known_values(rail[inside])), set[float]()
    for part in outside:
        rest |= set(known_values(rail[part]))
    return len(work) == 1 and work == rest


def _is_higher(column: Sequence[float], inside: slice, outside: Sequence[slice]) -> bool:
    """Return whether values are clearly higher in the window than outside it."""
    work, rest = known_values(column[inside]), list[float]()
    for part in outside:
        rest += known_values(column[part])
    if not work or not rest:
        return False
    least = max(_HIGHER * statistics.fmean(work), 2 * statistics.pstdev(rest))
    return statistics.fmean(work) - statistics.fmean(rest) > least


def _is_frozen(
    times_ns: Sequence[int],
    watts: Sequence[float],
    inside: slice,
    others: Sequence[Sequence[float]],
    step_watts: float,
) -> bool:
    """Return whether readings stand still for longer than is likely, while others go on.

    Only the longest time without a change counts, if it lies in the window at least in part. How
    likely it is follows from how often the other readings repeat. A rail that moves by one step at
    a time may rest between two thresholds for long, so it is not judged. Nor is one that is absent
    at times, and an absent value of another one is no motion.
    """
    if any(map(math.isnan, watts)):
        return False
    changes = [i for i in range(1, len(watts)) if watts[i] != watts[i - 1]]
    still = [0, *changes, len(watts)]
    lines, first = max((end - begin, begin) for begin, end in pairwise(still))
    last = first + lines - 1
    if last < inside.start or first >= inside.stop or lines < _FROZEN_LINES:
        return False
    rest = len(watts) - lines
    if times_ns[last] - times_ns[first] < _FROZEN_SECONDS * 1e9 or rest < _FROZEN_LINES:
        return False
    moves = [abs(watts[i] - watts[i - 1]) for i in changes]
    repeated = max(1 - len(changes) / rest, 0.0)
    if not moves or statistics.median(moves) < 1.5 * step_watts:
        return False
    if len(watts) * repeated**lines > _BY_CHANCE:
        return False
    return any(_goes_on(other, first, last) for other in others)


def _goes_on(values: Sequence[float], first: int, last: int) -> bool:
    """Return whether readings change between two lines, about as often as elsewhere."""
    moved = [a != b and not math.isnan(a + b) for a, b in pairwise(values)]
    during = statistics.fmean(moved[first:last])
    elsewhere = statistics.fmean(moved[:first] + moved[last:])
    return during > max(0.5, elsewhere / 2)


def _is_clipped(
    watts: Sequence[float], quiet: Sequence[Sequence[float]], step_watts: float
) -> bool:
    """Return whether the highest reading is that of a sensor at its limit."""
    if not watts or not quiet or not all(_scatters(readings, step_watts) for readings in quiet):
        return False
    highest = max(watts)
    at_top = _count_near(watts, highest, step_watts)
    below = _count_near(watts, highest - step_watts, step_watts)
    return at_top > _CLIPPED_SHARE * len(watts) and below < at_top / 4


def _scatters(watts: Sequence[float], step_watts: float) -> bool:
    """Return whether idle readings scatter by noise: to both sides of a level, without a gap."""
    if not watts:
        return False
    commonest = statistics.mode(watts)
    least = _SCATTERED_SHARE * _count_near(watts, commonest, step_watts)
    for level in (commonest - step_watts, commonest + step_watts):
        if _count_near(watts, level, step_watts) < least:
            return False
    return True


def _count_near(watts: Sequence[float], level: float, step_watts: float) -> int:
    """Return how many readings are a level, as a sensor of that step gives them."""
    return sum(abs(power - level) < step_watts / 2 for power in watts)


def follows_work(times_ns: Sequence[int], watts: Sequence[float]) -> bool:
    """Return whether long intervals between readings and high or low readings belong together.

    Then lines wait for the work, and the mean of what was read is not the mean of what was drawn.
    Changes of the interval are compared with the readings, by value and by rank. By value alone, a
    load that makes lines slower for a while would count, which trapezoids follow; by rank alone,
    the small differences by which a line meets another moment of the work, if some lines are lost.
    If all intervals are nearly equal, nothing hides between them.
    """
    intervals = differences(times_ns)
    if len(intervals) < _FEWEST_INTERVALS:
        return False
    if statistics.pstdev(intervals) < _UNEVEN * statistics.fmean(intervals):
        return False
    changes = differences(intervals)
    limit = _TOGETHER / math.sqrt(len(changes))
    for readings in (watts[:-2], watts[1:-1], watts[2:]):
        if min(len(set(changes)), len(set(readings))) < 2:
            continue
        by_value = statistics.correlation(changes, readings)
        by_rank = statistics.correlation(_ranks(changes), _ranks(readings))
        if min(abs(by_value), abs(by_rank)) > limit:
            return True
    return False


def _ranks(values: Sequence[float]) -> list[float]:
    """Return the rank of each value; equal ones have the mean of their ranks."""
    rising = sorted(values)
    ranks = []
    for value in values:
        ranks.append((bisect_left(rising, value) + bisect_right(rising, value) - 1) / 2)
    return ranks
