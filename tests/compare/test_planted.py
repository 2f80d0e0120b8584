"""Causes that a simulated world planted are the causes that compare names."""

import pytest

from tegrascope.workbench.compare.report import compare
from tegrascope.workbench.compare.sides import sides_of
from tegrascope.workbench.results.records import BenchResult

from .world import draw_pair

PLANTED, EMPTY = 300, 300


def compared(pair):
    """Return the figures of a pair, by way of the documents that bench writes."""
    documents = (one.model_dump_json(exclude_none=True) for one in (pair.a, pair.b))
    a, b = map(BenchResult.model_validate_json, documents)
    found = compare(sides_of("A", "a", a), sides_of("B", "b", b))
    (one,) = found.pairs
    return one.figures


def first_cause(figures):
    """Return the first cause of the first figure that differs; ``None`` if none is named."""
    return next((one.causes[0].name for one in figures if one.causes), None)


@pytest.mark.parametrize("count", [1, 2])
def test_the_first_cause_is_a_planted_one(count):
    pairs = [draw_pair(1000 * count + n, count) for n in range(PLANTED // 2)]
    missed = [
        (sorted(pair.causes), named)
        for pair in pairs
        if (named := first_cause(compared(pair))) not in pair.causes
    ]
    print(f"{count} planted: {len(pairs) - len(missed)} of {len(pairs)}")
    assert len(missed) <= 0.05 * len(pairs), missed


def test_no_cause_is_named_where_nothing_was_planted():
    pairs = [draw_pair(9000 + n, 0) for n in range(EMPTY)]
    named = [found for pair in pairs if (found := first_cause(compared(pair))) is not None]
    print(f"none planted: {EMPTY - len(named)} of {EMPTY}")
    assert len(named) <= 0.05 * EMPTY, named
