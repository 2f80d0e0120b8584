"""Lines of any source become Samples, and other lines are counted."""

from collections.abc import Iterator

import pytest

from tegrascope.collectors.base import Stamped
from tegrascope.collectors.lines.collector import (
    TegrastatsCollector,
    tegrastats_command,
)


class Lines:
    """A source of given lines, a second apart."""

    name = "given"
    is_live = False
    interval_seconds = 1.0
    restarts = 0
    problem = None

    def __init__(self, *lines: str) -> None:
        self._lines = lines
        self.stopped = False

    def lines(self) -> Iterator[Stamped[str]]:
        """Yield them until stopped."""
        for number, line in enumerate(self._lines):
            if self.stopped:
                return
            yield Stamped(number * 10**9, 10**18 + number, line)

    def stop(self) -> None:
        """End the lines."""
        self.stopped = True


def test_each_record_keeps_the_stamp_of_its_line():
    """Values and times come through together, also behind noise."""
    collector = TegrastatsCollector(Lines("RAM 1/2MB", "noise", "RAM 2/2MB VDD_IN 5139mW/4890mW"))
    first, second = collector.collect()
    assert (first.monotonic_ns, first.wall_ns) == (0, 10**18)
    assert (second.monotonic_ns, second.wall_ns) == (2 * 10**9, 10**18 + 2)
    assert second.value.rails["VDD_IN"].instant_watts == 5.139


def test_what_is_no_record_is_counted_by_reason():
    """Lines and words that are not understood are numbers, never an end."""
    collector = TegrastatsCollector(Lines("", "^C", "$ tegrastats", "RAM 1/2MB FUTURE_TOKEN odd"))
    assert len(list(collector.collect())) == 1
    assert (collector.lines, collector.samples) == (4, 1)
    assert collector.unparsed == {"empty": 1, "noise": 2}
    assert collector.tokens_unparsed == 2
    collector.unparsed.clear()
    assert collector.unparsed


def test_stop_stops_the_source():
    """The collector ends with its source."""
    collector = TegrastatsCollector(Lines("RAM 1/2MB", "RAM 2/2MB"))
    records = collector.collect()
    next(records)
    collector.stop()
    assert list(records) == []
    assert collector.samples == 1


@pytest.mark.parametrize(
    ("seconds", "milliseconds"), [(1.009, "1009"), (0.103, "103"), (0.0001, "1")]
)
def test_the_interval_is_given_in_milliseconds(seconds, milliseconds):
    """As tegrastats wants it, behind the program and its own arguments."""
    assert tegrastats_command(seconds, ["sudo", "tegrastats"]) == [
        "sudo",
        "tegrastats",
        "--interval",
        milliseconds,
    ]
