import math
import random
import statistics

import pytest

from tegrascope.daemon.measure.energy import Curve, integrate
from tegrascope.daemon.measure.report import Span
from tegrascope.daemon.measure.rhythm import (
    Beat,
    aliased,
    beats_of_batches,
    cycle_phases,
    evenly_spaced,
    folded_rhythm,
    rayleigh_probability,
    shown_cycles,
)
from tegrascope.daemon.measure.uncertainty import beat_watts, sampling_watts

SECOND = 1_000_000_000


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
    window = Span(begin_ns=0, end_ns=60 * SECOND)
    assert len(evenly_spaced(window, 12_000)) == 12_000
    assert evenly_spaced(window, 15_000) == []


@pytest.mark.parametrize("cycle_ms", [11.557, 17.03, 25.64])
def test_samples_at_moments_of_their_own_are_not_aliased(cycle_ms):
    """A reading of tegrastats takes 6 to 22 ms: the next sample is anywhere in such a cycle."""
    flagged = 0
    for seed in range(200):
        chance = random.Random(seed)
        starts = [round(1e6 * cycle_ms * (number + chance.random() / 50)) for number in range(900)]
        time, times = 0.0, []
        while time < min(starts[-1], 10.1e9):
            time += 1e6 * (83 + chance.uniform(6, 22))
            times.append(round(time))
        flagged += aliased(times, starts)
    assert flagged == 0


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
    return aliased(times, begun), abs(error) / sampling_watts(Curve(times, watts))


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
    assert sum(sound) <= 0.15 * len(sound)


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


def batches(period, count, length, seconds, rng):
    """Return starts of so many inferences back to back, once in a period."""
    found, begin = [], rng.uniform(0, period)
    while begin < seconds:
        time = begin
        for _ in range(count):
            found.append(round(time * SECOND))
            time += length * rng.uniform(0.85, 1.15)
        begin += period
    return found


@pytest.mark.parametrize(
    ("period", "count", "length", "seconds"), [(1.0235, 10, 0.035, 120), (0.1175, 3, 0.021, 60)]
)
def test_batches_that_keep_step_are_flagged(period, count, length, seconds):
    """Ten inferences at a time, at any phase of each, once per line of a real tegrastats."""
    rng = random.Random(7)
    for seed in range(20):
        times = samples(period - 0.0005, seconds, 0.001, seed)
        begun = batches(period, count, length, seconds, rng)
        assert aliased(times, begun)
        assert aliased([], [], [Beat(0.5, 0.4, 0.5)])
        assert max(one.share for one in folded_rhythm(times, begun) if one.cycles < 1.5) > 0.15


@pytest.mark.parametrize("fold", [1, 2, 3])
def test_batches_several_times_a_sample_are_flagged(fold):
    """Batches that come twice or three times per sample lock as well, at any phase of each."""
    times = samples(1.023, 120, 0.001)
    begun = batches(1.0235 / fold, 3, 0.035, 120, random.Random(fold))
    assert aliased(times, begun)
    assert max(one.share for one in folded_rhythm(times, begun) if one.cycles < 1.5) > 0.15


def test_batches_apart_from_the_sampling_are_not_flagged():
    rng, flagged = random.Random(8), 0
    for seed in range(50):
        times = samples(1.015, 120, 0.016, seed)
        flagged += aliased(times, batches(0.7, 10, 0.035, 120, rng))
    assert flagged <= 5


def test_a_beat_widens_the_interval():
    """Single inferences at eight a second drift slowly through the samples of 117 ms."""
    times, begun = samples(0.103, 60, 0.028), starts(0.125, 480)
    shares = [one.share for one in folded_rhythm(times, begun)]
    slow = [one.share for one in folded_rhythm(samples(0.124, 60), begun)]
    assert max(slow) > 3 * max(shares)
    curve = Curve(times, [10 + math.sin(t / SECOND) for t in times])
    swing = statistics.pstdev(curve.watts)
    locked, free = (sampling_watts(curve, [Beat(3.0, 1.0, share)]) for share in (0.3, 0.0))
    assert locked > 0.4 * swing > 5 * free


def error_of_batches(seed):
    """Play batches of four inferences of 26 ms every 115 ms, by a tegrastats of 103 ms for 15 s.

    Returns:
        Whether they are flagged, and by how many halves of its 95 % interval mean power is off.
    """
    rng = random.Random(seed)
    begun = batches(0.115, 4, 0.026, 15, rng)
    ends = [begun[i + 3] + 26_000_000 for i in range(0, len(begun), 4)]
    busy = list(zip(begun[::4], ends, strict=True))
    times = [t for t in samples(0.109, 15, 0.016, seed) if begun[0] < t < begun[-1]]
    watts = [(15 if any(a < t < b for a, b in busy) else 5) + rng.gauss(0, 0.1) for t in times]
    first, last = times[0], times[-1]
    worked = sum(max(0, min(b, last) - max(a, first)) for a, b in busy)
    error = (integrate(times, watts, first, last) * SECOND - 10 * worked) / (last - first) - 5
    beats = folded_rhythm(times, begun)
    return aliased(times, begun, beats), abs(error) / sampling_watts(Curve(times, watts), beats)


