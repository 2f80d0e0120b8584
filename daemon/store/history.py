"""Read access to the store while the daemon writes it."""

import json
import logging
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import chain, islice
from math import isnan
from pathlib import Path
from typing import Any

from ...parsers.errors import Mendable
from ..measure.blocks import Block, CorruptBlockError, decode
from ..measure.timeline import Timeline
from ..settings.identity import boot_id


class History:
    """Finished runs and stored telemetry; each query opens the database again, read-only.

    A document is the JSON form of a ``RunReport`` as it was written. It is not validated again.
    """

    def __init__(self, path: Path) -> None:
        """Set the path of the database.

        Raises:
            Mendable: The database does not exist.
        """
        self.path = path
        if not path.is_file():
            raise Mendable(f"{path}: no run store", "name the daemon's directory with --state-dir")

    def _reader(self) -> "closing[sqlite3.Connection]":
        # A streamed answer is read in pieces, by any free thread.
        reader = sqlite3.connect(
            f"{self.path.absolute().as_uri()}?mode=ro",
            uri=True,
            timeout=5,
            check_same_thread=False,
        )
        try:
            reader.execute("PRAGMA cache_size=-64")
        except sqlite3.Error:
            reader.close()
            raise
        return closing(reader)

    def runs(
        self,
        limit: int | None = None,
        workload: str | None = None,
        before_wall_ns: int | None = None,
    ) -> Iterator[dict[str, Any]]:
        """Yield finished runs, newest first; of one workload or before a start time if given."""
        with self._reader() as reader:
            for (text,) in reader.execute(
                "SELECT report FROM runs WHERE NOT in_flight"
                " AND (?1 IS NULL OR workload = ?1) AND (?2 IS NULL OR started_wall_ns < ?2)"
                " ORDER BY started_wall_ns DESC, run_id DESC LIMIT ?3",
                (workload, before_wall_ns, -1 if limit is None else limit),
            ):
                yield json.loads(text)

    def pick_runs(
        self,
        what: str,
        limit: int,
        before_wall_ns: int | None = None,
        *,
        in_flight: bool = False,
    ) -> list[str]:
        """Return the value of an SQL expression for each run, newest first.

        Args:
            what: Expression over the columns of ``runs``; a constant of the program, never from a
                client.
            limit: Greatest number of runs.
            before_wall_ns: Only runs that started before this wall time.
            in_flight: Select runs in flight instead of finished runs.
        """
        with self._reader() as reader:
            rows = reader.execute(
                f"SELECT {what} FROM runs WHERE in_flight = ?1"
                " AND (?2 IS NULL OR started_wall_ns < ?2)"
                " ORDER BY started_wall_ns DESC, run_id DESC LIMIT ?3",
                (in_flight, before_wall_ns, limit),
            ).fetchall()
        return [text for (text,) in rows]

    def run(self, run_id: str) -> dict[str, Any] | None:
        """Return one finished run, by its id or a unique beginning or end of it."""
        if not run_id:
            return None
        with self._reader() as reader:
            rows = reader.execute(
                "SELECT report FROM runs WHERE NOT in_flight AND"
                " (substr(run_id, 1, ?1) = ?2 OR substr(run_id, -?1) = ?2) LIMIT 2",
                (len(run_id), run_id),
            ).fetchall()
        return json.loads(rows[0][0]) if len(rows) == 1 else None

    def blocks(
        self, begin_wall_ns: int, end_wall_ns: int, but_from: tuple[str, int] | None = None
    ) -> Iterator[bytes]:
        """Yield the sealed blocks that overlap a range of wall time, oldest first.

        Between two blocks no query is open, however slowly they are consumed: an open query would
        keep SQLite from emptying its log.

        Args:
            begin_wall_ns: Start of the range.
            end_wall_ns: End of the range.
            but_from: A boot and a monotonic time of it; blocks from that time on are excluded.
        """
        boot_id, from_ns = but_from or (None, None)
        with self._reader() as reader:
            ids = reader.execute(
                "SELECT id FROM blocks WHERE end_wall_ns >= ? AND begin_wall_ns <= ?"
                " AND NOT (boot_id IS ? AND begin_ns >= coalesce(?, begin_ns))"
                " ORDER BY begin_wall_ns, id",
                (begin_wall_ns, end_wall_ns, boot_id, from_ns),
            ).fetchall()
            for one in ids:
                for (data,) in reader.execute(
                    "SELECT data FROM blocks WHERE id = ?", one
                ).fetchall():
                    yield data


_FAR_OFF_NS = 1 << 62
# A time in seconds is a float, which is good for less than this.
_ROUNDING_NS = 1000

_LOG = logging.getLogger(__name__)


def samples_since(
    history: History, timeline: Timeline, since_seconds: float, limit: int
) -> Iterator[dict[str, Any]]:
    """Yield the samples that came later than a wall time, oldest first.

    If the wall clock was set back, runs of the last hour come in the order of their arrival.

    Args:
        history: The store.
        timeline: The last hour, with what the store does not hold yet.
        since_seconds: Wall time; ask again with the last sample's to go on.
        limit: At most so many.

    Returns:
        Documents with ``time`` (seconds since 1970), ``source`` and ``values`` by name, as
        ``flatten`` names them.
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
    """Yield the blocks that touch a stretch of wall time, oldest first, each of them once.

    Args:
        history: The store.
        timeline: The last hour, with what the store does not hold yet.
        since_wall_ns: Start of the stretch.
        until_wall_ns: Its end.
        wanted: Says of a name whether its column is asked for; without it, all are.
    """
    # Memory is asked first: a block that is stored meanwhile must not be missed, nor come twice.
    in_memory = timeline.blocks_since(since_wall_ns, until_wall_ns, wanted)
    first = next(in_memory, None)
    but_from = None if first is None else (boot_id(), first.times_ns[0])
    for data in history.blocks(since_wall_ns, until_wall_ns, but_from):
        try:
            yield decode(data, wanted)
        except CorruptBlockError as error:
            _LOG.warning("a stored block of samples is left out: %s", error)
    if first is not None:
        yield first
        yield from in_memory


def _rows(block: Block, since_seconds: float) -> Iterator[dict[str, Any]]:
    for row, wall_ns in enumerate(block.wall_ns):
        # As it is served, so that a time that was served is met exactly.
        time = wall_ns / 1e9
        if time > since_seconds:
            values = {name: column[row] for name, column in block.columns.items()}
            yield {
                "time": time,
                "source": block.source,
                "values": {name: value for name, value in values.items() if not isnan(value)},
            }
