"""The causes of a difference, by the rule of docs/compare.md: named, quantified and ranked."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import log
from typing import Literal

from ...parsers.records import Ratio, Record
from ..measure.figures import present
from ..results.caveats import BUSY_CPU, BUSY_GPU
from ..terminal import celsius, percent
from .sides import Clock, Side

CauseName = Literal[
    "accelerator",
    "batch",
    "streams",
    "mps_percentage",
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
# What a figure is a cost of: of an inference in time, of an input in time or in energy.
Cost = Literal["inference", "input", "energy"]

# Causes below this share of a difference are not named.
LEAST_SHARE = 0.1
# From this share on, a quantified cause is ranked before those that only have a direction.
MAIN_SHARE = 0.5
# Smaller differences of conditions are those of two measurements of the same thing.
CLOCK_RATIO, WIDTH_RATIO, FREE_POINTS, CORES, HOTTER_CELSIUS = 1.02, 1.05, 0.1, 0.5, 10.0
LOAD_AVERAGE = 2.0

_BITS = {"fp32": 32, "tf32": 32, "fp16": 16, "bf16": 16, "int8": 8, "fp8": 8, "int4": 4, "fp4": 4}
_VERSIONS = ("tensorrt", "cuda-runtime", "cuda-driver", "onnxruntime")
_ALL, _DEVICE = ("copies", "compute", "host"), ("compute",)


class Cause(Record):
    """A difference of conditions that explains a difference of figures.

    Attributes:
        certainty: ``measured``: the records tell how much; ``at_most``: they bound it;
            ``known_direction``: only the direction is known; ``possible``: not even that.
        share: Of the logarithm of the ratio of both figures; ``None`` if it is not quantified.
    """

    name: CauseName
    certainty: Certainty
    share: Ratio | None = None
    sentence: str


@dataclass(frozen=True)
class _Found:
    """A difference that fits.

    ``factor`` is its effect on the cost, ``share`` the same as a share of the difference, and
    ``parts`` are those of an inference that it can lengthen.
    """

    name: CauseName
    certainty: Certainty
    sentence: str
    parts: tuple[str, ...] = _ALL
    factor: float | None = None
    share: float | None = None


def causes_of(good: Side, bad: Side, cost: Cost, ratio: float) -> tuple[Cause, ...]:
    """Return why a cost is larger in one measurement, the most important cause first.

    Args:
        good: The measurement with the smaller cost; ``bad`` has the larger one.
        cost: The kind of the figure.
        ratio: The larger cost over the smaller one, above 1.
    """
    growth = {} if cost == "energy" else _growth(good, bad, cost)
    named = []
    for found in (found for rule in _RULES for found in rule(good, bad, cost)):
        reach = sum(growth.get(part, 0.0) for part in found.parts) if growth else None
        certainty, share = found.certainty, found.share
        if found.factor is not None:
            share = log(found.factor) / log(ratio)
        if certainty == "possible":
            share = None
        elif cost == "energy":
            # The records quantify times only.
            certainty, share = "known_direction", None
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


def _growth(good: Side, bad: Side, cost: Cost) -> dict[str, float]:
    """Return the share of each part of an inference in its growth; empty if it is not known."""
    here, there = good.conditions, bad.conditions
    if not here.parts_seconds or not there.parts_seconds:
        return {}
    counts = (here.batch, there.batch) if cost == "input" else (1, 1)
    grown = {
        part: there.parts_seconds[part] / counts[1] - here.parts_seconds[part] / counts[0]
        for part in _ALL
    }
    total = sum(grown.values())
    # Inferences in flight at once overlap: their parts do not add up to a rate.
    if total <= 0 or max(here.streams, there.streams) > 1:
        return {}
    return {part: max(0.0, seconds) / total for part, seconds in grown.items()}


def _versus(bad: Side, good: Side, what: str, of_bad: object, of_good: object) -> str:
    return f"{what} {of_bad} in {bad.label}, {of_good} in {good.label}"


# --- the rules: each yields what differs between two measurements, if the direction fits ----------


def _accelerator(good: Side, bad: Side, _cost: Cost) -> Iterator[_Found]:
    here, there = good.conditions.environment, bad.conditions.environment
    for what, mine, yours in (
        ("accelerator", good.device, bad.device),
        ("board", here.board, there.board),
        ("module", here.module, there.module),
    ):
        if mine and yours and mine != yours:
            words = _versus(bad, good, what, yours, mine)
            yield _Found("accelerator", "known_direction", words)


def _amounts(good: Side, bad: Side, cost: Cost) -> Iterator[_Found]:
    """An inference with more inputs, or with others in flight, takes longer; an input costs less.

    At most in proportion to their number.
    """
    here, there = good.conditions, bad.conditions
    amounts: tuple[tuple[CauseName, int, int], ...] = (
        ("batch", here.batch, there.batch),
        ("streams", here.streams, there.streams),
    )
    for name, mine, yours in amounts:
        factor = yours / mine if cost == "inference" else mine / yours
        if factor > 1:
            words = _versus(bad, good, name, yours, mine)
            yield _Found(name, "at_most", words, factor=factor)
    shares = [one.process.mps_percentage or 100 for one in (here, there)]
    if shares[0] > shares[1]:
        words = _versus(bad, good, "share of the GPU in percent", shares[1], shares[0])
        factor = shares[0] / shares[1]
        yield _Found("mps_percentage", "at_most", words, _DEVICE, factor)


def _transfers(good: Side, bad: Side, _cost: Cost) -> Iterator[_Found]:
    here, there = good.conditions, bad.conditions
    if there.has_transfers and here.has_transfers is False:
        factor = None
        if here.parts_seconds and there.parts_seconds:
            added = there.parts_seconds["copies"] - here.parts_seconds["copies"]
            factor = 1 + max(0.0, added) / sum(here.parts_seconds.values())
        words = f"{bad.label} copies inputs and outputs, {good.label} leaves them on the device"
        certainty: Certainty = "known_direction" if factor is None else "measured"
        yield _Found("transfers", certainty, words, ("copies",), factor)


def _launch(good: Side, bad: Side, _cost: Cost) -> Iterator[_Found]:
    here, there = good.conditions, bad.conditions
    if here.has_cuda_graph and there.has_cuda_graph is False:
        words = f"{bad.label} launches layer by layer, {good.label} as a CUDA graph"
        yield _Found("cuda_graph", "known_direction", words, ("compute", "host"))


def _engine(good: Side, bad: Side, _cost: Cost) -> Iterator[_Found]:
    """Wider types, layers that left the DLA, and less search for kernels."""
    here, there = good.conditions, bad.conditions
    levels = here.optimization_level, there.optimization_level
    if None not in levels and (levels[0] or 0) > (levels[1] or 0):
        words = _versus(bad, good, "built at optimisation level", levels[1], levels[0])
        yield _Found("optimization_level", "known_direction", words, _DEVICE)
    shares = _shares_of_layers(good, bad)
    reasons: tuple[tuple[CauseName, str | None], ...] = (
        ("precision", _wider(good, bad) or _slower_int8(good, bad)),
        ("fallback", _fell_back(good, bad)),
    )
    for name, reason in reasons:
        share = shares.get(name)
        certainty: Certainty = "known_direction" if share is None else "measured"
        if reason is not None:
            yield _Found(name, certainty, reason, _DEVICE, share=share)


def _bits(side: Side) -> float | None:
    """Return the mean width of the layers' types, or of the requested one."""
    found = side.conditions
    counts = {name: n for name, n in found.layer_types.items() if name in _BITS}
    if counts:
        return sum(_BITS[name] * n for name, n in counts.items()) / sum(counts.values())
    return None if found.precision is None else float(_BITS[found.precision])


