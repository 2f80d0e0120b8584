"""A line of the NVML reader: its numbers in base units, and nothing that it does not contain."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tegrascope.parsers.errors import ParseError
from tegrascope.parsers.nvml import THROTTLES, GpuFacts, parse_nvml_line, throttles
from tegrascope.parsers.records import GpuSample, flatten

WHOLE = {
    "event": "sample",
    "at_ns": 1_000_000_000,
    "power_mw": 126_300,
    "power_from": "instant",
    "average_mw": 120_000,
    "gpu_percent": 40,
    "memory_percent": 12,
    "memory_used_bytes": 1 << 30,
    "memory_total_bytes": 8 << 30,
    "sm_mhz": 1980,
    "memory_mhz": 2619,
    "gpu_celsius": 45,
    "memory_celsius": 61,
    "fan_percent": 110,
    "nvenc_percent": 7,
    "nvdec_percent": 0,
    "performance_state": 0,
    "power_limit_mw": 700_000,
    "clock_events": 0x24,
    "energy_mj": 93_404_736,
    "energy_begin_ns": 1_001_000_000,
    "energy_end_ns": 1_005_000_000,
}


def read(**figures: object) -> GpuSample:
    found = parse_nvml_line(json.dumps({"event": "sample", "at_ns": 5, **figures}))
    assert isinstance(found, GpuSample)
    return found


def test_every_number_has_a_name_and_a_base_unit():
    """Nothing that the reader prints is lost on the way to the timeline."""
    found = parse_nvml_line(json.dumps(WHOLE))
    assert found.unparsed == ()
    named = flatten(found)
    throttling = {name: named.pop(name) for name in list(named) if name.startswith("throttle.")}
    assert named == {
        "emc.frequency_hertz": 2_619_000_000,
        "gpu.utilization_ratio": 0.4,
        "gpu.frequency_hertz.0": 1_980_000_000,
        "engines.NVENC.utilization_ratio": 0.07,
        "engines.NVDEC.utilization_ratio": 0,
        "temperatures_celsius.gpu": 45,
        "temperatures_celsius.memory": 61,
        "rails.GPU.instant_watts": 126.3,
        "rails.GPU.average_watts": 120,
        "rails.GPU.counter_joules": 93_404.736,
        "rails.GPU.counter_after_seconds": 0.003,
        "rails.GPU.counter_read_seconds": 0.004,
        "gpu_memory.used_bytes": 1 << 30,
        "gpu_memory.total_bytes": 8 << 30,
        "gpu_memory.active_ratio": 0.12,
        "gpu.power_limit_watts": 700,
        "gpu.performance_state": 0,
        "fans.gpu.speed_ratio": 1.1,
    }
    active = {name for name, value in throttling.items() if value}
    assert active == {"throttle.sw_power_cap.active", "throttle.sw_thermal.active"}
    assert len(throttling) == len(THROTTLES)


@pytest.mark.parametrize("left_out", [key for key in WHOLE if key not in ("event", "at_ns")])
def test_a_missing_value_is_absent(left_out):
    """Each figure can be missing by itself; no other one changes for it, and none becomes zero."""
    whole = flatten(parse_nvml_line(json.dumps(WHOLE)))
    less = {key: value for key, value in WHOLE.items() if key != left_out}
    found = flatten(parse_nvml_line(json.dumps(less)))
    assert set(found) <= set(whole)
    assert all(found[name] == whole[name] for name in found)
    assert len(found) < len(whole) or left_out == "power_from"


def test_memory_activity_is_not_a_bandwidth():
    """NVML's memory figure is a share of time, so the memory controller gets no load from it."""
    found = read(memory_percent=100, memory_mhz=2619)
    assert found.columns == {"gpu_memory.active_ratio": 1, "emc.frequency_hertz": 2_619_000_000}


def test_lagging_power_has_no_average():
    """The power of such a GPU is a mean itself; the first line says so."""
    found = read(power_mw=5000, power_from="usage", average_mw=4000)
    assert found.rails["GPU"].average_watts is None
    hello = parse_nvml_line('{"event": "hello", "power_from": "usage", "power_limit_mw": 1500}')
    assert isinstance(hello, GpuFacts)
    assert (hello.power_reading, hello.power_limit_watts) == ("usage", 1.5)


def test_number_below_its_least_is_not_understood():
    found = read(gpu_percent=-1, gpu_celsius=-20)
    assert found.unparsed == ("gpu_percent=-1",)
    assert flatten(found)["temperatures_celsius.gpu"] == -20


@pytest.mark.parametrize("key", ["power_limit_mw", "sm_mhz", "gpu_percent", "memory_used_bytes"])
def test_number_that_no_float_can_hold_is_not_understood(key):
    found = read(gpu_celsius=20, **{key: 10**400})
    assert found.unparsed == (f"{key}=1{'0' * 400}"[:64],)


@pytest.mark.parametrize("key", ["at_ns", "power_mw", "energy_mj", "clock_events"])
def test_number_wider_than_any_of_nvml_is_noise(key):
    line = {"event": "sample", "at_ns": 1, "energy_begin_ns": 1, "energy_end_ns": 2, key: 2**64}
    with pytest.raises(ParseError):
        parse_nvml_line(json.dumps(line))


def test_impossible_values_are_reported_and_left_out():
    """A load beyond 100 % and a reason without a name are kept verbatim, and harm nothing else."""
    found = read(gpu_percent=255, nvenc_percent=50, clock_events=0x1004)
    assert found.unparsed == ("gpu_percent=255", "clock_events=0x1000")
    assert "gpu.utilization_ratio" not in found.columns
    assert found.columns["engines.NVENC.utilization_ratio"] == 0.5
    assert found.columns["throttle.sw_power_cap.active"]


@pytest.mark.parametrize(
    ("mask", "kinds"),
    [
        (0x001, set()),
        (0x112, set()),
        (0x004, {"sw_power_cap"}),
        (0x008, {"hw_slowdown"}),
        (0x048, {"hw_thermal"}),
        (0x088, {"hw_power_brake"}),
        (0x020, {"sw_thermal"}),
        (0x600, {"board_limit", "reliability"}),
    ],
)
def test_only_reasons_that_lower_the_clock_are_throttling(mask, kinds):
    """Idling and clocks set by a user are not throttling; a slowdown counts once, by its cause."""
    assert {kind for kind, is_active in throttles(mask).items() if is_active} == kinds


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("", "noise"),
        ("[]", "noise"),
        ('{"event": "sample"}', "noise"),
        ('{"event": "sample", "at_ns": -1}', "noise"),
        ('{"event": "sample", "at_ns": 1, "power_mw": "much"}', "noise"),
        ('{"event": "sample", "at_ns": 1, "surprise": 1}', "noise"),
        ('{"event": "sample", "at_ns": 1}', "empty"),
    ],
)
def test_other_lines_are_refused_with_a_reason(line, reason):
    """Text that a library prints between the lines is not a sample."""
    with pytest.raises(ParseError) as raised:
        parse_nvml_line(line)
    assert raised.value.reason == reason


@given(st.text())
def test_no_text_is_fatal(text):
    """Any text gives a record or a ParseError."""
    try:
        parse_nvml_line(text)
    except ParseError as error:
        assert error.line == text
