"""Reports an application's inferences to the daemon, one window after another."""

import json
import logging
import time
from array import array
from collections.abc import Callable, Mapping
from threading import Event, Lock
from time import monotonic_ns
from typing import Any, NamedTuple, TypeVar

from ...parsers.errors import Mendable
from .client import ApiClient, RefusedError

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


class WindowMarks:
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
        """When the first timed one since the last ``take`` started."""
        return self._marks.first_ns

    def take(self) -> WindowMarks:
        """Return the marks so far, and begin anew."""
        with self._lock:
            marks, self._marks = self._marks, WindowMarks()
            self._taken += marks.count
        return marks


_PATH = "/api/v1/windows"
_LOOK_SECONDS = 0.25
RETRY_SECONDS = 15.0
BUSY_SECONDS = 0.5
_BUSY_TRIES = 4
# A window is ended in good time before the daemon would give it up for dead.
_OF_TIMEOUT = 0.8

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
    """Sends the windows to the daemon; belongs to one thread but for its events.

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
        retry_seconds: float = RETRY_SECONDS,
        busy_seconds: float = BUSY_SECONDS,
    ) -> None:
        """Prepare.

        Args:
            period: Length of a window in seconds; ``None`` takes what the daemon answers.
            busy_seconds: Pause after status 503.
        """
        self.opened: Opened | None = None
        self.problem: Mendable | None = None
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
            self.warn(Mendable(f"{type(error).__name__}: {error}", "no further window is reported"))

    def begin(self, begin_ns: int) -> Opened:
        """Begin a window.

        Raises:
            Mendable: The daemon does not take it.
        """
        mark = {"event": "begin", **self._fields, "begin_ns": begin_ns}
        answer = self._post(json.dumps(mark).encode())
        seconds, inferences = self._period, 0
        if seconds is None:
            seconds, inferences = answer["enough"]["seconds"], answer["enough"]["inferences"]
        longest = _OF_TIMEOUT * answer["timeout_seconds"]
        return Opened(answer["run_id"], begin_ns, seconds, inferences, longest)

    def warn(self, problem: Mendable) -> None:
        """Keep a problem; log the first one only."""
        if self.problem is None:
            _LOG.warning("%s", problem)
        self.problem = problem

    def _await_enough(self, opened: Opened) -> None:
        """Wait until a window holds enough, or may not go on; or for the end.

        A block without any mark in it is one window, for as long as it may be.
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
        """Windows follow each other without a gap, unless the application paused for long."""
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
        except Mendable as problem:
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
