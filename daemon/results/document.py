"""A document of headings, tables, lists and drawings, rendered for a terminal or as HTML."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple, TextIO, TypeAlias

from ...parsers.values import printable

# Forbids a browser to load anything.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
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
    ``ends`` a group ends.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: int = 1
    doubtful: frozenset[tuple[int, int]] = frozenset()
    ends: frozenset[int] = frozenset()


class Facts(NamedTuple):
    """Names and values; those without a value are left out."""

    facts: Mapping[str, str | None]


class Drawing(NamedTuple):
    """An ``svg`` element; a terminal leaves it out."""

    svg: str


Block: TypeAlias = Heading | Text | Items | Table | Facts | Drawing


def print_document(blocks: Sequence[Block], stream: TextIO | None = None) -> None:
    """Print blocks on a terminal, or as plain text."""
    from rich.console import Console

    console = Console(file=stream, highlight=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = _WIDTH_OF_A_FILE

    def say(words: str, style: str | None = None) -> None:
        console.print(
            printable(words), markup=False, style=style, soft_wrap=not console.is_terminal
        )

    for block in blocks:
        match block:
            case Heading(text):
                say(text, "bold")
            case Text(text):
                say(text)
            case Items(items, mark):
                for label, words in items:
                    say(f"{mark}{label}: {words}" if label else f"{mark}{words}")
            case Facts(facts):
                for label, value in facts.items():
                    if value:
                        say(f"{label}: {value}")
            case Table():
                console.print(_rich_table(block))
            case Drawing():
                pass


def _rich_table(table: Table) -> object:
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text as RichText

    made = RichTable(box=box.SIMPLE_HEAD)
    for number, title in enumerate(table.columns):
        # A narrow terminal folds cells: a number without its end is another number.
        is_left = number < table.left
        made.add_column(title, justify="left" if is_left else "right", overflow="fold")
    for row, cells in enumerate(table.rows):
        styles = ("dim" if (row, column) in table.doubtful else "" for column in range(len(cells)))
        made.add_row(*map(RichText, map(printable, cells), styles), end_section=row in table.ends)
    return made


def html_page(title: str, blocks: Sequence[Block], footer: str) -> str:
    """Return a page of HTML that needs no other file and no network.

    The title is that of the window; the first block is usually a heading of level 1.
    """
    style = Path(__file__).with_name("page.css").read_text(encoding="utf-8")
    return "\n".join(
        (
            "<!DOCTYPE html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
            f"<title>{escape(title)}</title>",
            f"<style>{style}</style></head><body>",
            *(part for block in blocks for part in _html(block)),
            f"<footer>{escape(footer)}</footer></body></html>",
        )
    )


def _html(block: Block) -> Iterator[str]:
    match block:
        case Heading(text, level):
            yield f"<h{level}>{escape(text)}</h{level}>"
        case Text(text, kind):
            yield f'<p class="{kind}">{escape(text)}</p>' if kind else f"<p>{escape(text)}</p>"
        case Items(items):
            yield "<ul>"
            for label, words in items:
                mark = f"<b>{escape(label)}</b>: " if label else ""
                yield f"<li>{mark}{escape(words)}</li>"
            yield "</ul>"
        case Facts(facts):
            known = ((label, value) for label, value in facts.items() if value)
            yield "<dl>"
            yield from (f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in known)
            yield "</dl>"
        case Table():
            yield from _html_table(block)
        case Drawing(svg):
            yield f'<div class="wide" tabindex="0">{svg}</div>'


def _html_table(table: Table) -> Iterator[str]:
    first, *titles = (escape(title) for title in table.columns)
    corner = f'<th scope="col">{first}</th>' if first else "<td></td>"
    heads = "".join(f'<th scope="col">{title}</th>' for title in titles)
    yield f'<div class="wide" tabindex="0"><table><thead><tr>{corner}{heads}</tr></thead><tbody>'
    for row, (name, *cells) in enumerate(table.rows):
        made = "".join(_html_cell(table, row, *pair) for pair in enumerate(cells, start=1))
        yield f'<tr><th scope="row">{escape(name)}</th>{made}</tr>'
        if row in table.ends and row + 1 < len(table.rows):
            yield "</tbody><tbody>"
    yield "</tbody></table></div>"


def _html_cell(table: Table, row: int, column: int, cell: str) -> str:
    kinds = {"doubtful": (row, column) in table.doubtful, "text": column < table.left}
    names = " ".join(name for name, applies in kinds.items() if applies)
    attribute = f' class="{names}"' if names else ""
    # A number and its unit stay on one line.
    unbroken = re.sub(r"(?<=[\d±]) (?=\S)", "&nbsp;", escape(cell))
    return f"<td{attribute}>{unbroken}</td>"
