"""One measurement: its figures and their context."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from pydantic import NonNegativeFloat, NonNegativeInt, PositiveInt

from ...daemon.measure.energy_report import IDLE_PHASES
from ...daemon.measure.report import Accelerator, Environment, Figure, RunReport
from ...parsers.inference.events import Process
from ...parsers.inference.placement import Built
from ...parsers.records import Ratio, Record
from ...parsers.values import DLAS, body_device
from ..results.bench_page import name_of
from ..results.published import board_words, is_same, nearest
from ..results.records import (
    AcceleratorResult,
    BenchFlag,
    BenchResult,
    BenchSettings,
    ModelResult,
    Status,
    variant_of,
)
from ..results.summary import Measured, Round, summarise_accelerator

# TensorRT's own level: "Builder Optimization Level", TensorRT documentation of 8.6 to 10.
DEFAULT_LEVEL = 3
_DISTURBED: tuple[BenchFlag, ...] = ("overlapped", "baseline_disturbed", "foreign_dla_activity")


class MeasuredContext(Record):
    """All that may have influenced figures; ``None`` and a missing key are unknown.

    Attributes:
        dla_cores: Those that worked together.
        optimization_level: ``None`` for a run: its record does not have it.
        sample_shapes: Shape of each input without its first dimension.
        throttled_ratio: Share of the rounds that throttled.
        background: Load before the benchmark.
        others_cores: CPU cores that other processes used meanwhile, on average.
        others_gpu: Share of time in which other processes computed on the GPU, on average.
        others_on_gpu: Their names.
        disturbed: Flags of work beside it.
        disturbance: The work that was seen in an idle phase.
    """

    environment: Environment = Environment()
    backend: str | None = None
    built: Built = Built()
    batch: PositiveInt = 1
    dla_cores: PositiveInt | None = None
    optimization_level: NonNegativeInt | None = None
    process: Process = Process()
    sample_shapes: dict[str, tuple[int, ...]] = {}
    clocks_hertz: dict[str, NonNegativeFloat] = {}
    throttled_ratio: Ratio = 0.0
    hottest_celsius: float | None = None
    background: dict[str, Ratio] = {}
    others_cores: NonNegativeFloat | None = None
    others_gpu: NonNegativeFloat | None = None
    others_on_gpu: tuple[str, ...] = ()
    disturbed: tuple[str, ...] = ()
    disturbance: str | None = None


@dataclass(frozen=True)
class Side:
    """Figures of a model on an accelerator, with their context.

    Results of bench, runs of the store and published numbers are all of this form.

    Attributes:
        label: ``A`` or ``B``.
        source: The file or the id, as given.
        figures: By name, as in ``FIGURES``. Energies are per input.
        variant: Settings that differ from the usual ones, in words.
        problem: The reason why its figures cannot be compared.
    """

    label: str
    source: str
    model: str
    device: Accelerator
    figures: Mapping[str, Figure]
    context: MeasuredContext = field(default_factory=MeasuredContext)
    model_sha256: str | None = None
    variant: str = ""
    problem: str | None = None

    @property
    def name(self) -> str:
        """The model's short name."""
        return name_of(self.model)


def sides_of(label: str, source: str, found: BenchResult | RunReport) -> list[Side]:
    """Return every model on every accelerator of a result; a run is one."""
    if isinstance(found, BenchResult):
        sides = []
        for model in found.models:
            for settings, one in _variants(found, model):
                environment, background = found.environment, found.background
                sides.append(_side(label, source, environment, background, model, settings, one))
        return sides
    if found.backend == "exec":
        # A window that no daemon measured: no workload can have it, so it is not a back-end.
        found = found.model_copy(update={"backend": "window"})
    # A run is a bench of one round.
    status: Status = "ok" if found.outcome == "ok" else "failed"
    one = summarise_accelerator(Measured(found, status, found.reason, rounds=[Round(found)]))
    median = Figure(value=found.latency.p50_seconds) if found.latency else None
    known = {"latency": found.latency, "latency_seconds": median, "stages": found.stages}
    name = found.model or found.workload
    settings = BenchSettings(
        models=(name,),
        batch=found.batch,
        process=found.process,
        duration_seconds=0.0,
        baseline_seconds=0.0,
        warm_up_seconds=0.0,
        rounds=1,
    )
    model = ModelResult(
        model=name, model_sha256=found.model_sha256, counted=(found.run_id,), rounds=(found,)
    )
    one = one.model_copy(update=known)
    return [_side(label, source, found.environment, {}, model, settings, one)]


def _variants(
    result: BenchResult, model: ModelResult
) -> Iterator[tuple[BenchSettings, AcceleratorResult]]:
    asked = result.settings
    if asked.optimization_level is None:
        asked = asked.model_copy(update={"optimization_level": DEFAULT_LEVEL})
    for one in model.accelerators:
        yield asked, one
    if model.sweep is not None:
        for point in model.sweep.points:
            yield point.variant.settings(asked), point.result


