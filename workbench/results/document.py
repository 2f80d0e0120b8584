"""A document of headings, tables, lists and drawings, rendered for a terminal or as HTML.

A drawing shows power, load and temperature over time, with the runs, as inline SVG.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from itertools import pairwise
from math import floor, isnan, log10, nan
from pathlib import Path
from statistics import median
from typing import NamedTuple, TextIO, TypeAlias, TypeVar

from ...daemon.measure.blocks import WindowSlice
from ...daemon.measure.energy import total
from ...daemon.measure.report import RunReport
from ...daemon.measure.utilization import gate_figures, load_figures, zone_figures
from ...parsers.signals import DLA_BUSY, RAIL_POWER
from ...parsers.values import printable

T = TypeVar("T")
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


# --- drawings -------------------------------------------------------------------------------------

MOST_POINTS = 480
MOST_ZONES = 4
# Samples further apart than so many usual intervals are not connected.
_GAP = 20

_WIDTH, _LEFT, _RIGHT = 960, 48, 168
_TOP, _TITLE, _SPACE, _FOOT = 44, 22, 14, 24
_HEIGHT = {"Power, W": 190, "Load, %": 150, "Temperature, °C": 120}
_LABEL_STEP = 14
_LETTER = 6.4
# Lines differ in colour, in dashes and in the label at their end: any one is enough.
_DASHES = ("", "7 3", "2 3", "9 3 2 3", "4 2", "1 2", "12 4")
_SHADES = 4
_NAMES = {"gpu": "GPU", "emc": "memory (EMC)", "cpu": "CPU"}

# Points without a gap between them: seconds since the beginning, and value.
Stretch: TypeAlias = tuple[tuple[float, float], ...]


class _Panel(NamedTuple):
    """Curves of one unit by name, and the ends and the step of the axis."""

    title: str
    curves: Mapping[str, tuple[Stretch, ...]]
    top: float
    bottom: float
    step: float


class Band(NamedTuple):
    """One run on the time axis, in seconds since the beginning; idle phases included."""

    name: str
    tip: str
    begin: float
    steady_begin: float
    steady_end: float
    end: float


def draw(
    title: str,
    cut: WindowSlice,
    begin_ns: int,
    runs: Sequence[RunReport],
    name: Callable[[RunReport], str],
    *,
    by_wall_time: bool = False,
) -> Drawing | None:
    """Draw power, load and temperature over one time axis, with runs.

    The axis begins at ``begin_ns`` on the clock of ``cut.times_ns``, which is monotonic or wall
    time. A panel without data is left out, and without any the result is ``None``.
    """
    times = [(time - begin_ns) / 1e9 for time in cut.times_ns]
    zones = {zone: column for zone, (_, column) in zone_figures(cut.columns).items()}

    def highest(zone: str) -> float:
        return max((value for value in zones[zone] if not isnan(value)), default=-1e9)

    hottest = sorted(zones, key=highest, reverse=True)[:MOST_ZONES]
    # The rails that make the module's power, by the first run that has any energy.
    total_rails = next((run.energy.total_rails for run in runs if run.energy is not None), ())
    panels = (
        _panel("Power, W", times, _watts(cut, total_rails), axis=(0.0, 0.0)),
        _panel("Load, %", times, _percents(cut), axis=(0.0, 100.0)),
        _panel("Temperature, °C", times, {zone: zones[zone] for zone in hottest}),
    )
    known = [panel for panel in panels if panel is not None]
    bands = []
    for run in runs:
        steady = run.phases.get("steady")
        if steady is None:
            continue
        first = run.phases.get("baseline_before", steady)
        last = run.phases.get("baseline_after", steady)
        edges = (first.begin_ns, steady.begin_ns, steady.end_ns, last.end_ns)
        # Phases are monotonic times: on an axis of wall time they stand where the run started.
        offset_ns = run.started_ns - run.started_wall_ns if by_wall_time else 0
        tip = f"{run.workload} on {run.device}, run {run.run_id}"
        bands.append(Band(name(run), tip, *((at - begin_ns - offset_ns) / 1e9 for at in edges)))
    return Drawing(_svg(title, known, bands)) if known else None


def _percents(cut: WindowSlice) -> dict[str, Sequence[float]]:
    """Return the loads by name, that of a DLA with its source."""
    loads = {}
    for signal, (_, column) in load_figures(cut.columns).items():
        core, _, source = signal.partition(":")
        loads[f"{core.upper()} ({source})" if source else _NAMES.get(signal, signal)] = column
    loads |= {f"DLA{core} (ftrace)": c for core, c in DLA_BUSY.by_label(cut.columns).items()}
    known = {name.partition(" ")[0] for name in loads}
    loads |= {
        f"{core.upper()} on": column
        for core, (_, column) in gate_figures(cut.columns).items()
        if core.upper() not in known and any(on > 0 for on in column)
    }
    return {name: [100 * ratio for ratio in column] for name, column in loads.items()}


def _watts(cut: WindowSlice, total_rails: Sequence[str]) -> dict[str, Sequence[float]]:
    """Return the power of each rail, and of the module if several rails add up to it."""
    rails = RAIL_POWER.by_label(cut.columns)
    if len(total_rails) < 2 or not all(name in rails for name in total_rails):
        return dict(rails)
    curve = total(cut.times_ns, [rails[name] for name in total_rails])
    by_time = dict(zip(curve.times_ns, curve.watts, strict=True))
    return {"module": [by_time.get(time, nan) for time in cut.times_ns], **rails}


def _panel(
    title: str,
    times: Sequence[float],
    columns: Mapping[str, Sequence[float]],
    axis: tuple[float, ...] = (),
) -> _Panel | None:
    """Return a panel whose axis includes the given values; ``None`` without data."""
    thinned = {name: thin(times, column) for name, column in columns.items()}
    curves = {name: stretches for name, stretches in thinned.items() if stretches}
    if not curves:
        return None
    values = [*axis, *(value for stretches in curves.values() for value in _values(stretches))]
    low, high = axis[0] if axis else min(values), max(0.0, *values)
    step = nice_step(high - low)
    bottom = step * floor(low / step)
    top = bottom + step
    while top < high:
        top += step
    return _Panel(title, curves, top, bottom, step)


def _values(stretches: Sequence[Stretch]) -> list[float]:
    return [value for stretch in stretches for _, value in stretch]


def thin(
    times: Sequence[float], column: Sequence[float], most: int = MOST_POINTS
) -> tuple[Stretch, ...]:
    """Return about so many points, neighbours averaged; missing values and pauses are gaps.

    >>> thin([0.0, 1.0, 2.0, 3.0], [1.0, 3.0, float("nan"), 5.0], most=2)
    (((0.5, 2.0), (3.0, 5.0)),)
    >>> thin([0.0, 1.0, 2.0, 99.0], [1.0, float("nan"), 5.0, 7.0])
    (((0.0, 1.0),), ((2.0, 5.0),), ((99.0, 7.0),))
    """
    size = -(-len(times) // most) if times else 1
    steps = [after - before for before, after in pairwise(times)]
    widest = _GAP * median(steps) if steps else 0.0
    edges = [0, *(i + 1 for i, step in enumerate(steps) if step > widest), len(times)]
    stretches: list[list[tuple[float, float]]] = []
    for begin, end in pairwise(edges):
        stretches.append([])
        for start in range(begin, end, size):
            near = slice(start, min(start + size, end))
            pairs = zip(times[near], column[near], strict=True)
            group = [(time, value) for time, value in pairs if not isnan(value)]
            if group:
                time, value = (sum(numbers) / len(group) for numbers in zip(*group, strict=True))
                stretches[-1].append((time, value))
            elif stretches[-1]:
                stretches.append([])
    return tuple(tuple(stretch) for stretch in stretches if stretch)


def nice_step(span: float, ticks: int = 4) -> float:
    """Return a round distance between about so many ticks.

    >>> nice_step(37.0), nice_step(100.0), nice_step(0.0)
    (10.0, 20.0, 1.0)
    """
    if span <= 0:
        return 1.0
    rough = span / ticks
    size: float = 10.0 ** floor(log10(rough))
    return size * next(factor for factor in (1, 2, 5, 10) if factor * size >= 0.75 * rough)


# --- drawing --------------------------------------------------------------------------------------


def _svg(title: str, panels: Sequence[_Panel], bands: Sequence[Band]) -> str:
    ends = [stretches[-1][-1][0] for panel in panels for stretches in panel.curves.values()]
    begin = min([0.0, *(band.begin for band in bands)])
    end = max([begin + 1.0, *ends, *(band.end for band in bands)])

    def x(at: float) -> float:
        return _LEFT + (at - begin) / (end - begin) * (_WIDTH - _LEFT - _RIGHT)

    order = ", ".join(band.name for band in bands) or "none"
    words = [f"Runs in the order of time: {order}."]
    drawn: list[str] = []
    top = _TOP
    for panel in panels:
        kind, unit = panel.title.split(", ")
        for name, stretches in panel.curves.items():
            values = _values(stretches)
            words.append(f"{kind} {name}: {min(values):.1f} to {max(values):.1f} {unit}.")
        drawn += _draw_panel(panel, x, top + _TITLE)
        top += _TITLE + _HEIGHT[panel.title] + _SPACE
    return "\n".join(
        (
            f'<svg class="figure" viewBox="0 0 {_WIDTH} {top + _FOOT}" role="img"'
            f' aria-label="{escape(title)}">',
            f"<title>{escape(title)}</title>",
            f"<desc>{escape(' '.join(words))}</desc>",
            *_draw_bands(bands, x, top),
            *drawn,
            *_draw_time(begin, end, x, top),
            "</svg>",
        )
    )


def _draw_bands(bands: Sequence[Band], x: Callable[[float], float], bottom: float) -> Iterator[str]:
    names = list(dict.fromkeys(band.name for band in bands))
    # Labels have two rows; one that fits in neither is left out, and its tip names the run.
    taken = [-1.0, -1.0]
    for band in bands:
        shade = names.index(band.name) % _SHADES
        steady = (band.steady_begin, band.steady_end, "steady")
        for begin, end, kind in ((band.begin, band.end, "idle"), steady):
            yield (
                f'<rect class="band {kind} shade{shade}" x="{x(begin):.1f}" y="{_TOP - 8}"'
                f' width="{max(x(end) - x(begin), 1):.1f}" height="{bottom - _TOP + 8:.0f}">'
                f"<title>{escape(band.tip)}</title></rect>"
            )
        middle = x((band.steady_begin + band.steady_end) / 2)
        half = _LETTER * len(band.name) / 2
        row = next((row for row in (0, 1) if middle - half >= taken[row] + 2), None)
        if row is not None:
            taken[row] = middle + half
            y = _TOP - 14 - 14 * row
            yield f'<text class="run" x="{middle:.1f}" y="{y}">{escape(band.name)}</text>'


def _draw_panel(panel: _Panel, x: Callable[[float], float], top: float) -> Iterator[str]:
    height = _HEIGHT[panel.title]

    def y(value: float) -> float:
        return top + height * (panel.top - value) / (panel.top - panel.bottom)

    yield f'<text class="title" x="{_LEFT}" y="{top - 7}">{escape(panel.title)}</text>'
    value = panel.bottom
    while value <= panel.top + panel.step / 1000:
        yield (
            f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y(value):.1f}"'
            f' y2="{y(value):.1f}"/>'
        )
        yield f'<text class="tick" x="{_LEFT - 6}" y="{y(value) + 4:.1f}">{value:g}</text>'
        value += panel.step
    for number, stretches in enumerate(panel.curves.values()):
        path = ""
        for stretch in stretches:
            points = [f"{x(at):.1f} {y(value):.1f}" for at, value in stretch]
            # A single point is a short dash.
            path += f"M{'L'.join(points)}" + ("h1" if len(points) == 1 else "")
        yield f'<path class="curve line{number % 7}"{_dashes(number)} d="{path}"/>'
    ends = [y(stretches[-1][-1][1]) for stretches in panel.curves.values()]
    yield from _draw_labels(list(panel.curves), ends, top + height)


def _draw_labels(names: Sequence[str], ends: Sequence[float], bottom: float) -> Iterator[str]:
    """Put a name with a piece of its line next to the end of each curve, without overlap."""
    order = sorted(range(len(names)), key=ends.__getitem__)
    places = [ends[number] for number in order]
    for i in range(1, len(places)):
        places[i] = max(places[i], places[i - 1] + _LABEL_STEP)
    if places and places[-1] > bottom:
        places[-1] = bottom
        for i in range(len(places) - 2, -1, -1):
            places[i] = min(places[i], places[i + 1] - _LABEL_STEP)
    x = _WIDTH - _RIGHT + 6
    for number, place in zip(order, places, strict=True):
        yield (
            f'<line class="curve line{number % 7}"{_dashes(number)} x1="{x}" x2="{x + 22}"'
            f' y1="{place:.1f}" y2="{place:.1f}"/>'
        )
        yield f'<text class="name" x="{x + 27}" y="{place + 4:.1f}">{escape(names[number])}</text>'


def _dashes(number: int) -> str:
    dash = _DASHES[number % len(_DASHES)]
    return f' stroke-dasharray="{dash}"' if dash else ""


def _draw_time(
    begin: float, end: float, x: Callable[[float], float], bottom: float
) -> Iterator[str]:
    span = end - begin
    unit, name = (3600.0, "h") if span > 18_000 else (60.0, "min") if span > 300 else (1.0, "s")
    step = nice_step(span / unit, ticks=6) * unit
    at = 0.0
    while at <= end:
        yield f'<text class="time" x="{x(at):.1f}" y="{bottom + 14}">{at / unit:g}</text>'
        at += step
    yield f'<text class="name" x="{_WIDTH - _RIGHT + 6}" y="{bottom + 14}">{name}</text>'
