"""Lines of the DLA trace reader as a companion of the telemetry: busy time by core."""

import logging
import threading
from collections.abc import Mapping

from ...parsers import signals
from ...parsers.dla.trace import Firmware, TraceHello, Unavailable, parse_trace_line
from ...parsers.errors import ParseError
from ..base import SYSTEM_CLOCK, Clock, LineSource
from .tasks import COUNTER_HERTZ, DlaTasks

# The reader prints a sign of life every second, however idle the DLA.
SILENCE_SECONDS = 5.0

_LOG = logging.getLogger(__name__)


class DlaTraceCompanion:
    """Busy seconds and tasks of each DLA core until now, of all programs on this machine.

    Columns: ``dla.N.busy_seconds`` and ``dla.N.tasks``, counts that never fall while this lives;
    ``dla.N.busy_ratio``, the share of the time since the last look; ``dla.N.firmware_ratio`` if
    the firmware was asked since then; and ``dla.trace.REASON``, irregular events, if there are any.

    A reader that is started again has missed events in between: a ``gap``.
    """

    name = "ftrace"

    def __init__(
        self,
        source: LineSource,
        *,
        counter_hertz: float = COUNTER_HERTZ,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Prepare; nothing is read before ``start``."""
        self._source = source
        self._clock = clock
        self._tasks = DlaTasks(counter_hertz)
        self._lock = threading.Lock()
        self._alive_ns: int | None = None
        self._has_begun = False
        self._unavailable: str | None = None
        self._firmware: dict[int, float] = {}
        self._looked: tuple[int, dict[int, float]] | None = None
        self._thread = threading.Thread(target=self._run, name="dla-trace", daemon=True)

    @property
    def problem(self) -> str | None:
        """Why it gives no values, with the remedy."""
        if self._unavailable is not None or self._source.problem is not None:
            return self._unavailable or self._source.problem
        with self._lock:
            counter, has_cores = self._tasks.counter, bool(self._tasks.busy_seconds())
        if counter.is_wrong and counter.measured_hertz is not None:
            return (
                f"the counter runs at {counter.measured_hertz / 1e6:.4g} MHz and not at "
                f"{counter.counter_hertz / 1e6:.4g}: set telemetry.dla_trace.counter_hertz"
            )
        if self._has_begun and not has_cores:
            return "this machine has no DLA: telemetry.dla_trace is of no use here"
        return None

    def start(self) -> None:
        """Start the thread that reads."""
        self._thread.start()

    def columns(self) -> Mapping[str, float]:
        """Return the present values; none while the reader is silent or the counter is wrong."""
        now_ns = self._clock.monotonic_ns()
        with self._lock:
            alive_ns, firmware, self._firmware = self._alive_ns, self._firmware, {}
            is_silent = alive_ns is None or now_ns - alive_ns > SILENCE_SECONDS * 1e9
            if is_silent or self._tasks.counter.is_wrong:
                self._looked = None
                return {}
            busy, tasks = self._tasks.busy_seconds(), self._tasks.tasks()
            troubles = dict(self._tasks.troubles)
        found: dict[str, float] = {}
        for core, seconds in busy.items():
            found[signals.DLA_BUSY_SECONDS.column(core)] = seconds
            found[signals.DLA_TASKS.column(core)] = tasks[core]
        if self._looked is not None and now_ns > self._looked[0]:
            elapsed = (now_ns - self._looked[0]) / 1e9
            for core, before in self._looked[1].items():
                found[signals.DLA_BUSY.column(core)] = min((busy[core] - before) / elapsed, 1.0)
        self._looked = now_ns, busy
        for core, ratio in firmware.items():
            found[signals.DLA_FIRMWARE_LOAD.column(core)] = ratio
        for reason, count in troubles.items():
            found[signals.DLA_TRACE_ERRORS.column(reason)] = count
        return found

    def stop(self) -> None:
        """End the source and the thread."""
        self._source.stop()
        if self._thread.is_alive():
            self._thread.join(timeout=2.0)

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

    def _run(self) -> None:
        try:
            for line in self._source.lines():
                self.take(line.value, line.monotonic_ns)
        except Exception:
            _LOG.exception("the trace of the DLA stops")
