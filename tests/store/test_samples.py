"""Samples in pages: none twice, none missed, whatever the clock and the store do meanwhile."""

import logging
import sqlite3
from contextlib import closing

import pytest

from tegrascope.daemon.measure.timeline import SealedBlock, Timeline
from tegrascope.daemon.settings.config import boot_id
from tegrascope.daemon.store.history import History, samples_since
from tegrascope.daemon.store.store import Store

S = 1_000_000_000
WALL = 1_767_225_600 * S


class Telemetry:
    """A store and a timeline that feeds it, as in the daemon."""

    def __init__(self, tmp_path, boot: "str | None" = None) -> None:
        self.store = Store(tmp_path / "runs.db", boot or boot_id())
        self.unwritten: list[SealedBlock] = []
        self.timeline = Timeline(on_sealed=self.unwritten.append)

    def write(self) -> None:
        while self.unwritten:
            self.store.add_block(self.unwritten.pop(0))

    def append(self, seconds: float, wall: float) -> None:
        self.timeline.append(int(seconds * S), WALL + int(wall * S), {"n": seconds})

    def since(self, seconds: float, limit: int = 1000) -> "list[dict[str, object]]":
        return list(samples_since(History(self.store.path), self.timeline, seconds, limit))

    def numbers(self) -> "list[float]":
        return [one["values"]["n"] for one in self.since(0)]


@pytest.fixture
def telemetry(tmp_path):
    made = Telemetry(tmp_path)
    yield made
    made.store.close()


def test_pages_meet_without_a_seam(telemetry):
    """Asking again with the last time goes on with the next sample, at any odd nanosecond."""
    for number in range(1, 200):
        telemetry.append(number * 0.1, number * 0.1 + number * 123e-9)
    telemetry.write()
    seen, since = [], WALL / S - 1
    while page := telemetry.since(since, limit=7):
        seen += [one["values"]["n"] for one in page]
        since = page[-1]["time"]
    assert seen == pytest.approx([number * 0.1 for number in range(1, 200)])
    assert seen == sorted(set(seen))


@pytest.mark.parametrize("stored", [True, False])
def test_clock_that_is_set_back_hides_nothing(telemetry, stored):
    """After the clock went back an hour, samples of before and after are all there, once each."""
    for number in range(1, 30):
        telemetry.append(number, number)
    for number in range(30, 60):
        telemetry.append(number, number - 3600)
    if stored:
        telemetry.write()
    assert telemetry.numbers() == list(range(1, 60))


@pytest.mark.parametrize("stored", [True, False])
@pytest.mark.parametrize("step", [-3600, 3600 * 24 * 365 * 50])
def test_clock_that_is_set_inside_a_block_hides_none_of_it(telemetry, stored, step):
    """Of a block across the step, the samples before and after it are found by their own times."""
    for number in range(1, 25):
        telemetry.append(number, number)
    for number in range(25, 28):
        telemetry.append(number, number + step)
    if stored:
        telemetry.timeline.seal()
        telemetry.write()
        telemetry.timeline = Timeline()
    later = [one["values"]["n"] for one in telemetry.since(WALL / S + 22)]
    assert later == ([23, 24] if step < 0 else [23, 24, 25, 26, 27])
    all_of_it = [one["values"]["n"] for one in telemetry.since(WALL / S - 7200)]
    assert sorted(all_of_it) == list(range(1, 28))


def test_block_that_is_stored_during_the_answer_comes_once(telemetry):
    """A block may move from memory to the store while an answer is read."""
    for number in range(1, 25):
        telemetry.append(number, number)
    answer = samples_since(History(telemetry.store.path), telemetry.timeline, 0, 1000)
    seen = [next(answer)["values"]["n"]]
    telemetry.timeline.seal()
    telemetry.write()
    seen += [one["values"]["n"] for one in answer]
    assert seen == list(range(1, 25))


def test_unwritten_block_between_stored_ones_is_there(telemetry):
    """What the store refused for a while is served from memory."""
    for number in range(1, 35):
        telemetry.append(number, number)
    del telemetry.unwritten[1]
    telemetry.write()
    assert telemetry.numbers() == list(range(1, 35))


def test_earlier_boot_is_distinguished_from_this_one(tmp_path):
    """Monotonic times of another boot say nothing about what is in memory."""
    before = Telemetry(tmp_path, boot="another")
    for number in range(1000, 1025):
        before.append(number, number - 5000)
    before.timeline.seal()
    before.write()
    before.store.close()
    now = Telemetry(tmp_path)
    for number in range(1, 10):
        now.append(number, number)
    assert now.numbers() == [*range(1000, 1025), *range(1, 10)]
    now.store.close()


def test_damaged_block_costs_itself_only(telemetry, caplog):
    """A block whose bytes rotted is skipped, and said so; the others are served."""
    for number in range(1, 25):
        telemetry.append(number, number)
    telemetry.write()
    with closing(sqlite3.connect(telemetry.store.path)) as other, other:
        other.execute("UPDATE blocks SET data = x'00' WHERE id = 1")
    telemetry.timeline = Timeline()
    with caplog.at_level(logging.WARNING):
        assert telemetry.numbers() == list(range(11, 21))
    assert "skipped" in caplog.text


def test_slow_reader_does_not_hold_the_store(telemetry):
    """Between two pieces of an answer SQLite may empty its log."""
    for number in range(1, 50):
        telemetry.append(number, number)
    telemetry.write()
    telemetry.timeline = Timeline()
    answer = samples_since(History(telemetry.store.path), telemetry.timeline, 0, 1000)
    next(answer)
    with closing(sqlite3.connect(telemetry.store.path)) as other:
        assert other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0
    assert len(list(answer)) == 39
