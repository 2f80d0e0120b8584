"""trtexec as a child: find it, build with it, follow its run; it ends when the worker ends."""

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

from ...parsers.errors import BackendUnavailable, UnreadableError, UserError
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
from ..children.program import start_tied
from .base import input_shape
from .engine_cache import BuiltEngine, machine_parts, model_digest

DEFAULT_PROGRAM = "/usr/src/tensorrt/bin/trtexec"
_LINES_AT_MOST = 4000
_POLL_SECONDS = 0.1
# A line for every ten inferences, of which there may be thousands.
_AVERAGE = "] Average on "
# The greatest delay between the print of a line and its stamp.
_PIPE_NS = 2_000_000
_MEND_CUDA = "install the NVIDIA driver, and let this user open the devices of the GPU"
_NO_CUDA = (
    "cuda driver version is insufficient",
    "cuda initialization failure",
    "no cuda-capable device",
)


@dataclass(frozen=True)
class Output:
    """Output and exit status of a child; the status is ``None`` if it was stopped."""

    lines: tuple[str, ...] = ()
    returncode: int | None = None

    @property
    def reason(self) -> str:
        """The error that it printed, or else its last line."""
        found = reason_in(self.lines)
        if found is not None:
            return found
        words = (message_of(line) for line in reversed(self.lines))
        last = next((text for text in words if text and not text.startswith("&&&&")), None)
        return last or f"exit status {self.returncode}, and no word"


def find_program(program: Sequence[str]) -> tuple[str, ...]:
    """Return trtexec's full path, and arguments that come before all others.

    Without an ordered program it is looked up where JetPack puts it, then along ``PATH``.

    Raises:
        BackendUnavailable: It is missing.
    """
    if program:
        asked, found = program[0], shutil.which(program[0])
    else:
        asked, found = DEFAULT_PROGRAM, shutil.which(DEFAULT_PROGRAM) or shutil.which("trtexec")
    if found is None:
        raise BackendUnavailable(
            f"there is no trtexec at {asked}",
            "apt install libnvinfer-bin, or give its path as trtexec: in the workload",
        )
    return (str(Path(found).absolute()), *program[1:])


def run(argv: Sequence[str], keeps: Callable[[str], bool] = lambda _: True) -> Output:
    """Run a program to its end, and return those lines of its output that ``keeps`` accepts."""
    lines: deque[str] = deque(maxlen=_LINES_AT_MOST)
    with start_tied(argv) as child:
        while (line := child.read()) is not Quiet.END:
            if isinstance(line, Stamped) and keeps(line.value):
                lines.append(line.value)
    return Output((*lines, *child.last_words), child.returncode)


class Measuring:
    """A trtexec that measures, and the times of its lines.

    Attributes:
        started_ns: CLOCK_MONOTONIC before its start.
        began_ns: When it printed that it begins to infer, or ``None``.
        done_ns: When it printed its counts, after its last inference, or ``None``.
        output: Its whole output, once it has ended.
    """

    def __init__(self, argv: Sequence[str], clock: Clock = SYSTEM_CLOCK) -> None:
        self.argv = tuple(argv)
        self.started_ns = clock.monotonic_ns()
        self.began_ns: int | None = None
        self.done_ns: int | None = None
        self.output = Output()
        self._clock = clock

    def follow(self, stop: Event, warm_up_ns: int) -> Iterator[int]:
        """Run it to its end, or until ``stop``; yield once, when its warm-up is due to be over."""
        lines: deque[str] = deque(maxlen=_LINES_AT_MOST)
        has_yielded = False
        with start_tied(self.argv) as child:
            while (line := child.read(_POLL_SECONDS)) is not Quiet.END:
                if stop.is_set():
                    return
                if isinstance(line, Stamped) and _AVERAGE not in line.value:
                    lines.append(line.value)
                    text = message_of(line.value)
                    if text.startswith("Starting inference"):
                        self.began_ns = line.monotonic_ns
                    elif text.startswith("Warmup completed") and self.done_ns is None:
                        self.done_ns = line.monotonic_ns
                if has_yielded or self.began_ns is None:
                    continue
                due_ns = self.began_ns + warm_up_ns
                if self._clock.monotonic_ns() >= due_ns and self.done_ns is None:
                    has_yielded = True
                    yield due_ns
        self.output = Output((*lines, *child.last_words), child.returncode)


