"""The records of one recorded log, and where times that a person wrote down lie among them."""

from array import array
from dataclasses import dataclass
from datetime import tzinfo

import numpy as np
import pandas
from numpy.typing import NDArray

from ..parsers import signals
from .log_clock import LogClock, Stretch, stretches
from .measure.slices import Cut

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]

_SECOND_NS = 1_000_000_000
_MOST_ASSUMED = 0.1
# The signals of tegrastats that a report of a run is made from.
_OF_RUNS = frozenset(
    {
        *(signals.CPU_LOAD, signals.CPU_FREQUENCY, signals.EMC_LOAD, signals.EMC_FREQUENCY),
        *(signals.GPU_LOAD, signals.GPU_FREQUENCY, signals.DLA_ON, signals.DLA_LOAD),
        *(signals.DLA_FREQUENCY, signals.TEMPERATURE, signals.RAIL_POWER),
    }
)


@dataclass(frozen=True)
class RecordedLog:
    """The records of one log, one a moment.

    Attributes:
        name: As its path was given.
        rows: The records.
        times_ns: shape (n,), rising, since the first record.
        wall_ns: shape (n,), the same with the jumps of the clock that was read.
        error_seconds: shape (n,), half of what is not known of a time; NaN where it was assumed.
        clock: Where times that a person wrote down lie in it.
    """

    name: str
    rows: pandas.DataFrame
    times_ns: Integers
    wall_ns: Integers
    error_seconds: Floats
    clock: LogClock

    @property
    def last_ns(self) -> int:
        """Its last record, since the first."""
        return int(self.times_ns[-1])

    def covers(self, begin_ns: int, end_ns: int) -> bool:
        """Tell whether records stand on or beyond both edges of a window."""
        return begin_ns >= 0 and end_ns <= self.last_ns

    def cut(self, begin_ns: int, end_ns: int) -> Cut:
        """Return the records of a window, with one neighbour on each side where there is one."""
        rows = self._around(begin_ns, end_ns)
        part = self.rows.iloc[rows]
        columns = {}
        for name in part.columns:
            if (signals.split(name) or (None,))[0] not in _OF_RUNS:
                continue
            column = part[name].to_numpy(np.float64, na_value=np.nan)
            if not np.isnan(column).all():
                columns[name] = array("d", column.tobytes())
        return Cut(
            array("q", self.times_ns[rows].tobytes()),
            array("q", self.wall_ns[rows].tobytes()),
            columns,
        )

    def clock_seconds(self, begin_ns: int, end_ns: int) -> float | None:
        """Return by how much the records of a window may be off.

        ``None`` where it is not known: their times were assumed at an edge, or for more than a
        tenth of them.
        """
        error = self.error_seconds[self._around(begin_ns, end_ns)]
        assumed = np.isnan(error)
        if assumed[:2].any() or assumed[-2:].any() or assumed.mean() > _MOST_ASSUMED:
            return None
        return float(np.nanmax(error))

    def _around(self, begin_ns: int, end_ns: int) -> slice:
        first = int(np.searchsorted(self.times_ns, begin_ns, "left"))
        last = int(np.searchsorted(self.times_ns, end_ns, "right"))
        return slice(max(first - 1, 0), last + 1)


def recorded_logs(telemetry: pandas.DataFrame, zone: tzinfo | None = None) -> list[RecordedLog]:
    """Take a table of records apart, log by log.

    Args:
        telemetry: As of ``frames.read_log``.
        zone: Zone of the printed local times.
    """
    logs = telemetry.groupby("log", sort=False, observed=True)
    return [_log(str(name), rows, zone) for name, rows in logs]


def _log(name: str, rows: pandas.DataFrame, zone: tzinfo | None) -> RecordedLog:
    """Take the records of one log; of those at the same moment the first."""
    times = np.rint(rows["elapsed_seconds"].to_numpy(np.float64) * 1e9).astype(np.int64)
    steps = np.nan_to_num(rows["clock_step_seconds"].to_numpy(np.float64))
    wall = times + np.rint(np.cumsum(steps) * 1e9).astype(np.int64)
    kept = np.concatenate(([True], np.diff(times) > 0))
    rows, times, wall = rows[kept], times[kept], wall[kept]
    error = rows["elapsed_error_seconds"].to_numpy(np.float64)
    first = 0 if np.isnan(error[0]) else round(error[0] * 1e9)
    clock = LogClock(_unix(rows, times, error), _local(rows, times, error), zone, first)
    return RecordedLog(name, rows, times, wall, error, clock)


def _unix(rows: pandas.DataFrame, times: Integers, error: Floats) -> list[Stretch]:
    has = rows["received"].notna().to_numpy()
    shown = rows["received"].to_numpy("datetime64[ns]").astype(np.int64)[has]
    whole = len(shown) > 1 and not np.any(shown % _SECOND_NS)
    return _known(stretches(times[has], shown, _SECOND_NS if whole else 0), error[has])


def _local(rows: pandas.DataFrame, times: Integers, error: Floats) -> list[Stretch]:
    has = rows["time"].notna().to_numpy()
    shown = rows["time"].to_numpy("datetime64[s]").astype(np.int64)[has] * _SECOND_NS
    return _known(stretches(times[has], shown, _SECOND_NS), error[has])


def _known(found: list[Stretch], error: Floats) -> list[Stretch]:
    """Take the error away where the times were made of this very clock: the records bear it."""
    if not np.any(error > 0):
        return found
    return [one._replace(error_ns=0) for one in found]
