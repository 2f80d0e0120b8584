"""One run, paired with the telemetry of its own time window: what is stored and served."""

from typing import Literal

from pydantic import NonNegativeFloat, NonNegativeInt, PositiveInt

from ...parsers.inference.events import PhaseName, Process, StageName
from ...parsers.inference.placement import Built
from ...parsers.records import Ratio, Record

Device = Literal["gpu", "dla0", "dla1", "cpu", "external"]
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
    """A stretch of CLOCK_MONOTONIC.

    Attributes:
        begin_ns: Start.
        end_ns: End, not before the start.
    """

    begin_ns: NonNegativeInt
    end_ns: NonNegativeInt

    @property
    def seconds(self) -> float:
        """Its length."""
        return (self.end_ns - self.begin_ns) / 1e9


class Distribution(Record):
    """Latencies, or the times of one stage, of the steady phase.

    Attributes:
        count: How many.
        min_seconds: Shortest; the percentiles are exact, with linear interpolation.
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
    """Load over the steady window, each sample weighted by its overlap.

    Attributes:
        mean_ratio: Weighted mean.
        max_ratio: Highest of the samples that overlap.
    """

    mean_ratio: Ratio
    max_ratio: Ratio


class Frequency(Record):
    """A clock over the steady window.

    Attributes:
        min_hertz: Lowest.
        mean_hertz: Weighted mean.
    """

    min_hertz: NonNegativeFloat
    mean_hertz: NonNegativeFloat


class Temperature(Record):
    """A thermal zone over the steady window.

    Attributes:
        start_celsius: At the first sample.
        max_celsius: Highest.
        delta_celsius: Last less first.
    """

    start_celsius: float
    max_celsius: float
    delta_celsius: float


class Telemetry(Record):
    """What the machine did in the steady window.

    Attributes:
        samples: Samples whose time lies in the window.
        utilization: By signal: ``gpu``, ``emc``, ``cpu`` (mean of the online cores),
            ``dla0:ftrace``, ``dla0:firmware``, ``dla0:tegrastats`` … one signal a source, never
            mixed. ``dla0:powered`` is no load: the share of time in which the core was powered.
        frequency: By signal: ``gpu``, ``emc``, ``cpu``, ``dla0`` ….
        temperature: By thermal zone.
        dla_active: Share of the window in which tegrastats called a core on, by core.
        throttle_events: Throttle and over-current events; ``None`` where nothing counts them.
        throttle: The same by kind, with those too that are no trouble: a GPU that runs within
            its power cap.
        dla_trace_troubles: What did not go by the book in the trace of the DLA, by reason. Where
            events were ``lost``, ``dla0:ftrace`` is the least that it can have been.
        dla_beyond_powered_seconds: By how much a core was busy beyond the time for which it was
            powered, which can't be; empty where trace and power management agree.
        power_mode_changes: How often the power mode changed; ``None`` where nothing tells of it.
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
        gross_joules: All of it.
        mean_watts: The same, over the length of the window.
        baseline_watts: Loaded-idle power, interpolated to the window; ``None`` if not measured.
        net_joules: Gross less baseline; may be negative within its uncertainty.
        counter_joules: What the rail's own energy counter says of the window, where it has one.
        counter_edge_joules: By how much that may be off either way, at the edges of the window.
    """

    gross_joules: NonNegativeFloat
    mean_watts: NonNegativeFloat
    baseline_watts: NonNegativeFloat | None = None
    net_joules: float | None = None
    counter_joules: NonNegativeFloat | None = None
    counter_edge_joules: NonNegativeFloat | None = None


class Interval(Record):
    """A 95 % interval.

    Attributes:
        low: Lower end.
        high: Upper end.
    """

    low: float
    high: float


class Energy(Record):
    """Energy of the steady window; the total is that of the module, by the board's rail rule.

    Attributes:
        rule: Name of the rail rule; ``None`` where the rails fit no known board.
        total_rails: Rails that make the total; empty where there is none.
        rails: By rail name.
        gross_joules: Total over the window.
        net_joules: The same less the loaded-idle baseline.
        gross_joules_per_inference: Withheld (``None``) where the window is insufficient.
        net_joules_per_inference: The same.
        baseline_watts: Loaded-idle power of the total.
        gross_interval: 95 % interval of ``gross_joules``.
        net_interval: 95 % interval of ``net_joules``.
        largest_uncertainty: Largest term: ``sampling``, ``quantisation``, ``window_edges`` or
            ``baseline_drift``.
        counter_joules: The same as ``gross_joules`` by the counters of the total rails, where
            each has one: another instrument, to compare with.
        counter_edge_joules: By how much that may be off either way, at the edges of the window.
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
    """Where a run ran; figures are comparable only where this is the same.

    Attributes:
        board: Name of the board or of the rail rule that fits it.
        module: Module, where known.
        l4t: Release, where known.
        jetpack: Release, where known.
        power_mode: As nvpmodel calls it; of a desktop or server GPU its power limit.
        clocks_locked: Whether the clocks of CPU and GPU were held at one value, as
            ``jetson_clocks`` does; ``None`` where nothing tells.
        rail_sensors: How the sensors of a board's rails are set, as the kernel's files say:
            samples that one reading is the mean of, milliseconds between readings, micro-ohms.
        gpu_uuid: Which GPU was read, where there may be several.
        power_reading: What NVML's power is: ``instant``, or ``usage`` for a lagging mean;
            ``None`` on a board.
        telemetry_source: Name of the line source.
        telemetry_interval_seconds: Median time between samples.
        simulated: True where the telemetry or the device is not real.
        versions: Library to version, tegrascope and Python among them.
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
    """One scheduled run, from its order to its energy.

    Attributes:
        run_id: UUIDv7.
        workload: Name from the config.
        model: As configured.
        model_sha256: Digest of the file that ran.
        backend: Engine that ran it.
        device: Lane it ran on.
        outcome: How it ended.
        reason: Why, for every outcome but ``ok``.
        started_wall_ns: Wall time of ``started_ns``.
        started_ns: CLOCK_MONOTONIC when the run was taken from the schedule.
        ended_ns: CLOCK_MONOTONIC when its outcome was known.
        lateness_seconds: Start less the time it was due.
        phases: Spans by phase, as the worker stamped them.
        batch: Inputs an inference.
        process: How its worker shared the machine with others.
        inferences: Completed in the steady phase; of a run cut short too.
        latency: Of the steady phase, by the host clock.
        device_latency: The same by the device's own events, from the first copy to the last;
            ``None`` where the engine has none.
        stages: Of the steady phase, where the engine can tell.
        throughput_per_second: Inputs a second of the steady phase.
        cold_start_seconds: Parts of the cold start.
        process_peak_bytes: Peak resident memory of the worker.
        device_peak_bytes: Its peak device memory, where the engine can tell.
        built: What the engine made of the model: precision, placement, engine.
        telemetry: What the machine did meanwhile.
        energy: What it cost.
        quality: Flags; see ``measurement.md``.
        overlapping_runs: Runs whose steady window overlapped this one's.
        environment: Where.
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
    telemetry: Telemetry | None = None
    energy: Energy | None = None
    quality: tuple[Flag, ...] = ()
    overlapping_runs: tuple[str, ...] = ()
    environment: Environment = Environment()
