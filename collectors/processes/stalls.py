"""Evidence of this process around an inference that missed its deadline.

An inference is never looked at while it runs. Between two inferences some counters of the kernel
are read: after each miss, and otherwise after at least ten milliseconds. This needs the standard
library only.
"""

import os
import resource
import signal
from collections import deque
from contextlib import suppress
from typing import ClassVar, NamedTuple

from ...parsers.inference.marks import STALLS_AT_MOST

# One look takes some microseconds: 0.05 % of this.
_LOOK_NS = 10_000_000
# The unit of getrusage(2) on Linux.
_BLOCK_BYTES = 512
# Inferences in flight at once may have begun before the last look.
_LOOKS_AT_MOST = 128


StallFields = dict[str, int | float | None]
"""The fields of a ``Stall`` (``parsers/inference/events.py``)."""


class _Look(NamedTuple):
    """Counters of the process and of the calling thread at a time."""

    at_ns: int
    waited_ns: int | None
    major_faults: int
    read_bytes: int
    continued: int


class StallWatch:
    """Looks at this process between inferences.

    Attributes:
        continuations: How often the process continued after a stop, since ``count_continuations``.
    """

    continuations: ClassVar[int] = 0

    def __init__(self, deadline_ns: int, now_ns: int, *, is_of_one_thread: bool = True) -> None:
        """Take the first look, now.

        Args:
            deadline_ns: Latency beyond which an inference is a miss.
            is_of_one_thread: Whether this thread makes all inferences; else its waits are no
                evidence.
        """
        self._misses = 0
        self._stalls: deque[StallFields] = deque(maxlen=STALLS_AT_MOST)
        self._deadline_ns = deadline_ns
        self._schedstat = -1
        if is_of_one_thread:
            with suppress(OSError):  # the kernel does not count it
                self._schedstat = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
        self._looks: deque[_Look] = deque([self._look(now_ns)], maxlen=_LOOKS_AT_MOST)
        self._next_ns = now_ns + _LOOK_NS
        # Spans without a miss: all of them, the waits in them, and those with a major fault.
        self._usual_ns = self._usual_waited_ns = self._usual_fault_ns = 0

    def close(self) -> None:
        """Close the file of the kernel."""
        if self._schedstat >= 0:
            os.close(self._schedstat)
            self._schedstat = -1

    def add(self, start_ns: int, end_ns: int) -> None:
        """Take the times of an inference that is complete, before the next one begins."""
        if end_ns - start_ns > self._deadline_ns:
            self._miss(start_ns, end_ns)
        elif end_ns >= self._next_ns:
            before, now = self._looks[-1], self._look(end_ns)
            span_ns = end_ns - before.at_ns
            self._usual_ns += span_ns
            self._usual_waited_ns += (now.waited_ns or 0) - (before.waited_ns or 0)
            if now.major_faults > before.major_faults:
                self._usual_fault_ns += span_ns
            self._keep(now)

    def take(self) -> tuple[int, list[StallFields]]:
        """Return the number of misses since the last call, and the last ones of them."""
        taken = self._misses, list(self._stalls)
        self._misses = 0
        self._stalls.clear()
        return taken

    def _miss(self, start_ns: int, end_ns: int) -> None:
        self._misses += 1
        now = self._look(end_ns)
        before = next(
            (one for one in reversed(self._looks) if one.at_ns <= start_ns), self._looks[0]
        )
        waited_ns = None
        if now.waited_ns is not None and before.waited_ns is not None:
            waited_ns = now.waited_ns - before.waited_ns
        usual_ns = max(self._usual_ns, 1)
        self._stalls.append(
            {
                "start_ns": start_ns,
                "waited_ns": waited_ns,
                "major_faults": now.major_faults - before.major_faults,
                "read_bytes": now.read_bytes - before.read_bytes,
                "continued": now.continued - before.continued,
                "usual_wait_ratio": min(1.0, self._usual_waited_ns / usual_ns),
                "usual_fault_ratio": min(1.0, self._usual_fault_ns / usual_ns),
            }
        )
        self._keep(now)

    def _keep(self, look: _Look) -> None:
        self._looks.append(look)
        self._next_ns = look.at_ns + _LOOK_NS

    def _look(self, now_ns: int) -> _Look:
        waited_ns = None
        if self._schedstat >= 0:
            waited_ns = int(os.pread(self._schedstat, 64, 0).split()[1])
        used = resource.getrusage(resource.RUSAGE_SELF)
        read_bytes = used.ru_inblock * _BLOCK_BYTES
        return _Look(now_ns, waited_ns, used.ru_majflt, read_bytes, StallWatch.continuations)


def count_continuations() -> None:
    """Count from now on how often this process continues after a stop; for the main thread.

    A stop itself cannot be noticed: SIGSTOP has no handler, but SIGCONT has.
    """

    def count(*_: object) -> None:
        StallWatch.continuations += 1

    signal.signal(signal.SIGCONT, count)
    # Calls of a driver go on after a stop, as they do without a handler.
    signal.siginterrupt(signal.SIGCONT, False)
