"""Faults of the run store: damaged while it is open and before a start, and full disks.

What a cut destroyed is judged by the bytes that are left, and not by the code under test: a run is
readable if all parts of its record are still in the database or in its log.
"""

import contextlib
import os
import random
import re
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from .daemon import Daemon
from .kinds import RECOVERY_SECONDS, Act, Kind, loses_nothing, nothing, pause, runs_again

Damage = Callable[[Path, random.Random], object]
_PAGE = 4096
# A record is in two pages or more. A shorter part of it may be anywhere by chance.
_LEAST_PART = 300
# A run that is in flight has a record too, which begins like that of its end up to here.
_END = re.compile(rb'"ended_ns":\d+')
# From the end of a run's transaction to the line of the log that reports it.
_TELLING_SECONDS = 2.0
_COPIES = 5
_SAID = re.compile(r"store was damaged|log of the store|while the daemon ran|cannot be read")


def log_of(database: Path) -> Path:
    """Return the write-ahead log of a database."""
    return database.with_name(f"{database.name}-wal")


def cut(share: float | None = None, size: int = 0, *, is_log: bool = False) -> Damage:
    """Return what cuts a file to a share of its size, or to a size."""

    def act(database: Path, _: random.Random) -> None:
        path = log_of(database) if is_log else database
        whole = path.stat().st_size
        os.truncate(path, min(size, whole) if share is None else int(share * whole))

    return act


def flip(count: int, first: int = 0, last: int | None = None, *, is_log: bool = False) -> Damage:
    """Return what changes single bits of a range of a file."""

    def act(database: Path, chance: random.Random) -> None:
        path = log_of(database) if is_log else database
        end = min(last or path.stat().st_size, path.stat().st_size)
        with path.open("r+b") as file:
            for _ in range(count if end > first else 0):
                at = chance.randrange(first, end)
                file.seek(at)
                byte = file.read(1)[0]
                file.seek(at)
                file.write(bytes([byte ^ 1 << chance.randrange(8)]))

    return act


def remove(*suffixes: str) -> Damage:
    """Return what removes the database or files beside it."""

    def act(database: Path, _: random.Random) -> None:
        for suffix in suffixes:
            database.with_name(f"{database.name}{suffix}").unlink(missing_ok=True)

    return act


def spoil_row(column: str, value: str) -> Damage:
    """Return what makes the newest run unreadable by an SQL expression."""

    def act(database: Path, _: random.Random) -> None:
        with contextlib.closing(sqlite3.connect(database, timeout=5)) as other, other:
            other.execute(
                f"UPDATE runs SET {column} = {value} WHERE run_id = (SELECT run_id FROM runs"
                " WHERE NOT in_flight ORDER BY started_wall_ns DESC LIMIT 1)"
            )

    return act


def replace_by_copy(database: Path, _: random.Random) -> None:
    """Put a copy of the database in its place, as a careless backup does."""
    copy = database.with_name("copy")
    shutil.copy(database, copy)
    copy.replace(database)


def replace_by_empty(database: Path, _: random.Random) -> None:
    """Put an empty file in the place of the database."""
    empty = database.with_name("copy")
    empty.write_bytes(b"")
    empty.replace(database)


def leave_rescue(database: Path, chance: random.Random) -> None:
    """Cut the database beside the useless remains of an earlier rescue."""
    database.with_name(f"{database.name}.rescued").write_bytes(chance.randbytes(5000))
    cut(0.5)(database, chance)


# What each destroys: "nothing"; "pages", so that the bytes that are left decide; or "bytes", which
# may be those that lead to a row, so that only their number is checked.
DAMAGES: Mapping[str, tuple[Damage, str]] = {
    "cut to half": (cut(0.5), "pages"),
    "cut to 3 pages": (cut(size=3 * _PAGE), "pages"),
    "cut to nothing": (cut(size=0), "pages"),
    "cut to an odd size": (cut(0.71), "pages"),
    "cut by a byte": (cut(0.999999), "pages"),
    "30 bits flipped": (flip(30), "bytes"),
    "first page flipped": (flip(30, last=100), "bytes"),
    "second page flipped": (flip(300, _PAGE, 2 * _PAGE), "bytes"),
    "log cut to half": (cut(0.5, is_log=True), "pages"),
    "log cut to nothing": (cut(size=0, is_log=True), "pages"),
    "30 bits of the log flipped": (flip(30, is_log=True), "bytes"),
    "header of the log flipped": (flip(8, 0, 32, is_log=True), "nothing"),
    "row not UTF-8": (spoil_row("report", "CAST(x'7bff' AS TEXT)"), "bytes"),
    "row not JSON": (spoil_row("report", "substr(report, 2)"), "bytes"),
    "row not a report": (spoil_row("report", "'{}'"), "bytes"),
    "row with another id": (spoil_row("run_id", "'x' || hex(randomblob(4))"), "bytes"),
}
OPEN_ONLY: Mapping[str, tuple[Damage, str]] = {
    "removed": (remove(""), "nothing"),
    "log removed": (remove("-wal"), "nothing"),
    "all removed": (remove("", "-wal", "-shm"), "nothing"),
    "replaced by a copy": (replace_by_copy, "nothing"),
    "replaced by an empty file": (replace_by_empty, "nothing"),
    "cut beside a useless rescue": (leave_rescue, "pages"),
}
START_ONLY: Mapping[str, tuple[Damage, str]] = {
    "index of the log removed": (remove("-shm"), "nothing"),
    "index of the log flipped": (
        lambda database, _: database.with_name(f"{database.name}-shm").write_bytes(os.urandom(96)),
        "nothing",
    ),
}


