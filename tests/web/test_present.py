"""The present state: troubles by the conditions of the alerts, and what is known of the board."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from tegrascope.collectors.base import Stamped
from tegrascope.collectors.board.boards import find_rail_rule
from tegrascope.daemon.export.snapshot import LiveState, Snapshot, SourceState
from tegrascope.daemon.measure.report import RunReport
from tegrascope.daemon.measure.timeline import Timeline
from tegrascope.daemon.settings.config import Limits
from tegrascope.daemon.web import troubles
from tegrascope.daemon.web.present import Present
from tegrascope.parsers.tegrastats import parse_line
from tests.monitoring.rule_files import alerts

S = 1_000_000_000
HOUR, DAY = 3600, 86_400
NOW, WALL = 50_000 * S, 1_767_225_600 * S
UNUSED = ("warning", "net did not use dla0 in its last good run and one before it")
DOCS = Path(__file__).parents[2] / "docs/status-page.md"
RAILS = ("VDD_GPU_SOC", "VDD_CPU_CV", "VIN_SYS_5V0", "VDDQ_VDD2_1V8AO")
RULE = find_rail_rule(dict.fromkeys(RAILS, 1.0))


class Board:
    """A snapshot and a timeline to fill, so long after the boot."""

    def __init__(self, now_ns=NOW):
        self.now_ns = now_ns
        self.timeline = Timeline()
        self.live = LiveState(Snapshot())
        self.present = Present(self.timeline)

    def sample(self, ago=0, given=(), **values):
        named = {name.replace("__", "."): value for name, value in values.items()} | dict(given)
        self.timeline.append(self.now_ns - ago * S, WALL - ago * S, named)
        latest = Stamped(self.now_ns - ago * S, parse_line("RAM 1/2MB"), WALL - ago * S)
        self.live.update(values=named, sources=(SourceState("tegrastats", 1.0, latest),))

    def document(self, **due):
        found = {name.replace("_", "-"): at for name, at in due.items()}
        return self.present.document(self.live.snapshot, self.now_ns, WALL, RULE, found)

    def troubles(self):
        return [(one["severity"], one["text"]) for one in self.document()["troubles"]]


@pytest.fixture
def board():
    return Board()


def test_healthy_board_has_no_trouble(board):
    board.sample(temperatures_celsius__cpu=50.0)
    board.live.update(trips_celsius={("cpu", "critical"): 104.5}, store_free_bytes=1 << 40)
    assert board.troubles() == []


@pytest.mark.parametrize(("celsius", "is_hot"), [(101.4, False), (101.6, True)])
def test_zone_near_its_shutdown_is_critical(board, celsius, is_hot):
    board.live.update(trips_celsius={("cpu", "critical"): 104.5, ("cpu", "hot"): 90.0})
    board.sample(temperatures_celsius__cpu=celsius)
    expected = [("critical", f"cpu is at {celsius} °C; the board shuts down at 104.5 °C")]
    assert board.troubles() == (expected if is_hot else [])


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


def test_throttling_of_ten_minutes_is_counted(board):
    """Older events, normal caps and a few over-current events add nothing; a counter was reset."""
    kinds = {
        "gpu_thermal": (0, 100, 100, 102, 1),
        "cpu_thermal": (7, 8, 8, 8, 8),
        "sw_power_cap": (0, 1, 2, 3, 99),
        "oc1": (0, 5, 15, 15, 15),
        "oc2": (0, 5, 15, 15, 16),
    }
    for number, ago in enumerate((890, 700, 500, 300, 10)):
        board.sample(
            ago, **{f"throttle__{kind}__events": counts[number] for kind, counts in kinds.items()}
        )
    assert board.troubles() == [
        ("warning", "throttled by gpu_thermal 3 times in the last 10 minutes"),
        ("warning", "throttled by oc2 16 times in the last 15 minutes"),
    ]


@pytest.mark.parametrize("seconds", [5, 400 * DAY], ids=["5 s", "400 days"])
def test_troubles_of_minutes_begin_at_the_first_sample(seconds):
    """Also where the board has not been up for those minutes, and where it has been for a year."""
    board = Board(seconds * S)
    board.live.update(limits=Limits(power_watts=10))
    for ago, count in ((4, 0), (3, 1), (0, 1)):
        watts = {f"rails.{rail}.instant_watts": 9.0 for rail in RAILS}
        board.sample(ago, watts | {"throttle.gpu_thermal.events": count})
    assert RULE is not None
    mean = 9.0 * len(RULE.total)
    assert board.troubles() == [
        ("warning", f"the module draws {mean:.1f} W on average; the budget is 10 W"),
        ("warning", "throttled by gpu_thermal once in the last 10 minutes"),
    ]


def test_throttling_that_goes_on_is_one_line(board):
    for ago in (120, 60, 1):
        values = {"events": 120.0 - ago, "active": 1.0}
        board.sample(ago, {f"throttle.gpu_thermal.{name}": v for name, v in values.items()})
    assert board.troubles() == [("warning", "throttled by gpu_thermal now")]


def test_low_memory_and_full_swap_are_troubles(board):
    """The kernel's estimate counts caches; without it, what is not used is available."""
    memory = {"ram__total_bytes": 100.0, "ram__used_bytes": 96.0}
    board.sample(20, **memory, swap__total_bytes=10.0, swap__used_bytes=10.0)
    board.sample(1, **memory, swap__total_bytes=10.0, swap__used_bytes=9.5)
    low = ("warning", "4.0 % of the memory is available")
    assert board.troubles() == [low, ("warning", "95 % of the swap is in use")]
    board.sample(
        0, **memory, ram__available_bytes=50.0, swap__total_bytes=0.0, swap__used_bytes=0.0
    )
    assert board.troubles() == []


