"""Read access to the store while the daemon writes it."""

import json
import logging
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from itertools import chain, islice
from math import isnan
from pathlib import Path
from typing import Any

from ...collectors.paths import is_file
from ...parsers.errors import UserError
from ..measure.blocks import Block, CorruptBlockError, decode
from ..measure.timeline import Timeline
from ..settings.config import boot_id
from .rows import is_report
from .store import SCHEMA

# As bytes: SQLite's own conversion to a text fails for the whole query if one is not UTF-8.
_COLUMNS = ", ".join(
    (
        *(f"CAST({name} AS BLOB)" for name in ("run_id", "workload", "device", "outcome")),
        "started_wall_ns",
        "CAST(report AS BLOB)",
    )
)
_COLUMN_COUNT = 6
# The last condition of a query, so that it is called only for rows that fulfil the others.
_READABLE = f"is_readable({_COLUMNS})"
# So many are reported and counted; a file that is damaged so much fails in other ways first.
_UNREADABLE_AT_MOST, _ID_BYTES = 1000, 100

ONE_BOOT_NS = 60_000_000_000
"""Largest change of wall time minus CLOCK_MONOTONIC for two times to be taken as of one boot."""


class History:
    """Finished runs and stored telemetry; each query opens the database again, read-only.

    A document is the JSON form of a ``RunReport`` as it was written. Its main fields are checked. A
    row that cannot be read is skipped: one damaged byte must not hide all other runs.
    """

    def __init__(
        self,
        path: Path,
        *,
        may_be_missing: bool = False,
        on_damage: Callable[[Exception], None] = lambda _: None,
    ) -> None:
        """Raise if there is no database, unless a daemon may be unable to create it.

        Args:
            on_damage: Called with the error if the file itself is damaged.
        """
        self.path = path
        self._may_be_missing = may_be_missing
        self._on_damage = on_damage
        self._unreadable: set[tuple[bytes, object]] = set()
        if not may_be_missing and not is_file(path):
            raise UserError(f"{path}: no run store", "name the daemon's directory with --state-dir")

    @property
    def unreadable(self) -> int:
        """Rows that the queries so far had to skip."""
        return len(self._unreadable)

    def _is_readable(self, *columns: object) -> bool:
        """Return whether a row can be used; if not, report it once."""
        if is_report(*columns):
            return True
        run_id, *_, started_wall_ns, _ = columns
        row = (bytes(run_id)[:_ID_BYTES] if isinstance(run_id, bytes) else b"", started_wall_ns)
        if row not in self._unreadable and len(self._unreadable) < _UNREADABLE_AT_MOST:
            self._unreadable.add(row)
            _LOG.warning(
                "a stored run is skipped, since it cannot be read: %a",
                row[0].decode("ascii", "replace"),
            )
        return False

    def _is_emptied(self) -> bool:
        """Return whether SQLite would take the file for a new one, and delete its log."""
        try:
            log = self.path.with_name(f"{self.path.name}-wal").stat()
            return self.path.stat().st_size == 0 and log.st_size > 0
        except OSError:
            return False

    @contextmanager
    def _reader(self) -> Iterator[sqlite3.Connection]:
        is_missing = self._may_be_missing and not is_file(self.path)
        uri = "file::memory:" if is_missing else f"{self.path.absolute().as_uri()}?mode=ro"
        if not is_missing and self._is_emptied():
            error = sqlite3.DatabaseError("the file is empty, but it has a log")
            self._on_damage(error)
            raise error
        # A streamed answer is read in pieces, by any free thread.
        reader = sqlite3.connect(uri, uri=True, timeout=5, check_same_thread=False)
        with closing(reader):
            try:
                reader.create_function("is_readable", _COLUMN_COUNT, self._is_readable)
                reader.executescript(SCHEMA if is_missing else "PRAGMA cache_size=-64")
                yield reader
            except sqlite3.DatabaseError as error:
                # Its subclasses are errors of the disk, of locks, or of the query.
                if type(error) is sqlite3.DatabaseError:
                    self._on_damage(error)
                raise

    def runs(
        self, limit: int | None = None, workload: str | None = None
    ) -> Iterator[dict[str, Any]]:
        """Yield finished runs, newest first; of one workload if given."""
        return map(json.loads, self.pick_runs("report", limit, workload=workload))

    def pick_runs(
        self,
        expression: str,
        limit: int | None = None,
        before_wall_ns: int | None = None,
        *,
        workload: str | None = None,
        in_flight: bool = False,
    ) -> Iterator[str]:
        """Yield the value of an SQL expression for each run, finished or in flight, newest first.

        ``expression`` is a constant of the program, never from a client.
        """
        with self._reader() as reader:
            for (text,) in reader.execute(
                f"SELECT {expression} FROM runs WHERE in_flight = :in_flight"
                " AND (:workload IS NULL OR workload = :workload)"
                " AND (:before IS NULL OR started_wall_ns < :before)"
                f" AND {_READABLE}"
                " ORDER BY started_wall_ns DESC, run_id DESC LIMIT :limit",
                {
                    "in_flight": in_flight,
                    "workload": workload,
                    "before": before_wall_ns,
                    "limit": -1 if limit is None else limit,
                },
            ):
                yield text

    def last_good(self, expression: str, since_wall_ns: int, most: int) -> Iterator[str]:
        """Yield the value of an SQL expression for the last good runs of each workload.

        ``expression`` is a constant of the program, ``most`` the number of runs per workload and
        device. Only runs that started after ``since_wall_ns`` count.
        """
        with self._reader() as reader:
            for (text,) in reader.execute(
                f"SELECT {expression} FROM runs JOIN (SELECT run_id AS id, row_number() OVER"
                " (PARTITION BY workload, device ORDER BY started_wall_ns DESC) AS place FROM runs"
                " WHERE started_wall_ns > ? AND outcome = 'ok' AND NOT in_flight"
                f" AND {_READABLE}) ON run_id = id WHERE place <= ?",
                (since_wall_ns, most),
            ):
                yield text

    def run(self, run_id: str) -> dict[str, Any] | None:
        """Return one finished run, by its id or a unique beginning or end of it."""
        if not run_id:
            return None
        reports = self._reports_like(run_id)
        if len(reports) != 1:
            return None
        document: dict[str, Any] = json.loads(reports[0])
        return document

    def find_run(self, run_id: str) -> dict[str, Any]:
        """Return one finished run as ``run`` does, or raise ``UserError``."""
        document = self.run(run_id)
        if document is not None:
            return document
        if len(self._reports_like(run_id)) > 1:
            raise UserError(f"several runs begin or end with {run_id}", "give more of its letters")
        raise UserError(f"there is no run {run_id}", "see tegrascope runs list")

    def _reports_like(self, run_id: str) -> list[str]:
        """Return the reports, two at most, of runs whose id begins or ends so."""
        with self._reader() as reader:
            rows = reader.execute(
                "SELECT report FROM runs WHERE NOT in_flight AND"
                " (substr(run_id, 1, :length) = :id OR substr(run_id, -:length) = :id)"
                f" AND {_READABLE} LIMIT 2",
                {"length": len(run_id), "id": run_id},
            ).fetchall()
        return [report for (report,) in rows]

    def blocks(
        self, begin_wall_ns: int, end_wall_ns: int, but_from: tuple[str, int] | None = None
    ) -> Iterator[bytes]:
        """Yield the sealed blocks that overlap a range of wall time, oldest first.

        ``but_from`` is a boot and a monotonic time of it; blocks from that time on are excluded.
        """
        boot_id, from_ns = but_from or (None, None)
        return self._blocks(
            "end_wall_ns >= ? AND begin_wall_ns <= ?"
            " AND NOT (boot_id IS ? AND begin_ns >= coalesce(?, begin_ns))"
            " ORDER BY begin_wall_ns, id",
            (begin_wall_ns, end_wall_ns, boot_id, from_ns),
        )

    def blocks_of_boot(self, offset_ns: int, begin_ns: int, end_ns: int) -> Iterator[bytes]:
        """Yield the sealed blocks that overlap a range of CLOCK_MONOTONIC of one boot, in order.

        ``offset_ns`` is wall time minus monotonic time at some moment of the range, to a minute: it
        says which boot.
        """
        overlap = "begin_ns <= :end AND end_ns >= :begin"
        return self._blocks(
            f"{overlap} AND boot_id IN (SELECT boot_id FROM blocks WHERE {overlap}"
            " AND abs(begin_wall_ns - begin_ns - :offset) <= :error) ORDER BY begin_ns, id",
            {"begin": begin_ns, "end": end_ns, "offset": offset_ns, "error": ONE_BOOT_NS},
        )

    def _blocks(self, condition: str, values: Any) -> Iterator[bytes]:
        """Yield the sealed blocks that fulfil a condition, which is a constant of the program."""
        with self._reader() as reader:
            ids = reader.execute(f"SELECT id FROM blocks WHERE {condition}", values).fetchall()
            # An open query would keep SQLite from emptying its log, so no query waits for a reader.
            for block_id in ids:
                rows = reader.execute(
                    "SELECT CAST(data AS BLOB) FROM blocks WHERE id = ?", block_id
                ).fetchall()
                for (data,) in rows:
                    yield data


