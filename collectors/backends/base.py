"""The interface of an inference back-end, with defaults; how one describes itself; its inputs."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from threading import Event
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from ...parsers.errors import BackendUnavailable, UserError
from ...parsers.inference.events import (
    Counted,
    Inferences,
    InferenceSettings,
    InputShape,
    Order,
    Phase,
    StageName,
    Surroundings,
)
from ...parsers.inference.layers import LayerProfile
from ...parsers.inference.opsets import newest_opset
from ...parsers.inference.placement import Built, Placement
from ...parsers.values import some_of
from ..board.memory import MemoryNeed
from ..models.files import facts_of
from ..simulator.plan import PlannedClock

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

_ALL_DEVICES = ("cpu", "gpu", "dla0", "dla1")
BUILDS = "builds the engine, which may take minutes"


def device_stages(order: Order) -> tuple[StageName, ...]:
    """Return the stages that an accelerator's own clock distinguishes.

    Mapped memory is read and written while the device computes, so it has no stages of its own.
    """
    computing: tuple[StageName, ...] = ("compute",) if order.head is None else ("body", "head")
    if not order.transfers or order.memory == "mapped":
        return computing
    return ("h2d", *computing, "d2h")


def check_pair(made: Mapping[str, str], read: Mapping[str, str]) -> None:
    """Raise ``UserError`` if a head does not read what its body makes in the form it is made.

    Args:
        made: Name to type and layout, in words, of the tensors of the body.
        read: The same of the inputs of the head.
    """
    remedy = "take body and head of one tegrascope inspect MODEL --cut -o DIR"
    shared = [name for name in read if name in made]
    if not shared:
        what = f"the head reads {some_of([*read])}, and the body has {some_of([*made])}"
        raise UserError(what, remedy)
    for name in shared:
        if made[name] != read[name]:
            what = f"the body makes {name!r} as {made[name]}, and the head reads {read[name]}"
            raise UserError(what, remedy)


class Backend:
    """One model on one device; derive from ``Inferring`` or from ``SelfTimed``.

    The class attributes describe the back-end. They are read without making one, so a module
    imports its library in ``__init__`` and not at its top. The last three describe what is loaded.

    Making a back-end imports its library and does nothing else. Any method may raise
    ``BackendUnavailable`` for what this machine lacks, ``UserError`` for what a person can change
    in the order or the model, and whatever the library raises.

    Attributes:
        is_simulated: Whether it computes nothing, for accelerators that the telemetry simulates.
        clock: The clock of its plan, if it only plans inferences.
        packages: Python packages of which one has to be installed.
        program: The program that it runs, unless the workload names another.
        library: The shared library that it opens, without ``lib`` and ``.so``.
        install: The remedy where a package, the program or the library is missing.
        runs: The key of a workload that names what it runs: ``model``, or one of ``SUBJECTS``.
        is_self_timed: Whether its library measures by itself, so that no other run can be held
            in step with it.
        repeats_stages: Whether it can repeat one stage of an inference alone.
        times_layers: Whether ``profile`` can time each layer.
        runs_loadables: Whether it runs standalone loadables of a DLA, and nothing else.
        runs_heads: Whether it runs an order's body and head as one inference.
        chooses_memory: Whether it takes the memory of inputs and outputs that an order names.
        builds: Whether ``build`` is called after ``load``, as a phase of its own.
        cold_start_ns: Parts of the cold start so far, by name. It is read after ``load``, ``build``
            and the first inference; new parts are taken out of the step that has just ended.
        built: The facts of the engine; ``None`` if nothing is built.
        input_shapes: Shape of each input in an inference, if it is known.
        versions: Library to version, of all that may change the result or the speed.
        progress: Called with a few words before something takes long; set by the worker.
    """

    devices: ClassVar[tuple[str, ...]] = _ALL_DEVICES
    is_simulated: ClassVar[bool] = False
    clock: ClassVar[PlannedClock | None] = None
    packages: ClassVar[tuple[str, ...]] = ()
    program: ClassVar[str | None] = None
    library: ClassVar[str | None] = None
    install: ClassVar[str] = ""
    runs: ClassVar[str] = "model"
    uses_tensorrt: ClassVar[bool] = False
    is_self_timed: ClassVar[bool] = False
    repeats_stages: ClassVar[bool] = False
    times_layers: ClassVar[bool] = False
    runs_loadables: ClassVar[bool] = False
    runs_heads: ClassVar[bool] = False
    chooses_memory: ClassVar[bool] = False
    builds: bool = False
    cold_start_ns: Mapping[str, int] = MappingProxyType({})
    built: Built | None = None
    input_shapes: Mapping[str, tuple[int, ...]] = MappingProxyType({})
    versions: Mapping[str, str] = MappingProxyType({})
    progress: Callable[[str], None] = staticmethod(lambda _doing: None)

    def load(self, model: Path, order: Order) -> None:
        """Read the model for the order's device, batch and threads, and prepare its inputs."""

    def build(self) -> None:
        """Compile what was loaded."""

    def device_peak_bytes(self) -> int | None:
        """Return the peak device memory of this process; ``None`` if it is not known."""
        return None

    def profile(self, count: int) -> LayerProfile:  # noqa: ARG002
        """Run inferences, slower because they are profiled; return the mean time of each layer."""
        raise UserError("this back-end cannot time a layer", "leave the profile out")

    def close(self) -> None:
        """Release the model, its memory and its threads; called once, after anything."""

    def check_device(self, order: Order) -> None:
        """Raise ``BackendUnavailable`` if the back-end does not run on the order's device."""
        if order.device not in self.devices:
            raise BackendUnavailable(
                f"{order.backend} has no device {order.device!r}",
                f"use one of {', '.join(self.devices)}",
            )

    @classmethod
    def check(cls, model: str, device: str, settings: InferenceSettings) -> None:
        """Raise ``UserError`` if it is known before a run that the back-end cannot carry it out."""

    @classmethod
    def memory_problem(cls, settings: InferenceSettings) -> str | None:
        """Return why the back-end does not take the memory of these settings, if it does not."""
        if settings.memory is None:
            return None
        if not cls.chooses_memory:
            return "memory is for the back-end tensorrt: any other has buffers of its own"
        if not settings.transfers:
            return (
                "memory is for inputs and outputs that are transferred: without transfers none is"
            )
        return None

    @classmethod
    def loads(cls, model: str, device: str, settings: InferenceSettings) -> Mapping[str, float]:  # noqa: ARG003
        """Return the share of its time in which an inference keeps each lane of the board busy."""
        return {device: 1.0}

    @classmethod
    def memory_need(cls, model: Path, order: Order, free: int) -> MemoryNeed | None:  # noqa: ARG003
        """Return what the worker takes with the model, or ``None`` if it is unknown.

        ``free`` are the bytes that can be had, which the answer may have to do with as well.
        """
        return None

    def take(self, surroundings: Surroundings) -> None:
        """Note how the other work on a simulated board slows it; from another thread."""


