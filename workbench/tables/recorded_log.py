"""One recorded log: its records by time, and the place of a written time among them."""

import csv
import re
from array import array
from calendar import timegm
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from numbers import Real
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast, get_args
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np

from ...collectors.lines.collector import possible_lateness, seconds_behind
from ...daemon.measure.blocks import WindowSlice
from ...daemon.measure.report import Device
from ...parsers import signals
from ...parsers.errors import PIP_INSTALL, UserError
from ...parsers.inference.events import unit_name
from ...parsers.tegrastats.digits import Floats, Integers
from ...parsers.tegrastats.prefix import EARLIEST_EPOCH_SECONDS
from ...parsers.tegrastats.printed_time import ABSENT
from ...parsers.values import decode_text
from .log_tables import LogTable

REQUIRED = ("name", "start", "end")
_HEADER = "begin it with name,start,end,inferences,device"
_LATEST_SECONDS = 9_000_000_000
# Floats, tables and JSON hold whole numbers of this size exactly.
_LARGEST_NUMBER = 10**15
_ISO = re.compile(
    r"(?P<date>\d{4}-\d\d-\d\d)[T ](?P<minute>\d\d:\d\d)"
    r"(:(?P<second>\d\d)([.,](?P<fraction>\d{1,12}))?)?"
    r" ?(?P<zone>Z|(?P<hours>[+-]\d\d):?(?P<minutes>\d\d))?",
    re.ASCII | re.IGNORECASE,
)
_TIMES = (
    "write ISO 8601 (2025-06-25T09:43:17.5+02:00), seconds since 1970, or seconds since the "
    "first record of the log"
)


Clock = Literal["unix", "local", "elapsed"]


class GivenTime(NamedTuple):
    """A time as it was written down, in nanoseconds of its clock.

    Attributes:
        clock: ``unix``: since 1970 in UTC; ``local``: as the log prints it, counted from 1970 as
            if it were UTC; ``elapsed``: since the first record of the log.
    """

    clock: Clock
    ns: int


def in_flight(requests: Iterable[tuple[int, int]], gap_ns: float) -> list[tuple[int, int]]:
    """Return the times with a request in flight, or with a pause of up to ``gap_ns``.

    >>> in_flight([(0, 10), (5, 20), (40, 50)], gap_ns=5)
    [(0, 20), (40, 50)]
    """
    parts: list[tuple[int, int]] = []
    for begin, end in requests:
        if parts and begin <= parts[-1][1] + gap_ns:
            parts[-1] = parts[-1][0], max(parts[-1][1], end)
        else:
            parts.append((begin, end))
    return parts


@dataclass(frozen=True, slots=True)
class GivenRun:
    """One row; ``where`` is its place for error messages, ``cells`` the row as it is written.

    ``requests`` are start and end of each, by start, in nanoseconds since 1970, if they are known.
    """

    where: str
    name: str
    start: GivenTime
    end: GivenTime
    inferences: int | None
    units: float | None
    unit: str | None
    device: Device
    batch: int
    cells: Mapping[str, Any]
    requests: Sequence[tuple[int, int]] = ()


class Given(NamedTuple):
    """The rows that can be read, in order, and an error for each of the others."""

    runs: list[GivenRun]
    problems: list[UserError]


def read_time(cell: object) -> GivenTime:
    """Read a time.

    Args:
        cell: ISO 8601, with or without offset; a ``datetime``; or a number of seconds, from
            100 000 000 since 1970, below that since the first record of the log.

    Raises:
        ValueError: It is none of these.

    >>> read_time("1970-01-02T01:00:00.5+01:00"), read_time("12.5")
    (GivenTime(clock='unix', ns=86400500000000), GivenTime(clock='elapsed', ns=12500000000))
    """
    text = str(cell).strip()
    if isinstance(cell, datetime):
        # The time of a pandas table has three more digits.
        nanoseconds = cell.microsecond * 1000 + getattr(cell, "nanosecond", 0)
        return _date_time(cell, nanoseconds)
    parts = _ISO.fullmatch(text)
    if parts is not None:
        fraction = (parts["fraction"] or "0").ljust(9, "0")
        return _date_time(_whole_seconds(parts), int(fraction[:9]))
    try:
        seconds = Decimal(text)
    except ArithmeticError:
        raise ValueError(text) from None
    if not seconds.is_finite() or not 0 <= seconds < _LATEST_SECONDS:
        raise ValueError(text)
    clock: Clock = "unix" if seconds >= EARLIEST_EPOCH_SECONDS else "elapsed"
    return GivenTime(clock, round(seconds * 10**9))


