"""The TensorRT back-end, against stand-ins with the surface of each version and of each device."""

import fcntl
import json
import shutil
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import numpy
import onnx
import pytest

from tegrascope.collectors.backends.base import make_input, require_pure
from tegrascope.collectors.backends.build_turn import LOCK_NAME
from tegrascope.collectors.backends.engine_cache import BuiltEngine, EngineCache
from tegrascope.collectors.backends.tensorrt import TensorRt
from tegrascope.collectors.backends.tensorrt_build import logger_of, reason_in
from tegrascope.collectors.backends.tensorrt_probe import look
from tegrascope.collectors.worker.outputs import compare_with_first_run
from tegrascope.parsers.errors import BackendUnavailable, DeviceLostError, UserError
from tegrascope.parsers.inference.events import Order, Outputs
from tegrascope.parsers.inference.placement import Placement
from tests.fakes.fake_cuda import install_cuda
from tests.fakes.fake_device import FakeDevice
from tests.fakes.fake_tensorrt import install_tensorrt, make_tensorrt
from tests.fakes.models import HALF, write_chain

VERSIONS = ("8.5.2", "8.6.1", "10.3.0", "11.4.1")


class Desk:
    """A device, a TensorRT version, and engines on them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.folder = folder
        self.engines = folder / "engines"
        self.device = FakeDevice()
        self._patch = monkeypatch
        self.made: list[TensorRt] = []
        self.use("8.6.1")

    def use(self, version: str, *, old_cuda: bool = False, dla_cores: int = 0) -> None:
        """Make this the version and the device of every engine from now on."""
        self.device.dla_cores = dla_cores
        self.trt = make_tensorrt(version, self.device)
        install_tensorrt(self._patch, self.trt)
        install_cuda(self._patch, self.device, old=old_cuda)

    def order(self, model: Path, **changes: object) -> Order:
        asked: dict[str, object] = {
            "run_id": "r",
            "backend": "tensorrt",
            "device": "gpu",
            "model": str(model),
            "model_directory": str(self.folder),
            "engine_directory": str(self.engines),
            "count": 1,
        }
        return Order.model_validate({**asked, **changes})

    def make(self, model: Path, **changes: object) -> TensorRt:
        """Return an engine that is built and has run once."""
        engine = TensorRt(machine=self.folder, ask=look)
        self.made.append(engine)
        engine.load(model, self.order(model, **changes))
        engine.build()
        engine.infer()
        return engine

    def compare(self, engine: TensorRt) -> Outputs | None:
        """Compare the last inference with the first run of the engine, as the worker does."""
        return compare_with_first_run(engine, self.order(self.folder / "m.onnx"))

    def plan(self, engine: TensorRt) -> dict[str, object]:
        key = engine.built.engine_key
        return json.loads((self.engines / f"{key}.plan").read_bytes())

    @property
    def builds(self) -> int:
        return Counter(self.device.calls)["build_serialized_network"]


@pytest.fixture
def desk(monkeypatch, tmp_path):
    return Desk(monkeypatch, tmp_path)


@pytest.fixture
def model(tmp_path):
    return write_chain(tmp_path / "m.onnx", "Conv", "Relu", "Conv", shape=("N", 4))


@pytest.fixture
def flexible(tmp_path):
    return write_chain(tmp_path / "f.onnx", "Conv", "Relu", shape=("N", 3, "H", "W"))


WIDE = {"min": [1, 3, 4, 4], "opt": [1, 3, 8, 8], "max": [2, 3, 16, 16]}


@pytest.mark.parametrize("old_cuda", [False, True], ids=["bindings", "cudart"])
@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_builds_and_runs(desk, model, version, old_cuda):
    """One path serves 8.5 to 11, over cuda-python's new names and its old ones."""
    desk.use(version, old_cuda=old_cuda)
    engine = desk.make(model, batch=3)
    given = make_input("given", "tensor(float)", (3, 4))
    assert (engine.outputs()["made"] == given).all()
    assert engine.versions["tensorrt"] == version
    built = engine.built
    assert built.layer_types == {"fp32" if version == "11.4.1" else "fp16": 3}
    assert built.is_strongly_typed is (version == "11.4.1")
    assert built.context_bytes == (1000 if version < "9" and version[0] == "8" else 2000)
    assert built.placement.verdict == "gpu_only"
    assert built.engine_bytes == (desk.engines / f"{built.engine_key}.plan").stat().st_size
    assert (built.has_cuda_graph, built.why_no_graph, built.is_cached) == (True, None, False)


def test_an_input_that_is_a_shape_is_refused_by_its_name(desk, model):
    """No batch of the settings helps: the model takes sizes as data."""
    desk.use("8.6.0")
    made = onnx.load(model)
    made.graph.input[0].name = made.graph.node[0].input[0] = "shape_to"
    onnx.save(made, model)
    with pytest.raises(UserError, match=r"input 'shape_to' is a shape.*export the model with"):
        desk.make(model)


def test_a_timing_cache_that_is_not_used_is_no_error(desk, capfd):
    """TensorRT says so in each build after the first, and builds on."""
    desk.use("8.6.0")
    logger, lines = logger_of(desk.trt)
    severity = desk.trt.ILogger.Severity
    line = "myelinCache: CRC mismatch, timing cache will not be used"
    logger.log(severity.ERROR, line)
    assert list(lines)[-1] == f"[I] {line}"
    logger.log(severity.ERROR, "1: out of sorts")
    assert capfd.readouterr().err == "TensorRT: [E] 1: out of sorts\n"


