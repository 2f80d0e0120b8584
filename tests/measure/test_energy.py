import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tegrascope.collectors.board.boards import find_rail_rule
from tegrascope.daemon.measure.energy import (
    Curve,
    Timing,
    idle_readings,
    idle_watts,
    integrate,
    known,
    settled,
    total,
)
from tegrascope.daemon.measure.report import Span
from tegrascope.daemon.measure.running_energy import EnergyCounters
from tegrascope.parsers.signals import RAIL_POWER

SECOND = 1_000_000_000
NAN = math.nan
WATTS = st.floats(0, 100)


def span(begin, end):
    return Span(begin_ns=round(begin * SECOND), end_ns=round(end * SECOND))


@st.composite
def curves(draw, least=3, most=40):
    """Return times in jittered steps of about a second, and watts."""
    steps = draw(st.lists(st.integers(900_000_000, 1_100_000_000), min_size=least, max_size=most))
    times = [sum(steps[: i + 1]) for i in range(len(steps))]
    return times, [draw(WATTS) for _ in times]


def within(data, times):
    """Draw a moment that readings cover, one interval beyond their ends included."""
    return data.draw(st.integers(times[0] - SECOND * 4 // 5, times[-1] + SECOND * 4 // 5))


@given(curves(), st.data())
def test_energy_adds_up(curve, data):
    """Cutting a window in two neither makes nor loses energy."""
    times, watts = curve
    begin, cut, end = sorted(within(data, times) for _ in range(3))
    whole = integrate(times, watts, begin, end)
    parts = integrate(times, watts, begin, cut), integrate(times, watts, cut, end)
    assert whole == pytest.approx(sum(parts), rel=1e-9, abs=1e-12)


@given(curves(), WATTS, st.data())
def test_constant_power_is_watts_times_seconds(curve, watts, data):
    """However the samples jitter, a constant rail gives watts times seconds."""
    times, _ = curve
    begin, end = sorted(within(data, times) for _ in range(2))
    joules = integrate(times, [watts] * len(times), begin, end)
    assert joules == pytest.approx(watts * (end - begin) / SECOND, rel=1e-9, abs=1e-12)


@given(curves(), st.floats(0, 10), st.data())
def test_energy_is_linear_in_power(curve, factor, data):
    """Energy of a sum of rails is the sum of their energies, and of a multiple the multiple."""
    times, watts = curve
    other = [data.draw(WATTS) for _ in times]
    both = [a + factor * b for a, b in zip(watts, other, strict=True)]
    window = sorted(within(data, times) for _ in range(2))
    parts = integrate(times, watts, *window) + factor * integrate(times, other, *window)
    assert integrate(times, both, *window) == pytest.approx(parts, rel=1e-9, abs=1e-9)


@given(curves(least=6), st.data())
def test_far_samples_do_not_matter(curve, data):
    """Only the samples of a window and its two neighbours have a say."""
    times, watts = curve
    begin, end = sorted(data.draw(st.integers(times[1], times[-2])) for _ in range(2))
    changed = list(watts)
    for i in range(len(times)):
        after = i + 1 < len(times) and times[i + 1] <= begin
        if after or (i > 0 and times[i - 1] >= end):
            changed[i] = data.draw(WATTS)
    assert integrate(times, changed, begin, end) == integrate(times, watts, begin, end)


@given(curves(), st.data())
def test_energy_lies_between_the_extremes(curve, data):
    """Mean power of a window is neither below the lowest nor above the highest reading."""
    times, watts = curve
    begin, end = sorted(within(data, times) for _ in range(2))
    assume(end > begin)
    mean = integrate(times, watts, begin, end) / (end - begin) * SECOND
    assert min(watts) - 1e-9 <= mean <= max(watts) + 1e-9


@pytest.mark.parametrize(
    ("watts", "joules"),
    [
        ([2, NAN, 4, 4, 4, 4, 4, 4, 4, 4], 34),
        ([2, NAN, NAN, NAN, NAN, 7, 7, 7, 7, 7], 50.5),
        ([2, NAN, NAN, NAN, NAN, NAN, 8, 8, 8, 8], None),
        ([NAN, 4, 4, 4, 4, 4, 4, 4, 4, 4], 36),
        ([NAN, NAN, 4, 4, 4, 4, 4, 4, 4, 4], None),
        ([4, 4, 4, 4, 4, 4, 4, 4, NAN, NAN], None),
        ([NAN] * 10, None),
        ([NAN, 5, *[NAN] * 8], None),
    ],
)
def test_absent_readings_are_bridged_or_admitted(watts, joules):
    """A rail missing for up to five intervals is bridged; for longer its energy is unknown."""
    times = [i * SECOND for i in range(10)]
    found = integrate(times, watts, 0, 9 * SECOND)
    assert found is None if joules is None else found == pytest.approx(joules)


def test_a_silence_is_not_guessed():
    """No energy is stated across a gap of six intervals, nor far beyond the last reading."""
    times = [0, SECOND, 2 * SECOND, 8 * SECOND, 9 * SECOND]
    assert integrate(times, [1.0] * 5, 0, 9 * SECOND) is None
    assert integrate(times, [1.0] * 5, 0, 2 * SECOND) == 2
    assert integrate(times, [1.0] * 5, 8 * SECOND, 9 * SECOND + SECOND // 2) == 1.5
    assert integrate(times, [1.0] * 5, 8 * SECOND, 11 * SECOND) is None
    assert integrate([5], [1.0], 0, 10) is None
    assert integrate([], [], 0, 10) is None


def test_total_needs_every_rail():
    """The sum of rails has a point only where all of them were read."""
    curve = total([1, 2, 3], [[1.0, NAN, 3.0], [10.0, 20.0, 30.0]])
    assert (list(curve.times_ns), list(curve.watts)) == ([1, 3], [11.0, 33.0])


@given(st.permutations([[1.0, 2.5, 3.0], [0.1, 0.2, 0.3], [7.0, 0.0, 9.0]]))
def test_order_of_rails_does_not_matter(rails):
    """The total is the same to the last bit in whatever order rails come."""
    straight = total([1, 2, 3], [[1.0, 2.5, 3.0], [0.1, 0.2, 0.3], [7.0, 0.0, 9.0]])
    assert list(total([1, 2, 3], rails).watts) == list(straight.watts)


def test_rails_are_found_by_their_instant_power():
    """The mean since tegrastats started is never taken for power."""
    columns = {"rails.A.instant_watts": [1.0], "rails.A.average_watts": [2.0], "rails.B": [3.0]}
    assert RAIL_POWER.by_label(columns) == {"A": [1.0]}


def test_idle_does_not_see_the_work_next_to_it():
    times = [i * SECOND // 10 for i in range(200)]
    for work in (5.0, 50.0):
        watts = [work if t < 5.02 * SECOND or t > 9 * SECOND else 3.0 for t in times]
        phase = settled(span(5, 9))
        assert idle_watts(idle_readings(Curve(times, watts), phase), phase) == pytest.approx(3.0)


def test_idle_starts_after_the_dla_has_gone_to_sleep():
    """Of an idle phase 0.55 s are left out, of a short one a quarter, and 50 ms at least."""
    assert settled(span(1, 11)) == span(1.55, 11)
    assert settled(span(1, 2)) == span(1.25, 2)
    assert settled(span(1, 1.1)) == span(1.05, 1.1)


def test_idle_needs_two_readings():
    curve = Curve([0, SECOND, 2 * SECOND], [1.0, 1.0, 1.0])
    assert idle_readings(curve, span(0.5, 1.5)) is None


def test_idle_readings_leave_out_what_a_sensor_averages():
    assert settled(span(1, 11), Timing(averaging=0.5)) == span(2.05, 11)


def nx(total_watts, soc=1.0):
    rails = {"VDD_IN": total_watts, "VDD_CPU_GPU_CV": 2.0, "VDD_SOC": soc}
    return {f"rails.{rail}.instant_watts": watts for rail, watts in rails.items()}


RULE = find_rail_rule(["VDD_IN", "VDD_CPU_GPU_CV", "VDD_SOC"])


@given(curves(least=2))
def test_counters_agree_with_the_integral(curve):
    """Counters grow to the integral over all samples, and the module follows its rule."""
    times, watts = curve
    counters = EnergyCounters(RULE)
    seen = [0.0]
    for time, power in zip(times, watts, strict=True):
        counters.feed(time, nx(power))
        seen.append(counters.module_joules)
    assert seen == sorted(seen)
    whole = integrate(times, watts, times[0], times[-1])
    assert counters.rails["VDD_IN"] == pytest.approx(whole, rel=1e-9, abs=1e-12)
    assert counters.module_joules == counters.rails["VDD_IN"]


@pytest.mark.parametrize("seconds_each", [2, 4, 60])
def test_counters_of_a_rail_below_zero_stand_still_and_their_seconds_count(seconds_each):
    """An idle Thor prints -0.392 W: half the time at 20 W is a mean of 10 W, not of 20 W."""
    counters = EnergyCounters()
    cycle = [20.0] * seconds_each + [-0.392] * seconds_each
    seen = [0.0]
    for second, watts in enumerate(cycle * 3 + cycle[:1]):
        counters.feed(second * SECOND, {RAIL_POWER.column("VDD_GPU"): watts})
        seen.append(counters.rails["VDD_GPU"])
    assert seen == sorted(seen)
    assert counters.rail_seconds["VDD_GPU"] == pytest.approx(6 * seconds_each)
    assert seen[-1] / (6 * seconds_each) == pytest.approx(10.0)


def test_counter_of_a_rail_that_begins_below_zero_begins_at_zero():
    counters = EnergyCounters()
    for second in range(3):
        counters.feed(second * SECOND, {RAIL_POWER.column("VDD_GPU"): -0.392})
    assert counters.rails == {"VDD_GPU": 0.0}


def test_counters_do_not_bridge_a_silence():
    """A gap longer than five intervals adds nothing; one late line does."""
    counters = EnergyCounters(RULE)
    for second in (0, 1, 2, 3, 7, 8):
        counters.feed(second * SECOND, nx(10.0))
    assert counters.module_joules == pytest.approx(80)
    counters.feed(30 * SECOND, nx(10.0))
    counters.feed(31 * SECOND, nx(10.0))
    assert counters.module_joules == pytest.approx(90)


def test_joules_over_seconds_are_mean_power_through_a_gap_and_a_restart():
    """Readings every 0.1 s of 10 W that rise by 1 W per minute; 8 s are silent, then a restart."""
    readings = [(t, 10 + t / 600) for t in range(600) if not 200 < t < 280]
    before, after = EnergyCounters(RULE), EnergyCounters(RULE)
    for tenth, watts in readings:
        counters = before if tenth < 400 else after if tenth > 450 else None
        if counters is not None:
            counters.feed(tenth * SECOND // 10, nx(watts))
    assert before.module_seconds == pytest.approx(20 + 11.9)
    assert before.rail_seconds == pytest.approx(
        dict.fromkeys(("VDD_IN", "VDD_CPU_GPU_CV", "VDD_SOC"), before.module_seconds)
    )
    assert after.module_seconds == pytest.approx(14.8)
    seconds = before.module_seconds + after.module_seconds
    joules = before.module_joules + after.module_joules
    observed = [(0, 20), (28, 39.9), (45.1, 59.9)]
    truth = sum((b - a) * (10 + (a + b) / 120) for a, b in observed)
    assert joules == pytest.approx(truth)
    assert joules / seconds == pytest.approx(10.5, rel=0.01)
    assert joules / 60 < 8.2


def test_seconds_of_a_rail_that_comes_and_goes_are_its_own():
    counters = EnergyCounters(RULE)
    for second in range(20):
        power = nx(10.0)
        if 5 <= second < 15:
            del power["rails.VDD_SOC.instant_watts"]
        counters.feed(second * SECOND, power)
    assert counters.rail_seconds == {"VDD_IN": 19, "VDD_CPU_GPU_CV": 19, "VDD_SOC": 8}
    assert counters.module_seconds == 19


def test_module_counts_only_where_all_rails_are():
    """Without a rule, or without a rail of the total, there is no module energy."""
    counters = EnergyCounters()
    counters.feed(0, nx(10.0))
    counters.feed(SECOND, nx(10.0))
    assert counters.module_joules is None
    counters.rule = RULE
    counters.feed(2 * SECOND, {"rails.VDD_SOC.instant_watts": 1.0})
    assert counters.module_joules is None
    assert counters.rails == pytest.approx({"VDD_IN": 10, "VDD_CPU_GPU_CV": 2, "VDD_SOC": 2})


def test_counters_ignore_what_comes_late():
    """A sample that is not later than the last adds nothing."""
    counters = EnergyCounters(RULE)
    for second in (0, 2, 1, 2, 3):
        counters.feed(second * SECOND, nx(10.0))
    assert counters.module_joules == pytest.approx(30)


def test_rail_below_zero_is_integrated_as_it_is():
    """An idle rail reads a little below zero: its readings count, and no gap is bridged."""
    times = [SECOND * i // 10 for i in range(400)]
    gpu = [20.0 if t // (2 * SECOND) % 2 else -0.4 for t in times]
    mean = integrate(times, gpu, 0, 39 * SECOND) / 39
    assert mean == pytest.approx((20 * 19 - 0.4 * 20) / 39, rel=0.02)
    assert list(known(times, gpu).watts) == gpu
    summed = total(times, [gpu, [5.0] * 400])
    assert integrate(times, summed.watts, 0, 39 * SECOND) / 39 == pytest.approx(mean + 5)
    assert integrate(times, [-0.4] * 400, 0, 39 * SECOND) == pytest.approx(-0.4 * 39)


def test_counters_never_fall_below_zero_and_keep_the_sign_in_the_module():
    """A rail at -0.4 W adds no joules of its own, and lowers those of the module."""
    rule = find_rail_rule(["VDD_GPU_SOC", "VDD_CPU_CV", "VIN_SYS_5V0", "VDDQ_VDD2_1V8AO"])
    counters = EnergyCounters(rule)
    seen = []
    for second in range(30):
        gpu = 20.0 if second >= 20 else -0.4
        rails = {"VDD_GPU_SOC": gpu, "VDD_CPU_CV": 4.0, "VIN_SYS_5V0": 3.0}
        counters.feed(second * SECOND, {f"rails.{n}.instant_watts": w for n, w in rails.items()})
        seen.append(counters.rails["VDD_GPU_SOC"])
    assert seen == sorted(seen)
    assert seen[19] == 0
    assert seen[-1] == pytest.approx(9 * 20 + 10)
    assert counters.rail_seconds["VDD_GPU_SOC"] == 29
    assert counters.module_joules == pytest.approx(29 * 7 - 19 * 0.4 + 9.8 + 9 * 20)


GPU = find_rail_rule(["GPU"])


def fed(readings):
    """Feed (seconds, watts, counter) of a GPU and return the joules of its rail after each."""
    counters = EnergyCounters(GPU)
    seen = []
    for at, watts, counted in readings:
        values = {"rails.GPU.instant_watts": watts}
        if counted is not None:
            values["rails.GPU.counter_joules"] = counted
        counters.feed(round(at * SECOND), values)
        assert counters.module_joules == counters.rails["GPU"]
        assert counters.module_seconds == counters.rail_seconds["GPU"] == pytest.approx(at)
        seen.append(counters.rails["GPU"])
    assert seen == sorted(seen)
    return seen


def test_counters_take_the_energy_of_a_gpu_from_its_own_counter():
    """Bursts that each reading of power misses; the counter is updated every 0.3 s."""
    readings = [(0.1 * i, 60.0, 1e6 + 200 * 0.3 * (i // 3)) for i in range(301)]
    assert fed(readings)[-1] == pytest.approx(200 * 30)


@pytest.mark.parametrize(
    "count",
    [
        lambda t: 5000.0 if t > 10 else 4000 + 100 * t,
        lambda t: 100 * t + (0 if t > 10 else 9000),
        lambda t: 100 * t + (1e7 if t > 10 else 0),
        lambda t: None if 10 < t < 20 else 100 * t,
    ],
    ids=["stands still", "runs back", "jumps", "is absent"],
)
def test_counters_do_without_a_counter_that_fails(count):
    """Power is 100 W throughout; an update before or after the fault may be lost or double."""
    readings = [(0.1 * i, 100.0, count(0.1 * i)) for i in range(301)]
    assert fed(readings)[-1] == pytest.approx(3000, abs=110)


def test_known_leaves_a_whole_curve_alone():
    """A curve without gaps is not copied."""
    times, watts = [1, 2], [1.0, 2.0]
    assert known(times, watts).watts is watts
