"""Metrics and runs for an OTLP receiver: they wait here, and a child with the SDK sends them."""

import json
import logging
import os
import threading
import zlib
from collections import Counter, deque
from collections.abc import Callable, Mapping
from socket import gethostname

from ...collectors.base import SYSTEM_CLOCK, Clock, Stamped, pause
from ...collectors.children.process import LineChild, Quiet
from ...collectors.children.program import python_child
from ...collectors.outages import failure_text
from ...parsers.errors import UserError
from ...parsers.signals import Column
from ..measure.report import RunReport
from ..settings.config import Otlp
from .metrics import Page
from .snapshot import LiveState

_LOG = logging.getLogger(__name__)
_FORMAT = "application/openmetrics-text; version=1.0.0"
# Why a page or run is dropped: the queue is full, the receiver refuses it, it cannot be sent at
# all, or the child ended or hung three times while it sent it.
REASONS = ("overflow", "refused", "invalid", "crash")
_TRIES = 3
# An attempt ends after ten seconds; only the resolution of a name in it takes longer, about a
# minute.
_HANG_NS = 300 * 10**9
_CLOSE_NS = 10**9
_FAR_OFF_NS = 1 << 62


class OtlpExport:
    """Renders the page at each interval, and lets the child send pages and runs, oldest first.

    It is a companion without columns: its problem is reported as theirs are. It outlives a source
    of telemetry, so ``stop`` does nothing and ``close`` ends it.
    """

    name = "otlp"
    source = None

    def __init__(
        self,
        settings: Otlp,
        live: Callable[[], LiveState],
        *,
        clock: Clock = SYSTEM_CLOCK,
        pauses_seconds: tuple[float, float] = (1.0, 30.0),
        attempt_seconds: float = 10.0,
        restart_seconds: float = 30.0,
    ) -> None:
        """Prepare; nothing is started or sent before ``start``.

        Args:
            live: Returns the state that is sent, and that gets the counts.
            pauses_seconds: First and longest pause after an attempt that failed.
            attempt_seconds: Length of an attempt, from its connection to the end of the answer.
            restart_seconds: Pause before a child that ended is started again.
        """
        more = {"instance": gethostname(), "attempt_seconds": attempt_seconds}
        given = json.dumps(more | settings.model_dump(mode="json", exclude_none=True))
        self._argv = python_child("tegrascope.daemon.export.otlp_sender", given, name="otlp")
        self._restart_seconds = restart_seconds
        # The configuration alone decides, and secrets are in files.
        self._env = {name: os.environ[name] for name in os.environ if not name.startswith("OTEL_")}
        self._settings, self._live, self._clock = settings, live, clock
        self._pauses_ns = [round(seconds * 1e9) for seconds in pauses_seconds]
        self._page = Page(lambda: live().snapshot, clock.monotonic_ns)
        self._interval_ns, self._due_ns = round(settings.interval * 1e9), clock.monotonic_ns()
        self._retry_ns, self._pause_ns = 0, self._pauses_ns[0]
        self.problem: str | None = None
        self._queue: deque[tuple[str, bytes]] = deque()  # kind, and compressed document
        self._queue_bytes = 0
        self._given: tuple[str, bytes] | None = None  # to the child; it may be given again
        self._tries = 0  # attempts at it without an answer
        self._ends: Counter[tuple[str, str]] = Counter()  # by kind, and ``sent`` or reason
        self._refused_points = 0
        self._lock = threading.Lock()
        self._child: LineChild | None = None
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="otlp", daemon=True)

    def start(self) -> None:
        """Start the child and the thread; more than once is harmless."""
        if self._thread.ident is None:
            self._show()
            self._thread.start()

    def columns(self) -> Mapping[Column, float]:
        """Return nothing: it reads no telemetry."""
        return {}

    def stop(self) -> None:
        """Do nothing: what waits for the receiver survives a change of the telemetry source."""

    def close(self) -> None:
        """Send a last page and what still waits, for a second at most, and end the child."""
        self._closing.set()
        self._wake()
        if self._thread.ident is not None:
            self._thread.join(2.5)
        left = self._waiting()
        if left:
            _LOG.warning("otlp: %d page(s) and run(s) were not sent", left)

    def add(self, report: RunReport) -> None:
        """Send a completed run; from any thread."""
        if "runs" in self._settings.send:
            self._put("runs", f'{{"report": {report.model_dump_json(exclude_none=True)}}}')
            self._wake()

    def _wake(self) -> None:
        child = self._child  # another thread may end it meanwhile
        if child is not None:
            child.wake()

    def _waiting(self) -> int:
        return len(self._queue) + (self._given is not None)

    def _put(self, kind: str, document: str) -> None:
        """Add to the queue, and drop its oldest entries if it is too long."""
        data = zlib.compress(document.encode(), 1)
        with self._lock:
            self._queue.append((kind, data))
            self._queue_bytes += len(data)
            while self._queue_bytes > self._settings.queue_bytes:
                oldest, data = self._queue.popleft()
                self._queue_bytes -= len(data)
                self._ends[oldest, "overflow"] += 1

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                self._start_child()
            except Exception as error:  # a page of ours, or an answer, that nobody thought of
                _LOG.debug("otlp", exc_info=True)
                self._end_child()
                self.problem = f"it failed ({failure_text(error)}): it is being started again"
            pause(self._clock, self._closing, self._restart_seconds)

    def _start_child(self) -> None:
        """Let a child send until it ends."""
        try:
            self._child = child = LineChild(self._argv, stdin=True, env=self._env)
        except UserError as error:
            self.problem = str(error)
            return
        why = self._serve(child)
        self._end_child()
        if why is not None:
            words = child.last_words[-1] if child.last_words else why
            self.problem = f"the process that sends ended: {words}"
            if self._tries >= _TRIES:
                self._end_given("crash")

    def _end_child(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.end()

    def _serve(self, child: LineChild) -> str | None:
        """Let a child send until it ends or hangs, and return how; None at ``close``."""
        busy_ns: int | None = self._clock.monotonic_ns()  # begin of its start, or of an attempt
        close_ns = _FAR_OFF_NS
        self._retry_ns, self._pause_ns = 0, self._pauses_ns[0]
        while True:
            now_ns = self._clock.monotonic_ns()
            if self._closing.is_set() and close_ns == _FAR_OFF_NS:
                close_ns, self._due_ns = now_ns + _CLOSE_NS, now_ns  # one more page
            self._add_page_if_due(now_ns)
            attempt_ns = self._next_attempt_ns()
            is_closing = close_ns < _FAR_OFF_NS
            if is_closing and (now_ns >= close_ns or now_ns < attempt_ns):
                return None
            if busy_ns is None and now_ns >= attempt_ns:
                if not self._give(child):
                    return "it takes no more"
                busy_ns = now_ns
            wake_ns = attempt_ns if busy_ns is None else busy_ns + _HANG_NS
            line = child.read(max(0, min(self._due_ns, close_ns, wake_ns) - now_ns) / 1e9)
            if isinstance(line, Stamped):
                busy_ns = None
                self._note_answer(line)
            elif line is Quiet.END:
                return "without a word"
            elif busy_ns is not None and self._clock.monotonic_ns() >= busy_ns + _HANG_NS:
                return "it hung"

    def _next_attempt_ns(self) -> int:
        """Return when the child may get the oldest page or run; never, if none waits."""
        return self._retry_ns if self._waiting() else _FAR_OFF_NS

    def _note_answer(self, line: Stamped[str]) -> None:
        """Take an answer of the child, and set when the next attempt may begin."""
        if self._take(line.value):
            self._retry_ns, self._pause_ns = 0, self._pauses_ns[0]
            return
        self._retry_ns = line.monotonic_ns + self._pause_ns
        self._pause_ns = min(2 * self._pause_ns, self._pauses_ns[1])

    def _add_page_if_due(self, now_ns: int) -> None:
        """Add a page at each interval, and show the counts, which are part of the next one."""
        if now_ns < self._due_ns:
            return
        self._due_ns = max(self._due_ns + self._interval_ns, now_ns)
        self._show()
        if "metrics" in self._settings.send:
            time_ns, (page, _) = self._clock.wall_ns(), self._page.render(_FORMAT)
            self._put("metrics", json.dumps({"time_ns": time_ns, "page": page.decode()}))

    def _give(self, child: LineChild) -> bool:
        """Give the child the oldest page or run; return whether it takes it."""
        with self._lock:
            if self._given is None:
                self._given = self._queue.popleft()
                self._queue_bytes -= len(self._given[1])
        self._tries += 1
        return child.send(zlib.decompress(self._given[1]).decode())

    def _take(self, line: str) -> bool:
        """Take an answer of the child; return False if the same is to be tried again."""
        end, problem, refused_points = json.loads(line)
        self._refused_points += refused_points
        self.problem = problem
        if end is not None:
            self._end_given(end)
        elif problem is not None:
            self._tries = 0
        return problem is None or end is not None

    def _end_given(self, end: str) -> None:
        assert self._given is not None
        self._ends[self._given[0], end] += 1
        self._given, self._tries = None, 0

    def _show(self) -> None:
        """Show the counts; as often as a page is sent, since each makes the next page anew."""
        counts: dict[tuple[str, str], int] = {}
        for kind in ("metrics", "runs"):
            for end in ("sent", *REASONS):
                counts[kind, end] = self._ends[kind, end]
        counts["", "queued"] = self._waiting()
        counts["", "refused_points"] = self._refused_points
        self._live().update(otlp=counts)
