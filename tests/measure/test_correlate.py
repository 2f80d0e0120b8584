import math
import random
from array import array

import pytest

from tegrascope.collectors.board.boards import find_rail_rule
from tegrascope.daemon.measure.blocks import WindowSlice
from tegrascope.daemon.measure.correlate import correlate
from tegrascope.daemon.measure.dla import dla_was_on
from tegrascope.daemon.measure.energy import Timing, integrate
from tegrascope.daemon.measure.phases import energy_of_parts
from tegrascope.daemon.measure.report import Environment, Span
from tegrascope.daemon.measure.run_text import run_rows
from tegrascope.daemon.measure.trace import Pattern, RunTrace
from tegrascope.daemon.session.session import RunTimes
from tegrascope.parsers.inference.events import (
    Counted,
    Finished,
    Hello,
    Inferences,
    Loaded,
    Phase,
)
from tegrascope.parsers.inference.placement import Built, Placement

SECOND = 1_000_000_000
RUN = "0190-run"
AGX = {"VDD_GPU_SOC": 10.0, "VDD_CPU_CV": 4.0, "VIN_SYS_5V0": 3.0, "VDDQ_VDD2_1V8AO": 1.0}
RULE = find_rail_rule(AGX)


def ns(seconds):
    return round(seconds * SECOND)


def span(begin, end):
    return Span(begin_ns=ns(begin), end_ns=ns(end))


def phase(name, edge, at):
    return Phase(run_id=RUN, phase=name, edge=edge, at_ns=ns(at))


def inferences(begin, end, cycle=0.0213, latency=0.02):
    count = round((end - begin - latency) / cycle)
    starts = tuple(ns(begin + i * cycle) for i in range(count))
    return Inferences(
        run_id=RUN,
        start_ns=starts,
        latency_ns=(ns(latency),) * count,
        stages_ns={"compute": (ns(latency / 2),) * count},
    )


def trace(*events, **fields):
    made = RunTrace(
        run_id=RUN,
        workload="w",
        backend="onnxruntime",
        device="dla0",
        started_ns=ns(90),
        started_wall_ns=ns(1e6),
        ended_ns=ns(150),
        batch=4,
    )
    for name, value in fields.items():
        setattr(made, name, value)
    for event in events:
        assert made.add(event)
    return made


WHOLE = (
    Loaded(run_id=RUN, model_sha256="ab", versions={"ort": "1"}, cold_start_seconds={"load": 0.5}),
    phase("load", "begin", 91),
    phase("load", "end", 92),
    phase("baseline_before", "begin", 95),
    phase("baseline_before", "end", 100),
    phase("steady", "begin", 100),
    inferences(100, 120),
    inferences(120, 130),
    phase("steady", "end", 130),
    phase("baseline_after", "begin", 130),
    phase("baseline_after", "end", 135),
    Finished(run_id=RUN, outcome="ok", process_peak_bytes=7),
)


def telemetry(begin=94.0, end=136.5, interval=0.103, load=2.0, noise=0.3, seed=1, **columns):
    """Return samples of an AGX Orin whose rails draw ``load`` times more from 100 to 130."""
    rng, times, t = random.Random(seed), [], begin
    while t < end:
        times.append(t)
        t += interval + rng.uniform(0, 0.004)
    rails = {
        f"rails.{rail}.instant_watts": array(
            "d",
            (watts * (load if 100 <= t < 130 else 1) + rng.gauss(0, noise) for t in times),
        )
        for rail, watts in AGX.items()
    }
    extra = {name: array("d", map(value, times)) for name, value in columns.items()}
    stamps = array("q", map(ns, times))
    return WindowSlice(stamps, array("q", (t + ns(1e6) for t in stamps)), {**rails, **extra})


def test_series_that_disagree_widen_the_interval_or_withhold():
    """Work in step with the lines is met at all its moments by a second series only."""

    def report(load):
        second = telemetry(interval=0.083, seed=2, load=load)
        return correlate(trace(*WHOLE), telemetry(), rule=RULE, second=second)

    same, near, far = report(2.0), report(2.1), report(3.0)
    assert (
        same.energy.gross_interval
        == correlate(trace(*WHOLE), telemetry(), rule=RULE).energy.gross_interval
    )
    truth = near.energy.gross_joules * 2.1 / 2.0
    assert near.energy.gross_interval.low < near.energy.gross_joules
    assert truth < near.energy.gross_interval.high
    assert near.energy.largest_uncertainty == "second_series"
    assert near.energy.gross_joules_per_inference is not None
    assert far.quality == ("aliased",)
    assert far.energy.gross_joules_per_inference is None
    assert far.energy.net_joules_per_inference is None


def test_a_sound_run_is_paired_with_its_window():
    """Latency, load, energy and environment of one window, and no flag, make the report."""
    cut = telemetry(**{"gpu.utilization_ratio": lambda t: float(100 <= t < 130)})
    made = trace(*WHOLE, throttle_events=0)
    report = correlate(made, cut, rule=RULE, environment=Environment(board="b"))
    assert report.quality == ()
    assert (report.outcome, report.reason, report.process_peak_bytes) == ("ok", None, 7)
    assert report.phases["steady"] == span(100, 130)
    assert report.inferences == report.latency.count == report.stages["compute"].count == 1407
    assert report.device_latency == report.stages["compute"]
    assert report.latency.p99_seconds == pytest.approx(0.02)
    assert report.throughput_per_second == pytest.approx(1407 * 4 / 30)
    assert report.telemetry.samples == pytest.approx(30 / 0.105, abs=2)
    assert report.telemetry.utilization["gpu"].mean_ratio > 0.99
    assert report.environment.versions == {"ort": "1"}
    assert report.environment.telemetry_interval_seconds == pytest.approx(0.105, abs=0.001)


