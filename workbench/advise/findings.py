"""Reasons for lost time or energy in the results, and missing measurements."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from math import inf, isfinite
from shlex import quote
from typing import Literal

from ...daemon.measure.report import Device
from ...daemon.measure.run_text import digits, percent
from ...parsers.records import Record
from ..results.caveats import caveats_of, int8_slower
from .choices import CHOSEN_AMONG, Choices, MeasuredOption
from .problem import Cell, Effect, Evaluation, Found, Problem, is_tie, search

FindingName = Literal[
    "int8_slower", "enqueue_bound", "copy_bound", "fallback_heavy", "thermally_limited"
]
# Caveats of the benchmark, by their name here.
_OF_CAVEATS: dict[str, FindingName] = {
    "host_bound": "enqueue_bound",
    "transfer_bound": "copy_bound",
    "fallback": "fallback_heavy",
    "busy_gpu": "fallback_heavy",
    "throttled": "thermally_limited",
    "hot": "thermally_limited",
}
# On boards a model was seen to take up to 1.8 times as long next to others (docs/advise.md).
PLAUSIBLE_SLOWDOWN = 2.0
PLAUSIBLE_POWER = 0.2
# Slowdowns that still matter are looked for up to here, in steps of so much of their value.
_MOST_SLOWDOWN, _ROOM_STEP = 1000.0, 1e-4


class ResultFinding(Record):
    """A reason in the results for lost time or energy."""

    name: FindingName
    model: str
    device: Device
    sentence: str
    remedy: str


class NextMeasurement(Record):
    """A missing measurement, and whether a plausible outcome of it would change the advice."""

    could_change: bool
    sentence: str
    command: str


def find_all(choices: Choices) -> tuple[ResultFinding, ...]:
    """Return the findings of every result that may be chosen."""
    findings: list[ResultFinding] = []
    for name, options in choices.by_name.items():
        measured = [option for option in options if option.like is None]
        findings += _slower_int8(name, measured)
        for option in measured:
            findings += _of_caveats(name, option)
    return tuple(findings)


def _slower_int8(name: str, options: Sequence[MeasuredOption]) -> Iterator[ResultFinding]:
    """Yield where int8 is slower than fp16: fewer bits should be faster."""
    for int8, fp16 in product(options, options):
        pair = (int8.precision, fp16.precision)
        if pair != ("int8", "fp16") or int8.device != fp16.device:
            continue
        why = int8_slower(int8.result, fp16.result)
        if why is not None:
            yield _finding("int8_slower", name, int8, *why)


def _of_caveats(name: str, option: MeasuredOption) -> Iterator[ResultFinding]:
    for caveat in caveats_of([option.result]):
        if caveat.name in _OF_CAVEATS:
            kind = _OF_CAVEATS[caveat.name]
            yield _finding(kind, name, option, caveat.sentence, caveat.remedy)


def _finding(
    kind: FindingName, model: str, option: MeasuredOption, sentence: str, remedy: str
) -> ResultFinding:
    return ResultFinding(
        name=kind, model=model, device=option.device, sentence=sentence, remedy=remedy
    )


# --- what to measure next -------------------------------------------------------------------------


def measure_next(problem: Problem, found: Found, choices: Choices) -> tuple[NextMeasurement, ...]:
    """Return the missing measurements; those that could change the advice come first."""
    missing = [
        *_of_pairs(problem, found, choices),
        *_of_turns(problem, found, choices),
        *_of_ties(found, choices),
        *_of_options(choices),
        *_of_energy(choices),
    ]
    missing.sort(key=lambda measurement: not measurement.could_change)
    return tuple(missing)


def _changing(sentence: str, command: str) -> NextMeasurement:
    """Return a measurement that could change the advice."""
    return NextMeasurement(could_change=True, sentence=sentence, command=command)


def _of_pairs(problem: Problem, found: Found, choices: Choices) -> Iterator[NextMeasurement]:
    """Yield pairs of the best placement that were not measured together, and what they may do."""
    best = found.best
    if best is None:
        return
    for pair in problem.unmeasured(best.placement):
        one, other = map(choices.name, pair)
        slower = [_room(problem, best, cell, pair) for cell in pair]
        changes = []
        for name, factor in zip((one, other), slower, strict=True):
            if isfinite(factor):
                changes.append(f"slow {name} by more than {digits(factor)}×")
        watts, share = _power_room(problem, found, pair)
        could_change = min(slower) <= PLAUSIBLE_SLOWDOWN
        if watts is not None:
            own = _own_watts(problem, pair)
            could_change = could_change or watts <= PLAUSIBLE_POWER * own
            changes.append(
                f"draw {digits(watts)} W more while both work ({percent(share)} of time)"
            )
        effect = "at once they may do better than in turn"
        if changes:
            effect = f"another placement is best if they {' or '.join(changes)}"
        yield NextMeasurement(
            could_change=could_change,
            sentence=f"{one} and {other} were not measured together; {effect}",
            command=_command(choices, pair),
        )


def _own_watts(problem: Problem, pair: tuple[Cell, Cell]) -> float:
    """Return the net power of two models at work, each alone."""
    watts = 0.0
    for cell in pair:
        option = problem.option(cell)
        if option.joules is not None:
            watts += max(0.0, option.joules.value) / option.busy_seconds
    return watts


def _room(problem: Problem, best: Evaluation, slowed: Cell, pair: tuple[Cell, Cell]) -> float:
    """Return the slowdown of a model next to another from which on a placement is infeasible.

    It is infinite for models on one accelerator: they can run in turn.
    """
    low, high = 1.0, _MOST_SLOWDOWN
    if _fits(problem, best, slowed, pair, high):
        return inf
    while high - low > _ROOM_STEP * low:
        middle = (low + high) / 2
        if _fits(problem, best, slowed, pair, middle):
            low = middle
        else:
            high = middle
    return low


def _fits(
    problem: Problem, best: Evaluation, slowed: Cell, pair: tuple[Cell, Cell], factor: float
) -> bool:
    """Return whether a placement is feasible if one model of a pair takes so many times longer."""
    tail = {number: 1.0 for number, _ in pair}
    tail[slowed[0]] = factor
    speed = {number: 1 / longer for number, longer in tail.items()}
    effects = {**problem.effects, frozenset(pair): Effect(tail, speed)}
    return replace(problem, effects=effects).evaluate(best.placement).worst <= 1


def _power_room(
    problem: Problem, found: Found, pair: tuple[Cell, Cell]
) -> tuple[float | None, float]:
    """Return the watts from which on another placement is better, and when they are drawn.

    The second value is the share of time in which both models work. The first is ``None`` if no
    other placement came near.
    """
    share = min(1.0, problem.share(pair[0])) * min(1.0, problem.share(pair[1]))
    if problem.objective != "energy":
        return None, share
    best = found.ranked[0]
    for other in found.ranked[1:]:
        is_elsewhere = any(other.placement[number] != option for number, option in pair)
        if is_elsewhere and other.value > best.value:
            return (other.value - best.value) / share, share
    return None, share


def _of_turns(problem: Problem, found: Found, choices: Choices) -> Iterator[NextMeasurement]:
    """Yield pairs on one accelerator that may be better if they do not wait for each other."""
    best = search(replace(problem, takes_turns=False)).best
    if best is None:
        return
    if found.best is not None and (best.value >= found.best.value or is_tie(best, found.best)):
        return
    for pair in problem.unmeasured(best.placement):
        if problem.option(pair[0]).device != problem.option(pair[1]).device:
            continue
        words = "if they do not wait for each other, all limits can be met"
        if found.best is not None:
            words = "taken as waiting for each other they are too slow; if not, that is better"
        one, other = map(choices.name, pair)
        sentence = f"{one} and {other} share an accelerator and were not measured together; {words}"
        yield _changing(sentence, _command(choices, pair))


def _of_ties(found: Found, choices: Choices) -> Iterator[NextMeasurement]:
    if found.best is None or not found.ties:
        return
    pairs = zip(found.best.placement, found.ties[0].placement, strict=True)
    number = next(n for n, (a, b) in enumerate(pairs) if a != b)
    places = [choices.at((number, one.placement[number])) for one in (found.best, found.ties[0])]
    if any(place.like for place in places):
        return
    plural = "s" if len(found.ties) > 1 else ""
    sentence = (
        f"{len(found.ties)} other placement{plural} can't be told from the best; more and"
        f" longer rounds, of {list(choices.by_name)[number]} first, may tell"
    )
    model = quote(places[0].model.model)
    yield _changing(sentence, f"tegrascope bench {model} --rounds 8 --duration 60")


def _of_options(choices: Choices) -> Iterator[NextMeasurement]:
    """Yield accelerators on which some models were measured and others not."""
    here: set[Device] = set()
    tried_by_name: dict[str, set[Device]] = {}
    for name, options in choices.by_name.items():
        here.update(option.device for option in options)
        tried_by_name[name] = {option.device for option in options if option.like is None}
    for result in choices.excluded:
        tried_by_name[result.name].add(result.device)
    for name, options in choices.by_name.items():
        tried = tried_by_name[name]
        lacking = [device for device in CHOSEN_AMONG if device in here and device not in tried]
        if lacking:
            model = quote(options[0].model.model)
            sentence = f"{name} was not measured on {' and '.join(lacking)}, other models were"
            yield _changing(sentence, f"tegrascope bench {model} --on {','.join(lacking)}")


def _of_energy(choices: Choices) -> Iterator[NextMeasurement]:
    """Yield results that ran well and were excluded only for their missing energy."""
    for one in choices.excluded:
        has_other = any(option.device == one.device for option in choices.by_name[one.name])
        if one.lacks_energy and not has_other:
            command = f"tegrascope bench {quote(one.model)} --on {one.device} --duration 60"
            sentence = f"{one.name} on {one.device} could not be chosen: {one.reason}"
            yield _changing(sentence, command)


def _command(choices: Choices, pair: tuple[Cell, Cell]) -> str:
    found = [choices.at(cell) for cell in pair]
    models = " ".join(quote(one.model.model) for one in found)
    devices = ",".join(dict.fromkeys(one.device for one in found))
    precision = found[0].precision
    extra = f" --precision {precision}" if precision else ""
    return f"tegrascope bench {models} --contention --on {devices}{extra}"
