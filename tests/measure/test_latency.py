import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tegrascope.daemon.measure.latency import distribution, percentile, throughput

DURATIONS = st.lists(st.integers(0, 10**12), min_size=2, max_size=200)


@given(DURATIONS)
def test_percentiles_are_the_inclusive_quantiles(durations):
    """Percentiles lie linearly between ranks, as the standard library's inclusive method says."""
    told = distribution(durations)
    assert told.count == len(durations)
    thousandths = statistics.quantiles(durations, n=1000, method="inclusive")
    found = (told.p50_seconds, told.p90_seconds, told.p95_seconds, told.p99_seconds)
    expected = [thousandths[rank - 1] / 1e9 for rank in (500, 900, 950, 990, 999)]
    assert [*found, told.p999_seconds] == pytest.approx(expected, rel=1e-9, abs=1e-12)


@given(DURATIONS, st.randoms(use_true_random=False))
def test_order_does_not_matter_and_rises(durations, random):
    """Any order gives the same figures, and each percentile is at least the one below."""
    told = distribution(durations)
    random.shuffle(durations)
    assert distribution(durations) == told
    rising = [
        told.min_seconds,
        told.p50_seconds,
        told.p90_seconds,
        told.p95_seconds,
        told.p99_seconds,
        told.p999_seconds,
        told.max_seconds,
    ]
    assert rising == sorted(rising)
    assert told.min_seconds <= told.mean_seconds <= told.max_seconds


def test_one_latency_is_all_percentiles():
    """A single inference is its own minimum, median and maximum; none has no distribution."""
    assert set(distribution([5]).model_dump(exclude={"count"}).values()) == {5e-9}
    assert distribution([]) is None
    assert percentile([3.0], 0.999) == 3.0


def test_throughput_counts_inputs():
    """Throughput is inputs a second; without inferences or time it is unknown, not zero."""
    assert throughput(30, 8, 2.0) == 120
    assert throughput(0, 8, 2.0) is None
    assert throughput(30, 8, 0.0) is None
