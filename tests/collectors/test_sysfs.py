"""The companion that reads a board's small files: what it tells, and what can't hold it up."""

import contextlib
import errno
import os
import threading
import time
from collections.abc import Callable, Iterator
from math import isfinite
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tegrascope.collectors.board.boards import read_board_facts
from tegrascope.collectors.board.readers import KernelFile, Reading, Scaled, read_trips, to_number
from tegrascope.collectors.board.sysfs import SysfsCompanion
from tegrascope.collectors.simulator.board import JumpClock
from tegrascope.parsers.signals import FAN_SPEED, by_name
from tests.fakes.board_tree import AGX_ORIN, HOST1X, set_powered, write_board
from tests.fakes.processes import Stopwatch, until

SECOND = 1_000_000_000
OC3 = "sys/class/hwmon/hwmon3/oc3_event_cnt"
ALERT = "sys/class/thermal/cooling_device1/cur_state"


@pytest.fixture
def started() -> Iterator[Callable[..., SysfsCompanion]]:
    """Start companions with a clock that stands; each waits as long as it takes."""
    made: list[SysfsCompanion] = []

    def start(root: Path, clock: JumpClock | None = None, **options: object) -> SysfsCompanion:
        options.setdefault("timeout_seconds", 10.0)
        companion = SysfsCompanion(root, clock=clock or JumpClock(), **options)  # type: ignore[arg-type]
        companion.start()
        made.append(companion)
        return companion

    yield start
    for companion in made:
        companion.stop()


def jump(clock: JumpClock, seconds: float) -> None:
    clock.wait(threading.Event(), clock.monotonic_ns() + round(seconds * SECOND))


def test_a_board_is_told_in_base_units(tmp_path, started):
    """Every file that means something has its column, and no other file has one."""
    told = by_name(started(write_board(tmp_path)).columns())
    assert told == {
        "dla.0.powered_seconds": 0.0,
        "dla.1.powered_seconds": 0.0,
        "throttle.oc1.events": 0.0,
        "throttle.oc2.events": 15.0,
        "throttle.oc3.events": 27390.0,
        "throttle.oc1.is_under_voltage": 1.0,
        "throttle.oc2.is_under_voltage": 0.0,
        "throttle.oc3.is_under_voltage": 0.0,
        "throttle.gpu_thermal.active": 0.0,
        "throttle.gpu_thermal.events": 0.0,
        "cooling.cpufreq-cpu0.state_ratio": 0.25,
        "cooling.gpu-throttle-alert.state_ratio": 0.0,
        "cooling.hot-surface-alert.state_ratio": 0.5,
        "gpu.frequency_hertz.0": 305992999.0,
        "fans.pwmfan.speed_ratio": 0.2,
        "power_mode.number": 2.0,
        "ram.available_bytes": 61000000 * 1024,
        "gpu_memory.used_bytes": 805068 * 1024,
    }


