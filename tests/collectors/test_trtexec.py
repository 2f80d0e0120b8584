"""trtexec of three generations, played by a script: one run record comes of all of them."""

import os
import re
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tegrascope.collectors.backends.base import SelfTimed
from tegrascope.collectors.backends.trtexec import Trtexec, find_program, place_zero
from tegrascope.collectors.children.process import LineChild
from tegrascope.collectors.worker.run_loop import Runner
from tegrascope.daemon.session.session import Job, Session, make_order
from tegrascope.daemon.settings.config import Workload
from tegrascope.parsers.errors import BackendUnavailable
from tegrascope.parsers.inference.events import (
    Declined,
    Finished,
    Inferences,
    Loaded,
    Order,
    Phase,
    parse_run_event,
    render_event,
)
from tests.fakes.processes import Stopwatch, children, is_running, until
from tests.parsers.test_onnx_inputs import onnx_bytes

FAKE = Path(__file__).parents[1] / "fakes" / "trtexec_fake.py"
VERSIONS = ("8.5", "8.6", "10.3", "11.3")
S = 1_000_000_000


@pytest.fixture
def model(tmp_path) -> Path:
    path = tmp_path / "m.onnx"
    path.write_bytes(onnx_bytes({"image": ["batch", 3, 8, 8]}))
    return path


@pytest.fixture
def order(model, tmp_path):
    def make(version: str = "10.3", **changes: object) -> Order:
        fields = {
            "run_id": "r",
            "backend": "trtexec",
            "device": "gpu",
            "model": str(model),
            "model_directory": str(tmp_path / "models"),
            "engine_directory": str(tmp_path / "engines"),
            "program": (sys.executable, str(FAKE), version),
            "warm_up_seconds": 0.02,
            "duration_seconds": 0.1,
        }
        return Order.model_validate({**fields, **changes})

    return make


class Worker:
    """A run loop whose engine is trtexec, another if an order is declined, and what it told."""

    def __init__(self) -> None:
        self.told: list = []
        self.stop = threading.Event()
        self.runner = Runner(lambda _: Trtexec(), self.tell, self.stop)

    def tell(self, event: object) -> None:
        self.told.append(event)

    def run(self, order: Order) -> Finished:
        self.told.clear()
        self.runner.run(order)
        if isinstance(self.told[-1], Declined):
            self.told.clear()
            self.runner = Runner(lambda _: Trtexec(), self.tell, self.stop)
            self.runner.run(order)
        return self.told[-1]

    def of(self, kind: type) -> list:
        return [event for event in self.told if isinstance(event, kind)]

    @property
    def built(self):
        return self.of(Loaded)[-1].built


@pytest.fixture
def worker() -> Iterator[Worker]:
    made = Worker()
    yield made
    made.runner.close()


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("device", ["gpu", "dla0"])
def test_every_generation_gives_the_same_record(version, device, order, worker):
    """Copies, no spinning, one inference at a time: latency and stages are the same figures."""
    before = time.monotonic_ns()
    assert worker.run(order(version, device=device)).outcome == "ok"
    after = time.monotonic_ns()
    starts = [start for event in worker.of(Inferences) for start in event.start_ns]
    assert len(starts) == 100
    assert starts == sorted(starts)
    for event in worker.of(Inferences):
        assert set(event.latency_ns) == {1_000_000}
        assert {stage: set(times) for stage, times in event.stages_ns.items()} == {
            "h2d": {100_000},
            "compute": {800_000},
            "d2h": {100_000},
        }
    edges = {(event.phase, event.edge): event for event in worker.of(Phase)}
    begin, end = edges["steady", "begin"], edges["steady", "end"]
    assert before < begin.at_ns == starts[0] < end.at_ns < after
    assert end.at_ns == pytest.approx(starts[-1] + 1_000_000, abs=10_000)
    assert begin.uncertain_ns == end.uncertain_ns < S
    assert edges["warm_up", "begin"].at_ns < edges["warm_up", "end"].at_ns == begin.at_ns
    assert worker.of(Loaded)[0].versions["tensorrt"].startswith(version)
    built = worker.built
    assert built.has_transfers is True
    assert built.context_bytes == 7.5 * 2**20
    assert any("to within" in note for note in built.notes)
    assert built.notes[-1] == "Throughput may be bound by Enqueue Time rather than GPU Compute."
    assert built.engine_bytes > 0
    assert built.build_seconds > 0
    if device == "gpu":
        assert built.placement.verdict == "gpu_only"
        assert (built.has_cuda_graph, built.why_no_graph, built.fallback) == (True, None, None)
    else:
        assert (built.placement.verdict, built.placement.gpu_layers) == ("mixed", ("pool",))
        assert (built.has_cuda_graph, built.fallback) == (False, "allow")
        assert "can't be captured" in built.why_no_graph


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_not_wanted_is_turned_off(version, order, worker):
    """Without copies and graph there is one stage and no graph, whatever the defaults are."""
    asked = order(version, transfers=False, cuda_graph=False, streams=2)
    assert worker.run(asked).outcome == "ok"
    (event,) = worker.of(Inferences)
    assert set(event.latency_ns) == {800_000}
    assert set(event.stages_ns) == {"compute"}
    built = worker.built
    assert (built.has_transfers, built.has_cuda_graph, built.streams) == (False, False, 2)