@pytest.mark.parametrize("graph", [True, False])
def test_stage_is_repeated_alone_and_waited_for_once(desk, model, graph):
    engine = desk.make(model, cuda_graph=graph)
    before = engine.outputs()["made"]
    compute = ["cudaGraphLaunch", "execute"] if graph else ["execute"]
    copy = ["cudaMemcpyAsync"]
    for stage, calls in {"h2d": copy, "compute": compute, "d2h": copy}.items():
        repeat = engine.repeat(stage, 3)
        desk.device.calls.clear()
        began_ns = desk.device.now_ns
        repeat()
        counted = Counter(desk.device.calls)
        assert counted.pop("cudaStreamSynchronize") == 1
        assert counted == dict.fromkeys(calls, 3)
        each_ns = desk.device.compute_ns if stage == "compute" else desk.device.copy_ns
        assert desk.device.now_ns - began_ns == 3 * each_ns
    assert (engine.outputs()["made"] == before).all()
    desk.device.failing["cudaMemcpyAsync"] = "cudaErrorIllegalAddress"
    with pytest.raises(DeviceLostError):
        engine.repeat("h2d", 2)()


def test_stages_are_the_devices_own_time(desk, model):
    engine = desk.make(model)
    assert engine.stages == ("h2d", "compute", "d2h")
    assert engine.stages_ns() == [10_000, 300_000, 10_000]


def test_without_transfers_only_computing_is_timed(desk, model):
    engine = desk.make(model, transfers=False)
    before = Counter(desk.device.calls)["cudaMemcpyAsync"]
    engine.infer()
    assert Counter(desk.device.calls)["cudaMemcpyAsync"] == before
    assert engine.stages == ("compute",)
    assert engine.stages_ns() == [300_000]
    assert (engine.outputs()["made"] == make_input("given", "tensor(float)", (1, 4))).all()


def test_only_a_timed_inference_has_events_and_none_reads_them(desk, model):
    """Elapsed times are computed by who wants them, not within the measured call."""
    engine = desk.make(model)
    plain = {"cudaMemcpyAsync": 2, "cudaGraphLaunch": 1, "execute": 1, "cudaStreamSynchronize": 1}
    for infer, events in ((engine.infer, {}), (engine.infer_timed, {"cudaEventRecord": 4})):
        desk.device.calls.clear()
        infer()
        assert Counter(desk.device.calls) == plain | events


def test_a_graph_that_cannot_be_captured_is_done_without(desk, model):
    desk.device.refuses_capture = True
    engine = desk.make(model)
    engine.infer()
    built = engine.built
    assert built.has_cuda_graph is False
    assert built.why_no_graph.startswith("cudaErrorStreamCaptureUnsupported: ")
    assert "cudaGraphLaunch" not in desk.device.calls
    assert desk.device.last_error == "cudaSuccess", "an error left behind would be taken for ours"


def test_no_graph_unless_asked(desk, model):
    """An order without a graph gets none, and no reason, since there is nothing to explain."""
    built = desk.make(model, cuda_graph=False).built
    assert (built.has_cuda_graph, built.why_no_graph) == (False, None)


def test_no_graph_on_a_dla(desk, model):
    """A DLA's work is never captured."""
    desk.use("8.6.1", dla_cores=1)
    built = desk.make(model, device="dla0").built
    assert (built.has_cuda_graph, "DLA" in built.why_no_graph) == (False, True)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("cores", "device"), [(0, "dla0"), (0, "dla1"), (1, "dla1")])
def test_a_dla_that_is_not_there_is_refused(desk, model, version, cores, device):
    """The count of cores decides: left to itself TensorRT would build a GPU engine in silence."""
    desk.use(version, dla_cores=cores)
    with pytest.raises(BackendUnavailable, match=rf"sees .* on Fake Orin, so there is no {device}"):
        desk.make(model, device=device)
    assert desk.builds == 0


def test_the_core_is_read_back(desk, model, monkeypatch):
    desk.use("8.6.1", dla_cores=2)
    monkeypatch.setattr(desk.trt.Runtime, "DLA_core", property(lambda _: -1, lambda *_: None))
    with pytest.raises(BackendUnavailable, match="no dla1"):
        desk.make(model, device="dla1")


def test_the_core_is_read_back_while_building(desk, model, monkeypatch):
    """The count and the setter must agree before anything is built."""
    desk.use("8.6.1", dla_cores=2)
    config = desk.trt.IBuilderConfig
    monkeypatch.setattr(config, "DLA_core", property(lambda _: -1, lambda *_: None))
    with pytest.raises(BackendUnavailable, match="there is no dla0"):
        desk.make(model, device="dla0")
    assert desk.builds == 0


def test_one_plan_serves_both_cores(desk, model):
    """The core is chosen when an engine is loaded, so the key has the kind of device only."""
    desk.use("8.6.1", dla_cores=2)
    first = desk.make(model, device="dla0").built
    second = desk.make(model, device="dla1").built
    assert first.engine_key == second.engine_key
    assert (first.is_cached, second.is_cached, desk.builds) == (False, True, 1)
    assert second.placement == first.placement
    assert first.placement.verdict == "pure_dla"
    assert desk.make(model).built.engine_key != first.engine_key


@pytest.mark.parametrize(
    ("fallback", "flags"), [("allow", ["FP16", "GPU_FALLBACK"]), ("forbid", ["DIRECT_IO", "FP16"])]
)
def test_the_fallback_policy_becomes_flags(desk, model, fallback, flags):
    """Allowed: layers may move to the GPU. Forbidden: none may, nor be reformatted at its edge."""
    desk.use("8.6.1", dla_cores=1)
    engine = desk.make(model, device="dla0", fallback=fallback)
    assert desk.plan(engine)["flags"] == flags
    assert engine.built.fallback == fallback
    assert "TensorRT finds 3 of 3 layers fit for the DLA" in engine.built.notes


