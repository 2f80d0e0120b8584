"""A tree of plain files in place of a kernel that traces a DLA; the pipe is a FIFO."""

import contextlib
import os
import shutil
import threading
import time
from collections.abc import Iterator
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


@contextlib.contextmanager
def tracing(
    root: Path, every_seconds: float, busy_seconds: float, hertz: int, loses: bool = False
) -> Iterator[Path]:
    """Trace a task on core 0 again and again, as a kernel does, for as long as it is held.

    Args:
        root: What is to stand for ``/``; it is made.
        every_seconds: From one task to the next.
        busy_seconds: How long each is; at most 0.065.
        hertz: Of the counter that its times are told in.
        loses: Whether the kernel tells of events that it lost, once.
    """
    tracefs = make_kernel(root)
    make_instance(tracefs / "instances/tegrascope")
    pipe = os.open(tracefs / "instances/tegrascope/trace_pipe", os.O_RDWR | os.O_NONBLOCK)
    ended = threading.Event()

    def trace() -> None:
        begin, number = time.monotonic(), 0
        while not ended.wait(max(0.0, begin + number * every_seconds - time.monotonic())):
            end = begin + number * every_seconds
            ticks = [round((end - back) * hertz) for back in (0.07, busy_seconds, 0)]
            lines = (
                f"app-4999999 [000] ..... {end - 0.065:.6f}: job_submit: 15880000.nvdla0 class=f3 "
                f"id={number} fences=0 ts={ticks[0]}\n"
                f"kworker-2 [001] ..... {end:.6f}: job_timestamps: job_id={number} "
                f"begin={ticks[1]} end={ticks[2]}\n"
            )
            if number == 0 and loses:
                lines += "CPU:0 [LOST 3 EVENTS]\n"
            with contextlib.suppress(BlockingIOError):  # nobody reads, and the pipe is full
                os.write(pipe, lines.encode())
            number += 1

    thread = threading.Thread(target=trace, daemon=True)
    thread.start()
    try:
        yield root
    finally:
        ended.set()
        thread.join(60)
        os.close(pipe)
