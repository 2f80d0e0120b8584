"""An engine by trtexec: what it depends on, how it is asked for, and what came of it."""

import hashlib
import mmap
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from ...parsers.built import Built, Precision
from ...parsers.errors import Mendable, UnreadableError
from ...parsers.onnx_inputs import ModelFacts, read_model
from ...parsers.placement import layer_types, placement_of
from ...parsers.run_events import Order
from ...parsers.trtexec_flags import (
    Wanted,
    build_arguments,
    chooses_types,
    is_typed,
    options_in,
)
from ..engine_cache import model_digest
from ..engine_parts import machine_parts
from ..models import BUILTIN_PREFIX
from .inputs import input_shape
from .trtexec_child import failure, run

# Of what it prints at its most talkative, only what tells of layers is kept.
_OF_LAYERS = ("[DlaLayer]", "[GpuLayer]", "Layer(", "Layers Running on", "offloaded to DLA")
_VERBOSE = "[V] "


@dataclass(frozen=True)
class Made:
    """An engine that was just built.

    Attributes:
        plan: The engine.
        built: What is known of it.
        log: What trtexec said of it.
        inspector: The engine as the inspector tells it; ``None`` where it does not.
    """

    plan: bytes
    built: Built
    log: tuple[str, ...]
    inspector: str | None


class Builder:
    """One model for one device, and the trtexec that is to build it.

    Attributes:
        program: Full path of trtexec, and arguments that come before all others.
        help_text: What it prints of itself.
        offered: The options in that.
    """

    def __init__(self, program: tuple[str, ...], help_text: str, model: Path, order: Order) -> None:
        """Read the inputs of the model.

        Raises:
            Mendable: It is no ONNX model, or its shapes do not fit the order.
        """
        self.program = program
        self.help_text = help_text
        self.offered = options_in(help_text)
        self._model = model
        self._order = order
        self._facts = _facts_of(model)
        shapes = {
            one.name: (input_shape(one.name, one.shape, order.batch), one.is_open)
            for one in self._facts.inputs
        }
        self._shapes = {name: shape for name, (shape, is_open) in shapes.items() if is_open}

    @property
    def model_name(self) -> str:
        """The model as people call it."""
        asked = self._order.model
        return asked if asked.startswith(BUILTIN_PREFIX) else self._model.name

    def chooses(self, precision: Precision) -> bool:
        """Tell whether this trtexec can be asked for a precision."""
        return chooses_types(self.offered, precision)

    def wanted(self, order: Order) -> Wanted:
        """Say what an order asks of trtexec."""
        return Wanted(
            device=order.device,
            shapes=self._shapes,
            precision=order.precision or "fp16",
            fallback=order.fallback,
            optimization_level=order.optimization_level,
            streams=order.streams,
            cuda_graph=order.cuda_graph,
            transfers=order.transfers,
            warm_up_seconds=order.warm_up_seconds,
            duration_seconds=order.duration_seconds,
            count=order.count,
        )

    def key_parts(self) -> dict[str, str]:
        """Say all that an engine depends on; one plan serves both cores of a DLA."""
        is_dla = self._order.device != "gpu"
        kind = "dla0" if is_dla else "gpu"
        wanted = self.wanted(self._order.model_copy(update={"device": kind}))
        arguments = build_arguments(self.offered, wanted, model="", plan="", layers="")
        about = Path(self.program[0]).stat()
        return {
            "builder": "trtexec",
            "model": model_digest(self._model),
            "device": "dla" if is_dla else "gpu",
            "batch": str(self._order.batch),
            "precision": wanted.precision if self.chooses(wanted.precision) else "model",
            "arguments": " ".join(arguments),
            "program": " ".join(self.program),
            "program_file": f"{about.st_size} {about.st_mtime_ns}",
            "help": hashlib.sha256(self.help_text.encode()).hexdigest(),
            **{f"machine_{name}": value for name, value in machine_parts(is_dla=is_dla).items()},
        }

    def build(self, part: Path) -> Made:
        """Let trtexec build.

        Args:
            part: Where it is to write the engine; nothing is left there.

        Raises:
            Mendable: It could not; ``EngineUnavailable`` for what this machine lacks.
        """
        order, wanted = self._order, self.wanted(self._order)
        with TemporaryDirectory(prefix="tegrascope-") as folder:
            layers = Path(folder) / "layers.json"
            arguments = build_arguments(
                self.offered, wanted, model=str(self._model), plan=str(part), layers=str(layers)
            )
            argv = [*self.program, *arguments]
            try:
                said = run(argv, heard=_matters)
                if said.returncode != 0 or not part.is_file():
                    raise failure("build", said, argv)
                plan = part.read_bytes()
            finally:
                part.unlink(missing_ok=True)
            inspector = None
            if layers.is_file():
                inspector = layers.read_text(encoding="utf-8", errors="replace")
        scales: Literal["explicit", "dummy"] = "explicit" if self._facts.is_quantised else "dummy"
        built = Built(
            layer_types=layer_types(inspector),
            is_strongly_typed=is_typed(self.offered),
            int8_scales=scales if wanted.precision == "int8" else None,
            placement=placement_of(said.lines, inspector, order.device),
            engine_bytes=len(plan),
        )
        return Made(plan, built, said.lines, inspector)


def _matters(line: str) -> bool:
    """Tell whether a line of a build is worth keeping."""
    return _VERBOSE not in line[:64] or any(sign in line for sign in _OF_LAYERS)


def _facts_of(model: Path) -> ModelFacts:
    try:
        with model.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return read_model(data)
    except (OSError, ValueError, UnreadableError) as error:
        raise Mendable(f"{model} is no ONNX model ({error})", "give an ONNX file") from error
