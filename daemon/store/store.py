"""One SQLite database: run records, and telemetry as the sealed blocks of the timeline.

WAL with ``synchronous=FULL``: acknowledged data survives a power cut. A run is written as
``failed`` when it begins and overwritten when it ends, so its record is correct even if the process
dies. A daemon works without the file as long as that cannot be opened or written.
"""

import contextlib
import errno
import fcntl
import json
import logging
import os
import sqlite3
import stat
import struct
import threading
import time
from collections import deque
from io import FileIO
from pathlib import Path
from typing import Any

from ...collectors.base import open_regular
from ...parsers.errors import UserError, file_error
from ..measure.run_report import RunReport
from ..measure.timeline import SealedBlock

_LOG = logging.getLogger(__name__)

# The program did not exist before 2024; a clock with an earlier year was never set.
_FIRST_WALL_NS = 1_704_067_200_000_000_000  # 2024
_DAY_NS = 86_400_000_000_000
_PLAUSIBLE_NS = 366 * _DAY_NS
# A block has ten seconds or more.
_BLOCK_NS = 10_000_000_000
_DAY_OF_BLOCKS = _DAY_NS // _BLOCK_NS
_UNDATED_RUNS = 100_000
# Rows that are deleted at a time for the size limit, and how often in one call.
_LIMIT_ROWS, _LIMIT_ROUNDS = 64, 100


def is_trusted(store: sqlite3.Connection, now_ns: int) -> bool:
    """Return whether a wall time is at most a year ahead of the data of one day of telemetry ago.

    Then it may decide about deletion. A board that was off for longer keeps its records for one
    more day.
    """
    (reference_ns,) = store.execute(
        "SELECT coalesce("
        "(SELECT end_wall_ns FROM blocks WHERE end_wall_ns >= :first"
        " AND id <= (SELECT max(id) FROM blocks) - :day ORDER BY id DESC LIMIT 1),"
        " (SELECT end_wall_ns FROM blocks WHERE end_wall_ns >= :first ORDER BY id LIMIT 1),"
        " (SELECT min(started_wall_ns) FROM runs WHERE started_wall_ns >= :first), :now)",
        {"first": _FIRST_WALL_NS, "day": _DAY_OF_BLOCKS, "now": now_ns},
    ).fetchone()
    return bool(_FIRST_WALL_NS <= now_ns <= reference_ns + _PLAUSIBLE_NS)


# One hour of blocks: the timeline keeps the same bytes in memory anyway.
_PENDING_BLOCKS = 360
SCHEMA = """
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
    """
_MIGRATIONS = (SCHEMA,)


# Some network file systems have no locks; the daemon works there too.
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
_REMEDY = "name a writable place with --state-dir"


class InUseError(UserError):
    """Another daemon has the store."""


class PlantedLinkError(UserError):
    """A file of the store is a symbolic link that another user made."""


# Errors of the place that a person named. A full or broken disk may be well again later.
_WRONG_PLACE = (
    PermissionError,
    NotADirectoryError,
    FileExistsError,
    InUseError,
    PlantedLinkError,
)


def _refuse_planted(path: Path) -> None:
    """Raise an error for a file that SQLite must not open.

    SQLite follows links, and it may wait for a FIFO. Another user who can write into the directory
    of a daemon of root could make it write anywhere. A link of this user is an arrangement.

    Raises:
        PlantedLinkError: It is a link of another user.
        OSError: It is a FIFO, a socket or a device.
    """
    try:
        status = path.lstat()
    except OSError:  # it is not there, or the opening reports the reason
        return
    kind = status.st_mode
    if stat.S_ISLNK(kind) and status.st_uid not in (0, os.geteuid()):
        what = f"{path}: is a symbolic link of the user {status.st_uid}"
        raise PlantedLinkError(what, f"remove it, or {_REMEDY}")
    if not (stat.S_ISLNK(kind) or stat.S_ISREG(kind) or stat.S_ISDIR(kind)):
        raise OSError(errno.EINVAL, "is not a regular file", str(path))


def _take_lock(database: Path) -> FileIO:
    """Return a file next to the database that is locked until it is closed."""
    path = database.with_name(f"{database.name}.lock")
    for suffix in ("", "-wal", "-shm", "-journal"):
        _refuse_planted(database.with_name(f"{database.name}{suffix}"))
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
    file = FileIO(open_regular(path, flags), "a+b")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(file.fileno(), 20, 0).decode("ascii", "replace").strip()
        file.close()
        raise InUseError(
            f"{path.parent}: in use by another tegrascope (process {holder or 'not known'})",
            "stop that one, or name another --state-dir",
        ) from None
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            file.close()
            raise
    with contextlib.suppress(OSError):  # a full disk must not keep the daemon from starting
        file.truncate(0)
        file.write(f"{os.getpid()}\n".encode())
    return file