def test_workload_without_a_good_run_is_a_trouble(board):
    board.live.set_workloads({"net": "dla0"})
    for _ in range(4):
        assert board.troubles() == []
        board.live.run_ended(report("skipped", reason="its lane is busy", skip_reason="overlap"))
    assert board.troubles() == [("warning", "the last 4 runs of net failed or were skipped")]


def test_mean_power_over_the_budget_is_a_trouble(board):
    board.live.update(limits=Limits(power_watts=10))
    for ago, watts in ((400, 90.0), (200, 4.0), (100, 3.0)):
        board.sample(ago, **{f"rails__{rail}__instant_watts": watts for rail in RAILS})
    assert RULE is not None
    mean = 3.5 * len(RULE.total)
    words = f"the module draws {mean:.1f} W on average; the budget is 10 W"
    assert board.troubles() == [("warning", words)]


@pytest.mark.parametrize(
    ("room", "expected"),
    [
        (0, [("critical", "no space is left for the run store")]),
        (50 << 20, [("warning", "50 MiB are left for the run store")]),
        (100 << 20, []),
        (None, []),
    ],
)
def test_room_of_the_store(board, room, expected):
    board.live.update(store_free_bytes=room)
    assert board.troubles() == expected


def report(outcome, **fields):
    return RunReport(
        run_id="r", workload="net", backend="b", device="dla0", outcome=outcome,
        started_wall_ns=WALL, started_ns=1, ended_ns=1 + 2 * S, **fields,
    )  # fmt: skip


def test_failures_and_unused_cores_are_troubles(board):
    board.live.set_workloads({"net": "dla0", "net-2": "gpu"})
    for expected in ([], [UNUSED]):
        board.live.run_ended(report("ok", quality=("dla_not_used", "simulated")))
        assert board.troubles() == expected
    for _ in range(2):
        board.live.run_ended(report("failed", reason="x"))
    assert board.troubles() == [("warning", "the last 2 runs of net failed"), UNUSED]


