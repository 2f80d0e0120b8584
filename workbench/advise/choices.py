"""Results of benchmarks become options of each model, and the measured effects between them."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from ...daemon.measure.figures import difference, present
from ...daemon.measure.quality import WITHHOLDING
from ...daemon.measure.report import Device
from ...parsers.errors import UserError
from ...parsers.inference.placement import Precision
from ...parsers.values import body_device
from ..results.bench_page import name_of, placed_name
from ..results.reading import read_result
from ..results.records import (
    AcceleratorResult,
    BenchFlag,
    BenchResult,
    BenchSettings,
    Figure,
    ModelResult,
    SweepPoint,
    Together,
    variant_of,
)
from .problem import Cell, Demand, Effect, Objective, Option

CHOSEN_AMONG: tuple[Device, ...] = ("gpu", "dla0", "dla1")
# Figures are comparable only where these are the same.
_MUST_AGREE = ("simulated", "board", "module", "power_mode", "gpu_uuid")
# Different values may have changed the figures, or not.
_SHOULD_AGREE = (
    *("l4t", "jetpack", "clocks_locked", "rail_sensors", "power_reading"),
    *("tensorrt", "cuda-runtime", "onnxruntime"),
)
_NO_ENERGY = "its net energy is not known"
# These do not make a figure doubtful.
_HARMLESS: frozenset[BenchFlag] = frozenset({"simulated", "clock_step"})


class BenchSource(NamedTuple):
    """One result file: its path as given, and its content."""

    path: str
    result: BenchResult


def read_sources(given: Sequence[Path]) -> tuple[BenchSource, ...]:
    """Read results, oldest first, from files or directories with a ``result.json``.

    Raises:
        UserError: A file cannot be read, or is of another machine than the first.
    """
    sources = [BenchSource(str(path), read_result(path)) for path in given]
    sources.sort(key=lambda source: source.result.ended_wall_ns)
    for one, other in combinations(sources, 2):
        _must_agree(one, other)
    return tuple(sources)


def _must_agree(one: BenchSource, other: BenchSource) -> None:
    """Raise ``UserError`` if two results are of different machines."""
    for name in _MUST_AGREE:
        here = getattr(one.result.environment, name)
        there = getattr(other.result.environment, name)
        if here is None or there is None or here == there:
            continue
        words = f"{name.replace('_', ' ')} is {here} in {one.path} and {there} in {other.path}"
        if name == "simulated":
            played, real = (one.path, other.path) if here else (other.path, one.path)
            words = f"{played} is simulated, and {real} is not"
        raise UserError(
            words,
            "figures of different machines cannot be compared: bench all models on one,"
            " in one power mode",
        )


def disagreements(sources: Sequence[BenchSource]) -> list[str]:
    """Return differences between results that may have changed their figures."""
    differences: dict[str, None] = {}
    for one, other in combinations(sources, 2):
        here, there = _conditions(one), _conditions(other)
        for name in _SHOULD_AGREE:
            if here.get(name) and there.get(name) and here[name] != there[name]:
                words = f"{name} is {here[name]} in {one.path}, {there[name]} in {other.path}"
                differences[words] = None
    return list(differences)


def _conditions(source: BenchSource) -> dict[str, Any]:
    environment = source.result.environment
    return {**dict(environment), **environment.versions}


def names_in(sources: Sequence[BenchSource]) -> list[str]:
    """Return the names of all models of which there are results."""
    names: dict[str, None] = {}
    for source in sources:
        for model in source.result.models:
            names[name_of(model.model)] = None
    return list(names)


# --- options --------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class MeasuredOption(Option):
    """One way to run a model, and its result; ``like`` is another accelerator that was measured.

    ``gross_joules`` are per input, with the idle power of the board.
    """

    settings: BenchSettings
    result: AcceleratorResult
    model: ModelResult
    source: BenchSource
    like: Device | None = None
    has_gpu_load: bool = True
    gross_joules: Figure | None = None

    @property
    def variant(self) -> str:
        """Its form, if not the usual one."""
        return variant_of(self.settings)

    @property
    def precision(self) -> Precision | None:
        """That of its engine; ``None`` left it to the back-end."""
        return self.settings.precision

    @property
    def words(self) -> str:
        """Accelerator and variant."""
        return f"{self.device} {self.variant}".strip()


class Excluded(NamedTuple):
    """A result that may not be chosen."""

    name: str
    device: Device
    reason: str
    model: str

    @property
    def lacks_energy(self) -> bool:
        """Whether it ran well, and only its net energy is missing."""
        return self.reason.startswith(_NO_ENERGY)


@dataclass(frozen=True)
class Choices:
    """All options of each model, in the order of its demand."""

    by_name: dict[str, tuple[MeasuredOption, ...]]
    excluded: tuple[Excluded, ...]
    notes: tuple[str, ...]

    def at(self, cell: Cell) -> MeasuredOption:
        """Return the option of a cell."""
        return list(self.by_name.values())[cell[0]][cell[1]]

    @property
    def names(self) -> list[str]:
        """The names of the models."""
        return list(self.by_name)

    def name(self, cell: Cell) -> str:
        """Return model and accelerator of a cell."""
        return f"{self.names[cell[0]]} on {self.at(cell).words}"


def modes_in(sources: Sequence[BenchSource]) -> list[str]:
    """Return the power modes of which sweeps have points; a placement can be in one of them."""
    modes: dict[str, None] = {}
    for model in _models_of(sources):
        for point in _points_of(model):
            if point.variant.power_mode is not None:
                modes[point.variant.power_mode] = None
    return list(modes)


def idle_watts(sources: Sequence[BenchSource], mode: str) -> float | None:
    """Return the idle power of the board in a mode; ``None`` if no sweep measured it."""
    swept = [model for model in _models_of(sources) if model.sweep]
    known = present(model.idle_watts(mode) for model in swept)
    return fmean(known) if known else None


def _models_of(sources: Sequence[BenchSource]) -> Iterator[ModelResult]:
    for source in sources:
        yield from source.result.models


def _points_of(model: ModelResult) -> Sequence[SweepPoint]:
    """Return the points of a model's sweep; none without one."""
    return () if model.sweep is None else model.sweep.points