def place_zero(
    started_ns: int, began_ns: int | None, done_ns: int, length_ns: int
) -> tuple[int, int]:
    """Place trtexec's own zero on our clock.

    Its times count from a moment that it does not print. That moment lies after the line that
    announces the begin, and early enough that the last inference was complete when it printed
    that it is done. The middle of the two is taken, and half the distance is the uncertainty, plus
    the delay of a pipe and the six digits of a time. If the first line comes too late to be
    true (it was held back), or is missing, the start of the process stands for it.

    Returns:
        The zero and its uncertainty either way, both in nanoseconds.

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
    """Return the help text of trtexec; raise ``BackendUnavailable`` without one."""
    output = run([*program, "--help"])
    text = "\n".join(output.lines)
    if output.returncode != 0 or "--onnx" not in text:
        raise BackendUnavailable(
            f"{program[0]} does not answer --help as trtexec does ({output.reason})",
            "install TensorRT whole, or give the path of trtexec as trtexec: in the workload",
        )
    return text


def failure(doing: Literal["build", "measure"], output: Output, argv: Sequence[str]) -> UserError:
    """Return the error for a trtexec that failed."""
    reason = output.reason
    if "Cannot create DLA engine" in reason:
        return BackendUnavailable(
            f"trtexec finds no such DLA ({reason})",
            "use device: gpu, or a board whose TensorRT supports its DLA",
        )
    if any(sign in line.lower() for line in output.lines for sign in _NO_CUDA):
        return BackendUnavailable(f"trtexec finds no GPU ({reason})", _MEND_CUDA)
    return UserError(f"trtexec could not {doing} it ({reason})", f"try: {' '.join(argv)}")


# Of its verbose lines, only those about layers are kept.
_OF_LAYERS = ("[DlaLayer]", "[GpuLayer]", "Layer(", "Layers Running on", "offloaded to DLA")
_VERBOSE = "[V] "


class TrtexecBuilder:
    """One model for one device, and the trtexec that is to build it."""

    def __init__(self, program: tuple[str, ...], help_text: str, model: Path, order: Order) -> None:
        """Read the inputs of the model.

        Raises:
            UserError: It is not an ONNX model, or its shapes do not fit the order.
        """
        self.program = program
        self.help_text = help_text
        self.offered = options_in(help_text)
        self._model = model
        self._order = order
        self._facts = _facts_of(model)
        # Each input is checked, and the shapes of the open ones are given to trtexec.
        shapes = [input_shape(one.name, one.shape, order.batch) for one in self._facts.inputs]
        pairs = zip(self._facts.inputs, shapes, strict=True)
        self._shapes = {one.name: shape for one, shape in pairs if one.is_open}

    def chooses(self, precision: Precision) -> bool:
        """Return whether this trtexec has an option for a precision."""
        return chooses_types(self.offered, precision)

    def wanted(self, order: Order) -> Wanted:
        """Return what an order asks of trtexec."""
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
        """Return all that an engine depends on; one plan serves both cores of a DLA."""
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
            **machine_parts(is_dla=is_dla),
        }

    def build(self, part: Path) -> BuiltEngine:
        """Build with trtexec, which writes the plan to ``part``.

        Raises:
            UserError: It failed; ``BackendUnavailable`` for what this machine lacks.
        """
        wanted = self.wanted(self._order)
        with TemporaryDirectory(prefix="tegrascope-") as folder:
            layers = Path(folder) / "layers.json"
            arguments = build_arguments(
                self.offered, wanted, model=str(self._model), plan=str(part), layers=str(layers)
            )
            argv = [*self.program, *arguments]
            try:
                output = run(argv, keeps=_matters)
                if output.returncode != 0 or not part.is_file():
                    raise failure("build", output, argv)
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
            placement=placement_of(output.lines, inspector, self._order.device),
            engine_bytes=len(plan),
        )
        return BuiltEngine(plan, built, output.lines, inspector)


def _matters(line: str) -> bool:
    return _VERBOSE not in line[:64] or any(sign in line for sign in _OF_LAYERS)


def _facts_of(model: Path) -> ModelFacts:
    try:
        with model.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return read_model(data)
    except (OSError, ValueError, UnreadableError) as error:
        raise UserError(f"{model} is not an ONNX model ({error})", "give an ONNX file") from error
