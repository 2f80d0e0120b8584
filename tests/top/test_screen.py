"""The screen as lines: of any page, in a window of any size."""

import time
from collections.abc import Callable
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tegrascope.collectors.application.client import ApiClient
from tegrascope.daemon.terminal import age
from tegrascope.daemon.top.client import DaemonClient, ScreenState, Series
from tegrascope.daemon.top.screen import ASCII, Glyphs, draw, glyphs_of
from tools.fleet.devices import SimulatedDevice
from tools.fleet.plan import plan_device

SHORT = """
tegra_gpu_utilization_ratio 0.5
tegra_dla_active{core="0"} 0
tegra_dla_powered_ratio{core="1"} 0.25
tegra_cpu_online{core="0"} 1
tegra_cpu_utilization_ratio{core="0"} 0.0
tegra_cpu_online{core="1"} 0
tegra_inference_run_active{workload="w",device="dla0"} 0
"""


@pytest.fixture(scope="module")
def pages() -> list[str]:
    """Pages of simulated devices: with two DLA cores and none, hot, and failing."""
    made = []
    for number_ in (1, 3, 6, 18):
        begin_ns = time.monotonic_ns() - 150_000_000_000
        device = SimulatedDevice(
            plan_device(number_, 0, 1.0), begin_ns=begin_ns, interval_seconds=1
        )
        while device.due_ns <= time.monotonic_ns():
            device.step()
        made.append(device.page.render("")[0].decode())
    return [*made, SHORT, ""]


def shown(page: str, width: int, height: int | None = None, **more: object) -> list[str]:
    url = "http://robot-007.example:9754"
    state = ScreenState(Series(page), url, **more)  # type: ignore[arg-type]
    return [text.plain for text in draw(state, width, height, Glyphs(), "q quits")]


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 5), st.integers(20, 220), st.integers(3, 70), st.text(max_size=90))
def test_nothing_overflows(pages, which, width, height, problem):
    page = Series(pages[which])
    history = [None, 1.0, 50.0] * 40
    state = ScreenState(page, "http://robot:9754", 12.5, history, time.time(), problem)
    lines = draw(state, width, height, Glyphs(), "q quits")
    assert len(lines) == height
    assert all(line.cell_len <= width for line in lines)
    assert lines[-1].plain.startswith("q quits")


def test_absent_is_not_zero():
    lines = shown(SHORT, 80)
    rows = {line[:4].strip(): line[:39] for line in lines}
    assert "50 %" in rows["GPU"]
    assert rows["EMC"].split() == ["EMC", "–"]
    assert rows["RAM"].split() == ["RAM", "–"]
    assert rows["DLA0"].split() == ["DLA0", "off"]
    assert rows["DLA1"].split()[-3:] == ["25", "%", "powered"]
    assert "▁x" in rows["CPU"]
    assert lines[0].startswith("tegrascope  board not known yet")
    assert "module                 –" in "\n".join(lines)
    assert "no zone is reported" in lines
    assert "SIMULATED" not in "\n".join(lines)
    workload = next(line for line in lines if line.startswith("w "))
    assert workload.split() == ["w", "dla0", *["–"] * 5, "0/0"]


def test_misses_of_a_deadline_are_below_their_workload():
    of = 'workload="w",device="dla0"'
    page = f"{SHORT}tegra_inference_deadline_seconds{{{of}}} 0.033\n"
    assert not [line for line in shown(page, 80) if "missed" in line]
    page += f"tegra_inference_deadline_misses_total{{{of}}} 12\n"
    assert [line.strip() for line in shown(page, 80) if "missed" in line] == ["12 missed 33 ms"]


def test_energy_per_unit_is_below_its_workload():
    of = 'workload="w",device="dla0"'
    name = "tegra_inference_last_run_energy_joules_per_unit"
    page = f'{SHORT}{name}{{unit="token",kind="net",{of}}} 0.1\n'
    assert not [line for line in shown(page, 80) if "token" in line]
    page += f'{name}{{unit="token",kind="gross",{of}}} 0.46143\n'
    assert [line.strip() for line in shown(page, 80) if "token" in line] == ["0.461 J per token"]


