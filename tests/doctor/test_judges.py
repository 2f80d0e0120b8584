"""Findings of each check."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from tegrascope.collectors.backends.tensorrt_probe import Capabilities
from tegrascope.collectors.board.boards import identify
from tegrascope.collectors.board.machine import Answer, HostMemory, Machine, There
from tegrascope.parsers.nvpmodel import PowerMode
from tegrascope.parsers.tegrastats import parse_line
from tegrascope.workbench.doctor.board import (
    judge_disk,
    judge_memory,
    judge_messages,
    judge_power_mode,
    judge_step,
    judge_supply,
    judge_synchronised,
    judge_wall,
)
from tegrascope.workbench.doctor.findings import Board
from tegrascope.workbench.doctor.software import (
    TEGRASTATS,
    check_socket,
    explain_dla,
    judge_cuda,
    judge_cuda_python,
    judge_daemon,
    judge_dla_cores,
    judge_fields,
    judge_rails,
    judge_unit,
)

from .boards import context

GIB = 1 << 30
NOW = 1.79e9
ORIN = Board(is_jetson=True, module="AGX Orin", dla_cores=2)


@pytest.mark.parametrize(
    ("version", "has"),
    [
        ("8.5.2", True),
        ("8.6.2", True),
        ("10.3.0", True),
        ("10.7.0", True),
        ("10.13.3", False),
        ("10.16.2", False),
        ("11.0.0", False),
        ("11.3.1", False),
        ("11.4.0", False),
        ("11.4.1", True),
        ("11.5", True),
    ],
)
def test_matrix_of_tensorrt_and_the_dla(version, has):
    assert explain_dla(version)[0] is has


def test_tensorrt_without_a_dla_names_a_release_that_has_it():
    found = judge_dla_cores(Capabilities(versions={"tensorrt": "10.16.2"}, dla_cores=0), ORIN)
    assert found.level == "missing"
    assert "10.16 have no DLA" in found.message
    assert "11.4.1" in (found.remedy or "")


def test_tensorrt_11_has_no_dla_for_an_orin_nx():
    """The driver is not the reason, and the release that AGX Orin gets no remedy."""
    orin_nx = Board(is_jetson=True, module="Orin NX 16GB", dla_cores=2)
    found = judge_dla_cores(Capabilities(versions={"tensorrt": "11.4.1"}, dla_cores=0), orin_nx)
    assert "AGX Orin only" in found.message
    assert found.remedy == "take JetPack 6 (TensorRT 8.6 to 10.7)"


def test_tensorrt_that_should_see_the_dla_points_at_the_driver():
    found = judge_dla_cores(Capabilities(versions={"tensorrt": "10.3.0"}, dla_cores=0), ORIN)
    assert found.level == "missing"
    assert "dla_nodes" in (found.remedy or "")


@pytest.mark.parametrize(
    ("compatible", "model", "expected"),
    [
        ("nvidia,p3737-0000+p3701-0000\nnvidia,tegra234", "", ("AGX Orin", 2)),
        ("nvidia,p3768-0000+p3767-0000", "", ("Orin NX 16GB", 2)),
        ("nvidia,p3768-0000+p3767-0001", "", ("Orin NX 8GB", 1)),
        ("nvidia,p3768-0000+p3767-0005-super", "", ("Orin Nano", 0)),
        ("nvidia,p2972-0000\nnvidia,p2888", "", ("AGX Xavier", 2)),
        ("", "NVIDIA Jetson Xavier NX Developer Kit", ("Xavier NX", 2)),
        ("", "NVIDIA Jetson Orin NX", ("Orin NX", None)),
        ("nvidia,tegra264", "", ("Thor", 0)),
        ("acme,board", "ACME", (None, None)),
    ],
)
def test_modules_are_identified_by_part_number_or_model(compatible, model, expected):
    assert identify(compatible, model) == expected


def test_power_mode_that_limits_is_a_note():
    largest = PowerMode(0, "MAXN")
    assert judge_power_mode(0, "MAXN", largest).level == "good"
    limited = judge_power_mode(2, "MODE_30W", largest)
    assert (limited.level, limited.facts) == ("note", {"id": 2, "name": "MODE_30W"})
    assert judge_power_mode(7, "mode 7", largest).facts["name"] is None
    assert judge_power_mode(None, None, largest).level == "note"
    assert judge_power_mode(0, "15W", None).remedy == "nvpmodel -p --verbose"


def test_power_mode_advice_is_the_largest_of_the_board_not_mode_0():
    """On an Orin Nano Super mode 0 is 15 W."""
    found = judge_power_mode(0, "15W", PowerMode(2, "MAXN_SUPER"))
    assert found.remedy == "sudo nvpmodel -m 2, if you want MAXN_SUPER"


def test_fields_that_only_root_sees_are_reported():
    plain = parse_line("RAM 1/2MB (lfb 1x4MB) CPU [1%@729] GR3D_FREQ 0% VDD_IN 1mW/1mW")
    full = parse_line(
        "RAM 1/2MB (lfb 1x4MB) CPU [1%@729] EMC_FREQ 0%@2133 GR3D_FREQ 0% NVENC off NVDLA0 off"
        " VDD_IN 1mW/1mW"
    )
    assert judge_fields(full, 1000, False, 1).level == "good"
    found = judge_fields(plain, 1000, False, 1)
    assert (found.level, found.facts["lacks"]) == ("missing", ["EMC", "engines", "DLA"])
    assert judge_fields(plain, 1000, True, 1).level == "good"
    assert judge_fields(plain, 0, False, 0).level == "note"
    assert judge_fields(plain, 1000, False, 0).facts["lacks"] == ["EMC", "engines"]


def test_unknown_rails_are_listed():
    found = judge_rails(parse_line("RAM 1/2MB (lfb 1x4MB) CPU [1%@729] ODD 5mW/5mW"), None)
    assert found.level == "missing"
    assert "ODD" in found.message


@dataclass(frozen=True)
class Socket(Machine):
    """A machine whose socket is in some state."""

    state: There = "absent"
    is_writable: bool = False
    is_served: bool = False

    def there(self, path: str) -> There:
        return self.state if path.endswith(".sock") else "absent"

    def may(self, *_: object) -> bool:
        return self.is_writable

    def listens(self, _: str) -> bool:
        return self.is_served


@pytest.mark.parametrize(
    ("there", "writable", "listens", "level"),
    [
        ("absent", False, False, "note"),
        ("there", True, True, "good"),
        ("there", True, False, "broken"),
        ("there", False, True, "note"),
        ("hidden", False, False, "note"),
    ],
)
def test_socket_states(there, writable, listens, level):
    machine = Socket(state=there, is_writable=writable, is_served=listens)
    found = check_socket(context(machine), TEGRASTATS, None)
    assert found.level == level
    if there != "there" or not writable:
        assert found.remedy


def test_socket_of_the_configuration_needs_an_edited_unit():
    found = check_socket(context(Socket()), TEGRASTATS, Path("/run/mine.sock"))
    assert "/run/mine.sock" in found.message
    assert found.remedy.startswith("sudo systemctl edit tegrascope-tegrastats.socket")
    assert found.remedy.endswith("ListenStream=/run/mine.sock")


def test_driver_messages():
    assert "cannot read" in judge_messages(None).message
    assert judge_messages(["6,1,2,-;usb error"]).level == "good"
    found = judge_messages(["3,9,9,-;nvdla 15880000.nvdla0: task timeout"])
    assert found.facts == {"messages": 1, "complaints": 1}
    assert found.message.endswith("nvdla 15880000.nvdla0: task timeout")


def test_cuda_driver_in_each_state():
    assert judge_cuda(Answer(0, "cuda 0 12060 1\n", ""), True).message.startswith(
        "CUDA driver for CUDA 12.6"
    )
    absent = "OSError: libcuda.so.1: cannot open shared object file"
    assert judge_cuda(Answer(1, "", absent), False).level == "note"
    assert judge_cuda(Answer(1, "", absent), True).level == "missing"
    assert judge_cuda(Answer(0, "cuda 100 0 0\n", ""), True).level == "broken"
    assert judge_cuda(Answer(-11, "", ""), True).level == "broken"


@pytest.mark.parametrize("visible", ["", "-1", "GPU-1"])
@pytest.mark.parametrize("output", ["cuda 100 0 0\n", "cuda 0 13000 0\n"])
def test_a_variable_that_hides_every_gpu_is_named(visible, output):
    found = judge_cuda(Answer(0, output, ""), True, visible)
    assert (found.level, found.message) == (
        "broken",
        f"CUDA_VISIBLE_DEVICES is {visible!r}, which hides every GPU from CUDA",
    )
    assert (found.remedy or "").startswith("unset CUDA_VISIBLE_DEVICES")
    others = [judge_cuda(Answer(0, "cuda 0 13000 1\n", ""), True, visible)]
    others.append(judge_cuda(Answer(0, "cuda 35 0 0\n", ""), True, visible))
    assert not any("CUDA_VISIBLE_DEVICES" in other.message for other in others)


def test_cuda_python_that_is_missing_has_the_version_that_fits():
    versions = {"cuda-bindings": None, "cuda-python": "12.2.1"}
    assert judge_cuda_python(versions, None, True).message == "cuda-python 12.2.1"
    assert "<13" in (judge_cuda_python({}, "36.4.3", True).remedy or "")


def test_clock_of_1970_is_broken():
    assert judge_wall(120.0).level == "broken"
    assert judge_wall(NOW).level == "good"
    assert judge_wall(-5.0).level == "broken"
    assert judge_synchronised(False).level == judge_synchronised(None).level == "note"


def test_clock_step_is_reported_with_its_size():
    assert judge_step(NOW - 1000, NOW, 1005).level == "good"
    forward = judge_step(12.0, NOW, 1000.0)
    assert "forward by 57 years" in forward.message
    assert forward.facts["step_seconds"] == round(NOW - 1012)
    assert "back by 1 hour since" in judge_step(NOW + 3600, NOW, 10).message
    assert judge_step(None, NOW, 10).level == "note"


def test_memory_to_build_counts_swap_and_model():
    tight = HostMemory(8 * GIB, 2 * GIB, GIB // 2)
    found = judge_memory(tight, 0, True)
    assert found.level == "missing"
    assert "fallocate -l 2G" in (found.remedy or "")
    roomy = tight._replace(swap_free_bytes=2 * GIB)
    assert judge_memory(roomy, 0, True).level == "good"
    assert judge_memory(roomy, GIB, True).level == "missing"
    assert judge_memory(tight, 0, False).level == "good"
    kept = judge_memory(tight, 0, True, keeps_freed=True)
    assert kept.level == "note"
    assert "drop_caches" in (kept.remedy or "")
    assert judge_memory(None, 0, True).level == "note"


VDD_IN = {
    "rails.VDD_IN.volts": 5.016,
    "rails.VDD_IN.amperes": 1.55,
    "rails.VDD_IN.limit_warning_amperes": 4.984,
}
ALARMS = {"throttle.oc1.events": 0.0, "throttle.oc3.events": 0.0}
ORINS = {"throttle.oc1.is_under_voltage": 1.0, "throttle.oc3.is_under_voltage": 0.0}


@pytest.mark.parametrize(
    ("columns", "level", "words"),
    [
        ({**VDD_IN, **ALARMS, **ORINS}, "good", "VDD_IN 5.02 V, 1.55 A of 4.98 A"),
        ({**ALARMS, **ORINS, "throttle.oc1.events": 2.0}, "broken", "voltage was too low"),
        ({**VDD_IN, **ORINS, "throttle.oc3.events": 27390.0}, "note", "oc3 27390; they mean high"),
        ({"throttle.oc1.events": 2.0}, "note", "not known for this chip"),
        (VDD_IN, "good", "alarms since boot: unknown"),
        ({}, "note", "neither sensors"),
    ],
)
def test_alarm_of_a_low_voltage_is_told_from_over_current(columns, level, words):
    found = judge_supply(columns)
    assert (found.level, words in found.message) == (level, True), found.message
    assert level == "good" or found.remedy


def test_full_disk_is_blocking():
    assert judge_disk(2 * GIB, Path("/s")).level == "good"
    assert (judge_disk(GIB // 2, Path("/s")).level, judge_disk(0, Path("/s")).blocking) == (
        "note",
        True,
    )
    assert judge_disk(None, Path("/s")).level == "note"


@pytest.mark.parametrize(
    ("text", "level", "word"),
    [
        ("LoadState=not-found\nActiveState=inactive", "note", "not installed"),
        ("LoadState=loaded\nActiveState=inactive\nUnitFileState=disabled", "note", "inactive"),
        ("LoadState=loaded\nActiveState=active\nUnitFileState=disabled", "note", "reboot"),
        ("ActiveState=active\nUnitFileState=enabled\nNRestarts=0", "good", "runs"),
        ("ActiveState=active\nUnitFileState=enabled\nNRestarts=9", "broken", "restarted 9"),
        ("ActiveState=failed\nResult=watchdog\nNRestarts=[not set]", "broken", "watchdog"),
    ],
)
def test_states_of_the_unit(text, level, word):
    found = judge_unit(Answer(0, text, ""))
    assert (found.level, word in found.message) == (level, True)
    assert found.blocking == ("failed" in text)


def test_absent_systemd_is_a_note():
    assert judge_unit(None).level == "note"
    failed = judge_unit(Answer(1, "", "Failed to connect to bus"))
    assert "Failed to connect" in failed.message


def test_port_of_another_program_is_blocking():
    ok, gone = Answer(200, "ok\n", "OK"), Answer(None, "", "refused")
    assert judge_daemon("h:1", gone, gone).level == "note"
    assert judge_daemon("h:1", ok, Answer(200, "ready\n", "OK")).level == "good"
    ill = judge_daemon("h:1", ok, Answer(503, "no fresh sample\n", ""))
    assert (ill.level, ill.blocking) == ("broken", True)
    assert "no fresh sample" in ill.message
    for stranger in (
        Answer(404, "", "Not Found"),
        Answer(200, "<html>", "OK"),
        Answer(None, "", "x"),
    ):
        assert judge_daemon("h:1", stranger, stranger).blocking
