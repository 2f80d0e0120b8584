"""``tegrascope.window`` marks an application's own inference, so that the daemon measures it.

No inference waits for the network. Marks are kept in memory, and a thread reports them to the
daemon, one window at a time. Without a daemon the cost is the same.
"""

import atexit
import json
import logging
import os
import re
import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial, wraps
from itertools import islice, zip_longest
from threading import Event, Lock, Thread
from time import monotonic_ns
from types import TracebackType
from typing import Any, NamedTuple, ParamSpec, TypeVar

from ...parsers.errors import UserError
from ...parsers.inference.marks import (
    NAME_PATTERN,
    PHASE_NAMES_AT_MOST,
    PHASES_AT_MOST,
    TIMES_AT_MOST,
)
from .client import ODD_ANSWER, WINDOWS_PATH, ApiClient, RefusedError, whole_characters

# Converted to text in pieces, because holding the interpreter delays an inference.
_PIECE = 256
STAGES = {name: name for name in ("pre", "h2d", "compute", "d2h", "post")} | {
    "inference": "compute"
}

_LOOK_SECONDS = 0.25
_BUSY_TRIES = 4
# A window ends before the daemon would close it as failed.
_TIMEOUT_SHARE = 0.8

_LOG = logging.getLogger("tegrascope.window")

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class Thinned:
    """Rows of numbers; beyond a limit, every second one is kept, then every fourth.

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


@dataclass(slots=True)
class PhaseMark:
    """The begin of a phase, which lasts until the next mark, and the units that it had."""

    name: str | None
    at_ns: int
    units: float | None = None


@dataclass(slots=True)
class WindowMarks:
    """Inferences and stages of one window; protected by the lock of ``MarkBuffer``."""

    count: int = 0
    units: float | None = None
    first_ns: int | None = None  # start of the first timed inference
    last_ns: int = 0
    times: Thinned = field(default_factory=partial(Thinned, 2))
    stages: dict[str, Thinned] = field(default_factory=dict)
    phases: list[PhaseMark] = field(default_factory=list)
    misses: int | None = None  # of the deadline, if there is one

    @property
    def work(self) -> float:
        """Inferences or units, whichever is more."""
        return max(self.count, self.units or 0)

    def phases_within(self, begin_ns: int, end_ns: int) -> list[dict[str, object]]:
        """Return the phases of a window; none if they are too many, or the names are."""
        if len(self.phases) > PHASES_AT_MOST:
            return []
        phases: list[dict[str, object]] = []
        names = set()
        for mark, following in zip_longest(self.phases, self.phases[1:]):
            last_ns = end_ns
            if following is not None:
                last_ns = min(end_ns, following.at_ns)
            first_ns = max(begin_ns, mark.at_ns)
            if mark.name and first_ns < last_ns:
                names.add(mark.name)
                phase = {"name": mark.name, "begin_ns": first_ns, "end_ns": last_ns}
                phases.append({**phase, "units": mark.units})
        if len(names) > PHASE_NAMES_AT_MOST:
            return []
        return phases

    def render(self, begin_ns: int, **fields: object) -> bytes:
        """Return the JSON that ends a window, with further fields unless they are ``None``.

        An inference that began before the window is counted, but its time is left out.
        """
        given = {name: value for name, value in fields.items() if value is not None}
        starts, latencies = [], []
        for start_ns, latency_ns in _politely(zip(*self.times.columns, strict=True)):
            if start_ns >= begin_ns and latency_ns >= 0:
                starts.append(str(start_ns))
                latencies.append(str(latency_ns))
        stages = []
        for name, durations in self.stages.items():
            stages.append(f'"{name}":[{",".join(map(str, _politely(durations.columns[0])))}]')
        return (
            f'{json.dumps(given)[:-1]},"begin_ns":{begin_ns},'
            f'"start_ns":[{",".join(starts)}],'
            f'"latency_ns":[{",".join(latencies)}],'
            f'"stages_ns":{{{",".join(stages)}}}}}'
        ).encode()


def _politely(items: Iterable[T]) -> Iterator[T]:
    """Yield items, and let go of the interpreter after each piece of them."""
    rest = iter(items)
    while piece := list(islice(rest, _PIECE)):
        yield from piece
        time.sleep(0)


class MarkBuffer:
    """Marks of all threads, taken window by window; ``begun`` is set by the first of a window."""

    __slots__ = ("_deadline_ns", "_lock", "_misses", "_taken", "begun", "present")

    def __init__(self) -> None:
        self._deadline_ns: int | None = None
        self._misses = 0
        self.begun = Event()
        self.present = WindowMarks()
        self._lock = Lock()
        self._taken = 0

    def watch(self, deadline_seconds: float | None) -> None:
        """Count misses from now on, if the workload has a deadline; the first one stays."""
        with self._lock:
            if self._deadline_ns is None and deadline_seconds is not None:
                self._deadline_ns = round(deadline_seconds * 1e9)

    def inference(self, start_ns: int, end_ns: int) -> None:
        """Add a timed inference."""
        with self._lock:
            marks = self.present
            if self._deadline_ns is not None and end_ns - start_ns > self._deadline_ns:
                self._misses += 1
            marks.times.add(start_ns, end_ns - start_ns)
            if marks.first_ns is None:
                marks.first_ns = start_ns
            self._count(1, end_ns)

    def counted(self, inferences: int, at_ns: int, units: float | None = None) -> None:
        """Count inferences without times, or units."""
        with self._lock:
            if units is not None:
                self.present.units = (self.present.units or 0.0) + units
                if self.present.phases:
                    phase = self.present.phases[-1]
                    phase.units = (phase.units or 0.0) + units
            self._count(inferences, at_ns)

    def phase(self, name: str | None, at_ns: int) -> None:
        """Begin a phase, or with ``None`` time without one."""
        with self._lock:
            if len(self.present.phases) <= PHASES_AT_MOST:
                self.present.phases.append(PhaseMark(name, at_ns))
            if name is not None and self.present.first_ns is None:
                self.present.first_ns = at_ns

    def _count(self, inferences: int, at_ns: int) -> None:
        marks = self.present
        marks.count += inferences
        if marks.work and not self.begun.is_set():
            self.begun.set()
        if at_ns > marks.last_ns:
            marks.last_ns = at_ns

    def stage(self, name: str, start_ns: int, end_ns: int) -> None:
        """Add the duration of a stage."""
        with self._lock:
            rows = self.present.stages.get(name)
            if rows is None:
                rows = self.present.stages[name] = Thinned(1)
            rows.add(end_ns - start_ns)

    @property
    def total(self) -> int:
        """Inferences ever."""
        return self._taken + self.present.count

    def take(self) -> WindowMarks:
        """Return the marks so far, and start an empty window."""
        with self._lock:
            marks, self.present = self.present, WindowMarks()
            # The next window begins where this one ends, maybe within a phase.
            later = [one for one in marks.phases if one.at_ns > marks.last_ns]
            current = marks.phases[-len(later) - 1 : len(marks.phases) - len(later)]
            self.present.phases = [PhaseMark(one.name, marks.last_ns) for one in current] + later
            self._taken += marks.count
            if self._deadline_ns is not None:
                marks.misses, self._misses = self._misses, 0
        return marks


class Opened(NamedTuple):
    """A window whose begin the daemon accepted."""

    run_id: str
    begin_ns: int
    seconds: float
    inferences: int
    longest_seconds: float


@dataclass
class Reporter:
    """Sends the windows to the daemon, in one thread, until another sets ``stopping``.

    ``fields`` are sent with the begin of each window, unless they are ``None``; see ``Window``.
    """

    client: ApiClient
    marks: MarkBuffer
    fields: Mapping[str, object]
    period: float | None
    retry_seconds: float
    busy_seconds: float
    opened: Opened | None = None
    problem: UserError | None = None
    stopping: Event = field(default_factory=Event)
    ending: tuple[str, str | None] = ("ok", None)  # set before ``stopping``
    _since_ns: int | None = None

    def run(self, begin_ns: int) -> None:
        """Report window after window until ``stopping`` is set; never raise."""
        try:
            while True:
                try:
                    self.opened = self.opened or self.begin(begin_ns)
                    self._await_enough(self.opened)
                    self._end(self.opened)
                except UserError as problem:
                    self._warn(problem)
                    if self.opened is None:
                        self.stopping.wait(self.retry_seconds)
                        self.marks.take()
                self.opened = None
                self.marks.begun.clear()
                if self.marks.present.work == 0 and not self.stopping.is_set():
                    self.marks.begun.wait()
                if self.marks.present.work == 0:
                    return
                begin_ns = self._next_begin_ns()
        except Exception as error:
            what = f"{type(error).__name__}: {error}"
            self._warn(UserError(what, "no further window is reported"))

    def begin(self, begin_ns: int) -> Opened:
        """Begin a window, or raise ``UserError`` if the daemon does not take it."""
        fields = {name: value for name, value in self.fields.items() if value is not None}
        mark = {"event": "begin", **fields, "begin_ns": begin_ns}
        answer = self._post(json.dumps(mark).encode())
        seconds, inferences = self.period, 0
        try:
            if seconds is None:
                # A shorter time would keep the thread, and so the interpreter, busy.
                seconds = max(_LOOK_SECONDS / 10, float(answer["enough"]["seconds"]))
                inferences = int(answer["enough"]["inferences"])
            deadline = answer.get("deadline_seconds")
            longest = _TIMEOUT_SHARE * float(answer["timeout_seconds"])
            if not longest > 0:
                raise ValueError(f"windows of at most {longest:g} s")
            self.marks.watch(None if deadline is None else float(deadline))
            return Opened(str(answer["run_id"]), begin_ns, seconds, inferences, longest)
        except ODD_ANSWER as error:
            raise self.client.odd_answer(error) from None

    def _warn(self, problem: UserError) -> None:
        """Keep a problem; log the first one only."""
        if self.problem is None:
            _LOG.warning("%s", problem)
        self.problem = problem

    def _await_enough(self, opened: Opened) -> None:
        """Wait until a window has enough inferences, reaches its longest time, or is stopped."""
        seconds = 0.0
        while seconds < opened.longest_seconds:
            work = self.marks.present.work
            if seconds >= opened.seconds and work >= max(opened.inferences, 1):
                return
            if self.stopping.wait(min(_LOOK_SECONDS, opened.seconds)):
                return
            seconds = (monotonic_ns() - opened.begin_ns) / 1e9

    def _next_begin_ns(self) -> int:
        """Return the begin of the next window: without a gap, except after a long pause."""
        first_ns, now_ns = self.marks.present.first_ns, monotonic_ns()
        pause_ns = int((self.period or self.retry_seconds) * 1e9)
        if self._since_ns is None or (first_ns or now_ns) - self._since_ns > pause_ns:
            self._since_ns = None
            if first_ns is None:
                return now_ns
            return first_ns
        return self._since_ns

    def _end(self, opened: Opened) -> None:
        marks = self.marks.take()
        outcome, reason = self.ending if self.stopping.is_set() else ("ok", None)
        begin_ns, end_ns = opened.begin_ns, marks.last_ns
        if marks.work == 0:
            end_ns = monotonic_ns()
        elif self._since_ns is None and marks.first_ns is not None:
            begin_ns = max(begin_ns, marks.first_ns)  # loading a model is not an inference
        self._since_ns = end_ns
        body = marks.render(
            begin_ns,
            event="end",
            run_id=opened.run_id,
            end_ns=max(begin_ns, end_ns),
            inferences=marks.count or None,
            units=marks.units,
            phases=marks.phases_within(begin_ns, max(begin_ns, end_ns)) or None,
            misses=marks.misses,
            outcome=outcome,
            reason=reason,
        )
        self._post(body)

    def _post(self, body: bytes) -> Any:
        for _ in range(_BUSY_TRIES - 1):
            try:
                return self.client.post(WINDOWS_PATH, body)
            except RefusedError as error:
                if error.status != 503:
                    raise
                self.stopping.wait(self.busy_seconds)
        return self.client.post(WINDOWS_PATH, body)


class Window:
    """Marks of an application's own inference; the daemon pairs them with telemetry like a run.

    A window begins with its ``with`` block. Every method may be called from any thread.

    >>> with window("detector", device="dla0", url="http://127.0.0.1:9") as marks:
    ...     for frame in range(3):
    ...         with marks.stage("pre"):
    ...             image = [frame] * 3
    ...         with marks.inference():
    ...             found = sum(image)
    >>> marks.inferences
    3
    """

    def __init__(
        self,
        name: str,
        device: str | None = None,
        *,
        batch: int | None = None,
        unit: str | None = None,
        period: float | None = None,
        url: str | None = None,
        token_file: "str | os.PathLike[str] | None" = None,
        strict: bool = False,
        retry_seconds: float = 15.0,
        busy_seconds: float = 0.5,
    ) -> None:
        """Prepare; nothing is reported before ``start``.

        Args:
            name: A workload of the daemon's configuration with ``backend: window``.
            device: Device of the inference, to be checked against the configuration.
            batch: Inputs per inference; default: that of the configuration.
            unit: Name of what ``units`` counts, such as ``token``; default likewise.
            period: Seconds after which a long window is reported and the next one begins; default:
                as long as energy per inference requires.
            url: Address of the daemon; default: ``TEGRASCOPE_URL``, else the usual one on this
                machine.
            token_file: The daemon's token; default: ``TEGRASCOPE_TOKEN_FILE``, else its usual path.
            strict: Raise if the daemon does not accept a window. Otherwise there is one warning in
                the log ``tegrascope.window``, and the application continues.
            retry_seconds: Pause after a begin that failed.
            busy_seconds: Pause after status 503.
        """
        self.name = name
        self._strict = strict
        self._marks = MarkBuffer()
        self._make_reporter: Callable[[], Reporter] = lambda: Reporter(
            ApiClient(url, token_file),
            self._marks,
            {"workload": name, "device": device, "batch": batch, "unit": unit},
            period,
            retry_seconds,
            busy_seconds,
        )
        self._reporter: Reporter | None = None
        self._thread: Thread | None = None
        self._pid = 0

    @property
    def inferences(self) -> int:
        """Inferences so far."""
        return self._marks.total

    def start(self) -> "Window":
        """Begin, as the ``with`` block does.

        Raises:
            UserError: The window is ``strict``, and the daemon does not accept it.
        """
        if self._thread is None:
            begin_ns = monotonic_ns()
            self._marks.take()  # earlier marks belong to no window
            reporter = self._make_reporter()
            if self._strict:
                reporter.opened = reporter.begin(begin_ns)
            self._reporter, self._pid = reporter, os.getpid()
            self._thread = Thread(
                target=reporter.run, args=(begin_ns,), name="tegrascope-window", daemon=True
            )
            self._thread.start()
            atexit.register(self.stop)
        return self

    def stop(self, outcome: str = "ok", reason: str | None = None) -> None:
        """End, and report the remaining marks; also called when the interpreter exits.

        Args:
            outcome: ``ok``, ``failed`` or ``cancelled``.
            reason: Why, unless ``ok``.

        Raises:
            UserError: The window is ``strict``, and the daemon did not accept all of it.
        """
        thread, reporter = self._thread, self._reporter
        if thread is None or reporter is None or os.getpid() != self._pid:
            return  # a forked child has the object, but not the thread
        self._thread = None
        atexit.unregister(self.stop)
        reporter.ending = (outcome, None if reason is None else whole_characters(reason)[:400])
        reporter.stopping.set()
        self._marks.begun.set()
        thread.join(timeout=5.0)
        if self._strict and reporter.problem is not None:
            raise reporter.problem

    def __enter__(self) -> "Window":
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if kind is None or not issubclass(kind, Exception):
            self.stop()  # a process signal is not a failure
            return
        with suppress(UserError):  # it is in the log; the application's own error is raised
            self.stop("failed", f"{kind.__name__}: {error}")

    def inference(self) -> "Timed":
        """Return a ``with`` block or decorator that times and counts one inference.

        An inference that raises is not counted.
        """
        return Timed(self.record)

    def stage(self, name: str) -> "Timed":
        """Return a ``with`` block or decorator that times one stage.

        ``name`` is ``pre``, ``compute`` (``inference`` is the same) or ``post``.
        """
        if name not in STAGES:
            raise ValueError(f"{name!r} is not a stage: use pre, compute or post")
        return Timed(partial(self._marks.stage, STAGES[name]))

    def record(self, start_ns: int, end_ns: int) -> None:
        """Add an inference that was timed elsewhere, by ``time.monotonic_ns()``."""
        self._marks.inference(start_ns, end_ns)

    def count(self, inferences: int = 1) -> None:
        """Count completed inferences without times."""
        self._marks.counted(inferences, monotonic_ns())

    def units(self, number: float = 1) -> None:
        """Count completed units of work, beside the inferences."""
        self._marks.counted(0, monotonic_ns(), number)

    def phase(self, name: str | None) -> None:
        """Begin a phase of the work, such as ``prefill``: until the next one, or ``None``.

        Energy by phase is in the record of the run, and per unit for units counted in the phase.
        """
        if name is not None and not re.fullmatch(NAME_PATTERN, name):
            raise ValueError(f"{name!r} is not a phase: use small letters, digits and _")
        self._marks.phase(name, monotonic_ns())


window = Window


class Timed:
    """Times a block, or each call of a function; ``note`` gets start and end."""

    __slots__ = ("_note", "_start_ns")

    def __init__(self, note: Callable[[int, int], None]) -> None:
        self._note = note
        self._start_ns = 0

    def __enter__(self) -> None:
        self._start_ns = monotonic_ns()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if kind is None:
            self._note(self._start_ns, monotonic_ns())

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Time every call of a function."""
        note = self._note

        @wraps(function)
        def timed(*args: P.args, **kwargs: P.kwargs) -> R:
            with Timed(note):
                return function(*args, **kwargs)

        return timed