def test_rails_are_left_to_tegrastats(tmp_path, started, monkeypatch):
    """No reading of a rail is ever opened: each would wait for a conversion of its sensor."""
    opened: list[str] = []
    real = os.open

    def note(path: object, *rest: int) -> int:
        opened.append(str(path))
        return real(path, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", note)
    assert started(write_board(tmp_path)).columns()
    assert any(path.endswith(OC3) for path in opened)
    assert not any("in1_input" in path or "curr1_input" in path for path in opened)


def test_powered_time_is_a_count_and_a_share(tmp_path, started):
    """The share is of the time between two looks, never above 1; a counter that fell has none."""
    clock = JumpClock()
    companion = started(write_board(tmp_path), clock)
    assert "dla.0.powered_ratio" not in by_name(companion.columns())
    jump(clock, 2.0)
    set_powered(tmp_path, 0, 500)
    told = by_name(companion.columns())
    assert (told["dla.0.powered_seconds"], told["dla.0.powered_ratio"]) == (0.5, 0.25)
    assert told["dla.1.powered_ratio"] == 0.0
    jump(clock, 1.0)
    set_powered(tmp_path, 0, 1600)
    assert by_name(companion.columns())["dla.0.powered_ratio"] == 1.0
    jump(clock, 1.0)
    set_powered(tmp_path, 0, 100)
    told = by_name(companion.columns())
    assert told["dla.0.powered_seconds"] == 0.1
    assert "dla.0.powered_ratio" not in told


def test_alerts_count_how_often_they_began(tmp_path, started):
    """What goes on is one event, what comes again is another, and a new look forgets neither."""
    clock = JumpClock()
    companion = started(write_board(tmp_path), clock)
    seen = []
    for state in (0, 1, 2, 0, 1):
        (tmp_path / ALERT).write_text(f"{state}\n")
        jump(clock, 61.0)
        told = by_name(companion.columns())
        seen.append(tuple(told[f"throttle.gpu_thermal.{of}"] for of in ("active", "events")))
    assert seen == [(0, 0), (1, 1), (1, 1), (0, 1), (1, 2)]


def test_an_alarm_that_holds_nothing_down_is_no_throttling(tmp_path, started):
    """Where the board is set to only count an over-current, its clocks were not held down."""
    files = {**AGX_ORIN, "sys/class/hwmon/hwmon3/oc3_throt_en": "0\n"}
    told = by_name(started(write_board(tmp_path, files)).columns())
    assert "throttle.oc3.events" not in told
    assert "throttle.oc2.events" in told


def test_devices_of_one_type_are_told_apart(tmp_path, started):
    """The second cooling device of a type, in the kernel's order, has a number."""
    kind = "sys/class/thermal/cooling_device{}/{}"
    files = {}
    for number, state in ((9, 1), (10, 2)):
        of = {"type": "Processor\n", "cur_state": f"{state}\n", "max_state": "4\n"}
        files |= {kind.format(number, name): text for name, text in of.items()}
    told = by_name(started(write_board(tmp_path, files)).columns())
    assert told == {
        "cooling.Processor.state_ratio": 0.25,
        "cooling.Processor-2.state_ratio": 0.5,
    }


def test_a_machine_that_is_no_board_says_so(tmp_path, started):
    """Where nothing is found there is no column but a word, and what ends it."""
    companion = started(tmp_path)
    assert companion.problem is None
    assert companion.columns() == {}
    assert companion.problem is not None
    assert "telemetry.sysfs: false" in companion.problem


def test_a_driver_that_is_loaded_late_is_found(tmp_path, started):
    """Files are looked for again after a minute; one that is gone has no column any more."""
    clock = JumpClock()
    companion = started(write_board(tmp_path), clock)
    companion.columns()
    write_board(tmp_path, {"sys/class/devfreq/31b0000.emc/cur_freq": "2133000000\n"})
    (tmp_path / "sys/class/hwmon/hwmon0/pwm1").unlink()
    jump(clock, 59.0)
    assert "emc.frequency_hertz" not in by_name(companion.columns())
    jump(clock, 2.0)
    told = by_name(companion.columns())
    assert told["emc.frequency_hertz"] == 2133000000.0
    assert "fans.pwmfan.speed_ratio" not in told


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.data())
def test_no_content_is_fatal(tmp_path_factory, data):
    """Whatever stands in the files, what is told is finite, not negative, and of its bounds."""
    root = tmp_path_factory.mktemp("board")
    odd = st.one_of(
        st.binary(max_size=40),
        st.integers().map(lambda number: str(number).encode()),
        st.sampled_from([b"", b"\n", b"N/A\n", b"1e9\n", "٣\n".encode(), b"9" * 5000, b"0\0\0"]),
    )
    paths = sorted(AGX_ORIN)
    changed = data.draw(st.dictionaries(st.sampled_from(paths), odd, max_size=8))
    write_board(root)
    for path, content in changed.items():
        (root / path).write_bytes(content)
    companion = SysfsCompanion(root, timeout_seconds=10.0)
    companion.start()
    for _ in range(2):
        for name, value in by_name(companion.columns()).items():
            assert isfinite(value), name
            assert 0 <= value <= (1.0 if name.endswith("_ratio") else 1e21), name
    companion.stop()
    for celsius in read_trips(root).values():
        assert 0 < celsius < 200