def test_forbidden_fallback_fails_with_the_reason(desk, tmp_path):
    desk.use("8.6.1", dla_cores=1)
    model = write_chain(tmp_path / "s.onnx", "Conv", "Softmax")
    with pytest.raises(UserError, match=r"softmax1 is not supported on DLA.*set fallback: allow"):
        desk.make(model, device="dla0", fallback="forbid")


def test_a_log_is_of_one_build(desk, model, tmp_path):
    desk.use("8.6.1", dla_cores=1)
    with pytest.raises(UserError, match="softmax1"):
        bad = write_chain(tmp_path / "s.onnx", "Conv", "Softmax")
        desk.make(bad, device="dla0", fallback="forbid")
    key = desk.make(model).built.engine_key
    assert not any("softmax1" in line for line in EngineCache(desk.engines).read(key)[1].log)


def test_a_pure_engine_is_held_to_it(desk, tmp_path):
    desk.use("8.6.1", dla_cores=1)
    model = write_chain(tmp_path / "s.onnx", "Conv", "Softmax")
    for _ in range(2):
        with pytest.raises(
            UserError, match=r"s\.onnx is not pure on the DLA.*: softmax1: set fall"
        ):
            desk.make(model, device="dla0", fallback="require-pure")
    built = desk.make(model, device="dla0").built
    assert (built.placement.verdict, built.fallback, desk.builds) == ("mixed", "allow", 1)
    pure = write_chain(tmp_path / "p.onnx", "Conv", "Relu")
    built = desk.make(pure, device="dla0", fallback="require-pure").built
    assert (built.placement.verdict, built.fallback) == ("pure_dla", "require-pure")


def test_a_pure_engine_without_evidence_is_refused():
    with pytest.raises(UserError, match=r"m\.onnx is not pure .* does not say where the layers"):
        require_pure("m.onnx", Placement())


@pytest.mark.parametrize(
    ("precision", "flags", "types"),
    [
        (None, ["FP16"], {"fp16": 2}),
        ("fp16", ["FP16"], {"fp16": 2}),
        ("fp32", [], {"fp32": 2}),
        ("int8", ["FP16", "INT8"], {"fp16": 2}),
    ],
)
@pytest.mark.parametrize("version", ["8.5.2", "8.6.1", "10.3.0"])
def test_precision_is_a_request(desk, tmp_path, version, precision, flags, types):
    desk.use(version)
    engine = desk.make(write_chain(tmp_path / "c.onnx", "Conv", "Relu"), precision=precision)
    plan, built = desk.plan(engine), engine.built
    assert plan["flags"] == flags
    assert built.layer_types == types
    assert built.requested_precision == precision
    assert built.int8_scales == ("dummy" if precision == "int8" else None)
    assert plan["ranges"] == (3 if precision == "int8" else 0)
    assert any("scales are placeholders" in note for note in built.notes) == (precision == "int8")


@pytest.mark.parametrize("precision", [None, "int8"])
@pytest.mark.parametrize("version", VERSIONS)
def test_a_quantised_model_brings_its_scales(desk, tmp_path, version, precision):
    desk.use(version)
    model = write_chain(tmp_path / "q.onnx", "QuantizeLinear", "DequantizeLinear", "Conv")
    engine = desk.make(model, precision=precision)
    assert engine.built.int8_scales == "explicit"
    assert desk.plan(engine)["ranges"] == 0


@pytest.mark.parametrize("version", VERSIONS)
def test_a_model_in_half_precision_keeps_its_types(desk, tmp_path, version):
    """From TensorRT 10 on they are obeyed to the letter; before, by the flag for fp16."""
    desk.use(version)
    model = write_chain(tmp_path / "h.onnx", "Conv", "Relu", kind=HALF)
    engine = desk.make(model)
    is_strong = version[0] != "8"
    assert engine.built.is_strongly_typed is is_strong
    assert desk.plan(engine)["flags"] == ([] if is_strong else ["FP16"])
    assert engine.outputs()["made"].dtype == numpy.float16


@pytest.mark.parametrize(
    ("version", "operations", "kind", "precision", "says"),
    [
        ("8.6.1", ("Conv",), HALF, "fp32", "typed in half precision.*cannot run in fp32"),
        ("10.3.0", ("Conv",), HALF, "int8", "typed in half precision.*Q/DQ nodes into"),
        ("8.6.1", ("QuantizeLinear",), None, "fp16", "quantised by Q/DQ nodes.*in fp16"),
        ("11.4.1", ("Conv",), None, "fp16", "typed fp32.*export the model in fp16"),
        ("11.4.1", ("Conv",), None, "int8", "typed fp32.*put Q/DQ nodes"),
    ],
)
def test_a_request_against_the_models_types_is_refused(
    desk, tmp_path, version, operations, kind, precision, says
):
    desk.use(version)
    model = write_chain(tmp_path / "t.onnx", *operations, **({"kind": kind} if kind else {}))
    with pytest.raises(UserError, match=says):
        desk.make(model, precision=precision)


@pytest.mark.parametrize(
    ("version", "precision", "remedy"),
    [("8.6.1", "fp32", "set precision: fp16"), ("11.4.1", None, "export the model in fp16")],
)
def test_a_dla_has_no_fp32(desk, model, version, precision, remedy):
    desk.use(version, dla_cores=1)
    with pytest.raises(UserError, match=f"a DLA computes in fp16 and int8 only: {remedy}"):
        desk.make(model, device="dla0", precision=precision)


