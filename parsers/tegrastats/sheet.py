"""The records of one block of lines, as they become columns.

A layout is learnt from the tokens of one line. Lines of one layout are appended together, so the
rows of a sheet are in the order of their lines only when it is finished.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

import numpy as np

from ..errors import ParseError
from ..records import Sample, flatten
from .digits import MOST_RUNS, Flags, Floats, Integers, Runs
from .layout import (
    LENGTH_BITS,
    LENGTH_SHIFT,
    LITERAL_BITS,
    LONG_BIT,
    POINT_BIT,
    RESERVED_COLUMNS,
    TIME_COLUMNS,
    WIDE_BIT,
    WRONG_BIT,
    NumberMap,
)
from .line import LineParser, Tokens, split_prefix, split_words
from .printed_time import ABSENT
from .values import GATED_CELSIUS

MOST_COLUMNS = 1024

# No number of a layout has these, whatever the line has that it is learnt from.
_NEVER = POINT_BIT | LONG_BIT | WIDE_BIT | WRONG_BIT

_EPOCH = re.compile("[0-9]{1,12}([.][0-9]{1,12})?")
_NANOSECONDS = 9
_SECOND_NS = 1_000_000_000
_LATEST_EPOCH = 9_000_000_000


@dataclass(frozen=True, slots=True)
class BlockLayout:
    """One layout of lines: a ``NumberMap`` of m runs with numbers of a ``Numbering`` as columns.

    Attributes:
        like: shape (m,), the runs of one line, as ``Runs.packed`` has them.
        bits, columns, factors, divisors: shape (m,).
        copied, copies: Runs that are in further columns too, and these columns.
        clocks, gates: Runs that are a clock of something that may be off, and the columns of that.
        constants: shape (c, 1).
        used: All columns but the reserved ones, by name.
        has_epoch: Whether the first run is an epoch prefix.
    """

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
    line: str, packed: Integers, numbering: Numbering, parser: LineParser
) -> tuple[BlockLayout, Sample]:
    r"""Learn a layout from one line and its m runs, and read the line; number new columns.

    Raises:
        ParseError: The line is not a record, or one that must be read by itself.

    >>> from .digits import find_runs
    >>> line = "RAM 1/2MB NVDLA0 off"
    >>> runs = find_runs(f"{line}\n".encode())
    >>> layout, _ = learn_layout(line, runs.packed[:3], Numbering(), LineParser())
    >>> list(layout.used), layout.constants.tolist()
    (['ram.used_bytes', 'ram.total_bytes', 'dla.0.on'], [[0.0]])
    """
    numbers, words, tokens = NumberMap(), split_words(line), Tokens()
    draft = parser.read(line, words, tokens)
    if not (line.isascii() and draft.is_regular and draft.ram_at is not None):
        raise ParseError("noise", line)
    has_epoch = split_prefix(line)[0] is not None
    if has_epoch:
        numbers.epoch()
    ends = [at for _, at in tokens[1:]] + [len(words)]
    for (token, at), end in zip(tokens, ends, strict=True):
        token.columns(words[at:end], numbers)
    if len(numbers.bits) != len(packed) or not 0 < len(packed) <= MOST_RUNS:
        raise ParseError("noise", line)
    bits = np.array(numbers.bits)
    # The value of a run with a decimal point, or of more than eight digits, is undefined.
    if (packed[bits == LITERAL_BITS] & (POINT_BIT | LONG_BIT)).any():
        raise ParseError("noise", line)
    names = [name for name in numbers.names if name not in RESERVED_COLUMNS]
    names += [*numbers.copies, *numbers.gates, *numbers.constants]
    has_room = len(numbering) + len(names) <= MOST_COLUMNS or numbering.keys() >= set(names)
    if len(set(names)) != len(names) or not has_room:
        raise ParseError("noise", line)
    layout = BlockLayout(
        like=packed & ~_NEVER,
        bits=bits,
        columns=np.array([numbering[name] for name in numbers.names]),
        factors=np.array(numbers.factors),
        divisors=np.array(numbers.divisors),
        negative=numbers.negative,
        copied=list(numbers.copies.values()),
        copies=[numbering[name] for name in numbers.copies],
        clocks=list(numbers.gates.values()),
        gates=[numbering[name] for name in numbers.gates],
        constant_columns=[numbering[name] for name in numbers.constants],
        constants=np.array(list(numbers.constants.values()))[:, None],
        used={name: numbering[name] for name in names},
        unparsed_words=len(draft.unparsed),
        has_epoch=has_epoch,
    )
    return layout, draft.sample(None)


def seconds_of(time: datetime | None) -> int:
    """Return a local time as printed, as if it were UTC, in seconds since 1970."""
    return ABSENT if time is None else int(time.replace(tzinfo=timezone.utc).timestamp())


def epoch_ns(text: str) -> int:
    """Read the seconds of an epoch prefix to the last digit; beyond nanoseconds they are cut.

    Raises:
        ParseError: The text is not such a number.

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


