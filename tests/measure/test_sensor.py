"""What readings of power tell about the sensor behind them."""

import math
import random

import pytest

from tegrascope.collectors.board.boards import find_rail_rule
from tegrascope.daemon.measure.blocks import WindowSlice
from tegrascope.daemon.measure.energy import Curve, Timing
from tegrascope.daemon.measure.report import Span
from tegrascope.daemon.measure.sensor import (
    follows_work,
    shown_forgetting,
    suspect_rail,
    update_seconds,
    updates,
)

SECOND = 10**9
RULE = find_rail_rule(["VDD_IN", "VDD_CPU_GPU_CV", "VDD_SOC"])
WINDOW = Span(begin_ns=10 * SECOND, end_ns=40 * SECOND)
IDLE = (Span(begin_ns=0, end_ns=10 * SECOND), Span(begin_ns=40 * SECOND, end_ns=50 * SECOND))


def lines(interval=0.11, seconds=50.0):
    """Return the times of lines in seconds."""
    return [interval * i for i in range(int(seconds / interval))]


def reading(watts, step=0.04):
    """Return what a sensor of that step gives."""
    return round(watts / step) * step


def noise(seed):
    chance = random.Random(seed)
    return lambda: chance.gauss(0, 0.07)


def work(time):
    return 6.0 + 5.0 * (10 <= time < 40)


def nanoseconds(times):
    return [round(time * SECOND) for time in times]


def samples_of(times, total, part=None):
    """Return samples of a board whose total rail and one of its parts have these readings."""
    columns = {"rails.VDD_IN.instant_watts": list(total)}
    columns["rails.VDD_CPU_GPU_CV.instant_watts"] = list(part or total)
    columns["rails.VDD_SOC.instant_watts"] = [1.0] * len(times)
    return WindowSlice(nanoseconds(times), nanoseconds(times), columns)


def suspect(times, total, part=None):
    return suspect_rail(samples_of(times, total, part), RULE, WINDOW, IDLE)


@pytest.mark.parametrize("seconds", [0.15, 0.3, 0.5, 1.0])
def test_sensor_that_forgets_shows_its_time_constant(seconds):
    times, power, register = lines(), 6.0, {}
    for millisecond in range(50_000):
        power += (work(millisecond / 1e3) - power) * 0.001 / seconds
        register[millisecond] = power
    curve = [register[round(time * 1e3)] for time in times]
    shown = shown_forgetting(Curve(nanoseconds(times), curve), WINDOW)
    assert shown == pytest.approx(seconds, abs=0.06 + 0.1 * seconds)


def test_sensor_that_forgets_nothing_is_trusted_after_half_an_interval():
    times = lines()
    curve = Curve(nanoseconds(times), [work(time) for time in times])
    assert Timing(forgetting=shown_forgetting(curve, WINDOW)).settling < 0.3


def test_work_without_a_step_shows_no_time_constant():
    times, scatter = lines(), noise(3)
    curve = Curve(nanoseconds(times), [6.0 + scatter() for _ in times])
    assert shown_forgetting(curve, WINDOW) == pytest.approx(0.11 / 5)


@pytest.mark.parametrize("seconds", [0.16, 0.2, 0.35, 1.0])
def test_update_interval_shows_itself(seconds):
    scatter, times, values = noise(1), lines(), {}
    watts = []
    for time in times:
        number = int(time / seconds)
        if number not in values:
            values[number] = reading(9.0 + scatter() * 3)
        watts.append(values[number])
    assert update_seconds(nanoseconds(times), [watts]) == pytest.approx(seconds, rel=0.1)


@pytest.mark.parametrize("step", [0.04, 0.1, 0.4])
def test_quiet_readings_that_repeat_are_those_of_a_quick_sensor(step):
    slow = 0
    for seed in range(200):
        scatter, times = noise(seed), lines(seconds=30)
        watts = [reading(9.0 + scatter(), step) for _ in times]
        slow += update_seconds(nanoseconds(times), [watts]) is not None
    assert slow <= 1


def test_work_that_is_switched_at_a_pace_is_no_slow_sensor():
    times = lines(0.1137)
    watts = [reading(6.0 + 5.0 * (time % 0.0873 < 0.03)) for time in times]
    assert update_seconds(nanoseconds(times), [watts]) is None


