"""The DLA trace reader over a tree of files: what it asks of the kernel, prints and leaves behind.

The tree and the texts are written from the documented forms; no board was there.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tegrascope.collectors.children.reader_program import UNAVAILABLE
from tegrascope.collectors.dla import reader as trace_instance
from tegrascope.collectors.dla.reader import (
    FirmwareReader,
    TraceInstance,
    find_cores,
    find_tracefs,
    follow,
)
from tegrascope.parsers.dla import Alive, Firmware, TraceHello, parse_trace_line
from tegrascope.parsers.errors import UserError
from tests.fakes.tracefs import make_instance, make_kernel, remove_instance, said

SUBMIT = "x-1 [000] ..... {at:.6f}: job_submit: 15880000.nvdla0 class=f3 id=1 fences=0 ts=31250000"
END = "x-1 [000] ..... {at:.6f}: job_timestamps: job_id=1 begin=31260000 end=31270000"


@pytest.fixture
def tracefs(tmp_path: Path) -> Path:
    return make_kernel(tmp_path)


def instance_in(tracefs: Path) -> TraceInstance:
    return TraceInstance(tracefs, make=make_instance, remove=remove_instance)


def test_instance_is_private_and_leaves_nothing(tracefs):
    """Only its own directory is written: the clock, a small buffer, two events; then it is gone."""
    before = said(tracefs)
    with instance_in(tracefs) as instance:
        path = tracefs / "instances/tegrascope"
        assert said(path) == {
            "buffer_size_kb": "128",
            "events/nvdla_ftrace/job_postfence/enable": "0",
            "events/nvdla_ftrace/job_prefence/enable": "0",
            "events/nvdla_ftrace/job_submit/enable": "1",
            "events/nvdla_ftrace/job_timestamps/enable": "1",
            "trace_clock": "mono",
            "tracing_on": "1",
        }
        assert not os.get_blocking(instance.pipe)
    assert not list((tracefs / "instances").iterdir())
    assert said(tracefs) == before
    instance.end()


def test_what_a_crash_left_behind_is_taken_over(tracefs):
    make_instance(tracefs / "instances/tegrascope")
    with instance_in(tracefs):
        assert said(tracefs / "instances/tegrascope")["trace_clock"] == "mono"
    assert not list((tracefs / "instances").iterdir())


def test_second_reader_is_refused(tracefs):
    """Two readers of one trace would each get half of it, and both would be wrong."""
    with instance_in(tracefs):
        with pytest.raises(UserError, match=r"another program reads .*: .*systemctl stop"):
            instance_in(tracefs)
        assert (tracefs / "instances/tegrascope").is_dir()


@pytest.mark.parametrize(
    ("spoil", "what", "remedy"),
    [
        (Path.exists, "tracefs is not mounted", "sudo mount -t tracefs"),
        (
            lambda root: (root / "sys/kernel/tracing/instances").mkdir(parents=True),
            "no trace events of the DLA",
            "JetPack 6",
        ),
    ],
)
def test_what_is_missing_is_told_with_what_mends_it(tmp_path, monkeypatch, spoil, what, remedy):
    """A kernel without tracefs, and one that is older than R36."""
    monkeypatch.setattr(trace_instance.os, "geteuid", lambda: 0)
    monkeypatch.setattr(trace_instance.os, "access", lambda *_: True)
    spoil(tmp_path)
    with pytest.raises(UserError) as told:
        find_tracefs(tmp_path)
    assert what in told.value.message
    assert remedy in told.value.remedy


def test_without_root_it_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(trace_instance.os, "geteuid", lambda: 1000)
    with pytest.raises(UserError, match="for root alone: sudo"):
        find_tracefs(tmp_path)


def test_refusal_to_write_is_told(tracefs):
    """A sandbox without the one directory that is needed is named, with the line that it lacks."""

    def refuse(path: Path) -> None:
        raise OSError(30, "Read-only file system", str(path))

    with pytest.raises(UserError, match="ReadWritePaths="):
        TraceInstance(tracefs, make=refuse)


def test_cores_are_those_of_the_kernel(tmp_path):
    """A board with one DLA, with two, and with none."""
    assert find_cores(tmp_path) == []
    make_kernel(tmp_path / "one", cores=1)
    make_kernel(tmp_path / "two")
    assert (find_cores(tmp_path / "one"), find_cores(tmp_path / "two")) == ([0], [0, 1])


class Clock:
    """A clock that goes on by a millisecond at each look."""

    def __init__(self) -> None:
        self.ns = 5_000_000_000

    def __call__(self) -> int:
        self.ns += 1_000_000
        return self.ns


def followed(text: str, **options: Any) -> list[str]:
    """Return what is printed of a trace that ends."""
    pipe, writer = os.pipe()
    os.set_blocking(pipe, False)
    reader, out = os.pipe()
    os.write(writer, text.encode())
    os.close(writer)
    try:
        with pytest.raises(UserError, match="the trace has ended"):
            follow(pipe, out, every_seconds=1.0, **options)
    finally:
        os.close(out)
        os.close(pipe)
    with os.fdopen(reader) as printed:
        return printed.read().splitlines()


def test_lines_of_the_kernel_are_printed_as_they_are():
    kernel = [SUBMIT.format(at=6), "CPU:3 [LOST 12 EVENTS]", "anything else", END.format(at=7)]
    printed = followed("".join(f"{line}\n" for line in kernel), now_ns=Clock())
    assert [line for line in printed if not line.startswith("#")] == kernel
    assert any(isinstance(parse_trace_line(line), Alive) for line in printed if line[0] == "#")


def test_firmware_is_asked_only_while_a_task_is_in_flight(tmp_path):
    make_kernel(tmp_path)
    firmware = FirmwareReader(tmp_path, (0, 1), every_ns=1_000_000_000)
    clock = Clock()
    assert firmware.read(clock) == []
    firmware.take([SUBMIT.format(at=clock.ns / 1e9), "noise"])
    (line,) = firmware.read(clock)
    told = parse_trace_line(f"# tegrascope-dla {line}")
    assert isinstance(told, Firmware)
    assert (told.core, told.busy_ratio) == (0, pytest.approx(0.123456))
    assert firmware.read(clock) == []  # not due again
    clock.ns += 1_500_000_000
    assert len(firmware.read(clock)) == 1
    clock.ns += 1_500_000_000
    assert firmware.read(clock) == []  # no task takes so long: its end was lost
    firmware.take([SUBMIT.format(at=clock.ns / 1e9)])
    firmware.take([END.format(at=clock.ns / 1e9)])
    assert firmware.read(clock) == []


def test_firmware_that_refuses_is_silent(tmp_path):
    """A firmware that does not answer costs its figure and nothing else."""
    make_kernel(tmp_path)
    (tmp_path / "sys/kernel/debug/nvdla0/firmware/utilization_rate").unlink()
    firmware = FirmwareReader(tmp_path, (0,), every_ns=1)
    clock = Clock()
    firmware.take([SUBMIT.format(at=clock.ns / 1e9)])
    assert firmware.read(clock) == []


@pytest.fixture
def started(tracefs: Path) -> "Iterator[subprocess.Popen[str]]":
    """Run the reader as a program; the instance was left behind by a crash, as a tree of files."""
    make_instance(tracefs / "instances/tegrascope")
    # The kernel's end of the pipe, open from before the reader's until after it.
    kernel = os.open(tracefs / "instances/tegrascope/trace_pipe", os.O_RDWR)
    os.write(kernel, f"{SUBMIT.format(at=6)}\n".encode())
    child = subprocess.Popen(
        [
            *(sys.executable, "-m", "tegrascope.collectors.dla.reader"),
            *("--root", str(tracefs.parents[2]), "--every", "0.05"),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    yield child
    child.kill()
    child.communicate()
    os.close(kernel)


def enabled(tracefs: Path) -> set[str]:
    told = said(tracefs / "instances/tegrascope")
    return {told[name] for name in told if name.endswith("enable")}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_program_prints_and_ends_clean(tracefs, started, number):
    """From hello to the end by a signal: status 0, not a word on standard error, no event left."""
    assert started.stdout is not None
    assert parse_trace_line(started.stdout.readline()) == TraceHello((0, 1))
    printed = {started.stdout.readline().partition("=")[0] for _ in range(4)}
    assert any("job_submit" in line for line in printed)
    assert enabled(tracefs) == {"0", "1"}
    started.send_signal(number)
    assert started.wait(60) == 0
    assert started.stderr is not None
    assert started.stderr.read() == ""
    assert enabled(tracefs) == {"0"}


def test_program_ends_when_nobody_reads(tracefs, started):
    """A daemon that has gone away leaves no reader behind, though the DLA is idle."""
    assert started.stdout is not None
    started.stdout.readline()
    started.stdout.close()
    assert started.wait(60) == 0
    assert enabled(tracefs) == {"0"}


def test_client_that_does_not_read_loses_its_connection(tmp_path):
    """The pipe to it is full: the instance must be free for another client."""
    (tmp_path / "trace").write_text(10_000 * f"{SUBMIT.format(at=6)}\n")
    reader, out = os.pipe()
    os.set_blocking(out, False)
    silent = pytest.raises(UserError, match="the client reads nothing for 0 s")
    with (tmp_path / "trace").open("rb") as trace, silent:
        follow(trace.fileno(), out, every_seconds=1.0, client_seconds=0.0)
    os.close(out)
    os.close(reader)


def test_program_without_a_trace_says_why_in_one_line(tmp_path):
    told = subprocess.run(
        [sys.executable, "-m", "tegrascope.collectors.dla.reader", "--root", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert told.returncode == UNAVAILABLE
    (said,) = told.stderr.splitlines()
    (line,) = told.stdout.splitlines()
    assert said == f"dla trace: {parse_trace_line(line).why}"


def test_program_for_root_imports_little():
    code = (
        "import sys; before = set(sys.modules); import tegrascope.collectors.dla.reader; "
        "print(*sorted({name.partition('.')[0] for name in set(sys.modules) - before} "
        "- set(sys.stdlib_module_names)), sum(name.startswith('tegrascope.') "
        "for name in sys.modules))"
    )
    told = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    names = told.stdout.split()
    assert names[:-1] == ["tegrascope"]
    assert int(names[-1]) <= 16
