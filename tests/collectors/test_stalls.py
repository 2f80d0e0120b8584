"""What a process notes of itself around an inference that missed its deadline."""

import signal
import threading

import pytest

from tegrascope.collectors.processes.stalls import (
    StallWatch,
    count_continuations,
)
from tegrascope.parsers.inference.events import Stall
from tegrascope.parsers.inference.marks import STALLS_AT_MOST

MS = 1_000_000


@pytest.fixture
def watch():
    made = StallWatch(33 * MS, 0)
    yield made
    made.close()


def taken(watch):
    misses, stalls = watch.take()
    return misses, [Stall.model_validate(one) for one in stalls]


def test_inferences_in_time_leave_nothing(watch):
    for number in range(100):
        watch.add(number * 40 * MS, number * 40 * MS + 33 * MS)
    assert taken(watch) == (0, [])


def test_all_misses_are_counted_and_the_last_are_kept_until_they_are_taken(watch):
    for number in range(50):
        watch.add(number * 40 * MS, number * 40 * MS + 34 * MS)
    misses, stalls = taken(watch)
    assert (misses, len(stalls)) == (50, STALLS_AT_MOST)
    assert [one.start_ns for one in stalls] == [at * 40 * MS for at in range(30, 50)]
    assert taken(watch) == (0, [])


def test_a_stop_counts_for_the_inference_in_which_the_process_continues(watch):
    before = signal.getsignal(signal.SIGCONT)
    count_continuations()
    try:
        watch.add(0, 40 * MS)
        signal.raise_signal(signal.SIGCONT)
        watch.add(40 * MS, 80 * MS)
        watch.add(80 * MS, 120 * MS)
    finally:
        signal.signal(signal.SIGCONT, before)
    assert [one.continued for one in taken(watch)[1]] == [0, 1, 0]


def test_inferences_in_flight_at_once_are_looked_at_from_before_their_start(watch):
    """A look between start and end of another inference hides nothing of it."""
    before = signal.getsignal(signal.SIGCONT)
    count_continuations()
    try:
        watch.add(0, 10 * MS)
        signal.raise_signal(signal.SIGCONT)
        watch.add(15 * MS, 25 * MS)
        watch.add(12 * MS, 60 * MS)
    finally:
        signal.signal(signal.SIGCONT, before)
    (stall,) = taken(watch)[1]
    assert (stall.start_ns, stall.continued) == (12 * MS, 1)


def test_waits_are_those_of_a_thread_that_makes_all_inferences():
    found = {}

    def infer(*, is_of_one_thread):
        watch = StallWatch(33 * MS, 0, is_of_one_thread=is_of_one_thread)
        watch.add(0, 40 * MS)
        (stall,) = taken(watch)[1]
        found[is_of_one_thread] = stall.waited_ns
        watch.close()

    for is_of_one_thread in (False, True):
        thread = threading.Thread(target=infer, kwargs={"is_of_one_thread": is_of_one_thread})
        thread.start()
        thread.join()
    assert found[False] is None
    assert found[True] is None or found[True] >= 0
