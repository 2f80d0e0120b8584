"""A long run: its forecast, its parts, and what holds."""

import time
from array import array
from math import exp

import pytest

from tegrascope.daemon.measure.blocks import WindowSlice
from tegrascope.daemon.measure.report import Environment
from tegrascope.daemon.measure.trace import RunTrace
from tegrascope.daemon.session.session import Session
from tegrascope.parsers.errors import UsageError
from tegrascope.parsers.inference.events import Inferences, Phase
from tegrascope.workbench.bench.settings import read_settings
from tegrascope.workbench.bench.sustain import LongRun
from tegrascope.workbench.bench.workers import FinishedRun
from tegrascope.workbench.cli import make_parser
from tegrascope.workbench.results.bench_page import print_result, report_page
from tegrascope.workbench.results.forecast import HeatUp, foresee
from tegrascope.workbench.results.records import BenchResult
from tegrascope.workbench.results.sustained import sustained_of

from .bench_fakes import SECOND, FakeExecutors, Silence, make_bench, report, settings


def arguments(*given):
    return make_parser(["bench"]).parse_args(["bench", *given])


TJ = "temperatures_celsius.tj"


def warm(at, constant=60.0):
    return 30.0 + 30.0 * (1 - exp(-max(at, 0.0) / constant))


def fill(session, begin_ns, columns_at, seconds=600):
    """Give a session two samples per second, with the columns of each time."""
    for number in range(-20, 2 * seconds + 20):
        at_ns = begin_ns + number * SECOND // 2
        session.timeline.append(at_ns, at_ns, columns_at(number / 2))


@pytest.fixture
def hold(tmp_path):
    """Bench a model for ten minutes that take no time, on a board of the columns of each time."""
    made = []

    def run(columns_at, words="gpu ms=100", trips=None):
        model = tmp_path / "net.onnx"
        model.write_text(words)
        asked = settings(
            str(model), duration_seconds=600.0, sustain_seconds=600.0, rounds=4, devices=("gpu",)
        )
        bench, workers = make_bench(tmp_path, asked, FakeExecutors(tmp_path), Silence())
        made.append(workers)
        bench.trips = trips or {}
        fill(bench.session, time.monotonic_ns() + 2 * SECOND, columns_at)
        return asked, bench.run(str(model))

    yield run
    for workers in made:
        workers.close()


def test_steady_state_is_forecast_and_held(hold, capsys):
    def columns(at):
        return {
            TJ: warm(at),
            "rails.VDD_IN.amperes": 2.0,
            "rails.VDD_IN.limit_warning_amperes": 5.0,
        }

    trips = {("tj", "passive"): 95.0, ("tj", "critical"): 105.0, ("tj", "active"): 50.0}
    asked, result = hold(columns, trips=trips)
    [gpu] = result.accelerators
    found = gpu.sustained
    assert found.seconds == pytest.approx(600.0, abs=1)
    assert found.forecast.after_seconds == 300.0
    assert found.forecast.celsius.value == pytest.approx(60.0, abs=0.5)
    assert found.forecast.rate_per_second.value == pytest.approx(10.0, rel=0.001)
    assert found.celsius.value == pytest.approx(60.0, abs=0.1)
    assert found.is_settled
    assert found.sentence.endswith(": held")
    assert [(one.name, one.limit) for one in found.margins] == [
        ("tj, passive trip point", 95.0),
        ("tj, critical trip point", 105.0),
        ("VDD_IN current, warning limit", 5.0),
    ]
    assert len(result.rounds) == len({one.run_id for one in result.rounds}) == 20
    assert len(result.counted) == gpu.rounds == 4
    assert "overlapped" not in gpu.flags
    document = BenchResult(
        tegrascope="1", started_wall_ns=0, ended_wall_ns=1, settings=asked, models=(result,)
    )
    again = BenchResult.model_validate_json(document.model_dump_json())
    assert again.models[0].accelerators[0].sustained == found
    print_result(document)
    printed = capsys.readouterr().out
    assert "What holds on gpu" in printed
    assert "2.0 of 5.0 A, 3.0 left" in printed
    assert found.sentence.replace("<", "&lt;") in report_page(document, Session().timeline.cut)


def test_forecast_is_withheld_if_heat_will_lower_the_clocks(hold):
    _, result = hold(lambda at: {TJ: warm(at, 200.0)}, trips={("tj", "passive"): 58.0})
    [gpu] = result.accelerators
    assert "heat will lower the clocks, at 58 °C" in gpu.sustained.forecast.reason
    assert gpu.sustained.forecast.celsius is None


def test_begin_and_cause_of_throttling_are_stated(hold):
    def columns(at):
        return {TJ: min(warm(at, 40.0), 55.0), "throttle.gpu_thermal.active": float(at > 80)}

    _, result = hold(columns)
    [gpu] = result.accelerators
    assert gpu.sustained.throttled_seconds["gpu_thermal"] == pytest.approx(80, abs=5)
    assert gpu.sustained.forecast.celsius.value == pytest.approx(55.0, abs=0.1)
    assert gpu.sustained.sentence.endswith(": held")


def test_run_that_still_warms_is_not_settled(hold):
    def columns(at):
        return {TJ: warm(at, 900.0), "gpu.frequency_hertz.0": 1e9 + 1e8 * (int(at) % 2)}

    _, result = hold(columns)
    [gpu] = result.accelerators
    assert gpu.sustained.forecast.reason is not None
    assert "not settled after 10 min" in gpu.sustained.sentence
    assert gpu.unsettled_rounds > 0
    assert not {"unsettled", "not_steady"} & {check.name for check in result.checks}


