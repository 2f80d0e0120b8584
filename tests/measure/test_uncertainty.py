"""The stated interval against energies that are known: fixed seeds, coverage counted."""

import math
import random
from array import array
from bisect import bisect_right

import pytest

from tegrascope.collectors.board.boards import find_rail_rule
from tegrascope.collectors.simulator.board import JumpClock, SimulatorSource
from tegrascope.collectors.simulator.load import LoadBoard
from tegrascope.daemon.measure.blocks import WindowSlice
from tegrascope.daemon.measure.energy import Curve
from tegrascope.daemon.measure.energy_report import measure_energy
from tegrascope.daemon.measure.run_report import Span
from tegrascope.daemon.measure.timeline import Timeline
from tegrascope.daemon.measure.uncertainty import (
    edge_joules,
    quantisation_watts,
    sampling_watts,
    student_95,
    thin,
)
from tegrascope.parsers.records import flatten
from tegrascope.parsers.tegrastats import parse_line

SECOND = 1_000_000_000
NX = find_rail_rule(["VDD_IN", "VDD_CPU_GPU_CV", "VDD_SOC"])
SEEDS = 100
ENOUGH = 93


def ns(seconds):
    return round(seconds * SECOND)


def span(begin, end):
    return Span(begin_ns=ns(begin), end_ns=ns(end))


def constant(extra):
    """Return a load that draws so much more from begin to end, and its energy."""

    def load(_rng, begin, end):
        return lambda t: extra * (begin <= t < end), extra * (end - begin)

    return load


def jobs(extra, hertz):
    """Return a load that comes and goes at random about so often, and its energy."""

    def load(rng, begin, end):
        edges = [begin]
        while edges[-1] < end:
            edges.append(edges[-1] + rng.uniform(0.3, 0.7) / hertz)
        on = sum(min(b, end) - a for a, b in zip(edges[::2], edges[1::2], strict=False) if a < end)
        return lambda t: extra * (begin <= t < end and bisect_right(edges, t) % 2), extra * on

    return load


def sine(amplitude, seconds):
    """Return a load that swings slowly through window and idle phases, and its energy."""

    def load(rng, begin, end):
        phase, turn = rng.uniform(0, 2 * math.pi), 2 * math.pi / seconds
        joules = math.cos(turn * begin + phase) - math.cos(turn * end + phase)
        return lambda t: amplitude * math.sin(turn * t + phase), amplitude / turn * joules

    return load


def measure(seed, load, *, seconds, interval, noise, step, late):
    """Return the energy as measured, the true gross and the true net of one simulated run."""
    rng = random.Random(seed)
    idle = 8.0 + rng.random() * 2
    begin, end = 20.0, 20.0 + seconds
    extra, joules = load(rng, begin, end)
    times, watts, t = [], [], rng.random() * interval
    while t < end + 20:
        reading = idle + extra(t - late) + rng.gauss(0, noise)
        times.append(round(t * SECOND))
        watts.append(round(reading / step) * step if step else reading)
        t += interval + rng.uniform(0, 0.003)
    cut = WindowSlice(
        array("q", times), array("q", times), {"rails.VDD_IN.instant_watts": array("d", watts)}
    )
    phases = {
        "baseline_before": span(begin - 16, begin),
        "steady": span(begin, end),
        "baseline_after": span(end, end + 16),
    }
    rule = NX.model_copy(update={"step": {"default": step or 0.001}})
    energy = measure_energy(cut, phases, rule, None, str(seed)).energy
    return energy, idle * seconds + joules, joules


def coverage(load, **how):
    """Return in how many runs the true gross and net energy lay in their intervals."""
    gross = net = 0
    for seed in range(SEEDS):
        energy, true_gross, true_net = measure(seed, load, **how)
        gross += energy.gross_interval.low <= true_gross <= energy.gross_interval.high
        net += energy.net_interval.low <= true_net <= energy.net_interval.high
    return gross, net


