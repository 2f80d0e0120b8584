"""The immutable state that a scrape sees."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ...collectors.base import Stamped
from ...parsers.records import Sample
from ..measure.run_report import Environment, RunReport
from ..settings.config import Limits

LATENCY_BOUNDS_SECONDS = (
    0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075,
    0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.0, 5.0, 10.0,
)  # fmt: skip
LATENESS_BOUNDS_SECONDS = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0)


@dataclass(frozen=True)
class Exemplar:
    """One observation as an example of its bucket; ``value`` has the unit of the histogram."""

    run_id: str
    value: float
    wall_seconds: float


@dataclass(frozen=True)
class Histogram:
    """Counts by bucket, not cumulative; the last one is +Inf.

    Attributes:
        bounds: shape (n,), upper bounds.
        counts: shape (n + 1,).
        total: Sum of all observations.
        exemplars: shape (n + 1,), the latest of each bucket.
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
            exemplars[index] = Exemplar(run_id, value, wall_seconds)
        return Histogram(self.bounds, tuple(counts), self.total + sum(values), tuple(exemplars))


@dataclass(frozen=True)
class SourceState:
    """One telemetry source: its latest sample and its health.

    Attributes:
        interval_seconds: Nominal time between samples; ``None`` if unknown.
        latest: The newest sample; the scrape decides whether it is still fresh.
        lines_unparsed: Lines that are not a record, by reason.
        tokens_unparsed: Unknown tokens in records.
        columns_unknown: Values of companions that no signal describes.
        lacks_root: Whether the newest sample has none of the values that only root can read;
            ``None`` for a source without such values.
    """

    name: str
    interval_seconds: float | None = None
    latest: Stamped[Sample] | None = None
    samples: int = 0
    restarts: int = 0
    lines_unparsed: Mapping[str, int] = field(default_factory=dict)
    tokens_unparsed: int = 0
    columns_unknown: int = 0
    lacks_root: bool | None = None

    def is_fresh(self, now_ns: int) -> bool:
        """Return whether the newest sample still describes the machine."""
        if self.latest is None:
            return False
        oldest_seconds = max(3.0, 5 * (self.interval_seconds or 1.0))
        return now_ns - self.latest.monotonic_ns <= oldest_seconds * 1e9


@dataclass(frozen=True)
class WorkloadState:
    """All runs of one workload since the start.

    Attributes:
        settings: Labels of its configuration, without unset ones.
        runs: Finished runs by outcome.
        inferences: Completed ones, also of runs that failed later.
        gross_joules: Of all runs with a module total; ``net_joules``: of all with a baseline.
        failures: Runs that failed or timed out since the last good one.
        active_run: Id of the run in flight.
        cold_start: The last cold start, by part, in seconds.
    """

    workload: str
    device: str
    settings: Mapping[str, str] = field(default_factory=dict)
    runs: Mapping[str, int] = field(default_factory=dict)
    inferences: int = 0
    latency: Histogram = field(default_factory=lambda: Histogram.empty(LATENCY_BOUNDS_SECONDS))
    gross_joules: float | None = None
    net_joules: float | None = None
    failures: int = 0
    active_run: str | None = None
    last_good: RunReport | None = None
    cold_start: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Snapshot:
    """Everything a scrape shows.

    Attributes:
        version: Grows by one at each change.
        module_joules: Energy since the start; ``None`` if the board's rule is unknown.
        rail_joules: The same by rail.
        values: Numbers of the newest sample by column, including companions.
        companions_up: Whether each companion had no problem at the newest sample, by name.
        trips_celsius: Lowest trip point of the board, by zone and kind.
        dla_occupancy: Share of the last interval with a run of ours in flight, by core.
        skipped: Scheduled runs that did not start, by reason.
        store_problem: Why the store does not write now.
        store_free_bytes: Free space on its disk; ``None`` if unknown.
    """

    version: int = 0
    environment: Environment = field(default_factory=Environment)
    sources: tuple[SourceState, ...] = ()
    rail_joules: Mapping[str, float] = field(default_factory=dict)
    module_joules: float | None = None
    values: Mapping[str, float] = field(default_factory=dict)
    companions_up: Mapping[str, bool] = field(default_factory=dict)
    trips_celsius: Mapping[tuple[str, str], float] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    dla_occupancy: Mapping[int, float] = field(default_factory=dict)
    workloads: Mapping[str, WorkloadState] = field(default_factory=dict)
    lateness: Histogram = field(default_factory=lambda: Histogram.empty(LATENESS_BOUNDS_SECONDS))
    skipped: Mapping[str, int] = field(default_factory=dict)
    store_write_errors: int = 0
    store_problem: str | None = None
    store_free_bytes: int | None = None
