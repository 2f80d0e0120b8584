"""cuda-python under its old names and its new ones, and one check for its tuples."""

import sys
import types

import pytest

from tegrascope.collectors.backends.cuda_runtime import CudaError, handle_of, load_cuda
from tegrascope.parsers.errors import BackendUnavailable, DeviceLostError
from tests.fakes.fake_cuda import cudaError_t, install_cuda, warn_of_the_old_name
from tests.fakes.fake_device import FakeDevice


@pytest.fixture
def device():
    return FakeDevice()


@pytest.mark.parametrize(
    ("old", "name"), [(False, "cuda.bindings.runtime"), (True, "cuda.cudart")], ids=["new", "old"]
)
def test_both_names_serve(monkeypatch, device, old, name):
    """Whichever is there is taken, and a stream's handle is its address."""
    install_cuda(monkeypatch, device, old=old)
    cuda = load_cuda()
    assert cuda.name == name
    cuda.initialise()
    stream = cuda.check(cuda.api.cudaStreamCreateWithFlags(cuda.api.cudaStreamNonBlocking))
    assert handle_of(stream) == stream.address
    assert cuda.device() == ("Fake Orin", "8.7")
    assert cuda.versions()["cuda-runtime"] == "12.6"


def test_the_old_names_warning_is_kept_quiet(monkeypatch, device, tmp_path):
    install_cuda(monkeypatch, device, old=True)
    monkeypatch.delitem(sys.modules, "cuda.cudart")
    package = tmp_path / "cuda"
    package.mkdir()
    (package / "cudart.py").write_text(
        "from tests.fakes.fake_cuda import *\nfrom tests.fakes.fake_cuda import"
        " warn_of_the_old_name\nwarn_of_the_old_name()\n"
    )
    parent = types.ModuleType("cuda")
    parent.__path__ = [str(package)]
    monkeypatch.setitem(sys.modules, "cuda", parent)
    with pytest.raises(FutureWarning):
        warn_of_the_old_name()
    assert load_cuda().name == "cuda.cudart"


def test_without_cuda_python_it_says_what_to_install(monkeypatch):
    for name in ("cuda", "cuda.bindings", "cuda.bindings.runtime", "cuda.cudart"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(BackendUnavailable, match=r"cuda-python is not installed: .*pip install"):
        load_cuda()


def test_a_broken_cuda_python_is_told_apart(monkeypatch, tmp_path):
    """A library that it lacks is named."""
    for name in ("cuda", "cuda.bindings", "cuda.bindings.runtime", "cuda.cudart"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    (tmp_path / "cuda").mkdir()
    (tmp_path / "cuda/__init__.py").write_text("raise ImportError('libcudart.so.12: cannot open')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(BackendUnavailable, match=r"cannot be imported \(libcudart.so.12: cannot"):
        load_cuda()


@pytest.mark.parametrize("error", ["cudaErrorInsufficientDriver", "cudaErrorNoDevice"])
def test_no_driver_is_no_failure_of_ours(monkeypatch, device, error):
    install_cuda(monkeypatch, device)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    device.failing["cudaSetDevice"] = error
    with pytest.raises(BackendUnavailable, match=rf"no device it can use \({error}: .*nvidia-smi"):
        load_cuda().initialise()


@pytest.mark.parametrize("visible", ["", "-1"])
def test_a_variable_that_hides_every_gpu_is_named(monkeypatch, device, visible):
    install_cuda(monkeypatch, device)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    device.failing["cudaSetDevice"] = "cudaErrorNoDevice"
    with pytest.raises(BackendUnavailable, match=r"CUDA_VISIBLE_DEVICES is .*: unset CUDA_VISIBLE"):
        load_cuda().initialise()
    device.failing["cudaSetDevice"] = "cudaErrorInsufficientDriver"
    with pytest.raises(BackendUnavailable, match="no device it can use"):
        load_cuda().initialise()


def test_another_failure_at_the_start_is_told_as_it_is(monkeypatch, device):
    install_cuda(monkeypatch, device)
    device.failing["cudaFree"] = "cudaErrorMemoryAllocation"
    with pytest.raises(CudaError, match="cudaErrorMemoryAllocation") as caught:
        load_cuda().initialise()
    assert caught.value.name == "cudaErrorMemoryAllocation"


def test_the_tuple_becomes_what_it_holds(monkeypatch, device):
    """Nothing, one value, or several; and an exception with name and text for any other code."""
    install_cuda(monkeypatch, device)
    check = load_cuda().check
    good = cudaError_t.cudaSuccess
    assert (check((good,)), check((good, 7)), check((good, 7, 8))) == (None, 7, (7, 8))
    with pytest.raises(CudaError, match="cudaErrorInvalidValue: what cudaErrorInvalidValue means"):
        check((cudaError_t.cudaErrorInvalidValue, None))
    with pytest.raises(DeviceLostError):
        check((cudaError_t.cudaErrorLaunchFailure,))


def test_what_fails_while_captured_ends_the_capture(monkeypatch, device):
    """Otherwise the stream would take no work any more."""
    install_cuda(monkeypatch, device)
    cuda = load_cuda()

    def work() -> None:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        cuda.capture(cuda.check(cuda.api.cudaStreamCreateWithFlags(1)), work)
    assert device.captured is None
