"""From results to the advice: the search, and everything on which its answer rests."""

from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from math import inf, isfinite
from typing import Literal, TextIO

from pydantic import NonNegativeFloat, NonNegativeInt, PositiveInt

from ... import __version__
from ...daemon.measure.report import Device
from ...daemon.measure.run_text import joules, percent, points, seconds, watts, with_half
from ...parsers.errors import UsageError, UserError
from ...parsers.records import Record
from ...parsers.values import read_duration
from ..results.bench_page import SIMULATED_TITLE
from ..results.document import Block, Heading, Table, Text, print_document
from ..results.promise import Promise
from ..results.records import Figure
from .choices import (
    BenchSource,
    Choices,
    choices_of,
    disagreements,
    effects_of,
    flagged,
    idle_watts,
    modes_in,
)
from .findings import NextMeasurement, ResultFinding, find_all, measure_next
from .problem import (
    MOST_MODELS,
    Cell,
    Demand,
    Evaluation,
    Objective,
    Problem,
    closest_infeasible,
    gap,
    search,
)
from .promise import promise_of

# Raised whenever a key changes its meaning or goes; new keys may come at any time.
SCHEMA_VERSION: Literal[2] = 2


class PlacedModel(Record):
    """A model of a placement; its latency is the 99th percentile next to the others.

    ``variant`` is its form, if not the usual one: ``int8``, ``batch 4`` …. If this accelerator was
    not measured, the figures are those of ``like``. ``duty`` is the share of time it needs alone.
    """

    name: str
    device: Device
    variant: str = ""
    like: Device | None = None
    latency_seconds: NonNegativeFloat
    deadline_seconds: NonNegativeFloat
    duty: NonNegativeFloat
    joules_per_input: Figure | None = None
    source: str


class PlacementAdvice(Record):
    """A placement of all models: duty of each accelerator, without margin, and its cost.

    The cost is the net power of all models, or ``gpu`` if GPU use is minimised. ``used`` is the
    largest of latency over deadline and of duty, with margin; at most 1 if feasible.
    """

    models: tuple[PlacedModel, ...]
    duty: dict[Device, NonNegativeFloat]
    watts: Figure | None = None
    gpu: Figure | None = None
    used: NonNegativeFloat


class Violation(Record):
    """A limit that is exceeded: ``needs`` are seconds or a share of time, with margin.

    ``is_alone``: the model exceeds it with every accelerator to itself.
    """

    kind: Literal["latency", "duty"]
    models: tuple[str, ...]
    device: Device
    needs: NonNegativeFloat
    limit: NonNegativeFloat
    over_ratio: NonNegativeFloat
    is_alone: bool = False
    sentence: str


class Advice(Record):
    """The best accelerator for each model; ``sources`` are results, oldest first.

    The ``placements`` that were not ``evaluated`` are proven infeasible. The chosen one has the
    most slack of those that tie with the cheapest. ``ties`` differ from it or from the cheapest by
    an interval that includes 0, and ``runner_up`` is the best that does not tie. If no placement is
    feasible, ``violations`` are those of ``closest_infeasible``. ``promise`` is what ``verify``
    holds the pipeline to.
    """

    schema_version: Literal[2] = SCHEMA_VERSION
    tegrascope: str
    is_simulated: bool = False
    is_partial: bool = False
    minimise: Objective
    margin: NonNegativeFloat
    board: str | None = None
    power_mode: str | None = None
    demands: tuple[Demand, ...]
    sources: tuple[str, ...]
    placements: PositiveInt
    evaluated: NonNegativeInt
    chosen: PlacementAdvice | None = None
    promise: Promise | None = None
    ties: tuple[PlacementAdvice, ...] = ()
    runner_up: PlacementAdvice | None = None
    runner_up_gap: Figure | None = None
    all_on_gpu: PlacementAdvice | None = None
    violations: tuple[Violation, ...] = ()
    closest_infeasible: PlacementAdvice | None = None
    assumed: tuple[str, ...] = ()
    measured: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    ruled_out: tuple[str, ...] = ()
    findings: tuple[ResultFinding, ...] = ()
    measure_next: tuple[NextMeasurement, ...] = ()


