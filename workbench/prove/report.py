"""The file that is sent, what is in it, and the pages that are made of many."""

import json
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from ... import __version__
from ...daemon.outputs import open_output
from ...parsers.errors import UserError
from ...parsers.records import Record
from .belief import STATES, Belief, Decision, Evidence, State, beliefs, lacking
from .runner import CHECKS, verdicts
from .scrub import clean, leaks

_MEMBER = "prove.json"
_MOST_BYTES = 32 << 20
_HEAD = "| assumption | reason | command on the board |\n|---|---|---|\n"
_BOARDS = """# Boards

`tegrascope prove --report` writes this page from the files that people sent. A verdict holds for
the board, the JetPack and the release of its row. [Checks that need a board](on-a-board.md) has
all assumptions.

"""


class Document(Record):
    """The content of a file; verdicts follow from the evidence, so they are not in it.

    Attributes:
        found: Evidence by probe.
    """

    format: Literal[1] = 1
    tegrascope: str
    found: dict[str, Evidence]

    def about(self, name: str) -> str:
        """Return a fact about the board, or a dash."""
        text = self.found.get("board", Evidence()).value(f"^{name}$")
        return "–" if text in (None, "None") else str(text)


def write(path: Path, found: Mapping[str, Evidence], private: Iterable[str]) -> None:
    """Write the file; refuse if a private word is in it.

    Raises:
        UserError: Evidence has a text that looks private; nothing is written.
    """
    document = Document(tegrascope=__version__, found=dict(found))
    text = json.dumps(document.model_dump(mode="json"), indent=1, ensure_ascii=False)
    for name, evidence in found.items():
        problem = _privacy_problem(evidence, private)
        if problem is not None:
            remedy = "report this line; the file was not written"
            raise UserError(f"evidence of {name!r} has {problem}, which may be private", remedy)
    with (
        open_output(path) as output,
        zipfile.ZipFile(output.buffer, "w", zipfile.ZIP_DEFLATED) as file,
    ):
        # A fixed time: the clock of the machine is not part of the evidence.
        file.writestr(zipfile.ZipInfo(_MEMBER), text)


def _privacy_problem(evidence: Evidence, private: Iterable[str]) -> str | None:
    """Return what looks private in evidence, without naming it, or None."""
    for line in evidence.lines:
        if clean(line) != line:
            return "an unknown word"
    leaked = leaks("\n".join((*evidence.lines, evidence.missing or "", evidence.remedy)), private)
    return leaked[0] if leaked else None


def read(path: Path) -> Document:
    """Read a file, or raise UserError."""
    try:
        with zipfile.ZipFile(path) as file:
            if file.getinfo(_MEMBER).file_size > _MOST_BYTES:
                raise UserError(f"{path}: the file is too large", "send what prove wrote")
            return Document.model_validate_json(file.read(_MEMBER))
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}", "name a file of prove") from error
    # Besides its own error, the library raises these for damaged, encrypted and odd archives.
    except (
        zipfile.BadZipFile,
        zlib.error,
        EOFError,
        KeyError,
        RuntimeError,
        ValidationError,
    ) as error:
        raise UserError(f"{path} is not a file of tegrascope prove", "name another") from error


def as_lines(document: Document) -> list[str]:
    """Return all that a file has, for people: its verdicts, then each line of evidence."""
    lines = [f"tegrascope {document.tegrascope}"]
    for name, verdict in verdicts(document.found).items():
        lines.append(verdict_line(beliefs()[name], verdict))
    for name, evidence in document.found.items():
        lines += ["", f"evidence {name}: {evidence.missing or f'{len(evidence.lines)} lines'}"]
        lines += [f"  {line}" for line in evidence.lines]
        if evidence.status is not None or evidence.seconds:
            lines.append(f"  status {evidence.status}, {evidence.seconds} s")
        if evidence.at_seconds:
            lines.append(f"  arrived at {' '.join(map(str, evidence.at_seconds))}")
    return lines


