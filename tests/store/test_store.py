"""The run store: acknowledged data stays, runs in flight are closed, old data is deleted."""

import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tegrascope.daemon.measure.report import RunReport
from tegrascope.daemon.measure.timeline import SealedBlock
from tegrascope.daemon.store.history import History
from tegrascope.daemon.store.store import Store
from tegrascope.parsers.errors import UserError

S = 1_000_000_000
NOW = 1_767_225_600
FAR = 1 << 62


def report(run_id: str = "r1", **changes: object) -> RunReport:
    fields: dict[str, object] = {
        "run_id": run_id,
        "workload": "w",
        "backend": "onnxruntime",
        "device": "cpu",
        "outcome": "ok",
        "started_wall_ns": 10 * S,
        "started_ns": 1,
        "ended_ns": 2,
    }
    return RunReport.model_validate(fields | changes)


def block(end: int, wall: int = 0) -> SealedBlock:
    """Return a block that ended at a wall time, in seconds; they count from ``wall``."""
    return SealedBlock(
        "tegrastats", end - 1, end, (wall + end - 1) * S, (wall + end) * S, 2, b"data%d" % end
    )


@pytest.fixture
def store(tmp_path):
    made = Store(tmp_path / "runs.db")
    yield made
    made.close()


def test_finished_runs_come_back_newest_first(store):
    store.finish(report("old", started_wall_ns=1 * S))
    store.finish(report("new", started_wall_ns=2 * S, workload="other"))
    history = History(store.path)
    assert [run["run_id"] for run in history.runs()] == ["new", "old"]
    assert [run["run_id"] for run in history.runs(limit=1)] == ["new"]
    assert [run["run_id"] for run in history.runs(workload="w")] == ["old"]
    assert list(history.pick_runs("run_id", before_wall_ns=2 * S)) == ["old"]
    assert RunReport.model_validate(history.run("old")) == report("old", started_wall_ns=1 * S)


def test_runs_are_found_by_part_of_their_id(store):
    store.finish(report("aa-1"))
    store.finish(report("ab-2"))
    history = History(store.path)
    assert history.run("aa")["run_id"] == "aa-1"
    assert history.run("2")["run_id"] == "ab-2"
    assert history.run("a") is None
    assert history.run("") is None
    assert history.run("zz") is None


def test_run_in_flight_is_closed_at_the_next_start_of_a_daemon(tmp_path, caplog):
    path = tmp_path / "runs.db"
    first = Store(path)
    first.finish(report("done"))
    first.begin(report("flying", outcome="failed", reason="the daemon ended during the run"))
    assert [run["run_id"] for run in History(path).runs()] == ["done"]
    first.close()
    Store(path).close()
    assert [run["run_id"] for run in History(path).runs()] == ["done"]
    second = Store(path, is_daemon=True)
    (line,) = caplog.messages
    assert line == "run flying was in flight when the daemon died: closed as failed"
    runs = {run["run_id"]: run for run in History(path).runs()}
    assert runs["done"]["outcome"] == "ok"
    assert runs["flying"]["outcome"] == "failed"
    assert runs["flying"]["reason"] == "the daemon ended during the run"
    second.close()


def test_commits_are_in_the_log(store):
    with closing(sqlite3.connect(store.path)) as reader:
        assert reader.execute("PRAGMA journal_mode").fetchone() == ("wal",)


@contextmanager
def locked(store: Store) -> Iterator[None]:
    """Keep the database from being written."""
    with closing(sqlite3.connect(store.path)) as lock:
        lock.execute("BEGIN IMMEDIATE")
        yield
        lock.rollback()


def test_run_that_cannot_be_written_waits_and_is_counted(tmp_path):
    store = Store(tmp_path / "runs.db", lock_seconds=0.001)
    with locked(store):
        store.finish(report("late"))
        assert store.write_errors == 1
        assert "locked" in store.problem
        assert list(History(store.path).runs()) == []
    store.add_block(block(5))
    assert [run["run_id"] for run in History(store.path).runs()] == ["late"]
    assert store.problem is None
    store.close()


def test_oldest_waiting_runs_are_lost_beyond_the_limit(tmp_path, caplog):
    store = Store(tmp_path / "runs.db", most_pending=3, lock_seconds=0.001)
    with locked(store):
        for run_id in ("old-1", "old-2", "new-1", "new-2"):
            store.begin(report(run_id, outcome="failed"))
            store.finish(report(run_id))
    assert store.runs_lost == 1
    assert "run old-1 is lost" in caplog.text
    store.flush()
    runs = {run["run_id"]: run["outcome"] for run in History(store.path).runs()}
    assert runs == {"old-2": "ok", "new-1": "ok", "new-2": "ok"}
    store.close()


