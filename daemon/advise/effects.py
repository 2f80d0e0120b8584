"""What models were measured to do to each other, by the cells of a problem."""

from collections.abc import Collection, Mapping, Sequence
from itertools import combinations
from math import hypot

from ..results.bench_page import name_of
from ..results.records import Figure, Together
from .choices import Choice, Choices, Variant
from .problem import Cell, Effect
from .results import Source

_Key = frozenset[Cell]


def effects_of(choices: Choices, sources: Sequence[Source]) -> dict[_Key, Effect]:
    """Return every measured effect of two or three models on each other.

    Args:
        choices: What may be chosen; only of that an effect is wanted.
        sources: Results, oldest first: of two of the same, the newest counts.
    """
    found: dict[_Key, Effect] = {}
    for source in sources:
        if source.result.contention is None:
            continue
        cells = _cells(choices, Variant.of(source.result.settings))
        excess: dict[_Key, Figure | None] = {}
        for together in source.result.contention.together:
            keys = [cells.get((name_of(lane.model), lane.device)) for lane in together.lanes]
            known = [cell for cell in keys if cell is not None]
            if together.status != "ok" or len(known) < 2 or len(known) < len(keys):
                continue
            excess[frozenset(known)] = together.excess_watts
            effect = _effect(together, known, excess)
            if effect is not None:
                found[frozenset(known)] = effect
    return found


def flagged(sources: Sequence[Source], names: Collection[str]) -> list[str]:
    """Say which measurements of several models, of those asked for, bear a flag."""
    told: dict[str, None] = {}
    for source in sources:
        for one in source.result.contention.together if source.result.contention else ():
            flags = sorted(set(one.flags) - {"simulated", "clock_step"})
            is_asked_for = all(name_of(lane.model) in names for lane in one.lanes)
            if flags and len(one.lanes) > 1 and is_asked_for:
                who = " + ".join(f"{name_of(lane.model)} on {lane.device}" for lane in one.lanes)
                told[f"{who} together is used, though flagged {' '.join(flags)}"] = None
    return list(told)


def _cells(choices: Choices, variant: Variant) -> dict[tuple[str, str], Cell]:
    """Return the cells that a bench of a variant speaks of, by model and accelerator."""
    return {
        (name, one.option.device): (number, place)
        for number, (name, all_of_it) in enumerate(choices.by_name.items())
        for place, one in enumerate(all_of_it)
        if one.variant == variant and one.like is None
    }


def _effect(
    together: Together, cells: Sequence[Cell], excess: Mapping[_Key, Figure | None]
) -> Effect | None:
    tail: dict[int, float] = {}
    speed: dict[int, float] = {}
    for lane, (number, _) in zip(together.lanes, cells, strict=True):
        if lane.slowdown is None or lane.throughput_ratio is None:
            return None
        if lane.throughput_ratio.value <= 0:
            return None
        tail[number] = max(lane.slowdown.value, lane.tail_slowdown or 0.0)
        speed[number] = lane.throughput_ratio.value
    return Effect(tail, speed, _beyond(cells, excess))


def _beyond(cells: Sequence[Cell], excess: Mapping[_Key, Figure | None]) -> Figure | None:
    """Return the power beyond that of smaller groups; ``None`` where one of them is not known."""
    whole = excess[frozenset(cells)]
    if whole is None or len(cells) == 2:
        return whole
    parts = [excess.get(frozenset(pair)) for pair in combinations(cells, 2)]
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    value = whole.value - sum(part.value for part in known)
    halves = [_half(figure) for figure in (whole, *known)]
    if None in halves:
        return Figure(value=value)
    half = hypot(*(half for half in halves if half is not None))
    return Figure(value=value, low=value - half, high=value + half)


def _half(figure: Figure) -> float | None:
    return None if figure.low is None or figure.high is None else (figure.high - figure.low) / 2


def choice_at(choices: Choices, cell: Cell) -> Choice:
    """Return the choice that a cell stands for."""
    return list(choices.by_name.values())[cell[0]][cell[1]]
