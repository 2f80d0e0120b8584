r"""Whole logs become columns, a block of lines at a time.

Lines are grouped by their text without digits. Lines of one layout are read together: the tokens
of one line assign its numbers to columns. In all others every gap between two numbers must have the
same length, every digit of a name must be equal, and every number must be valid. A rare or damaged
line, or one that only looks like others, is read alone by ``parse_line``, with the same result.
Lines of one layout are appended together, so the rows are in the order of lines only at the end.

>>> import io
>>> log = io.BytesIO(b"RAM 1/2MB tj@40C\nnoise\nRAM 1/2MB tj@41.5C\n")
>>> [batch] = read_batches(log)
>>> batch.names[-1], batch.values[-1].tolist(), batch.line.tolist(), batch.skipped
('temperatures_celsius.tj', [40.0, 41.5], [1, 3], Counter({'noise': 1}))
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol, TypeVar

import numpy as np

from ..errors import ParseError
from ..records import Sample, flatten
from . import tokens
from .digits import CHARACTERS, MOST_RUNS, Flags, Floats, Integers, find_runs
from .line import LONGEST_LINE, LineParser, Tokens, split_records, split_words
from .prefix import LONGEST_PREFIX, Prefix, read_prefix, recorder_ns
from .printed_time import ABSENT, read_seconds, seconds_of
from .tokens import RESERVED_COLUMNS, TIME_COLUMNS
from .values import GATED_CELSIUS, HIGHEST_CELSIUS, LOWEST_CELSIUS

BLOCK_BYTES: Final = 1 << 21
LEARN_AFTER: Final = 3
MOST_LAYOUTS_ALIKE: Final = 8
MOST_FAILURES: Final = 8
MOST_LAYOUTS: Final = 4096
MOST_SKELETONS: Final = 4096
MOST_COLUMNS: Final = 1024

# Arrays of a block are smaller, as a rule.
_KEPT_BYTES = 16 << 20
# No number of a layout has these, whatever the line has that it is learnt from.
_NEVER = tokens.POINT_BIT | tokens.LONG_BIT | tokens.WIDE_BIT | tokens.WRONG_BIT
_TIME = slice(len(RESERVED_COLUMNS) - len(TIME_COLUMNS), len(RESERVED_COLUMNS))
_NO_LINES: Integers = np.empty(0, np.int64)

K = TypeVar("K")


class Log(Protocol):
    """A source of bytes."""

    def read1(self, size: int = ..., /) -> bytes:
        """Return some of the next bytes, or no bytes at the end."""


@dataclass(frozen=True, slots=True)
class BlockLayout:
    """One layout of lines, with m runs, and numbers of a ``Numbering`` for columns.

    Attributes:
        like: shape (m,), the runs of one line, as ``Runs.packed`` has them.
        bits, columns, factors, divisors: shape (m,).
        map: The same and the meaning of the words without a number, by names.
        used: All columns but the reserved ones, by name.
        prefix_runs: Number of runs up to the end of a recorder's time; 0 without one.
        is_recorder: Whether that time is the first run, and nothing else.
    """

    like: Integers
    bits: Integers
    columns: Integers
    factors: Floats
    divisors: Floats
    map: tokens.NumberMap
    used: dict[str, int]
    unparsed_words: int
    prefix_runs: int
    is_recorder: bool


class Numbering(dict[K, int]):
    """Names and their numbers, in the order in which they came up."""

    def __init__(self, names: Iterable[K] = ()) -> None:
        super().__init__((name, number) for number, name in enumerate(names))

    def __missing__(self, name: K) -> int:
        return self.setdefault(name, len(self))


def learn_layout(
    line: str, packed: Integers, numbering: Numbering[str], parser: LineParser
) -> tuple[BlockLayout, Sample]:
    r"""Learn a layout from one line and its m runs, and read the line; number new columns.

    ``ParseError``: the line is not a record, or must be read by itself.

    >>> from .digits import find_runs
    >>> line = "RAM 1/2MB NVDLA0 off"
    >>> runs = find_runs(f"{line}\n".encode())
    >>> layout, _ = learn_layout(line, runs.packed[:3], Numbering(RESERVED_COLUMNS), LineParser())
    >>> list(layout.used), layout.map.constants
    (['ram.used_bytes', 'ram.total_bytes', 'dla.0.on'], {'dla.0.on': 0.0})
    """
    prefix = read_prefix(line)
    words, read = split_words(prefix.rest), Tokens()
    draft = parser.read(line, words, read, prefix)
    is_plain = line.isascii() and prefix.rest.endswith(line[prefix.end :])
    if not (is_plain and draft.is_regular and draft.ram_at is not None):
        raise ParseError("noise", line)
    if len(split_records(line)) > 1:
        raise ParseError("noise", line)
    prefix_runs = len(tokens.RUN.findall(line[: prefix.end]))
    words_before = len(words) - len(split_words(line[prefix.end :]))
    numbers = _map_numbers(prefix_runs, words_before, words, read)
    bits = np.array(numbers.bits)
    names = [name for name in numbers.names if name not in RESERVED_COLUMNS]
    names += [*numbers.copies, *numbers.gates, *numbers.constants]
    if not (_describes(bits, packed) and _may_number(names, numbering)):
        raise ParseError("noise", line)
    layout = BlockLayout(
        like=packed & ~_NEVER,
        bits=bits,
        columns=np.array([numbering[name] for name in numbers.names]),
        factors=np.array(numbers.factors),
        divisors=np.array(numbers.divisors),
        map=numbers,
        used={name: numbering[name] for name in names},
        unparsed_words=len(draft.unparsed),
        prefix_runs=prefix_runs,
        is_recorder=prefix_runs == 1 and line[: prefix.end].rstrip().endswith("::"),
    )
    return layout, draft.sample(None)


def _map_numbers(
    prefix_runs: int, words_before: int, words: list[str], read: Tokens
) -> tokens.NumberMap:
    """Assign the runs of a line to columns.

    Words before the time of a recorder mean nothing, and may differ from line to line as it does.
    """
    numbers = tokens.NumberMap()
    for _ in range(prefix_runs):
        numbers.put(tokens.PREFIX_BITS)
    ends = [at for _, at in read[1:]] + [len(words)]
    for (token, at), end in zip(read, ends, strict=True):
        if at < words_before:
            continue
        numbers.literal(token.label)
        token.columns(words[at:end], numbers)
    return numbers


def _describes(bits: Integers, packed: Integers) -> bool:
    """Return whether the parts of runs that must be equal fit the runs of their own line."""
    if len(bits) != len(packed) or not 0 < len(packed) <= MOST_RUNS:
        return False
    # The value of a run with a decimal point, or of more than eight digits, is undefined.
    undefined = tokens.POINT_BIT | tokens.LONG_BIT
    return not (packed[bits == tokens.LITERAL_BITS] & undefined).any()


def _may_number(names: Sequence[str], numbering: Numbering[str]) -> bool:
    """Return whether columns are named once each, and may all have a number."""
    if len(set(names)) != len(names):
        return False
    return len(numbering) + len(names) <= MOST_COLUMNS or numbering.keys() >= set(names)


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
    """

    names: tuple[str, ...]
    values: Floats
    line: Integers
    printed_seconds: Integers
    received_ns: Integers
    lines: int
    skipped: Counter[str]
    unparsed_words: int


