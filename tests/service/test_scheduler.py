"""The plan: periods, cron, jitter, and what was missed; no clock runs here."""

import time
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tegrascope.daemon.service.scheduler import Now, Scheduler
from tegrascope.daemon.settings.config import Workload

S = 1_000_000_000
WALL = int(datetime(2026, 5, 4, 10, 0, 30).timestamp()) * S


def at(seconds: float, step: float = 0, asleep: float = 0) -> Now:
    wall_ns = WALL + int((seconds + step + asleep) * S)
    return Now(int((100 + seconds) * S), wall_ns, int(asleep * S))


def workload(**settings: object) -> Workload:
    return Workload.model_validate({"name": "w", "model": "x"} | settings)


def names(due: object) -> list[str]:
    return [one.workload.name for one in due]


def test_first_run_is_at_once_and_the_next_a_period_later():
    """A period counts from the start, whenever the runs really begin."""
    plan = Scheduler([workload(every=10)], at(0))
    assert names(plan.due(at(0.2))) == ["w"]
    assert plan.next_ns() == at(10).monotonic_ns
    assert plan.due(at(9.9)) == []
    assert names(plan.due(at(10))) == ["w"]


def test_offset_delays_the_first_run():
    """Workloads with one period and different offsets do not meet."""
    plan = Scheduler([workload(every=10, offset=4)], at(0))
    assert plan.due(at(3.9)) == []
    assert [due.due_ns for due in plan.due(at(4))] == [at(4).monotonic_ns]
    assert plan.next_ns() == at(14).monotonic_ns


def test_on_demand_is_not_planned():
    """Without a clock of its own a workload waits to be asked."""
    plan = Scheduler([workload()], at(0))
    assert plan.next_ns() is None
    assert plan.due(at(1000)) == []


LATE = pytest.mark.parametrize(
    ("policy", "runs", "missed"), [("skip", [], 3), ("run_once", ["w"], 2)]
)


@LATE
def test_every_period_without_a_run_is_missed(policy, runs, missed):
    """Of the periods at 10, 20 and 30 s, at most one is run late, and the grid is kept."""
    plan = Scheduler([workload(every=10, missed=policy)], at(0))
    plan.due(at(0))
    assert names(plan.due(at(35))) == runs
    assert plan.missed == {"w": missed}
    assert plan.next_ns() == at(40).monotonic_ns


def test_cron_follows_local_wall_time():
    """At ten o'clock and thirty seconds the next full minute is thirty seconds away."""
    plan = Scheduler([workload(cron="* * * * *")], at(0))
    assert plan.next_ns() == at(30).monotonic_ns
    assert plan.due(at(29)) == []
    assert names(plan.due(at(30.01))) == ["w"]
    assert plan.next_ns() == pytest.approx(at(90).monotonic_ns, abs=S / 10)


def test_wall_clock_step_moves_cron_and_not_periods():
    """A board that boots in 1970 and jumps to now does not run fifty years of minutes."""
    plan = Scheduler([workload(cron="*/5 * * * *")], at(0))
    plan_every = Scheduler([workload(every=10)], at(0))
    plan_every.due(at(0))
    jumped = at(1, step=3600 * 24 * 400 + 7)
    assert plan.due(jumped) == []
    assert plan.missed == {}
    assert plan.next_ns() is not None
    assert 0 < plan.next_ns() - jumped.monotonic_ns <= 300 * S
    assert plan_every.due(jumped) == []


@LATE
def test_every_cron_time_without_a_run_is_missed(policy, runs, missed):
    """Of the minutes at 30, 90 and 150 s, at most one is run late; then the plan goes on."""
    plan = Scheduler([workload(cron="* * * * *", missed=policy)], at(0))
    assert names(plan.due(at(155))) == runs
    assert plan.missed == {"w": missed}
    assert plan.next_ns() == pytest.approx(at(210).monotonic_ns, abs=S / 10)


@LATE
def test_cron_times_during_a_suspend_are_missed_as_others(policy, runs, missed):
    """The wall clock goes on while the machine sleeps, and nobody has set it."""
    plan = Scheduler([workload(cron="* * * * *", missed=policy)], at(0))
    assert names(plan.due(at(5, asleep=150))) == runs
    assert plan.missed == {"w": missed}
    assert plan.next_ns() == pytest.approx(at(60).monotonic_ns, abs=S / 10)


