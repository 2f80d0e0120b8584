"""What was found, for people and for programs."""

import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ... import __version__
from ...parsers.records import Record
from .board import check_board, check_clocks, check_room
from .dla import check_dla
from .findings import TENSORRT_SECONDS, Finding, Level, Patient, finishes
from .inference import check_inference, check_workloads
from .service import check_service
from .telemetry import check_telemetry

Check = Callable[[Patient], Iterator[Finding]]

# By the order in which they are told. A group takes so long at most: its own programs have
# shorter limits, so only what the kernel holds on to comes as far.
GROUPS: tuple[tuple[str, Check, float], ...] = (
    ("board", check_board, 10.0),
    ("telemetry", check_telemetry, 30.0),
    ("dla", check_dla, 15.0),
    ("inference", check_inference, TENSORRT_SECONDS + 40.0),
    ("workloads", check_workloads, TENSORRT_SECONDS + 10.0),
    ("clock", check_clocks, 10.0),
    ("room", check_room, 10.0),
    ("service", check_service, 20.0),
)


class Told(Record):
    """One finding, with the group that it stands in.

    Attributes:
        group: Name of the group.
        finding: The finding.
    """

    group: str
    finding: Finding


@dataclass
class _Watched:
    found: list[Finding]
    problem: str | None = None


def examine(
    patient: Patient, groups: tuple[tuple[str, Check, float], ...] = GROUPS
) -> Iterator[Told]:
    """Yield what each group finds, as soon as it is done.

    Args:
        patient: Who is examined.
        groups: Names, checks, and how many seconds each may take.
    """
    for name, check, seconds in groups:
        for finding in _watch(patient, name, check, seconds):
            yield Told(group=name, finding=finding)


def _watch(patient: Patient, name: str, check: Check, seconds: float) -> list[Finding]:
    state = _Watched([])

    def work() -> None:
        try:
            for finding in check(patient):
                state.found.append(finding)
        except Exception as error:
            state.problem = f"the check failed in itself ({type(error).__name__}: {error})"

    in_time = finishes(work, seconds, name)
    found, problem = list(state.found), state.problem
    if not in_time:
        problem = f"no answer within {seconds:g} s after {len(found)} finding(s)"
    if problem is not None:
        found.append(
            Finding(
                check=name,
                level="broken",
                message=problem,
                remedy="see dmesg; if it persists, send us this line",
            )
        )
    return found


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
        first, *rest = _wrapped(finding.message)
        yield f"  {level}  {first}"
        yield from (_INDENT + line for line in rest)
        if finding.remedy is not None:
            yield from (_INDENT + line for line in _remedy_lines(finding.remedy))


def summary(found: Sequence[Told]) -> str:
    """Return the last line: whether the main job can be done, and what stops it."""
    blocking = [told.finding for told in found if told.finding.blocking]
    if not blocking:
        return "The main job can be done: telemetry, and every configured workload."
    names = ", ".join(dict.fromkeys(finding.check for finding in blocking))
    return f"The main job can't be done; it is stopped by: {names}."


def as_document(found: Sequence[Told]) -> dict[str, Any]:
    """Return what programs read; docs/doctor.md describes it."""
    levels = [told.finding.level for told in found]
    return {
        "format": FORMAT,
        "version": __version__,
        "ok": not any(told.finding.blocking for told in found),
        "counts": {level: levels.count(level) for level in _COLOURS},
        "findings": [{"group": told.group, **told.finding.model_dump()} for told in found],
    }


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH - len(_INDENT), break_on_hyphens=False) or [""]


def _remedy_lines(remedy: str) -> list[str]:
    """Break a mend only where a shell would take the pieces as well: it is there to be copied."""
    lines = ["→"]
    for piece in _PIECES.split(remedy):
        if lines[-1].strip() != "→" and len(_INDENT) + len(lines[-1]) + len(piece) >= _WIDTH:
            lines.append(" ")
        lines[-1] += f" {piece}"
    return lines


def _painted(text: str, code: str, colour: bool) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if colour else text
