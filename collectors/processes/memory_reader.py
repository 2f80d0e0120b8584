"""The memory reader: a small program for root that prints how much memory each process has.

One JSON object per look, with bytes by number of the process: what it holds of NvMap, which is the
memory of the GPU and other engines, and its proportional set size. Only the standard library is
used.
"""

import argparse
import contextlib
import json
import sys
import time
from collections.abc import Callable, Mapping
from heapq import nlargest
from pathlib import Path
from typing import Any

from ...parsers.errors import UserError
from ...parsers.nvmap import KERNEL_PID, parse_nvmap_clients
from ..board.readers import memory_bytes, read_text
from ..children.reader_program import print_lines, run_reader
from .names import ProcessNames
from .table import UNREADABLE

PERIOD_SECONDS = 10.0
_LIST_BYTES = 256 * 1024
# A line has room for the names of so many of each kind.
_LISTED_AT_MOST = 64
# For a proportional size the kernel walks all pages of a process.
_WALK_SECONDS, _SHARE = 0.5, 0.02


def look(
    root: Path, names: ProcessNames, now_ns: Callable[[], int] = time.monotonic_ns
) -> dict[str, Any]:
    """Return what the largest processes have; raise ``OSError`` without a table of processes."""
    begin_ns = now_ns()
    gpu = _largest(parse_nvmap_clients(_nvmap_list(root)))
    resident: dict[int, int] = {}
    for pid in names.table.pids():
        with contextlib.suppress(*UNREADABLE):
            resident[pid] = names.table.memory_bytes(pid)
    proportional: dict[int, int] = {}
    for pid in _largest(resident):
        if now_ns() - begin_ns > _WALK_SECONDS * 1e9:
            break
        # Kernels before 4.14 (R32) have no such file.
        rollup = read_text(root / f"proc/{pid}/smaps_rollup") or ""
        size = memory_bytes(rollup).get("Pss")
        if size is not None:
            proportional[pid] = size
    called: dict[int, str | None] = {}
    for pid in gpu.keys() | proportional.keys():
        called[pid] = names.name(pid, "kernel" if pid == KERNEL_PID else None)
    return {
        "event": "processes",
        "at_ns": begin_ns,
        "used_bytes": gpu,
        "proportional_bytes": proportional,
        "names": called,
    }


def _nvmap_list(root: Path) -> str:
    """Return the text of NvMap's list; Thor and other machines have none."""
    try:
        with (root / "sys/kernel/debug/nvmap/iovmm/clients").open("rb") as file:
            return file.read(_LIST_BYTES).decode("utf-8", "replace")
    except FileNotFoundError:
        return ""
    except PermissionError as error:
        remedy = "sudo, or systemctl enable --now tegrascope-memory.socket"
        raise UserError(f"{error.filename} is for root alone", remedy) from error


def _largest(sizes: Mapping[int, int]) -> dict[int, int]:
    return dict(nlargest(_LISTED_AT_MOST, sizes.items(), key=lambda item: item[1]))


def main(argv: list[str] | None = None) -> int:
    """Print a look every ten seconds until nothing reads them."""
    parser = argparse.ArgumentParser(
        prog="tegrascope.collectors.processes.memory_reader",
        description="Print GPU memory and proportional set size by process, as root.",
    )
    parser.add_argument("--root", type=Path, default=Path("/"), help="what stands for /")
    parser.add_argument("--samples", type=int, help="so many, then end")
    asked = parser.parse_args(argv)

    def read(out: int) -> None:
        names, printed = ProcessNames(asked.root), 0
        while True:
            begin = time.monotonic()
            try:
                found = look(asked.root, names)
            except OSError as error:
                what = f"the table of processes: {error.filename}: {error.strerror}"
                raise UserError(what, "mount /proc for this unit") from error
            spent = time.monotonic() - begin
            print_lines(out, [json.dumps(found, separators=(",", ":"))])
            printed += 1
            if printed == asked.samples:
                return
            time.sleep(max(PERIOD_SECONDS, spent / _SHARE))

    return run_reader("memory", read, _refusal)


def _refusal(error: UserError) -> str:
    """Return the line that says why there is nothing to read."""
    nothing = {"event": "processes", "at_ns": time.monotonic_ns(), "used_bytes": {}}
    return json.dumps({**nothing, "unavailable": str(error)})


if __name__ == "__main__":
    sys.exit(main())
