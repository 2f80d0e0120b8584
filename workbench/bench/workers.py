"""The workers of a benchmark, its telemetry, and each run, as the daemon carries it out."""

import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ...collectors.base import SYSTEM_CLOCK, LineSource
from ...collectors.board.boards import read_power_mode
from ...collectors.board.machine import cpu_busy_ratio
from ...collectors.board.power import PowerClient
from ...collectors.board.readers import clocks_locked
from ...collectors.lines.program import ProcessSource, SocketSource
from ...collectors.models.data_sets import input_files
from ...collectors.models.files import external_files, find_model
from ...collectors.models.rounded import write_rounded
from ...collectors.paths import is_directory
from ...collectors.worker.outputs import (
    OutputCheck,
    check_outputs,
    count_right,
    precision_of,
    read_labels,
    read_outputs,
)
from ...daemon.measure.report import Accelerator, Device, RunReport, Span
from ...daemon.measure.timeline import Timeline
from ...daemon.measure.trace import Pattern, RunTrace
from ...daemon.measure.utilization import telemetry as describe
from ...daemon.session.executor import Executor
from ...daemon.session.session import InFlightRun, Job, Session, make_order
from ...daemon.session.telemetry import environment_of
from ...daemon.settings.config import Telemetry, Workload
from ...parsers.errors import UserError
from ...parsers.inference.calibration import Preprocess
from ...parsers.inference.events import RunEvent
from ..results.records import BenchSettings, Status
from ..results.summary import Measured
from .settings import (
    LOOK_SECONDS,
    REFERENCE,
    Asked,
    absolute,
    accelerators_of,
    reference_of,
    shortened,
    workload_of,
)
from .tasks import (
    Boxes,
    ModelTask,
    detections,
    judge,
    mean_precision,
    read_boxes,
    task_of,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

_FIRST_SAMPLE_SECONDS = 20.0
# A benchmark may take hours, and its figure shows all of it.
_SPAN_SECONDS = 48 * 3600.0


class Setup:
    """The telemetry of a benchmark, by the same parts as the daemon's; ``stopping`` ends a wait."""

    def __init__(
        self,
        asked: Asked,
        state_dir: Path,
        *,
        first_sample_seconds: float = _FIRST_SAMPLE_SECONDS,
    ) -> None:
        """Prepare; ``problem`` becomes the reason for missing telemetry.

        After ``first_sample_seconds`` without a sample the benchmark continues without telemetry.
        """
        self.problem = asked.why_no_telemetry
        self.stopping = threading.Event()
        self._asked = asked
        self._first_sample_seconds = first_sample_seconds
        self._source: LineSource | None = None
        self._power: PowerClient | None = None
        self.session = Session(
            clock=SYSTEM_CLOCK,
            environment=environment_of(
                asked.telemetry,
                board=None if asked.rule is None else asked.rule.name,
                simulated=asked.settings.is_simulated,
            ),
            timeline=Timeline(span_seconds=_SPAN_SECONDS),
            model_directory=state_dir / "models",
            engine_directory=state_dir / "engines",
        )

    def start(self) -> None:
        """Open the source and wait for its first sample; without one, set ``problem``."""
        if self._asked.telemetry is not None:
            self._open(self._asked.telemetry)

    @property
    def unit_interval(self) -> float | None:
        """The interval in seconds that root's unit sets, if it prints the lines."""
        source = self._source
        if isinstance(source, SocketSource) and source.is_privileged:
            return source.socket_interval_seconds
        return None

    def begin_pass(self, number: int) -> None:
        """Sample a pass of rounds with an interval of its own, so that no lock to it lasts.

        Only a program that we start can have one, and only if the interval is not configured.
        """
        telemetry, source = self._asked.telemetry, self._source
        if telemetry is None or not self._asked.varies_interval or self.problem is not None:
            return
        if self.unit_interval is not None:
            return
        intervals = self._asked.intervals
        interval = intervals[number % len(intervals)]
        if isinstance(source, ProcessSource) and source.interval_seconds != interval:
            self._open(telemetry.model_copy(update={"interval": interval}))

    def set_mode(self, mode: str) -> None:
        """Set a power mode by the unit of root, or raise ``UserError``; ``close`` restores it."""
        if self._power is None:
            self._power = PowerClient()
        self._describe(self._power.ask(f"mode {mode}")["name"])

    def close(self) -> None:
        """Restore the power mode that was found."""
        if self._power is not None:
            self._power.close()
            self._describe(read_power_mode(Path("/")))

    def _describe(self, mode: str | None) -> None:
        self.session.live.describe(power_mode=mode, clocks_locked=clocks_locked(Path("/")))

    def _open(self, telemetry: Telemetry) -> None:
        session, seconds = self.session, self._first_sample_seconds
        try:
            self._source = session.open(telemetry, self._asked.rule)
        except UserError as error:
            self.problem = str(error)
            return
        opened_ns = SYSTEM_CLOCK.monotonic_ns()
        session.start()
        if not session.await_first_sample(seconds, self.stopping.is_set, opened_ns):
            self.problem = session.why() or f"{self._source.name}: no sample in {seconds:g} s"
            session.stop()

    def background(self, seconds: float) -> dict[str, float]:
        """Return the load of ``cpu``, by the kernel, and of ``gpu``, by telemetry, if known."""
        begin_ns = SYSTEM_CLOCK.monotonic_ns()
        loads = {"cpu": cpu_busy_ratio(seconds, self.stopping)}
        end_ns = SYSTEM_CLOCK.monotonic_ns()
        cut = self.session.timeline.cut(begin_ns, end_ns)
        if cut.times_ns and end_ns > begin_ns:
            seen = describe(cut, Span(begin_ns=begin_ns, end_ns=end_ns)).utilization.get("gpu")
            loads["gpu"] = None if seen is None else seen.mean_ratio
        return {name: ratio for name, ratio in loads.items() if ratio is not None}


class FinishedRun(NamedTuple):
    """One run that is over: its report paired with telemetry, and the events of its worker."""

    report: RunReport
    trace: RunTrace
    status: Status


@dataclass
class Workers:
    """A worker for each name, started when it is first needed.

    ``run_together``, ``end`` and ``close`` belong to one thread, ``cancel`` to any other; ``run``
    may be called by several threads at once, each with a worker of its own. ``heard`` is called
    with each event of a run.
    """

    session: Session
    heard: Callable[[RunEvent], None]
    cwd: Path | None = None
    make_executor: Callable[..., Executor] = Executor
    was_cancelled: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._executors: dict[str, Executor] = {}
        self._lock = threading.Lock()

    def cancel(self) -> None:
        """End the runs in flight, and start no other."""
        with self._lock:
            self.was_cancelled = True
            executors = list(self._executors.values())
        for executor in executors:
            executor.cancel()

    def end(self, name: str) -> None:
        """End one worker, if it exists."""
        executor = self._executors.get(name)
        if executor is not None:
            executor.close()
            with self._lock:
                del self._executors[name]

    def close(self) -> None:
        """End all workers."""
        for name in list(self._executors):
            self.end(name)

    def run(
        self,
        workload: Workload,
        name: str,
        timeout_seconds: float,
        outputs: Path | None = None,
        inputs: str | None = None,
        *,
        pattern: Pattern | None = None,
        profile: Path | None = None,
    ) -> FinishedRun:
        """Carry out one run on the worker of this name, from its order to its report.

        After the timeout the worker is killed. A run that writes ``outputs``, of a data set if
        ``inputs`` names one, does not wait for its last sample. ``pattern`` has the off- and
        on-steps of a lock-in measurement. After the run, a pass that times each layer writes
        ``profile``.
        """
        job = Job(workload)
        executor = self._executor(name)
        tell = None if executor is None else executor.tell
        in_flight = InFlightRun(self.session, job, name, tell)
        order = make_order(job, self.session)
        if pattern is not None:
            in_flight.trace.pattern = pattern
            steps, stage, repeats = pattern.steps_seconds, pattern.stage, pattern.repeats
            changes = {"steps_seconds": steps, "stage": stage, "repeats": repeats}
            order = order.model_copy(update=changes)
        if outputs is not None:
            data = {"inputs_file": inputs and absolute(inputs), "outputs_file": str(outputs)}
            order = order.model_copy(update=data)
        if profile is not None:
            order = order.model_copy(update={"profile_file": str(profile)})

        def take(event: RunEvent) -> None:
            in_flight.take(event)
            self.heard(event)

        if executor is not None:
            executor.run(order, timeout_seconds, take)
        in_flight.end()
        trace = in_flight.trace
        if executor is None or trace.outcome == "cancelled":
            trace.finish("cancelled", "the benchmark was interrupted")
        elif outputs is None:
            self.session.await_telemetry(trace)
        status: Status = "failed"
        if trace.outcome == "ok" or trace.outcome == "cancelled":
            status = trace.outcome
        elif trace.skip_reason == "unavailable":
            status = "unavailable"
        return FinishedRun(in_flight.pair(), trace, status)

    def run_together(
        self, runs: Sequence[tuple[Workload, str]], timeout_seconds: float
    ) -> list[FinishedRun]:
        """Carry out runs at once, each on a worker and in a thread of its own."""
        start = threading.Barrier(len(runs))

        def run(one: tuple[Workload, str]) -> FinishedRun:
            start.wait()
            return self.run(*one, timeout_seconds)

        with ThreadPoolExecutor(len(runs), "worker") as threads:
            return list(threads.map(run, runs))

    def _executor(self, name: str) -> Executor | None:
        with self._lock:
            if self.was_cancelled:
                return None
            if name not in self._executors:
                self._executors[name] = self.make_executor(
                    name, cwd=self.cwd, clock=self.session.clock
                )
            return self._executors[name]


# --- the first run, which checks outputs ----------------------------------------------------------

# Tried if the machine has none of ``TRIED``.
LAST_RESORT: tuple[Device, ...] = ("cpu",)
_REFERENCE = "reference"
# A detector with less, of 1, cannot be told from one that finds nothing.
_LEAST_PRECISION = 0.01


class Reference(NamedTuple):
    """Outputs of a model as it was given, by ONNX Runtime on the CPU, in a scratch directory.

    ``labels`` are the right classes of the inputs of a data set, or ``truth`` the boxes in them.
    """

    directory: Path
    made: FinishedRun
    labels: "NDArray[Any] | None" = None
    task: ModelTask | None = None
    truth: Sequence[Boxes] | None = None

    @property
    def file(self) -> Path:
        """The archive of its outputs; absent if it did not run."""
        return self.directory / "reference.npz"

    @property
    def rounded(self) -> Path:
        """The archive of its outputs with rounded weights; absent if that did not run."""
        return self.directory / "rounded.npz"


@contextmanager
def make_reference(
    model: str, settings: BenchSettings, workers: Workers, say: Callable[[str], None]
) -> Iterator[Reference | None]:
    """Run the reference once, and delete its outputs at the end; with ``--simulate`` do nothing."""
    if settings.is_simulated:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="tegrascope-bench-") as name:
        outputs, labels = Path(name) / "reference.npz", None
        say(f"{model}: reference outputs by ONNX Runtime on the CPU")
        if settings.labels is not None and not _has_boxes(settings.labels):
            labels = read_labels(Path(settings.labels).expanduser())
        workload = reference_of(settings, model)
        made = workers.run(workload, _REFERENCE, LOOK_SECONDS, outputs, settings.inputs)
        reference = Reference(Path(name), made, labels)
        if made.status == "ok" and settings.inputs is not None:
            path = find_model(absolute(model), workers.session.model_directory)
            reference = _with_task(reference, task_of(path, settings.task), settings)
        if made.status == "ok":
            _run_rounded(absolute(model), workload, reference, workers, settings.inputs)
        # Its worker would hold memory and cores that the measured ones need.
        workers.end(_REFERENCE)
        if labels is not None and made.status == "ok":
            count_right(read_outputs(outputs), labels)  # better refused before an engine is built
        yield reference