def _types(side: Side) -> str:
    counted = side.conditions.layer_types.items()
    return ", ".join(f"{n} {name}" for name, n in counted) or side.conditions.precision or "unknown"


def _wider(good: Side, bad: Side) -> str | None:
    mine, yours = _bits(good), _bits(bad)
    if mine is None or yours is None or yours <= WIDTH_RATIO * mine:
        return None
    return _versus(bad, good, "precision really built:", _types(bad), _types(good))


def _slower_int8(good: Side, bad: Side) -> str | None:
    """Return why an engine of narrower types is slower: reformats, and layers in floating point."""
    mine, yours = _bits(good), _bits(bad)
    added = (bad.conditions.reformat_layers or 0) - (good.conditions.reformat_layers or 0)
    wide = bad.conditions.wide_layers or 0
    if mine is None or yours is None or mine <= WIDTH_RATIO * yours or max(added, wide) <= 0:
        return None
    words = _versus(bad, good, "precision really built:", _types(bad), _types(good))
    return (
        f"{words}; the narrower type does not pay, with {max(added, 0)} reformats added and"
        f" {wide} layers in floating point"
    )


def _fell_back(good: Side, bad: Side) -> str | None:
    mine, yours = good.conditions.fallback_layers, bad.conditions.fallback_layers
    if mine is None or yours is None or yours <= mine:
        return None
    return _versus(bad, good, "layers that fell back to the GPU:", yours, mine)


