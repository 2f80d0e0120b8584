"""A small campaign of lock-in; the large one is ``python -m tests.truth.lock_in``."""

import secrets
from bisect import bisect_left
from random import Random

import pytest

from tegrascope.daemon.measure.lock_in import RailReadings, lock_in, on_steps, pattern
from tegrascope.daemon.measure.trace import OnStep

from .lock_in import judge, measure

RUNS = 6


def _work(seconds: float, pieces: int, seed: int, averaging: float = 0.0):
    """Return the on-steps of a pattern and the times of readings at 10 Hz."""
    lengths = pattern(seconds, 0.1, averaging, seed)
    ends = [round(sum(lengths[: i + 1]) * 1e9) for i in range(len(lengths))]
    work = [OnStep(a, b, pieces) for a, b in zip(ends[::2], ends[1::2], strict=False)]
    return work, list(range(50_000_000, ends[-1], 100_000_000))


def _share(work, at_ns: int, averaging_ns: int = 1) -> float:
    """Return the share of on-time in the span that ends at a time."""
    begin = at_ns - averaging_ns
    spans = (min(one.end_ns, at_ns) - max(one.begin_ns, begin) for one in work)
    return sum(span for span in spans if span > 0) / averaging_ns


def _found(times, watts, work, averaging=0.0, step_watts=0.001):
    found = lock_in(times, [RailReadings(watts, step_watts)], work, averaging)
    assert found is not None
    return found


@pytest.mark.parametrize(
    "name",
    (
        "inference-heat",
        "stage-heat",
        "pulses-35ms",
        "late-0.4s",
        "averaged-1s",
        "fitted-1s",
        "60s",
        "application-60s",
    ),
)
def test_interval_holds_the_energy_of_a_piece(name):
    seed = secrets.randbits(32)
    line, missed = judge(name, [measure(name, seed, i) for i in range(RUNS)], 0.9999)
    assert not missed, f"seed {seed}: {line}; {missed}"


def test_pattern_is_the_same_for_a_seed_and_each_step_is_longer_than_the_interval():
    steps = pattern(300.0, 0.103, 0.5, seed=7)
    assert steps == pattern(300.0, 0.103, 0.5, seed=7) != pattern(300.0, 0.103, 0.5, seed=8)
    assert len(steps) % 2 == 1 and 297 < sum(steps) <= 300
    assert 0.55 + 2 * 0.103 <= min(steps) < max(steps) <= 0.55 + 6 * 0.103


def test_pieces_are_grouped_into_on_steps_and_a_short_stall_does_not_split_one():
    found = on_steps([0, 10, 40, 200, 205], [10, 10, 10, 10, 10], shortest_off_ns=100)
    assert found == [OnStep(0, 50, 3), OnStep(200, 215, 2)]


def test_long_measurement_finds_the_delay_in_its_first_minutes():
    work, times = _work(800.0, pieces=100, seed=2)
    edges = [edge for one in work for edge in one[:2]]
    late = [at - 200_000_000 for at in times]
    watts = [5.0 + 3.0 * (bisect_left(edges, at) % 2) for at in late]
    found = lock_in(times, [RailReadings(watts, 0.001)], work)
    assert found is not None and found.problems == ()
    assert found.lag_seconds == pytest.approx(0.2, abs=0.03)
    assert found.added_watts.value == pytest.approx(3.0, abs=0.01)
    assert found.contrasts > 1500


def test_interval_is_as_wide_as_the_noise_of_the_readings():
    """White noise of 0.5 W: with n readings, half of them on, the difference is off by 1/√n W."""
    work, times = _work(120.0, pieces=500, seed=2)
    on = [3.0 * any(one.begin_ns < t <= one.end_ns for one in work) for t in times]
    random, halves, held = Random(3), [], 0
    for _ in range(30):
        watts = [5.0 + each + random.gauss(0, 0.5) for each in on]
        found = lock_in(times, [RailReadings(watts, 0.001)], work, 0.0)
        assert found is not None
        halves.append(found.added_watts.half)
        held += abs(found.added_watts.value - 3.0) <= found.added_watts.half
    ideal = 1.96 / len(times) ** 0.5
    assert held >= 26
    assert ideal < sorted(halves)[15] < 2.2 * ideal


