"""Recorded logs of any size as pandas tables: one row per record, with the time of each.

A piece holds the records of one block of lines. A table is made from all pieces (``read_table``)
or from some ten thousand records at a time (``read_tables``).
"""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas

from ...collectors.children.column_helper import read_batches_together
from ...collectors.lines.log_file import LogFile
from ...parsers.errors import Mendable
from ...parsers.signals import column_order, dtype_of
from ...parsers.tegrastats.bulk import ColumnParser, read_batches
from ...parsers.tegrastats.digits import Flags, Floats
from ...parsers.tegrastats.printed_time import RecordedClock, Restarts, Times
from ...parsers.tegrastats.sheet import Batch

SMALL_LOG_BYTES = 64 << 20
"""Logs up to this size are read by one process: starting a second one would not pay."""

ROWS_PER_TABLE = 1 << 15

CLOCK_COLUMNS = (
    "log",
    "line",
    "time",
    "received",
    "elapsed_seconds",
    "elapsed_error_seconds",
    "clock_step_seconds",
    "restarted",
)

# Room for more rows than the first block suggests. A column that must grow is copied, which takes
# as long as half of the reading; memory that is never written costs nothing.
_ROOM_RATIO = 1.25
_NO_VALUES: Floats = np.empty((0, 0))

Counted = Callable[[Batch, int, int], None]
"""Takes each batch, the number of its log, and how many bytes of that are read."""


class _Piece(NamedTuple):
    """Consecutive records of one log; ``can_tell`` marks those whose ``restarted`` is known."""

    log: int
    batch: Batch
    times: Times
    restarted: Flags
    can_tell: Flags


def read_tables(
    paths: Sequence[Path | None],
    logs: Sequence[str],
    *,
    counted: Counted,
    failed: Callable[[Mendable], None],
    rows_per_table: int = ROWS_PER_TABLE,
) -> Iterator[pandas.DataFrame]:
    """Read logs as a sequence of tables.

    Args:
        paths: Plain or gzip; ``None`` is standard input.
        logs: Their names.
        counted: Called for each batch.
        failed: Called for a log that cannot be read, or not to its end; the others are read.
        rows_per_table: A table is yielded once it has so many.

    Yields:
        At least one table. Without records it has the clock columns only.
    """
    table, is_first = _TableBuilder(logs, rows_per_table), True
    parser = ColumnParser()
    for number, path in enumerate(paths):
        try:
            for piece in _read_log(path, number, parser, counted):
                table.add(piece)
                if table.rows >= rows_per_table:
                    yield table.finish()
                    table, is_first = _TableBuilder(logs, rows_per_table), False
        except Mendable as problem:
            failed(problem)
    if table.rows or is_first:
        yield table.finish()


def read_table(
    logs: Sequence[str], *, interval_seconds: float = 1.0, cores: int | None = None
) -> pandas.DataFrame:
    """Read logs as one table; see ``frames.read_log``.

    Raises:
        Mendable: A log cannot be read, or not to its end.
    """
    paths = list(map(Path, logs))
    size_bytes = sum(path.stat().st_size for path in paths if path.is_file())
    table, parser = None, ColumnParser()
    for number, path in enumerate(paths):
        for piece in _read_log(path, number, parser, None, cores, interval_seconds):
            if table is None:
                rows_per_byte = len(piece.batch.line) / max(piece.batch.size_bytes, 1)
                table = _TableBuilder(logs, round(_ROOM_RATIO * rows_per_byte * size_bytes))
            table.add(piece)
    return (table or _TableBuilder(logs)).finish()


def _read_log(
    path: Path | None,
    number: int,
    parser: ColumnParser,
    counted: Counted | None,
    cores: int | None = None,
    interval_seconds: float = 1.0,
) -> Iterator[_Piece]:
    with LogFile(path) as log:
        if cores is None:
            is_small = log.size_bytes is not None and log.size_bytes <= SMALL_LOG_BYTES
            cores = 1 if is_small else len(os.sched_getaffinity(0))
        batches = (read_batches_together if cores > 1 else read_batches)(log, parser)

        def counting() -> Iterator[Batch]:
            for batch in batches:
                if counted is not None:
                    counted(batch, number, log.position_bytes)
                yield batch

        yield from _timed(counting(), number, interval_seconds)
        if log.problem is not None:
            raise log.problem


def _timed(batches: Iterator[Batch], log: int, interval_seconds: float) -> Iterator[_Piece]:
    """Add the times of the records, which may be known only when later records come."""
    clock, restarts = RecordedClock(interval_seconds), Restarts()
    waiting: deque[tuple[Batch, Flags, Flags]] = deque()
    known = Times(np.empty(0), np.empty(0), np.empty(0))

    def settled(more: Times) -> Iterator[_Piece]:
        nonlocal known
        known = Times(*(np.concatenate(both) for both in zip(known, more, strict=True)))
        while waiting and len(waiting[0][0].line) <= len(known.elapsed_seconds):
            batch, restarted, can_tell = waiting.popleft()
            rows = len(batch.line)
            times = Times(*(column[:rows] for column in known))
            known = Times(*(column[rows:] for column in known))
            yield _Piece(log, batch, times, restarted, can_tell)

    for batch in batches:
        columns = dict(zip(batch.names, batch.values, strict=True))
        restarted, can_tell = restarts.feed(columns, len(batch.line))
        waiting.append((batch, restarted, can_tell))
        yield from settled(clock.feed(batch.printed_seconds, batch.received_ns, restarted))
    yield from settled(clock.finish())