def test_second_series_counts_if_half_of_it_is_there():
    """Readings missing in one stretch do not make their interval longer."""
    second = telemetry(interval=0.083, seed=2)
    halves = {}
    for share in (0.45, 0.55):
        until_ns = ns(100 + 30 * share)
        kept = [at for at, time_ns in enumerate(second.times_ns) if time_ns < until_ns]
        halves[share] = second.only(kept)
    series = {}
    for name, cut in {**halves, "whole": second, "none": None, "empty": WindowSlice()}.items():
        report = correlate(trace(*WHOLE), telemetry(), rule=RULE, second=cut)
        series[name] = report.energy.sampling_series
    assert series == {0.45: 1, 0.55: 2, "whole": 2, "none": 1, "empty": 1}


@pytest.mark.parametrize("absent", [["VDD_CPU_CV"], ["VDD_CPU_CV", "VDD_GPU_SOC"], [*AGX]])
def test_total_of_which_a_rail_is_absent_at_times_is_withheld(absent):
    """A program that does not print low power; a lost line, without any rail, is bridged."""
    cut = telemetry()
    for number in range(60, 250, 9):
        for rail in absent:
            cut.columns[f"rails.{rail}.instant_watts"][number] = math.nan
    report = correlate(trace(*WHOLE), cut, rule=RULE)
    is_lost_line = absent == [*AGX]
    assert (report.energy.gross_joules is not None) == is_lost_line
    assert ("telemetry_gap" in report.quality) != is_lost_line
    assert report.energy.rails


def test_rail_below_zero_has_energy_below_zero():
    """An idle rail of -0.4 W is a part of the total, and of its own figures."""
    cut = telemetry(noise=0.0)
    stamps = cut.times_ns
    cut.columns["rails.VDD_CPU_CV.instant_watts"] = array("d", [-0.4] * len(stamps))
    energy = correlate(trace(*WHOLE), cut, rule=RULE).energy
    rail = energy.rails["VDD_CPU_CV"]
    assert rail.gross_joules == pytest.approx(-12)
    assert (rail.mean_watts, rail.baseline_watts) == pytest.approx((-0.4, -0.4))
    assert energy.gross_joules == pytest.approx(26 * 30 - 12, rel=0.001)
    assert energy.gross_interval.low < 26 * 30 - 12 < energy.gross_interval.high
    every = telemetry(noise=0.0)
    for name in AGX:
        every.columns[f"rails.{name}.instant_watts"] = array("d", [-0.2] * len(stamps))
    energy = correlate(trace(*WHOLE), every, rule=RULE).energy
    assert energy.gross_joules == pytest.approx(-18)
    assert energy.gross_interval.low < -18 < energy.gross_interval.high


def test_module_energy_leaves_out_what_another_rail_contains():
    """On AGX Orin three rails make the total; gross, net and idle agree with the load."""
    energy = correlate(trace(*WHOLE), telemetry(), rule=RULE).energy
    assert energy.total_rails == ("VDD_GPU_SOC", "VDD_CPU_CV", "VIN_SYS_5V0")
    assert energy.gross_joules == pytest.approx(34 * 30, rel=0.01)
    assert energy.net_joules == pytest.approx(17 * 30, rel=0.02)
    assert energy.baseline_watts == pytest.approx(17, rel=0.02)
    assert energy.gross_joules_per_inference == energy.gross_joules / 1407
    assert energy.net_joules_per_inference == energy.net_joules / 1407
    assert energy.gross_interval.low < 34 * 30 < energy.gross_interval.high
    assert energy.net_interval.low < 17 * 30 < energy.net_interval.high
    assert energy.largest_uncertainty == "idle_wander"
    parts = [energy.rails[rail] for rail in energy.total_rails]
    assert sum(rail.gross_joules for rail in parts) == pytest.approx(energy.gross_joules)
    assert sum(rail.net_joules for rail in parts) == pytest.approx(energy.net_joules)
    assert energy.rails["VDDQ_VDD2_1V8AO"].mean_watts == pytest.approx(2, abs=0.1)


ANSWERS = (*WHOLE[:6], inferences(100, 130, cycle=0.9, latency=0.85), *WHOLE[8:])


def test_energy_per_unit_is_that_of_the_window_over_its_units():
    """Ten answers are too few inferences, but their tokens are enough pieces of work."""
    counted = [Counted(run_id=RUN, units=units) for units in (1500, 1500)]
    report = correlate(trace(*ANSWERS, *counted, unit="token"), telemetry(), rule=RULE)
    energy = report.energy
    assert (report.inferences, report.unit, report.units) == (32, "token", 3000)
    assert report.units_interval is None
    assert report.units_per_second == 3000 / report.phases["steady"].seconds
    assert report.latency.count == 32
    assert "insufficient_samples" not in report.quality
    assert energy.joules_per_unit == energy.gross_joules / 3000
    assert energy.joules_per_unit_interval.low == energy.gross_interval.low / 3000
    assert energy.joules_per_unit_interval.high == energy.gross_interval.high / 3000
    assert energy.net_joules_per_unit == energy.net_joules / 3000
    assert energy.net_joules_per_unit_interval.low == energy.net_interval.low / 3000
    assert energy.gross_joules_per_inference is energy.net_joules_per_inference is None


@pytest.mark.parametrize(("inferences", "is_shown"), [(199, False), (200, True)])
def test_units_do_not_make_a_figure_per_inference(inferences, is_shown):
    events = [one for one in WHOLE if not isinstance(one, Inferences)]
    counted = Counted(run_id=RUN, inferences=inferences, units=3000)
    report = correlate(trace(*events, counted, unit="token"), telemetry(), rule=RULE)
    assert report.quality == ()
    assert report.energy.net_joules_per_unit is not None
    assert (report.energy.gross_joules_per_inference is not None) == is_shown
    assert (report.energy.net_joules_per_inference is not None) == is_shown


def test_energy_of_parts_has_an_interval_or_is_withheld():
    parts = [span(101, 110), span(115, 125)]
    figure = energy_of_parts(telemetry(), parts, RULE)
    assert 0 < figure.low < 19 * 34 < figure.high
    assert energy_of_parts(telemetry(), parts, RULE, Timing(clock=None)) is None
    assert energy_of_parts(telemetry(), [span(101, 101.4)], RULE) is None


