"""The present state: troubles by the conditions of the alerts, and what is known of the board."""

from pathlib import Path

import pytest
import yaml

from tegrascope.collectors.base import Stamped
from tegrascope.collectors.board.boards import find_rail_rule
from tegrascope.daemon.export.snapshot import LiveState, Snapshot, SourceState
from tegrascope.daemon.measure.run_report import RunReport
from tegrascope.daemon.measure.timeline import Timeline
from tegrascope.daemon.settings.config import Limits
from tegrascope.daemon.web import present
from tegrascope.daemon.web.present import Present
from tegrascope.parsers.tegrastats import parse_line

S = 1_000_000_000
NOW, WALL = 5000 * S, 1_767_225_600 * S
UNUSED = ("warning", "net did not use dla0 in its last good run and one before it")
RULES = Path(__file__).parents[2] / "grafana/prometheus/rules"
RAILS = ("VDD_GPU_SOC", "VDD_CPU_CV", "VIN_SYS_5V0", "VDDQ_VDD2_1V8AO")
RULE = find_rail_rule(dict.fromkeys(RAILS, 1.0))


class Board:
    """A snapshot and a timeline to fill."""

    def __init__(self):
        self.timeline = Timeline()
        self.live = LiveState(Snapshot())
        self.present = Present(self.timeline)

    def sample(self, ago=0, **values):
        named = {name.replace("__", "."): value for name, value in values.items()}
        self.timeline.append(NOW - ago * S, WALL - ago * S, named)
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
    """Older events, normal caps, a few over-current events and a reset counter add nothing."""
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
        ("warning", "throttled by gpu_thermal 2 times in the last 10 minutes"),
        ("warning", "throttled by oc2 16 times in the last 15 minutes"),
    ]


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
        board.live.run_ended(report("skipped", reason="overlap: its lane is busy"))
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
    for troubles in ([], [UNUSED]):
        board.live.run_ended(report("ok", quality=("dla_not_used", "simulated")))
        assert board.troubles() == troubles
    for _ in range(2):
        board.live.run_ended(report("failed", reason="x"))
    assert board.troubles() == [("warning", "the last 2 runs of net failed"), UNUSED]


def test_unused_core_is_a_trouble_by_the_last_good_run_and_one_of_two_days(board):
    """A run that used the core ends it; after two days an earlier run does not count."""
    board.live.set_workloads({"net": "dla0"})
    outcomes = (("dla_not_used",), []), ((), []), (("dla_not_used",), [UNUSED]), ((), [])
    for quality, troubles in outcomes:
        board.live.run_ended(report("ok", quality=quality))
        assert board.troubles() == troubles
    other = Board()
    other.live.set_workloads({"net": "dla0"})
    for days in (5, 3):
        started = {"started_wall_ns": WALL - days * 86_400 * S}
        other.live.run_ended(report("ok", quality=("dla_not_used",)).model_copy(update=started))
        assert other.troubles() == []


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


def test_conditions_are_those_of_the_alerts():
    """The numbers are in the expressions of the shipped rules."""
    rules = {}
    for path in RULES.glob("*.yml"):
        for group in yaml.safe_load(path.read_text(encoding="utf-8"))["groups"]:
            rules |= {rule["alert"]: rule["expr"] for rule in group["rules"] if "alert" in rule}
    assert f"- {present.NEAR_TRIP_CELSIUS:g}" in rules["TegraTemperatureCritical"]
    assert f">= {present.FAILURES}" in rules["TegraInferenceFailing"]
    assert f":bypassed[{present.BYPASSED_DAYS}d]" in rules["TegraDlaBypassed"]
    mebi = present.LOW_ROOM_BYTES // 2**20
    assert f"< {mebi} * 1024 * 1024" in rules["TegrascopeStoreRoomLow"]
    assert f">= {present.UNSUCCESSFUL}" in rules["TegraInferenceOverdue"]
    assert f"< {present.LOW_MEMORY_RATIO}" in rules["TegraMemoryLow"]
    assert f"> {present.FULL_SWAP_RATIO}" in rules["TegraSwapLow"]
    for (kinds, minutes, normal), name in zip(
        present.THROTTLING, ("TegraThermalThrottled", "TegraOverCurrent"), strict=True
    ):
        assert f'kind=~"{kinds}"' in rules[name]
        assert f"[{minutes}m]" in rules[name]
        # A rate per minute, or any.
        assert (f"* 60 > {normal // minutes}" if normal else "> 0") in rules[name]