def reports(database: Path) -> dict[str, bytes]:
    """Return the record of each finished run of a database that is open elsewhere.

    Its two files are copied one after the other, and a write between makes a useless copy.
    """
    for _ in range(_COPIES):
        with contextlib.suppress(sqlite3.DatabaseError):
            return _copied_reports(database)
    return _copied_reports(database)


def _copied_reports(database: Path) -> dict[str, bytes]:
    """Return the record of each finished run of a copy."""
    with tempfile.TemporaryDirectory(prefix="tegrascope-faults-") as name:
        for path in (database, log_of(database)):
            with contextlib.suppress(FileNotFoundError):
                shutil.copy(path, name)
        with contextlib.closing(sqlite3.connect(Path(name) / database.name)) as copy:
            copy.text_factory = bytes
            rows = copy.execute("SELECT run_id, report FROM runs WHERE NOT in_flight").fetchall()
    return {run_id.decode(errors="replace"): report for run_id, report in rows}


def readable(database: Path, records: Mapping[str, bytes]) -> set[str]:
    """Return the runs whose record is still in the files as a whole."""
    left = b""
    for path in (database, log_of(database)):
        with contextlib.suppress(FileNotFoundError):
            left += path.read_bytes()
    return {run_id for run_id, record in records.items() if _is_whole(record, left)}


def _is_whole(record: bytes, left: bytes) -> bool:
    """Return whether a record can be put together from long parts of what is left."""
    end = _END.search(record)
    if end is not None and record[: end.end()] not in left:
        return False
    while record and record not in left:
        low, high = 0, len(record)  # the longest part is at least ``low``, and below ``high``
        while high - low > 1:
            middle = (low + high) // 2
            if record[:middle] in left:
                low = middle
            else:
                high = middle
        if low < _LEAST_PART:
            return False
        record = record[low:]
    return True


def told_meanwhile(daemon: Daemon, first: int) -> set[str]:
    """Return the runs that were reported while the files were copied and damaged.

    The damage may have met them: they may be missing, but not without a word.

    Args:
        first: Number of runs that were reported before the copy.
    """
    time.sleep(_TELLING_SECONDS)
    return set(daemon.told[first:])


def wait_for_word(daemon: Daemon, told: set[str]) -> None:
    """Wait until nothing is missing, or the daemon has said that something is.

    It looks at its file every five seconds, and a busy machine makes it late.
    """
    pause(daemon, 7)
    daemon.wait(
        lambda: not told - daemon.stored() - daemon.destroyed or _SAID.search(daemon.get("readyz")),
        RECOVERY_SECONDS,
    )


def judge(
    daemon: Daemon, told: set[str], kept: set[str], counted: float, *, is_exact: bool
) -> str | None:
    """Return what is wrong with the runs after damage, and note those that are gone.

    Args:
        told: Runs that were reported as stored before the damage.
        kept: Those of them that it left readable.
        counted: Runs that the daemon reports as lost or unreadable.
        is_exact: Whether it can know the number; otherwise it says "at least", or that the log was
            damaged.
    """
    missing = told - daemon.stored() - daemon.destroyed
    daemon.destroyed |= missing
    if wrong := missing & kept:
        daemon.lost += len(wrong)
        return f"{len(wrong)} runs are missing that were readable, such as {min(wrong)}"
    if missing and not _SAID.search(daemon.get("readyz")):
        return f"{len(missing)} runs are missing, and /readyz does not report it"
    if is_exact and len(missing) > counted:
        return f"{len(missing)} runs are missing, and {counted:.0f} are counted"
    return None


def _counted(daemon: Daemon) -> float:
    lost = daemon.metric("tegrascope_store_runs_lost_total")
    return lost + daemon.metric("tegrascope_store_runs_unreadable")


