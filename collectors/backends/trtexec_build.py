"""trtexec as a child: heard line by line, and gone when the worker is."""

import hashlib
import mmap
import shutil
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event
from typing import Literal

from ...parsers.errors import BackendUnavailable, Mendable, UnreadableError
from ...parsers.inference.events import Order
from ...parsers.inference.placement import Built, Precision, layer_types, placement_of
from ...parsers.inference.trtexec import (
    Wanted,
    build_arguments,
    chooses_types,
    is_typed,
    message_of,
    options_in,
    reason_in,
)
from ...parsers.onnx.inputs import ModelFacts, read_model
from ..base import SYSTEM_CLOCK, Clock, Stamped
from ..children.process import Quiet
from ..children.start import start_tied
from ..models.files import BUILTIN_PREFIX
from .base import input_shape
from .engine_cache import machine_parts, model_digest

DEFAULT_PROGRAM = "/usr/src/tensorrt/bin/trtexec"
_LINES_AT_MOST = 4000
_POLL_SECONDS = 0.1
# A line for every ten inferences, of which there may be thousands.
_AVERAGE = "] Average on "
# What the delay between the print of a line and its stamp may amount to.
_PIPE_NS = 2_000_000
_MEND_CUDA = "install the NVIDIA driver, and let this user open the devices of the GPU"
_NO_CUDA = (
    "cuda driver version is insufficient",
    "cuda initialization failure",
    "no cuda-capable device",
)


@dataclass(frozen=True)
class Said:
    """Output and end of a child.

    Attributes:
        returncode: Its exit status; ``None`` where it was stopped.
    """

    lines: tuple[str, ...] = ()
    returncode: int | None = None

    @property
    def reason(self) -> str:
        """The error that it told, or else the last thing that it said."""
        found = reason_in(self.lines)
        if found is not None:
            return found
        words = (message_of(line) for line in reversed(self.lines))
        last = next((text for text in words if text and not text.startswith("&&&&")), None)
        return last or f"exit status {self.returncode}, and no word"


def find_program(program: Sequence[str]) -> tuple[str, ...]:
    """Return trtexec's full path, and arguments that come before all others.

    Args:
        program: As ordered; empty looks where JetPack puts it, then along ``PATH``.

    Raises:
        BackendUnavailable: It is not there.
    """
    if program:
        found = shutil.which(program[0])
        asked = program[0]
    else:
        found = shutil.which(DEFAULT_PROGRAM) or shutil.which("trtexec")
        asked = DEFAULT_PROGRAM
    if found is None:
        raise BackendUnavailable(
            f"there is no trtexec at {asked}",
            "apt install libnvinfer-bin, or give its path as trtexec: in the workload",
        )
    return (str(Path(found).absolute()), *program[1:])


def run(argv: Sequence[str], heard: Callable[[str], bool] = lambda _: True) -> Said:
    """Run a program to its end.

    Args:
        heard: Takes each line of its output; keeps it where it returns True.
    """
    lines: deque[str] = deque(maxlen=_LINES_AT_MOST)
    with start_tied(argv) as child:
        while (line := child.read()) is not Quiet.END:
            if isinstance(line, Stamped) and heard(line.value):
                lines.append(line.value)
    return Said((*lines, *child.last_words), child.returncode)


class Measuring:
    """A trtexec that measures, and when it said what.

    Attributes:
        started_ns: CLOCK_MONOTONIC before it was.
        began_ns: When it said that it begins to infer; ``None`` where it did not.
        said: All of it, once it has ended.
    """

    def __init__(self, argv: Sequence[str], clock: Clock = SYSTEM_CLOCK) -> None:
        self.argv = tuple(argv)
        self.started_ns = clock.monotonic_ns()
        self.began_ns: int | None = None
        self.done_ns: int | None = None
        self.said = Said()
        self._clock = clock

    def follow(self, stop: Event, warm_up_ns: int) -> Iterator[int]:
        """Run it to its end; yield once, when its warm-up is due to be over.

        Args:
            stop: Once set, the child is ended.
        """
        lines: deque[str] = deque(maxlen=_LINES_AT_MOST)
        is_told = False
        with start_tied(self.argv) as child:
            while (line := child.read(_POLL_SECONDS)) is not Quiet.END:
                if stop.is_set():
                    return
                if isinstance(line, Stamped) and _AVERAGE not in line.value:
                    lines.append(line.value)
                    self._hear(line)
                if is_told or self.began_ns is None:
                    continue
                due_ns = self.began_ns + warm_up_ns
                if self._clock.monotonic_ns() >= due_ns and self.done_ns is None:
                    is_told = True
                    yield due_ns
        self.said = Said((*lines, *child.last_words), child.returncode)

    def _hear(self, line: Stamped[str]) -> None:
        text = message_of(line.value)
        if text.startswith("Starting inference"):
            self.began_ns = line.monotonic_ns
        elif text.startswith("Warmup completed") and self.done_ns is None:
            self.done_ns = line.monotonic_ns


