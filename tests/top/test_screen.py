"""The screen as lines: of any page, in a window of any size."""

import json
from dataclasses import replace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tegrascope.collectors.application.client import ApiClient
from tegrascope.collectors.board.boards import find_rail_rule
from tegrascope.daemon.terminal import age
from tegrascope.daemon.web.present import Present
from tegrascope.daemon.web.troubles import TroubleWatch
from tegrascope.parsers import signals
from tegrascope.parsers.errors import UserError
from tegrascope.workbench.top.client import DaemonClient, ScreenState
from tegrascope.workbench.top.screen import ASCII, Glyphs, draw, glyphs_of
from tools.fleet.devices import SimulatedDevice
from tools.fleet.plan import plan_device

URL = "http://robot-007.example:9754"
SIMULATED_NS = 150_000_000_000
SHORT = {
    "gpu.utilization_ratio": 0.5,
    "dla.0.on": 0.0,
    "dla.1.powered_ratio": 0.25,
    "cpu.0.online": 1.0,
    "cpu.0.utilization_ratio": 0.0,
    "cpu.1.online": 0.0,
}


def workload(**fields: object) -> dict[str, object]:
    return {
        "workload": "w",
        "device": "dla0",
        "active_run": None,
        "deadline_seconds": None,
        "misses": 0,
        "runs": {},
        "last_good": None,
        **fields,
    }


def status(**fields: object) -> dict[str, Any]:
    """Return the state of a daemon of which little is known."""
    return {
        "time": 100.0,
        "simulated": False,
        "board": dict.fromkeys(("name", "module", "l4t", "power_mode")),
        "total_rails": [],
        "trips": {},
        "processes": [],
        "sources": [],
        "companions": {},
        "workloads": [],
        **fields,
    }


@pytest.fixture(scope="module")
def states() -> list[ScreenState]:
    """Simulated devices: with two DLA cores and none, hot, and failing; and hardly anything."""
    made = []
    for number in (1, 3, 6, 18):
        device = SimulatedDevice(plan_device(number, 0, 1.0), begin_ns=0, interval_seconds=1)
        while device.due_ns <= SIMULATED_NS:
            device.step()
        snapshot, clock = device.live.snapshot, device.clock
        rule = find_rail_rule(signals.RAIL_POWER.by_label(snapshot.values))
        found = Present(device.timeline, TroubleWatch()).document(
            snapshot, clock.monotonic_ns(), clock.wall_ns(), rule, {}
        )
        values = dict(snapshot.values)
        made.append(ScreenState(found, URL, values, found["time"], now_seconds=found["time"]))
    little = ScreenState(status(workloads=[workload()]), URL, SHORT)
    return [*made, little, ScreenState(status(), URL)]


def shown(state: ScreenState, width: int, height: int | None = None, **more: Any) -> list[str]:
    drawn = draw(replace(state, **more), width, height, Glyphs(), "q quits")
    return [text.plain for text in drawn]


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 5), st.integers(20, 220), st.integers(3, 70), st.text(max_size=90))
def test_nothing_overflows(states, which, width, height, problem):
    state = replace(states[which], watts=12.5, problem=problem)
    lines = draw(state, width, height, Glyphs(), "q quits")
    assert len(lines) == height
    assert all(line.cell_len <= width for line in lines)
    assert lines[-1].plain.startswith("q quits")


def test_absent_is_not_zero(states):
    lines = shown(states[4], 80)
    rows = {line[:4].strip(): line[:39] for line in lines}
    assert "50 %" in rows["GPU"]
    assert rows["EMC"].split() == ["EMC", "–"]
    assert rows["RAM"].split() == ["RAM", "–"]
    assert rows["DLA0"].split() == ["DLA0", "idle"]
    assert rows["DLA1"].split()[-3:] == ["25", "%", "powered"]
    assert "▁x" in rows["CPU"]
    assert lines[0].startswith("tegrascope  board not known yet")
    assert "module                 –" in "\n".join(lines)
    assert "no zone is reported" in lines
    assert "SIMULATED" not in "\n".join(lines)
    row = next(line for line in lines if line.startswith("w "))
    assert row.split() == ["w", "dla0", *["–"] * 5, "0/0"]


