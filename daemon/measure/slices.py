"""The samples of one window as columns."""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import nan

from .blocks import Block


@dataclass(frozen=True, slots=True)
class WindowSlice:
    """Samples of a window, and one neighbour on each side of it where there is one.

    Attributes:
        times_ns: shape (n,), CLOCK_MONOTONIC, increasing.
        wall_ns: shape (n,).
        columns: Name to shape (n,); NaN is absent.
    """

    times_ns: "array[int]" = field(default_factory=lambda: array("q"))
    wall_ns: "array[int]" = field(default_factory=lambda: array("q"))
    columns: "dict[str, array[float]]" = field(default_factory=dict)

    def inside(self, begin_ns: int, end_ns: int) -> slice:
        """Return the positions of the samples of a window, its edges included."""
        return slice(bisect_left(self.times_ns, begin_ns), bisect_right(self.times_ns, end_ns))

    def around(self, begin_ns: int, end_ns: int) -> "WindowSlice":
        """Return the samples of a window, with one neighbour on each side where there is one."""
        inside = self.inside(begin_ns, end_ns)
        kept = slice(max(inside.start - 1, 0), inside.stop + 1)
        columns = {name: column[kept] for name, column in self.columns.items()}
        return WindowSlice(self.times_ns[kept], self.wall_ns[kept], columns)


def join(blocks: Iterable[Block]) -> WindowSlice:
    """Concatenate blocks of increasing time; a column that a block lacks is NaN there."""
    joined = WindowSlice()
    for block in blocks:
        before = len(joined.times_ns)
        joined.times_ns.extend(block.times_ns)
        joined.wall_ns.extend(block.wall_ns)
        for name, column in block.columns.items():
            whole = joined.columns.setdefault(name, array("d"))
            whole.extend(array("d", [nan]) * (before - len(whole)))
            whole.extend(column)
    for whole in joined.columns.values():
        whole.extend(array("d", [nan]) * (len(joined.times_ns) - len(whole)))
    return joined