Empty = Callable[[tuple[int, int]], Floats]
"""Makes an uninitialized array of a shape, in memory that the caller chooses."""

_TIME = slice(len(RESERVED_COLUMNS) - len(TIME_COLUMNS), len(RESERVED_COLUMNS))
_NO_LINES: Integers = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Batch:
    """The records of some lines in a row, as columns.

    Attributes:
        names: Names of the columns, as in ``flatten``.
        values: shape (columns, n), base units; NaN if a line does not contain it.
        line: shape (n,), number of the line in its log, from 1 on.
        printed_seconds, received_ns: shape (n,), see ``RecordedClock.feed``.
        lines: Number of lines, with the skipped ones.
        skipped: Number of lines that are not a record, by reason.
        unparsed_words: Words in records that were not understood.
        size_bytes: Size of the block.
    """

    names: tuple[str, ...]
    values: Floats
    line: Integers
    printed_seconds: Integers
    received_ns: Integers
    lines: int
    skipped: Counter[str]
    unparsed_words: int
    size_bytes: int


class Sheet:
    """Rows of a block of n lines, at most one per line."""

    def __init__(self, block: bytes, runs: Runs, columns: int) -> None:
        """Begin without rows, with so many columns, the reserved ones among them."""
        self.rows = 0
        self._block = block
        self._runs = runs
        lines = len(runs.line_ends)
        self._values: Floats = np.full((columns, lines), np.nan)
        self._line = np.empty(lines, np.int64)
        self._printed_seconds = np.full(lines, ABSENT)
        self._received_ns = np.full(lines, ABSENT)
        self._used: dict[str, int] = {}
        self._next_column = columns
        self._unparsed_words = np.zeros(lines, np.int64)

    def read(self, layout: BlockLayout, lines: Integers, sample: Sample | None = None) -> Integers:
        """Make rows of the lines that have a layout, and return the other lines.

        Args:
            layout: The layout with which they are compared.
            lines: shape (m,), which lines, rising.
            sample: The record of the first one, from which the layout was learnt just now.

        Raises:
            ParseError: The new layout gives another record of its own line.
        """
        runs, count = self._runs, len(layout.like)
        firsts = runs.first[lines]
        # A line with fewer or more runs differs in the bit of the last one.
        apart: Integers = _windows(runs.packed, count)[firsts]
        apart ^= layout.like
        apart &= layout.bits
        others: Integers = _NO_LINES
        received_ns: Integers | int = ABSENT
        if np.count_nonzero(apart) or layout.has_epoch:
            same: Flags = ~np.any(apart, axis=1)
            if layout.has_epoch:
                received_ns = self._read_epochs(firsts, same)[same]
            others = lines[~same]
            lines, firsts = lines[same], firsts[same]
            if not len(lines) and sample is None:
                return others
        numbers: Floats = _windows(runs.numbers, count)[firsts]
        numbers *= layout.factors
        numbers /= layout.divisors
        if layout.negative:
            below = numbers[:, layout.negative]
            below[below == GATED_CELSIUS] = np.nan
            numbers[:, layout.negative] = below
        begin, end = self.rows, self.rows + len(lines)
        rows = self._wide(layout.used.values())[:, begin:end]
        rows[layout.columns] = numbers.T
        if layout.constant_columns:
            rows[layout.constant_columns] = layout.constants
        if layout.copies:
            rows[layout.copies] = numbers[:, layout.copied].T
        if layout.gates:
            rows[layout.gates] = numbers[:, layout.clocks].T > 0
        if sample and not (len(lines) and _is_right(rows[:, 0].tolist(), layout, sample)):
            rows[:] = np.nan
            raise ParseError("noise", "")
        self._received_ns[begin:end] = received_ns
        self._line[begin:end] = lines
        self._used |= layout.used
        self._unparsed_words[begin:end] = layout.unparsed_words
        self.rows = end
        return others

    def read_times(self) -> Integers:
        """Read all printed times, remove rows with an invalid one, and return their lines."""
        self._next_column = max(self._used.values(), default=len(RESERVED_COLUMNS) - 1) + 1
        rows = np.flatnonzero(self._values[_TIME.start, : self.rows] >= 0)
        self._printed_seconds[rows], valid = _seconds(self._values[_TIME, rows].astype(np.int64))
        if valid.all():
            return _NO_LINES
        refused = self._line[rows[~valid]]
        kept = np.delete(np.arange(self.rows), rows[~valid])
        notes = (self._line, self._printed_seconds, self._received_ns, self._unparsed_words)
        for column in (*self._values, *notes):
            column[: len(kept)] = column[kept]
        self._values[:, len(kept) : self.rows] = np.nan
        self.rows = len(kept)
        return refused

    def add(self, line: int, sample: Sample, received_ns: int) -> None:
        """Make a row of a line that was read by itself; ``read_times`` comes before."""
        for name, value in flatten(sample).items():
            # Its names are not numbered for other blocks: a damaged log may have any number.
            number = self._used.setdefault(name, self._next_column)
            self._next_column = max(self._next_column, number + 1)
            self._wide([number])[number, self.rows] = value
        self._line[self.rows] = line
        self._printed_seconds[self.rows] = seconds_of(sample.time)
        self._received_ns[self.rows] = received_ns
        self._unparsed_words[self.rows] = len(sample.unparsed)
        self.rows += 1

    def finish(self, skipped: Counter[str], empty: Empty = np.empty) -> Batch:
        """Return the rows in the order of their lines."""
        line = self._line[: self.rows]
        order = np.argsort(line)
        values = empty((len(self._used), self.rows))
        for number, column in zip(self._used.values(), values, strict=True):
            # This mode does not check first that all places exist.
            self._values[number].take(order, out=column, mode="clip")
        return Batch(
            tuple(self._used),
            values,
            line[order] + 1,
            self._printed_seconds[order],
            self._received_ns[order],
            len(self._line),
            skipped,
            int(self._unparsed_words[: self.rows].sum()),
            len(self._block),
        )

    def _wide(self, columns: Iterable[int]) -> Floats:
        """Return the values, with room for some columns."""
        missing = max(columns, default=0) + 1 - len(self._values)
        if missing > 0:
            more = max(missing, len(self._values) // 2)
            room = np.full((more, len(self._line)), np.nan)
            self._values = np.concatenate((self._values, room))
        return self._values

    def _read_epochs(self, runs: Integers, same: Flags) -> Integers:
        """Read the epoch prefix of each line; unmark lines without a valid one."""
        received_ns = np.full(len(runs), ABSENT)
        ends = self._runs.ends[runs].tolist()
        lengths = (self._runs.packed[runs] & LENGTH_BITS) >> LENGTH_SHIFT
        for line, (end, length) in enumerate(zip(ends, lengths.tolist(), strict=True)):
            try:
                received_ns[line] = epoch_ns(self._block[end - length : end].decode())
            except ParseError:
                same[line] = False
        return received_ns


def _is_right(row: list[float], layout: BlockLayout, sample: Sample) -> bool:
    """Return whether a row has the values of a record."""
    time = sample.time
    printed = [number for number in row[_TIME] if number == number]
    if printed != ([] if time is None else [getattr(time, unit) for unit in TIME_COLUMNS]):
        return False
    values = {name: row[number] for name, number in layout.used.items()}
    return {name: one for name, one in values.items() if one == one} == flatten(sample)


def _windows(runs: Any, count: int) -> Any:
    """Return all stretches of so many runs, without copying them."""
    return np.ndarray((len(runs) - count + 1, count), runs.dtype, runs, strides=(8, 8))


def _seconds(times: Integers) -> tuple[Integers, Flags]:
    """Return the seconds since 1970 of the six printed numbers, and which times are valid."""
    month, day, year, hour, minute, second = times
    valid = (month >= 1) & (month <= 12) & (day >= 1) & (year >= 1)
    valid &= (hour <= 23) & (minute <= 59) & (second <= 59)
    months = ((year - 1970) * 12 + np.where(valid, month, 1) - 1).astype("datetime64[M]")
    first_day = months.astype("datetime64[D]").astype(np.int64)
    late = np.flatnonzero(day > 28)
    if len(late):
        next_month = (months[late] + 1).astype("datetime64[D]").astype(np.int64)
        valid[late] &= first_day[late] + day[late] <= next_month
    days = first_day + day - 1
    seconds: Integers = ((days * 24 + hour) * 60 + minute) * 60 + second
    return seconds, valid
