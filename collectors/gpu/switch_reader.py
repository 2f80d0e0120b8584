"""The reader of the GPU's context switches: a small program for root that prints time by process.

It adds up the entries of the driver's ring, and prints a line of JSON per period. Only the standard
library is used. No board has confirmed it.
"""

import argparse
import errno
import fcntl
import json
import mmap
import os
import select
import sys
import time
from pathlib import Path

from ...parsers.errors import UserError
from ...parsers.nvgpu import RING_HEADER, check_header, parse_entries
from ..children.reader_program import GATHER_SECONDS, print_lines, read_available, run_reader
from .switches import ContextTimes

# L4T R36 still has this name beside /dev/nvgpu/igpu0/ctxsw.
DEVICE = "dev/nvhost-ctxsw-gpu"
# Requests of the header, without arguments: _IO('C', 1) and _IO('C', 6).
_ENABLE = 0x4301
_TAKE_NOW = 0x4306
EVERY_SECONDS = 1.009

_OFF = "remove telemetry.gpu_trace"
_REMEDIES = {
    errno.ENOENT: f"{_OFF}: only the driver nvgpu, of Jetson Orin and earlier, can have one",
    errno.ENODEV: f"{_OFF}: this driver is built without it",
    errno.EBUSY: "end the other reader: the driver has one ring for one client",
    errno.EACCES: "sudo, or systemctl enable --now tegrascope-gpu-trace.socket",
}


class ContextRing:
    """The driver's ring of context switches, filled until this program ends.

    Meanwhile the driver asks the GPU 60 times per second for its switches, which keeps it powered.
    """

    def __init__(self, root: Path) -> None:
        """Open the ring and let the driver fill it, or raise ``UserError``."""
        path = root / DEVICE
        try:
            self._device = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
            self._header = mmap.mmap(self._device, mmap.PAGESIZE, prot=mmap.PROT_READ)
            self.dropped()
            fcntl.ioctl(self._device, _ENABLE)
        except OSError as error:
            what = f"the ring of context switches, {path}: {error.strerror}"
            raise UserError(what, _REMEDIES.get(error.errno or 0, _OFF)) from error

    def dropped(self) -> int:
        """Return how many entries have found no place in the ring until now."""
        return check_header(self._header[: RING_HEADER.size])

    def read(self, *, up_to_now: bool) -> bytes:
        """Return the new entries; if ``up_to_now``, the driver asks the GPU for them before."""
        try:
            if up_to_now:
                fcntl.ioctl(self._device, _TAKE_NOW)
            return read_available(self._device)
        except OSError as error:
            what = f"the ring of context switches: {error.strerror}"
            raise UserError(what, "nothing: it is opened again; look at dmesg") from error


def follow(ring: ContextRing, out: int) -> None:
    """Print a line per period, until the client is gone."""
    gone = select.poll()
    gone.register(out, 0)
    dropped, due_ns = ring.dropped(), time.monotonic_ns()
    times = ContextTimes(due_ns)
    while not gone.poll(1000 * GATHER_SECONDS):
        now_ns = time.monotonic_ns()
        is_due = now_ns >= due_ns
        for entry in parse_entries(ring.read(up_to_now=is_due)):
            times.take(entry, now_ns)
        if not is_due:
            continue
        due_ns += round(1e9 * EVERY_SECONDS)
        # Numbers of entries show a loss too, but only when the next entry comes.
        if ring.dropped() != dropped:
            dropped = ring.dropped()
            times.doubt()
        span_ns, process_ns = times.flush(now_ns)
        use = {"span_ns": span_ns, "process_ns": process_ns, "troubles": times.troubles}
        print_lines(out, [json.dumps(use)])
        times.troubles.clear()


def main(argv: list[str] | None = None) -> int:
    """Print until asked to stop, or until the client is gone."""
    parser = argparse.ArgumentParser(
        prog="tegrascope.collectors.gpu.switch_reader",
        description="Print how long each process was on the GPU, by the driver's ring of context"
        " switches, as root. No board has confirmed it; see docs/sources.md.",
    )
    parser.add_argument("--root", type=Path, default=Path("/"), help="what stands for /")
    root = parser.parse_args(argv).root
    return run_reader(
        "gpu trace",
        lambda out: follow(ContextRing(root), out),
        lambda error: json.dumps({"unavailable": str(error)}),
    )


if __name__ == "__main__":
    sys.exit(main())
