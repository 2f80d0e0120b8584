"""DLA tasks of a trace become busy time by core: counts until now."""

import threading
from bisect import bisect_left, bisect_right
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any

from ...parsers import signals
from ...parsers.dla import (
    Ended,
    Firmware,
    Lost,
    Submitted,
    TraceEvent,
    TraceHello,
    Unavailable,
    parse_trace_line,
)
from ...parsers.errors import ParseError
from ...parsers.signals import Column, Signal
from ..base import SYSTEM_CLOCK, Clock, LineSource
from ..lines.companion import SILENCE_SECONDS, LineCompanion

MOST_STRETCHES = 1024


class BusyTime:
    """The length of the union of all stretches so far, in the unit of their begins and ends.

    The latest stretches are remembered one by one, so that a late one counts only where it
    overlaps no other. Earlier time is settled: of a stretch that reaches back there only the later
    part counts, and the rest is counted as ``late``.

    >>> busy = BusyTime()
    >>> [busy.add(*stretch) for stretch in ((10, 20), (40, 50), (15, 45), (12, 18))]
    [10, 10, 20, 0]
    >>> busy.total
    40
    """

    def __init__(self, most: int = MOST_STRETCHES) -> None:
        self._most = most
        self._begins: list[int] = []
        self._ends: list[int] = []
        self._settled: int | None = None
        self.total = 0
        self.late = 0

    def add(self, begin: int, end: int) -> int:
        """Count a stretch, and return how much of it is new."""
        if self._settled is not None and begin < self._settled:
            late_end = min(end, self._settled)
            self.late += late_end - begin
            begin = late_end
        if end <= begin:
            return 0
        # Stretches that touch it are merged with it.
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
        """Return whether a time lies within a remembered stretch; its end does not."""
        place = bisect_right(self._begins, at)
        return place > 0 and at < self._ends[place - 1]


# Rate of the architectural counter on Orin and Xavier.
COUNTER_HERTZ = 31_250_000.0
MOST_PENDING = 4096
LONGEST_TASK_NS = 60_000_000_000
# A lost submission may be mistaken for another one as long as its task may be in a queue.
_DOUBTFUL_NS = 1_000_000_000
# A free core begins its next task sooner than this.
_PROMPT_SECONDS = 20e-6
# Names of submitters that are counted on their own: each is a column.
MOST_SUBMITTERS = 10
# Two ends so far apart give the rate of the counter, though each is written a little late.
_CHECK_NS = (5_000_000_000, 30_000_000_000)
_CHECKS = 5
_WRONG_BY = 0.01


