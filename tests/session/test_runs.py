"""The thread of a lane: whatever a worker or the daemon does, each run is told honestly."""

import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tegrascope.collectors.simulator.physics import board_model
from tegrascope.daemon.measure.report import RunReport
from tegrascope.daemon.measure.trace import RunTrace
from tegrascope.daemon.service.device_thread import ExecutorThread
from tegrascope.daemon.session.executor import Executor, worker_command
from tegrascope.daemon.session.session import FAR_OFF_NS, InFlightRun, Job, Session
from tegrascope.daemon.settings.config import Workload
from tegrascope.daemon.store.history import History
from tegrascope.daemon.store.store import Store
from tegrascope.parsers.inference.events import Phase
from tests.fakes.loads import COMMAND, loads
from tests.fakes.processes import Stopwatch, until

HELLO = """
import json, os, sys, time
def tell(**event): print(json.dumps(event), flush=True)
def phase(name, edge): tell(event="phase", phase=name, edge=edge, at_ns=time.monotonic_ns(), **run)
def infer(count):
    now = time.monotonic_ns()
    tell(event="inferences", start_ns=[now + n for n in range(count)],
         latency_ns=[1000000 * (n + 1) for n in range(count)], **run)
"""
GOOD = """
tell(event="hello", pid=os.getpid(), python="3")
for line in sys.stdin:
    run = dict(run_id=json.loads(line)["run_id"])
    phase("steady", "begin"); infer(10); time.sleep(SECONDS); phase("steady", "end")
    tell(event="finished", outcome="ok", **run)
"""


def good(seconds: float = 0.0) -> str:
    return GOOD.replace("SECONDS", str(seconds))


def good_until(path: Path) -> str:
    """Return a worker whose steady phase ends when a file is there."""
    return GOOD.replace(
        "time.sleep(SECONDS)",
        f"[time.sleep(0.01) for _ in iter(lambda: os.path.exists({str(path)!r}), True)]",
    )


def workload(**settings: object) -> Workload:
    return Workload.model_validate({"name": "w", "model": "m", "device": "cpu"} | settings)


