"""The present state: its troubles, by the conditions of their alerts, and the board."""

import re
from pathlib import Path

import pytest

from tegrascope.collectors.base import Stamped
from tegrascope.collectors.board.boards import find_rail_rule
from tegrascope.daemon.export.snapshot import LiveState, Snapshot, SourceState
from tegrascope.daemon.measure.report import RunReport
from tegrascope.daemon.measure.timeline import Timeline
from tegrascope.daemon.web import troubles
from tegrascope.daemon.web.present import Present
from tegrascope.daemon.web.troubles import TroubleWatch
from tegrascope.parsers.tegrastats import parse_line
from tests.monitoring.rule_files import alerts

S = 1_000_000_000
NOW, WALL = 50_000 * S, 1_767_225_600 * S
DOCS = Path(__file__).parents[2] / "docs/status-page.md"
RAILS = ("VDD_GPU_SOC", "VDD_CPU_CV", "VIN_SYS_5V0", "VDDQ_VDD2_1V8AO")
RULE = find_rail_rule(dict.fromkeys(RAILS, 1.0))


class Board:
    """A snapshot to fill."""

    def __init__(self):
        self.live = LiveState(Snapshot())
        self.present = Present(Timeline(), TroubleWatch())

    def sample(self, ago=0, given=(), **values):
        named = {name.replace("__", "."): value for name, value in values.items()} | dict(given)
        latest = Stamped(NOW - ago * S, parse_line("RAM 1/2MB"), WALL - ago * S)
        self.live.update(values=named, sources=(SourceState("tegrastats", 1.0, latest),))

    def document(self, **due):
        found = {name.replace("_", "-"): at for name, at in due.items()}
        return self.present.document(self.live.snapshot, NOW, WALL, RULE, found)

    def troubles(self):
        return [(one["severity"], one["text"]) for one in self.document()["troubles"]]


@pytest.fixture
def board():
    return Board()


def test_healthy_board_has_no_trouble(board):
    board.sample(temperatures_celsius__cpu=50.0)
    board.live.update(trips_celsius={("cpu", "critical"): 104.5}, store_free_bytes=1 << 40)
    assert board.troubles() == []


@pytest.mark.parametrize(
    ("celsius", "words"), [(101.4, None), (101.6, "2.9 °C below"), (105.0, "at")]
)
def test_zone_near_its_shutdown_is_critical(board, celsius, words):
    board.live.update(trips_celsius={("cpu", "critical"): 104.5, ("cpu", "hot"): 90.0})
    board.sample(temperatures_celsius__cpu=celsius)
    expected = [("critical", f"cpu is at {celsius} °C, {words} shutdown (104.5 °C)")]
    assert board.troubles() == ([] if words is None else expected)


def test_stale_values_are_no_present_state(board):
    board.live.update(trips_celsius={("cpu", "critical"): 104.5}, companions_up={"dla": True})
    board.sample(ago=60, temperatures_celsius__cpu=104.0, ram__used_bytes=5.0)
    told = board.document()
    assert told["troubles"] == []
    assert told["now"]["ram_used"] == {}
    assert told["companions"] == {"dla": None}
    assert told["sources"][0]["up"] is False


def test_companion_without_data_is_a_trouble(board):
    board.live.update(companions_up={"dla": False})
    board.sample(gpu__utilization_ratio=0.5)
    assert board.troubles() == [("warning", "dla returns no data")]


def report(outcome, **fields):
    return RunReport(
        run_id="r", workload="net", backend="b", device="dla0", outcome=outcome,
        started_wall_ns=WALL, started_ns=1, ended_ns=1 + 2 * S, **fields,
    )  # fmt: skip


def test_workload_has_last_good_failures_and_next_due(board):
    board.live.set_workloads({"net": "dla0", "net-2": "gpu"})
    board.live.run_ended(report("ok"))
    board.live.run_ended(report("failed", reason="x"))
    one, other = board.document(net=NOW + 30 * S)["workloads"]
    assert (one["failures"], one["due"], one["last_good"]["ended"]) == (
        1,
        WALL / S + 30,
        WALL / S + 2,
    )
    assert (other["failures"], other["due"], other["last_good"]) == (0, None, None)


def heat(board, celsius):
    board.live.update(trips_celsius={("cpu", "critical"): 100.0})
    board.sample(0, temperatures_celsius__cpu=celsius)


def end(board, *outcomes, **fields):
    board.live.set_workloads({"net": "dla0"})
    for outcome in outcomes:
        board.live.run_ended(report(outcome, **fields))


def memory(board, **values):
    board.sample(0, ram__total_bytes=100.0, swap__total_bytes=100.0, **values)


def throttle(board, kind):
    board.sample(0, {f"throttle.{kind}.active": 1.0, "throttle.oc1.active": 0.0})


