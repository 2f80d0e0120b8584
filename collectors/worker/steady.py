"""The steady phase: inferences back to back, with their times printed between two of them."""

import gc
from array import array
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Event

from ...parsers.inference.events import Inferences, Order, StageName
from ...parsers.records import Record
from ..backends.base import Inferring, Pipelined
from ..base import Clock

# A chunk holds about one second. Its line stays well below the 64 KiB that a pipe takes at
# once, so that a late reader does not delay the next inference.
_CHUNK_NS = 1_000_000_000
_CHUNK_LENGTH = 1024


class Steady:
    """One steady phase; ``end_ns`` is the completion of the last inference, if any."""

    def __init__(
        self,
        order: Order,
        tell: Callable[[Record], None],
        stop: Event,
        clock: Clock,
        begin_ns: int,
    ) -> None:
        self.end_ns: int | None = None
        self._order = order
        self._tell = tell
        self._stopped = stop.is_set
        self._clock = clock
        self._tell_ns = begin_ns + _CHUNK_NS
        seconds = order.duration_seconds
        self._deadline_ns = None if seconds is None else begin_ns + int(seconds * 1e9)

    def run(self, backend: Inferring, infer: Callable[[], None]) -> bool:
        """Infer for the duration or the count; return False if it was stopped before."""
        chunk = _Chunk(self._order.run_id, backend.stages)
        try:
            if self._order.streams > 1 and isinstance(backend, Pipelined):
                return self._several_at_once(backend, chunk, bool(backend.stages))
            return self._one_by_one(backend, infer, chunk)
        finally:
            if chunk.start_ns:
                self._tell(chunk.take())

    def _one_by_one(self, backend: Inferring, infer: Callable[[], None], chunk: "_Chunk") -> bool:
        """Start each inference when the one before it is complete."""
        now, stopped, deadline_ns = self._clock.monotonic_ns, self._stopped, self._deadline_ns
        stages = backend.stages
        left = self._order.count or 0
        while not stopped():
            start_ns = now()
            infer()
            end_ns = now()
            chunk.start_ns.append(start_ns)
            chunk.latency_ns.append(end_ns - start_ns)
            if stages:
                chunk.add_stages(backend.stages_ns())
            self.end_ns = end_ns
            left -= 1
            if left == 0 or (deadline_ns is not None and end_ns >= deadline_ns):
                return True
            self._tell_if_due(chunk, end_ns)
        return False

    def _several_at_once(self, backend: Pipelined, chunk: "_Chunk", has_stages: bool) -> bool:
        """Keep every slot busy: wait for the oldest inference, then start another in its slot.

        The latency of each is from its start to its completion as this loop sees it, which waits
        for them in the order of their start.
        """
        now, stopped, deadline_ns = self._clock.monotonic_ns, self._stopped, self._deadline_ns
        left, streams = self._order.count or 0, self._order.streams
        started_ns = [0] * streams
        free, in_flight = deque(range(streams)), deque[int]()
        is_over = cancelled = stopped()
        while not is_over or in_flight:
            while free and not is_over:
                slot = free.popleft()
                started_ns[slot] = now()
                backend.submit(slot)
                in_flight.append(slot)
                left -= 1
                is_over = left == 0
            slot = in_flight.popleft()
            backend.wait(slot)
            end_ns = now()
            free.append(slot)
            chunk.start_ns.append(started_ns[slot])
            chunk.latency_ns.append(end_ns - started_ns[slot])
            if has_stages:
                chunk.add_stages(backend.slot_stages_ns(slot))
            self.end_ns = end_ns
            if not is_over:
                cancelled = stopped()
                is_over = cancelled or (deadline_ns is not None and end_ns >= deadline_ns)
            self._tell_if_due(chunk, end_ns)
        return not cancelled

    def _tell_if_due(self, chunk: "_Chunk", end_ns: int) -> None:
        if end_ns >= self._tell_ns or len(chunk.start_ns) >= _CHUNK_LENGTH:
            self._tell(chunk.take())
            self._tell_ns = end_ns + _CHUNK_NS


class _Chunk:
    """Inferences that are complete and not yet printed."""

    def __init__(self, run_id: str, stages: Sequence[StageName]) -> None:
        self._run_id = run_id
        self.start_ns = array("q")
        self.latency_ns = array("q")
        self._stages_ns: dict[StageName, array[int]] = {stage: array("q") for stage in stages}

    def add_stages(self, times_ns: Sequence[int]) -> None:
        for column, time_ns in zip(self._stages_ns.values(), times_ns, strict=True):
            column.append(time_ns)

    def take(self) -> Inferences:
        """Return the collected inferences, and begin anew."""
        columns = [self.start_ns, self.latency_ns, *self._stages_ns.values()]
        start_ns, latency_ns, *stages_ns = (tuple(column) for column in columns)
        for column in columns:
            del column[:]
        # These numbers were made a few lines above: checking each would only cost time here.
        return Inferences.model_construct(
            run_id=self._run_id,
            start_ns=start_ns,
            latency_ns=latency_ns,
            stages_ns=dict(zip(self._stages_ns, stages_ns, strict=True)),
        )


@contextmanager
def quiet_collector() -> Iterator[None]:
    """Keep Python's garbage collector out of the measured latencies."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()