def _variants_of(
    source: BenchSource, model: ModelResult, mode: str | None
) -> Iterator[tuple[BenchSettings, AcceleratorResult, bool]]:
    """Yield the results of a model in a power mode, and whether a sweep chose their batch.

    Only the points on the front of a sweep are choices: the others are surely worse.
    """
    base = source.result.settings
    if mode is None or source.result.environment.power_mode in (mode, None):
        for result in model.accelerators:
            yield base, result, False
    for point in _points_of(model):
        is_in_mode = mode is None or point.variant.power_mode in (mode, None)
        if point.outcome == "front" and is_in_mode:
            yield point.variant.settings(base), point.result, True


def choices_of(
    demands: Sequence[Demand],
    sources: Sequence[BenchSource],
    objective: Objective,
    mode: str | None = None,
) -> Choices:
    """Return the options of each model; the newest of results of the same thing counts.

    With ``mode``, only results in this power mode are options.

    Raises:
        UserError: A model has no option, or a name is of two different files.
    """
    by_name: dict[str, tuple[MeasuredOption, ...]] = {}
    excluded: list[Excluded] = []
    for demand in demands:
        options, refused = _options_of(demand, sources, objective, mode)
        by_name[demand.name] = options
        excluded += refused
    _add_other_core(by_name, excluded)
    notes: dict[str, None] = {}
    for name, options in by_name.items():
        if not options:
            raise _no_option(name, excluded)
        for option in options:
            flags = _doubtful(option.result.flags)
            if flags and option.like is None:
                notes[f"{name} on {option.words} is used, though flagged {flags}"] = None
    return Choices(by_name, tuple(excluded), tuple(notes))


def _options_of(
    demand: Demand, sources: Sequence[BenchSource], objective: Objective, mode: str | None
) -> tuple[tuple[MeasuredOption, ...], Iterable[Excluded]]:
    """Return the options of a model, and the results that may not be chosen."""
    options: dict[str, MeasuredOption] = {}
    refused: dict[Device, Excluded] = {}
    for source, model in _results_of(demand.name, sources):
        for settings, result, is_chosen in _variants_of(source, model, mode):
            if result.device not in CHOSEN_AMONG:
                continue
            made = _option(source, model, result, objective, settings)
            if isinstance(made, str):
                excluded = Excluded(demand.name, result.device, made, model.model)
                refused[result.device] = excluded
                continue
            if is_chosen:
                # Inputs come evenly, so the first of a batch waits for the others.
                wait = (settings.batch - 1) / demand.rate_per_second
                made = replace(made, wait_seconds=wait)
            options[made.words] = made
    return tuple(options.values()), refused.values()


def _doubtful(flags: Iterable[BenchFlag]) -> str:
    """Return the flags that make a figure doubtful, in words."""
    return " ".join(sorted(set(flags) - _HARMLESS))


def _no_option(name: str, excluded: Sequence[Excluded]) -> UserError:
    """Return why a model has no option, with the remedy."""
    reasons = []
    remedy = "bench it again"
    for result in excluded:
        if result.name != name:
            continue
        reasons.append(f"{result.device}: {result.reason}")
        if result.lacks_energy:
            remedy = "bench it with telemetry and rounds of 15 s or more, or use --minimise gpu"
    if not reasons:
        words = f"{name} was measured on neither GPU nor DLA"
        return UserError(words, "bench it with --on gpu, or gpu,dla0,dla1 with a DLA")
    return UserError(f"no result of {name} can be used: {'; '.join(reasons)}", remedy)


def _results_of(
    name: str, sources: Sequence[BenchSource]
) -> Iterator[tuple[BenchSource, ModelResult]]:
    digests: dict[str, str] = {}
    for source in sources:
        for model in source.result.models:
            if name_of(model.model) != name:
                continue
            if model.model_sha256 is not None:
                digests.setdefault(model.model_sha256, source.path)
            if len(digests) > 1:
                raise UserError(
                    f"{name} is not the same file in {' and in '.join(digests.values())}",
                    "bench the newer one again, or leave the older result out",
                )
            yield source, model


