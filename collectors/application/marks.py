"""The inferences of an application that are not reported yet: bounded, cheap to add to."""

import json
import time
from array import array
from threading import Lock

# As many as the daemon takes. Of a faster loop every second inference is timed, then every fourth.
TIMES_AT_MOST = 10_000
# Turned into text piece by piece: holding the interpreter delays an inference.
_PIECE = 256

STAGES = {
    "pre": "pre",
    "h2d": "h2d",
    "compute": "compute",
    "inference": "compute",
    "d2h": "d2h",
    "post": "post",
}


class Thinned:
    """Rows of numbers, of which evenly spaced ones are kept once there are too many.

    >>> rows = Thinned(1, at_most=4)
    >>> for number in range(9):
    ...     rows.add(number)
    >>> rows.columns[0].tolist(), rows.seen
    ([0, 4, 8], 9)
    """

    __slots__ = ("_at_most", "_stride", "columns", "seen")

    def __init__(self, columns: int, at_most: int = TIMES_AT_MOST) -> None:
        self.columns = [array("q") for _ in range(columns)]
        self.seen = 0
        self._stride = 1
        self._at_most = at_most

    def add(self, *row: int) -> None:
        """Add a row, with one number for each column."""
        if self.seen % self._stride == 0:
            if len(self.columns[0]) == self._at_most:
                self._stride *= 2
                self.columns = [column[::2] for column in self.columns]
            if self.seen % self._stride == 0:
                for column, number in zip(self.columns, row, strict=True):
                    column.append(number)
        self.seen += 1


class Marks:
    """The inferences and stages of one window; to be added to under its owner's lock.

    Attributes:
        first_ns: When the first that was timed started; ``None`` where none was.
    """

    __slots__ = ("count", "first_ns", "last_ns", "stages", "times")

    def __init__(self) -> None:
        self.count = 0
        self.first_ns: int | None = None
        self.last_ns = 0
        self.times = Thinned(2)
        self.stages: dict[str, Thinned] = {}

    def render(self, begin_ns: int, **fields: object) -> bytes:
        """Return the JSON by which a window is ended.

        An inference that began before the window is counted in it, and its time left out.

        Args:
            fields: Further fields; one that is ``None`` is left out.
        """
        given = {name: value for name, value in fields.items() if value is not None}
        starts, latencies = self.times.columns
        kept_starts: list[str] = []
        kept_latencies: list[str] = []
        for low in range(0, len(starts), _PIECE):
            pairs = [
                (start, latency)
                for start, latency in zip(
                    starts[low : low + _PIECE], latencies[low : low + _PIECE], strict=True
                )
                if start >= begin_ns and latency >= 0
            ]
            kept_starts.extend(f"{start}" for start, _ in pairs)
            kept_latencies.extend(f"{latency}" for _, latency in pairs)
            time.sleep(0)
        stages = ",".join(
            f'"{name}":[{",".join(_texts(rows.columns[0]))}]' for name, rows in self.stages.items()
        )
        return (
            f'{json.dumps(given)[:-1]},"begin_ns":{begin_ns},'
            f'"start_ns":[{",".join(kept_starts)}],"latency_ns":[{",".join(kept_latencies)}],'
            f'"stages_ns":{{{stages}}}}}'
        ).encode()


def _texts(numbers: "array[int]") -> list[str]:
    texts: list[str] = []
    for low in range(0, len(numbers), _PIECE):
        texts.extend(map(str, numbers[low : low + _PIECE]))
        time.sleep(0)
    return texts


class MarkBuffer:
    """Takes marks from any thread, and returns them window by window."""

    __slots__ = ("_lock", "_marks", "_taken")

    def __init__(self) -> None:
        self._lock = Lock()
        self._marks = Marks()
        self._taken = 0

    def inference(self, start_ns: int, end_ns: int) -> bool:
        """Add a timed inference; return whether it is the first of its window."""
        with self._lock:
            marks = self._marks
            marks.times.add(start_ns, end_ns - start_ns)
            marks.count += 1
            if end_ns > marks.last_ns:
                marks.last_ns = end_ns
            if marks.first_ns is None:
                marks.first_ns = start_ns
                return marks.count == 1
            return False

    def counted(self, inferences: int, at_ns: int) -> bool:
        """Count inferences without times; return whether they are the first of their window."""
        with self._lock:
            marks = self._marks
            is_first = marks.count == 0
            marks.count += inferences
            marks.last_ns = max(marks.last_ns, at_ns)
            return is_first

    def stage(self, name: str, took_ns: int) -> None:
        """Add the duration of a stage."""
        with self._lock:
            rows = self._marks.stages.get(name)
            if rows is None:
                rows = self._marks.stages[name] = Thinned(1)
            rows.add(took_ns)

    @property
    def count(self) -> int:
        """Inferences since the last ``take``."""
        return self._marks.count

    @property
    def total(self) -> int:
        """Inferences ever."""
        return self._taken + self._marks.count

    @property
    def first_ns(self) -> int | None:
        """When the first timed one since the last ``take`` started."""
        return self._marks.first_ns

    def take(self) -> Marks:
        """Return the marks so far, and begin anew."""
        with self._lock:
            marks, self._marks = self._marks, Marks()
            self._taken += marks.count
        return marks