def test_uncertain_count_widens_the_interval_to_both_sides():
    counted = Counted(run_id=RUN, units=3000, units_interval=(2900, 3200))
    report = correlate(trace(*ANSWERS, counted, unit="token"), telemetry(load=1.0), rule=RULE)
    energy, interval = report.energy, report.energy.joules_per_unit_interval
    assert (report.units_interval.low, report.units_interval.high) == (2900, 3200)
    assert energy.joules_per_unit == energy.gross_joules / 3000
    assert interval.low == energy.gross_interval.low / 3200
    assert interval.high == energy.gross_interval.high / 2900
    net = energy.net_joules_per_unit_interval  # its lower limit is negative
    assert (net.low, net.high) == (energy.net_interval.low / 2900, energy.net_interval.high / 2900)


@pytest.mark.parametrize(("units", "limits"), [(None, None), (0, None), (5, (0, 10)), (100, None)])
def test_energy_per_unit_is_withheld(units, limits):
    """Without units, with perhaps none, or with too few of them, there is no figure."""
    counted = Counted(run_id=RUN, units=units, units_interval=limits)
    report = correlate(trace(*ANSWERS, counted, unit="token"), telemetry(), rule=RULE)
    assert (report.units, report.unit) == (units, "token")
    assert report.energy.gross_joules > 0
    assert report.energy.joules_per_unit is report.energy.net_joules_per_unit is None
    assert report.energy.joules_per_unit_interval is None
    assert "insufficient_samples" in report.quality


def test_units_without_a_name_are_not_reported():
    report = correlate(trace(*WHOLE, Counted(run_id=RUN, units=3000)), telemetry(), rule=RULE)
    assert (report.unit, report.units, report.energy.joules_per_unit) == (None, None, None)
    assert (report.inferences, report.energy.gross_joules_per_inference is None) == (1407, False)


def test_units_that_keep_step_with_the_samples_are_aliased():
    """If only units were counted, the rhythm of the work is theirs."""
    silent = (*WHOLE[:6], *WHOLE[8:])
    cut = telemetry(interval=0.105, noise=0.0)
    cut = cut.only(range(len(cut.times_ns)))
    step = (cut.times_ns[-1] - cut.times_ns[0]) / (len(cut.times_ns) - 1)
    for units, is_aliased in ((30e9 / step, True), (1.37 * 30e9 / step, False)):
        counted = Counted(run_id=RUN, units=round(units))
        report = correlate(trace(*silent, counted, unit="frame"), cut, rule=RULE)
        assert ("aliased" in report.quality) is is_aliased
        assert (report.energy.joules_per_unit is None) is is_aliased


def test_totals_wait_for_every_rail_of_the_rule():
    """A missing rail, or an unknown board, leaves the rails as they are and has no total."""
    cut = telemetry()
    unknown = correlate(trace(*WHOLE), cut).energy
    assert (unknown.rule, unknown.gross_joules, len(unknown.rails)) == (None, None, 4)
    del cut.columns["rails.VDD_CPU_CV.instant_watts"]
    short = correlate(trace(*WHOLE), cut, rule=RULE).energy
    assert (short.rule, short.gross_joules, len(short.rails)) == ("AGX Orin", None, 3)
    assert short.gross_interval is short.largest_uncertainty is None


def test_energy_without_idle_phases_is_gross_alone():
    """Without a baseline there is no net; with one of two there is one without an interval."""
    bare = [e for e in WHOLE if not (isinstance(e, Phase) and "baseline" in e.phase)]
    energy = correlate(trace(*bare), telemetry(), rule=RULE).energy
    assert energy.net_joules is energy.baseline_watts is energy.net_interval is None
    assert energy.gross_interval is not None
    one = [e for e in WHOLE if not (isinstance(e, Phase) and e.phase == "baseline_after")]
    energy = correlate(trace(*one), telemetry(), rule=RULE).energy
    assert energy.net_joules == pytest.approx(17 * 30, rel=0.02)
    assert energy.net_interval is energy.net_joules_per_inference is None
    assert energy.gross_joules_per_inference is not None


def test_idle_phases_of_few_readings_give_no_net_headline():
    """A few readings do not show how idle power wanders, and a dozen do."""
    for readings in (4, 12):
        begin = 100 - 0.1 * readings
        events = [e for e in WHOLE if not (isinstance(e, Phase) and e.phase == "baseline_before")]
        events[:0] = [
            phase("baseline_before", "begin", begin),
            phase("baseline_before", "end", 100),
        ]
        energy = correlate(trace(*events), telemetry(), rule=RULE).energy
        assert energy.net_joules is not None
        assert (energy.net_joules_per_inference is None) == (energy.net_interval is None)
        assert (energy.net_interval is None) == (readings == 4)


def test_a_short_run_has_totals_but_no_headline():
    """Below the minimum the figures per inference are withheld, and the flag says why."""
    events = (phase("steady", "begin", 100), inferences(100, 108), phase("steady", "end", 108))
    report = correlate(trace(*events), telemetry(), rule=RULE)
    assert "insufficient_samples" in report.quality
    assert report.energy.gross_joules == pytest.approx(34 * 8, rel=0.02)
    assert report.energy.gross_joules_per_inference is None
    assert report.latency is not None


def test_a_run_that_keeps_step_with_sampling_has_no_headline():
    """Aliased runs are flagged and their figures per inference withheld."""
    cut = telemetry()
    inside = [t for t in cut.times_ns if ns(100) <= t < ns(129.5)]
    starts = tuple(t + k * ns(0.025) - 1_000_000 for t in inside for k in range(4))
    locked = Inferences(run_id=RUN, start_ns=starts, latency_ns=(ns(0.02),) * len(starts))
    events = [e for e in WHOLE if not isinstance(e, Inferences)]
    report = correlate(trace(*events, locked), cut, rule=RULE)
    assert "aliased" in report.quality
    assert report.energy.gross_joules is not None
    assert report.energy.gross_joules_per_inference is None
    assert report.energy.net_joules_per_inference is None


