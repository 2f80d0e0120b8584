"""Tables of different columns become one file, and a file that fails leaves nothing."""

import io

import numpy as np
import pandas
import pytest

from tegrascope import frames
from tegrascope.parsers.errors import UserError
from tegrascope.parsers.tegrastats.printed_time import Times
from tegrascope.workbench.cli import main
from tegrascope.workbench.tables.data_frames import write_log_parquet
from tegrascope.workbench.tables.log_tables import (
    LogTable,
    read_log_table,
    read_tables,
    write_log_csv,
)

USER = "RAM 1/2MB CPU [5%@729] GR3D_FREQ 7% tj@40.5C VDD_IN 5139mW/4890mW\n"
ROOT = (
    "RAM 1/2MB CPU [5%@729] EMC_FREQ 3%@2133 GR3D_FREQ 7%@[305] NVDLA0 off tj@40.5C "
    "VDD_IN 5139mW/4890mW\n"
)


@pytest.fixture
def log(tmp_path):
    """A log that begins without root, goes on with it and ends without."""
    log = tmp_path / "a.log"
    log.write_text("".join([USER] * 3 + [ROOT] * 3 + [USER] * 3))
    return log


def tables(log):
    """Yield the log in tables of three records, which lack the columns that have no value."""
    whole = read_log_table(log)
    for begin in range(0, len(whole.line), 3):
        rows = slice(begin, begin + 3)
        values = {}
        for name, column in whole.values.items():
            if not np.isnan(column[rows]).all():
                values[name] = column[rows]
        yield LogTable(
            logs=whole.logs,
            log=whole.log[rows],
            line=whole.line[rows],
            printed_seconds=whole.printed_seconds[rows],
            received_ns=whole.received_ns[rows],
            times=Times(*[column[rows] for column in whole.times]),
            restarted=whole.restarted[rows],
            values=values,
        )


def test_columns_may_come_late(log, tmp_path):
    """What was written before has the new columns too, missing; types and order are the same."""
    path = tmp_path / "a.parquet"
    write_log_parquet(tables(log), path)
    found, whole = pandas.read_parquet(path), frames.read_log(log)
    assert list(found) == list(whole)
    assert found["dla.0.on"].isna().tolist() == [True] * 3 + [False] * 3 + [True] * 3
    assert found["emc.frequency_hertz"].dtype == "Int64"
    pandas.testing.assert_frame_equal(
        found.drop(columns=["log", "time"]), whole.drop(columns=["log", "time"])
    )
    assert sorted(tmp_path.iterdir()) == [log, path]


def test_csv_has_one_head(log, tmp_path):
    """All columns stand in the first line, though some of them came late."""
    path = tmp_path / "a.csv"
    write_log_csv(tables(log), path)
    found = pandas.read_csv(path)
    assert len(found) == 9
    assert found["emc.utilization_ratio"].tolist()[3:6] == [0.03] * 3
    assert found["emc.utilization_ratio"].isna().sum() == 6


def test_tables_of_some_records_are_together_the_log(tmp_path):
    log = tmp_path / "a.log"
    log.write_text("x" * (1 << 20) + "\n" + (USER * 9000 + ROOT * 9000) * 3)
    batches = []
    found = list(
        read_tables(
            [log],
            [str(log)],
            counted=lambda *batch: batches.append(batch),
            failed=pytest.fail,
            rows_per_table=10_000,
        )
    )
    assert len(found) > 2
    assert (
        sum(len(table.line) for table in found)
        == sum(len(batch.line) for batch, *_ in batches)
        == 54_000
    )
    assert batches[-1][1:] == (0, log.stat().st_size)
    whole = frames.read_log(log)
    lines = [line for table in found for line in table.line.tolist()]
    assert lines == whole["line"].tolist()


def test_a_column_keeps_every_kind_of_value_and_of_gap(tmp_path):
    """Each type has values and gaps, at both ends and between, over several blocks of a log."""
    log = tmp_path / "a.log"
    log.write_text((USER * 20_000 + ROOT * 20_000) * 2 + USER * 20_000)
    frame = frames.read_log(log)
    is_root = frame.index // 20_000 % 2 == 1
    for name, value, dtype in (
        ("emc.frequency_hertz", 2_133_000_000, "Int64"),
        ("emc.utilization_ratio", 0.03, "float64"),
        ("dla.0.on", False, "boolean"),
    ):
        assert frame[name].dtype == dtype
        assert (frame[name].notna() == is_root).all()
        assert (frame[name][is_root] == value).all()


def test_nothing_is_left_of_what_failed(log, tmp_path):
    """The name is that of a whole file, or of none."""

    def failing():
        yield from tables(log)
        raise OSError(28, "No space left on device")

    path = tmp_path / "out" / "a.parquet"
    path.parent.mkdir()
    with pytest.raises(UserError, match="No space left"):
        write_log_parquet(failing(), path)
    assert list(path.parent.iterdir()) == []


def test_no_table_is_a_table(tmp_path):
    """A log without a record gives a file with the columns of the clock, and no row."""
    log = tmp_path / "a.log"
    log.write_text("nothing\n")
    tables = read_tables([log], [str(log)], failed=pytest.fail)
    write_log_parquet(tables, tmp_path / "a.parquet")
    found = pandas.read_parquet(io.BytesIO((tmp_path / "a.parquet").read_bytes()))
    assert len(found) == 0
    assert list(found)[:2] == ["log", "line"]


def test_csv_is_what_pandas_writes(log, tmp_path, capsys):
    """All cells are equal but for ``received``, whose digits pandas counts by the whole column."""
    lines = [
        f"1750866199.3488::{ROOT.replace('RAM', '06-25-2025 15:43:19 RAM')}",
        f"1750866200.34::{USER.replace('7%', '0%')}",
        USER.replace("tj@40.5C", ""),
    ]
    log.write_text("".join(lines))
    log = log.rename(tmp_path / 'a "b", c.log')
    path = tmp_path / "a.csv"
    assert main(["parse", "-f", "csv", "-o", str(path), str(log)]) == 0
    frame = frames.read_log(log)
    frame["received"] = [
        "2025-06-25 15:43:19.348800000+00:00",
        "2025-06-25 15:43:20.340000000+00:00",
        None,
    ]
    assert path.read_text() == frame.to_csv(index=False)
    assert main(["parse", "-f", "csv", str(log)]) == 0
    assert capsys.readouterr().out == path.read_text()
