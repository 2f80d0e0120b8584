"""A damaged file costs the rows that the damage hit, and no others; all of it is counted."""

import contextlib
import random
import resource
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tegrascope.daemon.measure.report import RunReport
from tegrascope.daemon.store.history import History
from tegrascope.daemon.store.store import Store

S = 1_000_000_000
NOW = 1_767_225_600
PAGE = 4096


def report(run_id: str, **changes: object) -> RunReport:
    """Return a run whose record is as long as a real one, so that it needs two pages."""
    fields: dict[str, object] = {
        "run_id": run_id,
        "workload": "w",
        "backend": "onnxruntime",
        "device": "cpu",
        "outcome": "ok",
        "started_wall_ns": NOW * S,
        "started_ns": 1,
        "ended_ns": 2,
        "worker_log": ["x" * 1400],
    }
    return RunReport.model_validate(fields | changes)


def finish(store: Store, begin: int, end: int) -> set[str]:
    """Store runs as a daemon does, and return those that are told as stored."""
    told = set()
    for number in range(begin, end):
        run_id = f"run-{number:04}"
        started = (NOW + number) * S
        store.begin(report(run_id, started_wall_ns=started, outcome="failed"))
        if store.finish(report(run_id, started_wall_ns=started)):
            told.add(run_id)
    return told


def stored(path: Path) -> set[str]:
    return {run["run_id"] for run in History(path).runs()}


