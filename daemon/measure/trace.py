"""A run in progress: what its worker has said so far.

Words of this folder:

- run: one order to a worker, from its start to its report. A round is a run of a bench that counts,
  a pass one round of each accelerator.
- steady phase: the time in which the work is measured, also called window. Idle phases are before
  and after it, with the model loaded and nothing to do; their power is the baseline.
- line: one line of a telemetry source. A sample is all that it says of one moment, a reading is one
  value of it, such as the power of a rail.
- inference: one call of the model. A unit is the workload's own measure, such as a token. A piece
  is whatever energy is divided by: an inference, a unit or, in a lock-in measurement, also a stage
  or the work that an application repeats.
- step: of a sensor, the smallest difference between two readings; of a lock-in measurement, a time
  with work (on) or without (off).
"""

from array import array
from bisect import bisect_left
from dataclasses import dataclass, field, replace
from itertools import pairwise
from operator import add
from typing import Any, NamedTuple

from ...parsers.inference.events import (
    Counted,
    Finished,
    Hello,
    Inferences,
    Loaded,
    Outputs,
    Phase,
    PhaseName,
    Process,
    RunEvent,
    StageName,
)
from ...parsers.inference.placement import Built
from ...parsers.values import Device
from .blocks import at_positions
from .report import Interval, Outcome, RunReport, SkipReason, Span, WorkPhase


class OnStep(NamedTuple):
    """A time in which ``pieces`` ran back to back."""

    begin_ns: int
    end_ns: int
    pieces: int


class Pattern(NamedTuple):
    """A lock-in measurement as it was planned.

    Attributes:
        steps_seconds: Lengths of off- and on-steps in turn; the first and last are off.
        stage: The stage that is repeated in place of the inference.
        repeats: How often, per inference that the worker reports.
    """

    seconds: float
    seed: int
    steps_seconds: tuple[float, ...]
    stage: StageName | None = None
    repeats: int = 1


_ON_DEVICE: tuple[StageName, ...] = ("h2d", "compute", "body", "head", "d2h")


