"""Recorded logs become pandas tables, whole or a piece at a time; imported late.

A piece is what one block of lines became, with the time of each record. A table is made of as
many pieces as are wanted: all of them for a notebook, some ten thousand records for one row
group of a file.
"""

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from ..collectors.lines.log_file import LogFile
from ..parsers.errors import Mendable
from .tally import Tally

try:
    import numpy as np
    import pandas
except ImportError:
    raise Mendable("pandas is not installed", "pip install 'tegrascope[frames]'") from None

from ..collectors.children.column_helper import read_batches_together
from ..parsers.columns import ColumnParser, read_batches
from ..parsers.digits import Flags
from ..parsers.recorded_time import RecordedClock, Restarts, Times
from ..parsers.sheet import Batch
from ..parsers.signals import column_order
from .table_column import Column, make_column

SMALL_LOG_BYTES = 64 << 20
"""Logs up to this size are read by one process: a second one would hardly have begun."""

RECORDS_A_TABLE = 1 << 15

ROOM_RATIO = 1.25
"""Room for a table, of what its first block lets expect: to move it all at its end would take as
long as half of the reading, and memory that nobody has written to costs nothing."""

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
"""Which record it is and when it was printed: the columns before those of the line."""


class Piece(NamedTuple):
    """Records in a row of one log.

    Attributes:
        log: Number of the log.
        batch: What they say.
        times: When each was printed.
        restarted: shape (n,), whether tegrastats began anew with the record.
        can_tell: shape (n,), whether that is known.
    """

    log: int
    batch: Batch
    times: Times
    restarted: Flags
    can_tell: Flags


def read_tables(
    paths: Sequence[Path | None],
    logs: Sequence[str],
    tally: Tally,
    *,
    cores: int | None = None,
    interval_seconds: float = 1.0,
    failed: Callable[[Mendable], None] | None = None,
    moved: Callable[[int], None] = lambda _: None,
) -> Iterator[pandas.DataFrame]:
    """Read logs of any size as tables of some ten thousand records; see ``read_pieces``.

    Args:
        paths: Plain or gzip; ``None`` is standard input.
        logs: Their names.
        tally: Is kept up to date.
        cores: How many to use; ``None`` is all of them for a large log.
        interval_seconds: Time between two records of a log that tells no time.
        failed: Is told of a log that cannot be read.
        moved: Is told how many bytes have been read.

    Yields:
        At least one table; that of no record has no columns but those of the clock.
    """
    table = TableBuilder(logs, RECORDS_A_TABLE)
    is_first = True
    for piece in read_pieces(
        paths, tally, cores=cores, interval_seconds=interval_seconds, failed=failed
    ):
        table.add(piece)
        if table.rows >= RECORDS_A_TABLE:
            yield table.finish()
            table, is_first = TableBuilder(logs, RECORDS_A_TABLE), False
            moved(tally.bytes_read)
    if table.rows or is_first:
        yield table.finish()


def read_table(
    paths: Sequence[Path | None],
    logs: Sequence[str],
    tally: Tally,
    *,
    cores: int | None = None,
    interval_seconds: float = 1.0,
) -> pandas.DataFrame:
    """Read logs as one table; see ``read_tables``.

    Raises:
        Mendable: A log cannot be read, or not to its end.
    """
    size_bytes = sum(path.stat().st_size for path in paths if path and path.is_file())
    table = None
    for piece in read_pieces(paths, tally, cores=cores, interval_seconds=interval_seconds):
        if table is None:
            share = len(piece.batch.line) / max(piece.batch.size_bytes, 1)
            table = TableBuilder(logs, round(ROOM_RATIO * share * size_bytes))
        table.add(piece)
    return (table or TableBuilder(logs)).finish()


def read_pieces(
    paths: Sequence[Path | None],
    tally: Tally,
    *,
    cores: int | None = None,
    interval_seconds: float = 1.0,
    failed: Callable[[Mendable], None] | None = None,
) -> Iterator[Piece]:
    """Read logs one behind the other.

    Args:
        paths: Plain or gzip; ``None`` is standard input.
        tally: Is kept up to date.
        cores: How many to use; ``None`` is all of them for a large log.
        interval_seconds: Time between two records of a log that tells no time.
        failed: Is told of a log that cannot be read, or not to its end; ``None`` raises.

    Yields:
        All records, in order.

    Raises:
        Mendable: A log cannot be read, and nobody wants to be told.
    """
    parser = ColumnParser()
    for number, path in enumerate(paths):
        try:
            yield from _read_log(path, number, tally, parser, cores, interval_seconds)
        except Mendable as problem:
            if failed is None:
                raise
            failed(problem)


def _read_log(
    path: Path | None,
    number: int,
    tally: Tally,
    parser: ColumnParser,
    cores: int | None,
    interval_seconds: float,
) -> Iterator[Piece]:
    with LogFile(path) as log:
        before = tally.bytes_read
        together = (cores or cores_for(log.size_bytes)) > 1
        read = read_batches_together if together else read_batches
        batches = read(log, parser)
        for piece in _timed(_counted(batches, tally), number, interval_seconds):
            tally.bytes_read = before + log.position_bytes
            yield piece
        tally.bytes_read = before + log.position_bytes
        if log.problem is not None:
            raise log.problem


