"""Pairing of a run with the telemetry of its window: trace and samples become one report.

What the run did, what the board did meanwhile, who else worked and whether the samples kept step
with the work are found first, each on its own. Flags follow from these. Energy comes last, because
some flags withhold it. The limits of the flags are in ``quality.py``.
"""

import math
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...parsers import signals
from ...parsers.inference.events import PhaseName, StageName
from ...parsers.inference.placement import Placement
from ...parsers.rails import RailRule
from ...parsers.signals import RAIL_POWER
from . import quality, rhythm
from .blocks import WindowSlice
from .counter import counter_total
from .deadlines import deadline_report
from .dla import InFlight, dla_was_on, foreign_dla_activity
from .energy import Timing, interval_ns
from .energy import inside as within
from .energy_report import (
    IDLE_PHASES,
    NVML_SENSOR_SECONDS,
    MeasuredEnergy,
    lacks_a_total_rail,
    measure_energy,
    module_curve,
    timing_of,
)
from .latency import distribution, throughput
from .possible import limits_of, possible_of
from .processes import (
    foreign_gpu_load,
    least_available_bytes,
    other_processes,
    own_gpu_bytes,
)
from .report import (
    Distribution,
    Energy,
    EnergyMethod,
    Environment,
    Figure,
    Flag,
    Interval,
    LockInReport,
    Possible,
    ProcessShare,
    RunReport,
    RunTelemetry,
    Span,
)
from .sensor import as_shown, follows_work, suspect_rail, update_seconds, updates
from .trace import RunTrace
from .utilization import telemetry

if TYPE_CHECKING:
    from ...parsers.onnx.costs import ModelWork


