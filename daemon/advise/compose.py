"""From results to advice: read, searched, and said with all that it rests on."""

from collections.abc import Iterator, Sequence

from ... import __version__
from ..results.records import Figure
from ..terminal.numbers import percent, seconds
from .advice import Advice, PlacedModel, PlacementAdvice, Shortfall
from .choices import Choices, choices_of
from .demand import Demand
from .effects import choice_at, effects_of, flagged
from .findings import find_all
from .missing import measure_next, ruled_words, unmeasured
from .outcome import Outcome, gap
from .problem import Objective, Problem
from .results import Source, disagreements
from .search import is_tie, least_bad, search


def advise_on(
    sources: Sequence[Source],
    demands: Sequence[Demand],
    *,
    minimise: Objective = "energy",
    margin: float = 0.1,
) -> Advice:
    """Return which accelerator for which model.

    Args:
        sources: Results of one machine, oldest first.
        demands: What is asked for.
        minimise: What is to be least.
        margin: By which latency and duty are taken as larger.

    Raises:
        Mendable: Nothing can be chosen for a model.
    """
    choices = choices_of(demands, sources, minimise)
    problem = Problem(choices.tasks(demands), minimise, margin, effects_of(choices, sources))
    found = search(problem)
    environment = sources[-1].result.environment
    worst = least_bad(problem) if found.best is None else None
    shown = found.best or worst
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
        looked_at=found.looked_at,
        chosen=found.best and _told(problem, choices, found.best),
        ties=tuple(_told(problem, choices, one) for one in found.ties),
        runner_up=runner_up and _told(problem, choices, runner_up),
        runner_up_gap=None if runner_up is None else _gap(found.ranked[0], runner_up),
        all_on_gpu=_all_on_gpu(problem, choices),
        shortfalls=() if worst is None else tuple(_shortfalls(problem, choices, worst)),
        least_bad=worst and _told(problem, choices, worst),
        assumed=tuple(_assumed(problem, choices, demands, shown)),
        measured=tuple(_measured(problem, choices, shown)),
        notes=(
            *choices.notes,
            *flagged(sources, choices.by_name),
            *disagreements(sources),
            *_of_files(sources),
        ),
        ruled_out=ruled_words(choices.ruled_out),
        findings=find_all(choices),
        measure_next=measure_next(problem, found, choices),
    )


def _told(problem: Problem, choices: Choices, outcome: Outcome) -> PlacementAdvice:
    """Return a placement by names."""
    models = []
    for cell, latency in zip(enumerate(outcome.placement), outcome.latency_seconds, strict=True):
        task, choice = problem.tasks[cell[0]], choice_at(choices, cell)
        models.append(
            PlacedModel(
                name=task.name,
                device=choice.option.device,
                variant=choice.variant.words(),
                like=choice.like,
                latency_seconds=latency,
                deadline_seconds=task.deadline_seconds,
                duty=problem.share(cell),
                joules_per_input=choice.option.joules,
                source=choice.source.path,
            )
        )
    half = outcome.half
    value = Figure(
        value=outcome.value,
        low=None if half is None else outcome.value - half,
        high=None if half is None else outcome.value + half,
    )
    is_energy = problem.objective == "energy"
    return PlacementAdvice(
        models=tuple(models),
        duty=dict(outcome.duty),
        watts=value if is_energy else None,
        gpu=None if is_energy else value,
        used=outcome.worst,
    )


def _gap(better: Outcome, worse: Outcome) -> Figure:
    value, half = gap(better, worse)
    return Figure(
        value=value,
        low=None if half is None else value - half,
        high=None if half is None else value + half,
    )


def _all_on_gpu(problem: Problem, choices: Choices) -> PlacementAdvice | None:
    """Return what is usual, to compare with; of several forms each model's first."""
    placement = []
    for task in problem.tasks:
        on = [n for n, option in enumerate(task.options) if option.device == "gpu"]
        if not on:
            return None
        placement.append(on[0])
    return _told(problem, choices, problem.evaluate(tuple(placement)))