def test_a_count_is_kept_to_the_inference(order, worker):
    """Trtexec runs at least so many; no more of them are in the record."""
    assert worker.run(order(count=300, duration_seconds=None)).outcome == "ok"
    assert sum(len(event.start_ns) for event in worker.of(Inferences)) == 300
    end = worker.of(Phase)[-1]
    last = worker.of(Inferences)[-1]
    assert end.at_ns == last.start_ns[-1] + last.latency_ns[-1]


def test_long_runs_are_told_in_pieces(order, worker):
    """No event is larger than what a pipe takes at once."""
    assert worker.run(order(count=2500, duration_seconds=None)).outcome == "ok"
    assert [len(event.start_ns) for event in worker.of(Inferences)] == [1024, 1024, 452]


def test_exported_warm_up_does_not_count(order, worker, monkeypatch):
    monkeypatch.setenv("FAKE_TRTEXEC", "exports-warm-up")
    assert worker.run(order("8.6")).outcome == "ok"
    assert sum(len(event.start_ns) for event in worker.of(Inferences)) == 100


def test_an_engine_is_built_once(order, worker):
    """The same model and settings find the engine; another device, type or file does not."""
    assert worker.run(order()).outcome == "ok"
    first = worker.built
    assert not first.is_cached
    for again, is_cached in (
        (order(duration_seconds=0.05), True),
        (order(device="dla0"), False),
        (order(device="dla1"), True),
        (order(precision="fp32"), False),
        (order(batch=2), False),
        (order("11.3"), False),
    ):
        worker.runner.close()
        assert worker.run(again).outcome == "ok"
        assert worker.built.is_cached is is_cached, again
        assert (worker.built.engine_key == first.engine_key) is (again.duration_seconds == 0.05)
    folder = Path(order().engine_directory)
    assert {path.suffix for path in folder.iterdir()} == {".plan", ".json", ".lock"}


def test_precision_is_what_was_built(order, worker, monkeypatch):
    """Up to 10 types are asked for; from 11 on they are the model's, and another is refused."""
    assert worker.run(order("10.3", precision="fp16")).outcome == "ok"
    assert (worker.built.layer_types, worker.built.is_strongly_typed) == ({"fp16": 3}, False)
    assert worker.run(order("11.3")).outcome == "ok"
    assert (worker.built.layer_types, worker.built.is_strongly_typed) == ({"fp32": 3}, True)
    told = worker.run(order("11.3", precision="fp16"))
    assert told.outcome == "failed"
    assert "none of them is fp16" in told.reason
    monkeypatch.setenv("FAKE_TRTEXEC", "typed")
    assert worker.run(order("11.3", precision="fp16", batch=3)).outcome == "ok"
    assert worker.run(order("8.6", precision="int8")).outcome == "ok"
    assert worker.built.int8_scales == "dummy"


def test_a_pure_engine_is_one(order, worker, monkeypatch):
    told = worker.run(order(device="dla0", fallback="require-pure"))
    assert told.outcome == "failed"
    assert "is not pure on the DLA: 1 layers run on the GPU: pool" in told.reason
    monkeypatch.setenv("FAKE_TRTEXEC", "pure")
    asked = order(device="dla0", fallback="require-pure", batch=2)
    assert worker.run(asked).outcome == "ok"
    assert worker.built.placement.verdict == "dla_plus_reformat"
    assert worker.run(order(device="dla0", fallback="forbid")).outcome == "ok"


