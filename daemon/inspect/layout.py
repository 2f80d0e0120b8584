"""Where the boxes of a directed graph go: in rows, every edge downwards.

It is the layered drawing of Sugiyama, Tagawa and Toda (1981): rows by the longest way, long edges
cut in pieces that take part in each row, order by the mean place of the neighbours, and places by
least squares that keep the order.
"""

from bisect import bisect_right, insort
from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import pairwise

Point = tuple[float, float]

_ORDER_SWEEPS = 8
_PLACE_SWEEPS = 24
# How hard an edge pulls its ends under each other: between two boxes, at one, and inside it, where
# a bend is ugliest.
_STRAIGHTNESS = (4.0, 1.0, 8.0)


@dataclass(frozen=True)
class Spacing:
    """Lengths in one unit of any kind.

    Attributes:
        box: Width of a box.
        gap: Between two boxes of a row, at least.
        lane: Width of an edge that passes by.
        row: From one row to the next.
    """

    box: float = 220.0
    gap: float = 24.0
    lane: float = 14.0
    row: float = 44.0


@dataclass(frozen=True)
class Layout:
    """Where everything is.

    Attributes:
        centres: Of each box, in the order of the boxes.
        routes: Of each edge, the points that it passes, in the order of the edges.
        width: Of the whole.
        height: Of the whole, from the centre of the first row to that of the last.
    """

    centres: tuple[Point, ...]
    routes: tuple[tuple[Point, ...], ...]
    width: float
    height: float


def lay_out(
    count: int,
    edges: Sequence[tuple[int, int]],
    spacing: Spacing | None = None,
    lanes: Sequence[Hashable] | None = None,
) -> Layout:
    """Place boxes.

    Args:
        count: How many boxes there are.
        edges: From a box to a later one.
        spacing: How far apart.
        lanes: Of each edge, what it carries: edges that leave a box with the same go together as
            long as they can.

    Raises:
        ValueError: An edge does not lead to a later box.

    >>> lay_out(2, [(0, 1)], Spacing(10.0, 1.0, 1.0, 5.0)).centres
    ((5.0, 0.0), (5.0, 5.0))
    """
    if any(not 0 <= source < target < count for source, target in edges):
        raise ValueError("an edge does not lead to a later box")
    spacing = spacing or Spacing()
    rows = _rows(count, edges)
    chains = _chains(rows, edges, lanes or range(len(edges)))
    levels, upper, lower = _levels(rows, chains)
    _put_in_order(levels, upper, lower)
    widths = [spacing.box] * count + [spacing.lane] * (len(rows) - count)
    places = _places(levels, upper, lower, widths, count, spacing.gap)
    left = min((places[at] - widths[at] / 2 for at in range(len(places))), default=0.0)
    right = max((places[at] + widths[at] / 2 for at in range(len(places))), default=0.0)

    def point(at: int) -> Point:
        return (round(places[at] - left, 1), rows[at] * spacing.row)

    return Layout(
        centres=tuple(point(at) for at in range(count)),
        routes=tuple(tuple(point(at) for at in chain) for chain in chains),
        width=round(right - left, 1),
        height=max(rows, default=0) * spacing.row,
    )