@pytest.mark.parametrize(
    ("cycle", "in_step"), [(0.1, True), (0.2, True), (1 / 30, True), (0.0213, False)]
)
def test_a_run_that_keeps_step_with_the_sensor_has_no_headline(cycle, in_step):
    """NVML's power has a beat of its own, so samples off the run's beat are not enough."""
    work = inferences(100, 130, cycle=cycle)
    events = [e for e in WHOLE if not isinstance(e, Inferences)]
    made = trace(*events[:6], work, *events[6:])
    nvml = Environment(power_reading="instant")
    report = correlate(made, telemetry(), rule=RULE, environment=nvml)
    assert ("aliased" in report.quality) == in_step
    assert in_step == (report.energy.gross_joules_per_inference is None)
    assert "aliased" not in correlate(made, telemetry(), rule=RULE).quality


@pytest.mark.parametrize(("power", "in_step"), [("instant", True), ("usage", False), (None, False)])
def test_batches_that_keep_step_with_the_sensor_have_no_headline(power, in_step):
    """Eight uneven inferences every 100 ms: NVML's power meets all of them, or only the pause.

    A mean over a second misses nothing, and a board's sensor has no such beat.
    """
    rng, starts, begin = random.Random(3), [], 100.08
    while begin < 129.5:
        at = begin
        for _ in range(8):
            starts.append(ns(at))
            at += 0.008 * rng.uniform(0.3, 1.7)
        begin += 0.1
    work = Inferences(run_id=RUN, start_ns=starts, latency_ns=(ns(0.002),) * len(starts))
    events = [e for e in WHOLE if not isinstance(e, Inferences)]
    made = trace(*events[:6], work, *events[6:])
    report = correlate(made, telemetry(), rule=RULE, environment=Environment(power_reading=power))
    assert ("aliased" in report.quality) == in_step


def test_joint_windows_name_each_other_and_split_nothing():
    """Overlapping runs are listed; the window's energy is that of both, so none has a share."""
    others = {"before": [span(60, 70)], "during": [span(80, 81), span(110, 125)]}
    report = correlate(trace(*WHOLE), telemetry(), rule=RULE, others=others)
    assert report.overlapping_runs == ("during",)
    assert report.quality == ("overlapped",)
    assert report.energy.gross_joules == pytest.approx(34 * 30, rel=0.01)
    assert report.energy.gross_joules_per_inference is None


def test_work_of_another_run_in_an_idle_phase_leaves_no_net_energy():
    """The idle power is unknown then, and the energy of the window is right."""
    before = trace(*WHOLE).phases["baseline_before"]
    other = Span(begin_ns=before.begin_ns, end_ns=before.end_ns - 1)
    report = correlate(trace(*WHOLE), telemetry(), rule=RULE, others={"load": [other]})
    assert report.quality == ("baseline_disturbed",)
    assert report.energy.gross_joules_per_inference is not None
    assert report.energy.net_joules is None


def test_a_run_cut_short_counts_what_it_completed():
    """Without the end of its steady phase a run's window ends with its last whole inference."""
    events = (*WHOLE[:6], inferences(100, 125))
    made = trace(*events, outcome="timeout", reason="too long")
    report = correlate(made, telemetry(), rule=RULE)
    assert (report.outcome, report.reason) == ("timeout", "too long")
    last = max(a + b for a, b in zip(made.start_ns, made.latency_ns, strict=True))
    assert report.phases["steady"].end_ns == last
    assert report.energy.gross_joules == pytest.approx(34 * (last / SECOND - 100), rel=0.01)
    assert "baseline_after" not in report.phases


@pytest.mark.parametrize("cut", [None, telemetry()], ids=["no telemetry", "telemetry"])
def test_a_run_that_never_was_steady_has_its_reason(cut):
    """A run that failed to load is reported with what is known, and claims nothing else."""
    refused = Finished(
        run_id=RUN, outcome="skipped", skip_reason="unavailable", reason="no DLA here"
    )
    report = correlate(
        trace(*WHOLE[:3], refused), cut, rule=RULE, environment=Environment(simulated=True)
    )
    assert (report.outcome, report.skip_reason) == ("skipped", "unavailable")
    assert report.reason == "no DLA here"
    assert report.quality == ("simulated",)
    assert report.telemetry is report.energy is report.latency is None
    assert report.cold_start_seconds == {"load": 0.5}


def test_a_run_without_telemetry_keeps_its_latency():
    """Where no samples came, the run is flagged and its latency stands."""
    report = correlate(trace(*WHOLE), None, rule=RULE)
    assert report.quality == ("insufficient_samples", "telemetry_gap")
    assert report.latency.count == 1407
    assert report.telemetry is report.energy is None


def test_a_silent_worker_is_a_failure():
    """A run whose end nobody told is failed, and says so."""
    report = correlate(trace(), None)
    assert (report.outcome, report.reason) == ("failed", "the worker did not report how it ended")


ON, OFF = (lambda _: 1.0), (lambda _: 0.0)
BEFORE = lambda t: float(t < 100)  # noqa: E731 - a column, like the two above
UNKNOWN = lambda _: math.nan  # noqa: E731


@pytest.mark.parametrize(
    ("columns", "was_on"),
    [
        ({"dla.0.on": ON}, True),
        ({"dla.0.on": OFF}, False),
        ({"dla.0.on": BEFORE}, False),
        ({"dla.0.on": OFF, "dla.0.utilization_ratio": ON}, True),
        ({"dla.0.utilization_ratio": OFF}, False),
        ({"dla.0.on": UNKNOWN}, None),
        ({"dla.1.on": OFF}, None),
        ({}, None),
    ],
)
def test_a_core_that_worked_was_on_in_some_sample(columns, was_on):
    """Samples of the steady window tell of a core; what none tells is not known."""
    assert dla_was_on(telemetry(**columns), span(100, 130), "dla0") is was_on


