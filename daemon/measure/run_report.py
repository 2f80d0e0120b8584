"""The report of one run, paired with the telemetry of its time window: stored and served."""

from typing import Literal

from pydantic import NonNegativeFloat, NonNegativeInt, PositiveInt

from ...parsers.inference.events import PhaseName, Process, StageName
from ...parsers.inference.placement import Built
from ...parsers.records import Ratio, Record
from ...parsers.values import Device as Device

Outcome = Literal["ok", "failed", "timeout", "skipped", "cancelled"]
Flag = Literal[
    "insufficient_samples",
    "aliased",
    "not_steady",
    "throttled",
    "overlapped",
    "baseline_drift",
    "clock_step",
    "suspended",
    "telemetry_gap",
    "dla_not_used",
    "foreign_dla_activity",
    "fallback",
    "simulated",
]


class Span(Record):
    """A range of CLOCK_MONOTONIC; the end is not before the start."""

    begin_ns: NonNegativeInt
    end_ns: NonNegativeInt

    @property
    def seconds(self) -> float:
        """Length in seconds."""
        return (self.end_ns - self.begin_ns) / 1e9


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
    """Load over the steady window, with each sample weighted by its overlap."""

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


class RailEnergy(Record):
    """Energy of one rail over the steady window.

    Attributes:
        baseline_watts: Loaded-idle power, interpolated to the window; ``None`` if not measured.
        net_joules: Gross minus baseline; may be negative within its uncertainty.
        counter_joules: Growth of the rail's own energy counter in the window, if it has one.
        counter_edge_joules: Possible error of that, either way, at the edges of the window.
    """

    gross_joules: NonNegativeFloat
    mean_watts: NonNegativeFloat
    baseline_watts: NonNegativeFloat | None = None
    net_joules: float | None = None
    counter_joules: NonNegativeFloat | None = None
    counter_edge_joules: NonNegativeFloat | None = None


class Interval(Record):
    """A 95 % interval."""

    low: float
    high: float


class Energy(Record):
    """Energy of the steady window; the total is that of the module, by the board's rail rule.

    Attributes:
        rule: Name of the rail rule; ``None`` if the rails match no known board.
        total_rails: Rails that make the total; empty if there is none.
        net_joules: ``gross_joules`` minus the loaded-idle baseline.
        gross_joules_per_inference: Withheld (``None``) if the window is insufficient; so is net.
        largest_uncertainty: ``sampling``, ``quantisation``, ``window_edges`` or ``baseline_drift``.
        counter_joules: ``gross_joules`` by the counters of the total rails, if each has one:
            another instrument, for comparison.
    """

    rule: str | None = None
    total_rails: tuple[str, ...] = ()
    rails: dict[str, RailEnergy] = {}
    gross_joules: NonNegativeFloat | None = None
    net_joules: float | None = None
    gross_joules_per_inference: NonNegativeFloat | None = None
    net_joules_per_inference: float | None = None
    baseline_watts: NonNegativeFloat | None = None
    gross_interval: Interval | None = None
    net_interval: Interval | None = None
    largest_uncertainty: str | None = None
    counter_joules: NonNegativeFloat | None = None
    counter_edge_joules: NonNegativeFloat | None = None


class Environment(Record):
    """Board, software and settings of a run; only runs of equal environments are comparable.

    Attributes:
        board: Its name, or that of the rail rule that matches.
        power_mode: As nvpmodel calls it; for a desktop or server GPU its power limit.
        clocks_locked: Whether the clocks of CPU and GPU were fixed, as by ``jetson_clocks``;
            ``None`` if unknown.
        rail_sensors: Settings of a board's rail sensors in the kernel's files: samples per reading,
            milliseconds between readings, micro-ohms.
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
        reason: Why, for every outcome except ``ok``.
        started_ns: CLOCK_MONOTONIC when the run was taken from the schedule.
        ended_ns: CLOCK_MONOTONIC when its outcome was known.
        lateness_seconds: Start minus due time.
        phases: Spans by phase, as the worker stamped them.
        inferences: Completed in the steady phase, also for a run that was cut short.
        latency: By the host clock, in the steady phase.
        device_latency: The same by the device's own events, from the first copy to the last;
            ``None`` if the back-end has none.
        stages: In the steady phase, if the back-end reports them.
        throughput_per_second: Inputs per second of the steady phase.
        process_peak_bytes: Peak resident memory of the worker; ``device_peak_bytes`` is on the
            device, if the back-end reports it.
        overlapping_runs: Runs whose steady window overlapped this one's.
    """

    run_id: str
    workload: str
    model: str | None = None
    model_sha256: str | None = None
    backend: str
    device: Device
    outcome: Outcome
    reason: str | None = None
    started_wall_ns: NonNegativeInt
    started_ns: NonNegativeInt
    ended_ns: NonNegativeInt
    lateness_seconds: NonNegativeFloat | None = None
    phases: dict[PhaseName, Span] = {}
    batch: PositiveInt = 1
    process: Process = Process()
    inferences: NonNegativeInt = 0
    latency: Distribution | None = None
    device_latency: Distribution | None = None
    stages: dict[StageName, Distribution] = {}
    throughput_per_second: NonNegativeFloat | None = None
    cold_start_seconds: dict[str, NonNegativeFloat] = {}
    process_peak_bytes: NonNegativeInt | None = None
    device_peak_bytes: NonNegativeInt | None = None
    built: Built | None = None
    telemetry: RunTelemetry | None = None
    energy: Energy | None = None
    quality: tuple[Flag, ...] = ()
    overlapping_runs: tuple[str, ...] = ()
    environment: Environment = Environment()