def _side(
    label: str,
    source: str,
    machine: Environment,
    background: Mapping[str, float],
    model: ModelResult,
    settings: BenchSettings,
    one: AcceleratorResult,
) -> Side:
    runs = _counted_runs(model, one.device)
    environment, shapes, others_cores, others_gpu = machine, {}, None, None
    if runs:
        environment, shapes = runs[-1].environment, runs[-1].input_shapes
        others_cores = fmean(map(_others_cores, runs))
        others_gpu = fmean(map(_others_gpu, runs))
    power_mode = settings.power_mode or environment.power_mode
    versions = {**machine.versions, **environment.versions}
    context = {
        "environment": environment.model_copy(
            update={"power_mode": power_mode, "versions": versions}
        ),
        "backend": one.backend,
        "built": one.built or Built(requested_precision=settings.precision),
        "batch": settings.batch,
        "dla_cores": 1 if body_device(one.device) in DLAS else None,
        "process": settings.process,
        "optimization_level": settings.optimization_level,
        "clocks_hertz": _clocks(one, runs),
        "throttled_ratio": min(1.0, one.flags.get("throttled", 0) / max(1, one.rounds)),
        "hottest_celsius": one.hottest_celsius,
        "background": background,
        "sample_shapes": {name: shape[1:] for name, shape in shapes.items()},
        "others_cores": others_cores,
        "others_gpu": others_gpu,
        "others_on_gpu": _others_on_gpu(runs),
        "disturbed": [flag for flag in _DISTURBED if flag in one.flags],
        "disturbance": _disturbance(runs),
    }
    return Side(
        label,
        source,
        model.model,
        one.device,
        _figures(one, settings.batch),
        MeasuredContext.model_validate(context),
        model.model_sha256,
        variant_of(settings),
        one.problem,
    )


def _counted_runs(model: ModelResult, device: Accelerator) -> list[RunReport]:
    """Return the runs of an accelerator that count; none of a sweep, whose runs name no point."""
    if model.sweep is not None:
        return []
    runs = []
    for run in model.rounds:
        if run.accelerator == device and run.run_id in model.counted:
            runs.append(run)
    return runs


def _figures(one: AcceleratorResult, batch: int) -> dict[str, Figure]:
    """Return the figures that are known, by their names in ``FIGURES``; energies per input."""
    figures = {
        "latency": one.latency_seconds,
        "throughput": one.throughput_per_second,
        "power": one.mean_watts,
        "gpu_load": one.utilization.get("gpu"),
    }
    if one.latency is not None:
        figures["latency_p90"] = Figure(value=one.latency.p90_seconds)
        figures["latency_p99"] = Figure(value=one.latency.p99_seconds)
    if one.net_joules_per_inference is not None:
        figures["net_energy"] = one.net_joules_per_inference.times(1 / batch)
    if one.gross_joules_per_inference is not None:
        figures["gross_energy"] = one.gross_joules_per_inference.times(1 / batch)
    return {name: figure for name, figure in figures.items() if figure is not None}


def published_side(label: str, own: Side) -> Side | None:
    """Return the nearest published result as a side; ``None`` if there is none for this model.

    A condition that its source does not state is unknown; batch and streams are taken as equal.
    Board and mode get the names of the own measurement if they are the same.
    """
    here, made = own.context.environment, own.context.built
    row = nearest(
        own.model,
        own.device,
        dla_cores=own.context.dla_cores,
        precision=max(
            made.layer_types,
            key=lambda name: made.layer_types[name],
            default=made.requested_precision,
        ),
        batch=own.context.batch,
        board=here.board,
        mode=here.power_mode,
    )
    if row is None:
        return None
    facts: dict[str, object] = {
        "board": row.board,
        "power_mode": row.mode,
        "clocks_locked": row.clocks_locked,
        "jetpack": row.jetpack,
    }
    if is_same("board", row.board, here.board):
        facts["board"] = here.board
    if is_same("mode", row.mode, here.power_mode):
        facts["power_mode"] = here.power_mode
    if row.tensorrt is not None:
        facts["versions"] = {"tensorrt": row.tensorrt}
    built = Built(
        requested_precision=row.precision,
        has_cuda_graph=row.cuda_graph,
        has_transfers=row.transfers,
        streams=row.streams or made.streams,
    )
    latency = "latency"
    if row.statistic in ("p90", "p99"):
        latency = f"latency_{row.statistic}"
    values = {
        latency: row.latency_seconds,
        "throughput": row.throughput_per_second,
        "power": row.watts,
    }
    problem, size = None, _size(own.context.sample_shapes)
    if is_same("input", row.input, size) is False:
        problem = f"its input is {row.input}, and that of {own.label} is {size}"
    if not board_words(here.board):
        problem = f"published results are of Jetsons, and {own.label} is of {here.board}"
    return Side(
        label,
        f"{row.title}: {row.model}, {row.address}",
        own.model,
        own.device,
        {name: Figure(value=value) for name, value in values.items() if value is not None},
        MeasuredContext(
            environment=Environment.model_validate(facts),
            built=built,
            batch=row.batch or own.context.batch,
            dla_cores=row.dla_cores,
        ),
        variant=own.variant,
        problem=problem,
    )


