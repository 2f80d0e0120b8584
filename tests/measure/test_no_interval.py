"""More doubt never gives a narrower interval, and without any limit there is none."""

import random
from array import array
from itertools import pairwise

import pytest

from tegrascope.collectors.board.boards import find_rail_rule
from tegrascope.daemon.measure.blocks import WindowSlice
from tegrascope.daemon.measure.energy import Curve, Timing, settled, window_energy
from tegrascope.daemon.measure.energy_report import measure_energy
from tegrascope.daemon.measure.figures import joules_of, mean_energy
from tegrascope.daemon.measure.phases import energy_of_parts
from tegrascope.daemon.measure.report import Figure, Span
from tegrascope.daemon.measure.run_text import joules, with_half

S = 1_000_000_000
RULE = find_rail_rule(["VDD_IN", "VDD_CPU_GPU_CV", "VDD_SOC"])


def span(begin, end):
    return Span(begin_ns=round(begin * S), end_ns=round(end * S))


def telemetry(begin=85.0, end=130.0, interval=0.103):
    """Return samples of 12 W from 100 to 115 s, and of 5 W before and after."""
    chance = random.Random(3)
    times = [begin + interval * i for i in range(round((end - begin) / interval))]
    watts = [(12.0 if 100 <= t < 115 else 5.0) + chance.gauss(0, 0.05) for t in times]
    stamps = array("q", (round(t * S) for t in times))
    names = ("VDD_IN", "VDD_CPU_GPU_CV", "VDD_SOC")
    columns = {f"rails.{name}.instant_watts": array("d", watts) for name in names}
    return WindowSlice(stamps, stamps, columns)


PHASES = {
    "baseline_before": span(90, 100),
    "steady": span(100, 115),
    "baseline_after": span(115, 125),
}


def measured(clock, cut=None):
    found = measure_energy(cut or telemetry(), PHASES, RULE, timing=Timing(clock=clock))
    return found.energy


def test_unsure_clocks_widen_the_interval_until_there_is_none():
    """From 7.4 s on no reading of the window of 15 s is certainly inside it."""
    clocks = (0.0, 0.1, 0.5, 2.0, 5.0, 7.0, 7.4, 7.6, 20.0, None)
    widths = []
    for clock in clocks:
        interval = measured(clock).gross_interval
        widths.append(None if interval is None else interval.high - interval.low)
    known = [width for width in widths if width is not None]
    assert known == sorted(known)
    assert widths[len(known) :] == [None] * (len(clocks) - len(known))
    assert widths[0] is not None
    assert widths[clocks.index(7.6)] is None


def some_work(chance):
    """Return samples of a window with 5 W before and after it, and the seconds of the window."""
    interval = chance.choice([0.103, 0.25, 1.009])
    seconds = chance.choice([20, 60, 150]) * interval
    kind = chance.choice(["constant", "ramp", "bursts", "levels", "walk"])
    swing, period = chance.uniform(0, 5), chance.uniform(0.3, 20)
    level = walk = 0.0
    times, watts = [], []
    time = -20.0
    while time < seconds + 20:
        walk += chance.gauss(0, 0.1)
        if chance.random() < 0.1:
            level = chance.choice([0, swing / 2, swing])
        added = {
            "constant": 0.0,
            "ramp": swing * time / seconds,
            "bursts": swing * (time % period < period / 2),
            "levels": level,
            "walk": walk,
        }
        power = 10.0 + added[kind] if 0 <= time < seconds else 5.0
        times.append(round((100 + time) * S))
        watts.append(round((power + chance.gauss(0, 0.05)) / 0.04) * 0.04)
        time += interval * chance.uniform(0.9, 1.2)
    stamps, column = array("q", times), array("d", watts)
    names = ("VDD_IN", "VDD_CPU_GPU_CV", "VDD_SOC")
    columns = {f"rails.{name}.instant_watts": column for name in names}
    return WindowSlice(stamps, stamps, columns), seconds