def _shortfalls(problem: Problem, choices: Choices, worst: Outcome) -> Iterator[Shortfall]:
    """Yield what breaks a limit: first what no placement can mend, then what this one breaks."""
    factor = 1 + problem.margin
    told = set()
    for number, task in enumerate(problem.tasks):
        best = min(
            range(len(task.options)),
            key=lambda n: task.options[n].latency_seconds,
        )
        needs = factor * task.options[best].latency_seconds
        if needs > task.deadline_seconds:
            told.add(number)
            yield _late(
                task.name, choices, (number, best), needs, task.deadline_seconds, alone=True
            )
    for number, latency in enumerate(worst.latency_seconds):
        task, needs = problem.tasks[number], factor * latency
        if needs > task.deadline_seconds and number not in told:
            cell = (number, worst.placement[number])
            yield _late(task.name, choices, cell, needs, task.deadline_seconds, alone=False)
    for device, duty in worst.duty.items():
        if factor * duty > 1:
            names = [
                task.name
                for cell, task in zip(enumerate(worst.placement), problem.tasks, strict=True)
                if problem.option(cell).device == device
            ]
            yield Shortfall(
                what="duty",
                models=tuple(names),
                device=device,
                needs=factor * duty,
                limit=1.0,
                over_ratio=factor * duty - 1,
                sentence=(
                    f"{' and '.join(names) or 'what falls back'} would need"
                    f" {percent(factor * duty)} of {device}, margin included:"
                    f" {percent(factor * duty - 1)} too much; rates of"
                    f" {percent(1 / (factor * duty))} would fit"
                ),
            )


def _late(
    name: str,
    choices: Choices,
    cell: tuple[int, int],
    needs: float,
    deadline: float,
    *,
    alone: bool,
) -> Shortfall:
    where = choice_at(choices, cell)
    how = "even alone, where it is fastest" if alone else "beside the others"
    return Shortfall(
        what="latency",
        models=(name,),
        device=where.option.device,
        needs=needs,
        limit=deadline,
        over_ratio=needs / deadline - 1,
        is_alone=alone,
        sentence=(
            f"{name} takes {seconds(needs)} on {where.words()}, {how}, margin included; its"
            f" deadline is {seconds(deadline)}: {percent(needs / deadline - 1)} too long"
        ),
    )


def _assumed(
    problem: Problem, choices: Choices, demands: Sequence[Demand], shown: Outcome | None
) -> Iterator[str]:
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
            "energy is what the work adds; what the board draws idle, with its models loaded, is"
            " the same in every placement"
        )
    if shown is None:
        return
    devices = {problem.option(cell).device for cell in enumerate(shown.placement)}
    if problem.objective == "energy" and devices - {"gpu"}:
        yield (
            "a DLA stays powered for half a second after a task; what it draws from one input to"
            " the next is not measured, and not in the figures"
        )
    for cell in enumerate(shown.placement):
        choice = choice_at(choices, cell)
        name = problem.tasks[cell[0]].name
        if choice.like is not None:
            yield f"{name} on {choice.option.device} is taken to be as on {choice.like}"
        if not choice.has_gpu_load:
            busy = "all the time" if choice.option.device == "gpu" else "never"
            yield (
                f"{name} on {choice.words()} keeps the GPU busy {busy} while it works: its load"
                " was not measured"
            )
    if problem.objective == "energy":
        yield from _without_power(problem, choices, shown)
    for one, other in unmeasured(problem, shown):
        names = [
            f"{problem.tasks[c[0]].name} on {choice_at(choices, c).words()}" for c in (one, other)
        ]
        if problem.option(one).device == problem.option(other).device:
            yield f"{' and '.join(names)} take turns, each waiting for the other once: not measured"
        else:
            yield f"{' and '.join(names)} do not slow each other: not measured"
    if len(shown.placement) > 3:
        yield "of more than three models the slowdowns of each pair multiply"


def _without_power(problem: Problem, choices: Choices, shown: Outcome) -> Iterator[str]:
    """Yield who was measured together without what that took."""
    for cells, effect in problem.effects.items():
        in_it = all(shown.placement[number] == option for number, option in cells)
        if in_it and effect.watts is None:
            names = " and ".join(
                f"{problem.tasks[cell[0]].name} on {choice_at(choices, cell).words()}"
                for cell in sorted(cells)
            )
            beside = "alone" if len(cells) == 2 else "two by two"
            yield f"{names} draw no more together than {beside}: what they drew was withheld"


def _measured(problem: Problem, choices: Choices, shown: Outcome | None) -> Iterator[str]:
    if shown is None:
        return
    for cells, effect in problem.effects.items():
        if all(shown.placement[number] == option for number, option in cells):
            words = [
                f"{problem.tasks[n].name} on {choice_at(choices, (n, o)).words()}"
                f" {max(1.0, effect.tail[n]):.2f}×"
                for n, o in sorted(cells)
            ]
            more = "" if effect.watts is None else f", {effect.watts.value:+.2f} W while all work"
            yield f"together: {' + '.join(words)}{more}"


def _of_files(sources: Sequence[Source]) -> Iterator[str]:
    for one in sources:
        if one.result.is_partial:
            yield f"{one.path} is of a bench that was interrupted"
        for check in one.result.checks:
            yield f"{one.path}: {check.sentence}"
