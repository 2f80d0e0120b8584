"""The immutable state that a scrape sees."""

import threading
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from prometheus_client.samples import Exemplar

from ...collectors.base import Stamped
from ...parsers.records import Sample
from ..measure.report import Environment, RunReport, SkipReason
from ..settings.config import Limits

if TYPE_CHECKING:
    from ...collectors.processes.watch import ProcessUse

LATENCY_BOUNDS_SECONDS = (
    0.0001, 0.0002, 0.0003, 0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03,
    0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0, 7.0, 10.0,
)  # fmt: skip
_FAILURES = ("failed", "timeout")
LATENESS_BOUNDS_SECONDS = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0)


@dataclass(frozen=True)
class Histogram:
    """Counts by bucket, not cumulative, with the sum of all values and the latest of each bucket.

    ``bounds`` are the n upper bounds. Counts and exemplars are n + 1; the last one is of +Inf.
    """

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total: float = 0.0
    exemplars: tuple[Exemplar | None, ...] = ()

    @classmethod
    def empty(cls, bounds: tuple[float, ...]) -> "Histogram":
        """Return a histogram without observations."""
        return cls(bounds, (0,) * (len(bounds) + 1), 0.0, (None,) * (len(bounds) + 1))

    def observed(self, values: Sequence[float], run_id: str, wall_seconds: float) -> "Histogram":
        """Return the histogram with more values."""
        counts, exemplars = list(self.counts), list(self.exemplars)
        for value in values:
            index = bisect_left(self.bounds, value)
            counts[index] += 1
            exemplars[index] = Exemplar({"run_id": run_id}, value, wall_seconds)
        return Histogram(self.bounds, tuple(counts), self.total + sum(values), tuple(exemplars))


@dataclass(frozen=True)
class MissCount:
    """Misses of a deadline, and the latest of them."""

    count: int = 0
    exemplar: Exemplar | None = None


@dataclass(frozen=True)
class SourceState:
    """One telemetry source: its latest sample and its health.

    Attributes:
        interval_seconds: Nominal time between samples; ``None`` if unknown.
        backlog: Samples of lines that arrived several at once.
        refused: Samples that were dropped because they were not later than the one before.
        lines_unparsed: Lines that are not a record, by reason.
        columns_unknown: Values of companions that no signal describes.
        lacks_root: Whether the newest sample has none of the values that only root can read;
            ``None`` for a source without such values.
    """

    name: str
    interval_seconds: float | None = None
    latest: Stamped[Sample] | None = None
    samples: int = 0
    restarts: int = 0
    backlog: int = 0
    refused: int = 0
    lines_unparsed: Mapping[str, int] = field(default_factory=dict)
    tokens_unparsed: int = 0
    columns_unknown: int = 0
    lacks_root: bool | None = None

    def is_fresh(self, now_ns: int) -> bool:
        """Return whether the newest sample still describes the machine."""
        if self.latest is None:
            return False
        oldest_seconds = max(3.0, 5 * (self.interval_seconds or 1.0))
        age_seconds = (now_ns - self.latest.monotonic_ns) / 1e9 + self.latest.late_seconds
        return age_seconds <= oldest_seconds


