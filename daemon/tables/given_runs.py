"""Runs that a person writes down: rows of a table, with times in one of three clocks."""

import csv
import re
from calendar import timegm
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from numbers import Real
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast, get_args

from ...parsers.errors import Mendable
from ..measure.run_report import Device

REQUIRED = ("name", "start", "end")
EARLIEST_EPOCH_SECONDS = 100_000_000
_HEADER = "begin it with name,start,end,inferences,device"
_LATEST_SECONDS = 9_000_000_000
_ISO = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[T ]([0-9]{2}:[0-9]{2}(?::[0-9]{2})?)(?:[.,]([0-9]{1,12}))?"
    r" ?(?:(Z)|([+-][0-9]{2}):?([0-9]{2}))?",
    re.IGNORECASE,
)
_TIMES = (
    "write ISO 8601 (2025-06-25T09:43:17.5+02:00), seconds since 1970, or seconds since the "
    "first record of the log"
)


class Moment(NamedTuple):
    """A time as it was written down, in nanoseconds of its clock.

    Attributes:
        clock: ``unix``: since 1970 in UTC; ``local``: as the log prints it, counted from 1970 as
            if it were UTC; ``elapsed``: since the first record of the log.
    """

    clock: Literal["unix", "local", "elapsed"]
    ns: int


@dataclass(frozen=True, slots=True)
class GivenRun:
    """One row.

    Attributes:
        where: The row's place, for error messages.
        inferences: ``None`` if they were not counted.
        batch: Inputs per inference.
        cells: The whole row as it is written.
    """

    where: str
    name: str
    start: Moment
    end: Moment
    inferences: int | None
    device: Device
    batch: int
    cells: Mapping[str, Any]


class Given(NamedTuple):
    """The rows that can be read, in order, and an error for each of the others."""

    runs: list[GivenRun]
    problems: list[Mendable]


def read_moment(cell: object) -> Moment:
    """Read a time.

    Args:
        cell: ISO 8601, with or without offset; a ``datetime``; or a number of seconds, from
            100 000 000 since 1970, below that since the first record of the log.

    Raises:
        ValueError: It is none of these.

    >>> read_moment("1970-01-02T01:00:00.5+01:00"), read_moment("12.5")
    (Moment(clock='unix', ns=86400500000000), Moment(clock='elapsed', ns=12500000000))
    """
    if isinstance(cell, datetime):
        nanoseconds = getattr(cell, "nanosecond", 0)  # of a pandas.Timestamp
        return _dated(cell, cell.microsecond * 1000 + int(nanoseconds))
    text = str(cell).strip()
    if found := _ISO.fullmatch(text):
        date, clock, fraction, is_utc, hours, minutes = found.groups()
        moment = datetime.fromisoformat(f"{date}T{clock}")
        if is_utc:
            moment = moment.replace(tzinfo=timezone.utc)
        elif hours:
            east = timedelta(hours=int(hours[1:]), minutes=int(minutes))
            moment = moment.replace(tzinfo=timezone(-east if hours[0] == "-" else east))
        return _dated(moment, int((fraction or "0")[:9].ljust(9, "0")))
    try:
        seconds = Decimal(text)
    except ArithmeticError:
        raise ValueError(text) from None
    if not seconds.is_finite() or not 0 <= seconds < _LATEST_SECONDS:
        raise ValueError(text)
    return Moment(
        "unix" if seconds >= EARLIEST_EPOCH_SECONDS else "elapsed", round(seconds * 10**9)
    )


def _dated(moment: datetime, fraction_ns: int) -> Moment:
    seconds = timegm(moment.utctimetuple())
    if not 0 <= seconds < _LATEST_SECONDS:
        raise ValueError(str(moment))
    return Moment("local" if moment.tzinfo is None else "unix", seconds * 10**9 + fraction_ns)


