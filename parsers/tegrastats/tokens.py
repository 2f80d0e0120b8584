"""The base of all tokens, and the record that they fill while a line is read."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from datetime import datetime
from operator import attrgetter
from typing import ClassVar

from ..records import Core, Dla, Emc, Engine, Gpu, Iram, Rail, Ram, Sample, Swap
from .layout import NumberMap

# A token has at most five words.
_PADDING = [""] * 5


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
        gpu_text: Value of the first GPU cluster, while a second may follow.
        is_regular: Whether the same tokens with other values mean the same in other lines.
    """

    def __init__(self, words: list[str], start: int) -> None:
        self.end = len(words)
        self.words = words + _PADDING
        self.first = start
        self.ram_at: int | None = None
        self.signs = 0
        self.gpu_text: str | None = None
        self.is_regular = start == 0
        self.unparsed = words[:start]
        self.time: datetime | None = None
        self.ram: Ram | None = None
        self.swap: Swap | None = None
        self.iram: Iram | None = None
        self.cpu: tuple[Core, ...] = ()
        self.edp: int | None = None
        self.emc: Emc | None = None
        self.gpu: Gpu | None = None
        self.engines: dict[str, Engine] = {}
        self.dla: dict[str, Engine] = {}
        self.zones: dict[str, float | None] = {}
        self.maxima: dict[str, float] = {}
        self.rails: dict[str, Rail] = {}

    def clash(self) -> None:
        """Begin anew at RAM if something is there twice, and stood before RAM the first time."""
        if self.ram_at is not None and self.time is None and self.first < self.ram_at:
            raise RestartError(self.ram_at)

    def next_record(self) -> NextRecordError:
        """Return the error for something that a record has once and that is there twice."""
        self.clash()
        return NextRecordError()

    def repeat(self, at: int, words: int) -> int:
        """Leave out a token whose name was there before."""
        self.clash()
        self.unparsed += self.words[at : at + words]
        self.is_regular = False
        return words

    def leave(self, text: str) -> None:
        """Keep a part of a word that was not understood."""
        self.unparsed.append(text)
        self.is_regular = False

    def sample(self, source_line: str | None) -> Sample:
        """Return the record."""
        dla = tuple([one for one in self.dla.values() if isinstance(one, Dla)])
        if len(dla) > 1:
            dla = tuple(sorted(dla, key=attrgetter("core")))
        return Sample(
            self.time,
            self.ram,
            self.swap,
            self.iram,
            self.cpu,
            self.edp,
            self.emc,
            self.gpu,
            self.engines,
            dla,
            self.zones,
            self.maxima,
            self.rails,
            tuple(self.unparsed),
            source_line,
        )


class Token(ABC):
    """A token that begins with a certain word; it remembers the values that it has read."""

    def __init__(self, label: str) -> None:
        self.label = label

    @classmethod
    @abstractmethod
    def match(cls, word: str, value: str) -> "Token | None":
        """Return the token if a word begins one of this kind, by the shape of the word behind."""

    @abstractmethod
    def read(self, draft: Draft, at: int) -> int:
        """Put the values of the token at a word into the record, and return its number of words.

        Raises:
            UnreadableError: The words are not such a token; nothing has been put.
            NextRecordError, RestartError: The token belongs to another record.
        """

    @abstractmethod
    def columns(self, words: Sequence[str], numbers: NumberMap) -> None:
        """Assign the runs in the token's words to columns, by the shape of the values."""

    @classmethod
    def render(cls, sample: Sample) -> Iterator[str]:
        """Print the tokens of this kind, or raise ValueError if the format cannot express them."""
        yield from ()


class LabelToken(Token):
    """A token that its label alone identifies."""

    LABELS: ClassVar[frozenset[str]]

    @classmethod
    def match(cls, word: str, value: str) -> Token | None:
        return cls(word) if word in cls.LABELS else None


class UnknownToken(Token):
    """A word that was not understood: it is kept, and the words behind it are read."""

    @classmethod
    def match(cls, word: str, value: str) -> Token | None:
        return cls(word)

    def read(self, draft: Draft, at: int) -> int:
        draft.unparsed.append(self.label)
        if at == draft.first:
            draft.first += 1
        return 1

    def columns(self, words: Sequence[str], numbers: NumberMap) -> None:
        numbers.literal(self.label)