def advise_on(
    sources: Sequence[BenchSource],
    demands: Sequence[Demand],
    *,
    minimise: Objective = "energy",
    margin: float = 0.1,
) -> Advice:
    """Return the best accelerator for each model, by results of one machine, oldest first.

    All models run in one power mode. With several in a sweep, each mode is advised on, and the best
    of them is returned: by the power of the board with its idle power, or by the use of the GPU.
    """
    modes = modes_in(sources)
    if not modes:
        return _advise_in(None, sources, demands, minimise, margin)
    best: Advice | None = None
    least = (True, inf)
    notes: list[str] = []
    for mode in modes:
        try:
            advice = _advise_in(mode, sources, demands, minimise, margin)
        except UserError as problem:
            notes.append(f"no placement in power mode {mode}: {problem}")
            continue
        idle = idle_watts(sources, mode) if minimise == "energy" else 0.0
        notes.append(_mode_note(mode, advice, idle))
        cost = (advice.chosen is None, _cost(advice, idle))
        if best is None or cost < least:
            best, least = advice, cost
    if best is None:
        raise UserError("no power mode has a result of every model", "; ".join(notes))
    return best.model_copy(update={"notes": (*notes, *best.notes)})


def _figure(advice: Advice) -> Figure | None:
    """Return what is minimised, of the placement that is shown."""
    shown = advice.chosen or advice.closest_infeasible
    return None if shown is None else shown.watts or shown.gpu


def _cost(advice: Advice, idle: float | None) -> float:
    """Return what a power mode costs; one of unknown idle power comes last."""
    figure = _figure(advice)
    if idle is None or figure is None:
        return inf
    return idle + figure.value


def _mode_note(mode: str, advice: Advice, idle: float | None) -> str:
    words = "feasible" if advice.chosen else "no placement meets all limits"
    figure = _figure(advice)
    if idle is None:
        words += ", its idle power is unknown"
    elif advice.minimise == "energy" and figure is not None:
        words += f", {watts(idle)} idle and {watts(figure.value)} of work"
    return f"power mode {mode}: {words}"


def _advise_in(
    mode: str | None,
    sources: Sequence[BenchSource],
    demands: Sequence[Demand],
    minimise: Objective,
    margin: float,
) -> Advice:
    """Return the best placement in a power mode, or in that of all results."""
    choices = choices_of(demands, sources, minimise, mode)
    options, effects = tuple(choices.by_name.values()), effects_of(choices, sources)
    problem = Problem(tuple(demands), options, minimise, margin, effects)
    found = search(problem)
    environment = sources[-1].result.environment
    closest = closest_infeasible(problem) if found.best is None else None
    shown = found.best or closest
    runner_up = found.runner_up
    return Advice(
        tegrascope=__version__,
        is_simulated=any(one.result.is_simulated for one in sources),
        is_partial=any(one.result.is_partial for one in sources),
        minimise=minimise,
        margin=margin,
        board=environment.board,
        power_mode=mode or environment.power_mode,
        demands=tuple(demands),
        sources=tuple(one.path for one in sources),
        placements=found.placements,
        evaluated=found.evaluated,
        chosen=found.best and _placement(problem, choices, found.best),
        promise=found.best and promise_of(problem, choices, found.best),
        ties=tuple(_placement(problem, choices, one) for one in found.ties),
        runner_up=runner_up and _placement(problem, choices, runner_up),
        runner_up_gap=runner_up and gap(runner_up, found.ranked[0]),
        all_on_gpu=_all_on_gpu(problem, choices),
        violations=() if closest is None else tuple(_violations(problem, choices, closest)),
        closest_infeasible=closest and _placement(problem, choices, closest),
        assumed=tuple(_assumed(problem, choices, demands, shown)),
        measured=tuple(_measured(problem, choices, shown)),
        notes=(
            *choices.notes,
            *flagged(sources, choices.by_name),
            *disagreements(sources),
            *_of_files(sources),
        ),
        ruled_out=tuple(f"{one.name} on {one.device}: {one.reason}" for one in choices.excluded),
        findings=find_all(choices),
        measure_next=measure_next(problem, found, choices),
    )


