"""From results to the advice: the search, and everything on which its answer rests."""

from collections.abc import Iterator, Sequence

from ... import __version__
from ..results.records import Figure
from ..terminal.numbers import percent, seconds
from .choices import BenchSource, Choices, choices_of, disagreements, effects_of, flagged
from .findings import find_all, measure_next, unmeasured
from .problem import Cell, Evaluation, Problem, closest_infeasible, gap, is_tie, search
from .records import Advice, Demand, Objective, PlacedModel, PlacementAdvice, Violation


def advise_on(
    sources: Sequence[BenchSource],
    demands: Sequence[Demand],
    *,
    minimise: Objective = "energy",
    margin: float = 0.1,
) -> Advice:
    """Return the best accelerator for each model, by results of one machine, oldest first.

    Raises:
        Mendable: A model has no option.
    """
    choices = choices_of(demands, sources, minimise)
    problem = Problem(choices.rated(demands), minimise, margin, effects_of(choices, sources))
    found = search(problem)
    environment = sources[-1].result.environment
    closest = closest_infeasible(problem) if found.best is None else None
    shown = found.best or closest
    runner_up = next((one for one in found.ranked[1:] if not is_tie(found.ranked[0], one)), None)
    return Advice(
        tegrascope=__version__,
        is_simulated=any(one.result.is_simulated for one in sources),
        is_partial=any(one.result.is_partial for one in sources),
        minimise=minimise,
        margin=margin,
        board=environment.board,
        power_mode=environment.power_mode,
        demands=tuple(demands),
        sources=tuple(one.path for one in sources),
        placements=found.placements,
        evaluated=found.evaluated,
        chosen=found.best and _placement(problem, choices, found.best),
        ties=tuple(_placement(problem, choices, one) for one in found.ties),
        runner_up=runner_up and _placement(problem, choices, runner_up),
        runner_up_gap=runner_up and Figure.around(*gap(found.ranked[0], runner_up)),
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
    cells = enumerate(one.placement)
    models = tuple(
        PlacedModel(
            name=model.name,
            device=choice.option.device,
            variant=choice.variant.words(),
            like=choice.like,
            latency_seconds=latency,
            deadline_seconds=model.deadline_seconds,
            duty=problem.share(cell),
            joules_per_input=choice.option.joules,
            source=choice.source.path,
        )
        for cell, model, latency in zip(cells, problem.models, one.latency_seconds, strict=True)
        for choice in (choices.at(cell),)
    )
    value = Figure.around(one.value, one.half)
    is_energy = problem.objective == "energy"
    return PlacementAdvice(
        models=models,
        duty=dict(one.duty),
        watts=value if is_energy else None,
        gpu=None if is_energy else value,
        used=one.worst,
    )


def _all_on_gpu(problem: Problem, choices: Choices) -> PlacementAdvice | None:
    """Return the usual placement; with several variants of a model, its first."""
    devices = [[option.device for option in model.options] for model in problem.models]
    if not all("gpu" in each for each in devices):
        return None
    placement = tuple(each.index("gpu") for each in devices)
    return _placement(problem, choices, problem.evaluate(placement))


def _violations(problem: Problem, choices: Choices, closest: Evaluation) -> Iterator[Violation]:
    """Yield exceeded limits: first those of every placement, then those of this one."""
    factor = 1 + problem.margin
    too_slow = set()
    for number, model in enumerate(problem.models):
        seconds_alone = [option.latency_seconds for option in model.options]
        needs = factor * min(seconds_alone)
        if needs > model.deadline_seconds:
            too_slow.add(number)
            best = seconds_alone.index(min(seconds_alone))
            yield _late(problem, choices, (number, best), needs, alone=True)
    for cell, latency in zip(enumerate(closest.placement), closest.latency_seconds, strict=True):
        needs = factor * latency
        if needs > problem.models[cell[0]].deadline_seconds and cell[0] not in too_slow:
            yield _late(problem, choices, cell, needs, alone=False)
    for device, duty in closest.duty.items():
        needs = factor * duty
        if needs > 1:
            names = [
                problem.models[cell[0]].name
                for cell in enumerate(closest.placement)
                if problem.option(cell).device == device
            ]
            yield Violation(
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


def _late(
    problem: Problem, choices: Choices, cell: Cell, needs: float, *, alone: bool
) -> Violation:
    model, where = problem.models[cell[0]], choices.at(cell)
    how = "even alone, where it is fastest" if alone else "next to the others"
    over = needs / model.deadline_seconds - 1
    return Violation(
        kind="latency",
        models=(model.name,),
        device=where.option.device,
        needs=needs,
        limit=model.deadline_seconds,
        over_ratio=over,
        is_alone=alone,
        sentence=(
            f"{model.name} takes {seconds(needs)} on {where.words}, {how}, margin included; its"
            f" deadline is {seconds(model.deadline_seconds)}: {percent(over)} too long"
        ),
    )


def _assumed(
    problem: Problem, choices: Choices, demands: Sequence[Demand], shown: Evaluation | None
) -> Iterator[str]:
    yield f"latency (99th percentile) and duty are taken {percent(problem.margin)} above measured"
    for demand in demands:
        if not demand.is_deadline_given:
            yield (
                f"{demand.name} has until its next input, {seconds(demand.deadline_seconds)}:"
                " no deadline was given"
            )
    yield "inputs come evenly, and each model's independently of the others'"
    is_energy = problem.objective == "energy"
    if is_energy:
        yield (
            "energy is that of the work; the board's idle power, with its models loaded, is the"
            " same in every placement"
        )
    if shown is None:
        return
    cells = list(enumerate(shown.placement))
    if is_energy and {problem.option(cell).device for cell in cells} - {"gpu"}:
        yield (
            "a DLA stays powered for half a second after a task; its power from one input to the"
            " next is not measured, and not in the figures"
        )
    for cell in cells:
        choice, name = choices.at(cell), problem.models[cell[0]].name
        if choice.like is not None:
            yield f"{name} on {choice.option.device} is taken to be as on {choice.like}"
        if not choice.has_gpu_load:
            busy = "all the time" if choice.option.device == "gpu" else "never"
            yield (
                f"{choices.name(cell)} keeps the GPU busy {busy} while it works: its load was not"
                " measured"
            )
    for part, effect in problem.effects.items() if is_energy else ():
        if part.issubset(cells) and effect.watts is None:
            names = " and ".join(map(choices.name, sorted(part)))
            than = "alone" if len(part) == 2 else "in pairs"
            yield f"{names} draw no more together than {than}: their power was withheld"
    for one, other in unmeasured(problem, shown):
        names = f"{choices.name(one)} and {choices.name(other)}"
        if problem.option(one).device == problem.option(other).device:
            yield f"{names} take turns, each waiting for the other once: not measured"
        else:
            yield f"{names} do not slow each other: not measured"
    if len(cells) > 3:
        yield "of more than three models the slowdowns of each pair multiply"


def _measured(problem: Problem, choices: Choices, shown: Evaluation | None) -> Iterator[str]:
    for cells, effect in problem.effects.items():
        if shown is not None and cells.issubset(enumerate(shown.placement)):
            words = [
                f"{choices.name(cell)} {max(1.0, effect.tail[cell[0]]):.2f}×"
                for cell in sorted(cells)
            ]
            more = "" if effect.watts is None else f", {effect.watts.value:+.2f} W while all work"
            yield f"together: {' + '.join(words)}{more}"


def _of_files(sources: Sequence[BenchSource]) -> Iterator[str]:
    for one in sources:
        if one.result.is_partial:
            yield f"{one.path} is of a benchmark that was interrupted"
        for check in one.result.checks:
            yield f"{one.path}: {check.sentence}"
