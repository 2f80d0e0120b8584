"""The causes of a difference, by the rule of docs/compare.md: named, quantified and ranked."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import log
from typing import Literal, NamedTuple

from ...daemon.measure.figures import present
from ...daemon.measure.run_text import celsius, percent
from ...parsers.inference.placement import Built
from ...parsers.records import Ratio, Record
from ..results.caveats import BUSY_CPU, BUSY_GPU
from .sides import MeasuredContext, Side

CauseName = Literal[
    "accelerator",
    "batch",
    "streams",
    "transfers",
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
Certainty = Literal["measured", "at_most", "known_direction", "possible"]
# A figure is the time of an inference, the time of an input, or the energy of an input.
Cost = Literal["inference", "input", "energy"]

# Causes below this share of a difference are not named.
LEAST_SHARE = 0.1
# From this share on, a quantified cause is ranked before those that only have a direction.
MAIN_SHARE = 0.5
# Up to these limits a difference is not a cause.
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
_KNOWN: Certainty = "known_direction"
_ALL, _DEVICE = ("copies", "compute", "host"), ("compute",)


class Cause(Record):
    """A difference of the context that explains a difference of figures.

    Attributes:
        certainty: ``measured``: the records tell how much; ``at_most``: they bound it;
            ``known_direction``: only the direction is known; ``possible``: not even that.
        share: Logarithm of the effect over that of the ratio of both figures; ``None`` if it is
            not quantified.
    """

    name: CauseName
    certainty: Certainty
    share: Ratio | None = None
    sentence: str


@dataclass(frozen=True)
class _Found:
    """A difference that fits.

    ``factor`` is its effect on the cost, and ``parts`` are those of an inference that it can
    lengthen.
    """

    name: CauseName
    certainty: Certainty
    sentence: str
    parts: tuple[str, ...] = _ALL
    factor: float | None = None


def causes_of(good: Side, bad: Side, cost: Cost, ratio: float) -> tuple[Cause, ...]:
    """Return why a cost is larger in one measurement, the most important cause first.

    Args:
        good: The measurement with the smaller cost; ``bad`` has the larger one.
        cost: The kind of the figure.
        ratio: The larger cost over the smaller one, above 1.
    """
    two = _Two(good, bad, cost)
    growth, named = _growth(two), []
    for found in (found for rule in _RULES for found in rule(two)):
        reach = sum(growth.get(part, 0.0) for part in found.parts) if growth else None
        certainty = found.certainty
        share = None if found.factor is None else log(found.factor) / log(ratio)
        if certainty == "possible":
            share = None
        elif cost == "energy":
            # The records quantify times only.
            certainty, share = _KNOWN, None
        elif share is None and reach is not None:
            certainty, share = "at_most", reach
        if min(present((share, reach)), default=1.0) >= LEAST_SHARE:
            share = None if share is None else min(share, 1.0)
            named.append(
                Cause(name=found.name, certainty=certainty, share=share, sentence=found.sentence)
            )
    return tuple(sorted(named, key=_rank))


def _rank(cause: Cause) -> tuple[int, float]:
    if cause.share is not None:
        return (0 if cause.share >= MAIN_SHARE else 2), -cause.share
    return (3 if cause.certainty == "possible" else 1), 0.0


class _Two(NamedTuple):
    """The measurement with the smaller cost, that with the larger one, and the kind of the cost."""

    good: Side
    bad: Side
    cost: Cost

    def words(self, what: str, before: object, after: object) -> str:
        """Return a difference as a sentence, the worse one first."""
        return f"{what} {after} in {self.bad.label}, {before} in {self.good.label}"

    def differs(self, what: str, before: object, after: object) -> list[str]:
        """Return the sentence, or nothing if both are the same or one is unknown."""
        is_same = before == after or None in (before, after)
        return [] if is_same else [self.words(what, before, after)]


def _growth(two: _Two) -> dict[str, float]:
    """Return the share of each part of an inference in its growth; empty if it is not known."""
    here, there = two.good.context, two.bad.context
    # Inferences in flight at once overlap: their parts do not add up.
    is_serial = max(here.built.streams, there.built.streams) == 1 and two.cost != "energy"
    if not is_serial or not here.parts_seconds or not there.parts_seconds:
        return {}
    counts = (here.batch, there.batch) if two.cost == "input" else (1, 1)
    grown = {
        part: there.parts_seconds[part] / counts[1] - here.parts_seconds[part] / counts[0]
        for part in _ALL
    }
    total = sum(grown.values())
    return {part: max(0.0, spent) / total for part, spent in grown.items()} if total > 0 else {}


# --- the rules: each yields what differs between two measurements, if the direction fits ----------


def _accelerator(two: _Two) -> Iterator[_Found]:
    here, there = (one.context.environment for one in (two.good, two.bad))
    found = two.differs("accelerator", two.good.device, two.bad.device)
    found += two.differs("board", here.board, there.board)
    found += two.differs("module", here.module, there.module)
    if found:
        yield _Found("accelerator", "known_direction", "; ".join(found))


def _amounts(two: _Two) -> Iterator[_Found]:
    """An inference with more inputs, or with others in flight, takes longer; an input costs less.

    Two DLA cores have a higher rate than one.

    At most in proportion to their number.
    """
    here, there = two.good.context, two.bad.context
    amounts: tuple[tuple[CauseName, int, int], ...] = (
        ("batch", here.batch, there.batch),
        ("streams", here.built.streams, there.built.streams),
    )
    for name, before, after in amounts:
        factor = after / before if two.cost == "inference" else before / after
        if factor > 1:
            words = two.words(name, before, after)
            yield _Found(name, "at_most", words, factor=factor)
    if two.cost == "input" and (here.dla_cores or 0) > (there.dla_cores or 9):
        words = two.words("DLA cores:", here.dla_cores, there.dla_cores)
        factor = (here.dla_cores or 1) / (there.dla_cores or 1)
        yield _Found("accelerator", "at_most", words, factor=factor)


def _calls(two: _Two) -> Iterator[_Found]:
    """Copies of inputs and outputs, and launches layer by layer."""
    good, bad = two.good.label, two.bad.label
    here, there = two.good.context, two.bad.context
    if there.built.has_transfers and here.built.has_transfers is False:
        factor, certainty = None, _KNOWN
        if here.parts_seconds and there.parts_seconds:
            added = there.parts_seconds["copies"] - here.parts_seconds["copies"]
            factor, certainty = 1 + max(0.0, added) / sum(here.parts_seconds.values()), "measured"
        words = f"{bad} copies inputs and outputs, {good} leaves them on the device"
        yield _Found("transfers", certainty, words, ("copies",), factor)
    if here.built.has_cuda_graph and there.built.has_cuda_graph is False:
        words = f"{bad} launches layer by layer, {good} as a CUDA graph"
        yield _Found("cuda_graph", _KNOWN, words, ("compute", "host"))


def _engine(two: _Two) -> Iterator[_Found]:
    """Less search for kernels, other types, and layers that left the DLA."""
    before, after = (one.context.optimization_level for one in (two.good, two.bad))
    if before is not None and after is not None and before > after:
        words = two.words("built at optimisation level", before, after)
        yield _Found("optimization_level", _KNOWN, words, _DEVICE)
    reasons: tuple[tuple[CauseName, str | None], ...] = (
        ("precision", _retyped(two)),
        ("fallback", _fell_back(two)),
    )
    for name, reason in reasons:
        if reason is not None:
            yield _Found(name, _KNOWN, reason, _DEVICE)


def _retyped(two: _Two) -> str | None:
    """Return how types differ that make an engine slower.

    They are wider, or narrower with more reformats or with layers that stay in floating point.
    """
    here, there = two.good.context.built, two.bad.context.built
    is_counted = bool(here.layer_types and there.layer_types)
    before, after = _bits(here, is_counted=is_counted), _bits(there, is_counted=is_counted)
    if before is None or after is None:
        return None
    words = two.words("precision really built:", _types(here), _types(there))
    if after > WIDTH_RATIO * before:
        return words
    reformats = [len(one.placement.reformat_layers) for one in (here, there)]
    added, wide = max(0, reformats[1] - reformats[0]), len(there.wide_layers)
    if before <= WIDTH_RATIO * after or not added + wide:
        return None
    return f"{words}; it has {added} reformats more, and {wide} layers in floating point"


def _bits(built: Built, *, is_counted: bool) -> float | None:
    """Return the mean width of the layers' types; else that of the most frequent, or as asked."""
    counts = {name: n for name, n in built.layer_types.items() if name in _BITS}
    if is_counted and counts:
        return sum(_BITS[name] * n for name, n in counts.items()) / sum(counts.values())
    return _BITS.get(max(counts, key=lambda name: counts[name], default=built.requested_precision))


