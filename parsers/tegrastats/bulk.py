r"""Whole logs become columns, a block of lines at a time.

Lines are grouped by their text without digits. Lines of one layout are read together: the tokens
of one line assign its numbers to columns. In all others every gap between two numbers must have the
same length, every digit of a name must be equal, and every number must be valid. A rare or damaged
line, or one that only looks like others, is read alone by ``parse_line``, with the same result.

>>> import io
>>> log = io.BytesIO(b"RAM 1/2MB tj@40C\nnoise\nRAM 1/2MB tj@41.5C\n")
>>> [batch] = read_batches(log)
>>> batch.names[-1], batch.values[-1].tolist(), batch.line.tolist(), batch.skipped
('temperatures_celsius.tj', [40.0, 41.5], [1, 3], Counter({'noise': 1}))
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

import numpy as np

from ..errors import ParseError
from .digits import CHARACTERS, Integers, Runs, find_runs
from .line import LONGEST_LINE, LineParser, split_prefix
from .printed_time import ABSENT
from .sheet import Batch, BlockLayout, Empty, Numbering, Sheet, epoch_ns, learn_layout

BLOCK_BYTES: Final = 1 << 21
LEARN_AFTER: Final = 3
MOST_LAYOUTS_ALIKE: Final = 8
MOST_FAILURES: Final = 8
MOST_LAYOUTS: Final = 4096
MOST_SKELETONS: Final = 4096

# Arrays of a block are smaller, as a rule.
_KEPT_BYTES = 16 << 20


class Log(Protocol):
    """A source of bytes."""

    def read1(self, size: int = ..., /) -> bytes:
        """Return some of the next bytes, or no bytes at the end."""


@dataclass(slots=True)
class _Look:
    """Lines that are the same without their digits: how many, their layouts, failed attempts."""

    seen: int = 0
    layouts: list[BlockLayout] = field(default_factory=list)
    failures: int = 0


class _Looks(dict[bytes, int]):
    """Lines without their digits, numbered; ``all`` has one entry per number."""

    def __init__(self, some: Iterable[tuple[bytes, _Look]] = ()) -> None:
        both = list(some)
        super().__init__((skeleton, number) for number, (skeleton, _) in enumerate(both))
        self.all = [look for _, look in both]

    def __missing__(self, skeleton: bytes) -> int:
        self.all.append(_Look())
        return self.setdefault(skeleton, len(self))

    def kept(self) -> "_Looks":
        """Return the ones with a layout; most others are damaged lines."""
        return _Looks((one, self.all[at]) for one, at in self.items() if self.all[at].layouts)


class ColumnParser:
    """Reads blocks of lines, and remembers their layouts."""

    def __init__(self, learn_after: int = LEARN_AFTER) -> None:
        """Learn a layout once so many lines look alike."""
        self._learn_after = learn_after
        self._looks = _Looks()
        self._numbering = Numbering()
        self._layouts = 0
        self._lines = LineParser()
        _keep_memory()

    def parse(self, block: bytes, empty: Empty = np.empty) -> Batch:
        """Read whole lines, each with its newline, none longer than ``LONGEST_LINE``."""
        runs = find_runs(block)
        sheet = Sheet(block, runs, len(self._numbering))
        alone = [self._read(sheet, look, lines, block, runs) for look, lines in self._alike(block)]
        alone.append(sheet.read_times())
        skipped: Counter[str] = Counter()
        for at in sorted(np.concatenate(alone).tolist()):
            text = _line(block, runs, at).decode("utf-8", "backslashreplace")
            try:
                sheet.add(at, self._lines.parse(text), _received_ns(text))
            except ParseError as error:
                skipped[error.reason] += 1
        return sheet.finish(skipped, empty)

    def _alike(self, block: bytes) -> Iterator[tuple[_Look, Integers]]:
        """Yield groups of lines that look alike."""
        if len(self._looks) > MOST_SKELETONS:
            self._looks = self._looks.kept()
        skeletons = block.translate(None, CHARACTERS).split(b"\n")[:-1]
        looks = np.array(list(map(self._looks.__getitem__, skeletons)))
        order = np.argsort(looks, kind="stable")
        edges = np.flatnonzero(np.diff(looks[order])) + 1
        for lines in np.split(order, edges):
            yield self._looks.all[looks[lines[0]]], lines

    def _read(
        self, sheet: Sheet, look: _Look, lines: Integers, block: bytes, runs: Runs
    ) -> Integers:
        """Read lines by known layouts or newly learnt ones; return those to read one by one."""
        look.seen += len(lines)
        for layout in look.layouts:
            lines = sheet.read(layout, lines)
            if not len(lines):
                return lines
        while len(lines) and self._may_learn(look):
            at = lines[0]
            packed = runs.packed[runs.first[at] : runs.first[at + 1]]
            try:
                text = _line(block, runs, at).decode("ascii")
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


def _received_ns(line: str) -> int:
    epoch = split_prefix(line)[0]
    return ABSENT if epoch is None else epoch_ns(epoch)


def _keep_memory() -> None:
    """Make glibc keep freed memory of the size of a block's columns.

    It returns large pieces to the system until one of their size was freed, and zeroing new ones
    for each block takes longer than reading it.
    """
    np.empty(_KEPT_BYTES, np.uint8)


def _line(block: bytes, runs: Runs, at: int) -> bytes:
    begin = runs.line_ends[at - 1] + 1 if at else 0
    return block[begin : runs.line_ends[at]]


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
    """Cut lines that are too long, as ``readline`` does, and end the last line."""
    begin = 0
    while len(block) - begin > LONGEST_LINE:
        end = block.rfind(b"\n", begin, begin + LONGEST_LINE) + 1
        if not end:
            end = begin + LONGEST_LINE
            block = block[:end] + b"\n" + block[end:]
            end += 1
        begin = end
    return block if block.endswith(b"\n") else block + b"\n"
