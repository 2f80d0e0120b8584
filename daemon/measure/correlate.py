"""Pairing of a run with the telemetry of its window: trace and samples become one report."""

from collections.abc import Iterable, Mapping, Sequence

from ...parsers import signals
from ...parsers.rails import RailRule
from . import quality, rhythm
from .blocks import WindowSlice
from .counter import counter_total
from .deadlines import deadline_report
from .dla import InFlight, dla_was_on, foreign_dla_activity
from .energy import interval_ns
from .energy_report import IDLE_PHASES, measure_energy, module_curve, timing
from .latency import distribution, throughput
from .processes import other_processes
from .quality import not_steady
from .report import EnergyMethod, Environment, Figure, Flag, Interval, ProcessShare, RunReport, Span
from .trace import RunTrace
from .utilization import telemetry


def correlate(
    trace: RunTrace,
    samples: WindowSlice | None,
    *,
    rule: RailRule | None = None,
    others: Mapping[str, Sequence[Span]] | None = None,
    environment: Environment = Environment(),  # noqa: B008 - immutable
    flags: Iterable[Flag] = (),
    clock_seconds: float | None = 0.0,
    in_flight: InFlight | None = None,
    workloads: Mapping[str, str] | None = None,
) -> RunReport:
    """Pair a run with the telemetry of its own window.

    A run that failed or was cut short gets the figures that are known. Energy per inference is
    withheld if the window is too short or has fewer than 200 inferences (rule 10), if sampling kept
    step with the inferences (rule 11), or if another run drew from the same rails (rule 13). An
    energy counter does without samples, so it needs no number of them and no rhythm. Totals are
    given anyway, with flags.

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
        in_flight: Time of tegrascope's own runs on each device; if ``None``, it is unknown, and
            only the run's own core is checked for work of others.
        workloads: Names of the workloads of ``others``, by run id.
    """
    phases = trace.phases
    window = phases.get("steady")
    raised: dict[Flag, bool] = dict.fromkeys(flags, True)
    if environment.simulated:
        raised["simulated"] = True
    if quality.suspended(trace.suspended_ns):
        raised["suspended"] = True
    report = _identity(trace, environment, samples)
    if window is None or window.seconds <= 0:
        return report.model_copy(update={"quality": quality.in_order(raised)})
    arrived = samples or WindowSlice()
    samples = quality.timed(arrived)
    around = samples.around(window.begin_ns, window.end_ns)
    inside = samples.times_ns[samples.inside(window.begin_ns, window.end_ns)]
    starts, latencies = trace.completed(window)
    completed = len(starts) if trace.inference_count is None else trace.inference_count
    inferences, units = completed if trace.counts_inferences else None, trace.units
    # Where inferences were not counted, units may be what the power follows.
    pieces = inferences if inferences is not None or units is None else round(units)
    line_source = environment.telemetry_source
    board = (
        telemetry(samples, window, trace.throttle_events, line_source) if samples.times_ns else None
    )
    throttle_events = trace.throttle_events if board is None else board.throttle_events
    together = quality.overlapping(window, others or {})
    idle = [phases[name] for name in IDLE_PHASES if name in phases]
    ours = in_flight or (lambda _device, begin_ns, end_ns: (end_ns - begin_ns) / 1e9)
    whole = trace.telemetry_window() or window
    foreign = foreign_dla_activity(samples, whole, trace.device, idle, ours)
    others_here = other_processes(samples, whole)
    sensor = rhythm.sensor_times(window, environment.power_reading)
    method: EnergyMethod = "integral"
    if rule is not None and counter_total(samples, rule.total, window) is not None:
        method = "counter"
    begun, cycles = starts or rhythm.evenly_spaced(window, pieces), None
    if begun and not starts and (curve := module_curve(samples, rule)):
        cycles = rhythm.shown_cycles(curve, window, len(begun))
        begun = rhythm.evenly_spaced(window, pieces, cycles)
    # A count is no frequency: an edge may cut a cycle.
    miscount = 0 if starts or cycles else 1
    beats = rhythm.folded_rhythm(inside, begun, miscount)
    if not starts:
        beats += rhythm.beats_of_batches(inside, window, pieces)
    disturbance = _disturbance(samples, idle, others or {}, others_here)
    if disturbance is None:
        busy = [foreign_dla_activity(samples, one, trace.device, [one], ours) for one in idle]
        if any(busy):
            disturbance = "a DLA was busy in an idle phase"
    seen: dict[Flag, bool] = {
        "late_samples": quality.late_seconds(arrived) > quality.LATE_AT_MOST_SECONDS,
        "insufficient_samples": quality.insufficient_samples(
            window.seconds,
            None if method == "counter" else len(inside),
            inferences,
            units,
        ),
        "aliased": rhythm.aliased(inside, begun, beats) or rhythm.aliased(sensor, begun),
        "not_steady": not_steady(window, starts, latencies, samples, throttle_events)
        or bool(board and board.power_mode_changes),
        "throttled": bool(throttle_events),
        "overlapped": bool(together),
        "baseline_disturbed": disturbance is not None,
        "clock_step": quality.clock_step(around.times_ns, around.wall_ns),
        "telemetry_gap": quality.telemetry_gap(around.times_ns, window),
        "outputs_changed": quality.outputs_changed(trace.outputs, trace.built),
        "foreign_dla_activity": bool(foreign),
    }
    if not environment.simulated and not trace.is_played:
        placement = None if trace.built is None else trace.built.placement
        was_on = dla_was_on(samples, window, trace.device)
        seen["fallback"] = quality.fallback(trace.device, placement)
        seen["dla_not_used"] = quality.dla_not_used(trace.device, placement, was_on)
    raised |= {flag: True for flag, is_raised in seen.items() if is_raised}
    is_shown = not quality.withholding(raised, method)
    count = None
    if is_shown and units is not None:
        limits = trace.units_interval
        count = Figure(value=units, **({} if limits is None else limits.model_dump()))
    if clock_seconds is not None:
        clock_seconds += trace.uncertain_ns / 1e9
    if "baseline_disturbed" in raised:
        phases = {"steady": window}
    reading = timing(environment, clock_seconds, quality.late_seconds(samples))
    # 200 units do not make a figure per inference.
    is_many = inferences is not None and inferences >= quality.MINIMUM_INFERENCES
    limits_of_count: Interval | None = None
    if inferences and not starts:
        limits_of_count = Interval(low=inferences - 1, high=inferences + 1)
    divisor: Figure | None = None
    if inferences is not None and is_shown and is_many:
        ends = {} if limits_of_count is None else limits_of_count.model_dump()
        divisor = Figure(value=inferences, **ends)
    measured = measure_energy(samples, phases, rule, divisor, reading, beats, count)
    if measured is not None:
        found: dict[Flag, bool] = {
            "baseline_drift": measured.baseline_drifted,
            "baseline_disturbed": measured.baseline_disturbed,
            "sensor_suspect": measured.readings_disagree,
        }
        raised |= {flag: True for flag, is_raised in found.items() if is_raised}
    quality_flags = quality.in_order(raised)
    energy = measured and measured.energy
    if energy is not None and disturbance is not None:
        energy = energy.model_copy(update={"net_reason": disturbance})
    if trace.work_phases and energy is not None and rule is not None and energy.gross_joules:
        causes = [flag for flag in quality_flags if flag in quality.WITHHOLDING]
        withheld = f"withheld: {', '.join(causes)}" if causes else None
        from .phases import phase_energy

        by_phase = phase_energy(samples, rule, window, trace.work_phases, reading, withheld)
        energy = energy.model_copy(update={"phases": by_phase})
    lock_in = None
    if trace.pattern is not None:
        from .lock_in import lock_in_report

        lock_in = lock_in_report(
            trace.pattern, trace, window, samples, rule, reading.averaging, quality_flags
        )
    stages = {stage: distribution(durations) for stage, durations in trace.stages_ns.items()}
    return report.model_copy(
        update={
            "inferences": completed,
            "inferences_interval": limits_of_count,
            "units_per_second": None if units is None else units / window.seconds,
            "latency": distribution(latencies),
            "device_latency": distribution(trace.device_ns()),
            "stages": {stage: times for stage, times in stages.items() if times is not None},
            "throughput_per_second": throughput(completed, trace.batch, window.seconds),
            "telemetry": board,
            "deadline": deadline_report(
                trace, window, (starts, latencies), samples, others or {}, workloads or {}
            ),
            "energy": energy,
            "lock_in": lock_in,
            "quality": quality_flags,
            "overlapping_runs": together,
            "other_processes": others_here,
            "foreign_dla_processes": tuple(
                one.name
                for one in others_here
                if one.name != signals.UNKNOWN_PROCESS and foreign & one.dla_seconds.keys()
            ),
        }
    )


