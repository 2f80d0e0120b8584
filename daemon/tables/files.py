"""Tables as one Parquet or CSV file, written as they come, though their columns differ.

A log may begin without root and continue with it, so a column can appear when most of the file is
written. The rows so far are then copied once to a file that has the column. The file gets its name
only when it is complete.
"""

import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import pandas

from ...parsers.errors import Mendable
from ..terminal.output import standard_output, unwritable

try:
    import pyarrow
    import pyarrow.csv
    import pyarrow.parquet
except ImportError:
    raise Mendable("pyarrow is not installed", "pip install 'tegrascope[frames]'") from None

from ...parsers.signals import column_order
from .logs import CLOCK_COLUMNS

# All categories of a file have codes of one size, whatever the size of each table's.
_CATEGORY = pyarrow.dictionary(pyarrow.int32(), pyarrow.string())


def write_tables(
    tables: Iterable[pandas.DataFrame], path: Path | None, kind: Literal["csv", "parquet"]
) -> None:
    """Write tables below each other; a column that a table lacks is missing in its rows.

    Args:
        tables: At least one.
        path: The file; ``None`` is standard output.
        kind: The form of the file.

    Raises:
        BrokenPipeError: The reader of standard output went away.
        Mendable: The file cannot be written.
    """
    folder = None if path is None or not path.parent.is_dir() else path.parent
    try:
        with tempfile.TemporaryDirectory(prefix=".tegrascope-", dir=folder) as scratch:
            file = _GrowingFile(Path(scratch))
            for table in tables:
                file.add(table)
            whole = file.close()
            if kind == "csv":
                with _binary(path) as output:
                    _write_csv(whole, output)
            elif path is None or (path.exists() and not path.is_file()):
                with _binary(path) as output, whole.open("rb") as written:
                    shutil.copyfileobj(written, output, 1 << 20)
            else:
                whole.replace(path)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise unwritable(path, error) from None


class _GrowingFile:
    """A Parquet file, one row group per table; a new column begins another file."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._empty = pandas.DataFrame()
        self._schema: Any = None
        self._writer: Any = None
        self._number = 0

    @property
    def _path(self) -> Path:
        return self._folder / f"{self._number}.parquet"

    def add(self, table: pandas.DataFrame) -> None:
        if self._writer is None or any(name not in self._empty for name in table):
            self._widen(table.iloc[:0])
        self._write(pyarrow.Table.from_pandas(table, preserve_index=False))

    def close(self) -> Path:
        self._writer.close()
        return self._path

    def _widen(self, empty: pandas.DataFrame) -> None:
        """Begin a file with more columns, and copy the rows so far."""
        narrow = None if self._writer is None else self.close()
        columns = {str(name): part[name] for part in (empty, self._empty) for name in part}
        rest = sorted(columns.keys() - set(CLOCK_COLUMNS), key=column_order)
        self._empty = pandas.DataFrame({name: columns[name] for name in (*CLOCK_COLUMNS, *rest)})
        schema = pyarrow.Schema.from_pandas(self._empty, preserve_index=False)
        self._schema = pyarrow.schema(
            [
                field.with_type(_CATEGORY) if pyarrow.types.is_dictionary(field.type) else field
                for field in schema
            ],
            schema.metadata,
        )
        self._number += 1
        self._writer = pyarrow.parquet.ParquetWriter(self._path, self._schema, compression="zstd")
        if narrow is not None:
            written = pyarrow.parquet.ParquetFile(narrow)
            for group in range(written.num_row_groups):
                self._write(written.read_row_group(group))
            narrow.unlink()

    def _write(self, table: Any) -> None:
        """Write columns in the order of the file."""
        arrays = [
            _fit(table.column(field.name), field.type)
            if field.name in table.column_names
            else pyarrow.nulls(len(table), field.type)
            for field in self._schema
        ]
        self._writer.write_table(pyarrow.Table.from_arrays(arrays, schema=self._schema))


def _fit(column: Any, kind: Any) -> Any:
    if kind == _CATEGORY:
        return column.cast(pyarrow.string()).dictionary_encode()
    return column.cast(kind)


def _write_csv(whole: Path, output: Any) -> None:
    """Copy a Parquet file as CSV, with text for categories."""
    source = pyarrow.parquet.ParquetFile(whole)
    schema = pyarrow.schema(
        field.with_type(pyarrow.string()) if field.type == _CATEGORY else field
        for field in source.schema_arrow
    )
    with pyarrow.csv.CSVWriter(output, schema) as writer:
        for group in range(source.num_row_groups):
            writer.write_table(source.read_row_group(group).cast(schema))


@contextmanager
def _binary(path: Path | None) -> Iterator[Any]:
    if path is None:
        yield standard_output().buffer
    else:
        with path.open("wb") as output:
            yield output
