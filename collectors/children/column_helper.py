"""A second process that reads blocks of a log, for machines with a core to spare.

Threads would not do: what is short in numpy holds the interpreter, and two of them wait for each
other most of the time. Blocks and columns pass through shared memory, all else through a pipe.
"""

import contextlib
import mmap
import os
import pickle
import signal
import subprocess
import sys
import weakref
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any

import numpy as np

from ...parsers.tegrastats.bulk import BLOCK_BYTES, ColumnParser, Log, cut_blocks, numbered
from ...parsers.tegrastats.digits import Floats
from ...parsers.tegrastats.sheet import Batch

SLOTS = 5
_MOST_GIVEN = 3
SLOT_BYTES = 8 << 20
_LONGEST_BLOCK = 2 * BLOCK_BYTES
_MEMORY_BYTES = SLOTS * (_LONGEST_BLOCK + SLOT_BYTES)
_START = (
    "import sys; from multiprocessing.connection import Connection; "
    "pipe, memory = Connection(int(sys.argv[1])), int(sys.argv[2]); sys.path[:] = pipe.recv(); "
    "from tegrascope.collectors.children.column_helper import serve; serve(pipe, memory)"
)


def read_batches_together(
    log: Log, parser: ColumnParser, *, block_bytes: int = BLOCK_BYTES
) -> Iterator[Batch]:
    """Read a log to its end with a helper, as ``read_batches`` does without.

    A helper that cannot be had, or that dies, costs time and nothing else.

    Args:
        log: Bytes; any lines.
        parser: What was learnt from other logs; the helper learns for itself.
        block_bytes: Size of a block.

    Yields:
        The records, in order; every line is in the count of one batch.
    """
    with Helper() as helper:
        yield from numbered(_parsed(parser, helper, cut_blocks(log, block_bytes)))


def _parsed(parser: ColumnParser, helper: "Helper", blocks: Iterator[bytes]) -> Iterator[Batch]:
    done: dict[int, Batch] = {}
    given: dict[int, bytes] = {}  # to the helper
    due = 0
    for number, block in enumerate(blocks):
        if helper.take(number, block):
            given[number] = block
        else:
            done[number] = parser.parse(block)
        for finished, batch in helper.finished():
            done[finished] = batch
            del given[finished]
        while due in done:
            yield done.pop(due)
            due += 1
    while done or given:
        if due in done:
            yield done.pop(due)
            due += 1
            continue
        if len(given) > 1 or not helper.is_alive:
            # Rather than wait for it, take back what it has not come to.
            last = max(given)
            done[last] = parser.parse(given.pop(last))
        for finished, batch in helper.finished(wait=due in given):
            if given.pop(finished, None) is not None:
                done[finished] = batch


class Helper:
    """The other process, which has three blocks at most to read; use it as a context manager.

    The columns of a block stay in shared memory until nobody has them any more.

    Attributes:
        is_alive: False once it is not there any more.
    """

    def __init__(self) -> None:
        """Start it; it is ready some tenths of a second later."""
        self.is_alive = False
        self._is_ready = False
        self._free = deque(range(SLOTS))
        self._given = 0
        self._memory: mmap.mmap | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe, theirs = Pipe()
        try:
            shared = os.memfd_create("tegrascope-columns")
        except (AttributeError, OSError):  # not Linux, or none left
            theirs.close()
            return
        try:
            os.ftruncate(shared, _MEMORY_BYTES)
            self._memory = mmap.mmap(shared, _MEMORY_BYTES)
            self._process = subprocess.Popen(
                [sys.executable, "-c", _START, str(theirs.fileno()), str(shared)],
                stdin=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno(), shared],
                # It multiplies no matrices, and threads for that would take its core at the start.
                env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
            )
            self._pipe.send(sys.path)
            self.is_alive = True
        except OSError:
            pass  # no memory to share, or no process: the caller reads by itself
        finally:
            theirs.close()
            os.close(shared)

    def __enter__(self) -> "Helper":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._pipe.close()
        self.kill()
        self._memory = None  # it goes with the last columns that are in it

    @property
    def is_running(self) -> bool:
        """Whether the process is there."""
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """End it, whatever it is at."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def wait_until_ready(self) -> None:
        """Wait until it can take a block, or is found dead."""
        while self.is_alive and not self._is_ready:
            self._hear()

    def take(self, number: int, block: bytes) -> bool:
        """Give it a block to read, if it has room.

        Returns:
            Whether it took it.
        """
        has_room = self._free and self._given < _MOST_GIVEN and len(block) <= _LONGEST_BLOCK
        if not (self._is_ready and has_room):
            return False
        assert self._memory is not None
        slot = self._free[0]
        begin = slot * (_LONGEST_BLOCK + SLOT_BYTES)
        self._memory[begin : begin + len(block)] = block
        try:
            self._pipe.send((number, slot, len(block)))
        except OSError:
            self.is_alive = self._is_ready = False
            return False
        self._free.popleft()
        self._given += 1
        return True

    def finished(self, *, wait: bool = False) -> Iterator[tuple[int, Batch]]:
        """Yield what it has read meanwhile.

        Args:
            wait: Whether to wait for one block at least.
        """
        while self.is_alive and self._pipe.poll(None if wait else 0):
            told = self._hear()
            if told is not None:
                number, slot, batch, shape = told
                self._given -= 1
                if shape is None:
                    self._free.append(slot)
                else:
                    batch = replace(batch, values=self._values(slot, shape))
                yield number, batch
                wait = False

    def _hear(self) -> Any:
        """Take its next message; ``None`` says that it is ready, or dead."""
        try:
            told = self._pipe.recv()
        except (OSError, EOFError, pickle.UnpicklingError):
            self.is_alive = self._is_ready = False
            return None
        self._is_ready = True
        return told

    def _values(self, slot: int, shape: tuple[int, int]) -> Floats:
        assert self._memory is not None
        begin = slot * (_LONGEST_BLOCK + SLOT_BYTES) + _LONGEST_BLOCK
        values = _in_slot(self._memory, begin, shape)
        weakref.finalize(values, self._free.append, slot)
        return values


def serve(pipe: Connection, shared: int) -> None:
    """Be the helper: read blocks until nobody gives any more.

    Args:
        pipe: Where the slots of blocks come from, and what is not columns goes to.
        shared: Descriptor of the shared memory.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    memory = mmap.mmap(shared, _MEMORY_BYTES)
    parser = ColumnParser()
    with contextlib.suppress(EOFError, OSError):
        pipe.send(None)
        while True:
            number, slot, size = pipe.recv()
            begin = slot * (_LONGEST_BLOCK + SLOT_BYTES)
            block = memory[begin : begin + size]
            batch = parser.parse(block, partial(_in_slot, memory, begin + _LONGEST_BLOCK))
            shape = None
            if batch.values.nbytes <= SLOT_BYTES:
                shape = batch.values.shape
                batch = replace(batch, values=np.empty((0, 0)))
            pipe.send((number, slot, batch, shape))


def _in_slot(memory: mmap.mmap, begin: int, shape: tuple[int, int]) -> Floats:
    """Return an array in shared memory, or elsewhere if it does not fit."""
    if shape[0] * shape[1] * np.dtype(np.float64).itemsize > SLOT_BYTES:
        return np.empty(shape)
    return np.ndarray(shape, np.float64, memory, begin)
