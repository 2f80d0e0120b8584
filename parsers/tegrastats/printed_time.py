"""The times of the records of a log, and the restarts of tegrastats: columns in, columns out.

Both are fed batch by batch, and the answer is the same however a log is cut into batches.
"""

from collections.abc import Mapping
from datetime import datetime, timezone
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from .digits import Flags, Floats, Integers
from .prefix import LATEST_SECONDS

ABSENT = int(np.iinfo(np.int64).min)
"""Mark of a line without a time; numpy uses the same."""
LONGEST_STEP_SECONDS = 10.0
LONGEST_STEP_INTERVALS = 5
RECENT_RECORDS = 32
# Whole milliwatts are printed, so a mean that was rounded and a reading differ by less than three.
_ROUNDED_WATTS = 0.0025
_SECOND_NS = 1_000_000_000
_LONGEST_PAUSE_NS = 31 * 86_400 * _SECOND_NS
# No log is that long, but one put together of many may look so.
_FAR_OFF_NS = 1 << 62

_NONE, _PRINTED, _COARSE, _EXACT = 0, 1, 2, 3


def seconds_of(time: datetime | None) -> int:
    """Return a local time as printed, as if it were UTC, in seconds since 1970."""
    return ABSENT if time is None else int(time.replace(tzinfo=timezone.utc).timestamp())


def read_seconds(times: Integers) -> tuple[Integers, Flags]:
    """Return the seconds since 1970 of the six printed numbers, and which times are valid."""
    month, day, year, hour, minute, second = times
    valid = (month >= 1) & (month <= 12) & (day >= 1) & (year >= 1)
    valid &= (hour <= 23) & (minute <= 59) & (second <= 59)
    months = ((year - 1970) * 12 + np.where(valid, month, 1) - 1).astype("datetime64[M]")
    first_day = months.astype("datetime64[D]").astype(np.int64)
    late = np.flatnonzero(day > 28)
    if len(late):
        next_month = (months[late] + np.timedelta64(1, "M")).astype("datetime64[D]")
        valid[late] &= first_day[late] + day[late] <= next_month.astype(np.int64)
    days = first_day + day - 1
    seconds: Integers = ((days * 24 + hour) * 60 + minute) * 60 + second
    return seconds, valid


class Times(NamedTuple):
    """The times of some records, in order, each of shape (n,).

    Attributes:
        elapsed_seconds: Since the first record of the log, never falling.
        error_seconds: Half the width of the uncertainty; NaN if the time is only an assumed
            interval after the record before.
        step_seconds: Jump of the clock just before the record; NaN without one.
    """

    elapsed_seconds: Floats
    error_seconds: Floats
    step_seconds: Floats


_NOTHING = Times(*np.empty((3, 0)))