@dataclass(frozen=True)
class WorkloadState:
    """All runs of one workload since the start.

    Attributes:
        settings: Labels of its configuration, without unset ones.
        inferences: Completed ones, also of runs that failed later; ``units`` likewise.
        deadline_seconds: Longest latency that an inference may have, by configuration.
        misses: Inferences with a longer one.
        gross_joules: Sum of the runs with a module total; ``net_joules``: with a baseline.
        failures: Runs that failed or timed out since the last good one.
        unsuccessful: As ``failures``, plus skipped runs except those skipped by the guard ``duty``,
            which are intended.
        active_run: The run in flight.
        cold_start: The last cold start, by part, in seconds.
    """

    workload: str
    device: str
    settings: Mapping[str, str] = field(default_factory=dict)
    runs: Mapping[str, int] = field(default_factory=dict)
    inferences: int = 0
    units: float = 0.0
    latency: Histogram = field(default_factory=lambda: Histogram.empty(LATENCY_BOUNDS_SECONDS))
    deadline_seconds: float | None = None
    misses: MissCount = MissCount()
    gross_joules: float | None = None
    net_joules: float | None = None
    failures: int = 0
    unsuccessful: int = 0
    active_run: str | None = None
    last_good: RunReport | None = None
    last_failure: RunReport | None = None
    cold_start: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Snapshot:
    """Everything a scrape shows.

    Attributes:
        version: Grows by one at each change.
        module_joules: Energy since the start; ``None`` if the board's rule is unknown.
        module_seconds: Time over which it was integrated, without gaps; ``rail_seconds`` by rail.
        values: Numbers of the newest sample by column, including companions.
        companions_up: Whether each companion had no problem at the newest sample, by name. They
            are read at a sample, so nothing is known of them while the source is silent.
        signal_sources: Source in force of each metric that several sources can give.
        trips_celsius: Lowest trip point of the board, by zone and kind.
        processes: The busiest processes and those that are configured, as last read.
        dla_occupancy: Share of the last interval with a run of ours in flight, by core.
        skipped: Scheduled runs that did not start, by reason.
        otlp: Pages and runs for a receiver since the start, by kind and end; those queued; and the
            points that were refused.
    """

    version: int = 0
    environment: Environment = field(default_factory=Environment)
    sources: tuple[SourceState, ...] = ()
    rail_joules: Mapping[str, float] = field(default_factory=dict)
    rail_seconds: Mapping[str, float] = field(default_factory=dict)
    module_joules: float | None = None
    module_seconds: float | None = None
    values: Mapping[str, float] = field(default_factory=dict)
    processes: "tuple[ProcessUse, ...]" = ()
    companions_up: Mapping[str, bool] = field(default_factory=dict)
    signal_sources: Mapping[str, str] = field(default_factory=dict)
    trips_celsius: Mapping[tuple[str, str], float] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    dla_occupancy: Mapping[int, float] = field(default_factory=dict)
    workloads: Mapping[str, WorkloadState] = field(default_factory=dict)
    lateness: Histogram = field(default_factory=lambda: Histogram.empty(LATENESS_BOUNDS_SECONDS))
    skipped: Mapping[str, int] = field(default_factory=dict)
    store_write_errors: int = 0
    store_problem: str | None = None
    store_damages: int = 0
    store_runs_lost: int = 0
    store_runs_unreadable: int = 0
    store_free_bytes: int | None = None
    otlp: Mapping[tuple[str, str], int] = field(default_factory=dict)