def _has_boxes(labels: str) -> bool:
    path = Path(labels).expanduser()
    return is_directory(path) or path.suffix.lower() == ".json"


def _with_task(reference: Reference, task: ModelTask | None, settings: BenchSettings) -> Reference:
    """Return a reference with its task and the true boxes; raise ``UserError`` if they do not fit.

    Better now than after an engine was built.
    """
    if settings.labels is None or not _has_boxes(settings.labels):
        return reference._replace(task=_fitting(task, reference, settings))
    if task is None or task.name != "detect":
        raise UserError(
            "the labels are boxes, and the file does not say that it is a detector",
            "give --task detect",
        )
    how = settings.preprocess or Preprocess()
    shapes = [one for one in reference.made.report.input_shapes.values() if len(one) == 4]
    if not shapes:
        raise UserError("the model takes no image", "leave --labels out")
    height, width = shapes[0][1:3] if how.layout == "NHWC" else shapes[0][2:]
    files = input_files(Path(settings.inputs or "").expanduser())
    truth = read_boxes(Path(settings.labels).expanduser(), files, (width, height), how)
    found = detections(read_outputs(reference.file), task)
    if len(found) != len(truth):
        raise UserError(
            f"{len(truth)} files have labels, and the model has outputs for {len(found)} inputs",
            "give one file per input",
        )
    precision = mean_precision(truth, found)
    if precision is not None and precision[1] < _LEAST_PRECISION:
        # Nothing that another precision computes could be worse than this, so all would be good.
        raise UserError(
            f"in fp32 the model finds none of the labelled objects: mAP at 0.5 is "
            f"{100 * precision[1]:.1f} of 100",
            "check --labels, --preprocess and the model itself: its scores may be cut off",
        )
    return reference._replace(task=task, truth=truth)