def _shares_of_layers(good: Side, bad: Side) -> dict[str, float]:
    """Return the share of precision and fallback in the growth of the layers' time, by ONNX node.

    Nodes of one layer have equal shares of its time. The time of reformats belongs to fallback if
    layers fell back, else to precision.
    """
    if not good.layers or not bad.layers:
        return {}
    nodes: dict[str, list[tuple[float, str | None, str | None]]] = {}
    of_reformats = "precision" if _fell_back(good, bad) is None else "fallback"
    totals, grown = [0.0, 0.0], {"precision": 0.0, "fallback": 0.0}
    for number, side in enumerate((good, bad)):
        for row in side.layers:
            totals[number] += row.seconds
            if row.place == "reformat" or not row.nodes:
                grown[of_reformats] += row.seconds * (1 if number else -1)
            for node in row.nodes:
                entry = (row.seconds / len(row.nodes), row.precision, row.place)
                nodes.setdefault(node, []).append(entry)
    for both in nodes.values():
        if len(both) == 2:
            (before, type_before, place_before), (after, type_after, place_after) = both
            moved = None not in (place_before, place_after) and place_before != place_after
            if moved:
                grown["fallback"] += after - before
            elif type_before != type_after:
                grown["precision"] += after - before
    total = totals[1] - totals[0]
    return {name: max(0.0, seconds / total) for name, seconds in grown.items()} if total > 0 else {}


def _clocks(good: Side, bad: Side, cost: Cost) -> Iterator[_Found]:
    """Lower clocks, and why they are lower: throttling, the power mode, or that they are free."""
    here, there = good.conditions, bad.conditions
    modes = here.environment.power_mode, there.environment.power_mode
    new_mode = None not in modes and modes[0] != modes[1]
    heat = there.throttled_ratio > here.throttled_ratio
    mode_words = _versus(bad, good, "power mode", modes[1], modes[0])
    heat_words = f"{bad.label} throttled in {percent(there.throttled_ratio)} of its rounds"
    ratios = {} if good.device != bad.device else _clock_ratios(good, bad, lambda c: c.mean_hertz)
    if cost == "energy" or not ratios:
        locked = here.environment.clocks_locked, there.environment.clocks_locked
        if heat:
            yield _Found("throttling", "known_direction", heat_words)
        if new_mode:
            yield _Found("power_mode", "possible", mode_words)
        elif locked == (True, False):
            words = f"clocks locked in {good.label}, not in {bad.label}"
            yield _Found("clocks", "possible" if cost == "energy" else "known_direction", words)
        return
    lower = {name: ratio for name, ratio in ratios.items() if ratio > CLOCK_RATIO}
    if not lower:
        return
    factor = _slowed(good, lower)
    words = ", ".join(
        f"{name} clock {there.clocks[name].mean_hertz / 1e6:.0f} MHz in {bad.label},"
        f" {here.clocks[name].mean_hertz / 1e6:.0f} MHz in {good.label}"
        for name in lower
    )
    if new_mode:
        tops = _clock_ratios(good, bad, lambda c: c.highest_hertz or c.mean_hertz)
        by_mode = min(_slowed(good, tops), factor) if heat else factor
        yield _Found("power_mode", "at_most", f"{mode_words}; {words}", factor=by_mode)
        factor = factor / by_mode
    if heat and factor > 1:
        yield _Found("throttling", "at_most", f"{heat_words}; {words}", factor=factor)
    if not heat and not new_mode:
        loads = [one.figures["gpu_load"].value for one in (good, bad) if "gpu_load" in one.figures]
        idle = len(loads) == 2 and loads[1] < loads[0] - FREE_POINTS
        if idle and not there.environment.clocks_locked:
            words += "; the load is lower too, so this may be a consequence"
            yield _Found("clocks", "possible", words)
        else:
            yield _Found("clocks", "at_most", words, factor=factor)


def _clock_ratios(good: Side, bad: Side, read: Callable[[Clock], float]) -> dict[str, float]:
    """Return how much lower the clocks are by name, of the accelerator, the memory and the CPU."""
    here, there = good.conditions.clocks, bad.conditions.clocks
    names = dict.fromkeys((good.device, "emc", "cpu"))
    return {
        name: read(here[name]) / read(there[name])
        for name in names
        if name in here and name in there and read(there[name]) > 0
    }


