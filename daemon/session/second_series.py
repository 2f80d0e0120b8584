"""A second series of the power of the module, read only while a run is measured.

Work that repeats in step with the lines of telemetry looks like constant power to them, or like a
slow change. Readings at an interval in no small ratio to that of the lines show it.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from itertools import count

from ...collectors.base import SYSTEM_CLOCK, Clock, PowerReader
from ...collectors.outages import failure_text
from ...parsers.signals import by_name
from ..measure.blocks import WindowSlice
from ..measure.timeline import Timeline

_LOG = logging.getLogger(__name__)

# Beside lines that are this far apart or farther, a reading in 211 ms is enough.
_FAR_APART_MS = 400
_FIRST_MS, _FIRST_MS_OF_NEAR = 211, 83
# Work in step with both series would repeat a whole number of times in an interval of each. Work
# that repeats up to so often in an interval of the second series is looked at. Else no interval
# would be left.
_MOST_REPEATS = 12
# With the fewest samples of a window, 100, such work is three cycles off in one of the two series.
# A lock is less than one and a half.
_FARTHEST_OFF = 0.03
# After so many readings in a row that failed or were slow, the rest of the windows has none.
_FAILURES_AT_MOST = 5
# A reading of an earlier window is no neighbour of this one.
_FARTHEST_NEIGHBOUR_NS = 1_000_000_000
# A file that never answers keeps the thread, and with it the windows that nobody reads in.
_WINDOWS_AT_MOST = 256
# A reading that takes longer than this part of the interval holds tegrastats up too often: sensors
# share a bus and a lock with it.
_LONGEST_READING = 0.5
_STOP_SECONDS = 2.0
_FAR_OFF_NS = 1 << 62


def second_interval_ms(interval_ms: float) -> int:
    """Return the interval of the second series beside lines of an interval, in milliseconds.

    It is the first of 211, 212, 213 … (83, 84, … beside lines less than 400 ms apart) with which no
    work of up to 12 repeats per interval of the second series is in step with both: the number of
    repeats per interval of the lines is at least 0.03 away from a whole one.

    >>> second_interval_ms(1009), second_interval_ms(103)
    (211, 83)
    >>> second_interval_ms(1055), second_interval_ms(100)
    (213, 84)
    """
    first = _FIRST_MS if interval_ms >= _FAR_APART_MS else _FIRST_MS_OF_NEAR
    # Far above the interval of the lines, none of the numbers is near a whole one.
    return next(ms for ms in count(first) if _are_out_of_step(interval_ms / ms))


def _are_out_of_step(ratio: float) -> bool:
    for repeats in range(1, _MOST_REPEATS + 1):
        in_other = repeats * ratio
        if abs(in_other - round(in_other)) < _FARTHEST_OFF:
            return False
    return True


class SecondSeries:
    """Readings of some rails beside the lines of telemetry, while a window of a run is open.

    A thread reads them; it begins with a window and ends with the last one. Nothing is open, and
    nothing runs, in between. At most an hour of readings is kept.

    Example::

        second = SecondSeries(lambda rails: RailPower(Path("/"), rails))
        second.begin("a run", ["VDD_IN"], interval_seconds=1.009)
        ...
        second.end("a run", clock.monotonic_ns())
        samples = second.cut(begin_ns, end_ns)

    Attributes:
        readings: How many were taken.
        reading_seconds: How long they took, mostly waiting for a sensor.
        cpu_seconds: Processor time that they took.
        problem: Why the thread gave up in the last windows.
    """

    def __init__(
        self,
        open_power: Callable[[Sequence[str]], PowerReader],
        *,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Prepare; ``open_power`` returns a reader of rails."""
        self.readings = 0
        self.reading_seconds = self.cpu_seconds = 0.0
        self.problem: str | None = None
        self._open_power = open_power
        self._clock = clock
        self._timeline = Timeline(source="hwmon")
        self._lock = threading.Lock()
        self._ends_ns: dict[str, int] = {}  # of each window
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()

    def begin(self, run_id: str, rails: Sequence[str], interval_seconds: float) -> None:
        """Read from now on, for a run; the interval is that of the lines of telemetry."""
        with self._lock:
            if len(self._ends_ns) >= _WINDOWS_AT_MOST:
                return
            self._ends_ns[run_id] = _FAR_OFF_NS
            if self._thread is None and not self._stopping.is_set():
                step_ns = second_interval_ms(1000 * interval_seconds) * 1_000_000
                self._thread = threading.Thread(
                    target=self._run, args=(rails, step_ns), name="second series", daemon=True
                )
                self._thread.start()

    def end(self, run_id: str, at_ns: int) -> None:
        """End the window of a run; ignore one that was not begun."""
        with self._lock:
            if run_id in self._ends_ns:
                self._ends_ns[run_id] = at_ns

    def cut(self, begin_ns: int, end_ns: int) -> WindowSlice:
        """Return the readings of a window, and the neighbour on each side of it."""
        samples = self._timeline.cut(begin_ns, end_ns)
        near = samples.inside(begin_ns - _FARTHEST_NEIGHBOUR_NS, end_ns + _FARTHEST_NEIGHBOUR_NS)
        return samples.only(range(near.start, near.stop))

    def stop(self) -> None:
        """End the thread; one whose file never answers is left behind."""
        self._stopping.set()
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join(_STOP_SECONDS)

    def _run(self, rails: Sequence[str], step_ns: int) -> None:
        """Read until no window is open, or until too many readings in a row failed."""
        reader = self._open_power(rails)
        planned_ns, failures = self._clock.monotonic_ns(), 0
        while self._goes_on(planned_ns - step_ns, failures):
            try:
                problem = self._read(reader, planned_ns, step_ns)
            except Exception as error:  # a fault of ours costs the second series only
                _LOG.debug("second series", exc_info=True)
                problem = failure_text(error)
            failures = 0 if problem is None else failures + 1
            if failures == _FAILURES_AT_MOST and problem != self.problem:
                _LOG.info("there is no second series of readings: %s", problem)
                self.problem = problem
            # A reading whose time has passed is left out, or the next ones would come in a bundle.
            missed = max(0, self._clock.monotonic_ns() - planned_ns) // step_ns
            planned_ns += (missed + 1) * step_ns
            self._clock.wait(self._stopping, planned_ns)
        reader.close()

    def _goes_on(self, last_ns: int, failures: int) -> bool:
        """Return whether to read again after the last reading; else a next window has a new thread.

        The first reading after the end of a window is its neighbour.
        """
        with self._lock:
            open_windows = {}
            for run_id, end_ns in self._ends_ns.items():
                if end_ns > last_ns:
                    open_windows[run_id] = end_ns
            self._ends_ns = open_windows
            if open_windows and failures < _FAILURES_AT_MOST and not self._stopping.is_set():
                return True
            self._thread = None
            return False

    def _read(self, reader: PowerReader, planned_ns: int, step_ns: int) -> str | None:
        """Take a reading; return what is wrong with it."""
        begin_ns, begin_cpu = self._clock.monotonic_ns(), time.thread_time()
        reading = reader.read(planned_ns)
        now_ns = self._clock.monotonic_ns()
        if reading is None:
            return reader.problem
        at_ns, columns = reading
        self._timeline.append(at_ns, self._clock.wall_ns() + at_ns - now_ns, by_name(columns))
        self.readings += 1
        self.cpu_seconds += time.thread_time() - begin_cpu
        took_ns = now_ns - begin_ns
        self.reading_seconds += took_ns / 1e9
        if took_ns > _LONGEST_READING * step_ns:
            longest_ms = _LONGEST_READING * step_ns / 1e6
            return f"a reading takes more than {longest_ms:.0f} ms, half of their interval"
        return None
