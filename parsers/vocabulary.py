"""What was found out about the tokens of one line holds for the same tokens in another one.

A log has hundreds of layouts, since each engine goes on and off and each zone comes and goes by
itself; but all of them are made of the same few tokens.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from .errors import ParseError, UnreadableError
from .lexer import read_time
from .names import ends_a_line, engine_name
from .token_runs import TokenRuns, enter
from .tokenizer import Kind, Reading

MOST_TOKENS = 4096

# A number, but not the digits of a name.
_NUMBER = re.compile("(?<![0-9A-Za-z_.])[0-9.]+")
# Tokens that hang on no other one; of what the second cluster says see below.
_FREE: frozenset[Kind] = frozenset(
    (
        *("time", "memory", "cores", "temperature", "rail", "unconnected"),
        *("emc", "first_cluster", "engine"),
    )
)


@dataclass(frozen=True, slots=True)
class _Known:
    """A token that was met.

    Attributes:
        kind: What it is.
        name: What no two tokens of a record have in common, if anything.
        may_end: Whether it means the same as the last one of a line.
        runs: What its runs are.
    """

    kind: Kind
    name: str | None
    may_end: bool
    runs: TokenRuns


class Vocabulary:
    """The tokens that were met in lines that were read word by word."""

    def __init__(self) -> None:
        """Begin with none."""
        self._known: dict[tuple[str, ...], _Known] = {}
        self._lengths: dict[str, list[int]] = {}

    def compose(self, words: Sequence[str]) -> TokenRuns | None:
        """Tell what the runs of a line are from those of its tokens.

        A token is read by its own words alone, but where a line begins in the middle of a record,
        has something twice, has no RAM, or may be cut behind a bare number; so a line of nothing
        but tokens that were met means what they mean. Digits of values are not looked at here.

        Args:
            words: Of the line, without epoch prefix.

        Returns:
            ``None`` where a token was not met before, or the line has to be read as a whole.
        """
        shapes = _shapes(words)
        whole = TokenRuns()
        met: set[str] = set()
        at = 0
        while at < len(words):
            known, length = self._find(shapes, at)
            if known is None or known.name in met:
                return None
            if known.kind == "time" and not _is_time(at, words):
                return None
            if known.name is not None:
                met.add(known.name)
            whole.extend(known.runs)
            at += length
            if at == len(words) and not known.may_end:
                return None
        return whole if "memory RAM" in met else None

    def learn(self, reading: Reading) -> TokenRuns:
        """Tell what the runs of a line are, and remember its tokens.

        Args:
            reading: What the general path made of it, with its tokens.

        Raises:
            ParseError: The two clusters of a GPU stand apart.
        """
        words, shapes = reading.words, _shapes(reading.words)
        whole = TokenRuns()
        tokens = list(reading.tokens or ())
        while tokens:
            token = tokens.pop(0)
            end = token.at + token.words
            if token.kind == "second_cluster":
                raise ParseError("noise", " ".join(words))
            runs = TokenRuns()
            enter(token.kind, words[token.at : end], runs)
            if token.kind == "first_cluster" and tokens and tokens[0].kind == "second_cluster":
                # What that says hangs on the first, so the two are remembered as one.
                begin, end = end, end + tokens.pop(0).words
                enter("second_cluster", words[begin:end], runs)
            if token.kind in _FREE and len(self._known) < MOST_TOKENS:
                shape = tuple(shapes[token.at : end])
                label, last = shape[0], shape[-1]
                may_end = token.kind != "engine" or last != "0" or ends_a_line(label)
                name = _name(token.kind, label)
                self._known[shape] = _Known(token.kind, name, may_end, runs)
                lengths = {*self._lengths.get(label, ()), len(shape)}
                self._lengths[label] = sorted(lengths, reverse=True)
            whole.extend(runs)
        return whole

    def _find(self, shapes: Sequence[str], at: int) -> tuple[_Known | None, int]:
        """Return the longest token that begins at a word, and how many words it has."""
        for length in self._lengths.get(shapes[at], ()):
            known = self._known.get(tuple(shapes[at : at + length]))
            if known is not None:
                return known, length
        return None, 0


def _shapes(words: Sequence[str]) -> list[str]:
    """Return words with one digit for each number; names keep theirs."""
    return _NUMBER.sub("0", " ".join(words)).split(" ")


def _name(kind: Kind, word: str) -> str | None:
    """Return what no two tokens of a record have in common, if anything."""
    if kind == "unconnected":
        return None
    if kind == "engine":
        return engine_name(word)
    if kind in ("time", "cores", "emc", "first_cluster"):
        return kind
    return f"{kind} {word.partition('@')[0]}"


def _is_time(at: int, words: Sequence[str]) -> bool:
    """Tell whether a record begins with a date and a time of day."""
    try:
        read_time(words[at], words[at + 1])
    except UnreadableError:
        return False
    return at == 0