class RecordedClock:
    """The times of one log's records, from the prefix of a recorder or else the printed second.

    A prefix (``1750865666.38::``, or another form of ``prefix``) is exact. Records of one printed
    second, or of a prefix of whole seconds, are spread evenly over it, half a step from its edges.
    If a stretch of records begins or ends within a second, as at either end of a log, the spacing
    is that of the neighbouring second. A record with neither clock comes one interval after the one
    before: the median of the last ones, or the nominal one.

    A step back of the clock, or one forward of more than 10 s (or five intervals, if longer), is
    a clock that was set, or summer time: the time goes on by one median interval, and the jump is
    reported. If tegrastats started anew, up to a month forward is a pause, and the time follows.

    >>> clock = RecordedClock()
    >>> second = np.array([7, 7, 8, 8, 3608, 3608])
    >>> no = np.full(6, ABSENT), np.zeros(6, bool)
    >>> clock.feed(second, *no).elapsed_seconds.tolist()  # it waits for what comes after
    []
    >>> times = clock.finish()
    >>> times.elapsed_seconds.tolist(), times.step_seconds.tolist()[4]
    ([0.0, 0.5, 1.0, 1.5, 2.0, 2.5], 3599.0)
    """

    def __init__(self, interval_seconds: float = 1.0) -> None:
        """Begin a log; the interval is that of a log without times."""
        self._usual_ns = round(interval_seconds * 1e9)
        self._longest_ns = self._assumed_ns = 0
        self._coarse = False
        # The rows of the last settled group, which give its count, and the rows that wait.
        self._rows: Integers = np.empty((3, 0), np.int64)
        self._settled = 0
        self._recent: Integers = np.empty(0, np.int64)
        self._last: dict[int, tuple[int, int]] = {}  # by kind: position on its clock, elapsed

    def feed(self, printed_seconds: Integers, received_ns: Integers, restarted: Flags) -> Times:
        """Take more records, and return the times of those that are settled.

        Args:
            printed_seconds: shape (n,), the printed local time, as if it were UTC, since 1970;
                ``ABSENT`` without one.
            received_ns: shape (n,), the time of the prefix; ``ABSENT`` without one.
            restarted: shape (n,), whether tegrastats began anew with the record.

        Returns:
            Times of the next records; those of an unfinished second come later.
        """
        rows = np.stack((printed_seconds, received_ns, restarted))
        self._rows = np.concatenate((self._rows, rows), axis=1)
        return self._settle(finishing=False)

    def finish(self) -> Times:
        """Return the times of the records that are left."""
        return self._settle(finishing=True)

    def _settle(self, *, finishing: bool) -> Times:
        if not self._longest_ns:
            groups = _group(self._rows, coarse=False)
            if len(groups.firsts) <= RECENT_RECORDS and not finishing:
                return _NOTHING
            self._begin(groups)
        groups = _group(self._rows, coarse=self._coarse)
        count = len(groups.firsts)
        opens = self._breaks(groups)
        settled = _settled_groups(groups, opens, bool(self._settled), finishing=finishing)
        first = groups.firsts[settled] if settled < count else self._rows.shape[1]
        if first <= self._settled:
            return _NOTHING
        at_ns, error = _positions(groups, opens, context=bool(self._settled), finishing=finishing)
        rows = slice(self._settled, int(first))
        breaks = groups.firsts[1:settled][opens[1:settled]]
        if not self._settled:
            breaks = np.concatenate(([0], breaks))
        times = self._elapsed(groups.row_kinds, at_ns, breaks, rows)
        keep = int(groups.firsts[settled - 1])
        self._settled = rows.stop - keep
        self._rows = self._rows[:, keep:]
        return Times(times[0], error[rows], times[1])

    def _begin(self, groups: "_Groups") -> None:
        """Learn the usual interval, and how fine the prefix is, from the first records."""
        rows = self._rows
        if len(groups.firsts) > RECENT_RECORDS:
            rows = rows[:, : groups.firsts[RECENT_RECORDS]]
        received = rows[1, rows[1] != ABSENT]
        self._coarse = len(received) > 1 and not np.any(received % _SECOND_NS)
        groups = _group(rows, coarse=self._coarse)
        gaps = np.diff(groups.marks_ns) / groups.counts[:-1]
        gaps = gaps[(np.diff(groups.kinds) == 0) & (groups.kinds[1:] != _NONE) & (gaps > 0)]
        if len(gaps) > 1:
            self._usual_ns = round(float(np.sort(gaps)[(len(gaps) - 1) // 2]))
        self._longest_ns = max(
            round(LONGEST_STEP_SECONDS * 1e9), LONGEST_STEP_INTERVALS * self._usual_ns
        )

    def _breaks(self, groups: "_Groups") -> Flags:
        """Return before which groups the clock changed, or was set."""
        ahead_ns = np.diff(groups.marks_ns)
        longest = np.where(groups.restarted[1:], _LONGEST_PAUSE_NS, self._longest_ns)
        jumps = (groups.kinds[1:] != _NONE) & ((ahead_ns < 0) | (ahead_ns > longest))
        changes = groups.kinds[1:] != groups.kinds[:-1]
        return np.concatenate(([not self._settled], changes | jumps))

    def _elapsed(
        self, kinds: Integers, at_ns: Integers, breaks: Integers, rows: slice
    ) -> tuple[Floats, Floats]:
        """Return elapsed seconds and steps of some rows; remember what the next ones need."""
        elapsed = np.empty(rows.stop, np.int64)
        step = np.full(rows.stop, np.nan)
        edges = [*breaks.tolist(), rows.stop]
        if edges[0] != rows.start:
            edges = [rows.start, *edges]
        breaking = set(breaks.tolist())
        for begin, end in pairwise(edges):
            kind = int(kinds[begin])
            if begin in breaking:
                self._assumed_ns = self._interval_ns()
            if kind == _NONE or begin in breaking:
                restarted = bool(self._rows[2, begin])
                start_ns, step[begin] = self._start(kind, int(at_ns[begin]), restarted)
            else:
                clock_ns, then_ns = self._last[kind]
                start_ns = then_ns + int(at_ns[begin]) - clock_ns
            start_ns = min(start_ns, _FAR_OFF_NS)
            if kind == _NONE:
                elapsed[begin:end] = start_ns + self._assumed_ns * np.arange(end - begin)
            else:
                elapsed[begin:end] = start_ns + (at_ns[begin:end] - at_ns[begin])
            if len(self._recent):
                elapsed[begin] = max(elapsed[begin], self._recent[-1])
            elapsed[begin:end] = np.maximum.accumulate(elapsed[begin:end])
            self._last[kind] = int(at_ns[end - 1]), int(elapsed[end - 1])
            tail = elapsed[max(begin, end - RECENT_RECORDS) : end]
            self._recent = np.concatenate((self._recent, tail))[-RECENT_RECORDS:]
        return elapsed[rows] / 1e9, step[rows]

    def _start(self, kind: int, at_ns: int, restarted: bool) -> tuple[int, float]:
        """Return the time of a record after a break, and the step of the clock."""
        if not len(self._recent):
            return 0, np.nan
        interval_ns, now_ns = self._assumed_ns, int(self._recent[-1])
        if kind == _NONE or kind not in self._last:
            return now_ns + interval_ns, np.nan
        clock_ns, then_ns = self._last[kind]
        ahead_ns = at_ns - clock_ns
        beyond_ns = ahead_ns - (now_ns - then_ns)
        longest_ns = _LONGEST_PAUSE_NS if restarted else self._longest_ns
        passed = -self._longest_ns <= beyond_ns <= longest_ns
        if ahead_ns >= 0 and passed:
            return max(now_ns, then_ns + ahead_ns), np.nan
        step = (beyond_ns - interval_ns) / 1e9
        return now_ns + interval_ns, step if kind == _EXACT else float(round(step))

    def _interval_ns(self) -> int:
        gaps = np.diff(self._recent)
        gaps = gaps[gaps > 0]
        return round(float(np.median(gaps))) if len(gaps) else self._usual_ns


class Restarts:
    """Finds the records with which tegrastats began anew, from its own statistics.

    The second number of a rail is the mean since tegrastats began, so a first record has all
    means equal to the readings. In mid-stream that proves a new beginning if a reading is
    three milliwatts or more off the mean before: such a mean could not have got there in one
    record. From R39 on a maximum that falls proves it too.
    """

    def __init__(self) -> None:
        self._begun = False
        self._means: dict[str, float] = {}
        self._maxima: dict[str, float] = {}

    def feed(self, columns: Mapping[str, Floats], rows: int) -> tuple[Flags, Flags]:
        """Return of each record whether tegrastats began anew with it, and whether that is known.

        The first record of a log does not count as a new beginning. Columns have flat names, such
        as ``rails.VDD_IN.average_watts``, and NaN for an absent value; others are ignored.
        """
        has_means, anew = np.zeros(rows, np.bool_), np.ones(rows, np.bool_)
        compared, far, fell = np.zeros((3, rows), np.bool_)
        means: dict[str, float] = {}
        for name, readings in columns.items():
            rail = name.removesuffix(".instant_watts")
            mean = columns.get(f"{rail}.average_watts")
            if rail != name and mean is not None and rows:
                before = np.concatenate(([self._means.get(rail, np.nan)], mean[:-1]))
                means[rail] = float(mean[-1])
                has = ~np.isnan(readings) & ~np.isnan(mean)
                has_means |= has
                anew &= ~has | (readings == mean)
                compared |= has & ~np.isnan(before)
                far |= has & (np.abs(readings - before) > _ROUNDED_WATTS)
            elif rows and (name.endswith(".maximum_watts") or ".temperatures_max" in f".{name}"):
                highest = _filled(readings, self._maxima.get(name, np.nan))
                fell |= highest[1:] < highest[:-1]
                self._maxima[name] = float(highest[-1])
        restarted = (has_means & anew & far) | fell
        known = (has_means & (compared | ~anew)) | fell
        if rows:
            self._means = means
            if not self._begun:
                restarted[0], known[0] = False, has_means[0]
            self._begun = True
        return restarted, known


class _Groups(NamedTuple):
    """Records with the same reading of the same clock; each of an exact clock is its own group.

    ``row_kinds``, of shape (n,), is the clock of each record. The others, of shape (m,), are the
    first record of each group, its length, its clock, the reading, and whether tegrastats began
    anew with its first record.
    """

    row_kinds: Integers
    firsts: Integers
    counts: Integers
    kinds: Integers
    marks_ns: Integers
    restarted: Flags


def _group(rows: Integers, *, coarse: bool) -> _Groups:
    printed, received, restarted = rows
    prints = (printed > -LATEST_SECONDS) & (printed < LATEST_SECONDS)
    has = received != ABSENT
    kinds = np.where(has, _COARSE if coarse else _EXACT, np.where(prints, _PRINTED, _NONE))
    marks = np.where(has, received, np.where(prints, printed, 0) * _SECOND_NS)
    new = np.ones(len(kinds), np.bool_)
    new[1:] = (kinds[1:] != kinds[:-1]) | (marks[1:] != marks[:-1])
    new |= (kinds == _NONE) | (kinds == _EXACT)
    firsts = np.flatnonzero(new)
    counts = np.diff(np.append(firsts, len(kinds)))
    return _Groups(kinds, firsts, counts, kinds[firsts], marks[firsts], restarted[firsts] > 0)


def _is_spread(kinds: Integers) -> Flags:
    return np.isin(kinds, (_PRINTED, _COARSE))


def _settled_groups(groups: _Groups, opens: Flags, context: bool, *, finishing: bool) -> int:
    """Return how many groups can be placed: no record that is still to come changes them."""
    count = len(groups.firsts)
    if finishing or not count or not _is_spread(groups.kinds[-1:])[0]:
        return count
    # The last second is unfinished; a stretch that begins within the second before waits for it.
    partial = opens | groups.restarted
    waits = count > 1 and partial[-2] and not partial[-1] and not (context and count == 2)
    return count - 2 if waits else count - 1


def _positions(
    groups: _Groups, opens: Flags, *, context: bool, finishing: bool
) -> tuple[Integers, Floats]:
    """Return where each record stands on its clock in nanoseconds, and its error in seconds."""
    spread = _is_spread(groups.kinds)
    spacing = 1 / groups.counts
    begins = spread & (opens | groups.restarted)
    if context:
        begins[0] = False
    ends = np.append(begins[1:] | opens[1:], finishing) & spread
    # One record fewer than in the neighbouring second is usual.
    few_after = np.append(groups.counts[:-1] + 1 < groups.counts[1:], False)
    few_before = np.append(False, groups.counts[1:] + 1 < groups.counts[:-1])
    late = begins & ~ends & few_after
    early = ends & ~begins & few_before
    spacing = np.where(late, np.roll(spacing, -1), np.where(early, np.roll(spacing, 1), spacing))
    start = np.where(late, 1 - groups.counts * spacing, 0.0)
    offset_ns = np.where(spread, (start + spacing / 2) * _SECOND_NS, 0.0)
    repeats = groups.counts
    within = np.arange(repeats.sum()) - np.repeat(groups.firsts, repeats)
    offsets = np.repeat(offset_ns, repeats) + within * np.repeat(spacing * _SECOND_NS, repeats)
    at_ns = np.repeat(groups.marks_ns, repeats) + np.rint(offsets).astype(np.int64)
    error = np.where(spread, spacing / 2, np.where(groups.kinds == _NONE, np.nan, 0.0))
    return at_ns, np.repeat(error, repeats)


def _filled(column: Floats, before: float) -> Floats:
    """Return a column behind the value before it, each NaN taking the last value known."""
    whole = np.concatenate(([before], column))
    places = np.where(np.isnan(whole), 0, np.arange(len(whole)))
    filled: Floats = whole[np.maximum.accumulate(places)]
    return filled
