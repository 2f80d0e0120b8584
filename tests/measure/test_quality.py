import random
from array import array

import pytest

from tegrascope.daemon.measure.blocks import WindowSlice
from tegrascope.daemon.measure.energy import Curve, integrate
from tegrascope.daemon.measure.quality import (
    aliased,
    baseline_drift,
    clock_step,
    cycle_phases,
    dla_not_used,
    fallback,
    in_order,
    insufficient_samples,
    not_steady,
    overlapping,
    rayleigh_probability,
    suspended,
    telemetry_gap,
)
from tegrascope.daemon.measure.run_report import Span
from tegrascope.daemon.measure.uncertainty import sampling_watts
from tegrascope.parsers.inference.placement import Placement

SECOND = 1_000_000_000


def span(begin, end):
    return Span(begin_ns=round(begin * SECOND), end_ns=round(end * SECOND))


@pytest.mark.parametrize(
    ("seconds", "samples", "inferences", "flag"),
    [
        (10, 100, 200, False),
        (9.99, 100, 200, True),
        (10, 99, 200, True),
        (10, 100, 199, True),
        (10, 100, None, False),
        (10, 99, None, True),
    ],
)
def test_insufficient_samples(seconds, samples, inferences, flag):
    """Ten seconds, a hundred samples and two hundred inferences are needed, all three."""
    assert insufficient_samples(seconds, samples, inferences) is flag


def starts(period, count=3000, wander=0.0, seed=0):
    """Return inference starts at a period that may wander slowly, in nanoseconds."""
    rng, time, found = random.Random(seed), 0.0, []
    for _ in range(count):
        found.append(round(time * SECOND))
        period *= 1 + wander * rng.gauss(0, 1)
        time += period
    return found


def samples(interval, until, jitter=0.0, seed=1):
    rng, time, found = random.Random(seed), 0.001, []
    while time < until:
        found.append(round(time * SECOND))
        time += interval + rng.uniform(0, jitter)
    return found


@pytest.mark.parametrize("interval", [1.0, 0.1, 0.15, 0.1 / 3], ids=str)
def test_aliased_when_sampling_keeps_step(interval):
    """A 30 Hz job sampled every whole or half number of cycles is flagged."""
    assert aliased(samples(interval, 60), starts(1 / 30))


@pytest.mark.parametrize("interval", [1.009, 0.103, 0.0137], ids=str)
def test_not_aliased_when_intervals_are_prime_like(interval):
    """The default intervals with the jitter of a real line source are not flagged."""
    assert not aliased(samples(interval, 95, jitter=0.005), starts(1 / 30))


def test_cycles_shorter_than_a_reading_are_not_aliased():
    """Arrivals that keep step with an inference of a millisecond say nothing of the readings."""
    assert aliased(samples(0.1, 60), starts(0.005))
    assert not aliased(samples(0.1, 60), starts(0.004))


def test_a_long_inference_sampled_often_is_not_aliased():
    """Many samples within each inference see all of it."""
    assert not aliased(samples(0.103, 60, jitter=0.003), starts(1.7, count=40))


def test_aliasing_is_seldom_seen_where_there_is_none():
    """With a period that wanders, at most 3 of 100 sound runs are flagged."""
    flagged = sum(
        aliased(samples(0.103, 20, jitter=0.01, seed=s), starts(0.0123, 1600, 0.001, seed=s))
        for s in range(100)
    )
    assert flagged <= 3


def test_lock_is_found_though_the_period_wanders():
    """Inferences started by the sampling itself are flagged whatever their period does."""
    times = samples(0.1, 60, jitter=0.04)
    assert aliased([t + 2_000_000 for t in times], times)


def sampling_error(cycle, seed):
    """Play a run that draws 30 W in the first half of each inference and 10 W in the second.

    Samples come at an exact 103 ms, as NVML's do, and inferences scatter by 2 %.

    Returns:
        Whether it is flagged, and by how many halves of its 95 % interval its mean power is off.
    """
    rng, time, begun = random.Random(seed), 0.0, []
    while time < 15:
        begun.append(round(time * SECOND))
        time += cycle * rng.gauss(1, 0.02)
    times = samples(0.103, begun[-1] / SECOND, seed=seed)
    offset = round(rng.uniform(0, cycle) * SECOND)
    times = [t + offset for t in times if t + offset < begun[-1]]
    # Of a constant the sampling error is 0: a little noise, as of any sensor.
    watts = [(30 if p < 0.5 else 10) + rng.gauss(0, 0.1) for p in cycle_phases(times, begun)]
    seconds = (times[-1] - times[0]) / SECOND
    error = integrate(times, watts, times[0], times[-1]) / seconds - 20
    return aliased(times, begun), abs(error) / sampling_watts(Curve(times, watts), "seed")


