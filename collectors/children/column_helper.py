"""A second process that reads blocks of a log, for machines with a core to spare.

Threads of one process would wait for each other: short calls of numpy hold the interpreter. An
executor of processes would start its children in the current directory's path of imports.
"""

import contextlib
import os
import pickle
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from multiprocessing import Pipe
from multiprocessing.connection import Connection

from ...parsers.tegrastats.bulk import BLOCK_BYTES, Batch, ColumnParser, Log, cut_blocks, numbered
from .program import python_child

# One block is read by the helper, and the next one waits for it.
_MOST_GIVEN = 2
# Batches that wait for a block of the helper take memory, and a busy machine may delay it for long.
_MOST_WAITING = 8


def read_batches_together(
    log: Log,
    parser: ColumnParser,
    *,
    block_bytes: int = BLOCK_BYTES,
    helper: "ColumnHelper | None" = None,
) -> Iterator[Batch]:
    """Read a log to its end with a helper, as ``read_batches`` does without.

    A helper that does not start, or that dies, costs time only. It has a parser of its own, and it
    is ended with the log; None starts one. Records come in order.
    """
    with helper or ColumnHelper() as second:
        yield from numbered(_parsed(parser, second, cut_blocks(log, block_bytes)))


def _parsed(
    parser: ColumnParser, helper: "ColumnHelper", blocks: Iterator[bytes]
) -> Iterator[Batch]:
    waiting: deque[tuple[bytes, Future[Batch]]] = deque()

    def finished(*, at_most: int) -> Iterator[Batch]:
        """Yield the first batches that are read, until so many others are left."""
        while waiting and (len(waiting) > at_most or waiting[0][1].done()):
            block, future = waiting.popleft()
            batch: Batch | None = None
            if not future.cancel():
                with contextlib.suppress(OSError, EOFError, pickle.UnpicklingError):
                    batch = future.result()
            yield parser.parse(block) if batch is None else batch

    for block in blocks:
        given = sum(not future.done() for _, future in waiting)
        if helper.is_ready and given < _MOST_GIVEN:
            waiting.append((block, helper.read(block)))
        else:
            waiting.append((b"", Future()))
            waiting[-1][1].set_result(parser.parse(block))
        yield from finished(at_most=_MOST_WAITING)
    yield from finished(at_most=0)


class ColumnHelper:
    """The other process; use it as a context manager."""

    def __init__(self) -> None:
        """Start it; ``ready`` is done some tenths of a second later, or fails."""
        self._pipe, theirs = Pipe()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = ThreadPoolExecutor(1, "column-helper")  # it waits for the pipe
        with theirs, contextlib.suppress(OSError):  # no process is left: the caller reads alone
            self._process = subprocess.Popen(
                python_child(__name__, str(theirs.fileno()), name="log reader"),
                stdin=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                # Threads for matrices would take its core at the start.
                env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
            )
        self.ready = self._thread.submit(self._pipe.recv)

    def __enter__(self) -> "ColumnHelper":
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._thread.shutdown(cancel_futures=True)
        self._pipe.close()

    @property
    def is_ready(self) -> bool:
        """Whether it can take a block."""
        is_running = self._process is not None and self._process.poll() is None
        return is_running and self.ready.done() and self.ready.exception() is None

    def read(self, block: bytes) -> "Future[Batch]":
        """Give it a block; the result raises OSError or EOFError if it dies."""
        return self._thread.submit(self._exchange, block)

    def _exchange(self, block: bytes) -> Batch:
        self._pipe.send_bytes(block)
        batch: Batch = self._pipe.recv()
        return batch

    def kill(self) -> None:
        """End it at once."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def main(descriptor: int) -> None:
    """Read blocks from a pipe and send their batches, until the other end is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parser = ColumnParser()
    with contextlib.suppress(EOFError, OSError), Connection(descriptor) as pipe:
        pipe.send(None)
        while True:
            pipe.send_bytes(pickle.dumps(parser.parse(pipe.recv_bytes()), protocol=5))


if __name__ == "__main__":
    main(int(sys.argv[1]))