def _size(shapes: Mapping[str, Sequence[int]]) -> str | None:
    """Return height and width of the first image, whichever of its other sides has the channels."""
    for shape in shapes.values():
        if len(shape) == 3:
            height_and_width = shape[1:] if shape[0] < shape[2] else shape[:2]
            return "x".join(map(str, height_and_width))
    return None


def _clocks(one: AcceleratorResult, runs: Sequence[RunReport]) -> dict[str, float]:
    """Return the mean clocks of all rounds; else the middle of their range."""
    known: dict[str, list[float]] = {}
    for run in runs:
        if run.telemetry is None:
            continue
        for name, clock in run.telemetry.frequency.items():
            known.setdefault(name, []).append(clock.mean_hertz)
    for name, ends in one.clocks.items():
        known.setdefault(name, [ends.lowest_hertz, ends.highest_hertz])
    return {name: fmean(hertz) for name, hertz in known.items()}


def _others_cores(run: RunReport) -> float:
    """Return the mean number of CPU cores that other processes used."""
    seconds = 0.0
    for name in ("steady", *IDLE_PHASES):
        if name in run.phases:
            seconds += run.phases[name].seconds
    used = sum(process.cpu_seconds or 0.0 for process in run.other_processes)
    return used / seconds if seconds else 0.0


def _others_gpu(run: RunReport) -> float:
    """Return the share of time in which other processes computed on the GPU."""
    return sum(process.gpu_load_ratio or 0.0 for process in run.other_processes)


def _others_on_gpu(runs: Sequence[RunReport]) -> list[str]:
    """Return the names of the processes that computed on the GPU in any run."""
    names: dict[str, None] = {}
    for run in runs:
        for process in run.other_processes:
            if process.gpu_load_ratio:
                names[process.name] = None
    return list(names)


def _disturbance(runs: Sequence[RunReport]) -> str | None:
    """Return what worked in an idle phase of the first run that was disturbed."""
    for run in runs:
        if "baseline_disturbed" in run.quality and run.energy is not None:
            return run.energy.net_reason
    return None


def refusal(a: Side, b: Side, *, across: bool) -> str | None:
    """Return why two measurements cannot be compared, or ``None``.

    Args:
        a: One measurement; ``b`` the other.
        across: Whether different accelerators and boards may be compared.
    """
    for one in (a, b):
        if one.problem is not None:
            return f"{one.label}: {one.problem}"
    here, there = a.context.environment, b.context.environment
    if a.model_sha256 and b.model_sha256:
        if a.model_sha256 != b.model_sha256:
            return f"different models: SHA-256 {a.model_sha256[:12]}… and {b.model_sha256[:12]}…"
    elif a.name != b.name:
        return f"different models, as far as their names show: {a.name} and {b.name}"
    if here.simulated != there.simulated:
        played = a if here.simulated else b
        return f"{played.label} is simulated, and the other is not"
    shapes, other_shapes = a.context.sample_shapes, b.context.sample_shapes
    if shapes and other_shapes and shapes != other_shapes:
        return f"inputs of different shapes: {_shapes(shapes)} and {_shapes(other_shapes)}"
    places = None if across else _different_places(a, b)
    if places is not None:
        return places
    if not a.figures.keys() & b.figures.keys():
        return "they have no figure in common"
    return None


def _different_places(a: Side, b: Side) -> str | None:
    """Return how accelerators, boards or modules differ, or ``None``."""
    here, there = a.context.environment, b.context.environment
    for what, one, other in (
        ("accelerators", a.device, b.device),
        ("boards", here.board, there.board),
        ("modules", here.module, there.module),
    ):
        if one and other and one != other:
            return f"different {what}: {one} and {other} (--across compares them)"
    return None


def _shapes(shapes: Mapping[str, tuple[int, ...]]) -> str:
    return ", ".join(f"{name} {'x'.join(map(str, shape))}" for name, shape in shapes.items())


def pairs_of(
    here: Sequence[Side], there: Sequence[Side]
) -> Iterator[tuple[Side | None, Side | None]]:
    """Yield what belongs together; ``None`` if the other result has nothing like it.

    Two results of one measurement each are a pair. Else a pair has the same model (name or digest)
    and accelerator, and if there are several of those, the same settings.
    """
    if len(here) == len(there) == 1:
        yield here[0], there[0]
        return
    left = list(there)
    for one in here:
        alike = [other for other in left if _is_alike(one, other)]
        twins = [other for other in here if _is_alike(one, other)]
        if max(len(alike), len(twins)) > 1:
            alike = [other for other in alike if other.variant == one.variant]
        if alike:
            yield one, alike[0]
            left.remove(alike[0])
        else:
            yield one, None
    for other in left:
        yield None, other


def _is_alike(one: Side, other: Side) -> bool:
    same_model = one.name == other.name or (
        one.model_sha256 is not None and one.model_sha256 == other.model_sha256
    )
    return same_model and one.device == other.device
