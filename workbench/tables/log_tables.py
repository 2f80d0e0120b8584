"""Recorded logs of any size as a sequence of tables, and tables as one file.

A piece holds the records of one block of lines, and a table is made from some ten thousand records.
"""

import os
import shutil
import tempfile
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, groupby
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas

from ...collectors.children.column_helper import read_batches_together
from ...collectors.lines.replay import LogFile, LogPath
from ...collectors.paths import is_directory
from ...daemon.outputs import open_output, unwritable
from ...parsers.errors import PIP_INSTALL, UserError
from ...parsers.signals import column_order, dtype_of
from ...parsers.tegrastats.bulk import Batch, ColumnParser, read_batches
from ...parsers.tegrastats.digits import Flags, Floats
from ...parsers.tegrastats.prefix import EARLIEST_EPOCH_SECONDS
from ...parsers.tegrastats.printed_time import ABSENT, RecordedClock, Restarts, Times

try:
    import pyarrow
    import pyarrow.csv
    import pyarrow.parquet
except ImportError:
    raise UserError("pyarrow is not installed", f"{PIP_INSTALL} pandas pyarrow") from None


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
_NULLABLE: dict[str, Any] = {
    "Int64": (np.int64, pandas.arrays.IntegerArray),
    "boolean": (np.bool_, pandas.arrays.BooleanArray),
}


class _Piece(NamedTuple):
    """Consecutive records of one log; ``can_tell`` marks those whose ``restarted`` is known."""

    log: int
    batch: Batch
    times: Times
    restarted: Flags
    can_tell: Flags


def read_tables(
    paths: Sequence[LogPath],
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


def empty_table(columns: Iterable[str]) -> pandas.DataFrame:
    """Return a table without rows, with the columns of the clock and these, in their order."""
    rest = sorted(set(columns) - set(CLOCK_COLUMNS), key=column_order)
    kinds: dict[str, Any] = {name: pandas.Series(dtype=dtype_of(name)) for name in rest}
    return pandas.DataFrame(_clock_columns([], []) | kinds)


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

    def finish(self) -> pandas.DataFrame:
        columns = _clock_columns(self._pieces, self._logs)
        for name in sorted(self._parts, key=column_order):
            column: Any = np.full(self.rows, np.nan)
            for at, values in self._parts.pop(name):
                column[at : at + len(values)] = values
            if dtype_of(name) != "float64":
                kind, made = _NULLABLE[dtype_of(name)]
                missing = np.isnan(column)
                column = made(np.where(missing, 0, column).astype(kind), missing)
            columns[name] = column
        return pandas.DataFrame(columns, copy=False)


def _clock_columns(pieces: Sequence[_Piece], logs: Sequence[str]) -> dict[str, Any]:
    """Return the columns that identify a record and its time."""
    batches = [piece.batch for piece in pieces]
    numbers = np.repeat(
        np.array([piece.log for piece in pieces], np.int32), [len(batch.line) for batch in batches]
    )
    received = _joined((batch.received_ns for batch in batches), np.int64)
    # Seconds since boot, or without a year, give differences and no time of day.
    received[received < EARLIEST_EPOCH_SECONDS * 10**9] = ABSENT
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


# All categories of a file have codes of one size, whatever the size of each table's.
_CATEGORY = pyarrow.dictionary(pyarrow.int32(), pyarrow.string())


def write_tables(
    tables: Iterable[pandas.DataFrame], path: Path | None, kind: Literal["csv", "parquet"]
) -> None:
    """Write tables below each other; a column that a table lacks is missing in its rows.

    There is at least one table. Without a path they go to standard output.

    Raises:
        BrokenPipeError: The reader of standard output went away.
        UserError: The file cannot be written.
    """
    folder = None if path is None or not is_directory(path.parent) else path.parent
    try:
        with tempfile.TemporaryDirectory(prefix=".tegrascope-", dir=folder) as scratch:
            whole = write_parquet(tables, Path(scratch))
            with open_output(path) as output:
                if kind == "csv":
                    _write_csv(whole, output.buffer)
                else:
                    with whole.open("rb") as written:
                        shutil.copyfileobj(written, output.buffer, 1 << 20)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise unwritable(path, error) from None


def write_parquet(tables: Iterable[pandas.DataFrame], folder: Path) -> Path:
    """Write tables to a file in a folder, and return it; different columns are joined."""
    columns: set[str] = set()
    parts: list[Path] = []
    for _, group in groupby(tables, key=lambda table: tuple(map(str, table))):
        first = next(group)
        columns.update(map(str, first))
        parts.append(folder / f"{len(parts)}.parquet")
        converted = (
            pyarrow.Table.from_pandas(table, preserve_index=False)
            for table in chain([first], group)
        )
        _write(parts[-1], first.iloc[:0], converted)
    if len(parts) == 1:
        return parts[0]
    files = map(pyarrow.parquet.ParquetFile, parts)
    groups = (file.read_row_group(group) for file in files for group in range(file.num_row_groups))
    _write(folder / "whole.parquet", empty_table(columns), groups)
    return folder / "whole.parquet"


def _write(path: Path, empty: pandas.DataFrame, tables: Iterable[Any]) -> None:
    """Write each table as a row group with the columns of an empty one, in their order."""
    schema = pyarrow.Schema.from_pandas(empty, preserve_index=False)
    is_category = pyarrow.types.is_dictionary
    fields = [field.with_type(_CATEGORY) if is_category(field.type) else field for field in schema]
    schema = pyarrow.schema(fields, schema.metadata)
    with pyarrow.parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        for table in tables:
            both = [schema.empty_table(), table]
            writer.write_table(
                pyarrow.concat_tables(both, promote_options="permissive").cast(schema)
            )


def _write_csv(whole: Path, output: Any) -> None:
    """Copy a Parquet file as CSV, with text for categories."""
    source = pyarrow.parquet.ParquetFile(whole)
    schema = pyarrow.schema(
        field.with_type(_printed_type(field.type)) for field in source.schema_arrow
    )
    with pyarrow.csv.CSVWriter(output, schema) as writer:
        for group in range(source.num_row_groups):
            writer.write_table(source.read_row_group(group).cast(schema))


def _printed_type(kind: Any) -> Any:
    """Return the type in which a column is printed.

    Arrow finds UTC only in the system's time zones. Without them (Debian's tzdata) the offset is
    printed, which is the same time.
    """
    if kind == _CATEGORY:
        return pyarrow.string()
    if not pyarrow.types.is_timestamp(kind) or kind.tz is None:
        return kind
    try:
        pyarrow.scalar(0, kind).cast(pyarrow.string())
    except pyarrow.ArrowInvalid:
        return pyarrow.timestamp(kind.unit, "+00:00")
    return kind
