"""Recorded logs of any size as a sequence of tables.

A piece holds the records of one block of lines, and a table is made from some ten thousand records.
"""

import os
import pickle
import tempfile
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...collectors.children.column_helper import read_batches_together
from ...collectors.lines.replay import LogFile, LogPath, log_path
from ...collectors.paths import is_directory
from ...daemon.outputs import open_output, unwritable
from ...parsers.errors import UserError
from ...parsers.signals import column_order, dtype_of
from ...parsers.tegrastats.bulk import Batch, ColumnParser, read_batches
from ...parsers.tegrastats.digits import Flags, Floats, Integers
from ...parsers.tegrastats.prefix import EARLIEST_EPOCH_SECONDS
from ...parsers.tegrastats.printed_time import ABSENT, RecordedClock, Restarts, Times
from ..results.run_table import utc_text, write_csv

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

Paths = str | Path | Iterable[str | Path]
Counted = Callable[[Batch, int, int], None]

_NO_VALUES: Floats = np.empty((0, 0))
_CELL_TYPES: dict[str, Callable[[float], object]] = {
    "float64": float,
    "Int64": int,
    "boolean": bool,
}
_EPOCH = datetime(1970, 1, 1)
# Rows that are text at the same time. A log may have a thousand columns.
_ROWS_OF_CELLS = 1024


@dataclass
class LogTable:
    """Records of some logs as columns, each of shape (n,).

    Attributes:
        logs: Names of the logs.
        log: Number of each record's log.
        line: Number of its line, from 1.
        printed_seconds: Local time as printed, as if it were UTC, since 1970; ``ABSENT`` without.
        received_ns: Time of a recorder, since 1970; ``ABSENT`` without.
        times: Since the first record of the log.
        restarted: 1 if tegrastats started anew with the record, 0 if not, NaN if it is not known.
        values: The other columns by name, in their order, with NaN for an absent value.
    """

    logs: Sequence[str]
    log: Integers
    line: Integers
    printed_seconds: Integers
    received_ns: Integers
    times: Times
    restarted: Floats
    values: dict[str, Floats]


class _Piece(NamedTuple):
    """Consecutive records of one log; ``can_tell`` marks those whose ``restarted`` is known."""

    log: int
    batch: Batch
    times: Times
    restarted: Flags
    can_tell: Flags


def log_names(paths: Paths) -> list[str]:
    """Return the logs that a person gave, as they are written."""
    if isinstance(paths, (str, Path)):
        return [str(paths)]
    return [str(path) for path in paths]