@pytest.mark.parametrize("code", [errno.EACCES, errno.EPERM, errno.EIO, errno.ENODEV])
def test_a_file_that_refuses_is_absent(tmp_path, started, monkeypatch, code):
    """No right to open, and no answer of the driver, cost that column and no other."""
    real_open, real_read = os.open, os.pread
    refused: list[int] = []

    def refuse(path: object, *rest: int) -> int:
        if str(path).endswith("oc3_event_cnt"):
            if code in (errno.EACCES, errno.EPERM):
                raise OSError(code, os.strerror(code))
            refused.append(real_open(path, *rest))  # type: ignore[arg-type]
            return refused[-1]
        return real_open(path, *rest)  # type: ignore[arg-type]

    def fail(opened: int, *rest: int) -> bytes:
        if opened in refused:
            raise OSError(code, os.strerror(code))
        return real_read(opened, *rest)

    monkeypatch.setattr(os, "open", refuse)
    monkeypatch.setattr(os, "pread", fail)
    told = by_name(started(write_board(tmp_path)).columns())
    assert "throttle.oc3.events" not in told
    assert told["throttle.oc2.events"] == 15


def test_a_file_that_vanishes_is_absent_and_may_come_back(tmp_path, monkeypatch):
    """An open file whose driver went answers ENODEV; its successor is opened at the next look."""
    path = tmp_path / "count"
    path.write_text("7\n")
    file = KernelFile(path)
    assert to_number(file.text()) == 7
    real = os.pread

    def gone(*_: object) -> bytes:
        raise OSError(errno.ENODEV, "no such device")

    monkeypatch.setattr(os, "pread", gone)
    path.unlink()
    assert to_number(file.text()) is None
    monkeypatch.setattr(os, "pread", real)
    assert to_number(file.text()) is None
    path.write_text("1\n")
    assert to_number(file.text()) == 1
    file.close()


def test_a_pipe_in_place_of_a_file_is_not_waited_for(tmp_path, started):
    """What is not a plain file is not read, so nobody waits for its other end."""
    write_board(tmp_path)
    for path in (OC3, ALERT, "var/lib/nvpmodel/status", "sys/class/hwmon/hwmon0/name"):
        (tmp_path / path).unlink()
        os.mkfifo(tmp_path / path)
    watch = Stopwatch()
    told = by_name(started(tmp_path).columns())
    assert watch.seconds < 5
    assert told["throttle.oc2.events"] == 15
    assert not {"throttle.oc3.events", "power_mode.number", "fans.pwmfan.speed_ratio"} & set(told)