def _placement(problem: Problem, choices: Choices, one: Evaluation) -> PlacementAdvice:
    models = []
    for cell, latency in zip(enumerate(one.placement), one.latency_seconds, strict=True):
        demand, choice = problem.demands[cell[0]], choices.at(cell)
        models.append(
            PlacedModel(
                name=demand.name,
                device=choice.device,
                variant=choice.variant,
                like=choice.like,
                latency_seconds=latency,
                deadline_seconds=demand.deadline_seconds,
                duty=problem.share(cell),
                joules_per_input=choice.joules,
                source=choice.source.path,
            )
        )
    cost = {"watts" if problem.objective == "energy" else "gpu": Figure.around(one.value, one.half)}
    return PlacementAdvice(models=tuple(models), duty=dict(one.duty), used=one.worst, **cost)


def _all_on_gpu(problem: Problem, choices: Choices) -> PlacementAdvice | None:
    """Return the usual placement; with several variants of a model, its first."""
    placement = []
    for options in problem.options:
        devices = [option.device for option in options]
        if "gpu" not in devices:
            return None
        placement.append(devices.index("gpu"))
    return _placement(problem, choices, problem.evaluate(tuple(placement)))


def _violations(problem: Problem, choices: Choices, closest: Evaluation) -> Iterator[Violation]:
    """Yield exceeded limits: first those of every placement, then those of this one."""
    factor = 1 + problem.margin
    too_slow: set[int] = set()
    for number, demand in enumerate(problem.demands):
        cell, latency = _fastest(problem, number)
        if factor * latency > demand.deadline_seconds:
            too_slow.add(number)
            how = "even alone, where it is fastest"
            yield _too_late(problem, choices, cell, latency, how, is_alone=True)
    for cell, latency in zip(enumerate(closest.placement), closest.latency_seconds, strict=True):
        limit = problem.demands[cell[0]].deadline_seconds
        if cell[0] in too_slow or factor * latency <= limit:
            continue
        how = "next to the others"
        if problem.option(cell).device in closest.in_turn:
            how = "in turn with the others there"
        yield _too_late(problem, choices, cell, latency, how)
    for device, duty in closest.duty.items():
        if factor * duty > 1:
            names = problem.names_on(device, closest.placement)
            yield _too_busy(device, names, factor * duty)


def _fastest(problem: Problem, number: int) -> tuple[Cell, float]:
    """Return the option of a model with the least latency alone, and that."""
    alone = []
    for option in problem.options[number]:
        alone.append(option.latency_seconds + option.wait_seconds)
    return (number, alone.index(min(alone))), min(alone)


def _too_late(
    problem: Problem,
    choices: Choices,
    cell: Cell,
    latency: float,
    how: str,
    *,
    is_alone: bool = False,
) -> Violation:
    """Return that a model exceeds its deadline."""
    demand, choice = problem.demands[cell[0]], choices.at(cell)
    needs, limit = (1 + problem.margin) * latency, demand.deadline_seconds
    return Violation(
        kind="latency",
        models=(demand.name,),
        device=choice.device,
        needs=needs,
        limit=limit,
        over_ratio=needs / limit - 1,
        is_alone=is_alone,
        sentence=(
            f"{demand.name} takes {seconds(needs)} on {choice.words}, {how}, margin included; its"
            f" deadline is {seconds(limit)}: {percent(needs / limit - 1)} too long"
        ),
    )