def _types(built: Built) -> str:
    counted = ", ".join(f"{n} {name}" for name, n in built.layer_types.items())
    return counted or f"{built.requested_precision} asked"


def _fell_back(two: _Two) -> str | None:
    placements = [one.context.built.placement for one in (two.good, two.bad)]
    before, after = (len(one.gpu_layers) for one in placements)
    is_known = all(one.verdict != "unknown" for one in placements)
    if "gpu" in (two.good.device, two.bad.device) or not is_known or after <= before:
        return None
    return two.words("layers that fell back to the GPU:", before, after)


def _clocks(two: _Two) -> Iterator[_Found]:
    """Lower clocks, by the reason why they are lower: throttling, the power mode, or neither."""
    good, bad = two.good, two.bad
    here, there = good.context, bad.context
    reasons: list[tuple[CauseName, str]] = []
    if there.throttled_ratio > here.throttled_ratio:
        words = f"{bad.label} throttled in {percent(there.throttled_ratio)} of its rounds"
        reasons.append(("throttling", words))
    modes = here.environment.power_mode, there.environment.power_mode
    reasons += [("power_mode", words) for words in two.differs("power mode", *modes)]
    names = [name for name in here.clocks_hertz if there.clocks_hertz.get(name)]
    ratios = {name: here.clocks_hertz[name] / there.clocks_hertz[name] for name in names}
    if two.cost == "energy" or good.device not in ratios:
        if here.environment.clocks_locked and there.environment.clocks_locked is False:
            reasons = reasons or [("clocks", f"locked in {good.label}, not in {bad.label}")]
        for name, words in reasons:
            yield _Found(name, _KNOWN if name == "throttling" else "possible", words)
        return
    lower = {name: ratio for name, ratio in ratios.items() if ratio > CLOCK_RATIO}
    clocks = ", ".join(
        two.words(f"{name} clock", _megahertz(here, name), _megahertz(there, name))
        for name in lower
    )
    loads = [one.figures["gpu_load"].value for one in (good, bad) if "gpu_load" in one.figures]
    is_idler = len(loads) == 2 and loads[1] < loads[0] - FREE_POINTS
    if lower and not reasons and is_idler and not there.environment.clocks_locked:
        words = f"{clocks}; the GPU load is lower too, so this may be a consequence"
        yield _Found("clocks", "possible", words)
    elif lower:
        factor = _slowed(good, lower)
        for name, words in reasons or [("clocks", "")]:
            sentence = f"{words}; {clocks}" if words else clocks
            yield _Found(name, "at_most", sentence, factor=factor)


