"""What a bench found: one record, written as ``result.json``; table and page are made of it."""

from typing import Literal

from pydantic import NonNegativeFloat, NonNegativeInt, PositiveInt

from ...parsers.inference.events import Process, StageName
from ...parsers.inference.placement import Built, Fallback, PlacementVerdict, Precision
from ...parsers.records import Ratio, Record
from ..measure.run_report import Device, Distribution, Environment, Interval, RunReport
from ..settings.config import BackendName
from .contention_result import Contention
from .measured import BenchFlag, Figure, Status

# Raised whenever a key changes its meaning or goes; new keys may come at any time.
SCHEMA_VERSION: Literal[1] = 1

GoalName = Literal["latency", "throughput", "energy", "gpu_freed"]


class ClockRange(Record):
    """A clock over all rounds of an accelerator.

    Attributes:
        lowest_hertz: Lowest.
        highest_hertz: Highest.
    """

    lowest_hertz: NonNegativeFloat
    highest_hertz: NonNegativeFloat


class OutputCheck(Record):
    """An accelerator's outputs, held against ONNX Runtime on the CPU, on the same inputs.

    Attributes:
        verdict: ``reference`` is what the others are held against.
        reason: Why, for ``wrong`` and ``unchecked``.
        relative_error: Norm of the difference over norm of the reference, of the worst output.
        largest_error: Largest difference of two elements.
        top1_agreement: Share of inputs of which both name the same class; ``None`` where the
            outputs are no classes.
        limit: The relative error from which on the outputs are wrong.
    """

    verdict: Literal["good", "wrong", "unchecked", "reference"]
    reason: str | None = None
    relative_error: NonNegativeFloat | None = None
    largest_error: NonNegativeFloat | None = None
    top1_agreement: Ratio | None = None
    limit: NonNegativeFloat | None = None


class AcceleratorResult(Record):
    """One model on one accelerator: all of its rounds together.

    Attributes:
        device: The accelerator.
        backend: The engine that ran the model.
        status: ``ok``, or why there are no figures.
        reason: One line, for every status but ``ok``.
        outputs: Whether its answers are right.
        nsys_report: File of Nsight Systems beside this result: of a pass of its own, of which
            no figure is taken.
        nsys_problem: Why there is none, where one was asked for.
        built: What was made of the model.
        cold_start_seconds: Parts of the cold start.
        process_peak_bytes: Peak resident memory of the worker.
        device_peak_bytes: Its peak device memory, where the engine can tell.
        latency: By the host clock, of the inferences of all rounds that count.
        device_latency: By the device's own events, where the engine tells.
        stages: The same of each stage, where the engine tells.
        latency_seconds: Median latency: the mean of the rounds' medians.
        throughput_per_second: Inputs a second.
        gross_joules_per_inference: All that the module drew, by inference.
        net_joules_per_inference: The same less what it draws with the model loaded and idle.
        counter_joules_per_inference: As gross, by the rails' own energy counters, where they
            have them: another instrument, to compare with.
        mean_watts: Mean power of the module while it worked.
        utilization: Mean load by signal: ``gpu``, ``emc``, ``cpu``, ``dla0:tegrastats`` ….
        clocks: Range of each clock in the second halves of its rounds: ``gpu``, ``emc`` ….
        dla_active: Share of the time in which a DLA core was powered, by core.
        gpu_freed: GPU load of this model on the GPU less that on this accelerator, as a ratio.
        hottest_zone: The zone that became hottest.
        hottest_celsius: How hot it became.
        variation: Standard deviation of the time of an inference over its mean; of the
            device's time where the engine tells it, else by the host clock.
        rounds: How many count.
        is_steady: Whether the rounds that count agree.
        unsettled_rounds: Of these, how many had not settled at their end by the rule for runs: a
            board warms in every round, so that is no flag of the bench.
        flags: Flag to the number of counted rounds that bear it; ``not_steady`` is that the
            rounds do not agree.
    """

    device: Device
    backend: BackendName
    status: Status
    reason: str | None = None
    outputs: OutputCheck | None = None
    nsys_report: str | None = None
    nsys_problem: str | None = None
    built: Built | None = None
    cold_start_seconds: dict[str, NonNegativeFloat] = {}
    process_peak_bytes: NonNegativeInt | None = None
    device_peak_bytes: NonNegativeInt | None = None
    latency: Distribution | None = None
    device_latency: Distribution | None = None
    stages: dict[StageName, Distribution] = {}
    latency_seconds: Figure | None = None
    throughput_per_second: Figure | None = None
    gross_joules_per_inference: Figure | None = None
    net_joules_per_inference: Figure | None = None
    counter_joules_per_inference: Figure | None = None
    mean_watts: Figure | None = None
    utilization: dict[str, Figure] = {}
    clocks: dict[str, ClockRange] = {}
    dla_active: dict[str, Ratio] = {}
    gpu_freed: Figure | None = None
    hottest_zone: str | None = None
    hottest_celsius: float | None = None
    variation: NonNegativeFloat | None = None
    rounds: NonNegativeInt = 0
    is_steady: bool | None = None
    unsettled_rounds: NonNegativeInt = 0
    flags: dict[BenchFlag, PositiveInt] = {}

    @property
    def placement(self) -> PlacementVerdict | None:
        """Where the layers went; ``None`` where nothing was built."""
        return None if self.built is None else self.built.placement.verdict

    @property
    def may_win(self) -> bool:
        """Whether its figures may be headlined: it ran to its end and does not answer wrongly."""
        return self.status == "ok" and "wrong_outputs" not in self.flags