def _whole_seconds(parts: re.Match[str]) -> datetime:
    """Return the date and time of an ISO 8601 text, in the one form that Python 3.10 reads."""
    text = f"{parts['date']}T{parts['minute']}:{parts['second'] or '00'}"
    if parts["hours"]:
        text += f"{parts['hours']}:{parts['minutes']}"
    elif parts["zone"]:
        text += "+00:00"
    return datetime.fromisoformat(text)


def _date_time(time: datetime, nanoseconds: int) -> GivenTime:
    """Return a date and time, whose part below a second is given."""
    try:
        # pandas raises ValueError for a time that is missing (NaT).
        seconds = timegm(time.utctimetuple())
    except OverflowError:
        raise ValueError(str(time)) from None
    if not 0 <= seconds < _LATEST_SECONDS:
        raise ValueError(str(time))
    clock: Clock = "local" if time.tzinfo is None else "unix"
    return GivenTime(clock, seconds * 10**9 + nanoseconds)


def read_runs(path: Path) -> Given:
    """Read a table of runs.

    Args:
        path: CSV with the columns ``name``, ``start``, ``end``, and optionally ``inferences``,
            ``units``, ``unit``, ``device`` and ``batch``. Other columns are kept.

    Raises:
        UserError: It cannot be read, or lacks a column.
    """
    try:
        text = decode_text(path.read_bytes())
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror})", "name a CSV file") from None
    except UnicodeDecodeError:
        raise UserError(f"{path} is not a text file", "name a CSV file") from None
    reader = csv.reader(text.splitlines(), skipinitialspace=True)
    problems: list[UserError] = []
    rows: list[tuple[str, Mapping[Hashable, object]]] = []
    header: list[str] = []
    try:
        for cells in filter(any, reader):
            where = f"{path} line {reader.line_num}"
            if not header:
                header = [cell.strip() for cell in cells]
                _check_columns(header, str(path))
            elif len(cells) != len(header):
                wrong = f"{where}: {len(cells)} cells for {len(header)} columns"
                problems.append(UserError(wrong, "write one cell per column"))
            else:
                rows.append((where, dict(zip(header, cells, strict=True))))
    except csv.Error as error:
        raise UserError(f"{path} line {reader.line_num}: {error}", "write it as CSV") from None
    if not header:
        raise UserError(f"{path} is empty", _HEADER)
    given = given_runs(rows)
    return Given(given.runs, problems + given.problems)


def _check_columns(names: Iterable[Hashable], where: str) -> None:
    columns = list(names)
    for name in REQUIRED:
        if name not in columns:
            raise UserError(f"{where} has no column {name!r}", _HEADER)
    for column in columns:
        if columns.count(column) > 1:
            raise UserError(f"{where} has two columns {column!r}", "give each its own name")


def given_runs(rows: Iterable[tuple[str, Mapping[Hashable, object]]]) -> Given:
    """Read rows of a table: the place of each for error messages, and its cells by column.

    An empty cell and NaN are missing values.

    Raises:
        UserError: A column is missing.
    """
    given = Given([], [])
    for where, cells in rows:
        _check_columns(cells, where)
        try:
            given.runs.append(_run(where, cells))
        except UserError as problem:
            given.problems.append(problem)
    return given


class _Row(NamedTuple):
    """The cells of one row; each method reads one, and raises ``UserError`` if it is wrong."""

    where: str
    cells: Mapping[Hashable, object]

    def text(self, column: str) -> str | None:
        """Return a text; None for an empty cell or a column that the table does not have."""
        return _text(self.cells.get(column))

    def time(self, column: str) -> GivenTime:
        """Return a time, which is required."""
        try:
            return read_time(self.cells[column])
        except ValueError:
            raise self.wrong(column, _TIMES) from None

    def number(self, column: str) -> float | None:
        """Return a number from 0."""
        number = self._decimal(column, 0, "write a number from 0, or nothing")
        return None if number is None else float(number)

    def whole_number(self, column: str, least: int) -> int | None:
        """Return a whole number."""
        remedy = f"write a whole number from {least}, or nothing"
        number = self._decimal(column, least, remedy)
        if number is None:
            return None
        if number != int(number):
            raise self.wrong(column, remedy)
        return int(number)

    def _decimal(self, column: str, least: int, remedy: str) -> Decimal | None:
        text = self.text(column)
        if text is None:
            return None
        try:
            number = Decimal(text)
            is_within = least <= number <= _LARGEST_NUMBER  # raises for NaN
        except ArithmeticError:
            is_within = False
        if not is_within:
            raise self.wrong(column, remedy)
        return number

    def wrong(self, column: str, remedy: str) -> UserError:
        """Return the error of a cell."""
        return UserError(f"{self.where}: {column} is {self.text(column) or ''!r}", remedy)


