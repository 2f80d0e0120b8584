"""The stated interval against energies that are known: fixed seeds, coverage counted."""

import math
import random
import statistics
from array import array
from bisect import bisect_right

import pytest

from tegrascope.collectors.board.boards import find_rail_rule
from tegrascope.collectors.simulator.board import JumpClock, SimulatorSource
from tegrascope.collectors.simulator.physics import LoadBoard
from tegrascope.daemon.measure.blocks import WindowSlice
from tegrascope.daemon.measure.energy import (
    Curve,
    Timing,
    idle_readings,
    idle_share,
    idle_watts,
    settled,
    window_energy,
)
from tegrascope.daemon.measure.energy_report import measure_energy
from tegrascope.daemon.measure.report import Span
from tegrascope.daemon.measure.rhythm import Beat
from tegrascope.daemon.measure.timeline import Timeline
from tegrascope.daemon.measure.uncertainty import (
    quantisation_watts,
    sampling_watts,
    student_95,
    thin,
    wander,
)
from tegrascope.parsers.records import flatten
from tegrascope.parsers.tegrastats import parse_line

SECOND = 1_000_000_000
NX = find_rail_rule(["VDD_IN", "VDD_CPU_GPU_CV", "VDD_SOC"])
AGX = find_rail_rule(["VDD_GPU_SOC", "VDD_CPU_CV", "VIN_SYS_5V0"])
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
    energy = measure_energy(cut, phases, rule).energy
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


def unmarked_job(seed):
    """Return readings of a job each second that the starts do not show, and the true mean."""
    rng = random.Random(seed)
    times, watts, t = [], [], rng.random()
    while t < 120:
        times.append(round(t * SECOND))
        watts.append(8.0 + 10.0 * (t % 1.0 < 0.25) + rng.gauss(0, 0.07))
        t += 1.009 + rng.uniform(0.006, 0.022)
    return Curve(times, watts), 8.0 + 10.0 * 0.25


def test_job_that_nobody_marked_lies_in_the_interval():
    """The starts have no beat with the sampling, and the job has; with idle phases and without."""
    no_beat = [Beat(5.0, 0.0, 0.0)]
    held = {"known": 0, "unknown": 0}
    for seed in range(SEEDS):
        curve, true_watts = unmarked_job(seed)
        off = abs(statistics.fmean(curve.watts) - true_watts)
        held["unknown"] += off <= sampling_watts(curve, no_beat)
        held["known"] += off <= sampling_watts(curve, no_beat, 0.07**2)
    assert min(held.values()) >= ENOUGH


def test_power_that_moves_as_idle_power_does_has_no_wider_interval():
    rng = random.Random(1)
    times = [round(number * 0.11 * SECOND) for number in range(300)]
    curve = Curve(times, [10.0 + rng.gauss(0, 0.1) for _ in times])
    no_beat = [Beat(5.0, 0.0, 0.0)]
    density = 0.1**2 * 0.11
    assert sampling_watts(curve, no_beat, density) == sampling_watts(curve, no_beat)


@pytest.mark.parametrize("hertz", [3, 20])
def test_work_that_comes_and_goes_lies_in_its_interval(hertz):
    """The same for bursts that are shorter than the sampling interval, or a little longer."""
    how = {"seconds": 30, "interval": 0.103, "noise": 0.1, "step": 0.1, "late": 0.02}
    gross, net = coverage(jobs(4.0, hertz), **how)
    assert gross >= ENOUGH
    assert net >= ENOUGH


def test_offset_of_the_sensor_is_apart_from_the_interval():
    how = {"seconds": 30, "interval": 0.103, "noise": 0.1, "step": 0.04, "late": 0.0}
    energy, _, _ = measure(1, constant(5.0), **how)
    assert energy.offset_joules == pytest.approx(2 * 0.04 * 30)
    assert energy.gross_interval.high - energy.gross_joules < energy.offset_joules


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
    once = sampling_watts(Curve([i * 400 for i in range(100)], values))
    often = [value for value in values for _ in range(4)]
    assert sampling_watts(Curve([i * 100 for i in range(400)], often)) > 0.85 * once
    assert quantisation_watts(often, 0.4) == quantisation_watts(values, 0.4)