def while_open(what: str, damage: Damage, destroys: str) -> Act:
    """Return what damages the store of a running daemon, and judges what became of its runs."""

    def act(daemon: Daemon, chance: random.Random) -> str | None:
        if chance.random() < 0.5:  # else most runs are in the log
            with (
                contextlib.suppress(sqlite3.Error),
                contextlib.closing(sqlite3.connect(daemon.database, timeout=5)) as other,
            ):
                other.execute("PRAGMA wal_checkpoint(PASSIVE)")
            daemon.wait_for_runs(chance.randrange(3))
        before = _counted(daemon)
        first = len(daemon.told)
        records = reports(daemon.database)
        told = set(daemon.told[:first]) & {*records, *daemon.destroyed}
        damage(daemon.database, chance)
        kept = told if destroys == "nothing" else set()
        if destroys == "pages":
            kept = told & readable(daemon.database, records)
        told |= told_meanwhile(daemon, first)
        wait_for_word(daemon, told)
        daemon.recovery()
        daemon.wait_for_runs(1)
        is_exact = "log" not in what
        if told - daemon.stored() - daemon.destroyed and not _SAID.search(daemon.get("readyz")):
            # A page may hide runs without an error, until the next count: hourly, or at a start.
            daemon.end()
            daemon.start()
            daemon.recovery()
            before = 0.0
            is_exact = False  # what was there before a start is known only from what is left
        daemon.stored()  # unreadable rows are counted when they are read
        pause(daemon, 2)
        counted = _counted(daemon) - before
        wrong = judge(daemon, told, kept, counted, is_exact=is_exact)
        if wrong is None and chance.random() < 0.5:
            # What the file has now must also be there after a restart.
            daemon.kill() if chance.random() < 0.5 else daemon.end()
            daemon.start()
        return wrong

    return act


def before_start(damage: Damage, destroys: str) -> Act:
    """Return what kills the daemon, damages its store, and starts it again."""

    def act(daemon: Daemon, chance: random.Random) -> str | None:
        daemon.wait_for_runs(chance.randrange(3))
        daemon.kill()
        time.sleep(0.1)  # its last lines
        told = set(daemon.told)
        records = reports(daemon.database)
        told &= {*records, *daemon.destroyed}
        damage(daemon.database, chance)
        kept = told if destroys == "nothing" else set()
        if destroys == "pages":
            kept = told & readable(daemon.database, records)
        daemon.start()
        daemon.recovery()
        daemon.stored()  # unreadable rows are counted when they are read
        wait_for_word(daemon, told)
        counted = _counted(daemon)
        # What was in a file before a start is known only from what is left of it.
        return judge(daemon, told, kept, counted, is_exact=False)

    return act


def fill(daemon: Daemon) -> Path:
    """Fill the disk of a daemon in a mount namespace, and return the file that does it."""
    filler = Path(f"/proc/{daemon.process.pid}/root{daemon.state}/filler")
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
        while file.write(bytes(4096)):
            pass
    return filler


def fill_disk(daemon: Daemon, _: random.Random) -> None:
    """Let the disk be full during a few runs."""
    filler = fill(daemon)
    daemon.wait_for_runs(3)
    filler.unlink()


def cut_on_full_disk(daemon: Daemon, chance: random.Random) -> str | None:
    """Cut the store while there is no room for the runs that are saved from it."""
    database = Path(f"/proc/{daemon.process.pid}/root{daemon.database}")
    daemon.wait_for_runs(3)
    first = len(daemon.told)
    records = reports(database)
    filler = fill(daemon)
    cut(0.5)(database, chance)
    told = set(daemon.told[:first])
    kept = told & readable(database, records)
    told |= told_meanwhile(daemon, first)
    daemon.wait_for_runs(2)
    filler.unlink()
    daemon.recovery()
    return judge(daemon, told, kept, _counted(daemon), is_exact=True)


_FULL = "mount -t tmpfs -o size=256k none . && cd . && head -c 1m /dev/zero >x"
KINDS = (
    *(
        Kind(f"open store: {what}", while_open(what, *how), (loses_nothing, runs_again))
        for what, how in {**DAMAGES, **OPEN_ONLY}.items()
    ),
    *(
        Kind(f"start: store {what}", before_start(*how), (loses_nothing, runs_again))
        for what, how in {**DAMAGES, **START_ONLY}.items()
    ),
    Kind(
        "start: garbage as store", nothing, store="yes no database | head -c 20000 >tegrascope.db"
    ),
    Kind("start: empty file as store", nothing, store=": >tegrascope.db"),
    Kind("start: directory as store", nothing, store="mkdir tegrascope.db", stays_unready=True),
    Kind("start: full store", nothing, needs_root=True, store=_FULL, stays_unready=True),
    Kind(
        "start: read-only store",
        nothing,
        needs_root=True,
        store="mount -t tmpfs -o ro,size=1m none .",
        stays_unready=True,
    ),
    Kind(
        "disk full, then free",
        fill_disk,
        (loses_nothing,),
        needs_root=True,
        store="mount -t tmpfs -o size=8m none .",
    ),
    Kind(
        "disk full, and the store cut",
        cut_on_full_disk,
        (loses_nothing,),
        needs_root=True,
        store="mount -t tmpfs -o size=8m none .",
    ),
)
