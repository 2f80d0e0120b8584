"""Recorded logs become pandas tables, whole or a piece at a time; imported late.

A piece is what one block of lines became, with the time of each record. A table is made of as
many pieces as are wanted: all of them for a notebook, some ten thousand records for one row
group of a file.
"""

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from ..collectors.log_file import LogFile
from ..parsers.errors import Mendable
from .tally import Tally

try:
    import numpy as np
    import pandas
except ImportError:
    raise Mendable("pandas is not installed", "pip install 'tegrascope[frames]'") from None

from ..parsers.columns import Batch, ColumnParser, column_order, column_type, read_batches
from ..parsers.digits import Flags, Floats
from ..parsers.recorded_time import RecordedClock, Restarts, Times

SMALL_LOG_BYTES = 8 << 20
"""Logs up to this size are read by one thread: a second one would hardly have begun."""

RECORDS_A_TABLE = 1 << 16


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
    threads: int | None = None,
    interval_seconds: float = 1.0,
    failed: Callable[[Mendable], None] | None = None,
    moved: Callable[[int], None] = lambda _: None,
) -> Iterator[pandas.DataFrame]:
    """Read logs of any size as tables of some ten thousand records; see ``read_pieces``.

    Args:
        paths: Plain or gzip; ``None`` is standard input.
        logs: Their names.
        tally: Is kept up to date.
        threads: How many blocks of lines are read at once.
        interval_seconds: Time between two records of a log that tells no time.
        failed: Is told of a log that cannot be read.
        moved: Is told how many bytes have been read.

    Yields:
        At least one table; that of no record has no columns but those of the clock.
    """
    pieces: list[Piece] = []
    rows = 0
    is_first = True
    for piece in read_pieces(
        paths, tally, threads=threads, interval_seconds=interval_seconds, failed=failed
    ):
        pieces.append(piece)
        rows += len(piece.batch.line)
        if rows >= RECORDS_A_TABLE:
            yield make_table(pieces, logs)
            pieces, rows, is_first = [], 0, False
            moved(tally.bytes_read)
    if rows or is_first:
        yield make_table(pieces, logs)


def read_pieces(
    paths: Sequence[Path | None],
    tally: Tally,
    *,
    threads: int | None = None,
    interval_seconds: float = 1.0,
    failed: Callable[[Mendable], None] | None = None,
) -> Iterator[Piece]:
    """Read logs one behind the other.

    Args:
        paths: Plain or gzip; ``None`` is standard input.
        tally: Is kept up to date.
        threads: How many blocks of lines are read at once; ``None`` is one a core for large logs.
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
            yield from _read_log(path, number, tally, parser, threads, interval_seconds)
        except Mendable as problem:
            if failed is None:
                raise
            failed(problem)


def _read_log(
    path: Path | None,
    number: int,
    tally: Tally,
    parser: ColumnParser,
    threads: int | None,
    interval_seconds: float,
) -> Iterator[Piece]:
    with LogFile(path) as log:
        before = tally.bytes_read
        batches = read_batches(log, parser, threads=threads or threads_for(log.size_bytes))
        for piece in _timed(_counted(batches, tally), number, interval_seconds):
            tally.bytes_read = before + log.position_bytes
            yield piece
        tally.bytes_read = before + log.position_bytes
        if log.problem is not None:
            raise log.problem


def make_table(
    pieces: Sequence[Piece], logs: Sequence[str], *, threads: int = 1
) -> pandas.DataFrame:
    """Put pieces into one table; see ``frames.read_log`` for its columns.

    Args:
        pieces: In order.
        logs: Names of all logs.
        threads: How many columns are made at once.
    """
    ends = np.cumsum([0, *(len(piece.batch.line) for piece in pieces)])
    places = [{name: at for at, name in enumerate(piece.batch.names)} for piece in pieces]
    names = sorted({name for place in places for name in place}, key=column_order)

    def column(name: str) -> Any:
        whole = np.empty(ends[-1])
        for piece, place, begin, end in zip(pieces, places, ends, ends[1:], strict=False):
            at = place.get(name)
            whole[begin:end] = np.nan if at is None else piece.batch.values[at]
        return _typed(whole, column_type(name))

    if threads == 1:
        columns = list(map(column, names))
    else:
        with ThreadPoolExecutor(threads) as pool:
            columns = list(pool.map(column, names))
    # A zone that was powered off all the time is no column.
    said = {n: column for n, column in zip(names, columns, strict=True) if column is not None}
    return pandas.DataFrame(_clock_columns(pieces, ends, logs) | said, copy=False)


def _clock_columns(
    pieces: Sequence[Piece], ends: "np.ndarray[Any, Any]", logs: Sequence[str]
) -> dict[str, Any]:
    """Return the columns that tell which record it is, and when it was printed."""
    numbers = np.repeat([piece.log for piece in pieces], np.diff(ends))
    printed = _whole([piece.batch.printed_seconds for piece in pieces], np.int64)
    received = _whole([piece.batch.received_ns for piece in pieces], np.int64)
    can_tell = _whole([piece.can_tell for piece in pieces], np.bool_)
    restarted = _whole([piece.restarted for piece in pieces], np.bool_)
    elapsed, error, step = (
        _whole([piece.times[at] for piece in pieces], np.float64) for at in range(3)
    )
    return {
        "log": pandas.Categorical.from_codes(numbers.astype(np.int32), pandas.Index(logs)),
        "line": _whole([piece.batch.line for piece in pieces], np.int64),
        "time": printed.view("datetime64[s]"),
        "received": pandas.DatetimeIndex(received.view("datetime64[ns]"), tz="UTC"),
        "elapsed_seconds": elapsed,
        "elapsed_error_seconds": error,
        "clock_step_seconds": step,
        "restarted": pandas.arrays.BooleanArray(restarted, ~can_tell),
    }


def _whole(parts: Sequence[Any], kind: type) -> Any:
    return np.concatenate([np.empty(0, kind), *parts])


def _typed(whole: Floats, kind: str) -> Any:
    """Return a column as pandas keeps it; ``None`` where there is no value in it."""
    missing = np.isnan(whole)
    if missing.all():
        return None
    if kind == "float64":
        return whole
    whole[missing] = 0
    if kind == "boolean":
        return pandas.arrays.BooleanArray(whole != 0, missing)
    return pandas.arrays.IntegerArray(whole.astype(np.int64), missing)


def threads_for(size_bytes: int | None) -> int:
    """Return how many threads a log is worth; a size of ``None`` may be anything."""
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
