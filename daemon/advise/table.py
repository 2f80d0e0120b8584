"""The advice on a terminal."""

from collections.abc import Iterator
from typing import TextIO

from ..results.bench_page import SIMULATED_TITLE, shown_with_half, with_half
from ..results.document import Block, Heading, Table, Text, print_document
from ..results.records import Figure
from ..terminal.numbers import joules, percent, points, seconds, watts
from .records import Advice, PlacementAdvice

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