def _megahertz(found: MeasuredContext, name: str) -> str:
    return f"{found.clocks_hertz[name] / 1e6:.0f} MHz"


def _slowed(side: Side, ratios: Mapping[str, float]) -> float:
    """Return by how much an inference is slower at most, if its parts scale with their clocks."""
    device, emc, cpu = (ratios.get(name, 1.0) for name in (side.device, "emc", "cpu"))
    parts = side.context.parts_seconds
    if side.device == "cpu" or not parts:
        return max(device, emc)
    slowed = parts["compute"] * max(device, emc) + parts["copies"] * emc + parts["host"] * cpu
    return slowed / sum(parts.values())


def _contention(two: _Two) -> Iterator[_Found]:
    bad, here, there = two.bad, two.good.context, two.bad.context
    busier = {
        name: f"the {name.upper()} was {percent(ratio)} busy before {bad.label}"
        for name, ratio in there.background.items()
        if ratio - here.background.get(name, ratio) > (BUSY_GPU if name == "gpu" else BUSY_CPU)
    }
    added = [flag for flag in there.disturbed if flag not in here.disturbed]
    hints = [f"{bad.label} has the flag {flag}" for flag in added]
    if bad.device == "gpu" and "gpu" in busier:
        hints.append(busier["gpu"])
    # The CPU launches; a graph needs it once per inference.
    parts: tuple[str, ...] = ("host",) if there.built.has_cuda_graph else ("compute", "host")
    if hints or bad.device == "cpu":
        parts = _ALL
    hints += [words for name, words in busier.items() if name == "cpu"]
    if (there.others_cores or 0.0) - (here.others_cores or 0.0) > CORES:
        hints.append(f"other processes used {there.others_cores:.1f} cores during {bad.label}")
    if hints:
        yield _Found("contention", _KNOWN, "; ".join(hints), parts)