def _reason(error: Exception) -> str:
    return file_error(error).message if isinstance(error, OSError) else str(error)


def _lost_commits(log: Path, read: int) -> int:
    """Return how many commits at the end of a write-ahead log SQLite did not read.

    A power cut tears at most the last one, which was not acknowledged. More are a damaged log. A
    header that is damaged costs the whole log.

    Args:
        log: The file, as <https://sqlite.org/fileformat2.html#walformat> describes it.
        read: Frames that SQLite read.
    """
    commits = 0
    with log.open("rb") as file:
        header = file.read(32)
        if len(header) < 32 or not any(header):
            return 0
        sums, order = [0, 0], ">" if header[3] & 1 else "<"
        for first, second in struct.iter_unpack(f"{order}2I", header[:24]):
            sums[0] = (sums[0] + first + sums[1]) & 0xFFFFFFFF
            sums[1] = (sums[1] + second + sums[0]) & 0xFFFFFFFF
        is_whole = header[24:] == struct.pack(">2I", *sums)
        size, salts = int.from_bytes(header[8:12], "big"), header[16:24]
        file.seek(read * (24 + size), os.SEEK_CUR)
        while len(frame := file.read(24)) == 24:
            is_commit = frame[4:8] != bytes(4)
            commits += is_commit and (frame[8:16] == salts or not is_whole)
            file.seek(size, os.SEEK_CUR)
    return commits


