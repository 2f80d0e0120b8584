"""How much memory ``tegrascope parse`` takes to turn a large log into Parquet."""

import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
import pyarrow.parquet

MEBI = 2**20

# The kernel counts the peak of a process that has been one and the same since it was forked, so a
# large parent would be the peak of a small child: a small one stands between.
_BETWEEN = """
import resource, subprocess, sys
status = subprocess.call(sys.argv[1:])
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.exit(status)
"""
_LOOK_SECONDS = 0.05


@dataclass(frozen=True)
class Parsed:
    """What came of one log.

    Attributes:
        log_bytes: Size of the log.
        lines: Lines in it.
        rows: Rows of the table.
        seconds: By the clock on the wall.
        peak_bytes: Most memory at once, of the command and its children together.
        parquet_bytes: Size of what was written.
    """

    log_bytes: int
    lines: int
    rows: int
    seconds: float
    peak_bytes: int
    parquet_bytes: int


def write_log(path: Path, texts: Sequence[str], size: int) -> int:
    """Write lines over and over until the log is so many bytes long; give back how many."""
    block = "".join(f"{text}\n" for text in texts).encode()
    times = max(1, size // len(block))
    with path.open("wb") as log:
        for _ in range(times):
            log.write(block)
    return times * len(texts)


def parse(log: Path, lines: int) -> Parsed:
    """Run the command as a user would, and watch its memory."""
    table = log.with_suffix(".parquet")
    command = ["-m", "tegrascope", "parse", "-f", "parquet", "-o", str(table), str(log)]
    start = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, "-SE", "-c", _BETWEEN, sys.executable, *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as between:
        together = 0
        while between.poll() is None:
            together = max(together, _resident(between.pid))
            time.sleep(_LOOK_SECONDS)
        seconds = time.perf_counter() - start
        told = between.stdout.read() if between.stdout else ""
    if between.returncode:
        raise subprocess.CalledProcessError(between.returncode, command)
    return Parsed(
        log_bytes=log.stat().st_size,
        lines=lines,
        rows=pyarrow.parquet.read_metadata(table).num_rows,
        seconds=seconds,
        peak_bytes=max(together, int(told) * 1024),
        parquet_bytes=table.stat().st_size,
    )


def _resident(pid: int) -> int:
    """Return the bytes that the children of a process have in memory, together."""
    total = 0
    try:
        for child in psutil.Process(pid).children(recursive=True):
            total += child.memory_info().rss
    except psutil.NoSuchProcess:
        pass
    return total