def test_few_readings_show_no_spread():
    """Below six readings the error of sampling is unknown, not zero."""
    assert sampling_watts(Curve(range(5), [1.0] * 5)) is None
    assert sampling_watts(Curve(range(6), [1.0] * 6)) == 0


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


def worked(begin, end, interval=0.1, late=0.03):
    """Return readings of 15 W of work on 5 W of idle, and the window of the work."""
    times = [ns(i * interval) for i in range(-20, round((end + 2) / interval))]
    watts = [15.0 if begin <= t / SECOND - late < end else 5.0 for t in times]
    return Curve(times, watts), span(begin, end)


@pytest.mark.parametrize("late", [0.0, 0.02, 0.05])
@pytest.mark.parametrize("interval", [0.1, 1.0])
def test_steps_at_the_edges_are_not_in_the_figure(interval, late):
    curve, window = worked(0.33, 20.71, interval, late)
    found = window_energy(curve, window)
    assert found.joules == pytest.approx(15.0 * window.seconds)
    assert found.bounds == (0, 0)


@pytest.mark.parametrize("averaging", [0.13, 0.5, 1.0])
def test_readings_that_average_are_left_out_at_the_begin(averaging):
    curve, window = worked(0.0, 20.0, late=0.0)
    mean = [
        15.0 - 10 * min(max(1 - t / SECOND / averaging, 0), 1) if t <= window.end_ns else 5.0
        for t in curve.times_ns
    ]
    found = window_energy(Curve(curve.times_ns, mean), window, Timing(averaging=averaging))
    assert found.joules == pytest.approx(300.0)
    low, high = found.bounds
    assert high - low < 0.1


def test_rising_power_is_read_too_late():
    times = [ns(i * 0.1) for i in range(400)]
    watts = [20 + t / SECOND - 0.05 for t in times]
    window = span(5, 30)
    found = window_energy(Curve(times, watts), window)
    low, high = found.bounds
    assert found.joules + low <= 20 * 25 + (30**2 - 5**2) / 2 <= found.joules + high
    assert high - low < 0.02 * found.joules


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
        interval = measure_energy(cut, steady, NX).energy.gross_interval
        true = source.board.true_energy(begin, end).module_joules
        inside += interval.low <= true <= interval.high
        assert interval.high - interval.low < 0.02 * true
    assert inside >= ENOUGH


def test_a_coarse_clock_may_have_moved_either_edge():
    curve, window = worked(5.0, 15.0)
    low, high = window_energy(curve, window, Timing(clock=0.5)).bounds
    assert low <= -0.5 * 10
    assert high >= 0.5 * 10
    quiet = window_energy(
        Curve(curve.times_ns, [5.0] * len(curve.watts)), window, Timing(clock=0.5)
    )
    assert quiet.bounds == (0, 0)


def wandering(rng, seconds, memory, deviation, interval=0.11):
    """Return readings of power that wanders about 0 W and forgets exponentially."""
    kept = math.exp(-interval / memory)
    watts = [rng.gauss(0, deviation)]
    while len(watts) * interval < seconds:
        watts.append(kept * watts[-1] + math.sqrt(1 - kept * kept) * rng.gauss(0, deviation))
    return [ns(i * interval) for i in range(len(watts))], watts


def test_rounding_between_two_levels_is_less_where_only_noise_moves():
    """Idle that sits on a threshold has a mean of half a step, whatever its noise."""
    level = [8.0, 8.4] * 100
    assert quantisation_watts(level, 0.4, is_idle=True) < 0.3 * quantisation_watts(level, 0.4)
    assert quantisation_watts([8.0] * 9, 0.4, is_idle=True) == quantisation_watts([8.0] * 9, 0.4)


@pytest.mark.parametrize("memory", [0.01, 0.7, 1.3], ids=["white", "recorded", "slow"])
def test_wander_of_idle_power_is_known_from_two_phases(memory):
    """The mean of a minute between two phases of 7.5 s lies in the interval 93 times of 100."""
    seed = random.SystemRandom().randrange(1 << 32)
    rng, inside = random.Random(seed), 0
    for _ in range(400):
        times, watts = wandering(rng, 75, memory, 0.15)
        first = next(i for i, t in enumerate(times) if t > ns(7.5))
        last = next(i for i, t in enumerate(times) if t > ns(67.5))
        phases = [Curve(times[:first], watts[:first]), Curve(times[last:], watts[last:])]
        inferred = sum(math.fsum(one.watts) / len(one.watts) for one in phases) / 2
        truth = math.fsum(watts[first:last]) / (last - first)
        inside += abs(truth - inferred) <= wander(phases).watts((0.5, 0.5), 60.0)
    assert inside >= 360, f"{inside} of 400, seed {seed}"


