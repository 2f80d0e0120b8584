"""What to measure next: what is missing, and what it would have to be to change the advice."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations
from math import inf
from shlex import quote

from ..terminal.numbers import digits, percent
from .advice import NextMeasurement
from .choices import CHOSEN_AMONG, Choices, Ruled
from .effects import choice_at
from .outcome import Outcome
from .problem import Cell, Problem
from .search import Found, is_tie, search

# On boards one lane was seen to take up to 1.8 times as long beside others (docs/advise.md).
PLAUSIBLE_SLOWDOWN = 2.0
PLAUSIBLE_POWER = 0.2


def measure_next(problem: Problem, found: Found, choices: Choices) -> tuple[NextMeasurement, ...]:
    """Return what is missing, that which could change the advice first.

    Args:
        problem: What was searched.
        found: What the search found.
        choices: What the tasks stand for.
    """
    told = [*_of_pairs(problem, found, choices), *_of_turns(problem, found, choices)]
    told += [*_of_ties(found, choices), *_of_options(choices), *_of_energy(choices)]
    return tuple(sorted(told, key=lambda one: not one.could_change))


def unmeasured(problem: Problem, outcome: Outcome) -> list[tuple[Cell, Cell]]:
    """Return the pairs of a placement that were not measured together."""
    cells = list(enumerate(outcome.placement))
    if len(cells) > 2 and frozenset(cells) in problem.effects:
        return []
    return [pair for pair in combinations(cells, 2) if frozenset(pair) not in problem.effects]


def _of_pairs(problem: Problem, found: Found, choices: Choices) -> Iterator[NextMeasurement]:
    """Yield of each pair of the placement what it would take to give the placement up."""
    best = found.best
    if best is None:
        return
    for pair in unmeasured(problem, best):
        one, other = (_name(choices, cell) for cell in pair)
        slower = [_room(problem, best, cell) for cell in pair]
        watts, share = _power_room(problem, found, pair)
        own = sum(_own_watts(problem, cell) for cell in pair)
        is_near = min(slower) <= PLAUSIBLE_SLOWDOWN
        is_dear = watts is not None and watts <= PLAUSIBLE_POWER * own
        words = (
            f"{one} and {other} were not measured together; another placement becomes the answer if"
            f" they slow {one} by more than {digits(slower[0])}× or {other} by more than"
            f" {digits(slower[1])}×"
        )
        if watts is not None:
            words += f", or draw {digits(watts)} W more while both work ({percent(share)} of time)"
        yield NextMeasurement(
            could_change=is_near or is_dear,
            sentence=words,
            command=_command(choices, pair),
        )


def _room(problem: Problem, best: Outcome, cell: Cell) -> float:
    """Return by which factor a task may become slower until the placement can't be."""
    task, latency = problem.tasks[cell[0]], best.latency_seconds[cell[0]]
    option, limit = problem.option(cell), 1 / (1 + problem.margin)
    waiting = latency - option.latency_seconds
    by_latency = (task.deadline_seconds * limit - waiting) / option.latency_seconds
    own = problem.share(cell)
    free = limit - best.duty.get(option.device, 0.0)
    return min(by_latency, 1 + free / own if own > 0 else inf)


def _power_room(
    problem: Problem, found: Found, pair: tuple[Cell, Cell]
) -> tuple[float | None, float]:
    """Return the watts, while both work, from which on another placement is better.

    With it the share of time in which both do; ``None`` where no other came near.
    """
    share = min(1.0, problem.share(pair[0])) * min(1.0, problem.share(pair[1]))
    if problem.objective != "energy" or share <= 0:
        return None, share
    for other in found.ranked[1:]:
        if not all(other.placement[number] == option for number, option in pair):
            return (other.value - found.ranked[0].value) / share, share
    return None, share


def _own_watts(problem: Problem, cell: Cell) -> float:
    joules, busy = problem.option(cell).joules, problem.option(cell).busy_seconds
    return 0.0 if joules is None else max(0.0, joules.value) / busy