def _too_busy(device: Device, names: Sequence[str], needs: float) -> Violation:
    """Return that models need more than all time of an accelerator."""
    return Violation(
        kind="duty",
        models=tuple(names),
        device=device,
        needs=needs,
        limit=1.0,
        over_ratio=needs - 1,
        sentence=(
            f"{' and '.join(names) or 'work that falls back'} would need {percent(needs)}"
            f" of {device}, margin included: {percent(needs - 1)} too much; rates of"
            f" {percent(1 / needs)} would fit"
        ),
    )


def _assumed(
    problem: Problem, choices: Choices, demands: Sequence[Demand], shown: Evaluation | None
) -> Iterator[str]:
    """Yield what is taken for true and was not measured."""
    yield f"latency (99th percentile) and duty are taken {percent(problem.margin)} above measured"
    for demand in demands:
        if not demand.is_deadline_given:
            yield (
                f"{demand.name} has until its next input, {seconds(demand.deadline_seconds)}:"
                " no deadline was given"
            )
    yield "inputs come evenly, and each model's independently of the others'"
    if problem.objective == "energy":
        yield (
            "energy is that of the work; the board's idle power, with its models loaded, is the"
            " same in every placement"
        )
    if shown is None:
        return
    devices = {problem.option(cell).device for cell in enumerate(shown.placement)}
    if problem.objective == "energy" and devices != {"gpu"}:
        yield (
            "a DLA stays powered for half a second after a task; its power from one input to the"
            " next is not measured, and not in the figures"
        )
    yield from _assumed_of_options(choices, shown)
    if problem.objective == "energy":
        yield from _withheld_together(problem, choices, shown)
    yield from _assumed_of_neighbours(problem, choices, shown)


def _assumed_of_options(choices: Choices, shown: Evaluation) -> Iterator[str]:
    """Yield what was not measured of a model alone."""
    for cell in enumerate(shown.placement):
        choice = choices.at(cell)
        if choice.like is not None:
            name = choices.names[cell[0]]
            yield f"{name} on {choice.device} is taken to be as on {choice.like}"
        if not choice.has_gpu_load:
            busy = "all the time" if choice.device == "gpu" else "never"
            yield (
                f"{choices.name(cell)} keeps the GPU busy {busy} while it works: its load was not"
                " measured"
            )


def _withheld_together(problem: Problem, choices: Choices, shown: Evaluation) -> Iterator[str]:
    """Yield the models whose power together was measured and withheld."""
    cells = set(enumerate(shown.placement))
    for together, effect in problem.effects.items():
        if effect.watts is None and cells.issuperset(together):
            names = " and ".join(map(choices.name, sorted(together)))
            than = "alone" if len(together) == 2 else "in pairs"
            yield f"{names} draw no more together than {than}: their power was withheld"


def _assumed_of_neighbours(problem: Problem, choices: Choices, shown: Evaluation) -> Iterator[str]:
    """Yield what was not measured of models next to each other."""
    for device in sorted(shown.in_turn):
        names = " and ".join(problem.names_on(device, shown.placement))
        yield (
            f"{names} take turns on {device}, one inference after the other: at once they were"
            " measured slower"
        )
    for one, other in problem.unmeasured(shown.placement):
        names = f"{choices.name(one)} and {choices.name(other)}"
        if problem.option(one).device == problem.option(other).device:
            yield f"{names} take turns, each waiting for the other once: not measured"
        else:
            yield f"{names} do not slow each other: not measured"
    cells = frozenset(enumerate(shown.placement))
    if len(cells) > 2 and cells not in problem.effects:
        yield (
            "slowdowns of pairs add on one accelerator; of each other accelerator the largest"
            " counts, and those of several accelerators multiply"
        )