def test_blocks_are_found_by_wall_time_and_pruned(store):
    for end in (10, 20, 30):
        store.add_block(block(end, NOW))
    history = History(store.path)
    assert list(history.blocks((NOW + 15) * S, (NOW + 29) * S)) == [b"data20", b"data30"]
    store.finish(report("old", started_wall_ns=NOW * S))
    store.finish(report("new", started_wall_ns=(NOW + 9) * S))
    store.prune((NOW + 30) * S, 15 * S, 25 * S)
    assert list(history.blocks(0, FAR)) == [b"data20", b"data30"]
    assert [run["run_id"] for run in history.runs()] == ["new"]


def test_newer_schema_is_refused(tmp_path):
    path = tmp_path / "runs.db"
    database = sqlite3.connect(path)
    database.execute("PRAGMA user_version=99")
    database.close()
    with pytest.raises(UserError, match="newer tegrascope"):
        Store(path)


def test_unwritable_place_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="--state-dir"):
        Store(tmp_path / "file" / "runs.db")


def test_missing_store_is_one_line(tmp_path):
    with pytest.raises(UserError, match="no run store"):
        History(tmp_path / "none.db")
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def daemon_store():
    """Open stores as a daemon does; they are closed at the end."""
    made: list[Store] = []

    def open_store(path: Path, **settings: object) -> Store:
        made.append(Store(path, is_daemon=True, lock_seconds=0.001, **settings))
        return made[-1]

    yield open_store
    for one in made:
        one.close()


def stored(path: Path) -> set[str]:
    return {run["run_id"] for run in History(path).runs()}


def test_daemon_works_in_memory_until_the_store_can_be_opened(tmp_path, daemon_store):
    path = tmp_path / "runs.db"
    path.mkdir()
    store = daemon_store(path)
    assert store.problem == "unable to open database file"
    assert not store.finish(report("early"))
    store.add_block(block(5))
    store.prune(NOW * S, S, S)
    store.limit(10**6)
    store.flush()
    assert [run["run_id"] for run in store.waiting()] == ["early"]
    assert list(History(path, may_be_missing=True).runs()) == []
    path.rmdir()
    store.flush()
    assert (store.problem, store.waiting()) == (None, [])
    assert stored(path) == {"early"}
    assert list(History(path).blocks(0, FAR)) == [b"data5"]


def test_run_in_flight_is_closed_when_the_store_opens_late(tmp_path, daemon_store):
    away, path = tmp_path / "away.db", tmp_path / "runs.db"
    first = Store(away)
    first.begin(report("flying", outcome="failed"))
    first.close()
    path.mkdir()
    store = daemon_store(path)
    store.begin(report("present"))
    path.rmdir()
    away.rename(path)
    store.flush()
    assert stored(path) == {"flying"}
    assert store.finish(report("present"))
    assert stored(path) == {"flying", "present"}


def test_closed_store_is_not_opened_again_by_a_thread_that_comes_late(tmp_path):
    path = tmp_path / "runs.db"
    store = Store(path, is_daemon=True)
    store.close()
    store.flush()
    assert not store.finish(report("late"))
    Store(path, is_daemon=True).close()  # its lock is free


def test_place_of_another_user_is_refused_at_the_start(tmp_path, daemon_store):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="--state-dir"):
        daemon_store(tmp_path / "file" / "runs.db")


def no_version(path: Path) -> None:
    Store(path).close()
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA user_version=0")


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda path: path.write_bytes(b"no database" * 1000), "file is not a database"),
        (no_version, "it has tables of an unknown version"),
    ],
    ids=["garbage", "no version"],
)
def test_damaged_file_is_put_aside_and_said(tmp_path, daemon_store, caplog, spoil, reason):
    path = tmp_path / "runs.db"
    spoil(path)
    content = path.read_bytes()
    store = daemon_store(path)
    assert store.problem is None
    assert store.finish(report("new"))
    (aside,) = tmp_path.glob("runs.db.damaged-*Z")
    assert aside.read_bytes() == content
    assert store.note == (
        f"the store was damaged ({reason}): it was renamed to {aside}, and begun anew"
    )
    assert store.note in caplog.text
    assert stored(path) == {"new"}


