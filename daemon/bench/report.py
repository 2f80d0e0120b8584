"""``report.html``: what a bench found, on one page that needs no other file and no network."""

import re
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timezone
from html import escape

from ..measure.slices import Cut
from .contention_rows import EXPLAINED, HEADS, TITLE, groups_of, nothing
from .curves import bands_of, panels_of
from .figure import figure
from .result import BenchResult, GoalResult, ModelResult
from .rows import NOTHING, compared, grouped, is_headline, remarks, rows_of
from .style import STYLE
from .words import duration

Samples = Callable[[int, int], Cut]
# What a browser is to refuse, should anything on the page ever ask for it.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def report_page(result: BenchResult, samples: Samples) -> str:
    """Return the page.

    Args:
        result: What was found.
        samples: Begin and end in nanoseconds to the samples between.
    """
    names = ", ".join(model.model for model in result.models)
    return "\n".join(
        (
            "<!DOCTYPE html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
            f"<title>{escape(names)}: tegrascope bench</title>",
            f"<style>{STYLE}</style></head><body>",
            *_head(result, names),
            *(part for model in result.models for part in _model(model, result, samples)),
            *_contention(result),
            *_machine(result),
            f"<footer>tegrascope {escape(result.tegrascope)}. Module rail energy is what the"
            " module's own sensors see; it compares runs on one board, and is no benchmark"
            " score.</footer></body></html>",
        )
    )


def _head(result: BenchResult, names: str) -> Iterator[str]:
    began = datetime.fromtimestamp(result.started_wall_ns / 1e9, timezone.utc)
    took = duration((result.ended_wall_ns - result.started_wall_ns) / 1e9)
    yield f"<header><h1>{escape(names)}</h1>"
    yield f'<p class="under">Benched {began:%Y-%m-%d %H:%M} UTC, in {took}</p>'
    if result.is_simulated:
        yield (
            '<p class="notice">Simulated: telemetry or accelerators are not real, and these'
            " figures say nothing about a board.</p>"
        )
    if result.is_partial:
        yield '<p class="notice">Interrupted: this is what was measured until then.</p>'
    yield "</header>"


def _model(model: ModelResult, result: BenchResult, samples: Samples) -> Iterator[str]:
    goals = compared(model)
    heading = "Which one?" if goals else "What it takes"
    yield f"<section><h2>{escape(model.model if len(result.models) > 1 else heading)}</h2>"
    yield from _goals(goals)

    yield from _table(model)
    yield from (f"<p>{escape(whose)}: {escape(words)}</p>" for whose, words in remarks(model))
    checks = grouped(model.checks)
    if checks:
        yield "<h3>To be known</h3><ul>"
        yield from (f"<li>{escape(whose)}: {escape(words)}</li>" for whose, words in checks)
        yield "</ul>"
    yield from _figure(model, samples)
    yield "</section>"


def _goals(goals: Sequence[GoalResult]) -> Iterator[str]:
    if goals:
        yield "<ul>"
    for goal in goals:
        title, _, words = goal.sentence.partition(": ")
        mark = f"<b>{escape(goal.winner)}</b> · " if goal.winner else ""
        words = words.removeprefix(f"{goal.winner} wins; ")
        yield f"<li>{escape(title)}: {mark}{escape(words)}</li>"
    if goals:
        yield "</ul>"


def _table(model: ModelResult) -> Iterator[str]:
    heads = "".join(f'<th scope="col">{escape(one.device)}</th>' for one in model.accelerators)
    yield f'<div class="wide" tabindex="0"><table><thead><tr><td></td>{heads}</tr></thead><tbody>'
    for row in rows_of(model.accelerators):
        cells = (
            f"<td{_doubt(row.label, cell, headline=is_headline(one))}>{_whole(cell)}</td>"
            for cell, one in zip(row.cells, model.accelerators, strict=True)
        )
        yield f'<tr><th scope="row">{escape(row.label)}</th>{"".join(cells)}</tr>'
    yield "</tbody></table></div>"


