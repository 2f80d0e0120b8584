"""Tables of logs and of runs as pandas tables and as Parquet files."""

import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, groupby
from pathlib import Path
from typing import Any

import numpy as np

from ...daemon.outputs import open_output, unwritable
from ...parsers import signals
from ...parsers.errors import PIP_INSTALL, UserError
from ...parsers.signals import column_order, dtype_of
from ...parsers.tegrastats.digits import Floats
from ...parsers.tegrastats.printed_time import Times
from ..results.run_table import STARTED, STARTED_NS, flat_runs
from .log_tables import CLOCK_COLUMNS, LogTable, scratch_folder

_REMEDY = f"{PIP_INSTALL} pandas pyarrow"
try:
    import pandas as pandas
except ImportError:
    raise UserError("pandas is not installed", _REMEDY) from None
try:
    import pyarrow
    import pyarrow.parquet
except ImportError:
    raise UserError("pyarrow is not installed", _REMEDY) from None


_NULLABLE: dict[str, Any] = {
    "Int64": (np.int64, pandas.arrays.IntegerArray),
    "boolean": (np.bool_, pandas.arrays.BooleanArray),
}
# All categories of a file have codes of one size, whatever the size of each table's.
_CATEGORY = pyarrow.dictionary(pyarrow.int32(), pyarrow.string())


def frame_of(table: LogTable) -> pandas.DataFrame:
    """Return a table of logs in pandas; it is used up, so that no column is there twice."""
    columns = dict(
        zip(
            CLOCK_COLUMNS,
            (
                pandas.Categorical.from_codes(table.log, pandas.Index(table.logs)),
                table.line,
                table.printed_seconds.view("datetime64[s]"),
                pandas.DatetimeIndex(table.received_ns.view("datetime64[ns]"), tz="UTC"),
                *table.times,
                _typed(table.restarted, "boolean"),
            ),
            strict=True,
        )
    )
    for name in list(table.values):
        columns[name] = _typed(table.values.pop(name), dtype_of(name))
    return pandas.DataFrame(columns, copy=False)


def _typed(column: Floats, dtype: str) -> Any:
    """Return a column in its type, in which an absent value has a mark."""
    if dtype == "float64":
        return column
    kind, array_of = _NULLABLE[dtype]
    missing = np.isnan(column)
    return array_of(np.where(missing, 0, column).astype(kind), missing)


def table_of(frame: pandas.DataFrame) -> LogTable:
    """Return what pairing needs of a table of ``frame_of``, or of rows of it, in their order."""
    number, logs = pandas.factorize(frame["log"])
    values: dict[str, Floats] = {}
    for name in map(str, frame):
        # A person may have added columns, and a dataset has partitions.
        if signals.split(name) is not None:
            values[name] = frame[name].to_numpy(np.float64, na_value=np.nan)
    return LogTable(
        logs=[str(log) for log in logs],
        log=number,
        line=np.arange(1, len(frame) + 1),
        printed_seconds=frame["time"].to_numpy("datetime64[s]").astype(np.int64),
        received_ns=frame["received"].to_numpy("datetime64[ns]").astype(np.int64),
        times=Times(
            frame["elapsed_seconds"].to_numpy(np.float64),
            frame["elapsed_error_seconds"].to_numpy(np.float64),
            frame["clock_step_seconds"].to_numpy(np.float64),
        ),
        restarted=np.full(len(frame), np.nan),
        values=values,
    )


def empty_frame(columns: Iterable[str]) -> pandas.DataFrame:
    """Return a table without rows, with the columns of the clock and these, in their order."""
    nothing, no_time = np.empty(0), np.empty(0, np.int64)
    rest = sorted(set(columns) - set(CLOCK_COLUMNS), key=column_order)
    return frame_of(
        LogTable(
            logs=[],
            log=np.empty(0, np.int32),
            line=no_time,
            printed_seconds=no_time,
            received_ns=no_time,
            times=Times(nothing, nothing, nothing),
            restarted=nothing,
            values=dict.fromkeys(rest, nothing),
        )
    )


def runs_frame(documents: Iterable[Mapping[str, Any]]) -> pandas.DataFrame:
    """Return one row per run, as of ``flat_runs``, with the begin of each as a time in UTC."""
    frame = pandas.DataFrame(flat_runs(documents))
    if STARTED_NS in frame:
        started = pandas.to_datetime(frame[STARTED_NS], unit="ns", utc=True)
        frame.insert(1, STARTED, started)
    return frame


def write_run_parquet(documents: Iterable[Mapping[str, Any]], path: Path | None) -> None:
    """Write one row per run to a file, or to standard output without a path.

    Raises:
        UserError: The file cannot be written.
    """
    frame = runs_frame(documents)
    mixed = [name for name, dtype in frame.dtypes.items() if dtype == "object"]
    frame = frame.astype(dict.fromkeys(mixed, "string"))
    # Not opened by pandas, which deletes a file that it fails to write, whatever was in it.
    with open_output(path) as output:
        frame.to_parquet(output.buffer, index=False)


def write_log_parquet(tables: Iterable[LogTable], path: Path | None) -> None:
    """Write tables below each other; a column that a table lacks is missing in its rows.

    There is at least one table. Without a path they go to standard output.

    Raises:
        BrokenPipeError: The reader of standard output went away.
        UserError: The file cannot be written.
    """
    try:
        with tempfile.TemporaryDirectory(
            prefix=".tegrascope-", dir=scratch_folder(path)
        ) as scratch:
            whole = write_parquet(map(frame_of, tables), Path(scratch))
            with open_output(path) as output, whole.open("rb") as written:
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
    _write(whole, empty_frame(columns), chain.from_iterable(map(_row_groups, parts)))
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
