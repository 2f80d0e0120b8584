"""Reasons for lost time or energy in the results, and missing measurements."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations, product
from math import inf
from shlex import quote

from ..measure.quality import CLOCK_RATIO
from ..results.caveats import caveats_of
from ..terminal.numbers import celsius, digits, percent, seconds
from .choices import CHOSEN_AMONG, Choices, MeasuredOption
from .problem import Cell, Evaluation, Found, Problem, is_tie, search
from .records import FindingName, NextMeasurement, ResultFinding

# Caveats of the benchmark, by their name here.
_OF_CAVEATS: dict[str, FindingName] = {
    "host_bound": "enqueue_bound",
    "transfer_bound": "copy_bound",
}
# A DLA that leaves more than this of the GPU busy is not worth its price.
_GPU_SHARE = 0.2
# From here on boards slow themselves down, by their trip points.
_HOT_CELSIUS = 85.0
# On boards a model was seen to take up to 1.8 times as long next to others (docs/advise.md).
PLAUSIBLE_SLOWDOWN = 2.0
PLAUSIBLE_POWER = 0.2

_INT8_REMEDY = "run it in fp16, or look which layers reformat between types"
_FALLBACK_REMEDY = "tegrascope bench --fallback forbid names the layers that the DLA refuses"
_HEAT_REMEDY = (
    "cool it, or bench in a power mode that it can hold: cooler, another choice may be best"
)
# An option, name and sentence of the finding, and its remedy.
_Noticed = Iterator[tuple[MeasuredOption, FindingName, str, str]]


def find_all(choices: Choices) -> tuple[ResultFinding, ...]:
    """Return the findings of every result that may be chosen."""
    return tuple(
        ResultFinding(
            name=kind,
            model=name,
            device=one.option.device,
            sentence=sentence,
            remedy=remedy,
        )
        for name, options in choices.by_name.items()
        for one, kind, sentence, remedy in (*_slower(options), *_of_each(options))
    )


def _slower(options: Sequence[MeasuredOption]) -> _Noticed:
    """Fewer bits should be faster; otherwise something reformats or falls back."""
    for int8, fp16 in product(options, options):
        pair = (int8.variant.precision, fp16.variant.precision)
        if pair != ("int8", "fp16") or int8.option.device != fp16.option.device:
            continue
        slow, fast = int8.result.latency_seconds, fp16.result.latency_seconds
        if slow is None or fast is None or slow.value <= fast.value or int8.like:
            continue
        built = int8.result.built
        reformats = len(built.placement.reformat_layers) if built is not None else 0
        with_layers = f", with {reformats} layers that only reformat" if reformats else ""
        sentence = (
            f"int8 takes {seconds(slow.value)}, fp16 {seconds(fast.value)}:"
            f" {percent(slow.value / fast.value - 1)} more{with_layers}"
        )
        yield int8, "int8_slower", sentence, _INT8_REMEDY


def _of_each(options: Sequence[MeasuredOption]) -> _Noticed:
    for one in options:
        if one.like is not None:
            continue
        for caveat in caveats_of([one.result]):
            if caveat.name in _OF_CAVEATS:
                yield one, _OF_CAVEATS[caveat.name], caveat.sentence, caveat.remedy
        if sentence := _left_to_gpu(one):
            yield one, "fallback_heavy", sentence, _FALLBACK_REMEDY
        if sentence := _limited_by_heat(one):
            yield one, "thermally_limited", sentence, _HEAT_REMEDY


def _left_to_gpu(one: MeasuredOption) -> str | None:
    """Return how much a model on a DLA leaves to the GPU, if that is much."""
    if not one.option.device.startswith("dla"):
        return None
    placement = None if one.result.built is None else one.result.built.placement
    load = one.result.utilization.get("gpu")
    fell_back = placement is not None and placement.verdict in ("mixed", "gpu_only")
    if not fell_back and (load is None or load.value <= _GPU_SHARE):
        return None
    words = []
    if placement is not None and placement.verdict != "unknown":
        words.append(
            f"{len(placement.gpu_layers)} layers compute on the GPU and"
            f" {len(placement.reformat_layers)} reformat there,"
            f" {len(placement.dla_layers)} are on the DLA ({placement.verdict})"
        )
    if load is not None:
        words.append(f"the GPU is {percent(load.value)} busy meanwhile")
    return "; ".join(words)


def _limited_by_heat(one: MeasuredOption) -> str | None:
    """Return the signs of heat, if the board throttled or a clock fell while it was hot."""
    result = one.result
    throttled = result.flags.get("throttled")
    clock, hot = result.clocks.get(result.device), result.hottest_celsius
    slowed = clock is not None and clock.highest_hertz > CLOCK_RATIO * clock.lowest_hertz
    if not throttled and not (slowed and hot is not None and hot >= _HOT_CELSIUS):
        return None
    words = []
    if throttled:
        words.append(f"throttled in {throttled} of {result.rounds} rounds")
    if hot is not None:
        words.append(f"hottest {celsius(hot)} ({result.hottest_zone})")
    if clock is not None and slowed:
        low, high = clock.lowest_hertz / 1e6, clock.highest_hertz / 1e6
        words.append(f"its clock between {low:.0f} and {high:.0f} MHz")
    return ", ".join(words)


# --- what to measure next -------------------------------------------------------------------------


# A sentence and a command.
_Missing = Iterator[tuple[str, str]]


def measure_next(problem: Problem, found: Found, choices: Choices) -> tuple[NextMeasurement, ...]:
    """Return the missing measurements; those that could change the advice come first."""
    missing = [*_of_pairs(problem, found, choices)]
    missing += (
        NextMeasurement(could_change=True, sentence=sentence, command=command)
        for sentence, command in (
            *_of_turns(problem, found, choices),
            *_of_ties(found, choices),
            *_of_options(choices),
            *_of_energy(choices),
        )
    )
    return tuple(sorted(missing, key=lambda one: not one.could_change))


def unmeasured(problem: Problem, one: Evaluation) -> list[tuple[Cell, Cell]]:
    """Return the pairs of a placement that were not measured together."""
    cells = list(enumerate(one.placement))
    if len(cells) > 2 and frozenset(cells) in problem.effects:
        return []
    return [pair for pair in combinations(cells, 2) if frozenset(pair) not in problem.effects]


def _of_pairs(problem: Problem, found: Found, choices: Choices) -> Iterator[NextMeasurement]:
    best = found.best
    if best is None:
        return
    for pair in unmeasured(problem, best):
        one, other = map(choices.name, pair)
        slower = [_room(problem, best, cell) for cell in pair]
        watts, share = _power_room(problem, found, pair)
        own = sum(_own_watts(problem, cell) for cell in pair)
        is_near = min(slower) <= PLAUSIBLE_SLOWDOWN
        is_dear = watts is not None and watts <= PLAUSIBLE_POWER * own
        words = (
            f"{one} and {other} were not measured together; another placement is best if they slow"
            f" {one} by more than {digits(slower[0])}× or {other} by more than"
            f" {digits(slower[1])}×"
        )
        if watts is not None:
            words += f", or draw {digits(watts)} W more while both work ({percent(share)} of time)"
        yield NextMeasurement(
            could_change=is_near or is_dear, sentence=words, command=_command(choices, pair)
        )


def _room(problem: Problem, best: Evaluation, cell: Cell) -> float:
    """Return the slowdown of a model from which on the placement is infeasible."""
    model, latency = problem.models[cell[0]], best.latency_seconds[cell[0]]
    option, limit = problem.option(cell), 1 / (1 + problem.margin)
    waiting = latency - option.latency_seconds
    by_latency = (model.deadline_seconds * limit - waiting) / option.latency_seconds
    own = problem.share(cell)
    free = limit - best.duty.get(option.device, 0.0)
    return min(by_latency, 1 + free / own if own > 0 else inf)


def _power_room(
    problem: Problem, found: Found, pair: tuple[Cell, Cell]
) -> tuple[float | None, float]:
    """Return the watts from which on another placement is better, and when they are drawn.

    The second value is the share of time in which both models work. The first is ``None`` if no
    other placement came near.
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


