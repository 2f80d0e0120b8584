"""One order becomes the events of one run; the one model of this process stays loaded."""

import gc
import math
import sys
import traceback
from array import array
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from threading import Event
from typing import TYPE_CHECKING, Literal

from ...parsers.errors import BackendUnavailable, DeviceLostError, UserError
from ...parsers.inference.events import (
    Counted,
    Declined,
    Finished,
    Inferences,
    Loaded,
    Order,
    Outcome,
    Outputs,
    Phase,
    PhaseName,
    Progress,
    StageName,
    Surroundings,
)
from ...parsers.records import Record
from ..backends.base import Backend, InferenceSlot, Inferring, SelfTimed, make_varied
from ..backends.cuda_runtime import Ranges
from ..base import SYSTEM_CLOCK, Clock
from ..board.readers import free_memory
from ..children.program import find_executable
from ..files import write_atomic
from ..models.data_sets import DataSet, InputBatch, InputSpec, reported
from ..models.files import find_model, sha256_of
from ..simulator.plan import PlannedClock
from .outputs import compare_with_first_run, write_outputs

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

# A chunk holds about one second. Its line stays well below the 64 KiB that a pipe takes at
# once, so that a late reader does not delay the next inference.
_CHUNK_NS = 1_000_000_000
_CHUNK_LENGTH = 1024
# The device's events lengthen an inference by some microseconds, which is much of a short one. At
# this distance they cost far less than 1 % of the time. Of inferences of 50 us fewer than 1 in 100
# have them, so that even the 99th percentile is that of the others.
_TIMED_EVERY_NS = 5_000_000


# Built-in inputs on which outputs are compared, rounded up to whole batches.
VARIED_INPUTS = 8
# Outputs of a data set are joined and packed, which takes copies of them.
_MEMORY_SHARE = 0.25


class Cancelled(Exception):  # noqa: N818 - not an error: the daemon cancels runs
    """The worker was asked to stop."""


@dataclass
class _Span:
    """A phase under way; it ends at ``end_ns``, or when its block does."""

    begin_ns: int
    end_ns: int | None = None


@dataclass(frozen=True)
class Calls:
    """The calls of a steady phase.

    Attributes:
        infer: Runs one inference, and nothing beside it.
        infer_timed: Runs one that the device times; ``stages_ns`` returns its times then.
        stages: Names of these times; none, if the device times nothing.
        slots: Room for several in flight; none, to run one at a time.
    """

    infer: Callable[[], None]
    infer_timed: Callable[[], None]
    stages_ns: Callable[[], Sequence[int]]
    stages: Sequence[StageName] = ()
    slots: Sequence[InferenceSlot] = ()