class InferenceSlot(Protocol):
    """Room for one inference in flight."""

    def submit(self) -> None:
        """Start an inference while the slot is free; return before it is complete."""

    def submit_timed(self) -> None:
        """Start one likewise that the device times."""

    def wait(self) -> None:
        """Return when the inference is complete; the slot is free then."""

    def stages_ns(self) -> Sequence[int]:
        """Return the time of each of the back-end's ``stages`` in the last timed inference."""


class Inferring(Backend):
    """A back-end that runs one inference per call.

    ``slots`` are for as many inferences in flight; none, if it has room for one alone.
    """

    stages: tuple[StageName, ...] = ()
    slots: Sequence[InferenceSlot] = ()

    def infer(self) -> None:
        """Run one inference of ``batch`` inputs; it is complete when this returns."""
        raise NotImplementedError

    def infer_timed(self) -> None:
        """Run one inference that the device times, which may make it longer."""
        self.infer()

    def stages_ns(self) -> Sequence[int]:
        """Return the time of each of ``stages`` in the last timed inference."""
        return ()

    def repeat(self, stage: StageName, count: int) -> Callable[[], None]:  # noqa: ARG002
        """Return a call that runs one stage so often, back to back; it is complete then.

        An inference must have run. Its inputs and results are what the stage works on.
        """
        raise UserError(f"this back-end cannot repeat {stage} alone", "leave --stages out")

    def inputs(self) -> "Mapping[str, NDArray[numpy.generic]]":
        """Return the inputs of the next inference, by name, with their batch."""
        raise NotImplementedError

    def feed(self, inputs: "Mapping[str, NDArray[numpy.generic]]") -> None:
        """Take other inputs of the same types and shapes from the next inference on."""
        raise NotImplementedError

    def outputs(self) -> "Mapping[str, NDArray[numpy.generic]]":
        """Return the results of the last inference, by the name of the output.

        They are none at all if they cannot be compared with those of another back-end.
        """
        raise NotImplementedError


