"""Windows that applications mark: kept while open, then paired and committed as runs."""

import json
import logging
import queue
import threading
from array import array
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, ValidationError
from pydantic import model_validator as _model_validator

from ...parsers.errors import UserError
from ...parsers.inference.events import StageName, UnitCount, UnitName
from ...parsers.inference.marks import (
    PHASE_NAMES_AT_MOST,
    PHASES_AT_MOST,
    TIMES_AT_MOST,
)
from ...parsers.records import Record
from ..measure.quality import MINIMUM_INFERENCES, MINIMUM_SAMPLES, MINIMUM_SECONDS
from ..measure.report import Device, Outcome, WorkPhase
from ..measure.trace import OnStep, RunTrace
from ..settings.config import Workload
from .session import Job, Session, begin_trace

BODY_AT_MOST = 1024 * 1024
_LONGEST_SECONDS = 3600.0
OPEN_AT_MOST = 64
# Each may hold half a megabyte of times until it is paired.
WAITING_AT_MOST = 16
_OLDEST_NS = 3600 * 1_000_000_000

_LOG = logging.getLogger(__name__)

# Limit of a 64-bit array, with room for a sum of two values.
_Nanoseconds = Annotated[int, Field(ge=0, lt=1 << 62)]
_Times = Annotated[tuple[_Nanoseconds, ...], Field(max_length=TIMES_AT_MOST)]


class RefusedMarkError(UserError):
    """A refused mark, with its HTTP status."""

    def __init__(self, status: int, what: str, remedy: str) -> None:
        super().__init__(what, remedy)
        self.status = status


class Begin(Record):
    """A window begins; by default now, with the batch and the timeout of the workload.

    A device or unit is refused if it differs from the configuration. A window without an end is
    closed as failed after the timeout. With ``lock_in_seconds``, the answer has the lengths of off-
    and on-steps for so long.
    """

    event: Literal["begin"]
    workload: str
    device: Device | None = None
    batch: PositiveInt | None = None
    unit: UnitName | None = None
    begin_ns: _Nanoseconds | None = None
    timeout_seconds: Annotated[PositiveFloat, Field(le=_LONGEST_SECONDS)] | None = None
    lock_in_seconds: Annotated[PositiveFloat, Field(le=_LONGEST_SECONDS / 2)] | None = None


class Content(Record):
    """The inferences of a window.

    Attributes:
        inferences: Number of complete ones, at least as many as were timed; ``None`` if not
            counted.
        units: Number of the workload's units; ``None`` likewise.
        start_ns: Starts of the timed ones, shape (n,), on CLOCK_MONOTONIC.
        latency_ns: Duration of each, shape (n,).
        stages_ns: Durations by stage, shape (m,).
        phases: Its phases in order of time, of up to eight names.
        misses: Inferences that missed the deadline, at least as many as the times show.
        stalls: Sent by the client of older releases, and not read.
    """

    inferences: Annotated[NonNegativeInt, Field(le=10**12)] | None = None
    units: UnitCount | None = None
    outcome: Literal["ok", "failed", "cancelled"] = "ok"
    reason: Annotated[str, Field(max_length=400)] | None = None
    start_ns: _Times = ()
    latency_ns: _Times = ()
    stages_ns: dict[StageName, _Times] = {}
    phases: Annotated[tuple[WorkPhase, ...], Field(max_length=PHASES_AT_MOST)] = ()
    misses: Annotated[NonNegativeInt, Field(le=10**12)] | None = None
    stalls: object = None

    @_model_validator(mode="after")
    def _agrees(self) -> "Content":
        if len(self.start_ns) != len(self.latency_ns):
            raise ValueError(
                f"start_ns has {len(self.start_ns)} times and latency_ns {len(self.latency_ns)}; "
                "they go together, one each for an inference"
            )
        if self.inferences is not None and self.inferences < len(self.start_ns):
            raise ValueError(f"inferences is {self.inferences}, and {len(self.start_ns)} are timed")
        if self.misses is not None and self.misses > (self.inferences or 0):
            raise ValueError(f"misses is {self.misses}, and inferences is {self.inferences or 0}")
        return self


class End(Content):
    """The window ``run_id`` ends; its begin may be corrected to that of its first inference.

    ``on_steps`` are begin, end and number of pieces of each, if it began with a lock-in.
    """

    event: Literal["end"]
    on_steps: Annotated[tuple[OnStep, ...], Field(max_length=TIMES_AT_MOST)] = ()
    run_id: str
    begin_ns: _Nanoseconds | None = None
    end_ns: _Nanoseconds | None = None


class Whole(Content):
    """A complete window in one message; times are CLOCK_MONOTONIC."""

    workload: str
    device: Device | None = None
    batch: PositiveInt | None = None
    unit: UnitName | None = None
    begin_ns: _Nanoseconds
    end_ns: _Nanoseconds