@pytest.mark.parametrize(
    ("trouble", "changes", "outcome", "words"),
    [
        ("no-dla", {"device": "dla0"}, "skipped", "Cannot create DLA engine, 0 not available"),
        ("no-gpu", {}, "skipped", "install the NVIDIA driver"),
        ("no-library", {}, "skipped", "libnvinfer.so.8"),
        ("garbage", {}, "skipped", "does not answer --help"),
        ("bad-model", {}, "failed", "In function parseGraph: [6] Invalid Node - Pad_13"),
        ("bad-plan", {}, "failed", "set aside"),
        ("dies", {}, "failed", "could not measure it (Cuda failure: an illegal memory access"),
        ("no-times", {}, "failed", "cannot be read"),
        ("no-summary", {}, "failed", "performance summary is missing"),
        ("", {"device": "cpu"}, "skipped", "no device 'cpu'"),
        ("", {"program": ("/nowhere/trtexec",)}, "skipped", "/nowhere/trtexec: apt install"),
    ],
)
def test_what_goes_wrong_is_told(trouble, changes, outcome, words, order, worker, monkeypatch):
    """Each failure has its outcome and one line with the reason that trtexec gave."""
    monkeypatch.setenv("FAKE_TRTEXEC", trouble)
    told = worker.run(order(**changes))
    assert told.outcome == outcome
    assert words in told.reason
    assert "\n" not in told.reason


def test_a_spoilt_engine_is_built_anew(order, worker, monkeypatch):
    """A plan that cannot be loaded is set aside, and the next run has a new one."""
    assert worker.run(order()).outcome == "ok"
    monkeypatch.setenv("FAKE_TRTEXEC", "bad-plan")
    told = worker.run(order())
    assert (told.outcome, "set aside" in told.reason) == ("failed", True)
    monkeypatch.delenv("FAKE_TRTEXEC")
    assert worker.run(order()).outcome == "ok"
    assert not worker.built.is_cached
    folder = Path(order().engine_directory)
    assert {path.suffix for path in folder.iterdir()} == {".plan", ".bad", ".json", ".lock"}


def test_a_failed_capture_is_no_graph(order, worker, monkeypatch):
    monkeypatch.setenv("FAKE_TRTEXEC", "no-graph")
    assert worker.run(order()).outcome == "ok"
    assert (worker.built.has_cuda_graph, worker.built.why_no_graph) == (False, "its capture failed")


def test_engines_are_loaded_from_nobody_else(order, worker):
    """A directory in which others may write is refused: a plan is a program."""
    folder = Path(order().engine_directory)
    folder.mkdir()
    folder.chmod(0o777)
    told = worker.run(order())
    assert told.outcome == "failed"
    assert f"chmod go-w {folder}" in told.reason


def test_a_run_that_is_stopped_ends_its_child(order, worker, monkeypatch):
    monkeypatch.setenv("FAKE_TRTEXEC", "hang")
    seen = threading.Event()

    def tell_and_stop(event: object) -> None:
        worker.tell(event)
        if isinstance(event, Phase) and (event.phase, event.edge) == ("steady", "begin"):
            seen.set()
            worker.stop.set()

    worker.runner = Runner(lambda _: Trtexec(), tell_and_stop, worker.stop)
    watch, processes = Stopwatch(), children()
    told = worker.run(order())
    assert seen.is_set()
    assert told.outcome == "cancelled"
    assert watch.seconds < 20
    assert not worker.of(Inferences)
    assert children() <= processes


def test_nothing_outlives_a_worker_that_is_killed(order, monkeypatch):
    """A worker that dies at once, as a lane's deadline has it, takes its trtexec along."""
    monkeypatch.setenv("FAKE_TRTEXEC", "hang")
    command = [sys.executable, "-m", "tegrascope.collectors.worker.child", "--lane", "gpu"]
    with LineChild(command, stdin=True) as child:
        assert child.send(render_event(order()))
        while "steady" not in (line := child.read(20)).value:
            pass
        assert parse_run_event(line.value).edge == "begin"
        (pid,) = Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split()
        assert b"trtexec_fake" in Path(f"/proc/{pid}/cmdline").read_bytes()
        os.kill(child.pid, signal.SIGKILL)
        assert until(lambda: not is_running(pid))


