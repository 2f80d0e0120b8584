"""The result of a benchmark as one record, written as ``result.json``."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import NonNegativeFloat, NonNegativeInt, PositiveInt, model_validator

from ...collectors.worker.outputs import OutputCheck
from ...daemon.measure.report import (
    Accelerator,
    Device,
    Distribution,
    Energy,
    Environment,
    Flag,
    Interval,
    LockInReport,
    Possible,
    RunReport,
    Span,
)
from ...daemon.measure.report import Figure as Figure
from ...daemon.settings.config import BackendName
from ...parsers.inference.events import (
    InferenceSettings,
    StageName,
    without_share_of_the_gpu,
)
from ...parsers.inference.layers import EngineLayer
from ...parsers.inference.placement import Built, Memory, PlacementVerdict, Precision
from ...parsers.records import Ratio, Record, without

# Raised whenever a key changes its meaning or goes; new keys may come at any time.
SCHEMA_VERSION: Literal[3] = 3
# Version 2 also had a timeline of Nsight Systems.
READABLE_VERSIONS = (2, SCHEMA_VERSION)

# The files of a model that was cut in two.
BODY, HEAD = "body.onnx", "head.onnx"
Status = Literal["ok", "unavailable", "failed", "cancelled"]
# A flag of the runs, or one of the benchmark's own.
BenchFlag = (
    Flag | Literal["wrong_outputs", "unchecked_outputs", "unjudged_outputs", "meaningless_outputs"]
)
GoalName = Literal["latency", "throughput", "energy", "gpu_freed"]
# Flags with which figures describe something else.
_UNUSABLE: dict[BenchFlag, str] = {
    "wrong_outputs": "its outputs are wrong, so its speed means nothing",
    "dla_not_used": "nothing shows that the DLA worked",
}


class ClockRange(Record):
    """Lowest and highest clock over all rounds on an accelerator."""

    lowest_hertz: NonNegativeFloat
    highest_hertz: NonNegativeFloat


class LayerRow(EngineLayer):
    """A layer of an engine with its time, from inferences that were profiled and count nowhere.

    Attributes:
        place: The device that runs it; ``None`` if that is unknown.
        seconds: Mean of an inference. A subgraph of a DLA has the copies around it.
        share: Share of all time that the profiler reported.
        flops: Operations of its ONNX nodes, as ``inspect`` counts them.
        moved_bytes: Sum over its nodes: the upper bound.
        edge_bytes: Bytes across its edge and of its weights: the lower bound, with all of it fused.
    """

    place: Literal["dla", "gpu", "reformat"] | None = None
    seconds: NonNegativeFloat
    share: Ratio
    flops: NonNegativeInt | None = None
    moved_bytes: NonNegativeInt | None = None
    edge_bytes: NonNegativeInt | None = None


class Forecast(Record):
    """The steady state as it was forecast while the board still warmed up, or why it was not.

    ``rate_per_second`` is of inputs; ``celsius`` is the temperature of the zone.
    """

    after_seconds: NonNegativeFloat
    zone: str | None = None
    celsius: Figure | None = None
    rate_per_second: Figure | None = None
    reason: str | None = None


class Margin(Record):
    """A reading of the steady state and the limit that it must not reach, in one unit.

    ``name`` says which: ``tj, passive trip point``, ``module power, mode MODE_15W``.
    """

    name: str
    value: float
    limit: float
    unit: Literal["°C", "W", "A"]


class Sustained(Record):
    """What holds: a model that works for a long time without a pause.

    Attributes:
        seconds: How long it did.
        zone: The zone that is nearest to its trip point, or else the hottest.
        rate_per_second: Inputs per second in the last fifth, as ``celsius`` of the zone.
        is_settled: Whether both means are within 1 % and 1 °C of those of the fifth before.
        throttled_seconds: When a clock was first held low, by kind, in seconds after the start.
        sentence: The forecast, what became of it, and whether it held.
    """

    seconds: NonNegativeFloat
    zone: str | None = None
    rate_per_second: Figure | None = None
    celsius: Figure | None = None
    is_settled: bool = False
    throttled_seconds: dict[str, NonNegativeFloat] = {}
    margins: tuple[Margin, ...] = ()
    forecast: Forecast | None = None
    sentence: str


class AcceleratorResult(Record):
    """One model on one accelerator: all of its rounds together.

    Attributes:
        latency_seconds: The mean of the rounds' medians.
        counter_joules_per_inference: As gross, by the rails' own energy counters.
        offset_joules_per_inference: What the offset of the sensors may add to the gross energy,
            either way and in each round alike.
        utilization: Mean load by signal: ``gpu``, ``emc``, ``cpu``, ``dla0:tegrastats`` ….
        dla_active: Share of time in which a DLA core was powered, by core.
        lock_in: Energy of an inference by lock-in, if it was asked for; ``lock_in_stages`` of
            each stage.
        sustained: What holds, if it was asked for.
        layers: Time of each layer in the order of the engine, if it was asked for.
        profiled_seconds: All time that the profiler reported, per inference: the sum of ``layers``.
            It is longer than an inference that is not profiled.
        profiled_inferences: Their number.
        gpu_freed: GPU load of this model on the GPU less that on this accelerator, as a ratio.
        log: The worker's last lines, where it failed.
        possible: Share of what the board can do; its ratios and rates are means of the rounds.
        variation: Standard deviation over mean of the time of an inference, by the device's events
            if the back-end reports them.
        short_rounds: Those before ``rounds``, which tell of latency and throughput only.
        unsettled_rounds: How many had not settled at their end. A board warms in every round, so
            this is not a flag.
        flags: By flag, the number of counted rounds; ``not_steady``: the rounds do not agree.
        foreign_dla_processes: Names of the processes that raised ``foreign_dla_activity``.
    """

    device: Accelerator
    backend: BackendName
    status: Status
    reason: str | None = None
    log: tuple[str, ...] = ()
    outputs: OutputCheck | None = None
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
    offset_joules_per_inference: NonNegativeFloat | None = None
    lock_in: LockInReport | None = None
    lock_in_stages: dict[StageName, LockInReport] = {}
    sustained: Sustained | None = None
    layers: tuple[LayerRow, ...] = ()
    profiled_seconds: NonNegativeFloat | None = None
    profiled_inferences: PositiveInt | None = None
    mean_watts: Figure | None = None
    utilization: dict[str, Figure] = {}
    clocks: dict[str, ClockRange] = {}
    dla_active: dict[str, Ratio] = {}
    gpu_freed: Figure | None = None
    possible: Possible | None = None
    hottest_zone: str | None = None
    hottest_celsius: float | None = None
    variation: NonNegativeFloat | None = None
    rounds: NonNegativeInt = 0
    short_rounds: NonNegativeInt = 0
    is_steady: bool | None = None
    unsettled_rounds: NonNegativeInt = 0
    flags: dict[BenchFlag, PositiveInt] = {}
    foreign_dla_processes: tuple[str, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _accept_older_results(cls, given: Any) -> Any:
        return without(given, "nsys_report", "nsys_problem")

    @property
    def placement(self) -> PlacementVerdict | None:
        """Return the verdict on the layers' placement; ``None`` if nothing was built."""
        return None if self.built is None else self.built.placement.verdict

    @property
    def problem(self) -> str | None:
        """Why its figures cannot be compared or chosen; ``None`` if they can."""
        if self.status != "ok":
            return f"{self.status}: {self.reason}"
        if not self.rounds:
            return "it was not measured"
        for flag, words in _UNUSABLE.items():
            if flag in self.flags:
                return words
        return None

    @property
    def may_win(self) -> bool:
        """Whether its figures may be compared: it ran to its end and its outputs are not wrong."""
        return self.status == "ok" and "wrong_outputs" not in self.flags


