"""Powered time of a DLA core in a window: a difference of two counts, and no load."""

import math
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tegrascope.daemon.measure.dla import powered, was_powered
from tegrascope.daemon.measure.run_report import Span
from tegrascope.daemon.measure.slices import Cut
from tegrascope.daemon.measure.utilization import dla_was_on, telemetry
from tegrascope.daemon.results.bench_page import rows_of
from tegrascope.daemon.results.records import AcceleratorResult, Figure

SECOND = 1_000_000_000
NAN = math.nan


def cut(**columns: "list[float]") -> Cut:
    """A cut with a sample each second from 0 on; ``__`` in a name is a dot."""
    count = len(next(iter(columns.values())))
    times = array("q", (i * SECOND for i in range(count)))
    named = {name.replace("__", "."): array("d", column) for name, column in columns.items()}
    return Cut(times, times, named)


def span(begin: float, end: float) -> Span:
    return Span(begin_ns=round(begin * SECOND), end_ns=round(end * SECOND))


def test_share_is_the_growth_over_the_length():
    """Between two samples the counter is taken to grow evenly, at the edges too."""
    told = powered(cut(dla__0__powered_seconds=[5.0, 5.0, 6.0, 6.5, 6.5]), span(1.5, 3.5))
    assert told["dla0:powered"].mean_ratio == pytest.approx((0.5 * 1 + 1 * 0.5) / 2)
    assert told["dla0:powered"].max_ratio == 1.0


@given(st.lists(st.floats(0, 1), min_size=3, max_size=20), st.data())
def test_cutting_a_window_neither_makes_nor_loses_powered_time(growth, data):
    """The seconds of two halves are those of the whole."""
    column = [sum(growth[:i]) for i in range(len(growth) + 1)]
    samples = cut(dla__1__powered_seconds=column)
    begin, middle, end = sorted(data.draw(st.floats(0, len(growth))) for _ in range(3))

    def seconds(window: Span) -> float:
        told = powered(samples, window)
        return told["dla1:powered"].mean_ratio * window.seconds if told else 0.0

    whole = seconds(span(begin, end))
    assert whole == pytest.approx(
        seconds(span(begin, middle)) + seconds(span(middle, end)), abs=1e-6
    )


def test_a_counter_that_began_anew_has_no_share():
    """After a driver came again nobody knows how long it was; a core without one is absent."""
    assert powered(cut(dla__0__powered_seconds=[5.0, 5.5, 0.1, 0.2]), span(0.5, 2.5)) == {}
    assert powered(cut(dla__0__powered_seconds=[NAN, NAN]), span(0, 1)) == {}
    assert powered(cut(gpu__utilization_ratio=[0.5, 0.5]), span(0, 1)) == {}


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
def test_not_used_is_only_said_of_the_whole_window(column, was):
    """Growth anywhere is use; that there was none must be known from edge to edge."""
    assert was_powered(cut(dla__0__powered_seconds=column), span(0.5, 2.5), "dla0") is was
    assert was_powered(cut(dla__0__powered_seconds=column), span(0.5, 2.5), "dla1") is None


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
def test_powered_time_sees_what_falls_between_two_lines(gate, counter, was):
    """A burst between two lines shows in the count alone, and so does any use without root."""
    samples = cut(dla__0__on=gate, dla__0__powered_seconds=counter)
    assert dla_was_on(samples, span(0.5, 2.5), "dla0") is was


def test_report_has_it_beside_the_loads():
    """It is a signal of its own, which no mean of loads contains."""
    samples = cut(
        dla__0__utilization_ratio=[0.25] * 4, dla__0__powered_seconds=[0.0, 1.0, 2.0, 3.0]
    )
    told = telemetry(samples, span(0.5, 2.5)).utilization
    assert told["dla0:tegrastats"].mean_ratio == 0.25
    assert told["dla0:powered"].mean_ratio == 1.0


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
    """Its table names a load, else the gate, else the powered time; each in its own words."""
    result = AcceleratorResult(
        device="dla0",
        backend="tensorrt",
        status="ok",
        utilization={name: Figure(value=value) for name, value in signals.items()},
        dla_active={} if gate is None else {"dla0": gate},
    )
    assert rows_of([result]).get("DLA load") == (word and (word,))