def correlate(
    trace: RunTrace,
    samples: WindowSlice | None,
    *,
    rule: RailRule | None = None,
    others: Mapping[str, Sequence[Span]] | None = None,
    environment: Environment = Environment(),  # noqa: B008 - immutable
    flags: Iterable[Flag] = (),
    clock_seconds: float | None = 0.0,
    length_seconds: float = 0.0,
    in_flight: InFlight | None = None,
    second: WindowSlice | None = None,
    model_work: "ModelWork | None" = None,
) -> RunReport:
    """Pair a run with the telemetry of its own window.

    A run that failed or was cut short gets the figures that are known. Totals are given with their
    flags. Four flags withhold energy per inference and per unit (``quality.withholding``):

    - ``insufficient_samples``: the window is too short, has fewer than 100 samples, or has fewer
      than 200 inferences and fewer than 200 units.
    - ``aliased``: the samples kept step with the inferences.
    - ``sensor_suspect``: the readings of power cannot be those of a sensor that works.
    - ``overlapped``: another run worked at the same time, or another program on the same GPU, as
      far as NVML shows it.

    Energy from a hardware counter needs no minimum number of samples and no check for aliasing,
    only a reading on each side of both edges. Energy per inference is also withheld for fewer than
    200 inferences if there are 200 units. Net energy is also withheld after a drift of the idle
    power, and where the gross energy has an interval and the net energy has none.

    Args:
        samples: Samples of ``trace.telemetry_window()`` with a neighbour on each side, or ``None``.
        rule: How the board's rails add up, if known.
        others: Working phases of other runs, by run id. One that overlaps the window is named; one
            that overlaps an idle phase leaves no net energy, and a flag. So does work of others
            there, as far as the telemetry shows it.
        environment: Environment of the run; the versions of the trace are added.
        flags: Flags that were found elsewhere.
        clock_seconds: Possible difference between the times of samples and run, beyond the lag of
            an arrival; if ``None``, it is unknown, and no interval is given.
        length_seconds: The window may be longer or shorter by so much, because the clock of the
            samples may have been set within it. The daemon's samples have a clock that nobody sets.
        in_flight: Time of tegrascope's own runs on each device; if ``None``, it is unknown, and
            only the run's own core is checked for work of others.
        second: Readings of the total rails at another interval than ``samples``, by the same names
            of columns and from the same time; they count if at least half of them are there.
        model_work: Operations and bytes of an inference, if they are known.
    """
    raised = {*flags, *_flags_without_telemetry(trace, environment)}
    report = report_without_window(trace, environment, samples)
    phases = trace.phases
    window = phases.get("steady")
    if window is None or window.seconds <= 0:
        # The run failed before it was steady: there is no window to pair.
        return report.model_copy(update={"quality": quality.in_order(raised)})

    arrived = samples or WindowSlice()
    if quality.late_seconds(arrived) > quality.LATE_AT_MOST_SECONDS:
        raised.add("late_samples")
    timed = quality.timed(arrived)
    update, readings = _update_seconds(timed, rule, window), timed
    beside = _whole_series(second, window)
    if rule is not None and update is not None:
        readings = updates(timed, rule, update)
        beside = beside and updates(beside, rule, update)
    run = _Run(
        trace=trace,
        phases=phases,
        window=window,
        samples=timed,
        readings=readings,
        update_seconds=update,
        rule=rule,
        environment=environment,
        other_runs=others or {},
        in_flight=in_flight or _always_in_flight,
        second=beside,
    )

    work = _work_of(trace, window)
    board = _telemetry_of(run)
    neighbours = _neighbours_of(run, raised)
    work_rhythm = _rhythm_of(run, work)

    method = _method_of(run)
    raised |= _flags_of_window(run, work, board, neighbours, work_rhythm, method)
    suspect: str | None = None
    if rule is not None:
        suspect = suspect_rail(run.samples, rule, window, run.idle_phases)
    if suspect is not None:
        raised.add("sensor_suspect")

    divisor, units = work.divisor(), work.units
    if quality.withholding(raised, method):
        # Energy of the whole window is given with its flags, but not by piece of work.
        divisor = units = None
    measured_phases = phases
    if neighbours.disturbance is not None:
        # Power of an idle phase in which something worked is not idle power.
        measured_phases = {"steady": window}
    timing = _timing_of(run, clock_seconds)._replace(length=length_seconds)
    measured = measure_energy(
        run.readings, measured_phases, rule, divisor, timing, work_rhythm.beats, units, run.second
    )
    raised |= _flags_of_energy(measured)
    possible, is_above = _possible(trace, environment, board, model_work, work, window)
    if is_above:
        raised.add("above_bound")
    in_order = quality.in_order(raised)

    return report.model_copy(
        update={
            "inferences": work.completed,
            "inferences_interval": work.limits,
            "units_per_second": work.units_per_second(window),
            "latency": distribution(work.latencies),
            "device_latency": distribution(trace.device_ns()),
            "stages": _stages_of(trace),
            "throughput_per_second": throughput(work.completed, trace.batch, window.seconds),
            "measuring_share": _measuring_share(trace, window),
            "possible": possible,
            "telemetry": board,
            "deadline": deadline_report(
                trace.deadline_seconds,
                work.starts,
                work.latencies,
                run.samples,
                run.other_runs,
                trace.missed_inferences,
            ),
            "energy": _energy_of(run, measured, neighbours, timing, in_order, suspect),
            "lock_in": _lock_in_of(run, timing, in_order),
            "quality": in_order,
            "overlapping_runs": neighbours.overlapping_runs,
            "gpu_peak_bytes": own_gpu_bytes(run.samples, run.whole),
            "least_available_bytes": least_available_bytes(run.samples, run.whole),
            "other_processes": neighbours.processes,
            "foreign_dla_processes": neighbours.foreign_dla_processes(),
        }
    )


@dataclass(frozen=True)
class _Run:
    """A run and what else is known of its time: the arguments of ``correlate``, made ready.

    Attributes:
        window: Its steady phase, to which all figures belong.
        samples: Without those whose time is unknown.
        readings: The samples at which the sensor of the rails was updated.
        update_seconds: How often that is, if the lines show a slower sensor.
        second: The second series, if there is a whole one; of a slower sensor, its updates.
    """

    trace: RunTrace
    phases: Mapping[PhaseName, Span]
    window: Span
    samples: WindowSlice
    readings: WindowSlice
    update_seconds: float | None
    rule: RailRule | None
    environment: Environment
    other_runs: Mapping[str, Sequence[Span]]
    in_flight: InFlight
    second: WindowSlice | None

    @property
    def idle_phases(self) -> list[Span]:
        """The loaded-idle phases, in order of time."""
        return [self.phases[name] for name in IDLE_PHASES if name in self.phases]

    @property
    def whole(self) -> Span:
        """The window with the idle phases."""
        return self.trace.telemetry_window() or self.window

    @property
    def times_ns(self) -> Sequence[int]:
        """The times of the readings of the window."""
        inside = self.readings.inside(self.window.begin_ns, self.window.end_ns)
        return self.readings.times_ns[inside]

    @property
    def sensor_ns(self) -> Sequence[int]:
        """The times at which a sensor with a period of its own was updated in the window."""
        seconds = self.update_seconds
        if self.environment.power_reading == "instant":
            seconds = NVML_SENSOR_SECONDS
        return rhythm.sensor_times(self.window, seconds)