@pytest.mark.parametrize("late", [0.0, 0.05], ids=["prompt", "late"])
@pytest.mark.parametrize(
    ("interval", "noise", "step"),
    [(0.103, 0.25, 0.04), (0.103, 0.1, 0.4), (0.103, 0.0, 0.4), (1.009, 0.25, 0.04)],
)
def test_steady_work_lies_in_its_interval(interval, noise, step, late):
    """The true energy lies in the 95 % interval in 93 of 100 runs at the least.

    Whether noise or rounding rules, at both rates, whether readings come at once or 50 ms late.
    """
    how = {"seconds": 30, "interval": interval, "noise": noise, "step": step, "late": late}
    gross, net = coverage(constant(10.0), **how)
    assert gross >= ENOUGH
    assert net >= ENOUGH


@pytest.mark.parametrize("hertz", [3, 20])
def test_work_that_comes_and_goes_lies_in_its_interval(hertz):
    """The same for bursts that are shorter than the sampling interval, or a little longer."""
    how = {"seconds": 30, "interval": 0.103, "noise": 0.1, "step": 0.1, "late": 0.02}
    gross, net = coverage(jobs(4.0, hertz), **how)
    assert gross >= ENOUGH
    assert net >= ENOUGH


def test_what_trapezoids_follow_is_no_error():
    """A sine lies in its interval, which is far narrower than its swing would suggest."""
    for seed in range(SEEDS):
        how = {"seconds": 30, "interval": 0.103, "noise": 0.05, "step": 0.04, "late": 0.0}
        energy, true, _ = measure(seed, sine(5.0, 7.0), **how)
        interval = energy.gross_interval
        assert interval.low <= true <= interval.high
        assert interval.high - interval.low < 0.01 * true


def test_interval_is_not_padded():
    """For plain noise the interval is at most twice as wide as theory says it must be."""
    widths = []
    for seed in range(20):
        how = {"seconds": 60, "interval": 0.103, "noise": 0.5, "step": 0.01, "late": 0.0}
        energy, _, _ = measure(seed, constant(0.0), **how)
        widths.append(energy.gross_interval.high - energy.gross_interval.low)
    needed = 2 * 1.96 * 0.5 / math.sqrt(60 / 0.1045) * 60
    assert needed < sum(widths) / len(widths) < 2 * needed


def test_a_rounded_quiet_rail_does_not_average_out():
    """Samples that are all equal leave the error of one, however many they are."""
    one = 1.96 * 0.4 / math.sqrt(12)
    assert quantisation_watts([8.0] * 10, 0.4) == pytest.approx(one, rel=1e-3)
    assert quantisation_watts([8.0] * 10_000, 0.4) == pytest.approx(one, rel=1e-3)


def test_two_quiet_levels_have_an_error_each():
    """A rail that jumps between two levels halves the variance, and no more."""
    one = quantisation_watts([8.0], 0.4)
    assert quantisation_watts([8.0, 16.0] * 500, 0.4) == pytest.approx(one / math.sqrt(2))
    assert quantisation_watts([8.0, 8.4] * 500, 0.4) == pytest.approx(one / math.sqrt(2))


def test_a_moving_rail_dithers_itself():
    """Noise above the step makes rounding errors cancel, down to the count of samples."""
    rng = random.Random(1)
    watts = [round(rng.gauss(10, 0.8) / 0.4) * 0.4 for _ in range(1000)]
    one = quantisation_watts([8.0], 0.4)
    assert one / math.sqrt(1000) <= quantisation_watts(watts, 0.4) < one / 20


def test_repeated_readings_say_nothing_new():
    """Reading each value four times does not narrow the interval of sampling."""
    rng = random.Random(2)
    values = [rng.gauss(10, 1) for _ in range(100)]
    once = sampling_watts(Curve([i * 400 for i in range(100)], values), "s")
    often = [value for value in values for _ in range(4)]
    assert sampling_watts(Curve([i * 100 for i in range(400)], often), "s") > 0.85 * once


def test_the_same_run_gives_the_same_interval():
    """The bootstrap is seeded: a report made twice is the same, another run differs."""
    rng = random.Random(3)
    curve = Curve(list(range(0, 10_000, 100)), [rng.random() for _ in range(100)])
    assert sampling_watts(curve, "a") == sampling_watts(curve, "a")
    assert sampling_watts(curve, "a") != sampling_watts(curve, "b")


def test_few_readings_show_no_spread():
    """Below six readings the error of sampling is unknown, not zero."""
    assert sampling_watts(Curve(range(5), [1.0] * 5), "s") is None
    assert sampling_watts(Curve(range(6), [1.0] * 6), "s") == 0