class Steady:
    """One steady phase; its span ends with the completion of the last inference, if any."""

    def __init__(
        self,
        order: Order,
        calls: Calls,
        tell: Callable[[Record], None],
        stop: Event,
        clock: Clock,
        span: _Span,
    ) -> None:
        self._span = span
        self._order, self._calls, self._tell, self._clock = order, calls, tell, clock
        self._stop, self._stopped = stop, stop.is_set
        self._tell_ns = span.begin_ns + _CHUNK_NS
        seconds = order.duration_seconds
        self._until_ns = None if seconds is None else span.begin_ns + int(seconds * 1e9)
        # Inferences that are complete and not yet printed, and the time between them.
        self._between_ns = 0
        self._start_ns = array("q")
        self._latency_ns = array("q")
        self._stages_ns: dict[StageName, array[int]] = {}
        for stage in calls.stages:
            self._stages_ns[stage] = array("q")
        # The first inference from this time on is timed by the device.
        self._timed_from_ns = 0 if calls.stages else sys.maxsize

    def run(self) -> None:
        """Infer for the duration or the count; raise ``Cancelled`` if it is stopped before."""
        try:
            if self._order.steps_seconds:
                self._by_pattern(self._order.steps_seconds)
            else:
                self._without_pause()
        finally:
            if self._start_ns:
                self._tell_chunk()

    def _by_pattern(self, steps_seconds: Sequence[float]) -> None:
        """Rest and infer in turn, beginning with a rest."""
        for number, seconds in enumerate(steps_seconds):
            until_ns = self._clock.monotonic_ns() + round(seconds * 1e9)
            if number % 2:
                self._until_ns = until_ns
                self._without_pause()
            elif self._clock.wait(self._stop, until_ns):
                raise Cancelled

    def _without_pause(self) -> None:
        if self._order.streams > 1 and self._calls.slots:
            self._several_at_once(self._calls.slots)
        else:
            self._one_by_one()

    def _one_by_one(self) -> None:
        """Start each inference when the one before it is complete.

        All that is done between two inferences is lost to the device, so it is as little as can be.
        """
        now, stopped, until_ns = self._clock.monotonic_ns, self._stopped, self._until_ns
        calls, timed_from_ns = self._calls, self._timed_from_ns
        infer, infer_timed, stages_ns = calls.infer, calls.infer_timed, calls.stages_ns
        add_start, add_latency = self._start_ns.append, self._latency_ns.append
        left = self._order.count or 0
        end_ns = now()
        while not stopped():
            start_ns = now()
            self._between_ns += start_ns - end_ns
            if start_ns < timed_from_ns:
                infer()
                end_ns = now()
            else:
                timed_from_ns = start_ns + _TIMED_EVERY_NS
                infer_timed()
                end_ns = now()
                self._add_stages(stages_ns())
            add_start(start_ns)
            add_latency(end_ns - start_ns)
            if end_ns >= self._tell_ns or len(self._start_ns) >= _CHUNK_LENGTH:
                self._tell_chunk()
            left -= 1
            if left == 0 or (until_ns is not None and end_ns >= until_ns):
                return
        raise Cancelled

    def _several_at_once(self, slots: Sequence[InferenceSlot]) -> None:
        """Keep every slot busy: wait for the oldest inference, then start another in its slot.

        The latency of each is from its start to its completion as this loop sees it, which waits
        for them in the order of their start.
        """
        now, stopped, until_ns = self._clock.monotonic_ns, self._stopped, self._until_ns
        left = self._order.count or 0
        free, in_flight = deque(slots), deque[tuple[InferenceSlot, int, bool]]()
        is_over = cancelled = stopped()
        end_ns: int | None = None
        while not is_over or in_flight:
            while free and not is_over:
                slot, start_ns = free.popleft(), now()
                if end_ns is not None:
                    self._between_ns += start_ns - end_ns
                is_timed = start_ns >= self._timed_from_ns
                if is_timed:
                    self._timed_from_ns = start_ns + _TIMED_EVERY_NS
                    slot.submit_timed()
                else:
                    slot.submit()
                in_flight.append((slot, start_ns, is_timed))
                left -= 1
                is_over = left == 0
            slot, start_ns, is_timed = in_flight.popleft()
            slot.wait()
            end_ns = now()
            free.append(slot)
            if is_timed:
                self._add_stages(slot.stages_ns())
            self._start_ns.append(start_ns)
            self._latency_ns.append(end_ns - start_ns)
            if end_ns >= self._tell_ns or len(self._start_ns) >= _CHUNK_LENGTH:
                self._tell_chunk()
            if not is_over:
                cancelled = stopped()
                is_over = cancelled or (until_ns is not None and end_ns >= until_ns)
        if cancelled:
            raise Cancelled

    def _add_stages(self, times_ns: Sequence[int]) -> None:
        for column, time_ns in zip(self._stages_ns.values(), times_ns, strict=True):
            column.append(time_ns)

    def _tell_chunk(self) -> None:
        end_ns = self._span.end_ns = self._start_ns[-1] + self._latency_ns[-1]
        self._tell_ns = end_ns + _CHUNK_NS
        # These numbers were made a few lines above: checking each would only cost time here.
        taken = Inferences.model_construct(
            run_id=self._order.run_id,
            start_ns=tuple(self._start_ns),
            latency_ns=tuple(self._latency_ns),
            stages_ns={stage: tuple(column) for stage, column in self._stages_ns.items()},
            between_ns=self._between_ns,
        )
        self._between_ns = 0
        for column in (self._start_ns, self._latency_ns, *self._stages_ns.values()):
            del column[:]
        self._tell(taken)
        if self._order.unit is not None:
            # Of a model, a unit of work is one input.
            units = len(taken.start_ns) * self._order.batch
            self._tell(Counted(run_id=self._order.run_id, units=units))


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
_PROFILED_INFERENCES = 50

# Fields that may differ between two orders of the same loaded model.
_OF_THE_RUN = {
    *("run_id", "warm_up_seconds", "baseline_seconds", "duration_seconds", "count"),
    *("inputs_file", "outputs_file", "profile_file", "steps_seconds", "stage", "repeats"),
    *("unit", "timeout_seconds"),
}


