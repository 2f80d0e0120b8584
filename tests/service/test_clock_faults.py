"""The wiring under clocks that are set and machines that sleep: flags, times, and what is kept."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tegrascope.collectors.base import SYSTEM_CLOCK
from tegrascope.daemon.service.service import Periods, Service
from tegrascope.daemon.settings.config import Config
from tegrascope.daemon.store.history import History
from tegrascope.daemon.web.server import bind
from tests.fakes.processes import until

S = 1_000_000_000
YEAR = 365 * 86_400 * S
# Its run ends when the test has done what is to be done in the middle of it.
PROGRAM = "while [ ! -e {end} ]; do sleep 0.02; done; rm {end}"


def settings(end: Path) -> "dict[str, Any]":
    command = ("sh", "-c", PROGRAM.format(end=end))
    workload = {"name": "w", "command": command, "device": "cpu", "baseline": 0, "warm_up": 0}
    telemetry = {"source": "simulator", "interval": 0.05}
    return {"telemetry": telemetry, "workloads": [{**workload, "duration": 0.1, "timeout": 600}]}


class SetClock(type(SYSTEM_CLOCK)):
    """The real clocks, the wall's with an offset, and a sleep that somebody claims took place."""

    def __init__(self, offset_ns: int = 0) -> None:
        self.offset_ns = offset_ns
        self.asleep_ns = 0

    def wall_ns(self) -> int:
        """Return wall time as it was set."""
        return time.time_ns() + self.offset_ns

    def boottime_ns(self) -> int:
        """Return time since boot, with the sleep."""
        return super().boottime_ns() + self.asleep_ns


class Board:
    """A service on a clock that can be set."""

    def __init__(self, directory: Path, clock: SetClock) -> None:
        self.clock = clock
        self._end = directory.with_name("end")
        self.service = Service(
            Config.model_validate(settings(self._end)),
            directory,
            bind("127.0.0.1:0"),
            clock=clock,
            periods=Periods(tick_ns=50_000_000, prune_ns=100_000_000),
        )
        self.prunes = 0
        prune = self.service.session.store.prune

        def counted(*arguments: int) -> None:
            prune(*arguments)
            self.prunes += 1

        self.service.session.store.prune = counted
        self.service.start()
        self.wait_for(lambda: self.service.problem() is None)

    def wait_for(self, what: Callable[[], Any]) -> Any:
        found: list[Any] = []
        assert until(lambda: found.append(what()) or found[-1])
        return found[-1]

    def wait_for_samples(self) -> None:
        seen = self.samples()
        self.wait_for(lambda: self.samples() > seen + 3)

    def run(self, amid: Callable[[], None] = lambda: None) -> "dict[str, Any]":
        """Run the workload, do something in the middle of it, and return its record."""
        run_id = self.service.start_run("w")
        self.wait_for(lambda: self.service.live.snapshot.workloads["w"].active_run == run_id)
        self.wait_for(lambda: run_id in self.service.session.times.others(""))
        self.wait_for_samples()
        amid()
        self.wait_for_samples()
        self._end.touch()
        return self.wait_for(lambda: History(self.service.session.store.path).run(run_id))

    def prune(self) -> None:
        """Wait for two whole prunes, which know the clock as it is now."""
        seen = self.prunes
        self.wait_for(lambda: self.prunes > seen + 2)

    def samples(self) -> int:
        return sum(source.samples for source in self.service.live.snapshot.sources)

    def stored(self) -> "list[dict[str, Any]]":
        return list(History(self.service.session.store.path).runs())


@pytest.fixture
def board(tmp_path: Path) -> "Iterator[Callable[..., Board]]":
    """Make boards on one state directory, in haste; what was started is stopped."""
    made: list[Board] = []

    def make(offset_ns: int = 0) -> Board:
        made.append(Board(tmp_path / "state", SetClock(offset_ns)))
        return made[-1]

    yield make
    for one in made:
        one.service.stop()


def test_step_from_1970_to_now_flags_the_run_and_costs_none(board):
    """The run across the step is flagged, its lengths are right; later times are right as well."""
    one = board(offset_ns=-time.time_ns() + 100 * S)
    early = one.run()
    assert early["quality"].count("clock_step") == 0
    assert 100 * S <= early["started_wall_ns"] < 200 * S

    across = one.run(lambda: setattr(one.clock, "offset_ns", 0))
    assert "clock_step" in across["quality"]
    assert 0.2 < (across["ended_ns"] - across["started_ns"]) / S < 600

    late = one.run()
    assert "clock_step" not in late["quality"]
    assert abs(late["started_wall_ns"] - time.time_ns()) < 120 * S
    one.prune()
    assert {run["run_id"] for run in one.stored()} == {
        *(early["run_id"], across["run_id"], late["run_id"]),
    }


@pytest.mark.parametrize("years", [50, -50, 0.2])
def test_clock_that_is_sent_away_and_comes_back_deletes_nothing(board, years):
    """Fifty years on, fifty back, or two months on: runs and telemetry of before are all there."""
    one = board()
    first = one.run()
    one.service.session.timeline.seal()
    blocks = History(one.service.session.store.path).blocks
    one.wait_for(lambda: list(blocks(0, time.time_ns() + S)))
    before = len(list(blocks(0, time.time_ns() + S)))
    one.clock.offset_ns = int(years * YEAR)
    then = one.run()
    one.service.session.timeline.seal()
    one.prune()
    one.clock.offset_ns = 0
    last = one.run()
    one.prune()
    assert [run["run_id"] for run in (first, then, last) if run not in one.stored()] == []
    if years != 0.2:  # two months on is believed, and telemetry is kept for a week
        assert len(list(blocks(0, time.time_ns() + S))) >= before
    one.wait_for(lambda: one.service.problem() is None)


def test_sleep_in_a_run_flags_it(board):
    """CLOCK_BOOTTIME gains on CLOCK_MONOTONIC by the sleep; the next run is as any other."""
    one = board()

    def sleep() -> None:
        one.clock.asleep_ns = 3600 * S

    assert "suspended" in one.run(sleep)["quality"]
    assert "suspended" not in one.run()["quality"]


def test_times_of_samples_follow_the_clock(board):
    """What the API gives after a step bears the new time, and what was before keeps its own."""
    one = board(offset_ns=-time.time_ns() + 100 * S)
    one.clock.offset_ns = 0
    one.wait_for_samples()
    one.service.session.timeline.seal()
    found = one.wait_for(
        lambda: list(
            History(one.service.session.store.path).blocks(time.time_ns() - 60 * S, 1 << 62)
        )
    )
    from tegrascope.daemon.measure.blocks import decode

    walls = [wall for data in found for wall in decode(data).wall_ns]
    assert walls[0] < 200 * S
    assert abs(walls[-1] - time.time_ns()) < 120 * S
