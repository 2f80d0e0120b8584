"""The NVML reader as a real child over a stand-in for the module, and what collects its lines."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tegrascope.collectors.base import Stamped, SystemClock
from tegrascope.collectors.gpu.nvml import (
    GpuUsers,
    NvmlCollector,
    NvmlCompanion,
    NvmlSettings,
    nvml_command,
    nvml_source,
)
from tegrascope.collectors.gpu.reader import GONE, UNAVAILABLE, read
from tegrascope.collectors.lines.collector import Opening
from tegrascope.parsers import signals
from tegrascope.parsers.records import Sample, flatten
from tegrascope.parsers.signals import by_name

FAKES = Path(__file__).parents[1] / "fakes"
CALLS = {
    "UtilizationRates": {"gpu_percent", "memory_percent"},
    "MemoryInfo": {"memory_used_bytes", "memory_total_bytes"},
    "ClockInfo": {"sm_mhz", "memory_mhz"},
    "Temperature": {"gpu_celsius"},
    "FanSpeed": {"fan_percent"},
    "EncoderUtilization": {"nvenc_percent"},
    "DecoderUtilization": {"nvdec_percent"},
    "JpgUtilization": {"nvjpg_percent"},
    "OfaUtilization": {"ofa_percent"},
    "PerformanceState": {"performance_state"},
    "EnforcedPowerLimit": {"power_limit_mw"},
    "CurrentClocksEventReasons": {"clock_events"},
    "TotalEnergyConsumption": {"energy_mj", "energy_begin_ns", "energy_end_ns"},
}


def start(*arguments: str, **asked: object) -> Any:
    """Run the reader to its end; what NVML is to do is said as the fake wants it."""
    return subprocess.run(
        [sys.executable, "-m", "tegrascope.collectors.gpu.reader", *arguments],
        env={**os.environ, "PYTHONPATH": str(FAKES), "FAKE_NVML": json.dumps(asked)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def lines(*arguments: str, samples: int = 1, **asked: object) -> list[dict[str, Any]]:
    """Return what the reader printed: the first line, then samples."""
    told = start("--interval", "0.01", "--samples", str(samples), *arguments, **asked)
    assert (told.returncode, told.stderr) == (0, "")
    return [json.loads(line) for line in told.stdout.splitlines()]


def test_first_line_is_what_does_not_change():
    """Name, driver and limits come once, before any sample."""
    hello, sample = lines()
    assert hello == {
        "event": "hello",
        "name": "Fake GPU 0",
        "uuid": "GPU-0",
        "part_number": "900-00000",
        "power_limit_mw": 350_000,
        "power_from": "instant",
        "versions": {"nvidia_driver": "580.1", "nvml": "13.580.1", "cuda_driver": "13.1"},
        "refused": {},
    }
    assert sample["event"] == "sample"
    assert set().union(*CALLS.values()) <= set(sample)


def test_power_is_stamped_before_what_is_slow():
    """The stamp of a sample is that of its power; the counter has stamps of its own around it."""
    _, sample = lines()
    assert sample["at_ns"] < sample["energy_begin_ns"]
    assert sample["energy_end_ns"] - sample["energy_begin_ns"] >= 3_000_000


@pytest.mark.parametrize("code", [3, 4, 13])
@pytest.mark.parametrize("call", CALLS)
def test_what_a_gpu_does_not_say_is_absent(call, code):
    """One refused call costs its own figures, never a zero, and none of the others."""
    _, whole = lines()
    older = {"CurrentClocksThrottleReasons": code} if call.startswith("CurrentClocks") else {}
    hello, sample = lines(refuse={call: code, **older})
    assert set(whole) - set(sample) == CALLS[call]
    assert len(hello["refused"]) >= 1


def test_old_module_without_a_call_goes_on():
    """A call that this nvidia-ml-py does not have is a refusal; throttling has an older name."""
    hello, sample = lines(missing=["OfaUtilization", "CurrentClocksEventReasons"])
    assert "does not have it" in hello["refused"]["ofa"]
    assert "ofa_percent" not in sample
    assert sample["clock_events"] == 0


def test_passing_trouble_is_asked_again():
    """An error that may pass leaves a figure out this time and is no refusal."""
    hello, sample = lines(refuse={"UtilizationRates": 10})
    assert hello["refused"] == {}
    assert "gpu_percent" not in sample


def test_without_instant_power_the_mean_stands_in_and_says_so():
    """Older drivers know the lagging mean alone; it never passes for the instant figure."""
    hello, sample = lines(refuse={"186": 3})
    assert hello["power_from"] == sample["power_from"] == "usage"
    assert sample["power_mw"] > 0
    assert "average_mw" not in sample
    hello, sample = lines(refuse={"186": 3, "PowerUsage": 3})
    assert "power_from" not in hello
    assert "power_mw" not in sample


def test_memory_sensor_that_is_not_there_is_absent():
    """A field value has a return code of its own."""
    assert lines()[1]["memory_celsius"] == 61
    assert "memory_celsius" not in lines(refuse={"82": 3})[1]


def test_two_gpus_are_told_apart():
    """An index and a UUID name one GPU each, and its figures are its own."""
    for wanted in ("1", "GPU-1"):
        hello, sample = lines("--gpu", wanted, gpus=2)
        assert (hello["name"], sample["gpu_percent"]) == ("Fake GPU 1", 41)
    assert lines("--gpu", "0", gpus=2)[0]["uuid"] == "GPU-0"


@pytest.mark.parametrize(
    ("asked", "word"),
    [
        ({"absent": True}, "pip install nvidia-ml-py"),
        ({"init": 12}, "install the driver"),
        ({"init": 9}, "modprobe nvidia"),
        ({"init": 18}, "reboot"),
        ({"init": 4}, "/dev/nvidiactl"),
        ({"init": 999}, "nvidia-smi"),
        ({"handle": 4}, "/dev/nvidiactl"),
        ({"gpus": 0}, "no GPU 0"),
    ],
)
def test_what_is_missing_is_one_line(asked, word):
    """No module, no driver, no GPU, no permission: one line with what mends it, and status 3."""
    told = start(**asked)
    assert told.returncode == UNAVAILABLE
    assert told.stdout == ""
    assert told.stderr.count("\n") == 1
    assert word in told.stderr


@pytest.mark.parametrize("wanted", ["2", "GPU-none"])
def test_no_such_gpu_is_told_with_those_there_are(wanted):
    """Who names a wrong one is told which there are."""
    told = start("--gpu", wanted, gpus=2)
    assert told.returncode == UNAVAILABLE
    assert f"no GPU {wanted}" in told.stderr
    assert "0 to 1" in told.stderr


def test_gpu_that_is_lost_ends_the_reader():
    """After the loss nothing is printed any more, and the status tells it from what is missing."""
    told = start("--interval", "0.01", lost_after=4)
    assert told.returncode == GONE
    assert len(told.stdout.splitlines()) == 4
    assert told.stderr == (
        "nvml: the GPU has fallen off the bus: look at dmesg for Xid errors; reboot\n"
    )


def test_reader_ends_when_nobody_reads():
    """A daemon that was killed leaves no reader behind, and no traceback."""
    with subprocess.Popen(
        [sys.executable, "-m", "tegrascope.collectors.gpu.reader", "--interval", "0.01"],
        env={**os.environ, "PYTHONPATH": str(FAKES)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as reader:
        assert reader.stdout is not None
        assert reader.stderr is not None
        reader.stdout.readline()
        reader.stdout.close()
        assert reader.wait(60) == 0
        assert reader.stderr.read() == ""


def test_reader_needs_next_to_nothing():
    """It starts in an instant and works where the interpreter has no pydantic."""
    code = (
        "import sys, tegrascope.collectors.gpu.reader;"
        "sys.exit(any(name in sys.modules for name in ('pydantic', 'pynvml', 'psutil')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


class Ticking:
    """A clock that passes when slept on, and a little with each sample."""

    def __init__(self, *sample_ns: int) -> None:
        self.now_ns = 1000
        self._sample_ns = list(sample_ns)
        self.begun: list[int] = []

    def sample(self) -> dict[str, Any]:
        """Take as long as is planned for it."""
        self.begun.append(self.now_ns - 1000)
        self.now_ns += self._sample_ns.pop(0)
        return {}

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.now_ns += round(seconds * 1e9)


def test_deadlines_are_absolute():
    """A slow reading delays no later one, and one that outlasts its interval is not made up for."""
    clock = Ticking(3_000_000, 3_000_000, 250_000_000, 3_000_000, 0)
    read(clock, 0.1, lambda _: None, 5, clock.sleep, lambda: clock.now_ns)
    assert clock.begun == [0, 100_000_000, 200_000_000, 500_000_000, 600_000_000]


class Lines:
    """A source of given lines, each arriving at a given time."""

    name = "nvml"
    is_live = True
    interval_seconds = 0.1
    restarts = 0
    problem = None

    def __init__(self, *lines: tuple[int, object]) -> None:
        self._lines = lines

    def lines(self) -> Iterator[Stamped[str]]:
        """Yield them."""
        for at_ns, line in self._lines:
            text = line if isinstance(line, str) else json.dumps(line)
            yield Stamped(at_ns, 10**18 + at_ns, text)

    def stop(self) -> None:
        """Nothing is to be ended."""


def sample(at_ns: int, **figures: object) -> dict[str, object]:
    return {"event": "sample", "at_ns": at_ns, "power_mw": 1000, "power_from": "instant", **figures}


def test_time_of_a_sample_is_that_of_its_power():
    """The line comes when the slow readings are done; the sample is of the time before them."""
    (found,) = NvmlCollector(Lines((20_000_000, sample(5_000_000)))).collect()
    assert (found.monotonic_ns, found.wall_ns) == (5_000_000, 10**18 + 5_000_000)


def test_first_line_is_no_sample_and_no_stranger():
    """What the reader says of the GPU is kept aside and counted nowhere."""
    hello = {"event": "hello", "name": "H", "uuid": "GPU-5", "versions": {"nvml": "13"}}
    collector = NvmlCollector(Lines((1, {**hello, "power_from": "usage"}), (9, sample(2))))
    assert len(list(collector.collect())) == 1
    assert (collector.lines, collector.samples, collector.unparsed) == (1, 1, {})
    assert collector.about is not None
    assert (collector.about.board, collector.about.gpu_uuid) == ("H", "GPU-5")
    assert collector.about.power_reading == "usage"
    assert collector.about.versions == {"nvml": "13"}


def test_strange_lines_are_counted():
    """What a library prints, a GPU that says nothing, a stamp that lies ahead: no samples."""
    silent = {"event": "sample", "at_ns": 1}
    collector = NvmlCollector(Lines((1, "warning"), (2, silent), (3, sample(4)), (5, sample(5))))
    assert len(list(collector.collect())) == 1
    assert collector.unparsed == {"noise": 1, "empty": 1, "time": 1}


def events_of(sample: Sample) -> dict[str, float]:
    return signals.THROTTLE_EVENTS.by_label(flatten(sample))


def test_throttling_is_counted_when_it_begins():
    """A reason that lasts is one event, and one that comes back is another."""
    masks = [0, 4, 4, 0, 4 | 0x20, 0x20, 0]
    collector = NvmlCollector(
        Lines(*((i, sample(i, clock_events=mask)) for i, mask in enumerate(masks)))
    )
    counts = [events_of(found.value) for found in collector.collect()]
    assert [count["sw_power_cap"] for count in counts] == [0, 1, 1, 1, 2, 2, 2]
    assert [count["sw_thermal"] for count in counts] == [0, 0, 0, 0, 1, 1, 1]
    assert counts[-1]["hw_thermal"] == 0


def test_throttling_that_is_not_told_is_not_counted():
    """A GPU without clock events has no counts, not counts of zero."""
    (found,) = NvmlCollector(Lines((1, sample(1)))).collect()
    assert events_of(found.value) == {}


def test_lost_gpu_is_started_again_and_counts_go_on(monkeypatch):
    """The reader that ended with its GPU is begun anew, and says meanwhile what is wrong."""
    monkeypatch.setenv("PYTHONPATH", str(FAKES))
    monkeypatch.setenv("FAKE_NVML", json.dumps({"lost_after": 4, "events": [0, 4]}))
    source = nvml_source(0.02, backoff_seconds=(0.01, 0.01))
    collector = NvmlCollector(source)
    found = []
    for one in collector.collect():
        found.append(one)
        if len(found) == 7:
            collector.stop()
    assert source.restarts == 2
    assert all(a.monotonic_ns < b.monotonic_ns for a, b in pairwise(found))
    # A line that came with the seventh is still told.
    events = [events_of(one.value)["sw_power_cap"] for one in found]
    assert events[:7] == [0, 1, 1, 1, 2, 2, 2]


def test_why_there_are_no_samples_is_told(monkeypatch):
    """Without the module the source says what to install, for the readiness page."""
    monkeypatch.setenv("PYTHONPATH", str(FAKES))
    monkeypatch.setenv("FAKE_NVML", json.dumps({"absent": True}))

    class Ending(SystemClock):
        """Ends the source in the pause before its second start."""

        def wait(self, *_: object) -> bool:
            source.stop()
            return True

    source = nvml_source(0.1, clock=Ending())
    assert list(source.lines()) == []
    assert source.problem is not None
    assert "ended with status 3" in source.problem
    assert "pip install nvidia-ml-py" in source.problem


def test_command_names_the_gpu():
    """The reader is run by the same interpreter."""
    assert nvml_command(1.009)[0] == sys.executable
    assert nvml_command(1.009)[-4:] == ("--gpu", "0", "--interval", "1.009")


def beside(*arguments: str, **asked: object) -> list[dict[str, Any]]:
    """Return what the reader prints for a companion."""
    return lines("--beside", "--processes", *arguments, **asked)


def test_beside_has_power_load_and_processes_only():
    """A companion pays for nothing that tegrastats prints already."""
    hello, sample, listed = beside(processes={"17": 1000, "18": None})
    assert (hello["refused"], hello["power_from"]) == ({}, "instant")
    named = {"event", "at_ns", "power_mw", "power_from", "average_mw", "gpu_percent"}
    assert set(sample) == named
    assert listed["used_bytes"] == {"17": 1000}
    assert listed["busy_percent"] == {}


def test_load_of_processes_is_that_since_the_list_before():
    told = beside(
        *("--interval", "0.3", "--samples", "8"),
        processes={"17": 1000, "18": 5},
        busy={"17": 40, "19": 101},
    )
    lists = [line for line in told if line["event"] == "processes"]
    assert len(lists) >= 2
    assert [listed["busy_percent"] for listed in lists[1:]] == [{"17": 40.0}] * len(lists[1:])


def test_a_gpu_without_load_by_process_has_their_memory():
    *_, listed = beside(processes={"17": 1000}, refuse={"ProcessUtilization": 3})
    assert listed["used_bytes"] == {"17": 1000}
    assert listed["busy_percent"] is None


def listed_line(at_ns, used, busy=None):
    return {"event": "processes", "at_ns": at_ns, "used_bytes": used, "busy_percent": busy}


def test_samples_of_a_gpu_have_memory_and_load_by_process():
    """On a PC as well as beside tegrastats: samples have the last list, while it is new."""
    users = GpuUsers(top=10, names=(), name_of=name_of, clock=SystemClock())
    second = 10**9
    lines_of_gpu = (
        (second, sample(second)),
        (second, listed_line(second, {"1": 10, "2": 20, "99": 5}, {"1": 60, "2": 30, "7": 4})),
        (2 * second, sample(2 * second)),
        (9 * second, sample(9 * second)),
    )
    before, fresh, late = NvmlCollector(Lines(*lines_of_gpu), users).collect()

    def processes(found):
        columns = found.value.columns
        return {name: value for name, value in columns.items() if name.startswith("process.")}

    assert processes(before) == processes(late) == {}
    assert processes(fresh) == {
        "process.gpu_memory_bytes.p1": 10,
        "process.gpu_memory_bytes.tegrascope": 20,
        "process.gpu_memory_bytes.other": 5,
        "process.gpu_load_ratio.p1": 0.6,
        "process.gpu_load_ratio.tegrascope": 0.3,
        "process.gpu_load_ratio.other": 0.04,
    }


def test_nvml_as_a_source_reads_processes_unasked(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(FAKES))
    monkeypatch.setenv("FAKE_NVML", json.dumps({"processes": {"1": 1000}}))
    collector = NvmlSettings().open(Opening(0.02))
    used = None
    for number, found in enumerate(collector.collect()):
        used = sum(
            value
            for name, value in found.value.columns.items()
            if name.startswith("process.gpu_memory_bytes.")
        )
        if used or number > 1000:
            collector.stop()
            break
    assert used == 1000


PROCESS = {"process.gpu_memory_bytes.p5", "process.gpu_load_ratio.p5"}


@pytest.mark.parametrize(
    ("refused", "lost"),
    [
        (("UtilizationRates",), {"gpu.utilization_ratio"}),
        (("FieldValues", "PowerUsage"), {"gpu.power_watts"}),
        (("ComputeRunningProcesses", "GraphicsRunningProcesses"), PROCESS),
        (("ComputeRunningProcesses",), PROCESS),
        (("GraphicsRunningProcesses",), set()),
        (("ProcessUtilization",), {"process.gpu_load_ratio.p5"}),
        (("FieldValues",), set()),
    ],
)
def test_a_refused_value_costs_no_other_one(refused, lost):
    """Each of the three may be missing by itself."""
    told = beside(processes={"5": 1000}, refuse=dict.fromkeys(refused, 3))
    companion = NvmlCompanion(Lines(), name_of="p{}".format)
    for line in told:
        companion.take(json.dumps(line), 0)
    every = {"gpu.utilization_ratio", "gpu.power_watts", *PROCESS}
    assert set(by_name(companion.columns())) == every - lost


def test_call_that_fails_in_the_package_costs_its_own_value():
    hello, sample, _ = beside(processes={"5": 1000}, refuse={"UtilizationRates": "odd bytes"})
    assert hello["refused"] == {"utilization": "ValueError: odd bytes"}
    assert "gpu_percent" not in sample
    assert "power_mw" in sample


def test_a_gpu_that_refuses_everything_is_left_alone(caplog):
    """On Orin NVML supports none of it: one line of log, no child, and nothing is wrong."""
    caplog.set_level("INFO")
    calls = ("UtilizationRates", "FieldValues", "PowerUsage")
    processes = ("ComputeRunningProcesses", "GraphicsRunningProcesses")
    (hello, *_) = beside(refuse=dict.fromkeys((*calls, *processes), 3))

    class Once(Lines):
        """Counts how often it is ended."""

        stopped = 0

        def stop(self) -> None:
            self.stopped += 1

    source = Once()
    companion = NvmlCompanion(source, name_of=str)
    companion.take(json.dumps(hello), 0)
    assert (source.stopped, companion.problem, companion.columns()) == (1, None, {})
    assert [record.levelname for record in caplog.records] == ["INFO"]
    # Processes alone are worth a child.
    (hello, *_) = beside(refuse=dict.fromkeys(calls, 3))
    companion.take(json.dumps(hello), 0)
    assert source.stopped == 1


class Frozen(SystemClock):
    """A clock that is set."""

    def __init__(self) -> None:
        self.now_ns = 10**9

    def monotonic_ns(self) -> int:
        return self.now_ns


def test_an_old_reading_is_not_a_present_one():
    """A child that died or hangs leaves nothing that looks live."""
    clock = Frozen()
    companion = NvmlCompanion(Lines(), name_of=str, clock=clock)
    companion.take(json.dumps(sample(10**9, gpu_percent=40)), 0)
    companion.take(json.dumps({"event": "processes", "at_ns": 10**9, "used_bytes": {"7": 5}}), 0)
    assert len(companion.columns()) == 3
    clock.now_ns += 2 * 10**9
    assert len(companion.columns()) == 3
    assert companion.problem is None
    clock.now_ns += 2 * 10**9
    assert companion.columns() == {}
    assert companion.problem == "NVML does not answer: see dmesg"


def test_names_of_processes_are_bounded():
    """The largest are named, and configured ones and ours always; the sum is that of the GPU."""
    companion = NvmlCompanion(Lines(), top=2, names=["p1"], name_of=name_of, clock=Frozen())
    ever: set[str] = set()
    for round_ in range(50):
        used = {1: 1, 2: 2, 99: 99} | {1000 * round_ + i: i for i in range(100, 110)}
        line = {"event": "processes", "at_ns": 10**9, "used_bytes": used}
        companion.take(json.dumps(line), 0)
        shown = by_name(companion.columns())
        assert sum(shown.values()) == sum(used.values())
        assert len(shown) <= 2 + 3
        ever |= set(shown)
    assert "process.gpu_memory_bytes.p1" in ever
    assert "process.gpu_memory_bytes.tegrascope" in ever
    assert "process.gpu_memory_bytes.other" in ever
    assert len(ever) <= 20 + 3


def name_of(pid: int) -> str | None:
    return {2: "tegrascope", 99: None}.get(pid, f"p{pid}")


@pytest.mark.parametrize(
    ("chip", "expected"),
    [("nvidia,tegra264", True), ("nvidia,tegra234", False), ("", False)],
)
def test_only_a_thor_reads_nvml_unasked(tmp_path, monkeypatch, chip, expected):
    """Other boards and machines start nothing unless it is configured."""
    monkeypatch.syspath_prepend(str(FAKES))
    for file in ("proc/driver/nvidia/version", "proc/device-tree/compatible"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(f"nvidia,p3971\0{chip}\0", encoding="ascii")
    assert NvmlSettings().is_read_beside(tmp_path) == expected
    assert not NvmlSettings().is_read_beside(None)
    assert not NvmlSettings(beside=False).is_read_beside(tmp_path)
    assert NvmlSettings(beside=True).is_read_beside(None)
    (tmp_path / "proc/driver/nvidia/version").unlink()
    assert not NvmlSettings().is_read_beside(tmp_path)
