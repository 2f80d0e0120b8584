"""The bench itself: each model is looked at on every accelerator, then measured in turns."""

import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..collectors.base import Clock
from ..parsers.run_events import RunEvent
from .bench_outputs import check_outputs
from .bench_plan import Plan, agree, passes
from .bench_progress import Teller
from .bench_result import BenchSettings, ModelResult, OutputCheck, Status
from .bench_stand import Stand
from .bench_summary import Entry, Round, clock_ranges, summarise
from .bench_workload import LOOK_SECONDS, look, reference_of, workload_of
from .config import Workload
from .flight import Flight, Job, make_order
from .identity import new_run_id
from .lanes import Lane, Verdict
from .run_report import Device, RunReport

# Where the machine is to tell, these are tried, and the CPU where it has neither.
TRIED: tuple[Device, ...] = ("gpu", "dla0")
LAST_RESORT: Device = "cpu"
_INTERRUPTED = Verdict("cancelled", "the bench was interrupted")


@dataclass
class _Look:
    """What the first inference on an accelerator showed.

    Attributes:
        workload: What a round of it is.
        report: Of that first run.
        status: Whether it can be measured.
        outputs: Whether its answers are right.
    """

    workload: Workload
    report: RunReport
    status: Status
    outputs: OutputCheck | None = None


@dataclass
class _Model:
    """One model while it is measured.

    Attributes:
        looks: By accelerator, in the order asked for.
        rounds: Of all accelerators, in the order of time.
    """

    looks: dict[Device, _Look] = field(default_factory=dict)
    rounds: list[Round] = field(default_factory=list)

    def of(self, device: Device) -> list[Round]:
        return [one for one in self.rounds if one.report.device == device]


