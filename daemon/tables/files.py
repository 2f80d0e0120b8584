"""Tables as one Parquet or CSV file, written as they come, though their columns differ.

A log may begin without root and continue with it, so a column can appear when most of the file is
written. Rows of different columns are then copied to one file that has them all. The file gets its
name only when it is complete.
"""

import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain, groupby
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

    Raises:
        BrokenPipeError: The reader of standard output went away.
        Mendable: The file cannot be written.
    """
    folder = None if path is None or not path.parent.is_dir() else path.parent
    try:
        with tempfile.TemporaryDirectory(prefix=".tegrascope-", dir=folder) as scratch:
            whole = _write_parquet(tables, Path(scratch))
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


def _write_parquet(tables: Iterable[pandas.DataFrame], folder: Path) -> Path:
    """Write tables of the same columns to one file; join the files if there are several."""
    columns: dict[str, Any] = {}
    parts: list[Path] = []
    for _, group in groupby(tables, key=lambda table: tuple(map(str, table))):
        first = next(group)
        columns |= {str(name): first[name].iloc[:0] for name in first if name not in columns}
        parts.append(folder / f"{len(parts)}.parquet")
        converted = (
            pyarrow.Table.from_pandas(table, preserve_index=False)
            for table in chain([first], group)
        )
        _write(parts[-1], first.iloc[:0], converted)
    if len(parts) == 1:
        return parts[0]
    rest = sorted(columns.keys() - set(CLOCK_COLUMNS), key=column_order)
    empty = pandas.DataFrame({name: columns[name] for name in (*CLOCK_COLUMNS, *rest)})
    files = map(pyarrow.parquet.ParquetFile, parts)
    groups = (file.read_row_group(group) for file in files for group in range(file.num_row_groups))
    _write(folder / "whole.parquet", empty, groups)
    return folder / "whole.parquet"


def _write(path: Path, empty: pandas.DataFrame, tables: Iterable[Any]) -> None:
    """Write each table as a row group with the columns of an empty one, in their order."""
    schema = pyarrow.Schema.from_pandas(empty, preserve_index=False)
    schema = pyarrow.schema(
        [
            field.with_type(_CATEGORY) if pyarrow.types.is_dictionary(field.type) else field
            for field in schema
        ],
        schema.metadata,
    )
    with pyarrow.parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        for table in tables:
            arrays = [
                _fit(table.column(field.name), field.type)
                if field.name in table.column_names
                else pyarrow.nulls(len(table), field.type)
                for field in schema
            ]
            writer.write_table(pyarrow.Table.from_arrays(arrays, schema=schema))


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
