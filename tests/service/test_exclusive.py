"""Exclusive runs: nothing else is in flight meanwhile, and none of them waits forever."""

import random
import secrets
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import ValidationError

from tegrascope.daemon.service.device_thread import ExecutorThread, RunQueues
from tegrascope.daemon.session.executor import Executor
from tegrascope.daemon.session.session import Job, Session
from tegrascope.daemon.settings.config import Config, Workload
from tegrascope.daemon.store.history import History
from tegrascope.daemon.store.store import Store
from tegrascope.parsers.inference.events import Finished
from tests.fakes.processes import PATIENCE_SECONDS, Stopwatch, until

DEVICES = ("cpu", "gpu", "dla0")


class Held(Executor):
    """A worker whose runs last until they are let go, or until a time is over."""

    def __init__(self, device: str, house: "House") -> None:
        super().__init__(device)
        self.house = house

    def run(self, order: object, _timeout: float, on_event: Callable[[object], None]) -> Finished:
        house, run_id = self.house, order.run_id
        with house.lock:
            house.inside.add(run_id)
            house.met.append(frozenset(house.inside))
        let_go = house.ends[run_id].wait(house.seconds.get(run_id, 2 * PATIENCE_SECONDS))
        with house.lock:
            house.inside.remove(run_id)
        is_ok = let_go or run_id in house.seconds
        outcome = "ok" if is_ok and not house.stops.is_set() else "cancelled"
        finished = Finished(run_id=run_id, outcome=outcome, reason="end")
        on_event(finished)
        return finished

    def close(self) -> None:
        self.house.closed.add(self.device)
        super().close()

    def cancel(self) -> None:
        self.house.stops.set()
        for end in self.house.ends.values():
            end.set()


class Watched(threading.Condition):
    """A condition that knows how many threads wait for it and were not woken yet."""

    asleep = 0

    def wait(self, timeout: "float | None" = None) -> bool:
        self.asleep += 1
        return super().wait(timeout)

    def notify(self, n: int = 1) -> None:
        self.asleep -= min(n, self.asleep)
        super().notify(n)


class House:
    """The threads of three devices, their runs, and which of them met."""

    def __init__(self, directory: Path) -> None:
        self.store = Store(directory / "runs.db")
        self.session = Session(
            store=self.store, model_directory=directory, engine_directory=directory
        )
        self.lock, self.stops = threading.Lock(), threading.Event()
        self.inside: set[str] = set()
        self.met: list[frozenset[str]] = []
        self.ends: dict[str, threading.Event] = {}
        self.seconds: dict[str, float] = {}
        self.jobs: dict[str, Job] = {}
        self.refused: dict[str, str] = {}
        self.closed: set[str] = set()
        queues = RunQueues()
        queues.changed = self.changed = Watched()
        self.threads = {
            device: ExecutorThread(Held(device, self), self.session, queues) for device in DEVICES
        }
        for thread in self.threads.values():
            thread.start()

    def submit(
        self, asked: Workload, seconds: "float | None" = None, due_ns: "int | None" = None
    ) -> str:
        job = Job(asked, due_ns)
        self.jobs[job.run_id] = job
        self.ends[job.run_id] = threading.Event()
        if seconds is not None:
            self.seconds[job.run_id] = seconds
        self.session.live.set_workloads(
            {one.workload.name: one.workload.device for one in self.jobs.values()}
        )
        if refusal := self.threads[asked.device].submit(job):
            self.refused[job.run_id] = refusal
        return job.run_id

    def is_inside(self, *run_ids: str) -> bool:
        with self.lock:
            return self.inside == set(run_ids)

    def outcomes(self) -> "dict[str, tuple[str, str | None]]":
        runs = History(self.store.path).runs(limit=1000)
        return {run["run_id"]: (run["outcome"], run.get("reason")) for run in runs}

    def close(self) -> None:
        for thread in self.threads.values():
            thread.cancel()
        for thread in self.threads.values():
            thread.join(60)
        self.store.close()


@pytest.fixture
def house(tmp_path):
    made = House(tmp_path)
    yield made
    made.close()


def work(name: str, device: str, **settings: object) -> Workload:
    return Workload.model_validate({"name": name, "model": "m", "device": device, **settings})


def test_exclusive_run_waits_for_others_and_holds_up_later_ones(house):
    first = house.submit(work("a", "gpu"))
    other = house.submit(work("b", "dla0"))
    assert until(lambda: house.is_inside(first, other))
    alone = house.submit(work("alone", "cpu", exclusive=True))
    later = house.submit(work("c", "gpu"))
    house.ends[first].set()
    assert until(lambda: first in house.outcomes())
    assert house.is_inside(other)
    house.ends[other].set()
    assert until(lambda: house.is_inside(alone))
    house.ends[alone].set()
    assert until(lambda: house.is_inside(later))
    house.ends[later].set()


def test_workloads_that_are_not_exclusive_run_at_the_same_time(house):
    runs = [house.submit(work(device, device)) for device in DEVICES]
    assert until(lambda: house.is_inside(*runs))


def test_exclusive_run_waits_behind_earlier_runs_of_its_device(house):
    first = house.submit(work("a", "gpu"))
    second = house.submit(work("b", "gpu"))
    alone = house.submit(work("alone", "gpu", exclusive=True))
    other = house.submit(work("c", "dla0"))
    assert until(lambda: house.is_inside(first, other))
    house.ends[first].set()
    assert until(lambda: house.is_inside(second, other))
    house.ends[second].set()
    house.ends[other].set()
    assert until(lambda: house.is_inside(alone))


