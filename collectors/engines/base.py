"""What the worker asks of an inference back-end."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from ...parsers.errors import Mendable
from ...parsers.run_events import Order, StageName


class EngineUnavailable(Mendable):
    """A back-end, its library or its device is not on this machine; says what to install."""


class Engine(Protocol):
    """One model on one device. Making an engine imports its library and does nothing else.

    Any method may raise: ``EngineUnavailable`` for what this machine lacks, ``Mendable`` for what
    a person can change in the order or the model, and whatever the library raises.

    Attributes:
        builds: True where the back-end compiles the model: ``build`` is then called after
            ``load``, and is a phase of its own.
        stages: The stages that ``stages_ns`` tells apart; empty where the back-end cannot.
    """

    @property
    def builds(self) -> bool: ...  # noqa: D102
    @property
    def stages(self) -> tuple[StageName, ...]: ...  # noqa: D102

    def load(self, model: Path, order: Order) -> None:
        """Read the model for the order's device, batch and threads, and prepare its inputs."""

    def build(self) -> None:
        """Compile what was loaded."""

    def infer(self) -> None:
        """Run one inference of ``batch`` inputs; it is complete when this returns."""

    def stages_ns(self) -> Sequence[int]:
        """Return the time of each of ``stages`` in the last inference."""

    def versions(self) -> dict[str, str]:
        """Return library to version, of all that may change the result or the speed."""

    def close(self) -> None:
        """Release the model, its memory and its threads; called once, after anything."""
