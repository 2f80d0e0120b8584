"""One SQLite database: run records, and telemetry as the sealed blocks of the timeline.

WAL with ``synchronous=FULL``: acknowledged data survives a power cut. A run is written as
``failed`` when it begins and overwritten when it ends, so its record is correct even if the process
dies. A daemon works without the file as long as that cannot be opened or written.

SQLite does not notice that its file was cut or removed: writes go to the log and succeed. So a
daemon compares the sizes of both files before each write and every few seconds. A damaged file is
replaced in this order:

1. ``salvage`` writes the runs of all readable pages into a file beside it.
2. The database is closed. Not earlier, since closing writes the log into it and deletes the log.
3. It is renamed, and a new one is made.
4. The saved runs are moved into the new one.

A crash at any point leaves the damaged file, the saved runs, or both, and the next start continues
there. Nothing is held in memory for this: the process has both files open, and can read them even
after they were removed.
"""

import contextlib
import json
import logging
import os
import sqlite3
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any, NamedTuple

from ...collectors.paths import exists
from ...parsers.errors import UserError, file_error
from ..measure.report import RunReport
from ..measure.timeline import SealedBlock
from .lock import REMEDY, InUseError, PlantedLinkError, take_lock
from .retention import limit, prune
from .salvage import Files, Pages, Saved, lost_commits, missing_frames, save_runs

_LOG = logging.getLogger(__name__)

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
# Version 2 has the same tables; its blocks have another form.
_SAMPLES_OF_ANOTHER_FORM = """
    CREATE TABLE IF NOT EXISTS aside.blocks AS SELECT * FROM main.blocks WHERE 0;
    INSERT INTO aside.blocks SELECT * FROM main.blocks;
    DELETE FROM main.blocks;
    """
_SCHEMA_VERSION = 2


# Errors of the place that a person named. A full or broken disk may work again later.
_WRONG_PLACE = (
    PermissionError,
    NotADirectoryError,
    FileExistsError,
    InUseError,
    PlantedLinkError,
)


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        return file_error(error).message
    return str(error)


def _log_bytes(path: Path) -> int:
    try:
        return path.with_name(f"{path.name}-wal").stat().st_size
    except OSError:
        return 0


class _Damage(NamedTuple):
    """Why a file cannot be used any longer, and whether it is renamed."""

    reason: str
    is_put_aside: bool = True


