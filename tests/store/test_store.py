"""The run store: acknowledged data stays, runs in flight are closed, old data is deleted."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from tegrascope.daemon.measure.run_report import RunReport
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
    assert [run["run_id"] for run in history.runs(before_wall_ns=2 * S)] == ["old"]
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


def test_run_in_flight_is_closed_at_the_next_start(tmp_path):
    path = tmp_path / "runs.db"
    first = Store(path)
    first.finish(report("done"))
    first.begin(report("flying", outcome="failed", reason="the daemon ended during the run"))
    assert [run["run_id"] for run in History(path).runs()] == ["done"]
    first.close()
    second = Store(path)
    assert second.recover() == ["flying"]
    assert second.recover() == []
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