def test_work_that_went_elsewhere_is_flagged():
    """A DLA run whose engine is the GPU's, or whose core stayed off, is told from one that ran."""

    def quality(verdict, gate, **fields):
        loaded = Loaded(
            run_id=RUN, model_sha256="ab", built=Built(placement=Placement(verdict=verdict))
        )
        made = trace(*WHOLE, loaded, **{"backend": "tensorrt", "throttle_events": 0, **fields})
        return correlate(made, telemetry(**{"dla.0.on": gate}), rule=RULE).quality

    assert quality("pure_dla", ON) == ()
    assert quality("mixed", ON) == ("fallback",)
    assert quality("gpu_only", ON) == ("dla_not_used", "fallback")
    assert quality("pure_dla", OFF) == ("dla_not_used",)
    assert quality("gpu_only", OFF, device="gpu") == ()


def counted(begin, end, ratio=0.8):
    """Return a counter of busy seconds that grows by so much a second, from begin to end."""
    return lambda t: 5 + ratio * (min(max(t, begin), end) - begin)


def test_trace_of_the_dla_knows_best():
    """Its busy time is the run's; a core that was powered and did nothing was not used."""
    cut = telemetry(
        **{
            "dla.0.busy_seconds": counted(98, 130),
            "dla.0.tasks": lambda t: float(round(t * 50)),
            "dla.0.firmware_ratio": lambda t: 0.7 if 100 < t < 130 else math.nan,
            "dla.0.on": OFF,
        }
    )
    report = correlate(trace(*WHOLE, backend="tensorrt", throttle_events=0), cut, rule=RULE)
    assert report.telemetry.utilization["dla0:ftrace"].mean_ratio == pytest.approx(0.8, abs=0.01)
    assert report.telemetry.utilization["dla0:firmware"].mean_ratio == pytest.approx(0.7)
    assert report.telemetry.dla_trace_troubles == {}
    assert "dla_not_used" not in report.quality
    idle = {"dla.0.busy_seconds": lambda _: 5.0, "dla.0.tasks": lambda _: 9.0, "dla.0.on": ON}
    made = trace(*WHOLE, backend="tensorrt", throttle_events=0)
    assert correlate(made, telemetry(**idle), rule=RULE).quality == ("dla_not_used",)
    lost = {**idle, "dla.trace.lost": lambda t: math.nan if t < 110 else 40.0}
    report = correlate(made, telemetry(**lost), rule=RULE)
    assert report.quality == ()
    assert report.telemetry.dla_trace_troubles == {"lost": 40}


def test_work_of_others_on_a_dla_is_flagged():
    """A core that works in a baseline, or while no run of ours has it, works for others."""
    made = trace(*WHOLE, throttle_events=0)
    ours = telemetry(**{"dla.0.busy_seconds": counted(100, 130)})
    assert correlate(made, ours, rule=RULE).quality == ()
    theirs = telemetry(**{"dla.0.busy_seconds": counted(90, 140, 0.3)})
    disturbed = correlate(made, theirs, rule=RULE)
    assert disturbed.quality == ("baseline_disturbed", "foreign_dla_activity")
    assert disturbed.energy.net_joules is None
    assert disturbed.energy.net_reason == "a DLA was busy in an idle phase"
    other = telemetry(**{"dla.1.busy_seconds": counted(90, 140, 0.3)})
    assert correlate(made, other, rule=RULE).quality == ()
    alone = correlate(made, other, rule=RULE, in_flight=lambda *_: 0.0)
    assert alone.quality == ("baseline_disturbed", "foreign_dla_activity")
    assert alone.foreign_dla_processes == ()
    runs = RunTimes()
    runs.set_in_flight("other", "dla1", ns(80))
    accounted = correlate(made, other, rule=RULE, in_flight=runs.in_flight_seconds)
    assert accounted.quality == ()


def test_disturbance_that_was_found_elsewhere_has_a_reason():
    """No net energy without the reason for that in the record."""
    found = correlate(trace(*WHOLE), telemetry(), rule=RULE, flags=["baseline_disturbed"])
    assert found.quality == ("baseline_disturbed",)
    assert found.energy.net_joules is None
    assert found.energy.net_reason == "something worked in an idle phase"
    bare = [e for e in WHOLE if not (isinstance(e, Phase) and "baseline" in e.phase)]
    found = correlate(trace(*bare), telemetry(), rule=RULE, flags=["baseline_disturbed"])
    assert found.energy.net_reason is None  # no idle phase was measured


def test_flag_of_work_of_others_names_those_who_worked_on_that_core():
    cut = telemetry(
        **{
            "dla.1.busy_seconds": counted(90, 140, 0.6),
            "dla.1.process_seconds.trtexec": counted(90, 140, 0.2),
            "dla.1.process_seconds.tegrascope": counted(90, 140, 0.2),
            "dla.1.process_seconds.other": counted(90, 140, 0.2),
            "dla.0.process_seconds.detector": counted(90, 140, 0.2),
        }
    )
    made = trace(*WHOLE, throttle_events=0)
    report = correlate(made, cut, rule=RULE, in_flight=lambda *_: 0.0)
    assert report.quality == ("baseline_disturbed", "foreign_dla_activity")
    assert report.foreign_dla_processes == ("trtexec",)
    assert {one.name for one in report.other_processes} == {"trtexec", "other", "detector"}
    calm = correlate(made, cut, rule=RULE)
    assert calm.foreign_dla_processes == ()