def _of_turns(problem: Problem, found: Found, choices: Choices) -> Iterator[NextMeasurement]:
    """Yield what is better if models on one accelerator do not wait for each other."""
    hopeful = search(replace(problem, takes_turns=False))
    if hopeful.best is None:
        return
    best = hopeful.best
    if found.best is not None and (best.value >= found.best.value or is_tie(best, found.best)):
        return
    sharing = [
        pair
        for pair in unmeasured(problem, best)
        if problem.option(pair[0]).device == problem.option(pair[1]).device
    ]
    for pair in sharing:
        one, other = (_name(choices, cell) for cell in pair)
        yield NextMeasurement(
            could_change=True,
            sentence=(
                f"{one} and {other} share an accelerator and were not measured together; taken as"
                " waiting for each other they are too slow, and if they are not, that is better"
                if found.best is not None
                else f"{one} and {other} share an accelerator and were not measured together; if"
                " they do not wait for each other, all of it can be met"
            ),
            command=_command(choices, pair),
        )


def _of_ties(found: Found, choices: Choices) -> Iterator[NextMeasurement]:
    if found.best is None or not found.ties:
        return
    number = next(
        n
        for n, (a, b) in enumerate(zip(found.best.placement, found.ties[0].placement, strict=True))
        if a != b
    )
    name = list(choices.by_name)[number]
    places = [choice_at(choices, (number, one.placement[number])) for one in found.ranked[:2]]
    if any(place.like for place in places):
        return
    model = places[0].model.model
    yield NextMeasurement(
        could_change=True,
        sentence=(
            f"{len(found.ties)} other placement{'s' if len(found.ties) > 1 else ''} can't be told"
            f" from the best; more and longer rounds, of {name} first, may tell"
        ),
        command=f"tegrascope bench {quote(model)} --rounds 8 --duration 60",
    )


def _of_options(choices: Choices) -> Iterator[NextMeasurement]:
    """Yield accelerators on which some models were measured and others not."""
    here = {one.option.device for all_of_it in choices.by_name.values() for one in all_of_it}
    for name, all_of_it in choices.by_name.items():
        own = {one.option.device for one in all_of_it if one.like is None}
        tried = own | {one.device for one in choices.ruled_out if one.name == name}
        lacking = [device for device in CHOSEN_AMONG if device in here and device not in tried]
        if lacking:
            model = all_of_it[0].model.model
            yield NextMeasurement(
                could_change=True,
                sentence=f"{name} was not measured on {' and '.join(lacking)}, other models were",
                command=f"tegrascope bench {quote(model)} --on {','.join(lacking)}",
            )


def _of_energy(choices: Choices) -> Iterator[NextMeasurement]:
    """Yield what ran well and could not be chosen for want of its energy."""
    for one in choices.ruled_out:
        has_other = any(choice.option.device == one.device for choice in choices.by_name[one.name])
        if one.lacks_energy and not has_other:
            yield NextMeasurement(
                could_change=True,
                sentence=f"{one.name} on {one.device} could not be chosen: {one.reason}",
                command=f"tegrascope bench {quote(one.model)} --on {one.device} --duration 60",
            )


def ruled_words(ruled: Sequence[Ruled]) -> tuple[str, ...]:
    """Say what could not be chosen."""
    return tuple(f"{one.name} on {one.device}: {one.reason}" for one in ruled)


def _name(choices: Choices, cell: Cell) -> str:
    choice = choice_at(choices, cell)
    return f"{list(choices.by_name)[cell[0]]} on {choice.words()}"


def _command(choices: Choices, pair: tuple[Cell, Cell]) -> str:
    found = [choice_at(choices, cell) for cell in pair]
    models = " ".join(quote(one.model.model) for one in found)
    devices = ",".join(dict.fromkeys(one.option.device for one in found))
    precision = found[0].variant.precision
    extra = f" --precision {precision}" if precision else ""
    return f"tegrascope bench {models} --contention --on {devices}{extra}"