class Store:
    """The database of one daemon; every method may be called from any thread.

    Example::

        store = Store(state_dir / "tegrascope.db", boot_id(), is_daemon=True)
        store.begin(report)   # failed, in case the daemon ends during the run
        store.finish(report)  # False if the disk refuses it: flush() tries again
        store.flush()         # every few seconds
        store.close()

    Attributes:
        runs_lost: Runs that were dropped, the oldest first, because too many waited to be written,
            and those that a damaged file had and that could not be read.
        write_errors: Failed writes since the start, and damage that a reader found.
        damages: How often the file was found damaged, or was removed, since the start.
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
        self.damages = 0
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
        self._is_recovered = self._is_closed = False
        # Before any connection, since to close the shared index would drop SQLite's locks on it.
        self._is_log_short = is_daemon and missing_frames(path, _log_bytes(path))
        self._suspicion: str | None = None  # what a write or a reader found
        self._running: dict[str, tuple[object, ...]] = {}  # rows of runs in flight
        self._run_count = 0  # in the file
        self._files: Files | None = None  # only if this is a daemon
        self._sizes = (0, 0)
        self._writer: sqlite3.Connection | None = None
        self._opened = contextlib.ExitStack()
        try:
            self._open(timeout_seconds=5)
        except (OSError, sqlite3.Error, UserError) as error:
            if not is_daemon or isinstance(error, _WRONG_PLACE):
                if isinstance(error, UserError):
                    raise
                raise UserError(f"{path}: {_reason(error)}", REMEDY) from None
            self._note(error)

    def _open(self, timeout_seconds: float) -> sqlite3.Connection:
        """Open or create the file; put aside a damaged one if this is a daemon."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as stack:
            files: Files | None = None
            if self._is_daemon:
                stack.enter_context(take_lock(self.path))
                files = Files(self.path)
                stack.callback(files.close)
                damage = self._damage_before_opening(files)
                if damage is not None:
                    self._replace(damage, files)
                    files.reopen()
            try:
                writer = self._connect(timeout_seconds, files)
            except sqlite3.DatabaseError as error:
                if files is None or type(error) is not sqlite3.DatabaseError:
                    raise
                self._replace(_Damage(str(error)), files)
                files.reopen()
                writer = self._connect(timeout_seconds, files)
            stack.callback(writer.close)
            if files is not None:
                self._take_rescued(writer)
                self._count(writer)
                self._sizes = files.sizes
            self._inode = self.path.stat().st_ino
            self._opened = stack.pop_all()
        self._files = files
        self._writer = writer
        return writer

    def _damage_before_opening(self, files: Files) -> _Damage | None:
        """Return damage that SQLite would not report, or that it would make worse."""
        database_bytes, log_bytes = files.sizes
        if files.database is None:
            return None
        if database_bytes == 0 and log_bytes == 0:
            return None  # a new one
        if database_bytes == 0:
            # SQLite takes it for a new database, and deletes its log.
            return _Damage("it is empty, but it has a log")
        if Pages(files).is_cut():
            return _Damage("the file was cut")
        return None

    def _connect(self, timeout_seconds: float, files: Files | None) -> sqlite3.Connection:
        writer = sqlite3.connect(self.path, check_same_thread=False, timeout=timeout_seconds)
        try:
            writer.execute("PRAGMA journal_mode=WAL")
            writer.execute("PRAGMA synchronous=FULL")
            writer.execute("PRAGMA cache_size=-256")
            self._migrate(writer)
            if files is not None:
                files.refresh()
                self._check_log(writer, files)
                self._count(writer)
            writer.execute(f"PRAGMA busy_timeout={round(1000 * self._lock_seconds)}")
            if self._is_daemon and not self._is_recovered:
                _recover(writer)
                self._is_recovered = True
        except BaseException:
            writer.close()
            raise
        return writer

    def _check_log(self, writer: sqlite3.Connection, files: Files) -> None:
        """Save the runs behind the damage of a log, where SQLite stops reading without an error."""
        _, frames_read, _ = writer.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        is_damaged = self._is_log_short
        if frames_read >= 0:
            with contextlib.suppress(FileNotFoundError):
                lost = lost_commits(self._beside("-wal"), frames_read, Pages(files).size)
                is_damaged = is_damaged or lost > 1
        if not is_damaged:
            return
        self._is_log_short = False
        saved = self._save(files)
        self._report_damage(f"the log of the store was damaged: {_words(saved)}", saved.lost)
        # Without this, the next start would find the same damage again.
        writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()

    def _replace(self, damage: _Damage, files: Files) -> None:
        """Save the runs of a file, close it, and rename it so that it can be examined."""
        saved = self._save(files)
        # A run in flight is in the file too, unless its begin still waits to be written.
        in_flight_in_file = len(self._running.keys() - self._pending.keys())
        # Rows without a readable id are counted by the number of runs before the damage.
        lost = max(saved.lost, self._run_count - saved.runs - in_flight_in_file)
        is_known = self._writer is not None
        self._close()
        self._suspicion = None
        # Their begin was in the file; their end is written in any case.
        self._pending = self._running | self._pending
        if damage.is_put_aside:
            aside = self._put_aside()
            text = f"the store was damaged ({damage.reason}): it was renamed to {aside}, "
            text += "and begun anew"
        else:
            text = f"{self.path} was {damage.reason} while the daemon ran, and opened again"
        if saved.runs or lost > 0:
            text += f": {_words(Saved(saved.runs, lost), is_known=is_known)}"
        self._report_damage(text, lost)

    def _save(self, files: Files) -> Saved:
        """Write the runs of all readable pages into the rescue file."""
        running = frozenset(self._running)
        try:
            return save_runs(files, self._rescue, running)
        except sqlite3.DatabaseError as error:
            if type(error) is not sqlite3.DatabaseError:
                raise  # an error of the disk: the damaged file stays until its runs are saved
            # An earlier rescue was damaged itself.
            self._rescue.replace(self._beside(".rescued.damaged"))
            return save_runs(files, self._rescue, running)

    def _report_damage(self, text: str, lost: int) -> None:
        self.note = text
        self.damages += 1
        self.runs_lost += max(lost, 0)
        _LOG.error("%s", text)

    def _put_aside(self) -> Path:
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        aside = self.path.with_name(f"{self.path.name}.damaged-{stamp}")
        for suffix in ("-wal", "-shm", ""):  # a log of the old file must not meet the new one
            with contextlib.suppress(FileNotFoundError):
                self._beside(suffix).rename(f"{aside}{suffix}")
        return aside

    def _take_rescued(self, writer: sqlite3.Connection) -> None:
        """Move the runs that were saved from a damaged file into the database."""
        if not exists(self._rescue):
            return
        if not _is_rescue(self._rescue):
            _LOG.error("%s: it has no runs that can be read", self._rescue)
            self._rescue.replace(self._beside(".rescued.damaged"))
            return
        writer.execute("ATTACH ? AS rescue", (str(self._rescue),))
        try:
            with writer:
                # The end of a run replaces its begin. Beside a damaged log, most rows are there.
                writer.execute(
                    "INSERT OR REPLACE INTO main.runs SELECT * FROM rescue.runs AS saved"
                    " WHERE NOT EXISTS (SELECT 1 FROM main.runs AS stored WHERE"
                    " stored.run_id = saved.run_id AND stored.report = saved.report)"
                )
        finally:
            writer.execute("DETACH rescue")
        self._rescue.unlink()

    def _beside(self, suffix: str) -> Path:
        return self.path.with_name(f"{self.path.name}{suffix}")

    @property
    def _rescue(self) -> Path:
        return self._beside(".rescued")

    def _migrate(self, writer: sqlite3.Connection) -> None:
        (version,) = writer.execute("PRAGMA user_version").fetchone()
        if version == 0 and writer.execute("SELECT 1 FROM sqlite_master").fetchone():
            raise sqlite3.DatabaseError("it has tables of an unknown version")
        if version > _SCHEMA_VERSION:
            raise UserError(
                f"{self.path}: written by a newer tegrascope (schema {version})",
                "upgrade tegrascope, or name another --state-dir",
            )
        if version == 0:
            writer.executescript(f"BEGIN; {SCHEMA} PRAGMA user_version={_SCHEMA_VERSION}; COMMIT;")
        elif version < _SCHEMA_VERSION:
            self._put_samples_aside(writer)

    def _put_samples_aside(self, writer: sqlite3.Connection) -> None:
        """Move samples that an older release wrote into a file of their own; the runs stay."""
        version = f"PRAGMA main.user_version={_SCHEMA_VERSION};"
        (count,) = writer.execute("SELECT count(*) FROM blocks").fetchone()
        if not count:
            writer.execute(version)
            return
        aside = self._beside(".samples-1")
        writer.execute("ATTACH ? AS aside", (str(aside),))
        try:
            # A crash before the end leaves the old version, and the next start moves them again.
            writer.executescript(f"BEGIN; {_SAMPLES_OF_ANOTHER_FORM} {version} COMMIT;")
        except BaseException:
            if writer.in_transaction:
                writer.execute("ROLLBACK")
            raise
        finally:
            writer.execute("DETACH aside")
        _LOG.warning(
            "%s: %d blocks of samples of an older release were moved to %s; the runs stay",
            *(self.path, count, aside),
        )

    def begin(self, report: RunReport) -> None:
        """Commit the provisional record of a run that begins; ``finish`` replaces it.

        It stays the record of the run if nothing follows.
        """
        self._write_run(report, in_flight=True)

    def finish(self, report: RunReport) -> bool:
        """Commit a run that ended and return True; keep it and try again if the disk refuses."""
        return self._write_run(report, in_flight=False)

    def waiting(self) -> list[dict[str, Any]]:
        """Return the finished runs that are in memory only, as ``History`` does; newest first."""
        with self._lock:
            rows = [row for row in self._pending.values() if not row[4]]
        return [json.loads(str(row[-1])) for row in reversed(rows)]

    def suspect(self, error: Exception) -> None:
        """Note that a reader found the file damaged; ``flush`` checks it."""
        # Without the lock, since a writer may wait for the disk.
        if self._is_daemon and self._suspicion is None:
            self._note(error)

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
            self._running.pop(report.run_id, None)
            if in_flight:
                self._running[report.run_id] = row
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
        """Check that the file is whole, open it if necessary, and commit the waiting data."""
        with self._lock:
            if self._is_daemon or self._pending or self._blocks or self._writer is None:
                self._flush()

    def _flush(self) -> None:
        if self._is_closed:
            return  # a thread that comes late would open the file again
        try:
            writer = self._ready()
            self._write_pending_runs(writer)
            self._write_blocks(writer)
        except (OSError, sqlite3.Error, UserError) as error:
            self._note(error)
        else:
            if self.problem is not None:
                _LOG.info("the store writes again")
            self.problem = None
            if self._files is not None:
                self._note_growth(self._files)

    def _write_pending_runs(self, writer: sqlite3.Connection) -> None:
        """Commit each waiting run; one stays in the queue until its commit has succeeded."""
        while self._pending:
            run_id, row = next(iter(self._pending.items()))
            stored = writer.execute("SELECT 1 FROM runs WHERE run_id = ?", (run_id,)).fetchone()
            with writer:
                writer.execute("INSERT OR REPLACE INTO runs VALUES (?, ?, ?, ?, ?, ?, ?)", row)
            if stored is None:
                self._run_count += 1
            del self._pending[run_id]

    def _write_blocks(self, writer: sqlite3.Connection) -> None:
        """Commit each waiting block of samples; it stays in the queue likewise."""
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

    def _ready(self) -> sqlite3.Connection:
        """Return the connection; if the file is damaged, replace it first."""
        if self._writer is not None:
            damage = self._damage_while_open(self._writer)
            if damage is None and self._suspicion is None:
                return self._writer
            if damage is not None and self._files is not None:
                self._replace(damage, self._files)
            elif damage is not None:
                self._close()
                self._report_damage(f"{self.path} was {damage.reason}, and opened again", 0)
            else:
                self._close()  # only a suspicion: a new connection found the file whole
            self._suspicion = None
        return self._open(self._lock_seconds)

    def _damage_while_open(self, writer: sqlite3.Connection) -> _Damage | None:
        """Return why the open file cannot be used any longer, or None."""
        try:
            now = self.path.stat()
        except FileNotFoundError:
            return _Damage("removed", is_put_aside=False)
        if now.st_ino != self._inode:
            return _Damage("replaced", is_put_aside=False)
        files = self._files
        if files is None:
            return None
        if files.log is not None and os.fstat(files.log.fileno()).st_nlink == 0:
            return _Damage("its log was removed")
        # Neither file shrinks by itself, but a person may have used VACUUM or emptied the log.
        database_bytes, log_bytes = files.sizes
        if database_bytes < self._sizes[0] and _needs_more(writer, database_bytes):
            return _Damage("the file was cut")
        if log_bytes < self._sizes[1]:
            # While the shared index still knows each page, the log can be emptied without loss.
            try:
                is_busy, _, _ = writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            except sqlite3.DatabaseError:
                return _Damage("its log was cut")
            if is_busy:
                raise sqlite3.OperationalError("its log was cut, and a reader keeps it")
            self._suspicion = "its log was cut"
            log_bytes = files.sizes[1]
        self._sizes = database_bytes, log_bytes
        if self._suspicion is not None:
            return self._examine()
        return None

    def _note_growth(self, files: Files) -> None:
        """Note the growth by a write; the next check finds a file that shrank meanwhile."""
        database_bytes, log_bytes = files.sizes
        self._sizes = max(self._sizes[0], database_bytes), max(self._sizes[1], log_bytes)

    def _examine(self) -> _Damage | None:
        """Return damage that a new connection finds in the whole file.

        After an error of the disk, an old connection may take a whole file for a damaged one.
        """
        uri = f"{self.path.absolute().as_uri()}?mode=ro"
        with contextlib.closing(
            sqlite3.connect(uri, uri=True, timeout=self._lock_seconds)
        ) as other:
            try:
                (result,) = other.execute("PRAGMA integrity_check(1)").fetchone()
            except sqlite3.DatabaseError as error:
                if type(error) is not sqlite3.DatabaseError:
                    raise  # an error of the disk, which may work again later
                result = str(error)
        if result == "ok":
            return None
        # The first line of several names the database only.
        return _Damage(result.splitlines()[-1])

    def _close(self) -> None:
        self._writer = self._files = None
        self._opened.close()

    def _note(self, error: Exception) -> None:
        self.write_errors += 1
        problem = _reason(error)
        if problem != self.problem:
            _LOG.error("the store does not write: %s", problem)
        self.problem = problem
        if self._is_daemon and type(error) is sqlite3.DatabaseError:
            self._suspicion = problem

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
                    trusted = prune(self._writer, now_wall_ns, samples_ns, runs_ns)
                self._count_anew()
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
                changes = self._writer.total_changes
                with self._writer:
                    limit(self._writer, most_bytes)
                if self._writer.total_changes > changes:
                    self._count_anew()
            except sqlite3.Error as error:
                self._note(error)

    def _count(self, writer: sqlite3.Connection) -> None:
        """Count the runs in the file, so that those that damage destroys can be counted.

        Raises:
            sqlite3.DatabaseError: The table and its index do not agree. A damaged page can hide
                runs without another error.
        """
        (runs,) = writer.execute("SELECT count(*) FROM runs NOT INDEXED").fetchone()
        (in_index,) = writer.execute(
            "SELECT count(started_wall_ns) FROM runs INDEXED BY runs_by_start"
        ).fetchone()
        if runs != in_index:
            self._run_count = min(runs, in_index)
            raise sqlite3.DatabaseError("its table of runs and their index differ")
        self._run_count = runs

    def _count_anew(self) -> None:
        """Count by a new connection: the writer may have pages in memory that differ by now."""
        uri = f"{self.path.absolute().as_uri()}?mode=ro"
        with contextlib.closing(
            sqlite3.connect(uri, uri=True, timeout=self._lock_seconds)
        ) as other:
            self._count(other)

    def close(self) -> None:
        """Write the waiting data and close; log what cannot be written even now."""
        with self._lock:
            if self._is_closed:
                return
            if self._is_daemon or self._pending or self._blocks:
                self._flush()
            if self._pending or self._blocks:
                counts = (len(self._pending), len(self._blocks))
                _LOG.error("%d run(s) and %d block(s) of samples could not be written", *counts)
            self._close()
            self._is_closed = True