class Sheet:
    """Rows of a block of n lines, as a rule at most one per line."""

    def __init__(self, block: bytes, columns: int) -> None:
        """Begin without rows, with so many columns, the reserved ones among them."""
        self.rows = 0
        self._block = block
        self._runs = find_runs(block)
        lines = len(self._runs.line_ends)
        self._values: Floats = np.full((columns, lines), np.nan)
        # Of each row its line, printed second, epoch prefix, and number of words left over.
        self._notes = np.empty((4, lines), np.int64)
        self._used: dict[str, int] = {}
        self._next_column = columns

    def line(self, at: int) -> bytes:
        """Return a line of the block."""
        ends = self._runs.line_ends
        begin = 0
        if at:
            begin = ends[at - 1] + 1
        return self._block[begin : ends[at]]

    def packed(self, at: int) -> Integers:
        """Return the runs of a line."""
        first, end = self._runs.first[at : at + 2]
        packed: Integers = self._runs.packed[first:end]
        return packed

    def read(self, layout: BlockLayout, lines: Integers, sample: Sample | None = None) -> Integers:
        """Make rows of the lines that have a layout, and return the other lines.

        Args:
            layout: The layout with which they are compared.
            lines: shape (m,), which lines, rising.
            sample: The record of the first one, from which the layout was learnt just now.

        Raises:
            ParseError: The new layout gives another record of its own line.
        """
        lines, firsts, received_ns, others = self._compare(layout, lines)
        if not len(lines) and sample is None:
            return others
        numbers = self._numbers(layout, firsts)
        wrong = _is_wrong(numbers, layout.map)
        if wrong.any():
            others = np.sort(np.concatenate((others, lines[wrong])))
            lines, numbers = lines[~wrong], numbers[~wrong]
            if not isinstance(received_ns, int):
                received_ns = received_ns[~wrong]
        begin, end = self.rows, self.rows + len(lines)
        rows = self._wide(layout.used.values())[:, begin:end]
        _fill(rows, layout, numbers)
        if sample and not (len(lines) and _is_right(rows[:, 0].tolist(), layout, sample)):
            rows[:] = np.nan
            raise ParseError("noise", "")
        for note, values in zip(
            self._notes, (lines, ABSENT, received_ns, layout.unparsed_words), strict=True
        ):
            note[begin:end] = values
        self._used |= layout.used
        self.rows = end
        return others

    def _compare(
        self, layout: BlockLayout, lines: Integers
    ) -> tuple[Integers, Integers, Integers | int, Integers]:
        """Return the lines that have a layout, with their first runs and times, and the others.

        The times are those of a recorder.
        """
        firsts = self._runs.first[lines]
        # A line with fewer or more runs differs in the bit of the last one.
        apart: Integers = _windows(self._runs.packed, len(layout.like))[firsts]
        apart ^= layout.like
        apart &= layout.bits
        if not np.count_nonzero(apart) and not layout.prefix_runs:
            # Most blocks: nothing is copied.
            return lines, firsts, ABSENT, _NO_LINES
        same: Flags = ~np.any(apart, axis=1)
        received_ns: Integers | int = ABSENT
        if layout.prefix_runs:
            received_ns = self._read_times_before(layout, lines, firsts, same)[same]
        return lines[same], firsts[same], received_ns, lines[~same]

    def _numbers(self, layout: BlockLayout, firsts: Integers) -> Floats:
        """Return the numbers of lines in base units, by the places of their first runs."""
        numbers: Floats = _windows(self._runs.numbers, len(layout.like))[firsts]
        numbers *= layout.factors
        numbers /= layout.divisors
        for run in layout.map.negative:
            below = numbers[:, run]
            below[below == GATED_CELSIUS] = np.nan
        return numbers

    def read_times(self) -> Integers:
        """Read all printed times, remove rows with an invalid one, and return their lines."""
        self._next_column = max(self._used.values(), default=len(RESERVED_COLUMNS) - 1) + 1
        line, printed_seconds = self._notes[:2]
        rows = np.flatnonzero(self._values[_TIME.start, : self.rows] >= 0)
        printed_seconds[rows], valid = read_seconds(self._values[_TIME, rows].astype(np.int64))
        if valid.all():
            return _NO_LINES
        refused: Integers = line[rows[~valid]]
        kept = np.delete(np.arange(self.rows), rows[~valid])
        for column in (*self._values, *self._notes):
            column[: len(kept)] = column[kept]
        self._values[:, len(kept) : self.rows] = np.nan
        self.rows = len(kept)
        return refused

    def add(self, line: int, sample: Sample, received_ns: int) -> None:
        """Make a row of a line that was read by itself; ``read_times`` comes before."""
        if self.rows == self._notes.shape[1]:
            self._add_room()
        for name, value in flatten(sample).items():
            # Its names are not numbered for other blocks: a damaged log may have any number.
            number = self._used.setdefault(name, self._next_column)
            self._next_column = max(self._next_column, number + 1)
            self._wide([number])[number, self.rows] = value
        notes = (line, seconds_of(sample.time), received_ns, len(sample.unparsed))
        self._notes[:, self.rows] = notes
        self.rows += 1

    def finish(self, skipped: Counter[str]) -> Batch:
        """Return the rows in the order of their lines."""
        # Records of one line stay in their order.
        order = np.argsort(self._notes[0, : self.rows], kind="stable")
        line, printed_seconds, received_ns, unparsed_words = self._notes[:, order]
        values = np.empty((len(self._used), self.rows))
        for number, column in zip(self._used.values(), values, strict=True):
            # This mode does not check first that all places exist.
            self._values[number].take(order, out=column, mode="clip")
        return Batch(
            names=tuple(self._used),
            values=values,
            line=line + 1,
            printed_seconds=printed_seconds,
            received_ns=received_ns,
            lines=len(self._runs.line_ends),
            skipped=skipped,
            unparsed_words=int(unparsed_words.sum()),
        )

    def _add_room(self) -> None:
        """Make room for as many rows again: a line may hold several records."""
        more = max(self.rows, 1)
        self._values = np.concatenate(
            (self._values, np.full((len(self._values), more), np.nan)), axis=1
        )
        self._notes = np.concatenate((self._notes, np.empty((4, more), np.int64)), axis=1)

    def _wide(self, columns: Iterable[int]) -> Floats:
        """Return the values, with room for some columns."""
        missing = max(columns, default=0) + 1 - len(self._values)
        if missing > 0:
            more = max(missing, len(self._values) // 2)
            room = np.full((more, self._notes.shape[1]), np.nan)
            self._values = np.concatenate((self._values, room))
        return self._values

    def _read_times_before(
        self, layout: BlockLayout, lines: Integers, firsts: Integers, same: Flags
    ) -> Integers:
        """Read the recorder's time of each line; unmark lines without it in the same place."""
        if layout.is_recorder:
            times = self._read_recorder(firsts)
        else:
            times = self._read_prefixes(lines, layout.prefix_runs)
        received_ns = np.full(len(lines), ABSENT)
        for row, ns in enumerate(times):
            if ns is None:
                same[row] = False
            else:
                received_ns[row] = ns
        return received_ns

    def _read_recorder(self, firsts: Integers) -> Iterator[int | None]:
        """Yield the time in the first run of each line."""
        ends = self._runs.ends[firsts].tolist()
        lengths = (self._runs.packed[firsts] & tokens.LENGTH_BITS) >> tokens.LENGTH_SHIFT
        for end, length in zip(ends, lengths.tolist(), strict=True):
            yield recorder_ns(self._block[end - length : end].decode())

    def _read_prefixes(self, lines: Integers, prefix_runs: int) -> Iterator[int | None]:
        """Yield the time before each line, if it ends behind so many runs."""
        ends = self._runs.line_ends
        begins = np.where(lines > 0, ends[lines - 1] + 1, 0).tolist()
        for begin in begins:
            # A few more characters show whether the record begins there.
            text = self._block[begin : begin + LONGEST_PREFIX + 4].decode("latin-1")
            prefix = read_prefix(text.partition("\n")[0])
            place = len(tokens.RUN.findall(text, 0, prefix.end))
            if place == prefix_runs:
                yield prefix.received_ns
            else:
                yield None


def _fill(rows: Floats, layout: BlockLayout, numbers: Floats) -> None:
    """Write the numbers of lines, and what follows from their layout, to their rows."""
    rows[layout.columns] = numbers.T
    for name, value in layout.map.constants.items():
        rows[layout.used[name]] = value
    for name, run in layout.map.copies.items():
        rows[layout.used[name]] = numbers[:, run]
    for name, run in layout.map.gates.items():
        rows[layout.used[name]] = numbers[:, run] > 0


def _is_wrong(numbers: Floats, map_: tokens.NumberMap) -> Flags:
    """Return which lines have a value that no board can have."""
    wrong: Flags = np.zeros(len(numbers), np.bool_)
    for run in map_.celsius_runs:
        wrong |= numbers[:, run] > HIGHEST_CELSIUS
    for run in map_.negative:
        wrong |= numbers[:, run] < LOWEST_CELSIUS
    for run in map_.parts:
        wrong |= numbers[:, run] > numbers[:, run + 1]
    return wrong


def _is_right(row: list[float], layout: BlockLayout, sample: Sample) -> bool:
    """Return whether a row has the values of a record."""
    printed_time = []
    if sample.time is not None:
        printed_time = [getattr(sample.time, unit) for unit in TIME_COLUMNS]
    # Absent numbers are NaN, which is not equal to itself.
    if [number for number in row[_TIME] if number == number] != printed_time:
        return False
    values = {}
    for name, column in layout.used.items():
        if row[column] == row[column]:
            values[name] = row[column]
    return values == flatten(sample)


def _windows(runs: Any, count: int) -> Any:
    """Return all stretches of so many runs, without copying them."""
    return np.ndarray((len(runs) - count + 1, count), runs.dtype, runs, strides=(8, 8))


@dataclass(slots=True)
class _Look:
    """Lines that are the same without their digits: how many, their layouts, failed attempts."""

    seen: int = 0
    layouts: list[BlockLayout] = field(default_factory=list)
    failures: int = 0


def _received_ns(prefix: Prefix) -> int:
    if prefix.received_ns is None:
        return ABSENT
    return prefix.received_ns


class ColumnParser:
    """Reads blocks of lines, and remembers their layouts."""

    def __init__(self, learn_after: int = LEARN_AFTER) -> None:
        """Learn a layout once so many lines look alike."""
        self._learn_after = learn_after
        # Lines without their digits, numbered, and one look per number.
        self._skeletons: Numbering[bytes] = Numbering()
        self._looks: list[_Look] = []
        self._numbering = Numbering(RESERVED_COLUMNS)
        self._layouts = 0
        self._lines = LineParser()
        # glibc returns large pieces of memory to the system until one of their size was freed, and
        # zeroing new ones for the columns of each block takes longer than reading it.
        np.empty(_KEPT_BYTES, np.uint8)

    def parse(self, block: bytes) -> Batch:
        """Read lines, none longer than ``LONGEST_LINE``; one without its newline was cut."""
        whole = block[: block.rfind(b"\n") + 1]
        cut_at = -1
        if len(whole) < len(block):
            cut_at = whole.count(b"\n")
            block += b"\n"
        sheet = Sheet(block, len(self._numbering))
        alone = [self._read(sheet, look, lines) for look, lines in self._alike(whole)]
        alone.append(sheet.read_times())
        if cut_at >= 0:
            alone.append(np.array([cut_at]))
        skipped: Counter[str] = Counter()
        for at in sorted(np.concatenate(alone).tolist()):
            text = sheet.line(at).decode("utf-8", "backslashreplace")
            pieces = split_records(text)
            failure: ParseError | None = None
            has_record = False
            for piece in pieces:
                is_cut_off = piece.is_cut or (at == cut_at and piece is pieces[-1])
                try:
                    sample = self._lines.parse(piece.text, is_cut=is_cut_off)
                except ParseError as error:
                    failure = failure or error
                    continue
                has_record = True
                sheet.add(at, sample, _received_ns(read_prefix(piece.text)))
            if failure is not None and not has_record:
                skipped[failure.reason] += 1
        return sheet.finish(skipped)

    def _alike(self, block: bytes) -> Iterator[tuple[_Look, Integers]]:
        """Yield groups of lines that look alike."""
        if len(self._skeletons) > MOST_SKELETONS:
            # Most of those without a layout are damaged lines.
            looks = zip(self._skeletons, self._looks, strict=True)
            kept = [(skeleton, look) for skeleton, look in looks if look.layouts]
            self._skeletons = Numbering(skeleton for skeleton, _ in kept)
            self._looks = [look for _, look in kept]
        skeletons = block.translate(None, CHARACTERS).split(b"\n")[:-1]
        if not skeletons:
            return
        numbers = np.array(list(map(self._skeletons.__getitem__, skeletons)))
        self._looks += (_Look() for _ in range(len(self._skeletons) - len(self._looks)))
        order = np.argsort(numbers, kind="stable")
        edges = np.flatnonzero(np.diff(numbers[order])) + 1
        for lines in np.split(order, edges):
            yield self._looks[numbers[lines[0]]], lines

    def _read(self, sheet: Sheet, look: _Look, lines: Integers) -> Integers:
        """Read lines by known layouts or newly learnt ones; return those to read one by one."""
        look.seen += len(lines)
        for layout in look.layouts:
            lines = sheet.read(layout, lines)
            if not len(lines):
                return lines
        while len(lines) and self._may_learn(look):
            at = lines[0]
            try:
                text, packed = sheet.line(at).decode("ascii"), sheet.packed(at)
                layout, sample = learn_layout(text, packed, self._numbering, self._lines)
                lines = sheet.read(layout, lines, sample)
            except (ParseError, UnicodeDecodeError):
                look.failures += 1
                break
            look.layouts.append(layout)
            self._layouts += 1
        return lines

    def _may_learn(self, look: _Look) -> bool:
        has_room = len(look.layouts) < MOST_LAYOUTS_ALIKE and self._layouts < MOST_LAYOUTS
        return look.seen >= self._learn_after and look.failures < MOST_FAILURES and has_room


def read_batches(
    log: Log, parser: ColumnParser | None = None, *, block_bytes: int = BLOCK_BYTES
) -> Iterator[Batch]:
    """Read a log to its end and yield its records in order.

    Args:
        log: Bytes; any lines.
        parser: A parser that has read other logs.
        block_bytes: Size of a block; reading it takes twenty times that in memory.
    """
    parser = parser or ColumnParser()
    yield from numbered(map(parser.parse, cut_blocks(log, block_bytes)))


def numbered(batches: Iterable[Batch]) -> Iterator[Batch]:
    """Number the lines of batches of one log through."""
    line = 0
    for batch in batches:
        yield replace(batch, line=batch.line + line)
        line += batch.lines


def cut_blocks(log: Log, size: int) -> Iterator[bytes]:
    """Yield the log in blocks of whole lines; one that is too long is cut in several.

    Only the last line of the log may lack its newline.
    """
    pieces: list[bytes] = []
    kept = 0
    while data := log.read1(size):
        pieces.append(data)
        kept += len(data)
        if kept < size:
            continue
        block = b"".join(pieces)
        end = block.rfind(b"\n") + 1
        if not end and kept > LONGEST_LINE:
            end = len(block) - len(block) % LONGEST_LINE
        if end:
            yield _cut(block[:end])
        pieces = [block[end:]]
        kept -= end
    if kept:
        yield _cut(b"".join(pieces))


def _cut(block: bytes) -> bytes:
    """Cut lines that are too long, as ``readline`` does."""
    begin = 0
    while len(block) - begin > LONGEST_LINE:
        end = block.rfind(b"\n", begin, begin + LONGEST_LINE) + 1
        if not end:
            end = begin + LONGEST_LINE
            block = block[:end] + b"\n" + block[end:]
            end += 1
        begin = end
    if len(block) - begin == LONGEST_LINE and not block.endswith(b"\n"):
        return block + b"\n"
    return block
