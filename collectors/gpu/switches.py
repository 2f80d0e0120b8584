"""Context switches of the GPU become time by process.

Only the standard library, because the privileged reader uses it. No board has confirmed that the
driver's entries are as its public header describes them.
"""

from collections import Counter
from typing import Final

from ...parsers.nvgpu import CONTEXT_START, ENGINE_RESET, MOMENTS, STOPS, SwitchEntry

UNKNOWN: Final = 0
"""Stands for the owner of time that is not known; no process has this number."""
# An entry arrives at most so much later than its time.
_SLACK_NS = 1_000_000_000
_NUMBERS = 1 << 16


class ContextTimes:
    """Adds up how long contexts of each process were on the GPU.

    Where entries do not fit together, it is not known what was on the GPU. Until the next context
    starts or stops, all time then counts for ``UNKNOWN``, also if the GPU was idle. So the time of
    a process is a lower bound, and together with ``UNKNOWN`` an upper bound. The first period
    begins unknown.

    ``troubles`` counts by reason: entries ``lost``, ``unpaired`` starts and stops, a ``clock`` that
    jumps, a ``reset`` of the engine, and ``unknown`` kinds of entries.

    >>> times = ContextTimes(now_ns=0)
    >>> times.take(SwitchEntry(CONTEXT_START, 0, 0, 9, 4711, 100), now_ns=100)
    >>> times.take(SwitchEntry(0x03, 0, 1, 9, 4711, 600), now_ns=600)
    >>> times.flush(now_ns=1000)
    (1000, {4711: 500, 0: 500})
    """

    def __init__(self, now_ns: int) -> None:
        self.troubles: Counter[str] = Counter()
        self._process_ns: Counter[int] = Counter()
        self._number: int | None = None
        self._context = 0
        # The process on the GPU, if any, and the time up to which it is counted.
        self._owner: int | None = None
        self._counted_ns = 0
        # The newest start or stop: the GPU's time, and ours when it arrived.
        self._newest_ns: int | None = None
        self._arrived_ns = now_ns
        self._flushed_ns = now_ns
        self._is_known = False  # what is on the GPU now
        self._was_known = False  # and at each time of this period

    def take(self, entry: SwitchEntry, now_ns: int) -> None:
        """Take the next entry of the ring, which arrived at ``now_ns``."""
        if self._number is not None:
            lost = (entry.number - self._number - 1) % _NUMBERS
            if lost:
                self.doubt("lost", lost)
        self._number = entry.number
        if entry.tag in MOMENTS:
            return
        if entry.tag == ENGINE_RESET:
            # It is written at once, so the entries of earlier switches may follow.
            self.doubt("reset")
            return
        starts = entry.tag == CONTEXT_START
        if not starts and entry.tag not in STOPS:
            # If it is a new way to stop, the end of the save follows, which is a stop too.
            self.troubles["unknown"] += 1
            return
        self._check_clock(entry.at_ns, now_ns)
        is_pair = entry.context == self._context
        if starts:
            is_pair = self._owner is None
        if self._is_known and not is_pair:
            self.doubt("unpaired")
        self._count_until(entry.at_ns)
        self._owner = entry.process if starts else None
        self._counted_ns = entry.at_ns
        self._context = entry.context
        self._is_known = True

    def doubt(self, reason: str | None = None, times: int = 1) -> None:
        """Note that entries are missing or wrong here: what is on the GPU is not known."""
        if reason is not None:
            self.troubles[reason] += times
        self._owner = None
        self._is_known = self._was_known = False

    def flush(self, now_ns: int) -> tuple[int, dict[int, int]]:
        """Return the length of the period that ends now, and nanoseconds of it by process.

        The process on the GPU is counted up to now, so all entries until now must have been taken.
        Before the first entry nothing is known, and the result is empty.
        """
        span_ns, self._flushed_ns = now_ns - self._flushed_ns, now_ns
        if self._newest_ns is None:
            return span_ns, {}
        self._count_until(self._newest_ns + now_ns - self._arrived_ns)
        if not self._was_known:
            self._process_ns[UNKNOWN] += max(0, span_ns - self._process_ns.total())
        process_ns, self._process_ns = dict(self._process_ns), Counter()
        self._was_known = self._is_known
        return span_ns, process_ns

    def _check_clock(self, at_ns: int, now_ns: int) -> None:
        """Doubt an entry that is older than what is counted, or newer than it can be."""
        if self._newest_ns is not None:
            earliest_ns = max(self._newest_ns, self._counted_ns)
            latest_ns = self._newest_ns + now_ns - self._arrived_ns + _SLACK_NS
            if not earliest_ns <= at_ns <= latest_ns:
                self.doubt("clock")
        self._newest_ns, self._arrived_ns = at_ns, now_ns

    def _count_until(self, at_ns: int) -> None:
        if self._owner is not None:
            self._process_ns[self._owner] += at_ns - self._counted_ns
            self._counted_ns = at_ns