@pytest.mark.parametrize(("policy", "runs"), [("skip", []), ("run_once", ["w"])])
def test_one_cron_time_during_a_suspend_is_run_late_only_if_wanted(policy, runs):
    plan = Scheduler([workload(cron="* * * * *", missed=policy)], at(0))
    assert names(plan.due(at(5, asleep=30))) == runs
    assert sum(plan.missed.values()) + len(runs) == 1


@pytest.mark.parametrize(("policy", "runs"), [("skip", []), ("run_once", ["w"])])
@pytest.mark.parametrize("step", [0, 5])
def test_time_slept_over_is_counted_beside_a_reload_and_a_step_of_the_clock(policy, runs, step):
    workloads = [workload(cron="* * * * *", missed=policy)]
    plan = Scheduler(workloads, at(0))
    awake = at(1, step, asleep=40)  # over 10:01
    plan.replan(workloads, awake)
    assert names(plan.due(awake)) == runs
    assert len(runs) + plan.missed.get("w", 0) == 1


def test_time_at_which_the_machine_is_awake_again_is_not_missed():
    plan = Scheduler([workload(cron="* * * * *", missed="skip")], at(0))
    assert names(plan.due(at(10.1, asleep=20))) == ["w"]
    assert plan.missed == {}


def test_repeated_hour_at_the_end_of_summer_time_gives_no_time_in_the_past(monkeypatch):
    # Of Berlin, in a form that needs no files of zones, which a bare system lacks.
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    try:
        begin = Now(S, 1729992000 * S)  # 02:20, for the second time
        plan = Scheduler([workload(cron="*/15 * * * *")], begin)
        assert plan.due(begin) == []
        assert plan.next_ns() == begin.monotonic_ns + 40 * 60 * S  # 03:00
    finally:
        monkeypatch.undo()
        time.tzset()


def test_workload_that_is_new_after_a_suspend_is_not_moved_by_it():
    plan = Scheduler([], at(0))
    plan.replan([workload(cron="* * * * *")], at(5, asleep=10))
    assert plan.due(at(6, asleep=10)) == []
    assert plan.next_ns() == at(20).monotonic_ns


def test_clocks_that_are_read_one_after_another_are_no_suspend():
    plan = Scheduler([workload(cron="* * * * *")], at(0))
    assert names(plan.due(at(30.01, asleep=0.001))) == ["w"]


def test_cron_time_is_run_once_if_the_wall_clock_is_a_little_behind():
    """The due time is kept by one clock and found by another, which may be set by a moment."""
    plan = Scheduler([workload(cron="* * * * *")], at(0))
    assert names(plan.due(at(30, step=-0.5))) == ["w"]
    assert plan.next_ns() == at(90.5).monotonic_ns


def test_suspend_between_cron_times_brings_the_next_one_forward():
    plan = Scheduler([workload(cron="* * * * *")], at(0))
    assert plan.due(at(5, asleep=10)) == []
    assert plan.next_ns() == at(20).monotonic_ns
    assert names(plan.due(at(20, asleep=10))) == ["w"]


@given(st.floats(0, 9.9), st.integers(0, 1000))
def test_jitter_only_delays_and_keeps_the_grid(jitter, seed):
    """However the jitter falls, run k is due in [k periods, k periods + jitter]."""
    plan = Scheduler([workload(every=10, jitter=jitter)], at(0), seed=seed)
    for k in range(5):
        due_ns = plan.next_ns()
        assert due_ns is not None
        assert at(10 * k).monotonic_ns <= due_ns <= at(10 * k + jitter).monotonic_ns
        found = plan.due(Now(due_ns, WALL + due_ns - 100 * S))
        assert [one.due_ns for one in found] == [due_ns]
    assert plan.missed == {}


def test_planned_is_sorted():
    """The first screen shows what comes next, soonest first."""
    plan = Scheduler([workload(name="b", every=10, offset=5), workload(name="a", every=10)], at(0))
    assert [one.name for one, _ in plan.planned()] == ["a", "b"]