def test_end_of_an_exclusive_run_wakes_every_device(house):
    alone = house.submit(work("alone", "cpu", exclusive=True))
    assert until(lambda: house.is_inside(alone))
    waiting = [house.submit(work(device, device)) for device in ("gpu", "dla0")]
    house.ends[alone].set()
    assert until(lambda: house.is_inside(*waiting))


def test_job_that_is_dropped_wakes_every_device(house):
    busy = house.submit(work("busy", "gpu"))
    assert until(lambda: house.is_inside(busy))
    house.submit(work("alone", "cpu", exclusive=True))
    other = house.submit(work("other", "dla0"))
    assert until(lambda: house.changed.asleep == 2)
    house.threads["cpu"].keep([])
    assert until(lambda: house.is_inside(busy, other) and "cpu" in house.closed)


@pytest.mark.parametrize("device", DEVICES)
def test_device_that_is_cancelled_ends_while_others_wait(house, device):
    house.threads[device].cancel()
    assert until(lambda: device in house.closed)


def test_runs_at_random_all_end_and_none_is_beside_an_exclusive_one(house):
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    workloads = [
        work(f"w{n}", draw.choice(DEVICES), exclusive=draw.random() < 0.4) for n in range(9)
    ]

    def ask(asked: "list[Workload]") -> None:
        for one in asked:
            house.submit(one, seconds=0.003)

    orders = [[draw.choice(workloads) for _ in range(15)] for _ in range(3)]
    askers = [threading.Thread(target=ask, args=(order,)) for order in orders]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join()
    assert until(lambda: len(house.outcomes()) == len(house.jobs)), seed
    assert {"ok"} <= {outcome for outcome, _ in house.outcomes().values()} <= {"ok", "skipped"}
    for met in house.met:
        exclusive = [one for one in met if house.jobs[one].workload.exclusive]
        assert not exclusive or len(met) == 1, seed


@pytest.mark.parametrize(("missed", "left"), [("skip", "later"), ("run_once", "earlier")])
def test_waiting_is_bounded_by_the_next_planned_run(house, missed, left):
    busy = house.submit(work("busy", "gpu"))
    assert until(lambda: house.is_inside(busy))
    alone = work("alone", "cpu", exclusive=True, every=5000, missed=missed)
    now_ns = time.monotonic_ns()
    earlier = house.submit(alone, due_ns=now_ns - 5_000_000_000_000)
    later = house.submit(alone, due_ns=now_ns)
    begins, skipped = (later, earlier) if left == "later" else (earlier, later)
    assert until(lambda: skipped in house.outcomes())
    reason = "its next run" if left == "later" else "an earlier run of its own"
    assert house.outcomes()[skipped][1].startswith(reason)
    house.ends[busy].set()
    assert until(lambda: house.is_inside(begins))


def test_skip_on_overlap_counts_every_device(house):
    busy = house.submit(work("busy", "gpu"))
    assert until(lambda: house.is_inside(busy))
    alone = house.submit(work("alone", "cpu", exclusive=True, overlap="skip"))
    assert house.refused[alone] == "it is exclusive, and other runs are in flight"
    waits = house.submit(work("waits", "cpu", exclusive=True))
    other = house.submit(work("other", "dla0", overlap="skip"))
    assert house.refused[other] == "an exclusive run is in flight or waits"
    house.ends[busy].set()
    assert until(lambda: house.is_inside(waits))


def test_reload_that_takes_an_exclusive_run_away_lets_others_begin(house):
    busy = house.submit(work("busy", "gpu"))
    assert until(lambda: house.is_inside(busy))
    waits = house.submit(work("alone", "cpu", exclusive=True))
    other = house.submit(work("other", "dla0"))
    stays = [work("busy", "gpu"), work("other", "dla0")]
    for thread in house.threads.values():
        thread.keep(stays)
    assert until(lambda: house.is_inside(busy, other))
    assert house.outcomes()[waits] == ("cancelled", "the configuration was changed")


def test_stop_ends_exclusive_runs_in_flight_and_waiting(house):
    flying = house.submit(work("flying", "gpu", exclusive=True))
    assert until(lambda: house.is_inside(flying))
    waiting = [house.submit(work(f"w{n}", on, exclusive=True)) for n, on in enumerate(DEVICES)]
    watch = Stopwatch()
    house.close()
    assert watch.seconds < 5
    outcomes = house.outcomes()
    assert {outcomes[one][0] for one in (flying, *waiting)} == {"cancelled"}


DAEMON = """
telemetry: {source: simulator, interval: 103ms}
workloads:
- {name: alone, model: resnet50, backend: simulated, device: gpu,
   warm_up: 100ms, baseline: 100ms, duration: 500ms, every: 3s, exclusive: EXCLUSIVE}
- {name: other, model: resnet50, backend: simulated, device: dla0,
   warm_up: 100ms, baseline: 100ms, duration: 500ms, every: 3s}
"""


@pytest.mark.parametrize("exclusive", [True, False])
def test_daemon_keeps_an_exclusive_run_apart(start, exclusive):
    daemon = start(DAEMON.replace("EXCLUSIVE", str(exclusive).lower()))
    for name in ("alone", "other"):
        daemon.wait_for(lambda one=name: len(daemon.runs(workload=one, outcome="ok")) > 1)

    def met() -> "list[str]":
        return [run["run_id"] for run in daemon.runs() if "overlapped" in run["quality"]]

    if exclusive:
        assert met() == []
    else:
        daemon.wait_for(met)


def test_window_of_an_application_cannot_be_exclusive():
    window = {"name": "w", "backend": "window", "exclusive": True}
    with pytest.raises(ValidationError, match="exclusive: an application"):
        Config.model_validate({"workloads": [window]})
