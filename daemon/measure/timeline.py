"""The last hour of samples, compressed in memory, and the slices of its windows."""

import threading
from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import nan

from .blocks import Block, WindowSlice, decode, encode, join
from .energy import interval_ns

# Enough for a median interval that a late line does not move.
_RECENT = 65
_FAR_OFF_NS = 1 << 62


@dataclass(frozen=True, slots=True)
class SealedBlock:
    """A closed block, as it is kept in memory and in the store.

    Attributes:
        begin_ns: CLOCK_MONOTONIC of its first sample; ``end_ns`` of its last.
        wall_begin_ns: Least wall time of its samples; that of the first, unless the clock was set.
        wall_end_ns: Greatest wall time of its samples.
        data: Result of ``blocks.encode``.
    """

    source: str
    begin_ns: int
    end_ns: int
    wall_begin_ns: int
    wall_end_ns: int
    count: int
    data: bytes


class Timeline:
    """Samples of one source, newest last.

    A sample costs one number per column. About every ten seconds of sample time the open block is
    sealed: compressed, kept, and passed to ``on_sealed`` in the thread that appended.

    >>> timeline = Timeline()
    >>> timeline.append(monotonic_ns=100, wall_ns=1_000, values={"ram.used_bytes": 5.0})
    True
    >>> timeline.cut(0, 200).columns["ram.used_bytes"].tolist()
    [5.0]
    """

    def __init__(
        self,
        span_seconds: float = 3600,
        block_seconds: float = 10,
        on_sealed: Callable[[SealedBlock], None] | None = None,
        *,
        source: str = "tegrastats",
    ) -> None:
        """Begin without samples.

        Args:
            span_seconds: Blocks that ended earlier than this before the newest sample are dropped.
            block_seconds: Sample time after which a block is sealed.
            on_sealed: Called once per block, in order, without a lock held.
        """
        self.source = source
        self.refused = 0
        self._span_ns = round(span_seconds * 1e9)
        self._block_ns = round(block_seconds * 1e9)
        self._on_sealed = on_sealed
        self._changed = threading.Condition()
        self._sealed: deque[SealedBlock] = deque()
        self._recent: deque[int] = deque(maxlen=_RECENT)
        self._open = Block(source)

    def append(self, monotonic_ns: int, wall_ns: int, values: Mapping[str, float]) -> bool:
        """Add one sample, with values as ``flatten`` names them; absent values are left out.

        If it is not later than the newest one, refuse it, count it in ``refused``, return False.
        """
        sealed = None
        with self._changed:
            if self._recent and monotonic_ns <= self._recent[-1]:
                self.refused += 1
                return False
            times = self._open.times_ns
            if times and monotonic_ns - times[0] >= self._block_ns:
                sealed = self._seal()
            self._recent.append(monotonic_ns)
            _append(self._open, monotonic_ns, wall_ns, values)
            while self._sealed and self._sealed[0].end_ns < monotonic_ns - self._span_ns:
                self._sealed.popleft()
            self._changed.notify_all()
        if sealed is not None and self._on_sealed is not None:
            self._on_sealed(sealed)
        return True

    def seal(self) -> None:
        """Seal the open block, even a short one: at the end, or to store it now."""
        sealed = None
        with self._changed:
            if self._open.times_ns:
                sealed = self._seal()
        if sealed is not None and self._on_sealed is not None:
            self._on_sealed(sealed)

    def _seal(self) -> SealedBlock:
        """Close the open block and begin another; the lock is held."""
        block, self._open = self._open, Block(self.source)
        times, wall = block.times_ns, block.wall_ns
        sealed = SealedBlock(
            self.source, times[0], times[-1], min(wall), max(wall), len(times), encode(block)
        )
        self._sealed.append(sealed)
        return sealed

    def cut(
        self, begin_ns: int, end_ns: int, wanted: Callable[[str], bool] | None = None
    ) -> WindowSlice:
        """Return the samples of a window, edges included, and the nearest before and after it.

        ``wanted`` selects columns by name.
        """
        with self._changed:
            sealed = list(self._sealed)
            now = self._copy_open(wanted)
        # With one block more on each side, which may have the neighbours of the window.
        first = max(bisect_left(sealed, begin_ns, key=lambda block: block.end_ns) - 1, 0)
        after = bisect_right(sealed, end_ns, key=lambda block: block.begin_ns) + 1
        blocks = [decode(block.data, wanted) for block in sealed[first:after]]
        return join([*blocks, now]).around(begin_ns, end_ns)

    def covers(self, wall_ns: int) -> bool:
        """Return whether the oldest sample is not later than a wall time."""
        with self._changed:
            if self._sealed:
                return self._sealed[0].wall_begin_ns <= wall_ns
            return bool(self._open.wall_ns) and self._open.wall_ns[0] <= wall_ns

    def blocks_since(
        self,
        wall_ns: int,
        until_wall_ns: int = _FAR_OFF_NS,
        wanted: Callable[[str], bool] | None = None,
    ) -> Iterator[Block]:
        """Yield blocks with samples later than a wall time, oldest first, including the open one.

        Blocks entirely after ``until_wall_ns`` are excluded. ``wanted`` selects columns by name.
        """
        with self._changed:
            sealed = [
                block.data
                for block in self._sealed
                if block.wall_end_ns > wall_ns and block.wall_begin_ns <= until_wall_ns
            ]
            now = self._copy_open(wanted)
        for data in sealed:
            yield decode(data, wanted)
        if now.wall_ns and max(now.wall_ns) > wall_ns and min(now.wall_ns) <= until_wall_ns:
            yield now

    def _copy_open(self, wanted: Callable[[str], bool] | None = None) -> Block:
        """Return the open block as it is now, so that it can be read without the lock."""
        columns: dict[str, array[float]] = {}
        for name, column in self._open.columns.items():
            if wanted is None or wanted(name):
                columns[name] = column[:]
        return Block(self.source, self._open.times_ns[:], self._open.wall_ns[:], columns)

    @property
    def interval_seconds(self) -> float | None:
        """Median time between the latest samples; ``None`` before the second one."""
        with self._changed:
            times = list(self._recent)
        interval = interval_ns(times)
        if interval is None:
            return None
        return interval / 1e9

    def wait_past(self, monotonic_ns: int, timeout_seconds: float) -> bool:
        """Wait for a sample later than a time, and return whether one came."""
        with self._changed:
            return self._changed.wait_for(
                lambda: bool(self._recent) and self._recent[-1] > monotonic_ns, timeout_seconds
            )


def _append(block: Block, time_ns: int, wall_ns: int, values: Mapping[str, float]) -> None:
    """Add a sample to a block: a value that is absent, now or until now, is NaN."""
    before = len(block.times_ns)
    block.times_ns.append(time_ns)
    block.wall_ns.append(wall_ns)
    for name, value in values.items():
        column = block.columns.get(name)
        if column is None:
            column = block.columns[name] = array("d", [nan]) * before
        column.append(value)
    if len(values) < len(block.columns):
        for column in block.columns.values():
            if len(column) == before:
                column.append(nan)
