"""The feed: samples and what is read beside them come into the timeline together."""

from collections.abc import Mapping

from tegrascope.collectors.simulator import JumpClock, SimulatorSource
from tegrascope.collectors.tegrastats import TegrastatsCollector
from tegrascope.daemon.energy_counters import EnergyCounters
from tegrascope.daemon.ledger import Ledger
from tegrascope.daemon.snapshot import Snapshot
from tegrascope.daemon.telemetry import TelemetryFeed
from tegrascope.daemon.timeline import Timeline


class Beside:
    """Counts how often it is asked, and says what it is told to say."""

    problem: str | None = None

    def __init__(self, name: str, **said: float) -> None:
        self.name = name
        self.said = {column.replace("__", "."): value for column, value in said.items()}
        self.asked = self.started = self.stopped = 0

    def start(self) -> None:
        self.started += 1

    def columns(self) -> Mapping[str, float]:
        self.asked += 1
        return {**self.said, f"{self.name}.asked": self.asked}

    def stop(self) -> None:
        self.stopped += 1


def test_companions_are_read_with_each_sample():
    """Their columns bear the time of the line; the line itself knows better, then the first."""
    clock = JumpClock()
    timeline, ledger = Timeline(), Ledger(Snapshot())
    first = Beside("one", fan__speed_ratio=0.25, gpu__utilization_ratio=9.0)
    second = Beside("two", fan__speed_ratio=0.75)
    source = SimulatorSource(clock=clock, interval_seconds=1.0)
    feed = TelemetryFeed(
        TegrastatsCollector(source),
        timeline=timeline,
        energy=EnergyCounters(),
        ledger=ledger,
        occupancy=lambda *_: {},
        companions=(first, second),
    )
    feed.start()
    assert timeline.wait_past(5_000_000_000, 20)
    feed.stop()
    cut = timeline.cut(0, 5_000_000_000)
    assert set(cut.columns["fan.speed_ratio"]) == {0.25}
    assert max(cut.columns["gpu.utilization_ratio"]) <= 1.0
    assert list(cut.columns["one.asked"])[:3] == [1.0, 2.0, 3.0]
    assert ledger.snapshot.beside["two.asked"] >= 5
    assert (first.started, second.started) == (1, 1)
    assert min(first.stopped, second.stopped) >= 1