def test_a_beat_lifts_the_limit_by_smoothness():
    """Slow change of the readings is no error, unless it may be a beat of the work."""
    watts = [10 + math.sin(i / 6) for i in range(600)]
    curve = Curve([ns(0.1 * i) for i in range(600)], watts)
    aside = math.sqrt(2) * 0.05 * statistics.pstdev(watts)
    unlimited = math.sqrt(sampling_watts(curve, [Beat(3.0, 1.0, 0.05)]) ** 2 - aside**2)
    assert unlimited > 3 * sampling_watts(curve)
    # The idle board moves so by itself.
    assert sampling_watts(curve) > 2 * sampling_watts(curve, [Beat(3.0, 1.0, 0.0)], 10.0)


def two_phases(seconds, memory):
    """Return two idle phases of equal length whose power wanders."""
    rng = random.Random(11)
    return [Curve(*wandering(rng, seconds, memory, 0.15)) for _ in range(2)]


def test_short_idle_phases_may_hide_memory():
    """Neighbours that are alike widen the interval, unless the sensor itself makes them so."""
    phases = two_phases(3, 1.3)
    unknown, of_sensor = (wander(phases, one).watts((0.5, 0.5), 60.0) for one in (0.0, 1.0))
    assert unknown > 1.3 * of_sensor


def test_the_window_wanders_as_its_idle_phases_do():
    """A window as long as each of two phases has twice the variance of the mean of both."""
    phases = two_phases(10, 0.7)
    length = phases[0].times_ns[-1] / SECOND
    endless, equal = (wander(phases).watts((0.5, 0.5), one) for one in (math.inf, length))
    assert equal == pytest.approx(math.sqrt(3) * endless)
    assert wander(phases).watts((1.0, 1.0), math.inf) == pytest.approx(2 * endless)


def test_a_level_is_known_best_if_its_ends_are_held():
    """Ends stand for what lies beyond them: the mean is nearer to the truth, and its interval so.

    Noise has no memory, and a long one is at most a quarter of a phase.
    """
    rng, squares, narrower = random.Random(5), [0.0, 0.0], []
    phase = span(0, 7.5)
    for _ in range(400):
        one, other = (Curve(*wandering(rng, 7.4, 1.3, 0.15)) for _ in range(2))
        found = wander([one, other])
        assert 0 < found.memory <= 7.5 / 4
        for i, held in enumerate((0.0, found.memory)):
            squares[i] += idle_watts(one, phase, held) ** 2 / 400
        halves = [found.watts((1.0, 1.0), math.inf, held) for held in (0.0, found.memory)]
        narrower.append(halves[1] / halves[0])
    assert squares[1] < 0.97 * squares[0]
    assert statistics.median(narrower) == pytest.approx(0.85, abs=0.06)
    times = [ns(0.1 * i) for i in range(75)]
    noise = [Curve(times, [rng.gauss(6, 0.1) for _ in times]) for _ in range(2)]
    assert wander(noise).memory < 0.1


def test_a_held_phase_counts_as_longer():
    """With a memory of one second a phase of 8 s tells as much of the level as one of 10 s."""
    (short,), (long,) = ([Curve([0, ns(t)], [1.0, 2.0])] for t in (8, 10))
    both = [wander([one])._replace(density=1.0, freedom=math.inf) for one in (short, long)]
    assert both[0].watts([1.0], math.inf, 1.0) == both[1].watts([1.0], math.inf)
    assert idle_watts(Curve([0, ns(4), ns(8)], [2.0, 0.0, 2.0]), span(0, 8), 1.0) == 1.2