class SelfTimed(Backend, ABC):
    """A back-end whose library runs both phases by itself; ``built`` is read again after it."""

    is_self_timed = True

    @abstractmethod
    def measure(self, order: Order, stop: Event) -> Iterator[Phase | Inferences | Counted]:
        """Run warm-up and steady phase; once ``stop`` is set, end soon, without a further event."""


_SEED = 20240229
# Types of which data can be made, by numpy's name. ONNX Runtime has other names for two of them.
_DTYPES = (
    *("bool", "float16", "float32", "float64", "int8", "int16", "int32", "int64"),
    *("uint8", "uint16", "uint32", "uint64"),
)
# Of a picture or of a series; its patches are at most half as many as its values.
_SHORTEST_SIDE = 32
_NOISE_SHARES = (0.0, 0.1, 0.3, 0.6)
_NUMPY_NAMES = {"float": "float32", "double": "float64"}


Declared = Sequence[int | str | None]


def input_shapes(declared: Mapping[str, Declared], order: Order) -> dict[str, tuple[int, ...]]:
    """Return the shape of each input of a model at which an order measures it.

    The first dimension of an input without a shape of its own is or becomes the batch, but for a
    fixed vector beside inputs of more dimensions.

    Args:
        declared: Name to shape, as the model has it; a name or ``None`` is a dynamic dimension.

    Raises:
        UserError: The model fixes another shape or batch, or leaves a dimension open; or the order
            names another input, or shapes of which none begins with its batch.
    """
    given, batch = order.shapes, order.batch
    for name, chosen in given.items():
        if name not in declared:
            raise UserError(
                f"the model has no input {name!r}", f"its inputs are {', '.join(declared)}"
            )
        _check_ranks(name, declared[name], chosen)
    _check_batch(given, batch)
    has_batch_elsewhere = any(len(shape) > 1 for shape in declared.values())
    shapes: dict[str, tuple[int, ...]] = {}
    for name, shape in declared.items():
        if name in given:
            shapes[name] = given[name].shape
        elif has_batch_elsewhere and len(shape) == 1 and isinstance(shape[0], int):
            # A fixed vector beside an image is a list of lengths or of factors, not one item per
            # image.
            shapes[name] = (shape[0],)
        else:
            shapes[name] = _batched(name, shape, batch)
    return shapes


def _check_batch(given: Mapping[str, InputShape], batch: int) -> None:
    """Raise ``UserError`` if shapes are given and none begins with the batch."""
    firsts = [chosen.shape[:1] for chosen in given.values()]
    if firsts and (batch,) not in firsts:
        fitting = firsts[0][0] if firsts[0] else 1
        raise UserError(f"no shape begins with the batch of {batch}", f"set batch: {fitting}")


def _check_ranks(name: str, declared: Declared, given: InputShape) -> None:
    """Raise ``UserError`` if the model does not take a given shape, or an end of its range."""
    for lengths in (given.shape, *given.range):
        if not _is_possible(declared, lengths):
            own = "x".join(str(length) if isinstance(length, int) else "?" for length in declared)
            raise UserError(
                f"input {name!r} has the shape {own}, not {'x'.join(map(str, lengths))}",
                "only an open dimension (?) can be chosen",
            )


def _is_possible(declared: Declared, lengths: Sequence[int]) -> bool:
    """Return whether lengths differ from a declared shape in open dimensions only."""
    if len(lengths) != len(declared):
        return False
    for own, length in zip(declared, lengths, strict=True):
        if isinstance(own, int) and own != length:
            return False
    return True


def _batched(name: str, shape: Declared, batch: int) -> tuple[int, ...]:
    if shape and isinstance(shape[0], int) and shape[0] != batch:
        raise UserError(
            f"the model fixes a batch of {shape[0]} for input {name!r}, not {batch}",
            f"set batch: {shape[0]}, or export the model with a dynamic first dimension",
        )
    lengths = []
    for place, length in enumerate(shape):
        if isinstance(length, int):
            lengths.append(length)
        elif place == 0:
            lengths.append(batch)
        else:
            raise UserError(
                f"input {name!r} leaves dimension {place} open ({length or 'unnamed'})",
                f"give its shape, shapes: {{{name}: [{batch}, …]}} or --shape, or export the model"
                " with a fixed one",
            )
    return tuple(lengths)


