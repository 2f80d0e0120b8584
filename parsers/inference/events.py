"""A worker's line becomes a RunEvent and back; so do the orders that the daemon sends it.

One JSON object a line, both ways. Every time in it is the worker's own CLOCK_MONOTONIC, which
is the daemon's too, since they share the machine.
"""

import re
from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt, TypeAdapter
from pydantic import ValidationError as _ValidationError

from ..errors import ParseError
from ..records import Record
from .placement import Built, Fallback, Precision

PhaseName = Literal["load", "build", "warm_up", "baseline_before", "steady", "baseline_after"]
StageName = Literal["pre", "h2d", "compute", "d2h", "post"]
Ending = Literal["ok", "failed", "unavailable", "cancelled"]


class Process(Record):
    """How a worker shares the machine with others.

    Attributes:
        nice: Added to the daemon's own niceness.
        cpus: Cores that it may run on; none leaves all of them.
        mps_percentage: Share of the GPU's multiprocessors under NVIDIA MPS; ``None`` for all.
    """

    nice: int = Field(0, ge=0, le=19)
    cpus: tuple[NonNegativeInt, ...] = ()
    mps_percentage: int | None = Field(None, ge=1, le=100)


class Order(Record):
    """What the daemon asks a worker to run.

    Attributes:
        run_id: UUIDv7, given by the daemon.
        backend: Name of a back-end, see ``collectors/catalog.py``.
        device: The lane, as the engine is to understand it.
        model: A path to an ONNX file, or ``builtin:resnet50`` and the like; empty where a
            program brings its own.
        model_directory: Where built-in models are cached.
        batch: Inputs an inference.
        threads: CPU threads of a CPU back-end; ``None`` leaves it to the library.
        precision: What the engine is to be built in; ``None`` leaves it to the back-end.
        optimization_level: How long TensorRT is to look for faster kernels; ``None`` leaves it.
        fallback: What becomes of layers that a DLA refuses.
        streams: Inferences in flight at once.
        cuda_graph: Whether to launch inferences as a CUDA graph where that can be.
        transfers: Whether inputs and outputs are copied with each inference.
        engine_directory: Where built engines are cached.
        program: Of a back-end that runs one: the program and its arguments.
        outputs_file: Where to write what an inference gives, as a NumPy archive with one array
            an output, in the order of their names.
        profile_file: Where to write the time of each layer, from a pass after all else.
        process: How its worker is to share the machine; another one needs another worker.
        warm_up_seconds: At least so long before anything counts.
        baseline_seconds: Idle time measured before and after the steady phase, model loaded.
        duration_seconds: Length of the steady phase, or
        count: inferences in it; exactly one of the two.
    """

    run_id: str
    backend: str
    device: str
    model: str = ""
    model_directory: str
    batch: PositiveInt = 1
    threads: PositiveInt | None = None
    precision: Precision | None = None
    optimization_level: int | None = Field(None, ge=0, le=5)
    fallback: Fallback = "allow"
    streams: PositiveInt = 1
    cuda_graph: bool = True
    transfers: bool = True
    engine_directory: str | None = None
    program: tuple[str, ...] = ()
    outputs_file: str | None = None
    profile_file: str | None = None
    process: Process = Process()
    warm_up_seconds: NonNegativeFloat = 1.0
    baseline_seconds: NonNegativeFloat = 0.0
    duration_seconds: NonNegativeFloat | None = None
    count: PositiveInt | None = None


class Hello(Record):
    """The worker is up and reads orders.

    Attributes:
        pid: Its process.
        python: Version of its interpreter.
    """

    event: Literal["hello"] = "hello"
    pid: PositiveInt
    python: str


class Phase(Record):
    """A phase of a run began or ended.

    Attributes:
        phase: Which.
        edge: Which side of it.
        at_ns: When; the end of ``steady`` is when its last inference was complete. An edge may be
            told again, once it is known better.
        uncertain_ns: By how much that may be wrong either way, where the back-end cannot stamp
            it itself.
    """

    event: Literal["phase"] = "phase"
    run_id: str
    phase: PhaseName
    edge: Literal["begin", "end"]
    at_ns: NonNegativeInt
    uncertain_ns: NonNegativeInt | None = None