def test_held_back_output_only_widens(order, worker, monkeypatch):
    monkeypatch.setenv("FAKE_TRTEXEC", "held")
    before = time.monotonic_ns()
    assert worker.run(order()).outcome == "ok"
    begin = next(
        event
        for event in reversed(worker.of(Phase))
        if (event.phase, event.edge) == ("steady", "begin")
    )
    assert before - begin.uncertain_ns < begin.at_ns < time.monotonic_ns()


@pytest.mark.parametrize(
    ("began", "done", "length", "zero", "error"),
    [
        (1.0, 4.0, 3.0, 1.0, 0.0),
        (1.0, 4.2, 3.0, 1.1, 0.1),
        (1.0, 3.9995, 3.0, 0.9995, 0.0),
        (3.9, 4.0, 3.0, 0.5, 0.5),
        (None, 4.0, 3.0, 0.5, 0.5),
        (1.0, 2.0, 3.0, -0.5, 0.5),
    ],
)
def test_zero_is_between_what_is_known(began, done, length, zero, error):
    """The zero lies after the first line and before the last less the work; half is uncertain."""
    times = [None if at is None else round(at * S) for at in (0, began, done, length)]
    found, uncertain = place_zero(*times)
    assert found == pytest.approx(zero * S, abs=2_000_000)
    assert uncertain == pytest.approx(error * S + 2_005_000, abs=10_000)


def test_default_program_is_named(monkeypatch):
    """Without a path in the order, the one of JetPack is looked for and named."""
    monkeypatch.setenv("PATH", "")
    with pytest.raises(BackendUnavailable, match=r"/usr/src/tensorrt/bin/trtexec.*trtexec: in the"):
        find_program(())


def test_it_times_itself():
    """The run loop takes it for an engine that measures by itself."""
    assert isinstance(Trtexec(), SelfTimed)


def test_a_workload_names_its_trtexec():
    """The path of the configuration is the program of the order; without one there is none."""
    for path, program in (("/opt/trtexec", ("/opt/trtexec",)), (None, ())):
        workload = Workload(name="w", model="m.onnx", backend="trtexec", trtexec=path)
        assert make_order(Job(workload), Session()).program == program


@pytest.mark.parametrize("version", ["8.5", "8.6", "10.3"])
def test_scales_of_a_cache_are_given_under_its_own_header(version, order, worker, tmp_path):
    path = tmp_path / "c.cache"
    path.write_text("TRT-8401-MinMaxCalibration\nimage: 3c010a14\n")
    asked = order(version, precision="int8", calibration=str(path))
    assert worker.run(asked).outcome == "ok"
    assert worker.built.int8_scales == "calibrated"
    assert worker.built.layer_types == {"int8": 3}
    key = worker.built.engine_key
    path.write_text("TRT-8401-MinMaxCalibration\nimage: 3c010a15\n")
    other = Worker()
    other.run(asked)
    assert other.built.engine_key != key
    other.runner.close()


@pytest.mark.parametrize(
    ("version", "precision", "name", "problem"),
    [
        ("11.3", "int8", "c.cache", "this trtexec has no --calib: put Q/DQ nodes"),
        ("8.6", "fp16", "c.cache", "a calibration is for int8, and m.onnx is to run in fp16"),
        ("8.6", "int8", "c.npz", "takes a calibration cache, not inputs: tegrascope engines cal"),
        ("8.6", "int8", "m.onnx", "m.onnx is not a calibration cache"),
    ],
)
def test_scales_that_it_cannot_take_are_refused(
    version, precision, name, problem, order, worker, tmp_path
):
    (tmp_path / "c.cache").write_text("TRT-8401-MinMaxCalibration\nimage: 3c010a14\n")
    asked = order(version, precision=precision, calibration=str(tmp_path / name))
    assert problem in worker.run(asked).reason


@pytest.mark.parametrize(
    ("version", "content", "option"),
    [
        ("8.5", b"\0getCreators\0", "--plugins"),
        ("8.6", b"\0getCreators\0", "--dynamicPlugins"),
        ("8.6", b"registers itself", "--staticPlugins"),
        ("10.3", b"\0getPluginCreators\0", "--staticPlugins"),
    ],
)
def test_plug_ins_are_loaded_by_the_option_that_the_help_offers(
    version, content, option, order, worker, tmp_path, monkeypatch
):
    library = tmp_path / "own.so"
    library.write_bytes(content)
    assert worker.run(order(version)).outcome == "ok"
    plain = worker.built.engine_key
    monkeypatch.setenv("FAKE_TRTEXEC", f"needs {option}={library}")
    assert worker.run(order(version, plugins=[str(library)])).outcome == "ok"
    assert worker.built.engine_key != plain
    # Neither the build nor the load of its plan succeeds without this option.
    assert worker.run(order(version)).outcome == "failed"