@dataclass(frozen=True)
class _Work:
    """The work of a run in its window.

    Attributes:
        starts: Start of each inference that was timed, shape (n,), increasing; ``latencies`` are
            their durations.
        completed: Number of inferences, timed or only counted.
        inferences: The same; ``None`` for a program that does not count them.
        units: Number of units of work with its limits; ``None`` if they were not counted.
    """

    starts: Sequence[int]
    latencies: Sequence[int]
    completed: int
    inferences: int | None
    units: Figure | None

    @property
    def limits(self) -> Interval | None:
        """Limits of ``inferences`` that were only counted: an edge of the window may cut one."""
        if not self.inferences or self.starts:
            return None
        return Interval(low=self.inferences - 1, high=self.inferences + 1)

    @property
    def pieces(self) -> int | None:
        """Number of pieces that the power may follow: inferences or, if not counted, units."""
        if self.inferences is None and self.units is not None:
            return round(self.units.value)
        return self.inferences

    def units_per_second(self, window: Span) -> float | None:
        """Return the rate of the units in the window; ``None`` if they were not counted."""
        if self.units is None:
            return None
        return self.units.value / window.seconds

    def divisor(self) -> Figure | None:
        """Return the number by which energy is divided; ``None`` if it is too small.

        The flag ``insufficient_samples`` is not enough: 200 units of work lower it, but do not make
        a figure per inference.
        """
        if self.inferences is None or self.inferences < quality.MINIMUM_INFERENCES:
            return None
        return Figure.limited(self.inferences, self.limits)


@dataclass(frozen=True)
class _Neighbours:
    """All other work during the run, as far as it is known.

    Attributes:
        overlapping_runs: Runs of ours that worked in the window.
        processes: Other processes that used the board, with the idle phases.
        foreign_dla_cores: DLA cores on which work of other programs was seen.
        disturbance: The work in an idle phase, so that idle power is unknown.
    """

    overlapping_runs: tuple[str, ...]
    processes: tuple[ProcessShare, ...]
    foreign_dla_cores: set[str]
    disturbance: str | None

    def foreign_dla_processes(self) -> tuple[str, ...]:
        """Return the names of the programs that worked on those cores, as far as known."""
        names = []
        for process in self.processes:
            is_named = process.name != signals.UNKNOWN_PROCESS
            if is_named and self.foreign_dla_cores & process.dla_seconds.keys():
                names.append(process.name)
        return tuple(names)


@dataclass(frozen=True)
class _Rhythm:
    """How the sampling and the work keep step.

    Attributes:
        starts: Starts of the inferences, assumed to be even where they were not timed; empty if
            nothing was counted.
        beats: Rhythms of the work that the sampling turns into slow change.
    """

    starts: Sequence[int]
    beats: list[rhythm.Beat]


def _flags_without_telemetry(trace: RunTrace, environment: Environment) -> set[Flag]:
    """Return the flags that need no window and no sample."""
    raised: set[Flag] = set()
    if environment.simulated:
        raised.add("simulated")
    if quality.suspended(trace.suspended_ns):
        raised.add("suspended")
    return raised


def _update_seconds(samples: WindowSlice, rule: RailRule | None, window: Span) -> float | None:
    """Return how often the rails are updated, if that is less often than lines come."""
    columns = RAIL_POWER.by_label(samples.columns)
    if rule is None or not set(rule.total) <= columns.keys():
        return None
    inside = samples.inside(window.begin_ns, window.end_ns)
    return update_seconds(samples.times_ns[inside], [columns[name][inside] for name in rule.total])