def checkpoint(path: Path) -> None:
    """Move the log into the database, as a long life does."""
    with closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def log_of(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def kill(store: Store, folder: Path) -> Path:
    """Return a copy of the files of a store as a killed process leaves them."""
    folder.mkdir()
    for file in store.path.parent.glob(f"{store.path.name}*"):
        shutil.copy(file, folder)
    return folder / store.path.name


@pytest.fixture
def daemon_store():
    """Open stores as a daemon does; they are closed at the end."""
    made: list[Store] = []

    def open_store(path: Path) -> Store:
        made.append(Store(path, is_daemon=True, lock_seconds=0.001))
        return made[-1]

    yield open_store
    for store in made:
        store.close()


def cut(size: Callable[[int], int]) -> Callable[[Path], None]:
    def act(path: Path) -> None:
        with path.open("r+b") as file:
            file.truncate(size(path.stat().st_size))

    return act


def flip(count: int) -> Callable[[Path], None]:
    """Change bytes of a database behind its first page, which has the format of all others."""

    def act(path: Path) -> None:
        chance = random.Random(1)
        with path.open("r+b") as file:
            for _ in range(count):
                at = chance.randrange(PAGE, path.stat().st_size)
                file.seek(at)
                byte = file.read(1)[0]
                file.seek(at)
                file.write(bytes([byte ^ 1 << chance.randrange(8)]))

    return act


CUTS = {
    "to 50 %": cut(lambda size: size // 2),
    "to 3 pages": cut(lambda _: 3 * PAGE),
    "to nothing": cut(lambda _: 0),
    "to an odd size": cut(lambda size: size * 2 // 3 | 1),
}


@pytest.mark.parametrize("how", CUTS)
def test_runs_of_the_log_survive_a_cut_of_the_open_database(tmp_path, daemon_store, caplog, how):
    """Every run whose pages the cut did not reach is there, told or not."""
    store = daemon_store(tmp_path / "runs.db")
    old = finish(store, 0, 60)
    checkpoint(store.path)
    store.flush()
    recent = finish(store, 60, 80)
    CUTS[how](store.path)
    after = finish(store, 80, 90)
    assert recent | after <= stored(store.path)
    lost = (old | recent | after) - stored(store.path)
    assert (store.problem, store.damages, store.runs_lost) == (None, 1, len(lost))
    assert "the store was damaged (the file was cut): it was renamed to " in store.note
    assert store.note in caplog.text
    kept = kill(store, tmp_path / "killed")
    again = daemon_store(kept)
    assert again.note is None
    assert stored(kept) == stored(store.path)


def test_reader_that_meets_an_empty_file_first_costs_nothing(tmp_path, daemon_store):
    """SQLite would take it for a new database, and delete its log."""
    store = daemon_store(tmp_path / "runs.db")
    told = finish(store, 0, 20)
    CUTS["to nothing"](store.path)
    history = History(store.path, on_damage=store.suspect)
    with pytest.raises(sqlite3.DatabaseError, match="it has a log"):
        list(history.runs())
    assert log_of(store.path).stat().st_size > 0
    assert store.problem is not None
    store.flush()
    assert {run["run_id"] for run in history.runs()} == told


@contextlib.contextmanager
def full_disk() -> Iterator[None]:
    """Let this process write no byte to any file, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_damaged_file_stays_until_there_is_room_for_its_runs(tmp_path, daemon_store):
    store = daemon_store(tmp_path / "runs.db")
    told = finish(store, 0, 20)
    CUTS["to 50 %"](store.path)
    with full_disk():
        assert not store.finish(report("waiting"))
        store.flush()
        assert store.problem is not None
        assert not list(tmp_path.glob("*.damaged-*"))
    store.flush()
    assert store.problem is None
    assert stored(store.path) == told | {"waiting"}
    assert store.runs_lost == 0


@pytest.mark.parametrize("how", CUTS)
def test_cut_beside_an_empty_log_costs_what_was_cut(tmp_path, daemon_store, how):
    store = daemon_store(tmp_path / "runs.db")
    told = finish(store, 0, 60)
    checkpoint(store.path)
    store.flush()
    whole = store.path.stat().st_size
    CUTS[how](store.path)
    share = store.path.stat().st_size / whole
    store.flush()
    assert store.problem is None
    assert "the file was cut" in store.note
    assert len(stored(store.path)) >= share * len(told) - 10
    assert store.runs_lost == len(told - stored(store.path))


@pytest.mark.parametrize("how", CUTS)
def test_idle_daemon_notices_a_cut(tmp_path, daemon_store, how):
    """No run has to end for it: the regular look is enough, also right before the end."""
    for name in ("look", "end"):
        store = daemon_store(tmp_path / name / "runs.db")
        told = finish(store, 0, 20)
        CUTS[how](store.path)
        if name == "look":
            store.flush()
            assert "was cut" in store.note
        store.close()
        assert stored(store.path) == told


@pytest.mark.parametrize("how", CUTS)
@pytest.mark.parametrize("is_killed", [True, False])
def test_cut_before_a_start_costs_what_was_cut(tmp_path, daemon_store, how, is_killed):
    store = daemon_store(tmp_path / "runs.db")
    old = finish(store, 0, 60)
    checkpoint(store.path)
    recent = finish(store, 60, 80)
    if is_killed:
        path = kill(store, tmp_path / "killed")
    else:
        store.close()
        path = store.path
    whole = path.stat().st_size
    CUTS[how](path)
    share = path.stat().st_size / whole
    again = daemon_store(path)
    survivors = stored(path)
    if is_killed:
        assert recent <= survivors
    if share > 0 or is_killed:
        assert "the store was damaged" in again.note
    # Rows are in the order of their ids, and so are their pages, but for a few.
    assert len(survivors) >= share * len(old | recent) - 10
    assert survivors <= old | recent


def test_flipped_bytes_cost_single_runs_and_are_health(tmp_path, daemon_store):
    """A reader meets them first: it reports them, and the next look puts the file aside."""
    store = daemon_store(tmp_path / "runs.db")
    told = finish(store, 0, 100)
    checkpoint(store.path)
    store.flush()
    history = History(store.path, on_damage=store.suspect)
    with store.path.open("r+b") as file:  # a page that leads to all others
        file.seek(PAGE)
        file.write(b"\xff" * 100)
    with pytest.raises(sqlite3.DatabaseError):
        list(history.runs())
    assert store.problem == "database disk image is malformed"
    store.flush()
    assert store.problem is None
    assert "the store was damaged" in store.note
    # The page itself has a few runs.
    assert len(told - stored(store.path)) <= 3
    assert store.runs_lost == len(told - stored(store.path))


@pytest.mark.parametrize("is_open", [True, False])
def test_page_that_hides_runs_without_an_error_is_noticed(tmp_path, daemon_store, is_open):
    """The regular count of an open store finds it, and so does the next start."""
    store = daemon_store(tmp_path / "runs.db")
    told = finish(store, 0, 100)
    checkpoint(store.path)
    store.flush()
    if not is_open:
        store.close()
    with store.path.open("r+b") as file:  # the root of the table leads to its last page twice
        file.seek(PAGE)
        root = file.read(PAGE)
        file.seek(PAGE + int.from_bytes(root[12:14], "big"))
        file.write(root[8:12])
    hidden = len(told - stored(store.path))
    assert hidden > 0
    if is_open:
        store.prune((NOW + 100) * S, S, 365 * 86_400 * S)
        assert store.problem == "its table of runs and their index differ"
        store.flush()
    else:
        store = daemon_store(store.path)
    assert store.problem is None
    assert "the store was damaged" in store.note
    assert stored(store.path) == told
    assert store.runs_lost == 0


@pytest.mark.parametrize("seed", range(5))
def test_flipped_bytes_before_a_start_cost_at_most_what_they_hit(tmp_path, daemon_store, seed):
    store = Store(tmp_path / "runs.db")
    told = finish(store, 0, 100)
    store.close()
    random.seed(seed)
    flip(30)(store.path)
    again = daemon_store(store.path)
    history = History(store.path, on_damage=again.suspect)
    for _ in range(3):
        with contextlib.suppress(sqlite3.DatabaseError):
            list(history.runs())
        again.flush()
    # A page of the table has at most eight runs, the page of a long record one.
    assert len(told - {run["run_id"] for run in history.runs()}) <= 30 * 2
    assert again.problem is None


@pytest.mark.parametrize("at", range(32))
def test_any_damage_of_the_header_of_a_log_costs_nothing(tmp_path, daemon_store, at):
    store = daemon_store(tmp_path / "runs.db")
    told = finish(store, 0, 5)
    path = kill(store, tmp_path / "killed")
    content = bytearray(log_of(path).read_bytes())
    content[at] ^= 2
    log_of(path).write_bytes(content)
    again = daemon_store(path)
    assert "the log of the store was damaged" in again.note
    assert stored(path) == told


@pytest.mark.parametrize("at", [0.0, 0.3, 0.9])
def test_runs_behind_the_damage_of_a_log_are_read(tmp_path, daemon_store, at):
    """SQLite stops at the first damaged frame, without a word."""
    store = daemon_store(tmp_path / "runs.db")
    told = finish(store, 0, 40)
    path = kill(store, tmp_path / "killed")
    content = bytearray(log_of(path).read_bytes())
    content[20 + int(at * len(content))] ^= 1
    log_of(path).write_bytes(content)
    again = daemon_store(path)
    assert "the log of the store was damaged" in again.note
    assert len(told - stored(path)) <= 1
    assert again.runs_lost >= len(told - stored(path))


def test_log_that_was_cut_before_a_start_is_reported(tmp_path, daemon_store):
    """It looks like a shorter log, but the killed process left an index of it."""
    store = daemon_store(tmp_path / "runs.db")
    told = finish(store, 0, 40)
    path = kill(store, tmp_path / "killed")
    cut(lambda size: size // 2)(log_of(path))
    again = daemon_store(path)
    assert "the log of the store was damaged" in again.note
    assert len(stored(path)) >= len(told) // 2 - 3
    third = daemon_store(kill(again, tmp_path / "third"))
    assert third.note is None


@pytest.mark.parametrize("share", [0, 0.5])
def test_log_that_is_cut_while_open_costs_what_was_cut(tmp_path, daemon_store, share):
    store = daemon_store(tmp_path / "runs.db")
    old = finish(store, 0, 20)
    checkpoint(store.path)
    store.flush()
    recent = finish(store, 20, 60)
    cut(lambda size: int(size * share))(log_of(store.path))
    after = finish(store, 60, 70)
    assert after | old <= stored(store.path)
    assert "its log was cut" in store.note
    lost = (old | recent | after) - stored(store.path)
    assert len(lost) <= (1 - share) * len(recent) + 3
    assert store.runs_lost == len(lost)
    path = kill(store, tmp_path / "killed")
    assert daemon_store(path).note is None
    assert after | old <= stored(path)


def test_emptied_log_and_vacuum_are_no_damage(tmp_path, daemon_store):
    """A person may look after a database that is open."""
    store = daemon_store(tmp_path / "runs.db")
    finish(store, 0, 40)
    checkpoint(store.path)
    told = finish(store, 40, 50)
    with closing(sqlite3.connect(store.path, isolation_level=None)) as other:
        other.execute("DELETE FROM runs WHERE run_id < 'run-0040'")
        other.execute("VACUUM")
    checkpoint(store.path)
    told |= finish(store, 50, 60)
    assert (store.note, store.problem, store.damages) == (None, None, 0)
    assert stored(store.path) == told


@pytest.mark.parametrize("how", ["removed", "replaced", "log removed", "all removed"])
def test_runs_of_a_file_that_is_gone_are_written_again(tmp_path, daemon_store, how):
    store = daemon_store(tmp_path / "runs.db")
    told = finish(store, 0, 20)
    if how == "replaced":
        store.path.rename(tmp_path / "away.db")
        other = Store(store.path)
        other.finish(report("other"))
        other.close()
        told.add("other")
    if how in ("removed", "all removed"):
        store.path.unlink()
    if how in ("log removed", "all removed"):
        log_of(store.path).unlink()
    told |= finish(store, 20, 25)
    assert stored(store.path) == told
    assert (store.runs_lost, store.damages) == (0, 1)
    path = kill(store, tmp_path / "killed")
    assert daemon_store(path).note is None
    assert stored(path) == told


def test_run_in_flight_ends_in_the_new_file(tmp_path, daemon_store):
    store = daemon_store(tmp_path / "runs.db")
    told = finish(store, 0, 20)
    store.begin(report("flying", outcome="failed"))
    CUTS["to 3 pages"](store.path)
    store.flush()
    history = History(store.path)
    assert list(history.pick_runs("run_id", in_flight=True)) == ["flying"]
    assert stored(store.path) == told
    store.finish(report("flying"))
    assert stored(store.path) == told | {"flying"}
    assert store.runs_lost == 0


@pytest.mark.parametrize("content", [b"", b"no database" * 100])
def test_useless_rescue_of_an_earlier_start_stops_nothing(tmp_path, daemon_store, content):
    store = daemon_store(tmp_path / "runs.db")
    told = finish(store, 0, 5)
    (tmp_path / "runs.db.rescued").write_bytes(content)
    CUTS["to 3 pages"](store.path)
    store.flush()
    assert stored(store.path) == told
    path = kill(store, tmp_path / "killed")
    path.with_name("runs.db.rescued").write_bytes(content)
    again = daemon_store(path)
    assert (stored(path), again.problem) == (told, None)
    assert not path.with_name("runs.db.rescued").exists()


def test_rescue_that_was_interrupted_is_finished_by_the_next_start(tmp_path, daemon_store):
    store = daemon_store(tmp_path / "runs.db")
    told = finish(store, 0, 20)
    path = kill(store, tmp_path / "killed")
    rescue = path.with_name("runs.db.rescued")
    store.close()
    with closing(sqlite3.connect(rescue)) as other:
        other.executescript(
            f"ATTACH '{store.path}' AS old; CREATE TABLE runs AS SELECT * FROM old.runs"
            " WHERE run_id >= 'run-0010';"
        )
    path.unlink()
    log_of(path).unlink()
    daemon_store(path)
    assert stored(path) == {run_id for run_id in told if run_id >= "run-0010"}


GOOD = report("bad").model_dump_json(exclude_none=True)
BAD_ROWS = {
    "not UTF-8": ("report", GOOD.encode().replace(b"xxx", b"x\xff\xfe", 1)),
    "not JSON": ("report", GOOD[:-1]),
    "nothing": ("report", ""),
    "a number": ("report", "3"),
    "an empty object": ("report", "{}"),
    "another type": ("report", GOOD.replace('"ended_ns":2', '"ended_ns":"2"')),
    "another inner type": (
        "report",
        GOOD.replace('"started_ns"', '"latency":{"p50_seconds":"2"},"started_ns"'),
    ),
    "deep": ("report", "[" * 100_000),
    "other id": ("report", GOOD.replace('"bad"', '"bat"')),
    "workload not UTF-8": ("workload", b"\xff"),
    "id not UTF-8": ("run_id", b"ba\xff"),
    "start is a text": ("started_wall_ns", "soon"),
    "start is another": ("started_wall_ns", 1),
}


@pytest.mark.parametrize("column", BAD_ROWS)
def test_unreadable_row_costs_one_row(store_with_bad_row, column):
    """Also its place in the order of time must not hide the others."""
    history = store_with_bad_row(*BAD_ROWS[column])
    good = {f"run-{number:04}" for number in range(5)}
    assert {run["run_id"] for run in history.runs()} == good
    assert {run["run_id"] for run in history.runs(5)} == good
    assert set(history.last_good("run_id", 0, 10)) == good
    assert set(history.pick_runs("json_extract(report, '$.run_id')")) == good
    assert history.run("run-0003")["run_id"] == "run-0003"
    assert history.run("bad") is None
    assert history.unreadable == 1


@pytest.fixture
def store_with_bad_row(tmp_path, daemon_store):
    def make(column: str, value: object) -> History:
        store = daemon_store(tmp_path / "runs.db")
        finish(store, 0, 5)
        store.begin(report("bad", started_wall_ns=(NOW + 9) * S, outcome="ok"))
        with closing(sqlite3.connect(store.path)) as other, other:
            if isinstance(value, bytes):
                other.execute(
                    f"UPDATE runs SET {column} = CAST(? AS TEXT) WHERE run_id = 'bad'", (value,)
                )
            else:
                other.execute(f"UPDATE runs SET {column} = ? WHERE run_id = 'bad'", (value,))
        # The next start closes a run in flight, and its retention works.
        again = daemon_store(kill(store, tmp_path / "killed"))
        again.prune((NOW + 10) * S, S, 365 * 86_400 * S)
        again.limit(1 << 30)
        assert again.problem is None
        return History(again.path)

    return make


class CuttingBlock:
    """Samples whose write cuts the database, after the store has looked whether it is whole."""

    source, count = "tegrastats", 1
    begin_ns = end_ns = wall_begin_ns = wall_end_ns = 1

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def data(self) -> bytes:
        cut(lambda size: size // 2)(self.path)
        return b"samples"


def test_cut_between_the_look_and_the_end_of_a_write_is_noticed_by_the_next_look(
    tmp_path, daemon_store
):
    path = tmp_path / "runs.db"
    store = daemon_store(path)
    told = finish(store, 0, 60)
    checkpoint(path)
    told |= finish(store, 60, 62)  # SQLite takes the number of pages from the log now
    assert store.damages == 0
    store.add_block(CuttingBlock(path))
    assert store.problem is None
    store.flush()
    assert store.damages == 1
    assert "was cut" in store.note
    lost = told - stored(path)
    assert 0 < len(lost) < len(told)
    assert store.runs_lost == len(lost)
