"""A page that is kept as one file: tables of a document, and the daemon's own charts and runs.

Charts, and all that the record of a run holds, are drawn by the scripts of the status page from the
JSON inside the file. It needs no daemon, no other file and no network.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timezone
from html import escape
from typing import Any
from urllib.parse import quote

from ...daemon.measure.blocks import Block as SampleBlock
from ...daemon.measure.report import RunReport
from ...daemon.measure.run_text import ABSENT, run_rows
from ...daemon.web.status_page import STATIC, series_of
from .caveats import explain_flag
from .document import Bars, Block, Facts, Front, Heading, Items, ScriptArea, Table, Text
from .summary import foreign_processes

SIMULATED_NOTICE = (
    "Simulated: telemetry or accelerators are not real, and these figures say nothing about a"
    " board."
)
_FOOTER = (
    "tegrascope {}. Module rail energy is measured by the module's own sensors; it compares runs"
    " on one board, and is not a benchmark score."
)
# As many as a wide screen can show beside each other; a day then takes 200 kB.
_MOST_STEPS = 600
_SHORTEST_STEP_NS = 100_000_000
# A record takes about 5 kB. The runs before these have their row, and `report --run` the rest.
_MOST_RECORDS = 200


def html_page(
    title: str,
    blocks: Sequence[Block],
    *,
    version: str,
    runs: Sequence[RunReport] = (),
    timeline: dict[str, Any] | None = None,
) -> str:
    """Return a page with the records of the latest ``runs``, and what ``timeline_of`` returned.

    The title is that of the window; the first block is usually a heading of level 1.
    """
    records = []
    for run in runs[-_MOST_RECORDS:]:
        text = [row._asdict() for row in run_rows(run)]
        records.append({**run.model_dump(mode="json", exclude_none=True), "text": text})
    page = (STATIC / "saved.html").read_text(encoding="utf-8")
    parts = {
        "title": escape(title),
        "content": "\n".join(_html_of(blocks)),
        "footer": escape(_FOOTER.format(version)),
        "saved": _json_in_html({"runs": records, "timeline": timeline}),
    }
    for name, part in parts.items():
        page = page.replace(f"<!--{name}-->", part, 1)
    return page


def _json_in_html(value: object) -> str:
    """Return JSON in which no text can end the element that holds it."""
    return json.dumps(value, separators=(",", ":")).replace("<", "\\u003c")


# --- runs -----------------------------------------------------------------------------------------


def timeline_of(
    blocks: Iterator[SampleBlock],
    runs: Sequence[RunReport],
    begin_ns: int,
    end_ns: int,
    *,
    offset_ns: int | None = None,
) -> dict[str, Any]:
    """Return the telemetry and the runs between two wall times, as the page's script takes them.

    Args:
        blocks: Samples, oldest first.
        offset_ns: Wall time minus monotonic time for all runs, where one boot is shown and the
            wall clock may have been set meanwhile; by default that of the begin of each run.
    """
    step_ns = max((end_ns - begin_ns) // _MOST_STEPS, _SHORTEST_STEP_NS)
    total_rails: tuple[str, ...] = ()
    for run in runs:
        if run.energy is not None:
            total_rails = run.energy.total_rails
            break
    return {
        "series": json.loads("".join(series_of(blocks, begin_ns, end_ns, step_ns))),
        "bands": [_band(run, offset_ns) for run in runs if run.outcome != "skipped"],
        "begin": begin_ns / 1e9,
        "end": end_ns / 1e9,
        "total_rails": total_rails,
    }


def _band(run: RunReport, offset_ns: int | None) -> list[object]:
    """Return a run as ``/api/v1/bands`` does."""
    if offset_ns is None:
        offset_ns = run.started_wall_ns - run.started_ns
    times_ns: list[int | None] = [run.started_ns, run.ended_ns, None, None]
    steady = run.phases.get("steady")
    if steady is not None:
        times_ns[2:] = steady.begin_ns, steady.end_ns
    band: list[object] = [run.run_id, run.workload, run.device, run.outcome]
    for time_ns in times_ns:
        band.append(None if time_ns is None else (time_ns + offset_ns) / 1e9)
    return band


# As many as a laptop shows and a sheet of paper holds; a run's own page has the rest.
_FIGURES = (
    *("p50", "p99", "gross energy per inference", "net energy per inference"),
    *("gross energy per unit", "module power", "hottest", "flags"),
)


def runs_table(runs: Sequence[RunReport]) -> Table:
    """Return a row per run, with the figures that any of them has."""
    texts = []
    known: set[str] = set()
    for run in runs:
        text = {row.label: row.text for row in run_rows(run)}
        texts.append(text)
        known.update(text)
    labels = [label for label in _FIGURES if label in known]
    rows = []
    for run, text in zip(runs, texts, strict=True):
        outcome: str = run.outcome
        if run.reason is not None:
            outcome += f": {run.reason}"
        text.setdefault("flags", "none")
        figures = (text.get(label, ABSENT) for label in labels)
        # As `runs list` prints it: any unique part of an id names the run.
        name, started = run.run_id[-8:], utc(run.started_wall_ns)[5:-4]
        rows.append((name, started, run.workload, run.device, outcome, *figures))
    columns = ("run", "started (UTC)", "workload", "device", "outcome", *labels)
    return Table(columns, rows, left=5, run_ids=[run.run_id for run in runs])


def flag_blocks(runs: Sequence[RunReport]) -> list[Block]:
    """Return the meaning of each flag that a run has."""
    flags: set[str] = set()
    for run in runs:
        flags.update(run.quality)
    if not flags:
        return []
    processes = foreign_processes(runs)
    meanings = [(flag, explain_flag(flag, processes)) for flag in sorted(flags)]
    return [Heading("Flags", 3), Items(meanings)]


def utc(wall_ns: int) -> str:
    """Return a wall time as a reader in any zone understands it."""
    return f"{datetime.fromtimestamp(wall_ns / 1e9, timezone.utc):%Y-%m-%d %H:%M:%S} UTC"


# --- HTML -----------------------------------------------------------------------------------------


def _html_of(blocks: Iterable[Block]) -> Iterator[str]:
    """Yield the elements of a document."""
    for block in blocks:
        match block:
            case Heading(text, level):
                yield f"<h{level}>{escape(text)}</h{level}>"
            case Text(text, kind):
                yield f'<p class="{kind}">{escape(text)}</p>'
            case Items():
                yield from _html_list(block)
            case Facts():
                yield from _html_facts(block)
            case Table():
                yield from _html_table(block)
            case Front():
                yield _html_front(block)
            case Bars():
                yield from _html_bars(block)
            case ScriptArea(name):
                yield f'<div id="{name}"></div>'


def _html_list(items: Items) -> Iterator[str]:
    yield "<ul>"
    for label, words in items.items:
        if label:
            yield f"<li><b>{escape(label)}</b>: {escape(words)}</li>"
        else:
            yield f"<li>{escape(words)}</li>"
    yield "</ul>"


def _html_bars(bars: Bars) -> Iterator[str]:
    yield f"<h3>{escape(bars.title)}</h3>"
    for name, figure, share in bars.rows:
        rect = f'<rect y="3" height="8" width="{100 * share:.2f}%"/>'
        drawn = f'<svg class="measure" aria-hidden="true">{rect}</svg>'
        yield f'<p class="bar"><span class="name">{escape(name)}</span>{drawn}'
        yield f"<span>{_unbroken(figure)}</span></p>"
    yield f'<p class="under">{escape(bars.note)}</p>'


def _html_facts(facts: Facts) -> Iterator[str]:
    yield "<dl>"
    for name, value in facts.facts.items():
        if value:
            yield f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>"
    yield "</dl>"


def _html_table(table: Table) -> Iterator[str]:
    heads = []
    for column, title in enumerate(table.columns):
        kind = ' class="text"' if column < table.left else ""
        # The corner above the names of the rows may be empty, and is not a heading then.
        heads.append(f'<th scope="col"{kind}>{escape(title)}</th>' if title else "<td></td>")
    yield '<div class="wide" tabindex="0"><table>'
    yield f"<thead><tr>{''.join(heads)}</tr></thead><tbody>"
    for row, cells in enumerate(table.rows):
        name = escape(cells[0])
        if table.run_ids:
            name = f'<a href="#run-{quote(table.run_ids[row], safe="")}">{name}</a>'
        yield f'<tr><th scope="row">{name}</th>'
        for column in range(1, len(cells)):
            yield _html_cell(table, row, column)
        yield "</tr>"
        if row in table.ends and row + 1 < len(table.rows):
            yield "</tbody><tbody>"
    yield "</tbody></table></div>"


def _html_front(front: Front) -> str:
    """Return the element in which the page's script draws the points of a sweep."""
    marks = []
    for mark in front.marks:
        x, y = (figure.model_dump(exclude_none=True) for figure in (mark.x, mark.y))
        marks.append(
            {"title": mark.title, "device": mark.device, "x": x, "y": y, "front": mark.is_front}
        )
    data = _json_in_html({"name": front.name, "unit": front.unit, "marks": marks})
    element = f'<script type="application/json">{data}</script>'
    return f'<div class="wide front" tabindex="0">{element}</div>'


def _html_cell(table: Table, row: int, column: int) -> str:
    """Return a cell, which names its column where a phone shows a row as a card."""
    cell = table.rows[row][column]
    kinds = []
    if (row, column) in table.doubtful:
        kinds.append("doubtful")
    if column < table.left:
        kinds.append("text")
    if cell == ABSENT:
        kinds.append("none")
    label = escape(table.columns[column])
    return f'<td class="{" ".join(kinds)}" data-label="{label}">{_unbroken(cell)}</td>'


def _unbroken(text: str) -> str:
    """Return text for HTML in which a number and its unit stay on one line."""
    return re.sub(r"(?<=[\d±]) (?=\S)", "&nbsp;", escape(text))
