"""What trtexec prints and writes: its performance summary, its times, and why it failed.

Source:
    trtexec of the TensorRT open source repository, 8.0 to 11; public logs of 8.4 to 10.
"""

import json
import re
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import NonNegativeFloat, NonNegativeInt

from ..errors import UnreadableError
from ..records import Record
from .events import StageName
from .placement import Fallback, Precision

_PREFIX = re.compile(r"(?:\[[^\]]*\] )*")
_FIGURES = re.compile(r"(min|max|mean|median|percentile\((?P<share>[\d.]+)%\)) = (\S+) ms")
_TRACE = re.compile(r"Timing trace has (\d+) queries over (\S+) m?s")
_CONTEXT = re.compile(r"Created execution context with device memory size: (\S+) MiB")
_VERSION = re.compile(r"TensorRT version: (\d+(?:\.\d+)+)")
# 8.6.2 is 8602, 10.3.0 is 100300.
_TAG = re.compile(r"\[TensorRT v(?:(\d)(\d)(\d\d)|(\d\d)(\d\d)(\d\d))\]")
_SPANS: Mapping[str, str] = {
    "Latency": "latency",
    "Enqueue Time": "enqueue",
    "H2D Latency": "h2d",
    "GPU Compute Time": "compute",
    "D2H Latency": "d2h",
}
# What it says after each failure, whatever the reason.
_GENERIC = (
    "building engine failed",
    "engine could not be created from network",
    "engine deserialization failed",
    "engine set up failed",
    "error occurred during inference",
    "failed to create engine from model",
    "failed to parse onnx file",
    "got invalid engine",
    "inference set up failed",
    "network and config setup failed",
    "parsing model failed",
)
# Names of one exported inference, the newer ones first.
_STARTS = ("startH2dMs", "startInMs", "startComputeMs")
_STAGES: Mapping[StageName, tuple[str, ...]] = {
    "h2d": ("h2dMs", "inMs"),
    "compute": ("computeMs",),
    "d2h": ("d2hMs", "outMs"),
}


class Figures(Record):
    """One line of the summary.

    Attributes:
        min_seconds: Shortest.
        max_seconds: Longest.
        mean_seconds: Mean.
        median_seconds: Median, of an even number between the two in the middle.
        percentiles_seconds: Percentage to time; trtexec takes a sample and interpolates nothing.
    """

    min_seconds: NonNegativeFloat | None = None
    max_seconds: NonNegativeFloat | None = None
    mean_seconds: NonNegativeFloat | None = None
    median_seconds: NonNegativeFloat | None = None
    percentiles_seconds: dict[float, NonNegativeFloat] = {}


class TrtexecReport(Record):
    """The performance summary.

    Attributes:
        tensorrt: Version.
        queries: Inferences that counted.
        throughput_per_second: Inferences a second, over the host's time.
        latency: Of the copies and the compute together, by the device's clock.
        enqueue: Host time to launch one.
        h2d: Copy of the inputs.
        compute: Between events round the launch; on a DLA, its work and the reformats beside it.
        d2h: Copy of the outputs.
        host_seconds: From the first launch to the last completion.
        compute_seconds: Sum of ``compute``.
        warnings: What trtexec has against the figures, a line each.
    """

    tensorrt: str | None = None
    queries: NonNegativeInt | None = None
    throughput_per_second: NonNegativeFloat
    latency: Figures | None = None
    enqueue: Figures | None = None
    h2d: Figures | None = None
    compute: Figures | None = None
    d2h: Figures | None = None
    host_seconds: NonNegativeFloat | None = None
    compute_seconds: NonNegativeFloat | None = None
    warnings: tuple[str, ...] = ()


def _integers() -> "array[int]":
    return array("q")


