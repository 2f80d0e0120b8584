"""Reports an application's inferences to the daemon, one window after another."""

import json
import logging
import time
from array import array
from collections.abc import Callable, Mapping
from itertools import islice
from threading import Event, Lock
from time import monotonic_ns
from typing import Any, NamedTuple, TypeVar

from ...parsers.errors import UserError
from .client import ApiClient, RefusedError

# The daemon's limit. In a faster loop every second inference is timed, then every fourth.
TIMES_AT_MOST = 10_000
# Converted to text in pieces, because holding the interpreter delays an inference.
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
    """Rows of numbers; beyond a limit, evenly spaced ones are kept.

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


class WindowMarks:
    """Inferences and stages of one window; protected by the lock of ``MarkBuffer``.

    Attributes:
        first_ns: Start of the first timed inference; ``None`` without one.
    """

    __slots__ = ("count", "first_ns", "last_ns", "stages", "times")

    def __init__(self) -> None:
        self.count = 0
        self.first_ns: int | None = None
        self.last_ns = 0
        self.times = Thinned(2)
        self.stages: dict[str, Thinned] = {}

    def render(self, begin_ns: int, **fields: object) -> bytes:
        """Return the JSON that ends a window, with further fields unless they are ``None``.

        An inference that began before the window is counted, but its time is left out.
        """
        given = {name: value for name, value in fields.items() if value is not None}
        kept: tuple[list[str], list[str]] = [], []
        rows = zip(*self.times.columns, strict=True)
        while piece := list(islice(rows, _PIECE)):
            for start, latency in piece:
                if start >= begin_ns and latency >= 0:
                    kept[0].append(str(start))
                    kept[1].append(str(latency))
            time.sleep(0)
        stages = ",".join(
            f'"{name}":[{",".join(_texts(each.columns[0]))}]' for name, each in self.stages.items()
        )
        return (
            f'{json.dumps(given)[:-1]},"begin_ns":{begin_ns},'
            f'"start_ns":[{",".join(kept[0])}],"latency_ns":[{",".join(kept[1])}],'
            f'"stages_ns":{{{stages}}}}}'
        ).encode()


def _texts(numbers: "array[int]") -> list[str]:
    texts: list[str] = []
    for low in range(0, len(numbers), _PIECE):
        texts.extend(map(str, numbers[low : low + _PIECE]))
        time.sleep(0)
    return texts


class MarkBuffer:
    """Marks of all threads, taken window by window."""

    __slots__ = ("_lock", "_marks", "_taken")

    def __init__(self) -> None:
        self._lock = Lock()
        self._marks = WindowMarks()
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
        """Start of the first timed inference since the last ``take``."""
        return self._marks.first_ns

    def take(self) -> WindowMarks:
        """Return the marks so far, and start an empty window."""
        with self._lock:
            marks, self._marks = self._marks, WindowMarks()
            self._taken += marks.count
        return marks


_PATH = "/api/v1/windows"
_LOOK_SECONDS = 0.25
RETRY_SECONDS = 15.0
BUSY_SECONDS = 0.5
_BUSY_TRIES = 4
# A window ends before the daemon would close it as failed.
_TIMEOUT_SHARE = 0.8

_LOG = logging.getLogger("tegrascope.window")

A = TypeVar("A")
T = TypeVar("T")


class Opened(NamedTuple):
    """A window whose begin the daemon accepted."""

    run_id: str
    begin_ns: int
    seconds: float
    inferences: int
    longest_seconds: float


class Reporter:
    """Sends the windows to the daemon, in one thread; only its events are for other threads.

    Attributes:
        wake: Ends the wait for the first mark of a window.
        stopping: Ends everything; ``ending`` is set before it.
    """

    def __init__(
        self,
        client: ApiClient,
        marks: MarkBuffer,
        fields: Mapping[str, object],
        period: float | None,
        *,
        retry_seconds: float,
        busy_seconds: float,
    ) -> None:
        """Prepare to report the marks of a buffer; see ``Window`` for the settings.

        ``fields`` are sent with the begin of each window.
        """
        self.opened: Opened | None = None
        self.problem: UserError | None = None
        self.wake = Event()
        self.stopping = Event()
        self.ending: tuple[str, str | None] = ("ok", None)
        self._client = client
        self._marks = marks
        self._fields = {name: value for name, value in fields.items() if value is not None}
        self._period = period
        self._retry_seconds = retry_seconds
        self._busy_seconds = busy_seconds
        self._since_ns: int | None = None

    def run(self, begin_ns: int) -> None:
        """Report window after window until ``stopping`` is set; never raise."""
        try:
            while True:
                opened = self.opened or self._attempt(self.begin, begin_ns)
                if opened is None:
                    self.stopping.wait(self._retry_seconds)
                    self._marks.take()
                else:
                    self._await_enough(opened)
                    self._attempt(self._end, opened)
                self.opened = None
                self._await_mark()
                if self._marks.count == 0:
                    return
                begin_ns = self._next_begin_ns()
        except Exception as error:
            self.warn(
                UserError(f"{type(error).__name__}: {error}", "no further window is reported")
            )

    def begin(self, begin_ns: int) -> Opened:
        """Begin a window.

        Raises:
            UserError: The daemon does not take it.
        """
        mark = {"event": "begin", **self._fields, "begin_ns": begin_ns}
        answer = self._post(json.dumps(mark).encode())
        seconds, inferences = self._period, 0
        if seconds is None:
            seconds, inferences = answer["enough"]["seconds"], answer["enough"]["inferences"]
        longest = _TIMEOUT_SHARE * answer["timeout_seconds"]
        return Opened(answer["run_id"], begin_ns, seconds, inferences, longest)

    def warn(self, problem: UserError) -> None:
        """Keep a problem; log the first one only."""
        if self.problem is None:
            _LOG.warning("%s", problem)
        self.problem = problem

    def _await_enough(self, opened: Opened) -> None:
        """Wait until a window has enough inferences, reaches its longest time, or is stopped.

        A block without any mark is one window, up to the longest time.
        """
        seconds = 0.0
        while seconds < opened.longest_seconds:
            count = self._marks.count
            if seconds >= opened.seconds and count >= max(opened.inferences, 1):
                return
            if self.stopping.wait(min(_LOOK_SECONDS, opened.seconds)):
                return
            seconds = (monotonic_ns() - opened.begin_ns) / 1e9

    def _await_mark(self) -> None:
        self.wake.clear()
        if self._marks.count == 0 and not self.stopping.is_set():
            self.wake.wait()

    def _next_begin_ns(self) -> int:
        """Return the begin of the next window: without a gap, except after a long pause."""
        first_ns, now_ns = self._marks.first_ns, monotonic_ns()
        pause_ns = int((self._period or self._retry_seconds) * 1e9)
        if self._since_ns is None or (first_ns or now_ns) - self._since_ns > pause_ns:
            self._since_ns = None
            return now_ns if first_ns is None else first_ns
        return self._since_ns

    def _end(self, opened: Opened) -> None:
        marks = self._marks.take()
        outcome, reason = self.ending if self.stopping.is_set() else ("ok", None)
        begin_ns, end_ns = opened.begin_ns, marks.last_ns
        if marks.count == 0:
            end_ns = monotonic_ns()
        elif self._since_ns is None and marks.first_ns is not None:
            begin_ns = max(begin_ns, marks.first_ns)  # loading a model is not an inference
        self._since_ns = end_ns
        self._post(
            marks.render(
                begin_ns,
                event="end",
                run_id=opened.run_id,
                end_ns=max(begin_ns, end_ns),
                inferences=marks.count or None,
                outcome=outcome,
                reason=reason,
            )
        )

    def _attempt(self, step: Callable[[A], T], argument: A) -> T | None:
        try:
            return step(argument)
        except UserError as problem:
            self.warn(problem)
            return None

    def _post(self, body: bytes) -> Any:
        for _ in range(_BUSY_TRIES - 1):
            try:
                return self._client.post(_PATH, body)
            except RefusedError as error:
                if error.status != 503:
                    raise
                self.stopping.wait(self._busy_seconds)
        return self._client.post(_PATH, body)
