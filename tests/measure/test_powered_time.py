"""Powered time of a DLA core in a window: a difference of two counts, not a load."""

import math
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tegrascope.daemon.measure.blocks import WindowSlice
from tegrascope.daemon.measure.dla import counted_shares, dla_was_on
from tegrascope.daemon.measure.report import Span
from tegrascope.daemon.measure.utilization import telemetry
from tegrascope.workbench.results.accelerator_rows import rows_of
from tegrascope.workbench.results.records import AcceleratorResult, Figure

SECOND = 1_000_000_000
NAN = math.nan


def samples_of(**columns: "list[float]") -> WindowSlice:
    """Return a sample each second from 0 on; ``__`` in a name is a dot."""
    count = len(next(iter(columns.values())))
    times = array("q", (i * SECOND for i in range(count)))
    named = {name.replace("__", "."): array("d", column) for name, column in columns.items()}
    return WindowSlice(times, times, named)


def span(begin: float, end: float) -> Span:
    return Span(begin_ns=round(begin * SECOND), end_ns=round(end * SECOND))


def test_share_is_the_growth_over_the_length():
    found = counted_shares(
        samples_of(dla__0__powered_seconds=[5.0, 5.0, 6.0, 6.5, 6.5]), span(1.5, 3.5)
    )
    assert found["dla0:powered"].mean_ratio == pytest.approx((0.5 * 1 + 1 * 0.5) / 2)
    assert found["dla0:powered"].max_ratio == 1.0


@given(st.lists(st.floats(0, 1), min_size=3, max_size=20), st.data())
def test_powered_time_of_parts_adds_up_to_the_whole(growth, data):
    column = [sum(growth[:i]) for i in range(len(growth) + 1)]
    samples = samples_of(dla__1__powered_seconds=column)
    begin, middle, end = sorted(data.draw(st.floats(0, len(growth))) for _ in range(3))

    def seconds(window: Span) -> float:
        found = counted_shares(samples, window)
        return found["dla1:powered"].mean_ratio * window.seconds if found else 0.0

    whole = seconds(span(begin, end))
    assert whole == pytest.approx(
        seconds(span(begin, middle)) + seconds(span(middle, end)), abs=1e-6
    )


def test_counter_that_was_reset_has_no_share():
    assert (
        counted_shares(samples_of(dla__0__powered_seconds=[5.0, 5.5, 0.1, 0.2]), span(0.5, 2.5))
        == {}
    )
    assert counted_shares(samples_of(dla__0__powered_seconds=[NAN, NAN]), span(0, 1)) == {}
    assert counted_shares(samples_of(gpu__utilization_ratio=[0.5, 0.5]), span(0, 1)) == {}


@pytest.mark.parametrize(
    ("column", "was"),
    [
        ([7.0, 7.0, 7.0, 7.0], False),
        ([7.0, 7.0, 7.2, 7.2], True),
        ([7.0, NAN, NAN, 7.1], True),
        ([NAN, 7.0, 7.0, NAN], None),
        ([NAN, NAN, NAN, NAN], None),
    ],
)
def test_core_is_off_only_if_the_counter_covers_the_window(column, was):
    assert dla_was_on(samples_of(dla__0__powered_seconds=column), span(0.5, 2.5), "dla0") is was
    assert dla_was_on(samples_of(dla__0__powered_seconds=column), span(0.5, 2.5), "dla1") is None


@pytest.mark.parametrize(
    ("gate", "counter", "was"),
    [
        ([0, 0, 0, 0], [7, 7, 7.4, 7.4], True),
        ([0, 0, 0, 0], [7, 7, 7, 7], False),
        ([0, 0, 0, 0], [NAN] * 4, False),
        ([0, 1, 0, 0], [7, 7, 7, 7], True),
        ([NAN] * 4, [7, 7, 7, 7], False),
        ([NAN] * 4, [7, 8, 9, 9], True),
        ([NAN] * 4, [NAN] * 4, None),
    ],
)
def test_powered_time_shows_a_burst_between_two_lines(gate, counter, was):
    samples = samples_of(dla__0__on=gate, dla__0__powered_seconds=counter)
    assert dla_was_on(samples, span(0.5, 2.5), "dla0") is was


def test_powered_share_is_a_signal_of_its_own():
    samples = samples_of(
        dla__0__utilization_ratio=[0.25] * 4, dla__0__powered_seconds=[0.0, 1.0, 2.0, 3.0]
    )
    found = telemetry(samples, span(0.5, 2.5)).utilization
    assert found["dla0:tegrastats"].mean_ratio == 0.25
    assert found["dla0:powered"].mean_ratio == 1.0


@pytest.mark.parametrize(
    ("signals", "gate", "word"),
    [
        ({"dla0:tegrastats": 0.5, "dla0:powered": 1.0}, 1.0, "dla0 50.0 %"),
        ({"dla0:powered": 1.0}, 0.25, "on 25.0 % of the time"),
        ({"dla0:powered": 0.75}, None, "powered 75.0 % of the time"),
        ({}, None, None),
    ],
)
def test_a_bench_calls_it_no_load(signals, gate, word):
    result = AcceleratorResult(
        device="dla0",
        backend="tensorrt",
        status="ok",
        utilization={name: Figure(value=value) for name, value in signals.items()},
        dla_active={} if gate is None else {"dla0": gate},
    )
    assert rows_of([result]).get("DLA load") == (word and (word,))