class Hanging(KernelFile):
    """A file whose driver does not answer until it is let."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.reads = 0
        self.let = threading.Event()

    def text(self) -> str | None:
        self.reads += 1
        self.let.wait(300)
        return "5"


def test_a_file_that_hangs_is_left_behind(tmp_path, started):
    """Telemetry waits for it once, a moment; it is named, and all others are told again."""
    healthy, hanging = tmp_path / "healthy", Hanging(tmp_path / "hanging")
    healthy.write_text("3\n")

    def find(root: Path) -> Iterator[Reading]:  # noqa: ARG001
        yield Scaled(KernelFile(healthy), FAN_SPEED, "healthy")
        yield Scaled(hanging, FAN_SPEED, "hanging")

    clock = JumpClock()
    companion = started(tmp_path, clock, finders=(find,), timeout_seconds=0.2)
    watch = Stopwatch()
    assert companion.columns() == {}
    assert companion.columns() == {}  # and this time it does not wait at all
    assert watch.seconds < 5
    assert companion.problem is None
    jump(clock, 1.1)
    assert companion.columns() == {}
    assert companion.problem is None
    jump(clock, 1.1)
    assert companion.columns() == {}
    assert companion.problem is not None
    assert str(hanging.path) in companion.problem
    assert until(lambda: companion.columns() == {(FAN_SPEED, "healthy"): 3.0})
    hanging.let.set()
    assert companion.columns() == {(FAN_SPEED, "healthy"): 3.0}
    assert hanging.reads == 1


def test_a_process_that_was_stopped_loses_no_file(tmp_path, started):
    """Of a file that is late once, because nobody ran for a while, nothing is lost."""
    late = Hanging(tmp_path / "late")

    def find(root: Path) -> Iterator[Reading]:  # noqa: ARG001
        yield Scaled(late, FAN_SPEED, "late")

    clock = JumpClock()
    companion = started(tmp_path, clock, finders=(find,), timeout_seconds=0.2)
    assert companion.columns() == {}
    jump(clock, 60.0)
    assert companion.columns() == {}
    late.let.set()
    told: object = {}
    until = time.monotonic() + 10
    while not told and time.monotonic() < until:
        told = companion.columns()
    assert (told, companion.problem) == ({(FAN_SPEED, "late"): 5.0}, None)


def test_nothing_stays_open(tmp_path):
    """After the end no file is held and no thread is left."""
    write_board(tmp_path)
    folder = Path("/proc/self/fd")
    companion = SysfsCompanion(tmp_path, timeout_seconds=10.0)
    companion.start()
    assert companion.columns()

    def held() -> list[str]:
        found = []
        for entry in folder.iterdir():
            with contextlib.suppress(FileNotFoundError):  # the list of files is one of them
                found.append(str(entry.readlink()))
        return [link for link in found if link.startswith(str(tmp_path))]

    assert any(link.endswith(OC3) for link in held())
    companion.stop()
    assert until(lambda: held() == [])
    assert companion.columns() == {}


def test_trips_are_the_lowest_of_their_kind(tmp_path):
    """Zones are named as tegrastats names them; a trip that is switched off is none."""
    assert read_trips(write_board(tmp_path)) == {
        ("cpu", "passive"): 70.0,
        ("cpu", "critical"): 104.5,
    }


def test_odd_names_and_links_cost_their_own_row(tmp_path, started):
    """A name that is no text can be no label; a link may lead to itself."""
    write_board(tmp_path)
    for name in (b"BAT\xff", b"BAT\n1", b"BAT0"):
        supply = Path(os.fsdecode(os.fsencode(tmp_path / "sys/class/power_supply") + b"/" + name))
        supply.mkdir(parents=True)
        (supply / "type").write_text("Battery\n")
        (supply / "capacity").write_text("50\n")
    chip = tmp_path / "sys/class/hwmon/hwmon9"
    chip.mkdir()
    (chip / "name").write_text("ina3221\n")
    (chip / "samples").write_text("64\n")
    (chip / "device").symlink_to("device")
    columns = by_name(started(tmp_path).columns())
    assert {name for name in columns if name.startswith("battery")} == {"battery.BAT0.charge_ratio"}
    assert read_board_facts(tmp_path).rail_sensors["device.samples"] == 64.0


def test_the_tree_is_where_the_kernel_lists_it(tmp_path, started):
    """Cores are found by the flat list of devices, wherever a release puts them in the tree."""
    write_board(tmp_path)
    listed = tmp_path / "sys/bus/platform/devices/15880000.nvdla0"
    listed.unlink()
    told = by_name(started(tmp_path).columns())
    assert "dla.0.powered_seconds" not in told
    assert (tmp_path / HOST1X / "15880000.nvdla0").is_dir()
    assert "dla.1.powered_seconds" in told