def test_lines_that_begin_quiet_and_repeat_later_are_judged_from_there():
    chance, times = random.Random(9), lines(seconds=60)
    watts = [9.0] * 400
    while len(watts) < len(times):
        watts += [reading(9.0 + chance.random())] * chance.choice([1, 1, 2])
    assert update_seconds(nanoseconds(times), [watts[: len(times)]]) is None


def test_lines_that_all_change_at_first_show_no_pace():
    """In a long window of a lively board the first repeat may come late."""
    chance, times = random.Random(9), lines(seconds=80)
    watts = [5.0 + chance.random() for _ in range(400)]
    while len(watts) < len(times):
        watts += [reading(9.0 + chance.random())] * chance.choice([1, 1, 2])
    assert update_seconds(nanoseconds(times), [watts[: len(times)]]) is None


def test_absent_values_show_neither_updates_nor_motion():
    chance, times = random.Random(9), lines()
    part = [math.nan if 15 <= time < 20 else 5 + chance.random() for time in times]
    watts = [reading(work(time) + chance.random()) for time in times]
    held = [*watts]
    for number, time in enumerate(times):
        if 15 <= time < 20:
            held[number] = watts[137]
    assert suspect(times, held, part) is None
    assert suspect(times, held, watts) is not None
    assert update_seconds(nanoseconds(times), [part]) is None


def test_only_updates_are_readings_and_equal_ones_count_too():
    times = lines(0.1, 2.0)
    held = [1.0] * 5 + [2.0] * 5 + [2.0] * 5 + [3.0] * 5
    kept = updates(samples_of(times, held), RULE, 0.5)
    assert [time / SECOND for time in kept.times_ns] == pytest.approx([0.0, 0.5, 1.1, 1.5])


@pytest.mark.parametrize("first", [0, 12, 20])
def test_rail_that_stands_still_while_its_part_moves_is_suspect(first):
    scatter, times = noise(2), lines()
    part = [reading(work(time) + 3 * scatter()) for time in times]
    frozen = [part[0]]
    for time, watts in zip(times[1:], part[1:], strict=True):
        frozen.append(frozen[-1] if first <= time < first + 4 else watts)
    if first == 0:
        frozen = [part[0]] * len(times)
    assert suspect(times, part) is None
    assert suspect(times, frozen, part) is not None


def test_rail_that_is_cut_off_is_suspect():
    chance, times = random.Random(5), lines()
    whole = []
    for time in times:
        peak = 3 * chance.random() * (work(time) > 6)
        whole.append(reading(work(time) + chance.gauss(0, 0.06) + peak))
    assert suspect(times, whole) is None
    assert "12.52 W" in suspect(times, [min(watts, 12.52) for watts in whole])


def test_pauses_of_the_work_are_not_suspect():
    """On a quiet board, on- and off-times have one value each, also the highest one."""
    for seed in range(50):
        chance, times = random.Random(seed), lines()
        loud = chance.uniform(0, 0.1)
        period, duty = chance.uniform(0.3, 9), chance.uniform(0.1, 0.9)
        watts = []
        for time in times:
            on = 10 <= time < 40 and time % period < duty * period
            watts.append(reading(6.0 + 5.0 * on + chance.gauss(0, loud)))
        assert suspect(times, watts) is None


def test_lines_that_wait_for_the_work_are_found():
    chance = random.Random(7)
    times, watts = [0.0], [6.0]
    for _ in range(400):
        waits = chance.random() < 0.3
        times.append(times[-1] + (0.3 if waits else 0.11))
        watts.append(11.0 if waits else 6.0)
    assert follows_work(nanoseconds(times), watts)


def test_lines_that_are_slow_at_high_load_do_not_wait_for_the_work():
    """Load and interval change together every two seconds; trapezoids are right there."""
    chance, now, times, watts = random.Random(8), 0.0, [], []
    while now < 60:
        high = int(now / 2) % 2
        now += 0.14 * high + 0.103 * (1 - high) + chance.uniform(0, 0.01)
        times.append(now)
        watts.append(6.0 + 5.0 * high + chance.gauss(0, 0.07))
    assert not follows_work(nanoseconds(times), watts)
