"""Stored and paired runs as flat rows, and the CSV that every command writes."""

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, TextIO

from ...daemon.outputs import open_output

STARTED = "started"
"""The column that has the begin of a run as a date; its place is behind the first column."""
STARTED_NS = "started_wall_ns"

_SECOND_NS = 1_000_000_000


def write_csv(output: TextIO, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write a heading and rows as CSV.

    A cell is a number, a text, or None for an empty cell. A text has quotes only where it needs
    them. A number has the digits that give the same number when it is read.
    """
    writer = csv.writer(output, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)


def write_run_csv(documents: Iterable[Mapping[str, Any]], path: Path | None) -> None:
    """Write one row per run to a file, or to standard output without a path.

    Raises:
        UserError: The file cannot be written.
    """
    rows = flat_runs(documents)
    columns: dict[str, None] = {}  # in the order in which they come up
    for row in rows:
        if STARTED_NS in row:
            row[STARTED] = utc_text(row[STARTED_NS])
        columns.update(dict.fromkeys(row))
    names = list(columns)
    if STARTED in columns:
        names.remove(STARTED)
        names.insert(1, STARTED)
    with open_output(path) as output:
        write_csv(output, names, _cells(rows, names))


def _cells(rows: Iterable[dict[str, Any]], names: Sequence[str]) -> Iterator[list[Any]]:
    for row in rows:
        yield [row.get(name) for name in names]


def flat_runs(documents: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return one row per run; a nested field has its path as name: ``latency.p50_seconds``.

    Nested fields stand behind the others. Lists, such as the quality flags, become words separated
    by spaces.

    >>> flat_runs([{"latency": {"p50_seconds": 0.1}, "quality": ["simulated", "not_steady"]}])
    [{'quality': 'simulated not_steady', 'latency.p50_seconds': 0.1}]
    """
    return [_flat_run(document) for document in documents]


def _flat_run(document: Mapping[str, Any]) -> dict[str, Any]:
    row: dict[str, Any] = {}
    nested: dict[str, Any] = {}
    for key, value in document.items():
        if value is None and key in ("telemetry", "energy"):
            continue  # A run with figures has them as columns of several names.
        if isinstance(value, Mapping):
            _add_fields(nested, key, value)
        elif isinstance(value, list):
            row[key] = " ".join(map(str, value))
        else:
            row[key] = value
    return row | nested


def _add_fields(row: dict[str, Any], path: str, fields: Mapping[str, Any]) -> None:
    for key, value in fields.items():
        name = f"{path}.{key}"
        if isinstance(value, Mapping):
            _add_fields(row, name, value)
        else:
            row[name] = value


def utc_text(wall_ns: int) -> str:
    """Return a time as text, to its last digit.

    >>> utc_text(1_750_866_199_348_800_000)
    '2025-06-25 15:43:19.348800000+00:00'
    """
    seconds, nanoseconds = divmod(wall_ns, _SECOND_NS)
    moment = datetime.fromtimestamp(seconds, timezone.utc)
    return f"{moment:%Y-%m-%d %H:%M:%S}.{nanoseconds:09d}+00:00"
