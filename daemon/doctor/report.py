"""What was found, for people and for programs."""

import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ... import __version__
from .examine import Told
from .finding import Level

FORMAT = 1
_WIDTH = 80
_INDENT = " " * 11
_PIECES = re.compile(r"(?<=&&) |(?<=[;,]) ")
_COLOURS: dict[Level, str] = {"good": "32", "note": "36", "missing": "33", "broken": "31"}


def as_lines(found: Iterable[Told], colour: bool) -> Iterator[str]:
    """Yield what people read: a heading for each group, a line for each finding, its mend below.

    Args:
        found: The findings, group by group.
        colour: Whether the reader is a terminal.
    """
    group = None
    for told in found:
        if told.group != group:
            group = told.group
            yield _painted(group, "1", colour)
        finding = told.finding
        level = _painted(f"{finding.level:<7}", _COLOURS[finding.level], colour)
        first, *rest = _wrapped(finding.said)
        yield f"  {level}  {first}"
        yield from (_INDENT + line for line in rest)
        if finding.mend is not None:
            yield from (_INDENT + line for line in _mend_lines(finding.mend))


def summary(found: Sequence[Told]) -> str:
    """Return the last line: whether the main job can be done, and what stops it."""
    stops = [told.finding for told in found if told.finding.stops]
    if not stops:
        return "The main job can be done: telemetry, and every configured workload."
    names = ", ".join(dict.fromkeys(finding.check for finding in stops))
    return f"The main job can't be done; it is stopped by: {names}."


def as_document(found: Sequence[Told]) -> dict[str, Any]:
    """Return what programs read; docs/doctor.md describes it."""
    levels = [told.finding.level for told in found]
    return {
        "format": FORMAT,
        "version": __version__,
        "able": not any(told.finding.stops for told in found),
        "counts": {level: levels.count(level) for level in _COLOURS},
        "findings": [{"group": told.group, **told.finding.model_dump()} for told in found],
    }


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH - len(_INDENT), break_on_hyphens=False) or [""]


def _mend_lines(mend: str) -> list[str]:
    """Break a mend only where a shell would take the pieces as well: it is there to be copied."""
    lines = ["→"]
    for piece in _PIECES.split(mend):
        if lines[-1].strip() != "→" and len(_INDENT) + len(lines[-1]) + len(piece) >= _WIDTH:
            lines.append(" ")
        lines[-1] += f" {piece}"
    return lines


def _painted(text: str, code: str, colour: bool) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if colour else text
