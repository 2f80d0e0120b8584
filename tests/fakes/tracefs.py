"""A tree of plain files in place of a kernel that traces a DLA; the pipe is a FIFO."""

import os
import shutil
from pathlib import Path

EVENTS = ("job_submit", "job_prefence", "job_postfence", "job_timestamps")


def make_kernel(root: Path, cores: int = 2) -> Path:
    """Make what a kernel shows before anybody traces, under a directory that stands for ``/``.

    Returns:
        Where the tracer's files are.
    """
    tracefs = root / "sys/kernel/tracing"
    (tracefs / "instances").mkdir(parents=True)
    for event in EVENTS:
        (tracefs / "events/nvdla_ftrace" / event).mkdir(parents=True)
    for core, address in enumerate(("15880000", "158c0000")[:cores]):
        (root / f"sys/bus/platform/devices/{address}.nvdla{core}").mkdir(parents=True)
        firmware = root / f"sys/kernel/debug/nvdla{core}/firmware"
        firmware.mkdir(parents=True)
        (firmware / "utilization_rate").write_text(f"{12 + core}.3456\n", encoding="ascii")
    return tracefs


def make_instance(path: Path) -> None:
    """Do what the kernel does on ``mkdir`` of an instance: the directory is full at once."""
    path.mkdir()
    for event in EVENTS:
        (path / "events/nvdla_ftrace" / event).mkdir(parents=True)
        (path / "events/nvdla_ftrace" / event / "enable").write_text("0", encoding="ascii")
    for name, text in (
        ("tracing_on", "1"),
        ("buffer_size_kb", "7"),
        ("trace_clock", "[local] global counter uptime perf mono"),
    ):
        (path / name).write_text(text, encoding="ascii")
    os.mkfifo(path / "trace_pipe")


def remove_instance(path: Path) -> None:
    """Do what the kernel does on ``rmdir`` of one."""
    shutil.rmtree(path)


def said(path: Path) -> dict[str, str]:
    """Return what was written into the files of an instance."""
    return {
        str(file.relative_to(path)): file.read_text(encoding="ascii")
        for file in sorted(path.rglob("*"))
        if file.is_file()
    }
