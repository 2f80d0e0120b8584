"""Retention with right and wrong wall clocks: a record is deleted for its age only if known."""

import sqlite3
from contextlib import closing

import pytest

from tegrascope.daemon.measure.report import RunReport
from tegrascope.daemon.measure.timeline import SealedBlock
from tegrascope.daemon.store.history import History
from tegrascope.daemon.store.retention import is_trusted
from tegrascope.daemon.store.store import Store

S = 1_000_000_000
NOW = 1_767_225_600 * S
DAY, YEAR = 86_400 * S, 365 * 86_400 * S
WEEK_OF_BLOCKS = 7 * 8640


@pytest.fixture
def store(tmp_path):
    made = Store(tmp_path / "runs.db")
    yield made
    made.close()


def add_run(store: Store, name: str, wall_ns: int) -> None:
    fields: dict[str, object] = {
        "workload": "w",
        "backend": "b",
        "device": "cpu",
        "outcome": "ok",
    }
    times = {"started_wall_ns": wall_ns, "started_ns": 1, "ended_ns": 2}
    store.finish(RunReport.model_validate({"run_id": name} | fields | times))


def add_blocks(store: Store, *wall_ns: int) -> None:
    for wall in wall_ns:
        store.add_block(SealedBlock("s", 1, 2, wall - 10 * S, wall, 9, b"%d" % wall))


def add_many(store: Store, count: int, begin_ns: int) -> None:
    """Store so many blocks of ten seconds, all in one go."""
    with closing(sqlite3.connect(store.path)) as writer, writer:
        writer.executemany(
            "INSERT INTO blocks (source, boot_id, begin_ns, end_ns, begin_wall_ns, end_wall_ns,"
            " samples, data) VALUES ('s', '', 0, 0, ?, ?, 9, '')",
            ((begin_ns + n * 10 * S, begin_ns + (n + 1) * 10 * S) for n in range(count)),
        )


def walls(store: Store) -> "list[int]":
    with closing(sqlite3.connect(store.path)) as reader:
        return [wall for (wall,) in reader.execute("SELECT end_wall_ns FROM blocks ORDER BY id")]


def runs(store: Store) -> "set[str]":
    return {run["run_id"] for run in History(store.path).runs()}


def prune(store: Store, now_ns: int) -> None:
    store.prune(now_ns, 7 * DAY, YEAR)


def test_jump_of_fifty_years_deletes_nothing(store):
    add_blocks(store, NOW - DAY, NOW)
    add_run(store, "yesterday", NOW - DAY)
    prune(store, NOW + 50 * YEAR)
    add_blocks(store, NOW + 50 * YEAR)
    add_run(store, "then", NOW + 50 * YEAR)
    prune(store, NOW + 50 * YEAR + DAY // 24)
    assert walls(store) == [NOW - DAY, NOW, NOW + 50 * YEAR]
    assert runs(store) == {"yesterday", "then"}


def test_restart_does_not_make_a_jump_trusted(store, tmp_path):
    add_blocks(store, NOW, NOW + 50 * YEAR)
    store.close()
    second = Store(tmp_path / "runs.db")
    prune(second, NOW + 50 * YEAR + 60 * S)
    assert walls(second) == [NOW, NOW + 50 * YEAR]
    second.close()


def test_records_of_1970_are_not_old(store):
    add_blocks(store, 60 * S, 70 * S, NOW)
    add_run(store, "early", 50 * S)
    prune(store, NOW)
    assert walls(store) == [60 * S, 70 * S, NOW]
    assert runs(store) == {"early"}


def test_clock_back_in_1970_deletes_nothing(store):
    add_blocks(store, NOW, 60 * S)
    add_run(store, "before", NOW)
    prune(store, 120 * S)
    assert walls(store) == [NOW, 60 * S]
    assert runs(store) == {"before"}


def test_right_clock_deletes_by_age(store):
    add_blocks(store, NOW - 8 * DAY, NOW - 6 * DAY, NOW)
    add_run(store, "old", NOW - YEAR - DAY)
    add_run(store, "new", NOW - YEAR + DAY)
    prune(store, NOW)
    assert walls(store) == [NOW - 6 * DAY, NOW]
    assert runs(store) == {"new"}


def test_shelf_of_two_years_is_trusted_after_a_day(store, caplog):
    add_blocks(store, NOW - 2 * YEAR)
    prune(store, NOW)
    assert walls(store) == [NOW - 2 * YEAR]
    assert "may be wrong" in caplog.text
    add_many(store, 8641, NOW)
    prune(store, NOW + DAY)
    assert len(walls(store)) == 8641
    assert "is trusted again" in caplog.text


@pytest.mark.parametrize("now_ns", [3600 * S, NOW], ids=["never set", "set now"])
def test_clock_that_was_never_set_does_not_fill_the_disk(store, now_ns):
    for _ in range(8):
        add_many(store, 8640, 60 * S)  # eight days, each of which begins in 1970
    prune(store, now_ns)
    assert WEEK_OF_BLOCKS <= len(walls(store)) <= WEEK_OF_BLOCKS + 1


def test_run_in_flight_is_never_pruned(store):
    fields = {"workload": "w", "backend": "b", "device": "cpu", "outcome": "failed"}
    times = {"started_wall_ns": NOW - 2 * YEAR, "started_ns": 1, "ended_ns": 2}
    store.begin(RunReport.model_validate({"run_id": "flying"} | fields | times))
    add_blocks(store, NOW)
    prune(store, NOW)
    assert list(History(store.path).pick_runs("run_id", in_flight=True)) == ["flying"]


def test_empty_store_trusts_any_clock_that_was_set(store):
    with closing(sqlite3.connect(store.path)) as reader:
        assert is_trusted(reader, NOW)
        assert is_trusted(reader, NOW + 50 * YEAR)
        assert not is_trusted(reader, 100 * S)
