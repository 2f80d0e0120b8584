"""What many threads note at once, counted exactly; and what a snapshot says is whole."""

import threading

from tegrascope.daemon.export.snapshot import LiveState, Snapshot, WorkloadState
from tegrascope.daemon.measure.report import Environment, RunReport
from tegrascope.daemon.measure.running_energy import EnergyCounters


def report(run_id: str, workload: str) -> RunReport:
    return RunReport(
        run_id=run_id,
        workload=workload,
        backend="onnxruntime",
        device="cpu",
        outcome="ok",
        started_wall_ns=1,
        started_ns=1,
        ended_ns=2,
    )


def is_whole(state: WorkloadState) -> bool:
    return sum(state.latency.counts) == state.inferences


def test_threads_lose_no_count():
    """Four lanes and a telemetry thread at once: every run and inference is counted, once."""
    live = LiveState(Snapshot())
    names = ("a", "b", "c", "d")
    live.set_workloads(dict.fromkeys(names, "cpu"))
    over = threading.Event()
    torn = []

    def lane(name: str) -> None:
        for number in range(200):
            run_id = f"{name}{number}"
            live.run_began(name, run_id, 0.01, 1.0)
            live.counted(name, run_id, 2, (1_000_000, 3_000_000), 1.0)
            live.run_ended(report(run_id, name))
            live.skipped("overlap")

    def look() -> None:
        while not over.is_set():
            live.update(module_joules=1.0)
            torn.extend(one for one in live.snapshot.workloads.values() if not is_whole(one))

    watcher = threading.Thread(target=look)
    lanes = [threading.Thread(target=lane, args=(name,)) for name in names]
    for thread in (watcher, *lanes):
        thread.start()
    for thread in lanes:
        thread.join()
    over.set()
    watcher.join()
    assert not torn
    for state in live.snapshot.workloads.values():
        assert (state.runs, state.inferences, state.active_run) == ({"ok": 200}, 400, None)
        assert is_whole(state)
    assert sum(live.snapshot.lateness.counts) == 800
    assert live.snapshot.skipped == {"overlap": 800}


def test_reload_during_a_run_keeps_what_is_counted():
    """A workload that stays keeps its counts and its run; on another lane it begins anew."""
    live = LiveState(Snapshot())
    live.set_workloads({"stays": "cpu", "moves": "cpu"})
    for name in ("stays", "moves"):
        live.run_ended(report("0", name))
        live.run_began(name, "1", None, 1.0)
    live.set_workloads({"stays": "cpu", "moves": "gpu", "new": "cpu"})
    states = live.snapshot.workloads
    assert (states["stays"].runs, states["stays"].active_run) == ({"ok": 1}, "1")
    assert (states["moves"].runs, states["moves"].active_run) == ({}, None)
    assert list(states) == ["stays", "moves", "new"]


def test_garbled_rails_do_not_pile_up():
    """A source whose lines invent a rail each fills no memory, and known rails go on counting."""
    counters = EnergyCounters()
    for second in range(500):
        values = {f"rails.VDD_{second}.instant_watts": 1.0, "rails.VDD_IN.instant_watts": 2.0}
        counters.feed(second * 1_000_000_000, values)
    assert len(counters.rails) <= 64
    assert counters.rails["VDD_IN"] == 2.0 * 499


def test_a_description_that_says_nothing_new_changes_nothing():
    """Facts that are looked at again and again make a new page only when they changed."""
    live = LiveState(Snapshot(environment=Environment(board="b", power_mode="MAXN")))
    before = live.snapshot
    live.describe(power_mode="MAXN", clocks_locked=None)
    assert live.snapshot is before
    live.describe(power_mode="15W", clocks_locked=None)
    assert live.snapshot.environment == Environment(board="b", power_mode="15W")
    assert live.snapshot.version == before.version + 1