def read_mark(body: bytes) -> Begin | End | Whole:
    """Parse a posted mark, or raise a ``RefusedMarkError`` that names the wrong key.

    >>> read_mark(b'{"event": "begin", "workload": "detector"}').workload
    'detector'
    """
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise RefusedMarkError(400, "the body is not a JSON object", 'send {"event": "begin", …}')
    event = document.get("event")
    kind: type[Begin | End | Whole]
    if event is None:
        kind = Whole
    elif event == "begin":
        kind = Begin
    elif event == "end":
        kind = End
    else:
        raise RefusedMarkError(
            400, f"event is {str(event)[:40]!r}", "it is begin, end, or left out"
        )
    try:
        return kind.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        what = f"{where}: {first['msg']}" if where else first["msg"]
        raise RefusedMarkError(400, what[:300], "docs/windows.md has every key") from None


@dataclass(frozen=True)
class _Window:
    """An open window; it is closed as failed after its timeout."""

    trace: RunTrace
    closes_ns: int
    timeout_seconds: float
    suspended_ns: int  # at its begin


class WindowKeeper(threading.Thread):
    """Accepts marks from any thread, and makes a run of each window in its own thread."""

    def __init__(self, session: Session, workloads: Callable[[], Collection[Workload]]) -> None:
        """Prepare; ``workloads`` returns those that are configured now."""
        super().__init__(name="windows", daemon=True)
        self._session = session
        self._workloads = workloads
        self._lock = threading.Lock()
        self._open: dict[str, _Window] = {}
        self._waiting = 0
        self._ended: queue.SimpleQueue[RunTrace | None] = queue.SimpleQueue()
        self._stopping = threading.Event()

    def stop(self, timeout_seconds: float = 2.0) -> None:
        """Cancel open windows, and pair the waiting ones with the present telemetry."""
        self._stopping.set()
        with self._lock:
            left = list(self._open.values())
            self._open.clear()
        for window in left:
            self._give_up(window, "cancelled", "the daemon is stopping")
        self._ended.put(None)
        if self.is_alive():
            self.join(timeout_seconds)

    def tick(self) -> None:
        """Close windows beyond their timeout; call this regularly."""
        now_ns = self._session.clock.monotonic_ns()
        with self._lock:
            late = [window for window in self._open.values() if window.closes_ns <= now_ns]
            for window in late:
                del self._open[window.trace.run_id]
        for window in late:
            reason = f"the application did not end it within {window.timeout_seconds:g} s"
            self._give_up(window, "failed", reason)

    def take(self, body: bytes) -> dict[str, object]:
        """Accept a mark and return the answer, or raise ``RefusedMarkError``."""
        mark = read_mark(body)
        self._check_running()
        if isinstance(mark, Begin):
            return self._begin(mark)
        if isinstance(mark, End):
            return {"run_id": self._end(mark)}
        return {"run_id": self._whole(mark)}

    def _begin(self, mark: Begin) -> dict[str, object]:
        session, now_ns = self._session, self._session.clock.monotonic_ns()
        begin_ns = now_ns if mark.begin_ns is None else mark.begin_ns
        workload = self._workload(mark)
        _check_times(begin_ns, now_ns, now_ns)
        trace = self._trace(workload, mark, begin_ns, now_ns)
        trace.begins["steady"] = begin_ns
        seconds = mark.timeout_seconds or workload.timeout_seconds
        steps = {}
        if mark.lock_in_seconds is not None:
            try:
                trace.pattern = session.plan_lock_in(mark.lock_in_seconds)
            except UserError as problem:
                raise RefusedMarkError(409, problem.message, problem.remedy) from None
            steps = {"steps_seconds": trace.pattern.steps_seconds}
            seconds = mark.timeout_seconds or max(seconds, 2 * mark.lock_in_seconds)
        window = _Window(trace, now_ns + int(seconds * 1e9), seconds, session.suspended_ns())
        with self._lock:
            self._check_running()
            if len(self._open) >= OPEN_AT_MOST:
                raise RefusedMarkError(
                    503, f"{OPEN_AT_MOST} windows are open", "end some, or try later"
                )
            # Committed before it can end, or its end would be overwritten.
            session.begin(trace, "the daemon ended during it")
            self._open[trace.run_id] = window
            session.times.set_work(trace.run_id, "steady", begin_ns)
            session.times.set_in_flight(trace.run_id, trace.device, begin_ns)
            session.begin_window(trace.run_id)
        session.live.run_began(workload.name, trace.run_id, None, session.clock.wall_ns() / 1e9)
        interval = session.timeline.interval_seconds or 0.0
        return {
            "run_id": trace.run_id,
            "timeout_seconds": seconds,
            "enough": {
                "seconds": max(MINIMUM_SECONDS, 1.1 * MINIMUM_SAMPLES * interval),
                "inferences": MINIMUM_INFERENCES,
            },
            "deadline_seconds": workload.deadline,
            **steps,
        }

    def _end(self, mark: End) -> str:
        now_ns = self._session.clock.monotonic_ns()
        end_ns = now_ns if mark.end_ns is None else mark.end_ns
        with self._lock:
            window = self._open.get(mark.run_id)
            if window is None:
                raise RefusedMarkError(
                    404,
                    f"no window {mark.run_id[:40]} is open",
                    "it was ended, closed after its timeout, or lost with an earlier daemon; "
                    "begin another",
                )
            begun_ns = window.trace.begins["steady"]
            begin_ns = begun_ns if mark.begin_ns is None else mark.begin_ns
            if begin_ns < begun_ns:
                what = f"begin_ns is {_apart(begun_ns, begin_ns)} before the begin"
                raise RefusedMarkError(400, what, "leave it out, or name a later one")
            _check_times(begin_ns, end_ns, now_ns)
            _check_contents(mark, begin_ns, end_ns)
            _check_steps(mark, begin_ns, end_ns, planned=window.trace.pattern is not None)
            self._take_place()
            del self._open[mark.run_id]
        window.trace.on_steps = mark.on_steps
        window.trace.suspended_ns = self._session.suspended_ns() - window.suspended_ns
        self._close(window.trace, mark, begin_ns, end_ns)
        return mark.run_id

    def _whole(self, mark: Whole) -> str:
        now_ns = self._session.clock.monotonic_ns()
        workload = self._workload(mark)
        _check_times(mark.begin_ns, mark.end_ns, now_ns)
        _check_contents(mark, mark.begin_ns, mark.end_ns)
        with self._lock:
            self._take_place()
        trace = self._trace(workload, mark, mark.begin_ns, now_ns)
        self._close(trace, mark, mark.begin_ns, mark.end_ns)
        return trace.run_id

    def _workload(self, mark: Begin | Whole) -> Workload:
        known: dict[str, Workload] = {}
        for configured in self._workloads():
            if configured.is_window:
                known[configured.name] = configured
        workload = known.get(mark.workload)
        if workload is None:
            name, device = mark.workload[:80], mark.device or "gpu"
            remedy = f"add {{name: {name}, backend: window, device: {device}}} to workloads"
            if known:
                remedy = f"configured are: {', '.join(known)}"
            raise RefusedMarkError(404, f"no workload {name} with backend: window", remedy)
        if mark.device is not None and mark.device != workload.device:
            what = f"{workload.name} is configured for {workload.device}, not for {mark.device}"
            raise RefusedMarkError(409, what, "leave the device out, or change the configuration")
        if workload.unit is not None and mark.unit not in (None, workload.unit):
            what = f"{workload.name} is configured for the unit {workload.unit}, not {mark.unit}"
            raise RefusedMarkError(409, what, "leave the unit out, or change the configuration")
        return workload

    def _trace(
        self, workload: Workload, mark: Begin | Whole, begin_ns: int, now_ns: int
    ) -> RunTrace:
        trace = begin_trace(Job(workload), self._session)
        return replace(
            trace,
            started_ns=begin_ns,
            started_wall_ns=max(0, trace.started_wall_ns - (now_ns - begin_ns)),
            batch=mark.batch or workload.batch,
            unit=workload.unit or mark.unit,
            has_device_clock=False,
        )

    def _check_running(self) -> None:
        if self._stopping.is_set():
            raise RefusedMarkError(503, "the daemon is stopping", "try again later")

    def _take_place(self) -> None:
        """Reserve a place among the windows that wait for pairing; the lock is held."""
        if self._waiting >= WAITING_AT_MOST:
            raise RefusedMarkError(
                503, f"{WAITING_AT_MOST} windows wait to be paired", "try again in 1 s"
            )
        self._waiting += 1

    def _close(self, trace: RunTrace, content: Content, begin_ns: int, end_ns: int) -> None:
        trace.begins["steady"], trace.ends["steady"] = begin_ns, end_ns
        trace.ended_ns = end_ns
        trace.start_ns = array("q", content.start_ns)
        trace.latency_ns = array("q", content.latency_ns)
        trace.stages_ns = {name: array("q", each) for name, each in content.stages_ns.items()}
        trace.work_phases = content.phases
        trace.inference_count = content.inferences
        if trace.unit is not None:
            trace.units = content.units
        trace.missed_inferences = content.misses
        trace.counts_inferences = content.inferences is not None or bool(content.start_ns)
        self._session.times.set_work(trace.run_id, "steady", begin_ns, end_ns)
        self._session.times.set_in_flight(trace.run_id, trace.device, begin_ns, end_ns)
        self._session.end_window(trace.run_id, end_ns)
        reason: str | None = None
        if content.outcome != "ok":
            reason = content.reason or "the application gave no reason"
        trace.finish(content.outcome, reason)
        self._ended.put(trace)

    def _give_up(self, window: _Window, outcome: Outcome, reason: str) -> None:
        """Close a window of which only the begin is known."""
        trace, times = window.trace, self._session.times
        trace.ended_ns = self._session.clock.monotonic_ns()
        times.end_work(trace.run_id, trace.ended_ns)
        begin_ns = trace.begins["steady"]
        times.set_in_flight(trace.run_id, trace.device, begin_ns, trace.ended_ns)
        self._session.end_window(trace.run_id, trace.ended_ns)
        with self._lock:
            self._waiting += 1
        trace.finish(outcome, reason)
        self._ended.put(trace)

    def run(self) -> None:
        """Pair ended windows until ``stop``."""
        while True:
            trace = self._ended.get()
            if trace is None:
                return
            try:
                self._finish(trace)
            except Exception:
                _LOG.exception("%s: window %s failed in the daemon", trace.workload, trace.run_id)
                self._fail(trace)
            finally:
                with self._lock:
                    self._waiting -= 1

    def _finish(self, trace: RunTrace) -> None:
        session = self._session
        report = session.complete(trace, self._stopping.is_set)
        wall_seconds = session.clock.wall_ns() / 1e9
        session.live.counted(
            trace.workload,
            trace.run_id,
            report.inferences,
            trace.latency_ns,
            wall_seconds,
            trace.missed_inferences or 0,
            report.units or 0.0,
        )

    def _fail(self, trace: RunTrace) -> None:
        """Record a window that failed because of an internal error, without its content."""
        bare = trace.without_events()
        bare.finish("failed", "the daemon itself failed on it; see its log")
        try:
            self._finish(bare)
        except Exception:
            _LOG.exception("%s: window %s is lost", trace.workload, trace.run_id)


