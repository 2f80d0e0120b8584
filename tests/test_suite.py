"""What the tests lean on: time that a machine withholds, and the order of files."""

import os
from pathlib import Path

import pytest

from tests.conftest import LONGEST, SYSTEM
from tests.fakes.processes import withheld_seconds

STAT = "cpu  1 2 3 4 5 6 7 {stolen} 0 0\ncpu0 1 2 3 4 5 6 7 8 0 0\n"
PRESSURE = "some avg10=0.00 avg60=0.00 avg300=0.00 total={}\nfull avg10=0.00 total=99000000\n"


@pytest.fixture
def proc(tmp_path):
    ticks = os.sysconf("SC_CLK_TCK")
    (tmp_path / "stat").write_text(STAT.format(stolen=2 * ticks))
    return tmp_path


def test_withheld_time_is_pressure_and_what_was_stolen(proc):
    (proc / "pressure").mkdir()
    (proc / "pressure/cpu").write_text(PRESSURE.format(500_000))
    (proc / "pressure/io").write_text(PRESSURE.format(250_000))
    assert withheld_seconds(proc) == pytest.approx(2.75)


def test_kernel_without_pressure_has_stolen_time_only(proc):
    assert withheld_seconds(proc) == 2.0


def test_named_files_and_folders_are_there():
    names = (*LONGEST, *SYSTEM)
    assert [name for name in names if not (Path(__file__).parent / name).exists()] == []
