"""How long something was busy, from stretches of time that overlap and come out of order."""

from bisect import bisect_left, bisect_right

MOST_STRETCHES = 1024


class BusyTime:
    """The length of the union of all stretches so far.

    The latest stretches are remembered one by one, so that one that comes late counts only for
    what no other has covered. What lies before them is settled: of a stretch that reaches back
    there only the later part counts, and the rest is told as ``late_ns``.

    Attributes:
        total_ns: The length of the union.
        late_ns: What came too late to be compared with the rest, and was left out.

    >>> busy = BusyTime()
    >>> [busy.add(*stretch) for stretch in ((10, 20), (40, 50), (15, 45), (12, 18))]
    [10, 10, 20, 0]
    >>> busy.total_ns
    40
    """

    def __init__(self, most: int = MOST_STRETCHES) -> None:
        """Begin with none.

        Args:
            most: How many stretches are remembered.
        """
        self._most = most
        self._begins: list[int] = []
        self._ends: list[int] = []
        self._settled_ns: int | None = None
        self.total_ns = 0
        self.late_ns = 0

    def add(self, begin_ns: int, end_ns: int) -> int:
        """Count a stretch; say how much of it is new."""
        if self._settled_ns is not None and begin_ns < self._settled_ns:
            late_end_ns = min(end_ns, self._settled_ns)
            self.late_ns += late_end_ns - begin_ns
            begin_ns = late_end_ns
        if end_ns <= begin_ns:
            return 0
        # Those that touch it become one with it.
        first = bisect_left(self._ends, begin_ns)
        last = bisect_right(self._begins, end_ns)
        before = sum(self._ends[first:last]) - sum(self._begins[first:last])
        if first < last:
            begin_ns = min(begin_ns, self._begins[first])
            end_ns = max(end_ns, self._ends[last - 1])
        self._begins[first:last] = [begin_ns]
        self._ends[first:last] = [end_ns]
        gained_ns = end_ns - begin_ns - before
        self.total_ns += gained_ns
        if len(self._begins) > self._most:
            half = self._most // 2
            self._settled_ns = self._ends[half - 1]
            del self._begins[:half], self._ends[:half]
        return gained_ns

    def is_busy_at(self, at_ns: int) -> bool:
        """Say whether a time lies within a remembered stretch; its end does not."""
        place = bisect_right(self._begins, at_ns)
        return place > 0 and at_ns < self._ends[place - 1]
