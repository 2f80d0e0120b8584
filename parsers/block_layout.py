"""What each number of lines of one layout means.

Lines that are the same but for their digits are read together. Which number means what is told
by the tokens of one of them. For all others every gap between two numbers has to be as long as
there, every digit of a name has to be the same, and every number has to be one that the general
path would take; ``sheet.py`` looks at that.
"""

import re
from dataclasses import dataclass
from datetime import datetime, timezone

import numpy as np

from .digits import LONG_BIT, MOST_RUNS, POINT_BIT, WIDE_BIT, WRONG_BIT, Floats, Integers
from .errors import ParseError
from .lexer import split_prefix
from .recorded_time import ABSENT
from .records import Sample
from .token_runs import EPOCH_BITS, LITERAL_BITS, RESERVED_COLUMNS, TokenRuns
from .tokenizer import cut_line, tokenize
from .vocabulary import Vocabulary

MOST_COLUMNS = 1024

# No number of a layout has these, whatever the line has that it is learnt from.
_NEVER = POINT_BIT | LONG_BIT | WIDE_BIT | WRONG_BIT

_EPOCH = re.compile("[0-9]{1,12}([.][0-9]{1,12})?")
_NANOSECONDS = 9
_SECOND_NS = 1_000_000_000
_LATEST_EPOCH = 9_000_000_000


@dataclass(frozen=True, slots=True)
class BlockLayout:
    """One layout of lines with m runs; columns are numbers of a ``Numbering``.

    Attributes:
        sample: The record of the line that it was learnt from, if that was read word by word.
        like: shape (m,), the runs of that line, as ``Runs.packed`` has them.
        bits: shape (m,), what of each must be the same in all lines.
        columns: shape (m,), the column of each.
        factors: shape (m,), by what the printed number is multiplied,
        divisors: shape (m,), and then divided, to be in base units.
        negative: The runs with a minus before them.
        copied: Runs that are in further columns too,
        copies: and these.
        clocks: Runs that are a clock of something that may be off,
        gates: and the columns that say whether it is on.
        constant_columns: Columns that are the same in all lines,
        constants: shape (c, 1), and their numbers.
        used: All columns but the reserved ones, by name.
        unparsed_words: Words that are not understood.
        has_epoch: Whether the first run is an epoch prefix.
    """

    sample: Sample | None
    like: Integers
    bits: Integers
    columns: Integers
    factors: Floats
    divisors: Floats
    negative: list[int]
    copied: list[int]
    copies: list[int]
    clocks: list[int]
    gates: list[int]
    constant_columns: list[int]
    constants: Floats
    used: dict[str, int]
    unparsed_words: int
    has_epoch: bool


class Numbering(dict[str, int]):
    """Names of columns and their numbers, in the order in which they came up."""

    def __init__(self) -> None:
        """Begin with the reserved ones."""
        super().__init__((name, number) for number, name in enumerate(RESERVED_COLUMNS))

    def __missing__(self, name: str) -> int:
        """Number a new name."""
        return self.setdefault(name, len(self))


def learn_layout(
    line: str, packed: Integers, numbering: Numbering, vocabulary: Vocabulary
) -> BlockLayout:
    r"""Learn a layout from one line of it.

    Args:
        line: Without newline.
        packed: shape (m,), its runs.
        numbering: Columns so far; those that are new are noted there.
        vocabulary: Tokens so far; so are they.

    Raises:
        ParseError: The line is no record, or one that has to be looked at by itself.

    >>> from .digits import find_runs
    >>> line = "RAM 1/2MB NVDLA0 off"
    >>> runs = find_runs(f"{line}\n".encode())
    >>> layout = learn_layout(line, runs.packed[:3], Numbering(), Vocabulary())
    >>> list(layout.used), layout.constants.tolist()
    (['ram.used_bytes', 'ram.total_bytes', 'dla.0.on'], [[0.0]])
    """
    if not line.isascii():
        raise ParseError("noise", line)
    runs = TokenRuns()
    has_epoch = "::" in line and split_prefix(line)[0] is not None
    if has_epoch:
        runs.put(EPOCH_BITS)
    sample = None
    tokens = vocabulary.compose(cut_line(line)[1])
    if tokens is None:
        reading = tokenize(line)
        if reading.tokens is None:
            raise ParseError("noise", line)
        sample = reading.sample
        tokens = vocabulary.learn(reading)
    runs.extend(tokens)
    if len(runs.bits) != len(packed) or not 0 < len(packed) <= MOST_RUNS:
        raise ParseError("noise", line)
    bits = np.array(runs.bits)
    # Of a run that is no number of eight digits the value says nothing.
    if (packed[bits == LITERAL_BITS] & (POINT_BIT | LONG_BIT)).any():
        raise ParseError("noise", line)
    names = [name for name in runs.names if name not in RESERVED_COLUMNS]
    names += [*runs.copies, *runs.gates, *runs.constants]
    has_room = len(numbering) + len(names) <= MOST_COLUMNS or numbering.keys() >= set(names)
    if len(set(names)) != len(names) or not has_room:
        raise ParseError("noise", line)
    return BlockLayout(
        sample=sample,
        like=packed & ~_NEVER,
        bits=bits,
        columns=np.array([numbering[name] for name in runs.names]),
        factors=np.array(runs.factors),
        divisors=np.array(runs.divisors),
        negative=runs.negative,
        copied=list(runs.copies.values()),
        copies=[numbering[name] for name in runs.copies],
        clocks=list(runs.gates.values()),
        gates=[numbering[name] for name in runs.gates],
        constant_columns=[numbering[name] for name in runs.constants],
        constants=np.array(list(runs.constants.values()))[:, None],
        used={name: numbering[name] for name in names},
        unparsed_words=0 if sample is None else len(sample.unparsed),
        has_epoch=has_epoch,
    )


def seconds_of(time: datetime | None) -> int:
    """Return a local time as printed, as if it were UTC, in seconds since 1970.

    >>> seconds_of(datetime(1970, 1, 2))
    86400
    """
    return ABSENT if time is None else int(time.replace(tzinfo=timezone.utc).timestamp())


def epoch_ns(text: str) -> int:
    """Read the seconds of an epoch prefix to the last digit; beyond nanoseconds they are cut.

    Raises:
        ParseError: The text is no such number.

    >>> epoch_ns("1750866199.3488")
    1750866199348800000
    """
    if _EPOCH.fullmatch(text) is None:
        raise ParseError("noise", text)
    whole, _, fraction = text.partition(".")
    seconds = int(whole)
    if seconds > _LATEST_EPOCH:
        return ABSENT
    return seconds * _SECOND_NS + int(fraction[:_NANOSECONDS].ljust(_NANOSECONDS, "0"))
