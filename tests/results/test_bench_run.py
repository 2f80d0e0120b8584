"""A benchmark from its first look to its winners, with a worker that simulates accelerators."""

import io
import random
import threading
from collections import Counter
from pathlib import Path

import pytest

from tegrascope.collectors.board.boards import find_rail_rule
from tegrascope.daemon.measure.blocks import WindowSlice
from tegrascope.daemon.session.executor import Executor
from tegrascope.parsers.inference.events import Inferences, Phase
from tegrascope.parsers.inference.placement import Built
from tegrascope.parsers.signals import RAIL_POWER
from tegrascope.workbench.results.bench_page import print_result, report_page
from tegrascope.workbench.results.records import AcceleratorResult, BenchResult, ModelResult
from tests.fakes.loads import COMMAND, loads

from .bench_fakes import FakeExecutors, Silence, make_bench, settings


@pytest.fixture
def bench_of(tmp_path):
    """Bench a model of which each line says how an accelerator behaves."""
    made = []

    def bench(*lines, **changes):
        model = tmp_path / "net.onnx"
        model.write_text("\n".join(lines))
        asked = settings(str(model), **changes)
        run, workers = make_bench(tmp_path, asked, FakeExecutors(tmp_path), Silence())
        made.append(workers)
        return run.run(str(model))

    yield bench
    for workers in made:
        workers.close()


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
    assert found["dla0"].outputs.verdict == "unjudged", "its answers are the same for all inputs"
    assert found["dla0"].flags["unjudged_outputs"] == 2
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


def test_without_a_reference_outputs_are_unchecked(bench_of):
    result = bench_of("reference ending=unavailable", "gpu ms=3", "dla0 ms=17")
    found = by_device(result)
    assert found["gpu"].outputs.verdict == "unchecked"
    assert "unchecked_outputs" in found["gpu"].flags
    assert {goal.winner for goal in result.goals if goal.goal == "latency"} == {"gpu"}


def test_missing_accelerator_is_reported_and_the_other_measured(bench_of):
    result = bench_of("gpu ms=3", "dla0 ending=unavailable")
    found = by_device(result)
    assert (found["dla0"].status, found["dla0"].rounds) == ("unavailable", 0)
    assert found["dla0"].reason == "as asked"
    assert (found["gpu"].status, found["gpu"].rounds) == ("ok", 2)
    assert set(result.order) == {"gpu"}


def test_cpu_is_measured_without_any_accelerator(bench_of):
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


def test_each_pass_is_announced_before_its_rounds(tmp_path):
    model, begun = tmp_path / "net.onnx", []
    model.write_text("gpu ms=3\ndla0 ms=17")
    titles = Silence(lambda title: begun.append(title.split(" ")[-1]))
    asked, executors = settings(str(model)), FakeExecutors(tmp_path)
    run, workers = make_bench(tmp_path, asked, executors, titles, begin_pass=begun.append)
    run.run(str(model))
    workers.close()
    assert begun == [0, "gpu", "dla0", 1, "dla0", "gpu"]


def test_interrupted_bench_is_judged_by_its_complete_rounds(tmp_path):
    model = tmp_path / "net.onnx"
    model.write_text("gpu ms=3\ndla0 ms=17")

    def interrupt(title):
        if title.startswith("round 2") and title.endswith("gpu"):
            workers.cancel()

    executors = FakeExecutors(tmp_path)
    run, workers = make_bench(tmp_path, settings(str(model)), executors, Silence(interrupt))
    result = run.run(str(model))
    found = by_device(result)
    assert workers.was_cancelled
    assert result.rounds[-1].outcome == "cancelled"
    assert (found["gpu"].status, found["gpu"].reason, found["gpu"].rounds) == ("ok", None, 1)
    assert found["gpu"].problem is None
    assert found["gpu"].latency_seconds is not None
    assert result.rounds[-1].run_id not in result.counted
    workers.close()


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (
            {"has_cuda_graph": False, "why_no_graph": "its capture failed"},
            "gpu: no CUDA graph: its capture failed",
        ),
        (
            {"has_cuda_graph": True, "has_transfers": False, "memory": "mapped"},
            "CUDA graph, mapped memory",
        ),
        (
            {"has_cuda_graph": True, "has_transfers": True, "memory": "copy"},
            "CUDA graph, with copies",
        ),
    ],
)
def test_launch_and_memory_of_inferences_are_shown(facts, words):
    built = Built(**facts)
    one = AcceleratorResult(device="gpu", backend="tensorrt", status="ok", built=built)
    result = BenchResult(
        tegrascope="1",
        started_wall_ns=0,
        ended_wall_ns=1,
        models=(ModelResult(model="net.onnx", accelerators=(one,)),),
        settings=settings("net.onnx"),
    )
    stream = io.StringIO()
    print_result(result, stream=stream)
    page = report_page(result, lambda *_: WindowSlice())
    for text in (stream.getvalue(), page):
        assert words in text


