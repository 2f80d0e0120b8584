"""What a board is, by its files: read where they are, absent where they are not."""

import pytest

from tegrascope.collectors.base import MachineFacts
from tegrascope.collectors.board.boards import (
    is_tegra,
    jetpack_of,
    l4t_of,
    read_board_facts,
)
from tests.fakes.board_tree import AGX_ORIN, write_board


def test_an_orin_is_told(tmp_path):
    """Model, module, releases, power mode, clocks and the setting of the rail sensors."""
    facts = read_board_facts(write_board(tmp_path))
    assert facts == MachineFacts(
        board="NVIDIA Jetson AGX Orin Developer Kit",
        module="p3701-0005",
        l4t="36.4.3",
        jetpack="6.2",
        power_mode="MODE_30W",
        clocks_locked=False,
        rail_sensors={
            "1-0040.samples": 1.0,
            "1-0040.update_interval": 7.0,
            "1-0040.shunt1_resistor": 2000.0,
        },
        versions={"kernel": "5.15.148-tegra"},
    )


def test_a_machine_that_is_no_tegra_has_none(tmp_path):
    """On a PC, and on another maker's board, nothing is told, whatever else stands there."""
    assert read_board_facts(tmp_path) == MachineFacts()
    files = {**AGX_ORIN, "proc/device-tree/compatible": "raspberrypi,4-model-b\0brcm,bcm2711\0"}
    assert not is_tegra(write_board(tmp_path, files))
    assert read_board_facts(tmp_path) == MachineFacts()


def test_a_sandbox_without_proc_still_knows_the_board(tmp_path):
    """Where only processes are shown in /proc, the device tree is read where the link leads."""
    files = {path.replace("proc/device-tree", "sys/firmware/devicetree/base"): text
             for path, text in AGX_ORIN.items()}  # fmt: skip
    assert read_board_facts(write_board(tmp_path, files)).module == "p3701-0005"


def test_power_mode_follows_nvpmodel(tmp_path):
    """The mode is read anew each time; one without a name goes by its number."""
    write_board(tmp_path)
    for status, mode in (
        ("pmode:0000", "MAXN"),
        ("pmode:0007 fmode:cool", "mode 7"),
        ("", None),
        ("fmode:cool", None),
    ):
        (tmp_path / "var/lib/nvpmodel/status").write_text(status)
        assert read_board_facts(tmp_path).power_mode == mode


def test_locked_clocks_are_all_locked(tmp_path):
    """As after jetson_clocks: the lowest clock allowed is the highest, of CPU and GPU."""
    write_board(tmp_path)
    for path in sorted(tmp_path.glob("sys/**/*max_freq")):
        path.with_name(path.name.replace("max", "min")).write_text(path.read_text())
    assert read_board_facts(tmp_path).clocks_locked is True
    for path in sorted(tmp_path.glob("sys/**/*min_freq")):
        path.unlink()
    assert read_board_facts(tmp_path).clocks_locked is None


@pytest.mark.parametrize(
    ("line", "l4t", "jetpack"),
    [
        ("# R36 (release), REVISION: 4.7, GCID: 42132812, BOARD: generic", "36.4.7", "6.2.1"),
        ("# R35 (release), REVISION: 4.1, GCID: 33958178, BOARD: t186ref", "35.4.1", "5.1.2"),
        ("# R32 (release), REVISION: 7.1, GCID: 29818004, BOARD: t186ref", "32.7.1", "4.6.1"),
        ("# R39 (release), REVISION: 2.0, GCID: 1, BOARD: generic", "39.2.0", "7.2"),
        ("# R77 (release), REVISION: 1.0, GCID: 1, BOARD: generic", "77.1.0", None),
        ("R36 (release)", None, None),
        ("", None, None),
    ],
)
def test_releases(line, l4t, jetpack):
    """The release is as printed; a JetPack is told only where the table has it."""
    assert (l4t_of(line), jetpack_of(l4t_of(line))) == (l4t, jetpack)