def make_input(
    name: str, kind: str, shape: tuple[int, ...], seed: int = _SEED
) -> "NDArray[numpy.generic]":
    """Return seeded data for an input: the same in every process and on every machine.

    Whole numbers are 0 and 1, which are in range for whatever they index. A type that cannot be
    generated raises ``UserError``.

    Args:
        kind: Its type as ONNX Runtime prints it, ``tensor(float)``, or numpy, ``float32``.
    """
    import numpy

    type_name = kind.removeprefix("tensor(").removesuffix(")")
    type_name = _NUMPY_NAMES.get(type_name, type_name)
    if type_name not in _DTYPES:
        raise UserError(
            f"input {name!r} is a {kind}", "export the model with numeric tensor inputs"
        )
    random = numpy.random.RandomState(seed)  # its stream is frozen for good, a Generator's is not
    dtype = numpy.dtype(type_name)
    if dtype.kind == "f":
        return numpy.asarray(random.uniform(-1.0, 1.0, shape), dtype=dtype)
    return numpy.asarray(random.randint(0, 2, shape), dtype=dtype)


def make_varied(usual: "NDArray[numpy.generic]", begin: int) -> "NDArray[numpy.generic]":
    """Return inputs to which a model gives different answers; item k is the same in every process.

    Noise looks alike to a network, whatever its seed. These items are patches of random values,
    from coarse to fine, under more or less noise.

    Args:
        usual: A batch as ``make_input`` returns it.
        begin: Number of the first item of the batch.
    """
    import numpy

    items = [numpy.asarray(_varied(usual, begin + place)) for place in range(len(usual))]
    return numpy.stack(items).astype(usual.dtype)


def _varied(usual: "NDArray[numpy.generic]", number: int) -> "NDArray[Any]":
    """Return one item, without its batch."""
    import numpy

    random = numpy.random.RandomState(_SEED + number)
    shape = usual.shape[1:]
    if usual.dtype.kind != "f":
        return random.randint(0, 2, shape)
    cells = 2 ** (1 + number % 4)
    # Axes of channels are shorter, and keep a value of their own for each.
    sides = [axis for axis, length in enumerate(shape) if length >= _SHORTEST_SIDE]
    patches = random.uniform(-1.0, 1.0, [cells if at in sides else n for at, n in enumerate(shape)])
    for axis in sides:
        patches = patches.take(numpy.arange(shape[axis]) * cells // shape[axis], axis=axis)
    noise = _NOISE_SHARES[number // 2 % len(_NOISE_SHARES)]
    return (1 - noise) * patches + noise * random.uniform(-1.0, 1.0, shape)


def lacks_operator(model: str, operator: str) -> UserError:
    """Return the error for a model with an operator that TensorRT and its plug-ins lack."""
    return UserError(
        f"{model} needs the operator {operator}, which TensorRT lacks, and no plug-in of this name"
        " is loaded",
        "name its library (plugins: [/path/lib.so] or --plugin), or export the model without it",
    )


def too_new(model: Path, version: str, reason: str) -> UserError | None:
    """Return the error for a model that TensorRT did not read because of its opset, or ``None``.

    Args:
        version: The release of TensorRT.
        reason: Why it did not read the model, in its own words.
    """
    opset, newest = facts_of(model).opset, newest_opset(version)
    if opset is None or newest is None or opset <= newest:
        return None
    release = ".".join(version.split(".")[:2])
    return UserError(
        f"{model.name} has opset {opset}; TensorRT {release} reads up to {newest} ({reason})",
        # The newer exporter of torch writes 18 at least, so that it cannot be asked for 17.
        f"export it with torch.onnx.export(…, dynamo=False, opset_version={newest})",
    )


def require_pure(model: str, placement: Placement) -> None:
    """Raise ``UserError`` if an engine computes on the GPU, or its placement is unknown."""
    if placement.verdict in ("pure_dla", "dla_plus_reformat"):
        return
    remedy = "set fallback: allow, or change these layers"
    if placement.verdict == "unknown":
        what = "TensorRT does not say where the layers of the engine run"
        remedy = "set fallback: forbid, which fails to build where a layer needs the GPU"
    else:
        names = placement.gpu_layers
        what = f"{len(names)} layers run on the GPU: {some_of(names)}"
    raise UserError(f"{model} is not pure on the DLA: {what}", remedy)
