"""Place the boxes of a directed graph in rows, with every edge downwards and a limited width.

It is the layered drawing of Sugiyama, Tagawa and Toda (1981) with short rows: a box is placed in
the first row with room below the boxes that it depends on. Long edges are cut into pieces, one per
row that they pass. Edges with the same tensor, or many edges to one box, share their pieces.
"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import pairwise

Point = tuple[float, float]
Edge = tuple[int, int, Hashable]

_ORDER_SWEEPS, _PLACE_SWEEPS = 12, 24
# More long edges to one box than this share a lane.
_BUNDLED = 6
# How hard an edge pulls its ends under each other: between two boxes, at one box, and along a lane,
# where a bend is ugliest.
_STRAIGHTNESS = (4.0, 1.0, 8.0)


@dataclass(frozen=True)
class Spacing:
    """Lengths in one unit.

    Attributes:
        gap: Least distance between a box and its neighbour in the row.
        lane: Width of an edge that passes a row, at most.
        row: From one row to the next.
        boxes: Number of boxes in a row, at most.
    """

    box: float = 236.0
    gap: float = 24.0
    lane: float = 14.0
    row: float = 44.0
    boxes: int = 10

    @property
    def widest(self) -> float:
        """Greatest width of a drawing: a full row, and half as much for lanes."""
        return 1.5 * self.boxes * (self.box + self.gap)


@dataclass(frozen=True)
class Layout:
    """Centres of the boxes, the points that each edge passes, and the size.

    The height is that from the centre of the first row to the centre of the last.
    """

    centres: tuple[Point, ...]
    routes: tuple[tuple[Point, ...], ...]
    width: float
    height: float


def lay_out(count: int, edges: Sequence[Edge], spacing: Spacing = Spacing()) -> Layout:
    """Place boxes; an edge leads from a box to a later one and carries a tensor.

    >>> lay_out(2, [(0, 1, "t")], Spacing(10.0, 1.0, 1.0, 5.0)).centres
    ((5.0, 0.0), (5.0, 5.0))
    """
    rows = _rows(count, edges, spacing.boxes)
    chains = _chains(rows, edges)
    near: list[list[int]] = [[] for _ in rows]
    for one, other in dict.fromkeys(step for chain in chains for step in pairwise(chain)):
        near[one].append(other)
        near[other].append(one)
    levels: list[list[int]] = [[] for _ in range(max(rows, default=-1) + 1)]
    for one, row in enumerate(rows):
        levels[row].append(one)
    _put_in_order(levels, rows, near)
    places, widths = _places(levels, near, count, spacing)
    left = min((place - width / 2 for place, width in zip(places, widths, strict=True)), default=0)
    right = max((place + width / 2 for place, width in zip(places, widths, strict=True)), default=0)
    points = [
        (round(place - left, 1), row * spacing.row) for place, row in zip(places, rows, strict=True)
    ]
    return Layout(
        centres=tuple(points[:count]),
        routes=tuple(tuple(points[at] for at in chain) for chain in chains),
        width=round(right - left, 1),
        height=max(rows, default=0) * spacing.row,
    )


def _rows(count: int, edges: Sequence[Edge], most: int) -> list[int]:
    """Return the row of each box: the first with room below the boxes that it depends on."""
    before: defaultdict[int, list[int]] = defaultdict(list)
    for source, target, _ in edges:
        before[target].append(source)
    rows, taken = [0] * count, Counter[int]()
    for box in range(count):
        row = max((rows[one] + 1 for one in before[box]), default=0)
        while taken[row] >= most:
            row += 1
        rows[box] = row
        taken[row] += 1
    return rows


def _chains(rows: list[int], edges: Sequence[Edge]) -> list[list[int]]:
    """Cut each edge at every row that it passes; the pieces get numbers after the boxes."""
    arriving = Counter(target for source, target, _ in edges if rows[target] > rows[source] + 1)
    lanes: defaultdict[Hashable, dict[int, int]] = defaultdict(dict)
    chains = []
    for source, target, tensor in edges:
        lane = lanes[target if arriving[target] > _BUNDLED else (source, tensor)]
        passed = range(rows[source] + 1, rows[target])
        for row in passed:
            if row not in lane:
                lane[row] = len(rows)
                rows.append(row)
        chains.append([source, *(lane[row] for row in passed), target])
    return chains


def _put_in_order(levels: list[list[int]], rows: list[int], near: list[list[int]]) -> None:
    """Sort each row by the mean place of its neighbours, downwards and upwards in turn."""
    at = [0] * len(rows)
    for sweep in range(_ORDER_SWEEPS):
        step = 1 if sweep % 2 == 0 else -1
        for level in levels[::step]:
            for place, one in enumerate(level):
                at[one] = place
            means = {}
            for one in level:
                ends = [at[other] for other in near[one] if (rows[one] - rows[other]) * step > 0]
                means[one] = sum(ends) / len(ends) if ends else at[one]
            level.sort(key=means.__getitem__)
            for place, one in enumerate(level):
                at[one] = place


def _places(
    levels: list[list[int]], near: list[list[int]], count: int, spacing: Spacing
) -> tuple[list[float], list[float]]:
    """Return the centre and the width of each member of the rows."""
    lanes = max((sum(one >= count for one in level) for level in levels), default=0)
    # A full row with a gap on both sides of each box, and all lanes, fits the greatest width.
    room = spacing.widest - spacing.boxes * (spacing.box + 2 * spacing.gap)
    lane = min(spacing.lane, room / max(1, lanes))
    widths = [spacing.box if one < count else lane for one in range(len(near))]
    places = [0.0] * len(near)
    rows = []
    for level in levels:
        offsets = [0.0]
        for one, other in pairwise(level):
            gap = spacing.gap if min(one, other) < count else 0.0
            offsets.append(offsets[-1] + (widths[one] + widths[other]) / 2 + gap)
        rows.append((level, offsets))
        for one, offset in zip(level, offsets, strict=False):
            places[one] = offset
    # Rows keep together: a picture is at most half a full row wider than its longest row.
    limit = max((offsets[-1] for _, offsets in rows), default=0.0)
    limit = max(limit, min(2 * limit, spacing.boxes * spacing.box / 2))
    for sweep in range(_PLACE_SWEEPS):
        for level, offsets in rows if sweep % 2 == 0 else reversed(rows):
            wanted = []
            for one in level:
                pulls = [
                    (_STRAIGHTNESS[(one >= count) + (other >= count)], places[other])
                    for other in near[one]
                ] or [(1.0, places[one])]
                weight = sum(pull for pull, _ in pulls)
                wanted.append((sum(pull * place for pull, place in pulls) / weight, weight))
            most = limit - offsets[-1]
            for one, place in zip(level, _kept_apart(wanted, offsets, most), strict=True):
                places[one] = place
    return places, widths


def _kept_apart(
    wanted: list[tuple[float, float]], offsets: list[float], most: float
) -> list[float]:
    """Return the places nearest to the wanted ones, by weight, in least squares, in order, apart.

    Without the distances to keep it is isotonic regression: neighbours that want to pass each
    other are pooled at their mean. No row starts before 0 or after ``most``.
    """
    pools: list[tuple[float, float, int]] = []
    for (want, weight), offset in zip(wanted, offsets, strict=False):
        mean, mass, size = want - offset, weight, 1
        while pools and pools[-1][0] >= mean:
            earlier, heft, many = pools.pop()
            mean = (earlier * heft + mean * mass) / (heft + mass)
            mass, size = mass + heft, size + many
        pools.append((mean, mass, size))
    means = (min(max(mean, 0.0), most) for mean, _, size in pools for _ in range(size))
    return [mean + offset for mean, offset in zip(means, offsets, strict=False)]
