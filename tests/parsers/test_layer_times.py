"""Times of layers, with the rows around a DLA's subgraph put together."""

from hypothesis import given
from hypothesis import strategies as st

from tegrascope.parsers.inference.placement import group_dla_rows

DLA = "{ForeignNode[conv1...relu9]}"
NAMES = ["input to nvm", DLA, "prob from nvm", "data copy finish", "fc", "Reformatting CopyNode x"]


def test_the_wait_belongs_to_the_subgraph():
    """The form of a public log: its own row is next to nothing, the copy after it nearly all."""
    rows = [
        ("data to nvm", 20_000),
        (DLA, 8_500),
        ("prob from nvm", 7_690_000),
        ("prob copy finish", 4_000),
        ("softmax", 30_000),
    ]
    assert group_dla_rows(rows, [DLA]) == {DLA: 7_722_500, "softmax": 30_000}


def test_two_subgraphs_are_two():
    """The copies between them go to the one before, those into memory to the one after."""
    other = "{ForeignNode[conv5...conv6]}"
    rows = [(DLA, 1), ("a from nvm", 10), ("resize", 5), ("b to nvm", 2), (other, 3), ("c copy", 7)]
    assert group_dla_rows(rows, [DLA, other]) == {DLA: 11, "resize": 5, other: 12}


def test_on_a_gpu_rows_stay_as_they_are():
    """A subgraph of that name may be the GPU's."""
    rows = [("a to nvm", 1), (DLA, 2), ("b copy", 3)]
    assert group_dla_rows(rows, []) == dict(rows)


@given(st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, 1000))), st.booleans())
def test_no_time_is_lost(rows, has_dla):
    """However rows follow each other, their sum stays."""
    grouped = group_dla_rows(rows, [DLA] if has_dla else [])
    assert sum(grouped.values()) == sum(time for _, time in rows)
