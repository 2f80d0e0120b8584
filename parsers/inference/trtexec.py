"""Output of trtexec: performance summary, times, reason of a failure; and its options.

Source:
    trtexec of the TensorRT open source repository, 8.0 to 11; public logs of 8.4 to 10.
"""

import json
import re
from array import array
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from ..errors import UnreadableError, UserError
from .events import Order, StageName
from .placement import Precision

_PREFIX = re.compile(r"\A(?:\[[^\]]*\] )*")
_TRACE = re.compile(r"Timing trace has (\d+) queries over \S+ m?s")
_CONTEXT = re.compile(r"Created execution context with device memory size: (\d{1,9}(?:\.\d+)?) MiB")
_VERSION = re.compile(r"TensorRT version: (\d+(?:\.\d+)+)")
# 8.6.2 is 8602, 10.3.0 is 100300.
_TAG = re.compile(r"\[TensorRT v(?:(\d)(\d)(\d\d)|(\d\d)(\d\d)(\d\d))\]")
# Printed after each failure, for any reason.
_GENERIC = (
    "building engine failed",
    "engine creation failed",
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
# Patterns of errors in small letters; see ``cause_of``. Sources are public logs of 7.1 to 10.
_CONSEQUENCE = re.compile(
    # The builder of 8.x asserts this after each failed build.
    r"assertion engine != nullptr failed"
    r"|\((?:engine deserialization|building engine) failed\.? *\)"
    r"|--- (?:begin|end) node ---"
)
# A timing cache that does not fit is an error of its own, and the build goes on without it.
_REMARK = re.compile(r"api usage error \(parameter check failed|timing ?cache")
_CAUSE = re.compile(
    r"could not find any implementation for node"
    r"|assertion .* failed"
    r"|not supported on dla|falling back to gpu is not enabled"
    r"|failure to submit program to dla|error code \d+: dla\b"
    r"|cannot create dla engine"
)
# Names of one exported inference, the newer ones first.
_STARTS = ("startH2dMs", "startInMs", "startComputeMs")
_STAGES: Mapping[StageName, tuple[str, ...]] = {
    "h2d": ("h2dMs", "inMs"),
    "compute": ("computeMs",),
    "d2h": ("d2hMs", "outMs"),
}


class TrtexecReport(NamedTuple):
    """The inferences that count, if printed, and trtexec's remarks about its figures."""

    queries: int | None = None
    warnings: tuple[str, ...] = ()


class ExportedTimes(NamedTuple):
    """Inferences as trtexec exported them, in order of their start.

    Attributes:
        start_ns: shape (n,), since trtexec's own zero, its first inference. It prints six digits:
            0.01 ms after a second, 0.1 ms after ten.
        latency_ns: shape (n,), copies and compute, by the device's clock; ``stages_ns`` likewise.
    """

    start_ns: "array[int]"
    latency_ns: "array[int]"
    stages_ns: "dict[StageName, array[int]]"


def message_of(line: str) -> str:
    """Return a line without time, severity and source.

    >>> message_of("[11/20/2025-08:32:52] [E] [TRT] no such layer")
    'no such layer'
    """
    return _PREFIX.sub("", line, count=1).strip()


def parse_report(lines: Iterable[str]) -> TrtexecReport:
    """Parse trtexec's output with any prefixes; raise ``UnreadableError`` without a summary."""
    queries: int | None = None
    warnings: list[str] = []
    is_summary = has_figures = False
    for line in lines:
        text = message_of(line)
        if "=== Performance summary ===" in text:
            is_summary = True
        elif trace := _TRACE.match(text):
            queries = int(trace[1])
        elif is_summary and text.startswith("* "):
            warnings.append(text[2:])
        elif is_summary and text.startswith("Throughput: "):
            has_figures = True
    if not has_figures:
        raise UnreadableError("the performance summary is missing")
    return TrtexecReport(queries, tuple(warnings))


def parse_times(
    lines: Iterable[str], queries: int | None = None, count: int | None = None
) -> ExportedTimes:
    """Parse the file of ``--exportTimes``: a JSON list with one object per line.

    Up to 8.0 the copies are called ``in`` and ``out``, later ``h2d`` and ``d2h``.

    Args:
        queries: Inferences that count; old versions also export the warm-up, before the rest.
        count: Number of these to return; ``None`` for all.

    Raises:
        UnreadableError: A line is not an inference, or the file is empty.
    """
    rows = []
    for line in lines:
        text = line.strip().lstrip("[,").rstrip(",]").strip()
        if text:
            rows.append(_row(text))
    rows.sort()
    if queries is not None:
        rows = rows[max(0, len(rows) - queries) :]
    rows = rows[:count]
    if not rows:
        raise UnreadableError("it contains no inference")
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
    if latency is None:
        latency = sum(stages)
    return start, latency, *stages


def _nanoseconds(one: Mapping[str, object], names: Sequence[str]) -> int | None:
    for name in names:
        value = one.get(name)
        if isinstance(value, int | float) and 0 <= value < 1e12:
            return round(value * 1e6)
    return None


def reason_in(lines: Sequence[str]) -> str | None:
    """Return the error that is the cause of a failure; ``None`` without any error.

    >>> reason_in(["[E] Cannot create DLA engine, 0 not available", "[E] Engine set up failed"])
    'Cannot create DLA engine, 0 not available'
    """
    errors: list[str] = []
    for line, follows in zip(lines, [*lines[1:], ""], strict=False):
        text = message_of(line)
        if "[E] " not in line[:64] or not text:
            continue
        # A parser's error continues in the next line, which has no severity.
        if text.endswith(":") and follows.strip():
            text = f"{text} {follows.strip()}"
        errors.append(text)
    return cause_of(errors)


def cause_of(errors: Sequence[str]) -> str | None:
    """Return the cause among the errors of one failure, in the order of their printing.

    Errors are of four kinds. A *cause* is known to end a build or a run: the first one counts,
    since others follow from it. Of errors of unknown kind the last one counts. A *remark* about an
    option does not end a build, and a *consequence* is printed after each failure.

    >>> cause_of(["no such file", "Error Code 2: … (Assertion engine != nullptr failed. )"])
    'no such file'
    """
    others: list[str] = []
    remarks: list[str] = []
    consequences: list[str] = []
    for error in errors:
        text = error.lower()
        if not any(map(str.isalpha, text)):
            continue  # The last line of a message may be a bracket.
        if text.startswith(_GENERIC) or _CONSEQUENCE.search(text):
            consequences.append(error)
        elif _REMARK.search(text):
            remarks.append(error)
        elif _CAUSE.search(text):
            return error
        else:
            others.append(error)
    for kind in (others, remarks, consequences):
        if kind:
            return kind[-1]
    return None


_NO_PLUGIN = re.compile(r"(?:could not|cannot) find plugin: *(\w+)", re.IGNORECASE)
_NODE = re.compile(r"While parsing node number \d+ \[(\w+)")
_NO_IMPORTER = re.compile(r"No importer registered for op: *(\w+)(?!.*Attempting)")


def missing_operator(lines: Sequence[str]) -> str | None:
    """Return the operator that TensorRT lacks, by the lines of a parser that failed, or ``None``.

    It imports an operator that it lacks as a plug-in of this name, and says so of those that it
    finds, too.

    >>> missing_operator(['[E] While parsing node number 1 [NMS -> "y"]:',
    ...                   '[E] creator && "Plugin not found, are the plugin name …"'])
    'NMS'
    """
    patterns = [_NO_PLUGIN, _NO_IMPORTER]
    if any("Plugin not found, are the" in line for line in lines):
        patterns.insert(1, _NODE)
    for pattern in patterns:
        for line in reversed(lines):
            found = pattern.search(line)
            if found is not None:
                return found[1]
    return None


def plugin_arguments(offered: frozenset[str], plugins: Mapping[str, bool]) -> list[str] | None:
    """Return the arguments that load libraries of plug-ins; ``None`` if it can load none.

    Args:
        plugins: Path to whether it exports its plug-ins, instead of registering them itself.

    >>> plugin_arguments(frozenset({"--plugins"}), {"a.so": True})
    ['--plugins=a.so']
    """
    arguments = []
    for path, is_exported in plugins.items():
        names: tuple[str, ...] = ("--staticPlugins", "--plugins")
        if is_exported:
            names = ("--dynamicPlugins", *names)
        flags = _first(offered, *names)
        if not flags:
            return None
        arguments.append(f"{flags[0]}={path}")
    return arguments


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
        found = _CONTEXT.search(line)
        if found is not None:
            return round(float(found[1]) * 2**20)
    return None


# An option begins its line, and its text continues in lines with more blanks; elsewhere in the
# help it is only mentioned. An option that became the default is listed as a "no-op".
_OPTION = re.compile(r"^ {0,8}(?:-\w, *)?(--[A-Za-z]\w*)", re.MULTILINE)
DEFAULT_PRECISION: Precision = "fp16"
_PRECISIONS: Mapping[Precision, tuple[str, ...]] = {
    "fp32": (),
    "fp16": ("--fp16",),
    # A layer without an int8 kernel would run in single precision.
    "int8": ("--int8", "--fp16"),
}


Shapes = Mapping[str, tuple[int, ...]]


def options_in(help_text: str) -> frozenset[str]:
    """Return the options in a help text, without those that it calls a no-op.

    >>> sorted(options_in("  --fp16=N   Enable it; instead of --best"))
    ['--fp16']
    """
    # The name of each option, and the text up to the next one, in turn; the first is before all.
    _, *pieces = _OPTION.split(help_text)
    options = set()
    for name, text in zip(pieces[::2], pieces[1::2], strict=True):
        if "no-op" not in text:
            options.add(name)
    return frozenset(options)


def chooses_types(offered: frozenset[str], precision: Precision) -> bool:
    """Return whether this trtexec can build a requested precision instead of the model's types."""
    return all(flag in offered for flag in _PRECISIONS[precision])


def build_arguments(
    offered: frozenset[str],
    order: Order,
    shapes: Shapes,
    model: str,
    plan: str,
    layers: str,
    held: Mapping[str, Precision] = MappingProxyType({}),
) -> list[str]:
    """Return the arguments that build an engine without inferences.

    ``offered`` are the options of this trtexec, and ``shapes`` those of inputs that the model
    leaves open. It writes the engine to ``plan`` and its inspector's JSON to ``layers``. ``held``
    are layers that compute in a precision of their own.
    """
    chosen = [f"--onnx={model}", f"--saveEngine={plan}"]
    ordered = [shape for name, shape in order.shapes.items() if name in shapes]
    if any(shape.min is not None for shape in ordered):
        chosen += [*_common(order, {}), *profile_arguments(order, shapes)]
    else:
        chosen += _common(order, shapes)
    precision = order.precision or DEFAULT_PRECISION
    if chooses_types(offered, precision):
        chosen += _PRECISIONS[precision]
    if held:
        words = ",".join(f"{name}:{asked}" for name, asked in held.items())
        chosen += [f"--precisionConstraints={order.precision_constraints}"]
        chosen += [f"--layerPrecisions={words}"]
    # Without fallback not even a reformat may run on the GPU, which "require-pure" does allow.
    if order.dla_core is not None and order.fallback != "forbid":
        chosen.append("--allowGPUFallback")
    chosen += _first(offered, "--skipInference", "--buildOnly")
    # Some versions list the layers of a DLA only with the highest verbosity.
    if order.dla_core is not None:
        chosen += _first(offered, "--verbose")
    optional = {
        "--builderOptimizationLevel": order.optimization_level,
        "--profilingVerbosity": "detailed",
        "--exportLayerInfo": layers,
    }
    for name, value in optional.items():
        if name in offered and value is not None:
            chosen.append(f"{name}={value}")
    return chosen


# The longest argument that Linux passes to a program is 128 KiB.
_LONGEST_ARGUMENT = 120_000


def check_held(offered: frozenset[str], build: Precision, held: Mapping[str, Precision]) -> None:
    """Raise ``UserError`` if this trtexec cannot hold these layers at precisions of their own."""
    remedy = "leave layer_precisions out, or use backend: tensorrt"
    if "--layerPrecisions" not in offered or not chooses_types(offered, build):
        raise UserError("this trtexec takes no precision by layer", remedy)
    length = 0
    for name in held:
        length += len(name.encode()) + len(":fp16,")
        if "," in name or "'" in name:
            raise UserError(f"trtexec takes no layer with a comma or a quote: {name}", remedy)
    if length > _LONGEST_ARGUMENT:
        raise UserError(f"{len(held)} layers are too many for the command of trtexec", remedy)


def profile_arguments(order: Order, shapes: Shapes) -> list[str]:
    """Return the least, the usual and the largest shapes of an engine with a range."""
    arguments = []
    for at, option in enumerate(("--minShapes", "--optShapes", "--maxShapes")):
        ends = dict(shapes)
        for name in shapes.keys() & order.shapes.keys():
            ends[name] = order.shapes[name].range[at]
        arguments.append(f"{option}={_written(ends)}")
    return arguments


def run_arguments(
    offered: frozenset[str], order: Order, shapes: Shapes, plan: str, times: str
) -> list[str]:
    """Return the arguments that load an engine and measure it.

    One inference is complete before the next begins, as in every other back-end. No thread spins
    while it waits, because that would draw power. ``plan`` is the path of the engine, and ``times``
    that of the file to write with the times of all inferences.
    """
    chosen = [f"--loadEngine={plan}", *_common(order, shapes)]
    graph = "--useCudaGraph" if launches_graph(order) else "--noCudaGraph"
    transfers = "--includeDataTransfers" if order.transfers else "--noDataTransfers"
    chosen += [*_first(offered, graph), *_first(offered, transfers)]
    chosen += _first(offered, "--noSpinWait")
    if order.streams > 1:
        flags = _first(offered, "--infStreams", "--streams")
        chosen += [f"{flag}={order.streams}" for flag in flags]
    else:
        chosen += _first(offered, "--exposeDMA")
    return [
        *chosen,
        f"--warmUp={round(order.warm_up_seconds * 1000)}",
        f"--duration={order.duration_seconds or 0:g}",
        f"--iterations={order.count or 1}",
        f"--exportTimes={times}",
    ]


def launches_graph(order: Order) -> bool:
    """Return whether to request a CUDA graph: work of a DLA cannot be captured."""
    return order.cuda_graph and order.dla_core is None


def _first(offered: frozenset[str], *names: str) -> list[str]:
    """Return the first offered one of several names; an empty list needs no argument."""
    for name in names:
        if name in offered:
            return [name]
    return []


def _common(order: Order, shapes: Shapes) -> list[str]:
    """Return shapes and core; the shape of an input that is not open would be an error."""
    arguments = []
    if shapes:
        arguments.append(f"--shapes={_written(shapes)}")
    if order.dla_core is not None:
        arguments.append(f"--useDLACore={order.dla_core}")
    return arguments


def _written(shapes: Shapes) -> str:
    return ",".join(f"{name}:{'x'.join(map(str, of))}" for name, of in shapes.items())