def _whole(cell: str) -> str:
    """Keep a number and its unit on one line."""
    return re.sub(r"(?<=[\d±]) (?=\S)", "&nbsp;", escape(cell))


def _doubt(label: str, cell: str, *, headline: bool) -> str:
    """Strike through the speed of what can't be taken at face value."""
    is_speed = label.startswith(("latency", "device", "throughput", "energy"))
    return ' class="doubtful"' if is_speed and not headline and cell != NOTHING else ""


def _figure(model: ModelResult, samples: Samples) -> Iterator[str]:
    if not model.rounds:
        return
    begin_ns = model.rounds[0].started_ns
    cut = samples(begin_ns, model.rounds[-1].ended_ns)
    panels = panels_of(cut, model, begin_ns)
    if panels:
        title = f"{model.model}: power, load and temperature while it was benched"
        yield "<h3>Over time</h3>"
        yield (
            '<p class="under">Each band is a run, named by its accelerator: the darker part is the'
            " steady phase, the lighter ones are idle, model loaded.</p>"
        )
        drawn = figure(title, panels, bands_of(model, begin_ns))
        yield f'<div class="wide" tabindex="0">{drawn}</div>'


def _contention(result: BenchResult) -> Iterator[str]:
    if result.contention is None:
        return
    yield f"<section><h2>{TITLE}</h2>"
    yield f'<p class="under">{escape(nothing(result.contention) or EXPLAINED)}</p>'
    for group in groups_of(result.contention):
        yield f"<h3>{escape(group.title.partition(': ')[0])}</h3>"
        yield f"<p>{escape(group.title.partition(': ')[2])}</p>"
        if group.rows:
            heads = "".join(f'<th scope="col">{escape(head)}</th>' for head in HEADS[1:])
            yield '<div class="wide" tabindex="0"><table>'
            yield f"<thead><tr><td></td>{heads}</tr></thead><tbody>"
            for name, *cells in group.rows:
                row = "".join(f"<td>{_whole(cell)}</td>" for cell in cells)
                yield f'<tr><th scope="row">{escape(name)}</th>{row}</tr>'
            yield "</tbody></table></div>"
    yield "</section>"


def _machine(result: BenchResult) -> Iterator[str]:
    environment, settings = result.environment, result.settings
    facts = {
        "board": environment.board,
        "module": environment.module,
        "L4T": environment.l4t,
        "JetPack": environment.jetpack,
        "power mode": environment.power_mode,
        "telemetry": result.telemetry_problem or environment.telemetry_source,
        "before it began": ", ".join(
            f"{name.upper()} {100 * ratio:.0f} % busy" for name, ratio in result.background.items()
        ),
        "a round": (
            f"{settings.duration_seconds:g} s steady, {settings.baseline_seconds:g} s idle before"
            f" and after, batch {settings.batch}"
        ),
        "asked for": ", ".join(
            filter(None, (settings.precision, f"fallback {settings.fallback}", settings.backend))
        ),
        "model SHA-256": ", ".join(filter(None, (one.model_sha256 for one in result.models))),
        "versions": ", ".join(
            f"{name} {version}" for name, version in sorted(_versions(result).items())
        ),
    }
    yield "<section><h2>Where and how</h2><dl>"
    for name, fact in facts.items():
        if fact:
            yield f"<dt>{escape(name)}</dt><dd>{escape(fact)}</dd>"
    yield "</dl>"
    if result.checks:
        yield "<ul>"
        yield from (f"<li>{escape(words)}</li>" for _, words in grouped(result.checks))
        yield "</ul>"
    yield "</section>"


def _versions(result: BenchResult) -> dict[str, str]:
    """Return versions of all that took part, workers' libraries included."""
    told = dict(result.environment.versions)
    for model in result.models:
        for report in model.rounds:
            told.update(report.environment.versions)
    return told