def test_reasons_against_a_figure_are_named():
    work, times = _work(60.0, pieces=1, seed=1)
    watts = [5.0 + 3.0 * any(one.begin_ns < t <= one.end_ns for one in work) for t in times]
    rail = [RailReadings(watts, 0.001)]
    whole = lock_in(times, rail, work)
    assert whole is not None and whole.problems == ("long_pieces",)
    assert whole.added_watts.value == pytest.approx(3.0, abs=0.02)
    short = lock_in(times, rail, [one._replace(pieces=300) for one in work[:15]])
    assert short is not None and short.problems == ("few_steps",)
    assert lock_in(times, rail, work[:2]) is None


def test_interval_holds_the_error_of_rounding():
    """5.1 and 8.3 W read as 5.0 and 8.5 W, always: no spread shows that the difference is off."""
    work, times = _work(60.0, pieces=300, seed=1)
    watts = [round((5.1 + 3.2 * _share(work, t)) * 2) / 2 for t in times]
    found = _found(times, watts, work, step_watts=0.5)
    assert found.added_watts.value == pytest.approx(3.5)
    assert 0.3 < found.added_watts.half < 0.5


def test_drift_cancels_in_the_line_through_the_neighbours():
    work, times = _work(60.0, pieces=300, seed=1)
    found = _found(times, [5 + 3 * _share(work, t) + 0.2 * t / 1e9 for t in times], work)
    assert found.added_watts.value == pytest.approx(3.0, abs=1e-6)
    assert found.added_watts.half < 0.001


def test_readings_of_a_step_are_of_whole_pieces():
    """A piece takes 6 W in its first half only. Each step loses the first half of one piece."""
    work = [OnStep(i * 600_000_000, i * 600_000_000 + 300_000_000, 3) for i in range(1, 100)]
    times = list(range(3_000_000, 60_000_000_000, 25_000_000))
    watts = [5 + 6 * _share(work, t) * (t % 100_000_000 < 50_000_000) for t in times]
    assert _found(times, watts, work).added_watts.value == pytest.approx(3.0, abs=0.2)


def test_delay_and_averaging_are_found_together():
    work, times = _work(60.0, pieces=300, seed=3, averaging=0.3)
    watts = [5 + 3 * _share(work, t - 200_000_000, 300_000_000) for t in times]
    found = _found(times, watts, work, averaging=None)
    assert found.problems == ()
    assert found.lag_seconds == pytest.approx(0.2, abs=0.03)
    assert found.averaging_seconds == pytest.approx(0.3, abs=0.03)
    assert found.added_watts.value == pytest.approx(3.0, abs=0.01)


def test_on_steps_that_grow_with_time_are_a_trend():
    work, begin = [], 0
    for i in range(110):
        begin += 400_000_000
        work.append(OnStep(begin, begin + 200_000_000 + i * 8_000_000, 300))
        begin = work[-1].end_ns
    times = list(range(50_000_000, begin, 100_000_000))
    assert _found(times, [5 + 3 * _share(work, t) for t in times], work).problems == ("trend",)


def test_steps_that_are_too_short_for_the_averaging_are_not_fitted():
    work, times = _work(60.0, pieces=300, seed=3)
    watts = [5 + 3 * _share(work, t - 300_000_000, 700_000_000) for t in times]
    assert "not_fitted" in _found(times, watts, work, averaging=None).problems


def test_delay_at_the_limit_of_the_fit_is_named():
    work, times = _work(60.0, pieces=300, seed=3)
    watts = [5 + 3 * _share(work, t - 1_010_000_000) for t in times]
    assert _found(times, watts, work).problems == ("lag_at_limit",)


def test_power_that_rises_within_the_on_steps_is_uneven():
    work, times = _work(60.0, pieces=300, seed=3)
    rise = [sum(max(t - one.begin_ns, 0) for one in work if t <= one.end_ns) / 1e9 for t in times]
    watts = [5 + (2 + 3 * each) * _share(work, t) for t, each in zip(times, rise, strict=True)]
    assert _found(times, watts, work).problems == ("uneven_power",)