def test_a_half_precision_model_runs_on_the_dla_of_11(desk, tmp_path):
    """Without precision flags the model's own types do."""
    desk.use("11.4.1", dla_cores=2)
    model = write_chain(tmp_path / "h.onnx", "Conv", "Relu", kind=HALF)
    built = desk.make(model, device="dla1").built
    assert (built.placement.verdict, built.is_strongly_typed) == ("pure_dla", True)


@pytest.mark.parametrize(("version", "level"), [("8.5.2", None), ("8.6.1", 0), ("11.4.1", 0)])
def test_the_optimisation_level_is_set_where_there_is_one(desk, model, version, level):
    desk.use(version)
    engine = desk.make(model, optimization_level=0)
    assert desk.plan(engine)["level"] == level
    assert any("no optimisation levels" in note for note in engine.built.notes) == (level is None)


def test_another_fixed_batch_is_refused(desk, tmp_path):
    """The model's own batch stands."""
    with pytest.raises(UserError, match="batch of 1 for input 'given', not 2"):
        desk.make(write_chain(tmp_path / "one.onnx", "Conv"), batch=2)


def test_reason_of_a_failed_build_is_its_cause():
    """What the builder prints after each failed build follows from the cause."""
    lines = [
        "[E] 10: [optimizer.cpp::computeCosts::3728] Error Code 10: Internal Error (Could not find"
        " any implementation for node {ForeignNode[conv1...relu9]}.)",
        "[E] 2: [builder.cpp::buildSerializedNetwork::751] Error Code 2: Internal Error (Assertion"
        " engine != nullptr failed. )",
    ]
    assert reason_in(lines).startswith("Error Code 10: Internal Error (Could not find any")
    assert "engine != nullptr" in reason_in(lines[1:])


def test_what_the_parser_refuses_is_told(desk, tmp_path):
    """The operation is named."""
    with pytest.raises(UserError, match=r"e\.onnx needs the operator Einsum, which TensorRT lacks"):
        desk.make(write_chain(tmp_path / "e.onnx", "Einsum"))


@pytest.mark.parametrize(("version", "newest"), [("8.6.1", 17), ("10.3.0", 20)])
def test_model_of_a_newer_opset_gets_the_export_line_that_works(desk, tmp_path, version, newest):
    """The opset is named only where the parser refused the model, and is too new for it."""
    desk.use(version)
    newer = write_chain(tmp_path / "e.onnx", "Einsum", opset=newest + 1)
    with pytest.raises(UserError) as caught:
        desk.make(newer)
    release = ".".join(version.split(".")[:2])
    said = f"e.onnx has opset {newest + 1}; TensorRT {release} reads up to {newest} ("
    assert caught.value.message.startswith(said)
    assert f"dynamo=False, opset_version={newest}" in caught.value.remedy
    with pytest.raises(UserError, match="needs the operator Einsum"):
        desk.make(write_chain(tmp_path / "e.onnx", "Einsum", opset=newest))


def test_a_device_that_is_no_accelerator_is_refused(desk, model):
    """TensorRT does not run on the CPU."""
    with pytest.raises(BackendUnavailable, match=r"no device 'cpu': use one of gpu, dla0, dla1"):
        desk.make(model, device="cpu")


def test_an_engine_is_found_again(desk, model):
    """The second engine of the same kind is not built, and what is known of it is the same."""
    first, second = desk.make(model).built, desk.make(model).built
    assert (first.is_cached, second.is_cached, desk.builds) == (False, True, 1)
    assert second == first.model_copy(update={"is_cached": True})


def test_without_a_directory_nothing_is_kept(desk, model):
    """An order that names none builds for itself."""
    assert desk.make(model, engine_directory=None).built.engine_key is None
    assert not desk.engines.exists()


@pytest.mark.parametrize("kept", ["damaged", "foreign"])
def test_a_plan_that_does_not_load_is_built_once_more(desk, model, kept):
    key = desk.make(model).built.engine_key
    plan = desk.engines / f"{key}.plan"
    if kept == "damaged":
        plan.write_bytes(b"x" + plan.read_bytes()[1:])
    else:
        cache, sidecar = EngineCache(desk.engines), EngineCache(desk.engines).read(key)[1]
        foreign = BuiltEngine(b'{"version": "7.0"}', sidecar.built)
        cache.write(key, foreign, model="m", parts=sidecar.parts)
    engine = desk.make(model)
    assert (engine.built.is_cached, desk.builds) == (False, 2)
    assert (desk.engines / f"{key}.plan.bad").exists()
    assert "cache_load" not in engine.cold_start_ns
    assert desk.make(model).built.is_cached


def test_a_fresh_plan_that_does_not_load_is_no_loop(desk, model, monkeypatch):
    def refuse(self, _content):
        self.logger.log(desk.trt.ILogger.Severity.ERROR, "1: out of sorts")

    monkeypatch.setattr(desk.trt.Runtime, "deserialize_cuda_engine", refuse)
    with pytest.raises(UserError, match=r"does not load the engine that it just built \(out of so"):
        desk.make(model)
    assert desk.builds == 1


def test_the_timing_cache_is_kept_for_the_next_build(desk, model):
    desk.make(model)
    (timing,) = desk.engines.glob("timing-*.cache")
    assert timing.name == "timing-tensorrt-8.6.1-sm8.7.cache"
    assert timing.read_bytes() == b"k"
    desk.make(model, precision="fp32")
    assert timing.read_bytes() == b"kk"
    timing.write_bytes(b"bad")
    desk.make(model, precision="int8")
    assert timing.read_bytes() == b"k"


