"""An immutable histogram with exemplars, since a scrape must never see half an update."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

LATENCY_BOUNDS_SECONDS = (
    0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075,
    0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.0, 5.0, 10.0,
)  # fmt: skip
LATENESS_BOUNDS_SECONDS = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0)


@dataclass(frozen=True)
class Exemplar:
    """One observation that stands for its bucket.

    Attributes:
        run_id: The run it comes from.
        value: What was observed, in the unit of the histogram.
        wall_seconds: When.
    """

    run_id: str
    value: float
    wall_seconds: float


@dataclass(frozen=True)
class Histogram:
    """Counts by bucket, not cumulated; the last one is that of +Inf.

    Attributes:
        bounds: shape (n,), upper bounds.
        counts: shape (n + 1,).
        total: Sum of all that was observed.
        exemplars: shape (n + 1,), the latest of each bucket.
    """

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total: float = 0.0
    exemplars: tuple[Exemplar | None, ...] = ()

    @classmethod
    def empty(cls, bounds: tuple[float, ...]) -> "Histogram":
        """Make one that has seen nothing."""
        return cls(bounds, (0,) * (len(bounds) + 1), 0.0, (None,) * (len(bounds) + 1))

    def observed(self, values: Sequence[float], run_id: str, wall_seconds: float) -> "Histogram":
        """Return the histogram with more values in it."""
        counts, exemplars = list(self.counts), list(self.exemplars)
        for value in values:
            index = bisect_left(self.bounds, value)
            counts[index] += 1
            exemplars[index] = Exemplar(run_id, value, wall_seconds)
        return Histogram(self.bounds, tuple(counts), self.total + sum(values), tuple(exemplars))