@pytest.mark.parametrize(("step", "settles"), [(0.0, True), (0.02, False)])
def test_a_rate_that_deviates_by_chance_is_settled_and_one_that_moves_is_not(step, settles):
    parts = []
    for number in range(20):
        rate = 100.0 * (1 + 0.008 * (-1) ** number) * (1 - step * (number >= 16))
        made = report(at=12.0 * number, gross=168.0, net=1.0)
        parts.append(made.model_copy(update={"throughput_per_second": rate}))
    assert sustained_of(parts, WindowSlice(), {}, None).is_settled is settles
    assert not sustained_of(parts[:7], WindowSlice(), {}, None).is_settled


def test_fan_that_is_no_longer_read_does_not_end_the_run(hold):
    def columns(at):
        return {TJ: warm(at)} | ({"fans.pwmfan.speed_ratio": 0.3} if at < 3 else {})

    _, result = hold(columns)
    assert result.accelerators[0].sustained.sentence.endswith(": held")


def test_without_temperature_the_rate_is_known(hold):
    _, result = hold(lambda _: {"ram.used_bytes": 1.0})
    [gpu] = result.accelerators
    assert gpu.sustained.rate_per_second.value == pytest.approx(10.0)
    assert gpu.sustained.forecast.reason == "no temperature is known"


def test_run_that_fails_keeps_what_was_measured(hold):
    _, result = hold(lambda at: {TJ: warm(at)}, "gpu ms=100 breaks=1")
    [gpu] = result.accelerators
    assert (gpu.status, gpu.reason) == ("failed", "the driver is gone")
    assert gpu.sustained.sentence.endswith(": held")


@pytest.mark.parametrize(
    ("mode", "budget"),
    [("MODE_15W", 15.0), ("MODE_15W_6CORE", 15.0), ("30W", 30.0), ("MAXN", None)],
)
def test_power_is_compared_with_the_budget_of_the_mode(mode, budget):
    place = {"environment": Environment(power_mode=mode)}
    parts = [report(at=12.0 * n, gross=168.0, net=1.0).model_copy(update=place) for n in range(4)]
    found = sustained_of(parts, WindowSlice(), {}, None)
    margins = [(one.value, one.limit) for one in found.margins]
    assert margins == ([] if budget is None else [(14.0, budget)])


def test_interrupted_run_has_its_whole_parts():
    session, begin_ns = Session(), 1000 * SECOND
    run = LongRun(session, 600.0, batch=2, trips={}, hear=str, say=print)
    trace = RunTrace("id", "net", "tensorrt", "gpu", begin_ns, begin_ns, batch=2)
    starts = array("q", range(begin_ns, begin_ns + 100 * SECOND, SECOND // 10))
    for event in (
        Phase(run_id="id", phase="steady", edge="begin", at_ns=begin_ns),
        Inferences(run_id="id", start_ns=starts, latency_ns=[SECOND // 10] * len(starts)),
    ):
        trace.add(event)
        run.heard(event)
    trace.finish("cancelled", "the benchmark was interrupted")
    rounds = run.parts(FinishedRun(session.pair(trace), trace, "cancelled"))
    found = run.result(rounds)
    assert len(rounds) == 6, "each has 15 s or more"
    assert {one.report.outcome for one in rounds} == {"ok"}
    assert found.rate_per_second.value == pytest.approx(20.0)
    # Eight parts tell whether it settled.
    said = "interrupted before the forecast; not settled after 1 min 40 s: 20.0/s"
    assert found.sentence.startswith(said)


def heat_up(constant, seconds=300.0, **changes):
    times = [number / 4 for number in range(round(4 * seconds))]
    ended = [number / 20 for number in range(round(20 * seconds))]
    celsius = [warm(at, constant) for at in times]
    return HeatUp(seconds, times, celsius, ended, **changes)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (heat_up(1500.0), "too slowly"),
        (heat_up(60.0, since_seconds=290.0), "too few readings since a fan"),
        (heat_up(120.0, 150.0, may_step=True), "a fan may turn faster"),
        (heat_up(60.0, since_seconds=240.0, is_held=True), "too few readings since"),
        (heat_up(60.0)._replace(times=[1.0], celsius=[30.0]), "too few readings"),
    ],
)
def test_forecast_that_would_be_a_guess_is_withheld(given, words):
    found = foresee(given)
    assert words in found.reason
    assert found.celsius is None


def test_rate_follows_the_temperature():
    """Each degree takes a hundredth of the rate at 30 °C."""
    times = [number / 4 for number in range(1200)]
    ended, at = [], 0.0
    while at < 300:
        at += 1 / (100 - (warm(at, 100.0) - 30.0))
        ended.append(at)
    found = foresee(HeatUp(300.0, times, [warm(at, 100.0) for at in times], ended, batch=2))
    assert found.rate_per_second.value == pytest.approx(140.0, rel=0.005)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (("--sustain", "30s"), "ends before a board is warm"),
        (("--sustain", "30m", "--rounds", "4"), "--rounds does not go with --sustain"),
        (("--sustain", "30m", "--lock-in"), "--lock-in does not go with --sustain"),
        (("--sustain", "30m", "--until", "1"), "--until does not go with --sustain"),
    ],
)
def test_long_run_beside_other_plans_is_refused(given, words):
    with pytest.raises(UsageError, match=words):
        read_settings(arguments("builtin:resnet50", "--telemetry", "none", *given))


def test_long_run_has_no_idle_phases():
    asked = read_settings(
        arguments("builtin:resnet50", "--telemetry", "none", "--sustain", "30m")
    ).settings
    assert (asked.sustain_seconds, asked.duration_seconds) == (1800.0, 1800.0)
    assert (asked.baseline_seconds, asked.until_ratio) == (0.0, None)