def verdict_line(belief: Belief, verdict: Decision) -> str:
    """Return a verdict for people, with what is wrong in the product, or what would decide it."""
    line = f"{verdict.state:<9}  {belief.belief}: {verdict.because}"
    if verdict.state == "refuted" and belief.wrong:
        return f"{line}; wrong in tegrascope: {belief.wrong}"
    if verdict.remedy:
        return f"{line}; {verdict.remedy}"
    return line


def counts(found: Iterable[Decision]) -> dict[State, int]:
    """Return how many verdicts there are of each state."""
    counted = Counter(verdict.state for verdict in found)
    return {state: counted[state] for state in STATES}


def beliefs_page(page: str) -> str:
    """Return docs/on-a-board.md with its tables made anew; they are the end of the page."""
    by_prove, by_hand = [], []
    for name, belief in beliefs().items():
        row = _escaped((belief.belief, belief.reason, belief.command))
        if name in CHECKS:
            by_prove.append(row)
        else:
            by_hand.append(row)
    text = page.partition("\n## ")[0]
    text += f"\n## Checked by tegrascope prove: {len(by_prove)}\n\n{_HEAD}{_rows(by_prove)}"
    return text + f"\n## Checked by hand: {len(by_hand)}\n\n{_HEAD}{_rows(by_hand)}"


def boards_page(documents: Sequence[Document]) -> str:
    """Return docs/boards.md: a row per board and release, and what was refuted where."""
    rows: dict[tuple[str, ...], dict[str, State]] = {}
    files: dict[tuple[str, ...], int] = {}
    refuted: list[tuple[str, ...]] = []
    for document in documents:
        about = tuple(document.about(name) for name in ("model", "jetpack", "l4t"))
        key = (*about, document.tegrascope)
        files[key] = files.get(key, 0) + 1
        for name, verdict in verdicts(document.found).items():
            known = rows.setdefault(key, {}).get(name, "not here")
            # One refutation counts more than any proof.
            best = min(known, verdict.state, key=("refuted", *STATES).index)
            rows[key][name] = best
            if verdict.state == "refuted":
                belief = beliefs()[name]
                cells = (belief.belief, " ".join(about), verdict.because, belief.wrong or "–")
                refuted.append(_escaped(cells))
    if not rows:
        return _BOARDS + "No file was sent yet.\n"
    titles = ("board", "JetPack", "Jetson Linux", "tegrascope", "files", *STATES)
    table = []
    for key, row in sorted(rows.items()):
        counted = Counter(row.values())
        numbers = [files[key], *(counted[state] for state in STATES)]
        table.append((*key, *map(str, numbers)))
    page = _BOARDS + _table(titles, table)
    if refuted:
        page += "\n## Refuted\n\n" + _table(("assumption", "board", "evidence", "wrong"), refuted)
    return page


def captures(documents: Iterable[Document]) -> dict[str, list[str]]:
    """Return the recorded lines of tegrastats by the name of their capture."""
    lines_by_capture: dict[str, list[str]] = {}
    for document in documents:
        board = "-".join(document.about("module").lower().split())
        lines = lines_by_capture.setdefault(f"{board}__r{document.about('l4t')}.txt", [])
        for name in ("tegrastats", "root_tegrastats"):
            evidence = document.found.get(name, Evidence())
            lines += lacking(evidence.lines[:3], lines)
    return {name: lines for name, lines in lines_by_capture.items() if lines and "–" not in name}


def _escaped(cells: Iterable[str]) -> tuple[str, ...]:
    """Return cells of a row, in which a bar would begin another cell."""
    return tuple(cell.replace("|", r"\|") for cell in cells)


def _table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return f"| {' | '.join(titles)} |\n|{'---|' * len(titles)}\n{_rows(rows)}"


def _rows(rows: Iterable[Sequence[str]]) -> str:
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)
