"""The base of all tokens, and what they fill: the record of a line, and the columns of a log.

Lines of one layout differ in numbers only. A *run* is a sequence of digits and decimal points, a
*gap* the text between two runs. One integer describes a run, except for the place of its points,
so comparing integers compares lines:

| bits | meaning |
|---|---|
| 0 to 31 | its value, if it is at most eight digits and nothing else |
| 32 to 47 | length of the gap before it, for the first one from the beginning of the line |
| 48 to 55 | its length |
| 56 | it has a decimal point |
| 57 | it is longer than eight characters |
| 58 | it is longer than two characters and not 100, as no percentage is |
| 59 | its decimal points are not those of a number |
| 60 | it is the last one of its line |
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar

from ..records import Engine, Rail, Sample
from .values import HERTZ_PER_MEGAHERTZ

VALUE_BITS = 0xFFFFFFFF
GAP_BITS = 0xFFFF << 32
LENGTH_SHIFT = 48
LENGTH_BITS = 0xFF << LENGTH_SHIFT
POINT_BIT, LONG_BIT, WIDE_BIT, WRONG_BIT, LAST_BIT = (1 << bit for bit in range(56, 61))

# What must be equal in all lines of a layout: of a number, and of a digit in a name.
_DECIMAL_BITS = GAP_BITS | LONG_BIT | WRONG_BIT | LAST_BIT
_NUMBER_BITS = _DECIMAL_BITS | POINT_BIT
_PERCENT_BITS = _NUMBER_BITS | WIDE_BIT
_WIDTH_BITS = _NUMBER_BITS | LENGTH_BITS
LITERAL_BITS = _WIDTH_BITS | VALUE_BITS
PREFIX_BITS = GAP_BITS | LAST_BIT

NOWHERE = ""
TIME_COLUMNS = ("month", "day", "year", "hour", "minute", "second")
RESERVED_COLUMNS = (NOWHERE, *TIME_COLUMNS)
"""The first columns: of runs that mean nothing by themselves, and of the printed time."""

RUN = re.compile("[0-9.]+")
# A token has at most five words.
_PADDING = [""] * 5


@dataclass(slots=True)
class NumberMap:
    """The runs of some words, and what the words mean without a number.

    Attributes:
        bits: The part of each run that must be equal in all lines.
        names: The column of each.
        factors, divisors: Each printed number is multiplied, then divided, to be in base units.
        celsius_runs: Runs that are temperatures.
        negative: Those of them with a minus before them.
        parts: Runs that are not above the run behind them.
        copies: Further columns, and the run that is in them too.
        gates: Columns that are 1 if something is on, and the run that is its clock.
        constants: Columns that are equal in all lines.
    """

    bits: list[int] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    factors: list[float] = field(default_factory=list)
    divisors: list[float] = field(default_factory=list)
    celsius_runs: list[int] = field(default_factory=list)
    negative: list[int] = field(default_factory=list)
    parts: list[int] = field(default_factory=list)
    copies: dict[str, int] = field(default_factory=dict)
    gates: dict[str, int] = field(default_factory=dict)
    constants: dict[str, float] = field(default_factory=dict)

    def put(
        self, bits: int, column: str = NOWHERE, factor: float = 1.0, divisor: float = 1.0
    ) -> int:
        """Append one run and return its place."""
        self.bits.append(bits)
        self.names.append(column)
        self.factors.append(factor)
        self.divisors.append(divisor)
        return len(self.bits) - 1

    def literal(self, word: str) -> None:
        """Append the runs of a word that is equal in all lines."""
        for _ in RUN.findall(word):
            self.put(LITERAL_BITS)

    def time(self) -> None:
        """Append the runs of a printed time."""
        for column in TIME_COLUMNS:
            self.put(_WIDTH_BITS, column)

    def number(self, column: str, factor: float = 1.0, divisor: float = 1.0) -> int:
        """Append a whole number, and return its place."""
        return self.put(_NUMBER_BITS, column, factor, divisor)

    def percent(self, column: str) -> int:
        """Append a percentage, and return its place."""
        return self.put(_PERCENT_BITS, column, divisor=100.0)

    def megahertz(self, column: str) -> int:
        """Append a clock, and return its place."""
        return self.number(column, HERTZ_PER_MEGAHERTZ)

    def power(self, column: str, text: str) -> None:
        """Append a power; its sign is that of the text, which is equal in all lines."""
        self.number(column, _sign(text), divisor=1000.0)

    def celsius(self, column: str, text: str) -> None:
        """Append a temperature; its sign is that of the text."""
        at = self.put(_DECIMAL_BITS, column, _sign(text))
        self.celsius_runs.append(at)
        if text.startswith("-"):
            self.negative.append(at)


def _sign(text: str) -> float:
    return -1.0 if text.startswith("-") else 1.0


class NextRecordError(Exception):
    """The token belongs to another record, which begins behind the one that is read."""


class RestartError(Exception):
    """The words so far are the remnant of an earlier record; this one begins at ``at``."""

    def __init__(self, at: int) -> None:
        super().__init__(at)
        self.at = at


class Draft:
    """The record of a line while its words are read.

    Attributes:
        words: The ``end`` words of the line, and some empty ones.
        first: Place of the first token; that of the next word if there was none yet.
        ram_at: Place of the RAM token.
        signs: Number of tokens that prose does not have.
        is_regular: Whether the same tokens with other values mean the same in other lines.
        once: Fields of the record that a line has once, by name.
    """

    def __init__(self, words: list[str], start: int) -> None:
        self.end = len(words)
        self.words = words + _PADDING
        self.first = start
        self.ram_at: int | None = None
        self.signs = 0
        self.is_regular = start == 0
        self.unparsed = words[:start]
        self.once: dict[str, Any] = {}
        self.engines: dict[str, Engine] = {}
        self.dla: dict[str, Any] = {}
        self.zones: dict[str, float | None] = {}
        self.maxima: dict[str, float] = {}
        self.rails: dict[str, Rail] = {}
        self._received: datetime | None = None

    def receive(self, received: datetime | None, local_time: datetime | None) -> None:
        """Keep the time of a recorder; tegrastats' own local time comes first."""
        self._received = received
        if local_time is not None and "time" not in self.once:
            self.once["time"] = local_time
            # The columns of a layout have no place for a local time with another order of numbers.
            self.is_regular = False

    def next_record(self) -> NextRecordError:
        """Return the error for something that a record has once and that is there twice."""
        self._restart_at_ram()
        return NextRecordError()

    def repeat(self, at: int, words: int) -> int:
        """Leave out a token whose name was there before."""
        self._restart_at_ram()
        self.leave(*self.words[at : at + words])
        return words

    def leave(self, *texts: str) -> None:
        """Keep words, or a part of one, that were not understood."""
        self.unparsed += texts
        self.is_regular = False

    def _restart_at_ram(self) -> None:
        """Begin anew at RAM if something is there twice, and stood before RAM the first time."""
        if self.ram_at is not None and "time" not in self.once and self.first < self.ram_at:
            raise RestartError(self.ram_at)

    def sample(self, source_line: str | None) -> Sample:
        """Return the record."""
        # By position, and a list within tuple(): both save time, and each line comes here.
        once, dla = self.once.get, self.dla
        return Sample(
            once("time"),
            self._received,
            once("ram"),
            once("swap"),
            once("iram"),
            once("cpu", ()),
            once("edp_limit_hertz"),
            once("emc"),
            once("gpu"),
            self.engines,
            tuple([dla[name] for name in sorted(dla)]),
            self.zones,
            self.maxima,
            self.rails,
            tuple(self.unparsed),
            source_line,
        )


