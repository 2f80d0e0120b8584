"""A board's energy counter over a window: what it grew by, and how far that can be trusted."""

import random
from array import array
from collections.abc import Callable
from math import floor, nan

import pytest

from tegrascope.daemon.measure.blocks import WindowSlice
from tegrascope.daemon.measure.counter import TICK_SECONDS, counter_energy, counter_fault
from tegrascope.daemon.measure.energy_report import timing_of
from tegrascope.daemon.measure.report import Environment, Span

S = 1_000_000_000


def cut_of(
    readings: "list[tuple[float, float, float]]",
    read_seconds: float = 0.004,
    watts: "Callable[[float], float]" = lambda _: 50.0,
) -> WindowSlice:
    """Make samples of (time, counter, seconds from the sample to the counter's reading)."""
    times, joules, after = zip(*readings, strict=True)
    return WindowSlice(
        array("q", [round(time * S) for time in times]),
        array("q", [0] * len(times)),
        {
            "rails.GPU.instant_watts": array("d", map(watts, times)),
            "rails.GPU.counter_joules": array("d", joules),
            "rails.GPU.counter_after_seconds": array("d", after),
            "rails.GPU.counter_read_seconds": array("d", [read_seconds] * len(times)),
        },
    )


def window(begin: float, end: float) -> Span:
    return Span(begin_ns=round(begin * S), end_ns=round(end * S))


def test_steady_power_is_counted_exactly():
    """At constant power interpolation at the edges is right to the last digit."""
    cut = cut_of([(t, 50.0 * t, 0.0) for t in range(20)])
    found = counter_energy(cut, "GPU", window(2.3, 14.9))
    assert found is not None
    assert found.joules == pytest.approx(50 * 12.6)
    assert found.edge_joules == pytest.approx(50 * (TICK_SECONDS + 0.004))


def test_counter_is_of_its_own_time():
    """A reading that came after the sample's stamp is placed where it was made."""
    cut = cut_of([(t, 50.0 * (t + 0.25), 0.25) for t in range(20)])
    found = counter_energy(cut, "GPU", window(3, 13))
    assert found is not None
    assert found.joules == pytest.approx(500)


@pytest.mark.parametrize("interval", [0.103, 1.009])
def test_truth_lies_within_the_edges(interval):
    """Power that steps at the edges, ticks and slow reads: the error that is named holds."""
    chance = random.Random(5)
    for _ in range(200):
        idle, work = chance.uniform(20, 100), chance.uniform(100, 600)
        begin = chance.uniform(3, 5)
        end = begin + chance.uniform(10, 30)
        tick, phase = TICK_SECONDS, chance.uniform(0, TICK_SECONDS)

        def truth(t, begin=begin, end=end, idle=idle, work=work):
            return idle * t + (work - idle) * min(max(t - begin, 0), end - begin)

        readings, at = [], 0.0
        while at < end + 3:
            read = chance.uniform(0.003, 0.016)
            made = at + chance.uniform(0, read)  # somewhere within the reading
            ticked = floor((made - phase) / tick) * tick + phase
            readings.append((at, truth(ticked), read / 2))
            at += interval

        def power(t, begin=begin, end=end, idle=idle, work=work):
            return work if begin <= t < end else idle

        found = counter_energy(cut_of(readings, 0.016, power), "GPU", window(begin, end))
        assert found is not None
        assert abs(found.joules - truth(end) + truth(begin)) <= found.edge_joules
        assert found.edge_joules < 0.1 * found.joules


def test_what_is_not_counted_is_not_told():
    """No counter, none beyond an edge, or one that began anew: no figure."""
    whole = [(t, 50.0 * t, 0.0) for t in range(20)]
    assert counter_energy(WindowSlice(), "GPU", window(2, 12)) is None
    assert counter_energy(cut_of(whole), "VDD_IN", window(2, 12)) is None
    assert counter_energy(cut_of(whole[3:]), "GPU", window(2, 12)) is None
    assert counter_energy(cut_of(whole[:12]), "GPU", window(2, 12)) is None
    anew = [(t, c - 400 * (t > 9), a) for t, c, a in whole]
    assert counter_energy(cut_of(anew), "GPU", window(2, 12)) is None
    assert counter_energy(cut_of(anew), "GPU", window(10.5, 12)) is not None
    gone = [(t, nan if t == 1 else c, a) for t, c, a in whole]
    assert counter_energy(cut_of(gone), "GPU", window(2, 12)) is not None


