"""Pairing of a run with the telemetry of its window: trace and samples become one report."""

from collections.abc import Iterable, Mapping, Sequence

from ...collectors.board.boards import RailRule
from ...collectors.catalog import is_played
from .dla import InFlight, foreign_dla_activity
from .energy import interval_ns
from .energy_report import measure_energy
from .quality import (
    WITHHOLDING,
    aliased,
    clock_step,
    dla_not_used,
    fallback,
    in_order,
    insufficient_samples,
    overlapping,
    suspended,
    telemetry_gap,
    throttled,
)
from .run_report import Environment, Flag, RunReport, Span
from .run_trace import RunTrace, distribution, throughput
from .slices import Cut
from .steadiness import not_steady
from .throttle import in_window, trouble
from .uncertainty import sensor_times, unsure_seconds
from .utilization import dla_was_on, telemetry


def correlate(
    trace: RunTrace,
    cut: Cut | None,
    *,
    rule: RailRule | None = None,
    others: Mapping[str, Span] | None = None,
    environment: Environment = Environment(),  # noqa: B008 - immutable
    flags: Iterable[Flag] = (),
    clock_seconds: float | None = 0.0,
    in_flight: InFlight | None = None,
) -> RunReport:
    """Pair a run with the telemetry of its own window.

    A run that failed or was cut short gets the figures that are known. Energy per inference is
    withheld if the window is too short (rule 10), if sampling kept step with the inferences (rule
    11), or if another run drew from the same rails (rule 13). Totals are given anyway, with flags.

    Args:
        trace: The run, as the worker reported it.
        cut: Samples of ``trace.telemetry_window()`` with a neighbour on each side, or ``None``.
        rule: How the board's rails add up, if known.
        others: Steady windows of other runs, by run id; overlapping ones are named.
        environment: Environment of the run; the versions of the trace are added.
        flags: Flags that were found elsewhere.
        clock_seconds: Possible difference between the times of samples and run, beyond the lag of
            an arrival; if ``None``, it is unknown, and no interval is given.
        in_flight: Time of tegrascope's own runs on each device; if ``None``, it is unknown, and
            only the run's own core is checked for work of others.
    """
    phases = trace.phases
    window = phases.get("steady")
    raised: set[Flag] = set(flags)
    if environment.simulated:
        raised.add("simulated")
    if suspended(trace.suspended_ns):
        raised.add("suspended")
    report = _identity(trace, environment, cut)
    if window is None or window.seconds <= 0:
        return report.model_copy(update={"quality": in_order(raised)})
    cut = cut or Cut()
    starts, latencies = trace.completed(window)
    throttle = in_window(cut, window)
    throttle_events = trouble(throttle) if trace.throttle_events is None else trace.throttle_events
    board = telemetry(cut, window, throttle_events, throttle) if cut.times_ns else None
    if board is not None and board.power_mode_changes:
        raised.add("not_steady")
    together = overlapping(window, others or {})
    completed = len(starts) if trace.inference_count is None else trace.inference_count
    inferences = completed if trace.counts_inferences else None
    raised |= _raised(throttle_events, cut, window, starts, latencies)
    raised |= _displaced(trace, cut, window, environment)
    if _has_company(trace, cut, in_flight):
        raised.add("foreign_dla_activity")
    if aliased(sensor_times(window, environment.power_reading), starts):
        raised.add("aliased")
    if insufficient_samples(window.seconds, board.samples if board else 0, inferences):
        raised.add("insufficient_samples")
    if together:
        raised.add("overlapped")
    shown = None if raised & WITHHOLDING else inferences
    if clock_seconds is not None:
        clock_seconds += trace.uncertain_ns / 1e9
    unsure = unsure_seconds(clock_seconds, environment.power_reading)
    measured = measure_energy(cut, phases, rule, shown, trace.run_id, unsure)
    if measured is not None and measured.baseline_drifted:
        raised.add("baseline_drift")
    return report.model_copy(
        update={
            "inferences": completed,
            "latency": distribution(latencies),
            "device_latency": distribution(trace.device_ns()),
            "stages": {
                stage: described
                for stage, durations in trace.stages_ns.items()
                if (described := distribution(durations)) is not None
            },
            "throughput_per_second": throughput(completed, trace.batch, window.seconds),
            "telemetry": board,
            "energy": measured and measured.energy,
            "quality": in_order(raised),
            "overlapping_runs": together,
        }
    )


def _raised(
    throttle_events: int | None,
    cut: Cut,
    window: Span,
    starts: Sequence[int],
    latencies: Sequence[int],
) -> set[Flag]:
    around = cut.around(window.begin_ns, window.end_ns)
    inside = cut.times_ns[cut.inside(window.begin_ns, window.end_ns)]
    found: dict[Flag, bool] = {
        "aliased": aliased(inside, starts),
        "not_steady": not_steady(window, starts, latencies, cut, throttle_events),
        "throttled": throttled(throttle_events),
        "clock_step": clock_step(around.times_ns, around.wall_ns),
        "telemetry_gap": telemetry_gap(around.times_ns, window),
    }
    return {flag for flag, is_raised in found.items() if is_raised}


def _displaced(trace: RunTrace, cut: Cut, window: Span, environment: Environment) -> set[Flag]:
    """Return flags for work that ran elsewhere than requested."""
    if environment.simulated or is_played(trace.backend, trace.device):
        return set()
    placement = None if trace.built is None else trace.built.placement
    was_on = dla_was_on(cut, window, trace.device)
    found: dict[Flag, bool] = {
        "fallback": fallback(trace.device, placement),
        "dla_not_used": dla_not_used(trace.device, placement, was_on),
    }
    return {flag for flag, is_raised in found.items() if is_raised}


def _has_company(trace: RunTrace, cut: Cut, in_flight: InFlight | None) -> bool:
    """Return whether other programs used a DLA core during the run and its baselines."""
    whole = trace.telemetry_window()
    if whole is None:
        return False
    idle = [
        span for name, span in trace.phases.items() if name in ("baseline_before", "baseline_after")
    ]
    ours = in_flight or (lambda _device, begin_ns, end_ns: (end_ns - begin_ns) / 1e9)
    return foreign_dla_activity(cut, whole, trace.device, idle, ours)


def _identity(trace: RunTrace, environment: Environment, cut: Cut | None) -> RunReport:
    interval = interval_ns(cut.times_ns) if cut is not None else None
    seconds = environment.telemetry_interval_seconds if interval is None else interval / 1e9
    outcome = trace.outcome or "failed"
    reason = trace.reason or "the worker did not say how it ended"
    return RunReport(
        run_id=trace.run_id,
        workload=trace.workload,
        model=trace.model,
        model_sha256=trace.model_sha256,
        backend=trace.backend,
        device=trace.device,
        outcome=outcome,
        reason=None if outcome == "ok" else reason,
        started_wall_ns=trace.started_wall_ns,
        started_ns=trace.started_ns,
        ended_ns=trace.ended_ns or max(trace.ends.values(), default=trace.started_ns),
        lateness_seconds=trace.lateness_seconds,
        phases=trace.phases,
        batch=trace.batch,
        process=trace.process,
        cold_start_seconds=trace.cold_start_seconds,
        process_peak_bytes=trace.process_peak_bytes,
        device_peak_bytes=trace.device_peak_bytes,
        built=trace.built,
        environment=environment.model_copy(
            update={
                "versions": {**environment.versions, **trace.versions},
                "telemetry_interval_seconds": seconds,
            }
        ),
    )
