"""``tegrascope bench`` with real children, a real model and a simulated board."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from html import escape
from pathlib import Path

import pytest

from tegrascope.workbench.cli import main
from tegrascope.workbench.results.records import BenchResult

TINY = ("--duration", "0.6", "--baseline", "0.3", "--warm-up", "0.1", "--rounds", "2")
BRIEF = ("--duration", "0.1", "--baseline", "0.05", "--warm-up", "0.05", "--rounds", "1")
HAS_NVIDIA = Path("/proc/driver/nvidia").exists() or Path("/etc/nv_tegra_release").exists()

pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A directory that keeps the built-in model for all of these tests."""
    return tmp_path_factory.mktemp("bench")


def bench(place, *arguments):
    return subprocess.run(
        [sys.executable, "-m", "tegrascope", "bench", *arguments, "--state-dir", str(place)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        cwd=place,
    )


@pytest.fixture(scope="module")
def simulated(place):
    """The whole command on the simulated board."""
    return bench(place, "builtin:resnet50", "--simulate", *TINY, "-o", "out")


def test_simulated_bench_runs_to_its_end(simulated, place):
    assert simulated.returncode == 0, simulated.stderr
    assert "SIMULATED" in simulated.stdout
    assert "latency p50" in simulated.stdout
    assert "round 1 of 2 on gpu" in simulated.stderr
    assert re.search(r"^\d.* s of rounds, up to \d.* s until they agree;", simulated.stderr, re.M)
    assert sorted(path.name for path in (place / "out").iterdir()) == ["report.html", "result.json"]


def test_bench_without_rounds_stops_when_latency_is_answered(place):
    done = bench(
        *(place, "builtin:resnet50", "--simulate", "-o", "early"),
        *("--duration", "0.5", "--baseline", "0", "--warm-up", "0.05"),
    )
    assert done.returncode == 0, done.stderr
    assert "of rounds, less if the best is known or the interval is ± 3.0 %" in done.stderr
    assert re.search(r"^  latency decided after \d+ s$", done.stderr, re.M)
    assert "round 5" not in done.stderr
    result = BenchResult.model_validate_json((place / "early/result.json").read_text())
    (model,) = result.models
    assert (model.looks.taken, model.looks.is_early) == (1, True)
    assert model.looks.sentence in " ".join(done.stdout.split())


def test_simulated_result_is_marked_and_whole(simulated, place):
    assert simulated.returncode == 0
    result = BenchResult.model_validate_json((place / "out/result.json").read_text())
    (model,) = result.models
    assert result.is_simulated
    assert not result.is_partial
    assert [one.device for one in model.accelerators] == ["gpu", "dla0"]
    assert model.order[:4] == ("gpu", "dla0", "dla0", "gpu")
    assert len(model.order) in (4, 8)
    for one in model.accelerators:
        assert (one.status, one.rounds, one.outputs) == ("ok", 2, None)
        assert one.flags["simulated"] == 2
    assert all(report.environment.simulated for report in model.rounds)
    assert all(report.model_sha256 == model.model_sha256 for report in model.rounds)


def test_simulated_board_loads_the_measured_accelerator(simulated, place):
    assert simulated.returncode == 0
    result = BenchResult.model_validate_json((place / "out/result.json").read_text())
    # A busy machine loses samples; the rounds that have them all tell.
    for one in result.models[0].rounds:
        if one.telemetry.samples >= 5 and "telemetry_gap" not in one.quality:
            assert (one.telemetry.utilization["gpu"].mean_ratio > 0.5) == (one.device == "gpu")


@pytest.mark.skipif(HAS_NVIDIA, reason="this machine has NVIDIA hardware")
def test_missing_gpu_is_status_3_with_the_remedy(place):
    before = set(place.iterdir())
    done = bench(place, "builtin:mobilenet", "--on", "gpu", *BRIEF)
    assert done.returncode == 3, done.stderr
    assert "unavailable" in done.stdout
    assert "install" in done.stdout
    made = {path.name for path in set(place.iterdir()) - before} - {"models", "engines"}
    assert [name.startswith("tegrascope-bench-") for name in made] == [True]


@pytest.mark.skipif(HAS_NVIDIA, reason="this machine has NVIDIA hardware")
def test_cpu_still_benches_and_prints_json(place):
    done = bench(
        place,
        "builtin:mobilenet",
        *BRIEF,
        "--telemetry",
        "none",
        "--json",
        "-o",
        str(place / "cpu"),
    )
    assert done.returncode == 0, done.stderr
    result = BenchResult.model_validate(json.loads(done.stdout))
    assert [one.status for one in result.models[0].accelerators][-1] == "ok"
    assert result.models[0].accelerators[-1].outputs.verdict == "reference"
    assert result.telemetry_problem == "asked for with --telemetry none"
    assert not result.is_simulated
    assert json.loads((place / "cpu/result.json").read_text()) == json.loads(done.stdout)


@pytest.mark.usefixtures("simulated")
@pytest.mark.parametrize("has_whole", [False, True])
def test_interrupt_keeps_the_finished_rounds_and_a_whole_result(place, has_whole):
    before = (place / "out/result.json").read_bytes()
    shutil.rmtree(place / "cut", ignore_errors=True)
    if has_whole:
        shutil.copytree(place / "out", place / "cut")
    with subprocess.Popen(
        [
            *(sys.executable, "-m", "tegrascope", "bench", "builtin:resnet50", "--simulate"),
            *(*BRIEF[:-1], "40"),
            *("--state-dir", str(place), "-o", str(place / "cut")),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as child:
        for line in child.stderr:
            if "round 2 of 40 on gpu" in line:
                os.killpg(child.pid, signal.SIGINT)
                break
        table, words = child.communicate(timeout=120)
    assert child.returncode == 1
    assert "interrupted" in table
    assert "interrupted" in words
    if has_whole:
        assert (place / "cut/result.json").read_bytes() == before
    where = place / ("cut-interrupted" if has_whole else "cut")
    assert f"written: {where}/result.json" in words
    result = BenchResult.model_validate_json((where / "result.json").read_text())
    assert result.is_partial
    assert len(result.models[0].counted) >= 3
    assert result.models[0].rounds[-1].outcome == "cancelled"


@pytest.mark.usefixtures("simulated")
def test_interrupt_that_also_ends_the_reader_of_its_words_keeps_the_rounds(place):
    """As Ctrl-C in ``tegrascope bench 2>&1 | tee log`` does."""
    command = (sys.executable, "-m", "tegrascope", "bench", "builtin:resnet50", "--simulate")
    with subprocess.Popen(
        [*command, *BRIEF[:-1], "40", "--state-dir", str(place), "-o", str(place / "tee")],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as child:
        for line in child.stdout:
            if "round 2 of 40 on gpu" in line:
                break
        child.stdout.close()
        os.killpg(child.pid, signal.SIGINT)
        child.wait(timeout=120)
    result = BenchResult.model_validate_json((place / "tee/result.json").read_text())
    assert result.is_partial
    assert len(result.models[0].counted) >= 3


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        ((), 2, "no model is named"),
        (("net.onnx", "--on", "tpu"), 2, "'tpu' is not an accelerator; use gpu, dla0, dla1, cpu"),
        (("net.onnx", "--on", ","), 2, "no accelerator is given"),
        (("net.onnx", "--rounds", "0"), 2, "'0' is not a number from 1 on"),
        (("net.onnx",), 1, "there is no model file net.onnx"),
        (("builtin:mobilenet", "--calibration", "c"), 2, "give --precision int8 too"),
        (
            ("builtin:mobilenet", "--precision", "int8", "--calibration", "c"),
            1,
            "there is no c for --calibration: tegrascope engines calibrate",
        ),
        (("a.onnx", "--preprocess", "{resize: tall}"), 2, "resize: Input should be a valid int"),
        (("a.onnx", "--preprocess", "["), 2, "'[' is not a mapping, like {resize: 256}"),
        (("builtin:vgg",), 1, "no built-in model is named"),
        (("builtin:vgg", "--simulate"), 1, "no pace of vgg is known, so no accelerator"),
        (("resnet50", "--simulate", "--batch", "3"), 1, "in any precision, batch 3: use gpu in"),
        (("resnet50", "--simulate", "--layers"), 2, "--layers is for a real accelerator"),
        (("resnet50", "--simulate", "--inputs", "a.npy"), 2, "computes no outputs"),
        (("resnet50", "--simulate", "--backend", "tensorrt"), 2, "a back-end of its own"),
        (("resnet50", "--simulate", "--cut", "parts"), 2, "cannot run a model in two parts"),
        (
            ("builtin:mobilenet", "--cut", "parts"),
            1,
            "there is no parts/body.onnx: tegrascope inspect builtin:mobilenet --cut -o parts",
        ),
        (
            ("builtin:mobilenet", "builtin:resnet50", "--cut", "parts"),
            2,
            "--cut has the parts of one model",
        ),
        (
            ("builtin:mobilenet", "--simulate", "--telemetry", "tegrastats"),
            2,
            "telemetry is named more than once",
        ),
        (
            ("builtin:mobilenet", "--backend", "onnxruntime", "--on", "gpu"),
            2,
            "onnxruntime does not run on gpu",
        ),
        (("builtin:mobilenet", "-c", "none.yaml"), 1, "none.yaml"),
        (("builtin:mobilenet", "--contention"), 2, "--contention was given 1 model(s)"),
        (("builtin:resnet50", "--simulate", "-o", "/proc/none"), 1, "/proc/none"),
    ],
)
def test_bad_requests_are_one_line(arguments, status, words, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    try:
        ended = main(["bench", *arguments, "--state-dir", str(tmp_path)])
    except SystemExit as error:
        ended = error.code
    done = capsys.readouterr()
    assert ended == status
    assert words in done.err
    assert done.err.count("\n") == 1
    assert done.out == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b"no model\n", b"", b"<html>not found</html>"])
def test_file_that_is_no_model_is_one_line(content, capsys, monkeypatch, tmp_path):
    """It is found before a worker is started for each accelerator."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "junk.onnx").write_bytes(content)
    assert main(["bench", "junk.onnx", "--state-dir", str(tmp_path)]) == 1
    done = capsys.readouterr()
    [line] = done.err.splitlines()
    assert line.startswith("tegrascope: junk.onnx ")
    assert line.endswith((": export the model again", ": give an ONNX file"))
    assert done.out == ""
    assert [path.name for path in tmp_path.iterdir()] == ["junk.onnx"]


def test_bench_without_a_figure_writes_its_reasons(place):
    """For example in CI, where nobody reads the terminal."""
    from tests.fakes.models import write_chain

    model = write_chain(place / "net.onnx", "Relu")
    done = bench(place, str(model), "--on", "gpu", "--backend", "trtexec", *BRIEF, "-o", "nothing")
    assert done.returncode != 0
    result = BenchResult.model_validate_json((place / "nothing/result.json").read_text())
    (one,) = result.models[0].accelerators
    assert one.status != "ok"
    assert escape(one.reason) in (place / "nothing/report.html").read_text()
    assert "written: nothing/result.json and report.html" in done.stderr


def test_contention_is_announced_measured_shown_and_advised_on(place):
    # Long enough that both models infer at once even if one starts late on a busy machine.
    times = ("--duration", "1.5", "--baseline", "0.05", "--warm-up", "0.05", "--rounds", "2")
    arguments = ("resnet50", "retinanet-resnext50", "--contention", "--on", "gpu", "--simulate")
    done = bench(place, *arguments, *times, "-o", "two")
    assert done.returncode == 0, done.stderr
    begin, wide, plan = done.stderr.splitlines()[:3]
    assert begin.startswith("rounds of 1.5 s give no energy per inference")
    assert wide.startswith("two rounds that differ by 1 %")
    assert plan.startswith("after the models alone, 1 placement of 2 models: 2 times 3 rounds")
    assert "turn 2 of 2: resnet50-gpu + retinanet-resnext50-gpu" in done.stderr
    assert "<h2>Together</h2>" in (place / "two/report.html").read_text()
    result = BenchResult.model_validate_json((place / "two/result.json").read_text())
    assert result.settings.contention
    assert [len(one.lanes) for one in result.contention.together] == [1, 1, 2]
    assert [len(one.lanes) for one in result.contention.rounds] == [1, 1, 2, 2, 1, 1]
    pair = result.contention.together[2]
    assert (pair.status, pair.rounds) in (("ok", 1), ("ok", 2))
    assert f"resnet50 on gpu + retinanet-resnext50 on gpu: {pair.rounds} rounds" in done.stdout
    assert all(lane.slowdown is not None and lane.latency.count for lane in pair.lanes)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "tegrascope", "advise", "two", "--minimise", "gpu"),
            *("--rates", "resnet50=2,retinanet-resnext50=1", "--json"),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
        cwd=place,
    )
    assert done.returncode == 0, done.stderr
    advice = json.loads(done.stdout)
    assert advice["is_simulated"]
    assert [one["device"] for one in advice["chosen"]["models"]] == ["gpu", "gpu"]
    assert "resnet50 on gpu" in advice["measured"][0]


def test_workers_share_the_machine_as_asked(place):
    core = min(os.sched_getaffinity(0))
    arguments = ("--on", "cpu", "--telemetry", "none", "--nice", "3", "--cpus", str(core))
    done = bench(place, "builtin:mobilenet", *arguments, *BRIEF, "-o", "shared", "--json")
    assert done.returncode == 0, done.stderr
    (model,) = BenchResult.model_validate_json(done.stdout).models
    assert {(one.process.nice, one.process.cpus) for one in model.rounds} == {(3, (core,))}