def _slowed(side: Side, ratios: dict[str, float]) -> float:
    """Return by how much an inference is slower at most, if its parts scale with their clocks."""
    device, emc, cpu = (max(1.0, ratios.get(name, 1.0)) for name in (side.device, "emc", "cpu"))
    parts = side.conditions.parts_seconds
    if side.device == "cpu" or not parts or not sum(parts.values()):
        return max(device, emc)
    slowed = parts["compute"] * max(device, emc) + parts["copies"] * emc + parts["host"] * cpu
    return slowed / sum(parts.values())


def _contention(good: Side, bad: Side, _cost: Cost) -> Iterator[_Found]:
    here, there = good.conditions, bad.conditions
    hints: list[str] = []
    parts: tuple[str, ...] = _ALL
    before = {
        name: there.background.get(name, 0.0) - ratio for name, ratio in here.background.items()
    }
    if bad.device == "gpu" and before.get("gpu", 0.0) > BUSY_GPU:
        hints.append(f"the GPU was {percent(there.background['gpu'])} busy before {bad.label}")
    added = [flag for flag in there.disturbed if flag not in here.disturbed]
    hints += [f"{bad.label} has the flag {flag}" for flag in added]
    cpu = []
    if before.get("cpu", 0.0) > BUSY_CPU:
        cpu.append(f"the CPU was {percent(there.background['cpu'])} busy before {bad.label}")
    if (there.others_cores or 0.0) - (here.others_cores or 0.0) > CORES:
        cpu.append(f"other processes used {there.others_cores:.1f} cores during {bad.label}")
    if hints or cpu:
        if not hints and bad.device != "cpu":
            # The CPU launches; a graph needs it once per inference.
            parts = ("host",) if there.has_cuda_graph else ("compute", "host")
        yield _Found("contention", "known_direction", "; ".join([*hints, *cpu]), parts)


def _possible(good: Side, bad: Side, cost: Cost) -> Iterator[_Found]:
    """Differences that may explain it, without a direction."""
    here, there = good.conditions, bad.conditions
    mine, yours = here.environment, there.environment

    def differs(what: str, before: object, after: object) -> list[str]:
        known = before is not None and after is not None
        return [_versus(bad, good, what, after, before)] if known and before != after else []

    if found := differs("back-end", here.backend, there.backend):
        yield _Found("back_end", "possible", found[0])
    zones = here.hottest_celsius, there.hottest_celsius
    if (
        cost == "energy"
        and None not in zones
        and (zones[1] or 0) - (zones[0] or 0) > HOTTER_CELSIUS
    ):
        words = _versus(bad, good, "hottest zone", *map(celsius, reversed(present(zones))))
        yield _Found("heat", "possible", words)
    if hints := _badly_built(good, bad):
        yield _Found("build_circumstances", "possible", "; ".join(hints), _DEVICE)
    found = differs("GPU", mine.gpu_uuid, yours.gpu_uuid)
    found += differs("niceness", here.process.nice, there.process.nice)
    found += differs("cores of the worker:", here.process.cpus, there.process.cpus)
    if cost == "energy":
        found += differs("telemetry", mine.telemetry_source, yours.telemetry_source)
        found += differs("power reading", mine.power_reading, yours.power_reading)
        found += differs("rail sensors", mine.rail_sensors, yours.rail_sensors)
    if found:
        yield _Found("method", "possible", "; ".join(found))
    found = differs("JetPack", mine.jetpack, yours.jetpack) or differs("L4T", mine.l4t, yours.l4t)
    for name in _VERSIONS:
        found += differs(name, here.versions.get(name), there.versions.get(name))
    if found:
        yield _Found("versions", "possible", "; ".join(found))


def _badly_built(good: Side, bad: Side) -> list[str]:
    """Return what may have led the builder of one engine to worse kernels."""
    mine, yours = good.conditions.circumstances, bad.conditions.circumstances
    if mine is None or yours is None:
        return []
    hints = []
    if mine.is_alone and not yours.is_alone:
        hints.append(f"{bad.label} was built beside another build")
    if yours.notes and not mine.notes:
        hints.append(f"memory was scarce when {bad.label} was built")
    loads = mine.load_average, yours.load_average
    if None not in loads and (loads[1] or 0) - (loads[0] or 0) > LOAD_AVERAGE:
        hints.append(_versus(bad, good, "load average at the build", loads[1], loads[0]))
    return hints


_RULES: tuple[Callable[[Side, Side, Cost], Iterator[_Found]], ...] = (
    *(_accelerator, _amounts, _transfers, _engine, _launch, _clocks, _contention, _possible),
)
