"""The cuDLA back-end, against a library with cuDLA's C interface, made by a compiler."""

import ctypes
import shutil
import subprocess
from pathlib import Path

import numpy
import pytest

from tegrascope.collectors.backends.base import make_input
from tegrascope.collectors.backends.cudla import (
    STATUSES,
    Cudla,
    Task,
    TensorDescriptor,
    check,
    load_cudla,
)
from tegrascope.collectors.backends.tensorrt import TensorRt
from tegrascope.collectors.backends.tensorrt_probe import look
from tegrascope.daemon.settings.config import Workload
from tegrascope.parsers.errors import BackendUnavailable, DeviceLostError, UserError
from tegrascope.parsers.inference.events import Order
from tests.fakes.fake_cuda import install_cuda
from tests.fakes.fake_device import FakeDevice
from tests.fakes.fake_tensorrt import install_tensorrt, make_tensorrt
from tests.fakes.models import HALF, write_chain

SOURCE = Path(__file__).parents[1] / "fakes" / "fake_cudla.c"


@pytest.fixture(scope="session")
def library_path(tmp_path_factory):
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler makes the stand-in of cuDLA: apt install gcc")
    path = tmp_path_factory.mktemp("cudla") / "libcudla.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(path), str(SOURCE)], check=True)
    return path


@pytest.fixture
def library(library_path):
    return load_cudla([str(library_path)])


def counts(library: ctypes.CDLL) -> tuple[int, ...]:
    """Return devices, modules and registered memory that are not released, and tasks."""
    found = (ctypes.c_int * 4)()
    library.fake_cudla_counts(found)
    return tuple(found)


class Desk:
    """A DLA, a TensorRT that builds for it, and loadables on both."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path, library: ctypes.CDLL) -> None:
        self.folder, self.library = folder, library
        self.device = FakeDevice(dla_cores=2)
        self._patch = monkeypatch
        self.made: list[TensorRt] = []
        self.use("8.6.1")

    def use(self, version: str) -> None:
        install_tensorrt(self._patch, make_tensorrt(version, self.device))
        install_cuda(self._patch, self.device)

    def make(self, model: Path, kind: type[TensorRt] = Cudla, **changes: object) -> TensorRt:
        asked: dict[str, object] = {
            "run_id": "r",
            "backend": "cudla",
            "device": "dla0",
            "model": str(model),
            "model_directory": str(self.folder),
            "engine_directory": str(self.folder / "engines"),
            "count": 1,
        }
        order = Order.model_validate({**asked, **changes})
        given = {"library": self.library} if kind is Cudla else {}
        engine = kind(machine=self.folder, ask=look, **given)
        self.made.append(engine)
        engine.load(model, order)
        engine.build()
        engine.infer()
        return engine

    def fail(self, call: str, status: int) -> None:
        self._patch.setenv("FAKE_CUDLA_FAIL", f"{call}:{status}")


@pytest.fixture
def desk(monkeypatch, tmp_path, library):
    made = Desk(monkeypatch, tmp_path, library)
    before = counts(library)[:3]
    yield made
    for engine in made.made:
        engine.close()
    assert counts(library)[:3] == before
    assert (made.device.memory, made.device.things) == ({}, set())


@pytest.fixture
def model(tmp_path):
    return write_chain(tmp_path / "m.onnx", "Conv", "Relu", shape=("N", 3, 4, 5))


@pytest.mark.parametrize("version", ["8.5.2", "8.6.1", "10.3.0"])
def test_a_loadable_is_built_and_runs(desk, model, version):
    """Its rows are padded to 64 bytes, and its outputs are those of the model all the same."""
    desk.use(version)
    engine = desk.make(model, batch=2)
    given = make_input("given", "float16", (2, 3, 4, 5))
    assert (engine.outputs()["made"] == given).all()
    assert engine.stages == ("h2d", "compute", "d2h")
    built = engine.built
    assert (built.placement.verdict, built.placement.loadables) == ("pure_dla", 1)
    assert (built.fallback, built.has_cuda_graph) == ("forbid", False)
    assert engine.versions["cudla"] == "1.2.1"
    assert counts(desk.library)[3] > 0


def test_a_strongly_typed_model_keeps_its_types(desk, tmp_path):
    desk.use("11.4.1")
    half = write_chain(tmp_path / "h.onnx", "Conv", shape=(1, 3, 4, 5), kind=HALF)
    assert desk.make(half).outputs()["made"].dtype == numpy.float16
    whole = write_chain(tmp_path / "w.onnx", "Conv", shape=(1, 3, 4, 5))
    with pytest.raises(UserError, match="is typed fp32"):
        desk.make(whole, precision="fp16")


def test_int8_inputs_are_not_compared(desk, model):
    """Their scale is inside the loadable, so outputs of the same numbers mean something else."""
    engine = desk.make(model, batch=1, precision="int8")
    assert engine.outputs() == {}
    assert engine.built.int8_scales == "dummy"


def test_a_loadable_comes_from_the_cache_and_serves_both_cores(desk, model):
    first, second = desk.make(model), desk.make(model, device="dla1")
    assert (first.built.is_cached, second.built.is_cached) == (False, True)
    assert first.built.engine_key == second.built.engine_key
    assert desk.device.calls.count("build_serialized_network") == 1


def test_a_loadable_and_an_engine_have_different_keys(desk, model):
    loadable = desk.make(model)
    engine = desk.make(model, TensorRt, backend="tensorrt", fallback="forbid")
    assert loadable.built.engine_key != engine.built.engine_key


def test_a_ready_loadable_runs(desk, model, tmp_path):
    engine = desk.make(model)
    ready = tmp_path / "net.dla"
    ready.write_bytes((tmp_path / "engines" / f"{engine.built.engine_key}.plan").read_bytes())
    desk.device.calls.clear()
    other = desk.make(ready)
    assert (other.outputs()["made"] == engine.outputs()["made"]).all()
    assert "build_serialized_network" not in desk.device.calls
    with pytest.raises(UserError, match="has a batch of 1 in 'given', not 2"):
        desk.make(ready, batch=2)


def test_a_layout_that_is_not_known_runs_and_is_not_compared(desk, tmp_path):
    """Format 3 is that of packed channels, whose places only the DLA's driver defines."""
    ready = tmp_path / "packed.dla"
    lines = ["loadable", "in image 1 3 4 4 2048 2 3", "out scores 1 10 1 1 64 2 3", ""]
    ready.write_text("\n".join(lines))
    engine = desk.make(ready)
    assert engine.outputs() == {}
    assert counts(desk.library)[3] > 0