def _of_turns(problem: Problem, found: Found, choices: Choices) -> _Missing:
    """Yield pairs on one accelerator that may be better if they do not wait for each other."""
    best = search(replace(problem, takes_turns=False)).best
    if best is None:
        return
    if found.best is not None and (best.value >= found.best.value or is_tie(best, found.best)):
        return
    for pair in unmeasured(problem, best):
        if problem.option(pair[0]).device != problem.option(pair[1]).device:
            continue
        words = "if they do not wait for each other, all limits can be met"
        if found.best is not None:
            words = "taken as waiting for each other they are too slow; if not, that is better"
        one, other = map(choices.name, pair)
        sentence = f"{one} and {other} share an accelerator and were not measured together; {words}"
        yield sentence, _command(choices, pair)


def _of_ties(found: Found, choices: Choices) -> _Missing:
    if found.best is None or not found.ties:
        return
    pairs = zip(found.best.placement, found.ties[0].placement, strict=True)
    number = next(n for n, (a, b) in enumerate(pairs) if a != b)
    places = [choices.at((number, one.placement[number])) for one in found.ranked[:2]]
    if any(place.like for place in places):
        return
    plural = "s" if len(found.ties) > 1 else ""
    sentence = (
        f"{len(found.ties)} other placement{plural} can't be told from the best; more and"
        f" longer rounds, of {list(choices.by_name)[number]} first, may tell"
    )
    yield sentence, f"tegrascope bench {quote(places[0].model.model)} --rounds 8 --duration 60"


def _of_options(choices: Choices) -> _Missing:
    """Yield accelerators on which some models were measured and others not."""
    here = {one.option.device for options in choices.by_name.values() for one in options}
    for name, options in choices.by_name.items():
        tried = {one.option.device for one in options if one.like is None}
        tried |= {one.device for one in choices.excluded if one.name == name}
        lacking = [device for device in CHOSEN_AMONG if device in here and device not in tried]
        if lacking:
            model = quote(options[0].model.model)
            sentence = f"{name} was not measured on {' and '.join(lacking)}, other models were"
            yield sentence, f"tegrascope bench {model} --on {','.join(lacking)}"


def _of_energy(choices: Choices) -> _Missing:
    """Yield results that ran well and were excluded only for their missing energy."""
    for one in choices.excluded:
        has_other = any(option.option.device == one.device for option in choices.by_name[one.name])
        if one.lacks_energy and not has_other:
            command = f"tegrascope bench {quote(one.model)} --on {one.device} --duration 60"
            yield f"{one.name} on {one.device} could not be chosen: {one.reason}", command


def _command(choices: Choices, pair: tuple[Cell, Cell]) -> str:
    found = [choices.at(cell) for cell in pair]
    models = " ".join(quote(one.model.model) for one in found)
    devices = ",".join(dict.fromkeys(one.option.device for one in found))
    precision = found[0].variant.precision
    extra = f" --precision {precision}" if precision else ""
    return f"tegrascope bench {models} --contention --on {devices}{extra}"