def _measured(problem: Problem, choices: Choices, shown: Evaluation | None) -> Iterator[str]:
    """Yield the slowdown and the power of models that were measured together."""
    if shown is None:
        return
    for cells, effect in problem.effects.items():
        if not cells.issubset(enumerate(shown.placement)):
            continue
        tails = []
        for cell in sorted(cells):
            tails.append(f"{choices.name(cell)} {max(1.0, effect.tail[cell[0]]):.2f}×")
        words = f"together: {' + '.join(tails)}"
        if effect.watts is not None:
            words += f", {effect.watts.value:+.2f} W while all work"
        yield words


def _of_files(sources: Sequence[BenchSource]) -> Iterator[str]:
    """Yield what the results say about themselves."""
    for path, result in sources:
        if result.is_partial:
            yield f"{path} is of a benchmark that was interrupted"
        for check in result.checks:
            yield f"{path}: {check.sentence}"


_MOST_TIES = 3


def print_advice(advice: Advice, stream: TextIO | None = None) -> None:
    """Print the placement, its certainty, and everything on which it rests."""
    shown = advice.chosen or advice.closest_infeasible
    blocks: list[Block] = [] if shown is None else _placement_blocks(advice, shown)
    for lines in (_result_lines(advice), _basis_lines(advice), _next_lines(advice)):
        blocks += map(Text, lines)
    print_document(blocks, stream)


def _placement_blocks(advice: Advice, shown: PlacementAdvice) -> list[Block]:
    """Return the table of a placement, with its cost."""
    title = "Best placement" if advice.chosen else "No placement meets all limits; the closest is"
    simulated = SIMULATED_TITLE if advice.is_simulated else None
    parts = (title, advice.board, advice.power_mode, simulated)
    columns = ("model", "on", "rate", "p99 there", "deadline", "duty alone", "energy per input")
    rows = []
    for demand, model in zip(advice.demands, shown.models, strict=True):
        row = (
            model.name,
            f"{model.device} {model.variant}".strip(),
            f"{demand.rate_per_second:g}/s",
            seconds(model.latency_seconds),
            seconds(model.deadline_seconds),
            percent(model.duty),
            with_half(model.joules_per_input, joules),
        )
        rows.append(row)
    duties = ", ".join(f"{device} {percent(duty)}" for device, duty in shown.duty.items())
    used = f"{percent(shown.used)} of the tightest limit, with margin"
    return [
        Heading(" · ".join(part for part in parts if part)),
        Table(columns, rows, left=2),
        Text(f"{_value(shown)}; duty {duties}; {used}"),
    ]


def _result_lines(advice: Advice) -> Iterator[str]:
    """Yield what the search found, beside the placement itself."""
    for violation in advice.violations:
        yield f"✗ {violation.sentence}"
    if advice.ties:
        yield f"of {1 + len(advice.ties)} placements of equal cost this one has the most slack"
    for tie in advice.ties[:_MOST_TIES]:
        yield f"= ties with {_where(tie)}: {_value(tie)}, {percent(tie.used)} of the tightest limit"
    if len(advice.ties) > _MOST_TIES:
        yield f"= and with {len(advice.ties) - _MOST_TIES} others"
    if advice.runner_up is not None and advice.runner_up_gap is not None:
        show = watts if advice.minimise == "energy" else points
        more = advice.runner_up_gap
        interval = ""
        if more.low is not None and more.high is not None:
            interval = f" ({show(more.low)} to {show(more.high)})"
        yield f"next: {_where(advice.runner_up)}, {show(more.value)}{interval} more"
    if advice.chosen is None:
        return
    gpu = advice.all_on_gpu
    if gpu is not None and gpu != advice.chosen:
        words = f"all on the GPU: {_value(gpu)}"
        if gpu.used > 1:
            words += f", infeasible: {percent(gpu.used)} of the tightest limit"
        yield words
    words = f"{advice.evaluated} of {advice.placements} placements were evaluated"
    if advice.evaluated < advice.placements:
        words += "; the others exceed a limit with their first models alone"
    yield words


