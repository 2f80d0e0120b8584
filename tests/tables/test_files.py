"""Tables of different columns become one file, and a file that fails leaves nothing."""

import io
import subprocess
import sys

import pandas
import pytest

from tegrascope import frames
from tegrascope.parsers.errors import UserError
from tegrascope.workbench.tables.log_tables import read_tables, write_tables

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
    """Yield the log in tables of three records."""
    whole = frames.read_log(log)
    for begin in range(0, len(whole), 3):
        part = whole.iloc[begin : begin + 3]
        yield part.drop(columns=[name for name in part if part[name].isna().all() and "." in name])


def test_columns_may_come_late(log, tmp_path):
    """What was written before has the new columns too, missing; types and order are the same."""
    path = tmp_path / "a.parquet"
    write_tables(tables(log), path, "parquet")
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
    write_tables(tables(log), path, "csv")
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
    assert sum(map(len, found)) == sum(len(batch.line) for batch, *_ in batches) == 54_000
    assert batches[-1][1:] == (0, log.stat().st_size)
    whole = frames.read_log(log)
    lines = [line for table in found for line in table["line"]]
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
        write_tables(failing(), path, "parquet")
    assert list(path.parent.iterdir()) == []


def test_no_table_is_a_table(tmp_path):
    """A log without a record gives a file with the columns of the clock, and no row."""
    log = tmp_path / "a.log"
    log.write_text("nothing\n")
    tables = read_tables([log], [str(log)], failed=pytest.fail)
    write_tables(tables, tmp_path / "a.parquet", "parquet")
    found = pandas.read_parquet(io.BytesIO((tmp_path / "a.parquet").read_bytes()))
    assert len(found) == 0
    assert list(found)[:2] == ["log", "line"]


def test_csv_has_times_without_the_systems_time_zones(tmp_path):
    """Small systems lack tzdata, and Arrow finds not even UTC then."""
    recorded = tmp_path / "recorded.log"
    recorded.write_text("1750866199.25::RAM 100/1000MB (lfb 1x1MB) cpu@50C\n")
    hidden = "mount -t tmpfs none /usr/share/zoneinfo && exec"
    command = f"{hidden} {sys.executable} -m tegrascope parse -f csv {recorded}"
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", command], capture_output=True, text=True, check=False
    )
    if "unshare:" in done.stderr or "mount:" in done.stderr:
        pytest.skip("hiding the time zones needs root")
    assert done.returncode == 0, done.stderr
    found = pandas.read_csv(io.StringIO(done.stdout))
    assert pandas.to_datetime(found["received"], utc=True)[0] == pandas.Timestamp(
        1750866199.25, unit="s", tz="UTC"
    )
