"""Tasks of a trace become busy time: laws of the union, and whatever a trace can lack."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tegrascope.collectors.dla.tasks import MOST_PENDING, BusyTime, CounterCheck, DlaTasks
from tegrascope.parsers.dla import Ended, Lost, Submitted

HERTZ = 31_250_000
MS = 1_000_000
BOOT_NS = 5_000 * MS
"""CLOCK_MONOTONIC when the counter stood at 0."""

STRETCHES = st.lists(
    st.tuples(st.integers(0, 1000), st.integers(0, 300)).map(lambda t: (t[0], t[0] + t[1])),
    max_size=60,
)


def ticks(ms: float) -> int:
    return round(ms * HERTZ / 1000)


def written(ms: float) -> int:
    return BOOT_NS + round(ms * MS)


def submit(task: int, core: "int | None", ms: float, after_ms: float = 0.05) -> Submitted:
    return Submitted(written(ms + after_ms), task, core, ticks(ms))


def end(task: int, begin_ms: float, end_ms: float, after_ms: float = 0.05) -> Ended:
    return Ended(written(end_ms + after_ms), task, ticks(begin_ms), ticks(end_ms))


def counted(*events: "Submitted | Ended | Lost") -> DlaTasks:
    tasks = DlaTasks(HERTZ)
    for event in events:
        tasks.take(event)
    return tasks


@given(STRETCHES)
def test_union_is_what_is_covered(stretches):
    """Every moment counts once, in whatever order; so it never exceeds wall time."""
    busy = BusyTime()
    gained = [busy.add(*one) for one in stretches]
    covered = {moment for begin, finish in stretches for moment in range(begin, finish)}
    assert busy.total == sum(gained) == len(covered)
    assert min(gained, default=0) >= 0
    assert busy.late == 0
    for moment in range(0, 1300, 7):
        assert busy.is_busy_at(moment) == (moment in covered)


@given(STRETCHES, st.integers(0, 1300))
def test_cutting_time_neither_makes_nor_loses(stretches, cut):
    """Stretches cut in two at some moment are as long as before."""
    whole, halves = BusyTime(), BusyTime()
    for begin, finish in stretches:
        whole.add(begin, finish)
        halves.add(begin, max(begin, min(cut, finish)))
        halves.add(min(finish, max(cut, begin)), finish)
    assert halves.total == whole.total


@given(STRETCHES)
def test_little_memory_never_counts_twice(stretches):
    """What is forgotten is settled: a late stretch may be left out, but is told, never doubled."""
    busy = BusyTime(most=4)
    for one in stretches:
        busy.add(*one)
    covered = {moment for begin, finish in stretches for moment in range(begin, finish)}
    assert busy.total <= len(covered) <= busy.total + busy.late


def test_tasks_are_joined_to_their_core():
    """The end of a task counts for the core that it was submitted to, and for how long."""
    tasks = counted(
        submit(7, 0, 10), submit(8, 1, 11), end(8, 12, 15), end(7, 11, 13), submit(9, 0, 14)
    )
    assert tasks.busy_seconds() == pytest.approx({0: 0.002, 1: 0.003})
    assert tasks.tasks() == {0: 1, 1: 1}
    assert not tasks.troubles
    assert tasks.in_flight(0, written(20))
    assert not tasks.in_flight(1, written(20))


def test_tasks_that_overlap_on_a_core_count_once():
    """Time in which two tasks of one core were under way is one time."""
    tasks = counted(submit(1, 0, 1), submit(2, 0, 1.5), end(1, 2, 6), end(2, 4, 8))
    assert tasks.busy_seconds() == pytest.approx({0: 0.006})
    assert tasks.tasks() == {0: 2}


def test_core_that_is_known_and_idle_was_busy_for_no_time():
    """Zero is told only of a core that is there."""
    tasks = DlaTasks(HERTZ)
    assert tasks.busy_seconds() == {}
    tasks.know(1)
    assert (tasks.busy_seconds(), tasks.tasks()) == ({1: 0.0}, {1: 0})


def test_same_id_on_both_cores_is_told_apart_by_time():
    """Ids are of a queue, and each core numbers its own: the DLA begins after the submission."""
    tasks = counted(
        submit(1, 0, 10), submit(1, 1, 13), end(1, 11, 12), end(1, 14, 16), submit(1, 0, 20)
    )
    assert tasks.busy_seconds() == pytest.approx({0: 0.001, 1: 0.002})
    assert not tasks.troubles


def test_core_that_is_busy_already_is_not_the_one():
    """One core has one task at a time: of two that wait, the idle one has begun."""
    tasks = counted(submit(5, 0, 1), end(5, 2, 30), submit(1, 0, 3), submit(1, 1, 4))
    tasks.take(end(1, 5, 9))
    assert tasks.busy_seconds() == pytest.approx({0: 0.028, 1: 0.004})
    assert not tasks.troubles


def test_doubt_is_counted_and_no_time_is_lost():
    """Two submissions that nothing tells apart: each end counts for one of them, once."""
    tasks = counted(submit(1, 0, 10), submit(1, 1, 10.5), end(1, 11, 12), end(1, 11.2, 13))
    assert tasks.troubles == {"ambiguous": 1}
    assert tasks.tasks() == {0: 1, 1: 1}
    assert sum(tasks.busy_seconds().values()) == pytest.approx(0.0028)


@given(
    st.lists(
        st.tuples(st.sampled_from([0, 1]), st.integers(1, 40), st.integers(0, 20)),
        min_size=1,
        max_size=60,
    ),
    st.booleans(),
    st.randoms(use_true_random=False),
)
def test_busy_time_is_the_time_of_the_tasks(made, shares_ids, random):
    """One core does one task after the other; whatever the ids and delays, no time is made."""
    events, free, numbers, worked = [], {0: 10.0, 1: 10.0}, {0: 0, 1: 0}, {0: 0, 1: 0}
    for core, length, pause in made:
        begin = free[core] + pause
        free[core] = begin + length
        worked[core] += length
        numbers[core] += 1
        task = numbers[core] if shares_ids else numbers[core] * 2 + core
        events.append(submit(task, core, begin - random.uniform(0.1, 9), random.uniform(0, 0.05)))
        events.append(end(task, begin, free[core], random.uniform(0, 3)))
    tasks = counted(*sorted(events, key=lambda event: event.at_ns))
    busy = tasks.busy_seconds()
    assert sum(tasks.tasks().values()) == len(made)
    assert sum(busy.values()) <= sum(worked.values()) / 1000 + 1e-6
    for core, seconds in busy.items():
        assert seconds <= max(free.values()) / 1000
        if not shares_ids:
            assert seconds == pytest.approx(worked[core] / 1000)
    if not tasks.troubles:
        assert sum(busy.values()) == pytest.approx(sum(worked.values()) / 1000)


def test_what_is_missing_is_counted():
    """An end without a submission has no core; a submission without an end no length."""
    tasks = counted(end(3, 1, 2), submit(4, 0, 3), submit(4, 0, 900), end(4, 901, 902), Lost(0, 12))
    tasks.take(Lost(1, None))
    assert tasks.troubles == {"unmatched": 1, "unended": 1, "lost": 13}
    assert tasks.busy_seconds() == pytest.approx({0: 0.001})


def test_submissions_that_never_end_cost_no_memory():
    """A trace that loses every end is forgotten from its beginning on."""
    tasks = counted(*(submit(task, 0, task) for task in range(MOST_PENDING + 10)))
    assert tasks.troubles == {"unended": 10}
    assert not tasks.in_flight(1, written(0))


@pytest.mark.parametrize(
    ("begin", "finish"),
    [(0, 0), (9, 8), ((1 << 64) - 5, 1000), (1, HERTZ * 61), (1 << 63, 1 << 64)],
)
def test_stamps_that_cannot_be_are_no_time(begin, finish):
    """The driver reports whatever the firmware left: nothing of that becomes a busy ratio."""
    tasks = counted(submit(1, 0, 0.0), Ended(written(100), 1, begin, finish))
    assert tasks.busy_seconds() == {0: 0.0}
    assert tasks.tasks() == {0: 1}
    assert tasks.troubles == {"odd": 1}


def test_device_that_is_none_is_left_out():
    """A submission to something that is no DLA core is counted, and its end with it."""
    assert counted(submit(1, None, 1), end(1, 2, 3)).troubles == {"odd": 1, "unmatched": 1}


def test_wrong_counter_is_found_out():
    """A board whose counter is another would have all its busy times wrong by a factor."""
    right, wrong = CounterCheck(HERTZ), CounterCheck(24_000_000)
    for second in range(60):
        for counter in (right, wrong):
            counter.see(HERTZ * second, written(second * 1000 + second % 3 * 0.1))
    assert not right.is_wrong
    assert wrong.is_wrong
    assert wrong.measured_hertz == pytest.approx(HERTZ, rel=1e-3)


def test_suspend_is_no_wrong_counter():
    """The counter goes on in suspend and the clock does not; one such leap says nothing."""
    counter = CounterCheck(HERTZ)
    for second in range(60):
        asleep = 3600 if second > 30 else 0
        counter.see(HERTZ * (second + asleep), written(second * 1000))
    assert not counter.is_wrong