def test_one_memory_serves_all_rails():
    """The idle power of the rails adds up to that of the module, and its interval is the module's.

    Each rail wanders with a memory of its own, and is held as long as the module.
    """
    rng, memories = random.Random(7), {"VDD_GPU_SOC": 1.3, "VDD_CPU_CV": 0.6, "VIN_SYS_5V0": 0.2}
    courses = {name: wandering(rng, 56, memory, 0.1, 0.1) for name, memory in memories.items()}
    times = courses["VDD_GPU_SOC"][0]
    work = [5.0 if ns(8) < t < ns(48) else 0.0 for t in times]
    rails = {
        name: [5 + w + extra for w, extra in zip(course, work, strict=True)]
        for name, (_, course) in courses.items()
    }
    stamps = array("q", times)
    columns = {f"rails.{name}.instant_watts": array("d", w) for name, w in rails.items()}
    phases = {
        "baseline_before": span(0, 8),
        "steady": span(8, 48),
        "baseline_after": span(48, 56),
    }
    rule = AGX.model_copy(update={"step": {"default": 1e-6}})
    energy = measure_energy(WindowSlice(stamps, stamps, columns), phases, rule).energy
    module = Curve(times, [sum(at) for at in zip(*rails.values(), strict=True)])
    idle = [settled(phases[name]) for name in ("baseline_before", "baseline_after")]
    readings = [idle_readings(module, one) for one in idle]
    quiet = wander(readings)
    levels = [idle_watts(*one, quiet.memory) for one in zip(readings, idle, strict=True)]
    share = idle_share(*idle, phases["steady"])
    assert quiet.memory > 0.3
    assert energy.baseline_watts == pytest.approx(levels[0] + share * (levels[1] - levels[0]))
    baselines = [rail.baseline_watts for rail in energy.rails.values()]
    assert sum(baselines) == pytest.approx(energy.baseline_watts)
    half = (energy.net_interval.high - energy.net_interval.low) / 2 / 40
    least = quiet.watts((1 - share, share), 40.0, quiet.memory)
    assert least < half < 1.02 * least


SHARE = (35 - 10.275) / (52.275 - 10.275)
"""Middle of the window of ``warmed``, between the middles of its settled idle phases."""


def warmed(before, after, step):
    """Return the energy of 30 s at 15 W after 20 s of idle power and before 4 s of another."""
    times = [0.05 + 0.1 * i for i in range(540)]
    watts = [before if t < 20 else 15.0 if t < 50 else after for t in times]
    stamps = array("q", map(ns, times))
    cut = WindowSlice(stamps, stamps, {"rails.VDD_IN.instant_watts": array("d", watts)})
    phases = {
        "baseline_before": span(0, 20),
        "steady": span(20, 50),
        "baseline_after": span(50, 54),
    }
    rule = NX.model_copy(update={"step": {"default": step}})
    return measure_energy(cut, phases, rule).energy


@pytest.mark.parametrize(("before", "after"), [(5.0, 6.0), (6.0, 5.0)], ids=["rises", "falls"])
def test_idle_power_lies_between_its_phases(before, after):
    """The figure takes it at the middle of the window; the interval reaches to either phase."""
    energy = warmed(before, after, 1e-6)
    assert energy.baseline_watts == pytest.approx(before + (after - before) * SHARE)
    assert energy.net_joules == pytest.approx(30 * (15 - energy.baseline_watts))
    assert energy.net_interval.low == pytest.approx(30 * (15 - 6), abs=0.01)
    assert energy.net_interval.high == pytest.approx(30 * (15 - 5), abs=0.01)


@pytest.mark.parametrize(
    ("difference", "counts"), [(0.3, 0.0), (0.5, 0.1), (0.75, 0.55), (1.0, 1.0), (2.0, 2.0)]
)
def test_a_drift_that_is_certain_counts_in_full(difference, counts):
    """Up to half of its uncertainty it counts less one standard deviation, 0.4 of that.

    From its uncertainty on nothing is subtracted. Quiet readings have the rounding error of one, in
    both phases and in the window.
    """
    step = 0.4
    unsure = math.sqrt(2) * 1.959964 * step / math.sqrt(12)
    energy = warmed(5.0, 5.0 + difference * unsure, step)
    below = energy.net_joules - energy.net_interval.low
    above = energy.net_interval.high - energy.net_joules
    assert below == pytest.approx(30 * unsure * (1 + counts * (1 - SHARE)))
    assert above == pytest.approx(30 * unsure * (1 + counts * SHARE))