def test_misses_of_a_deadline_are_below_their_workload():
    def lines(**fields):
        one = workload(deadline_seconds=0.033, **fields)
        return shown(ScreenState(status(workloads=[one]), URL), 80)

    assert not [line for line in lines() if "missed" in line]
    assert [line.strip() for line in lines(misses=12) if "missed" in line] == ["12 missed 33 ms"]


def test_energy_per_unit_is_below_its_workload():
    for joules, expected in ((None, []), (0.46143, ["0.461 J gross per token"])):
        good = {"ended": 90.0, "unit": "token", "joules_per_unit": joules}
        state = ScreenState(status(workloads=[workload(last_good=good)]), URL)
        assert [line.strip() for line in shown(state, 80) if "token" in line] == expected


def test_row_has_the_results_of_the_last_good_run(states):
    lines = shown(states[0], 100)
    (run,) = [line for line in lines if line.startswith("detector-") and " ago " in line]
    *figures, net = run.split()[-6:-1]
    assert all(float(figure) > 0 for figure in figures)
    assert any(line.strip() == "baseline_drift" for line in lines)
    assert net == "–"  # withheld under that flag
    reason = [{"workload": run.split()[0], "outcome": "timeout", "reason": "hung\x1b[2J"}]
    printed = shown(states[0], 100, runs=reason)
    assert r"  timeout: hung\x1b[2J" in printed
    assert any("throttled" in line for line in shown(states[1], 80))
    assert any("/104.5 °C" in line for line in shown(states[1], 80))


SUPPLY = {
    "ram.used_bytes": 4294967296,
    "ram.total_bytes": 8589934592,
    "ram.largest_free_block_bytes": 4194304,
    "gpu_memory.used_bytes": 3221225472,
    "gpu_memory.total_bytes": 25769803776,
    "rails.VDD_IN.volts": 5.016,
    "rails.VDD_IN.lowest_volts": 4.936,
    "rails.VDD_IN.amperes": 4.6,
    "rails.VDD_IN.limit_warning_amperes": 4.984,
    "rails.VIN.volts": 19.98,
    "rails.VIN.lowest_volts": 19.96,
}


def test_memory_of_the_gpu_free_block_and_supply_are_shown(states):
    state = ScreenState(status(), URL, SUPPLY)
    lines = shown(state, 100)
    assert any(line.startswith("VRAM") and "3.0 / 24.0 G" in line for line in lines)
    assert "largest free block 4 M  VDD_IN 5.02 V (lowest 4.94) 4.60 A  VIN 19.98 V" in lines
    assert not any(line.startswith("VRAM") for line in shown(states[4], 100))
    (line,) = [one for one in draw(state, 100, None, Glyphs()) if "VDD_IN 5.02" in one.plain]
    assert [line.plain[span.start :].startswith("VDD_IN") for span in line.spans if span.style] == [
        True
    ]


class Daemon:
    """Answers with a state and the samples after a time; counts requests for runs."""

    url = "http://robot:9754"

    def __init__(self, samples: dict[float, dict[str, float]], **fields: object) -> None:
        self.samples, self.runs = samples, 0
        self.state = status(sources=[{"name": "s", "up": True}], **fields)

    def get(self, path: str) -> Any:
        if path == "/api/v1/status":
            return self.state
        if path.startswith("/api/v1/summaries"):
            self.runs += 1
            return {"runs": []}
        since = float(path.partition("since=")[2])
        chosen = ((at, values) for at, values in self.samples.items() if at > since)
        return {"samples": [{"time": at, "values": values} for at, values in chosen]}


def client_of(daemon: object) -> DaemonClient:
    return DaemonClient(cast(ApiClient, daemon))


def test_power_is_that_of_the_rails_of_the_module_and_absent_without_a_source():
    def at(first, second=3.0):
        return {"rails.A.instant_watts": first, "rails.B.instant_watts": second}

    lacks_one = {"rails.A.instant_watts": 4.0}
    daemon = Daemon({99.1: at(4.0), 99.6: at(6.0), 100.0: lacks_one}, total_rails=["A", "B"])
    client = client_of(daemon)
    first = client.ask()
    assert (first.watts, first.rails) == (8.0, {"A": 4.0})
    daemon.samples[101.5] = at(1.0)
    assert (client.ask().watts, client.ask().watts) == (4.0, 4.0)
    daemon.samples[103.0] = lacks_one
    assert client.ask().watts is None
    daemon.state["sources"] = [{"name": "s", "up": False}]
    stale = client.ask()
    assert (stale.watts, stale.values, stale.sample_seconds) == (None, {}, 103.0)


