"""One order becomes the events of one run; the back-end of the last order stays loaded."""

import gc
import io
import json
import sys
import traceback
from array import array
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from threading import Event
from typing import TypeAlias

from ...parsers.errors import BackendUnavailable, DeviceLostError, UserError
from ...parsers.inference.events import (
    Ending,
    Finished,
    Inferences,
    Loaded,
    Order,
    Phase,
    PhaseName,
    StageName,
)
from ...parsers.records import Record
from ..backends.base import Backend, Inferring, Pipelined, Profiled, SelfTimed
from ..backends.cuda_runtime import Ranges
from ..base import SYSTEM_CLOCK, Clock, write_atomic
from ..children.program import find_executable
from ..models.files import find_model, sha256_of

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


STOPPED = "the worker was told to stop"
# The warm-up goes on until it is steady, for at most so many times its configured length.
_WARM_UP_FACTOR = 3
_WINDOW_NS = 200_000_000
_WINDOW_LENGTH = 3
_REASON_LENGTH = 400
_PROFILED_INFERENCES = 50

# Fields that may differ between two orders of the same loaded backend.
_OF_THE_RUN = {
    *("run_id", "warm_up_seconds", "baseline_seconds", "duration_seconds", "count"),
    *("outputs_file", "profile_file"),
}

_Identity: TypeAlias = "tuple[Path, str, str]"


class Cancelled(Exception):  # noqa: N818 - not an error: the daemon cancels runs
    """The worker was asked to stop."""


