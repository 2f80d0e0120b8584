"""Ranges for a profiler that watches; nothing at all for one that does not."""

import sys
import types
from contextlib import contextmanager

import pytest

from tegrascope.collectors.backends.cuda_runtime import Ranges, is_watched

WATCHED = {"NSYS_PROFILING_SESSION_ID": "7"}


@pytest.fixture
def told(monkeypatch):
    told: list[str] = []

    @contextmanager
    def annotate(name, domain):
        told.append(f"{domain}: {name}")
        yield
        told.append("end")

    nvtx = types.ModuleType("nvtx")
    nvtx.annotate = annotate
    nvtx.push_range = told.append
    nvtx.pop_range = lambda: told.append("end")
    monkeypatch.setitem(sys.modules, "nvtx", nvtx)
    return told


def test_unwatched_it_costs_nothing(told):
    """The call itself is handed back, and the package is not even imported."""

    def call() -> None: ...

    ranges = Ranges({})
    assert ranges.each("inference", call) is call
    with ranges.range("steady"):
        pass
    assert told == []


def test_without_the_package_it_does_nothing(monkeypatch):
    """Nsight Systems shows CUDA and TensorRT all the same."""
    monkeypatch.setitem(sys.modules, "nvtx", None)

    def call() -> None: ...

    assert Ranges(WATCHED).each("inference", call) is call


def test_watched_each_inference_has_its_range(told):
    """Within that of its phase, and ended even by a failure."""
    ranges = Ranges(WATCHED)

    def fail() -> None:
        raise RuntimeError

    with ranges.range("steady gpu m.onnx"), pytest.raises(RuntimeError):
        ranges.each("inference", fail)()
    assert told == ["tegrascope: steady gpu m.onnx", "inference", "end", "end"]


@pytest.mark.parametrize(
    ("name", "watched"),
    [("NSYS_PROFILING_SESSION_ID", True), ("NVTX_INJECTION64_PATH", True), ("HOME", False)],
)
def test_who_watches(name, watched):
    assert is_watched({name: "1"}) is watched
    assert not is_watched({name: ""})
