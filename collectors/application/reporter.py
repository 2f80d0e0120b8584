"""Reports an application's inferences to the daemon, one window after another."""

import json
import logging
from collections.abc import Callable, Mapping
from threading import Event
from time import monotonic_ns
from typing import Any, NamedTuple, TypeVar

from ...parsers.errors import Mendable
from .client import ApiClient, RefusedError
from .marks import MarkBuffer

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
            fields: Sent with the begin of each window.
            period: Length of a window in seconds; ``None`` takes what the daemon answers.
            retry_seconds: Pause after a begin that failed.
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
            begin_ns = max(begin_ns, marks.first_ns)  # loading a model, say, is no inference
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
