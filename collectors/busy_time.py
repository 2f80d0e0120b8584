"""How long something was busy, from stretches of time that overlap and come out of order."""

from bisect import bisect_left, bisect_right

MOST_STRETCHES = 1024


class BusyTime:
    """The length of the union of all stretches so far.

    The latest stretches are remembered one by one, so that one that comes late counts only for
    what no other has covered. What lies before them is settled: of a stretch that reaches back
    there only the later part counts, and the rest is told as ``late``.

    A stretch is of whichever unit its begin and end are, and so are these.

    Attributes:
        total: The length of the union.
        late: What came too late to be compared with the rest, and was left out.

    >>> busy = BusyTime()
    >>> [busy.add(*stretch) for stretch in ((10, 20), (40, 50), (15, 45), (12, 18))]
    [10, 10, 20, 0]
    >>> busy.total
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
        self._settled: int | None = None
        self.total = 0
        self.late = 0

    def add(self, begin: int, end: int) -> int:
        """Count a stretch; say how much of it is new."""
        if self._settled is not None and begin < self._settled:
            late_end = min(end, self._settled)
            self.late += late_end - begin
            begin = late_end
        if end <= begin:
            return 0
        # Those that touch it become one with it.
        first = bisect_left(self._ends, begin)
        last = bisect_right(self._begins, end)
        before = sum(self._ends[first:last]) - sum(self._begins[first:last])
        if first < last:
            begin = min(begin, self._begins[first])
            end = max(end, self._ends[last - 1])
        self._begins[first:last] = [begin]
        self._ends[first:last] = [end]
        gained = end - begin - before
        self.total += gained
        if len(self._begins) > self._most:
            half = self._most // 2
            self._settled = self._ends[half - 1]
            del self._begins[:half], self._ends[:half]
        return gained

    def is_busy_at(self, at: int) -> bool:
        """Say whether a time lies within a remembered stretch; its end does not."""
        place = bisect_right(self._begins, at)
        return place > 0 and at < self._ends[place - 1]