class GoalResult(Record):
    """The best accelerator at one goal; ``winner`` is ``None`` if this measurement cannot tell.

    ``difference`` is by how much the second best accelerator is worse, in the goal's unit, and so
    not negative: the second less the best, for throughput the best less the second. ``interval`` is
    its 95 % interval, and ``precision_ratio`` half of that over the best figure; with nothing to
    compare with, half the interval of the figure over the figure. ``compared`` names what was
    compared: the two ``figures`` with their intervals, or ``rounds`` with each other, in which
    shared errors cancel. ``sentence`` is the ``verdict`` and its ``grounds``, where there was
    something to compare.
    """

    goal: GoalName
    winner: Accelerator | None = None
    runner_up: Accelerator | None = None
    difference: float | None = None
    interval: Interval | None = None
    precision_ratio: NonNegativeFloat | None = None
    compared: Literal["figures", "rounds"] = "figures"
    sentence: str
    verdict: str | None = None
    grounds: str | None = None


class Caveat(Record):
    """A remark on the figures, with a remedy; ``device`` is ``None`` for all accelerators."""

    name: str
    device: Accelerator | None = None
    sentence: str
    remedy: str


PointOutcome = Literal["front", "dominated", "above_limit", "not_measured"]


class Variant(Record):
    """The settings that a sweep changes."""

    batch: PositiveInt = 1
    streams: PositiveInt = 1
    precision: Precision | None = None
    memory: Memory | None = None
    power_mode: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _accept_older_results(cls, given: Any) -> Any:
        return without_share_of_the_gpu(given)

    def settings(self, base: "BenchSettings") -> "BenchSettings":
        """Return the settings of a bench with this variant alone."""
        return base.model_copy(update={**dict(self), "sweep": {}})