def _always_in_flight(_device: str, begin_ns: int, end_ns: int) -> float:
    """Return all of the time as our own, so that no work on another core is called foreign."""
    return (end_ns - begin_ns) / 1e9


def _whole_series(second: WindowSlice | None, window: Span) -> WindowSlice | None:
    """Return a second series if at least half of its readings of the window are there."""
    if second is None:
        return None
    interval = interval_ns(second.times_ns)
    inside = second.inside(window.begin_ns, window.end_ns)
    expected = (window.end_ns - window.begin_ns) / (interval or math.inf)
    if inside.stop - inside.start < max(expected / 2, 1):
        return None
    return second


def _work_of(trace: RunTrace, window: Span) -> _Work:
    """Return what the run completed in its window."""
    starts, latencies = trace.completed(window)
    completed = len(starts)
    if trace.inference_count is not None:
        # An application may time only some of its inferences.
        completed = trace.inference_count
    inferences, units = None, None
    if trace.counts_inferences:
        inferences = completed
    if trace.units is not None:
        units = Figure.limited(trace.units, trace.units_interval)
    return _Work(starts, latencies, completed, inferences, units)


def _possible(
    trace: RunTrace,
    environment: Environment,
    board: RunTelemetry | None,
    model_work: "ModelWork | None",
    work: _Work,
    window: Span,
) -> tuple[Possible | None, bool]:
    """Return the shares of what the board can do, and whether one is above its bound."""
    limits = limits_of(trace, environment)
    if limits is None:
        return None, False
    per_second = work.completed / window.seconds
    return possible_of(trace, limits, board, model_work, per_second, work.units_per_second(window))


def _measuring_share(trace: RunTrace, window: Span) -> float | None:
    """Return the share of the working time that the worker spent between inferences.

    A bare loop has nothing there. With several inferences in flight the device may work meanwhile,
    and the share is the most that the measuring can cost.
    """
    if trace.between_ns is None:
        return None
    working_seconds = window.seconds
    if trace.pattern is not None:
        working_seconds = sum(trace.pattern.steps_seconds[1::2])
    if working_seconds <= 0:
        return None
    return min(trace.between_ns / 1e9 / working_seconds, 1.0)


def _telemetry_of(run: _Run) -> RunTelemetry | None:
    """Return the loads, clocks and temperatures of the window; ``None`` without any sample."""
    if not run.samples.times_ns:
        return None
    source = run.environment.telemetry_source
    return telemetry(run.samples, run.window, run.trace.throttle_events, source)


def _neighbours_of(run: _Run, raised: Set[Flag]) -> _Neighbours:
    """Return who else worked on the board during the run and its idle phases.

    ``raised`` are the flags that were found elsewhere.
    """
    whole = run.whole
    processes = other_processes(run.samples, whole)
    return _Neighbours(
        overlapping_runs=quality.overlapping(run.window, run.other_runs),
        processes=processes,
        foreign_dla_cores=foreign_dla_activity(
            run.samples, whole, run.trace.device, run.idle_phases, run.in_flight
        ),
        disturbance=_disturbance(run, processes, raised),
    )


def _disturbance(run: _Run, processes: Sequence[ProcessShare], raised: Set[Flag]) -> str | None:
    """Return what worked in an idle phase, so that idle power is not known; ``None`` if nothing.

    It is the reason of the flag ``baseline_disturbed`` and of the missing net energy.
    """
    for phase in run.idle_phases:
        if quality.overlapping(phase, run.other_runs):
            return "another run worked in an idle phase"
    busiest = quality.busiest_gpu_ratio(run.samples, run.idle_phases)
    if busiest is not None and busiest > quality.BUSY_RATIO:
        sentence = f"the GPU was {busiest:.0%} busy in an idle phase, by another program"
        names = [process.name for process in processes if process.gpu_memory_bytes]
        if names:
            sentence += f"; processes with GPU memory: {', '.join(names)}"
        return sentence
    for phase in run.idle_phases:
        # Each phase alone: work that one of them shows is lost in the tolerance of a whole run.
        if foreign_dla_activity(run.samples, phase, run.trace.device, [phase], run.in_flight):
            return "a DLA was busy in an idle phase"
    if run.idle_phases and "baseline_disturbed" in raised:
        return "something worked in an idle phase"
    return None


