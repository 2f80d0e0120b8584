"""The conditions that may explain a difference, by the table of docs/compare.md."""

from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

from ...daemon.measure.run_text import celsius, percent
from ...parsers.inference.placement import Built
from ...parsers.records import Record
from ...parsers.values import some_of
from ..results.caveats import BUSY_CPU, BUSY_GPU
from .sides import Side

CauseName = Literal[
    "accelerator",
    "batch",
    "streams",
    "transfers",
    "memory",
    "precision",
    "fallback",
    "cuda_graph",
    "optimization_level",
    "throttling",
    "power_mode",
    "clocks",
    "contention",
    "back_end",
    "heat",
    "build_circumstances",
    "method",
    "versions",
]
Certainty = Literal["known_direction", "possible"]
# A figure is the time of an inference, the time of an input, or the energy of an input.
Cost = Literal["inference", "input", "energy"]

# Up to these limits a difference is not a cause: rounds of one bench differ by as much.
CLOCK_RATIO, WIDTH_RATIO, FREE_POINTS, CORES, HOTTER_CELSIUS = 1.02, 1.05, 0.1, 0.5, 10.0
LOAD_AVERAGE = 2.0

_BITS: Mapping[str | None, int] = {
    "fp32": 32,
    "tf32": 32,
    "fp16": 16,
    "bf16": 16,
    "int8": 8,
    "fp8": 8,
    "int4": 4,
    "fp4": 4,
}
_VERSIONS = ("tensorrt", "cuda-runtime", "cuda-driver", "onnxruntime")


class Cause(Record):
    """A condition that differs and may explain a difference of figures.

    Attributes:
        certainty: ``known_direction``: it makes the worse one worse; ``possible``: its direction
            is not known.
    """

    name: CauseName
    certainty: Certainty
    sentence: str


class _Sides(NamedTuple):
    """The measurement with the smaller cost, that with the larger one, and the kind of the cost."""

    good: Side
    bad: Side
    cost: Cost

    def words(self, what: str, before: object, after: object) -> str:
        """Return a difference as a sentence, the worse one first."""
        return f"{what} {after} in {self.bad.label}, {before} in {self.good.label}"

    def differs(self, what: str, before: object, after: object) -> str:
        """Return the sentence, or nothing if both are the same or one is unknown."""
        if before == after or before is None or after is None:
            return ""
        return self.words(what, before, after)


def causes_of(good: Side, bad: Side, cost: Cost) -> tuple[Cause, ...]:
    """Return what may make a cost larger in one measurement, the most important condition first.

    Args:
        good: The measurement with the smaller cost; ``bad`` has the larger one.
        cost: The kind of the figure.
    """
    sides = _Sides(good, bad, cost)
    causes = []
    for condition in CONDITIONS:
        sentence = condition.difference(sides)
        if sentence:
            cause = Cause(name=condition.name, certainty=condition.certainty, sentence=sentence)
            causes.append(cause)
    return tuple(causes)


def _join(*sentences: str) -> str:
    return "; ".join(sentence for sentence in sentences if sentence)


# --- what was asked for ---------------------------------------------------------------------------


def _accelerator(sides: _Sides) -> str:
    before, after = sides.good.context.environment, sides.bad.context.environment
    return _join(
        sides.differs("accelerator", sides.good.device, sides.bad.device),
        sides.differs("board", before.board, after.board),
        sides.differs("module", before.module, after.module),
    )


def _fewer_cores(sides: _Sides) -> str:
    """Return that fewer DLA cores worked: two have a higher rate than one."""
    before, after = sides.good.context.dla_cores, sides.bad.context.dla_cores
    if sides.cost != "input" or before is None or after is None or before <= after:
        return ""
    return sides.words("DLA cores:", before, after)


def _batch(sides: _Sides) -> str:
    return _amount(sides, "batch", sides.good.context.batch, sides.bad.context.batch)


def _streams(sides: _Sides) -> str:
    before, after = sides.good.context.built, sides.bad.context.built
    return _amount(sides, "streams", before.streams, after.streams)


