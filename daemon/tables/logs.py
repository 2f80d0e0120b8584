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
from ...collectors.lines.replay import LogFile
from ...parsers.errors import UserError
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
    failed: Callable[[UserError], None],
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
    table, is_first = _TableBuilder(logs), True
    parser = ColumnParser()
    for number, path in enumerate(paths):
        try:
            for piece in _read_log(path, number, parser, counted):
                table.add(piece)
                if table.rows >= rows_per_table:
                    yield table.finish()
                    table, is_first = _TableBuilder(logs), False
        except UserError as problem:
            failed(problem)
    if table.rows or is_first:
        yield table.finish()


def read_table(
    logs: Sequence[str], *, interval_seconds: float = 1.0, cores: int | None = None
) -> pandas.DataFrame:
    """Read logs as one table; see ``frames.read_log``.

    Raises:
        UserError: A log cannot be read, or not to its end.
    """
    table, parser = _TableBuilder(logs), ColumnParser()
    for number, log in enumerate(logs):
        for piece in _read_log(Path(log), number, parser, None, cores, interval_seconds):
            table.add(piece)
    return table.finish()


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

    def __init__(self, logs: Sequence[str]) -> None:
        self.rows = 0
        self._logs = logs
        self._columns: dict[str, _Column] = {}
        self._pieces: list[_Piece] = []

    def add(self, piece: _Piece) -> None:
        batch = piece.batch
        for name, values in zip(batch.names, batch.values, strict=True):
            if name not in self._columns:
                self._columns[name] = _Column(dtype_of(name))
            self._columns[name].put(self.rows, values)
        self._pieces.append(piece._replace(batch=replace(batch, values=_NO_VALUES)))
        self.rows += len(batch.line)

    def finish(self) -> pandas.DataFrame:
        columns = _clock_columns(self._pieces, self._logs)
        for name in sorted(self._columns, key=column_order):
            # A column without any value, such as a zone that is off all the time, is left out.
            if self._columns[name].has_values:
                columns[name] = self._columns[name].finish(self.rows)
        return pandas.DataFrame(columns, copy=False)


class _Column:
    """A column that comes in parts, each converted while it is in the processor's cache."""

    _STORED = {"float64": np.float64, "Int64": np.int64, "boolean": np.bool_}

    def __init__(self, dtype: str) -> None:
        self._dtype = dtype
        self._parts: list[tuple[int, Any, Flags]] = []

    @property
    def has_values(self) -> bool:
        return bool(self._parts)

    def put(self, at: int, values: Floats) -> None:
        """Put values at a row; rows that are skipped have none, and so has NaN."""
        missing = np.isnan(values)
        if missing.all():
            return
        if self._dtype == "float64":
            self._parts.append((at, values.copy(), missing[:0]))
        else:
            part: Any = np.zeros(len(values), self._STORED[self._dtype])
            np.copyto(part, values, casting="unsafe", where=~missing)
            self._parts.append((at, part, missing))

    def finish(self, rows: int) -> Any:
        """Return so many rows; the parts are not kept."""
        is_float = self._dtype == "float64"
        column = np.full(rows, np.nan) if is_float else np.zeros(rows, self._STORED[self._dtype])
        missing = np.ones(0 if is_float else rows, np.bool_)
        for at, part, gaps in self._parts:
            column[at : at + len(part)] = part
            missing[at : at + len(gaps)] = gaps
        self._parts.clear()
        if self._dtype == "Int64":
            return pandas.arrays.IntegerArray(column, missing)
        return column if is_float else pandas.arrays.BooleanArray(column, missing)


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