def test_runs_in_flight_are_counted_once():
    """Runs of one device that overlap account for the time in which any of them was in flight."""
    runs = RunTimes()
    runs.set_in_flight("a", "dla0", ns(10), ns(20))
    runs.set_in_flight("b", "dla0", ns(15), ns(25))
    runs.set_in_flight("c", "dla1", ns(0), ns(99))
    runs.set_in_flight("d", "dla0", ns(40))
    assert runs.in_flight_seconds("dla0", ns(12), ns(50)) == pytest.approx(13 + 10)
    runs.set_in_flight("d", "dla0", ns(40), ns(41))
    assert runs.in_flight_seconds("dla0", ns(12), ns(50)) == pytest.approx(13 + 1)
    assert runs.in_flight_seconds("gpu", ns(12), ns(50)) == 0


def test_a_simulated_run_claims_nothing_of_a_real_dla():
    off = telemetry(**{"dla.0.on": OFF})
    simulated = Environment(simulated=True)
    report = correlate(trace(*WHOLE, backend="tensorrt"), off, rule=RULE, environment=simulated)
    assert report.quality == ("simulated",)


def test_what_happened_to_the_machine_is_flagged():
    """Throttling, sleep, a set clock and a gap each leave their flag."""
    cut = telemetry()
    wall = array("q", (w + (ns(5) if i > 150 else 0) for i, w in enumerate(cut.wall_ns)))
    stepped = WindowSlice(cut.times_ns, wall, cut.columns)
    report = correlate(
        trace(*WHOLE, throttle_events=2, suspended_ns=ns(3)), stepped, flags=["dla_not_used"]
    )
    expected = ("not_steady", "throttled", "clock_step", "suspended", "dla_not_used")
    assert report.quality == expected
    assert report.telemetry.throttle_events == 2
    assert "telemetry_gap" in correlate(trace(*WHOLE), telemetry(end=129.9)).quality


def test_a_power_mode_that_changed_is_no_steady_run():
    """A change in the window is counted and flagged; one after it, or none, is not."""
    mode = "power_mode.number"
    changed = correlate(trace(*WHOLE), telemetry(**{mode: lambda t: 2.0 if t < 110 else 0.0}))
    assert changed.quality == ("not_steady",)
    assert changed.telemetry.power_mode_changes == 1
    after = correlate(trace(*WHOLE), telemetry(**{mode: lambda t: 2.0 if t < 132 else 0.0}))
    assert (after.quality, after.telemetry.power_mode_changes) == ((), 0)
    assert correlate(trace(*WHOLE), telemetry()).telemetry.power_mode_changes is None


def test_powered_time_tells_without_root_whether_the_dla_was_used():
    """A core that was never powered in the window was not used; one that was raises no flag."""
    made = trace(*WHOLE, backend="tensorrt")
    idle = telemetry(**{"dla.0.powered_seconds": lambda t: 17.25})  # noqa: ARG005
    assert correlate(made, idle).quality == ("dla_not_used",)
    used = telemetry(**{"dla.0.powered_seconds": lambda t: 17.25 + max(t - 100, 0) / 2})
    report = correlate(made, used)
    assert report.quality == ()
    assert report.telemetry.utilization["dla0:powered"].mean_ratio == pytest.approx(0.5, rel=0.01)
    other = telemetry(**{"dla.1.powered_seconds": lambda t: 17.25})  # noqa: ARG005
    assert correlate(made, other).quality == ()


