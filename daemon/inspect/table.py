"""An inspection in a terminal: the verdict, what breaks which rule, and what runs together."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, TextIO

from ...parsers.readiness.records import AlignmentHint, Inspection, Judged, Part
from .words import grouped, heading, share_words, summary

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_SHOWN_ALIGNMENT = 5
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
    _say(console, heading(inspection), style="bold")
    _say(console, f"rules of TensorRT {inspection.tensorrt}: {inspection.tensorrt_reason}")
    _say(console, summary(inspection))
    if any(one.findings for one in inspection.nodes):
        console.print(_rules(inspection.nodes))
    if shows_all:
        console.print(_nodes(inspection.nodes))
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


def _nodes(nodes: Iterable[Judged]) -> "Table":
    table = _table("nodes", ("", "node", "operator", "layer", "runs on", "part"))
    for one in nodes:
        part = "" if one.loadable is None else f"loadable {one.loadable}"
        if one.island is not None:
            part = f"island {one.island}"
        place = one.placement if one.reason is None else f"{one.placement}: {one.reason}"
        _add(table, str(one.index), one.name, one.op, one.layer or "", place, part)
    return table


def _parts(inspection: Inspection) -> "Table":
    table = _table("predicted parts, in order", ("part", "first", "last", "nodes"))
    parts: list[tuple[str, Part]] = [
        *((f"loadable {one.number}", one) for one in inspection.loadables),
        *((f"GPU island {one.number}", one) for one in inspection.islands),
    ]
    for name, part in sorted(parts, key=lambda pair: pair[1].nodes[0]):
        style = "dim" if name.startswith("GPU") else None
        _add(table, name, part.first, part.last, str(len(part.nodes)), style=style)
    return table


def _remarks(inspection: Inspection) -> Iterator[str]:
    for one in inspection.types:
        yield f"{one.precision}: {one.verdict}: {one.words}"
    if inspection.convolutions.total:
        yield share_words(inspection.convolutions)
    for hint in inspection.alignment[:_SHOWN_ALIGNMENT]:
        yield _alignment(hint)
    more = len(inspection.alignment) - _SHOWN_ALIGNMENT
    if more > 0:
        yield f"channels: {more} more that are uneven; --json has them"
    for note in inspection.notes:
        yield f"! {note}"


def _alignment(hint: AlignmentHint) -> str:
    of = "the DLA's format" if hint.unit == "dla" else "tensor cores"
    return (
        f"channels: {hint.name} has {hint.count} {hint.channels} channel(s), padded to a multiple "
        f"of {hint.multiple} for {of}: {hint.waste_ratio:.0%} empty"
    )


def _table(title: str, columns: Iterable[str]) -> "Table":
    from rich import box
    from rich.table import Table

    table = Table(title=title, title_justify="left", title_style="dim", box=box.SIMPLE_HEAD)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _add(table: "Table", *cells: str, style: str | None = None) -> None:
    """Add a row of plain text: a model's names may look like rich's markup."""
    from rich.text import Text

    table.add_row(*map(Text, cells), style=style)


def _say(console: "Console", words: str, style: str | None = None) -> None:
    console.print(words, markup=False, style=style, soft_wrap=not console.is_terminal)