@dataclass(frozen=True)
class Times:
    """Inferences as trtexec exported them, in the order in which they began.

    Attributes:
        start_ns: shape (n,), since trtexec's own zero, which is when it began to infer. It
            prints six digits: 0.01 ms after a second, 0.1 ms after ten.
        latency_ns: shape (n,), copies and compute, by the device's clock.
        stages_ns: Stage to shape (n,).
    """

    start_ns: "array[int]" = field(default_factory=_integers)
    latency_ns: "array[int]" = field(default_factory=_integers)
    stages_ns: "dict[StageName, array[int]]" = field(default_factory=dict)

    def last(self, count: int) -> "Times":
        """Return the last of them: old versions export the warm-up too, before the rest."""
        kept = slice(max(0, len(self.start_ns) - count), None)
        stages_ns = {stage: column[kept] for stage, column in self.stages_ns.items()}
        return Times(self.start_ns[kept], self.latency_ns[kept], stages_ns)

    def first(self, count: int) -> "Times":
        """Return the first of them."""
        stages_ns = {stage: column[:count] for stage, column in self.stages_ns.items()}
        return Times(self.start_ns[:count], self.latency_ns[:count], stages_ns)


def message_of(line: str) -> str:
    """Return a line without time, severity and speaker.

    >>> message_of("[11/20/2025-08:32:52] [E] [TRT] no such layer")
    'no such layer'
    """
    found = _PREFIX.match(line)
    return line[found.end() if found else 0 :].strip()


def parse_report(lines: Iterable[str]) -> TrtexecReport:
    """Read what trtexec printed.

    Args:
        lines: Its output, with or without time and severity in front.

    Returns:
        The summary; what it does not say is ``None``.

    Raises:
        UnreadableError: There is no summary.
    """
    found: dict[str, object] = {}
    warnings: list[str] = []
    is_summary = False
    for line in lines:
        text = message_of(line)
        if "=== Performance summary ===" in text:
            is_summary = True
        elif trace := _TRACE.match(text):
            found["queries"] = int(trace[1])
        elif is_summary and text.startswith("* "):
            warnings.append(text[2:])
        elif is_summary:
            name, colon, value = text.partition(": ")
            if colon:
                _put(found, name, value)
    if "throughput_per_second" not in found:
        raise UnreadableError("there is no performance summary")
    return TrtexecReport.model_validate({**found, "warnings": tuple(warnings)})


def _put(found: dict[str, object], name: str, value: str) -> None:
    if name in _SPANS:
        found[_SPANS[name]] = _figures(value)
    elif name == "Throughput":
        _put_number(found, "throughput_per_second", value)
    elif name == "Total Host Walltime":
        _put_number(found, "host_seconds", value)
    elif name == "Total GPU Compute Time":
        _put_number(found, "compute_seconds", value)


def _put_number(found: dict[str, object], name: str, value: str) -> None:
    number = _number(value.split()[0]) if value.split() else None
    if number is not None:
        found[name] = number


def _figures(text: str) -> Figures:
    told: dict[str, float] = {}
    shares: dict[float, float] = {}
    for one in _FIGURES.finditer(text):
        milliseconds = _number(one[3])
        if milliseconds is None:
            continue
        if one["share"] is None:
            told[f"{one[1]}_seconds"] = milliseconds / 1e3
        elif (share := _number(one["share"])) is not None:
            shares[share] = milliseconds / 1e3
    return Figures(**told, percentiles_seconds=shares)


