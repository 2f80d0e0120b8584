"""A worker's line to a RunEvent and back, and the daemon's orders to a worker.

One JSON object per line in both directions. All times are CLOCK_MONOTONIC of the machine, which
worker and daemon share.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveInt,
    TypeAdapter,
    model_validator,
)
from pydantic import ValidationError as _ValidationError

from ..errors import ParseError
from ..records import Ratio, Record, without
from .calibration import Method, Preprocess
from .marks import NAME_PATTERN
from .placement import Built, EngineCapability, Fallback, Memory, Precision, PrecisionConstraints
from .servers import CounterPage, Server

PhaseName = Literal["load", "build", "warm_up", "baseline_before", "steady", "baseline_after"]
StageName = Literal[
    "pre", "h2d", "compute", "body", "head", "d2h", "post", "first_token", "output_token"
]
Outcome = Literal["ok", "failed", "timeout", "skipped", "cancelled"]


def without_share_of_the_gpu(given: Any) -> Any:
    """Return a stored record without the share of the GPU that older releases kept and none set."""
    if isinstance(given, Mapping) and given.get("mps_percentage", "") is None:
        return without(given, "mps_percentage")
    return given


class Process(Record):
    """How a worker shares the machine with others.

    ``nice`` is added to the daemon's own, and empty ``cpus`` are all.
    """

    nice: int = Field(0, ge=0, le=19)
    cpus: tuple[Annotated[NonNegativeInt, Field(le=8191)], ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _accept_older_runs(cls, given: Any) -> Any:
        return without_share_of_the_gpu(given)


Lengths = Annotated[tuple[PositiveInt, ...], Field(max_length=8)]


class InputShape(Record):
    """Shape of an input as it is measured, and the range of shapes that the engine takes.

    A list is the shape alone; then, and without ``min``, ``opt`` and ``max``, the engine takes no
    other. ``shape`` is ``opt`` unless it is given.
    """

    shape: Lengths
    min: Lengths | None = None
    opt: Lengths | None = None
    max: Lengths | None = None

    @property
    def range(self) -> tuple[Lengths, Lengths, Lengths]:
        """The smallest, the usual and the largest shape of the engine."""
        return (self.min or self.shape, self.opt or self.shape, self.max or self.shape)

    @property
    def text(self) -> str:
        """The shape in words, as ``1x3x640x640 of 1x3x320x320 to 1x3x640x640``."""
        low, _, high = self.range
        shape, *ends = ("x".join(map(str, one)) for one in (self.shape, low, high))
        return shape if low == high else f"{shape} of {' to '.join(ends)}"

    @model_validator(mode="before")
    @classmethod
    def _is_list_or_range(cls, value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return {"shape": value}
        is_range = isinstance(value, dict) and "opt" in value
        return {"shape": value["opt"], **value} if is_range else value

    @model_validator(mode="after")
    def _fits(self) -> "InputShape":
        given = [one for one in (self.min, self.opt, self.max) if one is not None]
        if len(given) not in (0, 3):
            raise ValueError("give all of min, opt and max, or none")
        low, usual, high = self.range
        if len({len(one) for one in (low, usual, high, self.shape)}) > 1:
            raise ValueError("its shapes differ in their number of dimensions")
        for one in (usual, self.shape):
            if not all(a <= b <= c for a, b, c in zip(low, one, high, strict=True)):
                raise ValueError(f"{'x'.join(map(str, one))} is not between min and max")
        return self


# More names than that are written with ``*``.
MOST_LAYER_NAMES = 1024


class InferenceSettings(BaseModel):
    """How a model infers: the same in a configuration, an order and a benchmark.

    Attributes:
        batch: Inputs per inference.
        precision: That of the engine; ``None`` leaves it to the back-end.
        layer_precisions: Name of a node or a layer, in which ``*`` is any text, to the precision
            in which it has to compute, whatever that of the engine.
        precision_constraints: Without such a kernel ``obey`` fails, and ``prefer`` takes another.
        optimization_level: How long TensorRT looks for faster kernels; 0 is soonest.
        calibration: Path of the scales of int8: a calibration cache, or a folder or file of inputs
            to make one from.
        preprocess: How images among these inputs become inputs.
        fallback: Policy for layers that a DLA does not accept.
        plugins: Paths of libraries with plug-ins of TensorRT.
        shapes: Shapes of inputs by name, in place of the model's own shape and of ``batch``.
        streams: Inferences in flight at the same time.
        cuda_graph: Whether to launch as a CUDA graph if possible.
        transfers: Whether inputs and outputs are copied with each inference.
        memory: That of inputs and outputs: ``copy`` between host and device, memory of the host
            that is ``mapped``, or ``managed`` memory, which moves; ``managed-anyway`` also on a GPU
            with memory of its own. ``None`` leaves it to the back-end.
        process: Priority and cores of the worker; an order with others needs another worker.
    """

    batch: PositiveInt = Field(1, le=65_536)
    precision: Precision | None = None
    layer_precisions: Annotated[
        dict[Annotated[str, Field(min_length=1, max_length=512)], Precision],
        Field(max_length=MOST_LAYER_NAMES),
    ] = {}
    precision_constraints: PrecisionConstraints = "obey"
    optimization_level: int | None = Field(None, ge=0, le=5)
    calibration: str | None = None
    preprocess: Preprocess | None = None
    fallback: Fallback = "allow"
    plugins: tuple[str, ...] = ()
    shapes: dict[str, InputShape] = {}
    streams: PositiveInt = Field(1, le=1024)
    cuda_graph: bool = True
    transfers: bool = True
    memory: Memory | None = None
    process: Process = Process()


class Order(InferenceSettings, Record):
    """A run that the daemon requests from a worker; ``None`` leaves a choice to the back-end.

    Attributes:
        model: Path of an ONNX file, or ``builtin:NAME``; empty for a program.
        head: Path of the ONNX file that continues the model, which then is a body: the device runs
            the body, and the GPU, or the CPU behind a CPU, the head.
        threads: CPU threads of a CPU back-end.
        engine_capability: ``dla_standalone`` builds a loadable for cuDLA in place of an engine.
        program: The program and its arguments, for a back-end that runs one.
        scrape: The counter of a server, for a back-end that only reads it.
        server: A server, for a back-end that sends it requests.
        calibration_file: Path for the calibration cache of the build.
        inputs_file: Path of a data set, a folder or file of inputs, of which the outputs are wanted
            in place of the usual inputs.
        outputs_file: Path for the outputs of one inference, or of the data set: a NumPy archive
            with one array per output, ordered by name.
        profile_file: Path for the time of each layer, from a pass after the measurement.
        rebuild: Whether to build the engine even if the cache has it.
        warm_up_seconds: Least warm-up before the measurement.
        baseline_seconds: Idle time before and after the steady phase, with the model loaded.
        duration_seconds: Length of the steady phase; either this or ``count`` inferences.
        steps_seconds: Lengths of off- and on-steps in turn, for lock-in; empty to infer throughout.
        stage: The stage that is repeated in place of inferences, ``repeats`` times for each.
        unit: Name of a piece of work that is counted beside the inferences.
        timeout_seconds: Time after which the worker is killed, as its executor sets it.
    """

    run_id: str
    backend: str
    device: str
    model: str = ""
    head: str | None = None
    model_directory: str
    threads: PositiveInt | None = None
    calibration_method: Method = "entropy"
    calibration_file: str | None = None
    engine_capability: EngineCapability = "standard"
    engine_directory: str | None = None
    program: tuple[str, ...] = ()
    scrape: CounterPage | None = None
    server: Server | None = None
    inputs_file: str | None = None
    outputs_file: str | None = None
    profile_file: str | None = None
    rebuild: bool = False
    warm_up_seconds: NonNegativeFloat = 1.0
    baseline_seconds: NonNegativeFloat = 0.0
    duration_seconds: NonNegativeFloat | None = None
    count: PositiveInt | None = None
    steps_seconds: tuple[NonNegativeFloat, ...] = ()
    stage: StageName | None = None
    repeats: PositiveInt = 1
    unit: str | None = None
    timeout_seconds: NonNegativeFloat | None = None

    @property
    def dla_core(self) -> int | None:
        """Number of the DLA core; ``None`` on any other device."""
        return {"dla0": 0, "dla1": 1}.get(self.device)


class Surroundings(Record):
    """How the other work on a simulated board slows an accelerator; the daemon tells its worker.

    Attributes:
        at_ns: Time from which it holds.
        slowdown: How many times longer an inference takes than alone on a cool board.
    """

    event: Literal["surroundings"] = "surroundings"
    at_ns: NonNegativeInt
    slowdown: float = Field(ge=1)


class Hello(Record):
    """The worker is ready to read orders; ``python`` is the version of its interpreter."""

    event: Literal["hello"] = "hello"
    pid: PositiveInt
    python: str


class Phase(Record):
    """A phase of a run began or ended.

    Attributes:
        at_ns: Time of the edge; ``steady`` ends when its last inference is complete. An edge may be
            sent again with a better time.
        uncertain_ns: Possible error either way, if the back-end cannot stamp the edge itself.
    """

    event: Literal["phase"] = "phase"
    run_id: str
    phase: PhaseName
    edge: Literal["begin", "end"]
    at_ns: NonNegativeInt
    uncertain_ns: NonNegativeInt | None = None


class Loaded(Record):
    """The model is loaded; the cold start has parts: ``import``, ``load``, ``build`` ….

    ``model_sha256`` is ``None`` if a server has loaded it.
    """

    event: Literal["loaded"] = "loaded"
    run_id: str
    model_sha256: str | None = None
    versions: dict[str, str] = {}
    cold_start_seconds: dict[str, NonNegativeFloat] = {}
    input_shapes: dict[str, tuple[NonNegativeInt, ...]] = {}
    built: Built | None = None


class Progress(Record):
    """A step of a long phase begins; ``doing`` is for people: ``builds the engine``."""

    event: Literal["progress"] = "progress"
    run_id: str
    doing: str


class Inferences(Record):
    """Completed inferences of the steady phase, about one second's worth.

    Attributes:
        start_ns: shape (n,); ``latency_ns`` likewise, by the host clock.
        stages_ns: Stage to shape (m,), of the inferences whose stages were timed: all, or one in a
            few milliseconds. Empty if the back-end measures no stages.
        between_ns: Sum of the times from the end of an inference to the start of the next, in which
            the worker keeps the measured times. ``None`` if it does not start them itself.
    """

    event: Literal["inferences"] = "inferences"
    run_id: str
    start_ns: tuple[NonNegativeInt, ...]
    latency_ns: tuple[NonNegativeInt, ...]
    stages_ns: dict[StageName, tuple[NonNegativeInt, ...]] = {}
    between_ns: NonNegativeInt | None = None


def unit_name(value: str) -> str:
    """Return the name of a unit, or raise ``ValueError``."""
    if not re.fullmatch(NAME_PATTERN, value) or value in ("inference", "inferences"):
        raise ValueError(
            f"{value[:40]!r} is not a unit: use up to 32 small letters, digits and _, like token;"
            " inferences are counted anyway"
        )
    return value


def plural(unit: str) -> str:
    """Return the name of many units.

    >>> [plural(unit) for unit in ("token", "batch", "query")]
    ['tokens', 'batches', 'queries']
    """
    if unit.endswith("y"):
        return f"{unit[:-1]}ies"
    return f"{unit}es" if unit.endswith(("s", "x", "ch", "sh")) else f"{unit}s"


UnitName = Annotated[str, AfterValidator(unit_name)]
PhaseLabel = Annotated[str, Field(pattern=f"^{NAME_PATTERN}$")]
UnitCount = Annotated[float, Field(ge=0, le=1e15)]


class Counted(Record):
    """Work of the steady phase that was counted without times.

    Attributes:
        inferences: Number in all; ``None`` if not counted, or counted by their times.
        units: Number of the workload's units since the last such event; ``None`` if not counted.
        units_interval: Limits of ``units``, if the number is uncertain.
    """

    event: Literal["counted"] = "counted"
    run_id: str
    inferences: NonNegativeInt | None = None
    units: UnitCount | None = None
    units_interval: tuple[UnitCount, UnitCount] | None = None


class Declined(Record):
    """The worker did not begin the order: it cannot use its loaded model for this order."""

    event: Literal["declined"] = "declined"
    run_id: str


class Outputs(Record):
    """The outputs of the last inference, compared with those of the engine's first run.

    ``difference`` is the norm of the difference over that of the first run, of the worst channel,
    at most 1. It is 0 only if every bit is equal, and ``None`` in the first run.
    """

    sha256: str
    difference: Ratio | None = None


class Finished(Record):
    """The run is over.

    It is the last event of every run. If a worker is killed or does not start, its executor makes
    the event.

    Attributes:
        outcome: The outcome of the run, up to its report.
        reason: One line, for every outcome except ``ok``.
        skip_reason: ``unavailable`` means that the back-end or device is not on this machine.
        worker_log: The last lines of the worker's standard error, for every outcome except ``ok``.
            The executor adds them.
        process_peak_bytes: Peak resident memory of the worker.
        device_peak_bytes: Peak on the device, if the back-end measures it.
        outputs: Only of a back-end that keeps the engine's first outputs.
    """

    event: Literal["finished"] = "finished"
    run_id: str
    outcome: Outcome
    reason: str | None = None
    skip_reason: Literal["unavailable"] | None = None
    worker_log: tuple[str, ...] = ()
    process_peak_bytes: NonNegativeInt | None = None
    device_peak_bytes: NonNegativeInt | None = None
    outputs: Outputs | None = None


RunEvent = Annotated[
    Hello | Phase | Loaded | Progress | Inferences | Counted | Declined | Finished,
    Field(discriminator="event"),
]
_RUN_EVENT: TypeAdapter[RunEvent] = TypeAdapter(RunEvent)
_FROM_DAEMON: TypeAdapter[Order | Surroundings] = TypeAdapter(Order | Surroundings)


def parse_run_event(line: str) -> RunEvent:
    """Parse one line of a worker, or raise ``ParseError``: for example, a library printed it.

    >>> parse_run_event('{"event": "hello", "pid": 7, "python": "3.10.12"}')
    Hello(event='hello', pid=7, python='3.10.12')
    """
    try:
        return _RUN_EVENT.validate_json(line)
    except _ValidationError:
        raise ParseError("noise", line) from None


def parse_order(line: str) -> Order | Surroundings:
    """Parse one line of the daemon, or raise ``ParseError``."""
    try:
        return _FROM_DAEMON.validate_json(line)
    except _ValidationError:
        raise ParseError("noise", line) from None


def render_event(event: Record) -> str:
    """Return an event or an order as one line without its newline."""
    return event.model_dump_json(exclude_none=True)


_COUNT = re.compile(
    rf"\s*(?:tegrascope:|TEGRASCOPE) ({NAME_PATTERN})=([0-9]{{1,12}}(?:\.[0-9]{{1,9}})?)\s*",
    re.ASCII,
)


class PrintedCounts:
    """Adds up the counts that a program prints on its standard output.

    A line is ``tegrascope: NAME=N`` or ``TEGRASCOPE NAME=N``. ``NAME`` is ``inferences`` or the
    unit, singular or plural.

    >>> tally = PrintedCounts("token")
    >>> for line in ("tegrascope: inferences=2", "TEGRASCOPE tokens=30", "tegrascope: token=1"):
    ...     tally.read(line)
    >>> tally.inferences, tally.units
    (2, 31.0)

    Attributes:
        inferences: Sum so far, and ``units`` likewise; ``None`` if no line had it.
        unknown: Name of the last count that is neither.
    """

    def __init__(self, unit: str | None = None) -> None:
        self.inferences: int | None = None
        self.units: float | None = None
        self.unknown: str | None = None
        self._forms = () if unit is None else (unit, f"{unit}s", plural(unit))

    def read(self, line: str) -> None:
        """Add the count of a line; any other line is ignored."""
        found = _COUNT.fullmatch(line)
        if found is None:
            return
        name, number = found[1], found[2]
        if name == "inferences":
            if number.isdecimal():
                self.inferences = (self.inferences or 0) + int(number)
        elif name in self._forms:
            self.units = (self.units or 0.0) + float(number)
        else:
            self.unknown = name
