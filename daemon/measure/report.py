"""The report of one run, paired with the telemetry of its time window: stored and served."""

from typing import Any, Literal

from pydantic import (
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from ...parsers.inference.events import (
    Outcome as Outcome,
)
from ...parsers.inference.events import (
    Outputs,
    PhaseLabel,
    PhaseName,
    Process,
    StageName,
    UnitCount,
)
from ...parsers.inference.placement import Built, Precision
from ...parsers.records import Ratio, Record, without
from ...parsers.values import Accelerator as Accelerator
from ...parsers.values import Device as Device
from ...parsers.values import accelerator_of

SkipReason = Literal[
    "missed",
    "overlap",
    "unavailable",
    "stopping",
    "guard_temperature",
    "guard_battery",
    "guard_duty",
]
Flag = Literal[
    "late_samples",
    "insufficient_samples",
    "aliased",
    "not_steady",
    "throttled",
    "overlapped",
    "baseline_disturbed",
    "baseline_drift",
    "clock_step",
    "suspended",
    "telemetry_gap",
    "dla_not_used",
    "foreign_dla_activity",
    "fallback",
    "outputs_changed",
    "simulated",
    "sensor_suspect",
    "times_assumed",
    "measuring_overhead",
    "above_bound",
]
CounterFault = Literal["stands_still", "runs_back", "jumps"]
EnergyMethod = Literal["counter", "integral"]


class Span(Record):
    """A range of CLOCK_MONOTONIC; the end is not before the start."""

    begin_ns: NonNegativeInt
    end_ns: NonNegativeInt

    @property
    def seconds(self) -> float:
        """Length in seconds."""
        return (self.end_ns - self.begin_ns) / 1e9

    @property
    def middle_ns(self) -> float:
        """The time in the middle."""
        return (self.begin_ns + self.end_ns) / 2


class Distribution(Record):
    """Latencies, or the times of one stage, of the steady phase.

    Percentiles are exact, with linear interpolation.
    """

    count: PositiveInt
    min_seconds: NonNegativeFloat
    mean_seconds: NonNegativeFloat
    p50_seconds: NonNegativeFloat
    p90_seconds: NonNegativeFloat
    p95_seconds: NonNegativeFloat
    p99_seconds: NonNegativeFloat
    p999_seconds: NonNegativeFloat
    max_seconds: NonNegativeFloat


class Utilization(Record):
    """Load over the steady window, with each sample weighted by its overlap.

    It has no interval: tegrastats prints whole percents of an unknown short time before each line.
    """

    mean_ratio: Ratio
    max_ratio: Ratio


class Frequency(Record):
    """A clock over the steady window; the mean is weighted."""

    min_hertz: NonNegativeFloat
    mean_hertz: NonNegativeFloat


class Temperature(Record):
    """A thermal zone over the steady window; ``delta_celsius`` is last minus first."""

    start_celsius: float
    max_celsius: float
    delta_celsius: float


class RunTelemetry(Record):
    """Telemetry of the steady window.

    Attributes:
        utilization: By signal: ``gpu``, ``emc``, ``cpu`` (mean of the online cores),
            ``dla0:ftrace``, ``dla0:firmware``, ``dla0:tegrastats`` …, one signal per source, never
            mixed. ``dla0:powered`` is not a load: it is the share of time in which the core was
            powered.
        dla_active: Share of the window in which tegrastats reported a core as on, by core.
        throttle_events: Throttle and over-current events; ``None`` if they are not counted.
        throttle: The same by kind, including normal kinds: a GPU that runs within its power cap.
        dla_trace_troubles: Irregular events in the DLA trace, by reason. If events were ``lost``,
            ``dla0:ftrace`` is a lower limit.
        dla_beyond_powered_seconds: Busy time of a core beyond its powered time, which is
            impossible; empty if trace and power management agree.
        power_mode_changes: Changes of the power mode; ``None`` if unknown.
        gpu_power_watts: Mean power of the GPU by NVML, next to the rails and part of none.
        sources: Source of the load ``gpu`` and of ``gpu_power``: the line's, or ``nvml``.
    """

    samples: NonNegativeInt
    utilization: dict[str, Utilization] = {}
    frequency: dict[str, Frequency] = {}
    temperature: dict[str, Temperature] = {}
    dla_active: dict[str, Ratio] = {}
    throttle_events: NonNegativeInt | None = None
    throttle: dict[str, NonNegativeInt] = {}
    dla_trace_troubles: dict[str, NonNegativeInt] = {}
    dla_beyond_powered_seconds: dict[str, NonNegativeFloat] = {}
    power_mode_changes: NonNegativeInt | None = None
    gpu_power_watts: float | None = None
    sources: dict[str, str] = {}


class ProcessShare(Record):
    """Use of the board by the other processes of one name, in the window and its idle phases.

    Attributes:
        name: Program or script, behind its container or unit if it has one.
        cpu_seconds: CPU time of all cores; ``None`` if processes are not read.
        dla_seconds: Time in which its tasks kept a core busy, by core, if the DLA is traced.
        gpu_memory_bytes: Most memory of the GPU; ``None`` if neither NVML nor root's memory reader
            lists the name.
        gpu_load_ratio: Mean share of time in which it computed on the GPU; ``None`` if NVML does
            not list the name, or has no load by process.
    """

    name: str
    cpu_seconds: NonNegativeFloat | None = None
    dla_seconds: dict[str, NonNegativeFloat] = {}
    gpu_memory_bytes: NonNegativeInt | None = None
    gpu_load_ratio: Ratio | None = None


class DeadlineReport(Record):
    """Inferences of the steady phase with a latency beyond the deadline.

    Attributes:
        misses: All of them.
        worst_lateness_seconds: The longest latency, less the deadline; 0 without a miss.
        flags_at_misses: ``throttled`` or ``overlapped``, if they held during a miss. A flag
            of the run may hold at other times only, and it need not be the cause of a miss.
    """

    deadline_seconds: PositiveFloat
    misses: NonNegativeInt
    worst_lateness_seconds: NonNegativeFloat
    flags_at_misses: tuple[Flag, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _accept_older_runs(cls, given: Any) -> Any:
        """Leave out the last misses, which older releases kept with a weighed cause each."""
        return without(given, "last")


class RailEnergy(Record):
    """Energy of one rail over the steady window.

    A rail whose current is near zero may read a little below it, so any of these may be negative.

    Attributes:
        gross_joules: By its energy counter if it has one, else by its readings of power.
        baseline_watts: Loaded-idle power, interpolated to the window; ``None`` if not measured.
        net_joules: Gross minus baseline.
        counter_joules: Growth of the rail's own energy counter in the window, if it has one.
        counter_edge_joules: Possible error of that, either way, at the edges of the window.
        counter_fault: Why a counter that was read is not used.
    """

    gross_joules: float
    mean_watts: float
    baseline_watts: float | None = None
    net_joules: float | None = None
    counter_joules: NonNegativeFloat | None = None
    counter_edge_joules: NonNegativeFloat | None = None
    counter_fault: CounterFault | None = None


class Interval(Record):
    """A range: a 95 % interval, or hard limits where the field says so."""

    low: float
    high: float


class Figure(Record):
    """A value with its interval, if that is known."""

    value: float
    low: float | None = None
    high: float | None = None

    @property
    def half(self) -> float | None:
        """The longer side of the interval, so that value ± half contains all of it."""
        if self.low is None or self.high is None:
            return None
        return max(self.high - self.value, self.value - self.low)

    def within(self, low: float, high: float) -> "Figure":
        """Return the figure with an interval that does not leave its possible values."""
        if self.low is None or self.high is None:
            return self
        ends = {"low": max(low, self.low), "high": min(high, self.high)}
        return self.model_copy(update=ends)

    @classmethod
    def around(cls, value: float, half: float | None) -> "Figure":
        """Return a figure whose interval is symmetric."""
        if half is None:
            return cls(value=value)
        return cls(value=value, low=value - half, high=value + half)

    @classmethod
    def limited(cls, value: float, limits: Interval | None) -> "Figure":
        """Return a figure with the interval that it has, if any."""
        if limits is None:
            return cls(value=value)
        return cls(value=value, low=limits.low, high=limits.high)

    def times(self, factor: float) -> "Figure":
        """Return the figure in another unit, or with the other sign."""
        ends = (self.low, self.high) if factor >= 0 else (self.high, self.low)
        low, high = (None if end is None else end * factor for end in ends)
        return Figure(value=self.value * factor, low=low, high=high)


LockInProblem = Literal[
    "few_steps", "long_pieces", "trend", "not_fitted", "lag_at_limit", "uneven_power"
]


class LockInReport(Record):
    """Mean energy of a piece of work in saturated operation, by lock-in.

    A piece is an inference, a stage of it, or the work that an application repeats.

    Attributes:
        reason: The cause of missing energy.
        joules_per_piece: Energy that a piece adds to the idle board; ``None`` with a problem.
        added_watts: Power of the pieces alone; ``on_watts`` is that of the module meanwhile.
        contrasts: Steps of the pattern that were compared with their neighbours.
        lag_seconds: Delay of the readings, as fitted; ``averaging_seconds`` as fitted or known.
        problems: Reasons of ``lock_in`` against the figure, and flags of the run.
    """

    seconds: NonNegativeFloat
    seed: NonNegativeInt | None = None
    reason: str | None = None
    joules_per_piece: Figure | None = None
    added_watts: Figure | None = None
    on_watts: float | None = None
    piece_seconds: NonNegativeFloat | None = None
    contrasts: NonNegativeInt = 0
    lag_seconds: NonNegativeFloat | None = None
    averaging_seconds: NonNegativeFloat | None = None
    problems: tuple[LockInProblem | Flag, ...] = ()


class WorkPhase(Span):
    """A phase of an application's own work, as it marked it: ``prefill`` or ``decode``.

    ``units`` are those that were counted in it.
    """

    name: PhaseLabel
    units: UnitCount | None = None


class PhaseEnergy(Record):
    """Gross energy of all occurrences of a phase in a window.

    Attributes:
        count: Number of occurrences, which took ``seconds`` in all.
        method: ``cut`` at its edges, or by ``regression`` over the readings of the window.
        gross_joules: Energy of the module; ``None`` with a ``reason``.
        joules_per_unit: Energy by the units that were counted in this phase.
    """

    name: str
    count: PositiveInt
    seconds: NonNegativeFloat
    units: NonNegativeFloat | None = None
    method: Literal["cut", "regression"] | None = None
    reason: str | None = None
    gross_joules: float | None = None
    gross_interval: Interval | None = None
    joules_per_unit: float | None = None
    joules_per_unit_interval: Interval | None = None


class Energy(Record):
    """Energy of the steady window; the total is that of the module, by the board's rail rule.

    Attributes:
        rule: Name of the rail rule; ``None`` if the rails match no known board.
        total_rails: Rails that make the total; empty if there is none.
        gross_method: How ``gross_joules`` was measured: by the energy counters of the total rails,
            where each has one, or by integration of the readings of power.
        sampling_series: How many series of readings of the module there are: 2 if its rails were
            read beside the lines too, at another interval. With one series, work that repeats in
            step with it cannot be seen; that is of no account for a counter.
        net_joules: ``gross_joules`` minus the loaded-idle baseline.
        net_reason: Why there is none, although idle phases were measured.
        sensor_reason: Why the readings of power are ``sensor_suspect``.
        update_seconds: How often the rails are updated, where that is less often than lines come.
        gross_joules_per_inference: Withheld (``None``) under ``insufficient_samples``,
            ``overlapped`` and, unless a counter gave the energy, ``aliased`` and
            ``sensor_suspect``; also for fewer than 200 inferences. Its interval includes that of
            the count.
        net_joules_per_inference: Withheld likewise; also after a drift of the idle power, or if
            ``gross_joules`` has an interval and ``net_joules`` has none.
        joules_per_unit: Gross energy per unit of work, withheld under the same flags; its interval
            includes that of the count.
        largest_uncertainty: ``sampling``, ``quantisation``, ``idle_wander``, ``window_edges``,
            ``baseline_drift`` or ``second_series``.
        offset_joules: Largest error of ``gross_joules`` by the zero error of the sensors, either
            way; ``None`` if it is not known. It is the same in every run on a board and cancels in
            ``net_joules``, so it is not in the intervals.
        counter_joules: Growth of the counters of the total rails, if each has one, and its possible
            error, either way, at the edges of the window.
        integral_joules: Gross energy by the readings of power, for comparison, where a counter is
            published.
        phases: Energy of each phase that an application marked.
    """

    rule: str | None = None
    total_rails: tuple[str, ...] = ()
    rails: dict[str, RailEnergy] = {}
    gross_joules: float | None = None
    gross_method: EnergyMethod | None = None
    sampling_series: Literal[1, 2] = 1
    net_joules: float | None = None
    net_reason: str | None = None
    sensor_reason: str | None = None
    update_seconds: float | None = None
    gross_joules_per_inference: float | None = None
    gross_joules_per_inference_interval: Interval | None = None
    net_joules_per_inference: float | None = None
    net_joules_per_inference_interval: Interval | None = None
    joules_per_unit: float | None = None
    joules_per_unit_interval: Interval | None = None
    net_joules_per_unit: float | None = None
    net_joules_per_unit_interval: Interval | None = None
    baseline_watts: float | None = None
    gross_interval: Interval | None = None
    net_interval: Interval | None = None
    largest_uncertainty: str | None = None
    offset_joules: NonNegativeFloat | None = None
    counter_joules: NonNegativeFloat | None = None
    counter_edge_joules: NonNegativeFloat | None = None
    integral_joules: float | None = None
    integral_interval: Interval | None = None
    phases: tuple[PhaseEnergy, ...] = ()


class Possible(Record):
    """How near a run came to the peaks of its accelerator and memory, at the measured clocks.

    The peaks are those of ``parsers/peaks.toml``. A clock that is not known counts as its highest.
    The work is counted, not measured: kernels do at least this, but a cache may spare the memory.

    Attributes:
        precision: The fastest in which a layer of the engine computes.
        flops_per_second: Operations of the model, by its ONNX file, times the rate of inferences.
        bytes_per_second: The least that the kernels of the model move, times that rate; of a server
            that has ``weight_bytes`` those of each step.
        bound: The peak that the counted work would meet first.
        peak_ratio: Share of ``peak_flops_per_second``; ``None`` if not known or ``above_bound``.
        bandwidth_ratio: Share of ``peak_bytes_per_second``, likewise.
    """

    precision: Precision | None = None
    flops_per_second: NonNegativeFloat | None = None
    bytes_per_second: NonNegativeFloat | None = None
    flops_per_byte: NonNegativeFloat | None = None
    peak_flops_per_second: PositiveFloat | None = None
    peak_bytes_per_second: PositiveFloat | None = None
    bound: Literal["compute", "memory"] | None = None
    peak_ratio: Ratio | None = None
    bandwidth_ratio: Ratio | None = None


class Environment(Record):
    """Board, software and settings of a run; only runs of equal environments are comparable.

    Attributes:
        board: Its name, or that of the rail rule that matches.
        power_mode: As nvpmodel calls it; for a desktop or server GPU its power limit.
        clocks_locked: Whether the clocks of CPU and GPU were fixed, as by ``jetson_clocks``;
            ``None`` if unknown.
        rail_sensors: Settings of a board's rail sensors in the kernel's files: samples per reading,
            milliseconds between readings, micro-ohms. ``stated.update_interval`` is that of a user.
        gpu_uuid: The GPU that was read, if there may be several.
        power_reading: Kind of NVML's power: ``instant``, or ``usage`` for a lagging mean; ``None``
            on a board.
        telemetry_interval_seconds: Median time between samples.
    """

    board: str | None = None
    module: str | None = None
    l4t: str | None = None
    jetpack: str | None = None
    power_mode: str | None = None
    clocks_locked: bool | None = None
    rail_sensors: dict[str, float] = {}
    gpu_uuid: str | None = None
    power_reading: str | None = None
    telemetry_source: str | None = None
    telemetry_interval_seconds: NonNegativeFloat | None = None
    simulated: bool = False
    versions: dict[str, str] = {}


class RunReport(Record):
    """One run, from its order to its energy.

    Attributes:
        head: File of the head, if the model is a body, of which ``device`` and ``built`` are then.
        reason: Why, for every outcome except ``ok``.
        skip_reason: The kind of reason of a skipped run; ``None`` in records of older releases.
        worker_log: The last lines of the worker's standard error, for the same outcomes.
        started_ns: CLOCK_MONOTONIC when the run was taken from the schedule.
        ended_ns: CLOCK_MONOTONIC when its outcome was known.
        lateness_seconds: Start minus due time.
        phases: Spans by phase, as the worker stamped them.
        input_shapes: Shapes of one inference, if the back-end reports them.
        inferences: Completed in the steady phase, also for a run that was cut short.
        inferences_interval: Limits of ``inferences`` if they were only counted: one that an edge of
            the window cuts counts fully or not at all. ``None`` if each was timed.
        unit: Name of the workload's own unit of work; ``units`` is their number in the steady
            phase, ``None`` if they were not counted.
        units_interval: Limits of ``units``, if the count itself is uncertain.
        units_per_second: ``units`` over the length of the steady phase.
        work_phases: Those that an application marked in its window; ``energy`` has theirs.
        latency: By the host clock, in the steady phase.
        device_latency: The same by the device's own events, from the first copy to the last, of
            the inferences that it timed; ``None`` if the back-end has none.
        stages: In the steady phase, if the back-end reports them. Those of a server are the time to
            the ``first_token``, and the mean per further ``output_token`` of an answer.
        throughput_per_second: Inputs per second of the steady phase.
        measuring_share: Share of the steady phase, in a lock-in of its on-steps, from the end of an
            inference to the start of the next: the worker's own work, which a loop without
            measurement has not. ``None`` if a worker of ours did not start them.
        deadline: Misses, if the workload has a deadline and its inferences have times.
        process_peak_bytes: Peak resident memory of the worker; ``device_peak_bytes`` is on the
            device, if the back-end reports it.
        gpu_peak_bytes: Most GPU memory of all our processes in the steady and idle phases, if NVML
            or root's memory reader lists processes.
        least_available_bytes: Least memory of the board that was available then.
        outputs: The last inference, against the engine's first run.
        possible: Share of what the board can do, if its peaks and the work of the model are known.
        lock_in: Energy of a piece of work, for a run with on- and off-steps.
        overlapping_runs: Runs that loaded, built, warmed up or worked during this one's steady
            phase.
        other_processes: Other users of CPU and DLA meanwhile, the largest use first; empty if no
            other did, or if neither processes nor DLA tasks are read.
        foreign_dla_processes: Names of those that raised ``foreign_dla_activity``, as far as they
            are known.
    """

    run_id: str
    workload: str
    model: str | None = None
    model_sha256: str | None = None
    head: str | None = None
    backend: str
    device: Device
    outcome: Outcome
    reason: str | None = None
    skip_reason: SkipReason | None = None
    worker_log: tuple[str, ...] = ()
    started_wall_ns: NonNegativeInt
    started_ns: NonNegativeInt
    ended_ns: NonNegativeInt
    lateness_seconds: NonNegativeFloat | None = None
    phases: dict[PhaseName, Span] = {}
    batch: PositiveInt = 1
    input_shapes: dict[str, tuple[int, ...]] = {}
    process: Process = Process()
    inferences: NonNegativeInt = 0
    inferences_interval: Interval | None = None
    unit: str | None = None
    units: NonNegativeFloat | None = None
    units_interval: Interval | None = None
    units_per_second: NonNegativeFloat | None = None
    work_phases: tuple[WorkPhase, ...] = ()
    latency: Distribution | None = None
    device_latency: Distribution | None = None
    stages: dict[StageName, Distribution] = {}
    throughput_per_second: NonNegativeFloat | None = None
    measuring_share: Ratio | None = None
    deadline: DeadlineReport | None = None
    cold_start_seconds: dict[str, NonNegativeFloat] = {}
    process_peak_bytes: NonNegativeInt | None = None
    device_peak_bytes: NonNegativeInt | None = None
    gpu_peak_bytes: NonNegativeInt | None = None
    least_available_bytes: NonNegativeInt | None = None
    built: Built | None = None
    outputs: Outputs | None = None
    possible: Possible | None = None
    telemetry: RunTelemetry | None = None
    energy: Energy | None = None
    lock_in: LockInReport | None = None
    quality: tuple[Flag, ...] = ()
    overlapping_runs: tuple[str, ...] = ()
    other_processes: tuple[ProcessShare, ...] = ()
    foreign_dla_processes: tuple[str, ...] = ()
    environment: Environment = Environment()

    @property
    def accelerator(self) -> Accelerator:
        """The device, or those of body and head."""
        return accelerator_of(self.device, self.head)
