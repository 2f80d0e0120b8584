"""What may be chosen for each model: what its results say of each accelerator, and what not."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ...parsers.errors import Mendable
from ..measure.quality import WITHHOLDING
from ..measure.run_report import Device
from ..results.bench_page import name_of
from ..results.records import AcceleratorResult, BenchFlag, BenchSettings, Figure, ModelResult
from .demand import Demand
from .problem import Objective, Option, Task
from .results import Source

CHOSEN_AMONG: tuple[Device, ...] = ("gpu", "dla0", "dla1")
# How far two results of the same thing may differ before that is worth a word.
_ALIKE = 0.05
# Results with these are of something else than they say.
_NOT_USED: dict[BenchFlag, str] = {
    "wrong_outputs": "its answers are wrong",
    "dla_not_used": "nothing shows that the DLA worked",
}
_NO_ENERGY = "its net energy is not known"
# These say nothing against a figure that is there.
_HARMLESS: frozenset[BenchFlag] = frozenset({"simulated", "clock_step"})


@dataclass(frozen=True)
class Variant:
    """In which of its forms a model was benched.

    Attributes:
        precision: As asked for.
        batch: Inputs an inference.
        streams: Inferences in flight at once.
        launch: As a CUDA graph or not, with copies or not, and what may fall back.
    """

    precision: str | None
    batch: int
    streams: int
    launch: tuple[bool, bool, str]

    @classmethod
    def of(cls, settings: BenchSettings) -> "Variant":
        """Return that of a bench."""
        launch = (settings.cuda_graph, settings.transfers, settings.fallback)
        return cls(settings.precision, settings.batch, settings.streams, launch)

    def words(self) -> str:
        """Name it, as far as it is not the usual."""
        graph, transfers, fallback = self.launch
        told = (
            self.precision,
            f"batch {self.batch}" if self.batch > 1 else None,
            f"{self.streams} streams" if self.streams > 1 else None,
            None if graph else "no graph",
            None if transfers else "no transfers",
            None if fallback == "allow" else f"fallback {fallback}",
        )
        return " ".join(filter(None, told))


@dataclass(frozen=True)
class Choice:
    """One way to run a model, with what it rests on.

    Attributes:
        option: The same as numbers.
        variant: In which form.
        result: What was measured.
        model: Of which model.
        source: Where that is from.
        like: The accelerator whose figures are taken, where it is another.
        has_gpu_load: Whether the time of the GPU was measured.
    """

    option: Option
    variant: Variant
    result: AcceleratorResult
    model: ModelResult
    source: Source
    like: Device | None = None
    has_gpu_load: bool = True

    def words(self) -> str:
        """Name it."""
        return " ".join(filter(None, (self.option.device, self.variant.words())))


@dataclass(frozen=True)
class Ruled:
    """A result that may not be chosen.

    Attributes:
        name: Of the model.
        device: Where.
        reason: Why not.
        lacks_energy: Whether it ran well, and only its net energy is missing.
        model: As it was given.
    """

    name: str
    device: Device
    reason: str
    lacks_energy: bool = False
    model: str = ""


@dataclass(frozen=True)
class Choices:
    """All that may be chosen.

    Attributes:
        by_name: Of each model; the order is that of the options of its task.
        ruled_out: What may not.
        notes: What else there is to say of the results.
    """

    by_name: dict[str, tuple[Choice, ...]]
    ruled_out: tuple[Ruled, ...]
    notes: tuple[str, ...]

    def tasks(self, demands: Sequence[Demand]) -> tuple[Task, ...]:
        """Return the same as numbers."""
        return tuple(
            Task(
                name=demand.name,
                rate=demand.rate_per_second,
                deadline_seconds=demand.deadline_seconds,
                options=tuple(choice.option for choice in self.by_name[demand.name]),
            )
            for demand in demands
        )


def names_in(sources: Sequence[Source]) -> list[str]:
    """Return the names of all models of which there are results."""
    return list(dict.fromkeys(name_of(m.model) for one in sources for m in one.result.models))


def choices_of(
    demands: Sequence[Demand], sources: Sequence[Source], objective: Objective
) -> Choices:
    """Return what may be chosen for each model.

    Args:
        demands: What is asked for.
        sources: Results, oldest first: of two of the same, the newest counts.
        objective: What is to be least.

    Raises:
        Mendable: Nothing may be chosen for a model, or a name is of two different files.
    """
    by_name: dict[str, tuple[Choice, ...]] = {}
    ruled: list[Ruled] = []
    notes: dict[str, None] = {}
    for demand in demands:
        found: dict[tuple[Device, Variant], Choice] = {}
        refused: dict[Device, Ruled] = {}
        for source, model in _results_of(demand.name, sources):
            for result in model.accelerators:
                if result.device not in CHOSEN_AMONG:
                    continue
                made = _choice(source, model, result, objective)
                if isinstance(made, str):
                    lacks = made.startswith(_NO_ENERGY)
                    ruled_out = Ruled(demand.name, result.device, made, lacks, model.model)
                    refused[result.device] = ruled_out
                    continue
                key = (result.device, made.variant)
                if key in found:
                    notes.update(dict.fromkeys(_apart(demand.name, found[key], made)))
                found[key] = made
        by_name[demand.name] = tuple(found.values())
        ruled += refused.values()
    by_name = _with_other_core(by_name, ruled)
    for name, choices in by_name.items():
        if not choices:
            raise _no_choice(name, [one for one in ruled if one.name == name])
        notes.update(dict.fromkeys(_flags(name, choices)))
    return Choices(by_name, tuple(ruled), tuple(notes))


def _results_of(name: str, sources: Sequence[Source]) -> Iterator[tuple[Source, ModelResult]]:
    digests: dict[str, str] = {}
    for source in sources:
        for model in source.result.models:
            if name_of(model.model) != name:
                continue
            if model.model_sha256 is not None:
                digests.setdefault(model.model_sha256, source.path)
            if len(digests) > 1:
                raise Mendable(
                    f"{name} is not the same file in {' and in '.join(digests.values())}",
                    "bench the newer one again, or leave the older result out",
                )
            yield source, model


def _choice(
    source: Source, model: ModelResult, result: AcceleratorResult, objective: Objective
) -> Choice | str:
    """Return what may be chosen, or why not."""
    if result.status != "ok":
        return f"{result.status}: {result.reason}"
    for flag, words in _NOT_USED.items():
        if flag in result.flags:
            return words
    throughput, latency = result.throughput_per_second, result.latency
    if throughput is None or throughput.value <= 0 or latency is None:
        return "no latency was measured"
    variant = Variant.of(source.result.settings)
    net = result.net_joules_per_inference
    if net is None and objective == "energy":
        flags = [flag for flag in result.flags if flag in WITHHOLDING]
        why = source.result.telemetry_problem or ", ".join(flags) or "no idle was measured"
        return f"{_NO_ENERGY} ({why})"
    load = result.utilization.get("gpu")
    # Without a measurement the GPU is taken as busy throughout for its own models, idle for others.
    on_gpu = load or Figure(value=float(result.device == "gpu"))
    option = Option(
        device=result.device,
        busy_seconds=1 / throughput.value,
        latency_seconds=latency.p99_seconds,
        joules=None if net is None else _times(net, 1 / variant.batch),
        gpu_seconds=_times(on_gpu, 1 / throughput.value),
    )
    return Choice(option, variant, result, model, source, has_gpu_load=load is not None)


def _times(figure: Figure, factor: float) -> Figure:
    return Figure(
        value=figure.value * factor,
        low=None if figure.low is None else figure.low * factor,
        high=None if figure.high is None else figure.high * factor,
    )


def _apart(name: str, older: Choice, newer: Choice) -> Iterator[str]:
    """Say where two results of the same thing do not agree."""
    was, is_now = older.option, newer.option
    pairs = [("latency", was.latency_seconds, is_now.latency_seconds)]
    if was.joules is not None and is_now.joules is not None:
        pairs.append(("energy", was.joules.value, is_now.joules.value))
    for what, before, now in pairs:
        if before > 0 and abs(now / before - 1) > _ALIKE:
            yield (
                f"{name} on {newer.words()}: {what} is {100 * (now / before - 1):+.0f} % in"
                f" {newer.source.path} against {older.source.path}; the newer one counts"
            )


def _with_other_core(
    by_name: dict[str, tuple[Choice, ...]], ruled: Sequence[Ruled]
) -> dict[str, tuple[Choice, ...]]:
    """Let the second DLA core be as the first, for models that were not tried on it.

    Only where some model ran on it: that it is there is not assumed.
    """
    devices = {one.option.device for choices in by_name.values() for one in choices}
    if "dla1" not in devices:
        return by_name
    tried = {one.name for one in ruled if one.device == "dla1"}
    made = {}
    for name, choices in by_name.items():
        has_own = name in tried or any(one.option.device == "dla1" for one in choices)
        like = [] if has_own else [one for one in choices if one.option.device == "dla0"]
        added = (
            replace(one, option=replace(one.option, device="dla1"), like="dla0") for one in like
        )
        made[name] = (*choices, *added)
    return made


def _flags(name: str, choices: Sequence[Choice]) -> Iterator[str]:
    """Say which figures bear a flag and are taken all the same."""
    for one in choices:
        flags = sorted(set(one.result.flags) - _HARMLESS)
        if flags and one.like is None:
            yield f"{name} on {one.words()} is used, though flagged {' '.join(flags)}"


def _no_choice(name: str, ruled: Sequence[Ruled]) -> Mendable:
    if not ruled:
        return Mendable(
            f"{name} was benched on neither GPU nor DLA", "bench it with --on gpu,dla0,dla1"
        )
    why = "; ".join(f"{one.device}: {one.reason}" for one in ruled)
    mend = "bench it with telemetry and rounds of 15 s or more, or say --minimise gpu"
    is_energy = any(one.lacks_energy for one in ruled)
    return Mendable(
        f"nothing of {name} can be used: {why}", mend if is_energy else "bench it again"
    )
