"""trtexec as a child: heard line by line, and gone when the worker is."""

import shutil
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event

from ...parsers.errors import Mendable
from ...parsers.trtexec import message_of, reason_in
from ..base import SYSTEM_CLOCK, Clock, Stamped
from ..process import Quiet
from ..tied_child import start_tied
from .base import EngineUnavailable

DEFAULT_PROGRAM = Path("/usr/src/tensorrt/bin/trtexec")
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
    """What a child printed and how it ended.

    Attributes:
        lines: The last lines of its output, then those of its standard error.
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
        EngineUnavailable: It is not there.
    """
    if program:
        found = shutil.which(program[0])
        asked = program[0]
    else:
        found = shutil.which(DEFAULT_PROGRAM) or shutil.which("trtexec")
        asked = str(DEFAULT_PROGRAM)
    if found is None:
        raise EngineUnavailable(
            f"there is no trtexec at {asked}",
            "apt install libnvinfer-bin, or give its path as trtexec: in the workload",
        )
    return (str(Path(found).absolute()), *program[1:])


def run(argv: Sequence[str], heard: Callable[[str], bool] = lambda _: True) -> Said:
    """Run a program to its end.

    Args:
        argv: Full path and arguments.
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
        argv: How it was started.
        started_ns: CLOCK_MONOTONIC before it was.
        began_ns: When it said that it begins to infer; ``None`` where it did not.
        done_ns: When it said how many inferences there were.
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
            warm_up_ns: Length of the warm-up.
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
    it is done. The middle of the two is taken, and half the distance is what is uncertain, beside
    the delay of a pipe and the six digits of a time. Where the first line comes too late to be
    true (it was held back), the start of the process stands for it.

    Args:
        started_ns: Before the process was started.
        began_ns: When it said that it begins; ``None`` where it did not.
        done_ns: When it said that it is done, or had ended.
        length_ns: From its zero to the end of the last inference.

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
        EngineUnavailable: It does not start, or what it prints is no help of trtexec's.
    """
    said = run([*program, "--help"])
    text = "\n".join(said.lines)
    if said.returncode != 0 or "--onnx" not in text:
        raise EngineUnavailable(
            f"{program[0]} does not answer --help as trtexec does ({said.reason})",
            "install TensorRT whole, or give the path of trtexec as trtexec: in the workload",
        )
    return text


def failure(doing: str, said: Said, argv: Sequence[str]) -> Mendable:
    """Return what a failed trtexec amounts to.

    Args:
        doing: What it could not do: ``build`` or ``measure``.
        said: What it printed.
        argv: How it was started.
    """
    reason = said.reason
    if "Cannot create DLA engine" in reason:
        return EngineUnavailable(
            f"trtexec finds no such DLA ({reason})",
            "use device: gpu, or a board whose TensorRT supports its DLA",
        )
    if any(sign in line.lower() for line in said.lines for sign in _NO_CUDA):
        return EngineUnavailable(f"trtexec finds no GPU ({reason})", _MEND_CUDA)
    return Mendable(f"trtexec could not {doing} it ({reason})", f"try: {' '.join(argv)}")
