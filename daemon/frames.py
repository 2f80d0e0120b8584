"""Samples and runs as pandas tables; imported late, since the daemon itself has no pandas.

>>> from tegrascope import frames
>>> log = "tests/captures/agx-orin-64gb__r36.4.4.txt"
>>> float(frames.read_log(log)["rails.VDD_GPU_SOC.instant_watts"].max())
2.412
"""

import sqlite3
from collections.abc import Hashable, Iterable, Iterator, Mapping
from datetime import tzinfo
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from ..collectors.application.client import ApiClient
from ..parsers.errors import Mendable
from .given_runs import Given, given_runs, read_runs
from .store.history import History
from .terminal.output import open_output

try:
    import pandas
except ImportError:
    raise Mendable("pandas is not installed", "pip install 'tegrascope[frames]'") from None

from .log_table import read_table
from .tally import Tally

Paths = str | Path | Iterable[str | Path]

_RUNS_A_PAGE = 1000
_LATEST_SECONDS = 9_000_000_000


def read_log(
    paths: Paths, *, interval_seconds: float = 1.0, cores: int | None = None
) -> pandas.DataFrame:
    """Read what tegrastats printed: one row a record, its time, and every number in it.

    Args:
        paths: One log or several, plain or gzip.
        interval_seconds: Time between two records of a log that tells no time.
        cores: How many to use; ``None`` is all of them for a large log.

    Returns:
        These columns, and the paths of ``parsers.flat.flatten`` behind them, such as
        ``rails.VDD_IN.instant_watts``; what a line did not say is NaN or ``<NA>``:

        - ``log``: the path as given; ``line``: the number of the line in it, from 1 on;
        - ``time``: local time as printed, without zone;
        - ``received``: the epoch prefix of a recorder, in UTC;
        - ``elapsed_seconds``: since the first record of the log, never falling;
        - ``elapsed_error_seconds``: half the width of what is not known about that; NaN where it
          rests on an assumed interval;
        - ``clock_step_seconds``: by how much the clock jumped just before the record;
        - ``restarted``: whether tegrastats began anew with it; ``<NA>`` where nothing tells.

    Raises:
        Mendable: A log cannot be read, or not to its end.
    """
    logs = [paths] if isinstance(paths, (str, Path)) else list(paths)
    if not logs:
        raise Mendable("there is no log to read", "name one")
    names = list(map(str, logs))
    return read_table(
        [Path(log) for log in logs],
        names,
        Tally(),
        interval_seconds=interval_seconds,
        cores=cores,
    )


def correlate(
    telemetry: pandas.DataFrame | Paths,
    runs: pandas.DataFrame | str | Path,
    *,
    timezone: str | tzinfo | None = None,
    interval_seconds: float = 1.0,
    board: str | None = None,
    simulated: bool = False,
) -> pandas.DataFrame:
    """Pair runs with recorded telemetry, as the daemon pairs its own: one row a run.

    Args:
        telemetry: As of ``read_log``, or the logs.
        runs: A table with the columns ``name``, ``start``, ``end`` and, if there is more to say,
            ``inferences``, ``device`` and ``batch``; or a CSV file of it. A time is ISO 8601 or a
            ``datetime``, with offset or in the clock that the log prints; or a number, of seconds
            since 1970, or (below 100 000 000) since the first record. Other columns are carried
            along.
        timezone: Zone of the times that the log prints, such as ``Europe/Berlin``.
        interval_seconds: Time between two records of a log that tells no time.
        board: Name of a rail rule; without it the rails tell.
        simulated: Whether the log is of no real board; its runs are then flagged.

    Returns:
        The row of each run, its log and its report, as ``runs_frame`` names it; no row where
        there are no runs.

    Raises:
        Mendable: A log or the table cannot be read, or a row of it; the first is told.
    """
    from .log_clock import find_zone
    from .recorded_runs import correlate_recorded

    if not isinstance(telemetry, pandas.DataFrame):
        telemetry = read_log(telemetry, interval_seconds=interval_seconds)
    found = correlate_recorded(
        telemetry,
        _given(runs) if isinstance(runs, pandas.DataFrame) else read_runs(Path(runs)),
        zone=find_zone(timezone) if isinstance(timezone, str) else timezone,
        board=board,
        simulated=simulated,
    )
    if found.problems:
        raise found.problems[0]
    return recorded_frame(found.documents)


