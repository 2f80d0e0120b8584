"""Guards: which runs are skipped, and why, by the newest telemetry and the runs before."""

from dataclasses import replace

import pytest
from pydantic import ValidationError

from tegrascope.collectors.base import Stamped
from tegrascope.collectors.board.sysfs import FINDERS
from tegrascope.daemon.export.snapshot import Snapshot, SourceState
from tegrascope.daemon.service.scheduler import Guard
from tegrascope.daemon.settings.config import Config, Guards, Workload
from tegrascope.parsers import signals
from tegrascope.parsers.tegrastats import parse_line

S = 1_000_000_000


class Board:
    """A guard with a clock and a snapshot that the test sets."""

    def __init__(self) -> None:
        self.now_ns = 0
        sample = Stamped(0, 0, parse_line("RAM 100/1000MB CPU@50C"))
        source = SourceState(name="tegrastats", latest=sample)
        self.snapshot = Snapshot(sources=(source,))
        self.guard = Guard(lambda: self.snapshot, lambda: self.now_ns)

    def has(self, **values: float) -> None:
        named = {name.replace("__", "."): value for name, value in values.items()}
        self.snapshot = replace(self.snapshot, values=named)

    def refusal(self, guards: object, everywhere: object = None) -> "tuple[str, str] | None":
        workload = Workload.model_validate(
            {"name": "w", "model": "builtin:resnet50", "guards": guards or {}}
        )
        return self.guard.refusal(workload, Guards.model_validate(everywhere or {}))


@pytest.fixture
def board() -> Board:
    return Board()


def test_run_is_skipped_while_a_zone_is_too_hot(board):
    guards = {"skip_above_celsius": {"tj": 85}}
    board.has(temperatures_celsius__tj=85.0)
    assert board.refusal(guards) is None
    board.has(temperatures_celsius__tj=85.5)
    assert board.refusal(guards) == (
        "guard_temperature",
        "tj has 85.5 °C, and its guard is 85 °C",
    )
    assert board.refusal({}, guards) == (
        "guard_temperature",
        "tj has 85.5 °C, and the guard of all workloads is 85 °C",
    )
    assert board.refusal({}) is None


def test_emptiest_battery_decides(board):
    board.has(battery__a__charge_ratio=0.9, battery__b__charge_ratio=0.29)
    refusal = board.refusal({"skip_below_battery": "30%"})
    assert refusal == ("guard_battery", "the battery has 29%, and its guard is 30%")
    assert board.refusal({"skip_below_battery": 0.2}) is None


def test_stale_or_missing_values_guard_nothing(board):
    guards = {"skip_above_celsius": {"tj": 85}, "skip_below_battery": 0.3}
    assert board.refusal(guards) is None
    board.has(temperatures_celsius__tj=99.0)
    board.now_ns = 60 * S
    assert board.refusal(guards) is None


def test_runs_keep_to_their_share_of_the_last_hour(board):
    guards = {"duty": "10%"}
    assert board.refusal(guards) is None
    board.now_ns = 30 * S
    board.guard.ran("w", 0, 30 * S)
    assert board.refusal(guards) is not None
    board.now_ns = 301 * S
    assert board.refusal(guards) is None
    board.guard.ran("other", 301 * S, 331 * S)
    board.now_ns = 331 * S
    assert board.refusal(guards) is None
    assert board.refusal({}, guards) == (
        "guard_duty",
        "all runs took 18.1% of the last hour, and the guard of all workloads is 10.0%",
    )
    board.now_ns = 7200 * S
    assert board.refusal(guards, guards) is None


def test_run_that_began_before_the_last_hour_counts_with_the_rest(board):
    board.now_ns = 5000 * S
    board.guard.ran("w", 0, 1765 * S)
    assert board.refusal({"duty": 0.1}) is not None
    assert board.refusal({"duty": 0.102}) is None


@pytest.mark.parametrize(
    "guards",
    [{"duty": "0%"}, {"duty": 1.5}, {"skip_above_celsius": {"tj": 900}}, {"skip_below": 3}],
)
def test_guards_that_make_no_sense_are_refused(guards):
    with pytest.raises(ValidationError):
        Config.model_validate({"guards": guards})


def test_charge_of_a_battery_is_read(tmp_path):
    supplies = tmp_path / "sys/class/power_supply"
    for name, kind in (("BAT0", "Battery"), ("AC", "Mains")):
        (supplies / name).mkdir(parents=True)
        (supplies / name / "type").write_text(f"{kind}\n")
        (supplies / name / "capacity").write_text("87\n")
    found = [one for find in FINDERS for one in find(tmp_path) if "capacity" in str(one.file.path)]
    assert [dict(one.take(one.file.text() or "", 0)) for one in found] == [
        {(signals.BATTERY_CHARGE, "BAT0"): 0.87}
    ]
