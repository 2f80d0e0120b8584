"""What is true of lines, held against what the paths say of them."""

from array import array
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import numpy
import pandas

from tegrascope.parsers.records import Sample, flatten

from .lines import Line

FRAME_COLUMNS = (
    *("log", "line", "time", "received", "elapsed_seconds", "elapsed_error_seconds"),
    *("clock_step_seconds", "restarted"),
)
"""What a table has in front of the numbers of the lines."""

_MOST_TOLD = 5


class Row(NamedTuple):
    """A record that must be in a table.

    Attributes:
        log: Which file, from 0.
        line: Which line of it, from 1.
        time: As printed.
        paths: Names of its numbers.
        values: One a path.
    """

    log: int
    line: int
    time: datetime | None
    paths: tuple[str, ...]
    values: "array[float]"


def row_of(sample: Sample, line: int, log: int = 0) -> Row:
    """Return the row of a Sample that was read by itself."""
    named = flatten(sample)
    return Row(log, line, sample.time, tuple(named), array("d", named.values()))


def rows_of(lines: Iterable[Line]) -> list[Row]:
    """Return the rows of a log made of these lines and no other."""
    return [
        Row(0, number, line.time, line.paths, line.values) for number, line in enumerate(lines, 1)
    ]


def is_right(sample: Sample, line: Line) -> bool:
    """Tell whether a Sample says what its line was made of, and nothing else."""
    gated = tuple(zone for zone, now in sample.temperatures_celsius.items() if now is None)
    return (
        flatten(sample) == dict(zip(line.paths, line.values, strict=True))
        and sample.time == line.time
        and gated == line.gated
        and sample.unparsed == ()
    )


def dtype_of(path: str) -> str:
    """Return the dtype that a table must have for a number; a zone may have any name."""
    kind, *rest = path.split(".")
    if kind in ("temperatures_celsius", "temperatures_max_celsius", "rails"):
        return "float64"
    unit = next(part for part in reversed([kind, *rest]) if not part.isdigit())
    if unit in ("on", "online"):
        return "boolean"
    return "Int64" if unit.endswith(("_bytes", "_hertz", "_count")) else "float64"


def faults(frame: pandas.DataFrame, rows: Sequence[Row], *, dtypes: bool = True) -> list[str]:
    """Hold every cell of a table against the rows that it must have.

    Args:
        frame: The table.
        rows: In order.
        dtypes: Whether the types of its columns must be right too.

    Returns:
        What is wrong, a few words each, nothing where all is right: rows that are too many or
        too few, a column that is missing or that no line asks for, a dtype, a cell.
    """
    if len(frame) != len(rows):
        return [f"{len(frame)} rows, not {len(rows)}"]
    wrong = []
    logs, _ = pandas.factorize(frame["log"])
    for name, got, true in (
        ("log", logs, pandas.factorize(numpy.array([row.log for row in rows]))[0]),
        ("line", frame["line"].to_numpy(), numpy.array([row.line for row in rows])),
        (
            "time",
            frame["time"].to_numpy().astype("datetime64[s]"),
            numpy.array([row.time for row in rows], dtype="datetime64[s]"),
        ),
    ):
        # NaT is unlike itself; as whole numbers it is not.
        unlike = numpy.flatnonzero(got.astype("int64") != true.astype("int64"))
        if len(unlike):
            at = unlike[0]
            wrong.append(f"{name}[{at}] is {got[at]}, not {true[at]} ({len(unlike)} cells)")
    columns = _columns(rows)
    named = [name for name in frame.columns if name not in FRAME_COLUMNS]
    for name in sorted({*named} ^ {*columns}):
        wrong.append(f"column {name} is {'missing' if name in columns else 'not asked for'}")
    if len(named) != len({*named}):
        wrong.append("a column is there twice")
    for name in columns.keys() & {*named}:
        column, true = frame[name], columns[name]
        if dtypes and str(column.dtype) != dtype_of(name):
            wrong.append(f"{name} is {column.dtype}, not {dtype_of(name)}")
        got = column.to_numpy(dtype="float64", na_value=numpy.nan)
        unlike = numpy.flatnonzero((got != true) & ~(numpy.isnan(got) & numpy.isnan(true)))
        if len(unlike):
            at = unlike[0]
            wrong.append(f"{name}[{at}] is {got[at]}, not {true[at]} ({len(unlike)} cells)")
    return wrong[:_MOST_TOLD]


def _columns(rows: Sequence[Row]) -> Mapping[str, "numpy.ndarray[Any, Any]"]:
    """Return each number as a column, NaN where a row does not have it."""
    shapes: dict[tuple[str, ...], list[int]] = {}
    for at, row in enumerate(rows):
        shapes.setdefault(row.paths, []).append(at)
    columns: dict[str, numpy.ndarray[Any, Any]] = {}
    for paths, places in shapes.items():
        values = numpy.array([rows[at].values for at in places]).reshape(len(places), len(paths))
        for path, column in zip(paths, values.T, strict=True):
            whole = columns.setdefault(path, numpy.full(len(rows), numpy.nan))
            whole[places] = column
    return columns
