"""A bench from its first look to its winners, with a worker that plays the accelerators."""

import threading
from collections import Counter

import pytest

from tegrascope.daemon.bench.run import Bench
from tegrascope.daemon.bench.workers import Setup

from .bench_fakes import FakeLanes, Silence, settings


@pytest.fixture
def bench_of(tmp_path):
    """Bench a model of which each line says how an accelerator behaves."""
    made = []

    def bench(*lines, **changes):
        model = tmp_path / "net.onnx"
        model.write_text("\n".join(lines))
        asked = settings(str(model), **changes)
        run = Bench(asked, Setup(None, tmp_path), Silence(), make_lane=FakeLanes(tmp_path))
        made.append(run)
        return run.run(str(model))

    yield bench
    for run in made:
        run.close()


def by_device(result):
    return {one.device: one for one in result.accelerators}


def test_two_accelerators_are_measured_in_turns(bench_of):
    result = bench_of("gpu ms=3", "dla0 ms=17")
    found = by_device(result)
    assert result.order == ("gpu", "dla0", "dla0", "gpu")
    assert [one.device for one in result.rounds] == ["gpu", "dla0", "dla0", "gpu"]
    assert set(result.counted) == {one.run_id for one in result.rounds}
    assert found["gpu"].latency.p50_seconds == pytest.approx(0.003)
    assert found["gpu"].latency.count == 8000
    assert found["dla0"].throughput_per_second.value == pytest.approx(1 / 0.017)
    assert found["dla0"].outputs.verdict == "good"
    assert found["gpu"].cold_start_seconds == {"load": 0.5}
    goals = {goal.goal: goal for goal in result.goals}
    assert goals["latency"].winner == goals["throughput"].winner == "gpu"
    assert goals["latency"].difference == pytest.approx(0.014)
    assert goals["energy"].winner is None
    assert "insufficient_samples" not in found["gpu"].flags


def test_equal_accelerators_have_no_winner(bench_of):
    result = bench_of("gpu ms=5", "dla0 ms=5")
    latency = next(goal for goal in result.goals if goal.goal == "latency")
    assert latency.winner is None
    assert "no difference that this measurement can tell" in latency.sentence


def test_wrong_answer_is_flagged_and_wins_nothing(bench_of):
    result = bench_of("gpu ms=3", "dla0 ms=1 answer=1.5")
    wrong = by_device(result)["dla0"]
    assert wrong.outputs.verdict == "wrong"
    assert wrong.outputs.relative_error == pytest.approx(0.5)
    assert wrong.flags["wrong_outputs"] == 2
    assert all(goal.winner is None for goal in result.goals)
    check = next(check for check in result.checks if check.name == "wrong_outputs")
    assert check.device == "dla0"
    assert "50.00%" in check.sentence


def test_without_a_reference_answers_are_called_unchecked(bench_of):
    result = bench_of("reference ending=unavailable", "gpu ms=3", "dla0 ms=17")
    found = by_device(result)
    assert found["gpu"].outputs.verdict == "unchecked"
    assert "unchecked_outputs" in found["gpu"].flags
    assert {goal.winner for goal in result.goals if goal.goal == "latency"} == {"gpu"}


def test_missing_accelerator_is_told_and_the_other_measured(bench_of):
    result = bench_of("gpu ms=3", "dla0 ending=unavailable")
    found = by_device(result)
    assert (found["dla0"].status, found["dla0"].rounds) == ("unavailable", 0)
    assert found["dla0"].reason == "unavailable: told to"
    assert (found["gpu"].status, found["gpu"].rounds) == ("ok", 2)
    assert set(result.order) == {"gpu"}


def test_cpu_is_the_last_resort_of_a_machine_that_is_to_tell(bench_of):
    result = bench_of("gpu ending=unavailable", "dla0 ending=unavailable", "cpu ms=9", devices=None)
    assert [(one.device, one.status) for one in result.accelerators] == [
        ("gpu", "unavailable"),
        ("dla0", "unavailable"),
        ("cpu", "ok"),
    ]


def test_accelerator_that_fails_while_measured_is_left_out(bench_of):
    result = bench_of("gpu ms=1 breaks=1", "dla0 ms=17")
    found = by_device(result)
    assert (found["gpu"].status, found["gpu"].reason) == ("failed", "the driver is gone")
    assert Counter(result.order) == {"gpu": 1, "dla0": 2}
    assert all(goal.winner is None for goal in result.goals)


def test_interrupted_bench_keeps_the_finished_rounds(tmp_path):
    model = tmp_path / "net.onnx"
    model.write_text("gpu ms=3\ndla0 ms=17 hangs=1")
    lanes, told = FakeLanes(tmp_path), Silence()
    run = Bench(settings(str(model)), Setup(None, tmp_path), told, make_lane=lanes)
    began = told.begin

    def interrupt(title, left):
        began(title, left)
        if title.endswith("dla0"):
            threading.Thread(target=run.cancel).start()

    told.begin = interrupt
    result = run.run(str(model))
    found = by_device(result)
    assert run.was_cancelled
    assert (found["gpu"].rounds, found["dla0"].status) == (1, "cancelled")
    assert found["dla0"].reason == "the benchmark was interrupted"
    run.close()
    assert all(lane.pid is None for lane in lanes.made.values())


def test_reference_is_gone_before_anything_is_measured(tmp_path):
    model = tmp_path / "net.onnx"
    model.write_text("gpu ms=3")
    lanes, told = FakeLanes(tmp_path), Silence()
    asked = settings(str(model), devices=("gpu",))
    run = Bench(asked, Setup(None, tmp_path), told, make_lane=lanes)
    began, seen = told.begin, []

    def look(*facts):
        began(*facts)
        seen.append(lanes.made["reference"].pid)

    told.begin = look
    run.run(str(model))
    run.close()
    assert set(seen) == {None}