def _number(text: str) -> float | None:
    """Return a number that is none of infinity, NaN and negative."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value < float("inf") else None


def parse_times(lines: Iterable[str]) -> Times:
    """Read the file of ``--exportTimes``: a JSON list with one object a line.

    Up to 8.0 the copies are called ``in`` and ``out``, later ``h2d`` and ``d2h``.

    Args:
        lines: The file.

    Returns:
        Its inferences, by rising start.

    Raises:
        UnreadableError: A line is no inference, or there is none.
    """
    rows: list[tuple[int, ...]] = []
    for line in lines:
        text = line.strip().lstrip("[,").rstrip(",]").strip()
        if text:
            rows.append(_row(text))
    if not rows:
        raise UnreadableError("there is no inference in it")
    rows.sort()
    start_ns, latency_ns, *stages_ns = (array("q", column) for column in zip(*rows, strict=True))
    return Times(start_ns, latency_ns, dict(zip(_STAGES, stages_ns, strict=True)))


def _row(text: str) -> tuple[int, ...]:
    try:
        one = json.loads(text)
    except (ValueError, RecursionError):
        raise UnreadableError(f"this is no inference: {text[:80]!r}") from None
    if not isinstance(one, dict):
        raise UnreadableError(f"this is no inference: {text[:80]!r}")
    start = _nanoseconds(one, _STARTS)
    stages = [_nanoseconds(one, names) or 0 for names in _STAGES.values()]
    latency = _nanoseconds(one, ("latencyMs",))
    if start is None or not any(stages):
        raise UnreadableError(f"this inference has no start or no time: {text[:80]!r}")
    return start, sum(stages) if latency is None else latency, *stages


def _nanoseconds(one: Mapping[str, object], names: Sequence[str]) -> int | None:
    for name in names:
        value = one.get(name)
        if isinstance(value, int | float) and 0 <= value < 1e12:
            return round(value * 1e6)
    return None


def reason_in(lines: Sequence[str]) -> str | None:
    """Return the last error that says more than that something failed; ``None`` without any.

    >>> reason_in(["[E] Cannot create DLA engine, 0 not available", "[E] Engine set up failed"])
    'Cannot create DLA engine, 0 not available'
    """
    errors: list[str] = []
    for place, line in enumerate(lines):
        text = message_of(line)
        if "[E] " in line[:64] and text:
            # A parser's error goes on in the next line, which bears no severity.
            follows = lines[place + 1].strip() if place + 1 < len(lines) else ""
            goes_on = text.endswith(":") and follows and not follows.startswith("[0123456789/")
            errors.append(f"{text} {follows}" if goes_on else text)
    telling = [text for text in errors if not text.lower().startswith(_GENERIC)]
    telling = [text for text in telling if "--- End node ---" not in text]
    found = telling or errors
    return found[-1] if found else None


def version_in(lines: Iterable[str]) -> str | None:
    """Return the version of TensorRT that trtexec names; ``None`` where it names none.

    >>> version_in(["&&&& RUNNING TensorRT.trtexec [TensorRT v8602] # trtexec --help"])
    '8.6.2'
    """
    for line in lines:
        if found := _VERSION.search(line):
            return found[1]
        if found := _TAG.search(line):
            return ".".join(str(int(part)) for part in found.groups() if part is not None)
    return None


def context_bytes_in(lines: Iterable[str]) -> int | None:
    """Return the device memory of one execution context; ``None`` where it is not told."""
    for line in lines:
        if found := _CONTEXT.search(line):
            mebibytes = _number(found[1])
            return None if mebibytes is None else round(mebibytes * 2**20)
    return None


# An option begins its line, and its words go on in lines that begin with more blanks; elsewhere
# in the help it is only spoken of. What was made the default is still listed, as a "no-op".
_OPTION = re.compile(r"^ {0,8}(?:-\w, *)?(--[A-Za-z]\w*)", re.MULTILINE)
_NO_OP = "no-op"
_PRECISIONS: Mapping[Precision, tuple[str, ...]] = {
    "fp32": (),
    "fp16": ("--fp16",),
    # A layer without an int8 kernel would be run in single precision.
    "int8": ("--int8", "--fp16"),
}


@dataclass(frozen=True)
class Wanted:
    """What is to be built and measured.

    Attributes:
        device: ``gpu``, ``dla0`` or ``dla1``.
        shapes: Of inputs that the model leaves open, by name.
        precision: To build in, where types may be chosen at all.
        fallback: What becomes of layers that a DLA refuses.
        optimization_level: How long to look for faster kernels, 0 to 5; ``None`` leaves it.
        streams: Inferences in flight at once.
        cuda_graph: Whether to launch as a CUDA graph; on a DLA it is never one.
        transfers: Whether inputs and outputs are copied with each inference.
        warm_up_seconds: Inferences before this time do not count.
        duration_seconds: Length of what counts, or
        count: inferences in it, at least.
    """

    device: str
    shapes: Mapping[str, tuple[int, ...]]
    precision: Precision = "fp16"
    fallback: Fallback = "allow"
    optimization_level: int | None = None
    streams: int = 1
    cuda_graph: bool = True
    transfers: bool = True
    warm_up_seconds: float = 1.0
    duration_seconds: float | None = None
    count: int | None = None

    @property
    def core(self) -> int | None:
        """The DLA's number; ``None`` for the GPU."""
        number = self.device.removeprefix("dla")
        return int(number) if self.device.startswith("dla") and number.isdigit() else None

    @property
    def is_graph(self) -> bool:
        """Whether a CUDA graph is asked of it: work of a DLA can't be captured."""
        return self.cuda_graph and self.core is None


