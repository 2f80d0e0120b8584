"""A belief, the evidence of a board, and the verdict that a check reads out of it."""

import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from ...parsers.records import Record

State = Literal["proved", "refuted", "not here", "undecided"]
DLA_REMEDY = "use a board with a DLA: Xavier, Orin NX or AGX Orin"
STATES: tuple[State, ...] = ("proved", "refuted", "undecided", "not here")


class Belief(Record):
    """A row of docs/on-a-board.md.

    Attributes:
        wrong: The part of the product that is wrong if the belief is.
    """

    belief: str
    reason: str
    command: str
    wrong: str = ""


@cache
def beliefs() -> dict[str, Belief]:
    """Return every belief by name, in the order of the page."""
    data = msgspec.toml.decode(Path(__file__).with_name("beliefs.toml").read_bytes())
    return {name: Belief.model_validate(fields) for name, fields in data.items()}


class Decision(Record):
    """The state of a belief by the evidence, with the reason, and a remedy if it is not decided."""

    state: State
    because: str
    remedy: str = ""


def proved(because: str) -> Decision:
    """Return the verdict that a belief holds on this board."""
    return Decision(state="proved", because=because)


def refuted(because: str) -> Decision:
    """Return the verdict that a belief does not hold on this board."""
    return Decision(state="refuted", because=because)


def undecided(because: str) -> Decision:
    """Return the verdict of evidence that allows both."""
    return Decision(state="undecided", because=because)


def not_here(because: str, remedy: str) -> Decision:
    """Return the verdict that this board cannot decide it, and what could."""
    return Decision(state="not here", because=because, remedy=remedy)


def decide(holds: bool, because: str) -> Decision:
    """Return ``proved`` or ``refuted``."""
    return proved(because) if holds else refuted(because)


class Unseen(Exception):  # noqa: N818 - it is an answer
    """Evidence lacks what a check needs, so this is its verdict."""

    def __init__(self, verdict: Decision) -> None:
        super().__init__(verdict.because)
        self.verdict = verdict


class Evidence(Record):
    """Lines of a program or of files, without private words.

    A line of a file is ``path: text``, and one of a JSON document ``path.of.keys: value``.

    Attributes:
        at_seconds: Arrival of each line, since the start; empty if that was not noted.
        seconds: How long it took.
        missing: Reason of absent evidence, or ``None``.
        remedy: Step that would make it possible.
    """

    lines: tuple[str, ...] = ()
    at_seconds: tuple[float, ...] = ()
    status: int | None = None
    seconds: float = 0.0
    missing: str | None = None
    remedy: str = ""

    def items(self, path: str = "") -> Iterator[tuple[str, str]]:
        """Yield path and text of each line whose path has a match of a regular expression."""
        for line in self.lines:
            name, colon, text = line.partition(": ")
            if colon and re.search(path, name):
                yield name, text.strip()

    def texts(self, path: str) -> list[str]:
        """Return the text of each such line."""
        return [text for _, text in self.items(path)]

    def paths(self, path: str, text: str | None = None) -> list[str]:
        """Return the path of each such line, or only of those with this text."""
        paths = []
        for name, value in self.items(path):
            if text is None or value == text:
                paths.append(name)
        return paths

    def numbers_after(self, prefix: str) -> dict[str, int]:
        """Return the whole number of each line with this prefix, by the rest of its path."""
        numbers = {}
        for name, text in self.items(f"^{prefix}"):
            numbers[name.removeprefix(prefix)] = int(text)
        return numbers

    def value(self, path: str) -> str | None:
        """Return the text of the first such line."""
        return next(iter(self.texts(path)), None)

    def number(self, path: str) -> float | None:
        """Return the first such text that is a number."""
        for text in self.texts(path):
            try:
                return float(text)
            except ValueError:
                continue
        return None

    def need(self, path: str, why: str) -> float:
        """Return such a number; without one the check is undecided for this reason."""
        number = self.number(path)
        if number is None:
            raise Unseen(undecided(why))
        return number

    @property
    def last_words(self) -> str:
        """The last line that is not empty."""
        for line in reversed(self.lines):
            if line.strip():
                return line
        return "nothing"

    def has(self, pattern: str) -> bool:
        """Return whether a line has a match of a regular expression."""
        return any(re.search(pattern, line) for line in self.lines)


Judge = Callable[..., Decision]


class BeliefCheck(NamedTuple):
    """Names of the probes whose evidence a judge takes, in the order of its arguments."""

    needs: tuple[str, ...]
    judge: Judge


class Checks(dict[str, BeliefCheck]):
    """The checks of a subject by name; ``needs`` adds the function that it decorates."""

    def needs(self, *probes: str) -> Callable[[Judge], Judge]:
        """Register a judge under its own name, which is that of its belief."""

        def add(judge: Judge) -> Judge:
            self[judge.__name__] = BeliefCheck(probes, judge)
            return judge

        return add


def verdict_of(
    name: str, checks: Mapping[str, BeliefCheck], found: Mapping[str, Evidence]
) -> Decision:
    """Return the verdict of one belief: a pure function of the evidence."""
    check = checks.get(name)
    if check is None:
        return undecided("checked by hand")
    needed = [found.get(probe, Evidence(missing="not looked at yet")) for probe in check.needs]
    for evidence in needed:
        if evidence.missing is not None:
            return not_here(evidence.missing, evidence.remedy)
    try:
        return check.judge(*needed)
    except Unseen as unseen:
        return unseen.verdict
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        return undecided(f"the evidence cannot be read ({type(error).__name__})")


def lacking(names: Iterable[str], known: Container[str]) -> list[str]:
    """Return the names that are not among the known ones, in their order."""
    return [name for name in names if name not in known]


def listed(words: Sequence[str | None], most: int = 4) -> str:
    """Return some words for people; an empty list is ``none``."""
    if not words:
        return "none"
    shown = ", ".join(map(str, words[:most]))
    return shown if len(words) <= most else f"{shown} and {len(words) - most} more"