def test_a_key_follows_all_that_an_engine_depends_on(desk, model, tmp_path):
    """Another version, batch, precision, policy or machine makes another engine."""
    keys = {desk.make(model).built.engine_key}
    for change in ({"batch": 2}, {"precision": "fp32"}, {"optimization_level": 1}):
        keys.add(desk.make(model, **change).built.engine_key)
    desk.use("8.5.2")
    keys.add(desk.make(model).built.engine_key)
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/nv_tegra_release").write_text("# R36 (release), REVISION: 4.3, GCID: 1\n")
    keys.add(desk.make(model).built.engine_key)
    assert len(keys) == 6
    # None of these is in the plan, so none makes another.
    for change in ({"streams": 2}, {"cuda_graph": False}, {"fallback": "forbid"}):
        keys.add(desk.make(model, **change).built.engine_key)
    assert len(keys) == 6


def test_parts_of_the_cold_start_are_told_apart(desk, model):
    """A build, and what is done instead of one."""
    built = {"probe", "cuda_init", "deserialise", "context", "buffers", "graph"}
    assert set(desk.make(model).cold_start_ns) == built
    assert set(desk.make(model).cold_start_ns) == built | {"cache_load"}


def test_several_inferences_are_in_flight(desk, model):
    engine = desk.make(model, streams=3)
    assert len(engine.slots) == 3
    assert (engine.built.streams, engine.built.has_cuda_graph) == (3, True)
    assert sum(thing.startswith("stream") for thing in desk.device.things) == 3
    for slot in engine.slots:
        slot.submit_timed()
    for slot in engine.slots:
        slot.wait()
        assert slot.stages_ns() == [10_000, 300_000, 10_000]


def test_a_refused_enqueue_is_a_failure(desk, model):
    engine = desk.make(model, cuda_graph=False)
    desk.device.refuses_enqueue = True
    with pytest.raises(RuntimeError, match="did not enqueue"):
        engine.infer()


@pytest.mark.parametrize("call", ["cudaMemcpyAsync", "cudaGraphLaunch", "cudaStreamSynchronize"])
def test_an_error_of_cuda_is_named(desk, model, call):
    engine = desk.make(model)
    desk.device.failing[call] = "cudaErrorInvalidValue"
    with pytest.raises(RuntimeError, match="cudaErrorInvalidValue: what cuda"):
        engine.infer()


def test_a_lost_device_is_told_apart(desk, model):
    """After an illegal address only another process can go on."""
    engine = desk.make(model)
    desk.device.failing["cudaStreamSynchronize"] = "cudaErrorIllegalAddress"
    with pytest.raises(DeviceLostError, match="cudaErrorIllegalAddress"):
        engine.infer()


def test_no_memory_for_a_context_is_told(desk, model):
    """TensorRT answers None."""
    desk.device.failing["create_execution_context"] = "None"
    with pytest.raises(UserError, match=r"makes no context.*free memory"):
        desk.make(model)


def test_everything_is_given_back(desk, model):
    """After close the device has its memory, its streams and its events again."""
    for changes in ({}, {"streams": 2}, {"cuda_graph": False, "transfers": False}):
        engine = desk.make(model, **changes)
        assert desk.device.memory
        engine.close()
        assert (desk.device.memory, desk.device.things) == ({}, set())


def test_what_could_not_be_bound_is_given_back(desk, model):
    """A failure half-way leaves nothing behind once the engine is closed."""
    desk.device.failing["cudaHostAlloc"] = "cudaErrorMemoryAllocation"
    with pytest.raises(RuntimeError, match="cudaErrorMemoryAllocation"):
        desk.make(model)
    desk.made[-1].close()
    assert (desk.device.memory, desk.device.things) == ({}, set())


def test_peak_memory_is_what_went_from_the_device(desk, model):
    """Input and output, four numbers of four bytes each."""
    assert desk.make(model).device_peak_bytes() == 2 * 16


def test_layers_are_timed_in_a_pass_of_their_own(desk, model):
    """The context that is measured never has a profiler."""
    engine = desk.make(model)
    found = engine.profile(4)
    assert found.layers_ns == {"conv0": 100_000, "relu1": 100_000, "conv2": 100_000}
    assert (found.inferences, found.total_ns) == (4, 300_000)
    assert [layer.name for layer in found.layers] == list(found.layers_ns)
    assert desk.device.contexts[0].profiler is None


def test_detail_is_for_the_inspector_not_for_the_run(desk, model, monkeypatch):
    levels = desk.trt.ProfilingVerbosity
    desk.make(model)
    assert desk.device.contexts[-1].nvtx_verbosity is levels.NONE
    monkeypatch.setenv("NSYS_PROFILING_SESSION_ID", "1")
    desk.make(model)
    assert desk.device.contexts[-1].nvtx_verbosity is levels.LAYER_NAMES_ONLY


def test_an_output_whose_shape_depends_on_data_is_refused(desk, tmp_path):
    model = write_chain(tmp_path / "d.onnx", "Conv", shape=(1, 4))
    loaded = onnx.load(model)
    loaded.graph.output[0].type.tensor_type.shape.dim[1].dim_param = "found"
    onnx.save(loaded, model)
    with pytest.raises(UserError, match="shape of output 'made' depends on the data"):
        desk.make(model)