def test_what_is_aliased_is_wrong_by_more_than_its_interval():
    """Where inferences nearly fit into the sampling, many runs are flagged, and they are wrong.

    It is no false alarm: the interval, which is right of sound runs, misses the truth there.
    """
    near = [0.103 / k * (1 + 0.002 * away) for k in range(3, 11) for away in range(-2, 3)]
    spread = [0.008 + 0.0004 * step for step in range(80)]
    runs = [sampling_error(cycle, seed) for seed, cycle in enumerate(near + spread)]
    wrong = [halves > 1 for is_aliased, halves in runs if is_aliased]
    sound = [halves > 1 for is_aliased, halves in runs if not is_aliased]
    assert len(wrong) >= 20
    assert sum(wrong) >= 0.3 * len(wrong)
    assert sum(sound) <= 0.1 * len(sound)


@pytest.mark.parametrize("cycle", [0.0137, 0.0223, 0.0317], ids=str)
def test_exact_periods_that_do_not_fit_are_not_aliased(cycle):
    """Where nothing jitters phases advance by the same step, and spread better than by chance."""
    times, begun = samples(0.103, 15), starts(cycle, round(15 / cycle))
    assert not aliased(times, begun)
    assert rayleigh_probability(cycle_phases(times, begun)) > 0.9


def test_rayleigh_probability_fits_chance():
    """Of evenly random phases, about one in twenty has a probability below 0.05."""
    rng = random.Random(5)
    low = sum(rayleigh_probability([rng.random() for _ in range(50)]) < 0.05 for _ in range(1000))
    assert 35 <= low <= 65
    assert rayleigh_probability([]) == 1
    assert rayleigh_probability([0.3] * 20) < 1e-6