def older_store(path: Path, blocks: int) -> None:
    """Write what a release with the first form of samples left."""
    with closing(Store(path)) as store:
        store.finish(report("old"))
    with closing(sqlite3.connect(path)) as database, database:
        for number in range(blocks):
            row = ("tegrastats", "boot", 0, 1, number, number + 1, 1, b"tgb\x01")
            columns = "source, boot_id, begin_ns, end_ns, begin_wall_ns, end_wall_ns, samples, data"
            values = f"INSERT INTO blocks ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
            database.execute(values, row)
        database.execute("PRAGMA user_version=1")


def count_of_blocks(path: Path) -> int:
    with closing(sqlite3.connect(path)) as database:
        return int(database.execute("SELECT count(*) FROM blocks").fetchone()[0])


def test_samples_of_an_older_release_are_put_aside_and_its_runs_stay(
    tmp_path, daemon_store, caplog
):
    path = tmp_path / "runs.db"
    older_store(path, blocks=3)
    store = daemon_store(path)
    assert (store.problem, store.note) == (None, None)
    assert stored(path) == {"old"}
    aside = tmp_path / "runs.db.samples-1"
    assert (count_of_blocks(path), count_of_blocks(aside)) == (0, 3)
    assert f"3 blocks of samples of an older release were moved to {aside}" in caplog.text
    store.close()
    daemon_store(path)
    assert count_of_blocks(aside) == 3


def test_older_store_without_samples_leaves_no_file_beside(tmp_path, daemon_store):
    path = tmp_path / "runs.db"
    older_store(path, blocks=0)
    daemon_store(path)
    assert stored(path) == {"old"}
    assert not list(tmp_path.glob("*.samples-*"))


def test_newer_schema_is_kept_and_the_daemon_goes_on(tmp_path, daemon_store):
    path = tmp_path / "runs.db"
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA user_version=99")
    store = daemon_store(path)
    assert "newer tegrascope (schema 99)" in store.problem
    assert not store.finish(report("new"))
    assert not list(tmp_path.glob("*.damaged-*"))


def test_damage_while_the_store_is_open_is_put_aside(tmp_path, daemon_store):
    """A new connection finds it too, so it is not an echo of an error of the disk."""
    path = tmp_path / "runs.db"
    store = daemon_store(path)
    store.finish(report("old"))
    with closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    path.write_bytes(content)
    assert store.finish(report("new"))
    assert store.problem is None
    assert "the store was damaged" in store.note
    assert len(list(tmp_path.glob("runs.db.damaged-*Z"))) == 1
    assert stored(path) == {"new"}


@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_another_file_is_noticed_and_opened(tmp_path, daemon_store, how):
    path = tmp_path / "runs.db"
    store = daemon_store(path)
    store.finish(report("old"))
    path.rename(tmp_path / "away.db")
    if how == "replaced":
        Store(path).close()
    assert store.finish(report("new"))
    assert store.note == (
        f"{path} was {how} while the daemon ran, and opened again: "
        "1 run(s) were read from its pages"
    )
    assert stored(path) == {"old", "new"}


def crash(tmp_path: Path, runs: int) -> Path:
    """Return the database of a daemon that was killed after so many commits, all in its log."""
    store = Store(tmp_path / "live.db")
    with closing(sqlite3.connect(store.path)) as other:
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    for number in range(runs):
        store.finish(report(f"run-{number:02}"))
    path = tmp_path / "crashed.db"
    for suffix in ("", "-wal"):
        shutil.copy(f"{store.path}{suffix}", f"{path}{suffix}")
    store.close()
    return path


def flip(log: Path, at: int) -> None:
    content = bytearray(log.read_bytes())
    content[at] ^= 1
    log.write_bytes(content)


@pytest.mark.parametrize("at", [0.5, 0.0], ids=["frame", "header"])
def test_damaged_log_is_reported_once(tmp_path, daemon_store, caplog, at):
    """SQLite reads a log up to the damage, and does not report the rest, which is saved."""
    path = crash(tmp_path, 20)
    log = Path(f"{path}-wal")
    flip(log, 20 + int(at * log.stat().st_size))
    store = daemon_store(path)
    assert len(stored(path)) >= 19
    assert "the log of the store was damaged" in store.note
    assert store.note in caplog.text
    store.finish(report("new"))
    shutil.copy(path, tmp_path / "again.db")
    shutil.copy(log, tmp_path / "again.db-wal")
    again = daemon_store(tmp_path / "again.db")
    assert (again.note, again.problem) == (None, None)
    assert "new" in stored(again.path)


