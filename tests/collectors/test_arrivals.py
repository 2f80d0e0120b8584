"""Each line has its own time, also where a read brings several, or all of them late."""

import logging
import os
from datetime import datetime, timedelta, timezone
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tegrascope.collectors.base import Stamped
from tegrascope.collectors.children.process import DescriptorReader
from tegrascope.collectors.lines.collector import Arrivals, TegrastatsCollector

S = 1_000_000_000
INTERVAL = 103_000_000
WALL = 1_767_225_600 * S


class StillClock:
    """Stands where it is set."""

    now_ns = 100 * S

    def monotonic_ns(self):
        return self.now_ns

    def wall_ns(self):
        return WALL + self.now_ns


class Reads:
    """A live source whose lines come from a pipe: pairs of a time and the lines written then."""

    name, is_live, restarts, problem, interval_seconds = "stream", True, 0, None, INTERVAL / S

    def __init__(self, *reads):
        self.reads = reads

    def lines(self):
        ours, theirs = os.pipe()
        clock = StillClock()
        with DescriptorReader(ours, clock=clock) as reader:
            for clock.now_ns, texts in self.reads:
                os.write(theirs, "".join(f"{text}\n" for text in texts).encode())
                while reader.has_line():
                    line = reader.read()
                    assert isinstance(line, Stamped)
                    yield line
        os.close(ours)
        os.close(theirs)

    def stop(self):
        """Nothing waits."""


def line(number):
    return f"RAM {number}/7607MB VDD_IN 5000mW/5000mW"


def number_of(sample):
    return sample.value.ram.used_bytes >> 20


def printed_at(ns):
    """Return the time that tegrastats prints, in a zone that is two hours ahead."""
    seconds = (WALL + ns) // S
    return datetime.fromtimestamp(seconds, timezone.utc).replace(tzinfo=None) + timedelta(hours=2)


def feed(arrivals, count, late_ns=0, start=100 * S, step=INTERVAL + 14_000_000, offset=WALL):
    """Feed lines that come alone, and return their arrivals."""
    found = []
    for at in range(start, start + count * step, step):
        now = at + late_ns
        found += arrivals.times(now, now + offset, [printed_at(at)], 0.103)
    return found


@given(st.lists(st.integers(1, 20), min_size=2, max_size=30), st.integers(0, INTERVAL))
def test_lines_of_one_read_have_times_of_their_own(counts, waited):
    """No line is lost, times increase, and the truth is within what is stated."""
    reads, truth, alone = [], [], []
    for count in counts:
        first = len(truth)
        alone += [count == 1] * count
        truth += [100 * S + i * INTERVAL for i in range(first, first + count)]
        reads.append((truth[-1] + waited, [line(i) for i in range(first, first + count)]))
    collector = TegrastatsCollector(Reads(*reads))
    samples = list(collector.collect())
    assert [number_of(one) for one in samples] == list(range(len(truth)))
    times = [one.monotonic_ns for one in samples]
    assert all(a < b for a, b in pairwise(times))
    # The first read has no line before it, so only the configured interval.
    known = slice(counts[0], None)
    for one, at, is_alone in zip(samples[known], truth[known], alone[known], strict=True):
        reach = waited / S if is_alone else 0.0
        assert one.monotonic_ns - (one.late_seconds + reach) * S - 1 <= at <= one.monotonic_ns + 1
        assert one.wall_ns - one.monotonic_ns == WALL
    assert collector.backlog == sum(count for count in counts if count > 1)
    assert collector.samples == len(truth)


def test_a_line_that_comes_alone_is_not_late():
    collector = TegrastatsCollector(Reads(*((100 * S + i * S, [line(i)]) for i in range(9))))
    samples = list(collector.collect())
    assert [one.late_seconds for one in samples] == [0.0] * 9
    assert [one.following for one in samples] == [0] * 9
    assert collector.backlog == 0


def test_a_backlog_is_logged_once(caplog):
    reads = ((100 * S + i * S, [line(i), "noise", line(i)]) for i in range(4))
    with caplog.at_level(logging.WARNING):
        samples = list(TegrastatsCollector(Reads(*reads)).collect())
    assert len(samples) == 8
    assert [record.message for record in caplog.records] == [
        "stream: 2 lines arrived together: their times are estimated (docs/sources.md)"
    ]


@pytest.mark.parametrize("slow", [0.001, 0.6])
def test_after_a_freeze_the_newest_line_may_be_old(slow):
    """A full pipe holds the oldest lines, and the writer, which may be slow, one more."""
    reads = [(100 * S + i * S, [line(i)]) for i in range(10)]
    reads.append((134 * S, [line(10 + i) for i in range(3)]))  # 3 of 25 s
    reads += [(134 * S + round(slow * S), [line(13)]), (135 * S, [line(14)])]
    samples = list(TegrastatsCollector(Reads(*reads)).collect())
    oldest = [(one.monotonic_ns / S - one.late_seconds) for one in samples]
    # Printed at 110, 111, 112 and 113 s.
    for one, at, earliest in zip(samples[10:14], range(110, 114), oldest[10:14], strict=True):
        assert earliest <= at <= one.monotonic_ns / S
    assert samples[-1].late_seconds == 0.0
    assert [one.following for one in samples[10:]] == [2, 1, 0, 0, 0]


def test_a_printed_second_tells_how_old_a_backlog_is():
    arrivals = Arrivals()
    feed(arrivals, 80)
    begin = 100 * S + 80 * 117_000_000
    truth = [begin + i * 117_000_000 for i in range(10)]
    now = begin + 25 * S
    found = arrivals.times(now, now + WALL, list(map(printed_at, truth)), 0.103)
    for one, at in zip(found, truth, strict=True):
        assert 0 <= (one.monotonic_ns - at) / S <= one.late_seconds <= 1.05


@pytest.mark.parametrize("hop", [0.4, 1.3])
def test_regular_lateness_is_found(hop):
    """Before it is measured, a line may be as late as the earliest line in its second."""
    found = feed(Arrivals(), 200, late_ns=round(hop * S))
    assert all(hop <= one.late_seconds <= hop + 1 for one in found[:60])
    assert all(hop <= one.late_seconds < hop + 0.1 for one in found[80:])


@pytest.mark.parametrize("step", [117_000_000, 1_023_500_000])
def test_a_source_is_on_time_from_the_first_line_that_comes_early_in_its_second(step):
    found = feed(Arrivals(), 300, late_ns=30_000_000, step=step, start=100 * S + 700_000_000)
    late = [one.late_seconds for one in found]
    first = late.index(0.0)
    assert all(seconds == pytest.approx(0.73) for seconds in late[:first])
    assert first == -(-300_000_000 // (step % S))
    assert set(late[first:]) == {0.0}


def test_a_source_that_always_prints_late_in_a_second_may_be_late():
    """No other time of a second shows that it is not."""
    found = feed(Arrivals(), 300, late_ns=30_000_000, step=S, start=100 * S + 700_000_000)
    assert {round(one.late_seconds, 6) for one in found} == {0.73}


def test_after_a_clock_step_lateness_is_unknown_again():
    arrivals = Arrivals()
    assert feed(arrivals, 100)[-1].late_seconds == 0.0
    step = 117_000_000
    found = feed(arrivals, 59, start=100 * S + 100 * step, offset=WALL + 400_000_000)
    assert all(one.late_seconds >= 0.4 for one in found)
    assert found[-1].late_seconds < 0.5
    # A clock that differs by more than any hop takes is not lateness either.
    found = feed(Arrivals(), 200, offset=WALL + 40 * S)
    assert {one.late_seconds for one in found} == {0.0}
