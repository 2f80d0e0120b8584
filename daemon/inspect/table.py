"""An inspection in a terminal: the verdict, what breaks which rule, and what runs together."""

import os
from collections.abc import Container, Iterable, Iterator
from itertools import zip_longest
from typing import TYPE_CHECKING, TextIO

from ...parsers.readiness.cost_records import Costs, NodeCost, PartCost
from ...parsers.readiness.records import AlignmentHint, Inspection, Judged, Part
from .amounts import amount, intensity
from .checks import check_lines
from .words import cost_words, grouped, heading, share_words, summary

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_SHOWN_ALIGNMENT = 5
# Where nobody folds lines by looking at them.
_WIDTH_OF_A_FILE = 160
_COSTS = ("work", "moves", "FLOP/B")
_RULE_COLUMNS = ("nodes", "rule, and what is there instead", "what helps")


def print_inspection(
    inspection: Inspection, *, shows_all: bool = False, stream: TextIO | None = None
) -> None:
    """Print what was found.

    Args:
        inspection: What was found.
        shows_all: Whether each node gets a line, not those alone that break a rule.
        stream: Where to; standard output by default.
    """
    from rich.console import Console

    console = Console(file=stream, highlight=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = _WIDTH_OF_A_FILE
    _say(console, heading(inspection), style="bold")
    _say(console, f"rules of TensorRT {inspection.tensorrt}: {inspection.tensorrt_reason}")
    _say(console, summary(inspection))
    if any(one.findings for one in inspection.nodes):
        console.print(_rules(inspection.nodes))
    if shows_all:
        console.print(_nodes(inspection.nodes, inspection.costs))
    if inspection.loadables:
        console.print(_parts(inspection))
    for line in _remarks(inspection):
        _say(console, line)


def _rules(nodes: Iterable[Judged]) -> "Table":
    table = _table("rules broken, and with ? those that cannot be told", _RULE_COLUMNS)
    for group in grouped(nodes):
        finding = group.finding
        mark = " ?" if finding.is_open else ""
        _add(
            table,
            f"{group.operators}\n{group.names}",
            f"{finding.rule}{mark}: {finding.says}\n{finding.found}",
            finding.hint or "",
        )
    return table


def _nodes(nodes: Iterable[Judged], costs: Costs | None) -> "Table":
    titles = ("", "node", "operator", "layer", "runs on", "part", *_COSTS)
    table = _table("nodes", titles, right=_COSTS)
    priced = {cost.index: cost for cost in costs.nodes} if costs else {}
    for one in nodes:
        part = "" if one.loadable is None else f"loadable {one.loadable}"
        if one.island is not None:
            part = f"island {one.island}"
        place = one.placement if one.reason is None else f"{one.placement}: {one.reason}"
        what = (str(one.index), one.name, one.op, one.layer or "", place, part)
        _add(table, *what, *_price(priced.get(one.index)))
    return table


def _parts(inspection: Inspection) -> "Table":
    titles = ("part", "first", "last", "nodes", *_COSTS, "share")
    table = _table("predicted parts, in order", titles, right=("nodes", *_COSTS, "share"))
    costs = inspection.costs
    prices = (*costs.loadables, *costs.islands) if costs else ()
    parts: list[tuple[str, Part]] = [
        *((f"loadable {one.number}", one) for one in inspection.loadables),
        *((f"GPU island {one.number}", one) for one in inspection.islands),
    ]
    priced: list[tuple[str, Part, PartCost | None]] = [
        (*part, cost) for part, cost in zip_longest(parts, prices)
    ]
    for name, part, cost in sorted(priced, key=lambda row: row[1].nodes[0]):
        style = "dim" if name.startswith("GPU") else None
        share = "" if cost is None or cost.flops_ratio is None else f"{cost.flops_ratio:.1%}"
        what = (name, part.first, part.last, str(len(part.nodes)))
        _add(table, *what, *_price(cost), share, style=style)
    return table


def _price(cost: NodeCost | PartCost | None) -> tuple[str, str, str]:
    """Return work, bytes and intensity; of a sum that is a lower bound, so that it is seen."""
    if cost is None:
        return "", "", ""
    least = "≥ " if isinstance(cost, PartCost) and cost.uncounted else ""
    work, moved = amount(cost.flops, "FLOP"), amount(cost.moved_bytes, "B")
    ratio = "" if least else intensity(cost.flops_per_byte)
    return least + work if work else "", least + moved if moved else "", ratio


def _remarks(inspection: Inspection) -> Iterator[str]:
    for one in inspection.types:
        yield f"{one.precision}: {one.verdict}: {one.words}"
    if inspection.convolutions.total:
        yield share_words(inspection.convolutions)
    if inspection.costs is not None:
        yield from cost_words(inspection.costs)
    for hint in inspection.alignment[:_SHOWN_ALIGNMENT]:
        yield _alignment(hint)
    more = len(inspection.alignment) - _SHOWN_ALIGNMENT
    if more > 0:
        yield f"channels: {more} more that are uneven; --json has them"
    for check in inspection.checks:
        yield from check_lines(check)
    for note in inspection.notes:
        yield f"! {note}"


def _alignment(hint: AlignmentHint) -> str:
    of = "the DLA's format" if hint.unit == "dla" else "tensor cores"
    return (
        f"channels: {hint.name} has {hint.count} {hint.channels} channel(s), padded to a multiple "
        f"of {hint.multiple} for {of}: {hint.waste_ratio:.0%} empty"
    )


def _table(title: str, columns: Iterable[str], right: Container[str] = ()) -> "Table":
    from rich import box
    from rich.table import Table

    table = Table(title=title, title_justify="left", title_style="dim", box=box.SIMPLE_HEAD)
    for column in columns:
        table.add_column(column, overflow="fold", justify="right" if column in right else "left")
    return table


def _add(table: "Table", *cells: str, style: str | None = None) -> None:
    """Add a row of plain text: a model's names may look like rich's markup."""
    from rich.text import Text

    table.add_row(*(Text(shown(cell)) for cell in cells), style=style)


def _say(console: "Console", words: str, style: str | None = None) -> None:
    words = shown(words)
    console.print(words, markup=False, style=style, soft_wrap=not console.is_terminal)


def shown(words: str) -> str:
    r"""Spell out what a terminal would obey: a model's names may hold anything.

    >>> shown("Conv\x1b[31m")
    'Conv\\x1b[31m'
    """
    if words.replace("\n", "").isprintable():
        return words
    return "".join(one if one == "\n" or one.isprintable() else ascii(one)[1:-1] for one in words)