def test_row_has_the_results_of_the_last_good_run(pages):
    lines = shown(pages[0], 100, now_seconds=time.time())
    (run,) = [line for line in lines if line.startswith("detector-") and " ago " in line]
    *figures, net = run.split()[-6:-1]
    assert all(float(figure) > 0 for figure in figures)
    assert any(line.strip() == "baseline_drift" for line in lines)
    assert net == "–"  # withheld under that flag
    reason = [{"workload": run.split()[0], "outcome": "timeout", "reason": "hung\x1b[2J"}]
    printed = shown(pages[0], 100, runs=reason)
    assert "  timeout: hung?[2J" in printed
    assert any("throttled" in line for line in shown(pages[1], 80))
    assert any("/104 °C" in line for line in shown(pages[1], 80))


SUPPLY = """
tegra_ram_used_bytes 4294967296
tegra_ram_total_bytes 8589934592
tegra_ram_largest_free_block_bytes 4194304
tegra_gpu_memory_used_bytes 3221225472
tegra_gpu_memory_total_bytes 25769803776
tegra_rail_volts{rail="VDD_IN"} 5.016
tegra_rail_lowest_volts{rail="VDD_IN"} 4.936
tegra_rail_amperes{rail="VDD_IN"} 4.6
tegra_rail_limit_amperes{rail="VDD_IN",kind="warning"} 4.984
tegra_rail_volts{rail="VIN"} 19.98
tegra_rail_lowest_volts{rail="VIN"} 19.96
"""


def test_memory_of_the_gpu_free_block_and_supply_are_shown():
    lines = shown(SUPPLY, 100)
    assert any(line.startswith("VRAM") and "3.0 / 24.0 G" in line for line in lines)
    assert "largest free block 4 M  VDD_IN 5.02 V (lowest 4.94) 4.60 A  VIN 19.98 V" in lines
    assert not any(line.startswith("VRAM") for line in shown(SHORT, 100))
    drawn = draw(ScreenState(Series(SUPPLY), "http://robot:9754"), 100, None, Glyphs())
    (line,) = [line for line in drawn if "VDD_IN 5.02" in line.plain]
    assert [line.plain[span.start :].startswith("VDD_IN") for span in line.spans if span.style] == [
        True
    ]


class Daemon:
    """Answers with pages of a board that draws 10 W, of which not all time was observed."""

    url = "http://robot:9754"

    def __init__(self, *observed: tuple[float, float]) -> None:
        self.observed = iter(observed)

    def get(self, path: str, read: Callable[[bytes], Any] = bytes) -> Any:
        if path != "/metrics":
            return {"runs": [], "samples": []}
        time_seconds, seconds = next(self.observed)
        page = f"""
tegrascope_sample_timestamp_seconds{{source="s"}} {time_seconds}
tegra_module_energy_joules_total {10 * seconds}
tegra_module_energy_observed_seconds_total {seconds}
"""
        return read(page.encode())


def test_power_after_a_gap_and_a_restart_is_that_of_the_observed_time():
    client = DaemonClient(cast(ApiClient, Daemon((100, 50), (110, 52), (120, 5), (130, 15))))
    watts = [client.ask().watts for _ in range(4)]
    assert watts == [None, 10, 10, 10]


def test_terminal_without_utf_8_gets_ascii():
    assert glyphs_of("ANSI_X3.4-1968") == ASCII
    assert glyphs_of("UTF-8") == Glyphs()
    assert [ASCII.number(value, 6) for value in (None, 0, 0.00123, 5, 12.345, 123456.0)] == [
        *("     -", "     0", "0.0012", "  5.00", "  12.3", "123456")
    ]
    assert [age(seconds) for seconds in (-1, 90, 600, 86_400, 9e9)] == [
        *("0 s ago", "90 s ago", "10 min ago", "24 h ago", "999 d ago")
    ]


