"""The feed: samples and what is read beside them come into the timeline together."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import pytest

from tegrascope.collectors.lines.collector import TegrastatsCollector
from tegrascope.collectors.simulator.board import JumpClock, SimulatorSource
from tegrascope.daemon.export.snapshot import LiveState, Snapshot
from tegrascope.daemon.measure.energy import EnergyCounters
from tegrascope.daemon.measure.timeline import Timeline
from tegrascope.daemon.session.telemetry import TelemetryFeed
from tegrascope.parsers.signals import DLA_TRACE_ERRORS, FAN_SPEED, GPU_LOAD


class Beside:
    """Counts how often it is asked, and says what it is told to say."""

    def __init__(
        self,
        name: str,
        said: Mapping[str, float] = MappingProxyType({}),
        problem: str | None = None,
    ) -> None:
        self.name = name
        self.problem = problem
        self.said = said
        self.asked = self.started = self.stopped = 0

    def start(self) -> None:
        self.started += 1

    def columns(self) -> Mapping[str, float]:
        self.asked += 1
        return {**self.said, DLA_TRACE_ERRORS.column(self.name): self.asked}

    def stop(self) -> None:
        self.stopped += 1


def take(companions: Sequence[Beside], seconds: int = 5) -> tuple[Timeline, LiveState]:
    """Feed some seconds of the simulated board, with companions beside it."""
    clock = JumpClock()
    timeline, live = Timeline(), LiveState(Snapshot())
    source = SimulatorSource(clock=clock, interval_seconds=1.0)
    feed = TelemetryFeed(
        TegrastatsCollector(source),
        timeline=timeline,
        energy=EnergyCounters(),
        live=live,
        occupancy=lambda *_: {},
        companions=companions,
    )
    feed.start()
    assert timeline.wait_past(seconds * 1_000_000_000, 20)
    feed.stop()
    return timeline, live


def test_companions_are_read_with_each_sample():
    """Their columns bear the time of the line; the line itself knows better, then the first."""
    first = Beside("one", {FAN_SPEED.column("x"): 0.25, GPU_LOAD.column(): 9.0})
    second = Beside("two", {FAN_SPEED.column("x"): 0.75})
    timeline, live = take((first, second))
    cut = timeline.cut(0, 5_000_000_000)
    assert set(cut.columns[FAN_SPEED.column("x")]) == {0.25}
    assert max(cut.columns[GPU_LOAD.column()]) <= 1.0
    assert list(cut.columns[DLA_TRACE_ERRORS.column("one")])[:3] == [1.0, 2.0, 3.0]
    assert live.snapshot.values[DLA_TRACE_ERRORS.column("two")] >= 5
    assert live.snapshot.values[GPU_LOAD.column()] <= 1.0
    assert (first.started, second.started) == (1, 1)
    assert min(first.stopped, second.stopped) >= 1


def test_a_companion_in_trouble_is_down_and_told_once(caplog):
    """Each has its own health; what is wrong stands in the log once, not with each sample."""
    _, live = take((Beside("well"), Beside("ill", problem="no answer: look at dmesg")))
    assert live.snapshot.companions_up == {"well": True, "ill": False}
    told = [record.message for record in caplog.records if "dmesg" in record.message]
    assert told == ["ill: no answer: look at dmesg"]


@pytest.mark.unknown_columns
def test_a_column_that_no_signal_describes_is_counted_and_logged_once(caplog):
    timeline, live = take((Beside("odd", {"battery.BAT0.charge_ratio": 0.5}),))
    assert live.snapshot.sources[0].columns_unknown == live.snapshot.sources[0].samples
    assert set(timeline.cut(0, 5_000_000_000).columns["battery.BAT0.charge_ratio"]) == {0.5}
    told = [record.message for record in caplog.records if "battery.BAT0" in record.message]
    assert len(told) == 1