def test_a_type_that_numpy_has_not_is_refused(desk, tmp_path):
    """bfloat16 has no inputs that we could make."""
    model = write_chain(tmp_path / "b.onnx", "Conv", kind=onnx.TensorProto.BFLOAT16)
    with pytest.raises(UserError, match="input 'given' is of type BF16"):
        desk.make(model)


BUILDER = """
import sys
from pathlib import Path
import pytest
from tests.collectors.test_tensorrt import Desk
with pytest.MonkeyPatch.context() as patch:
    desk = Desk(patch, Path(sys.argv[1]))
    print("ready", flush=True)
    sys.stdin.readline()
    print(desk.make(Path(sys.argv[2])).built.is_cached, desk.builds)
"""


def test_two_processes_build_an_engine_once(model, tmp_path):
    """The one that comes second waits, and finds it."""
    builders = [
        subprocess.Popen(
            [sys.executable, "-c", BUILDER, str(tmp_path), str(model)],
            cwd=Path(__file__).parents[2],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    for builder in builders:
        assert builder.stdout.readline() == "ready\n"
    for builder in builders:  # both are let go at once
        builder.stdin.write("go\n")
        builder.stdin.flush()
    told = [builder.communicate(timeout=60)[0].strip() for builder in builders]
    assert sorted(told) == ["False 1", "True 0"]


def test_threads_of_the_builder_may_speak(desk):
    """TensorRT's own threads log; nothing is lost and nothing breaks."""
    logger, lines = logger_of(desk.trt)
    severity = desk.trt.ILogger.Severity
    speakers = [
        threading.Thread(target=logger.log, args=(severity.INFO, f"line {at}")) for at in range(20)
    ]
    for speaker in speakers:
        speaker.start()
    for speaker in speakers:
        speaker.join()
    assert sorted(lines) == sorted(f"[I] line {at}" for at in range(20))


SPEAKER = """
import atexit
from types import ModuleType

from tegrascope.collectors.backends.tensorrt_build import logger_of

tensorrt = ModuleType("tensorrt")
tensorrt.ILogger = type("ILogger", (), {})
atexit.register(lambda: (logger.log("INFO", "late"), print(list(lines))))
logger, lines = logger_of(tensorrt)
logger.log("INFO", "early")
"""


def test_builder_may_speak_while_the_interpreter_ends():
    """By then modules may be gone, and an exception would end the process from C++."""
    ended = subprocess.run([sys.executable, "-c", SPEAKER], capture_output=True, text=True)
    assert (ended.stdout, ended.stderr, ended.returncode) == ("['[I] early']\n", "", 0)


def test_outputs_are_compared_with_those_of_the_engines_first_run(desk, model):
    first = desk.compare(desk.make(model))
    assert first.difference is None
    again = desk.make(model)
    assert desk.compare(again) == first.model_copy(update={"difference": 0.0})
    desk.device.spoils = True
    again.infer()
    found = desk.compare(again)
    assert found.sha256 != first.sha256
    given = make_input("given", "tensor(float)", (1, 4))[0]
    sizes = numpy.abs(given.astype("f8"))
    expected = sizes[0] / max(sizes[0], numpy.median(sizes))
    assert found.difference == pytest.approx(expected)
    assert desk.compare(desk.make(model, batch=2)).difference is None, "another engine"


def test_engine_that_is_built_again_replaces_the_old_one_and_its_outputs(desk, model):
    old = desk.make(model)
    desk.compare(old)
    assert desk.make(model).built.is_cached
    timing = next(desk.engines.glob("timing-*"))
    assert timing.read_bytes() == b"k"
    desk.device.spoils = True
    new = desk.make(model, rebuild=True)
    assert (desk.builds, new.built.is_cached) == (2, False)
    assert timing.read_bytes() == b"k", "the times of the first build were used"
    assert desk.compare(new).difference is None
    assert desk.make(model).built.is_cached


def test_wait_for_another_builder_is_no_part_of_the_build(desk, model):
    (desk.folder / "run/lock").mkdir(parents=True)
    lock = (desk.folder / "run/lock" / LOCK_NAME).open("wb")
    fcntl.flock(lock, fcntl.LOCK_EX)
    engine = TensorRt(machine=desk.folder, ask=look)
    desk.made.append(engine)
    engine.progress = lambda _: lock.close()
    engine.load(model, desk.order(model))
    engine.build()
    assert engine.cold_start_ns["build_wait"] == engine.built.circumstances.waited_seconds * 1e9 > 0


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "input 'given' leaves dimension 2 open"),
        ({"shapes": {"given": [1, 4, 8, 8]}}, r"has the shape \?x3x\?x\?, not 1x4x8x8"),
        ({"shapes": {"other": [1, 3, 8, 8]}}, "the model has no input 'other'"),
        ({"shapes": {"given": WIDE}, "device": "dla0"}, "a DLA takes one shape of input 'given'"),
    ],
)
def test_shape_that_does_not_fit_is_refused_before_the_wait_for_other_builds(
    desk, flexible, changes, words
):
    desk.use("8.6.1", dla_cores=1)
    (desk.folder / "run/lock").mkdir(parents=True)
    with (desk.folder / "run/lock" / LOCK_NAME).open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        engine = TensorRt(machine=desk.folder, ask=look)
        desk.made.append(engine)
        engine.progress = pytest.fail
        engine.load(flexible, desk.order(flexible, **changes))
        with pytest.raises(UserError, match=words):
            engine.build()


