"""Volts, amperes and limits of rails, and the meaning of an over-current alarm."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tegrascope.collectors.board.readers import KernelFile
from tegrascope.collectors.board.supply import RailPower
from tegrascope.collectors.board.sysfs import RailCompanion, SysfsCompanion
from tegrascope.collectors.simulator.board import JumpClock
from tegrascope.parsers.signals import RAIL_POWER, RAIL_VOLTS, by_name
from tests.fakes.board_tree import AGX_ORIN, sensor, write_board
from tests.fakes.processes import until

HWMON = "sys/class/hwmon"


@pytest.fixture
def started() -> Iterator[Callable[..., RailCompanion]]:
    made: list[RailCompanion] = []

    def start(root: Path, clock: JumpClock | None = None) -> RailCompanion:
        companion = RailCompanion(root, clock=clock or JumpClock())
        companion.start()
        made.append(companion)
        return companion

    yield start
    for companion in made:
        companion.stop()


def jump(clock: JumpClock, seconds: float) -> None:
    clock.wait(threading.Event(), clock.monotonic_ns() + round(seconds * 1e9))


def first(companion: RailCompanion) -> dict[str, float]:
    """Return the first reading; the line that asks for it does not wait for it."""
    companion.columns()
    assert until(companion.columns)
    return by_name(companion.columns())


def test_rails_are_in_volts_and_amperes(tmp_path, started):
    assert first(started(write_board(tmp_path, sensor("orin-nano")))) == {
        "rails.VDD_IN.volts": 5.016,
        "rails.VDD_IN.lowest_volts": 5.016,
        "rails.VDD_IN.amperes": 1.55,
        "rails.VDD_IN.limit_warning_amperes": 4.984,
        "rails.VDD_IN.limit_critical_amperes": 4.984,
        "rails.VDD_CPU_GPU_CV.volts": 5.008,
        "rails.VDD_CPU_GPU_CV.lowest_volts": 5.008,
        "rails.VDD_CPU_GPU_CV.amperes": 0.44,
    }


def test_shunts_unconnected_channels_and_limits_that_are_not_set_are_left_out(tmp_path, started):
    assert first(started(write_board(tmp_path))) == {
        "rails.VDD_GPU_SOC.volts": 20.008,
        "rails.VDD_GPU_SOC.lowest_volts": 20.008,
        "rails.VDD_GPU_SOC.amperes": 0.16,
    }


def test_input_of_thor_is_named_vin_and_its_shunt_is_no_rail(tmp_path, started):
    assert first(started(write_board(tmp_path, sensor("thor")))) == {
        "rails.VIN.volts": 19.98,
        "rails.VIN.lowest_volts": 19.98,
        "rails.VIN.amperes": 2.36,
    }


def test_lowest_voltage_is_kept_until_the_end(tmp_path, started):
    clock = JumpClock()
    companion = started(write_board(tmp_path, sensor("orin-nano")), clock)
    first(companion)
    seen = []
    for millivolts in (4936, 5024, 4960):
        (tmp_path / f"{HWMON}/hwmon7/in1_input").write_text(f"{millivolts}\n")
        jump(clock, 61.0)  # the files are looked for anew, too
        volts = millivolts / 1000
        assert until(lambda: companion.columns()[RAIL_VOLTS, "VDD_IN"] == volts)  # noqa: B023
        seen.append(by_name(companion.columns())["rails.VDD_IN.lowest_volts"])
    assert seen == [4.936, 4.936, 4.936]


def test_file_without_a_number_has_no_value(tmp_path, started):
    clock = JumpClock()
    companion = started(write_board(tmp_path, sensor("orin-nano")), clock)
    first(companion)
    for text in ("", "-8", "N/A", "200000"):
        (tmp_path / f"{HWMON}/hwmon7/in1_input").write_text(text)
        jump(clock, 10.0)
        assert until(lambda: "rails.VDD_IN.volts" not in by_name(companion.columns()))
        assert by_name(companion.columns())["rails.VDD_IN.amperes"] == 1.55
        (tmp_path / f"{HWMON}/hwmon7/in1_input").write_text("5000\n")
        jump(clock, 10.0)
        assert until(lambda: by_name(companion.columns()).get("rails.VDD_IN.volts") == 5.0)


def power(root: Path, *rails: str) -> RailPower:
    return RailPower(root, rails, clock=JumpClock(5))


def test_power_is_volts_times_amperes_or_that_of_the_sensor(tmp_path):
    board = write_board(tmp_path / "nano", sensor("orin-nano"))
    assert power(board, "VDD_IN").read(0) == (5, {(RAIL_POWER, "VDD_IN"): 5.016 * 1.55})
    thor = write_board(tmp_path / "thor", sensor("thor"))
    assert power(thor, "VIN").read(0) == (5, {(RAIL_POWER, "VIN"): 47.1528})


def test_time_of_a_power_reading_is_half_way(tmp_path, monkeypatch):
    clock = JumpClock()
    Sensor(monkeypatch, clock).seconds = 0.008  # to read the voltage
    root = write_board(tmp_path, sensor("orin-nano"))
    at_ns, _ = RailPower(root, ["VDD_IN"], clock=clock).read(0)
    assert at_ns == 4_000_000


def test_power_of_rails_that_are_not_all_there_is_none_with_a_reason(tmp_path):
    root = write_board(tmp_path, sensor("orin-nano"))
    lacking = power(root, "VDD_IN", "VDD_SOC")
    assert lacking.read(0) is None
    assert lacking.problem == f"no sensor under {root} measures VDD_SOC"
    assert power(tmp_path / "nothing", "VDD_IN").read(0) is None

    current = root / HWMON / "hwmon7/curr1_input"
    reader = power(root, "VDD_IN")
    for text in ("", "N/A", "9" * 19, "\xff"):
        current.write_text(text)
        assert reader.read(0) is None, text
        assert "gives no power of VDD_IN" in reader.problem
    current.write_text("-8\n")
    assert reader.read(0) == (5, {(RAIL_POWER, "VDD_IN"): pytest.approx(-0.040128)})
    assert reader.problem is None
    reader.close()


class Sensor:
    """Counts the readings of voltages, and lets each of them take some time of the clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, clock: JumpClock) -> None:
        self.readings = 0
        self.seconds = 0.0
        self.may_answer = threading.Event()
        self.may_answer.set()
        real = KernelFile.text

        def text(file: KernelFile) -> str | None:
            if file.path.name == "in1_input":
                self.readings += 1
                self.may_answer.wait(300)
                jump(clock, self.seconds)
            return real(file)

        monkeypatch.setattr(KernelFile, "text", text)