@dataclass(slots=True)
class RunTrace:
    """One run in progress; its executor sets the fields, and ``add`` adds the worker's events.

    A field that ``RunReport`` has too means the same there.

    Attributes:
        uncertain_ns: Greatest error of an edge of the steady phase.
        start_ns: shape (n,), start of each inference of the steady phase; ``latency_ns`` is the
            duration of each.
        stages_ns: Stage to shape (m,), its duration in each inference whose stages were timed.
        between_ns: Time that a worker spent between inferences, with what it measured; ``None`` if
            it did not start them itself.
        counts_inferences: False for a program that only marks its window.
        inference_count: Inferences of the steady phase, if they were counted and not all timed. The
            latency of the others is unknown, and so is whether sampling kept step with them.
        missed_inferences: Misses that the application counted, if it did not send all times.
        has_device_clock: False if the stages use the host's clock.
        weight_bytes: Bytes of weights that a server reads for a token.
        throttle_events: Counted in the steady window; ``None`` leaves that to the telemetry.
        suspended_ns: Growth of CLOCK_BOOTTIME minus CLOCK_MONOTONIC from start to end.
        on_steps: Those of its ``pattern``, as an application did them; a worker's are found by its
            inferences.
    """

    run_id: str
    workload: str
    backend: str
    device: Device
    started_ns: int
    started_wall_ns: int
    model: str | None = None
    head: str | None = None
    batch: int = 1
    process: Process = field(default_factory=Process)
    lateness_seconds: float | None = None
    ended_ns: int | None = None
    outcome: Outcome | None = None
    reason: str | None = None
    skip_reason: SkipReason | None = None
    worker_log: tuple[str, ...] = ()
    begins: dict[PhaseName, int] = field(default_factory=dict)
    ends: dict[PhaseName, int] = field(default_factory=dict)
    uncertain_ns: int = 0
    start_ns: "array[int]" = field(default_factory=lambda: array("q"))
    latency_ns: "array[int]" = field(default_factory=lambda: array("q"))
    stages_ns: "dict[StageName, array[int]]" = field(default_factory=dict)
    between_ns: int | None = None
    model_sha256: str | None = None
    versions: dict[str, str] = field(default_factory=dict)
    cold_start_seconds: dict[str, float] = field(default_factory=dict)
    input_shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    built: Built | None = None
    process_peak_bytes: int | None = None
    device_peak_bytes: int | None = None
    outputs: Outputs | None = None
    counts_inferences: bool = True
    inference_count: int | None = None
    unit: str | None = None
    units: float | None = None
    units_interval: Interval | None = None
    work_phases: tuple[WorkPhase, ...] = ()
    deadline_seconds: float | None = None
    missed_inferences: int | None = None
    has_device_clock: bool = True
    weight_bytes: int | None = None
    throttle_events: int | None = None
    suspended_ns: int = 0
    pattern: Pattern | None = None
    on_steps: tuple[OnStep, ...] = ()

    def shared_fields(self) -> dict[str, Any]:
        """Return what a report takes over as it is: the fields of both that have one name."""
        fields: dict[str, Any] = {}
        for name in RunReport.model_fields:
            if hasattr(self, name):
                fields[name] = getattr(self, name)
        return fields

    def add(self, event: RunEvent) -> bool:
        """Add one event of the worker.

        Return False, without a change, if it belongs to another run or breaks the protocol: an end
        before its begin, or inferences with a different number of latencies.
        """
        if isinstance(event, Hello) or event.run_id != self.run_id:
            return False
        if isinstance(event, Phase):
            return self._add_phase(event)
        if isinstance(event, Loaded):
            self.model_sha256 = event.model_sha256
            self.versions.update(event.versions)
            self.cold_start_seconds.update(event.cold_start_seconds)
            self.input_shapes = event.input_shapes
            self.built = event.built
        elif isinstance(event, Inferences):
            if len(event.start_ns) != len(event.latency_ns):
                return False
            self.start_ns.extend(event.start_ns)
            self.latency_ns.extend(event.latency_ns)
            for stage, durations in event.stages_ns.items():
                self.stages_ns.setdefault(stage, array("q")).extend(durations)
            if event.between_ns is not None:
                self.between_ns = (self.between_ns or 0) + event.between_ns
        elif isinstance(event, Counted):
            if event.inferences is not None:
                self.inference_count = event.inferences
            self.counts_inferences = self.inference_count is not None or bool(self.start_ns)
            self._add_units(event)
        elif isinstance(event, Finished):
            self.finish(event.outcome, event.reason, event.skip_reason, event.worker_log)
            self.process_peak_bytes = event.process_peak_bytes
            self.device_peak_bytes = event.device_peak_bytes
            self.outputs = event.outputs
        return True

    def finish(
        self,
        outcome: Outcome,
        reason: str | None = None,
        skip_reason: SkipReason | None = None,
        worker_log: tuple[str, ...] = (),
    ) -> None:
        """Set how the run ended; it replaces what was set before."""
        self.outcome, self.reason = outcome, reason
        self.skip_reason, self.worker_log = skip_reason, worker_log

    def without_events(self) -> "RunTrace":
        """Return the trace without phases and inferences, of which a report can be made always."""
        return replace(
            self,
            begins={},
            ends={},
            start_ns=array("q"),
            latency_ns=array("q"),
            stages_ns={},
            between_ns=None,
        )

    def _add_units(self, event: Counted) -> None:
        units, so_far = event.units, self.units or 0.0
        if units is None or self.unit is None:
            return
        if event.units_interval or self.units_interval:
            low, high = event.units_interval or (units, units)
            sure = self.units_interval or Interval(low=so_far, high=so_far)
            self.units_interval = Interval(low=sure.low + low, high=sure.high + high)
        self.units = so_far + units

    def _add_phase(self, event: Phase) -> bool:
        if event.phase == "steady":
            self.uncertain_ns = max(self.uncertain_ns, event.uncertain_ns or 0)
        if event.edge == "begin":
            self.begins[event.phase] = event.at_ns
            self.ends.pop(event.phase, None)
            return True
        begin_ns = self.begins.get(event.phase)
        if begin_ns is None or event.at_ns < begin_ns:
            return False
        self.ends[event.phase] = event.at_ns
        return True

    @property
    def phases(self) -> dict[PhaseName, Span]:
        """Phases that ended. A steady phase that was cut short ends with its last whole inference.

        Incomplete work does not count, nor does its time.
        """
        spans: dict[PhaseName, Span] = {}
        for phase, end_ns in self.ends.items():
            spans[phase] = Span(begin_ns=self.begins[phase], end_ns=end_ns)
        begin = self.begins.get("steady")
        last = max(map(add, self.start_ns, self.latency_ns), default=0)
        if begin is not None and "steady" not in spans and last > begin:
            spans["steady"] = Span(begin_ns=begin, end_ns=last)
        return spans

    def telemetry_window(self) -> Span | None:
        """Return the steady phase with its idle phases; ``None`` without a steady phase."""
        phases = self.phases
        steady = phases.get("steady")
        if steady is None:
            return None
        return Span(
            begin_ns=min(steady.begin_ns, phases.get("baseline_before", steady).begin_ns),
            end_ns=max(steady.end_ns, phases.get("baseline_after", steady).end_ns),
        )

    def device_ns(self) -> "array[int]":
        """Return shape (m,), the time on the device of each inference whose stages were timed."""
        if not self.has_device_clock:
            return array("q")
        spans = [self.stages_ns[stage] for stage in _ON_DEVICE if stage in self.stages_ns]
        return array("q", map(sum, zip(*spans, strict=True)))

    def completed(self, window: Span) -> "tuple[array[int], array[int]]":
        """Return starts, increasing, and latencies of inferences entirely inside a window."""
        starts, latencies = _in_order(self.start_ns, self.latency_ns)
        ends = array("q", map(add, starts, latencies))
        if starts and starts[0] >= window.begin_ns and max(ends) <= window.end_ns:
            return starts, latencies
        inside_starts, inside_latencies = array("q"), array("q")
        for i in range(bisect_left(starts, window.begin_ns), len(starts)):
            if ends[i] <= window.end_ns:
                inside_starts.append(starts[i])
                inside_latencies.append(latencies[i])
        return inside_starts, inside_latencies


def _in_order(starts: "array[int]", latencies: "array[int]") -> "tuple[array[int], array[int]]":
    """Return starts, increasing, and their latencies.

    They are in order unless several were in flight at once, which are reported as they end.
    """
    if all(before <= after for before, after in pairwise(starts)):
        return starts, latencies
    rising = sorted(range(len(starts)), key=starts.__getitem__)
    return array("q", at_positions(starts, rising)), array("q", at_positions(latencies, rising))
