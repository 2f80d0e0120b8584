"""A second process reads blocks of a log, and nothing depends on its being there."""

import io
from collections import Counter

import numpy as np
import pytest

from tegrascope.collectors.children import column_helper
from tegrascope.collectors.children.column_helper import Helper, read_batches_together
from tegrascope.parsers.tegrastats.bulk import ColumnParser, read_batches

LINES = [
    f"06-25-2025 09:{minute:02}:{second:02} RAM {900 + second}/3964MB GR3D_FREQ {second}%@921 "
    f"NVDLA0 {'off' if minute % 7 else f'{second}%@1369'} tj@4{minute % 10}.5C "
    f"VDD_IN {second}mW/7mW"
    for minute in range(60)
    for second in range(60)
]
LOG = "\n".join([*LINES, "garbage", *LINES[::-1]]).encode()
BLOCK = 10_000


class ReadyHelper(Helper):
    """One that is ready before the first block comes, so that a short log is read by two."""

    made = []

    def __init__(self):
        super().__init__()
        self.made.append(self)
        self.taken = 0
        self.wait_until_ready()

    def take(self, number, block):
        """Count what it takes."""
        took = super().take(number, block)
        self.taken += took
        return took


@pytest.fixture
def helper(monkeypatch):
    """Give every reader such a helper, and show the last one."""
    monkeypatch.setattr(ReadyHelper, "made", [])
    monkeypatch.setattr(column_helper, "Helper", ReadyHelper)
    return lambda: ReadyHelper.made[-1]


def check(found):
    """Hold batches against those that one process makes."""
    alone = list(read_batches(io.BytesIO(LOG), block_bytes=BLOCK))
    assert len(found) == len(alone)
    for one, other in zip(found, alone, strict=True):
        assert (one.lines, one.skipped) == (other.lines, other.skipped)
        for name in ("line", "printed_seconds", "received_ns"):
            assert np.array_equal(getattr(one, name), getattr(other, name))
        columns, others = (dict(zip(b.names, b.values, strict=True)) for b in (one, other))
        assert columns.keys() == others.keys()
        for name, column in columns.items():
            assert np.array_equal(column, others[name], equal_nan=True), name
    assert sum((batch.skipped for batch in found), Counter()) == {"noise": 1}


def test_two_read_what_one_reads(helper):
    """The same batches in the same order, some of them by the helper."""
    check(list(read_batches_together(io.BytesIO(LOG), ColumnParser(), block_bytes=BLOCK)))
    assert helper().taken > 3


def test_columns_that_do_not_fit_come_by_the_pipe(helper):
    """A block that makes more columns than there is room for is read all the same."""
    text = "".join(f"RAM 1/2MB zone{number}@{number % 100}C\n" for number in range(3000)).encode()
    batches = list(read_batches_together(io.BytesIO(text), ColumnParser(), block_bytes=len(text)))
    assert helper().taken == 1
    [batch] = batches
    assert batch.values.nbytes > column_helper.SLOT_BYTES
    assert np.nansum(batch.values) == sum(n % 100 for n in range(3000)) + 3000 * 3 * 1024**2


def test_a_helper_that_dies_is_not_missed(helper):
    """What it had not given back is read again."""
    batches = read_batches_together(io.BytesIO(LOG), ColumnParser(), block_bytes=BLOCK)
    first = [next(batches)]
    helper().kill()
    check(first + list(batches))


@pytest.mark.parametrize("broken", ["memfd_create", "Popen"])
def test_no_helper_at_all(monkeypatch, broken):
    """Without shared memory, or without another process, one reads alone."""

    def refuse(*_, **__):
        raise OSError("none left")

    where = column_helper.os if broken == "memfd_create" else column_helper.subprocess
    monkeypatch.setattr(where, broken, refuse)
    check(list(read_batches_together(io.BytesIO(LOG), ColumnParser(), block_bytes=BLOCK)))


def test_a_reader_that_stops_early_leaves_nobody_behind(helper):
    """The helper is gone when the generator is closed."""
    batches = read_batches_together(io.BytesIO(LOG), ColumnParser(), block_bytes=BLOCK)
    next(batches)
    batches.close()
    assert not helper().is_running
