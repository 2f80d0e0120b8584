"""``tegrascope verify``: which promises a pipeline keeps, and the first reason."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest
from msgspec.structs import replace

from tegrascope.collectors.board.boards import find_rail_rule
from tegrascope.collectors.simulator.board import JumpClock, SimulatedBoard, SimulatedKernel
from tegrascope.collectors.simulator.physics import LoadBoard, board_model
from tegrascope.daemon.measure.correlate import correlate
from tegrascope.daemon.measure.report import Environment, Figure, Span
from tegrascope.daemon.measure.timeline import Timeline
from tegrascope.daemon.measure.trace import RunTrace
from tegrascope.parsers.errors import UserError
from tegrascope.parsers.records import flatten
from tegrascope.workbench.cli import main, make_parser
from tegrascope.workbench.commands.execute import PrintedFrames
from tegrascope.workbench.commands.verify import (
    Verification,
    hold_to,
    promised_side,
)
from tegrascope.workbench.results.promise import Promise, PromisedModel
from tests.advise.made import lane, model, result, written

SECOND = 1_000_000_000
BOARD = board_model("agx-orin-64gb")
RULE = find_rail_rule([rail.name for rail in BOARD.rails])
RATE, BUSY = 30.0, {"dla0": 0.017, "gpu": 0.0004}
VERIFY = (sys.executable, "-m", "tegrascope", "verify")


def measured(busy=BUSY, *, rate=RATE, others=None, ambient=31.7, idle=4, seconds=30, seed=0):
    """Return the report and the samples of a pipeline on the simulated board, in virtual time.

    Args:
        busy: By lane, seconds at work on a frame.
        others: Loads of other programs, all the time.
    """
    load = LoadBoard()
    clock = JumpClock(monotonic_ns=1000 * SECOND)
    at_ns = clock.monotonic_ns()
    begin_ns = at_ns + idle * SECOND
    end_ns = begin_ns + seconds * SECOND
    for name, ratio in (others or {}).items():
        load.set(name, ratio, at_ns, "others")
    for name, took in busy.items():
        load.set(name, min(1.0, took * rate), begin_ns, "pipeline")
        load.set(name, 0.0, end_ns, "pipeline")
    board = SimulatedBoard(replace(BOARD, ambient_celsius=ambient), load, begin_ns=at_ns, seed=seed)
    kernel, timeline = SimulatedKernel(board), Timeline(span_seconds=1e6)
    while at_ns < end_ns + (idle + 1) * SECOND:
        at_ns += 103_000_000
        sample = flatten(board.read(at_ns, at_ns))
        for column, value in kernel.columns().items():
            sample[column[0].column(column[1])] = value
        timeline.append(at_ns, at_ns, sample)
    count = round(rate * seconds)
    trace = RunTrace(
        run_id="run",
        workload="yolo",
        backend="exec",
        device="dla0",
        started_ns=begin_ns,
        started_wall_ns=begin_ns,
        ended_ns=end_ns,
        outcome="ok",
        inference_count=count,
        counts_inferences=True,
    )
    spans = {
        "baseline_before": (begin_ns - idle * SECOND, begin_ns),
        "steady": (begin_ns, end_ns),
        "baseline_after": (end_ns, end_ns + idle * SECOND),
    }
    for phase, (begin, end) in spans.items():
        if idle or phase == "steady":
            trace.begins[phase], trace.ends[phase] = begin, end
    window = trace.telemetry_window()
    samples = timeline.cut(window.begin_ns, window.end_ns)
    environment = Environment(board="AGX Orin", power_mode="MAXN", simulated=True)
    return correlate(trace, samples, rule=RULE, environment=environment), samples


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """The result of bench that the promise names."""
    place = tmp_path_factory.mktemp("source")
    dla = lane("dla0", 17.0, 0.11, 0.01)
    return written(place, "yolo", result(model("yolo", dla)))


@pytest.fixture(scope="module")
def promise(source):
    """What an equal pipeline did."""
    report, _ = measured(seed=1)
    joules = report.energy.gross_joules_per_inference
    return Promise(
        tegrascope="1",
        models=(PromisedModel(name="yolo", device="dla0", source=source),),
        frames_per_second=RATE,
        loads={
            "gpu": Figure.around(RATE * BUSY["gpu"], 0.002),
            "dla0:tegrastats": Figure.around(RATE * BUSY["dla0"], 0.002),
        },
        joules_per_frame=Figure.around(joules, 0.01 * joules),
    )


@pytest.fixture
def held(promise):
    """Hold a pipeline to the promise; return the answer and its verdicts by name."""

    def run(**pipeline):
        found = hold_to(promise, promised_side(promise), *measured(**pipeline))
        return found, {check.name: check.verdict for check in found.checks}

    return run


@pytest.mark.parametrize("seed", range(2, 8))
def test_pipeline_as_promised_keeps_all(held, seed):
    found, verdicts = held(seed=seed)
    names = {"on_the_dla", "core", "gpu_load", "frame_rate", "joules_per_frame"}
    assert verdicts == dict.fromkeys(names, "holds")
    assert (found.verdict, found.reason) == ("holds", None)


@pytest.mark.parametrize(
    ("pipeline", "broken", "reason"),
    [
        ({"busy": {"dla1": 0.017, "gpu": 0.0004}}, {"core"}, "accelerator"),
        (
            {"busy": {"dla0": 0.007, "gpu": 0.006}},
            {"gpu_load", "joules_per_frame"},
            "fallback",
        ),
        (
            {"busy": {"gpu": 0.012}},
            {"on_the_dla", "core", "gpu_load", "joules_per_frame"},
            "fallback",
        ),
        ({"busy": {"dla0": 0.0243}, "ambient": 95.0, "rate": 26.0}, {"frame_rate"}, "throttling"),
        ({"others": {"gpu": 0.4}}, {"gpu_load", "joules_per_frame"}, "contention"),
        ({"others": {"dla0": 0.45}}, {"joules_per_frame"}, "contention"),
        ({"busy": {"dla0": 0.03, "gpu": 0.0004}}, {"joules_per_frame"}, "precision"),
        ({"busy": {"dla0": 0.009, "gpu": 0.0004}}, {"joules_per_frame"}, "precision"),
    ],
    ids=[
        "wrong core",
        "part on the GPU",
        "all on the GPU",
        "throttled",
        "other program on the GPU",
        "other program on the DLA",
        "wider types",
        "narrower types",
    ],
)
def test_departure_is_named(held, pipeline, broken, reason):
    found, verdicts = held(**pipeline)
    assert {name for name, verdict in verdicts.items() if verdict == "does_not_hold"} == broken
    assert (found.verdict, found.reason.name) == ("does_not_hold", reason)


def test_slower_source_breaks_the_rate_and_no_condition_explains_it(held):
    """A frame takes the accelerator as long as promised."""
    found, verdicts = held(rate=25.0)
    assert verdicts["frame_rate"] == "does_not_hold"
    assert found.reason is None


def test_difference_near_a_limit_is_undecided(held):
    """Four points more of the GPU hold, and five are on the limit."""
    assert held(busy={**BUSY, "gpu": 0.0004 + 0.04 / RATE})[1]["gpu_load"] == "holds"
    found, verdicts = held(busy={**BUSY, "gpu": 0.0004 + 0.05 / RATE})
    assert verdicts["gpu_load"] == "undecided"
    [gpu] = [check for check in found.checks if check.name == "gpu_load"]
    assert "times as long may decide it" in gpu.sentence


def test_core_that_others_use_says_nothing(held):
    _, verdicts = held(others={"dla0": 0.2})
    assert (verdicts["on_the_dla"], verdicts["core"]) == ("undecided", "undecided")


def test_without_idle_time_the_core_is_taken_as_ours(held):
    assert held(others={"dla0": 0.2}, idle=0)[1]["core"] == "holds"


def test_short_run_leaves_the_energy_undecided(held):
    found, verdicts = held(seconds=5)
    assert verdicts["joules_per_frame"] == "undecided"
    assert found.verdict == "undecided"
    assert "insufficient_samples" in found.run.quality


def test_pipeline_that_failed_keeps_nothing_for_certain(promise):
    report, samples = measured()
    failed = report.model_copy(update={"outcome": "failed"})
    found = hold_to(promise, promised_side(promise), failed, samples)
    assert {check.verdict for check in found.checks} == {"holds"}
    assert found.verdict == "undecided"
    report, samples = measured({"gpu": 0.01})
    failed = report.model_copy(update={"outcome": "failed"})
    assert hold_to(promise, promised_side(promise), failed, samples).verdict == "undecided"


@pytest.mark.parametrize(
    ("changes", "rate"),
    [
        ({"throughput_per_second": None}, "undecided"),
        ({"quality": ("insufficient_samples",)}, "does_not_hold"),
        ({"phases": {"steady": Span(begin_ns=0, end_ns=2000)}}, "undecided"),
    ],
)
def test_run_without_frames_or_samples_breaks_no_figure(promise, changes, rate):
    report, samples = measured({"dla0": 0.017, "gpu": 0.02}, rate=20.0)
    unknown = report.model_copy(update=changes)
    found = hold_to(promise, promised_side(promise), unknown, samples)
    verdicts = {check.name: check.verdict for check in found.checks}
    assert (verdicts["gpu_load"], verdicts["frame_rate"]) == ("undecided", rate)


def test_promise_of_the_gpu_does_not_ask_for_a_dla(promise):
    on_gpu = promise.model_copy(
        update={"models": (promise.models[0].model_copy(update={"device": "gpu"}),)}
    )
    side = promised_side(on_gpu)
    assert side.device == "gpu"
    found = hold_to(on_gpu, side, *measured())
    assert [check.name for check in found.checks] == ["gpu_load", "frame_rate", "joules_per_frame"]


def test_gpu_that_did_not_work_is_no_other_engine(promise):
    loads = {"gpu": Figure.around(0.5, 0.002)}
    models = (promise.models[0].model_copy(update={"device": "gpu"}),)
    on_gpu = promise.model_copy(update={"models": models, "loads": loads})
    found = hold_to(on_gpu, promised_side(on_gpu), *measured())
    assert (found.verdict, found.reason.name) == ("does_not_hold", "accelerator")
    assert "the work is done elsewhere" in found.reason.sentence


def test_result_without_the_promised_model_is_refused(promise):
    other = promise.models[0].model_copy(update={"variant": "int8"})
    with pytest.raises(UserError, match="has no yolo int8"):
        promised_side(promise.model_copy(update={"models": (other,)}))


# --- frames of a program that prints --------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "lines", "count"),
    [
        ("frame", ["start", "frame 1", "frame 2", "other", "frame 3", "end"], 2),
        (None, ["tegrascope: inferences=9", "frame", "TEGRASCOPE inferences=30"], 30),
    ],
)
def test_frames_are_counted_after_the_first_line(text, lines, count):
    clock = JumpClock()
    frames = PrintedFrames(text, clock)
    for number, line in enumerate(lines):
        clock.wait(threading.Event(), number * SECOND)
        frames.read(line)
    found = frames.buffers()
    assert found.count == count
    counted = [number for number, line in enumerate(lines) if "frame 1" in line or "=9" in line]
    assert found.begin_ns == counted[0] * SECOND
    assert found.end_ns > found.begin_ns


@pytest.mark.parametrize("lines", [[], ["frame"], ["nothing", "of", "ours"]])
def test_fewer_than_two_lines_are_no_window(lines):
    frames = PrintedFrames("frame")
    for line in lines:
        frames.read(line)
    with pytest.raises(UserError, match="fewer than two lines"):
        frames.buffers()


# --- the command ----------------------------------------------------------------------------------


@pytest.fixture
def directory(tmp_path, promise):
    (tmp_path / "promise.json").write_text(promise.model_dump_json())
    return tmp_path


def execute(*argv):
    return subprocess.run(
        [*VERIFY, *map(str, argv)], capture_output=True, text=True, timeout=300, check=False
    )


def test_verdicts_are_printed_beside_the_output_of_the_program(directory):
    """Nothing works on the simulated board meanwhile, so the work was not done on the DLA."""
    program = "for n in range(9): print('frame', n, flush=True); import time; time.sleep(0.1)"
    path = directory / "out.json"
    options = ("--telemetry", "simulator", "--interval", "0.05", "--baseline", "1")
    told = execute(
        *(*options, "--lines", "frame", "--json", path),
        *(directory, "--", sys.executable, "-c", program),
    )
    assert told.returncode == 3, told.stderr
    assert "note: a simulated board does not show the load of the program" in told.stderr
    assert told.stdout.splitlines() == [f"frame {number}" for number in range(9)]
    lines = told.stderr.splitlines()
    assert lines[0] == "tegrascope: yolo on dla0: does not hold"
    assert "  ✗ core: does not hold · dla0 asked; dla0 did not work, dla1 did not work" in lines
    assert any(line.startswith("  first reason: accelerator: ") for line in lines)
    found = Verification.model_validate_json(path.read_text())
    assert found.run.inferences == 8
    assert found.reason.name == "accelerator"


def test_uncounted_frames_and_no_telemetry_are_undecided(directory, tmp_path):
    told = execute("-c", _no_telemetry(tmp_path), directory, "--", "true")
    assert told.returncode == 4
    assert "undecided" in told.stderr
    assert "note: no frames are counted: fewer than two lines of its output have" in told.stderr
    assert "note: no telemetry: " in told.stderr


def _no_telemetry(place: Path) -> Path:
    path = place / "none.yaml"
    path.write_text("telemetry: {source: tegrastats, tegrastats: {command: /no/such/program}}\n")
    return path


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        ([], 2, "no program is given"),
        (["DIR"], 2, "no program is given"),
        (["DIR", "--gst", "infer", "--", "true"], 2, "--gst: options come before DIR"),
        (["--gst", "a", "--lines", "b", "DIR", "--", "true"], 2, "not allowed with"),
        (["DIR/promise.json", "--", "/no/such/program"], 1, "/no/such/program was not found"),
        (["none", "--", "true"], 1, "tegrascope advise RESULT --rates NAME=30 -o DIR"),
        (["DIR", "--", "/no/such/program"], 1, "/no/such/program was not found"),
    ],
)
def test_slip_of_the_pen_is_one_line(words, status, said, directory):
    told = execute(*(word.replace("DIR", str(directory)) for word in words))
    assert told.returncode == status
    (line,) = told.stderr.splitlines()
    assert said in line


def test_options_of_the_program_are_left_alone():
    asked = ["verify", "--gst", "nv", "DIR", "--", "a", "--", "--gst", "b"]
    arguments = make_parser(asked).parse_args(asked)
    assert arguments.gst == "nv"
    assert arguments.program == ["DIR", "--", "a", "--", "--gst", "b"]


def test_source_that_went_away_is_named(directory, promise, capsys):
    gone = promise.models[0].model_copy(update={"source": "/gone"})
    document = promise.model_copy(update={"models": (gone,)}).model_dump_json()
    (directory / "promise.json").write_text(document)
    assert main(["verify", str(directory), "--", "true"]) == 1
    assert "/gone: No such file" in capsys.readouterr().err
