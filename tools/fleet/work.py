"""The runs of one simulated device: made-up worker events, paired as in a daemon."""

import hashlib
import random
import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from tegrascope.daemon.measure.report import RunReport
from tegrascope.daemon.session.session import InFlightRun, Job, Session
from tegrascope.parsers.inference.events import (
    Finished,
    Inferences,
    Loaded,
    Phase,
    PhaseName,
    RunEvent,
)
from tegrascope.parsers.inference.placement import Built, Placement

from .plan import DevicePlan, Task

_SLOWER_A_RUN, _SLOWEST = 0.02, 1.6
_KEPT = 20
_WORKING = ("warm_up", "steady")


class Work:
    """The runs of a device, without a thread; ``reports`` has the last ones, newest first."""

    def __init__(self, plan: DevicePlan, session: Session, begin_ns: int) -> None:
        self.reports: deque[RunReport] = deque(maxlen=_KEPT)
        self._plan = plan
        self._session = session
        self._chance = random.Random(f"{plan.seed} runs")
        self._idle = threading.Event()  # never set: a wait only moves the device's clock
        self._start_ns = begin_ns
        self._runs = 0
        self._running: InFlightRun | None = None
        self._ended: InFlightRun | None = None
        self._said: Iterator[tuple[int, RunEvent]] = iter(())
        self._next: tuple[int, RunEvent] | None = None

    def go_on(self, until_ns: int) -> None:
        """Take the worker's events up to a time; begin a run that is due."""
        if self._running is None and self._ended is None and self._start_ns <= until_ns:
            self._session.clock.wait(self._idle, self._start_ns)
            self._begin()
        while self._running is not None and self._next is not None and self._next[0] <= until_ns:
            at_ns, event = self._next
            self._session.clock.wait(self._idle, at_ns)
            self._running.take(event)
            if isinstance(event, Phase):
                self._divert(event)
            self._next = next(self._said, None)
            if self._next is None:
                self._running.end()
                self._ended, self._running = self._running, None

    def report(self) -> None:
        """Pair a run that has ended, once a sample is later than its end."""
        run = self._ended
        if run is None:
            return
        window = run.trace.telemetry_window()
        if window is not None and not self._session.timeline.wait_past(window.end_ns, 0):
            return
        report = run.pair()
        self._session.live.run_ended(report)
        self.reports.appendleft(report)
        self._ended = None
        pause_ns = round(self._plan.pause_seconds * 1e9)
        self._start_ns = self._session.clock.monotonic_ns() + pause_ns

    def _begin(self) -> None:
        plan, clock = self._plan, self._session.clock
        task = plan.tasks[self._runs % len(plan.tasks)]
        slower = 1 + _SLOWER_A_RUN * self._runs if plan.fault == "slow" else 1.0
        conduct = Conduct(
            slower=min(slower, _SLOWEST),
            fails=plan.fault == "flaky" and self._runs % 3 == 1,
            bypasses=plan.fault == "bypassed" and task.workload.device.startswith("dla"),
        )
        job = Job(task.workload, self._start_ns)
        self._running = InFlightRun(self._session, job)
        self._session.live.run_began(
            task.workload.name,
            job.run_id,
            self._running.trace.lateness_seconds,
            clock.wall_ns() / 1e9,
        )
        self._said = events(job.run_id, task, conduct, clock.monotonic_ns(), self._chance)
        self._next = next(self._said)
        self._runs += 1

    def _divert(self, event: Phase) -> None:
        """Put the load of layers that fell back from the DLA on the GPU."""
        assert self._running is not None
        device = self._running.trace.device
        bypasses = self._plan.fault == "bypassed" and device.startswith("dla")
        if bypasses and event.phase in _WORKING:
            works = event.edge == "begin"
            # As the run's own loads, which they replace.
            self._session.load.set(device, 0.1 * works, event.at_ns, device)
            self._session.load.set("gpu", 0.8 * works, event.at_ns, device)


