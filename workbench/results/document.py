"""A document of headings, tables, lists and places of drawings, printed on a terminal.

``saved_page`` writes the same blocks as HTML.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple, TextIO, TypeAlias

from ...daemon.measure.report import Figure
from ...parsers.values import printable

_WIDTH_OF_A_FILE = 160


class Heading(NamedTuple):
    """A title within the document."""

    text: str
    level: int = 2


class Text(NamedTuple):
    """A paragraph; ``kind`` is a class of the style sheet: ``notice`` or ``under``."""

    text: str
    kind: str = ""


class Items(NamedTuple):
    """A list of labels and sentences; a terminal prints the mark before each."""

    items: Sequence[tuple[str, str]]
    mark: str = ""


class Table(NamedTuple):
    """Rows of cells, the first of which names the row; ``left`` columns are aligned to the left.

    Cells at a ``doubtful`` row and column must not be taken at face value; after each row of
    ``ends`` a group ends. On a page the name of a row leads to the run of the same place in
    ``run_ids``.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: int = 1
    doubtful: frozenset[tuple[int, int]] = frozenset()
    ends: frozenset[int] = frozenset()
    run_ids: Sequence[str] = ()


class Facts(NamedTuple):
    """Names and values; those without a value are left out."""

    facts: Mapping[str, str | None]


class Mark(NamedTuple):
    """A point of a sweep."""

    title: str
    device: str
    x: Figure
    y: Figure
    is_front: bool


class Front(NamedTuple):
    """The points of a sweep, latency across, ``unit`` upwards; a terminal leaves it out."""

    name: str
    unit: Literal["J", "s"]
    marks: Sequence[Mark]


class Bars(NamedTuple):
    """One goal as a bar per candidate; not in a terminal.

    Attributes:
        title: The goal and its winner.
        rows: Name, figure as text, and length as a share of the longest.
        note: The intervals.
    """

    title: str
    rows: Sequence[tuple[str, str, float]]
    note: str


class ScriptArea(NamedTuple):
    """An area that a script of a saved page fills: ``timeline`` or ``run``; not in a terminal."""

    name: Literal["timeline", "run"]


Block: TypeAlias = Heading | Text | Items | Table | Facts | Front | Bars | ScriptArea


def print_document(blocks: Sequence[Block], stream: TextIO | None = None) -> None:
    """Print blocks on a terminal, or as plain text."""
    from rich.console import Console

    console = Console(file=stream, highlight=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = _WIDTH_OF_A_FILE

    for block in blocks:
        if isinstance(block, Table):
            console.print(_rich_table(block))
            continue
        style = "bold" if isinstance(block, Heading) else None
        # A file is not wrapped, so that a reader can search it for a sentence.
        is_file = not console.is_terminal
        for line in _lines_of(block):
            console.print(printable(line), markup=False, style=style, soft_wrap=is_file)


def _lines_of(block: Block) -> Iterator[str]:
    """Yield the lines of a block that is not a table."""
    match block:
        case Heading(text) | Text(text):
            yield text
        case Items(items, mark):
            for label, words in items:
                yield f"{mark}{label}: {words}" if label else f"{mark}{words}"
        case Facts(facts):
            for label, value in facts.items():
                if value:
                    yield f"{label}: {value}"


def _rich_table(table: Table) -> object:
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text as RichText

    rich_table = RichTable(box=box.SIMPLE_HEAD)
    for column, title in enumerate(table.columns):
        # A narrow terminal folds cells: a number without its end is another number.
        justify: Literal["left", "right"] = "left" if column < table.left else "right"
        rich_table.add_column(title, justify=justify, overflow="fold")
    for row, cells in enumerate(table.rows):
        rich_cells = []
        for column, cell in enumerate(cells):
            style = "dim" if (row, column) in table.doubtful else ""
            rich_cells.append(RichText(printable(cell), style))
        rich_table.add_row(*rich_cells, end_section=row in table.ends)
    return rich_table