def options_in(help_text: str) -> frozenset[str]:
    """Return the options that a help text offers, without those that it says do nothing.

    >>> sorted(options_in("  --fp16=N   Enable it; instead of --best"))
    ['--fp16']
    """
    found = list(_OPTION.finditer(help_text))
    ends = [*(one.start() for one in found), len(help_text)][1:]
    return frozenset(
        one[1]
        for one, end in zip(found, ends, strict=True)
        if _NO_OP not in help_text[one.start() : end]
    )


def is_typed(offered: frozenset[str]) -> bool:
    """Tell whether this trtexec builds the types of the model and no others."""
    return "--fp16" not in offered


def chooses_types(offered: frozenset[str], precision: Precision) -> bool:
    """Tell whether this trtexec can be asked for a precision; else the model's types are built."""
    return all(flag in offered for flag in _PRECISIONS[precision])


def build_arguments(
    offered: frozenset[str], wanted: Wanted, *, model: str, plan: str, layers: str
) -> list[str]:
    """Return the arguments that build an engine and infer nothing.

    Args:
        offered: What its help offers.
        wanted: What to build.
        model: The ONNX file.
        plan: Where the engine goes.
        layers: Where the inspector's JSON goes.
    """
    chosen = [f"--onnx={model}", f"--saveEngine={plan}", *_shapes(wanted), *_core(wanted)]
    if chooses_types(offered, wanted.precision):
        chosen += _PRECISIONS[wanted.precision]
    # Without fallback not even a reformat may run on the GPU, which "require-pure" does allow.
    if wanted.core is not None and wanted.fallback != "forbid":
        chosen.append("--allowGPUFallback")
    chosen += _first(offered, "--skipInference", "--buildOnly")
    # Some versions tell of a DLA's layers only when they are at their most talkative.
    if wanted.core is not None:
        chosen += _first(offered, "--verbose")
    if wanted.optimization_level is not None and "--builderOptimizationLevel" in offered:
        chosen.append(f"--builderOptimizationLevel={wanted.optimization_level}")
    if "--profilingVerbosity" in offered:
        chosen.append("--profilingVerbosity=detailed")
    if "--exportLayerInfo" in offered:
        chosen.append(f"--exportLayerInfo={layers}")
    return chosen


def run_arguments(offered: frozenset[str], wanted: Wanted, *, plan: str, times: str) -> list[str]:
    """Return the arguments that load an engine and measure it.

    One inference is complete before the next begins, as in every other back-end; no thread spins
    while it waits, for that would draw power; copies and CUDA graph are as they are wanted.

    Args:
        offered: What its help offers.
        wanted: What to measure.
        plan: The engine.
        times: Where the times of all inferences go.
    """
    chosen = [f"--loadEngine={plan}", *_shapes(wanted), *_core(wanted)]
    if wanted.is_graph:
        chosen += _first(offered, "--useCudaGraph")
    else:
        chosen += _first(offered, "--noCudaGraph")
    chosen += _first(offered, "--includeDataTransfers" if wanted.transfers else "--noDataTransfers")
    chosen += _first(offered, "--noSpinWait")
    if wanted.streams > 1:
        chosen += [
            f"{flag}={wanted.streams}" for flag in _first(offered, "--infStreams", "--streams")
        ]
    else:
        chosen += _first(offered, "--exposeDMA")
    chosen += [
        f"--warmUp={round(wanted.warm_up_seconds * 1000)}",
        f"--duration={wanted.duration_seconds or 0:g}",
        f"--iterations={wanted.count or 1}",
        f"--exportTimes={times}",
    ]
    return chosen


def _first(offered: frozenset[str], *names: str) -> list[str]:
    """Return the first of several names that is offered; none of them needs no argument."""
    return next(([name] for name in names if name in offered), [])


def _core(wanted: Wanted) -> list[str]:
    return [] if wanted.core is None else [f"--useDLACore={wanted.core}"]


def _shapes(wanted: Wanted) -> list[str]:
    """Name the shapes of inputs that are left open; to give another one's is an error."""
    named = ",".join(f"{name}:{'x'.join(map(str, of))}" for name, of in wanted.shapes.items())
    return [f"--shapes={named}"] if named else []