def test_plug_ins_that_trtexec_cannot_load_are_refused(order, worker, tmp_path):
    (tmp_path / "own.so").write_bytes(b"")
    finished = worker.run(order("11.3", plugins=[str(tmp_path / "own.so")]))
    assert (finished.outcome, "loads no plug-in" in finished.reason) == ("failed", True)


@pytest.mark.parametrize("trouble", ["no-plugin", "bad-model"])
def test_model_of_a_newer_opset_gets_the_export_line_that_works(
    trouble, order, worker, tmp_path, monkeypatch
):
    pytest.importorskip("onnx")
    from tests.fakes.models import write_chain

    monkeypatch.setenv("FAKE_TRTEXEC", trouble)
    newer = write_chain(tmp_path / "n.onnx", "Relu", opset=20)
    finished = worker.run(order("8.6", model=str(newer)))
    assert finished.reason.startswith("n.onnx has opset 20; TensorRT 8.6 reads up to 17 (")
    assert "dynamo=False, opset_version=17" in finished.reason
    readable = write_chain(tmp_path / "o.onnx", "Relu", opset=17)
    assert "reads up to" not in worker.run(order("8.6", model=str(readable))).reason


def test_operator_without_a_plug_in_is_named(order, worker, monkeypatch):
    monkeypatch.setenv("FAKE_TRTEXEC", "no-plugin")
    finished = worker.run(order("8.6"))
    assert finished.reason.startswith("the model needs the operator Lost, which TensorRT lacks")
    assert "--plugin" in finished.reason


def test_range_of_shapes_is_built_and_one_point_of_it_measured(order, worker, monkeypatch):
    wide = {"min": [1, 3, 8, 8], "opt": [2, 3, 8, 8], "max": [4, 3, 8, 8]}
    ends = "image:1x3x8x8", "image:2x3x8x8", "image:4x3x8x8"
    options = [f"--{name}Shapes={of}" for name, of in zip(("min", "opt", "max"), ends, strict=True)]
    asked = order("10.3", shapes={"image": wide}, batch=2, rebuild=True)
    for option in options:
        monkeypatch.setenv("FAKE_TRTEXEC", f"builds-with {option}")
        assert worker.run(asked).outcome == "ok", worker.told
    monkeypatch.setenv("FAKE_TRTEXEC", "measures-with --shapes=image:2x3x8x8")
    assert worker.run(asked).outcome == "ok"
    assert worker.of(Loaded)[-1].input_shapes == {"image": (2, 3, 8, 8)}


@pytest.mark.parametrize("version", ["8.5", "8.6", "10.3"])
def test_layers_are_held_at_a_precision_and_read_back(version, order, worker):
    held = {"layer_precisions": {"pool": "fp32"}, "precision_constraints": "prefer"}
    assert worker.run(order(version, precision="fp16", **held)).outcome == "ok"
    [layer] = worker.built.held_layers
    assert (layer.name, layer.asked, layer.found) == ("pool", "fp32", "fp32")
    assert "layer_precisions: 1 of 1 layers compute as asked" in worker.built.notes
    plain = worker.built.engine_key
    assert worker.run(order(version, precision="fp16")).outcome == "ok"
    assert (worker.built.held_layers, worker.built.engine_key != plain) == ((), True)


def test_a_trtexec_without_the_option_refuses_precision_by_layer(order, worker):
    asked = order("11.3", layer_precisions={"pool": "fp32"})
    finished = worker.run(asked)
    assert finished.outcome == "failed"
    assert "this trtexec takes no precision by layer" in finished.reason


@pytest.mark.parametrize(
    ("layers", "words"),
    [
        ({"a,b": "fp32"}, "no layer with a comma or a quote: a,b"),
        ({"none*": "fp32"}, r"names none\*, and no layer is named so"),
        ({"pool": "int8"}, "a build of fp16 has no int8"),
    ],
)
def test_a_layer_that_trtexec_cannot_hold_is_an_error(layers, words, order, worker):
    finished = worker.run(order(precision="fp16", layer_precisions=layers))
    assert finished.outcome == "failed"
    assert re.search(words, finished.reason)