def test_each_stream_has_a_handle_of_its_own(desk, model):
    before = counts(desk.library)
    engine = desk.make(model, streams=3)
    devices, modules, memory, _ = counts(desk.library)
    assert (devices - before[0], modules - before[1], memory - before[2]) == (3, 3, 6)
    for slot in engine.slots:
        slot.submit()
        slot.wait()


def test_a_damaged_loadable_in_the_cache_is_built_again(desk, model, tmp_path):
    key = desk.make(model).built.engine_key
    desk.fail("cudlaModuleLoadFromMemory", 7)
    with pytest.raises(UserError, match="cudlaModuleLoadFromMemory: cudlaErrorUmd"):
        desk.make(model)
    assert (tmp_path / "engines" / f"{key}.plan.bad").exists()


def test_a_file_that_is_no_loadable_is_refused(desk, tmp_path):
    (tmp_path / "text.dla").write_text("hello")
    with pytest.raises(UserError, match=r"cuDLA does not load text.dla .*cudlaErrorInvalidModule"):
        desk.make(tmp_path / "text.dla")


@pytest.mark.parametrize(
    ("call", "status", "kind", "words"),
    [
        ("cudlaCreateDevice", 13, BackendUnavailable, "cuDLA has no dla0"),
        ("cudlaCreateDevice", 10, BackendUnavailable, "cudlaErrorIncompatibleDlaSWVersion"),
        ("cudlaCreateDevice", 2, RuntimeError, "cudlaErrorOutOfResources"),
        ("cudlaModuleLoadFromMemory", 2, RuntimeError, "cudlaErrorOutOfResources"),
        ("cudlaModuleGetAttributes", 9, RuntimeError, "cudlaErrorInvalidAttribute"),
        ("cudlaMemRegister", 4, RuntimeError, "cudlaMemRegister: cudlaErrorInvalidAddress"),
        ("cudlaSubmitTask", 6, RuntimeError, "cudlaSubmitTask: cudlaErrorCuda"),
        ("cudlaGetLastError", 0x40000006, DeviceLostError, "cudlaErrorDlaErrEngineTimeout"),
        ("cudlaGetLastError", 0x7FFFFFFF, DeviceLostError, "cudlaErrorUnknown"),
    ],
)
def test_each_failure_is_named_and_leaves_nothing_behind(desk, model, call, status, kind, words):
    """A task fails on the DLA after its submission: only cudlaGetLastError reports that."""
    desk.fail(call, status)
    with pytest.raises(kind, match=words):
        desk.make(model)