def test_a_clock_that_was_set_back_does_not_end_the_samples():
    daemon = Daemon({100.0: SHORT})
    client = client_of(daemon)
    assert client.ask().sample_seconds == 100.0
    daemon.samples = {50.5: SHORT}
    daemon.state["time"] = 50.0
    assert client.ask().sample_seconds == 50.5


def test_runs_are_asked_for_when_one_has_ended():
    daemon = Daemon({}, workloads=[workload(runs={"ok": 1})])
    client = client_of(daemon)
    for outcomes, asked in (({"ok": 1}, 1), ({"ok": 1}, 1), ({"ok": 1, "failed": 1}, 2)):
        daemon.state["workloads"] = [workload(runs=outcomes)]
        client.ask()
        assert daemon.runs == asked


def test_another_program_is_one_line():
    class Other(ApiClient):
        def get(self, path, read=json.loads):
            return {"path": path, "read": read}

    with pytest.raises(UserError, match="does not answer as a daemon"):
        client_of(Other("http://robot")).ask()


def test_terminal_without_utf_8_gets_ascii():
    assert glyphs_of("ANSI_X3.4-1968") == ASCII
    assert glyphs_of("UTF-8") == Glyphs()
    assert [ASCII.number(value, 6) for value in (None, 0, 0.00123, 5, 12.345, 123456.0)] == [
        *("     -", "     0", "0.0012", "  5.00", "  12.3", "123456")
    ]
    assert [age(seconds) for seconds in (-1, 90, 600, 86_400, 9e9)] == [
        *("0 s ago", "90 s ago", "10 min ago", "24 h ago", "999 d ago")
    ]


def test_reason_of_staleness_is_readable_at_80_columns(states):
    problem = (
        "stale since 12:00:00: no tegrascope daemon answers at http://robot-007.example:9754 "
        "([Errno 111] Connection refused): is it running?"
    )
    lines = shown(states[0], 80, 24, problem=problem)
    assert " ".join(lines[1:3]).split() == problem.split()


@pytest.mark.parametrize("height", [8, 10, 14])
def test_low_screen_shows_a_workload_and_the_power(states, height):
    lines = shown(states[0], 40, height)
    assert any(line.startswith("workload") for line in lines)
    assert any(line.startswith("detector-") for line in lines)
    if height >= 10:
        assert any(line.startswith("module") for line in lines)
        assert any(line.startswith("DLA0") for line in lines)


def test_a_small_screen_shows_the_hottest_zone_and_what_fails():
    """Heat and failures are what an operator looks for on a telephone."""
    names = ("good", "running", "broken")
    workloads = [
        workload(workload="good", last_good={"ended": 90.0}),
        workload(workload="running", active_run="1"),
        workload(workload="broken"),
    ]
    state = ScreenState(
        status(workloads=workloads, trips={"tj": 104.5}),
        URL,
        SHORT | {"temperatures_celsius.tj": 101.5, "temperatures_celsius.cpu": 40.0},
        runs=[{"workload": "broken", "outcome": "failed", "reason": "no"}],
    )
    lines = shown(state, 40, 12)
    assert any(line.startswith("tj 101.5/104.5 °C") for line in lines)
    assert [line.split()[0] for line in lines if line.split()[:1] and line.split()[0] in names][
        :1
    ] == ["broken"]


def test_processes_have_their_cores_and_memory():
    name = "docker:0123456789ab/detect"
    found = [{"name": name, "cores": 0.5, "memory_bytes": 300 << 20}, {"name": "on a DLA only"}]
    values = {
        f"process.gpu_memory_bytes.{name}": 400 << 20,
        "process.gpu_memory_bytes.other": 1 << 20,
    }
    state = ScreenState(status(processes=found), URL, values)
    assert state.processes == {name: 0.5}
    line = "docker:0123456789ab/detect 0.50 cores 300 M GPU 400 M  other GPU 1 M"
    assert line in shown(state, 80)