class Token(ABC):
    """A token that begins with a certain word; it may remember the values that it has read.

    Attributes:
        LABELS: Words that begin it, whatever is behind them.
        label: Its first word, ``""`` where that contains values.
    """

    LABELS: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, label: str = "") -> None:
        self.label = label

    @classmethod
    def match(cls, word: str, value: str) -> "Token | None":
        """Return the token if another word begins one, by its shape and that of the word behind."""
        return None

    @abstractmethod
    def read(self, draft: Draft, at: int) -> int:
        """Put the values of the token at a word into the record, and return its number of words.

        Raises:
            UnreadableError: The words are not such a token; nothing has been put.
            NextRecordError, RestartError: The token belongs to another record.
        """

    @abstractmethod
    def columns(self, words: Sequence[str], numbers: NumberMap) -> None:
        """Assign the runs behind the label to columns, by the shape of the token's words."""

    @classmethod
    def render(cls, sample: Sample) -> Iterator[str]:
        """Print the tokens of this kind, or raise ValueError if the format cannot express them."""
        yield from ()


class ValueToken(Token):
    """A label and one word, which is one field of the record."""

    FIELD: ClassVar[str]

    def read(self, draft: Draft, at: int) -> int:
        value = self.read_value(draft.words[at + 1])
        draft.signs += 1
        if self.FIELD in draft.once:
            raise draft.next_record()
        draft.once[self.FIELD] = value
        return 2

    @staticmethod
    @abstractmethod
    def read_value(text: str) -> Any:
        """Return the record of a word, or raise UnreadableError."""


class UnknownToken(Token):
    """A word that was not understood: it is kept, and the words behind it are read."""

    def read(self, draft: Draft, at: int) -> int:
        draft.unparsed.append(self.label)
        if at == draft.first:
            draft.first += 1
        return 1

    def columns(self, words: Sequence[str], numbers: NumberMap) -> None:
        """Nothing but the label."""
