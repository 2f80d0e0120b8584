"""A second process reads blocks of a log; the log is read without it, too."""

import io
import sys
from collections import Counter

import numpy as np
import pytest

from tegrascope.collectors.children.column_helper import ColumnHelper, read_batches_together
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


@pytest.fixture
def helper():
    """Return a helper that is ready before the first block comes."""
    with ColumnHelper() as made:
        assert made.ready.exception() is None
        yield made


def together(helper, log=LOG, block_bytes=BLOCK):
    return read_batches_together(
        io.BytesIO(log), ColumnParser(), block_bytes=block_bytes, helper=helper
    )


def check(found):
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


def test_two_processes_read_the_same_as_one(helper):
    check(list(together(helper)))


def test_helper_reads_a_block(helper):
    block = b"RAM 1/2MB tj@40C\nnoise\n"
    batch, own = helper.read(block).result(), ColumnParser().parse(block)
    assert (batch.names, batch.skipped) == (own.names, own.skipped)
    assert np.array_equal(batch.values, own.values)


def test_block_with_many_columns_is_read(helper):
    text = "".join(f"RAM 1/2MB zone{number}@{number % 100}C\n" for number in range(3000)).encode()
    [batch] = together(helper, text, len(text))
    assert np.nansum(batch.values) == sum(n % 100 for n in range(3000)) + 3000 * 3 * 1024**2


def test_blocks_of_a_helper_that_dies_are_read_again(helper):
    batches = together(helper)
    first = [next(batches)]
    helper.kill()
    check(first + list(batches))


def test_log_is_read_without_a_helper(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with ColumnHelper() as helper:
        assert helper.ready.exception() is not None
        check(list(together(helper)))


def test_helper_does_not_import_from_the_current_directory(tmp_path, monkeypatch):
    trap = "import os; os._exit(66)\n"
    for name in ("runpy", "json", "pickle", "multiprocessing", "numpy", "signal", "tegrascope"):
        (tmp_path / f"{name}.py").write_text(trap)
    monkeypatch.chdir(tmp_path)
    with ColumnHelper() as helper:
        assert helper.ready.exception() is None


def test_helper_ends_with_a_reader_that_stops_early(helper):
    batches = together(helper)
    next(batches)
    batches.close()
    assert not helper.is_ready