class CounterCheck:
    """Measures the rate of the counter by events with a count and, a moment later, a time."""

    def __init__(self, counter_hertz: float) -> None:
        self.counter_hertz = counter_hertz
        self.measured_hertz: float | None = None
        self._anchor: tuple[int, int] | None = None
        self._rates: deque[float] = deque(maxlen=_CHECKS)

    @property
    def is_wrong(self) -> bool:
        """Whether the counter runs at another rate than configured."""
        measured = self.measured_hertz
        return measured is not None and abs(measured / self.counter_hertz - 1) > _WRONG_BY

    def see(self, ticks: int, at_ns: int) -> None:
        """Take an event's count and the time at which it was written, a moment later."""
        if self._anchor is None:
            self._anchor = ticks, at_ns
        elapsed_ns = at_ns - self._anchor[1]
        if elapsed_ns < _CHECK_NS[0]:
            return
        if elapsed_ns <= _CHECK_NS[1]:
            self._rates.append((ticks - self._anchor[0]) * 1e9 / elapsed_ns)
        if len(self._rates) == _CHECKS:  # the median, for a suspend spoils one of them
            self.measured_hertz = sorted(self._rates)[_CHECKS // 2]
        self._anchor = ticks, at_ns


class DlaTasks:
    """Joins the submission of each task with its end, and counts.

    A task's id is unique among those in flight on one core. Its end does not name the core, so an
    id that is in flight on both is decided by time: the DLA began after the submission, one core
    has one task at a time, and it begins the next one as soon as it is free. If only the last rule
    decides, the task is counted as ``ambiguous`` too. A task counts when it has ended. Time is that
    of the counter itself, in which neighbours neither overlap nor lie apart because of a
    conversion.

    ``troubles`` counts irregular events by reason: ``lost`` events, ends ``unmatched`` by a
    submission, submissions ``unended``, ``ambiguous`` ones, ``odd`` stamps, ``late`` ends, and
    each ``gap`` in the trace.

    The busy time that a task adds counts for its submitter too, so that the submitters of a core
    add up to its busy time. A task counts for ``other`` if its submitter is not known, if there are
    too many, or if an event may be missing that would name another one: after lost events, and if
    the core was busy already. After an ambiguous end the cores may have been taken for each other,
    so until a core's next certain end no further ambiguous one counts for its submitter.
    """

    def __init__(
        self,
        counter_hertz: float = COUNTER_HERTZ,
        name_of: Callable[[Submitted], str | None] = attrgetter("thread"),
    ) -> None:
        """Prepare; ``name_of`` returns the name of a task's submitter, or ``None``."""
        self.counter = CounterCheck(counter_hertz)
        self.troubles: Counter[str] = Counter()
        self._busy: dict[int, BusyTime] = {}
        self._ended: Counter[int] = Counter()
        self._pending: dict[tuple[int, int], Submitted] = {}
        self._name_of = name_of
        self._names: set[str] = set()
        self._submitter_ticks: dict[int, Counter[str]] = {}
        self._has_lost = False
        self._lost_ns: int | None = None
        self._last_end: dict[int, int] = {}
        # Cores that may have been taken for each other since their last certain end.
        self._swapped: set[int] = set()
        self._prompt_ticks = counter_hertz * _PROMPT_SECONDS

    def know(self, core: int) -> None:
        """Add a core; until it has tasks, it was busy for no time."""
        self._busy.setdefault(core, BusyTime())
        self._submitter_ticks.setdefault(core, Counter())

    def take(self, event: TraceEvent) -> None:
        """Take an event; those that do not concern busy time are ignored."""
        if isinstance(event, (Submitted, Ended)) and self._has_lost:
            self._has_lost, self._lost_ns = False, event.at_ns
        if isinstance(event, Submitted):
            self._submit(event)
        elif isinstance(event, Ended):
            self._end(event)
        elif isinstance(event, Lost):
            self._has_lost = True
            # If the kernel does not know how many, it was at least one.
            self.troubles["lost"] += 1 if event.events is None else event.events

    def skip(self) -> None:
        """Note that events are missing here: tasks in flight will not be joined."""
        self._pending.clear()
        self.troubles["gap"] += 1

    def in_flight(self, core: int, now_ns: int, within_ns: int = LONGEST_TASK_NS) -> bool:
        """Return whether a core has a task that has not ended, as far as is known."""
        pending = self._pending.values()
        return any(one.core == core and now_ns - one.at_ns < within_ns for one in pending)

    def busy_seconds(self) -> dict[int, float]:
        """Return how long each core was busy until now."""
        hertz = self.counter.counter_hertz
        return {core: busy.total / hertz for core, busy in self._busy.items()}

    def busy_seconds_by_submitter(self) -> dict[int, dict[str, float]]:
        """Return the busy seconds of each core by the name of the submitter."""
        hertz = self.counter.counter_hertz
        by_core = {}
        for core, ticks_by_name in self._submitter_ticks.items():
            by_core[core] = {name: ticks / hertz for name, ticks in ticks_by_name.items()}
        return by_core

    def tasks(self) -> dict[int, int]:
        """Return how many tasks of each core have ended until now."""
        return {core: self._ended[core] for core in self._busy}

    def _submit(self, event: Submitted) -> None:
        if event.core is None:
            self.troubles["odd"] += 1
            return
        self.know(event.core)
        key = event.task, event.core
        # An id is used again once its sequence has wrapped; the earlier task has ended unseen.
        if self._pending.pop(key, None) is not None:
            self.troubles["unended"] += 1
        self._pending[key] = event
        if len(self._pending) > MOST_PENDING:
            del self._pending[next(iter(self._pending))]
            self.troubles["unended"] += 1

    def _end(self, event: Ended) -> None:
        """Join an end with the submission of its task, and count the time of the task."""
        waiting = [core for core in self._busy if (event.task, core) in self._pending]
        if not self._has_sound_stamps(event):
            self.troubles["odd"] += 1
            if len(waiting) == 1:  # without stamps, but it has ended
                self._finish(event.task, waiting[0])
            return
        self.counter.see(event.end_ticks, event.at_ns)
        if not waiting:
            self.troubles["unmatched"] += 1
            return
        before_begin = []
        for core in waiting:
            if self._pending[event.task, core].ticks <= event.begin_ticks:
                before_begin.append(core)
        possible = before_begin or waiting
        core, is_clear = self._core_of(event, possible)
        if not is_clear:
            self._doubt(event.task, possible)
        self._count(event, core, is_clear=is_clear)

    def _has_sound_stamps(self, event: Ended) -> bool:
        """Return whether the begin and the end of a task can be those of one task."""
        longest_ticks = LONGEST_TASK_NS / 1e9 * self.counter.counter_hertz
        return bool(event.end_ticks) and 0 <= event.end_ticks - event.begin_ticks <= longest_ticks

    def _core_of(self, event: Ended, possible: Sequence[int]) -> tuple[int, bool]:
        """Return which of the possible cores ran a task, and whether that is clear."""
        middle = _middle_ticks(event)
        free = [core for core in possible if not self._busy[core].is_busy_at(middle)] or possible
        waited = {core: self._waited_ticks(event, core) for core in free}
        core, *others = sorted(free, key=waited.__getitem__)
        if others:
            self.troubles["ambiguous"] += 1
        if len(possible) > 1 and not self._swapped.isdisjoint(possible):
            return core, False
        clear_ticks = 2 * waited[core] + self._prompt_ticks
        return core, all(waited[other] > clear_ticks for other in others)

    def _waited_ticks(self, event: Ended, core: int) -> int:
        """Return how long after the first chance a core would have begun a task.

        A core begins its next task as soon as it is free and the task is there.
        """
        submitted_ticks = self._pending[event.task, core].ticks
        return abs(event.begin_ticks - max(submitted_ticks, self._last_end.get(core, 0)))

    def _doubt(self, task: int, cores: Iterable[int]) -> None:
        """Forget who submitted the tasks of a number that may have been taken for each other.

        Another task than the one that ends now may stay behind, so its end is in doubt too.
        """
        for core in cores:
            mistaken = self._pending[task, core]
            self._pending[task, core] = mistaken._replace(thread=None, process=None)
            self._swapped.add(core)

    def _count(self, event: Ended, core: int, *, is_clear: bool) -> None:
        """Count a task that a core has ended, and its time for its submitter."""
        busy = self._busy[core]
        is_certain = is_clear and not busy.is_busy_at(_middle_ticks(event))
        self._last_end[core] = max(event.end_ticks, self._last_end.get(core, 0))
        submitted = self._pending[event.task, core]
        if is_clear and submitted.process is not None:
            self._swapped.discard(core)
        self._finish(event.task, core)
        late = busy.late
        gained = busy.add(event.begin_ticks, event.end_ticks)
        name = signals.UNKNOWN_PROCESS
        if is_certain:
            name = self._submitter(submitted, event)
        self._submitter_ticks[core][name] += gained
        if busy.late > late:
            self.troubles["late"] += 1

    def _submitter(self, submitted: Submitted, ended: Ended) -> str:
        """Return the name under which a task counts."""
        if self._has_lost:
            return signals.UNKNOWN_PROCESS
        lost_ns = self._lost_ns
        if lost_ns is not None and (
            submitted.at_ns <= lost_ns or ended.at_ns - lost_ns < _DOUBTFUL_NS
        ):
            return signals.UNKNOWN_PROCESS
        name = self._name_of(submitted) or signals.UNKNOWN_PROCESS
        if name not in self._names:
            if len(self._names) >= MOST_SUBMITTERS:
                return signals.UNKNOWN_PROCESS
            self._names.add(name)
        return name

    def _finish(self, task: int, core: int) -> None:
        del self._pending[task, core]
        self._ended[core] += 1


def _middle_ticks(event: Ended) -> int:
    """Return the middle of a task, which lies in no neighbour.

    Its begin is rounded to microseconds, so neighbours may seem to overlap.
    """
    return event.begin_ticks + (event.end_ticks - event.begin_ticks) // 2


class DlaTraceCompanion(LineCompanion):
    """Busy seconds and tasks of each DLA core until now, of all programs on this machine.

    The counts never fall while this lives. The busy ratio is the share of the time since the last
    look. A reader that is started again has missed events in between: a ``gap``.
    """

    name = "ftrace"

    def __init__(
        self,
        source: LineSource,
        *,
        counter_hertz: float = COUNTER_HERTZ,
        name_of: Callable[[Submitted], str | None] = attrgetter("thread"),
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Prepare; nothing is read before ``start``.

        Args:
            name_of: Returns the name of the process that submitted a task, or ``None``.
        """
        super().__init__(source, clock)
        self._tasks = DlaTasks(counter_hertz, name_of)
        self._lock = threading.Lock()
        self._alive_ns: int | None = None
        self._has_begun = False
        self._unavailable: str | None = None
        self._firmware: dict[int, float] = {}
        self._looked: tuple[int, dict[int, float]] | None = None

    @property
    def problem(self) -> str | None:
        """Why it gives no values, with the remedy."""
        if self._unavailable is not None or self.source.problem is not None:
            return self._unavailable or self.source.problem
        with self._lock:
            counter, has_cores = self._tasks.counter, bool(self._tasks.busy_seconds())
        if counter.is_wrong and counter.measured_hertz is not None:
            real, wrong = counter.measured_hertz / 1e6, counter.counter_hertz / 1e6
            what = f"the counter runs at {real:.4g} MHz and not at {wrong:.4g}"
            return f"{what}: set telemetry.dla_trace.counter_hertz"
        if self._has_begun and not has_cores:
            return "this machine has no DLA: telemetry.dla_trace is of no use here"
        return None

    def columns(self) -> Mapping[Column, float]:
        """Return the present values; none while the reader is silent or the counter is wrong."""
        now_ns = self._clock.monotonic_ns()
        with self._lock:
            alive_ns, firmware, self._firmware = self._alive_ns, self._firmware, {}
            is_silent = alive_ns is None or now_ns - alive_ns > SILENCE_SECONDS * 1e9
            if is_silent or self._tasks.counter.is_wrong:
                self._looked = None
                return {}
            busy, tasks = self._tasks.busy_seconds(), self._tasks.tasks()
            by_process = self._tasks.busy_seconds_by_submitter()
            troubles = dict(self._tasks.troubles)
        ratios: dict[int, float] = {}
        if self._looked is not None and now_ns > self._looked[0]:
            elapsed = (now_ns - self._looked[0]) / 1e9
            for core, before in self._looked[1].items():
                ratios[core] = min((busy[core] - before) / elapsed, 1.0)
        self._looked = now_ns, busy
        by_signal: dict[Signal, Mapping[Any, float]] = {
            signals.DLA_BUSY_SECONDS: busy,
            signals.DLA_TASKS: tasks,
            signals.DLA_BUSY: ratios,
            signals.DLA_FIRMWARE_LOAD: firmware,
            signals.DLA0_PROCESS_SECONDS: by_process.get(0, {}),
            signals.DLA1_PROCESS_SECONDS: by_process.get(1, {}),
            signals.DLA_TRACE_ERRORS: troubles,
        }
        columns: dict[Column, float] = {}
        for signal, values in by_signal.items():
            for label, value in values.items():
                columns[signal, str(label)] = value
        return columns

    def take(self, line: str, at_ns: int) -> None:
        """Take a line of the reader that arrived at ``at_ns``."""
        with self._lock:
            try:
                event = parse_trace_line(line)
            except ParseError:
                self._tasks.troubles["unparsed"] += 1
                return
            self._unavailable = event.why if isinstance(event, Unavailable) else None
            if self._unavailable is not None:
                return
            self._alive_ns = at_ns
            if isinstance(event, TraceHello):
                if self._has_begun:
                    self._tasks.skip()
                self._has_begun = True
                for core in event.cores:
                    self._tasks.know(core)
            elif isinstance(event, Firmware):
                self._firmware[event.core] = event.busy_ratio
            else:
                self._tasks.take(event)