def test_unused_core_is_a_trouble_by_the_last_good_run_and_one_of_two_days(board):
    """A run that used the core ends it; after two days an earlier run does not count."""
    board.live.set_workloads({"net": "dla0"})
    outcomes = (("dla_not_used",), []), ((), []), (("dla_not_used",), [UNUSED]), ((), [])
    for quality, expected in outcomes:
        board.live.run_ended(report("ok", quality=quality))
        assert board.troubles() == expected
    board.live.set_workloads({"net": "dla1"})
    for days in (5, 3):
        started = {"started_wall_ns": WALL - days * DAY * S}
        board.live.run_ended(report("ok", quality=("dla_not_used",)).model_copy(update=started))
        assert board.troubles() == []


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


def restart(board, *ago):
    board.sample(gpu__utilization_ratio=0.5)
    (source,) = board.live.snapshot.sources
    recovered = tuple(NOW - int(seconds * S) for seconds in ago)
    board.live.update(sources=(replace(source, recovered_ns=recovered),))


def fill(board, mebibytes, per_hour):
    """Leave so much room for the store, of which so much was used per hour."""
    for ago in range(6 * HOUR, -1, -600):
        free = int((mebibytes + per_hour * ago / HOUR) * 2**20)
        board.live.store_is(NOW - ago * S, free_bytes=free, write_errors=0, problem=None)


def end(board, *outcomes, **fields):
    board.live.set_workloads({"net": "dla0"})
    for outcome in outcomes:
        board.live.run_ended(report(outcome, **fields))


def memory(board, **values):
    board.sample(0, ram__total_bytes=100.0, swap__total_bytes=100.0, **values)


def draw(board, watts):
    board.live.update(limits=Limits(power_watts=10))
    board.sample(0, {f"rails.{rail}.instant_watts": watts for rail in RAILS})


def throttle(board, kind, *counts, **meaning):
    further = {f"throttle.{kind}.{name}": value for name, value in meaning.items()}
    for number, count in enumerate(counts):
        at = (len(counts) - number) * 60
        board.sample(at, {f"throttle.{kind}.events": count, **further})
    board.sample(0, further)


