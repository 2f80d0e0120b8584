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

from ..parsers.columns import column_order
from ..parsers.errors import Mendable
from .output import standard_output, unwritable

try:
    import pyarrow
    import pyarrow.csv
    import pyarrow.parquet
except ImportError:
    raise Mendable("pyarrow is not installed", "pip install 'tegrascope[frames]'") from None

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
        self._schema: Any = None
        self._number = 0

    @property
    def _path(self) -> Path:
        return self._directory / f"{self._number}.parquet"

    def add(self, table: pandas.DataFrame) -> None:
        """Write a table behind what is there."""
        columns = pyarrow.Table.from_pandas(table, preserve_index=False)
        if self._schema is None:
            self._open(columns.schema)
        elif new := [name for name in columns.column_names if name not in self._schema.names]:
            self._widen(columns.schema, new)
        self._writer.write_table(_fit(columns, self._schema))

    def close(self) -> Path:
        """Finish the file, and return where it is."""
        self._writer.close()
        return self._path

    def _open(self, schema: Any) -> None:
        self._schema = schema
        self._writer = pyarrow.parquet.ParquetWriter(self._path, schema, compression=COMPRESSION)

    def _widen(self, schema: Any, new: list[str]) -> None:
        """Begin another file that has more columns, with what the one so far holds."""
        narrow = self.close()
        self._number += 1
        fields = {field.name: field for field in [*self._schema, *schema]}
        known = {name: at for at, name in enumerate(self._schema.names)}
        first = [name for name in self._schema.names if "." not in name]
        ordered = first + sorted(fields.keys() - set(first), key=column_order)
        assert known.keys() | set(new) == set(ordered)
        wide = pyarrow.schema([fields[name] for name in ordered])
        empty = wide.empty_table().to_pandas(types_mapper=_TYPES.get)
        self._open(pyarrow.Schema.from_pandas(empty, preserve_index=False))
        written = pyarrow.parquet.ParquetFile(narrow)
        for group in range(written.num_row_groups):
            self._writer.write_table(_fit(written.read_row_group(group), self._schema))
        narrow.unlink()


# What pandas makes of a column whose values may be missing.
_TYPES = {pyarrow.int64(): pandas.Int64Dtype(), pyarrow.bool_(): pandas.BooleanDtype()}


def _fit(columns: Any, schema: Any) -> Any:
    """Bring the columns into the order of a schema; those that are not there are missing."""
    arrays = [
        columns.column(field.name).cast(field.type)
        if field.name in columns.column_names
        else pyarrow.nulls(len(columns), field.type)
        for field in schema
    ]
    return pyarrow.Table.from_arrays(arrays, schema=schema)


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
