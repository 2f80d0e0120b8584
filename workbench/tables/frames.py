"""Samples and runs as pandas tables, for notebooks.

>>> from tegrascope import frames
>>> log = "tests/captures/agx-orin-64gb__r36.4.4.txt"
>>> float(frames.read_log(log)["rails.VDD_GPU_SOC.instant_watts"].max())
2.412
"""

import sqlite3
from collections.abc import Iterator
from datetime import tzinfo
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from ...collectors.application.client import ODD_ANSWER, ApiClient
from ...collectors.paths import is_file
from ...daemon.store.history import History
from ...parsers.errors import UserError
from .aiperf import read_given
from .data_frames import frame_of, pandas, runs_frame, table_of
from .dataset import read_logs as read_logs
from .log_tables import LogTable, Paths, read_log_table
from .pairing import correlate_recorded
from .recorded_log import find_zone, given_runs

_RUNS_PER_PAGE = 1000
# A run with its worker's log and many phases takes some hundred KiB.
_LARGEST_PAGE_BYTES = 256 * 2**20


def read_log(
    paths: Paths, *, interval_seconds: float = 1.0, cores: int | None = None
) -> pandas.DataFrame:
    """Read the output of tegrastats: one row per record, with its time and every number in it.

    Args:
        paths: One or more logs, plain or gzip; a text may be a URL that fsspec can open.
        interval_seconds: Time between two records of a log without times.
        cores: Processes to use; ``None`` is all cores for a large log.

    Returns:
        These columns, then the columns of ``docs/tables.md``, such as
        ``rails.VDD_IN.instant_watts``. A value that a line does not have is NaN or ``<NA>``.

        - ``log``: the path as given; ``line``: the number of the line in it, from 1;
        - ``time``: local time as printed, without zone;
        - ``received``: the time of a recorder, in UTC;
        - ``elapsed_seconds``: since the first record of the log, never falling;
        - ``elapsed_error_seconds``: half the width of its uncertainty; NaN if it rests on an
          assumed interval;
        - ``clock_step_seconds``: the jump of the clock just before the record;
        - ``restarted``: whether tegrastats started anew with it; ``<NA>`` if that is not known.

    Raises:
        UserError: A log cannot be read, or not to its end.
    """
    return frame_of(read_log_table(paths, interval_seconds=interval_seconds, cores=cores))


def correlate(
    telemetry: pandas.DataFrame | Paths,
    runs: pandas.DataFrame | str | Path,
    *,
    timezone: str | tzinfo | None = None,
    interval_seconds: float = 1.0,
    board: str | None = None,
    averaging_seconds: float | None = None,
    simulated: bool = False,
) -> pandas.DataFrame:
    """Pair runs with recorded telemetry, as the daemon pairs its own: one row per run.

    Args:
        telemetry: The result of ``read_log``, or logs.
        runs: A table with the columns ``name``, ``start``, ``end`` and optionally ``inferences``,
            ``units``, ``unit``, ``device`` and ``batch``, or a CSV file of it. A time is ISO 8601
            or a ``datetime``, with offset or in the clock that the log prints; or a number of
            seconds, since 1970 or (below 100 000 000) since the first record. Other columns are
            kept.
        timezone: Zone of the times that the log prints, such as ``Europe/Berlin``.
        interval_seconds: Time between two records of a log without times.
        board: Name of a rail rule; ``None`` selects it by the rails.
        averaging_seconds: Update interval of the rails' sensors; if ``None``, the edges of a run
            show it.
        simulated: Whether the log is of a simulated board; its runs are then flagged.

    Returns:
        Per run its row, its log and its report, as of ``runs``.

    Raises:
        UserError: A log, the table or a row of it cannot be read; the first error.
    """
    table: LogTable
    if isinstance(telemetry, pandas.DataFrame):
        table = table_of(telemetry)
    else:
        table = read_log_table(telemetry, interval_seconds=interval_seconds)
    if isinstance(runs, pandas.DataFrame):
        places = [f"row {index}" for index in runs.index]
        given = given_runs(zip(places, runs.to_dict("records"), strict=True))
    else:
        given = read_given(Path(runs))
    if isinstance(timezone, str):
        timezone = find_zone(timezone)
    documents, problems = correlate_recorded(
        table,
        given,
        zone=timezone,
        board=board,
        averaging=averaging_seconds,
        simulated=simulated,
    )
    if problems:
        raise problems[0]
    return runs_frame(documents)


def runs(store_or_url: str | Path) -> pandas.DataFrame:
    """Return the finished runs of a daemon, newest first, one row per run.

    A nested field has its path as name: ``latency.p50_seconds``. Times are UTC. Lists, such as the
    quality flags, become words separated by spaces.

    Args:
        store_or_url: Its state directory, the database in it, or its address, such as
            ``http://robot:9754``.

    Raises:
        UserError: The store is missing or cannot be read, or the daemon does not answer.
    """
    if str(store_or_url).startswith(("http://", "https://")):
        return runs_frame(served_runs(str(store_or_url)))
    path = Path(store_or_url)
    try:
        store = path if is_file(path) else path / "tegrascope.db"
        return runs_frame(History(store).runs())
    except sqlite3.Error as error:
        raise UserError(f"{path} cannot be read ({error})", "name a run store") from None


def served_runs(url: str, most_runs: int = 1_000_000) -> Iterator[dict[str, Any]]:
    """Yield the runs that a daemon serves, page by page, each once.

    Raises:
        UserError: The daemon does not answer, or it has more runs than a table can hold.
    """
    client = ApiClient(url, timeout_seconds=30, largest_bytes=_LARGEST_PAGE_BYTES)
    before: dict[str, float] = {}
    seen: set[str] = set()
    while True:
        query = urlencode({"limit": _RUNS_PER_PAGE, **before})
        try:
            page = client.get(f"/api/v1/runs?{query}")["runs"]
            new = []
            for run in page:
                if run["run_id"] not in seen:
                    seen.add(run["run_id"])
                    new.append(dict(run))
            is_last = not new or len(page) < _RUNS_PER_PAGE
            if not is_last:
                # A float of seconds is a few hundred nanoseconds coarse: pages overlap a little.
                before["before"] = page[-1]["started_wall_ns"] / 1e9 + 1e-6
        except ODD_ANSWER as error:
            raise client.odd_answer(error) from None
        except UserError as error:
            raise UserError(
                f"{client.url} returns no runs ({error.message})", error.remedy
            ) from None
        if len(seen) > most_runs:
            raise UserError(f"{client.url} has over {most_runs} runs", "read its database file")
        yield from new
        if is_last:
            return