def _fitting(
    task: ModelTask | None, reference: Reference, settings: BenchSettings
) -> ModelTask | None:
    """Return the task if the outputs have its form; raise ``UserError`` if it was asked for."""
    if task is None:
        return None
    try:
        outputs = read_outputs(reference.file)
        judge(OutputCheck(verdict="good", relative_error=0.0), outputs, outputs, task, "fp32")
    except UserError:
        if settings.task is not None:
            raise
        return None  # the metadata said it; the channels are judged
    return task


def _run_rounded(
    model: str, workload: Workload, reference: Reference, workers: Workers, inputs: str | None
) -> None:
    """Run the reference with rounded weights; without them, a usual error takes their place."""
    with suppress(OSError, ValueError, UserError):
        path = find_model(model, workers.session.model_directory)
        copy = reference.directory / "rounded.onnx"
        if not external_files(path) and write_rounded(path, copy):
            rounded = workload.model_copy(update={"model": str(copy)})
            workers.run(rounded, _REFERENCE, LOOK_SECONDS, reference.rounded, inputs)


def look_on(
    workload: Workload,
    reference: Reference | None,
    settings: BenchSettings,
    workers: Workers,
    say: Callable[[str], None],
    title: str,
) -> Measured:
    """Run one inference on an accelerator, and check its outputs; without ``reference``, do not."""
    say(f"{title}: {workload.backend_in_force} loads or builds it")
    outputs: Path | None = None
    if reference is not None:
        outputs = reference.directory / f"{workload.name}.npz"
    data, device = settings.inputs, workload.accelerator
    done = workers.run(shortened(workload), device, LOOK_SECONDS, outputs, data)
    report = done.report
    found = Measured(report, done.status, report.reason, report.worker_log)
    if found.status != "ok":
        say(f"{title}: {found.reason}")
        for line in found.log if found.status == "failed" else ():
            say(f"  | {line}")
    elif reference is None or outputs is None:
        pass  # a simulated accelerator computes nothing
    elif reference.made.status != "ok":
        found.outputs = OutputCheck(verdict="unchecked", reason=reference.made.report.reason)
    else:
        found.outputs = check_outputs(
            reference.file,
            outputs,
            done.report.built,
            reference.labels,
            settings.tolerance,
            reference.rounded,
        )
        if reference.task is not None and found.outputs.relative_error is not None:
            expected = read_outputs(reference.file)
            found.outputs = judge(
                found.outputs,
                expected,
                read_outputs(outputs),
                reference.task,
                precision_of(done.report.built, expected),
                truth=reference.truth,
                tolerance=settings.tolerance,
            )
        is_reference = workload.backend_in_force == REFERENCE and workload.head is None
        if is_reference and found.outputs.verdict in ("good", "unjudged"):
            accuracy, score = found.outputs.accuracy, found.outputs.task
            found.outputs = OutputCheck(verdict="reference", accuracy=accuracy, task=score)
    return found


def look_at(
    model: str, settings: BenchSettings, workers: Workers, say: Callable[[str], None]
) -> dict[Accelerator, Measured]:
    """Run one inference of a model on each accelerator, and check its outputs.

    ``say`` is called with a line per step. The result is in the order asked for.
    """
    with make_reference(model, settings, workers, say) as reference:

        def look(device: Accelerator) -> Measured:
            workload = workload_of(settings, model, device)
            return look_on(workload, reference, settings, workers, say, f"{model} on {device}")

        found = {device: look(device) for device in accelerators_of(settings)}
        if settings.devices is None and all(one.status == "unavailable" for one in found.values()):
            found |= {device: look(device) for device in accelerators_of(settings, LAST_RESORT)}
        return found