_EVENT_NS = 1_000_000_000
_JITTER = 0.03


@dataclass(frozen=True)
class Conduct:
    """How a run goes: its latency factor, whether it fails, whether it falls back to the GPU."""

    slower: float = 1.0
    fails: bool = False
    bypasses: bool = False


def events(
    run_id: str, task: Task, conduct: Conduct, begin_ns: int, chance: random.Random
) -> Iterator[tuple[int, RunEvent]]:
    """Yield the events of one run in order, each with the time at which the worker prints it."""
    workload = task.workload
    now_ns = begin_ns

    def phase(name: PhaseName, seconds: float) -> Iterator[tuple[int, RunEvent]]:
        nonlocal now_ns
        yield now_ns, Phase(run_id=run_id, phase=name, edge="begin", at_ns=now_ns)
        now_ns += round(seconds * 1e9)
        yield now_ns, Phase(run_id=run_id, phase=name, edge="end", at_ns=now_ns)

    load_seconds = chance.uniform(0.6, 1.4)
    yield from phase("load", load_seconds)
    yield (
        now_ns,
        Loaded(
            run_id=run_id,
            model_sha256=hashlib.sha256(str(workload.model).encode()).hexdigest(),
            cold_start_seconds={
                "load": load_seconds,
                "first_inference": 4 * task.latency_seconds,
            },
            built=_built(task, conduct),
        ),
    )
    yield from phase("warm_up", workload.warm_up)
    yield from phase("baseline_before", workload.baseline)
    yield now_ns, Phase(run_id=run_id, phase="steady", edge="begin", at_ns=now_ns)
    length = workload.steady_seconds or 0.0
    end_ns = now_ns + round(length * 1e9 * (0.4 if conduct.fails else 1.0))
    for event in _inferences(run_id, task.latency_seconds * conduct.slower, now_ns, end_ns, chance):
        now_ns = event.start_ns[-1] + event.latency_ns[-1]
        yield now_ns, event
    if conduct.fails:
        reason = "the engine gave up: CUDA error 700, an illegal address (simulated)"
        yield now_ns, Finished(run_id=run_id, outcome="failed", reason=reason)
        return
    yield now_ns, Phase(run_id=run_id, phase="steady", edge="end", at_ns=now_ns)
    yield from phase("baseline_after", workload.baseline)
    yield now_ns, Finished(run_id=run_id, outcome="ok", process_peak_bytes=640 * 1024**2)


def _inferences(
    run_id: str, latency_seconds: float, begin_ns: int, end_ns: int, chance: random.Random
) -> Iterator[Inferences]:
    """Yield back-to-back inferences, those of one second per event."""
    now_ns = begin_ns
    while now_ns < end_ns:
        starts: list[int] = []
        latencies: list[int] = []
        until_ns = min(end_ns, now_ns + _EVENT_NS)
        while now_ns < until_ns:
            latency = round(latency_seconds * 1e9 * chance.lognormvariate(0.0, _JITTER))
            starts.append(now_ns)
            latencies.append(latency)
            now_ns += latency
        yield Inferences(run_id=run_id, start_ns=tuple(starts), latency_ns=tuple(latencies))


def _built(task: Task, conduct: Conduct) -> Built:
    names = tuple(f"layer-{number}" for number in range(task.layers))
    if not task.workload.device.startswith("dla"):
        placement = Placement(verdict="gpu_only", gpu_layers=names)
    elif conduct.bypasses:
        kept = task.layers // 6
        placement = Placement(
            verdict="mixed",
            loadables=3,
            dla_layers=names[:kept],
            gpu_layers=names[kept:],
            reformat_layers=("reformat-in", "reformat-1", "reformat-2", "reformat-out"),
        )
    else:
        placement = Placement(
            verdict="dla_plus_reformat",
            loadables=1,
            dla_layers=names,
            reformat_layers=("reformat-in", "reformat-out"),
        )
    return Built(requested_precision="fp16", placement=placement, engine_bytes=24 * 1024**2)