def _amount(sides: _Sides, name: str, before: int, after: int) -> str:
    """Return that an inference does more at once and takes longer, or that an input shares less."""
    is_costly = after > before if sides.cost == "inference" else after < before
    return sides.words(name, before, after) if is_costly else ""


def _optimization_level(sides: _Sides) -> str:
    """Return that the builder searched less for kernels."""
    before = sides.good.context.optimization_level
    after = sides.bad.context.optimization_level
    if before is None or after is None or before <= after:
        return ""
    return sides.words("built at optimisation level", before, after)


def _cuda_graph(sides: _Sides) -> str:
    before, after = sides.good.context.built, sides.bad.context.built
    if not before.has_cuda_graph or after.has_cuda_graph is not False:
        return ""
    return f"{sides.bad.label} launches layer by layer, {sides.good.label} as a CUDA graph"


def _transfers(sides: _Sides) -> str:
    before, after = sides.good.context.built, sides.bad.context.built
    if not after.has_transfers or before.has_transfers is not False:
        return ""
    if before.memory not in (None, "copy"):
        return ""  # Its inputs and outputs do not stay on the device.
    return (
        f"{sides.bad.label} copies inputs and outputs, {sides.good.label} leaves them on the device"
    )


def _memory(sides: _Sides) -> str:
    before, after = sides.good.context.built, sides.bad.context.built
    return sides.differs("memory of inputs and outputs:", before.memory, after.memory)


def _back_end(sides: _Sides) -> str:
    return sides.differs("back-end", sides.good.context.backend, sides.bad.context.backend)


# --- what was built -------------------------------------------------------------------------------


def _precision(sides: _Sides) -> str:
    """Return how types differ that make an engine slower.

    They are wider, or narrower with more reformats or with layers that stay in floating point.
    """
    before, after = sides.good.context.built, sides.bad.context.built
    # The widths of layers and of what was asked for are not compared with each other.
    is_counted = bool(before.layer_types and after.layer_types)
    bits_before = _bits(before, is_counted=is_counted)
    bits_after = _bits(after, is_counted=is_counted)
    if bits_before is None or bits_after is None:
        return ""
    words = sides.words("precision really built:", _types(before), _types(after))
    if bits_after > WIDTH_RATIO * bits_before:
        return words
    reformats = len(after.placement.reformat_layers) - len(before.placement.reformat_layers)
    added, wide = max(0, reformats), len(after.wide_layers)
    if bits_before <= WIDTH_RATIO * bits_after or not added + wide:
        return ""
    return f"{words}; it has {added} reformats more, and {wide} layers in floating point"


def _bits(built: Built, *, is_counted: bool) -> float | None:
    """Return the mean width of the layers' types; else that of the most frequent, or as asked."""
    counts = {name: count for name, count in built.layer_types.items() if name in _BITS}
    if not counts:
        return _BITS.get(built.requested_precision)
    if is_counted:
        bits = sum(_BITS[name] * count for name, count in counts.items())
        return bits / sum(counts.values())
    return _BITS[max(counts, key=counts.__getitem__)]


def _types(built: Built) -> str:
    counted = ", ".join(f"{count} {name}" for name, count in built.layer_types.items())
    return counted or f"{built.requested_precision} asked"


def _fallback(sides: _Sides) -> str:
    """Return that more layers left the DLA."""
    before, after = sides.good.context.built.placement, sides.bad.context.built.placement
    if "gpu" in (sides.good.device, sides.bad.device):
        return ""
    if "unknown" in (before.verdict, after.verdict):
        return ""
    if len(after.gpu_layers) <= len(before.gpu_layers):
        return ""
    what = "layers that fell back to the GPU:"
    return sides.words(what, len(before.gpu_layers), len(after.gpu_layers))


def _build_circumstances(sides: _Sides) -> str:
    """Return what may have led the builder of one engine to worse kernels."""
    before = sides.good.context.built.circumstances
    after = sides.bad.context.built.circumstances
    if before is None or after is None:
        return ""
    hints = []
    if before.is_alone and not after.is_alone:
        hints.append(f"{sides.bad.label} was built beside another build")
    if after.notes and not before.notes:
        hints.append(f"memory was scarce when {sides.bad.label} was built")
    load, higher_load = before.load_average, after.load_average
    if load is not None and higher_load is not None and higher_load - load > LOAD_AVERAGE:
        hints.append(sides.words("load average at the build", load, higher_load))
    return _join(*hints)


