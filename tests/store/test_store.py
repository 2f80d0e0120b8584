"""The run store: what was acknowledged stays, what was in flight is closed, old data goes."""

import sqlite3

import pytest

from tegrascope.daemon.measure.run_report import RunReport
from tegrascope.daemon.measure.timeline import SealedBlock
from tegrascope.daemon.store.history import History
from tegrascope.daemon.store.store import Store
from tegrascope.parsers.errors import Mendable

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
    """A run is there as soon as ``finish`` returns, whole, and in the order of the starts."""
    store.finish(report("old", started_wall_ns=1 * S))
    store.finish(report("new", started_wall_ns=2 * S, workload="other"))
    history = History(store.path)
    assert [run["run_id"] for run in history.runs()] == ["new", "old"]
    assert [run["run_id"] for run in history.runs(limit=1)] == ["new"]
    assert [run["run_id"] for run in history.runs(workload="w")] == ["old"]
    assert [run["run_id"] for run in history.runs(before_wall_ns=2 * S)] == ["old"]
    assert RunReport.model_validate(history.run("old")) == report("old", started_wall_ns=1 * S)


def test_runs_are_found_by_part_of_their_id(store):
    """An unmistakable beginning or end will do; an ambiguous one finds nothing."""
    store.finish(report("aa-1"))
    store.finish(report("ab-2"))
    history = History(store.path)
    assert history.run("aa")["run_id"] == "aa-1"
    assert history.run("2")["run_id"] == "ab-2"
    assert history.run("a") is None
    assert history.run("") is None
    assert history.run("zz") is None


def test_run_in_flight_is_closed_at_the_next_start(tmp_path):
    """What died with the process is ``failed`` with its reason, and nothing else is touched."""
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


def test_commits_are_full_and_in_the_log(store):
    """A power cut loses nothing that was acknowledged: WAL, and a sync at each commit."""
    assert store._writer.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert store._writer.execute("PRAGMA synchronous").fetchone() == (2,)


def test_failing_disk_keeps_the_run_and_counts(store):
    """A run that can't be written waits in memory and is written when the disk is back."""
    lock = sqlite3.connect(store.path)
    store._writer.execute("PRAGMA busy_timeout=1")
    lock.execute("BEGIN IMMEDIATE")
    store.finish(report("late"))
    assert store.write_errors == 1
    assert "locked" in store.problem
    assert list(History(store.path).runs()) == []
    lock.rollback()
    lock.close()
    store.add_block(block(5))
    assert [run["run_id"] for run in History(store.path).runs()] == ["late"]
    assert store.problem is None


def test_runs_wait_up_to_a_bound_and_those_beyond_it_are_counted(store, monkeypatch, caplog):
    """A run waits once, however it is written; the oldest is given up first, by name."""
    monkeypatch.setattr("tegrascope.daemon.store.store._PENDING_RUNS", 3)
    (pages,) = store._writer.execute("PRAGMA page_count").fetchone()
    store._writer.execute(f"PRAGMA max_page_count={pages}")
    while store.problem is None:  # there may be room in a page
        store.finish(report(f"kept-{store._writer.total_changes}", reason="x" * 500))
    store.finish(report("last", reason="x" * 500))
    waiting = [*store._pending]
    for run_id in ("new-1", "new-2"):
        store.begin(report(run_id, outcome="failed", reason="x" * 500))
        store.finish(report(run_id, reason="x" * 500))
    assert [*store._pending] == [*waiting, "new-1", "new-2"][-3:]
    assert store.runs_lost == len(waiting) - 1
    assert f"run {waiting[0]} is lost" in caplog.text
    store._writer.execute("PRAGMA max_page_count=1000000")
    store.flush()
    assert {"last", "new-1", "new-2"} <= {run["run_id"] for run in History(store.path).runs()}
    assert {run["outcome"] for run in History(store.path).runs()} == {"ok"}


def test_blocks_are_found_by_wall_time_and_pruned(store):
    """Telemetry comes back in order, and what is older than its retention goes."""
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
    """A database from the future is left alone, and the user is told what to do."""
    path = tmp_path / "runs.db"
    database = sqlite3.connect(path)
    database.execute("PRAGMA user_version=99")
    database.close()
    with pytest.raises(Mendable, match="newer tegrascope"):
        Store(path)


def test_unwritable_place_is_one_line(tmp_path):
    """A path that cannot be a directory is told with its mend."""
    (tmp_path / "file").write_text("")
    with pytest.raises(Mendable, match="--state-dir"):
        Store(tmp_path / "file" / "runs.db")


def test_missing_store_is_one_line(tmp_path):
    """Asking for runs where none were kept says so, and makes no file."""
    with pytest.raises(Mendable, match="no run store"):
        History(tmp_path / "none.db")
    assert list(tmp_path.iterdir()) == []
