r"""Whole logs become columns, a block of lines at a time.

Lines are told apart by what is left of them without digits. Those of one layout are read
together (``block_layout.py``); a line of its own kind, a damaged one, or one that only looks like
others goes by itself through ``parse_line``. Either way the same numbers come out.

>>> import io
>>> log = io.BytesIO(b"RAM 1/2MB tj@40C\nnoise\nRAM 1/2MB tj@41.5C\n")
>>> [batch] = read_batches(log)
>>> batch.names[-1], batch.values[-1].tolist(), batch.line.tolist(), batch.skipped
('temperatures_celsius.tj', [40.0, 41.5], [1, 3], Counter({'noise': 1}))
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Final, Protocol

import numpy as np

from .block_layout import BlockLayout, epoch_ns, learn_layout, seconds_of
from .digits import CHARACTERS, Floats, Integers, Runs, find_runs
from .errors import ParseError
from .flat import flatten
from .layout_table import Decoded, LayoutTable
from .lexer import split_prefix
from .recorded_time import ABSENT
from .tegrastats import LineParser
from .tokenizer import LONGEST_LINE

BLOCK_BYTES: Final = 1 << 21
LEARN_AFTER: Final = 3
MOST_LAYOUTS_ALIKE: Final = 8
MOST_FAILURES: Final = 8
MOST_LAYOUTS: Final = 4096
MOST_SKELETONS: Final = 4096

_FAMILIES = (
    *("ram", "swap", "iram", "cpu", "edp_limit_hertz", "emc", "gpu", "engines", "dla"),
    *("temperatures_celsius", "temperatures_max_celsius", "rails"),
)
_NUMBER = re.compile("([0-9]+)")


class Log(Protocol):
    """Where bytes are read from."""

    def read1(self, size: int = ..., /) -> bytes:
        """Return some of the next bytes, none at the end."""


@dataclass(frozen=True, slots=True)
class Batch:
    """The records of some lines in a row, as columns.

    Attributes:
        names: Of the columns, as ``flatten`` names them.
        values: shape (columns, n), base units; NaN where a line does not say it.
        line: shape (n,), number of the line in its log, from 1 on.
        printed_seconds: shape (n,), local time as printed, as if it were UTC, since 1970;
            ``ABSENT`` where none is.
        received_ns: shape (n,), epoch prefix; ``ABSENT`` where none is.
        lines: How many lines there were.
        skipped: How many of them were no record, by reason.
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


@dataclass(slots=True)
class _Part:
    """Records of one layout in a block, or one that was read by itself."""

    names: tuple[str, ...]
    at: Integers
    values: Floats
    printed_seconds: Integers
    received_ns: Integers
    unparsed_words: int


@dataclass(slots=True)
class _Alike:
    """Lines that are the same without their digits.

    Attributes:
        seen: How many there were.
        layouts: Which layouts they had, by number.
        failures: How many of them gave no layout.
    """

    seen: int = 0
    layouts: list[int] = field(default_factory=list)
    failures: int = 0