@pytest.mark.parametrize(
    ("doubt", "narrower_at_most"),
    [("length", 0.0), ("clock", 0.02), ("delay", 0.02), ("averaging", 0.02)],
)
def test_more_doubt_does_not_narrow_an_interval(doubt, narrower_at_most):
    """Where it grows. What is left of readings scatters: that may give a tenth less by chance."""
    chance = random.Random(7)
    narrower = steps = 0
    for _ in range(100):
        samples, seconds = some_work(chance)
        known = {
            "clock": chance.choice([0.0, 0.05, 0.3]),
            "averaging": chance.choice([0.0, 0.3]),
            "delay": chance.choice([0.05, 0.1, 0.4]),
            "length": 0.0,
        }
        more = sorted(chance.uniform(0, seconds / 3) for _ in range(4))
        widths = []
        for seconds_more in (0.0, *more, 2 * seconds):
            timing = Timing(**{**known, doubt: known[doubt] + seconds_more})
            phases = {"steady": span(100, 100 + seconds)}
            interval = measure_energy(samples, phases, RULE, timing=timing).energy.gross_interval
            widths.append(None if interval is None else interval.high - interval.low)
        for width, wider in pairwise(widths):
            assert width is not None or wider is None
            if wider is not None:
                steps += 1
                narrower += wider < 0.9 * width
        assert doubt == "length" or widths[-1] is None
    assert steps >= 300
    assert narrower <= narrower_at_most * steps


@pytest.mark.parametrize("clock", [7.6, None])
def test_energy_without_an_interval_is_shown_as_such(clock):
    energy = measured(clock)
    assert energy.gross_joules == pytest.approx(180, rel=0.02)
    assert energy.gross_interval is energy.net_interval is energy.largest_uncertainty is None
    assert energy.net_joules_per_inference is None
    shown = with_half(joules_of(energy, "gross"), joules)
    assert "±" not in shown
    assert shown.startswith("180")


@pytest.mark.parametrize(
    ("clock", "idle_phases", "is_given"),
    [
        (0.0, ("baseline_before", "baseline_after"), True),
        (0.0, ("baseline_before",), False),
        (None, ("baseline_before", "baseline_after"), True),
    ],
)
def test_net_energy_per_inference_needs_its_interval_if_gross_has_one(clock, idle_phases, is_given):
    """Without any interval, as in a log of unknown clock, both figures are given without one."""
    phases = {name: PHASES[name] for name in ("steady", *idle_phases)}
    found = measure_energy(
        telemetry(), phases, RULE, Figure(value=300.0), timing=Timing(clock=clock)
    )
    energy = found.energy
    assert energy.gross_joules_per_inference is not None
    assert (energy.gross_joules_per_inference_interval is None) == (clock is None)
    assert (energy.net_joules_per_inference is not None) == is_given
    has_interval = is_given and clock is not None
    assert (energy.net_joules_per_inference_interval is not None) == has_interval


def test_power_that_is_unknown_beside_the_window_has_no_limit():
    """The log begins with the window: with an unsure clock, it may hold what was before."""
    inside = telemetry(begin=100.02)
    assert measured(0.0, inside).gross_interval is not None
    assert measured(0.5, inside).gross_interval is None
    assert measured(0.5, telemetry(end=115.05)).gross_interval is None


@pytest.mark.parametrize("count", [0, 1, 2, 3, 5])
def test_few_readings_inside_give_no_interval(count):
    """Down to none: lines that come each 20 s, or a window between two lines."""
    cut = telemetry(interval=0.4)  # readings at 101.0, 101.4, 101.8 s and so on
    window = span(101.12, 101.22 + 0.4 * count)
    found = measure_energy(cut, {"steady": window}, RULE)
    assert found is None or found.energy.gross_interval is None
    assert energy_of_parts(cut, [window], RULE) is None


def test_window_without_a_certain_reading_has_no_edges():
    curve = Curve([round(0.1 * i * S) for i in range(100)], [5.0] * 100)
    found = window_energy(curve, span(3.0, 3.1))
    assert found.joules == pytest.approx(0.5)
    assert found.bounds is None


def test_idle_phase_leaves_out_what_an_unsure_clock_may_add():
    assert settled(span(10, 20), Timing(clock=0.5)) == span(11.05, 19.5)
    assert settled(span(10, 11), Timing(clock=5.0)).seconds == 0
    assert measured(0.3).net_joules == pytest.approx(7 * 15, rel=0.02)
    assert measured(6.0).net_joules is None


def test_mean_of_energies_has_no_interval_if_one_of_them_has_none():
    """Equal figures of unknown intervals have no spread; that is no certainty."""
    sure = Figure(value=2.0, low=1.9, high=2.1)
    assert mean_energy([sure, sure]).half == pytest.approx(0.1)
    assert mean_energy([sure, Figure(value=2.0)]).half is None
    assert mean_energy([Figure(value=2.0)] * 4) == Figure(value=2.0)
    assert mean_energy([None, sure]) is None
    assert mean_energy([]) is None
