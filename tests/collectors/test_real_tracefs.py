"""The reader's instance on a real kernel's tracer; only the DLA's events are played by others."""

import os
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tegrascope.collectors.dla.reader import TraceInstance, find_tracefs, follow
from tegrascope.parsers.dla import OWN_PREFIX, parse_trace_line
from tegrascope.parsers.errors import ParseError, UserError
from tests.boots import clock_offset

# Programs that start are traced in place of the DLA's tasks.
STARTS: dict[str, Any] = {"system": "sched", "events": ("sched_process_exec",)}


@pytest.fixture
def root(tmp_path: Path) -> "Iterator[Path]":
    """Mount tracefs where a directory stands for ``/``."""
    mount = tmp_path / "sys/kernel/tracing"
    mount.mkdir(parents=True)
    if os.geteuid() != 0:
        pytest.skip("a trace of the kernel takes root")
    told = subprocess.run(["mount", "-t", "tracefs", "tracefs", str(mount)], check=False)
    if told.returncode != 0:
        pytest.skip("tracefs can't be mounted here")
    yield tmp_path
    subprocess.run(["umount", str(mount)], check=True)


def of_all(tracefs: Path) -> "list[str]":
    """Return what whoever else traces would notice."""
    names = ("trace_clock", "buffer_size_kb", "tracing_on", "set_event", "current_tracer")
    return [(tracefs / name).read_text() for name in names]


def test_kernel_makes_fills_and_removes_the_instance(root):
    """Made, set up, read and gone; what belongs to all is as it was, and a second is refused."""
    tracefs = find_tracefs(root, "sched")
    before = of_all(tracefs)
    path = tracefs / "instances/tegrascope"
    with TraceInstance(tracefs, **STARTS) as instance:
        assert "[mono]" in (path / "trace_clock").read_text()
        assert 128 <= int((path / "buffer_size_kb").read_text()) < 160  # in whole pages
        with pytest.raises(UserError, match="another program reads"):
            TraceInstance(tracefs, **STARTS)
        assert not os.get_blocking(instance.pipe)
        begin_ns = time.monotonic_ns()
        subprocess.run(["true"], check=True)
        assert of_all(tracefs) == before
        printed = follow_until(instance.pipe, "sched_process_exec")
        (line,) = [line for line in printed if "filename=" in line and "true" in line][:1]
        with pytest.raises(ParseError) as told:
            parse_trace_line(line)
        assert told.value.reason == "event"
        # Its column is the clock that our samples have; to the microsecond. The tracer does not
        # know the time namespace of a reader.
        traced_seconds = float(line.split(": sched_process_exec:")[0].rpartition(" ")[2])
        seconds = traced_seconds + clock_offset("monotonic")
        assert begin_ns / 1e9 - 1e-5 <= seconds <= time.monotonic_ns() / 1e9
    assert not path.exists()


def follow_until(pipe: int, word: str) -> "list[str]":
    """Return what the reader prints, up to the sign of life after a word was in it."""
    reader, out = os.pipe()
    thread = threading.Thread(target=follow, args=(pipe, out), kwargs={"every_seconds": 0.05})
    thread.start()
    lines = []
    with os.fdopen(reader) as printed:
        for line in printed:
            lines.append(line.rstrip("\n"))
            if line.startswith(OWN_PREFIX) and any(word in one for one in lines):
                break
    thread.join(60)  # it ends when nobody reads
    assert not thread.is_alive()
    os.close(out)
    return lines


def test_kernel_lets_what_a_crash_left_be_taken_over(root):
    """An instance that nobody removed is begun anew, with nothing of before in it."""
    tracefs = find_tracefs(root, "sched")
    path = tracefs / "instances/tegrascope"
    path.mkdir()
    (path / "events/sched/sched_process_exec/enable").write_text("1")
    subprocess.run(["true"], check=True)
    with TraceInstance(tracefs, **STARTS) as instance, pytest.raises(BlockingIOError):
        os.read(instance.pipe, 1)
    assert not path.exists()