# --- the machine ----------------------------------------------------------------------------------


def _throttling(sides: _Sides) -> str:
    ratio = sides.bad.context.throttled_ratio
    if ratio <= sides.good.context.throttled_ratio:
        return ""
    words = f"{sides.bad.label} throttled in {percent(ratio)} of its rounds"
    if not _are_clocks_known(sides):
        return words
    return _with_lower_clocks(sides, words)


def _slower_mode(sides: _Sides) -> str:
    mode = _other_mode(sides)
    return _with_lower_clocks(sides, mode) if mode and _are_clocks_known(sides) else ""


def _unproved_mode(sides: _Sides) -> str:
    return "" if _are_clocks_known(sides) else _other_mode(sides)


def _other_mode(sides: _Sides) -> str:
    before, after = sides.good.context.environment, sides.bad.context.environment
    return sides.differs("power mode", before.power_mode, after.power_mode)


def _clocks(sides: _Sides) -> str:
    """Return the clocks that are lower, unless throttling or the power mode is the reason."""
    if not _are_clocks_known(sides) or _have_clocks_reason(sides) or _may_follow_load(sides):
        return ""
    return _lower_clocks(sides)


def _unproved_clocks(sides: _Sides) -> str:
    """Return clocks that may be lower, or that may be lower only because there is less to do."""
    if _have_clocks_reason(sides):
        return ""
    if _are_clocks_known(sides):
        lower = _lower_clocks(sides)
        if not lower or not _may_follow_load(sides):
            return ""
        return f"{lower}; the GPU load is lower too, so this may be a consequence"
    before, after = sides.good.context.environment, sides.bad.context.environment
    if before.clocks_locked and after.clocks_locked is False:
        return f"locked in {sides.good.label}, not in {sides.bad.label}"
    return ""


def _are_clocks_known(sides: _Sides) -> bool:
    """Return whether the clock of the accelerator can prove anything: it cannot about energy."""
    device, clocks = sides.good.device, sides.bad.context.clocks_hertz
    is_recorded = device in sides.good.context.clocks_hertz and bool(clocks.get(device))
    return is_recorded and sides.cost != "energy"


def _have_clocks_reason(sides: _Sides) -> bool:
    before, after = sides.good.context, sides.bad.context
    return after.throttled_ratio > before.throttled_ratio or bool(_other_mode(sides))


def _may_follow_load(sides: _Sides) -> bool:
    """Return whether free clocks may be lower because the GPU has less to do."""
    before, after = sides.good.figures.get("gpu_load"), sides.bad.figures.get("gpu_load")
    if before is None or after is None or sides.bad.context.environment.clocks_locked:
        return False
    return after.value < before.value - FREE_POINTS


def _with_lower_clocks(sides: _Sides, words: str) -> str:
    lower = _lower_clocks(sides)
    return f"{words}; {lower}" if lower else ""


def _lower_clocks(sides: _Sides) -> str:
    """Return the clocks of accelerator and memory that are lower.

    That of the CPU is left out: it wanders with what the host does, and drives only launches.
    """
    lower = []
    for name in dict.fromkeys((sides.good.device, "emc")):
        before = sides.good.context.clocks_hertz.get(name)
        after = sides.bad.context.clocks_hertz.get(name)
        if before and after and before > CLOCK_RATIO * after:
            lower.append(sides.words(f"{name} clock", _megahertz(before), _megahertz(after)))
    return ", ".join(lower)


def _megahertz(hertz: float) -> str:
    return f"{hertz / 1e6:.0f} MHz"


