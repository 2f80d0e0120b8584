"""A program that is run to its end, with a bound of its time and of what it prints."""

import errno
import os
import resource
import selectors
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

OUTPUT_BYTES = 1 << 20
"""More than any program prints that we run to its end, and little beside its own memory."""
_PART_BYTES = 1 << 16


def run_bounded(
    argv: Sequence[str],
    seconds: float,
    *,
    most_bytes: int = OUTPUT_BYTES,
    joins_errors: bool = False,
) -> "subprocess.CompletedProcess[bytes]":
    """Run a program with an empty standard input, as ``subprocess.run`` does.

    That function has no bound of the output, so a program that prints without end would fill our
    memory until its time is over.

    Args:
        joins_errors: Whether standard error becomes a part of standard output.

    Raises:
        OSError: The program does not start, or printed more than ``most_bytes``.
        subprocess.TimeoutExpired: It did not end in time.
    """
    errors = subprocess.STDOUT if joins_errors else subprocess.PIPE
    with subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors
    ) as process:
        try:
            output, error_output = _read(process, time.monotonic() + seconds, seconds, most_bytes)
        except BaseException:
            process.kill()
            raise
        return subprocess.CompletedProcess(argv, process.returncode, output, error_output)


def limit_memory(most_bytes: int | None) -> None:
    """Limit what this process may take beyond what it has, if a limit is given.

    At the limit Python raises ``MemoryError``, and C++ ``bad_alloc``.
    """
    if most_bytes is None:
        return
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    limit = pages * resource.getpagesize() + most_bytes
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    if hard != resource.RLIM_INFINITY:
        limit = min(limit, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))


def _read(
    process: "subprocess.Popen[bytes]", deadline: float, seconds: float, most_bytes: int
) -> tuple[bytes, bytes]:
    """Return what a program prints on both streams until its end."""
    output, error_output = bytearray(), bytearray()
    with selectors.DefaultSelector() as selector:
        if process.stdout is not None:
            selector.register(process.stdout, selectors.EVENT_READ, output)
        if process.stderr is not None:
            selector.register(process.stderr, selectors.EVENT_READ, error_output)
        while selector.get_map():
            left = deadline - time.monotonic()
            ready = selector.select(max(left, 0.0))
            if not ready and left <= 0:
                raise subprocess.TimeoutExpired(process.args, seconds)
            for key, _ in ready:
                part = os.read(key.fd, _PART_BYTES)
                if not part:
                    selector.unregister(key.fileobj)
                key.data.extend(part)
            if len(output) + len(error_output) > most_bytes:
                raise OSError(errno.EFBIG, f"it prints more than {most_bytes} bytes")
    process.wait(max(deadline - time.monotonic(), 0.0))
    return bytes(output), bytes(error_output)