def test_batches_with_short_pauses_are_inside_their_interval():
    """Their starts hardly have a rhythm, but all that their power moves by is in it."""
    runs = [error_of_batches(seed) for seed in range(60)]
    sound = [halves for is_aliased, halves in runs if not is_aliased]
    assert len(sound) >= 40
    assert sum(halves > 1 for halves in sound) <= 0.15 * len(sound)


def test_a_weak_rhythm_in_work_that_moves_slowly_is_no_large_error():
    """A rhythm swings by no more than its own share of the work, or all readings do."""
    moving = Curve(range(100), [10 + 0.05 * i for i in range(100)])
    plain = sampling_watts(moving, [Beat(3.0, 0.0, 1.0)])
    weak = sampling_watts(moving, [Beat(3.0, 0.01, 1.0)])
    strong = sampling_watts(moving, [Beat(3.0, 0.9, 1.0)])
    swing = math.sqrt(2) * statistics.pstdev(moving.watts)
    assert weak == pytest.approx(math.hypot(plain, 0.01 * swing))
    assert strong == pytest.approx(swing, rel=0.01)


def test_phases_that_jump_are_no_beat():
    """A line of tegrastats is 6 to 22 ms late, which is most of a cycle: no slow change is a beat.

    Phases that drift are a beat where they are more concentrated than by chance.
    """

    def endless(cycle, seed):
        rng = random.Random(seed)
        times, at = [], 0.5
        while at < 119.5:
            times.append(round(at * SECOND))
            at += 1.009 + rng.uniform(0.006, 0.022)
        found = folded_rhythm(times, starts(cycle, count=round(120 / cycle), seed=seed))
        return any(math.isinf(beat.cycles) for beat in found)

    assert sum(endless(0.0173, seed) for seed in range(40)) <= 1
    assert sum(endless(0.05115, seed) for seed in range(20)) >= 10


def test_a_cycle_more_or_fewer_matters_only_to_phases_that_drift_slowly():
    """A line is late by most of a short cycle, so each sample meets another moment of it anyway."""
    window = Span(begin_ns=0, end_ns=120 * SECOND)
    for seed in range(10):
        times = samples(1.015, 120, 0.016, seed)
        begun = evenly_spaced(window, round(120 / 0.0213))
        counted, timed = (folded_rhythm(times, begun, miscount=n) for n in (1, 0))
        assert counted == [one._replace(hertz=None) for one in timed]


def test_batches_of_counted_inferences_may_lock():
    """A batch of ten once a second cannot be told from a steady row by its count."""
    window, times = Span(begin_ns=0, end_ns=120 * SECOND), samples(1.0235, 120)
    (beat,) = beats_of_batches(times, window, round(120 / 1.0235) * 10)
    assert beat.cycles < 1.5
    assert beat.share > 0.9
    assert aliased(times, evenly_spaced(window, 1170), [beat])
    assert beats_of_batches(times, window, round(120 / 0.0213)) == []
    assert beats_of_batches(times, window, None) == []


def test_inferences_that_were_counted_lock_too():
    window = Span(begin_ns=0, end_ns=120 * SECOND)
    assert aliased(samples(1.0, 120), evenly_spaced(window, 120 * 30))
    assert not aliased(samples(1.009, 120, 0.016), evenly_spaced(window, 1234))


def in_step(seed, period=0.17625, seconds=60, share=0.4):
    """Return readings of a pulse of 5 W each period, by a tegrastats of 103 ms, and its starts.

    The curve begins and ends with a start, so its true mean is known: 5 W times the share.
    """
    times, phase = samples(0.109, seconds, 0.016, seed), random.Random(seed).uniform(0, period)
    begun = [round((phase + i * period) * SECOND) for i in range(int(seconds / period))]
    rng = random.Random(seed)
    turns = [(t - begun[0]) / SECOND / period % 1 for t in times]
    return Curve(times, [6 + 5 * (turn < share) + rng.gauss(0, 0.05) for turn in turns]), begun