class Runner:
    """Carries out orders, one after another.

    Attributes:
        is_spent: True once this process cannot use its device any more: it should end, so that
            another can take its place.
    """

    def __init__(
        self,
        make_backend: Callable[[str], Backend],
        tell: Callable[[Record], None],
        stop: Event,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Take the parts of a run; ``tell`` takes events, between inferences only."""
        self._make_backend = make_backend
        self._tell = tell
        self._stop = stop
        self._clock = clock
        self._backend: Backend | None = None
        self._identity: _Identity | None = None
        self._imported: set[str] = set()
        self._ranges = Ranges()
        # Parts of the cold start, which do not overlap, in nanoseconds.
        self._cold_start_ns: dict[str, int] = {}
        self.is_spent = False

    def run(self, order: Order) -> None:
        """Carry out an order and emit its events; any failure becomes its ending."""
        ending: Ending = "ok"
        reason: str | None = None
        try:
            self._carry_out(order)
        except Cancelled:
            ending, reason = "cancelled", STOPPED
        except BackendUnavailable as error:
            ending, reason = "unavailable", _one_line(str(error))
        except UserError as error:
            ending, reason = "failed", _one_line(str(error))
        except Exception as error:
            traceback.print_exc()
            ending, reason = "failed", _one_line(f"{type(error).__name__}: {error}")
            self.is_spent = isinstance(error, DeviceLostError)
        self._tell(
            Finished(
                run_id=order.run_id,
                ending=ending,
                reason=reason,
                process_peak_bytes=peak_bytes(),
                device_peak_bytes=self._device_peak_bytes(),
            )
        )
        if ending != "ok" and not self.is_spent:
            self.close()

    def close(self) -> None:
        """Release the loaded backend, if any."""
        backend, self._backend, self._identity = self._backend, None, None
        if backend is not None:
            try:
                backend.close()
            except Exception:
                traceback.print_exc()
            del backend
            gc.collect()

    def _device_peak_bytes(self) -> int | None:
        try:
            return None if self._backend is None else self._backend.device_peak_bytes()
        except Exception:  # a device that failed may fail at this too, and the run has its ending
            traceback.print_exc()
            return None

    def _carry_out(self, order: Order) -> None:
        if (order.count is None) == (order.duration_seconds is None):
            raise UserError(
                "the order names both or neither of count and duration_seconds", "give one of them"
            )
        backend, sha256 = self._prepare(order)
        if isinstance(backend, Inferring):
            self._warm_up(order, backend)
        self._tell_loaded(order, backend, sha256)
        self._rest(order, "baseline_before")
        if isinstance(backend, Inferring):
            self._measure(order, backend)
        elif isinstance(backend, SelfTimed):
            for event in backend.measure(order, self._stop):
                self._tell(event)
            self._unless_stopped()
            self._tell_loaded(order, backend, sha256)
        else:
            raise TypeError(f"{order.backend} neither infers nor measures by itself")
        self._rest(order, "baseline_after")
        if order.profile_file is not None:
            self._unless_stopped()
            _write_profile(backend, Path(order.profile_file))

    def _tell_loaded(self, order: Order, backend: Backend, sha256: str) -> None:
        self._tell(
            Loaded(
                run_id=order.run_id,
                model_sha256=sha256,
                versions={"python": sys.version.split()[0], **backend.versions()},
                cold_start_seconds={part: ns / 1e9 for part, ns in self._cold_start_ns.items()},
                built=backend.built(),
            )
        )

    def _add_cold_start(self, step: str, took_ns: int, backend: Backend) -> None:
        """Add a step of the cold start, less those parts of it that the backend distinguishes."""
        found = backend.cold_start_ns().items()
        parts = {name: ns for name, ns in found if name not in self._cold_start_ns}
        self._cold_start_ns.update(parts)
        # An engine from the cache was not built: the rest of the step belongs to its reading.
        rest = "cache_load" if step == "build" and "cache_load" in parts else step
        rest_ns = max(0, took_ns - sum(parts.values()))
        self._cold_start_ns[rest] = self._cold_start_ns.get(rest, 0) + rest_ns

    def _prepare(self, order: Order) -> tuple[Backend, str]:
        """Load the model unless it is loaded; return back-end and digest."""
        now = self._clock.monotonic_ns
        self._cold_start_ns = {}
        with self._phase(order, "load"):
            begin_ns = now()
            backend = self._make_backend(order.backend)
            if order.backend not in self._imported:
                self._imported.add(order.backend)
                self._cold_start_ns["import"] = now() - begin_ns
            if order.model:
                model = find_model(order.model, Path(order.model_directory))
            else:
                model = find_executable(next(iter(order.program), ""))
            sha256 = sha256_of(model)
            wanted = (model, sha256, order.model_dump_json(exclude=_OF_THE_RUN))
            if self._backend is not None and self._identity == wanted:
                return self._backend, sha256
            self.close()
            self._unless_stopped()
            self._backend, begin_ns = backend, now()
            backend.load(model, order)
            self._add_cold_start("load", now() - begin_ns, backend)
        if backend.builds:
            with self._phase(order, "build"):
                self._unless_stopped()
                begin_ns = now()
                backend.build()
                self._add_cold_start("build", now() - begin_ns, backend)
        self._identity = wanted
        return backend, sha256

    def _warm_up(self, order: Order, backend: Inferring) -> None:
        """Infer until it is steady; the first inference of a freshly loaded model is cold start."""
        now = self._clock.monotonic_ns
        with self._phase(order, "warm_up"):
            begin_ns = now()
            if "load" in self._cold_start_ns:
                self._unless_stopped()
                backend.infer()
                self._add_cold_start("first_inference", now() - begin_ns, backend)
            if order.outputs_file is not None:
                _write_outputs(backend, Path(order.outputs_file))
            warm_up_ns = int(order.warm_up_seconds * 1e9)
            least_ns, most_ns = begin_ns + warm_up_ns, begin_ns + _WARM_UP_FACTOR * warm_up_ns
            medians: list[float] = []
            window: list[int] = []
            end_ns = now()
            window_end_ns = end_ns + _WINDOW_NS
            while end_ns < least_ns or (end_ns < most_ns and not is_settled(medians)):
                self._unless_stopped()
                start_ns = now()
                backend.infer()
                end_ns = now()
                window.append(end_ns - start_ns)
                if end_ns >= window_end_ns and len(window) >= _WINDOW_LENGTH:
                    medians.append(median(window))
                    window.clear()
                    window_end_ns = end_ns + _WINDOW_NS

    def _rest(self, order: Order, phase: PhaseName) -> None:
        """Do nothing for the length of a baseline, with the model loaded."""
        if order.baseline_seconds > 0:
            with self._phase(order, phase) as span:
                until_ns = span.begin_ns + int(order.baseline_seconds * 1e9)
                if self._clock.wait(self._stop, until_ns):
                    raise Cancelled

    def _measure(self, order: Order, backend: Inferring) -> None:
        """Infer back to back; emit events about once per second, between two inferences."""
        infer = self._ranges.each("inference", backend.infer)
        with quiet_collector(), self._phase(order, "steady") as span:
            steady = Steady(order, self._tell, self._stop, self._clock, span.begin_ns)
            try:
                is_whole = steady.run(backend, infer)
            finally:
                span.end_ns = steady.end_ns
            if not is_whole:
                raise Cancelled

    def _unless_stopped(self) -> None:
        if self._stop.is_set():
            raise Cancelled

    @contextmanager
    def _phase(self, order: Order, phase: PhaseName) -> Iterator["_Span"]:
        """Emit both edges of a phase, however it ends."""
        span = _Span(self._clock.monotonic_ns())
        self._tell(Phase(run_id=order.run_id, phase=phase, edge="begin", at_ns=span.begin_ns))
        try:
            with self._ranges.range(f"{phase} {order.device} {Path(order.model).name}"):
                yield span
        finally:
            end_ns = self._clock.monotonic_ns() if span.end_ns is None else span.end_ns
            self._tell(Phase(run_id=order.run_id, phase=phase, edge="end", at_ns=end_ns))


class _Span:
    """A phase under way; it ends at ``end_ns``, or when its block does."""

    def __init__(self, begin_ns: int) -> None:
        self.begin_ns = begin_ns
        self.end_ns: int | None = None


def _write_outputs(backend: Inferring, path: Path) -> None:
    """Write the outputs for the backend's inputs, whole or not at all."""
    import numpy

    backend.infer()
    content = io.BytesIO()
    numpy.savez(content, *(output for _, output in sorted(backend.outputs().items())))
    write_atomic(path, content.getbuffer())


def _write_profile(backend: Backend, path: Path) -> None:
    """Write the time of each layer, from profiled inferences that count nowhere else."""
    if not isinstance(backend, Profiled):
        raise UserError("this back-end cannot time a layer", "leave the profile out")
    layers = backend.profile(_PROFILED_INFERENCES)
    document = {"inferences": _PROFILED_INFERENCES, "layers_ns": dict(layers)}
    write_atomic(path, json.dumps(document, indent=1).encode())


def is_settled(medians: Sequence[float]) -> bool:
    """Return whether the last three windows agree within 5 % in their median latency.

    Args:
        medians: shape (n,), of windows in the order of time, in any unit.

    >>> is_settled([9.0, 5.1, 5.0, 5.2]), is_settled([9.0, 5.1, 5.0])
    (True, False)
    """
    last = medians[-3:]
    return len(last) == 3 and max(last) <= 1.05 * min(last)


def peak_bytes(status: Path = Path("/proc/self/status")) -> int | None:
    """Return the peak resident memory of this process, or ``None``.

    ``getrusage`` would return the parent's peak if that is higher: it survives ``exec``.
    """
    try:
        lines = status.read_text().splitlines()
    except OSError:
        return None
    found = next((line.split() for line in lines if line.startswith("VmHWM:")), None)
    return None if found is None else int(found[1]) * 1024


def _one_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[0][:_REASON_LENGTH] if lines else "no reason was given"