_FAR_OFF_NS = 1 << 62
# A time in seconds is a float, whose error is less than this.
_ROUNDING_NS = 1000

_LOG = logging.getLogger(__name__)


def samples_since(
    history: History, timeline: Timeline, since_seconds: float, limit: int
) -> Iterator[dict[str, Any]]:
    """Yield at most ``limit`` samples that came later than a wall time, oldest first.

    They are documents with ``time`` (seconds since 1970), ``source`` and ``values`` by column. To
    continue, pass the ``time`` of the last one. If the wall clock was set back, samples of the last
    hour come in the order of their arrival.
    """
    blocks = blocks_between(history, timeline, int(since_seconds * 1e9) - _ROUNDING_NS)
    return islice(chain.from_iterable(_rows(block, since_seconds) for block in blocks), limit)


def blocks_between(
    history: History,
    timeline: Timeline,
    since_wall_ns: int,
    until_wall_ns: int = _FAR_OFF_NS,
    wanted: Callable[[str], bool] | None = None,
) -> Iterator[Block]:
    """Yield each block of a range of wall time once, oldest first, from store and memory.

    ``wanted`` selects columns by name.
    """
    # Memory is read first: a block that is stored meanwhile must be neither lost nor repeated.
    in_memory = timeline.blocks_since(since_wall_ns, until_wall_ns, wanted)
    first = next(in_memory, None)
    but_from = None if first is None else (boot_id(), first.times_ns[0])
    # A store that cannot be read is no reason to withhold the telemetry in memory.
    with suppress(sqlite3.DatabaseError):
        for data in history.blocks(since_wall_ns, until_wall_ns, but_from):
            try:
                yield decode(data, wanted)
            except CorruptBlockError as error:
                _LOG.warning("a stored block of samples is skipped: %s", error)
    if first is not None:
        yield first
        yield from in_memory


def _rows(block: Block, since_seconds: float) -> Iterator[dict[str, Any]]:
    for row, wall_ns in enumerate(block.wall_ns):
        # The same float as in the answer, so that a client can continue from it exactly.
        time = wall_ns / 1e9
        if time > since_seconds:
            rows = ((name, column[row]) for name, column in block.columns.items())
            values = {name: value for name, value in rows if not isnan(value)}
            yield {"time": time, "source": block.source, "values": values}
