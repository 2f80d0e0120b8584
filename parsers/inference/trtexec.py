"""Output of trtexec: performance summary, times, reason of a failure; and its options.

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
_NUMBERS: Mapping[str, str] = {
    "Throughput": "throughput_per_second",
    "Total Host Walltime": "host_seconds",
    "Total GPU Compute Time": "compute_seconds",
}
# Printed after each failure, for any reason.
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

    The median of an even number lies between the two in the middle. Percentiles are samples without
    interpolation, by percentage.
    """

    min_seconds: NonNegativeFloat | None = None
    max_seconds: NonNegativeFloat | None = None
    mean_seconds: NonNegativeFloat | None = None
    median_seconds: NonNegativeFloat | None = None
    percentiles_seconds: dict[float, NonNegativeFloat] = {}


class TrtexecReport(Record):
    """The performance summary.

    Attributes:
        throughput_per_second: Inferences per second of host time.
        latency: Copies and compute together, by the device's clock.
        enqueue: Host time to launch one inference.
        compute: Between events around the launch; on a DLA, its work and the reformats with it.
        host_seconds: From the first launch to the last completion.
        warnings: Remarks of trtexec about the figures.
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


@dataclass(frozen=True)
class ExportedTimes:
    """Inferences as trtexec exported them, in order of their start.

    Attributes:
        start_ns: shape (n,), since trtexec's own zero, its first inference. It prints six digits:
            0.01 ms after a second, 0.1 ms after ten.
        latency_ns: shape (n,), copies and compute, by the device's clock; ``stages_ns`` likewise.
    """

    start_ns: "array[int]" = field(default_factory=lambda: array("q"))
    latency_ns: "array[int]" = field(default_factory=lambda: array("q"))
    stages_ns: "dict[StageName, array[int]]" = field(default_factory=dict)

    def last(self, count: int) -> "ExportedTimes":
        """Return the last ones: old versions also export the warm-up, before the rest."""
        return self._kept(slice(max(0, len(self.start_ns) - count), None))

    def first(self, count: int) -> "ExportedTimes":
        """Return the first ones."""
        return self._kept(slice(count))

    def _kept(self, kept: slice) -> "ExportedTimes":
        stages_ns = {stage: column[kept] for stage, column in self.stages_ns.items()}
        return ExportedTimes(self.start_ns[kept], self.latency_ns[kept], stages_ns)


def message_of(line: str) -> str:
    """Return a line without time, severity and source.

    >>> message_of("[11/20/2025-08:32:52] [E] [TRT] no such layer")
    'no such layer'
    """
    found = _PREFIX.match(line)
    return line[found.end() if found else 0 :].strip()


def parse_report(lines: Iterable[str]) -> TrtexecReport:
    """Parse the output of trtexec, with or without time and severity in front of each line.

    Raises:
        UnreadableError: The summary is missing.
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
            name, _, value = text.partition(": ")
            if name in _SPANS:
                found[_SPANS[name]] = _figures(value)
            elif name in _NUMBERS and value.split():
                found[_NUMBERS[name]] = _number(value.split()[0])
    if found.get("throughput_per_second") is None:
        raise UnreadableError("the performance summary is missing")
    return TrtexecReport.model_validate({**found, "warnings": tuple(warnings)})


def _figures(text: str) -> Figures:
    named: dict[str, float] = {}
    shares: dict[float, float] = {}
    for one in _FIGURES.finditer(text):
        milliseconds = _number(one[3])
        if milliseconds is None:
            continue
        if one["share"] is None:
            named[f"{one[1]}_seconds"] = milliseconds / 1e3
        elif (share := _number(one["share"])) is not None:
            shares[share] = milliseconds / 1e3
    return Figures(**named, percentiles_seconds=shares)


def _number(text: str) -> float | None:
    """Return a finite number of 0 or more, or ``None``."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value < float("inf") else None


def parse_times(lines: Iterable[str]) -> ExportedTimes:
    """Parse the file of ``--exportTimes``: a JSON list with one object per line.

    Up to 8.0 the copies are called ``in`` and ``out``, later ``h2d`` and ``d2h``.

    Raises:
        UnreadableError: A line is not an inference, or the file is empty.
    """
    rows: list[tuple[int, ...]] = []
    for line in lines:
        text = line.strip().lstrip("[,").rstrip(",]").strip()
        if text:
            rows.append(_row(text))
    if not rows:
        raise UnreadableError("it contains no inference")
    rows.sort()
    start_ns, latency_ns, *stages_ns = (array("q", column) for column in zip(*rows, strict=True))
    return ExportedTimes(start_ns, latency_ns, dict(zip(_STAGES, stages_ns, strict=True)))


def _row(text: str) -> tuple[int, ...]:
    try:
        one = json.loads(text)
    except (ValueError, RecursionError):
        one = None
    if not isinstance(one, dict):
        raise UnreadableError(f"this is not an inference: {text[:80]!r}")
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
    """Return the last error with a reason of its own; ``None`` without any.

    >>> reason_in(["[E] Cannot create DLA engine, 0 not available", "[E] Engine set up failed"])
    'Cannot create DLA engine, 0 not available'
    """
    errors: list[str] = []
    for place, line in enumerate(lines):
        text = message_of(line)
        if "[E] " in line[:64] and text:
            # A parser's error continues in the next line, which has no severity.
            follows = lines[place + 1].strip() if place + 1 < len(lines) else ""
            continues = text.endswith(":") and follows and not follows.startswith("[0123456789/")
            errors.append(f"{text} {follows}" if continues else text)
    specific = [
        text
        for text in errors
        if not text.lower().startswith(_GENERIC) and "--- End node ---" not in text
    ]
    chosen = specific or errors
    return chosen[-1] if chosen else None


def version_in(lines: Iterable[str]) -> str | None:
    """Return the version of TensorRT that trtexec prints, or ``None``.

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
    """Return the device memory of one execution context, or ``None``."""
    for line in lines:
        if found := _CONTEXT.search(line):
            mebibytes = _number(found[1])
            return None if mebibytes is None else round(mebibytes * 2**20)
    return None