class LiveState:
    """Records events from any thread; ``snapshot`` is always consistent."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self._lock = threading.Lock()

    def update(self, **changes: object) -> None:
        """Replace parts of the snapshot."""
        with self._lock:
            self._replace(**changes)

    def _replace(self, **changes: object) -> None:
        version = self.snapshot.version + 1
        self.snapshot = replace(self.snapshot, version=version, **changes)  # type: ignore[arg-type]

    def _replace_workload(self, state: WorkloadState, **changes: object) -> None:
        workloads = {**self.snapshot.workloads, state.workload: state}
        self._replace(workloads=MappingProxyType(workloads), **changes)

    def describe(self, **changes: object) -> None:
        """Replace parts of the environment that differ."""
        with self._lock:
            known = self.snapshot.environment
            if any(getattr(known, name) != value for name, value in changes.items()):
                self._replace(environment=known.model_copy(update=changes))

    def set_workloads(
        self,
        devices: Mapping[str, str],
        settings: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
        deadlines: Mapping[str, float | None] = MappingProxyType({}),
    ) -> None:
        """Set device, labels and deadline in seconds of all workloads.

        A known workload keeps its counts unless its device changed.
        """
        with self._lock:
            workloads = {}
            for name, device in devices.items():
                state = self.snapshot.workloads.get(name)
                if state is None or state.device != device:
                    state = WorkloadState(name, device)
                deadline = deadlines.get(name)
                if state.deadline_seconds != deadline:
                    state = replace(state, misses=MissCount())
                labels = settings.get(name, {})
                if labels.get("unit") != state.settings.get("unit"):
                    state = replace(state, units=0.0)
                workloads[name] = replace(state, settings=labels, deadline_seconds=deadline)
            self._replace(workloads=MappingProxyType(workloads))

    def run_began(
        self, workload: str, run_id: str, lateness_seconds: float | None, wall_seconds: float
    ) -> None:
        """Record that a run is in flight."""
        with self._lock:
            state = self.snapshot.workloads.get(workload)
            if state is None:
                return
            lateness = self.snapshot.lateness
            if lateness_seconds is not None:
                lateness = lateness.observed([lateness_seconds], run_id, wall_seconds)
            state = replace(state, active_run=run_id)
            self._replace_workload(state, lateness=lateness)

    def counted(
        self,
        workload: str,
        run_id: str,
        count: int,
        latency_ns: Sequence[int],
        wall_seconds: float,
        missed: int = 0,
        units: float = 0.0,
    ) -> None:
        """Record completed inferences, all, some or none of which were timed.

        ``missed`` is the number of misses if it is more than the times show, and ``units`` that
        of the workload's own unit.
        """
        with self._lock:
            state = self.snapshot.workloads.get(workload)
            if state is None:
                return
            seconds = [latency / 1e9 for latency in latency_ns]
            late: list[float] = []
            if state.deadline_seconds is not None:
                late = [latency for latency in seconds if latency > state.deadline_seconds]
            latest = state.misses.exemplar
            if late:
                latest = Exemplar({"run_id": run_id}, late[-1], wall_seconds)
            self._replace_workload(
                replace(
                    state,
                    inferences=state.inferences + count,
                    units=state.units + units,
                    latency=state.latency.observed(seconds, run_id, wall_seconds),
                    misses=MissCount(state.misses.count + max(missed, len(late)), latest),
                )
            )

    def run_ended(self, report: RunReport) -> None:
        """Record outcome and energy of a run."""
        with self._lock:
            state = self.snapshot.workloads.get(report.workload)
            if state is None:
                return
            if report.energy is not None:
                state = replace(
                    state,
                    gross_joules=_sum(state.gross_joules, report.energy.gross_joules),
                    net_joules=_sum(state.net_joules, report.energy.net_joules),
                )
            if report.outcome == "ok":
                state = replace(state, failures=0, unsuccessful=0, last_good=report)
            elif report.outcome in _FAILURES:
                state = replace(
                    state,
                    failures=state.failures + 1,
                    unsuccessful=state.unsuccessful + 1,
                    last_failure=report,
                )
            elif report.outcome == "skipped" and report.skip_reason != "guard_duty":
                state = replace(state, unsuccessful=state.unsuccessful + 1)
            if state.active_run == report.run_id:
                state = replace(state, active_run=None)
            if report.cold_start_seconds:
                state = replace(state, cold_start=report.cold_start_seconds)
            runs = {**state.runs, report.outcome: state.runs.get(report.outcome, 0) + 1}
            self._replace_workload(replace(state, runs=MappingProxyType(runs)))

    def skipped(self, reason: SkipReason, count: int = 1) -> None:
        """Record scheduled runs that did not start."""
        with self._lock:
            before = self.snapshot.skipped
            skipped = {**before, reason: before.get(reason, 0) + count}
            self._replace(skipped=MappingProxyType(skipped))


def _sum(so_far: float | None, more: float | None) -> float | None:
    if more is None:
        return so_far
    # A counter must not fall: a net energy below zero is within its uncertainty.
    return (so_far or 0.0) + max(0.0, more)