def _basis_lines(advice: Advice) -> Iterator[str]:
    """Yield what the answer rests on, as lists."""
    notes = list(advice.notes)
    for result in advice.ruled_out:
        notes.append(f"{result}: left out")
    lists = {"assumed": advice.assumed, "measured": advice.measured, "notes": notes}
    for name, lines in lists.items():
        if lines:
            yield f"{name}:"
        for line in lines:
            yield f"  - {line}"


def _next_lines(advice: Advice) -> Iterator[str]:
    """Yield what costs time or energy in the results, and what to measure next."""
    for finding in advice.findings:
        where = f"{finding.model} on {finding.device}"
        yield f"! {where}, {finding.name}: {finding.sentence}; {finding.remedy}"
    for missing in advice.measure_next:
        mark = "measure next" if missing.could_change else "could be measured"
        yield f"→ {mark}: {missing.sentence}\n    {missing.command}"


def _where(placement: PlacementAdvice) -> str:
    models = []
    for model in placement.models:
        models.append(f"{model.name} on {model.device} {model.variant}".strip())
    return ", ".join(models)


def _value(placement: PlacementAdvice) -> str:
    if placement.watts is not None:
        return f"net power {with_half(placement.watts, watts)}"
    if placement.gpu is None:
        return ""
    # Half the interval is in points: percent of percent would confuse.
    half = "" if placement.gpu.half is None else f" ± {points(placement.gpu.half)}"
    return f"GPU use {percent(placement.gpu.value)}{half}"


def read_demands(rates: str, deadlines: str | None, known: Sequence[str]) -> tuple[Demand, ...]:
    """Read rates like ``yolo=30,seg=10`` and deadlines like ``yolo=33ms`` of known models.

    Raises:
        UsageError: A text has another form, or names an unknown model.
    """
    by_rate = _pairs(rates, "--rates", "yolo=30,seg=10")
    by_deadline = _pairs(deadlines or "", "--deadlines", "yolo=33ms,seg=0.2s")
    if not by_rate:
        raise UsageError("--rates names no model", "give it like yolo=30,seg=10")
    if len(by_rate) > MOST_MODELS:
        raise UsageError(
            f"--rates names {len(by_rate)} models", f"ask for at most {MOST_MODELS} at once"
        )
    demands = []
    for name, text in by_rate.items():
        _must_be_known(name, known, "there is no result of")
        rate = _positive(text, f"--rates {name}={text}", "a number of inputs per second, like 30")
        deadline = by_deadline.pop(name, None)
        demands.append(
            Demand(
                name=name,
                rate_per_second=rate,
                deadline_seconds=1 / rate if deadline is None else _seconds(name, deadline),
                is_deadline_given=deadline is not None,
            )
        )
    for name in by_deadline:
        _must_be_known(name, list(by_rate), "--rates does not name")
    return tuple(demands)


def _pairs(text: str, option: str, example: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for part in map(str.strip, text.split(",")):
        if not part:
            continue
        name, _, value = map(str.strip, part.partition("="))
        if not name or not value:
            raise UsageError(f"{option} {part!r} is not NAME=VALUE", f"give it like {example}")
        if name in pairs:
            raise UsageError(f"{option} names {name} twice", "name it once")
        pairs[name] = value
    return pairs


def _must_be_known(name: str, known: Sequence[str], problem: str) -> None:
    if name in known:
        return
    near = get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"there are {', '.join(sorted(known)) or 'none'}"
    if near:
        hint = f"did you mean {near[0]}?"
    raise UsageError(f"{problem} {name!r}", hint)


def _positive(text: str, given: str, form: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not isfinite(value) or value <= 0:
        raise UsageError(f"{given} is not a number above 0", f"give {form}")
    return value


def _seconds(name: str, text: str) -> float:
    given = f"--deadlines {name}={text}"
    try:
        value = read_duration(text)
    except ValueError as error:
        raise UsageError(given, str(error)) from None
    return _positive(str(value), given, "a time above 0, like 33ms")
