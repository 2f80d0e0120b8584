"""The workers of a bench, and one run on one of them, as the daemon carries it out."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from ...parsers.inference.events import RunEvent
from ..measure.run_report import RunReport
from ..measure.run_trace import RunTrace
from ..session.executor import Lane, Verdict
from ..session.pairing import Flight, Job, Surroundings, make_order
from ..settings.config import Workload
from ..settings.identity import new_run_id
from .measured import Status

_INTERRUPTED = Verdict("cancelled", "the bench was interrupted")


@dataclass(frozen=True)
class Flown:
    """One run that is over.

    Attributes:
        report: Paired with its telemetry.
        trace: What its worker told.
        status: How it ended.
    """

    report: RunReport
    trace: RunTrace
    status: Status


class Lanes:
    """A worker for each accelerator, started when it is first needed.

    ``fly_together``, ``end`` and ``close`` belong to one thread, ``cancel`` to any other; ``fly``
    may go on in several threads at once, each with a worker of its own.
    """

    def __init__(
        self,
        around: Surroundings,
        heard: Callable[[RunEvent], None],
        *,
        cwd: Path | None = None,
        make_lane: Callable[..., Lane] = Lane,
    ) -> None:
        """Prepare; no worker runs yet.

        Args:
            around: What every flight needs.
            heard: Called with each event of a run.
            cwd: Where workers run.
            make_lane: Name to the lane of a worker.
        """
        self._around = around
        self._heard = heard
        self._cwd = cwd
        self._make_lane = make_lane
        self._lanes: dict[str, Lane] = {}
        self._lock = threading.Lock()
        self._cancelled = False

    @property
    def was_cancelled(self) -> bool:
        """Whether no run will be carried out any more."""
        return self._cancelled

    def cancel(self) -> None:
        """End the run in flight, and let none follow."""
        with self._lock:
            self._cancelled = True
            lanes = list(self._lanes.values())
        for lane in lanes:
            lane.cancel()

    def end(self, name: str, patience_seconds: float = 0.0) -> None:
        """End one worker, if there is one.

        Args:
            name: Of the worker.
            patience_seconds: How long it may take to end by itself; 0 ends it at once.
        """
        with self._lock:
            lane = self._lanes.get(name)
        if lane is None:
            return
        if patience_seconds > 0:
            lane.finish(patience_seconds)
        lane.close()
        with self._lock:
            self._lanes.pop(name, None)

    def close(self) -> None:
        """End all workers."""
        for name in list(self._lanes):
            self.end(name)

    def fly(
        self,
        workload: Workload,
        lane_name: str,
        deadline_seconds: float,
        outputs: Path | None = None,
        *,
        program: tuple[str, ...] | None = None,
    ) -> Flown:
        """Carry out one run, from its order to its report.

        Args:
            workload: What to run.
            lane_name: On which worker.
            deadline_seconds: The worker is killed after it.
            outputs: Where it is to write what it answers; such a run is not worth waiting for
                its last sample.
            program: Of the worker, where it has to be started and is not the usual one.
        """
        around = self._around
        job = Job(new_run_id(), workload, None)
        flight = Flight(around, job, lane_name)
        order = make_order(job, around.model_directory, around.engine_directory)
        if outputs is not None:
            order = order.model_copy(update={"outputs_file": str(outputs)})

        def take(event: RunEvent) -> None:
            flight.take(event)
            self._heard(event)

        lane = self._lane(lane_name, program)
        verdict = _INTERRUPTED if lane is None else lane.run(order, deadline_seconds, take)
        flight.land()
        if verdict.outcome == "cancelled":
            verdict = _INTERRUPTED
        elif outputs is None:
            flight.await_telemetry()
        return Flown(flight.report(verdict), flight.trace, _status(verdict))

    def fly_together(
        self, flights: Sequence[tuple[Workload, str]], deadline_seconds: float
    ) -> list[Flown]:
        """Carry out runs at once, each in a thread of its own.

        Args:
            flights: Of each what to run, and on which worker; no two on the same.
            deadline_seconds: Every worker is killed after it.

        Returns:
            One a flight, in their order.
        """
        start = threading.Barrier(len(flights))

        def fly(workload: Workload, lane_name: str) -> Flown:
            start.wait()
            return self.fly(workload, lane_name, deadline_seconds)

        with ThreadPoolExecutor(len(flights), "lane") as threads:
            under_way = [threads.submit(fly, *flight) for flight in flights]
            return [one.result() for one in under_way]

    def _lane(self, name: str, program: tuple[str, ...] | None) -> Lane | None:
        """Return a worker's lane; ``None`` where the bench is over."""
        with self._lock:
            if self._cancelled:
                return None
            if name not in self._lanes:
                usual = {"cwd": self._cwd, "clock": self._around.clock}
                given = usual if program is None else {**usual, "argv": program}
                self._lanes[name] = self._make_lane(name, **given)
            return self._lanes[name]


def _status(verdict: Verdict) -> Status:
    if verdict.outcome == "ok" or verdict.outcome == "cancelled":
        return verdict.outcome
    return "unavailable" if verdict.unavailable else "failed"
