"""Columns of a table hold what was put into them, whatever came when."""

import math
from itertools import pairwise

import numpy as np
import pandas
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tegrascope.daemon.table_column import make_column

NAMES = {
    "rails.VDD_IN.instant_watts": "float64",
    "gpu.frequency_hertz.0": "Int64",
    "dla.0.on": "boolean",
}
VALUES = {
    "float64": st.floats(0, 1e3) | st.just(math.nan),
    "Int64": st.integers(0, 1 << 53).map(float) | st.just(math.nan),
    "boolean": st.sampled_from([0.0, 1.0, math.nan]),
}


@pytest.mark.parametrize("name", NAMES)
@given(st.data())
def test_a_column_is_its_pieces_and_what_lies_between(name, data):
    """Rows that no piece filled are missing, and so is NaN; growing loses nothing."""
    kind = NAMES[name]
    rows, truth = 0, []
    column = make_column(name, data.draw(st.integers(0, 6)))
    for _ in range(data.draw(st.integers(0, 5))):
        gap = data.draw(st.integers(0, 3))
        piece = data.draw(st.lists(VALUES[kind], max_size=6))
        truth += [math.nan] * gap + piece
        at, rows = rows + gap, len(truth)
        column.put(at, np.array(piece, np.float64), rows + data.draw(st.integers(0, 4)))
    after = data.draw(st.integers(0, 3))
    truth += [math.nan] * after
    found = column.finish(len(truth))
    if all(map(math.isnan, truth)):
        assert found is None
    else:
        series = pandas.Series(found)
        assert str(series.dtype) == kind
        said = [None if pandas.isna(one) else float(one) for one in series]
        assert said == [None if math.isnan(one) else one for one in truth]


def test_pieces_of_a_large_column_stay_in_order():
    """A column that outgrows its room several times is still the sequence that was put in."""
    column = make_column("gpu.frequency_hertz.0", 1)
    edges = [0, 10, 1000, 50_000]
    for begin, end in pairwise(edges):
        column.put(begin, np.arange(begin, end, dtype=np.float64), end)
    assert np.asarray(column.finish(50_000)).tolist() == list(range(50_000))
