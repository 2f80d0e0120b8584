from array import array

import pytest

from tegrascope.daemon.measure.blocks import WindowSlice
from tegrascope.daemon.measure.quality import (
    baseline_drift,
    clock_step,
    dla_not_used,
    fallback,
    in_order,
    insufficient_samples,
    not_steady,
    outputs_changed,
    overlapping,
    suspended,
    telemetry_gap,
)
from tegrascope.daemon.measure.report import Span
from tegrascope.parsers.inference.events import Outputs
from tegrascope.parsers.inference.placement import Built, Placement

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


def test_one_step_of_a_coarse_thermometer_is_steady():
    """A zone that prints whole degrees changes by one now and then; two in a row are a slope."""
    one = steady_cut(celsius=lambda t: 50.0 + (t > 7.5))
    assert not not_steady(span(0, 10), *run(), one, None)
    rising = steady_cut(celsius=lambda t: 50.0 + int(max(t - 15, 0) / 4))
    assert not_steady(span(0, 30), *run(), rising, None)


def test_overlapping():
    """Phases that share time with a window overlap it; those that touch it do not."""
    others = {
        "a": [span(0, 10)],
        "b": [span(2, 3), span(9, 12)],
        "c": [span(20, 30)],
        "d": [span(11, 13)],
    }
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
    seldom = [t * SECOND for t in range(0, 1000, 200)]
    assert not clock_step(seldom, [t + t // 2000 for t in seldom])


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


@pytest.mark.parametrize(
    ("difference", "layers", "flag"),
    [
        (None, {"fp32": 3}, False),
        (0.0, {"fp32": 3}, False),
        (0.0009, {"fp32": 3}, False),
        (0.0011, {"fp32": 3}, True),
        (0.0011, {"fp16": 2, "fp32": 1}, False),
        (0.011, {"fp16": 2, "fp32": 1}, True),
        (0.009, {}, False),
    ],
)
def test_outputs_changed_is_judged_by_a_limit_for_the_types_of_the_engine(difference, layers, flag):
    found = Outputs(sha256="ab", difference=difference)
    assert outputs_changed(found, Built(layer_types=layers)) is flag
    assert not outputs_changed(None, None)