class TableBuilder:
    """One table of many pieces, which are not kept."""

    def __init__(self, logs: Sequence[str], expected_rows: int = 0) -> None:
        """Begin without rows.

        Args:
            logs: Names of all logs.
            expected_rows: How many there will be, about.
        """
        self.rows = 0
        self._logs = logs
        self._capacity = expected_rows
        self._columns: dict[str, Column] = {}
        self._clocks: list[Piece] = []

    def add(self, piece: Piece) -> None:
        """Put the records of a piece below those that are there."""
        batch = piece.batch
        end = self.rows + len(batch.line)
        if end > self._capacity:
            self._capacity = max(end, self._capacity * 3 // 2)
        for name, values in zip(batch.names, batch.values, strict=True):
            column = self._columns.get(name)
            if column is None:
                column = self._columns[name] = make_column(name, self._capacity)
            column.put(self.rows, values, self._capacity)
        self._clocks.append(piece._replace(batch=replace(batch, values=np.empty((0, 0)))))
        self.rows = end

    def finish(self) -> pandas.DataFrame:
        """Return the table; see ``frames.read_log`` for its columns."""
        names = sorted(self._columns, key=column_order)

        columns = [self._columns[name].finish(self.rows) for name in names]
        # A zone that was powered off all the time is no column.
        said = {n: column for n, column in zip(names, columns, strict=True) if column is not None}
        return pandas.DataFrame(_clock_columns(self._clocks, self._logs) | said, copy=False)


def _clock_columns(pieces: Sequence[Piece], logs: Sequence[str]) -> dict[str, Any]:
    """Return the columns that tell which record it is, and when it was printed."""
    numbers = np.repeat(
        np.array([piece.log for piece in pieces], np.int32),
        [len(piece.batch.line) for piece in pieces],
    )
    printed = _whole([piece.batch.printed_seconds for piece in pieces], np.int64)
    received = _whole([piece.batch.received_ns for piece in pieces], np.int64)
    can_tell = _whole([piece.can_tell for piece in pieces], np.bool_)
    restarted = _whole([piece.restarted for piece in pieces], np.bool_)
    elapsed, error, step = (
        _whole([piece.times[at] for piece in pieces], np.float64) for at in range(3)
    )
    columns = (
        pandas.Categorical.from_codes(numbers, pandas.Index(logs)),
        _whole([piece.batch.line for piece in pieces], np.int64),
        printed.view("datetime64[s]"),
        pandas.DatetimeIndex(received.view("datetime64[ns]"), tz="UTC"),
        elapsed,
        error,
        step,
        pandas.arrays.BooleanArray(restarted, ~can_tell),
    )
    return dict(zip(CLOCK_COLUMNS, columns, strict=True))


def _whole(parts: Sequence[Any], kind: type) -> Any:
    return np.concatenate([np.empty(0, kind), *parts])


def cores_for(size_bytes: int | None) -> int:
    """Return how many cores a log is worth; a size of ``None`` may be anything."""
    if size_bytes is not None and size_bytes <= SMALL_LOG_BYTES:
        return 1
    return len(os.sched_getaffinity(0))


def _counted(batches: Iterator[Batch], tally: Tally) -> Iterator[Batch]:
    for batch in batches:
        tally.lines += batch.lines
        tally.records += len(batch.line)
        tally.skipped += batch.skipped
        tally.unparsed_words += batch.unparsed_words
        yield batch


def _timed(batches: Iterator[Batch], log: int, interval_seconds: float) -> Iterator[Piece]:
    """Give the records of one log their times, which may be known only when later ones come."""
    clock, restarts = RecordedClock(interval_seconds), Restarts()
    waiting: deque[tuple[Batch, Flags, Flags]] = deque()
    known = Times(np.empty(0), np.empty(0), np.empty(0))
    for batch in batches:
        columns = dict(zip(batch.names, batch.values, strict=True))
        restarted, can_tell = restarts.feed(columns, len(batch.line))
        waiting.append((batch, restarted, can_tell))
        known = _behind(known, clock.feed(batch.printed_seconds, batch.received_ns, restarted))
        while waiting and len(waiting[0][0].line) <= len(known[0]):
            piece, known = _settle(log, *waiting.popleft(), known)
            yield piece
    known = _behind(known, clock.finish())
    while waiting:
        piece, known = _settle(log, *waiting.popleft(), known)
        yield piece


def _behind(known: Times, more: Times) -> Times:
    return Times(*(np.concatenate(both) for both in zip(known, more, strict=True)))


def _settle(
    log: int, batch: Batch, restarted: Flags, can_tell: Flags, known: Times
) -> tuple[Piece, Times]:
    rows = len(batch.line)
    times = Times(*(column[:rows] for column in known))
    rest = Times(*(column[rows:] for column in known))
    return Piece(log, batch, times, restarted, can_tell), rest