# An option begins its line, and its text continues in lines with more blanks; elsewhere in the
# help it is only mentioned. An option that became the default is listed as a "no-op".
_OPTION = re.compile(r"^ {0,8}(?:-\w, *)?(--[A-Za-z]\w*)", re.MULTILINE)
_NO_OP = "no-op"
_PRECISIONS: Mapping[Precision, tuple[str, ...]] = {
    "fp32": (),
    "fp16": ("--fp16",),
    # A layer without an int8 kernel would run in single precision.
    "int8": ("--int8", "--fp16"),
}


@dataclass(frozen=True)
class Wanted:
    """An engine to build and measure; see also ``Order``.

    Attributes:
        shapes: Shapes of inputs that the model leaves open, by name.
        precision: Used if this trtexec can choose types.
        cuda_graph: Whether to launch as a CUDA graph; ignored on a DLA.
        warm_up_seconds: Inferences before this time do not count.
        duration_seconds: Length of the measurement; either this or at least ``count`` inferences.
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
        """Number of the DLA core; ``None`` for the GPU."""
        number = self.device.removeprefix("dla")
        return int(number) if self.device.startswith("dla") and number.isdigit() else None

    @property
    def is_graph(self) -> bool:
        """Whether to request a CUDA graph: work of a DLA cannot be captured."""
        return self.cuda_graph and self.core is None


def options_in(help_text: str) -> frozenset[str]:
    """Return the options in a help text, without those that it calls a no-op.

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
    """Return whether this trtexec builds only the types of the model."""
    return "--fp16" not in offered


def chooses_types(offered: frozenset[str], precision: Precision) -> bool:
    """Return whether this trtexec can build a requested precision instead of the model's types."""
    return all(flag in offered for flag in _PRECISIONS[precision])


def build_arguments(
    offered: frozenset[str], wanted: Wanted, *, model: str, plan: str, layers: str
) -> list[str]:
    """Return the arguments that build an engine without inferences.

    ``offered`` are the options of this trtexec. The other arguments are the paths of the ONNX file,
    of the engine to write, and of the inspector's JSON to write.
    """
    chosen = [f"--onnx={model}", f"--saveEngine={plan}", *_shapes(wanted), *_core(wanted)]
    if chooses_types(offered, wanted.precision):
        chosen += _PRECISIONS[wanted.precision]
    # Without fallback not even a reformat may run on the GPU, which "require-pure" does allow.
    if wanted.core is not None and wanted.fallback != "forbid":
        chosen.append("--allowGPUFallback")
    chosen += _first(offered, "--skipInference", "--buildOnly")
    # Some versions list the layers of a DLA only with the highest verbosity.
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

    One inference is complete before the next begins, as in every other back-end. No thread spins
    while it waits, because that would draw power. ``plan`` is the path of the engine, and ``times``
    that of the file to write with the times of all inferences.
    """
    chosen = [f"--loadEngine={plan}", *_shapes(wanted), *_core(wanted)]
    chosen += _first(offered, "--useCudaGraph" if wanted.is_graph else "--noCudaGraph")
    chosen += _first(offered, "--includeDataTransfers" if wanted.transfers else "--noDataTransfers")
    chosen += _first(offered, "--noSpinWait")
    if wanted.streams > 1:
        flags = _first(offered, "--infStreams", "--streams")
        chosen += [f"{flag}={wanted.streams}" for flag in flags]
    else:
        chosen += _first(offered, "--exposeDMA")
    return [
        *chosen,
        f"--warmUp={round(wanted.warm_up_seconds * 1000)}",
        f"--duration={wanted.duration_seconds or 0:g}",
        f"--iterations={wanted.count or 1}",
        f"--exportTimes={times}",
    ]


def _first(offered: frozenset[str], *names: str) -> list[str]:
    """Return the first offered one of several names; an empty list needs no argument."""
    return next(([name] for name in names if name in offered), [])


def _core(wanted: Wanted) -> list[str]:
    return [] if wanted.core is None else [f"--useDLACore={wanted.core}"]


def _shapes(wanted: Wanted) -> list[str]:
    """Return the shapes of open inputs; the shape of another input would be an error."""
    named = ",".join(f"{name}:{'x'.join(map(str, of))}" for name, of in wanted.shapes.items())
    return [f"--shapes={named}"] if named else []
