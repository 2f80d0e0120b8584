"""What the worker asks of an inference back-end."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from ...parsers.errors import BackendUnavailable
from ...parsers.errors import DeviceLostError as DeviceLostError
from ...parsers.inference.events import Counted, Inferences, Order, Phase, StageName
from ...parsers.inference.placement import Built

if TYPE_CHECKING:
    import numpy

EngineUnavailable = BackendUnavailable


class Engine(Protocol):
    """One model on one device. Making an engine imports its library and does nothing else.

    Any method may raise: ``EngineUnavailable`` for what this machine lacks, ``Mendable`` for what
    a person can change in the order or the model, and whatever the library raises.

    It is either ``Inferring`` or ``SelfTimed``.

    Attributes:
        builds: True where the back-end compiles the model: ``build`` is then called after
            ``load``, and is a phase of its own.
    """

    @property
    def builds(self) -> bool: ...  # noqa: D102

    def load(self, model: Path, order: Order) -> None:
        """Read the model for the order's device, batch and threads, and prepare its inputs."""

    def build(self) -> None:
        """Compile what was loaded."""

    def cold_start_ns(self) -> Mapping[str, int]:
        """Return the parts of a cold start that can be told apart, by name.

        Asked after ``load``, after ``build`` and after the first inference. Each time it returns
        all parts so far; those that are new are taken out of the step that has just ended.
        """

    def built(self) -> Built | None:
        """Return what was made of the model; ``None`` where nothing is built."""

    def device_peak_bytes(self) -> int | None:
        """Return the peak device memory of this process; ``None`` where that cannot be told."""

    def versions(self) -> dict[str, str]:
        """Return library to version, of all that may change the result or the speed."""

    def close(self) -> None:
        """Release the model, its memory and its threads; called once, after anything."""


@runtime_checkable
class Inferring(Engine, Protocol):
    """An engine that is told each inference.

    Attributes:
        stages: The stages that ``stages_ns`` tells apart; empty where the back-end cannot.
    """

    @property
    def stages(self) -> tuple[StageName, ...]: ...  # noqa: D102

    def infer(self) -> None:
        """Run one inference of ``batch`` inputs; it is complete when this returns."""

    def stages_ns(self) -> Sequence[int]:
        """Return the time of each of ``stages`` in the last inference."""

    def outputs(self) -> "Mapping[str, numpy.ndarray]":
        """Return what the last inference gave, by the name of the output."""


@runtime_checkable
class SelfTimed(Engine, Protocol):
    """An engine whose library runs the warm-up and the steady phase by itself, whole.

    ``built`` of such an engine is asked again after the run.
    """

    def measure(self, order: Order, stop: Event) -> Iterator[Phase | Inferences | Counted]:
        """Run both phases, and yield the events that the worker is to tell of them.

        Args:
            order: The run; its model, device and settings are those of ``load``.
            stop: Once set, the run ends soon, without a further event.
        """


@runtime_checkable
class Pipelined(Protocol):
    """An engine that can have several inferences in flight, each in a slot of its own."""

    def submit(self, slot: int) -> None:
        """Start an inference in a slot that is free, and return before it is complete."""

    def wait(self, slot: int) -> None:
        """Return when the inference in a slot is complete; the slot is free then."""

    def slot_stages_ns(self, slot: int) -> Sequence[int]:
        """Return the time of each of ``stages`` in the slot's last inference."""


@runtime_checkable
class Profiled(Protocol):
    """An engine that can tell the time of each layer, in a pass of its own."""

    def profile(self, count: int) -> Mapping[str, int]:
        """Run inferences that are slower for being watched; return mean nanoseconds by layer."""
