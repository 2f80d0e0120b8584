"""Log a problem that is reported again and again in few lines."""

import logging
from pathlib import Path

from .base import SYSTEM_CLOCK, Clock

_LOG = logging.getLogger(__name__)


def failure_text(error: BaseException) -> str:
    """Return an error of a program in one line: its kind, its text and the line that raised it.

    >>> failure_text(IndexError("list index out of range"))
    'IndexError: list index out of range'
    """
    text = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}".rstrip(": ")
    trace = error.__traceback__
    if trace is None:
        return text
    while trace.tb_next is not None:
        trace = trace.tb_next
    return f"{text} ({Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno})"


# The first and the longest pause between two log lines of an outage.
LOG_PAUSES_SECONDS = (60.0, 3600.0)
# Texts that are logged at once in an outage. A text may contain a number that is always another.
_TEXTS_AT_MOST = 4


class OutageLog:
    """Logs a problem that is reported again and again, in few lines.

    A new problem is logged at once. While it lasts, or returns within the first pause, it is logged
    again after pauses that double up to the longest. Its end is one line, after the first pause
    without it. Not for several threads at once.

    >>> outage = OutageLog("rails")
    >>> for _ in range(100):
    ...     outage.note("a driver hangs: see dmesg")  # one line
    >>> outage.note(None)
    """

    def __init__(
        self,
        name: str,
        clock: Clock = SYSTEM_CLOCK,
        pauses_seconds: tuple[float, float] = LOG_PAUSES_SECONDS,
        log: logging.Logger = _LOG,
    ) -> None:
        """Prepare; ``name`` begins each line."""
        self._name = name
        self._clock = clock
        self._log = log
        self._pauses_ns = tuple(round(seconds * 1e9) for seconds in pauses_seconds)
        self._texts: set[str] = set()  # logged in this outage
        self._began_ns: int | None = None
        self._seen_ns = self._logged_ns = 0
        self._pause_ns = self._pauses_ns[0]
        self._unlogged = 0

    def note(self, problem: str | None) -> None:
        """Take the present problem, or ``None`` without one; call it at each attempt."""
        now_ns = self._clock.monotonic_ns()
        if problem is not None:
            self._note_problem(problem, now_ns)
        elif self._began_ns is not None and now_ns - self._seen_ns >= self._pauses_ns[0]:
            seconds = (self._seen_ns - self._began_ns) / 1e9
            self._log.info("%s: works again, after %.1f s of failures", self._name, seconds)
            self._began_ns = None

    def _note_problem(self, problem: str, now_ns: int) -> None:
        if self._began_ns is None:
            self._began_ns = now_ns
            self._texts.clear()
            self._pause_ns = self._pauses_ns[0]
            self._unlogged = 0
        self._seen_ns = now_ns
        is_new = problem not in self._texts and len(self._texts) < _TEXTS_AT_MOST
        if not is_new and now_ns - self._logged_ns < self._pause_ns:
            self._unlogged += 1
            return
        if is_new:
            self._texts.add(problem)
        else:
            self._pause_ns = min(2 * self._pause_ns, self._pauses_ns[1])
        more = f" ({self._unlogged} more since the last line)" if self._unlogged else ""
        self._log.warning("%s: %s%s", self._name, problem, more)
        self._logged_ns, self._unlogged = now_ns, 0