def test_readings_show_how_strong_a_strict_rhythm_is():
    """Every third reading of one and a half cycles meets the same moment, nearly.

    Three harmonics of the work lie near multiples of the sampling, and the third, which is weak,
    beats. Without its frequency, all that the readings scatter by might be that beat.
    """
    inside, narrower = 0, []
    for seed in range(40):
        curve, begun = in_step(seed)
        beats = folded_rhythm(curve.times_ns, begun)
        known = sampling_watts(curve, beats)
        unknown = sampling_watts(curve, [one._replace(hertz=None) for one in beats])
        mean = integrate(curve.times_ns, curve.watts, curve.times_ns[0], curve.times_ns[-1])
        seconds = (curve.times_ns[-1] - curve.times_ns[0]) / SECOND
        inside += abs(mean / seconds - 8) <= known
        narrower.append(known / unknown)
    assert inside >= 37
    assert statistics.median(narrower) < 0.5


def test_a_rhythm_counts_by_its_share_in_the_mean():
    """A wave of 2 W moves the mean by what its samples do, whatever else the readings do."""
    times = samples(0.109, 60, 0.016)
    turn = 2 * math.pi * 17.3 / SECOND
    share = statistics.fmean(math.cos(turn * t) for t in times)
    watts = [10 + 2 * math.cos(turn * t) for t in times]
    noise = 1.959964 * statistics.pstdev(watts) / math.sqrt(len(times)) * 0.2
    assert 2 * abs(share) <= beat_watts(Curve(times, watts), 17.3) <= 2 * abs(share) + noise
    slow = [one + t / SECOND / 10 for one, t in zip(watts, times, strict=True)]
    assert beat_watts(Curve(times, slow), 17.3) < 2 * abs(share) + 2 * noise


def test_samples_at_one_moment_of_a_rhythm_do_not_show_it():
    """Exact samples of every second cycle cannot tell the rhythm from a constant."""
    times = [i * SECOND // 10 for i in range(600)]
    assert beat_watts(Curve(times, [10 + 0.1 * (i % 7) for i in range(600)]), 20.0) == math.inf
    locked = Beat(0.0, 1.0, 1.0, 20.0)
    curve = Curve(times, [10 + i % 2 for i in range(600)])
    assert sampling_watts(curve, [locked]) == sampling_watts(curve, [locked._replace(hertz=None)])


def test_harmonics_of_a_rhythm_add_up():
    """The beats of two harmonics may have the same sign; those of one are found many times."""
    curve, _ = in_step(1, period=0.1175)
    one, two = (Beat(3.0, 1.0, 0.3, n / 0.1175) for n in (1, 2))
    each = [beat_watts(curve, beat.hertz) for beat in (one, two)]
    plain = sampling_watts(curve, [Beat(3.0, 0.0, 0.3)])
    errors = [
        math.sqrt(sampling_watts(curve, beats) ** 2 - plain**2)
        for beats in ([one], [one, one], [one, two])
    ]
    assert errors[0] == errors[1] < errors[2] <= sum(each)


@pytest.mark.parametrize(("jitter", "is_strict"), [(0.01, True), (0.12, False)])
def test_only_starts_in_strict_time_have_a_frequency(jitter, is_strict):
    """Power of others does not keep to one, so a wave of one frequency does not show its beat."""
    curve, begun = in_step(2)
    rng = random.Random(3)
    moved = [round(t + rng.gauss(0, jitter) * 0.17625 * SECOND) for t in begun]
    found = {one.hertz for one in folded_rhythm(curve.times_ns, moved) if one.sampled > 0.3}
    assert (None not in found) == is_strict
    if is_strict:
        harmonics = [hertz * 0.17625 for hertz in found]
        assert harmonics == pytest.approx([round(one) for one in harmonics], abs=0.01)
    assert {one.hertz for one in folded_rhythm(curve.times_ns, moved, miscount=1)} == {None}


def test_power_shows_how_many_cycles_a_window_holds():
    """The count is off by up to one cycle, and the best of the frequencies near it is the truth."""
    window = Span(begin_ns=0, end_ns=60 * SECOND)
    for seed, period in enumerate((0.17625, 0.125, 0.0587, 0.0391)):
        curve, _ = in_step(seed, period)
        for count in (round(60 / period), int(60 / period) + 1):
            assert shown_cycles(curve, window, count) == pytest.approx(60 / period, abs=0.13)
        assert shown_cycles(curve, window, round(60 / period) + 30) is None


def test_slow_change_shows_no_cycles():
    """Heat fits a beat of one cycle in the window. Noise, or few readings, fit nothing."""
    window = Span(begin_ns=0, end_ns=60 * SECOND)
    times = samples(0.109, 60, 0.001)
    rng, count = random.Random(4), len(times) - 1
    heat = Curve(times, [10 - math.exp(-t / SECOND / 20) for t in times])
    assert [shown_cycles(heat, window, count + n) for n in range(-3, 4)] == [None] * 7
    noise = Curve(times, [10 + rng.gauss(0, 1) for _ in times])
    assert shown_cycles(noise, window, 480) is None
    assert shown_cycles(Curve(times[:9], heat.watts[:9]), window, 480) is None
