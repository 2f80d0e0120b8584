"""What a bench found, in a terminal."""

from typing import TYPE_CHECKING, Literal, TextIO

from .contention_result import Contention
from .contention_rows import EXPLAINED, HEADS, TITLE, groups_of, nothing
from .result import BenchResult, ModelResult
from .rows import compared, grouped, is_headline, remarks, rows_of

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


def print_result(result: BenchResult, stream: TextIO | None = None) -> None:
    """Print a table of each model, who is best at what, and what should be known."""
    from rich.console import Console

    console = Console(file=stream, highlight=False)
    for model in result.models:
        console.print(_table(model, result))
        for whose, words in remarks(model):
            _say(console, f"{whose}: {words}")
        for goal in compared(model):
            _say(console, goal.sentence)
        for whose, words in grouped(model.checks):
            _say(console, f"! {whose}: {words}")
    if result.contention is not None:
        _print_contention(console, result.contention)
    for _, words in grouped(result.checks):
        _say(console, f"! {words}")
    if result.telemetry_problem is not None:
        _say(console, f"no energy, no loads: {result.telemetry_problem}")


def title(model: ModelResult, result: BenchResult) -> str:
    """Say what a table is of; nobody shall take a simulated one for another."""
    batch = f", batch {result.settings.batch}" if result.settings.batch > 1 else ""
    words = f"{model.model}{batch}"
    if result.is_simulated:
        words += " · SIMULATED: these figures are of no real accelerator"
    if result.is_partial:
        words += " · interrupted"
    return words


def _table(model: ModelResult, result: BenchResult) -> "Table":
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(
        title=Text(title(model, result), style="bold"), title_justify="left", box=box.SIMPLE_HEAD
    )
    table.add_column("", style="dim", no_wrap=True)
    for one in model.accelerators:
        style = None if is_headline(one) or one.status != "ok" else "dim"
        table.add_column(one.device, justify="right", style=style)
    for row in rows_of(model.accelerators):
        table.add_row(row.label, *map(Text, row.cells))
    return table


def _print_contention(console: "Console", contention: Contention) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(TITLE, style="bold"), title_justify="left", box=box.SIMPLE_HEAD)
    for head in HEADS:
        is_lane = head == HEADS[0]
        side: Literal["left", "right"] = "left" if is_lane else "right"
        table.add_column(head, justify=side, no_wrap=not is_lane, min_width=12 if is_lane else None)
    told = list(groups_of(contention))
    for group in told:
        for row in group.rows:
            table.add_row(*map(Text, row), style="dim" if group.is_doubtful else None)
        table.add_section()
    if any(group.rows for group in told):
        console.print(table)
    for group in told:
        _say(console, group.title)
    _say(console, nothing(contention) or EXPLAINED)


def _say(console: "Console", words: str) -> None:
    console.print(words, markup=False, soft_wrap=not console.is_terminal)