class _SecondLoad(Exception):  # noqa: N818 - not an error: another process takes the order
    """The order needs a load, and this process has had one."""


class Runner:
    """Carries out orders one by one; declines those for which it cannot use its loaded model.

    A model that a process loaded before makes the next one several percent slower on a GPU. So each
    process loads once: one model with one set of settings.

    Once ``has_lost_device`` is true, this process cannot use its device any more: it should end, so
    that another can take its place.
    """

    def __init__(
        self,
        make_backend: Callable[[str], Backend],
        tell: Callable[[Record], None],
        stop: Event,
        clock: Clock = SYSTEM_CLOCK,
        plan_of: Callable[[str], PlannedClock | None] = lambda _: None,
    ) -> None:
        """Take the parts of a run.

        Args:
            tell: Called with events, between inferences only.
            plan_of: Returns the clock of a back-end that only plans inferences.
        """
        self._make_backend = make_backend
        self._tell = tell
        self._stop = stop
        self._machine_clock = self._clock = clock
        self._plan_of = plan_of
        self._surroundings: Surroundings | None = None
        self._backend: Backend | None = None
        # The file of the model, its digest, and that of the file of its head.
        self._file: tuple[Path, str | None, str | None] | None = None
        self._loaded_order: str | None = None
        self._ranges = Ranges()
        # Parts of the cold start, which do not overlap, in nanoseconds.
        self._cold_start_ns: dict[str, int] = {}
        self._outputs: Outputs | None = None
        self.has_lost_device = False

    def run(self, order: Order) -> None:
        """Carry out an order and emit its events; any failure becomes its outcome."""
        outcome: Outcome = "ok"
        skip_reason: Literal["unavailable"] | None = None
        reason: str | None = None
        self._outputs = None
        try:
            plan = self._plan_of(order.backend)
            self._clock = plan or self._machine_clock
            with nullcontext() if plan is None else plan.begun(self._stop):
                self._carry_out(order)
        except _SecondLoad:
            self._tell(Declined(run_id=order.run_id))
            return
        except Cancelled:
            outcome, reason = "cancelled", STOPPED
        except BackendUnavailable as error:
            outcome, skip_reason, reason = "skipped", "unavailable", _one_line(str(error))
        except UserError as error:
            outcome, reason = "failed", _one_line(str(error))
        except Exception as error:
            traceback.print_exc()
            outcome, reason = "failed", _one_line(f"{type(error).__name__}: {error}")
            self.has_lost_device = isinstance(error, DeviceLostError)
        self._tell(
            Finished(
                run_id=order.run_id,
                outcome=outcome,
                reason=reason,
                skip_reason=skip_reason,
                process_peak_bytes=peak_bytes(),
                device_peak_bytes=self._device_peak_bytes(),
                outputs=self._outputs,
            )
        )
        if outcome != "ok" and not self.has_lost_device:
            # A failed process is not trusted again: without its back-end it declines the next
            # order.
            self.close()

    def take(self, surroundings: Surroundings) -> None:
        """Pass on how other work slows this device; from another thread."""
        self._surroundings = surroundings
        backend = self._backend
        if backend is not None:
            backend.take(surroundings)

    def close(self) -> None:
        """Release the loaded backend, if any."""
        backend, self._backend = self._backend, None
        if backend is None:
            return
        try:
            backend.close()
        except Exception:
            traceback.print_exc()
        del backend
        gc.collect()

    def _device_peak_bytes(self) -> int | None:
        try:
            return None if self._backend is None else self._backend.device_peak_bytes()
        except Exception:  # a device that failed may fail at this too, and the run has its outcome
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
            # Again: some facts of the engine of trtexec are known after its run only.
            self._tell_loaded(order, backend, sha256)
        else:
            raise TypeError(f"{order.backend} neither infers nor measures by itself")
        self._rest(order, "baseline_after")
        # No figure is taken any more, and the buffers have the last inference of the steady phase.
        self._outputs = compare_with_first_run(backend, order)
        if order.profile_file is not None:
            self._unless_stopped()
            # The profiled inferences count nowhere else.
            profile = backend.profile(_PROFILED_INFERENCES)
            text = profile.model_dump_json(exclude_none=True, indent=1)
            write_atomic(Path(order.profile_file), text.encode())

    def _tell_loaded(self, order: Order, backend: Backend, sha256: str | None) -> None:
        self._tell(
            Loaded(
                run_id=order.run_id,
                model_sha256=sha256,
                versions={"python": sys.version.split()[0], **backend.versions},
                cold_start_seconds={part: ns / 1e9 for part, ns in self._cold_start_ns.items()},
                input_shapes=dict(backend.input_shapes),
                built=backend.built,
            )
        )

    @contextmanager
    def _cold_start(self, step: str, backend: Backend) -> Iterator[None]:
        """Time a step of the cold start, less those parts of it that the backend distinguishes."""
        begin_ns = self._clock.monotonic_ns()
        yield
        took_ns = self._clock.monotonic_ns() - begin_ns
        found = backend.cold_start_ns.items()
        parts = {name: ns for name, ns in found if name not in self._cold_start_ns}
        self._cold_start_ns.update(parts)
        rest = step
        if step == "build" and "cache_load" in parts:
            # An engine from the cache was not built: the rest of the step belongs to its reading.
            rest = "cache_load"
        rest_ns = max(0, took_ns - sum(parts.values()))
        self._cold_start_ns[rest] = self._cold_start_ns.get(rest, 0) + rest_ns

    def _prepare(self, order: Order) -> tuple[Backend, str | None]:
        """Load the model unless it is loaded; return back-end and digest, if there is a file."""
        now = self._clock.monotonic_ns
        self._cold_start_ns = {}
        wanted = order.model_dump_json(exclude=_OF_THE_RUN)
        if self._loaded_order is not None and (
            self._backend is None or self._loaded_order != wanted
        ):
            raise _SecondLoad
        with self._phase(order, "load"):
            backend = self._backend
            if backend is None:
                begin_ns = now()
                backend = self._make_backend(order.backend)
                self._cold_start_ns["import"] = now() - begin_ns
            model = _model_of(order, backend)
            sha256 = head_sha256 = None
            if model.name and not backend.is_simulated:
                sha256 = sha256_of(model)
            if order.head is not None:
                head_sha256 = sha256_of(find_model(order.head, Path(order.model_directory)))
            file = (model, sha256, head_sha256)
            if self._backend is not None:
                if self._file != file:
                    raise _SecondLoad
                return backend, sha256
            self._unless_stopped()
            self._backend, self._file, self._loaded_order = backend, file, wanted
            if self._surroundings is not None:  # they may have come before it
                backend.take(self._surroundings)
            backend.progress = lambda doing: self._tell(Progress(run_id=order.run_id, doing=doing))
            with self._cold_start("load", backend):
                backend.load(model, order)
        if backend.builds:
            with self._phase(order, "build"):
                self._unless_stopped()
                with self._cold_start("build", backend):
                    backend.build()
        return backend, sha256

    def _warm_up(self, order: Order, backend: Inferring) -> None:
        """Infer until it is steady; the first inference of a freshly loaded model is cold start."""
        now = self._clock.monotonic_ns
        with self._phase(order, "warm_up"):
            begin_ns = now()
            is_fresh = "load" in self._cold_start_ns
            if is_fresh:
                self._unless_stopped()
                with self._cold_start("first_inference", backend):
                    backend.infer()
            if order.outputs_file is not None:
                write_outputs(Path(order.outputs_file), self._outputs_of(order, backend))
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

    def _outputs_of(
        self, order: Order, backend: Inferring
    ) -> "Mapping[str, NDArray[numpy.generic]]":
        """Return the outputs of a data set, or of inputs that vary, in the first axis."""
        usual = backend.inputs()
        outputs_by_name: dict[str, list[NDArray[numpy.generic]]] = {}
        room = _MEMORY_SHARE * (free_memory() or math.inf)
        for batch in self._inputs_of(order, backend, usual):
            self._unless_stopped()
            backend.feed(batch.arrays)
            backend.infer()
            for name, output in backend.outputs().items():
                rows = by_input(output, order.batch)
                # Of a batch that was filled up, the outputs of its own inputs.
                outputs_by_name.setdefault(name, []).append(rows[: batch.number])
                room -= rows.nbytes
            if room < 0:
                raise UserError("the outputs do not fit into memory", "give fewer inputs")
        backend.feed(usual)
        return {name: _joined(parts) for name, parts in outputs_by_name.items()}

    def _inputs_of(
        self, order: Order, backend: Inferring, usual: "Mapping[str, NDArray[numpy.generic]]"
    ) -> Iterator[InputBatch]:
        """Yield the data set of an order, or else built-in inputs that vary."""
        if order.inputs_file is not None:
            specs = {
                name: InputSpec(array.dtype.name, array.shape) for name, array in usual.items()
            }
            data = DataSet(Path(order.inputs_file), specs, order.preprocess)
            yield from reported(data, "running", backend.progress)
            return
        for begin in range(0, VARIED_INPUTS, order.batch):
            arrays = dict(usual)
            for name, values in usual.items():
                # A vector beside images is one for all of them.
                if values.ndim > 0 and len(values) == order.batch:
                    arrays[name] = make_varied(values, begin)
            yield InputBatch(arrays, order.batch)

    def _rest(self, order: Order, phase: PhaseName) -> None:
        """Do nothing for the length of a baseline, with the model loaded."""
        if order.baseline_seconds > 0:
            with self._phase(order, phase) as span:
                until_ns = span.begin_ns + int(order.baseline_seconds * 1e9)
                if self._clock.wait(self._stop, until_ns):
                    raise Cancelled

    def _measure(self, order: Order, backend: Inferring) -> None:
        """Infer, by the pattern if there is one; emit events about once per second."""
        if order.stage is not None:
            # The device's events are those of a whole inference.
            repeat = backend.repeat(order.stage, order.repeats)
            repeat = self._ranges.each(order.stage, repeat)
            calls = Calls(repeat, repeat, backend.stages_ns)
        else:
            calls = Calls(
                infer=self._ranges.each("inference", backend.infer),
                infer_timed=self._ranges.each("inference", backend.infer_timed),
                stages_ns=backend.stages_ns,
                stages=backend.stages,
                slots=backend.slots,
            )
        with quiet_collector(), self._phase(order, "steady") as span:
            Steady(order, calls, self._tell, self._stop, self._clock, span).run()

    def _unless_stopped(self) -> None:
        if self._stop.is_set():
            raise Cancelled

    @contextmanager
    def _phase(self, order: Order, phase: PhaseName) -> Iterator[_Span]:
        """Emit both edges of a phase, however it ends."""
        span = _Span(self._clock.monotonic_ns())
        self._tell(Phase(run_id=order.run_id, phase=phase, edge="begin", at_ns=span.begin_ns))
        try:
            with self._ranges.range(f"{phase} {order.device} {Path(order.model).name}"):
                yield span
        finally:
            end_ns = self._clock.monotonic_ns() if span.end_ns is None else span.end_ns
            self._tell(Phase(run_id=order.run_id, phase=phase, edge="end", at_ns=end_ns))


