"""Runs that a person writes down: rows of a table, with times in one of three clocks."""

import csv
import re
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from numbers import Real
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast, get_args

import pandas

from ...parsers.errors import Mendable
from ..measure.run_report import Device

REQUIRED = ("name", "start", "end")
EARLIEST_EPOCH_SECONDS = 100_000_000
_HEADER = "begin it with name,start,end,inferences,device"
_LATEST_SECONDS = 9_000_000_000
_ISO = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d([.,]\d{1,12})?)? ?(Z|[+-]\d\d:?\d\d)?",
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


@dataclass(frozen=True, slots=True)
class GivenRun:
    """One row; ``where`` is its place for error messages, ``cells`` the row as it is written."""

    where: str
    name: str
    start: GivenTime
    end: GivenTime
    inferences: int | None
    device: Device
    batch: int
    cells: Mapping[str, Any]


class Given(NamedTuple):
    """The rows that can be read, in order, and an error for each of the others."""

    runs: list[GivenRun]
    problems: list[Mendable]


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
    if isinstance(cell, datetime) or _ISO.fullmatch(text):
        given = cell if isinstance(cell, datetime) else text.replace(",", ".")
        time = pandas.Timestamp(given)
        if pandas.isna(time):
            raise ValueError(text)
        ns = time.as_unit("ns").value
        if not 0 <= ns < _LATEST_SECONDS * 10**9:
            raise ValueError(text)
        return GivenTime("local" if time.tzinfo is None else "unix", ns)
    try:
        seconds = Decimal(text)
    except ArithmeticError:
        raise ValueError(text) from None
    if not seconds.is_finite() or not 0 <= seconds < _LATEST_SECONDS:
        raise ValueError(text)
    clock: Clock = "unix" if seconds >= EARLIEST_EPOCH_SECONDS else "elapsed"
    return GivenTime(clock, round(seconds * 10**9))


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

    def time(column: str) -> GivenTime:
        try:
            return read_time(cells[column])
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
    start, end = time("start"), time("end")
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