def _rhythm_of(run: _Run, work: _Work) -> _Rhythm:
    """Return how the samples of the window keep step with the work."""
    if work.starts:
        beats = rhythm.folded_rhythm(run.times_ns, work.starts)
        beats += rhythm.folded_rhythm(run.sensor_ns, work.starts)
        return _Rhythm(work.starts, beats)
    # Inferences were counted, not timed: they are taken to be even.
    starts = rhythm.evenly_spaced(run.window, work.pieces)
    miscount = 1
    curve = module_curve(run.readings, run.rule)
    if starts and curve:
        cycles = rhythm.shown_cycles(curve, run.window, len(starts))
        starts = rhythm.evenly_spaced(run.window, work.pieces, cycles)
        if cycles:
            # The readings show the frequency. Else the count stands for it, and a count is not a
            # frequency: an edge of the window may cut a cycle.
            miscount = 0
    beats = []
    for times_ns in (run.times_ns, run.sensor_ns):
        beats += rhythm.folded_rhythm(times_ns, starts, miscount)
        beats += rhythm.beats_of_batches(times_ns, run.window, work.pieces)
    return _Rhythm(starts, beats)


def _method_of(run: _Run) -> EnergyMethod:
    """Return how the energy of the module will be measured."""
    if run.rule is None or counter_total(run.samples, run.rule.total, run.window) is None:
        return "integral"
    return "counter"


def _flags_of_window(
    run: _Run,
    work: _Work,
    board: RunTelemetry | None,
    neighbours: _Neighbours,
    work_rhythm: _Rhythm,
    method: EnergyMethod,
) -> set[Flag]:
    """Return the flags that the window raises, before any energy is measured."""
    trace, window, samples, times_ns = run.trace, run.window, run.samples, run.times_ns
    around = samples.around(window.begin_ns, window.end_ns)
    throttle_events, mode_changes = trace.throttle_events, None
    if board is not None:
        throttle_events, mode_changes = board.throttle_events, board.power_mode_changes
    is_unsteady = bool(mode_changes) or quality.not_steady(
        window, work.starts, work.latencies, samples, throttle_events
    )
    # A sensor with a period of its own may keep step with the work too.
    is_aliased = rhythm.aliased(times_ns, work_rhythm.starts, work_rhythm.beats) or rhythm.aliased(
        run.sensor_ns, work_rhythm.starts
    )
    curve = module_curve(run.samples, run.rule)
    if curve is not None:
        inside = within(curve.times_ns, window)
        is_aliased = is_aliased or follows_work(curve.times_ns[inside], curve.watts[inside])
    sample_count: int | None = len(times_ns)
    if method == "counter":
        sample_count = None  # A counter of energy needs no number of samples.
    is_insufficient = quality.insufficient_samples(
        window.seconds, sample_count, work.inferences, trace.units
    )
    lacks_total = run.rule is not None and lacks_a_total_rail(samples, run.rule, window)
    found: dict[Flag, bool] = {
        "insufficient_samples": is_insufficient,
        "aliased": is_aliased,
        "not_steady": is_unsteady,
        "throttled": bool(throttle_events),
        "overlapped": bool(neighbours.overlapping_runs)
        or foreign_gpu_load(samples, window) > quality.BUSY_RATIO,
        "baseline_disturbed": neighbours.disturbance is not None,
        "clock_step": quality.clock_step(around.times_ns, around.wall_ns),
        "telemetry_gap": quality.telemetry_gap(around.times_ns, window) or lacks_total,
        "measuring_overhead": (_measuring_share(trace, window) or 0.0) > quality.MEASURING_SHARE,
        "outputs_changed": quality.outputs_changed(trace.outputs, trace.built),
        "foreign_dla_activity": bool(neighbours.foreign_dla_cores),
    }
    if not run.environment.simulated:
        # A simulated run only claims its device, so nothing is proved of that.
        placement: Placement | None = None
        if trace.built is not None:
            placement = trace.built.placement
        was_on = dla_was_on(samples, window, trace.device)
        found["fallback"] = quality.fallback(trace.device, placement)
        found["dla_not_used"] = quality.dla_not_used(trace.device, placement, was_on)
    return quality.raised(found)