def _needs_more(writer: sqlite3.Connection, database_bytes: int) -> bool:
    """Return whether an open database has more pages than its file."""
    try:
        (count,) = writer.execute("PRAGMA page_count").fetchone()
        (size,) = writer.execute("PRAGMA page_size").fetchone()
    except sqlite3.DatabaseError as error:
        if type(error) is not sqlite3.DatabaseError:
            raise
        return True  # SQLite itself sees it, if its log is empty
    return bool(database_bytes < count * size)


def _is_rescue(path: Path) -> bool:
    """Return whether a file has saved runs; a crash may have left it empty."""
    with contextlib.closing(sqlite3.connect(path)) as rescue:
        try:
            (result,) = rescue.execute("PRAGMA integrity_check(1)").fetchone()
            table = rescue.execute("SELECT 1 FROM sqlite_master WHERE name = 'runs'").fetchone()
        except sqlite3.DatabaseError as error:
            if type(error) is not sqlite3.DatabaseError:
                raise
            return False
    return result == "ok" and table is not None


def _words(saved: Saved, *, is_known: bool = False) -> str:
    """Return how many runs were saved and lost; at a start, the number before is not known."""
    text = f"{saved.runs} run(s) were read from its pages"
    if saved.lost <= 0:
        return text
    if is_known:
        return f"{text}, and {saved.lost} are lost"
    return f"{text}, and at least {saved.lost} are lost"


def _recover(writer: sqlite3.Connection) -> None:
    """Close the runs that were in flight when an earlier daemon died."""
    with writer:
        # As bytes, since that of a damaged row is perhaps not UTF-8.
        rows = writer.execute("SELECT CAST(run_id AS BLOB) FROM runs WHERE in_flight").fetchall()
        writer.execute("UPDATE runs SET in_flight = 0 WHERE in_flight")
    for (run_id,) in rows:
        name = run_id.decode("ascii", "backslashreplace")
        _LOG.warning("run %s was in flight when the daemon died: closed as failed", name)
