import math
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tegrascope.daemon.measure.blocks import decode
from tegrascope.daemon.measure.timeline import Timeline

SECOND = 1_000_000_000
VALUES = st.dictionaries(
    st.sampled_from("abc"), st.floats(allow_nan=False, allow_infinity=False), max_size=3
)


def fill(timeline, samples):
    for time, values in samples:
        assert timeline.append(time, time + 7, values)


def rows(cut):
    """Return a cut as (time, wall, values that are present), one a sample."""
    return [
        (time, wall, {n: c[i] for n, c in cut.columns.items() if not math.isnan(c[i])})
        for i, (time, wall) in enumerate(zip(cut.times_ns, cut.wall_ns, strict=True))
    ]


@given(
    st.lists(st.tuples(st.integers(1, 6 * SECOND), VALUES), max_size=40),
    st.integers(-5, 150),
    st.integers(0, 100),
)
def test_cut_is_what_a_list_would_give(steps, begin, length):
    """A cut is the samples of the window and one neighbour a side, across blocks and columns."""
    timeline = Timeline()
    time, samples = 0, []
    for step, values in steps:
        time += step
        samples.append((time, values))
    fill(timeline, samples)
    low, high = begin * SECOND, (begin + length) * SECOND
    before = [s for s in samples if s[0] < low][-1:]
    after = [s for s in samples if s[0] > high][:1]
    inside = [s for s in samples if low <= s[0] <= high]
    expected = [(t, t + 7, values) for t, values in [*before, *inside, *after]]
    assert rows(timeline.cut(low, high)) == expected


def test_cut_gives_only_the_columns_asked_for():
    """Columns may be chosen by name, in sealed blocks and in the open one."""
    timeline = Timeline(block_seconds=1)
    fill(timeline, [(t * SECOND, {"a": t, "b": t}) for t in range(5)])
    cut = timeline.cut(0, 9 * SECOND, wanted=lambda name: name == "b")
    assert {name: column.tolist() for name, column in cut.columns.items()} == {"b": [0, 1, 2, 3, 4]}


def test_blocks_are_sealed_in_order_and_hold_everything():
    """Every sample is in one sealed block, in order, after the last of them is sealed by hand."""
    sealed = []
    timeline = Timeline(block_seconds=10, on_sealed=sealed.append, source="replay")
    fill(timeline, [(t * SECOND, {"a": t}) for t in range(25)])
    assert [(b.begin_ns, b.end_ns, b.count) for b in sealed] == [
        (0, 9 * SECOND, 10),
        (10 * SECOND, 19 * SECOND, 10),
    ]
    timeline.seal()
    timeline.seal()
    assert (sealed[2].wall_begin_ns, sealed[2].wall_end_ns) == (20 * SECOND + 7, 24 * SECOND + 7)
    blocks = [decode(block.data) for block in sealed]
    assert {block.source for block in blocks} == {"replay"}
    assert [v for block in blocks for v in block.columns["a"]] == list(range(25))


def test_old_blocks_go():
    """What ended before the span is dropped; memory does not grow with time."""
    timeline = Timeline(span_seconds=60, block_seconds=10)
    fill(timeline, [(t * SECOND, {"a": t}) for t in range(1000)])
    times = timeline.cut(0, 1000 * SECOND).times_ns
    assert 60 <= len(times) <= 80
    assert times[-1] == 999 * SECOND


def test_an_hour_of_ten_a_second_fits():
    """An hour at 10 Hz with 60 columns, a third of them moving, takes less than 3 MiB."""
    kept = []
    timeline = Timeline(on_sealed=lambda block: kept.append(len(block.data)))
    still = {f"still.{i}": 729e6 + i for i in range(40)}
    for n in range(36_000):
        if n % 20 == 0:
            phase = n / 20
            moving = {f"moving.{i}": round(9 + math.sin(phase * (i + 1)), 2) for i in range(20)}
        moving[f"moving.{n % 20}"] = (n * 7919 % 1000) / 100
        timeline.append(n * 103_000_000 + n * 7919 % 997, n, {**still, **moving})
    assert sum(kept) < 3 * 2**20


def test_time_does_not_go_back():
    """A sample that is not later than the newest is refused and counted, and changes nothing."""
    timeline = Timeline()
    fill(timeline, [(5, {"a": 1.0}), (9, {"a": 2.0})])
    assert not timeline.append(9, 0, {"a": 3.0})
    assert not timeline.append(7, 0, {"b": 3.0})
    assert timeline.refused == 2
    assert rows(timeline.cut(0, 10)) == [(5, 12, {"a": 1.0}), (9, 16, {"a": 2.0})]


def test_interval_is_the_median_of_late():
    """The interval is that of the latest samples, and one late line does not move it."""
    timeline = Timeline()
    assert timeline.interval_seconds is None
    fill(timeline, [(t * SECOND, {}) for t in (0, 1, 2, 3, 9, 10, 11)])
    assert timeline.interval_seconds == 1


def test_waiting_ends_with_the_sample():
    """Who waits for a time wakes when a later sample comes, and is told when none does."""
    timeline = Timeline()
    timeline.append(5, 5, {})
    assert not timeline.wait_past(5, timeout_seconds=0)
    woken = []
    waiter = threading.Thread(target=lambda: woken.append(timeline.wait_past(5, 30)))
    waiter.start()
    timeline.append(6, 6, {})
    waiter.join(60)
    assert woken == [True]


@pytest.mark.parametrize(("since", "expected"), [(-1, 25), (7 + 12 * SECOND, 15), (10**18, 0)])
def test_blocks_since_a_wall_time(since, expected):
    """Blocks that end after a wall time come whole, the open one among them."""
    timeline = Timeline()
    fill(timeline, [(t * SECOND, {"a": t}) for t in range(25)])
    assert sum(len(block.times_ns) for block in timeline.blocks_since(since)) == expected