def _timing_of(run: _Run, clock_seconds: float | None) -> Timing:
    """Return how the readings relate to the window in time."""
    if clock_seconds is not None:
        # What the worker does not know of its edges is a doubt about their common clock.
        clock_seconds += run.trace.uncertain_ns / 1e9
    timing = timing_of(run.environment, clock_seconds, quality.late_seconds(run.samples))
    readings, whole = run.readings, run.trace.telemetry_window()
    if run.idle_phases and whole is not None:
        readings = readings.around(whole.begin_ns, whole.end_ns)
    curve = module_curve(readings, run.rule)
    return as_shown(timing, run.environment, curve, run.window, run.update_seconds)


def _flags_of_energy(measured: MeasuredEnergy | None) -> set[Flag]:
    """Return the flags that only the measured energy shows."""
    if measured is None:
        return set()
    return quality.raised(
        {
            "baseline_drift": measured.baseline_drifted,
            "baseline_disturbed": measured.baseline_disturbed,
            "sensor_suspect": measured.readings_disagree,
            "aliased": measured.series_disagree,
        }
    )


def _energy_of(
    run: _Run,
    measured: MeasuredEnergy | None,
    neighbours: _Neighbours,
    timing: Timing,
    raised: Sequence[Flag],
    suspect: str | None,
) -> Energy | None:
    """Return the measured energy with what is known of its sensor, and by work phase."""
    if measured is None:
        return None
    known = {
        "sensor_reason": suspect,
        "update_seconds": run.update_seconds,
        "sampling_series": 1 if run.second is None else 2,
    }
    energy = measured.energy.model_copy(update=known)
    if neighbours.disturbance is not None:
        energy = energy.model_copy(update={"net_reason": neighbours.disturbance})
    work_phases = run.trace.work_phases
    if not work_phases or run.rule is None or not energy.gross_joules:
        return energy
    # Only some runs need it; the daemon's memory is spared until then.
    from .phases import phase_energy

    # Phases are found by the readings of power, also where a counter measures the window.
    withheld: str | None = None
    causes = quality.withholding(raised, "integral")
    if causes:
        withheld = f"withheld: {', '.join(causes)}"
    by_phase = phase_energy(run.readings, run.rule, run.window, work_phases, timing, withheld)
    return energy.model_copy(update={"phases": by_phase})


def _lock_in_of(run: _Run, timing: Timing, raised: Sequence[Flag]) -> LockInReport | None:
    """Return the energy of a piece; ``None`` for a run without on- and off-steps."""
    plan = run.trace.pattern
    if plan is None:
        return None
    # Only some runs need it; the daemon's memory is spared until then.
    from .lock_in import lock_in_report

    return lock_in_report(
        plan, run.trace, run.window, run.readings, run.rule, timing.averaging, raised
    )


def _stages_of(trace: RunTrace) -> dict[StageName, Distribution]:
    """Return the times of each stage that has any."""
    stages: dict[StageName, Distribution] = {}
    for stage, durations in trace.stages_ns.items():
        times = distribution(durations)
        if times is not None:
            stages[stage] = times
    return stages


def report_without_window(
    trace: RunTrace, environment: Environment, samples: WindowSlice | None = None
) -> RunReport:
    """Return the part of a report that needs no steady phase."""
    seconds = environment.telemetry_interval_seconds
    interval = None if samples is None else interval_ns(samples.times_ns)
    if interval is not None:
        seconds = interval / 1e9
    outcome, reason = trace.outcome or "failed", None
    if outcome != "ok":
        reason = trace.reason or "the worker did not report how it ended"
    versions = {**environment.versions, **trace.versions}
    changes = {"versions": versions, "telemetry_interval_seconds": seconds}
    known = {
        **trace.shared_fields(),
        "outcome": outcome,
        "reason": reason,
        "ended_ns": trace.ended_ns or max(trace.ends.values(), default=trace.started_ns),
        "environment": environment.model_copy(update=changes),
    }
    return RunReport.model_validate(known)
