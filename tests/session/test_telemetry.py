"""The feed: samples and what is read beside them come into the timeline together."""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

import pytest

from tegrascope.collectors.base import LineSource, Stamped
from tegrascope.collectors.lines.collector import TegrastatsCollector
from tegrascope.collectors.lines.program import ProcessSource
from tegrascope.collectors.simulator.board import JumpClock, SimulatorSource
from tegrascope.daemon.export.metrics import Page
from tegrascope.daemon.export.snapshot import LiveState, Snapshot
from tegrascope.daemon.measure.running_energy import EnergyCounters
from tegrascope.daemon.measure.timeline import Timeline
from tegrascope.daemon.session.telemetry import TelemetryFeed
from tegrascope.parsers.signals import DLA_TRACE_ERRORS, FAN_SPEED, GPU_LOAD, LATE_SECONDS, Column
from tegrascope.parsers.tegrastats import parse_line


class Beside:
    """Counts how often it is asked, and says what it is told to say."""

    def __init__(
        self,
        name: str,
        said: Mapping[Column, float] = MappingProxyType({}),
        problem: str | None = None,
        source: LineSource | None = None,
    ) -> None:
        self.name = name
        self.source = source
        self.problem = problem
        self.said = said
        self.asked = self.started = self.stopped = 0

    def start(self) -> None:
        self.started += 1

    def columns(self) -> Mapping[Column, float]:
        self.asked += 1
        return {**self.said, (DLA_TRACE_ERRORS, self.name): self.asked}

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
    assert timeline.wait_past(seconds * 1_000_000_000, 120)
    feed.stop()
    return timeline, live


def test_companions_are_read_with_each_sample():
    """Their columns bear the time of the line; the line itself knows better, then the first."""
    first = Beside("one", {(FAN_SPEED, "x"): 0.25, (GPU_LOAD, ""): 9.0})
    second = Beside("two", {(FAN_SPEED, "x"): 0.75})
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


def test_an_outage_of_a_reader_is_logged_by_its_source_alone(caplog):
    source = ProcessSource(["/none/reader"], interval_seconds=1.0, name="ill")
    source.problem = "no reader: look at dmesg"
    _, live = take((Beside("ill", problem=source.problem, source=source),))
    assert live.snapshot.companions_up == {"ill": False}
    assert "dmesg" not in caplog.text
    take((Beside("ill", problem="no answer: look at dmesg", source=source),))
    assert "ill: no answer: look at dmesg" in caplog.text


def test_a_companion_that_names_a_column_without_its_row_is_down():
    unnamed = Beside("odd", {("battery.BAT0.cycle_count", ""): 0.5})  # type: ignore[dict-item]
    _, live = take((unnamed, Beside("well")))
    assert live.snapshot.companions_up == {"odd": False, "well": True}
    assert not [name for name in live.snapshot.values if "cycle_count" in name]


@pytest.mark.unknown_columns
def test_a_label_that_its_row_cannot_have_is_counted_and_logged_once(caplog):
    timeline, live = take((Beside("odd", {(FAN_SPEED, ""): 0.5}),))
    assert live.snapshot.sources[0].columns_unknown == live.snapshot.sources[0].samples
    assert set(timeline.cut(0, 5_000_000_000).columns["fans..speed_ratio"]) == {0.5}
    told = [record.message for record in caplog.records if "fans..speed_ratio" in record.message]
    assert len(told) == 1


S = 1_000_000_000


class Lines:
    """A live source of given lines."""

    name, is_live, restarts, problem, interval_seconds = "tegrastats", True, 0, None, 1.0

    def __init__(self, lines: Sequence[Stamped[str]]) -> None:
        self._lines = lines

    def lines(self) -> Iterator[Stamped[str]]:
        return iter(self._lines)

    def stop(self) -> None:
        """Nothing waits."""


def test_a_backlog_is_never_shown_as_now(caplog):
    """After a freeze of 25 s, 22 of which the newest line missed, the source is not up."""
    alone = [Stamped(t * S, t * S, f"RAM {t}/99MB") for t in range(1, 11)]
    together = [Stamped(35 * S, 35 * S, f"RAM {11 + i}/99MB", 2 - i) for i in range(3)]
    current = Stamped(37 * S, 37 * S, "RAM 37/99MB")
    collector = TegrastatsCollector(Lines([*alone, *together, current]))
    companion = Beside("one")
    timeline, live = Timeline(), LiveState(Snapshot())
    feed = TelemetryFeed(
        collector,
        timeline=timeline,
        energy=EnergyCounters(),
        live=live,
        occupancy=lambda *_: {},
        companions=(companion,),
    )
    shown, up = [], []
    for sample in collector.collect():
        feed.take(sample)
        shown.append(live.snapshot.values["ram.used_bytes"] / 2**20)
        now_ns = max(sample.monotonic_ns, 35 * S * (sample.monotonic_ns > 10 * S))
        up.append(live.snapshot.sources[0].is_fresh(now_ns))
    assert shown == [*range(1, 11), 10, 10, 13, 37]
    assert up == [True] * 10 + [False] * 3 + [True]
    assert companion.asked == 12
    cut = timeline.cut(0, 99 * S)
    assert len(cut.times_ns) == 14
    late = cut.columns[LATE_SECONDS.column()]
    # The newest line was printed at 13 s.
    assert cut.times_ns[12] / S - late[12] <= 13
    page = Page(lambda: live.snapshot, lambda: 37 * S).render("")[0].decode()
    assert 'tegrascope_samples_backlog_total{source="tegrastats"} 3.0' in page
    assert 'tegrascope_samples_refused_total{source="tegrastats"} 0.0' in page
    assert "tegrascope_sample_late_seconds" not in page

    feed.take(Stamped(36 * S, 36 * S, parse_line("RAM 36/99MB")))
    assert live.snapshot.values["ram.used_bytes"] == 37 * 2**20
    feed.refresh()
    assert live.snapshot.sources[0].refused == 1
    assert "not later than the one before" in caplog.text