class GoalResult(Record):
    """Who is best at one goal.

    Attributes:
        goal: ``latency``, ``throughput``, ``energy`` (net, by inference) or ``gpu_freed``.
        winner: The accelerator; ``None`` where this measurement does not tell.
        runner_up: The one it was held against.
        difference: Runner-up less winner in the goal's unit; ``None`` where nothing was compared.
        interval: 95 % interval of that difference.
        sentence: The same in words.
    """

    goal: GoalName
    winner: Device | None = None
    runner_up: Device | None = None
    difference: float | None = None
    interval: Interval | None = None
    sentence: str


class Check(Record):
    """Something that a reader of the figures should know.

    Attributes:
        name: Of the check.
        device: Whose figures; ``None`` for all.
        sentence: What is so, with the number.
        mend: What to do about it.
    """

    name: str
    device: Device | None = None
    sentence: str
    mend: str


class ModelResult(Record):
    """One model on all accelerators.

    Attributes:
        model: As given.
        model_sha256: Digest of the file that ran.
        order: Accelerators in the order in which they were measured.
        accelerators: What was found of each, in the order asked for.
        goals: Who is best at what.
        checks: What a reader should know of the figures.
        counted: Runs that count.
        rounds: Every measured round whole, in the order of time.
    """

    model: str
    model_sha256: str | None = None
    order: tuple[Device, ...] = ()
    accelerators: tuple[AcceleratorResult, ...] = ()
    goals: tuple[GoalResult, ...] = ()
    checks: tuple[Check, ...] = ()
    counted: tuple[str, ...] = ()
    rounds: tuple[RunReport, ...] = ()


class BenchSettings(Record):
    """How the bench was asked to measure.

    Attributes:
        models: As given.
        devices: Accelerators asked for by name; ``None`` where the machine was to tell.
        backend: Of all accelerators; ``None`` takes what suits each.
        precision: To build in; ``None`` leaves it to the back-end.
        batch: Inputs an inference.
        streams: Inferences in flight at once.
        cuda_graph: Whether inferences are launched as a CUDA graph where that can be.
        transfers: Whether inputs and outputs are copied with each inference.
        optimization_level: How hard TensorRT tries; ``None`` leaves it to TensorRT.
        fallback: For layers that a DLA refuses.
        process: How workers share the machine with others.
        nsys: Whether a further pass is watched by Nsight Systems.
        contention: Whether models are measured together, too.
        duration_seconds: Length of the steady phase of a round.
        baseline_seconds: Idle time before and after it.
        warm_up_seconds: Before anything counts.
        rounds: Of each accelerator, at least.
        telemetry: Name of the source; ``None`` for none.
        is_simulated: Whether the CPU plays the accelerators of a simulated board.
    """

    models: tuple[str, ...]
    devices: tuple[Device, ...] | None = None
    backend: BackendName | None = None
    precision: Precision | None = None
    batch: PositiveInt = 1
    streams: PositiveInt = 1
    cuda_graph: bool = True
    transfers: bool = True
    optimization_level: NonNegativeInt | None = None
    fallback: Fallback = "allow"
    process: Process = Process()
    nsys: bool = False
    contention: bool = False
    duration_seconds: NonNegativeFloat
    baseline_seconds: NonNegativeFloat
    warm_up_seconds: NonNegativeFloat
    rounds: PositiveInt
    telemetry: str | None = None
    is_simulated: bool = False


class BenchResult(Record):
    """All that a bench found.

    Attributes:
        schema_version: Of this document.
        tegrascope: Version that wrote it.
        started_wall_ns: When it began.
        ended_wall_ns: When it was over.
        is_partial: Whether it was interrupted.
        is_simulated: Whether anything about it is not real.
        settings: What was asked for.
        environment: Where it ran.
        background: Load of ``cpu`` and ``gpu`` before anything of the bench ran.
        checks: What a reader should know of the machine.
        telemetry_problem: Why there is no energy, where there is none.
        models: In the order given.
        contention: What they do to each other; ``None`` where that was not asked for.
    """

    schema_version: Literal[1] = SCHEMA_VERSION
    tegrascope: str
    started_wall_ns: NonNegativeInt
    ended_wall_ns: NonNegativeInt
    is_partial: bool = False
    is_simulated: bool = False
    settings: BenchSettings
    environment: Environment = Environment()
    background: dict[str, Ratio] = {}
    checks: tuple[Check, ...] = ()
    telemetry_problem: str | None = None
    models: tuple[ModelResult, ...] = ()
    contention: Contention | None = None