def _contention(sides: _Sides) -> str:
    """Return signs of other work on the machine."""
    bad, before, after = sides.bad, sides.good.context, sides.bad.context
    hints = []
    for flag in after.disturbed:
        if flag in before.disturbed:
            continue
        hint = f"{bad.label} has the flag {flag}"
        if flag == "baseline_disturbed" and after.disturbance is not None:
            hint += f" ({after.disturbance})"
        hints.append(hint)
    others_gpu = after.others_gpu or 0.0
    if others_gpu - (before.others_gpu or 0.0) > BUSY_GPU:
        names = some_of(after.others_on_gpu)
        hints.append(f"{names} kept the GPU {percent(others_gpu)} busy during {bad.label}")
    if bad.device == "gpu":
        hints.append(_busier(sides, "gpu", BUSY_GPU))
    hints.append(_busier(sides, "cpu", BUSY_CPU))
    if (after.others_cores or 0.0) - (before.others_cores or 0.0) > CORES:
        hints.append(f"other processes used {after.others_cores:.1f} cores during {bad.label}")
    return _join(*hints)


def _busier(sides: _Sides, name: str, limit: float) -> str:
    before = sides.good.context.background.get(name)
    after = sides.bad.context.background.get(name)
    if before is None or after is None or after - before <= limit:
        return ""
    return f"the {name.upper()} was {percent(after)} busy before {sides.bad.label}"


def _heat(sides: _Sides) -> str:
    """Return that a zone was hotter, which raises leakage: a cause of energy only."""
    before, after = sides.good.context.hottest_celsius, sides.bad.context.hottest_celsius
    if sides.cost != "energy" or before is None or after is None:
        return ""
    if after - before <= HOTTER_CELSIUS:
        return ""
    return sides.words("hottest zone", celsius(before), celsius(after))


def _versions(sides: _Sides) -> str:
    before, after = sides.good.context.environment, sides.bad.context.environment
    # JetPack contains L4T.
    release = sides.differs("JetPack", before.jetpack, after.jetpack)
    parts = [release or sides.differs("L4T", before.l4t, after.l4t)]
    for name in _VERSIONS:
        parts.append(sides.differs(name, before.versions.get(name), after.versions.get(name)))
    return _join(*parts)


def _method(sides: _Sides) -> str:
    """Return what was measured, or how, if that is not the same."""
    before, after = sides.good.context, sides.bad.context
    here, there = before.environment, after.environment
    parts = [
        sides.differs("GPU", here.gpu_uuid, there.gpu_uuid),
        sides.differs("niceness", before.process.nice, after.process.nice),
        sides.differs("cores of the worker:", before.process.cpus, after.process.cpus),
    ]
    if sides.cost == "energy":
        parts += [
            sides.differs("telemetry source", here.telemetry_source, there.telemetry_source),
            sides.differs("power reading", here.power_reading, there.power_reading),
            sides.differs("rail sensors", here.rail_sensors, there.rail_sensors),
        ]
    return _join(*parts)


# --- their order ----------------------------------------------------------------------------------


class Condition(NamedTuple):
    """A row of the table: ``difference`` returns a sentence if the worse one has the condition."""

    name: CauseName
    certainty: Certainty
    difference: Callable[[_Sides], str]


# In the order of weight: first what was asked for, which may multiply a time, and its consequences
# in the engine; then the state of the machine, which seldom doubles one; then what a call adds.
# What has no direction is last. docs/compare.md tells how often the first one named is right.
CONDITIONS = (
    Condition("accelerator", "known_direction", _accelerator),
    Condition("accelerator", "known_direction", _fewer_cores),
    Condition("batch", "known_direction", _batch),
    Condition("streams", "known_direction", _streams),
    # Before precision: a builder that searches less also chooses other types.
    Condition("optimization_level", "known_direction", _optimization_level),
    Condition("precision", "known_direction", _precision),
    Condition("fallback", "known_direction", _fallback),
    Condition("power_mode", "known_direction", _slower_mode),
    Condition("contention", "known_direction", _contention),
    Condition("throttling", "known_direction", _throttling),
    Condition("clocks", "known_direction", _clocks),
    Condition("cuda_graph", "known_direction", _cuda_graph),
    Condition("transfers", "known_direction", _transfers),
    Condition("power_mode", "possible", _unproved_mode),
    Condition("clocks", "possible", _unproved_clocks),
    Condition("memory", "possible", _memory),
    Condition("back_end", "possible", _back_end),
    Condition("build_circumstances", "possible", _build_circumstances),
    Condition("versions", "possible", _versions),
    Condition("heat", "possible", _heat),
    Condition("method", "possible", _method),
)
