"""The present state: troubles by the conditions of the alerts, and what is known of the board."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from tegrascope.collectors.base import Stamped
from tegrascope.collectors.board.boards import find_rail_rule
from tegrascope.daemon.export.snapshot import LiveState, Snapshot, SourceState
from tegrascope.daemon.measure.run_report import RunReport
from tegrascope.daemon.measure.timeline import Timeline
from tegrascope.daemon.settings.config import Limits
from tegrascope.daemon.store.history import History
from tegrascope.daemon.store.store import Store
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
    """A snapshot, a timeline and a store to fill."""

    def __init__(self, directory):
        self.timeline = Timeline()
        self.live = LiveState(Snapshot())
        self.store = Store(directory / "runs.db")
        self.present = Present(self.timeline, History(self.store.path))

    def sample(self, ago=0, given=(), **values):
        named = {name.replace("__", "."): value for name, value in values.items()} | dict(given)
        self.timeline.append(NOW - ago * S, WALL - ago * S, named)
        latest = Stamped(NOW - ago * S, parse_line("RAM 1/2MB"), WALL - ago * S)
        self.live.update(values=named, sources=(SourceState("tegrastats", 1.0, latest),))

    def document(self, **due):
        found = {name.replace("_", "-"): at for name, at in due.items()}
        return self.present.document(self.live.snapshot, NOW, WALL, RULE, found)

    def troubles(self):
        return [(one["severity"], one["text"]) for one in self.document()["troubles"]]

    def run(self, ago, outcome="ok", **fields):
        """Store a run of ``net`` that began so many seconds ago."""
        started = {"run_id": f"r{ago}", "started_wall_ns": WALL - int(ago * S)}
        self.store.finish(report(outcome, **fields).model_copy(update=started))


@pytest.fixture
def board(tmp_path):
    made = Board(tmp_path)
    yield made
    made.store.close()


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


def test_record_of_an_older_release_without_skip_reason_is_read(board):
    for ago in (60, 61):
        board.run(ago, "skipped", reason="overlap: its lane is busy")
    schedule(board, 1)
    assert board.troubles() == []


def heat(board, celsius, minutes=15):
    """Give the zone ``cpu`` a temperature by minutes ago."""
    board.live.update(trips_celsius={("cpu", "critical"): 100.0})
    for ago in range(60 * minutes, -1, -5):
        board.sample(ago, temperatures_celsius__cpu=celsius(ago / 60))


def work(board, minutes, busy, powered, traced=True):
    """Let core 0 work for so many minutes, at shares of the time."""
    for ago in range(60 * minutes, -1, -10):
        at = 10_000 - ago
        counts = {"dla.0.busy_seconds": at * busy} if traced else {}
        board.sample(ago, {"dla.0.powered_seconds": at * powered, **counts}, dla__0__on=1.0)


def begin(board, minutes):
    board.live.set_workloads({"net": "dla0"})
    board.live.run_began("net", "now", None, WALL / S - minutes * 60)


def history(board, **figures):
    """Store runs of eight days; those of the last hours have other figures, newest first."""
    board.live.set_workloads({"net": "dla0"})
    for hour in (*range(192, 24, -12), *range(24, 0, -1)):
        values = {name: found[hour - 1] if hour <= len(found) else 1.0
                  for name, found in figures.items()}  # fmt: skip
        board.run(hour * HOUR, **figures_of(**values))


def figures_of(p50=1.0, joules=1.0):
    latency = dict.fromkeys(("mean", "p50", "p90", "p95", "p99", "p999", "min", "max"), p50)
    return {
        "latency": {"count": 9, **{f"{name}_seconds": value for name, value in latency.items()}},
        "energy": {"gross_joules": joules, "gross_joules_per_inference": joules},
    }


def schedule(board, started, late=0, skipped=0, reason="overlap"):
    for number in range(started + skipped):
        ran = number < started
        fields = {} if ran else {"reason": "its lane is busy", "skip_reason": reason}
        lateness = 60.0 if number < late else 0.1
        board.run(60 + number, "ok" if ran else "skipped", lateness_seconds=lateness, **fields)


def late(board, misses, inferences=1000, ago=60):
    found = {"deadline_seconds": 0.1, "misses": misses, "worst_lateness_seconds": 0.1}
    board.run(ago, inferences=inferences, deadline=found)


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


def swap(board, used, minutes=41):
    """Fill swap of 100 by a function of the minutes ago."""
    for ago in range(minutes * 60, -1, -30):
        board.sample(ago, swap__total_bytes=100.0, swap__used_bytes=float(used(ago / 60)))


def is_used(board, busy, powered, traced=True):
    board.live.update(limits=Limits(dla_busy_ratio={"dla0": 0.2}))
    work(board, 31, busy, powered, traced=traced)


def flown(board, minutes, powered, known=6):
    begin(board, minutes)
    work(board, known, powered, powered, traced=False)


# By alert: what makes its line, and what is just no reason for it.
SITUATIONS = {
    "TegraTemperatureCritical": [
        (lambda board: heat(board, lambda _: 97.5), lambda board: heat(board, lambda _: 96.9))
    ],
    "TegraTemperatureRising": [
        (
            lambda board: heat(board, lambda ago: 90 - ago / 5),
            lambda board: heat(board, lambda ago: 90 - ago / 7),
        ),
        # Near enough, and soon enough.
        (
            lambda board: heat(board, lambda ago: 81 - ago),
            lambda board: heat(board, lambda ago: 79 - ago),
        ),
        # Long enough to have a rate.
        (
            lambda board: heat(board, lambda ago: 90 - ago, 6),
            lambda board: heat(board, lambda ago: 90 - ago, 4),
        ),
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
    "TegraSwapGrowing": [
        (
            lambda board: swap(board, lambda ago: 50 - ago / 9),
            lambda board: swap(board, lambda ago: 50 - ago / 11),
        ),
        # Not only once, and for long enough.
        (
            lambda board: swap(board, lambda ago: 30 - ago / 2),
            lambda board: swap(board, lambda ago: 50 if ago < 15 else 10),
        ),
        (
            lambda board: swap(board, lambda ago: 50 - ago),
            lambda board: swap(board, lambda ago: 50 - ago, 39),
        ),
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
    "TegraDlaIdle": [
        (lambda board: flown(board, 6, 0.0), lambda board: flown(board, 6, 0.01)),
        (lambda board: flown(board, 6, 0.0), lambda board: flown(board, 4, 0.0)),
        (lambda board: flown(board, 6, 0.0), lambda board: flown(board, 6, 0.0, known=3)),
    ],
    "TegraDlaUnderused": [
        (lambda board: is_used(board, 0.1, 0.3), lambda board: is_used(board, 0.21, 0.3)),
        (
            lambda board: is_used(board, 0, 0.1, traced=False),
            lambda board: is_used(board, 0, 0.3, traced=False),
        ),
    ],
    "TegraDlaSaturated": [
        (lambda board: work(board, 6, 0.96, 1.0), lambda board: work(board, 6, 0.94, 1.0)),
        # A minute is too short to be judged.
        (lambda board: work(board, 6, 1.0, 1.0), lambda board: work(board, 1, 1.0, 1.0)),
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
    "TegraInferenceDeadlineMissed": [
        (lambda b: late(b, misses=11), lambda b: late(b, misses=10)),
        (lambda b: late(b, misses=2, inferences=20), lambda b: late(b, misses=1, inferences=20)),
        (lambda b: late(b, misses=90), lambda b: late(b, misses=90, ago=3601)),
    ],
    "TegraInferenceSlower": [
        # The last run, and another one of two days.
        (lambda b: history(b, p50=(1.3, 1.3)), lambda b: history(b, p50=(1.3, 1.1))),
        (lambda b: history(b, p50=(1.3, 1.3)), lambda b: history(b, p50=(1.1, 1.3, 1.3))),
        (
            lambda b: history(b, p50=(1.3, *[1.0] * 10, 1.3)),
            lambda b: history(b, joules=(1.3, 1.3)),
        ),
    ],
    "TegraInferenceCostlier": [
        (lambda b: history(b, joules=(1.3, 1.3)), lambda b: history(b, joules=(1.19, 1.3)))
    ],
    "TegrascopeScheduleLate": [
        (lambda b: schedule(b, 19, late=2), lambda b: schedule(b, 20, late=2)),
        (lambda b: schedule(b, 3, late=2), lambda b: schedule(b, 3, late=1)),
    ],
    "TegrascopeRunsSkipped": [
        (lambda b: schedule(b, 2, skipped=3), lambda b: schedule(b, 3, skipped=3)),
        (
            lambda b: schedule(b, 0, skipped=2),
            lambda b: schedule(b, 0, skipped=3, reason="stopping"),
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


def test_runs_of_less_than_a_day_have_no_week(board):
    board.live.set_workloads({"net": "dla0"})
    for hour, p50 in ((22, 1.0), (20, 1.0), (18, 1.0), (2, 1.5), (1, 1.5)):
        board.run(hour * HOUR, **figures_of(p50))
    assert board.troubles() == []


def test_each_run_counts_in_the_week_for_the_time_until_the_next(board):
    """Many bad runs in an hour do not make the week bad."""
    history(board, p50=())
    for number in range(60):
        board.run(1800 - number, **figures_of(1.5))
    (found,) = board.document()["troubles"]
    assert found["text"] == "the latency of net is 1.50 times its median of the week"


def test_troubles_of_hours_go_on_without_a_store(board):
    """A store that cannot be read hides no trouble of the timeline."""
    board.store.close()
    board.store.path.write_bytes(b"no database" * 1000)
    heat(board, lambda ago: 90 - ago)
    assert [one["alert"] for one in board.document()["troubles"]] == ["TegraTemperatureRising"]


def test_conditions_are_those_of_the_alerts():
    """The numbers are in the expressions of the shipped rules."""
    exprs = {alert: " ".join(rule["expr"].split()) for alert, rule in alerts().items()}
    mebi, gibi = 1024 * 1024, 1024**3
    ahead, late = 60 * troubles.AHEAD_MINUTES, troubles.LATE_SECONDS
    hours = f"[{troubles.SCHEDULE_HOURS}h]"
    for alert, parts in {
        "TegraTemperatureCritical": [f"- {troubles.NEAR_TRIP_CELSIUS:g}"],
        "TegraTemperatureRising": [
            f"[{troubles.RISING_MINUTES}m], {ahead})", f"- {troubles.WARM_CELSIUS:g}"
        ],
        "TegraInferenceFailing": [f">= {troubles.FAILURES}"],
        "TegraInferenceOverdue": [f">= {troubles.UNSUCCESSFUL}"],
        "TegraInferenceSlower": [
            f"> {troubles.REGRESSION} ", f":median{troubles.MEDIAN_DAYS}d",
            f":slower[{troubles.REGRESSION_DAYS}d]",
        ],
        "TegraInferenceCostlier": [
            f"> {troubles.REGRESSION} ", f":median{troubles.MEDIAN_DAYS}d",
            f":costlier[{troubles.REGRESSION_DAYS}d]",
        ],
        "TegraInferenceDeadlineMissed": [
            f"[{troubles.DEADLINE_HOURS}h]) > {troubles.LEAST_MISSES}",
            f"> {troubles.LATE_SHARE}",
        ],
        "TegraDlaBypassed": [f":bypassed[{troubles.BYPASSED_DAYS}d]"],
        "TegraDlaIdle": [f"[{troubles.IDLE_MINUTES}m]", "powered_ratio:avg5m == 0"],
        "TegraDlaSaturated": [
            f"avg{troubles.SATURATED_MINUTES}m > {troubles.SATURATED_RATIO}"
        ],
        "TegraDlaUnderused": [f"[{troubles.UNDERUSED_MINUTES}m]"],
        "TegraPowerBudgetExceeded": [f"rate{troubles.BUDGET_MINUTES}m"],
        "TegraMemoryLow": [f"< {troubles.LOW_MEMORY_RATIO}"],
        "TegraSwapLow": [f"> {troubles.FULL_SWAP_RATIO}"],
        "TegraSwapGrowing": [
            f"[{troubles.SWAP_MINUTES}m] offset {troubles.SWAP_MINUTES}m) > {troubles.SWAP_RATIO} *"
        ],
        "TegrascopeSourceRestarting": [
            f"[{troubles.RESTARTS_MINUTES}m:", f">= {troubles.RESTARTS}"
        ],
        "TegrascopeStoreRoomLow": [
            f"< {troubles.LOW_ROOM_BYTES // mebi} * 1024 * 1024",
            f"< {troubles.FILLING_BYTES // gibi * 1024} * 1024 * 1024",
            f"[6h], {3600 * troubles.FILLING_HOURS}) < 0",
        ],
        "TegrascopeScheduleLate": [
            hours, f'le="{late}"', f"> {troubles.LEAST_RUNS}", f"* {1 - troubles.LATE_RATIO}"
        ],
        "TegrascopeRunsSkipped": [
            hours, f'reason=~"{"|".join(troubles.MISSED)}"', f"> {troubles.LEAST_RUNS}"
        ],
    }.items():  # fmt: skip
        for part in parts:
            assert part in exprs[alert], (alert, part)
    for alert, kinds, minutes, normal in troubles.THROTTLING:
        assert f'kind=~"{kinds}"' in exprs[alert]
        assert f"[{minutes}m]" in exprs[alert]
        # A rate per minute, or any.
        assert (f"* 60 > {normal // minutes}" if normal else "> 0") in exprs[alert]
