"""The reader for root as a program: a FIFO stands for the driver's ring."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tegrascope.collectors.children.reader_program import UNAVAILABLE
from tegrascope.collectors.gpu.contexts import GpuTraceCompanion
from tegrascope.collectors.gpu.switch_reader import DEVICE
from tegrascope.collectors.lines.program import ProcessSource
from tegrascope.collectors.processes.names import ProcessNames
from tegrascope.parsers import signals
from tegrascope.parsers.nvgpu import CONTEXT_START, SwitchEntry
from tegrascope.parsers.nvgpu.use import ContextUse
from tegrascope.parsers.signals import by_name
from tests.fakes.processes import until
from tests.fakes.switch_ring import SAVE_END, header, packed

SOURCE = Path(__file__).parents[1] / "fakes" / "switch_ring.c"
READER = (sys.executable, "-m", "tegrascope.collectors.gpu.switch_reader", "--root")
PID = 4711


@pytest.fixture(scope="module")
def shim(tmp_path_factory) -> Path:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler makes the stand-in of the ring: apt install gcc")
    path: Path = tmp_path_factory.mktemp("ring") / "ring.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", path, SOURCE, "-ldl"], check=True)
    return path


class Ring:
    """The driver's side of a ring, and the reader of it."""

    def __init__(self, root: Path, shim: Path) -> None:
        self.root, self._shim = root, shim
        path = root / DEVICE
        path.parent.mkdir(parents=True)
        os.mkfifo(path)
        self.driver = os.open(path, os.O_RDWR)
        self.header, self.requests = root / "header", root / "requests"
        self.header.write_bytes(header())
        self._number = 0

    @property
    def command(self) -> list[str]:
        """Program and arguments of the reader."""
        settings = {
            "LD_PRELOAD": self._shim,
            "RING_HEADER": self.header,
            "RING_REQUESTS": self.requests,
        }
        words = [f"{name}={path}" for name, path in settings.items()]
        return ["env", *words, *READER, str(self.root)]

    def start(self) -> "subprocess.Popen[str]":
        """Start the reader."""
        return subprocess.Popen(
            self.command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def note(self, tag: int, process: int = PID) -> None:
        """Note a switch now."""
        entry = SwitchEntry(tag, 0, self._number, 3, process, time.monotonic_ns())
        self._number += 1
        os.write(self.driver, packed(entry))

    def drop(self) -> None:
        """Have no place for an entry."""
        self._number += 1
        with self.header.open("r+b") as file:
            file.write(header(dropped=1))


@pytest.fixture
def ring(tmp_path, shim) -> Iterator[Ring]:
    made = Ring(tmp_path, shim)
    yield made
    os.close(made.driver)


@pytest.fixture
def reader(ring) -> "Iterator[subprocess.Popen[str]]":
    child = ring.start()
    yield child
    child.kill()
    child.communicate()


def said(reader: "subprocess.Popen[str]") -> ContextUse:
    """Return what the next line says."""
    assert reader.stdout is not None
    return ContextUse.model_validate_json(reader.stdout.readline())


def test_time_by_process_comes_from_the_ring(ring, reader):
    """The ring is enabled, and the driver is asked for the newest switches before each line."""
    assert said(reader).process_ns == {}
    ring.note(CONTEXT_START)
    began_ns = time.monotonic_ns()
    said(reader)
    use = said(reader)
    assert use.process_ns == pytest.approx({PID: use.span_ns}, rel=0.2)
    ring.note(SAVE_END)
    elapsed_ns = time.monotonic_ns() - began_ns
    assert said(reader).process_ns.get(PID, 0) < elapsed_ns
    assert said(reader).process_ns == {}
    assert ring.requests.read_text() == "1" + 5 * "6"


def test_drop_is_told_before_the_next_entry_shows_it(ring, reader):
    said(reader)
    ring.note(CONTEXT_START)
    said(reader)
    ring.drop()
    use = said(reader)
    assert use.process_ns == {0: use.span_ns}
    ring.note(SAVE_END)
    assert said(reader).troubles == {"lost": 1}


def test_time_has_the_name_of_its_process(ring):
    """From the ring to a column, through the real program and the names of this machine."""
    source = ProcessSource(ring.command, interval_seconds=1.0, name="ctxsw", silence_seconds=60.0)
    trace = GpuTraceCompanion(source, name_of=ProcessNames(own=0).name)
    trace.start()
    assert until(ring.requests.exists)
    ring.note(CONTEXT_START, process=os.getpid())
    assert until(lambda: len(trace.columns()) > 1)
    name = ProcessNames(own=0).name(os.getpid())
    names = signals.PROCESS_GPU_CONTEXT.by_label(by_name(trace.columns()))
    trace.stop()
    assert names.keys() == {name, "other"}


def test_reader_ends_with_its_client(reader):
    said(reader)
    assert reader.stdout is not None
    reader.stdout.close()
    assert reader.wait(60) == 0


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (header(version=1), "version 1, entries of 24 bytes: remove telemetry.gpu_trace"),
        (header(magic=0x1234), "magic 0x1234"),
        (header(entry_bytes=32), "entries of 32 bytes"),
    ],
)
def test_unknown_form_of_the_ring_is_one_line(ring, found, why):
    ring.header.write_bytes(found)
    answer, errors = ring.start().communicate(timeout=60)
    (line,) = answer.splitlines()
    unavailable = ContextUse.model_validate_json(line).unavailable
    assert errors == f"gpu trace: {unavailable}\n"
    assert why in (unavailable or "")
    assert not ring.requests.exists()


def test_driver_that_fails_later_is_one_line(ring, reader):
    """A request for the newest switches is refused, as when the GPU is being shut down."""
    said(reader)
    ring.requests.unlink()
    ring.requests.mkdir()
    unavailable = said(reader).unavailable
    assert reader.wait(60) == UNAVAILABLE
    assert reader.stderr is not None
    assert reader.stderr.read() == f"gpu trace: {unavailable}\n"
    assert (unavailable or "").startswith("the ring of context switches: ")


def test_board_without_a_ring_says_so_in_one_line(tmp_path):
    done = subprocess.run(
        [*READER, str(tmp_path)], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == UNAVAILABLE
    (line,) = done.stdout.splitlines()
    unavailable = ContextUse.model_validate_json(line).unavailable
    assert done.stderr == f"gpu trace: {unavailable}\n"
    assert f"{tmp_path}/{DEVICE}: No such file" in (unavailable or "")
    assert "remove telemetry.gpu_trace: only the driver nvgpu" in (unavailable or "")


def test_device_of_another_kind_says_so_in_one_line(tmp_path):
    """A node that is there, and whose driver cannot do this."""
    (tmp_path / "dev").mkdir()
    (tmp_path / DEVICE).write_bytes(header())
    done = subprocess.run(
        [*READER, str(tmp_path)], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == UNAVAILABLE
    assert "Inappropriate ioctl" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_program_for_root_imports_little():
    code = (
        "import sys; before = set(sys.modules); import tegrascope.collectors.gpu.switch_reader; "
        "print(*sorted({name.partition('.')[0] for name in set(sys.modules) - before} "
        "- set(sys.stdlib_module_names)), sum(name.startswith('tegrascope.') "
        "for name in sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    names = done.stdout.split()
    assert names[:-1] == ["tegrascope"]
    assert int(names[-1]) <= 15
