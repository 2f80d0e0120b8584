"""Sources and back-ends describe themselves; adding one is one file and one line."""

import subprocess
import sys
from importlib.util import find_spec
from threading import Event

import pytest

from tegrascope.collectors.backends.base import Inferring, SelfTimed
from tegrascope.collectors.base import SYSTEM_CLOCK
from tegrascope.collectors.catalog import (
    BACKENDS,
    SOURCES,
    available_source,
    default_backend,
    find_backend,
    source_settings,
)
from tegrascope.collectors.lines.collector import Opening, SourceSettings
from tegrascope.collectors.worker.run_loop import Runner
from tegrascope.parsers.errors import BackendUnavailable
from tegrascope.parsers.inference.events import Inferences, Order

TOY_BACKEND = """
from tegrascope.collectors.backends.base import Inferring

class Toy(Inferring):
    devices = ("cpu",)

    def infer(self):
        pass
"""
TOY_SOURCE = """
from tegrascope.collectors.lines.collector import SourceSettings
from tegrascope.collectors.lines.program import StreamSource
from tegrascope.collectors.lines.collector import TegrastatsCollector

class ToySettings(SourceSettings):
    line: str = "RAM 1/2MB"

    def summary(self):
        return "a toy"

    def open(self, opening):
        return TegrastatsCollector(StreamSource(clock=opening.clock))
"""


@pytest.fixture
def toys(tmp_path, monkeypatch):
    (tmp_path / "toy_backend.py").write_text(TOY_BACKEND)
    (tmp_path / "toy_source.py").write_text(TOY_SOURCE)
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.parametrize("name", BACKENDS)
def test_back_end_describes_itself_without_its_library(name):
    kind = find_backend(name)
    assert issubclass(kind, Inferring) != issubclass(kind, SelfTimed)
    assert kind.is_self_timed == issubclass(kind, SelfTimed)
    assert kind.devices
    if kind.program or kind.library:
        assert kind.install
    if kind.packages:
        assert kind.install or kind.uses_tensorrt  # doctor examines TensorRT by itself


@pytest.mark.parametrize("name", SOURCES)
def test_source_describes_itself(name):
    kind = source_settings(name)
    assert issubclass(kind, SourceSettings)
    assert kind().summary()
    assert not (kind.describes_this_board and (kind.is_simulated or kind.is_recorded))


@pytest.mark.parametrize("device", ["cpu", "gpu", "dla0", "dla1", "external"])
def test_default_back_end_is_in_the_catalogue(device):
    assert default_backend(device) in BACKENDS


@pytest.mark.usefixtures("toys")
def test_a_back_end_is_one_file_and_one_line():
    backends = {**BACKENDS, "toy": "toy_backend:Toy"}
    events = []
    runner = Runner(lambda name: find_backend(name, backends)(), events.append, Event())
    order = Order(
        run_id="r",
        backend="toy",
        device="cpu",
        model=__file__,
        model_directory=".",
        warm_up_seconds=0.0,
        count=3,
    )
    runner.run(order)
    runner.close()
    assert sum(len(one.start_ns) for one in events if isinstance(one, Inferences)) == 3
    with pytest.raises(BackendUnavailable, match=f"use {', '.join(sorted(backends))}"):
        find_backend("toys", backends)


@pytest.mark.usefixtures("toys")
def test_a_source_is_one_file_and_one_line():
    kind = source_settings("toy", {**SOURCES, "toy": "toy_source:ToySettings"})
    assert kind(line="x").open(Opening(1.0, clock=SYSTEM_CLOCK)).source.name == "stream"


def test_source_of_the_machine_is_found(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert available_source(tmp_path) is None
    driver = tmp_path / "dev" / "nvidiactl"
    driver.parent.mkdir()
    driver.touch()
    assert available_source(tmp_path) == ("nvml" if find_spec("pynvml") else None)
    program = tmp_path / "tegrastats"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert available_source(tmp_path) == "tegrastats"


def test_names_cost_no_import():
    code = "import sys, tegrascope.collectors.catalog; print('pydantic' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