class ColumnParser:
    """Reads blocks of lines, and remembers their layouts."""

    def __init__(self, learn_after: int = LEARN_AFTER) -> None:
        """Prepare.

        Args:
            learn_after: How many lines must look alike before their layout is learnt.
        """
        self._learn_after = learn_after
        self._alike: dict[bytes, _Alike] = {}
        self._table = LayoutTable()
        self._lines = LineParser()

    def parse(self, block: bytes) -> Batch:
        """Read a block.

        Args:
            block: Whole lines, each with its newline.
        """
        runs = find_runs(block)
        alike, kinds = self._sort(block.translate(None, CHARACTERS).split(b"\n")[:-1])
        parts: list[_Part] = []
        alone: list[Integers] = []
        lines = np.arange(len(kinds))
        tried = 0
        while len(lines):
            table, layouts = self._layouts(alike, kinds[lines], tried, lines, block, runs)
            known = layouts >= 0
            alone.append(lines[~known])
            lines, layouts = lines[known], layouts[known]
            if len(lines):
                decoded = table.decode(block, runs, lines, layouts)
                parts.append(_part(lines[decoded.good], decoded))
                lines = lines[~decoded.good]
            tried += 1
        skipped: Counter[str] = Counter()
        for at in sorted(np.concatenate(alone).tolist()) if alone else []:
            try:
                parts.append(self._read_alone(_line(block, runs, at), at))
            except ParseError as error:
                skipped[error.reason] += 1
        return _join(parts, len(runs.line_ends), skipped, len(block))

    def _sort(self, skeletons: list[bytes]) -> tuple[list[_Alike], Integers]:
        """Tell which lines look alike.

        Returns:
            All kinds of lines of the block, and the number of that of each line.
        """
        numbers: dict[bytes, int] = {}
        kinds = np.array([numbers.setdefault(one, len(numbers)) for one in skeletons], np.int64)
        counts = np.bincount(kinds).tolist()
        if len(self._alike) > MOST_SKELETONS:  # most of them garbage
            self._alike = {look: one for look, one in self._alike.items() if one.layouts}
        alike = [self._alike.setdefault(one, _Alike()) for one in numbers]
        for one, count in zip(alike, counts, strict=True):
            one.seen += count
        return alike, kinds

    def _layouts(
        self,
        alike: list[_Alike],
        kinds: Integers,
        tried: int,
        lines: Integers,
        block: bytes,
        runs: Runs,
    ) -> tuple[LayoutTable, Integers]:
        """Return the layout by which each line is to be read next, -1 for none; learn new ones."""
        wanted, firsts = np.unique(kinds, return_index=True)
        order = np.argsort(firsts)
        new = [
            (alike[kind], line)
            for kind, line in zip(
                wanted[order].tolist(), lines[firsts[order]].tolist(), strict=True
            )
            if len(alike[kind].layouts) == tried
        ]
        self._learn(new, block, runs)
        numbers = [one.layouts[tried] if tried < len(one.layouts) else -1 for one in alike]
        return self._table, np.array(numbers, np.int64)[kinds]

    def _learn(self, shown: list[tuple[_Alike, int]], block: bytes, runs: Runs) -> None:
        """Learn further layouts from lines, given in order, where there may be one."""
        new: list[tuple[_Alike, BlockLayout, int]] = []
        for one, at in shown:
            has_room = len(one.layouts) < MOST_LAYOUTS_ALIKE and len(self._table) < MOST_LAYOUTS
            if one.seen < self._learn_after or one.failures >= MOST_FAILURES or not has_room:
                continue
            packed = runs.packed[runs.first[at] : runs.first[at + 1]]
            try:
                line = _line(block, runs, at).decode("ascii")
                new.append((one, learn_layout(line, packed), at))
            except (ParseError, UnicodeDecodeError):
                one.failures += 1
        if not new:
            return
        numbers = np.arange(len(self._table), len(self._table) + len(new))
        self._table = self._table.grown(layout for _, layout, _ in new)
        lines = np.array([at for _, _, at in new])
        right = self._table.gives_back(block, runs, lines, numbers)
        for (one, _, _), number, is_right in zip(new, numbers.tolist(), right, strict=True):
            if is_right:
                one.layouts.append(number)
            else:
                one.failures += 1

    def _read_alone(self, line: bytes, at: int) -> _Part:
        text = line.decode("utf-8", "backslashreplace")
        sample = self._lines.parse(text)
        named = flatten(sample)
        return _Part(
            tuple(named),
            np.array([at]),
            np.array(list(named.values()), np.float64)[:, None],
            np.array([seconds_of(sample.time)]),
            np.array([_received_ns(text)]),
            len(sample.unparsed),
        )


def read_batches(
    log: Log, parser: ColumnParser | None = None, *, block_bytes: int = BLOCK_BYTES
) -> Iterator[Batch]:
    """Read a log to its end.

    Args:
        log: Bytes; any lines.
        parser: What was learnt from other logs.
        block_bytes: Size of a block; twenty times that is in memory while it is read.

    Yields:
        The records, in order; every line is in the count of one batch.
    """
    parser = parser or ColumnParser()
    yield from numbered(map(parser.parse, cut_blocks(log, block_bytes)))


