"""What TensorRT can do is found out in a child, which may die of the question."""

import json
import sys

import pytest

from tegrascope.collectors.backends import tensorrt_probe
from tegrascope.collectors.backends.tensorrt_probe import capabilities, look, main, probe
from tegrascope.parsers.errors import BackendUnavailable, UserError
from tests.fakes.shims import write_shims


@pytest.fixture
def shims(monkeypatch, tmp_path):
    def write(**changes: object) -> None:
        monkeypatch.setenv("PYTHONPATH", write_shims(tmp_path, **changes))

    return write


def test_a_child_tells_what_is_there(shims):
    shims(dla_cores=2)
    found = probe()
    assert found.problem is None
    assert found.versions["tensorrt"] == "8.6.1"
    assert found.versions["cuda-driver"] == "12.6"
    assert (found.device, found.compute_capability) == ("Fake Orin", "8.7")
    assert found.dla_cores == 2
    found.require()


def test_a_library_that_kills_the_child_is_a_reason(shims):
    shims(dies="os.kill(os.getpid(), 11)")
    found = probe()
    assert "tensorrt ended the process that asked what it can do, by signal 11" in found.problem
    with pytest.raises(BackendUnavailable, match="signal 11"):
        found.require()


def test_last_words_are_kept(shims):
    shims(dies="os.write(2, b'undefined symbol: x\\n') and os._exit(4)")
    assert probe().problem.endswith("by status 4; its last words: undefined symbol: x")


def test_a_library_that_hangs_is_a_reason(shims):
    """Nobody waits for ever."""
    shims(dies="time.sleep(600)")
    assert (
        probe(seconds=1.5).problem == "tensorrt gave no answer in 1.5 s when asked what it can do"
    )


def test_a_missing_driver_is_found_before_it_kills(shims):
    """CUDA is asked first, since it answers with a code."""
    shims(driver=False, dies="os.abort()")
    found = probe()
    assert found.problem.startswith("CUDA finds no device it can use (cudaErrorInsufficientDriver")
    assert "nvidia-smi" in found.remedy


def test_a_runtime_that_raises_is_a_reason(shims):
    """Some versions raise where others crash."""
    shims(dies="raise TypeError('pybind11::init(): factory function returned nullptr')")
    assert "TypeError: pybind11::init()" in probe().problem


@pytest.mark.parametrize(
    ("source", "says"),
    [
        (None, "tensorrt is not installed"),
        ("import a_part_of_it", r"tensorrt cannot be imported \(it needs a_part_of_it\)"),
        ("raise ImportError('libnvinfer.so.10: cannot open')", r"\(libnvinfer.so.10: cannot open"),
        ("raise OSError('libnvinfer.so.10: no')", r"cannot be imported \(libnvinfer.so.10: no\)"),
    ],
)
def test_what_is_not_installed_is_named(monkeypatch, tmp_path, source, says):
    monkeypatch.delitem(sys.modules, "tensorrt", raising=False)
    if source is None:
        monkeypatch.setitem(sys.modules, "tensorrt", None)
    else:
        (tmp_path / "tensorrt.py").write_text(source)
        monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(BackendUnavailable, match=says):
        look().require()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"failing": {"cudaSetDevice": "cudaErrorMemoryAllocation"}}, "left for tensorrt ("),
        ({"dies": "raise RuntimeError('out of memory')"}, "left for tensorrt: 7629 MiB are free"),
    ],
    ids=["context", "runtime"],
)
def test_a_full_device_fails_the_run_and_is_not_taken_for_a_missing_driver(shims, changes, says):
    shims(**changes)
    found = probe()
    with pytest.raises(UserError, match="end other programs") as raised:
        found.require()
    assert not isinstance(raised.value, BackendUnavailable)
    assert f"the GPU has too little memory {says}" in found.problem


def test_a_success_is_remembered_and_a_failure_is_not():
    """A driver that is installed later is found without a restart."""
    answers = [
        tensorrt_probe.Capabilities(problem="no driver", remedy="install it"),
        tensorrt_probe.Capabilities(dla_cores=1),
    ]

    def ask(_: str) -> tensorrt_probe.Capabilities:
        return answers.pop(0)

    with pytest.raises(BackendUnavailable, match="no driver: install it"):
        capabilities("some_trt", ask)
    first, second = capabilities("some_trt", ask), capabilities("some_trt", ask)
    assert first.dla_cores == second.dla_cores == 1


def test_as_a_program_it_prints_one_object(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "tensorrt", None)
    assert main([]) == 3
    assert json.loads(capsys.readouterr().out)["problem"] == "tensorrt is not installed"