def runs(store_or_url: str | Path) -> pandas.DataFrame:
    """Return the finished runs of a daemon, newest first, one row a run.

    Args:
        store_or_url: Its state directory, the database in it, or its address, such as
            ``http://robot:9754``.

    Raises:
        Mendable: There is no store, it cannot be read, or the daemon does not answer.
    """
    if str(store_or_url).startswith(("http://", "https://")):
        return runs_frame(_served(str(store_or_url)))
    path = Path(store_or_url)
    try:
        return runs_frame(History(path if path.is_file() else path / "tegrascope.db").runs())
    except sqlite3.Error as error:
        raise Mendable(f"{path} cannot be read ({error})", "name a run store") from None


def recorded_frame(documents: Iterable[Mapping[str, Any]]) -> pandas.DataFrame:
    """Return one row a run that was paired with a log; see ``runs_frame``."""
    # A run without figures has no column of its own for the whole of them.
    parts = ("telemetry", "energy")
    return runs_frame(
        {key: value for key, value in document.items() if key not in parts or value is not None}
        for document in documents
    )


def runs_frame(documents: Iterable[Mapping[str, Any]]) -> pandas.DataFrame:
    """Return one row a run; nested fields are named by their path, such as ``latency.p50_seconds``.

    Times are UTC; lists, such as the quality flags, are joined by blanks.
    """
    frame = pandas.json_normalize(
        [
            {
                key: " ".join(map(str, value)) if isinstance(value, list) else value
                for key, value in document.items()
            }
            for document in documents
        ]
    )
    if "started_wall_ns" in frame:
        started = pandas.to_datetime(frame["started_wall_ns"], unit="ns", utc=True)
        frame.insert(1, "started", started)
    return frame


def write_frame(frame: pandas.DataFrame, path: Path | None, kind: str) -> None:
    """Write a table as ``csv`` or ``parquet``; to standard output without a path.

    Raises:
        Mendable: The file can't be written, or pyarrow is not installed.
    """
    # Opened here and not by pandas: where that fails to write, it deletes what it was given.
    with open_output(path) as output:
        if kind == "csv":
            frame.to_csv(output, index=False)
            return
        mixed = [name for name, dtype in frame.dtypes.items() if dtype == "object"]
        frame = frame.astype(dict.fromkeys(mixed, "string"))
        try:
            frame.to_parquet(output.buffer, index=False)
        except ImportError:
            raise Mendable("pyarrow is not installed", "pip install 'tegrascope[frames]'") from None


def _given(table: pandas.DataFrame) -> Given:
    names: list[Hashable] = list(table.columns)
    rows = zip(table.index, table.itertuples(index=False, name=None), strict=True)
    return given_runs(
        (f"row {index}", dict(zip(names, cells, strict=True))) for index, cells in rows
    )


def _served(url: str) -> Iterator[dict[str, Any]]:
    """Yield the runs that a daemon serves, page by page; one at the edge of two is told once."""
    client = ApiClient(url, timeout_seconds=30)
    before: dict[str, float] = {}
    seen: set[str] = set()
    while True:
        query = urlencode({"limit": _RUNS_A_PAGE, **before})
        try:
            page = client.get(f"/api/v1/runs?{query}")["runs"]
        except (TypeError, KeyError):
            raise Mendable(f"{client.url} gives no runs", "name a running daemon") from None
        except Mendable as error:
            raise Mendable(f"{client.url} gives no runs ({error.what})", error.mend) from None
        new = [run for run in page if run["run_id"] not in seen]
        yield from new
        if not new or len(page) < _RUNS_A_PAGE:
            return
        seen.update(run["run_id"] for run in new)
        # A float of seconds is a few hundred nanoseconds coarse, so it is asked for a little more.
        before["before"] = page[-1]["started_wall_ns"] / 1e9 + 1e-6