def read_tables(
    paths: Sequence[LogPath],
    logs: Sequence[str],
    *,
    counted: Counted = lambda *_: None,
    failed: Callable[[UserError], None] | None = None,
    rows_per_table: float = ROWS_PER_TABLE,
    interval_seconds: float = 1.0,
    cores: int | None = None,
) -> Iterator[LogTable]:
    """Read logs as a sequence of tables, at least one; see ``frames.read_log``.

    Args:
        paths: Plain or gzip; a text is a URL, and ``None`` is standard input.
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


def read_log_table(
    paths: Paths, *, interval_seconds: float = 1.0, cores: int | None = None
) -> LogTable:
    """Read logs as one table; see ``frames.read_log``."""
    logs = log_names(paths)
    if not logs:
        raise UserError("there is no log to read", "name one")
    files = [log_path(log) for log in logs]
    [table] = read_tables(
        files, logs, rows_per_table=inf, interval_seconds=interval_seconds, cores=cores
    )
    return table


def _batches(
    log: LogFile, number: int, parser: ColumnParser, cores: int | None, counted: Counted
) -> Iterator[Batch]:
    """Read a log in one process, or in two if it is large and none is set."""
    if cores is None:
        is_small = log.size_bytes is not None and log.size_bytes <= SMALL_LOG_BYTES
        cores = 1 if is_small else len(os.sched_getaffinity(0))
    read = read_batches_together if cores > 1 else read_batches
    for batch in read(log, parser):
        counted(batch, number, log.position_bytes)
        yield batch


def _timed(batches: Iterator[Batch], log: int, interval_seconds: float) -> Iterator[_Piece]:
    """Add the times of the records, which may be known only when later records come."""
    clock, restarts = RecordedClock(interval_seconds), Restarts()
    untimed = _UntimedBatches(log)
    for batch in batches:
        columns = dict(zip(batch.names, batch.values, strict=True))
        restarted, can_tell = restarts.feed(columns, len(batch.line))
        untimed.add(batch, restarted, can_tell)
        yield from untimed.settle(clock.feed(batch.printed_seconds, batch.received_ns, restarted))
    yield from untimed.settle(clock.finish())


class _UntimedBatches:
    """Batches whose times are not known to their end."""

    def __init__(self, log: int) -> None:
        self._log = log
        self._waiting: deque[tuple[Batch, Flags, Flags]] = deque()
        self._known = Times(np.empty(0), np.empty(0), np.empty(0))

    def add(self, batch: Batch, restarted: Flags, can_tell: Flags) -> None:
        self._waiting.append((batch, restarted, can_tell))

    def settle(self, more: Times) -> Iterator[_Piece]:
        """Take the times of the next records, and yield the batches that have all of theirs."""
        pairs = zip(self._known, more, strict=True)
        self._known = Times(*map(np.concatenate, pairs))
        while self._waiting and len(self._waiting[0][0].line) <= len(self._known.elapsed_seconds):
            batch, restarted, can_tell = self._waiting.popleft()
            rows = len(batch.line)
            times = Times(*[column[:rows] for column in self._known])
            self._known = Times(*[column[rows:] for column in self._known])
            yield _Piece(self._log, batch, times, restarted, can_tell)


class _TableBuilder:
    """One table from many pieces, which are not kept."""

    def __init__(self, logs: Sequence[str]) -> None:
        self.rows = 0
        self._logs = logs
        self._parts: defaultdict[str, list[tuple[int, Floats]]] = defaultdict(list)
        self._pieces: list[_Piece] = []

    def add(self, piece: _Piece) -> None:
        batch = piece.batch
        for name, values in zip(batch.names, batch.values, strict=True):
            # A column without any value, such as a zone that is off all the time, is left out.
            if not np.isnan(values).all():
                self._parts[name].append((self.rows, values.copy()))
        self._pieces.append(piece._replace(batch=replace(batch, values=_NO_VALUES)))
        self.rows += len(batch.line)

    def finish(self) -> LogTable:
        values: dict[str, Floats] = {}
        for name in sorted(self._parts, key=column_order):
            column = np.full(self.rows, np.nan)
            for at, part in self._parts.pop(name):
                column[at : at + len(part)] = part
            values[name] = column
        return _table(self._pieces, self._logs, values)


def _table(pieces: Sequence[_Piece], logs: Sequence[str], values: dict[str, Floats]) -> LogTable:
    """Return pieces below each other, with the columns that identify a record and its time."""
    parts: defaultdict[str, list[Any]] = defaultdict(list)
    for piece in pieces:
        batch = piece.batch
        parts["log"].append(np.full(len(batch.line), piece.log, np.int32))
        parts["line"].append(batch.line)
        parts["printed"].append(batch.printed_seconds)
        parts["received"].append(batch.received_ns)
        parts["elapsed"].append(piece.times.elapsed_seconds)
        parts["error"].append(piece.times.error_seconds)
        parts["step"].append(piece.times.step_seconds)
        parts["restarted"].append(np.where(piece.can_tell, piece.restarted, np.nan))
    received = _joined(parts["received"], np.int64)
    # Seconds since boot, or without a year, give differences and no time of day.
    received[received < EARLIEST_EPOCH_SECONDS * 10**9] = ABSENT
    return LogTable(
        logs=logs,
        log=_joined(parts["log"], np.int32),
        line=_joined(parts["line"], np.int64),
        printed_seconds=_joined(parts["printed"], np.int64),
        received_ns=received,
        times=Times(
            _joined(parts["elapsed"], np.float64),
            _joined(parts["error"], np.float64),
            _joined(parts["step"], np.float64),
        ),
        restarted=_joined(parts["restarted"], np.float64),
        values=values,
    )


def _joined(parts: Iterable[Any], kind: type) -> Any:
    return np.concatenate([np.empty(0, kind), *parts])


def scratch_folder(path: Path | None) -> Path | None:
    """Return the folder for unfinished parts of an output; None is that of the system."""
    if path is None or not is_directory(path.parent):
        return None
    return path.parent


def write_log_csv(tables: Iterable[LogTable], path: Path | None) -> None:
    """Write tables below each other as CSV; a column that a table lacks is empty in its rows.

    Without a path they go to standard output.

    Raises:
        BrokenPipeError: The reader of standard output went away.
        UserError: The file cannot be written.
    """
    try:
        # A column may come late, and the heading needs all: so the tables wait on the disk.
        with tempfile.TemporaryFile(dir=scratch_folder(path)) as waiting:
            columns: set[str] = set()
            for table in tables:
                columns.update(table.values)
                pickle.dump(table, waiting)
            size = waiting.tell()
            waiting.seek(0)
            names = sorted(columns, key=column_order)
            with open_output(path) as output:
                rows = _waiting_rows(waiting, size, names)
                write_csv(output, [*CLOCK_COLUMNS, *names], rows)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise unwritable(path, error) from None


def _waiting_rows(waiting: Any, size: int, names: Sequence[str]) -> Iterator[Sequence[object]]:
    """Yield the rows of all tables in a file of them, with the columns of these names."""
    while waiting.tell() < size:
        table = pickle.load(waiting)
        for begin in range(0, len(table.line), _ROWS_OF_CELLS):
            yield from _rows(table, slice(begin, begin + _ROWS_OF_CELLS), names)


def _rows(table: LogTable, part: slice, names: Sequence[str]) -> Iterator[Sequence[object]]:
    columns: list[Sequence[object]] = [
        [table.logs[number] for number in table.log[part].tolist()],
        table.line[part].tolist(),
        [_printed_text(seconds) for seconds in table.printed_seconds[part].tolist()],
        [_received_text(ns) for ns in table.received_ns[part].tolist()],
    ]
    for column in table.times:
        columns.append(_cells(column[part], "float64"))
    columns.append(_cells(table.restarted[part], "boolean"))
    absent = [None] * len(columns[0])
    for name in names:
        values = table.values.get(name)
        columns.append(absent if values is None else _cells(values[part], dtype_of(name)))
    return zip(*columns, strict=True)


def _cells(values: Floats, dtype: str) -> list[object]:
    """Return numbers in the type of their column; NaN is an empty cell."""
    convert = _CELL_TYPES[dtype]
    return [None if value != value else convert(value) for value in values.tolist()]


def _printed_text(seconds: int) -> str | None:
    if seconds == ABSENT:
        return None
    return str(_EPOCH + timedelta(seconds=seconds))


def _received_text(ns: int) -> str | None:
    return None if ns == ABSENT else utc_text(ns)