# By alert: what makes its line, and what is just no reason for it.
SITUATIONS = {
    "TegraTemperatureCritical": [
        (lambda board: heat(board, 97.5), lambda board: heat(board, 96.9))
    ],
    "TegraThermalThrottled": [
        (
            lambda board: throttle(board, "cpu_thermal", 1, 2),
            lambda board: throttle(board, "sw_power_cap", 1, 2),
        ),
        # Low since before the first sample.
        (
            lambda board: board.sample(0, {"throttle.cpu_thermal.active": 1.0}),
            lambda board: board.sample(0, {"throttle.sw_power_cap.active": 1.0}),
        ),
    ],
    "TegraUnderVoltage": [
        (
            lambda board: throttle(board, "oc1", 0, 1, is_under_voltage=1.0),
            lambda board: throttle(board, "oc1", 0, 15, is_under_voltage=0.0),
        )
    ],
    "TegraOverCurrent": [
        (lambda board: throttle(board, "oc1", 0, 16), lambda board: throttle(board, "oc1", 0, 15))
    ],
    "TegraPowerBudgetExceeded": [(lambda board: draw(board, 9.0), lambda board: draw(board, 1.0))],
    "TegraMemoryLow": [
        (
            lambda board: memory(board, ram__available_bytes=4.9),
            lambda board: memory(board, ram__available_bytes=5.1),
        )
    ],
    "TegraSwapLow": [
        (
            lambda board: memory(board, swap__used_bytes=90.1),
            lambda board: memory(board, swap__used_bytes=89.9),
        )
    ],
    "TegrascopeCompanionDown": [
        (
            lambda board: (board.live.update(companions_up={"ftrace": False}), board.sample()),
            lambda board: board.live.update(companions_up={"ftrace": False}),
        )
    ],
    "TegrascopeSourceRestarting": [
        (lambda board: restart(board, 1700, 900, 5), lambda board: restart(board, 1900, 900, 5))
    ],
    "TegrascopeStoreRoomLow": [
        (
            lambda board: board.live.update(store_free_bytes=99 << 20),
            lambda board: board.live.update(store_free_bytes=101 << 20),
        ),
        # Full within a day, at the rate of six hours, and below 1 GiB.
        (lambda board: fill(board, 1000, 45), lambda board: fill(board, 1000, 40)),
        (lambda board: fill(board, 1000, 100), lambda board: fill(board, 1100, 100)),
    ],
    "TegraDlaBypassed": [
        (
            lambda board: end(board, "ok", "ok", quality=("dla_not_used",)),
            lambda board: end(board, "ok", quality=("dla_not_used",)),
        )
    ],
    "TegraDlaFallback": [
        (
            lambda board: end(board, "ok", quality=("fallback",)),
            lambda board: end(board, "ok", quality=("fallback", "dla_not_used")),
        )
    ],
    "TegraInferenceFailing": [
        (
            lambda board: end(board, "failed", "failed", reason="x"),
            lambda board: end(board, "failed", reason="x"),
        )
    ],
    "TegraInferenceOverdue": [
        (
            lambda board: end(board, *["skipped"] * 4, reason="x", skip_reason="overlap"),
            lambda board: end(board, *["skipped"] * 3, reason="x", skip_reason="overlap"),
        ),
        (
            lambda board: end(board, *["skipped"] * 4, reason="x", skip_reason="guard_battery"),
            lambda board: end(board, *["skipped"] * 4, reason="x", skip_reason="guard_duty"),
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


def test_every_alert_has_a_line_or_is_listed_as_one_without():
    """A new alert is either judged by the page too, or the docs say that it is not."""
    text = DOCS.read_text(encoding="utf-8").split("## Troubles", 1)[1].split("\n## ", 1)[0]
    rows, others = text.split("Alerts without a line:", 1)
    lines, without = (re.findall(r"`(Tegra\w+)`", part) for part in (rows, others))
    assert sorted(lines) == sorted(SITUATIONS)
    assert sorted(lines + without) == sorted(alerts())


def test_conditions_are_those_of_the_alerts():
    """The numbers are in the expressions of the shipped rules."""
    exprs = {alert: " ".join(rule["expr"].split()) for alert, rule in alerts().items()}
    mebi, gibi = 1024 * 1024, 1024**3
    for alert, parts in {
        "TegraTemperatureCritical": [f"- {troubles.NEAR_TRIP_CELSIUS:g}"],
        "TegraInferenceFailing": [f">= {troubles.FAILURES}"],
        "TegraInferenceOverdue": [f">= {troubles.UNSUCCESSFUL}"],
        "TegraDlaBypassed": [f":bypassed[{troubles.BYPASSED_DAYS}d]"],
        "TegraPowerBudgetExceeded": [f"rate{troubles.BUDGET_MINUTES}m"],
        "TegraMemoryLow": [f"< {troubles.LOW_MEMORY_RATIO}"],
        "TegraSwapLow": [f"> {troubles.FULL_SWAP_RATIO}"],
        "TegrascopeSourceRestarting": [
            f"[{troubles.RESTARTS_MINUTES}m:", f">= {troubles.RESTARTS}"
        ],
        "TegrascopeStoreRoomLow": [
            f"< {troubles.LOW_ROOM_BYTES // mebi} * 1024 * 1024",
            f"< {troubles.FILLING_BYTES // gibi * 1024} * 1024 * 1024",
            f"[6h], {3600 * troubles.FILLING_HOURS}) < 0",
        ],
    }.items():  # fmt: skip
        for part in parts:
            assert part in exprs[alert], (alert, part)
    for alert, kinds, minutes, normal in troubles.THROTTLING:
        assert f'kind=~"{kinds}"' in exprs[alert]
        assert f"[{minutes}m]" in exprs[alert]
        # A rate per minute, or any.
        assert (f"* 60 > {normal // minutes}" if normal else "> 0") in exprs[alert]