class SweepPoint(Record):
    """One candidate of a sweep: a variant on an accelerator, and its figures.

    Points are named by their place. A ``dominated`` one was surely worse than ``dominated_by``
    after ``dropped_after`` rounds. That is 0 for short looks only, of which its figures are then.
    """

    variant: Variant
    result: AcceleratorResult
    outcome: PointOutcome
    dropped_after: NonNegativeInt | None = None
    dominated_by: NonNegativeInt | None = None


class Sweep(Record):
    """A model with many settings, and those that no other surely beats at all ``goals``.

    ``best`` has for each goal the best point below the limit of latency, and then all that may be
    as good. ``seconds`` is the time of all looks and rounds, ``exhaustive_seconds`` that of all
    rounds for every point that runs.
    """

    goals: tuple[GoalName, ...]
    points: tuple[SweepPoint, ...]
    front: tuple[NonNegativeInt, ...] = ()
    best: dict[GoalName, tuple[NonNegativeInt, ...]] = {}
    seconds: NonNegativeFloat = 0.0
    exhaustive_seconds: NonNegativeFloat = 0.0


class Looks(Record):
    """The looks of a bench that stops when its questions are answered.

    Attributes:
        rule: How the chance of an error is divided among the looks.
        planned: Their number, planned before the first round.
        taken: The look after which the bench stopped; 0 if it was interrupted before the first.
        confidence_ratio: That of each interval, so that all looks together have 95 %.
        until_ratio: Half of an interval over its figure, at which a goal is answered too.
        is_early: Whether it stopped before the last look because all goals were answered.
        answered_seconds: By goal, from the first round to the look that answered it.
        sentence: The same in words.
    """

    rule: Literal["alpha_spending"] = "alpha_spending"
    planned: PositiveInt
    taken: NonNegativeInt
    confidence_ratio: Ratio
    until_ratio: Ratio
    is_early: bool
    answered_seconds: dict[GoalName, NonNegativeFloat] = {}
    sentence: str


class ModelResult(Record):
    """One model on all accelerators; every measured round is included, in the order of time.

    A sweep has its points in ``sweep``, and neither ``accelerators`` nor goals of its own. A bench
    of a stated number of rounds has no ``looks``.
    """

    model: str
    model_sha256: str | None = None
    order: tuple[Accelerator, ...] = ()
    accelerators: tuple[AcceleratorResult, ...] = ()
    goals: tuple[GoalResult, ...] = ()
    looks: Looks | None = None
    checks: tuple[Caveat, ...] = ()
    counted: tuple[str, ...] = ()
    rounds: tuple[RunReport, ...] = ()
    sweep: Sweep | None = None

    @property
    def results(self) -> tuple[AcceleratorResult, ...]:
        """The results of all accelerators, or of all points of a sweep."""
        if self.sweep is None:
            return self.accelerators
        return (*self.accelerators, *(point.result for point in self.sweep.points))

    def idle_watts(self, power_mode: str) -> float | None:
        """Return the mean idle power of the rounds in a power mode; ``None`` if it is unknown."""
        known = []
        for run in self.rounds:
            if run.environment.power_mode != power_mode or run.energy is None:
                continue
            if run.energy.baseline_watts is not None:
                known.append(run.energy.baseline_watts)
        return sum(known) / len(known) if known else None


class Placed(Record):
    """A model on an accelerator."""

    model: str
    device: Accelerator


class LaneTogether(Placed):
    """One of several models that ran at once, in the windows in which all of them ran.

    ``slowdown`` is median latency over that of the same model alone, in the same turn, and
    ``tail_slowdown`` the same of the 99th percentile of all rounds. ``marginal_watts`` is net power
    of the module with this model on less that with it off; it includes the speed that it takes
    from the others.
    """

    latency: Distribution | None = None
    latency_seconds: Figure | None = None
    throughput_per_second: Figure | None = None
    slowdown: Figure | None = None
    tail_slowdown: NonNegativeFloat | None = None
    throughput_ratio: Figure | None = None
    marginal_watts: Figure | None = None
    marginal_joules_per_inference: Figure | None = None


class Together(Record):
    """Models that ran at once, each on its accelerator; one alone is measured likewise.

    Energies are those of the module in a joint window of mean length ``seconds``, of all models,
    and never split. ``excess_watts`` is net power less that of the same inferences alone.
    """

    lanes: tuple[LaneTogether, ...]
    status: Status
    reason: str | None = None
    rounds: NonNegativeInt = 0
    seconds: NonNegativeFloat | None = None
    gross_joules: Figure | None = None
    net_joules: Figure | None = None
    gross_watts: Figure | None = None
    net_watts: Figure | None = None
    excess_watts: Figure | None = None
    utilization: dict[str, Figure] = {}
    is_steady: bool | None = None
    flags: dict[BenchFlag, PositiveInt] = {}
    foreign_dla_processes: tuple[str, ...] = ()