def _possible(two: _Two) -> Iterator[_Found]:
    """Differences that may explain it, without a direction."""
    here, there, differs = two.good.context, two.bad.context, two.differs
    mine, yours = here.environment, there.environment
    method = differs("GPU", mine.gpu_uuid, yours.gpu_uuid)
    method += differs("niceness", here.process.nice, there.process.nice)
    method += differs("cores of the worker:", here.process.cpus, there.process.cpus)
    heat: list[str] = []
    if two.cost == "energy":
        for what in ("telemetry_source", "power_reading", "rail_sensors"):
            method += differs(what.replace("_", " "), getattr(mine, what), getattr(yours, what))
        zones = present((here.hottest_celsius, there.hottest_celsius))
        if len(zones) == 2 and zones[1] - zones[0] > HOTTER_CELSIUS:
            heat = [two.words("hottest zone", celsius(zones[0]), celsius(zones[1]))]
    versions = differs("JetPack", mine.jetpack, yours.jetpack)
    versions = versions or differs("L4T", mine.l4t, yours.l4t)
    for name in _VERSIONS:
        versions += differs(name, mine.versions.get(name), yours.versions.get(name))
    found: tuple[tuple[CauseName, list[str], tuple[str, ...]], ...] = (
        ("back_end", differs("back-end", here.backend, there.backend), _ALL),
        ("heat", heat, _ALL),
        ("build_circumstances", _badly_built(two), _DEVICE),
        ("method", method, _ALL),
        ("versions", versions, _ALL),
    )
    for cause, words, parts in found:
        if words:
            yield _Found(cause, "possible", "; ".join(words), parts)


def _badly_built(two: _Two) -> list[str]:
    """Return what may have led the builder of one engine to worse kernels."""
    mine, yours = (one.context.built.circumstances for one in (two.good, two.bad))
    if mine is None or yours is None:
        return []
    hints = []
    if mine.is_alone and not yours.is_alone:
        hints.append(f"{two.bad.label} was built beside another build")
    if yours.notes and not mine.notes:
        hints.append(f"memory was scarce when {two.bad.label} was built")
    before, after = mine.load_average, yours.load_average
    if before is not None and after is not None and after - before > LOAD_AVERAGE:
        hints.append(two.words("load average at the build", before, after))
    return hints


_RULES = (_accelerator, _amounts, _calls, _engine, _clocks, _contention, _possible)
