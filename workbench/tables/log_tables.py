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

Paths = str | Path | Iterable[str | Path]
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
    parts: defaultdict[str, list[Any]] = defaultdict(list)
    for piece in pieces:
        batch = piece.batch
        parts["log"].append(np.full(len(batch.line), piece.log, np.int32))
        parts["line"].append(batch.line)
        parts["time"].append(batch.printed_seconds)
        parts["received"].append(batch.received_ns)
        parts["elapsed"].append(piece.times.elapsed_seconds)
        parts["error"].append(piece.times.error_seconds)
        parts["step"].append(piece.times.step_seconds)
        parts["restarted"].append(piece.restarted)
        parts["can_tell"].append(piece.can_tell)
    received = _joined(parts["received"], np.int64)
    # Seconds since boot, or without a year, give differences and no time of day.
    received[received < EARLIEST_EPOCH_SECONDS * 10**9] = ABSENT
    restarted, can_tell = (
        _joined(parts["restarted"], np.bool_),
        _joined(parts["can_tell"], np.bool_),
    )
    columns = (
        pandas.Categorical.from_codes(_joined(parts["log"], np.int32), pandas.Index(logs)),
        _joined(parts["line"], np.int64),
        _joined(parts["time"], np.int64).view("datetime64[s]"),
        pandas.DatetimeIndex(received.view("datetime64[ns]"), tz="UTC"),
        _joined(parts["elapsed"], np.float64),
        _joined(parts["error"], np.float64),
        _joined(parts["step"], np.float64),
        pandas.arrays.BooleanArray(restarted, ~can_tell),
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
    whole = folder / "whole.parquet"
    _write(whole, empty_table(columns), chain.from_iterable(map(_row_groups, parts)))
    return whole


def _row_groups(path: Path) -> Iterator[Any]:
    """Yield a Parquet file in pieces that fit into memory."""
    file = pyarrow.parquet.ParquetFile(path)
    for number in range(file.num_row_groups):
        yield file.read_row_group(number)


def _write(path: Path, empty: pandas.DataFrame, tables: Iterable[Any]) -> None:
    """Write each table as a row group with the columns of an empty one, in their order."""
    schema = pyarrow.Schema.from_pandas(empty, preserve_index=False)
    for number, field in enumerate(schema):
        if pyarrow.types.is_dictionary(field.type):
            schema = schema.set(number, field.with_type(_CATEGORY))
    with pyarrow.parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        for table in tables:
            both = [schema.empty_table(), table]
            writer.write_table(
                pyarrow.concat_tables(both, promote_options="permissive").cast(schema)
            )


def _write_csv(whole: Path, output: Any) -> None:
    """Copy a Parquet file as CSV, with text for categories."""
    written = pyarrow.parquet.read_schema(whole)
    schema = pyarrow.schema([field.with_type(_printed_type(field.type)) for field in written])
    with pyarrow.csv.CSVWriter(output, schema) as writer:
        for group in _row_groups(whole):
            writer.write_table(group.cast(schema))


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