class Store:
    """The database of one daemon; every method may be called from any thread.

    Attributes:
        runs_lost: Runs that were dropped, the oldest first, because too many waited to be written.
        write_errors: Failed writes since the start.
        problem: Reason of the last failed write; ``None`` after a successful one.
        note: Damage of the file that was repaired since the start, or ``None``.
    """

    def __init__(
        self,
        path: Path,
        boot_id: str = "",
        *,
        is_daemon: bool = False,
        most_pending: int = 1000,
        lock_seconds: float = 1.0,
    ) -> None:
        """Open or create the database and bring its schema up to date.

        Args:
            boot_id: Id of this boot, since monotonic times are valid only within it.
            is_daemon: Whether to keep a second daemon out until ``close``, since that would treat
                the run in flight as one that a crash left behind; to close such runs; and to
                work in memory until the file can be opened, which ``flush`` tries again. A damaged
                file is renamed, and another one made.
            lock_seconds: Wait for another process's write. A longer one would delay an executor.

        Raises:
            UserError: The directory is not for this user, or another daemon has it. Unless
                ``is_daemon``, also: the file can't be written, or is not a tegrascope database.
        """
        self.runs_lost = 0
        self.path = path
        self.write_errors = 0
        self.problem: str | None = None
        self.note: str | None = None
        self._boot_id = boot_id
        self._lock = threading.Lock()
        self._pending: dict[str, tuple[object, ...]] = {}
        self._blocks: deque[SealedBlock] = deque(maxlen=_PENDING_BLOCKS)
        self._is_clock_trusted = True
        self._most_pending = most_pending
        self._lock_seconds = lock_seconds
        self._is_daemon = is_daemon
        self._is_recovered = False
        self._is_suspect = False  # a write found it damaged
        self._writer: sqlite3.Connection | None = None
        self._opened = contextlib.ExitStack()
        try:
            self._open(timeout_seconds=5)
        except (OSError, sqlite3.Error, UserError) as error:
            if not is_daemon or isinstance(error, _WRONG_PLACE):
                if isinstance(error, UserError):
                    raise
                raise UserError(f"{path}: {_reason(error)}", _REMEDY) from None
            self._note(error)

    def _open(self, timeout_seconds: float) -> sqlite3.Connection:
        """Open or create the file; put aside a damaged one if this is a daemon."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as stack:
            if self._is_daemon:
                stack.enter_context(_take_lock(self.path))
            try:
                writer = self._connect(timeout_seconds)
            except sqlite3.DatabaseError as error:
                if not self._is_daemon or type(error) is not sqlite3.DatabaseError:
                    raise
                self._put_aside(error)
                writer = self._connect(timeout_seconds)
            stack.callback(writer.close)
            self._opened = stack.pop_all()
        self._inode = self.path.stat().st_ino
        self._writer = writer
        return writer

    def _connect(self, timeout_seconds: float) -> sqlite3.Connection:
        writer = sqlite3.connect(self.path, check_same_thread=False, timeout=timeout_seconds)
        try:
            writer.execute("PRAGMA journal_mode=WAL")
            writer.execute("PRAGMA synchronous=FULL")
            writer.execute("PRAGMA cache_size=-256")
            if self._is_daemon:
                self._check_log(writer)
            self._migrate(writer)
            writer.execute(f"PRAGMA busy_timeout={round(1000 * self._lock_seconds)}")
            if self._is_daemon and not self._is_recovered:
                _recover(writer)
                self._is_recovered = True
        except BaseException:
            writer.close()
            raise
        return writer

    def _check_log(self, writer: sqlite3.Connection) -> None:
        """Report a damaged write-ahead log: SQLite reads it up to the damage, without a word."""
        log = self.path.with_name(f"{self.path.name}-wal")
        _, read, _ = writer.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        with contextlib.suppress(FileNotFoundError):
            if read >= 0 and (lost := _lost_commits(log, read)) > 1:
                self.note = (
                    f"the log of the store was damaged: up to {lost} of its last commits are lost"
                )
                _LOG.error("%s: %s", self.path, self.note)
                # Or what is left would be found again at the next start.
                writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()

    def _put_aside(self, error: Exception) -> None:
        """Rename a damaged file, so that another one can be made and this one examined."""
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        aside = self.path.with_name(f"{self.path.name}.damaged-{stamp}")
        for suffix in ("-wal", "-shm", ""):  # a log of the old file must not meet the new one
            with contextlib.suppress(FileNotFoundError):
                self.path.with_name(f"{self.path.name}{suffix}").rename(f"{aside}{suffix}")
        self.note = f"the store was damaged ({error}): it was renamed to {aside}, and begun anew"
        _LOG.error("%s", self.note)

    def _migrate(self, writer: sqlite3.Connection) -> None:
        (version,) = writer.execute("PRAGMA user_version").fetchone()
        if version == 0 and writer.execute("SELECT 1 FROM sqlite_master").fetchone():
            raise sqlite3.DatabaseError("it has tables of an unknown version")
        if version > len(_MIGRATIONS):
            raise UserError(
                f"{self.path}: written by a newer tegrascope (schema {version})",
                "upgrade tegrascope, or name another --state-dir",
            )
        for number, script in enumerate(_MIGRATIONS[version:], start=version + 1):
            writer.executescript(f"BEGIN; {script} PRAGMA user_version={number}; COMMIT;")

    def begin(self, report: RunReport) -> None:
        """Commit a run that begins; ``report`` stays its record if nothing follows."""
        self._write_run(report, in_flight=True)

    def finish(self, report: RunReport) -> bool:
        """Commit a run that ended and return True; keep it and try again if the disk refuses."""
        return self._write_run(report, in_flight=False)

    def waiting(self) -> list[dict[str, Any]]:
        """Return the finished runs that are in memory only, as ``History`` does; newest first."""
        with self._lock:
            rows = [row for row in self._pending.values() if not row[4]]
        return [json.loads(str(row[-1])) for row in reversed(rows)]

    def _write_run(self, report: RunReport, *, in_flight: bool) -> bool:
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
            return report.run_id not in self._pending

    def add_block(self, block: SealedBlock) -> None:
        """Commit a block of samples; keep it and try again if the disk refuses."""
        with self._lock:
            self._blocks.append(block)
            self._flush()

    def flush(self) -> None:
        """Try again to open the file and to commit the waiting data."""
        with self._lock:
            if self._pending or self._blocks or self._writer is None:
                self._flush()

    def _flush(self) -> None:
        try:
            writer = self._ready()
            while self._pending:
                run_id, row = next(iter(self._pending.items()))
                with writer:
                    writer.execute("INSERT OR REPLACE INTO runs VALUES (?, ?, ?, ?, ?, ?, ?)", row)
                del self._pending[run_id]
            while self._blocks:
                block = self._blocks[0]
                times = (block.begin_ns, block.end_ns, block.wall_begin_ns, block.wall_end_ns)
                with writer:
                    writer.execute(
                        "INSERT INTO blocks (source, boot_id, begin_ns, end_ns, begin_wall_ns,"
                        " end_wall_ns, samples, data) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                        (block.source, self._boot_id, *times, block.count, block.data),
                    )
                self._blocks.popleft()
        except (OSError, sqlite3.Error, UserError) as error:
            self._note(error)
        else:
            if self.problem is not None:
                _LOG.info("the store writes again")
            self.problem = None
            self._is_suspect = False

    def _ready(self) -> sqlite3.Connection:
        """Return the connection; open the file again if it is another one, or none.

        SQLite would go on writing to a file that was removed.
        """
        if self._writer is not None:
            try:
                inode = self.path.stat().st_ino
            except FileNotFoundError:
                inode = None
            if inode == self._inode:
                return self._writer
            what = "removed" if inode is None else "replaced"
            self.note = f"{self.path} was {what} while the daemon ran, and opened again"
            _LOG.error("%s", self.note)
            self._close()
        return self._open(self._lock_seconds)

    def _close(self) -> None:
        self._writer = None
        self._opened.close()

    def _note(self, error: Exception) -> None:
        self.write_errors += 1
        problem = _reason(error)
        if problem != self.problem:
            _LOG.error("the store does not write: %s", problem)
        self.problem = problem
        if self._is_daemon and self._writer is not None and type(error) is sqlite3.DatabaseError:
            # After an error of the disk, a connection may take a whole file for a damaged one. A
            # file that a second connection finds damaged too is put aside.
            self._close()
            if self._is_suspect:
                with contextlib.suppress(OSError):
                    self._put_aside(error)
            self._is_suspect = not self._is_suspect

    def prune(self, now_wall_ns: int, samples_ns: int, runs_ns: int) -> None:
        """Delete data beyond its retention; a wall clock that can't be right deletes nothing.

        Blocks with an impossible wall time are deleted after one retention's worth of newer blocks.
        The latest hundred thousand runs with such a time stay.
        """
        with self._lock:
            if self._writer is None:
                return
            try:
                with self._writer:
                    trusted = _prune(self._writer, now_wall_ns, samples_ns, runs_ns)
            except sqlite3.Error as error:
                self._note(error)
                return
        if trusted and not self._is_clock_trusted:
            _LOG.warning("the wall clock is trusted again: retention goes by age")
        elif self._is_clock_trusted and not trusted:
            _LOG.warning("the wall clock may be wrong: nothing is deleted for its age")
        self._is_clock_trusted = trusted

    def limit(self, most_bytes: int) -> None:
        """Delete the oldest telemetry, then the oldest runs, until the data fits a size.

        Freed pages stay in the file and are used again. A call deletes a bounded number of rows.
        """
        with self._lock:
            if self._writer is None:
                return
            try:
                with self._writer:
                    _limit(self._writer, most_bytes)
            except sqlite3.Error as error:
                self._note(error)

    def close(self) -> None:
        """Write the waiting data and close; log what cannot be written even now."""
        self.flush()
        with self._lock:
            if self._pending or self._blocks:
                counts = (len(self._pending), len(self._blocks))
                _LOG.error("%d run(s) and %d block(s) of samples could not be written", *counts)
            self._close()


def _recover(writer: sqlite3.Connection) -> None:
    """Close the runs that were in flight when an earlier daemon died."""
    with writer:
        rows = writer.execute("SELECT run_id FROM runs WHERE in_flight").fetchall()
        writer.execute("UPDATE runs SET in_flight = 0 WHERE in_flight")
    for row in rows:
        _LOG.warning("run %s was in flight when the daemon died: closed as failed", *row)


def _prune(writer: sqlite3.Connection, now_ns: int, samples_ns: int, runs_ns: int) -> bool:
    """Delete data beyond its retention, and return whether the clock is trusted."""
    execute = writer.execute
    trusted = is_trusted(writer, now_ns)
    # Without a trusted clock, the time of every block counts as wrong.
    latest_ns = now_ns + _DAY_NS if trusted else 0
    execute(
        "DELETE FROM blocks WHERE (end_wall_ns < ? OR end_wall_ns > ?)"
        " AND id <= (SELECT max(id) FROM blocks) - ?",
        (_FIRST_WALL_NS, latest_ns, samples_ns // _BLOCK_NS + 1),
    )
    execute(
        "DELETE FROM runs WHERE run_id IN (SELECT run_id FROM runs WHERE started_wall_ns < ?"
        " AND NOT in_flight ORDER BY started_wall_ns DESC LIMIT -1 OFFSET ?)",
        (_FIRST_WALL_NS, _UNDATED_RUNS),
    )
    if trusted:
        execute(
            "DELETE FROM blocks WHERE end_wall_ns >= ? AND end_wall_ns < ?",
            (_FIRST_WALL_NS, now_ns - samples_ns),
        )
        execute(
            "DELETE FROM runs WHERE started_wall_ns >= ? AND started_wall_ns < ? AND NOT in_flight",
            (_FIRST_WALL_NS, now_ns - runs_ns),
        )
    return trusted


def _limit(writer: sqlite3.Connection, most_bytes: int) -> None:
    def number(pragma: str) -> int:
        return int(writer.execute(f"PRAGMA {pragma}").fetchone()[0])

    for _ in range(_LIMIT_ROUNDS):
        if (number("page_count") - number("freelist_count")) * number("page_size") <= most_bytes:
            return
        # By the order of arrival, since a wall clock may be wrong.
        deleted = writer.execute(
            "DELETE FROM blocks WHERE id IN (SELECT id FROM blocks ORDER BY id LIMIT ?)",
            (_LIMIT_ROWS,),
        ).rowcount
        if not deleted:
            writer.execute(
                "DELETE FROM runs WHERE run_id IN (SELECT run_id FROM runs WHERE NOT in_flight"
                " ORDER BY started_wall_ns, run_id LIMIT ?)",
                (_LIMIT_ROWS,),
            )