def _run(where: str, cells: Mapping[Hashable, object]) -> GivenRun:
    row = _Row(where, cells)
    name = row.text("name")
    if name is None:
        raise UserError(f"{where} has no name", "give the run one")
    start, end = row.time("start"), row.time("end")
    if start.clock == end.clock and end.ns <= start.ns and start.clock != "local":
        raise UserError(f"{where}: the run ends before it begins", "correct start or end")
    device = row.text("device") or "external"
    if device not in get_args(Device):
        raise row.wrong("device", f"use one of {', '.join(get_args(Device))}")
    inferences, batch = row.whole_number("inferences", 0), row.whole_number("batch", 1) or 1
    units, unit = row.number("units"), None
    if units is not None:
        try:
            unit = unit_name(row.text("unit") or "unit")
        except ValueError:
            raise row.wrong("unit", "use small letters, digits and _, like token") from None
    return GivenRun(
        where,
        name,
        start,
        end,
        inferences,
        units,
        unit,
        cast(Device, device),
        batch,
        cells={str(column): cell for column, cell in cells.items()},
    )


def _text(cell: object) -> str | None:
    """Return the text of a cell; None for an empty one, which is NaN in pandas."""
    if cell is None or (isinstance(cell, Real) and cell != cell):
        return None
    text = str(cell).strip()
    if text in ("", "<NA>", "NaT"):
        return None
    return text


_SECOND_NS = 1_000_000_000
_EPOCH = datetime(1970, 1, 1)
_MOST_ASSUMED_RATIO = 0.1
# A clock that went back by less showed a time twice, but nearly at one place.
_ONE_PLACE_NS = 500_000_000
# Of ``unexplained_seconds``. Fewer spacings show no scatter, which is that of all but the widest
# quarter: a clock may be set, or a busy machine be late, once in four records. A time stamp has its
# own scatter.
_FEWEST_SPACINGS = 10
_USUAL_SHARE, _SCATTERS, _STAMP_SECONDS = 0.75, 4.0, 0.002
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
    """A place in a log since its first record, and its uncertainty besides that of the records.

    It has ``jumped`` if the clock showed that time twice.
    """

    ns: int
    error_ns: int
    jumped: bool


class Stretch(NamedTuple):
    """The first and last record between two jumps of a clock, since the first of the log.

    The offset, which has an uncertainty, is the time that the clock showed minus that time.
    """

    begin_ns: int
    end_ns: int
    offset_ns: int
    error_ns: int


@dataclass(frozen=True, slots=True)
class LogClock:
    """Stretches of a recorder's time and of the printed time of one log; empty without one.

    ``error_ns`` is the uncertainty of the first record.
    """

    unix: Sequence[Stretch]
    local: Sequence[Stretch]
    zone: tzinfo | None = None
    error_ns: int = 0

    def places(self, time: GivenTime) -> list[Place]:
        """Return the place of a time in the log, or both if the clock went back.

        Raises:
            UserError: The log does not have that clock, or its clock jumped over that time.
        """
        if time.clock == "elapsed":
            return [Place(time.ns, self.error_ns, False)]
        own, other = self.unix, self.local
        if time.clock == "local":
            own, other = other, own
        if own:
            return _find(own, time.ns)
        if not other:
            raise UserError("the log has no times that are understood", _WRITE_ELAPSED)
        if self.zone is None and self.local:
            raise UserError("the log prints local time without its zone", _WRITE_ZONE)
        if self.zone is None:
            raise UserError("the log prints no local time", _WRITE_ZONE)
        if time.clock == "local":
            places = []
            for ns in _to_unix(time.ns, self.zone):
                places += _find(self.unix, ns)
            return places
        local_ns, fold = _to_local(time.ns, self.zone)
        places = _find(self.local, local_ns)
        if len(places) > 1 and fold is not None:
            place = places[-1] if fold else places[0]
            return [place._replace(jumped=False)]
        return places

    def wall_ns(self, at_ns: int) -> int | None:
        """Return nanoseconds since 1970 of a place in the log, or None if they are not known."""
        if self.unix:
            return at_ns + _stretch_at(self.unix, at_ns).offset_ns
        if not self.local or self.zone is None:
            return None
        stretch = _stretch_at(self.local, at_ns)
        earlier, *later = _to_unix(at_ns + stretch.offset_ns, self.zone)
        # The hour that summer time repeats: after the jump of the clock it is the second one.
        if later and stretch.begin_ns > self.local[0].begin_ns:
            return later[0]
        return earlier


