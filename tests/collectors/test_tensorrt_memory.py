"""Copied, mapped and managed memory of inputs and outputs, against a stand-in that finds misuse.

The stand-in shows what work writes into mapped or managed memory only after a wait, and fails if
the host writes there before, or if the device is not the owner of managed memory that it uses.
"""

from collections import Counter

import numpy
import pytest

from tegrascope.collectors.backends.base import make_input
from tegrascope.parsers.errors import DeviceLostError, UserError
from tests.fakes.fake_cuda import make_cuda
from tests.fakes.fake_device import FakeDevice
from tests.fakes.models import write_chain

from .test_tensorrt import Desk

MOVES = ("cudaMemcpyAsync", "cudaStreamAttachMemAsync", "cudaMemPrefetchAsync")


@pytest.fixture
def desk(monkeypatch, tmp_path):
    return Desk(monkeypatch, tmp_path)


@pytest.fixture
def model(tmp_path):
    return write_chain(tmp_path / "m.onnx", "Conv", "Relu", "Conv", shape=("N", 4))


def moves(desk, call):
    """Return how often an inference moves memory, by the call that does it."""
    desk.device.calls.clear()
    call()
    counted = Counter(desk.device.calls)
    return {name: counted[name] for name in MOVES if counted[name]}


@pytest.mark.parametrize("cuda_graph", [True, False], ids=["graph", "enqueued"])
@pytest.mark.parametrize("memory", ["copy", "mapped", "managed"])
@pytest.mark.parametrize("streams", [1, 3])
def test_outputs_are_equal_whatever_the_memory(desk, model, memory, cuda_graph, streams):
    engine = desk.make(model, batch=3, memory=memory, cuda_graph=cuda_graph, streams=streams)
    usual = make_input("given", "tensor(float)", (3, 4))
    assert engine.outputs()["made"].tobytes() == usual.tobytes()
    other = numpy.full((3, 4), 0.1, "f4")
    engine.feed({"given": other})
    assert engine.inputs()["given"].tobytes() == other.tobytes()
    for slot in engine.slots:
        slot.submit()
    for slot in engine.slots:
        slot.wait()
        assert slot.outputs()["made"].tobytes() == other.tobytes()
    assert (engine.built.memory, engine.built.has_cuda_graph) == (memory, cuda_graph)
    assert engine.built.has_transfers is (memory == "copy")
    engine.close()
    assert (desk.device.memory, desk.device.owners, desk.device.things) == ({}, {}, set())


def test_memory_is_copied_unless_another_is_chosen(desk, model):
    engine = desk.make(model)
    assert moves(desk, engine.infer) == {"cudaMemcpyAsync": 2}
    assert (engine.built.memory, engine.built.has_transfers) == ("copy", True)


def test_mapped_memory_has_no_copies_and_no_stages_of_them(desk, model):
    """The device reads and writes it while it computes."""
    engine = desk.make(model, memory="mapped")
    assert moves(desk, engine.infer) == {}
    assert (engine.stages, engine.stages_ns()) == (("compute",), [300_000])
    assert engine.device_peak_bytes() == 0


def test_managed_memory_of_an_orin_is_handed_over_and_back(desk, model):
    engine = desk.make(model, memory="managed")
    assert moves(desk, engine.infer) == {"cudaStreamAttachMemAsync": 4}
    assert engine.stages == ("h2d", "compute", "d2h")
    assert engine.stages_ns() == [0, 300_000, 0]
    assert set(desk.device.owners.values()) == {"host"}


@pytest.mark.parametrize("memory", ["mapped", "managed"])
def test_write_of_the_host_into_work_is_found(desk, model, memory):
    [slot] = desk.make(model, memory=memory).slots
    slot.submit()
    [address, *_] = desk.device.owners
    desk.device.memory[address].raw = bytes(16)
    with pytest.raises(DeviceLostError, match="cudaErrorIllegalAddress"):
        slot.wait()


def test_outputs_that_nobody_waited_for_are_not_there(desk, model):
    engine = desk.make(model, memory="mapped")
    engine.slots[0].submit()
    assert engine.outputs()["made"].tobytes() == b"?" * 16
    engine.slots[0].wait()
    assert engine.outputs()["made"].tobytes() != b"?" * 16


def test_stand_in_finds_work_on_memory_that_the_host_owns():
    device = FakeDevice()
    cuda = make_cuda(device)
    stream = cuda.cudaStreamCreateWithFlags(1)[1]
    address = cuda.cudaMallocManaged(16, cuda.cudaMemAttachGlobal)[1]
    device.work_on([address], [])
    assert cuda.cudaStreamSynchronize(stream)[0].name == "cudaSuccess"
    cuda.cudaStreamAttachMemAsync(stream, address, 0, cuda.cudaMemAttachHost)
    device.work_on([address], [])
    assert cuda.cudaStreamSynchronize(stream)[0].name == "cudaErrorIllegalAddress"


@pytest.mark.parametrize("stage", ["h2d", "compute", "d2h"])
def test_stage_alone_and_layers_take_managed_memory_over(desk, model, stage):
    """The inference before gave it back to the host."""
    engine = desk.make(model, memory="managed")
    engine.repeat(stage, 3)()
    engine.profile(2)
    engine.infer()
    assert engine.outputs()["made"].tobytes() == engine.inputs()["given"].tobytes()


@pytest.mark.parametrize("cuda_version", [12060, 13000])
def test_pages_move_on_a_gpu_with_memory_of_its_own(desk, model, cuda_version):
    """CUDA 13 names the place in another form."""
    desk.device.is_integrated, desk.device.concurrent_managed_access = False, True
    desk.device.cuda_version = cuda_version
    engine = desk.make(model, memory="managed-anyway")
    assert moves(desk, engine.infer) == {"cudaMemPrefetchAsync": 4}
    assert engine.stages_ns() == [20_000, 300_000, 20_000]
    assert engine.built.memory == "managed-anyway"


def test_nothing_moves_where_hardware_keeps_one_memory_coherent(desk, model):
    desk.device.concurrent_managed_access = True
    engine = desk.make(model, memory="managed")
    assert moves(desk, engine.infer) == {}
    assert engine.stages_ns() == [0, 300_000, 0]


def test_managed_memory_is_refused_on_a_gpu_with_memory_of_its_own(desk, model):
    desk.device.is_integrated = False
    with pytest.raises(UserError) as told:
        desk.make(model, memory="managed")
    assert "memory of its own" in told.value.message
    assert "managed-anyway" in told.value.remedy
    for memory in ("copy", "mapped"):
        assert desk.make(model, memory=memory).built.memory == memory


def test_mapped_memory_goes_to_a_dla_too(desk, model):
    desk.use("8.6.1", dla_cores=1)
    engine = desk.make(model, memory="mapped", device="dla0")
    assert moves(desk, engine.infer) == {}
    assert engine.stages == ("compute",)


def test_memory_that_cannot_be_mapped_fails_by_its_name_and_is_given_back(desk, model):
    desk.device.failing["cudaHostGetDevicePointer"] = "cudaErrorMemoryAllocation"
    with pytest.raises(RuntimeError, match="cudaErrorMemoryAllocation"):
        desk.make(model, memory="mapped")
    desk.made[-1].close()
    assert (desk.device.memory, desk.device.things) == ({}, set())


def test_one_engine_serves_all_memory(desk, model):
    for memory in ("copy", "mapped", "managed"):
        desk.make(model, memory=memory)
    assert desk.builds == 1
