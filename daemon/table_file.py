"""Tables are written to a file as they come, Parquet or CSV, though their columns differ.

A log may begin without root and go on with it, so a column can come up when most of the file is
written. Then what is there is copied once into a file that has the column. The file bears its
name only when it is whole.
"""

import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import pandas

from ..parsers.errors import Mendable
from .terminal.output import standard_output, unwritable

try:
    import pyarrow
    import pyarrow.csv
    import pyarrow.parquet
except ImportError:
    raise Mendable("pyarrow is not installed", "pip install 'tegrascope[frames]'") from None

from ..parsers.signals import column_order
from .log_table import CLOCK_COLUMNS

COMPRESSION = "zstd"


def write_tables(
    tables: Iterable[pandas.DataFrame], path: Path | None, kind: Literal["csv", "parquet"]
) -> None:
    """Write tables below each other.

    Args:
        tables: At least one; columns that one of them lacks are missing there.
        path: Where to; ``None`` is standard output.
        kind: Of the file.

    Raises:
        BrokenPipeError: The reader of standard output went away.
        Mendable: The file can't be written.
    """
    beside = None if path is None or not path.parent.is_dir() else path.parent
    try:
        with tempfile.TemporaryDirectory(prefix=".tegrascope-", dir=beside) as scratch:
            spool = _Spool(Path(scratch))
            for table in tables:
                spool.add(table)
            whole = spool.close()
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


class _Spool:
    """A Parquet file that grows by a table at a time."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._writer: Any = None
        self._empty = pandas.DataFrame()
        self._number = 0

    @property
    def _path(self) -> Path:
        return self._directory / f"{self._number}.parquet"

    def add(self, table: pandas.DataFrame) -> None:
        """Write a table behind what is there."""
        if self._writer is None:
            self._open(table.iloc[:0])
        elif any(name not in self._empty for name in table):
            self._widen(table.iloc[:0])
        self._write(pyarrow.Table.from_pandas(table, preserve_index=False))

    def close(self) -> Path:
        """Finish the file, and return where it is."""
        self._writer.close()
        return self._path

    def _open(self, empty: pandas.DataFrame) -> None:
        """Begin a file with the columns of a table without rows."""
        self._empty = empty
        self._schema = _with_text_codes(pyarrow.Schema.from_pandas(empty, preserve_index=False))
        self._writer = pyarrow.parquet.ParquetWriter(
            self._path, self._schema, compression=COMPRESSION
        )

    def _widen(self, empty: pandas.DataFrame) -> None:
        """Begin another file that has more columns, with what the one so far holds."""
        narrow = self.close()
        self._number += 1
        columns = {str(name): both[name] for both in (empty, self._empty) for name in both}
        first = [name for name in CLOCK_COLUMNS if name in columns]
        rest = sorted(columns.keys() - set(first), key=column_order)
        self._open(pandas.DataFrame({name: columns[name] for name in [*first, *rest]}))
        written = pyarrow.parquet.ParquetFile(narrow)
        for group in range(written.num_row_groups):
            self._write(written.read_row_group(group))
        narrow.unlink()

    def _write(self, columns: Any) -> None:
        """Write columns in the order of the file; those that are not there are missing."""
        arrays = [
            _fit(columns.column(field.name), field.type)
            if field.name in columns.column_names
            else pyarrow.nulls(len(columns), field.type)
            for field in self._schema
        ]
        self._writer.write_table(pyarrow.Table.from_arrays(arrays, schema=self._schema))


_TEXT_CODES = pyarrow.dictionary(pyarrow.int32(), pyarrow.string())


def _with_text_codes(schema: Any) -> Any:
    """Return a schema in which all categories are text with codes of one size."""
    return pyarrow.schema(
        [
            field.with_type(_TEXT_CODES) if pyarrow.types.is_dictionary(field.type) else field
            for field in schema
        ],
        schema.metadata,
    )


def _fit(column: Any, kind: Any) -> Any:
    if kind == _TEXT_CODES:
        return column.cast(pyarrow.string()).dictionary_encode()
    return column.cast(kind)


def _write_csv(whole: Path, output: Any) -> None:
    source = pyarrow.parquet.ParquetFile(whole)
    with pyarrow.csv.CSVWriter(output, _plain(source.schema_arrow)) as writer:
        for group in range(source.num_row_groups):
            columns = source.read_row_group(group)
            writer.write_table(columns.cast(_plain(columns.schema)))


def _plain(schema: Any) -> Any:
    """Return a schema with text where there were categories, for which CSV has no form."""
    return pyarrow.schema(
        [
            field.with_type(pyarrow.string()) if pyarrow.types.is_dictionary(field.type) else field
            for field in schema
        ]
    )


@contextmanager
def _binary(path: Path | None) -> Iterator[Any]:
    if path is None:
        yield standard_output().buffer
    else:
        with path.open("wb") as output:
            yield output