@pytest.mark.parametrize("spoil", ["whole", "torn", "none"])
def test_log_of_a_crash_is_no_damage(tmp_path, daemon_store, spoil):
    """A power cut may tear the last commit, which nobody was told of."""
    path = crash(tmp_path, 20)
    log = Path(f"{path}-wal")
    if spoil == "torn":
        flip(log, log.stat().st_size - 100)
    elif spoil == "none":
        log.write_bytes(b"")
    store = daemon_store(path)
    assert store.note is None
    assert len(stored(path)) == {"whole": 20, "torn": 19, "none": 0}[spoil]


def test_last_good_runs_are_the_newest_of_each_workload_and_device(store):
    for number in range(60):
        store.finish(report(f"r{number:02}", started_wall_ns=number * S))
    store.finish(report("bad", started_wall_ns=60 * S, outcome="failed", reason="x"))
    store.finish(report("other", started_wall_ns=61 * S, device="gpu"))
    history = History(store.path)
    newest = ["r57", "r58", "r59"]
    assert sorted(history.last_good("run_id", 0, 3)) == ["other", *newest]
    assert sorted(history.last_good("run_id", 57 * S, 3)) == ["other", "r58", "r59"]


def data_bytes(path: Path) -> int:
    with closing(sqlite3.connect(path)) as reader:
        pages, free, size = (
            reader.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("page_count", "freelist_count", "page_size")
        )
    return (pages - free) * size


def test_size_limit_deletes_telemetry_first_and_then_the_oldest_runs(store):
    large = "x" * 20_000
    for number in range(100):
        data = b"x" * 20_000
        store.add_block(SealedBlock("s", number, number + 1, 0, NOW * S, 9, data + b"%d" % number))
        store.finish(report(f"run-{number:02}", started_wall_ns=(NOW + number) * S, reason=large))
    assert data_bytes(store.path) > 4_000_000
    store.limit(3_000_000)
    assert data_bytes(store.path) <= 3_000_000
    left = list(History(store.path).blocks(0, FAR))
    assert 0 < len(left) < 100
    assert left[-1].endswith(b"99")
    assert len(stored(store.path)) == 100
    store.limit(1_000_000)
    assert data_bytes(store.path) <= 1_000_000
    assert list(History(store.path).blocks(0, FAR)) == []
    runs = stored(store.path)
    assert 0 < len(runs) < 50
    assert runs == {f"run-{number:02}" for number in range(100 - len(runs), 100)}
    store.limit(1_000_000)
    assert stored(store.path) == runs


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a link for another user")
@pytest.mark.parametrize("name", ["tegrascope.db", "tegrascope.db-wal", "tegrascope.db-journal"])
def test_link_of_another_user_is_not_followed(tmp_path, name):
    (tmp_path / "victim").write_text("of somebody else\n")
    (tmp_path / name).symlink_to(tmp_path / "victim")
    os.lchown(tmp_path / name, 1000, 1000)
    with pytest.raises(UserError, match=f"{name}: is a symbolic link of the user 1000"):
        Store(tmp_path / "tegrascope.db", is_daemon=True)
    assert (tmp_path / "victim").read_text() == "of somebody else\n"


def test_lock_that_is_a_link_is_not_written_through(tmp_path, daemon_store):
    (tmp_path / "victim").write_text("of somebody else\n")
    (tmp_path / "tegrascope.db.lock").symlink_to(tmp_path / "victim")
    store = daemon_store(tmp_path / "tegrascope.db")
    assert "is a symbolic link" in store.problem
    assert (tmp_path / "victim").read_text() == "of somebody else\n"


def test_own_link_to_another_disk_is_an_arrangement(tmp_path, daemon_store):
    (tmp_path / "disk").mkdir()
    (tmp_path / "tegrascope.db").symlink_to(tmp_path / "disk/tegrascope.db")
    assert daemon_store(tmp_path / "tegrascope.db").problem is None
    assert (tmp_path / "disk/tegrascope.db").is_file()


@pytest.mark.parametrize("name", ["tegrascope.db", "tegrascope.db-wal", "tegrascope.db.lock"])
def test_pipe_in_place_of_a_file_is_a_problem_and_no_wait(tmp_path, daemon_store, name):
    os.mkfifo(tmp_path / name)
    store = daemon_store(tmp_path / "tegrascope.db")
    assert f"{name}: is not a regular file" in store.problem