def test_every_inference_reports_a_failed_task(desk, model):
    """The one that the device does not time too, alone and beside others."""
    engine = desk.make(model, streams=2)
    calls = counts(desk.library)[3]
    engine.infer()
    assert counts(desk.library)[3] == calls + 1
    slot = engine.slots[1]
    slot.submit()
    desk.fail("cudlaGetLastError", 0x40000007)
    with pytest.raises(DeviceLostError, match="cudlaErrorDlaErrDataMismatch"):
        slot.wait()


def test_a_repeated_stage_reports_a_failed_task_too(desk, model):
    engine = desk.make(model)
    engine.repeat("compute", 5)()
    assert counts(desk.library)[3] >= 6
    desk.fail("cudlaGetLastError", 0x40000007)
    with pytest.raises(DeviceLostError, match="cudlaErrorDlaErrDataMismatch"):
        engine.repeat("compute", 5)()


def test_every_documented_code_has_a_name():
    assert sorted(STATUSES)[:14] == list(range(1, 15))
    for status, (name, _) in STATUSES.items():
        with pytest.raises(RuntimeError, match=f"call: {name}"):
            check(status, "call")
    with pytest.raises(RuntimeError, match="code 99, not in cuDLA's documentation"):
        check(99, "call")
    check(0, "call")


def test_descriptors_are_those_of_the_header(library):
    """Its first field, one in the middle, the last one, and the size of all."""
    task = Task(library, 1, b"loadable\nin image 1 2 3 4 5 6 7\nout scores 8 9 10 11 12 13 14\n")
    [given], [made] = task.inputs, task.outputs
    assert (given.name, given.w, given.size, given.type, given.format) == (b"image", 4, 5, 6, 7)
    assert (made.n, made.c, made.h, made.stride[7]) == (8, 9, 10, 77)
    assert library.fake_cudla_counts((ctypes.c_int * 4)()) == ctypes.sizeof(TensorDescriptor)
    task.close()


def test_without_the_library_it_is_unavailable(tmp_path):
    with pytest.raises(BackendUnavailable, match=r"libcudla.so.1 cannot be opened: .*cuda-cudla"):
        load_cudla([str(tmp_path / "libcudla.so.1")])


def test_a_model_that_does_not_fit_names_no_fallback(desk, tmp_path):
    model = write_chain(tmp_path / "s.onnx", "Conv", "Softmax", shape=(1, 3, 4, 4))
    with pytest.raises(UserError, match="a loadable has no fallback"):
        desk.make(model)


def test_a_gpu_has_no_loadables(desk, model):
    with pytest.raises(BackendUnavailable, match="no device 'gpu'"):
        desk.make(model, device="gpu")


@pytest.mark.parametrize(
    ("keys", "backend"),
    [
        ({"engine_capability": "dla_standalone"}, "cudla"),
        ({"backend": "cudla"}, "cudla"),
        ({}, "tensorrt"),
    ],
)
def test_a_loadable_chooses_its_back_end(keys, backend):
    work = Workload.model_validate({"name": "w", "model": "m.onnx", "device": "dla0", **keys})
    assert work.backend_in_force == backend


def test_another_back_end_runs_no_loadable():
    keys = {"backend": "tensorrt", "engine_capability": "dla_standalone", "device": "dla0"}
    with pytest.raises(ValueError, match="dla_standalone goes with backend: cudla"):
        Workload.model_validate({"name": "w", "model": "m.onnx", **keys})