@dataclass(frozen=True)
class RecordedLog:
    """The records of one log, one per moment.

    Attributes:
        columns: Those that a report of a run is made from, each of shape (n,).
        times_ns: shape (n,), rising, since the first record.
        wall_ns: shape (n,), the same with the jumps of the clock that was read.
        error_seconds: shape (n,), half the width of the uncertainty of a time; NaN for an assumed
            one.
        seconds_behind: shape (n,), how late a record was by its two clocks; NaN without both.
        shown_ns: shape (n,), what the clock showed that its time was made from; ``ABSENT`` without.
    """

    name: str
    columns: Mapping[str, Floats]
    times_ns: Integers
    wall_ns: Integers
    error_seconds: Floats
    seconds_behind: Floats
    shown_ns: Integers
    clock: LogClock

    @property
    def last_ns(self) -> int:
        """Time of the last record, since the first."""
        return int(self.times_ns[-1])

    def cut(self, begin_ns: int, end_ns: int) -> WindowSlice:
        """Return the records of a window, and one neighbour on each side if there is one."""
        rows = self._around(begin_ns, end_ns)
        columns = {}
        for name, whole in self.columns.items():
            column = whole[rows]
            if not np.isnan(column).all():
                columns[name] = array("d", column.tobytes())
        behind = self.seconds_behind[rows]
        late = possible_lateness(behind[~np.isnan(behind)].tolist())
        if late:
            columns[signals.LATE_SECONDS.column()] = array("d", [late]) * len(behind)
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

    def unexplained_seconds(self, begin_ns: int, end_ns: int) -> float:
        """Return by how much a window may be longer or shorter than the clock of its log showed.

        A small step of that clock looks like a record that came early or late. See
        ``unexplained_seconds`` for what counts.
        """
        rows = self._around(begin_ns, end_ns)
        times, shown, error = self.times_ns[rows], self.shown_ns[rows], self.error_seconds[rows]
        if np.any(shown == ABSENT):
            return 0.0
        # Records that were spread over one second of a coarse clock belong together.
        is_spread = error > 0
        begins = np.concatenate(([True], (np.diff(shown) != 0) | ~is_spread[1:]))
        firsts = np.flatnonzero(begins)
        # Of the second, not of the record that was placed within it.
        starts = times[firsts] / 1e9 - error[firsts]
        # The first and the last group may be cut by the edges of the log or of the window.
        cut = int(bool(is_spread.any()))
        inner = slice(cut, len(firsts) - cut)
        counts = np.diff(firsts[inner])
        known_steps = int(np.count_nonzero(np.diff(self.wall_ns[rows] - times)))
        return unexplained_seconds(np.diff(starts[inner]), counts, known_steps, is_coarse=bool(cut))

    def _around(self, begin_ns: int, end_ns: int) -> slice:
        first = int(np.searchsorted(self.times_ns, begin_ns, "left"))
        last = int(np.searchsorted(self.times_ns, end_ns, "right"))
        return slice(max(first - 1, 0), last + 1)


def recorded_logs(telemetry: LogTable, zone: tzinfo | None = None) -> list[RecordedLog]:
    """Split a table into its logs that have records; the zone is that of printed times."""
    logs = []
    for number, name in enumerate(telemetry.logs):
        rows = np.flatnonzero(telemetry.log == number)
        if len(rows):
            logs.append(_log(name, telemetry, rows, zone))
    return logs


