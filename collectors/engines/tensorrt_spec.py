"""What TensorRT is to build, and what came of it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ...parsers.built import Fallback, Precision


@dataclass(frozen=True)
class BuildSpec:
    """What is to be built.

    Attributes:
        model: The ONNX file.
        device: The kind of device; which core of the DLA is decided when the engine is loaded.
        batch: Inputs an inference; the engine takes no other.
        precision: As asked for; ``None`` leaves it to what the model is.
        fallback: For layers that a DLA refuses.
        optimization_level: 0 to 5; ``None`` is TensorRT's own choice.
    """

    model: Path
    device: Literal["gpu", "dla"]
    batch: int = 1
    precision: Precision | None = None
    fallback: Fallback = "allow"
    optimization_level: int | None = None

    def parts(self) -> dict[str, str]:
        """Return what an engine built by it depends on, its model apart, for the cache's key.

        ``require-pure`` builds as ``allow`` does and then looks at what came of it.
        """
        fallback = {"require-pure": "allow"}.get(self.fallback, self.fallback)
        return {
            "device": self.device,
            "batch": str(self.batch),
            "precision": self.precision or "model",
            "fallback": fallback if self.device == "dla" else "none",
            "optimization_level": str(self.optimization_level),
        }


@dataclass(frozen=True)
class Plan:
    """A serialised engine, and how it came to be.

    Attributes:
        content: The engine.
        is_strongly_typed: Whether the model's own types were obeyed.
        int8_scales: Where the scales of an int8 engine are from.
        build_seconds: How long reading the model and building took.
        log: What TensorRT said.
        notes: What a person should know, a line each.
    """

    content: bytes
    is_strongly_typed: bool
    int8_scales: Literal["dummy", "explicit"] | None
    build_seconds: float
    log: tuple[str, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Prepared:
    """A network with all that it is to be built with.

    Attributes:
        builder: Of the library.
        network: The model.
        parser: What read it; it owns the weights, so it has to live as long as the network.
        config: Device, types and shapes.
        is_strongly_typed: Whether the model's own types are obeyed.
        int8_scales: Where the scales of an int8 engine are from.
        notes: What a person should know, a line each.
    """

    builder: Any
    network: Any
    parser: Any
    config: Any
    is_strongly_typed: bool
    int8_scales: Literal["dummy", "explicit"] | None
    notes: list[str]