def _option(
    source: BenchSource,
    model: ModelResult,
    result: AcceleratorResult,
    objective: Objective,
    settings: BenchSettings,
) -> MeasuredOption | str:
    """Return the option, or why a result is excluded."""
    if result.problem is not None:
        return result.problem
    throughput, latency = result.throughput_per_second, result.latency
    if throughput is None or throughput.value <= 0 or latency is None:
        return "no latency was measured"
    net = result.net_joules_per_inference
    if net is None and objective == "energy":
        flags = ", ".join(flag for flag in result.flags if flag in WITHHOLDING)
        why = source.result.telemetry_problem or flags or "no idle was measured"
        return f"{_NO_ENERGY} ({why})"
    gross = result.gross_joules_per_inference
    load = result.utilization.get("gpu")
    # Without a measurement the GPU is taken as busy throughout for its own models, idle for others.
    on_gpu = load or Figure(value=float(result.device == "gpu"))
    return MeasuredOption(
        device=body_device(result.device),
        busy_seconds=1 / throughput.value,
        latency_seconds=latency.p99_seconds,
        joules=None if net is None else net.times(1 / settings.batch),
        gpu_seconds=on_gpu.times(1 / throughput.value),
        settings=settings,
        result=result,
        model=model,
        source=source,
        has_gpu_load=load is not None,
        gross_joules=None if gross is None else gross.times(1 / settings.batch),
    )


def _add_other_core(
    by_name: dict[str, tuple[MeasuredOption, ...]], excluded: Sequence[Excluded]
) -> None:
    """Take the second DLA core as equal to the first, for models that were not tried on it.

    Only if some model ran on it: that it exists is not assumed.
    """
    ran, tried = False, set()
    for result in excluded:
        if result.device == "dla1":
            tried.add(result.name)
    for name, options in by_name.items():
        if any(option.device == "dla1" for option in options):
            ran = True
            tried.add(name)
    for name, options in by_name.items():
        if not ran or name in tried:
            continue
        others = []
        for option in options:
            if option.device == "dla0":
                others.append(replace(option, device="dla1", like="dla0"))
        by_name[name] = (*options, *others)


# --- effects --------------------------------------------------------------------------------------


def effects_of(choices: Choices, sources: Sequence[BenchSource]) -> dict[frozenset[Cell], Effect]:
    """Return the measured effects between two or three options; the newest one counts."""
    effects: dict[frozenset[Cell], Effect] = {}
    for source in sources:
        if source.result.contention is None:
            continue
        cells = _cells_of(choices, variant_of(source.result.settings))
        excess: dict[frozenset[Cell], Figure | None] = {}
        for together in source.result.contention.together:
            lanes = [(name_of(lane.model), body_device(lane.device)) for lane in together.lanes]
            if together.status != "ok" or len(lanes) < 2 or not cells.keys() >= set(lanes):
                continue
            placed = [cells[lane] for lane in lanes]
            excess[frozenset(placed)] = together.excess_watts
            effect = _effect(together, placed, excess)
            if effect is not None:
                effects[frozenset(placed)] = effect
    return effects


def _cells_of(choices: Choices, variant: str) -> dict[tuple[str, Device], Cell]:
    """Return the cells of the options that were measured in a form, by model and accelerator."""
    cells: dict[tuple[str, Device], Cell] = {}
    for number, (name, options) in enumerate(choices.by_name.items()):
        for place, option in enumerate(options):
            if option.variant == variant and option.like is None:
                cells[name, option.device] = (number, place)
    return cells


def flagged(sources: Sequence[BenchSource], names: Collection[str]) -> list[str]:
    """Return which measurements of several models, of those asked for, have a flag."""
    notes: dict[str, None] = {}
    for source in sources:
        if source.result.contention is None:
            continue
        for together in source.result.contention.together:
            flags = _doubtful(together.flags)
            is_asked_for = all(name_of(lane.model) in names for lane in together.lanes)
            if flags and len(together.lanes) > 1 and is_asked_for:
                models = " + ".join(map(placed_name, together.lanes))
                notes[f"{models} together is used, though flagged {flags}"] = None
    return list(notes)


def _effect(
    together: Together, cells: Sequence[Cell], excess: Mapping[frozenset[Cell], Figure | None]
) -> Effect | None:
    tail: dict[int, float] = {}
    speed: dict[int, float] = {}
    for lane, (number, _) in zip(together.lanes, cells, strict=True):
        ratio = lane.throughput_ratio
        if lane.slowdown is None or ratio is None or ratio.value <= 0:
            return None
        tail[number] = max(lane.slowdown.value, lane.tail_slowdown or 0.0)
        speed[number] = ratio.value
    watts = excess[frozenset(cells)]
    if len(cells) > 2:
        # Of three models the power beyond that of the pairs, if that of all pairs is known.
        for pair in combinations(cells, 2):
            watts = difference(watts, excess.get(frozenset(pair)))
    return Effect(tail, speed, watts)
