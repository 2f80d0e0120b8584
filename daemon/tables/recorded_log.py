"""One recorded log: its records by time, and the place of a written time among them."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone, tzinfo
from typing import NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import pandas
from numpy.typing import NDArray

from ...parsers import signals
from ...parsers.errors import Mendable
from ..measure.slices import WindowSlice
from .given_runs import GivenTime

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]

_SECOND_NS = 1_000_000_000
_EPOCH = datetime(1970, 1, 1)
_MOST_ASSUMED_RATIO = 0.1
_WRITE_ZONE = "write times with their UTC offset, and give the log's zone: --timezone Europe/Berlin"
_WRITE_ELAPSED = "write seconds since its first record"
# The signals of tegrastats that a report of a run is made from.
_OF_RUNS = frozenset(
    {
        *(signals.CPU_LOAD, signals.CPU_FREQUENCY, signals.EMC_LOAD, signals.EMC_FREQUENCY),
        *(signals.GPU_LOAD, signals.GPU_FREQUENCY, signals.DLA_ON, signals.DLA_LOAD),
        *(signals.DLA_FREQUENCY, signals.TEMPERATURE, signals.RAIL_POWER),
    }
)


class Place(NamedTuple):
    """A place in a log, since its first record.

    Attributes:
        error_ns: Its uncertainty, in addition to that of the records there.
        jumped: Whether the clock showed that time twice.
    """

    ns: int
    error_ns: int
    jumped: bool


class Stretch(NamedTuple):
    """The first and last record between two jumps of a clock, since the first of the log.

    Attributes:
        offset_ns: The time that the clock showed, minus that time.
        error_ns: Uncertainty of the offset.
    """

    begin_ns: int
    end_ns: int
    offset_ns: int
    error_ns: int


@dataclass(frozen=True, slots=True)
class LogClock:
    """The clocks of one log.

    Attributes:
        unix: Stretches of the epoch prefix; empty without one.
        local: Stretches of the printed time; empty without one.
        error_ns: Uncertainty of the first record.
    """

    unix: Sequence[Stretch]
    local: Sequence[Stretch]
    zone: tzinfo | None = None
    error_ns: int = 0

    def places(self, time: GivenTime) -> list[Place]:
        """Return the place of a time in the log, or both if the clock went back.

        Raises:
            Mendable: The log does not have that clock, or its clock jumped over that time.
        """
        if time.clock == "elapsed":
            return [Place(time.ns, self.error_ns, False)]
        own, other = self.unix, self.local
        if time.clock == "local":
            own, other = other, own
        if own:
            return _find(own, time.ns)
        if not other:
            raise Mendable("the log has no times", _WRITE_ELAPSED)
        if self.zone is None:
            wrong = "local time without its zone" if self.local else "no local time"
            raise Mendable(f"the log prints {wrong}", _WRITE_ZONE)
        if time.clock == "local":
            return [place for ns in _to_unix(time.ns, self.zone) for place in _find(self.unix, ns)]
        local_ns, fold = _to_local(time.ns, self.zone)
        places = _find(self.local, local_ns)
        if len(places) > 1 and fold is not None:
            return [places[-1 if fold else 0]._replace(jumped=False)]
        return places

    def wall_ns(self, at_ns: int) -> int | None:
        """Return nanoseconds since 1970 of a place in the log, or None if they are not known."""
        if self.unix:
            return at_ns + _stretch_at(self.unix, at_ns).offset_ns
        if not self.local or self.zone is None:
            return None
        stretch = _stretch_at(self.local, at_ns)
        found = _to_unix(at_ns + stretch.offset_ns, self.zone)
        is_later = stretch.begin_ns > self.local[0].begin_ns
        return found[-1 if is_later else 0]


@dataclass(frozen=True)
class RecordedLog:
    """The records of one log, one per moment.

    Attributes:
        times_ns: shape (n,), rising, since the first record.
        wall_ns: shape (n,), the same with the jumps of the clock that was read.
        error_seconds: shape (n,), half the width of the uncertainty of a time; NaN for an assumed
            one.
    """

    name: str
    rows: pandas.DataFrame
    times_ns: Integers
    wall_ns: Integers
    error_seconds: Floats
    clock: LogClock

    @property
    def last_ns(self) -> int:
        """Time of the last record, since the first."""
        return int(self.times_ns[-1])

    def covers(self, begin_ns: int, end_ns: int) -> bool:
        """Return whether there are records at or beyond both edges of a window."""
        return begin_ns >= 0 and end_ns <= self.last_ns

    def cut(self, begin_ns: int, end_ns: int) -> WindowSlice:
        """Return the records of a window, and one neighbour on each side if there is one."""
        rows = self._around(begin_ns, end_ns)
        part = self.rows.iloc[rows]
        columns = {}
        for name in part.columns:
            if (signals.split(name) or (None,))[0] not in _OF_RUNS:
                continue
            column = part[name].to_numpy(np.float64, na_value=np.nan)
            if not np.isnan(column).all():
                columns[name] = array("d", column.tobytes())
        return WindowSlice(
            array("q", self.times_ns[rows].tobytes()),
            array("q", self.wall_ns[rows].tobytes()),
            columns,
        )

    def clock_seconds(self, begin_ns: int, end_ns: int) -> float | None:
        """Return the uncertainty of the times of a window.

        It is None if it is not known: times are assumed at an edge, or for more than a tenth of
        the records.
        """
        error = self.error_seconds[self._around(begin_ns, end_ns)]
        assumed = np.isnan(error)
        if assumed[:2].any() or assumed[-2:].any() or assumed.mean() > _MOST_ASSUMED_RATIO:
            return None
        return float(np.nanmax(error))

    def _around(self, begin_ns: int, end_ns: int) -> slice:
        first = int(np.searchsorted(self.times_ns, begin_ns, "left"))
        last = int(np.searchsorted(self.times_ns, end_ns, "right"))
        return slice(max(first - 1, 0), last + 1)


def recorded_logs(telemetry: pandas.DataFrame, zone: tzinfo | None = None) -> list[RecordedLog]:
    """Split a table of ``frames.read_log`` into its logs; the zone is that of printed times."""
    logs = telemetry.groupby("log", sort=False, observed=True)
    return [_log(str(name), rows, zone) for name, rows in logs]


def _log(name: str, rows: pandas.DataFrame, zone: tzinfo | None) -> RecordedLog:
    """Return the records of one log; of those at the same moment the first."""
    times = np.rint(rows["elapsed_seconds"].to_numpy(np.float64) * 1e9).astype(np.int64)
    steps = np.nan_to_num(rows["clock_step_seconds"].to_numpy(np.float64))
    wall = times + np.rint(np.cumsum(steps) * 1e9).astype(np.int64)
    kept = np.concatenate(([True], np.diff(times) > 0))
    rows, times, wall = rows[kept], times[kept], wall[kept]
    error = rows["elapsed_error_seconds"].to_numpy(np.float64)
    clock = LogClock(
        unix=_stretches(rows["received"], times, error),
        local=_stretches(rows["time"], times, error),
        zone=zone,
        error_ns=0 if np.isnan(error[0]) else round(error[0] * 1e9),
    )
    return RecordedLog(name, rows, times, wall, error, clock)


def _stretches(
    column: "pandas.Series[pandas.Timestamp]", times: Integers, error: Floats
) -> list[Stretch]:
    """Return the stretches of a clock, whose column may lack some times."""
    has = column.notna().to_numpy()
    shown = column.to_numpy("datetime64[ns]").astype(np.int64)[has]
    is_whole = not np.any(shown % _SECOND_NS) and (column.name == "time" or len(shown) > 1)
    found = stretches(times[has], shown, _SECOND_NS if is_whole else 0)
    # Times that were made from this clock have its error already.
    return [one._replace(error_ns=0) for one in found] if np.any(error[has] > 0) else found


def stretches(elapsed_ns: Integers, shown_ns: Integers, resolution_ns: int) -> list[Stretch]:
    """Split a clock at its jumps.

    A clock that is truncated to whole seconds is up to a second behind. The offset makes this true
    for every record, or for as many as possible.

    Args:
        elapsed_ns: shape (n,), rising, the time of each record.
        shown_ns: shape (n,), the times that the clock showed.
        resolution_ns: The unit to which the clock is truncated; 0 for an exact one.
    """
    if not len(elapsed_ns):
        return []
    behind = shown_ns - elapsed_ns
    jumps = np.flatnonzero(np.abs(np.diff(behind)) > resolution_ns + _SECOND_NS // 2) + 1
    found = []
    for part in np.split(np.arange(len(behind)), jumps):
        low, high = int(behind[part].max()), int(behind[part].min()) + resolution_ns
        offset, error = (low + high) // 2, abs(high - low) // 2
        found.append(Stretch(int(elapsed_ns[part[0]]), int(elapsed_ns[part[-1]]), offset, error))
    return found


def _find(clock: Sequence[Stretch], shown_ns: int) -> list[Place]:
    """Return the places at which a clock showed a time; the outer stretches have no end."""
    places = []
    for i, one in enumerate(clock):
        ns = shown_ns - one.offset_ns
        # Between the last record before a jump and the first after it, either stretch may hold.
        begin = clock[i - 1].end_ns if i else one.begin_ns
        end = clock[i + 1].begin_ns if i + 1 < len(clock) else one.end_ns
        if begin <= ns <= end:
            places.append(Place(ns, one.error_ns, False))
    if len(places) > 1:
        return [place._replace(jumped=True) for place in places]
    if places:
        return places
    first, last = clock[0], clock[-1]
    if shown_ns < first.begin_ns + first.offset_ns:
        return [Place(shown_ns - first.offset_ns, first.error_ns, False)]
    if shown_ns > last.end_ns + last.offset_ns:
        return [Place(shown_ns - last.offset_ns, last.error_ns, False)]
    raise Mendable("the log's clock jumped over that time", _WRITE_ELAPSED)


def _stretch_at(clock: Sequence[Stretch], at_ns: int) -> Stretch:
    return next((one for one in clock if at_ns <= one.end_ns), clock[-1])


def _to_local(unix_ns: int, zone: tzinfo) -> tuple[int, int | None]:
    """Return local time as if it were UTC, and the fold of an hour that comes twice."""
    seconds, fraction = divmod(unix_ns, _SECOND_NS)
    local = (_EPOCH.replace(tzinfo=timezone.utc) + timedelta(seconds=seconds)).astimezone(zone)
    is_twice = local.replace(fold=0).utcoffset() != local.replace(fold=1).utcoffset()
    shown = local.replace(tzinfo=None) - _EPOCH
    return round(shown.total_seconds()) * _SECOND_NS + fraction, local.fold if is_twice else None


def _to_unix(local_ns: int, zone: tzinfo) -> list[int]:
    """Return the moments of a local time, earlier first; two where summer time ends."""
    seconds, fraction = divmod(local_ns, _SECOND_NS)
    local = (_EPOCH + timedelta(seconds=seconds)).replace(tzinfo=zone)
    found = {round(local.replace(fold=fold).timestamp()) * _SECOND_NS + fraction for fold in (0, 1)}
    return sorted(found)


def find_zone(name: str) -> ZoneInfo:
    """Return a time zone by its name.

    Raises:
        Mendable: This machine does not have a zone of that name.
    """
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise Mendable(
            f"time zone {name!r} is not known here",
            "name one like Europe/Berlin; if all are unknown, pip install tzdata",
        ) from None
