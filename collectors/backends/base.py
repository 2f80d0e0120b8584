"""The interface of an inference back-end, with defaults; how one describes itself; its inputs."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, ClassVar, Protocol, runtime_checkable

from ...parsers.errors import BackendUnavailable, Mendable
from ...parsers.inference.events import Counted, Inferences, Order, Phase, StageName
from ...parsers.inference.placement import Built

if TYPE_CHECKING:
    import numpy

_ALL_DEVICES = ("cpu", "gpu", "dla0", "dla1")
# Keys of a workload that back-ends of TensorRT read.
BUILD_SETTINGS = frozenset(
    {"precision", "optimization_level", "fallback", "streams", "cuda_graph", "transfers"}
)


class Backend:
    """One model on one device.

    The class attributes describe the back-end. They are read without making one, so a module
    imports its library in ``__init__`` and not at its top.

    Making a back-end imports its library and does nothing else. Any method may raise
    ``BackendUnavailable`` for what this machine lacks, ``Mendable`` for what a person can change
    in the order or the model, and whatever the library raises.

    A back-end derives from ``Inferring`` or from ``SelfTimed``.

    Attributes:
        devices: The devices that it runs on.
        plays_any_device: Whether it stands for any device where the telemetry is simulated.
        packages: Python packages of which one has to be installed.
        program: The program that it runs, unless the workload names another.
        install: The remedy where a package or the program is missing.
        settings: Keys of a workload that it reads, next to those that every back-end reads.
        runs_programs: Whether it takes a command in place of a model.
        uses_tensorrt: Whether it needs TensorRT.
        is_self_timed: Whether its library measures by itself, so that no other run can be held
            in step with it.
        builds: Whether it compiles the model: ``build`` is then called after ``load``, and is a
            phase of its own.
    """

    devices: ClassVar[tuple[str, ...]] = _ALL_DEVICES
    plays_any_device: ClassVar[bool] = False
    packages: ClassVar[tuple[str, ...]] = ()
    program: ClassVar[str | None] = None
    install: ClassVar[str] = ""
    settings: ClassVar[frozenset[str]] = frozenset()
    runs_programs: ClassVar[bool] = False
    uses_tensorrt: ClassVar[bool] = False
    is_self_timed: ClassVar[bool] = False
    builds: bool = False

    def load(self, model: Path, order: Order) -> None:
        """Read the model for the order's device, batch and threads, and prepare its inputs."""

    def build(self) -> None:
        """Compile what was loaded."""

    def cold_start_ns(self) -> Mapping[str, int]:
        """Return the parts of a cold start that it can distinguish, by name.

        Asked after ``load``, after ``build`` and after the first inference. Each time it returns
        all parts so far; those that are new are taken out of the step that has just ended.
        """
        return {}

    def built(self) -> Built | None:
        """Return what was made of the model; ``None`` if nothing is built."""
        return None

    def device_peak_bytes(self) -> int | None:
        """Return the peak device memory of this process; ``None`` if it is not known."""
        return None

    def versions(self) -> dict[str, str]:
        """Return library to version, of all that may change the result or the speed."""
        return {}

    def close(self) -> None:
        """Release the model, its memory and its threads; called once, after anything."""

    def check_device(self, order: Order) -> None:
        """Raise ``BackendUnavailable`` if the back-end does not run on the order's device."""
        known = _ALL_DEVICES if self.plays_any_device else self.devices
        if order.device not in known:
            raise BackendUnavailable(
                f"{order.backend} has no device {order.device!r}", f"use one of {', '.join(known)}"
            )


class Inferring(Backend):
    """A back-end that runs one inference per call.

    Attributes:
        stages: The stages that ``stages_ns`` distinguishes.
    """

    stages: tuple[StageName, ...] = ()

    def infer(self) -> None:
        """Run one inference of ``batch`` inputs; it is complete when this returns."""
        raise NotImplementedError

    def stages_ns(self) -> Sequence[int]:
        """Return the time of each of ``stages`` in the last inference."""
        return ()

    def outputs(self) -> "Mapping[str, numpy.ndarray]":
        """Return the results of the last inference, by the name of the output."""
        raise NotImplementedError


