"""One SQLite database: run records, and telemetry as the sealed blocks of the timeline.

WAL with ``synchronous=FULL``: acknowledged data survives a power cut. A run is written as
``failed`` when it begins and overwritten when it ends, so its record is correct even if the process
dies.
"""

import contextlib
import errno
import fcntl
import logging
import os
import sqlite3
import threading
from collections import deque
from pathlib import Path

from ...parsers.errors import UserError
from ..measure.run_report import RunReport
from ..measure.timeline import SealedBlock

# The program did not exist before 2024; a clock with an earlier year was never set.
_FIRST_WALL_NS = 1_704_067_200_000_000_000  # 2024
_DAY_NS = 86_400_000_000_000
_PLAUSIBLE_NS = 366 * _DAY_NS
# A block has ten seconds or more.
_BLOCK_NS = 10_000_000_000
_DAY_OF_BLOCKS = _DAY_NS // _BLOCK_NS
_UNDATED_RUNS = 100_000


def prune(store: sqlite3.Connection, now_ns: int, samples_ns: int, runs_ns: int) -> bool:
    """Delete data beyond its retention; the caller commits.

    Blocks with an impossible wall time are deleted after one retention's worth of newer blocks. The
    latest hundred thousand runs with such a time stay.

    ``now_ns`` is the wall time, right or wrong; ``samples_ns`` and ``runs_ns`` are the retentions.

    Returns:
        Whether the wall clock was trusted; else nothing was deleted for its age.
    """
    trusted = is_trusted(store, now_ns)
    # Without a trusted clock, the time of every block counts as wrong.
    latest_ns = now_ns + _DAY_NS if trusted else 0
    store.execute(
        "DELETE FROM blocks WHERE (end_wall_ns < ?1 OR end_wall_ns > ?2)"
        " AND id <= (SELECT max(id) FROM blocks) - ?3",
        (_FIRST_WALL_NS, latest_ns, samples_ns // _BLOCK_NS + 1),
    )
    store.execute(
        "DELETE FROM runs WHERE run_id IN (SELECT run_id FROM runs WHERE started_wall_ns < ?"
        " AND NOT in_flight ORDER BY started_wall_ns DESC LIMIT -1 OFFSET ?)",
        (_FIRST_WALL_NS, _UNDATED_RUNS),
    )
    if trusted:
        store.execute(
            "DELETE FROM blocks WHERE end_wall_ns >= ? AND end_wall_ns < ?",
            (_FIRST_WALL_NS, now_ns - samples_ns),
        )
        store.execute(
            "DELETE FROM runs WHERE started_wall_ns >= ? AND started_wall_ns < ? AND NOT in_flight",
            (_FIRST_WALL_NS, now_ns - runs_ns),
        )
    return trusted


def is_trusted(store: sqlite3.Connection, now_ns: int) -> bool:
    """Return whether a wall time may decide about deletion.

    It may if it is at most a year ahead of the data stored one day of telemetry ago. A board that
    was off for longer keeps its records for one more day.
    """
    (reference_ns,) = store.execute(
        "SELECT coalesce("
        "(SELECT end_wall_ns FROM blocks WHERE end_wall_ns >= ?1"
        " AND id <= (SELECT max(id) FROM blocks) - ?2 ORDER BY id DESC LIMIT 1),"
        " (SELECT end_wall_ns FROM blocks WHERE end_wall_ns >= ?1 ORDER BY id LIMIT 1),"
        " (SELECT min(started_wall_ns) FROM runs WHERE started_wall_ns >= ?1), ?3)",
        (_FIRST_WALL_NS, _DAY_OF_BLOCKS, now_ns),
    ).fetchone()
    return bool(_FIRST_WALL_NS <= now_ns <= reference_ns + _PLAUSIBLE_NS)


_LOG = logging.getLogger(__name__)
# One hour of blocks: the timeline keeps the same bytes in memory anyway.
_PENDING_BLOCKS = 360
_MIGRATIONS = (
    """
    CREATE TABLE runs (
        run_id TEXT PRIMARY KEY,
        workload TEXT NOT NULL,
        device TEXT NOT NULL,
        outcome TEXT NOT NULL,
        in_flight INTEGER NOT NULL,
        started_wall_ns INTEGER NOT NULL,
        report TEXT NOT NULL
    ) WITHOUT ROWID;
    CREATE INDEX runs_by_start ON runs (started_wall_ns);
    CREATE TABLE blocks (
        id INTEGER PRIMARY KEY,
        source TEXT NOT NULL,
        boot_id TEXT NOT NULL,
        begin_ns INTEGER NOT NULL,
        end_ns INTEGER NOT NULL,
        begin_wall_ns INTEGER NOT NULL,
        end_wall_ns INTEGER NOT NULL,
        samples INTEGER NOT NULL,
        data BLOB NOT NULL
    );
    CREATE INDEX blocks_by_end ON blocks (end_wall_ns);
    """,
)


class Store:
    """The database of one daemon; every method may be called from any thread.

    Attributes:
        runs_lost: Runs that were dropped, the oldest first, because too many waited to be written.
        write_errors: Failed writes since the start.
        problem: Reason of the last failed write; ``None`` after a successful one.
        wants_restart: Whether the opened file was removed or replaced, so that no retry can help.
    """

    def __init__(
        self, path: Path, boot_id: str = "", *, most_pending: int = 1000, lock_seconds: float = 1.0
    ) -> None:
        """Open or create the database and bring its schema up to date.

        Args:
            path: The file; a missing directory is created.
            boot_id: Id of this boot, since monotonic times are valid only within it.
            most_pending: Runs that may wait to be written.
            lock_seconds: Wait for another process's lock. A longer one would delay an executor;
                unwritten data is written again later.

        Raises:
            UserError: The directory can't be written, or the file is not a tegrascope database.
        """
        self.runs_lost = 0
        self.path = path
        self.write_errors = 0
        self.problem: str | None = None
        self.wants_restart = False
        self._boot_id = boot_id
        self._lock = threading.Lock()
        self._pending: dict[str, tuple[object, ...]] = {}
        self._blocks: deque[SealedBlock] = deque(maxlen=_PENDING_BLOCKS)
        self._is_clock_trusted = True
        self._most_pending = most_pending
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._writer = sqlite3.connect(path, check_same_thread=False, timeout=5)
            try:
                self._writer.execute("PRAGMA journal_mode=WAL")
                self._writer.execute("PRAGMA synchronous=FULL")
                self._writer.execute("PRAGMA cache_size=-256")
                self._migrate()
                self._writer.execute(f"PRAGMA busy_timeout={round(1000 * lock_seconds)}")
            except BaseException:
                self._writer.close()
                raise
            self._inode = path.stat().st_ino
        except (OSError, sqlite3.Error) as error:
            raise UserError(f"{path}: {error}", "name a writable place with --state-dir") from None

    def _migrate(self) -> None:
        (version,) = self._writer.execute("PRAGMA user_version").fetchone()
        if version > len(_MIGRATIONS):
            raise UserError(
                f"{self.path}: written by a newer tegrascope (schema {version})",
                "upgrade tegrascope, or name another --state-dir",
            )
        for number, script in enumerate(_MIGRATIONS[version:], start=version + 1):
            self._writer.executescript(f"BEGIN; {script} PRAGMA user_version={number}; COMMIT;")

    def recover(self) -> list[str]:
        """Close the runs that were in flight when an earlier process died, and return their ids."""
        try:
            with self._lock, self._writer:
                rows = self._writer.execute("SELECT run_id FROM runs WHERE in_flight").fetchall()
                self._writer.execute("UPDATE runs SET in_flight = 0 WHERE in_flight")
        except sqlite3.Error as error:
            remedy = "let this user write it, or repair it"
            raise UserError(f"{self.path}: {error}", remedy) from None
        return [run_id for (run_id,) in rows]

    def begin(self, report: RunReport) -> None:
        """Commit a run that begins; ``report`` stays its record if nothing follows."""
        self._write_run(report, in_flight=True)

    def finish(self, report: RunReport) -> None:
        """Commit a run that ended; keep it and try again if the disk refuses."""
        self._write_run(report, in_flight=False)

    def _write_run(self, report: RunReport, *, in_flight: bool) -> None:
        row = (
            report.run_id,
            report.workload,
            report.device,
            report.outcome,
            in_flight,
            report.started_wall_ns,
            report.model_dump_json(exclude_none=True),
        )
        with self._lock:
            self._pending.pop(report.run_id, None)  # its end replaces its begin
            self._pending[report.run_id] = row
            self._flush()
            if len(self._pending) > self._most_pending:
                lost = next(iter(self._pending))
                del self._pending[lost]
                self.runs_lost += 1
                _LOG.error("run %s is lost: %d others wait to be written", lost, len(self._pending))

    def add_block(self, block: SealedBlock) -> None:
        """Commit a block of samples; keep it and try again if the disk refuses."""
        with self._lock:
            self._blocks.append(block)
            self._flush()

    def flush(self) -> None:
        """Try again to commit the waiting data."""
        with self._lock:
            if self._pending or self._blocks:
                self._flush()

    def _flush(self) -> None:
        try:
            self._check_is_there()
            while self._pending:
                run_id, row = next(iter(self._pending.items()))
                with self._writer:
                    self._writer.execute(
                        "INSERT OR REPLACE INTO runs VALUES (?, ?, ?, ?, ?, ?, ?)", row
                    )
                del self._pending[run_id]
            while self._blocks:
                block = self._blocks[0]
                times = (block.begin_ns, block.end_ns, block.wall_begin_ns, block.wall_end_ns)
                with self._writer:
                    self._writer.execute(
                        "INSERT INTO blocks (source, boot_id, begin_ns, end_ns, begin_wall_ns,"
                        " end_wall_ns, samples, data) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                        (block.source, self._boot_id, *times, block.count, block.data),
                    )
                self._blocks.popleft()
        except (OSError, sqlite3.Error) as error:
            self._note(error)
        else:
            if self.problem is not None:
                _LOG.info("the store writes again")
            self.problem = None

    def _check_is_there(self) -> None:
        """Check that the file is still the same one; SQLite continues to write to a deleted one."""
        try:
            is_ours = self.path.stat().st_ino == self._inode
        except FileNotFoundError:
            self.wants_restart = True
            raise
        self.wants_restart = not is_ours
        if not is_ours:
            raise OSError(f"{self.path} was replaced: restart the daemon")

    def prune(self, now_wall_ns: int, samples_ns: int, runs_ns: int) -> None:
        """Delete data beyond its retention; a wall clock that can't be right deletes nothing."""
        with self._lock:
            try:
                with self._writer:
                    is_trusted = prune(self._writer, now_wall_ns, samples_ns, runs_ns)
            except sqlite3.Error as error:
                self._note(error)
                return
            if is_trusted and not self._is_clock_trusted:
                _LOG.warning("the wall clock is trusted again: retention goes by age")
            elif self._is_clock_trusted and not is_trusted:
                _LOG.warning("the wall clock may be wrong: nothing is deleted for its age")
            self._is_clock_trusted = is_trusted

    def _note(self, error: Exception) -> None:
        self.write_errors += 1
        problem = str(error)
        if isinstance(error, FileNotFoundError):
            problem = f"{self.path} was removed: restart the daemon"
        if problem != self.problem:
            _LOG.error("the store does not write: %s", problem)
        self.problem = problem

    def close(self) -> None:
        """Write the waiting data and close; log what cannot be written even now."""
        with self._lock:
            if self._pending or self._blocks:
                self._flush()
            if self._pending or self._blocks:
                counts = (len(self._pending), len(self._blocks))
                _LOG.error("%d run(s) and %d block(s) of samples could not be written", *counts)
            self._writer.close()


# Some network file systems have no locks; the daemon works there too.
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


class Owner:
    """Holds a database for this process until ``release``.

    A second daemon would treat the first one's run in flight as one that a crash left behind.
    """

    def __init__(self, database: Path) -> None:
        """Take the lock, a file next to the database.

        Raises:
            UserError: Another daemon has it, or the directory can't be written.
        """
        path = database.with_name(f"{database.name}.lock")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise UserError(
                f"{path.parent}: {error.strerror}", "name a writable place with --state-dir"
            ) from None
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._fd, 20, 0).decode("ascii", "replace").strip()
            os.close(self._fd)
            raise UserError(
                f"{path.parent}: in use by another tegrascope (process {holder or 'not known'})",
                "stop that one, or name another --state-dir",
            ) from None
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                os.close(self._fd)
                raise UserError(f"{path}: {error.strerror}", "name another --state-dir") from None
        with contextlib.suppress(OSError):  # a full disk must not keep the daemon from starting
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Release the lock; further calls do nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