class _TableBuilder:
    """One table from many pieces, which are not kept."""

    def __init__(self, logs: Sequence[str], expected_rows: int = 0) -> None:
        self.rows = 0
        self._logs = logs
        self._capacity = expected_rows
        self._columns: dict[str, _Column] = {}
        self._pieces: list[_Piece] = []

    def add(self, piece: _Piece) -> None:
        batch = piece.batch
        end = self.rows + len(batch.line)
        if end > self._capacity:
            self._capacity = max(end, self._capacity * 3 // 2)
        for name, values in zip(batch.names, batch.values, strict=True):
            column = self._columns.get(name)
            if column is None:
                column = self._columns[name] = _Column(dtype_of(name), self._capacity)
            column.put(self.rows, values, self._capacity)
        self._pieces.append(piece._replace(batch=replace(batch, values=_NO_VALUES)))
        self.rows = end

    def finish(self) -> pandas.DataFrame:
        columns = _clock_columns(self._pieces, self._logs)
        for name in sorted(self._columns, key=column_order):
            # A column without any value, such as a zone that is off all the time, is left out.
            if (values := self._columns[name].finish(self.rows)) is not None:
                columns[name] = values
        return pandas.DataFrame(columns, copy=False)


class _Column:
    """A column that is filled piece by piece, in the form in which pandas keeps it.

    Each value is converted while it is in the processor's cache. Another pass over a table of
    gigabytes would take as long as reading the log. Zeros are missing values, except in floats.
    """

    _STORED = {"float64": np.float64, "Int64": np.int64, "boolean": np.uint8}
    _NO, _YES = 1, 2

    def __init__(self, dtype: str, capacity: int) -> None:
        self._dtype = dtype
        self._values: Any = np.zeros(capacity, self._STORED[dtype])
        self._valid: Flags = np.zeros(capacity if dtype == "Int64" else 0, np.bool_)
        self._end = 0
        self._is_empty = True

    def put(self, at: int, values: Floats, capacity: int) -> None:
        """Put values at a row; rows that are skipped have none, and so has NaN."""
        end = at + len(values)
        if end > len(self._values):
            self._values = _grown(self._values, capacity)
            self._valid = _grown(self._valid, capacity if self._dtype == "Int64" else 0)
        rows, has = self._values[at:end], ~np.isnan(values)
        if self._dtype == "float64":
            self._values[self._end : at] = np.nan
            rows[:] = values
        elif self._dtype == "Int64":
            self._valid[at:end] = has
            np.copyto(rows, values, casting="unsafe", where=has)
        else:
            np.copyto(rows, np.where(values != 0, self._YES, self._NO), "unsafe", where=has)
        self._end = end
        self._is_empty = self._is_empty and not has.any()

    def finish(self, rows: int) -> Any:
        """Return so many rows, or None if no row has a value."""
        if self._is_empty:
            return None
        if rows > len(self._values):
            self._values = _grown(self._values, rows)
            self._valid = _grown(self._valid, rows if self._dtype == "Int64" else 0)
        values = self._values[:rows]
        if self._dtype == "Int64":
            return pandas.arrays.IntegerArray(values, ~self._valid[:rows])
        if self._dtype == "boolean":
            return pandas.arrays.BooleanArray(values == self._YES, values == 0)
        values[self._end :] = np.nan
        return values


def _grown(array: Any, size: int) -> Any:
    return np.concatenate((array, np.zeros(max(size - len(array), 0), array.dtype)))


def _clock_columns(pieces: Sequence[_Piece], logs: Sequence[str]) -> dict[str, Any]:
    """Return the columns that identify a record and its time."""
    batches = [piece.batch for piece in pieces]
    numbers = np.repeat(
        np.array([piece.log for piece in pieces], np.int32), [len(batch.line) for batch in batches]
    )
    received = _joined((batch.received_ns for batch in batches), np.int64)
    columns = (
        pandas.Categorical.from_codes(numbers, pandas.Index(logs)),
        _joined((batch.line for batch in batches), np.int64),
        _joined((batch.printed_seconds for batch in batches), np.int64).view("datetime64[s]"),
        pandas.DatetimeIndex(received.view("datetime64[ns]"), tz="UTC"),
        *(_joined((piece.times[at] for piece in pieces), np.float64) for at in range(3)),
        pandas.arrays.BooleanArray(
            _joined((piece.restarted for piece in pieces), np.bool_),
            ~_joined((piece.can_tell for piece in pieces), np.bool_),
        ),
    )
    return dict(zip(CLOCK_COLUMNS, columns, strict=True))


def _joined(parts: Iterable[Any], kind: type) -> Any:
    return np.concatenate([np.empty(0, kind), *parts])