def test_interrupted_bench_keeps_the_finished_rounds(tmp_path):
    model = tmp_path / "net.onnx"
    model.write_text("gpu ms=3\ndla0 ms=17 hangs=1")

    def interrupt(title):
        if title.endswith("dla0"):
            threading.Thread(target=workers.cancel).start()

    executors = FakeExecutors(tmp_path)
    run, workers = make_bench(tmp_path, settings(str(model)), executors, Silence(interrupt))
    found = by_device(run.run(str(model)))
    assert workers.was_cancelled
    assert (found["gpu"].rounds, found["dla0"].status) == (1, "cancelled")
    assert found["dla0"].reason == "the benchmark was interrupted"
    workers.close()
    assert all(executor.pid is None for executor in executors.made.values())


def test_reference_is_gone_before_anything_is_measured(tmp_path):
    model = tmp_path / "net.onnx"
    model.write_text("gpu ms=3")
    executors, seen = FakeExecutors(tmp_path), []
    display = Silence(lambda _: seen.append(executors.made["reference"].pid))
    asked = settings(str(model), devices=("gpu",))
    run, workers = make_bench(tmp_path, asked, executors, display)
    run.run(str(model))
    workers.close()
    assert set(seen) == {None}


def test_no_worker_holds_a_second_model(tmp_path):
    models = [str(tmp_path / name) for name in ("a.onnx", "b.onnx")]
    for model in models:
        Path(model).touch()
    asked = settings(*models, devices=("gpu",), duration_seconds=0.02)
    run, workers = make_bench(
        tmp_path, asked, lambda name, **_: Executor(name, argv=COMMAND), Silence()
    )
    alone = [run.run(model) for model in models]
    assert all(one.rounds for result in alone for one in result.accelerators)
    # Each model is loaded for its reference, and once for all its rounds.
    assert len(loads(tmp_path)) == 4
    run.run_together(alone)
    workers.close()
    pids = [pid for pid, _, _ in loads(tmp_path)]
    assert len(set(pids)) == len(pids) == 6


class Board(Silence):
    """A board that draws 5 W, and 4 W more while the worker infers; it reads every 0.1 s."""

    timeline = None

    def __init__(self) -> None:
        super().__init__()
        self.spans: list[tuple[int, int]] = []

    def heard(self, event):
        if isinstance(event, Inferences):
            self.spans.append((event.start_ns[0], event.start_ns[-1] + event.latency_ns[-1]))
        if isinstance(event, Phase) and (event.phase, event.edge) == ("steady", "end"):
            for at in range(self.spans[0][0] - 10**9, event.at_ns + 10**9, 100_000_000):
                self.read(at)
            self.spans.clear()

    def read(self, at):
        work = any(begin < at - 20_000_000 <= end for begin, end in self.spans)
        watts = round((5.0 + 4.0 * work + random.gauss(0, 0.05)) / 0.04) * 0.04
        self.timeline.append(at, at, {RAIL_POWER.column("VDD_IN"): watts})


def lock_in_of(tmp_path, text, **changes):
    model = tmp_path / "net.onnx"
    model.write_text(text)
    asked = settings(str(model), devices=("gpu",), lock_in_seconds=60.0, **changes)
    board = Board()
    run, workers = make_bench(tmp_path, asked, FakeExecutors(tmp_path), board)
    board.timeline = workers.session.timeline
    workers.session.energy.rule = find_rail_rule(["VDD_IN", "VDD_CPU_GPU_CV", "VDD_SOC"])
    (found,) = run.run(str(model)).accelerators
    workers.close()
    return found


def test_lock_in_measures_each_stage_alone(tmp_path):
    """The board draws 4 W for whatever runs, so a stage costs that times its own duration."""
    text = "gpu ms=3 h2d=0.05 compute=2 d2h=0.01"
    found = lock_in_of(tmp_path, text, lock_in_stages=True)
    times = {stage: one.piece_seconds for stage, one in found.lock_in_stages.items()}
    assert times == pytest.approx({"h2d": 5e-5, "compute": 2e-3, "d2h": 1e-5})
    for stage, one in found.lock_in_stages.items():
        energy = one.joules_per_piece  # its 95 % interval is held to account in tests/truth
        assert abs(energy.value - 4 * times[stage]) < 2 * energy.half, stage
        assert energy.half < 0.05 * energy.value


def test_back_end_without_stages_has_the_energy_of_the_inference_only(tmp_path):
    found = lock_in_of(tmp_path, "gpu ms=2", lock_in_stages=True)
    assert found.lock_in.joules_per_piece is not None
    assert found.lock_in_stages == {}


def test_lock_in_measures_the_energy_of_a_short_inference(tmp_path):
    found = lock_in_of(tmp_path, "gpu ms=2")
    assert found.lock_in.problems == ()
    energy = found.lock_in.joules_per_piece
    assert abs(energy.value - 0.008) < 2 * energy.half
    assert energy.half < 0.0002
    assert found.lock_in.piece_seconds == pytest.approx(0.002)


def test_without_telemetry_lock_in_gives_the_reason(bench_of):
    found = by_device(bench_of("gpu ms=3", devices=("gpu",), lock_in_seconds=60.0))["gpu"]
    assert found.lock_in.reason.startswith("there is no telemetry: ")
    assert found.lock_in.joules_per_piece is None