def read_runs(path: Path) -> Given:
    """Read a table of runs.

    Args:
        path: CSV with the columns ``name``, ``start``, ``end``, and optionally ``inferences``,
            ``device`` and ``batch``. Other columns are kept.

    Raises:
        Mendable: It cannot be read, or lacks a column.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise Mendable(f"{path} cannot be read ({error.strerror})", "name a CSV file") from None
    except UnicodeDecodeError:
        raise Mendable(f"{path} is not a text file", "name a CSV file") from None
    reader = csv.reader(text.splitlines(), skipinitialspace=True)
    problems: list[Mendable] = []
    rows: list[tuple[str, Mapping[Hashable, object]]] = []
    header: list[str] | None = None
    try:
        for cells in reader:
            where = f"{path} line {reader.line_num}"
            if not any(cells):
                continue
            if header is None:
                header = [cell.strip() for cell in cells]
                _check_columns(header, str(path))
            elif len(cells) != len(header):
                wrong = f"{where}: {len(cells)} cells for {len(header)} columns"
                problems.append(Mendable(wrong, "write one cell per column"))
            else:
                rows.append((where, dict(zip(header, cells, strict=True))))
    except csv.Error as error:
        raise Mendable(f"{path} line {reader.line_num}: {error}", "write it as CSV") from None
    if header is None:
        raise Mendable(f"{path} is empty", _HEADER)
    given = given_runs(rows)
    return Given(given.runs, problems + given.problems)


def _check_columns(names: Iterable[Hashable], where: str) -> None:
    columns = list(names)
    for name in REQUIRED:
        if name not in columns:
            raise Mendable(f"{where} has no column {name!r}", _HEADER)
    for column in columns:
        if columns.count(column) > 1:
            raise Mendable(f"{where} has two columns {column!r}", "give each its own name")


def given_runs(rows: Iterable[tuple[str, Mapping[Hashable, object]]]) -> Given:
    """Read rows of a table.

    Args:
        rows: The place of each row for error messages, and its cells by column. An empty cell
            and NaN are missing values.

    Raises:
        Mendable: A column is missing.
    """
    given = Given([], [])
    for where, cells in rows:
        _check_columns(cells, where)
        try:
            given.runs.append(_run(where, cells))
        except Mendable as problem:
            given.problems.append(problem)
    return given


def _run(where: str, cells: Mapping[Hashable, object]) -> GivenRun:
    def wrong(column: str, remedy: str) -> Mendable:
        return Mendable(f"{where}: {column} is {_text(cells[column]) or ''!r}", remedy)

    def moment(column: str) -> Moment:
        try:
            return read_moment(cells[column])
        except ValueError:
            raise wrong(column, _TIMES) from None

    def count(column: str, least: int) -> int | None:
        text = _text(cells.get(column))
        if text is None:
            return None
        try:
            number = Decimal(text)
            if number < least or number != int(number):
                raise ValueError
        except (ArithmeticError, ValueError):
            raise wrong(column, f"write a whole number from {least}, or nothing") from None
        return int(number)

    name = _text(cells["name"])
    if name is None:
        raise Mendable(f"{where} has no name", "give the run one")
    start, end = moment("start"), moment("end")
    if start.clock == end.clock and end.ns <= start.ns and start.clock != "local":
        raise Mendable(f"{where}: the run ends before it begins", "correct start or end")
    device = _text(cells.get("device")) or "external"
    if device not in get_args(Device):
        raise wrong("device", f"use one of {', '.join(get_args(Device))}")
    return GivenRun(
        where=where,
        name=name,
        start=start,
        end=end,
        inferences=count("inferences", 0),
        device=cast(Device, device),
        batch=count("batch", 1) or 1,
        cells={str(column): cell for column, cell in cells.items()},
    )


def _text(cell: object) -> str | None:
    """Return the text of a cell; None for an empty one, which is NaN in pandas."""
    if cell is None or (isinstance(cell, Real) and cell != cell):
        return None
    text = str(cell).strip()
    return None if text in ("", "<NA>", "NaT") else text
