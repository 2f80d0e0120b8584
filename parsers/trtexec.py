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

from .errors import UnreadableError
from .records import Record
from .run_events import StageName

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
