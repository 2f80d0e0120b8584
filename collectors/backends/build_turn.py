"""One build at a time on a machine, and the circumstances of a build.

TensorRT chooses kernels by their measured time. Beside other builds it chooses worse ones, and the
cache keeps them.
"""

import os
import re
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from math import inf
from pathlib import Path

from ...parsers import signals
from ...parsers.errors import UserError
from ...parsers.inference.placement import Circumstances
from ...parsers.signals import Column
from ..board.memory import obtainable_memory
from ..board.readers import clocks_locked, find_clocks, read_text
from ..models.files import external_files
from .engine_cache import try_lock

LOCK_NAME = "tegrascope-build.lock"
# The first is the place for locks of all users; the second is there without it.
_DIRECTORIES = ("run/lock", "tmp")
_POLL_SECONDS = 0.2
# Of the time until the worker is killed, this share may be spent waiting.
_PATIENCE = 0.9
_BUILD_BYTES, _BUILD_TIMES_MODEL = 4 << 30, 4


def build_bytes(model_bytes: int) -> int:
    """Return an estimate of the memory that a build takes at its peak, of CPU and GPU together.

    The weights are there as read, as converted, in the kernels that are tried and in the engine.

    Args:
        model_bytes: Size of the model with its external weights.

    Source:
        Public logs of builds. Without weights: 3.6 GiB (TensorRT 10.0, PC). YOLOv5s: 1.7 GiB more
        in use at the end than at the start (Orin Nano). 3.5 to 4.8 times the engine: 15 to 70 GB
        by TensorRT-LLM, and 15 GB on an Orin. ResNet-50 (0.1 GB): 3.4 and 4.4 GiB (8.6, two
        server GPUs).

    >>> round(build_bytes(102_000_000) / 2**30, 2)
    4.38
    """
    return _BUILD_BYTES + _BUILD_TIMES_MODEL * model_bytes


@contextmanager
def turn_to_build(
    timeout_seconds: float | None,
    progress: Callable[[str], None],
    root: Path = Path("/"),
    model: Path | None = None,
    before_wait: Callable[[], object] = lambda: None,
) -> Iterator[Circumstances]:
    """Wait until no other process of any user builds an engine; hold the lock for the block.

    A build that may take more memory than is free is announced on standard error, not refused.

    Args:
        timeout_seconds: Time until the worker is killed, or ``None`` to wait for ever.
        progress: Called with a few words before a wait.
        model: File to build, to estimate the memory.
        before_wait: Called once if the lock is not free, and may raise: what cannot be built need
            not wait.

    Yields:
        The circumstances at the begin. ``is_alone`` is False if no directory can have the lock.

    Raises:
        UserError: The wait took most of the time until then.
    """
    begin = time.monotonic()
    limit = inf
    if timeout_seconds is not None:
        limit = _PATIENCE * timeout_seconds
    waited_for: list[int] = []
    last_holder = ""
    with ExitStack() as held:
        while (opened := _open_lock(root)) is not None:
            lock, path = opened
            held.callback(os.close, lock)
            while not try_lock(lock):
                if not last_holder:
                    before_wait()
                holders = _holders(lock, root)
                for pid in holders:
                    if pid not in waited_for:
                        waited_for.append(pid)
                who = "another process"
                if holders:
                    who = f"process {', '.join(map(str, holders))}"
                if who != last_holder:
                    progress(f"waits for {who}, which builds an engine on this machine")
                    last_holder = who
                if time.monotonic() - begin >= limit:
                    raise UserError(
                        f"{who} builds an engine on this machine, and did not end in {limit:.0f} s",
                        "run it again later, or with a longer timeout",
                    )
                time.sleep(_POLL_SECONDS)
            # If the file was removed meanwhile, others lock its successor.
            with suppress(OSError):
                if os.path.samestat(path.lstat(), os.fstat(lock)):
                    break
        wanted = None
        if model is not None:
            files = (model, *external_files(model))
            wanted = build_bytes(sum(path.stat().st_size for path in files))
        circumstances = Circumstances(
            load_average=_load_average(root),
            free_memory_bytes=obtainable_memory(root),
            wanted_memory_bytes=wanted,
            clocks_locked=clocks_locked(root),
            waited_seconds=round(time.monotonic() - begin, 1) if last_holder else 0.0,
            waited_for=tuple(waited_for),
            is_alone=opened is not None,
        )
        for note in circumstances.notes:
            print(f"warning: {note}", file=sys.stderr)
        yield circumstances


def clocks_now(root: Path = Path("/"), pci_bus_id: str | None = None) -> dict[str, float]:
    """Return the clocks of GPU, DLA and memory in hertz: by the kernel, or by NVML for one GPU."""
    clocks: dict[Column, float] = {}
    for reading in find_clocks(root):
        text = reading.file.text()
        reading.file.close()
        clocks.update(reading.take(text or "", 0))
    if not clocks and pci_bus_id is not None:
        with suppress(Exception):  # whatever NVML lacks, a build does not fail for it
            import pynvml

            pynvml.nvmlInit()
            gpu = pynvml.nvmlDeviceGetHandleByPciBusId(pci_bus_id)
            megahertz = pynvml.nvmlDeviceGetClockInfo(gpu, pynvml.NVML_CLOCK_SM)
            clocks[signals.GPU_FREQUENCY, "0"] = megahertz * 1e6
    return signals.by_name(clocks)


def _open_lock(root: Path) -> tuple[int, Path] | None:
    """Return a descriptor of the lock file, which every user may lock and none writes.

    The directories are writable for all: a link is not followed, a FIFO does not hold us up, and
    the kernel may refuse to create a file that is there. So it is opened first and created second.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    for path in (root / directory / LOCK_NAME for directory in _DIRECTORIES):
        for created in (0, os.O_CREAT | os.O_EXCL, 0):
            try:
                lock = os.open(path, flags | created, 0o644)
            except OSError:
                continue
            if created:
                os.fchmod(lock, 0o644)  # whatever the umask is
            if stat.S_ISREG(os.fstat(lock).st_mode):
                return lock, path
            os.close(lock)
    return None


def _holders(lock: int, root: Path) -> list[int]:
    """Return the processes that hold the lock, as far as the kernel lists them."""
    inode = os.fstat(lock).st_ino
    text = read_text(root / "proc/locks", 1 << 20) or ""
    pids = re.findall(rf"^\d+: FLOCK .* (\d+) \S+:{inode} ", text, re.MULTILINE)
    return sorted({int(pid) for pid in pids} - {0, os.getpid()})


def _load_average(root: Path) -> float | None:
    words = (read_text(root / "proc/loadavg") or "").split()
    return float(words[0]) if words else None