def test_throttling_that_telemetry_counts_is_the_runs():
    """Counters in the timeline flag the run in whose window they grew; a power cap flags none."""
    counters = {
        "throttle.hw_thermal.events": lambda t: 3.0 + (t > 110) + (t > 133),
        "throttle.sw_power_cap.events": lambda t: float((t + 5) // 10),
    }
    report = correlate(trace(*WHOLE), telemetry(**counters))
    assert report.quality == ("not_steady", "throttled")
    assert report.telemetry.throttle == {"hw_thermal": 1, "sw_power_cap": 3}
    assert report.telemetry.throttle_events == 1
    capped = telemetry(**{"throttle.sw_power_cap.events": counters["throttle.sw_power_cap.events"]})
    report = correlate(trace(*WHOLE), capped)
    assert (report.quality, report.telemetry.throttle_events) == ((), 0)
    assert correlate(trace(*WHOLE), telemetry()).telemetry.throttle_events is None


def test_a_counter_stands_beside_the_integral():
    """The board's own counter gives the same joules as the integral, as a figure of its own."""
    cut = telemetry(noise=0)
    watts = [20.0 if ns(100) <= t < ns(130) else 10.0 for t in cut.times_ns]
    joules = [10 * t / SECOND + 10 * min(max(t / SECOND - 100, 0), 30) for t in cut.times_ns]
    columns = {
        "rails.GPU.instant_watts": array("d", watts),
        "rails.GPU.counter_joules": array("d", joules),
        "rails.GPU.counter_after_seconds": array("d", [0.0] * len(joules)),
        "rails.GPU.counter_read_seconds": array("d", [0.004] * len(joules)),
    }
    gpu = WindowSlice(cut.times_ns, cut.wall_ns, columns)
    rule = find_rail_rule(["GPU"])
    energy = correlate(trace(*WHOLE), gpu, rule=rule).energy
    assert energy.gross_joules == pytest.approx(600, rel=0.01)
    assert abs(energy.counter_joules - 600) <= energy.counter_edge_joules < 6
    assert energy.rails["GPU"].counter_joules == energy.counter_joules
    assert correlate(trace(*WHOLE), cut, rule=RULE).energy.counter_joules is None


@pytest.mark.parametrize(
    "lagging",
    [
        {"power_reading": "usage"},
        {"rail_sensors": {"1-0040.samples": 512.0, "1-0040.update_interval": 1000.0}},
    ],
    ids=["nvml", "board"],
)
def test_lagging_power_is_measured_whether_it_is_known_or_shows_itself(lagging):
    """Power that is a mean over the second before misses some of the run at its begin."""
    cut = telemetry(noise=0)
    work = [min(max(t / SECOND - 100, 0), 30) for t in cut.times_ns]
    ago = [min(max(t / SECOND - 101, 0), 30) for t in cut.times_ns]
    mean = array("d", (10 + 300 * (a - b) for a, b in zip(work, ago, strict=True)))
    late = WindowSlice(cut.times_ns, cut.wall_ns, {"rails.GPU.instant_watts": mean})
    rule, truth = find_rail_rule(["GPU"]), 310 * 30
    # Read too soon after the edge, the mean of the work would be too low.
    assert integrate(late.times_ns, mean, ns(100), ns(130)) < 0.99 * truth
    for environment in (Environment(), Environment(**lagging)):
        told = correlate(trace(*WHOLE), late, rule=rule, environment=environment).energy
        assert told.gross_interval.low < truth < told.gross_interval.high


def test_late_samples_are_flagged_and_widen_the_interval():
    def report(late):
        cut = telemetry(noise=0.02, **{"telemetry.late_seconds": late})
        return correlate(trace(*WHOLE), cut, rule=RULE)

    sound = report(lambda _t: math.nan)
    slightly = report(lambda _t: 0.04)
    once = report(lambda t: 0.4 if 110 <= t < 110.2 else math.nan)
    assert sound.quality == slightly.quality == ()
    assert once.quality == ("late_samples",)
    # Readings of the first 0.45 s may describe the time before, so they do not count.
    begin, late = ns(100), 0.4
    cut = telemetry(noise=0.02, **{"telemetry.late_seconds": lambda _t: late})
    for rail in RULE.total:
        column = cut.columns[f"rails.{rail}.instant_watts"]
        for i, at in enumerate(cut.times_ns):
            if begin <= at < begin + ns(late):
                column[i] /= 2
    found = correlate(trace(*WHOLE), cut, rule=RULE)
    assert found.quality == ("late_samples",)
    truth = 30 * 2 * sum(AGX[rail] for rail in RULE.total)
    assert found.energy.gross_joules == pytest.approx(truth, rel=0.002)
    assert found.energy.gross_joules_per_inference is not None


def test_samples_of_an_unknown_time_count_as_lost():
    cut = telemetry(**{"telemetry.late_seconds": lambda t: 9.0 if 110 <= t < 114 else 0.0})
    report = correlate(trace(*WHOLE), cut, rule=RULE)
    assert report.quality == ("late_samples", "telemetry_gap")
    assert report.energy is None


def test_drifting_idle_power_is_flagged():
    """Idle power that rose by more than its uncertainty marks the run, and is the largest term."""
    drifting = telemetry(load=1.0)
    column = drifting.columns["rails.VIN_SYS_5V0.instant_watts"]
    for i, t in enumerate(drifting.times_ns):
        column[i] += max(t / SECOND - 100, 0) / 10
    report = correlate(trace(*WHOLE), drifting, rule=RULE)
    assert "baseline_drift" in report.quality
    assert report.energy.largest_uncertainty == "baseline_drift"
    # Idle power may have been that of either phase all the time: about 3 W for 30 s.
    assert report.energy.net_interval.high - report.energy.net_interval.low > 75
    assert report.energy.net_joules_per_inference is None
    assert report.energy.gross_joules_per_inference is not None


def test_steady_idle_power_is_seldom_flagged():
    """Where idle power stays, at most 5 of 50 runs are flagged."""
    flagged = [
        "baseline_drift" in correlate(trace(*WHOLE), telemetry(seed=s), rule=RULE).quality
        for s in range(50)
    ]
    assert sum(flagged) <= 5


def test_a_program_that_counts_nothing_is_judged_by_its_samples():
    """A marked window of a program needs time and samples; it has no figure per inference."""
    events = (phase("steady", "begin", 100), phase("steady", "end", 130))
    report = correlate(trace(*events, counts_inferences=False), telemetry(), rule=RULE)
    assert report.quality == ()
    assert report.energy.gross_joules > 0
    assert report.energy.gross_joules_per_inference is report.throughput_per_second is None


def test_a_count_without_times_has_a_rate_and_no_latency():
    """Inferences that were counted and not timed give a rate and a share of the energy."""
    events = (phase("steady", "begin", 100), phase("steady", "end", 130))
    report = correlate(trace(*events, inference_count=300), telemetry(), rule=RULE)
    assert report.quality == ()
    assert (report.inferences, report.latency) == (300, None)
    assert report.throughput_per_second == 300 * 4 / 30
    assert report.energy.gross_joules_per_inference == report.energy.gross_joules / 300
    few = correlate(trace(*events, inference_count=199), telemetry(), rule=RULE)
    assert few.quality == ("insufficient_samples",)


def test_a_count_that_would_keep_step_if_evenly_spaced_has_no_headline():
    """Inferences that were counted and not timed are taken to follow each other evenly."""
    events = (phase("steady", "begin", 100), phase("steady", "end", 130))
    cut = telemetry(interval=0.098)
    report = correlate(trace(*events, inference_count=300), cut, rule=RULE)
    assert report.quality == ("aliased",)
    assert report.energy.gross_joules_per_inference is None
    apart = correlate(trace(*events, inference_count=271), cut, rule=RULE)
    assert apart.quality == ()


NX = find_rail_rule(["VDD_IN", "VDD_CPU_GPU_CV", "VDD_SOC"])


def counted_in_step(seed, rule=NX):
    """Return a run of work of 47 ms every 117.5 ms, as often as a line, and its true energy.

    Its 511 inferences were counted, so their cycle is known to one in 511.
    """
    rng, cycle, busy = random.Random(seed), ns(0.1175), ns(0.047)
    time, times, watts = rng.uniform(-0.5, -0.4), [], []
    while time < 60.5:
        times.append(ns(time))
        is_working = 0 <= time < 60 and ns(time) % cycle < busy
        watts.append(6.0 + 5.0 * is_working + rng.gauss(0, 0.1))
        time += 0.109 + rng.uniform(0, 0.016)
    columns = {"rails.VDD_IN.instant_watts": array("d", watts)}
    cut = WindowSlice(array("q", times), array("q", [t + ns(1e6) for t in times]), columns)
    events = (phase("steady", "begin", 0), phase("steady", "end", 60))
    report = correlate(trace(*events, inference_count=511), cut, rule=rule)
    return report, 60 * 6.0 + 511 * 5.0 * busy / SECOND


@pytest.mark.parametrize("seed", [1017, 1350, 1553])
def test_a_cycle_that_an_edge_cuts_is_in_the_interval_of_a_count(seed):
    """Readings of these windows show no cycle, and look sound at the one that the count gives.

    But they met too much or too little of the work. At one cycle more or less they show it.
    """
    report, truth = counted_in_step(seed)
    assert report.quality == ()
    assert report.energy.gross_interval.low <= truth <= report.energy.gross_interval.high


@pytest.mark.parametrize("seed", [456, 2002, 2085])
def test_power_shows_the_cycle_of_a_count(seed):
    """At the cycle that the count gives, these windows look sound. Their power shows the true one.

    Of an unknown board, whose rails have no sum, it shows nothing.
    """
    report, truth = counted_in_step(seed)
    assert report.quality == ("aliased",)
    assert report.energy.gross_interval.low <= truth <= report.energy.gross_interval.high
    assert counted_in_step(seed, rule=None)[0].quality == ()


def test_a_clock_that_is_off_widens_the_interval():
    """What is not known of the clock is in the interval; where nothing is known there is none."""
    intervals = [
        correlate(trace(*WHOLE), telemetry(), rule=RULE, clock_seconds=seconds).energy
        for seconds in (0.0, 0.5, None)
    ]
    widths = [energy.gross_interval.high - energy.gross_interval.low for energy in intervals[:2]]
    assert widths[1] > widths[0] + 0.5 * 17
    assert intervals[2].gross_joules == intervals[0].gross_joules
    assert intervals[2].gross_interval is intervals[2].net_interval is None
    assert intervals[2].largest_uncertainty is None


def test_an_edge_that_is_uncertain_widens_the_interval():
    """What a worker does not know of its own edges is in the interval, and told twice it counts."""
    begin = Phase(run_id=RUN, phase="steady", edge="begin", at_ns=ns(100), uncertain_ns=ns(0.5))
    first = phase("steady", "begin", 99.9)
    made = trace(*WHOLE[:5], first, begin, *WHOLE[6:])
    assert made.phases["steady"].begin_ns == ns(100)
    energies = [correlate(one, telemetry(), rule=RULE).energy for one in (trace(*WHOLE), made)]
    widths = [energy.gross_interval.high - energy.gross_interval.low for energy in energies]
    assert widths[1] > widths[0] + 0.5 * 17
    assert energies[0].gross_joules == pytest.approx(energies[1].gross_joules, rel=2e-3)


def test_nothing_outside_the_window_changes_the_figures():
    """Samples before and after the phases have no say in any figure."""
    narrow = trace(*WHOLE)
    window = narrow.telemetry_window()
    wide = telemetry(begin=60, end=200)
    cut = wide.around(window.begin_ns, window.end_ns)
    kept = set(cut.times_ns)
    for column in wide.columns.values():
        for i, t in enumerate(wide.times_ns):
            if t not in kept:
                column[i] = 999.0
    around = [correlate(narrow, part, rule=RULE) for part in (wide, cut)]
    assert around[0].energy == around[1].energy
    assert around[0].telemetry == around[1].telemetry


def test_events_that_are_not_this_runs_are_refused():
    """Another run's event, an end before its begin, and unequal columns change nothing."""
    made = trace(phase("steady", "begin", 100))
    assert not made.add(Hello(pid=1, python="3"))
    assert not made.add(Finished(run_id="other", outcome="ok"))
    assert not made.add(phase("steady", "end", 99))
    assert not made.add(phase("load", "end", 99))
    assert not made.add(Inferences(run_id=RUN, start_ns=(1, 2), latency_ns=(1,)))
    assert made == trace(phase("steady", "begin", 100))
    assert made.telemetry_window() is None


def test_only_whole_inferences_inside_the_window_count():
    """Inferences that started before the window or ended after it are left out, in any order."""
    made = trace()
    made.add(Inferences(run_id=RUN, start_ns=(30, 5, 10, 20), latency_ns=(20, 5, 10, 10)))
    starts, latencies = made.completed(Span(begin_ns=10, end_ns=40))
    assert (starts.tolist(), latencies.tolist()) == ([10, 20], [10, 10])


def test_a_report_survives_its_json():
    """What is stored is what is read: no NaN, no number beside its bounds."""
    report = correlate(trace(*WHOLE), telemetry(), rule=RULE)
    again = type(report).model_validate_json(report.model_dump_json())
    assert again == report
    assert not any(math.isnan(rail.gross_joules) for rail in report.energy.rails.values())


@pytest.mark.parametrize(("share", "flagged"), [(0.0501, True), (0.0499, False)])
def test_time_for_measuring_is_named_and_flagged_above_a_twentieth(share, flagged):
    """It withholds nothing: throughput and energy of an inference include it."""
    made = trace(*WHOLE)
    plain = correlate(made, telemetry(), rule=RULE)
    assert plain.measuring_share is None
    between = Inferences(run_id=RUN, start_ns=(), latency_ns=(), between_ns=ns(15 * share))
    assert made.add(between)
    assert made.add(between)
    report = correlate(made, telemetry(), rule=RULE)
    assert report.measuring_share == pytest.approx(share)
    assert ("measuring_overhead" in report.quality) is flagged
    assert report.energy == plain.energy
    assert any(row.label == "time for measuring" for row in run_rows(report)) is flagged


def test_time_for_measuring_of_a_lock_in_is_a_share_of_its_on_steps():
    plan = Pattern(seconds=30, seed=1, steps_seconds=(10.0, 6.0, 8.0, 4.0, 2.0))
    between = Inferences(run_id=RUN, start_ns=(), latency_ns=(), between_ns=ns(1))
    report = correlate(trace(*WHOLE, between, pattern=plan), telemetry(), rule=RULE)
    assert report.measuring_share == pytest.approx(0.1)