def steady_cut(celsius=lambda _t: 50.0, hertz=lambda _t: 9e8, wobble=0.0):
    times = array("q", (i * SECOND // 10 for i in range(300)))
    return WindowSlice(
        times,
        times,
        {
            "temperatures_celsius.tj": array("d", (celsius(t / SECOND) for t in times)),
            "gpu.frequency_hertz.0": array("d", (hertz(t / SECOND) for t in times)),
            "cpu.0.frequency_hertz": array("d", (1e9 + wobble * (t % 7) for t in times)),
        },
    )


def run(period=lambda _t: 0.01, latency=lambda _t: 0.009):
    found, time = [], 0.0
    while time < 30:
        found.append(time)
        time += period(time)
    return [round(t * SECOND) for t in found], [round(latency(t) * SECOND) for t in found]


def test_steady_run_is_not_flagged():
    """Even rate, latency, clocks and temperature are steady; a moving CPU clock is no matter."""
    assert not not_steady(span(0, 30), *run(), steady_cut(wobble=1e8), None)
    assert not not_steady(span(0, 30), *run(), WindowSlice(), 0)
    assert not not_steady(span(0, 30), [], [], steady_cut(), None)


def test_what_happens_early_is_forgiven():
    """Only the last half counts: a slow, warming start does not make a run unsteady."""
    early = run(lambda t: 0.02 if t < 10 else 0.01, lambda t: 0.015 if t < 10 else 0.009)
    warming = steady_cut(celsius=lambda t: min(40 + t, 52), hertz=lambda t: 3e8 if t < 9 else 9e8)
    assert not not_steady(span(0, 30), *early, warming, 0)


@pytest.mark.parametrize(
    ("work", "cut", "throttles"),
    [
        (run(period=lambda t: 0.01 + t * 1e-4), WindowSlice(), None),
        (run(latency=lambda t: 0.009 if t < 26 else 0.0096), WindowSlice(), None),
        (run(period=lambda _t: 1.5), WindowSlice(), None),
        (run(), steady_cut(celsius=lambda t: 40 + 0.12 * t), None),
        (run(), steady_cut(celsius=lambda t: 40 - 0.12 * t), None),
        (run(), steady_cut(hertz=lambda t: 9e8 if t < 28 else 8.8e8), None),
        (run(), WindowSlice(), 1),
    ],
    ids=["rate", "latency", "too few", "warming", "cooling", "clock", "throttle"],
)
def test_not_steady(work, cut, throttles):
    """Each of the criteria alone makes a run not steady."""
    assert not_steady(span(0, 30), *work, cut, throttles)


def test_a_gated_gpu_has_not_changed_its_clock():
    """A clock of 0 is a gate, as it is between two inferences."""
    gated = steady_cut(hertz=lambda t: 9e8 if round(t * 10) % 3 else 0)
    assert not not_steady(span(0, 30), *run(), gated, None)


def test_overlapping():
    """Windows that share time overlap; those that touch do not."""
    others = {"a": span(0, 10), "b": span(9, 12), "c": span(20, 30), "d": span(11, 13)}
    assert overlapping(span(10, 20), others) == ("b", "d")


@pytest.mark.parametrize(
    ("difference", "uncertainty", "net", "flag"),
    [(-0.31, 0.3, 2, True), (0.29, 0.3, 2, False), (0.31, 0.3, 10, False), (0.6, 0.3, 10, True)],
)
def test_baseline_drift(difference, uncertainty, net, flag):
    """Idle power may differ by what is uncertain about it, or by a twentieth of the net power."""
    assert baseline_drift(difference, uncertainty, net) is flag


def test_clock_step():
    """A jump of the wall clock is flagged either way; slewing and jitter are not."""
    times = list(range(0, 100 * SECOND, SECOND))
    assert not clock_step(times, [t + t // 2000 + t % 7 for t in times])
    for jump in (60_000_000, -60_000_000, 10**18):
        assert clock_step(times, [t + (jump if t > 50 * SECOND else 0) for t in times])
    assert not clock_step([], [])


def test_suspended():
    """Time that the monotonic clock did not see is sleep, save the moment between two reads."""
    assert suspended(SECOND)
    assert not suspended(1_000_000)
    assert not suspended(-1_000_000)


def test_telemetry_gap():
    """One lost line is no gap; two in a row, or an edge without a sample, are."""
    whole = [i * SECOND for i in range(12)]
    window = span(0.5, 10.5)
    assert not telemetry_gap(whole, window)
    assert not telemetry_gap([t for t in whole if t != 5 * SECOND], window)
    assert telemetry_gap([t for t in whole if t not in (5 * SECOND, 6 * SECOND)], window)
    assert telemetry_gap(whole[1:], window)
    assert telemetry_gap(whole[:-1], window)
    assert telemetry_gap([], window)


def test_a_gap_outside_does_not_matter():
    """Silence before the window's neighbour is not the window's."""
    times = [0, *(i * SECOND for i in range(20, 32))]
    assert not telemetry_gap(times, span(20.5, 30.5))


def test_flags_come_in_one_order():
    """Flags are told once each, in the order in which they are documented."""
    raised = ["simulated", "aliased", "overlapped", "aliased"]
    assert in_order(raised) == ("aliased", "overlapped", "simulated")


@pytest.mark.parametrize(
    ("verdict", "on_gpu", "flag"),
    [
        ("mixed", ("softmax",), True),
        ("gpu_only", (), True),
        ("unknown", ("softmax",), True),
        ("unknown", (), False),
        ("dla_plus_reformat", (), False),
        ("pure_dla", (), False),
    ],
)
def test_fallback(verdict, on_gpu, flag):
    """What computes on the GPU fell back, if a DLA was asked for; reformats did not."""
    placement = Placement(verdict=verdict, gpu_layers=on_gpu, reformat_layers=("copy",))
    assert fallback("dla0", placement) is flag
    assert not fallback("gpu", placement)
    assert not fallback("dla0", None)


@pytest.mark.parametrize(
    ("verdict", "was_on", "flag"),
    [
        ("gpu_only", None, True),
        ("gpu_only", True, True),
        ("pure_dla", False, True),
        ("unknown", False, True),
        (None, False, True),
        ("unknown", None, False),
        (None, None, False),
        ("mixed", None, False),
        ("pure_dla", True, False),
    ],
)
def test_dla_not_used(verdict, was_on, flag):
    """An engine with nothing for the DLA, or a core off all along; doubt raises nothing."""
    placement = None if verdict is None else Placement(verdict=verdict)
    assert dla_not_used("dla1", placement, was_on) is flag
    assert not dla_not_used("gpu", placement, was_on)