# By alert: what makes its line, and what is just no reason for it.
SITUATIONS = {
    "TegraTemperatureCritical": [
        (lambda board: heat(board, 97.5), lambda board: heat(board, 96.9))
    ],
    "TegraThermalThrottled": [
        (
            lambda board: throttle(board, "cpu_thermal"),
            lambda board: throttle(board, "sw_power_cap"),
        ),
        (
            lambda board: throttle(board, "hw_slowdown"),
            lambda board: board.sample(0, {"throttle.cpu_thermal.events": 5.0}),
        ),
    ],
    "TegraMemoryLow": [
        (
            lambda board: memory(board, ram__available_bytes=4.9),
            lambda board: memory(board, ram__available_bytes=5.1),
        ),
        # Without the kernel's estimate, memory that is not used is available.
        (
            lambda board: memory(board, ram__used_bytes=95.1),
            lambda board: memory(board, ram__used_bytes=94.9),
        ),
        (
            lambda board: memory(board, ram__available_bytes=4.9, ram__used_bytes=50.0),
            lambda board: memory(board, ram__available_bytes=50.0, ram__used_bytes=96.0),
        ),
    ],
    "TegrascopeCompanionDown": [
        (
            lambda board: (board.live.update(companions_up={"ftrace": False}), board.sample()),
            lambda board: board.live.update(companions_up={"ftrace": False}),
        )
    ],
    "TegraInferenceFailing": [
        (
            lambda board: end(board, "failed", "timeout", reason="x"),
            lambda board: end(board, "failed", reason="x"),
        ),
        (
            lambda board: end(board, "failed", "skipped", "failed", reason="x"),
            lambda board: end(board, "failed", "ok", "failed", reason="x"),
        ),
    ],
}
CASES = [(alert, *case) for alert, cases in SITUATIONS.items() for case in cases]


@pytest.mark.parametrize(("alert", "reason", "_"), CASES)
def test_alert_has_its_line(board, alert, reason, _):
    reason(board)
    (found,) = [one for one in board.document()["troubles"] if one["alert"] == alert]
    assert found["severity"] == alerts()[alert]["labels"]["severity"]
    assert found["text"]


@pytest.mark.parametrize(("alert", "_", "no_reason"), CASES)
def test_line_of_an_alert_needs_its_condition(board, alert, _, no_reason):
    no_reason(board)
    assert alert not in [one["alert"] for one in board.document()["troubles"]]


def test_trouble_has_the_time_since_which_the_daemon_sees_it(board):
    """Its text may change meanwhile; when it has ended, the next one begins anew."""
    watch = TroubleWatch()

    def look(celsius, second):
        board.sample(temperatures_celsius__cpu=celsius)
        return watch.look(board.live.snapshot, NOW, second * S)

    board.live.update(trips_celsius={("cpu", "critical"): 104.5})
    assert look(50.0, 1) == []
    assert [one.since for one in look(103.0, 2)] == [2.0]
    (later,) = look(104.0, 9)
    assert (later.since, later.cause) == (2.0, "heat")
    assert "104.0" in later.text
    assert look(50.0, 10) == []
    assert [one.since for one in look(103.0, 11)] == [11.0]


def test_failing_workload_names_reason_and_run(board):
    for reason in ("first", "second"):
        end(board, "failed", reason=reason)
    (found,) = board.document()["troubles"]
    assert found["text"].endswith(" failed: second")
    assert found["run_id"]


def test_vital_figures_are_null_where_a_value_is_not_known(board):
    board.sample(gpu__utilization_ratio=0.5, temperatures_celsius__cpu=50.0, dla__0__on=1.0)
    vital = board.document()["vital"]
    assert vital["module_watts"] is None
    assert vital["gpu_ratio"] == 0.5
    assert vital["dla"] == {"dla0": (1.0, "on")}
    assert vital["hottest"] == {"zone": "cpu", "celsius": 50.0, "shutdown_celsius": None}
    rails = {f"rails.{name}.instant_watts": 2.0 for name in RAILS}
    board.sample(given=rails)
    assert board.document()["vital"]["module_watts"] == 2.0 * len(RULE.total)
    board.sample(ago=100, given=rails)
    assert board.document()["vital"] == {
        "module_watts": None, "gpu_ratio": None, "dla": {}, "hottest": None,
    }  # fmt: skip


def test_docs_list_the_alerts_that_have_a_line():
    text = DOCS.read_text(encoding="utf-8").split("## Troubles", 1)[1].split("\n## ", 1)[0]
    assert sorted(re.findall(r"`(Tegra\w+)`", text)) == sorted(SITUATIONS)


def test_conditions_are_those_of_the_alerts():
    """The numbers are in the expressions of the shipped rules."""
    conditions = {
        "TegraTemperatureCritical": f"- {troubles.NEAR_TRIP_CELSIUS:g}",
        "TegraThermalThrottled": f'tegra_throttle_active{{kind=~"{troubles.HEAT_KINDS}"}} == 1',
        "TegraInferenceFailing": f">= {troubles.FAILURES}",
        "TegraMemoryLow": f"< {troubles.LOW_MEMORY_RATIO}",
    }
    for alert, condition in conditions.items():
        assert condition in " ".join(alerts()[alert]["expr"].split()), alert