class SelfTimed(Backend, ABC):
    """A back-end whose library runs the warm-up and the steady phase by itself.

    ``built`` of such a back-end is asked again after the run.
    """

    is_self_timed = True

    @abstractmethod
    def measure(self, order: Order, stop: Event) -> Iterator[Phase | Inferences | Counted]:
        """Run both phases, and yield their events.

        Args:
            order: The run; its model, device and settings are those of ``load``.
            stop: Once set, the run ends soon, without a further event.
        """


@runtime_checkable
class Pipelined(Protocol):
    """A back-end that can have several inferences in flight, each in a slot of its own."""

    def submit(self, slot: int) -> None:
        """Start an inference in a slot that is free, and return before it is complete."""

    def wait(self, slot: int) -> None:
        """Return when the inference in a slot is complete; the slot is free then."""

    def slot_stages_ns(self, slot: int) -> Sequence[int]:
        """Return the time of each of ``stages`` in the slot's last inference."""


@runtime_checkable
class Profiled(Protocol):
    """A back-end that can measure the time of each layer, in a pass of its own."""

    def profile(self, count: int) -> Mapping[str, int]:
        """Run inferences, slower because they are profiled; return mean nanoseconds by layer."""


if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

_SEED = 20240229
_DTYPES = {
    "tensor(float16)": "float16",
    "tensor(float)": "float32",
    "tensor(double)": "float64",
    "tensor(int8)": "int8",
    "tensor(int16)": "int16",
    "tensor(int32)": "int32",
    "tensor(int64)": "int64",
    "tensor(uint8)": "uint8",
    "tensor(uint16)": "uint16",
    "tensor(uint32)": "uint32",
    "tensor(uint64)": "uint64",
    "tensor(bool)": "bool",
}


def input_shape(name: str, shape: Sequence[int | str | None], batch: int) -> tuple[int, ...]:
    """Return the shape of an input at a batch.

    Args:
        shape: As the model declares it; a name or ``None`` is a dynamic dimension.
        batch: Inputs an inference: what the first dimension is or becomes.

    Raises:
        Mendable: The model fixes another batch, or leaves another dimension open.

    >>> input_shape("image", ["N", 3, 224, 224], 4)
    (4, 3, 224, 224)
    """
    if not shape:
        return ()
    first, *others = shape
    if isinstance(first, int) and first != batch:
        raise Mendable(
            f"the model fixes a batch of {first} for input {name!r}, not {batch}",
            f"set batch: {first}, or export the model with a dynamic first dimension",
        )
    fixed = [batch]
    for place, length in enumerate(others, start=1):
        if not isinstance(length, int):
            raise Mendable(
                f"input {name!r} leaves dimension {place} open ({length or 'unnamed'})",
                "export the model with a fixed shape: only the first dimension may be dynamic",
            )
        fixed.append(length)
    return tuple(fixed)


def make_input(name: str, kind: str, shape: tuple[int, ...]) -> "NDArray[numpy.generic]":
    """Return seeded data for an input: the same in every process and on every machine.

    Whole numbers are 0 and 1, which are in range for whatever they index.

    Args:
        kind: Its type as ONNX Runtime prints it: ``tensor(float)``.

    Raises:
        Mendable: No data can be made of that type.
    """
    import numpy

    if kind not in _DTYPES:
        raise Mendable(f"input {name!r} is a {kind}", "export the model with numeric tensor inputs")
    random = numpy.random.RandomState(_SEED)  # its stream is frozen for good, a Generator's is not
    dtype = numpy.dtype(_DTYPES[kind])
    if dtype.kind == "f":
        return numpy.asarray(random.uniform(-1.0, 1.0, shape), dtype=dtype)
    return numpy.asarray(random.randint(0, 2, shape), dtype=dtype)