def test_model_that_tensorrt_cannot_read_is_refused_without_a_wait(desk, tmp_path):
    """The other build may take minutes."""
    desk.use("8.6.1")
    model = write_chain(tmp_path / "x.onnx", "Conv", shape=("N", 4))
    unknown = onnx.load(model)
    unknown.graph.node[0].domain, unknown.graph.node[0].op_type = "mine", "Unheard"
    onnx.save(unknown, model)
    (desk.folder / "run/lock").mkdir(parents=True)
    with (desk.folder / "run/lock" / LOCK_NAME).open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        engine = TensorRt(machine=desk.folder, ask=look)
        desk.made.append(engine)
        engine.progress = pytest.fail
        engine.load(model, desk.order(model))
        with pytest.raises(UserError, match="needs the operator Unheard, which TensorRT lacks"):
            engine.build()


def test_circumstances_of_a_build_stay_with_the_engine(desk, model):
    for name in ("run/lock", "proc"):
        (desk.folder / name).mkdir(parents=True)
    (desk.folder / "proc/loadavg").write_text("7.5 1 1 1/1 1")
    told = []
    engine = TensorRt(machine=desk.folder, ask=look)
    desk.made.append(engine)
    engine.progress = told.append
    engine.load(model, desk.order(model))
    engine.build()
    assert told == ["builds the engine, which may take minutes"]
    made = engine.built.circumstances
    assert (made.is_alone, made.load_average, made.free_device_bytes) == (True, 7.5, 8_000_000_000)
    (desk.folder / "proc/loadavg").write_text("0.5 1 1 1/1 1")
    assert desk.make(model).built.circumstances == made


def test_engine_of_a_build_without_memory_keeps_the_warning(desk, model):
    """Built later from the cache, it is still the engine of that build."""
    (desk.folder / "proc").mkdir(parents=True)
    (desk.folder / "proc/meminfo").write_text("MemAvailable: 1048576 kB\n")
    words = "1.0 GiB of memory were free for a build of about 4.0 GiB"
    assert any(words in note for note in desk.make(model).built.notes)
    (desk.folder / "proc/meminfo").write_text("MemAvailable: 99999999 kB\n")
    again = desk.make(model).built
    assert again.is_cached
    assert any(words in note for note in again.notes)


@pytest.mark.parametrize("is_jetson", [False, True])
def test_engine_of_the_cache_is_compared_with_memory_before_it_is_loaded(
    desk, model, capsys, is_jetson
):
    """It takes its file and its contexts: of a Jetson's free memory, elsewhere of the GPU's."""
    desk.trt.ICudaEngine.device_memory_size = 200 << 20
    (desk.folder / "proc/device-tree").mkdir(parents=True)
    (desk.folder / "proc/meminfo").write_text("MemAvailable: 102400 kB\n")
    if is_jetson:
        (desk.folder / "proc/device-tree/compatible").write_text("nvidia,tegra234\0")
    desk.make(model)
    capsys.readouterr()
    told: list[str] = []
    engine = TensorRt(machine=desk.folder, ask=look)
    desk.made.append(engine)
    engine.progress = told.append
    engine.load(model, desk.order(model, streams=3))
    engine.build()
    free, end = (100, "501 MiB are missing") if is_jetson else (7629, "7029 MiB remain")
    assert told == [f"takes about 600 MiB of memory; {free} MiB are free: {end}"]
    assert ("501 MiB are missing" in capsys.readouterr().err) == is_jetson


@pytest.fixture
def plugins(tmp_path):
    """Make libraries as the fake TensorRT reads them; one that registers itself is real."""
    (tmp_path / "plugins").mkdir()

    def exporting(name: str, version: str = "1") -> Path:
        path = tmp_path / "plugins" / f"{name}.so"
        path.write_bytes(f"\0getCreators\0exports:{name}\0{version}".encode())
        return path

    def registering(name: str) -> Path:
        if shutil.which("gcc") is None:
            pytest.skip("no gcc to compile a plug-in library")
        path = tmp_path / "plugins" / f"{name}.so"
        source = path.with_suffix(".c")
        source.write_text(f'const char registers[] = "registers:{name}";\n')
        subprocess.run(["gcc", "-shared", "-o", str(path), str(source)], check=True, timeout=60)
        return path

    return {"exporting": exporting, "registering": registering}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", ["exporting", "registering"])
def test_plug_ins_are_loaded_before_a_model_and_before_a_cached_engine(
    desk, tmp_path, plugins, kind, version
):
    name = f"Detector{version.replace('.', '')}"  # what a process has loaded, it keeps
    model = write_chain(tmp_path / "p.onnx", "Conv", f"own:{name}")
    if kind == "exporting" and version == "8.5.2":
        pytest.skip("the registry of 8.5 loads no library")
    desk.use(version)
    with pytest.raises(UserError, match=rf"p\.onnx needs the operator {name}, which"):
        desk.make(model)
    library = plugins[kind](name)
    assert not desk.make(model, plugins=[str(library)]).built.is_cached
    desk.use(version)  # another process, in which nothing is registered
    assert desk.make(model, plugins=[str(library)]).built.is_cached


def test_plug_ins_of_tensorrt_need_no_library(desk, tmp_path):
    assert desk.make(write_chain(tmp_path / "n.onnx", "Conv", "own:EfficientNMS_TRT")).built