class Bench:
    """Runs models on accelerators, by the daemon's own lanes, flights and pairing."""

    def __init__(
        self,
        settings: BenchSettings,
        stand: Stand,
        teller: Teller,
        *,
        lane_cwd: Path | None = None,
        make_lane: Callable[..., Lane] = Lane,
    ) -> None:
        """Prepare.

        Args:
            settings: What to measure.
            stand: The telemetry, started.
            teller: Who is told how it goes on.
            lane_cwd: Where workers run.
            make_lane: Device to the lane of its worker.
        """
        self._settings = settings
        self._plan = Plan.of(settings.rounds)
        self._stand = stand
        self._teller = teller
        self._clock: Clock = stand.surroundings.clock
        self._cwd = lane_cwd
        self._make_lane = make_lane
        self._lanes: dict[str, Lane] = {}
        self._lock = threading.Lock()
        self._cancelled = False

    @property
    def was_cancelled(self) -> bool:
        """Whether it was ended before it was done."""
        return self._cancelled

    def cancel(self) -> None:
        """End the run in flight and all that follow; from any thread but that of ``run``."""
        self._stand.stopping.set()
        with self._lock:
            self._cancelled = True
            lanes = list(self._lanes.values())
        for lane in lanes:
            lane.cancel()

    def close(self) -> None:
        """End all workers."""
        with self._lock:
            lanes, self._lanes = list(self._lanes.values()), {}
        for lane in lanes:
            lane.close()

    def run(self, model: str) -> ModelResult:
        """Look at a model on every accelerator, and measure where it runs."""
        state = _Model()
        with tempfile.TemporaryDirectory(prefix="tegrascope-bench-") as directory:
            self._look_at(model, state, Path(directory))
        ready = [device for device, seen in state.looks.items() if seen.status == "ok"]
        order = self._measure(state, ready)
        entries = [self._entry(state, device) for device in state.looks]
        return summarise(model, entries, [one.report for one in state.rounds], order)

    def _look_at(self, model: str, state: _Model, directory: Path) -> None:
        """Run one inference on each accelerator, and hold what it answers against the CPU's."""
        asked = self._settings.devices
        reference = directory / "reference.npz"
        self._teller.say(f"{model}: reference answers by ONNX Runtime on the CPU")
        missing = self._make_reference(model, reference)
        for device in asked or TRIED:
            state.looks[device] = self._look(model, device, reference, missing, directory)
        if asked is None and all(one.status == "unavailable" for one in state.looks.values()):
            device = LAST_RESORT
            state.looks[device] = self._look(model, device, reference, missing, directory)

    def _make_reference(self, model: str, path: Path) -> str | None:
        """Have the reference written; return why there is none, if so."""
        report, verdict, _ = self._fly(
            reference_of(self._settings, model), "reference", LOOK_SECONDS, path
        )
        # It has done its work, and would be in the way of those that are measured.
        with self._lock:
            lane = self._lanes.pop("reference", None)
        if lane is not None:
            lane.close()
        return None if verdict.outcome == "ok" else report.reason

    def _look(
        self, model: str, device: Device, reference: Path, missing: str | None, directory: Path
    ) -> _Look:
        workload = workload_of(self._settings, model, device)
        self._teller.say(f"{model} on {device}: {workload.engine} loads or builds it")
        outputs = directory / f"{device}.npz"
        report, verdict, _ = self._fly(look(workload), device, LOOK_SECONDS, outputs)
        status = _status(verdict)
        if status != "ok":
            self._teller.say(f"{model} on {device}: {report.reason}")
            return _Look(workload, report, status)
        if missing is not None:
            return _Look(workload, report, status, OutputCheck(verdict="unchecked", reason=missing))
        check = check_outputs(reference, outputs, report.built)
        is_reference = workload.engine == "onnxruntime" and not self._settings.is_simulated
        if is_reference and check.verdict == "good":
            check = OutputCheck(verdict="reference")
        return _Look(workload, report, status, check)

    def _measure(self, state: _Model, ready: Sequence[Device]) -> tuple[Device, ...]:
        """Measure in turns until the rounds agree; return the order in which that was done."""
        done: list[Device] = []
        steady = False
        left = list(ready)
        for number, turn in enumerate(passes(ready)):
            if not left or self._cancelled or not self._plan.goes_on(number, steady):
                break
            for device in turn:
                if device not in left or self._cancelled:
                    continue
                planned = self._plan.least if number < self._plan.least else self._plan.most
                self._teller.begin_round(
                    device, number + 1, planned, self._seconds_left(number, planned, left, device)
                )
                if not self._measure_round(state, device):
                    left.remove(device)
                done.append(device)
            steady = all(agree([one.report for one in state.of(device)]) for device in left)
        return tuple(done)

    def _measure_round(self, state: _Model, device: Device) -> bool:
        """Measure one round; return whether the accelerator may have another."""
        seen = state.looks[device]
        report, verdict, flight = self._fly(
            seen.workload, device, seen.workload.timeout_seconds, None
        )
        state.rounds.append(self._round(report, flight))
        status = _status(verdict)
        if status != "ok":
            seen.status, seen.report = (
                status,
                seen.report.model_copy(update={"reason": report.reason}),
            )
        self._teller.end_round(report)
        return status == "ok"

    def _round(self, report: RunReport, flight: Flight) -> Round:
        trace, window = flight.trace, report.phases.get("steady")
        if window is None:
            return Round(report)
        return Round(
            report,
            trace.completed(window)[1],
            trace.device_ns(),
            trace.stages_ns,
            clock_ranges(self._stand.cut(window.begin_ns, window.end_ns), window),
        )

    def _seconds_left(
        self, number: int, planned: int, left: Sequence[Device], device: Device
    ) -> float:
        settings = self._settings
        each = settings.warm_up_seconds + 2 * settings.baseline_seconds + settings.duration_seconds
        turn = list(left) if number % 2 == 0 else list(left)[::-1]
        return each * ((planned - number - 1) * len(left) + len(turn) - turn.index(device))

    def _fly(
        self, workload: Workload, lane_name: str, deadline_seconds: float, outputs: Path | None
    ) -> tuple[RunReport, Verdict, Flight]:
        """Carry out one run as the daemon does, from its order to its report."""
        around = self._stand.surroundings
        job = Job(new_run_id(), workload, None)
        flight = Flight(around, job)
        lane = self._lane(lane_name)
        if lane is None:
            flight.land()
            return flight.report(_INTERRUPTED), _INTERRUPTED, flight
        order = make_order(job, around.model_directory, around.engine_directory)
        if outputs is not None:
            order = order.model_copy(update={"outputs_file": str(outputs)})

        def take(event: RunEvent) -> None:
            flight.take(event)
            self._teller.heard(event)

        verdict = lane.run(order, deadline_seconds, take)
        flight.land()
        if verdict.outcome == "cancelled":
            verdict = _INTERRUPTED
        elif outputs is None:
            flight.await_telemetry()
        return flight.report(verdict), verdict, flight

    def _lane(self, name: str) -> Lane | None:
        """Return the lane of a device, or of the reference; ``None`` where the bench is over."""
        with self._lock:
            if self._cancelled:
                return None
            if name not in self._lanes:
                self._lanes[name] = self._make_lane(name, cwd=self._cwd, clock=self._clock)
            return self._lanes[name]

    def _entry(self, state: _Model, device: Device) -> Entry:
        seen = state.looks[device]
        good = [one for one in state.of(device) if one.report.outcome == "ok"]
        counted = good[-self._plan.least :]
        return Entry(
            device=device,
            backend=seen.workload.engine,
            status=seen.status,
            look=seen.report,
            outputs=seen.outputs,
            rounds=counted,
            is_steady=agree([one.report for one in counted]),
        )


def _status(verdict: Verdict) -> Status:
    if verdict.outcome == "ok" or verdict.outcome == "cancelled":
        return verdict.outcome
    return "unavailable" if verdict.unavailable else "failed"
