"""One order becomes the events of one run; the back-end of the last order stays loaded."""

import gc
import io
import json
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from threading import Event
from typing import TypeAlias

from ...parsers.errors import BackendUnavailable, DeviceLostError, Mendable
from ...parsers.inference.events import Ending, Finished, Loaded, Order, Phase, PhaseName
from ...parsers.records import Record
from ..backends.base import Backend, Inferring, Profiled, SelfTimed
from ..backends.cuda_runtime import Ranges
from ..base import SYSTEM_CLOCK, Clock, write_atomic
from ..children.start import find_executable
from ..models.files import find_model, sha256_of
from .steady import Steady, quiet_collector


class ColdStart:
    """The parts of a cold start, which do not overlap.

    Attributes:
        parts_ns: Name to nanoseconds.
    """

    def __init__(self) -> None:
        self.parts_ns: dict[str, int] = {}
        self._told: set[str] = set()

    def add(self, step: str, took_ns: int, backend: Backend) -> None:
        """Add a step, less those parts of it that the backend tells apart."""
        parts = {name: ns for name, ns in backend.cold_start_ns().items() if name not in self._told}
        self._told.update(parts)
        self.parts_ns.update(parts)
        # What was read from a cache was not built: its rest goes with the reading.
        rest = "cache_load" if step == "build" and "cache_load" in parts else step
        rest_ns = max(0, took_ns - sum(parts.values()))
        self.parts_ns[rest] = self.parts_ns.get(rest, 0) + rest_ns


# The warm-up goes on until it is steady, for at most so many times the time it was given.
_WARM_UP_FACTOR = 3
_WINDOW_NS = 200_000_000
_WINDOW_LENGTH = 3
_REASON_LENGTH = 400
_PROFILED_INFERENCES = 50

# What may differ between two orders that the same loaded backend can carry out.
_OF_THE_RUN = {
    *("run_id", "warm_up_seconds", "baseline_seconds", "duration_seconds", "count"),
    *("outputs_file", "profile_file"),
}

_Identity: TypeAlias = "tuple[Path, str, str]"


class Cancelled(Exception):  # noqa: N818 - not an error: it was asked for
    """The worker was told to stop."""


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
        """Take what a run needs.

        Args:
            make_backend: Returns the back-end of a name without a model; imports its library.
            tell: Takes events; called between inferences only.
            stop: Once set, the run in progress ends ``cancelled``.
            clock: CLOCK_MONOTONIC.
        """
        self._make_backend = make_backend
        self._tell = tell
        self._stop = stop
        self._clock = clock
        self._backend: Backend | None = None
        self._identity: _Identity | None = None
        self._imported: set[str] = set()
        self._ranges = Ranges()
        self.is_spent = False

    def run(self, order: Order) -> None:
        """Carry out an order and tell of it; whatever goes wrong becomes its ending."""
        ending: Ending = "ok"
        reason: str | None = None
        try:
            self._carry_out(order)
        except Cancelled:
            ending, reason = "cancelled", "the worker was told to stop"
        except BackendUnavailable as error:
            ending, reason = "unavailable", _one_line(str(error))
        except Mendable as error:
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
        """Release the backend that is loaded, if one is."""
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
            raise Mendable(
                "the order names both or neither of count and duration_seconds", "give one of them"
            )
        backend, sha256, cold_start = self._prepare(order)
        if isinstance(backend, Inferring):
            self._warm_up(order, backend, cold_start)
        self._tell_loaded(order, backend, sha256, cold_start)
        self._rest(order, "baseline_before")
        if isinstance(backend, Inferring):
            self._measure(order, backend)
        elif isinstance(backend, SelfTimed):
            for event in backend.measure(order, self._stop):
                self._tell(event)
            self._unless_stopped()
            self._tell_loaded(order, backend, sha256, cold_start)
        else:
            raise TypeError(f"{order.backend} neither infers nor measures by itself")
        self._rest(order, "baseline_after")
        if order.profile_file is not None:
            self._unless_stopped()
            _write_profile(backend, Path(order.profile_file))

    def _tell_loaded(
        self, order: Order, backend: Backend, sha256: str, cold_start: ColdStart
    ) -> None:
        self._tell(
            Loaded(
                run_id=order.run_id,
                model_sha256=sha256,
                versions={"python": sys.version.split()[0], **backend.versions()},
                cold_start_seconds={part: ns / 1e9 for part, ns in cold_start.parts_ns.items()},
                built=backend.built(),
            )
        )

    def _prepare(self, order: Order) -> tuple[Backend, str, ColdStart]:
        """Load the model unless it is loaded; return back-end, digest and cold start."""
        now = self._clock.monotonic_ns
        cold_start = ColdStart()
        with self._phase(order, "load"):
            begin_ns = now()
            backend = self._make_backend(order.backend)
            if order.backend not in self._imported:
                self._imported.add(order.backend)
                cold_start.parts_ns["import"] = now() - begin_ns
            if order.model:
                model = find_model(order.model, Path(order.model_directory))
            else:
                model = find_executable(next(iter(order.program), ""))
            sha256 = sha256_of(model)
            wanted = (model, sha256, order.model_dump_json(exclude=_OF_THE_RUN))
            if self._backend is not None and self._identity == wanted:
                return self._backend, sha256, cold_start
            self.close()
            self._unless_stopped()
            self._backend, begin_ns = backend, now()
            backend.load(model, order)
            cold_start.add("load", now() - begin_ns, backend)
        if backend.builds:
            with self._phase(order, "build"):
                self._unless_stopped()
                begin_ns = now()
                backend.build()
                cold_start.add("build", now() - begin_ns, backend)
        self._identity = wanted
        return backend, sha256, cold_start

    def _warm_up(self, order: Order, backend: Inferring, cold_start: ColdStart) -> None:
        """Infer until it is steady; the first inference of a freshly loaded model is told apart."""
        now = self._clock.monotonic_ns
        with self._phase(order, "warm_up"):
            begin_ns = now()
            if "load" in cold_start.parts_ns:
                self._unless_stopped()
                backend.infer()
                cold_start.add("first_inference", now() - begin_ns, backend)
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
        """Infer back to back, and tell of it about once a second, between two inferences."""
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
        """Tell both edges of a phase, however it ends."""
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
    """Write what the backend gives for its inputs, whole or not at all."""
    import numpy

    backend.infer()
    content = io.BytesIO()
    numpy.savez(content, *(output for _, output in sorted(backend.outputs().items())))
    write_atomic(path, content.getbuffer())


def _write_profile(backend: Backend, path: Path) -> None:
    """Write the time of each layer, from inferences that were watched and are in no figure."""
    if not isinstance(backend, Profiled):
        raise Mendable("this back-end cannot tell the time of a layer", "leave the profile out")
    layers = backend.profile(_PROFILED_INFERENCES)
    told = {"inferences": _PROFILED_INFERENCES, "layers_ns": dict(layers)}
    write_atomic(path, json.dumps(told, indent=1).encode())


def is_settled(medians: Sequence[float]) -> bool:
    """Tell whether the last three windows agree within 5 % in their median latency.

    Args:
        medians: shape (n,), of windows in the order of time, in any unit.

    >>> is_settled([9.0, 5.1, 5.0, 5.2]), is_settled([9.0, 5.1, 5.0])
    (True, False)
    """
    last = medians[-3:]
    return len(last) == 3 and max(last) <= 1.05 * min(last)


def peak_bytes(status: Path = Path("/proc/self/status")) -> int | None:
    """Return the peak resident memory of this process; ``None`` where Linux does not tell.

    ``getrusage`` would answer with the parent's peak where that is higher: it survives ``exec``.
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