def test_rails_are_read_every_ten_seconds_however_often_lines_come(tmp_path, started, monkeypatch):
    clock = JumpClock()
    sensor_of_rail = Sensor(monkeypatch, clock)
    companion = started(write_board(tmp_path, sensor("orin-nano")), clock)
    first(companion)
    for _ in range(99):
        jump(clock, 0.1)
        assert by_name(companion.columns())["rails.VDD_IN.volts"] == 5.016
    assert sensor_of_rail.readings == 1
    jump(clock, 0.1)
    companion.columns()
    assert until(lambda: sensor_of_rail.readings == 2)


def test_a_slow_sensor_is_read_for_one_percent_of_the_time(tmp_path, started, monkeypatch):
    clock = JumpClock()
    sensor_of_rail = Sensor(monkeypatch, clock)
    sensor_of_rail.seconds = 0.8
    companion = started(write_board(tmp_path, sensor("orin-nano")), clock)
    first(companion)
    jump(clock, 79.0)
    companion.columns()
    assert sensor_of_rail.readings == 1
    jump(clock, 1.0)
    companion.columns()
    assert until(lambda: sensor_of_rail.readings == 2)


def test_a_line_does_not_wait_and_a_sensor_that_hangs_is_left_out(tmp_path, started, monkeypatch):
    clock = JumpClock()
    sensor_of_rail = Sensor(monkeypatch, clock)
    companion = started(write_board(tmp_path, {**sensor("orin-nano"), **AGX_ORIN}), clock)
    first(companion)
    sensor_of_rail.may_answer.clear()
    jump(clock, 10.0)
    assert by_name(companion.columns())["rails.VDD_IN.volts"] == 5.016
    assert until(lambda: sensor_of_rail.readings == 3)
    jump(clock, 14.0)
    assert "rails.VDD_IN.volts" in by_name(companion.columns())
    jump(clock, 2.0)
    assert companion.columns() == {}
    assert companion.problem is None
    jump(clock, 1.1)
    assert companion.columns() == {}
    assert companion.problem is not None
    assert "in1_input" in companion.problem
    sensor_of_rail.may_answer.set()


def test_a_machine_without_sensors_is_no_problem(tmp_path, started):
    clock = JumpClock()
    companion = started(tmp_path, clock)
    for _ in range(3):
        assert companion.columns() == {}
        jump(clock, 10.0)
    assert companion.problem is None


@pytest.mark.parametrize(
    ("chip", "meaning"),
    [("nvidia,tegra234", {"oc1": 1.0, "oc2": 0.0, "oc3": 0.0}), ("nvidia,tegra264", {})],
)
def test_meaning_of_an_alarm_is_that_of_the_chip_or_absent(tmp_path, chip, meaning):
    board = {**AGX_ORIN, "proc/device-tree/compatible": f"nvidia,board\0{chip}\0"}
    companion = SysfsCompanion(
        write_board(tmp_path, board), clock=JumpClock(), timeout_seconds=10.0
    )
    companion.start()
    columns = by_name(companion.columns())
    companion.stop()
    found = {
        name: columns.get(f"throttle.{name}.is_under_voltage") for name in ("oc1", "oc2", "oc3")
    }
    assert {name: value for name, value in found.items() if value is not None} == meaning
    assert columns["throttle.oc3.events"] == 27390.0