def _disturbance(
    samples: WindowSlice,
    idle: Sequence[Span],
    others: Mapping[str, Sequence[Span]],
    other_processes: Sequence[ProcessShare],
) -> str | None:
    """Return what worked in an idle phase, so that idle power is not known; ``None`` if nothing."""
    if any(quality.overlapping(phase, others) for phase in idle):
        return "another run worked in an idle phase"
    busiest = quality.busiest_gpu_ratio(samples, idle)
    if busiest is None or busiest <= quality.BUSY_RATIO:
        return None
    names = [one.name for one in other_processes if one.gpu_memory_bytes]
    users = f"; processes with GPU memory: {', '.join(names)}" if names else ""
    return f"the GPU was {busiest:.0%} busy in an idle phase, by another program{users}"


def _identity(trace: RunTrace, environment: Environment, samples: WindowSlice | None) -> RunReport:
    """Return the part of a report that needs no steady phase."""
    interval = interval_ns(samples.times_ns) if samples is not None else None
    seconds = environment.telemetry_interval_seconds if interval is None else interval / 1e9
    outcome = trace.outcome or "failed"
    reason = trace.reason or "the worker did not report how it ended"
    versions = {**environment.versions, **trace.versions}
    changes = {"versions": versions, "telemetry_interval_seconds": seconds}
    known = {
        **trace.identity(),
        "outcome": outcome,
        "reason": None if outcome == "ok" else reason,
        "ended_ns": trace.ended_ns or max(trace.ends.values(), default=trace.started_ns),
        "environment": environment.model_copy(update=changes),
    }
    return RunReport.model_validate(known)