def numbered(batches: Iterable[Batch]) -> Iterator[Batch]:
    """Number the lines of batches of one log through."""
    line = 0
    for batch in batches:
        yield replace(batch, line=batch.line + line)
        line += batch.lines


def column_order(name: str) -> tuple[int, list[str | int]]:
    """Return what columns are sorted by: as in the record, and cores by their number.

    >>> sorted(["rails.VDD_IN.instant_watts", "cpu.10.online", "cpu.9.online"], key=column_order)
    ['cpu.9.online', 'cpu.10.online', 'rails.VDD_IN.instant_watts']
    """
    pieces = _NUMBER.split(name)
    natural = [int(piece) if number % 2 else piece for number, piece in enumerate(pieces)]
    return _FAMILIES.index(name.partition(".")[0]), natural


def column_type(name: str) -> str:
    """Return the pandas type of a column; each has a mark for what is missing.

    >>> column_type("dla.0.on"), column_type("gpu.frequency_hertz.1")
    ('boolean', 'Int64')
    """
    if name.startswith(("temperatures_", "rails.")):
        return "float64"
    field = name.rstrip(".0123456789").rpartition(".")[2]
    if field in ("on", "online"):
        return "boolean"
    return "float64" if field.endswith("_ratio") else "Int64"


def _received_ns(text: str) -> int:
    epoch, rest = split_prefix(text)
    if epoch is None:
        return ABSENT
    return epoch_ns(text[: len(text) - len(rest)].strip().removesuffix("::"))


def _line(block: bytes, runs: Runs, at: int) -> bytes:
    begin = runs.line_ends[at - 1] + 1 if at else 0
    return block[begin : runs.line_ends[at]]


def _part(at: Integers, decoded: Decoded) -> _Part:
    return _Part(
        decoded.names,
        at,
        decoded.values,
        decoded.printed_seconds,
        decoded.received_ns,
        decoded.unparsed_words,
    )


def _join(parts: list[_Part], lines: int, skipped: Counter[str], size_bytes: int) -> Batch:
    """Put the records of a block in the order of their lines."""
    unparsed_words = sum(part.unparsed_words for part in parts)
    if len(parts) == 1:
        [one] = parts
        return Batch(
            one.names,
            one.values,
            one.at + 1,
            one.printed_seconds,
            one.received_ns,
            lines,
            skipped,
            unparsed_words,
            size_bytes,
        )
    places = {name: at for at, name in enumerate(dict.fromkeys(_all_names(parts)))}
    is_record = np.zeros(lines, np.bool_)
    for part in parts:
        is_record[part.at] = True
    row_of_line = np.cumsum(is_record) - 1
    records = int(is_record.sum())
    values = np.full((len(places), records), np.nan)
    printed_seconds, received_ns = np.full(records, ABSENT), np.full(records, ABSENT)
    for part in parts:
        rows = row_of_line[part.at]
        printed_seconds[rows] = part.printed_seconds
        received_ns[rows] = part.received_ns
        for name, column in zip(part.names, part.values, strict=True):
            values[places[name], rows] = column
    line = np.flatnonzero(is_record) + 1
    return Batch(
        tuple(places),
        values,
        line,
        printed_seconds,
        received_ns,
        lines,
        skipped,
        unparsed_words,
        size_bytes,
    )


def _all_names(parts: Iterable[_Part]) -> Iterator[str]:
    return chain.from_iterable(part.names for part in parts)


def cut_blocks(log: Log, size: int) -> Iterator[bytes]:
    """Yield the log in blocks of whole lines; one that is too long is cut in several."""
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
    """Cut lines that are too long, as ``readline`` would, and end the last line."""
    begin = 0
    while len(block) - begin > LONGEST_LINE:
        end = block.rfind(b"\n", begin, begin + LONGEST_LINE) + 1
        if not end:
            end = begin + LONGEST_LINE
            block = block[:end] + b"\n" + block[end:]
            end += 1
        begin = end
    return block if block.endswith(b"\n") else block + b"\n"