def test_long_windows_are_thinned_without_loss():
    """Above 600 points neighbours are averaged; time and energy stay."""
    rng = random.Random(4)
    times = [0]
    for _ in range(5000):
        times.append(times[-1] + rng.randrange(1, 200))
    watts = [rng.random() for _ in times]
    weights, means = thin(Curve(times, watts))
    assert len(means) <= 600
    assert math.fsum(weights) == pytest.approx(times[-1] / 1e9)
    whole = thin(Curve(times, watts), most=10_000)
    joules = [
        math.fsum(w * p for w, p in zip(*both, strict=True)) for both in ((weights, means), whole)
    ]
    assert joules[0] == pytest.approx(joules[1])


def test_edges_hide_a_step_and_a_delay():
    """Work that starts and ends with the window may be under-counted, never over-counted."""
    times = [i * SECOND for i in range(-1, 12)]
    watts = [15.0 if 0.5 <= i <= 9.5 else 5.0 for i in range(-1, 12)]
    low, high = edge_joules(Curve(times, watts), SECOND // 2, 19 * SECOND // 2)
    assert low == 0
    assert high == pytest.approx(2 * 10 * 0.5 * 0.5 / 2 + 0.05 * 10)


def test_edges_of_constant_power_hide_nothing():
    """A rail that does not move has no edge to be unsure of."""
    times = [i * SECOND for i in range(10)]
    assert edge_joules(Curve(times, [5.0] * 10), SECOND // 2, 8 * SECOND) == (0, 0)


def test_student_factor_is_close_to_the_tables():
    """The factor is within 2 % of the tables from four degrees of freedom on."""
    for freedom, table in ((4, 2.776), (10, 2.228), (30, 2.042), (1000, 1.962)):
        assert student_95(freedom) == pytest.approx(table, rel=0.02)


def test_the_simulated_board_agrees():
    """The true energy of the simulated board lies in the interval in 93 of 100 seeds at least.

    It warms up, rounds like its sensor, draws noise that lasts, and reads before it prints.
    """
    inside = 0
    for seed in range(SEEDS):
        begin, end = ns(8 + seed * 0.0137), ns(20 + seed * 0.0137)
        load, lane = LoadBoard(), ("gpu", "dla0")[seed % 2]
        load.set(lane, 1.0, at_ns=begin)
        load.set(lane, 0.0, at_ns=end)
        source = SimulatorSource(
            "orin-nx-16gb", load=load, interval_seconds=0.103, seed=seed, clock=JumpClock()
        )
        timeline = Timeline()
        for line in source.lines():
            timeline.append(line.monotonic_ns, line.wall_ns, flatten(parse_line(line.value)))
            if line.monotonic_ns > end:
                break
        cut = timeline.cut(begin, end, wanted=lambda name: name.startswith("rails."))
        steady = {"steady": Span(begin_ns=begin, end_ns=end)}
        interval = measure_energy(cut, steady, NX, None, str(seed)).energy.gross_interval
        true = source.board.true_energy(begin, end).module_joules
        inside += interval.low <= true <= interval.high
        assert interval.high - interval.low < 0.02 * true
    assert inside >= ENOUGH


def test_a_coarse_clock_may_have_moved_either_edge():
    """Where times are off by up to half a second, an edge may have missed or caught that much."""
    times = [i * SECOND // 10 for i in range(200)]
    watts = [15.0 if 50 <= i < 150 else 5.0 for i in range(200)]
    begin, end = ns(4.95), ns(14.95)
    sharp = edge_joules(Curve(times, watts), begin, end)
    low, high = edge_joules(Curve(times, watts), begin, end, 0.5)
    assert low == pytest.approx(-2 * 0.5 * 10, rel=0.15)
    assert sharp[0] > low
    assert sharp[1] == high
    quiet = edge_joules(Curve(times, [5.0] * 200), begin, end, 0.5)
    assert quiet == pytest.approx((0, 0), abs=1e-9)


def test_a_reading_at_the_edge_may_be_of_what_is_outside():
    """Work that ends exactly with a reading of the idle after it was under-counted by a slope."""
    times = [i * SECOND for i in range(12)]
    watts = [15.0 if 1 <= i < 10 else 5.0 for i in range(12)]
    assert edge_joules(Curve(times, watts), SECOND, 10 * SECOND)[1] >= 10 * 1.0 / 2
