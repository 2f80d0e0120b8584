"""One run in flight: the events of its worker, and its effect on the simulated board."""

from dataclasses import dataclass

from ...parsers.inference.events import Counted, Inferences, Order, Phase, RunEvent
from ..measure.run_report import RunReport
from ..measure.run_trace import RunTrace
from ..settings.config import Workload
from .executor import Verdict
from .session import Session

_WORKING = ("warm_up", "steady")


@dataclass(frozen=True)
class Job:
    """One run to start; ``due_ns`` is ``None`` on demand."""

    run_id: str
    workload: Workload
    due_ns: int | None


def begin_trace(job: Job, session: Session) -> RunTrace:
    """Return the trace of a run that starts now."""
    started_ns = session.clock.monotonic_ns()
    workload = job.workload
    return RunTrace(
        run_id=job.run_id,
        workload=workload.name,
        backend=workload.backend_in_force,
        device=workload.device,
        started_ns=started_ns,
        started_wall_ns=session.clock.wall_ns(),
        model=workload.model,
        batch=workload.batch,
        process=workload.process,
        lateness_seconds=None if job.due_ns is None else max(0, started_ns - job.due_ns) / 1e9,
    )


class InFlightRun:
    """One run, from its order to its end; belongs to the thread of its device."""

    def __init__(self, session: Session, job: Job, worker_name: str = "") -> None:
        """Record the begin; ``worker_name`` is for a device that has several workers."""
        self._session = session
        self._worker_name = worker_name
        self._suspended_ns = session.suspended_ns()
        self.trace = begin_trace(job, session)
        session.times.set_in_flight(job.run_id, self.trace.device, self.trace.started_ns)

    def take(self, event: RunEvent) -> None:
        """Add one event of the worker."""
        trace, session = self.trace, self._session
        if not trace.add(event):
            return
        if isinstance(event, Phase):
            if event.phase in _WORKING:
                load = float(event.edge == "begin")
                session.load.set(trace.device, load, event.at_ns, self._worker_name)
            if event.phase == "steady" and event.edge == "begin":
                session.times.set_window(trace.run_id, event.at_ns)
        elif isinstance(event, Inferences):
            session.ledger.inferred(trace.workload, event, session.clock.wall_ns() / 1e9)
        elif isinstance(event, Counted) and event.inferences:
            wall_seconds = session.clock.wall_ns() / 1e9
            session.ledger.counted(trace.workload, event.run_id, event.inferences, (), wall_seconds)

    def end(self) -> None:
        """Record the end of the run: from now on it draws no power."""
        trace, session = self.trace, self._session
        trace.ended_ns = session.clock.monotonic_ns()
        trace.suspended_ns = session.suspended_ns() - self._suspended_ns
        session.load.set(trace.device, 0.0, trace.ended_ns, self._worker_name)
        session.times.set_in_flight(trace.run_id, trace.device, trace.started_ns, trace.ended_ns)
        steady = trace.phases.get("steady")
        if steady is not None:
            session.times.set_window(trace.run_id, steady.begin_ns, steady.end_ns)
        else:
            session.times.drop_window(trace.run_id)

    def pair(self, verdict: Verdict) -> RunReport:
        """Return the report of the run, paired with the telemetry of its window."""
        return self._session.pair(self.trace, verdict)


def make_order(job: Job, session: Session) -> Order:
    """Return the worker's order for a job."""
    workload = job.workload
    return Order(
        run_id=job.run_id,
        backend=workload.backend_in_force,
        device=workload.device,
        model=workload.model or "",
        model_directory=str(session.model_directory.absolute()),
        batch=workload.batch,
        threads=workload.threads,
        precision=workload.precision,
        optimization_level=workload.optimization_level,
        fallback=workload.fallback,
        streams=workload.streams,
        cuda_graph=workload.cuda_graph,
        transfers=workload.transfers,
        process=workload.process,
        engine_directory=str(session.engine_directory.absolute()),
        program=workload.command or (() if workload.trtexec is None else (workload.trtexec,)),
        warm_up_seconds=workload.warm_up,
        baseline_seconds=workload.baseline,
        duration_seconds=workload.steady_seconds,
        count=workload.count,
    )
