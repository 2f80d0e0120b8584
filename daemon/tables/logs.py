"""Recorded logs of any size as pandas tables: one row per record, with the time of each.

A piece holds the records of one block of lines; a table is made from some ten thousand records.
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
from ...parsers.tegrastats.bulk import Batch, ColumnParser, read_batches
from ...parsers.tegrastats.digits import Flags, Floats
from ...parsers.tegrastats.printed_time import RecordedClock, Restarts, Times

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

Counted = Callable[[Batch, int, int], None]

_NO_VALUES: Floats = np.empty((0, 0))


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
    counted: Counted = lambda *_: None,
    failed: Callable[[UserError], None] | None = None,
    rows_per_table: float = ROWS_PER_TABLE,
    interval_seconds: float = 1.0,
    cores: int | None = None,
) -> Iterator[pandas.DataFrame]:
    """Read logs as a sequence of tables, at least one; see ``frames.read_log``.

    Args:
        paths: Plain or gzip; ``None`` is standard input.
        counted: Takes each batch, the number of its log, and how many bytes of that are read.
        failed: Called for a log that cannot be read, or not to its end; the others are read.
        rows_per_table: A table is yielded once it has so many.

    Raises:
        UserError: A log cannot be read, or not to its end, without a ``failed``.
    """
    table, is_first, parser = _TableBuilder(logs), True, ColumnParser()
    for number, path in enumerate(paths):
        try:
            with LogFile(path) as log:
                batches = _batches(log, number, parser, cores, counted)
                for piece in _timed(batches, number, interval_seconds):
                    table.add(piece)
                    if table.rows >= rows_per_table:
                        yield table.finish()
                        table, is_first = _TableBuilder(logs), False
                if log.problem is not None:
                    raise log.problem
        except UserError as problem:
            if failed is None:
                raise
            failed(problem)
    if table.rows or is_first:
        yield table.finish()


def _batches(
    log: LogFile, number: int, parser: ColumnParser, cores: int | None, counted: Counted
) -> Iterator[Batch]:
    """Read a log in one process, or in two if it is large and none is set."""
    if cores is None:
        is_small = log.size_bytes is not None and log.size_bytes <= SMALL_LOG_BYTES
        cores = 1 if is_small else len(os.sched_getaffinity(0))
    for batch in (read_batches_together if cores > 1 else read_batches)(log, parser):
        counted(batch, number, log.position_bytes)
        yield batch


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
            missing = np.isnan(values)
            # A column without any value, such as a zone that is off all the time, is left out.
            if not missing.all():
                if name not in self._columns:
                    self._columns[name] = _Column(dtype_of(name))
                self._columns[name].put(self.rows, values, missing)
        self._pieces.append(piece._replace(batch=replace(batch, values=_NO_VALUES)))
        self.rows += len(batch.line)

    def finish(self) -> pandas.DataFrame:
        columns = _clock_columns(self._pieces, self._logs)
        for name in sorted(self._columns, key=column_order):
            columns[name] = self._columns[name].finish(self.rows)
        return pandas.DataFrame(columns, copy=False)


class _Column:
    """A column that comes in parts, each converted while it is in the processor's cache."""

    _STORED = {"float64": np.float64, "Int64": np.int64, "boolean": np.bool_}

    def __init__(self, dtype: str) -> None:
        self._dtype = dtype
        self._parts: list[tuple[int, Any, Flags]] = []

    def put(self, at: int, values: Floats, missing: Flags) -> None:
        """Put values at a row, of which some are missing, as are rows that are skipped."""
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