def place_zero(
    started_ns: int, began_ns: int | None, done_ns: int, length_ns: int
) -> tuple[int, int]:
    """Place trtexec's own zero on our clock.

    Its times count from a moment that it does not tell. That moment lies after the line that
    says that it begins, and early enough that the last inference was complete when it said that
    it is done. The middle of the two is taken, and half the distance is the uncertainty, plus
    the delay of a pipe and the six digits of a time. If the first line comes too late to be
    true (it was held back), the start of the process stands for it.

    Args:
        began_ns: When it said that it begins; ``None`` where it did not.

    Returns:
        The zero and by how much it may be wrong either way, both in nanoseconds.

    >>> place_zero(0, 1_000_000_000, 4_010_000_000, 3_000_000_000)
    (1005000000, 7005000)
    """
    latest_ns = done_ns - length_ns
    earliest_ns = started_ns
    if began_ns is not None and began_ns <= latest_ns + _PIPE_NS:
        earliest_ns = min(began_ns, latest_ns)
    half_ns = abs(latest_ns - earliest_ns) // 2
    rounding_ns = 10 ** len(str(length_ns // 1_000_000)) // 2
    return (earliest_ns + latest_ns) // 2, half_ns + _PIPE_NS + rounding_ns


def help_of(program: Sequence[str]) -> str:
    """Return the help text of trtexec.

    Raises:
        BackendUnavailable: It does not start, or does not print the help of trtexec.
    """
    said = run([*program, "--help"])
    text = "\n".join(said.lines)
    if said.returncode != 0 or "--onnx" not in text:
        raise BackendUnavailable(
            f"{program[0]} does not answer --help as trtexec does ({said.reason})",
            "install TensorRT whole, or give the path of trtexec as trtexec: in the workload",
        )
    return text


def failure(doing: str, said: Said, argv: Sequence[str]) -> Mendable:
    """Return what a failed trtexec amounts to.

    Args:
        doing: The failed step: ``build`` or ``measure``.
    """
    reason = said.reason
    if "Cannot create DLA engine" in reason:
        return BackendUnavailable(
            f"trtexec finds no such DLA ({reason})",
            "use device: gpu, or a board whose TensorRT supports its DLA",
        )
    if any(sign in line.lower() for line in said.lines for sign in _NO_CUDA):
        return BackendUnavailable(f"trtexec finds no GPU ({reason})", _MEND_CUDA)
    return Mendable(f"trtexec could not {doing} it ({reason})", f"try: {' '.join(argv)}")


# Of what it prints at its most talkative, only what tells of layers is kept.
_OF_LAYERS = ("[DlaLayer]", "[GpuLayer]", "Layer(", "Layers Running on", "offloaded to DLA")
_VERBOSE = "[V] "


@dataclass(frozen=True)
class Made:
    """An engine that was just built.

    Attributes:
        inspector: The engine as the inspector tells it; ``None`` where it does not.
    """

    plan: bytes
    built: Built
    log: tuple[str, ...]
    inspector: str | None


class TrtexecBuilder:
    """One model for one device, and the trtexec that is to build it.

    Attributes:
        offered: The options in that.
    """

    def __init__(self, program: tuple[str, ...], help_text: str, model: Path, order: Order) -> None:
        """Read the inputs of the model.

        Raises:
            Mendable: It is not an ONNX model, or its shapes do not fit the order.
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

        Raises:
            Mendable: It could not; ``BackendUnavailable`` for what this machine lacks.
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
        raise Mendable(f"{model} is not an ONNX model ({error})", "give an ONNX file") from error