def test_reason_of_staleness_is_readable_at_80_columns(pages):
    problem = (
        "stale since 12:00:00: no tegrascope daemon answers at http://robot-007.example:9754 "
        "([Errno 111] Connection refused): is it running?"
    )
    lines = shown(pages[0], 80, 24, problem=problem)
    assert " ".join(lines[1:3]).split() == problem.split()


@pytest.mark.parametrize("height", [8, 10, 14])
def test_low_screen_shows_a_workload_and_the_power(pages, height):
    lines = shown(pages[0], 40, height, now_seconds=time.time())
    assert any(line.startswith("workload") for line in lines)
    assert any(line.startswith("detector-") for line in lines)
    if height >= 10:
        assert any(line.startswith("module") for line in lines)
        assert any(line.startswith("DLA0") for line in lines)


def test_large_screen_shows_the_last_minutes(pages):
    """Free lines are charts of loads and of the highest temperature, newest at the right."""
    past = {
        "GPU %": [None, 0.0, 0.5, 1.0],
        "DLA0 %": [None] * 4,
        "hottest °C": [40.0, 50.0, 60.0, 45.0],
    }
    lines = shown(pages[0], 200, 50, past=past)
    assert not any("DLA0 %" in line for line in lines)
    place = lines.index("GPU %  now 100, highest 100")
    chart = lines[place + 1 : place + 6]
    assert [line[-1] for line in chart] == ["█"] * 5
    assert [line[-2] for line in chart] == [" ", " ", "▄", "█", "█"]
    assert chart[-1][-4:-2].isspace()
    assert "hottest °C  now 45.0, highest 60.0" in lines
    assert len(lines) == 50


def test_client_fills_the_past_from_samples():
    sample = {"time": 100.0, "values": {"gpu.utilization_ratio": 0.5, "dla.0.busy_ratio": 0.25}}
    page = (
        'tegra_gpu_utilization_ratio 0.75\ntegra_dla_active{core="0"} 1\n'
        'tegrascope_sample_timestamp_seconds{source="t"} 101\n'
    )

    class Client:
        url = "http://robot"

        def get(self, path, read=None):
            if path == "/metrics":
                return read(page.encode())
            return {"samples": [sample], "runs": []}

    past = DaemonClient(cast(ApiClient, Client())).ask().past
    assert past["GPU %"] == (0.5, 0.75)
    assert past["DLA0 %"] == (0.25, None)


def test_cores_in_use_by_process_are_those_between_two_looks_of_the_daemon():
    cpu_seconds, moments = iter((100, 100, 105, 105)), iter((0.0, 1.0, 10.0, 11.0))

    class Client:
        url = "http://robot"

        def get(self, path, read=None):
            if path != "/metrics":
                return {"samples": [], "runs": []}
            labels = '{process="docker:0123456789ab/detect"}'
            page = (
                f"tegra_process_cpu_seconds_total{labels} {next(cpu_seconds)}\n"
                f"tegra_process_resident_memory_bytes{labels} {300 << 20}\n"
                f"tegra_process_gpu_memory_bytes{labels} {400 << 20}\n"
                f'tegra_process_gpu_memory_bytes{{process="other"}} {1 << 20}\n'
            )
            return read(page.encode())

    client = DaemonClient(cast(ApiClient, Client()), now_seconds=lambda: next(moments))
    states = [client.ask() for _ in range(4)]
    found = [state.processes.get("docker:0123456789ab/detect") for state in states]
    assert found == [None, None, 0.5, 0.5]
    lines = [line.plain for line in draw(states[-1], 80, 24, Glyphs(), "q quits")]
    assert "docker:0123456789ab/detect 0.50 cores 300 M GPU 400 M  other GPU 1 M" in lines
