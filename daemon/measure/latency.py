"""Statistics of latencies, and the throughput of a phase."""

from collections.abc import Sequence
from math import fsum

from .report import Distribution


def percentile(rising: Sequence[float], share: float) -> float:
    """Return a percentile of sorted values, linear between the two nearest ranks.

    >>> percentile([1.0, 2.0, 3.0, 10.0], 0.5)
    2.5
    """
    place = (len(rising) - 1) * share
    low = int(place)
    high = min(low + 1, len(rising) - 1)
    return rising[low] + (rising[high] - rising[low]) * (place - low)


def distribution(durations_ns: Sequence[int]) -> Distribution | None:
    """Return statistics of durations, shape (n,), in any order; ``None`` for none."""
    if not durations_ns:
        return None
    rising = sorted(durations_ns)
    mean = fsum(rising) / len(rising)
    return Distribution(
        count=len(rising),
        min_seconds=rising[0] / 1e9,
        mean_seconds=min(max(mean, rising[0]), rising[-1]) / 1e9,
        p50_seconds=percentile(rising, 0.5) / 1e9,
        p90_seconds=percentile(rising, 0.9) / 1e9,
        p95_seconds=percentile(rising, 0.95) / 1e9,
        p99_seconds=percentile(rising, 0.99) / 1e9,
        p999_seconds=percentile(rising, 0.999) / 1e9,
        max_seconds=rising[-1] / 1e9,
    )


def throughput(inferences: int, batch: int, seconds: float) -> float | None:
    """Return inputs per second; ``None`` without inferences or time."""
    return inferences * batch / seconds if inferences and seconds > 0 else None