class JointRound(Record):
    """One stretch of time in which some of the models ran; rounds of one turn are compared.

    In ``window`` all of them were in their steady phase, and started and completed ``inferences``.
    """

    turn: NonNegativeInt
    lanes: tuple[Placed, ...]
    window: Span | None = None
    inferences: tuple[NonNegativeInt, ...] = ()
    energy: Energy | None = None
    load: dict[str, Ratio] = {}
    runs: tuple[RunReport, ...] = ()


class Contention(Record):
    """Models alone and at once; ``together`` is in the order of the first pass."""

    planned_seconds: NonNegativeFloat
    together: tuple[Together, ...] = ()
    rounds: tuple[JointRound, ...] = ()


SweepAxis = Literal["batch", "streams", "precision", "memory", "power-mode"]


class BenchSettings(InferenceSettings, Record):
    """How the benchmark was asked to measure.

    Without ``devices`` it measures the accelerators that the machine has, without ``backend`` by
    the usual one of each. ``cut`` is the directory with the two parts of the model. ``rounds`` are
    those on each accelerator, at least. With ``until_ratio`` they are the most: it stops earlier if
    its questions are answered. A sweep takes each combination of the values of its axes.
    """

    models: tuple[str, ...]
    devices: tuple[Device, ...] | None = None
    cut: str | None = None
    backend: BackendName | None = None
    inputs: str | None = None
    labels: str | None = None
    task: Literal["classify", "detect", "segment"] | None = None
    tolerance: Ratio | None = None
    contention: bool = False
    lock_in_seconds: NonNegativeFloat | None = None
    lock_in_stages: bool = False
    sustain_seconds: NonNegativeFloat | None = None
    layers: bool = False
    sweep: dict[SweepAxis, tuple[int | str, ...]] = {}
    latency_below_seconds: NonNegativeFloat | None = None
    power_mode: str | None = None
    duration_seconds: NonNegativeFloat
    baseline_seconds: NonNegativeFloat
    warm_up_seconds: NonNegativeFloat
    rounds: PositiveInt
    until_ratio: Ratio | None = None
    telemetry: str | None = None
    is_simulated: bool = False

    @model_validator(mode="before")
    @classmethod
    def _accept_older_results(cls, given: Any) -> Any:
        return without(given, "nsys")


# More names of layers make no title.
_NAMED_LAYERS = 3


def held_in_words(precisions: Mapping[str, Precision]) -> str:
    """Return layers that are held at a precision, as a part of a title.

    >>> held_in_words({"Split_36": "fp16", "head*": "fp16"})
    'Split_36 fp16, head* fp16'
    """
    words = [f"{name} {precision}" for name, precision in precisions.items()]
    more = len(words) - _NAMED_LAYERS
    if more > 0:
        words[_NAMED_LAYERS:] = [f"{more} more"]
    return ", ".join(words)


def variant_of(settings: BenchSettings) -> str:
    """Name the form in which a model was measured, as far as it is not the usual one."""
    words: list[str] = []
    if settings.precision is not None:
        words.append(settings.precision)
    if settings.layer_precisions:
        words.append(held_in_words(settings.layer_precisions))
    if settings.batch > 1:
        words.append(f"batch {settings.batch}")
    if settings.streams > 1:
        words.append(f"{settings.streams} streams")
    if settings.memory is not None:
        words.append(f"{settings.memory} memory")
    if settings.power_mode is not None:
        words.append(f"mode {settings.power_mode}")
    if not settings.cuda_graph:
        words.append("no graph")
    if not settings.transfers:
        words.append("no transfers")
    if settings.fallback != "allow":
        words.append(f"fallback {settings.fallback}")
    return " ".join(words)


class BenchResult(Record):
    """The document ``result.json``.

    ``background`` is the load of ``cpu`` and ``gpu`` before the benchmark, ``checks`` are caveats
    about the machine, and ``telemetry_problem`` is the reason for missing energy.
    """

    schema_version: Literal[2, 3] = SCHEMA_VERSION
    tegrascope: str
    started_wall_ns: NonNegativeInt
    ended_wall_ns: NonNegativeInt
    is_partial: bool = False
    is_simulated: bool = False
    settings: BenchSettings
    environment: Environment = Environment()
    background: dict[str, Ratio] = {}
    checks: tuple[Caveat, ...] = ()
    telemetry_problem: str | None = None
    models: tuple[ModelResult, ...] = ()
    contention: Contention | None = None

    @property
    def versions(self) -> dict[str, str]:
        """Libraries of all rounds and their versions."""
        versions = dict(self.environment.versions)
        for model in self.models:
            for report in model.rounds:
                versions.update(report.environment.versions)
        return versions
