"""When lines were printed: from their arrival, and from the seconds that they print."""

import statistics
from collections import deque
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

RECENT_STEPS = 31
FEWEST_PRINTED, RECENT_PRINTED = 60, 120
# The printed seconds must have met nearly every phase of the arrivals.
COVERED_SECONDS = 0.9
# Reading its sensors and a busy machine delay a line by less than the first. By more than the
# second it is another machine's clock that differs.
SHORTEST_LATENESS, LONGEST_LATENESS = 0.15, 10.0
CLOCK_STEP_NS, CLOCK_SLEW = 50_000_000, 0.001
# Time zones differ by whole quarters of an hour.
_ZONE_SECONDS = 900
_EPOCH = datetime(1970, 1, 1)


class Arrival(NamedTuple):
    """The latest time at which a line can have been printed, and how much earlier it may be."""

    monotonic_ns: int
    late_seconds: float


def seconds_behind(wall_ns: int, printed_ns: int) -> float:
    """Return how long after the second that a line prints it arrived, in any time zone.

    Both count from 1970, and ``printed_ns`` as if it were UTC.

    >>> seconds_behind(1_750_000_000_500_000_000, 1_750_007_200_000_000_000)
    0.5
    """
    half = _ZONE_SECONDS * 10**9 // 2
    return ((wall_ns - printed_ns + half) % (2 * half) - half) / 1e9


def usual_lateness(behind: Sequence[float]) -> float | None:
    """Return the lateness of a source by ``seconds_behind`` of its recent lines.

    A line is printed at any moment of its second, so the smallest difference is the lateness, if
    the lines met nearly the whole second; otherwise, and for too few lines, it is ``None``.
    """
    if len(behind) < FEWEST_PRINTED or max(behind) - min(behind) < COVERED_SECONDS:
        return None
    return min(behind)


def regular_lateness(usual: float | None) -> float:
    """Return the lateness that is more than a line normally takes; otherwise 0."""
    is_late = usual is not None and SHORTEST_LATENESS < usual <= LONGEST_LATENESS
    return usual if usual is not None and is_late else 0.0


class Arrivals:
    """Gives each line of a live source its own time.

    A line that arrives alone has its arrival as time. Lines of one read are a backlog: the last is
    stamped with the arrival, and the others lie back from it by the usual interval, which is the
    median of recent arrivals. Each may have been printed earlier: by one interval, since the last
    line may have waited so long, and by the time that the backlog leaves unexplained. A printed
    second limits both. Lateness that all recent lines have is added.
    """

    def __init__(self) -> None:
        """Begin without lines."""
        self._steps: deque[float] = deque(maxlen=RECENT_STEPS)
        self._behind: deque[float] = deque(maxlen=RECENT_PRINTED)
        self._arrived_ns: int | None = None
        self._latest_ns: int | None = None  # the time of the latest line
        self._offset_ns = 0  # wall minus monotonic
        self._held_ns: int | None = None

    def times(
        self,
        arrived_ns: int,
        wall_ns: int,
        printed: Sequence[datetime | None],
        interval_seconds: float | None,
    ) -> list[Arrival]:
        """Return the times of the lines of one read; they increase, also from read to read.

        ``printed`` are the times that the lines print, and ``interval_seconds`` is the configured
        interval, which counts until there is another read.
        """
        count = len(printed)
        self._note_read(arrived_ns, wall_ns, count)
        default_ns = (interval_seconds or 1.0) * 1e9
        interval = statistics.median(self._steps) if self._steps else default_ns
        whole = count * interval
        reach = whole if self._latest_ns is None else max(arrived_ns - self._latest_ns, 0)
        # A monotonic time is never below 0.
        step = min(interval, reach / count, arrived_ns / count)
        times = [arrived_ns - round(i * step) for i in reversed(range(count))]
        unsure = (interval + abs(reach - whole)) / 1e9 if count > 1 else 0.0
        late = [unsure] * count
        if self._held_ns is not None and reach < whole - interval / 2:
            late[0] = max(late[0], (times[0] - self._held_ns) / 1e9)
        # The writer waits with one more line while the pipe is full: it comes too soon.
        has_waited = count > 1 and reach > whole + interval
        self._held_ns = arrived_ns - round(unsure * 1e9) if has_waited else None
        usual = usual_lateness(self._behind)
        behind = [
            None if time is None else seconds_behind(at_ns + self._offset_ns, _nanoseconds(time))
            for at_ns, time in zip(times, printed, strict=True)
        ]
        over = [one - usual for one in behind if one is not None and usual is not None]
        if usual is not None and len(over) == count:
            late, shifts = _limited(late, over)
            times = [t - round(s * 1e9) for t, s in zip(times, shifts, strict=True)]
            behind = [one + usual - s for one, s in zip(over, shifts, strict=True)]
        self._behind.extend(one for one in behind if one is not None)
        regular = regular_lateness(usual)
        found = []
        for at_ns, seconds in zip(times, late, strict=True):
            last_ns = at_ns if self._latest_ns is None else max(at_ns, self._latest_ns + 1)
            self._latest_ns = last_ns
            found.append(Arrival(last_ns, seconds + regular))
        return found

    def _note_read(self, arrived_ns: int, wall_ns: int, count: int) -> None:
        """Keep the time per line, and forget printed seconds if the wall clock was set."""
        offset_ns = wall_ns - arrived_ns
        if self._arrived_ns is not None:
            gap_ns = arrived_ns - self._arrived_ns
            self._steps.append(max(gap_ns / count, 1.0))
            if abs(offset_ns - self._offset_ns) > CLOCK_STEP_NS + CLOCK_SLEW * gap_ns:
                self._behind.clear()
        self._arrived_ns, self._offset_ns = arrived_ns, offset_ns


def _nanoseconds(printed: datetime) -> int:
    """Return a printed time from 1970, as if it were UTC."""
    since = printed - _EPOCH
    return (since.days * 86400 + since.seconds) * 10**9


def _limited(late: Sequence[float], over: Sequence[float]) -> tuple[list[float], list[float]]:
    """Return how late lines are at most, and by how much their times must be earlier.

    A line is printed in the second that it prints: its time is ``over`` seconds after the start of
    that second, and of the lateness that is usual.
    """
    excess = max(over) - 1.0
    if excess <= SHORTEST_LATENESS:
        return [min(a, max(b, 0.0)) for a, b in zip(late, over, strict=True)], [0.0] * len(over)
    shifts = [excess if excess <= min(over) else max(one - 1.0, 0.0) for one in over]
    each = zip(late, over, shifts, strict=True)
    return [b - s if s else max(min(a, b), 0.0) for a, b, s in each], shifts
