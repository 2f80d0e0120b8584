import math
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tegrascope.daemon.measure.blocks import WindowSlice
from tegrascope.daemon.measure.report import Frequency, Span, Temperature, Utilization
from tegrascope.daemon.measure.utilization import overlap_ns, telemetry

SECOND = 1_000_000_000
NAN = math.nan
RISING = st.sets(st.integers(0, 10_000), min_size=2, max_size=40).map(sorted)


def cut(**columns):
    """Return a cut with a sample each second from 0 on; ``__`` in a name is a dot."""
    count = len(next(iter(columns.values())))
    times = array("q", (i * SECOND for i in range(count)))
    named = {name.replace("__", "."): array("d", column) for name, column in columns.items()}
    return WindowSlice(times, times, named)


def span(begin, end):
    return Span(begin_ns=round(begin * SECOND), end_ns=round(end * SECOND))


@given(RISING, st.data())
def test_weights_add_up_to_the_window(times, data):
    """Where samples cover a window, their shares of it are the whole of it."""
    begin, end = sorted(data.draw(st.integers(times[0], times[-1])) for _ in range(2))
    weights = overlap_ns(times, Span(begin_ns=begin, end_ns=end))
    assert sum(weights) == end - begin
    assert min(weights) >= 0


@given(RISING, st.data())
def test_a_sample_outside_never_matters(times, data):
    """A sample that describes no part of the window changes neither mean nor highest."""
    begin, end = sorted(data.draw(st.integers(times[0], times[-1])) for _ in range(2))
    window = Span(begin_ns=begin, end_ns=end)
    loads = [data.draw(st.floats(0, 1)) for _ in times]
    weights = overlap_ns(times, window)
    changed = [0.123 if w == 0 else load for w, load in zip(weights, loads, strict=True)]
    told = [
        telemetry(
            WindowSlice(
                array("q", times), array("q", times), {"gpu.utilization_ratio": array("d", c)}
            ),
            window,
        )
        for c in (loads, changed)
    ]
    assert told[0] == told[1]


def test_percentages_describe_the_time_before_the_line():
    """The line after the window counts for the part of it that the line describes."""
    samples = cut(gpu__utilization_ratio=[1.0, 0.0, 0.5, 1.0])
    told = telemetry(samples, span(0.5, 2.25)).utilization["gpu"]
    assert told.mean_ratio == pytest.approx((0.5 * 0 + 1 * 0.5 + 0.25 * 1.0) / 1.75)
    assert told.max_ratio == 1.0


def test_an_offline_core_is_not_an_idle_one():
    """CPU load and clock are means over the cores that are online, sample by sample."""
    samples = cut(
        cpu__0__online=[1, 1, 1],
        cpu__0__utilization_ratio=[0.0, 0.4, 0.6],
        cpu__0__frequency_hertz=[1e9, 1e9, 1e9],
        cpu__1__online=[0, 0, 1],
        cpu__1__utilization_ratio=[NAN, NAN, 0.2],
        cpu__1__frequency_hertz=[NAN, NAN, 2e9],
    )
    told = telemetry(samples, span(0, 2))
    assert told.utilization == {"cpu": Utilization(mean_ratio=0.4, max_ratio=0.4)}
    assert told.frequency == {"cpu": Frequency(min_hertz=1e9, mean_hertz=1.25e9)}


def test_a_gate_is_no_clock_and_no_load():
    """A gated DLA has an active share and no clock; it has a load only where one is printed."""
    samples = cut(
        dla__0__on=[0, 1, 1, 0, 0],
        dla__0__frequency_hertz=[NAN, 1.6e9, 1.6e9, 0, 0],
        dla__1__on=[0, 0, 0, 0, 0],
        dla__1__utilization_ratio=[NAN, 0.25, 0.75, NAN, NAN],
    )
    told = telemetry(samples, span(0, 4))
    assert told.dla_active == {"dla0": 0.5, "dla1": 0.0}
    assert told.frequency == {"dla0": Frequency(min_hertz=1.6e9, mean_hertz=1.6e9)}
    expected = {"dla1:tegrastats": Utilization(mean_ratio=0.5, max_ratio=0.75)}
    assert told.utilization == expected


def test_gpu_clock_is_that_of_its_fastest_cluster():
    """A gated or slowing cluster does not pull the clock down; all gated is no clock."""
    samples = cut(
        **{"gpu.frequency_hertz.0": [9e8, 9e8, 0, 9e8], "gpu.frequency_hertz.1": [0, 3e8, 0, 9e8]}
    )
    told = telemetry(samples, span(0, 3)).frequency
    assert told == {"gpu": Frequency(min_hertz=9e8, mean_hertz=9e8)}


def test_temperature_is_of_the_samples_inside():
    """Start, highest and change of a zone come from samples in the window that have it."""
    samples = cut(
        temperatures_celsius__tj=[90, NAN, 40, 45, 42, 90], emc__utilization_ratio=[0] * 6
    )
    told = telemetry(samples, span(0.5, 4.5), throttle_events=3)
    expected = Temperature(start_celsius=40, max_celsius=45, delta_celsius=2)
    assert told.temperature == {"tj": expected}
    assert (told.samples, told.throttle_events) == (4, 3)
    assert told.utilization["emc"] == Utilization(mean_ratio=0, max_ratio=0)


def test_what_is_absent_is_not_there():
    """A board that tells nothing gives empty tables, and unknown throttling is not none."""
    told = telemetry(cut(ram__used_bytes=[1, 2, 3]), span(0, 2))
    assert (told.utilization, told.frequency, told.temperature, told.dla_active) == ({}, {}, {}, {})
    assert told.throttle_events is None
    assert overlap_ns([], span(0, 1)) == []