def _log(name: str, telemetry: LogTable, rows: Integers, zone: tzinfo | None) -> RecordedLog:
    """Return the records of one log; of those at the same moment the first."""
    elapsed, error, steps = [column[rows] for column in telemetry.times]
    times = np.rint(elapsed * 1e9).astype(np.int64)
    wall = times + np.rint(np.cumsum(np.nan_to_num(steps)) * 1e9).astype(np.int64)
    is_later = np.concatenate(([True], np.diff(times) > 0))
    rows, times, wall, error = rows[is_later], times[is_later], wall[is_later], error[is_later]
    columns: dict[str, Floats] = {}
    for column, values in telemetry.values.items():
        split = signals.split(column)
        if split is not None and split[0] in _OF_RUNS:
            columns[column] = values[rows]
    received_ns, printed = telemetry.received_ns[rows], telemetry.printed_seconds[rows]
    printed_ns = np.where(printed == ABSENT, ABSENT, printed * _SECOND_NS)
    was_set = np.flatnonzero(~np.isnan(steps[is_later]))
    clock = LogClock(
        unix=_stretches(received_ns, times, error, was_set),
        local=_stretches(printed_ns, times, error, was_set, is_truncated=True),
        zone=zone,
        error_ns=0 if np.isnan(error[0]) else round(error[0] * 1e9),
    )
    shown_ns = np.where(received_ns == ABSENT, printed_ns, received_ns)
    behind = _seconds_behind(received_ns, printed_ns)
    return RecordedLog(name, columns, times, wall, error, behind, shown_ns, clock)


def unexplained_seconds(
    spacings: Floats, counts: Integers, known_steps: int, *, is_coarse: bool
) -> float:
    """Return the sum of what no usual spacing of records explains.

    Records come at a usual spacing with a usual scatter. A deviation of more than four times that
    scatter may be a step of the clock: a spacing that is too long or, for a step back, too short.
    Not counted are a record that was late, because the next one comes so much sooner, and lost
    records, because the spacing is then a multiple of the usual one. After a step that is known,
    time goes on by one usual spacing, which may be wrong by the scatter on both sides of the step.

    Args:
        spacings: Seconds from one group of records to the next, shape (n,). A group has one record,
            or those of one second of a coarse clock.
        counts: Records of each group, shape (n,).
        known_steps: Number of steps that are known.
        is_coarse: A second may have one record more or fewer than the next.
    """
    if len(spacings) < _FEWEST_SPACINGS:
        return 0.0
    if is_coarse:
        # The records of a second are a whole number, so only their sum shows the usual spacing.
        usual = float(spacings.sum() / counts.sum())
        is_usual = np.abs(spacings - counts * usual) <= usual
        usual = float(spacings[is_usual].sum() / max(counts[is_usual].sum(), 1))
        limit = usual + _STAMP_SECONDS
    else:
        usual = float(np.median(spacings))
        scatter = float(np.quantile(np.abs(spacings - usual), _USUAL_SHARE))
        limit = _SCATTERS * scatter + _STAMP_SECONDS
    deviations = spacings - counts * usual
    total = 2 * limit * known_steps
    run = 0.0
    for deviation in [*deviations.tolist(), 0.0]:
        if abs(deviation) > limit:
            run += deviation
            continue
        lost = round(run / usual)
        is_lost = not is_coarse and lost >= 1 and abs(run - lost * usual) <= limit
        if abs(run) > limit and not is_lost:
            total += abs(run) + limit
        run = 0.0
    return total


def _seconds_behind(received_ns: Integers, printed_ns: Integers) -> Floats:
    """Return how late records were, by their prefix and the seconds that they print."""
    behind = np.full(len(received_ns), np.nan)
    for row in np.flatnonzero((received_ns != ABSENT) & (printed_ns != ABSENT)).tolist():
        behind[row] = seconds_behind(int(received_ns[row]), int(printed_ns[row]))
    return behind


def _stretches(
    shown_ns: Integers,
    times: Integers,
    error: Floats,
    was_set: Integers,
    *,
    is_truncated: bool = False,
) -> list[Stretch]:
    """Return the stretches of a clock, which may lack some times; those printed are truncated.

    ``was_set`` are the rows before which the clock of the times was set.
    """
    has = shown_ns != ABSENT
    shown = shown_ns[has]
    is_whole = not np.any(shown % _SECOND_NS) and (is_truncated or len(shown) > 1)
    # A row without a time of this clock is not among its rows: the next one begins the stretch.
    jumps = np.searchsorted(np.flatnonzero(has), was_set)
    found = stretches(times[has], shown, _SECOND_NS if is_whole else 0, jumps)
    if np.any(error[has] > 0):  # Times that were made from this clock have its error already.
        return [stretch._replace(error_ns=0) for stretch in found]
    return found