class Loaded(Record):
    """The model stands ready, and what it is.

    Attributes:
        model_sha256: Digest of the model file.
        versions: Library to version.
        cold_start_seconds: Named parts of the cold start: ``import``, ``load``,
            ``first_inference`` ….
        built: What the back-end made of the model; ``None`` where it builds nothing.
    """

    event: Literal["loaded"] = "loaded"
    run_id: str
    model_sha256: str
    versions: dict[str, str] = {}
    cold_start_seconds: dict[str, NonNegativeFloat] = {}
    built: Built | None = None


class Inferences(Record):
    """Completed inferences of the steady phase, about a second's worth.

    Attributes:
        start_ns: shape (n,), when each started.
        latency_ns: shape (n,), how long each took by the host clock.
        stages_ns: Stage to shape (n,), where the engine can tell.
    """

    event: Literal["inferences"] = "inferences"
    run_id: str
    start_ns: tuple[NonNegativeInt, ...]
    latency_ns: tuple[NonNegativeInt, ...]
    stages_ns: dict[StageName, tuple[NonNegativeInt, ...]] = {}


class Counted(Record):
    """How many inferences the steady phase held, of a program that does not tell their times.

    Attributes:
        inferences: The number; ``None`` where nobody counted.
    """

    event: Literal["counted"] = "counted"
    run_id: str
    inferences: NonNegativeInt | None = None


class Finished(Record):
    """The run is over.

    Attributes:
        ending: How; ``unavailable`` is a back-end or device that is not on this machine.
        reason: One line, for every ending but ``ok``.
        process_peak_bytes: Peak resident memory of the worker.
        device_peak_bytes: Peak device memory of the worker, where the back-end can tell.
    """

    event: Literal["finished"] = "finished"
    run_id: str
    ending: Ending
    reason: str | None = None
    process_peak_bytes: NonNegativeInt | None = None
    device_peak_bytes: NonNegativeInt | None = None


RunEvent = Annotated[
    Hello | Phase | Loaded | Inferences | Counted | Finished,
    Field(discriminator="event"),
]
_RUN_EVENT: TypeAdapter[RunEvent] = TypeAdapter(RunEvent)


def parse_run_event(line: str) -> RunEvent:
    """Read one line of a worker.

    Args:
        line: A JSON object with an ``event`` key.

    Returns:
        The event.

    Raises:
        ParseError: The line is no event (a library printed it, say); its reason is ``noise``.

    >>> parse_run_event('{"event": "hello", "pid": 7, "python": "3.10.12"}')
    Hello(event='hello', pid=7, python='3.10.12')
    """
    try:
        return _RUN_EVENT.validate_json(line)
    except _ValidationError:
        raise ParseError("noise", line) from None


def parse_order(line: str) -> Order:
    """Read one line of the daemon.

    Raises:
        ParseError: The line is no order.
    """
    try:
        return Order.model_validate_json(line)
    except _ValidationError:
        raise ParseError("noise", line) from None


def render_event(event: Record) -> str:
    """Print an event or an order as one line, without its newline."""
    return event.model_dump_json(exclude_none=True)


_INFERENCES = re.compile(r"\s*tegrascope: inferences=([0-9]{1,12})\s*", re.ASCII)


def inferences_in(line: str) -> int | None:
    """Read how many inferences a program made since it said so last.

    Args:
        line: ``tegrascope: inferences=N``, alone on its line.

    Returns:
        The number; ``None`` for every other line.

    >>> inferences_in("tegrascope: inferences=1200"), inferences_in("1200 inferences")
    (1200, None)
    """
    found = _INFERENCES.fullmatch(line)
    return None if found is None else int(found[1])
