"""Runs that a person names: rows of a table, with the times as they were written down."""

import csv
import re
from calendar import timegm
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from decimal import Decimal, InvalidOperation
from numbers import Real
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from ..parsers.errors import Mendable
from .measure.run_report import Device

REQUIRED = ("name", "start", "end")
HEADER = "name,start,end,inferences,device"
EARLIEST_EPOCH_SECONDS = 100_000_000
_LATEST_SECONDS = 9_000_000_000
_ISO = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[T ]([0-9]{2}:[0-9]{2}(?::[0-9]{2})?)(?:[.,]([0-9]{1,12}))?"
    r" ?(Z|[+-][0-9]{2}:?[0-9]{2})?",
    re.IGNORECASE,
)
_TIMES = (
    "write ISO 8601 (2025-06-25T09:43:17.5+02:00), seconds since 1970, or seconds since the "
    "first record of the log"
)


class Moment(NamedTuple):
    """A time as it was written down.

    Attributes:
        clock: ``unix``: since 1970 in UTC; ``local``: as the log prints it, counted from 1970 as
            if it were UTC; ``elapsed``: since the first record of the log.
        ns: Nanoseconds on that clock.
    """

    clock: Literal["unix", "local", "elapsed"]
    ns: int


@dataclass(frozen=True, slots=True)
class GivenRun:
    """One row.

    Attributes:
        where: Which row, for words about it.
        name: What ran.
        start: When it began.
        end: When it ended.
        inferences: How many it made; ``None`` where nobody counted.
        device: On what.
        batch: Inputs an inference.
        cells: The whole row, untouched.
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
    """What was made of a table.

    Attributes:
        runs: The rows that can be read, in order.
        problems: One for each of the others.
    """

    runs: list[GivenRun]
    problems: list[Mendable]


def read_moment(cell: object) -> Moment:
    """Read a time.

    Args:
        cell: ISO 8601, with an offset or without; a ``datetime``; or a number of seconds, from
            100 000 000 on since 1970, below that since the first record of the log.

    Raises:
        ValueError: It is none of these.

    >>> read_moment("1970-01-02T01:00:00.5+01:00"), read_moment("12.5")
    (Moment(clock='unix', ns=86400500000000), Moment(clock='elapsed', ns=12500000000))
    """
    if isinstance(cell, datetime):
        fine = getattr(cell, "nanosecond", 0)  # of a pandas.Timestamp
        return _dated(cell, cell.microsecond * 1000 + int(fine))
    text = str(cell).strip()
    found = _ISO.fullmatch(text)
    if found is not None:
        moment = datetime.fromisoformat(f"{found[1]}T{found[2]}")
        if found[4]:
            moment = moment.replace(tzinfo=_offset(found[4]))
        return _dated(moment, int((found[3] or "0")[:9].ljust(9, "0")))
    try:
        seconds = Decimal(text)
    except InvalidOperation:
        raise ValueError(text) from None
    if not seconds.is_finite() or not 0 <= seconds < _LATEST_SECONDS:
        raise ValueError(text)
    clock: Literal["unix", "elapsed"] = "unix" if seconds >= EARLIEST_EPOCH_SECONDS else "elapsed"
    return Moment(clock, round(seconds * 10**9))


def _dated(moment: datetime, fraction_ns: int) -> Moment:
    seconds = timegm(moment.utctimetuple())
    clock: Literal["unix", "local"] = "local" if moment.tzinfo is None else "unix"
    if not 0 <= seconds < _LATEST_SECONDS:
        raise ValueError(str(moment))
    return Moment(clock, seconds * 10**9 + fraction_ns)


def _offset(text: str) -> timezone:
    if text in "Zz":
        return timezone.utc
    size = timedelta(hours=int(text[1:3]), minutes=int(text[-2:]))
    return timezone(-size if text[0] == "-" else size)


def read_runs(path: Path) -> Given:
    """Read a table of runs.

    Args:
        path: CSV with the columns ``name``, ``start``, ``end``, and, if there is more to say,
            ``inferences``, ``device`` and ``batch``. Other columns are carried along.

    Raises:
        Mendable: It cannot be read, or lacks a column.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise Mendable(f"{path} cannot be read ({error.strerror})", "name a CSV file") from None
    except UnicodeDecodeError:
        raise Mendable(f"{path} is no text", "name a CSV file") from None
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
                what = f"{len(cells)} cells under {len(header)} names"
                problems.append(Mendable(f"{where}: {what}", "give every column a cell"))
            else:
                rows.append((where, dict(zip(header, cells, strict=True))))
    except csv.Error as error:
        raise Mendable(f"{path} line {reader.line_num}: {error}", "write it as CSV") from None
    if header is None:
        raise Mendable(f"{path} is empty", f"begin it with {HEADER}")
    given = given_runs(rows)
    return Given(given.runs, problems + given.problems)


def _check_columns(names: Iterable[Hashable], where: str) -> None:
    columns = list(names)
    for name in REQUIRED:
        if name not in columns:
            raise Mendable(f"{where} has no column {name!r}", f"begin it with {HEADER}")
    for column in columns:
        if columns.count(column) > 1:
            raise Mendable(f"{where} has two columns {column!r}", "give each its own name")


def given_runs(rows: Iterable[tuple[str, Mapping[Hashable, object]]]) -> Given:
    """Read rows of a table.

    Args:
        rows: Words for where each stands, and its cells by column; an empty cell or NaN is none.

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
    def moment(name: str) -> Moment:
        try:
            return read_moment(cells[name])
        except ValueError:
            raise Mendable(f"{where}: {name} is {_shown(cells[name])}", _TIMES) from None

    def count(name: str, least: int) -> int | None:
        text = _text(cells.get(name))
        if text is None:
            return None
        try:
            number = Decimal(text)
            if number < least or number != int(number):
                raise ValueError
        except (ArithmeticError, ValueError):
            mend = f"write a whole number from {least} on, or nothing"
            raise Mendable(f"{where}: {name} is {_shown(cells[name])}", mend) from None
        return int(number)

    name = _text(cells["name"])
    if name is None:
        raise Mendable(f"{where} has no name", "give the run one")
    start, end = moment("start"), moment("end")
    if start.clock == end.clock and end.ns <= start.ns and start.clock != "local":
        raise Mendable(f"{where}: the run ends before it begins", "correct start or end")
    device: Device | None = next(
        (one for one in get_args(Device) if one == (_text(cells.get("device")) or "external")), None
    )
    if device is None:
        mend = f"use one of {', '.join(get_args(Device))}"
        raise Mendable(f"{where}: device is {_shown(cells['device'])}", mend)
    return GivenRun(
        where=where,
        name=name,
        start=start,
        end=end,
        inferences=count("inferences", 0),
        device=device,
        batch=count("batch", 1) or 1,
        cells={str(column): cell for column, cell in cells.items()},
    )


def _text(cell: object) -> str | None:
    """Return the text of a cell; ``None`` for an empty one, which pandas shows as NaN."""
    if cell is None or (isinstance(cell, Real) and cell != cell):
        return None
    text = str(cell).strip()
    return None if text in ("", "<NA>", "NaT") else text


def _shown(cell: object) -> str:
    return repr(_text(cell) or "")