def stretches(
    elapsed_ns: Integers, shown_ns: Integers, resolution_ns: int, known_jumps: Integers
) -> list[Stretch]:
    """Split a clock, which showed a time at each of n records, at its jumps.

    The jumps are those that are known, by the record after each, and those that show here. Small
    ones have to be known: one that is overlooked makes the offset of its stretch wrong, and many
    add up. A clock that is truncated to whole seconds is up to a second behind; an exact one has
    the resolution 0. The offset makes this true for every record, or for as many as possible.
    """
    if not len(elapsed_ns):
        return []
    behind = shown_ns - elapsed_ns
    shown_jumps = np.flatnonzero(np.abs(np.diff(behind)) > resolution_ns + _SECOND_NS // 2) + 1
    jumps = np.union1d(shown_jumps, known_jumps)
    inner_jumps = jumps[(jumps > 0) & (jumps < len(behind))]
    found = []
    for part in np.split(np.arange(len(behind)), inner_jumps):
        low, high = int(behind[part].max()), int(behind[part].min()) + resolution_ns
        offset, error = (low + high) // 2, abs(high - low) // 2
        found.append(Stretch(int(elapsed_ns[part[0]]), int(elapsed_ns[part[-1]]), offset, error))
    return found


def _find(clock: Sequence[Stretch], shown_ns: int) -> list[Place]:
    """Return the places at which a clock showed a time; the outer stretches have no end."""
    places = []
    for i, stretch in enumerate(clock):
        ns = shown_ns - stretch.offset_ns
        # Between the last record before a jump and the first after it, either stretch may hold.
        begin, end = stretch.begin_ns, stretch.end_ns
        if i > 0:
            begin = clock[i - 1].end_ns
        if i + 1 < len(clock):
            end = clock[i + 1].begin_ns
        if begin <= ns <= end:
            places.append(Place(ns, stretch.error_ns, False))
    if len(places) > 1:
        earliest = places[0]
        apart_ns = places[-1].ns - earliest.ns
        if apart_ns <= _ONE_PLACE_NS:
            error_ns = apart_ns // 2 + max(place.error_ns for place in places)
            return [Place(earliest.ns + apart_ns // 2, error_ns, True)]
        return [place._replace(jumped=True) for place in places]
    if places:
        return places
    first, last = clock[0], clock[-1]
    if shown_ns < first.begin_ns + first.offset_ns:
        return [Place(shown_ns - first.offset_ns, first.error_ns, False)]
    if shown_ns > last.end_ns + last.offset_ns:
        return [Place(shown_ns - last.offset_ns, last.error_ns, False)]
    raise UserError("the log's clock jumped over that time", _WRITE_ELAPSED)


def _stretch_at(clock: Sequence[Stretch], at_ns: int) -> Stretch:
    for stretch in clock:
        if at_ns <= stretch.end_ns:
            return stretch
    return clock[-1]


def _to_local(unix_ns: int, zone: tzinfo) -> tuple[int, int | None]:
    """Return local time as if it were UTC, and the fold of an hour that comes twice."""
    seconds, fraction = divmod(unix_ns, _SECOND_NS)
    local = (_EPOCH.replace(tzinfo=timezone.utc) + timedelta(seconds=seconds)).astimezone(zone)
    is_twice = local.replace(fold=0).utcoffset() != local.replace(fold=1).utcoffset()
    shown = local.replace(tzinfo=None) - _EPOCH
    local_ns = round(shown.total_seconds()) * _SECOND_NS + fraction
    return local_ns, local.fold if is_twice else None


def _to_unix(local_ns: int, zone: tzinfo) -> list[int]:
    """Return the moments of a local time, earlier first; two where summer time ends."""
    seconds, fraction = divmod(local_ns, _SECOND_NS)
    local = (_EPOCH + timedelta(seconds=seconds)).replace(tzinfo=zone)
    both = [local.replace(fold=fold).timestamp() for fold in (0, 1)]
    return sorted({round(timestamp) * _SECOND_NS + fraction for timestamp in both})


def find_zone(name: str) -> ZoneInfo:
    """Return a time zone by its name, or raise UserError if this machine does not have it."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise UserError(
            f"time zone {name!r} is not known here",
            f"name one like Europe/Berlin; if all are unknown, {PIP_INSTALL} tzdata",
        ) from None