def test_library_of_plug_ins_is_part_of_the_key_by_its_content(desk, model, plugins):
    plain = desk.make(model).built.engine_key
    one = desk.make(model, plugins=[str(plugins["exporting"]("A"))]).built.engine_key
    other = desk.make(model, plugins=[str(plugins["exporting"]("A", "2"))]).built.engine_key
    assert len({plain, one, other}) == 3


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "there is no plug-in library"),
        (b"no library", "cannot be loaded .*(invalid ELF|too short)"),
        (b"\0getCreators\0", "cannot be loaded"),
    ],
    ids=["absent", "garbage", "without creators"],
)
def test_library_that_cannot_be_loaded_is_named(desk, model, tmp_path, content, says):
    path = tmp_path / "x.so"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=says) as raised:
        desk.make(model, plugins=[str(path)])
    assert str(path) in str(raised.value)


@pytest.mark.parametrize("version", VERSIONS)
def test_engine_for_a_range_of_shapes_is_measured_at_each_point(desk, flexible, version):
    desk.use(version)
    for batch, height in ((1, 8), (1, 16), (2, 4)):
        shape = (batch, 3, height, 8)
        shapes = {"given": {**WIDE, "shape": shape}}
        engine = desk.make(flexible, shapes=shapes, batch=batch)
        assert engine.outputs()["made"].shape == engine.input_shapes["given"] == shape
        assert desk.compare(engine).difference is None, "each point has its own first outputs"
    assert desk.builds == 1
    assert desk.make(flexible, shapes={"given": WIDE}).input_shapes["given"] == (1, 3, 8, 8)


def test_engine_for_one_shape_is_another_one_for_another_shape(desk, flexible):
    keys = {
        desk.make(flexible, shapes={"given": shape}).built.engine_key
        for shape in ([1, 3, 8, 8], [1, 3, 4, 8], WIDE)
    }
    assert len(keys) == desk.builds == 3


def test_dla_takes_one_shape_and_no_range(desk, flexible):
    desk.use("8.6.1", dla_cores=1)
    engine = desk.make(flexible, device="dla0", shapes={"given": [1, 3, 8, 8]})
    assert engine.input_shapes["given"] == (1, 3, 8, 8)
    with pytest.raises(UserError, match="a DLA takes one shape of input 'given', not a range"):
        desk.make(flexible, device="dla0", shapes={"given": WIDE})


@pytest.mark.parametrize("shape", [(1, 4), ("N", 4)], ids=["fixed", "open"])
def test_output_that_depends_on_the_data_is_told_with_its_operator(desk, tmp_path, shape):
    """Some versions make no context for it, and speak of a vector."""
    model = write_chain(tmp_path / "n.onnx", "Relu", "NonZero", shape=shape)
    with pytest.raises(UserError, match=r"'made' depends on the data \(NonZero\).*EfficientNMS"):
        desk.make(model)


@pytest.mark.parametrize("version", VERSIONS[:3])
@pytest.mark.parametrize("constraints", ["obey", "prefer"])
def test_layers_are_held_at_a_precision_and_read_back(desk, model, version, constraints):
    desk.use(version)
    asked = {"conv0": "fp32", "relu*": "fp32"}
    given = {"layer_precisions": asked, "precision_constraints": constraints}
    built = desk.make(model, precision="fp16", **given).built
    assert {held.name: (held.asked, held.found) for held in built.held_layers} == {
        "conv0": ("fp32", "fp32"),
        "relu1": ("fp32", "fp32"),
    }
    assert built.layer_types == {"fp32": 2, "fp16": 1}
    assert built.notes[-1] == "layer_precisions: 2 of 2 layers compute as asked"
    plan = desk.plan(desk.made[-1])
    assert f"{constraints.upper()}_PRECISION_CONSTRAINTS" in plan["flags"]


def test_each_choice_of_layers_is_an_engine_of_its_own(desk, model):
    choices = [
        {},
        {"layer_precisions": {"conv0": "fp32"}},
        {"layer_precisions": {"conv0": "fp32"}, "precision_constraints": "prefer"},
        {"layer_precisions": {"*": "fp32", "conv0": "fp16"}},
    ]
    keys = {desk.make(model, precision="fp16", **choice).built.engine_key for choice in choices}
    assert (len(keys), desk.builds) == (4, 4)
    again = desk.make(model, precision="fp16", **choices[1])
    assert (desk.builds, again.built.is_cached) == (4, True)
    assert [held.name for held in again.built.held_layers] == ["conv0"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"layer_precisions": {"cnov0": "fp32"}}, r"names cnov0.*did you mean conv0"),
        ({"layer_precisions": {"conv0": "int8"}}, r"a build of fp16 has no int8: set precision: i"),
        ({"layer_precisions": {"head*": "fp32"}}, r"names head\*, and no layer is named so"),
    ],
)
def test_a_layer_that_cannot_be_held_so_is_an_error(desk, model, changes, words):
    with pytest.raises(UserError, match=words):
        desk.make(model, precision="fp16", **changes)


def test_a_model_with_types_in_force_has_no_precision_by_layer(desk, model, tmp_path):
    half = write_chain(tmp_path / "h.onnx", "Conv", "Relu", kind=HALF)
    for version, path in (("10.3.0", half), ("11.4.1", model)):
        desk.use(version)
        with pytest.raises(UserError, match="is built by its own types, so no layer has another"):
            desk.make(path, layer_precisions={"conv0": "fp32"})


def test_a_layer_without_numbers_is_named_and_not_held(desk, tmp_path):
    model = write_chain(tmp_path / "c.onnx", "Conv", "Cast", "Relu")
    built = desk.make(model, precision="fp16", layer_precisions={"*": "fp32"}).built
    assert [held.name for held in built.held_layers] == ["conv0", "relu2"]
    built = desk.make(model, precision="fp16", layer_precisions={"cast1": "fp32"}).built
    assert built.held_layers == ()