class Bench:
    """Lanes with scripted workers, and what they share."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.store = Store(directory / "runs.db")
        self.on_report: Callable[[RunReport], object] = lambda _: None
        self.session = Session(
            store=self.store,
            model_directory=directory,
            engine_directory=directory,
            on_report=lambda report: self.on_report(report),
        )
        self.live = self.session.live
        self.load = self.session.load
        self.runners: list[ExecutorThread] = []

    def executor(self, worker: str, device: str = "cpu") -> ExecutorThread:
        script = self.directory / f"{device}.py"
        script.write_text(HELLO + worker)
        runner = ExecutorThread(Executor(device, argv=(sys.executable, str(script))), self.session)
        runner.start()
        self.runners.append(runner)
        return runner

    def submit(
        self, runner: ExecutorThread, asked: Workload, late_seconds: "float | None" = None
    ) -> str:
        known = {name: one.device for name, one in self.live.snapshot.workloads.items()}
        self.live.set_workloads(known | {asked.name: asked.device})
        due_ns = None if late_seconds is None else time.monotonic_ns() - int(late_seconds * 1e9)
        job = Job(asked, due_ns)
        runner.submit(job)
        return job.run_id

    def runs(self) -> "dict[str, dict[str, object]]":
        return {run["run_id"]: run for run in History(self.store.path).runs()}

    def wait_for(self, what: Callable[[], object]) -> None:
        assert until(what), self.runs()

    def close(self) -> None:
        for runner in self.runners:
            runner.cancel()
        for runner in self.runners:
            runner.join(60)
        self.store.close()


@pytest.fixture
def bench(tmp_path):
    made = Bench(tmp_path)
    yield made
    made.close()


def test_a_model_is_the_first_of_its_worker(bench, tmp_path):
    runner = ExecutorThread(Executor("gpu", argv=COMMAND), bench.session)
    runner.start()
    bench.runners.append(runner)
    for name in ("a", "a", "b", "a"):
        (tmp_path / name).touch()
        asked = workload(
            name=name, model=str(tmp_path / name), device="gpu", count=3, warm_up=0, baseline=0
        )
        run_id = bench.submit(runner, asked)
        bench.wait_for(lambda one=run_id: one in bench.runs())
        assert bench.runs()[run_id]["outcome"] == "ok"
    done = loads(tmp_path)
    assert [model for _, model, _ in done] == ["a", "b", "a"]
    assert len({pid for pid, _, _ in done}) == 3


def test_counters_are_the_sum_of_many_runs(bench):
    """After thirty runs, outcomes, inferences, the histogram and the store all say the same."""
    runner = bench.executor(good(0.02))
    for _ in range(30):
        run_id = bench.submit(runner, workload())
        bench.wait_for(lambda one=run_id: one in bench.runs())
    bench.wait_for(lambda: bench.live.snapshot.workloads["w"].runs == {"ok": 30})
    state = bench.live.snapshot.workloads["w"]
    assert state.inferences == sum(state.latency.counts) == 300
    assert state.latency.total == pytest.approx(30 * 0.055)
    assert [run["inferences"] for run in bench.runs().values()] == [10] * 30


def test_lateness_is_from_due_to_start(bench):
    """What a scheduled run waited is in its record and the histogram; on demand there is none."""
    runner = bench.executor(good())
    late = bench.submit(runner, workload(), late_seconds=3.0)
    bench.wait_for(lambda: late in bench.runs())
    asked = bench.submit(runner, workload())
    bench.wait_for(lambda: asked in bench.runs())
    waited = bench.runs()[late]["lateness_seconds"]
    assert 3.0 <= waited < 60
    assert "lateness_seconds" not in bench.runs()[asked]
    lateness = bench.live.snapshot.lateness
    assert sum(lateness.counts) == 1
    assert lateness.total == pytest.approx(waited)


def test_two_lanes_at_a_time_overlap(bench):
    """Runs that were steady together each name the other; a later one alone names nobody."""
    end = bench.directory / "end"
    one, other = bench.executor(good_until(end)), bench.executor(good_until(end), "gpu")
    first = bench.submit(one, workload(name="a"))
    second = bench.submit(other, workload(name="b", device="gpu"))
    bench.wait_for(lambda: {first, second} <= set(bench.session.times.others("")))
    end.touch()
    bench.wait_for(lambda: {first, second} <= set(bench.runs()))
    third = bench.submit(one, workload(name="a"))
    bench.wait_for(lambda: third in bench.runs())
    runs = bench.runs()
    assert runs[first]["overlapping_runs"] == [second]
    assert runs[second]["overlapping_runs"] == [first]
    assert "overlapped" in runs[first]["quality"]
    assert "overlapped" in runs[second]["quality"]
    assert "overlapped" not in runs[third]["quality"]


def test_time_in_flight_is_that_of_the_runs_of_a_device(bench):
    """What else a DLA did in a range is judged by it: it begins with an order and ends with it."""
    in_flight_seconds = bench.session.times.in_flight_seconds
    begin_ns = time.monotonic_ns()
    end = bench.directory / "end"
    run_id = bench.submit(bench.executor(good_until(end)), workload())
    bench.wait_for(lambda: run_id in bench.session.times.others(""))
    assert in_flight_seconds("cpu", begin_ns, time.monotonic_ns()) > 0
    end.touch()
    bench.wait_for(lambda: run_id in bench.runs())
    end_ns = time.monotonic_ns()
    assert 0 < in_flight_seconds("cpu", begin_ns, end_ns) <= (end_ns - begin_ns) / 1e9
    assert in_flight_seconds("cpu", end_ns, FAR_OFF_NS) == 0
    assert in_flight_seconds("gpu", begin_ns, end_ns) == 0


def test_a_start_may_bring_several_runs(bench):
    runner = bench.executor(good())
    first = bench.submit(runner, workload(runs_per_start=3), late_seconds=0.0)
    bench.wait_for(lambda: [run["outcome"] for run in bench.runs().values()] == ["ok"] * 3)
    late = {run_id: run.get("lateness_seconds") for run_id, run in bench.runs().items()}
    assert late.pop(first) is not None
    assert set(late.values()) == {None}


def test_a_series_ends_with_its_workload(bench, tmp_path):
    end = tmp_path / "end"
    runner, asked = bench.executor(good_until(end)), workload(runs_per_start=100)
    first = bench.submit(runner, asked)
    bench.wait_for(lambda: bench.live.snapshot.workloads["w"].active_run == first)
    runner.keep([])
    end.touch()
    last = bench.submit(runner, workload(name="last"))
    bench.wait_for(lambda: bench.runs().get(last, {}).get("outcome") == "ok")
    assert set(bench.runs()) == {first, last}


SIMULATED = {"backend": "simulated", "model": "resnet50", "baseline": 0.0}


def test_workers_are_told_how_others_on_the_simulated_board_slow_them(bench):
    """A run beside another takes longer per inference for as long as both work."""
    bench.load.belong_to(board_model("agx-orin-64gb"))
    runners = {}
    for device in ("gpu", "dla0"):
        runner = ExecutorThread(Executor(device, argv=worker_command(device)), bench.session)
        runner.start()
        bench.runners.append(runner)
        runners[device] = runner
    alone = bench.submit(runners["dla0"], workload(device="dla0", duration=2.0, **SIMULATED))
    bench.wait_for(lambda: bench.runs().get(alone, {}).get("outcome") == "ok")
    other = workload(name="other", device="gpu", duration=30.0, **SIMULATED)
    bench.submit(runners["gpu"], other)
    bench.wait_for(lambda: bench.load.slowdown("dla0", "dla0", time.monotonic_ns()) > 1)
    slowed = bench.submit(runners["dla0"], workload(device="dla0", duration=2.0, **SIMULATED))
    bench.wait_for(lambda: bench.runs().get(slowed, {}).get("outcome") == "ok")
    runs = bench.runs()
    latency = {name: runs[name]["latency"]["p50_seconds"] for name in (alone, slowed)}
    expected = 1 + 0.3 * (0.9 * 0.38) / (1 - 0.9 * 0.38)
    assert latency[slowed] / latency[alone] == pytest.approx(expected, rel=0.01)


def test_fault_after_the_end_of_a_run_leaves_it_good(bench, caplog):
    """For example, of the sender of its span: the run was stored before."""
    runner = bench.executor(good())
    bench.on_report = lambda _: 1 // 0
    run_id = bench.submit(runner, workload())
    bench.wait_for(lambda: "ZeroDivisionError" in caplog.text)
    second = bench.submit(runner, workload())
    bench.wait_for(lambda: second in bench.runs())
    assert bench.runs()[run_id]["outcome"] == "ok"


def test_fault_of_the_daemon_fails_one_run(bench, monkeypatch, caplog):
    """When our own code fails on a run, that run is failed and over, and the lane goes on."""
    runner = bench.executor(good())
    failed_ns: list[int] = []

    def fail(*_: object, **__: object) -> None:
        monkeypatch.undo()
        failed_ns.append(time.monotonic_ns())
        raise ZeroDivisionError

    monkeypatch.setattr(bench.live, "counted", fail)
    first = bench.submit(runner, workload())
    bench.wait_for(lambda: "daemon itself" in bench.runs().get(first, {}).get("reason", ""))
    second = bench.submit(runner, workload())
    bench.wait_for(lambda: bench.runs().get(second, {}).get("outcome") == "ok")
    # A run is stored before it is over for the metrics.
    bench.wait_for(lambda: bench.live.snapshot.workloads["w"].active_run is None)
    failed = bench.runs()[first]
    assert failed["outcome"] == "failed"
    assert failed["started_ns"] < failed["phases"]["steady"]["begin_ns"] < failed_ns[0]
    assert all(span.end_ns < FAR_OFF_NS for span in bench.session.times.others("")[first])
    assert "ZeroDivisionError" in caplog.text


def test_run_without_a_possible_report_keeps_its_times(bench, monkeypatch):
    runner = bench.executor(good())
    pair, starts_ns = bench.session.pair, []

    def fail(trace: RunTrace) -> RunReport:
        if trace.phases:
            starts_ns.append(trace.started_ns)
            raise ZeroDivisionError
        return pair(trace)

    monkeypatch.setattr(bench.session, "pair", fail)
    run_id = bench.submit(runner, workload())
    bench.wait_for(lambda: "daemon itself" in bench.runs().get(run_id, {}).get("reason", ""))
    assert bench.runs()[run_id]["started_ns"] == starts_ns[0]


def test_worker_that_says_nothing_is_timed_out(bench):
    """A worker that hangs before its first word is killed when the run's own time is over."""
    runner = bench.executor("time.sleep(1000)")
    watch = Stopwatch()
    run_id = bench.submit(runner, workload(timeout=1))
    bench.wait_for(lambda: run_id in bench.runs())
    assert watch.seconds < 5
    assert bench.runs()[run_id]["outcome"] == "timeout"
    assert "printed nothing for 1 s" in bench.runs()[run_id]["reason"]
    assert runner.executor.pid is None