@pytest.mark.parametrize("interval", [0.103, 1.009])
def test_counter_with_a_fault_is_not_used(interval):
    """It stands still, runs back or jumps; within an update or across a pause it is sound."""
    times = [interval * i for i in range(round(30 / interval))]
    busy = window(5, 25)

    def fault(count, watts=lambda _: 50.0):
        cut = cut_of([(t, count(t), 0.0) for t in times], 0.004, watts)
        found = counter_fault(cut, "GPU", busy)
        assert (counter_energy(cut, "GPU", busy) is None) == (found is not None)
        return found

    assert fault(lambda t: 50 * t) is None
    assert fault(lambda _: 7000.0) == "stands_still"
    assert fault(lambda t: 50 * t if t < 12 else 600 + 50 * max(t - 16, 0)) == "stands_still"
    assert fault(lambda t: 50 * t - 200 * (t > 12)) == "runs_back"
    assert fault(lambda t: 50 * t + 1e5 * (t > 12) + 1e5 * (t > 20)) == "jumps"
    # A fault outside the window does no harm.
    assert fault(lambda t: 50 * t - 200 * (t > 28)) is None
    # Rare bursts are ten times the median step, and the readings show that power.
    bursts = [(8.0, 9.5), (17.0, 18.5)]

    def busy_seconds(t):
        return sum(min(max(t - a, 0), b - a) for a, b in bursts)

    def power(t):
        return 500.0 if any(a <= t < b for a, b in bursts) else 10.0

    assert fault(lambda t: 10 * t + 490 * busy_seconds(t), power) is None
    # Bursts that every reading of power misses are in each step of the counter.
    assert fault(lambda t: 300 * t, lambda _: 10.0) is None


def test_lost_readings_at_an_edge_never_narrow_the_error():
    whole = [(0.1 * i, 50.0 * 0.1 * i, 0.0) for i in range(300)]
    edges = []
    for lost in (0.0, 0.3, 1.0, 3.0):
        kept = [one for one in whole if not 5.05 < one[0] < 5.05 + lost]
        found = counter_energy(cut_of(kept), "GPU", window(5.06, 25))
        assert found is not None
        edges.append(found.edge_joules)
    assert edges == sorted(edges)
    assert edges[-1] > 50 * 2


def test_slow_updates_and_unsure_clocks_widen_the_error():
    """The error holds for an update each half second, which the readings themselves show."""
    chance = random.Random(9)
    for _ in range(100):
        phase, begin = chance.uniform(0, 0.5), chance.uniform(3, 5)
        at = [0.1 * i for i in range(300)]
        ticked = [(t, 80.0 * (floor((t - phase) / 0.5) * 0.5 + phase), 0.0) for t in at]
        cut = cut_of(ticked, watts=lambda _: 80.0)
        found = counter_energy(cut, "GPU", window(begin, begin + 20))
        assert found is not None
        assert abs(found.joules - 80 * 20) <= found.edge_joules
        unsure = counter_energy(cut, "GPU", window(begin, begin + 20), 0.5)
        assert unsure is not None
        assert unsure.edge_joules >= found.edge_joules + 2 * 0.5 * 80


def test_readings_are_as_old_as_their_sensor_makes_them():
    board = {"1-0040.samples": 64.0, "1-0040.update_interval": 422.0}
    each = {"1-0040.samples": 16.0, "1-0040.update_interval": 10.0}
    assert timing_of(Environment()).age == 0
    assert timing_of(Environment(rail_sensors=board)).forgetting == 0.422
    assert timing_of(Environment(rail_sensors=each)).forgetting == pytest.approx(0.48)
    assert timing_of(Environment(power_reading="usage")).averaging == 1
    assert timing_of(Environment(power_reading="instant")).delay > timing_of(Environment()).delay