def _rows(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """Return the row of each box: one below the last of those before it."""
    before: defaultdict[int, list[int]] = defaultdict(list)
    after: defaultdict[int, list[int]] = defaultdict(list)
    for source, target in edges:
        before[target].append(source)
        after[source].append(target)
    rows = [0] * count
    for box in range(count):
        rows[box] = max((rows[one] + 1 for one in before[box]), default=0)
    for box in range(count):
        # What nothing leads to stands where it is needed first.
        if not before[box] and after[box]:
            rows[box] = min(rows[one] for one in after[box]) - 1
    return rows


def _chains(
    rows: list[int], edges: Sequence[tuple[int, int]], lanes: Sequence[Hashable]
) -> list[list[int]]:
    """Cut each edge at every row that it passes; the pieces get numbers after the boxes."""
    chains = []
    cut: dict[tuple[int, Hashable], list[int]] = {}
    for (source, target), lane in zip(edges, lanes, strict=True):
        pieces = cut.setdefault((source, lane), [])
        between = rows[target] - rows[source] - 1
        while len(pieces) < between:
            pieces.append(len(rows))
            rows.append(rows[source] + len(pieces))
        chains.append([source, *pieces[:between], target])
    return chains


def _levels(
    rows: list[int], chains: list[list[int]]
) -> tuple[list[list[int]], list[list[int]], list[list[int]]]:
    """Return each row's members as they are met on the way down, and everyone's neighbours."""
    upper: list[list[int]] = [[] for _ in rows]
    lower: list[list[int]] = [[] for _ in rows]
    for one, other in dict.fromkeys(step for chain in chains for step in pairwise(chain)):
        lower[one].append(other)
        upper[other].append(one)
    levels: list[list[int]] = [[] for _ in range(max(rows, default=-1) + 1)]
    seen = [False] * len(rows)
    for first in range(len(rows)):
        waiting = [first]
        while waiting:
            one = waiting.pop()
            if not seen[one]:
                seen[one] = True
                levels[rows[one]].append(one)
                waiting.extend(reversed(lower[one]))
    return levels, upper, lower


def _put_in_order(levels: list[list[int]], upper: list[list[int]], lower: list[list[int]]) -> None:
    """Sort each row by where the neighbours are; the order with the fewest crossings stays."""
    best, fewest = [list(level) for level in levels], _crossings(levels, lower)
    for sweep in range(_ORDER_SWEEPS):
        down = sweep % 2 == 0
        near = upper if down else lower
        for row in range(len(levels)) if down else reversed(range(len(levels))):
            beside = row - 1 if down else row + 1
            if not 0 <= beside < len(levels):
                continue
            at = {one: place for place, one in enumerate(levels[beside])}
            here = {one: place for place, one in enumerate(levels[row])}
            means = {
                one: sum(at[other] for other in near[one]) / len(near[one])
                if near[one]
                else float(here[one])
                for one in levels[row]
            }
            levels[row].sort(key=means.__getitem__)
        crossings = _crossings(levels, lower)
        if crossings < fewest:
            best, fewest = [list(level) for level in levels], crossings
    levels[:] = best


def _crossings(levels: list[list[int]], lower: list[list[int]]) -> int:
    total = 0
    for above, below in pairwise(levels):
        at = {one: place for place, one in enumerate(below)}
        passed: list[int] = []
        for one in above:
            ends = sorted(at[other] for other in lower[one])
            total += sum(len(passed) - bisect_right(passed, end) for end in ends)
            for end in ends:
                insort(passed, end)
    return total


def _places(
    levels: list[list[int]],
    upper: list[list[int]],
    lower: list[list[int]],
    widths: list[float],
    count: int,
    gap: float,
) -> list[float]:
    """Return where the middle of each member is, across."""
    places = [0.0] * len(widths)
    for level in levels:
        at = 0.0
        for one in level:
            places[one] = at + widths[one] / 2
            at += widths[one] + gap
    # Where each row begins at the left, most chains are straight; what follows only relaxes that.
    for sweep in range(_PLACE_SWEEPS):
        for level in levels if sweep % 2 == 0 else reversed(levels):
            wanted, weights = [], []
            for one in level:
                pulls = [
                    (_STRAIGHTNESS[(one >= count) + (other >= count)], places[other])
                    for other in upper[one] + lower[one]
                ] or [(1.0, places[one])]
                weight = sum(pull for pull, _ in pulls)
                wanted.append(sum(pull * place for pull, place in pulls) / weight)
                weights.append(weight)
            _keep_apart(level, wanted, weights, widths, gap, places)
    return places


def _keep_apart(
    level: list[int],
    wanted: list[float],
    weights: list[float],
    widths: list[float],
    gap: float,
    places: list[float],
) -> None:
    """Move a row as near as can be to where it wants to be: least squares, in its order.

    Distances that have to be kept are taken off, then it is isotonic regression: neighbours that
    want to pass each other are pooled at their mean.
    """
    offsets = [0.0]
    for one, other in pairwise(level):
        offsets.append(offsets[-1] + (widths[one] + widths[other]) / 2 + gap)
    pools: list[tuple[float, float, int]] = []
    for want, weight, offset in zip(wanted, weights, offsets, strict=False):
        mean, mass, size = want - offset, weight, 1
        while pools and pools[-1][0] >= mean:
            earlier, heft, many = pools.pop()
            mean = (earlier * heft + mean * mass) / (heft + mass)
            mass, size = mass + heft, size + many
        pools.append((mean, mass, size))
    at = 0
    for mean, _, size in pools:
        for _ in range(size):
            places[level[at]] = mean + offsets[at]
            at += 1