def _check_times(begin_ns: int, end_ns: int, now_ns: int) -> None:
    """Raise if a window is not within this machine's last hour."""
    if max(begin_ns, end_ns) > now_ns:
        raise RefusedMarkError(
            400,
            f"the window lies {_apart(max(begin_ns, end_ns), now_ns)} in the future",
            "times are nanoseconds of CLOCK_MONOTONIC on the daemon's machine, as of "
            "time.monotonic_ns()",
        )
    if begin_ns < now_ns - _OLDEST_NS:
        what = f"the window began {_apart(now_ns, begin_ns)} ago"
        raise RefusedMarkError(400, what, "the telemetry of one hour is kept; post sooner")
    if end_ns < begin_ns:
        what = f"the window ends {_apart(begin_ns, end_ns)} before it begins"
        raise RefusedMarkError(400, what, "end_ns is after begin_ns")


def _check_contents(content: Content, begin_ns: int, end_ns: int) -> None:
    """Raise if an inference or a phase is not entirely inside its window."""
    pairs = zip(content.start_ns, content.latency_ns, strict=True)
    for number, (start, latency) in enumerate(pairs):
        if start < begin_ns or start + latency > end_ns:
            what = f"start_ns.{number}: this inference is not wholly in the window"
            raise RefusedMarkError(400, what, "leave it out, or widen the window")

    edges = [begin_ns]
    for phase in content.phases:
        edges += [phase.begin_ns, phase.end_ns]
    names = {phase.name for phase in content.phases}
    if edges != sorted(edges) or edges[-1] > end_ns or len(names) > PHASE_NAMES_AT_MOST:
        what = "phases: they are not in order of time, not in the window, or of too many names"
        remedy = f"send each with begin_ns and end_ns, of up to {PHASE_NAMES_AT_MOST} names"
        raise RefusedMarkError(400, what, remedy)


def _check_steps(end: End, begin_ns: int, end_ns: int, *, planned: bool) -> None:
    """Raise if on-steps are not planned, not in order, or not in the window."""
    if not end.on_steps:
        return
    edges: list[int] = []
    for step in end.on_steps:
        edges += [step.begin_ns, step.end_ns]
    increase = all(earlier < later for earlier, later in pairwise(edges))
    are_inside = begin_ns <= edges[0] and edges[-1] <= end_ns
    have_pieces = all(step.pieces > 0 for step in end.on_steps)
    if not (planned and increase and are_inside and have_pieces):
        raise RefusedMarkError(
            400,
            "on_steps: they are [begin_ns, end_ns, pieces] in order, within a lock-in window",
            "begin it with lock_in_seconds",
        )


def _apart(later_ns: int, earlier_ns: int) -> str:
    return f"{(later_ns - earlier_ns) / 1e9:.3g} s"
