"""A board's energy counter over a window: what it grew by, and how far that can be trusted."""

import random
from array import array
from math import floor, nan

import pytest

from tegrascope.daemon.measure.blocks import WindowSlice
from tegrascope.daemon.measure.energy_report import TICK_SECONDS, counter_energy, timing
from tegrascope.daemon.measure.run_report import Environment, Span

S = 1_000_000_000


def cut_of(
    readings: "list[tuple[float, float, float]]", read_seconds: float = 0.004
) -> WindowSlice:
    """Make samples of (time, counter, seconds from the sample to the counter's reading)."""
    times, joules, after = zip(*readings, strict=True)
    return WindowSlice(
        array("q", [round(time * S) for time in times]),
        array("q", [0] * len(times)),
        {
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
        found = counter_energy(cut_of(readings, 0.016), "GPU", window(begin, end))
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


def test_readings_are_as_old_as_their_sensor_makes_them():
    board = {"1-0040.samples": 64.0, "1-0040.update_interval": 422.0}
    each = {"1-0040.samples": 16.0, "1-0040.update_interval": 10.0}
    assert timing(Environment()).averaging == 0
    assert timing(Environment(rail_sensors=board)).averaging == 0.422
    assert timing(Environment(rail_sensors=each)).averaging == pytest.approx(0.48)
    assert timing(Environment(power_reading="usage")).averaging == 1
    assert timing(Environment(power_reading="instant")).delay > timing(Environment()).delay