def test_cancel_before_the_first_word(bench):
    """The daemon need not wait for a worker that has not said hello yet."""
    runner = bench.executor("time.sleep(1000)")
    run_id = bench.submit(runner, workload())
    bench.wait_for(lambda: runner.executor.pid is not None)
    watch = Stopwatch()
    bench.close()
    assert watch.seconds < 2
    assert bench.runs()[run_id]["outcome"] == "cancelled"
    assert runner.executor.pid is None


def test_what_waits_at_the_end_is_recorded(bench):
    """A run that was promised and could not begin is cancelled; one that comes later is skipped."""
    runner = bench.executor(good(1000))
    flying = bench.submit(runner, workload())
    bench.wait_for(lambda: runner.executor.pid is not None)
    waiting = bench.submit(runner, workload())
    runner.cancel()
    late = bench.submit(runner, workload())
    bench.close()
    runs = bench.runs()
    assert runs[flying]["outcome"] == "cancelled"
    assert (runs[waiting]["outcome"], runs[late]["outcome"]) == ("cancelled", "skipped")
    assert runs[late]["reason"] == "the daemon is stopping"
    assert runs[late]["skip_reason"] == "stopping"


def test_submitting_while_it_stops_loses_nothing(bench):
    """Of jobs that race with the end, each has exactly one record."""
    runner = bench.executor(good())
    submitted: list[str] = []

    def hurry(name: str) -> None:
        asked = workload(name=name)
        for _ in range(20):
            job = Job(asked)
            submitted.append(job.run_id)
            runner.submit(job)

    threads = [threading.Thread(target=hurry, args=(f"w{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    runner.cancel()
    for thread in threads:
        thread.join()
    runner.join(60)
    assert set(bench.runs()) == set(submitted)
    assert len(submitted) == 80


def test_overlap_is_refused_with_its_reason(bench):
    """Who asks for a run that can't be is told why, each time in its own words."""
    runner = bench.executor(good(1000))
    bench.submit(runner, workload())
    bench.wait_for(lambda: runner.executor.pid is not None)

    def ask(**settings: object) -> "str | None":
        return runner.submit(Job(workload(**settings)))

    assert ask(name="other", overlap="skip") == "its device is busy"
    assert ask(name="other") is None
    assert ask(name="other") == "an earlier run of its own waits"
    assert bench.live.snapshot.skipped == {"overlap": 2}


def test_guarded_run_is_recorded_as_skipped(bench, tmp_path):
    took: list[tuple[str, int]] = []
    hot = ("guard_temperature", "tj has 90 °C")
    runner = ExecutorThread(
        Executor("gpu", argv=COMMAND),
        bench.session,
        refusal=lambda asked: hot if asked.name == "hot" else None,
        ran=lambda name, begin_ns, end_ns: took.append((name, end_ns - begin_ns)),
    )
    runner.start()
    bench.runners.append(runner)
    ids = {}
    for name in ("hot", "cool"):
        (tmp_path / name).touch()
        asked = workload(
            name=name, model=str(tmp_path / name), device="gpu", count=3, warm_up=0, baseline=0
        )
        ids[name] = bench.submit(runner, asked)
    bench.wait_for(lambda: len(bench.runs()) == 2 and took)
    skipped = bench.runs()[ids["hot"]]
    assert (skipped["outcome"], skipped["reason"]) == ("skipped", "tj has 90 °C")
    assert skipped["skip_reason"] == "guard_temperature"
    assert bench.runs()[ids["cool"]]["outcome"] == "ok"
    assert [name for name, nanoseconds in took if nanoseconds > 0] == ["cool"]
    assert bench.live.snapshot.skipped == {"guard_temperature": 1}


def test_guard_is_asked_again_when_a_waiting_run_begins(bench):
    end, hot = bench.directory / "end", []
    script = bench.directory / "worker.py"
    script.write_text(HELLO + good_until(end))
    runner = ExecutorThread(
        Executor("cpu", argv=(sys.executable, str(script))),
        bench.session,
        refusal=lambda _: hot[0] if hot else None,
    )
    runner.start()
    bench.runners.append(runner)
    first = bench.submit(runner, workload(name="first"))
    bench.wait_for(lambda: first in bench.session.times.others(""))
    waits = bench.submit(runner, workload(name="waits"))
    hot.append(("guard_temperature", "tj has 90 °C"))
    end.touch()
    bench.wait_for(lambda: waits in bench.runs())
    assert bench.runs()[first]["outcome"] == "ok"
    skipped = bench.runs()[waits]
    assert (skipped["outcome"], skipped["skip_reason"]) == ("skipped", "guard_temperature")
    assert skipped["reason"] == "tj has 90 °C"
    bench.wait_for(lambda: bench.live.snapshot.skipped == {"guard_temperature": 1})


def test_reload_drops_what_is_no_longer_wanted(bench):
    """A waiting run of a workload that was taken away is cancelled; the one in flight goes on."""
    end = bench.directory / "end"
    runner = bench.executor(good_until(end))
    flying = bench.submit(runner, workload(name="gone"))
    bench.wait_for(lambda: runner.executor.pid is not None)
    waiting = bench.submit(runner, workload(name="gone"))
    stays = bench.submit(runner, workload(name="stays"))
    runner.keep([workload(name="stays")])
    end.touch()
    bench.wait_for(lambda: {flying, stays} <= set(bench.runs()))
    runs = bench.runs()
    assert runs[flying]["outcome"] == runs[stays]["outcome"] == "ok"
    assert (runs[waiting]["outcome"], runs[waiting]["reason"]) == (
        "cancelled",
        "the configuration was changed",
    )


def test_lane_without_workloads_gives_its_worker_back(bench):
    """No worker keeps its model in memory for nothing; the lane is there when it is used again."""
    runner = bench.executor(good())
    first = bench.submit(runner, workload())
    bench.wait_for(lambda: first in bench.runs())
    assert runner.executor.pid is not None
    runner.keep([workload(device="gpu")])
    bench.wait_for(lambda: runner.executor.pid is None)
    again = bench.submit(runner, workload())
    bench.wait_for(lambda: again in bench.runs())
    assert bench.runs()[again]["outcome"] == "ok"


def test_load_and_warm_up_are_work_and_idle_is_not(bench):
    run = InFlightRun(bench.session, Job(workload()))
    run_id = run.trace.run_id
    for at, phase in enumerate(("load", "warm_up", "baseline_before", "steady")):
        for edge in ("begin", "end"):
            at_ns = 10 * at + (edge == "end") * 5
            run.take(Phase(run_id=run_id, phase=phase, edge=edge, at_ns=at_ns))
            ends = [one.end_ns for one in bench.session.times.others("").get(run_id, ())]
            goes_on = edge == "begin" and phase != "baseline_before"
            assert (FAR_OFF_NS in ends) == goes_on
    spans = bench.session.times.others("")[run_id]
    assert [(one.begin_ns, one.end_ns) for one in spans] == [(0, 5), (10, 15), (30, 35)]
    # A simulated board computes in warm-up and steady phase.
    shares = [bench.load.busy_ratio("cpu", 10 * at, 10 * at + 10) for at in range(4)]
    assert shares == [0, 0.5, 0, 0.5]
    assert bench.load.busy_ratio("gpu", 0, 40) == 0