def _model_of(order: Order, backend: Backend) -> Path:
    """Return the file that an order names, or an empty path if a server has the model."""
    if backend.is_simulated:
        return Path(order.model)
    if order.model:
        return find_model(order.model, Path(order.model_directory))
    if order.scrape is None and order.server is None:
        return find_executable(next(iter(order.program), ""))
    return Path()


def by_input(output: "NDArray[numpy.generic]", batch: int) -> "NDArray[numpy.generic]":
    """Return an output with one item per input in its first axis, or one for the whole batch."""
    import numpy

    rows = numpy.atleast_1d(output)
    if len(rows) == batch:
        return rows
    if rows.size and len(rows) % batch == 0:
        return rows.reshape(batch, len(rows) // batch, *rows.shape[1:])
    return rows[None]


def _joined(parts: "Sequence[NDArray[numpy.generic]]") -> "NDArray[numpy.generic]":
    """Return the outputs of all inferences as one array."""
    import numpy

    if len({part.shape[1:] for part in parts}) == 1:
        return numpy.concatenate(parts)
    # Their length depends on the data: the rows of all inputs follow each other.
    return numpy.concatenate([part.reshape(-1, *part.shape[2:]) for part in parts])


def is_settled(medians: Sequence[float]) -> bool:
    """Return whether the last three of the windows agree within 5 % in their median latency.

    >>> is_settled([9.0, 5.1, 5.0, 5.2]), is_settled([9.0, 5.1, 5.0])
    (True, False)
    """
    last = medians[-3:]
    return len(last) == 3 and max(last) <= 1.05 * min(last)


def peak_bytes(status: Path = Path("/proc/self/status")) -> int | None:
    """Return the peak resident memory of this process, or ``None``.

    ``getrusage`` would return the parent's peak if that is higher: it survives ``exec``.
    """
    with suppress(OSError):
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return None


def _one_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[0][:400] if lines else "no reason was given"
