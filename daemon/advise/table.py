"""Advice, in a terminal."""

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, TextIO

from ..results.bench_page import with_half
from ..results.records import Figure
from ..terminal.numbers import joules, percent, points, seconds
from .advice import Advice, PlacementAdvice

if TYPE_CHECKING:
    from rich.table import Table

_MOST_TIES = 3
# Where nobody folds lines by looking at them.
_WIDTH_OF_A_FILE = 160


def print_advice(advice: Advice, stream: TextIO | None = None) -> None:
    """Print the placement, how sure it is, and what it rests on."""
    from rich.console import Console

    console = Console(file=stream, highlight=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = _WIDTH_OF_A_FILE
    shown = advice.chosen or advice.least_bad
    if shown is not None:
        console.print(_table(advice, shown))
    for line in _lines(advice):
        console.print(line, markup=False, soft_wrap=not console.is_terminal)


def _table(advice: Advice, shown: PlacementAdvice) -> "Table":
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(
        title=Text(_title(advice), style="bold"), title_justify="left", box=box.SIMPLE_HEAD
    )
    for name, side in (
        *(("model", "left"), ("on", "left"), ("rate", "right"), ("p99 there", "right")),
        *(("deadline", "right"), ("duty alone", "right"), ("energy by input", "right")),
    ):
        # A narrow terminal folds cells, for a number without its end is another number.
        table.add_column(name, justify="left" if side == "left" else "right", overflow="fold")
    for demand, model in zip(advice.demands, shown.models, strict=True):
        energy = model.joules_per_input
        table.add_row(
            Text(model.name),
            Text(f"{model.device} {model.variant}".strip()),
            f"{demand.rate_per_second:g}/s",
            seconds(model.latency_seconds),
            seconds(model.deadline_seconds),
            percent(model.duty),
            "–" if energy is None else with_half(energy, joules),
        )
    return table


def _title(advice: Advice) -> str:
    words = "What to run where" if advice.chosen else "It can't be met; least far off"
    told = [words, advice.board or "", advice.power_mode or ""]
    if advice.is_simulated:
        told.append("SIMULATED: these figures are of no real accelerator")
    return " · ".join(filter(None, told))


def _lines(advice: Advice) -> Iterator[str]:
    shown = advice.chosen or advice.least_bad
    if shown is not None:
        duties = ", ".join(f"{device} {percent(duty)}" for device, duty in shown.duty.items())
        yield f"{_value(shown)}; duty {duties}; {percent(shown.used)} of what there is, with margin"
    for shortfall in advice.shortfalls:
        yield f"✗ {shortfall.sentence}"
    if advice.chosen is not None:
        yield from _others(advice)
    yield from _list("assumed", advice.assumed)
    yield from _list("measured", advice.measured)
    yield from _list("to be known", (*advice.notes, *(f"{r}: left out" for r in advice.ruled_out)))
    for finding in advice.findings:
        where = f"{finding.model} on {finding.device}"
        yield f"! {where}, {finding.name}: {finding.sentence}; {finding.mend}"
    for one in advice.measure_next:
        mark = "measure next" if one.could_change else "could be measured"
        yield f"→ {mark}: {one.sentence}\n    {one.command}"


def _others(advice: Advice) -> Iterator[str]:
    for tie in advice.ties[:_MOST_TIES]:
        yield f"= can't be told from {_where(tie)}: {_value(tie)}"
    if len(advice.ties) > _MOST_TIES:
        yield f"= and {len(advice.ties) - _MOST_TIES} others can't be told from it"
    if advice.runner_up is not None and advice.runner_up_gap is not None:
        more = _amount(advice, advice.runner_up_gap)
        yield f"next: {_where(advice.runner_up)}, {more} more"
    gpu = advice.all_on_gpu
    if gpu is not None and gpu != advice.chosen:
        can = "" if gpu.used <= 1 else f", which can't be: it takes {percent(gpu.used)} of it"
        yield f"all on the GPU: {_value(gpu)}{can}"
    yield (
        f"{advice.placements} placements, {advice.looked_at} looked at, the others proven worse or"
        " impossible"
    )


def _where(placement: PlacementAdvice) -> str:
    return ", ".join(
        f"{one.name} on {one.device} {one.variant}".strip() for one in placement.models
    )


def _value(placement: PlacementAdvice) -> str:
    if placement.watts is not None:
        return f"net power {with_half(placement.watts, lambda watts: f'{watts:.2f} W')}"
    return "" if placement.gpu is None else f"GPU use {_with_points(placement.gpu)}"


def _with_points(figure: Figure) -> str:
    """Print a ratio; half its interval in points, since per cents of per cents confuse.

    >>> _with_points(Figure(value=0.5, low=0.48, high=0.52))
    '50.0 % ± 2.0 points'
    """
    if figure.low is None or figure.high is None:
        return percent(figure.value)
    return f"{percent(figure.value)} ± {points((figure.high - figure.low) / 2)}"


def _amount(advice: Advice, figure: Figure) -> str:
    say = (lambda watts: f"{watts:.2f} W") if advice.minimise == "energy" else points
    if figure.low is None or figure.high is None:
        return say(figure.value)
    return f"{say(figure.value)} ({say(figure.low)} to {say(figure.high)})"


def _list(name: str, lines: tuple[str, ...]) -> Iterator[str]:
    if lines:
        yield f"{name}:"
        yield from (f"  - {line}" for line in lines)
