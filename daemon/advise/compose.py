"""From results to the advice: the search, and everything on which its answer rests."""

from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from math import isfinite
from typing import TextIO

from ... import __version__
from ...parsers.errors import UsageError
from ...parsers.values import read_duration
from ..results.bench_page import SIMULATED_TITLE, shown_with_half, with_half
from ..results.document import Block, Heading, Table, Text, print_document
from ..results.records import Figure
from ..terminal.numbers import joules, percent, points, seconds, watts
from .choices import BenchSource, Choices, choices_of, disagreements, effects_of, flagged
from .findings import find_all, measure_next, unmeasured
from .problem import MOST_MODELS, Cell, Evaluation, Problem, closest_infeasible, gap, is_tie, search
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
        UserError: A model has no option.
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


_MOST_TIES = 3


def print_advice(advice: Advice, stream: TextIO | None = None) -> None:
    """Print the placement, its certainty, and everything on which it rests."""
    shown = advice.chosen or advice.closest_infeasible
    blocks: list[Block] = []
    if shown is not None:
        blocks += [Heading(_title(advice)), _table(advice, shown)]
    print_document([*blocks, *map(Text, _lines(advice))], stream)


def _table(advice: Advice, shown: PlacementAdvice) -> Table:
    columns = ("model", "on", "rate", "p99 there", "deadline", "duty alone", "energy per input")
    rows = [
        (
            model.name,
            f"{model.device} {model.variant}".strip(),
            f"{demand.rate_per_second:g}/s",
            seconds(model.latency_seconds),
            seconds(model.deadline_seconds),
            percent(model.duty),
            shown_with_half(model.joules_per_input, joules),
        )
        for demand, model in zip(advice.demands, shown.models, strict=True)
    ]
    return Table(columns, rows, left=2)


def _title(advice: Advice) -> str:
    words = (
        "Best placement" if advice.chosen else "No placement meets all limits; the closest is",
        advice.board,
        advice.power_mode,
        SIMULATED_TITLE if advice.is_simulated else None,
    )
    return " · ".join(filter(None, words))


def _lines(advice: Advice) -> Iterator[str]:
    shown = advice.chosen or advice.closest_infeasible
    if shown is not None:
        duties = ", ".join(f"{device} {percent(duty)}" for device, duty in shown.duty.items())
        used = f"{percent(shown.used)} of the tightest limit, with margin"
        yield f"{_value(shown)}; duty {duties}; {used}"
    for violation in advice.violations:
        yield f"✗ {violation.sentence}"
    if advice.chosen is not None:
        yield from _others(advice)
    notes = (*advice.notes, *(f"{one}: left out" for one in advice.ruled_out))
    lists = {"assumed": advice.assumed, "measured": advice.measured, "notes": notes}
    for name, lines in lists.items():
        if lines:
            yield f"{name}:"
            yield from (f"  - {line}" for line in lines)
    for finding in advice.findings:
        where = f"{finding.model} on {finding.device}"
        yield f"! {where}, {finding.name}: {finding.sentence}; {finding.remedy}"
    for one in advice.measure_next:
        mark = "measure next" if one.could_change else "could be measured"
        yield f"→ {mark}: {one.sentence}\n    {one.command}"


def _others(advice: Advice) -> Iterator[str]:
    for tie in advice.ties[:_MOST_TIES]:
        yield f"= ties with {_where(tie)}: {_value(tie)}"
    if len(advice.ties) > _MOST_TIES:
        yield f"= and with {len(advice.ties) - _MOST_TIES} others"
    if advice.runner_up is not None and advice.runner_up_gap is not None:
        show = watts if advice.minimise == "energy" else points
        more = advice.runner_up_gap
        interval = ""
        if more.low is not None and more.high is not None:
            interval = f" ({show(more.low)} to {show(more.high)})"
        yield f"next: {_where(advice.runner_up)}, {show(more.value)}{interval} more"
    gpu = advice.all_on_gpu
    if gpu is not None and gpu != advice.chosen:
        limit = "" if gpu.used <= 1 else f", infeasible: {percent(gpu.used)} of the tightest limit"
        yield f"all on the GPU: {_value(gpu)}{limit}"
    yield (
        f"{advice.placements} placements, {advice.evaluated} evaluated, the others proven worse or"
        " infeasible"
    )


def _where(placement: PlacementAdvice) -> str:
    return ", ".join(
        f"{one.name} on {one.device} {one.variant}".strip() for one in placement.models
    )


def _value(placement: PlacementAdvice) -> str:
    if placement.watts is not None:
        return f"net power {with_half(placement.watts, watts)}"
    return "" if placement.gpu is None else f"GPU use {with_points(placement.gpu)}"


def with_points(figure: Figure) -> str:
    """Format a ratio and half its interval in points: percent of percent would confuse.

    >>> with_points(Figure(value=0.5, low=0.48, high=0.52))
    '50.0 % ± 2.0 points'
    """
    half = "" if figure.half is None else f" ± {points(figure.half)}"
    return f"{percent(figure.value)}{half}"


def read_demands(rates: str, deadlines: str | None, known: Sequence[str]) -> tuple[Demand, ...]:
    """Read rates like ``yolo=30,seg=10`` and deadlines like ``yolo=33ms``.

    Args:
        rates: Inputs per second by model.
        deadlines: By model; by default until the next input.
        known: Names of the models that have results.

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
    found: dict[str, str] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, mark, value = (piece.strip() for piece in part.partition("="))
        if not (name and mark and value):
            raise UsageError(f"{option} {part!r} is not NAME=VALUE", f"give it like {example}")
        if name in found:
            raise UsageError(f"{option} names {name} twice", "name it once")
        found[name] = value
    return found


def _must_be_known(name: str, known: Sequence[str], problem: str) -> None:
    if name in known:
        return
    near = get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(known)) or 'none'}"
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
